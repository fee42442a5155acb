"""The journal: what happened, append-only."""

from __future__ import annotations

from typing import Annotated

from mcp_state import render
from mcp_state.models import JournalEntry, JournalPage
from mcp_state.tools.arguments import described
from mcp_state.tools.memory import Once
from mcp_state.tools.orientation import page_size
from mcp_state.tools.spec import Ctx, Spec


async def journal_append(
    ctx: Ctx,
    text: str,
    kind: Annotated[str, described("e.g. note, decision, dead_end")] = "",
    thread: str = "",
    run_id: str = "",
    idempotency_key: Once = "",
) -> JournalEntry:
    """Record what happened (up to 8,192 characters): decisions, results, dead ends.

    Call it after each step and before you stop. When it returns, it is on disk.
    """
    return await ctx.state.journal.append(
        text, kind=kind, thread=thread, run=run_id, idempotency_key=idempotency_key
    )


async def journal_tail(
    ctx: Ctx,
    limit: int = 10,
    before: Annotated[int | None, described("entry number; pages back")] = None,
    since: Annotated[int | None, described("entry number; reads forward")] = None,
    thread: str = "",
    run_id: str = "",
    kind: str = "",
    actor: Annotated[str, described("agent name")] = "",
) -> JournalPage:
    """Read the newest journal entries, oldest first."""
    return await ctx.state.journal.tail(
        limit=page_size(limit, 100),
        before=before,
        since=since,
        thread=thread,
        run=run_id,
        kind=kind,
        actor=actor,
    )


TOOLS = (
    Spec(
        journal_append,
        title="Append to the journal",
        show=lambda entry, view: render.journal_saved(entry, view.now),
        writes=True,
        search_hint="log what happened, decision, dead end, progress",
    ),
    Spec(
        journal_tail,
        title="Read the journal",
        show=lambda page, view: render.journal_page(
            page, view.now, forward=view.arguments["since"] is not None
        ),
        search_hint="what happened lately, log, recent work",
    ),
)
