"""What clients see of every tool, as it was reviewed: `mcp_state/listing.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import Connect
from mcp import Client

from mcp_state import front, toolset
from mcp_state.server import published
from mcp_state.tools import ALL_TOOLS
from mcp_state.tools.spec import Spec

LISTED = json.loads(Path(front.__file__).with_name("listing.json").read_text(encoding="utf-8"))
MOST_TOKENS = 2990

each_tool = pytest.mark.parametrize("spec", ALL_TOOLS, ids=lambda spec: spec.name)


def wire(spec: Spec) -> dict[str, Any]:
    return published(spec).model_dump(mode="json", by_alias=True, exclude_none=True)


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        node = cast(dict[str, Any], schema)
        yield node
        for value in node.values():
            yield from nodes(value)
    elif isinstance(schema, list):
        for value in cast(list[Any], schema):
            yield from nodes(value)


def tokens(tool: dict[str, Any]) -> float:
    """Characters of the compact JSON of name, description and input schema, divided by 4."""
    seen = {key: tool[key] for key in ("name", "description", "inputSchema")}
    return len(json.dumps(seen, separators=(",", ":"), ensure_ascii=False)) / 4


@each_tool
def test_the_published_tool_is_as_reviewed(spec: Spec) -> None:
    assert wire(spec) == LISTED["tools"][spec.name]


def test_no_tool_is_listed_that_there_is_not() -> None:
    assert LISTED["tools"].keys() == {spec.name for spec in ALL_TOOLS}


@each_tool
def test_a_name_is_short_and_plain(spec: Spec) -> None:
    assert re.fullmatch("[a-z_]{1,20}", spec.name)


@each_tool
def test_all_four_hints_are_explicit(spec: Spec) -> None:
    hints = wire(spec)["annotations"]
    assert hints["readOnlyHint"] is not spec.writes
    assert hints["destructiveHint"] is False
    assert hints["openWorldHint"] is False
    assert isinstance(hints["idempotentHint"], bool)
    assert hints["title"] == spec.title == wire(spec)["title"]


@each_tool
def test_a_description_says_what_in_at_most_8_lines_without_indentation(spec: Spec) -> None:
    lines = spec.description.splitlines()
    assert 1 <= len(lines) <= 8
    assert len(spec.description) < 2048
    assert not any(line.startswith(" ") for line in lines)


@each_tool
def test_a_schema_has_nothing_that_clients_stumble_over(spec: Spec) -> None:
    schema = wire(spec)["inputSchema"]
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["properties"]["project"] == {"type": "string"}
    forbidden = {"anyOf", "oneOf", "allOf", "$ref", "$defs", "title", "default", "format"}
    for node in nodes(schema):
        names = set(node) - set(schema["properties"])
        assert not names & forbidden
        assert not isinstance(node.get("type"), list)
        assert node.get("type") != "array" or "items" in node


@each_tool
def test_optional_text_is_empty_by_default_and_never_null(spec: Spec) -> None:
    for parameter in spec.parameters:
        if parameter.schema["type"] == "string" and "enum" not in parameter.schema:
            assert parameter.required or isinstance(parameter.default, str), parameter.name
        required = parameter.name in spec.input_schema.get("required", [])
        assert required is parameter.required


@each_tool
def test_every_tool_can_be_found_by_what_it_is_for(spec: Spec) -> None:
    meta = wire(spec)["_meta"]
    assert len(meta["anthropic/searchHint"]) > 10
    assert meta.get("anthropic/alwaysLoad", False) is (spec.name == "orient")


async def test_the_default_tools_fit_their_share_of_the_token_budget(connect: Connect) -> None:
    async with connect() as client:
        tools = (await client.list_tools()).tools
    sizes = {t.name: tokens(t.model_dump(mode="json", by_alias=True)) for t in tools}
    assert sum(sizes.values()) <= MOST_TOKENS, sizes


async def test_both_protocol_generations_list_the_same_tools(connect: Connect) -> None:
    async def listed(client: Client) -> list[dict[str, Any]]:
        tools = (await client.list_tools()).tools
        return [t.model_dump(by_alias=True, exclude_none=True) for t in tools]

    async with connect() as client:
        legacy = await listed(client)
    async with connect(mode="2026-07-28") as client:
        modern = await listed(client)
    assert legacy == modern == [wire(spec) for spec in toolset.load("coding").tools]


async def test_the_listed_tools_are_those_of_the_toolset(connect: Connect) -> None:
    for name in toolset.builtin_names():
        async with connect(toolset=name) as client:
            listed = [tool.name for tool in (await client.list_tools()).tools]
        assert listed == [spec.name for spec in toolset.load(name).tools]
