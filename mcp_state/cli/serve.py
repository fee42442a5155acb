"""`mcp-state serve`: the MCP server, on stdin and stdout for one client, over HTTP for many."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from mcp_state.calls import spoken
from mcp_state.cli.common import COUNT, Options, store_options
from mcp_state.cli.groups import Documented
from mcp_state.errors import BadArgument
from mcp_state.settings import Settings

if TYPE_CHECKING:
    from mcp_state.http.serving import Door

ADDRESS = "127.0.0.1:8765"
"""Where --http listens if it does not say."""


@click.command(
    cls=Documented,
    epilog="""
    mcp-state serve --agent codex
    mcp-state serve --toolset readonly --project my-work
    mcp-state serve --http
    mcp-state serve --http --behind-proxy --allow-host state.example.com
    """,
)
@click.option("--toolset", default="coding", show_default=True, help="Name, or path of a .toml.")
@click.option("--tools", default="", help="Tools to add, separated by commas.")
@click.option("--exclude", default="", help="Tools to leave out, separated by commas.")
@click.option("--read-only", is_flag=True, help="List no tool that writes; never write the store.")
@click.option("--structured", is_flag=True, help="Add structured content, for programs.")
@click.option("--trace", is_flag=True, help="Keep with a run what it read and was told.")
@click.option("--allow-secrets", is_flag=True, help="Store what looks like a credential.")
@click.option(
    "--http",
    is_flag=False,
    flag_value=ADDRESS,
    metavar="[HOST:PORT]",
    help=f"Serve many clients over HTTP instead. [{ADDRESS}]",
)
@click.option("--tls-cert", default="", metavar="FILE", help="Certificate chain, PEM.")
@click.option("--tls-key", default="", metavar="FILE", help="Its key, PEM.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front speaks TLS with the clients.")
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="What clients may call it; repeatable."
)
@click.option("--rate", type=COUNT, metavar="N", help="Requests a second of one token. [100]")
@store_options("db", "project", "agent")
def serve(
    options: Options,
    http: str | None,
    tls_cert: str,
    tls_key: str,
    behind_proxy: bool,
    allow_host: tuple[str, ...],
    rate: int | None,
    toolset: str,
    tools: str,
    exclude: str,
    read_only: bool,
    structured: bool,
    trace: bool,
    allow_secrets: bool,
) -> None:
    """Serve one MCP client over stdin and stdout, until it leaves; with --http, many over HTTP.

    Over HTTP, whoever is on this machine needs no token. At any other address every client needs
    one (`mcp-state token create`), and TLS is needed too: --tls-cert and --tls-key, or a proxy in
    front.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="mcp-state: %(message)s")
    settings = replace(
        options.settings,
        toolset=toolset,
        tools=_names(tools),
        exclude=_names(exclude),
        read_only=read_only,
        structured=structured,
        trace=trace,
        allow_secrets=allow_secrets,
    )
    if http is not None:
        from mcp_state.http.serving import door

        files = {"tls_cert": tls_cert, "tls_key": tls_key}
        opened = door(http, **files, behind_proxy=behind_proxy, names=allow_host)
        _serve_http(settings, opened, rate)
        return
    given = {"--tls-cert": tls_cert, "--tls-key": tls_key, "--allow-host": allow_host}
    for option, value in {**given, "--behind-proxy": behind_proxy, "--rate": rate}.items():
        if value:
            raise BadArgument(f"{option} is for --http", "Give --http too, or leave it out.")
    from mcp_state.server import create_server
    from mcp_state.transport import serve_stdio

    opening = click.get_current_context().obj  # what `__main__` answered while all was imported
    with spoken("tools"):
        asyncio.run(serve_stdio(create_server(settings), opening=opening))


def _serve_http(settings: Settings, door: Door, rate: int | None) -> None:
    from mcp_state.http.bounds import Bounds
    from mcp_state.http.serving import serve as serve_http

    def ready(url: str) -> None:
        click.echo(f"mcp-state: listening at {url}", err=True)

    for noisy in ("uvicorn.error", "mcp.server.streamable_http_manager"):
        logging.getLogger(noisy).setLevel(logging.ERROR)  # we say it with who, without the session
    # The clients are elsewhere: where this process was started says nothing of them.
    settings = replace(settings, directory="", client_directory="", session="")
    with spoken("tools"):
        bounds = Bounds() if rate is None else Bounds(rate=rate, burst=5 * rate)
        # The other loop of Windows can't wait for a socket to have somebody who wants to come in.
        loop = asyncio.SelectorEventLoop if sys.platform == "win32" else None
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(serve_http(settings, door, ready, bounds=bounds))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
