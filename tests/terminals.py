"""A real terminal of a given width, or a pipe, and what commands print on it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence

CODE = """
import json, sys
from mcp_state.cli import main
commands = json.load(open(sys.argv[1]))
for words in commands:
    try:
        main(words, prog_name="mcp-state")
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    print(f"\\x1e{code or 0}\\x1e", end="", flush=True)
"""
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(
    columns: int, commands: Sequence[Sequence[str]], script: os.PathLike[str], **env: str
) -> list[tuple[int, str]]:
    """What each command prints on a terminal, with its exit code, all run by one process."""
    with open(script, "w", encoding="utf-8") as file:
        json.dump(commands, file)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-c", CODE, script],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=_environment(env),
        close_fds=True,
    ) as process:
        os.close(theirs)
        data = _all_of(ours)
        os.close(ours)
    assert process.returncode == 0, data.decode()
    return _told_apart(data.decode().replace("\r\n", "\n"))


def on_pipe(
    commands: Sequence[Sequence[str]], script: os.PathLike[str], **env: str
) -> list[tuple[int, str]]:
    """What each command prints into a pipe, with its exit code, all run by one process."""
    with open(script, "w", encoding="utf-8") as file:
        json.dump(commands, file)
    done = subprocess.run(
        [sys.executable, "-c", CODE, script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=_environment(env),
        check=True,
    )
    return _told_apart(done.stdout.decode())


def _told_apart(printed: str) -> list[tuple[int, str]]:
    parts = printed.split("\x1e")
    return [(int(code), printed) for printed, code in zip(parts[::2], parts[1::2], strict=False)]


def _environment(changes: Mapping[str, str]) -> dict[str, str]:
    names = ("PATH", "HOME", "LANG")
    plain = {name: os.environ[name] for name in names if name in os.environ}
    return {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"} | plain | dict(changes)


def _all_of(terminal: int) -> bytes:
    data = b""
    while True:
        try:
            more = os.read(terminal, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            return data
        if not more:
            return data
        data += more


def unstyled(text: str) -> str:
    """A text without its colours."""
    return ESCAPES.sub("", text)
