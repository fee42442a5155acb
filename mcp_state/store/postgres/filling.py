"""A new store in a PostgreSQL schema that is filled with the rows of another."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from psycopg import sql

from mcp_state.errors import Conflict
from mcp_state.store.copying import Sink, Table, tables
from mcp_state.store.postgres import opening
from mcp_state.store.postgres.connection import Connection, adapt
from mcp_state.store.postgres.opening import Address
from mcp_state.store.postgres.refusals import refused_by_server

_PAGE = 500
_COUNTED = ("projects", "actors")
"""Tables whose ids the server gives out."""


@contextmanager
def new_schema(address: str) -> Generator[Sink]:
    """Make the schema and fill it in one transaction.

    Raises:
        Conflict: there is a store already.
        StateError: what the server refused.
    """
    place = Address.of(address)
    try:
        with closing(psycopg.connect(place.url, autocommit=True)) as raw:
            opening.configure(raw, place.schema)
            adapt(raw)
            connection = Connection(raw)
            connection.begin("BEGIN")
            connection.within = Connection.EVERY
            connection.execute("SELECT pg_advisory_xact_lock(:key)", {"key": place.key("store")})
            if opening.version_of(connection, place.schema) is not None:
                raise Conflict(
                    f"there is a store at {place.shown} already",
                    "Name another schema with ?schema=NAME; nothing was done.",
                )
            opening.apply(connection, place, 0)
            schema = Schema(connection)
            schema.switch_triggers("DISABLE")
            connection.execute("SET CONSTRAINTS ALL DEFERRED")
            yield schema
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            schema.switch_triggers("ENABLE")
            connection.commit()
    except psycopg.Error as problem:
        told = refused_by_server(place.shown, problem, 0)
        if told is None:
            raise
        raise told from problem


class Schema:
    """A schema that is being filled."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def switch_triggers(self, how: str) -> None:
        """All but those of the index: counts and numbers come with the rows."""
        for table in tables():
            if table.name != "documents":
                self._connection.raw.execute(
                    f"ALTER TABLE {table.name} {how} TRIGGER USER".encode()
                )

    def insert(self, table: Table, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows as they are, a page at a time."""
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(table.name),
            sql.SQL(", ").join(map(sql.Identifier, table.columns)),
            sql.SQL(", ").join(sql.Placeholder() * len(table.columns)),
        )
        with psycopg.Cursor(self._connection.raw) as cursor:
            page: list[Sequence[Any]] = []
            for row in rows:
                page.append(row)
                if len(page) == _PAGE:
                    cursor.executemany(statement, page)
                    page.clear()
            cursor.executemany(statement, page)
        if table.name in _COUNTED:
            self._connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), "  # noqa: S608 (ours)
                f"coalesce(max(id), 0) + 1, false) FROM {table.name}"
            )

    def rows(self, table: Table) -> Iterable[Sequence[Any]]:
        """Read what was written."""
        return (tuple(row) for row in self._connection.each(table.rows, {}))

    def finish(self, min_reader: int, created_at: str, changes: int) -> None:
        """Write the one row that is about the store itself; the server counts changes."""
        opening.enter(self._connection, min_reader, created_at)
