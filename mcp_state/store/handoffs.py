"""Handoff: the work is offered to another agent under a key, and taken once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcp_state.calls import tool
from mcp_state.errors import BadArgument, Conflict, NotFound
from mcp_state.models import (
    Actor,
    Fact,
    Handoff,
    HandoffMade,
    HandoffTaken,
    RunStatus,
    Status,
    Thread,
    Trust,
)
from mcp_state.store.fact_rows import carrying, list_facts, looked_up
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.text import fold, one_line
from mcp_state.store.thread_rows import list_threads, thread_of
from mcp_state.store.threads import pass_lease
from mcp_state.store.transaction import Reading, Row, Writing, actor_of, time_of
from mcp_state.times import ago, from_text

_INSERT = """
    INSERT INTO handoffs (project, key, created, created_at, created_by, recipient, note)
    VALUES (:project, :key, :seq, :now, :actor, :recipient, :note)
"""
_ONE = "SELECT * FROM handoff_rows WHERE project = :project AND key = :key"
_OPEN = """
    SELECT * FROM handoff_rows WHERE project = :project AND accepted_at IS NULL
    ORDER BY created DESC LIMIT :limit
"""
_LAST = """
    SELECT * FROM handoff_rows WHERE project = :project ORDER BY created DESC LIMIT :limit
"""
_EXPORTED = "UPDATE handoffs SET exported_at = :now WHERE project = :project AND key = :key"
_ACCEPT = """
    UPDATE handoffs SET accepted_at = :now, accepted_by = :actor
    WHERE project = :project AND key = :key
"""
_HELD_BY = """
    SELECT * FROM thread_rows
    WHERE project = :project AND lease_until > :now AND lease_over = 0
        AND holder_session = :session AND holder_agent = :agent
    ORDER BY created LIMIT 100
