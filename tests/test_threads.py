"""The queue: statuses and what they need, criteria, dependencies, places, order and paging."""

from __future__ import annotations

import itertools
import sqlite3
from typing import Any

import pytest
from conftest import Call, FakeClock, Open
from peeking import CHECK, Refused, plain

from mcp_state.api import State
from mcp_state.errors import (
    BadArgument,
    EvidenceRequired,
    IllegalTransition,
    NotFound,
    OverLimit,
    VersionConflict,
)
from mcp_state.models import MOVES, Place, Status, Thread, ThreadDetail
from mcp_state.store import opening

NEEDS: dict[Status, dict[str, Any]] = {
    Status.ACTIVE: {},
    Status.WATCHING: {},
    Status.BLOCKED: {"waiting_on": "reviewer"},
    Status.DONE: {"evidence": "pytest: exit 0"},
    Status.DROPPED: {"note": "no longer wanted"},
}


def scope(threads: int, event: int) -> str:
    noun = "thread" if threads == 1 else "threads"
    return f"[acme (from --project) · {threads} {noun} · event {event}]"


async def thread_in(state: State, status: Status, name: str = "t") -> Thread:
    return await state.threads.set(name, status=status, **NEEDS[status])


async def got(state: State, name: str = "t") -> Thread:
    return (await state.threads.get(name)).thread


async def names(state: State, **filters: Any) -> list[str]:
    return [thread.name for thread in (await state.threads.list(**filters)).threads]


async def events(state: State, name: str = "t") -> list[str]:
    page = await state.events.history(f"thread:{name}", limit=200)
    return [event.summary for event in page.events]


# Status


@pytest.mark.parametrize(("old", "new"), list(itertools.product(Status, Status)))
async def test_every_transition_is_as_the_table_says(
    state: State, old: Status, new: Status
) -> None:
    before = await thread_in(state, old)
    given: dict[str, Any] = {**NEEDS[new]}
    if old in (Status.DONE, Status.DROPPED):
        given["note"] = "why"

    if new is old or new in MOVES[old]:
        after = await state.threads.set("t", status=new, **given)
        assert after.status is new
        assert after == await got(state) or after.unchanged
    else:
        with pytest.raises(IllegalTransition) as refused:
            await state.threads.set("t", status=new, **given)
        assert str(refused.value) == (
            f"illegal_transition: thread 't' is {old}, it cannot become {new}. "
            f"From {old} it can become: active (with a note saying why)."
        )
        assert await got(state) == before
        assert len(await events(state)) == 1


def test_the_table_of_moves_is_the_one_that_was_promised() -> None:
    everything = set(Status)
    assert {old: set(new) for old, new in MOVES.items()} == {
        Status.ACTIVE: everything - {Status.ACTIVE},
        Status.WATCHING: everything - {Status.WATCHING},
        Status.BLOCKED: everything - {Status.BLOCKED},
        Status.DONE: {Status.ACTIVE},
        Status.DROPPED: {Status.ACTIVE},
    }


@pytest.mark.parametrize("new", Status)
async def test_a_new_thread_may_begin_in_any_status(state: State, new: Status) -> None:
    assert (await thread_in(state, new)).status is new


@pytest.mark.parametrize("old", [None, Status.ACTIVE, Status.WATCHING])
async def test_blocked_needs_waiting_on(call: Call, state: State, old: Status | None) -> None:
    if old:
        await thread_in(state, old)
    count = 1 if old else 0
    last = scope(1, 1) if old else "[acme (from --project) · nothing stored yet]"

    assert await call("thread_set", error=True, thread="t", status="blocked") == (
        "error: bad_argument: thread 't' is to be blocked, but waiting_on does not say on whom or "
        f"what. Give waiting_on; use watching if there is nothing to wait for.\n{last}"
    )
    assert len(await events(state)) == count


@pytest.mark.parametrize("old", [None, Status.ACTIVE, Status.BLOCKED])
async def test_done_needs_evidence(call: Call, state: State, old: Status | None) -> None:
    if old:
        await thread_in(state, old)
    last = scope(1, 1) if old else "[acme (from --project) · nothing stored yet]"

    assert await call("thread_set", error=True, thread="t", status="done", note="trust me") == (
        "error: evidence_required: thread 't' is not done without evidence. Give evidence: a test "
        f"run and its exit code, a commit, a link, file:line.\n{last}"
    )
    if old:
        assert (await got(state)).status is old


