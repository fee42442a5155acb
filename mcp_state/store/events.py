"""The record behind everything: what changed, in order, by whom."""

from __future__ import annotations

from mcp_state.errors import BadArgument
from mcp_state.models import Event, EventPage
from mcp_state.store.noun import Noun, reads
from mcp_state.store.text import fold
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
KINDS = ("memory", "thread", "journal", "project")


class Events(Noun):
    """The history of one project."""

    @reads
    def history(
        self, tx: Reading, subject: str = "", *, since: int | None = None, limit: int = 20
    ) -> EventPage:
        """Events of one subject (`thread:pr-830`), or of all.

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
            params |= _subject(subject)
            sql = _SUBJECT_LAST if since is None else _SUBJECT_AFTER
            events = [event_of(row) for row in tx.all(sql, params)]
            total = tx.scalar(_SUBJECT_COUNT, params)
        events.sort(key=lambda event: event.seq)
        return EventPage(events, total - len(events))


def _subject(subject: str) -> dict[str, str]:
    kind, colon, name = subject.partition(":")
    kind = kind.strip().lower()
    if not colon or kind not in KINDS:
        raise BadArgument(
            f"subject is {subject[:60]!r}",
            f"Write KIND:NAME with a kind out of {', '.join(KINDS)}, e.g. thread:pr-830.",
        )
    return {"kind": kind, "name": fold(name)}


def event_with_version(tx: Reading, kind: str, name: str, version: int) -> Event | None:
    """The event that made this version of a subject."""
    row = tx.one(_VERSION, {"kind": kind, "name": name, "version": version})
    return None if row is None else event_of(row)


def last_events_of(tx: Reading, kind: str, name: str, limit: int) -> tuple[list[Event], int]:
    """The newest events of a subject, oldest first, and how many earlier ones (up to 1,000)."""
    params = {"kind": kind, "name": name, "limit": limit, "since": 0}
    events = [event_of(row) for row in tx.all(_SUBJECT_LAST, params)]
    return events[::-1], tx.scalar(_SUBJECT_COUNT, params) - len(events)


def last_events(tx: Reading, since: int, limit: int) -> list[Event]:
    """The newest events after `since`, newest first."""
    return [event_of(row) for row in tx.all(_LAST, {"since": since, "limit": limit})]
