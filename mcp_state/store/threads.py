"""The queue: lines of work, each with a status, that are claimed, checked and finished."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypedDict, Unpack

from mcp_state.errors import (
    BadArgument,
    EvidenceRequired,
    Held,
    IllegalTransition,
    LeaseLost,
    NotFound,
    VersionConflict,
)
from mcp_state.models import (
    MOVES,
    OPEN,
    Actor,
    Caller,
    Checked,
    Criterion,
    Lease,
    NothingToClaim,
    Place,
    Status,
    Thread,
    ThreadDetail,
    ThreadPage,
)
from mcp_state.store import documents
from mcp_state.store.database import Database, reads, writes
from mcp_state.store.events import last_events_of
from mcp_state.store.journal import entries_of_thread
from mcp_state.store.text import fold, tidy_name
from mcp_state.store.transaction import Reading, Row, Writing, actor_of, time_of
from mcp_state.times import ago, duration, from_text, span, to_text

_THREAD = "SELECT * FROM thread_rows WHERE project = :project AND name = :name"
_NAMES = "SELECT shown FROM threads WHERE project = :project ORDER BY changed DESC LIMIT 300"
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
_NEEDED = """
    SELECT needed, shown, status FROM needs
    JOIN threads ON threads.project = needs.project AND threads.name = needed
    WHERE needs.project = :project AND thread = :name ORDER BY needed
"""
_NEEDED_BY = """
    SELECT shown FROM needs JOIN threads ON threads.project = needs.project AND name = thread
    WHERE needs.project = :project AND needed = :name ORDER BY created LIMIT 20
"""
_ADD_NEED = "INSERT INTO needs (project, thread, needed) VALUES (:project, :name, :needed)"
_DROP_NEED = """
    DELETE FROM needs WHERE project = :project AND thread = :name AND needed = :needed
"""
_CRITERIA = """
    SELECT number, text, passes, evidence, checked_at, agent, client, session
    FROM criteria LEFT JOIN actors ON actors.id = checked_by
    WHERE project = :project AND thread = :name ORDER BY number
"""
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
    SELECT coalesce(sum(open_needs > 0), 0) AS waiting, count(*) AS active
    FROM (SELECT open_needs FROM threads
          WHERE project = :project AND status = 'active' LIMIT 1000)
"""
_DUE = """
    SELECT * FROM thread_rows
    WHERE project = :project AND status = :status AND recheck_at <= :asked
        AND (recheck_at, created) > (:first, :second)
    ORDER BY recheck_at, created LIMIT :limit
"""
_ACTIVE = """
    SELECT * FROM thread_rows
    WHERE project = :project AND status = 'active' AND (priority, created) > (:first, :second)
    ORDER BY priority, created LIMIT :limit
"""
_LATER = """
    SELECT * FROM thread_rows
    WHERE project = :project AND status = :status AND recheck_at > :asked
        AND (recheck_at, created) > (:first, :second)
    ORDER BY recheck_at, created LIMIT :limit
"""
_CLOSED = """
    SELECT * FROM thread_rows
    WHERE project = :project AND status = :status AND changed < :second
    ORDER BY changed DESC LIMIT :limit
"""
_LEASED = """
    SELECT * FROM thread_rows
    WHERE project = :project AND lease_until > :now AND lease_over = 0
    ORDER BY lease_until LIMIT :limit
"""
_COUNT_DUE = """
    SELECT count(*) FROM (
        SELECT 1 FROM threads
        WHERE project = :project AND status = :status AND recheck_at <= :asked LIMIT 1001
    )
"""

_DEFAULT_RECHECK = timedelta(hours=24)
_DEFAULT_PRIORITY = 5
_FAR = 1 << 62
_TEXTS = ("title", "next_action", "waiting_on", "check", "evidence", "note")
CLEARABLE = ("next_action", "waiting_on", "check", "evidence", "note", "places", "depends_on")
SHORTEN = "Shorten it; long text belongs in the journal or in a memory block."


