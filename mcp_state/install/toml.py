"""Edits of TOML that keep every other byte.

A table of ours is text at the end of the file, found again by its header. tomlkit renders values
and edits single statements; given a whole file it moves what stands beside dotted keys into other
tables, so it never is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import tomlkit
from tomlkit.items import Item

from mcp_state.errors import ConfigRefused
from mcp_state.record import record

Path = tuple[str, ...]

BOM = "\ufeff"
_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEYS = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_NOTHING = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\r?\n|$)")
_HEADER = re.compile(rf"[ \t]*\[\[?[ \t]*({_KEYS})[ \t]*\]\]?")
_LEFT = re.compile(rf"[ \t]*({_KEYS})[ \t]*=[ \t]*")
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[\[\]{}\n]"
    r"|[^\"'#\[\]{}\n]+",
    re.DOTALL,
)


@record
class Statement:
    """A header, or a key with its value, and where it stands.

    `path` is that of the table, or of the key with its table's before it. `end` is behind the end
    of the line.
    """

    start: int
    end: int
    path: Path
    header: bool
    value: tuple[int, int] = (0, 0)


def parse(text: str) -> dict[str, Any]:
    """What a text says.

    Raises:
        tomllib.TOMLDecodeError: it is no TOML.
    """
    return tomllib.loads(text.removeprefix(BOM))


def read(text: str, path: Path) -> Any:
    """What stands at a path of keys; None where nothing does."""
    return _at(parse(text), path)


def put(text: str, path: Path, data: Mapping[str, Any]) -> str:
    """The text with these keys in the table at a path; other keys of it stay.

    Raises:
        ConfigRefused: what is there, or on the way, is no table.
        tomllib.TOMLDecodeError: the text is no TOML.
    """
    before = parse(text)
    for depth in range(1, len(path) + 1):
        if not isinstance(_at(before, path[:depth], {}), dict):
            raise ConfigRefused(
                f"{'.'.join(path[:depth])} is not a table",
                "Nothing was written. Correct it, then run this again.",
            )
    found: dict[str, Any] = _at(before, path, {})
    merged = {**found, **data}
    if merged == found:
        return text
    made = _put(text, path, data, merged)
    return _checked(made, lambda after: after == _set(before, path, merged))


def add(text: str, chunk: str) -> str:
    """The text with some lines (without the last line end) at its end, after an empty one.

    Raises:
        ConfigRefused: they do not fit with what is there.
        tomllib.TOMLDecodeError: the text is no TOML.
    """
    parse(text)
    newline = _newline(text)
    chunk = chunk.replace("\n", newline)
    if not text.removeprefix(BOM):
        made = f"{text}{chunk}{newline}"
    elif text.endswith("\n"):
        made = f"{text}{newline}{chunk}{newline}"
    else:
        made = f"{text}{newline}{newline}{chunk}"
    try:
        parse(made)
    except tomllib.TOMLDecodeError as problem:
        first = chunk.partition(newline)[0]
        raise ConfigRefused(
            f"{first} cannot stand beside what is there ({problem})",
            "Nothing was written. Write that table with a header of its own, then run this again.",
        ) from None
    return made


def remove(text: str, path: Path) -> str:
    """The text without the table at a path and what belongs to it."""
    before = parse(text)
    if _at(before, path) is None:
        return text
    rest = _unset(before, path)
    return _checked(
        _removed(text, path),
        lambda after: _at(after, path) is None and _unset(after, path) == rest,
    )


def remove_tables(text: str, heads: Sequence[Statement]) -> str:
    """The text without these tables, each with the tables within it that follow it."""
    statements = scan(text)
    for head in sorted(heads, key=lambda one: -one.start):
        end = head.end
        for one in statements[statements.index(head) + 1 :]:
            if one.header and (one.path == head.path or one.path[: len(head.path)] != head.path):
                break
            end = one.end
        text = _cut(text, head.start, end)
    return text


def rename(text: str, path: Path, key: str) -> str:
    """The text with another last key for the table at a path that has a header of its own."""
    for one in scan(text):
        if one.header and one.path == path:
            header = f"[{table_name((*path[:-1], key))}]"
            line = text[one.start : one.end]
            found = _HEADER.match(line)
            assert found is not None
            return text[: one.start] + header + line[found.end() :] + text[one.end :]
    return text


def scan(text: str) -> list[Statement]:
    """The statements of a text that is known to be TOML, in their order."""
    found: list[Statement] = []
    at = len(BOM) if text.startswith(BOM) else 0
    table: Path = ()
    while at < len(text):
        if (nothing := _NOTHING.match(text, at)) is not None:
            at = max(nothing.end(), at + 1)
            continue
        header = _HEADER.match(text, at)
        if header is not None:
            table = _names(header[1])
            end = _line_end(text, header.end())
            found.append(Statement(at, end, table, header=True))
        else:
            left = _LEFT.match(text, at)
            assert left is not None, text[at : at + 80]
            stop = _value_end(text, left.end())
            end = _line_end(text, stop)
            path = (*table, *_names(left[1]))
            found.append(Statement(at, end, path, header=False, value=(left.end(), stop)))
        at = end
    return found


def table_name(path: Path) -> str:
    """A path as it stands in a header."""
    return ".".join(tomlkit.key(one).as_string() for one in path)


def lines_of(data: Mapping[str, Any], between: str = "\n") -> str:
    """Keys and values, one a line, without the last line end."""
    return between.join(f"{table_name((key,))} = {_shown(value)}" for key, value in data.items())


def _put(text: str, path: Path, data: Mapping[str, Any], merged: Mapping[str, Any]) -> str:
    statements = scan(text)
    heads = [one for one in statements if one.header and one.path == path]
    if heads:
        for key, value in data.items():
            text = _put_key(text, path, key, value)
        return text
    for one in statements:
        if not one.header and len(one.path) < len(path) and one.path == path[: len(one.path)]:
            return _put_inline(text, one, path[len(one.path) :], merged)
    text = text if _at(parse(text), path) is None else _removed(text, path)
    return add(text, f"[{table_name(path)}]\n{lines_of(merged)}")


def _put_key(text: str, path: Path, key: str, value: Any) -> str:
    """The text with a key in a table that has a header."""
    statements = scan(text)
    if _at(parse(text), (*path, key)) == value:
        return text
    for one in statements:
        if not one.header and one.path == (*path, key):
            return text[: one.value[0]] + _shown(value) + text[one.value[1] :]
    if _at(parse(text), (*path, key)) is not None:
        text = _removed(text, (*path, key))
        statements = scan(text)
    head = next(at for at, one in enumerate(statements) if one.header and one.path == path)
    last = statements[head]
    for one in statements[head + 1 :]:
        if one.header:
            break
        last = one
    newline = _newline(text)
    line = lines_of({key: value})
    if text[: last.end].endswith("\n"):
        return f"{text[: last.end]}{line}{newline}{text[last.end :]}"
    return f"{text[: last.end]}{newline}{line}"


def _put_inline(text: str, one: Statement, path: Path, data: Mapping[str, Any]) -> str:
    """The text with a table inside the inline table of a statement."""
    document = tomlkit.parse(f"x = {text[one.value[0] : one.value[1]]}\n")
    here = cast(dict[str, Any], document["x"])
    for key in path[:-1]:
        here = cast(dict[str, Any], here.setdefault(key, tomlkit.inline_table()))
    made = cast(dict[str, Any], tomlkit.inline_table())
    for key, value in data.items():
        made[key] = value
    here[path[-1]] = made
    edited = document.as_string().removeprefix("x = ").removesuffix("\n")
    return text[: one.value[0]] + edited + text[one.value[1] :]


def _removed(text: str, path: Path) -> str:
    for one in reversed(scan(text)):
        if one.header and one.path == path:
            text = remove_tables(text, [one])
    for one in reversed(scan(text)):
        if one.header and one.path[: len(path)] == path:
            text = remove_tables(text, [one])
    for one in reversed(scan(text)):
        if one.path[: len(path)] == path:
            text = text[: one.start] + text[one.end :]
        elif not one.header and one.path == path[: len(one.path)]:
            document = tomlkit.parse(f"x = {text[one.value[0] : one.value[1]]}\n")
            here = cast(dict[str, Any], document["x"])
            for key in path[len(one.path) : -1]:
                here = cast(dict[str, Any], here[key])
            del here[path[-1]]
            value = document.as_string().removeprefix("x = ").removesuffix("\n")
            text = text[: one.value[0]] + value + text[one.value[1] :]
    return text


def _cut(text: str, start: int, end: int) -> str:
    """The text without a piece, and without the empty line that `add` put before it."""
    before, after = text[:start], text[end:]
    newline = _newline(text)
    if before.endswith(newline * 2) or before.removeprefix(BOM) == newline:
        before = before.removesuffix(newline)
        if not text[start:end].endswith("\n"):
            before = before.removesuffix(newline)
    elif not before.removeprefix(BOM):
        after = after.removeprefix(newline)
    return before + after


def _checked(text: str, says_it: Callable[[dict[str, Any]], bool]) -> str:
    """The text, if it says what it should: the last word before it is written.

    Raises:
        ConfigRefused: it does not.
    """
    try:
        if says_it(parse(text)):
            return text
    except tomllib.TOMLDecodeError:
        pass
    raise ConfigRefused(
        "it is written in a way that cannot be edited without touching something else",
        "Nothing was written. Edit it by hand: --print shows what belongs in it.",
    )


def _at(data: Any, path: Path, default: Any = None) -> Any:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return default
        data = cast(dict[str, Any], data)[key]
    return data


def _set(data: dict[str, Any], path: Path, value: Mapping[str, Any]) -> dict[str, Any]:
    if not path:
        return dict(value)
    return {**data, path[0]: _set(data.get(path[0], {}), path[1:], value)}


def _unset(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """The data without what is at a path, nor the tables that only a header of it made."""
    rest = {key: value for key, value in data.items() if key != path[0]}
    if len(path) == 1 or path[0] not in data:
        return rest
    inner = _unset(data[path[0]], path[1:])
    return {**data, path[0]: inner} if inner else rest


def _names(keys: str) -> Path:
    data: Any = tomllib.loads(f"{keys} = 0")
    names: list[str] = []
    while isinstance(data, dict):
        ((name, data),) = cast(dict[str, Any], data).items()
        names.append(name)
    return tuple(names)


def _value_end(text: str, at: int) -> int:
    """Where a value ends, without the white space and the comment behind it."""
    depth, end = 0, at
    while (found := _TOKEN.match(text, at)) is not None:
        token = found[0]
        if token == "\n" and depth == 0:
            break
        if token[0] == "#" and depth == 0:
            break
        depth += (token in ("[", "{")) - (token in ("]", "}"))
        at = found.end()
        if token.strip():
            end = at - (len(token) - len(token.rstrip()))
    return end


def _line_end(text: str, at: int) -> int:
    newline = text.find("\n", at)
    return len(text) if newline < 0 else newline + 1


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        pairs = lines_of(cast(dict[str, Any], value), ", ")
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_shown(one) for one in cast(list[Any], value))}]"
    return cast(Item, tomlkit.item(value)).as_string()
