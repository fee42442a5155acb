"""What a tool is: one value that carries its function, its title, its hints and its rendering."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from mcp_state.api import State
from mcp_state.models import Totals
from mcp_state.record import record
from mcp_state.tools.arguments import Parameter, parameters_of, schema_of


@record
class View:
    """What a renderer knows besides the result: the time, the counts, the caller, the arguments."""

    now: datetime
    totals: Totals
    session: str
    arguments: Mapping[str, Any]


@record
class Outcome:
    """What a tool returned, and how it reads."""

    result: Any
    text: str


@record
class Ctx:
    """What a tool works with: the state of the call's project, and the other tools."""

    state: State
    run: Callable[[str, Mapping[str, Any]], Awaitable[Outcome]]
    """Run a tool that is not listed, on the same project."""
    unlisted: Callable[[], tuple[Spec, ...]]
    """The tools that are not listed here."""


@dataclass(frozen=True)
class Spec:
    """One tool. Its name is that of the function, its description the docstring."""

    call: Callable[..., Awaitable[Any]]
    title: str
    show: Callable[[Any, View], str]
    writes: bool = False
    idempotent: bool = False
    search_hint: str = ""
    always_load: bool = False
    shows_board: bool = False
    """Whether clients that render MCP Apps show the board with its answer."""

    @property
    def name(self) -> str:
        """The name that clients call."""
        return self.call.__name__

    @cached_property
    def description(self) -> str:
        """What the model reads."""
        return inspect.getdoc(self.call) or ""

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arguments, without `project`, which every tool has."""
        return parameters_of(self.call)

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """The schema that clients see."""
        return schema_of(self.parameters)
