"""The one door: what is hard to prove about it, line by line."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path

import anyio
import pytest
from conftest import FakeClock, Open
from peeking import CHECK, Refused, plain, rows
from whole_stores import everything

from mcp_state.api import State, open_store
from mcp_state.errors import BadArgument, ProjectUnknown, StoreBusy, StoreReadonly
from mcp_state.models import Actor, Caller, JournalEntry
from mcp_state.settings import store_path
from mcp_state.store import opening
from mcp_state.store.database import open_database
from mcp_state.store.queue import Queue
from mcp_state.store.transaction import Reading, Writing

SOON = 10.0
Holder = AbstractContextManager[None]
Identity = Callable[[str], tuple[int, int] | None]


@contextmanager
def queue_held(path: str) -> Generator[None]:
    """Stand in the queue of the store like another process."""
    file = os.open(path + "-queue", os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(file)


async def stands_in_line(path: str) -> None:
    """Until somebody waits for that lock."""
    inode = os.stat(f"{path}-queue").st_ino
    while True:
        text = await asyncio.to_thread(Path("/proc/locks").read_text, "ascii")
        if any("->" in line and f":{inode} " in line for line in text.splitlines()):
            return


@contextmanager
def write_lock_held(path: str) -> Generator[None]:
    """Hold SQLite's write lock without the queue, like a foreign program."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def journal_texts(path: str) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [text for (text,) in connection.execute("SELECT text FROM journal ORDER BY seq")]


class Gate:
    """A transaction body that stands still until it is let go."""

    def __init__(self, anchor: str = "/gate") -> None:
        self.anchor = anchor
        self.inside = threading.Event()
        self.go_on = threading.Event()

    def body(self, tx: Writing) -> None:
        sql = "INSERT INTO directories (anchor, project) VALUES (:anchor, :project)"
        tx.run(sql, {"anchor": self.anchor})
        tx.event("gate", "went through", None, subject=("project", "gate"))
        self.inside.set()
        assert self.go_on.wait(SOON)


