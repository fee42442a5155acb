"""Clients of both generations are told of the resources that changed, and of nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx2
import mcp_types as types
import pytest
from conftest import FakeClock, Open
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import Subscription, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated
from over_http import PROXIED, Served, serving, token_for
from test_changes import PATIENCE, PROGRAM, elsewhere

from mcp_state import apps, subscriptions
from mcp_state.api import State
from mcp_state.live import Live
from mcp_state.server import StateServer, create_server
from mcp_state.settings import Settings
from mcp_state.subscriptions import BLOCK, KINDS, is_resource, is_touched

STATELESS = "2026-07-28"
ALL = ["state://orient", "state://threads", "state://journal", "state://memory/plan", apps.BOARD]


class Heard:
    """What a client with a handshake was told, in order."""

    def __init__(self) -> None:
        self._uris: asyncio.Queue[str] = asyncio.Queue()

    async def take(self, message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self._uris.put_nowait(message.params.uri)

    async def next(self, count: int = 1) -> list[str]:
        async with asyncio.timeout(PATIENCE):
            return sorted([await self._uris.get() for _ in range(count)])

    @property
    def is_empty(self) -> bool:
        return self._uris.empty()


async def heard(subscription: Subscription, count: int = 1) -> list[str]:
    """The next resources that a client without a handshake is told of."""
    uris: list[str] = []
    async with asyncio.timeout(PATIENCE):
        for _ in range(count):
            event = await anext(aiter(subscription))
            assert isinstance(event, ResourceUpdated)
            uris.append(event.uri)
    return sorted(uris)


@pytest.fixture
def server(settings: Settings, clock: FakeClock) -> StateServer:
    return create_server(settings, clock)


@asynccontextmanager
async def shaken(server: StateServer) -> AsyncGenerator[tuple[Client, Heard]]:
    told = Heard()
    async with Client(server, mode="legacy", message_handler=told.take) as client:
        yield client, told


async def subscribe(client: Client, uri: str) -> None:
    params = types.SubscribeRequestParams(uri=uri)
    await client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)


async def unsubscribe(client: Client, uri: str) -> None:
    params = types.UnsubscribeRequestParams(uri=uri)
    await client.session.send_request(types.UnsubscribeRequest(params=params), types.EmptyResult)


def watchers() -> list[asyncio.Task[Any]]:
    """The tasks that look for changes."""
    name = Live._watch.__qualname__  # pyright: ignore[reportPrivateUsage]
    tasks = asyncio.all_tasks()
    return [task for task in tasks if getattr(task.get_coro(), "__qualname__", "") == name]


async def all_rest() -> bool:
    """Wait until nothing looks for changes."""
    if there := watchers():
        await asyncio.wait(there, timeout=PATIENCE)
    return not watchers()


def write(state: State) -> Sequence[tuple[Callable[[], Any], list[str]]]:
    """Changes, and which of ALL are others then."""
    orient, threads, journal, plan, _ = ALL
    return (
        (lambda: state.memory.set("Plan", "x"), [plan, orient]),
        (lambda: state.memory.set("other", "x"), [orient]),
        (lambda: state.journal.append("x"), [journal, orient]),
        (lambda: state.threads.set("pr-1", title="x"), [threads, orient]),
        (lambda: state.objective.set("x"), [orient]),
    )


async def test_with_a_handshake_one_is_told_of_what_one_subscribed_to(
    server: StateServer, theirs: State
) -> None:
    await theirs.journal.append("the project is there")
    async with shaken(server) as (client, told):
        for uri in ALL:
            await subscribe(client, uri)
        for change, uris in write(theirs):
            await change()
            assert await told.next(len(uris)) == sorted(uris)
        assert told.is_empty


async def test_without_one_too(server: StateServer, theirs: State) -> None:
    await theirs.journal.append("the project is there")
    async with (
        Client(server, mode=STATELESS) as client,
        client.listen(resource_subscriptions=ALL) as subscription,
    ):
        assert subscription.honored.resource_subscriptions == ALL
        for change, uris in write(theirs):
            await change()
            assert await heard(subscription, len(uris)) == sorted(uris)


async def test_one_is_told_of_ones_own_changes(server: StateServer) -> None:
    entry = ("journal_append", {"text": "x"})
    async with shaken(server) as (client, told):
        await client.call_tool(*entry)
        await subscribe(client, "state://journal")
        await client.call_tool(*entry)
        assert await told.next() == ["state://journal"]
    async with (
        Client(server, mode=STATELESS) as client,
        client.listen(resource_subscriptions=["state://journal"]) as subscription,
    ):
        await client.call_tool(*entry)
        assert await heard(subscription) == ["state://journal"]


async def test_what_is_said_is_true_when_it_is_said(server: StateServer, theirs: State) -> None:
    """A change right behind the answer is told, though nobody waited for one yet."""
    await theirs.memory.set("plan", "x")
    async with shaken(server) as (client, told):
        for number in range(10):
            await subscribe(client, "state://memory/plan")
            await theirs.memory.set("plan", f"x{number}")
            assert await told.next() == ["state://memory/plan"]


async def test_nothing_of_another_project_is_told(
    settings: Settings, clock: FakeClock, open_state: Open
) -> None:
    other = open_state(project="other", database="two")
    ours = open_state(database="two")
    await other.journal.append("x")
    await ours.journal.append("x")
    server = create_server(replace(settings, project="other"), clock)
    async with shaken(server) as (client, told):
        for uri in ALL:
            await subscribe(client, uri)
        for change, _ in write(ours):
            await change()
        await other.objective.set("the first change of this project")
        assert await told.next() == ["state://orient"]
        assert told.is_empty


async def test_what_was_unsubscribed_is_not_told(server: StateServer, theirs: State) -> None:
    await theirs.journal.append("x")
    async with shaken(server) as (client, told):
        await subscribe(client, "state://journal")
        await subscribe(client, "state://orient")
        await subscribe(client, "state://orient")  # twice is once
        await unsubscribe(client, "state://journal")
        await unsubscribe(client, "state://journal")
        await unsubscribe(client, "nonsense")
        await theirs.journal.append("x")
        assert await told.next() == ["state://orient"]
        await unsubscribe(client, "state://orient")
        assert await all_rest()
        assert told.is_empty


async def test_two_clients_of_one_server_subscribe_each_for_itself(
    server: StateServer, theirs: State
) -> None:
    await theirs.journal.append("x")
    async with shaken(server) as (first, told), shaken(server) as (second, told_too):
        await subscribe(first, "state://journal")
        await subscribe(second, "state://journal")
        await unsubscribe(second, "state://journal")
        await subscribe(second, "state://threads")
        await theirs.journal.append("x")
        assert await told.next() == ["state://journal"]
        assert told_too.is_empty


async def test_when_the_client_leaves_nothing_is_watched(server: StateServer) -> None:
    async with shaken(server) as (client, _):
        await subscribe(client, "state://journal")
        assert watchers()
    assert await all_rest()
    async with Client(server, mode=STATELESS) as client:
        async with client.listen(resource_subscriptions=["state://journal"]):
            assert watchers()
        await client.call_tool("orient")
        assert await all_rest()


@pytest.mark.parametrize(
    "uri", ["state://nonsense", "state://memory/", "state://memory/%20", "state://memory/%00", "x"]
)
async def test_there_is_no_subscription_to_what_there_is_not(server: StateServer, uri: str) -> None:
    async with shaken(server) as (client, _):
        with pytest.raises(MCPError, match="there is no resource") as refused:
            await subscribe(client, uri)
        assert (refused.value.error.code, refused.value.error.data) == (
            types.INVALID_PARAMS,
            {"uri": uri},
        )
    async with (
        Client(server, mode=STATELESS) as client,
        client.listen(resource_subscriptions=["state://orient", uri]) as subscription,
    ):
        assert subscription.honored.resource_subscriptions == ["state://orient"]


async def test_lists_never_change_and_no_client_is_told_otherwise(server: StateServer) -> None:
    async with (
        Client(server, mode=STATELESS) as client,
        client.listen(
            tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
        ) as subscription,
    ):
        assert subscription.honored.model_dump(exclude_none=True) == {}
        assert await all_rest()
    for mode in (STATELESS, "legacy", "auto"):
        async with Client(server, mode=mode) as client:
            if mode == STATELESS:  # which asks for nothing
                continue
            can = client.server_capabilities
            assert can.resources == types.ResourcesCapability(subscribe=True, list_changed=False)
            assert can.tools == types.ToolsCapability(list_changed=False)
            assert can.prompts == types.PromptsCapability(list_changed=False)


async def test_without_a_project_there_is_nothing_to_hear_of(
    settings: Settings, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    server = create_server(replace(settings, project=""), clock)
    async with shaken(server) as (client, _):
        with pytest.raises(MCPError) as refused:
            await subscribe(client, "state://orient")
        assert str(refused.value) == (
            "project_unknown: this connection does not say which project it belongs to. "
            "Start the server in a git repository or with --project NAME; over HTTP, use a token "
            "of one project."
        )
    async with (
        Client(server, mode=STATELESS) as client,
        client.listen(resource_subscriptions=["state://orient"]) as subscription,
    ):
        assert subscription.honored.resource_subscriptions is None
        assert await all_rest()


async def test_a_project_that_is_not_there_yet_is_told_of_when_it_begins(
    server: StateServer, theirs: State
) -> None:
    async with shaken(server) as (client, told):
        await subscribe(client, "state://threads")
        await theirs.threads.set("pr-1", title="x")
        assert await told.next() == ["state://threads"]


async def test_a_bounded_number_is_subscribed_to(
    server: StateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MOST_RESOURCES", 2)
    async with shaken(server) as (client, _):
        await subscribe(client, "state://memory/a")
        await subscribe(client, "state://memory/b")
        await subscribe(client, "state://memory/b")
        with pytest.raises(MCPError, match="too many subscriptions: 2 resources are subscribed"):
            await subscribe(client, "state://memory/c")
        await unsubscribe(client, "state://memory/a")
        await subscribe(client, "state://memory/c")
    assert await all_rest()
    blocks = [f"state://memory/{key}" for key in "abc"]
    async with Client(server, mode=STATELESS) as client:
        with pytest.raises(MCPError, match="3 resources, and 2 are the most"):
            async with client.listen(resource_subscriptions=blocks):
                pass
        async with client.listen(resource_subscriptions=[blocks[0]] * 9) as subscription:
            assert subscription.honored.resource_subscriptions == blocks[:1]


async def test_a_connection_listens_once_whatever_it_subscribed_to(
    server: StateServer, theirs: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one client that subscribes to much would be the only one who can."""
    monkeypatch.setattr(subscriptions, "MOST_LISTENERS", 2)
    await theirs.memory.set("first", "x")
    async with shaken(server) as (client, told), shaken(server) as (other, _):
        for key in "abc":
            await subscribe(client, f"state://memory/{key}")
        await subscribe(other, "state://orient")
        for key in "cab":
            await theirs.memory.set(key, "x")
            assert await told.next() == [f"state://memory/{key}"]
        await unsubscribe(client, "state://memory/a")
        await theirs.memory.set("a", "y")
        await theirs.memory.set("b", "y")
        assert await told.next() == ["state://memory/b"]
        assert told.is_empty
    assert await all_rest()


