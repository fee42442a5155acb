"""Groups of commands that help with a word they do not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from mcp_state.errors import BadArgument


class Suggesting(click.Group):
    """A group that answers an unknown command with the nearest one it has."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words after the name of the group.

        Raises:
            BadArgument: there are none, and it does nothing by itself.
        """
        if not args and not self.invoke_without_command:
            names = ", ".join(self.list_commands(ctx))
            raise BadArgument(f"{ctx.command_path} needs a command", f"It has {names}.")
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names.

        Raises:
            BadArgument: there is none.
        """
        word = args[0]
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            import difflib

            names = self.list_commands(ctx)
            near = difflib.get_close_matches(word.lower(), names, 2)
            hint = f"Did you mean {' or '.join(near)}? " if near else ""
            raise BadArgument(
                f"{ctx.command_path} has no command {word!r}",
                f"{hint}It has {', '.join(names)}.",
            )
        return super().resolve_command(ctx, args)


class Fallback(Suggesting):
    """A group that runs one of its commands where none is named: `memory plan` reads a block."""

    def __init__(self, *args: Any, fallback: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fallback = fallback

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the fallback before what names no command."""
        if self._means_fallback(ctx, args):
            args = [self._fallback, *args]
        return super().parse_args(ctx, args)

    def _means_fallback(self, ctx: click.Context, args: Sequence[str]) -> bool:
        if not args:
            return True
        if args[0] in ctx.help_option_names or args[0] in self.commands:
            return False
        parameters = self.commands[self._fallback].params
        takes_a_word = any(isinstance(p, click.Argument) for p in parameters)
        is_alone = len(args) == 1 or args[1].startswith("-")
        return args[0].startswith("-") or (takes_a_word and is_alone)
