"""Six processes on one store for half an hour, of which one is killed every few seconds.

What survives must not grow or slow down, and nothing that was acknowledged may be missing or be
there twice. Three seconds of it run always; `MCP_STATE_SOAK=1` (`make soak`) runs for as many
minutes as `MCP_STATE_SOAK_MINUTES` says, 30 if it says nothing, and prints the curve.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import signal
import sqlite3
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from raw_client import Call, Server
from soaking import SOAK

from mcp_state.store import doctor

SECONDS = 60 * float(os.environ.get("MCP_STATE_SOAK_MINUTES", "30")) if SOAK else 3.0
PROCESSES, MORTAL = 6, 3
KILLED_EVERY = 3.0 if SOAK else 0.5
INTERVALS = 15
MIB = 1 << 20
TOKEN = re.compile(r"<(\d+\.\d+)>")


def calls(rng: random.Random, number: int) -> Iterator[Call]:
    """Writes that each bring a token of their own, and reads, without end."""
    for turn in itertools.count():
        token = f"<{number}.{turn}>"
        text = f"{token} {'some words ' * rng.randrange(1, 30)}"
        block, thread = f"block-{rng.randrange(20)}", f"thread-{rng.randrange(100)}"
        log = f"log-{number}-{turn // 200 % 3}"
        if turn % 200 == 0:  # it has to begin anew before it is full
            yield Call("memory_set", {"key": log, "value": text})
            continue
        yield rng.choice(
            (
                Call("journal_append", {"text": text}),
                Call("memory_set", {"key": block, "value": text}),
                Call("memory_append", {"key": log, "text": token}),
                Call("thread_set", {"thread": thread, "next_action": text}),
                Call("orient", {}),
                Call("search", {"query": f"{number}.{turn - 50}"}),
                Call("thread_list", {}),
                Call("journal_tail", {}),
                Call("memory_get", {"key": block}),
            )
        )


@dataclass
class Interval:
    """What was seen in one part of the time."""

    latencies: list[float] = field(default_factory=list[float])
    memory: float = 0
    wal: float = 0
    kills: int = 0

    @property
    def p50(self) -> float:
        return statistics.median(self.latencies)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.latencies, n=100)[-1]

    def __str__(self) -> str:
        return (
            f"{len(self.latencies):8,} calls  p50 {self.p50 * 1000:6.1f} ms  "
            f"p99 {self.p99 * 1000:7.1f} ms  memory {self.memory:6.1f} MiB  "
            f"wal {self.wal:6.1f} MiB  {self.kills:3} killed"
        )


class Load:
    """Six clients with a server each; the servers of some are killed and replaced."""

    def __init__(self, store: Path, seconds: float) -> None:
        self.store = store
        self._starting = threading.Lock()
        self._seconds = seconds
        self._began = self._ends = 0.0
        self.servers = [self._start() for _ in range(PROCESSES)]
        self.intervals = [Interval() for _ in range(INTERVALS)]
        self.acknowledged: set[str] = set()
        self.unanswered: set[str] = set()

    @property
    def interval(self) -> Interval:
        passed = (time.monotonic() - self._began) / self._seconds
        return self.intervals[min(int(passed * INTERVALS), INTERVALS - 1)]

    def run(self) -> None:
        for server in self.servers:
            server.wait_until_ready()
        self._began = time.monotonic()
        self._ends = self._began + self._seconds
        with ThreadPoolExecutor(PROCESSES) as pool:
            clients = [pool.submit(self._client, number) for number in range(PROCESSES)]
            victims = itertools.cycle(range(MORTAL))
            while (left := self._ends - time.monotonic()) > 0:
                with contextlib.suppress(TimeoutError):
                    clients[-1].result(min(KILLED_EVERY, left))
                victim = self.servers[next(victims)]
                if victim.started:
                    os.kill(victim.pid, signal.SIGKILL)
                    self.interval.kills += 1
                self._measure()
            for client in clients:
                client.result()

    def _start(self) -> Server:
        with self._starting:
            return Server.start(self.store, agent="load")

    def _measure(self) -> None:
        interval = self.interval
        interval.memory = max(interval.memory, *map(_resident, self.servers[MORTAL:]))
        with contextlib.suppress(FileNotFoundError):  # it is not there between two writers
            size = os.stat(f"{self.store}-wal").st_size / MIB
            interval.wal = max(interval.wal, size)

    def _client(self, number: int) -> None:
        for call in calls(random.Random(number), number):
            if time.monotonic() > self._ends:
                return
            server = self.servers[number]
            tokens = set(TOKEN.findall(str(call.arguments)))
            server.wait_until_ready()
            began = time.monotonic()
            try:
                server.send(call)
                found = server.receive()
            except BrokenPipeError:
                found = None
            if found is None:
                assert number < MORTAL, "a server ended that nobody killed"
                self.unanswered |= tokens
                server.close()
                self.servers[number] = self._start()
                continue
            self.interval.latencies.append(time.monotonic() - began)
            assert found[1].code == "", found[1].text
            self.acknowledged |= tokens


def _resident(server: Server) -> float:
    with open(f"/proc/{server.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def written(store: Path) -> Counter[str]:
    """The token that each event brought, read with plain `sqlite3`."""
    with contextlib.closing(sqlite3.connect(store)) as connection:
        found = connection.execute("SELECT row FROM events WHERE operation <> 'refused'")
        return Counter(TOKEN.findall(row)[-1] for (row,) in found)


def assert_flat(intervals: list[Interval]) -> None:
    """What was seen in the last third is about what was seen in the first."""
    third = len(intervals) // 3
    first, last = intervals[:third], intervals[-third:]
    assert max(i.memory for i in last) < max(i.memory for i in first) + 16
    assert max(i.wal for i in last) < 2 * max(i.wal for i in first) + 8
    if SOAK:
        assert max(i.p50 for i in last) < 2 * max(i.p50 for i in first) + 0.005
        assert max(i.p99 for i in last) < 2 * max(i.p99 for i in first) + 0.050


@pytest.mark.parametrize("seconds", [pytest.param(SECONDS, id="soak" if SOAK else "slice")])
async def test_under_load_and_kill_9_nothing_grows_and_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: float
) -> None:
    load = Load(tmp_path / "store" / "state.db", seconds)
    try:
        load.run()
    finally:
        for server in load.servers:
            server.close()
    if SOAK:
        with capsys.disabled():
            sys.stdout.write("\n".join(["", *map(str, load.intervals), ""]))
    found = written(load.store)
    assert load.acknowledged
    assert set(found.values()) == {1}
    assert load.acknowledged <= found.keys() <= load.acknowledged | load.unanswered
    assert_flat(load.intervals)
    assert (await doctor.examine(str(load.store))).problems == []
