"""The server over HTTP as its clients meet it, in both generations of the protocol."""

from __future__ import annotations

import pytest
from conftest import FakeClock, text_of
from over_http import GENERATIONS, serving

from mcp_state.settings import Settings


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_a_client_of_either_generation_works_on_the_one_store(
    mode: str, settings: Settings, clock: FakeClock
) -> None:
    async with serving(settings, clock=clock) as server, server.client(mode) as client:
        written = await client.call_tool("journal_append", {"text": "hello"})
        listed = await client.list_tools()
        read = await client.call_tool("journal_tail", {})

    assert text_of(written).startswith("saved as entry 1")
    assert "journal_append" in {tool.name for tool in listed.tools}
    assert "hello" in text_of(read)
