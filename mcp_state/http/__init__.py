"""The MCP server over HTTP: many clients of one store, each let in by its token."""
