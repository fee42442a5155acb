"""A client that sends bytes to a real `mcp-state serve` and takes nothing on trust.

Each line that comes back must be one well-formed message that is owed. What is owed follows from
the bytes that were sent, by the rules of JSON-RPC and of both generations of the protocol.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

PATIENCE = 30.0
ENDS_WITHIN = 2.0
UNREADABLE, INVALID = -32700, -32600
_SURROGATE = re.compile("[\ud800-\udfff]")

Message = dict[str, Any]


@dataclass(frozen=True)
class Generation:
    """How a client of one revision of the protocol speaks."""

    version: str
    has_handshake: bool

    def request(self, request_id: object, method: str, **params: Any) -> Message:
        if not self.has_handshake:
            params["_meta"] = {**self._envelope, **params.get("_meta", {})}
        return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}

    def call(self, request_id: object, tool: str, **arguments: Any) -> Message:
        return self.request(request_id, "tools/call", name=tool, arguments=arguments)

    def ping(self, request_id: object) -> Message:
        return self.request(request_id, "ping" if self.has_handshake else "server/discover")

    @property
    def opening(self) -> list[Message]:
        """What it says first."""
        if not self.has_handshake:
            return [self.request("opening", "server/discover")]
        client = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": _CLIENT}
        return [
            self.request("opening", "initialize", **client),
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
        ]

    @property
    def _envelope(self) -> Message:
        prefix = "io.modelcontextprotocol/"
        return {
            f"{prefix}protocolVersion": self.version,
            f"{prefix}clientInfo": _CLIENT,
            f"{prefix}clientCapabilities": {},
        }


_CLIENT = {"name": "wire", "version": "1"}
HANDSHAKE = Generation("2025-06-18", has_handshake=True)
LAST_HANDSHAKE = Generation("2025-11-25", has_handshake=True)
STATELESS = Generation("2026-07-28", has_handshake=False)


def encoded(*messages: object) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


class Owed:
    """The answers that are due, by id: some once, some at most once."""

    def __init__(self) -> None:
        self.once: Counter[str] = Counter()
        self.perhaps: Counter[str] = Counter()

    def line(self, line: bytes) -> None:
        """Note what this line asks for."""
        if not line.strip():
            return
        text = line.decode("utf-8", "replace").removeprefix("\ufeff")
        try:
            value: object = json.loads(text)
        except (ValueError, RecursionError):
            self.once[_key(None, UNREADABLE)] += 1
            return
        if not isinstance(value, dict):
            self.once[_key(None, INVALID)] += 1
            return
        self._object(cast("Message", value), deep=text.count("[") + text.count("{") > 190)

    def _object(self, fields: Message, deep: bool) -> None:
        method, request_id = fields.get("method"), fields.get("id")
        params: object = fields.get("params")
        valid = (
            fields.get("jsonrpc") == "2.0"
            and isinstance(method, str)
            and (params is None or isinstance(params, dict))
        )
        usable = isinstance(request_id, str | int) and not isinstance(request_id, bool)
        if "result" in fields or "error" in fields:
            if "method" in fields:  # a request and a response at once
                self.perhaps[_key(request_id if usable else None, INVALID)] += 1
        elif "id" not in fields and valid:
            if deep:  # it may be refused for that
                self.perhaps[_key(None, INVALID)] += 1
            if method == "notifications/cancelled":
                self._cancelled(cast("Message", params or {}).get("requestId"))
        elif not usable:
            self.once[_key(None, INVALID)] += 1
        elif method == "subscriptions/listen":
            self.perhaps[_key(request_id)] += 1
        else:
            self.once[_key(request_id)] += 1

    def _cancelled(self, request_id: object) -> None:
        for key in [k for k in self.once if _is_same(k, request_id)]:
            self.perhaps[key] += self.once.pop(key)

    def answer(self, message: Message) -> None:
        """Take an answer.

        Raises:
            AssertionError: nobody asked for it, or it came already.
        """
        key = _key(message["id"], message.get("error", {}).get("code"))
        due = self.once if self.once[key] else self.perhaps
        assert due[key], f"an answer that is not owed: {str(message)[:2_000]}"
        due[key] -= 1
        self.once += Counter()  # without those that are settled


def _key(request_id: object, code: int | None = None) -> str:
    """An id as it comes back; without one, what is wrong with the line."""
    if isinstance(request_id, str):
        request_id = _SURROGATE.sub("\ufffd", request_id)
    return f"no id, error {code}" if request_id is None else json.dumps(request_id)


def _is_same(key: str, request_id: object) -> bool:
    """Whether to a peer it may be the same id, as "7" and 7 are."""
    return key[:1] != "n" and _number(json.loads(key)) == _number(request_id)


def _number(request_id: object) -> object:
    with suppress(ValueError):
        return int(request_id) if isinstance(request_id, str) else request_id
    return request_id


def well_formed(line: bytes) -> Message:
    """The one message of a line.

    Raises:
        ValueError: it is not JSON in UTF-8, or says something twice.
        AssertionError: it is not JSON-RPC.
    """
    message: object = json.loads(
        line.decode(), object_pairs_hook=_no_key_twice, parse_constant=_no_constant
    )
    json.dumps(message, ensure_ascii=False).encode()  # raises on lone surrogates
    assert isinstance(message, dict), line[:200]
    fields = cast("Message", message)
    assert fields.pop("jsonrpc") == "2.0", line[:200]
    match fields:
        case {"id": int() | str(), "result": dict(), **rest} if not rest:
            pass
        case {"id": int() | str() | None, "error": {"code": int(), "message": str()}, **rest}:
            assert not rest, line[:200]
        case {"method": str(), **rest}:
            assert rest.keys() <= {"id", "params"}, line[:200]
        case _:
            raise AssertionError(line[:200])
    return fields


def _no_key_twice(pairs: list[tuple[str, Any]]) -> Message:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return fields


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class Wire:
    """A server process, its pipes, and what it owes."""

    def __init__(self, home: Path, *words: str) -> None:
        private = ("MCP_STATE_", "CLAUDE_")
        self.store = home / "store" / "state.db"
        self._log = home / "stderr"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mcp_state", "serve", "--db", str(self.store), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                env={k: v for k, v in os.environ.items() if not k.startswith(private)},
            )
        assert self._process.stdin and self._process.stdout
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        self._unsent, self._unread, self._line = bytearray(), bytearray(), bytearray()
        self._over = False
        self.owed = Owed()
        self.answers: list[Message] = []
        self.answered: set[int | str | None] = set()
        """Their ids."""
        self._requests: list[Message] = []

    # Talking

    def write(self, data: bytes) -> None:
        """Send bytes; what they ask for is owed from now on."""
        self._is_asked(data)
        self._pump(lambda: not self._unsent)

    def write_without_reading(self, data: bytes) -> int:
        """Send until the server sleeps instead of taking more; how many bytes it took."""
        self._is_asked(data)
        while self._unsent:
            if select.select([], [self._stdin], [], 0.1)[1]:
                self._send()
            elif self._is_asleep:
                break
        return len(data) - len(self._unsent)

    def send(self, *messages: object) -> None:
        self.write(encoded(*messages))

    def settle(self) -> None:
        """Wait until everything that is owed has come."""
        self._pump(lambda: not self._unsent and not self.owed.once)

    def receive(self) -> None:
        """Wait for one more answer, if one is owed."""
        count = len(self.answers)
        self._pump(lambda: len(self.answers) > count or not self.owed.once)

    def receive_request(self) -> Message:
        """Wait for what the server wants from its client."""
        self._pump(lambda: bool(self._requests))
        return self._requests.pop(0)

    def ask(self, message: Message) -> Message:
        """Send a request and wait for its answer."""
        self.send(message)
        self._pump(lambda: message["id"] in self.answered)
        return next(a for a in reversed(self.answers) if a["id"] == message["id"])

    def take(self) -> list[Message]:
        """The answers since the last time."""
        taken, self.answers = self.answers, []
        self.answered.clear()
        return taken

    # The process

    @property
    def resident(self) -> int:
        """Its memory, in bytes."""
        with open(f"/proc/{self._process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def wait_until_asleep(self) -> None:
        """Wait until none of its threads does anything: three looks in a row find it so."""
        ends, found = time.monotonic() + PATIENCE, 0
        while found < 3:
            assert time.monotonic() < ends, "it never rests"
            found = found + 1 if self._is_asleep else 0
            select.select([self._stdout], [], [], 0.02)

    @property
    def _is_asleep(self) -> bool:
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/stat")
        return {one.read_text("utf-8").rpartition(")")[2].split()[0] for one in threads} == {"S"}

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def end(self, within: float = ENDS_WITHIN) -> None:
        """Close its stdin: it owes the rest, and a quick and quiet end."""
        if self._line.strip():
            self.owed.line(bytes(self._line))
        self._pump(lambda: not self._unsent)
        began = time.monotonic()
        self._close_stdin()
        self._pump(lambda: self._over)
        code = self._process.wait(PATIENCE)
        assert (code, self._unread, self.owed.once) == (0, b"", Counter()), self.log
        assert time.monotonic() - began < within
        assert_quiet(self.log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close_stdin()
        assert self._process.stdout
        self._process.stdout.close()

    def _close_stdin(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()

    def _is_asked(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self.owed.line(bytes(line))
        self._unsent += data

    def _pump(self, done: Callable[[], bool]) -> None:
        while not done():
            assert not self._over, f"the server ended; it owes {self.owed.once}\n{self.log}"
            wanted = [self._stdin] if self._unsent else []
            readable, writable, _ = select.select([self._stdout], wanted, [], PATIENCE)
            assert readable or writable, f"nothing moved; it owes {self.owed.once}\n{self.log}"
            if writable:
                self._send()
            if readable:
                self._receive()

    def _send(self) -> None:
        try:
            del self._unsent[: os.write(self._stdin, self._unsent[: 1 << 16])]
        except BrokenPipeError:
            self._unsent.clear()  # its end is seen on its stdout

    def _receive(self) -> None:
        data = os.read(self._stdout, 1 << 20)
        self._over = not data
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            message = well_formed(bytes(line))
            if "method" not in message:
                self.owed.answer(message)
                self.answers.append(message)
                self.answered.add(message["id"])
            elif "id" in message:
                self._requests.append(message)


def assert_quiet(log: str) -> None:
    """The server met no fault of its own; what it says of its client is a line."""
    odd = [line for line in log.splitlines() if not line.startswith("mcp-state: ")]
    assert not odd, "\n".join([log[:1_000], *odd[:20], *odd[-20:]])


@contextmanager
def serving(home: Path, *words: str) -> Generator[Wire]:
    wire = Wire(home, *words)
    try:
        yield wire
    finally:
        wire.kill()
