"""`mcp-state journal`: what happened, and what happens now."""

from __future__ import annotations

import asyncio
import contextlib
import select
import signal
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict

import click

from mcp_state import render
from mcp_state.api import State
from mcp_state.cli import complete
from mcp_state.cli.common import (
    COUNT,
    NUMBER,
    ON_PROJECT,
    Options,
    TextOrStdin,
    answer,
    known_projects,
    opened,
    run_option,
    store_options,
)
from mcp_state.cli.groups import Fallback
from mcp_state.cli.output import print_json, print_note, print_text
from mcp_state.errors import BadArgument, ProjectUnknown
from mcp_state.live import Live
from mcp_state.models import JournalEntry
from mcp_state.store.text import fold, near_names

_PAUSE = 0.2
_PAGE = 100
_KINDS = ("note", "decision", "dead_end")
_kinds = complete.words(*_KINDS)


class _Filter(TypedDict):
    thread: str
    run: str
    kind: str
    actor: str


@click.group(
    cls=Fallback,
    fallback="tail",
    epilog="""
    mcp-state journal
    mcp-state journal append "keep the old parser" --kind decision
    mcp-state journal tail -f
    """,
)
def journal() -> None:
    """Read the journal or write to it; `journal` reads it."""


@journal.command(
    epilog="""
    mcp-state journal tail -n 20
    mcp-state journal tail --kind dead_end --thread import
    mcp-state journal tail -f --json | jq --unbuffered -r .text
    """,
)
@click.option("-n", "--limit", type=COUNT, default=10, show_default=True, help="At most so many.")
@click.option("-f", "--follow", is_flag=True, help="Go on printing new entries as they come.")
@click.option(
    "--thread", default="", help="Only entries about this thread.", shell_complete=complete.threads
)
@run_option("Only entries of this run.")
@click.option("--kind", default="", help="Only entries of this kind.", shell_complete=_kinds)
@click.option("--actor", default="", help="Only entries of this agent.")
@click.option("--before", type=NUMBER, help="Entry number; pages back.")
@click.option("--since", type=NUMBER, help="Entry number; reads forward.")
@store_options(*ON_PROJECT)
def tail(
    options: Options,
    limit: int,
    follow: bool,
    thread: str,
    run: str,
    kind: str,
    actor: str,
    before: int | None,
    since: int | None,
) -> None:
    """Show the newest entries, oldest first.

    With -f it goes on until it is interrupted; with --json, each entry is then one line.
    """
    which = _Filter(thread=thread, run=run, kind=kind, actor=actor)
    if follow:
        if before is not None:
            raise BadArgument("--before does not go with -f", "Leave one of them out.")
        _follow(options, which, limit, since)
        return
    answer(
        options,
        lambda state: state.journal.tail(limit=limit, before=before, since=since, **which),
        lambda page, seen: render.journal_page(
            page, seen.now, forward=since is not None, room=render.ALL
        ),
    )


def _follow(options: Options, which: _Filter, limit: int, since: int | None) -> None:
    """Print entries until the reader leaves or a signal comes; both are a good end."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(_following(options, which, limit, since))


async def _following(options: Options, which: _Filter, limit: int, since: int | None) -> None:
    this = asyncio.current_task()
    assert this is not None
    with contextlib.suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    async with opened(options) as state:
        if not state.caller.project:
            raise ProjectUnknown.among(await known_projects(state))
        if since is None:
            page = await state.journal.tail(limit=limit, **which)
            _print(page.entries, state, options.as_json)
            since = state.totals.event
        looked = state.database.clock.now()
        async with Live(state.database).listening(state.caller) as listener:
            while not _reader_left():
                try:
                    async with asyncio.timeout(_PAUSE):
                        await listener.news()
                except TimeoutError:
                    continue
                before, looked = looked, state.database.clock.now()
                since = await _print_new(state, which, since, before, options)


async def _print_new(
    state: State, which: _Filter, since: int, looked: datetime, options: Options
) -> int:
    """Print what was written after an event; returns the newest event.

    In a store that was put back meanwhile, print what was written since it was `looked` at.
    """
    while True:
        entries = (await state.journal.tail(since=since, limit=_PAGE, **which)).entries
        if (event := state.totals.event) < since:
            print_note(f"the store was put back to an earlier state, now at event {event}")
            newest = await state.journal.tail(limit=_PAGE, **which)
            entries = [entry for entry in newest.entries if entry.at >= looked]
        _print(entries, state, options.as_json)
        if len(entries) < _PAGE or event < since:
            return state.totals.event
        since = entries[-1].seq


def _print(entries: Sequence[JournalEntry], state: State, as_json: bool) -> None:
    now = state.database.clock.now()
    for entry in entries:
        if as_json:
            print_json(entry, indent=None)
        else:
            print_text("\n".join([render.entry_head(entry, now), *render.indented(entry.text)]))


def _reader_left() -> bool:
    """Whether the other end of the pipe is closed, told without writing to it."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


@journal.command(
    epilog="""
    mcp-state journal append "keep the old parser" --kind decision
    git log -1 | mcp-state journal append - --thread import
    """,
)
@click.argument("text", type=TextOrStdin())
@click.option(
    "--kind", default="", help="What it is: note, decision, dead_end.", shell_complete=_kinds
)
@click.option(
    "--thread", default="", help="The thread that it is about.", shell_complete=complete.threads
)
@run_option("The run that it belongs to. [default: the open one that this session works on]")
@click.option("--idempotency-key", default="", help="The same key writes the entry once.")
@store_options(*ON_PROJECT)
def append(
    options: Options, text: str, kind: str, thread: str, run: str, idempotency_key: str
) -> None:
    """Write an entry; a TEXT of - is read from standard input."""

    async def write(state: State) -> JournalEntry:
        near = await _near_kind(state, kind) if kind and state.caller.project else ""
        entry = await state.journal.append(
            text, kind=kind, thread=thread, run=run, idempotency_key=idempotency_key
        )
        if near:
            print_note(f"kind {entry.kind!r} is new here; did you mean {near}?")
        return entry

    answer(
        options,
        write,
        lambda entry, seen: render.journal_saved(entry, seen.now),
        writes=True,
    )


async def _near_kind(state: State, kind: str) -> str:
    """The kind that may have been meant by one that no entry has yet; empty if there is none."""
    if fold(kind) in _KINDS or (await state.journal.tail(kind=kind, limit=1)).entries:
        return ""
    newest = (await state.journal.tail(limit=_PAGE)).entries
    near = near_names(fold(kind), {*_KINDS, *(entry.kind for entry in newest)} - {""})
    return near[0] if near else ""
