"""What falls with a fact and what does not: small graphs by hand, random ones against a model, and
chains and fans of 10,000.
"""

from __future__ import annotations

import asyncio
import graphlib
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import pytest
from conftest import START, FakeClock, Open
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from long_runs import summaries
from peeking import Refused, plain, rows
from soaking import SOAK, examples
from spending import spent

from mcp_state.api import State
from mcp_state.errors import (
    BadArgument,
    EvidenceRequired,
    SecretRefused,
    StateError,
    VersionConflict,
)
from mcp_state.models import FALLEN, Fact, FactTrace, Premise, Status, Touched, Trust
from mcp_state.settings import is_address
from mcp_state.store import fact_rows, fact_rules, facts
from mcp_state.times import from_text, to_text

SECRET = "ghp_" + "a1" * 18
Graph = dict[str, list[list[str]]]


async def build(state: State, graph: Graph) -> None:
    """Facts with a check each, in the order given, each with its reasons."""
    for name, reasons in graph.items():
        first, *others = reasons or [[]]
        await state.facts.record(name, f"{name} is so", check=f"check {name}", because=first)
        for reason in others:
            await state.facts.record(name, because=reason)


async def trusted(state: State, graph: Graph) -> None:
    await build(state, graph)
    for name in graph:
        await state.facts.verify(name, True, "it held")


async def got(state: State, name: str) -> Fact:
    return (await state.facts.trace(name)).fact


async def standing(state: State) -> dict[str, str]:
    """The trust of each fact; ` due` is added to what is."""
    page = await state.facts.list(limit=200)
    assert page.total == len(page.facts)
    return {f.name: f.trust.value + (" due" if f.due else "") for f in sorted(page.facts, key=by)}


def by(fact: Fact) -> str:
    return fact.name


COLUMNS = ("name", "version", "statement", "check", "trust", "recheck_at", "held", "evidence")
NEWEST = """
    SELECT name, row FROM events WHERE (project, seq) IN (
        SELECT project, max(seq) FROM events
        WHERE kind = 'fact' AND operation <> 'refused' GROUP BY project, name
    ) ORDER BY name
"""


def in_file(path: str) -> list[tuple[Any, ...]]:
    """The rows of all facts, which are those of their newest events."""
    columns = ", ".join(f'"{column}"' for column in COLUMNS)
    stored = rows(path, f"SELECT {columns} FROM facts ORDER BY name")  # noqa: S608
    kept = [(name, json.loads(row)) for name, row in rows(path, NEWEST)]
    assert [(name, *(row[c] for c in COLUMNS[1:])) for name, row in kept] == stored
    return stored


LINKS = """
    SELECT fact, premise FROM premises
    WHERE project = (SELECT project FROM project_names WHERE name = ?)
"""
CHANGES = """
    SELECT operation, name, row FROM events
    WHERE project = (SELECT project FROM project_names WHERE name = ?)
        AND kind = 'fact' AND operation <> 'refused' ORDER BY seq
"""


def events_after(path: str, seq: int) -> list[tuple[str, str]]:
    return rows(path, "SELECT operation, name FROM events WHERE seq > ? ORDER BY seq", seq)


async def last_event(state: State) -> int:
    await state.facts.list()
    return state.totals.event


# Falling


async def test_a_fact_falls_when_its_one_reason_does_and_what_rests_on_it_falls_with_it(
    state: State, path: str, clock: FakeClock, consistent: None
) -> None:
    await trusted(state, {"root": [], "B": [["root"]], "c": [["b"]], "aside": []})
    last = await last_event(state)
    clock.move(hours=1)
    now = to_text(clock.now())

    refuted = await state.facts.verify("root", False, "exit 1")

    assert refuted.touched == Touched(fell=["B", "c"], fell_count=2, threads=[], threads_count=0)
    assert await standing(state) == {
        "B": "stale",
        "aside": "trusted",
        "c": "stale",
        "root": "refuted",
    }
    assert events_after(path, last) == [("verify", "root"), ("fall", "b"), ("fall", "c")]
    stored = {row[0]: row[1:] for row in in_file(path)}
    assert stored["c"] == (2, "c is so", "check c", "stale", None, 1, "it held")
    times = "SELECT at FROM events WHERE seq > ? UNION SELECT trust_at FROM facts WHERE trust "
    assert rows(path, f"{times} IN ('stale', 'refuted')", last) == [(now,)]
    assert (await summaries(state, "fact:b"))[-1] == "stale: rests on root, which was refuted"
    assert (await summaries(state, "fact:c"))[-1] == "stale: rests on B, which fell"


@pytest.mark.parametrize(
    ("graph", "refuted", "falls"),
    [
        ({"a": [], "b": [], "x": [["a", "b"]]}, "a", ["x"]),
        ({"a": [], "b": [], "x": [["a", "b"]]}, "b", ["x"]),
        ({"a": [], "b": [], "x": [["a"], ["b"]]}, "a", []),
        ({"a": [], "b": [], "x": [["a"], ["a", "b"]]}, "b", []),
        ({"a": [], "b": [], "x": [["a"], ["a", "b"]]}, "a", ["x"]),
        ({"a": [], "b": [["a"]], "c": [["a"]], "x": [["b"], ["c"]]}, "a", ["b", "c", "x"]),
        ({"a": [], "o": [], "b": [["a"]], "c": [["a"], ["o"]], "x": [["b"], ["c"]]}, "a", ["b"]),
        ({"a": [], "b": [["a"]], "x": [["a"], ["b"]]}, "a", ["b", "x"]),
        ({"a": [], "b": [["a"]], "x": [["a"], ["b"]]}, "b", []),
        ({"a": [], "b": [["a"]], "c": [["b"]], "x": [["c", "a"], ["b"]]}, "a", ["b", "c", "x"]),
        ({"a": [], "x": [["a"]], "y": [["x"]]}, "y", []),
    ],
    ids=str,
)
async def test_exactly_what_has_no_reason_left_falls(
    state: State, path: str, graph: Graph, refuted: str, falls: list[str], consistent: None
) -> None:
    await trusted(state, graph)
    before = await state.facts.trace(refuted)
    touched = (await state.facts.verify(refuted, False, "exit 1")).touched

    assert before.falls_count == touched.fell_count == len(falls)
    assert sorted(one.fact.name for one in before.carries if one.falls and not one.seen) == falls
    assert sorted(touched.fell) == falls
    expected = {name: "stale" if name in falls else "trusted" for name in graph}
    assert await standing(state) == dict(sorted((expected | {refuted: "refuted"}).items()))
    in_file(path)


async def test_a_fact_falls_when_the_last_of_its_reasons_does(state: State) -> None:
    await trusted(state, {"a": [], "b": [], "x": [["a"], ["b"]]})
    assert (await state.facts.verify("a", False, "e")).touched.fell == []
    assert (await got(state, "x")).trust is Trust.TRUSTED
    assert (await state.facts.verify("b", False, "e")).touched.fell == ["x"]
    assert (await got(state, "x")).trust is Trust.STALE
    assert (await state.facts.verify("b", False, "again")).touched.fell == []


@pytest.mark.parametrize("archival", [False, True])
async def test_what_nobody_has_checked_falls_too(state: State, archival: bool) -> None:
    await state.facts.record("a", "a is so")
    await state.facts.record("x", "x is so", because=["a"], archival=archival)
    assert (await state.facts.verify("a", False, "e")).touched.fell == ["x"]
    assert await standing(state) == {"a": "refuted", "x": "stale"}


