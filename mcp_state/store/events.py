"""The record behind everything: what changed, in order, by whom."""

from __future__ import annotations

from mcp_state.calls import meant
from mcp_state.errors import BadArgument
from mcp_state.models import Caller, Event, EventPage
from mcp_state.store.noun import Noun, reads
from mcp_state.store.text import fold, within
from mcp_state.store.transaction import Reading, event_of

_VERSION = """
    SELECT * FROM event_rows
    WHERE project = :project AND kind = :kind AND name = :name AND version = :version
"""
_AFTER = """
    SELECT * FROM event_rows WHERE project = :project AND seq > :since
    ORDER BY seq LIMIT :limit
"""
_LAST = """
    SELECT * FROM event_rows WHERE project = :project AND seq > :since
    ORDER BY seq DESC LIMIT :limit
"""
_LAST_CHANGES = """
    SELECT * FROM event_rows
    WHERE project = :project AND seq > :since
        AND kind <> 'trace' AND operation NOT IN ('fall', 'due')
    ORDER BY seq DESC LIMIT :limit
"""
_SUBJECT_AFTER = """
    SELECT * FROM event_rows
    WHERE project = :project AND kind = :kind AND name = :name AND seq > :since
    ORDER BY seq LIMIT :limit
"""
_SUBJECT_LAST = """
    SELECT * FROM event_rows WHERE project = :project AND kind = :kind AND name = :name
    ORDER BY seq DESC LIMIT :limit
"""
_SUBJECT_COUNT = """
    SELECT count(*) FROM (
        SELECT 1 FROM events
        WHERE project = :project AND kind = :kind AND name = :name AND seq > :since LIMIT 1000
    )
"""
_RUN_AFTER = """
    SELECT * FROM event_rows WHERE project = :project AND run = :name AND run <> '' AND seq > :since
    ORDER BY seq LIMIT :limit
"""
_RUN_LAST = """
    SELECT * FROM event_rows WHERE project = :project AND run = :name AND run <> ''
    ORDER BY seq DESC LIMIT :limit
"""
_RUN_COUNT = """
    SELECT count(*) FROM (
        SELECT 1 FROM events
        WHERE project = :project AND run = :name AND run <> '' AND seq > :since LIMIT 1000
    )
"""
_RUN_CHANGES = """
    SELECT count(*) FROM (
        SELECT 1 FROM events
        WHERE project = :project AND run = :name AND run <> '' AND seq > :since
            AND kind <> 'trace'
        LIMIT 1000
    )
"""
_CHANGES = """
    SELECT count(*) FROM (
        SELECT 1 FROM events
        WHERE project = :project AND seq > :since
            AND kind <> 'trace' AND operation NOT IN ('fall', 'due')
        LIMIT 1000
    )
"""
_STANDING = "SELECT last_event FROM projects WHERE id = :id"
_TOUCHED = """
    SELECT DISTINCT kind, name FROM events
    WHERE project = :project AND seq > :since AND seq <= :upto
        AND kind <> 'trace' AND operation <> 'refused'
"""
_REFUSED = """
    SELECT 1 FROM events
    WHERE project = :project AND seq > :since AND seq <= :upto AND operation = 'refused' LIMIT 1
"""
_EXISTS = """
    SELECT 1 FROM events WHERE project = :project AND kind = :kind AND name = :name LIMIT 1
"""
KINDS = (
    "memory",
    "thread",
    "journal",
    "run",
    "step",
    "checkpoint",
    "transcript",
    "trace",
    "blob",
    "handoff",
    "fact",
    "objective",
    "project",
)
_ALONE = {"objective": "objective", "project": ""}
"""What there is one of: a subject without a name."""


class Events(Noun):
    """The history of one project."""

    @reads
    def history(
        self, tx: Reading, subject: str = "", *, since: int | None = None, limit: int = 20
    ) -> EventPage:
        """Events of one subject (`thread:pr-830`, `objective`), or of all.

        `run:X` has all that was done for X.
        With `since`, those after that event number, the oldest of them first; without, the last
        ones. Always oldest first, at most `limit`; `more` says how many were left out on the far
        side (at most 1,000 are counted for one subject).

        Raises:
            BadArgument: the subject is not KIND:NAME.
        """
        after = max(0, since or 0)
        params = {"since": after, "limit": limit}
        if not subject:
            events = [event_of(row) for row in tx.all(_LAST if since is None else _AFTER, params)]
            total = max(0, tx.totals().event - after)
        else:
            params |= _subject(tx, subject)
            last, forward, count = _STATEMENTS[params["kind"] == "run"]
            rows = tx.all(last if since is None else forward, params)
            events = [event_of(row) for row in rows]
            total = tx.scalar(count, params)
        events.sort(key=lambda event: event.seq)
        return EventPage(events, max(0, total - len(events)))


