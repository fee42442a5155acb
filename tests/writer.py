"""A process that writes until it is killed, and tells of each write how it ended.

    python writer.py ADDRESS PROJECT NAME

A line for each: `begun N`, then `acked N`, `refused N`, or `doubt N`.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

from mcp_state.api import open_store
from mcp_state.errors import StateError


async def write(address: str, project: str, name: str) -> None:
    async with open_store(address, project=project, agent=name) as state:
        for number in itertools.count():
            _tell("begun", number)
            try:
                await state.journal.append(f"{name} {number}")
            except StateError as problem:
                _tell("doubt" if "not certain" in problem.fact else "refused", number)
            else:
                _tell("acked", number)


def _tell(how: str, number: int) -> None:
    sys.stdout.write(f"{how} {number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(write(*sys.argv[1:4]))
