"""Letting clients in: no more than there is room for, and none that only knocks."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection

from mcp_state.http.bounds import Bounds
from mcp_state.http.refusals import Refusals

_AGAIN = 1.0


class Listener:
    """What accepts the connections of a listening socket, one in each turn of the event loop.

    asyncio's own takes all that wait at once, before anybody can count them, and does not count
    who has yet to speak TLS: either way the open files that the store needs would be taken.

    Args:
        listening: the socket, which is closed with this.
        wire: makes what speaks with one client.
        inside: what speaks with those that are connected.
        tls: how to speak it; None if a proxy does, or nobody has to.
        bounds: how many there may be, and the seconds that TLS may take.
        refusals: where it is noted who was not let in.
    """

    def __init__(
        self,
        listening: socket.socket,
        wire: Callable[[], asyncio.Protocol],
        inside: Collection[object],
        *,
        tls: ssl.SSLContext | None,
        bounds: Bounds,
        refusals: Refusals,
    ) -> None:
        self._listening = listening
        self._wire = wire
        self._inside = inside
        self._tls = tls
        self._bounds = bounds
        self._refusals = refusals
        self._loop = asyncio.get_running_loop()
        self._entering: dict[asyncio.Protocol, asyncio.Task[None]] = {}
        self._again: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Let clients in from now on."""
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening, self._accept)

    async def close(self) -> None:
        """Let in who has come before, and nobody any more; who has yet to speak TLS may not."""
        self._loop.remove_reader(self._listening)
        for _ in range(self._bounds.connections):
            if not self._accept():
                break
        if self._again is not None:
            self._again.cancel()
        self._listening.close()
        if self._tls is not None:
            await asyncio.sleep(0)  # who has not begun would not close what it was given
            for entering in self._entering.values():
                entering.cancel()
        await asyncio.gather(*self._entering.values(), return_exceptions=True)

    def _accept(self) -> bool:
        """Accept one; returns whether there was one."""
        try:
            connection, (who, *_) = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):  # it has gone again
            return False
        except OSError as problem:  # there are no files, or no memory, for it; it goes on waiting
            why = f"{problem.strerror}: nobody is let in for {_AGAIN:g} s"
            self._refusals.tell("connections", "?", why)
            self._loop.remove_reader(self._listening)
            self._again = self._loop.call_later(_AGAIN, self.open)
            return False
        if self._taken() < self._bounds.connections:
            wire = self._wire()
            self._entering[wire] = self._loop.create_task(self._let_in(connection, who, wire))
        else:
            connection.close()
            why = f"there are {self._bounds.connections:,} connections"
            self._refusals.tell("connections", who, why)
        return True

    def _taken(self) -> int:
        """How many connections there are; one that is inside may be entering still."""
        return len(self._inside) + sum(wire not in self._inside for wire in self._entering)

    async def _let_in(self, connection: socket.socket, who: str, wire: asyncio.Protocol) -> None:
        hello = self._bounds.head_time if self._tls else None
        farewell = self._bounds.farewell if self._tls else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: wire,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=hello,
                ssl_shutdown_timeout=farewell,
            )
        except (ConnectionResetError, BrokenPipeError):  # it has gone again
            pass
        except OSError as problem:  # ssl.SSLError is one
            self._refusals.tell("tls", who, problem.strerror or str(problem))
        finally:
            del self._entering[wire]
