"""The arguments of a tool: the schema that is published, and what is made of what arrives.

Clients do not validate. Models send "" or null for what they mean to leave out, lists and objects
as JSON text, and numbers as text; all of that is understood. Free text is never parsed. What is
unknown or of the wrong type is refused, naming it.
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, cast, get_args, get_origin

from pydantic import Field
from pydantic.fields import FieldInfo

from mcp_state.errors import BadArgument
from mcp_state.record import record
from mcp_state.store.text import clean

REQUIRED = inspect.Parameter.empty
PROJECT = "project"
_DEEPEST = 100  # JSON within text; a whole message has 200
MOST_AROUND = 1 << 18
"""Bytes of JSON around its texts: each can be a value of its own, which takes a hundred to hold."""


@record
class Kind:
    """A type of argument: its JSON schema, and how a value of it is read."""

    schema: Mapping[str, Any]
    read: Callable[[Any], Any]
    """Raises ValueError, saying what was expected, on a value of another type."""
    text: bool = False


def _read_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError("text")


def _read_integer(value: Any) -> int:
    if isinstance(value, str):
        value = value.strip()
        digits = value.removeprefix("-")
        if digits.isascii() and digits.isdigit():
            value = int(value) if len(digits) < 16 else 1 << 53
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("a whole number")
    if abs(value) >= 1 << 53:
        raise ValueError("a smaller number")
    return value


def _read_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("true or false")


def _read_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        value = _decoded(value, "[", "a list of texts") if value.lstrip()[:1] == "[" else [value]
    if not isinstance(value, list):
        raise ValueError("a list of texts")
    return [_read_text(item) for item in cast(list[Any], value)]


def _read_object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = _decoded(value, "{", "an object")
    if not isinstance(value, dict):
        raise ValueError("an object")
    return cast(dict[str, Any], value)


def _read_objects(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, str):
        value = _decoded(value, "[{", "a list of objects")
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise ValueError("a list of objects")
    return [_read_object(item) for item in cast(list[Any], value)]


def _decoded(text: str, opening: str, expected: str) -> Any:
    if text.lstrip()[:1] not in opening or not text.strip():
        raise ValueError(expected)
    if is_bulky(text.encode("utf-8", "replace")):
        raise ValueError(f"{expected}, of fewer values")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{expected} (this JSON text is broken)") from None
    if _is_deep(value):
        raise ValueError(f"{expected}, nested less than {_DEEPEST} deep")
    return value


def is_bulky(text: bytes, most: int = MOST_AROUND) -> bool:
    """Whether a JSON text holds more than `most` bytes that are in none of its texts."""
    if len(text) <= most:
        return False
    text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    if text.count(b'"') > 2 * most:  # there is something between any two texts
        return True
    return sum(map(len, text.split(b'"')[::2])) > most


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _within(outer)]
    return bool(level)


def _within(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast(dict[str, Any], value).values()
    return cast(list[Any], value) if isinstance(value, list) else ()


_KINDS: Mapping[Any, Kind] = {
    str: Kind({"type": "string"}, _read_text, text=True),
    int: Kind({"type": "integer"}, _read_integer),
    bool: Kind({"type": "boolean"}, _read_boolean),
    list[str]: Kind({"type": "array", "items": {"type": "string"}}, _read_texts),
    dict[str, Any]: Kind({"type": "object"}, _read_object),
    list[dict[str, Any]]: Kind({"type": "array", "items": {"type": "object"}}, _read_objects),
}


def _choice(values: Sequence[str]) -> Kind:
    """One of some words, in any case and with any separators."""

    def read(value: Any) -> str:
        if isinstance(value, str):
            word = "".join(c for c in value.lower() if c not in "-_ ")
            for one in values:
                if one.replace("_", "") == word:
                    return one
        raise ValueError(f"one of {', '.join(values)}")

    return Kind({"type": "string", "enum": list(values)}, read)


@record
class Parameter:
    """One argument."""

    name: str
    kind: Kind
    default: Any
    description: str
    schema: Mapping[str, Any]

    @property
    def required(self) -> bool:
        """Whether the call fails without it."""
        return self.default is REQUIRED


def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The arguments of a tool's function: all of its parameters but the first."""
    signature = inspect.signature(function, eval_str=True)
    return tuple(_parameter(p) for p in list(signature.parameters.values())[1:])


