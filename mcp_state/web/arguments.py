"""What a request asks for, read by the signature of the function that answers it."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin

from mcp_state.errors import BadArgument
from mcp_state.record import record
from mcp_state.store.text import clean

_LARGEST = 1 << 53
Number = Annotated[int | None, range(_LARGEST)]
"""A number that may be left out."""


@record
class _Parameter:
    """One argument: of which type, out of which numbers, and what it is when it is left out."""

    name: str
    type: Any
    among: range
    default: Any


def bind(
    name: str, function: Callable[..., Any], arrived: Mapping[str, Any]
) -> dict[str, str | int | bool | None]:
    """Read the arguments of a request; what is empty counts as left out.

    Args:
        name: how the request is called.
        function: what answers it; all of its parameters but the first are arguments.
        arrived: texts out of a query, or values out of JSON.

    Raises:
        BadArgument: one is unknown, missing, or of another type.
    """
    known = {parameter.name: parameter for parameter in _parameters(function)}
    for word in arrived:
        if word not in known:
            near = difflib.get_close_matches(word, known, 1)
            hint = f"Did you mean {near[0]}? " if near else ""
            takes = f"It takes {', '.join(known)}." if known else "It takes none."
            raise BadArgument(f"{name} has no argument {clean(word)[0][:60]!r}", hint + takes)
    return {key: _read(name, one, arrived.get(key)) for key, one in known.items()}


@functools.cache
def _parameters(function: Callable[..., Any]) -> tuple[_Parameter, ...]:
    signature = inspect.signature(function, eval_str=True)
    return tuple(_parameter(one) for one in list(signature.parameters.values())[1:])


def _parameter(given: inspect.Parameter) -> _Parameter:
    annotation, among = given.annotation, range(_LARGEST)
    if get_origin(annotation) is Annotated:
        annotation, among = get_args(annotation)
    optional = get_args(annotation)
    (kind,) = [one for one in optional if one is not type(None)] if optional else [annotation]
    return _Parameter(given.name, kind, among, given.default)


def _read(name: str, parameter: _Parameter, value: Any) -> str | int | bool | None:
    if value is None or value == "":
        if parameter.default is inspect.Parameter.empty:
            raise BadArgument(f"{name} needs {parameter.name}", "Give it.")
        return parameter.default
    if parameter.type is str and isinstance(value, str):
        return clean(value)[0]
    if parameter.type is bool and value in (True, False, "true", "false"):
        return value in (True, "true")
    if parameter.type is int and (number := _number(value)) is not None:
        if number in parameter.among:
            return number
        raise BadArgument(
            f"{parameter.name} of {name} is {number}",
            f"Give {parameter.among.start:,} to {parameter.among.stop - 1:,}.",
        )
    what = {str: "a text", bool: "true or false", int: "a whole number"}[parameter.type]
    raise BadArgument(
        f"{parameter.name} of {name} is {clean(str(value))[0][:60]!r}", f"It takes {what}."
    )


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 16:
        return int(value)
    return value if type(value) is int else None
