"""A connection, a thread for it where it may have to wait, and work that is never cut short."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import sqlite3
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from mcp_state.errors import StoreDamaged
from mcp_state.store.watch import Watch

T = TypeVar("T")


class Worker:
    """One connection, and a thread for what may have to wait, made when it is needed."""

    def __init__(self, path: str) -> None:
        self.connection: sqlite3.Connection | None = None
        self.identity: tuple[int, int] | None = None
        self.schema: tuple[int, int] = (0, 0)
        self.wal: tuple[int, int] | None = None
        self.watch = Watch(path)
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Run `function` in the thread, after whatever it is doing.

        Cancelling the caller does not cut it short: the cancellation is raised when it is done.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "mcp-state")
        context = contextvars.copy_context()
        done = asyncio.wrap_future(self._thread.submit(context.run, function, *args))
        await until_done(done)
        return done.result()

    def keep(self, connection: sqlite3.Connection, identity: tuple[int, int] | None) -> None:
        """Use this connection from now on; `identity` is that of its file, if it has one."""
        connection.row_factory = sqlite3.Row
        self.connection, self.identity, self.wal = connection, identity, None
        self.schema = schema_of(connection)
        if identity is not None:
            self.watch.begin()

    def forget(self) -> None:
        """Close the connection; the next call opens, and checks, anew.

        Over files that were spoilt it is left open instead: closing would write to them.
        """
        if self.connection is None:
            return
        connection, self.connection = self.connection, None
        try:
            if self.identity is not None:
                self.watch.check()
        except (StoreDamaged, OSError):
            import ctypes

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))  # not even at exit
        else:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    async def close(self) -> None:
        """Close the connection, after what the thread is doing, and end the thread."""
        if self._thread is None:
            self.forget()
        else:
            await self.run(self.forget)
            self._thread.shutdown()
            self._thread = None


def schema_of(connection: sqlite3.Connection) -> tuple[int, int]:
    """What changes when somebody migrates the store, or drops a part of it."""
    (ours,) = connection.execute("PRAGMA user_version").fetchone()
    (sqlites,) = connection.execute("PRAGMA schema_version").fetchone()
    return ours, sqlites


async def until_done(done: asyncio.Future[Any]) -> None:
    """Wait for what can't be cut short; a cancellation is raised when it is done."""
    cancelled: asyncio.CancelledError | None = None
    with shielded():  # against anyio's cancellation; the loop: asyncio's
        while not done.done():
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError as request:
                cancelled = request
    if cancelled is not None:
        done.exception()
        raise cancelled


def is_cancelled_by_scope() -> bool:
    """Whether a scope of anyio's cancels this task, which it will do at every point of waiting."""
    if "anyio" not in sys.modules:
        return False
    import anyio

    return anyio.current_effective_deadline() == -math.inf


def shielded() -> AbstractContextManager[object]:
    """Against the cancellation of anyio's scopes, if there can be any: importing it is slow."""
    if "anyio" not in sys.modules:
        return contextlib.nullcontext()
    import anyio

    return anyio.CancelScope(shield=True)
