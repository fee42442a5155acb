"""What every store has: one door for reads and one for writes, whatever engine is behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, TypeVar

from mcp_state.errors import BadArgument
from mcp_state.models import Caller, Limits
from mcp_state.settings import is_address
from mcp_state.times import Clock

if TYPE_CHECKING:
    from mcp_state.store.transaction import Reading, Writing

T = TypeVar("T")


class Database(ABC):
    """The door to a store, which is opened when the first call needs it.

    `beyond` says what is kept of the store that `rewrite` cannot reach, if there is such.

    Args:
        path: where the store is, as it is shown: a file, or an address without its password.
        clock: where time comes from.
        limits: sizes that are refused.
        read_only: never make, migrate or write the store.
        allow_secrets: store what looks like a credential.
        wait: seconds a write waits for its turn before `store_busy`.
    """

    beyond = ""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None,
        limits: Limits | None,
        read_only: bool,
        allow_secrets: bool,
        wait: float,
    ) -> None:
        self.path = path
        self.clock = clock or Clock()
        self.limits = limits or Limits()
        self.read_only = read_only
        self.allow_secrets = allow_secrets
        self.wait = wait

    @abstractmethod
    async def write(
        self,
        caller: Caller,
        body: Callable[[Writing], T],
        *,
        apart: bool = False,
        every_project: bool = False,
    ) -> T:
        """Run `body` as one transaction: all of it is durable on return, or none of it.

        Waiting for the turn can be cancelled; once it has come, nothing can. What takes long is to
        be done `apart`, in a thread, so that others are answered meanwhile. What is about other
        projects than the caller's has to say so with `every_project`.

        Raises:
            StoreBusy: the turn did not come in time.
            StateError: what `body` or the store refused.
        """

    @abstractmethod
    async def read(
        self, caller: Caller, body: Callable[[Reading], T], *, every_project: bool = False
    ) -> T:
        """Run `body` on one snapshot of the store. A store that does not exist reads as empty.

        What is about other projects than the caller's has to say so with `every_project`.

        Raises:
            StateError: what `body` or the store refused.
        """

    @abstractmethod
    def changes(self) -> AsyncGenerator[None]:
        """Tell of what anybody commits, this process or another, until it or the store is closed.

        It yields once at the beginning and then after every change; several may be told as one,
        none is missed: what was committed after it yielded makes it yield again. It never raises:
        that the store can't be read any more, or can again, is a change, and who looks is told.
        As long as nobody listens, it costs nothing.
        """

    @abstractmethod
    async def maintain(self, statement: str) -> None:
        """Run one statement that is a transaction of its own and changes no row, such as VACUUM.

        Raises:
            StoreBusy: the turn did not come in time.
            StateError: what the store refused.
        """

    @abstractmethod
    async def rewrite(self) -> bool:
        """Write all of the store anew, so that what was deleted is in none of its pages.

        False if an older state is still being read, which holds it. Takes time in proportion to
        the store.

        Raises:
            StoreBusy: the turn did not come in time.
            StateError: what the store refused.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close what is open, after what it is doing; who listens to changes is let go.

        The store can be used again.
        """


def open_database(
    path: str,
    *,
    clock: Clock | None = None,
    limits: Limits | None = None,
    read_only: bool = False,
    allow_secrets: bool = False,
    wait: float = 10.0,
) -> Database:
    """The store at `path`, not yet opened: a `postgresql://` address, or the path of a file.

    Raises:
        BadArgument: the address is none, or what speaks to PostgreSQL is not installed.
    """
    return _engine(path)(
        path,
        clock=clock,
        limits=limits,
        read_only=read_only,
        allow_secrets=allow_secrets,
        wait=wait,
    )


def _engine(path: str) -> Callable[..., Database]:
    if not is_address(path):
        from mcp_state.store.sqlite import SQLiteDatabase

        return SQLiteDatabase
    try:
        from mcp_state.store.postgres.database import PostgresDatabase
    except ImportError as problem:
        raise BadArgument(
            f"a store on PostgreSQL needs psycopg, which is not installed ({problem})",
            "Install mcp-state[postgres].",
        ) from problem
    return PostgresDatabase
