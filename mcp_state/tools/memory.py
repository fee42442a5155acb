"""Working memory: named texts that the next session reads."""

from __future__ import annotations

from typing import Annotated, Any

from mcp_state import render
from mcp_state.errors import BadArgument
from mcp_state.models import MemoryBlock, MemoryPage, MissingBlock
from mcp_state.tools.arguments import described
from mcp_state.tools.spec import Ctx, Spec, View

Once = Annotated[str, described("the same key writes once")]
Expected = Annotated[int | None, described("refuse if it moved on; 0: must be new")]


async def memory_get(
    ctx: Ctx, key: str = "", run_id: str = "", version: int | None = None
) -> MemoryBlock | MissingBlock | MemoryPage:
    """Read a block of working memory (of a run with run_id); without key, all of them."""
    if not key:
        if version is not None:
            raise BadArgument("version came without a key", "Name the block.")
        return await ctx.state.memory.blocks(run=run_id)
    return await ctx.state.memory.get(key, run=run_id, version=version)


async def memory_set(
    ctx: Ctx,
    key: str,
    value: str,
    run_id: str = "",
    expected_version: Expected = None,
    ttl: Annotated[str, described("90s, 20m, 4h, 3d")] = "",
) -> MemoryBlock:
    """Create or replace a block (up to 4,096 characters) that later sessions will read.

    Fails with `version_conflict` or `over_limit` and changes nothing; old versions stay readable.
    """
    return await ctx.state.memory.set(
        key, value, run=run_id, expected_version=expected_version, ttl=ttl
    )


async def memory_append(
    ctx: Ctx,
    key: str,
    text: Annotated[str, described("added as is at the end")],
    run_id: str = "",
    expected_version: int | None = None,
    idempotency_key: Once = "",
) -> MemoryBlock:
    """Add to the end of a block, so that parallel writers all survive; memory_set replaces."""
    return await ctx.state.memory.append(
        key,
        text,
        run=run_id,
        expected_version=expected_version,
        idempotency_key=idempotency_key,
    )


async def memory_delete(
    ctx: Ctx, key: str, run_id: str = "", expected_version: int | None = None
) -> MemoryBlock:
    """Delete a block; memory_restore brings it back."""
    return await ctx.state.memory.delete(key, run=run_id, expected_version=expected_version)


async def memory_restore(ctx: Ctx, key: str, version: int, run_id: str = "") -> MemoryBlock:
    """Make an old version of a block current again, as a new version."""
    return await ctx.state.memory.restore(key, version, run=run_id)


def _shown(result: Any, view: View) -> str:
    if isinstance(result, MemoryBlock):
        return render.memory_block(result, view.now)
    if isinstance(result, MissingBlock):
        return render.memory_missing(result, view.now)
    return render.memory_page(result, view.now)


def _saved(result: MemoryBlock, view: View) -> str:
    return render.memory_saved(result, view.now)


TOOLS = (
    Spec(
        memory_get,
        title="Read working memory",
        show=_shown,
        search_hint="recall notes, plan, decisions of earlier sessions",
    ),
    Spec(
        memory_set,
        title="Write working memory",
        show=_saved,
        writes=True,
        idempotent=True,
        search_hint="remember, save a note, plan or decision",
    ),
    Spec(
        memory_append,
        title="Append to working memory",
        show=_saved,
        writes=True,
        search_hint="add to notes, log progress, list of findings",
    ),
    Spec(
        memory_delete,
        title="Delete a memory block",
        show=lambda block, view: render.memory_deleted(block),
        writes=True,
        idempotent=True,
        search_hint="forget, remove a note",
    ),
    Spec(
        memory_restore,
        title="Restore a version of a memory block",
        show=_saved,
        writes=True,
        search_hint="undo, earlier version, roll back a note",
    ),
)
