"""Who may ask: it stands before everything that the server does over HTTP.

What a proxy says about the client (`Forwarded`, `X-Forwarded-For` and the like) is never read: the
sender could have said it.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from mcp_types import INVALID_REQUEST
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_state.errors import StateError, TokenRefused
from mcp_state.http.bounds import Bounds
from mcp_state.http.messages import Incoming, Reply, header
from mcp_state.http.metrics import TYPE, Metrics
from mcp_state.http.refusals import Refusals, Refused, quoted
from mcp_state.http.traffic import Traffic
from mcp_state.models import Principal

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

Authenticate = Callable[[str], Awaitable[Principal]]
"""Says whom a token stands for; raises `TokenRefused`, or another `StateError` without a store."""


class Guard:
    """Lets through what may pass, and says of everything else who was refused, and why.

    Args:
        traffic: what answers at `/mcp`.
        authenticate: looks a token up.
        ready: raises `StateError` while the store cannot be read.
        hosts: the names by which clients may call this server, in lower case.
        needs_token: whether a request without a token is refused.
        bounds: what is too much.
        metrics: what is counted.
        refusals: where refusals are noted.
    """

    def __init__(
        self,
        traffic: Traffic,
        authenticate: Authenticate,
        ready: Callable[[], Awaitable[None]],
        *,
        hosts: Collection[str],
        needs_token: bool,
        bounds: Bounds,
        metrics: Metrics,
        refusals: Refusals,
    ) -> None:
        self._traffic = traffic
        self._authenticate = authenticate
        self._ready = ready
        self._hosts = frozenset(hosts)
        self._needs_token = needs_token
        self._bounds = bounds
        self._metrics = metrics
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        assert scope["type"] == "http"  # nothing else is served, so nothing else gets past
        incoming, reply = Incoming(receive), Reply(send)
        who = scope["client"][0] if scope.get("client") else "?"
        try:
            self._check_shape(scope)
            token, principal = await self._principal(scope)
            if principal.token:
                who = f"token {principal.token} ({quoted(principal.agent)}) from {who}"
            await self._pass(scope, incoming, reply, principal, token)
        except Refused as refused:
            self._refusals.tell(refused.reason, who, _noted(scope, refused))
            if not reply.begun:
                await self._drain(scope, incoming)
                await _refusal(refused)(scope, incoming, reply)
        else:
            if reply.status >= 400 and scope["raw_path"] == b"/mcp":
                why = f"answered {reply.status} to {_asked(scope)}"
                self._refusals.tell("session" if reply.status == 404 else "protocol", who, why)

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
        host = header(scope, b"host")
        name = _name_of(host)
        if not name or name not in self._hosts:
            told = "This server is not known by that name (Host)."
            raise Refused(421, "host", told, f"Host {quoted(host)}")
        origin = header(scope, b"origin")
        if origin and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            raise Refused(403, "origin", "Pages of other sites can't call this.", quoted(origin))

    async def _principal(self, scope: Scope) -> tuple[str, Principal]:
        """The token of a request, and for whom that is; both empty where none is needed.

        Raises:
            Refused: it has no token where it needs one, or a wrong one, or can't be looked up.
        """
        given = header(scope, b"authorization")
        if not given:
            if scope["raw_path"] in (b"/healthz", b"/readyz") or not self._needs_token:
                return "", Principal()
            raise Refused(401, "no_token", "This server needs a token (Authorization: Bearer …).")
        kind, _, token = given.partition(" ")
        token = token.strip(" ")
        if kind.lower() != "bearer":
            raise Refused(401, "no_token", "The token goes into Authorization: Bearer ….")
        try:
            return token, await self._authenticate(token)
        except TokenRefused as problem:
            whose = f"token {problem.token} of {quoted(problem.agent)}" if problem.token else ""
            told = f"{problem.fact[:1].upper()}{problem.fact[1:]}."
            raise Refused(401, problem.reason, told, whose) from None
        except StateError as problem:
            told = "The store can't be read now."
            raise Refused(503, "store", told, quoted(str(problem)), retry=5.0) from None

    # What

    async def _pass(
        self, scope: Scope, receive: Receive, reply: Reply, principal: Principal, token: str
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
            recheck = functools.partial(self._authenticate, token)
            await self._traffic.serve(scope, receive, reply, principal, recheck)

    async def _readiness(self) -> Response:
        try:
            await self._ready()
        except StateError as problem:
            return PlainTextResponse(f"not ready: {problem.code}\n", 503)
        return PlainTextResponse("ready\n")

    async def _drain(self, scope: Scope, incoming: Incoming) -> None:
        """Let a refused client finish sending for a moment, or it would not read the answer."""
        if header(scope, b"expect"):
            return
        try:
            async with asyncio.timeout(self._bounds.drain):
                while not incoming.whole:
                    await incoming()
        except TimeoutError:
            pass


def _name_of(host: str) -> str:
    """The name in a Host header, without its port; empty if it is none."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, "0"
    return name.lower() if port.isascii() and port.isdigit() else ""


def _asked(scope: Scope) -> str:
    return f"{quoted(scope['method'])} {quoted(scope['raw_path'])}"


def _noted(scope: Scope, refused: Refused) -> str:
    """What the log says of it, and of what was asked for."""
    return f"{refused.told} {_asked(scope)}" + (f" [{refused.noted}]" if refused.noted else "")


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
