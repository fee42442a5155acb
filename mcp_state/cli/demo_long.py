"""`mcp-state demo --long`: a run of 300 files whose worker is killed ten times.

Each time a new process with a new server goes on. Which moments the kills hit is drawn from a seed;
what a kill does to the call that is under way is left to chance.
"""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from mcp_state.cli.demo_check import Write, event_of
from mcp_state.cli.demo_long_check import LONG_WRITTEN, Call, LongStory, examine_long
from mcp_state.cli.demo_stage import (
    doctor,
    go_on,
    kill_agent,
    kill_server,
    make_project,
    reports,
    running,
    say,
    title,
    verdict,
)

ITEMS, KILLS = 300, 10
_AGENT = "mcp_state.cli.demo_long_agent"
_LOCKED_EVERY = 40
_VICTIMS: Mapping[str, str] = {
    "agent": "the agent",
    "server": "its server",
    "both": "the agent and its server",
}
_MOMENTS: Mapping[tuple[str, bool], str] = {
    ("step_begin", False): "before it asked for {}",
    ("step_begin", True): "while it asked for {}",
    ("half", False): "when {} was half written",
    ("step_end", False): "when {} was converted, but not recorded",
    ("step_end", True): "while it recorded {}",
    ("run_checkpoint", True): "while it made a checkpoint",
}
"""Where the worker can be killed: what it was about to do, and whether it was told to go on."""
_WORDS: Mapping[str, str] = {
    "done": "done already",
    "found": "found on the disk",
    "converted": "converted",
    "failed": "failed",
}
_NUMBER = re.compile(r"(?:(?:go|recorded): .*, attempt|checkpoint) (\d+)\b")
_WARNING = re.compile(r"^tried \d+ times.*", re.MULTILINE)
_CHECK = """\
import pathlib, sys

files = sorted(pathlib.Path("data").glob("*.csv"))
good = sum(len(list(file.parent.glob(f"{file.stem}.*.json"))) == 1 for file in files)
print(f"{good} of {len(files)} files have one JSON")
sys.exit(good != len(files))
"""


@dataclass(frozen=True)
class Kill:
    """A kill to come: after so many files, at the next moment of this kind, and whom it hits."""

    after: int
    at: str
    sent: bool
    victim: str
    part: float
    """How long after the call left, in the time that such a call takes."""


def play(home: Path, seed: int) -> bool:
    """Play it in this directory; whether every claim holds."""
    names = make_project(home / "shop", ITEMS, range(3, 9), _CHECK)
    story = LongStory(names, _make_difficult(home / "shop" / "data", names), KILLS)
    say(f"A project with {ITEMS} CSV files to convert, and a store that does not exist yet.")
    say(f"Seed {seed} decides where the kills fall.")

    title("1", f"A run of {ITEMS} steps; {KILLS} times its worker is killed and another goes on")
    done: set[str] = set()
    for number, kill in enumerate([*plan(random.Random(seed), ITEMS, KILLS), None], start=1):
        _Session(f"worker-{number}", home, story, done, kill).play()

    title("2", "What was promised, read from the file with plain sqlite3, and from the disk")
    claims = examine_long(home / "state.db", home / "shop", story)
    return verdict(itertools.chain(claims, doctor(home)))


def plan(chance: random.Random, items: int, kills: int) -> Iterator[Kill]:
    """Kills all along the run, no two of the same kind on the same victim."""
    kinds = list(itertools.product(_MOMENTS, _VICTIMS))
    stretch = 0.9 * items / kills
    for number, ((at, sent), victim) in enumerate(chance.sample(kinds, kills)):
        after = int(number * stretch + chance.uniform(1, stretch))
        yield Kill(after, at, sent, victim, chance.uniform(0, 2))


