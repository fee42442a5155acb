"""`kill -9` at any moment; then the file is read with plain `sqlite3`, as the killed one left it.

Random rounds name their seed when they fail. A slice of them runs always; `MCP_STATE_SOAK=1`
(`make soak`) runs 200.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import sqlite3
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger import Entry, entry, read, read_copy
from raw_client import Call, Server, closing_all
from soaking import SOAK, seeded, some

from mcp_state.api import open_store
from mcp_state.store import doctor

SEED = random.SystemRandom().randrange(1 << 32)
ENTRY = "journal_append"


def calls(rng: random.Random, where: str) -> Iterator[Call]:
    """Writes of every kind and size without end, each with a text of its own."""
    for number in range(10_000):
        text = f"{where}.{number:04}.{rng.randbytes(4).hex()};"
        long = text * rng.randrange(1, 150)
        name = f"{where}-{number % 3}"
        yield rng.choice(
            (
                Call("memory_append", {"key": f"log-{name}", "text": text}),
                Call("memory_set", {"key": f"block-{name}", "value": long}),
                Call(ENTRY, {"text": long}),
                Call("thread_set", {"thread": f"thread-{name}", "next_action": text}),
            )
        )


def spin(seconds: float) -> None:
    """Pass a moment without giving up the processor."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def kill_during(server: Server, last: Call, moment: float) -> bool:
    """Make a call and kill the server that soon after; whether the answer had left already."""
    server.send(last)
    spin(moment)
    answers = server.kill()
    assert [answer.code for _, answer in answers] in ([], [""])
    return bool(answers)


def assert_written(
    written: Counter[Entry], acknowledged: Counter[Entry], last: Call, answered: bool
) -> None:
    """Every acknowledged write is there, once and whole; of all others, at most the last one."""
    with_last = acknowledged + Counter([entry(last)])
    allowed = (with_last,) if answered else (acknowledged, with_last)
    assert written in allowed, (written - with_last, acknowledged - written)


async def assert_it_goes_on(store: Path, before: Counter[Entry]) -> None:
    """The store opens, takes a write, holds what it held, and `doctor` finds no damage."""
    async with open_store(store, project="acme") as state:
        await state.journal.append("and on it goes")
    ledger = read(store)
    assert ledger.problems == []
    assert ledger.written == before + Counter([("journal_append", "", "and on it goes")])
    report = await doctor.examine(str(store))
    assert report.problems == []


@some(8, 100)
async def test_kill_9_at_a_random_moment_loses_nothing_that_was_answered(
    tmp_path: Path, rounds: int
) -> None:
    store = tmp_path / "state.db"
    acknowledged: Counter[Entry] = Counter()
    with seeded(SEED) as rng:
        for number in range(rounds):
            server = Server.start(store)
            with closing_all([server]):
                took = [0.02]
                work = calls(rng, f"r{number}")
                answers = rng.randrange(0 if number else 1, 12)
                for call in itertools.islice(work, answers):
                    began = time.perf_counter()
                    answer = server.call(call)
                    took.append(time.perf_counter() - began)
                    assert answer.code == "", answer
                    acknowledged[entry(call)] += 1
                last = next(work)
                answered = kill_during(server, last, rng.uniform(0, 2 * statistics.median(took)))
            ledger = read_copy(store, tmp_path / "copies")
            assert ledger.problems == []
            assert_written(ledger.written, acknowledged, last, answered)
            acknowledged = ledger.written
        await assert_it_goes_on(store, acknowledged)


@some(8, 60)
async def test_kill_9_while_the_store_is_being_made_leaves_a_whole_store_or_none(
    tmp_path: Path, rounds: int
) -> None:
    first = Call(ENTRY, {"text": "the first one"})
    with seeded(SEED) as rng:
        server = Server.start(tmp_path / "unharmed" / "state.db")
        with closing_all([server]):
            server.wait_until_ready()
            began = time.perf_counter()
            assert server.call(first).code == ""
            takes = time.perf_counter() - began
        for number in range(rounds):
            store = tmp_path / f"home-{number}" / "state.db"
            server = Server.start(store)
            with closing_all([server]):
                server.wait_until_ready()
                answered = kill_during(server, first, rng.uniform(0, 2 * takes))
            written: Counter[Entry] = Counter()
            if store.exists():
                ledger = read_copy(store, tmp_path / "copies")
                assert ledger.problems == []
                written = ledger.written
            assert_written(written, Counter(), first, answered)
            await assert_it_goes_on(store, written)
            assert sorted(f.name for f in store.parent.iterdir()) == ["state.db", "state.db-queue"]


