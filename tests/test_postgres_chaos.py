"""Servers are killed, the database restarts, connections are cut while they commit.

Every write that was acknowledged is there once and whole; of the others, each is whole or absent,
and absent for certain if its writer was told that nothing was saved.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from random import Random

import psycopg
import pytest
from carrying import contradictions
from cutting import MOMENTS, Moment, Proxy, proxy
from peeking import rows
from postgres import OwnServer, own_server, with_options
from soaking import seeded, some

WRITER = Path(__file__).with_name("writer.py")
PROJECTS = ("acme", "other")
WRITERS = 3
TOLD = ("begun", "acked", "refused", "doubt")


class Writer:
    """One process that writes, and what it told."""

    _names = itertools.count(1)

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self.process = process
        self.name = name
        self.told: dict[str, set[int]] = {how: set() for how in TOLD}
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, address: str, project: str) -> Writer:
        name = f"w{next(cls._names)}"
        words = (sys.executable, str(WRITER), address, project, name)
        return cls(
            await asyncio.create_subprocess_exec(
                *words, stdout=asyncio.subprocess.PIPE, stderr=None
            ),
            name,
        )

    async def acks(self, more: int) -> None:
        """Wait until so many more writes were acknowledged."""
        wanted = len(self.told["acked"]) + more
        while len(self.told["acked"]) < wanted:
            self._news.clear()
            await self._news.wait()

    async def end(self) -> None:
        """Kill it, and read all that it told."""
        self.process.send_signal(signal.SIGKILL)
        await self._reading
        await self.process.wait()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if not line.endswith(b"\n"):
                return  # it was killed while it told
            how, number = line.split()
            self.told[how.decode()].add(int(number))
            self._news.set()


@pytest.fixture
async def server() -> AsyncGenerator[OwnServer]:
    with (
        tempfile.TemporaryDirectory(prefix="mcp-state-chaos-") as folder,
        own_server(Path(folder)) as server,
    ):
        yield server


async def disturb(
    what: str, random: Random, server: OwnServer, between: Proxy, writers: list[Writer]
) -> None:
    """Do one thing that must not matter."""
    if what == "kill":
        victim = writers[random.randrange(len(writers))]
        await victim.end()
    elif what in MOMENTS:
        await between.cut(_moment(what))
    elif what == "terminate":
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'mcp-state'"
            )
    else:
        await asyncio.to_thread(server.restart, what)


def _moment(what: str) -> Moment:
    return next(moment for moment in MOMENTS if moment == what)


DISTURBANCES = ("kill", "immediate", "before", "during", "after", "terminate", "fast")


@some(len(DISTURBANCES), 100)
async def test_nothing_acknowledged_is_lost_or_doubled_and_nothing_is_half_there(
    server: OwnServer, rounds: int
) -> None:
    everybody: list[Writer] = []
    with seeded(7) as random:
        async with proxy(server.socket) as between, asyncio.timeout(30 + 20 * rounds):
            through = with_options(server.store, host="127.0.0.1", port=str(between.port))

            async def started() -> Writer:
                writer = await Writer.start(through, PROJECTS[len(everybody) % len(PROJECTS)])
                everybody.append(writer)
                return writer

            writers = [await started() for _ in range(WRITERS)]
            for number in range(rounds):
                await asyncio.gather(*(writer.acks(random.randint(1, 6)) for writer in writers))
                await disturb(
                    DISTURBANCES[number % len(DISTURBANCES)], random, server, between, writers
                )
                alive = [one for one in writers if one.process.returncode is None]
                writers = [*alive, *[await started() for _ in range(WRITERS - len(alive))]]
            await asyncio.gather(*(writer.acks(1) for writer in writers))
            for writer in writers:
                await writer.end()

    found = Counter(str(text) for (text,) in rows(server.store, "SELECT text FROM journal"))
    acked = {f"{writer.name} {n}" for writer in everybody for n in writer.told["acked"]}
    begun = {f"{writer.name} {n}" for writer in everybody for n in writer.told["begun"]}
    refused = {f"{writer.name} {n}" for writer in everybody for n in writer.told["refused"]}

    assert {text: n for text, n in found.items() if n > 1} == {}
    assert acked - found.keys() == set()
    assert found.keys() - begun == set()
    assert refused & found.keys() == set()
    assert len(acked) > rounds
    assert contradictions(server.store) == []
