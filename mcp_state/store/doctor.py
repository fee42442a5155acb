"""What is the matter with a store, in words, and the way out. Changes nothing in it.

The file itself is looked at byte by byte; everything else is asked of a copy in a temporary
directory, which is thrown away.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field

from mcp_state.errors import StateError, StoreDamaged
from mcp_state.models import Totals
from mcp_state.record import record
from mcp_state.settings import is_address
from mcp_state.store import opening
from mcp_state.store.consistency import MORE_ROOM, RESTORE, Finding, Severity, inspect
from mcp_state.store.queue import noted_changes
from mcp_state.store.refusals import damage, is_out_of_space, refused
from mcp_state.store.transaction import totals_of
from mcp_state.store.wal import Wal, scan
from mcp_state.times import Clock

__all__ = ["Finding", "Report", "Writer", "examine"]

_CLOSE = "Close it to others: chmod {mode} {path}"
_TRIES = 3
_PROJECTS = """
    SELECT * FROM projects WHERE merged_into IS NULL ORDER BY last_event DESC, id
"""


@record
class Writer:
    """The process that holds the write queue at this moment."""

    pid: int
    command: str


@dataclass(slots=True)
class Report:
    """What `mcp-state doctor` prints. What could not be found out is 0, empty or None."""

    path: str
    exists: bool = False
    server: str = ""
    size: int = 0
    wal_size: int = 0
    schema: int = 0
    journal_mode: str = ""
    journal_reason: str = ""
    permissions: str = ""
    changes: int = 0
    projects: Sequence[Totals] = ()
    writer: Writer | None = None
    findings: list[Finding] = field(default_factory=list[Finding])

    def add(self, severity: Severity, what: str, way_out: str = "") -> None:
        """One more finding."""
        self.findings.append(Finding(severity, what, way_out))

    def add_refusal(self, problem: StateError) -> None:
        """What keeps the store from being looked at."""
        self.add("damage", problem.fact, problem.next_step)

    @property
    def problems(self) -> Sequence[Finding]:
        """Everything that is not in order, damage first."""
        return [f for f in self.findings if f.severity == "damage"] + [
            f for f in self.findings if f.severity == "warning"
        ]

    @property
    def damaged(self) -> bool:
        """Whether something is lost or can't be trusted."""
        return any(finding.severity == "damage" for finding in self.findings)


async def examine(path: str, *, clock: Clock | None = None) -> Report:
    """Look at everything, deeply. Takes time in proportion to the store, and room for a copy.

    Meant for a process of its own: without a -wal it reads the main file directly, which frees
    the locks of a SQLite connection that the same process may have on it.
    """
    if is_address(path):
        from mcp_state.store.postgres.doctor import examine_server

        return await examine_server(path, clock or Clock())
    return await asyncio.to_thread(_examine, path, clock or Clock())


def projects_of(connection: sqlite3.Connection) -> Sequence[Totals]:
    """The counts of all projects, those that changed most at first."""
    return [totals_of(row) for row in connection.execute(_PROJECTS)]


def _examine(path: str, clock: Clock) -> Report:
    report = Report(path)
    report.writer = _writer(path + "-queue")
    kind = opening.file_system(os.path.realpath(path)) or "unknown"
    safe = opening.wal_is_safe(path)
    report.journal_reason = f"file system {kind}: " + (
        "a write-ahead log works there"
        if safe
        else "the shared memory of a write-ahead log does not work there, so DELETE is used"
    )
    noted = noted_changes(path + "-queue")
    if not os.path.lexists(path):
        _report_missing(report, noted)
        return report
    report.exists = True
    try:
        wal = _look_at_files(report, safe)
    except StateError as problem:
        report.add_refusal(problem)
        return report
    except OSError as problem:
        report.add_refusal(refused(problem.filename or path, problem))
        return report
    try:
        with tempfile.TemporaryDirectory(prefix="mcp-state-doctor-") as folder:
            copy = os.path.join(folder, "copy.db")
            if _made_copy(report, wal, copy):
                _look_inside(report, wal, copy, noted, clock)
    except OSError as problem:
        _not_copied(report, problem)
    return report