@some(4, 40)
async def test_who_writes_beside_a_killed_one_notices_nothing(tmp_path: Path, rounds: int) -> None:
    store = tmp_path / "state.db"
    first = Call(ENTRY, {"text": "beside, the first"})
    beside: list[Entry] = [entry(first)]
    killed: Counter[Entry] = Counter()
    over = threading.Event()
    bystander = Server.start(store)

    def keep_writing() -> None:
        for number in range(100_000):
            if over.is_set():
                break
            call = Call(ENTRY, {"text": f"beside {number}"})
            answer = bystander.call(call)
            beside.append(entry(call) if not answer.refused else ("refused", "", answer.text))

    with closing_all([bystander]), seeded(SEED) as rng:
        assert bystander.call(first).code == ""
        thread = threading.Thread(target=keep_writing)
        thread.start()
        try:
            for number in range(rounds):
                server = Server.start(store)
                with closing_all([server]):
                    work = calls(rng, f"r{number}")
                    for call, _ in zip(work, range(rng.randrange(20)), strict=False):
                        assert server.call(call).code == ""
                        killed[entry(call)] += 1
                    last = next(work)
                    answered = kill_during(server, last, rng.uniform(0, 0.02))
                written = Counter({e: n for e, n in read(store).written.items() if e[2][0] == "r"})
                assert_written(written, killed, last, answered)
                killed = written
        finally:
            over.set()
            thread.join()
        assert bystander.call(Call(ENTRY, {"text": "beside, the end"})).code == ""
        beside.append(("journal_append", "", "beside, the end"))
    ledger = read_copy(store, tmp_path / "copies")
    assert ledger.problems == []
    assert ledger.written == killed + Counter(beside)
    await assert_it_goes_on(store, ledger.written)


FALLING = 400
REFUTE = Call("fact_verify", {"fact": "root", "holds": False, "evidence": "exit 1"})


def fallen(store: Path) -> tuple[str, int, int]:
    """Of the root its trust, of what rests on it how many fell, and how many events say so."""
    with contextlib.closing(sqlite3.connect(store)) as connection:
        (trust,) = connection.execute("SELECT trust FROM facts WHERE name = 'root'").fetchone()
        (stale,) = connection.execute("SELECT stale FROM projects").fetchone()
        (events,) = connection.execute(
            "SELECT count(*) FROM events WHERE kind = 'fact' AND operation = 'fall'"
        ).fetchone()
    return trust, stale, events


@some(6, 60)
async def test_kill_9_in_the_middle_of_a_fall_leaves_all_of_it_or_nothing(
    tmp_path: Path, rounds: int
) -> None:
    sound = tmp_path / "sound" / "state.db"
    async with open_store(sound, project="acme") as state:
        await state.facts.record("root", "it stands", check="make root")
        for number in range(FALLING):
            below = "root" if number % 2 else f"f{number - 2}" if number else "root"
            await state.facts.record(f"f{number}", "so does this", because=[below])
    allowed = (("provisional", 0, 0), ("refuted", FALLING, FALLING))
    found: set[tuple[str, int, int]] = set()
    with seeded(SEED) as rng:
        takes = 0.0
        for number in range(rounds + 1):
            store = tmp_path / f"home-{number}" / "state.db"
            shutil.copytree(sound.parent, store.parent)
            server = Server.start(store)
            with closing_all([server]):
                server.wait_until_ready()
                if not number:
                    began = time.perf_counter()
                    assert server.call(REFUTE).code == ""
                    takes = time.perf_counter() - began
                    continue
                answered = kill_during(server, REFUTE, rng.uniform(0, 1.2 * takes))
            state_now = fallen(store)
            found.add(state_now)
            assert state_now in allowed[1 if answered else 0 :], state_now
            assert (await doctor.examine(str(store))).problems == []
    assert not SOAK or found == set(allowed)


BEGUN = (
    Call("memory_set", {"key": "plan", "value": "one"}),
    Call("thread_set", {"thread": "work", "next_action": "begin", "criteria": ["it runs"]}),
)
LAST = (
    Call("memory_set", {"key": "plan", "value": "two " * 1000}),
    Call("memory_append", {"key": "plan", "text": ", two"}),
    Call("memory_delete", {"key": "plan"}),
    Call("journal_append", {"text": "w" * 8000}),
    Call("thread_set", {"thread": "work", "next_action": "go on"}),
    Call("thread_claim", {"thread": "work"}),
    Call("thread_check", {"thread": "work", "criterion": "1", "passes": True}),
)


@pytest.mark.parametrize("last", LAST, ids=lambda call: call.tool)
async def test_what_was_answered_just_before_kill_9_is_on_disk(tmp_path: Path, last: Call) -> None:
    store = tmp_path / "state.db"
    server = Server.start(store, toolset="all")
    with closing_all([server]):
        for call in BEGUN:
            assert server.call(call).code == ""
        answer = server.call(last)
        assert server.kill() == []
    assert answer.code == ""
    ledger = read_copy(store, tmp_path / "copies")
    assert ledger.problems == []
    assert ledger.written == Counter(entry(call) for call in (*BEGUN, last))
    await assert_it_goes_on(store, ledger.written)
