"""Who may ask, and how much: it stands before everything that the server does over HTTP.

What a proxy says about the client (`Forwarded`, `X-Forwarded-For` and the like) is never read: the
sender could have said it.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp_types import INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_state.errors import StateError, TokenRefused
from mcp_state.http.bounds import Bounds, Rates, Sessions
from mcp_state.http.metrics import TYPE, Metrics
from mcp_state.http.refusals import Refusals, Refused, quoted
from mcp_state.models import Principal
from mcp_state.server import PRINCIPAL
from mcp_state.transport import repaired

ENDPOINT: Final = "/mcp"
_METHODS: Mapping[bytes, Collection[str]] = {
    b"/mcp": ("POST", "GET", "DELETE"),
    b"/healthz": ("GET", "HEAD"),
    b"/readyz": ("GET", "HEAD"),
    b"/metrics": ("GET", "HEAD"),
}
_ONCE = frozenset(
    (
        *(b"authorization", b"content-length", b"content-type", b"expect", b"host"),
        *(b"last-event-id", b"mcp-method", b"mcp-name", b"mcp-protocol-version"),
        *(b"mcp-session-id", b"origin", b"transfer-encoding"),
    )
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE = re.compile(
    rb"(?:[^\\]++|\\(?:u(?![dD][89a-fA-F])|[^u])"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+\\u[dD][89a-fA-F]"
)
"""Text up to a surrogate that is not one of a pair; `repaired` takes five times as long to look."""
_LISTEN = b"subscriptions/listen"
_CLOSED = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))

Authenticate = Callable[[str], Awaitable[Principal]]
"""Says whom a token stands for; raises `TokenRefused`, or another `StateError` without a store."""


class Guard:
    """Lets through what may pass, and says of everything else who was refused, and why.

    Args:
        app: what answers at `/mcp`.
        authenticate: looks a token up.
        ready: raises `StateError` while the store cannot be read.
        hosts: the names by which clients may call this server, in lower case.
        needs_token: whether a request without a token is refused.
        bounds: what is too much.
        metrics: what is counted.
        refusals: where refusals are noted.
        now: seconds that only grow.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticate: Authenticate,
        ready: Callable[[], Awaitable[None]],
        *,
        hosts: Collection[str],
        needs_token: bool,
        bounds: Bounds,
        metrics: Metrics,
        refusals: Refusals,
        now: Callable[[], float],
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._ready = ready
        self._hosts = frozenset(hosts)
        self._needs_token = needs_token
        self._bounds = bounds
        self._metrics = metrics
        self._refusals = refusals
        self._rates = Rates(bounds, now)
        self.sessions = Sessions(bounds, now)
        self._held = 0
        self._calls: set[anyio.CancelScope] = set()
        self._streams: set[anyio.CancelScope] = set()
        metrics.gauges = {
            "sessions": lambda: len(self.sessions),
            "streams": lambda: len(self._streams),
            "requests_in_flight": lambda: len(self._calls),
        }

    def end_streams(self) -> None:
        """Let go of those who only listen: the server stops."""
        for stream in self._streams:
            stream.cancel()

    def end_calls(self) -> None:
        """Give up what is still not answered: the server has waited for it."""
        for call in self._calls:
            call.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        assert scope["type"] == "http"  # nothing else is served, so nothing else gets past
        reply = _Reply(send)
        who = _address(scope)
        try:
            try:
                self._check_shape(scope)
                principal = await self._principal(scope)
                if principal.token:
                    who = f"token {principal.token} ({quoted(principal.agent)}) from {who}"
                await self._pass(scope, receive, reply, principal)
            except StateError as problem:  # of the store, when a token was to be looked up in it
                raise Refused(503, "store", "The store can't be read now.", str(problem)) from None
        except Refused as refused:
            self._refusals.tell(refused.reason, who, _noted(scope, refused))
            if not reply.begun:
                await self._drain(scope, receive)
                await _refusal(refused)(scope, receive, reply)

    # Who

    def _check_shape(self, scope: Scope) -> None:
        """Refuse what no client of ours sends, before anything is looked up."""
        if scope["http_version"] != "1.1":
            raise Refused(505, "version", "Only HTTP/1.1 here.")
        headers = scope["headers"]
        if len(headers) > self._bounds.headers:
            raise Refused(431, "headers", f"More than {self._bounds.headers} headers.")
        if sum(len(name) + len(value) for name, value in headers) > self._bounds.head:
            raise Refused(431, "headers", f"More than {self._bounds.head:,} bytes of headers.")
        counts = Counter(name for name, _ in headers)
        if twice := sorted(name for name in _ONCE if counts[name] > 1):
            name = twice[0].decode()
            raise Refused(400, "duplicate_header", f"The header {name} is there twice.")
        if counts[b"content-length"] and counts[b"transfer-encoding"]:
            raise Refused(400, "smuggling", "Both Content-Length and Transfer-Encoding.")
        allowed = _METHODS.get(scope["raw_path"])
        if allowed is None or scope["query_string"]:
            raise Refused(404, "path", f"There is nothing at this address; MCP is at {ENDPOINT}.")
        if scope["method"] not in allowed:
            raise Refused(405, "method", f"Only {', '.join(allowed)} here.")
        host = _header(scope, b"host")
        if _name_of(host) not in self._hosts:
            told = "This server is not known by that name (Host)."
            raise Refused(421, "host", told, f"Host {quoted(host)}")
        origin = _header(scope, b"origin")
        if origin and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            raise Refused(403, "origin", "Pages of other sites can't call this.", quoted(origin))

    async def _principal(self, scope: Scope) -> Principal:
        """For whom the request is.

        Raises:
            Refused: it has no token where it needs one, or a wrong one.
            StateError: the store cannot be read.
        """
        given = _header(scope, b"authorization")
        if not given:
            open_ = scope["raw_path"] in (b"/healthz", b"/readyz") or not self._needs_token
            if open_:
                return Principal()
            raise Refused(401, "no_token", "This server needs a token (Authorization: Bearer …).")
        kind, _, token = given.partition(" ")
        if kind.lower() != "bearer":
            raise Refused(401, "no_token", "The token goes into Authorization: Bearer ….")
        try:
            return await self._authenticate(token.strip(" "))
        except TokenRefused as problem:
            whose = f"token {problem.token} of {quoted(problem.agent)}" if problem.token else ""
            told = f"{problem.fact[:1].upper()}{problem.fact[1:]}."
            raise Refused(401, problem.reason, told, whose) from None

    # What

    async def _pass(
        self, scope: Scope, receive: Receive, reply: _Reply, principal: Principal
    ) -> None:
        path = scope["raw_path"]
        if path == b"/healthz":
            await PlainTextResponse("ok\n")(scope, receive, reply)
        elif path == b"/readyz":
            await (await self._readiness())(scope, receive, reply)
        elif path == b"/metrics":
            if principal.projects is not None:
                raise Refused(403, "metrics", "Only a token for every project may see this.")
            await Response(self._metrics.text(), media_type=TYPE)(scope, receive, reply)
        else:
            if wait := self._rates.take(principal.token) if principal.token else 0.0:
                raise Refused(429, "rate", "Too many requests with this token.", retry=wait)
            await self._serve(scope, receive, reply, principal)

    async def _readiness(self) -> Response:
        try:
            await self._ready()
        except StateError as problem:
            return PlainTextResponse(f"not ready: {problem.code}\n", 503)
        return PlainTextResponse("ready\n")

    async def _serve(
        self, scope: Scope, receive: Receive, reply: _Reply, principal: Principal
    ) -> None:
        scope = {**scope, PRINCIPAL: principal, **_owner(principal)}
        session = _header(scope, b"mcp-session-id")
        is_modern = _header(scope, b"mcp-protocol-version") not in ("", *_OLDER)
        if scope["method"] == "GET" and not is_modern:
            async with self._session(session):
                await self._stream(scope, receive, reply)
            return
        if scope["method"] == "GET":
            raise Refused(405, "method", "Only POST in this generation of the protocol.")
        if is_modern and _header(scope, b"mcp-method").encode() == _LISTEN:
            async with self._body(scope, receive) as receive:
                self._check_room(principal)
                stream = f"stream {id(scope)}"
                self.sessions.begin(stream, principal.token)
                try:
                    async with self._session(stream):
                        await self._stream(scope, receive, reply)
                finally:
                    self.sessions.end(stream)
            return
        if not session and not is_modern:
            self._check_room(principal)
        if len(self._calls) >= self._bounds.in_flight:
            raise Refused(503, "in_flight", "The server is busy.", retry=1.0)
        with _within(self._calls) as call:
            async with self._body(scope, receive) as receive, self._session(session):
                await self._app(scope, receive, reply)
                self._keep_count(scope, reply, session, principal)
        if call.cancelled_caught:
            raise Refused(503, "stopping", "The server stops, and this was not done in time.")

    def _check_room(self, principal: Principal) -> None:
        if not self.sessions.has_room(principal.token):
            raise Refused(503, "sessions", "There are too many open sessions.", retry=30.0)

    def _keep_count(self, scope: Scope, reply: _Reply, session: str, principal: Principal) -> None:
        """Know of the sessions that the SDK has."""
        if session:
            if reply.status == 404 or (scope["method"] == "DELETE" and reply.status < 400):
                self.sessions.end(session)
        elif (begun := reply.header(b"mcp-session-id")) and reply.status < 400:
            self.sessions.begin(begun, principal.token)

    @asynccontextmanager
    async def _session(self, session: str) -> AsyncGenerator[None]:
        self.sessions.enter(session)
        try:
            yield
        finally:
            self.sessions.leave(session)

    async def _stream(self, scope: Scope, receive: Receive, reply: _Reply) -> None:
        """Answer with a stream that lasts until the client leaves, or the server stops."""
        with _within(self._streams) as stream:
            await self._app(scope, receive, reply)
        if stream.cancelled_caught:
            await reply.finish()

    # Bodies

    @asynccontextmanager
    async def _body(self, scope: Scope, receive: Receive) -> AsyncGenerator[Receive]:
        """The whole body, which was read in time, to be received at once."""
        declared = _header(scope, b"content-length")
        if declared and int(declared) > self._bounds.body:
            raise self._too_long()
        kept = bytearray()
        try:
            try:
                async with asyncio.timeout(self._bounds.body_time):
                    await self._receive(receive, kept)
            except TimeoutError:
                raise Refused(408, "slow_body", "The body did not arrive in time.") from None
            yield _replaying(_readable(bytes(kept)), receive)
        finally:
            self._held -= len(kept)

    async def _receive(self, receive: Receive, kept: bytearray) -> None:
        more = True
        while more:
            async with asyncio.timeout(self._bounds.silence):
                message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "left", "The client left before its request was whole.")
            part, more = message.get("body", b""), message.get("more_body", False)
            if len(kept) + len(part) > self._bounds.body:
                raise self._too_long()
            if self._held + len(part) > self._bounds.bodies:
                raise Refused(503, "bodies", "The server is busy.", retry=1.0)
            kept += part
            self._held += len(part)

    def _too_long(self) -> Refused:
        return Refused(413, "body", f"The body is longer than {self._bounds.body:,} bytes.")

    async def _drain(self, scope: Scope, receive: Receive) -> None:
        """Let a refused client finish sending for a moment, or it would not read the answer."""
        if _header(scope, b"expect"):
            return
        try:
            async with asyncio.timeout(self._bounds.drain):
                more = True
                while more:
                    message = await receive()
                    more = message.get("more_body", False)
        except TimeoutError:
            pass


