"""Noticing that a file changed: one watcher for all who listen, and none for nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

_PAUSE = 0.2


class Changes:
    """Wakes who listens whenever `look` answers anything else than before.

    Args:
        look: says in which state something is; a failure to look is a state as well.
    """

    def __init__(self, look: Callable[[], Awaitable[object]]) -> None:
        self._look = look
        self._listeners: set[asyncio.Event] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._poked = asyncio.Event()

    def poke(self) -> None:
        """There may be a change: look at once, if anybody listens."""
        self._poked.set()

    async def listen(self) -> AsyncGenerator[None]:
        """Once at the beginning, and then whenever there was a change, until `close`."""
        woken = asyncio.Event()
        self._listeners.add(woken)
        if self._watcher is None:  # its first look is the one that later ones are compared with
            self._watcher = asyncio.create_task(self._watch())
        else:
            woken.set()
        try:
            while True:
                await woken.wait()
                if woken not in self._listeners:
                    return
                woken.clear()
                yield
        finally:
            self._listeners.discard(woken)
            self._rest()

    def close(self) -> None:
        """Let all go who listen."""
        over, self._listeners = self._listeners, set()
        for listener in over:
            listener.set()
        self._rest()

    def _rest(self) -> None:
        if not self._listeners and self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    async def _watch(self) -> None:
        last: object = None
        while True:
            self._poked.clear()
            found = await self._look()
            if found != last:
                last = found
                for listener in self._listeners:
                    listener.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE):
                    await self._poked.wait()
