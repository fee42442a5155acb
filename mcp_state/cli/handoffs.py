"""`mcp-state handoff`: offering the work to another agent, and taking it over."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mcp_state import render, render_handoffs
from mcp_state.api import State
from mcp_state.cli import complete
from mcp_state.cli.common import ON_PROJECT, Options, Seen, TextOrStdin, answer, store_options
from mcp_state.cli.groups import Suggesting
from mcp_state.models import Handoff, HandoffTaken, Thread
from mcp_state.record import record


@record
class _Accepted:
    """What was taken over, with the wake-up packet."""

    handoff: Handoff
    checks: Sequence[Thread]
    leases: Sequence[Thread]
    packet: str


@click.group(
    cls=Suggesting,
    epilog="""
    mcp-state handoff create 'The importer is half done' --to ben
    """,
)
def handoff() -> None:
    """Offer the work of the project to another agent, or take over what was offered."""


@handoff.command(
    epilog="""
    mcp-state handoff create 'The importer is half done' --to ben
    """,
)
@click.argument("note", type=TextOrStdin())
@click.option("--to", default="", metavar="NAME", help="The agent that is meant.")
@store_options(*ON_PROJECT)
def create(options: Options, note: str, to: str) -> None:
    """Offer the work under a key that another agent accepts.

    NOTE says what the next one must know and do first; a NOTE of - is read from standard input.
    """
    answer(
        options,
        lambda state: state.handoffs.create(note, to=to),
        lambda made, seen: render_handoffs.handoff_made(made, seen.now, render.ALL),
        writes=True,
    )


@handoff.command(
    epilog="""
    mcp-state handoff accept h-7d2kq9xw4m3p
    """,
)
@click.argument("key", shell_complete=complete.handoffs)
@store_options(*ON_PROJECT)
def accept(options: Options, key: str) -> None:
    """Take over what was offered under a key; only the first one gets it.

    Shows the note, the checks to run first and where the work stands. Leases that the giver still
    holds pass to whoever accepts.
    """

    async def take(state: State) -> _Accepted:
        taken = await state.handoffs.accept(key)
        packet = (await state.orient()).text.rpartition("\n")[0]
        return _Accepted(taken.handoff, taken.checks, taken.leases, packet)

    answer(options, take, _shown, writes=True)


def _shown(accepted: _Accepted, seen: Seen) -> str:
    taken = HandoffTaken(accepted.handoff, accepted.checks, accepted.leases)
    return render_handoffs.handoff_taken(taken, seen.now, accepted.packet, render.ALL)
