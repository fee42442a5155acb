"""Reading long runs: their rows, checkpoints, steps and attempts, and what was spent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mcp_state.calls import tool
from mcp_state.errors import NotFound
from mcp_state.git import GitState
from mcp_state.models import Actor, Attempt, Checkpoint, Run, RunStatus, Step
from mcp_state.store.text import fold, near_names, one_line, tidy_name
from mcp_state.store.transaction import Reading, Row, actor_of, time_of
from mcp_state.times import from_text, span

_RUN = "SELECT * FROM run_rows WHERE project = :project AND name = :name"
_NEWEST_OPEN = """
    SELECT * FROM run_rows WHERE project = :project AND status = 'open'
    ORDER BY touched DESC LIMIT 1
"""
_BY_STATUS = """
    SELECT * FROM run_rows WHERE project = :project AND status = :status
    ORDER BY touched DESC LIMIT :limit
"""
_NAMES = """
    SELECT shown FROM runs WHERE project = :project AND status = :status
    ORDER BY touched DESC LIMIT 100
"""
_CHECKPOINT = """
    SELECT * FROM checkpoint_rows WHERE project = :project AND run = :run AND number = :number
"""
_CHECKPOINTS = """
    SELECT * FROM checkpoint_rows WHERE project = :project AND run = :run
    ORDER BY number DESC LIMIT :limit
"""
_STEP = """
    SELECT * FROM step_rows WHERE project = :project AND run = :run AND name = :name
"""
_STEPS = """
    SELECT * FROM step_rows WHERE project = :project AND run = :run AND status = :status
    ORDER BY changed DESC LIMIT :limit
"""
_STOPPED = """
    SELECT * FROM step_rows WHERE project = :project AND stopped = 1
    ORDER BY changed DESC LIMIT :limit
"""
_COUNT_STEPS = """
    SELECT count(*) FROM (
        SELECT 1 FROM steps WHERE project = :project AND run = :run AND status = :status
        LIMIT 1000
    )
"""
_LEFT_OPEN = """
    SELECT attempt_rows.*, steps.shown AS step_shown FROM steps
    JOIN attempt_rows ON attempt_rows.project = steps.project AND attempt_rows.run = steps.run
        AND attempt_rows.step = steps.name AND attempt_rows.number = steps.attempts
    WHERE steps.project = :project AND steps.run = :run AND steps.status = 'open'
    ORDER BY steps.changed DESC LIMIT :limit
"""
_OPEN_ATTEMPTS = """
    SELECT * FROM attempt_rows
    WHERE project = :project AND run = :run AND step = :step AND ended IS NULL
    ORDER BY number DESC LIMIT :limit
"""
_BY_ATTEMPTS = """
    SELECT shown, attempts, tokens_in + tokens_out AS tokens FROM steps
    WHERE project = :project AND run = :run ORDER BY attempts DESC LIMIT 3
"""
_BY_TOKENS = """
    SELECT shown, attempts, tokens_in + tokens_out AS tokens FROM steps
    WHERE project = :project AND run = :run ORDER BY tokens_in + tokens_out DESC LIMIT 3
