"""The one list of all tools."""

from mcp_state.tools import journal, memory, op, orientation, threads
from mcp_state.tools.spec import Spec

ALL_TOOLS: tuple[Spec, ...] = (
    *orientation.TOOLS,
    *memory.TOOLS,
    *threads.TOOLS,
    *journal.TOOLS,
    *op.TOOLS,
)