async def test_what_is_refuted_itself_stays_so_when_its_reasons_fall(state: State) -> None:
    await trusted(state, {"a": [], "x": [["a"]], "y": [["x"]]})
    await state.facts.verify("x", False, "e")
    assert (await state.facts.verify("a", False, "e")).touched.fell == []
    assert await standing(state) == {"a": "refuted", "x": "refuted", "y": "stale"}


@pytest.mark.parametrize("fallen", ["x", "y"])
async def test_a_transaction_that_fails_halfway_through_what_falls_changes_nothing(
    state: State, path: str, fallen: str, consistent: None
) -> None:
    await trusted(state, {"a": [], "x": [["a"]], "y": [["x"]], "z": [["y"]]})
    before, last = in_file(path), await last_event(state)
    with plain(path) as store:
        store.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON events "
            + ("FOR EACH ROW " if is_address(path) else "")
            + f"WHEN (NEW.operation = 'fall' AND NEW.name = '{fallen}') "
            + (
                "EXECUTE FUNCTION refuse('broken')"
                if is_address(path)
                else "BEGIN SELECT RAISE(ABORT, 'broken'); END"
            )
        )
    for write in (
        state.facts.verify("a", False, "exit 1"),
        state.facts.record("a", "a says more", expected_version=2),
    ):
        with pytest.raises(Refused, match="broken"):
            await write
        assert (in_file(path), await last_event(state)) == (before, last)
        assert await standing(state) == dict.fromkeys("axyz", "trusted")
        assert state.totals.facts["trusted"] == 4
    with plain(path) as store:
        store.execute("DROP TRIGGER broken" + (" ON events" if is_address(path) else ""))
    assert (await state.facts.verify("a", False, "exit 1")).touched.fell == ["x", "y", "z"]


async def test_a_secret_in_the_evidence_lets_nothing_fall(state: State, path: str) -> None:
    await trusted(state, {"a": [], "x": [["a"]]})
    before, last = in_file(path), await last_event(state)
    with pytest.raises(SecretRefused):
        await state.facts.verify("a", False, SECRET)
    assert in_file(path) == before
    assert events_after(path, last) == [("refused", "a")]


# Standing again


async def test_what_fell_with_a_fact_that_holds_again_is_due_and_not_trusted(
    state: State, path: str, clock: FakeClock, consistent: None
) -> None:
    await trusted(state, {"a": [], "x": [["a"]], "y": [["x"]]})
    await state.facts.verify("a", False, "exit 1")
    last = await last_event(state)
    clock.move(hours=1)

    again = await state.facts.verify("a", True, "exit 0")

    assert again.touched == Touched(again=["x"], again_count=1, threads=[], threads_count=0)
    assert await standing(state) == {"a": "trusted", "x": "stale due", "y": "stale"}
    assert events_after(path, last) == [("verify", "a"), ("due", "x")]
    due = await got(state, "x")
    assert (due.version, due.recheck_at, due.held) == (2, clock.now(), True)
    assert [f.name for f in (await state.facts.list(due=True)).facts] == ["x"]
    assert (await state.facts.verify("x", True, "exit 0")).touched.again == ["y"]
    assert (await state.facts.verify("y", True, "exit 0")).touched.again == []
    assert await standing(state) == dict.fromkeys("axy", "trusted")
    in_file(path)


async def test_a_fact_with_two_premises_is_due_when_both_stand_again(state: State) -> None:
    await trusted(state, {"a": [], "b": [], "x": [["a", "b"]]})
    for name in "ab":
        await state.facts.verify(name, False, "exit 1")
    assert (await state.facts.verify("a", True, "exit 0")).touched.again == []
    assert (await got(state, "x")).due is False
    assert (await state.facts.verify("b", True, "exit 0")).touched.again == ["x"]
    assert (await got(state, "x")).due is True


async def test_what_is_due_again_falls_again_with_its_premise(state: State, path: str) -> None:
    await trusted(state, {"a": [], "x": [["a"]]})
    for _ in range(2):
        assert (await state.facts.verify("a", False, "exit 1")).touched.fell == ["x"]
        assert await standing(state) == {"a": "refuted", "x": "stale"}
        assert (await state.facts.verify("a", True, "exit 0")).touched.again == ["x"]
        assert await standing(state) == {"a": "trusted", "x": "stale due"}
    in_file(path)


async def test_a_check_that_holds_is_kept_and_does_not_help_a_fact_whose_every_reason_fell(
    state: State, path: str, clock: FakeClock, consistent: None
) -> None:
    await trusted(state, {"a": [], "x": [["a"]], "y": [["x"]]})
    await state.facts.verify("a", False, "exit 1")
    before = await got(state, "x")
    clock.move(hours=1)

    held = await state.facts.verify("x", True, "the check of x: exit 0")

    assert held.fact == replace(
        before,
        version=3,
        changed_at=clock.now(),
        verified_at=clock.now(),
        here=True,
        evidence="the check of x: exit 0",
    )
    assert (held.fact.trust, held.fact.due, held.fact.verified) == (Trust.STALE, False, False)
    assert held.touched == Touched()
    assert await got(state, "x") == held.fact
    assert await standing(state) == {"a": "refuted", "x": "stale", "y": "stale"}
    in_file(path)


async def test_a_refuted_fact_that_holds_again_is_stale_if_its_reasons_fell_meanwhile(
    state: State,
) -> None:
    await trusted(state, {"a": [], "x": [["a"]]})
    await state.facts.verify("x", False, "exit 1")
    await state.facts.verify("a", False, "exit 1")
    held = await state.facts.verify("x", True, "exit 0")
    assert (held.fact.trust, held.fact.due, held.fact.held) == (Trust.STALE, False, True)
    assert (await state.facts.verify("a", True, "exit 0")).touched.again == ["x"]


async def test_a_reason_that_stands_makes_a_stale_fact_due_and_no_more(
    state: State, path: str, consistent: None
) -> None:
    await trusted(state, {"a": [], "x": [["a"]], "y": [["x"]], "b": []})
    await state.facts.verify("a", False, "exit 1")
    last = await last_event(state)

    recorded = await state.facts.record("x", because=["b"])

    assert (recorded.fact.trust, recorded.fact.due) == (Trust.STALE, True)
    assert [[p.name for p in reason] for reason in recorded.fact.reasons] == [["a"], ["b"]]
    assert await got(state, "x") == recorded.fact
    assert await standing(state) == {
        "a": "refuted",
        "b": "trusted",
        "x": "stale due",
        "y": "stale",
    }
    assert events_after(path, last) == [("record", "x"), ("due", "x")]
    verified = await state.facts.verify("x", True, "exit 0")
    assert (verified.fact.trust, verified.touched.again) == (Trust.TRUSTED, ["y"])
    in_file(path)


# What says something else


NOTHING_FELL = Touched(fell=[], threads=[])
NOTHING_DUE = Touched(again=[], threads=[])


async def reasons_now(state: State, name: str) -> list[dict[str, bool]]:
    """The reasons of a fact; of each premise, whether it says something else since."""
    fact = await got(state, name)
    return [{premise.name: premise.replaced for premise in reason} for reason in fact.reasons]


def stored_reasons(path: str, name: str) -> list[tuple[int, str]]:
    """The numbers of the reasons of a fact in the file, with their premises."""
    stored = "SELECT reason, premise FROM premises WHERE fact = ? ORDER BY reason, premise"
    return rows(path, stored, name)