async def test_dropped_needs_a_note_of_its_own_not_an_older_one(call: Call, state: State) -> None:
    await state.threads.set("t", note="the customer asked for it")

    assert await call("thread_set", error=True, thread="t", status="dropped") == (
        "error: bad_argument: thread 't' is to be dropped without a note. "
        f"Give a note saying why.\n{scope(1, 1)}"
    )
    assert (await got(state)).status is Status.ACTIVE
    dropped = await state.threads.set("t", status="dropped", note="no longer wanted")
    assert (dropped.status, dropped.note) == (Status.DROPPED, "no longer wanted")
    assert (await state.threads.set("t", status="dropped")).unchanged


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"status": "done", "evidence": " \n"}, "evidence_required"),
        ({"status": "blocked", "waiting_on": "\t"}, "bad_argument"),
        ({"status": "dropped", "note": "\u00a0"}, "bad_argument"),
    ],
)
async def test_blanks_prove_and_explain_nothing(
    call: Call, state: State, given: dict[str, str], code: str
) -> None:
    await state.threads.set("t", note="first", evidence=" ")

    text = await call("thread_set", error=True, thread="t", **given)

    assert text.startswith(f"error: {code}: thread 't' is ")
    assert len(await events(state)) == 1


async def test_blanks_are_no_reason_to_reopen(call: Call, state: State) -> None:
    await state.threads.set("t", status="dropped", note="not needed")

    text = await call("thread_set", error=True, thread="t", status="active", note="  ")

    assert text.startswith("error: illegal_transition: thread 't' is dropped; it reopens only")
    assert (await got(state)).status is Status.DROPPED


@pytest.mark.parametrize("old", [Status.DONE, Status.DROPPED])
async def test_a_closed_thread_reopens_only_with_a_note(
    call: Call, state: State, old: Status
) -> None:
    await state.threads.set("t", status=old, evidence="exit 0", note="first")

    assert await call("thread_set", error=True, thread="t", status="active") == (
        f"error: illegal_transition: thread 't' is {old}; it reopens only with a note saying why. "
        f'thread_set(thread="t", status="active", note="why").\n{scope(1, 1)}'
    )
    reopened = await state.threads.set("t", status="active", note="it came back")
    assert (reopened.status, reopened.note, reopened.evidence) == ("active", "it came back", "")


@pytest.mark.parametrize("spelled", ["BLOCKED", "Blocked", " blocked ", "block-ed", "b_l o-cked"])
async def test_a_status_may_be_spelled_in_any_way(call: Call, state: State, spelled: str) -> None:
    await call("thread_set", thread="t", status=spelled, waiting_on="x")
    await state.threads.set("u", status=spelled, waiting_on="x")
    assert await names(state, status=Status.BLOCKED) == ["t", "u"]


async def test_an_unknown_status_lists_those_there_are(call: Call, state: State) -> None:
    assert await call("thread_set", error=True, thread="t", status="open") == (
        'error: bad_argument: status of thread_set is "open". It takes one of active, watching, '
        "blocked, done, dropped; nothing was done.\n[acme (from --project) · nothing stored yet]"
    )
    with pytest.raises(BadArgument, match="Statuses are active, watching, blocked, done, dropped"):
        await state.threads.set("t", status="open")


# The next look


@pytest.mark.parametrize("status", [Status.WATCHING, Status.BLOCKED])
async def test_the_next_look_is_in_24_hours_if_not_given(
    call: Call, state: State, clock: FakeClock, status: Status
) -> None:
    await thread_in(state, status)
    clock.move(hours=24, seconds=-1)
    assert not (await got(state)).due
    assert await names(state, due=True) == []
    clock.move(seconds=1)
    assert (await got(state)).due
    assert await names(state, due=True) == ["t"]
    clock.move(hours=3)
    assert f"t [{status}, due 3 h ago]" in await call("thread_list")


async def test_restating_a_status_sets_the_next_look(state: State, clock: FakeClock) -> None:
    await state.threads.set("t", status="watching", recheck_after="1h")
    clock.move(hours=2)
    assert (await got(state)).due

    restated = await state.threads.set("t", status="watching")
    assert not restated.due
    assert restated.recheck_at is not None
    assert (restated.recheck_at - clock.now()).total_seconds() == 24 * 3600
    assert restated.status_at < clock.now()


async def test_changing_something_else_leaves_the_next_look(state: State, clock: FakeClock) -> None:
    first = await state.threads.set("t", status="watching", recheck_after="1h")
    clock.move(minutes=10)
    assert (await state.threads.set("t", title="Other")).recheck_at == first.recheck_at
    later = await state.threads.set("t", recheck_after="3d")
    assert later.recheck_at is not None
    assert (later.recheck_at - clock.now()).days == 3


async def test_a_recheck_that_is_no_duration_or_has_no_status_is_refused(state: State) -> None:
    with pytest.raises(BadArgument, match="recheck_after is 'tomorrow', which is not a duration"):
        await state.threads.set("t", status="watching", recheck_after="tomorrow")
    for field in ("recheck_after", "waiting_on"):
        changes: Any = {field: "4h"}
        with pytest.raises(BadArgument) as refused:
            await state.threads.set("t", **changes)
        assert str(refused.value) == (
            f"bad_argument: {field} belongs to watching or blocked, and thread 't' would be "
            f"active. Leave {field} out, or set status to watching or blocked."
        )
    assert await names(state) == []


