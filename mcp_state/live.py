"""Telling who listens that a project changed, whoever changed it, and what of it did.

One look at the store is for all who listen, and there is none while nobody does. Who listens hears
of its own project only, and is not told more often than it can take: what it did not come to yet
becomes one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar

from mcp_state.errors import StateError
from mcp_state.models import Actor, Caller
from mcp_state.store.database import Database
from mcp_state.store.events import standing, touched
from mcp_state.store.transaction import Reading

log = logging.getLogger(__name__)

Subjects = frozenset[tuple[str, str]]
"""What changed: kind and folded name, as events have them."""

_Scope = tuple[str, str, str]
_At = tuple[int, int] | str
"""Of a project: which it is, and its last event; or why the store can't be read."""

_PACE = 0.05
"""Seconds between two looks at the least, so that a busy store is not looked at all the time."""
_RETRY, _LONGEST_RETRY = 1.0, 15.0
"""Seconds until a store that can't be read is looked at again, though nothing seems to change."""
_MOST_EVENTS = 500
_NOBODY = Caller("", "", Actor("person"))


class Unreadable(StateError):
    """The store could not be looked at, for a reason that nobody foresaw."""

    code: ClassVar[str] = "internal"


@dataclass(frozen=True)
class News:
    """What became of a project since the last news of it.

    Attributes:
        event: the number of its last event; 0 if it is not in the store.
        subjects: what was touched; None if that may be anything. Traces of reads touch nothing.
        problem: why the store could not be read, in place of all that.
    """

    event: int
    subjects: Subjects | None
    problem: StateError | None = None


class Live:
    """The changes of one store, for those who listen."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listeners: set[Listener] = set()
        self._looking = asyncio.Lock()
        self._stale = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._problem: StateError | None = None
        self._is_over = False

    @property
    def is_watching(self) -> bool:
        """Whether the store is looked at now and again."""
        return self._watcher is not None

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._listeners)

    @asynccontextmanager
    async def listening(self, caller: Caller) -> AsyncGenerator[Listener]:
        """`join`, and `leave` at the end."""
        listener = await self.join(caller)
        try:
            yield listener
        finally:
            self.leave(listener)

    async def join(self, caller: Caller) -> Listener:
        """Listen to the caller's project: how it stands is the first news.

        Nothing that is committed once this returned is missed. To be ended with `leave`.
        """
        listener = Listener(caller)
        if self._is_over:
            listener.end()
            return listener
        self._listeners.add(listener)
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())
        try:
            async with self._looking:
                if self._problem is None:
                    await self._look([listener])
                else:  # to try it may take as long as a call may wait, for one after the other
                    listener.put_problem(self._problem)
            if self._problem is not None:
                self._stale.set()
        except BaseException:
            self.leave(listener)
            raise
        return listener

    def leave(self, listener: Listener) -> None:
        """Listen no more."""
        self._listeners.discard(listener)
        self._rest()

    def close(self) -> None:
        """Let all go who listen, and whoever comes later."""
        self._is_over = True
        self._let_go()

    def _let_go(self) -> None:
        over, self._listeners = self._listeners, set()
        for listener in over:
            listener.end()
        self._rest()

    def _rest(self) -> None:
        if not self._listeners and self._watcher is not None:
            self._watcher.cancel()
            self._watcher = self._problem = None

    async def _watch(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._keep_looking())
            async with aclosing(self._database.changes()) as changes:
                async for _ in changes:
                    self._stale.set()
            looking.cancel()
        self._let_go()

    async def _keep_looking(self) -> None:
        retry = _RETRY
        while True:
            self._stale.clear()
            async with self._looking:  # or an older look could come after a newer one
                await self._look(self._listeners)
            await asyncio.sleep(_PACE)
            readable = self._problem is None
            with suppress(TimeoutError):
                async with asyncio.timeout(None if readable else retry):
                    await self._stale.wait()
            retry = _RETRY if readable else min(2 * retry, _LONGEST_RETRY)

    async def _look(self, listeners: Collection[Listener]) -> None:
        """Find out which of them there is news for."""
        try:
            await self._tell(list(listeners))
        except StateError as problem:
            self._problem = problem
        except Exception as problem:
            log.exception("the store could not be looked at")
            self._problem = Unreadable(f"{type(problem).__name__}: {problem}")
        else:
            self._problem = None
            return
        for listener in listeners:
            listener.put_problem(self._problem)

    async def _tell(self, listeners: Iterable[Listener]) -> None:
        callers = {listener.scope: listener.caller for listener in listeners}
        found = await self._database.read(_NOBODY, lambda tx: _standings(tx, callers))
        moved: defaultdict[tuple[_Scope, _At | None], list[Listener]] = defaultdict(list)
        for listener in listeners:
            if listener.at != found[listener.scope]:
                moved[listener.scope, listener.at].append(listener)
        for (scope, before), those in moved.items():
            at = found[scope]
            subjects = await self._touched(callers[scope], before, at)
            for listener in those:
                listener.put(at, News(at[1], subjects))

    async def _touched(
        self, caller: Caller, before: _At | None, at: tuple[int, int]
    ) -> Subjects | None:
        if before is None:
            return frozenset()
        if isinstance(before, str):
            return None
        (project, since), (project_now, upto) = before, at
        if project != project_now or not since < upto <= since + _MOST_EVENTS:
            return None
        return await self._database.read(
            caller, lambda tx: touched(tx, since, upto) if tx.project == project else None
        )


class Listener:
    """One who listens: for which project, what it knows of it, and what it is still to be told."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.scope: _Scope = (caller.project, caller.how, caller.anchor)
        self.at: _At | None = None
        self._woken = asyncio.Event()
        self._news: News | None = None
        self._is_over = False

    async def news(self) -> News | None:
        """Wait for news, all there is since the last; None: there will be none any more.

        No news is lost when the waiting is cancelled.
        """
        await self._woken.wait()
        if self._is_over:
            return None
        self._woken.clear()
        news, self._news = self._news, None
        return news

    def put(self, at: _At, news: News) -> None:
        """Add news to what it has not taken yet."""
        if at == self.at:  # it knows: the store can still not be read
            return
        self.at = at
        waiting = self._news
        if waiting is not None and waiting.subjects is not None and news.subjects is not None:
            subjects = waiting.subjects | news.subjects
            news = News(news.event, subjects if len(subjects) <= _MOST_EVENTS else None)
        elif waiting is not None:
            news = News(news.event, None, news.problem)
        self._news = news
        self._woken.set()

    def put_problem(self, problem: StateError) -> None:
        """Add the news that the store can't be read."""
        self.put(str(problem), News(0, None, problem))

    def end(self) -> None:
        """Let it go."""
        self._is_over = True
        self._woken.set()


def _standings(tx: Reading, callers: Mapping[_Scope, Caller]) -> dict[_Scope, tuple[int, int]]:
    return {scope: standing(tx, caller) for scope, caller in callers.items()}
