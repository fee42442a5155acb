"""Many clients of one server over HTTP, each with a token of its own, and a look at every answer.

    python tests/crowd.py [--clients 64] [--seconds 10] [sqlite|postgres]…

prints how many calls were answered, and how quickly.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from over_http import called, of, token_for
from peeking import rows
from postgres import own_server

MCP_STATE = str(Path(sys.executable).with_name("mcp-state"))
_LISTENS = re.compile(rb"listening at http://127\.0\.0\.1:(\d+)")
_MARK = re.compile(r"mark-[a-z]+\d+")
_EACH = 2
"""Clients of one project."""


@dataclass
class Told:
    """What the clients of a crowd were told; times in seconds."""

    seconds: float = 0.0
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    acked: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])

    @property
    def calls(self) -> int:
        return sum(map(len, self.times.values()))

    def row(self) -> str:
        """For people."""
        writes, reads = (
            sorted(itertools.chain.from_iterable(self.times[tool] for tool in tools))
            for tools in (WRITES, READS)
        )
        parts = [f"{self.calls / self.seconds:,.0f} calls/s ({self.calls:,}, 0 errors)"]
        for name, times in (("writes", writes), ("reads", reads)):
            p50, p99 = (1000 * times[int(len(times) * part)] for part in (0.5, 0.99))
            parts.append(f"{name} p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        return " · ".join(parts)


WRITES = ("journal_append", "memory_append", "thread_set")
READS = ("journal_tail", "search", "orient")


class _Client:
    """One connection that is kept, with one token, and what it may see."""

    def __init__(self, port: int, number: int, token: str, told: Told) -> None:
        self._port = port
        self._token = token
        self._told = told
        self.name = f"c{number}"
        self.project = project_of(number)

    async def work(self, until: float) -> None:
        """Call one tool after the other until then."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        mark = f"mark-{self.project}"
        for n in itertools.count():
            if time.perf_counter() >= until:
                break
            text = f"{mark} needle {self.name} {n}"
            await self._call("journal_append", text=text)
            self._told.acked.append(text)
            await self._call("journal_tail", limit=5)
            await self._call("memory_append", key=f"log {n // 20}", text=f"{mark} {n}\n")
            await self._call("search", query="needle", limit=5)
            await self._call("thread_set", thread=f"t{n % 7}", title=f"{mark} {self.name} {n}")
            await self._call("orient", max_tokens=600)
        self._writer.close()

    async def _call(self, tool: str, **arguments: Any) -> None:
        body = called(tool, arguments)
        headers = {**of(tool), "content_length": str(len(body))}
        lines = ["POST /mcp HTTP/1.1", f"Host: 127.0.0.1:{self._port}"]
        lines += [f"Authorization: Bearer {self._token}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        begun = time.perf_counter()
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        status, answer = await self._answer()
        self._told.times[tool].append(time.perf_counter() - begun)
        self._look(tool, status, answer)

    async def _answer(self) -> tuple[int, str]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(head.split(" ", 2)[1])
        if "content-length" in head:
            length = int(head.partition("content-length: ")[2].split("\r\n")[0])
            return status, (await self._reader.readexactly(length)).decode()
        parts: list[bytes] = []
        while size := int(await self._reader.readline(), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readline()
        await self._reader.readline()
        return status, b"".join(parts).decode()

    def _look(self, tool: str, status: int, answer: str) -> None:
        """Every answer is looked at for an error, and for anything of another project."""
        data = answer.partition("data: ")[2] or answer
        try:
            result = json.loads(data)["result"]
            text: str = result["content"][0]["text"]
        except (ValueError, LookupError):
            self._told.wrong.append(f"{tool}: {status} {answer[:200]}")
            return
        others = set(_MARK.findall(text)) - {f"mark-{self.project}"}
        own = text.rstrip("]").rpartition("[")[2].startswith(f"{self.project} ")
        if status != 200 or result.get("isError") or others or not own:
            self._told.wrong.append(f"{tool}: {status} {others} {text[:200]}")


def project_of(number: int) -> str:
    return f"team{number // _EACH}"


@asynccontextmanager
async def served(path: str, *options: str) -> AsyncGenerator[int]:
    """A server in a process of its own; its port."""
    process = await asyncio.create_subprocess_exec(
        *(MCP_STATE, "serve", "--http", "127.0.0.1:0", "--toolset", "all", "--db", path),
        *("--behind-proxy", *options),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    port = 0
    async for line in process.stderr:
        if found := _LISTENS.search(line):
            port = int(found[1])
            break
    assert port, "it does not listen"
    draining = asyncio.create_task(process.stderr.read())
    try:
        yield port
    finally:
        process.terminate()
        assert await process.wait() == 0, (await draining).decode()
        await draining


async def crowd(path: str, clients: int, seconds: float, *options: str) -> Told:
    """Let so many clients work for so long, and say what they were told."""
    tokens = [
        await token_for(path, project_of(number), agent=f"agent{number}")
        for number in range(clients)
    ]
    told = Told()
    async with served(path, *options) as port:
        begun = time.perf_counter()
        everybody = [_Client(port, n, token, told) for n, token in enumerate(tokens)]
        await asyncio.gather(*(one.work(begun + seconds) for one in everybody))
        told.seconds = time.perf_counter() - begun
    return told


def missing_or_doubled(path: str, told: Told) -> Mapping[str, int]:
    """The entries that were acknowledged and are not there once, and those that nobody was told."""
    there = Counter(str(text) for (text,) in rows(path, "SELECT text FROM journal"))
    acked = Counter(told.acked)
    return {text: n for text in there | acked if (n := there[text]) != 1 or acked[text] != 1}


async def _measure(engines: Sequence[str], clients: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="mcp-state-crowd-") as folder:
        for engine in engines:
            if engine == "postgres":
                with own_server(Path(folder)) as server:
                    await _tell(engine, server.store, clients, seconds)
            else:
                await _tell(engine, str(Path(folder) / "state.db"), clients, seconds)


async def _tell(engine: str, path: str, clients: int, seconds: float) -> None:
    told = await crowd(path, clients, seconds, "--rate", "100000")
    assert not told.wrong, told.wrong[:5]
    assert not missing_or_doubled(path, told)
    sys.stdout.write(f"{engine}, {clients} clients: {told.row()}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("engines", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    asyncio.run(_measure(given.engines, given.clients, given.seconds))
