"""What facts promise, tool by tool: trust, reasons, what falls with what, and what is due."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from contract import ANY, DAY, At, Fact, Reason, Seen, Shape, Why, fold

HOUR = timedelta(hours=1)


def fact_shape(at: At, fact: Fact) -> Shape:
    facts = at.project.facts
    is_mine = fact.verified_by == at.who.session and bool(at.who.session)
    lately = fact.verified_at is not None and at.now - fact.verified_at < 4 * HOUR
    is_live = fact.trust == "trusted" and not fact.due(at.now)
    return {
        "name": fact.shown,
        "statement": fact.statement,
        "check": fact.check,
        "source": fact.source,
        "trust": fact.trust,
        "due": fact.due(at.now),
        "recheck_at": fact.recheck_at,
        "held": fact.held,
        "evidence": fact.evidence,
        "verified": is_live and is_mine and lately,
        "version": fact.version,
        "reasons": [frozenset(facts[one].shown for one in r.premises) for r in fact.reasons],
    }


def _is_replaced(at: At, reason: Reason) -> bool:
    """Whether it was given for what is said no more."""
    return any(at.project.facts[one].stated > reason.given for one in reason.premises)


def _gone(at: At, reason: Reason, fallen: Collection[str] = ()) -> bool:
    facts = at.project.facts
    return _is_replaced(at, reason) or any(facts[p].fell or p in fallen for p in reason.premises)


def _stands(at: At, fact: Fact) -> bool:
    return not fact.reasons or any(not _gone(at, reason) for reason in fact.reasons)


def falls_with(at: At, name: str) -> set[str]:
    """What falls if this fact does: whose every reason then holds a fallen premise."""
    fallen = {name}
    while True:
        more = {
            one
            for one, fact in at.project.facts.items()
            if one not in fallen
            and not (fact.fell and fact.recheck_at is None)
            and any(reason.premises & fallen for reason in fact.reasons)
            and all(_gone(at, reason, fallen) for reason in fact.reasons)
            and any(reason.premises & fallen and not _gone(at, reason) for reason in fact.reasons)
        }
        if not more:
            return fallen - {name}
        fallen |= more


def _let_fall(at: At, names: set[str]) -> None:
    for name in names:
        at.project.facts[name].trust = "stale"
        at.project.facts[name].recheck_at = None
    for _ in names:
        at.event("fact", ANY)  # in which order is open


def _came_due(at: At, names: Collection[str]) -> set[str]:
    """Those that fell and have a reason that stands again: a check of their own is due."""
    facts = at.project.facts
    stale = [n for n in names if facts[n].trust == "stale" and facts[n].recheck_at is None]
    again = {name for name in stale if _stands(at, facts[name])}
    for name in again:
        facts[name].recheck_at = at.now
        at.event("fact", ANY)
    return again


def _relying(at: At, names: Collection[str]) -> int:
    return sum(bool(t.relies_on & set(names)) for t in at.project.threads.values())


def fact_record(
    at: At,
    fact: str,
    statement: str = "",
    check: str = "",
    source: str = "",
    because: list[str] | None = None,
    recheck_after: str = "",
    archival: bool = False,
    expected_version: int | None = None,
) -> Shape:
    why = Why(at)
    shown = why.name(fact)
    name = fold(shown)
    old = at.project.facts.get(name)
    why.when(expected_version not in (None, old.version if old else 0), "version_conflict")
    limit = at.who.limits.text
    statement, check, source = (why.text(t.strip(), limit) for t in (statement, check, source))
    why.when(old is None and not statement, "bad_argument")
    after = why.duration(recheck_after)
    premises = _premises(at, why, name, because or [])
    if old is None:
        why.settle()
        trust = "archival" if archival else "provisional"
        life = after or DAY
        made = Fact(shown, at.next, statement, check, source, trust, at.next, at.now, life, None)
        made.recheck_at = None if archival else at.now + life
        made.version = 0
        at.project.facts[name] = made
        _give_reason(at, made, premises)
        _version(at, name, made)
        return {"fact": fact_shape(at, made), "unchanged": False}
    if statement not in ("", old.statement):
        why.when(expected_version is None, "conflict")
        why.settle()
        said = {"statement": statement, "check": check or old.check, "source": source or old.source}
        return _superseded(at, name, old, said, premises, after, archival)
    return _amended(at, why, name, (check, source), premises, after, archival)


def _premises(at: At, why: Why, name: str, because: list[str]) -> frozenset[str]:
    found: set[str] = set()
    for one in because:
        premise = why.found(at.project.facts, one)
        why.when(premise and at.project.facts[premise].fell, "bad_argument")
        found.add(premise or fold(one))
    seen, waiting = set[str](), list(found)
    while waiting:
        one = waiting.pop()
        why.when(one == name, "bad_argument")
        if one not in seen and one in at.project.facts:
            waiting += [p for reason in at.project.facts[one].reasons for p in reason.premises]
        seen.add(one)
    return frozenset(found)


def _give_reason(at: At, fact: Fact, premises: frozenset[str]) -> None:
    if premises:
        fact.reasons = [*fact.reasons, Reason(premises, at.next)]


def _version(at: At, name: str, fact: Fact) -> None:
    fact.version += 1
    fact.changed = at.event("fact", name)
    fact.seen.append(Seen(at.now, at.who.session, fact.statement, fact.check))


def _superseded(
    at: At,
    name: str,
    fact: Fact,
    said: dict[str, str],
    premises: frozenset[str],
    after: timedelta | None,
    archival: bool,
) -> Shape:
    """Another statement begins anew, and what rested on the old one falls."""
    fell, was, old = falls_with(at, name), fact.trust, fact.statement
    if not (fact.held is None and fact.replaces in ("refuted", "stale")):
        fact.replaces = was
    vars(fact).update(said)
    fact.recheck_after = after or fact.recheck_after
    fact.trust = "archival" if archival else "provisional"
    fact.recheck_at = None if archival else at.now + fact.recheck_after
    fact.held, fact.evidence, fact.verified_at, fact.verified_by = None, "", None, ""
    fact.stated, fact.stated_at, fact.reasons = at.next, at.now, []
    _give_reason(at, fact, premises)
    _version(at, name, fact)
    _let_fall(at, fell)
    return {
        "fact": fact_shape(at, fact),
        "superseded": old,
        "was": was,
        "touched": {"fell_count": len(fell), "threads_count": _relying(at, {name, *fell})},
    }


def _amended(
    at: At,
    why: Why,
    name: str,
    given: tuple[str, str],
    premises: frozenset[str],
    after: timedelta | None,
    archival: bool,
) -> Shape:
    """More about a statement that stays."""
    fact = at.project.facts[name]
    why.when(archival and fact.fell, "bad_argument")
    kept = [reason for reason in fact.reasons if not _is_replaced(at, reason)]
    is_new = bool(premises) and all(reason.premises != premises for reason in kept)
    why.settle()
    before = fact_shape(at, fact) | {"recheck_after": fact.recheck_after}
    check, source = given[0] or fact.check, given[1] or fact.source
    new_check = check != fact.check
    demoted = new_check and fact.trust == "trusted" and not archival
    if archival:
        fact.trust, fact.recheck_at = "archival", None
    elif demoted:
        fact.trust = "provisional"
    if new_check and fact.trust != "refuted":
        verified_at = fact.verified_at
        fact.held, fact.evidence, fact.verified_at, fact.verified_by = None, "", None, ""
    else:
        verified_at = fact.verified_at
    fact.check, fact.source = check, source
    life = after or fact.recheck_after
    is_live = fact.trust in ("trusted", "provisional") and not fact.due(at.now)
    if is_live and life != fact.recheck_after:
        fact.recheck_at = (verified_at or fact.stated_at) + life
    fact.recheck_after = life
    is_same = before == fact_shape(at, fact) | {"recheck_after": life}
    if is_same and not is_new:
        return {"fact": fact_shape(at, fact), "unchanged": True}
    if is_new:
        fact.reasons = kept
        _give_reason(at, fact, premises)
    _version(at, name, fact)
    if is_new:
        _came_due(at, [name])
    return {"fact": fact_shape(at, fact), "unchanged": False, "demoted": demoted}


def fact_verify(
    at: At, fact: str, holds: bool, evidence: str, expected_version: int | None = None
) -> Shape:
    why = Why(at)
    name = why.found(at.project.facts, fact)
    evidence = why.text(evidence.strip(), at.who.limits.text)
    why.when(not evidence, "evidence_required")
    if not name:
        why.settle()
    found = at.project.facts[name]
    why.when(expected_version not in (None, found.version), "version_conflict")
    why.when(holds and not found.check, "evidence_required")
    if expected_version is None:
        why.when(not _has_seen(at, found), "version_conflict")
    why.settle()
    fell = set[str]() if holds else falls_with(at, name)
    had_fallen = found.fell
    found.trust = "refuted" if not holds else "trusted" if _stands(at, found) else "stale"
    trusted = found.trust == "trusted"
    found.recheck_at = at.now + found.recheck_after if trusted else None
    found.held, found.evidence = holds, evidence
    found.verified_at, found.verified_by = at.now, at.who.session
    _version(at, name, found)
    again = set[str]()
    if not holds:
        _let_fall(at, fell)
    elif trusted and had_fallen:
        facts = at.project.facts.items()
        resting = {n for n, f in facts if any(name in r.premises for r in f.reasons)}
        again = _came_due(at, resting)
    touches = not holds or (trusted and had_fallen)
    return {
        "fact": fact_shape(at, found) | {"verified": trusted},
        "touched": {
            "fell_count": len(fell),
            "again_count": len(again),
            "threads_count": _relying(at, {name, *fell, *again}) if touches else 0,
        },
    }


def _has_seen(at: At, fact: Fact) -> bool:
    """Whether the caller can know what it has checked.

    What others changed within the last hour may not have been seen yet.
    """
    mine = [s for s in fact.seen if s.at <= at.now - HOUR or s.session == at.who.session]
    seen = mine[-1] if mine else fact.seen[0]
    return (seen.statement, seen.check) == (fact.statement, fact.check)


def fact_list(
    at: At, trust: str = "", due: bool = False, limit: int = 20, cursor: str = ""
) -> Shape:
    why = Why(at)
    why.page(limit, 100)
    why.when(due and trust == "trusted", "bad_argument")
    why.settle()
    found = facts_in_order(at, trust, due)
    return {
        "facts": [fact_shape(at, fact) for fact in found[:limit]],
        "total": len(found),
        "cursor": "" if limit >= len(found) else ANY,
    }


def facts_in_order(at: At, trust: str = "", due: bool = False) -> list[Fact]:
    """What is due first, then by when it will be; the rest by trust, the newest first."""
    facts = [f for f in at.project.facts.values() if trust in ("", f.trust)]
    if due:
        facts = [fact for fact in facts if fact.due(at.now)]
    elif trust == "trusted":
        facts = [fact for fact in facts if not fact.due(at.now)]
    rest = ("stale", "refuted", "archival")

    def place(fact: Fact) -> tuple[Any, ...]:
        if fact.recheck_at is None:
            return 2, rest.index(fact.trust), -fact.changed
        return not fact.due(at.now), fact.recheck_at, fact.created

    return sorted(facts, key=place)


def fact_trace(at: At, fact: str) -> Shape:
    name = at.found(at.project.facts, fact)
    facts = at.project.facts
    below = {n: {p for r in f.reasons for p in r.premises} for n, f in facts.items()}
    above = {n: {m for m in facts if n in below[m]} for n in facts}
    fell = falls_with(at, name)
    return {
        "fact": fact_shape(at, facts[name]),
        "rests_on_count": len(_reached(below, name)),
        "carries_count": len(_reached(above, name)),
        "falls_count": len(fell),
        "threads_count": _relying(at, {name, *fell}),
    }


def _reached(links: dict[str, set[str]], name: str) -> set[str]:
    seen, waiting = {name}, [name]
    while waiting:
        new = links[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen - {name}
