"""What a search asks the index for, and how the index of SQLite is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcp_state.record import record

if TYPE_CHECKING:
    from mcp_state.store.transaction import Reading, Row

LIVE = """
    AND (kind <> 'memory' OR NOT EXISTS (
        SELECT 1 FROM memory
        WHERE project = :project AND expires_at <= :now
            AND run = CASE WHEN instr(documents.name, :within) > 0
                THEN substr(documents.name, 1, instr(documents.name, :within) - 1) ELSE '' END
            AND memory.name = substr(documents.name, instr(documents.name, :within) + 1)
    ))
    AND (kind <> 'blob' OR NOT EXISTS (
        SELECT 1 FROM blobs
        WHERE project = :project AND blobs.key = documents.name AND expires_at <= :now
    ))
"""
"""The condition that what a document stands for has not expired."""
_MATCHES = " ".join(
    (
        "SELECT id, kind, name, shown, seq, uses, documents.text AS text",
        "FROM search JOIN documents ON documents.id = search.rowid",
        "WHERE search MATCH :match AND search.rowid >= :first AND search.rowid < :end",
        LIVE,
        "ORDER BY search.rowid DESC LIMIT :limit",
    )
)


@record
class Needle:
    """Three characters or more that stand in a column of a document, `text` or `short`."""

    column: str
    text: str


@record
class Wanted:
    """What a document must hold: all needles of a group, of all `groups` or of `any` of them.

    `always` is needed whatever else is.
    """

    groups: Sequence[Sequence[Needle]]
    any: bool = False
    always: Sequence[Needle] = ()


def newest(tx: Reading, wanted: Wanted, ids: tuple[int, int], limit: int) -> list[Row]:
    """The newest documents that match, of those whose ids are from the first up to the second."""
    groups = [f"({_all(needles)})" for needles in wanted.groups]
    match = (" OR " if wanted.any else " AND ").join(groups)
    if wanted.always:
        match = f"({match}) AND {_all(wanted.always)}"
    first, end = ids
    return tx.all(_MATCHES, {"match": match, "first": first, "end": end, "limit": limit})


def _all(needles: Sequence[Needle]) -> str:
    return " AND ".join(f"{needle.column} : {_quoted(needle.text)}" for needle in needles)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
