"""Stores to measure on: one as it is after a week of work, and large ones."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from large_store import Size, build
from raw_client import Call

import mcp_state
from bench.client import Connection
from bench.subjects import OURS

TEXT = "the importer reads both formats; 1,204 rows of the golden file match, next the old dates"
"""As long as entries of a journal are: 88 characters."""


def working_store(home: Path) -> None:
    """A project with 20 open threads, as clients left it."""
    with OURS.ready(home) as server:
        for call in _week_of_work():
            server.call(call.tool, **call.arguments)


OBJECTIVE = Call(
    "objective_set", {"objective": "Ship import v2", "intent": "Customers can leave the old system"}
)


def open_threads() -> Iterator[Call]:
    """What opens 20 threads: 12 to work on, 4 to look at again, 4 that wait."""
    for n in range(12):
        action = "rerun the golden test and compare the counts"
        yield _thread(
            f"import-{n}", title=f"Import format {n}", next_action=action, priority=1 + n % 4
        )
    for n in range(4):
        check = f"gh pr view {830 + n} --json state"
        yield _thread(f"pr-{830 + n}", status="watching", check=check, recheck_after="2d")
    for n in range(4):
        yield _thread(f"ask-{n}", status="blocked", waiting_on="the customer", recheck_after="3d")


def _week_of_work() -> Iterator[Call]:
    yield OBJECTIVE
    yield from open_threads()
    for n in range(5):
        lines = "\n".join(f"{line}. {TEXT}" for line in range(4))
        yield Call("memory_set", {"key": f"plan-{n}", "value": lines})
    for n in range(10):
        fact = {"fact": f"format-{n}", "statement": f"Format {n} has three fields"}
        yield Call("fact_record", fact | {"check": "make check"})
    for n in range(50):
        yield Call("journal_append", {"text": f"{n}: {TEXT}", "thread": f"import-{n % 12}"})


def _thread(name: str, **fields: str | int) -> Call:
    return Call("thread_set", {"thread": name, **fields})


def copy(source: Path, home: Path) -> Path:
    """The same store once more, which may be written to."""
    home.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.is_file():
            shutil.copy2(file, home)
    return home


def large_store(cache: Path, size: Size) -> Path:
    """The directory of a store of that size, which is made once for each form of the schema."""
    sources = [Path(build.__code__.co_filename)]
    sources += sorted((Path(mcp_state.__file__).parent / "store" / "migrations").glob("*.sql"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:10]
    home = cache / f"store-{size.entries}-{size.threads}-{size.blocks}-{size.facts}-{digest}"
    if not home.exists():
        fresh = home.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        asyncio.run(build(fresh / "state.db", size))
        fresh.rename(home)
    return home


def fill_memory_keeper(keeper: Connection, home: Path, items: int) -> None:
    """Copies of an item that it saved itself, in the session that it goes on with."""
    keeper.call("context_save", key="item-0", value=TEXT)
    with contextlib.closing(sqlite3.connect(home / "context.db")) as connection, connection:
        for statement in _KEEPER_FILL:
            connection.execute(statement, {"items": items})


_KEEPER_FILL = (
    """
    WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < :items)
    INSERT INTO context_items (id, session_id, key, value, size, sequence_number)
    SELECT 'id-' || n, session_id, 'item-' || n, value, size, n FROM context_items, numbers
    WHERE key = 'item-0'
    """,
    """
    INSERT INTO vector_embeddings (id, content_id, content, embedding, metadata)
    SELECT 'v-' || item.id, item.id, item.key || ': ' || item.value, embedding, first.metadata
    FROM context_items item, vector_embeddings first
    WHERE item.key <> 'item-0' AND first.content LIKE 'item-0: %' AND :items
    """,
)


def reads() -> dict[str, Call]:
    """Calls that only read, on the working store."""
    return {
        "journal_tail": Call("journal_tail", {}),
        "memory_get": Call("memory_get", {"key": "plan-1"}),
        "thread_list": Call("thread_list", {}),
    }


class Writes:
    """Calls that write, each with a text of its own; no block of memory ever fills up."""

    def __init__(self, mark: str = "") -> None:
        self._mark = mark
        self._number = 0

    def journal_append(self) -> Call:
        return Call("journal_append", {"text": self._text()})

    def thread_set(self) -> Call:
        text = self._text()
        return Call("thread_set", {"thread": f"t{self._number % 20}", "next_action": text})

    def memory_append(self) -> Call:
        text = self._text()
        return Call("memory_append", {"key": f"m{self._mark}-{self._number // 30}", "text": text})

    def entries(self, count: int) -> list[Call]:
        return [self.journal_append() for _ in range(count)]

    def _text(self) -> str:
        self._number += 1
        return f"{self._mark}{self._number}: {TEXT}"
