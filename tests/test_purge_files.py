"""What is left of a purged text in the files: nothing, or it is said where, and what to do.

Killed rounds name their seed when they fail. A slice of them runs always; `MCP_STATE_SOAK=1`
(`make soak`) runs more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from planting import MARK, PLANTS, SECRET, held_by_bytes, make_full, store_at
from raw_client import Call, Server, closing_all
from soaking import SOAK
from whole_stores import contradictions

from mcp_state.api import open_store
from mcp_state.errors import StoreReadonly
from mcp_state.models import PurgedFile
from mcp_state.store import doctor
from mcp_state.store.database import open_database

pytestmark = pytest.mark.sqlite

SEED = random.SystemRandom().randrange(1 << 32)
MARKED = "for the record: [purged]"


@contextlib.contextmanager
def plain(path: Path) -> Generator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def terms(path: Path) -> set[str]:
    """The trigrams that the index of a store holds, also those of what was deleted."""
    with plain(path) as connection:
        connection.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab (main, search, row)")
        return {term for (term,) in connection.execute("SELECT term FROM temp.terms")}


async def test_nothing_is_left_in_free_pages_or_in_the_index(tmp_path: Path) -> None:
    """A store that another SQLite wrote, one that leaves what it deletes where it was."""
    path, text = tmp_path / "state.db", "zqxj vkwy " * 900
    async with store_at(path) as store:
        await store.as_().memory.set("plan", "x")
    with plain(path) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        for locked in (text, ""):
            connection.execute("UPDATE memory SET locked = ?", (locked,))
        document = (1 << 41, "plan", "plan", text)
        connection.execute(
            "INSERT INTO documents VALUES (?, 1, 'run', ?, ?, 1, 1, ?, '')", document
        )
        connection.execute("DELETE FROM documents WHERE id = ?", document[:1])
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert held_by_bytes(tmp_path, "zqxj vkwy zqxj") == ["state.db"]
    async with store_at(path) as store:
        purged = await store.person.purge(text.strip(), "x")
        assert (purged.clean, purged.places, purged.event) == (True, [], 0)
    assert held_by_bytes(tmp_path, "zqxj") == []
    assert not terms(path) & {"zqx", "qxj", "vkw", "kwy"}
    with plain(path) as connection:
        assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)


async def test_the_pieces_of_a_long_text_are_looked_for_too(tmp_path: Path) -> None:
    text = "".join(random.Random(1).choices("abcdefghij ", k=9000))
    async with store_at(tmp_path / "state.db") as store:
        await store.as_().blobs.put(f"before {text} after", summary="a long one")
        seen = await store.person.purge(text, dry_run=True)
        assert [file.found > 0 for file in seen.files] == [False, True, False]
        assert (await store.person.purge(text, "x")).clean
    data = b"".join(file.read_bytes() for file in [tmp_path / "state.db"])
    assert not any(text[at : at + 24].encode() in data for at in range(0, 8900, 24))


async def test_a_reader_of_an_older_state_is_named_and_a_second_purge_finishes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    async with store_at(path) as store:
        store.database = open_database(str(path), clock=store.database.clock, wait=0.2)
        await store.as_().memory.set("plan", SECRET)
        with plain(path) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT value FROM memory").fetchone() == (SECRET,)
            purged = await store.person.purge(SECRET, "x")
            assert (purged.clean, purged.event) == (False, 2)
            (note,) = [note for note in purged.notes if "-wal" in note]
            assert note == (
                f"{path}-wal still holds it, since an older state is being read from it by process "
                f"{os.getpid()}. Purge again when that has ended."
            )
            assert reader.execute("SELECT value FROM memory").fetchone() == (SECRET,)
        again = await store.person.purge(SECRET, "x")
        assert (again.clean, again.event, again.places, again.notes) == (True, 0, [], [])
    assert held_by_bytes(tmp_path) == []


def test_a_server_on_the_store_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    server = Server.start(path)
    with closing_all([server]):
        said = server.call(Call("memory_set", {"key": "plan", "value": f"of {SECRET}"}))
        assert said.code == ""

        async def purge() -> bool:
            async with open_store(path, project="acme", agent="person") as state:
                return (await state.purge(SECRET, "x")).clean

        assert asyncio.run(purge())
        read = server.call(Call("memory_get", {"key": "plan"}))
        assert read.text.startswith(f"of {MARK}\n")
        assert server.call(Call("memory_append", {"key": "plan", "text": "!"})).code == ""
        assert server.call(Call("search", {"query": SECRET})).text.startswith("No match")
        assert asyncio.run(purge())
    assert held_by_bytes(tmp_path) == []
    assert contradictions(path) == []


async def test_copies_beside_the_store_are_searched_and_named(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with store_at(path) as store:
        await store.as_().memory.set("plan", SECRET)
        await store.as_().transfer.export(tmp_path / "acme.jsonl")
    for name in (
        *("state.db.v2-2026-11-01.bak", "state.db.damaged-20261129T100001Z", "copy.sqlite"),
        "state.db.new-123",
    ):
        shutil.copyfile(path, tmp_path / name)
    (tmp_path / "state.db.damaged-20261129T100001Z-wal").write_text(SECRET)
    (tmp_path / "notes.txt").write_text(SECRET)
    (tmp_path / "folder").mkdir()
    async with store_at(path) as store:
        purged = await store.person.purge(SECRET, "x")
    holders = {Path(file.path).name: file.what for file in purged.files if file.found}
    assert holders == {
        "acme.jsonl": "an export",
        "copy.sqlite": "a store, or a copy of one",
        "state.db.damaged-20261129T100001Z": "moved aside by `mcp-state restore`",
        "state.db.damaged-20261129T100001Z-wal": "moved aside by `mcp-state restore`",
        "state.db.new-123": "half-made by a process that is at work, or was killed",
        "state.db.v2-2026-11-01.bak": "a copy made before the schema changed",
    }
    assert not purged.clean
    assert purged.notes[0] == (
        f"{tmp_path}/acme.jsonl (an export) holds it. Delete that file; if it is needed, export "
        "anew."
    )
    assert purged.notes[1] == (
        f"{tmp_path}/copy.sqlite (a store, or a copy of one) holds it. Delete that file if nobody "
        "needs it, or purge it as a store of its own (--db)."
    )
    ends = {
        name: next(n for n in purged.notes if n.startswith(f"{tmp_path}/{name} ")).split("it. ")[1]
        for name in ("state.db.new-123", "state.db.v2-2026-11-01.bak")
    }
    assert ends == {
        "state.db.new-123": "Delete that file if nothing is at work there.",
        "state.db.v2-2026-11-01.bak": "Delete that file: all of it is in the store.",
    }
    for name in holders:
        (tmp_path / name).unlink()
    async with store_at(path) as store:
        assert (await store.person.purge(SECRET, "x")).clean
    assert held_by_bytes(tmp_path) == ["notes.txt"]


async def test_a_copy_that_can_not_be_read_is_not_taken_for_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    copy = tmp_path / "state.db.v2-2026-11-01.bak"
    opened = os.open

    def refuse(file: str, *flags: int) -> int:
        if file == str(copy):
            raise PermissionError(13, "Permission denied", file)
        return opened(file, *flags)

    async with store_at(path) as store:
        await store.as_().memory.set("plan", SECRET)
        copy.write_bytes(b"?")
        monkeypatch.setattr(os, "open", refuse)
        purged = await store.person.purge(SECRET, "x")
    what = "a copy made before the schema changed"
    assert PurgedFile(str(copy), what, 0, -1) in purged.files
    assert not purged.clean


async def test_who_may_only_read_can_look_but_not_purge(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with store_at(path) as store:
        await store.as_().memory.set("plan", SECRET)
    async with open_store(path, project="acme", read_only=True) as state:
        assert (await state.purge(SECRET, dry_run=True)).count == 3
        with pytest.raises(StoreReadonly):
            await state.purge(SECRET, "x")


async def test_its_progress_only_grows_and_reaches_the_end(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make = asyncio.to_thread(make_full, path)
    await make
    done: list[tuple[int, int]] = []
    async with store_at(path) as store:
        for number in range(200):
            await store.as_().journal.append(f"{number}: {SECRET}")
        await store.person.purge(SECRET, "x", progress=lambda at, of: done.append((at, of)))
    assert done == sorted(done)
    assert len(done) > 3
    assert done[-1] == (10_000, 10_000)


PURGING = """
import asyncio, sys
import mcp_state
async def main():
    async with mcp_state.open_store(sys.argv[1], project="acme", agent="person") as state:
        await state.memory.blocks()
        print("ready", flush=True)
        await state.purge(sys.argv[2], "it was pasted")
        print("done", flush=True)
