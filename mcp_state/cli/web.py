"""`mcp-state web`: the state in a browser."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import webbrowser

import click

from mcp_state.cli.common import Options, store_options
from mcp_state.cli.groups import Documented
from mcp_state.cli.output import print_json


@click.command(
    cls=Documented,
    epilog="""
    mcp-state web
    mcp-state web --no-open --port 8123
    """,
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Of 127.0.0.1. [default: a free one]"
)
@click.option("--no-open", is_flag=True, help="Only print the address.")
@store_options("db", "project", "agent", "json")
def web(options: Options, port: int, no_open: bool) -> None:
    """Show the state in a browser on this machine, until it is interrupted.

    It prints the address of a page, which holds a key: whoever has it can see every project of the
    store, and do what is for people alone: lock a block, break a lease, raise a budget, reset a
    step, purge a text.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR, format="mcp-state: %(message)s")
    from mcp_state.web.serving import serve

    def ready(address: str, once: str) -> None:
        if options.as_json:
            print_json({"address": address}, indent=None)
        else:
            click.echo(address)
            click.echo("It is yours alone. Ctrl-C ends it.", err=True)
        if not no_open:
            threading.Thread(target=webbrowser.open, args=[once], daemon=True).start()

    asyncio.run(serve(options.settings, port, ready))
