"""A record is what a frozen dataclass with slots is, but for the time at which it is compiled."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from mcp_state.record import record


@record
class Point:
    """Two numbers."""

    x: int
    y: int = 2
    notes: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def sum(self) -> int:
        return self.x + self.y


@dataclass(frozen=True, slots=True)
class Plain:
    """The same in the standard library's way."""

    x: int
    y: int = 2
    notes: Mapping[str, int] = field(default_factory=dict[str, int])


@record
class Other:
    """Of another class, with the same fields."""

    x: int
    y: int = 2
    notes: Mapping[str, int] = field(default_factory=dict[str, int])


def _made(kind: Any, args: tuple[int, ...], named: dict[str, Any]) -> Any:
    return kind(*args, **named)


def test_it_takes_the_arguments_that_a_dataclass_takes() -> None:
    calls: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((1,), {}),
        ((1, 3), {}),
        ((), {"y": 5, "x": 4}),
        ((1,), {"notes": {"a": 1}}),
    ]
    for args, named in calls:
        values = [dataclasses.asdict(_made(kind, args, named)) for kind in (Point, Plain)]
        assert values[0] == values[1]


@pytest.mark.parametrize(("args", "named"), [((), {}), ((1,), {"z": 1}), ((1,), {"x": 1})])
def test_it_refuses_the_arguments_that_a_dataclass_refuses(
    args: tuple[int, ...], named: dict[str, Any]
) -> None:
    messages: list[str] = []
    for kind in (Point, Plain):
        with pytest.raises(TypeError) as refused:
            _made(kind, args, named)
        messages.append(str(refused.value).replace(kind.__name__, "Kind"))
    assert messages[0] == messages[1]


def test_a_default_that_is_made_is_made_for_each_value() -> None:
    assert Point(1).notes == {}
    assert Point(1).notes is not Point(1).notes


def test_fields_are_never_set_removed_or_added() -> None:
    point = Point(1)
    for change in (
        lambda: setattr(point, "x", 2),
        lambda: delattr(point, "x"),
        lambda: setattr(point, "z", 2),
    ):
        with pytest.raises(FrozenInstanceError):
            change()
    assert point == Point(1)
    assert not hasattr(point, "__dict__")


def test_values_of_one_class_are_equal_by_their_fields() -> None:
    assert Point(1) == Point(1)
    assert Point(1) != Point(2)
    assert Point(1) != Other(1)
    assert Point(1) != (1, 2, {})
    assert len({Frozen(1), Frozen(1), Frozen(2)}) == 2


@record
class Frozen:
    """Hashable throughout."""

    x: int


def test_it_is_a_dataclass_to_those_who_ask() -> None:
    assert dataclasses.is_dataclass(Point)
    assert [one.name for one in dataclasses.fields(Point)] == ["x", "y", "notes"]
    assert dataclasses.replace(Point(1), y=7) == Point(1, 7)
    match Point(1, 3):
        case Point(x, y):
            assert (x, y) == (1, 3)


def test_it_can_be_copied_pickled_and_read() -> None:
    point = Point(1, notes={"a": 1})
    assert copy.deepcopy(point) == copy.copy(point) == point
    assert pickle.loads(pickle.dumps(point)) == point
    assert repr(point) == "Point(x=1, y=2, notes={'a': 1})"
    assert Point(1).sum == 3
