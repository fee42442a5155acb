"""The site: which address leads to which view or deed, and how it is answered."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from mcp_state.api import State
from mcp_state.errors import BadArgument, OverLimit, StateError
from mcp_state.models import Actor, Caller
from mcp_state.settings import Settings
from mcp_state.store.database import Database
from mcp_state.store.text import clean
from mcp_state.web.deeds import DEEDS, do
from mcp_state.web.guard import Guard
from mcp_state.web.live import Live, error_of
from mcp_state.web.views import VIEWS, look, to_json
from mcp_state.who import Resolver

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]

_PAGE = Path(__file__).parent / "page"
_FILES = {
    "": ("board.html", "text/html"),
    "board.js": ("board.js", "text/javascript"),
    "board.css": ("board.css", "text/css"),
}
_LARGEST_BODY = 64 << 10
_LONGEST_UPLOAD = 10.0
_STATUS = {
    "bad_argument": 400,
    "not_found": 404,
    "project_unknown": 404,
    "expired": 410,
    "over_limit": 413,
    "store_busy": 503,
    "store_damaged": 503,
    "store_newer": 503,
    "store_readonly": 503,
    "disk_full": 507,
}
_REFUSED = 409


class Site:
    """One store, for people, as a site on this machine."""

    def __init__(self, settings: Settings) -> None:
        self.database = Database(
            settings.db, limits=settings.limits, allow_secrets=settings.allow_secrets
        )
        self.live = Live(self.database)
        self._resolver = Resolver(settings)
        self._actor = Actor(settings.agent or "person", "mcp-state", settings.session)

    def guarded(self, token: str, ticket: str, port: int) -> ASGIApp:
        """The application that is served."""
        return Guard(self.app(), token, ticket, port)

    def app(self) -> Starlette:
        """What answers behind the guard."""
        app = Starlette(
            routes=[
                *(
                    Route(f"/{name}", _file(*file), methods=["GET"])
                    for name, file in _FILES.items()
                ),
                *(Route(f"/api/{view}", self._view(view), methods=["GET"]) for view in VIEWS),
                Route("/api/live", self._live, methods=["GET"]),
                *(Route(f"/api/do/{deed}", self._deed(deed), methods=["POST"]) for deed in DEEDS),
            ],
            exception_handlers={HTTPException: _no_such_page},
        )
        app.router.redirect_slashes = False
        return app

    async def close(self) -> None:
        """Let go of the store; who listens is told by the end of the stream."""
        await self.live.close()
        await self.database.aclose()

    def _view(self, view: str) -> Endpoint:
        async def answer(request: Request) -> dict[str, Any]:
            project, asked = _asked(request)
            return await look(await self._state(project), view, asked)

        return _answering(answer)

    def _deed(self, deed: str) -> Endpoint:
        async def answer(request: Request) -> dict[str, Any]:
            project, asked = _asked(request)
            if asked:
                raise BadArgument(f"{deed} takes its arguments in the body", "Send JSON.")
            return await do(await self._state(project), deed, await _body(request))

        return _answering(answer)

    async def _live(self, request: Request) -> Response:
        try:
            project, asked = _asked(request)
            if asked:
                raise BadArgument("live takes only a project", "Leave the rest out.")
            state = await self._state(project)
            if request.method == "HEAD":
                return Response(media_type="text/event-stream")
            stream = self.live.events(state)
            first = await anext(stream)
        except StateError as problem:
            return _error(problem)

        async def events():
            yield first
            async for event in stream:
                yield event

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _state(self, project: str) -> State:
        """The state of a project by its name, else of the one that the site was started for.

        The worktree that the site was started in belongs to that one alone.
        """
        home = self._resolver.caller(self._actor)
        if not project.strip():
            return State(self.database, home)
        named = Caller(clean(project)[0].strip(), "argument", self._actor)
        first = await self.database.read(home, lambda tx: tx.project)
        if first and first == await self.database.read(named, lambda tx: tx.project):
            return State(self.database, home)
        return State(self.database, named)


def _file(name: str, kind: str) -> Endpoint:
    async def serve(request: Request) -> Response:
        content = await asyncio.to_thread((_PAGE / name).read_bytes)
        return Response(content, media_type=kind)

    return serve


def _answering(answer: Callable[[Request], Awaitable[dict[str, Any]]]) -> Endpoint:
    async def respond(request: Request) -> Response:
        try:
            return _json(await answer(request))
        except StateError as problem:
            return _error(problem)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            log.exception("%s %s", request.method, request.url.path)
            told = {
                "code": "internal",
                "fact": "this is a fault of mcp-state; nothing was saved",
                "next_step": "The terminal that runs `mcp-state web` shows what happened.",
            }
            return _json({"error": told}, 500)

    return respond


def _json(value: Mapping[str, Any], status: int = 200) -> Response:
    return Response(to_json(value), status, media_type="application/json")


def _error(problem: StateError) -> Response:
    return _json(error_of(problem), _STATUS.get(problem.code, _REFUSED))


def _asked(request: Request) -> tuple[str, dict[str, str]]:
    """The project that a request names, and its other arguments."""
    asked: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in asked:
            raise BadArgument(f"{clean(name)[0][:60]!r} is given twice", "Give it once.")
        asked[name] = value
    return asked.pop("project", ""), asked


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object that was sent.

    Raises:
        BadArgument: it is none.
        OverLimit: it is longer than any deed needs.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BadArgument(f"the body is {kind[:60] or 'nothing'!r}", "Send application/json.")
    data = b""
    try:
        async with asyncio.timeout(_LONGEST_UPLOAD):
            async for chunk in request.stream():
                data += chunk
                if len(data) > _LARGEST_BODY:
                    raise OverLimit(
                        f"the body is longer than {_LARGEST_BODY:,} bytes", "Shorten it."
                    )
    except TimeoutError:
        raise BadArgument("the body did not arrive in time", "Send it again.") from None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise BadArgument("the body is not JSON", "Send one JSON object.") from None
    if not isinstance(value, dict):
        raise BadArgument("the body is no JSON object", "Send one JSON object.")
    return cast(dict[str, Any], value)


async def _no_such_page(request: Request, problem: Exception) -> Response:
    status = problem.status_code if isinstance(problem, HTTPException) else 404
    headers = problem.headers if isinstance(problem, HTTPException) else None
    what = "This method does nothing here" if status == 405 else "There is nothing at this address"
    return PlainTextResponse(
        f"{what}. The page is at the address that `mcp-state web` printed.\n", status, headers
    )
