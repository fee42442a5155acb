"""A server over HTTP in this process, and clients of it: the SDK's, and plain sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from browsing import Reply, read_reply
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_state.http.bounds import Bounds
from mcp_state.http.serving import Door, serve
from mcp_state.models import Actor, Caller
from mcp_state.settings import Settings
from mcp_state.store.database import open_database
from mcp_state.store.tokens import Tokens
from mcp_state.times import Clock

MODERN = "2026-07-28"
GENERATIONS = ("legacy", "auto")
JSON = "application/json"
BOTH = f"{JSON}, text/event-stream"


@dataclass(frozen=True)
class Served:
    """A server that listens at `url`."""

    url: str

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @asynccontextmanager
    async def client(self, mode: str = MODERN, token: str = "") -> AsyncGenerator[Client]:
        """A client of the SDK, of either generation."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=20) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,
        ):
            yield client

    async def send(self, request: bytes) -> Reply:
        """Send exactly this, and read what is answered until the connection ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            async with asyncio.timeout(20):
                return await read_reply(reader)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def ask(
        self,
        method: str,
        target: str = "/mcp",
        body: bytes = b"",
        *,
        token: str = "",
        host: str = "",
        **headers: str,
    ) -> Reply:
        """Send a request with these headers, in their order."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host or f'127.0.0.1:{self.port}'}"]
        lines += ["Connection: close"]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        if body:
            headers.setdefault("content_length", str(len(body)))
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return await self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def call(self, tool: str, *, token: str = "", **arguments: Any) -> Reply:
        """Call a tool in one request of the newer generation."""
        return await self.ask("POST", "/mcp", called(tool, arguments), token=token, **of(tool))

    async def begin(self, *, token: str = "", session: str = "", **headers: str) -> Reply:
        """The handshake of the older generation; its answer names the session."""
        if session:
            headers["mcp_session_id"] = session
        return await self.ask("POST", "/mcp", HELLO, token=token, **POSTED, **headers)

    @asynccontextmanager
    async def listening(
        self, session: str, token: str = ""
    ) -> AsyncGenerator[asyncio.StreamReader]:
        """The stream of a session of the older generation, after its head."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = ["GET /mcp HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Accept: text/event-stream"]
        lines += [f"Authorization: Bearer {token}"] if token else []
        writer.write("\r\n".join([*lines, f"Mcp-Session-Id: {session}", "", ""]).encode())
        try:
            async with asyncio.timeout(20):
                head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ") and b"text/event-stream" in head, head
            yield reader
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


POSTED = {"accept": BOTH, "content_type": JSON}
HELLO = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        },
    }
).encode()
_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def called(tool: str, arguments: dict[str, Any]) -> bytes:
    """The body of a call in the newer generation."""
    params = {"name": tool, "arguments": arguments, "_meta": _ENVELOPE}
    return json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    ).encode()


def of(tool: str) -> dict[str, str]:
    """The headers of such a call."""
    routing = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": tool}
    return POSTED | routing


@asynccontextmanager
async def serving(
    settings: Settings,
    door: Door | None = None,
    *,
    bounds: Bounds | None = None,
    clock: Clock | None = None,
) -> AsyncGenerator[Served]:
    """A server in this process, until a signal ends it."""
    started: asyncio.Future[Served] = asyncio.get_running_loop().create_future()
    life = asyncio.create_task(
        serve(
            settings,
            door or Door(port=0),
            lambda url: started.set_result(Served(url)),
            bounds=bounds,
            clock=clock,
        )
    )
    await asyncio.wait([started, life], return_when=asyncio.FIRST_COMPLETED)
    if life.done():
        await life
    try:
        yield await started
    finally:
        if not life.done():
            signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(15):
            await life


async def ended(reader: asyncio.StreamReader) -> None:
    """The server has ended the connection, whatever way."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 20):
            pass


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the log that tell of refusals."""
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith("refused ")]


async def token_for(
    path: str,
    *projects: str,
    toolset: str = "all",
    agent: str = "codex",
    lasts: timedelta = timedelta(days=30),
    clock: Clock | None = None,
) -> str:
    """Make a token in the store at `path`, as another process does; none named: for all."""
    database = open_database(path, clock=clock)
    try:
        places = [Caller(name, "", Actor("person")) for name in projects or ("acme",)]
        tokens = Tokens(database, places[0])
        made = await tokens.create(
            places, agent=agent, toolset=toolset, lasts=lasts, every_project=not projects
        )
        return made.secret
    finally:
        await database.aclose()


async def revoke(path: str, token: str) -> None:
    """End a token, as another process does."""
    database = open_database(path)
    try:
        await Tokens(database, Caller("", "", Actor("person"))).revoke(id_of(token))
    finally:
        await database.aclose()


def id_of(token: str) -> str:
    return token.split("_")[1]


def secret_of(token: str) -> str:
    """What only its holder knows of it, which may hold more of what divides the parts."""
    return token.split("_", 2)[2]


PROXIED = Door(port=0, behind_proxy=True)
"""A door where every request needs a token."""
