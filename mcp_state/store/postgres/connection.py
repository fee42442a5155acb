"""A psycopg connection that takes the statements of the store as SQLite does.

Parameters are bound here, as literals without a type (`psycopg.ClientCursor`): then the server
finds their types from where they stand, as SQLite does, and a NULL needs none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Dumper, Loader

_PARAMETER = re.compile(
    r"(?P<kept>'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|::)|:(?P<name>[a-z_]+\d*)|(?P<percent>%)"
)
_ADDS_A_ROW = re.compile(r"\s*(INSERT INTO [^;]*?\sVALUES\s*)(\([^()]*\))\s*", re.DOTALL)
_PAGE = 500
_SENT_AT_ONCE = 100_000
NOTHING: Mapping[str, Any] = {}


class Row:
    """A row as `sqlite3.Row` is one: values by position and by name."""

    __slots__ = ("_columns", "_values")

    def __init__(self, columns: Mapping[str, int], values: Sequence[Any]) -> None:
        self._columns = columns
        self._values = values

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._values[self._columns[key]]
        return self._values[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._columns)


def rows_of(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], Row]:
    """The row factory of the store's connections."""
    columns = {column.name: at for at, column in enumerate(cursor.description or ())}

    def row(values: Sequence[Any]) -> Row:
        return Row(columns, values)

    return row


class Found:
    """What a statement found."""

    def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        return self._cursor.rowcount

    def fetchone(self) -> Any:
        """The next row, or None."""
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        """The rows that are left."""
        return self._cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)


class Connection:
    """One connection, for one transaction.

    `within` is the project whose rows can be seen and written: row level security knows no others.
    0 is none, `EVERY` all of them.
    """

    EVERY = "*"

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw = raw
        self.within: int | str = 0
        self._told: int | str | None = None
        self._pages = 0

    @property
    def in_transaction(self) -> bool:
        """Whether there is something to roll back."""
        return self.raw.info.transaction_status in (
            pq.TransactionStatus.INTRANS,
            pq.TransactionStatus.INERROR,
        )

    def begin(self, statements: str) -> Found:
        """Begin a transaction with these statements; finds what the last of them does."""
        self._told = None
        return self._run(statements, {})

    def commit(self, last: str = "") -> str | None:
        """Commit, after this last statement; returns what the server says that it did.

        That may be `ROLLBACK`.
        """
        cursor = self.raw.execute(f"{last}; COMMIT".encode() if last else b"COMMIT")
        while cursor.nextset():
            pass
        return cursor.statusmessage

    def rollback(self) -> None:
        """Take back what was begun."""
        self.raw.execute(b"ROLLBACK")

    def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> Found:
        """Run one statement, after telling the server which project it is about."""
        if sql.startswith("ROLLBACK TO"):  # takes back what it was told, too
            self._told = None
            return self._run(sql, {})
        return self._run_within(translated(sql), params or NOTHING)

    def _run_within(self, query: str, params: Mapping[str, Any] | None = None) -> Found:
        if self._told != self.within:
            query = f"SET LOCAL mcp_state.project = '{self.within}'; {query}"
        found = self._run(query, params)
        self._told = self.within
        return found

    def _run(self, query: str, params: Mapping[str, Any] | None) -> Found:
        cursor = psycopg.ClientCursor(self.raw, row_factory=rows_of)
        cursor.execute(query.encode(), params)
        while cursor.nextset():
            pass
        return Found(cursor)

    def executemany(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Run one statement for each of these, many at a time; each sees what those before did.

        What does no more than add a row is one statement for all that are sent at once: then what
        the store counts of them is written once.
        """
        adds = _ADDS_A_ROW.fullmatch(sql)
        begin, sql, between = (adds[1], adds[2], ", ") if adds else ("", sql, "; ")
        query = translated(sql).encode()
        cursor = psycopg.ClientCursor(self.raw)
        page: list[str] = []
        size = 0
        for row in rows:
            page.append(cursor.mogrify(query, row))
            size += len(page[-1])
            if size > _SENT_AT_ONCE:
                self._run_within(begin + between.join(page))
                page.clear()
                size = 0
        if page:
            self._run_within(begin + between.join(page))

    def each(self, sql: str, params: Mapping[str, Any]) -> Iterator[Row]:
        """The rows one by one, fetched a page at a time; what is left ends with the transaction."""
        self._pages += 1
        name = f"page_{self._pages}"
        self.execute(f"DECLARE {name} NO SCROLL CURSOR FOR {sql}", params)
        while page := self.execute(f"FETCH {_PAGE} FROM {name}").fetchall():
            yield from page
        self.execute(f"CLOSE {name}")


@lru_cache(maxsize=2048)
def translated(sql: str) -> str:
    """A statement with named parameters as psycopg reads them."""

    def replaced(found: re.Match[str]) -> str:
        if found["name"]:
            return f"%({found['name']})s"
        return (found["kept"] or "%").replace("%", "%%")

    return _PARAMETER.sub(replaced, sql)


class _Truth(Dumper):
    """A truth as a literal that is a number or a boolean, as where it stands demands."""

    oid = 0

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"

    def quote(self, obj: bool) -> bytes:
        return b"'1'" if obj else b"'0'"


class _Number(Loader):
    """Sums of integers come as decimals."""

    def load(self, data: Any) -> int | float:
        number = Decimal(bytes(data).decode())
        return int(number) if number == number.to_integral_value() else float(number)


class _AsNumber(Loader):
    """SQLite knows no truth but 0 and 1."""

    def load(self, data: Any) -> int:
        return int(bytes(data) == b"t")


def adapt(raw: psycopg.Connection[Any]) -> None:
    """Give and take values as SQLite does."""
    raw.adapters.register_dumper(bool, _Truth)
    raw.adapters.register_loader("numeric", _Number)
    raw.adapters.register_loader("bool", _AsNumber)
