"""The one door to the file: every write is all or nothing behind a lock, every read a snapshot.

Writes that this process is asked for at the same time share one transaction, and so one sync: each
has a savepoint in it, and is told how it ended when all of it is on disk. What one refuses touches
no other: whatever spoils the transaction for all has each done again in one of its own.

A transaction is one function that holds nothing but its own statements and can't be cancelled
half-way. It runs where it was called, on a connection for writing or one for reading: to wake a
thread takes longer than most of them do, and between its statements the thread would wait for the
interpreter. What takes seconds is done in a thread, and what has to wait for other processes in the
one that waits; every transaction is where the file system may be one of the network.
Driver errors become ours here, in the words of `refusals`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

from mcp_state.errors import StateError, StoreBusy, StoreDamaged, StoreReadonly
from mcp_state.models import Caller, Limits, Totals
from mcp_state.store import opening
from mcp_state.store.changes import Changes
from mcp_state.store.database import Database
from mcp_state.store.line import Line, Place
from mcp_state.store.queue import NotOurTurn, Queue, noted_changes
from mcp_state.store.refusals import (
    is_out_of_space,
    primary_code,
    refused,
    refused_by_driver,
)
from mcp_state.store.transaction import Reading, Writing
from mcp_state.store.worker import Worker, schema_of, shielded
from mcp_state.store.write import Ended, Write
from mcp_state.times import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST_GROUP = 0.01
"""Seconds after which nobody is taken along any more: who waits is another process, too."""
_REINDEX = "INSERT INTO search (search) VALUES ('rebuild')"
_LONGEST_PAUSE = 0.02


class _Busy(Exception):
    """Another process holds the write lock of the file; nothing was begun."""


class _SchemaChanged(Exception):
    """Somebody changed the schema since the store was opened; nothing was begun."""


class _Older(Exception):
    """The store has to be brought up to date before it can be read."""


class _Spoilt(Exception):
    """What befell one of a group ended the transaction of all; nothing was committed."""


class SQLiteDatabase(Database):
    """The file of a store, opened when the first call needs it.

    `path` is absolute; the file need not exist, the first write makes it.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        read_only: bool = False,
        allow_secrets: bool = False,
        wait: float = 10.0,
    ) -> None:
        super().__init__(
            path,
            clock=clock,
            limits=limits,
            read_only=read_only,
            allow_secrets=allow_secrets,
            wait=wait,
        )
        self._line: Line[Write[Any]] = Line()
        self._queue = Queue(path + "-queue")
        self._writer = Worker(path)
        self._reader = Worker(path)
        self._changes = 0
        self._news = Changes(self._state)

    async def write(
        self,
        caller: Caller,
        body: Callable[[Writing], T],
        *,
        apart: bool = False,
        every_project: bool = False,
    ) -> T:
        """Run `body` in the turn of this process among the others.

        It is run again, alone, if another one that it shared a transaction with has spoilt that.
        """
        if apart:
            return await self._in_turn(lambda: self._transact(caller, body), Place(), apart=True)
        write = Write(caller, body)
        return await self._in_turn(
            lambda: self._carry_out(write), Place(write), apart=self._may_wait
        )

    async def maintain(self, statement: str) -> None:
        """Run it on the writing connection, in a thread."""
        await self._in_turn(lambda: self._maintain(statement), Place(), apart=True)

    async def rewrite(self) -> bool:
        """Write the index and the file anew, and empty the -wal."""
        await self.maintain(_REINDEX)
        await self.maintain("VACUUM")
        return await self.empty_wal()

    async def empty_wal(self) -> bool:
        """Checkpoint until no reader is in the way, for as long as a write would wait."""
        deadline = time.monotonic() + self.wait
        while not await self._in_turn(self._empty_wal, Place(), apart=True):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_LONGEST_PAUSE)
        return True

    async def _in_turn(self, work: Callable[[], T], place: Place[Write[T]], *, apart: bool) -> T:
        """Do something on the writing connection, alone among the processes."""
        if self.read_only:
            raise StoreReadonly(
                f"{self.path} is opened for reading only by this server",
                "Use a server with the coding toolset to write.",
            )
        deadline = time.monotonic() + self.wait
        try:
            has_turn = await self._line.enter(place, self.wait)
        except NotOurTurn:
            raise StoreBusy.after(self.wait) from None
        if not has_turn:
            assert place.work is not None
            return place.work.outcome()
        try:
            while True:
                left = deadline - time.monotonic()
                try:
                    return await self._queue.first(work, left, apart=apart)
                except _SchemaChanged:
                    continue
                except NotOurTurn:
                    raise StoreBusy.after(self.wait) from None
                except (_Busy, StoreBusy) as problem:
                    if isinstance(problem, StoreBusy) or time.monotonic() >= deadline:
                        await self._let_go()
                        raise StoreBusy.after(self.wait) from None
                import random

                await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))
        finally:
            self._line.leave()
            self._news.poke()

    async def _let_go(self) -> None:
        """Close what is open: a lock that the system refused to free is kept until then."""
        await self._reader.close()
        await self._writer.close()

    @cached_property
    def _may_wait(self) -> bool:
        """Whether a transaction waits for the network, or for readers, as it does without a WAL."""
        return not opening.wal_is_safe(self.path)

    async def read(
        self, caller: Caller, body: Callable[[Reading], T], *, every_project: bool = False
    ) -> T:
        """Run `body` on the reading connection."""
        while True:
            try:
                if self._may_wait:
                    return await self._reader.run(self._snapshot, caller, body)
                return self._snapshot(caller, body)
            except _SchemaChanged:
                continue
            except _Older:
                await self._in_turn(self._migrate, Place(), apart=True)

    def changes(self) -> AsyncGenerator[None]:
        """Look at the file five times a second, and after what is written here."""
        return self._news.listen()

    async def _state(self) -> object:
        """What differs after a change, for as long as it is kept: which connection, and when."""
        try:
            if self._may_wait:
                return await self._reader.run(self._data_version)
            return self._data_version()
        except Exception as problem:  # whatever it is, who listens meets it when reading
            return repr(problem)

    def _data_version(self) -> tuple[sqlite3.Connection, int]:
        try:
            connection = self._opened(self._open_reader)
            (version,) = connection.execute("PRAGMA data_version").fetchone()
        except (sqlite3.Error, StoreDamaged, _SchemaChanged):  # not logged, it may go on for hours
            self._reader.forget()
            raise
        return connection, version

    async def aclose(self) -> None:
        """Close both connections."""
        self._news.close()
        with shielded():
            await self._reader.close()
            await self._line.enter(Place())
            try:
                await self._writer.close()
                self._reader.watch.close()
                self._writer.watch.close()
                self._queue.close()
            finally:
                self._line.leave()

    def _carry_out(self, first: Write[T]) -> T:
        """Do it; what waits behind it is done along with it, in one transaction for all.

        If that fails, and it is certain that nothing was committed, each gets one of its own.
        """
        if not self._line.is_joined():
            return self._transact(first.caller, first.body)
        group: list[Write[Any]] = []
        try:
            self._transact_together(first, group)
        except BaseException as problem:
            if not group:
                raise
            certain = isinstance(problem, Exception) and not isinstance(
                problem, StoreBusy | StoreDamaged
            )
            for write in group:
                if certain:
                    self._alone(write)
                else:
                    write.ended = Ended(problem=problem)
        return first.outcome()

    def _transact_together(self, first: Write[Any], group: list[Write[Any]]) -> None:
        """BEGIN, a savepoint for each, COMMIT; `group` becomes those that were begun."""
        over = time.monotonic() + LONGEST_GROUP
        following: Write[Any] | None = first
        with self._translated(self._writer):
            connection = self._begin()
            try:
                while following is not None:
                    group.append(following)
                    following.context.run(self._part, connection, following)
                    in_time = time.monotonic() < over
                    following = self._line.take_along() if in_time else None
                if any(write.changed for write in group):
                    self._commit(connection)
                else:
                    connection.execute("ROLLBACK")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _part(self, connection: sqlite3.Connection, write: Write[Any]) -> None:
        """One of a group: all of it, or nothing but the record of its refusal."""
        try:
            connection.execute("SAVEPOINT call")
            self._try(connection, write)
            connection.execute("RELEASE call")
        except (sqlite3.Error, StateError) as problem:
            raise _Spoilt from problem

    def _try(self, connection: sqlite3.Connection, write: Write[Any]) -> None:
        caller = write.caller
        tx: Writing | None = None
        try:
            tx = Writing(connection, caller, self.clock, self.limits, self.allow_secrets)
            result = write.body(tx)
            if tx.changed:
                write.ended = Ended(result, totals=tx.totals(), changed=True)
                return
        except (sqlite3.Error, StoreDamaged):
            raise
        except Exception as problem:
            connection.execute("ROLLBACK TO call")
            totals = None
            if isinstance(problem, StateError) and problem.recorded:
                totals = self._refusal(connection, caller, tx, problem)
            write.ended = Ended(problem=problem, totals=totals, changed=totals is not None)
            return
        connection.execute("ROLLBACK TO call")
        left = Reading(connection, caller, self.clock, self.limits)
        write.ended = Ended(result, totals=left.totals())

    def _alone(self, write: Write[Any]) -> None:
        """In a transaction of its own, in the turn of the group."""
        while True:
            try:
                result = write.context.run(self._transact, write.caller, write.body)
            except _SchemaChanged:
                continue
            except _Busy:
                write.ended = Ended(problem=StoreBusy.after(self.wait))
            except BaseException as problem:
                write.ended = Ended(problem=problem)
            else:
                write.ended = Ended(result)
            return

    def _begin(self) -> sqlite3.Connection:
        """Open if need be, and BEGIN."""
        try:
            connection = self._opened(self._open_writer)
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as problem:
            if primary_code(problem) == sqlite3.SQLITE_BUSY:
                raise _Busy from problem
            raise
        self._writer.wal = opening.identity(self.path + "-wal")
        try:
            _check_schema(self._writer, connection)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        return connection

    def _transact(self, caller: Caller, body: Callable[[Writing], T]) -> T:
        """BEGIN, body, COMMIT, or ROLLBACK."""
        with self._translated(self._writer):
            connection = self._begin()
            tx: Writing | None = None
            try:
                tx = Writing(connection, caller, self.clock, self.limits, self.allow_secrets)
                result = body(tx)
                if not tx.changed:  # no event, so nothing that is worth a project or a sync
                    connection.execute("ROLLBACK")
                    left = Reading(connection, caller, self.clock, self.limits)
                    caller.totals = left.totals()
                    return result
                totals = tx.totals()
                self._commit(connection)
                caller.totals = totals
                return result
            except BaseException as problem:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if isinstance(problem, StateError) and problem.recorded:
                    self._record_refusal(connection, caller, tx, problem)
                raise

    def _maintain(self, statement: str) -> None:
        with self._translated(self._writer):
            try:
                self._opened(self._open_writer).execute(statement)
            except sqlite3.OperationalError as problem:
                if primary_code(problem) == sqlite3.SQLITE_BUSY:
                    raise _Busy from problem
                raise

    def _empty_wal(self) -> bool:
        with self._translated(self._writer):
            connection = self._opened(self._open_writer)
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    def _commit(self, connection: sqlite3.Connection) -> None:
        (changes,) = connection.execute("SELECT changes FROM store").fetchone()
        try:
            connection.execute("COMMIT")
        except sqlite3.OperationalError as problem:
            if primary_code(problem) != sqlite3.SQLITE_IOERR or is_out_of_space(problem):
                raise
            log.warning("%s: %s", self.path, problem)
            raise StoreDamaged.in_doubt(self.path, str(problem)) from problem
        self._changes = changes
        try:
            self._queue.note_changes(changes)
        except OSError:  # the change itself is saved, and its caller has to be told so
            log.exception("%s: the number of changes could not be noted", self._queue.path)

    def _migrate(self) -> None:
        """Opening for writing is what brings a store up to date."""
        with self._translated(self._writer):
            self._opened(self._open_writer)

    def _record_refusal(
        self,
        connection: sqlite3.Connection,
        caller: Caller,
        failed: Writing | None,
        problem: StateError,
    ) -> None:
        """In a transaction of its own."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            totals = self._refusal(connection, caller, failed, problem)
            if totals is None:
                connection.execute("ROLLBACK")
                return
            self._commit(connection)
            caller.totals = totals
        except (sqlite3.Error, StateError):
            log.exception("a refusal could not be recorded")
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _refusal(
        self,
        connection: sqlite3.Connection,
        caller: Caller,
        failed: Writing | None,
        problem: StateError,
    ) -> Totals | None:
        """Make it an event: people want to see what was refused, and why.

        None if there is no project: a refusal is no reason to begin one.
        """
        if not Reading(connection, caller, self.clock, self.limits).project:
            return None
        tx = Writing(connection, caller, self.clock, self.limits, self.allow_secrets)
        if failed is not None:
            tx.subject, tx.of_run = failed.subject, failed.of_run
        row = {"code": problem.code, "fact": problem.fact}
        tx.event("refused", f"refused: {problem.code}", row)
        return tx.totals()

    def _snapshot(self, caller: Caller, body: Callable[[Reading], T]) -> T:
        """BEGIN, body, and nothing to commit."""
        with self._translated(self._reader):
            connection = self._opened(self._open_reader)
            connection.execute("BEGIN")
            try:
                _check_schema(self._reader, connection)
                tx = Reading(connection, caller, self.clock, self.limits)
                caller.totals = tx.totals()
                return body(tx)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _translated(self, worker: Worker) -> Generator[None]:
        """The one place where the driver's errors become ours."""
        try:
            yield
        except (StoreDamaged, _SchemaChanged, _Spoilt):
            worker.forget()
            raise
        except sqlite3.Error as problem:
            log.warning("%s: %s", self.path, problem)
            told = refused_by_driver(self.path, problem, self.wait)
            if primary_code(problem) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                worker.forget()
            if told is None:
                raise
            raise told from problem

    def _opened(self, open_: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
        """The connection; what the system refuses meanwhile, of any file of the store, is ours."""
        try:
            return open_()
        except OSError as problem:
            raise refused(problem.filename or self.path, problem) from problem

    def _open_writer(self) -> sqlite3.Connection:
        """The writing connection; the queue is ours, so making and migrating is safe here."""
        found = opening.identity(self.path)
        if self._writer.connection is not None and self._writer.identity == found:
            if self._writer.wal in (None, opening.identity(self.path + "-wal")):
                if self._writer.watch.check():
                    return self._writer.connection
                self._writer.forget()
                return self._open_writer()
            log.warning("%s-wal was removed; saving what was in it", self.path)
            self._writer.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._writer.forget()
        if found is None:
            self._refuse_if_it_was_there(max(self._changes, self._queue.changes()))
            opening.make(self.path, self.clock.now())
            self._queue.note_changes(0)
            found = opening.identity(self.path)
        version = self._look(self._queue.changes())
        if not os.access(self.path, os.W_OK):
            raise refused(self.path, PermissionError(13, "Permission denied"))
        connection = opening.new_connection(self.path, "rw")
        try:
            opening.migrate(self.path, connection, version, self.clock.now())
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA temp_store = MEMORY")  # no page of it in another file
            if opening.wal_is_safe(self.path):
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA busy_timeout = 0")  # the queue is where one waits
            else:
                connection.execute("PRAGMA journal_mode = DELETE")
        except BaseException:
            connection.close()
            raise
        self._writer.keep(connection, found)
        return connection

    def _open_reader(self) -> sqlite3.Connection:
        found = opening.identity(self.path)
        same = self._reader.connection is not None and self._reader.identity == found
        if same and (found is None or self._reader.watch.check()):
            assert self._reader.connection is not None
            return self._reader.connection
        self._reader.forget()
        if found is None:
            self._refuse_if_it_was_there(max(self._changes, noted_changes(self._queue.path)))
            connection = opening.new_connection(":memory:")
            opening.apply(connection, opening.migrations())
        else:
            if self._look(noted_changes(self._queue.path)) < len(opening.migrations()):
                raise _Older
            connection = opening.new_connection(self.path, "ro")
        connection.execute("PRAGMA query_only = ON")
        self._reader.keep(connection, found)
        return connection

    def _look(self, noted_changes: int) -> int:
        """Look at an existing store without writing a byte to it; returns its schema's version.

        Only a write that was killed half-way, without a WAL, has to be taken back first.
        """
        opening.check_files(self.path)
        interrupted = not self.read_only and os.path.exists(self.path + "-journal")
        mode = "rw" if interrupted else "ro"
        with contextlib.closing(opening.new_connection(self.path, mode)) as connection:
            version = opening.check_store(self.path, connection, noted_changes)
        if self.read_only and version < len(opening.migrations()):
            raise StoreReadonly(
                f"{self.path} is of an older version (schema {version})",
                "A server that writes brings it up to date; this one only reads.",
            )
        return version

    def _refuse_if_it_was_there(self, noted_changes: int) -> None:
        """No fresh start where a store was."""
        leaves_wal = os.path.exists(self.path + "-wal")
        if (leaves_wal or noted_changes) and opening.identity(self.path) is not None:
            raise _SchemaChanged  # it was made since the look at it
        if leaves_wal:
            raise StoreDamaged.at(self.path, "the file is gone, but its -wal is still there")
        if noted_changes:
            raise StoreDamaged(
                f"{self.path}: the file is gone, and {noted_changes:,} changes with it",
                "`mcp-state restore BACKUP` puts a copy in its place. To begin anew instead, "
                f"remove {self._queue.path} too.",
            )


def _check_schema(worker: Worker, connection: sqlite3.Connection) -> None:
    """A newer version may have migrated the store meanwhile, and closed it to this one."""
    if schema_of(connection) != worker.schema:
        raise _SchemaChanged
