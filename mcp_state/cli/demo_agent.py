"""The two scripted agents of `mcp-state demo`: real MCP clients that do a real job on real files.

    python -m mcp_state.cli.demo_agent NAME HOME

`ada` begins the job; `ben` is another process that knows only what the store tells it. Every call
and its answer is reported on stdout, a JSON line each, as soon as the answer is here. Before each
file `ada` waits for a line on stdin, `ben` for one when a person has to do something.
"""

from __future__ import annotations

import asyncio
import csv
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp_types import Implementation, TextContent

from mcp_state.cli.demo_stage import PYTHON

JOB, OTHER = "csv-to-json", "list-orders"
_TELL_PID = 'echo $$ > "$0"; exec "$@"'
CONVENTIONS: str = "separator: ;\namounts: integer cents, the CSV has a decimal comma\nkeys: sorted"
_HEADING = re.compile(r"[A-Z][A-Z ]+\b")
_OPEN_CRITERION = re.compile(r"^    (\d+) open: data/(\S+)\.json ", re.MULTILINE)


@dataclass(frozen=True)
class Reply:
    """What a tool answered."""

    text: str
    refused: bool

    def find(self, pattern: str) -> str:
        """The group of a pattern that must be in the text."""
        found = re.search(pattern, self.text, re.MULTILINE)
        assert found is not None, self.text
        return found[1]


class Agent:
    """An agent at work in a directory, with the tools that its client lists."""

    def __init__(self, client: Client, project: Path) -> None:
        self._client = client
        self.data = project / "data"
        self.project = project

    async def call(self, tool: str, **arguments: Any) -> Reply:
        """Call a tool and report the answer at once."""
        result = await self._client.call_tool(tool, arguments)
        text = "".join(c.text for c in result.content if isinstance(c, TextContent))
        reply = Reply(text, bool(result.is_error))
        report(tool=tool, arguments=arguments, text=text, refused=reply.refused)
        return reply

    def convert(self, name: str, conventions: Mapping[str, str]) -> str:
        """Write the JSON of one CSV file as the conventions want it; returns the evidence."""
        text = as_json(self.data / f"{name}.csv", conventions)
        half = self.data / f"{name}.json.half"
        half.write_text(text, encoding="utf-8")
        half.replace(self.data / f"{name}.json")
        return proof(text)

    async def do_file(
        self, number: str, name: str, conventions: Mapping[str, str], token: int
    ) -> None:
        """One file: convert it, mark its criterion, and write down what was done."""
        report(at=name)
        evidence = self.convert(name, conventions)
        await self.call(
            "thread_check",
            thread=JOB,
            criterion=number,
            passes=True,
            evidence=evidence,
            lease_token=token,
        )
        await self.call("journal_append", text=f"{name}: {evidence}", thread=JOB)


async def ada(agent: Agent) -> None:
    """Begin the job, and go on with it until the process is killed."""
    names = sorted(path.stem for path in agent.data.glob("*.csv"))
    await agent.call("orient")
    await agent.call("memory_set", key="conventions", value=CONVENTIONS)
    await agent.call(
        "thread_set",
        thread=JOB,
        title="Convert the order files to JSON",
        next_action="convert the files whose criterion is open",
        check="python check.py",
        priority=2,
        criteria=[f"data/{name}.json says what {name}.csv says" for name in names],
    )
    await agent.call(
        "thread_set",
        thread=OTHER,
        title="List the order files in data/INDEX.md",
        next_action="one line for each CSV file, with its number of rows",
    )
    claimed = await agent.call("thread_claim", thread=JOB)
    token = int(claimed.find(r"lease_token=(\d+)"))
    conventions = fields(CONVENTIONS.splitlines())
    for number, name in enumerate(names, start=1):
        await told_to_go_on()
        await agent.do_file(str(number), name, conventions, token)