@pytest.mark.parametrize("new", [Status.ACTIVE, Status.DONE, Status.DROPPED])
async def test_leaving_a_waiting_status_clears_what_belongs_to_it(
    state: State, new: Status
) -> None:
    await state.threads.set("t", status="blocked", waiting_on="bob", check="gh pr view")
    after = await state.threads.set("t", status=new, **NEEDS[new])
    assert (after.waiting_on, after.recheck_at, after.due) == ("", None, False)
    assert after.check == "gh pr view"


async def test_from_blocked_to_watching_keeps_whom_it_waits_for(state: State) -> None:
    await state.threads.set("t", status="blocked", waiting_on="bob")
    assert (await state.threads.set("t", status="watching")).waiting_on == "bob"


# Fields


async def test_only_what_is_given_changes(state: State) -> None:
    await state.threads.set(
        "t", title="Fix it", next_action="rerun", check="make", note="n", priority=2
    )
    after = await state.threads.set("T", next_action="commit")
    assert (after.title, after.next_action, after.check, after.note, after.priority) == (
        "Fix it",
        "commit",
        "make",
        "n",
        2,
    )
    assert (after.name, after.version) == ("t", 2)


async def test_empty_and_null_arguments_are_left_out(call: Call, state: State) -> None:
    await state.threads.set("t", title="Fix it", priority=2, criteria=["a"])
    before = await got(state)
    fields = ("title", "next_action", "status", "priority", "depends_on", "criteria", "clear")
    for nothing in ("", None):
        text = await call("thread_set", thread="t", **dict.fromkeys(fields, nothing))
        assert text.startswith("unchanged, version 1: t [active, priority 2, 0/1 pass]  Fix it")
    assert await got(state) == before


async def test_an_unchanged_call_writes_no_event(call: Call, state: State) -> None:
    await call("thread_set", thread="t", title="Fix it", next_action="go", criteria=["a"])

    assert await call(
        "thread_set", thread="T", title="Fix it", next_action="go", criteria=["a"], status="active"
    ) == (f"unchanged, version 1: t [active, 0/1 pass]  Fix it\n    next: go\n{scope(1, 1)}")
    assert len(await events(state)) == 1


async def test_a_list_says_what_is_next_only_of_a_thread_that_is_open(call: Call) -> None:
    await call("thread_set", thread="t", title="Fix it", next_action="go")
    done = await call("thread_set", thread="t", status="done", evidence="exit 0")
    assert done == f"saved, version 2: t [done]  Fix it\n    evidence: exit 0\n{scope(1, 2)}"
    reopened = await call("thread_set", thread="t", status="active", note="red again")
    assert reopened == f"saved, version 3: t [active]  Fix it\n    next: go\n{scope(1, 3)}"


async def test_clear_empties_a_field(state: State) -> None:
    await state.threads.set("need")
    await state.threads.set(
        "t",
        next_action="a",
        check="c",
        note="n",
        evidence="e",
        places=[Place("/x")],
        depends_on=["need"],
    )
    fields = ("next_action", "check", "note", "evidence", "places", "depends_on")
    after = await state.threads.set("t", clear=fields)
    assert (after.next_action, after.check, after.note, after.evidence) == ("", "", "", "")
    assert (list(after.places), list(after.depends_on), after.waits_for) == ([], [], 0)


async def test_clear_refuses_what_a_status_needs_and_what_is_no_such_field(state: State) -> None:
    await thread_in(state, Status.BLOCKED, "b")
    await thread_in(state, Status.DONE, "d")
    await thread_in(state, Status.DROPPED, "x")

    with pytest.raises(BadArgument, match="waiting_on does not say"):
        await state.threads.set("b", clear=["waiting_on"])
    with pytest.raises(EvidenceRequired):
        await state.threads.set("d", clear=["evidence"])
    with pytest.raises(BadArgument, match="dropped without a note"):
        await state.threads.set("x", clear=["note"])
    with pytest.raises(BadArgument, match=r"'title' cannot be cleared. clear takes next_action, "):
        await state.threads.set("b", clear=["title"])
    with pytest.raises(BadArgument, match="note is both given and to be cleared"):
        await state.threads.set("b", clear=["note"], note="x")
    assert [(await got(state, n)).version for n in "bdx"] == [1, 1, 1]


async def test_a_refusal_quotes_the_name_in_the_call_that_it_proposes(state: State) -> None:
    await state.threads.set('the "big" one', status="done", evidence="merged")
    with pytest.raises(IllegalTransition) as refused:
        await state.threads.claim('the "big" one')
    assert refused.value.next_step == (
        r'Reopen it with thread_set(thread="the \"big\" one", status="active", note="why").'
    )


@pytest.mark.parametrize("priority", [0, 10, -1])
async def test_a_priority_is_1_to_9(state: State, priority: int) -> None:
    with pytest.raises(BadArgument, match=rf"priority is {priority}. Use 1 \(first\) to 9"):
        await state.threads.set("t", priority=priority)


