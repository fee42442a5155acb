"""How long runs read: what was reached, what was spent, what may be done next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from mcp_state.calls import Value, argument, call, either, tool
from mcp_state.models import (
    Actor,
    Attempt,
    Checkpoint,
    CheckpointMade,
    OpenRun,
    Resumed,
    Run,
    RunDetail,
    RunPage,
    RunStatus,
    Since,
    Step,
    StepBegun,
    StepEnded,
    Totals,
)
from mcp_state.record import record
from mcp_state.render import block_facts, event_line
from mcp_state.render_words import ROOM, by, fitted, indented, name, plural
from mcp_state.store.run_rows import (
    MOST_COUNTED,
    REFUSE_AT,
    WARN_AT,
    progress_words,
    spend_words,
)
from mcp_state.store.text import fold, one_line
from mcp_state.times import ago

_SHORT = 160
NOTHING: Mapping[str, Any] = MappingProxyType({})
_LIKE_OURS = ("[", "error:", "note:", "found:")


def run_status(run: Run, now: datetime) -> str:
    """The bracket after a run's name."""
    words = [run.status.value, *filter(None, [progress_words(run.done, run.total)])]
    if run.steps:
        words.append(f"{run.steps_done:,} of {plural(run.steps, 'step')} done")
    if run.stopped and run.status is RunStatus.OPEN:
        words.append(f"budget of {run.stopped} spent")
    words.append(f"ended {ago(run.finished_at, now)}" if run.finished_at else "")
    if not run.finished_at:
        words[-1] = f"touched {ago(run.touched_at, now)}"
    return f"[{', '.join(words)}]"


def run_head(run: Run, now: datetime) -> str:
    """A run in one line."""
    return f"{name(run.name)} {run_status(run, now)}  {one_line(run.goal, 100)}"


def run_ending(run: Run, limit: int) -> list[str]:
    """How a run ended."""
    texts = {"result": run.result, "evidence": run.evidence, "reflection": run.reflection}
    return [f"{label}: {one_line(text, limit)}" for label, text in texts.items() if text]


def begun(run: Run, now: datetime, goal: str, given: Mapping[str, Any] = NOTHING) -> str:
    """A run that was begun, or was there already; `given` are the other arguments of the call."""
    if not run.existing:
        budget = [
            plural(most, noun)
            for most, noun in (
                (run.max_attempts, "attempt"),
                (run.max_minutes, "minute"),
                (run.max_tokens, "token"),
            )
            if most is not None
        ]
        allowed = f"budget: {', '.join(budget)}" if budget else "no budget"
        return f"begun: {name(run.name)}, {allowed}. {_next_call(run)}"
    lines = [f"there already: {run_head(run, now)}"]
    if run.status is not RunStatus.OPEN:
        another = f"another {either('run_id', 'name')}"
        lines.append(f"It has ended, and nothing was begun. For further work, give {another}.")
        return "\n".join([*lines, *_ending_whole(run, ROOM - _size(lines))])
    if other := _given_otherwise(run, {**given, "goal": goal}):
        named = ", ".join(argument(one, of="run_begin") for one in other)
        lines.append(f"these are not as you gave them, and stay as they are: {named}")
    lines.append(f"spent: {spend_words(run)}")
    lines.append(f"{call('run_resume', run_id=run.name)} tells where it stands")
    return "\n".join(lines)


def _given_otherwise(run: Run, given: Mapping[str, Any]) -> list[str]:
    """The arguments that a run would have been begun with, if it had not been there."""
    has = {
        "goal": run.goal,
        "thread": run.thread,
        "expected_outcome": run.expected_outcome,
        "max_attempts": run.max_attempts,
        "max_minutes": run.max_minutes,
        "max_tokens": run.max_tokens,
    }
    asked = {argument: given.get(argument) for argument in has}
    return [
        argument
        for argument, value in asked.items()
        if value is not None and str(value).strip() and fold(str(value)) != fold(str(has[argument]))
    ]


