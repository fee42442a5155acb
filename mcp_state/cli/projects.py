"""`mcp-state projects`: what the store holds, and names for it."""

from __future__ import annotations

import click

from mcp_state import render
from mcp_state.cli import complete
from mcp_state.cli.common import ON_STORE, Options, answer, store_options
from mcp_state.cli.groups import Fallback

_ON_NAMED = ("db", "agent", "json")


@click.group(
    cls=Fallback,
    fallback="list",
    epilog="""
    mcp-state projects
    """,
)
def projects() -> None:
    """List the projects of the store, rename one, or merge two."""


@projects.command(
    "list",
    epilog="""
    mcp-state projects
    """,
)
@store_options(*ON_STORE)
def list_(options: Options) -> None:
    """List the projects, the most active first."""
    answer(
        options,
        lambda state: state.projects.list(),
        lambda found, seen: render.projects(found, seen.now),
        scoped=False,
    )


@projects.command(
    epilog="""
    mcp-state projects rename another acme-v2
    """,
)
@click.argument("old", shell_complete=complete.projects)
@click.argument("new")
@store_options(*_ON_NAMED)
def rename(options: Options, old: str, new: str) -> None:
    """Give a project another name; the old one still leads to it."""
    answer(
        options,
        lambda state: state.projects.rename(new),
        lambda project, seen: f"renamed: {render.projects([project], seen.now)}",
        writes=True,
        named=old,
        scoped=False,
    )


@projects.command(
    epilog="""
    mcp-state projects merge notes acme
    """,
)
@click.argument("source", metavar="FROM", shell_complete=complete.projects)
@click.argument("into", shell_complete=complete.projects)
@store_options(*_ON_NAMED)
def merge(options: Options, source: str, into: str) -> None:
    """Move everything of a project into another.

    Both names lead there afterwards. Threads and blocks whose names are taken there are kept
    apart as "NAME (from FROM)".
    """
    answer(
        options,
        lambda state: state.projects.merge(into),
        lambda project, seen: f"merged: {render.projects([project], seen.now)}",
        writes=True,
        named=source,
        scoped=False,
    )
