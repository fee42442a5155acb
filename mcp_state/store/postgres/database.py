"""The door to a store on PostgreSQL: the server does the waiting, the locking and the syncing.

A write takes the advisory lock of its project for as long as its transaction lasts, so that a
project is as serial as in a file, wherever its writers are, and projects run side by side. What is
about more than one project takes the lock of the whole store, which all others share.

A connection that is lost before COMMIT was sent has saved nothing, and the transaction is run once
more. Lost after that, it is found out: the next one waits for the lock, which the lost one kept
until it was over, and looks for the event that it wrote.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from mcp_state.errors import StateError, StoreBusy, StoreDamaged, StoreReadonly
from mcp_state.models import Caller, Limits, Totals
from mcp_state.record import record
from mcp_state.store import opening as sqlite_opening
from mcp_state.store.copying import tables
from mcp_state.store.database import Database
from mcp_state.store.full_text import Wanted
from mcp_state.store.postgres import opening
from mcp_state.store.postgres.catalogue import POSTGRES
from mcp_state.store.postgres.connection import Connection, adapt
from mcp_state.store.postgres.full_text import newest
from mcp_state.store.postgres.notices import CHANNEL, Notices
from mcp_state.store.postgres.opening import Address
from mcp_state.store.postgres.refusals import (
    TRANSIENT,
    is_lost,
    one_line,
    refused_by_server,
    unreachable,
)
from mcp_state.store.postgres.waiting import Waiting, consumed
from mcp_state.store.text import fold
from mcp_state.store.transaction import NONE, Params, Reading, Row, Writing
from mcp_state.store.worker import shielded
from mcp_state.times import Clock

log = logging.getLogger(__name__)
# It warns of every connection that it drops or can't make; what matters of that is told here.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)

T = TypeVar("T")

CONNECTIONS = 8
"""The most that one process opens."""
_PAUSE = 0.05
_AGAIN = 0.5
_BEGUN = """
    SELECT version, min_reader, clock_timestamp() AT TIME ZONE 'UTC' AS at,
        pg_current_xact_id_if_assigned()::text AS transaction
    FROM store
"""
_LOCK = "SELECT pg_advisory_xact_lock({})"
_SHARE = "SELECT pg_advisory_xact_lock_shared({})"
_TRANSACTION = "SELECT pg_current_xact_id()"
_LIFT = "SELECT set_config('mcp_state.lifted', :lifted, true)"
_WRITTEN = """
    SELECT 1 FROM events
    WHERE project = :project AND seq = :last AND at = :now AND actor = :actor
        AND xmin::text::bigint = :xact::text::bigint % 4294967296
"""
_REWRITTEN = """
    SELECT 1 FROM events
    WHERE at = :now AND actor = :actor AND (
        project = :project AND seq = :last
        OR project = (SELECT merged_into FROM projects WHERE id = :project)
    ) AND pg_xact_status(:xact::text::xid8) = 'committed'
"""
"""The event of a transaction that is over, after a purge or a merge of its project."""


class _NoStore(Exception):
    """There is no store yet, or it has to be brought up to date."""


class _Moved(Exception):
    """The project was renamed, merged or made while its lock was waited for; nothing was begun."""


@record
class _Written:
    """The last event that a transaction wrote."""

    project: int
    seq: int
    at: str
    actor: int

    def params(self) -> dict[str, Any]:
        return {"project": self.project, "last": self.seq, "now": self.at, "actor": self.actor}


@record
class _Begun:
    """The clock that a transaction goes by, and the server's number of it if it writes."""

    clock: Clock
    transaction: str | None


class _InDoubt(Exception):
    """The connection was lost when the server had been told to commit.

    Args:
        last: what it wrote; None if that was no event, which may be written twice.
        transaction: the server's number of it.
        key: the advisory lock that it held.
    """

    def __init__(self, last: _Written | None, transaction: str, key: int) -> None:
        super().__init__()
        self.last = last
        self.transaction = transaction
        self.key = key


