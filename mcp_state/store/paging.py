"""Pages of a list that is sorted by two columns within groups, and the cursors between them.

A cursor holds the filters, the time of the first page, and the place of the last row shown, so that
rows which move meanwhile are neither shown twice for it nor hide others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mcp_state.errors import BadArgument
from mcp_state.record import record
from mcp_state.store.transaction import Reading, Row

FAR = 1 << 62
"""Comes after every number, where a list begins with the greatest."""
ASKED = "asked"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_DIGITS = frozenset("123456789")
_CURSOR = re.compile(
    rf"(?P<filters>[a-z-]+)/(?P<asked>{_TIME.pattern})/(?P<group>[0-9])"
    r"/(?P<first>[^/]*)/(?P<second>\d{1,18})",
    re.ASCII,
)


@record
class Group:
    """One part of a list: a query for each of some values (`:value`), sorted by two columns.

    `start` is the place of a row that would come before the first; `ASKED` in it stands for the
    time of the first page. The query is given `:asked`, `:first`, `:second` and `:limit`.
    """

    sql: str
    values: Sequence[str]
    sorted_by: tuple[str, str]
    start: tuple[str | int, int]

    def begins(self, first: str) -> bool:
        """Whether a cursor could say this of the first column."""
        if self.sorted_by[0] == "recheck_at":
            return _TIME.fullmatch(first) is not None
        return first == self.start[0] or (self.start[0] == 0 and first in _DIGITS)


@record
class Page:
    """Some rows, the time that the list was asked for at first, and the cursor of the next ones."""

    rows: Sequence[Row]
    asked: str
    cursor: str = ""


def page_of(
    tx: Reading, groups: Sequence[Group], filters: str, limit: int, cursor: str, tool: str
) -> Page:
    """The first rows of the groups, or those that come after a cursor.

    Raises:
        BadArgument: the cursor is none of this list.
    """
    asked, begin, place = tx.now, 0, None
    if cursor:
        asked, begin, place = _read(cursor, filters, groups, tool)
    found: list[Row] = []
    last: tuple[Any, ...] = ()
    for number, group in list(enumerate(groups))[begin:]:
        first, second = place or group.start
        first, place = asked if first == ASKED else first, None
        params = {"asked": asked, "first": first, "second": second, "limit": limit + 1}
        rows = [row for one in group.values for row in tx.all(group.sql, params | {"value": one})]
        if len(group.values) > 1:
            rows.sort(key=lambda row: [row[column] for column in group.sorted_by])
        for row in rows:
            if len(found) == limit:
                return Page(found, asked, "/".join(str(part) for part in (filters, asked, *last)))
            found.append(row)
            last = (number, *(row[column] for column in group.sorted_by))
    return Page(found, asked)


def _read(
    cursor: str, filters: str, groups: Sequence[Group], tool: str
) -> tuple[str, int, tuple[str | int, int]]:
    """Where a page ended: when the list was asked for, in which group, and the last row's place."""
    match = _CURSOR.fullmatch(cursor)
    if match is not None and match["filters"] != filters:
        raise BadArgument(
            "the cursor comes from a list with other filters",
            "Ask with the same ones, or leave the cursor out to begin at the top.",
        )
    number = int(match["group"]) if match else len(groups)
    if match is None or number >= len(groups) or not groups[number].begins(match["first"]):
        raise BadArgument(
            f"cursor {cursor[:40]!r} is none that {tool} gave",
            "Leave it out to begin at the top.",
        )
    first = match["first"]
    place = int(first) if first.isdigit() else first, int(match["second"])
    return match["asked"], number, place
