"""The front matter of a Markdown file: the small part of YAML that task tools write.

`key: value` lines with plain, quoted and folded texts, and lists of them. There are no anchors,
tags or nested maps, so nothing here can grow; what is none of this is refused with its line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

Value = str | Sequence[str]
_KEY = re.compile(r"([A-Za-z_][\w -]*):(?:[ \t]+(.*))?")
_FLOW = re.compile(r"""\s*("(?:[^"\\]|\\.)*+"|'(?:[^']|'')*+'|[^,\[\]{}"']*+)\s*(?:,|$)""")
_BLOCK = re.compile(r"([|>])([-+]?)")


class Malformed(Exception):
    """The front matter is none that is read here; says where and why."""


def split(text: str) -> tuple[str, str]:
    """The front matter of a file and what follows it; the first is empty if there is none."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != "---":
        return "", text
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            return "".join(lines[1:number]), "".join(lines[number + 1 :])
    return "", text


def parse(text: str) -> Mapping[str, Value]:
    """What the front matter says.

    Raises:
        Malformed: it is written in a way that is not read here.
    """
    found: dict[str, Value] = {}
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _KEY.fullmatch(line.rstrip())
        if match is None:
            raise Malformed(f"line {at + 1} is no `key: value`")
        value = (match[2] or "").strip()
        end = at
        while end < len(lines) and _belongs(lines[end], value):
            end += 1
        try:
            found[match[1]] = _value(value, lines[at:end])
        except ValueError as problem:
            raise Malformed(f"line {at + 1}: {problem}") from None
        at = end
    return found


def _belongs(line: str, value: str) -> bool:
    """Whether a line goes on with the value of the key above it."""
    return (
        not line.strip()
        or line[0] in " \t"
        or (not value and re.match(r"-(\s|$)", line) is not None)
    )


def _value(value: str, more: Sequence[str]) -> Value:
    if block := _BLOCK.fullmatch(value):
        return _block_text(block[1] == ">", more)
    there = [line.strip() for line in more if line.strip()]
    if value.startswith("["):
        return _flow(" ".join([value, *there]))
    if not value and there:
        return _listed(there)
    return _scalar(" ".join([value, *there]))


def _block_text(folded: bool, lines: Sequence[str]) -> str:
    used = [line for line in lines if line.strip()]
    width = min((len(line) - len(line.lstrip()) for line in used), default=0)
    text = "\n".join(line[width:].rstrip() for line in lines).strip("\n")
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text) if folded else text


def _listed(lines: Sequence[str]) -> Sequence[str]:
    items: list[str] = []
    for line in lines:
        if line == "-" or line.startswith("- "):
            items.append(line[1:].strip())
        elif items:
            items[-1] = f"{items[-1]} {line}"
        else:
            raise ValueError("maps inside maps are not read here")
    folded = (re.sub(r"^>-?\s+", "", item) for item in items)
    return [text for item in folded if (text := _scalar(item))]


def _flow(text: str) -> Sequence[str]:
    if not text.endswith("]"):
        raise ValueError("a list has no end")
    inner, items, at = text[1:-1].strip(), list[str](), 0
    while at < len(inner):
        match = _FLOW.match(inner, at)
        if match is None or match.end() == at:
            raise ValueError("this list is not read here")
        items.append(_scalar(match[1].strip()))
        at = match.end()
    return [item for item in items if item]


def _scalar(text: str) -> str:
    if text.startswith('"'):
        try:
            value: object = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, str):
            raise ValueError("a quoted text is not read here")
        return value
    if text.startswith("'"):
        if re.fullmatch(r"'(?:[^']|'')*+'", text) is None:
            raise ValueError("a quoted text has no end")
        return text[1:-1].replace("''", "'")
    if text[:1] in tuple("&*!{}[]%@`"):
        raise ValueError(f"what begins with {text[:1]} is not read here")
    plain = re.split(r"\s#", text, maxsplit=1)[0].strip()
    return "" if plain in ("null", "~") else plain
