"""Facts: what recording and verifying do to trust, what is refused, and what relies on them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from conftest import START, FakeClock, Open
from long_runs import summaries
from peeking import CHECK, Plain, Refused, plain, rows
from soaking import SOAK
from spending import spent

from mcp_state.api import State
from mcp_state.errors import (
    BadArgument,
    Conflict,
    EvidenceRequired,
    NotFound,
    OverLimit,
    SecretRefused,
    StateError,
    VersionConflict,
)
from mcp_state.lookups import Compared, Found
from mcp_state.models import (
    Actor,
    Fact,
    FactRecorded,
    FactVerified,
    Premise,
    Status,
    Touched,
    Trust,
)
from mcp_state.render_facts import fact_lines
from mcp_state.store import fact_rows
from mcp_state.store.transaction import Reading

CODEX = Actor("codex", "codex 1.0", "s1")
CLAUDE = Actor("claude", "claude 1.0", "s2")
DAY = timedelta(hours=24)
pytestmark = pytest.mark.usefixtures("consistent")
SECRET = "ghp_" + "a1" * 18
NEW = Fact(
    name="PR-830",
    check="gh pr view 830",
    now=None,
    verified=False,
    trust=Trust.PROVISIONAL,
    trust_at=START,
    due=False,
    recheck_at=START + DAY,
    verified_at=None,
    verified_by=None,
    held=None,
    here=False,
    evidence="",
    baseline=None,
    statement="PR 830 is open",
    replaces=None,
    stated_at=START,
    stated_by=CODEX,
    source="the page of the PR",
    reasons=[],
    version=1,
    created_at=START,
    changed_at=START,
    changed_by=CODEX,
)


async def record_pr(state: State) -> Fact:
    recorded = await state.facts.record(
        "PR-830", "PR 830 is open", check="gh pr view 830", source="the page of the PR"
    )
    return recorded.fact


async def fact_in(state: State, trust: Trust, name: str = "f") -> Fact:
    """A fact of this trust; a stale one has one reason, `root of NAME`, which is refuted."""
    facts = state.facts
    if trust is Trust.STALE:
        await facts.record(f"root of {name}", "a root", check="c")
        await facts.record(name, "it is so", check="c", because=[f"root of {name}"])
        await facts.verify(f"root of {name}", False, "exit 1")
        return await got(state, name)
    await facts.record(name, "it is so", check="c", archival=trust is Trust.ARCHIVAL)
    if trust in (Trust.TRUSTED, Trust.REFUTED):
        await facts.verify(name, trust is Trust.TRUSTED, "seen")
    return await got(state, name)


async def got(state: State, name: str = "f") -> Fact:
    return (await state.facts.trace(name)).fact


def at(state: State, worktree: Path) -> State:
    """The same session in a directory, where the server looks up addresses."""
    return State(state.database, replace(state.caller, worktree=str(worktree)))


async def last_event(state: State) -> int:
    await state.facts.list()
    return state.totals.event


async def operations(state: State, subject: str) -> list[str]:
    page = await state.events.history(subject, limit=200)
    return [event.operation for event in page.events]


def names(reasons: Sequence[Sequence[Premise]]) -> list[list[str]]:
    return [[premise.name for premise in reason] for reason in reasons]


# Recording


async def test_a_new_fact_is_provisional_and_due_for_its_first_check_in_24_hours(
    state: State, clock: FakeClock
) -> None:
    assert await record_pr(state) == NEW
    assert await got(state, "pr-830") == NEW
    assert await summaries(state, "fact:pr-830") == [
        'check: gh pr view 830 · believed: "PR 830 is open"'
    ]
    clock.move(hours=24, seconds=-1)
    assert await got(state, "pr-830") == NEW
    clock.move(seconds=1)
    assert await got(state, "pr-830") == replace(NEW, due=True)


async def test_an_archival_fact_is_never_due(state: State, clock: FakeClock) -> None:
    recorded = await state.facts.record("old", "It was so", archival=True)
    clock.move(days=9999)
    assert recorded.fact.trust is Trust.ARCHIVAL
    assert await got(state, "old") == recorded.fact
    assert (recorded.fact.recheck_at, recorded.fact.due) == (None, False)


CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "the same": {"statement": "it is so", "check": "c"},
    "a check": {"check": "another"},
    "a source": {"source": "a book"},
    "a reason": {"because": ["ground"]},
    "a time": {"recheck_after": "1h"},
    "all but the statement": {
        "check": "another",
        "source": "a book",
        "because": ["ground"],
        "recheck_after": "1h",
    },
    "archival": {"archival": True},
    "another statement": {"statement": "it is not"},
    "another statement, kept": {"statement": "it was not", "archival": True},
    "another statement with all": {
        "statement": "it is not",
        "check": "another",
        "because": ["ground"],
        "recheck_after": "1h",
    },
}
BECOMES: dict[tuple[Trust, str], Trust | type[StateError]] = {
    (Trust.TRUSTED, "a check"): Trust.PROVISIONAL,
    (Trust.TRUSTED, "all but the statement"): Trust.PROVISIONAL,
    (Trust.PROVISIONAL, "archival"): Trust.ARCHIVAL,
    (Trust.TRUSTED, "archival"): Trust.ARCHIVAL,
    (Trust.STALE, "archival"): BadArgument,
    (Trust.REFUTED, "archival"): BadArgument,
    **{(trust, "another statement"): Trust.PROVISIONAL for trust in Trust},
    **{(trust, "another statement with all"): Trust.PROVISIONAL for trust in Trust},
    **{(trust, "another statement, kept"): Trust.ARCHIVAL for trust in Trust},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("trust", Trust)
async def test_recording_never_makes_a_fact_trusted_or_brings_back_what_fell(
    state: State, trust: Trust, change: str
) -> None:
    await state.facts.record("ground", "it is solid", check="stamp")
    await state.facts.verify("ground", True, "it held")
    before = await fact_in(state, trust)
    assert before.trust is trust
    becomes = BECOMES.get((trust, change), trust)
    given = CHANGES[change]

    if isinstance(becomes, Trust):
        recorded = await state.facts.record("f", **given, expected_version=before.version)
        assert recorded.fact.trust is becomes
        assert recorded.fact.replaces is (trust if "another statement" in change else None)
        assert await got(state) == recorded.fact
        assert recorded.demoted is (trust is Trust.TRUSTED and "check" in change) or (
            change == "all but the statement"
        )
    else:
        with pytest.raises(becomes):
            await state.facts.record("f", **given)
        assert await got(state) == before


@pytest.mark.parametrize("statement", ["", "  \n "])
async def test_a_new_fact_needs_a_statement(state: State, statement: str) -> None:
    with pytest.raises(BadArgument) as refused:
        await state.facts.record("f", statement, check="c", archival=True)
    assert str(refused.value) == (
        "bad_argument: there is no fact 'f', and a new one needs a statement. "
        "Say in statement what is believed, and in check how to see whether it holds."
    )
    assert (await state.facts.list()).facts == []


async def test_another_statement_is_a_conflict_that_says_which_version_to_pass(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await record_pr(mine)
    await mine.facts.verify("pr-830", True, "state: OPEN")
    before = await got(theirs, "pr-830")
    clock.move(hours=3)

    with pytest.raises(Conflict) as refused:
        await theirs.facts.record("pr-830", "PR 830 is merged")

    assert str(refused.value) == (
        "conflict: fact 'PR-830' says something else already (trusted, recorded 3 h ago by codex; "
        'check: gh pr view 830 · believed: "PR 830 is open"). If that no longer holds, say so with '
        'fact_verify(fact="PR-830", holds=false, evidence=…). To replace it, record again with '
        "expected_version=2; the old statement stays in history."
    )
    assert await got(theirs, "pr-830") == before
    after = await theirs.facts.record("pr-830", "PR 830 is merged", expected_version=2)
    assert after.fact.statement == "PR 830 is merged"


async def test_superseding_begins_anew_without_reasons_and_keeps_the_old_statement_in_history(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.facts.record("why", "a reason")
    await mine.facts.record("also why", "another")
    await record_pr(mine)
    await mine.facts.record("pr-830", because=["why"], recheck_after="3h")
    await mine.facts.verify("pr-830", True, "state: OPEN")
    clock.move(hours=1)

    superseded = await theirs.facts.record(
        "pr-830", "PR 830 is merged", because=["also why"], expected_version=3
    )

    now = clock.now()
    assert superseded == FactRecorded(
        replace(
            NEW,
            statement="PR 830 is merged",
            replaces=Trust.TRUSTED,
            version=4,
            changed_at=now,
            changed_by=CLAUDE,
            stated_at=now,
            stated_by=CLAUDE,
            trust_at=now,
            recheck_at=now + timedelta(hours=3),
            reasons=[[Premise("also why", "", None, False, Trust.PROVISIONAL, False, False)]],
        ),
        Touched(fell=[], fell_count=0, threads=[], threads_count=0),
        superseded="PR 830 is open",
        was=Trust.TRUSTED,
    )
    assert await got(theirs, "pr-830") == superseded.fact
    page = await theirs.events.history("fact:pr-830")
    kept = [(e.operation, e.version, (e.row or {})["statement"]) for e in page.events]
    assert kept == [
        ("record", 1, "PR 830 is open"),
        ("record", 2, "PR 830 is open"),
        ("verify", 3, "PR 830 is open"),
        ("supersede", 4, "PR 830 is merged"),
    ]
    assert (page.events[2].row or {})["evidence"] == "state: OPEN"
    assert page.events[3].summary == (
        'check: gh pr view 830 · believed: "PR 830 is merged" · '
        'replaces (trusted): "PR 830 is open"'
    )


async def say(state: State, statement: str, name: str = "f", *, archival: bool = False) -> Fact:
    """Put another statement in the place of the one that is there."""
    version = (await got(state, name)).version
    recorded = await state.facts.record(
        name, statement, archival=archival, expected_version=version
    )
    return recorded.fact


@pytest.mark.parametrize("trust", [Trust.REFUTED, Trust.STALE])
async def test_what_takes_the_place_of_what_fell_says_so_until_it_is_verified(
    state: State, trust: Trust
) -> None:
    await fact_in(state, trust)
    for statement, archival in (("two", False), ("three", True), ("four", False)):
        fact = await say(state, statement, archival=archival)
        assert (fact.statement, fact.replaces, fact.held) == (statement, trust, None)
        assert await got(state) == fact
    assert fact_lines(fact, START) == [
        "check first: c",
        f"    f · never checked, recorded just now (codex), in the place of what was {trust}; "
        'believed then: "four"',
    ]
    verified = (await state.facts.verify("f", True, "seen")).fact
    assert (verified.trust, verified.replaces) == (Trust.TRUSTED, trust)
    assert (await say(state, "five")).replaces is Trust.TRUSTED
    assert (await say(state, "six")).replaces is Trust.PROVISIONAL
    assert (await state.facts.verify("f", False, "exit 1")).fact.replaces is Trust.PROVISIONAL
    assert (await say(state, "seven")).replaces is Trust.REFUTED
    page = await state.events.history("fact:f", limit=200)
    kept = [(e.operation, (e.row or {})["replaces"]) for e in page.events if e.operation != "fall"]
    made = [("record", ""), *([("verify", "")] if trust is Trust.REFUTED else [])]
    assert kept == [
        *made,
        *[("supersede", trust)] * 3,
        ("verify", trust),
        ("supersede", "trusted"),
        ("supersede", "provisional"),
        ("verify", "provisional"),
        ("supersede", "refuted"),
    ]


@pytest.mark.parametrize("statement", ["", "it is so", "it is not"])
async def test_a_write_to_another_version_is_refused(
    mine: State, theirs: State, clock: FakeClock, statement: str
) -> None:
    await mine.facts.record("f", "it is so", check="c")
    await mine.facts.verify("f", True, "seen")
    before = await got(theirs)
    clock.move(minutes=5)

    for expected in (0, 1, 3):
        with pytest.raises(VersionConflict) as refused:
            await theirs.facts.record("f", statement, check="x", expected_version=expected)
        assert str(refused.value) == (
            f"version_conflict: fact 'f' is at version 2, not {expected} (changed by codex 5 min "
            'ago; check: c · believed: "it is so"). Nothing was saved. See whether what you have '
            "to say is about what it says now, and say it again with expected_version=2."
        )
    assert await got(theirs) == before


async def test_expected_version_0_makes_a_fact_and_another_number_does_not(state: State) -> None:
    with pytest.raises(VersionConflict, match="fact 'f' does not exist, so it is not at version 1"):
        await state.facts.record("f", "it is so", expected_version=1)
    assert (await state.facts.list()).facts == []
    made = await state.facts.record("f", "it is so", expected_version=0)
    assert made.fact.version == 1


async def test_another_check_takes_a_trusted_fact_back_to_provisional_and_forgets_what_the_old_said(
    state: State, clock: FakeClock
) -> None:
    await record_pr(state)
    clock.move(hours=1)
    await state.facts.verify("pr-830", True, "state: OPEN")
    clock.move(hours=1)

    recorded = await state.facts.record("pr-830", check="curl the page")

    assert recorded == FactRecorded(
        replace(
            NEW,
            check="curl the page",
            version=3,
            changed_at=clock.now(),
            trust_at=clock.now(),
            recheck_at=START + timedelta(hours=1) + DAY,
        ),
        demoted=True,
    )
    assert await got(state, "pr-830") == recorded.fact
    (_, verified, _) = (await state.events.history("fact:pr-830")).events
    assert (verified.row or {})["evidence"] == "state: OPEN"


async def test_what_was_refuted_stays_refuted_under_another_check(
    state: State, clock: FakeClock
) -> None:
    refuted = await fact_in(state, Trust.REFUTED)
    clock.move(hours=1)
    recorded = await state.facts.record("f", check="an easier one")
    assert recorded == FactRecorded(
        replace(refuted, check="an easier one", version=3, changed_at=clock.now())
    )
    assert (recorded.fact.held, recorded.fact.evidence) == (False, "seen")


async def test_a_refuted_fact_whose_check_is_replaced_keeps_its_refutation_without_a_baseline(
    state: State, tmp_path: Path, clock: FakeClock
) -> None:
    state = at(state, tmp_path)
    (tmp_path / "contract.md").write_text("euros\n")
    (tmp_path / "other.md").write_text("cents\n")
    await state.facts.record("f", "Amounts are cents", check="file:contract.md")
    refuted = (await state.facts.verify("f", False, "it says euros")).fact
    assert refuted.baseline is not None
    assert (refuted.baseline.target, refuted.baseline.size) == ("file:contract.md", 6)
    assert refuted.now == Compared("unchanged", "unchanged")
    clock.move(hours=1)

    recorded = await state.facts.record("f", check="file:other.md")

    assert recorded == FactRecorded(
        replace(
            refuted,
            check="file:other.md",
            now=Compared("there", "exists (6 bytes)"),
            baseline=None,
            version=3,
            changed_at=clock.now(),
        )
    )
    kept = recorded.fact
    assert (kept.trust, kept.held, kept.evidence) == (Trust.REFUTED, False, "it says euros")
    assert (kept.verified_at, kept.verified_by) == (START, refuted.verified_by)
    assert await got(state) == kept


async def test_the_facts_of_because_are_one_reason_and_those_of_another_are_another(
    state: State,
) -> None:
    for name in ("A", "b", "c"):
        await state.facts.record(name, f"{name} is so")
    first = await state.facts.record("f", "it is so", because=["b", "a"])
    assert names(first.fact.reasons) == [["A", "b"]]
    second = await state.facts.record("f", because=["c", "C"])
    assert names(second.fact.reasons) == [["A", "b"], ["c"]]
    third = await state.facts.record("f", because=["a", "b", "c"])
    assert names(third.fact.reasons) == [["A", "b"], ["c"], ["A", "b", "c"]]
    assert await got(state) == third.fact
    assert await summaries(state, "fact:f") == [
        'no check · believed: "it is so"',
        "another reason: c",
        "another reason: A, b, c",
    ]


@pytest.mark.parametrize(
    "again",
    [
        {},
        {"statement": "it is so"},
        {"statement": " it is so\n", "check": "c ", "source": " s", "recheck_after": "24h"},
        {"because": ["b", "a"]},
        {"because": [" B", "A", "a"]},
        {"expected_version": 1},
    ],
)
async def test_recording_the_same_again_changes_nothing(
    mine: State, theirs: State, clock: FakeClock, again: dict[str, Any]
) -> None:
    for name in ("a", "b"):
        await mine.facts.record(name, f"{name} is so")
    first = await mine.facts.record("f", "it is so", check="c", source="s", because=["a", "b"])
    last = await last_event(theirs)
    clock.move(hours=1)
    assert await theirs.facts.record("f", **again) == FactRecorded(first.fact, unchanged=True)
    assert await last_event(theirs) == last


async def test_what_is_left_out_stays_as_it_is(state: State, clock: FakeClock) -> None:
    await record_pr(state)
    clock.move(hours=1)
    recorded = await state.facts.record("pr-830", source="an e-mail")
    assert recorded == FactRecorded(
        replace(NEW, source="an e-mail", version=2, changed_at=clock.now())
    )
    recorded = await state.facts.record("pr-830", recheck_after="2h")
    assert recorded == FactRecorded(
        replace(
            NEW,
            source="an e-mail",
            version=3,
            changed_at=clock.now(),
            recheck_at=START + timedelta(hours=2),
        )
    )
    assert (await summaries(state, "fact:pr-830"))[1:] == [
        "changed source",
        "changed recheck_after, recheck_at",
    ]


async def test_a_fact_has_one_name_in_any_case_and_is_shown_as_it_was_first_written(
    state: State,
) -> None:
    await record_pr(state)
    recorded = await state.facts.record(" pr-830 ", source="an e-mail")
    assert recorded.fact.name == "PR-830"
    assert len((await state.facts.list()).facts) == 1


async def test_a_name_may_grow_when_it_is_folded(state: State) -> None:
    long = "ß" * 128
    await state.facts.record(long, "it is long", check="count")
    await state.facts.record("on top", "it rests", because=[long])
    with pytest.raises(BadArgument, match="an argument in a circle"):
        await state.facts.record(long, because=["on top"])
    refuted = await state.facts.verify(long, False, "127")
    assert refuted.touched.fell == ["on top"]
    assert (await state.facts.trace(long)).carries_count == 1


async def test_an_unknown_premise_is_not_found_and_nothing_is_recorded(state: State) -> None:
    await record_pr(state)
    with pytest.raises(NotFound) as refused:
        await state.facts.record("f", "it is so", because=["PR-830", "pr-83"])
    assert str(refused.value) == (
        "not_found: no fact 'pr-83'; there is 'PR-830'. "
        "fact_list shows them; fact_record makes one."
    )
    assert [fact.name for fact in (await state.facts.list()).facts] == ["PR-830"]
    with pytest.raises(NotFound):
        await state.facts.record("pr-830", because=["pr-83"])
    assert await got(state, "pr-830") == NEW


@pytest.mark.parametrize("trust", [Trust.REFUTED, Trust.STALE])
async def test_nothing_can_rest_on_what_has_fallen(
    state: State, clock: FakeClock, trust: Trust
) -> None:
    await fact_in(state, trust, "Fell")
    await state.facts.record("there", "already")
    way_out = {
        Trust.REFUTED: "Run its check (c) and tell fact_verify what it said,",
        Trust.STALE: (
            'Check what it rests on (fact_list(trust="stale") shows that), record a reason that '
            "stands (fact_record with because),"
        ),
    }
    clock.move(hours=2)
    for name, statement in (("new", "it is so"), ("there", "")):
        with pytest.raises(BadArgument) as refused:
            await state.facts.record(name, statement, because=["fell"])
        assert str(refused.value) == (
            f"bad_argument: because names 'Fell', which is {trust} (since 2 h ago), so that "
            f"nothing can rest on it. {way_out[trust]} or give another reason."
        )
    assert (await got(state, "there")).version == 1
    with pytest.raises(NotFound):
        await got(state, "new")


async def test_a_fact_cannot_rest_on_itself_or_in_a_circle_and_is_shown_how_it_would(
    state: State,
) -> None:
    await state.facts.record("A", "a is so")
    await state.facts.record("b", "b is so", because=["a"])
    await state.facts.record("c", "c is so", because=["b"])
    last = await last_event(state)

    for arguments, circle in (
        (("a", ["A"]), "A because A"),
        (("new", ["b", "New"]), "new because new"),
        (("A", ["b"]), "A because b because A"),
        (("a", ["c"]), "A because c because b because A"),
        (("b", ["c"]), "b because c because b"),
    ):
        name, because = arguments
        with pytest.raises(BadArgument) as refused:
            await state.facts.record(name, "new is so" if name == "new" else "", because=because)
        assert str(refused.value) == (
            f"bad_argument: that would be an argument in a circle: {circle}. "
            "Leave one of them out; nothing was changed."
        )
    with pytest.raises(BadArgument, match="A because b because A"):
        await state.facts.record("a", "a says more", because=["b"], expected_version=1)
    assert await last_event(state) == last


@pytest.mark.parametrize("trust", [Trust.REFUTED, Trust.STALE])
async def test_what_has_fallen_cannot_be_kept_as_true_then(state: State, trust: Trust) -> None:
    before = await fact_in(state, trust)
    with pytest.raises(BadArgument) as refused:
        await state.facts.record("f", "it is so", archival=True)
    assert str(refused.value) == (
        f"bad_argument: fact 'f' is {trust}, so it can't be kept as true then. "
        "Record what is true under it, or under another name."
    )
    assert await got(state) == before


async def test_a_reason_has_at_most_50_premises(state: State) -> None:
    premises = [f"p{n:02}" for n in range(51)]
    for name in premises:
        await state.facts.record(name, "it is so")
    with pytest.raises(BadArgument) as refused:
        await state.facts.record("f", "it follows", because=premises)
    assert str(refused.value) == (
        "bad_argument: because names 51 facts; a reason has at most 50. "
        "Derive a fact from some of them first."
    )
    recorded = await state.facts.record("f", "it follows", because=premises[:50])
    assert names(recorded.fact.reasons) == [premises[:50]]


async def test_a_fact_has_at_most_50_reasons(state: State) -> None:
    for n in range(51):
        await state.facts.record(f"p{n}", "it is so")
    await state.facts.record("f", "it follows")
    for n in range(50):
        await state.facts.record("f", because=[f"p{n}"])
    before = await got(state)
    assert names(before.reasons) == [[f"p{n}"] for n in range(50)]
    with pytest.raises(BadArgument) as refused:
        await state.facts.record("f", because=["p50"])
    assert str(refused.value) == (
        "bad_argument: fact 'f' has 50 reasons; at most 50. "
        "Replace its statement (expected_version) to begin with new ones."
    )
    assert await got(state) == before
    assert (await state.facts.record("f", because=["p7"])).unchanged
    anew = await state.facts.record(
        "f", "it follows all the more", because=["p50"], expected_version=before.version
    )
    assert names(anew.fact.reasons) == [["p50"]]


async def test_reasons_that_fell_since_their_premise_says_something_else_do_not_count(
    state: State, path: str
) -> None:
    for n in range(53):
        await state.facts.record(f"p{n}", "it is so")
    await state.facts.record("f", "it follows")
    for n in range(50):
        await state.facts.record("f", because=[f"p{n}"])
    for name in ("p49", "p7"):
        await say(state, "it is not", name)
    for n in (50, 51):
        await state.facts.record("f", because=[f"p{n}"])
    left = [n for n in range(52) if n not in (49, 7)]
    before = await got(state)
    assert names(before.reasons) == [[f"p{n}"] for n in left]
    stored = "SELECT reason, premise FROM premises WHERE fact = 'f' ORDER BY reason"
    assert rows(path, stored) == [(n + 1, f"p{n}") for n in left]
    with pytest.raises(BadArgument, match="fact 'f' has 50 reasons; at most 50"):
        await state.facts.record("f", because=["p52"])
    assert await got(state) == before
    assert rows(path, stored) == [(n + 1, f"p{n}") for n in left]


@pytest.mark.parametrize("field", ["statement", "check", "source"])
async def test_a_text_of_a_fact_has_at_most_2000_characters(state: State, field: str) -> None:
    texts: Any = {"statement": "s", field: "x" * 2000}
    await state.facts.record("f", **texts)
    before = await got(state)
    texts[field] = "y" * 2001
    with pytest.raises(OverLimit) as refused:
        await state.facts.record("f", **texts, expected_version=1)
    what = "the statement" if field == "statement" else field
    assert str(refused.value) == (
        f"over_limit: {what} of fact 'f' would be 2,001 characters; the limit is 2,000. Shorten "
        "it; what is long belongs in the journal or in a blob. Nothing was saved."
    )
    assert await got(state) == before


@pytest.mark.parametrize("field", ["fact", "statement", "check", "source"])
async def test_a_secret_is_not_recorded(state: State, path: str, field: str) -> None:
    given: Any = {"fact": "f", "statement": "s", field: f"token {SECRET}"}
    with pytest.raises(SecretRefused) as refused:
        await state.facts.record(**given)
    assert "looks like a GitHub token, at character 6" in str(refused.value)
    assert SECRET not in str(refused.value)
    assert rows(path, "SELECT * FROM facts") == []
    assert rows(path, "SELECT count(*) FROM events WHERE row LIKE '%ghp_%'") == [(0,)]


@pytest.mark.parametrize("recheck", ["tomorrow", "0s", "-1h", "99999999d"])
async def test_a_time_to_the_next_check_that_is_none_is_refused(state: State, recheck: str) -> None:
    with pytest.raises(BadArgument, match=f"recheck_after is '{recheck}', which is not a duration"):
        await state.facts.record("f", "it is so", recheck_after=recheck)
    assert (await state.facts.list()).facts == []


# Verifying


async def test_a_check_that_held_makes_a_fact_trusted_until_it_is_due(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await record_pr(mine)
    clock.move(hours=1)
    now = clock.now()

    verified = await theirs.facts.verify("pr-830", True, " state: OPEN\n")

    expected = replace(
        NEW,
        trust=Trust.TRUSTED,
        version=2,
        changed_at=now,
        changed_by=CLAUDE,
        trust_at=now,
        recheck_at=now + DAY,
        verified_at=now,
        verified_by=CLAUDE,
        held=True,
        here=True,
        verified=True,
        evidence="state: OPEN",
    )
    assert verified == FactVerified(expected, Touched())
    assert await got(theirs, "pr-830") == expected
    assert await got(mine, "pr-830") == replace(expected, here=False, verified=False)
    last = await last_event(mine)
    for state in (mine, theirs):
        assert [f.name for f in (await state.facts.list(trust="trusted")).facts] == ["PR-830"]
        assert (await state.facts.list(due=True)).facts == []

    clock.move(hours=24)
    assert await got(theirs, "pr-830") == replace(expected, due=True, verified=False)
    for state in (mine, theirs):
        assert (await state.facts.list(trust="trusted")).facts == []
        assert [f.name for f in (await state.facts.list(due=True)).facts] == ["PR-830"]
    assert await last_event(mine) == last


async def test_a_session_relies_on_its_own_verification_for_four_hours(
    state: State, clock: FakeClock
) -> None:
    await state.facts.record("f", "it is so", check="c")
    fresh = (await state.facts.verify("f", True, "seen")).fact
    await state.facts.record("x", "it follows", because=["f"])
    await state.threads.set("t", relies_on=["f"])
    premise = Premise("f", "c", None, True, Trust.TRUSTED, False, False)
    assert (fresh.verified, fresh.here) == (True, True)

    for move, verified in (
        (timedelta(), True),
        (timedelta(hours=4, microseconds=-1), True),
        (timedelta(microseconds=1), False),
        (timedelta(hours=3), False),
    ):
        clock.move(seconds=move.total_seconds())
        now = replace(premise, verified=verified)
        assert await got(state) == replace(fresh, verified=verified)
        assert (await got(state, "x")).reasons == [[now]]
        assert (await state.threads.get("t")).thread.relies_on == [now]
    assert fact_lines(await got(state), clock.now()) == [
        "check first: c",
        '    f · last held 7 h ago (codex: `seen`); believed then: "it is so"',
    ]

    again = (await state.facts.verify("f", True, "seen again")).fact
    assert (again.verified, await got(state)) == (True, again)
    assert fact_lines(again, clock.now()) == [
        "verified in this session, just now · check: c",
        '    f · holds (`seen again`): "it is so"',
    ]


async def test_the_time_to_the_next_check_is_the_one_that_was_recorded(
    state: State, clock: FakeClock
) -> None:
    await state.facts.record("f", "it is so", check="c", recheck_after="90s")
    clock.move(hours=1)
    verified = await state.facts.verify("f", True, "seen")
    assert verified.fact.recheck_at == clock.now() + timedelta(seconds=90)
    clock.move(seconds=90)
    assert (await got(state)).due


@pytest.mark.parametrize("trust", [Trust.PROVISIONAL, Trust.TRUSTED])
@pytest.mark.parametrize("after", ["1h", "25h", "30d"])
async def test_what_is_due_stays_due_until_it_is_verified_whatever_time_is_given(
    state: State, clock: FakeClock, trust: Trust, after: str
) -> None:
    before = await fact_in(state, trust)
    clock.move(hours=24)
    due = replace(before, due=True)
    assert replace(await got(state), verified=before.verified) == due
    for version, given in enumerate((after, "2d"), before.version + 1):
        fact = (await state.facts.record("f", recheck_after=given)).fact
        assert fact == replace(due, verified=False, version=version, changed_at=clock.now())
        assert await got(state) == fact
        assert (await summaries(state, "fact:f"))[-1] == "changed recheck_after"
    assert await listed(state, due=True) == (["f"], 1)
    verified = (await state.facts.verify("f", True, "seen")).fact
    assert (verified.due, verified.recheck_at) == (False, clock.now() + 2 * DAY)


@pytest.mark.parametrize("trust", [Trust.PROVISIONAL, Trust.TRUSTED])
async def test_another_check_does_not_put_off_what_is_due(
    state: State, clock: FakeClock, trust: Trust
) -> None:
    await fact_in(state, trust)
    clock.move(hours=25)
    fact = (await state.facts.record("f", check="another", recheck_after="3d")).fact
    assert (fact.trust, fact.due, fact.recheck_at) == (Trust.PROVISIONAL, True, START + DAY)
    assert await got(state) == fact


@pytest.mark.parametrize("trust", [Trust.PROVISIONAL, Trust.TRUSTED])
async def test_what_is_not_due_yet_can_be_put_off_or_asked_for_earlier(
    state: State, clock: FakeClock, trust: Trust
) -> None:
    await fact_in(state, trust)
    clock.move(hours=23)
    later = (await state.facts.record("f", recheck_after="3d")).fact
    assert (later.due, later.recheck_at) == (False, START + 3 * DAY)
    earlier = (await state.facts.record("f", recheck_after="22h")).fact
    assert (earlier.due, earlier.recheck_at) == (True, START + timedelta(hours=22))
    assert (await state.facts.record("f", recheck_after="3d")).fact.due is True


async def test_an_address_has_to_lead_to_what_it_did_for_a_verification_to_count(
    state: State, tmp_path: Path
) -> None:
    state, elsewhere = at(state, tmp_path), state
    contract = tmp_path / "contract.md"
    contract.write_text("cents\n")
    await state.facts.record("f", "Amounts are cents", check="file:contract.md")
    verified = (await state.facts.verify("f", True, "it says cents")).fact
    await state.facts.record("x", "it follows", because=["f"])

    for content, in_words, counts in (
        ("cents\n", Compared("unchanged", "unchanged"), True),
        ("euros\n", Compared("changed", "changed: other content, 6 bytes as then"), False),
        ("cents, or euros\n", Compared("changed", "changed: 6 bytes then, 16 now"), False),
        (None, Compared("gone", "gone"), False),
        ("cents\n", Compared("unchanged", "unchanged"), True),
    ):
        if content is None:
            contract.unlink()
        else:
            contract.write_text(content)
        assert await got(state) == replace(verified, now=in_words, verified=counts)
        ((premise,),) = (await got(state, "x")).reasons
        assert (premise.now, premise.verified) == (in_words, counts)
    unknown = Compared("unknown", "not looked up here: no directory is known for this call")
    assert await got(elsewhere) == replace(verified, now=unknown, verified=False)


@pytest.mark.parametrize("holds", [True, False])
async def test_a_verification_where_the_server_cannot_look_keeps_that_and_nothing_older(
    state: State, tmp_path: Path, clock: FakeClock, holds: bool
) -> None:
    here, elsewhere = at(state, tmp_path), state
    (tmp_path / "contract.md").write_text("cents\n")
    await here.facts.record("f", "Amounts are cents", check="file:contract.md")
    seen = (await here.facts.verify("f", True, "it says cents")).fact.baseline
    assert seen is not None
    assert (seen.state, seen.size) == ("file", 6)
    clock.move(hours=1)

    verified = (await elsewhere.facts.verify("f", holds, "so I was told")).fact

    why = "not looked up here: no directory is known for this call"
    unknown = Found("file:contract.md", "unknown", detail=why)
    assert (verified.baseline, verified.evidence) == (unknown, "so I was told")
    assert (verified.now, verified.verified) == (Compared("unknown", why), holds)
    (event,) = (await state.events.history("fact:f")).events[-1:]
    assert (event.row or {})["baseline"] == asdict(unknown)
    assert await got(elsewhere) == verified
    for content, size in (("cents\n", 6), ("cents, or euros\n", 16)):
        (tmp_path / "contract.md").write_text(content)
        there = Compared("there", f"exists ({size} bytes), nothing to compare with")
        assert await got(here) == replace(verified, now=there)
    again = (await here.facts.verify("f", True, "it says both")).fact
    assert again.baseline is not None
    assert (again.baseline.state, again.baseline.size) == ("file", 16)
    assert again.now == Compared("unchanged", "unchanged")


@pytest.mark.parametrize("change", [{"check": "file:other.md"}, {"statement": "It is more"}])
async def test_what_was_seen_of_another_check_or_for_another_statement_is_not_kept(
    state: State, tmp_path: Path, change: dict[str, Any]
) -> None:
    here, elsewhere = at(state, tmp_path), state
    for name in ("contract.md", "other.md"):
        (tmp_path / name).write_text("cents\n")
    await here.facts.record("f", "Amounts are cents", check="file:contract.md")
    await here.facts.verify("f", True, "it says cents")
    await here.facts.record("f", **change, expected_version=2)

    verified = (await elsewhere.facts.verify("f", True, "so I was told")).fact

    assert verified.baseline is not None
    assert (verified.baseline.state, verified.baseline.identity) == ("unknown", "")
    later = (await here.facts.verify("f", True, "it says cents")).fact.baseline
    assert later is not None
    assert (later.state, later.size) == ("file", 6)


async def test_a_file_too_large_to_compare_counts_as_long_as_its_size_is_the_same(
    state: State, tmp_path: Path
) -> None:
    state = at(state, tmp_path)
    large = tmp_path / "large.bin"
    size = (1 << 24) + 1
    large.touch()
    os.truncate(large, size)
    await state.facts.record("f", "it is large", check="file:large.bin")
    verified = (await state.facts.verify("f", True, "seen")).fact
    same = Compared("there", "same size, too large to compare")
    assert (verified.now, verified.verified) == (same, True)
    assert await got(state) == verified
    os.truncate(large, size + 1)
    changed = Compared("changed", "changed: 16,777,217 bytes then, 16,777,218 now")
    assert await got(state) == replace(verified, now=changed, verified=False)


async def test_a_fact_that_holds_again_has_been_trusted_since_the_first_time(
    state: State, clock: FakeClock
) -> None:
    first = await fact_in(state, Trust.TRUSTED)
    clock.move(hours=30)
    again = (await state.facts.verify("f", True, "seen again")).fact
    assert again == replace(
        first,
        version=3,
        changed_at=clock.now(),
        recheck_at=clock.now() + DAY,
        verified_at=clock.now(),
        evidence="seen again",
    )


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("evidence", ["", " \n"])
async def test_a_verification_needs_evidence(state: State, holds: bool, evidence: str) -> None:
    before = await record_pr(state)
    with pytest.raises(EvidenceRequired) as refused:
        await state.facts.verify("pr-830", holds, evidence)
    assert str(refused.value) == (
        "evidence_required: fact 'PR-830' is not verified without evidence. Run its check "
        "(gh pr view 830) and give as evidence what it printed, shortened, or a link."
    )
    assert await got(state, "pr-830") == before


async def test_a_fact_without_a_check_can_be_refuted_and_never_trusted(state: State) -> None:
    before = (await state.facts.record("f", "it is so")).fact
    with pytest.raises(EvidenceRequired) as refused:
        await state.facts.verify("f", True, "everybody says so")
    assert str(refused.value) == (
        "evidence_required: fact 'f' has no check, so none can have held. Record one first: "
        'fact_record(fact="f", check="…"), run it, and verify again.'
    )
    assert await got(state) == before

    refuted = await state.facts.verify("f", False, "I saw it fail")
    assert refuted.fact == replace(
        before,
        trust=Trust.REFUTED,
        version=2,
        recheck_at=None,
        verified_at=START,
        verified_by=CODEX,
        held=False,
        evidence="I saw it fail",
    )


async def test_an_archival_fact_can_be_verified(state: State) -> None:
    await fact_in(state, Trust.ARCHIVAL)
    assert (await state.facts.verify("f", True, "still so")).fact.trust is Trust.TRUSTED
    assert (await state.facts.verify("f", False, "no more")).fact.trust is Trust.REFUTED


async def test_history_keeps_every_verification_with_its_evidence(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.facts.record("f", "it is so", check="c")
    for state, holds, evidence in (
        (mine, True, "exit 0"),
        (theirs, False, "exit 1"),
        (mine, False, "exit 1 again"),
        (theirs, True, "exit 0 again"),
    ):
        clock.move(minutes=1)
        await state.facts.verify("f", holds, evidence)

    page = await mine.events.history("fact:f")
    kept: list[Any] = [
        (e.actor.agent, e.version, row["trust"], row["held"], row["evidence"])
        for e in page.events
        if (row := e.row or {}) and e.operation == "verify"
    ]
    assert kept == [
        ("codex", 2, "trusted", True, "exit 0"),
        ("claude", 3, "refuted", False, "exit 1"),
        ("codex", 4, "refuted", False, "exit 1 again"),
        ("claude", 5, "trusted", True, "exit 0 again"),
    ]


async def test_a_verification_of_another_version_is_refused(mine: State, theirs: State) -> None:
    await mine.facts.record("f", "it is so", check="c")
    await mine.facts.record("f", check="c2")
    before = await got(mine)
    for holds in (True, False):
        with pytest.raises(VersionConflict, match="fact 'f' is at version 2, not 1"):
            await theirs.facts.verify("f", holds, "seen", expected_version=1)
    assert await got(mine) == before
    verified = await theirs.facts.verify("f", True, "seen", expected_version=2)
    assert (verified.fact.version, verified.fact.trust) == (3, Trust.TRUSTED)


CHANGED_BY_ANOTHER: dict[str, dict[str, Any]] = {
    "the statement": {"statement": "PR 830 is merged"},
    "the check": {"check": "curl the page"},
    "the statement and the check": {"statement": "PR 830 is merged", "check": "curl the page"},
}


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("what", CHANGED_BY_ANOTHER)
async def test_a_verification_of_what_another_session_changed_a_short_time_ago_is_refused(
    mine: State, theirs: State, clock: FakeClock, what: str, holds: bool
) -> None:
    await record_pr(mine)
    change = CHANGED_BY_ANOTHER[what]
    await mine.facts.record("pr-830", **change, expected_version=1)
    before = await got(theirs, "pr-830")
    clock.move(minutes=5)

    with pytest.raises(VersionConflict) as refused:
        await theirs.facts.verify("pr-830", holds, "state: OPEN")

    assert str(refused.value) == (
        f"version_conflict: another session changed {what} of fact 'PR-830' a short time ago "
        f"(check: {change.get('check', 'gh pr view 830')} · "
        f'believed: "{change.get("statement", "PR 830 is open")}"). If it is this that you have '
        "checked, say it again with expected_version=2; nothing was saved."
    )
    assert await got(theirs, "pr-830") == before
    made = "supersede" if "statement" in change else "record"
    assert await operations(mine, "fact:pr-830") == ["record", made, "refused"]
    with pytest.raises(VersionConflict, match="fact 'PR-830' is at version 2, not 1"):
        await theirs.facts.verify("pr-830", holds, "state: OPEN", expected_version=1)
    assert await got(theirs, "pr-830") == before
    verified = await theirs.facts.verify("pr-830", holds, "merged", expected_version=2)
    assert (verified.fact.version, verified.fact.held) == (3, holds)
    assert (await theirs.facts.verify("pr-830", holds, "merged")).fact.version == 4


async def refused_as_changed(state: State, what: str = "statement", name: str = "f") -> None:
    """It is refused, whatever the check said, and nothing is saved."""
    before = await got(state, name)
    for holds in (True, False):
        with pytest.raises(VersionConflict, match=f"another session changed the {what} of fact"):
            await state.facts.verify(name, holds, "seen")
    assert await got(state, name) == before


async def test_a_refused_verification_is_refused_again_whatever_else_the_session_writes(
    mine: State, theirs: State
) -> None:
    await mine.facts.record("f", "it is so", check="c")
    await say(mine, "it is not")
    await refused_as_changed(theirs)
    await theirs.journal.append("I read the list again")
    await theirs.threads.set("t", relies_on=["f"])
    await theirs.facts.record("g", "it follows", check="c", because=["f"])
    await theirs.facts.verify("g", True, "seen")
    assert (await theirs.facts.record("f", "it is not", check="c")).unchanged
    with pytest.raises(VersionConflict, match="fact 'f' is at version 2, not 1"):
        await theirs.facts.record("f", "it is", expected_version=1)
    with pytest.raises(Conflict):
        await theirs.facts.record("f", "it is")
    with pytest.raises(EvidenceRequired):
        await theirs.facts.verify("f", True, "")
    await refused_as_changed(theirs)
    await theirs.facts.list()
    await refused_as_changed(theirs)


@pytest.mark.parametrize("way", ["fell", "came due"])
async def test_that_a_fact_fell_or_came_due_by_the_session_is_no_sign_that_it_was_seen(
    mine: State, theirs: State, way: str
) -> None:
    await mine.facts.record("root", "it is solid", check="c")
    await mine.facts.record("f", "it is so", check="c", because=["root"])
    if way == "came due":
        await mine.facts.verify("root", False, "exit 1")
    await mine.facts.record("f", check="another")
    touched = (await theirs.facts.verify("root", way == "came due", "seen")).touched
    assert [*touched.fell, *touched.again] == ["f"]
    await refused_as_changed(theirs, "check")


@pytest.mark.parametrize("others", [1, 5, 60])
async def test_a_change_is_found_behind_any_number_of_later_events(
    mine: State, theirs: State, clock: FakeClock, others: int
) -> None:
    await mine.facts.record("root", "it is solid", check="c")
    await mine.facts.record("f", "it is so", check="c", because=["root"])
    await theirs.facts.verify("f", True, "seen")
    clock.move(hours=2)
    await say(mine, "it is not")
    await mine.facts.record("f", because=["root"])
    for n in range(others):
        clock.move(seconds=30)
        await mine.facts.record("f", source=f"page {n}")
        await mine.facts.verify("f", True, "seen")
        await mine.facts.verify("root", bool(n % 2), "seen")
        await theirs.journal.append("I am still at it")
        await refused_as_changed(theirs)
    version = (await got(theirs)).version
    assert (await theirs.facts.verify("f", True, "e", expected_version=version)).fact.held


@pytest.mark.parametrize("what", CHANGED_BY_ANOTHER)
async def test_an_hour_after_the_change_a_verification_counts(
    mine: State, theirs: State, clock: FakeClock, what: str
) -> None:
    await mine.facts.record("f", "PR 830 is open", check="c")
    await mine.facts.record("f", **CHANGED_BY_ANOTHER[what], expected_version=1)
    clock.move(minutes=30)
    await mine.facts.record("f", source="a book")
    clock.move(minutes=30, microseconds=-1)
    await refused_as_changed(theirs, what.removeprefix("the "))
    clock.move(microseconds=1)
    verified = (await theirs.facts.verify("f", True, "seen")).fact
    assert (verified.version, verified.trust) == (4, Trust.TRUSTED)


async def test_the_newest_change_counts_and_not_an_older_one(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.facts.record("f", "one", check="c")
    await say(mine, "two")
    clock.move(minutes=40)
    await mine.facts.record("f", check="d")
    clock.move(minutes=40)
    await refused_as_changed(theirs, "check")
    clock.move(minutes=20)
    assert (await theirs.facts.verify("f", True, "seen")).fact.version == 4


async def test_a_change_that_was_taken_back_is_none(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.facts.record("f", "one", check="c")
    clock.move(hours=2)
    await say(mine, "two")
    await mine.facts.record("f", check="d")
    await say(mine, "one")
    await refused_as_changed(theirs, "check")
    await mine.facts.record("f", check="c")
    assert (await theirs.facts.verify("f", True, "seen")).fact.trust is Trust.TRUSTED


async def test_the_first_statement_of_another_session_changes_nothing(
    mine: State, theirs: State
) -> None:
    await mine.facts.record("f", "one", check="c")
    await mine.facts.record("f", source="a book")
    assert (await theirs.facts.verify("f", True, "seen")).fact.version == 3


@pytest.mark.parametrize("what", CHANGED_BY_ANOTHER)
async def test_a_change_of_the_session_itself_is_no_conflict_and_a_later_one_of_another_is(
    mine: State, theirs: State, what: str
) -> None:
    change = CHANGED_BY_ANOTHER[what]
    await theirs.facts.record("f", "PR 830 is open", check="c")
    await mine.facts.record("f", **change, expected_version=1)
    for version in (3, 4):
        assert (await mine.facts.verify("f", True, "seen")).fact.version == version
    await refused_as_changed(theirs, what.removeprefix("the "))
    await theirs.facts.record("f", "PR 830 is gone", expected_version=4)
    await refused_as_changed(mine)
    assert (await theirs.facts.verify("f", True, "seen")).fact.version == 6
    await refused_as_changed(mine)


@pytest.mark.parametrize("way", ["record", "verify"])
async def test_a_session_that_wrote_to_the_fact_since_has_seen_what_it_says(
    mine: State, theirs: State, way: str
) -> None:
    await mine.facts.record("f", "one", check="c")
    await say(mine, "two")
    await refused_as_changed(theirs)
    if way == "record":
        await theirs.facts.record("f", source="a book")
    else:
        await theirs.facts.verify("f", True, "seen", expected_version=2)
    assert (await theirs.facts.verify("f", False, "seen")).fact.version == 4
    await say(mine, "three")
    await refused_as_changed(theirs)


async def test_who_has_never_written_or_has_no_name_may_not_have_seen_it_either(
    open_state: Open, mine: State, clock: FakeClock
) -> None:
    new, nobody = open_state(session="s3"), open_state(session="")
    other = open_state(session="", agent="claude")
    await mine.facts.record("f", "one", check="c")
    await say(mine, "two")
    await refused_as_changed(new)
    await refused_as_changed(nobody)
    await say(nobody, "three")
    await refused_as_changed(mine)
    await refused_as_changed(other)
    # Commands in a shell have no session; those of one agent, client and place are taken as one.
    assert (await nobody.facts.verify("f", True, "seen")).fact.version == 4
    clock.move(hours=1)
    for version, state in enumerate((new, other, mine), 5):
        assert (await state.facts.verify("f", True, "seen")).fact.version == version


async def test_a_change_to_another_fact_or_in_another_project_is_none(
    open_state: Open, mine: State, theirs: State
) -> None:
    elsewhere = open_state(project="other")
    for state, name in ((mine, "f"), (mine, "g"), (elsewhere, "f")):
        await state.facts.record(name, "one", check="c")
    await say(mine, "two", "g")
    await say(elsewhere, "two")
    assert (await theirs.facts.verify("f", True, "seen")).fact.version == 2
    await refused_as_changed(theirs, name="g")


async def test_a_verification_that_says_the_opposite_of_the_last_shows_the_fact_as_it_was(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.facts.record("f", "it is so", check="c")
    for state, holds, is_opposite in (
        (mine, True, False),
        (mine, True, False),
        (theirs, False, True),
        (mine, False, False),
        (theirs, True, True),
    ):
        was = await got(state)
        clock.move(minutes=1)
        verified = await state.facts.verify("f", holds, f"seen at {clock.now()}")
        assert verified.before == (was if is_opposite else None)
        assert await got(state) == verified.fact
    await say(mine, "it is not")
    assert (await mine.facts.verify("f", False, "another statement")).before is None


async def test_only_what_is_there_can_be_verified_or_traced(open_state: Open) -> None:
    state, other = open_state(), open_state(project="other")
    await record_pr(other)
    for attempt in (state.facts.verify("pr-830", True, "seen"), state.facts.trace("pr-830")):
        with pytest.raises(NotFound) as refused:
            await attempt
        assert str(refused.value) == (
            "not_found: no fact 'pr-830'. fact_list shows them; fact_record makes one."
        )
    assert (await state.facts.list()).facts == []


async def test_evidence_is_neither_too_long_nor_a_secret(state: State) -> None:
    before = await record_pr(state)
    with pytest.raises(OverLimit, match="the evidence for fact 'PR-830' would be 2,001 characters"):
        await state.facts.verify("pr-830", True, "x" * 2001)
    with pytest.raises(SecretRefused, match="the evidence for fact 'PR-830' holds what looks like"):
        await state.facts.verify("pr-830", True, SECRET)
    assert await got(state, "pr-830") == before
    verified = await state.facts.verify("pr-830", True, "x" * 2000)
    assert verified.fact.evidence == "x" * 2000


# Lists


async def queue_of(state: State, clock: FakeClock) -> None:
    await fact_in(state, Trust.ARCHIVAL, "archival")
    await fact_in(state, Trust.STALE, "stale")
    await fact_in(state, Trust.TRUSTED, "trusted")
    await state.facts.record("late", "it was so", check="c", recheck_after="1h")
    await state.facts.record("soon", "it is so", check="c", recheck_after="5h")
    await state.facts.record("later", "it is so", check="c", recheck_after="3d")
    await state.facts.record("was trusted", "it is so", check="c", recheck_after="2h")
    await state.facts.verify("was trusted", True, "seen")
    clock.move(hours=3)


async def listed(state: State, **filters: Any) -> tuple[list[str], int]:
    page = await state.facts.list(**filters)
    return [fact.name for fact in page.facts], page.total


async def test_the_list_begins_with_what_is_due_and_ends_with_what_fell(
    state: State, clock: FakeClock
) -> None:
    await queue_of(state, clock)

    due, later = ["late", "was trusted"], ["soon", "trusted", "later"]
    fell = ["stale", "root of stale", "archival"]
    assert await listed(state) == (due + later + fell, 8)
    assert await listed(state, due=True) == (due, 2)
    assert await listed(state, trust="Trusted ") == (["trusted"], 1)
    for trust in (Trust.TRUSTED, " Trusted"):
        with pytest.raises(BadArgument) as refused:
            await state.facts.list(trust=trust, due=True)
        assert str(refused.value) == (
            "bad_argument: trust is 'trusted' and due is true, but what is due for a check is not "
            "trusted. Leave one of them out."
        )
    assert await listed(state, trust="provisional") == (["late", "soon", "later"], 3)
    assert await listed(state, trust="stale") == (["stale"], 1)
    assert await listed(state, trust="refuted") == (["root of stale"], 1)
    assert await listed(state, trust="archival", due=True) == ([], 0)
    counted = {Trust.TRUSTED: 1, Trust.PROVISIONAL: 1, Trust.STALE: 0}
    filters: list[dict[str, Any]] = [{}, {"due": True}, {"limit": 1}]
    filters += [{"trust": trust} for trust in Trust]
    filters += [{"trust": trust, "due": True} for trust in Trust if trust is not Trust.TRUSTED]
    for given in filters:
        assert (await state.facts.list(**given)).due == counted
    await state.facts.verify("root of stale", True, "exit 0")
    assert (await state.facts.list()).due == counted | {Trust.STALE: 1}
    await state.facts.verify("root of stale", False, "exit 1")
    assert (await state.facts.list()).due == counted
    assert state.totals.facts == {
        "provisional": 3,
        "trusted": 2,
        "stale": 1,
        "refuted": 1,
        "archival": 1,
    }
    with pytest.raises(BadArgument) as refused:
        await state.facts.list(trust="believed")
    assert str(refused.value) == (
        "bad_argument: trust is 'believed'. "
        "It is one of trusted, provisional, stale, refuted, archival."
    )


@pytest.mark.parametrize("filters", [{}, {"due": True}, {"trust": "provisional"}])
async def test_pages_visit_each_fact_once_even_when_the_clock_moves(
    state: State, clock: FakeClock, filters: dict[str, Any]
) -> None:
    for n in range(30):
        after = f"{1 + n % 5}h"
        await state.facts.record(
            f"f{n}", "it is so", check="c", recheck_after=after, archival=n % 7 == 0
        )
        if n % 3:
            await state.facts.verify(f"f{n}", n % 3 == 1, "seen")
    clock.move(hours=2)
    for limit in (1, 7, 30):
        whole, total = await listed(state, limit=100, **filters)
        assert len(whole) == len(set(whole)) == total
        page = await state.facts.list(limit=limit, **filters)
        seen = [fact.name for fact in page.facts]
        while page.cursor:
            clock.move(minutes=1)
            page = await state.facts.list(limit=limit, cursor=page.cursor, **filters)
            seen += [fact.name for fact in page.facts]
            assert page.total == total
        assert seen == whole


async def test_a_cursor_of_another_list_is_refused(state: State) -> None:
    for name in ("a", "b"):
        await state.facts.record(name, "it is so")
    cursor = (await state.facts.list(limit=1)).cursor
    with pytest.raises(BadArgument, match="the cursor comes from a list with other filters"):
        await state.facts.list(due=True, cursor=cursor)
    with pytest.raises(BadArgument, match="cursor 'x' is none that fact_list gave"):
        await state.facts.list(cursor="x")


# Threads


async def test_a_thread_relies_on_facts_and_shows_them(state: State, clock: FakeClock) -> None:
    await fact_in(state, Trust.TRUSTED, "Held")
    await fact_in(state, Trust.PROVISIONAL, "new")
    made = await state.threads.set("t", relies_on=["new", "held", "HELD"])
    relied = [
        Premise("Held", "c", None, True, Trust.TRUSTED, False, False),
        Premise("new", "c", None, False, Trust.PROVISIONAL, False, False),
    ]
    assert made.relies_on == relied
    detail = await state.threads.get("t")
    assert (detail.thread, detail.facts) == (
        made,
        [await got(state, "held"), await got(state, "new")],
    )
    last = await last_event(state)
    assert (await state.threads.set("t", relies_on=["held", "new"])).unchanged
    assert (await state.threads.set("t", relies_on=[])).unchanged
    assert await last_event(state) == last

    clock.move(hours=25)
    (shown,) = (await state.threads.list()).threads
    assert shown.relies_on == [replace(one, due=True, verified=False) for one in relied]
    changed = await state.threads.set("t", relies_on=["new"])
    assert (changed.version, changed.relies_on) == (2, [replace(relied[1], due=True)])
    cleared = await state.threads.set("t", clear=["relies_on"])
    assert (cleared.version, cleared.relies_on) == (3, [])
    assert (await state.threads.get("t")).facts == []


async def test_a_thread_cannot_rely_on_a_fact_that_is_not_there_or_on_too_many(
    state: State,
) -> None:
    await record_pr(state)
    with pytest.raises(NotFound, match="no fact 'pr-83'; there is 'PR-830'"):
        await state.threads.set("t", relies_on=["pr-830", "pr-83"])
    with pytest.raises(
        BadArgument, match="relies_on names 51 facts; thread 't' can rely on at mos"
    ):
        await state.threads.set("t", relies_on=["pr-830"] * 51)
    assert (await state.threads.list()).threads == []


async def test_a_thread_is_not_done_as_long_as_it_relies_on_what_fell(
    state: State, clock: FakeClock
) -> None:
    await fact_in(state, Trust.REFUTED, "Wrong")
    await fact_in(state, Trust.STALE, "hollow")
    await fact_in(state, Trust.TRUSTED, "good")
    await fact_in(state, Trust.PROVISIONAL, "new")
    before = await state.threads.set("t", relies_on=["wrong", "hollow", "good", "new"])

    with pytest.raises(EvidenceRequired) as refused:
        await state.threads.set("t", status="done", evidence="exit 0")
    assert str(refused.value) == (
        "evidence_required: thread 't' cannot be done: it relies on what does not hold: "
        "'hollow' (stale; check: c · believed: \"it is so\"), "
        "'Wrong' (refuted; check: c · believed: \"it is so\"). "
        'Check what it rests on (fact_list(trust="stale") shows that), record a reason that '
        "stands (fact_record with because), or say with relies_on "
        'what the work rests on now (clear=["relies_on"]: on nothing).'
    )
    assert (await state.threads.get("t")).thread == before
    only_wrong = re.escape(
        "relies on what does not hold: 'Wrong' (refuted; check: c · believed: \"it is so\"). "
        "Run its check (c) and tell fact_verify what it said, or say with relies_on"
    )
    with pytest.raises(EvidenceRequired, match=only_wrong):
        await state.threads.set("u", status="done", evidence="exit 0", relies_on=["wrong", "new"])

    only_hollow = re.escape(
        "what does not hold: 'hollow' (stale; check: c · believed: \"it is so\"). "
    )
    rests, run = "Check what it rests on", "Run its check \\(c\\)"
    await state.facts.verify("wrong", True, "it was the wrong directory")
    with pytest.raises(EvidenceRequired, match=only_hollow + rests):
        await state.threads.set("t", status="done", evidence="exit 0")
    await state.facts.verify("root of hollow", True, "exit 0")
    with pytest.raises(EvidenceRequired, match=only_hollow + run):
        await state.threads.set("t", status="done", evidence="exit 0")
    await state.facts.verify("hollow", True, "exit 0")
    clock.move(days=9)
    done = await state.threads.set("t", status="done", evidence="exit 0")
    assert (done.status, [premise.due for premise in done.relies_on]) == (Status.DONE, [True] * 4)


@pytest.mark.parametrize("trust", Trust)
@pytest.mark.parametrize("archival", [False, True])
@pytest.mark.parametrize("replacements", [1, 2])
async def test_a_thread_is_not_done_on_what_was_never_checked_in_the_place_of_what_fell(
    state: State, trust: Trust, archival: bool, replacements: int
) -> None:
    await fact_in(state, trust)
    await state.threads.set("t", relies_on=["f"])
    for n in range(replacements):
        await say(state, f"it is {n}", archival=archival)
    before = (await state.threads.get("t")).thread

    if trust in (Trust.REFUTED, Trust.STALE):
        with pytest.raises(EvidenceRequired) as refused:
            await state.threads.set("t", status="done", evidence="exit 0")
        assert str(refused.value) == (
            "evidence_required: thread 't' cannot be done: it relies on what does not hold: 'f' "
            f"(never checked, and what it said before was {trust}; check: c · believed: "
            f'"it is {replacements - 1}"). Run its check (c) and tell fact_verify what it said, '
            "or say with relies_on what the work rests on now "
            '(clear=["relies_on"]: on nothing).'
        )
        assert (await state.threads.get("t")).thread == before
        await state.facts.verify("f", True, "it held")
    done = await state.threads.set("t", status="done", evidence="exit 0")
    assert done.status is Status.DONE


@pytest.mark.parametrize("given", [{"relies_on": ["new"]}, {"clear": ["relies_on"]}])
async def test_a_thread_can_be_done_on_the_strength_of_something_else(
    state: State, given: dict[str, Any]
) -> None:
    await fact_in(state, Trust.REFUTED, "wrong")
    await fact_in(state, Trust.PROVISIONAL, "new")
    await state.threads.set("t", relies_on=["wrong"])
    done = await state.threads.set("t", status="done", evidence="exit 0", **given)
    assert (done.status, [p.name for p in done.relies_on]) == (
        Status.DONE,
        given.get("relies_on", []),
    )


@pytest.mark.parametrize("trust", [Trust.REFUTED, Trust.STALE])
async def test_a_thread_that_is_done_is_not_given_what_fell_to_rely_on(
    state: State, trust: Trust
) -> None:
    await fact_in(state, trust, "wrong")
    await fact_in(state, Trust.TRUSTED, "good")
    await fact_in(state, Trust.PROVISIONAL, "new")
    await state.threads.set("t", relies_on=["good"])
    before = await state.threads.set("t", status="done", evidence="exit 0")

    for given in (["wrong"], ["good", "wrong"]):
        with pytest.raises(EvidenceRequired) as refused:
            await state.threads.set("t", relies_on=given)
        assert str(refused.value).startswith(
            "evidence_required: thread 't' cannot be done: it relies on what does not hold: "
            f"'wrong' ({trust}; check: c · believed: \"it is so\"). "
        )
        assert (await state.threads.get("t")).thread == before

    given = await state.threads.set("t", relies_on=["good", "new"])
    assert (given.status, [p.name for p in given.relies_on]) == (Status.DONE, ["good", "new"])
    await state.facts.verify("good", False, "exit 1")
    noted = await state.threads.set("t", note="it fell since")
    assert (noted.status, [p.trust for p in noted.relies_on]) == (
        Status.DONE,
        [Trust.REFUTED, Trust.PROVISIONAL],
    )
    with pytest.raises(EvidenceRequired, match="it relies on what does not hold: 'good'"):
        await state.threads.set("t", relies_on=["good"])
    await say(state, "it is something else", "good")
    with pytest.raises(EvidenceRequired, match="never checked, and what it said before was ref"):
        await state.threads.set("t", relies_on=["good"])
    cleared = await state.threads.set("t", clear=["relies_on"])
    assert (cleared.status, cleared.relies_on) == (Status.DONE, [])


@pytest.mark.parametrize(
    ("given", "dropped"),
    [
        ({"clear": ["relies_on"]}, "good (trusted), hollow (stale), Wrong (refuted)"),
        ({"relies_on": ["good"]}, "hollow (stale), Wrong (refuted)"),
    ],
)
async def test_what_a_thread_no_longer_relies_on_is_told_in_its_event(
    state: State, given: dict[str, Any], dropped: str
) -> None:
    await fact_in(state, Trust.REFUTED, "Wrong")
    await fact_in(state, Trust.STALE, "hollow")
    await fact_in(state, Trust.TRUSTED, "good")
    await state.threads.set("t", relies_on=["wrong", "hollow", "good"])

    await state.threads.set("t", status="done", evidence="exit 0", **given)

    assert (await state.threads.get("t")).history[-1].summary == (
        f"active -> done (no longer relies on {dropped}) (evidence: exit 0)"
    )


async def test_a_thread_that_relies_on_a_statement_is_named_when_that_is_replaced(
    state: State,
) -> None:
    await fact_in(state, Trust.TRUSTED)
    before = await state.threads.set("t", relies_on=["f"])
    assert before.relies_on == [Premise("f", "c", None, True, Trust.TRUSTED, False, False)]

    superseded = await state.facts.record("f", "it is not", expected_version=2)

    assert superseded.touched == Touched([], 0, (), 0, [("t", Status.ACTIVE)], 1)
    assert (await state.threads.get("t")).thread == replace(
        before, relies_on=[Premise("f", "c", None, False, Trust.PROVISIONAL, False, False)]
    )


@pytest.mark.parametrize("status", ["active", "watching", "blocked", "dropped"])
async def test_a_thread_may_become_anything_else_while_it_relies_on_what_fell(
    state: State, status: str
) -> None:
    await fact_in(state, Trust.REFUTED, "wrong")
    waiting: dict[str, Any] = {"waiting_on": "bob"} if status == "blocked" else {}
    moved = await state.threads.set("t", relies_on=["wrong"], status=status, note="n", **waiting)
    assert (moved.status, moved.relies_on) == (
        status,
        [Premise("wrong", "c", None, False, Trust.REFUTED, False, False)],
    )


async def test_the_answer_to_a_verification_names_the_threads_that_it_touches(
    state: State,
) -> None:
    await state.facts.record("root", "it is so", check="c")
    await state.facts.record("leaf", "it follows", check="c", because=["root"])
    await state.threads.set("One", relies_on=["root"])
    await state.threads.set("two", relies_on=["leaf"], status="watching")
    await state.threads.set("both", relies_on=["leaf", "root"], status="dropped", note="n")
    await state.threads.set("none")

    trace = await state.facts.trace("root")
    refuted = await state.facts.verify("root", False, "exit 1")
    again = await state.facts.verify("root", True, "exit 0")
    held = await state.facts.verify("leaf", True, "exit 0")

    threads = [("One", Status.ACTIVE), ("two", Status.WATCHING), ("both", Status.DROPPED)]
    assert (trace.falls_count, trace.threads, trace.threads_count) == (1, threads, 3)
    assert refuted.touched == Touched(fell=["leaf"], fell_count=1, threads=threads, threads_count=3)
    assert again.touched == Touched(again=["leaf"], again_count=1, threads=threads, threads_count=3)
    assert held.touched == Touched(again=[], again_count=0, threads=threads[1:], threads_count=2)


async def test_of_what_threads_rely_on_the_fallen_come_first_and_what_is_never_due_last(
    state: State,
) -> None:
    await fact_in(state, Trust.ARCHIVAL, "kept")
    await state.facts.record("later", "it is so", check="c", recheck_after="9d")
    await state.facts.record("soon", "it is so", check="c", recheck_after="1d")
    await fact_in(state, Trust.REFUTED, "wrong")
    thread = await state.threads.set("t", relies_on=["kept", "later", "soon", "wrong"])

    def relied_on(tx: Reading) -> list[str]:
        return [fact.name for fact in fact_rows.facts_relied_on(tx, [thread], 3)]

    found = await state.database.read(state.caller, relied_on)
    assert found == ["wrong", "soon", "later"]


async def test_the_answer_names_at_most_20_of_what_it_touched_and_counts_all(state: State) -> None:
    await state.facts.record("root", "it is so", check="c")
    for n in range(25):
        await state.facts.record(f"f{n:02}", "it follows", check="c", because=["root"])
        await state.threads.set(f"t{n:02}", relies_on=[f"f{n:02}"])
    facts = [f"f{n:02}" for n in range(20)]
    threads = [(f"t{n:02}", Status.ACTIVE) for n in range(20)]
    refuted = await state.facts.verify("root", False, "exit 1")
    assert refuted.touched == Touched(facts, 25, (), 0, threads, 25)
    again = await state.facts.verify("root", True, "exit 0")
    assert again.touched == Touched((), 0, facts, 25, threads, 25)


# Large reasons


@pytest.mark.sqlite  # it is about the walk, which takes as many statements on either engine
@pytest.mark.parametrize("many", [50 if SOAK else 15], ids=["soak" if SOAK else "slice"])
async def test_large_reasons_fall_and_are_traced_edge_by_edge(state: State, many: int) -> None:
    """Four facts with 50 reasons of 50 premises each, a chain over one root: 12,500 edges.

    Always run is a tenth of it. The four stand until the last reason falls, so that each premise
    before it comes by them.
    """
    facts, tops = state.facts, [f"top{n}" for n in range(4)]
    await facts.record("root", "it is solid", check="c")
    reasons = [[f"m{n:02}-{i:02}" for i in range(many)] for n in range(many)]
    below = "root"
    for name in chain.from_iterable(reasons):
        await facts.record(name, "it follows", because=[below])
        below = name
    for top in tops:
        for reason in reasons:
            await facts.record(top, "it follows from much", because=reason)
    await state.threads.set("t", relies_on=["top3"])
    threads = [("t", Status.ACTIVE)]

    seconds, chained = many / 10, many**2
    in_time = spent(seconds)
    root, top = await facts.trace("root"), await facts.trace("top0")
    in_time()
    assert (root.falls_count, root.carries_count) == (chained + 4, chained + 4)
    assert root.threads == threads
    assert (len(root.carries), all(one.falls for one in root.carries)) == (100, True)
    assert (top.rests_on_count, top.carries, names(top.fact.reasons)) == (
        chained + 1,
        [],
        reasons,
    )
    assert [(one.fact.name, one.reason, one.depth) for one in top.rests_on[:3]] == [
        ("m00-00", 1, 1),
        ("root", 1, 2),
        ("m00-01", 1, 1),
    ]
    assert [one.depth for one in root.carries] == list(range(1, 101))

    in_time = spent(seconds)
    refuted = await facts.verify("root", False, "exit 1")
    in_time()
    assert (refuted.touched.fell_count, refuted.touched.threads) == (chained + 4, threads)
    assert state.totals.facts == dict.fromkeys(Trust, 0) | {"stale": chained + 4, "refuted": 1}
    assert [(await got(state, top)).trust for top in tops] == [Trust.STALE] * 4

    in_time = spent(seconds)
    again = await facts.verify("root", True, "exit 0")
    in_time()
    assert (again.touched.again, again.touched.threads) == (["m00-00"], [])


# The file itself


VERIFIED = "trust = 'trusted', recheck_at = created_at, held = 1, verified_at = created_at"

FORGOTTEN = "verified = NULL, held = NULL, verified_at = NULL, verified_by = NULL, evidence = ''"


def changed_in(store: Plain, change: str) -> int:
    """Write SQL of this file's own over the fact `f`; returns how many rows it changed."""
    return store.execute(f"UPDATE facts SET {change} WHERE name = 'f'").rowcount  # noqa: S608


