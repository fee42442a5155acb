"""Who may ask: this machine, with the token, from no other site. Stands before everything else.

The token stands in the path, not in a cookie, so that no other page can use it without knowing it.
Host and Origin are compared as well, against a name that is made to lead here, and against a page
that found the token out.
"""

from __future__ import annotations

import secrets

from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COPY = "Copy the whole address that `mcp-state web` printed, and open it on the same machine.\n"
_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (b"cache-control", b"no-store"),
    (b"cross-origin-embedder-policy", b"require-corp"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class Guard:
    """Lets through what has the token, and puts the headers of a closed page on every answer.

    Args:
        app: what answers; its paths begin after the token.
        token: the first part of every path.
        ticket: a path that leads to the page once, for opening the browser: others may see the
            arguments of its process.
        port: where the site is served on 127.0.0.1.
    """

    def __init__(self, app: ASGIApp, token: str, ticket: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        self._ticket = ticket.encode()
        names = (b"127.0.0.1", b"localhost")
        self._hosts = {b"%b:%d" % (name, port) for name in names}
        if port == 80:  # which browsers leave out
            self._hosts.update(names)
        self._names = f"127.0.0.1:{port} and localhost:{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it in plain text."""
        assert scope["type"] == "http"  # nothing else is served, so nothing else gets past

        async def send_closed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        refusal = self._refuse_sender(scope) or self._refuse_path(scope)
        if refusal is not None:
            await refusal(scope, receive, send_closed)
            return
        path = scope["raw_path"].partition(b"/")[2].partition(b"/")[2]
        within = {**scope, "path": f"/{path.decode('latin-1')}", "root_path": ""}
        await self._app(within, receive, send_closed)

    def _refuse_sender(self, scope: Scope) -> Response | None:
        host = _header(scope, b"host")
        if host not in self._hosts:
            return _refused(f"This page answers only to {self._names}. ")
        origin, site = _header(scope, b"origin"), _header(scope, b"sec-fetch-site")
        if origin != b"http://" + host and (origin is not None or scope["method"] == "POST"):
            return _refused("This request comes from another page. ")
        opens = (_header(scope, b"sec-fetch-mode"), _header(scope, b"sec-fetch-dest"))
        is_own = site in (None, b"same-origin", b"none")
        if not is_own and (scope["method"] != "GET" or opens != (b"navigate", b"document")):
            return _refused("This request comes from another page. ")
        return None

    def _refuse_path(self, scope: Scope) -> Response | None:
        first, slash, _ = scope["raw_path"].partition(b"/")[2].partition(b"/")
        opens = self._ticket and scope["method"] == "GET"
        if opens and secrets.compare_digest(first, self._ticket):
            self._ticket = b""
            return RedirectResponse(f"/{self._token.decode()}/", 303)
        if not secrets.compare_digest(first, self._token):
            return _refused(
                "There is nothing at this address: its key is another one, or an earlier one. "
            )
        return None if slash else RedirectResponse(f"/{self._token.decode()}/", 303)


def _header(scope: Scope, name: bytes) -> bytes | None:
    """The value of a header, all of them if there are several; None if it is not there."""
    found = [value for key, value in scope["headers"] if key == name]
    return b", ".join(found) if found else None


def _refused(why: str) -> Response:
    return PlainTextResponse(why + COPY, 403)
