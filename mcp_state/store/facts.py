"""Facts: what is believed, how to check it, why, and what falls when it does not hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from mcp_state import lookups
from mcp_state.errors import BadArgument, Conflict, EvidenceRequired, VersionConflict
from mcp_state.models import (
    FALLEN,
    FactPage,
    FactRecorded,
    FactTrace,
    FactVerified,
    Touched,
    Traced,
    Trust,
)
from mcp_state.store import documents
from mcp_state.store.fact_rows import (
    FACT,
    PREMISES,
    believed,
    fact_of,
    find_fact,
    list_facts,
    looked_up,
    row_of,
    stored_fact,
    text_of,
)
from mcp_state.store.fact_rules import (
    MOST_NAMED,
    add_reason,
    check_version,
    come_due,
    comes_due,
    drop_reasons,
    falls_with,
    let_fall,
    reasons_of,
    resting_on,
    stands,
    threads_relying,
    wanted_reason,
)
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.text import fold, one_line, quoted
from mcp_state.store.transaction import Reading, Row, Writing
from mcp_state.times import ago, duration, from_text, to_text

_INSERT = """
    INSERT INTO facts (
        project, name, shown, created, created_at, changed, changed_at, changed_by, version,
        statement, replaces, stated, stated_at, stated_by, "check", source, trust, trust_at,
        recheck_after, recheck_at
    ) VALUES (
        :project, :name, :shown, :seq, :now, :seq, :now, :actor, 1,
        :statement, '', :seq, :now, :actor, :check, :source, :trust, :now,
        :recheck_after, :recheck_at
    )
"""
_UPDATE = """
    UPDATE facts SET
        version = version + 1, changed = :seq, changed_at = :now, changed_by = :actor,
        "check" = :check, source = :source, trust = :trust,
        trust_at = iif(trust = :trust, trust_at, :now), recheck_after = :recheck_after,
        recheck_at = :recheck_at,
        verified = iif(:forget, NULL, verified), verified_at = iif(:forget, NULL, verified_at),
        verified_by = iif(:forget, NULL, verified_by), held = iif(:forget, NULL, held),
        evidence = iif(:forget, '', evidence), baseline = iif(:new_check, NULL, baseline)
    WHERE project = :project AND name = :name
"""
_SUPERSEDE = """
    UPDATE facts SET
        version = version + 1, changed = :seq, changed_at = :now, changed_by = :actor,
        statement = :statement, stated = :seq, stated_at = :now, stated_by = :actor,
        replaces = iif(held IS NULL AND replaces IN ('stale', 'refuted'), replaces, trust),
        "check" = :check, source = :source, trust = :trust, trust_at = :now,
        recheck_after = :recheck_after, recheck_at = :recheck_at, verified = NULL,
        verified_at = NULL, verified_by = NULL, held = NULL, evidence = '', baseline = NULL
    WHERE project = :project AND name = :name
"""
_VERIFY = """
    UPDATE facts SET
        version = version + 1, changed = :seq, changed_at = :now, changed_by = :actor,
        trust = :trust, trust_at = iif(trust = :trust, trust_at, :now), recheck_at = :recheck_at,
        verified = :seq, verified_at = :now, verified_by = :actor, held = :holds,
        evidence = :evidence, baseline = :baseline
    WHERE project = :project AND name = :name
"""
_WROTE_BEFORE = """
    SELECT 1 FROM (
        SELECT actor FROM events WHERE project = :project AND seq < :stated
        ORDER BY seq DESC LIMIT 1000
    ) JOIN actors ON actors.id = actor WHERE session = :session LIMIT 1
"""
_WROTE_SINCE = """
    SELECT 1 FROM (
        SELECT actor, operation FROM events WHERE project = :project AND seq > :stated
        ORDER BY seq LIMIT 1000
    ) JOIN actors ON actors.id = actor
    WHERE session = :session AND operation <> 'refused' LIMIT 1