async def test_what_rested_on_a_statement_that_was_replaced_falls_and_is_not_due(
    state: State, path: str, clock: FakeClock, consistent: None
) -> None:
    await trusted(state, {"a": [], "o": [], "x": [["a"]], "y": [["x"]], "two": [["a"], ["o"]]})
    await state.threads.set("t", relies_on=["y"])
    last = await last_event(state)
    clock.move(hours=1)

    superseded = await state.facts.record("a", "a is not so", expected_version=2)

    assert superseded.touched == Touched(
        fell=["x", "y"], fell_count=2, threads=[("t", Status.ACTIVE)], threads_count=1
    )
    fallen = {
        "a": "provisional",
        "o": "trusted",
        "two": "trusted",
        "x": "stale",
        "y": "stale",
    }
    assert await standing(state) == fallen
    assert events_after(path, last) == [("supersede", "a"), ("fall", "x"), ("fall", "y")]
    assert (await summaries(state, "fact:x"))[-1] == (
        "stale: rests on a, which says something else now"
    )
    assert await reasons_now(state, "x") == [{"a": True}]
    assert await reasons_now(state, "y") == [{"x": False}]
    assert await reasons_now(state, "two") == [{"a": True}, {"o": False}]
    in_file(path)

    last = await last_event(state)
    verified = await state.facts.verify("a", True, "it is not")
    assert verified.touched == Touched()
    held = await state.facts.verify("x", True, "the check of x: exit 0")
    assert (held.fact.trust, held.fact.due, held.touched) == (Trust.STALE, False, Touched())
    assert await standing(state) == fallen | {"a": "trusted"}
    assert events_after(path, last) == [("verify", "a"), ("verify", "x")]
    in_file(path)


async def test_what_has_another_reason_left_falls_with_that_when_the_first_was_replaced(
    state: State, path: str, consistent: None
) -> None:
    await trusted(state, {"a": [], "o": [], "two": [["a"], ["o"]]})
    await state.facts.record("a", "a is not so", expected_version=2)
    await state.facts.verify("a", True, "it is not")

    assert ((await state.facts.trace("a")).falls_count, drawn(await state.facts.trace("a"))) == (
        0,
        ([], ["two"]),
    )
    assert (await state.facts.verify("a", False, "exit 1")).touched == NOTHING_FELL
    assert (await state.facts.verify("a", True, "exit 0")).touched == NOTHING_DUE
    assert drawn(await state.facts.trace("o")) == ([], ["two!"])
    assert (await state.facts.verify("o", False, "exit 1")).touched.fell == ["two"]
    assert (await state.facts.verify("a", True, "exit 0 again")).touched == Touched()
    assert await standing(state) == {"a": "trusted", "o": "refuted", "two": "stale"}
    assert (await state.facts.verify("o", True, "exit 0")).touched.again == ["two"]
    in_file(path)


async def test_what_also_rests_on_what_fell_with_a_replaced_statement_is_not_due_either(
    state: State, path: str, consistent: None
) -> None:
    await trusted(state, {"a": [], "z": [["a"]], "y": [["a"], ["z"]]})
    superseded = await state.facts.record("a", "a is not so", expected_version=2)
    assert superseded.touched.fell == ["z", "y"]
    assert await standing(state) == {"a": "provisional", "y": "stale", "z": "stale"}
    in_file(path)


@pytest.mark.parametrize("way", ["refuted", "stale", "stale due"])
async def test_replacing_what_has_fallen_makes_nothing_due_then_or_later(
    state: State, path: str, consistent: None, way: str
) -> None:
    await trusted(state, {"root": [], "a": [["root"]], "x": [["a"]], "y": [["x"]]})
    await state.facts.verify("a" if way == "refuted" else "root", False, "exit 1")
    if way == "stale due":
        await state.facts.verify("root", True, "exit 0")
    root = {"refuted": "trusted", "stale": "refuted", "stale due": "trusted"}[way]
    before = {"a": way, "root": root, "x": "stale", "y": "stale"}
    assert await standing(state) == before
    last = await last_event(state)
    version = (await got(state, "a")).version

    superseded = await state.facts.record("a", "a is so after all", expected_version=version)

    assert superseded.touched == NOTHING_FELL
    assert await standing(state) == before | {"a": "provisional"}
    assert events_after(path, last) == [("supersede", "a")]
    for holds, touched in ((True, Touched()), (False, NOTHING_FELL), (True, NOTHING_DUE)):
        assert (await state.facts.verify("a", holds, "seen")).touched == touched
    assert await standing(state) == before | {"a": "trusted"}
    assert await reasons_now(state, "x") == [{"a": True}]
    in_file(path)


async def test_what_is_due_since_its_reason_stands_again_is_not_when_that_is_replaced(
    state: State, path: str, consistent: None
) -> None:
    await trusted(state, {"a": [], "x": [["a"]]})
    await state.facts.verify("a", False, "exit 1")
    await state.facts.verify("a", True, "exit 0")
    assert await standing(state) == {"a": "trusted", "x": "stale due"}
    superseded = await state.facts.record("a", "a is not so", expected_version=4)
    assert superseded.touched.fell == ["x"]
    assert await standing(state) == {"a": "provisional", "x": "stale"}
    in_file(path)


async def test_a_statement_that_is_put_back_is_not_the_one_that_was_the_reason(
    state: State, path: str, consistent: None
) -> None:
    await trusted(state, {"a": [], "x": [["a"]]})
    await state.facts.record("a", "a is not so", expected_version=2)
    await state.facts.record("a", "a is so", expected_version=3)
    assert (await state.facts.verify("a", True, "exit 0")).touched == Touched()
    assert await standing(state) == {"a": "trusted", "x": "stale"}
    assert await reasons_now(state, "x") == [{"a": True}]
    in_file(path)


async def test_a_reason_that_is_recorded_anew_makes_what_fell_with_the_old_statement_due(
    state: State, path: str, clock: FakeClock, consistent: None
) -> None:
    await trusted(state, {"a": [], "x": [["a"]], "y": [["x"]]})
    await state.facts.record("a", "a is not so", expected_version=2)
    last = await last_event(state)
    clock.move(hours=1)

    recorded = await state.facts.record("x", because=["a"])

    assert (recorded.fact.trust, recorded.fact.due) == (Trust.STALE, True)
    assert (recorded.unchanged, recorded.fact.version) == (False, 3)
    assert recorded.fact.recheck_at == clock.now()
    assert await got(state, "x") == recorded.fact
    assert await reasons_now(state, "x") == [{"a": False}]
    assert stored_reasons(path, "x") == [(2, "a")]
    assert await standing(state) == {"a": "provisional", "x": "stale due", "y": "stale"}
    assert events_after(path, last) == [("record", "x"), ("due", "x")]
    assert (await summaries(state, "fact:x"))[-2:] == [
        "another reason: a",
        "due: it has a reason that stands, and nobody has checked since",
    ]
    last = await last_event(state)
    again = await state.facts.record("x", because=["a"])
    assert (again.unchanged, again.fact) == (True, recorded.fact)
    assert await last_event(state) == last
    verified = await state.facts.verify("x", True, "exit 0")
    assert (verified.fact.trust, verified.touched.again) == (Trust.TRUSTED, ["y"])
    assert (await state.facts.verify("a", False, "exit 1")).touched.fell == ["x", "y"]
    assert await standing(state) == {"a": "refuted", "x": "stale", "y": "stale"}
    in_file(path)


