"""A client that trusts nothing: JSON-RPC lines over the pipes of a real `mcp-state serve`."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

PATIENCE = 60.0

_INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


@dataclass(frozen=True)
class Call:
    """One call of a tool."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What the server said to a call."""

    text: str
    refused: bool

    @property
    def code(self) -> str:
        """The code of a refusal, empty for a success."""
        return self.text.removeprefix("error: ").partition(":")[0] if self.refused else ""

    @property
    def event(self) -> int:
        """The event number in the last line."""
        return int(self.number(r"event (\d+)\]\Z"))

    def number(self, pattern: str) -> str:
        found = re.search(pattern, self.text)
        assert found is not None, self.text
        return found[1]


class Nursery:
    """Where the servers come from, see nursery.py."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        private = ("MCP_STATE_", "CLAUDE_")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("nursery.py"))],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={k: v for k, v in os.environ.items() if not k.startswith(private)}
                | {"PYTHONUNBUFFERED": ""},
            )
        atexit.register(self._end)

    def start(self, arguments: Sequence[str], stdin: int, stdout: int) -> int:
        """Start `mcp-state` on these descriptors; returns its process id."""
        return self._ask({"mcp-state": arguments}, stdin, stdout)

    def start_tiny_server(self, stdin: int, stdout: int, stderr: int, told: int) -> int:
        """Start `tiny_server.py` on these descriptors; returns its process id."""
        return self._ask({"tiny server": True}, stdin, stdout, stderr, told)

    def wait(self, pid: int) -> int:
        """The exit code of a process, once it has ended."""
        return self._ask({"wait": pid})

    def _ask(self, request: dict[str, Any], *descriptors: int) -> int:
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        answer = self._socket.recv(32)
        assert answer, "the nursery ended"
        return int(answer)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


nursery = functools.cache(Nursery)


@dataclass
class Server:
    """One `mcp-state serve` process; the first call waits for the handshake."""

    pid: int
    stdin: int
    stdout: int
    started: bool = False
    last_id: int = 0
    open: bool = True
    unread: bytearray = field(default_factory=bytearray)

    @classmethod
    def start(cls, store: Path | str, *, agent: str = "tester", toolset: str = "coding") -> Self:
        options = ["--db", str(store), "--project", "acme", "--agent", agent]
        theirs, stdin = os.pipe()
        stdout, theirs_too = os.pipe()
        try:
            arguments = ["serve", *options, "--toolset", toolset]
            server = cls(nursery().start(arguments, theirs, theirs_too), stdin, stdout)
        finally:
            os.close(theirs)
            os.close(theirs_too)
        server._write({"id": 0, "method": "initialize", "params": _INITIALIZE})
        return server

    def call(self, call: Call) -> Answer:
        """Call, and wait for the answer."""
        sent = self.send(call)
        found = self.receive()
        assert found is not None, "the server ended"
        assert found[0] == sent
        return found[1]

    def send(self, call: Call) -> int:
        """Send a call; `receive` gives the answer."""
        self.wait_until_ready()
        self.last_id += 1
        params = {"name": call.tool, "arguments": call.arguments}
        self._write({"id": self.last_id, "method": "tools/call", "params": params})
        return self.last_id

    def wait_until_ready(self) -> None:
        if not self.started:
            welcome = self._message()
            assert welcome is not None and "serverInfo" in welcome["result"]
            self._write({"method": "notifications/initialized"})
            self.started = True

    def receive(self) -> tuple[int, Answer] | None:
        """The next answer and the id of its call; None when the server is gone."""
        message = self._message()
        if message is None:
            return None
        (content,) = message["result"]["content"]
        return message["id"], Answer(content["text"], message["result"]["isError"])

    def kill(self) -> list[tuple[int, Answer]]:
        """`kill -9` now; returns the answers that had already left."""
        os.kill(self.pid, signal.SIGKILL)
        rest = list(iter(self.receive, None))
        self.close()
        return rest

    def close(self) -> None:
        """End it, whatever it is doing, and wait until it is gone."""
        if self.open:
            os.kill(self.pid, signal.SIGKILL)
            while os.read(self.stdout, 1 << 16):
                pass
            os.close(self.stdin)
            os.close(self.stdout)
            self.open = False

    def _write(self, message: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        while data:
            data = data[os.write(self.stdin, data) :]

    def _message(self) -> dict[str, Any] | None:
        while b"\n" not in self.unread:
            readable, _, _ = select.select([self.stdout], [], [], PATIENCE)
            assert readable, f"no answer within {PATIENCE} s"
            data = os.read(self.stdout, 1 << 16)
            if not data:
                return None
            self.unread += data
        line, _, rest = bytes(self.unread).partition(b"\n")
        self.unread[:] = rest
        return json.loads(line)


@contextmanager
def closing_all(servers: Sequence[Server]) -> Generator[None]:
    """Leave no process behind."""
    try:
        yield
    finally:
        for server in servers:
            server.close()
