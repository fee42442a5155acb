"""Steps of a run: attempted within its budget, recorded once, and stopped when they go in circles.

An attempt is one *go*. The outcome of an attempt is the pair of `ok` and `result` without its
volatile parts (`outcomes`). Three equal outcomes in a row of the same step and input are warned
about; after four, the next attempt is refused until the input differs or a person resets the step.
"""

from __future__ import annotations

import shlex
from typing import TypeGuard

from mcp_state.calls import argument, call
from mcp_state.errors import (
    BadArgument,
    Conflict,
    IllegalTransition,
    NoProgress,
    NotFound,
    StateError,
)
from mcp_state.models import RunStatus, Step, StepBegun, StepEnded
from mcp_state.store.noun import Noun, writes
from mcp_state.store.outcomes import digest
from mcp_state.store.run_rows import (
    REFUSE_AT,
    attempt_of,
    find_run,
    open_attempts,
    row_of_step,
    run_of,
    spent_budgets,
    step_of,
    step_row,
)
from mcp_state.store.run_rules import SHORTEN, into_a_blob, open_run, settle, stop, touch
from mcp_state.store.text import clean, fold, one_line, tidy_name, within
from mcp_state.store.transaction import Reading, Row, Writing
from mcp_state.times import ago, from_text

_MOST_TOKENS = 10**12

_PUT = """
    INSERT INTO steps (
        project, run, name, shown, created, changed, changed_at, changed_by, status, input
    ) VALUES (
        :project, :run, :name, :shown, :seq, :seq, :now, :actor, 'open', :input
    )
    ON CONFLICT (project, run, name) DO UPDATE
       SET changed = excluded.changed, changed_at = excluded.changed_at,
           changed_by = excluded.changed_by, status = 'open', stopped = 0,
           streak = CASE WHEN steps.input = excluded.input THEN steps.streak ELSE 0 END,
           outcome = CASE WHEN steps.input = excluded.input THEN steps.outcome ELSE '' END,
           input = excluded.input
"""
_SET = """
    UPDATE steps SET changed = :seq, changed_at = :now, changed_by = :actor, status = :status,
        result = :result, outcome = :outcome, streak = :streak, stopped = :stopped
    WHERE project = :project AND run = :run AND name = :name
"""
_BEGIN = """
    INSERT INTO attempts (project, run, step, number, begun, begun_at, begun_by, input)
    SELECT :project, :run, :name, attempts + 1, :seq, :now, :actor, :input
    FROM steps WHERE project = :project AND run = :run AND name = :name
"""
_END = """
    UPDATE attempts SET ended = :seq, ended_at = :now, ended_by = :actor, ok = :ok,
        result = :result, tokens_in = :tokens_in, tokens_out = :tokens_out
    WHERE project = :project AND run = :run AND step = :name AND number = :number
"""
_ATTEMPT = """
    SELECT * FROM attempt_rows
    WHERE project = :project AND run = :run AND step = :name AND number = :number
"""
_GOOD = """
    SELECT * FROM attempt_rows
    WHERE project = :project AND run = :run AND step = :name AND ok = 1
    ORDER BY number DESC LIMIT 1
"""
_OPEN = """
    SELECT * FROM (
        SELECT number, begun, session FROM attempt_rows
        WHERE project = :project AND run = :run AND step = :name AND ended IS NULL
        ORDER BY number DESC LIMIT 50
    ) ORDER BY session = :session DESC, number DESC LIMIT 1
"""
_ENDED_HERE = """
    SELECT last.* FROM (
        SELECT * FROM attempt_rows WHERE project = :project AND run = :run AND step = :name
        ORDER BY number DESC LIMIT 50
    ) AS last JOIN actors ON actors.id = ended_by
    WHERE actors.session = :session ORDER BY ended DESC LIMIT 1
"""


