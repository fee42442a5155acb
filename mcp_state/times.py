"""Time as the store writes it, durations as people write them, and where both come from."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from mcp_state import calls
from mcp_state.errors import BadArgument

_DURATION = re.compile(r"([1-9][0-9]{0,8})\s*([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
LONGEST = timedelta(days=36500)


class Clock:
    """Where time and randomness come from; tests pass their own."""

    def now(self) -> datetime:
        """The current time, in UTC."""
        return datetime.now(UTC)

    def new_id(self, prefix: str) -> str:
        """A short id that no other machine will make: 60 bits of randomness."""
        import secrets

        number = secrets.randbelow(len(_ALPHABET) ** 12)
        for _ in range(12):
            number, letter = divmod(number, len(_ALPHABET))
            prefix += _ALPHABET[letter]
        return prefix

    def new_secret(self) -> str:
        """256 bits of randomness, as 43 characters that need no quoting anywhere."""
        import secrets

        return secrets.token_urlsafe(32)


def to_text(at: datetime) -> str:
    """The fixed-width UTC text that sorts like the time it says."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"


def from_text(text: str) -> datetime:
    """The time that `to_text` wrote."""
    return datetime.fromisoformat(text)


def duration(text: str, argument: str) -> timedelta:
    """Read `90s`, `20m`, `4h` or `3d`.

    Raises:
        BadArgument: it is none of these, or longer than a hundred years.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or (span := int(match[1]) * _UNITS[match[2]]) > LONGEST.total_seconds():
        raise BadArgument(
            f"{calls.argument(argument)} is {text[:40]!r}, which is not a duration from 1s to "
            f"{LONGEST.days}d",
            "Write 90s, 20m, 4h or 3d.",
        )
    return timedelta(seconds=span)


def span(seconds: float) -> str:
    """A length of time in its largest unit: `40 s`, `12 min`, `9 h`, `3 d`."""
    seconds = abs(seconds)
    if seconds < 59.5:
        return f"{round(seconds)} s"
    if seconds < 59.5 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 47.5 * 3600:
        return f"{round(seconds / 3600)} h"
    return f"{round(seconds / 86400)} d"


def ago(at: datetime, now: datetime) -> str:
    """How long ago something happened; `ahead of the clock` if that was set back since."""
    seconds = (now - at).total_seconds()
    if seconds <= -5:
        return f"{span(seconds)} ahead of the clock"
    return "just now" if seconds < 5 else f"{span(seconds)} ago"


def when(at: datetime, now: datetime) -> str:
    """When something is, or was, to happen: `in 5 min`, `just now`, `2 h ago`."""
    seconds = (at - now).total_seconds()
    return f"in {span(seconds)}" if seconds > 1 else ago(min(at, now), now)


def since(at: datetime, now: datetime) -> str:
    """What follows the word `since`: how long it has been so, or `just now`."""
    return ago(at, now).removesuffix(" ago")


def until(at: datetime, now: datetime) -> str:
    """A time of day, with its date if that is another day, and its year if that is another."""
    if at.date() == now.date():
        return f"{at:%H:%M} UTC"
    return f"{at:%d %b %H:%M} UTC" if at.year == now.year else f"{at:%d %b %Y %H:%M} UTC"