def _make_difficult(data: Path, names: list[str]) -> str:
    """Make some fail at the first attempt, and one in the way of all others; returns that one."""
    for name in names[5::_LOCKED_EVERY]:
        (data / f"{name}.csv.lock").touch()
    odd = names[len(names) * 2 // 5]
    text = (data / f"{odd}.csv").read_text("utf-8").replace(";", "\t")
    (data / f"{odd}.csv").write_text(text, encoding="utf-8")
    return odd


@dataclass
class _Session:
    """One worker from its start to its end, as seen from outside."""

    name: str
    home: Path
    story: LongStory
    done: set[str]
    kill: Kill | None
    calling: Call | None = None
    """What was called and is not answered."""
    called_at: float = 0.0
    took: dict[str, float] = field(default_factory=dict[str, float])
    woke: str = ""
    counts: Counter[str] = field(default_factory=Counter[str])
    warned: str = ""
    lost: str = ""
    struck: str = ""

    def play(self) -> None:
        """Let it work until it is killed or has finished, and tell about it."""
        with running(_AGENT, self.name, self.home) as process:
            for said in reports(process):
                self._hear(process, said)
        if not self.struck and (self.kill or process.returncode):
            code = process.returncode
            raise SystemExit(f"{self.name} ended by itself, with exit code {code}: {self.lost}")
        if self.calling is not None:
            self.story.in_flight.append(self.calling)
        self._tell()

    def _hear(self, process: subprocess.Popen[bytes], said: Mapping[str, Any]) -> None:
        if "tool" in said:
            self._answered(said)
        elif "calling" in said:
            self._about_to(process, said["calling"], said["arguments"])
        elif "half" in said:
            self._about_to(process, "half", {"step": said["half"]})
        elif "lost" in said:
            self.lost = f"{said['lost']}: {said['because']}"
        else:
            self.counts.update(said.keys())

    def _about_to(
        self, process: subprocess.Popen[bytes], what: str, arguments: Mapping[str, Any]
    ) -> None:
        """The worker waits: let it go on, unless this is where it is killed."""
        if self.struck:
            if process.poll() is None:
                go_on(process)  # into the call that finds its server gone
            return
        kill = self.kill
        if kill is None or what != kill.at or len(self.done) < kill.after:
            self._let(process, what, arguments)
            return
        self.struck = _MOMENTS[what, kill.sent].format(arguments.get("step"))
        if kill.sent:
            self._let(process, what, arguments)
            time.sleep(kill.part * self.took.get(what, 0.005))
        self._strike(process, kill)

    def _let(
        self, process: subprocess.Popen[bytes], what: str, arguments: Mapping[str, Any]
    ) -> None:
        if what != "half":
            self.calling, self.called_at = Call(self.name, what, arguments), time.monotonic()
        go_on(process)

    def _strike(self, process: subprocess.Popen[bytes], kill: Kill) -> None:
        if kill.victim != "agent":
            kill_server(self.name, self.home)
        if kill.victim != "server":
            kill_agent(process)
            process.wait()
        elif not kill.sent:
            go_on(process)
        self.story.killed.append(kill.victim)

    def _answered(self, said: Mapping[str, Any]) -> None:
        call, text = self.calling, said["text"]
        if said["refused"] or call is None:
            raise SystemExit(f"{self.name} was refused {said['tool']}: {text}")
        self.calling = None
        self.took[call.tool] = time.monotonic() - self.called_at
        write = acknowledged(call, text)
        if write is not None:
            self.story.writes.append(write)
        if call.tool == "orient" and not self.woke:
            lines = [line.strip() for line in text.splitlines() if " -> run_resume(" in line]
            self.woke = (
                lines[0].partition("   ->")[0] if lines else "nothing is stored yet; plans the job"
            )
        elif call.tool == "run_resume" and "number" in call.arguments:
            self.story.read_back[call.arguments["number"]] = text
        elif call.tool in ("step_begin", "step_end"):
            self._count(call, text)

    def _count(self, call: Call, text: str) -> None:
        if warning := _WARNING.search(text):
            self.warned = f"{call.subject}: {warning[0]}"
        if text.startswith("done:"):
            self.counts["done"] += 1
        elif call.tool == "step_end" and not call.arguments["ok"]:
            self.counts["failed"] += 1
        if text.startswith("done:") or call.arguments.get("ok"):
            self.done.add(call.subject)

    def _tell(self) -> None:
        counts = ", ".join(
            f"{self.counts[k]} {word}" for k, word in _WORDS.items() if self.counts[k]
        )
        click.echo(f"  {self.name:<9}  orient: {self.woke}")
        click.echo(f"             files: {counts or 'none'}; {len(self.done)} done in all")
        if self.warned:
            click.echo(f"             told of {self.warned}")
        if self.kill is None:
            click.echo("             ends the thread and the run")
            return
        answer = "" if not self.kill.sent else "; the answer was lost"
        if self.kill.sent and self.calling is None:
            answer = "; the answer had come"
        say(f"           kill -9 of {_VICTIMS[self.kill.victim]} {self.struck}{answer}", "red")


def acknowledged(call: Call, answer: str) -> Write | None:
    """The write that was acknowledged, if this is one."""
    tool, arguments = call.tool, dict(call.arguments)
    if tool == "state_op":
        tool, arguments = arguments["op"], arguments["arguments"]
    if tool not in LONG_WRITTEN or answer.startswith(("done:", "recorded already")):
        return None
    number = _NUMBER.match(answer)
    if number is not None:
        arguments["number"] = int(number[1])
    return Write(call.agent, tool, arguments, event_of(answer))
