"""What the tests that can run for long share: how much of it to run, and their randomness."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

SOAK = bool(os.environ.get("MCP_STATE_SOAK"))

# The examples of a slice are always the same: it tells of the change, and not of luck.
settings.register_profile("soak", deadline=None, max_examples=1000)
settings.register_profile("slice", deadline=None, max_examples=50, derandomize=True, database=None)
settings.load_profile("soak" if SOAK else "slice")


def write_into_memory() -> None:
    """Have this process and its children write what is temporary into memory, if there is room.

    No test needs a disk that outlives the machine; when soaked, it is the disk all the same.
    """
    memory = "/dev/shm"
    if SOAK or "TMPDIR" in os.environ or not os.access(memory, os.W_OK):
        return
    room = os.statvfs(memory)
    if room.f_bavail * room.f_frsize >= 4 << 30:
        os.environ["TMPDIR"] = tempfile.tempdir = memory


def examples(few: int) -> int:
    """So many, and twenty times as many when soaked."""
    return 20 * few if SOAK else few


def few_of(values: Iterable[object], *few: object) -> list[ParameterSet]:
    """These few of the values, or all of them when soaked."""
    chosen = values if SOAK else few
    return [pytest.param(value, marks=pytest.mark.soak) for value in chosen]


def some(few: int, many: int) -> pytest.MarkDecorator:
    """So many rounds of this: few always, many when soaked."""
    rounds = pytest.param(many if SOAK else few, id="soak" if SOAK else "slice")
    return pytest.mark.parametrize("rounds", [rounds])


@contextmanager
def seeded(seed: int) -> Generator[random.Random]:
    """Randomness whose seed is told when something fails."""
    try:
        yield random.Random(seed)
    except BaseException as problem:
        problem.add_note(f"SEED = {seed}")
        raise
