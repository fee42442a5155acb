"""The stdio transport: one JSON-RPC message a line, between the client's pipes and the SDK.

`serve_stdio` does what `Server.run` does, over a `StdioWire`. The wire reads and writes the pipes
on the event loop itself, answers what the SDK would drop in silence, and holds the end of input
back from the SDK (which cancels every call at once) until the calls in flight had a moment to
finish.
"""

import asyncio
import gc
import json
import logging
import math
import os
import re
import signal
import sys
import threading
from codecs import BOM_UTF8
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, cast

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.models import InitializationOptions
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic_core import PydanticSerializationError

from mcp_state.front import Opening

REPLACED_META: Final = "mcp-state/replaced"
"""Key in a request's `params._meta`: how many lone surrogates in it became U+FFFD."""

_CHUNK = 65_536
_UNREAD_BYTES = 1_048_576
_MOST_AHEAD = 8

# seconds since it was told to end
_CALLS_MAY_TAKE = 1.0
_ANSWERS_MAY_TAKE = 1.2
_ALL_MAY_TAKE = 1.5

_STAYS_OPEN = "subscriptions/listen"  # it is answered when the connection ends, not before

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)

_logger = logging.getLogger(__name__)


async def serve_stdio(
    server: Server[Any],
    initialization_options: InitializationOptions | None = None,
    opening: Opening | None = None,
) -> None:
    """Serve one client over the process's stdin and stdout until it leaves.

    `opening` is what was read from it, and answered, before the SDK was imported.

    It ends on EOF, SIGTERM, SIGINT, a client that no longer reads, or a parent process that
    vanished: no more is read, calls in flight have a second to finish and to be answered, then they
    are cancelled. The server's lifespan is left properly, and all of it takes less than 2 s; what
    resists that long costs the process. The same signal a second time kills at once; the other one
    is ignored from then on, because Claude Code sends SIGTERM right behind its SIGINT.
    To be called once, on the main thread: streams and signals are not given back.
    """
    options = initialization_options or server.create_initialization_options()
    if sys.platform == "win32":
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, options)
    else:
        async with stdio_wire(opening or Opening()) as wire:
            _stop_on_signals(wire.stop)
            with _stopping_with_parent(wire.stop):
                await serve_wire(server, wire, options)
    gc.freeze()  # or else Python goes through all objects once more at exit, for 0.4 s


async def serve_wire(
    server: Server[Any], wire: "StdioWire", options: InitializationOptions
) -> None:
    """Do what `Server.run` does, without its relay where the client begins with a handshake.

    `Server.run` relays every message, whose generation of the protocol it may not know yet.
    """
    opening = await wire.opening_request()
    if opening is None or opening.method != "initialize":
        await server.run(wire, wire, options)
        return
    server.middleware.append(_refuse_enveloped)
    async with server.lifespan(server) as state:
        await serve_loop(server, wire, wire, lifespan_state=state, init_options=options)


