"""How the index of PostgreSQL is asked: by the runs of three characters of what is looked for.

They find what may match; whether the characters stand one after the other is looked up in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcp_state.store.full_text import LIVE, Needle, Wanted

if TYPE_CHECKING:
    from mcp_state.store.transaction import Params, Reading, Row

# OFFSET 0 keeps the server from reading the documents that may match before it has sorted them: of
# a common word it would read all, for the newest few.
_BEGIN = """
    SELECT may_hold.id, kind, name, shown, seq, uses, text FROM (
        SELECT id FROM search WHERE id >= :first AND id < :end
"""
_THEN = """
        ORDER BY id DESC
    ) AS may_hold CROSS JOIN LATERAL (
        SELECT * FROM documents WHERE project = :project AND documents.id = may_hold.id
"""
_END = "ORDER BY may_hold.id DESC LIMIT :limit"
_MAY_HOLD = {
    "text": "grams @> grams_of_text(:range, :{})",
    "short": "grams @> grams_of_short(:range, :{})",
}
_HOLDS = {
    "text": "strpos(folded(text), folded(:{})) > 0",
    "short": "strpos(folded(short), folded(:{})) > 0",
}


def newest(tx: Reading, wanted: Wanted, ids: tuple[int, int], limit: int) -> list[Row]:
    """The newest documents that match, whose ids are from the first up to the second."""
    first, end = ids
    names: dict[Needle, str] = {}
    for group in (*wanted.groups, wanted.always):
        for needle in group:
            names.setdefault(needle, f"needle{len(names)}")
    statement: list[str] = []
    for begin, condition in ((_BEGIN, _MAY_HOLD), (_THEN, _HOLDS)):
        statement.append(begin)
        joiner = " OR " if wanted.any else " AND "
        groups = joiner.join(f"({_all(group, condition, names)})" for group in wanted.groups)
        statement.append(f"AND ({groups})")
        if wanted.always:
            statement.append(f"AND {_all(wanted.always, condition, names)}")
    params: Params = {name: needle.text for needle, name in names.items()}
    more = {"first": first, "end": end, "range": first >> 36, "limit": limit}
    statement += ["OFFSET 0) AS documents WHERE true", LIVE, _END]
    return tx.all(" ".join(statement), {**params, **more})


def _all(needles: Sequence[Needle], condition: dict[str, str], names: dict[Needle, str]) -> str:
    return " AND ".join(condition[needle.column].format(names[needle]) for needle in needles)