"""
WARN_AT = 3
REFUSE_AT = 4
"""Equal outcomes of a step in a row."""
BUDGETS = ("attempts", "minutes", "tokens")
MOST_COUNTED = 1000
"""Of the events of a run, and of its steps of one status."""


def find_run(tx: Reading, run: str) -> Row:
    """The row of a run, by its name.

    Raises:
        NotFound: there is none; near names are listed.
    """
    name = fold(tidy_name(run, "run_id"))
    row = tx.one(_RUN, {"name": name})
    if row is None:
        raise no_run(tx, run)
    return row


def run_row(tx: Reading, name: str) -> Row | None:
    """The row of a run by its folded name."""
    return tx.one(_RUN, {"name": name})


def named_run(tx: Reading, run: str) -> str:
    """The folded name of a run that is there, or empty for none.

    Raises:
        NotFound: there is no such run.
    """
    return find_run(tx, run)["name"] if run.strip() else ""


def no_run(tx: Reading, run: str) -> NotFound:
    """The refusal, with up to three names, out of the last touched ones, that might be meant."""
    rows = [row for status in RunStatus for row in tx.all(_NAMES, {"status": status})]
    shown = {fold(row["shown"]): row["shown"] for row in rows}
    near = [shown[name] for name in near_names(fold(run), shown)]
    begins = f"{tool('run_begin')} or {tool('run_checkpoint')} begins one"
    return NotFound.named("run", run.strip(), near, f"{tool('run_list')} shows them; {begins}.")


def newest_open(tx: Reading) -> Row | None:
    """The unfinished run that was touched last."""
    return tx.one(_NEWEST_OPEN)


def runs_of_status(tx: Reading, statuses: Sequence[RunStatus], limit: int) -> list[Run]:
    """The last touched runs of these statuses, newest first."""
    rows = [row for s in statuses for row in tx.all(_BY_STATUS, {"status": s, "limit": limit})]
    rows.sort(key=lambda row: -row["touched"])
    return [run_of(tx, row) for row in rows[:limit]]


def run_of(tx: Reading, row: Row, *, existing: bool = False, repeated: bool = False) -> Run:
    """The model of a row."""
    created_at, finished_at = from_text(row["created_at"]), time_of(row["finished_at"])
    seconds = ((finished_at or tx.at) - created_at).total_seconds()
    return Run(
        name=row["shown"],
        goal=row["goal"],
        status=RunStatus(row["status"]),
        version=row["version"],
        created_at=created_at,
        touched_at=from_text(row["touched_at"]),
        touched_by=Actor(row["touched_agent"], row["touched_client"], row["touched_session"]),
        expected_outcome=row["expected_outcome"],
        thread=row["thread_shown"],
        max_attempts=row["max_attempts"],
        max_minutes=row["max_minutes"],
        max_tokens=row["max_tokens"],
        attempts=row["attempts"],
        minutes=max(0, int(seconds // 60)),
        tokens_in=row["tokens_in"],
        tokens_out=row["tokens_out"],
        steps=row["steps"],
        steps_done=row["steps_done"],
        checkpoints=row["checkpoints"],
        checkpoint_at=time_of(row["checkpoint_at"]),
        done=row["done"],
        total=row["total"],
        next_action=row["next_action"],
        stopped=row["stopped"],
        finished_at=finished_at,
        result=row["result"],
        evidence=row["evidence"],
        reflection=row["reflection"],
        existing=existing,
        repeated=repeated,
    )


def row_of_run(row: Row) -> dict[str, Any]:
    """What the event keeps of a run; its totals are those of its checkpoints and attempts."""
    columns = (
        "version",
        "status",
        "goal",
        "expected_outcome",
        "thread",
        "max_attempts",
        "max_minutes",
        "max_tokens",
        "stopped",
        "finished_at",
        "result",
        "evidence",
        "reflection",
    )
    return {"name": row["shown"], **{column: row[column] for column in columns}}


def text_of_run(tx: Reading, row: Row) -> str:
    """What `search` reads of a run: what it is for, how far it got, how it ended."""
    last = checkpoint_row(tx, row["name"], row["checkpoints"])
    texts = [row["shown"], row["goal"], row["expected_outcome"]]
    texts += [last["state"], last["next_action"]] if last is not None else []
    texts += [row["result"], row["evidence"], row["reflection"]]
    return "\n".join(text for text in texts if text)


def checkpoint_row(tx: Reading, run: str, number: int) -> Row | None:
    """One checkpoint of a run (folded)."""
    return tx.one(_CHECKPOINT, {"run": run, "number": number})


def last_checkpoints(tx: Reading, run: str, limit: int) -> list[Checkpoint]:
    """The newest checkpoints, oldest first."""
    rows = tx.all(_CHECKPOINTS, {"run": run, "limit": limit})
    return [checkpoint_of(row) for row in rows[::-1]]


def checkpoint_of(row: Row) -> Checkpoint:
    """The model of a row."""
    git: dict[str, Any] = json.loads(row["git"])
    git["dirty"] = tuple(git["dirty"])
    return Checkpoint(
        number=row["number"],
        seq=row["seq"],
        at=from_text(row["at"]),
        actor=actor_of(row),
        worktree=row["worktree"],
        state=row["state"],
        next_action=row["next_action"],
        done=row["done"],
        total=row["total"],
        git=GitState(**git),
    )


def row_of_checkpoint(run: str, row: Row) -> dict[str, Any]:
    """What the event keeps of a checkpoint of a run (as shown)."""
    return {
        "name": f"{run}/{row['number']}",
        "number": row["number"],
        "state": row["state"],
        "next_action": row["next_action"],
        "done": row["done"],
        "total": row["total"],
        "git": json.loads(row["git"]),
    }


def step_row(tx: Reading, run: str, name: str) -> Row | None:
    """One step of a run, both folded."""
    return tx.one(_STEP, {"run": run, "name": name})


def last_steps(tx: Reading, run: str, status: str, limit: int) -> list[Step]:
    """The last changed steps of a status, newest first."""
    rows = tx.all(_STEPS, {"run": run, "status": status, "limit": limit})
    return [step_of(row) for row in rows]


def stopped_steps(tx: Reading, limit: int) -> list[Step]:
    """The steps of the project that were refused because they got nowhere, newest first."""
    return [step_of(row) for row in tx.all(_STOPPED, {"limit": limit})]


def count_steps(tx: Reading, run: str, status: str) -> int:
    """How many steps of a run have this status; at most 1,000 are counted."""
    return tx.scalar(_COUNT_STEPS, {"run": run, "status": status})


def step_of(row: Row) -> Step:
    """The model of a row."""
    return Step(
        name=row["shown"],
        run=row["run_shown"],
        status=row["status"],
        changed_at=from_text(row["changed_at"]),
        changed_by=actor_of(row),
        input=row["input"],
        result=row["result"],
        attempts=row["attempts"],
        tokens_in=row["tokens_in"],
        tokens_out=row["tokens_out"],
        streak=row["streak"],
        stopped=bool(row["stopped"]),
    )


def row_of_step(row: Row) -> dict[str, Any]:
    """What the event keeps of a step."""
    columns = ("status", "input", "result", "outcome", "streak", "stopped", "attempts")
    return {
        "name": f"{row['run_shown']}/{row['shown']}",
        "step": row["shown"],
        **{column: row[column] for column in columns},
    }


def attempt_of(row: Row) -> Attempt:
    """The model of a row."""
    return Attempt(
        number=row["number"],
        begun_at=from_text(row["begun_at"]),
        begun_by=actor_of(row),
        input=row["input"],
        ended_at=time_of(row["ended_at"]),
        ok=None if row["ok"] is None else bool(row["ok"]),
        result=row["result"] or "",
        tokens_in=row["tokens_in"],
        tokens_out=row["tokens_out"],
    )


def open_attempts(tx: Reading, run: str, step: str, limit: int = 5) -> list[Attempt]:
    """The attempts of a step that nobody ended, the last one first."""
    params = {"run": run, "step": step, "limit": limit}
    return [attempt_of(row) for row in tx.all(_OPEN_ATTEMPTS, params)]


def left_open(tx: Reading, run: str, limit: int) -> list[tuple[str, Attempt]]:
    """Steps whose last attempt nobody ended, with that attempt, the last begun first."""
    rows = tx.all(_LEFT_OPEN, {"run": run, "limit": limit})
    return [(row["step_shown"], attempt_of(row)) for row in rows]


def spent_budgets(tx: Reading, row: Row | Mapping[str, Any]) -> list[str]:
    """Which budgets of a run are spent: the one that was found spent before comes first."""
    elapsed = (tx.at - from_text(row["created_at"])).total_seconds() / 60
    used = {
        "attempts": row["attempts"],
        "minutes": elapsed,
        "tokens": row["tokens_in"] + row["tokens_out"],
    }
    spent = [b for b in BUDGETS if (most := row[f"max_{b}"]) is not None and used[b] >= most]
    return list(dict.fromkeys([row["stopped"], *spent] if row["stopped"] else spent))


def progress_words(done: int | None, total: int | None) -> str:
    """`41/300`, `41 done`, or nothing."""
    if done is None:
        return ""
    return f"{done:,} done" if total is None else f"{done:,}/{total:,}"


def spend_words(run: Run) -> str:
    """What a run spent of what it was given: `44 of 100 attempts, 12 of 60 min, …`."""

    def part(used: int, most: int | None, noun: str) -> str:
        count = f"{used:,}" if most is None else f"{used:,} of {most:,}"
        return f"{count} {noun}" + ("" if (used if most is None else most) == 1 else "s")

    tokens = run.tokens_in + run.tokens_out
    words = [
        part(run.attempts, run.max_attempts, "attempt"),
        f"{run.minutes:,} of {run.max_minutes:,} min"
        if run.max_minutes is not None
        else span(run.minutes * 60)
        if run.minutes
        else "0 min",
    ]
    if tokens or run.max_tokens is not None:
        apart = f" ({run.tokens_in:,} in, {run.tokens_out:,} out)"
        words.append(part(tokens, run.max_tokens, "token") + apart)
    return ", ".join(words)


def costliest(tx: Reading, run: str, budget: str) -> str:
    """The steps that most of a budget went to, in words; minutes are told by attempts."""
    rows = tx.all(_BY_TOKENS if budget == "tokens" else _BY_ATTEMPTS, {"run": run})
    return ", ".join(
        f"{one_line(row['shown'], 60)!r} ({row['attempts']}x"
        + (f", {row['tokens']:,} tokens)" if row["tokens"] else ")")
        for row in rows
    )