async def _refuse_enveloped(ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
    """Refuse, in the words of `Server.run`, a request of the generation without a handshake."""
    meta: object = (ctx.params or {}).get("_meta")
    enveloped = isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta
    if enveloped and ctx.request_id is not None and ctx.method != "initialize":
        raise MCPError(
            INVALID_REQUEST,
            "this connection serves the handshake protocol era; "
            "requests carrying the 2026-07-28 envelope are not accepted on it",
        )
    return await call_next(ctx)


@asynccontextmanager
async def stdio_wire(opening: Opening) -> AsyncGenerator["StdioWire"]:
    """Take stdin and stdout away from the rest of the process and give them as a wire.

    From then on fd 0 is `/dev/null` and fd 1 is stderr. They stay so at the end: what Python still
    holds in its own buffer for stdout, or a child process writes later, must not reach the client.
    """
    null = os.open(os.devnull, os.O_RDWR)
    incoming, outgoing = os.dup(0), os.dup(1)
    os.dup2(null, 0)
    os.dup2(null if sys.__stderr__ is None else 2, 1)
    os.close(null)
    blocking = [(fd, os.get_blocking(fd)) for fd in (incoming, outgoing)]
    for fd, _ in blocking:
        os.set_blocking(fd, False)
    wire = StdioWire(incoming, outgoing, opening)
    try:
        yield wire
    finally:
        await wire.finish()
        for fd, was_blocking in blocking:
            os.set_blocking(fd, was_blocking)  # a terminal shares this with the user's shell
            os.close(fd)


class StdioWire:
    """Both of the SDK's streams in one: the `ReadStream` and the `WriteStream` of a connection.

    The SDK is shown what there was of an opening. Its own answers to that are dropped, since the
    client has them, and until they are there, it gets nothing new.
    """

    def __init__(self, incoming: int, outgoing: int, opening: Opening) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._incoming = incoming
        self._watching = False
        *complete, rest = opening.rest.split(b"\n")
        self._shown = deque(opening.shown)
        self._answered = opening.answered
        self._seen: deque[SessionMessage] = deque()
        self._lines = deque(complete)
        self._unfinished = [rest]
        self._outgoing = outgoing
        self._unsent = bytearray()
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self._broken = False
        self._calls: set[RequestId] = set()
        self._stopped_at = math.inf
        self._last_resort = threading.Timer(_ALL_MAY_TAKE, _give_up)
        self._last_resort.daemon = True

    async def opening_request(self) -> JSONRPCRequest | None:
        """The client's first request, None if it left before one; what came stays to be received.

        Of what is sent ahead of it, the first few messages do, as with the SDK.
        """
        ahead: list[SessionMessage] = []
        first: JSONRPCRequest | None = None
        async for received in self:
            if isinstance(received.message, JSONRPCRequest):
                first = received.message
            elif len(ahead) >= _MOST_AHEAD:
                continue
            ahead.append(received)
            if first is not None:
                break
        self._seen.extend(ahead)
        return first

    async def receive(self) -> SessionMessage:
        """Return the client's next message.

        A client that does not read its answers gets no more of its requests read.

        Raises:
            anyio.EndOfStream: the wire was stopped, and no call is in flight or time is up.
        """
        if self._seen:
            return self._seen.popleft()
        if self._lines:
            await asyncio.sleep(0)  # the call before this one begins, and may fill the pipe
        while self._shown:
            if (message := self._accept(self._shown.popleft())) is not None:
                return message
        while self._answered:
            self._news.clear()
            await self._news.wait()
        while True:
            while self._lines and len(self._unsent) < _UNREAD_BYTES:
                if (message := self._accept(self._lines.popleft())) is not None:
                    return message
            if self._stopped:
                break
            self._news.clear()
            self._watch()
            await self._news.wait()
        await self._finish_calls()
        raise anyio.EndOfStream

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message; if it is no answer, wait until the client has read it.

        Raises:
            anyio.BrokenResourceError: the client closed its end.
        """
        message = item.message
        answers = isinstance(message, JSONRPCResponse | JSONRPCError)
        if answers and message.id in self._answered:
            self._answered.remove(message.id)
            self._news.set()
        else:
            self._write(_encode(message))
        if answers:
            self._settle(message.id)
        elif not self._stopped:
            await self._all_sent.wait()
        if self._broken:
            raise anyio.BrokenResourceError

    def stop(self) -> None:
        """Read no more; `receive` ends once the calls in flight did."""
        if not self._stopped:
            self._stopped_at = self._loop.time()
            self._last_resort.start()
            self._unwatch()
            self._news.set()

    async def finish(self) -> None:
        """Let the last answers out, if the client takes them in time."""
        self.stop()
        with anyio.CancelScope(deadline=self._stopped_at + _ANSWERS_MAY_TAKE, shield=True):
            await self._all_sent.wait()
        self._loop.remove_writer(self._outgoing)
        self._broken = True
        self._last_resort.cancel()

    async def aclose(self) -> None:
        """Do nothing: the SDK closes its read stream before it writes the last answers."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def _stopped(self) -> bool:
        return self._stopped_at < math.inf

    async def _finish_calls(self) -> None:
        with anyio.CancelScope(deadline=self._stopped_at + _CALLS_MAY_TAKE):
            while self._calls:
                self._news.clear()
                await self._news.wait()

    def _watch(self) -> None:
        if not self._watching:
            try:
                self._loop.add_reader(self._incoming, self._read)
                self._watching = True
            except OSError:  # a file or /dev/null can't be watched, but reading it never blocks
                self._loop.call_soon(self._read)

    def _unwatch(self) -> None:
        if self._watching:
            self._loop.remove_reader(self._incoming)
            self._watching = False

    def _read(self) -> None:
        if self._stopped:
            return
        if self._lines:  # the server is behind: the pipe fills up, and the client waits
            self._unwatch()
            return
        try:
            chunk = os.read(self._incoming, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        *complete, rest = chunk.split(b"\n")
        if not chunk:
            complete = [b""]
            self.stop()
        if complete:
            self._lines.append(b"".join((*self._unfinished, complete[0])))
            self._lines.extend(complete[1:])
            self._unfinished.clear()
            self._news.set()
        self._unfinished.append(rest)

    def _accept(self, line: bytes) -> SessionMessage | None:
        if not line or line.isspace():
            return None
        message = _validate(line)
        if message is None:
            line, replaced = repaired(line)
            message = _validate(line)
            if message is None:
                if (refusal := _refusal(line)) is not None:
                    self._write(_encode(refusal))
                return None
            if replaced and isinstance(message, JSONRPCRequest):
                _note(replaced, message)
        if isinstance(message, JSONRPCRequest) and message.method != _STAYS_OPEN:
            self._calls.add(message.id)
            unanswered = partial(self._unanswered, message.id)
            return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=unanswered))
        return SessionMessage(message)

    async def _unanswered(self, request_id: RequestId) -> None:
        self._settle(request_id)

    def _settle(self, request_id: RequestId | None) -> None:
        if request_id is not None:
            self._calls.discard(request_id)
        if self._stopped:
            self._news.set()

    def _write(self, line: bytes) -> None:
        if not self._broken:
            self._unsent += line
            if self._all_sent.is_set():
                self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._outgoing, self._unsent)]
        except BlockingIOError:
            if self._all_sent.is_set():
                self._all_sent.clear()
                self._loop.add_writer(self._outgoing, self._flush)
            return
        except OSError as gone:
            _logger.debug("the client no longer reads: %s", gone)
            self._broken = True
            self._unsent.clear()
            self.stop()
        if not self._all_sent.is_set():
            self._loop.remove_writer(self._outgoing)
            self._all_sent.set()
            self._news.set()


