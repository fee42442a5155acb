"""`mcp-state serve`: the MCP server on stdin and stdout."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import replace

import click

from mcp_state.calls import spoken
from mcp_state.cli.common import Options, store_options
from mcp_state.cli.groups import Documented


@click.command(
    cls=Documented,
    epilog="""
    mcp-state serve --agent codex
    mcp-state serve --toolset readonly --project my-work
    """,
)
@click.option("--toolset", default="coding", show_default=True, help="Name, or path of a .toml.")
@click.option("--tools", default="", help="Tools to add, separated by commas.")
@click.option("--exclude", default="", help="Tools to leave out, separated by commas.")
@click.option("--read-only", is_flag=True, help="List no tool that writes; never write the store.")
@click.option("--structured", is_flag=True, help="Add structured content, for programs.")
@click.option("--trace", is_flag=True, help="Keep with a run what it read and was told.")
@click.option("--allow-secrets", is_flag=True, help="Store what looks like a credential.")
@store_options("db", "project", "agent")
def serve(
    options: Options,
    toolset: str,
    tools: str,
    exclude: str,
    read_only: bool,
    structured: bool,
    trace: bool,
    allow_secrets: bool,
) -> None:
    """Serve one MCP client over stdin and stdout, until it leaves."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="mcp-state: %(message)s")
    from mcp_state.server import create_server
    from mcp_state.transport import serve_stdio

    settings = replace(
        options.settings,
        toolset=toolset,
        tools=_names(tools),
        exclude=_names(exclude),
        read_only=read_only,
        structured=structured,
        trace=trace,
        allow_secrets=allow_secrets,
    )
    opening = click.get_current_context().obj  # what `__main__` answered while all was imported
    with spoken("tools"):
        asyncio.run(serve_stdio(create_server(settings), opening=opening))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
