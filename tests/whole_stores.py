"""Whole stores of either engine: where several are to be, and all that is in one."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import postgres
import psycopg
from peeking import connected, rows

from mcp_state.settings import is_address
from mcp_state.store import copying, opening
from mcp_state.store.consistency import inspect
from mcp_state.store.postgres import filling
from mcp_state.store.postgres.catalogue import POSTGRES
from mcp_state.store.postgres.connection import Connection
from mcp_state.store.postgres.opening import Address
from mcp_state.store.transaction import without_triggers
from mcp_state.times import Clock

_UNFINDABLE = """
    SELECT count(*) FROM documents FULL JOIN search ON search.id = documents.id
    WHERE grams IS DISTINCT FROM
        grams_of_text(documents.id >> 36, text) || grams_of_short(documents.id >> 36, short)
"""


class Stores:
    """Where further stores are to be: `stores / "a.db"` is the same store each time."""

    def __init__(self, folder: Path, engine: str, stack: ExitStack) -> None:
        self.folder = folder
        self.engine = engine
        self._stack = stack
        self._known: dict[str, str] = {}

    def __truediv__(self, name: str) -> str:
        if self.engine == "sqlite":
            return str(self.folder / name)
        if name not in self._known:
            self._known[name] = self._stack.enter_context(postgres.empty_store())
        return self._known[name]


def fill_like(path: str, model: Path) -> None:
    """Make an empty store of a server like one in a file."""
    raw = connected(path)
    connection = Connection(raw)
    connection.within = Connection.EVERY
    sink = filling.Schema(connection)
    with contextlib.closing(sqlite3.connect(model)) as store:
        raw.execute("BEGIN")
        sink.switch_triggers("DISABLE")
        raw.execute("SET CONSTRAINTS ALL DEFERRED")
        for table in copying.tables():
            sink.insert(table, store.execute(table.rows))
        raw.execute("SET CONSTRAINTS ALL IMMEDIATE")
        sink.switch_triggers("ENABLE")
        raw.execute("COMMIT")


def schema(path: str) -> list[tuple[Any, ...]]:
    """All that is known of tables, indexes and triggers."""
    if is_address(path):
        return rows(path, POSTGRES.words)
    return sorted(rows(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema"), key=str)


@contextmanager
def writing(path: str) -> Generator[None]:
    """Keep everybody from writing, like another process that does."""
    if is_address(path):
        with psycopg.connect(Address.of(path).url) as other:
            key = Address.of(path).key("store")
            other.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
            yield
    else:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield


def exists(path: str) -> bool:
    """Whether there is a store with something in it."""
    if is_address(path):
        return rows(path, "SELECT count(*) FROM events") != [(0,)]
    return os.path.exists(path)


@contextmanager
def copied(path: str | Path) -> Generator[sqlite3.Connection]:
    """All that is in a store, in a database of SQLite's in memory."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        if is_address(str(path)):
            _empty().backup(copy)
            with without_triggers(copy):
                _fill(copy, connected(str(path)))
        else:
            with contextlib.closing(sqlite3.connect(path)) as store:
                store.backup(copy)
        yield copy


def _fill(copy: sqlite3.Connection, server: psycopg.Connection[Any]) -> None:
    """All tables in one statement, which is one moment, and one answer."""
    made = "SELECT min_reader, created_at FROM store"
    with psycopg.ClientCursor(server) as found:
        found.execute("; ".join([*(table.rows for table in copying.tables()), made]).encode())
        copy.execute("BEGIN")
        for table in copying.tables():
            marks = ", ".join("?" * len(table.columns))
            copy.executemany(f"INSERT INTO {table.name} VALUES ({marks})", found)  # noqa: S608
            found.nextset()
        copy.execute(
            "INSERT INTO store SELECT 1, ?, coalesce(sum(last_event), 0), ? FROM projects", *found
        )
        copy.execute("COMMIT")


@cache
def _empty() -> sqlite3.Connection:
    connection = opening.new_connection(":memory:")
    opening.apply(connection, opening.migrations())
    return connection


def contradictions(path: str | Path) -> list[str]:
    """What `doctor` finds of the rows of a store, its events, counters and index."""
    if not is_address(str(path)) and not os.path.exists(path):
        return []
    with copied(path) as copy:
        found = [f.what for f in inspect(copy, Clock()) if f.severity != "ok"]
    if is_address(str(path)) and rows(str(path), _UNFINDABLE) != [(0,)]:
        found.append("the index of the server is not that of the documents")
    return found


def everything(path: str | Path) -> list[str]:
    """All that is in a store, as SQL."""
    with copied(path) as copy:
        return [line for line in copy.iterdump() if "search_" not in line]
