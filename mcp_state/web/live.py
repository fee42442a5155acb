"""Telling open pages that the project changed, whoever changed it.

One watcher looks at the number of changes in the store, which is one row, for all who listen, and
only while somebody does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from mcp_state.errors import StateError, StoreBusy
from mcp_state.models import Actor, Caller
from mcp_state.store.database import Database
from mcp_state.web.views import error_of, to_json

_CHANGES = "SELECT changes FROM store"
_PAUSE = 0.2
_HEARTBEAT = 15.0
MOST_LISTENERS = 32


class Live:
    """The changes of one store, for those who listen."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listeners: set[asyncio.Event] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._is_over = False

    @property
    def is_watching(self) -> bool:
        """Whether the store is looked at now and again."""
        return self._watcher is not None

    def events(self, caller: Caller) -> AsyncGenerator[bytes]:
        """Server-sent events: `change` with the project's event number, at first and on a change.

        `problem` with an error instead, while the store cannot be read.

        Raises:
            StoreBusy: too many listen already.
        """
        if len(self._listeners) >= MOST_LISTENERS:
            raise StoreBusy(
                f"{MOST_LISTENERS} pages listen to this server already",
                "Close one of them; until then, reload this one to see changes.",
            )
        return self._events(caller)

    def close(self) -> None:
        """Let all who listen go."""
        self._is_over = True
        self._wake()

    async def _events(self, caller: Caller) -> AsyncGenerator[bytes]:
        if len(self._listeners) >= MOST_LISTENERS:
            return  # many came at once; who asks again is told why
        woken, last = self._enter(), b""
        try:
            while not self._is_over:
                woken.clear()
                message = await self._message(caller)
                yield b": still here\n\n" if message == last else message
                last = message
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_HEARTBEAT):
                        await woken.wait()
        finally:
            self._leave(woken)

    def _enter(self) -> asyncio.Event:
        woken = asyncio.Event()
        self._listeners.add(woken)
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())
        return woken

    def _leave(self, woken: asyncio.Event) -> None:
        self._listeners.discard(woken)
        if not self._listeners and self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    async def _message(self, caller: Caller) -> bytes:
        try:
            event = await self._database.read(caller, lambda tx: tx.totals().event)
        except StateError as problem:
            return b"event: problem\ndata: %s\n\n" % to_json(error_of(problem))
        return b"event: change\ndata: %s\n\n" % to_json({"event": event})

    async def _watch(self) -> None:
        nobody = Caller("", "", Actor("person"))
        last: object = None
        while True:
            try:
                found = await self._database.read(nobody, lambda tx: tx.scalar(_CHANGES) or 0)
            except Exception as problem:  # who listens is told what it is when reading too
                found = str(problem)
            if found != last:
                last = found
                self._wake()
            await asyncio.sleep(_PAUSE)

    def _wake(self) -> None:
        for listener in self._listeners:
            listener.set()
