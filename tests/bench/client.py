"""A client that costs next to nothing: JSON-RPC lines over the pipes of a server process.

Requests are encoded before the clock starts, answers are stamped when they arrive and read after
the last one did.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import json
import os
import re
import select
import selectors
import signal
import subprocess
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Self

from raw_client import Call

PATIENCE = 120.0
_CHUNK = 1 << 20
_ID = re.compile(rb'^\{"jsonrpc": ?"2\.0", ?"id": ?(\d+)[,}]|"id": ?(\d+)\}\s*$')

CODEX = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "codex-mcp-client", "version": "0.171.0"},
}
CLAUDE_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "2.1.332"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

Message = dict[str, Any]


class ServerFailed(Exception):
    """A server ended, fell silent, or refused what it should do."""


def encode(method: str, params: Mapping[str, Any] | None = None, *, id: int | str) -> bytes:
    message: Message = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not None:
        message["params"] = params
    return json.dumps(message).encode() + b"\n"


class Connection:
    """One server process and its pipes."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], directory: Path
    ) -> None:
        self.started = perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=directory,
            bufsize=0,
            start_new_session=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._stdin, self.stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        for pipe in (self._stdin, self.stdout):
            with contextlib.suppress(OSError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CHUNK)
        self._rest = b""
        self._arrived: deque[tuple[float, bytes]] = deque()
        self._last_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def close(self) -> None:
        """End it, and whatever it started."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                with contextlib.suppress(OSError):
                    os.killpg(self.pid, number)
            try:
                self.process.wait(3)
                break
            except subprocess.TimeoutExpired:
                continue
        self.process.stdout.close()

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._stdin, view) :]
            except BrokenPipeError as gone:
                raise ServerFailed("the server ended") from gone

    def receive(self) -> tuple[float, bytes]:
        """The next answer, and when it arrived."""
        while not self._arrived:
            if not select.select([self.stdout], [], [], PATIENCE)[0]:
                raise ServerFailed(f"no answer within {PATIENCE:.0f} s")
            self.read()
        return self._arrived.popleft()

    def take(self) -> Iterable[tuple[float, bytes]]:
        """What has arrived already."""
        while self._arrived:
            yield self._arrived.popleft()

    def read(self) -> None:
        """Wait for more from the server."""
        data = os.read(self.stdout, _CHUNK)
        at = perf_counter()
        if not data:
            raise ServerFailed("the server ended")
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line and not (b'"method"' in line and "method" in json.loads(line)):
                self._arrived.append((at, line))

    def notify(self, method: str) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        """A request whose answer has to be a result."""
        number, line = self._numbered(method, params)
        self.send(line)
        answer: Message = json.loads(self.receive()[1])
        if answer.get("id") != number or "result" not in answer:
            raise ServerFailed(f"{method}: {json.dumps(answer)[:300]}")
        return answer["result"]

    def call(self, tool: str, /, **arguments: Any) -> str:
        """The text of a call that has to succeed."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise ServerFailed(f"{tool}: {json.dumps(result)[:300]}")
        return result["content"][0]["text"]

    def encode(self, call: Call) -> tuple[int, bytes]:
        """A call to send, and its id."""
        return self._numbered("tools/call", {"name": call.tool, "arguments": call.arguments})

    def _numbered(self, method: str, params: Mapping[str, Any] | None) -> tuple[int, bytes]:
        self._last_id += 1
        return self._last_id, encode(method, params, id=self._last_id)


def open_as_codex(connection: Connection) -> dict[str, float]:
    """Codex's first moves; seconds since exec at which each list was answered."""
    connection.ask("initialize", CODEX)
    connection.notify("notifications/initialized")
    connection.ask("tools/list")
    return {"tools/list": perf_counter() - connection.started}


def open_as_claude(connection: Connection) -> dict[str, float]:
    """Claude Code's first moves; it falls back to `initialize` where discovery is unknown."""
    connection.send(encode("server/discover", {"_meta": CLAUDE_META}, id="server-discover"))
    answer = json.loads(connection.receive()[1])
    params: Message = {"_meta": CLAUDE_META}
    lists = ["tools/list", "resources/list", "prompts/list"]
    if "error" in answer:
        connection.ask("initialize", CODEX | {"clientInfo": {"name": "claude-code", "version": ""}})
        connection.notify("notifications/initialized")
        params = {}
    else:
        listen = params | {"notifications": {"toolsListChanged": True}}
        connection.send(encode("subscriptions/listen", listen, id="listen"))
    for method in lists:
        connection.send(encode(method, params, id=method))
    took: dict[str, float] = {}
    while len(took) < len(lists):
        at, line = connection.receive()
        answer = json.loads(line)
        if answer["id"] in lists:
            took[answer["id"]] = at - connection.started
    return took