async def test_a_text_over_its_limit_is_refused_and_nothing_changes(state: State) -> None:
    await state.threads.set("t", title="t" * 300, next_action="n" * 2000)
    with pytest.raises(OverLimit) as refused:
        await state.threads.set("t", title="t" * 301)
    assert str(refused.value) == (
        "over_limit: title of thread 't' would be 301 characters; the limit is 300. "
        "Shorten it; long text belongs in the journal or in a memory block."
    )
    for field in ("next_action", "check", "evidence", "note"):
        changes: Any = {field: "x" * 2001}
        with pytest.raises(OverLimit, match=rf"{field} of thread 't' would be 2,001 characters"):
            await state.threads.set("t", **changes)
    assert (await got(state)).version == 1


async def test_expected_version_guards_a_thread(call: Call, state: State) -> None:
    await call("thread_set", thread="Fix", expected_version=0)
    await call("thread_set", thread="fix", title="A", expected_version=1)

    assert await call("thread_set", error=True, thread="fix", title="B", expected_version=1) == (
        "error: version_conflict: thread 'Fix' is at version 2, not 1 (changed by mcp just now). "
        'Read it with thread_get(thread="Fix"), merge, and thread_set again with '
        f"expected_version=2.\n{scope(1, 3)}"
    )
    with pytest.raises(VersionConflict, match="exists already, at version 2"):
        await state.threads.set("fix", expected_version=0)
    with pytest.raises(VersionConflict, match="'new' does not exist, so it is not at version 3"):
        await state.threads.set("new", expected_version=3)
    assert (await got(state, "fix")).title == "A"


async def test_a_thread_that_is_not_there_names_those_that_are_near(call: Call) -> None:
    await call("thread_set", thread="Fix-Import")

    assert await call("thread_get", error=True, thread="fix-imports") == (
        "error: not_found: no thread 'fix-imports'; there is 'Fix-Import'. thread_list shows the "
        f"open ones; thread_set creates one.\n{scope(1, 1)}"
    )


# Criteria


async def test_criteria_are_added_and_their_texts_never_change(state: State, path: str) -> None:
    await state.threads.set("t", criteria=["tests pass", "docs written"])
    after = await state.threads.set("t", criteria=["docs written", " reviewed "])
    assert (after.criteria, after.passing) == (3, 0)
    detail = await state.threads.get("t")
    assert [(c.number, c.text) for c in detail.criteria] == [
        (1, "tests pass"),
        (2, "docs written"),
        (3, "reviewed"),
    ]

    with plain(path) as store:
        for statement in ("UPDATE criteria SET text = 'easier'", "UPDATE criteria SET number = 9"):
            with pytest.raises(Refused, match="the text of a criterion never changes"):
                store.execute(statement)
        with pytest.raises(Refused, match="criteria are kept"):
            store.execute("DELETE FROM criteria")
        with pytest.raises(Refused, match=CHECK):
            store.execute("UPDATE threads SET status = 'done', evidence = 'x'")


async def test_a_thread_is_done_only_when_all_criteria_pass(call: Call, state: State) -> None:
    await call("thread_set", thread="t", criteria=["tests\npass", "docs written"])
    assert await call(
        "thread_check", thread="t", criterion="1", passes=True, evidence="exit 0"
    ) == (f"1/2 pass. t: criterion 1 passes: tests pass\n{scope(1, 2)}")

    assert await call("thread_set", error=True, thread="t", status="done", evidence="x") == (
        "error: evidence_required: 1 of 2 criteria of thread 't' do not pass: 2 (docs written). "
        f"Mark each with thread_check when it holds.\n{scope(1, 2)}"
    )
    await call("thread_check", thread="T", criterion="docs written", passes=True)
    assert (await call("thread_set", thread="t", status="done", evidence="x")).startswith(
        "saved, version 4: t [done, 2/2 pass]\n    evidence: x\n"
    )


async def test_a_done_thread_cannot_lose_or_gain_a_criterion(state: State) -> None:
    await state.threads.set("t", criteria=["a"])
    await state.threads.check("t", "a", passes=True)
    await state.threads.set("t", status="done", evidence="x")

    with pytest.raises(IllegalTransition, match=r"is done; a criterion of it cannot fail. Reopen"):
        await state.threads.check("t", "1", passes=False)
    with pytest.raises(IllegalTransition, match=r"is done; it gets no more criteria. Reopen"):
        await state.threads.set("t", criteria=["b"])
    with pytest.raises(EvidenceRequired, match="its new criteria were not checked"):
        await state.threads.set("u", status="done", evidence="x", criteria=["b"])
    assert (await got(state)).passing == 1

    await state.threads.set("t", status="active", note="broke again")
    assert (await state.threads.check("t", "1", passes=False)).passing == 0


async def test_the_evidence_of_an_earlier_check_stays_in_history(state: State) -> None:
    await state.threads.set("t", criteria=["a"])
    await state.threads.check("t", "1", passes=True, evidence="run 17:\nexit 0")
    await state.threads.check("t", "1", passes=False, evidence="run 18: exit 1")
    (criterion,) = (await state.threads.get("t")).criteria
    assert (criterion.passes, criterion.evidence) == (False, "run 18: exit 1")
    assert (await events(state))[1:] == [
        "criterion 1 passes, 1/1 pass (evidence: run 17: exit 0)",
        "criterion 1 does not pass, 0/1 pass (evidence: run 18: exit 1)",
    ]


