"""What an open page is told, from whatever process, and that nothing is done for nobody."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from browsing import Browser, browsing, next_event
from conftest import Open

from mcp_state.api import State
from mcp_state.errors import StoreBusy
from mcp_state.live import Live
from mcp_state.models import Actor, Caller
from mcp_state.settings import Settings
from mcp_state.store.database import open_database
from mcp_state.web import live
from mcp_state.web.live import events

PROGRAM = str(Path(sys.executable).with_name("mcp-state"))


@pytest.fixture(autouse=True)
def no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks as well: what it tells, a page would be told late."""
    monkeypatch.setattr(live, "_HEARTBEAT", 3600.0)


@pytest.fixture
async def page(settings: Settings) -> AsyncGenerator[Browser]:
    async with browsing(settings) as browser:
        yield browser


async def elsewhere(path: str, *words: str, project: str = "") -> None:
    """Run a command in another process."""
    command = [PROGRAM, *words, "--db", path, *(["--project", project] if project else [])]
    done = await asyncio.to_thread(
        subprocess.run, command, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


async def test_a_page_is_told_of_what_other_processes_write(page: Browser, path: str) -> None:
    async with page.listening() as stream:
        assert await next_event(stream) == ("change", {"event": 0})
        await elsewhere(path, "journal", "append", "one", project="acme")
        assert await next_event(stream) == ("change", {"event": 1})
        await elsewhere(path, "memory", "set", "plan", "two", project="acme")
        assert await next_event(stream) == ("change", {"event": 2})


async def test_a_page_is_told_of_its_own_project_only(
    page: Browser, path: str, open_state: Open
) -> None:
    await open_state(project="other").journal.append("there is another one")
    async with page.listening() as ours, page.listening(project="Other") as theirs:
        assert await next_event(ours) == ("change", {"event": 0})
        assert await next_event(theirs) == ("change", {"event": 1})
        await elsewhere(path, "journal", "append", "theirs", project="other")
        assert await next_event(theirs) == ("change", {"event": 2})
        await elsewhere(path, "journal", "append", "ours", project="acme")
        assert await next_event(ours) == ("change", {"event": 1})


async def test_what_one_page_does_another_server_shows(
    page: Browser, settings: Settings, mine: State
) -> None:
    await mine.memory.set("plan", "x")
    async with browsing(settings) as second, second.listening() as stream:
        assert await next_event(stream) == ("change", {"event": 1})
        assert (await page.do("lock", key="plan", reason="mine")).status == 200
        assert await next_event(stream) == ("change", {"event": 2})
        assert (await second.view("memory")).json["blocks"][0]["locked"] == "mine"


@pytest.mark.sqlite
async def test_a_page_is_told_when_the_store_breaks_and_when_it_is_mended(
    page: Browser, path: str, tmp_path: Path
) -> None:
    await elsewhere(path, "journal", "append", "one", project="acme")
    await elsewhere(path, "backup", str(tmp_path / "copy.db"))
    async with page.listening() as stream:
        assert await next_event(stream) == ("change", {"event": 1})
        await asyncio.to_thread((tmp_path / "none").write_bytes, b"no store " * 400)
        (tmp_path / "none").replace(path)  # at once: half of it would be another problem
        kind, told = await next_event(stream)
        assert (kind, told["error"]["code"]) == ("problem", "store_damaged")
        assert set(told["error"]) == {"code", "fact", "next_step"}
        await elsewhere(path, "restore", str(tmp_path / "copy.db"))
        assert await next_event(stream) == ("change", {"event": 1})


@pytest.mark.sqlite
async def test_a_page_of_a_broken_store_waits_for_it(settings: Settings, path: str) -> None:
    Path(path).parent.mkdir()
    Path(path).write_bytes(b"no store " * 400)  # noqa: ASYNC240
    async with browsing(settings) as page, page.listening(project="any") as stream:
        kind, told = await next_event(stream)
        assert (kind, told["error"]["code"]) == ("problem", "store_damaged")


async def test_a_line_tells_now_and_then_that_the_connection_is_there(
    page: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_HEARTBEAT", 0.001)
    async with page.listening() as stream:
        await next_event(stream)
        async with asyncio.timeout(20):
            await stream.readuntil(b": still here\n\n")


async def test_a_page_that_was_closed_is_forgotten(
    page: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = asyncio.Event()
    rest = Live._rest  # pyright: ignore[reportPrivateUsage]

    def spy(self: Live) -> None:
        rest(self)
        if not self.is_watching:
            left.set()

    monkeypatch.setattr(Live, "_rest", spy)
    async with page.listening() as stream:
        await next_event(stream)
        assert not left.is_set()
    async with asyncio.timeout(20):
        await left.wait()


async def test_a_bounded_number_listens(page: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_LISTENERS", 2)
    async with AsyncExitStack() as open_pages:
        for _ in range(2):
            await next_event(await open_pages.enter_async_context(page.listening()))
        reply = await page.get("api/live")
        assert (reply.status, reply.json["error"]) == (
            503,
            {
                "code": "store_busy",
                "fact": "2 pages listen to this server already",
                "next_step": "Close one of them; until then, reload this one to see changes.",
            },
        )
        assert (await page.view("overview")).status == 200


async def test_the_bound_is_that_of_the_module(path: str) -> None:
    database = open_database(path)
    watched = Live(database)
    streams = [events(watched, Caller("a", "", Actor("p"))) for _ in range(live.MOST_LISTENERS)]
    for stream in streams:
        await anext(stream)
    with pytest.raises(StoreBusy):
        events(watched, Caller("a", "", Actor("p")))
    for stream in streams:
        await stream.aclose()
    await database.aclose()


async def test_no_more_listen_if_all_come_at_once(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_LISTENERS", 2)
    database = open_database(path)
    watched = Live(database)
    streams = [events(watched, Caller("a", "", Actor("p"))) for _ in range(5)]
    told = [await anext(stream, b"over") for stream in streams]
    assert told == [b'event: change\ndata: {"event":0}\n\n'] * 2 + [b"over"] * 3
    for stream in streams:
        await stream.aclose()
    await database.aclose()
