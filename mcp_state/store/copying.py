"""A whole store copied row by row into a new one, of the same engine or of the other.

What was read of each table and what is there afterwards are counted and hashed, in the order of
the primary key; the new store exists only if all of it is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, Protocol

from mcp_state.errors import Conflict, NotFound, StoreDamaged
from mcp_state.models import Actor, Caller
from mcp_state.record import record
from mcp_state.settings import is_address, shown_address
from mcp_state.store import opening
from mcp_state.store.database import Database
from mcp_state.store.refusals import refused
from mcp_state.store.transaction import Reading, without_triggers

NOBODY = Caller("", "", Actor("person"))
_MADE = "SELECT min_reader, created_at FROM store"
_COUNT = "SELECT coalesce(sum(last_event), 0) FROM projects"

Progress = Callable[[int, int], None]


@record
class Table:
    """A table as both engines have it: its columns in order, and those of its primary key."""

    name: str
    columns: Sequence[str]
    key: Sequence[str]

    @property
    def rows(self) -> str:
        """All rows, in the order of the key."""
        columns = ", ".join(f'"{name}"' for name in self.columns)
        order = ", ".join(f'"{name}"' for name in self.key)
        return f'SELECT {columns} FROM "{self.name}" ORDER BY {order}'  # noqa: S608 (the schema's)


@record
class Copied:
    """How many rows of a table there are, and the SHA-256 of them all."""

    table: str
    rows: int
    sha256: str


@record
class Migrated:
    """What was copied, and from where to where; `events` are those of all projects."""

    source: str
    target: str
    events: int
    tables: Sequence[Copied]


class Sink(Protocol):
    """A new store that is being filled."""

    def insert(self, table: Table, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows as they are, with all that is said of the table."""
        ...

    def rows(self, table: Table) -> Iterable[Sequence[Any]]:
        """Read what was written."""
        ...

    def finish(self, min_reader: int, created_at: str, changes: int) -> None:
        """Write the one row that is about the store itself."""
        ...


@cache
def tables() -> Sequence[Table]:
    """The tables with what is stored, as the schema of SQLite has them."""
    with contextlib.closing(opening.new_connection(":memory:")) as connection:
        opening.apply(connection, opening.migrations())
        names: list[str] = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' "
                "AND name NOT LIKE 'search%' AND name NOT LIKE 'sqlite_%' AND name <> 'store' "
                "ORDER BY rowid"
            )
        ]
        return [_table(name, connection.execute(f"PRAGMA table_info({name})")) for name in names]


def _table(name: str, columns: Iterable[Sequence[Any]]) -> Table:
    described = list(columns)
    key = sorted((place, column) for _, column, _, _, _, place in described if place)
    return Table(name, [column[1] for column in described], [column for _, column in key])


async def copy_store(source: Database, target: str, progress: Progress | None = None) -> Migrated:
    """Copy all of a store into a new one; other writers of the source are not kept waiting.

    Args:
        source: what is copied, as it is at this moment.
        target: a path or an address, where there is no store yet.
        progress: is called with the rows that are done and the rows in all.

    Returns:
        What there is of each table, the same here and there.

    Raises:
        Conflict: there is a store at `target`.
        NotFound: there is none to copy.
        StoreDamaged: something arrived otherwise than it was read; `target` was not made.
        StateError: what either of them refused.
    """

    def copy(tx: Reading) -> Migrated:
        made = tx.one(_MADE)
        if made is None:
            raise NotFound(f"there is no store at {source.path}", "Nothing was done.")
        events: int = tx.scalar(_COUNT)
        with _sink(target) as sink:
            copied = _copy_rows(tx, sink, progress or (lambda done, of: None))
            sink.finish(made["min_reader"], made["created_at"], events)
        shown = shown_address(target) if is_address(target) else target
        return Migrated(source.path, shown, events, copied)

    return await asyncio.to_thread(
        lambda: asyncio.run(source.read(NOBODY, copy, every_project=True))
    )


def _copy_rows(tx: Reading, sink: Sink, progress: Progress) -> Sequence[Copied]:
    of = sum(tx.scalar(f'SELECT count(*) FROM "{table.name}"') for table in tables())  # noqa: S608 (the schema's)
    done = 0
    copied: list[Copied] = []
    for table in tables():
        read = _Digest()

        def told(rows: Iterable[Sequence[Any]], read: _Digest = read) -> Iterator[Sequence[Any]]:
            nonlocal done
            for row in read.over(rows):
                done += 1
                if done % 1000 == 0 or done == of:
                    progress(done, of)
                yield row

        sink.insert(table, told(tuple(row) for row in tx.each(table.rows)))
        there = _Digest()
        for _ in there.over(tuple(row) for row in sink.rows(table)):
            pass
        if there.value != read.value:
            raise StoreDamaged(
                f"table {table.name}: {read.value[0]:,} rows were read, and {there.value[0]:,} "
                "arrived, or not as they were",
                "Nothing was kept of the copy; the store that was read is as it was.",
            )
        copied.append(Copied(table.name, *read.value))
    return copied


class _Digest:
    """The number and the SHA-256 of rows."""

    def __init__(self) -> None:
        self._rows = 0
        self._hash = hashlib.sha256()

    @property
    def value(self) -> tuple[int, str]:
        return self._rows, self._hash.hexdigest()

    def over(self, rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        for row in rows:
            self._rows += 1
            self._hash.update(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace"))
            yield row


def _sink(target: str) -> AbstractContextManager[Sink]:
    if not is_address(target):
        return _new_file(target)
    from mcp_state.store.postgres.filling import new_schema

    return new_schema(target)


@contextmanager
def _new_file(path: str) -> Generator[Sink]:
    if os.path.lexists(path):
        raise Conflict(f"{path} exists already", "Name a file that does not; nothing was done.")
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with opening.building(path) as connection, without_triggers(connection):
            yield _File(connection)
    except OSError as problem:
        raise refused(problem.filename or path, problem) from problem


class _File:
    """A SQLite file that is being filled."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def insert(self, table: Table, rows: Iterable[Sequence[Any]]) -> None:
        columns = ", ".join(f'"{name}"' for name in table.columns)
        marks = ", ".join("?" * len(table.columns))
        self._connection.executemany(
            f'INSERT INTO "{table.name}" ({columns}) VALUES ({marks})',  # noqa: S608 (the schema's)
            rows,
        )

    def rows(self, table: Table) -> Iterable[Sequence[Any]]:
        return self._connection.execute(table.rows)

    def finish(self, min_reader: int, created_at: str, changes: int) -> None:
        self._connection.execute(
            "INSERT INTO store VALUES (1, ?, ?, ?)", (min_reader, changes, created_at)
        )
