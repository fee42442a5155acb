"""`mcp-state demo`: an agent is killed at work, another one finishes, and the claims are checked.

Everything in it is real: two agent processes, each an MCP client with a server of its own, a
project with files, `kill -9`, and a store that is read with plain `sqlite3` at the end.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mcp_state.cli import demo_long, demo_truth
from mcp_state.cli.demo_check import WRITTEN, Story, Write, event_of, examine, identity
from mcp_state.cli.demo_stage import (
    command,
    cut,
    go_on,
    kill,
    make_project,
    reports,
    running,
    say,
    title,
    verdict,
)
from mcp_state.cli.groups import Documented

_AGENT = "mcp_state.cli.demo_agent"
_FILES = 12
_KILLED_AT = "orders-08"
_CALL, _ANSWER = 62, 48
"""Columns of a call and of its answer."""
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


@click.command(
    cls=Documented,
    epilog="""
    mcp-state demo
    mcp-state demo --long --seed 7
    """,
)
@click.option("--long", "is_long", is_flag=True, help="300 files in one run, killed ten times.")
@click.option(
    "--truth", is_flag=True, help="What was believed in the evening is checked in the morning."
)
@click.option("--seed", type=int, help="With --long: decides where the kills fall; else drawn.")
@click.option("--keep", is_flag=True, help="Keep the directory with the project and the store.")
def demo(is_long: bool, truth: bool, seed: int | None, keep: bool) -> None:
    """Kill an agent at work, let another one finish, and check what was promised.

    With --truth nobody is killed, but what one agent believed is not true any more when the next
    one begins. Takes a few seconds, with --long about half a minute, in a temporary directory of
    its own. Exits 1 if a claim does not hold.
    """
    if is_long and truth:
        raise click.UsageError("--long and --truth exclude each other: each is a demo of its own")
    if seed is not None and not is_long:
        raise click.UsageError("--seed goes with --long: the short demo leaves nothing to chance")
    began = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="mcp-state-demo-")).resolve()
    try:
        if is_long:
            holds = demo_long.play(home, random.randrange(10**6) if seed is None else seed)
        elif truth:
            holds = demo_truth.play(home)
        else:
            holds = _play(home)
    finally:
        if not keep:
            shutil.rmtree(home)
    click.echo(f"\n{time.monotonic() - began:.1f} s" + (f", kept in {home}" if keep else ""))
    if not holds:
        raise SystemExit(1)


def _play(home: Path) -> bool:
    story = Story()
    make_project(home / "shop", _FILES, range(30, 90), _CHECK)
    say(f"A project with {_FILES} CSV files to convert, and a store that does not exist yet.")

    title("1", "ada, an agent, begins the job")
    _first_session(home, story)
    title("2", "ben, another agent in a new process, knows nothing but what orient tells")
    _second_session(home, story)

    title("3", "What was promised, read from the file with plain sqlite3")
    return verdict(examine(home / "state.db", home / "shop", story))


def _first_session(home: Path, story: Story) -> None:
    """Ada works until the middle of the eighth file."""
    with running(_AGENT, "ada", home) as ada:
        killed = False
        for said in reports(ada):
            if said.get("at") == _KILLED_AT:
                kill(ada, "ada", home)
                killed = True
                break
            _show("ada", said, story)
            if said.get("tool") in ("thread_claim", "journal_append"):
                go_on(ada)
        for said in reports(ada):  # what it still got to say
            _show("ada", said, story)
    if not killed:
        raise SystemExit(f"the first agent ended by itself, with exit code {ada.returncode}")
    say(f"kill -9 of the agent and of its server, while ada was at {_KILLED_AT}", "red")
    story.last_before_kill = story.writes[-1]
    for write in story.writes:
        if write.tool == "thread_check":
            path = home / "shop" / "data" / f"orders-{int(write.arguments['criterion']):02}.json"
            story.recorded[path] = identity(path)


def _second_session(home: Path, story: Story) -> None:
    """Ben reads, asks a person for what only people may do, and finishes."""
    with running(_AGENT, "ben", home) as ben:
        for said in reports(ben):
            if "ask" in said:
                _break_lease(home, said["ask"])
                go_on(ben)
            _show("ben", said, story)


def _break_lease(home: Path, thread: str) -> None:
    words = ["thread", "release", thread, "--force"]
    say(f"you   $ mcp-state {' '.join(words)}", "cyan")
    done = command(home, *words)
    done.check_returncode()
    for line in done.stdout.splitlines():
        click.echo(f"        {line}")


def _show(agent: str, said: Mapping[str, Any], story: Story) -> None:
    """Print a call with its answer, and keep what was acknowledged."""
    if "say" in said:
        say(f"{agent}   {said['say']}", "cyan")
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
        click.echo(f"{call} {cut(lines[tool == 'orient'], _ANSWER)}")
    if tool in WRITTEN:
        if tool == "thread_claim":
            arguments["thread"] = lines[1].split()[0]
        story.writes.append(Write(agent, tool, arguments, event_of(text)))


def _brief(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call in one line."""
    shown = ("thread", "key", "criterion", "status", "evidence")
    if tool == "thread_check":
        shown = ("thread", "criterion")
    elif tool == "journal_append":
        shown = ("text",)
    return cut(f"{tool}({', '.join(str(arguments[n]) for n in shown if n in arguments)})", _CALL)
