"""What the server tells of changes, to those who listen, over a connection of its own."""

from __future__ import annotations

import asyncio
import logging

import psycopg

from mcp_state.store.changes import Listening
from mcp_state.store.postgres.opening import Address
from mcp_state.store.postgres.refusals import one_line

log = logging.getLogger(__name__)

CHANNEL = "mcp_state"
"""Where every commit tells the name of the schema, and the number of the project."""

_AGAIN = 1.0


class Notices(Listening):
    """Wakes who listens when the server tells of a change in the store at `address`."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self._address = address

    async def _watch(self) -> None:
        while True:
            try:
                await self._listen()
            except psycopg.Error as problem:
                log.warning("%s: %s", self._address.shown, one_line(problem))
            self._wake()  # what is told meanwhile is told to nobody; who looks sees what there is
            await asyncio.sleep(_AGAIN)

    async def _listen(self) -> None:
        connection = await psycopg.AsyncConnection.connect(
            self._address.url,
            autocommit=True,
            application_name="mcp-state listens",
        )
        async with connection:
            await connection.execute(f"LISTEN {CHANNEL}".encode())
            self._wake()
            async for notice in connection.notifies():
                if notice.payload.partition(" ")[0] == self._address.schema:
                    self._wake()