"""
_CHECKS = 20
_LOOKED_AT = 100
"""Threads of each status that are looked at for a check."""
_SHORTEN = "Shorten it; what is long belongs in memory, the journal or a blob. Nothing was saved."


class Handoffs(Noun):
    """What is offered to other agents of one project."""

    async def create(self, note: str, *, to: str = "") -> HandoffMade:
        """Offer all of the project's work to whoever accepts the key; `to` says who is meant.

        Raises:
            BadArgument: there is no note.
            OverLimit: the note is longer than an entry may be.
        """
        made = await self._create(note, to)
        return replace(made, facts=await looked_up(made.facts, self.worktree))

    async def accept(self, key: str) -> HandoffTaken:
        """Take the work over; leases that the giver's session still holds pass to the caller.

        The same session again gets the same answer, marked `repeated`.

        Raises:
            NotFound: there is no such handoff.
            Conflict: somebody has taken it.
        """
        taken = await self._accept(key)
        return replace(taken, facts=await looked_up(taken.facts, self.worktree))

    @writes
    def _create(self, tx: Writing, note: str, to: str) -> HandoffMade:
        if not note.strip():
            raise BadArgument("note is empty", "Say what the next one must know and do first.")
        key = tx.clock.new_id("h-")
        tx.subject = ("handoff", key)
        note = tx.text(note, "the note", tx.limits.entry, _SHORTEN)
        recipient = tx.name(to, "to") if to.strip() else ""
        tx.run(_INSERT, {"key": key, "recipient": recipient, "note": note})
        row = _row(tx, key)
        for_whom = f" for {recipient}" if recipient else ""
        tx.event("create", f"offered{for_whom}: {one_line(note, 120)}", row_of(row))
        totals = tx.totals()
        return HandoffMade(
            handoff=handoff_of(row),
            threads=sum(totals.threads.get(s, 0) for s in ("active", "watching", "blocked")),
            runs=totals.runs.get(RunStatus.OPEN, 0),
            blocks=totals.memory,
            checks=checks(tx),
            facts=_facts_to_check(tx),
            all_facts=totals.all_facts,
        )

    @writes
    def _accept(self, tx: Writing, key: str) -> HandoffTaken:
        row = _row(tx, key)
        key = row["key"]
        tx.subject = ("handoff", key)
        if row["accepted_at"] is not None:
            taken = handoff_of(row)
            me = tx.caller.actor
            if taken.accepted_by != me or not me.session:
                raise _taken(tx, row)
            mine = {"session": me.session, "agent": me.agent}
            leases = [thread_of(tx, thread) for thread in tx.all(_HELD_BY, mine)]
            return HandoffTaken(taken, checks(tx), leases, _facts_to_check(tx), repeated=True)
        tx.run(_ACCEPT, {"key": key})
        row = _row(tx, key)
        tx.event("accept", f"taken over from {one_line(row['agent'], 40)}", row_of(row))
        held = tx.all(_HELD_BY, {"session": row["session"], "agent": row["agent"]})
        leases = [thread_of(tx, pass_lease(tx, thread)) for thread in held]
        return HandoffTaken(handoff_of(row), checks(tx), leases, _facts_to_check(tx))

    @reads
    def offered(self, tx: Reading, key: str) -> Handoff:
        """An offer that nobody has taken.

        Raises:
            NotFound: there is no such handoff.
            Conflict: somebody has taken it.
        """
        row = _row(tx, key)
        if row["accepted_at"] is not None:
            raise _taken(tx, row)
        return handoff_of(row)

    @writes
    def export(self, tx: Writing, key: str) -> Handoff:
        """Note that a file for another machine is made of it.

        Raises:
            NotFound: there is no such handoff.
        """
        row = _row(tx, key)
        tx.subject = ("handoff", row["key"])
        tx.run(_EXPORTED, {"key": row["key"]})
        row = _row(tx, row["key"])
        for_whom = f" for {row['recipient']}" if row["recipient"] else ""
        tx.event("export", f"handed over in a file{for_whom}", row_of(row))
        return handoff_of(row)


def _taken(tx: Reading, row: Row) -> Conflict:
    when = ago(from_text(row["accepted_at"]), tx.at)
    return Conflict(
        f"handoff {row['key']} was taken by {one_line(row['taker_agent'], 40)} {when}",
        f"Ask them, or look at what is free: {tool('thread_list')}, {tool('thread_claim')} without "
        "a thread.",
    )


def _row(tx: Reading, key: str) -> Row:
    row = tx.one(_ONE, {"key": fold(key)})
    if row is None:
        known = [r["key"] for r in tx.all(_LAST, {"limit": 5})]
        raise NotFound.named(
            "handoff",
            key.strip(),
            known,
            f"{tool('handoff_create')} makes one; {tool('orient')} shows the open ones.",
        )
    return row


def checks(tx: Reading) -> Sequence[Thread]:
    """The threads that say how to check them, in the order to look: what is due first."""
    threads = [
        *list_threads(tx, None, True, _LOOKED_AT, "").threads,
        *(
            thread
            for status in (Status.ACTIVE, Status.WATCHING, Status.BLOCKED)
            for thread in list_threads(tx, status, False, _LOOKED_AT, "").threads
            if not thread.due
        ),
    ]
    return [thread for thread in threads if thread.check][:_CHECKS]


def _facts_to_check(tx: Reading) -> Sequence[Fact]:
    """The facts that have a check to run, what open threads rest on first.

    Whoever takes over has verified none of them.
    """
    threads = list_threads(tx, None, False, _LOOKED_AT, "").threads
    listed = list_facts(tx, None, False, _LOOKED_AT, "").facts
    found = {fact.name: fact for fact in [*carrying(tx, threads, _LOOKED_AT), *listed]}
    live = [fact for fact in found.values() if fact.trust is not Trust.ARCHIVAL and fact.check]
    return [replace(fact, verified=False) for fact in live[:_CHECKS]]


def open_handoffs(tx: Reading, limit: int) -> list[Handoff]:
    """The newest offers that nobody has taken, newest first."""
    return [handoff_of(row) for row in tx.all(_OPEN, {"limit": limit})]


def last_handoffs(tx: Reading, limit: int) -> list[Handoff]:
    """The newest handoffs, newest first."""
    return [handoff_of(row) for row in tx.all(_LAST, {"limit": limit})]


def handoff_of(row: Row) -> Handoff:
    """The model of a row."""
    taker = Actor(row["taker_agent"], row["taker_client"], row["taker_session"])
    return Handoff(
        key=row["key"],
        created_at=from_text(row["created_at"]),
        created_by=actor_of(row),
        recipient=row["recipient"],
        note=row["note"],
        event=row["created"],
        exported_at=time_of(row["exported_at"]),
        accepted_at=time_of(row["accepted_at"]),
        accepted_by=taker if row["accepted_at"] is not None else None,
    )


def row_of(row: Row) -> Mapping[str, Any]:
    """What the event keeps of a handoff."""
    return {
        "key": row["key"],
        "recipient": row["recipient"],
        "note": row["note"],
        "exported_at": row["exported_at"],
        "accepted_at": row["accepted_at"],
        "accepted_by": row["taker_agent"],
    }
