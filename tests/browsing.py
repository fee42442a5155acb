"""A browser in a few lines, on plain sockets: what it sends, and what it was answered, exactly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from mcp_state.settings import Settings
from mcp_state.times import Clock
from mcp_state.web.serving import serve


@dataclass(frozen=True)
class Reply:
    """One answer of the server; no header came twice."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/json", self.text
        return json.loads(self.body)


@dataclass(frozen=True)
class Browser:
    """Asks the server at an address that `mcp-state web` printed."""

    address: str
    once: str = ""

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port is not None
        return port

    @property
    def path(self) -> str:
        return urlsplit(self.address).path

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        host: str | None = "",
        **headers: str,
    ) -> Reply:
        """Send exactly this; a `host` of None sends none."""
        lines = [f"{method} {target} HTTP/1.1", "Connection: close"]
        if host is not None:
            lines.append(f"Host: {host or f'127.0.0.1:{self.port}'}")
        if body or method == "POST":
            headers.setdefault("content_length", str(len(body)))
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return await self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def send(self, request: bytes) -> Reply:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            async with asyncio.timeout(20):
                return await read_reply(reader)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def get(self, rest: str = "", **headers: str) -> Reply:
        """Ask for something behind the key."""
        return await self.ask("GET", self.path + rest, b"", host="", **headers)

    async def view(self, view: str, **query: str | int) -> Reply:
        return await self.get(f"api/{view}{f'?{urlencode(query)}' if query else ''}")

    async def do(self, deed: str, project: str = "", **body: Any) -> Reply:
        """What a click on the page sends."""
        query = f"?{urlencode({'project': project})}" if project else ""
        return await self.post(f"api/do/{deed}{query}", json.dumps(body).encode())

    async def post(self, rest: str, body: bytes, **headers: str) -> Reply:
        own = {"origin": self.origin, "content_type": "application/json"}
        return await self.ask("POST", self.path + rest, body, host="", **own | headers)

    @asynccontextmanager
    async def listening(self, **query: str) -> AsyncGenerator[asyncio.StreamReader]:
        """The stream of changes, after its headers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        target = f"{self.path}api/live{f'?{urlencode(query)}' if query else ''}"
        writer.write(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            yield reader
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = [line.split(": ", 1) for line in lines]
    named = {name.lower(): value for name, value in headers}
    assert len(named) == len(headers), head
    return Reply(int(first.split()[1]), named, body)


async def next_event(reader: asyncio.StreamReader) -> tuple[str, dict[str, Any]]:
    """The next event of a stream, without the heartbeats before it."""
    fields: dict[str, str] = {}
    async with asyncio.timeout(20):
        while True:
            line = (await reader.readline()).decode()
            assert line, "the stream has ended"
            if ": " in line:
                name, _, value = line.strip().partition(": ")
                fields[name] = value
            elif "event" in fields and not line.strip():
                return fields["event"], json.loads(fields["data"])


@asynccontextmanager
async def browsing(settings: Settings, clock: Clock | None = None) -> AsyncGenerator[Browser]:
    """A browser of a site that is served by this process, until a signal ends it."""
    started: asyncio.Future[Browser] = asyncio.get_running_loop().create_future()

    def ready(address: str, once: str) -> None:
        started.set_result(Browser(address, once))

    serving = asyncio.create_task(serve(settings, 0, ready, clock=clock))
    await asyncio.wait([started, serving], return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        await serving
    try:
        yield await started
    finally:
        signal.raise_signal(signal.SIGINT)
        async with asyncio.timeout(10):
            await serving
