"""Writes that wait at the same time share one commit, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import random
import shutil
import sqlite3
import threading
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import deeds
import pytest
from conftest import Open
from deeds import FINE, TOGETHER
from faults import KILL, Blow, hindrance, points_of, struck
from ledger import entry, read_copy
from raw_client import Call, Server, closing_all
from soaking import SOAK, seeded, some
from test_database import SOON, Gate, entered, journal_texts, queue_held, stands_in_line
from test_faults import IN_DOUBT, NEEDED, Rounds, assert_sound, every, settle
from test_faults import some as some_blows
from test_kill import assert_it_goes_on, calls, spin

from mcp_state.api import State
from mcp_state.errors import DiskFull, StateError, StoreBusy, VersionConflict
from mcp_state.models import Actor, Caller
from mcp_state.store import opening, sqlite
from mcp_state.store.database import open_database
from mcp_state.store.transaction import Writing

pytestmark = pytest.mark.sqlite
SEED = random.SystemRandom().randrange(1 << 32)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group has no end but that of the line."""
    monkeypatch.setattr(sqlite, "LONGEST_GROUP", 60.0)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What begins and ends transactions, in connections that write."""
    said: list[str] = []
    opened = opening.new_connection

    def note(sql: str) -> None:
        if sql in ("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"):
            said.append(sql)

    def watched(path: str, mode: str = "") -> sqlite3.Connection:
        connection = opened(path, mode)
        if mode == "rw":
            connection.set_trace_callback(note)
        return connection

    monkeypatch.setattr(opening, "new_connection", watched)
    return said


class HeldCommit(sqlite3.Connection):
    """A connection whose COMMIT stands still before and after it is done."""

    before, after, go_on = threading.Event(), threading.Event(), threading.Semaphore(0)

    def execute(self, sql: str, /, *given: Any) -> sqlite3.Cursor:
        if sql != "COMMIT":
            return super().execute(sql, *given)
        self.before.set()
        assert self.go_on.acquire(timeout=SOON)
        done = super().execute(sql, *given)
        self.after.set()
        assert self.go_on.acquire(timeout=SOON)
        return done


@pytest.fixture
def held_commit(monkeypatch: pytest.MonkeyPatch) -> type[HeldCommit]:
    class Mine(HeldCommit):
        before, after, go_on = threading.Event(), threading.Event(), threading.Semaphore(0)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Mine))
    return Mine


async def turns(count: int = 10) -> None:
    """Of the event loop, in which something could end too early."""
    for _ in range(count):
        await asyncio.sleep(0)


async def ended(*works: Coroutine[Any, Any, Any]) -> list[Any]:
    """What each returned or raised."""
    return await asyncio.gather(*works, return_exceptions=True)


def event(operation: str) -> Callable[[Writing], str]:
    """A body that writes an event and nothing else."""

    def body(tx: Writing) -> str:
        tx.event(operation, operation, None, subject=("project", operation))
        return operation

    return body


def operations(path: str) -> list[str]:
    """Of all events, whose numbers have no gap."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT seq, operation FROM events ORDER BY seq").fetchall()
    assert [seq for seq, _ in found] == list(range(1, len(found) + 1))
    return [operation for _, operation in found]


async def test_sixty_four_at_once_are_one_commit_in_the_order_of_asking(
    open_state: Open, path: str, statements: list[str], consistent: None
) -> None:
    states = [open_state(agent=f"agent{number}") for number in range(64)]

    entries = await asyncio.gather(*(s.journal.append(f"{n}") for n, s in enumerate(states)))

    assert [one.seq for one in entries] == list(range(1, 65))
    assert journal_texts(path) == [f"{number}" for number in range(64)]
    assert [s.caller.totals.event for s in states if s.caller.totals] == list(range(1, 65))
    assert statements == ["BEGIN IMMEDIATE", "COMMIT"]


