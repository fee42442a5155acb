"""What may be done to a run, and what follows: its budgets, its thread, its versions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from mcp_state.calls import argument, call, either, tool
from mcp_state.errors import BadArgument, BudgetSpent, IllegalTransition, VersionConflict
from mcp_state.models import RunStatus, Status
from mcp_state.store import documents
from mcp_state.store.run_rows import (
    BUDGETS,
    checkpoint_row,
    costliest,
    find_run,
    row_of_run,
    run_of,
    run_row,
    spend_words,
    spent_budgets,
    text_of_run,
)
from mcp_state.store.text import one_line
from mcp_state.store.thread_rows import THREAD
from mcp_state.store.threads import move
from mcp_state.store.transaction import Reading, Row, Writing
from mcp_state.times import ago, from_text

_CHANGE = """
    UPDATE runs SET
        version = version + 1, changed = :seq, changed_at = :now, changed_by = :actor,
        touched = :seq, touched_at = :now, touched_by = :actor,
        status = :status, thread = :thread, max_attempts = :max_attempts,
        max_minutes = :max_minutes, max_tokens = :max_tokens, stopped = :stopped,
        finished_at = :finished_at, result = :result, evidence = :evidence,
        reflection = :reflection
    WHERE project = :project AND name = :name
"""
_TOUCH = """
    UPDATE runs SET touched = :seq, touched_at = :now, touched_by = :actor
    WHERE project = :project AND name = :name
"""
_WORK_ON = """
    INSERT INTO session_runs (project, session, run)
    SELECT :project, session, :name FROM actors WHERE id = :actor AND session <> ''
    ON CONFLICT (project, session) DO UPDATE SET run = excluded.run
"""
_STOPPED_TOO = """
    SELECT 1 FROM runs
    WHERE project = :project AND thread = :thread AND name <> :name AND status = 'open'
        AND stopped <> ''
    LIMIT 1
"""
_FOR_A_BUDGET = "a person: the budget of "
_MOST = 10**9
SHORTEN = "Shorten it; nothing was saved."


def into_a_blob() -> str:
    """What to do with a text that is too long."""
    return f"Keep what is long with {tool('blob_put')} and name its key here; nothing was saved."


def enter(tx: Writing, run: str) -> None:
    """Make a run (folded) what the transaction is about."""
    tx.subject, tx.of_run = ("run", run), run


def open_run(tx: Writing, run: str) -> Row:
    """The row of a run that is not finished, as what the transaction is about.

    Raises:
        NotFound: there is no such run.
        IllegalTransition: it is finished.
    """
    row = find_run(tx, run)
    enter(tx, row["name"])
    if row["status"] != RunStatus.OPEN:
        raise IllegalTransition(
            f"run {row['shown']!r} is {row['status']}, ended "
            f"{ago(from_text(row['finished_at']), tx.at)}",
            f"{call('run_resume', run_id=row['shown'])} returns its result; begin another run "
            "for further work.",
        )
    return row


def touch(tx: Writing, run: str, *, works: bool = True) -> None:
    """Note that the next event is the last one of a run (folded).

    This session works on it from now on, unless it only refuses or decides something.
    """
    tx.run(_TOUCH, {"name": run})
    if works:
        tx.run(_WORK_ON, {"name": run})


def join(tx: Writing, row: Row) -> Row:
    """From now on this session works on a run that was there."""
    name = row["name"]
    if row["status"] != RunStatus.OPEN or not tx.caller.actor.session or tx.current_run() == name:
        return row
    touch(tx, name)
    tx.event("join", "taken up", row_of_run(row), subject=("run", name))
    after = run_row(tx, name)
    assert after is not None
    return after


def change(tx: Writing, row: Row, operation: str, words: str, fields: dict[str, Any]) -> Row:
    """Change what is decided about a run, as its next version; returns the new row."""
    name = row["name"]
    columns = (*row_of_run(row), "name")
    tx.run(_CHANGE, {c: row[c] for c in columns} | fields)
    after = run_row(tx, name)
    assert after is not None
    version = after["version"]
    seq = tx.event(operation, words, row_of_run(after), version=version, subject=("run", name))
    index(tx, name, seq)
    return after


def index(tx: Writing, run: str, seq: int) -> None:
    """Make a run (folded) findable as it is now."""
    row = run_row(tx, run)
    assert row is not None
    documents.put(tx, "run", run, row["shown"], text_of_run(tx, row), seq, run)


def settle(tx: Writing, run: str) -> Row:
    """The row of a run (folded); it is stopped if its time or its tokens have run out by now.

    Attempts run out when one more is asked for.
    """
    row = run_row(tx, run)
    assert row is not None
    crossed = [b for b in spent_budgets(tx, row) if b != "attempts"]
    if row["stopped"] or not crossed:
        return row
    row = _stop(tx, row, crossed[0])
    block(tx, row)
    return row


def stop(tx: Writing, row: Row, spent: Sequence[str]) -> BudgetSpent:
    """The refusal of a run that has spent these budgets.

    From the first one on, the run's thread waits for a person. What this left behind is to be
    committed, so the refusal is returned; it is raised if there is nothing to commit.
    """
    if not row["stopped"]:
        row = _stop(tx, row, spent[0])
    shown, budgets = row["shown"], " and ".join(spent)
    most = costliest(tx, row["name"], spent[0])
    options = " ".join(f"--{budget} N" for budget in spent)
    refusal = BudgetSpent(
        f"stop: run {shown!r} has spent its budget of {budgets} ({spend_words(run_of(tx, row))}"
        f"{f'; most of it for {most}' if most else ''}){block(tx, row)}",
        f"Write a {either('run_checkpoint', 'checkpoint')} and offer the work with "
        f"{tool('handoff_create')}{either(' (through state_op if it is not listed)', '')}. Only a "
        "person can raise it: "
        f"`mcp-state runs raise {shlex.quote(shown)} {options} --reason WHY`.",
    )
    if tx.changed:
        return refusal
    raise refusal


def _stop(tx: Writing, row: Row, budget: str) -> Row:
    """Keep with a run which budget was found spent: no clock and no session takes that back."""
    return change(tx, row, "stop", f"the budget of {budget} is spent", {"stopped": budget})


def _waiting_for(tx: Reading, row: Row) -> str:
    words = f"{_FOR_A_BUDGET}{row['stopped']} of run {row['shown']} is spent"
    return one_line(words, tx.limits.text)


def block(tx: Writing, row: Row) -> str:
    """Let the run's thread wait for a person, if it is open; says where the thread is now."""
    thread = tx.one(THREAD, {"name": row["thread"]})
    if thread is None:
        return ""
    status: str = thread["status"]
    waiting_on = _waiting_for(tx, row)
    for_another = _waits(thread) and thread["waiting_on"] != waiting_on
    if for_another or status in (Status.ACTIVE, Status.WATCHING):
        status = Status.BLOCKED
        move(tx, thread, {"status": status, "waiting_on": waiting_on})
    return f"; its thread {thread['shown']!r} is {status}"


