"""Budgets of runs: what is spent stays spent, stops the run, and only a person gives more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Call, FakeClock
from long_runs import attempt, scope, summaries
from peeking import rows

from mcp_state.api import State
from mcp_state.errors import BadArgument, BudgetSpent, IllegalTransition, NotFound, OverLimit
from mcp_state.models import RunStatus, Status, Thread
from mcp_state.store.thread_rules import Changes

ATTEMPTS = "a person: the budget of attempts of run r is spent"
TOKENS = "a person: the budget of tokens of run r is spent"
MINUTES = "a person: the budget of minutes of run r is spent"


pytestmark = pytest.mark.usefixtures("consistent")


async def begin(state: State, **budget: Any) -> None:
    """Run `r` for the thread `work`."""
    await state.threads.set("work", next_action="go on")
    await state.runs.begin("do it all", run="r", thread="work", **budget)


async def work(state: State, thread: str = "work") -> Thread:
    return (await state.threads.get(thread)).thread


async def where(state: State, thread: str = "work") -> tuple[Status, str]:
    found = await work(state, thread)
    return found.status, found.waiting_on


async def spend_attempts(state: State, count: int = 2) -> None:
    """Use up that many attempts, each of another step, and ask for one more."""
    for n in range(count):
        await attempt(state, "r", f"s{n}", ok=True)
    with pytest.raises(BudgetSpent):
        await state.steps.begin("r", "one more")


async def stopped(state: State) -> str:
    return (await state.runs.show("r")).run.stopped


# Spending


async def test_one_attempt_more_than_the_budget_is_refused_and_blocks_the_thread(
    call: Call, mine: State, clock: FakeClock
) -> None:
    await begin(mine, max_attempts=3)
    await attempt(mine, "r", "load", "x", tokens_in=900, tokens_out=50)
    await attempt(mine, "r", "load", "y", ok=True, tokens_in=1000)
    clock.move(minutes=12)
    assert await call("step_begin", run_id="r", step="save") == (
        "go: step save of r, attempt 1\n"
        'then step_end(run_id="r", step="save", ok=…, result=…, tokens_in=…, tokens_out=…)\n'
        f"{scope(7, 1)}"
    )
    assert await where(mine) == (Status.ACTIVE, "")

    refused = (
        "error: budget_spent: stop: run 'r' has spent its budget of attempts (3 of 3 attempts, "
        "12 min, 1,950 tokens (1,900 in, 50 out); most of it for 'load' (2x, 1,950 tokens), 'save' "
        "(1x)); its thread 'work' is blocked. Write a run_checkpoint and offer the work with "
        "handoff_create (through state_op if it is not listed). Only a person can raise it: "
        "`mcp-state runs raise r --attempts N --reason WHY`."
    )
    for event in (9, 10, 11):
        text = await call("step_begin", error=True, run_id="r", step="send")
        assert text == f"{refused}\n{scope(event, 1)}"
    assert await where(mine) == (Status.BLOCKED, ATTEMPTS)
    assert await summaries(mine, "run:r") == [
        "begun: do it all",
        "attempt 1 begun",
        "attempt 1 failed: x",
        "attempt 2 begun",
        "attempt 2 ok: y",
        "attempt 1 begun",
        "the budget of attempts is spent",
        f"active -> blocked (waiting on {ATTEMPTS})",
        "refused: budget_spent",
        "refused: budget_spent",
    ]


async def test_a_run_that_is_finished_with_its_last_attempt_blocks_nothing(mine: State) -> None:
    await begin(mine, max_attempts=2)
    await attempt(mine, "r", "a", ok=True)
    ended = await attempt(mine, "r", "b", ok=True)
    await mine.runs.checkpoint("r", "all of it")
    assert (ended.run.stopped, await where(mine)) == ("", (Status.ACTIVE, ""))
    await mine.runs.finish("r", "completed", evidence="make: exit 0")
    assert await summaries(mine, "thread:work") == ["active: work"]


async def test_what_is_done_is_told_and_what_is_open_is_recorded_when_nothing_is_left(
    mine: State,
) -> None:
    await begin(mine, max_attempts=2)
    await attempt(mine, "r", "done", "fine", ok=True)
    await mine.steps.begin("r", "open")
    with pytest.raises(BudgetSpent):
        await mine.steps.begin("r", "another")
    assert (await mine.steps.begin("r", "done")).step.result == "fine"
    ended = await mine.steps.end("r", "open", True, "just in time", tokens_in=3)
    assert (ended.step.status, ended.run.tokens_in, ended.run.steps_done) == ("done", 3, 2)


async def test_tokens_are_spent_as_they_are_reported_and_crossing_them_blocks_at_once(
    call: Call, mine: State
) -> None:
    await begin(mine, max_tokens=1000)
    text = await call("step_begin", run_id="r", step="a")
    text = await call("step_end", run_id="r", step="a", ok=True, tokens_in=400, tokens_out=450)
    assert text.split("\n")[1:] == [
        "run: 1 of 1 step done; spent: 1 attempt, 0 min, 850 of 1,000 tokens (400 in, 450 out)",
        "left of the budget: 150 tokens",
        scope(4, 1),
    ]
    assert await where(mine) == (Status.ACTIVE, "")

    await call("step_begin", run_id="r", step="b")
    text = await call("step_end", run_id="r", step="b", ok=False, result="x", tokens_out=151)

    assert text.split("\n")[1:] == [
        "run: 1 of 2 steps done; spent: 2 attempts, 0 min, 1,001 of 1,000 tokens (400 in, 601 out)",
        "the budget of tokens is spent: no further step will be begun",
        "Stop: run_finish if the goal is reached, else offer the work with handoff_create; only a "
        "person can raise the budget.",
        scope(8, 1),
    ]
    assert await where(mine) == (Status.BLOCKED, TOKENS)
    refused = await call("step_begin", error=True, run_id="r", step="b")
    assert (
        "has spent its budget of tokens (2 attempts, 0 min, 1,001 of 1,000 tokens (400 in, "
        "601 out); most of it for 'a' (1x, 850 tokens), 'b' (1x, 151 tokens)); its thread"
    ) in refused
    assert "`mcp-state runs raise r --tokens N --reason WHY`" in refused


@pytest.mark.parametrize(("spent", "left"), [(999, True), (1000, False)])
async def test_a_budget_of_tokens_is_spent_exactly_at_its_limit(
    mine: State, spent: int, left: bool
) -> None:
    await begin(mine, max_tokens=1000)
    ended = await attempt(mine, "r", "a", tokens_in=spent)
    assert (ended.run.stopped, (await work(mine)).status) == (
        ("", Status.ACTIVE) if left else ("tokens", Status.BLOCKED)
    )
    if left:
        assert (await mine.steps.begin("r", "b")).go
    else:
        with pytest.raises(BudgetSpent):
            await mine.steps.begin("r", "b")


async def test_minutes_count_from_the_beginning_and_are_spent_exactly_at_their_limit(
    call: Call, mine: State, clock: FakeClock
) -> None:
    await begin(mine, max_minutes=60)
    clock.move(minutes=59, seconds=59.999999)
    assert (await mine.steps.begin("r", "a")).go
    assert "left of the budget: 1 minute\n" in await call("run_resume")
    clock.move(seconds=0.000001)
    assert "the budget of minutes is spent: no further step will be begun\n" in (
        await call("run_resume")
    )
    assert await where(mine) == (Status.ACTIVE, "")  # a reader never writes

    refused = await call("step_begin", error=True, run_id="r", step="b")

    assert (
        "has spent its budget of minutes (1 attempt, 60 of 60 min; most of it for 'a' (1x)); its "
        "thread 'work' is blocked"
    ) in refused
    assert await where(mine) == (Status.BLOCKED, MINUTES)


async def test_a_budget_that_went_to_no_step_is_refused_too(
    call: Call, mine: State, clock: FakeClock
) -> None:
    await mine.runs.begin("g", run="my run", max_minutes=1)
    clock.move(minutes=1)
    assert await call("step_begin", error=True, run_id="my run", step="a") == (
        "error: budget_spent: stop: run 'my run' has spent its budget of minutes (0 attempts, 1 of "
        "1 min). Write a run_checkpoint and offer the work with handoff_create (through state_op "
        "if it is not listed). Only a person can raise it: `mcp-state runs raise 'my run' "
        f"--minutes N --reason WHY`.\n{scope(2)}"
    )


@pytest.mark.parametrize("writes", ["step_end", "run_checkpoint"])
async def test_minutes_that_ran_out_are_noticed_by_whatever_is_written_next(
    call: Call, mine: State, clock: FakeClock, writes: str
) -> None:
    await begin(mine, max_minutes=60)
    await mine.steps.begin("r", "a")
    clock.move(hours=2)
    given = {"state": "half"} if writes == "run_checkpoint" else {"step": "a", "ok": False}
    text = await call(writes, run_id="r", **given)
    assert "\nthe budget of minutes is spent: no further step will be begun\nStop: " in text
    assert (await where(mine), await stopped(mine)) == ((Status.BLOCKED, MINUTES), "minutes")


async def test_a_clock_set_back_revives_no_budget_that_was_found_spent(
    mine: State, clock: FakeClock
) -> None:
    await begin(mine, max_minutes=60)
    clock.move(hours=1)
    await mine.runs.checkpoint("r", "half")
    clock.move(days=-3)
    for _ in range(2):
        with pytest.raises(BudgetSpent, match="has spent its budget of minutes"):
            await mine.steps.begin("r", "a")
    assert (await mine.runs.resume("r")).run == (await mine.runs.list()).runs[0]
    assert await stopped(mine) == "minutes"


async def test_a_clock_set_back_before_that_takes_no_minutes_away_from_zero(
    mine: State, clock: FakeClock
) -> None:
    await begin(mine, max_minutes=60)
    clock.move(days=-3)
    assert (await attempt(mine, "r", "a", ok=True)).run.minutes == 0


async def test_several_spent_budgets_are_all_named(
    call: Call, mine: State, clock: FakeClock
) -> None:
    await begin(mine, max_attempts=1, max_minutes=10, max_tokens=100)
    await attempt(mine, "r", "a", ok=True, tokens_in=100)
    clock.move(minutes=10)
    refused = await call("step_begin", error=True, run_id="r", step="b")
    assert "has spent its budget of tokens and attempts and minutes (1 of 1 attempt, " in refused
    assert "`mcp-state runs raise r --tokens N --attempts N --minutes N --reason WHY`" in refused


async def test_attempts_are_counted_whoever_makes_them_and_however_they_end(
    mine: State, theirs: State
) -> None:
    await begin(mine, max_attempts=4)
    await theirs.steps.begin("r", "left open")
    await attempt(mine, "r", "fails", "x")
    await mine.runs.checkpoint("r", "half")
    await theirs.runs.resume("r")
    await attempt(theirs, "r", "fails", "x")
    await attempt(mine, "r", "works", ok=True)
    for state in (theirs, mine):
        with pytest.raises(BudgetSpent, match="4 of 4 attempts"):
            await state.steps.begin("r", "left open")


async def test_of_many_at_once_no_more_go_than_the_budget_has(mine: State, theirs: State) -> None:
    await begin(mine, max_attempts=3)
    answers = await asyncio.gather(
        *(s.steps.begin("r", f"s{n}") for n, s in enumerate((mine, theirs) * 4)),
        return_exceptions=True,
    )
    assert len([a for a in answers if isinstance(a, BudgetSpent)]) == 5
    assert (await mine.runs.show("r")).run.attempts == 3
    assert (await summaries(mine, "run:r")).count("the budget of attempts is spent") == 1
    assert await where(mine) == (Status.BLOCKED, ATTEMPTS)


@pytest.mark.parametrize("budget", ["max_attempts", "max_minutes", "max_tokens"])
@pytest.mark.parametrize("most", [0, -1, 10**9 + 1])
async def test_a_budget_that_makes_no_sense_is_refused(
    call: Call, mine: State, budget: str, most: int
) -> None:
    assert await call("run_begin", error=True, goal="g", run_id="r", **{budget: most}) == (
        f"error: bad_argument: the budget of {budget.removeprefix('max_')} is {most}. Give 1 to "
        "1,000,000,000, or leave it out for none.\n"
        "[acme (from --project) · nothing stored yet]"
    )


async def test_a_huge_budget_is_one_and_without_any_nothing_stops(
    mine: State, clock: FakeClock
) -> None:
    await begin(mine, max_attempts=10**9, max_minutes=10**9, max_tokens=10**9)
    await mine.runs.begin("no budget", run="free")
    clock.move(days=3000)
    for run in ("r", "free"):
        ended = await attempt(mine, run, "a", ok=True, tokens_in=10**9 - 1)
        assert (ended.run.stopped, (await mine.steps.begin(run, "b")).go) == ("", True)


# The run's thread


@pytest.mark.parametrize(
    ("changes", "told", "after"),
    [
        ({"status": "watching"}, "blocked", (Status.BLOCKED, ATTEMPTS)),
        (
            {"status": "blocked", "waiting_on": "the customer"},
            "blocked",
            (Status.BLOCKED, "the customer"),
        ),
        ({"status": "done", "evidence": "make: exit 0"}, "done", (Status.DONE, "")),
        ({"status": "dropped", "note": "not needed"}, "dropped", (Status.DROPPED, "")),
    ],
    ids=["watching", "blocked", "done", "dropped"],
)
async def test_a_thread_that_is_elsewhere_is_told_and_only_blocked_if_it_is_open(
    mine: State, changes: Changes, told: str, after: tuple[Status, str]
) -> None:
    await begin(mine, max_attempts=1)
    await mine.threads.set("work", **changes)
    await attempt(mine, "r", "a", ok=True)
    for _ in range(2):
        with pytest.raises(BudgetSpent, match=rf"; its thread 'work' is {told}\. "):
            await mine.steps.begin("r", "b")
    assert await where(mine) == after


async def test_a_thread_that_somebody_holds_is_blocked_and_stays_held(
    mine: State, theirs: State
) -> None:
    await begin(mine, max_attempts=1)
    await theirs.threads.claim("work", lease="4h")
    await spend_attempts(mine, 1)
    thread = await work(mine)
    assert (thread.status, thread.waiting_on) == (Status.BLOCKED, ATTEMPTS)
    assert thread.lease is not None
    assert thread.lease.holder.agent == "claude"


async def test_a_thread_that_was_set_active_again_is_blocked_by_the_next_refusal(
    mine: State,
) -> None:
    await begin(mine, max_attempts=1)
    await spend_attempts(mine, 1)
    await mine.threads.set("work", status="active")
    with pytest.raises(BudgetSpent, match="its thread 'work' is blocked"):
        await mine.steps.begin("r", "b")
    assert await where(mine) == (Status.BLOCKED, ATTEMPTS)


async def test_a_run_without_a_thread_blocks_none(mine: State) -> None:
    await mine.threads.set("work")
    await mine.runs.begin("g", run="r", max_attempts=1)
    await attempt(mine, "r", "a", ok=True)
    with pytest.raises(BudgetSpent, match=r"'a' \(1x\)\)\. Write a run_checkpoint"):
        await mine.steps.begin("r", "b")
    assert await where(mine) == (Status.ACTIVE, "")


async def test_a_stopped_run_that_is_given_to_another_thread_blocks_that_one_instead(
    mine: State,
) -> None:
    await begin(mine, max_attempts=1)
    await mine.threads.set("other")
    await spend_attempts(mine, 1)

    await mine.runs.checkpoint("r", "half", thread="OTHER")

    assert (await where(mine), await where(mine, "other")) == (
        (Status.ACTIVE, ""),
        (Status.BLOCKED, ATTEMPTS),
    )
    assert (await work(mine)).note == "run r belongs to thread other"


async def test_a_completed_run_lets_its_thread_go_on(mine: State) -> None:
    await begin(mine, max_tokens=10)
    await attempt(mine, "r", "a", ok=True, tokens_in=10)
    assert await where(mine) == (Status.BLOCKED, TOKENS)
    await mine.runs.finish("r", "completed", evidence="make: exit 0")
    thread = await work(mine)
    assert (thread.status, thread.waiting_on, thread.note) == (
        Status.ACTIVE,
        "",
        "run r is completed",
    )


@pytest.mark.parametrize("status", ["failed", "abandoned"])
async def test_a_run_that_came_to_nothing_lets_its_thread_go_on_without_it(
    mine: State, status: str
) -> None:
    await begin(mine, max_tokens=10)
    await attempt(mine, "r", "a", tokens_in=10)
    assert await where(mine) == (Status.BLOCKED, TOKENS)
    await mine.runs.finish("r", status, reflection="too dear")
    assert await where(mine) == (Status.ACTIVE, "")


async def test_a_thread_of_two_runs_goes_on_when_neither_has_spent_its_budget(mine: State) -> None:
    await begin(mine, max_tokens=10)
    thread = (await mine.runs.resume("r")).run
    assert thread is not None
    await mine.runs.begin("g", run="second", thread=thread.thread, max_tokens=10)
    for run in ("r", "second"):
        await attempt(mine, run, "a", tokens_in=10)
    await mine.runs.raise_budget("r", "more", tokens=50)
    assert (await where(mine))[0] is Status.BLOCKED
    await mine.runs.raise_budget("second", "more", tokens=50)
    assert await where(mine) == (Status.ACTIVE, "")


async def test_a_clock_that_was_set_back_does_not_end_the_stop_of_another_budget(
    mine: State, clock: FakeClock
) -> None:
    await begin(mine, max_minutes=10, max_attempts=50)
    clock.move(minutes=11)
    await mine.runs.checkpoint("r", "late")
    clock.move(minutes=-8)
    raised = await mine.runs.raise_budget("r", "more", attempts=60)
    assert raised.stopped == "minutes"
    assert (await where(mine))[0] is Status.BLOCKED


async def test_names_that_grow_when_they_are_compared_stop_nothing(mine: State) -> None:
    run = "ß" * 128
    await mine.runs.begin("g", run=run, max_attempts=1)
    await attempt(mine, run, run, ok=True)
    with pytest.raises(BudgetSpent):
        await mine.steps.begin(run, "b")
    raised = await mine.runs.raise_budget(run, "more", attempts=2)
    assert (raised.name, raised.max_attempts) == (run, 2)


# Raising


async def test_a_person_can_raise_a_budget_and_the_thread_goes_on(mine: State) -> None:
    await begin(mine, max_attempts=2, max_tokens=100)
    await spend_attempts(mine)

    raised = await mine.runs.raise_budget("R", "worth\nit", attempts=3, tokens=200)

    assert (raised.max_attempts, raised.max_tokens, raised.stopped) == (3, 200, "")
    assert (raised.version, raised.attempts) == (3, 2)
    thread = await work(mine)
    assert (thread.status, thread.note) == (Status.ACTIVE, "budget of run r raised: worth it")
    assert (await summaries(mine, "run:r"))[-2:] == [
        "budget raised by a person: attempts 2 -> 3, tokens 100 -> 200 (worth it)",
        "blocked -> active (budget of run r raised: worth it)",
    ]
    assert (await mine.steps.begin("r", "one more")).go
    with pytest.raises(BudgetSpent, match="3 of 3 attempts"):
        await mine.steps.begin("r", "two more")
    assert await where(mine) == (Status.BLOCKED, ATTEMPTS)


async def test_a_budget_raised_to_what_is_spent_already_stays_spent(mine: State) -> None:
    await begin(mine, max_tokens=100)
    await attempt(mine, "r", "a", ok=True, tokens_in=500)
    raised = await mine.runs.raise_budget("r", "a bit", tokens=500)
    assert (raised.max_tokens, raised.stopped) == (500, "tokens")
    assert await where(mine) == (Status.BLOCKED, TOKENS)
    assert (await summaries(mine, "run:r"))[-1] == (
        "budget raised by a person: tokens 100 -> 500, still spent: tokens (a bit)"
    )
    assert (await mine.runs.raise_budget("r", "a bit more", tokens=501)).stopped == ""
    assert await where(mine) == (Status.ACTIVE, "")


async def test_while_another_budget_is_spent_the_thread_waits_for_that_one(mine: State) -> None:
    await begin(mine, max_attempts=1, max_tokens=100)
    await mine.steps.begin("r", "a")
    with pytest.raises(BudgetSpent):
        await mine.steps.begin("r", "b")
    await mine.steps.end("r", "a", True, tokens_in=100)
    assert (await where(mine), await stopped(mine)) == ((Status.BLOCKED, ATTEMPTS), "attempts")

    raised = await mine.runs.raise_budget("r", "one more", attempts=2)

    assert (raised.stopped, await where(mine)) == ("tokens", (Status.BLOCKED, TOKENS))
    with pytest.raises(BudgetSpent, match="has spent its budget of tokens"):
        await mine.steps.begin("r", "b")
    assert (await mine.runs.raise_budget("r", "and more", tokens=200)).stopped == ""
    assert await where(mine) == (Status.ACTIVE, "")


async def test_a_thread_that_waits_for_something_else_is_left_as_it_is(mine: State) -> None:
    await begin(mine, max_attempts=1)
    await spend_attempts(mine, 1)
    await mine.threads.set("work", waiting_on="the customer")
    await mine.runs.raise_budget("r", "more", attempts=2)
    assert await where(mine) == (Status.BLOCKED, "the customer")


async def test_a_budget_raised_before_it_is_spent_changes_nothing_else(mine: State) -> None:
    await begin(mine, max_attempts=2)
    await mine.threads.set("work", status="watching")
    await mine.runs.raise_budget("r", "to be safe", attempts=10**9)
    assert await where(mine) == (Status.WATCHING, "")
    assert (await summaries(mine, "thread:work"))[-1] == "active -> watching"


async def test_raising_is_no_work_of_the_session_that_does_it(
    mine: State, theirs: State, path: str
) -> None:
    await begin(mine, max_attempts=2)
    await theirs.runs.raise_budget("r", "more", attempts=3)
    assert rows(path, "SELECT session FROM session_runs") == [("s1",)]


@pytest.mark.parametrize(
    ("raised", "fact"),
    [
        ({"attempts": 5}, "the budget of attempts is 5 already"),
        ({"attempts": 4}, "the budget of attempts is 5 already"),
        ({"attempts": 10**9 + 1}, "the budget of attempts is 1000000001"),
        ({"attempts": 0}, "the budget of attempts is 0"),
        ({"tokens": 9}, "run 'r' has no budget of tokens, so there is nothing to raise"),
        ({"attempts": 6, "minutes": 9}, "run 'r' has no budget of minutes"),
        ({}, "nothing is raised"),
    ],
)
async def test_what_raises_nothing_is_refused(
    mine: State, raised: dict[str, int], fact: str
) -> None:
    await begin(mine, max_attempts=5)
    with pytest.raises(BadArgument, match=fact):
        await mine.runs.raise_budget("r", "more", **raised)
    assert (await mine.runs.show("r")).run.max_attempts == 5


async def test_raising_needs_an_open_run_and_a_reason(mine: State) -> None:
    await begin(mine, max_attempts=5)
    with pytest.raises(BadArgument, match="there is no reason"):
        await mine.runs.raise_budget("r", " \n", attempts=6)
    with pytest.raises(OverLimit, match="the reason would be 2,001 characters"):
        await mine.runs.raise_budget("r", "x" * 2001, attempts=6)
    with pytest.raises(NotFound):
        await mine.runs.raise_budget("q", "more", attempts=6)
    await mine.runs.finish("r", RunStatus.FAILED, reflection="no way")
    with pytest.raises(IllegalTransition, match="run 'r' is failed, ended just now"):
        await mine.runs.raise_budget("r", "more", attempts=6)


async def test_a_long_reason_is_kept_whole_in_history(mine: State) -> None:
    await begin(mine, max_attempts=1)
    await spend_attempts(mine, 1)
    why = " ".join(["because of this"] * 125)[:2000].strip()
    await mine.runs.raise_budget("r", why, attempts=2)
    assert (await summaries(mine, "run:r"))[-2] == (
        f"budget raised by a person: attempts 1 -> 2 ({why})"
    )
    thread = await work(mine)
    assert (thread.status, thread.note) == (
        Status.ACTIVE,
        f"budget of run r raised: {why}"[:1999].rstrip() + "…",
    )
