"""Backups: a whole copy of a store while it is in use, and a copy put in the place of a store.

Nothing is ever deleted: `restore` moves what was there aside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC
from functools import partial

from mcp_state.errors import BadArgument, NotFound, StateError, StoreBusy, StoreDamaged
from mcp_state.record import record
from mcp_state.store import opening
from mcp_state.store.queue import NotOurTurn, Queue, noted_changes
from mcp_state.store.refusals import is_out_of_space, refused, refused_by_driver
from mcp_state.times import Clock

Progress = Callable[[int, int], None]


@record
class Backup:
    """A copy that was made: where, how large, and how many changes are in it."""

    path: str
    size: int
    changes: int


@record
class Restored:
    """What `restore` did.

    `moved` are the files that were there, under their new names. `changes` are in the store now;
    `noted` had been made, as far as is known, so that `lost` of them are not in the backup.
    """

    path: str
    backup: str
    moved: tuple[str, ...]
    changes: int
    noted: int

    @property
    def lost(self) -> int:
        """Changes that were made after the backup."""
        return max(0, self.noted - self.changes)


async def back_up(
    path: str, target: str, *, overwrite: bool = False, progress: Progress | None = None
) -> Backup:
    """Copy the store to `target` while others go on writing; it appears there whole or not at all.

    `progress` is called with pages done and pages in all, from a worker thread.

    Raises:
        BadArgument: `target` exists, is the store itself, or its directory does not exist.
        NotFound: there is no store.
        StoreDamaged: the store is not whole, or its copy is not.
        StateError: what else the files refused.
    """
    return await asyncio.to_thread(_back_up, path, target, overwrite, progress)


async def restore(
    path: str,
    backup: str,
    *,
    wait: float = 10.0,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Put a copy of `backup` in the place of the store; servers that are running go on with it.

    The old main file, its -wal and its -shm stay beside it as `state.db.damaged-TIME`,
    `state.db.damaged-TIME-wal` and so on. Until the copy is known to be good, nothing is touched.

    Raises:
        BadArgument: `backup` is the store itself.
        NotFound: there is no such backup.
        StoreDamaged: the backup is not a whole store.
        StoreNewer: a newer version wrote it, and this one can't read it.
        StoreBusy: other processes kept writing for `wait` seconds.
        StateError: what else the files refused.
    """
    if opening.identity(backup) is None:
        raise NotFound(f"no backup at {backup}", "Nothing was changed. Name the file of a backup.")
    if opening.identity(backup) == opening.identity(path):
        raise BadArgument(
            f"{backup} is the store itself", "Nothing was changed. Name the file of a backup."
        )
    queue = Queue(path + "-queue")
    try:
        work = partial(_restore, path, backup, queue, clock or Clock(), progress)
        return await queue.first(work, wait, apart=True)
    except NotOurTurn:
        raise StoreBusy.after(wait) from None
    finally:
        queue.close()


def _back_up(path: str, target: str, overwrite: bool, progress: Progress | None) -> Backup:
    target = os.path.abspath(target)
    if opening.identity(path) is None:
        raise NotFound(f"no store at {path}", "Name another file with --db or MCP_STATE_DB.")
    check_target(path, target, overwrite)
    temporary = f"{target}.new-{os.getpid()}"
    try:
        changes = _copy(path, temporary, noted_changes(path + "-queue"), progress)
        put(temporary, target, overwrite)
    except OSError as problem:
        raise refused(target, problem) from problem
    finally:
        opening.remove_half_made(temporary)
    return Backup(target, os.stat(target).st_size, changes)


def check_target(path: str, target: str, overwrite: bool) -> None:
    """Whether a file may be written at `target`.

    Raises:
        BadArgument: it exists, is part of the store itself, or its directory does not exist.
    """
    if os.path.realpath(target) in {os.path.realpath(path) + end for end in _FILES_OF_A_STORE}:
        raise BadArgument(f"{target} belongs to the store itself", "Name another file.")
    if not os.path.isdir(os.path.dirname(target)):
        raise BadArgument(
            f"{os.path.dirname(target)} is not a directory", "Name a file in one that exists."
        )
    if os.path.isdir(target):
        raise BadArgument(f"{target} is a directory", "Name a file in it.")
    if os.path.lexists(target) and not overwrite:
        raise _exists(target)


