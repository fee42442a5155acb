"""`mcp-state runs`: long runs, for people who look after them and scripts that do steps once."""

from __future__ import annotations

from typing import TypedDict

import click

from mcp_state import render, render_runs
from mcp_state.cli import complete
from mcp_state.cli.common import (
    COUNT,
    NUMBER,
    ON_PROJECT,
    Options,
    Seen,
    TextOrStdin,
    answer,
    store_options,
)
from mcp_state.cli.groups import Fallback, Suggesting
from mcp_state.errors import BadArgument
from mcp_state.models import Run, RunStatus, Step, StepBegun
from mcp_state.store.run_rows import spend_words
from mcp_state.store.runs import parse_run_status

DONE_ALREADY = 3
"""Exit code of `step begin`."""


class _Begin(TypedDict):
    thread: str
    expected_outcome: str
    max_attempts: int | None
    max_minutes: int | None
    max_tokens: int | None


@click.group(
    cls=Fallback,
    fallback="list",
    epilog="""
    mcp-state runs
    mcp-state runs show reindex
    mcp-state runs raise reindex --attempts 60 --reason 'nearly done'
    """,
)
def runs() -> None:
    """Look into long runs, give them more, or work on one; `runs` lists them."""


@runs.command(
    "list",
    epilog="""
    mcp-state runs
    mcp-state runs list --status failed
    """,
)
@click.option(
    "--status",
    help="Only open, completed, failed or abandoned ones.",
    shell_complete=complete.words(*RunStatus),
)
@click.option("-n", "--limit", type=COUNT, default=20, show_default=True, help="At most so many.")
@store_options(*ON_PROJECT)
def list_(options: Options, status: str | None, limit: int) -> None:
    """List runs with progress, spend and age, the last touched first."""
    wanted = parse_run_status(status) if status is not None else None
    answer(
        options,
        lambda state: state.runs.list(status=wanted, limit=limit),
        lambda page, seen: render_runs.run_page(
            page, seen.now, seen.totals, wanted or "", render.ALL
        ),
    )


@runs.command(
    epilog="""
    mcp-state runs show reindex
    mcp-state runs show reindex -n 5
    """,
)
@click.argument("run", shell_complete=complete.runs)
@click.option(
    "-n", "--limit", type=COUNT, default=100, show_default=True, help="At most so many of each."
)
@store_options(*ON_PROJECT)
def show(options: Options, run: str, limit: int) -> None:
    """Show everything that a run did.

    What it spent, its checkpoints, steps, memory and events; every attempt is an event.
    """
    answer(
        options,
        lambda state: state.runs.show(run, limit=limit),
        lambda detail, seen: render_runs.run_detail(detail, seen.now, render.ALL),
    )


@runs.command(
    epilog="""
    mcp-state runs resume
    mcp-state runs resume reindex --number 1
    """,
)
@click.argument("run", required=False, default="", shell_complete=complete.runs)
@click.option("--number", type=NUMBER, help="An earlier checkpoint.")
@store_options(*ON_PROJECT)
def resume(options: Options, run: str, number: int | None) -> None:
    """Show where a run stands, as an agent reads it that takes the run up; nothing is changed.

    Without RUN, it is the unfinished run that was touched last.
    """
    answer(
        options,
        lambda state: state.runs.resume(run, number=number),
        lambda found, seen: render_runs.resumed(found, seen.now, render.ALL, seen.session),
    )


