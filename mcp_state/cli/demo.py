"""`mcp-state demo`: an agent is killed at work, another one finishes, and the claims are checked.

Everything in it is real: two agent processes, each an MCP client with a server of its own, a
project with files, `kill -9`, and a store that is read with plain `sqlite3` at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from mcp_state.cli.demo_check import WRITTEN, Story, Write, examine, identity

_FILES = 12
_KILLED_AT = "orders-08"
_PATIENCE = 60.0
_CALL, _ANSWER = 62, 48
"""Columns of a call and of its answer."""
_PYTHON = (sys.executable, "-P")
_ORIGIN = '[remote "origin"]\n\turl = https://github.com/acme/shop.git\n'
_CHECK = """\
import json, pathlib, sys

files = sorted(pathlib.Path("data").glob("*.csv"))
good = 0
for file in files:
    amounts = [line.split(";")[2] for line in file.read_text("utf-8").splitlines()[1:]]
    cents = [order["amount"] for order in json.loads(file.with_suffix(".json").read_text("utf-8"))]
    good += cents == [int(amount.replace(",", "")) for amount in amounts]
print(f"{good} of {len(files)} files agree")
sys.exit(good != len(files))
"""


@click.command()
@click.option("--keep", is_flag=True, help="Keep the directory with the project and the store.")
def demo(keep: bool) -> None:
    """Kill an agent at work, let another one finish, and check what was promised.

    Takes a few seconds, in a temporary directory of its own. Exits 1 if a claim does not hold.
    """
    began = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="mcp-state-demo-")).resolve()
    try:
        holds = _play(home)
    finally:
        if not keep:
            shutil.rmtree(home)
    click.echo(f"\n{time.monotonic() - began:.1f} s" + (f", kept in {home}" if keep else ""))
    if not holds:
        raise SystemExit(1)


def _play(home: Path) -> bool:
    story = Story()
    _make_project(home / "shop")
    _say(f"A project with {_FILES} CSV files to convert, and a store that does not exist yet.")

    _title("1", "ada, an agent, begins the job")
    _first_session(home, story)
    _title("2", "ben, another agent in a new process, knows nothing but what orient tells")
    _second_session(home, story)

    _title("3", "What was promised, read from the file with plain sqlite3")
    claims = list(examine(home / "state.db", home / "shop", story))
    for claim in claims:
        mark = click.style("ok    ", "green") if claim.holds else click.style("FAILED", "red")
        click.echo(f"  {mark} {claim.text}")
    return all(claim.holds for claim in claims)


def _make_project(project: Path) -> None:
    """Files of a shop, in what every client takes for a git repository."""
    data, git = project / "data", project / ".git"
    for folder in (data, git / "objects", git / "refs"):
        folder.mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (git / "config").write_text(_ORIGIN, encoding="utf-8")
    (project / "check.py").write_text(_CHECK, encoding="utf-8")
    chance = random.Random(2026)
    for number in range(1, _FILES + 1):
        orders = [
            f"{number * 1000 + n};customer {chance.randrange(900)};"
            f"{chance.randrange(500)},{chance.randrange(100):02}"
            for n in range(chance.randrange(30, 90))
        ]
        text = "\n".join(["order;customer;amount", *orders, ""])
        (data / f"orders-{number:02}.csv").write_text(text, encoding="utf-8")


def _first_session(home: Path, story: Story) -> None:
    """Ada works until the middle of the eighth file."""
    with _agent("ada", home) as ada:
        assert ada.stdin is not None
        killed = False
        for said in _reports(ada):
            if said.get("at") == _KILLED_AT:
                _kill(ada, home / "ada-server.pid")
                killed = True
                break
            _show("ada", said, story)
            if said.get("tool") in ("thread_claim", "journal_append"):
                ada.stdin.write(b"go on\n")
                ada.stdin.flush()
        for said in _reports(ada):  # what it still got to say
            _show("ada", said, story)
    if not killed:
        raise SystemExit(f"the first agent ended by itself, with exit code {ada.returncode}")
    _say(f"kill -9 of the agent and of its server, while ada was at {_KILLED_AT}", "red")
    story.last_before_kill = story.writes[-1]
    for write in story.writes:
        if write.tool == "thread_check":
            path = home / "shop" / "data" / f"orders-{int(write.arguments['criterion']):02}.json"
            story.recorded[path] = identity(path)


def _second_session(home: Path, story: Story) -> None:
    """Ben reads, asks a person for what only people may do, and finishes."""
    with _agent("ben", home) as ben:
        assert ben.stdin is not None
        for said in _reports(ben):
            if "ask" in said:
                _break_lease(home, said["ask"])
                ben.stdin.write(b"go on\n")
                ben.stdin.flush()
            _show("ben", said, story)


@contextmanager
def _agent(name: str, home: Path) -> Generator[subprocess.Popen[bytes]]:
    """An agent as a process group of its own; nothing of it is left behind."""
    agent = subprocess.Popen(
        [*_PYTHON, "-m", "mcp_state.cli.demo_agent", name, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=home / "shop",
        env=_environment(),
        start_new_session=True,
    )
    watch = threading.Timer(_PATIENCE, _kill, (agent, home / f"{name}-server.pid"))
    watch.start()
    try:
        with agent:
            yield agent
    finally:
        watch.cancel()
        _kill(agent, home / f"{name}-server.pid")


def _environment() -> dict[str, str]:
    private = ("MCP_STATE_", "CLAUDE_")
    return {k: v for k, v in os.environ.items() if not k.startswith(private)}


def _reports(agent: subprocess.Popen[bytes]) -> Iterator[Mapping[str, Any]]:
    """What the agent says, until it is gone; half a line is no report."""
    assert agent.stdout is not None
    for line in agent.stdout:
        if line.endswith(b"\n"):
            yield json.loads(line)


def _kill(agent: subprocess.Popen[bytes], server_pid: Path) -> None:
    """`kill -9` of an agent that still runs, its group, and its server."""
    if agent.poll() is None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int(server_pid.read_text("ascii")), signal.SIGKILL)
        os.killpg(agent.pid, signal.SIGKILL)


def _break_lease(home: Path, thread: str) -> None:
    """What a person types, in the project's directory."""
    command = ["thread", "release", thread, "--force"]
    _say(f"you   $ mcp-state {' '.join(command)}", "cyan")
    done = subprocess.run(
        [*_PYTHON, "-m", "mcp_state", *command],
        cwd=home / "shop",
        env=_environment() | {"MCP_STATE_DB": str(home / "state.db")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        click.echo(f"        {line}")


def _show(agent: str, said: Mapping[str, Any], story: Story) -> None:
    """Print a call with its answer, and keep what was acknowledged."""
    if "say" in said:
        _say(f"{agent}   {said['say']}", "cyan")
    if "tool" not in said:
        return
    tool, text, arguments = said["tool"], said["text"], dict(said["arguments"])
    lines = text.splitlines()
    call = f"  {agent}   {_brief(tool, arguments):<{_CALL}}"
    if said["refused"]:
        click.echo(f"{call} refused")
        click.echo(f"        {click.style(lines[0], 'yellow')}")
        return
    if tool == "orient" and agent == "ben":
        click.echo(call.rstrip())
        for line in lines:
            click.echo(f"      | {line}")
    else:
        click.echo(f"{call} {_cut(lines[tool == 'orient'], _ANSWER)}")
    if tool in WRITTEN:
        if tool == "thread_claim":
            arguments["thread"] = lines[1].split()[0]
        (event,) = re.findall(r"event (\d+)\]$", text)
        story.writes.append(Write(agent, tool, arguments, int(event)))


def _brief(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call in one line."""
    shown = ("thread", "key", "criterion", "status", "evidence")
    if tool == "thread_check":
        shown = ("thread", "criterion")
    elif tool == "journal_append":
        shown = ("text",)
    return _cut(f"{tool}({', '.join(str(arguments[n]) for n in shown if n in arguments)})", _CALL)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _title(number: str, text: str) -> None:
    click.echo(f"\n{click.style(f'{number}  {text}', bold=True)}")


def _say(text: str, colour: str | None = None) -> None:
    click.echo(click.style(f"  {text}", colour) if colour else text)
