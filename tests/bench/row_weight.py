"""What it weighs: memory, what it does when nobody asks, tokens."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from raw_client import Call
from test_schemas import tokens

from bench.client import Connection, one_at_a_time
from bench.ground import Ground
from bench.processes import hindering_locks, processor_time, rss, wake_ups
from bench.row_calls import NOOP
from bench.stores import OBJECTIVE, Writes, open_threads, reads
from bench.subjects import OURS, STOCK
from bench.table import Line, at_most

BATCH = 100


def _mixed() -> Iterator[Call]:
    """Reads and writes by turns, without end."""
    writes = Writes("mixed")
    makers = (writes.journal_append, writes.thread_set, writes.memory_append)
    for read, make in itertools.cycle(zip(reads().values(), makers, strict=True)):
        yield read
        yield make()


def memory(ground: Ground) -> Iterable[Line]:
    """Resident memory of the process, beside that of the SDK's own server."""
    calls = ground.times(10_000, 4 * BATCH)
    with ExitStack() as open_ones:
        ours = open_ones.enter_context(OURS.ready(ground.work()))
        stock = open_ones.enter_context(STOCK.ready(ground.home()))
        ours.call("orient")
        stock.call("noop")
        before = rss(ours.pid), rss(stock.pid)
        mixed = _mixed()
        after_some = rss(ours.pid)
        for number in range(calls // BATCH):
            one_at_a_time(ours, itertools.islice(mixed, BATCH))
            one_at_a_time(stock, [NOOP] * BATCH)
            if number + 1 == calls // BATCH // 10:
                after_some = rss(ours.pid)
        after = rss(ours.pid), rss(stock.pid)
    yield from _weight("idle", *before)
    yield from _weight(f"after {calls:,} calls", *after)
    yield Line(f"growth over {calls:,} calls", "MB", after[0] - before[0], goal=at_most(1))
    yield Line("growth over the last 90 % of them", "MB", after[0] - after_some)


def _weight(when: str, ours: float, stock: float) -> Iterable[Line]:
    note = f"{ours:.1f} MB, {STOCK.name} {stock:.1f} MB"
    yield Line(
        f"memory above {STOCK.name}, {when}", "MB", ours - stock, goal=at_most(10), note=note
    )


def idle(ground: Ground) -> Iterable[Line]:
    """What a server does that nobody asks anything."""
    pause = ground.times(5, 1)
    home = ground.work()
    with OURS.ready(home) as ours:
        ours.call("orient")
        ours.call("journal_append", text="before the pause")
        _settle(ours)
        before = processor_time(ours.pid), wake_ups(ours.pid)
        time.sleep(pause)  # what it does meanwhile is what is measured
        after = processor_time(ours.pid), wake_ups(ours.pid)
        locks = hindering_locks(home)
    used = (after[0] - before[0]) * 1e3
    yield Line(f"idle for {pause} s, processor time", "ms", used, goal=at_most(0))
    yield Line(f"idle for {pause} s, wake-ups", "times", after[1] - before[1], goal=at_most(0))
    note = ", ".join(locks)
    yield Line("idle, locks that hinder others", "", len(locks), goal=at_most(0), note=note)


def _settle(server: Connection) -> None:
    """Wait until it has done what was left to do after its last answer."""
    seen = -1
    for _ in range(10):
        if seen == (seen := wake_ups(server.pid)):
            break
        time.sleep(0.2)


def weight_in_tokens(ground: Ground) -> Iterable[Line]:
    """What a model has to read, a token being four characters."""
    with OURS.ready(ground.work()) as ours:
        listed = ours.ask("tools/list")["tools"]
        full_packet = ours.call("orient")
    with OURS.ready(ground.home()) as ours:
        for call in (OBJECTIVE, *open_threads()):
            ours.call(call.tool, **call.arguments)
        packet = ours.call("orient")
    yield Line("tools/list of coding", "tokens", sum(map(tokens, listed)), goal=at_most(3_000))
    what = "orient of an objective and 20 open threads"
    yield Line(what, "tokens", len(packet) / 4, goal=at_most(900))
    what = "orient of that with facts, memory and a journal, too"
    yield Line(what, "tokens", len(full_packet) / 4, goal=at_most(2_000))
