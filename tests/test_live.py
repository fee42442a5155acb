"""Who listens to a project hears of it alone: what became of it, once, and all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import Open
from test_changes import PATIENCE, elsewhere

from mcp_state import live as module
from mcp_state.api import State
from mcp_state.errors import StateError
from mcp_state.live import Listener, Live, News
from mcp_state.models import Actor, Caller
from mcp_state.store.database import Database, open_database
from mcp_state.store.projects import Projects
from mcp_state.store.text import within

ACME = Caller("acme", "argument", Actor("person"))
OTHER = Caller("other", "argument", Actor("person"))
NOTHING = frozenset[tuple[str, str]]()


async def news_of(listener: Listener) -> News:
    async with asyncio.timeout(PATIENCE):
        news = await listener.news()
    assert news is not None
    return news


async def has_none(listener: Listener) -> bool:
    """Whether it has not been told anything that it did not take."""
    try:
        async with asyncio.timeout(0):
            await listener.news()
    except TimeoutError:
        return True
    return False


@pytest.fixture
async def live(mine: State) -> AsyncGenerator[Live]:
    live = Live(mine.database)
    yield live
    assert not live.is_watching


@pytest.fixture
def reads(mine: State, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The projects that were asked for, of any read, in order."""
    seen: list[str] = []
    engine: Any = type(mine.database)
    read = engine.read

    async def spy(self: Database, caller: Caller, body: Any) -> Any:
        seen.append(caller.project)
        return await read(self, caller, body)

    monkeypatch.setattr(engine, "read", spy)
    return seen


async def test_what_changed_is_told_as_events_have_it(
    live: Live, mine: State, theirs: State
) -> None:
    await mine.runs.begin("x", run="bench")
    async with live.listening(ACME) as listener:
        assert await news_of(listener) == News(1, NOTHING)
        await mine.memory.set("Plan", "x")
        assert await news_of(listener) == News(2, frozenset({("memory", "plan")}))
        await theirs.journal.append("x")
        assert await news_of(listener) == News(3, frozenset({("journal", "3")}))
        await theirs.threads.set("pr-1", title="x")
        assert await news_of(listener) == News(4, frozenset({("thread", "pr-1")}))
        await mine.memory.set("Plan", "x", run="bench")
        block = ("memory", within("bench", "plan"))
        assert await news_of(listener) == News(5, frozenset({block}))


async def test_nothing_is_missed_between_joining_and_waiting(
    live: Live, mine: State, theirs: State
) -> None:
    async with live.listening(ACME) as listener:
        await theirs.memory.set("a", "x")
        await mine.memory.set("b", "x")
        assert await news_of(listener) == News(0, NOTHING)
        seen: set[tuple[str, str]] = set()
        while len(seen) < 2:
            subjects = (await news_of(listener)).subjects
            if subjects is None:  # the project began
                break
            seen |= subjects
        assert live.listeners == 1


async def test_what_is_not_taken_yet_becomes_one(live: Live, mine: State) -> None:
    await mine.memory.set("first", "x")
    async with live.listening(ACME) as slow, live.listening(ACME) as quick:
        await news_of(quick)
        for number in range(3):
            await mine.memory.set(f"b{number}", "x")
            assert (await news_of(quick)).event == number + 2
        blocks = frozenset({("memory", f"b{number}") for number in range(3)})
        assert await news_of(slow) == News(4, blocks)
        assert await has_none(slow)


async def test_nobody_is_woken_for_another_project(
    live: Live, mine: State, open_state: Open
) -> None:
    other = open_state(project="other", database="elsewhere")
    await mine.memory.set("plan", "x")
    await other.memory.set("secret", "x")
    async with live.listening(ACME) as ours, live.listening(OTHER) as others:
        await news_of(ours)
        await news_of(others)
        for event in range(2, 5):
            await other.memory.set("secret", f"x{event}")
            assert await news_of(others) == News(event, frozenset({("memory", "secret")}))
        assert await has_none(ours)
        await mine.memory.set("plan", "y")
        assert await news_of(ours) == News(2, frozenset({("memory", "plan")}))
        assert await has_none(others)


async def test_one_look_is_for_all_who_listen(
    live: Live, mine: State, theirs: State, reads: list[str]
) -> None:
    await mine.memory.set("plan", "x")
    async with AsyncExitStack() as stack:
        callers = [ACME] * 20 + [OTHER] * 20
        all_of_them = [await stack.enter_async_context(live.listening(c)) for c in callers]
        for listener in all_of_them:
            await news_of(listener)
        reads.clear()
        await theirs.memory.set("plan", "y")
        for listener in all_of_them[:20]:
            await news_of(listener)
        assert reads.count("acme") == 1
        assert reads.count("") <= 3  # that of the beginning, that of the change, and one between
        assert set(reads) == {"acme", ""}


async def test_nobody_is_looked_for_when_nobody_listens(live: Live, mine: State) -> None:
    before = asyncio.all_tasks()
    async with live.listening(ACME) as first:
        async with live.listening(ACME):
            assert live.is_watching
        await news_of(first)
        assert live.is_watching
        tasks = asyncio.all_tasks() - before
    assert not live.is_watching
    await asyncio.wait(tasks, timeout=PATIENCE)
    assert asyncio.all_tasks() == before


