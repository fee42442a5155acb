"""The board as an MCP App: what clients that render it get, and what it costs all others."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import Connect, text_of
from mcp import Client
from mcp.client import ClientExtension, advertise

from mcp_state import toolset
from mcp_state.server import published

BOARD = "ui://mcp-state/board"
MIME = "text/html;profile=mcp-app"
ANSWERS = "mcp-state/answers"
RENDERS = (advertise("io.modelcontextprotocol/ui", {"mimeTypes": [MIME]}),)
MODES = ("legacy", "2026-07-28")

in_both_generations = pytest.mark.parametrize("mode", MODES)


async def fill(client: Client) -> None:
    for thread, more in (
        ("fix-import", {}),
        ("ship", {"depends_on": ["fix-import"]}),
        ("sdk-bug", {"status": "blocked", "waiting_on": "upstream"}),
        ("old", {"status": "dropped", "note": "not needed"}),
    ):
        await client.call_tool("thread_set", {"thread": thread, **more})


async def answers(client: Client, tool: str, /, **arguments: Any) -> list[dict[str, Any]]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error
    return (result.meta or {})[ANSWERS]


def names(answer: dict[str, Any]) -> list[str]:
    return [thread["name"] for thread in answer["threads"]]


@in_both_generations
async def test_orient_and_the_list_bring_the_board_to_a_client_that_renders_it(
    connect: Connect, mode: str
) -> None:
    async with connect(mode=mode, extensions=RENDERS) as client:
        await fill(client)
        for tool in ("orient", "thread_list"):
            shown = await answers(client, tool)
            assert [(one["view"], one["params"], names(one["answer"])) for one in shown] == [
                ("threads", {"status": "active"}, ["fix-import", "ship"]),
                ("threads", {"status": "watching"}, []),
                ("threads", {"status": "blocked"}, ["sdk-bug"]),
            ]
            active = shown[0]["answer"]
            assert active["waits"] == [
                {"thread": "fix-import", "needs": [], "needed_by": ["ship"]},
                {"thread": "ship", "needs": ["fix-import"], "needed_by": []},
            ]
            assert active["scope"]["project"] == "acme"
            counts = {status: n for status, n in active["scope"]["threads"].items() if n}
        assert counts == {"active": 2, "blocked": 1, "dropped": 1}


async def test_the_app_reads_on_with_the_tools_of_the_model(connect: Connect) -> None:
    async with connect(extensions=RENDERS) as client:
        await fill(client)
        (first,) = await answers(client, "thread_list", status="active", limit=1)
        assert (first["params"], names(first["answer"])) == ({"status": "active"}, ["fix-import"])
        cursor = first["answer"]["cursor"]
        (second,) = await answers(client, "thread_list", status="active", cursor=cursor)
        assert second["params"] == {"status": "active", "cursor": cursor}
        assert names(second["answer"]) == ["ship"]
        (due,) = await answers(client, "thread_list", status="blocked", due=True)
        assert (due["params"], names(due["answer"])) == ({"status": "blocked", "due": True}, [])
        (thread,) = await answers(client, "thread_get", thread="ship")
        assert (thread["view"], thread["params"]) == ("thread", {"name": "ship"})
        assert thread["answer"]["thread"]["depends_on"] == ["fix-import"]


async def test_a_card_comes_without_what_it_does_not_show(connect: Connect) -> None:
    async with connect(extensions=RENDERS) as client:
        await client.call_tool("fact_record", {"fact": "f", "statement": "so", "check": "x" * 900})
        places = [{"role": "home", "path_or_repo": "y" * 900, "note": "z" * 900}]
        await client.call_tool("thread_set", {"thread": "t", "relies_on": ["f"], "places": places})
        for tool in ("orient", "thread_list"):
            (card,) = (await answers(client, tool))[0]["answer"]["threads"]
            assert card["relies_on"] == [{"name": "f", "trust": "provisional"}]
            assert len(str(card)) < 900
        (detail,) = await answers(client, "thread_get", thread="t")
        assert detail["answer"]["thread"]["places"] == places


@in_both_generations
@pytest.mark.parametrize(
    "extensions",
    [(), (advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/x"]}),)],
    ids=["none", "other types"],
)
async def test_a_client_that_renders_no_apps_gets_the_text_alone(
    connect: Connect, mode: str, extensions: tuple[ClientExtension, ...]
) -> None:
    async with connect(mode=mode, extensions=RENDERS) as client:
        await fill(client)
        rendered = await client.call_tool("thread_list", {})
    async with connect(mode=mode, extensions=extensions) as client:
        result = await client.call_tool("thread_list", {})
    assert ANSWERS not in (result.meta or {})
    assert text_of(result) == text_of(rendered)
    assert result.structured_content is rendered.structured_content is None


async def test_no_other_tool_brings_anything(connect: Connect) -> None:
    async with connect(extensions=RENDERS) as client:
        await fill(client)
        for tool in ("memory_get", "journal_tail", "fact_list"):
            result = await client.call_tool(tool, {})
            assert ANSWERS not in (result.meta or {})


async def test_an_answer_goes_without_a_board_where_there_is_none(connect: Connect) -> None:
    async with connect(extensions=RENDERS) as client:
        other = await client.call_tool("orient", {"project": "nowhere"})
        assert not other.is_error
        assert text_of(other).startswith("project nowhere ")
        assert ANSWERS not in (other.meta or {})
        missing = await client.call_tool("thread_get", {"thread": "nobody"})
        assert text_of(missing).startswith("error: not_found: ")
        assert ANSWERS not in (missing.meta or {})
    async with connect(extensions=RENDERS, project="") as client:
        result = await client.call_tool("orient", {})
        assert (result.is_error, ANSWERS in (result.meta or {})) == (False, False)


async def test_a_projects_board_holds_no_other_project(connect: Connect) -> None:
    async with connect(extensions=RENDERS) as client:
        await fill(client)
        await client.call_tool("thread_set", {"thread": "theirs", "project": "other"})
        mine = await client.call_tool("orient", {})
        assert "theirs" not in mine.model_dump_json()
        theirs = await answers(client, "orient", project="other")
        assert [names(one["answer"]) for one in theirs] == [["theirs"], [], []]


def test_the_board_is_bound_to_orient_and_the_list_and_costs_no_tokens() -> None:
    bound = {
        spec.name: (published(spec).meta or {})["ui"]
        for spec in toolset.load("all").tools
        if "ui" in (published(spec).meta or {})
    }
    assert bound == {name: {"resourceUri": BOARD} for name in ("orient", "thread_list")}


@in_both_generations
async def test_the_board_is_one_document_that_needs_nothing_else(
    connect: Connect, mode: str
) -> None:
    async with connect(mode=mode) as client:
        listed = {str(r.uri): r.mime_type for r in (await client.list_resources()).resources}
        assert listed[BOARD] == MIME
        (document,) = (await client.read_resource(BOARD)).contents
    assert document.mime_type == MIME
    assert document.meta == {"ui": {"prefersBorder": True}}
    html = getattr(document, "text", "")
    assert html.startswith("<!doctype html>")
    assert html.count("<script") == html.count("</script>") == 2
    assert html.count("<style>") == html.count("</style>") == 1
    assert re.findall(r'<[^>]+\s(?:src|href)="(?!#|data:,")[^"]*"', html) == []
    assert not re.search(r"@import|url\(", html)
    assert len(html) < 200_000


async def test_the_server_says_that_it_has_an_app(connect: Connect) -> None:
    async with connect(mode="auto") as client:
        assert client.server_capabilities.extensions == {"io.modelcontextprotocol/ui": {}}
