"""`mcp-state search` and `mcp-state history`."""

from __future__ import annotations

import click

from mcp_state import render
from mcp_state.cli import complete
from mcp_state.cli.common import (
    COUNT,
    NUMBER,
    ON_PROJECT,
    Options,
    answer,
    run_option,
    store_options,
)
from mcp_state.cli.groups import Documented
from mcp_state.store.documents import KINDS


@click.command(
    cls=Documented,
    epilog="""
    mcp-state search parser
    mcp-state search old parser --kind journal --kind fact
    """,
)
@click.argument("query", nargs=-1, required=True)
@click.option(
    "--kind",
    multiple=True,
    help="memory, thread, journal, run, blob, fact. Repeatable.",
    shell_complete=complete.words(*KINDS),
)
@run_option("Only what belongs to this run.")
@click.option("--limit", type=COUNT, default=10, show_default=True, help="At most so many.")
@click.option("--cursor", default="", help="Go on where the page before ended.")
@store_options(*ON_PROJECT)
def search(
    options: Options,
    query: tuple[str, ...],
    kind: tuple[str, ...],
    run: str,
    limit: int,
    cursor: str,
) -> None:
    """Find text in memory, threads, the journal, runs, facts and the summaries of blobs.

    QUERY is plain words or parts of words; the best matches come first.
    """
    words = " ".join(query)
    answer(
        options,
        lambda state: state.search.find(words, kinds=kind, run=run, limit=limit, cursor=cursor),
        lambda page, seen: render.search_page(page, seen.now, words),
    )


@click.command(
    cls=Documented,
    epilog="""
    mcp-state history thread:import
    mcp-state history objective
    mcp-state history --since 40 --limit 100
    """,
)
@click.argument("subject", required=False, default="", shell_complete=complete.subjects)
@click.option("--since", type=NUMBER, help="Event number; reads forward from there.")
@click.option("--limit", type=COUNT, default=20, show_default=True, help="At most so many.")
@store_options(*ON_PROJECT)
def history(options: Options, subject: str, since: int | None, limit: int) -> None:
    """Show what changed, by whom and when.

    SUBJECT is KIND:NAME, such as thread:pr-830, memory:plan or run:reindex; without it, everything.
    """
    answer(
        options,
        lambda state: state.events.history(subject, since=since, limit=limit),
        lambda page, seen: render.history(
            page, seen.now, subject, forward=since is not None, room=render.ALL
        ),
    )
