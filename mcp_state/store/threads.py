"""The queue: lines of work, each with a status, that are claimed, checked and finished."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from mcp_state.calls import argument
from mcp_state.errors import BadArgument, IllegalTransition, LeaseLost
from mcp_state.models import (
    OPEN,
    Checked,
    NothingToClaim,
    Status,
    Thread,
    ThreadDetail,
    ThreadPage,
)
from mcp_state.store import documents
from mcp_state.store.events import last_events_of
from mcp_state.store.fact_rows import carrying, fact_of, found_for, stored_fact, with_found
from mcp_state.store.journal import tail
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.run_rows import named_run
from mcp_state.store.text import fold, one_line, several
from mcp_state.store.thread_rows import (
    CRITERIA,
    NEEDED,
    THREAD,
    criterion_of,
    find_criterion,
    find_row,
    lease_of,
    list_threads,
    needs_of,
    relies_of,
    row_of,
    stored_row,
    text_of,
    thread_of,
    thread_with_found,
)
from mcp_state.store.thread_rules import (
    SHORTEN,
    Changes,
    check_lease,
    check_version,
    dropped_facts,
    held_by,
    merged,
    new_criteria,
    reopening,
    same,
    summary,
    wanted_facts,
    wanted_needs,
)
from mcp_state.store.transaction import Reading, Row, Writing
from mcp_state.times import duration, span, to_text

_MOST_UNDER = 60
_INSERT = """
    INSERT INTO threads (
        project, name, shown, created, created_at, title, status, status_at, changed, changed_at,
        changed_by, version, priority, next_action, waiting_on, recheck_at, "check", evidence,
        note, places
    ) VALUES (
        :project, :name, :shown, :seq, :now, :title, :status, :now, :seq, :now,
        :actor, 1, :priority, :next_action, :waiting_on, :recheck_at, :check, :evidence,
        :note, :places
    )
"""
_UPDATE = """
    UPDATE threads SET
        title = :title, status = :status, status_at = :status_at, changed = :seq,
        changed_at = :now, changed_by = :actor, version = version + 1, priority = :priority,
        next_action = :next_action, waiting_on = :waiting_on, recheck_at = :recheck_at,
        "check" = :check, evidence = :evidence, note = :note, places = :places
    WHERE project = :project AND name = :name
"""
_NEEDED_BY = """
    SELECT shown FROM needs JOIN threads ON threads.project = needs.project AND name = thread
    WHERE needs.project = :project AND needed = :name ORDER BY created LIMIT 20
"""
_ADD_NEED = "INSERT INTO needs (project, thread, needed) VALUES (:project, :name, :other)"
_DROP_NEED = """
    DELETE FROM needs WHERE project = :project AND thread = :name AND needed = :other
"""
_ADD_FACT = "INSERT INTO relies (project, thread, fact) VALUES (:project, :name, :other)"
_DROP_FACT = "DELETE FROM relies WHERE project = :project AND thread = :name AND fact = :other"
_ADD_CRITERION = """
    INSERT INTO criteria (project, thread, number, text)
    VALUES (:project, :name, :number, :text)
"""
_MARK = """
    UPDATE criteria SET passes = :passes, evidence = :evidence, checked_at = :now,
        checked_by = :actor
    WHERE project = :project AND thread = :name AND number = :number
"""
_TOUCH = """
    UPDATE threads SET version = version + 1, changed = :seq, changed_at = :now,
        changed_by = :actor
    WHERE project = :project AND name = :name
"""
_LEASE = """
    UPDATE threads SET lease_token = :token, lease_holder = :holder, lease_until = :until,
        lease_over = 0
    WHERE project = :project AND name = :name
"""
_BEST = """
    SELECT * FROM thread_rows
    WHERE project = :project AND status = 'active' AND open_needs = 0
        AND (lease_until IS NULL OR lease_over = 1 OR lease_until <= :now)
    ORDER BY priority, created LIMIT 1
"""
_UNCLAIMABLE = """
    SELECT count(*) FILTER (WHERE open_needs > 0) AS waiting, count(*) AS active
    FROM (SELECT open_needs FROM threads
          WHERE project = :project AND status = 'active' LIMIT 1000)
