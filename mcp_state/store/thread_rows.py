"""Reading the queue: one thread, or a page of them in the order to work on them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcp_state.calls import call, tool
from mcp_state.errors import NotFound
from mcp_state.lookups import Found
from mcp_state.models import OPEN, Actor, Criterion, Lease, Place, Status, Thread, ThreadPage
from mcp_state.store.fact_rows import RELIED, premise_with_found, relied_on
from mcp_state.store.paging import ASKED, FAR, Group, page_of
from mcp_state.store.text import fold, near_names, tidy_name
from mcp_state.store.transaction import Reading, Row, actor_of, time_of, unfolded
from mcp_state.times import from_text

THREAD = "SELECT * FROM thread_rows WHERE project = :project AND name = :name"
_NAMES = "SELECT shown FROM threads WHERE project = :project ORDER BY changed DESC LIMIT 300"
NEEDED = """
    SELECT needed, shown, status FROM needs
    JOIN threads ON threads.project = needs.project AND threads.name = needed
    WHERE needs.project = :project AND thread = :name ORDER BY needed
"""
CRITERIA = """
    SELECT number, text, passes, evidence, checked_at, agent, client, session
    FROM criteria LEFT JOIN actors ON actors.id = checked_by
    WHERE project = :project AND thread = :name ORDER BY number
"""
_LINKED = """
    SELECT thread FROM needs
    WHERE project = :project AND thread IN (SELECT value FROM json_each(:names))
    UNION
    SELECT thread FROM relies
    WHERE project = :project AND thread IN (SELECT value FROM json_each(:names))
"""
# `status = :value` alone would be compiled anew with each value, for 0.2 ms: an index on this table
# holds one status only, and SQLite looks each time whether the value lets it take that one.
_DUE = """
    SELECT * FROM thread_rows
    WHERE project = :project AND status = (SELECT :value) AND recheck_at <= :asked
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
    WHERE project = :project AND status = (SELECT :value) AND recheck_at IS NOT NULL
        AND (recheck_at, created) > (:first, :second)
    ORDER BY recheck_at, created LIMIT :limit
"""
_CLOSED = """
    SELECT * FROM thread_rows
    WHERE project = :project AND status = (SELECT :value) AND changed < :second
    ORDER BY changed DESC LIMIT :limit
"""
_HELD_HERE = """
    SELECT * FROM thread_rows
    WHERE project = :project AND lease_until > :now AND lease_over = 0
        AND holder_session = :session AND holder_session <> ''
    ORDER BY lease_until, created LIMIT :limit
"""
_HELD = """
    SELECT * FROM thread_rows
    WHERE project = :project AND lease_until > :now AND lease_over = 0
    ORDER BY lease_until, created LIMIT :limit
"""
_COUNT_DUE = """
    SELECT count(*) FROM (
        SELECT 1 FROM threads
        WHERE project = :project AND status = (SELECT :status) AND recheck_at <= :asked
        LIMIT :limit
    )
