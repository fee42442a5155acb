"""Several processes on one store."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from raw_client import Call

from bench.client import Measured, at_once
from bench.ground import Ground, percentile
from bench.stores import TEXT, Writes
from bench.subjects import OURS, Subject
from bench.table import Line, at_least, at_most

CROWD = 8
THOUGHT = 0.005
NO_STRACE = "unknown: there is no strace that may count them"


def crowd(
    subject: Subject, home: Path, calls: Sequence[Sequence[Call]], think: float = 0.0
) -> Measured:
    """As many processes as there are lists of calls; the first call of each is not measured."""
    with ExitStack() as open_ones:
        servers = [open_ones.enter_context(subject.ready(home)) for _ in calls]
        for server, todo in zip(servers, calls, strict=True):
            at_once([server], [todo[:1]]).assured()
        return at_once(servers, [todo[1:] for todo in calls], think=think)


def entries(processes: int, each: int) -> list[list[Call]]:
    return [Writes(f"p{number}-").entries(each + 1) for number in range(processes)]


def saves(processes: int, each: int) -> list[list[Call]]:
    """The same for memory-keeper."""
    return [
        [
            Call("context_save", {"key": f"p{p}-{n}", "value": f"{n}: {TEXT}"})
            for n in range(each + 1)
        ]
        for p in range(processes)
    ]


def storm(ground: Ground) -> Iterable[Line]:
    """Eight that write as fast as they can, beside one alone."""
    each = ground.times(200, 5)
    alone: list[Measured] = []
    together: list[Measured] = []
    for _ in range(ground.times(5)):
        alone.append(crowd(OURS, ground.work(), entries(1, 2 * each)))
        together.append(crowd(OURS, ground.work(), entries(CROWD, each)))
    what = f"{CROWD} writing at once"
    first, last = (median(pick(one.ends) for one in together) for pick in (min, max))
    yield Line(
        f"{what}, the first is done", "ms", first * 1e3, "the last", last * 1e3, at_least(0.5)
    )
    longest = [max(one.waits) * 1e3 for one in together]
    yield Line(f"{what}, longest wait", "ms", max(longest), goal=at_most(100))
    problems = [problem for one in together for problem in one.problems()]
    yield Line(f"{what}, errors", "", len(problems), goal=at_most(0), note="".join(problems[:1]))
    rates = [median(one.rate for one in many) for many in (together, alone)]
    yield Line(f"{what}, in all", "/s", rates[0], "one alone", rates[1], at_least(1.0))


def thought(ground: Ground) -> Iterable[Line]:
    """Eight that write with a pause, as agents do."""
    calls = entries(CROWD, ground.times(150, 5))
    measured = crowd(OURS, ground.work(), calls, think=THOUGHT).assured()
    what = f"{CROWD} writing, {THOUGHT * 1e3:.0f} ms of thought"
    yield Line(f"{what}, p99", "ms", percentile(measured.waits, 0.99) * 1e3, goal=at_most(12))
    yield Line(f"{what}, p50", "ms", percentile(measured.waits, 0.5) * 1e3)


def keeper(ground: Ground) -> Iterable[Line]:
    """Four that write, beside memory-keeper, and how often each of both syncs."""
    each, few, beside = ground.times(200, 5), ground.times(50, 5), "memory-keeper"
    peer = ground.peer(beside)
    theirs: list[Measured] = []
    ours: list[Measured] = []
    for _ in range(ground.times(5)):
        ours.append(crowd(OURS, ground.work(), entries(4, each)).assured())
        if peer is not None:
            theirs.append(crowd(peer, ground.home(), saves(4, each)))
    refused = sum(len(one.problems()) for one in theirs)
    note = f"{refused} of its writes failed" if refused else ""
    note = note if peer is not None else ground.why_absent(beside)
    what = "4 writing at once"
    yield Line(what, "/s", _rate(ours), beside, _rate(theirs), at_least(1.2), note)
    yield Line(f"{what}, p99", "ms", _p99(ours), beside, _p99(theirs), at_most(0.5), note)
    synced = syncs(OURS, ground.work(), entries(4, few))
    note = NO_STRACE if synced is None else ""
    yield Line(f"{what}, syncs a write", "", synced, goal=at_least(1.0), note=note)
    if peer is not None and synced is not None:
        synced = syncs(peer, ground.home(), saves(4, few))
        yield Line("memory-keeper, syncs a write", "", synced)


def _rate(many: Sequence[Measured]) -> float | None:
    return median(one.rate for one in many) if many else None


def _p99(many: Sequence[Measured]) -> float | None:
    return percentile([wait for one in many for wait in one.waits], 0.99) * 1e3 if many else None


_SYNC = re.compile(rb"\bf(data)?sync\(")


def syncs(subject: Subject, home: Path, calls: Sequence[Sequence[Call]]) -> float | None:
    """Calls of fsync and fdatasync for each write, the start not counted."""
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "-o", os.devnull, "true"], check=False).returncode:
        return None
    logs = [home / f"strace-{number}" for number in range(len(calls))]
    with ExitStack() as open_ones:
        servers = [
            open_ones.enter_context(
                subject.ready(
                    home, strace, "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(log)
                )
            )
            for log in logs
        ]
        for server, todo in zip(servers, calls, strict=True):
            at_once([server], [todo[:1]]).assured()
        before = sum(len(_SYNC.findall(log.read_bytes())) for log in logs)
        measured = at_once(servers, [todo[1:] for todo in calls]).assured()
        after = sum(len(_SYNC.findall(log.read_bytes())) for log in logs)
    return (after - before) / len(measured.waits)
