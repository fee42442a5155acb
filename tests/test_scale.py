"""What a call costs does not grow with the store, and a packet fits its budget on a large one.

The large store holds 100,000 journal entries, 10,000 threads, 10,000 facts and 1,000 memory blocks;
the small one 100 of each, so that every list of a packet is full in both.
"""

from __future__ import annotations

import itertools
import re
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from large_store import NOW, Size, Still, build
from soaking import SOAK

from mcp_state.api import State, open_store
from mcp_state.models import Thread
from mcp_state.orient import Orient
from mcp_state.store import doctor, opening
from mcp_state.store.sessions import Sessions
from mcp_state.web.views import look

LARGE = Size(entries=100_000, threads=10_000, blocks=1_000, facts=10_000)
SMALL = Size(entries=100, threads=100, blocks=100, facts=100)
TIMES = 41
FACTOR = 1.5
FLOOR = 0.3e-3
"""Seconds. Deeper trees cost a few pages more, and a median of this machine's noise as much: a
difference below it says nothing. A scan of any of the large tables costs 10 ms or more.

What is measured is processor time, of all threads: what else runs on the machine does not count,
nor does the wait for the disk, which is one `fsync` a write in a store of any size."""


async def claim_and_release(state: State) -> None:
    claimed = await state.threads.claim()
    assert isinstance(claimed, Thread) and claimed.lease is not None
    await state.threads.release(claimed.name, lease_token=claimed.lease.token)


CALLS: dict[str, Callable[[State, int], Awaitable[object]]] = {
    "orient": lambda state, n: state.orient(),
    "what a subagent is told": lambda state, n: Orient(state.database, state.caller).brief(500),
    "what a session has in hand": lambda state, n: Sessions(state.database, state.caller).in_hand(),
    "journal_tail": lambda state, n: state.journal.tail(),
    "journal_tail of a thread": lambda state, n: state.journal.tail(thread="busy"),
    "thread_list": lambda state, n: state.threads.list(),
    "thread_list of what is due": lambda state, n: state.threads.list(due=True),
    "thread_get": lambda state, n: state.threads.get("busy"),
    "thread_set": lambda state, n: state.threads.set("busy", note=f"note {n}"),
    "thread_claim": lambda state, n: claim_and_release(state),
    "memory_append": lambda state, n: state.memory.append("measured", f"{n:04}"),
    "memory_get": lambda state, n: state.memory.get("block0000001"),
    "journal_append": lambda state, n: state.journal.append(f"measured {n}", thread="busy"),
    "fact_list": lambda state, n: state.facts.list(),
    "fact_list of what is due": lambda state, n: state.facts.list(due=True),
    "fact_record": lambda state, n: state.facts.record("fact0000050", check=f"check {n}"),
    "fact_verify": lambda state, n: state.facts.verify("fact0000050", True, f"run {n}"),
    "page: overview": lambda state, n: look(state, "overview", {}),
    "page: threads": lambda state, n: look(state, "threads", {}),
    "page: journal": lambda state, n: look(state, "journal", {"kind": "note", "actor": "builder"}),
    "page: facts": lambda state, n: look(state, "facts", {"trust": "provisional"}),
    "page: versions": lambda state, n: look(state, "versions", {"key": "block0000001"}),
    "page: history": lambda state, n: look(state, "history", {}),
}


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[State]:
    async with open_store(path, project="acme", agent="measuring", clock=Still(NOW)) as state:
        yield state


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scale")


@pytest.fixture
async def large(homes: Path) -> Path:
    """The large store, made once."""
    path = homes / "large" / "state.db"
    if not path.exists():
        await build(path, LARGE)
    return path


@pytest.fixture
async def small(homes: Path) -> Path:
    path = homes / "small" / "state.db"
    if not path.exists():
        await build(path, SMALL)
    return path


