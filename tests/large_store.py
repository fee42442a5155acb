"""A large store in seconds: rows that the store itself wrote, copied under other names.

One of each sort is written through the store's own modules. Its row, event and document are then
cloned in bulk with plain `sqlite3`, triggers off, and what triggers count is counted once.
`doctor` tells that the result is a store like any other.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mcp_state.api import open_store
from mcp_state.models import Status
from mcp_state.times import Clock

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
_EARLIER = NOW - timedelta(days=3)
_MARK = "aaaaaaa"
"""In every name and text that is cloned; a clone has seven digits there."""

Values = dict[str, Any]


class Still(Clock):
    """A clock that stands where it was put."""

    def __init__(self, at: datetime = NOW) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


class _Marking(Still):
    """One whose ids carry the mark."""

    def new_id(self, prefix: str) -> str:
        return super().new_id(f"{prefix}{_MARK}-")


@dataclass(frozen=True)
class Size:
    """How much is in a store. Of ten threads four are active, three due and three blocked.

    Each fact rests on the one before it.
    """

    entries: int
    threads: int
    blocks: int
    facts: int = 0


@dataclass(frozen=True)
class _Template:
    """What one write left behind."""

    row: Values
    event: Values
    document: Values
    topics: Sequence[str]


async def build(path: Path, size: Size) -> None:
    """Make a store of project `acme` that holds so much."""
    async with open_store(path, project="acme", agent="builder", clock=_Marking(_EARLIER)) as state:
        await state.threads.set(f"active{_MARK}", next_action="write it and run its test")
        await state.threads.set(
            f"due{_MARK}", status=Status.WATCHING, check="gh pr view 1", recheck_after="1d"
        )
        await state.threads.set(
            f"blocked{_MARK}", status=Status.BLOCKED, waiting_on="a person", recheck_after="30d"
        )
        await state.threads.set("busy", next_action="half of the journal is about it")
        await state.memory.set(f"block{_MARK}", f"what we know about part{_MARK}\n" * 3)
        await state.journal.append(f"entry{_MARK}: went on", kind="note")
        await state.journal.append(f"entry{_MARK}: about it", thread="busy")
        if size.facts:
            await state.facts.record(f"fact{_MARK}", f"part{_MARK} works", check="make check")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        with _triggers_off(connection):
            clone = _Cloner(connection).clone
            sorts = ["active"] * 4 + ["due"] * 3 + ["blocked"] * 3
            clone("thread", "threads", [f"{sort}{_MARK}" for sort in sorts], size.threads - 4)
            clone("memory", "memory", [f"block{_MARK}"], size.blocks - 1)
            clone("journal", "journal", ["6", "7"], size.entries - 2)
            clone("fact", "facts", [f"fact{_MARK}"] * min(1, size.facts), size.facts - 1)
            for statement in (*_CHAIN, *_COUNT):
                connection.execute(statement)
        connection.execute("COMMIT")


_CHAIN = (
    """
    INSERT INTO premises (project, fact, reason, premise, given)
    SELECT project, name, 1, before, stated FROM (
        SELECT project, name, stated, lag(name) OVER (ORDER BY created) AS before FROM facts
    ) WHERE before IS NOT NULL
    """,
    """
    UPDATE events SET row = json_set(row, '$.reasons', json_array(json_array(premise)))
    FROM premises WHERE kind = 'fact' AND name = fact
    """,
)
_COUNT = (
    "INSERT INTO search (search) VALUES ('rebuild')",
    """
    UPDATE projects SET
        last_event = (SELECT count(*) FROM events),
        active = (SELECT count(*) FROM threads WHERE status = 'active'),
        watching = (SELECT count(*) FROM threads WHERE status = 'watching'),
        blocked = (SELECT count(*) FROM threads WHERE status = 'blocked'),
        journal = (SELECT count(*) FROM journal),
        memory = (SELECT count(*) FROM memory),
        provisional = (SELECT count(*) FROM facts)
    """,
    "UPDATE store SET changes = (SELECT count(*) FROM events)",
    "UPDATE last_events SET seq = (SELECT count(*) FROM events)",
)


@contextlib.contextmanager
def _triggers_off(connection: sqlite3.Connection) -> Generator[None]:
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
    found = triggers.fetchall()
    for trigger in found:
        connection.execute(f"DROP TRIGGER {trigger['name']}")
    yield
    for trigger in found:
        connection.execute(trigger["sql"])


class _Cloner:
    """Copies what was written once, under new names and the next event numbers."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._seq = self._scalar("SELECT last_event FROM projects")

    def clone(self, kind: str, table: str, names: Sequence[str], count: int) -> None:
        """Make so many more of a kind, taking these in turn as models."""
        templates = [self._template(kind, table, name) for name in names]
        numbers = Counter({t: self._topic_length(t) for one in templates for t in one.topics})
        last_document = self._scalar("SELECT max(id) FROM documents WHERE kind = ?", kind)
        rows: list[Values] = []
        events: list[Values] = []
        docs: list[Values] = []
        topics: list[Values] = []
        for n, template in zip(range(1, count + 1), itertools.cycle(templates), strict=False):
            self._seq += 1
            mark, own = f"{n:07}", {"seq": self._seq}
            if kind == "journal":
                own |= {"name": str(self._seq), "shown": str(self._seq)}
            rows.append(_marked(template.row, mark, dict.fromkeys(_NUMBERS, self._seq)))
            events.append(_marked(template.event, mark, own))
            docs.append(_marked(template.document, mark, own | {"id": last_document + n}))
            for topic in template.topics:
                numbers[topic] += 1
                here = {"topic": topic, "seq": self._seq, "number": numbers[topic]}
                topics.append({"project": 1} | here)
        self._insert(table, rows)
        self._insert("events", events)
        self._insert("documents", docs)
        self._insert("journal_topics", topics)

    def _template(self, kind: str, table: str, name: str) -> _Template:
        key = "seq" if kind == "journal" else "name"
        return _Template(
            self._row(f"SELECT * FROM {table} WHERE {key} = ?", name),  # noqa: S608
            self._row("SELECT * FROM events WHERE kind = ? AND name = ?", kind, name),
            self._row("SELECT * FROM documents WHERE kind = ? AND name = ?", kind, name),
            [
                row["topic"]
                for row in self._connection.execute(
                    "SELECT topic FROM journal_topics WHERE seq = ? AND ? = 'journal'",
                    (name, kind),
                )
            ],
        )

    def _topic_length(self, topic: str) -> int:
        return self._scalar("SELECT max(number) FROM journal_topics WHERE topic = ?", topic)

    def _row(self, sql: str, *parameters: str) -> Values:
        (row,) = self._connection.execute(sql, parameters)
        return dict(row)

    def _scalar(self, sql: str, *parameters: str) -> int:
        return self._connection.execute(sql, parameters).fetchone()[0]

    def _insert(self, table: str, rows: Iterable[Values]) -> None:
        rows = list(rows)
        if rows:
            columns = ", ".join(f'"{column}"' for column in rows[0])
            values = ", ".join(f":{column}" for column in rows[0])
            self._connection.executemany(
                f"INSERT INTO {table} ({columns}) VALUES ({values})",  # noqa: S608
                rows,
            )


_NUMBERS = ("seq", "changed", "created", "stated")


def _marked(template: Mapping[str, Any], mark: str, own: Mapping[str, Any]) -> Values:
    """The same with another mark, and with its own values in those columns that there are."""
    clone: Values = {}
    for column, value in template.items():
        if column in own:
            clone[column] = own[column]
        elif isinstance(value, str):
            clone[column] = value.replace(_MARK, mark)
        else:
            clone[column] = value
    return clone
