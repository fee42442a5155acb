"""The walk that takes a value out of every text, and makes anew what is made of them.

A name becomes another one wherever it stands, so that all that leads to it still does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcp_state.store.consistency import document_of
from mcp_state.store.purge.value import Value
from mcp_state.store.purge.walking import Search
from mcp_state.store.text import WITHIN
from mcp_state.store.transaction import Row, Writing

_SET_ACTOR = """
    UPDATE actors
    SET agent = :agent, client = :client, session = :session, worktree = :worktree WHERE id = :id
"""
_NEW_ACTOR = """
    INSERT INTO actors (agent, client, session, worktree)
    VALUES (:agent, :client, :session, :worktree) RETURNING id
"""
_SET_BLOB = """
    UPDATE blobs SET key = :key, sha256 = :sha256, bytes = :bytes, characters = :characters,
        text = :text
    WHERE {handle} = :at
"""
_BLOB_SIZES = "SELECT bytes, characters FROM blobs WHERE project = :project AND key = :key"
_SET_TOPIC = """
    UPDATE journal_topics SET topic = :new WHERE project = :project AND topic = :topic
"""
_FORGET_DIGEST = """
    UPDATE idempotency SET digest = ''
    WHERE project = :project AND operation = :operation AND seq = :number
"""
_APPENDED = """
    SELECT seq, row FROM events
    WHERE project = :project AND kind = 'transcript' AND operation = 'append' AND name = :run
    ORDER BY seq
"""
_MESSAGES = """
    SELECT message FROM messages
    WHERE project = :project AND run = :run AND number BETWEEN :first AND :last ORDER BY number
"""
_SET_EVENT = "UPDATE events SET row = :row WHERE project = :project AND seq = :number"
_SET_DOCUMENT = """
    UPDATE documents SET name = :name, shown = :shown, text = :text, short = :short WHERE id = :id
"""
_OF_DOCUMENT: Mapping[str, str] = {
    "memory": """
        SELECT * FROM memory_rows WHERE project = :project AND run = :run AND name = :inner
    """,
    "thread": "SELECT * FROM thread_rows WHERE project = :project AND name = :name",
    "journal": """
        SELECT *, CAST(seq AS TEXT) AS name FROM journal_rows
        WHERE project = :project AND seq = CAST(:name AS INTEGER)
    """,
    "run": "SELECT * FROM run_rows WHERE project = :project AND name = :name",
    "blob": "SELECT *, key AS name FROM blob_rows WHERE project = :project AND key = :name",
    "fact": "SELECT * FROM fact_rows WHERE project = :project AND name = :name",
}


class Rewriting(Search):
    """The walk that takes the value out, inside a transaction that lifted the triggers."""

    def __init__(
        self, tx: Writing, value: Value, every_project: bool, step: Callable[[], None]
    ) -> None:
        super().__init__(tx, value, every_project, step)
        self._writing = tx
        self._messages: set[tuple[int, str]] = set()
        self._forgotten: set[tuple[int, str, int]] = set()

    def _set(self, table: str, at: Any, changes: Mapping[str, Any]) -> None:
        columns = ", ".join(f'"{column}" = :{column}' for column in changes)
        self._writing.run(
            f'UPDATE "{table}" SET {columns} '  # noqa: S608 (the schema's names)
            f"WHERE {self._catalogue.handle} = :at_",
            {**changes, "at_": at},
        )

    def _set_blob(self, row: Row, new: Mapping[str, Any]) -> None:
        self._writing.run(_SET_BLOB.format(handle=self._catalogue.handle), {**new, "at": row["at"]})

    def _set_actor(self, row: Row, new: Mapping[str, str], moves: bool) -> None:
        if not moves:
            self._writing.run(_SET_ACTOR, {**new, "id": row["id"]})
            return
        actor = self._writing.scalar(_NEW_ACTOR, new)
        for table, column in self._to_actors():
            for project in self.projects:
                self._writing.run(
                    f'UPDATE "{table}" SET "{column}" = :new '  # noqa: S608 (the schema's names)
                    f'WHERE "{column}" = :old AND project = :project',
                    {"new": actor, "old": row["id"], "project": project},
                )
        if self._writing.actor == row["id"]:
            self._writing.actor = actor

    def _set_topic(self, row: Row, new: str) -> None:
        self._writing.run(_SET_TOPIC, {**dict(row), "new": new})

    def _changed(self, table: str, row: Row) -> None:
        """Note what was made of the row, and has to be made anew."""
        project = row["project"]
        if table == "messages":
            self._messages.add((project, self.new.text(row["run"])))
        elif table == "journal":
            self._forgotten.add((project, "journal_append", row["seq"]))
        elif table == "events" and row["operation"] == "append" and row["kind"] == "memory":
            self._forgotten.add((project, "memory_append", row["version"]))

    def _event_row(self, event: Row, new: str) -> str:
        """The sizes of a blob are those of its new text."""
        key = self.new.keys.get(event["name"]) if event["kind"] == "blob" else None
        if key is None or event["operation"] == "refused":
            return new
        sizes = self.tx.one(_BLOB_SIZES, {"project": event["project"], "key": key})
        return (
            new if sizes is None else json.dumps({**json.loads(new), **sizes}, ensure_ascii=False)
        )

    def _set_document(self, row: Row, name: str) -> None:
        run, _, inner = name.rpartition(WITHIN)
        self.tx.project = row["project"]
        params = {"project": row["project"], "name": name, "run": run, "inner": inner}
        source = self.tx.one(_OF_DOCUMENT[row["kind"]], params)
        made: Sequence[Any] | None = None
        if source is not None:
            made = document_of(self.tx, row["kind"], source)
        shown, _, text, short = made or (
            self.new.text(row["shown"]),
            0,
            self.new.text(row["text"]),
            self.new.text(row["short"]),
        )
        self._writing.run(
            _SET_DOCUMENT,
            {"id": row["id"], "name": name, "shown": shown, "text": text, "short": short},
        )

    def _end(self) -> None:
        """Make anew what was made of the texts: the hashes of transcripts, of repeated calls."""
        for project, operation, number in self._forgotten:
            params = {"project": project, "operation": operation, "number": number}
            self._writing.run(_FORGET_DIGEST, params)
        for project, run in self._messages:
            self._hash_transcript(project, run)

    def _hash_transcript(self, project: int, run: str) -> None:
        for event in self.tx.all(_APPENDED, {"project": project, "run": run}):
            kept = json.loads(event["row"])
            span = {"project": project, "run": run, "first": kept["first"], "last": kept["last"]}
            data = "\n".join(row["message"] for row in self.tx.all(_MESSAGES, span)).encode()
            kept |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            text = json.dumps(kept, ensure_ascii=False)
            self._writing.run(_SET_EVENT, {"project": project, "number": event["seq"], "row": text})