def processor_time(*words: str) -> float:
    """What a process takes from its start to its end, which nothing else on the machine changes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.soak
def test_what_runs_at_every_start_of_a_session_is_quick_on_a_large_store(large: Path) -> None:
    """What they import from others is a fixed part of it, by which the rest is measured."""
    program = (str(Path(sys.executable).with_name("mcp-state")),)
    on_store = ("--db", str(large), "--project", "acme")
    commands = {
        "base": (sys.executable, "-c", "import asyncio, click, dataclasses, json, sqlite3"),
        "orient": (*program, "orient", *on_store),
        "hook": (*program, "hook", "session-start", *on_store),
    }
    took: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(7 if SOAK else 4):
        for name, words in commands.items():
            took[name].append(processor_time(*words))
    least = {name: min(times) for name, times in took.items()}
    sys.stdout.write(f"{least}\n")
    assert max(least["orient"], least["hook"]) < 3.5 * least["base"]


async def problems_of(path: Path, size: Size) -> list[object]:
    report = await doctor.examine(str(path))
    (totals,) = report.projects
    held = Size(totals.journal, totals.all_threads, totals.memory, totals.all_facts)
    assert held == size
    return list(report.problems)


async def test_the_small_store_is_one_in_which_doctor_finds_nothing(small: Path) -> None:
    assert await problems_of(small, SMALL) == []


@pytest.mark.skipif(not SOAK, reason="takes long; the same code made the small one")
async def test_soak_the_large_store_is_one_in_which_doctor_finds_nothing(large: Path) -> None:
    assert await problems_of(large, LARGE) == []


async def test_no_call_costs_more_on_a_store_a_thousand_times_as_large(
    large: Path, small: Path, tmp_path: Path
) -> None:
    for path in (large, small):
        shutil.copytree(path.parent, tmp_path / path.parent.name)
    took: dict[tuple[str, str], list[float]] = {}
    async with (
        opened(tmp_path / "large" / "state.db") as in_large,
        opened(tmp_path / "small" / "state.db") as in_small,
    ):
        sizes = (("large", in_large), ("small", in_small))
        for n, (tool, call) in itertools.product(range(TIMES), CALLS.items()):
            for size, state in sizes if n % 2 else reversed(sizes):
                began = time.process_time()
                await call(state, n)
                took.setdefault((tool, size), []).append(time.process_time() - began)
    medians = {key: statistics.median(times[1:]) for key, times in took.items()}
    report = {
        tool: f"{medians[tool, 'large'] * 1e3:.2f} ms, {medians[tool, 'small'] * 1e3:.2f} ms"
        for tool in CALLS
    }
    sys.stdout.write(f"{report}\n")
    assert {
        tool: report[tool]
        for tool in CALLS
        if medians[tool, "large"] > FACTOR * medians[tool, "small"] + FLOOR
    } == {}


STEPS = 100
COUNTING = {
    "orient": 24_500,
    "thread_list of what is due": 8_500,
    "fact_list": 7_500,
    "fact_list of what is due": 7_500,
    "what a subagent is told": 24_500,
    "page: overview": 16_000,
    "page: facts": 7_500,
}
"""SQLite instructions for counting up to 1,001 due threads of each status and facts of each trust,
of which the small store has fewer. A scan of the active threads alone costs 90,000."""


async def test_sqlite_does_no_more_work_for_a_call_on_the_large_store(
    large: Path, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    connect = opening.new_connection

    def step() -> int:
        nonlocal steps
        steps += STEPS
        return 0

    def counted(path: str, mode: str = "") -> sqlite3.Connection:
        connection = connect(path, mode)
        connection.set_progress_handler(step, STEPS)
        return connection

    monkeypatch.setattr(opening, "new_connection", counted)
    did: dict[tuple[str, str], int] = {}
    for path in (large, small):
        shutil.copytree(path.parent, tmp_path / path.parent.name)
        async with opened(tmp_path / path.parent.name / path.name) as state:
            for n, (tool, call) in itertools.product(range(2), CALLS.items()):
                steps = 0
                await call(state, n)
                did[tool, path.parent.name] = steps
    assert {
        tool: (did[tool, "large"], did[tool, "small"])
        for tool in CALLS
        if did[tool, "large"] > did[tool, "small"] + 2 * STEPS + COUNTING.get(tool, 0)
    } == {}


HELD = "in-hand [active, priority 4, held by this session until 14:00 UTC]"
URGENT = "urgent [active, priority 1]"
LATE = "late [watching, due 3 d ago]"


@asynccontextmanager
async def with_work_in_hand(store: Path, copy: Path) -> AsyncGenerator[State]:
    """A copy with a held thread, a most urgent one, and one that is due longest, to wake up to."""
    shutil.copytree(store.parent, copy)
    path = copy / store.name
    early = Still(NOW - timedelta(days=4))
    async with open_store(path, project="acme", agent="me", session="s1", clock=early) as state:
        await state.threads.set("late", status="watching", check="make late", recheck_after="1d")
    async with open_store(path, project="acme", agent="me", session="s1", clock=Still()) as state:
        await state.threads.set("in-hand", next_action="finish the importer", priority=4)
        await state.threads.claim("in-hand", lease="2h")
        await state.threads.set("urgent", next_action="fix the outage", priority=1)
        yield state


SECTION = re.compile(r"([A-Z][A-Z ]+?)(?: \(\+?([\d,]+)(?: more)?( at (?:least|most))?: (.+)\))?")


@dataclass(frozen=True)
class Section:
    """A part of a packet: its items, how many more there are, and the call that shows them."""

    items: tuple[str, ...]
    left: int
    bound: str
    call: str


def sections(text: str) -> dict[str, Section]:
    found: dict[str, Section] = {}
    for line in text.partition("\nWRITE BACK")[0].split("\n")[1:]:
        if line.startswith("     "):
            continue
        if line.startswith("    "):
            title, last = found.popitem()
            found[title] = replace(last, items=(*last.items, line.strip()))
        else:
            if line.startswith("(no room for "):
                continue
            match = SECTION.fullmatch(line)
            assert match is not None, line
            left = int((match[2] or "0").replace(",", ""))
            found[match[1]] = Section((), left, (match[3] or "").strip(), match[4] or "")
    return found


@pytest.fixture
async def waking(large: Path, tmp_path: Path) -> AsyncGenerator[State]:
    async with with_work_in_hand(large, tmp_path / "large") as state:
        yield state


HEADLINE = "project acme (from argument) · agent me · last here just now · event 121004"
SCOPE = "[acme (from argument) · 10,003 threads · event 121004]"
WRITE_BACK = (
    "WRITE BACK journal_append before you stop or compact · thread_set when a status changes · "
    "memory_set for what the next session must know"
)
OF_FACTS = " · fact_verify with what a check said"
ALL_ACTIVE, ALL_BLOCKED = 4_004, 2_998
CHECKS = "CHECK BEFORE YOU RELY ON IT"


@pytest.mark.parametrize(
    ("max_tokens", "at_least"),
    [
        (300, {"NOW": 2, "DUE": 2, "BLOCKED": 0, CHECKS: 1, "MEMORY": 1, "JOURNAL": 0}),
        (2_000, {"NOW": 15, "DUE": 15, "BLOCKED": 6, CHECKS: 12, "MEMORY": 5, "JOURNAL": 5}),
        (8_000, {"NOW": 25, "DUE": 25, "BLOCKED": 25, CHECKS: 25, "MEMORY": 25, "JOURNAL": 10}),
    ],
)
async def test_a_packet_of_a_large_store_keeps_what_matters_and_counts_what_it_left_out(
    waking: State, max_tokens: int, at_least: dict[str, int]
) -> None:
    text = str(await waking.orient(max_tokens))

    assert len(text) <= 4 * max_tokens
    lines = text.split("\n")
    assert (lines[0], lines[-1]) == (HEADLINE, SCOPE)
    assert WRITE_BACK + (OF_FACTS if max_tokens >= 500 else "") in lines
    found = sections(text)
    shown = {title: len(found[title].items) for title in at_least}
    assert [title for title, count in shown.items() if count < at_least[title]] == []
    assert found["NOW"].items[:2] == (HELD, URGENT)
    assert found["DUE"].items[0] == LATE
    assert {
        title: (found[title].left, found[title].bound, found[title].call) for title in shown
    } == {
        "NOW": (ALL_ACTIVE - shown["NOW"], "", 'thread_list(status="active")'),
        "DUE": (1001 - shown["DUE"], "at least", "thread_list(due=true)"),
        "BLOCKED": (ALL_BLOCKED - shown["BLOCKED"], "", 'thread_list(status="blocked")'),
        "MEMORY": (1_000 - shown["MEMORY"], "", "memory_get()"),
        "JOURNAL": (100_000 - shown["JOURNAL"], "", "journal_tail()"),
        CHECKS: (10_000 - shown[CHECKS], "at most", "fact_list()"),
    }
    assert found["WATCHING"] == Section((), 2_000, "at most", 'thread_list(status="watching")')


async def test_no_packet_is_ever_over_its_budget_or_without_the_thread_in_hand(
    waking: State,
) -> None:
    for max_tokens in range(150, 1001, 7):
        text = str(await waking.orient(max_tokens))
        assert len(text) <= 4 * max_tokens
        lines = text.split("\n")
        assert (lines[0], lines[-1]) == (HEADLINE, SCOPE)
        assert WRITE_BACK + (OF_FACTS if max_tokens >= 500 else "") in lines
        assert sections(text)["NOW"].items[0] == HELD
        told = ("NOW", "DUE", "BLOCKED", "WATCHING", CHECKS, "MEMORY", "JOURNAL", "LAST CHANGES")
        assert [title for title in told if title not in text] == []


async def test_the_smallest_packet_fits_whatever_the_names(tmp_path: Path) -> None:
    project, agent = "p" * 128, "a" * 200
    async with open_store(tmp_path / "state.db", project=project, agent=agent) as state:
        assert len(str(await state.orient(150))) <= 600
        await state.threads.set("t" * 128, title="w" * 300, next_action="n" * 2000)
        await state.memory.set("k" * 128, "m" * 4096)
        await state.journal.append("j" * 8192)
        for max_tokens in range(150, 400, 10):
            assert len(str(await state.orient(max_tokens))) <= 4 * max_tokens
