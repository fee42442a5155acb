"""Making imported things findable: the documents that search reads, the oldest first."""

from __future__ import annotations

import json
from collections.abc import Iterator

from mcp_state.store import blobs, documents, fact_rows, memory, run_rows, thread_rows
from mcp_state.store.text import fold, within
from mcp_state.store.transaction import Params, Row, Writing
from mcp_state.store.transfer.meter import Meter
from mcp_state.store.transfer.staging import Staging

# In the staging database.
_ROWS_BY_AGE = """
    SELECT rows.*, target, target_shown, mode FROM rows
    JOIN units ON units.kind = unit_kind AND units.name = unit
    WHERE rows.kind = :kind AND mode IN ('new', 'more')
        AND (rows.kind <> 'memory' OR mode = 'new' OR EXISTS (
            SELECT 1 FROM events WHERE events.seq = rows.event AND fresh = 1
        ))
    ORDER BY max(event, coalesce((
        SELECT max(event) FROM rows AS checkpoint
        WHERE checkpoint.kind = 'checkpoint' AND rows.kind = 'run'
            AND checkpoint.unit_kind = 'run' AND checkpoint.unit = rows.unit
    ), 0)), line
"""
_ENTRIES = """
    SELECT rows.line, events.new AS seq, data, coalesce(runs.target, '') AS run
    FROM rows JOIN events ON events.seq = rows.event
    LEFT JOIN units AS runs ON runs.kind = 'run' AND runs.name = json_extract(data, '$.run')
    WHERE rows.kind = 'journal' AND events.fresh = 1 ORDER BY rows.event
"""
_REFERRED = """
    SELECT threads.target AS thread, count(*) AS entries
    FROM rows JOIN events ON events.seq = rows.event
    JOIN units AS threads
        ON threads.kind = 'thread' AND threads.name = json_extract(data, '$.thread')
    WHERE rows.kind = 'journal' AND events.fresh = 1 AND threads.mode = 'same'
    GROUP BY threads.name
"""

# In the store.
_MEMORY_ROW = """
    SELECT * FROM memory_rows WHERE project = :project AND run = :run AND name = :name
"""
_BLOB_ROW = "SELECT * FROM blob_rows WHERE project = :project AND key = :key"
_NEW = """
    INSERT INTO documents (id, project, kind, name, shown, seq, uses, text, short)
    VALUES (:id, :project, 'journal', :name, :name, :seq, 1, :text, :short)
"""
_MORE_USES = """
    UPDATE documents SET uses = uses + :more
    WHERE project = :project AND kind = :kind AND name = :name
"""
_USES = """
    SELECT uses FROM documents WHERE project = :project AND kind = :kind AND name = :name
"""
_SET_USES = """
    UPDATE documents SET uses = :uses WHERE project = :project AND kind = :kind AND name = :name
"""


class Documents:
    """Writes the documents of what was imported by a transaction."""

    def __init__(self, tx: Writing, staging: Staging, meter: Meter) -> None:
        self._tx = tx
        self._staging = staging
        self._meter = meter

    def write(self) -> None:
        """Write all of them."""
        for kind, write in (
            ("thread", self._thread),
            ("run", self._run),
            ("memory", self._block),
            ("blob", self._blob),
            ("fact", self._fact),
        ):
            for row in self._staging.each(_ROWS_BY_AGE, {"kind": kind}):
                self._staging.line = row["line"]
                write(row)
                self._meter.step()
        self._tx.run_many(_NEW, self._entries())
        for row in self._staging.each(_REFERRED):
            uses = {"kind": "thread", "name": row["thread"], "more": row["entries"]}
            self._tx.run(_MORE_USES, uses)

    def _entries(self) -> Iterator[Params]:
        """The documents of entries, which are all new."""
        first = documents.next_id(self._tx, self._tx.project, "journal")
        for number, row in enumerate(self._staging.each(_ENTRIES), first):
            self._staging.line = row["line"]
            self._meter.step()
            text = documents.indexed(json.loads(row["data"])["text"])
            yield {
                "id": number,
                "project": self._tx.project,
                "name": str(row["seq"]),
                "seq": row["seq"],
                "text": text,
                "short": documents.short(text, row["run"]),
            }

    def _thread(self, row: Row) -> None:
        now = self._tx.one(thread_rows.THREAD, {"name": row["target"]})
        assert now is not None
        text = thread_rows.text_of(self._tx, now)
        self._put(row, "thread", now["name"], now["shown"], text, now["changed"])

    def _run(self, row: Row) -> None:
        now = run_rows.run_row(self._tx, row["target"])
        assert now is not None
        last = run_rows.checkpoint_row(self._tx, now["name"], now["checkpoints"])
        seq = max(now["changed"], 0 if last is None else last["seq"])
        text = run_rows.text_of_run(self._tx, now)
        self._put(row, "run", now["name"], now["shown"], text, seq, now["name"])

    def _block(self, row: Row) -> None:
        inside = row["unit_kind"] == "run"
        run = row["target"] if inside else ""
        name = fold(json.loads(row["data"])["name"]) if inside else row["target"]
        now = self._tx.one(_MEMORY_ROW, {"run": run, "name": name})
        assert now is not None
        name = within(run, name)
        if now["value"] is None:
            documents.remove(self._tx, "memory", name)
            return
        shown = f"{row['target_shown']}/{now['shown']}" if inside else now["shown"]
        self._put(row, "memory", name, shown, memory.text_of(now), now["changed"], run)

    def _blob(self, row: Row) -> None:
        now = self._tx.one(_BLOB_ROW, {"key": row["target"]})
        assert now is not None
        self._put(row, "blob", now["key"], now["key"], blobs.text_of(now), now["changed"])

    def _fact(self, row: Row) -> None:
        now = fact_rows.stored_fact(self._tx, row["target"])
        self._put(row, "fact", now["name"], now["shown"], fact_rows.text_of(now), now["changed"])

    def _put(
        self, row: Row, kind: str, name: str, shown: str, text: str, seq: int, run: str = ""
    ) -> None:
        """Keep a document, as much used as here or in the file, whatever is more."""
        at = {"kind": kind, "name": name}
        there: int = self._tx.scalar(_USES, at) or 0 if row["mode"] == "more" else 0
        documents.put(self._tx, kind, name, shown, text, seq, run)
        uses = max(1, there, json.loads(row["data"])["uses"])
        if there or uses > 1:
            self._tx.run(_SET_USES, at | {"uses": uses})
