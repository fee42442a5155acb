"""A file that is not what was exported is refused whole, with the place named."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from carrying import Line, Store, edit, fill, lines_of, read, store_at, write, write_lines
from whole_stores import Stores, everything

from mcp_state.errors import BadArgument, DiskFull
from mcp_state.store.transfer import lines as transfer_lines

AGAIN = "Nothing was imported. Export it again, and carry the whole file as it is."


@pytest.fixture
async def theirs(stores: Stores) -> AsyncGenerator[Store]:
    """A store with something in it, which stays as it is."""
    async with store_at(stores / "b.db") as store:
        await store.as_("ben").memory.set("plan", "theirs")
        yield store


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A whole export of a few of all things."""

    async def make() -> bytes:
        async with store_at(tmp_path_factory.mktemp("ours") / "a.db") as ours:
            await fill(ours)
            return read(await ours.export())

    return asyncio.run(make())


@pytest.fixture
def file(tmp_path: Path, exported: bytes) -> Path:
    path = tmp_path / "x.jsonl"
    path.write_bytes(exported)
    return path


async def refusal(theirs: Store, file: Path, project: str = "acme") -> str:
    """What is said of a file after its name; nothing changes."""
    before = everything(theirs.path)
    with pytest.raises(BadArgument) as refused:
        await theirs.as_(project=project).transfer.import_file(file)
    assert everything(theirs.path) == before
    assert refused.value.next_step.startswith("Nothing was imported. ")
    name, place, what = refused.value.fact.partition(f"{file}:")
    assert (name, place) == ("", f"{file}:"), refused.value.fact
    return what


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "1: the file is empty"),
        (b"\n", "1: this is no export of mcp-state"),
        (b"just a text\nof two lines\n", "1: this is no export of mcp-state"),
        (b'{"name": "something else"}\n', "1: this is no export of mcp-state"),
        (b'{"mcp_state_export": true}\n', "1: this is no export of mcp-state"),
        (b'{"mcp_state_export": 0}\n', "1: this is no export of mcp-state"),
        (b"[1, 2, 3]\n", "1: this is no export of mcp-state"),
        (b"[" * 60_000 + b"\n", "1: this is no export of mcp-state"),
        (random.Random(1).randbytes(100_000), "1: this is no export of mcp-state"),
        (b"\xef\xbb\xbf" + b'{"mcp_state_export": 1}\n', "1: this is no export of mcp-state"),
        ('{"mcp_state_export": 1}\n'.encode("utf-16"), "1: this is no export of mcp-state"),
        (b"SQLite format 3\0" + bytes(4080), "1: it is a database, not an export"),
        (gzip.compress(b'{"mcp_state_export": 1}\n', mtime=0), "1: it is compressed (gzip)"),
        (
            b'{"mcp_state_export":3,"anything":[]}\n',
            "1: it was written by a newer version of mcp-state (format 3, this one reads 2)",
        ),
        (b'{"mcp_state_export":1}\n', "1: the first line has no 'project'"),
        (b'{"mcp_state_export":1}', "1: the file ends in the middle of this line"),
        (b'{"mcp_state_export":1}\r\n', "1: its line ends were changed to CRLF"),
    ],
)
async def test_what_is_no_export_is_told(
    theirs: Store, tmp_path: Path, data: bytes, what: str
) -> None:
    file = tmp_path / "x.jsonl"
    write(file, data)
    told = await refusal(theirs, file)
    assert told == what or (what.endswith("no 'project'") and "1: the first line has no " in told)


@pytest.mark.sqlite
async def test_a_file_that_was_cut_anywhere_is_refused(theirs: Store, file: Path) -> None:
    data = read(file)
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    rng = random.Random(7)
    cuts = {0, 1, ends[0] - 1, *ends[:3], *ends[-4:-1], len(data) - 1, len(data) - 30}
    cuts |= {rng.randrange(len(data)) for _ in range(20)}
    for cut in sorted(cuts):
        write(file, data[:cut])
        told = await refusal(theirs, file)
        place = data[:cut].count(b"\n") + 1
        expected = {
            0: "1: the file is empty",
            **dict.fromkeys(ends, f"{place}: the file ends here, without its last line"),
        }
        middle = "the file ends in the middle of this line"
        head = "this is no export of mcp-state"
        assert told == expected.get(cut, f"{place}: {middle if cut > ends[0] else head}") or (
            cut == ends[0] - 1 and told == f"1: {middle}"
        )