@dataclass
class Measured:
    """What a number of calls took."""

    waits: list[float] = field(default_factory=list[float])
    """Seconds from sending a call until its answer, in the order of the answers."""
    ends: list[float] = field(default_factory=list[float])
    """Of each connection, seconds from the common begin until its last answer."""
    lines: list[bytes] = field(default_factory=list[bytes])

    @property
    def rate(self) -> float:
        """Calls a second, of all connections together."""
        return len(self.waits) / max(self.ends)

    def problems(self) -> list[str]:
        """The answers that are refusals."""
        return [line[:300].decode(errors="replace") for line in self.lines if _refused(line)]

    def assured(self) -> Self:
        """The same, if nothing was refused."""
        if problems := self.problems():
            raise ServerFailed(f"{len(problems)} calls were refused: {problems[0]}")
        return self


def _refused(line: bytes) -> bool:
    answer: Message = json.loads(line)
    result: Message = answer.get("result", {"isError": True})
    if result.get("isError"):
        return True
    content: list[Message] = result.get("content") or [{}]
    return str(content[0].get("text", "")).startswith(("Failed to ", "error: "))


def one_at_a_time(connection: Connection, calls: Iterable[Call]) -> Measured:
    """Call, wait for the answer, call the next."""
    requests = [connection.encode(call)[1] for call in calls]
    measured = Measured()
    began = perf_counter()
    for request in requests:
        sent = perf_counter()
        connection.send(request)
        at, line = connection.receive()
        measured.waits.append(at - sent)
        measured.lines.append(line)
    measured.ends.append(perf_counter() - began)
    return measured.assured()


class _Lane:
    """What is still to be sent over one connection, and what waits for an answer."""

    def __init__(self, connection: Connection, calls: Iterable[Call], window: int) -> None:
        self.connection = connection
        self._todo = deque(connection.encode(call) for call in calls)
        self._sent: dict[int, float] = {}
        self._window = window

    @property
    def done(self) -> bool:
        return not self._todo and not self._sent

    def fill(self) -> None:
        while self._todo and len(self._sent) < self._window:
            number, request = self._todo.popleft()
            self._sent[number] = perf_counter()
            self.connection.send(request)

    def settle(self, line: bytes) -> float:
        """When the call was sent that this answers."""
        found = _ID.search(line)
        number = int(found[1] or found[2]) if found else -1
        if number not in self._sent:
            number = json.loads(line)["id"]
        return self._sent.pop(number)


def at_once(
    connections: Sequence[Connection],
    calls: Sequence[Iterable[Call]],
    *,
    window: int = 1,
    think: float = 0.0,
) -> Measured:
    """Calls over several connections, so many in flight on each, with a pause after each answer."""
    lanes = [_Lane(*pair, window) for pair in zip(connections, calls, strict=True)]
    measured = Measured(ends=[0.0] * len(lanes))
    began = perf_counter()
    paused = [(began, index) for index in range(len(lanes))]
    with selectors.SelectSelector() as selector:
        for index, lane in enumerate(lanes):
            selector.register(lane.connection.stdout, selectors.EVENT_READ, index)
        while not all(lane.done for lane in lanes):
            while paused and paused[0][0] <= perf_counter():
                lanes[heapq.heappop(paused)[1]].fill()
            pause = max(0.0, paused[0][0] - perf_counter()) if paused else PATIENCE
            ready = selector.select(pause)
            if not ready and not paused:
                raise ServerFailed(f"no answer within {PATIENCE:.0f} s")
            for key, _ in ready:
                index: int = key.data
                lane = lanes[index]
                lane.connection.read()
                for at, line in lane.connection.take():
                    measured.waits.append(at - lane.settle(line))
                    measured.lines.append(line)
                    measured.ends[index] = at - began
                    heapq.heappush(paused, (at + think, index))
    return measured
