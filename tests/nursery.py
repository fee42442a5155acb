"""Forks servers from a process that has imported all that they need.

Importing takes a second of processor time; what is tested here starts hundreds of servers. Each is
a process of its own that runs its program from the beginning. Over the socket on stdin come
requests: to run one, with its descriptors, answered by its process id; and to wait for one,
answered by its exit code. Until then the dead are kept, so that no process id is given out again.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

import tiny_server

from mcp_state.cli import main


def nurse() -> None:
    for module in ("mcp_state.cli.serve", "mcp_state.server", "mcp_state.transport"):
        importlib.import_module(module)
    asked = socket.socket(fileno=0)
    while True:
        data, descriptors, _, _ = socket.recv_fds(asked, 1 << 16, 4)
        if not data:
            asked.close()
            return
        request = json.loads(data)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                asked.detach()
                os.setsid()
                run(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        asked.sendall(b"%d\n" % answer)


def run(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Be the process that was asked for, to its end."""
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if "mcp-state" in request:
        sys.exit(main(request["mcp-state"], prog_name="mcp-state"))
    os.environ["TOLD"] = str(descriptors[3])
    sys.exit(asyncio.run(tiny_server.main()))


if __name__ == "__main__":
    nurse()
