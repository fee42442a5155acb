"""Durable task state for coding agents, over MCP.

`open_store` is the Python API; `mcp_state.server` is the MCP server. Importing this package does
not import `mcp`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing` says, which takes a while to import
if TYPE_CHECKING:
    from mcp_state import errors, models
    from mcp_state.api import State, open_store

__version__ = "0.1.0"
__all__ = ["State", "__version__", "errors", "models", "open_store"]


def __getattr__(name: str) -> object:
    """What the package offers, imported when it is asked for: `hook` runs at every start."""
    import importlib

    if name in ("errors", "models"):
        return importlib.import_module(f"mcp_state.{name}")
    if name in ("State", "open_store"):
        return getattr(importlib.import_module("mcp_state.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
