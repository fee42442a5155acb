"""Whether the rows of a store say the same as its events, its counters and its index.

Runs on a copy of the store, row by row, and reports what it finds in words.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from mcp_state.models import Actor, Caller, Limits
from mcp_state.record import record
from mcp_state.store import (
    blobs,
    documents,
    fact_rows,
    handoffs,
    memory,
    objectives,
    run_rows,
    thread_rows,
)
from mcp_state.store.graphs import in_circles
from mcp_state.store.refusals import is_out_of_space
from mcp_state.store.text import WITHIN, within
from mcp_state.store.transaction import Reading, Row
from mcp_state.times import Clock

RESTORE = (
    "`mcp-state restore BACKUP` puts a good copy in its place; the damaged file is kept beside it."
)
_REINDEX = (
    "What is stored is whole, only search is wrong. "
    "`mcp-state restore BACKUP` puts a good copy in its place."
)
MORE_ROOM = "Name a directory with more room in TMPDIR and run doctor again."
_EXAMPLES = 5

Severity = Literal["ok", "warning", "damage"]


@record
class Finding:
    """One thing that was looked at: in order, to be known, or damaged; and the way out."""

    severity: Severity
    what: str
    way_out: str = ""


@record
class _Check:
    """A question whose every row of answer describes one contradiction."""

    name: str
    sql: str
    way_out: str = RESTORE


_CHECKS = (
    _Check(
        "event numbers",
        """
        SELECT shown || ': ' || coalesce(n, 0) || ' events, numbered ' || coalesce(lo, 0) || ' to '
            || coalesce(hi, 0) || ', and the last one should be ' || last_event
        FROM projects LEFT JOIN (
            SELECT project, count(*) AS n, min(seq) AS lo, max(seq) AS hi
            FROM events GROUP BY project
        ) ON project = projects.id
        WHERE coalesce(n, 0) <> last_event OR coalesce(lo, 1) <> 1 OR coalesce(hi, 0) <> last_event
        """,
    ),
    _Check(
        "number of changes",
        """
        SELECT changes || ' changes were counted, there are ' || n || ' events'
        FROM store, (SELECT count(*) AS n FROM events) WHERE changes < n
        """,
    ),
    _Check(
        "counts of threads",
        """
        SELECT shown || ': ' || active || ' active, ' || watching || ' watching, ' || blocked
            || ' blocked, ' || done || ' done, ' || dropped || ' dropped; counted are '
            || coalesce(a, 0) || ', ' || coalesce(w, 0) || ', ' || coalesce(b, 0) || ', '
            || coalesce(d, 0) || ', ' || coalesce(x, 0)
        FROM projects LEFT JOIN (
            SELECT project, sum(status = 'active') AS a, sum(status = 'watching') AS w,
                sum(status = 'blocked') AS b, sum(status = 'done') AS d,
                sum(status = 'dropped') AS x
            FROM threads GROUP BY project
        ) ON project = projects.id
        WHERE (active, watching, blocked, done, dropped) <> (
            coalesce(a, 0), coalesce(w, 0), coalesce(b, 0), coalesce(d, 0), coalesce(x, 0)
        )
        """,
    ),
    _Check(
        "counts of journal entries and blocks",
        """
        SELECT shown || ': ' || journal || ' entries and ' || memory || ' blocks; counted are '
            || coalesce(j, 0) || ' and ' || coalesce(m, 0)
        FROM projects
        LEFT JOIN (SELECT project AS jp, count(*) AS j FROM journal GROUP BY project)
            ON jp = projects.id
        LEFT JOIN (
            SELECT project AS mp, count(value) AS m FROM memory WHERE run = '' GROUP BY project
        ) ON mp = projects.id
        WHERE journal <> coalesce(j, 0) OR memory <> coalesce(m, 0)
        """,
    ),
    _Check(
        "last event of each session",
        """
        SELECT 'project ' || project || ', session ' || actor || ': event ' || seq FROM (
            SELECT * FROM (
                SELECT project, actor, max(seq) AS seq FROM events WHERE kind <> 'trace'
                GROUP BY project, actor
                EXCEPT SELECT project, actor, seq FROM last_events
            ) UNION SELECT * FROM (
                SELECT project, actor, seq FROM last_events
                EXCEPT SELECT project, actor, max(seq) AS seq FROM events WHERE kind <> 'trace'
                GROUP BY project, actor
            )
        )
        """,
    ),
    _Check(
        "journal topics",
        """
        WITH expected AS (
            SELECT project, '' AS topic, seq FROM journal
            UNION ALL SELECT project, 'kind:' || kind, seq FROM journal WHERE kind <> ''
            UNION ALL SELECT project, 'thread:' || thread, seq FROM journal WHERE thread <> ''
            UNION ALL SELECT project, 'run:' || run, seq FROM journal WHERE run <> ''
            UNION ALL SELECT project, 'agent:' || agent, seq
            FROM journal JOIN actors ON actors.id = actor WHERE agent <> ''
        ), numbered AS (
            SELECT project, topic, seq,
                row_number() OVER (PARTITION BY project, topic ORDER BY seq) AS number
            FROM expected
        )
        SELECT 'entry ' || seq || ' of project ' || project || ' under ' || quote(topic) FROM (
            SELECT * FROM (
                SELECT project, topic, seq, number FROM numbered
                EXCEPT SELECT project, topic, seq, number FROM journal_topics
            ) UNION SELECT * FROM (
                SELECT project, topic, seq, number FROM journal_topics
                EXCEPT SELECT project, topic, seq, number FROM numbered
            )
        )
        """,
    ),
    _Check(
        "criteria and dependencies of threads",
        """
        SELECT 'thread ' || shown || ' of project ' || project || ': ' || passing || '/' || criteria
            || ' pass, waits for ' || open_needs
            || '; counted are ' || p || '/' || c || ' and ' || o
        FROM (
            SELECT threads.*,
                (SELECT count(*) FROM criteria AS one
                 WHERE one.project = threads.project AND one.thread = threads.name) AS c,
                (SELECT coalesce(sum(passes), 0) FROM criteria AS one
                 WHERE one.project = threads.project AND one.thread = threads.name) AS p,
                (SELECT count(*) FROM needs
                 JOIN threads AS other
                    ON other.project = needs.project AND other.name = needs.needed
                 WHERE needs.project = threads.project AND needs.thread = threads.name
                    AND other.status <> 'done') AS o
            FROM threads
        ) WHERE (criteria, passing, open_needs) <> (c, p, o)
        """,
    ),
    _Check(
        "counts of facts",
        """
        SELECT shown || ': ' || provisional || ' provisional, ' || trusted || ' trusted, ' || stale
            || ' stale, ' || refuted || ' refuted, ' || archival || ' archival; counted are '
            || coalesce(p, 0) || ', ' || coalesce(t, 0) || ', ' || coalesce(s, 0) || ', '
            || coalesce(r, 0) || ', ' || coalesce(a, 0)
        FROM projects LEFT JOIN (
            SELECT project, sum(trust = 'provisional') AS p, sum(trust = 'trusted') AS t,
                sum(trust = 'stale') AS s, sum(trust = 'refuted') AS r,
                sum(trust = 'archival') AS a
            FROM facts GROUP BY project
        ) ON project = projects.id
        WHERE (provisional, trusted, stale, refuted, archival) <> (
            coalesce(p, 0), coalesce(t, 0), coalesce(s, 0), coalesce(r, 0), coalesce(a, 0)
        )
        """,
    ),
    _Check(
        "verifications of facts",
        """
        SELECT 'fact ' || shown || ' of project ' || project || ' says that event ' || verified
            || ' verified it, and that it ' || iif(held, 'held', 'did not hold')
            || '; its newest verification is event ' || coalesce(seq, 0)
            || iif(is_another, ', of another statement or check', '')
        FROM (
            SELECT facts.*, events.seq, at, actor, json_extract(row, '$.held') AS said,
                statement <> json_extract(row, '$.statement')
                    OR held AND "check" <> json_extract(row, '$.check') AS is_another
            FROM facts LEFT JOIN events ON events.project = facts.project AND events.seq = (
                SELECT seq FROM events
                WHERE events.project = facts.project AND kind = 'fact'
                    AND events.name = facts.name AND operation = 'verify'
                ORDER BY events.seq DESC LIMIT 1
            )
            WHERE verified IS NOT NULL
        ) WHERE is_another
            OR (verified, verified_at, verified_by, held) IS NOT (seq, at, actor, said)
        """,
    ),
    _Check(
        "statements of facts",
        """
        SELECT 'fact ' || shown || ' of project ' || project || ' says that event ' || stated
            || ' stated it, at ' || stated_at || ' by actor ' || stated_by || '; event '
            || coalesce(seq, 0) || ' did, at ' || coalesce(at, '') || ' by ' || coalesce(actor, '')
        FROM (
            SELECT facts.*, events.seq, at, actor
            FROM facts LEFT JOIN events ON events.project = facts.project AND events.seq = (
                SELECT seq FROM events
                WHERE events.project = facts.project AND kind = 'fact'
                    AND events.name = facts.name
                    AND (operation = 'supersede' OR operation = 'record' AND events.version = 1)
                ORDER BY events.seq DESC LIMIT 1
            )
        ) WHERE (stated, stated_at, stated_by) IS NOT (seq, at, actor)
        """,
    ),
    _Check(
        "when reasons were given",
        """
        SELECT 'fact ' || fact || ' of project ' || project || ' rests on ' || premise
            || ' since event ' || given || ', which says nothing of them'
        FROM premises WHERE given <> 0 AND NOT EXISTS (
            SELECT 1 FROM events
            WHERE events.project = premises.project AND seq = given AND kind = 'fact'
                AND name IN (fact, premise) AND operation IN ('record', 'supersede')
        )
        """,
    ),
    _Check(
        "reasons of facts",
        """
        SELECT 'fact ' || shown || ' of project ' || project || ' is ' || trust
            || iif(trust = 'stale', ' and due', '') || ', and each of its reasons has fallen'
        FROM facts
        WHERE (trust NOT IN ('stale', 'refuted') OR recheck_at IS NOT NULL) AND EXISTS (
            SELECT 1 FROM premises
            WHERE premises.project = facts.project AND premises.fact = facts.name
        ) AND NOT EXISTS (
            SELECT 1 FROM premise_rows AS premise
            WHERE premise.project = facts.project AND premise.fact = facts.name
            GROUP BY reason HAVING sum(fallen) = 0
        )
        """,
    ),
    _Check(
        "what fell and stands again",
        """
        SELECT 'fact ' || shown || ' of project ' || project || ' is stale and not due, but a '
            || 'reason of it holds'
        FROM facts WHERE trust = 'stale' AND recheck_at IS NULL AND EXISTS (
            SELECT 1 FROM premise_rows AS premise
            WHERE premise.project = facts.project AND premise.fact = facts.name
            GROUP BY reason HAVING sum(fallen) = 0
        )
        """,
    ),
    _Check(
        "counts of runs",
        """
        SELECT shown || ': ' || open || ' open, ' || completed || ' completed, ' || failed
            || ' failed, ' || abandoned || ' abandoned, ' || stopped || ' steps refused; counted '
            || 'are ' || coalesce(o, 0) || ', ' || coalesce(c, 0) || ', ' || coalesce(f, 0) || ', '
            || coalesce(a, 0) || ', ' || coalesce(s, 0)
        FROM projects LEFT JOIN (
            SELECT project AS rp, sum(status = 'open') AS o, sum(status = 'completed') AS c,
                sum(status = 'failed') AS f, sum(status = 'abandoned') AS a
            FROM runs GROUP BY project
        ) ON rp = projects.id LEFT JOIN (
            SELECT project AS sp, sum(stopped) AS s FROM steps GROUP BY project
        ) ON sp = projects.id
        WHERE (open, completed, failed, abandoned, stopped) <> (
            coalesce(o, 0), coalesce(c, 0), coalesce(f, 0), coalesce(a, 0), coalesce(s, 0)
        )
        """,
    ),
    _Check(
        "totals of runs",
        """
        SELECT 'run ' || shown || ' of project ' || project || ': ' || checkpoints
            || ' checkpoints, ' || steps_done || '/' || steps || ' steps, ' || attempts
            || ' attempts, ' || tokens_in || ' + ' || tokens_out || ' tokens; counted are '
            || c || ', ' || d || '/' || s || ', ' || a || ', ' || i || ' + ' || o
        FROM (
            SELECT runs.*,
                (SELECT count(*) FROM checkpoints AS one
                 WHERE one.project = runs.project AND one.run = runs.name) AS c,
                (SELECT count(*) FROM steps AS one
                 WHERE one.project = runs.project AND one.run = runs.name) AS s,
                (SELECT count(*) FROM steps AS one
                 WHERE one.project = runs.project AND one.run = runs.name
                    AND one.status = 'done') AS d,
                (SELECT count(*) FROM attempts AS one
                 WHERE one.project = runs.project AND one.run = runs.name) AS a,
                (SELECT coalesce(sum(tokens_in), 0) FROM attempts AS one
                 WHERE one.project = runs.project AND one.run = runs.name) AS i,
                (SELECT coalesce(sum(tokens_out), 0) FROM attempts AS one
                 WHERE one.project = runs.project AND one.run = runs.name) AS o
            FROM runs
        ) WHERE (checkpoints, steps, steps_done, attempts, tokens_in, tokens_out)
            <> (c, s, d, a, i, o)
        """,
    ),
    _Check(
        "totals of steps",
        """
        SELECT 'step ' || shown || ' of run ' || run || ' of project ' || project || ': '
            || attempts || ' attempts, ' || tokens_in || ' + ' || tokens_out
            || ' tokens; counted are ' || a || ', ' || i || ' + ' || o
        FROM (
            SELECT steps.*, count(number) AS a, coalesce(sum(attempts.tokens_in), 0) AS i,
                coalesce(sum(attempts.tokens_out), 0) AS o
            FROM steps LEFT JOIN attempts ON attempts.project = steps.project
                AND attempts.run = steps.run AND attempts.step = steps.name
            GROUP BY steps.project, steps.run, steps.name
        ) WHERE (attempts, tokens_in, tokens_out) <> (a, i, o)
        """,
    ),
    _Check(
        "transcripts",
        """
        SELECT 'the transcript of run ' || run || ' of project ' || project || ' has ' || n
            || ' messages, numbered ' || lo || ' to ' || hi || ', and its events tell of '
            || coalesce(told, 0)
        FROM (
            SELECT project, run, count(*) AS n, min(number) AS lo, max(number) AS hi, (
                SELECT json_extract(row, '$.last') FROM events
                WHERE events.project = messages.project AND kind = 'transcript'
                    AND name = messages.run AND operation <> 'refused'
                ORDER BY events.seq DESC LIMIT 1
            ) AS told
            FROM messages GROUP BY project, run
        ) WHERE lo <> 1 OR hi <> n OR told IS NOT n
        """,
    ),
    _Check(
        "versions",
        """
        SELECT kind || ':' || name || ' of project ' || project || ' is at version ' || version
            || ', its events show ' || coalesce(n, 0)
        FROM (
            SELECT 'memory' AS kind, project,
                iif(run = '', name, run || char(31) || name) AS name, version
            FROM memory
            UNION ALL SELECT 'thread', project, name, version FROM threads
            UNION ALL SELECT 'run', project, name, version FROM runs
            UNION ALL SELECT 'blob', project, key, version FROM blobs
            UNION ALL SELECT 'fact', project, name, version FROM facts
            UNION ALL SELECT 'objective', project, name, version FROM objectives
        ) LEFT JOIN (
            SELECT project, kind, name, count(*) AS n, max(version) AS last
            FROM events WHERE version IS NOT NULL GROUP BY project, kind, name
        ) USING (project, kind, name)
        WHERE version IS NOT n OR version IS NOT last
        """,
    ),
    _Check(
        "rows of events",
        """
        SELECT kind || ':' || name || ' of project ' || project || ' has events, but no row' FROM (
            SELECT project, kind, name FROM events
            WHERE kind NOT IN ('project', 'trace') AND operation <> 'refused'
            EXCEPT SELECT project, 'memory', iif(run = '', name, run || char(31) || name)
            FROM memory
            EXCEPT SELECT project, 'thread', name FROM threads
            EXCEPT SELECT project, 'journal', CAST(seq AS TEXT) FROM journal
            EXCEPT SELECT project, 'run', name FROM runs
            EXCEPT SELECT project, 'checkpoint', run || char(31) || number FROM checkpoints
            EXCEPT SELECT project, 'step', run || char(31) || name FROM steps
            EXCEPT SELECT project, 'transcript', run FROM messages
            EXCEPT SELECT project, 'blob', key FROM blobs
            EXCEPT SELECT project, 'handoff', key FROM handoffs
            EXCEPT SELECT project, 'fact', name FROM facts
            EXCEPT SELECT project, 'objective', name FROM objectives
        )
        """,
    ),
    _Check(
        "idempotency keys",
        """
        SELECT 'key ' || quote(key) || ' of project ' || project || ' leads to entry ' || seq
        FROM idempotency WHERE operation = 'journal_append' AND NOT EXISTS (
            SELECT 1 FROM journal
            WHERE journal.project = idempotency.project AND journal.seq = idempotency.seq
        )
        """,
    ),
    _Check(
        "foreign keys",
        """
        SELECT "table" || ' row ' || coalesce(rowid, '?') || ' leads to no ' || parent
        FROM pragma_foreign_key_check
        """,
    ),
    _Check(
        "documents of nothing",
        """
        SELECT kind || ':' || name || ' of project ' || project FROM (
            SELECT project, kind, name FROM documents
            EXCEPT SELECT project, 'memory', iif(run = '', name, run || char(31) || name)
            FROM memory WHERE value IS NOT NULL
            EXCEPT SELECT project, 'thread', name FROM threads
            EXCEPT SELECT project, 'journal', CAST(seq AS TEXT) FROM journal
            EXCEPT SELECT project, 'run', name FROM runs
            EXCEPT SELECT project, 'blob', key FROM blobs
            EXCEPT SELECT project, 'fact', name FROM facts
        )
        """,
        _REINDEX,
    ),
)
_APPENDED = """
    SELECT project, name, seq, row FROM events
    WHERE kind = 'transcript' AND operation = 'append' ORDER BY project, seq
