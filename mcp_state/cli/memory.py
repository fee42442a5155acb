"""`mcp-state memory`: named texts that the next session reads."""

from __future__ import annotations

from contextlib import suppress

import click

from mcp_state import render
from mcp_state.api import State
from mcp_state.calls import call
from mcp_state.cli import complete
from mcp_state.cli.common import (
    COUNT,
    NUMBER,
    ON_PROJECT,
    Options,
    Seen,
    TextOrStdin,
    answer,
    run_option,
    store_options,
)
from mcp_state.cli.groups import Fallback
from mcp_state.cli.output import print_note
from mcp_state.errors import BadArgument, NotFound
from mcp_state.models import MemoryBlock, MemoryPage, MissingBlock

_ALL_BLOCKS = 1_000_000
_run = run_option("A block of this run, not of the project.")
_expected = click.option(
    "--expected-version", type=NUMBER, help="Refuse if it moved on; 0: must be new."
)


@click.group(
    cls=Fallback,
    fallback="get",
    epilog="""
    mcp-state memory
    mcp-state memory plan
    mcp-state memory set plan "1. read both formats"
    """,
)
def memory() -> None:
    """Read or change working memory; `memory [KEY]` reads it."""


@memory.command(
    epilog="""
    mcp-state memory plan
    mcp-state memory plan --version 1
    mcp-state memory --run reindex
    """,
)
@click.argument("key", required=False, shell_complete=complete.blocks)
@click.option("--version", type=NUMBER, help="An earlier version of the block.")
@_run
@store_options(*ON_PROJECT)
def get(options: Options, key: str | None, version: int | None, run: str) -> None:
    """Show one block, or all of them."""
    if key is None and version is not None:
        raise BadArgument("--version came without a key", "Name the block.")

    async def read(state: State) -> MemoryBlock | MissingBlock | MemoryPage:
        if key is None:
            return await state.memory.blocks(run=run, limit=_ALL_BLOCKS)
        return await state.memory.get(key, run=run, version=version)

    answer(options, read, _shown)


def _shown(result: MemoryBlock | MissingBlock | MemoryPage, seen: Seen) -> str:
    if isinstance(result, MemoryBlock):
        return render.memory_block(result, seen.now)
    if isinstance(result, MissingBlock):
        # A script has to be able to tell it from a text.
        fact, _, next_step = render.memory_missing(result, seen.now).partition(". ")
        raise NotFound(fact, next_step)
    return render.memory_page(result, seen.now, render.ALL)


def _saved(block: MemoryBlock, seen: Seen) -> str:
    return render.memory_saved(block, seen.now)


@memory.command(
    "set",
    epilog="""
    mcp-state memory set plan "1. read both formats"
    mcp-state memory set plan - < plan.md
    mcp-state memory set branch import-v2 --ttl 3d
    """,
)
@click.argument("key", shell_complete=complete.blocks)
@click.argument("value", type=TextOrStdin())
@_expected
@click.option("--ttl", default="", help="Let it expire after 90s, 20m, 4h or 3d.")
@_run
@store_options(*ON_PROJECT)
def set_(
    options: Options, key: str, value: str, expected_version: int | None, ttl: str, run: str
) -> None:
    """Create or replace a block.

    A VALUE of - is read from standard input.
    """
    answer(
        options,
        lambda state: state.memory.set(
            key, value, run=run, expected_version=expected_version, ttl=ttl
        ),
        _saved,
        writes=True,
    )


@memory.command(
    epilog="""
    mcp-state memory append plan " and the docs"
    """,
)
@click.argument("key", shell_complete=complete.blocks)
@click.argument("text", type=TextOrStdin())
@_expected
@click.option("--idempotency-key", default="", help="The same key adds the text once.")
@_run
@store_options(*ON_PROJECT)
def append(
    options: Options,
    key: str,
    text: str,
    expected_version: int | None,
    idempotency_key: str,
    run: str,
) -> None:
    """Add text as it is at the end of a block.

    A TEXT of - is read from standard input.
    """
    answer(
        options,
        lambda state: state.memory.append(
            key, text, run=run, expected_version=expected_version, idempotency_key=idempotency_key
        ),
        _saved,
        writes=True,
    )


@memory.command(
    epilog="""
    mcp-state memory delete plan
    """,
)
@click.argument("key", shell_complete=complete.blocks)
@_expected
@_run
@store_options(*ON_PROJECT)
def delete(options: Options, key: str, expected_version: int | None, run: str) -> None:
    """Delete a block; its versions can be restored."""
    answer(
        options,
        lambda state: state.memory.delete(key, run=run, expected_version=expected_version),
        lambda block, seen: render.memory_deleted(block),
        writes=True,
    )


@memory.command(
    epilog="""
    mcp-state memory restore plan
    mcp-state memory restore plan 1
    """,
)
@click.argument("key", shell_complete=complete.blocks)
@click.argument("version", type=COUNT, required=False)
@_run
@store_options(*ON_PROJECT)
def restore(options: Options, key: str, version: int | None, run: str) -> None:
    """Make an old version of a block current again.

    Without VERSION, it is the one before: the last text of a block that was deleted or expired.
    """

    async def make(state: State) -> MemoryBlock:
        before = version or await _version_before(state, key, run)
        block = await state.memory.restore(key, before, run=run)
        if version is None:
            print_note(f"version {before} is restored")
        return block

    answer(options, make, _saved, writes=True)


async def _version_before(state: State, key: str, run: str) -> int:
    """The newest version that holds a text, other than the current one."""
    now = await state.memory.get(key, run=run) if state.caller.project else None
    newest = 1 if now is None or not now.version else now.version - isinstance(now, MemoryBlock)
    for version in range(newest, 0, -1):
        with suppress(NotFound):  # a deletion, or purged
            await state.memory.get(key, run=run, version=version)
            return version
    if isinstance(now, MemoryBlock):
        raise NotFound(
            f"block {now.key!r} has no earlier version",
            f"{call('history', subject=f'memory:{now.key}')} lists what happened to it.",
        )
    return 1


@memory.command(
    epilog="""
    mcp-state memory lock plan --reason "agreed with the customer"
    """,
)
@click.argument("key", shell_complete=complete.blocks)
@click.option("--reason", required=True, help="What agents are told when they want to change it.")
@_run
@store_options(*ON_PROJECT)
def lock(options: Options, key: str, reason: str, run: str) -> None:
    """Keep agents from changing a block until it is unlocked."""
    if not reason.strip():
        raise BadArgument("--reason is empty", "Say why; agents are shown it.")
    answer(
        options,
        lambda state: state.memory.lock(key, reason, run=run),
        lambda block, seen: f"locked: {render.block_facts(block, seen.now)}",
        writes=True,
    )


@memory.command(
    epilog="""
    mcp-state memory unlock plan
    """,
)
@click.argument("key", shell_complete=complete.blocks)
@_run
@store_options(*ON_PROJECT)
def unlock(options: Options, key: str, run: str) -> None:
    """Let a locked block be changed again."""
    answer(
        options,
        lambda state: state.memory.lock(key, "", run=run),
        lambda block, seen: f"unlocked: {render.block_facts(block, seen.now)}",
        writes=True,
    )
