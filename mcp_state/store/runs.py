"""Long runs: begun, checkpointed, resumed and finished, within a budget that no session resets."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from mcp_state import git
from mcp_state.calls import argument, asked, call, either, meant
from mcp_state.errors import (
    BadArgument,
    Conflict,
    EvidenceRequired,
    NotFound,
)
from mcp_state.models import (
    Actor,
    Checkpoint,
    CheckpointMade,
    Resumed,
    Run,
    RunDetail,
    RunPage,
    RunStatus,
    Since,
)
from mcp_state.store.events import count_changes, count_of_run, last_events_of_run
from mcp_state.store.memory import blocks_at, keys_changed_since
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.run_rows import (
    BUDGETS,
    MOST_COUNTED,
    checkpoint_of,
    checkpoint_row,
    count_steps,
    find_run,
    last_checkpoints,
    last_steps,
    left_open,
    newest_open,
    progress_words,
    row_of_checkpoint,
    row_of_run,
    run_of,
    run_row,
    runs_of_status,
    spent_budgets,
)
from mcp_state.store.run_rules import (
    SHORTEN,
    block,
    change,
    check_budget,
    check_number,
    check_raise,
    check_state,
    enter,
    index,
    into_a_blob,
    join,
    open_run,
    settle,
    touch,
    unblock,
)
from mcp_state.store.text import fold, one_line, within
from mcp_state.store.thread_rows import find_row
from mcp_state.store.transaction import Reading, Row, Writing, actor_of
from mcp_state.times import from_text

_INSERT = """
    INSERT INTO runs (
        project, name, shown, created, created_at, changed, changed_at, changed_by, version,
        touched, touched_at, touched_by, status, goal, expected_outcome, thread,
        max_attempts, max_minutes, max_tokens
    ) VALUES (
        :project, :name, :shown, :seq, :now, :seq, :now, :actor, 1,
        :seq, :now, :actor, 'open', :goal, :expected_outcome, :thread,
        :max_attempts, :max_minutes, :max_tokens
    )
"""
_CHECKPOINT = """
    INSERT INTO checkpoints (
        project, run, number, seq, at, actor, state, next_action, done, total, git
    ) VALUES (
        :project, :run, :number, :seq, :now, :actor, :state, :next_action, :done, :total, :git
    )
"""
_WRITERS = """
    SELECT run, at, agent, client, session FROM event_rows
    WHERE project = :project AND seq > :since
        AND kind <> 'trace' AND operation NOT IN ('fall', 'due')
    ORDER BY seq DESC LIMIT 200
