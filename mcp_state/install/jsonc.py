"""Edits of JSON with comments that keep every other byte.

The scanner knows where each value stands; an edit replaces a piece of the text. What is accepted is
JSON with `//` and `/* */` comments, commas before a closing bracket, and a byte order mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import Any, cast

from mcp_state.errors import ConfigRefused
from mcp_state.record import record

Path = Sequence[str | int]
"""Keys of objects, and places in lists."""

BOM = "\ufeff"
_SPACE = " \t\r\n"
_GAP = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_REST_OF_LINE = re.compile(r"[ \t]*(?:/\*[^\r\n]*?\*/[ \t]*)*(?://[^\r\n]*)?(?=\r?\n)")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_DEEPEST = 200
_LONGEST_NUMBER = 1000
_EDITED = 3  # levels of containers with members of interest; below them the values do


class Malformed(ValueError):
    """The text is no JSON: what is wrong, and where."""

    def __init__(self, problem: str, text: str, at: int) -> None:
        before = text[:at]
        self.line = before.count("\n") + 1
        self.column = at - (before.rfind("\n") + 1) + 1
        self.problem = problem
        super().__init__(f"line {self.line}, column {self.column}: {problem}")


@record
class Value:
    """A value, and where it stands; near the root what is in it too: members or items.

    `comma` is where the comma after it ends, -1 without one; `key_at` where its key begins, or the
    value itself in an array.
    """

    start: int
    end: int
    data: Any
    key: str = ""
    key_at: int = -1
    comma: int = -1
    inside: list[Value] = field(default_factory=list["Value"])

    def member(self, key: str) -> Value | None:
        """The member that counts: the last one of that name."""
        return next((one for one in reversed(self.inside) if one.key == key), None)


@lru_cache(maxsize=8)
def parse(text: str) -> Value:
    """The value of a text; an empty one is an empty object.

    Raises:
        Malformed: it is none.
    """
    start = _past_gap(text, len(BOM) if text.startswith(BOM) else 0)
    if start == len(text):
        return Value(start, start, {})
    root = _value(text, start, 0)
    rest = _past_gap(text, root.end)
    if rest != len(text):
        raise Malformed("there is something after the end", text, rest)
    return root


def read(text: str, path: Path) -> Any:
    """What stands at a path of keys; None where nothing does."""
    found = _find(text, path)
    return None if found is None else found.data


def put(text: str, path: Path, data: Any) -> str:
    """The text with a value at a path of keys; objects that are missing on the way are made.

    Raises:
        ConfigRefused: what is on the way is no object.
        Malformed: the text is no JSON.
    """
    root = parse(text)
    if root.start == root.end:
        newline = "\r\n" if "\r\n" in text else "\n"
        before = text if not text.strip(BOM + " \t") or text.endswith("\n") else text + newline
        return before + _dumped(_nested(path, data), "  ", newline) + newline
    here = root
    for depth, key in enumerate(path):
        here = _opened(text, here)
        if isinstance(key, int):
            here = here.inside[key]
            continue
        if not isinstance(here.data, dict):
            line = text[: here.start].count("\n") + 1
            where = ".".join(map(str, path[:depth])) or "the whole of it"
            raise ConfigRefused(
                f"line {line}: {where} is not an object, so {key!r} cannot be put into it",
                "Nothing was written. Correct it, then run this again.",
            )
        found = here.member(key)
        if found is None:
            return _with(text, here, _nested(path[depth + 1 :], data), key)
        here = found
    if _same(here.data, data):
        return text
    return text[: here.start] + _rendered(text, data, here.key_at) + text[here.end :]


def append(text: str, path: Path, item: Any) -> str:
    """The text with an item at the end of the list at a path; the list is made if it is missing.

    Raises:
        ConfigRefused: what is there is no list, or what is on the way is no object.
        Malformed: the text is no JSON.
    """
    found = _find(text, path)
    if found is None:
        return put(text, path, [item])
    if not isinstance(found.data, list):
        line = text[: found.start].count("\n") + 1
        raise ConfigRefused(
            f"line {line}: {'.'.join(map(str, path))} is not a list",
            "Nothing was written. Correct it, then run this again.",
        )
    return _with(text, found, item)


def remove_item(text: str, path: Path, index: int) -> str:
    """The text without an item of the list at a path."""
    found = _find(text, path)
    assert found is not None
    return _without(text, found, index)


def remove(text: str, path: Path) -> str:
    """The text without what is at a path, however often its key stands there."""
    while (holder := _find(text, path[:-1])) is not None:
        places = [at for at, one in enumerate(holder.inside) if one.key == path[-1]]
        if not places or not isinstance(holder.data, dict):
            return text
        text = _without(text, holder, places[-1])
    return text


def prune(text: str, path: Path, original: str | None) -> str:
    """The text without the containers along a path that are empty and were not in the original.

    One that was there empty gets the form back that it had.
    """
    for depth in range(len(path), 0, -1):
        found = _find(text, path[:depth])
        if found is None:
            continue
        if found.data:
            return text
        was = None if original is None else _find(original, path[:depth])
        if original is not None and was is not None and not was.data:
            return text[: found.start] + original[was.start : was.end] + text[found.end :]
        if was is not None:
            return text
        text = remove(text, path[:depth])
    root = parse(text)
    if root.data == {} and _besides(text) == _besides(original or ""):
        return original or ""
    return text


def _besides(text: str) -> list[str]:
    """What is in the text of an empty object besides its braces: comments, if anything."""
    root = parse(text)
    around = (text[: root.start], text[root.start + 1 : root.end - 1], text[root.end :])
    return [] if root.data else "".join(around).removeprefix(BOM).split()


def _find(text: str, path: Path) -> Value | None:
    here: Value | None = parse(text)
    for key in path:
        if isinstance(key, int):
            here = here.inside[key]
        else:
            here = here.member(key) if isinstance(here.data, dict) else None
        if here is None:
            return None
        here = _opened(text, here)
    return here


def _opened(text: str, value: Value) -> Value:
    """The value with what is in it, also if it was read at once."""
    if value.inside or not isinstance(value.data, dict | list):
        return value
    return replace(value, inside=_container(text, value.start, 0).inside)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON; to Python, 1, 1.0 and true are."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _nested(path: Path, data: Any) -> Any:
    for key in reversed(path):
        data = {key: data}
    return data


def _value(text: str, at: int, depth: int) -> Value:
    if depth > _DEEPEST:
        raise Malformed(f"nested deeper than {_DEEPEST} levels", text, at)
    if text[at : at + 1] in ("{", "["):
        whole = _whole(text, at) if depth == _EDITED else None
        return whole or _container(text, at, depth)
    if found := _STRING.match(text, at):
        return Value(at, found.end(), _string(text, found))
    found = _SCALAR.match(text, at)
    if found is None:
        raise Malformed(f"a value is expected, not {_seen(text, at)}", text, at)
    number = found[0]
    return Value(at, found.end(), json.loads(number) if len(number) < _LONGEST_NUMBER else number)


def _whole(text: str, start: int) -> Value | None:
    """A container without comments, read at once; None if it is not that simple."""
    try:
        data, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return Value(start, end, data)


def _no_constant(name: str) -> None:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _container(text: str, start: int, depth: int) -> Value:
    is_object = text[start] == "{"
    closing = "}" if is_object else "]"
    inside: list[Value] = []
    at = _past_gap(text, start + 1)
    while text[at : at + 1] != closing:
        key, key_at = "", at
        if is_object:
            key, at = _key(text, at)
        one = _value(text, at, depth + 1)
        at = _past_gap(text, one.end)
        comma = at + 1 if text[at : at + 1] == "," else -1
        if comma < 0 and text[at : at + 1] != closing:
            raise Malformed(f"a comma or {closing} is expected, not {_seen(text, at)}", text, at)
        inside.append(Value(one.start, one.end, one.data, key, key_at, comma, one.inside))
        at = at if comma < 0 else _past_gap(text, comma)
    data: Any = {v.key: v.data for v in inside} if is_object else [v.data for v in inside]
    return Value(start, at + 1, data, inside=inside)


def _key(text: str, at: int) -> tuple[str, int]:
    """A key, and where its value begins."""
    found = _STRING.match(text, at)
    if found is None:
        raise Malformed(
            f"a key in double quotes or }} is expected, not {_seen(text, at)}", text, at
        )
    colon = _past_gap(text, found.end())
    if text[colon : colon + 1] != ":":
        raise Malformed(f"a colon is expected, not {_seen(text, colon)}", text, colon)
    return _string(text, found), _past_gap(text, colon + 1)


def _string(text: str, found: re.Match[str]) -> str:
    try:
        return cast(str, json.loads(found[0]))
    except ValueError:
        raise Malformed("a string has a wrong escape", text, found.start()) from None


def _seen(text: str, at: int) -> str:
    if at >= len(text):
        return "the end of the file"
    return "a comment that never ends" if text.startswith("/*", at) else repr(text[at])


def _past_gap(text: str, at: int) -> int:
    found = _GAP.match(text, at)
    assert found is not None
    return found.end()


def _with(text: str, holder: Value, data: Any, key: str | None = None) -> str:
    """The text with one more member or item at the end of an object or array."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lead = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}:"
    if not holder.inside:
        return _with_first(text, holder, lead, data, newline)
    last = holder.inside[-1]
    margin = _margin(text, last.key_at)
    if margin is None:  # not on a line of its own
        colon = _after_colon(text)
        gap = " " if "\n" in text or colon else ""
        made = f"{lead}{colon if lead else ''}{_flat(data, text)}"
        if last.comma < 0:
            return f"{text[: last.end]},{gap}{made}{text[last.end :]}"
        return f"{text[: last.comma]}{gap}{made},{text[last.comma :]}"
    made = f"{newline}{margin}{lead}{' ' if lead else ''}"
    made += _dumped(data, _indent(text), newline, margin)
    if last.comma < 0:
        end = _line_end(text, last.end)
        return f"{text[: last.end]},{text[last.end : end]}{made}{text[end:]}"
    end = _line_end(text, last.comma)
    return f"{text[:end]}{made},{text[end:]}"


