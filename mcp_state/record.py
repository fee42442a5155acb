"""Immutable values that cost little to define.

`dataclass(frozen=True, slots=True)` compiles six methods of each class while its module is being
imported, about a millisecond for a class. Every command and every hook would pay that for some
eighty classes, most of which it never makes a value of. A `record` shares its methods with all
others; its constructor is compiled when the first value of it is made.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[_T]) -> type[_T]:
    """Make a class of annotated fields a dataclass with slots, whose values don't change."""
    kind = cast(Any, cls)
    kind.__init__ = _compile_first
    kind.__setattr__ = kind.__delattr__ = _refuse
    kind.__eq__ = _equal
    kind.__hash__ = _hash
    kind.__repr__ = _repr
    kind.__reduce__ = _reduce
    return dataclass(init=False, repr=False, eq=False, slots=True)(cls)


def _compile_first(self: object, /, *args: Any, **kwargs: Any) -> None:
    kind = cast(Any, type(self))
    kind.__init__ = _constructor(kind)
    kind.__init__(self, *args, **kwargs)


def _constructor(kind: Any) -> Any:
    """`__init__` with the class's fields as parameters, as a dataclass has it."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    parameters: list[str] = []
    lines: list[str] = []
    for one in fields(kind):
        name = value = one.name
        default = f"_default_{name}"
        if one.default_factory is not MISSING:
            names[default] = one.default_factory
            parameters.append(f"{name}=_missing")
            value = f"{default}() if {name} is _missing else {name}"
        elif one.default is not MISSING:
            names[default] = one.default
            parameters.append(f"{name}={default}")
        else:
            parameters.append(name)
        lines.append(f"    _set(self, {name!r}, {value})\n")
    exec(f"def __init__(self, {', '.join(parameters)}):\n{''.join(lines)}", names)
    made = names["__init__"]
    made.__qualname__ = f"{kind.__qualname__}.__init__"
    return made


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self.__match_args__)


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot change field {name!r} of a {type(self).__name__}")


def _equal(self: object, other: object) -> bool:
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: object) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({shown})"


def _reduce(self: object) -> tuple[type, tuple[Any, ...]]:
    """For `copy` and `pickle`, which would set the fields of a value that is there."""
    return type(self), _values(self)