@pytest.mark.parametrize(
    ("trust", "change", "why"),
    [
        (Trust.PROVISIONAL, "trust = 'trusted'", "only a verification makes a fact trusted"),
        (Trust.ARCHIVAL, VERIFIED, "only a verification makes a fact trusted"),
        (Trust.STALE, "trust = 'trusted'", "only a verification"),
        (Trust.REFUTED, "trust = 'trusted', held = 1", "only a verification"),
        (
            Trust.STALE,
            "trust = 'provisional', recheck_at = created_at",
            "only a verification brings back what fell",
        ),
        (
            Trust.REFUTED,
            "trust = 'provisional', recheck_at = created_at, held = NULL",
            "only a verification brings back what fell",
        ),
        (Trust.STALE, "trust = 'archival'", "only a verification brings back what fell"),
        (Trust.REFUTED, "trust = 'archival'", "only a verification brings back what fell"),
        (Trust.STALE, "trust = 'refuted'", CHECK),
        (Trust.TRUSTED, "\"check\" = '', verified = verified + 1", CHECK),
        (Trust.TRUSTED, "\"check\" = ''", "one of this statement by this check"),
        (Trust.TRUSTED, "\"check\" = 'd'", "one of this statement by this check"),
        (Trust.TRUSTED, "statement = 'it is not'", "one of this statement by this check"),
        (
            Trust.TRUSTED,
            "statement = 'it is not', stated = stated + 1, version = version + 1, evidence = 'e'",
            "one of this statement by this check",
        ),
        (
            Trust.TRUSTED,
            "statement = 'it is not', \"check\" = 'd'",
            "one of this statement by this check",
        ),
        (Trust.TRUSTED, "recheck_at = NULL", CHECK),
        (Trust.TRUSTED, FORGOTTEN, CHECK),
        (Trust.TRUSTED, "held = 0", CHECK),
        (Trust.TRUSTED, "evidence = ''", CHECK),
        (Trust.PROVISIONAL, "statement = ''", CHECK),
    ],
)
async def test_the_file_refuses_trust_that_no_verification_gave(
    state: State, path: str, trust: Trust, change: str, why: str
) -> None:
    before = await fact_in(state, trust)
    with plain(path) as store, pytest.raises(Refused, match=why):
        changed_in(store, change)
    assert await got(state) == before