def _report_missing(report: Report, noted: int) -> None:
    path = report.path
    if os.path.exists(path + "-wal"):
        report.add("damage", f"{path}: the file is gone, but its -wal is still there", RESTORE)
    elif noted:
        report.add(
            "damage",
            f"{path}: the file is gone, and {noted:,} changes with it",
            f"{RESTORE} To begin anew instead, remove {path}-queue too.",
        )
    else:
        report.add("ok", f"there is no store at {path} yet; the first write makes it")


def _look_at_files(report: Report, safe: bool) -> Wal:
    """What can be told from outside.

    Raises:
        StateError: it can't be a store, or can't be read.
    """
    path = report.path
    report.size = os.stat(path).st_size
    opening.check_main_file(path)
    report.journal_mode = _journal_mode(path)
    if report.journal_mode == "WAL" and not safe:
        report.add(
            "warning",
            f"{path} uses a write-ahead log on a file system where that is not safe",
            "Keep the store on a local disk (--db); the next write switches to DELETE.",
        )
    _check_permissions(report)
    _check_leftovers(report)
    wal = scan(path + "-wal")
    report.wal_size = wal.size
    if wal.garbage:
        report.add(
            "damage",
            f"{path}-wal: this is not a write-ahead log; the last changes were in it",
            RESTORE,
        )
    return wal


def _journal_mode(path: str) -> str:
    """The mode in the header of the file, which is left alone while a process has its -wal."""
    if os.path.exists(path + "-wal"):
        return "WAL"
    with open(path, "rb") as file:
        head = file.read(20)
    if not head.startswith(b"SQLite format 3\0"):
        raise StoreDamaged.at(path, "this is not a SQLite database")
    return "WAL" if head[18:19] == b"\2" else "DELETE"


def _check_permissions(report: Report) -> None:
    """Nobody else should read a store: it holds what agents were told."""
    path = report.path
    folder = os.path.dirname(path)
    told: list[str] = []
    for name, wanted in ((folder, 0o700), *((path + end, 0o600) for end in _FILES)):
        try:
            found = os.stat(name)
        except FileNotFoundError:
            continue
        mode = stat.S_IMODE(found.st_mode)
        told.append(f"{mode:04o} {os.path.basename(name)}")
        if mode & ~wanted & 0o777:
            report.add(
                "warning",
                f"{name} is open to others (mode {mode:04o})",
                _CLOSE.format(mode=f"{wanted:o}", path=name),
            )
    report.permissions = ", ".join(told)


_FILES = ("", "-wal", "-shm", "-queue")


def _check_leftovers(report: Report) -> None:
    folder, name = os.path.split(report.path)
    half = [f for f in sorted(os.listdir(folder)) if f.startswith(f"{name}.") and ".new-" in f]
    if half:
        report.add(
            "warning",
            f"left half-made by processes that were killed: {', '.join(half[:5])}",
            f"Delete them from {folder} when no mcp-state is making a copy.",
        )
    if os.path.exists(report.path + "-journal"):
        report.add(
            "warning",
            f"{report.path}-journal: a write is going on, or was interrupted",
            "Nothing to do: the next write takes an interrupted one back.",
        )


def _made_copy(report: Report, wal: Wal, copy: str) -> bool:
    """A snapshot of the store to ask; what the -wal holds is in it, as far as SQLite sees it."""
    path = report.path
    try:
        if wal.garbage:
            _snapshot(path, copy, "ro&immutable=1")
        elif wal.exists or not _copied_whole(path, copy):
            _snapshot(path, copy, "ro")
    except OSError as problem:
        _not_copied(report, problem)
        return False
    except sqlite3.Error as problem:
        if is_out_of_space(problem):
            _not_copied(report, problem)
        else:
            report.add("damage", f"{path}: {damage(problem)}", RESTORE)
        return False
    return True


def _not_copied(report: Report, problem: Exception) -> None:
    report.add(
        "warning",
        f"{report.path} was not looked into: its {report.size:,} bytes could not be copied to a "
        f"temporary directory ({problem})",
        MORE_ROOM,
    )


