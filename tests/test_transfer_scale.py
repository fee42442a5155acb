"""A large project is carried in little memory, and at a rate that is told.

Peaks are those of whole processes, which do nothing else. A slice runs always; `MCP_STATE_SOAK=1`
(`make soak`) carries 100,000 events.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from large_store import Size, build
from soaking import SOAK
from whole_stores import contradictions

MEGABYTE = 1 << 20
MOST_MORE = 24 * MEGABYTE
"""What an import may take beside what the program takes anyway, whatever the size of the file."""
MOST_GROWTH = 8 * MEGABYTE
"""Between 2,000 and 8,000 events. The file grows by 4 MB, the store by 9 MB; the page caches of two
databases, of the index and of sorting fill up only now."""
LEAST_RATE = 800
"""Events a second, in a test that others run beside."""

CARRY = """
import asyncio, json, sys, time
from mcp_state.api import open_store

def peak():
    with open("/proc/self/status") as status:  # ru_maxrss would be that of the parent
        (line,) = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024

async def carry(path, file, direction):
    async with open_store(path, project="acme", agent="measuring") as state:
        await state.orient()
        before, began, busy = peak(), time.perf_counter(), time.process_time()
        done = await getattr(state.transfer, direction)(file)
        took = {"seconds": time.perf_counter() - began, "busy": time.process_time() - busy}
        return took | {"events": done.events, "before": before, "peak": peak()}

print(json.dumps(asyncio.run(carry(*sys.argv[1:]))))
"""


pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system does not tell the peak of a process"
)


def size_of(events: int) -> Size:
    return Size(entries=events * 9 // 10, threads=events * 9 // 100, blocks=events // 100)


def carry(path: Path, file: Path, direction: str) -> Mapping[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", CARRY, path, file, direction],
        capture_output=True,
        check=True,
        timeout=600,
    )
    took = json.loads(done.stdout)
    sys.stdout.write(
        f"{direction}: {took['events']:,} events in {took['seconds']:.1f} s "
        f"({took['busy']:.1f} s of processor time), "
        f"{(took['peak'] - took['before']) / MEGABYTE:.0f} MB beside "
        f"{took['before'] / MEGABYTE:.0f} MB\n"
    )
    return took


async def carried(folder: Path, events: int) -> list[Mapping[str, float]]:
    """An export, an import, and the same import again, each in a process of its own."""
    await build(folder / "a" / "state.db", size_of(events))
    file = folder / f"{events}.jsonl"
    took = [
        carry(folder / "a" / "state.db", file, "export"),
        carry(folder / "b" / "state.db", file, "import_file"),
        carry(folder / "b" / "state.db", file, "import_file"),
    ]
    assert [t["events"] for t in took] == [events, events, 0]
    return took


async def test_the_memory_of_an_import_does_not_grow_with_the_file_and_its_rate_stays(
    tmp_path: Path,
) -> None:
    small = await carried(tmp_path / "small", 1_500)
    large = await carried(tmp_path / "large", 4_000)
    for one, other in zip(small, large, strict=True):
        assert other["peak"] - other["before"] < MOST_MORE
        assert other["peak"] - one["peak"] < MOST_GROWTH
    assert large[1]["events"] / large[1]["busy"] > LEAST_RATE
    assert contradictions(tmp_path / "large" / "b" / "state.db") == []


@pytest.mark.skipif(not SOAK, reason="takes minutes; the slices above run the same code")
async def test_soak_a_hundred_thousand_events_are_carried_in_bounded_memory(
    tmp_path: Path,
) -> None:
    exported, imported, again = await carried(tmp_path, 100_000)
    for took in (exported, imported, again):
        assert took["peak"] - took["before"] < MOST_MORE
    assert imported["events"] / imported["busy"] > LEAST_RATE
    assert contradictions(tmp_path / "b" / "state.db") == []
