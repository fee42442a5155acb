"""Commands that explain themselves, and groups that help with a word they do not know."""

from __future__ import annotations

import inspect
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from mcp_state.errors import BadArgument

_SHORT = 80
"""Characters of a text that a proposed command repeats."""


def write_examples(text: str, formatter: click.HelpFormatter) -> None:
    """Lines to be copied, each in one piece where the terminal is wide enough."""
    room = formatter.width - 2
    with formatter.section("Examples"):
        for line in inspect.cleandoc(text).splitlines():
            for part in textwrap.wrap(line, room, subsequent_indent="    "):
                formatter.write(f"  {part}\n")


class Documented(click.Command):
    """A command whose epilog is examples."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the examples after the options."""
        if self.epilog:
            write_examples(self.epilog, formatter)


class Suggesting(click.Group):
    """A group that answers an unknown command with those that may be meant; epilog as above."""

    command_class = Documented

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words after the name of the group.

        Raises:
            BadArgument: there are none, and it does nothing by itself.
        """
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
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
            if ctx.resilient_parsing:
                return None, None, []
            raise BadArgument(
                f"{ctx.command_path} has no command {word!r}", self._next_step(ctx, *args)
            )
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the examples after the commands."""
        if self.epilog:
            write_examples(self.epilog, formatter)

    def _next_step(self, ctx: click.Context, word: str, *rest: str) -> str:
        name = shlex.quote(rest[0]) if rest and not rest[0].startswith("-") else "NAME"
        meant = [f"`mcp-state {one.replace('NAME', name)}`" for one in _meant(self, ctx, word)]
        if meant:
            return f"Did you mean {' or '.join(meant)}? `{ctx.command_path} --help` lists them all."
        has = f"It has {', '.join(self.list_commands(ctx))}."
        if self.name == "journal":
            text = shlex.quote(word) if len(word) <= _SHORT and word.isprintable() else '"…"'
            return f"{has} `{ctx.command_path} append {text}` writes an entry."
        if self.get_command(ctx, "show") is None:
            return has
        return f"{has} `{ctx.command_path} show {shlex.quote(word)}` shows what has that name."


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

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands, and what the one that need not be named takes first."""
        items = super().shell_complete(ctx, incomplete)
        for parameter in self.commands[self._fallback].params:
            if isinstance(parameter, click.Argument) and not incomplete.startswith("-"):
                return [*items, *parameter.shell_complete(ctx, incomplete)]
        return items

    def _means_fallback(self, ctx: click.Context, args: Sequence[str]) -> bool:
        if not args:
            return not ctx.resilient_parsing
        if args[0] in ctx.help_option_names or args[0] in self.commands:
            return False
        parameters = self.commands[self._fallback].params
        takes_a_word = any(isinstance(p, click.Argument) for p in parameters)
        is_alone = len(args) == 1 or args[1].startswith("-")
        if takes_a_word and not args[0].startswith("-") and _is_meant(ctx, args[0]):
            return False
        return args[0].startswith("-") or (takes_a_word and is_alone)


def _typed(ctx: click.Context, word: str) -> str:
    """What was typed, without the name of the program."""
    within = ctx.command_path.removeprefix(ctx.find_root().command_path)
    return f"{within} {word.lower()}".strip()


def _is_meant(ctx: click.Context, word: str) -> bool:
    from mcp_state.cli.meant import MEANT

    return _typed(ctx, word) in MEANT


def _meant(group: click.Group, ctx: click.Context, word: str) -> Sequence[str]:
    """The commands that somebody may have meant: known words, near ones, then those elsewhere."""
    import difflib

    from mcp_state.cli.meant import MEANT

    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    everything = list(_paths(root.command, root))
    known = [one for one in MEANT.get(_typed(ctx, word), ()) if _begins(one) in everything]
    if known or " " in word:
        return known
    names = group.list_commands(ctx)
    if near := difflib.get_close_matches(word.lower(), names, 2):
        return [_typed(ctx, name) for name in near]
    if typed := difflib.get_close_matches(_typed(ctx, word), MEANT, 1, 0.85):
        return [one for one in MEANT[typed[0]] if _begins(one) in everything]
    elsewhere = {path.rpartition(" ")[2] for path in everything}
    near = difflib.get_close_matches(word.lower(), elsewhere, 2, 0.8)
    return [path for path in everything if path.rpartition(" ")[2] in near][:3]


def _begins(line: str) -> str:
    """The command that begins a line."""
    return line.partition(" NAME")[0]


def _paths(group: click.Group, ctx: click.Context, within: str = "") -> Iterator[str]:
    """All commands and groups, as they are typed."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        yield within + name
        if isinstance(command, click.Group):
            yield from _paths(command, ctx, f"{within}{name} ")
