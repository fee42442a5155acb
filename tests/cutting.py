"""Between a client and a PostgreSQL: what cuts their connection in the middle of a COMMIT."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

Moment = Literal["before", "during", "after"]
"""COMMIT does not reach the server; it does, and who sent it is gone at once; it is answered."""

MOMENTS: tuple[Moment, ...] = ("before", "during", "after")
_COMMIT = b"COMMIT\0"


class Proxy:
    """Passes on what is said at `port`, until it is told to cut."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._moment: Moment | None = None
        self._cut = asyncio.Event()
        self._connections: set[asyncio.Task[object]] = set()
        self.port = 0

    async def cut(self, moment: Moment) -> None:
        """Cut the next connection that commits, at this moment of it."""
        self._cut.clear()
        self._moment = moment
        await self._cut.wait()

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Pass on one connection."""
        ours = asyncio.current_task()
        assert ours is not None
        self._connections.add(ours)
        ours.add_done_callback(self._connections.discard)
        # Wherever it is cancelled, also where it clears up: asyncio logs a cancelled handler.
        with contextlib.suppress(asyncio.CancelledError):
            await self._serve(client, to_client)

    async def end(self) -> None:
        """End every connection."""
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        to_server: asyncio.StreamWriter | None = None
        answers: asyncio.Task[None] | None = None
        try:
            server, to_server = await asyncio.open_unix_connection(self._socket)
            answers = asyncio.create_task(_pass_on(server, to_client))
            while data := await client.read(65536):
                moment = self._moment if _COMMIT in data else None
                if moment is not None:
                    self._moment = None
                    await self._cut_here(moment, data, to_server, to_client, answers, server)
                    return
                to_server.write(data)
                await to_server.drain()
        except OSError:
            pass
        finally:
            for writer in (to_client, to_server):
                if writer is not None:
                    writer.transport.abort()
            if answers is not None:
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)

    async def _cut_here(
        self,
        moment: Moment,
        data: bytes,
        to_server: asyncio.StreamWriter,
        to_client: asyncio.StreamWriter,
        answers: asyncio.Task[None],
        server: asyncio.StreamReader,
    ) -> None:
        try:
            answers.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answers
            if moment == "during":
                to_client.transport.abort()
            if moment != "before":
                to_server.write(data)
                await to_server.drain()
            if moment == "after":
                await server.read(1)
        finally:
            self._cut.set()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def proxy(socket: str, host: str = "127.0.0.1") -> AsyncGenerator[Proxy]:
    """A proxy at this address, in front of the server that listens at this path."""
    made = Proxy(socket)
    server = await asyncio.start_server(made.serve, host, 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.end()
