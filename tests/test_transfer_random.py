"""Whatever was done in which store and carried where: nothing is lost, nothing is overwritten.

Random rounds name their seed when they fail. A slice of them runs always; `MCP_STATE_SOAK=1`
(`make soak`) runs the whole.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Sequence

import pytest
from carrying import Store, store_at
from conftest import FakeClock
from peeking import rows
from soaking import SOAK
from whole_stores import Stores, contradictions, exists

from mcp_state.api import State
from mcp_state.errors import StateError
from mcp_state.models import FALLEN

SEEDS = range(150 if SOAK else 3)
FEW_SEEDS = range(150 if SOAK else 1)  # of what takes five times as long
STEPS = 60
FACTS = ("one", "Two", "three", "four", "five", "six", "seven", "eight", "nine")
NAMES = ("one", "Two", "three (from acme)", "four/five")
EVENTS = """
    SELECT seq, at, kind, name, operation, summary, row, agent, version
    FROM event_rows ORDER BY seq
"""
LASTING = """
    SELECT kind, at, agent, operation, summary, version FROM event_rows
    WHERE operation NOT LIKE 'lease_%'
        AND kind NOT IN ('blob', 'handoff', 'project')
        AND (kind <> 'fact' OR operation NOT IN ('fall', 'due'))
"""
"""That a fact fell with others is worked out anew: here it may rest on others."""


RECORDED = """
    SELECT at, operation, json_extract(row, '$.reasons'),
        EXISTS (SELECT 1 FROM premises WHERE fact = name AND given = seq),
        (
            SELECT at FROM events
            WHERE project = last.project AND kind = 'fact' AND name = last.name AND seq < last.seq
                AND operation IN ('record', 'supersede') ORDER BY seq DESC LIMIT 1
        ), (
            SELECT json_extract(row, '$.reasons') FROM events
            WHERE project = last.project AND kind = 'fact' AND name = last.name AND seq < last.seq
                AND operation <> 'refused' ORDER BY seq DESC LIMIT 1
        )
    FROM events AS last
    WHERE kind = 'fact' AND operation IN ('record', 'supersede')
    ORDER BY seq DESC LIMIT 1
"""
"""The last recording of a fact, and what was there before it."""
REASONS = """
    SELECT name, at, (SELECT count(*) FROM json_each(row, '$.reasons')) FROM events
    WHERE kind = 'fact' AND operation IN ('record', 'supersede') ORDER BY seq
"""


PREMISES = """
    SELECT fact, dense_rank() OVER (PARTITION BY fact ORDER BY reason), premise, replaced
    FROM premise_rows