@pytest.mark.parametrize(
    ("trust", "change"),
    [
        (Trust.TRUSTED, 'statement = statement, "check" = "check", source = \'a book\''),
        (Trust.TRUSTED, "statement = 'it is not', \"check\" = 'd', verified = verified + 1"),
        (Trust.TRUSTED, f"\"check\" = 'd', trust = 'provisional', {FORGOTTEN}"),
        (Trust.PROVISIONAL, "statement = 'it is not', \"check\" = 'd'"),
        (Trust.REFUTED, "\"check\" = 'd'"),
    ],
)
async def test_the_file_takes_another_statement_or_check_of_what_is_not_trusted_by_the_old(
    state: State, path: str, trust: Trust, change: str
) -> None:
    await fact_in(state, trust)
    with plain(path) as store:
        store.execute("BEGIN")
        assert changed_in(store, change) == 1
        store.execute("ROLLBACK")


async def test_the_file_refuses_to_make_a_stale_fact_trusted_by_the_verification_it_has(
    state: State, path: str
) -> None:
    await fact_in(state, Trust.STALE)
    before = (await state.facts.verify("f", True, "seen")).fact
    assert (before.trust, before.held) == (Trust.STALE, True)
    with plain(path) as store, pytest.raises(Refused, match="only a verification"):
        store.execute("UPDATE facts SET trust = 'trusted', recheck_at = created_at")
    assert await got(state) == before


