"""How much a store takes, on each engine: the figures of docs/scale.md.

    python tests/scale.py [--seconds 5] [--entries 100000]

Writes are journal entries of 200 characters, on disk when they are answered; reads are the ten
newest entries. The clients of one process call through one `Database`, as those of an HTTP server.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from postgres import own_server

from mcp_state.api import State
from mcp_state.models import Actor, Caller
from mcp_state.store.database import open_database

TEXT = "what happened, in so many words; " * 6


@dataclass(frozen=True)
class Load:
    """So many processes, each with so many calls in flight, on so many projects in all."""

    processes: int
    in_flight: int
    projects: int
    reads: bool = False

    @property
    def shown(self) -> str:
        what = "reads" if self.reads else "writes"
        return (
            f"{what}: {self.processes} processes x {self.in_flight}, {self.projects} project"
            f"{'s' if self.projects > 1 else ''}"
        )


LOADS = (
    Load(1, 1, 1),
    Load(1, 64, 1),
    Load(1, 64, 8),
    Load(8, 1, 1),
    Load(8, 1, 8),
    Load(4, 16, 8),
    Load(1, 1, 1, reads=True),
    Load(1, 64, 8, reads=True),
    Load(8, 1, 8, reads=True),
)


def one_process(path: str, load: Load, number: int, seconds: float) -> list[float]:
    """The seconds that each call took."""
    return asyncio.run(_calls(path, load, number, seconds))


async def _calls(path: str, load: Load, number: int, seconds: float) -> list[float]:
    database = open_database(path)
    times: list[float] = []
    until = time.perf_counter() + seconds

    async def client(n: int) -> None:
        project = f"p{(number * load.in_flight + n) % load.projects}"
        state = State(database, Caller(project, "argument", Actor(f"a{number}", "scale", f"s{n}")))
        call: Callable[[], Awaitable[object]] = (
            state.journal.tail if load.reads else lambda: state.journal.append(TEXT)
        )
        while (begun := time.perf_counter()) < until:
            await call()
            times.append(time.perf_counter() - begun)

    try:
        await asyncio.gather(*(client(n) for n in range(load.in_flight)))
    finally:
        await database.aclose()
    return times


def measured(path: str, load: Load, seconds: float) -> str:
    with ProcessPoolExecutor(load.processes) as processes:
        todo = [
            processes.submit(one_process, path, load, number, seconds)
            for number in range(load.processes)
        ]
        times = sorted(itertools.chain.from_iterable(one.result() for one in todo))
    p50, p99 = (1000 * times[int(len(times) * part)] for part in (0.5, 0.99))
    return f"{len(times) / seconds:8,.0f} /s   p50 {p50:7.2f} ms   p99 {p99:7.2f} ms"


def fill(path: str, entries: int) -> float:
    """Write so many entries into one project, many at a time; the seconds that it took."""

    async def write() -> None:
        database = open_database(path)
        state = State(database, Caller("p0", "argument", Actor("filler")))
        try:
            for _ in range(entries // 200):
                await asyncio.gather(*(state.journal.append(TEXT) for _ in range(200)))
        finally:
            await database.aclose()

    begun = time.perf_counter()
    asyncio.run(write())
    return time.perf_counter() - begun


def tell(engine: str, path: str, seconds: float, entries: int) -> None:
    fill(path, 200)
    for load in LOADS:
        sys.stdout.write(f"{engine:9} {load.shown:44} {measured(path, load, seconds)}\n")
        sys.stdout.flush()
    if entries:
        took = fill(path, entries)
        sys.stdout.write(f"{engine:9} {entries:,} more entries took {took:,.0f} s\n")
        for load in (LOADS[0], LOADS[6]):
            sys.stdout.write(f"{engine:9} {load.shown:44} {measured(path, load, seconds)}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--entries", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mcp-state-scale-") as folder:
        tell("sqlite", str(Path(folder) / "state.db"), given.seconds, given.entries)
        with own_server(Path(folder)) as server:
            tell("postgres", server.store, given.seconds, given.entries)
