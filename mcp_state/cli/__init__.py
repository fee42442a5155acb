"""The command line: the only reader of arguments and environment.

Each command is imported when it is called, so that none pays for another; `mcp` is imported by
`serve` and `demo` alone.
"""

from __future__ import annotations

import importlib
import keyword
import logging
import shutil
from collections.abc import Mapping
from typing import Any

import click

import mcp_state
from mcp_state.calls import spoken
from mcp_state.cli.groups import Suggesting, write_examples
from mcp_state.cli.output import complain, silence
from mcp_state.errors import BadArgument, StateError
from mcp_state.store.refusals import refused

_COMMANDS: Mapping[str, str] = {
    "serve": "serve",
    "install": "install",
    "uninstall": "install",
    "orient": "orient",
    "hook": "hook",
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
    "token": "tokens",
    "export": "transfer",
    "import": "imports",
    "web": "web",
    "doctor": "upkeep",
    "backup": "upkeep",
    "restore": "upkeep",
    "migrate-store": "migrate",
    "purge": "purge",
    "demo": "demo",
    "completion": "completion",
}
WIDEST_HELP = 78
"""Columns."""
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
        name = cmd_name.replace("-", "_")
        return getattr(module, f"{name}_" if keyword.iskeyword(name) else name)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """The context of a call, with how wide its help may be."""
        columns = min(shutil.get_terminal_size().columns, WIDEST_HELP)
        return super().make_context(*args, **extra, terminal_width=columns)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names; `help threads` is `threads --help`."""
        if args[0] == "help" and not ctx.resilient_parsing:
            args = [*args[1:], "--help"]
            if args == ["--help"]:
                self.parse_args(ctx, args)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what one wants to do."""
        from mcp_state.cli import manual

        manual.write_commands(ctx, self, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Say what holds for all commands."""
        from mcp_state.cli import manual

        write_examples(manual.EXAMPLES, formatter)
        manual.write_notes(formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; that nobody reads its output any more is no failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            silence()
            return 0

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run, and say in one line what went wrong: exit 1 refused, 2 wrong arguments."""
        # What the store logs is for servers: here each failure is said once, as an error.
        logging.getLogger("mcp_state").addHandler(logging.NullHandler())
        with spoken("shell"):
            raise SystemExit(self._exit_code(*args, **extra))

    def _exit_code(self, *args: Any, **extra: Any) -> int:
        try:
            return super().main(*args, standalone_mode=False, **extra)
        except StateError as problem:
            complain(problem)
            return USAGE if isinstance(problem, BadArgument) else REFUSED
        except click.UsageError as problem:
            complain(_as_ours(problem))
            return USAGE
        except click.Abort:
            return INTERRUPTED
        except OSError as problem:
            if problem.filename is not None or isinstance(problem, BrokenPipeError):
                raise
            silence()
            complain(refused("standard output", problem))
            return REFUSED


def _as_ours(problem: click.UsageError) -> BadArgument:
    """What click refused, in our words."""
    fact = " ".join(problem.message.split()).rstrip(".")
    if problem.ctx is None:
        return BadArgument(fact)
    ctx, hint = problem.ctx, ""
    if isinstance(problem, click.NoSuchOption):
        if ctx.parent is None:
            hint = "Options stand after the command. "
        elif near := _near(problem.option_name, ctx):
            hint = f"Did you mean {' or '.join(near)}? "
        elif any(isinstance(p, click.Argument) for p in ctx.command.params):
            hint = "A text that begins with - stands after --. "
    elif ctx.command.name == "threads" and "extra argument" in fact:
        hint = "`mcp-state thread NAME` shows one. "
    elif isinstance(problem, click.BadParameter):
        fact = " ".join(problem.format_message().split()).rstrip(".")
    fact = f"{fact[:1].lower()}{fact[1:]}"
    return BadArgument(fact, f"{hint}`{ctx.command_path} --help` says what it takes.")


def _near(typed: str, ctx: click.Context) -> list[str]:
    """The options that go on as was typed, else those that are written nearly so."""
    import difflib

    options = [o for p in ctx.command.get_params(ctx) for o in (*p.opts, *p.secondary_opts)]
    known = [option for option in options if option.startswith("--")]
    longer = [option for option in known if option.startswith(typed)]
    return longer or difflib.get_close_matches(typed, known, 2, 0.75)


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

    What has to survive when a context is compacted, a process dies or another agent takes over:
    what is open and who it waits for, what is known and how to check it, what was tried, and what
    happened. The first command of every wake-up is orient.

    Each command finds its project as the server does: by --project, else by the git repository of
    the directory it is run in. `mcp-state COMMAND --help` says all about a command.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
