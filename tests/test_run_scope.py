"""What belongs to a run: its own memory, and what a session writes while it works on it."""

from __future__ import annotations

import pytest
from conftest import Call, Connect, FakeClock, Open, text_of

from mcp_state.api import State
from mcp_state.errors import Conflict, Locked, NotFound, VersionConflict
from mcp_state.models import MemoryBlock, MissingBlock


async def value(state: State, key: str, run: str = "", version: int | None = None) -> str:
    block = await state.memory.get(key, run=run, version=version)
    assert isinstance(block, MemoryBlock)
    return block.value


@pytest.fixture
async def runs(state: State) -> State:
    """A state with two open runs, neither of which its session has begun."""
    await state.runs.begin("first", run="One")
    await state.runs.begin("second", run="two")
    return state


async def test_the_same_key_is_another_block_in_each_run_and_in_the_project(runs: State) -> None:
    for number, run in enumerate(("", "one", "two")):
        await runs.memory.set("Plan", f"text {number}", run=run, expected_version=0)
        await runs.memory.append("plan", "!", run=run, expected_version=1)
    assert [await value(runs, "plan", run) for run in ("", "ONE", "two")] == [
        "text 0!",
        "text 1!",
        "text 2!",
    ]
    assert await value(runs, "plan", "one", version=1) == "text 1"
    assert [b.key for b in (await runs.memory.blocks()).blocks] == ["Plan"]
    (block,) = (await runs.memory.blocks(run="one")).blocks
    assert (block.key, block.run, block.version) == ("Plan", "One", 2)
    assert runs.totals.memory == 1
    await runs.memory.delete("plan", run="one")
    missing = await runs.memory.get("plan", run="one")
    assert isinstance(missing, MissingBlock)
    assert (missing.run, missing.version, missing.keys) == ("One", 3, [])
    assert await value(runs, "plan") == "text 0!"
    await runs.memory.restore("plan", 1, run="one")
    assert await value(runs, "plan", "one") == "text 1"


async def test_a_key_with_a_slash_is_no_block_of_a_run(runs: State) -> None:
    await runs.memory.set("one/plan", "of the project")
    await runs.memory.set("plan", "of the run", run="one")
    assert await value(runs, "one/plan") == "of the project"
    assert await value(runs, "plan", "one") == "of the run"
    for _ in range(2):
        await runs.memory.append("one/plan", ".")
    history = (await runs.events.history("memory:one/plan")).events
    assert [e.version for e in history] == [1, 2, 3]


async def test_history_of_a_block_of_a_run_is_asked_for_by_run_and_key(runs: State) -> None:
    await runs.memory.set("a/b", "1", run="one")
    await runs.memory.set("a/b", "2", run="one")
    events = (await runs.events.history("memory:ONE/A/B")).events
    assert [(e.subject, e.version) for e in events] == [
        ("memory:one/a/b", 1),
        ("memory:one/a/b", 2),
    ]


async def test_a_run_that_is_not_there_is_refused_with_near_names(runs: State) -> None:
    for refused in (
        runs.memory.set("plan", "x", run="onee"),
        runs.memory.get("plan", run="onee"),
        runs.memory.blocks(run="onee"),
        runs.journal.append("x", run="onee"),
        runs.journal.tail(run="onee"),
        runs.search.find("x", run="onee"),
        runs.threads.set("t", run="onee"),
    ):
        with pytest.raises(NotFound, match="no run 'onee'; there is 'One'"):
            await refused
    assert runs.totals.all_threads == 0


async def test_refusals_name_the_run(runs: State) -> None:
    await runs.memory.set("plan", "x", run="one")
    with pytest.raises(VersionConflict) as refused:
        await runs.memory.set("plan", "y", run="one", expected_version=7)
    assert str(refused.value) == (
        "version_conflict: block 'plan' of run 'One' is at version 1, not 7 (written by codex "
        'just now). Read it with memory_get(key="plan", run_id="One"), merge, and write again '
        "with expected_version=1."
    )
    await runs.memory.lock("plan", "keep it", run="one")
    with pytest.raises(Locked, match="block 'plan' of run 'One' was locked"):
        await runs.memory.append("plan", "y", run="one")
    await runs.memory.set("plan", "free")
    with pytest.raises(NotFound, match="no block of run 'two' 'nope'"):
        await runs.memory.delete("nope", run="two")


async def test_an_idempotency_key_is_for_one_block_of_one_run(runs: State) -> None:
    await runs.memory.append("log", "x", run="one", idempotency_key="k")
    again = await runs.memory.append("log", "x", run="one", idempotency_key="k")
    assert (again.value, again.repeated) == ("x", True)
    for run in ("", "two"):
        with pytest.raises(Conflict):
            await runs.memory.append("log", "x", run=run, idempotency_key="k")


