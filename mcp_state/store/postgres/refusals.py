"""What PostgreSQL refuses, in our words."""

from __future__ import annotations

import re

import psycopg
from psycopg import errors

from mcp_state.calls import either
from mcp_state.errors import DiskFull, StateError, StoreBusy, StoreDamaged, StoreReadonly

TRANSIENT = (errors.SerializationFailure, errors.DeadlockDetected)
"""Nothing was committed, and the same transaction may succeed when it is run again."""

_WAITED = (errors.LockNotAvailable, errors.QueryCanceled)
_ENDED = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
    errors.TooManyConnections,
)
_FULL = (errors.DiskFull, errors.OutOfMemory)
_NOT_ALLOWED = (
    errors.InsufficientPrivilege,
    errors.InvalidAuthorizationSpecification,
    errors.InvalidPassword,
    errors.InvalidCatalogName,
    errors.ReadOnlySqlTransaction,
)
_NOBODY = re.compile(
    r"FATAL: .*(?:authentication failed|does not exist|no pg_hba\.conf entry|not permitted)"
)
_BROKEN = (errors.DataCorrupted, errors.IndexCorrupted, errors.IoError)


def is_lost(problem: psycopg.Error) -> bool:
    """Whether the connection is gone, or the server refuses every connection for now."""
    if isinstance(problem, _ENDED):
        return True
    gone = isinstance(problem, psycopg.OperationalError) and problem.sqlstate is None
    return gone and not _is_for_good(problem)


def _is_for_good(problem: psycopg.Error) -> bool:
    """What a server says that lets nobody of this name in; the driver has no code for it."""
    return _NOBODY.search(str(problem)) is not None


def unreachable(path: str, problem: BaseException | str) -> StoreBusy:
    """The server was not there for as long as a call may wait."""
    return StoreBusy(
        f"not saved: {path} cannot be reached ({one_line(problem)})",
        f"{either('Call', 'Run it')} again; if it goes on, see whether the database server runs.",
    )


def refused_by_server(path: str, problem: psycopg.Error, waited: float) -> StateError | None:
    """The server's refusal; None if the fault is ours, such as a constraint that was not met."""
    if isinstance(problem, _WAITED):
        return StoreBusy.after(waited)
    if isinstance(problem, TRANSIENT) or is_lost(problem):
        return unreachable(path, problem)
    if isinstance(problem, _FULL):
        return DiskFull.at(path)
    if isinstance(problem, _NOT_ALLOWED) or _is_for_good(problem):
        return StoreReadonly(
            f"{path}: {one_line(problem)}",
            "Let the role that is named there use this database, or name another one with --db or "
            "MCP_STATE_DB.",
        )
    if isinstance(problem, _BROKEN):
        return StoreDamaged(
            f"{path}: {one_line(problem)}",
            "The log of the database server tells more. Nothing was changed.",
        )
    return None


def one_line(problem: BaseException | str) -> str:
    """What the driver says, without what it says in further lines."""
    return str(problem).strip().split("\n", 1)[0].rstrip(".")