class _At(Clock):
    """The clock of the server, which all machines share, as it was at the beginning."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        """The time at which the transaction began."""
        return self._at


class PostgresReading(Reading):
    """A snapshot; row level security lets through what is of its project."""

    catalogue = POSTGRES

    def __init__(
        self, connection: Connection, caller: Caller, clock: Clock, limits: Limits
    ) -> None:
        self._server = connection
        super().__init__(cast(Any, connection), caller, clock, limits)

    @property
    def project(self) -> int:
        """The project; 0 if it is not in the store."""
        return self._project

    @project.setter
    def project(self, project: int) -> None:
        self._project = project
        if self._server.within != Connection.EVERY:
            self._server.within = project

    def each(self, sql: str, params: Params = NONE) -> Iterator[Row]:
        """The rows one by one, from a cursor on the server."""
        return cast(Iterator[Row], self._server.each(sql, self._bound(params)))

    def newest_matches(self, wanted: Wanted, ids: tuple[int, int], limit: int) -> list[Row]:
        """The newest documents that match, whose ids are from the first up to the second."""
        return newest(self, wanted, ids, limit)


class PostgresWriting(PostgresReading, Writing):
    """A write, alone in its project, or in the store.

    `locked` is the project whose lock it holds, 0 if it holds that of a name; `key` is the lock.
    `last` is the last event that it wrote.
    """

    Refused = psycopg.IntegrityError

    def __init__(
        self,
        connection: Connection,
        caller: Caller,
        begun: _Begun,
        limits: Limits,
        allow_secrets: bool,
        locked: int,
        key: int,
    ) -> None:
        assert begun.transaction is not None
        self._server = connection
        self._locked = locked
        self.key = key
        self.transaction = begun.transaction
        self.last: _Written | None = None
        Writing.__init__(self, cast(Any, connection), caller, begun.clock, limits, allow_secrets)

    @contextmanager
    def lifted(self, *triggers: str) -> Generator[None]:
        """Let all be changed, and look at foreign keys at the end."""
        self.run("SET CONSTRAINTS ALL DEFERRED")
        self.run(_LIFT, {"lifted": "on"})
        yield
        self.run(_LIFT, {"lifted": "off"})

    @contextmanager
    def part(self) -> Generator[None]:
        """As any part; an event that is taken back was not the last one."""
        before = self.last
        try:
            with super().part():
                yield
        except BaseException:
            self.last = before
            raise

    def event(self, *args: Any, **kwargs: Any) -> int:
        """Record the change, and remember that it is the last one."""
        seq = Writing.event(self, *args, **kwargs)
        self.last = _Written(self.project, seq, self.now, self.actor)
        return seq

    def _find_project(self) -> int:
        found = super()._find_project()
        if found != self._locked and not self.actor:  # it is beginning
            raise _Moved
        return found

    def _make_project(self) -> int:
        try:
            return super()._make_project()
        except psycopg.errors.UniqueViolation:
            raise _Moved from None


class PostgresDatabase(Database):
    """A store in a schema of a PostgreSQL database.

    `address` is a `postgresql://` URI of libpq's; with `?schema=NAME` the store is in that schema,
    else in `mcp_state`. The first write makes it.

    Raises:
        BadArgument: the schema is no name.
    """

    beyond = (
        "PostgreSQL keeps more than its tables, where mcp-state can't look: its write-ahead log "
        "until that is recycled, archives of it, replicas, backups and dumps, and what a "
        "transaction that began before can still see. Ask whoever runs the server."
    )

    def __init__(
        self,
        address: str,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        read_only: bool = False,
        allow_secrets: bool = False,
        wait: float = 10.0,
    ) -> None:
        self.address = Address.of(address)
        super().__init__(
            self.address.shown,
            clock=clock,
            limits=limits,
            read_only=read_only,
            allow_secrets=allow_secrets,
            wait=wait,
        )
        self._pool: ConnectionPool[psycopg.Connection[Any]] | None = None
        self._opening = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._turns: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()
        self._projects: dict[tuple[str, str], int] = {}
        self._free = asyncio.Semaphore(CONNECTIONS)
        self._notices = Notices(self.address)

    async def write(
        self,
        caller: Caller,
        body: Callable[[Writing], T],
        *,
        apart: bool = False,
        every_project: bool = False,
    ) -> T:
        """Run `body` behind the lock of the caller's project, in a thread."""
        self._refuse_readers()
        deadline = time.monotonic() + self.wait
        async with self._turn(caller):
            return await self._in_thread(
                self._transact, caller, body, every_project, apart, deadline
            )

    async def maintain(self, statement: str) -> None:
        """Run it on a connection of its own, in a thread; locks are waited for like a turn."""
        self._refuse_readers()
        deadline = time.monotonic() + self.wait

        def run(waiting: Waiting) -> None:
            with self._translated(), self._connected(deadline, waiting) as connection:
                waiting.begins()
                raw = connection.raw
                raw.execute(f"SET lock_timeout = {round(self.wait * 1000)}".encode())
                try:
                    raw.execute(statement.encode())
                finally:
                    raw.execute(b"RESET lock_timeout")

        await self._in_thread(run)

    async def rewrite(self) -> bool:
        """Write each table and its indexes anew; others wait while it is that one's turn."""
        for table in (*(table.name for table in tables()), "search"):
            await self.maintain(f'VACUUM (FULL) "{table}"')
        return True

    async def read(
        self, caller: Caller, body: Callable[[Reading], T], *, every_project: bool = False
    ) -> T:
        """Run `body` on a snapshot, in a thread."""
        deadline = time.monotonic() + self.wait
        return await self._in_thread(self._snapshot, caller, body, every_project, deadline)

    def changes(self) -> AsyncGenerator[None]:
        """Listen to what the server tells."""
        return self._notices.listen()

    async def aclose(self) -> None:
        """Close all connections."""
        self._notices.close()
        with shielded():
            threads, self._threads = self._threads, None
            if threads is not None:
                await asyncio.to_thread(threads.shutdown)
            pool, self._pool = self._pool, None  # what was under way may have opened it
            if pool is not None:
                await asyncio.to_thread(pool.close)

    def _refuse_readers(self) -> None:
        if self.read_only:
            raise StoreReadonly(
                f"{self.path} is opened for reading only by this server",
                "Use a server with the coding toolset to write.",
            )

    # Waiting

    @asynccontextmanager
    async def _turn(self, caller: Caller) -> AsyncGenerator[None]:
        """Be the first among the calls of this process for this project.

        They would wait for the server's lock as well, but with a connection each.
        """
        named = (caller.anchor, fold(caller.project))
        turn = self._turns.setdefault(named, asyncio.Lock())
        try:
            async with asyncio.timeout(self.wait):
                await turn.acquire()
        except TimeoutError:
            raise StoreBusy.after(self.wait) from None
        try:
            yield
        finally:
            turn.release()

    async def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run it with one of the connections; until it begins, it can be given up."""
        try:
            async with asyncio.timeout(self.wait):
                await self._free.acquire()
        except TimeoutError:
            raise StoreBusy.after(self.wait) from None
        waiting = Waiting()
        try:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(CONNECTIONS, "mcp-state")
            context = contextvars.copy_context()
            done = asyncio.wrap_future(self._threads.submit(context.run, function, *args, waiting))
        except BaseException:
            self._free.release()
            raise
        done.add_done_callback(consumed(self._free.release))
        return await waiting.outcome(done)

    # Connections

    @contextmanager
    def _connected(self, deadline: float, waiting: Waiting | None = None) -> Generator[Connection]:
        """A connection that works, from the pool.

        Raises:
            GivenUp: nobody waits for it.
            StoreBusy: the server could not be reached in time.
        """
        if self._pool is None:
            # The pool tries again and again, and tells nobody why it could not: so this tells.
            self._connect().close()
        with self._opening:
            pool = self._pool = self._pool or self._open_pool()
        raw = self._taken(pool, deadline, waiting)
        try:
            yield Connection(raw)
        finally:
            over = raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            if not over or (waiting is not None and waiting.given_up):
                raw.close()  # and so ends what was left half-way, and what may yet be cancelled
            pool.putconn(raw)

    def _taken(
        self,
        pool: ConnectionPool[psycopg.Connection[Any]],
        deadline: float,
        waiting: Waiting | None,
    ) -> Any:
        """A connection of the pool; whoever waits makes it try again, as soon as it gave up."""
        while True:
            if waiting is not None:
                waiting.waits()
            left = deadline - time.monotonic()
            try:
                return pool.getconn(max(0.05, min(left, _AGAIN)))
            except PoolTimeout:
                if left <= _AGAIN:
                    why = self._why() or PoolTimeout("no connection")
                    raise unreachable(self.path, why) from None

    def _open_pool(self) -> ConnectionPool[psycopg.Connection[Any]]:
        def configure(raw: psycopg.Connection[Any]) -> None:
            opening.configure(raw, self.address.schema)
            adapt(raw)

        pool = ConnectionPool[psycopg.Connection[Any]](
            self.address.url,
            kwargs={"application_name": "mcp-state"},
            min_size=0,
            max_size=CONNECTIONS,
            max_idle=300.0,
            reconnect_timeout=0.0,  # it would pause for longer each time, though the server is back
            open=False,
            configure=configure,
            name="mcp-state",
        )
        pool.open()
        return pool

    def _connect(self) -> psycopg.Connection[Any]:
        raw = psycopg.connect(self.address.url, application_name="mcp-state", autocommit=True)
        opening.configure(raw, self.address.schema)
        return raw

    def _why(self) -> psycopg.Error | None:
        """Why no connection can be made now."""
        try:
            self._connect().close()
        except psycopg.Error as problem:
            return problem
        return None

    @contextmanager
    def _translated(self) -> Generator[None]:
        """The one place where the driver's errors become ours."""
        try:
            yield
        except psycopg.Error as problem:
            log.warning("%s: %s", self.path, one_line(problem))
            told = refused_by_server(self.path, problem, self.wait)
            if told is None:
                raise
            raise told from problem

    def _patiently(self, attempt: Callable[[], T], deadline: float) -> T:
        """Again while nothing was saved and there is time: after a deadlock, without a server."""
        while True:
            try:
                return attempt()
            except _Moved:
                continue
            except psycopg.Error as problem:
                again = is_lost(problem) or isinstance(problem, TRANSIENT)
                if not again or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE)
            if self._pool is not None:
                self._pool.check()  # the other connections are lost as well

    def _prepare(self, deadline: float) -> None:
        with self._connected(deadline) as connection:
            opening.prepare(connection, self.address, self.clock.now(), self.wait)

    # Transactions

    def _begin(self, connection: Connection, how: str, deadline: float, *statements: str) -> _Begun:
        """Begin, with these statements, which may wait for a lock.

        Raises:
            _NoStore: there is none, or an older one.
        """
        left = max(1, round((deadline - time.monotonic()) * 1000))
        begin = (f"BEGIN {how}", f"SET LOCAL lock_timeout = {left}", *statements, _BEGUN)
        try:
            found = connection.begin("; ".join(begin)).fetchone()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            raise _NoStore from None
        if found is None:
            raise StoreDamaged(
                f"{self.path}: its table store is empty", "Restore a backup of the database."
            )
        version = opening.check(found["version"], found["min_reader"], self.address.schema)
        if version < len(opening.migrations()):
            raise _NoStore
        is_real = type(self.clock) is Clock
        clock = _At(found["at"].replace(tzinfo=UTC)) if is_real else self.clock
        return _Begun(clock, found["transaction"])

    def _snapshot(
        self,
        caller: Caller,
        body: Callable[[Reading], T],
        every: bool,
        deadline: float,
        waiting: Waiting,
    ) -> T:
        def attempt() -> T:
            with self._connected(deadline, waiting) as connection, _ended(connection):
                how = "ISOLATION LEVEL REPEATABLE READ READ ONLY"
                begun = self._begin(connection, how, deadline)
                waiting.begins()
                if every:
                    connection.within = Connection.EVERY
                tx = PostgresReading(connection, caller, begun.clock, self.limits)
                caller.totals = tx.totals()
                return body(tx)

        with self._translated():
            while True:
                try:
                    return self._patiently(attempt, deadline)
                except _NoStore:
                    if not self._is_old(deadline):
                        return self._of_nothing(caller, body)
                    self._prepare(deadline)

    def _is_old(self, deadline: float) -> bool:
        with self._connected(deadline) as connection:
            version = opening.version_of(connection, self.address.schema)
        if version is not None and self.read_only:
            raise StoreReadonly(
                f"{self.path} is of an older version (schema {version})",
                "A server that writes brings it up to date; this one only reads.",
            )
        return version is not None

    def _of_nothing(self, caller: Caller, body: Callable[[Reading], T]) -> T:
        """What does not exist reads as empty: as a file does, in memory."""
        import sqlite3

        with closing(sqlite_opening.new_connection(":memory:")) as connection:
            sqlite_opening.apply(connection, sqlite_opening.migrations())
            connection.row_factory = sqlite3.Row
            tx = Reading(connection, caller, self.clock, self.limits)
            caller.totals = tx.totals()
            return body(tx)

    def _transact(
        self,
        caller: Caller,
        body: Callable[[Writing], T],
        every: bool,
        once: bool,
        deadline: float,
        waiting: Waiting,
    ) -> T:
        """Begin, lock, body, COMMIT, or ROLLBACK; a body that takes long is begun `once`."""
        begun = False
        done: tuple[T, Totals] | None = None

        def attempt() -> T:
            nonlocal begun, done
            with self._connected(deadline, waiting) as connection, _ended(connection):
                if once and begun:
                    raise unreachable(self.path, "the connection was lost")
                waiting.waits(connection.raw)
                tx = self._begin_writing(connection, caller, every, deadline)
                waiting.begins()
                begun = True
                try:
                    result = body(tx)
                except StateError as problem:
                    if problem.recorded:
                        connection.rollback()
                        self._record_refusal(connection, caller, tx, problem, deadline)
                    raise
                if not tx.changed:  # nothing that is worth a project or a sync, or a dry run
                    connection.rollback()
                    return self._unchanged(connection, caller, result, deadline)
                done = result, tx.totals()
                self._commit(connection, tx)
                caller.totals = done[1]
                return result

        with self._translated():
            while True:
                try:
                    return self._patiently(attempt, deadline)
                except _NoStore:
                    self._prepare(deadline)
                except _InDoubt as doubt:
                    if self._was_saved(doubt):
                        assert done is not None
                        caller.totals = done[1]
                        return done[0]

    def _unchanged(self, connection: Connection, caller: Caller, result: T, deadline: float) -> T:
        begun = self._begin(connection, "READ ONLY", deadline)
        caller.totals = PostgresReading(connection, caller, begun.clock, self.limits).totals()
        return result

    def _begin_writing(
        self, connection: Connection, caller: Caller, every: bool, deadline: float
    ) -> PostgresWriting:
        """Begin, behind the lock of the project, or that of the store.

        Raises:
            _Moved: the project is another one than it was when it was last asked for.
        """
        named = (caller.anchor, fold(caller.project))
        store, known = self.address.key("store"), self._projects.get(named, 0)
        if every:
            key, locks = store, [_LOCK.format(store)]
            connection.within = Connection.EVERY
        else:
            key, locks = self.address.key("project", known), [_SHARE.format(store)]
            locks += [_LOCK.format(key)] if known else []
        begun = self._begin(connection, "", deadline, *locks, _TRANSACTION)
        if every or not known:
            known = PostgresReading(connection, caller, begun.clock, self.limits).project
        if not every and len(locks) == 1:
            key = self.address.key(*(("project", known) if known else ("name", named[1])))
            connection.execute(_LOCK.format(key))
        try:
            tx = PostgresWriting(
                connection, caller, begun, self.limits, self.allow_secrets, known, key
            )
        except _Moved:
            self._projects.pop(named, None)
            raise
        if known:
            self._projects[named] = known
        return tx

    def _commit(self, connection: Connection, tx: PostgresWriting) -> None:
        """Commit, and tell those who listen.

        Raises:
            _InDoubt: the connection was lost before the server said so.
        """
        try:
            ended = connection.commit(f"NOTIFY {CHANNEL}, '{self.address.schema} {tx.project}'")
        except psycopg.Error as problem:
            if not is_lost(problem):
                raise
            log.warning("%s: %s while saving", self.path, one_line(problem))
            raise _InDoubt(tx.last, tx.transaction, tx.key) from problem
        if ended != "COMMIT":
            raise psycopg.InternalError(f"COMMIT was answered with {ended}")

    def _was_saved(self, doubt: _InDoubt) -> bool:
        """Look for the event that was written, once nobody can be about to commit it.

        Raises:
            StoreDamaged: it could not be found out.
        """
        last = doubt.last
        if last is None:
            return False

        def look() -> bool:
            with self._connected(deadline) as connection, _ended(connection):
                connection.within = Connection.EVERY
                self._begin(connection, "", deadline, _LOCK.format(doubt.key))
                params = last.params() | {"xact": doubt.transaction}
                if connection.execute(_WRITTEN, params).fetchone() is not None:
                    return True
                try:
                    return connection.execute(_REWRITTEN, params).fetchone() is not None
                except psycopg.errors.InvalidParameterValue:  # a number that a crash took back
                    return False

        deadline = time.monotonic() + self.wait
        try:
            return self._patiently(look, deadline)
        except (psycopg.Error, StateError, _NoStore) as problem:
            raise StoreDamaged.in_doubt(self.path, one_line(problem)) from problem

    def _record_refusal(
        self,
        connection: Connection,
        caller: Caller,
        failed: PostgresWriting,
        problem: StateError,
        deadline: float,
    ) -> None:
        """An event of its own: people want to see what was refused, and why."""
        try:
            clock = self._begin(connection, "READ ONLY", deadline).clock
            if not PostgresReading(connection, caller, clock, self.limits).project:
                return  # a refusal is no reason to begin a project
            connection.rollback()
            tx = self._begin_writing(connection, caller, False, deadline)
            tx.subject, tx.of_run = failed.subject, failed.of_run
            tx.event(
                "refused", f"refused: {problem.code}", {"code": problem.code, "fact": problem.fact}
            )
            totals = tx.totals()
            self._commit(connection, tx)
            caller.totals = totals
        except (psycopg.Error, StateError, _NoStore, _Moved, _InDoubt):
            log.exception("a refusal could not be recorded")


@contextmanager
def _ended(connection: Connection) -> Generator[None]:
    """Leave no transaction behind."""
    try:
        yield
    finally:
        if connection.in_transaction:
            with suppress(psycopg.Error):
                connection.rollback()
