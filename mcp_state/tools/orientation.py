"""Orientation: the wake-up packet, search and history."""

from __future__ import annotations

from typing import Annotated

from mcp_state import render
from mcp_state.errors import BadArgument
from mcp_state.models import EventPage, Packet, SearchPage
from mcp_state.tools.arguments import described
from mcp_state.tools.spec import Ctx, Spec


async def orient(
    ctx: Ctx,
    max_tokens: Annotated[int, described("default 2000")] = 2000,
    since: Annotated[int | None, described("event number")] = None,
) -> Packet:
    """Where the work stands: news, threads, facts to check, memory, journal, what to write back.

    Call it first at every start, and after a compaction.
    """
    return await ctx.state.orient(max_tokens, since)


async def search(
    ctx: Ctx,
    query: Annotated[str, described("plain words or parts of words")],
    kinds: Annotated[
        list[str] | None, described("memory, thread, journal, run, fact, blob")
    ] = None,
    run_id: str = "",
    limit: Annotated[int, described("default 10, at most 50")] = 10,
    cursor: str = "",
) -> SearchPage:
    """Find text in memory, threads, journal, facts and runs before you ask or redo something."""
    return await ctx.state.search.find(
        query, kinds=kinds or (), run=run_id, limit=page_size(limit, 50), cursor=cursor
    )


async def history(
    ctx: Ctx,
    subject: Annotated[str, described("e.g. thread:pr-830, memory:plan, run:reindex")] = "",
    since: Annotated[int | None, described("event number")] = None,
    limit: Annotated[int, described("default 20, at most 200")] = 20,
) -> EventPage:
    """What changed, by whom and when: one subject, or everything since an event number."""
    return await ctx.state.events.history(subject, since=since, limit=page_size(limit, 200))


def page_size(limit: int, most: int) -> int:
    """The number of rows of a page.

    Raises:
        BadArgument: there can't be a page of that size.
    """
    if not 1 <= limit <= most:
        raise BadArgument(f"limit is {limit}", f"Give 1 to {most}, and read on from there.")
    return limit


TOOLS = (
    Spec(
        orient,
        title="Orient: where the work stands",
        show=lambda packet, view: packet.text,
        search_hint="resume, wake up, where was I, state of the work, after compaction",
        always_load=True,
        shows_board=True,
    ),
    Spec(
        search,
        title="Search the stored state",
        show=lambda page, view: render.search_page(page, view.now, view.arguments["query"]),
        search_hint="find notes, memory, earlier decisions, journal entries",
    ),
    Spec(
        history,
        title="History of changes",
        show=lambda page, view: render.history(
            page,
            view.now,
            view.arguments["subject"],
            forward=view.arguments["since"] is not None,
        ),
        search_hint="what changed, audit, versions, who changed it",
    ),
)
