"""What an import means for what is believed: facts of the file rest on those here, and these on it.

That a fact fell or came due follows from what became of others, so it parts no histories, and is
worked out anew here. Whatever was verified or replaced on one side only counts for what rests on it
on the other side: it falls in the same transaction, with an event of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from mcp_state.models import Trust
from mcp_state.store.fact_rows import row_of, stored_fact
from mcp_state.store.fact_rules import be_due, fall, falls_with, let_fall
from mcp_state.store.text import one_line
from mcp_state.store.transaction import Row, Writing
from mcp_state.store.transfer.staging import Staging

# In the staging database.
_BROUGHT = "SELECT 1 FROM units WHERE kind = 'fact' AND mode IN ('new', 'more')"

# In the store.
_UNSUPPORTED = """
    SELECT name FROM facts
    WHERE project = :project AND (trust NOT IN ('stale', 'refuted') OR recheck_at IS NOT NULL)
        AND EXISTS (
            SELECT 1 FROM premises
            WHERE premises.project = facts.project AND premises.fact = facts.name
        ) AND NOT EXISTS (
            SELECT 1 FROM premise_rows AS premise
            WHERE premise.project = facts.project AND premise.fact = facts.name
            GROUP BY reason HAVING sum(fallen) = 0
        )
    ORDER BY created
"""
_STANDS_AGAIN = """
    SELECT name FROM facts
    WHERE project = :project AND trust = 'stale' AND recheck_at IS NULL AND EXISTS (
        SELECT 1 FROM premise_rows AS premise
        WHERE premise.project = facts.project AND premise.fact = facts.name
        GROUP BY reason HAVING sum(fallen) = 0
    ) ORDER BY created
"""
_FALLEN = """
    SELECT shown, replaced FROM premise_rows
    WHERE project = :project AND fact = :name AND fallen = 1 ORDER BY reason DESC, premise LIMIT 1
"""


def settle(tx: Writing, staging: Staging, kept_stale: Sequence[str]) -> int:
    """Let fall what does not stand any more; ask for a new look at what stands again.

    `kept_stale` fell here before. Returns how many fell now.
    """
    if staging.one(_BROUGHT) is None:
        return 0
    for name in kept_stale:
        _tell(tx, name, "stale: it fell here, and nobody has verified it since")
    fell = 0
    for row in tx.all(_UNSUPPORTED):
        name = row["name"]
        if _has_fallen(stored_fact(tx, name)):
            continue
        falls = list(falls_with(tx, name))
        fall(tx, name)
        premise = tx.one(_FALLEN, {"name": name})
        assert premise is not None
        why = "says something else" if premise["replaced"] else "does not hold"
        _tell(tx, name, f"stale: rests on {one_line(premise['shown'], 80)}, which {why} here")
        let_fall(tx, name, falls, "fell")
        fell += 1 + len(falls)
    for row in tx.all(_STANDS_AGAIN):
        be_due(tx, row["name"])
        _tell(tx, row["name"], "due: a reason of it holds now, unchecked since it fell", "due")
    return fell


def _has_fallen(row: Row) -> bool:
    """Whether it fell since with another one. What is due has not."""
    return row["trust"] == Trust.STALE and row["recheck_at"] is None


def _tell(tx: Writing, name: str, words: str, operation: str = "fall") -> None:
    row = row_of(tx, stored_fact(tx, name))
    tx.event(operation, words, row, subject=("fact", name))
