"""The calls of one process that want to write, in the order of arrival; the first has the turn.

Who waits is given the turn, or is taken along by the one who has it. Taking along may be done in a
thread; all else is done in the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Generic, TypeVar

from mcp_state.store.queue import NotOurTurn
from mcp_state.store.worker import is_cancelled_by_scope, until_done

W = TypeVar("W")

_ENOUGH = 31
"""Of a sync, each of so many pays next to nothing: the first is not to wait for more."""


class Place(Generic[W]):
    """A place in the line, and the work that who has the turn may do along with its own, if any."""

    def __init__(self, work: W | None = None) -> None:
        self.work = work
        self.has_turn = False
        self.woken: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Let it go on: it has the turn, or its work is done."""
        assert self.woken is not None
        self.woken.set_result(None)


class Line(Generic[W]):
    """The line of one `Database`."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[Place[W]] = deque()
        self._along: list[Place[W]] = []
        self._lock = threading.Lock()

    async def enter(self, place: Place[W], seconds: float | None = None) -> bool:
        """Wait for the turn, which has to be left again; False if its work was done along.

        Waiting can be cancelled; from when it is taken along on, nothing can.

        Raises:
            NotOurTurn: others were before us for this long.
        """
        if not self._taken:
            self._taken = True
        elif not await self._wait(place, seconds):
            return False
        if place.work is not None:
            await self._let_others_in()
        return True

    async def _wait(self, place: Place[W], seconds: float | None) -> bool:
        """Until it has the turn, or its work is done."""
        place.woken = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await asyncio.wait([place.woken], timeout=seconds)
        except asyncio.CancelledError:
            if self._give_up(place):
                raise
            await until_done(place.woken)
            if place.has_turn:
                self.leave()
                raise
            if not is_cancelled_by_scope():  # a scope does it again, and what is done can be told
                raise
        else:
            if self._give_up(place):
                raise NotOurTurn
            await until_done(place.woken)
        return place.has_turn

    async def _let_others_in(self) -> None:
        """Until enough of them can be taken along, or nobody came in two turns of the event loop.

        One would be too few: what is called next may come in it, but behind us.
        """
        before = -1
        try:
            while before < len(self._waiting) < _ENOUGH:
                before = len(self._waiting)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        except BaseException:
            self.leave()
            raise

    def is_joined(self) -> bool:
        """Whether there is work to take along."""
        with self._lock:
            return bool(self._waiting) and self._waiting[0].work is not None

    def take_along(self) -> W | None:
        """The work of the next in line, ours to do from now on; None if there is none."""
        with self._lock:
            if not self._waiting or self._waiting[0].work is None:
                return None
            place = self._waiting.popleft()
        self._along.append(place)
        return place.work

    def leave(self) -> None:
        """Tell those who were taken along, and give the turn to the next."""
        for place in self._along:
            place.wake()
        self._along.clear()
        with self._lock:
            following = self._waiting.popleft() if self._waiting else None
        self._taken = following is not None
        if following is not None:
            following.has_turn = True
            following.wake()

    def _give_up(self, place: Place[W]) -> bool:
        """Leave the line; False if it is too late for that."""
        with self._lock:
            try:
                self._waiting.remove(place)
            except ValueError:
                return False
        return True
