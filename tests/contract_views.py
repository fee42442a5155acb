"""What search, history and orient promise: what must be found, told and named.

How hits are ranked, how orient words and cuts its parts, and the texts of events are left open.
"""

from __future__ import annotations

import unicodedata
from datetime import timedelta

from contract import ANY, OPEN, At, Handoff, Refused, Shape, Why, of_run
from contract_notes import alive_blocks
from contract_work import in_order, leases_of

Subject = tuple[str, str]


def search(
    at: At, query: str, kinds: list[str] | None = None, run_id: str = "", limit: int = 10
) -> Shape:
    why = Why(at)
    why.page(limit, 50)
    run = why.run(run_id)
    words = [_comparable(word) for word in query.split()]
    why.when(not words, "bad_argument")
    why.settle()
    texts = {
        subject: _comparable(text)
        for subject, (text, of) in _documents(at).items()
        if (not kinds or subject[0] in kinds) and (not run or of == run)
    }
    found = {s for s, text in texts.items() if all(word in text for word in words)}
    loose = not found and len(words) > 1
    if loose:
        found = {s for s, text in texts.items() if any(word in text for word in words)}

    def are_hits(hits: list[Shape]) -> bool:
        told = {(hit["kind"], hit["name"]) for hit in hits}
        return told <= found and len(told) == len(hits) == min(limit, len(found))

    return {"matches": len(found), "loose": loose, "hits": are_hits}


def _comparable(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _documents(at: At) -> dict[Subject, tuple[str, str]]:
    """What can be found by its text, and the run that each belongs to."""
    project, found = at.project, dict[Subject, tuple[str, str]]()
    for (run, _), b in project.blocks.items():
        if b.alive(at.now):
            shown = of_run(project.runs[run].shown if run else "", b.shown)
            found["memory", shown] = f"{b.shown}\n{b.versions[-1]}", run
    for t in project.threads.values():
        texts = ("title", "next_action", "waiting_on", "check", "evidence", "note")
        said = [t.fields[x] for x in texts if t.fields[x] is not ANY]
        found["thread", t.shown] = "\n".join([t.shown, *said, *(c.text for c in t.criteria)]), ""
    for e in project.journal:
        found["journal", str(e.seq)] = e.text, e.run
    for name, r in project.runs.items():
        last = [r.checkpoints[-1].state, r.checkpoints[-1].next_action] if r.checkpoints else []
        words = [r.shown, r.goal, r.expected_outcome, *last, *r.said.values()]
        found["run", r.shown] = "\n".join(words), name
    for f in project.facts.values():
        found["fact", f.shown] = "\n".join((f.shown, f.statement, f.check, f.source)), ""
    for key, blob in project.blobs.items():
        if blob.alive(at.now):
            found["blob", key] = f"{key}\n{blob.summary}", ""
    return found


def history(at: At, subject: str = "", since: int | None = None, limit: int = 20) -> Shape:
    why = Why(at)
    why.page(limit, 200)
    why.settle()
    events = list(enumerate(at.project.log, 1))
    if subject:
        of = [n for n, event in events if subject_of(event) == subject and n > (since or 0)]
        may = {*of, *(n for n, (kind, name) in events if ANY in (kind, name))}

        def are_its_own(told: list[Shape]) -> bool:
            numbers = [event["seq"] for event in told]
            is_whole = len(told) == limit or set(of) <= set(numbers)
            return numbers == sorted(set(numbers) & may) and is_whole

        return {"events": are_its_own}
    after = events[max(0, since or 0) :]
    shown = after[-limit:] if since is None else after[:limit]
    told = [{"seq": n, "kind": kind, "name": name} for n, (kind, name) in shown]
    return {"events": told, "more": len(after) - len(shown)}


def subject_of(event: tuple[str, str]) -> str:
    """How history calls what an event is about; empty for what the contract leaves open."""
    kind, name = event
    return "" if name is ANY else name if kind == "objective" else f"{kind}:{name}"


def orient(at: At, max_tokens: int = 2000, since: int | None = None) -> Shape:
    if not 150 <= max_tokens <= 50_000 or (since is not None and since < 0):
        raise Refused("bad_argument")
    project = at.project
    mine = [t.shown for t in leases_of(at, at.who)]
    active = [t.shown for t in in_order(at, "active")]
    due = [t.shown for t in in_order(at, due=True)]
    blocked = [t.shown for t in in_order(at, "blocked") if not t.due(at.now)]
    runs = [run for run in project.runs.values() if run.status == "open"]
    offers = {h.note for h in project.handoffs.values() if h.taker is None and _is_new(at, h)}
    objective = project.objectives[-1] if project.objectives else None
    fallen = {f.shown for f in project.facts.values() if f.fell and not f.due(at.now)}
    relied = {
        project.facts[fact].shown
        for thread in project.threads.values()
        if thread.status in ("active", "blocked") or thread.due(at.now)
        for fact in thread.relies_on
    }
    count = {
        status: sum(t.due(at.now) and t.status == status for t in project.threads.values())
        for status in OPEN[1:]
    }

    def offer(told: list[Shape]) -> bool:
        return offers <= {one["note"] for one in told} or len(offers) > 5

    def do_not_hold(told: list[Shape]) -> bool:
        return fallen & relied <= {fact["name"] for fact in told} <= fallen

    def names_all(text: str) -> bool:
        names = [" ".join(name.split()) for name in (*active, *due, *blocked)]
        return max_tokens < 50_000 or all(name in text for name in names)

    return {
        "active": frozenset([*mine, *active]),
        "due": [{"name": name} for name in due],
        "blocked": [{"name": name} for name in blocked],
        "due_count": count if project.log else ANY,
        "memory": frozenset(block.shown for block in alive_blocks(at, "")),
        "journal": [{"seq": entry.seq} for entry in project.journal[-10:]],
        "runs": [
            {"run": {"name": run.shown}} for run in sorted(runs, key=lambda r: -r.touched)[:5]
        ],
        "objective": objective and {"objective": objective["objective"]},
        "handoffs": offer,
        "fallen": do_not_hold,
        "text": names_all,
    }


def _is_new(at: At, handoff: Handoff) -> bool:
    return at.now - handoff.created_at < timedelta(days=30)
