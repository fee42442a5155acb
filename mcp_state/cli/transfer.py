"""`mcp-state export` and `import`: a whole project as one file that people can read."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from mcp_state import render
from mcp_state.calls import call
from mcp_state.cli import complete
from mcp_state.cli.common import ON_PROJECT, Options, opened, store_options
from mcp_state.cli.groups import Documented
from mcp_state.cli.output import print_note, print_result, progress, silence
from mcp_state.errors import ProjectUnknown, StateError
from mcp_state.models import Exported, Imported, Totals

_STREAM = Path("-")
_CHOOSE = "Pass --project NAME, or run it in a git repository."
_ON_STORE_AS = ("db", "agent", "json")


@click.command(
    cls=Documented,
    epilog="""
    mcp-state export acme.jsonl
    mcp-state export - | jq -r .kind
    mcp-state export --handoff h-7d2kq9xw4m3p work.jsonl
    """,
)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--handoff",
    default="",
    metavar="KEY",
    help="Note that this handoff goes with it.",
    shell_complete=complete.handoffs,
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@store_options(*ON_PROJECT)
def export(options: Options, file: Path, handoff: str, overwrite: bool) -> None:
    """Write all of the project to FILE, as lines of JSON; a FILE of - is standard output.

    `mcp-state import` brings it into another store, or back into this one.
    """

    async def write() -> Exported:
        async with opened(options) as state:
            with progress("exporting") as report:
                return await state.transfer.export(
                    sys.stdout.buffer if file == _STREAM else file,
                    handoff=handoff,
                    overwrite=overwrite,
                    progress=report,
                )

    try:
        exported = asyncio.run(write())
    except ProjectUnknown as problem:
        raise ProjectUnknown(problem.fact, _CHOOSE) from None
    except StateError as problem:
        if file == _STREAM and isinstance(problem.__cause__, OSError):
            silence()  # what is still in the buffer cannot be written either
        raise
    if file == _STREAM:
        print_note("\n".join(_exported(exported)))
    else:
        print_result(exported, "\n".join(_exported(exported)), as_json=options.as_json)


def _exported(exported: Exported) -> Iterator[str]:
    events = render.plural(exported.events, "event")
    place = f" to {exported.path}" if exported.path else ""
    yield (
        f"exported {exported.project}, {events}{place} ({exported.lines:,} lines, "
        f"{exported.bytes:,} bytes)"
    )
    if exported.handoff:
        yield (
            "carry the file to the other machine; there: `mcp-state import FILE`, then "
            f"`mcp-state handoff accept {exported.handoff}`"
        )


@click.command(
    "import",
    cls=Documented,
    epilog="""
    mcp-state import acme.jsonl
    mcp-state import acme.jsonl --project acme-copy
    """,
)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--project",
    "into",
    default="",
    help="Where it goes. [default: the project of the file]",
    shell_complete=complete.projects,
)
@click.option("--allow-secrets", is_flag=True, help="Store what looks like a credential.")
@store_options(*_ON_STORE_AS)
def import_(options: Options, file: Path, into: str, allow_secrets: bool) -> None:
    """Bring what FILE holds into a project; a FILE of - is read from standard input.

    Nothing is overwritten: what is there already is left alone, what went on in the file goes on
    here, and what parted under the same name is kept apart as "NAME (from PROJECT)". The whole file
    is checked before anything is written.
    """
    settings = dataclasses.replace(options.settings, allow_secrets=allow_secrets)
    options = dataclasses.replace(options, settings=settings)

    async def read() -> tuple[Imported, Totals]:
        async with opened(options, named=into) as state:
            if not into.strip():
                state.caller.project = state.caller.anchor = ""
            with progress("importing") as report:
                imported = await state.transfer.import_file(
                    sys.stdin.buffer if file == _STREAM else file, progress=report
                )
            return imported, state.totals

    imported, totals = asyncio.run(read())
    text = "\n".join(_imported(imported))
    print_result(imported, text, as_json=options.as_json, totals=totals)


def _imported(imported: Imported) -> Iterator[str]:
    events = render.plural(imported.events, "event")
    if imported.event:
        skipped = f", {imported.skipped:,} were here already" if imported.skipped else ""
        yield f"imported {events} from {imported.source} into {imported.project}{skipped}"
    else:
        everything = "the rest" if imported.stayed else f"all of {imported.source}"
        yield f"nothing to import: {everything} is in {imported.project} already"
    for thing, shown in imported.kept_apart.items():
        kind, _, name = thing.partition(":")
        yield f"kept apart, since the name is taken: {kind} {name} -> {shown}"
    yield from (f"not imported: {told}" for told in imported.stayed)
    if imported.handoff:
        yield (
            f"to take the work over: {call('handoff_accept', key=imported.handoff)}; an agent sees "
            "it in its orient"
        )
