"""Recipes: documents whose sessions are played, see docs/README.md for how they are written.

A document is cut into steps (a call of an agent, a command of a person, something that happens),
and into the lines between them, which are left as they are. A step knows the answer that the
document gives; `told` writes the answer that there was, in the same shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

from mcp_state.tools import ALL_TOOLS

CUT = "…"
_FENCE = re.compile(r"```(\S*)(?: file=(\S+))?")
_CALL = re.compile(r"([a-z][\w-]*)(#\d+)?(?:@(\w+))?> (\w+)(?: (\{.*))?")
_COMMAND = re.compile(r"([a-z]\w*)?\$ (.+)")
_HAPPENS = re.compile(r"--- (.+)")
_LOOP = re.compile(r"for (\w+) in (\d+) \.\. (\d+)(?: by (\d+))?:")
_INSTALL = re.compile(r"mcp-state install (\S+)((?: --\S+(?: [^-\s]\S*)?)*)")
_SCOPE = re.compile(r"\[.+ · event [\d,]+\]")
_TOOLS = {spec.name for spec in ALL_TOOLS}
HERE = "laptop"


class Unplayable(Exception):
    """A document that can't be played; says which line of it, and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")


@dataclass(frozen=True, slots=True)
class Call:
    """An agent calls a tool. `session` is its name, with a number if there are several."""

    agent: str
    session: str
    machine: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """A person types something."""

    machine: str
    script: str


@dataclass(frozen=True, slots=True)
class Install:
    """A person sets an agent up: how its sessions are served from now on."""

    machine: str
    client: str
    words: tuple[str, ...]

    @property
    def served(self) -> dict[str, str]:
        """The options of `mcp-state serve`, as the client's configuration has them."""
        pairs = pairwise((*self.words, "--"))
        given = {word: value for word, value in pairs if word[:2] == "--" != value[:2]}
        return {"--agent": self.client} | given


@dataclass(frozen=True, slots=True)
class Happening:
    """Something happens: time passes, a session ends or is killed."""

    words: str


@dataclass(frozen=True, slots=True)
class Loop:
    """Steps that are done for each of some numbers, their answers not shown."""

    name: str
    values: tuple[str, ...]
    body: tuple[str, ...]

    def steps(self, value: str, line: int) -> Iterator[Call | Command]:
        """The steps for one of them."""
        for text in self.body:
            done = read_step(text.replace(f"{{{self.name}}}", value), line)
            if not isinstance(done, Call | Command):
                raise Unplayable(line, f"a loop holds calls and commands only, not {text!r}")
            yield done


@dataclass(frozen=True, slots=True)
class File:
    """A file that the reader makes, as it stands in the document."""

    name: str
    text: str


Done = Call | Command | Install | Happening | Loop | File


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done, where it stands, and what the document says that it answered."""

    line: int
    source: tuple[str, ...]
    done: Done
    answer: tuple[str, ...] = ()
    gap: int = 0

    def told(self, answer: Sequence[str]) -> list[str]:
        """The lines of the document with this answer, shown as the one before was.

        A line `…` stands for the lines in the middle; the scope, the last line of most answers, is
        shown where it was shown.
        """
        lines = [line.rstrip() for line in answer]
        shown = self.answer
        if lines and _SCOPE.fullmatch(lines[-1]) and not (shown and _SCOPE.fullmatch(shown[-1])):
            lines = lines[:-1]
        if CUT in shown:
            head = shown.index(CUT)
            tail = len(shown) - head - 1
            if len(lines) > head + tail:
                lines = [*lines[:head], CUT, *lines[len(lines) - tail :]]
        return [*self.source, *lines, *[""] * self.gap]


@dataclass(slots=True)
class Document:
    """The parts of a document in their order: its own lines, and the steps between them."""

    parts: list[str | Step] = field(default_factory=list[str | Step])
    advice: list[str] = field(default_factory=list[str])
    """What is to be put into an agent's instructions."""

    @property
    def steps(self) -> list[Step]:
        """What is done, in order."""
        return [part for part in self.parts if isinstance(part, Step)]


