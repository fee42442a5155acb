"""Reading facts: one, a page of them, what they rest on, and what their addresses lead to now."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import Any, TypeVar

from mcp_state import lookups
from mcp_state.calls import either, tool
from mcp_state.errors import BadArgument, NotFound
from mcp_state.lookups import Compared, Found
from mcp_state.models import FALLEN, Actor, Fact, FactPage, Premise, Thread, Trust
from mcp_state.store.paging import ASKED, FAR, Group, page_of
from mcp_state.store.text import fold, near_names, one_line, quoted, tidy_name
from mcp_state.store.transaction import Reading, Row, actor_of, time_of, unfolded
from mcp_state.times import from_text, to_text

FACT = "SELECT * FROM fact_rows WHERE project = :project AND name = :name"
PREMISES = """
    SELECT * FROM premise_rows WHERE project = :project AND fact = :name ORDER BY reason, premise
"""
RELIED = """
    SELECT fact AS premise, 0 AS replaced, shown, trust, recheck_at, held, verified_at,
        "check", baseline, actors.session AS checker_session
    FROM relies JOIN facts ON facts.project = relies.project AND facts.name = fact
    LEFT JOIN actors ON actors.id = verified_by
    WHERE relies.project = :project AND thread = :name ORDER BY fact
"""
_NAMES = """
    SELECT shown FROM facts WHERE project = :project AND name >= :first AND name < :end LIMIT 300
"""
_DUE = """
    SELECT * FROM fact_rows
    WHERE project = :project AND trust = :value AND recheck_at <= :asked
        AND (recheck_at, created) > (:first, :second)
    ORDER BY recheck_at, created LIMIT :limit
"""
_LATER = """
    SELECT * FROM fact_rows
    WHERE project = :project AND trust = :value AND recheck_at IS NOT NULL
        AND (recheck_at, created) > (:first, :second)
    ORDER BY recheck_at, created LIMIT :limit
"""
_REST = """
    SELECT * FROM fact_rows
    WHERE project = :project AND trust = :value AND recheck_at IS NULL AND changed < :second
    ORDER BY changed DESC LIMIT :limit
"""
_COUNT_DUE = """
    SELECT count(*) FROM (
        SELECT 1 FROM facts
        WHERE project = :project AND trust = :trust AND recheck_at <= :asked LIMIT :limit
    )
"""
_RELIED_BY_THESE = """
    SELECT * FROM fact_rows
    WHERE project = :project AND name IN (
        SELECT fact FROM relies
        WHERE project = :project AND thread IN (SELECT value FROM json_each(:threads))
    ) ORDER BY trust IN ('refuted', 'stale') DESC, recheck_at NULLS LAST, created LIMIT :limit
"""
_FALLEN_SINCE = """
    SELECT * FROM fact_rows
    WHERE project = :project AND trust = :value AND trust_at >= :since
    ORDER BY trust_at DESC, changed DESC LIMIT :limit
