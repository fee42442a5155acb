"""The objective: set once, changed only with a reason and knowingly, kept for ever."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from conftest import START, FakeClock, Open
from long_runs import summaries
from peeking import CHECK, Refused, plain, rows
from workload import ROOT

from mcp_state.api import State
from mcp_state.errors import BadArgument, OverLimit, SecretRefused, VersionConflict
from mcp_state.models import Actor, Objective

CODEX = Actor("codex", "codex 1.0", "s1")
CLAUDE = Actor("claude", "claude 1.0", "s2")
V1 = Objective("Ship import v1", "", "", 1, START, CODEX)
pytestmark = pytest.mark.usefixtures("consistent")
SECRET = "ghp_" + "a1" * 18


async def last_event(state: State) -> int:
    await state.objective.get()
    return state.totals.event


async def test_there_is_none_until_it_is_set(open_state: Open) -> None:
    state, other = open_state(), open_state(project="other")
    assert await state.objective.get() is None
    assert await state.objective.set(" Ship import v1\n") == V1
    assert await state.objective.get() == V1
    assert await other.objective.get() is None
    assert await summaries(state, "objective:objective") == ["Ship import v1"]


async def test_the_first_may_come_with_its_intent_and_a_reason(state: State) -> None:
    first = await state.objective.set(
        "Ship import v1", intent="Customers move in by themselves", reason="They asked"
    )
    assert first == replace(V1, intent="Customers move in by themselves", reason="They asked")
    assert await state.objective.get() == first


@pytest.mark.parametrize("given", [{}, {"objective": " "}, {"intent": "i", "reason": "r"}])
async def test_the_first_needs_to_say_what_we_are_after(
    state: State, given: dict[str, Any]
) -> None:
    with pytest.raises(BadArgument) as refused:
        await state.objective.set(**given)
    assert str(refused.value) == (
        "bad_argument: there is no objective yet. Say in objective what we are after."
    )
    assert await state.objective.get() is None
    assert await last_event(state) == 0


async def test_a_change_says_what_it_replaces_and_why(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.objective.set("Ship import v1", intent="Customers move in")
    clock.move(days=2)

    changed = await theirs.objective.set(
        "Ship import v2", reason="the customer moved the date", expected_version=1
    )

    assert changed == Objective(
        objective="Ship import v2",
        intent="Customers move in",
        reason="the customer moved the date",
        version=2,
        changed_at=clock.now(),
        changed_by=CLAUDE,
        was="Ship import v1",
        intent_was="Customers move in",
    )
    for state in (mine, theirs):
        assert await state.objective.get() == changed


async def test_the_intent_changes_like_the_objective_does(state: State, clock: FakeClock) -> None:
    await state.objective.set("Ship import v1", intent="Customers move in")
    clock.move(days=2)
    with pytest.raises(BadArgument, match="changing it or its intent needs a reason"):
        await state.objective.set(intent="Customers stay", expected_version=1)
    changed = await state.objective.set(intent="Customers stay", reason="r", expected_version=1)
    assert changed == Objective(
        "Ship import v1",
        "Customers stay",
        "r",
        2,
        clock.now(),
        CODEX,
        was="Ship import v1",
        intent_was="Customers move in",
    )
    assert await state.objective.get() == changed


@pytest.mark.parametrize("expected", [None, 1])
async def test_a_change_without_a_reason_is_refused(
    state: State, clock: FakeClock, expected: int | None
) -> None:
    await state.objective.set("Ship import v1", reason="They asked")
    clock.move(hours=2)
    with pytest.raises(BadArgument) as refused:
        await state.objective.set("Ship import v2", reason=" ", expected_version=expected)
    assert str(refused.value) == (
        "bad_argument: the objective is 'Ship import v1' (set by codex 2 h ago); changing it or "
        "its intent needs a reason. Say in reason why, for those who worked towards the old one, "
        "and pass expected_version=1."
    )
    assert await state.objective.get() == replace(V1, reason="They asked")


async def test_a_change_that_does_not_say_which_version_it_replaces_is_refused(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.objective.set("Ship import v1")
    clock.move(hours=2)
    with pytest.raises(VersionConflict) as refused:
        await theirs.objective.set("Ship import v2", reason="r")
    assert str(refused.value) == (
        "version_conflict: the objective is at version 1 (set by codex 2 h ago): 'Ship import v1', "
        "and this call does not say that it replaces it. "
        "If it does, call again with expected_version=1."
    )
    assert await theirs.objective.get() == V1


@pytest.mark.parametrize(
    ("expected", "why"),
    [
        (
            2,
            "the objective is at version 1, not 2 (set by codex just now). Read it with orient, "
            "merge, and objective_set again with expected_version=1.",
        ),
        (
            0,
            "the objective exists already, at version 1 (set by codex just now). Read it with "
            "orient; to change it, objective_set with expected_version=1.",
        ),
    ],
)
@pytest.mark.parametrize("objective", ["Ship import v1", "Ship import v2"])
async def test_another_version_than_the_expected_one_is_refused(
    state: State, expected: int, why: str, objective: str
) -> None:
    await state.objective.set("Ship import v1")
    with pytest.raises(VersionConflict) as refused:
        await state.objective.set(objective, reason="r", expected_version=expected)
    assert str(refused.value) == f"version_conflict: {why}"
    assert await state.objective.get() == V1


async def test_expected_version_0_sets_the_first_and_another_number_does_not(state: State) -> None:
    with pytest.raises(VersionConflict, match="the objective does not exist, so it is not at"):
        await state.objective.set("Ship import v1", expected_version=1)
    assert await state.objective.get() is None
    assert await state.objective.set("Ship import v1", expected_version=0) == V1


@pytest.mark.parametrize(
    "again",
    [
        {},
        {"objective": "Ship import v1"},
        {"objective": " Ship import v1 ", "intent": "i", "expected_version": 1},
        {"intent": "i"},
        {"reason": "another"},
    ],
)
async def test_setting_the_same_again_changes_nothing(
    mine: State, theirs: State, clock: FakeClock, again: dict[str, Any]
) -> None:
    first = await mine.objective.set("Ship import v1", intent="i", reason="r")
    last = await last_event(mine)
    clock.move(hours=1)
    assert await theirs.objective.set(**again) == replace(first, unchanged=True)
    assert await theirs.objective.get() == first
    assert await last_event(theirs) == last


async def test_history_keeps_every_objective_with_its_reason(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.objective.set("one", intent="i")
    for version, state in ((1, theirs), (2, mine), (3, theirs)):
        clock.move(days=1)
        await state.objective.set(
            f"number {version + 1}", reason=f"reason {version}", expected_version=version
        )

    page = await mine.events.history("objective:objective")
    kept = [(e.actor, e.at, e.operation, e.version, e.row) for e in page.events]
    days = [START.replace(day=29), START.replace(day=30)]
    days += [START.replace(month=12, day=1), START.replace(month=12, day=2)]
    texts = [("one", ""), *((f"number {n + 1}", f"reason {n}") for n in (1, 2, 3))]
    assert kept == [
        (
            CLAUDE if version in (2, 4) else CODEX,
            at,
            "set",
            version,
            {
                "name": "objective",
                "version": version,
                "objective": objective,
                "intent": "i",
                "reason": reason,
            },
        )
        for version, (at, (objective, reason)) in enumerate(zip(days, texts, strict=True), 1)
    ]
    assert page.events[1].summary == "number 2 (was: one); because reason 1"


@pytest.mark.parametrize("field", ["objective", "intent", "reason"])
async def test_a_text_is_neither_too_long_nor_a_secret(state: State, field: str) -> None:
    await state.objective.set("Ship import v1")
    given: Any = {"objective": "v2", "reason": "r", "expected_version": 1}
    with pytest.raises(OverLimit) as refused:
        await state.objective.set(**given | {field: "x" * 501})
    assert str(refused.value) == (
        f"over_limit: the {field} would be 501 characters; the limit is 500. Say it in fewer "
        "words; what is long belongs in a memory block. Nothing was saved."
    )
    with pytest.raises(SecretRefused, match=f"the {field} holds what looks like a GitHub token"):
        await state.objective.set(**given | {field: SECRET})
    assert await state.objective.get() == V1
    changed = await state.objective.set(**given | {field: "x" * 500})
    assert getattr(changed, field) == "x" * 500


# Two at once


async def both(states: tuple[State, State], **given: Any) -> list[Objective | BaseException]:
    return await asyncio.gather(
        *(state.objective.set(f"of {state.caller.actor.agent}", **given) for state in states),
        return_exceptions=True,
    )


def kinds(found: list[Objective | BaseException]) -> list[str]:
    return sorted(type(one).__name__ for one in found)


@pytest.mark.parametrize("given", [{"expected_version": 0}, {"reason": "r"}])
@pytest.mark.parametrize("swapped", [False, True])
async def test_of_two_sessions_that_set_the_first_at_once_one_wins(
    mine: State, theirs: State, given: dict[str, Any], swapped: bool
) -> None:
    states = (theirs, mine) if swapped else (mine, theirs)
    found = await both(states, **given)
    assert kinds(found) == ["Objective", "VersionConflict"]
    (winner,) = [one for one in found if isinstance(one, Objective)]
    assert (await mine.objective.get(), winner.version) == (winner, 1)
    assert await theirs.objective.get() == winner


@pytest.mark.parametrize("swapped", [False, True])
async def test_of_two_sessions_that_change_it_at_once_one_wins(
    mine: State, theirs: State, path: str, swapped: bool
) -> None:
    await mine.objective.set("Ship import v1")
    states = (theirs, mine) if swapped else (mine, theirs)
    for version in range(1, 6):
        given = {"intent": f"intent {version}", "reason": "r", "expected_version": version}
        found = await both(states, **given)
        assert kinds(found) == ["Objective", "VersionConflict"]
        now = await mine.objective.get()
        assert now is not None and now in found
        assert now.version == version + 1
    assert rows(path, "SELECT count(*) FROM objectives") == [(1,)]


SETTER = """
import asyncio, sys
from mcp_state.api import open_store
from mcp_state.errors import VersionConflict
async def main():
    async with open_store({path!r}, project="acme", agent=sys.argv[1]) as state:
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            made = await state.objective.set("of " + sys.argv[1], expected_version=0)
            print("set", made.changed_by.agent, flush=True)
        except VersionConflict as conflict:
            print("refused", conflict.code, flush=True)
