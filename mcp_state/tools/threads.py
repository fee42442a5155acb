"""The queue: lines of work with a status."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_state import render
from mcp_state.models import (
    Checked,
    NothingToClaim,
    Thread,
    ThreadDetail,
    ThreadPage,
)
from mcp_state.store.thread_rules import parse_status, place_of
from mcp_state.tools.arguments import described
from mcp_state.tools.orientation import page_size
from mcp_state.tools.spec import Ctx, Spec, View

StatusName = Literal["active", "watching", "blocked", "done", "dropped"]
Places = Annotated[
    list[dict[str, Any]] | None,
    Field(
        json_schema_extra={
            "items": {
                "type": "object",
                "properties": {
                    "path_or_repo": {"type": "string"},
                    "role": {"type": "string", "enum": ["home", "donor", "archival"]},
                    "note": {"type": "string"},
                },
                "required": ["path_or_repo"],
            }
        }
    ),
]
Token = Annotated[int | None, described("from thread_claim")]


async def thread_list(
    ctx: Ctx,
    status: StatusName | None = None,
    due: bool = False,
    limit: int = 20,
    cursor: str = "",
) -> ThreadPage:
    """Open threads in the order to work on them: due, then active by priority."""
    return await ctx.state.threads.list(
        status=parse_status(status) if status else None,
        due=due,
        limit=page_size(limit, 100),
        cursor=cursor,
    )


async def thread_get(ctx: Ctx, thread: str) -> ThreadDetail:
    """All of one thread: fields, criteria, history, last journal entries."""
    return await ctx.state.threads.get(thread)


async def thread_set(
    ctx: Ctx,
    thread: Annotated[str, described("short name")],
    status: StatusName | None = None,
    title: str = "",
    next_action: str = "",
    waiting_on: str = "",
    recheck_after: Annotated[str, described("e.g. 4h; 24h if not given")] = "",
    check: Annotated[str, described("command or link that tells its true state")] = "",
    evidence: Annotated[str, described("proof: test run and exit code, commit, link")] = "",
    note: Annotated[str, described("why")] = "",
    priority: Annotated[int | None, described("1 first … 9 last")] = None,
    depends_on: list[str] | None = None,
    relies_on: Annotated[list[str] | None, described("facts")] = None,
    criteria: Annotated[list[str] | None, described("added; texts never change")] = None,
    places: Places = None,
    run_id: str = "",
    clear: Annotated[list[str] | None, described("fields to empty")] = None,
    expected_version: int | None = None,
    lease_token: Token = None,
) -> Thread:
    """Create a thread (a line of work) or change what is given of it.

    active: work on it now. watching: look again later. blocked needs waiting_on. done needs
    evidence, criteria that pass, no fact that fell. dropped, and reopening to active, need a note.
    Fails with `held` or `lease_lost` if another holds it.
    """
    return await ctx.state.threads.set(
        thread,
        status=status,
        title=title or None,
        next_action=next_action or None,
        waiting_on=waiting_on or None,
        recheck_after=recheck_after or None,
        check=check or None,
        evidence=evidence or None,
        note=note or None,
        priority=priority,
        depends_on=depends_on,
        relies_on=relies_on,
        criteria=criteria,
        places=None if places is None else [place_of(place) for place in places],
        run=run_id,
        clear=clear or (),
        expected_version=expected_version,
        lease_token=lease_token,
    )


async def thread_claim(
    ctx: Ctx,
    thread: str = "",
    lease: Annotated[str, described("default 30m")] = "30m",
    lease_token: Token = None,
) -> Thread | NothingToClaim:
    """Take a lease on a thread, so that no other session works on it; extend it with its token.

    Without thread, the best free one. Fails with `held`, saying by whom and until when.
    """
    return await ctx.state.threads.claim(thread, lease=lease, lease_token=lease_token)


async def thread_release(ctx: Ctx, thread: str, lease_token: int | None = None) -> Thread:
    """Give a lease back before it ends."""
    return await ctx.state.threads.release(thread, lease_token=lease_token)


async def thread_check(
    ctx: Ctx,
    thread: str,
    criterion: Annotated[str, described("number or text")],
    passes: bool,
    evidence: str = "",
    lease_token: Token = None,
) -> Checked:
    """Mark one acceptance criterion of a thread as passing or not."""
    return await ctx.state.threads.check(
        thread, criterion, passes, evidence=evidence, lease_token=lease_token
    )


def _listed(page: ThreadPage, view: View) -> str:
    status, due = view.arguments["status"], view.arguments["due"]
    asked = f"{status or 'open'} threads{' that are due' if due else ''}"
    return render.thread_page(page, view.now, view.totals, asked, view.session)


TOOLS = (
    Spec(
        thread_list,
        title="List the queue",
        show=_listed,
        search_hint="todo, tasks, what to work on next, what is due or blocked",
        shows_board=True,
    ),
    Spec(
        thread_get,
        title="Read one thread",
        show=lambda detail, view: render.thread_detail(detail, view.now, view.session),
        search_hint="task details, acceptance criteria, status history",
    ),
    Spec(
        thread_set,
        title="Create or change a thread",
        show=lambda thread, view: render.thread_saved(thread, view.now, view.session),
        writes=True,
        idempotent=True,
        search_hint="create a task, set status, mark done, blocked, follow up",
    ),
    Spec(
        thread_claim,
        title="Claim a thread",
        show=lambda answer, view: render.thread_claimed(answer, view.now, view.session),
        writes=True,
        search_hint="take a task, lease, lock work for this agent",
    ),
    Spec(
        thread_release,
        title="Release a thread",
        show=lambda thread, view: render.thread_released(thread, view.now, view.session),
        writes=True,
        idempotent=True,
        search_hint="give a task back, end a lease",
    ),
    Spec(
        thread_check,
        title="Mark an acceptance criterion",
        show=lambda result, view: render.checked(result),
        writes=True,
        idempotent=True,
        search_hint="acceptance criteria, definition of done",
    ),
)