async def test_the_file_refuses_a_new_fact_that_is_trusted_without_a_verification(
    state: State, path: str
) -> None:
    await fact_in(state, Trust.PROVISIONAL)
    with plain(path) as store:
        store.execute("CREATE TEMP TABLE other AS SELECT * FROM facts")
        store.execute("UPDATE other SET name = 'g', trust = 'trusted'")
        with pytest.raises(Refused, match=CHECK):
            store.execute("INSERT INTO facts SELECT * FROM other")
    assert await listed(state) == (["f"], 1)


@pytest.mark.parametrize("trust", Trust)
async def test_the_file_refuses_to_delete_a_fact(state: State, path: str, trust: Trust) -> None:
    before = await fact_in(state, trust)
    with plain(path) as store, pytest.raises(Refused, match="not deleted"):
        store.execute("DELETE FROM facts WHERE name = 'f'")
    assert await got(state) == before


async def test_a_name_that_comes_alone_is_one_name_not_its_letters(state: State) -> None:
    for name in ("p", "r", "pr"):
        await state.facts.record(name, "it is so", check="c")
    fact = (await state.facts.record("f", "so is this", because="pr")).fact
    thread = await state.threads.set("t", relies_on="pr", criteria="it runs")
    needing = await state.threads.set("u", depends_on="t")

    assert [[premise.name for premise in reason] for reason in fact.reasons] == [["pr"]]
    assert ([premise.name for premise in thread.relies_on], thread.criteria) == (["pr"], 1)
    assert needing.depends_on == ["t"]


@pytest.mark.parametrize("holds", ["no", "0", 2, None])
async def test_a_check_held_or_did_not(state: State, holds: Any) -> None:
    await state.facts.record("f", "it is so", check="c")
    with pytest.raises(BadArgument, match="holds is "):
        await state.facts.verify("f", holds, "exit 0")
    assert (await got(state, "f")).verified_at is None
