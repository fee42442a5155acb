"""`mcp-state due`: whether there is a reason to wake an agent, told by the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from mcp_state import render
from mcp_state.cli.common import (
    COUNT,
    ON_PROJECT,
    Options,
    known_projects,
    opened,
    run,
    store_options,
)
from mcp_state.cli.groups import Documented
from mcp_state.cli.output import print_result, unread
from mcp_state.errors import NotFound, ProjectUnknown
from mcp_state.models import Status, Thread, ThreadPage, Totals
from mcp_state.record import record
from mcp_state.store.thread_rows import list_threads
from mcp_state.store.transaction import Reading
from mcp_state.times import until

NOTHING = 3
"""Exit code."""


@record
class Due:
    """The first of the threads that are due, and how many there are; else `next`, if any.

    `capped` says that `total` is too low, as for a page of threads.
    """

    threads: Sequence[Thread]
    total: int
    capped: bool = False
    next: Thread | None = None


@click.command(
    cls=Documented,
    epilog="""
    mcp-state due && wake-an-agent
    mcp-state due --json | jq .total
    """,
)
@click.option("-n", "--limit", type=COUNT, default=20, show_default=True, help="At most so many.")
@store_options(*ON_PROJECT)
@click.pass_context
def due(ctx: click.Context, options: Options, limit: int) -> None:
    """List the threads that it is time to look at again; the exit code says if there are any.

    0: something is due. 3: nothing is, nor in a store that does not exist yet. 1: the store can't
    be read, or holds no such project. 2: wrong arguments.

    Due are watching and blocked threads whose time to look again has passed, in the order of the
    queue. Active threads do not count: they wait for no time. Nor do facts: those that are due for
    a check are listed by `mcp-state facts --due`.
    """
    found, totals, now = run(_find(options, limit))
    text = _told(found, totals, now)
    if not totals.all_threads:
        text = "Nothing is due: there are no threads yet."
    with unread():
        print_result(found, text, as_json=options.as_json, totals=totals)
    if not found.threads:
        ctx.exit(NOTHING)


async def _find(options: Options, limit: int) -> tuple[Due, Totals, datetime]:
    async with opened(options) as state:
        if state.caller.project:
            return await state.database.read(state.caller, lambda tx: _look(tx, limit))
        known = await known_projects(state)
    there = f"known projects: {', '.join(known)}" if known else "there is no project yet"
    raise ProjectUnknown(
        f"this command does not say which project it belongs to; {there}",
        "Pass --project NAME, or run it in a git repository.",
    )


def _look(tx: Reading, limit: int) -> tuple[Due, Totals, datetime]:
    totals = tx.totals()
    if not totals.exists and (known := tx.known_projects()):
        raise NotFound.named(
            "project", totals.project, known[:5], "`mcp-state projects` lists all of them."
        )
    return _due(tx, limit), totals, tx.at


def _due(tx: Reading, limit: int) -> Due:
    page = list_threads(tx, None, True, limit, "")
    if page.threads:
        return Due(page.threads, page.total, page.capped)
    waiting = [
        thread
        for status in (Status.WATCHING, Status.BLOCKED)
        for thread in list_threads(tx, status, False, 1, "").threads
    ]
    return Due([], 0, next=min(waiting, key=_time, default=None))


def _time(thread: Thread) -> datetime:
    assert thread.recheck_at is not None, "what waits has a time to look again"
    return thread.recheck_at


def _told(found: Due, totals: Totals, now: datetime) -> str:
    if found.threads:
        page = ThreadPage(found.threads, found.total, capped=found.capped)
        return render.thread_page(page, now, totals, "threads that are due", "", render.ALL)
    if found.next is None:
        return "Nothing is due, and no thread waits for its time."
    first = f"Nothing is due. Next, at {until(_time(found.next), now)}:"
    return "\n".join([first, *render.thread_lines(found.next, now)])
