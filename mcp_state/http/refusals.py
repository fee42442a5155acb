"""What is refused before it reaches the server: one class, one line in the log, one counter."""

from __future__ import annotations

import logging

from mcp_state.http.metrics import Metrics

log = logging.getLogger(__name__)

_LONGEST = 100


class Refused(Exception):
    """A request is not let through.

    Args:
        status: of HTTP.
        reason: what it is counted as: one word.
        told: what its sender is told, a sentence.
        noted: what the log says more, for who runs the server; never a secret.
        retry: seconds after which it may be tried again, if that is so.
    """

    def __init__(
        self, status: int, reason: str, told: str, noted: str = "", retry: float = 0.0
    ) -> None:
        super().__init__(status, reason, told)
        self.status = status
        self.reason = reason
        self.told = told
        self.noted = noted
        self.retry = retry


class Refusals:
    """Where all that is refused is noted."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def tell(self, reason: str, who: str, why: str) -> None:
        """Count a refusal, and say on stderr who was refused and why."""
        self._metrics.refused(reason)
        log.warning("refused %s: %s: %s", who, reason, why)


def quoted(text: str | bytes) -> str:
    """What somebody sent, for one line of the log: short, and of printable ASCII alone."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    return ascii(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
