"""What the page for people shows beside the pages of the nouns: who waits for whom, and such."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime

from mcp_state.models import Actor, Status
from mcp_state.record import record
from mcp_state.store.run_rows import find_run
from mcp_state.store.text import fold, tidy_name, within
from mcp_state.store.thread_rows import find_row
from mcp_state.store.transaction import Reading, actor_of, time_of
from mcp_state.times import from_text

_NEEDS = """
    SELECT needed AS name, shown, title, status FROM needs
    JOIN threads ON threads.project = needs.project AND threads.name = needed
    WHERE needs.project = :project AND thread = :name AND (:closed OR status <> 'done')
    ORDER BY needed LIMIT :limit
"""
_NEEDED_BY = """
    SELECT thread AS name, shown, title, status FROM needs
    JOIN threads ON threads.project = needs.project AND threads.name = thread
    WHERE needs.project = :project AND needed = :name
        AND (:closed OR status NOT IN ('done', 'dropped'))
    ORDER BY thread LIMIT :limit
"""
# Each topic is found by index from the one before: a journal has few, but many entries of each.
_TOPICS = """
    WITH RECURSIVE topics (topic) AS (
        SELECT min(topic) FROM journal_topics
        WHERE project = :project AND topic > :first AND topic < :end
        UNION ALL
        SELECT (
            SELECT min(topic) FROM journal_topics
            WHERE project = :project AND topic > topics.topic AND topic < :end
        ) FROM topics WHERE topics.topic IS NOT NULL
    )
    SELECT topic FROM topics WHERE topic IS NOT NULL LIMIT :limit
"""
_VERSIONS = """
    SELECT version, at, operation, summary, agent, client, session,
        length(json_extract(row, '$.value')) AS size
    FROM event_rows
    WHERE project = :project AND kind = 'memory' AND name = :name
        AND version IS NOT NULL AND version < :before
    ORDER BY version DESC LIMIT :limit
"""
_CURRENT = """
    SELECT version FROM memory
    WHERE project = :project AND run = :run AND name = :name AND value IS NOT NULL
        AND (expires_at IS NULL OR expires_at > :now)
"""
_ATTEMPTS = """
    SELECT steps.shown, number, begun, begun_at, ended_at, ok,
        attempts.tokens_in + attempts.tokens_out AS tokens
    FROM steps
    CROSS JOIN attempts
    WHERE steps.project = :project AND steps.run = :run AND steps.status = :status
        AND attempts.project = steps.project AND attempts.run = steps.run
        AND attempts.step = steps.name
    ORDER BY steps.changed DESC LIMIT :limit
"""
_FAR = 1 << 62


@record
class Waits:
    """Whom a thread waits for, and who waits for it: those that are not done, at most 10 each."""

    thread: str
    needs: Sequence[str]
    needed_by: Sequence[str]


@record
class ThreadNode:
    """A thread that another one leads to, so many steps away: `depth` below 0 waits for it."""

    name: str
    title: str
    status: Status
    depth: int


@record
class ThreadGraph:
    """Who waits for whom around a thread: `waits` are pairs of one and what it needs.

    `more`: there are others, which are left out.
    """

    nodes: Sequence[ThreadNode]
    waits: Sequence[tuple[str, str]]
    more: bool


@record
class BlockVersion:
    """One version of a block; `size` None is its deletion."""

    version: int
    at: datetime
    actor: Actor
    operation: str
    summary: str
    size: int | None
    current: bool


@record
class AttemptMade:
    """An attempt of a step, for a chart."""

    step: str
    number: int
    begun_at: datetime
    ended_at: datetime | None
    ok: bool | None
    tokens: int


def waits_of(tx: Reading, threads: Iterable[str]) -> list[Waits]:
    """Of some threads by name, those that wait for others or keep others waiting."""
    found: list[Waits] = []
    for thread in threads:
        at = {"name": fold(thread), "closed": False, "limit": 10}
        needs, needed_by = ([r["shown"] for r in tx.all(sql, at)] for sql in (_NEEDS, _NEEDED_BY))
        if needs or needed_by:
            found.append(Waits(thread, needs, needed_by))
    return found


def thread_graph(tx: Reading, thread: str, most: int = 60) -> ThreadGraph:
    """What a thread waits for and what waits for it, and so on, the nearest first."""
    start = find_row(tx, thread)
    node = ThreadNode(start["shown"], start["title"], Status(start["status"]), 0)
    nodes = {start["name"]: node}
    waits: dict[tuple[str, str], None] = {}
    more = False
    waiting = deque([(start["name"], _NEEDS, 1), (start["name"], _NEEDED_BY, -1)])
    while waiting:
        name, sql, step = waiting.popleft()
        for row in tx.all(sql, {"name": name, "closed": True, "limit": most + 1}):
            other = row["name"]
            if other not in nodes:
                if len(nodes) > most:
                    more = True
                    continue
                depth, status = nodes[name].depth + step, Status(row["status"])
                nodes[other] = ThreadNode(row["shown"], row["title"], status, depth)
                waiting.append((other, sql, step))
            first, second = (name, other) if step > 0 else (other, name)
            waits[nodes[first].name, nodes[second].name] = None
    return ThreadGraph(list(nodes.values()), list(waits), more)


def journal_topics(tx: Reading, kind: str, limit: int = 100) -> list[str]:
    """The kinds (`kind`) or the agents (`agent`) that there are journal entries of."""
    first = f"{kind}:"
    rows = tx.all(_TOPICS, {"first": first, "end": f"{kind};", "limit": limit})
    return [row["topic"].removeprefix(first) for row in rows]


def block_versions(
    tx: Reading, key: str, run: str, before: int | None, limit: int
) -> list[BlockVersion]:
    """The versions of a block, the newest first, or those before a version.

    Raises:
        NotFound: there is no such run.
    """
    name, run = fold(tidy_name(key, "key")), find_run(tx, run)["name"] if run.strip() else ""
    current = tx.scalar(_CURRENT, {"run": run, "name": name})
    at = {"name": within(run, name), "before": _FAR if before is None else before, "limit": limit}
    return [
        BlockVersion(
            version=row["version"],
            at=from_text(row["at"]),
            actor=actor_of(row),
            operation=row["operation"],
            summary=row["summary"],
            size=row["size"],
            current=row["version"] == current,
        )
        for row in tx.all(_VERSIONS, at)
    ]


def last_attempts(tx: Reading, run: str, limit: int = 300) -> list[AttemptMade]:
    """The attempts of the steps of a run that were changed last, in the order of their begin."""
    name = find_run(tx, run)["name"]
    rows = [
        row
        for status in ("open", "failed", "done")
        for row in tx.all(_ATTEMPTS, {"run": name, "status": status, "limit": limit})
    ]
    rows.sort(key=lambda row: row["begun"])
    return [
        AttemptMade(
            step=row["shown"],
            number=row["number"],
            begun_at=from_text(row["begun_at"]),
            ended_at=time_of(row["ended_at"]),
            ok=None if row["ok"] is None else bool(row["ok"]),
            tokens=row["tokens"],
        )
        for row in rows[-limit:]
    ]
