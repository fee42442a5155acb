"""`mcp-state threads` and `mcp-state thread`: the queue."""

from __future__ import annotations

import json
from typing import Any, cast

import click

from mcp_state import render
from mcp_state.api import State
from mcp_state.calls import argument, call
from mcp_state.cli import complete
from mcp_state.cli.common import (
    COUNT,
    NUMBER,
    ON_PROJECT,
    Options,
    Seen,
    answer,
    run_option,
    store_options,
)
from mcp_state.cli.groups import Documented, Fallback
from mcp_state.cli.output import print_note
from mcp_state.errors import BadArgument
from mcp_state.models import Place, Status, Thread
from mcp_state.store.thread_rules import CLEARABLE, parse_status, place_of

_CLEARABLE = [field.replace("_", "-") for field in CLEARABLE]
_SENTENCE = 4
"""Words of a name from which on it is taken for one."""
_statuses = complete.words(*Status)
_token = click.option("--lease-token", type=NUMBER, help="The number that claim gave.")


@click.command(
    cls=Documented,
    epilog="""
    mcp-state threads
    mcp-state threads --status blocked
    mcp-state threads --due --json | jq -r '.threads[].name'
    """,
)
@click.option(
    "--status",
    help="Only active, watching, blocked, done or dropped ones.",
    shell_complete=_statuses,
)
@click.option("--due", is_flag=True, help="Only those that it is time to look at again.")
@click.option("--limit", type=COUNT, default=20, show_default=True, help="At most so many.")
@click.option("--cursor", default="", help="Go on where the page before ended.")
@store_options(*ON_PROJECT)
def threads(options: Options, status: str | None, due: bool, limit: int, cursor: str) -> None:
    """List the open threads in the order to work on them.

    What is due comes first, then what is active by priority, then the rest.
    """
    wanted = parse_status(status) if status is not None else None
    _list(options, wanted, due, limit, cursor)


def _list(
    options: Options, wanted: Status | None, due: bool = False, limit: int = 20, cursor: str = ""
) -> None:
    asked = f"{wanted or 'open'} threads{' that are due' if due else ''}"
    answer(
        options,
        lambda state: state.threads.list(status=wanted, due=due, limit=limit, cursor=cursor),
        lambda page, seen: render.thread_page(
            page, seen.now, seen.totals, asked, seen.session, render.ALL
        ),
    )


@click.group(
    cls=Fallback,
    fallback="get",
    epilog="""
    mcp-state thread import
    mcp-state thread set import --title "Fix the import" --next-action rerun
    mcp-state thread claim import --lease 2h
    """,
)
def thread() -> None:
    """Read or change one thread; `thread [NAME]` reads it, or lists them."""


@thread.command(
    epilog="""
    mcp-state thread import
    mcp-state thread get import --json
    """,
)
@click.argument("name", required=False, shell_complete=complete.threads)
@store_options(*ON_PROJECT)
def get(options: Options, name: str | None) -> None:
    """Show all of one thread; without NAME, list the open ones.

    Its fields and criteria, its history, and the last journal entries about it.
    """
    if name is None:
        _list(options, None)
        return
    answer(
        options,
        lambda state: state.threads.get(name),
        lambda detail, seen: render.thread_detail(detail, seen.now, seen.session, render.ALL),
    )