@pytest.mark.sqlite
async def test_a_byte_that_was_changed_anywhere_is_noticed(theirs: Store, file: Path) -> None:
    data = read(file)
    rng = random.Random(11)
    for _ in range(60):
        at = rng.randrange(len(data))
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        write(file, bytes(changed))
        assert await refusal(theirs, file)


async def test_an_edited_value_is_noticed_at_the_checksum(theirs: Store, file: Path) -> None:
    write(file, read(file).replace(b'"title":"the base"', b'"title":"the vase"'))
    count = len(lines_of(file))
    assert await refusal(theirs, file) == (
        f"{count}: the checksum is that of another text: something above was changed"
    )


@pytest.mark.sqlite
async def test_lines_that_were_lost_doubled_or_moved_are_noticed(theirs: Store, file: Path) -> None:
    lines = read(file).splitlines(keepends=True)
    count = len(lines)
    first = next(n for n, line in enumerate(lines) if line.startswith(b'{"event":1,'))
    for changed, what in (
        (
            lines[:1] + lines[2:],
            f"{count - 1}: {count - 2:,} lines come before this one, which says",
        ),
        (lines[:2] + lines[1:], "3: this thread is in the file twice"),
        ([*lines[:2], lines[3], lines[2], *lines[4:]], f"{count}: the checksum is that of another"),
        (
            lines[: first + 2] + lines[first + 3 :],
            f"{first + 3}: event 4 stands where event 3 should be",
        ),
        (
            [*lines[: first + 1], lines[first], *lines[first + 1 :]],
            f"{first + 2}: event 1 stands where event 2 should be",
        ),
        (
            [*lines[:first], lines[first + 1], lines[first], *lines[first + 2 :]],
            f"{first + 1}: event 2 stands where event 1 should be",
        ),
        ([*lines[:1], lines[first], *lines[1:]], "3: a thread stands among the events"),
        ([*lines, lines[1]], f"{count + 1}: something follows the last line"),
        ([*lines, b"\n"], f"{count + 1}: something follows the last line"),
        ([*lines, *lines], f"{count + 1}: something follows the last line"),
        ([line.replace(b"\n", b"\r\n") for line in lines], "1: its line ends were changed to CRLF"),
        ([*lines[:5], b"\n", *lines[5:]], "6: this is not JSON"),
        ([*lines[:5], b"\xff\xfe\n", *lines[5:]], "6: this is not UTF-8"),
        ([*lines[:5], b"[]\n", *lines[5:]], "6: this is no JSON object"),
        ([*lines[:5], b'{"thread":NaN}\n', *lines[5:]], "6: this is not JSON"),
        ([*lines[:5], b'{"a":' * 50_000 + b"\n", *lines[5:]], "6: this is not JSON"),
        ([*lines[:5], b'{"spoon":{}}\n', *lines[5:]], "6: what is 'spoon'?"),
        ([*lines[:5], b'{"a":1,"b":2}\n', *lines[5:]], "6: what is 'a', 'b'?"),
        ([*lines[:5], b"{}\n", *lines[5:]], "6: what is "),
        (
            [*lines[:5], b'{"thread":{"name":"\\ud800"}}\n', *lines[5:]],
            "6: there is a character in it that cannot be stored",
        ),
    ):
        write(file, b"".join(changed))
        assert (await refusal(theirs, file)).startswith(what)


