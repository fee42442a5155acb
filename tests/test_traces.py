"""With `serve --trace`, a run keeps what it read and what it was told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from conftest import Connect, Open, text_of
from mcp import Client

from mcp_state.store.traces import Traces

READS = (
    ("search", {"query": "parser"}),
    ("memory_get", {"key": "plan"}),
    ("state_op", {"op": "history", "arguments": {"subject": "memory:plan"}}),
    ("thread_get", {"thread": "nope"}),
)


async def work(client: Client, *, run: bool) -> list[str]:
    """Write something, then read; returns the texts of the reads."""
    await client.call_tool("memory_set", {"key": "plan", "value": "the parser first"})
    if run:
        await client.call_tool("run_checkpoint", {"run_id": "Reindex", "state": "begun"})
    return [text_of(await client.call_tool(tool, arguments)) for tool, arguments in READS]


async def traces(open_state: Open) -> list[Mapping[str, Any]]:
    events = (await open_state().events.history("trace:reindex", limit=100)).events
    assert {(e.run, e.kind) for e in events} <= {("reindex", "trace")}
    return [e.row for e in events if e.row and e.operation != "refused"]


async def test_each_read_of_a_run_is_kept_with_its_answer(
    connect: Connect, open_state: Open
) -> None:
    async with connect(trace=True) as client:
        answers = [a.rpartition("\n")[0] for a in await work(client, run=True)]
    kept = await traces(open_state)
    assert sorted(kept, key=json.dumps) == sorted(
        (
            {"tool": "search", "arguments": {"query": "parser"}, "answer": answers[0]},
            {"tool": "memory_get", "arguments": {"key": "plan"}, "answer": answers[1]},
            {"tool": "history", "arguments": {"subject": "memory:plan"}, "answer": answers[2]},
            {"tool": "thread_get", "arguments": {"thread": "nope"}, "answer": answers[3]},
        ),
        key=json.dumps,
    )
    async with connect(toolset="all") as client:
        shown = text_of(await client.call_tool("history", {"subject": "run:reindex"}))
    assert 'trace reindex memory_get {"key": "plan"} -> the parser first' in shown


async def test_without_trace_or_without_a_run_nothing_is_kept(
    connect: Connect, open_state: Open
) -> None:
    async with connect(trace=True) as client:
        await work(client, run=False)
    assert await traces(open_state) == []
    async with connect() as client:
        await work(client, run=True)
    assert await traces(open_state) == []


async def test_a_server_that_only_reads_keeps_no_trace(connect: Connect, open_state: Open) -> None:
    async with connect() as client:
        await work(client, run=True)
    before = (await open_state().events.history()).events[-1].seq
    async with connect(trace=True, toolset="readonly") as client:
        await client.call_tool("run_resume", {})
        await client.call_tool("search", {"query": "parser", "run_id": "reindex"})
    assert (await open_state().events.history()).events[-1].seq == before


async def test_a_read_that_names_its_run_is_kept_there_and_news_stay_free_of_traces(
    connect: Connect, open_state: Open
) -> None:
    async with connect(session="s1") as client:
        await work(client, run=True)
    async with connect(session="s2", agent="ben", trace=True) as client:
        await client.call_tool("run_resume", {"run_id": "REINDEX"})
    assert [t["tool"] for t in await traces(open_state)] == ["run_resume"]
    packet = str(await open_state(session="s1").orient())
    assert "trace" not in packet


async def test_a_credential_that_was_searched_for_is_not_kept(
    connect: Connect, open_state: Open
) -> None:
    secret = "ghp_" + "a" * 36
    async with connect(trace=True) as client:
        await work(client, run=True)
        await client.call_tool("search", {"query": secret})
    assert secret not in json.dumps(await traces(open_state))


async def test_what_was_read_of_another_project_stays_there(
    connect: Connect, open_state: Open
) -> None:
    async with connect(trace=True) as client:
        await work(client, run=True)
        other = {"op": " memory_get ", "arguments": '{"key": "plan"}', "project": "other"}
        await client.call_tool("state_op", other)
        inner = {"op": "memory_get", "arguments": {"key": "plan", "project": "other"}}
        await client.call_tool("state_op", inner)
    assert len(await traces(open_state)) == len(READS)
    assert not (await open_state(project="other").events.history()).events


async def test_traces_are_no_news_and_hide_none(connect: Connect, open_state: Open) -> None:
    ben = open_state(agent="ben", session="s2")
    async with connect(session="s1", trace=True) as client:
        await work(client, run=True)
        for number in range(3):
            await ben.journal.append(f"news {number}")
        await client.call_tool("run_resume", {})
        packet = text_of(await client.call_tool("orient", {}))
    assert "ben: 3 entries in the journal" in packet
    assert "SINCE YOU WERE HERE\n" in packet
    found = await open_state(session="s1").runs.resume("reindex")
    assert found.since is not None
    assert (found.since.own, found.since.others) == (0, 3)


async def test_a_trace_that_cannot_be_kept_delays_neither_answer_nor_end(
    connect: Connect, open_state: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: Any, **given: Any) -> bool:
        raise RuntimeError("no disk")

    async with connect(trace=True) as client:
        await work(client, run=True)
        monkeypatch.setattr(Traces, "record", fail)
        assert "the parser first" in text_of(await client.call_tool("memory_get", {"key": "plan"}))
    assert len(await traces(open_state)) == len(READS)
