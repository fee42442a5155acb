"""Serving the clients of one store over HTTP until a signal comes."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import os
import re
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Generator
from dataclasses import replace

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from mcp_state import toolset
from mcp_state.errors import BadArgument
from mcp_state.http.bounds import Bounds
from mcp_state.http.guard import ENDPOINT, Guard
from mcp_state.http.listener import Listener
from mcp_state.http.metrics import Metrics
from mcp_state.http.refusals import Refusals
from mcp_state.http.traffic import Traffic
from mcp_state.http.wire import Wire
from mcp_state.models import Actor, Caller
from mcp_state.record import record
from mcp_state.server import create_server, open_store_of
from mcp_state.settings import Settings
from mcp_state.store.tokens import Tokens
from mcp_state.times import Clock

log = logging.getLogger(__name__)

ADDRESS = "127.0.0.1:8765"
_ADDRESS = re.compile(r"(?:(\[[0-9a-f:.]+\]|[^\s:/\[\]]+):)?([0-9]{1,5})", re.IGNORECASE)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EVERY_ADDRESS = ("0.0.0.0", "::")
_FILES_BESIDE = 64
"""What is open beside the connections, at the most: the store, and who is not let in."""
_SELECTED_ON_WINDOWS = 512
"""As many files as select() of Python can wait for there."""
_WAITING = 2048
"""How many may wait to be let in; the system has a limit of its own."""
_OF_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


@record
class Door:
    """Where a server listens, and how clients come to it.

    Without TLS files and without a proxy in front, only this machine reaches it, and then a
    request needs no token. `names` are those that clients may call it by, besides the address.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    tls_cert: str = ""
    tls_key: str = ""
    behind_proxy: bool = False
    names: tuple[str, ...] = ()

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        return _is_loopback(self.host) and not self.behind_proxy

    @property
    def hosts(self) -> frozenset[str]:
        """What the Host header may say, without a port."""
        own = (_bracketed(self.host),)
        if _is_loopback(self.host):
            own = _OF_THIS_MACHINE
        elif self.host in _EVERY_ADDRESS:
            own = ()
        return frozenset(name.lower() for name in (*own, *self.names))

    @property
    def scheme(self) -> str:
        """Of the addresses of this server, as it is reached without a proxy."""
        return "https" if self.tls_cert else "http"


def door(
    address: str,
    *,
    tls_cert: str = "",
    tls_key: str = "",
    behind_proxy: bool = False,
    names: tuple[str, ...] = (),
) -> Door:
    """Read where to listen, and refuse what would be open to others without their being told apart.

    Args:
        address: `HOST:PORT` or `PORT`; port 0 is a free one.
        tls_cert: path of the certificate chain, PEM.
        tls_key: path of its key.
        behind_proxy: a proxy in front speaks TLS with the clients.
        names: what clients may call it, besides the address.

    Raises:
        BadArgument: that does not go together, and what would.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[2]) > 65535:
        raise BadArgument(
            f"--http is {address[:60]!r}, which is no address", f"Write HOST:PORT, as {ADDRESS}."
        )
    if bool(tls_cert) != bool(tls_key):
        raise BadArgument(
            "TLS needs a certificate and its key", "Give both --tls-cert and --tls-key."
        )
    wrong = next((one for one in names if not re.fullmatch(r"[\w.-]+|\[[\w:.]+\]", one)), None)
    if wrong is not None:
        raise BadArgument(
            f"--allow-host is {wrong[:60]!r}, which is no host name",
            "Write the name alone, without a scheme or a port.",
        )
    made = Door(
        host=(match[1] or "127.0.0.1").strip("[]"),
        port=int(match[2]),
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        names=names,
    )
    if not (_is_loopback(made.host) or tls_cert or behind_proxy):
        raise BadArgument(
            f"{address} can be reached from other machines, and tokens would cross the network in "
            "the clear",
            "Give --tls-cert FILE and --tls-key FILE, or say --behind-proxy if a proxy in front "
            f"speaks TLS. Only for this machine: --http {ADDRESS}.",
        )
    if made.host in _EVERY_ADDRESS and not names:
        raise BadArgument(
            f"{address} is every address of this machine, so it is not known what clients call it",
            "Give --allow-host NAME with the name that they use.",
        )
    return made


async def serve(
    settings: Settings,
    door: Door,
    ready: Callable[[str], None],
    *,
    bounds: Bounds | None = None,
    clock: Clock | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; calls in flight then have a few seconds to be answered.

    Args:
        settings: which store, and which tools.
        door: where to listen.
        ready: is told the address, as soon as it works.
        bounds: what is too much.
        clock: where time comes from, for tests.

    Raises:
        BadArgument: the toolset, the address or the TLS files can't be used.
    """
    bounds, clock = bounds or Bounds(), clock or Clock()
    wanted = bounds.connections
    bounds = replace(bounds, connections=_have_files_for(wanted))
    _check_tls(door)
    tools = toolset.load(
        settings.toolset, settings.tools, settings.exclude, read_only=settings.read_only
    )
    database = open_store_of(settings, tools, clock)
    metrics = Metrics()
    refusals = Refusals(metrics)
    manager = StreamableHTTPSessionManager(
        create_server(settings, clock, database=database, watch=metrics.called),
        json_response=True,
        session_idle_timeout=bounds.idle,
        max_request_body_size=bounds.body,
        max_sessions=bounds.sessions,
    )
    with _listening(door) as listener, _signals() as over:
        door = replace(door, port=listener.getsockname()[1])
        nobody = Caller("", "", Actor(""))
        traffic = Traffic(manager.handle_request, bounds, asyncio.get_running_loop().time)
        metrics.gauges = traffic.gauges
        guard = Guard(
            traffic,
            Tokens(database, nobody).principal,
            lambda: database.read(nobody, lambda tx: None),
            hosts=door.hosts,
            needs_token=not door.is_local,
            bounds=bounds,
            metrics=metrics,
            refusals=refusals,
        )
        config = uvicorn.Config(
            guard,
            http=Wire,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=bounds.head,
            timeout_keep_alive=bounds.keep_alive,
            timeout_graceful_shutdown=math.ceil(bounds.stop) + 1,
            ssl_certfile=door.tls_cert or None,
            ssl_keyfile=door.tls_key or None,
        )
        try:
            async with manager.run():
                ready(f"{door.scheme}://{_bracketed(door.host)}:{door.port}{ENDPOINT}")
                if bounds.connections < wanted:
                    few = "at most %s clients at a time, not %s: for more, allow more open files"
                    log.warning(few, f"{bounds.connections:,}", f"{wanted:,}")
                await _Server(config, listener, traffic, refusals, bounds, over).serve()
        finally:
            await database.aclose()