async def test_a_reason_of_two_has_fallen_when_one_of_them_says_something_else(
    state: State, path: str, consistent: None
) -> None:
    await trusted(state, {"a": [], "b": [], "x": [["a", "b"]]})
    await state.facts.record("a", "a is not so", expected_version=2)
    assert await standing(state) == {"a": "provisional", "b": "trusted", "x": "stale"}
    assert await reasons_now(state, "x") == [{"a": True, "b": False}]
    await state.facts.verify("b", False, "exit 1")
    assert (await state.facts.verify("b", True, "exit 0")).touched == NOTHING_DUE
    recorded = await state.facts.record("x", because=["b", "a"])
    assert (recorded.fact.trust, recorded.fact.due) == (Trust.STALE, True)
    assert await reasons_now(state, "x") == [{"a": False, "b": False}]
    assert stored_reasons(path, "x") == [(2, "a"), (2, "b")]
    in_file(path)


async def test_a_reason_that_was_not_replaced_is_not_recorded_anew(state: State, path: str) -> None:
    await trusted(state, {"a": [], "o": [], "x": [["a"], ["o"]]})
    await state.facts.record("a", "a is not so", expected_version=2)
    last = await last_event(state)
    assert (await state.facts.record("x", because=["o"])).unchanged
    assert (await last_event(state), stored_reasons(path, "x")) == (last, [(1, "a"), (2, "o")])
    recorded = await state.facts.record("x", because=["a"])
    assert (recorded.fact.trust, recorded.fact.due) == (Trust.TRUSTED, False)
    assert await reasons_now(state, "x") == [{"o": False}, {"a": False}]
    assert stored_reasons(path, "x") == [(2, "o"), (3, "a")]


async def test_reasons_for_what_is_said_no_more_go_with_a_new_reason_and_stay_in_history(
    state: State, path: str, consistent: None
) -> None:
    await trusted(state, {"a": [], "b": [], "c": [], "o": [], "d": []})
    await build(state, {"x": [["a"], ["a", "b"], ["c"], ["o"]], "y": [["a"]]})
    await state.facts.record("a", "a is not so", expected_version=2)
    await state.facts.verify("c", False, "exit 1")
    replaced = [(1, "a"), (2, "a"), (2, "b")]
    changes: list[dict[str, Any]] = [{"check": "d"}, {"source": "s"}, {"recheck_after": "3h"}]
    for change in changes:
        await state.facts.record("x", **change)
        assert stored_reasons(path, "x") == [*replaced, (3, "c"), (4, "o")]
    with pytest.raises(BadArgument):
        await state.facts.record("x", because=["c"])
    await state.facts.verify("x", True, "it held")
    assert stored_reasons(path, "x") == [*replaced, (3, "c"), (4, "o")]

    await state.facts.record("x", because=["d"])

    assert stored_reasons(path, "x") == [(3, "c"), (4, "o"), (5, "d")]
    assert stored_reasons(path, "y") == [(1, "a")]
    assert await reasons_now(state, "x") == [{"c": False}, {"o": False}, {"d": False}]
    assert (await summaries(state, "fact:x"))[-1] == "another reason: d"
    page = await state.events.history("fact:x", limit=200)
    kept = [(event.row or {})["reasons"] for event in page.events[-2:]]
    assert kept == [[["a"], ["a", "b"], ["c"], ["o"]], [["c"], ["o"], ["d"]]]
    for name in "od":
        await state.facts.verify(name, False, "exit 1")
    assert (await got(state, "x")).trust is Trust.STALE
    assert (await state.facts.trace("b")).carries_count == 0
    in_file(path)


async def test_a_reason_can_be_given_anew_however_often_what_it_names_was_replaced(
    state: State, path: str
) -> None:
    await build(state, {"a": [], "x": [["a"]]})
    for version in range(1, 52):
        await state.facts.record("a", f"a is {version}", expected_version=version)
        recorded = await state.facts.record("x", because=["a"])
        assert (recorded.fact.trust, recorded.fact.due) == (Trust.STALE, True)
        assert stored_reasons(path, "x") == [(version + 1, "a")]


async def test_what_is_due_stays_so_when_the_time_between_checks_changes(state: State) -> None:
    await trusted(state, {"a": [], "x": [["a"]]})
    await state.facts.verify("a", False, "exit 1")
    await state.facts.verify("a", True, "exit 0")
    assert await standing(state) == {"a": "trusted", "x": "stale due"}
    await state.facts.record("x", recheck_after="3d")
    assert await standing(state) == {"a": "trusted", "x": "stale due"}


# Traces


def drawn(trace: FactTrace) -> tuple[list[str], list[str]]:
    """Both trees of a trace, indented; `*`: it stands above already, `!`: it falls or fell."""
    up, down = (
        [
            "  " * (one.depth - 1)
            + (f"{one.reason} " if one.reason else "")
            + one.fact.name
            + "*" * one.seen
            + "!" * one.falls
            for one in traced
        ]
        for traced in (trace.rests_on, trace.carries)
    )
    return up, down


async def test_a_trace_shows_why_a_fact_is_believed_and_what_falls_with_it(
    state: State, consistent: None
) -> None:
    await trusted(
        state,
        {
            "a": [],
            "b": [],
            "c": [["a", "b"], ["b"]],
            "d": [["c"]],
            "e": [["d"], ["b"]],
            "f": [["c", "d"]],
        },
    )
    await state.threads.set("t", relies_on=["f"])

    trace = await state.facts.trace("d")
    assert trace.fact == await got(state, "d")
    assert drawn(trace) == (["1 c", "  1 a", "  1 b", "  2 b*"], ["e", "f!"])
    counts = (trace.rests_on_count, trace.carries_count, trace.falls_count, trace.threads_count)
    assert (counts, trace.threads) == ((3, 2, 1, 1), [("t", Status.ACTIVE)])
    root = await state.facts.trace("B")
    assert drawn(root) == ([], ["c!", "  d!", "    e!", "    f!", "  f*!", "e*!"])
    assert (root.carries_count, root.falls_count) == (4, 4)

    await state.facts.verify("d", False, "exit 1")
    assert drawn(await state.facts.trace("f")) == (
        ["1 c", "  1 a", "  1 b", "  2 b*", "1 d!", "  1 c*"],
        [],
    )
    assert drawn(await state.facts.trace("c")) == (
        ["1 a", "1 b", "2 b*"],
        ["d!", "  e", "  f!", "f*!"],
    )
    assert (await state.facts.trace("c")).falls_count == 0


# Two sessions at once


async def test_nothing_comes_to_rest_on_what_another_session_refutes_at_once(
    mine: State, theirs: State, path: str, consistent: None
) -> None:
    told: Counter[str] = Counter()
    for n in range(20):
        await trusted(mine, {f"root {n}": []})
        calls = [
            mine.facts.verify(f"root {n}", False, "exit 1"),
            theirs.facts.record(f"leaf {n}", "it follows", because=[f"root {n}"]),
        ]
        refuted, recorded = await asyncio.gather(
            *(calls if n % 2 else reversed(calls)), return_exceptions=True
        )
        recorded = recorded if n % 2 else refuted
        if isinstance(recorded, BadArgument):
            assert f"names 'root {n}', which is refuted" in str(recorded)
            told["refused"] += 1
        else:
            assert not isinstance(recorded, BaseException)
            assert (await got(theirs, f"leaf {n}")).trust is Trust.STALE
            told["fell"] += 1
    assert told.total() == 20
    in_file(path)


