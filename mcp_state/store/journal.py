"""The journal: append-only entries, in the agent's words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from mcp_state.errors import BadArgument, Conflict
from mcp_state.models import JournalEntry, JournalPage
from mcp_state.store import documents
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.text import clean, fold, one_line, tidy_name
from mcp_state.store.thread_rows import no_thread
from mcp_state.store.transaction import Params, Reading, Row, Writing, actor_of
from mcp_state.times import from_text

_INSERT = """
    INSERT INTO journal (project, seq, id, at, actor, kind, thread, text)
    VALUES (:project, :seq, :id, :now, :actor, :kind, :thread, :text)
"""
_ENTRY = "SELECT * FROM journal_rows WHERE project = :project AND seq = :seq"
_THREAD = "SELECT shown FROM threads WHERE project = :project AND name = :thread"
_TOPIC = """
    INSERT INTO journal_topics (project, topic, seq, number)
    SELECT :project, :topic, :seq, 1 + coalesce((
        SELECT number FROM journal_topics
        WHERE project = :project AND topic = :topic ORDER BY seq DESC LIMIT 1
    ), 0)
"""
_LAST_NUMBER = """
    SELECT number FROM journal_topics
    WHERE project = :project AND topic = :topic ORDER BY seq DESC LIMIT 1
"""
_BACK = """
    SELECT journal_rows.*, number FROM journal_topics
    JOIN journal_rows USING (project, seq)
    WHERE project = :project AND topic = :topic AND seq < :before
        AND (:agent = '' OR agent = :agent) AND (:kind = '' OR kind = :kind)
    ORDER BY seq DESC LIMIT :limit
"""
_FORWARD = """
    SELECT journal_rows.*, number FROM journal_topics
    JOIN journal_rows USING (project, seq)
    WHERE project = :project AND topic = :topic AND seq > :since AND seq < :before
        AND (:agent = '' OR agent = :agent) AND (:kind = '' OR kind = :kind)
    ORDER BY seq LIMIT :limit
"""
_NOW = 1 << 62
SHORTEN = "Shorten it, or write several entries; nothing was saved."


class Journal(Noun):
    """The journal of one project."""

    @writes
    def append(
        self,
        tx: Writing,
        text: str,
        *,
        kind: str = "",
        thread: str = "",
        idempotency_key: str = "",
    ) -> JournalEntry:
        """Write one entry. The same `idempotency_key` gives the first entry, marked `repeated`.

        Raises:
            BadArgument: the text is empty.
            NotFound: there is no such thread.
            Conflict: the idempotency key was used with another text.
            OverLimit: longer than an entry may be.
        """
        if not text.strip():
            raise BadArgument("text is empty", "Say what happened.")
        tx.subject = ("journal", str(tx.seq))
        kind = fold(tx.name(kind, "kind")) if kind else ""
        name = fold(tidy_name(thread, "thread")) if thread else ""
        text = tx.text(text, "the entry", tx.limits.entry, SHORTEN)
        digest = hashlib.sha256("\0".join((kind, name, text)).encode()).hexdigest()
        if idempotency_key:
            idempotency_key = tx.name(idempotency_key, "idempotency_key")
            if (first := tx.remembered("journal_append", idempotency_key)) is not None:
                return _again(tx, idempotency_key, digest, *first)
        if name and tx.one(_THREAD, {"thread": name}) is None:
            raise no_thread(
                tx, thread, "Create it with thread_set, or leave thread out; nothing was saved."
            )
        seq, agent = tx.seq, tx.caller.actor.agent
        row = {"id": tx.clock.new_id("j-"), "kind": kind, "thread": name, "text": text}
        tx.run(_INSERT, row)
        for topic, value in (("", "all"), ("agent:", agent), ("kind:", kind), ("thread:", name)):
            if value:
                tx.run(_TOPIC, {"topic": topic + (value if topic else "")})
        tx.event("append", one_line(text.strip().partition("\n")[0], 120), row)
        documents.put(tx, "journal", str(seq), str(seq), text, seq)
        if name:
            documents.refer(tx, "thread", name)
        if idempotency_key:
            tx.remember("journal_append", idempotency_key, digest, seq)
        return _entry(tx, seq)

    @reads
    def tail(
        self,
        tx: Reading,
        *,
        limit: int = 10,
        before: int | None = None,
        since: int | None = None,
        thread: str = "",
        kind: str = "",
        actor: str = "",
    ) -> JournalPage:
        """The newest entries, oldest first.

        `before` (an event number) pages back; `since` reads forward from an event number. `actor`
        is an agent's name.

        Raises:
            NotFound: there is no such thread.
        """
        thread = tidy_name(thread, "thread") if thread.strip() else ""
        if thread and tx.one(_THREAD, {"thread": fold(thread)}) is None:
            raise no_thread(tx, thread, "Leave thread out to read all entries.")
        return tail(tx, limit, before, since, thread, kind, actor)


def tail(
    tx: Reading,
    limit: int,
    before: int | None = None,
    since: int | None = None,
    thread: str = "",
    kind: str = "",
    agent: str = "",
) -> JournalPage:
    """The page of entries that `Journal.tail` describes."""
    kind, agent = fold(kind), clean(agent)[0].strip()
    if thread.strip():
        topic = f"thread:{fold(thread)}"
    elif agent:
        topic, agent = f"agent:{agent}", ""
    elif kind:
        topic, kind = f"kind:{kind}", ""
    else:
        topic = ""
    params = {
        "topic": topic,
        "before": _NOW if before is None else before,
        "since": since,
        "agent": agent,
        "kind": kind,
        "limit": limit,
    }
    rows = tx.all(_BACK if since is None else _FORWARD, params)
    if since is None:
        rows.reverse()
    entries = [entry_of(row) for row in rows]
    if agent or kind:
        return JournalPage(entries, *_beyond(tx, params, rows))
    total: int = tx.scalar(_LAST_NUMBER, params) or 0
    if not rows:
        return JournalPage(entries, *((0, total) if since is None else (total, 0)))
    return JournalPage(entries, rows[0]["number"] - 1, total - rows[-1]["number"])


def _beyond(tx: Reading, params: Params, rows: Sequence[Row]) -> tuple[int | None, int | None]:
    """Whether there are entries before and after these: None, else 0. Counting would scan."""
    since, before = params["since"], params["before"]
    first = rows[0]["seq"] if rows else before if since is None else since + 1
    last = rows[-1]["seq"] if rows else first - 1
    older = tx.one(_BACK, {**params, "before": first, "limit": 1})
    newer = tx.one(_FORWARD, {**params, "since": last, "before": _NOW, "limit": 1})
    return None if older else 0, None if newer else 0


def entry_of(row: Row, *, repeated: bool = False) -> JournalEntry:
    """The model of a row."""
    return JournalEntry(
        seq=row["seq"],
        id=row["id"],
        at=from_text(row["at"]),
        actor=actor_of(row),
        kind=row["kind"],
        thread=row["thread_shown"],
        text=row["text"],
        repeated=repeated,
    )


def _entry(tx: Reading, seq: int, *, repeated: bool = False) -> JournalEntry:
    row = tx.one(_ENTRY, {"seq": seq})
    assert row is not None
    return entry_of(row, repeated=repeated)


def _again(tx: Reading, key: str, digest: str, first: str, seq: int) -> JournalEntry:
    if first != digest:
        raise Conflict(
            f"idempotency key {key!r} was used for another entry (event {seq})",
            "Use a new key for a new entry.",
        )
    return _entry(tx, seq, repeated=True)