"""
_MESSAGES = """
    SELECT message FROM messages
    WHERE project = :project AND run = :run AND number BETWEEN :first AND :last ORDER BY number
"""
_PREMISES = "SELECT fact, premise FROM premises WHERE project = :project"
_PROJECTS = "SELECT DISTINCT project FROM premises"
_NEWEST = """
    SELECT * FROM events
    WHERE project = :project AND kind = :kind AND name = :name AND operation <> 'refused'
    ORDER BY seq DESC LIMIT 1
"""
_VERSION = """
    SELECT seq, at, actor FROM events
    WHERE project = :project AND kind = :kind AND name = :name AND version = :version
"""
_DOCUMENT = """
    SELECT * FROM documents WHERE project = :project AND kind = :kind AND name = :name
"""
_ROWS: tuple[tuple[str, str], ...] = (
    ("memory", "SELECT * FROM memory_rows"),
    ("thread", "SELECT * FROM thread_rows"),
    ("journal", "SELECT *, CAST(seq AS TEXT) AS name FROM journal_rows"),
    ("run", "SELECT * FROM run_rows"),
    ("checkpoint", "SELECT *, CAST(number AS TEXT) AS name FROM checkpoint_rows"),
    ("step", "SELECT * FROM step_rows"),
    ("blob", "SELECT *, key AS name FROM blob_rows"),
    ("handoff", "SELECT *, key AS name FROM handoff_rows"),
    ("fact", "SELECT * FROM fact_rows"),
    ("objective", "SELECT * FROM objective_rows"),
)
_VERSIONED = ("memory", "thread", "run", "blob", "fact", "objective")


def inspect(connection: sqlite3.Connection, clock: Clock) -> Iterator[Finding]:
    """Ask a whole store of our schema everything that must hold. The connection may write."""
    connection.row_factory = sqlite3.Row
    for check in _CHECKS:
        yield _asked(check.name, _rows_of(connection, check.sql), check.way_out)
    tx = Reading(connection, Caller("", "", Actor("doctor")), clock, Limits())
    yield _asked("blobs", _against_content(connection), RESTORE)
    yield _asked("messages", _against_messages(connection), RESTORE)
    yield _asked("circles of facts", _circles(connection), RESTORE)
    for kind, sql in _ROWS:
        rows = _each(connection, tx, sql)
        yield _asked(f"{kind} rows against events", _against_events(tx, kind, rows), RESTORE)
        if kind not in documents.KINDS:
            continue
        rows = _each(connection, tx, sql)
        yield _asked(f"{kind} documents", _against_documents(tx, kind, rows), _REINDEX)
    yield _asked("full-text index", _index(connection), _REINDEX)


def _asked(name: str, contradictions: Iterator[str], way_out: str) -> Finding:
    """What was answered, with a few examples."""
    examples: list[str] = []
    count = 0
    try:
        for one in contradictions:
            count += 1
            if count <= _EXAMPLES:
                examples.append(one)
    except (sqlite3.Error, ValueError, LookupError, TypeError) as problem:
        if isinstance(problem, sqlite3.Error) and is_out_of_space(problem):
            return Finding("warning", f"{name}: not looked at ({problem})", MORE_ROOM)
        return Finding("damage", f"{name}: could not be read ({problem})", RESTORE)
    if not count:
        return Finding("ok", name)
    more = f" and {count - _EXAMPLES:,} more" if count > _EXAMPLES else ""
    return Finding("damage", f"{name}: {'; '.join(examples)}{more}", way_out)


def _rows_of(connection: sqlite3.Connection, sql: str) -> Iterator[str]:
    for row in connection.execute(sql):
        yield row[0] or "a row without a name"


def _against_content(connection: sqlite3.Connection) -> Iterator[str]:
    """A blob is known by the hash of its text."""
    for row in connection.execute(
        "SELECT project, key, sha256, bytes, characters, text FROM blobs"
    ):
        data = row["text"].encode()
        digest = hashlib.sha256(data).hexdigest()
        sizes = (row["bytes"], row["characters"])
        if digest != row["sha256"] or sizes != (len(data), len(row["text"])):
            yield f"{row['key']} of project {row['project']} is not the text that was put there"


def _against_messages(connection: sqlite3.Connection) -> Iterator[str]:
    """The events of a transcript hold the hash of the messages that they added."""
    for event in connection.execute(_APPENDED):
        kept = json.loads(event["row"])
        params = {"project": event["project"], "run": event["name"], **kept}
        added = [row["message"] for row in connection.execute(_MESSAGES, params)]
        if hashlib.sha256("\n".join(added).encode()).hexdigest() != kept["sha256"]:
            yield (
                f"{kept['first']} to {kept['last']} of run {event['name']} of project "
                f"{event['project']} are not what event {event['seq']} says"
            )


def _circles(connection: sqlite3.Connection) -> Iterator[str]:
    """Nothing is its own reason, however many facts lie between."""
    for (project,) in connection.execute(_PROJECTS).fetchall():
        links = connection.execute(_PREMISES, {"project": project})
        for name in sorted(in_circles(links)):
            yield f"fact:{name} of project {project} is in a circle of reasons"


def _against_events(tx: Reading, kind: str, rows: Iterator[Row]) -> Iterator[str]:
    for row in rows:
        subject = {"kind": kind, "name": _name(kind, row)}
        event = tx.one(_NEWEST, subject)
        said = _said(kind, row)
        if event is None:
            yield f"{said} has no event"
        elif kind == "journal":
            if (row["seq"], row["at"], row["actor"]) != (event["seq"], event["at"], event["actor"]):
                yield f"{said} was written by another event"
            elif _entry(row) != {"run": "", **(_row_in(event) or {})}:
                yield f"{said} is not what event {event['seq']} says"
        else:
            if not _same(_now(tx, kind, row), _row_in(event)):
                yield f"{said} is not what event {event['seq']} says"
            if kind not in _VERSIONED:
                continue
            version = tx.one(_VERSION, subject | {"version": row["version"]})
            changed = (row["changed"], row["changed_at"], row["changed_by"])
            if version is not None and changed != tuple(version):
                yield f"{said} was changed by another event than its version {row['version']}"


def _each(connection: sqlite3.Connection, tx: Reading, sql: str) -> Iterator[Row]:
    """Each row, with its project as the one that the transaction is about."""
    for row in connection.execute(sql):
        tx.project = row["project"]
        yield row


def _now(tx: Reading, kind: str, row: Row) -> Mapping[str, Any] | None:
    """The row as an event would keep it now."""
    if kind == "thread":
        return thread_rows.row_of(tx, row)
    if kind == "fact":
        return fact_rows.row_of(tx, row)
    if kind == "memory":
        return None if row["value"] is None else memory.row_of(row)
    if kind == "checkpoint":
        return run_rows.row_of_checkpoint(_shown_run(tx, row["run"]), row)
    return _ROW_OF[kind](row)


_ROW_OF: Mapping[str, Callable[[Row], Mapping[str, Any]]] = {
    "run": run_rows.row_of_run,
    "step": run_rows.row_of_step,
    "blob": blobs.row_of,
    "handoff": handoffs.row_of,
    "objective": objectives.row_of,
}


def _name(kind: str, row: Row) -> str:
    """The name by which events and documents know a row."""
    inside = kind in ("memory", "step", "checkpoint")
    return within(row["run"], row["name"]) if inside else row["name"]


def _said(kind: str, row: Row) -> str:
    name = _name(kind, row).replace(WITHIN, "/")
    return f"{kind}:{name} of project {row['project']}"


def _shown_run(tx: Reading, name: str) -> str:
    run = run_rows.run_row(tx, name)
    return "" if run is None else run["shown"]


def _entry(row: Row) -> Mapping[str, Any]:
    return {column: row[column] for column in ("id", "kind", "thread", "text", "run")}


def _row_in(event: Row) -> Mapping[str, Any] | None:
    return None if event["row"] is None else json.loads(event["row"])


def _same(row: Mapping[str, Any] | None, kept: Mapping[str, Any] | None) -> bool:
    """Whether they say the same. An event may say more: that of a step also tells of its attempt.

    Those of threads that older versions wrote know of no facts to rely on.
    """
    if row is None or kept is None:
        return row == kept
    if "relies_on" in row:
        kept = {"relies_on": [], **kept}
    kept = {key: value for key, value in kept.items() if key in row}
    return _unordered(row) == _unordered(kept)


def _unordered(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row without the order of names, which says nothing."""
    names = {key: sorted(row[key]) for key in ("depends_on", "relies_on") if key in row}
    reasons = {"reasons": list(map(sorted, row["reasons"]))} if "reasons" in row else {}
    return {**row, **names, **reasons}


