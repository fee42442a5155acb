"""Forks `mcp-state serve` processes from one that has imported all that they need.

Importing takes a second of processor time; what is tested here starts hundreds of servers. Each is
a process of its own that runs the command line from its beginning. Over the socket on stdin come
the arguments with two descriptors, its stdin and stdout; the answer is its process id. The dead are
not waited for, so that no process id is given out again.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys

from mcp_state.cli import main


def nurse() -> None:
    for module in ("mcp_state.cli.serve", "mcp_state.server", "mcp_state.transport"):
        importlib.import_module(module)
    asked = socket.socket(fileno=0)
    while True:
        request, descriptors, _, _ = socket.recv_fds(asked, 1 << 16, 2)
        if not request:
            return
        process = os.fork()
        if not process:
            os.setsid()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            sys.exit(main(json.loads(request), prog_name="mcp-state"))
        for descriptor in descriptors:
            os.close(descriptor)
        asked.sendall(b"%d\n" % process)


if __name__ == "__main__":
    nurse()
