"""Blobs: large texts kept aside."""

from __future__ import annotations

from typing import Annotated

from mcp_state import render_blobs as render
from mcp_state.models import Blob, BlobPage
from mcp_state.store.blobs import PAGE
from mcp_state.tools.arguments import described
from mcp_state.tools.spec import Ctx, Spec


async def blob_put(
    ctx: Ctx,
    text: str,
    summary: str = "",
    ttl: Annotated[str, described("90s, 20m, 4h, 3d")] = "",
) -> Blob:
    """Keep a large text (log, diff; up to 10 MiB) aside; note the key it answers."""
    return await ctx.state.blobs.put(text, summary=summary, ttl=ttl)


async def blob_get(
    ctx: Ctx,
    key: str,
    offset: int = 0,
    limit: Annotated[int, described("characters; default 8000, at most 100000")] = PAGE,
) -> BlobPage:
    """Read a page of a kept text."""
    return await ctx.state.blobs.get(key, offset=offset, limit=limit)


TOOLS = (
    Spec(
        blob_put,
        title="Keep a large text",
        show=lambda blob, view: render.blob_saved(blob, view.now),
        writes=True,
        idempotent=True,
        search_hint="store a log, diff, report or long output aside",
    ),
    Spec(
        blob_get,
        title="Read a large text",
        show=lambda page, view: render.blob_page(page, view.now, view.arguments["limit"]),
        search_hint="read a stored log, diff or report, page by page",
    ),
)