asyncio.run(main())
"""


def purging(path: Path) -> subprocess.Popen[str]:
    """A process that says when it begins to purge, and when it has."""
    process = subprocess.Popen(
        [sys.executable, "-c", PURGING, str(path), SECRET], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


async def test_kill_9_at_any_moment_leaves_a_whole_store_that_a_second_purge_finishes(
    tmp_path: Path,
) -> None:
    model = tmp_path / "model" / "state.db"
    async with store_at(model) as store:
        for plant in PLANTS[:-1]:
            with contextlib.suppress(Exception):
                await plant(store.as_(), SECRET)
        for number in range(300):
            await store.as_().journal.append(f"{number} is {SECRET}")
        await store.as_().memory.set("kept", f"for the record: {SECRET}")
    rng = random.Random(SEED)
    takes = 0.0
    found: set[str] = set()
    for number in range(61 if SOAK else 5):
        path = tmp_path / f"home-{number}" / "state.db"
        path.parent.mkdir(mode=0o700)
        shutil.copy(model, path)
        process = purging(path)
        if not number:
            began = time.perf_counter()
            assert process.wait() == 0
            takes = time.perf_counter() - began
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, takes))
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
        with plain(path) as connection:
            (value,) = connection.execute("SELECT value FROM memory WHERE name = 'kept'").fetchone()
            purges = connection.execute("SELECT * FROM events WHERE operation = 'purge'").fetchall()
        found.add(value)
        assert (value, len(purges)) in ((f"for the record: {SECRET}", 0), (MARKED, 1)), SEED
        assert (await doctor.examine(str(path))).problems == [], SEED
        async with open_store(path, project="acme", agent="person") as state:
            assert (await state.purge(SECRET, "it was pasted")).clean, SEED
        assert held_by_bytes(path.parent) == [], SEED
        assert (await doctor.examine(str(path))).problems == [], SEED
    assert not SOAK or len(found) == 2
