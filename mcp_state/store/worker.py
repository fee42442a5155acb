"""Connections to the file, and the thread in which one of them does what takes long."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import queue
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from mcp_state.errors import StoreDamaged
from mcp_state.store.watch import Watch

T = TypeVar("T")


class _Done(asyncio.Future[Any]):
    """The end of something that is not cut short: the cancellation of who waits, waits too."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Go on."""
        return False


class Handle:
    """One connection to the file, and which file it was opened on."""

    def __init__(self, path: str) -> None:
        self.connection: sqlite3.Connection | None = None
        self.identity: tuple[int, int] | None = None
        self.schema: tuple[int, int] = (0, 0)
        self.wal: tuple[int, int] | None = None
        self.watch = Watch(path)

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


class Worker(Handle):
    """One connection, and a thread for what takes long on it, which is made when it is needed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._thread: threading.Thread | None = None
        self._work = queue.SimpleQueue[Callable[[], None] | None]()

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Run `function` in the thread, after whatever it is doing.

        Cancelling the caller does not cut it short: the cancellation is raised when it is done.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="mcp-state", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        done = _Done(loop=loop)
        context = contextvars.copy_context()

        def work() -> None:
            try:
                told = functools.partial(done.set_result, context.run(function, *args))
            except BaseException as problem:
                told = functools.partial(done.set_exception, problem)
            with contextlib.suppress(RuntimeError):  # the loop was closed over it
                loop.call_soon_threadsafe(told)

        self._work.put(work)
        with shielded():
            try:
                return await done
            except asyncio.CancelledError:
                done.exception()
                raise

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work

    async def close(self) -> None:
        """Close the connection, after what the thread is doing, and end the thread."""
        if self._thread is None:
            self.forget()
        else:
            await self.run(self.forget)
            self._work.put(None)
            self._thread.join()
            self._thread = None


def schema_of(connection: sqlite3.Connection) -> tuple[int, int]:
    """What changes when somebody migrates the store, or drops a part of it."""
    (ours,) = connection.execute("PRAGMA user_version").fetchone()
    (sqlites,) = connection.execute("PRAGMA schema_version").fetchone()
    return ours, sqlites


def shielded() -> AbstractContextManager[object]:
    """Against the cancellation of anyio's scopes, if there can be any: importing it is slow."""
    if "anyio" not in sys.modules:
        return contextlib.nullcontext()
    import anyio

    return anyio.CancelScope(shield=True)