"""


class Runs(Noun):
    """The runs of one project."""

    @writes
    def begin(
        self,
        tx: Writing,
        goal: str,
        *,
        run: str = "",
        thread: str = "",
        expected_outcome: str = "",
        max_attempts: int | None = None,
        max_minutes: int | None = None,
        max_tokens: int | None = None,
    ) -> Run:
        """Begin a run, or return the one that has this name as it is, marked `existing`.

        Without `run` the store makes a name. `thread` is the line of work that is blocked when a
        budget is spent: attempts of all steps, minutes from now, tokens as reported.

        Raises:
            BadArgument: a new run has no goal, or a budget is not 1 to 1,000,000,000.
            NotFound: there is no such thread.
            OverLimit: a text is too long.
        """
        shown = tx.name(run, "run_id") if run.strip() else tx.clock.new_id("r-")
        enter(tx, fold(shown))
        row = run_row(tx, fold(shown))
        if row is not None:
            return run_of(tx, join(tx, row), existing=True)
        if not goal.strip():
            named = f"there is no run {shown!r}, and " if run.strip() else ""
            raise BadArgument(
                f"{named}a new run needs a goal",
                f"Say in {argument('goal', of='run_begin')} what it is to reach.",
            )
        budget = {"attempts": max_attempts, "minutes": max_minutes, "tokens": max_tokens}
        return run_of(tx, _begin(tx, shown, goal, thread, expected_outcome, budget))

    async def checkpoint(
        self,
        run: str,
        state: str,
        *,
        next_action: str = "",
        done: int | None = None,
        total: int | None = None,
        thread: str = "",
        expected_number: int | None = None,
    ) -> CheckpointMade:
        """Keep one more snapshot of how far a run got; begins the run if it is new.

        It keeps HEAD, branch and changed files of the caller's worktree too, and stands for the
        run's memory at this moment. `expected_number` is that of the last checkpoint (0: none).

        Raises:
            BadArgument: there is no state, or `done` and `total` make no sense.
            NotFound: there is no such thread.
            VersionConflict: another checkpoint was made since `expected_number`.
            IllegalTransition: the run is finished.
            OverLimit: the state is longer than an entry may be.
        """
        now = await self._git()
        return await self._checkpoint(
            now, run, state, next_action, (done, total), thread, expected_number
        )

    async def resume(self, run: str = "", *, number: int | None = None) -> Resumed:
        """Where a run stands, by its last checkpoint or that of a number; nothing is changed.

        Without `run`, the unfinished run that was touched last; `run` of the answer is None if
        there is none.

        Raises:
            NotFound: there is no such run or checkpoint.
        """
        found = await self._resume(run, number)
        then = found.checkpoint
        if then is None or (found.run is not None and found.run.status is not RunStatus.OPEN):
            return found
        return replace(found, differences=_differences(then, self.worktree, await self._git()))

    @writes
    def finish(
        self,
        tx: Writing,
        run: str,
        status: RunStatus | str,
        *,
        result: str = "",
        evidence: str = "",
        reflection: str = "",
    ) -> Run:
        """End a run for ever. Saying the same again returns it, marked `repeated`.

        Raises:
            BadArgument: `status` is no end, or a run that failed or was abandoned does not say why.
            NotFound: there is no such run.
            EvidenceRequired: completed without evidence.
            Conflict: it has ended in another way.
            OverLimit: a text is too long.
        """
        status = _end(status)
        row = find_run(tx, run)
        shown = row["shown"]
        enter(tx, row["name"])
        limit = tx.limits.entry
        said = {
            "result": tx.text(result, f"the result of run {shown!r}", limit, SHORTEN),
            "evidence": tx.text(evidence, f"the evidence of run {shown!r}", limit, SHORTEN),
            "reflection": tx.text(reflection, f"the reflection on run {shown!r}", limit, SHORTEN),
        }
        if row["status"] != RunStatus.OPEN:
            if row["status"] != status or any(row[k] != v for k, v in said.items() if v):
                stored = next((label for label in said if row[label]), "result")
                raise Conflict(
                    f"run {shown!r} is {row['status']} already, with the {stored} "
                    f"{one_line(row[stored], 200)!r}",
                    "That stays. Begin another run for further work.",
                )
            return run_of(tx, row, repeated=True)
        if status is RunStatus.COMPLETED and not evidence.strip():
            raise EvidenceRequired(
                f"run {shown!r} is not completed without evidence",
                f"Give {asked('evidence')}: a test run and its exit code, a commit, a link, "
                "file:line.",
            )
        if status is not RunStatus.COMPLETED and not (result.strip() or reflection.strip()):
            raise BadArgument(
                f"run {shown!r} is to be {status} without a reason",
                f"Say in {asked('reflection')} why, so that nobody tries it again.",
            )
        why = said["result"] or said["reflection"]
        ended: dict[str, Any] = said | {"status": status.value, "finished_at": tx.now}
        row = change(tx, row, "finish", f"{status}: {one_line(why or said['evidence'])}", ended)
        unblock(tx, row, f"run {shown} is {status}")
        return run_of(tx, row)

    @reads
    def list(
        self, tx: Reading, *, status: RunStatus | str | None = None, limit: int = 20
    ) -> RunPage:
        """Runs with progress and spend, the last touched first; `status` narrows to one.

        Raises:
            BadArgument: there is no such status.
        """
        chosen = list(RunStatus) if not status else [parse_run_status(status)]
        counts = tx.totals().runs
        total = sum(counts.get(s, 0) for s in chosen)
        return RunPage(runs_of_status(tx, chosen, limit), total)

    @reads
    def show(self, tx: Reading, run: str, *, limit: int = 100) -> RunDetail:
        """What a run did, at most `limit` of each kind, the newest.

        Raises:
            NotFound: there is no such run.
        """
        row = find_run(tx, run)
        name = row["name"]
        events, earlier = last_events_of_run(tx, name, limit)
        steps = [
            s for status in ("open", "failed", "done") for s in last_steps(tx, name, status, limit)
        ]
        return RunDetail(
            run=run_of(tx, row),
            checkpoints=last_checkpoints(tx, name, limit),
            steps=steps[:limit],
            memory=blocks_at(tx, name, row["shown"], tx.totals().event, tx.now),
            events=events,
            earlier=earlier,
        )

    @writes
    def raise_budget(
        self,
        tx: Writing,
        run: str,
        reason: str,
        *,
        attempts: int | None = None,
        minutes: int | None = None,
        tokens: int | None = None,
    ) -> Run:
        """Give a run more: new maxima, and its thread back to work if it was blocked. For people.

        Raises:
            BadArgument: nothing is raised, or there is no reason.
            NotFound: there is no such run.
            IllegalTransition: the run is finished.
        """
        row = open_run(tx, run)
        given = {"attempts": attempts, "minutes": minutes, "tokens": tokens}
        raised = {budget: most for budget, most in given.items() if most is not None}
        for budget, most in raised.items():
            check_raise(row, budget, most)
        if not raised or not reason.strip():
            raise BadArgument(
                "nothing is raised" if not raised else "there is no reason",
                either(
                    "Give a new maximum for attempts, minutes or tokens, and say why.",
                    "Give a new maximum with --attempts N, --minutes N or --tokens N, and say why "
                    'with --reason "…".',
                ),
            )
        reason = one_line(tx.text(reason, "the reason", tx.limits.text, SHORTEN), tx.limits.text)
        fields: dict[str, Any] = {f"max_{budget}": most for budget, most in raised.items()}
        found_spent = "" if row["stopped"] in raised else row["stopped"]
        spent = spent_budgets(tx, dict(row) | fields | {"stopped": found_spent})
        words = [f"{b} {row[f'max_{b}']:,} -> {most:,}" for b, most in raised.items()]
        words += [f"still spent: {b}" for b in spent]
        summary = f"budget raised by a person: {', '.join(words)} ({reason})"
        row = change(tx, row, "raise", summary, fields | {"stopped": spent[0] if spent else ""})
        if spent:
            block(tx, row)
        else:
            unblock(tx, row, f"budget of run {row['shown']} raised: {reason}")
        return run_of(tx, row)

    async def _git(self) -> git.GitState:
        if not self.caller.worktree:
            return git.GitState(note="no directory is known for this call")
        return await git.observe(self.caller.worktree)

    @writes
    def _checkpoint(
        self,
        tx: Writing,
        now: git.GitState,
        run: str,
        state: str,
        next_action: str,
        progress: tuple[int | None, int | None],
        thread: str,
        expected_number: int | None,
    ) -> CheckpointMade:
        shown = tx.name(run, "run_id")
        name = fold(shown)
        enter(tx, name)
        check_state(state, *progress)
        row = run_row(tx, name)
        check_number(tx, shown, row, expected_number)
        state = tx.text(state, "the state", tx.limits.entry, into_a_blob())
        next_action = tx.text(next_action, "next_action", tx.limits.text, SHORTEN)
        if row is None:
            goal = one_line(state, min(200, tx.limits.text))
            row = _begin(tx, shown, goal, thread, "", {})
        else:
            row = _linked(tx, open_run(tx, run), thread)
        number = row["checkpoints"] + 1
        tx.subject = ("checkpoint", within(name, str(number)))
        tx.run(
            _CHECKPOINT,
            {
                "run": name,
                "number": number,
                "state": state,
                "next_action": next_action,
                "done": progress[0],
                "total": progress[1],
                "git": json.dumps(dataclasses.asdict(now), ensure_ascii=False),
            },
        )
        touch(tx, name)
        made = checkpoint_row(tx, name, number)
        assert made is not None
        reached = ", ".join(filter(None, [f"checkpoint {number}", progress_words(*progress)]))
        words = f"{reached}: {one_line(next_action or state, 120)}"
        index(tx, name, tx.event("checkpoint", words, row_of_checkpoint(row["shown"], made)))
        return CheckpointMade(run_of(tx, settle(tx, name)), checkpoint_of(made))

    @reads
    def _resume(self, tx: Reading, run: str, number: int | None) -> Resumed:
        row = find_run(tx, run) if run.strip() else newest_open(tx)
        if row is None:
            return Resumed(None)
        name, shown = row["name"], row["shown"]
        last: int = row["checkpoints"]
        kept = checkpoint_row(tx, name, last if number is None else number)
        if kept is None and number is not None:
            there = f"it has 1 to {last}" if last else "it has none yet"
            raise NotFound(
                f"run {shown!r} has no checkpoint {number}; {there}",
                f"{call('run_resume', run_id=shown)} tells where it stands.",
            )
        checkpoint = None if kept is None else checkpoint_of(kept)
        event = tx.totals().event if checkpoint is None else checkpoint.seq
        at = tx.now if kept is None else kept["at"]
        return Resumed(
            run=run_of(tx, row),
            checkpoint=checkpoint,
            memory=blocks_at(tx, name, shown, event, at),
            troubled=[*last_steps(tx, name, "open", 10), *last_steps(tx, name, "failed", 10)],
            open=count_steps(tx, name, "open"),
            failed=count_steps(tx, name, "failed"),
            finished=last_steps(tx, name, "done", 5),
            left_open=left_open(tx, name, 10),
            since=None if checkpoint is None else _since(tx, name, checkpoint.seq),
            memory_since=() if checkpoint is None else keys_changed_since(tx, name, event, 11),
            others=max(0, tx.totals().runs.get(RunStatus.OPEN, 0) - (row["status"] == "open")),
            by_number=number is not None,
        )


def parse_run_status(text: RunStatus | str) -> RunStatus:
    """A status of a run, in any case.

    Raises:
        BadArgument: there is no such status.
    """
    try:
        return RunStatus(text.strip().lower())
    except ValueError:
        raise BadArgument(
            f"status is {text[:40]!r}",
            f"{meant(text, RunStatus)}Statuses are {', '.join(s.value for s in RunStatus)}.",
        ) from None


def _begin(
    tx: Writing,
    shown: str,
    goal: str,
    thread: str,
    expected_outcome: str,
    budget: Mapping[str, int | None],
) -> Row:
    for noun, most in budget.items():
        if most is not None:
            check_budget(noun, most)
    limit = tx.limits.text
    name = fold(shown)
    fields = {
        "name": name,
        "shown": shown,
        "goal": tx.text(goal, f"the goal of run {shown!r}", limit, SHORTEN),
        "expected_outcome": tx.text(expected_outcome, "expected_outcome", limit, SHORTEN),
        "thread": find_row(tx, thread)["name"] if thread.strip() else "",
        **{f"max_{noun}": budget.get(noun) for noun in BUDGETS},
    }
    tx.run(_INSERT, fields)
    touch(tx, name)
    row = run_row(tx, name)
    assert row is not None
    seq = tx.event("begin", f"begun: {one_line(goal)}", row_of_run(row), version=1)
    index(tx, row["name"], seq)
    return row


def _linked(tx: Writing, row: Row, thread: str) -> Row:
    """The run, linked to a thread if one is given."""
    if not thread.strip():
        return row
    found = find_row(tx, thread)
    if found["name"] == row["thread"]:
        return row
    words = f"belongs to thread {found['shown']}"
    if row["stopped"]:
        unblock(tx, row, f"run {row['shown']} {words}")
    row = change(tx, row, "link", words, {"thread": found["name"]})
    if row["stopped"]:
        block(tx, row)
    return row


def _end(status: RunStatus | str) -> RunStatus:
    parsed = parse_run_status(status)
    if parsed is RunStatus.OPEN:
        raise BadArgument(
            "status is open, which is no end", "End it completed, failed or abandoned."
        )
    return parsed


def _since(tx: Reading, run: str, seq: int) -> Since:
    """What happened after an event, for the run and beside it."""
    own, changes = count_of_run(tx, run, seq), count_changes(tx, seq)
    if changes >= MOST_COUNTED:
        changes = tx.totals().event - seq
    newest = tx.all(_WRITERS, {"since": seq})
    others = [row for row in newest if row["run"] != run]
    return Since(
        own=own,
        own_by=_writers(row for row in newest if row["run"] == run),
        others=max(0, changes - own) if own < MOST_COUNTED else len(others),
        others_by=_writers(others),
    )


def _writers(newest_first: Iterable[Row]) -> Sequence[tuple[Actor, datetime]]:
    """The last five who wrote these, each with when; who wrote last comes first."""
    last: dict[Actor, datetime] = {}
    for row in newest_first:
        last.setdefault(actor_of(row), from_text(row["at"]))
    return list(last.items())[:5]


def _differences(then: Checkpoint, worktree: str, now: git.GitState) -> Sequence[str]:
    if not worktree and not then.worktree:
        return [f"git cannot tell: {now.note}"]
    if worktree and then.worktree and then.worktree != worktree:
        elsewhere = f"another worktree: {then.worktree} then, {worktree} now"
        return [elsewhere, *git.differences(then.git, now)]
    return git.differences(then.git, now)
