"""Opening, making and migrating the file, so that a damaged store is never taken for a new one.

Nothing here reads the whole file: `doctor` does that.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from urllib.parse import quote

from mcp_state.errors import StoreDamaged, StoreNewer, StoreReadonly
from mcp_state.record import record
from mcp_state.store import wal
from mcp_state.store.refusals import refused
from mcp_state.times import to_text

log = logging.getLogger(__name__)

OLDEST_SQLITE = (3, 37)
APPLICATION_ID = 0x4D43_5053  # "MCPS"
OLDEST_READER = 4
"""The first version of the schema whose code does no harm to a store of today."""
PATIENCE = 2.0
"""Seconds that a connection waits for the lock of another."""
_PAGES = 500
_CHANGES_OBJECT = re.compile(
    r"(?:\s|--[^\n]*\n)*(?P<verb>CREATE|DROP) (?P<virtual>VIRTUAL )?(?:UNIQUE )?"
    r"(?P<kind>TABLE|INDEX|VIEW|TRIGGER) (?P<name>\w+)"
)
_PARTS_OF_FTS5 = ("config", "data", "docsize", "idx")
_UNSAFE_FOR_WAL = ("nfs", "cifs", "smb", "9p", "afs", "fuse", "vboxsf", "prl_fs", "ceph", "gfs")


@record
class Migration:
    """One step of the schema: version `number` is what the store is at after it."""

    number: int
    statements: Sequence[str]


def split(script: str, name: str) -> Iterator[str]:
    """The statements of a script, also where a trigger holds semicolons.

    Raises:
        ValueError: the last statement is not terminated.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        raise ValueError(f"{name} ends in the middle of a statement: {statement.strip()[:60]!r}")


def _statements(folder: str, name: str) -> tuple[str, ...]:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return tuple(split(file.read(), name))


@cache
def migrations() -> tuple[Migration, ...]:
    """All steps, in order, from the numbered files beside this module."""
    folder = os.path.join(os.path.dirname(__file__), "migrations")
    names = sorted(name for name in os.listdir(folder) if name.endswith(".sql"))
    steps = tuple(Migration(int(name[:4]), _statements(folder, name)) for name in names)
    assert [s.number for s in steps] == list(range(1, len(steps) + 1)), "migrations have a gap"
    return steps


@cache
def expected_objects() -> frozenset[tuple[str, str]]:
    """The tables, indexes, views and triggers of a whole store, read from the statements.

    Making them to see what they are would cost every start as much as the rest of opening.
    """
    found: set[tuple[str, str]] = set()
    for step in migrations():
        for statement in step.statements:
            changes = _CHANGES_OBJECT.match(statement)
            if changes is None:
                continue
            kind, name = changes["kind"].lower(), changes["name"]
            if changes["verb"] == "DROP":
                found.remove((kind, name))
                continue
            found.add((kind, name))
            if changes["virtual"]:
                found |= {("table", f"{name}_{part}") for part in _PARTS_OF_FTS5}
    return frozenset(found)