def _against_documents(tx: Reading, kind: str, rows: Iterator[Row]) -> Iterator[str]:
    for row in rows:
        said = _said(kind, row)
        wanted = document_of(tx, kind, row)
        found = tx.one(_DOCUMENT, {"kind": kind, "name": _name(kind, row)})
        if wanted is None:
            continue
        if found is None:
            yield f"{said} can't be found by search"
        elif tuple(found[column] for column in ("shown", "seq", "text", "short")) != wanted:
            yield f"{said} is found by what it is not"
        else:
            first, end = documents.range_of(row["project"], kind)
            if not first <= found["id"] < end:
                yield f"{said} is indexed in the place of another project or kind"


def document_of(tx: Reading, kind: str, row: Row) -> Sequence[Any] | None:
    """The document that a row should have: shown, seq, text, short."""
    found = _DOCUMENT_OF[kind](tx, row)
    if found is None:
        return None
    shown, seq, text, run = found
    text = documents.indexed(text)
    return shown, seq, text, documents.short(text, run)


def _of_memory(tx: Reading, row: Row) -> tuple[str, int, str, str] | None:
    if row["value"] is None:
        return None
    shown = f"{_shown_run(tx, row['run'])}/{row['shown']}" if row["run"] else row["shown"]
    return shown, row["changed"], memory.text_of(row), row["run"]


def _of_run(tx: Reading, row: Row) -> tuple[str, int, str, str]:
    last = run_rows.checkpoint_row(tx, row["name"], row["checkpoints"])
    seq = max(row["changed"], 0 if last is None else last["seq"])
    return row["shown"], seq, run_rows.text_of_run(tx, row), row["name"]


_DOCUMENT_OF: Mapping[str, Callable[[Reading, Row], tuple[str, int, str, str] | None]] = {
    "memory": _of_memory,
    "thread": lambda tx, row: (row["shown"], row["changed"], thread_rows.text_of(tx, row), ""),
    "journal": lambda tx, row: (row["name"], row["seq"], row["text"], row["run"]),
    "run": _of_run,
    "blob": lambda tx, row: (row["key"], row["changed"], blobs.text_of(row), ""),
    "fact": lambda tx, row: (row["shown"], row["changed"], fact_rows.text_of(row), ""),
}
"""The document that a row should have: shown, seq, text, run."""


def _index(connection: sqlite3.Connection) -> Iterator[str]:
    try:
        connection.execute("INSERT INTO search (search, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as problem:
        yield f"it does not hold what the documents hold ({problem})"