def unblock(tx: Writing, row: Row, why: str) -> None:
    """Let the run's thread go on, if it waits for a budget and no other run of it has spent its."""
    thread = tx.one(THREAD, {"name": row["thread"]})
    if thread is not None and _waits(thread) and tx.one(_STOPPED_TOO, dict(row)) is None:
        move(tx, thread, {"status": Status.ACTIVE, "note": one_line(why, tx.limits.text)})


def _waits(thread: Row) -> bool:
    """Whether a thread waits for a budget: the run may have got another name meanwhile."""
    waiting_on: str = thread["waiting_on"]
    return thread["status"] == Status.BLOCKED and waiting_on.startswith(_FOR_A_BUDGET)


def check_budget(budget: str, most: int) -> None:
    """Refuse a budget that makes no sense."""
    if not 1 <= most <= _MOST:
        raise BadArgument(
            f"the budget of {budget} is {most}", f"Give 1 to {_MOST:,}, or leave it out for none."
        )


def check_raise(row: Row, budget: str, most: int) -> None:
    """Refuse what would not give a run more of a budget that it has."""
    check_budget(budget, most)
    now = row[f"max_{budget}"]
    if now is None:
        raise BadArgument(
            f"run {row['shown']!r} has no budget of {budget}, so there is nothing to raise",
            f"It has {', '.join(b for b in BUDGETS if row[f'max_{b}'] is not None) or 'none'}.",
        )
    if now >= most:
        raise BadArgument(
            f"the budget of {budget} is {now:,} already",
            "Give the new maximum, not the difference.",
        )


def check_state(state: str, done: int | None, total: int | None) -> None:
    """Refuse a checkpoint that says nothing, or numbers that contradict each other."""
    if not state.strip():
        raise BadArgument("state is empty", "Say how far it got, so that another can go on.")
    for name, count in (("done", done), ("total", total)):
        if count is not None and not 0 <= count <= _MOST:
            raise BadArgument(f"{name} is {count}", f"Give 0 to {_MOST:,}.")
    if done is not None and total is not None and done > total:
        raise BadArgument(f"done is {done}, of a total of {total}", "Correct one of them.")


def check_number(tx: Reading, shown: str, row: Row | None, expected: int | None) -> None:
    """Refuse a checkpoint after another one than the expected.

    Raises:
        VersionConflict: another was made.
    """
    number = row["checkpoints"] if row is not None else 0
    if expected is None or expected == number:
        return
    if row is None:
        raise VersionConflict(
            f"run {shown!r} does not exist, so its last checkpoint is not {expected}",
            f"Use {argument('expected_number', 0)} to begin it, or leave "
            f"{argument('expected_number')} out.",
        )
    by = ""
    if (last := checkpoint_row(tx, row["name"], number)) is not None:
        by = f" (by {one_line(last['agent'], 40)} {ago(from_text(last['at']), tx.at)})"
    raise VersionConflict(
        f"the last checkpoint of run {shown!r} is {number or 'none yet'}{by}, not {expected}",
        f"Read it with {call('run_resume', run_id=shown)}, then make yours again with "
        f"{argument('expected_number', number)}.",
    )