async def test_writes_belong_to_the_run_that_the_session_last_worked_on_while_it_is_open(
    open_state: Open,
) -> None:
    one, two = open_state(session="s1"), open_state(session="s2")
    await one.runs.begin("x", run="A")
    await one.runs.begin("x", run="B")
    await two.journal.append("of none")
    await one.journal.append("of b")
    await one.steps.begin("a", "1")
    await one.journal.append("of a")
    await one.threads.set("t")
    await one.memory.set("plan", "of the project, for a")
    await one.journal.append("of b, said so", run="b")
    await one.runs.checkpoint("b", "here")
    await one.threads.set("t", note="for b")
    await one.runs.finish("b", "abandoned", reflection="enough")
    await one.journal.append("of none any more")
    await two.runs.begin("", run="a")
    await two.journal.append("of a, by another session")
    events = (await one.events.history(limit=100)).events
    assert [(e.run, e.kind, e.operation) for e in events] == [
        ("a", "run", "begin"),
        ("b", "run", "begin"),
        ("", "journal", "append"),
        ("b", "journal", "append"),
        ("a", "step", "begin"),
        ("a", "journal", "append"),
        ("a", "thread", "create"),
        ("a", "memory", "set"),
        ("b", "journal", "append"),
        ("b", "checkpoint", "checkpoint"),
        ("b", "thread", "set"),
        ("b", "run", "finish"),
        ("", "journal", "append"),
        ("a", "run", "join"),
        ("a", "journal", "append"),
    ]
    assert await value(one, "plan") == "of the project, for a"
    assert [e.text for e in (await one.journal.tail(run="A")).entries] == [
        "of a",
        "of a, by another session",
    ]
    page = await one.journal.tail(run="b", limit=1)
    assert ([e.text for e in page.entries], page.older) == (["of b, said so"], 1)
    assert [e.run for e in page.entries] == ["B"]


async def test_the_journal_of_a_run_is_narrowed_further(runs: State) -> None:
    await runs.threads.set("t")
    await runs.journal.append("1", run="one", kind="note", thread="t")
    await runs.journal.append("2", run="one", kind="dead_end")
    await runs.journal.append("3", run="two", kind="note", thread="t")
    assert [e.text for e in (await runs.journal.tail(run="one", kind="note")).entries] == ["1"]
    assert [e.text for e in (await runs.journal.tail(run="two", thread="t")).entries] == ["3"]
    assert [e.text for e in (await runs.journal.tail(run="one", actor="codex")).entries] == [
        "1",
        "2",
    ]


async def test_search_finds_runs_and_what_belongs_to_them(runs: State, clock: FakeClock) -> None:
    await runs.memory.set("plan", "a zebra crossing", run="one")
    await runs.journal.append("a zebra in the journal", run="one")
    await runs.journal.append("a zebra of the other", run="two")
    await runs.memory.set("short", "zebra for a minute", run="one", ttl="1m")
    await runs.runs.checkpoint("one", "counted every zebra", next_action="count gnus")
    await runs.runs.finish("two", "failed", reflection="the zebra ran away")
    found = (await runs.search.find("zebra")).hits
    assert {(h.kind, h.name) for h in found} == {
        ("memory", "One/plan"),
        ("memory", "One/short"),
        ("journal", "4"),
        ("journal", "5"),
        ("run", "One"),
        ("run", "two"),
    }
    clock.move(minutes=2)
    narrowed = (await runs.search.find("zebra", run="one")).hits
    assert {(h.kind, h.name) for h in narrowed} == {
        ("memory", "One/plan"),
        ("journal", "4"),
        ("run", "One"),
    }
    (hit,) = (await runs.search.find("gnus", kinds=["runs"])).hits
    assert (hit.kind, hit.name) == ("run", "One")
    assert (await runs.search.find("gnus", run="two")).hits == []


async def test_resuming_names_the_blocks_that_were_written_since_the_checkpoint(
    runs: State, call: Call
) -> None:
    await runs.memory.set("cursor", "41", run="one")
    await runs.memory.set("gone", "x", run="one")
    await runs.memory.set("same", "x", run="one")
    await runs.runs.checkpoint("one", "at 41")
    await runs.memory.append("cursor", "2", run="one")
    await runs.memory.set("new", "x", run="one")
    await runs.memory.delete("gone", run="one")
    found = await runs.runs.resume("one")
    assert [(b.key, b.value) for b in found.memory] == [
        ("cursor", "41"),
        ("gone", "x"),
        ("same", "x"),
    ]
    assert found.memory_since == [("gone", 0), ("new", 1), ("cursor", 2)]
    assert (
        "    memory written since then: gone (gone), new (version 1 now), cursor (version 2 now); "
        'memory_get(run_id="One") reads it\n'
    ) in await call("run_resume", run_id="one")


async def test_through_the_tools_a_block_of_a_run_is_told_from_one_of_the_project(
    call: Call, connect: Connect
) -> None:
    await call("run_begin", run_id="Reindex", goal="all of it")
    assert (await call("memory_get", run_id="reindex")).startswith(
        "No blocks of run Reindex yet. memory_set(key, value, run_id) makes one.\n"
    )
    await call("memory_set", key="cursor", value="41", run_id="reindex")
    assert (await call("memory_get", key="cursor", run_id="reindex")).splitlines()[:2] == [
        "41",
        "cursor of run Reindex · version 1 · 2/4096 chars · mcp just now",
    ]
    assert (await call("memory_get", key="cursor")).startswith('no such block "cursor".')
    deleted = await call("memory_delete", key="cursor", run_id="reindex")
    assert deleted.startswith(
        "deleted: cursor, which was at version 1. "
        'memory_restore(key="cursor", version=1, run_id="Reindex") brings it back.'
    )
    gone = await call("memory_get", key="cursor", run_id="reindex")
    assert gone.startswith(
        'block "cursor" was deleted; memory_get(key="cursor", run_id="Reindex", version=1) still '
        "reads its last text. There are no blocks of run Reindex now"
    )
    await call("memory_restore", key="cursor", version=1, run_id="reindex")
    await call("journal_append", text="one more", run_id="reindex")
    assert "mcp just now [run Reindex]" in await call("journal_tail", run_id="reindex")
    hits = await call("search", query="41", run_id="reindex")
    assert "memory:Reindex/cursor (memory of a run: key and run_id)  mcp just now" in hits
    async with connect(toolset="readonly") as reader:
        read = text_of(await reader.call_tool("memory_get", {"key": "cursor", "run_id": "reindex"}))
    assert read.startswith("41\n")