@pytest.mark.sqlite
async def test_a_line_that_never_ends_is_not_read_to_its_end(
    theirs: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, *rest = read(file).splitlines(keepends=True)
    write(file, b"x" * 200_000)
    assert await refusal(theirs, file) == "1: this is no export of mcp-state"
    monkeypatch.setattr(transfer_lines, "LONGEST_LINE", 100_000)
    write(file, head + b'{"memory":"' + b"x" * 200_000)
    assert await refusal(theirs, file) == "2: the line is longer than 100,000 bytes"
    write(file, head + b"".join(rest))
    assert (await theirs.as_(project="new").transfer.import_file(file)).events > 0


def change(kind: str, /, **values: Any) -> Callable[[list[Line]], None]:
    """Give the first thing of a kind (or the first event) other values."""

    def do(lines: list[Line]) -> None:
        line = next(line for line in lines if kind in line)
        (line if kind == "event" else line[kind]).update(values)

    return do


def drop(kind: str) -> Callable[[list[Line]], None]:
    """Take the first thing of a kind out."""

    def do(lines: list[Line]) -> None:
        lines.remove(next(line for line in lines if kind in line))

    return do


def empty(kind: str) -> Callable[[list[Line]], None]:
    """Let all events of a kind say nothing."""

    def do(lines: list[Line]) -> None:
        for line in lines:
            if line.get("kind") == kind:
                line["row"] = None

    return do


def without(kind: str, key: str) -> Callable[[list[Line]], None]:
    def do(lines: list[Line]) -> None:
        line = next(line for line in lines if kind in line)
        del (line if kind == "event" else line[kind])[key]

    return do


def of_format_1(lines: list[Line]) -> None:
    """Say that the version before wrote what it could not have."""
    lines[0]["mcp_state_export"] = 1


def rest(premise: str, given: int = 0) -> Callable[[list[Line]], None]:
    """Let the first fact rest on another one, and its events say so."""

    def do(lines: list[Line]) -> None:
        fact = next(line["fact"] for line in lines if "fact" in line)
        fact["reasons"] = [[premise.casefold()]]
        fact["given"] = [[given or fact["created"]]]
        for line in lines:
            if line.get("kind") == "fact" and line["name"] == fact["name"].casefold():
                line["row"]["reasons"] = [[premise]]

    return do


def rely(fact: str) -> Callable[[list[Line]], None]:
    """Let the thread that relies on facts rely on another one, and its events say so."""

    def do(lines: list[Line]) -> None:
        for line in lines:
            if line.get("thread", {}).get("relies_on"):
                line["thread"]["relies_on"] = [fact]
            elif line.get("kind") == "thread" and line["name"] == "relying":
                line["row"]["relies_on"] = [fact]

    return do


def believe(trust: str) -> Callable[[list[Line]], None]:
    """Let the fact that was refuted be of another trust, and its events say so."""

    def do(lines: list[Line]) -> None:
        for line in lines:
            if line.get("fact", {}).get("trust") == "refuted":
                line["fact"]["trust"] = trust
            elif line.get("kind") == "fact" and line["row"]["trust"] == "refuted":
                line["row"]["trust"] = trust

    return do


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("edited", "what"),
    [
        (change("thread", spoon=1), "the thread has an unknown 'spoon'"),
        (without("thread", "note"), "the thread has no 'note'"),
        (change("thread", note=None), "'note' of the thread is null, which is not a text"),
        (change("thread", version="1"), "'version' of the thread is \"1\", which is not a whole"),
        (change("thread", version=True), "'version' of the thread is true, which is not a whole"),
        (change("thread", version=1 << 63), "'version' of the thread is 9223372036854775808, whi"),
        (
            change("thread", version=-1),
            "'version' of the thread is -1, which is not a whole",
        ),
        (change("thread", created=0), "'created' of the thread is 0, which is not the number of"),
        (change("thread", changed=9999), "'changed' of the thread is 9999, which is no event"),
        (change("thread", changed=1), "'changed' of the thread is not what its events say"),
        (change("thread", changed_at="today"), "'changed_at' of the thread is \"today\", which is"),
        (change("thread", name="two\nlines"), "'name' of the thread is \"two\\nlines\", which is"),
        (change("thread", name="x" * 129), "'name' of the thread is \"xxx"),
        (change("thread", name="else"), "a thread without an event"),
        (change("thread", changed_by={"agent": "x"}), "'changed_by' of the thread is {\"agent\":"),
        (change("thread", places=[{"a": 1}]), "'places' of the thread is [{\"a\":1}], which is no"),
        (change("thread", depends_on=["nobody"]), "'depends_on' of the thread is not what its ev"),
        (change("thread", status="done"), "'status' of the thread is not what its events say"),
        (change("thread", note="forged"), "'note' of the thread is not what its events say"),
        (change("thread", version=7), "'version' of the thread is not what its events say"),
        (drop("thread"), "an event of a thread that is not in the file"),
        (change("criterion", thread="nobody"), "a criterion of something that is not in the file"),
        (change("criterion", passes=False), "'passing' of the thread is not what its events say"),
        (change("memory", value="forged"), "'value' of the memory is not what its events say"),
        (change("memory", value=None), "'value' of the memory is not what its events say"),
        (drop("memory"), "an event of a memory that is not in the file"),
        (change("run", goal="forged"), "'goal' of the run is not what its events say"),
        (drop("step"), "an event of a step that is not in the file"),
        (change("step", name="else"), "an event of a step that is not in the file"),
        (change("step", result="forged"), "'result' of the step is not what its events say"),
        (drop("journal"), "an event of the journal without an entry"),
        (change("journal", seq=1), "an entry of the journal without an event"),
        (change("journal", text="forged"), "'text' of the journal is not what its events say"),
        (change("journal", thread="nobody"), "'thread' of the journal is not what its events say"),
        (drop("blob"), "an event of a blob that is not in the file"),
        (change("blob", text="another"), "the text of the blob is not what its hash says"),
        (change("blob", bytes=1), "the text of the blob is not what its hash says"),
        (change("blob", summary="forged"), "'summary' of the blob is not what its events say"),
        (change("handoff", note="forged"), "'note' of the handoff is not what its events say"),
        (change("checkpoint", number=7), "an event of a checkpoint that is not in the file"),
        (change("checkpoint", state="forged"), "'state' of the checkpoint is not what its events"),
        (change("checkpoint", git={}), "'git' of the checkpoint is {}, which is not what git said"),
        (drop("message"), "a message of this run is missing"),
        (change("message", message="[1]"), "the text of the message is no JSON object"),
        (change("message", message="{"), "the text of the message is no JSON object"),
        (empty("journal"), "'seq' of the journal is not what its events say"),
        (empty("memory"), "'run' of the memory is not what its events say"),
        (change("idempotency", seq=1), "a key that leads to no entry"),
        (change("event", kind="spoon"), "'kind' of the event is \"spoon\", which is not a kind of"),
        (change("event", kind="step"), "a step is within a run"),
        (change("event", within="index", kind="thread"), "a thread is not within a run"),
        (change("event", row=[]), "'row' of the event is [], which is not an object or null"),
        (change("event", at="2026-11-29"), "'at' of the event is \"2026-11-29\", which is not a t"),
        (
            change("event", at="2026-11-29T25:00:00.000000Z"),
            "'at' of the event is \"2026-11-29T25:00:00.000000Z\", which is not a time",
        ),
        (change("event", name="a\x1fb"), "'name' of the event is "),
        (change("thread", relies_on=["gone"]), "'relies_on' of the thread is not what its events"),
        (change("thread", relies_on=["nobody"]), "a thread that relies on a fact that is not in"),
        (without("thread", "relies_on"), "the thread has no 'relies_on'"),
        (rely("nobody"), "a thread that relies on a fact that is not in the file"),
        (change("fact", statement="forged"), "'statement' of the fact is not what its events say"),
        (change("fact", statement=""), "'statement' of the fact is not what its events say"),
        (change("fact", trust="stale"), "'trust' of the fact is not what its events say"),
        (change("fact", held=False), "the last verification of the fact is not what its events"),
        (change("fact", verified=1), "the last verification of the fact is not what its events"),
        (change("fact", verified=9999), "'verified' of the fact is 9999, which is no event"),
        (change("fact", version=9), "'version' of the fact is not what its events say"),
        (change("fact", changed=1), "'changed' of the fact is not what its events say"),
        (change("fact", name="else"), "a fact without an event"),
        (change("fact", baseline={}), "'baseline' of the fact is {}, which is not what an address"),
        (change("fact", baseline=[]), "'baseline' of the fact is [], which is not what an address"),
        (change("fact", reasons=[[]]), "'reasons' of the fact is [[]], which is not a list of li"),
        (
            change("fact", reasons=[["gone"]], given=[[0]]),
            "'reasons' of the fact is not what its events say",
        ),
        (
            change("fact", reasons=[["nobody"]], given=[[0]]),
            "a fact that rests on one that is not in the file",
        ),
        (
            change("fact", given=[["1"]]),
            "'given' of the fact is [[\"1\"]], which is not a list of l",
        ),
        (
            change("fact", given=[[-1]]),
            "'given' of the fact is [[-1]], which is not a list of lists",
        ),
        (change("fact", given=[[1]]), "'given' of the fact does not go with its 'reasons'"),
        (change("fact", reasons=[["gone"]]), "'given' of the fact does not go with its 'reasons'"),
        (without("fact", "given"), "the fact has no 'given'"),
        (rest("Gone", 1), "a fact with a reason that no event gave"),
        (rest("Gone", 9999), "a fact with a reason that no event gave"),
        (change("fact", stated=1), "the fact was not stated when its events say"),
        (
            change("fact", stated_at="2026-11-29T10:00:00.000000Z"),
            "the fact was not stated when its",
        ),
        (change("fact", stated=9999), "'stated' of the fact is 9999, which is no event"),
        (change("fact", replaces="trusted"), "'replaces' of the fact is not what its events say"),
        (rest("nobody"), "a fact that rests on one that is not in the file"),
        (rest("Deployed"), "a fact in a circle of reasons"),
        (rest("Builds"), "a fact in a circle of reasons"),
        (drop("fact"), "an event of a fact that is not in the file"),
        (change("objective", intent="forged"), "'intent' of the objective is not what its events"),
        (change("objective", version=1), "'version' of the objective is not what its events say"),
        (drop("objective"), "an event of a objective that is not in the file"),
        (change("mcp_state_export"), ""),
        (of_format_1, "the thread has an unknown 'relies_on'"),
    ],
)
async def test_a_file_that_contradicts_itself_is_refused_at_the_line(
    theirs: Store, file: Path, edited: Callable[[list[Line]], None], what: str
) -> None:
    if not what:
        edit(file, lambda lines: None)
        assert (await theirs.as_(project="new").transfer.import_file(file)).events > 0
        return
    edit(file, edited)
    told = await refusal(theirs, file, "new")
    number, _, said = told.partition(": ")
    assert said.startswith(what)
    assert 1 < int(number) <= len(lines_of(file))