async def test_two_sessions_cannot_close_a_circle_at_once(mine: State, theirs: State) -> None:
    for n in range(10):
        await build(mine, {f"a{n}": [], f"b{n}": []})
        found = await asyncio.gather(
            mine.facts.record(f"a{n}", because=[f"b{n}"]),
            theirs.facts.record(f"b{n}", because=[f"a{n}"]),
            return_exceptions=True,
        )
        (refused,) = [one for one in found if isinstance(one, BaseException)]
        assert isinstance(refused, BadArgument)
        assert "an argument in a circle" in str(refused)
        reasons = [(await got(mine, f"{one}{n}")).reasons for one in "ab"]
        assert sorted(len(one) for one in reasons) == [0, 1]


# Random graphs, against a model


NAMES = "abcde"
LIVE = (Trust.TRUSTED, Trust.PROVISIONAL, Trust.STALE)
Kind = Literal[
    "reason", "supersede", "check", "verify", "blind", "archive", "recheck", "wait", "rely"
]


class Op(NamedTuple):
    """One call of one of two sessions; what the kind does not need is not looked at.

    `blind`: a verification that does not say of which version.
    """

    kind: Kind
    fact: str
    because: Sequence[str]
    flag: bool
    number: int
    session: int


Reason = dict[str, str]
"""The premises of a reason, each with the statement that it was given for."""


class Said(NamedTuple):
    """What a session recorded of a fact or verified, and when."""

    at: datetime
    session: int
    statement: str
    check: str


@dataclass
class Believed:
    """A fact as the model knows it. `due_at` is not kept of what has fallen."""

    statement: str
    check: str
    trust: Trust
    stated: datetime
    after: timedelta
    due_at: datetime | None
    reasons: list[Reason] = field(default_factory=list[Reason])
    version: int = 1
    replaces: Trust | None = None
    verified: datetime | None = None
    held: bool | None = None
    evidence: str = ""


class Model:
    """What should be believed: no SQL, no queue; everything is looked at until nothing changes."""

    def __init__(self) -> None:
        self.facts: dict[str, Believed] = {}
        self.relied: set[str] = set()
        self.now = START
        self.said: dict[str, list[Said]] = {}

    def has_fallen(self, name: str) -> bool:
        return self.facts[name].trust in FALLEN

    def is_replaced(self, premise: str, said: str) -> bool:
        return self.facts[premise].statement != said

    def is_said_no_more(self, reason: Reason) -> bool:
        return any(self.is_replaced(premise, said) for premise, said in reason.items())

    def reasons(self, name: str) -> list[dict[str, bool]]:
        """The reasons of a fact; of each premise, whether it says something else since."""
        return [
            {premise: self.is_replaced(premise, said) for premise, said in reason.items()}
            for reason in self.facts[name].reasons
        ]

    def stands(self, name: str) -> bool:
        """Whether a reason of it is left."""
        reasons = self.reasons(name)
        return not reasons or any(
            not any(replaced or self.has_fallen(one) for one, replaced in reason.items())
            for reason in reasons
        )

    def does_not_hold(self, name: str) -> bool:
        """Whether no thread can be done on its strength."""
        fact = self.facts[name]
        return self.has_fallen(name) or (fact.held is None and fact.replaces in FALLEN)

    def rests_on(self, name: str) -> set[str]:
        found: set[str] = set()
        while True:
            more = {p for one in {name, *found} for r in self.facts[one].reasons for p in r}
            if more <= found:
                return found
            found |= more

    def let_fall(self) -> None:
        while falling := [
            name for name in self.facts if not self.has_fallen(name) and not self.stands(name)
        ]:
            for name in falling:
                self.facts[name].trust, self.facts[name].due_at = Trust.STALE, None

    def refusal_of_reason(self, name: str, because: Sequence[str]) -> type[StateError] | None:
        is_circle = any(one == name or name in self.rests_on(one) for one in because)
        return BadArgument if is_circle or any(map(self.has_fallen, because)) else None

    def create(self, name: str, because: Sequence[str]) -> None:
        day = timedelta(hours=24)
        self.facts[name] = Believed(
            f"{name} is so", "make", Trust.PROVISIONAL, self.now, day, self.now + day
        )
        if because:
            self.facts[name].reasons.append(self.reason(because))
        self.keep(name, 0)

    def reason(self, because: Sequence[str]) -> Reason:
        return {premise: self.facts[premise].statement for premise in because}

    def keep(self, name: str, session: int) -> None:
        fact = self.facts[name]
        said = Said(self.now, session, fact.statement, fact.check)
        self.said.setdefault(name, []).append(said)

    def may_not_know(self, op: Op) -> bool:
        """Whether the other session changed what it says, or how it is checked, a moment ago.

        What this session has recorded or verified itself, or what was so an hour ago, it knows.
        """
        first, *_ = said = self.said[op.fact]
        an_hour_ago = self.now - timedelta(hours=1)
        known = [one for one in said if one.session == op.session or one.at <= an_hour_ago]
        seen, fact = (known or [first])[-1], self.facts[op.fact]
        return (seen.statement, seen.check) != (fact.statement, fact.check)

    def do(self, op: Op) -> type[StateError] | None:
        """What the call does, or the error that it raises."""
        if op.kind in ("reason", "supersede") and (
            refused := self.refusal_of_reason(op.fact, op.because)
        ):
            return refused
        fact = self.facts[op.fact]
        if op.kind == "archive" and self.has_fallen(op.fact):
            return BadArgument
        if op.kind == "blind" and self.may_not_know(op):
            return VersionConflict
        if op.kind == "supersede":
            self.supersede(fact, op)
        elif op.kind in ("verify", "blind"):
            self.verify(fact, op)
        elif op.kind == "rely":
            self.relied ^= {op.fact}
            return None
        else:
            before = (fact.check, fact.trust, fact.after, fact.reasons)
            self.amend(fact, op)
            if before == (fact.check, fact.trust, fact.after, fact.reasons):
                return None
            fact.version += 1
        self.keep(op.fact, op.session)
        return None

    def amend(self, fact: Believed, op: Op) -> None:
        if op.kind == "reason" and op.because:
            reason = self.reason(op.because)
            if reason not in fact.reasons:
                left = [one for one in fact.reasons if not self.is_said_no_more(one)]
                fact.reasons = [*left, reason]
        elif op.kind == "check":
            self.change_check(fact, f"check {op.number}")
        elif op.kind == "archive":
            fact.trust, fact.due_at = Trust.ARCHIVAL, None
        elif op.kind == "recheck" and fact.after != timedelta(hours=op.number):
            fact.after = timedelta(hours=op.number)
            if fact.due_at is not None and not self.is_due(op.fact):
                fact.due_at = (fact.verified or fact.stated) + fact.after

    def supersede(self, fact: Believed, op: Op) -> None:
        is_open = fact.held is None and fact.replaces in FALLEN
        self.facts[op.fact] = Believed(
            f"{fact.statement}!",
            fact.check,
            Trust.ARCHIVAL if op.flag else Trust.PROVISIONAL,
            self.now,
            fact.after,
            None if op.flag else self.now + fact.after,
            [self.reason(op.because)] if op.because else [],
            fact.version + 1,
            fact.replaces if is_open else fact.trust,
        )
        self.let_fall()

    def change_check(self, fact: Believed, check: str) -> None:
        if check == fact.check or fact.trust is Trust.REFUTED:
            fact.check = check
            return
        fact.check, fact.held, fact.verified, fact.evidence = check, None, None, ""
        if fact.trust is Trust.TRUSTED:
            fact.trust = Trust.PROVISIONAL

    def verify(self, fact: Believed, op: Op) -> None:
        fact.version += 1
        fact.verified, fact.held, fact.evidence = self.now, op.flag, f"exit {op.number}"
        if not op.flag:
            fact.trust, fact.due_at = Trust.REFUTED, None
            self.let_fall()
        elif self.stands(op.fact):
            fact.trust, fact.due_at = Trust.TRUSTED, self.now + fact.after
        else:
            fact.trust, fact.due_at = Trust.STALE, None

    def is_due(self, name: str) -> bool:
        due_at = self.facts[name].due_at
        return due_at is not None and due_at <= self.now


