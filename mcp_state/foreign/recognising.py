"""Which format a path holds: told by what is in it, if that leaves no doubt."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from typing import cast

from mcp_state.errors import BadArgument, NotFound
from mcp_state.foreign import backlog, beads, journal, notes, server_memory, taskmaster
from mcp_state.foreign.files import Json, Unreadable, decode, read_json, read_text
from mcp_state.foreign.records import Source

OWN = "own"
READERS: Mapping[str, Callable[[str], Source]] = {
    server_memory.NAME: server_memory.read,
    beads.NAME: beads.read,
    backlog.NAME: backlog.read,
    taskmaster.NAME: taskmaster.read,
    notes.NAME: notes.read,
    journal.NAME: journal.read,
}
FORMATS = (OWN, *READERS)
_NAME_ONE = "Name a file that `mcp-state export` made, or what another tool keeps."
_MARKDOWN = (".md", ".markdown")


def recognise(path: str) -> str:
    """The name of the format; what is none of the others is taken for our own.

    Raises:
        BadArgument: it may be one of several.
        NotFound: there is nothing at the path.
    """
    if not os.path.lexists(path):
        raise NotFound(f"no file at {path}", _NAME_ONE)
    found = _folder(path) if os.path.isdir(path) else _file(path)
    if not found and os.path.isdir(path):
        raise BadArgument(
            f"{path} is a folder with nothing in it that is known here",
            f"Say what it is with --from {' | '.join(FORMATS[1:])}, or name the file itself.",
        )
    if found == [notes.NAME] and os.path.exists(os.path.join(path, ".git")):
        raise BadArgument(
            f"{path} is a git repository that holds nothing known here but Markdown",
            "Its files would become memory, which every session reads; if that is meant: "
            f"--from {notes.NAME}.",
        )
    if len(found) > 1:
        raise BadArgument(
            f"{path} may be {' or '.join(found)}",
            f"Say which: {', '.join(f'--from {name}' for name in found)}.",
        )
    return found[0] if found else OWN


def read(path: str, format: str) -> Source:
    """All that a path holds, read as this format.

    Raises:
        BadArgument: it can't be read, or is something else.
        NotFound: there is nothing at the path.
    """
    if not os.path.lexists(path):
        raise NotFound(f"no file at {path}", _NAME_ONE)
    source = READERS[format](os.path.abspath(path))
    if not (source.tasks or source.blocks or source.entries or source.left):
        raise BadArgument(f"{path} holds nothing that {format} would have", "Nothing was imported.")
    return source


def _folder(path: str) -> list[str]:
    found = [name for name, is_in in _IN_FOLDERS.items() if is_in(path)]
    if found:
        return found
    names = [
        os.path.splitext(name)[0]
        for _, folders, files in os.walk(path)
        for name in (*files, *_without_hidden(folders))
        if name.lower().endswith(_MARKDOWN)
    ]
    if names and all(journal.date_in(name) for name in names):
        return [journal.NAME, notes.NAME]
    return [notes.NAME] if names else []


def _without_hidden(folders: list[str]) -> list[str]:
    """Keep `os.walk` out of hidden folders; adds no names."""
    folders[:] = [name for name in folders if not name.startswith(".")]
    return []


def _file(path: str) -> list[str]:
    name = path.lower()
    if not os.path.isfile(path):  # a pipe is read once, by whoever it is for
        return []
    try:
        if name.endswith(_MARKDOWN):
            dated = journal.suits_markdown(read_text(path))
            return [journal.NAME, notes.NAME] if dated else [notes.NAME]
        if name.endswith(".json"):
            return _of_value(read_json(path))
        return _of_line(_first_line(path))
    except (Unreadable, OSError):
        return []


def _of_value(whole: object) -> list[str]:
    if taskmaster.suits(whole):
        return [taskmaster.NAME]
    first = next(iter(journal.items_of(whole)), None)
    return _of_line(cast(Json, first)) if isinstance(first, dict) else []


def _of_line(first: Json | None) -> list[str]:
    if first is None:
        return []
    if server_memory.suits(first):
        return [server_memory.NAME]
    if beads.suits(first):
        return [beads.NAME]
    return [journal.NAME] if journal.suits_json(first) else []


def _first_line(path: str) -> Json | None:
    """The first line of a file, if it is a JSON object."""
    with open(path, "rb") as file:
        for line in itertools.islice(file, 20):
            if line.strip():
                break
        else:
            return None
    try:
        value = decode(line.decode("utf-8-sig"))
    except ValueError:
        return None
    return cast(Json, value) if isinstance(value, dict) else None


_IN_FOLDERS: Mapping[str, Callable[[str], bool]] = {
    beads.NAME: beads.is_in,
    backlog.NAME: backlog.is_in,
    taskmaster.NAME: taskmaster.is_in,
    server_memory.NAME: server_memory.is_in,
}
