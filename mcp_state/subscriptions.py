"""Telling clients that a resource changed: those with a handshake, and those of 2026-07-28.

The former subscribe to one resource after the other and are told on the connection; the latter
send a request that names all of them, and its answer is the stream on which they are told.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import unquote

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from mcp_state import apps
from mcp_state.errors import ProjectUnknown, StateError
from mcp_state.live import Listener, Live, Subjects
from mcp_state.models import Caller
from mcp_state.store.text import fold, tidy_name

Request = ServerRequestContext[Any]

BLOCK = "state://memory/"
KINDS = {
    "state://orient": frozenset[str](),
    "state://threads": frozenset({"thread", "fact"}),  # with what they rely on
    "state://journal": frozenset({"journal"}),
}
"""The resources that are no block, and the kinds of events that change them; none: any."""

MOST_RESOURCES = 64
MOST_LISTENERS = 4_096
_TOLD = "mcp-state/told"


class Subscriptions:
    """Which resources the clients of one server want to hear of.

    Args:
        live: the changes of the store.
        caller_of: for which project a request is made, as for reading a resource.
    """

    def __init__(self, live: Live, caller_of: Callable[[Request], Awaitable[Caller]]) -> None:
        self._live = live
        self._caller_of = caller_of

    # With a handshake

    async def subscribe(
        self, request: Request, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        """Tell this connection of each change of the resource from now on.

        Raises:
            MCPError: there is no such resource, no project, or too much is subscribed to already.
        """
        uri = str(params.uri)
        if not is_resource(uri):
            raise no_resource(uri)
        connection = connection_of(request)
        if not connection.has_standalone_channel:
            raise MCPError(
                code=types.INVALID_REQUEST, message="this connection can't carry notifications"
            )
        told = _told(connection)
        async with told.changing:
            caller = await self._caller(request)
            if len(told.uris) >= MOST_RESOURCES and uri not in told.uris:
                raise _too_many(f"{MOST_RESOURCES} resources are subscribed to already")
            if not told.is_of(caller):
                await told.end()
                listener = await self._join(caller)
                told.begin(request.session, listener, self._live.leave)
            told.uris.add(uri)
        return types.EmptyResult()

    async def unsubscribe(
        self, request: Request, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Tell this connection of the resource no more."""
        told = _told(connection_of(request))
        async with told.changing:
            told.uris.discard(str(params.uri))
            if not told.uris:
                await told.end()
        return types.EmptyResult()

    # Without

    async def listen(
        self, request: Request, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Say which of the resources it will be told of, and tell, until the client leaves.

        Lists never change here, so nothing is promised of them. Nor is it of a resource that there
        is not, or of any if there is no project.

        Raises:
            MCPError: too much is listened to already.
        """
        wanted = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(wanted) > MOST_RESOURCES:
            raise _too_many(f"{len(wanted):,} resources, and {MOST_RESOURCES} are the most")
        uris = [uri for uri in wanted if is_resource(uri)]
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: request.request_id}
        send = functools.partial(
            request.session.send_notification, related_request_id=request.request_id
        )
        try:
            caller = await self._caller(request) if uris else None
        except MCPError:
            caller = None
        if caller is None:
            await send(_acknowledged([], meta))
            await anyio.sleep_forever()
        else:
            listener = await self._join(caller)
            try:
                await send(_acknowledged(uris, meta))
                while (news := await listener.news()) is not None:
                    for uri in uris:
                        if is_touched(uri, news.subjects):
                            await send(_updated(uri, meta))
            finally:
                self._live.leave(listener)
        return types.SubscriptionsListenResult(_meta=meta)

    async def _caller(self, request: Request) -> Caller:
        try:
            caller = await self._caller_of(request)
            if caller.project:
                return caller
            raise ProjectUnknown(
                "this connection does not say which project it belongs to",
                "Start the server in a git repository or with --project NAME; over HTTP, use a "
                "token of one project.",
            )
        except StateError as problem:
            raise MCPError(code=types.INVALID_PARAMS, message=str(problem)) from problem

    async def _join(self, caller: Caller) -> Listener:
        if self._live.listeners >= MOST_LISTENERS:
            raise _too_many(f"{MOST_LISTENERS:,} listen to this server already")
        listener = await self._live.join(caller)
        await listener.news()  # how it stands, which is no change
        return listener


def is_resource(uri: str) -> bool:
    """Whether there is such a resource, be it that nobody wrote the block yet."""
    if uri in KINDS or uri == apps.BOARD:
        return True
    try:
        return uri.startswith(BLOCK) and bool(tidy_name(key_of(uri), "key"))
    except StateError:
        return False


def is_touched(uri: str, subjects: Subjects | None) -> bool:
    """Whether a resource is another one after changes of these; the board never is."""
    if uri == apps.BOARD:
        return False
    if subjects is None:
        return True
    if uri in KINDS:
        return any(not KINDS[uri] or kind in KINDS[uri] for kind, _ in subjects)
    return ("memory", fold(key_of(uri))) in subjects


def key_of(uri: str) -> str:
    """The key in the address of a block."""
    return unquote(uri.removeprefix(BLOCK))


def no_resource(uri: str) -> MCPError:
    """What a client is told that asks for a resource that there is not."""
    return MCPError(
        code=types.INVALID_PARAMS,
        message=f"there is no resource {uri[:60]!r}",
        data={"uri": uri},
    )


def connection_of(request: Request) -> Connection:
    """The connection that a request came on: the SDK keeps state and cleanup there."""
    return request.session._connection  # pyright: ignore[reportPrivateUsage]


class _Told:
    """Of which resources a connection is told, all by one task that listens."""

    def __init__(self) -> None:
        self.uris: set[str] = set()
        self.changing = asyncio.Lock()
        self._listener: Listener | None = None
        self._task: asyncio.Task[None] | None = None

    def is_of(self, caller: Caller) -> bool:
        """Whether it hears of this caller's project now."""
        if self._task is None or self._task.done() or self._listener is None:
            return False
        return self._listener.scope == Listener(caller).scope

    def begin(
        self, session: ServerSession, listener: Listener, leave: Callable[[Listener], None]
    ) -> None:
        """Tell what is heard, until it ends."""
        self._listener = listener
        self._task = asyncio.create_task(self._tell(session, listener))
        self._task.add_done_callback(lambda _: leave(listener))

    async def end(self) -> None:
        """Tell nothing any more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _tell(self, session: ServerSession, listener: Listener) -> None:
        while (news := await listener.news()) is not None:
            for uri in sorted(self.uris):
                if is_touched(uri, news.subjects):
                    await session.send_resource_updated(uri)


def _told(connection: Connection) -> _Told:
    """What a connection is told of; it ends when the connection does."""
    if _TOLD not in connection.state:
        told = connection.state[_TOLD] = _Told()
        connection.exit_stack.push_async_callback(told.end)
    return connection.state[_TOLD]


def _acknowledged(
    uris: Sequence[str], meta: dict[str, Any]
) -> types.SubscriptionsAcknowledgedNotification:
    honoured = types.SubscriptionFilter(resource_subscriptions=list(uris) or None)
    return types.SubscriptionsAcknowledgedNotification(
        params=types.SubscriptionsAcknowledgedNotificationParams(notifications=honoured, _meta=meta)
    )


def _updated(uri: str, meta: dict[str, Any]) -> types.ResourceUpdatedNotification:
    return types.ResourceUpdatedNotification(
        params=types.ResourceUpdatedNotificationParams(uri=uri, _meta=meta)
    )


def _too_many(fact: str) -> MCPError:
    return MCPError(code=types.INVALID_PARAMS, message=f"too many subscriptions: {fact}")
