"""Bounds of processor time that a slow machine keeps as well."""

from __future__ import annotations

import time
from collections.abc import Callable

_USUAL = 0.04
"""Seconds that the work by which a machine is measured takes where the bounds were set."""


def spent(seconds: float) -> Callable[[], None]:
    """Begin to count processor time; the answer refuses to have used more.

    On a machine that is slow at the time, it may be as much more as that is slower.
    """
    began = time.process_time()

    def check() -> None:
        passed = time.process_time() - began
        assert passed < seconds * max(1.0, _measured() / _USUAL)

    return check


def _measured() -> float:
    took: list[float] = []
    for _ in range(3):
        began = time.process_time()
        sum(map(hash, map(str, range(200_000))))
        took.append(time.process_time() - began)
    return min(took)
