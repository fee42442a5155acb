"""A checked export in a private database, out of which it is merged into a project.

The file is read once, line by line, so that nothing of it has to fit into memory, and not a byte
of a store is touched before all of it was found to be whole.

units    what is merged as one: a thread, a block of the project's memory, a run with all that is
         in it, a blob, a handoff, a fact, an objective. `target` is the name that it gets in the
         project.
rows     the lines of things, each with its unit and the event that it stands with.
events   the lines of events. `thing` is the name of what an event is about inside its unit. `side`
         is 0 for what made a unit what it is, 1 for what left no trace in it (refusals, traces of
         reads) and 2 for leases, for the files that were made of a handoff, and for what became of
         a fact because of others. `position` counts the first kind within the unit, the others
         among their equals. `identity` is what the event says, without its number and without
         names. `fresh` marks what is not in the project yet; `new` is the number there.
there    the history of the one unit of the project that a unit is compared with.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from mcp_state.errors import BadArgument, DiskFull
from mcp_state.store.refusals import primary_code
from mcp_state.store.transaction import Params, Row
from mcp_state.store.transfer.lines import (
    Header,
    LineReader,
)

SCHEMA = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    """
    CREATE TABLE actors (
        id INTEGER PRIMARY KEY, agent TEXT, client TEXT, session TEXT, worktree TEXT,
        target INTEGER, UNIQUE (agent, client, session, worktree)
    )
    """,
    """
    CREATE TABLE units (
        kind TEXT, name TEXT, shown TEXT, line INTEGER, target TEXT, target_shown TEXT,
        mode TEXT DEFAULT 'new', number INTEGER DEFAULT 0, PRIMARY KEY (kind, name)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX units_by_target ON units (kind, target)",
    """
    CREATE TABLE rows (
        line INTEGER PRIMARY KEY, kind TEXT, key TEXT, unit_kind TEXT, unit TEXT, thing TEXT,
        event INTEGER, data TEXT, UNIQUE (kind, key)
    )
    """,
    """
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY, line INTEGER, at TEXT, actor INTEGER, run TEXT, kind TEXT,
        name TEXT, operation TEXT, summary TEXT, version INTEGER, row TEXT, unit_kind TEXT,
        unit TEXT, thing TEXT, side INTEGER, identity BLOB, position INTEGER,
        fresh INTEGER DEFAULT 1, new INTEGER
    )
    """,
    """
    CREATE TABLE there (seq INTEGER PRIMARY KEY, side INTEGER, identity BLOB, position INTEGER)
    """,
    "CREATE INDEX there_by_identity ON there (side, identity, position)",
    "CREATE INDEX there_by_position ON there (side, position, identity)",
)
_INDEX = (
    "CREATE INDEX rows_by_unit ON rows (kind, unit_kind, unit, thing)",
    "CREATE INDEX rows_by_event ON rows (kind, event)",
    "CREATE INDEX events_by_unit ON events (unit_kind, unit, side, position)",
    "CREATE INDEX events_by_thing ON events (unit_kind, unit, kind, thing, seq)",
    """
    CREATE INDEX events_that_append ON events (version)
    WHERE kind = 'memory' AND operation = 'append'
    """,
    """
    INSERT OR IGNORE INTO units (kind, name, line, target)
    SELECT unit_kind, unit, min(line), unit FROM events GROUP BY unit_kind, unit
    """,
    """
    UPDATE events SET position = found.position FROM (
        SELECT seq, row_number() OVER (
            PARTITION BY unit_kind, unit, side, iif(side = 0, '', identity) ORDER BY seq
        ) AS position FROM events WHERE unit_kind <> 'journal' OR side > 0
    ) AS found WHERE events.seq = found.seq
    """,
)
IN_RUNS = ("memory", "step", "checkpoint")
"""Kinds of what has a name inside a run."""
_BLOCK = 1000
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


class Staging:
    """The contents of a file, on disk for as long as it is open.

    `line` is the one that is worked on.
    """

    header: Header

    def __init__(self, reader: LineReader) -> None:
        self.reader = reader
        self.line = 0
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        for statement in SCHEMA:
            self.run(statement)

    def refusal(self, what: str) -> BadArgument:
        """What is wrong with the line that is worked on."""
        return self.reader.refusal(what, self.line)

    def index(self) -> None:
        """Prepare what was loaded for being asked."""
        for statement in _INDEX:
            self.run(statement)

    def close(self) -> None:
        """Give the disk back."""
        self._connection.close()

    def run(self, sql: str, params: Params | None = None) -> sqlite3.Cursor:
        """Run one statement.

        Raises:
            DiskFull: there is no room for temporary files.
        """
        try:
            return self._connection.execute(sql, params or {})
        except sqlite3.OperationalError as problem:
            raise self._told(problem) from problem

    def run_many(self, sql: str, rows: Iterable[Params]) -> None:
        """Run one statement for each of these."""
        try:
            self._connection.executemany(sql, rows)
        except sqlite3.OperationalError as problem:
            raise self._told(problem) from problem

    def each(self, sql: str, params: Params | None = None) -> Iterator[Row]:
        """The rows one by one; the table may be changed meanwhile."""
        cursor = self.run(sql, params)
        while rows := cursor.fetchmany(_BLOCK):
            yield from rows

    def one(self, sql: str, params: Params | None = None) -> Row | None:
        """The first row, or None."""
        return self.run(sql, params).fetchone()

    def scalar(self, sql: str, params: Params | None = None) -> Any:
        """The first value of the first row, or None."""
        row = self.one(sql, params)
        return None if row is None else row[0]

    def _told(self, problem: sqlite3.OperationalError) -> Exception:
        if primary_code(problem) not in _NO_ROOM:
            return problem
        return DiskFull(
            f"not imported: no room for temporary files ({problem})",
            "Free some space, or name a directory with more of it in TMPDIR.",
        )