def _validate(line: bytes) -> JSONRPCMessage | None:
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        if isinstance(message, JSONRPCNotification) and b'"id"' in line:
            # a request whose id is null or a fraction passes for a notification
            return None if "id" in json.loads(line) else message
    except ValueError:
        return None
    return message


def repaired(line: bytes) -> tuple[bytes, int]:
    """Make JSON text well-formed UTF-8 without a mark, and count the lone surrogate escapes."""
    replaced = 0

    def mended(escape: re.Match[bytes]) -> bytes:
        nonlocal replaced
        if escape["lone"] is None:
            return escape[0]
        replaced += 1
        return rb"\ufffd"

    well_formed = line.removeprefix(BOM_UTF8).decode("utf-8", "replace").encode()
    text = _ESCAPE.sub(mended, well_formed)
    return text, replaced


def _note(replaced: int, request: JSONRPCRequest) -> None:
    params = request.params = request.params or {}
    meta: object = params.get("_meta")
    if meta is None or isinstance(meta, dict):
        params["_meta"] = {**cast("dict[str, object]", meta or {}), REPLACED_META: replaced}


def _refusal(line: bytes) -> JSONRPCError | None:
    try:
        value: object = json.loads(line.decode())  # bytes could pass for UTF-16
    except (ValueError, RecursionError):
        error = ErrorData(code=PARSE_ERROR, message="Parse error: the line is not readable JSON")
        return JSONRPCError(jsonrpc="2.0", id=None, error=error)
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if "method" not in fields and ("result" in fields or "error" in fields):
        _logger.debug("dropped a response that is not valid JSON-RPC")
        return None
    request_id = fields.get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, int | str):
        request_id = None
    error = ErrorData(
        code=INVALID_REQUEST,
        message="Invalid request: expected one JSON-RPC 2.0 object with a string or integer id, "
        "a method, and params, if any, as an object nested less than 200 deep",
    )
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


def _encode(message: JSONRPCMessage) -> bytes:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except PydanticSerializationError:
        plain = message.model_dump(mode="json", by_alias=True, exclude_unset=True)
        line, _ = repaired(json.dumps(plain, allow_nan=False, separators=(",", ":")).encode())
        return line + b"\n"


def _give_up() -> None:
    _logger.error("a call or the cleanup resisted its cancellation; exiting without it")
    os._exit(1)


def _stop_on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def on_signal(received: signal.Signals) -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if number == received else signal.SIG_IGN)
        stop()

    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)


@contextmanager
def _stopping_with_parent(stop: Callable[[], None]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    parent = os.getppid()
    try:
        pidfd = os.pidfd_open(parent)
    except (AttributeError, OSError):  # not Linux, or the parent is outside this container
        yield
        return

    def on_exit() -> None:
        loop.remove_reader(pidfd)
        stop()

    loop.add_reader(pidfd, on_exit)
    if os.getppid() != parent:
        stop()
    try:
        yield
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