async def test_one_after_the_other_has_a_commit_each(state: State, statements: list[str]) -> None:
    await state.journal.append("one")
    await state.journal.append("two")
    assert statements == ["BEGIN IMMEDIATE", "COMMIT"] * 2


async def test_who_asks_while_the_first_waits_for_its_turn_is_taken_along(
    state: State, path: str, statements: list[str]
) -> None:
    await state.journal.append("before")
    statements.clear()
    with queue_held(path):
        first = asyncio.create_task(state.journal.append("first"))
        await stands_in_line(path)
        later = [asyncio.create_task(state.journal.append(f"later {n}")) for n in range(3)]
        await turns()

    assert [one.seq for one in await asyncio.gather(first, *later)] == [2, 3, 4, 5]
    assert statements == ["BEGIN IMMEDIATE", "COMMIT"]


async def test_a_group_has_an_end(
    state: State, monkeypatch: pytest.MonkeyPatch, statements: list[str]
) -> None:
    """Who waits in another process does not wait for all of this one."""
    monkeypatch.setattr(sqlite, "LONGEST_GROUP", 0.0)
    await asyncio.gather(*(state.journal.append(f"{number}") for number in range(5)))
    assert statements == ["BEGIN IMMEDIATE", "COMMIT"] * 5


async def test_what_one_refuses_touches_no_other(
    state: State, path: str, statements: list[str], consistent: None
) -> None:
    await state.memory.set("plan", "one")
    statements.clear()

    def broken(tx: Writing) -> None:
        event("lost")(tx)
        raise ZeroDivisionError

    stopped: list[Any] = await ended(
        state.journal.append("first"),
        state.memory.set("plan", "two", expected_version=7),
        state.journal.append("third", idempotency_key="k"),
        state.database.write(state.caller, broken),
        state.journal.append("third", idempotency_key="k"),
        state.journal.append("  "),
        state.database.write(state.caller, lambda tx: "nothing was changed"),
        state.memory.set("plan", "three", expected_version=1),
    )

    assert [type(one).__name__ for one in stopped] == [
        "JournalEntry",
        "VersionConflict",
        "JournalEntry",
        "ZeroDivisionError",
        "JournalEntry",
        "BadArgument",
        "str",
        "MemoryBlock",
    ]
    assert [stopped[at].seq for at in (0, 2, 4)] == [2, 4, 4]
    assert [stopped[at].repeated for at in (2, 4)] == [False, True]
    assert journal_texts(path) == ["first", "third"]
    assert operations(path) == ["set", "append", "refused", "append", "set"]
    assert statements == ["BEGIN IMMEDIATE", "COMMIT"]


async def test_a_group_that_changes_nothing_is_not_committed(
    state: State, path: str, statements: list[str]
) -> None:
    await asyncio.gather(*(state.database.write(state.caller, lambda tx: None) for _ in range(3)))
    assert statements == ["BEGIN IMMEDIATE", "ROLLBACK"]
    assert operations(path) == []


async def test_a_project_that_one_began_in_vain_is_begun_by_the_next(
    state: State, path: str, consistent: None
) -> None:
    refused, saved = await ended(state.journal.append(""), state.journal.append("here"))
    assert isinstance(refused, StateError)
    assert saved.seq == 1


async def test_totals_are_those_after_the_callers_own_write(open_state: Open) -> None:
    states = [open_state(agent=f"agent{number}") for number in range(3)]
    await ended(
        states[0].journal.append("one"),
        states[1].memory.set("plan", "late", expected_version=3),
        states[2].memory.set("plan", "first"),
    )
    told = [s.caller.totals for s in states]
    assert [(t.event, t.journal, t.memory) for t in told if t] == [(1, 1, 0), (2, 1, 0), (3, 1, 1)]


