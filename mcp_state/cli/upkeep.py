"""`mcp-state doctor`, `backup` and `restore`: the file of the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click

from mcp_state import render
from mcp_state.cli.common import ON_STORE, Options, run, store_options
from mcp_state.cli.groups import Documented
from mcp_state.cli.output import print_result, progress
from mcp_state.errors import Conflict
from mcp_state.settings import is_address, shown_address
from mcp_state.store import backup as backups
from mcp_state.store.doctor import Report, examine


@click.command(
    cls=Documented,
    epilog="""
    mcp-state doctor
    mcp-state doctor --verbose
    """,
)
@click.option("-v", "--verbose", is_flag=True, help="Name each check, also those that passed.")
@store_options(*ON_STORE)
@click.pass_context
def doctor(ctx: click.Context, options: Options, verbose: bool) -> None:
    """Examine the store, and say what is wrong and the way out.

    Nothing is changed. The exit code is 1 if something is damaged.
    """
    with progress("examining"):
        report = run(examine(options.settings.db))
    print_result(report, "\n".join(_told(report, verbose)), as_json=options.as_json)
    if report.damaged:
        ctx.exit(1)


def _told(report: Report, verbose: bool) -> Iterator[str]:
    """The report in lines, what is wrong at the end."""
    yield f"store    {report.path}"
    if report.exists:
        wal = f" and {report.wal_size:,} in its -wal" if report.wal_size else ""
        yield f"size     {report.size:,} bytes{wal}, {render.plural(report.changes, 'change')}"
        mode = "" if report.server else f", journal {report.journal_mode or 'unknown'}"
        yield f"schema   {report.schema}{mode}"
        if not report.server:
            yield f"files    {report.permissions or 'unknown permissions'}"
    elif report.server:
        yield "schema   none yet: the first write makes it"
    yield f"server   {report.server}" if report.server else f"disk     {report.journal_reason}"
    if report.writer is not None:
        command = render.one_line(report.writer.command) or "unknown"
        yield f"writing  process {report.writer.pid}: {command}"
    for totals in report.projects:
        yield f"project  {render.scope(totals)}"
    sound = [finding for finding in report.findings if finding.severity == "ok"]
    if sound:
        names = f": {', '.join(finding.what for finding in sound)}" if verbose else ""
        yield f"ok       {render.plural(len(sound), 'check')}{names}"
    for finding in report.problems:
        yield f"{finding.severity:8} {render.one_line(finding.what, 1000)}"
        if finding.way_out:
            yield f"         {finding.way_out}"
    if not report.problems:
        yield "Nothing is wrong."


@click.command(
    cls=Documented,
    epilog="""
    mcp-state backup state.bak --overwrite
    """,
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@store_options(*ON_STORE)
def backup(options: Options, file: Path, overwrite: bool) -> None:
    """Copy the store to FILE while others go on using it."""
    _refuse_address(options.settings.db)
    with progress("copying") as report:
        made = run(
            backups.back_up(options.settings.db, str(file), overwrite=overwrite, progress=report)
        )
    changes = render.plural(made.changes, "change")
    text = f"saved {changes} in {made.path} ({made.size:,} bytes)"
    print_result(made, text, as_json=options.as_json)


@click.command(
    cls=Documented,
    epilog="""
    mcp-state restore state.bak
    """,
)
@click.argument("file", type=click.Path(path_type=Path))
@store_options(*ON_STORE)
def restore(options: Options, file: Path) -> None:
    """Put the backup FILE in the place of the store.

    What was there is kept beside it; servers that run go on with the backup.
    """
    _refuse_address(options.settings.db)
    with progress("restoring") as report:
        done = run(backups.restore(options.settings.db, os.path.abspath(file), progress=report))
    changes = render.plural(done.changes, "change")
    lines = [f"restored {changes} from {done.backup} to {done.path}"]
    if done.lost:
        lost = render.plural(done.lost, "change")
        lines.append(f"not in it, since made after the backup: {lost}")
    lines += [f"kept what was there: {moved}" for moved in done.moved]
    print_result(done, "\n".join(lines), as_json=options.as_json)


def _refuse_address(store: str) -> None:
    """A store on a server is no file that could be copied, or put in place."""
    if is_address(store):
        raise Conflict(
            f"{shown_address(store)} is a store on PostgreSQL, which is no file",
            "Nothing was done. `mcp-state migrate-store ADDRESS FILE` copies it into a file; "
            "`PGOPTIONS='-c mcp_state.project=*' pg_dump --enable-row-security ADDRESS` dumps it "
            "for psql to bring back.",
        )
