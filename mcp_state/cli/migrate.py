"""`mcp-state migrate-store`: a whole store from a file to a server, or back."""

from __future__ import annotations

import os

import click

from mcp_state import render
from mcp_state.cli.common import Options, run, store_options
from mcp_state.cli.groups import Documented
from mcp_state.cli.output import print_result, progress
from mcp_state.settings import is_address, shown_address, store_path
from mcp_state.store.copying import Migrated, copy_store
from mcp_state.store.database import open_database


@click.command(
    "migrate-store",
    cls=Documented,
    epilog="""
    mcp-state migrate-store "$MCP_STATE_DB" postgresql://db.example/agents
    mcp-state migrate-store postgresql://db.example/agents ~/copy.db
    """,
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@store_options("json")
def migrate_store(options: Options, source: str, target: str) -> None:
    """Copy the whole store FROM to a new one, TO: each is a path or a postgresql:// address.

    All of it arrives as it was, which is counted and hashed, or TO is not made. FROM is only read,
    and stays: what is written to it afterwards is not in TO.
    """
    there = store_path(target, os.getcwd(), "TO")

    async def copy() -> Migrated:
        database = open_database(store_path(source, os.getcwd(), "FROM"))
        try:
            with progress("copying") as report:
                return await copy_store(database, there, report)
        finally:
            await database.aclose()

    done = run(copy())
    rows = render.plural(sum(one.rows for one in done.tables), "row")
    events = render.plural(done.events, "event")
    named = shown_address(there) if is_address(there) else there
    lines = [
        f"copied {rows} of {len(done.tables)} tables, {events}, from {done.source} to {named}",
        "each table has the same rows, in number and SHA-256, here and there",
        "to go on there, name it with --db or MCP_STATE_DB, for every server and command",
    ]
    print_result(done, "\n".join(lines), as_json=options.as_json)
