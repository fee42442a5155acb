"""`mcp-state orient`: the wake-up packet."""

from __future__ import annotations

import click

from mcp_state.cli.common import NUMBER, ON_PROJECT, Options, answer, store_options
from mcp_state.cli.groups import Documented


@click.command(
    cls=Documented,
    epilog="""
    mcp-state orient
    mcp-state orient --max-tokens 600 --project acme
    """,
)
@click.option(
    "--max-tokens",
    type=int,
    default=2000,
    show_default=True,
    help="Budget of the text, at four characters a token.",
)
@click.option("--since", type=NUMBER, help="Event number after which changes are news.")
@store_options(*ON_PROJECT)
def orient(options: Options, max_tokens: int, since: int | None) -> None:
    """Show where the work stands: news, threads, memory and journal.

    It is the packet that agents read first, at every start and after a compaction.
    """
    answer(options, lambda state: state.orient(max_tokens, since), lambda packet, _: packet.text)