def _copied_whole(path: str, copy: str) -> bool:
    """Copy a file that nobody has open: looking through SQLite would make a -wal beside it."""
    for _ in range(_TRIES):
        before = os.stat(path)
        shutil.copyfile(path, copy)
        if os.path.exists(path + "-journal"):
            shutil.copyfile(path + "-journal", copy + "-journal")
        after = os.stat(path)
        unmoved = (before.st_ino, before.st_size, before.st_mtime_ns) == (
            after.st_ino,
            after.st_size,
            after.st_mtime_ns,
        )
        if unmoved and not os.path.exists(path + "-wal"):
            return True
    return False


def _snapshot(path: str, copy: str, mode: str) -> None:
    """Copy through SQLite; immutable: without its -wal."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(copy + "-journal")
    with (
        contextlib.closing(opening.new_connection(path, mode)) as original,
        contextlib.closing(opening.new_connection(copy)) as target,
    ):
        original.execute("BEGIN")
        original.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
        original.backup(target)


def _look_inside(report: Report, wal: Wal, copy: str, noted: int, clock: Clock) -> None:
    """Ask the copy; what can't be read any more is a finding too."""
    path = report.path
    with contextlib.closing(opening.new_connection(copy)) as connection:
        _check_pages(report, connection)
        try:
            report.schema = opening.check_store(path, connection, 0)
            (report.changes,) = connection.execute("SELECT changes FROM store").fetchone()
            connection.row_factory = sqlite3.Row
            if report.schema >= len(opening.migrations()):  # an older one has other columns
                report.projects = projects_of(connection)
        except StateError as problem:
            report.add_refusal(problem)
            return
        except sqlite3.Error as problem:
            report.add("damage", f"{path}: {damage(problem)}", RESTORE)
            return
        _check_changes(report, wal, noted)
        latest = len(opening.migrations())
        if report.schema == latest:
            report.findings.extend(inspect(connection, clock))
        else:
            way_out = (
                "The next write brings it up to date, after making a copy."
                if report.schema < latest
                else "Upgrade mcp-state to look deeper."
            )
            report.add("warning", f"its schema is {report.schema}, ours is {latest}", way_out)


def _check_pages(report: Report, connection: sqlite3.Connection) -> None:
    try:
        found = [row[0] for row in connection.execute("PRAGMA integrity_check(10)")]
    except sqlite3.Error as problem:
        found = [str(problem)]
    if found == ["ok"]:
        report.add("ok", "pages")
    else:
        what = f"{report.path}: its pages are damaged: {'; '.join(found)[:600]}"
        report.add("damage", what, RESTORE)


def _check_changes(report: Report, wal: Wal, noted: int) -> None:
    """What was acknowledged, against what is here."""
    path, here = report.path, report.changes
    if here < noted:
        report.add(
            "damage",
            f"{path}: {noted - here:,} committed changes are missing ({noted:,} were made, "
            f"{here:,} are here): its -wal was removed or damaged, or an older copy was put "
            "here",
            f"{RESTORE} If the -wal still exists, put it back beside the file.",
        )
    if wal.lost:
        complete = noted and here >= noted
        report.add(
            "warning" if complete else "damage",
            f"{path}-wal: frame {wal.broken_at} is damaged, and {wal.lost:,} transactions that "
            "follow it are not read" + ("; none of them was ever acknowledged" if complete else ""),
            "Nothing to do: the next writes replace them." if complete else RESTORE,
        )
    if here >= noted and not wal.lost and not wal.garbage:
        report.add("ok", "committed changes")


def _writer(queue: str) -> Writer | None:
    """Who has the lock of the queue, as far as the kernel tells."""
    try:
        found = os.stat(queue)
        with open("/proc/locks", encoding="ascii") as locks:
            lines = [line.split() for line in locks]
    except OSError:
        return None
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for words in lines:
        if len(words) >= 6 and words[1] == "FLOCK" and words[5] == device:
            return Writer(int(words[4]), _command(words[4]))
    return None


def _command(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return " ".join(word.decode(errors="replace") for word in words)