def _objects(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    rows = connection.execute("SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")
    return {(kind, name) for kind, name in rows}


def new_connection(path: str, mode: str = "") -> sqlite3.Connection:
    """A connection without transactions of its own making; `mode` is that of a SQLite URI.

    Raises:
        StoreReadonly: the SQLite of this Python is too old for STRICT tables and trigrams.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreReadonly(
            f"{path}: this Python comes with SQLite {sqlite3.sqlite_version}, which is too old",
            f"Use a Python with SQLite {'.'.join(map(str, OLDEST_SQLITE))} or newer.",
        )
    target = f"file:{quote(os.fsencode(path))}?mode={mode}" if mode else path
    connection = sqlite3.connect(
        target, uri=bool(mode), isolation_level=None, check_same_thread=False, timeout=PATIENCE
    )
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def file_system(path: str) -> str:
    """The type of the file system that holds `path`, from the mount table; empty if unknown."""
    best, kind = "", ""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                _, point, fs, *_ = line.split(" ")
                point = point.replace("\\040", " ").rstrip("/")
                inside = path == point or path.startswith(point + "/")
                if inside and len(point) >= len(best):
                    best, kind = point, fs
    except OSError:
        return ""
    return kind


def wal_is_safe(path: str) -> bool:
    """Whether the shared memory of a WAL works where `path` lies."""
    return not file_system(os.path.realpath(path)).startswith(_UNSAFE_FOR_WAL)


def identity(path: str) -> tuple[int, int] | None:
    """What tells one file at `path` from another that takes its place; None without a file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise refused(path, problem) from problem
    return found.st_dev, found.st_ino


def check_files(path: str) -> None:
    """Look at the main file and its -wal before SQLite does.

    Raises:
        StoreDamaged: it can't be a store.
        StoreReadonly: it can't be read.
    """
    check_main_file(path)
    try:
        _check_wal(path + "-wal")
    except OSError as problem:
        raise refused(path, problem) from problem


def check_main_file(path: str) -> None:
    """Look at the main file alone, without opening it.

    POSIX frees every lock that this process has on a file when any descriptor of it is closed:
    also those of SQLite, whose -wal another process would then take for abandoned, and delete.

    Raises:
        StoreDamaged: it can't be a store.
        StoreReadonly: it can't be read.
    """
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            what = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
            raise StoreDamaged.at(path, f"this is {what}")
    except OSError as problem:
        raise refused(path, problem) from problem
    if not found.st_size:
        raise StoreDamaged.at(path, "the file is empty, where a store was")
    if not os.access(path, os.R_OK):
        raise refused(path, PermissionError(errno.EACCES, ""))


def _check_wal(path: str) -> None:
    """SQLite silently ignores a WAL whose header is wrong, and with it what was committed there."""
    for _ in range(3):  # a writer may be renewing the header at this moment
        try:
            with open(path, "rb") as file:
                head = file.read(wal.HEADER)
        except FileNotFoundError:
            return
        if not head.strip(b"\0") or wal.is_header(head):
            return
    raise StoreDamaged.at(path, "this is not a write-ahead log; the last changes were in it")


def check_store(path: str, connection: sqlite3.Connection, noted_changes: int) -> int:
    """Check that what was opened is a whole store that this version may use.

    Returns:
        The version of its schema, which may be older or newer than ours.

    Raises:
        StoreDamaged: it is another database, has lost a table, or has lost changes.
        StoreNewer: its schema says that this version can't read it.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    size = os.stat(path).st_size
    if size % page and not any(_size(path + end) for end in ("-wal", "-journal")):
        raise StoreDamaged.at(path, f"the file ends in the middle of a page ({size:,} bytes)")
    if application != APPLICATION_ID:
        raise StoreDamaged.at(
            path, f"this database is not an mcp-state store (application_id {application:#x})"
        )
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    latest = len(migrations())
    found = _objects(connection)
    if version > latest and ("table", "store") in found:
        (min_reader,) = connection.execute("SELECT min_reader FROM store").fetchone()
        if min_reader > latest:
            raise StoreNewer(
                f"{path} was written by a newer version: its schema is {version}, it can be read "
                f"from {min_reader} on, this version knows {latest}",
                "Nothing was changed. Upgrade mcp-state, or name another file with --db.",
            )
    if version >= latest and (missing := expected_objects() - found):
        listed = ", ".join(f"{kind} {name}" for kind, name in sorted(missing)[:5])
        raise StoreDamaged.at(path, f"{len(missing)} parts are missing: {listed}")
    row = connection.execute("SELECT changes FROM store").fetchone()
    if row is None:
        raise StoreDamaged.at(path, "its table store is empty")
    if row[0] < noted_changes:
        raise StoreDamaged(
            f"{path}: {noted_changes - row[0]:,} committed changes are missing ({noted_changes:,} "
            f"were made, {row[0]:,} are here): its -wal was removed, or an older copy was put here",
            "Nothing was changed. `mcp-state doctor` explains it, `mcp-state restore BACKUP` puts "
            "a good copy in its place. To go on without those changes, remove "
            f"{path}-queue, where they are counted.",
        )
    return version


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def make(path: str, now: datetime) -> None:
    """Make a new store under a temporary name and move it into place whole.

    Raises:
        OSError: there is no room, or no permission.
    """
    with building(path) as connection:
        row = (OLDEST_READER, to_text(now))
        connection.execute("INSERT INTO store VALUES (1, ?, 0, ?)", row)


@contextmanager
def building(path: str) -> Generator[sqlite3.Connection]:
    """A new store to be filled in one transaction, that is moved into place when that is over.

    Raises:
        OSError: there is no room, or no permission.
    """
    temporary = f"{path}.new-{os.getpid()}"
    _remove_leftovers(f"{path}.new-")
    try:
        with contextlib.closing(new_connection(temporary)) as connection:
            os.chmod(temporary, 0o600)
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            apply(connection, migrations())
            yield connection
            connection.execute("COMMIT")
            if wal_is_safe(path):
                connection.execute("PRAGMA journal_mode = WAL")
        os.rename(temporary, path)
    finally:
        remove_half_made(temporary)
    sync_directory(path)


def _remove_leftovers(beginning: str) -> None:
    """Remove what processes that were killed left half-made under such names."""
    folder, name = os.path.split(beginning)
    for found in os.listdir(folder):
        if found.startswith(name) and ".new-" in found:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, found))


def sync_directory(path: str) -> None:
    """Make the name of a file, which is there already, as durable as its contents.

    Raises:
        StoreDamaged: the system did not say so.
    """
    if os.name != "posix":
        return
    try:
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as problem:
        raise StoreDamaged.in_doubt(path, os.strerror(problem.errno or 0)) from problem


def apply(connection: sqlite3.Connection, steps: Sequence[Migration]) -> None:
    """Run steps of the schema, within the transaction of the caller."""
    for step in steps:
        for statement in step.statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {step.number}")


def migrate(
    path: str,
    connection: sqlite3.Connection,
    version: int,
    now: datetime,
    steps: Sequence[Migration] | None = None,
) -> str:
    """Bring an older store up to date, after making a copy of it.

    Returns:
        The path of the copy, or empty if there was nothing to do.
    """
    due = [step for step in steps or migrations() if step.number > version]
    if not due:
        return ""
    _remove_leftovers(f"{path}.v{version}-")
    copy = f"{path}.v{version}-{now:%Y-%m-%d}.bak"
    copy_store(connection, copy)
    connection.execute("BEGIN IMMEDIATE")
    try:
        apply(connection, due)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk ends it
            connection.execute("ROLLBACK")
        raise
    log.warning("%s: schema %d -> %d; a copy is at %s", path, version, due[-1].number, copy)
    return copy


def copy_store(source: sqlite3.Connection, target: str) -> None:
    """A whole copy of an open store, moved into place when it is complete and on disk."""
    temporary = f"{target}.new-{os.getpid()}"
    remove_half_made(temporary)
    try:
        write_copy(source, temporary)
        os.replace(temporary, target)
    finally:
        remove_half_made(temporary)
    sync_directory(target)


def remove_half_made(temporary: str) -> None:
    """Remove a copy that is not needed; if that is refused, `doctor` will name it."""
    for end in ("", "-journal", "-wal", "-shm"):
        with contextlib.suppress(OSError):
            os.unlink(temporary + end)


def write_copy(
    source: sqlite3.Connection, target: str, progress: Callable[[int, int], None] | None = None
) -> None:
    """Copy an open store into a new file, which is on disk on return.

    `progress` is called with pages done and pages in all.
    """

    def report(_: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with contextlib.closing(new_connection(target)) as copy:
        source.backup(copy, pages=_PAGES, progress=report)
        copy.execute("PRAGMA journal_mode = DELETE")
    with open(target, "rb") as file:
        os.fsync(file.fileno())
