"""Reading files of other programs: what is in them is taken, or named with its place.

Only plain files are read, none longer than it may be, and no link is followed out of a folder.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

from mcp_state.errors import BadArgument
from mcp_state.foreign.records import Source

LONGEST_FILE = 256 << 20
LONGEST_LINE = 64 << 20
LONGEST_TEXT = 10 << 20
"""Bytes; a text is kept whole, so it can have no more than a blob."""

Json = Mapping[str, Any]


class Unreadable(Exception):
    """A file cannot be taken; says why."""


def read_bytes(path: str, limit: int = LONGEST_FILE) -> bytes:
    """All of a plain file.

    Raises:
        Unreadable: it is something else, too long, or cannot be read.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        raise Unreadable(f"can't be read: {os.strerror(problem.errno or 0)}") from problem
    with open(number, "rb") as file:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("is no plain file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Unreadable(f"holds {max(found.st_size, len(data)):,} bytes, more than {limit:,}")
    return data


def read_text(path: str, limit: int = LONGEST_FILE) -> str:
    """All of a text file; a byte order mark is no part of it.

    Raises:
        Unreadable: it is no plain file, too long, or not in UTF-8.
    """
    data = read_bytes(path, limit)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise Unreadable(f"is not in UTF-8: line {line}, byte {problem.start}") from None


def read_json(path: str) -> object:
    """The one value that a file of JSON holds.

    Raises:
        Unreadable: it can't be read, or is no JSON: with the line.
    """
    text = read_text(path)
    try:
        return decode(text)
    except json.JSONDecodeError as problem:
        raise Unreadable(f"is no JSON: {problem.msg}, line {problem.lineno}") from None
    except ValueError as problem:
        raise Unreadable(f"is no JSON: {problem}") from None


def json_lines(source: Source, path: str) -> Iterator[tuple[str, Json]]:
    """The objects of a file of JSON lines, each with its place; what is none is left, and noted.

    A file that is one list holds its items.

    Raises:
        BadArgument: the file can't be read.
    """
    name = os.path.basename(path)
    data = opened(path)
    if data[:64].lstrip().startswith(b"["):
        yield from _listed(source, path)
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        place = f"{name}:{number}"
        if not line.strip():
            continue
        if len(line) > LONGEST_LINE:
            source.leave(place, "a line", f"it has {len(line):,} bytes")
            continue
        try:
            value = decode(line.decode("utf-8-sig"))
        except UnicodeDecodeError:
            source.leave(place, "a line", "it is not in UTF-8")
        except ValueError as problem:
            source.leave(place, "a line", f"it is no JSON: {getattr(problem, 'msg', problem)}")
        else:
            if isinstance(value, dict):
                yield place, cast(Json, value)
            else:
                source.leave(place, "a line", "it is no JSON object")


def _listed(source: Source, path: str) -> Iterator[tuple[str, Json]]:
    try:
        whole = read_json(path)
    except Unreadable as problem:
        raise refused(path, problem) from None
    for number, item in enumerate(cast(list[object], whole), 1):
        place = f"{os.path.basename(path)}: item {number}"
        if isinstance(item, dict):
            yield place, cast(Json, item)
        else:
            source.leave(place, "an item", "it is no JSON object")


def decode(text: str) -> object:
    """A JSON value.

    Raises:
        ValueError: it is none, or nested too deeply.
    """
    try:
        return cast(object, json.loads(text, parse_constant=_no_number))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError:
        raise
    except ValueError as problem:
        too_long = "set_int_max_str_digits" in str(problem)
        raise ValueError("a number has too many digits" if too_long else str(problem)) from None


def opened(path: str) -> bytes:
    """The bytes of the file that was named.

    Raises:
        BadArgument: it can't be read.
    """
    try:
        return read_bytes(path)
    except Unreadable as problem:
        raise refused(path, problem) from None


def refused(path: str, problem: Unreadable) -> BadArgument:
    """The whole of what was named cannot be taken."""
    return BadArgument(f"{path} {problem}", "Nothing was imported.")


def walk(source: Source, folder: str, ending: str = ".md") -> Iterator[tuple[str, str]]:
    """The plain files of a folder that end so, sorted, with their path inside it.

    Hidden files and folders are passed by; all else that is not taken is noted.
    """
    if not os.path.isdir(folder):
        return
    if os.path.islink(folder) and folder != source.home:
        source.leave(os.path.basename(folder), "a link", "links are not followed")
        return

    def unread(problem: OSError) -> None:
        where = os.path.relpath(problem.filename or folder, folder)
        source.leave(where, "a folder", f"it can't be read: {os.strerror(problem.errno or 0)}")

    for directory, folders, files in os.walk(folder, onerror=unread):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in [*folders, *sorted(files)]:
            path = os.path.join(directory, name)
            inside = os.path.relpath(path, folder)
            if name.startswith("."):
                continue
            if os.path.islink(path):
                source.leave(inside, "a link", "links are not followed")
            elif os.path.isdir(path):
                continue
            elif not name.lower().endswith(ending):
                source.leave(inside, "a file", f"its name does not end in {ending}")
            else:
                yield inside, path


def file_in(folder: str, names: Sequence[str]) -> str:
    """The first of these that is a file inside the folder, no link leading to it; else nothing."""
    real = os.path.realpath(folder)
    places = (os.path.join(folder, name) for name in names if _is_inside(real, name))
    return next((place for place in places if os.path.isfile(place)), "")


def file_of(path: str, names: Sequence[str]) -> str:
    """What was named, or if that is a folder the file in it.

    Raises:
        BadArgument: it has none of these.
    """
    found = file_in(path, names) if os.path.isdir(path) else path
    if not found:
        raise BadArgument(
            f"{path} has no {' or '.join(names)} in it; links are not followed",
            "Nothing was imported. Name the file itself.",
        )
    return found


def _is_inside(folder: str, name: str) -> bool:
    path = os.path.join(folder, name)
    return os.path.realpath(path) == path


def text_in(item: Json, *names: str) -> str:
    """The first of these fields that holds something, as text."""
    return next((text for name in names if (text := as_text(item.get(name)))), "")


def as_text(value: object) -> str:
    """A value as text: a string as it is, others as JSON; nothing for what says nothing."""
    if isinstance(value, str):
        return value if value.strip() else ""
    if value is None or value is False or value == [] or value == {}:
        return ""
    return json.dumps(value, ensure_ascii=False)


def items_in(item: Json, name: str) -> list[object]:
    """A field that is a list, or none."""
    value: object = item.get(name)
    return cast(list[object], value) if isinstance(value, list) else []


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")