@thread.command(
    "set",
    epilog="""
    mcp-state thread set import --title "Fix the import" --priority 2
    mcp-state thread set import --criterion "both formats are read"
    mcp-state thread set sdk-bug --status blocked --waiting-on upstream
    mcp-state thread set docs --status done --evidence "make docs: exit 0"
    mcp-state thread set docs --status active --note "one page is missing"
    """,
)
@click.argument("name", shell_complete=complete.threads)
@click.option(
    "--status", help="active, watching, blocked, done or dropped.", shell_complete=_statuses
)
@click.option("--title", help="What it is.")
@click.option("--next-action", help="What to do next.")
@click.option("--waiting-on", help="Whom or what it waits for; blocked needs it.")
@click.option("--recheck-after", help="When to look again: 90s, 20m, 4h, 3d. [default: 24h]")
@click.option("--check", help="Command or link that tells its true state.")
@click.option("--evidence", help="What proves that it is done: test run, commit, link.")
@click.option("--note", help="Why; dropped and reopened need it.")
@click.option("--priority", type=int, help="1 first to 9 last.")
@click.option(
    "--depends-on",
    multiple=True,
    metavar="NAME",
    help="Must be done first. Repeatable.",
    shell_complete=complete.threads,
)
@click.option(
    "--relies-on",
    multiple=True,
    metavar="FACT",
    help="A fact it needs; replaces all. Repeatable.",
    shell_complete=complete.facts,
)
@click.option("--criterion", "criteria", multiple=True, help="One more that must hold. Repeatable.")
@click.option(
    "--place",
    "places",
    multiple=True,
    help="Where the work is: a path, a repository, or JSON with path_or_repo, role, note. "
    "Repeatable; replaces all.",
)
@run_option("The run that it is done for. [default: the open one that this session works on]")
@click.option(
    "--clear",
    multiple=True,
    metavar="FIELD",
    help=f"Empty {', '.join(_CLEARABLE)}.",
    shell_complete=complete.words(*_CLEARABLE),
)
@click.option("--expected-version", type=NUMBER, help="Refuse if it moved on; 0: must be new.")
@_token
@store_options(*ON_PROJECT)
def set_(
    options: Options,
    name: str,
    depends_on: tuple[str, ...],
    relies_on: tuple[str, ...],
    criteria: tuple[str, ...],
    places: tuple[str, ...],
    run: str,
    clear: tuple[str, ...],
    **given: Any,
) -> None:
    """Create a thread, or change what is given of it.

    It begins as active. Blocked needs --waiting-on, done needs --evidence and no fact that fell,
    dropped needs --note.
    """
    for option, value in given.items():
        if value == "":
            raise BadArgument(
                f"{argument(option)} is empty",
                "Leave it out to keep what is there, or empty it with "
                f"{argument('clear', option.replace('_', '-'))}.",
            )
    given |= {
        "depends_on": depends_on or None,
        "relies_on": relies_on or None,
        "criteria": criteria or None,
        "places": [_place(place) for place in places] or None,
        "clear": [field.replace("-", "_") for field in clear],
    }

    async def save(state: State) -> Thread:
        saved = await state.threads.set(name, run=run, **given)
        if saved.version == 1 and not saved.unchanged and given["title"] is None:
            _hint_at_short_name(saved.name)
        return saved

    answer(options, save, _saved, writes=True)


def _hint_at_short_name(name: str) -> None:
    if len(name.split()) < _SENTENCE:
        return
    print_note(
        "that is its name now, to be typed each time; a short name with the sentence as title is "
        f"easier: {call('thread_set', thread='NAME', title=name)}"
    )


def _saved(thread: Thread, seen: Seen) -> str:
    return render.thread_saved(thread, seen.now, seen.session)


def _place(text: str) -> Place:
    if not text.lstrip().startswith("{"):
        return place_of({"path_or_repo": text})
    try:
        return place_of(cast(dict[str, Any], json.loads(text)))
    except (ValueError, RecursionError):
        raise BadArgument(f"--place is {text[:80]!r}, which is broken JSON", "Mend it.") from None


@thread.command(
    epilog="""
    mcp-state thread claim
    mcp-state thread claim docs --lease 2h
    """,
)
@click.argument("name", required=False, default="", shell_complete=complete.threads)
@click.option("--lease", default="30m", show_default=True, help="For how long: 90s, 20m, 4h, 3d.")
@_token
@store_options(*ON_PROJECT)
def claim(options: Options, name: str, lease: str, lease_token: int | None) -> None:
    """Take a lease on a thread, so that nobody else works on it.

    Without NAME, it is the best active thread that nobody holds. With the token of a lease that
    runs, it is extended.
    """
    answer(
        options,
        lambda state: state.threads.claim(name, lease=lease, lease_token=lease_token),
        lambda claimed, seen: render.thread_claimed(claimed, seen.now, seen.session),
        writes=True,
    )


@thread.command(
    epilog="""
    mcp-state thread check import 1 --passes --evidence "pytest: exit 0"
    """,
)
@click.argument("name", shell_complete=complete.threads)
@click.argument("criterion")
@click.option("--passes/--fails", default=None, help="Whether it holds now; one is needed.")
@click.option("--evidence", default="", help="What shows it.")
@_token
@store_options(*ON_PROJECT)
def check(
    options: Options,
    name: str,
    criterion: str,
    passes: bool | None,
    evidence: str,
    lease_token: int | None,
) -> None:
    """Mark an acceptance criterion of a thread.

    CRITERION is its number or its text.
    """
    if passes is None:
        raise BadArgument("neither --passes nor --fails was given", "Give one of them.")
    answer(
        options,
        lambda state: state.threads.check(
            name, criterion, passes, evidence=evidence, lease_token=lease_token
        ),
        lambda checked, seen: render.checked(checked),
        writes=True,
    )


@thread.command(
    epilog="""
    mcp-state thread release docs
    mcp-state thread release import --force
    """,
)
@click.argument("name", shell_complete=complete.threads)
@_token
@click.option("--force", is_flag=True, help="Break a lease whose holder is gone. For people.")
@store_options(*ON_PROJECT)
def release(options: Options, name: str, lease_token: int | None, force: bool) -> None:
    """Give a lease back before it ends, or break it."""
    if force and lease_token is not None:
        raise BadArgument("--force and --lease-token exclude each other", "Give one of them.")
    answer(
        options,
        lambda state: state.threads.release(name, lease_token=lease_token, force=force),
        lambda released, seen: render.thread_released(released, seen.now, seen.session),
        writes=True,
    )
