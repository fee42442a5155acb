"""The site: which address leads to which view or deed, and how it is answered."""

from __future__ import annotations

import asyncio
import json
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
from mcp_state.live import Live
from mcp_state.models import Actor, Caller
from mcp_state.settings import Settings
from mcp_state.store.database import open_database
from mcp_state.store.text import clean
from mcp_state.times import Clock
from mcp_state.web.deeds import DEEDS, do
from mcp_state.web.guard import COPY, Guard
from mcp_state.web.live import events
from mcp_state.web.views import VIEWS, error_of, list_projects, look, to_json
from mcp_state.who import Resolver

Endpoint = Callable[[Request], Awaitable[Response]]

PAGE = Path(__file__).parent / "page"
FILES = {
    "": ("board.html", "text/html"),
    "board.js": ("board.js", "text/javascript"),
    "board.css": ("board.css", "text/css"),
}
_LARGEST_BODY = 1 << 20
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
_CONFLICT = 409
_EVENTS = "text/event-stream"


class Site:
    """One store, for people, as a site on this machine."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.database = open_database(
            settings.db,
            clock=clock,
            limits=settings.limits,
            allow_secrets=settings.allow_secrets,
            wait=settings.wait,
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
                *(Route(f"/{name}", _file(*file), methods=["GET"]) for name, file in FILES.items()),
                Route("/api/projects", self._projects, methods=["GET"]),
                *(Route(f"/api/{view}", self._view(view), methods=["GET"]) for view in VIEWS),
                Route("/api/live", self._live, methods=["GET"]),
                *(Route(f"/api/do/{deed}", self._deed(deed), methods=["POST"]) for deed in DEEDS),
            ],
            exception_handlers={
                StateError: _refused,
                HTTPException: _nothing_here,
                ClientDisconnect: _nobody_there,
                Exception: _failed,
            },
        )
        app.router.redirect_slashes = False
        return app

    async def close(self) -> None:
        """Let go of the store; who listens is told by the end of the stream."""
        self.live.close()
        await self.database.aclose()

    async def _projects(self, request: Request) -> Response:
        """The same whatever project is shown: those that there are, and what may be done."""
        _, asked = _asked(request)
        _refuse_others("projects", asked)
        found = await list_projects(State(self.database, self._caller("")))
        return _json({**found, "deeds": list(DEEDS)})

    def _view(self, view: str) -> Endpoint:
        async def show(request: Request) -> Response:
            project, asked = _asked(request)
            return _json(await look(await self._state(project), view, asked))

        return show

    def _deed(self, deed: str) -> Endpoint:
        async def carry_out(request: Request) -> Response:
            project, asked = _asked(request)
            _refuse_others(deed, asked)
            return _json(await do(await self._state(project), deed, await _body(request)))

        return carry_out

    async def _live(self, request: Request) -> Response:
        project, asked = _asked(request)
        _refuse_others("live", asked)
        if request.method == "HEAD":
            return Response(media_type=_EVENTS)
        return StreamingResponse(events(self.live, self._caller(project)), media_type=_EVENTS)

    def _caller(self, project: str) -> Caller:
        """For the project of this name, else for the one that the site was started for."""
        if project.strip():
            return Caller(clean(project)[0].strip(), "argument", self._actor)
        return self._resolver.caller(self._actor)

    async def _state(self, project: str) -> State:
        """Its state; what the site was started for comes with its worktree."""
        caller, home = self._caller(project), self._caller("")
        if project.strip() and (found := await self._id(home)) and found == await self._id(caller):
            caller = home
        return State(self.database, caller)

    async def _id(self, caller: Caller) -> int:
        return await self.database.read(caller, lambda tx: tx.project)


def _file(name: str, kind: str) -> Endpoint:
    async def serve(request: Request) -> Response:
        return Response(await asyncio.to_thread((PAGE / name).read_bytes), media_type=kind)

    return serve


def _json(value: Mapping[str, Any], status: int = 200) -> Response:
    return Response(to_json(value), status, media_type="application/json")


def _asked(request: Request) -> tuple[str, dict[str, str]]:
    """The project that a request names, and its other arguments."""
    asked: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in asked:
            raise BadArgument(f"{clean(name)[0][:60]!r} is given twice", "Give it once.")
        asked[name] = value
    return asked.pop("project", ""), asked


def _refuse_others(name: str, asked: Mapping[str, str]) -> None:
    if asked:
        raise BadArgument(
            f"the address of {name} has {clean(next(iter(asked)))[0][:60]!r} in it",
            "It takes a project there, and nothing else.",
        )


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
            async for chunk in request.stream():  # to its end, or the refusal would not arrive
                data = (data + chunk)[: _LARGEST_BODY + 1]
    except TimeoutError:
        raise BadArgument("the body did not arrive in time", "Send it again.") from None
    if len(data) > _LARGEST_BODY:
        raise OverLimit(f"the body is longer than {_LARGEST_BODY:,} bytes", "Shorten it.")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise BadArgument("the body is not JSON", "Send one JSON object.") from None
    if not isinstance(value, dict):
        raise BadArgument("the body is no JSON object", "Send one JSON object.")
    return cast(dict[str, Any], value)


async def _refused(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, StateError)
    return _json(error_of(problem), _STATUS.get(problem.code, _CONFLICT))


async def _nothing_here(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    allowed = (problem.headers or {}).get("Allow")
    what = f"Only {allowed} does something here" if allowed else "There is nothing at this address"
    return PlainTextResponse(f"{what}. {COPY}", problem.status_code, problem.headers)


async def _nobody_there(request: Request, problem: Exception) -> Response:
    return Response(status_code=400)


async def _failed(request: Request, problem: Exception) -> Response:
    """The server logs it."""
    told = {
        "code": "internal",
        "fact": "this is a fault of mcp-state",
        "next_step": "The terminal of `mcp-state web` tells more. Reload before you go on.",
    }
    return _json({"error": told}, 500)