async def test_who_is_cancelled_while_joining_is_forgotten(live: Live) -> None:
    joining = asyncio.create_task(live.join(ACME))
    async with live._looking:  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0)
        assert live.listeners == 1
        joining.cancel()
        await asyncio.wait([joining], timeout=PATIENCE)
    assert (joining.cancelled(), live.listeners) == (True, 0)


async def test_a_project_that_begins_may_be_anything(live: Live, mine: State) -> None:
    async with live.listening(ACME) as listener:
        assert await news_of(listener) == News(0, NOTHING)
        await mine.journal.append("x")
        assert await news_of(listener) == News(1, None)


async def test_so_may_one_that_was_renamed_or_merged(
    live: Live, mine: State, open_state: Open
) -> None:
    await mine.journal.append("x")
    await open_state(project="other").journal.append("y")
    async with live.listening(ACME) as listener:
        await news_of(listener)
        await Projects(mine.database, ACME).rename("acme-2")
        assert await news_of(listener) == News(2, None)
        await Projects(mine.database, ACME).merge("other")
        assert (await news_of(listener)).subjects is None


async def test_too_much_at_once_may_be_anything(
    live: Live, mine: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_EVENTS", 3)

    def write(count: int) -> Any:
        def body(tx: Any) -> None:
            for number in range(count):
                tx.event("set", "x", None, subject=("memory", f"b{number}"))

        return mine.database.write(mine.caller, body)

    await write(1)
    async with live.listening(ACME) as listener, live.listening(ACME) as slow:
        await news_of(listener)
        await write(3)
        assert await news_of(listener) == News(
            4, frozenset({("memory", "b0"), ("memory", "b1"), ("memory", "b2")})
        )
        await write(4)
        assert await news_of(listener) == News(8, None)
        assert await news_of(slow) == News(8, None)


async def test_a_trace_of_a_read_touches_nothing_and_a_refusal_no_block(
    live: Live, mine: State
) -> None:
    await mine.runs.begin("x", run="bench")
    await mine.memory.set("plan", "x")
    async with live.listening(ACME) as listener:
        await news_of(listener)
        await mine.traces.record("orient", {}, "answer", run="bench")
        assert await news_of(listener) == News(3, NOTHING)
        with pytest.raises(StateError, match="version_conflict"):
            await mine.memory.set("plan", "y", expected_version=9)
        assert await news_of(listener) == News(4, frozenset({("refused", "")}))


@pytest.mark.sqlite
async def test_a_store_that_breaks_is_told_once_and_then_that_it_is_mended(
    mine: State, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RETRY", 0.0)
    await mine.journal.append("x")
    await mine.database.aclose()
    await elsewhere(path, "backup", str(tmp_path / "copy.db"))
    database = open_database(path)
    live = Live(database)
    async with live.listening(ACME) as listener:
        assert await news_of(listener) == News(1, NOTHING)
        (tmp_path / "none").write_bytes(b"no store " * 400)
        (tmp_path / "none").replace(path)
        news = await news_of(listener)
        assert news.subjects is None
        assert news.problem is not None and news.problem.code == "store_damaged"
        async with live.listening(ACME) as late:
            told = await news_of(late)
            assert told.problem is not None and str(told.problem) == str(news.problem)
            assert await has_none(listener)
            await elsewhere(path, "restore", str(tmp_path / "copy.db"))
            assert await news_of(listener) == News(1, None)
            assert await news_of(late) == News(1, None)
    await database.aclose()


async def test_a_look_that_failed_is_made_again_though_nothing_changed(
    live: Live, mine: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_RETRY", 0.0)
    await mine.journal.append("x")
    engine: Any = type(mine.database)
    read, failing, tried = engine.read, True, 0

    async def fail(self: Database, caller: Caller, body: Any) -> Any:
        nonlocal tried
        tried += 1
        if failing:
            raise ZeroDivisionError("nobody foresaw this")
        return await read(self, caller, body)

    async with live.listening(ACME) as early:
        await news_of(early)
        monkeypatch.setattr(engine, "read", fail)
        async with live.listening(ACME) as listener:
            news = await news_of(listener)
            assert str(news.problem) == "internal: ZeroDivisionError: nobody foresaw this."
            assert tried == 1
            async with AsyncExitStack() as stack:  # who comes now is told what is known
                for late in [await stack.enter_async_context(live.listening(ACME)) for _ in "123"]:
                    assert (await news_of(late)).problem is news.problem
                assert tried == 1
            failing = False
            assert await news_of(listener) == News(1, None)
    assert "the store could not be looked at" in caplog.text


async def test_closing_lets_all_go_and_whoever_comes_later(mine: State) -> None:
    live = Live(mine.database)
    async with live.listening(ACME) as listener:
        await news_of(listener)
        live.close()
        assert await listener.news() is None
        assert await listener.news() is None
        async with live.listening(ACME) as late:
            assert await late.news() is None
    assert not live.is_watching


async def test_news_that_comes_too_late_does_not_keep_who_was_let_go() -> None:
    listener = Listener(ACME)
    listener.end()
    listener.put((1, 1), News(1, None))
    assert [await listener.news(), await listener.news()] == [None, None]


async def test_closing_the_store_lets_all_go(mine: State) -> None:
    live = Live(mine.database)
    async with live.listening(ACME) as listener:
        await news_of(listener)
        await mine.journal.append("x")
        await news_of(listener)
        await mine.database.aclose()
        async with asyncio.timeout(PATIENCE):
            assert await listener.news() is None
