"""What the Tab key offers besides commands and options: names out of the store, and known words.

Read-only and quick; where anything is wrong there is nothing to offer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from mcp_state.store.transaction import Reading

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_MOST = 200


def words(*known: str) -> Complete:
    """One of some words."""

    def complete(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
        return _matching(known, begun)

    return complete


def _matching(names: Iterable[str], begun: str) -> list[CompletionItem]:
    """Those that go on as was typed, and that a shell takes as one line; case does not matter."""
    typed = begun.casefold()
    return [CompletionItem(n) for n in names if n.isprintable() and n.casefold().startswith(typed)]


def _names(find: Callable[[Reading], Iterable[str]]) -> Complete:
    """Names that are read from the project that the command is about."""

    def complete(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
        try:
            return _matching(asyncio.run(_read(ctx.params, find)), begun)
        except Exception:  # whatever it is, it must not disturb somebody who types
            return []

    return complete


async def _read(given: Mapping[str, Any], find: Callable[[Reading], Iterable[str]]) -> list[str]:
    from mcp_state.cli.common import Options, opened, read_settings

    settings = read_settings(given.get("db") or "", given.get("project") or "", "")
    async with opened(Options(settings), read_only=True) as state:
        return await state.database.read(state.caller, lambda tx: list(find(tx)))


def _threads(tx: Reading) -> Iterable[str]:
    from mcp_state.store.thread_rows import list_threads

    return [thread.name for thread in list_threads(tx, None, False, _MOST, "").threads]


def _runs(tx: Reading) -> Iterable[str]:
    from mcp_state.models import RunStatus
    from mcp_state.store.run_rows import runs_of_status

    return [run.name for run in runs_of_status(tx, list(RunStatus), _MOST)]


def _facts(tx: Reading) -> Iterable[str]:
    from mcp_state.store.fact_rows import list_facts

    return [fact.name for fact in list_facts(tx, None, False, _MOST, "").facts]


def _blocks(tx: Reading) -> Iterable[str]:
    from mcp_state.store.memory import recent_blocks

    return [block.key for block in recent_blocks(tx, _MOST)]


def _handoffs(tx: Reading) -> Iterable[str]:
    from mcp_state.store.handoffs import open_handoffs

    return [handoff.key for handoff in open_handoffs(tx, _MOST)]


def _subjects(tx: Reading) -> Iterator[str]:
    for kind, find in (("thread", _threads), ("memory", _blocks), ("run", _runs), ("fact", _facts)):
        yield from (f"{kind}:{name}" for name in find(tx))
    yield "objective"


threads, runs, facts = _names(_threads), _names(_runs), _names(_facts)
blocks, handoffs, subjects = _names(_blocks), _names(_handoffs), _names(_subjects)
projects = _names(lambda tx: tx.known_projects())