@runs.command(
    epilog="""
    mcp-state runs begin nightly "Check the mirrors" --attempts 50
    """,
)
@click.argument("run", shell_complete=complete.runs)
@click.argument("goal", required=False, default="")
@click.option(
    "--thread",
    default="",
    help="The thread that is blocked when a budget is spent.",
    shell_complete=complete.threads,
)
@click.option("--expected-outcome", default="", help="What will be there when it is done.")
@click.option("--attempts", type=int, help="Budget: attempts of all its steps.")
@click.option("--minutes", type=int, help="Budget: minutes from now.")
@click.option("--tokens", type=int, help="Budget: tokens in and out, as they are reported.")
@store_options(*ON_PROJECT)
def begin(
    options: Options,
    run: str,
    goal: str,
    thread: str,
    expected_outcome: str,
    attempts: int | None,
    minutes: int | None,
    tokens: int | None,
) -> None:
    """Begin a run, or show the run of this name as it is.

    A new run needs a GOAL.
    """
    if not run.strip():
        raise BadArgument("RUN is empty", "Give the run a name.")
    given = _Begin(
        thread=thread,
        expected_outcome=expected_outcome,
        max_attempts=attempts,
        max_minutes=minutes,
        max_tokens=tokens,
    )
    answer(
        options,
        lambda state: state.runs.begin(goal, run=run, **given),
        lambda begun, seen: render_runs.begun(begun, seen.now, goal, given),
        writes=True,
    )


@runs.command(
    epilog="""
    mcp-state runs checkpoint reindex "2 of 3 files" --done 2 --total 3
    """,
)
@click.argument("run", shell_complete=complete.runs)
@click.argument("state", type=TextOrStdin())
@click.option("--next-action", default="", help="What to do next.")
@click.option("--done", type=int, help="How much of it is done.")
@click.option("--total", type=int, help="How much there is to do.")
@click.option(
    "--thread",
    default="",
    help="The thread that is blocked when a budget is spent.",
    shell_complete=complete.threads,
)
@click.option("--expected-number", type=NUMBER, help="Refuse if this is not the last; 0: none.")
@store_options(*ON_PROJECT)
def checkpoint(
    options: Options,
    run: str,
    state: str,
    next_action: str,
    done: int | None,
    total: int | None,
    thread: str,
    expected_number: int | None,
) -> None:
    """Keep how far a run got, for whoever goes on with it; begins the run if it is new.

    A STATE of - is read from standard input.
    """
    answer(
        options,
        lambda store: store.runs.checkpoint(
            run,
            state,
            next_action=next_action,
            done=done,
            total=total,
            thread=thread,
            expected_number=expected_number,
        ),
        lambda made, seen: render_runs.checkpoint_made(made, seen.now),
        writes=True,
    )


@runs.command(
    epilog="""
    mcp-state runs finish reindex completed --evidence "3 of 3 files agree"
    mcp-state runs finish reindex failed --reflection "the archive is damaged"
    """,
)
@click.argument("run", shell_complete=complete.runs)
@click.argument("status", shell_complete=complete.words("completed", "failed", "abandoned"))
@click.option("--result", default="", help="What came of it; whoever resumes it is told.")
@click.option("--evidence", default="", help="What proves it: test run, commit, link.")
@click.option("--reflection", default="", help="Why it ended so; what the next one should know.")
@store_options(*ON_PROJECT)
def finish(
    options: Options, run: str, status: str, result: str, evidence: str, reflection: str
) -> None:
    """End a run for good.

    STATUS is completed, which needs --evidence, or failed or abandoned, which need --result or
    --reflection.
    """
    answer(
        options,
        lambda state: state.runs.finish(
            run, status, result=result, evidence=evidence, reflection=reflection
        ),
        lambda ended, seen: render_runs.finished(ended, seen.now),
        writes=True,
    )


@runs.command(
    "raise",
    epilog="""
    mcp-state runs raise reindex --attempts 60 --reason 'nearly done'
    """,
)
@click.argument("run", shell_complete=complete.runs)
@click.option("--attempts", type=int, help="The new maximum of attempts.")
@click.option("--minutes", type=int, help="The new maximum of minutes, from when it began.")
@click.option("--tokens", type=int, help="The new maximum of tokens, in and out together.")
@click.option("--reason", required=True, help="Why it gets more; kept in history.")
@store_options(*ON_PROJECT)
def raise_(
    options: Options,
    run: str,
    attempts: int | None,
    minutes: int | None,
    tokens: int | None,
    reason: str,
) -> None:
    """Give a run a larger budget. For people.

    Each number is a new maximum, not what is added. A thread that was blocked because the budget
    was spent becomes active again.
    """
    answer(
        options,
        lambda state: state.runs.raise_budget(
            run, reason, attempts=attempts, minutes=minutes, tokens=tokens
        ),
        _raised,
        writes=True,
    )