class Steps(Noun):
    """The steps of the runs of one project."""

    async def begin(self, run: str, step: str, *, input: str = "") -> StepBegun:
        """Ask whether to do a step. `go` is an attempt, which is to be ended with `end`.

        Raises:
            NotFound: there is no such run.
            IllegalTransition: the run is finished, and the step was not done in it.
            NoProgress: the same input had the same outcome four times in a row.
            BudgetSpent: the run has used a budget; its thread is blocked.
        """
        answer = await self._begin(run, step, input)
        if isinstance(answer, StateError):
            raise answer  # what it left behind is committed
        return answer

    @writes
    def end(
        self,
        tx: Writing,
        run: str,
        step: str,
        ok: bool,
        result: str = "",
        *,
        tokens_in: int = 0,
        tokens_out: int = 0,
    ) -> StepEnded:
        """Record the outcome of an attempt, with the run's totals.

        Of several open attempts it ends that of this session. The outcome that this session
        recorded last is not recorded again before it has begun another attempt: the answer is
        marked `repeated`.

        Raises:
            BadArgument: a number of tokens makes no sense.
            NotFound: there is no such run, or the step was never begun.
            Conflict: the step is done, or the attempt ended, with another outcome.
            IllegalTransition: the run is finished.
            OverLimit: the result is longer than an entry may be.
        """
        for name, count in (("tokens_in", tokens_in), ("tokens_out", tokens_out)):
            if not 0 <= count <= _MOST_TOKENS:
                raise BadArgument(
                    f"{argument(name)} is {count}", "Give the number that the model reported."
                )
        found = find_run(tx, run)
        at, row = _enter(tx, found, step)
        if row is None:
            raise NotFound(
                f"step {step.strip()!r} of run {found['shown']!r} was never begun",
                f"Ask first: {call('step_begin', run_id=found['shown'], step=step)}.",
            )
        result = tx.text(
            result, f"the result of step {row['shown']!r}", tx.limits.entry, into_a_blob()
        )
        number, ended = _ending(tx, row, at, ok, result)
        if ended is not None:
            return StepEnded(run_of(tx, found), step_of(row), attempt_of(ended), repeated=True)
        open_run(tx, run)
        tx.subject = ("step", within(at["run"], at["name"]))
        end = {"number": number, "ok": ok, "result": result}
        tx.run(_END, at | end | {"tokens_in": tokens_in, "tokens_out": tokens_out})
        after = _record(tx, row, at, number, ok, result)
        touch(tx, at["run"])
        attempt = tx.one(_ATTEMPT, at | {"number": number})
        assert attempt is not None
        said = f": {one_line(result, 120)}" if result.strip() else ""
        words = f"attempt {number} {'ok' if ok else 'failed'}{said}"
        spent = {"ok": ok, "tokens_in": tokens_in, "tokens_out": tokens_out}
        tx.event("end", words, row_of_step(after) | {"attempt": {"number": number, **spent}})
        return StepEnded(run_of(tx, settle(tx, at["run"])), step_of(after), attempt_of(attempt))

    @writes
    def reset(self, tx: Writing, run: str, step: str, reason: str) -> Step:
        """Let a step be tried again, also one that was refused or is done. For people.

        Raises:
            BadArgument: there is no reason.
            NotFound: there is no such run or step.
            IllegalTransition: the run is finished.
        """
        found = open_run(tx, run)
        at, row = _enter(tx, found, step)
        if row is None:
            raise NotFound(
                f"run {found['shown']!r} has no step {step.strip()!r}",
                f"`mcp-state runs show {shlex.quote(found['shown'])}` lists them.",
            )
        if not reason.strip():
            raise BadArgument("there is no reason", "Say why it may be tried again.")
        reason = one_line(tx.text(reason, "the reason", tx.limits.text, SHORTEN), tx.limits.text)
        status = "open" if row["status"] == "open" else "failed"
        result = "" if row["status"] == "done" else row["result"]
        fields = {"status": status, "result": result, "outcome": "", "streak": 0}
        tx.run(_SET, at | fields | {"stopped": 0})
        touch(tx, at["run"], works=False)
        after = step_row(tx, at["run"], at["name"])
        assert after is not None
        was = "refused" if row["stopped"] else row["status"]
        words = f"reset by a person, was {was} ({reason})"
        tx.event("reset", words, row_of_step(after))
        return step_of(after)

    @writes
    def _begin(self, tx: Writing, run: str, step: str, input: str) -> StepBegun | StateError:
        found = find_run(tx, run)
        at, row = _enter(tx, found, step)
        shown = tx.name(step, "step") if row is None else row["shown"]
        if row is not None and row["status"] == "done":
            return StepBegun(found["shown"], step_of(row), go=False)
        if found["status"] != RunStatus.OPEN:
            raise IllegalTransition(
                f"stop: run {found['shown']!r} is {found['status']}, and step {shown!r} was not "
                "done in it",
                "Begin another run for further work.",
            )
        input = tx.text(input, f"the input of step {shown!r}", tx.limits.entry, into_a_blob())
        if spent := spent_budgets(tx, found):
            return stop(tx, found, spent)
        if row is not None and row["streak"] >= REFUSE_AT and row["input"] == input:
            return _refuse(tx, row, at)
        left_open = open_attempts(tx, at["run"], at["name"])
        fields = at | {"shown": shown, "input": input}
        tx.run(_PUT, fields)
        tx.run(_BEGIN, fields)
        touch(tx, at["run"])
        after = step_row(tx, at["run"], at["name"])
        assert after is not None
        number = after["attempts"]
        tx.event("begin", f"attempt {number} begun", row_of_step(after))
        return StepBegun(found["shown"], step_of(after), True, number, left_open)


