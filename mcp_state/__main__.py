"""`python -m mcp_state` is `mcp-state`."""

from mcp_state.cli import main

if __name__ == "__main__":
    main(prog_name="mcp-state")
