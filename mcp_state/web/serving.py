"""Serving the site on this machine until a signal comes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import Callable, Generator

import uvicorn

from mcp_state.errors import BadArgument
from mcp_state.settings import Settings
from mcp_state.times import Clock
from mcp_state.web.site import Site

_ADDRESS = "127.0.0.1"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def serve(
    settings: Settings, port: int, ready: Callable[[str, str], None], *, clock: Clock | None = None
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: which store, and whose directory.
        port: 0 for a free one.
        ready: is told the address of the page, and one that leads there once, as soon as both work.
        clock: where time comes from, for tests.

    Raises:
        BadArgument: the port is not free.
    """
    token, ticket = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    with _listening(port) as listener:
        origin = f"http://{_ADDRESS}:{listener.getsockname()[1]}"
        site = Site(settings, clock)
        config = uvicorn.Config(
            site.guarded(token, ticket, listener.getsockname()[1]),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
        try:
            with _signals() as over:
                ready(f"{origin}/{token}/", f"{origin}/{ticket}")
                await _Server(config, site, over).serve([listener])
        finally:
            await site.close()


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((_ADDRESS, port))
    except OSError as problem:
        raise BadArgument(
            f"port {port} of {_ADDRESS} can't be used: {os.strerror(problem.errno or 0)}",
            "Choose another one with --port, or leave it out for one that is free.",
        ) from problem


@contextlib.contextmanager
def _signals() -> Generator[asyncio.Event]:
    """What is set when a signal comes that ends the program."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def end(*_: object) -> None:
        loop.call_soon_threadsafe(over.set)

    before = {one: signal.signal(one, end) for one in _SIGNALS}
    try:
        yield over
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


class _Server(uvicorn.Server):
    """A server that waits for its end instead of looking for it, and then lets its readers go."""

    def __init__(self, config: uvicorn.Config, site: Site, over: asyncio.Event) -> None:
        super().__init__(config)
        self._site = site
        self._over = over

    async def main_loop(self) -> None:
        """Serve until it is over."""
        await self._over.wait()
        for _ in range(3):  # as many turns of the loop as it takes to let in who just came,
            await asyncio.sleep(0)  # and would be neither served nor closed
        self._site.live.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave them to the caller."""
        yield
