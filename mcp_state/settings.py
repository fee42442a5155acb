"""What a server is started with. The command line makes it; nothing else reads the environment."""

from __future__ import annotations

import os
import re
from dataclasses import field
from urllib.parse import quote, unquote

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


_ADDRESS = re.compile(
    r"(?P<scheme>postgres(?:ql)?://)(?:(?P<who>[^/]*)@)?(?P<where>[^?]*)(?:\?(?P<options>.*))?",
    re.DOTALL,
)
_SHOWN_OPTIONS = ("host", "hostaddr", "port", "dbname", "service", "schema")


def is_address(path: str) -> bool:
    """Whether a store is named by the address of a server, not by the path of a file."""
    return path.startswith(("postgresql://", "postgres://"))


def parts_of_address(address: str) -> tuple[str, list[tuple[str, str]]]:
    """An address up to its options, and those: taken apart as libpq does, not as a browser would.

    A password may hold what begins a query or a fragment elsewhere, and a `+` is no space.
    """
    found = _ADDRESS.fullmatch(address)
    assert found is not None
    options = [one.partition("=") for one in (found["options"] or "").split("&") if one]
    before = address if found["options"] is None else address[: found.start("options") - 1]
    return before, [(unquote(name), unquote(value)) for name, _, value in options]


def shown_address(address: str) -> str:
    """An address with no more than what says where the store is: no name, no password."""
    before, options = parts_of_address(address)
    scheme, _, where = before.partition("://")
    shown = [f"{name}={quote(value, '/')}" for name, value in options if name in _SHOWN_OPTIONS]
    return f"{scheme}://{where.rpartition('@')[2]}{'?' if shown else ''}{'&'.join(shown)}"


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
