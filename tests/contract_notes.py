"""What memory, the journal, blobs, the objective and handoffs promise, tool by tool."""

from __future__ import annotations

import hashlib

from contract import (
    ANY,
    OPEN,
    At,
    Blob,
    Block,
    Entry,
    Handoff,
    Refused,
    Shape,
    Why,
    fold,
    of_run,
    shortened,
    storable,
)
from contract_work import leases_of, take_leases

# Working memory


def memory_get(at: At, key: str = "", run_id: str = "", version: int | None = None) -> Shape:
    why = Why(at)
    why.when(not key and version is not None, "bad_argument")
    run, name = why.run(run_id), fold(why.name(key)) if key else ""
    why.settle()
    if not key:
        return {"blocks": [block_shape(at, b) for b in alive_blocks(at, run)]}
    block = at.project.blocks.get((run, name))
    if version is not None:
        return _at_version(block, version)
    if block is None or not block.alive(at.now):
        there = [b.shown for b in alive_blocks(at, run)]
        is_gone = block is not None and block.versions[-1] is not None
        return {
            "key": at.name(key) if block is None else block.shown,
            "version": 0 if block is None else block.version,
            "expired_at": block.expires_at if block is not None and is_gone else None,
            "keys": there[:30],
            "count": len(there),
        }
    return block_shape(at, block)


def alive_blocks(at: At, run: str) -> list[Block]:
    there = at.project.blocks.items()
    found = [(name, b) for (of, name), b in there if of == run and b.alive(at.now)]
    return [block for _, block in sorted(found, key=lambda one: one[0])]


def block_shape(at: At, block: Block) -> Shape:
    run = at.project.runs[block.run].shown if block.run else ""
    return {
        "key": block.shown,
        "run": run,
        "value": block.versions[-1],
        "version": block.version,
        "expires_at": block.expires_at,
        "locked": block.locked,
        "current": True,
    }


def _at_version(block: Block | None, version: int) -> Shape:
    if block is None or not 1 <= version <= block.version or block.versions[version - 1] is None:
        raise Refused("not_found")
    return {
        "value": block.versions[version - 1],
        "version": version,
        "current": version == block.version,
    }


def _writable(
    at: At, why: Why, key: str, run_id: str, expected_version: int | None
) -> tuple[tuple[str, str], Block]:
    """The block as it is, or a new one, and where it belongs."""
    shown, run = why.name(key), why.run(run_id)
    block = at.project.blocks.get((run, fold(shown))) or Block(shown, run)
    current = block.version if block.alive(at.now) else 0
    why.when(expected_version not in (None, current), "version_conflict")
    why.when(block.locked, "locked")
    return (run, fold(shown)), block


def _stored(at: At, place: tuple[str, str], block: Block, value: str | None) -> Shape:
    block.versions.append(value)
    at.project.blocks[place] = block
    at.event("memory", of_run(*place))
    return block_shape(at, block)


def memory_set(
    at: At,
    key: str,
    value: str,
    run_id: str = "",
    expected_version: int | None = None,
    ttl: str = "",
) -> Shape:
    why = Why(at)
    place, block = _writable(at, why, key, run_id, expected_version)
    why.when(not value, "bad_argument")
    value = why.text(value, at.who.limits.block)
    life = why.duration(ttl)
    why.settle()
    block.expires_at = at.now + life if life else None
    return _stored(at, place, block, value)


def memory_append(
    at: At,
    key: str,
    text: str,
    run_id: str = "",
    expected_version: int | None = None,
    idempotency_key: str = "",
) -> Shape:
    why = Why(at)
    place, block = _writable(at, why, key, run_id, expected_version)
    once = "memory_append", why.name(idempotency_key) if idempotency_key else ""
    said = place, storable(text)
    if first := at.project.once.get(once):
        if first[0] != said:
            why.when(True, "conflict")
            why.when(not text, "bad_argument")
            why.settle()
        if not block.alive(at.now):
            return {"value": block.versions[first[1] - 1], "repeated": True}
        return block_shape(at, block) | {"repeated": True}
    why.when(not text, "bad_argument")
    old = (block.versions[-1] or "") if block.alive(at.now) else ""
    value = why.text(old + text, at.who.limits.block)
    why.settle()
    if not old:
        block.expires_at = None
    shape = _stored(at, place, block, value)
    if idempotency_key:
        at.project.once[once] = said, block.version
    return shape | {"repeated": False}


