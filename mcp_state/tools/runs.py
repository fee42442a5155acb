"""Long runs: checkpoints that hold, steps done once."""

from __future__ import annotations

from typing import Annotated, Literal

from mcp_state import render_runs as render
from mcp_state.models import CheckpointMade, Resumed, Run, RunPage, StepBegun, StepEnded
from mcp_state.tools.arguments import described
from mcp_state.tools.orientation import page_size
from mcp_state.tools.spec import Ctx, Spec


async def run_begin(
    ctx: Ctx,
    goal: str = "",
    run_id: Annotated[str, described("made up if left out")] = "",
    thread: Annotated[str, described("blocked when a budget is spent")] = "",
    expected_outcome: str = "",
    max_attempts: int | None = None,
    max_minutes: int | None = None,
    max_tokens: int | None = None,
) -> Run:
    """Begin a long run with a budget, or return the run that has this id."""
    return await ctx.state.runs.begin(
        goal,
        run=run_id,
        thread=thread,
        expected_outcome=expected_outcome,
        max_attempts=max_attempts,
        max_minutes=max_minutes,
        max_tokens=max_tokens,
    )


async def run_checkpoint(
    ctx: Ctx,
    run_id: str,
    state: Annotated[str, described("how far it got: all that is needed to go on")],
    next_action: str = "",
    done: int | None = None,
    total: int | None = None,
    thread: str = "",
    expected_number: Annotated[int | None, described("of the last one")] = None,
) -> CheckpointMade:
    """Keep a snapshot of a long run that never changes; begins the run if it is new.

    It holds the run's memory and git state as they are now. Call it after each stretch of work.
    """
    return await ctx.state.runs.checkpoint(
        run_id,
        state,
        next_action=next_action,
        done=done,
        total=total,
        thread=thread,
        expected_number=expected_number,
    )


async def run_resume(ctx: Ctx, run_id: str = "", number: int | None = None) -> Resumed:
    """Where a run stands: last (or given) checkpoint, memory, steps, spend, what differs now.

    Without run_id, the newest unfinished run.
    """
    return await ctx.state.runs.resume(run_id, number=number)


async def run_finish(
    ctx: Ctx,
    run_id: str,
    status: Literal["completed", "failed", "abandoned"],
    result: str = "",
    evidence: str = "",
    reflection: Annotated[str, described("what the next one should know")] = "",
) -> Run:
    """End a run. completed needs evidence; the result is returned for ever."""
    return await ctx.state.runs.finish(
        run_id, status, result=result, evidence=evidence, reflection=reflection
    )


async def run_list(
    ctx: Ctx,
    status: Literal["open", "completed", "failed", "abandoned"] | None = None,
    limit: Annotated[int, described("default 20, at most 100")] = 20,
) -> RunPage:
    """Runs with progress, spend and age."""
    return await ctx.state.runs.list(status=status, limit=page_size(limit, 100))


async def step_begin(ctx: Ctx, run_id: str, step: str, input: str = "") -> StepBegun:
    """Ask before each step of a run: go, or done with the stored result (do not redo it).

    Fails with `no_progress` (same outcome 4 times: change the input or approach) or
    `budget_spent`: stop then.
    """
    return await ctx.state.steps.begin(run_id, step, input=input)


async def step_end(
    ctx: Ctx,
    run_id: str,
    step: str,
    ok: bool,
    result: str = "",
    tokens_in: int = 0,
    tokens_out: int = 0,
) -> StepEnded:
    """Record the outcome of a step; ok=false: not done yet, may be tried again."""
    return await ctx.state.steps.end(
        run_id, step, ok, result, tokens_in=tokens_in, tokens_out=tokens_out
    )


TOOLS = (
    Spec(
        run_begin,
        title="Begin a long run",
        show=lambda run, view: render.begun(run, view.now, view.arguments["goal"], view.arguments),
        writes=True,
        search_hint="start a long job, budget, stop-loss, workflow",
    ),
    Spec(
        run_checkpoint,
        title="Checkpoint a run",
        show=lambda made, view: render.checkpoint_made(made, view.now),
        writes=True,
        search_hint="save progress, snapshot of a long job, before compaction",
    ),
    Spec(
        run_resume,
        title="Resume a run",
        show=lambda found, view: render.resumed(found, view.now, session=view.session),
        search_hint="continue a long job after a crash, last checkpoint",
    ),
    Spec(
        run_finish,
        title="Finish a run",
        show=lambda run, view: render.finished(run, view.now),
        writes=True,
        idempotent=True,
        search_hint="complete, fail or abandon a long job",
    ),
    Spec(
        run_list,
        title="List runs",
        show=lambda page, view: render.run_page(
            page, view.now, view.totals, view.arguments["status"] or ""
        ),
        search_hint="long jobs, progress, budget, failed runs",
    ),
    Spec(
        step_begin,
        title="Ask whether to do a step",
        show=lambda answer, view: render.step_begun(answer, view.now),
        writes=True,
        search_hint="do a step once, retry, loop detection, was it done",
    ),
    Spec(
        step_end,
        title="Record the outcome of a step",
        show=lambda ended, view: render.step_ended(ended, view.now),
        writes=True,
        idempotent=True,
        search_hint="step result, tokens spent, success or failure",
    ),
)
