"""What a clock that is set back, set forward or jumps about does to a store, and what it does not.

Order, versions, tokens and idempotency keys never follow the clock; what ends at a time does. What
is honestly not promised stands in the last part: a clock that is ahead ends things early, and only
a lease that was seen to be over by a write stays so when the clock is set right.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from carrying import store_at
from conftest import START, Call, Connect, FakeClock, text_of
from mcp import Client
from peeking import Plain, plain
from soaking import SOAK
from test_kill import seeded
from whole_stores import Stores, contradictions

from mcp_state.api import State
from mcp_state.errors import (
    BudgetSpent,
    Conflict,
    Expired,
    Held,
    LeaseLost,
    StateError,
    VersionConflict,
)
from mcp_state.models import MemoryBlock, MissingBlock, Thread
from mcp_state.times import ago, since, until, when

SEED = random.SystemRandom().randrange(1 << 32)
NONSENSE = re.compile(
    r"(?<![\w-])-\d[\d,]* (s|min|h|d|of)\b|\bin -|\bin [\d,]+ \w+ ago"
    r"|(?<!expires )(?<!again )(?<!due )\bin [\d,]+ (s|min|h|d)\b"
)
"""A negative length of time, and what happened told as if it were to come."""
THREADS = ("t0", "t1", "t2")
NEW_EVENTS = "SELECT seq, at FROM events WHERE seq > ? ORDER BY seq"
JUMPS = (
    timedelta(hours=-1),
    timedelta(days=365),
    timedelta(days=-365),
    timedelta(minutes=31),
    timedelta(seconds=-3),
    timedelta(),
)


# Words


@pytest.mark.parametrize(
    ("seconds", "happened", "planned"),
    [
        (-2 * 86400, "2 d ago", "2 d ago"),
        (-5, "5 s ago", "5 s ago"),
        (-4.9, "just now", "just now"),
        (0, "just now", "just now"),
        (1, "just now", "just now"),
        (2, "just now", "in 2 s"),
        (5, "5 s ahead of the clock", "in 5 s"),
        (3600, "1 h ahead of the clock", "in 1 h"),
        (3 * 86400, "3 d ahead of the clock", "in 3 d"),
    ],
)
def test_what_happened_is_never_told_as_if_it_were_to_come(
    seconds: float, happened: str, planned: str
) -> None:
    at = START + timedelta(seconds=seconds)
    assert (ago(at, START), when(at, START)) == (happened, planned)
    assert since(at, START) == happened.removesuffix(" ago")


def test_an_end_on_another_day_or_in_another_year_says_so() -> None:
    assert until(START + timedelta(hours=1), START) == "10:00 UTC"
    assert until(START + timedelta(days=-1), START) == "28 Nov 09:00 UTC"
    assert until(START + timedelta(days=365), START) == "29 Nov 2027 09:00 UTC"


# Everything at once, at random


@dataclass
class Claim:
    """The last lease of a thread, as it should be."""

    token: int = 0
    holder: str = ""
    until: datetime = START
    over: bool = True


class Jumping:
    """Agents on one store while the clock jumps, and a model of what has to hold."""

    def __init__(
        self,
        agents: list[State],
        clock: FakeClock,
        store: Plain,
        rng: random.Random,
    ) -> None:
        self.agents, self.clock, self.store, self.rng = agents, clock, store, rng
        self.claims = {thread: Claim() for thread in THREADS}
        self.blocks: dict[str, tuple[str, datetime]] = {}
        self.versions: dict[str, int] = {}
        self.entries: dict[str, tuple[int, str]] = {}
        self.checked: dict[str, datetime] = {}
        self.attempts = 0
        self.events = 0
        self.spent = False

    def look(self) -> None:
        """After each deed: events are numbered without gaps, at the time that they were written."""
        new = self.store.execute(NEW_EVENTS, [self.events]).fetchall()
        now = f"{self.clock.time:%Y-%m-%dT%H:%M:%S.%fZ}"
        assert new == [(seq, now) for seq in range(self.events + 1, self.events + len(new) + 1)]
        self.events += len(new)
        if new:
            for claim in self.claims.values():
                claim.over = claim.over or claim.until <= self.clock.time

    def is_held(self, thread: str) -> bool:
        claim = self.claims[thread]
        return not claim.over and claim.until > self.clock.time

    async def expect(self, deed: Awaitable[Any], refusal: type[StateError] | None) -> Any:
        """What has to be refused is; what has not to be is not."""
        if refusal is None:
            return await deed
        with pytest.raises(refusal):
            await deed
        return None

    async def claim(self, agent: State, thread: str) -> None:
        old = self.claims[thread]
        held = Held if self.is_held(thread) else None
        minutes = self.rng.choice((1, 30, 90))
        claimed = await self.expect(agent.threads.claim(thread, lease=f"{minutes}m"), held)
        if claimed is not None:
            assert isinstance(claimed, Thread) and claimed.lease is not None
            assert claimed.lease.token > old.token
            end = self.clock.time + timedelta(minutes=minutes)
            who = agent.caller.actor.agent
            self.claims[thread] = Claim(claimed.lease.token, who, end, over=False)

    async def extend(self, agent: State, thread: str) -> None:
        claim = self.claims[thread]
        if claim.token:
            await agent.threads.claim(thread, lease="30m", lease_token=claim.token)
            end = self.clock.time + timedelta(minutes=30)
            who = agent.caller.actor.agent
            self.claims[thread] = Claim(claim.token, who, end, over=False)

    async def write(self, agent: State, thread: str) -> None:
        held = Held if self.is_held(thread) else None
        await self.expect(agent.threads.set(thread, note=f"{self.events}"), held)

    async def write_with_token(self, agent: State, thread: str) -> None:
        token = self.claims[thread].token
        if token:
            await agent.threads.set(thread, note=f"{self.events}", lease_token=token)

    async def write_with_old_token(self, agent: State, thread: str) -> None:
        token = self.claims[thread].token
        if token > 1:
            older = self.rng.randrange(1, token)
            late = agent.threads.set(thread, note="late", lease_token=older)
            await self.expect(late, LeaseLost)

    async def remember(self, agent: State, thread: str) -> None:
        length = timedelta(minutes=self.rng.choice((2, 45, 600)))
        value = f"{self.events}"
        key = f"key {thread}"
        block = await agent.memory.set(key, value, ttl=f"{length.seconds}s")
        assert block.version > self.versions.get(key, 0)
        self.versions[key] = block.version
        self.blocks[key] = value, self.clock.time + length

    async def must_not_exist(self, agent: State, thread: str) -> None:
        key = f"key {thread}"
        there = key in self.blocks and self.blocks[key][1] > self.clock.time
        new = agent.memory.set(key, "anew", expected_version=0)
        block = await self.expect(new, VersionConflict if there else None)
        if block is not None:
            assert block.version > self.versions.get(key, 0)
            self.versions[key] = block.version
            self.blocks[key] = "anew", datetime.max.replace(tzinfo=START.tzinfo)

    async def tell(self, agent: State, thread: str) -> None:
        """A key that was used before leads to the first entry, however long ago that was."""
        key = f"key {self.rng.randrange(6)}"
        known = self.entries.get(key)
        text = known[1] if known else f"{key}, event {self.events}"
        entry = await agent.journal.append(text, idempotency_key=key)
        assert entry.repeated is (known is not None)
        self.entries.setdefault(key, (entry.seq, text))
        assert (entry.seq, entry.text) == self.entries[key]
        await self.expect(agent.journal.append("other", idempotency_key=key), Conflict)

    async def step(self, agent: State, thread: str) -> None:
        """Minutes that were found spent stay spent; attempts are counted whatever the clock."""
        elapsed = (self.clock.time - START).total_seconds() / 60
        spent = self.spent or elapsed >= 60
        step = f"step {self.attempts}"
        begun = await self.expect(agent.steps.begin("r", step), BudgetSpent if spent else None)
        self.spent = spent
        if begun is not None:
            self.attempts += 1
            assert (begun.go, begun.attempt) == (True, 1)
            ended = await agent.steps.end("r", step, True, "fine")
            assert ended.run.attempts == self.attempts
        run = (await agent.runs.list()).runs[0]
        assert run.minutes == max(0, int(elapsed))

    async def check(self, agent: State, thread: str) -> None:
        verified = await agent.facts.verify("builds", True, "make: exit 0")
        assert verified.fact.recheck_at == self.clock.time + timedelta(hours=2)
        self.checked["builds"] = self.clock.time + timedelta(hours=2)

    async def invariants(self) -> None:
        """What can be read agrees with the model."""
        agent = self.rng.choice(self.agents)
        for thread, claim in self.claims.items():
            lease = (await agent.threads.get(thread)).thread.lease
            told = lease and (lease.token, lease.holder.agent, lease.until)
            due = (claim.token, claim.holder, claim.until) if self.is_held(thread) else None
            assert told == due
        for key, (value, end) in self.blocks.items():
            block = await agent.memory.get(key)
            if end > self.clock.time:
                assert isinstance(block, MemoryBlock) and block.value == value
            else:
                assert isinstance(block, MissingBlock) and block.expired_at == end
        for fact, end in self.checked.items():
            found = (await agent.facts.trace(fact)).fact
            assert (found.trust.value, found.due) == ("trusted", end <= self.clock.time)
        entries = (await agent.journal.tail(limit=100)).entries
        assert [(e.seq, e.text) for e in entries] == sorted(self.entries.values())


READS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("orient", {}),
    ("thread_list", {}),
    ("thread_get", {"thread": "t0"}),
    ("memory_get", {}),
    ("memory_get", {"key": "key t1"}),
    ("journal_tail", {}),
    ("history", {}),
    ("history", {"subject": "thread:t0"}),
    ("run_list", {}),
    ("run_resume", {"run_id": "r"}),
    ("fact_list", {}),
    ("fact_trace", {"fact": "ships"}),
    ("search", {"query": "key"}),
)
Deed = Callable[[State, str], Coroutine[Any, Any, None]]


def deeds(jumping: Jumping) -> Iterator[Deed]:
    yield from (jumping.claim, jumping.claim, jumping.extend, jumping.write)
    yield from (jumping.write_with_token, jumping.write_with_old_token, jumping.remember)
    yield from (jumping.must_not_exist, jumping.tell, jumping.step, jumping.check)


@pytest.mark.parametrize(
    "rounds", [pytest.param(60 if SOAK else 1, id="soak" if SOAK else "slice")]
)
async def test_a_clock_that_jumps_about_confuses_nothing_that_is_stored_or_told(
    rounds: int, stores: Stores, connect: Connect, clock: FakeClock
) -> None:
    for turn in range(rounds):
        path = stores / f"{turn}.db"
        clock.time = START
        with seeded(SEED + turn) as rng:
            async with connect(db=path, toolset="all", session="s4") as client:
                await jump_about(path, clock, rng, client)


async def jump_about(path: str, clock: FakeClock, rng: random.Random, client: Client) -> None:
    async with store_at(path, clock) as one, store_at(path, clock) as two:
        agents = [one.as_("codex", "s1"), one.as_("codex", "s2"), two.as_("claude", "s3")]
        await begin(agents[0])
        with plain(path) as store:
            jumping = Jumping(agents, clock, store, rng)
            jumping.look()
            every = list(deeds(jumping))
            for number in range(100):
                if rng.random() < 0.5:
                    clock.time += rng.choice((*JUMPS, timedelta(seconds=rng.uniform(-9e6, 9e6))))
                await rng.choice(every)(rng.choice(agents), rng.choice(THREADS))
                jumping.look()
                if number % 4 == 0:
                    await jumping.invariants()
                for tool, arguments in READS if number % 20 == 0 else rng.sample(READS, 1):
                    answer = await client.call_tool(tool, arguments)
                    text = text_of(answer)
                    assert not answer.is_error, text
                    assert not NONSENSE.search(text), text
    assert contradictions(path) == []


async def begin(agent: State) -> None:
    for thread in THREADS:
        await agent.threads.set(thread, next_action="go on")
    await agent.threads.set("asked", status="blocked", waiting_on="ann", recheck_after="1h")
    await agent.runs.begin("Reindex", run="r", max_minutes=60)
    await agent.facts.record("builds", "it builds", check="make", recheck_after="2h")
    await agent.facts.record("ships", "it ships", check="ship", because=["builds"])


# What is not promised


async def test_a_write_under_a_clock_that_is_ahead_ends_a_lease_for_good(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.threads.set("t")
    await mine.threads.claim("t", lease="30m")

    clock.move(days=365)
    await theirs.journal.append("written a year ahead")
    clock.move(days=-365)

    assert (await mine.threads.get("t")).thread.lease is None


async def test_a_lease_that_only_readers_saw_end_goes_on_when_the_clock_is_set_right(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.threads.set("t")
    await mine.threads.claim("t", lease="30m")

    clock.move(days=365)
    assert (await theirs.threads.get("t")).thread.lease is None
    clock.move(days=-365)

    with pytest.raises(Held):
        await theirs.threads.set("t", note="x")


async def test_a_lease_lasts_longer_by_as_much_as_the_clock_is_set_back(
    mine: State, theirs: State, clock: FakeClock
) -> None:
    await mine.threads.set("t")
    await mine.threads.claim("t", lease="30m")

    clock.move(hours=-1)
    clock.move(minutes=89)

    with pytest.raises(Held):
        await theirs.threads.set("t", note="x")


async def test_what_expires_is_hidden_by_a_clock_that_is_ahead_and_not_lost(
    mine: State, clock: FakeClock
) -> None:
    blob = await mine.blobs.put("a log", ttl="4h")
    await mine.memory.set("plan", "one", ttl="4h")

    clock.move(days=1)
    assert isinstance(await mine.memory.get("plan"), MissingBlock)
    with pytest.raises(Expired):
        await mine.blobs.get(blob.key)
    clock.move(days=-1)

    block = await mine.memory.get("plan")
    assert isinstance(block, MemoryBlock) and block.value == "one"
    assert (await mine.blobs.get(blob.key)).text == "a log"


async def test_what_was_written_over_while_it_was_hidden_is_still_in_its_history(
    mine: State, clock: FakeClock
) -> None:
    await mine.memory.set("plan", "one", ttl="4h")
    clock.move(days=1)
    await mine.memory.append("plan", "two")
    clock.move(days=-1)

    blocks = [await mine.memory.get("plan", version=n) for n in (1, 2)]
    assert [b.value for b in blocks if isinstance(b, MemoryBlock)] == ["one", "two"]


async def test_a_day_that_was_set_by_a_clock_that_was_ahead_stays_that_day(
    call: Call, mine: State, clock: FakeClock
) -> None:
    clock.move(days=365)
    await mine.threads.set("seen", status="watching", recheck_after="1h")
    clock.move(days=-365)

    assert "seen [watching, look again in 365 d]" in await call("thread_get", thread="seen")


async def test_minutes_that_a_clock_that_was_ahead_found_spent_stay_spent(
    mine: State, clock: FakeClock
) -> None:
    await mine.runs.begin("Reindex", run="r", max_minutes=60)
    clock.move(days=365)
    with pytest.raises(BudgetSpent):
        await mine.steps.begin("r", "one")
    clock.move(days=-365)

    with pytest.raises(BudgetSpent):
        await mine.steps.begin("r", "one")
    await mine.runs.raise_budget("r", "the clock was ahead", minutes=120)
    assert (await mine.steps.begin("r", "one")).go
