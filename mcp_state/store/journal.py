"""The journal: append-only entries, in the agent's words."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from mcp_state.calls import argument, tool
from mcp_state.errors import BadArgument, Conflict
from mcp_state.models import Actor, JournalEntry, JournalPage
from mcp_state.store import documents
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.run_rows import named_run
from mcp_state.store.text import clean, fold, one_line, tidy_name
from mcp_state.store.thread_rows import no_thread
from mcp_state.store.transaction import Params, Reading, Row, Writing
from mcp_state.times import from_text

_INSERT = """
    INSERT INTO journal (project, seq, id, at, actor, kind, thread, text, run)
    VALUES (:project, :seq, :id, :now, :actor, :kind, :thread, :text, :run)
"""
_ENTRY = """
    SELECT seq, id, at, agent, client, session, kind, thread_shown, text, run_shown
    FROM journal_rows WHERE project = :project AND seq = :seq
"""
_THREAD = "SELECT shown FROM threads WHERE project = :project AND name = :thread"
TOPIC = """
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
# CROSS JOIN: SQLite would rather walk the whole journal where a topic has few entries.
_BACK = """
    SELECT journal_rows.seq, id, at, agent, client, session, kind, thread_shown, text, run_shown,
        number
    FROM journal_topics CROSS JOIN journal_rows
    WHERE journal_topics.project = :project AND topic = :topic AND journal_topics.seq < :before
        AND journal_rows.project = :project AND journal_rows.seq = journal_topics.seq
        AND (:agent = '' OR agent = :agent) AND (:kind = '' OR kind = :kind)
        AND (:run = '' OR run = :run) AND (:thread = '' OR thread = :thread)
    ORDER BY journal_topics.seq DESC LIMIT :limit
"""
_FORWARD = """
    SELECT journal_rows.seq, id, at, agent, client, session, kind, thread_shown, text, run_shown,
        number
    FROM journal_topics CROSS JOIN journal_rows
    WHERE journal_topics.project = :project AND topic = :topic
        AND journal_topics.seq > :since AND journal_topics.seq < :before
        AND journal_rows.project = :project AND journal_rows.seq = journal_topics.seq
        AND (:agent = '' OR agent = :agent) AND (:kind = '' OR kind = :kind)
        AND (:run = '' OR run = :run) AND (:thread = '' OR thread = :thread)
    ORDER BY journal_topics.seq LIMIT :limit
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
        run: str = "",
        idempotency_key: str = "",
    ) -> JournalEntry:
        """Write one entry. The same `idempotency_key` gives the first entry, marked `repeated`.

        Without `run` it belongs to the open run that this session last worked on.

        Raises:
            BadArgument: the text is empty.
            NotFound: there is no such thread or run.
            Conflict: the idempotency key was used with another text.
            OverLimit: longer than an entry may be.
        """
        return append_entry(tx, text, kind, thread, run, idempotency_key)

    @reads
    def tail(
        self,
        tx: Reading,
        *,
        limit: int = 10,
        before: int | None = None,
        since: int | None = None,
        thread: str = "",
        run: str = "",
        kind: str = "",
        actor: str = "",
    ) -> JournalPage:
        """The newest entries, oldest first.

        `before` (an event number) pages back; `since` reads forward from an event number. `actor`
        is an agent's name.

        Raises:
            NotFound: there is no such thread or run.
        """
        thread = tidy_name(thread, "thread") if thread.strip() else ""
        if thread and tx.one(_THREAD, {"thread": fold(thread)}) is None:
            raise no_thread(tx, thread, "Leave thread out to read all entries.")
        return tail(tx, limit, before, since, thread, kind, actor, named_run(tx, run))


def append_entry(
    tx: Writing,
    text: str,
    kind: str = "",
    thread: str = "",
    run: str = "",
    idempotency_key: str = "",
) -> JournalEntry:
    """Do what `Journal.append` describes."""
    if not text.strip():
        raise BadArgument("text is empty", "Say what happened.")
    tx.subject = ("journal", str(tx.seq))
    tx.of_run = named_run(tx, run) or tx.current_run()
    kind = fold(tx.name(kind, "kind")) if kind else ""
    name = fold(tidy_name(thread, "thread")) if thread else ""
    text = tx.text(text, "the entry", tx.limits.entry, SHORTEN)
    said = (kind, name, text, *filter(None, [fold(run)]))
    digest = hashlib.sha256("\0".join(said).encode()).hexdigest()
    if idempotency_key:
        idempotency_key = tx.name(idempotency_key, "idempotency_key")
        if (first := tx.remembered("journal_append", idempotency_key)) is not None:
            return _again(tx, idempotency_key, digest, *first)
    if name and tx.one(_THREAD, {"thread": name}) is None:
        raise no_thread(
            tx,
            thread,
            f"Create it with {tool('thread_set')}, or leave {argument('thread')} out; nothing "
            "was saved.",
        )
    seq, agent = tx.seq, tx.caller.actor.agent
    row = {"id": tx.clock.new_id("j-"), "kind": kind, "thread": name, "text": text}
    row["run"] = tx.of_run
    tx.run(_INSERT, row)
    for topic in topics_of(agent, row):
        tx.run(TOPIC, {"topic": topic, "seq": seq})
    tx.event("append", one_line(text.strip().partition("\n")[0], 120), row)
    documents.put(tx, "journal", str(seq), str(seq), text, seq, tx.of_run)
    if name:
        documents.refer(tx, "thread", name)
    if idempotency_key:
        tx.remember("journal_append", idempotency_key, digest, seq)
    return _entry(tx, seq)


def topics_of(agent: str, row: Row | Params) -> list[str]:
    """All that an entry can be asked for by; `row` has its kind, thread and run, folded."""
    topics = {"agent:": agent, "kind:": row["kind"], "thread:": row["thread"], "run:": row["run"]}
    return ["", *(word + value for word, value in topics.items() if value)]


def tail(
    tx: Reading,
    limit: int,
    before: int | None = None,
    since: int | None = None,
    thread: str = "",
    kind: str = "",
    agent: str = "",
    run: str = "",
) -> JournalPage:
    """The page of entries that `Journal.tail` describes; `run` is folded."""
    wanted = {"thread": fold(thread), "run": run, "agent": clean(agent)[0].strip()}
    wanted["kind"] = fold(kind)
    narrowest, topic = _narrowest(tx, wanted)
    params = {
        **wanted,
        narrowest: "",
        "topic": topic,
        "before": _NOW if before is None else before,
        "since": since,
        "limit": limit,
    }
    rows = tx.all(_BACK if since is None else _FORWARD, params)
    if since is None:
        rows.reverse()
    entries = [entry_of(row) for row in rows]
    if sum(map(bool, wanted.values())) > 1:
        return JournalPage(entries, *_beyond(tx, params, rows))
    total: int = tx.scalar(_LAST_NUMBER, params) or 0
    if not rows:
        return JournalPage(entries, *((0, total) if since is None else (total, 0)))
    return JournalPage(entries, rows[0]["number"] - 1, total - rows[-1]["number"])


def _narrowest(tx: Reading, wanted: Mapping[str, str]) -> tuple[str, str]:
    """Which of the filters has the fewest entries, and the topic that lists them."""
    topics = {word: f"{word}:{value}" for word, value in wanted.items() if value}
    if len(topics) < 2:
        return next(iter(topics.items()), ("", ""))
    sizes = {word: tx.scalar(_LAST_NUMBER, {"topic": topics[word]}) or 0 for word in topics}
    word = min(topics, key=sizes.__getitem__)
    return word, topics[word]


def _beyond(tx: Reading, params: Params, rows: Sequence[Row]) -> tuple[int | None, int | None]:
    """Whether there are entries before and after these: None, else 0. Counting would scan."""
    since, before = params["since"], params["before"]
    first = rows[0]["seq"] if rows else before if since is None else since + 1
    last = rows[-1]["seq"] if rows else first - 1
    older = tx.one(_BACK, {**params, "before": first, "limit": 1})
    newer = tx.one(_FORWARD, {**params, "since": last, "before": _NOW, "limit": 1})
    return None if older else 0, None if newer else 0


def entry_of(row: Row, *, repeated: bool = False) -> JournalEntry:
    """The model of a row whose first columns are those of `_ENTRY`."""
    seq, id_, at, agent, client, session, kind, thread, text, run, *_ = row
    actor = Actor(agent, client, session)
    return JournalEntry(seq, id_, from_text(at), actor, kind, thread, text, run, repeated)


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