async def test_a_bounded_number_listens(
    server: StateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MOST_LISTENERS", 1)
    async with (
        Client(server, mode=STATELESS) as client,
        shaken(server) as (old, _),
        client.listen(resource_subscriptions=["state://orient"]),
    ):
        with pytest.raises(MCPError, match="1 listen to this server already"):
            async with client.listen(resource_subscriptions=["state://orient"]):
                pass
        with pytest.raises(MCPError, match="1 listen to this server already"):
            await subscribe(old, "state://orient")


@given(st.text(), st.sets(st.tuples(st.sampled_from(["memory", "thread"]), st.text())))
def test_any_address_is_a_resource_or_not(key: str, subjects: set[tuple[str, str]]) -> None:
    uri = BLOCK + key
    if is_resource(uri):
        is_touched(uri, frozenset(subjects))
        assert is_touched(uri, None)
        assert not is_touched(uri, frozenset())


@pytest.mark.parametrize("key", ["plan", "PLAN", " plan ", "pl%61n", "plan%20"])
def test_a_block_has_many_addresses(key: str) -> None:
    assert is_touched(BLOCK + key, frozenset({("memory", "plan")}))
    assert not is_touched(BLOCK + key, frozenset({("memory", "plan2"), ("thread", "plan")}))


def test_a_key_in_any_script_has_an_address() -> None:
    assert is_touched(BLOCK + quote("Überblick/1"), frozenset({("memory", "überblick/1")}))


async def test_what_is_listed_can_be_subscribed_to(server: StateServer) -> None:
    async with shaken(server) as (client, _):
        listed = [resource.uri for resource in (await client.list_resources()).resources]
        assert set(listed) == {*KINDS, apps.BOARD}
        for uri in listed:
            await subscribe(client, uri)


# Over HTTP


@asynccontextmanager
async def of_token(served: Served, token: str) -> AsyncGenerator[tuple[Client, Heard]]:
    """A client with a handshake, and what it is told."""
    told = Heard()
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=20) as http,
        Client(
            streamable_http_client(served.url, http_client=http),
            mode="legacy",
            message_handler=told.take,
        ) as client,
    ):
        yield client, told