FACTS = st.sampled_from(NAMES)
PREMISES = st.lists(FACTS, max_size=2, unique=True)
OFTEN: dict[Kind, int] = {
    "verify": 5,
    "blind": 4,
    "reason": 4,
    "supersede": 2,
    "check": 2,
    "archive": 1,
    "recheck": 1,
    "wait": 1,
    "rely": 1,
}
KINDS: list[Kind] = [kind for kind, times in OFTEN.items() for _ in range(times)]
OPS = st.builds(
    Op,
    st.sampled_from(KINDS),
    FACTS,
    PREMISES,
    st.booleans(),
    st.integers(1, 30),
    st.integers(0, 1),
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Each fact rests on earlier ones only, in up to two ways."""
    graph: Graph = {}
    for name in NAMES:
        earlier = st.lists(st.sampled_from(sorted(graph) or [""]), max_size=2, unique=True)
        reasons = draw(st.lists(earlier, max_size=2)) if graph else []
        graph[name] = [sorted(reason) for reason in reasons if reason]
    return graph


_number = iter(range(10**9))


@dataclass
class Twins:
    """Two sessions of one project, and the model of it."""

    sessions: Sequence[State]
    clock: FakeClock
    path: str
    model: Model = field(default_factory=Model)

    async def begin(self, graph: Graph) -> None:
        self.model.now = self.clock.now()
        for name, reasons in graph.items():
            first, *others = reasons or [[]]
            await self.sessions[0].facts.record(name, f"{name} is so", check="make", because=first)
            self.model.create(name, first)
            for reason in others:
                await self.do(Op("reason", name, reason, False, 0, 0))

    async def do(self, op: Op) -> None:
        """Do it to both; they agree on whether it is refused, and how."""
        if op.kind == "wait":
            self.clock.move(hours=op.number)
        self.model.now = self.clock.now()
        statement, version = self.said(op.fact)
        refused = self.model.do(op)
        if refused is None:
            await self.call(op, statement, version)
        else:
            with pytest.raises(refused):
                await self.call(op, statement, version)

    def said(self, name: str) -> tuple[str, int]:
        fact = self.model.facts[name]
        return fact.statement, fact.version

    async def call(self, op: Op, statement: str, version: int) -> None:
        state = self.sessions[op.session]
        facts = state.facts
        match op.kind:
            case "reason":
                await facts.record(op.fact, statement, because=op.because)
            case "supersede":
                await facts.record(
                    op.fact,
                    f"{statement}!",
                    because=op.because,
                    archival=op.flag,
                    expected_version=version,
                )
            case "check":
                await facts.record(op.fact, check=f"check {op.number}")
            case "archive":
                await facts.record(op.fact, archival=True)
            case "recheck":
                await facts.record(op.fact, recheck_after=f"{op.number}h")
            case "verify" | "blind":
                shown = await got(state, op.fact)
                expected = version if op.kind == "verify" else None
                verified = await facts.verify(
                    op.fact, op.flag, f"exit {op.number}", expected_version=expected
                )
                assert verified.before == (shown if shown.held is (not op.flag) else None)
            case "rely":
                relied = sorted(self.model.relied)
                if relied:
                    await state.threads.set("t", relies_on=relied)
                else:
                    await state.threads.set("t", clear=["relies_on"])
            case "wait":
                pass

    async def check(self) -> Sequence[Fact]:
        """What is listed is what the model believes, and what the file counts."""
        state, model = self.sessions[1], self.model
        page = await state.facts.list(limit=50)
        listed = sorted(page.facts, key=by)
        found = {
            f.name: Believed(
                f.statement,
                f.check,
                f.trust,
                f.stated_at,
                model.facts[f.name].after,
                None if f.trust in FALLEN else f.recheck_at,
                [],
                f.version,
                f.replaces,
                f.verified_at,
                f.held,
                f.evidence,
            )
            for f in listed
        }
        assert {
            name: replace(fact, due_at=None if fact.trust in FALLEN else fact.due_at, reasons=[])
            for name, fact in model.facts.items()
        } == found
        assert {name: model.reasons(name) for name in NAMES} == {
            f.name: [{premise.name: premise.replaced for premise in r} for r in f.reasons]
            for f in listed
        }
        due = Counter(fact.trust for fact in listed if fact.due)
        assert page.due == {trust: due[trust] for trust in LIVE}
        counted = Counter(fact.trust.value for fact in listed)
        assert state.totals.facts == {trust.value: counted[trust.value] for trust in Trust}
        trusted = {f.name for f in (await state.facts.list(trust="trusted", limit=50)).facts}
        assert trusted == {
            name
            for name, fact in model.facts.items()
            if fact.trust is Trust.TRUSTED and not model.is_due(name)
        }
        assert [name for name in trusted if not model.stands(name)] == []
        return listed

    async def check_all(self, listed: Sequence[Fact]) -> None:
        """The same in traces, threads, rows and events."""
        state, model = self.sessions[1], self.model
        shown = {f.name: f for f in listed}
        for name in NAMES:
            trace = await state.facts.trace(name)
            assert trace.fact == shown[name]
            assert {one.fact.name for one in trace.rests_on} == model.rests_on(name)
            assert {one.fact.name for one in trace.carries} == {
                one for one in NAMES if name in model.rests_on(one)
            }
            for one in (*trace.rests_on, *trace.carries):
                assert one.fact == shown[one.fact.name]
            for premise in (one for reason in shown[name].reasons for one in reason):
                agrees(premise, shown[premise.name])
        if model.relied:
            detail = await state.threads.get("t")
            assert detail.facts == [shown[name] for name in sorted(model.relied)]
            for premise in detail.thread.relies_on:
                agrees(premise, shown[premise.name])
            if any(map(model.does_not_hold, model.relied)):
                with pytest.raises(EvidenceRequired, match="relies on what does not hold"):
                    await state.threads.set("t", status="done", evidence="exit 0")
            else:
                done = await state.threads.set("t", status="done", evidence="exit 0")
                assert done.status is Status.DONE
        self.check_rows(shown)

    def check_rows(self, shown: dict[str, Fact]) -> None:
        name = self.sessions[0].caller.project
        graph: dict[str, set[str]] = {}
        for fact, premise in rows(self.path, LINKS, name):
            graph.setdefault(fact, set()).add(premise)
        list(graphlib.TopologicalSorter(graph).static_order())  # raises on a circle
        last: dict[str, dict[str, Any]] = {}
        for operation, fact, text in rows(self.path, CHANGES, name):
            row, before = json.loads(text), last.get(fact, {"trust": "provisional"})
            follows(operation, before["trust"], row["trust"])
            last[fact] = row
        assert {fact: kept(row) for fact, row in last.items()} == {
            fact: kept_of(one) for fact, one in shown.items()
        }


def agrees(premise: Premise, fact: Fact) -> None:
    assert (premise.trust, premise.due, premise.verified) == (fact.trust, fact.due, fact.verified)


def follows(operation: str, before: str, after: str) -> None:
    """Whether an event may change trust so; `before` of what is new is provisional."""
    if before == after:
        return
    if after in ("trusted", "refuted"):
        assert operation == "verify", (operation, before, after)
    elif after == "stale":
        assert operation in ("fall", "verify"), (operation, before, after)
    elif before in FALLEN:
        assert operation == "supersede", (operation, before, after)
    else:
        assert operation in ("record", "supersede"), (operation, before, after)


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """What an event kept of a fact, as a program sees it."""
    times = {key: row[key] and from_text(row[key]) for key in ("recheck_at", "verified_at")}
    return {key: value for key, value in row.items() if key != "recheck_after"} | times


def kept_of(fact: Fact) -> dict[str, Any]:
    return {
        "name": fact.name,
        "version": fact.version,
        "statement": fact.statement,
        "replaces": fact.replaces or "",
        "check": fact.check,
        "source": fact.source,
        "trust": fact.trust.value,
        "recheck_at": fact.recheck_at,
        "reasons": [[premise.name for premise in reason] for reason in fact.reasons],
        "verified_at": fact.verified_at,
        "verified_by": fact.verified_by and fact.verified_by.agent,
        "held": fact.held,
        "evidence": fact.evidence,
        "baseline": fact.baseline,
    }


def twins(open_state: Open, clock: FakeClock, path: str) -> Twins:
    project = f"graph {next(_number)}"
    one = open_state(project=project)
    other = open_state(project=project, agent="claude", session="s2", database="two")
    return Twins((one, other), clock, path)


random_graphs = settings(
    max_examples=examples(20),
    phases=tuple(Phase) if SOAK else (Phase.generate,),  # to shrink takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.soak
@random_graphs
@given(graphs(), st.lists(OPS, min_size=10, max_size=30))
async def test_whatever_two_sessions_do_what_is_believed_is_what_a_plain_model_believes(
    open_state: Open, clock: FakeClock, path: str, graph: Graph, ops: list[Op]
) -> None:
    both = twins(open_state, clock, path)
    await both.begin(graph)
    listed = await both.check()
    for op in ops:
        await both.do(op)
        listed = await both.check()
    await both.check_all(listed)


@pytest.mark.sqlite  # what is believed, above, is looked at on both engines
@pytest.mark.soak
@random_graphs
@given(graphs(), st.lists(OPS, min_size=10, max_size=30))
async def test_what_is_stale_is_never_due_as_long_as_each_of_its_reasons_holds_what_fell(
    open_state: Open, clock: FakeClock, path: str, graph: Graph, ops: list[Op]
) -> None:
    both = twins(open_state, clock, path)
    await both.begin(graph)
    for op in ops:
        await both.do(op)
        for fact in (await both.sessions[0].facts.list(trust="stale")).facts:
            assert fact.recheck_at is None or both.model.stands(fact.name), fact


@pytest.mark.sqlite  # what is believed, above, is looked at on both engines
@pytest.mark.soak
@random_graphs
@given(graphs(), st.lists(OPS, min_size=10, max_size=30))
async def test_what_is_stale_is_due_as_soon_as_one_of_its_reasons_stands(
    open_state: Open, clock: FakeClock, path: str, graph: Graph, ops: list[Op]
) -> None:
    both = twins(open_state, clock, path)
    await both.begin(graph)
    for op in ops:
        await both.do(op)
        for fact in (await both.sessions[0].facts.list(trust="stale")).facts:
            assert fact.due is both.model.stands(fact.name), fact


# Thousands


MANY = 10_000 if SOAK else 2_000
Spending = Callable[[float], Callable[[], None]]
Shape = Literal["chain", "fan"]
SHAPES = [pytest.param(s, id=f"soak {s}" if SOAK else s) for s in ("chain", "fan")]
in_a_chain = pytest.mark.parametrize("shape", SHAPES[:1])


COPIES = (
    """
    INSERT INTO facts (project, name, shown, created, created_at, changed, changed_at, changed_by,
        version, statement, stated, stated_at, stated_by, replaces, "check", source, trust,
        trust_at, recheck_after, recheck_at)
    SELECT project, :name, :name, :seq, created_at, :seq, changed_at, changed_by,
        version, statement, :seq, stated_at, stated_by, replaces, "check", source, trust,
        trust_at, recheck_after, recheck_at
    FROM facts WHERE name = 'n1'
    """,
    """
    INSERT INTO premises (project, fact, reason, premise, given)
    SELECT project, :name, 1, :below, :seq FROM facts WHERE name = 'n1'
    """,
    """
    INSERT INTO events (project, seq, at, actor, run, kind, name, operation, summary, version, row)
    SELECT project, :seq, at, actor, run, kind, :name, operation, summary, version,
        replace(replace(row, '"n0"', '"' || :below || '"'), '"n1"', '"' || :name || '"')
    FROM events WHERE name = 'n1'
    """,
)


@pytest.fixture
def many(engine: str) -> int:
    """How many facts: a server answers as many statements more slowly."""
    return MANY if engine == "sqlite" or SOAK else MANY // 10


async def grown(state: State, path: str, shape: Shape, many: int) -> None:
    """n1 to n2000, when soaked n10000, rest on n0: each on the one before it, or all on n0."""
    await trusted(state, {"n0": []})
    await build(state, {"n1": [["n0"]]})
    numbers = range(2, many + 1)
    copies = [
        {"name": f"n{n}", "seq": n + 2, "below": f"n{n - 1}" if shape == "chain" else "n0"}
        for n in numbers
    ]
    with plain(path) as store:
        store.execute("BEGIN")
        for statement in COPIES:
            store.executemany(statement, copies)
        store.execute("COMMIT")
    assert len(in_file(path)) == many + 1
    await state.threads.set("t", relies_on=[f"n{many}"])
    assert state.totals.facts["provisional"] == many


@pytest.fixture
def spent_on_many(engine: str) -> Spending:
    """What `spent` gives, if these are the seconds for 10,000 facts in a file.

    Of 70,000 statements to a server, psycopg alone takes three times as much.
    """
    share = MANY / 10_000 * (1 if engine == "sqlite" else 3)
    return lambda seconds: spent(seconds * share)


@pytest.mark.parametrize("shape", SHAPES)
async def test_thousands_of_facts_fall_with_their_root_in_bounded_time(
    state: State, path: str, shape: Shape, many: int, spent_on_many: Spending
) -> None:
    await grown(state, path, shape, many)
    in_time = spent_on_many(3)

    touched = (await state.facts.verify("n0", False, "exit 1")).touched

    in_time()
    assert len(touched.fell) == 20
    assert (touched.fell_count, touched.threads) == (many, [("t", Status.ACTIVE)])
    assert state.totals.facts == dict.fromkeys(Trust, 0) | {"stale": many, "refuted": 1}
    falls = "SELECT count(*), count(DISTINCT name) FROM events WHERE operation = 'fall'"
    assert rows(path, falls) == [(many, many)]
    in_file(path)

    in_time = spent_on_many(3)
    again = (await state.facts.verify("n0", True, "exit 0")).touched
    in_time()
    assert again.again_count == (1 if shape == "chain" else many)
    assert state.totals.facts == dict.fromkeys(Trust, 0) | {"stale": many, "trusted": 1}
    in_file(path)


@pytest.mark.parametrize("shape", SHAPES)
async def test_thousands_of_facts_are_traced_in_bounded_time_and_few_lines(
    state: State, path: str, shape: Shape, many: int, spent_on_many: Spending
) -> None:
    await grown(state, path, shape, many)
    in_time = spent_on_many(3)
    root = await state.facts.trace("n0")
    leaf = await state.facts.trace(f"n{many}")
    in_time()

    assert (root.rests_on, root.carries_count, root.falls_count) == ([], many, many)
    assert (len(root.carries), root.threads) == (100, [("t", Status.ACTIVE)])
    assert all(one.falls for one in root.carries)
    assert (leaf.carries, leaf.falls_count) == ([], 0)
    if shape == "chain":
        assert [(one.fact.name, one.depth) for one in root.carries] == [
            (f"n{n}", n) for n in range(1, 101)
        ]
        assert [(one.fact.name, one.depth) for one in leaf.rests_on] == [
            (f"n{many - n}", n) for n in range(1, 101)
        ]
        assert leaf.rests_on_count == many
    else:
        assert {one.depth for one in root.carries} == {1}
        assert [(one.fact.name, one.depth) for one in leaf.rests_on] == [("n0", 1)]
        assert leaf.rests_on_count == 1


@in_a_chain
async def test_a_circle_over_thousands_of_facts_is_refused_and_shown_shortened(
    state: State, path: str, shape: Shape, many: int, spent_on_many: Spending
) -> None:
    await grown(state, path, shape, many)
    last = await last_event(state)
    in_time = spent_on_many(3)
    with pytest.raises(BadArgument) as refused:
        await state.facts.record("n0", because=[f"n{many}"])
    in_time()
    assert str(refused.value) == (
        f"bad_argument: that would be an argument in a circle: n0 because n{many} "
        f"because n{many - 1} because n{many - 2} because n{many - 3} because n{many - 4} "
        f"because … {many - 8} more … because n3 because n2 because n1 because n0. "
        "Leave one of them out; nothing was changed."
    )
    assert await last_event(state) == last
    recorded = await state.facts.record("new", "it follows", because=[f"n{many}"])
    assert len(recorded.fact.reasons) == 1


@in_a_chain
async def test_fifty_premises_over_thousands_of_facts_are_checked_for_circles_in_one_walk(
    state: State, path: str, shape: Shape, many: int, spent_on_many: Spending
) -> None:
    await grown(state, path, shape, many)
    await build(state, {"aside": [], "on it": [["aside"]]})
    tops = [f"n{n}" for n in range(many - 49, many + 1)]

    in_time = spent_on_many(1)
    recorded = await state.facts.record("aside", because=tops)
    in_time()
    assert [[p.name for p in reason] for reason in recorded.fact.reasons] == [sorted(tops)]

    last = await last_event(state)
    for name, because in (
        ("n0", tops),
        ("n0", tops[::-1]),
        (f"n{many // 2}", tops),
        ("n1", ["n0", *tops[1:]]),
        ("n0", ["on it"]),
    ):
        in_time = spent_on_many(1)
        with pytest.raises(BadArgument, match="an argument in a circle") as refused:
            await state.facts.record(name, because=because)
        in_time()
        assert f"in a circle: {name} because " in str(refused.value)
        assert f"because {name}. Leave" in str(refused.value)
    assert await last_event(state) == last


async def test_of_more_than_a_thousand_threads_that_rely_on_a_fact_a_thousand_are_counted(
    state: State, path: str
) -> None:
    await trusted(state, {"f": []})
    await state.threads.set("t0000", relies_on=["f"])
    with plain(path) as store:  # a thousand calls would only be slow
        store.execute("""
            WITH RECURSIVE n (i) AS (SELECT 10001 UNION ALL SELECT i + 1 FROM n WHERE i < 11000)
            INSERT INTO threads (project, name, shown, created, created_at, title, status,
                status_at, changed, changed_at, changed_by, version, priority, next_action,
                waiting_on, "check", evidence, note, places)
            SELECT project, 't' || substr('' || i, 2), 't' || substr('' || i, 2), i, created_at,
                title, status, status_at, i, changed_at, changed_by, version, priority,
                next_action, waiting_on, "check", evidence, note, places
            FROM threads, n
        """)
        store.execute(
            "INSERT INTO relies SELECT project, name, 'f' FROM threads WHERE name <> 't0000'"
        )
    assert rows(path, "SELECT count(*) FROM relies") == [(1001,)]

    touched = (await state.facts.verify("f", False, "exit 1")).touched

    named = [(f"t{n:04}", Status.ACTIVE) for n in range(20)]
    assert touched == Touched(fell=[], fell_count=0, threads=named, threads_count=1000)
    trace = await state.facts.trace("f")
    assert (trace.threads, trace.threads_count) == (named, 1000)


LARGE_STATEMENTS = {
    facts: ("_LAST_SEEN", "_FIRST"),
    fact_rules: (
        *("_REASONS_WITH_IT", "_REST_ON_IT", "_EDGES", "_PREMISES", "_STATE"),
        *("_DROP_REASONS", "_DROP_REPLACED"),
    ),
    fact_rows: (
        *("FACT", "PREMISES", "RELIED", "_DUE", "_LATER", "_REST", "_FALLEN_SINCE", "_NAMES"),
    ),
}


@pytest.mark.sqlite
async def test_what_is_asked_for_each_fact_is_found_by_an_index_and_in_order(
    state: State, path: str
) -> None:
    """Nothing is allowed: none of these walks a table, or sorts what it found.

    A store is never analyzed, so that its plans do not depend on what is in it.
    """
    await grown(state, path, "chain", MANY)
    with plain(path) as store:
        plans = {
            name: [
                row[3]
                for row in store.execute(
                    f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(re.findall(r":(\w+)", sql), 1)
                )
            ]
            for module, names in LARGE_STATEMENTS.items()
            for name in names
            for sql in [vars(module)[name]]
        }
        analyzed = "SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'"
        assert store.execute(analyzed).fetchall() == []
    assert len(plans) == 17
    assert all(plans.values())
    slow = [
        (name, step)
        for name, plan in plans.items()
        for step in plan
        if step.startswith(("SCAN", "USE TEMP B-TREE")) or "AUTOMATIC" in step
    ]
    assert slow == []
    for name in ("_REASONS_WITH_IT", "_REST_ON_IT"):
        assert plans[name] == [
            "SEARCH premises USING COVERING INDEX premises_by_premise (project=? AND premise=?)"
        ]


@in_a_chain
async def test_only_what_rests_on_nothing_else_falls_out_of_thousands(
    state: State, path: str, shape: Shape, many: int
) -> None:
    await grown(state, path, shape, many)
    await state.facts.record("aside", "it stands by itself")
    await state.facts.record(f"n{many // 2}", because=["aside"])
    touched = (await state.facts.verify("n0", False, "exit 1")).touched
    assert touched.fell_count == many // 2 - 1
    assert (await got(state, f"n{many // 2 - 1}")).trust is Trust.STALE
    assert (await got(state, f"n{many // 2}")).trust is Trust.PROVISIONAL
    superseded = await state.facts.record("aside", "it does not", expected_version=1)
    assert superseded.touched.fell_count == many // 2 + 1