def queue_is_free(path: str) -> bool:
    file = os.open(path + "-queue", os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


async def entered(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.inside.wait, SOON)


@pytest.mark.sqlite
@pytest.mark.parametrize("waits", [False, True], ids=["apart", "waited"])
@pytest.mark.parametrize("library", ["asyncio", "anyio"])
async def test_a_transaction_that_has_begun_cannot_be_cancelled(
    state: State, library: str, waits: bool
) -> None:
    """Fails without the shield of `until_done`."""
    await state.journal.append("before")
    gate, over = Gate(), asyncio.Event()
    scope = anyio.CancelScope()
    returned = False

    async def write() -> None:
        nonlocal returned
        try:
            with scope:
                await state.database.write(state.caller, gate.body, apart=not waits)
                returned = True
        finally:
            over.set()

    with queue_held(state.database.path) if waits else nullcontext():
        writing = asyncio.create_task(write())
        if waits:
            await stands_in_line(state.database.path)
    await entered(gate)
    if library == "asyncio":
        writing.cancel()
    else:
        scope.cancel()
    for _ in range(10):  # turns of the event loop, in which it could end too early
        await asyncio.sleep(0)
    assert not over.is_set(), "it must wait for the commit"

    gate.go_on.set()
    await asyncio.wait([writing], timeout=SOON)

    assert writing.cancelled() is (library == "asyncio")
    assert returned is (library == "anyio")
    with closing(sqlite3.connect(state.database.path)) as connection:
        assert connection.execute("SELECT anchor FROM directories").fetchall() == [("/gate",)]
        events = connection.execute("SELECT operation FROM events ORDER BY seq").fetchall()
    assert events == [("append",), ("gate",)]
    assert (await state.journal.append("after")).seq == 3


async def test_the_next_call_works_after_a_cancelled_one(state: State) -> None:
    gate = Gate()
    writing = asyncio.create_task(state.database.write(state.caller, gate.body, apart=True))
    await entered(gate)
    writing.cancel()
    next_one = asyncio.create_task(state.journal.append("next"))
    gate.go_on.set()

    assert (await asyncio.wait_for(next_one, SOON)).seq == 2


@pytest.mark.sqlite
async def test_every_transaction_has_a_turn_of_its_own_in_the_queue(state: State) -> None:
    """Fails without the lock of the process: the second call would go on in the first's turn."""
    await state.journal.append("first")
    gate, second_gate = Gate(), Gate("/second")
    first = asyncio.create_task(state.database.write(state.caller, gate.body, apart=True))
    await entered(gate)
    second = asyncio.create_task(state.database.write(state.caller, second_gate.body, apart=True))
    await asyncio.sleep(0)
    gate.go_on.set()
    await first
    await entered(second_gate)

    assert not queue_is_free(state.database.path), "another process could write now"
    second_gate.go_on.set()
    await second
    assert queue_is_free(state.database.path)


@pytest.mark.sqlite
async def test_waiting_in_the_queue_can_be_cancelled_and_leaves_no_lock(state: State) -> None:
    await state.journal.append("before")
    with queue_held(state.database.path):
        waiting = asyncio.create_task(state.journal.append("cancelled"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting], timeout=SOON)
        assert waiting.cancelled()

    assert (await asyncio.wait_for(state.journal.append("after"), SOON)).seq == 2
    assert journal_texts(state.database.path) == ["before", "after"]


@pytest.mark.sqlite
async def test_a_wait_that_was_cancelled_keeps_nobody_else_waiting(state: State) -> None:
    await state.journal.append("before")
    with queue_held(state.database.path):
        given_up = asyncio.create_task(state.journal.append("cancelled"))
        await stands_in_line(state.database.path)
        given_up.cancel()
        await asyncio.wait([given_up], timeout=SOON)
        waiting = asyncio.create_task(state.journal.append("after"))
        await asyncio.sleep(0)

    assert (await asyncio.wait_for(waiting, SOON)).seq == 2
    assert journal_texts(state.database.path) == ["before", "after"]


@pytest.mark.sqlite
async def test_what_is_done_apart_does_not_stand_behind_a_wait_that_was_cancelled(
    state: State,
) -> None:
    await state.journal.append("before")
    with queue_held(state.database.path):
        given_up = asyncio.create_task(state.journal.append("cancelled"))
        await stands_in_line(state.database.path)
        given_up.cancel()
        await asyncio.wait([given_up], timeout=SOON)
        os.unlink(f"{state.database.path}-queue")
        await asyncio.wait_for(state.database.maintain("PRAGMA optimize"), SOON)


@pytest.mark.sqlite
async def test_who_waited_begins_at_once_though_the_event_loop_has_other_things_to_do(
    state: State,
) -> None:
    await state.journal.append("before")
    gate = Gate()
    with queue_held(state.database.path):
        writing = asyncio.create_task(state.database.write(state.caller, gate.body))
        await stands_in_line(state.database.path)

    assert gate.inside.wait(SOON), "this holds the event loop"
    gate.go_on.set()
    await asyncio.wait_for(writing, SOON)


@pytest.mark.sqlite
async def test_what_closing_the_side_file_refuses_keeps_nobody_waiting(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    await state.journal.append("before")
    queue = os.stat(f"{state.database.path}-queue")
    refused: list[int] = []

    def over_quota(file: int, close: Callable[[int], None] = os.close) -> None:
        ours = os.path.samestat(os.fstat(file), queue)
        close(file)
        if ours and threading.current_thread() is not threading.main_thread():
            refused.append(file)
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with queue_held(state.database.path):
        writing = asyncio.create_task(state.journal.append("waited"))
        await stands_in_line(state.database.path)
        monkeypatch.setattr(os, "close", over_quota)

    assert (await asyncio.wait_for(writing, SOON)).seq == 2
    assert refused
    assert queue_is_free(state.database.path)


@pytest.mark.sqlite
async def test_a_thread_that_cannot_be_started_leaves_the_queue_free(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    await state.journal.append("before")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(threading.Thread, "start", refuse)
        await state.database.maintain("PRAGMA optimize")

    assert queue_is_free(state.database.path)
    await state.database.maintain("PRAGMA optimize")


async def test_a_store_that_is_made_while_somebody_looks_for_it_was_never_lost(
    open_state: Open, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_state().journal.append("first of all")
    database = open_database(path)
    reader = State(database, Caller("acme", "argument", Actor("codex")))
    looks = iter([None])  # the first look came before the store

    def look(at: str, identity: Identity = opening.identity) -> tuple[int, int] | None:
        return next(looks, identity(at)) if at == path else identity(at)

    with monkeypatch.context() as patch:
        patch.setattr(opening, "identity", look)
        page = await reader.journal.tail()

    assert [entry.text for entry in page.entries] == ["first of all"]
    await database.aclose()


@pytest.mark.sqlite
async def test_the_wait_for_the_turn_has_an_end_at_every_moment(state: State) -> None:
    await state.journal.append("before")
    database = open_database(state.database.path)
    impatient = State(database, Caller("acme", "argument", Actor("codex")))
    gate, second = Gate(), Gate("/second")
    first = asyncio.create_task(database.write(state.caller, gate.body, apart=True))
    await entered(gate)
    waiting = asyncio.create_task(database.write(state.caller, second.body, apart=True))
    await asyncio.sleep(0)
    database.wait = 0.5
    gate.go_on.set()
    late: list[asyncio.Task[JournalEntry]] = []
    while not first.done():  # one of them asks when the turn is given up, and not yet taken
        late.append(asyncio.create_task(impatient.journal.append("too late")))
        await asyncio.sleep(0)
    await entered(second)

    await asyncio.wait(late, timeout=SOON)

    assert {type(one.exception()) for one in late if one.done()} == {StoreBusy}
    assert [one for one in late if not one.done()] == []
    second.go_on.set()
    await waiting
    await database.aclose()


@pytest.mark.sqlite
async def test_who_has_begun_is_not_too_late(open_state: Open, path: str, clock: FakeClock) -> None:
    await open_state().journal.append("before")
    database = open_database(path, clock=clock, wait=0.05)
    gate = Gate()
    with queue_held(path):
        writing = asyncio.create_task(
            database.write(Caller("acme", "argument", Actor("codex")), gate.body)
        )
        await stands_in_line(path)
    await entered(gate)
    await asyncio.wait([writing], timeout=0.1)
    gate.go_on.set()

    await asyncio.wait_for(writing, SOON)
    await database.aclose()


@pytest.mark.sqlite
async def test_what_is_wrong_with_the_queue_is_told_also_to_those_who_wait(state: State) -> None:
    await state.journal.append("before")
    queue = f"{state.database.path}-queue"
    with queue_held(state.database.path):
        writing = asyncio.create_task(state.journal.append("nowhere"))
        await stands_in_line(state.database.path)
        os.unlink(queue)
        os.mkdir(queue)

    with pytest.raises(StoreReadonly, match="-queue is not a regular file"):
        await asyncio.wait_for(writing, SOON)
    os.rmdir(queue)
    assert (await state.journal.append("after")).seq == 2


@pytest.mark.sqlite
async def test_waiting_for_begin_can_be_cancelled(state: State) -> None:
    await state.journal.append("before")
    with write_lock_held(state.database.path):
        waiting = asyncio.create_task(state.journal.append("cancelled"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting], timeout=SOON)
        assert waiting.cancelled()

    assert (await state.journal.append("after")).seq == 2


@pytest.mark.sqlite
@pytest.mark.parametrize("holder", [queue_held, write_lock_held])
async def test_a_wait_that_is_too_long_says_not_saved(
    open_state: Open, path: str, clock: FakeClock, holder: Callable[[str], Holder]
) -> None:
    await open_state().journal.append("before")
    database = open_database(path, clock=clock, wait=0.05)
    impatient = State(database, Caller("acme", "argument", Actor("codex")))
    with holder(path), pytest.raises(StoreBusy) as refusal:
        await impatient.journal.append("too late")
    assert str(refusal.value).startswith("store_busy: not saved: other processes kept the store")

    assert (await impatient.journal.append("in time")).seq == 2
    assert journal_texts(path) == ["before", "in time"]
    await database.aclose()


@pytest.mark.sqlite
async def test_readers_do_not_wait_for_a_writer(state: State) -> None:
    await state.journal.append("before")
    gate = Gate()
    writing = asyncio.create_task(state.database.write(state.caller, gate.body, apart=True))
    await entered(gate)

    page = await asyncio.wait_for(state.journal.tail(), SOON)

    assert [entry.text for entry in page.entries] == ["before"]
    gate.go_on.set()
    await writing


async def test_a_body_that_raises_leaves_nothing_behind(state: State, path: str) -> None:
    await state.journal.append("before")

    def body(tx: Writing) -> None:
        tx.run("INSERT INTO directories (anchor, project) VALUES ('/lost', :project)")
        tx.event("lost", "lost", None)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await state.database.write(state.caller, body)

    assert rows(path, "SELECT * FROM directories") == []
    assert rows(path, "SELECT max(seq) FROM events") == [(1,)]
    assert (await state.journal.append("after")).seq == 2


async def test_a_refused_write_with_an_unknown_project_names_the_known_ones(
    open_state: Open,
) -> None:
    await open_state(project="alpha").journal.append("x")
    with pytest.raises(ProjectUnknown, match="known projects: alpha"):
        await open_state(project="").journal.append("x")


async def test_a_closed_database_opens_again(state: State) -> None:
    await state.journal.append("one")
    await state.database.aclose()
    await state.database.aclose()

    assert (await state.journal.append("two")).seq == 2


@pytest.mark.sqlite
async def test_a_wal_that_is_removed_under_a_running_server_loses_nothing(state: State) -> None:
    await state.journal.append("one")
    os.unlink(state.database.path + "-wal")
    await state.journal.append("two")
    await state.database.aclose()

    assert journal_texts(state.database.path) == ["one", "two"]


@pytest.mark.sqlite
async def test_every_write_is_synced(state: State) -> None:
    def pragmas(tx: Writing) -> tuple[int, str, int]:
        return (
            tx.scalar("PRAGMA synchronous"),
            tx.scalar("PRAGMA journal_mode"),
            tx.scalar("PRAGMA foreign_keys"),
        )

    assert await state.database.write(state.caller, pragmas) == (2, "wal", 1)


async def test_a_reader_cannot_write(state: State) -> None:
    await state.journal.append("one")

    with pytest.raises(StoreReadonly, match=r"a readonly database|a read-only transaction"):
        await state.database.read(state.caller, lambda tx: tx.all("DELETE FROM directories"))


@pytest.mark.sqlite
async def test_files_and_directory_are_private(state: State) -> None:
    await state.journal.append("one")
    path = state.database.path

    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
    for suffix in ("", "-wal", "-shm", "-queue"):
        assert os.stat(path + suffix).st_mode & 0o777 == 0o600, suffix


@pytest.mark.sqlite
async def test_reading_makes_no_file(state: State) -> None:
    assert (await state.journal.tail()).entries == []
    assert not Path(state.database.path).parent.exists()


async def test_a_relative_path_is_refused_saying_what_it_would_have_meant(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=f"here it would mean {tmp_path}/state.db"):
        store_path("state.db", str(tmp_path), "--db")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE events SET summary = 'x'", "events are never changed"),
        ("DELETE FROM events", "events are never deleted"),
        ("UPDATE journal SET text = 'x'", "the journal is append-only"),
        ("DELETE FROM journal", "the journal is append-only"),
        ("UPDATE memory SET value = 'x'", "a new value needs a new version"),
        ("DELETE FROM memory", "a deleted block keeps its row"),
        ("UPDATE criteria SET text = 'x'", "the text of a criterion never changes"),
        ("DELETE FROM criteria", "criteria are kept"),
        ("DELETE FROM threads", "threads are dropped, not deleted"),
        ("UPDATE threads SET status = 'blocked'", CHECK),
        ("UPDATE threads SET status = 'done', evidence = 'x'", CHECK),
        ("UPDATE threads SET status = 'lost'", CHECK),
        (
            "INSERT INTO events (project, seq, at, actor, kind, name, operation, summary) "
            "SELECT project, seq + 20, at, actor, kind, name, operation, summary FROM events",
            "event numbers have no gaps",
        ),
    ],
)
async def test_sql_itself_refuses_what_must_not_happen(
    state: State, path: str, statement: str, says: str
) -> None:
    await state.threads.set("t", criteria=["works"])
    await state.memory.set("k", "v")
    await state.journal.append("entry")
    before = everything(path)
    with plain(path) as connection, pytest.raises(Refused, match=says):
        connection.execute(statement)
    assert everything(path) == before


@pytest.mark.sqlite
async def test_a_change_that_is_saved_is_never_reported_as_lost(
    state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(queue: Queue, number: int) -> None:
        raise OSError("no space for the note")

    await state.journal.append("one")
    monkeypatch.setattr(Queue, "note_changes", broken)

    assert (await state.journal.append("two")).seq == 2
    assert journal_texts(state.database.path) == ["one", "two"]
    assert "the number of changes could not be noted" in caplog.text


async def test_a_second_store_on_the_same_file_in_one_process_disturbs_nothing(
    path: str,
) -> None:
    script = """
import asyncio, sys, mcp_state
async def main():
    async with mcp_state.open_store(sys.argv[1], project="acme") as state:
        await state.journal.append("from another process")
asyncio.run(main())
"""
    async with open_store(path, project="acme") as outer:
        await outer.journal.append("one")
        assert len((await outer.journal.tail()).entries) == 1
        async with open_store(path, project="beta") as inner:
            await inner.journal.append("two")
            await inner.journal.tail()
        for number in range(2, 4):
            await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", script, path], check=True
            )
            assert len((await outer.journal.tail()).entries) == number


@pytest.mark.sqlite
async def test_only_what_may_wait_or_takes_long_is_done_in_a_thread(
    state: State, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def thread(tx: Reading) -> int:
        return threading.get_ident()

    here, database = threading.get_ident(), state.database
    assert await database.read(state.caller, thread) == here
    assert await database.write(state.caller, thread) == here
    assert await database.write(state.caller, thread, apart=True) != here

    def remote_files(path: str) -> str:
        return "nfs4"

    monkeypatch.setattr(opening, "file_system", remote_files)
    remote = open_database(str(tmp_path / "remote" / "state.db"))
    assert await remote.write(state.caller, thread) != here
    assert await remote.read(state.caller, thread) != here
    await remote.aclose()


@pytest.mark.sqlite
async def test_what_a_commit_that_failed_would_have_counted_is_not_told(state: State) -> None:
    await state.journal.append("before")
    state.caller.totals = None

    def body(tx: Writing) -> None:
        tx.run("PRAGMA defer_foreign_keys = ON")
        tx.run("INSERT INTO directories (anchor, project) VALUES ('/lost', 99)")
        tx.event("lost", "lost", None, subject=("project", "lost"))

    with pytest.raises(sqlite3.IntegrityError):
        await state.database.write(state.caller, body)
    assert state.caller.totals is None
    assert journal_texts(state.database.path) == ["before"]