async def test_over_http_a_token_is_told_of_its_project_alone(
    settings: Settings, path: str, open_state: Open
) -> None:
    ours, theirs = (
        open_state(database="elsewhere"),
        open_state(project="beta", database="elsewhere"),
    )
    await ours.journal.append("x")
    await theirs.journal.append("x")
    wanted = ["state://journal", "state://memory/plan"]
    async with (
        serving(replace(settings, project=""), PROXIED) as served,
        served.client(token=await token_for(path, "acme")) as client,
        client.listen(resource_subscriptions=wanted) as subscription,
        of_token(served, await token_for(path, "beta")) as (other, told),
    ):
        assert subscription.honored.resource_subscriptions == wanted
        for uri in wanted:
            await subscribe(other, uri)
        await theirs.memory.set("plan", "theirs")
        assert await told.next() == ["state://memory/plan"]
        await ours.journal.append("ours")
        assert await heard(subscription) == ["state://journal"]
        await theirs.memory.set("plan", "theirs again")
        assert await told.next() == ["state://memory/plan"]
        assert told.is_empty


async def test_over_http_a_stream_is_no_reason_to_stop_late(settings: Settings) -> None:
    async with AsyncExitStack() as stack:
        async with serving(settings) as served:
            client = await stack.enter_async_context(served.client())
            listening = client.listen(resource_subscriptions=["state://orient"])
            subscription = await stack.enter_async_context(listening)
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 2
        with pytest.raises(SubscriptionLost):
            await heard(subscription)