def _parameter(parameter: inspect.Parameter) -> Parameter:
    annotation, info = parameter.annotation, FieldInfo()
    if get_origin(annotation) is Annotated:
        annotation, info, *_ = get_args(annotation)
    alternatives = [a for a in get_args(annotation) if a is not type(None)]
    if type(None) in get_args(annotation):
        (annotation,) = alternatives
    if get_origin(annotation) is Literal:
        kind = _choice(get_args(annotation))
    else:
        kind = _KINDS[annotation]
    schema = dict(kind.schema)
    schema |= cast(dict[str, Any], info.json_schema_extra or {})
    if info.description:
        schema["description"] = info.description
    return Parameter(parameter.name, kind, parameter.default, info.description or "", schema)


def schema_of(parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The published input schema: flat, without combinators, titles or defaults."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {p.name: dict(p.schema) for p in parameters} | {PROJECT: {"type": "string"}},
    }
    if required := [p.name for p in parameters if p.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


@record
class Bound:
    """What arrived, read.

    `project` is the one that was named; `replaced` counts characters that cannot be stored.
    """

    values: Mapping[str, Any]
    project: str
    replaced: int


def bind(tool: str, parameters: Sequence[Parameter], arrived: Mapping[str, Any]) -> Bound:
    """Read the arguments of a call.

    Raises:
        BadArgument: one is unknown, missing, or of another type.
    """
    known = {p.name: p for p in parameters}
    replaced = 0
    for name in arrived:
        if name not in known and name != PROJECT:
            raise _unknown(tool, clean(name)[0], [*known, PROJECT])
    values: dict[str, Any] = {}
    for parameter in parameters:
        value = arrived.get(parameter.name)
        if value is None or (value == "" and not parameter.required):
            if parameter.required:
                raise _missing(tool, parameters, arrived)
            values[parameter.name] = parameter.default
            continue
        value, count = cleaned(value)
        read, more = cleaned(_read(tool, parameter.name, parameter.kind, value))  # JSON in text
        replaced += count + more
        values[parameter.name] = read
    project = arrived.get(PROJECT)
    project, count = cleaned("" if project is None else project)
    return Bound(values, _read(tool, PROJECT, _KINDS[str], project), replaced + count)


def named_project(arrived: Mapping[str, Any]) -> str:
    """The project that a call names; empty if it names none, or what is no name."""
    try:
        return _read_text(arrived.get(PROJECT, ""))
    except ValueError:
        return ""


def _read(tool: str, name: str, kind: Kind, value: Any) -> Any:
    try:
        return kind.read(value)
    except ValueError as expected:
        shown = json.dumps(value, ensure_ascii=False, default=str)
        shown = shown if len(shown) <= 60 else shown[:59] + "…"
        raise BadArgument(
            f"{name} of {tool} is {shown}", f"It takes {expected}; nothing was done."
        ) from None


def cleaned(value: Any) -> tuple[Any, int]:
    """A value with what cannot be stored replaced in every text of it, and how many."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        items = [cleaned(item) for item in cast(list[Any], value)]
        return [item for item, _ in items], sum(count for _, count in items)
    if isinstance(value, dict):
        entries = cast(dict[Any, Any], value).items()
        pairs = [(cleaned(key), cleaned(item)) for key, item in entries]
        return {k: v for (k, _), (v, _) in pairs}, sum(a + b for (_, a), (_, b) in pairs)
    return value, 0


def _unknown(tool: str, name: str, known: Sequence[str]) -> BadArgument:
    near = difflib.get_close_matches(name.lower(), known, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return BadArgument(
        f"{tool} has no argument {name[:60]!r}", f"{hint}It takes {', '.join(known)}."
    )


def _missing(tool: str, parameters: Sequence[Parameter], arrived: Mapping[str, Any]) -> BadArgument:
    missing = [p.name for p in parameters if p.required and arrived.get(p.name) is None]
    got = [clean(name)[0] for name, value in arrived.items() if value is not None]
    return BadArgument(
        f"{tool} needs {' and '.join(missing)}; it got {', '.join(got) or 'nothing'}",
        f"Call again with {' and '.join(missing)}.",
    )


def described(description: str) -> Any:
    """The description of a parameter, for `Annotated`."""
    return Field(description=description)
