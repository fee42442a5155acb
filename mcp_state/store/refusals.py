"""What the operating system and SQLite refuse, in our words."""

from __future__ import annotations

import errno
import os
import sqlite3

from mcp_state.calls import either
from mcp_state.errors import DiskFull, StateError, StoreBusy, StoreDamaged, StoreReadonly


def refused(path: str, problem: OSError) -> StateError:
    """The operating system's refusal."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull.at(path)
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadonly.at(path, os.strerror(problem.errno))
    if problem.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
        return StoreReadonly(
            f"{path}: file locks do not work on this file system",
            "Keep the store on a local disk: name one with --db or MCP_STATE_DB.",
        )
    return StoreDamaged.at(path, os.strerror(problem.errno or 0))


def refused_by_driver(path: str, problem: sqlite3.Error, waited: float) -> StateError | None:
    """The driver's refusal; None if the fault is ours, such as a constraint that was not met."""
    code = primary_code(problem)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return StoreBusy.after(waited)
    if code == sqlite3.SQLITE_FULL:
        return DiskFull.at(path)
    if is_out_of_space(problem):
        return DiskFull(
            f"not saved: {path} could not be written ({problem}): no space, over a quota or a file "
            "size limit, or a failing disk",
            f"Free some space and {either('call again; no restart', 'run it again')}.",
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreReadonly.at(path, str(problem))
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR):
        return StoreDamaged.at(path, damage(problem))
    return None


def primary_code(problem: sqlite3.Error) -> int:
    """The primary result code of SQLite; 0 for an error of the Python module's own."""
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF


def is_out_of_space(problem: sqlite3.Error) -> bool:
    """Whether a write failed for want of room; SQLite names a quota or a limit an I/O error."""
    return primary_code(problem) == sqlite3.SQLITE_FULL or getattr(
        problem, "sqlite_errorcode", 0
    ) in (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)


def damage(problem: sqlite3.Error) -> str:
    """What SQLite found wrong with a file, in words."""
    if primary_code(problem) == sqlite3.SQLITE_NOTADB:
        return "this is not a SQLite database"
    return str(problem)
