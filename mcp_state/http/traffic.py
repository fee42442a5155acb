"""How much is done for whom at the same time: bodies, calls, streams and sessions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Receive, Scope

from mcp_state.errors import StateError, TokenRefused
from mcp_state.http.bounds import Bounds, Rates, Sessions
from mcp_state.http.messages import Reply, header, replaying
from mcp_state.http.refusals import Refused
from mcp_state.models import Principal
from mcp_state.server import PRINCIPAL
from mcp_state.transport import repaired

_LISTEN: Final = "subscriptions/listen"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE = re.compile(
    rb"(?:[^\\]++|\\(?:u(?![dD][89a-fA-F])|[^u])"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+\\u[dD][89a-fA-F]"
)
"""Text up to a surrogate that is not one of a pair; `repaired` takes five times as long to look."""

Recheck = Callable[[], Awaitable[Principal]]
"""Looks the token of a request up again; raises `TokenRefused` when it is over."""


class Traffic:
    """What reaches the SDK, within bounds.

    Args:
        app: the SDK's.
        bounds: what is too much.
        now: seconds that only grow.
    """

    def __init__(self, app: ASGIApp, bounds: Bounds, now: Callable[[], float]) -> None:
        self._app = app
        self._bounds = bounds
        self._rates = Rates(bounds, now)
        self._held = 0
        self._uploads: dict[anyio.CancelScope, str] = {}
        self._calls: dict[anyio.CancelScope, str] = {}
        self._streams: dict[anyio.CancelScope, str] = {}
        self._sessions = Sessions(bounds, now)
        self.gauges: dict[str, Callable[[], float]] = {
            "sessions": lambda: len(self._sessions),
            "streams": lambda: len(self._streams),
            "uploads": lambda: len(self._uploads),
            "requests_in_flight": lambda: len(self._calls),
        }

    def wind_down(self) -> None:
        """The server stops: let go of who only listens, or is still sending."""
        for one in (*self._streams, *self._uploads):
            one.cancel()

    def give_up(self) -> None:
        """The server has waited long enough for the calls in flight."""
        for call in self._calls:
            call.cancel()

    async def serve(
        self, scope: Scope, receive: Receive, reply: Reply, principal: Principal, recheck: Recheck
    ) -> None:
        """Answer a request that may pass.

        Raises:
            Refused: it is too much, or too slow.
        """
        if principal.token and (wait := self._rates.take(principal.token)):
            raise Refused(429, "rate", "Too many requests with this token.", retry=wait)
        scope = {**scope, PRINCIPAL: principal, **_owner(principal)}
        session = header(scope, b"mcp-session-id")
        is_modern = header(scope, b"mcp-protocol-version") not in ("", *HANDSHAKE_PROTOCOL_VERSIONS)
        async with self._body(scope, receive, principal) as receive:
            if is_modern and header(scope, b"mcp-method") == _LISTEN:
                session = f"stream {id(scope)}"
                self._check_room(principal)
                self._sessions.begin(session, principal.token)
                try:
                    await self._stream(scope, receive, reply, session, principal, recheck)
                finally:
                    self._sessions.end(session, principal.token)
            elif scope["method"] == "GET":
                await self._stream(scope, receive, reply, session, principal, recheck)
            else:
                if not session and not is_modern:
                    self._check_room(principal)
                await self._call(scope, receive, reply, session, principal)

    async def _call(
        self, scope: Scope, receive: Receive, reply: Reply, session: str, principal: Principal
    ) -> None:
        token, bounds = principal.token, self._bounds
        own = sum(one == token for one in self._calls.values())
        if len(self._calls) >= bounds.in_flight or (token and own >= bounds.in_flight_of_one):
            raise Refused(503, "in_flight", "Too many calls at the same time.", retry=1.0)
        with _within(self._calls, token) as call, self._sessions.used(session, token):
            await self._app(scope, receive, reply)
            self._keep_count(scope, reply, session, token)
        if call.cancelled_caught:
            raise Refused(503, "stopping", "The server stops, and this was not done in time.")

    async def _stream(
        self,
        scope: Scope,
        receive: Receive,
        reply: Reply,
        session: str,
        principal: Principal,
        recheck: Recheck,
    ) -> None:
        """Answer until the client leaves, its token is over, or the server stops."""
        token = principal.token
        with _within(self._streams, token) as stream, self._sessions.used(session, token):
            watch = asyncio.create_task(self._watch(recheck, stream)) if token else None
            try:
                await self._app(scope, receive, reply)
            finally:
                if watch is not None:
                    watch.cancel()
        if stream.cancelled_caught:
            await reply.finish()

    async def _watch(self, recheck: Recheck, stream: anyio.CancelScope) -> None:
        """A stream asks for nothing, so that its token has to be looked at now and again."""
        while True:
            await asyncio.sleep(self._bounds.recheck)
            try:
                await recheck()
            except TokenRefused:
                stream.cancel()
                return
            except StateError:  # of the store, which may be there again
                continue

    def _check_room(self, principal: Principal) -> None:
        if not self._sessions.has_room(principal.token):
            raise Refused(503, "sessions", "There are too many open sessions.", retry=30.0)

    def _keep_count(self, scope: Scope, reply: Reply, session: str, token: str) -> None:
        """Know of the sessions that the SDK has."""
        if session:
            if reply.status == 404 or (scope["method"] == "DELETE" and reply.status < 400):
                self._sessions.end(session, token)
        elif (begun := reply.header(b"mcp-session-id")) and reply.status < 400:
            self._sessions.begin(begun, token)

    # Bodies

    @asynccontextmanager
    async def _body(
        self, scope: Scope, receive: Receive, principal: Principal
    ) -> AsyncGenerator[Receive]:
        """The whole body, which was read in time, to be received at once."""
        declared = header(scope, b"content-length")
        if declared and int(declared) > self._bounds.body:
            raise self._too_long()
        kept = bytearray()
        try:
            with _within(self._uploads, principal.token) as upload:
                try:
                    async with asyncio.timeout(self._bounds.body_time):
                        await self._receive(receive, kept)
                except TimeoutError:
                    raise Refused(408, "slow_body", "The body did not come in time.") from None
            if upload.cancelled_caught:
                raise Refused(503, "stopping", "The server stops.")
            yield replaying(_readable(bytes(kept)), receive)
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


@contextmanager
def _within(scopes: dict[anyio.CancelScope, str], token: str) -> Generator[anyio.CancelScope]:
    """Let what happens inside be counted for a token, and be ended from outside."""
    with anyio.CancelScope() as scope:
        scopes[scope] = token
        try:
            yield scope
        finally:
            del scopes[scope]


def _owner(principal: Principal) -> dict[str, AuthenticatedUser]:
    """What the SDK keeps with a session, so that no other token goes on with it."""
    if not principal.token:
        return {}
    return {"user": AuthenticatedUser(AccessToken(token="", client_id=principal.token, scopes=[]))}


def _readable(body: bytes) -> bytes:
    """A body that the SDK can read: what is no text in it becomes U+FFFD, as over stdio."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return repaired(body)[0]
    return repaired(body)[0] if _SURROGATE.search(body) and _LONE.match(body) else body
