"""Long runs: begun once, worked on by many sessions, and finished for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from conftest import START, Call, FakeClock, Open
from long_runs import EMPTY, attempt, scope, summaries
from peeking import CHECK, Refused, plain, rows
from raw_client import Call as RawCall
from raw_client import Server, closing_all

from mcp_state import render, render_runs
from mcp_state.api import State
from mcp_state.errors import (
    BadArgument,
    BudgetSpent,
    Conflict,
    EvidenceRequired,
    IllegalTransition,
    NoProgress,
    NotFound,
    OverLimit,
    SecretRefused,
)
from mcp_state.models import Actor, MemoryBlock, MissingBlock, Run, RunStatus

SECRET = "ghp" + "_" + "a1B2" * 9
CODEX = Actor("codex", "codex 1.0", "s1")


pytestmark = pytest.mark.usefixtures("consistent")


async def names(state: State, status: str = "") -> list[str]:
    return [run.name for run in (await state.runs.list(status=status)).runs]


# Begun


async def test_a_run_is_begun_with_its_budget(call: Call, mine: State) -> None:
    await mine.threads.set("Work")
    assert await call(
        "run_begin",
        goal="Reindex all",
        run_id=" Index 2 ",
        thread="work",
        expected_outcome="300 shards",
        max_attempts=1,
        max_minutes=90,
        max_tokens=2_000_000,
    ) == (
        "begun: Index 2, budget: 1 attempt, 90 minutes, 2,000,000 tokens. "
        'step_begin(run_id="Index 2", step=…) before each step, run_checkpoint now and then.\n'
        f"{scope(2, 1)}"
    )
    assert (await mine.runs.show("index 2")).run == Run(
        name="Index 2",
        goal="Reindex all",
        status=RunStatus.OPEN,
        version=1,
        created_at=START,
        touched_at=START,
        touched_by=Actor("mcp", "mcp 0.1.0", "s1"),
        expected_outcome="300 shards",
        thread="Work",
        max_attempts=1,
        max_minutes=90,
        max_tokens=2_000_000,
    )


async def test_without_a_name_the_store_makes_one(call: Call, mine: State) -> None:
    text = await call("run_begin", goal="anything")
    assert text == (
        'begun: r-1, no budget. step_begin(run_id="r-1", step=…) before each step, run_checkpoint '
        f"now and then.\n{scope(1)}"
    )
    assert (await mine.runs.begin("another")).name == "r-2"


async def test_beginning_again_returns_the_run_and_says_what_is_not_as_it_was_given(
    call: Call, mine: State, clock: FakeClock
) -> None:
    await mine.threads.set("work")
    await mine.threads.set("other")
    begun = await mine.runs.begin("Reindex", run="r", thread="work", max_attempts=5)
    await mine.runs.checkpoint("r", "half", done=1, total=2)
    clock.move(hours=1)

    again = await mine.runs.begin("Reindex", run="R", thread="WORK", max_attempts=5)

    assert again == replace(
        begun,
        existing=True,
        minutes=60,
        checkpoints=1,
        checkpoint_at=START,
        done=1,
        total=2,
    )
    head = "there already: r [open, 1/2, touched 1 h ago]  Reindex\n"
    tail = (
        f'spent: 0 of 5 attempts, 1 h\nrun_resume(run_id="r") tells where it stands\n{scope(4, 2)}'
    )
    same = {"goal": " reindex", "run_id": "r", "thread": "Work", "max_attempts": 5}
    assert await call("run_begin", **same) == head + tail
    assert await call("run_begin", run_id="r") == head + tail
    other = {
        "goal": "Reindex all",
        "run_id": "r",
        "thread": "other",
        "expected_outcome": "all",
        "max_attempts": 6,
        "max_minutes": 9,
        "max_tokens": 9,
    }
    assert await call("run_begin", **other) == (
        f"{head}these are not as you gave them, and stay as they are: goal, thread, "
        f"expected_outcome, max_attempts, max_minutes, max_tokens\n{tail}"
    )
    assert await summaries(mine, "run:r") == ["begun: Reindex", "checkpoint 1, 1/2: half"]


async def test_of_many_that_begin_one_run_at_once_one_does(mine: State, theirs: State) -> None:
    begun = await asyncio.gather(
        *(s.runs.begin(f"goal {n}", run="r") for n, s in enumerate((mine, theirs) * 4))
    )
    assert sorted(run.existing for run in begun) == [False] + [True] * 7
    assert len({run.goal for run in begun}) == 1


async def test_a_session_that_takes_up_a_run_of_another_is_noted_once(
    mine: State, theirs: State
) -> None:
    await mine.runs.begin("g", run="r")
    for _ in range(3):
        await theirs.runs.begin("", run="r")
    await theirs.journal.append("on it")
    assert await summaries(mine, "run:r") == ["begun: g", "taken up", "on it"]
    assert (await mine.runs.show("r")).run.touched_by.agent == "claude"


async def test_a_session_can_go_back_to_a_run_by_beginning_it_again(mine: State) -> None:
    await mine.runs.begin("g", run="a")
    await mine.runs.begin("g", run="b")
    await mine.runs.begin("g", run="a")
    await mine.journal.append("of a")
    assert (await mine.journal.tail(limit=1)).entries[0].run == "a"
    assert await summaries(mine, "run:a") == ["begun: g", "taken up", "of a"]


async def test_a_new_run_needs_a_goal(call: Call) -> None:
    refused = "a new run needs a goal. Say in goal what it is to reach.\n"
    assert await call("run_begin", error=True, goal=" \n") == (
        f"error: bad_argument: {refused}{EMPTY}"
    )
    assert await call("run_begin", error=True, run_id="index") == (
        f"error: bad_argument: there is no run 'index', and {refused}{EMPTY}"
    )


async def test_what_cannot_be_kept_is_refused_and_nothing_is_begun(mine: State) -> None:
    with pytest.raises(NotFound, match="no thread 'work'"):
        await mine.runs.begin("g", run="r", thread="work")
    with pytest.raises(OverLimit, match="the goal of run 'r' would be 2,001 characters"):
        await mine.runs.begin("x" * 2001, run="r")
    with pytest.raises(OverLimit, match="expected_outcome would be 2,001 characters"):
        await mine.runs.begin("g", run="r", expected_outcome="x" * 2001)
    for goal, run in ((SECRET, "r"), ("g", SECRET)):
        with pytest.raises(SecretRefused):
            await mine.runs.begin(goal, run=run)
    assert mine.totals.exists is False
    assert await names(mine) == []


# Names


async def test_names_differ_by_neither_case_nor_composition_and_are_shown_as_first_written(
    call: Call, mine: State
) -> None:
    await mine.runs.begin("g", run="Café ☕")
    for run in ("CAFE\u0301 ☕", " café ☕ ", "Cafe\u0301 ☕"):
        assert (await mine.runs.begin("g", run=run)).existing
        assert (await mine.runs.checkpoint(run, "x")).run.name == "Café ☕"
        assert (await mine.memory.set("plan", "x", run=run)).run == "Café ☕"
        await attempt(mine, run, "one", "x", input=run)
        assert (await call("run_resume", run_id=run)).startswith("found: yes. Café ☕ [open, ")
        assert (await mine.runs.resume(run)).run is not None
    assert await names(mine) == ["Café ☕"]
    assert (await call("history", subject="run:CAFÉ ☕")).startswith("13 events\n")


async def test_a_name_that_grows_when_it_is_compared_works_everywhere(mine: State) -> None:
    run = "ß" * 128
    await mine.runs.begin("g", run=run)
    await mine.runs.checkpoint(run, "x", expected_number=0)
    await attempt(mine, run, run, "x", ok=True)
    assert (await mine.runs.resume(run)).finished[0].name == run
    assert (await mine.runs.finish(run, "failed", reflection="x")).name == run
    assert (await mine.runs.show(run)).run.checkpoints == 1


@pytest.mark.parametrize(
    "run", ["../x", "a/b", "'; DROP TABLE runs--", '"', "%", "[x]", "error: held", "note: x", "*"]
)
async def test_a_name_is_never_a_path_a_pattern_or_a_line_of_ours(
    call: Call, mine: State, run: str
) -> None:
    await mine.runs.begin("g", run="other")
    await mine.runs.checkpoint(run, "of it", next_action="go on")
    await mine.memory.set("plan", "p", run=run)
    await attempt(mine, run, "a/b", ok=True)
    found = await mine.runs.resume(run)
    assert (found.run is not None and found.run.name, [b.value for b in found.memory]) == (run, [])
    for tool in ("run_list", "run_resume"):
        lines = (await call(tool)).split("\n")[:-1]
        assert [x for x in lines if x.startswith(("[", "error:", "note:"))] == []
    assert [run.name for run in (await mine.runs.list()).runs] == [run, "other"]


@pytest.mark.parametrize("run", ["a\nb", "x" * 129, "a\x1fb", "\u2028x\u2028y"])
async def test_what_is_no_name_is_refused(mine: State, run: str) -> None:
    for attempted in (
        mine.runs.begin("g", run=run),
        mine.runs.checkpoint(run, "x"),
        mine.runs.resume(run),
        mine.runs.finish(run, "failed", result="x"),
        mine.steps.begin(run, "one"),
    ):
        with pytest.raises(BadArgument, match="run_id "):
            await attempted


async def test_nothing_of_a_run_shows_in_another_project(open_state: Open) -> None:
    acme, other = open_state(project="acme"), open_state(project="other")
    await acme.runs.checkpoint("r", "secret of acme")
    await attempt(acme, "r", "one", "done in acme", ok=True)
    await acme.memory.set("plan", "of acme", run="r")
    for refused in (
        other.runs.resume("r"),
        other.runs.show("r"),
        other.runs.finish("r", "failed", result="x"),
        other.steps.begin("r", "one"),
        other.steps.end("r", "one", True),
        other.memory.get("plan", run="r"),
    ):
        with pytest.raises(NotFound):
            await refused
    assert (await other.runs.begin("g", run="r")).existing is False
    begun = await other.steps.begin("r", "one")
    assert (begun.go, begun.attempt) == (True, 1)
    assert (await names(acme), await names(other)) == (["r"], ["r"])
    assert isinstance(await other.memory.get("plan", run="r"), MissingBlock)
    assert str(await other.orient()).find("acme") == -1


# What belongs to a run


async def runs_of(state: State) -> list[str]:
    return [event.run for event in (await state.events.history(since=0, limit=200)).events]


async def test_a_write_belongs_to_the_run_that_its_session_last_worked_on(
    mine: State, theirs: State, open_state: Open
) -> None:
    subagent = open_state(database="three")  # the same session, another process
    await mine.journal.append("before")
    await mine.runs.begin("a", run="A")
    await mine.journal.append("of a")
    await mine.threads.set("of-a")
    await theirs.journal.append("of none")
    await mine.runs.checkpoint("b", "begun")
    await subagent.memory.set("plan", "of b")
    await mine.steps.begin("a", "one")
    await mine.journal.append("of a")
    await mine.journal.append("of b", run="B")
    await mine.journal.append("of a, since a journal entry is no step")
    await mine.runs.finish("b", "abandoned", result="x")
    await mine.journal.append("of a, since b was not the last")
    await mine.runs.finish("a", "abandoned", result="x")
    await mine.journal.append("of none, since a is over")
    await mine.runs.begin("a", run="A")
    await mine.journal.append("of none, since a is over for good")

    assert await runs_of(mine) == [
        "",
        "a",
        "a",
        "a",
        "",
        *["b"] * 3,
        "a",
        "a",
        "b",
        "a",
        "b",
        "a",
        "a",
        "",
        "",
    ]
    entries = (await mine.journal.tail(limit=20)).entries
    assert [entry.run for entry in entries] == ["", "A", "", "A", "b", "A", "A", "", ""]
    blocks = (await mine.memory.blocks()).blocks
    assert [(block.key, block.run) for block in blocks] == [("plan", "")]


async def test_each_project_has_a_run_of_its_own_that_a_session_works_on(open_state: Open) -> None:
    acme, other = open_state(project="acme"), open_state(project="other")
    await acme.runs.begin("g", run="r")
    await other.journal.append("of none")
    await acme.journal.append("of r")
    assert (await runs_of(other), await runs_of(acme)) == ([""], ["r", "r"])


async def test_asking_for_what_is_done_or_refused_is_no_work_on_it(
    mine: State, theirs: State
) -> None:
    await mine.runs.begin("g", run="r", max_attempts=5)
    await attempt(mine, "r", "one", "fine", ok=True)
    for _ in range(4):
        await attempt(mine, "r", "two", "no luck")
    await theirs.steps.begin("r", "one")
    with pytest.raises(BudgetSpent):
        await theirs.steps.begin("r", "three")
    await mine.runs.raise_budget("r", "more", attempts=9)
    with pytest.raises(NoProgress):
        await theirs.steps.begin("r", "two")
    await theirs.journal.append("of none")
    assert (await theirs.journal.tail(limit=1)).entries[0].run == ""
    await theirs.steps.begin("r", "three")
    await theirs.journal.append("of r")
    assert (await theirs.journal.tail(limit=1)).entries[0].run == "r"


async def test_ending_a_step_is_work_on_its_run_and_resetting_one_is_not(
    mine: State, theirs: State, open_state: Open
) -> None:
    person = open_state(agent="person", session="s3")
    await mine.runs.begin("g", run="r")
    await mine.steps.begin("r", "one")
    await theirs.steps.end("r", "one", False, "found it so")
    await person.steps.reset("r", "one", "try again")
    for state in (theirs, person):
        await state.journal.append("of what?")
    assert [e.run for e in (await mine.journal.tail()).entries] == ["r", ""]
    assert (await mine.runs.show("r")).run.touched_by.agent == "person"


async def test_a_run_has_a_memory_of_its_own(call: Call, mine: State) -> None:
    await mine.runs.begin("g", run="R")
    await call("memory_set", key="plan", value="of the project")
    await call("memory_set", key="plan", value="of the run", run_id="r")
    own, general = await mine.memory.get("plan", run="r"), await mine.memory.get("plan")
    assert isinstance(own, MemoryBlock) and isinstance(general, MemoryBlock)
    assert [(b.value, b.run, b.version) for b in (own, general)] == [
        ("of the run", "R", 1),
        ("of the project", "", 1),
    ]
    assert (await call("memory_set", error=True, key="plan", value="x", run_id="s")).startswith(
        "error: not_found: no run 's'"
    )


async def test_history_of_a_run_shows_everything_that_was_done_for_it(
    call: Call, mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.threads.set("work")
    await mine.runs.begin("Reindex", run="Index 1", thread="work", max_attempts=2)
    await mine.memory.set("Plan", "p", run="index 1")
    await mine.journal.append("chose the slow way", kind="decision")
    await mine.runs.checkpoint("index 1", "half", done=1, total=2)
    await attempt(mine, "index 1", "Shard 1", "no luck\nat all")
    await mine.threads.set("work", next_action="try again")
    await theirs.steps.begin("index 1", "shard 1")
    with pytest.raises(BudgetSpent):
        await theirs.steps.begin("index 1", "shard 2")
    await theirs.threads.set("elsewhere", run="index 1")
    await mine.runs.raise_budget("index 1", "worth it", attempts=9)
    await mine.steps.reset("index 1", "shard 1", "disk is free now")
    await mine.steps.end("index 1", "shard 1", True, "x")
    with pytest.raises(Conflict):
        await mine.steps.end("index 1", "shard 1", True, "y")
    await mine.runs.finish("index 1", "completed", result="ok", evidence="make: exit 0")
    clock.move(hours=1)

    text = await call("history", subject="run:INDEX 1", limit=50)

    assert text.split("\n")[:-1] == [
        "17 events",
        *(
            f"{line} · 1 h ago"
            for line in (
                "2 codex: run Index 1 begun: Reindex",
                "3 codex: memory index 1/Plan set, 1 char",
                "4 codex: journal 4 chose the slow way",
                "5 codex: checkpoint Index 1/1 checkpoint 1, 1/2: half",
                "6 codex: step Index 1/Shard 1 attempt 1 begun",
                "7 codex: step Index 1/Shard 1 attempt 1 failed: no luck at all",
                "8 codex: thread work changed next_action",
                "9 claude: step Index 1/Shard 1 attempt 2 begun",
                "10 claude: run Index 1 the budget of attempts is spent",
                "11 claude: thread work active -> blocked (waiting on a person: the budget of "
                "attempts of run Index 1 is spent)",
                "12 claude: thread elsewhere active: elsewhere",
                "13 codex: run Index 1 budget raised by a person: attempts 2 -> 9 (worth it)",
                "14 codex: thread work blocked -> active (budget of run Index 1 raised: worth it)",
                "15 codex: step Index 1/Shard 1 reset by a person, was open (disk is free now)",
                "16 codex: step Index 1/Shard 1 attempt 2 ok: x",
                "17 codex: step index 1/shard 1 refused: conflict: step 'Shard 1' of run 'Index 1' "
                "was done just now, with the result 'x'",
                "18 codex: run Index 1 completed: ok",
            )
        ),
    ]


async def test_show_tells_all_that_a_run_did(mine: State, theirs: State) -> None:
    await mine.runs.begin("g", run="r")
    await mine.runs.checkpoint("r", "one")
    await mine.runs.checkpoint("r", "two")
    await mine.memory.set("plan", "p", run="r")
    await attempt(mine, "r", "good", "fine", ok=True, tokens_in=4)
    await attempt(mine, "r", "bad", "no luck")
    await theirs.steps.begin("r", "open")
    detail = await theirs.runs.show("R")
    assert [(c.number, c.state) for c in detail.checkpoints] == [(1, "one"), (2, "two")]
    assert [(s.name, s.status) for s in detail.steps] == [
        ("open", "open"),
        ("bad", "failed"),
        ("good", "done"),
    ]
    assert [block.value for block in detail.memory] == ["p"]
    assert [event.seq for event in detail.events] == list(range(1, 10))
    assert detail.earlier == 0
    few = await theirs.runs.show("r", limit=1)
    assert [c.number for c in few.checkpoints] == [2]
    assert [s.name for s in few.steps] == ["open"]
    assert ([event.seq for event in few.events], few.earlier) == ([9], 8)
    with pytest.raises(NotFound):
        await mine.runs.show("s")


async def test_what_a_run_did_reads_like_this(mine: State, clock: FakeClock) -> None:
    await mine.threads.set("Work")
    await mine.runs.begin(
        "Reindex\nall", run="r", thread="work", expected_outcome="300\nshards", max_attempts=5
    )
    await mine.memory.set("plan", "p", run="r")
    await mine.runs.checkpoint("r", "line one\nline two", done=1, total=2)
    for _ in range(4):
        await attempt(mine, "r", "bad", "no luck")
    with pytest.raises(NoProgress):
        await mine.steps.begin("r", "bad")
    await attempt(mine, "r", "good", "fine\nso far", ok=True, tokens_in=7)
    await mine.runs.finish("r", "failed", result="all\n" * 2000, reflection="be patient")
    clock.move(hours=3)

    text = render_runs.run_detail(await mine.runs.show("r", limit=2), clock.now(), render.ALL)

    assert text.replace("    all\n" * 2000, "    …\n") == (
        "r [failed, 1/2, 1 of 2 steps done, ended 3 h ago]  Reindex all\n"
        "goal: Reindex all\n"
        "expected outcome: 300 shards\n"
        "thread: Work\n"
        "begun 3 h ago, worked on by codex 3 h ago\n"
        "spent: 5 of 5 attempts, 0 min, 7 tokens (7 in, 0 out)\n"
        "result:\n"
        "    …\n"
        "reflection: be patient\n"
        "checkpoints (1):\n"
        "    1 (1/2) codex 3 h ago, (no directory is known for this call): line one line two\n"
        "steps (2):\n"
        "    bad [failed, 4 attempts, refused] codex 3 h ago: no luck\n"
        "    good [done, 1 attempt, 7 tokens] codex 3 h ago: fine so far\n"
        "memory (1):\n"
        "    plan of run r · version 1 · 1/4096 chars · codex 3 h ago\n"
        "events (15, the last 2 shown):\n"
        "    15 codex: step r/good attempt 1 ok: fine so far · 3 h ago\n"
        f"    16 codex: run r failed: {'all ' * 39}all… · 3 h ago"
    )


# Finished


async def test_completed_needs_evidence(call: Call, mine: State) -> None:
    await mine.runs.begin("g", run="r")
    for evidence in ("", " \n"):
        assert await call(
            "run_finish", error=True, run_id="r", status="completed", result="x", evidence=evidence
        ) == (
            "error: evidence_required: run 'r' is not completed without evidence. Give evidence: a "
            f"test run and its exit code, a commit, a link, file:line.\n{scope(1)}"
        )
    assert await call(
        "run_finish", run_id="R", status="Completed", result="300\nshards", evidence="make: exit 0"
    ) == (
        "ended: r [completed, ended just now]  g\n"
        "result: 300 shards\n"
        "evidence: make: exit 0\n"
        f"spent: 0 attempts, 0 min\n{scope(2)}"
    )


@pytest.mark.parametrize("status", ["failed", "abandoned"])
async def test_what_came_to_nothing_needs_a_reason(call: Call, mine: State, status: str) -> None:
    await mine.runs.begin("g", run="r")
    assert await call(
        "run_finish", error=True, run_id="r", status=status, evidence="x", result=" "
    ) == (
        f"error: bad_argument: run 'r' is to be {status} without a reason. Say in reflection why, "
        f"so that nobody tries it again.\n{scope(1)}"
    )
    text = await call("run_finish", run_id="r", status=status, reflection="no disk\nis so large")
    assert text.startswith(
        f"ended: r [{status}, ended just now]  g\nreflection: no disk is so large\n"
    )
    dead_end = "    run r failed (mcp just now): no disk is so large\n"
    assert (dead_end in await call("orient")) is (status == "failed")


async def test_a_finished_run_returns_its_result_for_ever(
    call: Call, mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.runs.begin("g", run="r")
    await attempt(mine, "r", "one", ok=True, tokens_in=7)
    clock.move(minutes=90)
    said: dict[str, Any] = {"result": "all\nfine", "evidence": "make", "reflection": "be patient"}
    ended = await mine.runs.finish("r", "completed", **said)
    clock.move(days=400)

    for state in (mine, theirs):
        for given in (said, {}, {"result": "all\nfine"}):
            again = await state.runs.finish("R", RunStatus.COMPLETED, **given)
            assert (again.repeated, again.result, again.minutes) == (True, "all\nfine", 90)
            assert again.finished_at == ended.finished_at
        begun = await state.runs.begin("another goal", run="r")
        assert (begun.existing, begun.status, begun.result) == (True, "completed", "all\nfine")
        found = (await state.runs.resume("r")).run
        assert found is not None
        assert (found.result, found.evidence, found.reflection) == tuple(said.values())
    assert await call("run_finish", run_id="r", status="completed") == (
        "ended already, unchanged: r [completed, 1 of 1 step done, ended 400 d ago]  g\n"
        "result: all fine\nevidence: make\nreflection: be patient\n"
        f"spent: 1 attempt, 2 h, 7 tokens (7 in, 0 out)\n{scope(4)}"
    )
    ending = "result:\n    all\n    fine\nevidence: make\nreflection: be patient\n"
    assert ending in await call("run_resume", run_id="r")
    assert ending in await call("run_begin", run_id="r", goal="x")
    assert (await mine.events.history("run:r")).more == 0
    assert mine.totals.event == 4


@pytest.mark.parametrize(
    ("status", "given"),
    [
        ("failed", {}),
        ("abandoned", {"result": "fine"}),
        ("completed", {"result": "better"}),
        ("completed", {"evidence": "other", "result": "fine"}),
        ("completed", {"reflection": "be patient"}),
    ],
)
async def test_another_end_than_the_stored_one_is_a_conflict(
    mine: State, status: str, given: dict[str, str]
) -> None:
    await mine.runs.begin("g", run="r")
    ended = await mine.runs.finish("r", "completed", result="fine", evidence="make")
    with pytest.raises(
        Conflict,
        match=r"run 'r' is completed already, with the result 'fine'\. That stays\. Begin another",
    ):
        await mine.runs.finish("r", status, **given)
    assert (await mine.runs.show("r")).run == ended


async def test_a_conflict_quotes_what_there_is_of_an_end(mine: State) -> None:
    await mine.runs.begin("g", run="a")
    await mine.runs.finish("a", "completed", evidence="make\nexit 0")
    with pytest.raises(Conflict, match="with the evidence 'make exit 0'"):
        await mine.runs.finish("a", "failed", result="x")
    await mine.runs.begin("g", run="b")
    await mine.runs.finish("b", "failed", reflection="no way")
    with pytest.raises(Conflict, match="with the reflection 'no way'"):
        await mine.runs.finish("b", "completed", evidence="x")


async def test_a_finished_run_is_not_worked_on(mine: State) -> None:
    await mine.runs.begin("g", run="r", max_attempts=3)
    await mine.steps.begin("r", "one")
    ended = await mine.runs.finish("r", "abandoned", result="x")
    for refused in (
        mine.runs.checkpoint("r", "x"),
        mine.steps.begin("r", "two"),
        mine.steps.end("r", "one", True),
        mine.steps.reset("r", "one", "x"),
        mine.runs.raise_budget("r", "x", attempts=9),
    ):
        with pytest.raises(IllegalTransition, match="run 'r' is abandoned, "):
            await refused
    assert (await mine.runs.show("r")).run == ended


async def test_what_is_no_end_is_refused(call: Call, mine: State) -> None:
    await mine.runs.begin("g", run="r")
    with pytest.raises(BadArgument, match=r"status is 'over'\. Statuses are open, completed, "):
        await mine.runs.finish("r", "over")
    with pytest.raises(BadArgument, match="status is open, which is no end"):
        await mine.runs.finish("r", "open", result="x")
    with pytest.raises(OverLimit, match="the result of run 'r' would be 8,193 characters"):
        await mine.runs.finish("r", "failed", result="x" * 8193)
    with pytest.raises(SecretRefused):
        await mine.runs.finish("r", "failed", reflection=SECRET)
    with pytest.raises(EvidenceRequired):
        await mine.runs.finish("r", "completed")
    with pytest.raises(NotFound):
        await mine.runs.finish("s", "failed", result="x")
    assert (await mine.runs.show("r")).run.status is RunStatus.OPEN


async def test_an_end_of_24000_characters_is_told_within_10000_its_result_whole(
    call: Call, mine: State
) -> None:
    await mine.runs.begin("g", run="it's")
    lines = "result of a shard\n" * 455
    await mine.runs.finish(
        "it's", "completed", result=lines, evidence="e" * 8192, reflection="r\n" * 4096
    )
    text = await call("run_resume", run_id="it's")
    assert len(text) < 10_000
    for label in ("evidence (", "reflection ("):
        assert f"\n{label}" in text
    assert """`mcp-state runs resume 'it'"'"'s'` in a shell shows all):""" in text
    assert "\nresult, 8,190 characters, up to the last line:\n" + lines.strip() in text
    assert text.split("\n")[-1] == scope(2)


# Lists


async def test_runs_are_listed_the_last_touched_first_with_progress_and_spend(
    call: Call, mine: State, clock: FakeClock
) -> None:
    assert (
        await call("run_list") == f"No runs yet. run_begin or run_checkpoint begins one.\n{EMPTY}"
    )
    await mine.runs.begin("first goal", run="a", max_attempts=9)
    await mine.runs.checkpoint("b", "of b", next_action="line one\nline two", done=1200)
    await mine.runs.begin("third", run="c")
    await mine.runs.finish("c", "failed", result="r\ns", reflection="why")
    clock.move(minutes=12)
    await attempt(mine, "a", "one", ok=True, tokens_out=5)
    listed = {
        "a": "a [open, 1 of 1 step done, touched just now]  first goal\n"
        "    spent: 1 of 9 attempts, 12 min, 5 tokens (0 in, 5 out)\n",
        "b": "b [open, 1,200 done, touched 12 min ago]  of b\n"
        "    spent: 0 attempts, 12 min\n"
        "    next: line one line two\n",
        "c": "c [failed, ended 12 min ago]  third\n"
        "    spent: 0 attempts, 0 min\n"
        "    result: r s\n"
        "    reflection: why\n",
    }
    counts = "(2 open · 0 completed · 1 failed · 0 abandoned)"
    assert await call("run_list") == (
        f"3 of 3 runs {counts}\n{listed['a']}{listed['c']}{listed['b']}{scope(7)}"
    )
    assert await call("run_list", status="open", limit=1) == (
        f"1 of 2 open runs {counts}\n{listed['a']}{scope(7)}"
    )
    assert await call("run_list", status="failed") == (
        f"1 of 1 failed run {counts}\n{listed['c']}{scope(7)}"
    )
    assert await call("run_list", status="abandoned") == (
        f"No abandoned runs here. Runs: {counts[1:-1]}.\n{scope(7)}"
    )
    assert await names(mine, "OPEN ") == ["a", "b"]


@pytest.mark.parametrize("limit", [0, -1, 101])
async def test_a_page_has_1_to_100_runs(call: Call, limit: int) -> None:
    assert await call("run_list", error=True, limit=limit) == (
        f"error: bad_argument: limit is {limit}. Give 1 to 100, and read on from there.\n{EMPTY}"
    )


async def test_a_long_list_fits_and_says_what_it_left_out(call: Call, mine: State) -> None:
    for n in range(40):
        await mine.runs.checkpoint(f"{n:02}{'x' * 120}", "y" * 400, next_action="z" * 400)
    text = await call("run_list", limit=100)
    assert len(text) < 10_000
    head = text.partition("\n")[0]
    assert head.startswith("40 of 40 runs (40 open · 0 completed · 0 failed · 0 abandoned); ")
    assert head.endswith(" left out for length: ask with a smaller limit")


# Rows and processes


async def test_sql_itself_keeps_runs_and_their_ends(mine: State, path: str) -> None:
    await mine.runs.begin("g", run="r")
    await mine.runs.finish("r", "completed", result="fine", evidence="make", reflection="x")
    await mine.runs.begin("g", run="open")
    before = rows(path, "SELECT * FROM runs")
    ends_once = "a finished run keeps its result"
    statements = {
        "UPDATE runs SET status = 'failed' WHERE name = 'r'": ends_once,
        "UPDATE runs SET status = 'open', finished_at = NULL WHERE name = 'r'": ends_once,
        "UPDATE runs SET result = 'forged' WHERE name = 'r'": ends_once,
        "UPDATE runs SET evidence = 'forged' WHERE name = 'r'": ends_once,
        "UPDATE runs SET reflection = '' WHERE name = 'r'": ends_once,
        "UPDATE runs SET status = 'completed', finished_at = '' WHERE name = 'open'": CHECK,
        "UPDATE runs SET max_attempts = 0 WHERE name = 'open'": CHECK,
        "DELETE FROM runs": "runs are kept",
    }
    with plain(path) as connection:
        for statement, refusal in statements.items():
            with pytest.raises(Refused, match=refusal):
                connection.execute(statement)
    assert rows(path, "SELECT * FROM runs") == before


def killed(path: str, *calls: RawCall, agent: str = "first") -> list[str]:
    """What a server answers to these before `kill -9`."""
    server = Server.start(path, agent=agent, toolset="all")
    with closing_all([server]):
        answers = [server.call(call).text for call in calls]
        assert server.kill() == []
    return answers


def step(tool: str, name: str, **arguments: Any) -> RawCall:
    return RawCall(tool, {"run_id": "r", "step": name, **arguments})


async def test_kill_9_between_begin_and_end_leaves_an_open_attempt_and_no_budget_is_given_back(
    path: str,
) -> None:
    begin = {"run_id": "r", "goal": "g", "thread": "work", "max_attempts": 3, "max_tokens": 9000}
    answers = killed(
        path,
        RawCall("thread_set", {"thread": "work"}),
        RawCall("run_begin", begin),
        step("step_begin", "one"),
        step("step_end", "one", ok=True, result="fine", tokens_in=70, tokens_out=7),
        step("step_begin", "two"),
    )
    assert answers[-1].startswith("go: step two of r, attempt 1\n")
    assert rows(path, "SELECT step, number, ok, result, tokens_in, tokens_out FROM attempts") == [
        ("one", 1, 1, "fine", 70, 7),
        ("two", 1, None, None, 0, 0),
    ]

    answers = killed(
        path,
        step("step_begin", "one"),
        step("step_end", "one", ok=True, result="fine", tokens_in=1),
        RawCall("run_resume", {}),
        step("step_begin", "two"),
        agent="second",
    )
    assert answers[0].startswith("done: step one of r, first ")
    assert answers[1].startswith("recorded already, unchanged: step one of r done, attempt 1\n")
    assert "spent: 2 of 3 attempts, 0 min, 77 of 9,000 tokens (70 in, 7 out)" in answers[2]
    assert "\n    two: attempt 1, begun by first " in answers[2]
    assert answers[3].split("\n")[0] == "go: step two of r, attempt 2"
    assert "attempt 1, begun by first " in answers[3]
    assert "was never ended: look whether its work is there already\n" in answers[3]

    for agent in ("third", "fourth"):
        (refused,) = killed(path, step("step_begin", "two"), agent=agent)
        assert refused.startswith("error: budget_spent: stop: run 'r' has spent its budget of att")
        assert "its thread 'work' is blocked." in refused
    assert rows(path, "SELECT attempts, tokens_in, tokens_out, stopped FROM runs") == [
        (3, 70, 7, "attempts")
    ]
    assert rows(path, "SELECT status FROM threads") == [("blocked",)]


async def test_a_loop_that_is_killed_after_each_attempt_is_stopped_all_the_same(
    path: str,
) -> None:
    killed(path, RawCall("run_begin", {"run_id": "r", "goal": "g"}))
    for n in range(1, 5):
        begun, _ = killed(
            path,
            step("step_begin", "one", input="a"),
            step("step_end", "one", ok=False, result=f"E42 after {n}.5s"),
            agent=f"agent {n}",
        )
        assert begun.startswith(f"go: step one of r, attempt {n}\n")
    (refused,) = killed(path, step("step_begin", "one", input="a"))
    assert "had the same outcome 4 times in a row for this input: 'E42 after 4.5s'" in refused
