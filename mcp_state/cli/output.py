"""How the command line prints: JSON, plain text in a pipe, colour and tables on a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import click

from mcp_state import render
from mcp_state.errors import StateError
from mcp_state.models import Packet, Totals
from mcp_state.plain import plain
from mcp_state.store.text import clean, in_order

_NOT_PRINTED = re.compile(
    "[\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
)  # legal in JSON, but terminals obey some
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def print_result(result: Any, text: str, *, as_json: bool, totals: Totals | None = None) -> None:
    """Print a result: as JSON, as a table on a terminal, else as its text.

    `totals` follow what belongs to a project.
    """
    if as_json:
        print_json(result if totals is None else {**plain(result), "scope": totals})
        return
    scope = "" if totals is None or isinstance(result, Packet) else render.scope(totals)
    if sys.stdout.isatty():
        from mcp_state.cli import terminal

        terminal.show(result, text, scope)
    else:
        print_text(f"{text}\n{scope}" if scope else text)


def safe(text: str) -> str:
    """A text without the characters that move the cursor, change colours or the order."""
    return in_order(_CONTROL.sub("\ufffd", text.replace("\r\n", "\n")))


def print_text(text: str) -> None:
    """Print a text: to a pipe as it is."""
    if sys.stdout.isatty():
        from mcp_state.cli import terminal

        terminal.show_text(text)
    else:
        click.echo(clean(text)[0])


def print_json(value: Any, indent: int | None = 2) -> None:
    """One JSON value."""
    text = json.dumps(plain(value), ensure_ascii=False, indent=indent)
    text = _NOT_PRINTED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    click.echo(clean(text)[0])


def print_note(text: str) -> None:
    """Something to know that is no part of the answer."""
    _print_beside(f"note: {safe(text)}")


def complain(problem: StateError) -> None:
    """Say in one line of stderr what was refused."""
    _print_beside(safe(clean(f"error: {problem}")[0]))


def _print_beside(text: str) -> None:
    if sys.stderr.isatty():
        from mcp_state.cli import terminal

        terminal.show_text(text, err=True)
    else:
        click.echo(text, err=True)


@contextmanager
def unread() -> Generator[None]:
    """Print, whether or not anybody still reads it: the exit code has something to say too."""
    try:
        yield
    except BrokenPipeError:
        silence()


def silence() -> None:
    """Send what is still to be printed nowhere: nobody reads it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def progress(title: str) -> AbstractContextManager[Callable[[int, int], None] | None]:
    """A bar on the terminal's stderr, to be told what is done of how much; else nothing."""
    if not sys.stderr.isatty():
        return nullcontext()
    from mcp_state.cli import terminal

    return terminal.progress(title)