"""
_DEFAULT_RECHECK = timedelta(hours=24)
_MOST_REASONS = 50
_MOST_TRACED = 100
_MOST_COUNTED = 10_000
_SHORTEN = "Shorten it; what is long belongs in the journal or in a blob. Nothing was saved."


class Facts(Noun):
    """What is believed in one project."""

    async def record(
        self,
        fact: str,
        statement: str = "",
        *,
        check: str = "",
        source: str = "",
        because: Sequence[str] = (),
        recheck_after: str = "",
        archival: bool = False,
        expected_version: int | None = None,
    ) -> FactRecorded:
        """Record a statement with the check that re-derives it, or more about one that is there.

        It begins `provisional` (`archival` if it is only kept for the record). `because` names
        facts that are all needed for it, and is one reason; another recording with another
        `because` adds an independent one. What is left out stays as it is. Another statement under
        the same name needs `expected_version`: it replaces the old one, which stays in history,
        begins anew without reasons, and lets fall what rested on the old one; it has to be given
        as a reason anew. Another check takes a trusted fact back to `provisional`.

        Raises:
            BadArgument: a new fact has no statement, or its reason runs in a circle or has fallen.
            NotFound: a fact of `because` does not exist.
            Conflict: it says something else already, and no version was given.
            VersionConflict: it moved on since `expected_version` (0: it must not exist).
            OverLimit: a text is too long, or it has too many reasons.
        """
        recorded = await self._record(
            fact,
            statement,
            {"check": check, "source": source},
            because,
            recheck_after,
            archival,
            expected_version,
        )
        (now,) = await looked_up([recorded.fact], self.worktree)
        return replace(recorded, fact=now)

    async def verify(
        self,
        fact: str,
        holds: bool,
        evidence: str,
        *,
        expected_version: int | None = None,
    ) -> FactVerified:
        """Record what running the check of a fact said: the only way to `trusted`.

        `holds=False` makes it `refuted`, and everything `stale` whose every reason holds a fallen
        premise, in the same transaction. What the address of a `file:` or `git:` check leads to
        now is kept, to compare with later. What fell with a fact that holds again is due for a
        check of its own.

        Raises:
            BadArgument: the check was replaced while it was looked up.
            NotFound: there is no such fact.
            EvidenceRequired: no evidence, or it has no check that could have held.
            VersionConflict: it moved on since `expected_version`; or, without one, another session
                replaced the statement since this one last wrote anything.
            OverLimit: the evidence is too long.
        """
        check = await self._check_of(fact)
        target = lookups.target_of(check)
        there = (await lookups.look_up(self.worktree, [target]))[target] if target else None
        verified = await self._verify(fact, holds, evidence, expected_version, check, there)
        (now,) = await looked_up([verified.fact], self.worktree)
        return replace(verified, fact=now)

    async def list(
        self,
        *,
        trust: Trust | str | None = None,
        due: bool = False,
        limit: int = 20,
        cursor: str = "",
    ) -> FactPage:
        """Facts: what is due for a check first, then by when it will be; what has fallen last.

        `trust` narrows to one (`trusted`: not due), `due` to what is due. `cursor` is that of the
        page before. Each comes with what the address of its check leads to now.

        Raises:
            BadArgument: there is no such trust, or the cursor is none of ours.
        """
        page = await self._list(parse_trust(trust) if trust else None, due, limit, cursor)
        return replace(page, facts=await looked_up(page.facts, self.worktree))

    async def trace(self, fact: str) -> FactTrace:
        """Why a fact is believed, and what would fall with it.

        Raises:
            NotFound: there is no such fact.
        """
        trace = await self._trace(fact)
        traced = [*trace.rests_on, *trace.carries]
        facts = [trace.fact, *(one.fact for one in traced)]
        first, *others = await looked_up(facts, self.worktree)
        traced = [replace(one, fact=now) for one, now in zip(traced, others, strict=True)]
        up = len(trace.rests_on)
        return replace(trace, fact=first, rests_on=traced[:up], carries=traced[up:])

    @writes
    def _record(
        self,
        tx: Writing,
        fact: str,
        statement: str,
        given: dict[str, str],
        because: Sequence[str],
        recheck_after: str,
        archival: bool,
        expected_version: int | None,
    ) -> FactRecorded:
        shown = tx.name(fact, "fact")
        name = fold(shown)
        tx.subject = ("fact", name)
        row = tx.one(FACT, {"name": name})
        shown = shown if row is None else row["shown"]
        check_version(tx, shown, row, expected_version)
        statement = tx.text(statement.strip(), f"the statement of fact {shown!r}", *_limit(tx))
        if not statement and row is None:
            raise BadArgument(
                f"there is no fact {shown!r}, and a new one needs a statement",
                "Say in statement what is believed, and in check how to see whether it holds.",
            )
        fields: dict[str, Any] = {
            key: tx.text(value.strip(), f"{key} of fact {shown!r}", *_limit(tx))
            for key, value in given.items()
        }
        fields |= {"name": name, "shown": shown}
        after = duration(recheck_after, "recheck_after") if recheck_after else None
        reason = wanted_reason(tx, shown, because)
        if row is None:
            return _create(tx, fields | {"statement": statement}, reason, after, archival)
        if statement and statement != row["statement"]:
            if expected_version is None:
                raise _says_otherwise(tx, row)
            return _supersede(tx, row, fields | {"statement": statement}, reason, after, archival)
        return _amend(tx, row, fields, reason, after, archival)

    @writes
    def _verify(
        self,
        tx: Writing,
        fact: str,
        holds: bool,
        evidence: str,
        expected_version: int | None,
        check: str,
        there: lookups.Found | None,
    ) -> FactVerified:
        row = find_fact(tx, fact)
        name, shown = row["name"], row["shown"]
        tx.subject = ("fact", name)
        check_version(tx, shown, row, expected_version)
        evidence = tx.text(evidence.strip(), f"the evidence for fact {shown!r}", *_limit(tx))
        _check_verifiable(row, holds, evidence)
        if expected_version is None:
            _check_statement(tx, row)
        if row["check"] != check:
            raise BadArgument(
                f"the check of fact {shown!r} was replaced just now by "
                f"{one_line(row['agent'], 40)}: {one_line(row['check'])}",
                "Run the new one, and say what it said.",
            )
        trust = Trust.REFUTED if not holds else Trust.TRUSTED if stands(tx, name) else Trust.STALE
        recheck_at = to_text(tx.at + timedelta(seconds=row["recheck_after"]))
        values = {
            "name": name,
            "trust": trust,
            "recheck_at": recheck_at if trust is Trust.TRUSTED else None,
            "holds": holds,
            "evidence": evidence,
            "baseline": _baseline(row, there),
        }
        tx.run(_VERIFY, values)
        after = stored_fact(tx, name)
        but = ", but each of its reasons holds what fell: stale" if trust is Trust.STALE else ""
        words = f"check {'held then' if holds else 'did not hold'}{but}: {one_line(evidence)}"
        fell = [] if holds else list(falls_with(tx, name))
        tx.event("verify", words + _and_fell(fell), row_of(tx, after), version=after["version"])
        _index(tx, after)
        if trust is Trust.REFUTED:
            touched = let_fall(tx, name, fell, "was refuted")
        elif trust is Trust.TRUSTED and row["trust"] in FALLEN:
            touched = come_due(tx, name)
        else:
            touched = Touched()
        verified = trust is Trust.TRUSTED  # by this call, whether it has a session or not
        now = replace(fact_of(tx, after), here=holds, verified=verified)
        before = fact_of(tx, row) if row["held"] not in (None, int(holds)) else None
        return FactVerified(now, touched, before)

    @reads
    def _check_of(self, tx: Reading, fact: str) -> str:
        if not self.caller.project:
            return ""  # the write will say that it is not known
        return find_fact(tx, fact)["check"]

    @reads
    def _list(
        self, tx: Reading, trust: Trust | None, due: bool, limit: int, cursor: str
    ) -> FactPage:
        return list_facts(tx, trust, due, limit, cursor)

    @reads
    def _trace(self, tx: Reading, fact: str) -> FactTrace:
        row = find_fact(tx, fact)
        name = row["name"]
        falls = [one for one, _ in falls_with(tx, name)]
        up, up_count = _walk(tx, name, _premises)
        down, down_count = _walk(tx, name, _dependents, set(falls))
        threads = threads_relying(tx, [name, *falls])
        return FactTrace(
            fact=fact_of(tx, row),
            rests_on=up,
            rests_on_count=up_count,
            carries=down,
            carries_count=down_count,
            falls_count=len(falls),
            threads=threads[:MOST_NAMED],
            threads_count=len(threads),
        )


@dataclass(frozen=True, slots=True)
class _Step:
    """One fact that another one leads to, in its reason of this number."""

    name: str
    reason: int = 0
    replaced: bool = False


def _premises(tx: Reading, name: str) -> list[_Step]:
    rows = tx.all(PREMISES, {"name": name})
    return [_Step(row["premise"], row["reason"], bool(row["replaced"])) for row in rows]


def _dependents(tx: Reading, name: str) -> list[_Step]:
    return [_Step(fact) for fact in resting_on(tx, name)]


def _walk(
    tx: Reading,
    name: str,
    steps: Callable[[Reading, str], list[_Step]],
    falls: Collection[str] = (),
) -> tuple[list[Traced], int]:
    """All that can be reached from a fact, what is reached from each below it; and its number."""
    seen = {name}
    lines: list[Traced] = []
    waiting = [(step, 1) for step in reversed(steps(tx, name))]
    while waiting and len(seen) <= _MOST_COUNTED:
        step, depth = waiting.pop()
        here = step.name
        if len(lines) < _MOST_TRACED:
            row = stored_fact(tx, here)
            is_fallen = here in falls or row["trust"] in FALLEN
            fact, is_seen = fact_of(tx, row), here in seen
            lines.append(Traced(fact, depth, step.reason, is_seen, is_fallen, step.replaced))
        if here not in seen:
            seen.add(here)
            waiting += [(one, depth + 1) for one in reversed(steps(tx, here))]
    return lines, len(seen) - 1


def parse_trust(text: str) -> Trust:
    """A trust in any case.

    Raises:
        BadArgument: there is no such trust.
    """
    try:
        return Trust(text.strip().lower())
    except ValueError:
        raise BadArgument(
            f"trust is {text[:40]!r}", f"It is one of {', '.join(t.value for t in Trust)}."
        ) from None


def _limit(tx: Writing) -> tuple[int, str]:
    return tx.limits.text, _SHORTEN


def _create(
    tx: Writing,
    fields: dict[str, Any],
    reason: Sequence[str],
    after: timedelta | None,
    archival: bool,
) -> FactRecorded:
    tx.run(_INSERT, fields | _begun(tx, after or _DEFAULT_RECHECK, archival))
    if reason:
        add_reason(tx, fields["name"], 1, reason)
    row = _recorded(tx, fields["name"], "record", believed(fields))
    return FactRecorded(fact_of(tx, row))


def _begun(tx: Writing, after: timedelta, archival: bool) -> dict[str, Any]:
    """The trust of a statement that nobody has checked."""
    return {
        "trust": Trust.ARCHIVAL if archival else Trust.PROVISIONAL,
        "recheck_after": int(after.total_seconds()),
        "recheck_at": None if archival else to_text(tx.at + after),
    }


def _and_fell(fell: Sequence[object]) -> str:
    return f" · {len(fell):,} {'fact' if len(fell) == 1 else 'facts'} fell with it" if fell else ""


def _supersede(
    tx: Writing,
    row: Row,
    fields: dict[str, Any],
    reason: Sequence[str],
    after: timedelta | None,
    archival: bool,
) -> FactRecorded:
    name = row["name"]
    kept = timedelta(seconds=row["recheck_after"])
    for key in ("check", "source"):
        fields[key] = fields[key] or row[key]
    fell = list(falls_with(tx, name))
    tx.run(_SUPERSEDE, fields | _begun(tx, after or kept, archival))
    drop_reasons(tx, name)
    if reason:
        add_reason(tx, name, 1, reason)
    old = quoted(one_line(row["statement"], 120))
    words = f"{believed(fields)} · replaces ({row['trust']}): {old}"
    new = _recorded(tx, name, "supersede", words + _and_fell(fell))
    touched = let_fall(tx, name, fell, "says something else now")
    return FactRecorded(
        fact_of(tx, new), touched, superseded=row["statement"], was=Trust(row["trust"])
    )


def _amend(
    tx: Writing,
    row: Row,
    fields: dict[str, Any],
    reason: Sequence[str],
    after: timedelta | None,
    archival: bool,
) -> FactRecorded:
    """Change what is given of a fact that says the same."""
    name, trust = row["name"], Trust(row["trust"])
    if archival and trust in FALLEN:
        raise BadArgument(
            f"fact {row['shown']!r} is {trust}, so it can't be kept as true then",
            "Record what is true under it, or under another name.",
        )
    for key in ("check", "source"):
        fields[key] = fields[key] or row[key]
    reasons, last = reasons_of(tx, name)
    is_new = bool(reason) and set(reason) not in reasons
    if is_new and len(reasons) >= _MOST_REASONS:
        raise BadArgument(
            f"fact {row['shown']!r} has {len(reasons)} reasons; at most {_MOST_REASONS}",
            "Another one adds nothing.",
        )
    fields |= _amended(tx.now, row, fields["check"] != row["check"], after, archival)
    columns = ("check", "source", "trust", "recheck_after", "recheck_at")
    changed = [column for column in columns if fields[column] != row[column]]
    if not changed and not is_new:
        return FactRecorded(fact_of(tx, row), unchanged=True)
    tx.run(_UPDATE, fields)
    words = [_check_words(row, fields)] if "check" in changed else []
    if others := [column for column in changed if column != "check"]:
        words.append(f"changed {', '.join(others)}")
    if is_new:
        add_reason(tx, name, last + 1, reason)
        names = ", ".join(one_line(stored_fact(tx, one)["shown"], 40) for one in reason[:5])
        words.append(f"{'another' if last else 'a'} reason: {names}")
    _recorded(tx, name, "record", " · ".join(words))
    if is_new:
        comes_due(tx, name, "it has a reason that stands")
    demoted = trust is Trust.TRUSTED and fields["trust"] == Trust.PROVISIONAL
    return FactRecorded(fact_of(tx, stored_fact(tx, name)), demoted=demoted)


def _check_words(row: Row, fields: Mapping[str, Any]) -> str:
    was = one_line(row["check"], 100) if row["check"] else "none"
    return f"check: {one_line(fields['check'], 100)} (was: {was})"


def _amended(
    now: str, row: Row, new_check: bool, after: timedelta | None, archival: bool
) -> dict[str, Any]:
    """Trust and times of a fact that says the same.

    What a check said is no word about another check; but what was refuted stays so, with what
    refuted it.
    """
    trust = Trust(row["trust"])
    if archival:
        trust = Trust.ARCHIVAL
    elif new_check and trust is Trust.TRUSTED:
        trust = Trust.PROVISIONAL
    seconds = row["recheck_after"] if after is None else int(after.total_seconds())
    recheck_at = None if trust is Trust.ARCHIVAL else row["recheck_at"]
    is_due = recheck_at is not None and recheck_at <= now  # and stays so until it is verified
    live = trust in (Trust.TRUSTED, Trust.PROVISIONAL) and not is_due
    if live and seconds != row["recheck_after"]:
        since = from_text(row["verified_at"] or row["stated_at"])
        recheck_at = to_text(since + timedelta(seconds=seconds))
    return {
        "trust": trust.value,
        "recheck_after": seconds,
        "recheck_at": recheck_at,
        "new_check": new_check,
        "forget": new_check and trust is not Trust.REFUTED,
    }


def _recorded(tx: Writing, name: str, operation: str, words: str) -> Row:
    row = stored_fact(tx, name)
    tx.event(operation, words, row_of(tx, row), version=row["version"])
    _index(tx, row)
    return row


def _index(tx: Writing, row: Row) -> None:
    documents.put(tx, "fact", row["name"], row["shown"], text_of(row), row["changed"])


def _says_otherwise(tx: Reading, row: Row) -> Conflict:
    verify = f"fact_verify(fact={quoted(row['shown'])}, holds=false, evidence=…)"
    refute = "" if row["held"] == 0 else f"If that no longer holds, say so with {verify}. "
    return Conflict(
        f"fact {row['shown']!r} says something else already ({row['trust']}, recorded "
        f"{ago(from_text(row['stated_at']), tx.at)} by {one_line(row['stater_agent'], 40)}; "
        f"{believed(row)})",
        f"{refute}To replace it, record again with expected_version={row['version']}; the old "
        "statement stays in history.",
    )


def _check_statement(tx: Writing, row: Row) -> None:
    """Whether this session can know the statement that it verifies.

    What another one put in the place of the old one, since this session last wrote anything, it may
    not have seen.
    """
    session = tx.caller.actor.session
    if not row["replaces"] or not session or row["stater_session"] == session:
        return
    when = {"session": session, "stated": row["stated"]}
    if tx.one(_WROTE_BEFORE, when) is not None and tx.one(_WROTE_SINCE, when) is None:
        raise VersionConflict(
            f"fact {row['shown']!r} says something else since "
            f"{ago(from_text(row['stated_at']), tx.at)} (by {one_line(row['stater_agent'], 40)}; "
            f"{believed(row)}), and this session has written nothing since",
            "If it is this that you checked, say it again with "
            f"expected_version={row['version']}; nothing was saved.",
        )


def _baseline(row: Row, there: lookups.Found | None) -> str | None:
    """What to compare with later: the last that the server could see of this check."""
    if there is None:
        return None
    return (
        row["baseline"] if there.state == "unknown" and row["baseline"] else lookups.to_json(there)
    )


def _check_verifiable(row: Row, holds: bool, evidence: str) -> None:
    shown = row["shown"]
    if not evidence:
        check = f" ({one_line(row['check'])})" if row["check"] else ""
        raise EvidenceRequired(
            f"fact {shown!r} is not verified without evidence",
            f"Run its check{check} and give as evidence what it printed, shortened, or a link.",
        )
    if holds and not row["check"]:
        raise EvidenceRequired(
            f"fact {shown!r} has no check, so none can have held",
            f'Record one first: fact_record(fact={quoted(shown)}, check="…"), run it, and verify '
            "again.",
        )
