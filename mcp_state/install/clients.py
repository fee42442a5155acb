"""The clients: where each keeps its configuration, and what an entry of ours needs there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from mcp_state.record import record

MINIMAL = (
    "HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "USER",
    "APPDATA", "LOCALAPPDATA", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE",
)  # fmt: skip
"""What is left of the environment where a client gives only a minimum."""
START_LIMIT = 30
"""How many seconds the clients wait for a server to start."""


@record
class Place:
    """Where things are on this machine; `platform` is that of `sys`."""

    home: Path
    environment: Mapping[str, str]
    platform: str

    def directory(self, variable: str, *otherwise: str) -> Path:
        """The directory that a variable names, else one under the home directory."""
        return Path(self.environment.get(variable) or self.home.joinpath(*otherwise))

    def application_data(self) -> Path:
        """Where programs with windows keep their configuration."""
        if self.platform == "win32":
            return self.directory("APPDATA", "AppData", "Roaming")
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.directory("XDG_CONFIG_HOME", ".config")


@record
class Client:
    """A client: names, files, and what it does with servers.

    `first` is what an entry gets once, besides its command; a person may change it. `approval` says
    which tools run without being asked for; it has a place for those that write where files can
    permit that (`permits`). `folder` is the working directory of its servers; empty for that of the
    session. `minimal` clients keep most of the environment to themselves.
    """

    name: str
    title: str
    config: Callable[[Place], Path]
    servers: str
    approval: str
    permits: bool = False
    first: Mapping[str, Any] = field(default_factory=dict[str, Any])
    minimal: bool = True
    folder: str = ""
    instructions: Callable[[Place], Path] | None = None

    @property
    def toml(self) -> bool:
        """Whether its configuration is TOML."""
        return self.name == "codex"

    @property
    def has_hooks(self) -> bool:
        """Whether it runs commands at the events of a session that are ours to answer."""
        return self.name in ("codex", "claude-code")


def codex_home(place: Place) -> Path:
    """Where Codex keeps its files."""
    return place.directory("CODEX_HOME", ".codex")


def claude_home(place: Place) -> Path:
    """Where Claude Code keeps its files, but for the one with the servers."""
    return place.directory("CLAUDE_CONFIG_DIR", ".claude")


def gemini_home(place: Place) -> Path:
    """Where Gemini CLI keeps its files."""
    return place.directory("GEMINI_CLI_HOME") / ".gemini"


def store_packages(place: Place) -> list[Path]:
    """The directories of Claude Desktop where it came from the Windows Store.

    Such a package sees a directory of its own in the place of the usual one.
    """
    if place.platform != "win32":
        return []
    packages = place.directory("LOCALAPPDATA", "AppData", "Local") / "Packages"
    found = [one / "LocalCache" / "Roaming" for one in sorted(packages.glob("Claude_*"))]
    return [one / "Claude" for one in found if one.is_dir()]


def _claude_json(place: Place) -> Path:
    return place.directory("CLAUDE_CONFIG_DIR") / ".claude.json"


def _claude_desktop(place: Place) -> Path:
    name = "claude_desktop_config.json"
    usual = place.application_data() / "Claude" / name
    packaged = [one / name for one in store_packages(place)]
    return next((one for one in packaged if one.exists()), packaged[0] if packaged else usual)


CLIENTS: Mapping[str, Client] = {
    one.name: one
    for one in (
        Client(
            name="codex",
            title="Codex",
            config=lambda place: codex_home(place) / "config.toml",
            servers="mcp_servers",
            approval="Codex runs every tool unasked, since each says that it destroys nothing",
            first={"required": True, "startup_timeout_sec": START_LIMIT},
            instructions=lambda place: codex_home(place) / "AGENTS.md",
        ),
        Client(
            name="claude-code",
            title="Claude Code",
            config=_claude_json,
            servers="mcpServers",
            approval="Claude Code runs the tools that read unasked, and {writing}",
            permits=True,
            first={"type": "stdio", "alwaysLoad": True},
            minimal=False,
            instructions=lambda place: claude_home(place) / "CLAUDE.md",
        ),
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            config=_claude_desktop,
            servers="mcpServers",
            approval='Claude Desktop asks for a tool until "Always allow" is chosen for it',
            folder="/",
        ),
        Client(
            name="cursor",
            title="Cursor",
            config=lambda place: place.home / ".cursor" / "mcp.json",
            servers="mcpServers",
            approval="Cursor asks for a tool that is not in its allowlist (Settings, Auto-run)",
            first={"type": "stdio"},
        ),
        Client(
            name="vscode",
            title="VS Code",
            config=lambda place: place.application_data() / "Code" / "User" / "mcp.json",
            servers="servers",
            approval="VS Code asks for a tool until it is allowed; it is told which only read",
            first={"type": "stdio"},
            minimal=False,
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            config=lambda place: gemini_home(place) / "settings.json",
            servers="mcpServers",
            approval="Gemini CLI runs the tools that read unasked, and {writing}",
            permits=True,
            first={"timeout": START_LIMIT * 1000},
            minimal=False,
            instructions=lambda place: gemini_home(place) / "GEMINI.md",
        ),
    )
}