"""


class Told:
    """What a plain reading of the rules says about reasons.

    A recording is known by its time: no two are of one time, wherever they were made.
    """

    def __init__(self) -> None:
        self.about: dict[str, set[str]] = {}
        """By the recording that gave a reason: when the statements were made that it was for."""
        self.reasons: dict[str, list[str]] = {}
        """By recording: those that gave the reasons that its fact has from then on."""

    def listen(self, store: Store) -> None:
        """Note what the last recording did, and hold it against the rules."""
        for at, operation, after, is_given, earlier, before in rows(store.path, RECORDED):
            if str(at) in self.reasons:
                continue
            facts = rows(
                store.path,
                "SELECT shown, stated_at FROM facts",
            )
            stated = {str(name): str(time) for name, time in facts}
            named: list[list[str]] = json.loads(str(after))
            had: list[tuple[str, list[str]]] = []
            if operation == "record" and earlier is not None:
                had = list(zip(self.reasons[str(earlier)], json.loads(str(before)), strict=True))
            if is_given:
                had = [
                    (given, names) for given, names in had if self._is_about(given, names, stated)
                ]
                self.about[str(at)] = {stated[name] for name in named[-1]}
                had.append((str(at), named[-1]))
            assert named == [names for _, names in had]
            self.reasons[str(at)] = [given for given, _ in had]

    def _is_about(self, given: str, names: list[str], stated: dict[str, str]) -> bool:
        """Whether all that a reason was given for still says the same."""
        return all(stated[name] in self.about[given] for name in names)


class Life:
    """One caller that does one random thing after another, whatever is refused."""

    def __init__(self, rng: random.Random, clock: FakeClock) -> None:
        self._rng = rng
        self._clock = clock
        self._keys: list[str] = []
        self.told = Told()

    async def step(self, state: State) -> None:
        self._clock.move(seconds=self._rng.choice((1, 1, 60, 4000)))
        rng, name, run = self._rng, self._rng.choice(NAMES), self._rng.choice(NAMES)
        does = rng.choice(
            (self._thread, self._memory, self._run, self._step, self._other, self._fact)
        )
        with contextlib.suppress(StateError):
            await does(state, name, run)

    async def believe(self, state: State, names: Sequence[str]) -> None:
        """One random thing with one of these facts, on the strength of any."""
        self._clock.move(seconds=self._rng.choice((1, 4000)))
        with contextlib.suppress(StateError):
            await self._fact(state, self._rng.choice(names), "")

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

    async def _fact(self, state: State, name: str, run: str) -> None:
        rng, facts = self._rng, state.facts
        there = (await facts.list(limit=50)).facts
        known = [fact.name for fact in there if fact.trust not in FALLEN]
        because = rng.sample(known, min(len(known), rng.randrange(1, 3)))
        match rng.randrange(12):
            case 0 | 1 | 2:
                text, archival = f"statement {rng.random()}", rng.random() < 0.1
                await facts.record(name, text, check="c", because=because, archival=archival)
            case 3 | 4:
                await facts.record(name, because=because)
            case 5:
                version = next((fact.version for fact in there if fact.name == name), 0)
                text = f"statement {rng.randrange(3)}"
                await facts.record(name, text, because=because, expected_version=version)
            case 6:
                after, check = rng.choice(("1h", "2d")), rng.choice(("", "c", f"{rng.random()}"))
                await facts.record(name, check=check, recheck_after=after)
            case 7 | 8 | 9:
                await facts.verify(name, rng.random() < 0.7, f"evidence {rng.random()}")
            case 10:
                await state.threads.set(name, relies_on=because)
            case _:
                now = await state.objective.get()
                text, version = f"objective {rng.random()}", now.version if now else None
                await state.objective.set(text, reason="r", expected_version=version)

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
    stores: Stores, seed: int
) -> None:
    rng, clock = random.Random(seed), FakeClock()
    async with (
        store_at(stores / "a.db", clock) as a,
        store_at(stores / "b.db", clock) as b,
        store_at(stores / "c.db", clock) as c,
    ):
        three = (a, b, c)
        life = Life(rng, clock)
        for _ in range(STEPS):
            store = rng.choice(three)
            agent = rng.choice(("ada", "ben"))
            await life.step(store.as_(agent, f"{agent} in {store.name}"))
            if exists(store.path):
                life.told.listen(store)
            if rng.random() < 0.15:
                source, target = rng.sample(three, 2)
                await carry(source, target, life.told)
        for source, target in ((a, b), (b, c), (c, a), (a, b)):
            await carry(source, target, life.told)


@pytest.mark.parametrize("seed", FEW_SEEDS, ids=lambda s: f"{'soak' if SOAK else 'slice'}-{s}")
async def test_what_is_believed_falls_wherever_its_reasons_do(stores: Stores, seed: int) -> None:
    """Each store works on facts of its own, and rests them on those of the others."""
    steps = 2 * STEPS if SOAK else STEPS
    rng, clock = random.Random(seed), FakeClock()
    async with (
        store_at(stores / "a.db", clock) as a,
        store_at(stores / "b.db", clock) as b,
        store_at(stores / "c.db", clock) as c,
    ):
        life = Life(rng, clock)
        for _ in range(steps):
            number = rng.randrange(3)
            names = FACTS[number * 3 : number * 3 + 3] if rng.random() < 0.95 else FACTS
            store = (a, b, c)[number]
            await life.believe(store.as_("ada", f"ada in {store.name}"), names)
            if exists(store.path):
                life.told.listen(store)
            if rng.random() < 0.25:
                source, target = rng.sample((a, b, c), 2)
                await carry(source, target, life.told)
        for source, target in ((a, b), (b, c), (c, a), (a, b)):
            await carry(source, target, life.told)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{'soak' if SOAK else 'slice'}-{seed}")
async def test_a_project_and_a_copy_of_it_that_both_went_on_can_become_one(
    stores: Stores, seed: int
) -> None:
    rng, clock = random.Random(seed), FakeClock()
    async with store_at(stores / "a.db", clock) as a, store_at(stores / "b.db", clock) as b:
        life = Life(rng, clock)
        await a.as_().handoffs.create("so that there is something")
        for number in range(STEPS):
            project = rng.choice(("acme", "copy")) if number > STEPS // 2 else "acme"
            await life.step(a.as_(rng.choice(("ada", "ben")), "s1", project))
            if number in (STEPS // 2, STEPS * 3 // 4):
                await a.take(await a.export("acme"), "copy")
        source, target = rng.sample(("acme", "copy"), 2)
        count = (
            "SELECT count(*) FROM events WHERE kind <> 'project' AND operation <> 'lease_broken'"
        )
        taken = "SELECT DISTINCT key FROM handoffs WHERE accepted_at IS NOT NULL ORDER BY key"
        before, were_taken = rows(a.path, count), rows(a.path, taken)
        await a.as_(project=source).projects.merge(target)
        assert contradictions(a.path) == []
        assert rows(a.path, count) >= before
        assert rows(a.path, taken) == were_taken
        await b.take(await a.export(target), target)
        await a.take(await b.export(target), target)


async def carry(source: Store, target: Store, told: Told) -> None:
    if not exists(source.path):
        return
    try:
        file = await source.export()
    except StateError:
        return  # nothing was written yet
    assert_arguments_hold(source.path, told)
    before = rows(target.path, EVENTS) if exists(target.path) else []
    sent = set(rows(source.path, LASTING))
    await target.take(file)
    assert rows(target.path, EVENTS)[: len(before)] == before
    assert sent - set(rows(target.path, LASTING)) == set()
    assert_arguments_hold(target.path, told)


def assert_arguments_hold(path: str, told: Told) -> None:
    """No fact stands on what has fallen or was replaced, and each can be derived in some order.

    A reason reads as replaced if, and only if, its premise says something else than when it was
    given, wherever that was.
    """
    facts = rows(
        path,
        "SELECT name, trust, stated_at, recheck_at FROM facts",
    )
    trust = {str(name): str(trust) for name, trust, _, _ in facts}
    stated = {str(name): str(at) for name, _, at, _ in facts}
    due = {str(name) for name, trust, _, at in facts if trust == "stale" and at is not None}
    fallen = {name for name in trust if trust[name] in ("stale", "refuted")}
    given: dict[str, list[str]] = {}
    for name, at, count in rows(path, REASONS):
        given[str(name)] = told.reasons[str(at)]
        assert count == len(given[str(name)]), name
    reasons: dict[str, dict[object, set[str]]] = {name: {} for name in trust}
    stand: dict[str, set[object]] = {name: set() for name in trust}
    for fact, number, premise, reads in rows(path, PREMISES):
        name, other = str(fact), str(premise)
        replaced = stated[other] not in told.about[given[name][int(str(number)) - 1]]
        assert bool(reads) == replaced, (name, number, other)
        reason = reasons[name].setdefault(number, set())
        if not reason:
            stand[name].add(number)
        reason.add(other)
        if replaced or other in fallen:
            stand[name].discard(number)
    for name in trust:
        assert len(reasons[name]) == len(given[name]), name
        has_support = not reasons[name] or bool(stand[name])
        assert has_support or (name in fallen and name not in due), name
        assert trust[name] != "stale" or (name in due) == has_support, name
    premises = {name: set[str]().union(*reasons[name].values()) for name in trust}
    derived: set[str] = set()
    while new := {name for name in trust if premises[name] <= derived} - derived:
        derived |= new
    assert derived == trust.keys()
