"""`mcp-state demo --truth`: what one agent believed in the evening, another finds in the morning.

Nobody is killed here. Two sessions, each an agent with a server of its own; in between the world
changes: a pull request is merged, a file is edited.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click

from mcp_state.cli.demo_check import Write, event_of
from mcp_state.cli.demo_stage import (
    cut,
    doctor,
    make_project,
    reports,
    running,
    say,
    title,
    verdict,
)
from mcp_state.cli.demo_truth_check import TRUTH_WRITTEN, TruthStory, examine_truth

_AGENT = "mcp_state.cli.demo_truth_agent"
_CALL = 120
"""Columns of a call."""
_GIVEN: Mapping[str, Mapping[str, Any]] = {
    "thread_set": {"status": None, "evidence": None, "next_action": None}
}
"""What stands for the arguments that were left out."""
_HEADING = re.compile(r"[A-Z][A-Z ]+$")
_SHOWN = (
    ("OBJECTIVE", "NOW", "CHECK BEFORE YOU RELY ON IT"),
    ("NOW", "NO LONGER HOLDS"),
)
"""The parts of ben's first and second packet that are printed."""
_TOUCHED = re.compile(r"^FELL with it.*: (.*)$", re.MULTILINE)
_ALARM = re.compile(
    r"^\s*(?:(?:or )?because |and )?(?:FELL|DOES NOT HOLD|RELIES ON WHAT|NO LONGER)\b|.*\bCHANGED\b"
)
_CONTRACT = "# What the customers send\n\namount: decimal comma\n"
_GH = """\
#!/bin/sh
echo "${DEMO_AGENT:-somebody} gh $*" >> "$0.log"
cat "$0.state"
"""
_CHECK = """\
import pathlib, re, sys

files = sorted(pathlib.Path("data").glob("*.csv"))
rows = [row for file in files for row in file.read_text("utf-8").splitlines()[1:]]
good = sum(bool(re.search(r";\\d+,\\d\\d$", row)) for row in rows)
print(f"{good} of {len(rows)} orders can be imported")
sys.exit(good != len(rows))
"""


def play(home: Path) -> bool:
    """Play it in this directory; whether every claim holds."""
    _make_world(home)
    story = TruthStory(
        refuted="pr-830",
        fell=["merge-friday"],
        facts={
            "pr-830": ("trusted", "PR 830 is merged"),
            "api-contract": ("trusted", "Amounts have a decimal comma"),
            "merge-friday": ("stale", "PR 830 goes in on Friday"),
            "import-ready": ("trusted", "Import v2 works"),
        },
        asked=["ada", "ben", "ben"],
    )
    say("A project with a contract and a pull request, and a store that does not exist yet.")

    title("1", "Monday evening: ada, an agent, writes down what she believes and how to check it")
    _session("ada", home, story)
    title("2", "Overnight, which takes no time here")
    _overnight(home)
    title("3", "Tuesday: ben, another agent in a new process, knows nothing but what orient tells")
    _session("ben", home, story)

    title("6", "What was promised, read from the file with plain sqlite3")
    claims = examine_truth(home / "state.db", home / "bin" / "gh.log", story)
    return verdict(itertools.chain(claims, doctor(home)))


def _make_world(home: Path) -> None:
    make_project(home / "shop", 2, range(3, 6), _CHECK)
    (home / "shop" / "docs").mkdir()
    (home / "shop" / "docs" / "contract.md").write_text(_CONTRACT, encoding="utf-8")
    gh = home / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(_GH, encoding="utf-8")
    gh.chmod(0o755)
    gh.with_name("gh.state").write_text("OPEN\n", encoding="utf-8")


def _overnight(home: Path) -> None:
    say(
        "somebody merges PR 830, and adds a line to docs/contract.md. Nobody tells the store.",
        "red",
    )
    (home / "bin" / "gh.state").write_text("MERGED\n", encoding="utf-8")
    with (home / "shop" / "docs" / "contract.md").open("a", encoding="utf-8") as contract:
        contract.write("discount: whole percents, may be left out\n")


def _session(agent: str, home: Path, story: TruthStory) -> None:
    """One agent from its start to its end."""
    acts = itertools.count(4)
    packets = iter(_SHOWN)
    with running(_AGENT, agent, home) as process:
        for said in reports(process):
            if "act" in said:
                title(str(next(acts)), said["act"])
            elif "say" in said:
                say(f"{agent}   {said['say']}", "cyan")
            elif "ran" in said:
                check = said["ran"].removeprefix("file:")
                runs = f"$ {check}" if check == said["ran"] else f"reads {check}:"
                say(f"{agent}   {runs}   {said['printed']}", "cyan")
            else:
                _show(agent, said, packets)
                _keep(agent, said, story)
    if process.returncode:
        raise SystemExit(f"{agent} ended by itself, with exit code {process.returncode}")


def _show(agent: str, said: Mapping[str, Any], packets: Iterator[Sequence[str]]) -> None:
    """Print a call, and of its answer what matters here."""
    click.echo(cut(f"  {agent}   {_brief(said['tool'], said['arguments'])}", _CALL))
    lines = said["text"].splitlines()
    if said["refused"]:
        click.echo(click.style(f"        {lines[0]}", "yellow"))
        return
    if said["tool"] == "orient":
        lines = [lines[0], *_parts(lines, next(packets))]
    elif agent == "ada":
        lines = lines[:1]
    else:
        lines = lines[:-1]
    for line in lines:
        shown = f"      | {line}"
        click.echo(click.style(shown, "red") if _ALARM.match(line) else shown)


def _parts(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
    """Those parts of a packet, each with its heading."""
    shows = False
    for line in lines:
        if not line.startswith(" "):
            shows = _HEADING.match(line) is not None and line in wanted
        if shows:
            yield line


def _brief(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call in one line, as an agent would write it."""
    if tool == "state_op":
        return _brief(arguments["op"], arguments["arguments"])
    words = [f"{name}={_word(value)}" for name, value in arguments.items() if value != ""]
    return f"{tool}({', '.join(words)})"


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(cast(list[str], value))}]" if isinstance(value, list) else str(value)


def _keep(agent: str, said: Mapping[str, Any], story: TruthStory) -> None:
    """Keep what was acknowledged, at the event that the write itself was given."""
    tool, text = said["tool"], said["text"]
    if said["refused"]:
        story.refused += 1
    elif tool in TRUTH_WRITTEN:
        story.writes.append(acknowledged(agent, tool, said["arguments"], text))


def acknowledged(agent: str, tool: str, arguments: Mapping[str, Any], answer: str) -> Write:
    """The write that was acknowledged: the events of what it touched come after its own."""
    after = sum(len(names.split(", ")) for names in _TOUCHED.findall(answer))
    given = {**_GIVEN.get(tool, {}), **arguments}
    return Write(agent, tool, given, event_of(answer) - after)