class _Reply:
    """The answer on its way: what it began with, and the headers that each one has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._over = False

    @property
    def begun(self) -> bool:
        """Whether the client may have seen something of it."""
        return self.status > 0

    async def __call__(self, message: Message) -> None:
        """Send a part of it."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = list(message.get("headers", ()))
            own = {name.lower() for name, _ in self._headers}
            more = [header for header in _CLOSED if header[0] not in own]
            message = {**message, "headers": [*self._headers, *more]}
        else:
            self._over = not message.get("more_body", False)
        await self._send(message)

    def header(self, name: bytes) -> str:
        """A header of it, empty if it has none."""
        return next((v.decode("latin-1") for k, v in self._headers if k.lower() == name), "")

    async def finish(self) -> None:
        """End what was cut short."""
        if self.begun and not self._over:
            await self({"type": "http.response.body", "body": b"", "more_body": False})


@contextmanager
def _within(scopes: set[anyio.CancelScope]) -> Generator[anyio.CancelScope]:
    """Let what happens inside be ended from outside, as one of these."""
    with anyio.CancelScope() as scope:
        scopes.add(scope)
        try:
            yield scope
        finally:
            scopes.discard(scope)


_OLDER = HANDSHAKE_PROTOCOL_VERSIONS


def _owner(principal: Principal) -> dict[str, AuthenticatedUser]:
    """What the SDK keeps with a session, so that no other token goes on with it."""
    if not principal.token:
        return {}
    token = AccessToken(token="", client_id=principal.token, scopes=[])
    return {"user": AuthenticatedUser(token)}


def _readable(body: bytes) -> bytes:
    """A body that the SDK can read: what is no text in it becomes U+FFFD, as over stdio."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return repaired(body)[0]
    return repaired(body)[0] if _SURROGATE.search(body) and _LONE.match(body) else body


def _replaying(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _header(scope: Scope, name: bytes) -> str:
    """The value of a header that is there at most once; empty if it is not there."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, "0"
    return name.lower() if port.isascii() and port.isdigit() else ""


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "?"


def _noted(scope: Scope, refused: Refused) -> str:
    """What the log says of it, and of what was asked for."""
    asked = f"{quoted(scope['method'])} {quoted(scope['raw_path'])}"
    return f"{refused.told} {asked}" + (f" [{refused.noted}]" if refused.noted else "")


def _refusal(refused: Refused) -> Response:
    """The answer, in the shape of the protocol; the connection ends with it."""
    headers = {"connection": "close"}
    if refused.status == 401:
        headers["www-authenticate"] = 'Bearer realm="mcp-state"'
    if refused.retry:
        headers["retry-after"] = str(math.ceil(refused.retry))
    error = {"code": INVALID_REQUEST, "message": refused.told}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    return Response(body, refused.status, headers, "application/json")
