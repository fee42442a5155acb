"""The two scripted agents of `mcp-state demo --truth`: real MCP clients that check what they say.

    python -m mcp_state.cli.demo_truth_agent NAME HOME

`ada` writes down what she believes and how to check it; `ben` is another process that knows only
what the store tells him. They run the checks themselves, also the `gh` of the demo; the server
could find it as well, and never runs it. They report as the agents of the short demo do.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from mcp import Client

from mcp_state.cli.demo_agent import Agent, Reply, connected, parts_of, report
from mcp_state.cli.demo_stage import PYTHON

PR, CONTRACT, MERGE, THREAD = "pr-830", "api-contract", "merge-friday", "ship-import"
READY = "import-ready"
ASK_GH = "gh pr view 830 --json state --jq .state"
_CHECK = "python check.py"
_TELLING = ("open", "merged", "decimal comma")
"""Words of a statement that its check has to say too."""
_TO_CHECK = re.compile(r"check first: (?P<check>.*)$")
_NO_CHECK = "it has none of its own"
_CLAIM = re.compile(r'(?P<fact>\S+) · .*: "(?P<statement>.*)"$')


class Checker(Agent):
    """An agent that runs the checks of facts and says what they said."""

    def __init__(self, client: Client, project: Path, name: str) -> None:
        super().__init__(client, project)
        self._name = name

    async def run(self, check: str) -> str:
        """What a check says: a file is read, a command is run."""
        if check.startswith("file:"):
            said = (self.project / check.removeprefix("file:")).read_text("utf-8")
        else:
            command = check.split()
            if command[0] == "python":
                command[:1] = PYTHON
            do = partial(subprocess.run, cwd=self.project, capture_output=True, text=True)
            env = os.environ | {"DEMO_AGENT": self._name}
            said = (await asyncio.to_thread(do, command, check=True, env=env)).stdout
        lines = [line for line in said.splitlines() if _telling(line)]
        line = (lines or said.splitlines())[0]
        report(ran=check, printed=line)
        return line

    async def verify(self, fact: str, statement: str, check: str) -> Reply:
        """Run the check of a fact, and record whether it bears the statement out."""
        said = await self.run(check)
        holds = _telling(statement) <= _telling(said)
        return await self.call("fact_verify", fact=fact, holds=holds, evidence=said)


def _telling(text: str) -> set[str]:
    return {word for word in _TELLING if word in text.lower()}


async def ada(agent: Checker) -> None:
    """Say what the work is after, what that rests on, and how to see whether it still holds."""
    await agent.call(
        "objective_set",
        objective="Ship import v2 this week",
        intent="Customers load their orders without asking us",
    )
    believed = {
        PR: ("PR 830 is open", ASK_GH),
        CONTRACT: ("Amounts have a decimal comma", "file:docs/contract.md"),
    }
    for fact, (statement, check) in believed.items():
        await agent.call("fact_record", fact=fact, statement=statement, check=check)
        await agent.verify(fact, statement, check)
    await agent.call(
        "fact_record",
        fact=MERGE,
        statement="PR 830 goes in on Friday",
        check="",
        because=[PR, CONTRACT],
    )
    await agent.call(
        "thread_set",
        thread=THREAD,
        title="Ship import v2",
        next_action="merge PR 830 on Friday, then announce it",
        relies_on=[MERGE],
        criteria=[f"{_CHECK}: exit 0"],
    )


async def ben(agent: Checker) -> None:
    """Wake up, look what still holds before building on it, and finish on what is true."""
    packet = await agent.call("orient")
    parts = parts_of(packet.text)
    thread = parts["NOW"][0].split()[0]
    report(say=f"All of it was believed yesterday. Is {thread} as good as done?")
    await _end(agent, thread, "as orient says: PR 830 is open, the contract stands")

    report(act="ben runs the checks that orient names")
    version = 0
    for fact, statement, check in _to_check(parts["CHECK BEFORE YOU RELY ON IT"]):
        verified = await agent.verify(fact, statement, check)
        if fact == PR:
            version = int(verified.find(r", version (\d+)"))
    report(say="The contract grew, and still says so. PR 830 is another matter; orient knows:")
    await agent.call("orient")
    await _end(agent, thread, "the import runs, and PR 830 goes in on Friday")
    report(say="Why was that believed at all?")
    trace: dict[str, Any] = {"op": "fact_trace", "arguments": {"fact": MERGE}}
    await agent.call("state_op", **trace)

    report(act="ben says what is true instead, and builds on that")
    await _replace(agent, PR, "PR 830 is merged", version)
    report(say="pr-830 holds again, but says something else. Does merge-friday rise with it?")
    await agent.call("fact_list", trust="stale")
    report(say="No, and rightly: its reason was the old statement. What follows from the new one:")
    said = await _derive(agent, READY, "Import v2 works")
    await agent.call(
        "thread_set", thread=thread, relies_on=[READY], next_action="prove it, and end it"
    )
    await agent.call("thread_check", thread=thread, criterion="1", passes=True, evidence=said)
    await _end(agent, thread, f"{_CHECK}: exit 0, {said}")


async def _end(agent: Checker, thread: str, evidence: str) -> None:
    await agent.call("thread_set", thread=thread, status="done", evidence=evidence)


async def _replace(agent: Checker, fact: str, statement: str, version: int) -> None:
    await agent.call(
        "fact_record", fact=fact, statement=statement, expected_version=version, check=ASK_GH
    )
    await agent.verify(fact, statement, ASK_GH)


async def _derive(agent: Checker, fact: str, statement: str) -> str:
    """Believe something because of what holds now, and run its check; returns what that said."""
    await agent.call(
        "fact_record", fact=fact, because=[PR, CONTRACT], statement=statement, check=_CHECK
    )
    said = await agent.run(_CHECK)  # another exit code than 0 ends it all
    await agent.call("fact_verify", fact=fact, holds=True, evidence=said)
    return said


def _to_check(lines: list[str]) -> list[tuple[str, str, str]]:
    """Name, statement and check of the facts in a packet that have a check of their own."""
    found: list[tuple[str, str, str]] = []
    check = ""
    for line in map(str.strip, lines):
        if to_check := _TO_CHECK.fullmatch(line):
            check = "" if to_check["check"].startswith(_NO_CHECK) else to_check["check"]
        elif (claim := _CLAIM.fullmatch(line)) and check:
            found.append((claim["fact"], claim["statement"], check))
            check = ""
    return found


async def work(name: str, home: Path) -> None:
    """Be this agent."""
    os.environ["PATH"] = f"{home / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    async with connected(name, home) as client:
        await {"ada": ada, "ben": ben}[name](Checker(client, home / "shop", name))


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2])))