async def ben(agent: Agent) -> None:
    """Wake up, find out what is left, and finish it."""
    packet = await agent.call("orient")
    parts = parts_of(packet.text)
    first = parts["NOW"][0].split()[0]
    conventions = fields(parts["MEMORY"])

    report(say=f"NOW begins with {first}; ada holds it. Is she still there?")
    held = await agent.call("thread_claim", thread=first)
    assert held.refused, held.text
    report(say="So another thread first: the best one that nobody holds.")
    claimed = await agent.call("thread_claim")
    await _list_orders(
        agent, claimed.find(r"^(\S+) \[active"), int(claimed.find(r"lease_token=(\d+)"))
    )

    report(say=f"Nothing else is left. Only a person may break the lease of {first}.")
    report(ask=first)
    await told_to_go_on()
    token = int((await agent.call("thread_claim", thread=first)).find(r"lease_token=(\d+)"))
    work = await agent.call("thread_get", thread=first)
    await agent.call(
        "thread_set", thread=first, status="done", evidence="looks good", lease_token=token
    )
    left = _OPEN_CRITERION.findall(work.text)
    report(say=f"Left are {', '.join(name for _, name in left)}; {parts['MEMORY'][2].strip()}.")
    for number, name in left:
        await agent.do_file(number, name, conventions, token)

    command = work.find(r"^check: python (\S+)$")
    check = partial(subprocess.run, cwd=agent.project, capture_output=True, text=True, check=True)
    done = await asyncio.to_thread(check, [*PYTHON, command])
    await agent.call(
        "thread_set",
        thread=first,
        status="done",
        evidence=f"python {command}: exit {done.returncode}, {done.stdout.strip()}",
        lease_token=token,
    )
    await agent.call("journal_append", text="Finished what ada began.", thread=first)


async def _list_orders(agent: Agent, thread: str, token: int) -> None:
    files = sorted(agent.data.glob("*.csv"))
    counts = [f"{f.name}: {len(f.read_text('utf-8').splitlines()) - 1} rows" for f in files]
    (agent.data / "INDEX.md").write_text("\n".join([*counts, ""]), encoding="utf-8")
    await agent.call("thread_set", thread=thread, status="done", lease_token=token)
    evidence = f"data/INDEX.md, {len(counts)} lines"
    await agent.call(
        "thread_set", thread=thread, status="done", evidence=evidence, lease_token=token
    )


def as_json(file: Path, conventions: Mapping[str, str]) -> str:
    """The JSON of a CSV file, as the conventions want it."""
    with file.open(newline="", encoding="utf-8") as lines:
        orders = list(csv.DictReader(lines, delimiter=conventions["separator"]))
    assert conventions["amounts"].startswith("integer cents")
    rows = [{**o, "amount": int(o["amount"].replace(",", ""))} for o in orders]
    return json.dumps(rows, sort_keys=conventions["keys"] == "sorted", indent=1)


def proof(text: str) -> str:
    """What tells that this very JSON was written."""
    return f"{len(json.loads(text))} rows, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def parts_of(packet: str) -> Mapping[str, list[str]]:
    """The parts of a wake-up packet by their headings."""
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in packet.splitlines():
        if found := _HEADING.match(line):
            lines = parts[found[0]] = []
        elif line.startswith("    "):
            lines.append(line)
    return parts


def fields(lines: list[str]) -> Mapping[str, str]:
    """The lines that read `name: value`."""
    pairs = (line.strip().partition(": ") for line in lines)
    return {name: value for name, colon, value in pairs if colon}


def report(**said: Any) -> None:
    """Tell what just happened, in one write."""
    os.write(1, json.dumps(said).encode() + b"\n")


async def told_to_go_on() -> None:
    """Wait for the one who watches."""
    if not await asyncio.to_thread(sys.stdin.readline):
        sys.exit("nobody is there any more")


def connected(name: str, home: Path) -> Client:
    """The client of this agent, with a server of its own as child."""
    serve = [*PYTHON, "-m", "mcp_state", "serve", "--db", str(home / "state.db"), "--agent", name]
    server = StdioServerParameters(
        command="sh",
        args=["-c", _TELL_PID, str(home / f"{name}-server.pid"), *serve],
        cwd=home / "shop",
    )
    return Client(server, client_info=Implementation(name="demo-agent", version="1"))


async def work(name: str, home: Path) -> None:
    """Be this agent."""
    async with connected(name, home) as client:
        await {"ada": ada, "ben": ben}[name](Agent(client, home / "shop"))


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2])))
