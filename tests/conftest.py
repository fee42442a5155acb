from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import mcp_types as types
import new_stores
import pytest
from click.testing import CliRunner, Result
from long_runs import contradictions
from mcp import Client
from mcp.client import ClientExtension

from mcp_state.api import State
from mcp_state.cli import main
from mcp_state.models import Actor, Caller
from mcp_state.server import create_server
from mcp_state.settings import Settings
from mcp_state.store import opening
from mcp_state.store.database import Database
from mcp_state.times import Clock

# A shell starts background jobs with SIGINT ignored; the children of the tests would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of children would each compile all that they import.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

opening.make = new_stores.make

START = datetime(2026, 11, 29, 9, 0, tzinfo=UTC)


class FakeClock(Clock):
    """Time stands still until a test moves it; ids count up."""

    def __init__(self) -> None:
        self.time = START
        self._ids = 0

    def now(self) -> datetime:
        return self.time

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}{self._ids}"

    def move(self, **delta: float) -> None:
        self.time += timedelta(**delta)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store" / "state.db")


Open = Callable[..., State]


@pytest.fixture
async def open_state(path: str, clock: FakeClock) -> AsyncGenerator[Open]:
    """Make states on one store: `open_state(agent="codex", project="acme", session="s1")`.

    Those of one `database` name share its `Database`, like the calls of one process.
    """
    databases: dict[str, Database] = {}

    def make(
        *, project: str = "acme", agent: str = "codex", session: str = "s1", database: str = "one"
    ) -> State:
        if database not in databases:
            databases[database] = Database(path, clock=clock)
        caller = Caller(project, "argument", Actor(agent, f"{agent} 1.0", session))
        return State(databases[database], caller)

    yield make
    for opened in databases.values():
        await opened.aclose()


@pytest.fixture
def state(open_state: Open) -> State:
    return open_state()


@pytest.fixture
def mine(state: State) -> State:
    """A session of codex."""
    return state


@pytest.fixture
def theirs(open_state: Open) -> State:
    """A session of claude, in another process."""
    return open_state(agent="claude", session="s2", database="two")


@pytest.fixture
def consistent(path: str) -> Generator[None]:
    """At the end of the test, doctor finds nothing in its store."""
    yield
    assert contradictions(path) == []


@pytest.fixture
def environment(path: str) -> dict[str, str | None]:
    """Of a command."""
    return {
        "MCP_STATE_DB": path,
        "MCP_STATE_PROJECT": "acme",
        "MCP_STATE_AGENT": None,
        "CLAUDE_PROJECT_DIR": None,
        "CLAUDE_CODE_SESSION_ID": None,
    }


Run = Callable[..., Result]


@pytest.fixture
def run(environment: dict[str, str | None]) -> Run:
    """Run a command in this process."""

    def invoke(*words: str, stdin: str | bytes = "", **changes: str | None) -> Result:
        result = CliRunner().invoke(main, words, input=stdin, env=environment | changes)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def settings(path: str) -> Settings:
    return Settings(db=path, project="acme", session="s1")


@pytest.fixture
def connect(settings: Settings, clock: FakeClock) -> Connect:
    """Connect an in-memory client to a server: `async with connect(toolset="all") as client`."""

    @asynccontextmanager
    async def connected(
        mode: str = "legacy",
        client_info: types.Implementation | None = None,
        extensions: Sequence[ClientExtension] = (),
        **changes: Any,
    ) -> AsyncGenerator[Client]:
        server = create_server(replace(settings, **changes), clock)
        async with Client(
            server, mode=mode, client_info=client_info, extensions=extensions
        ) as client:
            yield client

    return connected


@pytest.fixture
async def client(connect: Connect) -> AsyncGenerator[Client]:
    """A connected client; it lives in a task of its own, as its cancel scopes must."""
    connected: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def live() -> None:
        try:
            async with connect(toolset="all") as client:
                connected.set_result(client)
                await over.wait()
        except BaseException as problem:
            if connected.done():
                raise
            connected.set_exception(problem)

    life = asyncio.create_task(live())
    yield await connected
    over.set()
    await life


def text_of(result: types.CallToolResult) -> str:
    """The one text block of an answer."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


Call = Callable[..., Awaitable[str]]


@pytest.fixture
def call(client: Client) -> Call:
    """Call a tool and return its text; an error must be expected with `error=True`."""

    async def do(tool: str, /, *, error: bool = False, **arguments: Any) -> str:
        result = await client.call_tool(tool, arguments)
        text = text_of(result)
        assert bool(result.is_error) is error, text
        assert text.startswith("error: ") is error, text
        return text

    return do