def _enter(tx: Writing, run: Row, step: str) -> tuple[dict[str, str], Row | None]:
    """Where a step is, as what the transaction is about, and its row if there is one."""
    at = {"run": run["name"], "name": fold(tidy_name(step, "step"))}
    tx.subject, tx.of_run = ("step", within(at["run"], at["name"])), at["run"]
    return at, step_row(tx, at["run"], at["name"])


def _record(tx: Writing, row: Row, at: dict[str, str], number: int, ok: bool, result: str) -> Row:
    """The step after the outcome of one of its attempts."""
    attempt = tx.one(_ATTEMPT, at | {"number": number})
    assert attempt is not None
    outcome, streak = row["outcome"], row["streak"]
    if attempt["input"] == row["input"]:
        outcome = digest(ok, result)
        streak = streak + 1 if outcome == row["outcome"] else 1
    elif not ok:  # what was tried last is told, and perhaps refused, by its own outcome
        result = row["result"]
    going = not ok and number < row["attempts"] and row["status"] == "open"
    status = "done" if ok else "open" if going else "failed"
    fields = {"status": status, "result": result, "outcome": outcome, "streak": streak}
    stopped = row["stopped"] and not ok and streak >= REFUSE_AT
    tx.run(_SET, at | fields | {"stopped": stopped})
    after = step_row(tx, at["run"], at["name"])
    assert after is not None
    return after


def _ending(
    tx: Writing, row: Row, at: dict[str, str], ok: bool, result: str
) -> tuple[int, Row | None]:
    """The number of the attempt that is to be ended, or the one that ended with this outcome.

    Raises:
        Conflict: the step is done, or no attempt is open, and the outcome was another one.
    """
    session = clean(tx.caller.actor.session)[0]
    going = tx.one(_OPEN, at | {"session": session})
    here = tx.one(_ENDED_HERE, at | {"session": session})
    if going is not None and row["status"] != "done":
        mine = going["session"] == session
        if not _had(here, ok, result) or (mine and going["begun"] > here["ended"]):
            return going["number"], None
        return 0, here
    done = row["status"] == "done"
    last = tx.one(_GOOD, at) if done else tx.one(_ATTEMPT, at | {"number": row["attempts"]})
    assert last is not None
    for ended in (last, here):
        if _had(ended, ok, result):
            return 0, ended
    raise _other_outcome(tx, row, last)


def _had(attempt: Row | None, ok: bool, result: str) -> TypeGuard[Row]:
    """Whether an attempt ended with this outcome."""
    return attempt is not None and (attempt["ok"], attempt["result"]) == (ok, result)


def _other_outcome(tx: Reading, row: Row, last: Row) -> Conflict:
    when = ago(from_text(last["ended_at"]), tx.at)
    what = f"step {row['shown']!r} of run {row['run_shown']!r}"
    stored = one_line(last["result"], 200)
    if row["status"] == "done":
        return Conflict(
            f"{what} was done {when}, with the result {stored!r}",
            f"That stays. A person can reset it: `{_reset_command(row)}`.",
        )
    return Conflict(
        f"no attempt of {what} is open; the last one, {last['number']}, ended {when} with "
        f"{argument('ok', bool(last['ok']), of='step_end')} and {stored!r}",
        f"Ask for another: {call('step_begin', run_id=row['run_shown'], step=row['shown'])}.",
    )


def _reset_command(row: Row) -> str:
    run, step = shlex.quote(row["run_shown"]), shlex.quote(row["shown"])
    return f"mcp-state runs reset {run} {step} --reason WHY"


def _refuse(tx: Writing, row: Row, at: dict[str, str]) -> NoProgress:
    """The refusal of one more attempt; the first one is kept with the step, for `orient`."""
    refusal = NoProgress(
        f"stop: step {row['shown']!r} of run {row['run_shown']!r} had the same outcome "
        f"{row['streak']} times in a row for this input: {one_line(row['result'], 400)!r}",
        "Change the approach: give another input or another step, or note why it is a dead end: "
        f"{call('journal_append', kind='dead_end')}. A person can reset it: "
        f"`{_reset_command(row)}`.",
    )
    if row["stopped"]:
        raise refusal
    columns = ("status", "result", "outcome", "streak")
    tx.run(_SET, at | {column: row[column] for column in columns} | {"stopped": 1})
    touch(tx, at["run"], works=False)
    after = step_row(tx, at["run"], at["name"])
    assert after is not None
    words = f"refused: {row['streak']} times the same outcome"
    tx.event("stop", words, row_of_step(after))
    return refusal
