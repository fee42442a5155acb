"""Durable task state for coding agents, over MCP.

`open_store` is the Python API; `mcp_state.server` is the MCP server. Importing this package does
not import `mcp`.
"""

from mcp_state.api import State, open_store

__version__ = "0.1.0"
__all__ = ["State", "__version__", "open_store"]
