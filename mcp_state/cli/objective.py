"""`mcp-state objective`: what the project is after."""

from __future__ import annotations

import click

from mcp_state import render, render_facts
from mcp_state.api import State
from mcp_state.cli.common import (
    NUMBER,
    ON_PROJECT,
    Options,
    Seen,
    TextOrStdin,
    answer,
    store_options,
)
from mcp_state.cli.groups import Fallback
from mcp_state.models import Objective
from mcp_state.record import record


@record
class _NotSet:
    """The answer where there is no objective; version 0 is what the first one replaces."""

    objective: str = ""
    version: int = 0


@click.group(
    cls=Fallback,
    fallback="show",
    epilog="""
    mcp-state objective
    mcp-state objective set "Ship v3" --expected-version 2 --reason "it moved"
    """,
)
def objective() -> None:
    """Show or set what the project is after; `objective` shows it."""


@objective.command(
    epilog="""
    mcp-state objective
    mcp-state history objective
    """,
)
@store_options(*ON_PROJECT)
def show(options: Options) -> None:
    """Show the current objective, its last change, and the intent behind it.

    `mcp-state history objective` shows the earlier ones.
    """

    async def read(state: State) -> Objective | _NotSet:
        return await state.objective.get() or _NotSet()

    answer(options, read, _shown)


def _shown(found: Objective | _NotSet, seen: Seen) -> str:
    if isinstance(found, Objective):
        return "\n".join(render_facts.objective_lines(found, seen.now, render.ALL))
    return "No objective yet. `mcp-state objective set TEXT` sets it, --intent says why."


@objective.command(
    "set",
    epilog="""
    mcp-state objective set "Ship v3" --expected-version 2 --reason "it moved"
    """,
)
@click.argument("text", type=TextOrStdin(), required=False, default="")
@click.option("--reason", default="", help="Why it changes; every change needs one.")
@click.option("--intent", default="", help="The purpose behind it, which changes rarely.")
@click.option("--expected-version", type=NUMBER, help="The version it replaces; a change needs it.")
@store_options(*ON_PROJECT)
def set_(
    options: Options, text: str, reason: str, intent: str, expected_version: int | None
) -> None:
    """Set what the project is after, or the intent behind it.

    A TEXT of - is read from standard input. What is left out stays as it is.
    """
    answer(
        options,
        lambda state: state.objective.set(
            text, reason=reason, intent=intent, expected_version=expected_version
        ),
        lambda after, seen: render_facts.objective_set(after, seen.now),
        writes=True,
    )