def _next_call(run: Run) -> str:
    step = call("step_begin", run_id=run.name, step=...)
    return f"{step} before each step, {tool('run_checkpoint')} now and then."


def checkpoint_made(made: CheckpointMade, now: datetime) -> str:
    """A new checkpoint."""
    run, checkpoint = made.run, made.checkpoint
    lines = [f"checkpoint {checkpoint.number} saved: {run_head(run, now)}"]
    lines.append(f"git: {git_words(checkpoint)}")
    lines += [*_budget_lines(run), *_stop(run)]
    return "\n".join(lines)


def git_words(checkpoint: Checkpoint) -> str:
    """What git said at a checkpoint."""
    git = checkpoint.git
    words = [
        " ".join(filter(None, [git.branch or ("detached" if git.head else ""), git.head[:12]]))
    ]
    if git.dirty_count is not None:
        words.append(f"{plural(git.dirty_count, 'file')} changed" if git.dirty_count else "clean")
    note = f"({one_line(git.note, 200)})" if git.note else ""
    return " ".join(filter(None, [", ".join(filter(None, words)), note])) or "nothing known"


def finished(run: Run, now: datetime) -> str:
    """A run that has ended."""
    word = "ended already, unchanged" if run.repeated else "ended"
    return "\n".join(
        [f"{word}: {run_head(run, now)}", *run_ending(run, 400), f"spent: {spend_words(run)}"]
    )


def run_page(page: RunPage, now: datetime, totals: Totals, status: str, room: int = ROOM) -> str:
    """Runs in a list."""
    counts = " · ".join(f"{totals.runs.get(s, 0):,} {s.value}" for s in RunStatus)
    if not page.runs:
        if not any(totals.runs.values()):
            return f"No runs yet. {tool('run_begin')} or {tool('run_checkpoint')} begins one."
        return f"No {status or ''} runs here. Runs: {counts}.".replace("  ", " ")
    head = f"{len(page.runs)} of {plural(page.total, f'{status} run'.strip())} ({counts})"
    lines: list[str] = []
    for run in page.runs:
        lines.append(run_head(run, now))
        lines.append(f"    spent: {spend_words(run)}")
        if run.next_action and run.status is RunStatus.OPEN:
            lines.append(f"    next: {one_line(run.next_action)}")
        lines += [f"    {line}" for line in run_ending(run, _SHORT)]
    kept, left = fitted(lines, room)
    if left:
        head += f"; {plural(left, 'line')} left out for length: ask with a smaller limit"
    return "\n".join([head, *kept])


def resumed(found: Resumed, now: datetime, room: int = ROOM, session: str = "") -> str:
    """Where a run stands: what to do next first, the state whole, the rest as far as it fits."""
    run, checkpoint = found.run, found.checkpoint
    if run is None:
        begins = f"{tool('run_begin')} or {tool('run_checkpoint')} begins one"
        return f"found: no. There is no unfinished run; {begins}."
    head = _resumed_head(found, now)
    if run.status is not RunStatus.OPEN and not found.by_number:
        return "\n".join([*head, *_ending_whole(run, room - _size(head))])
    head += _checkpoint_head(found, now)
    state, rest = _NO_TEXT, list[str]()
    if checkpoint is not None:
        spare = room - _size(head) - _LEFT_OUT
        state = _whole("state", checkpoint.state, spare - _SHORT, _in_a_shell(run))
        head += _next(checkpoint, spare - _size(state.lines))
    if run.status is not RunStatus.OPEN:
        rest += run_ending(run, 400)
    else:
        rest += [*_different(found, now, session), *_step_lines(found, now)]
        if run.expected_outcome:
            rest.append(f"expected outcome: {one_line(run.expected_outcome, 400)}")
    if not state.is_last:
        head, state = [*head, *state.lines], _NO_TEXT
    spare = room - _size(head) - _size(state.lines) - _LEFT_OUT
    rest, left = fitted(rest, spare)
    memory = _memory_lines(found, now, spare - _size(rest))
    if left:
        head.insert(1, f"({plural(left, 'line')} left out for length: {_in_a_shell(run)})")
    return "\n".join([*head, *rest, *memory, *state.lines])