async def test_a_criterion_that_is_not_there_says_which_are(state: State) -> None:
    await state.threads.set("t", criteria=["a", "b"])
    with pytest.raises(NotFound) as refused:
        await state.threads.check("t", "3", passes=True)
    assert str(refused.value) == (
        "not_found: thread 't' has no criterion '3'; it has 1 to 2. "
        'thread_get(thread="t") shows them; name one by its number.'
    )
    await state.threads.set("u")
    with pytest.raises(NotFound, match=r"thread 'u' has no criteria. Add them with thread_set"):
        await state.threads.check("u", "1", passes=True)


async def test_there_are_at_most_200_criteria_and_none_is_empty(state: State) -> None:
    await state.threads.set("t", criteria=[str(n) for n in range(200)])
    with pytest.raises(BadArgument, match="would have 201 criteria; at most 200"):
        await state.threads.set("t", criteria=["one more"])
    with pytest.raises(BadArgument, match="a criterion is empty"):
        await state.threads.set("u", criteria=[" "])
    assert (await got(state)).criteria == 200


# Places


@pytest.mark.parametrize(
    "given",
    [
        [{"path_or_repo": "/src", "role": "home", "note": "main"}, {"path_or_repo": "o/r"}],
        '[{"path_or_repo": "/src", "role": "home", "note": "main"}, {"path_or_repo": "o/r"}]',
    ],
)
async def test_places_arrive_as_a_list_or_as_json_text(
    call: Call, state: State, given: object
) -> None:
    await call("thread_set", thread="t", places=given)
    assert (await got(state)).places == [Place("/src", "home", "main"), Place("o/r", "home", "")]


async def test_a_single_place_may_come_alone(call: Call, state: State) -> None:
    await call("thread_set", thread="t", places={"path_or_repo": "/x", "role": "donor"})
    assert (await got(state)).places == [Place("/x", "donor")]


@pytest.mark.parametrize(
    "wrong",
    [
        [{"path": "/x"}],
        [{"path_or_repo": ""}],
        [{"path_or_repo": "/x", "role": "friend"}],
        [{"path_or_repo": "/x", "role": ["home"]}],
        [{"path_or_repo": 7}],
        [{"path_or_repo": "/x", "note": 7}],
        ["/x"],
        "/x",
        "[{",
    ],
)
async def test_a_place_that_is_none_is_refused(call: Call, state: State, wrong: object) -> None:
    text = await call("thread_set", error=True, thread="t", places=wrong)
    assert text.startswith(("error: bad_argument: a place is ", "error: bad_argument: places of "))
    assert await names(state) == []


# Dependencies


async def test_a_thread_waits_for_those_it_depends_on_until_they_are_done(state: State) -> None:
    await state.threads.set("a")
    await state.threads.set("b")
    c = await state.threads.set("c", depends_on=["A", "b", "a"])
    assert (list(c.depends_on), c.waits_for) == (["a", "b"], 2)

    await state.threads.set("a", status="done", evidence="x")
    await state.threads.set("b", status="dropped", note="x")
    assert (await got(state, "c")).waits_for == 1
    detail = await state.threads.get("c")
    assert list(detail.unfinished) == ["b"]
    assert list((await state.threads.get("b")).needed_by) == ["c"]

    await state.threads.set("a", status="active", note="again")
    assert (await got(state, "c")).waits_for == 2
    assert (await state.threads.set("c", depends_on=["a"])).waits_for == 1
    assert (await state.threads.set("c", depends_on=[])).waits_for == 1
    assert (await state.threads.set("c", clear=["depends_on"])).waits_for == 0


async def test_an_unknown_dependency_is_refused(call: Call, state: State) -> None:
    await call("thread_set", thread="Fix")
    assert await call("thread_set", error=True, thread="t", depends_on=["Fixx"]) == (
        "error: not_found: no thread 'Fixx'; there is 'Fix'. thread_list shows the open ones; "
        f"thread_set creates one.\n{scope(1, 1)}"
    )
    assert await names(state) == ["Fix"]


async def test_a_circle_of_dependencies_is_refused_showing_it(call: Call, state: State) -> None:
    await state.threads.set("A")
    await state.threads.set("b", depends_on=["A"])
    await state.threads.set("c", depends_on=["b"])

    assert await call("thread_set", error=True, thread="a", depends_on=["c"]) == (
        "error: bad_argument: that would be a circle of dependencies: A -> c -> b -> A. "
        f"Leave one of them out; nothing was changed.\n{scope(3, 3)}"
    )
    with pytest.raises(BadArgument, match="circle of dependencies: b -> b"):
        await state.threads.set("b", depends_on=["B"])
    assert list((await got(state, "a")).depends_on) == []


