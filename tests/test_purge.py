"""A text is taken out of everything, what led to it still leads there, and the bytes prove it.

Random rounds name their seed when they fail. A slice of them runs always; `MCP_STATE_SOAK=1`
(`make soak`) runs the whole.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from carrying import contradictions
from planting import (
    MARK,
    PLANTS,
    SECRET,
    Plant,
    contents,
    held_by_bytes,
    make_full,
    schema,
    store_at,
)

SOAK = bool(os.environ.get("MCP_STATE_SOAK"))
SEEDS = range(150 if SOAK else 6)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something of everything in it."""
    path = tmp_path_factory.mktemp("full") / "state.db"
    make_full(path)
    return path


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__.strip("_"))
async def test_afterwards_the_store_is_as_if_the_mark_had_been_written_instead(
    tmp_path: Path, full: Path, plant: Plant
) -> None:
    ours, other = tmp_path / "ours" / "state.db", tmp_path / "other" / "state.db"
    async with store_at(ours, full) as store, store_at(other, full) as likewise:
        await plant(store.as_(), SECRET)
        await plant(likewise.as_(), MARK)
        before = schema(ours)
        assert held_by_bytes(ours.parent) != []

        purged = await store.person.purge(SECRET, "it was pasted")

        assert (purged.clean, purged.mark, purged.elsewhere) == (True, MARK, False)
    assert held_by_bytes(ours.parent) == []
    assert contradictions(ours) == contradictions(other) == []
    assert schema(ours) == before
    assert contents(ours, purged=True) == contents(other)


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_same_in_random_places(tmp_path: Path, full: Path, seed: int) -> None:
    rng = random.Random(seed)
    plants = rng.sample(PLANTS, rng.randrange(2, len(PLANTS)))
    ours, other = tmp_path / "ours" / "state.db", tmp_path / "other" / "state.db"
    async with store_at(ours, full) as store, store_at(other, full) as likewise:
        for plant in plants:
            around = ("".join(rng.choices("abc é\"\\\n'", k=rng.randrange(4))) for _ in "12")
            before, after = (text.strip("\n") for text in around)
            written = rng.choice((SECRET, SECRET, SECRET.upper(), SECRET.title()))
            for one, text in ((store, written), (likewise, MARK)):
                try:
                    await plant(one.as_(), f"{before}{text}{after}".replace("\n", " "))
                except Exception as problem:
                    problem.add_note(f"{plant.__name__} {before!r} {after!r}")
                    raise
        purged = await store.person.purge(SECRET, "it was pasted")
        assert (purged.clean, purged.mark) == (True, MARK)
    assert held_by_bytes(ours.parent) == []
    assert contradictions(ours) == []
    assert contents(ours, purged=True) == contents(other)
