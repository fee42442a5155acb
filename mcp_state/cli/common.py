"""What the commands share: the options that say which store and project, and how they answer."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from mcp_state import render
from mcp_state.cli import complete
from mcp_state.cli.output import print_note, print_result, unread
from mcp_state.errors import BadArgument, OverLimit
from mcp_state.models import Actor, Totals
from mcp_state.record import record
from mcp_state.settings import Settings, store_path
from mcp_state.store.database import open_database
from mcp_state.store.text import clean, fold, near_names
from mcp_state.who import Resolver

if TYPE_CHECKING:
    from mcp_state.api import State
    from mcp_state.store.transaction import Reading

T = TypeVar("T")
Command = Callable[..., None]


class Number(click.ParamType[int]):
    """A whole number within a range, which only an error tells."""

    name = "number"

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number.

        Raises:
            click.BadParameter: it is none, or out of range.
        """
        if isinstance(value, int):
            return value
        if re.fullmatch(r"[0-9]{1,17}", value) and self._least <= int(value) <= self._most:
            return int(value)
        self.fail(f"{value!r} is no number from {self._least} to {self._most:,}", param, ctx)


NUMBER = Number(0, 1 << 53)
COUNT = Number(1, 1_000_000)

ON_STORE = ("db", "json")
ON_PROJECT = ("db", "project", "agent", "json")
ON_HOOK = ("db", "project", "agent")
_OPTIONS: Mapping[str, Callable[[Command], Command]] = {
    "db": click.option("--db", default="", help="Path of the store, absolute. [env: MCP_STATE_DB]"),
    "project": click.option(
        "--project",
        default="",
        help="Name or directory. [env: MCP_STATE_PROJECT]",
        shell_complete=complete.projects,
    ),
    "agent": click.option("--agent", default="", help="Name to act as. [env: MCP_STATE_AGENT]"),
    "json": click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for programs."),
}
_LONGEST_INPUT = 4 << 20


@record
class Options:
    """The shared options of a command, with the environment behind them.

    `replaced` is how many characters of its arguments cannot be stored.
    """

    settings: Settings
    as_json: bool = False
    replaced: int = 0


@record
class Seen:
    """What a renderer knows besides the result: the time, the counts, the caller's session."""

    now: datetime
    totals: Totals
    session: str


def store_options(*names: str) -> Callable[[Command], Command]:
    """Give a command these of the shared options; it gets `options: Options` for them.

    What cannot be stored in its other arguments is replaced, and counted.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(
            db: str = "", project: str = "", agent: str = "", as_json: bool = False, **given: Any
        ) -> None:
            replaced = 0
            for name, value in given.items():
                given[name], count = _cleaned(value)
                replaced += count
            command(Options(read_settings(db, project, agent), as_json, replaced), **given)

        return functools.reduce(lambda made, name: _OPTIONS[name](made), names[::-1], with_options)

    return decorate


def run_option(help: str) -> Callable[[Command], Command]:
    """Give a command `--run RUN`; an empty one, perhaps an unset variable, is refused."""

    def named(ctx: click.Context, parameter: click.Parameter, run: str | None) -> str:
        if run is not None and not run.strip():
            raise BadArgument("--run is empty", "Name a run, or leave it out.")
        return run or ""

    return click.option(
        "--run", metavar="RUN", help=help, callback=named, shell_complete=complete.runs
    )


def _cleaned(value: Any) -> tuple[Any, int]:
    if isinstance(value, tuple):
        items = [_cleaned(item) for item in cast(tuple[Any, ...], value)]
        return tuple(item for item, _ in items), sum(count for _, count in items)
    return clean(value) if isinstance(value, str) else (value, 0)


def read_settings(db: str, project: str, agent: str) -> Settings:
    """The one place where the environment is read.

    Raises:
        BadArgument: the path of the store is relative.
    """
    env = os.environ
    try:
        directory = os.getcwd()
    except FileNotFoundError:
        directory = ""
    source = "--db" if db else "MCP_STATE_DB"
    return Settings(
        db=store_path(db or env.get("MCP_STATE_DB", ""), directory, source),
        project=not_relative(project or env.get("MCP_STATE_PROJECT", ""), directory),
        agent=agent or env.get("MCP_STATE_AGENT", ""),
        directory=directory,
        client_directory=env.get("CLAUDE_PROJECT_DIR", ""),
        session=env.get("CLAUDE_CODE_SESSION_ID", ""),
        home=os.path.expanduser("~"),
    )


def not_relative(project: str, directory: str) -> str:
    """`.` and `../other` are directories; any other word is a name."""
    if directory and re.match(r"\.\.?(/|$)", project):
        return os.path.normpath(os.path.join(directory, project))
    return project


class TextOrStdin(click.ParamType[str]):
    """A text; `-` reads it from standard input."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text; bytes that are no UTF-8 become what cannot be stored, and is counted.

        Raises:
            OverLimit: far more than any text that is stored.
        """
        if value != "-":
            return value
        data = sys.stdin.buffer.read(_LONGEST_INPUT + 1)
        if len(data) > _LONGEST_INPUT:
            raise OverLimit(
                f"standard input holds more than {_LONGEST_INPUT:,} bytes",
                "Nothing was changed. Give a shorter text.",
            )
        return data.decode("utf-8", "surrogateescape")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do it in an event loop of its own, and return its result.

    `asyncio.run` ends by putting the interpreter's signal handler back, which formats the one that
    was there, the finished task and the whole of its result as text, and drops that: 14 ms for
    what `orient` found. So the task keeps its result to itself.
    """
    kept: list[T] = []

    async def within() -> None:
        kept.append(await work)

    asyncio.run(within())
    return kept[0]


