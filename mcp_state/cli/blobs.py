"""`mcp-state blob`: large texts kept aside."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import BinaryIO

import click

from mcp_state import render_blobs as render
from mcp_state.cli.common import (
    COUNT,
    NUMBER,
    ON_PROJECT,
    Options,
    answer,
    known_projects,
    opened,
    run,
    store_options,
)
from mcp_state.cli.groups import Fallback
from mcp_state.cli.output import print_result, safe
from mcp_state.errors import BadArgument, OverLimit, ProjectUnknown
from mcp_state.models import BlobPage, Totals
from mcp_state.store.blobs import KEEP_THE_FILE, PAGE
from mcp_state.store.text import clean


@click.group(
    cls=Fallback,
    fallback="get",
    epilog="""
    make test 2>&1 | mcp-state blob put - --summary 'tests of today'
    mcp-state blob b-51a958f0
    """,
)
def blob() -> None:
    """Keep a large text aside, or read one; `blob KEY` reads it."""


@blob.command(
    epilog="""
    mcp-state blob b-51a958f0 | less
    mcp-state blob get b-51a958f0 --offset 100 --limit 50
    """,
)
@click.argument("key")
@click.option("--offset", type=NUMBER, help="Show a page that begins at this character, from 0.")
@click.option("--limit", type=COUNT, help=f"Show a page of so many characters. [default: {PAGE}]")
@store_options(*ON_PROJECT)
def get(options: Options, key: str, offset: int | None, limit: int | None) -> None:
    """Print a text exactly as it was put, and nothing else.

    With --offset or --limit it is a page of it, below a line that tells the next one.
    """
    if offset is None and limit is None:
        page, totals = run(_whole(options, key))
        if options.as_json:
            print_result(page, "", as_json=True, totals=totals)
        else:
            text = safe(page.text) if sys.stdout.isatty() else page.text
            click.echo(text.encode(), nl=False)
        return
    size = limit or PAGE
    answer(
        options,
        lambda state: state.blobs.get(key, offset=offset or 0, limit=size),
        lambda page, seen: render.blob_page(page, seen.now, size),
    )


async def _whole(options: Options, key: str) -> tuple[BlobPage, Totals]:
    async with opened(options) as state:
        if not state.caller.project:
            raise ProjectUnknown.among(await known_projects(state))
        return await state.blobs.whole(key), state.totals


@blob.command(
    epilog="""
    mcp-state blob put build.log --ttl 3d
    make test 2>&1 | mcp-state blob put - --summary 'tests of today'
    """,
)
@click.argument("file", type=click.File("rb"))
@click.option("--summary", default="", help="What it is; without it, its first line.")
@click.option("--ttl", default="", help="Let it expire after 90s, 20m, 4h or 3d.")
@store_options(*ON_PROJECT)
def put(options: Options, file: BinaryIO, summary: str, ttl: str) -> None:
    """Keep the text of a file, and print the key that it can be read by.

    A FILE of - is standard input.
    """
    text, replaced = clean(_text_in(file, options.settings.limits.blob))
    answer(
        replace(options, replaced=options.replaced + replaced),
        lambda state: state.blobs.put(text, summary=summary, ttl=ttl),
        lambda blob, seen: render.blob_saved(blob, seen.now),
        writes=True,
    )


def _text_in(file: BinaryIO, limit: int) -> str:
    name = getattr(file, "name", "standard input")
    data = file.read(limit + 1)
    if len(data) > limit:
        raise OverLimit(
            f"{name} holds more than {limit:,} bytes", "Keep it in parts; nothing was saved."
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        at = problem.start
        raise BadArgument(
            f"{name} is not text in UTF-8: byte {at} is 0x{data[at]:02x}", KEEP_THE_FILE
        ) from None