_LEFT_OUT = 300
"""Room for the line that says what was left out."""


def _size(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _in_a_shell(run: Run) -> str:
    return f"`mcp-state runs resume {shlex.quote(run.name)}` in a shell shows all"


@record
class _Text:
    """A stored text in an answer; `is_last`: all that follows its first line belongs to it."""

    lines: Sequence[str]
    is_last: bool = False


_NO_TEXT = _Text(())


def _whole(label: str, text: str, room: int, where: str, *, may_be_last: bool = True) -> _Text:
    """A stored text with its line breaks, beside its label, or below it and indented.

    Where there is no room for so many indents, it comes last, and only what could be taken for a
    line of ours is indented. Where there is none for the text, the answer says what is left out.
    """
    if text == one_line(text, 200):
        return _Text([f"{label}: {text}"])
    lines = [f"{label}:", *indented(text)]
    if _size(lines) <= room:
        return _Text(lines)
    lines = [f"{label}, {len(text):,} characters, up to the last line:"]
    lines += [f" {x}" if x.startswith(_LIKE_OURS) else x for x in text.splitlines()]
    if may_be_last and _size(lines) <= room:
        return _Text(lines, is_last=True)
    kept = text
    while (size := _size(lines)) > room and kept:
        kept = kept[: min(len(kept) - 1, len(kept) * max(0, room) // size)]
        left = f"{len(text) - len(kept):,} of {len(text):,} characters left out"
        lines = [f"{label} ({left}: {where}):", *(indented(kept) if kept else ())]
    return _Text(lines)


def _ending_whole(run: Run, room: int) -> list[str]:
    """How a run ended: its result whole, the rest as far as it fits."""
    texts = {"result": run.result, "evidence": run.evidence, "reflection": run.reflection}
    parts: list[_Text] = []
    for label, text in texts.items():
        if text:
            part = _whole(label, text, room, _in_a_shell(run), may_be_last=not parts)
            room -= _size(part.lines)
            parts.append(part)
    parts.sort(key=lambda part: part.is_last)
    return [line for part in parts for line in part.lines]


def _resumed_head(found: Resumed, now: datetime) -> list[str]:
    run = found.run
    assert run is not None
    if run.status is not RunStatus.OPEN:
        return [f"found: {run.status}. {run_head(run, now)}", f"spent: {spend_words(run)}"]
    lines = [f"found: yes. {run_head(run, now)}"]
    if found.others:
        unfinished = call("run_list", status="open")
        lines.append(f"{plural(found.others, 'other run')} unfinished: {unfinished}")
    lines += _budget_lines(run)
    lines.append(f"spent: {spend_words(run)}; resuming resets nothing")
    return [*lines, *(_stop(run) or [f"To go on: {_next_call(run)}"])]


def _stop(run: Run) -> list[str]:
    if run.status is not RunStatus.OPEN or not _spent(run):
        return []
    return [
        f"Stop: {tool('run_finish')} if the goal is reached, else offer the work with "
        f"{tool('handoff_create')}; only a person can raise the budget."
    ]


def _checkpoint_head(found: Resumed, now: datetime) -> list[str]:
    run, checkpoint = found.run, found.checkpoint
    assert run is not None
    if checkpoint is None:
        return ["no checkpoint yet"]
    lines = [
        f"checkpoint {checkpoint.number} of {run.checkpoints}{_of(checkpoint)}, event "
        f"{checkpoint.seq}, {by(checkpoint.actor, checkpoint.at, now)}; "
        f"git then: {git_words(checkpoint)}"
    ]
    if checkpoint.number != run.checkpoints and run.status is RunStatus.OPEN:
        lines.append(
            "later checkpoints stay: "
            f"{call('run_resume', run_id=run.name, number=run.checkpoints)} reads the last. To go "
            "on from this one, bring the run's memory back to what is shown here "
            f"({tool('memory_restore')}, {tool('memory_delete')}"
            f"{either(', through state_op if they are not listed', '')}), and make the next "
            f"{either('run_checkpoint', 'checkpoint')}."
        )
    return lines


def _next(checkpoint: Checkpoint, room: int) -> list[str]:
    if not checkpoint.next_action:
        return []
    return [f"next: {one_line(checkpoint.next_action, max(_SHORT - 7, min(2000, room - 7)))}"]


def _different(found: Resumed, now: datetime, session: str) -> list[str]:
    run, checkpoint = found.run, found.checkpoint
    if checkpoint is None or run is None or run.status is not RunStatus.OPEN:
        return []
    different = [one_line(d, 600) for d in found.differences]
    if found.memory_since:
        newer = [
            f"{name(key, 60)} ({f'version {version} now' if version else 'gone'})"
            for key, version in found.memory_since[:10]
        ]
        newer += ["and more"] * (len(found.memory_since) > 10)
        reads = call("memory_get", run_id=run.name)
        different.append(f"memory written since then: {', '.join(newer)}; {reads} reads it")
    if found.since is not None:
        different += _since_lines(found.since, checkpoint, now, session)
    return ["what differs now:", *(f"    {line}" for line in different or ["nothing"])]


def _since_lines(since: Since, checkpoint: Checkpoint, now: datetime, session: str) -> list[str]:
    many = since.own >= MOST_COUNTED
    lines: list[str] = []
    if since.own:
        own = f"{MOST_COUNTED:,}+ events" if many else plural(since.own, "event")
        lines.append(f"{own} of this run since then{_writers(since.own_by, now, session)}")
    shows = call("history", since=checkpoint.seq)
    if since.others:
        count = f"{'at least ' if many else ''}{plural(since.others, 'other event')}"
        lines.append(f"{count} since then{_writers(since.others_by, now, session)}: {shows}")
    elif many:
        lines.append(f"no other event among the newest 200: {shows}")
    return lines


def _writers(writers: Sequence[tuple[Actor, datetime]], now: datetime, session: str) -> str:
    names = [
        f"{'this session' if session and actor.session == session else one_line(actor.agent, 40)} "
        f"{ago(at, now)}"
        for actor, at in writers
    ]
    return f" ({', '.join(names)})" if names else ""


def _step_lines(found: Resumed, now: datetime) -> list[str]:
    run = found.run
    assert run is not None
    if not run.steps:
        return []
    failed, still_open = (
        f"{count:,}{'+' if count >= MOST_COUNTED else ''}" for count in (found.failed, found.open)
    )
    lines = [
        f"steps: {run.steps_done:,} done, {failed} failed, {still_open} open "
        f"({tool('step_begin')} tells of each whether it is done)"
    ]
    attempts = dict(found.left_open)
    for step in found.troubled:
        left = attempts.get(step.name)
        if left is not None:
            lines.append(f"    {name(step.name)}: {_left_open(left, now)}")
        else:
            lines.append(f"    {name(step.name)} failed: {one_line(step.result, _SHORT)}")
        lines += [f"        {line}" for line in _warning(step)]
    left_out = run.steps - run.steps_done - len(found.troubled)
    if left_out > 0:
        lines.append(f"    +{left_out:,} more that are failed or open")
    if found.finished:
        done = ", ".join(name(step.name, 60) for step in found.finished)
        lines.append(f"    done last: {done}")
    return lines


def _left_open(attempt: Attempt, now: datetime) -> str:
    who = by(attempt.begun_by, attempt.begun_at, now)
    return f"attempt {attempt.number}, begun by {who}, was never ended"


def _memory_lines(found: Resumed, now: datetime, room: int) -> list[str]:
    """The run's memory of that moment: blocks in full as long as there is room, then their names.

    A version that is named can be read for ever.
    """
    run = found.run
    if not found.memory or run is None:
        return []
    lines = [f"memory of the run, {plural(len(found.memory), 'block')}:"]
    short: list[str] = []
    for block in found.memory:
        one = [f"    {block_facts(block, now)}", *indented(block.value, "        ")]
        if short or _size(lines) + _size(one) > room:
            short.append(f"{name(block.key, 60)} (version {block.version}),")
        else:
            lines += one
    if short:
        kept, left = fitted(short, max(_SHORT, room - _size(lines)) - 120)
        more = f" and {left:,} more" if left else ""
        reads = call("memory_get", run_id=run.name, key=..., version=...)
        lines.append(f"    not shown here: {' '.join(kept).removesuffix(',')}{more}: {reads}")
    return lines


def _used(run: Run) -> dict[str, tuple[int, int | None]]:
    """What was used of each budget, and how much there is of it."""
    return {
        "attempt": (run.attempts, run.max_attempts),
        "minute": (run.minutes, run.max_minutes),
        "token": (run.tokens_in + run.tokens_out, run.max_tokens),
    }


def _spent(run: Run) -> list[str]:
    spent = [f"{b}s" for b, (n, most) in _used(run).items() if most is not None and n >= most]
    return list(dict.fromkeys([run.stopped, *spent] if run.stopped else spent))


def _budget_lines(run: Run) -> list[str]:
    """A budget that is spent, or nearly."""
    if run.status is not RunStatus.OPEN:
        return []
    if spent := _spent(run):
        budgets = " and ".join(spent)
        return [f"the budget of {budgets} is spent: no further step will be begun"]
    close = [
        plural(most - n, b)
        for b, (n, most) in _used(run).items()
        if most is not None and n * 10 > most * 8
    ]
    return [f"left of the budget: {', '.join(close)}"] if close else []


def step_begun(answer: StepBegun, now: datetime, room: int = ROOM) -> str:
    """Go with the attempt's number, or done with the result; what to know first."""
    step = answer.step
    at = f"step {name(step.name)} of {name(answer.run)}"
    if not answer.go:
        head = f"done: {at}, {by(step.changed_by, step.changed_at, now)}. Do not do it again."
        if not step.result:
            return f"{head} It left no result."
        where = "it does not fit into one answer"
        return "\n".join([head, *_whole("result", step.result, room - len(head) - 1, where).lines])
    lines = [f"go: {at}, attempt {answer.attempt}"]
    lines += [
        f"{_left_open(left, now)}: look whether its work is there already"
        for left in answer.left_open[:3]
    ]
    lines += ["earlier ones were never ended either"] * (len(answer.left_open) > 3)
    lines += _warning(step)
    if step.attempts > 1 and step.result:
        lines.append(f"the last outcome: {one_line(step.result, 400)}")
    at_end: dict[str, Value] = dict.fromkeys(("ok", "result", "tokens_in", "tokens_out"), ...)
    lines.append(f"then {call('step_end', run_id=answer.run, step=step.name, **at_end)}")
    return "\n".join(lines)


def _warning(step: Step) -> list[str]:
    if step.streak < WARN_AT or step.status == "done":
        return []
    end = "it is refused now" if step.streak >= REFUSE_AT else f"it is refused after {REFUSE_AT}"
    return [f"tried {step.streak} times with the same result: change the approach; {end}"]


def step_ended(ended: StepEnded, now: datetime) -> str:
    """What was recorded, and what it came to."""
    step, attempt, run = ended.step, ended.attempt, ended.run
    word = "recorded already, unchanged" if ended.repeated else "recorded"
    outcome = "done" if attempt.ok else "failed"
    lines = [
        f"{word}: step {name(step.name)} of {name(run.name)} {outcome}, attempt {attempt.number}"
    ]
    if attempt.ok and step.status != "done":
        asks = call("step_begin", run_id=run.name, step=step.name)
        lines[0] += f"; it was reset since, and is not done: {asks} asks for another attempt"
    lines += _warning(step)
    lines.append(
        f"run: {run.steps_done:,} of {plural(run.steps, 'step')} done; spent: {spend_words(run)}"
    )
    return "\n".join([*lines, *_budget_lines(run), *_stop(run)])


def run_detail(detail: RunDetail, now: datetime, room: int = ROOM) -> str:
    """All that a run did."""
    run = detail.run
    lines = [run_head(run, now), f"goal: {one_line(run.goal, 2000)}"]
    lines += [f"expected outcome: {one_line(run.expected_outcome, 2000)}"] * bool(
        run.expected_outcome
    )
    lines += [f"thread: {name(run.thread)}"] * bool(run.thread)
    lines.append(
        f"begun {ago(run.created_at, now)}, worked on by {by(run.touched_by, run.touched_at, now)}"
    )
    lines.append(f"spent: {spend_words(run)}")
    lines += _budget_lines(run)
    lines += _ending_whole(run, room - _size(lines))
    lines += _section(
        "checkpoints",
        run.checkpoints,
        [
            f"{c.number}{_of(c)} {by(c.actor, c.at, now)}, {git_words(c)}: {one_line(c.state)}"
            for c in detail.checkpoints
        ],
    )
    lines += _section("steps", run.steps, [_step_line(step, now) for step in detail.steps])
    if detail.memory:
        facts = [block_facts(block, now) for block in detail.memory]
        lines += _section("memory", len(detail.memory), facts)
    events = [event_line(event, now) for event in detail.events]
    lines += _section("events", len(events) + detail.earlier, events)
    kept, left = fitted(lines, room)
    return "\n".join([*kept, f"({plural(left, 'line')} left out for length)"] if left else kept)


def _of(checkpoint: Checkpoint) -> str:
    words = progress_words(checkpoint.done, checkpoint.total)
    return f" ({words})" if words else ""


def _step_line(step: Step, now: datetime) -> str:
    words = [step.status, plural(step.attempts, "attempt")]
    if tokens := step.tokens_in + step.tokens_out:
        words.append(f"{tokens:,} tokens")
    if step.stopped:
        words.append("refused")
    elif step.streak >= WARN_AT and step.status != "done":
        words.append(f"{step.streak} times the same outcome")
    who = by(step.changed_by, step.changed_at, now)
    result = f": {one_line(step.result, _SHORT)}" if step.result else ""
    return f"{name(step.name)} [{', '.join(words)}] {who}{result}"


def _section(title: str, total: int, lines: Sequence[str]) -> list[str]:
    """A part with its number, and how many are not shown."""
    left = total - len(lines)
    more = f", the last {len(lines):,} shown" if left > 0 else ""
    return [f"{title} ({total:,}{more}):", *(f"    {line}" for line in lines)] if total else []


def run_in_orient(one: OpenRun, now: datetime) -> list[str]:
    """An unfinished run in the wake-up packet."""
    run = one.run
    words = list(filter(None, [progress_words(run.done, run.total)]))
    if run.steps:
        words.append(f"{run.steps_done:,} of {plural(run.steps, 'step')} done")
    if run.checkpoint_at is not None:
        words.append(f"checkpoint {ago(run.checkpoint_at, now)}")
    else:
        words.append(f"begun {ago(run.created_at, now)}, no checkpoint yet")
    if one.moved:
        words.append("HEAD has moved since")
    resume = call("run_resume", run_id=run.name)
    lines = [f"{name(run.name)} {', '.join(words)}   -> {resume}"]
    lines += [f"    {line}" for line in _budget_lines(run)]
    if run.next_action:
        lines.append(f"    next: {one_line(run.next_action)}")
    lines += [f"    {name(step)}: {_left_open(left, now)}" for step, left in one.left_open]
    for step in one.failing:
        lines += [f"    {name(step.name)}: {line}" for line in _warning(step)]
    return lines


def stopped_step(step: Step, now: datetime) -> str:
    """A step that was refused, in one line."""
    who = by(step.changed_by, step.changed_at, now)
    return (
        f"step {name(step.name, 80)} of {name(step.run, 80)}, refused ({who}): {step.streak} times "
        f"{one_line(step.result)!r}"
    )


def failed_run(run: Run, now: datetime) -> str:
    """A run that failed, in one line."""
    who = by(run.touched_by, run.touched_at, now)
    return f"run {name(run.name, 80)} failed ({who}): {one_line(run.reflection or run.result)}"