def _have_files_for(connections: int) -> int:
    """How many of these connections the limit of open files allows, which is raised for them.

    Without any to spare, nobody who is connected could be served either.
    """
    if sys.platform == "win32":
        return min(connections, _SELECTED_ON_WINDOWS - _FILES_BESIDE)
    import resource

    most, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _FILES_BESIDE
    if most != resource.RLIM_INFINITY and most < wanted:
        most = wanted if highest == resource.RLIM_INFINITY else min(wanted, highest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, highest))
        return max(1, most - _FILES_BESIDE)
    return connections


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _check_tls(door: Door) -> None:
    """Refuse files that uvicorn would stumble over when it listens already."""
    if not door.tls_cert:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            door.tls_cert, door.tls_key, password=lambda: ""
        )
    except OSError as problem:  # ssl.SSLError is one
        raise BadArgument(
            f"{door.tls_cert} and {door.tls_key} can't be used for TLS: "
            f"{problem.strerror or problem}",
            "Give a certificate chain and its key in PEM, the key without a password.",
        ) from problem


def _listening(door: Door) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in door.host else socket.AF_INET
        return socket.create_server((door.host, door.port), family=family, backlog=_WAITING)
    except OSError as problem:
        raise BadArgument(
            f"{_bracketed(door.host)}:{door.port} can't be listened at: "
            f"{os.strerror(problem.errno) if problem.errno and problem.errno > 0 else problem}",
            "Give another --http HOST:PORT; port 0 is a free one.",
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
    """A server that waits for its end instead of looking for it, and then ends its streams."""

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        traffic: Traffic,
        refusals: Refusals,
        bounds: Bounds,
        over: asyncio.Event,
    ) -> None:
        super().__init__(config)
        self.servers = []  # of asyncio: there are none
        self._listening = listening
        self._traffic = traffic
        self._refusals = refusals
        self._bounds = bounds
        self._over = over

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin; who connects is let in by `main_loop`."""
        await self.lifespan.startup()
        self.started = True

    async def main_loop(self) -> None:
        """Serve until it is over."""
        listener = Listener(
            self._listening,
            self._wire,
            self.server_state.connections,
            tls=self.config.ssl,
            bounds=self._bounds,
            refusals=self._refusals,
        )
        listener.open()
        await self._over.wait()
        await listener.close()
        self._traffic.wind_down()
        asyncio.get_running_loop().call_later(self._bounds.stop, self._give_up)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave them to the caller."""
        yield

    def _give_up(self) -> None:
        """It was time enough: say so, and leave who does not read it."""
        self._traffic.give_up()
        asyncio.get_running_loop().call_later(self._bounds.farewell, self._leave)

    def _leave(self) -> None:
        for wire in list(self.server_state.connections):
            wire.transport.abort()

    def _wire(self) -> Wire:
        """What speaks with one client."""
        return Wire(
            self.config,
            self.server_state,
            self.lifespan.state,
            bounds=self._bounds,
            refusals=self._refusals,
        )