def memory_delete(at: At, key: str, run_id: str = "", expected_version: int | None = None) -> Shape:
    why = Why(at)
    place, block = _writable(at, why, key, run_id, expected_version)
    why.when(not block.alive(at.now), "not_found")
    why.settle()
    was = block_shape(at, block)
    _stored(at, place, block, None)
    block.expires_at = None
    return was


def memory_restore(at: At, key: str, version: int, run_id: str = "") -> Shape:
    why = Why(at)
    place, block = _writable(at, why, key, run_id, None)
    why.settle()
    value = _at_version(block, version)["value"]
    block.expires_at = None
    return _stored(at, place, block, value)


def memory_lock(at: At, key: str, reason: str) -> Shape:
    """What a person does; an empty reason unlocks."""
    place = "", fold(at.name(key))
    block = at.project.blocks.get(place)
    unlocks = block is not None and block.locked and not reason
    if block is None or not (unlocks or block.alive(at.now)):
        raise Refused("not_found")
    block.locked = reason
    at.event("memory", of_run(*place))
    return {"locked": reason}


# Journal


def journal_append(
    at: At,
    text: str,
    kind: str = "",
    thread: str = "",
    run_id: str = "",
    idempotency_key: str = "",
) -> Shape:
    why = Why(at)
    why.when(not text.strip(), "bad_argument")
    kind = fold(why.name(kind)) if kind else ""
    topic = fold(why.name(thread)) if thread else ""
    text = why.text(text, at.who.limits.entry)
    once = "journal_append", why.name(idempotency_key) if idempotency_key else ""
    run = why.run(run_id) or at.current_run()
    said = kind, topic, text, fold(run_id)
    if first := at.project.once.get(once):
        why.when(first[0] != said, "conflict")
        why.settle()
        entry = next(e for e in at.project.journal if e.seq == first[1])
        return _entry_shape(at, entry) | {"repeated": True}
    why.when(topic and topic not in at.project.threads, "not_found")
    why.settle()
    entry = Entry(at.event("journal", str(at.next)), at.who.agent, text, kind, topic, run)
    at.project.journal.append(entry)
    if idempotency_key:
        at.project.once[once] = said, entry.seq
    return _entry_shape(at, entry) | {"repeated": False}


def _entry_shape(at: At, entry: Entry) -> Shape:
    return {
        "seq": entry.seq,
        "text": entry.text,
        "kind": entry.kind,
        "thread": at.project.threads[entry.thread].shown if entry.thread else "",
        "run": at.project.runs[entry.run].shown if entry.run else "",
        "actor": {"agent": entry.agent},
    }


def journal_tail(
    at: At,
    limit: int = 10,
    before: int | None = None,
    since: int | None = None,
    thread: str = "",
    run_id: str = "",
    kind: str = "",
    actor: str = "",
) -> Shape:
    why = Why(at)
    why.page(limit, 100)
    wanted = {
        "thread": why.found(at.project.threads, thread) if thread.strip() else "",
        "run": why.run(run_id),
        "kind": fold(kind),
        "agent": actor.strip(),
    }
    why.settle()
    asked = {field: value for field, value in wanted.items() if value}
    all_of_them = [
        e for e in at.project.journal if all(getattr(e, f) == v for f, v in asked.items())
    ]
    found = [e for e in all_of_them if before is None or e.seq < before]
    shown = found[-limit:] if since is None else [e for e in found if e.seq > since][:limit]
    return {"entries": [_entry_shape(at, entry) for entry in shown]}


# Blobs