async def test_a_chain_of_1500_dependencies_has_no_recursion_limit(state: State, path: str) -> None:
    await state.threads.set("t0")
    with plain(path) as store:
        store.execute("""
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
            INSERT INTO threads (project, name, shown, created, created_at, title, status,
                status_at, changed, changed_at, changed_by, version, priority, next_action,
                waiting_on, "check", evidence, note, places)
            SELECT project, 't' || i, 't' || i, i + 1, created_at, title, status,
                status_at, i + 1, changed_at, changed_by, version, priority, next_action,
                waiting_on, "check", evidence, note, places
            FROM threads, n WHERE name = 't0'
        """)
        store.execute(
            "INSERT INTO needs SELECT project, name, 't' || (CAST(substr(name, 2) AS INTEGER) - 1) "
            "FROM threads WHERE name <> 't0'"
        )

    with pytest.raises(BadArgument) as refused:
        await state.threads.set("t0", depends_on=["t1500"])
    assert str(refused.value) == (
        "bad_argument: that would be a circle of dependencies: t0 -> t1500 -> t1499 -> t1498 -> "
        "t1497 -> t1496 -> … 1492 more … -> t3 -> t2 -> t1 -> t0. "
        "Leave one of them out; nothing was changed."
    )
    assert (await state.threads.set("new", depends_on=["t1500"])).waits_for == 1


# Lists


async def queue_of(state: State, clock: FakeClock) -> None:
    """One of each, so that the order is worth looking at."""
    await state.threads.set("later", status="watching", recheck_after="3d")
    await state.threads.set("low", priority=9)
    await state.threads.set("old-due", status="blocked", waiting_on="bob", recheck_after="1h")
    await state.threads.set("normal")
    await state.threads.set("due", status="watching", recheck_after="2h")
    await state.threads.set("normal-2")
    await state.threads.set("soon", status="blocked", waiting_on="bob", recheck_after="5h")
    await state.threads.set("high", priority=1)
    await state.threads.set("finished", status="done", evidence="x")
    await state.threads.set("gone", status="dropped", note="x")
    clock.move(hours=3)


async def test_the_list_is_in_the_order_to_work(call: Call, state: State, clock: FakeClock) -> None:
    await queue_of(state, clock)

    assert await call("thread_list") == (
        "8 of 8 open threads (4 active · 2 watching · 2 blocked · 1 done · 1 dropped)\n"
        "old-due [blocked, due 2 h ago]\n"
        "    waiting on bob, since 3 h\n"
        "due [watching, due 1 h ago]\n"
        "high [active, priority 1]\n"
        "normal [active]\n"
        "normal-2 [active]\n"
        "low [active, priority 9]\n"
        "soon [blocked, look again in 2 h]\n"
        "    waiting on bob, since 3 h\n"
        "later [watching, look again in 3 d]\n"
        f"{scope(10, 10)}"
    )


async def test_filters_narrow_the_list(call: Call, state: State, clock: FakeClock) -> None:
    await queue_of(state, clock)

    assert await names(state, due=True) == ["old-due", "due"]
    assert await names(state, status=Status.BLOCKED) == ["old-due", "soon"]
    assert await names(state, status=Status.WATCHING, due=True) == ["due"]
    assert await names(state, status=Status.ACTIVE) == ["high", "normal", "normal-2", "low"]
    assert await names(state, status=Status.ACTIVE, due=True) == []
    assert await names(state, status=Status.DONE) == ["finished"]
    assert await names(state, status=Status.DONE, due=True) == []
    assert (await call("thread_list", status="Watching", due="true")).splitlines()[0] == (
        "1 of 1 watching threads that are due "
        "(4 active · 2 watching · 2 blocked · 1 done · 1 dropped)"
    )


async def test_done_threads_are_listed_newest_first(state: State) -> None:
    for name in ("a", "b", "c"):
        await state.threads.set(name, status="done", evidence="x")
    await state.threads.set("a", evidence="y")
    assert await names(state, status=Status.DONE) == ["a", "c", "b"]
    page = await state.threads.list(status=Status.DONE, limit=2)
    rest = await state.threads.list(status=Status.DONE, limit=2, cursor=page.cursor)
    assert ([t.name for t in rest.threads], rest.cursor) == (["b"], "")


async def test_an_empty_list_shows_what_other_filters_would_show(call: Call) -> None:
    assert await call("thread_list") == (
        "No threads yet. thread_set(thread, title, next_action) makes one.\n"
        "[acme (from --project) · nothing stored yet]"
    )
    await call("thread_set", thread="t")
    for arguments, asked in (
        ({"due": True}, "open threads that are due"),
        ({"status": "blocked"}, "blocked threads"),
    ):
        assert await call("thread_list", **arguments) == (
            f"No {asked} here. Threads: 1 active · 0 watching · 0 blocked · 0 done · 0 dropped.\n"
            f"{scope(1, 1)}"
        )


