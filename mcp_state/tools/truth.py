"""Truth: what we are after, what we believe, and how to check it."""

from __future__ import annotations

from typing import Annotated, Literal

from mcp_state import render_facts as render
from mcp_state.models import (
    FactPage,
    FactRecorded,
    FactTrace,
    FactVerified,
    Objective,
)
from mcp_state.tools.arguments import described
from mcp_state.tools.orientation import page_size
from mcp_state.tools.spec import Ctx, Spec

TrustName = Literal["trusted", "provisional", "stale", "refuted", "archival"]


async def objective_set(
    ctx: Ctx,
    objective: str = "",
    reason: str = "",
    intent: str = "",
    expected_version: int | None = None,
) -> Objective:
    """Set what the project is after (intent: the why). A change needs reason, expected_version."""
    return await ctx.state.objective.set(
        objective, reason=reason, intent=intent, expected_version=expected_version
    )


async def fact_record(
    ctx: Ctx,
    fact: Annotated[str, described("short name")],
    statement: str = "",
    check: Annotated[str, described("command, link, file:PATH or git:REF")] = "",
    source: str = "",
    because: Annotated[list[str] | None, described("facts that are all needed for it")] = None,
    recheck_after: str = "",
    archival: bool = False,
    expected_version: int | None = None,
) -> FactRecorded:
    """Record what you believe and how to check it; it is provisional until its check has held.

    Another because adds an independent reason. Another statement needs expected_version.
    """
    return await ctx.state.facts.record(
        fact,
        statement,
        check=check,
        source=source,
        because=because or (),
        recheck_after=recheck_after,
        archival=archival,
        expected_version=expected_version,
    )


async def fact_verify(
    ctx: Ctx,
    fact: str,
    holds: bool,
    evidence: Annotated[str, described("what the check printed, shortened")],
    expected_version: int | None = None,
) -> FactVerified:
    """Record what running a fact's check said. holds=false: what rests on it alone falls too."""
    return await ctx.state.facts.verify(fact, holds, evidence, expected_version=expected_version)


async def fact_list(
    ctx: Ctx,
    trust: TrustName | None = None,
    due: bool = False,
    limit: int = 20,
    cursor: str = "",
) -> FactPage:
    """What is believed, the check before the claim; what is due first."""
    return await ctx.state.facts.list(
        trust=trust, due=due, limit=page_size(limit, 100), cursor=cursor
    )


async def fact_trace(ctx: Ctx, fact: str) -> FactTrace:
    """Why a fact is believed, and what would fall with it."""
    return await ctx.state.facts.trace(fact)


TOOLS = (
    Spec(
        objective_set,
        title="Set the objective",
        show=lambda objective, view: render.objective_set(objective, view.now),
        writes=True,
        idempotent=True,
        search_hint="goal, aim, what are we after, change of plan",
    ),
    Spec(
        fact_record,
        title="Record a fact",
        show=lambda recorded, view: render.fact_recorded(recorded, view.now),
        writes=True,
        idempotent=True,
        search_hint="claim, assumption, belief, decision with its reasons",
    ),
    Spec(
        fact_verify,
        title="Record what a check said",
        show=lambda verified, view: render.fact_verified(verified, view.now),
        writes=True,
        search_hint="confirm or refute a fact, is it still true",
    ),
    Spec(
        fact_list,
        title="List facts",
        show=lambda page, view: render.fact_page(
            page, view.now, view.totals, _asked(view.arguments["trust"], view.arguments["due"])
        ),
        search_hint="what do we know, assumptions to check, beliefs",
    ),
    Spec(
        fact_trace,
        title="Trace a fact",
        show=lambda trace, view: render.fact_trace(trace, view.now),
        search_hint="why do we believe this, what depends on it",
    ),
)


def _asked(trust: str | None, due: bool) -> str:
    return f"{trust + ' ' if trust else ''}facts{' that are due' if due else ''}"
