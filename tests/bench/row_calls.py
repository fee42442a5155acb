"""What one call takes, one at a time and sixteen at once, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from statistics import median

from raw_client import Call

from bench.client import Connection, Measured, at_once, one_at_a_time
from bench.ground import Ground, Samples, interleaved, milliseconds
from bench.stores import TEXT, Writes, reads
from bench.subjects import ECHO, OURS, STOCK, RawInsert
from bench.table import Line, at_least, at_most

BATCH = 25
NOOP = Call("noop", {})
PEER_WRITES: dict[str, Callable[[int], Call]] = {
    "server-memory": lambda n: Call(
        "create_entities",
        {"entities": [{"name": f"e{n}", "entityType": "entry", "observations": [TEXT]}]},
    ),
    "memory-keeper": lambda n: Call("context_save", {"key": f"e{n}", "value": f"{n}: {TEXT}"}),
    "continuity": lambda n: Call(
        "write_memory", {"workflow_id": "bench", "key": f"e{n}", "value": f"{n}: {TEXT}"}
    ),
}
HOW_DURABLE = {
    "server-memory": "which writes the file anew, without fsync",
    "memory-keeper": "which leaves fsync to the checkpoints of the -wal",
    "continuity": "which syncs",
}
BEFORE_WRITES = {"continuity": Call("create_workflow", {"workflow_id": "bench", "brief": "b"})}


def read(ground: Ground) -> Iterable[Line]:
    """Calls that read, beside a call that does nothing."""
    with ExitStack() as open_ones:
        ours = open_ones.enter_context(OURS.ready(ground.work()))
        stock = open_ones.enter_context(STOCK.ready(ground.home()))
        echo = open_ones.enter_context(ECHO.ready(ground.home()))
        tasks = {name: _batch(ours, call) for name, call in reads().items()}
        tasks |= {"no-op": _batch(stock, NOOP), "echo": _batch(echo, NOOP)}
        interleaved(1, tasks)
        took = interleaved(ground.times(40), tasks)
    noop, floor = milliseconds(took["no-op"]), milliseconds(took["echo"])
    for name in reads():
        yield Line(name, "ms", milliseconds(took[name]), STOCK.name, noop, at_most(0.65))
    yield Line("memory_get", "ms", milliseconds(took["memory_get"]), ECHO.name, floor)


def _batch(connection: Connection, call: Call) -> Callable[[], list[float]]:
    return lambda: one_at_a_time(connection, [call] * BATCH).waits


def write(ground: Ground) -> Iterable[Line]:
    """Calls that write, beside a call that does nothing and an insert of the same bytes."""
    writes = Writes("w")
    kinds = {
        "journal_append": writes.journal_append,
        "thread_set": writes.thread_set,
        "memory_append": writes.memory_append,
    }
    with ExitStack() as open_ones:
        ours = open_ones.enter_context(OURS.ready(ground.work()))
        stock = open_ones.enter_context(STOCK.ready(ground.home()))
        raw = open_ones.enter_context(closing(RawInsert(ground.home())))

        def ours_of(make: Callable[[], Call]) -> Callable[[], list[float]]:
            return lambda: one_at_a_time(ours, [make() for _ in range(BATCH)]).waits

        tasks = {name: ours_of(make) for name, make in kinds.items()}
        tasks["no-op"] = _batch(stock, NOOP)
        tasks["insert"] = lambda: raw.measure(writes.entries(BATCH)).waits
        for peer in ground.present():
            connection = open_ones.enter_context(peer.ready(ground.home()))
            if first := BEFORE_WRITES.get(peer.name):
                one_at_a_time(connection, [first])
            tasks[peer.name] = _peer_batch(connection, PEER_WRITES[peer.name])
        interleaved(1, tasks)
        took = interleaved(ground.times(40), tasks)
    yield from _write_lines(ground, took, list(kinds))


def _peer_batch(connection: Connection, make: Callable[[int], Call]) -> Callable[[], list[float]]:
    done = 0

    def batch() -> list[float]:
        nonlocal done
        done += BATCH
        return one_at_a_time(connection, [make(done + n) for n in range(BATCH)]).waits

    return batch


def _write_lines(ground: Ground, took: Samples, kinds: Iterable[str]) -> Iterable[Line]:
    noop, insert = milliseconds(took["no-op"]), milliseconds(took["insert"])
    note = f"{noop:.3g} + {insert:.3g} ms"
    for name in kinds:
        ours = milliseconds(took[name])
        yield Line(name, "ms", ours, "no-op + raw insert", noop + insert, at_most(1.0), note)
    for name in ground.peers:
        theirs = milliseconds(took[name]) if name in took else None
        ours = milliseconds(took["journal_append"])
        note = HOW_DURABLE[name] if theirs else ground.why_absent(name)
        yield Line("journal_append", "ms", ours, f"{name}, its write", theirs, note=note)


WINDOW = 16


def flight(ground: Ground) -> Iterable[Line]:
    """Sixteen calls in flight, beside one at a time."""
    writes = Writes("f")
    kinds: dict[str, Callable[[], Call]] = {
        "reads": lambda: reads()["journal_tail"],
        "writes": writes.journal_append,
    }
    with OURS.ready(ground.work()) as ours:
        for name, make in kinds.items():
            goal = at_least(1.0 if name == "reads" else 1.1)
            alone: list[Measured] = []
            together: list[Measured] = []
            for _ in range(ground.times(10)):
                alone.append(one_at_a_time(ours, [make() for _ in range(6 * WINDOW)]))
                calls = [make() for _ in range(6 * WINDOW)]
                together.append(at_once([ours], [calls], window=WINDOW).assured())
            rates = [median(one.rate for one in many[1:]) for many in (together, alone)]
            yield Line(
                f"{name}, {WINDOW} in flight", "/s", rates[0], "one at a time", rates[1], goal
            )
            waits = [wait for one in together[1:] for wait in one.waits]
            longest, middle = max(waits) * 1e3, milliseconds(waits)
            what = f"{name}, longest wait of {len(waits)}"
            yield Line(what, "ms", longest, "the median wait", middle, at_most(WINDOW))