@pytest.mark.sqlite
async def test_the_first_line_has_to_be_that_of_what_follows(theirs: Store, file: Path) -> None:
    lines = lines_of(file)[:-1]
    head, rest = lines[0], lines[1:]
    count = head["events"]
    for changed, what in (
        ({"events": count - 1}, f"{len(lines) + 1}: there are {count} events; the first line says"),
        ({"events": count + 1}, f"{len(lines) + 1}: there are {count} events; the first line says"),
        ({"handoff": "h-none"}, "1: the handoff that it names is not in the file"),
        ({"handoff": ""}, "1: 'handoff' of the first line is \"\", which is not a key"),
        ({"project": ""}, "1: 'project' of the first line is \"\", which is not a name"),
        ({"spoon": 1}, "1: the first line has an unknown 'spoon'"),
    ):
        write_lines(file, [head | changed, *rest])
        told = await refusal(theirs, file)
        assert told.startswith(what) or "is no event" in told


@pytest.mark.parametrize(
    ("edited", "what"),
    [
        (change("attempt", step="nobody"), "foreign key constraint"),
        (believe("trusted"), "check constraint"),
    ],
    ids=["foreign key", "check"],
)
async def test_what_only_the_schema_refuses_leaves_the_store_as_it_was(
    theirs: Store, file: Path, edited: Callable[[list[Line]], None], what: str
) -> None:
    edit(file, edited)
    number, _, said = (await refusal(theirs, file, "new")).partition(": ")
    assert said.startswith("the store does not take this: ")
    assert what in said.lower()
    assert 1 < int(number) <= len(lines_of(file))


async def test_what_fails_late_leaves_the_store_as_it_was(theirs: Store, file: Path) -> None:
    lines = lines_of(file)[:-1]
    keys = [line for line in lines if "idempotency" in line]
    keys[-1]["idempotency"]["operation"] = None
    write_lines(file, lines)
    assert "'operation' of the idempotency is null" in await refusal(theirs, file)


@pytest.mark.sqlite
async def test_no_room_for_temporary_files_is_told_with_the_way_out(
    theirs: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mcp_state.store.transfer.staging.SCHEMA",
        ("PRAGMA max_page_count = 1", "CREATE TABLE a (b)", "CREATE TABLE c (d)"),
    )
    before = everything(theirs.path)
    with pytest.raises(DiskFull) as full:
        await theirs.as_().transfer.import_file(file)
    assert str(full.value) == (
        "disk_full: not imported: no room for temporary files (database or disk is full). Free "
        "some space, or name a directory with more of it in TMPDIR."
    )
    assert everything(theirs.path) == before


@pytest.mark.sqlite
async def test_nothing_stays_in_the_directory_of_temporary_files(
    theirs: Store, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("SQLITE_TMPDIR", str(folder))
    await theirs.as_(project="new").transfer.import_file(file)
    assert os.listdir(folder) == []
