"""A project is carried from one machine to another in one file, and reads the same there."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NoReturn

import pytest
from carrying import (
    data_of,
    fill,
    lines_of,
    store_at,
    things,
)
from conftest import FakeClock
from whole_stores import Stores, exists
from workload import StepClock

from mcp_state.errors import (
    BadArgument,
    Conflict,
    DiskFull,
    NotFound,
    ProjectUnknown,
    SecretRefused,
    StoreBusy,
    StoreReadonly,
)
from mcp_state.models import Caller, Exported, Imported, MemoryBlock
from mcp_state.store.database import open_database
from mcp_state.store.handoffs import Handoffs
from mcp_state.store.opening import apply, migrations
from mcp_state.store.transfer import Transfer
from mcp_state.store.transfer.exporting import ROWS
from mcp_state.store.transfer.fields import EVENT, FIELDS

IMPORT_EVENT = 1


async def test_what_is_exported_again_from_an_empty_store_is_the_same(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        await fill(ours)
        file = await ours.export()
        count = lines_of(file)[0]["events"]
        imported = await theirs.take(file)
        assert imported == Imported("acme", "acme", count, 0, {}, event=count + IMPORT_EVENT)
        *same, event = data_of(await theirs.export())
        assert same == data_of(file)
        assert event == {
            "event": count + 1,
            "at": event["at"],
            "agent": "importer",
            "client": "test",
            "session": "s9",
            "worktree": "/w",
            "run": "",
            "kind": "project",
            "name": "",
            "operation": "import",
            "summary": f"{count} events imported from a file",
            "version": None,
            "row": {
                "name": "acme",
                "source": "acme",
                "handoff": "",
                "events": count,
                "first": 1,
                "last": count,
                "kept_apart": {},
            },
        }


async def test_every_column_of_the_schema_is_carried_or_left_behind_on_purpose() -> None:
    kinds = {
        "threads": "thread",
        "criteria": "criterion",
        "runs": "run",
        "checkpoints": "checkpoint",
        "steps": "step",
        "attempts": "attempt",
        "messages": "message",
        "memory": "memory",
        "journal": "journal",
        "blobs": "blob",
        "handoffs": "handoff",
        "facts": "fact",
        "objectives": "objective",
        "idempotency": "idempotency",
    }
    made_by_the_store = {
        "threads": {"criteria", "passing", "open_needs"},
        "runs": {"checkpoints", "steps", "steps_done", "attempts", "tokens_in", "tokens_out"},
        "steps": {"attempts", "tokens_in", "tokens_out"},
    }
    leases = {"lease_token", "lease_holder", "lease_until", "lease_over"}
    other_tables = {
        "store",
        "projects",
        "project_names",
        "directories",
        "actors",
        "events",
        "last_events",
        "journal_topics",
        "documents",
        "tokens",  # of this store's servers: they let nobody in elsewhere
        "search",
        "session_runs",
        "needs",
        "premises",
        "relies",
    }
    lists = {"uses", "depends_on", "relies_on", "reasons", "given"}
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        apply(connection, migrations())
        listed = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'search_%'"
        )
        tables = {name for (name,) in listed}
        assert tables == other_tables | kinds.keys()
        assert set(kinds.values()) == FIELDS.keys() == ROWS.keys()
        for table, kind in kinds.items():
            info = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
            columns = {name for (name,) in info} - {"project", "shown"}
            columns -= made_by_the_store.get(table, set()) | (
                leases if table == "threads" else set()
            )
            assert FIELDS[kind].keys() - lists == columns, table
        info = connection.execute("SELECT name FROM pragma_table_info('events')")
        kept = {name for (name,) in info} - {"project", "seq", "actor"}
        assert EVENT.keys() - {"event", "agent", "client", "session", "worktree"} == kept


async def test_the_file_is_read_line_by_line_and_by_jq(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours:
        await fill(ours)
        state = ours.as_()
        await state.memory.set("odd", 'line\nbreak \u2028 \u2029 \x85 \x7f \x9b "quoted" 東京')
        file = await ours.export()
    data = file.read_bytes()
    first, *lines, last = data.splitlines(keepends=True)
    assert data.decode().count("\n") == len(data.decode().splitlines())
    assert [
        c for c in data.decode() if c != "\n" and not c.isprintable() and c != "\U0001f600"
    ] == []
    head = json.loads(first)
    assert head == {
        "mcp_state_export": 2,
        "project": "acme",
        "events": head["events"],
        "at": head["at"],
        "version": "0.1.0",
    }
    assert json.loads(last)["lines"] == len(lines) + 1
    kinds = [next(iter(json.loads(line))) for line in lines]
    assert list(dict.fromkeys(kinds)) == [*FIELDS, "event"]
    value = await asyncio.to_thread(jq, data, 'select(.memory.name == "odd") | .memory.value')
    assert value == 'line\nbreak \u2028 \u2029 \x85 \x7f \x9b "quoted" 東京\n'


def jq(data: bytes, query: str) -> str:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    found = subprocess.run(["jq", "-r", query], input=data, capture_output=True, check=True)
    return found.stdout.decode()


async def test_names_inside_runs_are_told_from_names_that_look_like_them(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        state = ours.as_()
        await state.runs.begin("one", run="a")
        await state.runs.begin("two", run="a/b")
        await state.memory.set("b/c", "of a", run="a")
        await state.memory.set("c", "of a/b", run="a/b")
        await state.memory.set("a/b/c", "of the project")
        file = await ours.export()
        assert [(m["run"], m["name"], m["value"]) for m in things(file, "memory")] == [
            ("", "a/b/c", "of the project"),
            ("a", "b/c", "of a"),
            ("a/b", "c", "of a/b"),
        ]
        events = [e for e in data_of(file) if e.get("kind") == "memory"]
        assert [(e.get("within"), e["name"]) for e in events] == [
            ("a", "b/c"),
            ("a/b", "c"),
            (None, "a/b/c"),
        ]
        await theirs.take(file)
        there = theirs.as_()
        for run, key, value in (("a", "b/c", "of a"), ("a/b", "c", "of a/b")):
            block = await there.memory.get(key, run=run)
            assert isinstance(block, MemoryBlock) and block.value == value


async def test_leases_stay_behind_and_locks_are_carried(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        state = ours.as_()
        await state.threads.set("fix")
        await state.threads.claim("fix", lease="4h")
        await state.memory.set("plan", "one")
        await state.memory.lock("plan", "a person said so")
        await theirs.take(await ours.export())
        there = theirs.as_()
        detail = await there.threads.get("fix")
        assert detail.thread.lease is None
        assert [(e.operation, e.row and e.row["lease_until"]) for e in detail.history] == [
            ("create", None),
            ("lease_claimed", None),
        ]
        block = await there.memory.get("plan")
        assert isinstance(block, MemoryBlock) and block.locked == "a person said so"
        claimed = await there.threads.claim("fix")
        assert (await state.threads.get("fix")).thread.lease is not None
        assert claimed is not None


async def test_a_transcript_comes_back_byte_for_byte(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        await fill(ours)
        file = await ours.export()
        messages = [m["message"] for m in things(file, "message") if m["run"] == "talk"]
        assert messages[0] == {"role": "user", "content": "Größe \U0001f600 1.50"}
        assert messages[1] == '{"as": 1.50, "it": "\\ud800 is", "a": 1, "a": 2}'
        await theirs.take(file)
        texts = await ours.as_().transcripts.texts("talk")
        assert await theirs.as_().transcripts.texts("talk") == texts


async def test_an_idempotency_key_still_means_its_call(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        await theirs.as_().journal.append("theirs")
        state = ours.as_()
        first = await state.journal.append("once", idempotency_key="k")
        await state.memory.append("log", "x", idempotency_key="m")
        await theirs.take(await ours.export())
        there = theirs.as_()
        again = await there.journal.append("once", idempotency_key="k")
        assert (again.repeated, again.id, again.seq) == (True, first.id, 2)
        block = await there.memory.append("log", "x", idempotency_key="m")
        assert (block.repeated, block.value) == (True, "x")
        with pytest.raises(Conflict):
            await there.journal.append("twice", idempotency_key="k")


# Between two machines


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Generator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
async def test_a_file_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    folder.chmod(0o700)
    async with store_at(folder / "a.db") as ours:
        await ours.as_().journal.append("mine")
        file = await ours.export()
        assert oct(file.stat().st_mode & 0o777) == "0o600"
        assert sorted(p.name for p in folder.iterdir() if p.suffix == ".jsonl") == [file.name]


async def test_a_handoff_in_a_file_shows_the_same_picture_elsewhere(tmp_path: Path) -> None:
    here, elsewhere = FakeClock(), FakeClock()
    async with (
        store_at(tmp_path / "a" / "state.db", here) as ours,
        store_at(tmp_path / "b" / "state.db", elsewhere) as theirs,
    ):
        await fill(ours)
        ada = ours.as_("ada")
        made = await ada.handoffs.create("The importer is half done", to="ben")
        key = made.handoff.key
        file = tmp_path / "x.jsonl"
        await ours.as_("ada", "s7").transfer.export(file, handoff=key)  # which has no run
        assert lines_of(file)[0]["handoff"] == key
        count = lines_of(file)[0]["events"]
        imported = await theirs.take(file)
        assert (imported.handoff, imported.events) == (key, count)
        for clock in (here, elsewhere):
            clock.move(days=2)
        pictures = [(await s.as_("ben", "s2").orient(4000)).text for s in (ours, theirs)]
        lines = [text.replace(f"event {count + 1}", "event").splitlines() for text in pictures]
        out, open_there = [next(line for line in text if key in line) for text in lines]
        assert out.endswith("handed over in a file 2 d ago: The importer is half done")
        assert open_there == out.replace(", handed over in a file 2 d ago", "") + (
            f'   -> handoff_accept(key="{key}")'
        )
        assert lines[0] == [out if line == open_there else line for line in lines[1]]
        for name in ("base", "on-top", "seen", "long"):
            one, two = [await s.as_().threads.get(name) for s in (ours, theirs)]
            assert replace(one, history=[]) == replace(two, history=[])
            assert [(e.seq, e.at, e.actor, e.summary) for e in one.history] == [
                (e.seq, e.at, e.actor, e.summary) for e in two.history
            ]
        for run in ("index", "talk", "other"):
            one, two = [await s.as_().runs.show(run) for s in (ours, theirs)]
            assert one == two
        hits = [(await s.as_().search.find("the run")).hits for s in (ours, theirs)]
        assert hits[0] and hits[0] == hits[1]

        taken = await theirs.as_("ben", "s2").handoffs.accept(key)
        assert taken.handoff.note == "The importer is half done"
        with pytest.raises(Conflict, match=f"handoff {key} was taken by ben"):
            await theirs.as_("cid", "s3").handoffs.accept(key)


async def test_the_work_comes_back_and_the_source_sees_who_took_it(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        ada = ours.as_("ada")
        await ada.threads.set("fix", next_action="write it", criteria=["green"])
        await ada.runs.begin("Reindex", run="reindex", thread="fix")
        await ada.steps.begin("reindex", "one")
        key = (await ada.handoffs.create("go on")).handoff.key
        await theirs.take(await ours.export(handoff=key))
        ben = theirs.as_("ben", "s2")
        await ben.handoffs.accept(key)
        await ben.steps.end("reindex", "one", True, "fine", tokens_in=7)
        await ben.runs.checkpoint("reindex", "one done", done=1, total=1)
        await ben.memory.set("cursor", "1", run="reindex")
        await ben.threads.check("fix", "1", True, evidence="pytest: exit 0")
        await ben.threads.set("fix", status="done", evidence="pytest: exit 0")
        back = await ours.take(await theirs.export())
        assert (back.events, back.kept_apart) == (7, {})
        detail = await ada.threads.get("fix")
        assert (detail.thread.status, detail.thread.changed_by.agent) == ("done", "ben")
        assert [c.passes for c in detail.criteria] == [True]
        run = await ada.runs.show("reindex")
        assert (run.run.steps_done, run.run.tokens_in, run.run.checkpoints) == (1, 7, 1)
        assert [b.value for b in run.memory] == ["1"]
        with pytest.raises(Conflict, match=f"handoff {key} was taken by ben"):
            await ada.handoffs.accept(key)
        assert "taken by ben" in (await ada.orient()).text


async def test_a_handoff_is_noted_when_its_file_is_whole_and_only_then(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_at(stores / "a.db") as ours:
        ada = ours.as_("ada")
        key = (await ada.handoffs.create("go on")).handoff.key
        taken = tmp_path / "taken.jsonl"
        taken.write_bytes(b"precious")
        with pytest.raises(BadArgument, match="exists already"):
            await ada.transfer.export(taken, handoff=key)
        with pytest.raises(NotFound, match="no handoff 'h-none'"):
            await ada.transfer.export(tmp_path / "x.jsonl", handoff="h-none")
        with pytest.raises(ProjectUnknown):
            await ours.as_(project="").transfer.export(tmp_path / "x.jsonl", handoff=key)
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", full)
            with pytest.raises(DiskFull, match=r"x\.jsonl can't be written: No space left"):
                await ada.transfer.export(tmp_path / "x.jsonl", handoff=key)
        with pytest.raises(DiskFull, match="standard output can't be written"), open_full() as out:
            await ada.transfer.export(out, handoff=key)
        assert taken.read_bytes() == b"precious"
        assert not (tmp_path / "x.jsonl").exists()
        history = (await ada.events.history(f"handoff:{key}")).events
        assert [e.operation for e in history] == ["create"]
        await ada.transfer.export(taken, handoff=key.upper(), overwrite=True)
        assert lines_of(taken)[0]["handoff"] == key
        assert [h["exported_at"] for h in things(taken, "handoff")] == [None]
        history = (await ada.events.history(f"handoff:{key}")).events
        assert [e.operation for e in history] == ["create", "export"]


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def open_full() -> Generator[BinaryIO]:
    with open("/dev/full", "wb", buffering=0) as stream:
        yield stream


async def test_a_file_whose_handoff_could_not_be_noted_is_said_to_be_whole(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(_: Handoffs, key: str) -> NoReturn:
        raise StoreBusy.after(5)

    async with store_at(stores / "a.db") as ours:
        ada = ours.as_("ada")
        key = (await ada.handoffs.create("go on")).handoff.key
        monkeypatch.setattr(Handoffs, "export", busy)
        with pytest.raises(StoreBusy) as told:
            await ada.transfer.export(tmp_path / "x.jsonl", handoff=key)
        assert told.value.fact.startswith(
            f"{tmp_path}/x.jsonl is whole, but is not noted as handed over: not saved: "
        )
        assert lines_of(tmp_path / "x.jsonl")[0]["handoff"] == key


async def test_a_handoff_that_was_taken_is_neither_exported_nor_proposed(
    stores: Stores, tmp_path: Path
) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        ada, ben = ours.as_("ada"), theirs.as_("ben", "s2")
        key = (await ada.handoffs.create("go on")).handoff.key
        file = await ours.export(handoff=key)
        assert (await theirs.take(file)).handoff == key
        assert (await theirs.take(file)).handoff == key
        await ben.handoffs.accept(key)
        assert (await theirs.take(file)).handoff == ""
        with pytest.raises(Conflict, match=f"handoff {key} was taken by ben"):
            await ben.transfer.export(tmp_path / "y.jsonl", handoff=key)
        assert not (tmp_path / "y.jsonl").exists()


async def test_that_a_file_was_made_of_a_handoff_is_no_other_history(stores: Stores) -> None:
    async with (
        store_at(stores / "a.db") as a,
        store_at(stores / "b.db") as b,
        store_at(stores / "c.db") as c,
    ):
        key = (await a.as_("ada").handoffs.create("go on")).handoff.key
        await b.take(await a.export(handoff=key))
        await b.take(await a.export(handoff=key))
        await c.take(await b.export(handoff=key))
        for source, target in ((a, b), (b, a), (b, c), (c, a)):
            imported = await target.take(await source.export())
            assert (imported.events, imported.stayed) == (0, ())
        await c.as_("cid", "s3").handoffs.accept(key)
        for source, target in ((c, b), (b, a)):
            assert (await target.take(await source.export())).stayed == ()
            assert "taken by cid" in (await target.as_("ada").orient()).text


# Files and streams


async def test_an_export_is_one_moment_of_a_store_that_others_write_to(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "a.db") as beside:
        await fill(ours)

        async def go_on_writing() -> None:
            for number in range(40):
                await beside.as_("other").journal.append(f"{number} " + "x" * 4000)

        writing = asyncio.create_task(go_on_writing())
        files = [await ours.export() for _ in range(4)]
        await writing
        counts = [lines_of(file)[0]["events"] for file in files]
        assert counts == sorted(counts)
        for number, file in enumerate(files):
            async with store_at(stores / f"{number}.db") as theirs:
                await theirs.take(file)


def note(reports: list[tuple[int, int]]) -> Callable[[int, int], None]:
    return lambda done, total: reports.append((done, total))


async def test_it_tells_how_far_it_got(stores: Stores, tmp_path: Path) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        for number in range(300):
            await ours.as_().memory.set(f"block {number % 30}", f"{number}")
        told: list[list[tuple[int, int]]] = [[], []]
        file = tmp_path / "x.jsonl"
        await ours.as_().transfer.export(file, progress=note(told[0]))
        await theirs.as_().transfer.import_file(file, progress=note(told[1]))
        for reports in told:
            done = [done for done, _ in reports]
            assert len(done) > 1 and done == sorted(done)
            assert {total for _, total in reports} == {done[-1]}


@pytest.mark.parametrize(
    ("target", "fact"),
    [
        ("nowhere/x.jsonl", "{}/nowhere is not a directory"),
        ("folder", "{}/folder is a directory"),
        ("taken", "{}/taken exists already, and was left as it is"),
    ],
)
async def test_an_export_to_a_place_that_cannot_be_is_refused(
    stores: Stores, tmp_path: Path, target: str, fact: str
) -> None:
    async with store_at(stores / "a.db") as ours:
        await ours.as_().journal.append("one")
        (tmp_path / "folder").mkdir()
        (tmp_path / "taken").write_bytes(b"precious")
        before = sorted(os.listdir(tmp_path))
        with pytest.raises(BadArgument) as refused:
            await ours.as_().transfer.export(tmp_path / target)
        assert refused.value.fact == fact.format(tmp_path)
        assert sorted(os.listdir(tmp_path)) == before
        assert (tmp_path / "taken").read_bytes() == b"precious"


@pytest.mark.sqlite
async def test_an_export_never_takes_the_place_of_its_store(stores: Stores) -> None:
    path = stores / "a.db"
    async with store_at(path) as ours:
        await ours.as_().journal.append("one")
        with pytest.raises(BadArgument) as refused:
            await ours.as_().transfer.export(path, overwrite=True)
        assert refused.value.fact == f"{path} belongs to the store itself"


async def test_a_project_that_is_not_there_is_not_exported(stores: Stores, tmp_path: Path) -> None:
    async with store_at(stores / "a.db") as ours:
        await ours.as_().journal.append("one")
        with pytest.raises(NotFound) as absent:
            await ours.as_(project="unknown").transfer.export(tmp_path / "x.jsonl")
        assert absent.value.fact == "no project 'unknown'; there is 'acme'"
        with pytest.raises(ProjectUnknown) as unknown:
            await ours.as_(project="").transfer.export(tmp_path / "x.jsonl")
        assert unknown.value.fact == (
            "nothing was exported: it is not known which project is meant; known are acme"
        )
        assert [name for name in os.listdir(tmp_path) if "jsonl" in name] == []


async def test_without_a_project_of_its_own_the_caller_gets_that_of_the_file(
    stores: Stores,
) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        await ours.as_(project="Größe").journal.append("one")
        file = await ours.export("Größe")
        state = theirs.as_(project="")
        assert (await state.transfer.import_file(file)).project == "Größe"
        assert (state.caller.project, state.caller.how) == ("Größe", "the file")
        assert state.totals.journal == 1


async def test_a_server_that_only_reads_exports_and_does_not_import(
    stores: Stores, tmp_path: Path
) -> None:
    async with store_at(stores / "a.db") as ours:
        ada = ours.as_("ada")
        key = (await ada.handoffs.create("go on")).handoff.key
        reader = open_database(ours.path, read_only=True, clock=StepClock())
        transfer = Transfer(reader, Caller("acme", "argument", ada.caller.actor))
        try:
            file = tmp_path / "x.jsonl"
            exported = await transfer.export(file)
            assert exported == Exported(
                str(file),
                "acme",
                1,
                4,
                file.stat().st_size,
                lines_of(file)[-1]["sha256"],
            )
            for refused in (
                transfer.export(tmp_path / "y.jsonl", handoff=key),
                transfer.import_file(file),
            ):
                with pytest.raises(StoreReadonly):
                    await refused
            assert not (tmp_path / "y.jsonl").exists()
        finally:
            await reader.aclose()


async def test_what_looks_like_a_credential_is_imported_only_where_it_may_be_stored(
    stores: Stores,
) -> None:
    secret = "first line\nghp_" + "a1" * 18
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        ours.database.allow_secrets = True
        await ours.as_().memory.set("token", secret)
        file = await ours.export()
        with pytest.raises(SecretRefused) as refused:
            await theirs.as_().transfer.import_file(file)
        assert str(refused.value) == (
            f"secret_refused: not imported: {file}:2 holds what looks like a GitHub token, at "
            "character 11 of a text. Nothing was imported. --allow-secrets takes it as it is."
        )
        assert not exists(theirs.path)
        theirs.database.allow_secrets = True
        assert (await theirs.take(file)).events == 1


# The command line

PROGRAM = str(Path(sys.executable).with_name("mcp-state"))


def run(
    folder: Path, *words: str, stdin: bytes = b"", umask: int = -1, code: int = 0
) -> tuple[str, str]:
    """Run a command on the machine whose store is in a folder; returns what it said."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MCP_STATE_", "CLAUDE"))}
    done = subprocess.run(
        [PROGRAM, *words],
        env=kept | {"MCP_STATE_DB": str(folder / "state.db")},
        cwd=folder,
        input=stdin,
        capture_output=True,
        umask=umask,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout.decode(), done.stderr.decode()


def test_two_machines_two_umasks_and_one_file(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a", tmp_path / "b"
    for folder in (ours, theirs):
        folder.mkdir()
    run(ours, "thread", "set", "fix", "--project", "acme", umask=0o077)
    made, _ = run(ours, "handoff", "create", "go on", "--project", "acme", "--json", umask=0o077)
    key = json.loads(made)["handoff"]["key"]
    said, _ = run(ours, "export", "--handoff", key, "x.jsonl", "--project", "acme", umask=0o000)
    file = ours / "x.jsonl"
    assert said.splitlines() == [
        f"exported acme, 2 events to {file} (6 lines, {file.stat().st_size:,} bytes)",
        "carry the file to the other machine; there: `mcp-state import FILE`, then "
        f"`mcp-state handoff accept {key}`",
    ]
    file.rename(theirs / "x.jsonl")
    expected = [
        "imported 2 events of acme from a file",
        f"to take the work over: `mcp-state handoff accept {key}`; an agent sees it in its orient",
        "[acme (from the file) · 1 thread · event 3]",
    ]
    said, _ = run(theirs, "import", "x.jsonl", umask=0o000)
    assert said.splitlines() == expected
    expected[0] = "nothing to import: all of acme is in acme already"
    said, _ = run(theirs, "import", "x.jsonl", umask=0o077)
    assert said.splitlines() == expected
    for folder in (ours, theirs):
        assert oct((folder / "state.db").stat().st_mode & 0o777) == "0o600"
    run(theirs, "handoff", "accept", key, "--project", "acme", "--agent", "ben")
    _, refused = run(theirs, "handoff", "accept", key, "--project", "acme", code=1)
    assert refused.startswith(f"error: conflict: handoff {key} was taken by ben ")
    said, _ = run(theirs, "import", "x.jsonl")
    assert [line[:17] for line in said.splitlines()] == ["nothing to import", "[acme (from the f"]
    _, refused = run(theirs, "export", "y", "--handoff", key, "--project", "acme", code=1)
    assert refused.startswith(f"error: conflict: handoff {key} was taken by ben ")
    picture, _ = run(ours, "orient", "--project", "acme")
    assert "handed over in a file" in picture and "handoff_accept" not in picture

    run(ours, "handoff", "accept", key, "--project", "acme", "--agent", "cy")
    run(theirs, "export", "y.jsonl", "--project", "acme")
    (theirs / "y.jsonl").rename(ours / "y.jsonl")
    stayed = f"handoff:{key} was taken by cy here, by ben there, and stays as it is here"
    said, _ = run(ours, "import", "y.jsonl")
    assert f"not imported: {stayed}" in said.splitlines()
    said, _ = run(ours, "import", "y.jsonl")
    assert said.splitlines()[:2] == [
        "nothing to import: the rest is in acme already",
        f"not imported: {stayed}",
    ]
    said, _ = run(ours, "import", "y.jsonl", "--json")
    assert json.loads(said)["stayed"] == [stayed]


def test_a_project_goes_through_a_pipe(tmp_path: Path) -> None:
    run(tmp_path, "journal", "append", "größer", "--project", "acme")
    data, note = run(tmp_path, "export", "-", "--project", "acme")
    assert note == f"note: exported acme, 1 event (4 lines, {len(data.encode()):,} bytes)\n"
    said, _ = run(tmp_path, "import", "-", "--project", "copy", stdin=data.encode())
    assert said.splitlines() == [
        "imported 1 event from acme into copy",
        "[copy (from argument) · 0 threads · event 2]",
    ]
    said, _ = run(tmp_path, "import", "-", "--project", "copy", "--json", stdin=data.encode())
    told = json.loads(said)
    assert (told["events"], told["skipped"], told["scope"]["event"]) == (0, 1, 2)
    _, refused = run(tmp_path, "import", "-", stdin=data.encode()[:-1], code=2)
    assert refused == (
        "error: bad_argument: standard input:4: the file ends in the middle of this line. Nothing "
        "was imported. Export it again, and carry the whole file as it is.\n"
    )


def test_a_file_and_a_project_that_are_not_there_are_said_so(tmp_path: Path) -> None:
    _, refused = run(tmp_path, "import", "none.jsonl", code=1)
    assert refused == (
        "error: not_found: no file at none.jsonl. "
        "Name a file that `mcp-state export` made, or what another tool keeps.\n"
    )
    _, refused = run(tmp_path, "import", ".", code=2)
    assert refused.startswith(
        "error: bad_argument: . is a folder with nothing in it that is known "
    )
    _, refused = run(tmp_path, "export", "x.jsonl", "--project", "none", code=1)
    assert refused.startswith("error: not_found: no project 'none'")
    _, refused = run(tmp_path, "export", "x.jsonl", code=1)
    assert refused.startswith("error: project_unknown: nothing was exported")
    assert refused.endswith(". Pass --project NAME, or run it in a git repository.\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    run(tmp_path, "journal", "append", "one", "--project", "acme")
    folder = tmp_path / "closed"
    folder.mkdir(0o500)
    _, refused = run(tmp_path, "export", "closed/x.jsonl", "--project", "acme", code=2)
    assert refused == (
        f"error: bad_argument: {folder}/x.jsonl can't be written: Permission denied. No whole "
        "export was made. Name another file.\n"
    )


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    run(tmp_path, "journal", "append", "one", "--project", "acme")
    file = tmp_path / ("x" * 250)
    _, refused = run(tmp_path, "export", file.name, "--project", "acme", code=2)
    assert refused == (
        f"error: bad_argument: {file} can't be written: File name too long. No whole export was "
        "made. Name another file.\n"
    )


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_stream_that_cannot_be_written_is_one_line(tmp_path: Path, size: int) -> None:
    run(tmp_path, "blob", "put", "-", "--project", "acme", stdin=b"x" * size)
    command = f"{PROGRAM} export - --project acme"
    env = {**os.environ, "MCP_STATE_DB": str(tmp_path / "state.db")}
    for end, code, told in (
        (
            ">/dev/full",
            1,
            "error: disk_full: standard output can't be written: No space left on device. No whole "
            "export was made. Free some space, or name another file.\n",
        ),
        ("| true; exit ${PIPESTATUS[0]}", 0, ""),
    ):
        done = subprocess.run(
            ["bash", "-c", f"{command} {end}"],
            env=env,
            capture_output=True,
            timeout=60,
            check=False,
            text=True,
        )
        said = "" if size < 1000 and not told else done.stderr  # it may fit into the pipe
        assert (done.returncode, said) == (code, told)
