"""Facts: what is believed, how to check it, why, and what falls when it does not hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from mcp_state import lookups
from mcp_state.calls import argument, asked, call, either, meant
from mcp_state.errors import BadArgument, EvidenceRequired, VersionConflict
from mcp_state.models import (
    FALLEN,
    FactPage,
    FactRecorded,
    FactTrace,
    FactVerified,
    Touched,
    Trust,
)
from mcp_state.store.fact_recording import record_fact
from mcp_state.store.fact_rows import (
    believed,
    fact_of,
    find_fact,
    found_for,
    list_facts,
    looked_up,
    with_found,
)
from mcp_state.store.fact_rules import (
    and_fell,
    check_version,
    come_due,
    fact_text,
    falls_with,
    let_fall,
    recorded,
    stands,
)
from mcp_state.store.fact_traces import trace_of
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.text import one_line
from mcp_state.store.transaction import Reading, Row, Writing
from mcp_state.times import to_text

_VERIFY = """
    UPDATE facts SET
        version = version + 1, changed = :seq, changed_at = :now, changed_by = :actor,
        trust = :trust, trust_at = CASE WHEN trust = :trust THEN trust_at ELSE :now END,
        recheck_at = :recheck_at,
        verified = :seq, verified_at = :now, verified_by = :actor, held = :holds,
        evidence = :evidence, baseline = :baseline
    WHERE project = :project AND name = :name
"""
_LAST_SEEN = """
    SELECT row FROM event_rows
    WHERE project = :project AND kind = 'fact' AND name = :name AND operation <> 'refused'
        AND (at <= :earlier OR (
            session = :session AND operation NOT IN ('fall', 'due') AND (
                session <> '' OR (agent, client, worktree) = (:agent, :client, :worktree)
            )
        ))
    ORDER BY seq DESC LIMIT 1
"""
_FIRST = """
    SELECT row FROM events
    WHERE project = :project AND kind = 'fact' AND name = :name AND operation <> 'refused'
    ORDER BY seq LIMIT 1
"""
_JUST_NOW = timedelta(hours=1)
"""How long it may take to run a check: what others change meanwhile may not have been seen."""


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
            BadArgument: a new fact has no statement; a reason runs in a circle, has fallen, or is
                one too many; what fell is to be kept as true then.
            NotFound: a fact of `because` does not exist.
            Conflict: it says something else already, and no version was given.
            VersionConflict: it moved on since `expected_version` (0: it must not exist).
            OverLimit: a text is too long.
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
                replaced its statement or its check within the last hour.
            OverLimit: the evidence is too long.
        """
        check = await self._check_of(fact)
        target = lookups.target_of(check)
        there = await lookups.look_up(self.worktree, [target]) if target else {}
        verified = await self._verify(
            fact, holds, evidence, expected_version, check, there.get(target)
        )
        premises = [premise for reason in verified.fact.reasons for premise in reason]
        found = {**await found_for(self.worktree, (), premises), **there}
        return replace(verified, fact=with_found(verified.fact, found))

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
            BadArgument: there is no such trust, what is due is asked for as trusted, or the cursor
                is none of ours.
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
        return record_fact(
            tx, fact, statement, given, because, recheck_after, archival, expected_version
        )

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
        if holds not in (True, False):
            raise BadArgument(f"holds is {holds!r}", "It is True or False; nothing was saved.")
        row = find_fact(tx, fact)
        name, shown = row["name"], row["shown"]
        tx.subject = ("fact", name)
        check_version(tx, shown, row, expected_version)
        evidence = fact_text(tx, evidence, f"the evidence for fact {shown!r}")
        _check_verifiable(row, holds, evidence)
        if expected_version is None:
            _check_seen(tx, row)
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
            "baseline": None if there is None else lookups.to_json(there),
        }
        tx.run(_VERIFY, values)
        but = ", but each of its reasons holds what fell: stale" if trust is Trust.STALE else ""
        words = f"check {'held then' if holds else 'did not hold'}{but}: {one_line(evidence)}"
        fell = [] if holds else list(falls_with(tx, name))
        after = recorded(tx, name, "verify", words + and_fell(fell))
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
        return trace_of(tx, find_fact(tx, fact))


def parse_trust(text: str) -> Trust:
    """A trust in any case.

    Raises:
        BadArgument: there is no such trust.
    """
    try:
        return Trust(text.strip().lower())
    except ValueError:
        raise BadArgument(
            f"trust is {text[:40]!r}",
            f"{meant(text, Trust)}It is one of {', '.join(t.value for t in Trust)}.",
        ) from None


def _check_seen(tx: Writing, row: Row) -> None:
    """Whether the evidence can be about this statement and this check.

    Another session may have put another one in its place while the check of the old one ran.
    """
    earlier = to_text(tx.at - _JUST_NOW)
    me = tx.caller.actor  # commands in a shell have no session: theirs is known by who and where
    at = {
        "name": row["name"],
        "earlier": earlier,
        "session": me.session,
        "agent": me.agent,
        "client": me.client,
        "worktree": tx.caller.worktree,
    }
    seen = json.loads(tx.scalar(_LAST_SEEN, at) or tx.scalar(_FIRST, at))
    other = [key for key in ("statement", "check") if seen[key] != row[key]]
    if other:
        raise VersionConflict(
            f"another session changed the {' and the '.join(other)} of fact {row['shown']!r} a "
            f"short time ago ({believed(row)})",
            "If it is this that you have checked, say it again with "
            f"{argument('expected_version', row['version'])}; nothing was saved.",
        )


def _check_verifiable(row: Row, holds: bool, evidence: str) -> None:
    shown = row["shown"]
    if not evidence:
        check = f" ({one_line(row['check'])})" if row["check"] else ""
        raise EvidenceRequired(
            f"fact {shown!r} is not verified without evidence",
            f"Run its check{check} and give "
            f"{either('as evidence', asked('evidence') + ' with')} what it printed, shortened, "
            "or a link.",
        )
    if holds and not row["check"]:
        raise EvidenceRequired(
            f"fact {shown!r} has no check, so none can have held",
            f"Record one first: {call('fact_record', fact=shown, check='…')}, run it, and verify "
            "again.",
        )
