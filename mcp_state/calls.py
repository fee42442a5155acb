"""What to do next, in the words of where it is read: a call of a tool, or a command in a shell.

Stores, renderers and errors are the same everywhere, so they name each call by its tool and leave
the wording to this module. The tools' words are the default; `spoken` chooses for what runs inside.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from types import EllipsisType
from typing import Literal

from mcp_state.record import record

Surface = Literal["tools", "shell"]
Value = str | int | bool | Sequence[str] | EllipsisType
"""Of an argument; `...` is one that the reader fills in."""

_surface: ContextVar[Surface] = ContextVar("surface", default="tools")


@contextmanager
def spoken(surface: Surface) -> Generator[None]:
    """Word what is said inside for this surface."""
    token = _surface.set(surface)
    try:
        yield
    finally:
        _surface.reset(token)


def either(tools: str, shell: str) -> str:
    """The wording for whoever reads it now."""
    return shell if _surface.get() == "shell" else tools


@record
class Command:
    """What a person runs in the place of a tool.

    `takes` are the arguments that stand without an option, in their order; `options` the names of
    those options that are not called like the argument; `flags` what yes and no are called.
    """

    words: str
    takes: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    flags: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def option(self, argument: str) -> str:
        """How an argument is written."""
        return f"--{self.options.get(argument, argument).replace('_', '-')}"


_OF_RUN = {"run_id": "run"}
COMMANDS: Mapping[str, Command] = {
    "orient": Command("orient"),
    "search": Command("search", ("query",), {"kinds": "kind"} | _OF_RUN),
    "history": Command("history", ("subject",)),
    "memory_get": Command("memory get", ("key",), _OF_RUN),
    "memory_set": Command("memory set", ("key", "value"), _OF_RUN),
    "memory_append": Command("memory append", ("key", "text"), _OF_RUN),
    "memory_delete": Command("memory delete", ("key",), _OF_RUN),
    "memory_restore": Command("memory restore", ("key", "version"), _OF_RUN),
    "thread_list": Command("threads"),
    "thread_get": Command("thread get", ("thread",)),
    "thread_set": Command(
        "thread set", ("thread",), {"criteria": "criterion", "places": "place"} | _OF_RUN
    ),
    "thread_claim": Command("thread claim", ("thread",)),
    "thread_release": Command("thread release", ("thread",)),
    "thread_check": Command(
        "thread check", ("thread", "criterion"), flags={"passes": ("passes", "fails")}
    ),
    "journal_append": Command("journal append", ("text",), _OF_RUN),
    "journal_tail": Command("journal tail", (), _OF_RUN),
    "run_begin": Command(
        "runs begin",
        ("run_id", "goal"),
        {"max_attempts": "attempts", "max_minutes": "minutes", "max_tokens": "tokens"},
    ),
    "run_checkpoint": Command("runs checkpoint", ("run_id", "state")),
    "run_resume": Command("runs resume", ("run_id",)),
    "run_finish": Command("runs finish", ("run_id", "status")),
    "run_list": Command("runs list"),
    "step_begin": Command("runs step begin", ("run_id", "step")),
    "step_end": Command(
        "runs step end", ("run_id", "step", "result"), flags={"ok": ("ok", "failed")}
    ),
    "objective_set": Command("objective set", ("objective",)),
    "fact_record": Command("facts record", ("fact", "statement")),
    "fact_verify": Command("facts verify", ("fact",), flags={"holds": ("holds", "fails")}),
    "fact_list": Command("facts list"),
    "fact_trace": Command("facts show", ("fact",)),
    "blob_put": Command("blob put", ("text",)),
    "blob_get": Command("blob get", ("key",)),
    "handoff_create": Command("handoff create", ("note",)),
    "handoff_accept": Command("handoff accept", ("key",)),
}
"""The command for each tool that has one; `state_op` needs none, since a shell has all of them."""


def tool(name: str) -> str:
    """A tool by its name, or its command."""
    return either(name, f"`mcp-state {COMMANDS[name].words}`")


def call(name: str, *names: str, **arguments: Value) -> str:
    """A call that the reader can make as it stands, or with `names` filled in."""
    return either(
        f"{name}({', '.join([*names, *(_assigned(a, v) for a, v in arguments.items())])})",
        f"`{_typed(COMMANDS[name], dict.fromkeys(names, ...) | arguments)}`",
    )


def argument(name: str, value: Value | None = None, *, of: str = "") -> str:
    """An argument, of a tool where its option is not called like it; with its value if given."""
    command = COMMANDS[of] if of else Command("")
    if value is not None:
        return either(_assigned(name, value), " ".join(_with_option(command, name, value)))
    return either(name, name.upper() if name in command.takes else command.option(name))


def asked(name: str, *, of: str = "") -> str:
    """An argument that is wanted: its name, or the option as it is typed with a text."""
    return either(name, argument(name, "…", of=of))


def meant(given: str, known: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """The question to somebody who typed a word that is almost one of these.

    `others` are words from elsewhere for some of them.
    """
    import difflib

    typed = given.strip().lower()
    near = difflib.get_close_matches(typed, list(known), 1, 0.7)
    word = (others or {}).get(typed) or (near[0] if near else "")
    return either("", f"Did you mean {word}? ") if word else ""


def quoted(text: str) -> str:
    """A name as an argument of a call that an answer proposes."""
    return '"' + " ".join(text.splitlines()).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _assigned(name: str, value: Value) -> str:
    return f"{name}={_said(value)}"


def _said(value: Value) -> str:
    """A value as it stands in a call of a tool."""
    if isinstance(value, EllipsisType):
        return "…"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quoted(value)
    return str(value) if isinstance(value, int) else f"[{', '.join(quoted(v) for v in value)}]"


def _typed(command: Command, arguments: Mapping[str, Value]) -> str:
    """A command line; what a name that begins with a dash stands behind is no option."""
    words = [_placed(name, arguments[name]) for name in command.takes if name in arguments]
    options: list[str] = []
    for name, value in arguments.items():
        if name not in command.takes:
            options += _with_option(command, name, value)
    if any(word.startswith("-") for word in words):
        words, options = [*options, "--", *words], []
    return " ".join(["mcp-state", command.words, *words, *options])


def _placed(name: str, value: Value) -> str:
    return name.upper() if isinstance(value, EllipsisType) else _word(value)


def _with_option(command: Command, name: str, value: Value) -> list[str]:
    """An argument as options: a flag, or a name and a value as often as there are values."""
    if name in command.flags:
        yes, no = command.flags[name]
        return [f"--{yes}/--{no}" if value is ... else f"--{yes if value else no}"]
    option = command.option(name)
    if value is True:
        return [option]
    if isinstance(value, EllipsisType):
        return [option, "…"]
    values = [value] if isinstance(value, str | int) else value
    return [word for one in values for word in (option, _word(one))]


def _word(value: Value) -> str:
    """One word of a command line."""
    if value == "…":
        return '"…"'
    return shlex.quote(" ".join(str(value).splitlines()))