def _with_first(text: str, holder: Value, lead: str, data: Any, newline: str) -> str:
    """The text with the first member or item of an empty object or array."""
    before = text[holder.start + 1 : holder.end - 1]
    outer = _line_margin(text, holder.start)
    if "\n" not in text.strip(_SPACE) and holder.start > _past_gap(text, 0):
        made = f"{lead}{_after_colon(text) if lead else ''}{_flat(data, text)}"
        return f"{text[: holder.end - 1]}{made}{text[holder.end - 1 :]}"
    margin = outer + _indent(text)
    made = f"{newline}{margin}{lead}{' ' if lead else ''}"
    made += _dumped(data, _indent(text), newline, margin)
    if not before.strip(_SPACE):
        before = ""
    elif "\n" in before.rstrip(" \t"):
        before = before.rstrip(_SPACE)
    return f"{text[: holder.start + 1]}{before}{made}{newline}{outer}{text[holder.end - 1 :]}"


def _without(text: str, holder: Value, index: int) -> str:
    """The text without a member or item; what stands on its lines besides stays."""
    gone = holder.inside[index]
    end = gone.end if gone.comma < 0 else gone.comma
    if len(holder.inside) == 1:
        before, after = text[holder.start + 1 : gone.key_at], text[end : holder.end - 1]
        kept = _joined(before, after) if (before + after).strip(_SPACE) else ""
        return text[: holder.start + 1] + kept + text[holder.end - 1 :]
    if gone.comma < 0:  # the last one: the comma of the one before goes too
        comma = holder.inside[index - 1].comma
        between = text[comma : gone.key_at]
        kept = _joined(between, text[end:]) if between.strip(_SPACE) else text[end:]
        return text[: comma - 1] + kept
    gap = text[holder.start + 1 if index == 0 else holder.inside[index - 1].comma : gone.key_at]
    before, after = text[: gone.key_at], text[end:]
    if text[end : _line_end(text, end)].strip(_SPACE):
        return before + after.lstrip(" \t")  # a comment on its line stays
    line_before = before.rstrip(" \t")
    if line_before.endswith("\n") and (_ends_line(after) or "//" not in gap):
        return line_before[:-1].removesuffix("\r") + after
    return before + after.lstrip(" \t") if index == 0 else line_before + after


