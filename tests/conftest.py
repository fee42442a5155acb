from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
import tempfile
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import mcp_types as types
import new_stores
import postgres
import pytest
import soaking
import tour
from click.testing import CliRunner, Result
from long_runs import contradictions
from mcp import Client
from mcp.client import ClientExtension
from whole_stores import Stores

from mcp_state.api import State
from mcp_state.cli import main
from mcp_state.models import Actor, Caller
from mcp_state.server import create_server
from mcp_state.settings import Settings
from mcp_state.store import opening
from mcp_state.store.database import Database, open_database
from mcp_state.times import Clock

soaking.write_into_memory()
COMPLAINTS = Path(tempfile.mkstemp(prefix="complaints-")[1])
atexit.register(COMPLAINTS.unlink)

# A shell starts background jobs with SIGINT ignored; the children of the tests would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of children would each compile all that they import.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

opening.make = new_stores.make

ENGINES = ("sqlite", "postgres")
EVERY_ENGINE = "MCP_STATE_TEST_EVERY_ENGINE"
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


def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means: two more than there are cores, since many tests wait for a process."""
    return (os.cpu_count() or 1) + 2


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test of the store and the tools runs on both engines, unless it is about the file."""
    if "engine" in metafunc.fixturenames:
        of_file = metafunc.definition.get_closest_marker("sqlite") is not None
        metafunc.parametrize("engine", ENGINES[:1] if of_file else ENGINES)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the tests that run on both engines, take one in forty on PostgreSQL, or all if asked."""
    if os.environ.get(EVERY_ENGINE) or soaking.SOAK:
        return
    left_out = [item for item in items if "[postgres" in item.name and not _is_in_slice(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _is_in_slice(item: pytest.Item) -> bool:
    return zlib.crc32(item.nodeid.encode()) % 40 == 0


@pytest.fixture
def path(tmp_path: Path, engine: str) -> Generator[str]:
    """Where a store is to be; on PostgreSQL there is an empty one."""
    if engine == "postgres":
        with postgres.empty_store() as address:
            yield address
    else:
        yield str(tmp_path / "store" / "state.db")


@pytest.fixture
def stores(tmp_path: Path, engine: str) -> Generator[Stores]:
    """Where several stores are to be: `stores / "a.db"`."""
    with ExitStack() as stack:
        yield Stores(tmp_path, engine, stack)


@pytest.fixture(scope="session", autouse=True)
def strict_children() -> None:
    """Every Python that a test starts raises what it warns of.

    What can't be raised is kept by strict/sitecustomize.py in a file, at which each test looks.
    """
    os.environ.pop("PYTHONDEVMODE", None)  # it may be this process's own: see dev_mode
    os.environ |= {
        "PYTHONPATH": str(Path(__file__).with_name("strict")),
        "PYTHONWARNINGS": "error",
        "TESTS_COMPLAINTS": str(COMPLAINTS),
    }


@pytest.fixture
def dev_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The children of this test run with `-X dev`, which makes a call twice as long.

    Its checks of memory are for extensions in C, and slow.
    """
    monkeypatch.setenv("PYTHONDEVMODE", "1")
    monkeypatch.setenv("PYTHONMALLOC", "default")


@pytest.fixture(autouse=True)
def nothing_was_left_unsaid(caplog: pytest.LogCaptureFixture) -> Generator[None]:
    """Fail for what asyncio could only log here, and for what Python could only print elsewhere."""
    yield
    left = left_unsaid([r for when in ("setup", "call") for r in caplog.get_records(when)])
    assert left == []


def left_unsaid(records: Sequence[logging.LogRecord]) -> list[str]:
    """What asyncio logged as lost, and the complaints of all children since the last look."""
    here = [r.getMessage() for r in records if (r.name, r.levelno) == ("asyncio", logging.ERROR)]
    elsewhere = COMPLAINTS.read_text(encoding="utf-8").splitlines()
    os.truncate(COMPLAINTS, 0)
    return here + elsewhere


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
            databases[database] = open_database(path, clock=clock)
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


@pytest.fixture(scope="session")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tour.Walked:
    return tour.Walked(tmp_path_factory.mktemp("walked"))


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
