"""From exec until a client has what it asks for first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

from bench.client import Connection, open_as_claude, open_as_codex
from bench.ground import Ground, interleaved, milliseconds
from bench.processes import all_cores_busy
from bench.subjects import OURS, Subject, import_alone
from bench.table import Line, at_most

Opening = Callable[[Connection], dict[str, float]]
OPENINGS: dict[str, Opening] = {"Codex": open_as_codex, "Claude": open_as_claude}


def start(subject: Subject, home: Path, opening: Opening) -> Iterator[float]:
    with subject.start(home) as connection:
        yield opening(connection)["tools/list"]


def start_until_all_lists(home: Path) -> Iterator[float]:
    with OURS.start(home) as connection:
        yield max(open_as_claude(connection).values())


def start_until_orient(home: Path) -> Iterator[float]:
    with OURS.ready(home) as connection:
        connection.call("orient")
        yield perf_counter() - connection.started


def cold(ground: Ground) -> Iterable[Line]:
    """How long a client waits for the list of tools."""
    home = ground.work()
    tasks: dict[str, Callable[[], Iterable[float]]] = {
        "every list": partial(start_until_all_lists, home)
    }
    for name, opening in OPENINGS.items():
        tasks[f"ours {name}"] = partial(start, OURS, home, opening)
    for peer in ground.present():
        for name, opening in OPENINGS.items():
            tasks[f"{peer.name} {name}"] = partial(start, peer, ground.home(), opening)
    interleaved(1, tasks)
    took = interleaved(ground.times(15), tasks)
    peers = ["server-memory", *(name for name in ground.peers if name != "server-memory")]
    for name in OPENINGS:
        ours = milliseconds(took[f"ours {name}"])
        for peer in peers:
            theirs = took.get(f"{peer} {name}")
            yield Line(
                f"tools/list answered, {name}'s opening",
                "ms",
                ours,
                peer,
                milliseconds(theirs) if theirs else None,
                at_most(0.2) if peer == "server-memory" else None,
                "" if theirs else ground.why_absent(peer),
            )
    yield Line("all three lists answered, Claude's opening", "ms", milliseconds(took["every list"]))


def busy(ground: Ground) -> Iterable[Line]:
    """The same while every core has something else to do."""
    home = ground.work()
    tasks = {name: partial(start, OURS, home, opening) for name, opening in OPENINGS.items()}
    interleaved(1, tasks)
    with all_cores_busy():
        took = interleaved(ground.times(7), tasks)
    for name in OPENINGS:
        what = f"tools/list answered, {name}'s opening, all cores busy"
        yield Line(what, "ms", milliseconds(took[name]), goal=at_most(500))


def orient(ground: Ground) -> Iterable[Line]:
    """How long until the first packet."""
    home, empty = ground.work(), ground.home()
    tasks: dict[str, Callable[[], Iterable[float]]] = {
        "orient": lambda: start_until_orient(home),
        "import": lambda: [import_alone(empty)],
    }
    interleaved(1, tasks)
    took = interleaved(ground.times(15), tasks)
    yield Line(
        "first orient answered",
        "ms",
        milliseconds(took["orient"]),
        "import mcp.server.mcpserver",
        milliseconds(took["import"]),
        at_most(1.2),
    )
