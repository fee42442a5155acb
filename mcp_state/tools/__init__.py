"""The one list of all tools."""

from mcp_state.tools import (
    blobs,
    handoffs,
    journal,
    memory,
    op,
    orientation,
    runs,
    threads,
    truth,
)
from mcp_state.tools.spec import Spec

ALL_TOOLS: tuple[Spec, ...] = (
    *orientation.TOOLS,
    *memory.TOOLS,
    *threads.TOOLS,
    *journal.TOOLS,
    *runs.TOOLS,
    *truth.TOOLS,
    *blobs.TOOLS,
    *handoffs.TOOLS,
    *op.TOOLS,
)