def blob_put(at: At, text: str, summary: str = "", ttl: str = "") -> Shape:
    why = Why(at)
    why.when(not text, "bad_argument")
    text = why.text(text, 1 << 40)
    why.when(len(text.encode()) > at.who.limits.blob, "over_limit")
    life = why.duration(ttl)
    summary = why.text(summary, at.who.limits.text)
    why.settle()
    expires_at = at.now + life if life else None
    digest = hashlib.sha256(text.encode()).hexdigest()
    key = f"b-{digest[:32]}"
    blob = at.project.blobs.get(key)
    is_there = blob is not None and blob.alive(at.now)
    if blob is None:
        limit = min(120, at.who.limits.text)
        first = next(filter(None, (shortened(line, limit) for line in text.splitlines())), "")
        blob = Blob(text, first, expires_at, 0)
        at.project.blobs[key] = blob
    elif is_there and None not in (blob.expires_at, expires_at):
        expires_at = max(filter(None, (blob.expires_at, expires_at)))
    elif is_there:
        expires_at = None
    said = summary if summary.strip() else blob.summary
    if not is_there or (said, expires_at) != (blob.summary, blob.expires_at):
        blob.summary, blob.expires_at = said, expires_at
        blob.version += 1
        blob.changed = at.event("blob", key)
    return _blob_shape(key, blob) | {"repeated": is_there, "sha256": digest}


def _blob_shape(key: str, blob: Blob) -> Shape:
    return {
        "key": key,
        "characters": len(blob.text),
        "bytes": len(blob.text.encode()),
        "summary": blob.summary,
        "version": blob.version,
        "expires_at": blob.expires_at,
    }


def blob_get(at: At, key: str, offset: int = 0, limit: int = 8000) -> Shape:
    if offset < 0 or not 1 <= limit <= 100_000:
        raise Refused("bad_argument", "not_found", "expired")
    digits = fold(key).removeprefix("b-")
    found = [k for k in at.project.blobs if k.startswith(f"b-{digits}") and len(digits) >= 8]
    if len(found) != 1:
        raise Refused("not_found")
    blob = at.project.blobs[found[0]]
    if not blob.alive(at.now):
        raise Refused("expired")
    shown = blob.text[offset : offset + limit]
    left = max(0, len(blob.text) - offset - len(shown))
    return {"blob": _blob_shape(found[0], blob), "offset": offset, "text": shown, "more": left}


# Objective


def objective_set(
    at: At,
    objective: str = "",
    reason: str = "",
    intent: str = "",
    expected_version: int | None = None,
) -> Shape:
    why = Why(at)
    old = at.project.objectives[-1] if at.project.objectives else {}
    given = {"objective": objective, "intent": intent}
    said: Shape = {k: why.text(v.strip(), 500) or old.get(k, "") for k, v in given.items()}
    reason = why.text(reason.strip(), 500)
    version = len(at.project.objectives)
    why.when(expected_version not in (None, version), "version_conflict")
    why.when(not said["objective"], "bad_argument")
    is_same = bool(old) and all(old[k] == v for k, v in said.items())
    if old and not is_same:
        why.when(not reason, "bad_argument")
        why.when(expected_version is None, "version_conflict")
    why.settle()
    if is_same:
        return old | {"version": version, "unchanged": True}
    at.project.objectives.append(said | {"reason": reason})
    at.event("objective", "objective")
    was = old.get("objective", "")
    return said | {"reason": reason, "version": version + 1, "was": was, "unchanged": False}


# Handoff


def handoff_create(at: At, note: str, to: str = "") -> Shape:
    why = Why(at)
    why.when(not note.strip(), "bad_argument")
    note = why.text(note, at.who.limits.entry)
    recipient = why.name(to) if to.strip() else ""
    why.settle()
    made = Handoff(at.next, at.now, at.who, note, recipient)
    at.project.handoffs[f"new {at.next}"] = made  # its key comes with the answer
    at.event("handoff", ANY)
    return {
        "handoff": {"note": note, "recipient": recipient},
        "threads": sum(t.status in OPEN for t in at.project.threads.values()),
        "runs": sum(r.status == "open" for r in at.project.runs.values()),
    }


def handoff_accept(at: At, key: str) -> Shape:
    made = at.project.handoffs.get(fold(key))
    if made is None:
        raise Refused("not_found")
    is_again = made.taker is not None
    if is_again and (made.taker != at.who or not at.who.session):
        raise Refused("conflict")
    if not is_again:
        made.taker, made.taken_at = at.who, at.now
        at.event("handoff", fold(key))
    held = leases_of(at, at.who) if is_again else take_leases(at, made.giver)
    return {
        "handoff": {"note": made.note, "recipient": made.recipient},
        "leases": frozenset(thread.shown for thread in held),
        "repeated": is_again,
    }
