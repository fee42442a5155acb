"""How much the server takes from anybody, and how it counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

from mcp_state.record import record
from mcp_state.tools.arguments import MOST_AROUND


@record
class Bounds:
    """What is refused, or ended, beyond it. Sizes are bytes, times seconds.

    A body of `body` holds the largest blob (10 MiB) however its characters are escaped; `around`
    is for what of it is in none of its texts, and `bodies` for all that are held at the same time.
    `drain` is how long a refused request may go on sending, so that its sender gets to read why;
    `call_time` is more than any call takes; `recheck` is how often the token behind an open stream
    is looked up again; `stop` is for the calls in flight at the end, and `farewell` for a client to
    read the last that it is told, or to end TLS.
    """

    body: int = 64 << 20
    around: int = MOST_AROUND
    bodies: int = 128 << 20
    body_time: float = 120.0
    silence: float = 15.0
    drain: float = 1.0
    head: int = 16 << 10
    headers: int = 64
    head_time: float = 15.0
    unread_time: float = 30.0
    keep_alive: int = 60
    connections: int = 2000
    in_flight: int = 256
    in_flight_of_one: int = 64
    call_time: float = 120.0
    sessions: int = 1000
    sessions_of_one: int = 250
    idle: float = 1800.0
    rate: float = 100.0
    burst: float = 500.0
    recheck: float = 30.0
    stop: float = 5.0
    farewell: float = 0.5


class Rates:
    """How often each token may ask: `burst` at once, `rate` a second in the long run."""

    def __init__(self, bounds: Bounds, now: Callable[[], float]) -> None:
        self._bounds = bounds
        self._now = now
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, token: str) -> float:
        """Count one request of a token; returns the seconds to wait if it is one too many."""
        bounds, now = self._bounds, self._now()
        left, at = self._left.get(token, (bounds.burst, now))
        left = min(bounds.burst, left + (now - at) * bounds.rate)
        taken = left >= 1
        self._left[token] = (left - taken, now)
        return 0.0 if taken else (1 - left) / bounds.rate


class Sessions:
    """The connections of the older generation, and what streams to clients of the newer one.

    The SDK ends an idle session by itself; this only knows that it has.
    """

    def __init__(self, bounds: Bounds, now: Callable[[], float]) -> None:
        self._bounds = bounds
        self._now = now
        self._owners: dict[str, str] = {}
        self._used: dict[str, float] = {}
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        self._forget_idle()
        return len(self._owners)

    def has_room(self, token: str) -> bool:
        """Whether a token may begin another one."""
        if len(self) >= self._bounds.sessions:
            return False
        return sum(o == token for o in self._owners.values()) < self._bounds.sessions_of_one

    def begin(self, session: str, token: str) -> None:
        """There is a new one."""
        self._owners[session], self._used[session] = token, self._now()

    def end(self, session: str, token: str) -> None:
        """One of this token is over, or not known to the SDK."""
        if self._owners.get(session) == token:
            del self._owners[session], self._used[session]

    @contextmanager
    def used(self, session: str, token: str) -> Generator[None]:
        """It is not idle while this lasts, if it is one of this token."""
        if self._owners.get(session) != token:
            yield
            return
        self._open[session] += 1
        try:
            yield
        finally:
            self._open[session] -= 1
            if session in self._used:
                self._used[session] = self._now()

    def _forget_idle(self) -> None:
        latest = self._now() - self._bounds.idle
        idle = [one for one, at in self._used.items() if at <= latest and not self._open[one]]
        for session in idle:
            del self._owners[session], self._used[session]
        self._open = +self._open