"""


class Threads(Noun):
    """The queue of one project."""

    async def list(
        self,
        *,
        status: Status | None = None,
        due: bool = False,
        limit: int = 20,
        cursor: str = "",
    ) -> ThreadPage:
        """Open threads in the order to work on them: due, then active by priority, then the rest.

        `status` narrows to one status (done and dropped: newest first); `due` to what is due.
        `cursor` is that of the page before.

        Raises:
            BadArgument: the cursor is none of ours.
        """
        page = await self._list(status, due, limit, cursor)
        found = await found_for(self.worktree, (), (p for t in page.threads for p in t.relies_on))
        return replace(page, threads=[thread_with_found(one, found) for one in page.threads])

    @reads
    def _list(
        self, tx: Reading, status: Status | None, due: bool, limit: int, cursor: str
    ) -> ThreadPage:
        return list_threads(tx, status, due, limit, cursor)

    async def get(self, thread: str) -> ThreadDetail:
        """All of one thread, with its last journal entries and changes.

        The facts that it relies on come with what the addresses of their checks lead to now.

        Raises:
            NotFound: there is no such thread.
        """
        detail = await self._get(thread)
        found = await found_for(self.worktree, [*detail.facts, *detail.under])
        return replace(
            detail,
            facts=[with_found(fact, found) for fact in detail.facts],
            under=[with_found(fact, found) for fact in detail.under],
            thread=thread_with_found(detail.thread, found),
        )

    @reads
    def _get(self, tx: Reading, thread: str) -> ThreadDetail:
        row = find_row(tx, thread)
        name = row["name"]
        events, earlier = last_events_of(tx, "thread", name, 10)
        needed = tx.all(NEEDED, {"name": name})
        facts = [fact_of(tx, stored_fact(tx, fact)) for fact in sorted(relies_of(tx, name))]
        names = {fact.name for fact in facts}
        itself = thread_of(tx, row)
        return ThreadDetail(
            thread=itself,
            criteria=[criterion_of(c) for c in tx.all(CRITERIA, {"name": name})],
            history=events,
            earlier=earlier,
            journal=tail(tx, 5, thread=name).entries,
            needed_by=[r["shown"] for r in tx.all(_NEEDED_BY, {"name": name})],
            unfinished=[r["shown"] for r in needed if r["status"] != Status.DONE],
            facts=facts,
            under=[fact for fact in carrying(tx, [itself], _MOST_UNDER) if fact.name not in names],
        )

    async def set(
        self,
        thread: str,
        *,
        run: str = "",
        expected_version: int | None = None,
        lease_token: int | None = None,
        **changes: Unpack[Changes],
    ) -> Thread:
        """Create a thread, or change what is given of it. `run` names the run it is done for.

        Raises:
            BadArgument: fields contradict each other or the status.
            NotFound: a dependency, a fact or the run does not exist.
            VersionConflict: it moved on since `expected_version` (0: it must not exist).
            Held: somebody holds it and no token was given.
            LeaseLost: the token is not the current one.
            IllegalTransition: the status cannot change like that.
            EvidenceRequired: done without proof, with criteria that do not pass, or relying on
                a fact that is refuted or stale.
            OverLimit: a text is too long.
        """
        stored = await self._set(thread, run, expected_version, lease_token, **changes)
        return await self._looked_up(stored)

    async def _looked_up(self, thread: Thread) -> Thread:
        found = await found_for(self.worktree, (), thread.relies_on)
        return thread_with_found(thread, found)

    @writes
    def _set(
        self,
        tx: Writing,
        thread: str,
        run: str,
        expected_version: int | None,
        lease_token: int | None,
        **changes: Unpack[Changes],
    ) -> Thread:
        return set_thread(tx, thread, run, expected_version, lease_token, **changes)

    async def claim(
        self, thread: str = "", *, lease: str = "30m", lease_token: int | None = None
    ) -> Thread | NothingToClaim:
        """Take, or with the current token extend, a lease; without `thread`, of the best one.

        The best is the first active thread, by priority and age, whose dependencies are done and
        which nobody holds.

        Raises:
            NotFound: there is no such thread.
            Held: somebody holds it, until when, and what they did last.
            LeaseLost: the token is not the current one.
            IllegalTransition: the thread is done or dropped.
        """
        claimed = await self._claim(thread, lease, lease_token)
        return await self._looked_up(claimed) if isinstance(claimed, Thread) else claimed

    @writes
    def _claim(
        self, tx: Writing, thread: str, lease: str, lease_token: int | None
    ) -> Thread | NothingToClaim:
        length = duration(lease, "lease")
        if not thread:
            if lease_token:
                raise BadArgument(
                    f"{argument('lease_token')} came without a thread", "Name the thread to extend."
                )
            row = tx.one(_BEST)
            if row is None:
                counts = tx.one(_UNCLAIMABLE)
                assert counts is not None
                held = counts["active"] - counts["waiting"]
                return NothingToClaim(counts["active"], held, counts["waiting"])
        else:
            row = find_row(tx, thread)
        name, shown = row["name"], row["shown"]
        tx.subject = ("thread", name)
        if row["status"] not in OPEN:
            raise IllegalTransition(
                f"thread {shown!r} is {row['status']}, there is nothing to claim",
                f"Reopen it with {reopening(shown)}",
            )
        if lease_token:
            check_lease(tx, row, lease_token)
            token, word = lease_token, "extended"
        elif (current := lease_of(tx, row)) is not None:
            raise held_by(tx, shown, name, current)
        else:
            token, word = tx.seq, "claimed"
        until = tx.at + length
        tx.run(_LEASE, {"name": name, "token": token, "holder": tx.actor, "until": to_text(until)})
        stored = stored_row(tx, name)
        tx.event(f"lease_{word}", f"{word} for {span(length.total_seconds())}", row_of(tx, stored))
        return thread_of(tx, stored)

    @writes
    def release(
        self, tx: Writing, thread: str, *, lease_token: int | None = None, force: bool = False
    ) -> Thread:
        """Give a lease back; `force` breaks it, for people: with a token only the one it is for.

        Raises:
            NotFound: there is no such thread.
            Held: somebody holds it and no token was given.
            LeaseLost: the token is not the current one.
        """
        row = find_row(tx, thread)
        tx.subject = ("thread", row["name"])
        if lease_token or not force:
            check_lease(tx, row, lease_token)
        broken = lease_of(tx, row)
        if broken is None:
            return thread_of(tx, row, unchanged=True)
        token = tx.seq if force else row["lease_token"]
        tx.run(_LEASE, {"name": row["name"], "token": token, "holder": None, "until": None})
        stored = stored_row(tx, row["name"])
        holder = one_line(broken.holder.agent, 40)
        word = f"lease of {holder} broken by a person" if force else "released"
        tx.event("lease_broken" if force else "lease_released", word, row_of(tx, stored))
        return thread_of(tx, stored)

    @writes
    def check(
        self,
        tx: Writing,
        thread: str,
        criterion: str,
        passes: bool,
        *,
        evidence: str = "",
        lease_token: int | None = None,
    ) -> Checked:
        """Mark one acceptance criterion, named by its number or its text.

        Raises:
            NotFound: there is no such thread or criterion.
            Held: somebody holds the thread and no token was given.
            LeaseLost: the token is not the current one.
            IllegalTransition: a done thread cannot lose a criterion; reopen it first.
        """
        return check_criterion(tx, thread, criterion, passes, evidence, lease_token)


def set_thread(
    tx: Writing,
    thread: str,
    run: str = "",
    expected_version: int | None = None,
    lease_token: int | None = None,
    **changes: Unpack[Changes],
) -> Thread:
    """Do what `Threads.set` describes."""
    shown = tx.name(thread, "thread")
    name = fold(shown)
    tx.subject = ("thread", name)
    tx.of_run = named_run(tx, run) or None
    row = tx.one(THREAD, {"name": name})
    if row is not None:
        shown = row["shown"]
    check_version(tx, shown, row, expected_version)
    if row is not None:
        check_lease(tx, row, lease_token)
    elif lease_token:
        raise LeaseLost(
            f"thread {shown!r} does not exist, so nobody holds it",
            f"Check the name, or create it without a {argument('lease_token')}.",
        )
    fields = merged(tx, shown, row, changes)
    fields |= {"name": name, "shown": shown}
    needs = wanted_needs(tx, shown, name, changes)
    relies = wanted_facts(tx, shown, name, changes)
    criteria = new_criteria(tx, shown, row, several(changes.get("criteria")))
    links = [
        link for link, new in (("depends_on", needs), ("relies_on", relies)) if new is not None
    ]
    if row is not None and not links and not criteria and same(row, fields):
        return thread_of(tx, row, unchanged=True)
    dropped = dropped_facts(tx, name, relies) if relies is not None else ""
    tx.run(_INSERT if row is None else _UPDATE, fields)
    if needs is not None:
        _set_links(tx, name, needs_of(tx, name), needs, _ADD_NEED, _DROP_NEED)
    if relies is not None:
        _set_links(tx, name, relies_of(tx, name), relies, _ADD_FACT, _DROP_FACT)
    for number, text in criteria:
        tx.run(_ADD_CRITERION, {"name": name, "number": number, "text": text})
    if fields["status"] not in OPEN and row is not None:
        token = row["lease_token"]
        tx.run(_LEASE, {"name": name, "token": token, "holder": None, "until": None})
    stored = stored_row(tx, name)
    after = row_of(tx, stored)
    words = summary(row, stored, len(criteria), links, dropped)
    tx.event("set" if row is not None else "create", words, after, version=after["version"])
    _index(tx, stored)
    return thread_of(tx, stored)


def check_criterion(
    tx: Writing,
    thread: str,
    criterion: str,
    passes: bool,
    evidence: str = "",
    lease_token: int | None = None,
) -> Checked:
    """Do what `Threads.check` describes."""
    row = find_row(tx, thread)
    name, shown = row["name"], row["shown"]
    tx.subject = ("thread", name)
    check_lease(tx, row, lease_token)
    found = find_criterion(tx, shown, name, criterion)
    if row["status"] == Status.DONE and not passes:
        raise IllegalTransition(
            f"thread {shown!r} is done; a criterion of it cannot fail",
            f"Reopen it first: {reopening(shown)}",
        )
    evidence = tx.text(evidence, "evidence", tx.limits.text, SHORTEN)
    tx.run(
        _MARK,
        {"name": name, "number": found.number, "passes": passes, "evidence": evidence},
    )
    tx.run(_TOUCH, {"name": name})
    stored = stored_row(tx, name)
    score = f"{stored['passing']}/{stored['criteria']} pass"
    word = "passes" if passes else "does not pass"
    proof = f" (evidence: {' '.join(evidence.split())})" if evidence else ""
    words = f"criterion {found.number} {word}, {score}{proof}"
    after = row_of(tx, stored)
    tx.event("check", words, after, version=after["version"])
    _index(tx, stored)
    marked = criterion_of(tx.all(CRITERIA, {"name": name})[found.number - 1])
    return Checked(shown, marked, stored["passing"], stored["criteria"])


def pass_lease(tx: Writing, row: Row) -> Row:
    """Give a held thread to the caller until the same time, under a new token."""
    name = row["name"]
    lease = {"name": name, "token": tx.seq, "holder": tx.actor, "until": row["lease_until"]}
    tx.run(_LEASE, lease)
    stored = stored_row(tx, name)
    words = f"passed on by {one_line(row['holder_agent'], 40)}"
    tx.event("lease_claimed", words, row_of(tx, stored), subject=("thread", name))
    return stored


def move(tx: Writing, row: Row, changes: Changes) -> None:
    """Change a thread for the store's own reasons; no lease stands in the way."""
    name, shown = row["name"], row["shown"]
    tx.run(_UPDATE, merged(tx, shown, row, changes) | {"name": name, "shown": shown})
    stored = stored_row(tx, name)
    after = row_of(tx, stored)
    words = summary(row, stored)
    tx.event("set", words, after, version=after["version"], subject=("thread", name))
    _index(tx, stored)


def _set_links(
    tx: Writing, name: str, there: set[str], wanted: set[str], add: str, drop: str
) -> None:
    """Make a thread lead to these, and to no others."""
    for other in sorted(there - wanted):
        tx.run(drop, {"name": name, "other": other})
    for other in sorted(wanted - there):
        tx.run(add, {"name": name, "other": other})


def _index(tx: Writing, row: Row) -> None:
    documents.put(tx, "thread", row["name"], row["shown"], text_of(tx, row), tx.seq - 1)
