"""What the tests that can run for long share: how much of it to run, and their randomness."""

from __future__ import annotations

import os
import random
from collections.abc import Generator
from contextlib import contextmanager

import pytest

SOAK = bool(os.environ.get("MCP_STATE_SOAK"))


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