async def test_pages_visit_each_thread_once_even_when_the_clock_moves(
    state: State, clock: FakeClock
) -> None:
    statuses = ("active", "watching", "blocked")
    for n in range(100):
        status = statuses[n % 3]
        changes: dict[str, Any] = {"status": status}
        if status != "active":
            changes |= {"waiting_on": "x", "recheck_after": f"{1 + n % 7}d"}
        else:
            changes |= {"priority": 1 + n % 9}
        await state.threads.set(f"t{n}", **changes)
    clock.move(days=3)

    for limit in (1, 7, 100):
        whole = await names(state, limit=200)
        assert len(set(whole)) == 100
        seen: list[str] = []
        page = await state.threads.list(limit=limit)
        while page.cursor:
            seen += [thread.name for thread in page.threads]
            clock.move(minutes=40)
            page = await state.threads.list(limit=limit, cursor=page.cursor)
            assert page.total == 100
        assert [*seen, *(thread.name for thread in page.threads)] == whole


async def test_the_answer_tells_how_to_get_the_next_page(call: Call, state: State) -> None:
    for name in ("a", "b", "c"):
        await state.threads.set(name)
    first = await call("thread_list", limit=2)
    head = first.splitlines()[0]
    assert head.startswith("2 of 3 open threads (3 active")
    cursor = head.rpartition('; more: cursor="')[2].removesuffix('"')
    assert [line.split()[0] for line in first.splitlines()[1:3]] == ["a", "b"]

    second = await call("thread_list", limit=2, cursor=cursor)
    assert second.splitlines()[1] == "c [active]"
    assert "cursor" not in second


@pytest.mark.parametrize(
    "forged",
    [
        "x",
        "/",
        "open/now/0//1",
        "open/2026-11-29T09:00:00.000000Z/7/5/1",
        "open/2026-11-29T09:00:00.000000Z/1/abc/5",
        "open/2026-11-29T09:00:00.000000Z/0/5/5",
        "open/2026-11-29T09:00:00.000000Z/1/5/99999999999999999999",
        "open/2026-11-29T09:00:00.000000Z/1/5/-1",
    ],
)
async def test_a_cursor_that_is_none_of_ours_is_refused(call: Call, forged: str) -> None:
    await call("thread_set", thread="t")
    text = await call("thread_list", error=True, cursor=forged)
    assert text.startswith("error: bad_argument: cursor ")
    assert text.endswith(f". Leave it out to begin at the top.\n{scope(1, 1)}")


async def test_a_cursor_of_another_filter_is_refused(call: Call, state: State) -> None:
    for name in ("a", "b"):
        await state.threads.set(name)
    cursor = (await state.threads.list(status=Status.ACTIVE, limit=1)).cursor

    assert await call("thread_list", error=True, cursor=cursor) == (
        "error: bad_argument: the cursor comes from a list with other filters. Ask with "
        f"the same ones, or leave the cursor out to begin at the top.\n{scope(2, 2)}"
    )
    again = await state.threads.list(status=Status.ACTIVE, cursor=cursor)
    assert [thread.name for thread in again.threads] == ["b"]


async def test_a_list_too_long_for_one_answer_says_how_to_ask(call: Call, state: State) -> None:
    for n in range(60):
        await state.threads.set(f"{n:03}" + "n" * 100, title="t" * 100, next_action="x" * 160)
    text = await call("thread_list", limit=60)
    assert len(text) < 10_000
    head, *lines = text.splitlines()
    shown = len([line for line in lines if line.startswith("0")])
    assert head.endswith(f"; {60 - shown} left out for length: ask with limit={shown}")
    shorter = await call("thread_list", limit=shown)
    assert "; more: cursor=" in shorter.splitlines()[0]


# One thread


async def test_thread_get_shows_everything(call: Call, state: State, clock: FakeClock) -> None:
    await state.threads.set("need")
    await state.threads.set(
        "Fix",
        title="Fix the import",
        status="blocked",
        waiting_on="bob",
        next_action="rerun\nthe test",
        check="gh pr view 8",
        evidence="log:3",
        note="since Monday",
        priority=2,
        depends_on=["need"],
        criteria=["tests pass", "docs"],
        places=[Place("o/donor", "donor"), Place("/src", "home", "branch x")],
    )
    await state.threads.set("child", depends_on=["fix"])
    await state.journal.append("tried\nit", thread="fix", kind="note")
    clock.move(hours=2)
    await call("thread_check", thread="fix", criterion="2", passes=True, evidence="docs/x.md:3")
    await call("thread_claim", thread="fix")

    assert await call("thread_get", thread="fix") == (
        "Fix [blocked, look again in 22 h, needs need, 1/2 pass, held by this session until "
        "11:30 UTC]  version 2\n"
        "title: Fix the import\n"
        "blocked since 2 h, changed by mcp just now\n"
        "next:\n"
        "    rerun\n"
        "    the test\n"
        "waiting on: bob\n"
        "check: gh pr view 8\n"
        "evidence: log:3\n"
        "note: since Monday\n"
        "place (home): /src, branch x\n"
        "place (donor): o/donor\n"
        "depends on: need\n"
        "not done yet: need\n"
        "needed by: child\n"
        "journal:\n"
        "    4 codex 2 h ago: tried it\n"
        "history:\n"
        "    2 codex: version 1: blocked: Fix the import (waiting on bob) (+2 criteria) "
        "(since Monday) · 2 h ago\n"
        "    5 mcp: version 2: criterion 2 passes, 1/2 pass (evidence: docs/x.md:3) · just now\n"
        "    6 mcp: claimed for 30 min · just now\n"
        "criteria, 1/2 pass:\n"
        "    1 open: tests pass\n"
        "    2 pass: docs\n"
        "        checked by mcp just now: docs/x.md:3\n"
        f"{scope(3, 6)}"
    )


