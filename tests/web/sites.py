"""`mcp-state web` as a process of its own, as a person starts it; and a second one that writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

COMMAND = (sys.executable, "-P", "-m", "mcp_state")


@dataclass(frozen=True)
class Site:
    """A running server: the store that it shows, and the address it printed."""

    db: Path
    project: str
    address: str

    @property
    def origin(self) -> str:
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"

    def do(self, *words: str, agent: str = "codex", stdin: str = "") -> str:
        """Run a command on the same store, in a process of its own."""
        options = ("--db", str(self.db), "--project", self.project, "--agent", agent)
        done = subprocess.run(
            [*COMMAND, *words, *options],
            input=stdin,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def environment() -> dict[str, str]:
    """The caller's, without what would tell the server who it is."""
    private = ("MCP_STATE_", "CLAUDE_")
    return {k: v for k, v in os.environ.items() if not k.startswith(private)}


@contextmanager
def serving(
    db: Path, project: str, directory: Path | None = None, port: str = "0"
) -> Generator[Site]:
    """Serve a store until the block ends; without a project, that of the directory."""
    command = [*COMMAND, "web", "--no-open", "--db", str(db), "--port", port]
    with subprocess.Popen(
        [*command, "--project", project] if project else command,
        cwd=directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), address
            yield Site(db, project, address)
        finally:
            process.send_signal(signal.SIGINT)
            process.stdout.close()
            process.wait(timeout=20)
