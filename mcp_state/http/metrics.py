"""What the server counts, in the text format of Prometheus. Nothing of any project is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from mcp_state.tools import ALL_TOOLS

TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TOOLS = frozenset(spec.name for spec in ALL_TOOLS)


class Metrics:
    """Counters of one process; `gauges` are asked when somebody looks."""

    def __init__(self) -> None:
        self.gauges: Mapping[str, Callable[[], float]] = {}
        self._calls: Counter[tuple[str, str]] = Counter()
        self._refusals: Counter[str] = Counter()
        self._within: Counter[float] = Counter()
        self._seconds = 0.0

    def called(self, tool: str, outcome: str, seconds: float) -> None:
        """A call of a tool was answered."""
        self._calls[tool if tool in _TOOLS else "unknown", outcome] += 1
        self._seconds += seconds
        for bucket in _BUCKETS:
            if seconds <= bucket:
                self._within[bucket] += 1

    def refused(self, reason: str) -> None:
        """A request was refused before it reached a tool."""
        self._refusals[reason] += 1

    def text(self) -> str:
        """All of it."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield "# HELP mcp_state_calls_total Tool calls by tool and outcome."
        yield "# TYPE mcp_state_calls_total counter"
        for (tool, outcome), count in sorted(self._calls.items()):
            yield f'mcp_state_calls_total{{tool="{tool}",outcome="{outcome}"}} {count}'
        total = self._calls.total()
        yield "# HELP mcp_state_call_seconds How long a tool call took."
        yield "# TYPE mcp_state_call_seconds histogram"
        for bucket in _BUCKETS:
            yield f'mcp_state_call_seconds_bucket{{le="{bucket:g}"}} {self._within[bucket]}'
        yield f'mcp_state_call_seconds_bucket{{le="+Inf"}} {total}'
        yield f"mcp_state_call_seconds_sum {self._seconds:.6f}"
        yield f"mcp_state_call_seconds_count {total}"
        yield "# HELP mcp_state_refusals_total Requests refused, by reason."
        yield "# TYPE mcp_state_refusals_total counter"
        for reason, count in sorted(self._refusals.items()):
            yield f'mcp_state_refusals_total{{reason="{reason}"}} {count}'
        for name, gauge in self.gauges.items():
            yield f"# TYPE mcp_state_{name} gauge"
            yield f"mcp_state_{name} {gauge():g}"
