"""What every row stands on: where it may write, how often it measures, whom it measures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median

from bench.stores import copy, working_store
from bench.subjects import Subject
from bench.table import Line


@dataclass
class Ground:
    """The ground of one run."""

    directory: Path
    cache: Path
    peers: Mapping[str, Subject | str]
    share: float = 1.0
    """Of the full number of repetitions."""
    _homes: itertools.count[int] = field(default_factory=itertools.count)

    def times(self, full: int, least: int = 2) -> int:
        return max(least, round(full * self.share))

    def home(self) -> Path:
        """An empty directory."""
        home = self.directory / f"home-{next(self._homes)}"
        home.mkdir()
        return home

    @cached_property
    def working(self) -> Path:
        """The working store, not to be written to."""
        home = self.home()
        working_store(home)
        return home

    def work(self) -> Path:
        """A copy of the working store."""
        return copy(self.working, self.home())

    def peer(self, name: str) -> Subject | None:
        found = self.peers.get(name)
        return found if isinstance(found, Subject) else None

    def why_absent(self, name: str) -> str:
        return f"{name} is absent: {self.peers.get(name, 'not asked for')}"

    def present(self) -> list[Subject]:
        return [peer for peer in self.peers.values() if isinstance(peer, Subject)]


Row = Callable[[Ground], Iterable[Line]]
Samples = dict[str, list[float]]


def interleaved(rounds: int, tasks: Mapping[str, Callable[[], Iterable[float]]]) -> Samples:
    """All tasks in every round, each time another one first; the figures of each."""
    found: Samples = {name: [] for name in tasks}
    names = list(tasks)
    for number in range(rounds):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            found[name].extend(tasks[name]())
    return found


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def milliseconds(values: Sequence[float]) -> float:
    """Their median, of seconds."""
    return median(values) * 1e3
