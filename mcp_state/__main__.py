"""`mcp-state`, which is also `python -m mcp_state`."""

import gc
import sys


def main() -> None:
    """Run the command line.

    A start makes some hundred thousand objects, nearly all of which stay: looking through them for
    garbage at every 700th, as Python does by itself, is a tenth of the time of a short command.
    """
    gc.set_threshold(10_000)
    opening = None
    if sys.argv[1:2] == ["serve"]:
        from mcp_state import front

        opening = front.begin(sys.argv[2:], _load_server)
    from mcp_state.cli import main as command_line

    try:
        command_line(prog_name="mcp-state", obj=opening)
    except SystemExit as end:
        _end_before_a_thread_wakes(end)
        raise


def _end_before_a_thread_wakes(end: SystemExit) -> None:
    """End here and now if a daemon thread is left, and all that is written could be flushed.

    Python 3.11 takes its own structures apart while such a thread can still wake and use them: a
    process that has done its work would be killed by a segmentation fault.
    """
    import os
    import threading

    others = [one for one in threading.enumerate() if one is not threading.main_thread()]
    if not any(one.daemon for one in others) or not isinstance(end.code, int | None):
        return
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):  # nobody reads it: that has a code of its own
        return
    os._exit(end.code or 0)


def _load_server() -> None:
    import importlib

    gc.disable()
    for name in ("cli.serve", "server", "transport"):
        importlib.import_module(f"mcp_state.{name}")
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    main()
