"""Models as JSON values, for programs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any, cast

_PLAIN = (str, int, bool, float, type(None))


def plain(value: Any) -> Any:
    """A model as JSON values; times as RFC 3339 text, what is None left out."""
    if type(value) in _PLAIN:
        return value
    if names := _fields(value.__class__):
        pairs = ((name, getattr(value, name)) for name in names)
        return {name: plain(item) for name, item in pairs if item is not None}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast(list[Any], value)]
    return value


@functools.cache
def _fields(kind: type) -> tuple[str, ...]:
    """The names of the fields of a model; none of any other value."""
    is_model = dataclasses.is_dataclass(kind)
    return tuple(field.name for field in dataclasses.fields(kind)) if is_model else ()
