"""`mcp-state web`: the state in a browser."""

from __future__ import annotations

import asyncio
import logging
import sys
import webbrowser

import click

from mcp_state.cli.common import Options, store_options


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Of 127.0.0.1. [default: a free one]"
)
@click.option("--no-open", is_flag=True, help="Only print the address.")
@store_options("db", "project", "agent")
def web(options: Options, port: int, no_open: bool) -> None:
    """Show the state in a browser, until it is interrupted.

    It prints an address of this machine that holds a key: whoever has it can see every project of
    the store, and do what people do: lock a block, break a lease, raise a budget, reset a step.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="mcp-state: %(message)s")
    from mcp_state.web.serving import serve

    def ready(address: str, once: str) -> None:
        click.echo(address)
        click.echo("Ctrl-C ends it.", err=True)
        if not no_open:
            webbrowser.open(once)

    asyncio.run(serve(options.settings, port, ready))
