"""How far an export or an import got."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Is told what is done of how much, from a worker thread."""

_TOTAL = 10_000
_EVERY = 256


class Meter:
    """Reports on work in equal parts, each of so many steps, every so often."""

    def __init__(self, progress: Progress | None, parts: int) -> None:
        self._progress = progress
        self._parts = parts
        self._part = -1
        self._done = self._of = 0

    def expect(self, of: int) -> None:
        """The next part has so many steps; 0 if nobody knows."""
        self._part += 1
        self._done, self._of = 0, of

    def step(self) -> None:
        """One more is done."""
        self._done += 1
        if self._done % _EVERY == 0:
            self.at(self._done)

    def at(self, done: int) -> None:
        """So many of this part are done."""
        if self._progress is not None and self._of:
            part = self._part + min(1.0, done / self._of)
            self._progress(int(_TOTAL * part / self._parts), _TOTAL)

    def end(self) -> None:
        """All is done."""
        if self._progress is not None:
            self._progress(_TOTAL, _TOTAL)
