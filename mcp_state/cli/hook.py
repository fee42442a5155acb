"""`mcp-state hook`: what clients run at the start, before a compaction and at the end.

A hook never fails or delays a session. Whatever happens it exits with 0 (clients take 2 for a veto
and show anything else to the user), within two seconds, with a whole answer or with none.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, cast

import click

from mcp_state.calls import spoken
from mcp_state.cli.common import ON_HOOK, Options, store_options
from mcp_state.cli.groups import Documented
from mcp_state.errors import StateError

_EVENTS = ("session-start", "pre-compact", "stop", "subagent-start")
_SECONDS = 1.6
"""For the answer; the start of the interpreter takes the rest of two seconds."""
_SECONDS_FOR_INPUT = 0.5
_LONGEST_INPUT = 4 << 20


class _NeverFails(Documented):
    """A command that speaks to a model with the tools; its failures are one line on stderr."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; what is wrong with them is said."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as problem:
            _say(problem.format_message())
            ctx.exit()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; why it can't is said."""
        try:
            with spoken("tools"):
                return super().invoke(ctx)
        except Exception as problem:
            is_ours = isinstance(problem, StateError)
            _say(str(problem) if is_ours else f"{type(problem).__name__}: {problem}")


@click.command(
    cls=_NeverFails,
    epilog="""
    mcp-state hook session-start --agent codex < input.json
    """,
)
@click.argument("event", type=click.Choice(_EVENTS))
@store_options(*ON_HOOK)
def hook(options: Options, event: str) -> None:
    """Tell a session of Codex or Claude Code what it should know at this moment.

    The client runs it with its own JSON on standard input, and puts what it prints before the
    model: at the start the packet of `orient`, before a compaction what the summary must keep, at
    the end what was left open without a word (once), for a subagent what others are on. It always
    exits with 0, after two seconds at the latest.
    """
    from mcp_state import hooks

    named = cast(hooks.Event, event)
    with _limited(hooks.too_late(named)) as claim:
        told = hooks.told_by(_input())
        text = asyncio.run(hooks.answer(named, told, options.settings))
        claim()
    _write(1, text)


@contextmanager
def _limited(too_late: str) -> Generator[Any]:
    """End the process with `too_late` if the block takes too long, whatever it hangs in.

    Only one of the two speaks: the block calls what it is given before it does.
    """
    turn = threading.Lock()

    def end() -> None:
        if turn.acquire(blocking=False):
            _end(too_late)

    timer = threading.Timer(_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield turn.acquire
    finally:
        timer.cancel()


def _end(text: str) -> NoReturn:
    _write(1, text)
    _say("no answer in time")
    os._exit(0)


def _input() -> bytes:
    """What the client sends; a person at a terminal, and a pipe that stays silent, send nothing."""
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    data = bytearray()

    def read() -> None:
        with suppress(OSError):
            while chunk := os.read(0, 1 << 16):
                if len(data) < _LONGEST_INPUT:
                    data.extend(chunk)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(_SECONDS_FOR_INPUT)
    return bytes(data)


def _say(line: str) -> None:
    _write(2, f"mcp-state hook: {' '.join(line.split())}")


def _write(descriptor: int, text: str) -> None:
    """Write past Python's buffers, in one piece: what nobody reads any more is no failure."""
    if text:
        with suppress(OSError):
            os.write(descriptor, f"{text}\n".encode(errors="replace"))