async def test_a_refusal_is_gone_when_it_was_told(state: State) -> None:
    """It leads to the cursors of its body: what reads on would keep the snapshot of the writer."""
    told: list[weakref.ref[BaseException]] = []

    async def refused() -> None:
        try:
            await state.memory.set("plan", "late", expected_version=3)
        except VersionConflict as problem:
            told.append(weakref.ref(problem))

    await state.journal.append("before")
    gc.disable()
    try:
        await asyncio.gather(*(refused() for _ in range(4)))
        assert [one() for one in told] == [None] * 4
    finally:
        gc.enable()


async def test_nobody_is_told_before_the_commit_has_returned(
    path: str, held_commit: type[HeldCommit]
) -> None:
    database = open_database(path)
    states = [State(database, Caller("acme", "argument", Actor(f"agent{n}"))) for n in range(5)]
    held_commit.go_on.release(2)
    await states[0].journal.append("before")
    held_commit.before.clear()
    held_commit.after.clear()
    for one in states:
        one.caller.totals = None
    with queue_held(path):
        first = asyncio.create_task(states[0].journal.append("0"))
        await stands_in_line(path)
        others = [
            asyncio.create_task(states[1].journal.append("1")),
            asyncio.create_task(states[2].journal.append("")),
            asyncio.create_task(states[3].memory.set("plan", "late", expected_version=9)),
            asyncio.create_task(database.write(states[4].caller, lambda tx: "unchanged")),
        ]
        await turns()
    writing = [first, *others]

    assert await asyncio.to_thread(held_commit.before.wait, SOON)
    await turns()
    assert not any(one.done() for one in writing)
    assert journal_texts(path) == ["before"]

    held_commit.go_on.release()
    assert await asyncio.to_thread(held_commit.after.wait, SOON)
    await turns()
    assert not any(one.done() for one in writing)
    assert [one.caller.totals for one in states] == [None] * 5
    assert journal_texts(path) == ["before", "0", "1"]

    held_commit.go_on.release()
    await asyncio.wait(writing, timeout=SOON)
    assert [type(one.exception()).__name__ for one in writing] == [
        *("NoneType", "NoneType", "BadArgument", "VersionConflict", "NoneType")
    ]
    await database.aclose()


async def test_who_was_cancelled_before_it_began_is_not_there(
    state: State, path: str, statements: list[str], consistent: None
) -> None:
    """Neither the one that waits for the other processes, nor one that waits behind it."""
    await state.journal.append("before")
    with queue_held(path):
        writing = [asyncio.create_task(state.journal.append("0"))]
        await stands_in_line(path)
        writing += [asyncio.create_task(state.journal.append(f"{n}")) for n in range(1, 6)]
        await turns()
        for cancelled in (writing[2], writing[0], writing[1]):
            cancelled.cancel()
            await asyncio.wait([cancelled], timeout=SOON)
            assert cancelled.cancelled()
        statements.clear()

    assert [one.seq for one in await asyncio.gather(*writing[3:])] == [2, 3, 4]
    assert journal_texts(path) == ["before", "3", "4", "5"]
    assert statements == ["BEGIN IMMEDIATE", "COMMIT"]


async def test_who_is_cancelled_just_when_its_turn_comes_passes_it_on(
    state: State, path: str
) -> None:
    await state.journal.append("before")
    gate = Gate()
    apart = asyncio.create_task(state.database.write(state.caller, gate.body, apart=True))
    await entered(gate)
    second = asyncio.create_task(state.database.write(state.caller, event("second"), apart=True))
    third = asyncio.create_task(state.journal.append("third"))
    apart.add_done_callback(lambda _: second.cancel())
    await turns()
    gate.go_on.set()

    assert (await asyncio.wait_for(third, SOON)).seq in (3, 4)
    await asyncio.wait([second], timeout=SOON)
    assert second.cancelled()


