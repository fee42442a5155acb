"""The one door to the file: every write is one transaction behind a lock, every read a snapshot.

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
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

from mcp_state.errors import StateError, StoreBusy, StoreDamaged, StoreReadonly
from mcp_state.models import Caller, Limits
from mcp_state.store import opening
from mcp_state.store.database import Database
from mcp_state.store.queue import NotOurTurn, Queue, noted_changes
from mcp_state.store.refusals import (
    is_out_of_space,
    primary_code,
    refused,
    refused_by_driver,
)
from mcp_state.store.transaction import Reading, Writing
from mcp_state.store.worker import Worker, schema_of, shielded
from mcp_state.times import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

_REINDEX = "INSERT INTO search (search) VALUES ('rebuild')"
_LONGEST_PAUSE = 0.02


class _Busy(Exception):
    """Another process holds the write lock of the file; nothing was begun."""


class _SchemaChanged(Exception):
    """Somebody changed the schema since the store was opened; nothing was begun."""


class _Older(Exception):
    """The store has to be brought up to date before it can be read."""


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
        self._turn = asyncio.Lock()
        self._queue = Queue(path + "-queue")
        self._writer = Worker(path)
        self._reader = Worker(path)
        self._changes = 0

    async def write(
        self,
        caller: Caller,
        body: Callable[[Writing], T],
        *,
        apart: bool = False,
        every_project: bool = False,
    ) -> T:
        """Run `body` in the turn of this process among the others."""
        return await self._in_turn(lambda: self._transact(caller, body), apart=apart)

    async def maintain(self, statement: str) -> None:
        """Run it on the writing connection, in a thread."""
        await self._in_turn(lambda: self._maintain(statement), apart=True)

    async def rewrite(self) -> bool:
        """Write the index and the file anew, and empty the -wal."""
        await self.maintain(_REINDEX)
        await self.maintain("VACUUM")
        return await self.empty_wal()

    async def empty_wal(self) -> bool:
        """Checkpoint until no reader is in the way, for as long as a write would wait."""
        deadline = time.monotonic() + self.wait
        while not await self._in_turn(self._empty_wal, apart=True):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_LONGEST_PAUSE)
        return True

    async def _in_turn(self, work: Callable[[], T], *, apart: bool) -> T:
        """Do something on the writing connection, alone among the processes."""
        if self.read_only:
            raise StoreReadonly(
                f"{self.path} is opened for reading only by this server",
                "Use a server with the coding toolset to write.",
            )
        deadline = time.monotonic() + self.wait
        await self._acquire()
        try:
            while True:
                left = deadline - time.monotonic()
                try:
                    return await self._queue.first(work, left, apart=apart or self._may_wait)
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
            self._turn.release()

    async def _acquire(self) -> None:
        """Become the first among the calls of this process."""
        try:
            async with asyncio.timeout(self.wait):
                await self._turn.acquire()
        except TimeoutError:
            raise StoreBusy.after(self.wait) from None

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
                await self._in_turn(self._migrate, apart=True)

    async def aclose(self) -> None:
        """Close both connections."""
        with shielded():
            await self._reader.close()
            async with self._turn:
                await self._writer.close()
                self._reader.watch.close()
                self._writer.watch.close()
                self._queue.close()

    def _transact(self, caller: Caller, body: Callable[[Writing], T]) -> T:
        """Open if need be, BEGIN, body, COMMIT, or ROLLBACK."""
        with self._translated(self._writer):
            try:
                connection = self._opened(self._open_writer)
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as problem:
                if primary_code(problem) == sqlite3.SQLITE_BUSY:
                    raise _Busy from problem
                raise
            self._writer.wal = opening.identity(self.path + "-wal")
            tx: Writing | None = None
            try:
                _check_schema(self._writer, connection)
                tx = Writing(connection, caller, self.clock, self.limits, self.allow_secrets)
                result = body(tx)
                if not tx.changed:  # no event, so nothing that is worth a project or a sync
                    connection.execute("ROLLBACK")
                    left = Reading(connection, caller, self.clock, self.limits)
                    caller.totals = left.totals()
                    return result
                totals = tx.totals()
                self._commit(tx)
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

    def _commit(self, tx: Writing) -> None:
        changes = tx.scalar("SELECT changes FROM store")
        try:
            tx.run("COMMIT")
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
        """An event of its own: people want to see what was refused, and why."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            if not Reading(connection, caller, self.clock, self.limits).project:
                connection.execute("ROLLBACK")  # a refusal is no reason to begin a project
                return
            tx = Writing(connection, caller, self.clock, self.limits, self.allow_secrets)
            if failed is not None:
                tx.subject, tx.of_run = failed.subject, failed.of_run
            row = {"code": problem.code, "fact": problem.fact}
            tx.event("refused", f"refused: {problem.code}", row)
            totals = tx.totals()
            self._commit(tx)
            caller.totals = totals
        except (sqlite3.Error, StateError):
            log.exception("a refusal could not be recorded")
            if connection.in_transaction:
                connection.execute("ROLLBACK")

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
        except (StoreDamaged, _SchemaChanged):
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