def answer(
    options: Options,
    work: Callable[[State], Awaitable[T]],
    show: Callable[[T, Seen], str],
    *,
    writes: bool = False,
    named: str = "",
    scoped: bool = True,
) -> T | Mapping[str, Sequence[str]]:
    """Do something with the store, and print what it returned.

    Args:
        options: which store, and how to answer.
        work: what to do.
        show: the text of what it returns.
        writes: whether it writes, so that it needs a project.
        named: the project that the command itself names.
        scoped: whether the answer belongs to a project.

    Returns:
        What `work` returned, or the known projects for a read that belongs to none.
    """

    async def within() -> tuple[T | Mapping[str, Sequence[str]], str, Totals]:
        async with opened(options, named=named) as state:
            if scoped and not writes and not state.caller.project:
                known = await known_projects(state)
                text = render.unknown_project(known)
                return {"known": known}, text, state.totals
            others = await _others(state) if scoped else ""
            if others and not writes:
                print_note(f"there is no project {state.caller.project!r} yet; known are {others}")
            result = await work(state)
            if others and writes:
                print_note(f"new project {state.caller.project!r} (known: {others})")
            seen = Seen(state.database.clock.now(), state.totals, state.caller.actor.session)
            return result, show(result, seen), seen.totals

    result, text, totals = run(within())
    with unread():
        print_result(result, text, as_json=options.as_json, totals=totals if scoped else None)
    if options.replaced:
        count = render.plural(options.replaced, "character")
        print_note(f"{count} that cannot be stored became U+FFFD")
    return result


async def _others(state: State) -> str:
    """The projects there are, if the name that was given is none of them: it may be a slip."""
    if state.caller.how != "--project":
        return ""

    def look(tx: Reading) -> list[str]:
        return [] if tx.project else tx.known_projects()

    known = await state.database.read(state.caller, look)
    if not known:
        return ""
    given = state.caller.project
    longer = [name for name in known if fold(name).startswith(fold(given))]
    near = dict.fromkeys([*longer, *near_names(given, known), *known])
    return ", ".join(list(near)[:5])


async def known_projects(state: State) -> list[str]:
    """The names to choose from where it is not known which project is meant."""
    return await state.database.read(state.caller, lambda tx: tx.known_projects())


@asynccontextmanager
async def opened(
    options: Options, *, named: str = "", read_only: bool = False
) -> AsyncGenerator[State]:
    """The state of the project that the command is for."""
    from mcp_state.api import State

    settings = options.settings
    actor = Actor(settings.agent or "person", "mcp-state", settings.session)
    database = open_database(
        settings.db,
        limits=settings.limits,
        read_only=read_only,
        allow_secrets=settings.allow_secrets,
    )
    try:
        yield State(database, Resolver(settings).caller(actor, named=named))
    finally:
        await database.aclose()
