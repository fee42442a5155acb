"""A store of either engine in plain SQL, past mcp-state: to look into it, and to disturb it."""

from __future__ import annotations

import atexit
import contextlib
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

from mcp_state.settings import is_address
from mcp_state.store.postgres import opening
from mcp_state.store.postgres.connection import adapt, translated
from mcp_state.store.postgres.opening import Address

Params = Sequence[Any] | Mapping[str, Any]

Refused = (sqlite3.IntegrityError, psycopg.IntegrityError)
"""What SQL itself refuses."""
CHECK = "CHECK constraint failed|violates check constraint"
"""What it says of a row that contradicts itself."""


class Found(Protocol):
    """What a statement found, as the drivers give it."""

    @property
    def rowcount(self) -> int: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class Plain(Protocol):
    """A connection without a transaction, in which `?` and `:name` stand for parameters."""

    def execute(self, sql: str, params: Params = ..., /) -> Found: ...
    def executemany(self, sql: str, rows: Iterable[Params], /) -> object: ...


class _Server:
    """The owner of a schema, who sees all projects."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self._raw = raw

    def execute(self, sql: str, params: Params = (), /) -> Found:
        cursor: Any = psycopg.ClientCursor(self._raw)
        return cursor.execute(_marked(sql), params)

    def executemany(self, sql: str, rows: Iterable[Params], /) -> None:
        psycopg.ClientCursor(self._raw).executemany(_marked(sql), rows)


def _marked(sql: str) -> bytes:
    return translated(sql).replace("?", "%s").encode()


_kept: dict[str, psycopg.Connection[Any]] = {}


def connected(path: str) -> psycopg.Connection[Any]:
    """A connection to a server that is kept for the next time."""
    raw = _kept.get(path)
    if raw is None or raw.closed:
        place = Address.of(path)
        raw = _kept[path] = psycopg.connect(place.url, autocommit=True)
        atexit.register(raw.close)
        opening.configure(raw, place.schema)
        adapt(raw)
        raw.execute("SET mcp_state.project = '*'")
    return raw


@contextmanager
def plain(path: str | Path) -> Generator[Plain]:
    """The store through its driver alone; what is done is committed."""
    if is_address(path := str(path)):
        yield _Server(connected(path))
        return
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection


def rows(path: str | Path, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """What a query finds."""
    with plain(path) as connection:
        return connection.execute(sql, params).fetchall()