_STATEMENTS = (
    (_SUBJECT_LAST, _SUBJECT_AFTER, _SUBJECT_COUNT),
    (_RUN_LAST, _RUN_AFTER, _RUN_COUNT),
)
"""Of a subject, and of a run: the last ones, those after an event, and their number."""


def _subject(tx: Reading, subject: str) -> dict[str, str]:
    kind, colon, name = subject.partition(":")
    kind = kind.strip().lower()
    if kind in _ALONE and not name.strip():
        return {"kind": kind, "name": _ALONE[kind]}
    if not colon or kind not in KINDS:
        raise BadArgument(
            f"subject is {subject[:60]!r}",
            f"{meant(kind, KINDS)}Write KIND:NAME with a kind out of {', '.join(KINDS)}, e.g. "
            "thread:pr-830.",
        )
    name = fold(name)
    names = [name, *(within(name[:at], name[at + 1 :]) for at in _slashes(name))]
    found = (n for n in names if tx.one(_EXISTS, {"kind": kind, "name": n}) is not None)
    return {"kind": kind, "name": next(found, name)}


def _slashes(name: str) -> list[int]:
    """Where RUN/NAME may be divided."""
    return [at for at, c in enumerate(name) if c == "/"]


def event_with_version(tx: Reading, kind: str, name: str, version: int) -> Event | None:
    """The event that made this version of a subject."""
    row = tx.one(_VERSION, {"kind": kind, "name": name, "version": version})
    return None if row is None else event_of(row)


def last_events_of(tx: Reading, kind: str, name: str, limit: int) -> tuple[list[Event], int]:
    """The newest events of a subject, oldest first, and how many earlier ones (up to 1,000)."""
    params = {"kind": kind, "name": name, "limit": limit, "since": 0}
    events = [event_of(row) for row in tx.all(_SUBJECT_LAST, params)]
    return events[::-1], max(0, tx.scalar(_SUBJECT_COUNT, params) - len(events))


def last_events(tx: Reading, since: int, limit: int) -> list[Event]:
    """The newest changes after `since`, newest first.

    Traces of reads are none, nor is what became of facts with the one that was changed.
    """
    return [event_of(row) for row in tx.all(_LAST_CHANGES, {"since": since, "limit": limit})]


def last_events_of_run(tx: Reading, run: str, limit: int) -> tuple[list[Event], int]:
    """The newest events of a run (folded), oldest first, and how many earlier ones (to 1,000)."""
    params = {"name": run, "limit": limit, "since": 0}
    events = [event_of(row) for row in tx.all(_RUN_LAST, params)]
    return events[::-1], max(0, tx.scalar(_RUN_COUNT, params) - len(events))


def standing(tx: Reading, caller: Caller) -> tuple[int, int]:
    """The project of a caller, who need not be that of `tx`, and its last event; (0, 0) if none.

    None is also what the caller may not see: its project was merged into another one.
    """
    project = tx.project_of(caller)
    if caller.only is not None and project not in caller.only:
        return 0, 0
    return project, tx.scalar(_STANDING, {"id": project}) or 0


def touched(tx: Reading, since: int, upto: int) -> frozenset[tuple[str, str]] | None:
    """The subjects (kind, folded name) of the events after `since` to `upto`, but for traces.

    What was refused changed nothing: that something was, is one subject, `("refused", "")`. None
    if it was the project itself that changed: it was purged, or has another name.
    """
    span = {"since": since, "upto": upto}
    found = {(row["kind"], row["name"]) for row in tx.all(_TOUCHED, span)}
    if any(kind == "project" for kind, _ in found):
        return None
    if tx.one(_REFUSED, span) is not None:
        found.add(("refused", ""))
    return frozenset(found)


def count_of_run(tx: Reading, run: str, since: int) -> int:
    """How many changes a run (folded) saw after an event number; at most 1,000 are counted."""
    return tx.scalar(_RUN_CHANGES, {"name": run, "since": since})


def count_changes(tx: Reading, since: int) -> int:
    """How many changes there are after an event number; at most 1,000 are counted."""
    return tx.scalar(_CHANGES, {"since": since})
