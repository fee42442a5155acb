"""What a call costs on a large store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from statistics import median

from large_store import Size
from raw_client import Call

from bench.client import Connection, one_at_a_time
from bench.ground import Ground, interleaved, milliseconds
from bench.stores import TEXT, Writes, copy, fill_memory_keeper, large_store
from bench.subjects import OURS
from bench.table import Line, at_least, at_most

SMALL = Size(entries=1_000, threads=1_000, blocks=1_000, facts=1_000)
LARGE = Size(entries=1_000_000, threads=100_000, blocks=1_000, facts=10_000)
BESIDE_KEEPER = Size(entries=100_000, threads=1_000, blocks=1_000, facts=1_000)
BATCH = 5

CALLS: dict[str, Callable[[int], Call]] = {
    "orient": lambda n: Call("orient", {}),
    "journal_tail": lambda n: Call("journal_tail", {}),
    "journal_tail of a thread": lambda n: Call("journal_tail", {"thread": "busy"}),
    "journal_append": lambda n: Call("journal_append", {"text": f"{n}: {TEXT}", "thread": "busy"}),
    "thread_list": lambda n: Call("thread_list", {}),
    "thread_get": lambda n: Call("thread_get", {"thread": "busy"}),
    "thread_set": lambda n: Call("thread_set", {"thread": "busy", "note": f"{n}: {TEXT}"}),
    "memory_get": lambda n: Call("memory_get", {"key": "block0000001"}),
    "memory_set": lambda n: Call("memory_set", {"key": f"m{n % 20}", "value": f"{n}: {TEXT}"}),
    "memory_append": lambda n: Call(
        "memory_append", {"key": f"a{n // 30}", "text": f"{n}: {TEXT}"}
    ),
    "fact_list": lambda n: Call("fact_list", {}),
    "fact_record": lambda n: Call("fact_record", {"fact": "fact0000050", "check": f"check {n}"}),
    "fact_verify": lambda n: Call(
        "fact_verify", {"fact": "fact0000050", "holds": True, "evidence": f"run {n}"}
    ),
    "history": lambda n: Call("history", {}),
    "history of a thread": lambda n: Call("history", {"subject": "thread:busy"}),
    "run_checkpoint": lambda n: Call("run_checkpoint", {"run_id": "r", "state": f"{n}: {TEXT}"}),
    "run_resume": lambda n: Call("run_resume", {"run_id": "r"}),
    "step_begin": lambda n: Call("step_begin", {"run_id": "r", "step": f"s{n}"}),
    "blob_put": lambda n: Call("blob_put", {"text": f"{n}: {TEXT}", "summary": "a log"}),
}
COMMON, RARE, NUMBER = "entry", "xylophone", "entry0123456"


def _batches(server: Connection, make: Callable[[int], Call]) -> Callable[[], list[float]]:
    done = 0

    def batch() -> list[float]:
        nonlocal done
        calls = [make(done + n) for n in range(BATCH)]
        done += BATCH
        return one_at_a_time(server, calls).waits

    return batch


def large(ground: Ground) -> Iterable[Line]:
    """Every call on a million entries, beside a thousand."""
    sizes = {"large": LARGE, "small": SMALL}
    with ExitStack() as open_ones:
        servers: dict[str, Connection] = {}
        for name, size in sizes.items():
            home = copy(large_store(ground.cache, size), ground.home())
            server = open_ones.enter_context(OURS.serving_all().ready(home))
            server.call("journal_append", text=f"a {RARE} was heard")
            server.call("run_checkpoint", run_id="r", state="begun")
            servers[name] = server
        tasks = {
            f"{call} {size}": _batches(server, make)
            for call, make in CALLS.items()
            for size, server in servers.items()
        }
        for query in (COMMON, RARE, NUMBER):
            tasks[query] = _batches(
                servers["large"], lambda n, q=query: Call("search", {"query": q})
            )
        interleaved(1, tasks)
        took = interleaved(ground.times(20), tasks)
    for name in CALLS:
        ours, theirs = (milliseconds(took[f"{name} {size}"]) for size in sizes)
        beside = f"the same at {SMALL.entries:,}"
        yield Line(name, "ms", ours, beside, theirs, at_most(1.2))
    yield Line(
        "search for the most common word", "ms", milliseconds(took[COMMON]), goal=at_most(20)
    )
    yield Line("search for a rare word", "ms", milliseconds(took[RARE]), goal=at_most(3))
    yield Line("search for one of a million numbers", "ms", milliseconds(took[NUMBER]))


def full(ground: Ground) -> Iterable[Line]:
    """Beside memory-keeper, both with a hundred thousand entries."""
    beside, writes = "memory-keeper", Writes("full")
    calls: dict[str, tuple[Callable[[int], Call], Callable[[int], Call]]] = {
        "write": (
            lambda n: writes.journal_append(),
            lambda n: Call("context_save", {"key": f"new-{n}", "value": f"{n}: {TEXT}"}),
        ),
        "the newest 10": (
            lambda n: Call("journal_tail", {}),
            lambda n: Call("context_get", {"limit": 10, "sort": "created_desc"}),
        ),
        "one by its key": (
            lambda n: Call("memory_get", {"key": "block0000700"}),
            lambda n: Call("context_get", {"key": "item-700"}),
        ),
    }
    goals = {"write": at_least(20), "the newest 10": at_least(50), "one by its key": at_least(50)}
    peer = ground.peer(beside)
    if peer is None:
        for name, goal in goals.items():
            note = ground.why_absent(beside)
            yield Line(_of_full(name), "/s", beside=beside, goal=goal, note=note)
        return
    with ExitStack() as open_ones:
        home = copy(large_store(ground.cache, BESIDE_KEEPER), ground.home())
        ours = open_ones.enter_context(OURS.ready(home))
        their_home = ground.home()
        theirs = open_ones.enter_context(peer.ready(their_home))
        fill_memory_keeper(theirs, their_home, BESIDE_KEEPER.entries)
        tasks: dict[str, Callable[[], Iterable[float]]] = {}
        for name, (our_call, their_call) in calls.items():
            tasks[f"ours {name}"] = _batches(ours, our_call)
            tasks[f"theirs {name}"] = _batches(theirs, their_call)
        interleaved(1, tasks)
        took = interleaved(ground.times(8), tasks)
    for name, goal in goals.items():
        rates = [1 / median(took[f"{whose} {name}"]) for whose in ("ours", "theirs")]
        yield Line(_of_full(name), "/s", rates[0], beside, rates[1], goal)


def _of_full(name: str) -> str:
    return f"{name} of {BESIDE_KEEPER.entries:,}"
