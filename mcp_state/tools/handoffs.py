"""Handing the work over to another agent."""

from __future__ import annotations

from typing import Annotated

from mcp_state import render_handoffs as render
from mcp_state.models import HandoffMade
from mcp_state.tools.arguments import described
from mcp_state.tools.spec import Ctx, Outcome, Spec, View

_PACKET_TOKENS = 1500


async def handoff_create(
    ctx: Ctx,
    note: Annotated[str, described("what the next one must know and do first")],
    to: Annotated[str, described("agent name")] = "",
) -> HandoffMade:
    """Offer all of this work to another agent; returns the key that it accepts."""
    return await ctx.state.handoffs.create(note, to=to)


async def handoff_accept(ctx: Ctx, key: str) -> Outcome:
    """Take over work that was offered: once; leases of the giver pass to you.

    Returns the note, the checks to run first and the wake-up packet.
    """
    taken = await ctx.state.handoffs.accept(key)
    packet = (await ctx.state.orient(_PACKET_TOKENS)).text.rpartition("\n")[0]
    now = ctx.state.database.clock.now()
    return Outcome(taken, render.handoff_taken(taken, now, packet))


def _made(made: HandoffMade, view: View) -> str:
    return render.handoff_made(made, view.now)


def _taken(outcome: Outcome, view: View) -> str:
    return outcome.text


TOOLS = (
    Spec(
        handoff_create,
        title="Offer the work to another agent",
        show=_made,
        writes=True,
        search_hint="hand over, delegate, pass the work on",
    ),
    Spec(
        handoff_accept,
        title="Take over offered work",
        show=_taken,
        writes=True,
        search_hint="accept a handoff, continue the work of another agent",
    ),
)
