"""An MCP server with a client that renders apps, in a loop of its own beside the browser's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from mcp import Client
from mcp.client import advertise

from mcp_state.server import create_server
from mcp_state.settings import Settings

T = TypeVar("T")
BOARD = "ui://mcp-state/board"
RENDERS = advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})


class Connection:
    """Calls from the thread of the test."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: Client) -> None:
        self.loop = loop
        self._client = client

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The answer of a tool, as it is on the wire."""
        result = self._wait(self._client.call_tool(tool, arguments))
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)

    def document(self) -> str:
        """The app's."""
        (found,) = self._wait(self._client.read_resource(BOARD)).contents
        return getattr(found, "text", "")

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)


@contextmanager
def connected(db: Path, project: str) -> Generator[Connection]:
    """A server on this store, as long as the block runs."""
    ready = threading.Event()
    made: list[Connection] = []
    over: list[asyncio.Event] = []

    async def live() -> None:
        server = create_server(Settings(db=str(db), project=project, session="s1"))
        async with Client(server, extensions=[RENDERS]) as client:
            over.append(asyncio.Event())
            made.append(Connection(asyncio.get_running_loop(), client))
            ready.set()
            await over[0].wait()

    thread = threading.Thread(target=asyncio.run, args=(live(),))
    thread.start()
    assert ready.wait(30)
    yield made[0]
    made[0].loop.call_soon_threadsafe(over[0].set)
    thread.join()
