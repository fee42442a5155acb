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

    command_line(prog_name="mcp-state", obj=opening)


def _load_server() -> None:
    import importlib

    gc.disable()
    for name in ("cli.serve", "server", "transport"):
        importlib.import_module(f"mcp_state.{name}")
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    main()