def parse(text: str) -> Document:
    """Read a document.

    Raises:
        Unplayable: it holds something that would not be played or checked, or nothing to play.
    """
    document, lines = Document(), text.split("\n")
    at = 0
    while at < len(lines):
        document.parts.append(lines[at])
        fence = _FENCE.fullmatch(lines[at])
        if fence is None and re.match(r"\s*```|    |\t", lines[at]):
            raise Unplayable(at + 1, f"unknown block {lines[at]!r}")
        at += 1
        if fence is None:
            continue
        if "```" not in lines[at:]:
            raise Unplayable(at, "the block is not closed")
        end = lines.index("```", at)
        body = lines[at:end]
        if fence[2]:
            content = "\n".join([*body, ""])
            document.parts.append(Step(at, tuple(body), File(fence[2], content)))
        elif fence[1] == "console":
            document.parts += _session(body, at + 1)
        elif fence[1] == "markdown":
            document.advice.append("\n".join(body))
            document.parts += body
        else:
            raise Unplayable(at, f"blocks are console, markdown, or have a file=, not {fence[1]!r}")
        document.parts.append("```")
        at = end + 1
    if not any(isinstance(step.done, Call) for step in document.steps):
        raise Unplayable(1, "nothing in it is played")
    return document


def _session(lines: Sequence[str], first: int) -> Iterator[Step]:
    """The steps of a block."""
    at = 0
    while at < len(lines):
        start, text = at, lines[at]
        at += 1
        while (done := _complete(text, first + start)) is None:
            if at == len(lines):
                raise Unplayable(first + start, f"it does not end: {text!r}")
            text += "\n" + lines[at]
            at += 1
        source = tuple(lines[start:at])
        answered = at
        while at < len(lines) and not _begins_step(lines[at]):
            at += 1
        answer = list(lines[answered:at])
        gap = 0
        while answer and not answer[-1]:
            answer.pop()
            gap += 1
        if answer and not isinstance(done, Call | Command):
            raise Unplayable(first + answered, f"{answer[0]!r} follows what answers nothing")
        if answer.count(CUT) > 1 or answer[:1] == [CUT]:
            raise Unplayable(
                first + answered, f"an answer is cut once, below its first line: {CUT}"
            )
        yield Step(first + start, source, done, tuple(answer), gap)


def _begins_step(line: str) -> bool:
    return any(shape.fullmatch(line) for shape in (_CALL, _COMMAND, _HAPPENS))


def _complete(text: str, line: int) -> Done | None:
    """What a text says, None if it goes on in the next line."""
    if text.startswith("--- for "):
        if not text.endswith("\n---"):
            return None
        return _loop(text.split("\n")[:-1], line)
    if _CALL.match(text) and "{" in text:
        try:
            json.loads(text[text.index("{") :])
        except ValueError:
            return None
    if _COMMAND.match(text) and text.endswith("\\"):
        return None
    return read_step(text, line)


def _loop(lines: Sequence[str], line: int) -> Loop:
    found = _LOOP.fullmatch(lines[0].removeprefix("--- "))
    if found is None:
        raise Unplayable(line, "a loop is written `--- for name in 001 .. 300:`, its end `---`")
    numbers = range(int(found[2]), int(found[3]) + 1, int(found[4] or 1))
    values = tuple(str(number).zfill(len(found[2])) for number in numbers)
    body: list[str] = []
    for text in lines[1:]:  # a line that is indented more goes on with the one before it
        if text.startswith("     ") and body:
            body[-1] += "\n" + text.strip()
        else:
            body.append(text.strip())
    return Loop(found[1], values, tuple(body))


def read_step(text: str, line: int) -> Done:
    """One step.

    Raises:
        Unplayable: it is none.
    """
    if found := re.compile(_CALL.pattern, re.DOTALL).fullmatch(text):
        agent, number, machine, tool, arguments = found.groups()
        if tool not in _TOOLS:
            raise Unplayable(line, f"there is no tool {tool}")
        given = cast(dict[str, Any], json.loads(arguments or "{}"))
        return Call(agent, agent + (number or ""), machine or HERE, tool, given)
    if found := re.compile(_COMMAND.pattern, re.DOTALL).fullmatch(text):
        machine, script = found[1] or HERE, found[2]
        if install := _INSTALL.fullmatch(script):
            return Install(machine, install[1], tuple(install[2].split()))
        return Command(machine, script)
    if found := _HAPPENS.fullmatch(text):
        return Happening(found[1])
    raise Unplayable(line, f"neither a call, a command nor something that happens: {text!r}")