async def test_thread_get_shows_long_texts_whole_as_long_as_they_fit(
    call: Call, state: State
) -> None:
    long = " ".join(["word"] * 300)
    await state.threads.set("t", next_action=long, criteria=[long], places=[Place(long)])
    text = await call("thread_get", thread="t")
    assert text.count(long) == 3
    assert "too long" not in text


async def test_a_long_thread_still_answers_within_10_000_characters_and_says_what_is_cut(
    call: Call, state: State
) -> None:
    criteria = [f"{n:03} " + "x" * 1990 for n in range(200)]
    fields: dict[str, Any] = {
        field: field + " " + "y" * 1980 for field in ("next_action", "check", "evidence", "note")
    }
    await state.threads.set("t", criteria=criteria, **fields)
    await state.threads.check("t", "1", passes=True)
    for n in range(30):
        await state.journal.append(f"entry {n}", thread="t")

    text = await call("thread_get", thread="t")

    assert len(text) < 10_000
    lines = text.splitlines()
    assert lines[0] == "t [active, 1/200 pass]  version 2"
    shown = [line for line in lines if " open: " in line]
    left = 200 + 1 - len(shown)  # the check of the first has a line of its own
    assert lines[1] == (
        f"(too long for one answer: texts cut at … and the last {left} lines left out; "
        "`mcp-state thread t` in a shell shows all)"
    )
    assert shown[0].startswith("    2 open: 001 x")
    for part in ("next:", "check:", "evidence:", "note:", "journal:", "    32 codex just now"):
        assert any(line.startswith(part) for line in lines), part


async def test_history_of_a_thread_says_how_many_earlier_changes_there_are(
    call: Call, state: State
) -> None:
    for n in range(15):
        await state.threads.set("t", title=f"title {n}")
    text = await call("thread_get", thread="t")
    assert "history (+5 earlier):\n    6 codex: version 6: changed title · just now\n" in text


async def test_a_detail_is_one_snapshot_for_programs_too(open_state: Open) -> None:
    one = open_state()
    await one.threads.set("t", criteria=["a"])
    detail = await open_state(project="other").threads.list()
    assert list(detail.threads) == []
    with pytest.raises(NotFound):
        await open_state(project="other").threads.get("t")
    got = await one.threads.get("T")
    assert isinstance(got, ThreadDetail)
    assert (got.thread.name, got.earlier, got.journal) == ("t", 0, [])


async def test_restating_the_criteria_of_a_thread_that_is_done_adds_nothing(state: State) -> None:
    await state.threads.set("t", criteria=["a"])
    await state.threads.check("t", "a", passes=True)
    await state.threads.set("t", status="done", evidence="x", criteria=["a"])
    again = await state.threads.set("t", status="done", evidence="x", criteria=[" a "])
    assert (again.unchanged, again.version, again.criteria) == (True, 3, 1)


async def test_a_name_may_grow_when_it_is_folded(state: State) -> None:
    long = "ß" * 128
    await state.threads.set(long, criteria=["it builds"])
    await state.threads.set("on top", depends_on=[long])
    with pytest.raises(BadArgument, match="circle of dependencies"):
        await state.threads.set(long, depends_on=["on top"])
    claimed = await state.threads.claim(long)
    assert isinstance(claimed, Thread) and claimed.lease is not None
    token = claimed.lease.token
    await state.threads.check(long, "1", True, lease_token=token)
    done = await state.threads.set(long, status="done", evidence="make: exit 0", lease_token=token)
    assert (done.name, done.status) == (long, "done")


@pytest.mark.sqlite
async def test_a_list_is_compiled_once_whatever_it_is_asked_for(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite asks the authorizer for all that a statement touches, while it compiles it."""
    compiled: list[tuple[object, ...]] = []

    def note(*what: object) -> int:
        compiled.append(what)
        return sqlite3.SQLITE_OK

    def new_connection(path: str, mode: str = "") -> sqlite3.Connection:
        connection = opened(path, mode)
        connection.set_authorizer(note)
        return connection

    opened = opening.new_connection
    monkeypatch.setattr(opening, "new_connection", new_connection)
    await state.threads.set("one", status=Status.WATCHING, check="look", recheck_after="1d")

    async def list_all() -> None:
        for status in (None, *Status):
            for due in (False, True):
                await state.threads.list(status=status, due=due)
        await state.orient()

    await list_all()
    assert compiled
    compiled.clear()
    await list_all()
    assert compiled == []