"""
MOST_COUNTED = 1000
MOST_LOOKED_UP = 200
STAYS_VERIFIED = timedelta(hours=4)
"""How long a session may rely on its own verification."""
LIVE = (Trust.TRUSTED, Trust.PROVISIONAL, Trust.STALE)
"""What can be due."""
_UNSCHEDULED = (Trust.STALE, Trust.REFUTED, Trust.ARCHIVAL)
"""What may have no time for its next check."""


def find_fact(tx: Reading, fact: str) -> Row:
    """The row of a fact, by its name.

    Raises:
        NotFound: there is none; near names are listed.
    """
    row = tx.one(FACT, {"name": fold(tidy_name(fact, "fact"))})
    if row is None:
        name = fold(fact)
        some = tx.all(_NAMES, {"first": name[:1], "end": name[:1] + "\U0010ffff"})
        shown = {fold(row["shown"]): row["shown"] for row in some}
        near = [shown[one] for one in near_names(name, shown)]
        raise NotFound.named(
            "fact",
            fact.strip(),
            near,
            f"{tool('fact_list')} shows them; {tool('fact_record')} makes one.",
        )
    return row


def stored_fact(tx: Reading, name: str) -> Row:
    """The row of a fact that is there, by its folded name, which may be longer than a name."""
    row = tx.one(FACT, {"name": name})
    assert row is not None
    return row


def fact_of(tx: Reading, row: Row) -> Fact:
    """The model of a row."""
    row = unfolded(row)
    verified_at = time_of(row["verified_at"])
    by = Actor(row["checker_agent"], row["checker_client"], row["checker_session"])
    return Fact(
        name=row["shown"],
        check=row["check"],
        now=None,
        verified=_is_verified(tx, row),
        trust=Trust(row["trust"]),
        trust_at=from_text(row["trust_at"]),
        due=_is_due(tx, row),
        recheck_at=time_of(row["recheck_at"]),
        verified_at=verified_at,
        verified_by=by if verified_at else None,
        held=None if row["held"] is None else bool(row["held"]),
        here=_is_here(tx, row),
        evidence=row["evidence"],
        baseline=_baseline(row),
        statement=row["statement"],
        replaces=Trust(row["replaces"]) if row["replaces"] else None,
        stated_at=from_text(row["stated_at"]),
        stated_by=Actor(row["stater_agent"], row["stater_client"], row["stater_session"]),
        source=row["source"],
        reasons=_reasons(tx, row["name"]),
        version=row["version"],
        created_at=from_text(row["created_at"]),
        changed_at=from_text(row["changed_at"]),
        changed_by=actor_of(row),
    )


def _reasons(tx: Reading, name: str) -> Sequence[Sequence[Premise]]:
    """The reasons of a fact (folded): of each, the facts that are all needed."""
    reasons: dict[int, list[Premise]] = {}
    for row in tx.all(PREMISES, {"name": name}):
        reasons.setdefault(row["reason"], []).append(_premise(tx, row))
    return list(reasons.values())


def relied_on(tx: Reading, thread: str) -> list[Premise]:
    """The facts that a thread (folded) relies on."""
    return [_premise(tx, row) for row in tx.all(RELIED, {"name": thread})]


def _premise(tx: Reading, row: Row) -> Premise:
    return Premise(
        name=row["shown"],
        check=row["check"],
        now=None,
        verified=_is_verified(tx, row),
        trust=Trust(row["trust"]),
        due=_is_due(tx, row),
        replaced=bool(row["replaced"]),
        baseline=_baseline(row),
    )


def _baseline(row: Row) -> Found | None:
    return None if row["baseline"] is None else lookups.from_json(row["baseline"])


def _is_due(tx: Reading, row: Row) -> bool:
    return row["recheck_at"] is not None and row["recheck_at"] <= tx.now


def _is_here(tx: Reading, row: Row) -> bool:
    """Whether this session made its last verification, and it held."""
    session = tx.caller.actor.session
    return row["held"] == 1 and bool(session) and row["checker_session"] == session


def _is_verified(tx: Reading, row: Row) -> bool:
    """Whether it may be relied on, as far as the store knows.

    A session may have slept over night and go on under its name.
    """
    lately = _is_here(tx, row) and row["verified_at"] > to_text(tx.at - STAYS_VERIFIED)
    return lately and row["trust"] == Trust.TRUSTED and not _is_due(tx, row)


def row_of(tx: Reading, row: Row) -> dict[str, Any]:
    """What the event keeps of a fact."""
    reasons: dict[int, list[str]] = {}
    for premise in tx.all(PREMISES, {"name": row["name"]}):
        reasons.setdefault(premise["reason"], []).append(premise["shown"])
    baseline = row["baseline"]
    return {
        "name": row["shown"],
        "version": row["version"],
        "check": row["check"],
        "statement": row["statement"],
        "replaces": row["replaces"],
        "source": row["source"],
        "trust": row["trust"],
        "recheck_after": row["recheck_after"],
        "recheck_at": row["recheck_at"],
        "reasons": list(reasons.values()),
        "verified_at": row["verified_at"],
        "verified_by": row["checker_agent"],
        "held": None if row["held"] is None else bool(row["held"]),
        "evidence": row["evidence"],
        "baseline": None if baseline is None else json.loads(baseline),
    }


def believed(row: Row | Mapping[str, Any]) -> str:
    """What a fact says, inside a line of ours: never without its check before it."""
    check = f"check: {one_line(row['check'], 120)}" if row["check"] else "no check"
    return f"{check} · believed: {quoted(one_line(row['statement'], 120))}"


def text_of(row: Row) -> str:
    """What `search` reads of a fact."""
    texts = (row["shown"], row["statement"], row["check"], row["source"])
    return "\n".join(text for text in texts if text)


def list_facts(tx: Reading, trust: Trust | None, due: bool, limit: int, cursor: str) -> FactPage:
    """The page of facts that `Facts.list` describes."""
    if due and trust is Trust.TRUSTED:
        both = either(
            "trust is 'trusted' and due is true", "--trust is trusted, and --due is given"
        )
        raise BadArgument(
            f"{both}, but what is due for a check is not trusted",
            "Leave one of them out.",
        )
    filters = f"{trust or 'all'}{'-due' if due else ''}"
    page = page_of(tx, _groups(trust, due), filters, limit, cursor, tool("fact_list"))
    facts = [fact_of(tx, row) for row in page.rows]
    counts = tx.totals().facts
    due_now = count_due(tx, page.asked)
    found = [n for one, n in due_now.items() if trust in (None, one)]
    is_capped = any(n > MOST_COUNTED for n in found)
    if due:
        total, qualified = sum(found), "at least" if is_capped else ""
    elif trust is Trust.TRUSTED:
        total, qualified = counts.get(trust, 0) - sum(found), "at most" if is_capped else ""
    else:
        total, qualified = sum(n for one, n in counts.items() if trust in (None, one)), ""
    return FactPage(facts, total, page.cursor, qualified, due_now)


def _groups(trust: Trust | None, due: bool) -> Sequence[Group]:
    """What is due, what will be, and the rest, the newest first. What is due is not trusted."""
    live = [one for one in LIVE if trust in (None, one)]
    rest = [] if due else [t for t in Trust if trust in (None, t) and t in _UNSCHEDULED]
    groups: list[Group] = []
    if live and (due or trust is not Trust.TRUSTED):
        groups.append(Group(_DUE, live, ("recheck_at", "created"), ("", 0)))
    if live and not due:
        groups.append(Group(_LATER, live, ("recheck_at", "created"), (ASKED, FAR)))
    return groups + [Group(_REST, [t], ("trust", "changed"), (t.value, FAR)) for t in rest]


def count_due(tx: Reading, asked: str = "") -> Mapping[Trust, int]:
    """How many facts of each trust are due; more than `MOST_COUNTED` count as one more."""
    return {
        trust: tx.scalar(
            _COUNT_DUE, {"trust": trust, "asked": asked or tx.now, "limit": MOST_COUNTED + 1}
        )
        for trust in LIVE
    }


def facts_relied_on(tx: Reading, threads: Sequence[Thread], limit: int) -> list[Fact]:
    """The facts that some threads rely on: those that do not hold, then what is due first."""
    names = json.dumps([fold(thread.name) for thread in threads])
    rows = tx.all(_RELIED_BY_THESE, {"threads": names, "limit": limit})
    return [fact_of(tx, row) for row in rows]


def carrying(tx: Reading, threads: Sequence[Thread], limit: int) -> list[Fact]:
    """The facts that some threads rely on, each followed by what it rests on, and that by its own.

    At most `limit` of them.
    """
    found: dict[str, Fact] = {}
    waiting = deque(facts_relied_on(tx, threads, limit))
    while waiting and len(found) < limit:
        fact = waiting.popleft()
        if fact.name in found:
            continue
        found[fact.name] = fact
        premises = {p.name: p for reason in fact.reasons for p in reason if p.name not in found}
        waiting += [fact_of(tx, stored_fact(tx, fold(p))) for p in list(premises)[:limit]]
    return list(found.values())


def fallen_since(tx: Reading, since: str, limit: int) -> list[Fact]:
    """The facts that were refuted or became stale after a time, the last ones first."""
    rows = [
        row
        for trust in FALLEN
        for row in tx.all(_FALLEN_SINCE, {"value": trust, "since": since, "limit": limit})
    ]
    rows.sort(key=lambda row: row["trust_at"], reverse=True)
    return [fact_of(tx, row) for row in rows[:limit]]


async def looked_up(facts: Sequence[Fact], worktree: str) -> list[Fact]:
    """The facts with what the addresses of their checks, and of their premises', lead to now.

    The server looks inside the worktree, for two seconds at most.
    """
    found = await found_for(worktree, facts)
    return [with_found(fact, found) for fact in facts]


async def found_for(
    worktree: str,
    facts: Sequence[Fact],
    premises: Iterable[Premise] = (),
    *,
    seconds: float = lookups.PATIENCE,
) -> Mapping[str, Found]:
    """What the addresses of checks lead to, of some facts with their premises, and of others."""
    within = (premise for fact in facts for reason in fact.reasons for premise in reason)
    checks = {one.check: None for one in chain(facts, within, premises)}
    targets = [target for check in checks if (target := lookups.target_of(check))]
    if not targets:
        return {}
    return await lookups.look_up(worktree, targets, seconds=seconds, most=MOST_LOOKED_UP)


T = TypeVar("T", Fact, Premise)


def with_found(fact: Fact, found: Mapping[str, Found]) -> Fact:
    """A fact with what was found for it and its premises."""
    if not found:
        return fact
    reasons = [[premise_with_found(p, found) for p in reason] for reason in fact.reasons]
    return replace(_compared(fact, found), reasons=reasons)


def premise_with_found(premise: Premise, found: Mapping[str, Found]) -> Premise:
    """A premise with what was found for it."""
    return _compared(premise, found)


def _compared(one: T, found: Mapping[str, Found]) -> T:
    there = found.get(lookups.target_of(one.check))
    if there is None:
        return one
    now = lookups.compare(one.baseline, there)
    return replace(one, now=now, verified=one.verified and _is_as_it_was(one.baseline, now))


def _is_as_it_was(then: Found | None, now: Compared) -> bool:
    """Whether nothing that the server saw speaks against the verification."""
    if now.word == "unknown":
        return then is None or then.state == "unknown"  # it could not look then either
    return now.word in ("unchanged", "there")
