"""The connections: HTTP/1.1 as uvicorn speaks it, with an end to what takes too long."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from mcp_state.http.bounds import Bounds
from mcp_state.http.refusals import Refusals


class Wire(H11Protocol):
    """One connection.

    A head that does not arrive in time and an answer that is not read end it. uvicorn itself
    bounds only how long nothing is said between two requests.
    """

    def __init__(self, *args: Any, bounds: Bounds, refusals: Refusals) -> None:
        super().__init__(*args)
        self.bounds = bounds
        self.refusals = refusals
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it."""
        super().connection_made(transport)
        # Head and body are two writes; asyncio sees to this only for sockets that it made itself.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what it was given time for."""
        self._head = _stopped(self._head)
        self._unread = _stopped(self._unread)
        super().connection_lost(exc)
        # uvicorn does so only for a connection that was not reset, and its timer keeps all of it.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; nothing more is said behind one that asked for the end."""
        # asyncio's TLS reads on while it closes.
        if self.transport.is_closing() or self.conn.their_state is h11.MUST_CLOSE:
            return
        if self._head is None and self.conn.their_state is h11.IDLE:
            self._await_head()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head = _stopped(self._head)

    def on_response_complete(self) -> None:
        """Go on with what was sent behind the request; it may be the beginning of a head."""
        super().on_response_complete()
        if self._head is None and self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, and end the connection."""
        self.refusals.tell("malformed", self._who(), "this is no HTTP/1.1 request")
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # there is an answer on its way already
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client reads slower than it is answered."""
        super().pause_writing()
        if self._unread is None:
            why = f"its answer was not read within {self.bounds.unread_time:g} s"
            self._unread = self.loop.call_later(
                self.bounds.unread_time, self._end, "slow_reader", why
            )

    def resume_writing(self) -> None:
        """It has read on."""
        self._unread = _stopped(self._unread)
        super().resume_writing()

    def _await_head(self) -> None:
        why = f"no whole request head within {self.bounds.head_time:g} s"
        self._head = self.loop.call_later(self.bounds.head_time, self._end, "slow_head", why)

    def _end(self, reason: str, why: str) -> None:
        self.refusals.tell(reason, self._who(), why)
        self.transport.abort()

    def _who(self) -> str:
        return self.client[0] if self.client else "?"


def _stopped(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
