"""What the tests of `mcp-state install` share: an empty home directory, and the files in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

CONFIGS: Mapping[str, str] = {
    "codex": ".codex/config.toml",
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "gemini": ".gemini/settings.json",
}
VARIABLES = (
    "APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME",
    "MCP_STATE_DB", "MCP_STATE_PROJECT", "MCP_STATE_AGENT",
    "CLAUDE_PROJECT_DIR", "CLAUDE_CODE_SESSION_ID",
)  # fmt: skip
"""What would lead out of the home directory, or into another project."""


def tree(folder: Path) -> dict[str, bytes]:
    """Every file under a directory, but for copies that an installation left."""
    return {
        str(one.relative_to(folder)): one.read_bytes()
        for one in sorted(folder.rglob("*"))
        if one.is_file() and ".before-mcp-state" not in one.name
    }
