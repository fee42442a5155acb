"""What the demos need: a project with files, agents as processes of their own, and a narrator."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from mcp_state.cli.demo_check import Claim

PYTHON = (sys.executable, "-P")
_PATIENCE = 60.0
_ORIGIN = '[remote "origin"]\n\turl = https://github.com/acme/shop.git\n'


def make_project(project: Path, files: int, orders: range, check: str) -> list[str]:
    """CSV files of a shop, in what every client takes for a git repository; returns their names.

    `orders` is how many there may be in a file, `check` the text of the program that checks them.
    """
    data, git = project / "data", project / ".git"
    for folder in (data, git / "objects", git / "refs"):
        folder.mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (git / "config").write_text(_ORIGIN, encoding="utf-8")
    (project / "check.py").write_text(check, encoding="utf-8")
    chance = random.Random(2026)
    names = [f"orders-{number:0{len(str(files))}}" for number in range(1, files + 1)]
    for number, name in enumerate(names, start=1):
        rows = [
            f"{number * 1000 + n};customer {chance.randrange(900)};"
            f"{chance.randrange(500)},{chance.randrange(100):02}"
            for n in range(chance.choice(orders))
        ]
        text = "\n".join(["order;customer;amount", *rows, ""])
        (data / f"{name}.csv").write_text(text, encoding="utf-8")
    return names


@contextmanager
def running(module: str, name: str, home: Path) -> Generator[subprocess.Popen[bytes]]:
    """A running agent as a process group of its own; nothing of it is left behind."""
    process = subprocess.Popen(
        [*PYTHON, "-m", module, name, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=home / "shop",
        env=environment(),
        start_new_session=True,
    )
    watch = threading.Timer(_PATIENCE, kill, (process, name, home))
    watch.start()
    try:
        with process:
            yield process
    finally:
        watch.cancel()
        kill(process, name, home)


def environment() -> dict[str, str]:
    """The caller's, without what would tell a server of the demo who it is."""
    private = ("MCP_STATE_", "CLAUDE_")
    return {k: v for k, v in os.environ.items() if not k.startswith(private)}


def reports(process: subprocess.Popen[bytes]) -> Iterator[Mapping[str, Any]]:
    """What the agent says, until it is gone; half a line is no report."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith(b"\n"):
            yield json.loads(line)


def go_on(process: subprocess.Popen[bytes]) -> None:
    """Let an agent that waits for it do the next thing."""
    assert process.stdin is not None
    process.stdin.write(b"go on\n")
    process.stdin.flush()


def kill(process: subprocess.Popen[bytes], name: str, home: Path) -> None:
    """`kill -9` of an agent that still runs, its group, and its server."""
    if process.poll() is None:
        kill_server(name, home)
        kill_agent(process)


def kill_agent(process: subprocess.Popen[bytes]) -> None:
    """`kill -9` of an agent and its group; its server is in another one."""
    os.killpg(process.pid, signal.SIGKILL)


def kill_server(name: str, home: Path) -> None:
    """`kill -9` of the server of an agent, if it has one."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((home / f"{name}-server.pid").read_text("ascii")), signal.SIGKILL)


def command(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What a person types, in the project's directory."""
    return subprocess.run(
        [*PYTHON, "-m", "mcp_state", *words],
        cwd=home / "shop",
        env=environment() | {"MCP_STATE_DB": str(home / "state.db")},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )


def doctor(home: Path) -> Iterator[Claim]:
    """What the store's own check says."""
    done = command(home, "doctor")
    last = done.stdout.strip().rpartition("\n")[2]
    yield Claim(done.returncode == 0, f"mcp-state doctor: exit {done.returncode}; {last}")


def verdict(claims: Iterable[Claim]) -> bool:
    """Print the claims; whether all of them hold."""
    told = list(claims)
    for claim in told:
        mark = click.style("ok    ", "green") if claim.holds else click.style("FAILED", "red")
        click.echo(f"  {mark} {claim.text}")
    return all(claim.holds for claim in told)


def cut(text: str, room: int) -> str:
    """The text, or as much of it as there is room for."""
    return text if len(text) <= room else f"{text[: room - 1]}…"


def title(number: str, text: str) -> None:
    """Begin a part."""
    click.echo(f"\n{click.style(f'{number}  {text}', bold=True)}")


def say(text: str, colour: str | None = None) -> None:
    """One line of the narrator."""
    click.echo(click.style(f"  {text}", colour) if colour else text)
