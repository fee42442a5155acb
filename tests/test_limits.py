"""What the store words itself fits into the limits that it was opened with."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from conftest import FakeClock

from mcp_state.api import State, open_store
from mcp_state.errors import BudgetSpent
from mcp_state.models import Limits, Status

pytestmark = pytest.mark.usefixtures("consistent")
LINE = "one word after the other " * 8


@pytest.fixture
async def state(path: str, clock: FakeClock) -> AsyncGenerator[State]:
    limits = Limits(text=60)
    async with open_store(path, project="acme", clock=clock, limits=limits) as state:
        yield state


async def test_the_goal_that_a_checkpoint_gives_its_new_run_is_cut_to_the_limit(
    state: State,
) -> None:
    made = await state.runs.checkpoint("r", LINE)

    assert made.checkpoint.state == LINE
    assert made.run.goal == "one word after the other one word after the other one word…"


async def test_the_summary_that_a_blob_gets_from_its_text_is_cut_to_the_limit(
    state: State,
) -> None:
    blob = await state.blobs.put(LINE)

    assert (await state.blobs.get(blob.key)).text == LINE
    assert blob.summary == "one word after the other one word after the other one word…"


async def test_a_spent_budget_blocks_its_thread_however_long_the_name_of_the_run_is(
    state: State,
) -> None:
    await state.threads.set("work")
    await state.runs.begin("do it", run="r" * 100, thread="work", max_attempts=1)
    await state.steps.begin("r" * 100, "one")

    for _ in range(2):
        with pytest.raises(BudgetSpent):
            await state.steps.begin("r" * 100, "two")

    thread = (await state.threads.get("work")).thread
    assert (thread.status, thread.version) == (Status.BLOCKED, 2)
    assert thread.waiting_on.startswith("a person: the budget of attempts of run rrrr")
    await state.runs.raise_budget("r" * 100, "worth it", attempts=2)
    assert (await state.threads.get("work")).thread.status is Status.ACTIVE
