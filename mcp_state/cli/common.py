"""What the commands share: the options that say which store and project, output and exit codes."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

import click

from mcp_state.api import State
from mcp_state.errors import BadArgument, StateError
from mcp_state.models import Actor, Caller
from mcp_state.scope import Locator, local_path
from mcp_state.settings import Settings, store_path
from mcp_state.store.database import Database
from mcp_state.times import Clock

T = TypeVar("T")

REFUSED = 1
USAGE = 2
"""Exit codes; 0 is fine."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line itself, with the environment behind them."""

    settings: Settings

    def caller(self) -> Caller:
        """For which project, found as the server finds it, and as whom."""
        settings = self.settings
        locator = Locator(settings.home)
        actor = Actor(settings.agent or "person", "mcp-state", settings.session)
        place = None
        for directory in (settings.client_directory, settings.directory):
            if directory and place is None:
                place = locator.repository(directory)
        caller = Caller("", "", actor, worktree=place.worktree if place else "")
        if settings.project:
            directory = local_path(settings.project)
            place = locator.named(directory) if directory else None
            caller.project, caller.how = settings.project, "--project"
        if place is not None:
            caller.project, caller.how = place.project, place.how
            caller.anchor, caller.worktree = place.anchor, place.worktree
        return caller


def store_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --db, --project and --agent; it gets `options: Options` for them."""

    @click.option("--db", default="", help="Path of the store, absolute. [env: MCP_STATE_DB]")
    @click.option("--project", default="", help="Name or directory. [env: MCP_STATE_PROJECT]")
    @click.option("--agent", default="", help="Name to write as. [env: MCP_STATE_AGENT]")
    @functools.wraps(command)
    def with_options(*args: Any, db: str, project: str, agent: str, **kwargs: Any) -> None:
        try:
            options = read_options(db, project, agent)
        except StateError as problem:
            fail(problem)
        command(options, *args, **kwargs)

    return with_options


def read_options(
    db: str, project: str, agent: str, environment: Mapping[str, str] | None = None
) -> Options:
    """The one place where the environment is read.

    Raises:
        BadArgument: the path of the store is relative.
    """
    env = os.environ if environment is None else environment
    try:
        directory = os.getcwd()
    except FileNotFoundError:
        directory = ""
    source = "--db" if db else "MCP_STATE_DB"
    settings = Settings(
        db=store_path(db or env.get("MCP_STATE_DB", ""), directory, source),
        project=project or env.get("MCP_STATE_PROJECT", ""),
        agent=agent or env.get("MCP_STATE_AGENT", ""),
        directory=directory,
        client_directory=env.get("CLAUDE_PROJECT_DIR", ""),
        session=env.get("CLAUDE_CODE_SESSION_ID", ""),
        home=os.path.expanduser("~"),
    )
    return Options(settings)


def fail(problem: StateError) -> NoReturn:
    """Say what was refused, on stderr, and end: 2 for a wrong argument, 1 for all else."""
    click.echo(f"error: {problem}", err=True)
    sys.exit(USAGE if isinstance(problem, BadArgument) else REFUSED)


def run(options: Options, work: Callable[[State], Awaitable[T]], *, read_only: bool = False) -> T:
    """Do something with the store of the command line, and close it."""

    async def within() -> T:
        settings = replace(options.settings, read_only=read_only)
        database = Database(settings.db, clock=Clock(), limits=settings.limits, read_only=read_only)
        try:
            return await work(State(database, options.caller()))
        finally:
            await database.aclose()

    try:
        return asyncio.run(within())
    except StateError as problem:
        fail(problem)


def print_json(value: Any) -> None:
    """One JSON value, for programs."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
