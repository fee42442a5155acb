"""History: numbered without gaps, of any subject, with the refusals that people want to see."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Call, FakeClock, Open
from peeking import Refused, plain

from mcp_state.api import State
from mcp_state.errors import (
    BadArgument,
    Conflict,
    EvidenceRequired,
    Held,
    IllegalTransition,
    LeaseLost,
    Locked,
    NotFound,
    OverLimit,
    SecretRefused,
    StateError,
    VersionConflict,
)
from mcp_state.models import Event, Thread

SECRET = "ghp" + "_" + "a1B2" * 9


def scope(event: int, threads: int = 0) -> str:
    noun = "thread" if threads == 1 else "threads"
    return f"[acme (from --project) · {threads} {noun} · event {event}]"


async def all_events(state: State) -> list[Event]:
    return list((await state.events.history(since=0, limit=1000)).events)


async def test_the_history_of_one_subject_shows_every_version_of_it(
    call: Call, clock: FakeClock
) -> None:
    await call("memory_set", key="Plan", value="one")
    await call("journal_append", text="first line\nsecond line")
    clock.move(hours=1)
    await call("memory_append", key="plan", text=" two")
    await call("memory_set", error=True, key="plan", value="lost", expected_version=1)
    await call("memory_delete", key="plan")

    refused = "refused: version_conflict: block 'Plan' is at version 2, not 1"
    for subject in ("memory:plan", " MEMORY:PLAN ", "Memory: plan"):
        assert await call("history", subject=subject) == (
            "4 events\n"
            "1 mcp: version 1: set, 3 chars · 1 h ago\n"
            "3 mcp: version 2: append, 7 chars · just now\n"
            f"4 mcp: {refused} (written by mcp just now) · just now\n"
            "5 mcp: version 3: deleted, was version 2 · just now\n"
            f"{scope(5)}"
        )
    assert (await call("history")).splitlines()[1:3] == [
        "1 mcp: memory Plan set, 3 chars · 1 h ago",
        "2 mcp: journal 2 first line · 1 h ago",
    ]
    assert (await call("history", subject="journal:2")).splitlines()[1] == (
        "2 mcp: first line · 1 h ago"
    )


async def test_a_subject_with_no_events_says_so(call: Call) -> None:
    assert await call("history") == ("No events.\n[acme (from --project) · nothing stored yet]")
    await call("thread_set", thread="t")
    assert await call("history", subject="thread:u") == f"No events of thread:u.\n{scope(1, 1)}"


@pytest.mark.parametrize("subject", ["pr-830", "facts:x", ":x", "thread", " "])
async def test_a_subject_that_is_none_says_how_to_write_one(call: Call, subject: str) -> None:
    assert await call("history", error=True, subject=subject) == (
        f"error: bad_argument: subject is '{subject}'. Write KIND:NAME with a kind out of memory, "
        "thread, journal, run, step, checkpoint, transcript, trace, blob, handoff, fact, "
        "objective, project, e.g. thread:pr-830.\n"
        "[acme (from --project) · nothing stored yet]"
    )


async def test_since_reads_forward_and_without_it_the_newest_come(call: Call, state: State) -> None:
    for n in range(10):
        await state.memory.set("plan", f"v{n}")
        await state.journal.append(f"e{n}")

    async def page(**arguments: Any) -> tuple[list[int], int]:
        found = await state.events.history(**arguments)
        return [event.seq for event in found.events], found.more

    assert await page(limit=3) == ([18, 19, 20], 17)
    assert await page(since=0, limit=3) == ([1, 2, 3], 17)
    assert await page(since=17, limit=5) == ([18, 19, 20], 0)
    assert await page(since=-4, limit=3) == ([1, 2, 3], 17)
    assert await page(since=20) == ([], 0)
    assert await page(since=99) == ([], 0)
    assert await page(subject="memory:plan", limit=3) == ([15, 17, 19], 7)
    assert await page(subject="memory:plan", since=5, limit=3) == ([7, 9, 11], 4)
    assert (await call("history", limit=2)).splitlines()[0] == (
        "2 events, 18 earlier: since=0 reads from the beginning"
    )
    assert (await call("history", since=3, limit=2)).splitlines()[0] == (
        "2 events, 15 later: since=5"
    )
    assert (await call("history", subject="memory:plan", since=3, limit=2)).splitlines()[0] == (
        "2 events, 6 later: since=7"
    )


async def test_following_since_visits_every_event_once(call: Call, state: State) -> None:
    for n in range(120):
        await state.threads.set("t", note=f"{n} " + "word " * 40)
    seen: list[int] = []
    since = 0
    for _ in range(20):
        text = await call("history", since=since, limit=200)
        assert len(text) < 10_000
        head, *lines, _ = text.splitlines()
        seen += [int(line.split()[0]) for line in lines]
        if "since=" not in head:
            break
        since = int(head.rpartition("since=")[2])
    assert seen == list(range(1, 121))


async def refusals(state: State, other: State, clock: FakeClock) -> list[type[StateError]]:
    """Have everything refused that a store refuses; returns the classes in order."""
    await state.memory.set("plan", "one")
    await state.memory.lock("plan", "mine")
    await state.memory.append("log", "one", idempotency_key="k")
    await state.threads.set("t", criteria=["c"])
    claim = await state.threads.claim("t", lease="1m")
    assert isinstance(claim, Thread)
    assert claim.lease is not None
    old = claim.lease.token
    clock.move(minutes=2)
    await other.threads.claim("t")
    attempts = (
        state.memory.set("log", "two", expected_version=7),
        state.memory.append("log", "two", idempotency_key="k"),
        state.threads.set("t", title="x", lease_token=old),
        state.journal.append(SECRET),
        state.memory.set("plan", "two"),
        state.memory.set("log", ""),
        state.memory.set("log", "x" * 5000),
        state.memory.delete("nothing"),
        state.threads.set("t", title="x"),
        state.threads.set("u", status="done"),
        state.threads.set("v", status="done", evidence="x", criteria=["c"]),
        state.journal.append("x", thread="nothing"),
    )
    found: list[type[StateError]] = []
    for attempt in attempts:
        with pytest.raises(StateError) as refused:
            await attempt
        found.append(type(refused.value))
    return found


async def test_refusals_that_people_want_to_see_are_events_and_no_others(
    state: State, open_state: Open, clock: FakeClock
) -> None:
    other = open_state(agent="claude", session="s2")

    classes = await refusals(state, other, clock)

    assert classes == [
        VersionConflict,
        Conflict,
        LeaseLost,
        SecretRefused,
        Locked,
        BadArgument,
        OverLimit,
        NotFound,
        Held,
        EvidenceRequired,
        EvidenceRequired,
        NotFound,
    ]
    recorded = [e for e in await all_events(state) if e.operation == "refused"]
    assert [(e.subject, e.summary, e.version) for e in recorded] == [
        ("memory:log", "refused: version_conflict", None),
        ("memory:log", "refused: conflict", None),
        ("thread:t", "refused: lease_lost", None),
        ("journal:10", "refused: secret_refused", None),
        ("memory:plan", "refused: locked", None),
    ]
    assert [event.row and event.row["code"] for event in recorded] == [
        "version_conflict",
        "conflict",
        "lease_lost",
        "secret_refused",
        "locked",
    ]
    assert all(event.actor.agent == "codex" for event in recorded)


async def test_event_numbers_have_no_gaps_after_refusals_and_rollbacks(
    state: State, open_state: Open, clock: FakeClock
) -> None:
    await refusals(state, open_state(agent="claude", session="s2"), clock)
    await state.threads.set("d", status="done", evidence="x")
    with pytest.raises(IllegalTransition):
        await state.threads.set("d", status="blocked", waiting_on="x")
    await state.journal.append("after")
    numbers = [event.seq for event in await all_events(state)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert state.totals.event == numbers[-1]


async def test_event_numbers_have_no_gaps_with_writers_of_two_processes(open_state: Open) -> None:
    writers = [open_state(agent=f"a{n}", session=f"s{n}", database=str(n % 2)) for n in range(4)]

    async def write(writer: State, n: int) -> None:
        for i in range(5):
            await writer.journal.append(f"{n}.{i}")
            with pytest.raises(VersionConflict):
                await writer.memory.set("plan", "x", expected_version=99)

    await asyncio.gather(*(write(writer, n) for n, writer in enumerate(writers)))

    assert [event.seq for event in await all_events(writers[0])] == list(range(1, 41))


async def test_each_event_holds_the_row_after_it_and_who_and_when(
    state: State, clock: FakeClock
) -> None:
    await state.memory.set("Plan", "one", ttl="1h")
    clock.move(minutes=1)
    await state.memory.delete("plan")

    first, second = await all_events(state)
    assert (first.seq, first.kind, first.name, first.operation, first.version) == (
        1,
        "memory",
        "plan",
        "set",
        1,
    )
    assert first.row == {
        "key": "Plan",
        "value": "one",
        "version": 1,
        "expires_at": "2026-11-29T10:00:00.000000Z",
        "locked": "",
    }
    assert (first.actor.agent, first.actor.client, first.actor.session) == (
        "codex",
        "codex 1.0",
        "s1",
    )
    assert (second.operation, second.row, second.version) == ("delete", None, 2)
    assert (second.at - first.at).total_seconds() == 60


async def test_order_is_by_number_even_when_the_clock_goes_back(
    call: Call, state: State, clock: FakeClock
) -> None:
    await state.journal.append("first")
    clock.move(hours=-5)
    await state.journal.append("second")
    assert [event.summary for event in await all_events(state)] == ["first", "second"]
    assert [entry.text for entry in (await state.journal.tail()).entries] == ["first", "second"]
    assert (await call("history")).splitlines()[
        1
    ] == "1 codex: journal 1 first · 5 h ahead of the clock"


async def test_events_are_final_even_for_plain_sql(state: State, path: str) -> None:
    await state.journal.append("x")
    with plain(path) as store:
        for statement, why in (
            ("UPDATE events SET summary = 'y'", "events are never changed"),
            ("DELETE FROM events", "events are never deleted"),
            (
                "INSERT INTO events SELECT project, 7, at, actor, run, kind, name, operation, "
                "summary, version, row FROM events",
                "event numbers have no gaps",
            ),
        ):
            with pytest.raises(Refused, match=why):
                store.execute(statement)


async def test_nothing_of_one_project_shows_in_another(open_state: Open) -> None:
    acme, other = open_state(), open_state(project="other")
    await acme.memory.set("plan", "one")
    await other.memory.set("plan", "two")
    for state, value in ((acme, "one"), (other, "two")):
        (event,) = await all_events(state)
        assert event.seq == 1
        assert event.row is not None
        assert event.row["value"] == value
