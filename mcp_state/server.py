"""The MCP server: who calls for which project, one tool after the other, and how answers leave."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from opentelemetry import trace
from pydantic import ValidationError

import mcp_state
from mcp_state import apps, render, toolset
from mcp_state.api import State
from mcp_state.errors import BadArgument, ProjectUnknown, ReadonlyToolset, StateError
from mcp_state.live import Live
from mcp_state.models import Actor, Caller, Packet, Principal, Totals
from mcp_state.plain import plain
from mcp_state.settings import Settings
from mcp_state.store.database import Database, open_database
from mcp_state.store.text import clean
from mcp_state.subscriptions import BLOCK, Subscriptions, key_of, no_resource
from mcp_state.times import Clock
from mcp_state.tools.arguments import Bound, bind, named_project
from mcp_state.tools.spec import Ctx, Outcome, Spec, View
from mcp_state.transport import REPLACED_META
from mcp_state.who import Resolver, short_session

log = logging.getLogger(__name__)

NAME = "mcp-state"
CODEX_META = "codex/sandbox-state-meta"
PRINCIPAL: Final = "mcp_state.principal"
"""Key of the `Principal` in the scope of a request over HTTP."""
_SESSION_HEADER = "mcp-session-id"
_ROOTS_SECONDS = 2.0
_TRACE_SECONDS = 0.5

Request = ServerRequestContext[Any]
Watch = Callable[[str, str, float], None]
"""Is told of each call of a tool: its name, its outcome (`ok` or a code), and its seconds."""


class StateServer(Server[Any]):
    """A low-level server that advertises, in both protocol generations, what Codex looks for."""

    def get_capabilities(self, *args: Any, **kwargs: Any) -> types.ServerCapabilities:
        """The capabilities, with the one that makes Codex send its directory with each call."""
        found = super().get_capabilities(*args, **kwargs)
        for listed in (found.tools, found.prompts, found.resources):
            if listed is not None:
                listed.list_changed = False  # whoever listens, no list ever changes
        return found.model_copy(update={"experimental": {CODEX_META: {}}})


def create_server(
    settings: Settings,
    clock: Clock | None = None,
    *,
    database: Database | None = None,
    watch: Watch | None = None,
) -> StateServer:
    """A server over one store, not yet running; the store is opened by the first call.

    Args:
        settings: what it is started with.
        clock: where time comes from.
        database: the store, where it serves many clients over HTTP, each with a `Principal`; it
            is closed when the server ends.
        watch: is told of each call.

    Raises:
        BadArgument: the toolset is unknown or wrong.
    """
    app = _App(settings, clock or Clock(), database, watch)

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await app.aclose()

    server = StateServer(
        NAME,
        version=mcp_state.__version__,
        title="Durable task state",
        instructions=app.toolset.instructions,
        lifespan=lifespan,
        on_list_tools=app.list_tools,
        on_call_tool=app.call_tool,
        on_list_resources=app.list_resources,
        on_list_resource_templates=app.list_resource_templates,
        on_read_resource=app.read_resource,
        on_subscribe_resource=app.subscriptions.subscribe,
        on_unsubscribe_resource=app.subscriptions.unsubscribe,
        on_subscriptions_listen=app.subscriptions.listen,
        on_list_prompts=app.list_prompts,
        on_get_prompt=app.get_prompt,
        get_tool_input_schema=_no_schema,
    )
    server.extensions[apps.EXTENSION_ID] = {}
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        server.middleware.clear()  # nobody is there who would take the SDK's spans
    if database is not None:
        server.middleware.append(app.instruct)
    server.add_notification_handler(
        "notifications/roots/list_changed", types.NotificationParams, app.forget_root
    )
    return server


class _Offer:
    """A toolset, as one client or all of them are offered it."""

    def __init__(self, offered: toolset.Toolset) -> None:
        self.toolset = offered
        self.tools = {spec.name: spec for spec in offered.tools}


class _App:
    """The handlers of one server."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        database: Database | None,
        watch: Watch | None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.toolset = toolset.load(
            settings.toolset, settings.tools, settings.exclude, read_only=settings.read_only
        )
        self.database = database or open_store_of(settings, self.toolset, clock)
        self._watch = watch
        self._resolver = Resolver(settings)
        self._session = settings.session or clock.new_id("s-")
        self._offers = {"": _Offer(self.toolset)}
        self._roots: str | None = None
        self._traces: set[asyncio.Task[None]] = set()
        self.subscriptions = Subscriptions(Live(self.database), lambda r: self._caller(r, {}))

    async def aclose(self) -> None:
        """Close the store, after what is still to be written to it."""
        try:
            with anyio.move_on_after(_TRACE_SECONDS):
                await asyncio.gather(*self._traces, return_exceptions=True)
        finally:
            for task in self._traces:
                task.cancel()
            await self.database.aclose()

    # Tools

    async def list_tools(
        self, request: Request, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """The tools of the toolset."""
        tools = self._offer(request).tools.values()
        return types.ListToolsResult(
            tools=[published(spec, self.settings.structured) for spec in tools]
        )

    def _offer(self, request: Request) -> _Offer:
        """The server's toolset, or what the token of the request leaves of it."""
        name = principal.toolset if (principal := _principal(request)) else ""
        if name not in self._offers:
            self._offers[name] = _Offer(toolset.narrowed(self.toolset, name))
        return self._offers[name]

    async def instruct(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        """Say at the beginning of a connection what the toolset of its token says."""
        result = await call_next(ctx)
        if ctx.method in _BEGINNINGS and isinstance(result, dict):
            result["instructions"] = self._offer(ctx).toolset.instructions
        return result

    async def call_tool(
        self, request: Request, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Run a tool; every failure is an answer, never a protocol error."""
        began = time.perf_counter()
        result, outcome = await self._call(request, params)
        if self._watch is not None:
            self._watch(params.name, outcome, time.perf_counter() - began)
        return result

    async def _call(
        self, request: Request, params: types.CallToolRequestParams
    ) -> tuple[types.CallToolResult, str]:
        """The answer, and `ok` or the code of the refusal."""
        caller: Caller | None = None
        try:
            caller = await self._caller(request, params.arguments or {})
            offer = self._offer(request)
            spec = self._listed(params.name, offer)
            bound = bind(spec.name, spec.parameters, params.arguments or {})
            state = State(self.database, caller)
            outcome = await self._run(spec, bound, state, offer)
            result = await self._answered(outcome, caller, bound.replaced + _replaced(request))
            if apps.client_supports_apps(request):
                result.meta = await apps.meta(State(self.database, caller), spec.name, bound.values)
            return result, "ok"
        except StateError as problem:
            _log_refusal(request, problem)
            return await self._failed(str(problem), caller), problem.code
        except Exception:
            log.exception("tool %r raised", clean(params.name)[0])
            answer = await self._failed(
                "internal: the server met a fault of its own; not saved. Its traceback is in the "
                "server's log (stderr); `mcp-state doctor` checks the store.",
                caller,
            )
            return answer, "internal"

    def _listed(self, name: str, offer: _Offer) -> Spec:
        spec = offer.tools.get(name)
        if spec is not None:
            return spec
        known = toolset.find(name)
        if known is None:
            raise BadArgument(
                f"there is no tool {clean(name)[0][:60]!r}",
                f"{toolset.nearest(name)} Tools here are {', '.join(offer.tools)}.".strip(),
            )
        if known.writes and offer.toolset.read_only:
            who = "server" if self.toolset.read_only else "token"
            raise ReadonlyToolset(
                f"{name} writes, and this {who} only reads",
                f"Nothing was changed. A {who} with --toolset {toolset.sets_with(name)[-1]} has "
                "it.",
            )
        through = ' Or call state_op(op="' + name + '").' if "state_op" in offer.tools else ""
        raise BadArgument(
            f"{name} is not in the toolset {offer.toolset.name!r}",
            f"It is in: {', '.join(toolset.sets_with(name))} (--toolset).{through}",
        )

    async def _run(self, spec: Spec, bound: Bound, state: State, offer: _Offer) -> Outcome:
        if not state.caller.project and not spec.writes:
            packet = await state.orient()
            return Outcome(packet, packet.text)
        run = functools.partial(self._run_unlisted, state, offer)
        ctx = Ctx(state, run, functools.partial(_unlisted, offer))
        try:
            outcome = await self._called(spec, bound, ctx)
        except StateError as problem:
            self._trace(spec, bound, state, f"error: {problem}")
            raise
        self._trace(spec, bound, state, outcome.text)
        return outcome

    async def _called(self, spec: Spec, bound: Bound, ctx: Ctx) -> Outcome:
        state = ctx.state
        result = await spec.call(ctx, **bound.values)
        view = View(self.clock.now(), state.totals, state.caller.actor.session, bound.values)
        text = spec.show(result, view)
        return result if isinstance(result, Outcome) else Outcome(result, text)

    def _trace(self, spec: Spec, bound: Bound, state: State, answer: str) -> None:
        """Keep what a run read and was told, if that is wanted; the answer does not wait for it."""
        if not self.settings.trace or self.toolset.read_only or spec.writes:
            return
        if state.caller.read_only:
            return
        if not state.totals.exists:
            return
        asked = {
            p.name: bound.values[p.name]
            for p in spec.parameters
            if bound.values[p.name] != p.default
        }
        caller = dataclasses.replace(state.caller)
        task = asyncio.create_task(self._record(spec.name, asked, answer, caller))
        self._traces.add(task)
        task.add_done_callback(self._traces.discard)

    async def _record(
        self, tool: str, asked: Mapping[str, Any], answer: str, caller: Caller
    ) -> None:
        run = asked.get("run_id", "")
        try:
            await State(self.database, caller).traces.record(tool, asked, answer, run=run)
        except StateError as problem:
            log.warning("a read of %s was not traced: %s", tool, problem)
        except Exception:
            log.exception("a read of %s was not traced", tool)

    async def _run_unlisted(
        self, state: State, offer: _Offer, op: str, arguments: Mapping[str, Any]
    ) -> Outcome:
        """What `state_op` calls: any tool but itself."""
        spec = toolset.find(op)
        if spec is not None and spec.name == "state_op":
            raise BadArgument(
                "state_op cannot call itself", 'state_op(op="help") lists what it can.'
            )
        if spec is None:
            raise BadArgument(
                f"there is no operation {op[:60]!r}",
                f'{toolset.nearest(op)} state_op(op="help") lists them.'.strip(),
            )
        bound = bind(spec.name, spec.parameters, arguments)
        if bound.project:
            caller = dataclasses.replace(state.caller, project=bound.project, anchor="")
            caller.how = "argument"
            try:
                return await self._run(spec, bound, State(self.database, caller), offer)
            finally:  # the last line of the answer is about the project that was named
                state.caller.project, state.caller.how = caller.project, caller.how
                state.caller.anchor, state.caller.totals = "", caller.totals
        return await self._run(spec, bound, state, offer)

    # Answers

    async def _answered(
        self, outcome: Outcome, caller: Caller, replaced: int
    ) -> types.CallToolResult:
        totals = await self._totals(caller)
        text, last = outcome.text, render.scope(totals)
        if isinstance(outcome.result, Packet):  # it holds its scope, within its budget
            text, _, last = text.rpartition("\n")
        count = render.plural(replaced, "character")
        note = [f"note: {count} that cannot be stored became U+FFFD"] if replaced else []
        lines = [text, *note, last]
        structured = None
        if self.settings.structured:
            structured = {"scope": plain(totals), "text": "\n".join(lines)}
            if dataclasses.is_dataclass(outcome.result):
                structured["result"] = plain(outcome.result)
        return types.CallToolResult(
            content=[_text("\n".join(lines))], structured_content=structured
        )

    async def _totals(self, caller: Caller) -> Totals:
        """The counts for the last line, read now if the call did not get to it."""
        if caller.totals is None:
            await self.database.read(caller, lambda tx: None)
        return State(self.database, caller).totals

    async def _failed(self, text: str, caller: Caller | None) -> types.CallToolResult:
        lines = [f"error: {text}"]
        if caller is not None:
            with contextlib.suppress(StateError):
                lines.append(render.scope(await self._totals(caller)))
        return types.CallToolResult(content=[_text("\n".join(lines))], is_error=True)

    # Who, and for which project

    async def _caller(self, request: Request, arguments: Mapping[str, Any]) -> Caller:
        """Section 5 of the design: argument, start, what the client says, working directory."""
        principal, named = _principal(request), named_project(arguments)
        if principal is None:
            actor = self._actor(request, self._session)
            return self._resolver.caller(actor, named=named, said=await self._said(request))
        actor = self._actor(request, _session_over_http(request, principal), principal.agent)
        caller = self._resolver.remote(actor, principal, named=named)
        caller.read_only = self._offer(request).toolset.read_only
        return caller

    async def _said(self, request: Request) -> str:
        """The directory that the client sends with the call, or its single root."""
        meta = cast(Mapping[str, Any], request.meta or {})
        codex = meta.get(CODEX_META)
        said = cast(dict[str, Any], codex).get("sandboxCwd") if isinstance(codex, dict) else None
        return said if isinstance(said, str) else await self._root(request)

    async def _root(self, request: Request) -> str:
        """The single `file://` root of an older client, asked for once a connection."""
        capabilities = request.session.client_capabilities
        if capabilities is None or capabilities.roots is None:
            return ""
        if not request.session.can_send_request:
            return ""
        known = self._roots
        if known is None:
            known = ""
            with anyio.move_on_after(_ROOTS_SECONDS):
                try:
                    answer = await request.session.send_request(
                        types.ListRootsRequest(), types.ListRootsResult
                    )
                    files = [str(r.uri) for r in answer.roots if str(r.uri).startswith("file:")]
                    known = files[0] if len(answer.roots) == len(files) == 1 else ""
                except (MCPError, ValidationError) as problem:
                    log.info("the client does not tell its roots: %s", problem)
            self._roots = known
        return known

    async def forget_root(self, request: Request, params: types.NotificationParams) -> None:
        """The client changed its roots: ask again at the next call."""
        self._roots = None

    def _actor(self, request: Request, session: str, agent: str = "") -> Actor:
        client = request.session.client_params
        name = client.client_info.name if client else ""
        version = client.client_info.version if client else ""
        meta = cast(Mapping[str, Any], request.meta or {})
        thread = meta.get("threadId")
        return Actor(
            agent=agent or self.settings.agent or name or "unknown",
            client=f"{name} {version}".strip(),
            session=short_session(thread) if isinstance(thread, str) and thread else session,
        )

    # Resources and prompts

    async def list_resources(
        self, request: Request, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """What can be read without a tool."""
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=uri, name=name, description=says, mime_type="text/plain")
                for uri, name, says, _ in _RESOURCES
            ]
            + [_BOARD]
        )

    async def list_resource_templates(
        self, request: Request, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """One memory block."""
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=BLOCK + "{key}",
                    name="memory block",
                    description="One block of working memory",
                    mime_type="text/plain",
                )
            ]
        )

    async def read_resource(
        self, request: Request, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """The text of the tool that shows the same.

        Raises:
            MCPError: there is no such resource, or the store refused.
        """
        uri = str(params.uri)
        if uri == apps.BOARD:
            return types.ReadResourceResult(contents=[_board_contents()])
        tool = next((tool for known, _, _, tool in _RESOURCES if known == uri), "")
        arguments: dict[str, Any] = {}
        if not tool and uri.startswith(BLOCK) and len(uri) > len(BLOCK):
            tool, arguments = "memory_get", {"key": key_of(uri)}
        if not tool:
            raise no_resource(uri)
        result = await self._read(request, tool, arguments)
        if result.is_error:
            raise MCPError(code=types.INTERNAL_ERROR, message=_text_of(result), data={"uri": uri})
        contents = types.TextResourceContents(
            uri=params.uri, mime_type="text/plain", text=_text_of(result)
        )
        return types.ReadResourceResult(contents=[contents])

    async def _read(
        self, request: Request, tool: str, arguments: Mapping[str, Any]
    ) -> types.CallToolResult:
        """A reading tool, whether the toolset lists it or not."""
        spec = toolset.find(tool)
        assert spec is not None and not spec.writes
        caller = await self._caller(request, arguments)
        try:
            bound = bind(spec.name, spec.parameters, arguments)
            state = State(self.database, caller)
            outcome = await self._run(spec, bound, state, self._offer(request))
            return await self._answered(outcome, caller, 0)
        except StateError as problem:
            return await self._failed(str(problem), caller)

    async def list_prompts(
        self, request: Request, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """Three things a person starts."""
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(name=name, title=title, description=says)
                for name, (title, says, _) in _PROMPTS.items()
            ]
        )

    async def get_prompt(
        self, request: Request, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """What to do, with the packet as it is now.

        Raises:
            MCPError: there is no such prompt.
        """
        if params.name not in _PROMPTS:
            raise MCPError(
                code=types.INVALID_PARAMS,
                message=f"there is no prompt {params.name[:60]!r}; there are {', '.join(_PROMPTS)}",
            )
        _, says, task = _PROMPTS[params.name]
        packet = await self._read(request, "orient", {})
        message = types.PromptMessage(role="user", content=_text(f"{task}\n\n{_text_of(packet)}"))
        return types.GetPromptResult(description=says, messages=[message])


def open_store_of(settings: Settings, tools: toolset.Toolset, clock: Clock) -> Database:
    """The store of a server, not yet opened; one that only reads never writes it."""
    return open_database(
        settings.db,
        clock=clock,
        limits=settings.limits,
        read_only=tools.read_only,
        allow_secrets=settings.allow_secrets,
        wait=settings.wait,
    )


def _unlisted(offer: _Offer) -> tuple[Spec, ...]:
    return tuple(spec for spec in toolset.load("all").tools if spec.name not in offer.tools)


def _principal(request: Request) -> Principal | None:
    """For whom a request over HTTP is; None over stdio, where the client started the server.

    Raises:
        KeyError: nobody looked at who sends the request.
    """
    return None if request.request is None else request.request.scope[PRINCIPAL]


def _no_schema(tool: str) -> None:
    """No tool takes arguments from headers; without this the SDK lists all at every call to see."""


def _log_refusal(request: Request, problem: StateError) -> None:
    """Note what is nowhere kept as an event, and should not have been asked for."""
    principal = _principal(request)
    if principal is not None and principal.token:
        if isinstance(problem, ReadonlyToolset | ProjectUnknown):
            who = f"token {principal.token} ({principal.agent!a})"
            log.warning("refused %s: %s", who, ascii(str(problem)[:300]))
    elif isinstance(problem, ReadonlyToolset):
        log.warning("refused: %s", problem)


def _session_over_http(request: Request, principal: Principal) -> str:
    """One per connection of the older generation; the newer one has none, so one per token."""
    connection = request.request.headers.get(_SESSION_HEADER, "") if request.request else ""
    named = hashlib.sha256(f"{principal.token} {connection}".encode()).hexdigest()
    return f"h-{named[:12]}"


_BEGINNINGS = ("initialize", "server/discover")
_RESOURCES = (
    ("state://orient", "orient", "The wake-up packet: where the work stands", "orient"),
    ("state://threads", "threads", "The open threads, in the order to work on them", "thread_list"),
    ("state://journal", "journal", "The newest journal entries", "journal_tail"),
)
_BOARD = types.Resource(
    uri=apps.BOARD,
    name="board",
    description="The board of threads, for clients that render MCP Apps",
    mime_type=apps.APP_MIME_TYPE,
)
_PROMPTS = {
    "orient": (
        "Orient",
        "Begin from the stored state of the work",
        "This is the stored state of our work. Say in a few lines where it stands and what you "
        "will do next, then go on. Run the check of a thread before you rely on it.",
    ),
    "handoff": (
        "Hand over",
        "Leave the work so that another agent can go on",
        "Another agent will go on with this work and will know only what is stored. Bring the "
        "store up to date: the status and next_action of each thread, decisions and dead ends in "
        "the journal, what it must know in working memory. Then tell me what it will find.",
    ),
    "wrap_up": (
        "Wrap up",
        "Write back before you stop",
        "We stop here. Compare what you did in this session with the stored state below and write "
        "back what is missing: journal_append for what happened, thread_set for each status that "
        "changed (done needs evidence), memory_set for what the next session must know.",
    ),
}


@functools.cache
def published(spec: Spec, structured: bool = False) -> types.Tool:
    """A tool as clients see it."""
    meta: dict[str, Any] = {"anthropic/searchHint": spec.search_hint}
    if spec.always_load:
        meta["anthropic/alwaysLoad"] = True
    if spec.shows_board:
        meta["ui"] = {"resourceUri": apps.BOARD}
    return types.Tool(
        name=spec.name,
        title=spec.title,
        description=spec.description,
        input_schema=spec.input_schema,
        output_schema=_OUTPUT_SCHEMA if structured else None,
        annotations=types.ToolAnnotations(
            title=spec.title,
            read_only_hint=not spec.writes,
            destructive_hint=False,
            idempotent_hint=spec.idempotent or not spec.writes,
            open_world_hint=False,
        ),
        _meta=meta,
    )


_OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "scope": {"type": "object"},
        "result": {"type": "object"},
    },
    "required": ["text", "scope"],
}


def _board_contents() -> types.TextResourceContents:
    return types.TextResourceContents(
        uri=apps.BOARD,
        mime_type=apps.APP_MIME_TYPE,
        text=apps.document(),
        _meta={"ui": {"prefersBorder": True}},
    )


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=clean(text)[0])


def _text_of(result: types.CallToolResult) -> str:
    return "".join(c.text for c in result.content if isinstance(c, types.TextContent))


def _replaced(request: Request) -> int:
    """How many characters the transport had to replace in this request."""
    count = cast(Mapping[str, Any], request.meta or {}).get(REPLACED_META, 0)
    return count if type(count) is int and 0 < count < 1 << 53 else 0  # whoever put it there
