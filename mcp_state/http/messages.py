"""Requests and answers as ASGI has them, and what is done with both everywhere here."""

from __future__ import annotations

from starlette.types import Message, Receive, Scope, Send

_CLOSED = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class Incoming:
    """A request on its way, and whether it is `whole`, or its sender has gone."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.whole = False

    async def __call__(self) -> Message:
        """Receive a part of it."""
        message = await self._receive()
        self.whole = not message.get("more_body", False)
        return message


class Reply:
    """The answer on its way: what it began with, and the headers that each one has.

    `begun` says whether the client may have seen something of it: a server that waits for a client
    to read what it was told before has not.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.begun = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._over = False

    async def __call__(self, message: Message) -> None:
        """Send a part of it."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = list(message.get("headers", ()))
            own = {name.lower() for name, _ in self._headers}
            more = [one for one in _CLOSED if one[0] not in own]
            message = {**message, "headers": [*self._headers, *more]}
        else:
            self._over = not message.get("more_body", False)
        await self._send(message)
        self.begun = True

    def header(self, name: bytes) -> str:
        """A header of it, empty if it has none."""
        return next((v.decode("latin-1") for k, v in self._headers if k.lower() == name), "")

    async def finish(self) -> None:
        """End what was cut short."""
        if self.begun and not self._over:
            await self({"type": "http.response.body", "body": b"", "more_body": False})


def header(scope: Scope, name: bytes) -> str:
    """The value of a header that is there at most once; empty if it is not there."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def replaying(body: bytes, receive: Receive) -> Receive:
    """What receives a body that was read already, and then what comes after it."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