def _joined(before: str, after: str) -> str:
    """Two pieces around what was removed; a comment between them keeps the end of its line."""
    return before.rstrip(_SPACE if _ends_line(after) else " \t") + after


def _ends_line(text: str) -> bool:
    return text.lstrip(" \t").startswith(("\r", "\n"))


def _rendered(text: str, data: Any, key_at: int) -> str:
    """A value in the style of the place where it goes."""
    margin = _margin(text, key_at)
    if margin is None:
        return _flat(data, text)
    return _dumped(data, _indent(text), "\r\n" if "\r\n" in text else "\n", margin)


def _dumped(data: Any, indent: str, newline: str, margin: str = "") -> str:
    shown = json.dumps(data, ensure_ascii=False, indent=indent)
    return shown.replace("\n", newline + margin)


def _flat(data: Any, text: str) -> str:
    colon = _after_colon(text)
    gap = " " if "\n" in text or colon else ""
    return json.dumps(data, ensure_ascii=False, separators=(f",{gap}", f":{colon}"))


def _after_colon(text: str) -> str:
    """What this text has between a colon and a value on the same line."""
    found = re.search(r'":( ?)', text)
    return " " if found is None else found[1]


def _margin(text: str, at: int) -> str | None:
    """The white space before a place, if nothing else is before it on its line."""
    line = text[text.rfind("\n", 0, at) + 1 : at].removeprefix(BOM)
    return line if "\n" in text[:at] and not line.strip(" \t") else None


def _line_margin(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at].removeprefix(BOM)
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indent(text: str) -> str:
    """One level of indentation, as the first indented line has it."""
    found = re.search(r"^([ \t]+)[\"}\]{\[]", text, re.MULTILINE)
    return found[1] if found else "  "


def _line_end(text: str, at: int) -> int:
    """Where a line ends, if nothing but comments follows on it; else the place itself."""
    found = _REST_OF_LINE.match(text, at)
    return at if found is None else found.end()
