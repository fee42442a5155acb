"""Why a fact is believed, and what would fall with it: both walked without recursion."""

from __future__ import annotations

from collections.abc import Callable, Collection

from mcp_state.models import FALLEN, FactTrace, Traced
from mcp_state.record import record
from mcp_state.store.fact_rows import PREMISES, fact_of, stored_fact
from mcp_state.store.fact_rules import MOST_NAMED, falls_with, resting_on, threads_relying
from mcp_state.store.transaction import Reading, Row

_MOST_TRACED = 100
_MOST_COUNTED = 10_000


def trace_of(tx: Reading, row: Row) -> FactTrace:
    """The argument for a fact, and what it carries."""
    name = row["name"]
    falls = [one for one, _ in falls_with(tx, name)]
    up, up_count = _walk(tx, name, _premises)
    down, down_count = _walk(tx, name, _dependents, set(falls))
    threads = threads_relying(tx, [name, *falls])
    return FactTrace(
        fact=fact_of(tx, row),
        rests_on=up,
        rests_on_count=up_count,
        carries=down,
        carries_count=down_count,
        falls_count=len(falls),
        threads=threads[:MOST_NAMED],
        threads_count=len(threads),
    )


@record
class _Step:
    """One fact that another one leads to, in its reason of this number."""

    name: str
    reason: int = 0
    replaced: bool = False


def _premises(tx: Reading, name: str) -> list[_Step]:
    rows = tx.all(PREMISES, {"name": name})
    return [_Step(row["premise"], row["reason"], bool(row["replaced"])) for row in rows]


def _dependents(tx: Reading, name: str) -> list[_Step]:
    return [_Step(fact) for fact in resting_on(tx, name)]


def _walk(
    tx: Reading,
    name: str,
    steps: Callable[[Reading, str], list[_Step]],
    falls: Collection[str] = (),
) -> tuple[list[Traced], int]:
    """All that can be reached from a fact, what is reached from each below it; and its number."""
    seen = {name}
    lines: list[Traced] = []
    waiting = [(step, 1) for step in reversed(steps(tx, name))]
    while waiting and len(seen) <= _MOST_COUNTED:
        step, depth = waiting.pop()
        here = step.name
        if len(lines) < _MOST_TRACED:
            row = stored_fact(tx, here)
            is_fallen = here in falls or row["trust"] in FALLEN
            fact, is_seen = fact_of(tx, row), here in seen
            lines.append(Traced(fact, depth, step.reason, is_seen, is_fallen, step.replaced))
        if here not in seen:
            seen.add(here)
            waiting += [(one, depth + 1) for one in reversed(steps(tx, here))]
    return lines, len(seen) - 1
