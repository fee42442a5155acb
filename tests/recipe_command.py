"""`mcp-state` on the stage of a recipe: the real command, with a clock that the recipe moves.

    python recipe_command.py STAGE WORDS…

Time stands still until the recipe says that it passes, for every process on the stage; ids are the
same every time it is played. With a name in MCP_STATE_RECIPE_PID it first leaves its process id.
"""

from __future__ import annotations

import hashlib
import os
import sys
from datetime import datetime
from pathlib import Path

from mcp_state import times
from mcp_state.cli import main

ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"


STAGE = Path(sys.argv[1])


def now(self: times.Clock) -> datetime:
    """What time it is on the stage."""
    return datetime.fromisoformat((STAGE / "now").read_text(encoding="utf-8"))


def new_id(self: times.Clock, prefix: str) -> str:
    """The next id with this prefix, of all processes on the stage."""
    counter = STAGE / f"made-{prefix}"
    number = counter.stat().st_size if counter.exists() else 0
    with counter.open("ab") as grown:
        grown.write(b".")
    digest = hashlib.sha256(f"{prefix}{number}".encode()).digest()
    return prefix + "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:12])


if __name__ == "__main__":
    times.Clock.now = now
    times.Clock.new_id = new_id
    if name := os.environ.pop("MCP_STATE_RECIPE_PID", ""):
        Path(name).write_text(str(os.getpid()), encoding="ascii")
    main(sys.argv[2:], prog_name="mcp-state")
