"""Writing a project as the lines of an export, from one snapshot, row by row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_state.store.text import WITHIN, clean
from mcp_state.store.transaction import Reading, Row
from mcp_state.store.transfer.fields import ACTOR, FIELDS, Field, Line
from mcp_state.store.transfer.lines import LineWriter, texts_in
from mcp_state.store.transfer.meter import Meter

ROWS: Mapping[str, str] = {
    "thread": """
        SELECT shown AS name, created, created_at, title, status, status_at, changed, changed_at,
            changed_by, version, priority, next_action, waiting_on, recheck_at, "check", evidence,
            note, places,
            (SELECT json_group_array(needed) FROM (
                SELECT needed FROM needs
                WHERE needs.project = threads.project AND thread = threads.name ORDER BY needed
            )) AS depends_on,
            (SELECT json_group_array(fact) FROM (
                SELECT fact FROM relies
                WHERE relies.project = threads.project AND thread = threads.name ORDER BY fact
            )) AS relies_on,
            coalesce((
                SELECT uses FROM documents
                WHERE documents.project = threads.project AND kind = 'thread'
                    AND documents.name = threads.name
            ), 0) AS uses
        FROM threads WHERE project = :project ORDER BY threads.name
    """,
    "criterion": """
        SELECT thread, number, text, passes, evidence, checked_at, checked_by
        FROM criteria WHERE project = :project ORDER BY thread, number
    """,
    "run": """
        SELECT shown AS name, created, created_at, changed, changed_at, changed_by, version,
            touched, touched_at, touched_by, status, goal, expected_outcome, thread, max_attempts,
            max_minutes, max_tokens, stopped, finished_at, result, evidence, reflection,
            coalesce((
                SELECT uses FROM documents
                WHERE documents.project = runs.project AND kind = 'run'
                    AND documents.name = runs.name
            ), 0) AS uses
        FROM runs WHERE project = :project ORDER BY runs.name
    """,
    "checkpoint": """
        SELECT run, number, seq, at, actor, state, next_action, done, total, git
        FROM checkpoints WHERE project = :project ORDER BY run, number
    """,
    "step": """
        SELECT run, shown AS name, created, changed, changed_at, changed_by, status, input, result,
            outcome, streak, stopped
        FROM steps WHERE project = :project ORDER BY run, steps.name
    """,
    "attempt": """
        SELECT run, step, number, begun, begun_at, begun_by, input, ended, ended_at, ended_by, ok,
            result, tokens_in, tokens_out
        FROM attempts WHERE project = :project ORDER BY run, step, number
    """,
    "message": """
        SELECT run, number, seq, message FROM messages
        WHERE project = :project ORDER BY run, number
    """,
    "memory": """
        SELECT run, shown AS name, value, version, changed, changed_at, changed_by, expires_at,
            locked,
            coalesce((
                SELECT uses FROM documents
                WHERE documents.project = memory.project AND kind = 'memory'
                    AND documents.name = CASE WHEN run = '' THEN memory.name ELSE run || :within
                        || memory.name END
            ), 0) AS uses
        FROM memory WHERE project = :project ORDER BY run, memory.name
    """,
    "journal": """
        SELECT seq, id, at, actor, kind, thread, run, text
        FROM journal WHERE project = :project ORDER BY seq
    """,
    "blob": """
        SELECT key, sha256, bytes, characters, created, created_at, changed, changed_at, changed_by,
            version, summary, expires_at,
            coalesce((
                SELECT uses FROM documents
                WHERE documents.project = blobs.project AND kind = 'blob'
                    AND documents.name = blobs.key
            ), 0) AS uses,
            text
        FROM blobs WHERE project = :project ORDER BY key
    """,
    "handoff": """
        SELECT key, created, created_at, created_by, recipient, note, exported_at, accepted_at,
            accepted_by
        FROM handoffs WHERE project = :project ORDER BY key
    """,
    "fact": """
        SELECT shown AS name, created, created_at, changed, changed_at, changed_by, version,
            statement, stated, stated_at, stated_by, replaces, "check", source, trust, trust_at,
            recheck_after, recheck_at, verified, verified_at, verified_by, held, evidence, baseline,
            (SELECT json_group_array(json(reason)) FROM (
                SELECT json_group_array(premise) AS reason FROM (
                    SELECT reason AS number, premise FROM premises
                    WHERE premises.project = facts.project AND fact = facts.name
                    ORDER BY reason, premise
                ) GROUP BY number ORDER BY number
            )) AS reasons,
            (SELECT json_group_array(json(reason)) FROM (
                SELECT json_group_array(given) AS reason FROM (
                    SELECT reason AS number, given FROM premises
                    WHERE premises.project = facts.project AND fact = facts.name
                    ORDER BY reason, premise
                ) GROUP BY number ORDER BY number
            )) AS given,
            coalesce((
                SELECT uses FROM documents
                WHERE documents.project = facts.project AND kind = 'fact'
                    AND documents.name = facts.name
            ), 0) AS uses
        FROM facts WHERE project = :project ORDER BY facts.name
    """,
    "objective": """
        SELECT shown AS name, created, created_at, changed, changed_at, changed_by, version,
            objective, intent, reason
        FROM objectives WHERE project = :project ORDER BY name
    """,
    "idempotency": """
        SELECT operation, key, digest, seq
        FROM idempotency WHERE project = :project AND operation <> 'told'
        ORDER BY operation, key
    """,
}
_EVENTS = "SELECT * FROM event_rows WHERE project = :project ORDER BY seq"
_ACTOR = "SELECT agent, client, session, worktree FROM actors WHERE id = :actor"
_MOST_ACTORS = 1000
_LEASE = {"lease_token": 0, "lease_until": None, "lease_holder": None}


class Exporter:
    """Writes the lines of the project of one snapshot."""

    def __init__(self, tx: Reading, writer: LineWriter, meter: Meter) -> None:
        self._tx = tx
        self._writer = writer
        self._meter = meter
        self._actors: dict[int, Line] = {}

    def write(self) -> None:
        """Write all lines but the first and the last."""
        totals = self._tx.totals()
        rows = totals.all_threads + totals.all_facts + totals.journal + totals.memory
        self._meter.expect(totals.event + rows + sum(totals.runs.values()))
        for kind, sql in ROWS.items():
            for row in self._tx.each(sql):
                self._write({kind: self._row(kind, row)})
        for row in self._tx.each(_EVENTS):
            self._write(_event(row))

    def _write(self, line: Line) -> None:
        self._writer.write(line)
        self._meter.step()

    def _row(self, kind: str, row: Row) -> Line:
        return {key: self._value(field, row[key]) for key, field in FIELDS[kind].items()} | (
            {"message": _message(row["message"])} if kind == "message" else {}
        )

    def _value(self, field: Field, value: Any) -> Any:
        if value is None:
            return None
        if field.means == "actor":
            return self._actor(value)
        if field.means == "json":
            return json.loads(value)
        return bool(value) if field.means == "flag" else value

    def _actor(self, actor: int) -> Line:
        if actor not in self._actors:
            if len(self._actors) >= _MOST_ACTORS:
                self._actors.clear()
            row = self._tx.one(_ACTOR, {"actor": actor})
            assert row is not None
            self._actors[actor] = {column: row[column] for column in ACTOR}
        return self._actors[actor]


def _message(text: str) -> Any:
    """A message as the object that it is, or as its text if that can't be made of it again."""
    message = json.loads(text)
    lost = "\\u" in text and any(clean(one)[1] for one in texts_in(message))
    return text if lost or message_text(message) != text else message


def message_text(message: Any) -> str:
    """The text of a message that is written as an object."""
    return json.dumps(message, separators=(",", ":"))


def _event(row: Row) -> Line:
    run, inside, name = row["name"].rpartition(WITHIN)
    kept = None if row["row"] is None else json.loads(row["row"])
    if row["kind"] == "thread" and kept is not None and "lease_token" in kept:
        kept |= _LEASE
    return {
        "event": row["seq"],
        "at": row["at"],
        **{column: row[column] for column in ACTOR},
        "run": row["run"],
        "kind": row["kind"],
        **({"within": run} if inside else {}),
        "name": name,
        "operation": row["operation"],
        "summary": row["summary"],
        "version": row["version"],
        "row": kept,
    }
