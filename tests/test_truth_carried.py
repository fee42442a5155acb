"""What is believed is carried as it is, and what does not stand where it arrives falls there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from carrying import Line, Store, data_of, edit, fill, lines_of, store_at, things
from conftest import FakeClock
from large_store import Size, build
from peeking import rows
from whole_stores import Stores, contradictions, everything
from workload import Nouns, StepClock, work_truth

from mcp_state.api import State
from mcp_state.errors import BadArgument
from mcp_state.models import Thread
from mcp_state.store.transfer.lines import FORMAT


async def believe(state: State, fact: str, *because: str, statement: str = "") -> None:
    """Record a fact, and verify it."""
    await state.facts.record(fact, statement or f"{fact} holds", check=fact, because=because)
    await state.facts.verify(fact, True, "exit 0")


async def trusts(state: State) -> Mapping[str, str]:
    """The trust of each fact, with a star if it is due."""
    facts = (await state.facts.list(limit=100)).facts
    return {f.name: f"{f.trust}{'*' * f.due}" for f in sorted(facts, key=lambda f: f.name)}


async def reasons(state: State, fact: str) -> list[list[str]]:
    found = (await state.facts.trace(fact)).fact
    return [[premise.name for premise in reason] for reason in found.reasons]


async def replaced(state: State, fact: str) -> list[list[str]]:
    """Of each reason of a fact, what says something else since it was given."""
    found = (await state.facts.trace(fact)).fact
    return [[p.name for p in reason if p.replaced] for reason in found.reasons]


async def given(store: Store, fact: str) -> list[tuple[object, ...]]:
    """The rows of the reasons of a fact: premise, number of the reason, event."""
    wanted = "SELECT premise, reason, given FROM premises WHERE fact = ?"
    return sorted(rows(store.path, wanted, fact), key=str)


async def told(state: State, fact: str) -> list[str]:
    """The events of a fact, as they are summed up."""
    events = (await state.events.history(f"fact:{fact}", limit=100)).events
    return [f"{event.operation}: {event.summary}" for event in events]


async def last_import(state: State) -> str:
    return (await state.events.history("project:")).events[-1].summary


async def test_facts_of_any_trust_reasons_and_the_objective_arrive_as_they_are(
    stores: Stores,
) -> None:
    clock = FakeClock()
    async with (
        store_at(stores / "a.db", clock) as ours,
        store_at(stores / "b.db", clock) as theirs,
    ):
        await work_truth(Nouns(ours.database, "acme", "codex"))
        file = await ours.export()
        lines = {line["name"]: line for line in things(file, "fact")}
        assert {name: (line["trust"], line["reasons"]) for name, line in lines.items()} == {
            "Builds": ("trusted", []),
            "Deployed": ("stale", [["runs"]]),
            "fits": ("archival", []),
            "Gone": ("refuted", []),
            "ready": ("provisional", [["runs"], ["fits"]]),
            "Runs": ("trusted", [["builds", "tested"], ["builds"]]),
            "Tested": ("provisional", []),
        }
        given = [line["fact"]["given"] for line in data_of(file) if "fact" in line]
        assert given == [[], [[9]], [], [], [[7], [8]], [[6, 6], [16]], []]
        assert {n: (line["stated"], line["replaces"]) for n, line in lines.items()} == {
            "Builds": (3, ""),
            "Deployed": (9, ""),
            "fits": (5, ""),
            "Gone": (23, ""),
            "ready": (7, ""),
            "Runs": (6, ""),
            "Tested": (18, "refuted"),
        }
        assert lines["Deployed"]["baseline"]["target"] == "git:HEAD"
        assert [line["relies_on"] for line in things(file, "thread")] == [["builds", "ready"]]
        await theirs.take(file)
        *same, _ = data_of(await theirs.export())
        assert same == data_of(file)
        here, there = ours.as_(), theirs.as_()
        for fact in lines:
            assert await there.facts.trace(fact) == await here.facts.trace(fact)
        assert await there.objective.get() == await here.objective.get()
        assert await there.threads.get("relying") == await here.threads.get("relying")
        assert [(h.kind, h.name) for h in (await there.search.find("green")).hits] == [
            ("fact", "Builds")
        ]


async def test_what_rests_here_on_what_the_file_refutes_falls_with_it(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await believe(here, "base")
        await believe(here, "both", "base")
        await theirs.take(await ours.export())
        await believe(there, "only here", "base")
        await believe(there, "far", "only here")
        await believe(there, "other")
        await there.facts.record("far too", "f", because=["far"])
        await there.facts.record("far too", because=["other"])
        await there.threads.set("work", relies_on=["far"])
        await here.facts.verify("base", False, "exit 1")
        imported = await theirs.take(await ours.export())
        assert (imported.events, imported.kept_apart) == (1, {})
        assert await trusts(there) == {
            "base": "refuted",
            "both": "stale",
            "far": "stale",
            "far too": "provisional",
            "only here": "stale",
            "other": "trusted",
        }
        assert (await told(there, "far"))[-1] == "fall: stale: rests on only here, which fell"
        assert (await told(there, "both"))[-1] == (
            "fall: stale: rests on base, which does not hold here"
        )
        assert await last_import(there) == "1 event imported from a file, and 3 facts fell"
        assert (await ours.take(await theirs.export())).kept_apart == {}
        assert await trusts(here) == await trusts(there)


async def test_what_comes_and_rests_on_what_was_refuted_here_falls(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await believe(here, "base")
        await believe(here, "other")
        await believe(here, "goes on", "base")
        await theirs.take(await ours.export())
        await there.facts.verify("base", False, "exit 1")
        await believe(here, "new", "base")
        await believe(here, "newer", "new")
        await believe(here, "stands", "base")
        await here.facts.record("stands", because=["other"])
        await here.facts.verify("goes on", True, "exit 0 again")
        imported = await theirs.take(await ours.export())
        assert (imported.events, imported.kept_apart) == (8, {})
        fallen = {
            "base": "refuted",
            "goes on": "stale",
            "new": "stale",
            "newer": "stale",
            "other": "trusted",
            "stands": "trusted",
        }
        assert await trusts(there) == fallen
        assert (await told(there, "new"))[2:] == [
            "fall: stale: rests on base, which does not hold here",
        ]
        assert await last_import(there) == "8 events imported from a file, and 3 facts fell"
        await ours.take(await theirs.export())
        assert await trusts(here) == fallen


async def test_that_a_fact_fell_parts_no_histories(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await believe(here, "base")
        await believe(here, "top", "base")
        await theirs.take(await ours.export())
        await there.facts.verify("base", False, "exit 1")
        await here.facts.record("top", source="a book")
        imported = await theirs.take(await ours.export())
        assert (imported.events, imported.kept_apart) == (1, {})
        top = (await there.facts.trace("top")).fact
        assert (top.trust, top.source, top.version, top.due) == ("stale", "a book", 3, False)
        assert (await told(there, "top"))[2:] == [
            "fall: stale: rests on base, which was refuted",
            "record: changed source",
            "fall: stale: it fell here, and nobody has verified it since",
        ]
        await there.facts.verify("base", True, "exit 0")
        assert await trusts(there) == {"base": "trusted", "top": "stale*"}
        await here.facts.verify("top", True, "exit 0, once more")
        assert (await theirs.take(await ours.export())).kept_apart == {}
        assert await trusts(there) == {"base": "trusted", "top": "trusted"}


async def test_what_fell_here_and_gets_another_reason_there_is_due(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await believe(here, "base")
        await believe(here, "other")
        await believe(here, "top", "base")
        await theirs.take(await ours.export())
        await there.facts.verify("base", False, "exit 1")
        await here.facts.record("top", because=["other"])
        await theirs.take(await ours.export())
        assert await trusts(there) == {"base": "refuted", "other": "trusted", "top": "stale*"}
        assert (await told(there, "top"))[3:] == [
            "record: another reason: other",
            "fall: stale: it fell here, and nobody has verified it since",
            "due: due: a reason of it holds now, unchecked since it fell",
        ]


async def test_what_stands_again_by_an_import_asks_for_a_new_look(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await believe(here, "base")
        await theirs.take(await ours.export())
        await believe(there, "only here", "base")
        await here.facts.verify("base", False, "exit 1")
        await theirs.take(await ours.export())
        assert await trusts(there) == {"base": "refuted", "only here": "stale"}
        await here.facts.verify("base", True, "exit 0")
        await theirs.take(await ours.export())
        assert await trusts(there) == {"base": "trusted", "only here": "stale*"}


async def test_what_rests_on_a_statement_that_was_replaced_falls_until_it_is_told_anew(
    stores: Stores,
) -> None:
    clock = StepClock()
    async with (
        store_at(stores / "a.db", clock) as ours,
        store_at(stores / "b.db", clock) as theirs,
    ):
        here, there = ours.as_("ada"), theirs.as_("ben")
        for name in ("one", "two"):
            await believe(here, name)
        await believe(here, "top", "one")
        await theirs.take(await ours.export())
        await here.facts.record("one", "one holds for most", expected_version=2)
        await here.facts.record("top", because=["one"])
        await here.facts.verify("top", True, "it holds for most too")
        await there.facts.record("two", "two holds for some", expected_version=2)
        await believe(there, "only here", "one")
        await believe(there, "above", "only here")
        await believe(here, "from there", "two")
        imported = await theirs.take(await ours.export())
        assert imported.kept_apart == {}
        assert await trusts(there) == {
            "above": "stale",
            "from there": "stale",
            "one": "provisional",
            "only here": "stale",
            "top": "trusted",
            "two": "provisional",
        }
        for name, premise in (("only here", "one"), ("from there", "two")):
            assert (await told(there, name))[-1] == (
                f"fall: stale: rests on {premise}, which says something else here"
            )
        assert [await replaced(there, name) for name in ("above", "from there", "only here")] == [
            [[]],
            [["two"]],
            [["one"]],
        ]
        assert (await reasons(there, "top"), await replaced(there, "top")) == ([["one"]], [[]])
        await there.facts.verify("one", True, "exit 0")
        await there.facts.verify("two", True, "exit 0")
        await there.facts.verify("only here", True, "exit 0, but why?")
        assert (await trusts(there))["only here"] == "stale"
        for name, premise in (("only here", "one"), ("from there", "two")):
            await there.facts.record(name, because=[premise])
            assert (await trusts(there))[name] == "stale*"
            await there.facts.verify(name, True, "exit 0")
            assert await reasons(there, name) == [[premise]]
            assert await replaced(there, name) == [[]]
        assert (await trusts(there))["above"] == "stale*"
        assert (await ours.take(await theirs.export())).kept_apart == {}
        assert await trusts(here) == await trusts(there)
        for name in ("above", "from there", "only here", "top"):
            assert await replaced(here, name) == await replaced(there, name)


async def test_a_reason_for_a_replaced_statement_reads_as_such_in_any_order_of_events(
    stores: Stores,
) -> None:
    async with (
        store_at(stores / "a.db") as ours,
        store_at(stores / "b.db") as theirs,
        store_at(stores / "c.db") as third,
    ):
        here, there = ours.as_("ada"), theirs.as_("ben")
        await believe(here, "base")
        await believe(here, "side")
        old = await ours.export()
        await theirs.take(old)
        await third.take(old)
        await there.facts.record("base", "base, put in other words", expected_version=2)
        await third.take(await theirs.export())
        await believe(here, "top", "base", "side")
        await here.facts.record("top", because=["side"])
        await ours.take(await theirs.export())  # here, the reason stands before the statement
        assert await given(ours, "top") == [("base", 1, 5), ("side", 1, 5), ("side", 2, 7)]
        await third.take(await ours.export())  # and here after it
        assert await given(third, "top") == [("base", 1, 0), ("side", 1, 8), ("side", 2, 10)]
        for store in (ours, third):
            assert await replaced(store.as_(), "top") == [["base"], []]
            assert (await trusts(store.as_()))["top"] == "trusted"
        empty = [store_at(stores / f"{name}.db") for name in "de"]
        async with empty[0] as fourth, empty[1] as fifth:
            file = await third.export()
            await fourth.take(file)
            *same, _ = data_of(await fourth.export())
            assert same == data_of(file)
            await fifth.take(await ours.export())
            assert (await fifth.take(await third.export())).kept_apart == {}
            for store in (fourth, fifth):
                assert await replaced(store.as_(), "top") == [["base"], []]
            other = fourth.as_(project="other")
            await believe(other, "base")
            await fourth.as_().projects.merge("other")
            assert await reasons(other, "top") == [["base (from acme)", "side"], ["side"]]
            assert await replaced(other, "top") == [["base (from acme)"], []]
            assert await given(fourth, "top") == [
                ("base (from acme)", 1, 0),
                ("side", 1, 10),
                ("side", 2, 12),
            ]
            assert contradictions(fourth.path) == []
        assert (await third.take(await theirs.export())).events == 0
        await third.as_().facts.verify("side", False, "exit 1")
        assert (await trusts(third.as_()))["top"] == "stale"
        await third.as_().facts.verify("top", True, "exit 0")
        await third.as_().facts.record("top", because=["base"])
        assert (await trusts(third.as_()))["top"] == "stale*"
        await third.as_().facts.verify("top", True, "exit 0")
        await ours.take(await third.export())
        for state in (here, third.as_()):
            assert await reasons(state, "top") == [["side"], ["base"]]
            assert await replaced(state, "top") == [[], []]
            assert (await trusts(state))["top"] == "trusted"


async def test_a_reason_that_leads_to_a_copy_that_was_kept_apart_is_not_replaced_by_it(
    stores: Stores,
) -> None:
    clock = StepClock()
    async with (
        store_at(stores / "a.db", clock) as ours,
        store_at(stores / "b.db", clock) as theirs,
    ):
        here, there = ours.as_("ada"), theirs.as_("ben")
        await believe(here, "base")
        await believe(here, "twice", statement="first")
        await believe(here, "top", "base", "twice")
        await theirs.take(await ours.export())
        for state in (here, there):
            await state.facts.record("base", source=state.caller.actor.agent)
        await here.facts.record("top", because=["base"])
        await here.facts.record("twice", "second", expected_version=2)
        await here.facts.record("twice", source="a book")
        await there.facts.record("twice", source="hearsay")
        imported = await theirs.take(await ours.export())
        assert imported.kept_apart == {
            "fact:base": "base (from acme)",
            "fact:twice": "twice (from acme)",
        }
        assert await reasons(there, "top") == [
            ["base (from acme)", "twice (from acme)"],
            ["base (from acme)"],
        ]
        assert await given(ours, "top") == [("base", 1, 5), ("base", 2, 8), ("twice", 1, 5)]
        assert await given(theirs, "top") == [
            ("base (from acme)", 1, 10),
            ("base (from acme)", 2, 15),
            ("twice (from acme)", 1, 5),
        ]
        assert await replaced(here, "top") == [["twice"], []]
        assert await replaced(there, "top") == [["twice (from acme)"], []]
        assert (await trusts(there))["top"] == (await trusts(here))["top"] == "trusted"


async def test_another_check_or_statement_that_was_verified_anew_arrives_as_trusted(
    stores: Stores,
) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        for name in ("one", "two", "three"):
            await believe(here, name)
        await theirs.take(await ours.export())
        await here.facts.record("one", check="make one")
        await here.facts.verify("one", True, "make one: exit 0")
        await here.facts.record("two", "two holds for most", expected_version=2)
        await here.facts.verify("two", True, "exit 0 for most")
        await here.facts.record("three", check="make three")
        imported = await theirs.take(await ours.export())
        assert (imported.events, imported.kept_apart) == (5, {})
        assert await trusts(there) == {"one": "trusted", "three": "provisional", "two": "trusted"}
        for name in ("one", "two", "three"):
            assert await there.facts.trace(name) == await here.facts.trace(name)


@pytest.mark.parametrize("key", ["statement", "check"])
@pytest.mark.parametrize("is_there", [False, True], ids=["new", "more"])
async def test_what_nobody_has_verified_as_it_stands_does_not_arrive_as_trusted(
    stores: Stores, key: str, is_there: bool
) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        await believe(ours.as_(), "base")
        await theirs.as_().facts.record("else", "e")
        if is_there:
            await theirs.take(await ours.export())
        await ours.as_().facts.record("base", source="a book")
        file = await ours.export()

        def forge(lines: list[Line]) -> None:
            """Say that the last recording changed it too, and left it trusted."""
            *_, fact = (line["fact"] for line in lines if "fact" in line)
            *_, event = (line for line in lines if line.get("kind") == "fact")
            fact[key] = event["row"][key] = "another"

        edit(file, forge)
        before = everything(theirs.path)
        with pytest.raises(BadArgument) as refused:
            await theirs.as_().transfer.import_file(file)
        assert refused.value.fact.endswith(
            "a fact whose verification was one of another statement or check"
        )
        assert everything(theirs.path) == before


async def test_the_store_itself_takes_no_import_of_what_was_verified_as_something_else(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agreed(staging: object) -> None:
        """As if a file could pass."""

    monkeypatch.setattr("mcp_state.store.transfer.loading.contradiction", agreed)
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        await believe(ours.as_(), "base")
        await theirs.take(await ours.export())
        await ours.as_().facts.record("base", source="a book")
        file = await ours.export()

        def forge(lines: list[Line]) -> None:
            next(line["fact"] for line in lines if "fact" in line)["check"] = "true"

        edit(file, forge)
        before = everything(theirs.path)
        with pytest.raises(BadArgument) as refused:
            await theirs.as_().transfer.import_file(file)
        assert refused.value.fact.endswith(
            "the store does not take this: a verification is one of this statement by this check"
        )
        assert everything(theirs.path) == before


async def test_what_is_due_falls_again_with_what_the_file_refutes(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await believe(here, "base")
        await theirs.take(await ours.export())
        await believe(there, "other")
        await believe(there, "top", "other")
        await believe(there, "above", "top")
        await there.facts.verify("other", False, "exit 1")
        await there.facts.record("top", because=["base"])
        assert (await trusts(there))["top"] == "stale*"
        await here.facts.verify("base", False, "exit 1")
        await theirs.take(await ours.export())
        assert await trusts(there) == {
            "above": "stale",
            "base": "refuted",
            "other": "refuted",
            "top": "stale",
        }
        assert (await told(there, "top"))[-1] == (
            "fall: stale: rests on base, which does not hold here"
        )


async def test_facts_that_parted_are_kept_apart_with_all_that_leads_to_them(
    stores: Stores,
) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await believe(here, "shared")
        await theirs.take(await ours.export())
        await believe(here, "Base")
        await believe(here, "only there", "base", "shared")
        await here.facts.record("only there", because=["shared"])
        await here.threads.set("work", relies_on=["base", "only there"])
        await here.objective.set("theirs to be")
        await believe(there, "base", statement="another")
        await there.facts.verify("base", False, "exit 1")
        await there.objective.set("ours", intent="kept")
        imported = await theirs.take(await ours.export())
        assert imported.kept_apart == {
            "fact:Base": "Base (from acme)",
            "objective:objective": "objective (from acme)",
        }
        assert await trusts(there) == {
            "Base (from acme)": "trusted",
            "base": "refuted",
            "only there": "trusted",
            "shared": "trusted",
        }
        assert await reasons(there, "only there") == [["Base (from acme)", "shared"], ["shared"]]
        work = (await there.threads.get("work")).thread
        assert [premise.name for premise in work.relies_on] == ["Base (from acme)", "only there"]
        history = (await there.events.history("fact:only there")).events
        assert [event.row and event.row["reasons"] for event in history] == [
            [["Base (from acme)", "shared"]],
            [["Base (from acme)", "shared"]],
            [["Base (from acme)", "shared"], ["shared"]],
        ]
        history = (await there.events.history("fact:base (from acme)")).events
        assert [event.row and event.row["name"] for event in history] == ["Base (from acme)"] * 2
        current = await there.objective.get()
        assert current and (current.objective, current.intent) == ("ours", "kept")
        kept = "SELECT shown, objective FROM objectives ORDER BY name"
        assert rows(theirs.path, kept) == [
            ("objective", "ours"),
            ("objective (from acme)", "theirs to be"),
        ]
        hits = (await there.search.find("Base holds")).hits
        assert [(h.kind, h.name) for h in hits] == [("fact", "Base (from acme)")]

        await here.facts.verify("base", False, "exit 1")
        assert (await theirs.take(await ours.export())).events == 1
        assert (await trusts(there))["Base (from acme)"] == "refuted"
        assert (await trusts(there))["only there"] == "trusted"


async def test_what_goes_on_in_the_file_brings_its_reasons_and_the_objective(
    stores: Stores,
) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await believe(here, "base")
        await believe(here, "other")
        await believe(here, "top", "base")
        await here.threads.set("work", relies_on=["base"])
        await here.objective.set("one")
        await theirs.take(await ours.export())
        await here.facts.record("top", because=["other"])
        await here.threads.set("work", relies_on=["top"])
        await here.objective.set("two", reason="one was too little", expected_version=1)
        imported = await theirs.take(await ours.export())
        assert (imported.events, imported.kept_apart) == (3, {})
        assert await reasons(there, "top") == [["base"], ["other"]]
        work = (await there.threads.get("work")).thread
        assert [premise.name for premise in work.relies_on] == ["top"]
        now = await there.objective.get()
        assert now and (now.objective, now.was, now.version) == ("two", "one", 2)
        await there.facts.record("top", "anew", because=["other"], expected_version=3)
        await ours.take(await theirs.export())
        assert await reasons(here, "top") == [["other"]]


async def test_an_argument_in_a_circle_does_not_arise_between_two_stores(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        for name in ("one", "two", "three", "free"):
            await believe(here, name)
        await theirs.take(await ours.export())
        await here.facts.record("one", because=["two"])
        await here.facts.record("free", because=["one"])
        await there.facts.record("two", because=["three"])
        await there.facts.record("three", because=["one"])
        imported = await theirs.take(await ours.export())
        assert imported.kept_apart == {"fact:one": "one (from acme)"}
        assert [
            await reasons(there, name)
            for name in ("one", "two", "three", "free", "one (from acme)")
        ] == [[], [["three"]], [["one"]], [["one (from acme)"]], [["two"]]]
        back = await ours.take(await theirs.export())
        assert back.kept_apart == {
            "fact:three": "three (from acme)",
            "fact:two": "two (from acme)",
        }
        assert [await reasons(here, name) for name in ("one", "two", "three")] == [
            [["two"]],
            [],
            [],
        ]
        assert await reasons(here, "two (from acme)") == [["three (from acme)"]]
        assert await reasons(here, "three (from acme)") == [["one"]]


def of_format_1(lines: list[Line]) -> None:
    """As the version before wrote it."""
    lines[0]["mcp_state_export"] = 1
    for line in lines:
        if "thread" in line:
            del line["thread"]["relies_on"]
        elif line.get("kind") == "thread" and line["row"]:
            line["row"].pop("relies_on", None)


async def make_old_file(store: Store) -> Path:
    await store.as_().threads.set("base", criteria=["green"])
    await store.as_().threads.set("top", depends_on=["base"])
    await store.as_().threads.claim("base")
    await store.as_().journal.append("began", thread="top")
    file = await store.export()
    edit(file, of_format_1)
    return file


async def test_a_file_of_the_first_format_is_read_and_its_threads_go_on(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        await theirs.take(await make_old_file(ours))
        there = theirs.as_()
        assert (await there.threads.get("top")).thread.relies_on == []
        await believe(there, "fact")
        thread = await there.threads.set("top", relies_on=["fact"])
        assert isinstance(thread, Thread) and thread.relies_on
        back = await ours.take(await theirs.export())
        assert (back.events, back.kept_apart) == (4, {})
        assert lines_of(await ours.export())[0]["mcp_state_export"] == FORMAT == 2


async def test_a_long_chain_falls_in_an_import_without_a_limit(
    stores: Stores, tmp_path: Path
) -> None:
    many = 1100 if stores.engine == "sqlite" else 300
    size = Size(entries=3, threads=5, blocks=2, facts=many)
    await build(tmp_path / "a" / "state.db", size)
    async with store_at(tmp_path / "a" / "state.db") as ours, store_at(stores / "b.db") as theirs:
        await theirs.as_().transfer.import_file(await ours.export())
        await ours.as_().facts.verify("factaaaaaaa", False, "exit 1")
        for name in ("fact0000100", "fact0000200"):
            await ours.as_().facts.record(name, source="a book")
        imported = await theirs.as_().transfer.import_file(await ours.export())
        assert imported.kept_apart == {}
        assert (await theirs.as_().facts.list(trust="stale", limit=1)).total == many - 1
        assert contradictions(theirs.path) == []


async def test_where_all_names_are_taken_the_copies_rest_on_the_copies(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        await fill(ours, agent="ada")
        await fill(theirs, agent="ben")
        await theirs.take(await ours.export())
        there = theirs.as_()
        assert await reasons(there, "ready (from acme)") == [
            ["Runs (from acme)"],
            ["fits (from acme)"],
        ]
        assert await reasons(there, "ready") == [["Runs"], ["fits"]]
        after = rows(theirs.path, "SELECT count(*) FROM facts GROUP BY trust ORDER BY trust")
        assert after == [(2,), (4,), (2,), (2,), (4,)]


async def test_what_was_kept_out_of_a_circle_goes_on_apart_when_the_circle_is_gone(
    stores: Stores,
) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        for name in ("one", "two"):
            await believe(here, name)
        await theirs.take(await ours.export())
        await here.facts.record("one", because=["two"])
        await there.facts.record("two", because=["one"])
        imported = await theirs.take(await ours.export())
        assert imported.kept_apart == {"fact:one": "one (from acme)"}
        await there.facts.record("two", "two, anew", expected_version=3)
        await here.facts.record("one", source="a book")
        imported = await theirs.take(await ours.export())
        assert (imported.events, imported.kept_apart) == (1, {"fact:one": "one (from acme)"})
        assert (await there.facts.trace("one (from acme)")).fact.source == "a book"
        assert (await there.facts.trace("one")).fact.version == 2