async def test_who_is_cancelled_while_it_lets_others_in_passes_the_turn_on(
    state: State, path: str
) -> None:
    await state.journal.append("before")
    first = asyncio.create_task(state.journal.append("first"))
    second = asyncio.create_task(state.journal.append("second"))
    await asyncio.sleep(0)
    first.cancel()

    assert (await asyncio.wait_for(second, SOON)).seq == 2
    assert first.cancelled()
    assert journal_texts(path) == ["before", "second"]


@pytest.mark.parametrize("library", ["asyncio", "anyio"])
async def test_who_is_cancelled_after_it_began_waits_for_the_commit(
    state: State, path: str, library: str
) -> None:
    await state.journal.append("before")
    gate, scope = Gate(), anyio.CancelScope()
    over: list[str] = []

    async def write() -> None:
        try:
            with scope:
                over.append((await state.journal.append("taken along")).text)
        except asyncio.CancelledError:
            over.append("cancelled")
            raise

    with queue_held(path):
        first = asyncio.create_task(state.journal.append("first"))
        await stands_in_line(path)
        along = asyncio.create_task(write())
        last = asyncio.create_task(state.database.write(state.caller, gate.body))
        await turns()
    await entered(gate)
    along.cancel() if library == "asyncio" else scope.cancel()
    await turns()
    assert over == []

    gate.go_on.set()
    await asyncio.wait([first, along, last], timeout=SOON)
    assert over == (["cancelled"] if library == "asyncio" else ["taken along"])
    assert along.cancelled() is (library == "asyncio")
    assert journal_texts(path) == ["before", "first", "taken along"]


async def test_each_waits_for_its_turn_for_as_long_as_it_may_itself(
    open_state: Open, path: str
) -> None:
    await open_state().journal.append("before")
    database = open_database(path, wait=0.2)
    state = State(database, Caller("acme", "argument", Actor("codex")))
    with queue_held(path):
        writing = [asyncio.create_task(state.journal.append(f"late {n}")) for n in range(3)]
        await asyncio.wait(writing, timeout=SOON)
    assert {type(one.exception()) for one in writing} == {StoreBusy}

    assert (await state.journal.append("in time")).seq == 2
    await database.aclose()


async def test_what_is_done_apart_is_not_taken_along_and_keeps_its_place(
    state: State, path: str, statements: list[str]
) -> None:
    await state.journal.append("before")
    with queue_held(path):
        writing = [asyncio.create_task(state.database.write(state.caller, event("a")))]
        await stands_in_line(path)
        statements.clear()
        for name, apart in (("b", False), ("c", True), ("d", False), ("e", False)):
            work = state.database.write(state.caller, event(name), apart=apart)
            writing.append(asyncio.create_task(work))
        await turns()

    assert await asyncio.gather(*writing) == ["a", "b", "c", "d", "e"]
    assert operations(path) == ["append", "a", "b", "c", "d", "e"]
    assert statements == ["BEGIN IMMEDIATE", "COMMIT"] * 3


def fill(tx: Writing) -> None:
    """More pages than there may be."""
    pages = tx.scalar("PRAGMA page_count")
    tx.scalar(f"PRAGMA max_page_count = {pages + 20}")
    sql = "INSERT INTO directories (anchor, project) VALUES (:anchor, :project)"
    tx.run(sql, {"anchor": "/" * 1_000_000})
    tx.event("full", "full", None, subject=("project", "full"))


def end_it(tx: Writing) -> None:
    """End the transaction, as SQLite itself may."""
    tx.run("ROLLBACK")
    raise ZeroDivisionError


def break_at_commit(tx: Writing) -> None:
    tx.run("PRAGMA defer_foreign_keys = ON")
    tx.run("INSERT INTO directories (anchor, project) VALUES ('/lost', 99)")
    tx.event("lost", "lost", None, subject=("project", "lost"))


