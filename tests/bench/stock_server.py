"""A tool that does nothing, served as the SDK's documentation shows it."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("stock")


@server.tool()
async def noop() -> str:
    """Do nothing."""
    return "ok"


if __name__ == "__main__":
    server.run()
