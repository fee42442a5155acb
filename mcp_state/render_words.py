"""What all answers are put together from: names, lines, numbers, and how long an answer may be."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from mcp_state.models import Actor
from mcp_state.store.text import in_order, one_line, quoted
from mcp_state.times import ago

LONGEST = 10_000
ROOM = LONGEST - 600
"""For an answer, without its first and last lines."""
ALL = 1 << 40
"""As `room`: leave nothing out."""


def name(text: str, limit: int = 160) -> str:
    """A name as it was written, so that it can be copied; one that looks like ours is quoted."""
    line = in_order(" ".join(text.splitlines()))
    line = line if len(line) <= limit else line[: limit - 1] + "…"
    is_like_ours = line.startswith(("[", "error:", "note:")) or " · " in line
    return quoted(line) if is_like_ours else line


def indented(text: str, indent: str = "    ") -> list[str]:
    """A text as lines that all begin with `indent`, whatever line breaks it uses."""
    return [indent + line for line in text.splitlines()] or [indent]


def by(actor: Actor, at: datetime, now: datetime) -> str:
    """Who, and how long ago."""
    return f"{one_line(actor.agent, 40) or 'unknown'} {ago(at, now)}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """`1 thread`, `2 threads`."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def fitted(lines: Iterable[str], room: int = ROOM) -> tuple[list[str], int]:
    """The first lines that fit, and how many were left out."""
    kept: list[str] = []
    left = 0
    for line in lines:
        room -= len(line) + 1
        if room < 0 or left:
            left += 1
        else:
            kept.append(line)
    return kept, left
