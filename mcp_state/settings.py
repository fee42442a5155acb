"""What a server is started with. The command line makes it; nothing else reads the environment."""

from __future__ import annotations

import os
from dataclasses import field
from urllib.parse import urlsplit, urlunsplit

from mcp_state.errors import BadArgument
from mcp_state.models import Limits
from mcp_state.record import record


@record
class Settings:
    """Everything that can be chosen at start.

    `directory` is the working directory, `client_directory` what the client says the project's
    directory is (CLAUDE_PROJECT_DIR), `session` its name for the session; all may be empty.
    """

    db: str
    project: str = ""
    agent: str = ""
    toolset: str = "coding"
    tools: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    read_only: bool = False
    structured: bool = False
    allow_secrets: bool = False
    trace: bool = False
    wait: float = 10.0
    directory: str = ""
    client_directory: str = ""
    session: str = ""
    home: str = ""
    limits: Limits = field(default_factory=Limits)


def is_address(path: str) -> bool:
    """Whether a store is named by the address of a server, not by the path of a file."""
    return path.startswith(("postgresql://", "postgres://"))


def shown_address(address: str) -> str:
    """An address without the password, and without the name that goes with it."""
    parts = urlsplit(address)
    ending = urlunsplit(("", "", parts.path, parts.query, ""))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{ending}"


def store_path(given: str, directory: str, source: str) -> str:
    """The absolute path of the store, or its address.

    Args:
        given: what `--db` or MCP_STATE_DB says; empty for the user's own store, `postgresql://…`
            for one on a server.
        directory: the working directory.
        source: what to call `given` in an error.

    Raises:
        BadArgument: the path is relative.
    """
    if not given:
        from platformdirs import user_data_path

        return str(user_data_path("mcp-state") / "state.db")
    if is_address(given):
        return given
    path = os.path.expanduser(given)
    if not os.path.isabs(path):
        raise BadArgument(
            f"{source} is {given!r}, a relative path; here it would mean "
            f"{os.path.normpath(os.path.join(directory, path))}, elsewhere another file",
            "Give an absolute path.",
        )
    return os.path.realpath(path)  # or two spellings would be two stores with two queues