class Changes(TypedDict, total=False):
    """What `Threads.set` is asked to change; what is absent or None stays as it is."""

    status: Status | str | None
    title: str | None
    next_action: str | None
    waiting_on: str | None
    recheck_after: str | None
    check: str | None
    evidence: str | None
    note: str | None
    priority: int | None
    depends_on: Sequence[str] | None
    criteria: Sequence[str] | None
    places: Sequence[Place] | None
    clear: Sequence[str]


def parse_status(text: str) -> Status:
    """A status in any case, with `-`, `_` or spaces around.

    Raises:
        BadArgument: there is no such status.
    """
    word = re.sub(r"[-_\s]+", "", text).lower()
    try:
        return Status(word)
    except ValueError:
        raise BadArgument(
            f"status is {text[:40]!r}", f"Statuses are {', '.join(s.value for s in Status)}."
        ) from None


class Threads:
    """The queue of one project."""

    def __init__(self, database: Database, caller: Caller) -> None:
        self.database = database
        self.caller = caller

    @reads
    def list(
        self,
        tx: Reading,
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
        return list_threads(tx, status, due, limit, cursor)

    @reads
    def get(self, tx: Reading, thread: str, *, journal: int = 5, history: int = 10) -> ThreadDetail:
        """All of one thread, with its last journal entries and changes.

        Raises:
            NotFound: there is no such thread.
        """
        row = _row(tx, thread)
        name = row["name"]
        events, earlier = last_events_of(tx, "thread", name, history)
        needed = tx.all(_NEEDED, {"name": name})
        return ThreadDetail(
            thread=_thread(tx, row),
            criteria=[_criterion(c) for c in tx.all(_CRITERIA, {"name": name})],
            history=events,
            earlier=earlier,
            journal=entries_of_thread(tx, name, journal),
            needed_by=[r["shown"] for r in tx.all(_NEEDED_BY, {"name": name})],
            unfinished=[r["shown"] for r in needed if r["status"] != Status.DONE],
        )

    @writes
    def set(
        self,
        tx: Writing,
        thread: str,
        *,
        expected_version: int | None = None,
        lease_token: int | None = None,
        **changes: Unpack[Changes],
    ) -> Thread:
        """Create a thread, or change what is given of it.

        Raises:
            BadArgument: fields contradict each other or the status.
            NotFound: a dependency does not exist.
            VersionConflict: it moved on since `expected_version` (0: it must not exist).
            Held: somebody holds it and no token was given.
            LeaseLost: the token is not the current one.
            IllegalTransition: the status cannot change like that.
            EvidenceRequired: done without proof, or with criteria that do not pass.
            OverLimit: a text is too long.
        """
        shown = tidy_name(thread, "thread")
        name = fold(shown)
        tx.subject = ("thread", name)
        row = tx.one(_THREAD, {"name": name})
        _check_version(tx, shown, row, expected_version)
        if row is not None:
            shown = row["shown"]
            _check_lease(tx, row, lease_token)
        elif lease_token:
            raise LeaseLost(f"thread {shown!r} does not exist, so nobody holds it", "Create it.")
        fields = _merged(tx, shown, row, changes)
        fields |= {"name": name, "shown": shown}
        needs = _wanted_needs(tx, shown, name, changes)
        criteria = _new_criteria(tx, shown, row, changes.get("criteria") or ())
        if row is not None and needs is None and not criteria and _same(row, fields):
            return _thread(tx, row, unchanged=True)
        tx.run(_INSERT if row is None else _UPDATE, fields)
        if needs is not None:
            _set_needs(tx, name, needs)
        for number, text in criteria:
            tx.run(_ADD_CRITERION, {"name": name, "number": number, "text": text})
        if fields["status"] not in OPEN and row is not None:
            token = row["lease_token"]
            tx.run(_LEASE, {"name": name, "token": token, "holder": None, "until": None})
        stored = _row(tx, name)
        after = row_of(tx, stored)
        summary = _summary(row, stored, len(criteria))
        tx.event("set" if row is not None else "create", summary, after, version=after["version"])
        _index(tx, stored)
        return _thread(tx, stored)

    @writes
    def claim(
        self,
        tx: Writing,
        thread: str = "",
        *,
        lease: str = "30m",
        lease_token: int | None = None,
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
        length = duration(lease, "lease")
        if not thread:
            if lease_token:
                raise BadArgument("lease_token came without a thread", "Name the thread to extend.")
            row = tx.one(_BEST)
            if row is None:
                counts = tx.one(_UNCLAIMABLE)
                assert counts is not None
                held = counts["active"] - counts["waiting"]
                return NothingToClaim(counts["active"], held, counts["waiting"])
        else:
            row = _row(tx, thread)
        name, shown = row["name"], row["shown"]
        tx.subject = ("thread", name)
        if row["status"] not in OPEN:
            raise IllegalTransition(
                f"thread {shown!r} is {row['status']}, there is nothing to claim",
                f'Reopen it with thread_set(thread="{shown}", status="active", note="why").',
            )
        if lease_token:
            _check_lease(tx, row, lease_token)
            token, word = lease_token, "extended"
        elif (current := lease_of(tx, row)) is not None:
            raise _held(tx, shown, name, current)
        else:
            token, word = tx.seq, "claimed"
        until = tx.at + length
        tx.run(_LEASE, {"name": name, "token": token, "holder": tx.actor, "until": to_text(until)})
        stored = _row(tx, name)
        tx.event(f"lease_{word}", f"{word} for {span(length.total_seconds())}", row_of(tx, stored))
        return _thread(tx, stored)

    @writes
    def release(
        self, tx: Writing, thread: str, *, lease_token: int | None = None, force: bool = False
    ) -> Thread:
        """Give a lease back; `force` breaks it, for people.

        Raises:
            NotFound: there is no such thread.
            Held: somebody holds it and no token was given.
            LeaseLost: the token is not the current one.
        """
        row = _row(tx, thread)
        tx.subject = ("thread", row["name"])
        if not force:
            _check_lease(tx, row, lease_token)
        held = lease_of(tx, row)
        if held is None:
            return _thread(tx, row, unchanged=True)
        token = tx.seq if force else row["lease_token"]
        tx.run(_LEASE, {"name": row["name"], "token": token, "holder": None, "until": None})
        stored = _row(tx, row["name"])
        summary = f"lease of {held.holder.agent} broken by a person" if force else "released"
        tx.event("lease_broken" if force else "lease_released", summary, row_of(tx, stored))
        return _thread(tx, stored)

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
        row = _row(tx, thread)
        name, shown = row["name"], row["shown"]
        tx.subject = ("thread", name)
        _check_lease(tx, row, lease_token)
        found = _find_criterion(tx, shown, name, criterion)
        if row["status"] == Status.DONE and not passes:
            raise IllegalTransition(
                f"thread {shown!r} is done; a criterion of it cannot fail",
                f'Reopen it first: thread_set(thread="{shown}", status="active", note="why").',
            )
        evidence = tx.text(evidence, "evidence", tx.limits.text, SHORTEN)
        tx.run(
            _MARK,
            {"name": name, "number": found.number, "passes": passes, "evidence": evidence},
        )
        tx.run(_TOUCH, {"name": name})
        stored = _row(tx, name)
        score = f"{stored['passing']}/{stored['criteria']} pass"
        word = "passes" if passes else "does not pass"
        after = row_of(tx, stored)
        tx.event(
            "check", f"criterion {found.number} {word}, {score}", after, version=after["version"]
        )
        _index(tx, stored)
        marked = _criterion(tx.all(_CRITERIA, {"name": name})[found.number - 1])
        return Checked(shown, marked, stored["passing"], stored["criteria"])


def list_threads(
    tx: Reading, status: Status | None, due: bool, limit: int, cursor: str
) -> ThreadPage:
    """The page of threads that `Threads.list` describes."""
    asked, group, first, second = _read_cursor(cursor) if cursor else (tx.now, 0, "", _START)
    threads: list[Thread] = []
    last = (0, "", 0)
    groups = _groups(status, due)
    for number, (sql, statuses, key) in enumerate(groups):
        if number < group:
            continue
        rows: list[Row] = []
        for one in statuses:
            params = {
                "asked": asked,
                "status": one,
                "first": (int(first or -1) if key == "priority" else first),
                "second": (_FAR if second == _START and key == "status" else second),
                "limit": limit + 1,
            }
            rows += tx.all(sql, params)
        if len(statuses) > 1:
            rows.sort(key=lambda row: (row["recheck_at"], row["created"]))
        for row in rows:
            if len(threads) == limit:
                position = "/".join(str(part) for part in (asked, *last))
                return ThreadPage(threads, _total(tx, status, due, asked), position)
            threads.append(_thread(tx, row))
            last = (number, str(row[key]), row["changed" if key == "status" else "created"])
        first, second = "", _START
    return ThreadPage(threads, _total(tx, status, due, asked))


_START = -1


def _groups(status: Status | None, due: bool) -> Sequence[tuple[str, Sequence[Status], str]]:
    """The queries that make up the list, each over some statuses, each with its sort column."""
    if status is not None and status not in OPEN:
        return [] if due else [(_CLOSED, (status,), "status")]
    later = [s for s in (Status.WATCHING, Status.BLOCKED) if status in (None, s)]
    groups: list[tuple[str, Sequence[Status], str]] = []
    if later:
        groups.append((_DUE, later, "recheck_at"))
    if not due and status in (None, Status.ACTIVE):
        groups.append((_ACTIVE, (Status.ACTIVE,), "priority"))
    if not due and later:
        groups.append((_LATER, later, "recheck_at"))
    return groups


def _read_cursor(cursor: str) -> tuple[str, int, str, int]:
    try:
        asked, group, first, second = cursor.split("/")
        from_text(asked)
        return asked, int(group), first, int(second)
    except ValueError:
        raise BadArgument(
            f"cursor {cursor[:40]!r} is none that thread_list gave",
            "Leave it out to begin at the top.",
        ) from None


def _total(tx: Reading, status: Status | None, due: bool, asked: str) -> int:
    if due:
        return count_due(tx, status, asked)
    counts = tx.totals().threads
    return sum(counts.get(s, 0) for s in ([status] if status else OPEN))


def count_due(tx: Reading, status: Status | None = None, asked: str = "") -> int:
    """How many threads are due; more than 1,000 of one status are counted as 1,001."""
    return sum(
        tx.scalar(_COUNT_DUE, {"status": s, "asked": asked or tx.now})
        for s in (Status.WATCHING, Status.BLOCKED)
        if status in (None, s)
    )


def leased(tx: Reading, limit: int) -> Sequence[Thread]:
    """Threads that somebody holds."""
    return [_thread(tx, row) for row in tx.all(_LEASED, {"limit": limit})]


def lease_of(tx: Reading, row: Row) -> Lease | None:
    """The lease, while it lasts."""
    until = row["lease_until"]
    if until is None or row["lease_over"] or until <= tx.now:
        return None
    holder = Actor(row["holder_agent"], row["holder_client"], row["holder_session"])
    return Lease(row["lease_token"], holder, from_text(until))


def row_of(tx: Reading, row: Row) -> dict[str, Any]:
    """What the event keeps of a thread."""
    needed = tx.all(_NEEDED, {"name": row["name"]})
    criteria = tx.all(_CRITERIA, {"name": row["name"]})
    return {
        "name": row["shown"],
        "version": row["version"],
        **{column: row[column] for column in _COLUMNS if column != "places"},
        "places": json.loads(row["places"]),
        "depends_on": [r["shown"] for r in needed],
        "criteria": [{"text": c["text"], "passes": bool(c["passes"])} for c in criteria],
        "lease_token": row["lease_token"],
        "lease_until": row["lease_until"],
        "lease_holder": row["holder_agent"],
    }


_COLUMNS = (
    "title",
    "status",
    "priority",
    "next_action",
    "waiting_on",
    "recheck_at",
    "check",
    "evidence",
    "note",
    "places",
)


def _same(row: Row, fields: dict[str, Any]) -> bool:
    return all(row[column] == fields[column] for column in _COLUMNS)


def _row(tx: Reading, thread: str) -> Row:
    name = fold(tidy_name(thread, "thread"))
    row = tx.one(_THREAD, {"name": name})
    if row is None:
        raise NotFound.named(
            "thread",
            thread.strip(),
            near_names(tx, name),
            "thread_list shows the open ones; thread_set creates one.",
        )
    return row


def near_names(tx: Reading, name: str) -> Sequence[str]:
    """Up to three names, out of the last changed ones, that one might have meant."""
    shown = {fold(row["shown"]): row["shown"] for row in tx.all(_NAMES)}
    return [shown[near] for near in difflib.get_close_matches(name, list(shown), 3)]


def _thread(tx: Reading, row: Row, *, unchanged: bool = False) -> Thread:
    needed = tx.all(_NEEDED, {"name": row["name"]})
    return Thread(
        name=row["shown"],
        title=row["title"],
        status=Status(row["status"]),
        version=row["version"],
        priority=row["priority"],
        created_at=from_text(row["created_at"]),
        status_at=from_text(row["status_at"]),
        changed_at=from_text(row["changed_at"]),
        changed_by=actor_of(row),
        next_action=row["next_action"],
        waiting_on=row["waiting_on"],
        recheck_at=time_of(row["recheck_at"]),
        check=row["check"],
        evidence=row["evidence"],
        note=row["note"],
        places=[Place(**place) for place in json.loads(row["places"])],
        depends_on=[r["shown"] for r in needed],
        waits_for=row["open_needs"],
        criteria=row["criteria"],
        passing=row["passing"],
        lease=lease_of(tx, row),
        due=row["recheck_at"] is not None and row["recheck_at"] <= tx.now,
        unchanged=unchanged,
    )


def _criterion(row: Row) -> Criterion:
    checked_at = time_of(row["checked_at"])
    return Criterion(
        number=row["number"],
        text=row["text"],
        passes=bool(row["passes"]),
        evidence=row["evidence"],
        checked_at=checked_at,
        checked_by=actor_of(row) if checked_at else None,
    )


def _find_criterion(tx: Reading, shown: str, name: str, criterion: str) -> Criterion:
    found = [_criterion(row) for row in tx.all(_CRITERIA, {"name": name})]
    wanted = criterion.strip()
    for one in found:
        if wanted in (str(one.number), one.text.strip()):
            return one
    if not found:
        raise NotFound(
            f"thread {shown!r} has no criteria",
            f'Add them with thread_set(thread="{shown}", criteria=["…"]).',
        )
    raise NotFound(
        f"thread {shown!r} has no criterion {wanted[:80]!r}; it has 1 to {len(found)}",
        f'thread_get(thread="{shown}") shows them; name one by its number.',
    )


def _check_version(tx: Reading, shown: str, row: Row | None, expected: int | None) -> None:
    current = 0 if row is None else row["version"]
    if expected is None or expected == current:
        return
    by = f"changed by {row['agent']} {ago(from_text(row['changed_at']), tx.at)}" if row else ""
    raise VersionConflict.of(
        f"thread {shown!r}", expected, current, by, f'thread_get(thread="{shown}")', "thread_set"
    )


def _check_lease(tx: Reading, row: Row, token: int | None) -> None:
    """Whether a write with this token may go ahead."""
    held, shown = lease_of(tx, row), row["shown"]
    if token and token != row["lease_token"]:
        now = f"{held.holder.agent} holds it now" if held else "nobody holds it now"
        raise LeaseLost(
            f"lease token {token} of thread {shown!r} is not the current one; {now}",
            f'Nothing was changed. Read it with thread_get(thread="{shown}") before you go on.',
        )
    if held is not None and not token:
        raise _held(tx, shown, row["name"], held)


def _held(tx: Reading, shown: str, name: str, lease: Lease) -> Held:
    left = span((lease.until - tx.at).total_seconds())
    events, _ = last_events_of(tx, "thread", name, 20)
    theirs = [e for e in events if e.actor == lease.holder]
    last = f"; last: {theirs[-1].summary} {ago(theirs[-1].at, tx.at)}" if theirs else ""
    return Held(
        f"thread {shown!r} is held by {lease.holder.agent} until {lease.until:%H:%M:%S} UTC "
        f"({left} more){last}",
        "Take another thread (thread_claim without a thread), or pass the lease_token if it is "
        "yours.",
    )


def _merged(tx: Writing, shown: str, row: Row | None, changes: Changes) -> dict[str, Any]:
    """The columns as they will be, after every rule about them."""
    fields = _given(tx, shown, row, changes)
    old = None if row is None else Status(row["status"])
    status = changes.get("status")
    new = parse_status(status) if status else old or Status.ACTIVE
    if old is not None and new is not old:
        _check_move(shown, old, new, changes)
    recheck_after = changes.get("recheck_after")
    fields["status"] = new.value
    fields["status_at"] = tx.now if row is None or new is not old else row["status_at"]
    if new not in (Status.WATCHING, Status.BLOCKED):
        if recheck_after is not None:
            raise _belongs("recheck_after", shown, new)
        if changes.get("waiting_on"):
            raise _belongs("waiting_on", shown, new)
        fields["waiting_on"], fields["recheck_at"] = "", None
    elif recheck_after is not None:
        fields["recheck_at"] = to_text(tx.at + duration(recheck_after, "recheck_after"))
    elif status or fields["recheck_at"] is None:
        fields["recheck_at"] = to_text(tx.at + _DEFAULT_RECHECK)
    if (
        old in (Status.DONE, Status.DROPPED)
        and new is Status.ACTIVE
        and changes.get("evidence") is None
    ):
        fields["evidence"] = ""
    _check_needs_of_status(tx, shown, row, new, fields, changes)
    return fields


def _given(tx: Writing, shown: str, row: Row | None, changes: Changes) -> dict[str, Any]:
    """The columns as they are, with what was given put over them."""
    fields: dict[str, Any] = dict.fromkeys(_TEXTS, "") | {
        "title": shown,
        "priority": _DEFAULT_PRIORITY,
        "recheck_at": None,
        "places": "[]",
    }
    if row is not None:
        fields |= {column: row[column] for column in _COLUMNS}
    for cleared in changes.get("clear", ()):
        if cleared not in CLEARABLE:
            raise BadArgument(
                f"{cleared[:40]!r} cannot be cleared", f"clear takes {', '.join(CLEARABLE)}."
            )
        if changes.get(cleared):
            raise BadArgument(f"{cleared} is both given and to be cleared", "Do one of the two.")
        fields[cleared] = "[]" if cleared == "places" else ""
    for column in _TEXTS:
        value: str | None = changes.get(column)
        if value is not None:
            limit = tx.limits.title if column == "title" else tx.limits.text
            fields[column] = tx.text(value, f"{column} of thread {shown!r}", limit, SHORTEN)
    if (priority := changes.get("priority")) is not None:
        if not 1 <= priority <= 9:
            raise BadArgument(f"priority is {priority}", "Use 1 (first) to 9 (last).")
        fields["priority"] = priority
    if places := changes.get("places"):
        fields["places"] = _places(tx, places)
    return fields


def _places(tx: Writing, places: Sequence[Place]) -> str:
    if len(places) > tx.limits.items:
        raise BadArgument(f"{len(places)} places; a thread has at most {tx.limits.items}", "")
    return json.dumps(
        [
            {
                "path_or_repo": tx.text(p.path_or_repo, "path_or_repo", tx.limits.text, SHORTEN),
                "role": p.role,
                "note": tx.text(p.note, "the note of a place", tx.limits.text, SHORTEN),
            }
            for p in places
        ],
        ensure_ascii=False,
    )


def _check_move(shown: str, old: Status, new: Status, changes: Changes) -> None:
    if new not in MOVES[old]:
        raise IllegalTransition(
            f"thread {shown!r} is {old}, it cannot become {new}",
            f"From {old} it can become: {', '.join(MOVES[old])} (with a note saying why).",
        )
    if old not in OPEN and not changes.get("note"):
        raise IllegalTransition(
            f"thread {shown!r} is {old}; it reopens only with a note saying why",
            f'thread_set(thread="{shown}", status="active", note="why").',
        )


def _belongs(field: str, shown: str, status: Status) -> BadArgument:
    return BadArgument(
        f"{field} belongs to watching or blocked, and thread {shown!r} would be {status}",
        f"Set status too, or leave {field} out.",
    )


def _check_needs_of_status(
    tx: Writing,
    shown: str,
    row: Row | None,
    new: Status,
    fields: dict[str, Any],
    changes: Changes,
) -> None:
    if new is Status.BLOCKED and not fields["waiting_on"]:
        raise BadArgument(
            f"thread {shown!r} is to be blocked, but waiting_on does not say on whom or what",
            "Give waiting_on; use watching if there is nothing to wait for.",
        )
    if new is Status.DROPPED and not fields["note"]:
        raise BadArgument(
            f"thread {shown!r} is to be dropped without a note", "Give a note saying why."
        )
    if new is not Status.DONE:
        return
    if not fields["evidence"]:
        raise EvidenceRequired(
            f"thread {shown!r} is not done without evidence",
            "Give evidence: a test run and its exit code, a commit, a link, file:line.",
        )
    criteria = [] if row is None else tx.all(_CRITERIA, {"name": row["name"]})
    failing = [f"{c['number']} ({c['text'][:60]})" for c in criteria if not c["passes"]]
    if changes.get("criteria"):
        raise EvidenceRequired(
            f"thread {shown!r} cannot be done: its new criteria were not checked",
            "Add the criteria first, mark them with thread_check, then set done.",
        )
    if failing:
        more = f" and {len(failing) - 5} more" if len(failing) > 5 else ""
        raise EvidenceRequired(
            f"{len(failing)} of {len(criteria)} criteria of thread {shown!r} do not pass: "
            f"{', '.join(failing[:5])}{more}",
            "Mark each with thread_check when it holds.",
        )


def _wanted_needs(tx: Writing, shown: str, name: str, changes: Changes) -> set[str] | None:
    """The names of the threads it will depend on, or None for no change."""
    if changes.get("depends_on") is None and "depends_on" not in changes.get("clear", ()):
        return None
    wanted = changes.get("depends_on") or ()
    if len(wanted) > tx.limits.items:
        raise BadArgument(f"{len(wanted)} dependencies; a thread has at most {tx.limits.items}", "")
    needs: set[str] = set()
    for one in wanted:
        needed = fold(tidy_name(one, "depends_on"))
        if needed == name:
            raise _cycle([shown, shown])
        _row(tx, needed)
        if path := _path(tx, needed, name):
            raise _cycle([shown, *(_row(tx, step)["shown"] for step in path)])
        needs.add(needed)
    return None if needs == _needs(tx, name) else needs


def _path(tx: Reading, start: str, goal: str) -> list[str]:
    """The chain of dependencies that leads from one thread to another; empty if none does."""
    came_from: dict[str, str] = {start: ""}
    waiting = [start]
    while waiting:
        here = waiting.pop()
        if here == goal:
            path = [here]
            while came_from[path[-1]]:
                path.append(came_from[path[-1]])
            return path[::-1]
        for needed in _needs(tx, here) - came_from.keys():
            came_from[needed] = here
            waiting.append(needed)
    return []


def _cycle(path: Sequence[str]) -> BadArgument:
    return BadArgument(
        f"that would be a circle of dependencies: {' -> '.join(path)}",
        "Leave one of them out; nothing was changed.",
    )


def _needs(tx: Reading, name: str) -> set[str]:
    return {row["needed"] for row in tx.all(_NEEDED, {"name": name})}


def _set_needs(tx: Writing, name: str, needs: set[str]) -> None:
    there = _needs(tx, name)
    for needed in there - needs:
        tx.run(_DROP_NEED, {"name": name, "needed": needed})
    for needed in needs - there:
        tx.run(_ADD_NEED, {"name": name, "needed": needed})


def _new_criteria(
    tx: Writing, shown: str, row: Row | None, criteria: Sequence[str]
) -> list[tuple[int, str]]:
    """Number those criteria that are new."""
    there = (
        {}
        if row is None
        else {c["text"]: c["number"] for c in tx.all(_CRITERIA, {"name": row["name"]})}
    )
    new: dict[str, int] = {}
    for one in criteria:
        text = tx.text(one.strip(), "a criterion", tx.limits.text, SHORTEN)
        if not text:
            raise BadArgument("a criterion is empty", "Say what must hold.")
        if text not in there and text not in new:
            new[text] = len(there) + len(new) + 1
    if len(there) + len(new) > tx.limits.criteria:
        raise BadArgument(
            f"thread {shown!r} would have {len(there) + len(new)} criteria; "
            f"at most {tx.limits.criteria}",
            "Split it into several threads.",
        )
    if new and row is not None and row["status"] == Status.DONE:
        raise IllegalTransition(
            f"thread {shown!r} is done; it gets no more criteria",
            f'Reopen it first: thread_set(thread="{shown}", status="active", note="why").',
        )
    return [(number, text) for text, number in new.items()]


def _summary(old: Row | None, new: Row, criteria: int) -> str:
    """The change in one line, for people who read it later."""
    if old is None:
        words = [f"{new['status']}: {new['title']}"]
    elif old["status"] != new["status"]:
        words = [f"{old['status']} -> {new['status']}"]
    else:
        changed = [c for c in _COLUMNS if old[c] != new[c] and c != "note"]
        words = [f"changed {', '.join(changed)}"] if changed else ["changed"]
    if new["status"] == Status.BLOCKED:
        words.append(f"(waiting on {new['waiting_on']})")
    if criteria:
        words.append(f"(+{criteria} criteria)")
    if new["status"] == Status.DONE and (old is None or old["status"] != new["status"]):
        words.append(f"(evidence: {new['evidence']})")
    if new["note"] and (old is None or old["note"] != new["note"]):
        words.append(f"({new['note']})")
    return " ".join(words)


def _index(tx: Writing, row: Row) -> None:
    documents.put(tx, "thread", row["name"], row["shown"], text_of(tx, row), tx.seq - 1)


def text_of(tx: Reading, row: Row) -> str:
    """What `search` reads of a thread."""
    criteria = [c["text"] for c in tx.all(_CRITERIA, {"name": row["name"]})]
    texts = [row["shown"], *(row[column] for column in _TEXTS), *criteria]
    return "\n".join(text for text in texts if text)
