"""Finding, making and migrating the schema that a store is kept in."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from itertools import chain
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from mcp_state.errors import BadArgument, StoreDamaged, StoreNewer, StoreReadonly
from mcp_state.record import record
from mcp_state.settings import parts_of_address, shown_address
from mcp_state.store.opening import OLDEST_READER
from mcp_state.store.postgres.connection import Connection
from mcp_state.times import to_text

log = logging.getLogger(__name__)

OLDEST_SERVER = 16
SCHEMA = "mcp_state"
_PATIENCE = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""How long a connection waits for a server that is gone without a word, unless the address says.

TCP alone waits for a quarter of an hour with something to send, and for ever with nothing.
"""
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_TOKEN = re.compile(
    r"--[^\n]*|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|(?P<tag>\$\w*\$)(?s:.*?)(?P=tag)|(?P<end>;)"
)


@record
class Address:
    """Where a store is: `url` for the driver, `schema` in it, `shown` for people."""

    url: str
    schema: str
    shown: str

    @classmethod
    def of(cls, given: str) -> Address:
        """Take an address apart; `?schema=NAME` is ours, all else is libpq's.

        Raises:
            BadArgument: it is none, or the name of the schema is none.
        """
        before, given_options = parts_of_address(given)
        options = dict(given_options)
        shown, schema = shown_address(given), options.pop("schema", SCHEMA)
        if not _NAME.fullmatch(schema) or schema.startswith("pg_") or schema == "public":
            raise BadArgument(
                f"schema is {schema[:60]!r}",
                "Name a schema of its own for the store: lower case letters, digits and _.",
            )
        url = f"{before}?{urlencode(_PATIENCE | options, quote_via=quote)}"
        try:
            ports = conninfo_to_dict(url).get("port") or ""
        except psycopg.ProgrammingError:  # what the driver says of it may hold the password
            ports = "?"
        if not re.fullmatch(r"[\d,]*", str(ports)):
            raise BadArgument(
                f"{shown} is no address that the driver of PostgreSQL understands",
                "Write postgresql://USER@HOST:PORT/DATABASE?OPTION=VALUE, with options of libpq's, "
                "and %XX for what is special in a name or a password.",
            )
        return cls(url, schema, shown)

    def key(self, *of: object) -> int:
        """The number of an advisory lock, which are the whole database's, not one store's."""
        text = "\0".join(("mcp-state", self.schema, *map(str, of)))
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)


def split(script: str) -> Iterator[str]:
    """The statements of a script: what ends in a semicolon that is not quoted."""
    begin = 0
    for found in _TOKEN.finditer(script):
        if found["end"]:
            yield script[begin : found.end()]
            begin = found.end()
    if re.sub(r"--[^\n]*", "", script[begin:]).strip():
        raise ValueError(f"a script ends in the middle of: {script[begin:].strip()[:60]!r}")


@cache
def migrations() -> tuple[tuple[str, ...], ...]:
    """The statements of all steps, in order; the first leads to version 1."""
    folder = os.path.join(os.path.dirname(__file__), "..", "migrations", "postgres")
    steps: list[tuple[str, ...]] = []
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".sql")):
        assert int(name[:4]) == len(steps) + 1, "migrations have a gap"
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            steps.append(tuple(split(file.read())))
    return tuple(steps)


def configure(raw: psycopg.Connection[object], schema: str) -> None:
    """Make a new connection fit for the store.

    Raises:
        StoreReadonly: the server is too old, or does not speak UTF-8.
    """
    version = raw.info.server_version // 10_000
    if version < OLDEST_SERVER:
        raise StoreReadonly(
            f"the server is PostgreSQL {version}, which is too old",
            f"Use PostgreSQL {OLDEST_SERVER} or newer.",
        )
    encoding = raw.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreReadonly(
            f"the database keeps text as {encoding}", "Make one with the encoding UTF8."
        )
    raw.autocommit = True
    # What the defaults of the role or the database are must not matter, and other schemas neither.
    # A machine that vanishes must not keep its locks for the two hours that TCP waits.
    raw.execute(
        sql.SQL(
            "SET search_path = {}; SET client_encoding = UTF8; "
            "SET standard_conforming_strings = on; SET client_min_messages = warning; "
            "SET jit = off; SET default_transaction_isolation = 'read committed'; "
            "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; "
            "SET tcp_keepalives_count = 3; SET tcp_user_timeout = 25000; "
            "SET idle_in_transaction_session_timeout = '10min'; "
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        ).format(sql.Identifier(schema))
    )


def version_of(connection: Connection, schema: str) -> int | None:
    """The version of the store's schema; None without a store."""
    found = connection.execute(
        "SELECT to_regclass(:name) IS NOT NULL AS there", {"name": f"{schema}.store"}
    ).fetchone()
    if not found["there"]:
        return None
    row = connection.execute("SELECT version, min_reader FROM store").fetchone()
    if row is None:
        raise StoreDamaged(
            f"the table store of schema {schema} is empty", "Restore a backup of it."
        )
    return check(row["version"], row["min_reader"], schema)


def check(version: int, min_reader: int, schema: str) -> int:
    """The version, if this version of mcp-state may use it.

    Raises:
        StoreNewer: it may not.
    """
    latest = len(migrations())
    if version > latest and min_reader > latest:
        raise StoreNewer(
            f"schema {schema} was written by a newer version: its schema is {version}, it can be "
            f"read from {min_reader} on, this version knows {latest}",
            "Nothing was changed. Upgrade mcp-state, or name another store with --db.",
        )
    return version


def apply(connection: Connection, address: Address, version: int) -> None:
    """Run the steps that are missing, within the transaction of the caller; 0 misses all."""
    connection.within = Connection.EVERY
    if not version:
        # IF NOT EXISTS would ask for the right to make one where it exists.
        named = {"name": address.schema}
        if connection.execute("SELECT to_regnamespace(:name)", named).fetchone()[0] is None:
            name = sql.Identifier(address.schema).as_string(connection.raw)
            connection.execute(f"CREATE SCHEMA {name}")
    for statement in chain.from_iterable(migrations()[version:]):
        connection.raw.execute(statement.encode())


def enter(connection: Connection, min_reader: int, created_at: str) -> None:
    """Write the row that is about the store itself."""
    connection.execute(
        "INSERT INTO store (id, min_reader, version, created_at) "
        "VALUES (1, :min_reader, :version, :created_at)",
        {"min_reader": min_reader, "version": len(migrations()), "created_at": created_at},
    )


def prepare(connection: Connection, address: Address, now: datetime, wait: float = 10.0) -> None:
    """Make the store, or bring it up to date, in one transaction, while nobody writes.

    One of all servers does it; `wait` is how many seconds it waits for those who write.
    """
    connection.begin(f"BEGIN; SET LOCAL lock_timeout = {round(wait * 1000)}")
    try:
        connection.execute("SELECT pg_advisory_xact_lock(:key)", {"key": address.key("store")})
        version = version_of(connection, address.schema)
        apply(connection, address, version or 0)
        if version is None:
            enter(connection, OLDEST_READER, to_text(now))
        else:
            row = {"version": len(migrations())}
            connection.execute("UPDATE store SET version = :version", row)
        connection.commit()
    except BaseException:
        if connection.in_transaction:
            connection.rollback()
        raise
    if version not in (None, len(migrations())):
        log.warning("%s: schema %d -> %d", address.shown, version, len(migrations()))
