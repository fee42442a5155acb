"""One table: what was measured, beside what, the goal, and whether it is met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Goal:
    """A bound of the ratio, or of the figure itself where nothing stands beside it."""

    most: bool
    bound: float

    def met_by(self, figure: float) -> bool:
        return figure <= self.bound if self.most else figure >= self.bound

    def __str__(self) -> str:
        return f"{'<=' if self.most else '>='} {self.bound:g}"


def at_most(bound: float) -> Goal:
    return Goal(True, bound)


def at_least(bound: float) -> Goal:
    return Goal(False, bound)


Unit = Literal["ms", "/s", "MB", "tokens", "times", ""]


@dataclass(frozen=True)
class Line:
    """One figure."""

    what: str
    unit: Unit
    ours: float | None = None
    beside: str = ""
    theirs: float | None = None
    goal: Goal | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if self.ours is None or not self.theirs:
            return None
        return self.ours / self.theirs

    @property
    def met(self) -> bool | None:
        """Whether the goal is; None if there is none, or no figure."""
        figure = self.ratio if self.beside else self.ours
        if self.goal is None or figure is None:
            return None
        return self.goal.met_by(figure)


HEADINGS = ("row", "what", "ours", "beside", "theirs", "ratio", "goal", "met", "")


def cells(row: str, line: Line) -> Sequence[str]:
    met = "" if line.goal is None else {True: "yes", False: "NO", None: "unknown"}[line.met]
    goal = "" if line.goal is None else f"{line.goal}{' x' if line.beside else ''}"
    ratio = "" if line.ratio is None else f"{line.ratio:.3g} x"
    ours, theirs = _number(line.ours, line.unit), _number(line.theirs, line.unit)
    return (row, line.what, ours, line.beside, theirs, ratio, goal, met, line.note)


def _number(value: float | None, unit: Unit) -> str:
    if value is None:
        return ""
    plain = f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"
    return f"{plain} {unit}".strip()


def render(lines: Iterable[tuple[str, Line]]) -> str:
    rows = [HEADINGS, *(cells(row, line) for row, line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    rows.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def as_json(lines: Iterable[tuple[str, Line]]) -> list[dict[str, Any]]:
    return [
        {"row": row, **asdict(line), "ratio": line.ratio, "met": line.met} for row, line in lines
    ]