"""
MOST_COUNTED = 1000
TEXTS = ("title", "next_action", "waiting_on", "check", "evidence", "note")
COLUMNS = (
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


def find_row(tx: Reading, thread: str) -> Row:
    """The row of a thread, by its name.

    Raises:
        NotFound: there is none; near names are listed.
    """
    name = fold(tidy_name(thread, "thread"))
    row = tx.one(THREAD, {"name": name})
    if row is None:
        shows, sets = tool("thread_list"), tool("thread_set")
        raise no_thread(tx, thread, f"{shows} shows the open ones; {sets} creates one.")
    return row


def stored_row(tx: Reading, name: str) -> Row:
    """The row of a thread that is there, by its folded name, which may be longer than a name."""
    row = tx.one(THREAD, {"name": name})
    assert row is not None
    return row


def no_thread(tx: Reading, thread: str, next_step: str) -> NotFound:
    """The refusal, with up to three names, out of the last changed ones, that might be meant."""
    shown = {fold(row["shown"]): row["shown"] for row in tx.all(_NAMES)}
    near = [shown[name] for name in near_names(fold(thread), shown)]
    return NotFound.named("thread", thread.strip(), near, next_step)


def threads_of(tx: Reading, rows: Sequence[Row]) -> list[Thread]:
    """The models of some rows."""
    names = json.dumps([row["name"] for row in rows])
    linked = {row["thread"] for row in tx.all(_LINKED, {"names": names})}
    return [thread_of(tx, row, linked=row["name"] in linked) for row in rows]


def thread_of(tx: Reading, row: Row, *, unchanged: bool = False, linked: bool = True) -> Thread:
    """The model of a row; `linked`: it may depend on threads or rely on facts."""
    row = unfolded(row)
    needed = tx.all(NEEDED, {"name": row["name"]}) if linked else []
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
        places=_places(row["places"]),
        depends_on=[r["shown"] for r in needed],
        relies_on=relied_on(tx, row["name"]) if linked else [],
        waits_for=row["open_needs"],
        criteria=row["criteria"],
        passing=row["passing"],
        lease=lease_of(tx, row),
        due=row["recheck_at"] is not None and row["recheck_at"] <= tx.now,
        unchanged=unchanged,
    )


def _places(text: str) -> list[Place]:
    return [] if text == "[]" else [Place(**place) for place in json.loads(text)]


def thread_with_found(thread: Thread, found: Mapping[str, Found]) -> Thread:
    """A thread with what was found for the facts that it relies on."""
    if not found or not thread.relies_on:
        return thread
    return replace(thread, relies_on=[premise_with_found(p, found) for p in thread.relies_on])


def criterion_of(row: Row) -> Criterion:
    """The model of a row of CRITERIA."""
    checked_at = time_of(row["checked_at"])
    return Criterion(
        number=row["number"],
        text=row["text"],
        passes=bool(row["passes"]),
        evidence=row["evidence"],
        checked_at=checked_at,
        checked_by=actor_of(row) if checked_at else None,
    )


def find_criterion(tx: Reading, shown: str, name: str, criterion: str) -> Criterion:
    """A criterion, by its number or its text.

    Raises:
        NotFound: the thread has no such criterion.
    """
    found = [criterion_of(row) for row in tx.all(CRITERIA, {"name": name})]
    wanted = criterion.strip()
    for one in found:
        if wanted in (str(one.number), one.text.strip()):
            return one
    if not found:
        raise NotFound(
            f"thread {shown!r} has no criteria",
            f"Add them with {call('thread_set', thread=shown, criteria=['…'])}.",
        )
    raise NotFound(
        f"thread {shown!r} has no criterion {wanted[:80]!r}; it has 1 to {len(found)}",
        f"{call('thread_get', thread=shown)} shows them; name one by its number.",
    )


def needs_of(tx: Reading, name: str) -> set[str]:
    """The folded names of the threads that one depends on."""
    return {row["needed"] for row in tx.all(NEEDED, {"name": name})}


def relies_of(tx: Reading, name: str) -> set[str]:
    """The folded names of the facts that a thread relies on."""
    return {row["premise"] for row in tx.all(RELIED, {"name": name})}


def lease_of(tx: Reading, row: Row) -> Lease | None:
    """The lease, while it lasts."""
    until = row["lease_until"]
    if until is None or row["lease_over"] or until <= tx.now:
        return None
    holder = Actor(row["holder_agent"], row["holder_client"], row["holder_session"])
    return Lease(row["lease_token"], holder, from_text(until))


def row_of(tx: Reading, row: Row) -> dict[str, Any]:
    """What the event keeps of a thread; the texts of criteria never change, they stay in place."""
    needed = tx.all(NEEDED, {"name": row["name"]})
    criteria = tx.all(CRITERIA, {"name": row["name"]})
    return {
        "name": row["shown"],
        "version": row["version"],
        **{column: row[column] for column in COLUMNS},
        "places": json.loads(row["places"]),
        "depends_on": [r["shown"] for r in needed],
        "relies_on": [premise.name for premise in relied_on(tx, row["name"])],
        "criteria": row["criteria"],
        "passing": [c["number"] for c in criteria if c["passes"]],
        "lease_token": row["lease_token"],
        "lease_until": row["lease_until"],
        "lease_holder": row["holder_agent"],
    }


def text_of(tx: Reading, row: Row) -> str:
    """What `search` reads of a thread."""
    criteria = [c["text"] for c in tx.all(CRITERIA, {"name": row["name"]})]
    texts = [row["shown"], *(row[column] for column in TEXTS), *criteria]
    return "\n".join(text for text in texts if text)


def list_threads(
    tx: Reading, status: Status | None, due: bool, limit: int, cursor: str
) -> ThreadPage:
    """The page of threads that `Threads.list` describes."""
    filters = f"{status or 'open'}{'-due' if due else ''}"
    page = page_of(tx, _groups(status, due), filters, limit, cursor, tool("thread_list"))
    threads = threads_of(tx, page.rows)
    if due:
        found = [n for s, n in count_due(tx, page.asked).items() if status in (None, s)]
        return ThreadPage(threads, sum(found), page.cursor, any(n > MOST_COUNTED for n in found))
    counts = tx.totals().threads
    wanted = [status] if status else OPEN
    return ThreadPage(threads, sum(counts.get(s, 0) for s in wanted), page.cursor)


def _groups(status: Status | None, due: bool) -> Sequence[Group]:
    if status is not None and status not in OPEN:
        return [] if due else [Group(_CLOSED, [status], ("status", "changed"), (status, FAR))]
    later = [s for s in (Status.WATCHING, Status.BLOCKED) if status in (None, s)]
    groups: list[Group] = []
    if later:
        groups.append(Group(_DUE, later, ("recheck_at", "created"), ("", 0)))
    if not due and status in (None, Status.ACTIVE):
        groups.append(Group(_ACTIVE, [Status.ACTIVE], ("priority", "created"), (0, 0)))
    if not due and later:
        groups.append(Group(_LATER, later, ("recheck_at", "created"), (ASKED, FAR)))
    return groups


def count_due(tx: Reading, asked: str = "") -> Mapping[Status, int]:
    """How many threads of each status are due; more than `MOST_COUNTED` count as one more."""
    return {
        status: tx.scalar(
            _COUNT_DUE, {"status": status, "asked": asked or tx.now, "limit": MOST_COUNTED + 1}
        )
        for status in (Status.WATCHING, Status.BLOCKED)
    }


def held_here(tx: Reading, limit: int) -> Sequence[Thread]:
    """Threads that this session holds, the lease that ends first before the others."""
    params = {"session": tx.caller.actor.session, "limit": limit}
    return threads_of(tx, tx.all(_HELD_HERE, params))


def held(tx: Reading, limit: int) -> Sequence[Thread]:
    """Threads that anybody holds, the lease that ends first before the others."""
    return threads_of(tx, tx.all(_HELD, {"limit": limit}))
