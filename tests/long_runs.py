"""What the tests of long runs share: attempts, plain SQL, and what doctor says of the store."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from mcp_state.api import State
from mcp_state.models import StepEnded
from mcp_state.store.consistency import inspect
from mcp_state.times import Clock

EMPTY = "[acme (from --project) · nothing stored yet]"


def scope(event: int, threads: int = 0) -> str:
    noun = "thread" if threads == 1 else "threads"
    return f"[acme (from --project) · {threads} {noun} · event {event}]"


def contradictions(path: str) -> list[str]:
    """What `doctor` finds of the rows of a store, its events, counters and index."""
    if not os.path.exists(path):
        return []
    with (
        contextlib.closing(sqlite3.connect(path)) as store,
        contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as copy,
    ):
        store.backup(copy)
        return [f.what for f in inspect(copy, Clock()) if f.severity != "ok"]


@contextmanager
def plain(path: str) -> Generator[sqlite3.Connection]:
    """The store through plain `sqlite3`; what is done is committed."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection


def rows(path: str, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with plain(path) as connection:
        return connection.execute(sql, params).fetchall()


async def attempt(
    state: State,
    run: str,
    step: str,
    result: str = "",
    *,
    ok: bool = False,
    input: str = "",
    tokens_in: int = 0,
    tokens_out: int = 0,
) -> StepEnded:
    """One attempt: a *go*, and its outcome."""
    begun = await state.steps.begin(run, step, input=input)
    assert begun.go
    ended = await state.steps.end(run, step, ok, result, tokens_in=tokens_in, tokens_out=tokens_out)
    assert (ended.attempt.number, ended.repeated) == (begun.attempt, False)
    return ended


async def summaries(state: State, subject: str) -> list[str]:
    page = await state.events.history(subject, limit=200)
    assert page.more == 0
    return [event.summary for event in page.events]
