"""What is done in a thread with a connection, and can be given up until it has begun."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from mcp_state.store.worker import is_cancelled_by_scope, until_done

T = TypeVar("T")


class GivenUp(Exception):
    """Nobody waits for it any more; nothing was begun."""


class Waiting:
    """Whether something has begun, or still waits, perhaps for a lock on the server."""

    def __init__(self) -> None:
        self._state = threading.Lock()
        self._begun = False
        self._given_up = False
        self._connection: psycopg.Connection[Any] | None = None

    def waits(self, connection: psycopg.Connection[Any] | None = None) -> None:
        """It waits, with this connection.

        Raises:
            GivenUp: nobody waits for it.
        """
        with self._state:
            if self._given_up:
                raise GivenUp
            self._connection = connection

    def begins(self) -> None:
        """From here on it can't be given up.

        Raises:
            GivenUp: it was.
        """
        with self._state:
            if self._given_up:
                raise GivenUp
            self._begun = True
            self._connection = None

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for it; the connection is not to be used for anything else then."""
        return self._given_up

    async def outcome(self, done: asyncio.Future[T]) -> T:
        """What came of it; to be cancelled until it begins.

        Raises:
            asyncio.CancelledError: it did not begin, and will not.
        """
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            if self._give_up():
                raise
            await until_done(done)
            if not is_cancelled_by_scope():  # a scope does it again, and what is done can be told
                done.exception()
                raise
        return done.result()

    def _give_up(self) -> bool:
        with self._state:
            self._given_up = not self._begun
            connection, self._connection = self._connection, None
        if self._given_up and connection is not None:
            threading.Thread(target=_cancel, args=[connection], daemon=True).start()
        return self._given_up


def _cancel(connection: psycopg.Connection[Any]) -> None:
    """End what the server is doing for a connection: it would wait for as long as it may."""
    with contextlib.suppress(psycopg.Error):
        connection.cancel_safe(timeout=1.0)


def consumed(release: Callable[[], None]) -> Callable[[asyncio.Future[Any]], None]:
    """A callback that lets the next one in, and takes note of what nobody waits for."""

    def over(done: asyncio.Future[Any]) -> None:
        release()
        if not done.cancelled():
            done.exception()

    return over