_FILES_OF_A_STORE = ("", "-wal", "-shm", "-queue", "-journal")
_MOVED = ("", "-journal", "-wal", "-shm")
"""What `restore` moves aside, in this order; back in the opposite one."""


def _exists(target: str) -> BadArgument:
    return BadArgument(
        f"{target} exists already, and was left as it is",
        "Name another file, or say that it may be overwritten (--overwrite).",
    )


def _copy(source: str, temporary: str, noted: int, progress: Progress | None) -> int:
    """A checked copy of a store, on disk; returns how many changes are in it.

    The source is read in one transaction, so that writers neither wait nor make it start again.
    """
    opening.remove_half_made(temporary)
    opening.check_files(source)
    try:
        with contextlib.closing(opening.new_connection(source, "ro")) as original:
            original.execute("BEGIN")
            opening.check_store(source, original, noted)
            opening.write_copy(original, temporary, progress)
        with contextlib.closing(opening.new_connection(temporary)) as copy:
            found = [row[0] for row in copy.execute("PRAGMA quick_check(5)")]
            if found != ["ok"]:
                raise StoreDamaged.at(source, f"its pages are damaged: {'; '.join(found)[:300]}")
            return copy.execute("SELECT changes FROM store").fetchone()[0]
    except sqlite3.Error as problem:
        raise _driver_error(source, temporary, problem) from problem


def _driver_error(source: str, temporary: str, problem: sqlite3.Error) -> StateError:
    path = temporary if is_out_of_space(problem) else source
    told = refused_by_driver(path, problem, opening.PATIENCE)
    return told or StoreDamaged.at(source, str(problem))


def put(temporary: str, target: str, overwrite: bool) -> None:
    """Give the finished copy its name; without `overwrite`, only if nobody took it meanwhile."""
    if not overwrite:
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise _exists(target) from None
        except OSError:  # a file system without hard links
            if os.path.lexists(target):
                raise _exists(target) from None
            os.rename(temporary, target)
    else:
        os.replace(temporary, target)
    opening.sync_directory(target)


def _restore(
    path: str, backup: str, queue: Queue, clock: Clock, progress: Progress | None
) -> Restored:
    """With the queue's lock held: verify, move aside, put in place.

    The main file is moved first and put in place last: in between nobody can open a mixture of
    the old files and the new one, and a kill leaves what a second `restore` finishes.
    """
    temporary = f"{path}.new-{os.getpid()}"
    try:
        changes = _copy(backup, temporary, 0, progress)
        if opening.wal_is_safe(path):
            with contextlib.closing(opening.new_connection(temporary)) as copy:
                copy.execute("PRAGMA journal_mode = WAL")
        noted = queue.changes()
        aside = _free_name(path, clock)
        moved: list[str] = []
        try:
            for end in _MOVED:
                if os.path.lexists(path + end):
                    os.rename(path + end, aside + end)
                    moved.append(end)
            queue.note_changes(changes)
            os.rename(temporary, path)
        except BaseException:
            _move_back(path, aside, moved)
            queue.note_changes(noted)
            raise
        opening.sync_directory(path)
    except OSError as problem:
        raise refused(path, problem) from problem
    except sqlite3.Error as problem:
        raise _driver_error(backup, temporary, problem) from problem
    finally:
        opening.remove_half_made(temporary)
    return Restored(path, backup, tuple(aside + end for end in moved), changes, noted)


def _move_back(path: str, aside: str, moved: Sequence[str]) -> None:
    try:
        for end in reversed(moved):
            os.rename(aside + end, path + end)
    except OSError as problem:
        raise StoreDamaged(
            f"{path} was moved to {aside}, and could not be moved back: "
            f"{os.strerror(problem.errno or 0)}",
            "Nothing is lost: restore again, or move back what begins with that name.",
        ) from problem


def _free_name(path: str, clock: Clock) -> str:
    wanted = name = f"{path}.damaged-{clock.now().astimezone(UTC):%Y%m%dT%H%M%SZ}"
    number = 1
    while any(os.path.lexists(name + end) for end in _MOVED):
        number += 1
        name = f"{wanted}-{number}"
    return name