def _raised(run: Run, seen: Seen) -> str:
    lines = [f"raised: {render_runs.run_head(run, seen.now)}", f"spent: {spend_words(run)}"]
    if run.stopped:
        lines.append(f"It stays stopped: the budget of {run.stopped} is spent too.")
    return "\n".join(lines)


@runs.command(
    epilog="""
    mcp-state runs reset reindex file-2 --reason 'the disk is larger now'
    """,
)
@click.argument("run", shell_complete=complete.runs)
@click.argument("step")
@click.option("--reason", required=True, help="Why it may be tried again; kept in history.")
@store_options(*ON_PROJECT)
def reset(options: Options, run: str, step: str, reason: str) -> None:
    """Let a step be tried again that was refused or is done. For people."""
    answer(options, lambda state: state.steps.reset(run, step, reason), _was_reset, writes=True)


def _was_reset(step: Step, seen: Seen) -> str:
    so_far = render.plural(step.attempts, "attempt")
    return (
        f"reset: step {render.name(step.name)} of {render.name(step.run)} may be tried again, "
        f"{so_far} so far"
    )


@runs.group(
    cls=Suggesting,
    epilog="""
    mcp-state runs step begin reindex file-2 && reindex file-2
    """,
)
def step() -> None:
    """Do each step of a run once, from a script.

    `mcp-state runs step begin RUN STEP` tells whether to do the work; say afterwards how it went
    with `mcp-state runs step end RUN STEP --ok` or `--failed`, so that it is done once, and a
    failure that repeats itself is stopped.
    """


@step.command(
    "begin",
    epilog="""
    mcp-state runs step begin reindex file-2 && reindex file-2
    """,
)
@click.argument("run", shell_complete=complete.runs)
@click.argument("step")
@click.option(
    "--input", default="", help="What it works on; too many equal outcomes of one input stop it."
)
@store_options(*ON_PROJECT)
@click.pass_context
def step_begin(ctx: click.Context, options: Options, run: str, step: str, input: str) -> None:
    """Ask whether to do a step of a run; the exit code is the answer.

    0: go, and say with `step end` how it went. 3: done already, do not do it again. 1: stop, since
    a budget is spent, the outcome was the same too often, the run has ended or there is none, or
    the store can't be used. 2: wrong arguments.

    It is no lock: an attempt that nobody ended is shown, and keeps nobody from another one.
    """
    begun = answer(
        options,
        lambda state: state.steps.begin(run, step, input=input),
        lambda begun, seen: render_runs.step_begun(begun, seen.now, render.ALL),
        writes=True,
    )
    if isinstance(begun, StepBegun) and not begun.go:
        ctx.exit(DONE_ALREADY)


@step.command(
    "end",
    epilog="""
    mcp-state runs step end reindex file-3 '1,204 rows' --ok
    mcp-state runs step end reindex file-3 - --failed < error.log
    """,
)
@click.argument("run", shell_complete=complete.runs)
@click.argument("step")
@click.argument("result", type=TextOrStdin(), required=False, default="")
@click.option("--ok", is_flag=True, help="It is done.")
@click.option("--failed", is_flag=True, help="It is not done yet, and may be tried again.")
@click.option("--tokens-in", type=int, default=0, help="Tokens that a model read for it.")
@click.option("--tokens-out", type=int, default=0, help="Tokens that a model wrote for it.")
@store_options(*ON_PROJECT)
def step_end(
    options: Options,
    run: str,
    step: str,
    result: str,
    ok: bool,
    failed: bool,
    tokens_in: int,
    tokens_out: int,
) -> None:
    """Record how an attempt of a step went.

    A RESULT of - is read from standard input.
    """
    if ok is failed:
        both = "both --ok and --failed were" if ok else "neither --ok nor --failed was"
        raise BadArgument(f"{both} given", "Give one of them.")
    answer(
        options,
        lambda state: state.steps.end(
            run, step, ok, result, tokens_in=tokens_in, tokens_out=tokens_out
        ),
        lambda ended, seen: render_runs.step_ended(ended, seen.now),
        writes=True,
    )
