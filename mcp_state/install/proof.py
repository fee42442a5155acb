"""The proof of an installation: the server is started as the client starts it, and asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp_state.errors import NotAnswered
from mcp_state.record import record

_PROTOCOL = "2025-06-18"
_LONGEST_LINE = 16 << 20
_LAST_WORDS = 2000


@record
class Proof:
    """How long the server took, in seconds, and what it has."""

    start: float
    orient: float
    tools: Sequence[str]
    text: str


async def prove(
    command: Sequence[str], environment: Mapping[str, str], folder: str, limit: float
) -> Proof:
    """Start a server, shake hands, list its tools and call `orient`.

    Raises:
        NotAnswered: it fails, or takes longer than the client waits.
    """
    errors = bytearray()
    try:
        async with _started(command, environment, folder, errors) as process:
            began = time.monotonic()
            tools, started = [], 0.0
            async with asyncio.timeout(limit):
                await _ask(process, 1, "initialize", _HELLO)
                _send(process, {"method": "notifications/initialized"})
                listed = await _ask(process, 2, "tools/list", {})
                tools = [str(one["name"]) for one in listed["tools"]]
                started = time.monotonic() - began
            async with asyncio.timeout(max(limit, 30)):
                called = await _ask(process, 3, "tools/call", {"name": "orient", "arguments": {}})
            taken = time.monotonic() - began - started
            text = str(called["content"][0]["text"])
            if called.get("isError"):
                raise NotAnswered(f"the server answers `orient` with {text.rstrip('.')}")
            return Proof(started, taken, tools, text)
    except TimeoutError:
        raise _failed(command, f"no answer within {limit:g} s", errors) from None
    except (OSError, ValueError, LookupError, TypeError) as problem:
        raise _failed(command, str(problem) or type(problem).__name__, errors) from None


_HELLO = {
    "protocolVersion": _PROTOCOL,
    "capabilities": {},
    "clientInfo": {"name": "mcp-state install", "version": "1"},
}


@asynccontextmanager
async def _started(
    command: Sequence[str], environment: Mapping[str, str], folder: str, errors: bytearray
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """The running server, whose last words on stderr are kept; it is gone at the end."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        cwd=folder,
        limit=_LONGEST_LINE,
    )
    listening = asyncio.create_task(_listen(process, errors))
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
        await listening


async def _listen(process: asyncio.subprocess.Process, errors: bytearray) -> None:
    assert process.stderr is not None
    while data := await process.stderr.read(4096):
        errors += data
        del errors[:-_LAST_WORDS]


async def _ask(
    process: asyncio.subprocess.Process, number: int, method: str, params: Mapping[str, Any]
) -> Any:
    _send(process, {"id": number, "method": method, "params": params})
    assert process.stdout is not None
    while line := await process.stdout.readline():
        answer = json.loads(line)
        if answer.get("id") == number:
            if "error" in answer:
                raise ValueError(f"{method}: {answer['error'].get('message')}")
            return answer["result"]
    raise ValueError(f"it ended before it answered {method}")


def _send(process: asyncio.subprocess.Process, message: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def _failed(command: Sequence[str], fact: str, errors: bytearray) -> NotAnswered:
    said = bytes(errors).decode("utf-8", "replace").strip()
    words = f"; on stderr it said: {said}" if said else ""
    return NotAnswered(f"the server does not answer ({command[0]}): {fact}{words}".rstrip("."))
