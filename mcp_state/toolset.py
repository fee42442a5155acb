"""Toolsets: which tools a server lists, and what it says about itself. Data, not code."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from mcp_state.errors import BadArgument
from mcp_state.record import record
from mcp_state.tools import ALL_TOOLS
from mcp_state.tools.spec import Spec

LONGEST_INSTRUCTIONS = 500
_KEYS = {"description": str, "instructions": str, "read_only": bool, "tools": list}


@record
class Toolset:
    """What a toolset file says, checked."""

    name: str
    description: str
    instructions: str
    read_only: bool
    tools: tuple[Spec, ...]


def builtin_names() -> list[str]:
    """The toolsets that come with the package."""
    return sorted(f.name.removesuffix(".toml") for f in _folder().iterdir() if _is_toml(f))


def load(
    name: str, add: Sequence[str] = (), exclude: Sequence[str] = (), *, read_only: bool = False
) -> Toolset:
    """Load a toolset by name, or from a file whose path ends in `.toml`.

    Args:
        name: the name, or the path.
        add: further tools.
        exclude: tools to take away.
        read_only: list no tool that writes, whatever the file says.

    Raises:
        BadArgument: there is no such toolset or tool, or the file is wrong.
    """
    toolset = _read(name)
    chosen = [*toolset.tools, *(_spec(tool, "--tools") for tool in add)]
    away = {_spec(tool, "--exclude").name for tool in exclude}
    only_read = read_only or toolset.read_only
    tools = tuple(
        spec
        for spec in dict.fromkeys(chosen)
        if spec.name not in away and not (only_read and spec.writes)
    )
    return replace(toolset, tools=tools, read_only=only_read)


def narrowed(toolset: Toolset, name: str) -> Toolset:
    """What a token of the toolset `name` has of a server's: no tool that either lacks.

    It says of itself what that toolset does, unless the server has less.
    """
    inner = _read(name)
    tools = tuple(
        spec
        for spec in toolset.tools
        if spec in inner.tools and not (inner.read_only and spec.writes)
    )
    read_only = toolset.read_only or inner.read_only
    says = inner if len(tools) == len(inner.tools) else toolset
    if read_only and not says.read_only:
        says = _read("readonly")
    return replace(says, tools=tools, read_only=read_only)


def sets_with(tool: str) -> list[str]:
    """The names of the toolsets that list a tool."""
    return [name for name in builtin_names() if tool in {s.name for s in _read(name).tools}]


def nearest(tool: str) -> str:
    """` Did you mean X?`, or nothing."""
    near = difflib.get_close_matches(tool.lower(), [spec.name for spec in ALL_TOOLS], 1)
    return f" Did you mean {near[0]}?" if near else ""


def find(tool: str) -> Spec | None:
    """The tool of that name, whether it is listed or not."""
    return next((spec for spec in ALL_TOOLS if spec.name == tool), None)


def _read(name: str) -> Toolset:
    if name.endswith(".toml") or os.sep in name:
        source: Traversable = Path(name).expanduser()
    else:
        source = _folder() / f"{name}.toml"
    try:
        if not source.is_file():
            raise FileNotFoundError
        given = tomllib.loads(source.read_text(encoding="utf-8"))
    except (OSError, RuntimeError):  # RuntimeError: a loop of links, or no such home
        raise BadArgument(
            f"there is no toolset {name!r}",
            f"Use {', '.join(builtin_names())}, or the path of a .toml file.",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BadArgument(f"toolset {name}: {problem}", "Correct the file.") from None
    return _checked(name, given)


def _checked(name: str, given: dict[str, Any]) -> Toolset:
    for key, kind in _KEYS.items():
        if not isinstance(given.get(key), kind):
            raise BadArgument(
                f"toolset {name}: {key} is missing or not a {kind.__name__}", "Correct the file."
            )
    if unknown := given.keys() - _KEYS:
        raise BadArgument(
            f"toolset {name}: unknown key {sorted(unknown)[0]!r}",
            f"Keys are {', '.join(_KEYS)}.",
        )
    instructions = given["instructions"].strip()
    if len(instructions) > LONGEST_INSTRUCTIONS:
        raise BadArgument(
            f"toolset {name}: instructions have {len(instructions)} characters",
            f"At most {LONGEST_INSTRUCTIONS}; the first 240 must stand alone.",
        )
    return Toolset(
        name=Path(name).stem,
        description=given["description"],
        instructions=instructions,
        read_only=given["read_only"],
        tools=tuple(_spec(str(tool), f"toolset {name}") for tool in given["tools"]),
    )


def _spec(tool: str, where: str) -> Spec:
    spec = find(tool)
    if spec is None:
        raise BadArgument(
            f"{where} names an unknown tool {tool!r}",
            f"{nearest(tool)} Tools are {', '.join(s.name for s in ALL_TOOLS)}.".strip(),
        )
    return spec


def _folder() -> Traversable:
    """Inside the package when it was built, beside it in a checkout."""
    packaged = resources.files("mcp_state") / "toolsets"
    if packaged.is_dir():
        return packaged
    return Path(__file__).resolve().parent.parent / "toolsets"


def _is_toml(file: Traversable) -> bool:
    return file.name.endswith(".toml")
