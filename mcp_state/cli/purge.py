"""`mcp-state purge`: a text that should never have been stored, taken out for good."""

from __future__ import annotations

import sys

import click

from mcp_state import render
from mcp_state.cli.common import (
    ON_PROJECT,
    Options,
    TextOrStdin,
    known_projects,
    opened,
    run,
    store_options,
)
from mcp_state.cli.groups import Documented
from mcp_state.cli.output import print_note, print_result, print_text, progress
from mcp_state.errors import BadArgument, ProjectUnknown
from mcp_state.models import Purged, Totals

_CHOOSE = "Pass --project NAME, or --every-project."


@click.command(
    cls=Documented,
    epilog="""
    mcp-state purge --reason 'a key was pasted'
    mcp-state purge --dry-run < leaked.txt
    """,
)
@click.argument("misplaced", nargs=-1, metavar="")
@click.option("--reason", default="", help="Why; the event that records it says so.")
@click.option("--dry-run", is_flag=True, help="Only say where it stands; change nothing.")
@click.option("--every-project", is_flag=True, help="In all projects of the store.")
@click.option("--yes", is_flag=True, help="Do not ask before changing anything.")
@store_options(*ON_PROJECT)
@click.pass_context
def purge(
    ctx: click.Context,
    options: Options,
    misplaced: tuple[str, ...],
    reason: str,
    dry_run: bool,
    every_project: bool,
    yes: bool,
) -> None:
    """Remove a text everywhere it ever was, and prove it.

    The text is asked for without being shown, or read from standard input, where the line break at
    its end is no part of it: an argument would stay in the history of the shell. It is found in
    any case, in values, names, old versions and events alike; [purged] stands there afterwards, an
    event says who did it and why, and the bytes of the store's files, and of the copies beside it,
    are searched. Agents have no tool for this.

    This can't be undone. The exit code is 1 if a file still holds the text.
    """
    asks = not (dry_run or yes)
    _check(misplaced, reason, dry_run=dry_run, asks=asks)
    text = _text()

    async def work(*, only_look: bool) -> tuple[Purged, Totals]:
        async with opened(options) as state:
            if not every_project and not state.caller.project:
                known = await known_projects(state)
                raise ProjectUnknown(
                    "nothing was purged: it is not known which project is meant; known are "
                    f"{', '.join(known) or 'none'}"
                )
            with progress("searching" if only_look else "purging") as report:
                done = await state.purge(
                    text, reason, dry_run=only_look, every_project=every_project, progress=report
                )
            return done, state.totals

    try:
        if asks:
            _ask(run(work(only_look=True))[0])
        done, totals = run(work(only_look=dry_run))
    except ProjectUnknown as problem:
        raise ProjectUnknown(problem.fact, _CHOOSE) from None
    except KeyboardInterrupt:
        if not dry_run:
            print_note("interrupted; purge again: that finishes what was begun")
        raise
    print_result(
        done,
        render.purged(done),
        as_json=options.as_json,
        totals=None if every_project else totals,
    )
    if not (done.clean or dry_run):
        ctx.exit(1)


def _check(misplaced: tuple[str, ...], reason: str, *, dry_run: bool, asks: bool) -> None:
    """Refuse what can't be done, before the text is asked for."""
    if misplaced:
        raise BadArgument(
            "the text to purge is no argument: the history of the shell would keep it, and every "
            "process could read it",
            "Leave it out to be asked for it, or pipe it in; if it was the text, take that line "
            "out of the shell's history.",
        )
    if not dry_run and not reason.strip():
        raise BadArgument(
            "--reason is missing", "Say why, without the text itself; or look first: --dry-run."
        )
    if asks and not sys.stdin.isatty():
        raise BadArgument(
            "the text comes from standard input, where nobody can be asked",
            "Look first with --dry-run, then say --yes.",
        )


def _text() -> str:
    """The text to purge, from standard input or from the terminal without an echo."""
    if sys.stdin.isatty():
        given: str = click.prompt("Text to purge", hide_input=True, err=True)
        return given
    text = TextOrStdin().convert("-", None, None)
    return text.removesuffix("\n").removesuffix("\r")


def _ask(seen: Purged) -> None:
    """Go on only if a person says so, having seen where it stands."""
    print_text(render.purged(seen))
    click.confirm("Purge it? This can't be undone.", abort=True, err=True)
