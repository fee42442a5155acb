"""Whatever was done in which store and carried where: nothing is lost, nothing is overwritten.

Random rounds name their seed when they fail. A slice of them runs always; `MCP_STATE_SOAK=1`
(`make soak`) runs the whole.
"""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest
from carrying import Store, store_at
from conftest import FakeClock
from workload import rows

from mcp_state.api import State
from mcp_state.errors import StateError

SOAK = bool(os.environ.get("MCP_STATE_SOAK"))
SEEDS = range(150 if SOAK else 5)
STEPS = 60
NAMES = ("one", "Two", "three (from acme)", "four/five")
EVENTS = """
    SELECT seq, at, kind, name, operation, summary, row, agent, version
    FROM event_rows WHERE project = 1 ORDER BY seq
"""
LASTING = """
    SELECT kind, at, agent, operation, summary, version FROM event_rows
    WHERE project = 1 AND operation NOT LIKE 'lease_%'
        AND kind NOT IN ('blob', 'handoff', 'project')
"""


class Life:
    """One caller that does one random thing after another, whatever is refused."""

    def __init__(self, rng: random.Random, clock: FakeClock) -> None:
        self._rng = rng
        self._clock = clock
        self._keys: list[str] = []

    async def step(self, state: State) -> None:
        self._clock.move(seconds=self._rng.choice((1, 1, 60, 4000)))
        rng, name, run = self._rng, self._rng.choice(NAMES), self._rng.choice(NAMES)
        does = rng.choice((self._thread, self._memory, self._run, self._step, self._other))
        with contextlib.suppress(StateError):
            await does(state, name, run)

    async def _thread(self, state: State, name: str, run: str) -> None:
        rng, threads = self._rng, state.threads
        match rng.randrange(9):
            case 0 | 1:
                await threads.set(name, note=f"note {rng.random()}", run=rng.choice(("", run)))
            case 2:
                await threads.set(name, depends_on=rng.sample(NAMES, 2))
            case 3:
                await threads.set(name, criteria=[f"criterion {rng.randrange(3)}"])
            case 4:
                await threads.check(name, str(rng.randrange(1, 3)), rng.random() < 0.8)
            case 5:
                status = rng.choice(("active", "done", "dropped", "watching", "blocked"))
                await threads.set(
                    name, status=status, evidence="e", note="n", waiting_on="w" * (status[0] == "b")
                )
            case 6 | 7:
                await threads.claim(name, lease=rng.choice(("30s", "2h")))
            case _:
                await threads.release(name, force=True)

    async def _memory(self, state: State, name: str, run: str) -> None:
        rng, memory = self._rng, state.memory
        run = rng.choice(("", run))
        match rng.randrange(6):
            case 0 | 1:
                ttl = rng.choice(("", "1h"))
                await memory.set(name, f"value {rng.random()}", run=run, ttl=ttl)
            case 2:
                key = f"key {rng.randrange(4)}"
                await memory.append(name, f"{rng.random()}", run=run, idempotency_key=key)
            case 3:
                await memory.delete(name, run=run)
            case 4:
                await memory.lock(name, rng.choice(("mine", "")), run=run)
            case _:
                await memory.restore(name, 1, run=run)

    async def _run(self, state: State, name: str, run: str) -> None:
        rng, runs = self._rng, state.runs
        match rng.randrange(6):
            case 0 | 1:
                await runs.begin(f"goal {rng.random()}", run=run, thread=rng.choice(("", name)))
            case 2 | 3:
                await runs.checkpoint(run, f"state {rng.random()}", thread=rng.choice(("", name)))
            case 4:
                message = {"role": "user", "content": f"{rng.random()}"}
                await state.transcripts.append(run, message, message)
            case _:
                if rng.random() < 0.2:
                    await runs.finish(run, "failed", reflection=f"because {rng.random()}")

    async def _step(self, state: State, name: str, run: str) -> None:
        rng, steps = self._rng, state.steps
        if rng.random() < 0.5:
            await steps.begin(run, name, input=f"{rng.randrange(2)}")
        elif rng.random() < 0.9:
            ok, result = rng.random() < 0.3, f"result {rng.randrange(2)}"
            await steps.end(run, name, ok, result, tokens_in=rng.randrange(9))
        else:
            await steps.reset(run, name, "again")

    async def _other(self, state: State, name: str, run: str) -> None:
        rng = self._rng
        match rng.randrange(8):
            case 0 | 1 | 2:
                key = rng.choice(("", f"key {rng.randrange(4)}"))
                text, kind = f"entry {rng.random()}", rng.choice(("", "dead_end"))
                await state.journal.append(text, kind=kind, thread=name, idempotency_key=key)
            case 3:
                await state.journal.append(f"entry {rng.random()}", run=run)
            case 4:
                text, ttl = f"text {rng.randrange(4)}", rng.choice(("", "1h", "2d"))
                await state.blobs.put(text, summary=f"{rng.randrange(2)}", ttl=ttl)
            case 5:
                self._keys.append((await state.handoffs.create("go on")).handoff.key)
            case 6 if self._keys:
                await state.handoffs.accept(rng.choice(self._keys))
            case 7:
                await state.traces.record("search", {"query": name}, f"{rng.random()}", run=run)
            case _:
                pass


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{'soak' if SOAK else 'slice'}-{seed}")
async def test_nothing_is_lost_or_overwritten_between_three_stores(
    tmp_path: Path, seed: int
) -> None:
    rng, clock = random.Random(seed), FakeClock()
    async with (
        store_at(tmp_path / "a.db", clock) as a,
        store_at(tmp_path / "b.db", clock) as b,
        store_at(tmp_path / "c.db", clock) as c,
    ):
        stores = (a, b, c)
        life = Life(rng, clock)
        for _ in range(STEPS):
            store = rng.choice(stores)
            agent = rng.choice(("ada", "ben"))
            await life.step(store.as_(agent, f"{agent} in {store.path.stem}"))
            if rng.random() < 0.15:
                source, target = rng.sample(stores, 2)
                await carry(source, target)
        for source, target in ((a, b), (b, c), (c, a), (a, b)):
            await carry(source, target)


async def carry(source: Store, target: Store) -> None:
    if not source.path.exists():
        return
    try:
        file = await source.export()
    except StateError:
        return  # nothing was written yet
    before = rows(target.path, EVENTS) if target.path.exists() else []
    sent = set(rows(source.path, LASTING))
    await target.take(file)
    assert rows(target.path, EVENTS)[: len(before)] == before
    assert sent - set(rows(target.path, LASTING)) == set()
