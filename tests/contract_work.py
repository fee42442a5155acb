"""What the queue and long runs promise, tool by tool."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from contract import (
    ANY,
    DAY,
    OPEN,
    At,
    Attempt,
    Checkpoint,
    Criterion,
    Refused,
    Run,
    Shape,
    Step,
    Thread,
    Who,
    Why,
    fold,
    of_run,
    shortened,
    storable,
)

TEXTS = ("title", "next_action", "waiting_on", "check", "evidence", "note")
BUDGETS = ("attempts", "minutes", "tokens")
CLEARABLE = {*TEXTS[1:], "places", "depends_on", "relies_on"}

# The queue


def thread_shape(at: At, thread: Thread) -> Shape:
    holder = thread.held_by(at.now)
    lease = {
        "token": thread.token,
        "until": thread.until,
        "holder": holder and {"agent": holder.agent, "session": holder.session},
    }
    needed = [at.project.threads[name] for name in thread.depends_on]
    return thread.fields | {
        "name": thread.shown,
        "version": thread.version,
        "recheck_at": thread.recheck_at,
        "due": thread.due(at.now),
        "depends_on": frozenset(one.shown for one in needed),
        "waits_for": sum(one.status != "done" for one in needed),
        "relies_on": frozenset(at.project.facts[name].shown for name in thread.relies_on),
        "criteria": len(thread.criteria),
        "passing": sum(c.passes for c in thread.criteria),
        "lease": lease if holder else None,
    }


def thread_list(
    at: At, status: str = "", due: bool = False, limit: int = 20, cursor: str = ""
) -> Shape:
    why = Why(at)
    why.page(limit, 100)
    why.settle()
    found = in_order(at, word_of(status), due)
    shown = found[:limit]
    return {
        "threads": [thread_shape(at, thread) for thread in shown],
        "total": len(found),
        "cursor": "" if shown == found else ANY,
    }


def in_order(at: At, status: str = "", due: bool = False) -> list[Thread]:
    """The threads in the order to work on them; those of one end, the newest first."""
    threads = at.project.threads.values()
    if status in ("done", "dropped"):
        ended = [t for t in threads if t.status == status and not due]
        return sorted(ended, key=lambda t: -t.changed)
    chosen = [t for t in threads if t.status in OPEN and status in ("", t.status)]

    def place(thread: Thread) -> tuple[Any, ...]:
        if thread.due(at.now):
            return 0, thread.recheck_at, thread.created
        if thread.status == "active":
            return 1, thread.fields["priority"], thread.created
        return 2, thread.recheck_at, thread.created

    return sorted((t for t in chosen if t.due(at.now) or not due), key=place)


def thread_get(at: At, thread: str) -> Shape:
    name = at.found(at.project.threads, thread)
    found = at.project.threads[name]
    needed = [at.project.threads[one] for one in found.depends_on]
    others = at.project.threads.values()
    journal = [entry.text for entry in at.project.journal if entry.thread == name]
    return {
        "thread": thread_shape(at, found),
        "criteria": [
            {"number": n, "text": c.text, "passes": c.passes, "evidence": c.evidence}
            for n, c in enumerate(found.criteria, 1)
        ],
        "needed_by": frozenset(t.shown for t in others if name in t.depends_on),
        "unfinished": frozenset(t.shown for t in needed if t.status != "done"),
        "journal": [{"text": text} for text in journal[-5:]],
        "facts": frozenset(at.project.facts[one].shown for one in found.relies_on),
    }


def thread_set(
    at: At,
    thread: str,
    status: str = "",
    recheck_after: str = "",
    priority: int | None = None,
    depends_on: list[str] | None = None,
    relies_on: list[str] | None = None,
    criteria: list[str] | None = None,
    places: list[dict[str, str]] | None = None,
    run_id: str = "",
    clear: list[str] | None = None,
    expected_version: int | None = None,
    lease_token: int | None = None,
    **texts: str,
) -> Shape:
    why = Why(at)
    shown = why.name(thread)
    old = at.project.threads.get(fold(shown))
    why.run(run_id)
    why.when(expected_version not in (None, old.version if old else 0), "version_conflict")
    _check_lease(at, why, old, lease_token)
    clear = clear or []
    new = _copy(old) if old else Thread(shown, at.next, _fresh(shown))
    _put_texts(at, why, new, texts, clear)
    why.when(priority is not None and not 1 <= priority <= 9, "bad_argument")
    new.fields["priority"] = priority or new.fields["priority"]
    if places:
        new.fields["places"] = [{"role": "home", "note": ""} | place for place in places]
    _move(at, why, old, new, status, recheck_after, texts)
    new.depends_on = _links(at, why, old and old.depends_on, depends_on, clear, "depends_on")
    why.when(_in_circle(at, fold(shown), new.depends_on), "bad_argument")
    new.relies_on = _links(at, why, old and old.relies_on, relies_on, clear, "relies_on")
    _add_criteria(at, why, old, new, criteria or [])
    if new.status == "done":
        moved = old is None or old.status != "done"
        _check_done(at, why, new, moved=moved, relies=moved or bool(relies_on))
    why.settle()
    if old is not None and new == old:
        return thread_shape(at, old) | {"unchanged": True}
    return _keep(at, old, new) | {"unchanged": False}


def _fresh(shown: str) -> Shape:
    texts = dict.fromkeys(TEXTS, "")
    return texts | {"title": shown, "status": "active", "priority": 5, "places": []}


def _copy(thread: Thread) -> Thread:
    copied = Thread(**vars(thread))
    copied.fields, copied.criteria = dict(thread.fields), list(thread.criteria)
    return copied


def _keep(at: At, old: Thread | None, new: Thread) -> Shape:
    """Make a change, which is the next version."""
    if old is not None:
        new.version = old.version + 1
        if (old.status, old.fields["waiting_on"]) != (new.status, new.fields["waiting_on"]):
            new.waits_for = None
    if new.status not in OPEN:
        new.holder = new.until = None
    at.project.threads[fold(new.shown)] = new
    new.changed = at.event("thread", fold(new.shown))
    return thread_shape(at, new)


def _put_texts(at: At, why: Why, new: Thread, texts: dict[str, str], clear: list[str]) -> None:
    for field in clear:
        why.when(field not in CLEARABLE or texts.get(field), "bad_argument")
        if field in new.fields:
            new.fields[field] = [] if field == "places" else ""
    for field, text in texts.items():
        if text:
            limit = at.who.limits.title if field == "title" else at.who.limits.text
            new.fields[field] = why.text(text, limit)


def _move(
    at: At,
    why: Why,
    old: Thread | None,
    new: Thread,
    status: str,
    recheck_after: str,
    texts: dict[str, str],
) -> None:
    """The status, and what goes with it."""
    was = old.status if old else ""
    now = new.fields["status"] = word_of(status) or was or "active"
    moved, note = now != was, texts.get("note", "").strip()
    if was in ("done", "dropped") and moved:
        why.when(now != "active" or not note, "illegal_transition")
        if now == "active" and not texts.get("evidence"):
            new.fields["evidence"] = ""
    after = why.duration(recheck_after)
    if now in ("watching", "blocked"):
        if after or status or new.recheck_at is None:
            new.recheck_at = at.now + (after or DAY)
    else:
        why.when(recheck_after or texts.get("waiting_on"), "bad_argument")
        new.fields["waiting_on"], new.recheck_at = "", None
    why.when(now == "blocked" and _is_blank(new.fields["waiting_on"]), "bad_argument")
    if now == "dropped":
        why.when(not note if moved else _is_blank(new.fields["note"]), "bad_argument")


def word_of(status: str) -> str:
    """A status, in whatever case and with whatever separators."""
    return re.sub("[-_ ]", "", status).lower()


def _is_blank(text: Any) -> bool:
    return text is not ANY and not text.strip()


def _links(
    at: At,
    why: Why,
    old: set[str] | None,
    given: list[str] | None,
    clear: list[str],
    field: str,
) -> set[str]:
    """What a thread depends or relies on; an empty list is one that was left out."""
    why.when(given and field in clear, "bad_argument")
    if not given:
        return set() if field in clear else old or set()
    things: dict[str, Any] = vars(at.project)["threads" if field == "depends_on" else "facts"]
    return {why.found(things, name) or fold(name) for name in given}


def _in_circle(at: At, name: str, needs: set[str]) -> bool:
    seen, waiting = set[str](), list(needs)
    while waiting:
        one = waiting.pop()
        if one == name:
            return True
        if one not in seen and one in at.project.threads:
            waiting += at.project.threads[one].depends_on
        seen.add(one)
    return False


def _add_criteria(at: At, why: Why, old: Thread | None, new: Thread, criteria: list[str]) -> None:
    for given in criteria:
        text = why.text(given.strip(), at.who.limits.text)
        why.when(not text, "bad_argument")
        if text and all(c.text != text for c in new.criteria):
            new.criteria.append(Criterion(text))
            why.when(old is not None and old.status == "done", "illegal_transition")
    why.when(len(new.criteria) > at.who.limits.criteria, "bad_argument")


def _check_done(at: At, why: Why, new: Thread, *, moved: bool, relies: bool) -> None:
    why.when(_is_blank(new.fields["evidence"]), "evidence_required")
    why.when(any(not c.passes for c in new.criteria), "evidence_required")
    if relies:
        facts = [at.project.facts[f] for f in new.relies_on if f in at.project.facts]
        replaced = ("refuted", "stale")
        wrong = [f for f in facts if f.fell or (f.held is None and f.replaces in replaced)]
        why.when(wrong, "evidence_required")


def _check_lease(at: At, why: Why, thread: Thread | None, token: int | None) -> None:
    current, holder = (thread.token, thread.held_by(at.now)) if thread else (0, None)
    why.when(token and token != current, "lease_lost")
    why.when(holder and not token, "held")


def thread_claim(
    at: At, thread: str = "", lease: str = "30m", lease_token: int | None = None
) -> Shape:
    why = Why(at)
    length = why.duration(lease)
    if not thread:
        why.when(lease_token, "bad_argument")
        why.settle()
        active = in_order(at, "active")
        ready = [t for t in active if not thread_shape(at, t)["waits_for"]]
        free = [t for t in ready if not t.held_by(at.now)]
        if not free:
            waiting = len(active) - len(ready)
            return {"active": len(active), "held": len(ready), "waiting": waiting}
        found = free[0]
    else:
        name = why.found(at.project.threads, thread)
        if not name:
            why.settle()
        found = at.project.threads[name]
    why.when(found.status not in OPEN, "illegal_transition")
    _check_lease(at, why, found, lease_token)
    why.settle()
    assert length is not None
    _hold(at, found, at.now + length, claims=not lease_token)
    return thread_shape(at, found)


def _hold(at: At, thread: Thread, until: datetime, *, claims: bool) -> None:
    if claims:
        thread.token = at.next
    thread.holder, thread.until = at.who, until
    at.event("thread", fold(thread.shown))


def leases_of(at: At, who: Who) -> list[Thread]:
    held = [(t, t.held_by(at.now)) for t in at.project.threads.values()]
    return [t for t, h in held if h and (h.agent, h.session) == (who.agent, who.session)]


def take_leases(at: At, giver: Who) -> list[Thread]:
    """What the giver of a handoff holds passes to the taker, under new tokens."""
    held = sorted(leases_of(at, giver), key=lambda t: t.created)
    for thread in held:
        assert thread.until is not None
        _hold(at, thread, thread.until, claims=True)
    return held


def thread_release(
    at: At, thread: str, lease_token: int | None = None, force: bool = False
) -> Shape:
    """With `force` it is what a person does."""
    found = at.project.threads[at.found(at.project.threads, thread)]
    why = Why(at)
    if not force:
        _check_lease(at, why, found, lease_token)
    why.settle()
    if not found.held_by(at.now):
        return thread_shape(at, found) | {"unchanged": True}
    if force:
        found.token = at.next
    found.holder = found.until = None
    at.event("thread", fold(found.shown))
    return thread_shape(at, found)


def thread_check(
    at: At,
    thread: str,
    criterion: str,
    passes: bool,
    evidence: str = "",
    lease_token: int | None = None,
) -> Shape:
    why = Why(at)
    name = why.found(at.project.threads, thread)
    evidence = why.text(evidence, at.who.limits.text)
    if not name:
        why.settle()
    found = at.project.threads[name]
    _check_lease(at, why, found, lease_token)
    wanted = storable(criterion).strip()
    numbers = [n for n, c in enumerate(found.criteria, 1) if wanted in (str(n), c.text)]
    why.when(not numbers, "not_found")
    why.when(found.status == "done" and not passes, "illegal_transition")
    why.settle()
    new, number = _copy(found), numbers[0]
    new.criteria[number - 1] = Criterion(found.criteria[number - 1].text, passes, evidence)
    _keep(at, found, new)
    return {
        "criterion": {"number": number, "passes": passes, "evidence": evidence},
        "passing": sum(c.passes for c in new.criteria),
        "criteria": len(new.criteria),
    }


# Long runs


def run_shape(at: At, run: Run) -> Shape:
    last = run.checkpoints[-1] if run.checkpoints else None
    return {
        "name": run.shown,
        "goal": run.goal,
        "expected_outcome": run.expected_outcome,
        "thread": at.project.threads[run.thread].shown if run.thread else "",
        "status": run.status,
        "version": run.version,
        **{f"max_{budget}": most for budget, most in run.most.items()},
        "attempts": run.attempts,
        "minutes": int(run.seconds(at.now) // 60),
        "tokens_in": run.tokens[0],
        "tokens_out": run.tokens[1],
        "steps": len(run.steps),
        "steps_done": sum(step.status == "done" for step in run.steps.values()),
        "checkpoints": len(run.checkpoints),
        "done": last and last.done,
        "total": last and last.total,
        "next_action": last.next_action if last else "",
        "stopped": run.stopped,
        **run.said,
    }


def run_begin(
    at: At,
    goal: str = "",
    run_id: str = "",
    thread: str = "",
    expected_outcome: str = "",
    max_attempts: int | None = None,
    max_minutes: int | None = None,
    max_tokens: int | None = None,
) -> Shape:
    shown: Any = at.name(run_id) if run_id.strip() else ANY
    found = at.project.runs.get(fold(shown)) if shown is not ANY else None
    if found is not None:
        if found.status == "open" and at.who.session and at.current_run() != fold(shown):
            found.touched = at.event("run", fold(shown))
            at.project.worked_on[at.who.session] = fold(shown)
        return run_shape(at, found) | {"existing": True}
    most = {"attempts": max_attempts, "minutes": max_minutes, "tokens": max_tokens}
    run = _begun(at, shown, goal, thread, expected_outcome, most)
    return run_shape(at, run) | {"name": shown, "existing": False}


def _begun(
    at: At, shown: Any, goal: str, thread: str, outcome: str, most: dict[str, int | None]
) -> Run:
    why = Why(at)
    why.when(not goal.strip(), "bad_argument")
    goal, outcome = (why.text(text, at.who.limits.text) for text in (goal, outcome))
    for number in most.values():
        why.when(number is not None and not 1 <= number <= 10**9, "bad_argument")
    topic = why.found(at.project.threads, thread) if thread.strip() else ""
    why.settle()
    name = f"new {at.next}" if shown is ANY else fold(shown)  # made up: it comes with the answer
    run = at.project.runs[name] = Run(shown, at.now, goal, outcome, topic, most)
    run.touched = at.event("run", shown if shown is ANY else name)
    _work_on(at, name)
    return run


def _work_on(at: At, run: str) -> None:
    if at.who.session:
        at.project.worked_on[at.who.session] = run


def run_checkpoint(
    at: At,
    run_id: str,
    state: str,
    next_action: str = "",
    done: int | None = None,
    total: int | None = None,
    thread: str = "",
    expected_number: int | None = None,
) -> Shape:
    why = Why(at)
    shown = why.name(run_id)
    name = fold(shown)
    run = at.project.runs.get(name)
    why.when(not state.strip(), "bad_argument")
    for count in (done, total):
        why.when(count is not None and not 0 <= count <= 10**9, "bad_argument")
    why.when(done is not None and total is not None and done > total, "bad_argument")
    number = len(run.checkpoints) if run else 0
    why.when(expected_number not in (None, number), "version_conflict")
    state = why.text(state, at.who.limits.entry)
    next_action = why.text(next_action, at.who.limits.text)
    why.when(run is not None and run.status != "open", "illegal_transition")
    topic = why.found(at.project.threads, thread) if thread.strip() else ""
    why.settle()
    if run is None:
        goal = shortened(state, min(200, at.who.limits.text))
        run = _begun(at, shown, goal, topic, "", dict.fromkeys(BUDGETS))
    elif topic and topic != run.thread:
        _link(at, name, run, topic)
    seq = at.event("checkpoint", f"{name}/{number + 1}")
    there = {n: b for (of, n), b in at.project.blocks.items() if of == name and b.alive(at.now)}
    memory = {n: (b.version, b.versions[-1] or "") for n, b in there.items()}
    made = Checkpoint(seq, state, next_action, done, total, memory)
    run.checkpoints.append(made)
    run.touched = seq
    _work_on(at, name)
    _settle(at, name, run)
    return {"run": run_shape(at, run), "checkpoint": _checkpoint_shape(made, number + 1)}


def _checkpoint_shape(made: Checkpoint, number: int) -> Shape:
    return {
        "number": number,
        "seq": made.seq,
        "state": made.state,
        "next_action": made.next_action,
        "done": made.done,
        "total": made.total,
    }


def _changed(at: At, name: str, run: Run) -> None:
    run.version += 1
    run.touched = at.event("run", name)


def _link(at: At, name: str, run: Run, topic: str) -> None:
    if run.stopped:
        _unblock(at, name, run)
    run.thread = topic
    _changed(at, name, run)
    if run.stopped:
        _block(at, name, run)


def _settle(at: At, name: str, run: Run) -> None:
    """A run whose time or tokens are spent is stopped; attempts when one more is asked for."""
    crossed = [budget for budget in run.spent(at.now) if budget != "attempts"]
    if crossed and not run.stopped:
        run.stopped = crossed[0]
        _changed(at, name, run)
        _block(at, name, run)


def _block(at: At, name: str, run: Run) -> None:
    """The thread of a run that has spent a budget waits for a person, if it is open."""
    thread = at.project.threads.get(run.thread)
    if thread is None:
        return
    waits_for = name, run.stopped
    for_another = thread.waits_for is not None and thread.waits_for != waits_for
    if thread.status in ("active", "watching") or for_another:
        new = _copy(thread)
        new.fields |= {"status": "blocked", "waiting_on": ANY}
        new.recheck_at = at.now + DAY
        _keep(at, thread, new)
        new.waits_for = waits_for


def _unblock(at: At, name: str, run: Run) -> None:
    thread = at.project.threads.get(run.thread)
    if thread is None or thread.waits_for is None:
        return
    others = [r for n, r in at.project.runs.items() if n != name and r.thread == run.thread]
    if not any(r.status == "open" and r.stopped for r in others):
        new = _copy(thread)
        new.fields |= {"status": "active", "waiting_on": "", "note": ANY}
        new.recheck_at = None
        _keep(at, thread, new)


def run_resume(at: At, run_id: str = "", number: int | None = None) -> Shape:
    if run_id.strip():
        name = at.found(at.project.runs, run_id)
    else:
        still_open = [n for n, r in at.project.runs.items() if r.status == "open"]
        name = max(still_open, key=lambda n: at.project.runs[n].touched, default="")
        if not name:
            return {"run": None, "checkpoint": None}
    run = at.project.runs[name]
    last = len(run.checkpoints)
    if number is not None and not 1 <= number <= last:
        raise Refused("not_found")
    chosen = number or last
    if chosen:
        memory = run.checkpoints[chosen - 1].memory
        checkpoint = _checkpoint_shape(run.checkpoints[chosen - 1], chosen)
    else:
        blocks = {n: b for (of, n), b in at.project.blocks.items() if of == name}
        alive = {n: b for n, b in blocks.items() if b.alive(at.now)}
        memory = {n: (b.version, b.versions[-1] or "") for n, b in alive.items()}
        checkpoint = None
    steps = run.steps.values()
    return {
        "run": run_shape(at, run),
        "checkpoint": checkpoint,
        "memory": [
            {"key": at.project.blocks[name, n].shown, "version": version, "value": value}
            for n, (version, value) in sorted(memory.items())
        ],
        "open": sum(step.status == "open" for step in steps),
        "failed": sum(step.status == "failed" for step in steps),
        "finished": frozenset(
            s.shown for s in sorted(steps, key=lambda s: -s.changed) if s.status == "done"
        )
        if sum(step.status == "done" for step in steps) <= 5
        else ANY,
    }


def run_finish(
    at: At, run_id: str, status: str, result: str = "", evidence: str = "", reflection: str = ""
) -> Shape:
    why = Why(at)
    name = why.found(at.project.runs, run_id)
    given = {"result": result, "evidence": evidence, "reflection": reflection}
    said = {field: why.text(text, at.who.limits.entry) for field, text in given.items()}
    if not name:
        why.when(status == "completed" and not evidence.strip(), "evidence_required")
        why.settle()
    run = at.project.runs[name]
    if run.status != "open":
        differs = any(text and run.said[field] != text for field, text in said.items())
        why.when(run.status != status or differs, "conflict")
        why.settle()
        return run_shape(at, run) | {"repeated": True}
    if status == "completed":
        why.when(not evidence.strip(), "evidence_required")
    else:
        why.when(not (result.strip() or reflection.strip()), "bad_argument")
    why.settle()
    run.status, run.said, run.finished_at = status, said, at.now
    _changed(at, name, run)
    _unblock(at, name, run)
    return run_shape(at, run) | {"repeated": False}


def run_list(at: At, status: str = "", limit: int = 20) -> Shape:
    why = Why(at)
    why.page(limit, 100)
    why.settle()
    found = [run for run in at.project.runs.values() if status in ("", run.status)]
    found.sort(key=lambda run: -run.touched)
    return {"runs": [run_shape(at, run) for run in found[:limit]], "total": len(found)}


def budget_raised(at: At, run: str, budget: str, most: int) -> Shape:
    """What a person does."""
    name = at.found(at.project.runs, run)
    found = at.project.runs[name]
    now = found.most[budget]
    if found.status != "open":
        raise Refused("illegal_transition")
    if now is None or not now < most:
        raise Refused("bad_argument")
    found.most = found.most | {budget: most}
    found.stopped = "" if found.stopped == budget else found.stopped
    spent = found.spent(at.now)
    found.stopped = spent[0] if spent else ""
    _changed(at, name, found)
    if spent:
        _block(at, name, found)
    else:
        _unblock(at, name, found)
    return run_shape(at, found)


# Steps


def step_shape(run: Run, step: Step) -> Shape:
    return {
        "name": step.shown,
        "run": run.shown,
        "status": step.status,
        "input": step.input,
        "result": step.result,
        "attempts": len(step.attempts),
        "streak": step.streak,
        "stopped": step.stopped,
    }


def step_begin(at: At, run_id: str, step: str, input: str = "") -> Shape:
    why = Why(at)
    name, shown = why.found(at.project.runs, run_id), why.name(step)
    why.settle()
    run = at.project.runs[name]
    at_step = "step", f"{name}/{fold(shown)}"
    found = run.steps.get(fold(shown))
    if found is not None and found.status == "done":
        return {"step": step_shape(run, found), "go": False}
    why.when(run.status != "open", "illegal_transition")
    input = why.text(input, at.who.limits.entry)
    why.settle()
    if spent := run.spent(at.now):
        before = at.next
        if not run.stopped:
            run.stopped = spent[0]
            _changed(at, name, run)
        _block(at, name, run)
        raise Refused("budget_spent", kept=at.next > before)
    if found is not None and found.streak >= 4 and found.input == input:
        is_first = not found.stopped
        if is_first:
            found.stopped = True
            run.touched = found.changed = at.event(*at_step)
        raise Refused("no_progress", kept=is_first)
    if found is None:
        found = run.steps[fold(shown)] = Step(shown, at.next, input=input)
    if found.input != input:
        found.input, found.outcome, found.streak = input, None, 0
    left_open = [attempt.number for attempt in found.attempts if not attempt.ended]
    found.status, found.stopped = "open", False
    found.changed = run.touched = at.event(*at_step)
    attempt = Attempt(len(found.attempts) + 1, found.changed, at.who.session, input)
    found.attempts.append(attempt)
    _work_on(at, name)
    return {
        "step": step_shape(run, found),
        "go": True,
        "attempt": attempt.number,
        "left_open": [{"number": number} for number in left_open[::-1][:5]],
    }


def step_end(
    at: At,
    run_id: str,
    step: str,
    ok: bool,
    result: str = "",
    tokens_in: int = 0,
    tokens_out: int = 0,
) -> Shape:
    why = Why(at)
    name = why.found(at.project.runs, run_id)
    why.name(step)
    for count in (tokens_in, tokens_out):
        why.when(not 0 <= count <= 10**12, "bad_argument")
    result = why.text(result, at.who.limits.entry)
    found = at.project.runs[name].steps.get(fold(step)) if name else None
    why.when(found is None, "not_found")
    why.settle()
    assert found is not None
    run = at.project.runs[name]
    attempt = _to_end(at, found, ok, result)
    if attempt.ended:
        return {
            "run": run_shape(at, run),
            "attempt": {"number": attempt.number, "ok": ok, "result": result},
            "repeated": True,
        }
    if run.status != "open":
        raise Refused("illegal_transition")
    attempt.ok, attempt.result, attempt.ended_by = ok, result, at.who.session
    _outcome(found, attempt)
    run.tokens = [run.tokens[0] + tokens_in, run.tokens[1] + tokens_out]
    attempt.ended = found.changed = run.touched = at.event("step", f"{name}/{fold(step)}")
    _work_on(at, name)
    _settle(at, name, run)
    return {
        "run": run_shape(at, run),
        "step": step_shape(run, found),
        "attempt": {"number": attempt.number, "ok": ok, "result": result},
        "repeated": False,
    }


def _to_end(at: At, step: Step, ok: bool, result: str) -> Attempt:
    """The attempt that is ended by this, or the one that had this outcome already."""
    session = at.who.session
    ended_here = [a for a in step.attempts if a.ended and a.ended_by == session]
    here = max(ended_here, key=lambda a: a.ended, default=None)
    going = [a for a in step.attempts if not a.ended]
    mine = [a for a in going if a.session == session]
    if going and step.status != "done":
        chosen = (mine or going)[-1]
        is_said = here is not None and here.had(ok, result)
        if not is_said or (mine and here is not None and chosen.begun > here.ended):
            return chosen
        assert here is not None
        return here
    done = step.status == "done"
    last = [a for a in step.attempts if (a.ended and a.ok) or not done][-1]
    for one in (last, here):
        if one is not None and one.had(ok, result):
            return one
    raise Refused("conflict")


def _outcome(step: Step, attempt: Attempt) -> None:
    """What a step is after the outcome of one of its attempts."""
    result = attempt.result
    if attempt.input == step.input:
        outcome = attempt.ok, re.sub(r"\d+(\.\d+)? s\b", "…", attempt.result)
        step.streak = step.streak + 1 if outcome == step.outcome else 1
        step.outcome = outcome
    elif not attempt.ok:
        result = step.result
    is_last = attempt.number == len(step.attempts)
    going = not attempt.ok and not is_last and step.status == "open"
    step.status = "done" if attempt.ok else "open" if going else "failed"
    step.result = result
    step.stopped = step.stopped and not attempt.ok and step.streak >= 4


def step_reset(at: At, run: str, step: str) -> Shape:
    """What a person does."""
    why = Why(at)
    name = why.found(at.project.runs, run)
    why.name(step)
    found = at.project.runs[name].steps.get(fold(step)) if name else None
    why.when(found is None, "not_found")
    why.when(name and at.project.runs[name].status != "open", "illegal_transition")
    why.settle()
    assert found is not None
    of = at.project.runs[name]
    found.result = "" if found.status == "done" else found.result
    found.status = "open" if found.status == "open" else "failed"
    found.outcome, found.streak, found.stopped = None, 0, False
    found.changed = of.touched = at.event("step", of_run(name, fold(step)))
    return step_shape(of, found)