asyncio.run(main())
"""


def race(path: str) -> list[list[str]]:
    """What two processes say that set the first objective when they are told to."""
    words = [sys.executable, "-c", SETTER.format(path=path)]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen([*words, "one"], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as one,
        subprocess.Popen([*words, "two"], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as two,
    ):
        for child in (one, two):
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in (one, two):
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        return [child.communicate(timeout=30)[0].split() for child in (one, two)]


async def test_of_two_processes_that_set_the_first_at_once_one_wins(
    state: State, path: str
) -> None:
    await state.journal.append("the store is there")
    refused, won = sorted(race(path))
    assert refused == ["refused", "version_conflict"]
    assert won[0] == "set"
    now = await state.objective.get()
    assert now is not None
    assert (now.objective, now.version) == (f"of {won[1]}", 1)
    assert now.changed_by.agent == won[1]
    assert rows(path, "SELECT objective FROM objectives") == [(now.objective,)]


# The file itself


async def test_the_file_refuses_to_delete_an_objective_or_to_change_it_without_a_reason(
    state: State, path: str
) -> None:
    await state.objective.set("Ship import v1")
    with plain(path) as store:
        for statement, why in (
            ("DELETE FROM objectives", "objectives are replaced, not deleted"),
            ("UPDATE objectives SET version = 2, objective = 'mine'", CHECK),
            ("UPDATE objectives SET objective = ''", CHECK),
        ):
            with pytest.raises(Refused, match=why):
                store.execute(statement)
    assert await state.objective.get() == V1
