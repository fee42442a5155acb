"""Noticing that a store changed: one watcher for all who listen, and none for nobody."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable

_PAUSE = 0.2


class Listening(ABC):
    """Those who listen, and the watcher that is there while somebody does."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Event] = set()
        self._watcher: asyncio.Task[None] | None = None

    async def listen(self) -> AsyncGenerator[None]:
        """Once at the beginning, and then whenever there was a change, until `close`."""
        woken = asyncio.Event()
        self._listeners.add(woken)
        if self._watcher is None:  # it wakes as soon as it can see changes
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

    def _wake(self) -> None:
        for listener in self._listeners:
            listener.set()

    @abstractmethod
    async def _watch(self) -> None:
        """Wake when changes can be seen from now on, and then at each of them, for ever."""


class Changes(Listening):
    """Wakes who listens whenever `look` answers anything else than before.

    Args:
        look: says in which state something is; a failure to look is a state as well.
    """

    def __init__(self, look: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._look = look
        self._poked = asyncio.Event()

    def poke(self) -> None:
        """There may be a change: look at once, if anybody listens."""
        self._poked.set()

    async def _watch(self) -> None:
        last: object = None
        while True:
            self._poked.clear()
            found = await self._look()
            if found != last:
                last = found
                self._wake()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE):
                    await self._poked.wait()
