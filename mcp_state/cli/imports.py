"""`mcp-state import`: what `export` wrote, or what other tools keep, brought into a project."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click

from mcp_state import render
from mcp_state.calls import call
from mcp_state.cli import complete
from mcp_state.cli.common import Options, opened, run, store_options
from mcp_state.cli.groups import Documented
from mcp_state.cli.output import print_note, print_result, progress
from mcp_state.errors import BadArgument
from mcp_state.foreign import recognising
from mcp_state.foreign.recognising import FORMATS, OWN
from mcp_state.foreign.taking import take
from mcp_state.models import Actor, Caller, Imported, Taken, Totals
from mcp_state.settings import is_address
from mcp_state.store.database import open_database

_MADE = "SELECT 1 FROM store"
_STREAM = Path("-")
_ON_STORE_AS = ("db", "agent", "json")
_LISTED = 20
_KINDS = {"thread": "threads", "block": "memory blocks", "entry": "journal entries"}


@click.command(
    "import",
    cls=Documented,
    epilog="""
    mcp-state import acme.jsonl
    mcp-state import acme.jsonl --project acme-copy
    mcp-state import notes --from notes --dry-run
    """,
)
@click.argument("path", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--from",
    "format",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    help=f"What PATH is: {', '.join(FORMATS)}. [default: recognised by what is in it]",
)
@click.option("--dry-run", is_flag=True, help="Say what would be imported, and write nothing.")
@click.option(
    "--project",
    "into",
    default="",
    help="Where it goes. [default: the project of an export; else that of the directory]",
    shell_complete=complete.projects,
)
@click.option("--allow-secrets", is_flag=True, help="Store what looks like a credential.")
@store_options(*_ON_STORE_AS)
def import_(
    options: Options, path: Path, format: str | None, dry_run: bool, into: str, allow_secrets: bool
) -> None:
    """Bring what PATH holds into a project; a PATH of - is an export on standard input.

    PATH is a file of `mcp-state export`, or what another tool keeps: the memory.jsonl of
    server-memory; a repository with .beads, or an export of bd; a repository or folder of
    Backlog.md; a repository with .taskmaster, or a tasks.json; as notes, a folder of Markdown
    files, each of which becomes a memory block; as a journal, Markdown with dates in its headings
    or in the names of its files, or JSON with times.

    Nothing is overwritten, and importing again brings only what is new. What is there already under
    a name is left alone and listed (of an export: kept apart as "NAME (from PROJECT)"). An export
    is imported as a whole or not at all. Of other tools each thing is; if that is interrupted, run
    it again. Others can't write to the store while a dry run is at work.
    """
    settings = dataclasses.replace(options.settings, allow_secrets=allow_secrets)
    with _scratch(settings.db, dry_run) as folder:
        if folder:
            settings = dataclasses.replace(settings, db=os.path.join(folder, "state.db"))
        options = dataclasses.replace(options, settings=settings)
        chosen = format or (OWN if path == _STREAM else recognising.recognise(os.fspath(path)))
        if chosen == OWN:
            _import_own(options, path, into, dry_run)
        elif path == _STREAM:
            raise BadArgument(
                f"{chosen} can't be read from standard input", "Name its file or folder."
            )
        else:
            _import_other(options, path, chosen, into, dry_run, told=format is not None)


def _scratch(store: str, dry_run: bool) -> AbstractContextManager[str]:
    """A folder for a store that a dry run can make, if there is none yet to try it on."""
    if dry_run and not _is_there(store):
        return tempfile.TemporaryDirectory(prefix="mcp-state-")
    return nullcontext("")


def _is_there(store: str) -> bool:
    if not is_address(store):
        return os.path.exists(store) or os.path.exists(f"{store}-queue")

    async def look() -> bool:
        nobody = Caller("", "", Actor("person"))
        database = open_database(store, read_only=True)
        try:
            return await database.read(nobody, lambda tx: tx.one(_MADE) is not None)
        finally:
            await database.aclose()

    return run(look())


def _import_own(options: Options, path: Path, into: str, dry_run: bool) -> None:
    async def read() -> tuple[Imported, Totals]:
        async with opened(options, named=into) as state:
            if not into.strip():
                state.caller.project = state.caller.anchor = ""
            with progress("importing") as report:
                imported = await state.transfer.import_file(
                    sys.stdin.buffer if path == _STREAM else path, dry_run=dry_run, progress=report
                )
            return imported, state.totals

    imported, totals = run(read())
    text = "\n".join(_imported(imported))
    print_result(imported, text, as_json=options.as_json, totals=totals)


def _imported(imported: Imported) -> Iterator[str]:
    events = render.plural(imported.events, "event")
    if imported.event:
        verb = "would import" if imported.dry_run else "imported"
        skipped = f", {imported.skipped:,} were here already" if imported.skipped else ""
        if imported.source == imported.project:
            yield f"{verb} {events} of {imported.project} from a file{skipped}"
        else:
            yield f"{verb} {events} from {imported.source} into {imported.project}{skipped}"
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


def _import_other(
    options: Options, path: Path, format: str, into: str, dry_run: bool, *, told: bool
) -> None:
    async def read() -> tuple[Taken, Totals]:
        async with opened(options, named=into) as state:
            source = await asyncio.to_thread(recognising.read, os.fspath(path), format)
            with progress("importing") as report:
                taken = await take(state, source, dry_run=dry_run, progress=report)
            return taken, state.totals

    taken, totals = run(read())
    if not told:
        print_note(f"{path} was taken for {format}; --from says otherwise")
    text = "\n".join(_taken(taken))
    print_result(taken, text, as_json=options.as_json, totals=totals)
    if taken.replaced:
        count = render.plural(taken.replaced, "character")
        print_note(f"{count} that cannot be stored became U+FFFD")


def _taken(taken: Taken) -> Iterator[str]:
    here = _counted(taken.here)
    if taken.taken or taken.changed:
        verb = "would import" if taken.dry_run else "imported"
        news = _counted(taken.taken) or "nothing new"
        yield f"{verb} from {taken.format} into {taken.project}: {news}"
        if taken.changed:
            yield f"went on there, and so here, as a new version: {_counted(taken.changed)}"
        if here:
            yield f"here already: {here}"
    else:
        yield f"nothing to import from {taken.format}" + (f"; here already: {here}" if here else "")
    left = taken.not_taken
    if not left:
        return
    yield f"not taken: {len(left):,}"
    for one in left[:_LISTED]:
        yield f"  {one.place}: {one.what}: {one.why}"
    if len(left) > _LISTED:
        yield f"  +{len(left) - _LISTED:,} more: --json lists all"
    if any("holds what looks like" in one.why for one in left):
        yield "  (--allow-secrets stores what looks like a credential)"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{counts[kind]:,} {words if counts[kind] != 1 else words[:-1].replace('ie', 'y')}"
        for kind, words in _KINDS.items()
        if counts.get(kind)
    )