def break_a_rule(tx: Writing) -> None:
    tx.event("lost", "lost", None, subject=("project", "lost"))
    tx.run("DELETE FROM journal")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (fill, DiskFull),
        (end_it, ZeroDivisionError),
        (break_at_commit, sqlite3.IntegrityError),
        (break_a_rule, sqlite3.IntegrityError),
    ],
)
@pytest.mark.parametrize("at", [0, 2, 4])
async def test_what_ends_the_transaction_of_all_is_told_to_the_one_who_did_it(
    state: State,
    path: str,
    body: Callable[[Writing], None],
    told: type[Exception],
    at: int,
    consistent: None,
) -> None:
    await state.journal.append("before")
    works: list[Coroutine[Any, Any, Any]] = [state.journal.append(f"{n}") for n in range(4)]
    works.insert(at, state.database.write(state.caller, body))

    stopped = await ended(*works)

    assert type(stopped.pop(at)) is told
    assert [one.seq for one in stopped] == [2, 3, 4, 5]
    assert journal_texts(path) == ["before", "0", "1", "2", "3"]


async def test_a_mixed_crowd_leaves_what_it_was_told(
    open_state: Open, path: str, statements: list[str], consistent: None
) -> None:
    """Writes, refusals, broken bodies, repeats and cancelled ones, again and again."""
    acknowledged: Counter[str] = Counter()
    cancelled: Counter[str] = Counter()
    told: Counter[str] = Counter()
    states = [open_state(agent=f"agent{number}") for number in range(8)]
    await states[0].memory.set("plan", "one")

    def broken(tx: Writing) -> None:
        event("lost")(tx)
        raise ZeroDivisionError

    def work(rng: random.Random, text: str) -> Awaitable[object]:
        state = rng.choice(states)
        return rng.choice(
            (
                lambda: state.journal.append(text),
                lambda: state.journal.append(text, idempotency_key=text),
                lambda: state.threads.set(text, next_action="go on", criteria=["it runs"]),
                lambda: state.memory.set("plan", text, expected_version=0),
                lambda: state.journal.append("  "),
                lambda: state.database.write(state.caller, broken),
                lambda: state.database.write(state.caller, event("apart"), apart=True),
            )
        )()

    with seeded(SEED) as rng:
        for turn in range(20):
            names = [f"t{turn}-{number}" for number in range(rng.randrange(1, 40))]
            tasks = {name: asyncio.ensure_future(work(rng, name)) for name in names}
            await turns(rng.randrange(4))
            for name in rng.sample(names, len(names) // 4):
                tasks[name].cancel()
            await asyncio.wait(tasks.values(), timeout=SOON)
            for name, task in tasks.items():
                if task.cancelled():
                    cancelled[name] += 1
                    continue
                told[type(task.exception()).__name__] += 1
                if task.exception() is None and task.result() != "apart":
                    acknowledged[name] += 1

    with closing(sqlite3.connect(path)) as connection:
        texts = connection.execute("SELECT text FROM journal UNION ALL SELECT shown FROM threads")
        written = Counter(text for (text,) in texts)
    assert not acknowledged - written
    assert not written - acknowledged - cancelled, "who had begun is there all the same"
    found = Counter(operations(path))
    assert "lost" not in found
    assert 0 <= found["refused"] - told["VersionConflict"] <= cancelled.total()
    assert set(told) == {"NoneType", "VersionConflict", "BadArgument", "ZeroDivisionError"}
    assert statements.count("COMMIT") < sum(found.values())


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if why := hindrance():
        (pytest.fail if NEEDED else pytest.skip)(why)
    folder = tmp_path_factory.mktemp("templates")
    deeds.make_templates(folder)
    return folder


def test_sixty_four_in_flight_are_one_sync(templates: Path, tmp_path: Path) -> None:
    rounds = Rounds(deeds.CROWD, templates / "small", tmp_path)
    points = points_of(deeds.CROWD.name, rounds.new_store(), tmp_path / "log")
    assert [one.file for one in points if "sync" in one.call] == ["state.db-wal"]


def members_of(store: Path) -> dict[str, str]:
    """Of the group, those who are there, with all that they wrote."""
    with closing(sqlite3.connect(store)) as connection:
        found = connection.execute(
            "SELECT memory.name, value FROM memory JOIN events "
            "ON events.kind = 'memory' AND events.name = memory.name AND events.version = 1 "
            "WHERE memory.name LIKE 'member %'"
        )
        return dict(found.fetchall())


def verdicts(told: str) -> list[str]:
    """How each of the group ended."""
    if told == FINE:
        return [FINE] * deeds.MEMBERS
    assert told.startswith("several: "), told
    return json.loads(told.removeprefix("several: ").removesuffix("."))[: deeds.MEMBERS]


def strike(rounds: Rounds, blow: Blow) -> None:
    """One round: each is there as it was told, and of a group that was killed all or nobody."""
    store = rounds.new_store()
    with struck(TOGETHER.name, store, blow, rounds.folder / "log") as (victim, told):
        copy = rounds.new_store("left-")
        shutil.rmtree(copy.parent)
        deeds.leave(store, copy.parent)
        if told:
            victim.go()
            victim.hear("went on")
            victim.go()
            assert victim.hear("bye")
    whole = {f"member {n}": f"{n}: {deeds.WHOLE}" for n in range(deeds.MEMBERS)}
    there = members_of(copy)
    assert there.items() <= whole.items()
    if not told:
        assert there in ({}, whole)
    for name, one in zip(whole, verdicts(told) if told else [], strict=False):
        assert not one.startswith(deeds.BROKEN), told
        assert IN_DOUBT in one or (name in there) is (one == FINE), (name, told)
    settle(store)
    assert_sound(store, leaves_half=blow.fault == KILL)


@pytest.mark.parametrize("kind", [KILL, "fault"])
def test_whatever_befalls_a_group_each_of_it_is_there_as_it_was_told(
    kind: str, templates: Path, tmp_path: Path
) -> None:
    """Killed at a point it is all there or nothing; an error is told to all whom it concerns."""
    rounds = Rounds(TOGETHER, templates / TOGETHER.at, tmp_path)
    problems: list[Exception] = []
    with seeded(SEED) as rng:
        if SOAK:
            found = every(rounds)
        elif kind == KILL:
            kills = [blow for blow in rounds.blows() if blow.fault == KILL]
            found = [*rng.sample(kills, 8), *(one for one in kills if "sync" in one.point.call)]
        else:
            found = some_blows(rounds, rng)
        for blow in found:
            if (blow.fault == KILL) is (kind == KILL):
                try:
                    strike(rounds, blow)
                except Exception as problem:
                    problem.add_note(f"{blow}")
                    problems.append(problem)
        if problems:
            raise ExceptionGroup(f"{len(problems)} blows were not borne", problems)


@some(6, 60)
async def test_kill_9_with_forty_calls_in_flight_loses_nothing_that_was_answered(
    tmp_path: Path, rounds: int
) -> None:
    with seeded(SEED) as rng:
        for number in range(rounds):
            store = tmp_path / f"home-{number}" / "state.db"
            server = Server.start(store)
            sent: dict[int, Call] = {}
            work = calls(rng, f"r{number}")
            first = next(work)
            answered = Counter([entry(first)])
            with closing_all([server]):
                assert not server.call(first).code
                for call in itertools.islice(work, 40):
                    sent[server.send(call)] = call
                for _ in range(rng.randrange(30)):
                    found = server.receive()
                    assert found is not None and not found[1].code
                    answered[entry(sent.pop(found[0]))] += 1
                spin(rng.uniform(0, 0.01))
                for id_, answer in server.kill():
                    assert not answer.code
                    answered[entry(sent.pop(id_))] += 1
            ledger = read_copy(store, tmp_path / "copies")
            assert ledger.problems == []
            assert not answered - ledger.written
            assert not ledger.written - answered - Counter(entry(call) for call in sent.values())
            await assert_it_goes_on(store, ledger.written)
