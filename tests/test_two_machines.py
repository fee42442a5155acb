"""Two network namespaces are two machines: all they share is a database, over the network."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import text_of
from cutting import proxy
from mcp import Client, StdioServerParameters, stdio_client
from postgres import OwnServer, own_server, with_options

MCP_STATE = str(Path(sys.executable).with_name("mcp-state"))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _may_make_machines() -> bool:
    if not sys.platform.startswith("linux") or os.geteuid() or not shutil.which("ip"):
        return False
    made = subprocess.run(["ip", "netns", "add", f"mcst-{os.getpid()}"], capture_output=True)
    if made.returncode:
        return False
    _ip("netns", "del", f"mcst-{os.getpid()}")
    return True


needs_machines = pytest.mark.skipif(
    not _may_make_machines(), reason="only root may make network namespaces, where there are any"
)


@dataclass(frozen=True)
class Machine:
    """A network namespace, and the address under which it knows this one."""

    name: str
    host: str
    home: Path

    def environment(self, store: str) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "MCP_STATE_DB": store,
            "MCP_STATE_PROJECT": "acme",
        }

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, MCP_STATE, *words]

    @asynccontextmanager
    async def agent(self, name: str, store: str) -> AsyncGenerator[Client]:
        """An agent of this machine, with a server of its own over stdio."""
        command, *words = self.command("serve", "--toolset", "all", "--agent", name)
        server = StdioServerParameters(
            command=command, args=words, env=self.environment(store), cwd=str(self.home)
        )
        async with Client(stdio_client(server)) as client:
            yield client

    def vanish(self) -> None:
        """Nothing from here arrives anywhere any more, and nobody is told so."""
        _ip("-n", self.name, "link", "set", "eth0", "down")


@pytest.fixture
def machines(tmp_path: Path) -> Generator[list[Machine]]:
    made: list[Machine] = []
    try:
        for number in (1, 2):
            name, outside = f"mcst-{os.getpid()}-{number}", f"mcst{os.getpid() % 100000}v{number}"
            net = f"10.{77 + os.getpid() % 100}.{number}"
            _ip("netns", "add", name)
            home = tmp_path / name
            home.mkdir()
            made.append(Machine(name, f"{net}.1", home))
            _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("addr", "add", f"{net}.1/24", "dev", outside)
            _ip("link", "set", outside, "up")
            _ip("-n", name, "addr", "add", f"{net}.2/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
        yield made
    finally:
        for machine in made:
            _ip("netns", "del", machine.name)


@pytest.fixture
def server() -> Generator[OwnServer]:
    with (
        tempfile.TemporaryDirectory(prefix="mcp-state-machines-") as folder,
        own_server(Path(folder)) as server,
    ):
        yield server


async def say(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return text_of(result)


@needs_machines
async def test_one_machine_hands_over_to_another_and_vanishes(
    machines: list[Machine], server: OwnServer
) -> None:
    here, there = machines
    async with (
        proxy(server.socket, here.host) as ours,
        proxy(server.socket, there.host) as theirs,
        asyncio.timeout(60),
    ):
        a = with_options(server.store, host=here.host, port=str(ours.port))
        b = with_options(server.store, host=there.host, port=str(theirs.port))
        async with here.agent("codex", a) as codex:
            await say(codex, "objective_set", objective="Ship import v2")
            await say(codex, "thread_set", thread="fix-import", next_action="rerun the golden test")
            claimed = await say(codex, "thread_claim", thread="fix-import", lease="4h")
            watching = await asyncio.create_subprocess_exec(
                *there.command("journal", "tail", "-f"),
                env=there.environment(b),
                stdout=asyncio.subprocess.PIPE,
            )
            assert watching.stdout is not None
            await say(codex, "journal_append", text="half of it is done")
            seen = await watching.stdout.readuntil(b"half of it is done")
            offered = await say(codex, "handoff_create", note="the parser is next", to="claude")
            here.vanish()

            async with there.agent("claude", b) as claude:
                key = next(word for word in offered.split() if word.startswith("h-")).strip('".,:')
                taken = await say(claude, "handoff_accept", key=key)
                packet = await say(claude, "orient")
                wrote = await say(claude, "journal_append", text="went on")
            watching.terminate()
            await watching.wait()

    assert b"codex" in seen
    assert "the parser is next" in taken
    assert "Ship import v2" in packet
    assert "fix-import [active, held by this session" in packet
    assert "lease_token" in claimed
    assert "saved as entry" in wrote
