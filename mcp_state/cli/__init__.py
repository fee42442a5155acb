"""The command line: the only reader of arguments and environment.

Each command is imported when it is called, so that none pays for another; `mcp` is imported by
`serve` and `demo` alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

import mcp_state

_COMMANDS: Mapping[str, str] = {
    "serve": "serve",
}


class _Lazy(click.Group):
    """A group whose commands are modules of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, in the order of use."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"mcp_state.cli.{_COMMANDS[cmd_name]}")
        return getattr(module, cmd_name)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(mcp_state.__version__, prog_name="mcp-state")
def main() -> None:
    """Durable task state for coding agents."""
