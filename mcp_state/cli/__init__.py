"""The command line: the only reader of arguments and environment.

Each command is imported when it is called, so that none pays for another; `mcp` is imported by
`serve` and `demo` alone.
"""

from __future__ import annotations

import importlib
import keyword
import logging
from collections.abc import Mapping
from typing import Any

import click

import mcp_state
from mcp_state.cli.groups import Suggesting
from mcp_state.cli.output import complain, silence
from mcp_state.errors import BadArgument, StateError
from mcp_state.store.refusals import refused

_COMMANDS: Mapping[str, str] = {
    "serve": "serve",
    "orient": "orient",
    "threads": "threads",
    "thread": "threads",
    "journal": "journal",
    "memory": "memory",
    "objective": "objective",
    "facts": "facts",
    "blob": "blobs",
    "runs": "runs",
    "due": "due",
    "handoff": "handoffs",
    "search": "lookup",
    "history": "lookup",
    "projects": "projects",
    "export": "transfer",
    "import": "transfer",
    "web": "web",
    "doctor": "upkeep",
    "backup": "upkeep",
    "restore": "upkeep",
    "purge": "purge",
    "demo": "demo",
}
REFUSED = 1
USAGE = 2
INTERRUPTED = 130
"""Exit codes; 0 is fine."""


class _Main(Suggesting):
    """The group whose commands are modules of this package, and the end of every failure."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, in the order of use."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"mcp_state.cli.{_COMMANDS[cmd_name]}")
        return getattr(module, f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; that nobody reads its output any more is no failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            silence()
            return 0

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run, and say in one line what went wrong: exit 1 refused, 2 wrong arguments."""
        try:
            code = super().main(*args, standalone_mode=False, **extra)
        except StateError as problem:
            complain(problem)
            code = USAGE if isinstance(problem, BadArgument) else REFUSED
        except click.UsageError as problem:
            complain(_as_ours(problem))
            code = USAGE
        except click.Abort:
            code = INTERRUPTED
        except OSError as problem:
            if problem.filename is not None or isinstance(problem, BrokenPipeError):
                raise
            silence()
            complain(refused("standard output", problem))
            code = REFUSED
        raise SystemExit(code)


def _as_ours(problem: click.UsageError) -> BadArgument:
    """What click refused, in our words."""
    fact = " ".join(problem.message.split()).rstrip(".")
    if problem.ctx is None:
        return BadArgument(fact)
    ctx, hint = problem.ctx, ""
    if isinstance(problem, click.NoSuchOption):
        if problem.possibilities:
            hint = f"Did you mean {' or '.join(problem.possibilities)}? "
        elif ctx.parent is None:
            hint = "Options stand after the command. "
        elif any(isinstance(p, click.Argument) for p in ctx.command.params):
            hint = "A text that begins with - stands after --. "
    elif isinstance(problem, click.BadParameter):
        fact = problem.format_message().rstrip(".")
    fact = f"{fact[:1].lower()}{fact[1:]}"
    return BadArgument(fact, f"{hint}`{ctx.command_path} --help` says what it takes.")


@click.group(
    "mcp-state",
    cls=_Main,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(mcp_state.__version__, prog_name="mcp-state")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Durable task state for coding agents.

    The first command of every wake-up is `orient`. Each command finds its project as the server
    does: by --project, else by the git repository of the directory it is run in.
    """
    # What the store logs is for servers: here each failure is said once, as an error.
    logging.getLogger("mcp_state").addHandler(logging.NullHandler())
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
