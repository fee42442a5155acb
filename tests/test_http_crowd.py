"""Many clients at once over HTTP, with tokens of their own, on one store of either engine."""

from __future__ import annotations

import pytest
from carrying import contradictions
from crowd import crowd, missing_or_doubled
from soaking import SOAK

CLIENTS = 64
SECONDS = 60 if SOAK else 1


@pytest.mark.soak
async def test_nobody_is_refused_loses_a_write_or_sees_another_project(path: str) -> None:
    told = await crowd(path, CLIENTS, SECONDS)

    assert told.wrong == []
    assert missing_or_doubled(path, told) == {}
    assert {tool: len(times) >= CLIENTS for tool, times in told.times.items()} == dict.fromkeys(
        told.times, True
    )
    assert contradictions(path) == []
