"""`mcp-state export`: a whole project as one file that people can read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from mcp_state import render
from mcp_state.cli import complete
from mcp_state.cli.common import ON_PROJECT, Options, opened, run, store_options
from mcp_state.cli.groups import Documented
from mcp_state.cli.output import print_note, print_result, progress, silence
from mcp_state.errors import ProjectUnknown, StateError
from mcp_state.models import Exported

_STREAM = Path("-")
_CHOOSE = "Pass --project NAME, or run it in a git repository."


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
        exported = run(write())
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
