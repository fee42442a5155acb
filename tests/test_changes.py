"""What a store tells of changes: all of them, whoever made them, and nothing for nobody."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from mcp_state.api import State
from mcp_state.store import changes as module
from mcp_state.store import opening
from mcp_state.store.changes import Changes
from mcp_state.store.database import Database, open_database
from mcp_state.store.sqlite import SQLiteDatabase

PROGRAM = str(Path(sys.executable).with_name("mcp-state"))
PATIENCE = 20.0

Told = AsyncIterator[None]


async def is_told(told: Told) -> bool:
    """Wait until it is."""
    async with asyncio.timeout(PATIENCE):
        return await anext(told, "over") is None


async def elsewhere(path: str, *words: str) -> None:
    """Run a command in another process."""
    command = [PROGRAM, *words, "--db", path]
    done = await asyncio.to_thread(
        subprocess.run, command, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def database(state: State) -> Database:
    return state.database


@pytest.fixture
async def told(database: Database) -> AsyncGenerator[Told]:
    """The changes of the store, of which the first is its beginning."""
    async with aclosing(database.changes()) as changes:
        assert await is_told(changes)
        yield changes


@pytest.fixture
def looks(database: Database, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each look at the file."""
    seen: list[str] = []
    assert isinstance(database, SQLiteDatabase)
    look = database._data_version  # pyright: ignore[reportPrivateUsage]

    def spy() -> object:
        seen.append("look")
        return look()

    monkeypatch.setattr(database, "_data_version", spy)
    return seen


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked at unless there is a reason."""
    monkeypatch.setattr(module, "_PAUSE", 3600.0)


async def test_what_this_process_writes_is_told_at_once(
    unhurried: None, told: Told, mine: State
) -> None:
    for _ in range(3):
        await mine.journal.append("x")
        assert await is_told(told)


async def test_a_refusal_that_is_recorded_is_told_at_once(
    unhurried: None, told: Told, mine: State
) -> None:
    await mine.memory.set("plan", "one")
    assert await is_told(told)
    with pytest.raises(Exception, match="version_conflict"):
        await mine.memory.set("plan", "two", expected_version=7)
    assert await is_told(told)


async def test_what_another_connection_writes_is_told(told: Told, theirs: State) -> None:
    for _ in range(3):
        await theirs.journal.append("x")
        assert await is_told(told)


async def test_what_another_process_writes_is_told(told: Told, path: str) -> None:
    await elsewhere(path, "journal", "append", "x", "--project", "acme")
    assert await is_told(told)


async def test_a_server_that_only_reads_is_told_too(path: str, theirs: State) -> None:
    database = open_database(path, read_only=True)
    async with aclosing(database.changes()) as changes:
        assert await is_told(changes)
        for _ in range(2):
            await theirs.journal.append("x")
            assert await is_told(changes)
    await database.aclose()


@pytest.mark.sqlite
async def test_where_a_transaction_runs_in_a_thread_it_is_told_too(
    path: str, monkeypatch: pytest.MonkeyPatch, theirs: State
) -> None:
    def remote_files(path: str) -> str:
        return "nfs4"

    monkeypatch.setattr(opening, "file_system", remote_files)
    database = open_database(path)
    async with aclosing(database.changes()) as changes:
        assert await is_told(changes)
        await theirs.journal.append("x")
        assert await is_told(changes)
        await theirs.journal.append("y")
        assert await is_told(changes)
    await database.aclose()


async def test_a_change_before_one_waits_is_not_missed(
    told: Told, mine: State, theirs: State
) -> None:
    await theirs.journal.append("while nobody waited")
    await mine.journal.append("nor now")
    assert await is_told(told)


async def test_who_comes_later_is_told_of_the_beginning_and_of_each_change(
    told: Told, mine: State, database: Database
) -> None:
    async with aclosing(database.changes()) as second:
        assert await is_told(second)
        await mine.journal.append("x")
        assert await is_told(told)
        assert await is_told(second)


@pytest.mark.sqlite
async def test_many_changes_may_be_told_as_one(
    unhurried: None, looks: list[str], told: Told, mine: State
) -> None:
    for _ in range(50):
        await mine.journal.append("x")
    assert await is_told(told)
    assert len(looks) <= 52
    assert await mine.database.read(mine.caller, lambda tx: tx.totals().event) == 50


@pytest.mark.sqlite
async def test_nothing_is_looked_at_while_nobody_listens(
    database: Database, looks: list[str], mine: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    before = asyncio.all_tasks()
    await mine.journal.append("x")
    assert looks == []

    first, second = database.changes(), database.changes()
    assert await is_told(first) and await is_told(second)
    (watcher,) = asyncio.all_tasks() - before
    await first.aclose()
    assert not watcher.done()
    await second.aclose()
    await asyncio.wait([watcher], timeout=PATIENCE)

    assert watcher.cancelled() and asyncio.all_tasks() == before
    looks.clear()
    await mine.journal.append("y")
    await asyncio.sleep(0)
    assert looks == []


async def test_who_is_cancelled_while_waiting_listens_no_more(database: Database) -> None:
    before = asyncio.all_tasks()
    begun = asyncio.Event()

    async def listen() -> None:
        async for _ in database.changes():
            begun.set()

    task = asyncio.create_task(listen())
    await begun.wait()
    (watcher,) = asyncio.all_tasks() - before - {task}
    task.cancel()
    await asyncio.wait([task, watcher], timeout=PATIENCE)
    assert watcher.cancelled()


async def test_closing_the_store_ends_it_and_one_may_listen_anew(
    told: Told, database: Database, mine: State
) -> None:
    await database.aclose()
    assert not await is_told(told)

    async with aclosing(database.changes()) as again:
        assert await is_told(again)
        await mine.journal.append("x")
        assert await is_told(again)


@pytest.mark.sqlite
async def test_a_store_that_is_made_damaged_and_put_back_is_told(
    told: Told, path: str, tmp_path: Path
) -> None:
    await elsewhere(path, "journal", "append", "x", "--project", "acme")
    assert await is_told(told)
    await elsewhere(path, "backup", str(tmp_path / "copy.db"))
    (tmp_path / "none").write_bytes(b"no store " * 400)
    os.replace(tmp_path / "none", path)
    assert await is_told(told)
    await elsewhere(path, "restore", str(tmp_path / "copy.db"))
    assert await is_told(told)
    await elsewhere(path, "journal", "append", "y", "--project", "acme")
    assert await is_told(told)


@pytest.mark.sqlite
async def test_a_store_of_an_older_version_is_told_and_left_as_it_is(
    path: str, monkeypatch: pytest.MonkeyPatch, mine: State
) -> None:
    await mine.journal.append("x")
    steps = opening.migrations()
    later = opening.Migration(len(steps) + 1, ("CREATE TABLE later (id INTEGER) STRICT",))
    newer = (*steps, later)
    monkeypatch.setattr(opening, "migrations", lambda: newer)
    database = open_database(path)
    async with aclosing(database.changes()) as changes:
        assert await is_told(changes)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (len(newer) - 1,)
        await mine.database.aclose()
        await database.read(mine.caller, lambda tx: tx.totals())  # brings it up to date
        assert await is_told(changes)
    await database.aclose()


async def test_a_poke_during_a_look_leads_to_another_one(unhurried: None) -> None:
    seen: list[int] = []
    state, going, go = 0, asyncio.Event(), asyncio.Event()

    async def look() -> int:
        seen.append(state)
        going.set()
        await go.wait()
        return seen[-1]

    changes = Changes(look)
    async with aclosing(changes.listen()) as told:
        first = asyncio.ensure_future(is_told(told))
        await going.wait()
        state = 1
        changes.poke()
        go.set()
        assert await first
        assert seen == [0, 1]