# Over pipes, with changes from another process


class Lines:
    """A server on pipes of its own, and a client that writes and reads lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def say(self, method: str, params: Any, request_id: Any = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if request_id is not None:
            message["id"] = request_id
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        await self.process.stdin.drain()

    async def hear(self) -> Any:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return json.loads(await self.process.stdout.readline())


@pytest.fixture
async def lines(path: str, dev_mode: None) -> AsyncIterator[Lines]:
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *("serve", "--db", path, "--project", "acme"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 22,
    )
    yield Lines(process)
    rest, _ = await process.communicate(b"")
    assert (rest, process.returncode) == (b"", 0)


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "someone", "version": "1"},
}
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientInfo": {"name": "someone", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def test_another_process_reaches_a_client_with_a_handshake(lines: Lines, path: str) -> None:
    await elsewhere(path, "journal", "append", "x", "--project", "acme")
    await lines.say("initialize", INITIALIZE, 0)
    assert (await lines.hear())["result"]["capabilities"]["resources"]["subscribe"] is True
    await lines.say("notifications/initialized", {})
    await lines.say("resources/subscribe", {"uri": "state://memory/plan"}, 1)
    assert await lines.hear() == {"jsonrpc": "2.0", "id": 1, "result": {}}

    await elsewhere(path, "memory", "set", "secret", "x", "--project", "other")
    await elsewhere(path, "memory", "set", "plan", "x", "--project", "acme")

    assert await lines.hear() == {
        "jsonrpc": "2.0",
        "method": "notifications/resources/updated",
        "params": {"uri": "state://memory/plan"},
    }


async def test_another_process_reaches_a_client_without_one(lines: Lines, path: str) -> None:
    await elsewhere(path, "journal", "append", "x", "--project", "acme")
    wanted = {"resourceSubscriptions": ["state://memory/plan"], "toolsListChanged": True}
    await lines.say("server/discover", {"_meta": META}, "d")
    assert (await lines.hear())["result"]["capabilities"]["resources"]["subscribe"] is True
    await lines.say("subscriptions/listen", {"_meta": META, "notifications": wanted}, "l")
    about = {"io.modelcontextprotocol/subscriptionId": "l"}
    assert await lines.hear() == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {
            "_meta": about,
            "notifications": {"resourceSubscriptions": ["state://memory/plan"]},
        },
    }

    await elsewhere(path, "memory", "set", "secret", "x", "--project", "other")
    await elsewhere(path, "memory", "set", "plan", "x", "--project", "acme")

    assert await lines.hear() == {
        "jsonrpc": "2.0",
        "method": "notifications/resources/updated",
        "params": {"_meta": about, "uri": "state://memory/plan"},
    }
    await lines.say("notifications/cancelled", {"requestId": "l"})
    await lines.say("tools/list", {"_meta": META}, 2)
    while (answer := await lines.hear()).get("id") != 2:
        assert answer["id"] == "l"
