"""The worker of `mcp-state demo --long`: a real MCP client that does a run file by file.

    python -m mcp_state.cli.demo_long_agent NAME HOME

It knows what `orient` and `run_resume` tell it; only where nothing is stored yet does it plan the
job first. It reports as the agents of the short demo do. Before each call, and when a file is half
written, it says so and waits for a line on stdin, so that it can be killed there.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mcp import Client, MCPError

from mcp_state.cli.demo_agent import (
    CONVENTIONS,
    JOB,
    Agent,
    Reply,
    as_json,
    connected,
    fields,
    parts_of,
    proof,
    report,
    told_to_go_on,
)
from mcp_state.cli.demo_stage import PYTHON

RUN = "convert-orders"
_STRETCH = 10
"""Files between two checkpoints."""
_WARNING = "change the approach"
_LEFT_OPEN = "look whether its work is there already"


@dataclass(frozen=True)
class _Outcome:
    ok: bool
    result: str
    tokens_in: int
    tokens_out: int = 0


class Worker(Agent):
    """An agent that can be killed at each of its steps."""

    def __init__(self, client: Client, project: Path) -> None:
        super().__init__(client, project)
        self.names = sorted(path.stem for path in self.data.glob("*.csv"))
        self.conventions: dict[str, str] = {}

    async def call(self, tool: str, **arguments: Any) -> Reply:
        """Say what is called, and call it when told to."""
        report(calling=tool, arguments=arguments)
        await told_to_go_on()
        try:
            return await super().call(tool, **arguments)
        except MCPError as problem:
            report(lost=tool, because=str(problem))
            os._exit(1)  # an agent whose server is gone can only be started anew

    async def work(self) -> None:
        """Wake up, find the run, go on with it, and end it when everything is done."""
        packet = await self.call("orient")
        parts = parts_of(packet.text)
        if "RUN" not in parts:
            await self._plan()
            packet = await self.call("orient")
            parts = parts_of(packet.text)
        thread = parts["NOW"][0].split()[0]
        run = packet.find(r'-> run_resume\(run_id="(.+)"\)')
        left = await self._resume(run)
        for number, name in enumerate(left, start=len(self.names) - len(left) + 1):
            await self._do_file(run, name)
            if number % _STRETCH == 0 or number == len(self.names):
                await self._checkpoint(run, number)
        await self._finish(run, thread)

    async def _plan(self) -> None:
        total = len(self.names)
        await self.call(
            "thread_set",
            thread=JOB,
            title="Convert the order files to JSON",
            next_action=f"go on with the run {RUN}",
            check="python check.py",
        )
        budget = {"max_attempts": 3 * total, "max_tokens": 10_000 * total, "max_minutes": 120}
        await self.call(
            "state_op",
            op="run_begin",
            arguments={
                "goal": "data/NAME.csv is converted to JSON, once each",
                "run_id": RUN,
                "thread": JOB,
                "expected_outcome": "python check.py: exit 0",
                **budget,
            },
        )
        await self.call("memory_set", key="conventions", value=CONVENTIONS, run_id=RUN)
        await self._checkpoint(RUN, 0)

    async def _checkpoint(self, run: str, done: int) -> None:
        following = self.names[done : done + 1]
        reached = f"up to {self.names[done - 1]}" if done else "none yet"
        await self.call(
            "run_checkpoint",
            run_id=run,
            state=f"converted, in the order of their names: {reached}",
            next_action=following[0] if following else "run the check, then end thread and run",
            done=done,
            total=len(self.names),
        )

    async def _resume(self, run: str) -> list[str]:
        """Learn the run's conventions; returns the files from the checkpoint's next one on."""
        found = await self.call("run_resume", run_id=run)
        _, _, memory = found.text.partition("\nmemory of the run")
        self.conventions.update(fields(memory.splitlines()))
        following = found.find(r"^next: (\S+)")
        return self.names[self.names.index(following) :] if following in self.names else []

    async def _do_file(self, run: str, name: str) -> None:
        """Try until it is recorded as done, in another way when told that this one fails."""
        separator = self.conventions["separator"]
        while True:
            begun = await self.call(
                "step_begin", run_id=run, step=name, input=f"separator {separator!r}"
            )
            if begun.text.startswith("done:"):
                return
            if _WARNING in begun.text:
                separator = self._own_separator(name)
            outcome = self._found(name) if _LEFT_OPEN in begun.text else None
            if outcome is None:
                outcome = await self._convert(name, begun.find(r"attempt (\d+)$"), separator)
            ended = await self.call(
                "step_end",
                run_id=run,
                step=name,
                ok=outcome.ok,
                result=outcome.result,
                tokens_in=outcome.tokens_in,
                tokens_out=outcome.tokens_out,
            )
            if outcome.ok:
                return
            if _WARNING in ended.text:
                separator = self._own_separator(name)
                note = f"\n{name}: separated by {separator!r}"
                await self.call("memory_append", key="conventions", text=note, run_id=run)

    def _own_separator(self, name: str) -> str:
        """What stands between the columns in the first line of the file."""
        return (self.data / f"{name}.csv").read_text("utf-8").removeprefix("order")[0]

    def _found(self, name: str) -> _Outcome | None:
        """The work of an attempt that nobody recorded, if it got that far."""
        there = next(self.data.glob(f"{name}.*.json"), None)
        if there is None:
            return None
        report(found=name)
        return self._outcome(name, there)

    async def _convert(self, name: str, attempt: str, separator: str) -> _Outcome:
        """Write the JSON of one file, under a name that no other execution can have."""
        began = time.perf_counter()
        source, lock = self.data / f"{name}.csv", self.data / f"{name}.csv.lock"
        try:
            if lock.exists():
                lock.unlink()  # the one who holds it lets go as soon as somebody has asked
                raise ValueError("another program writes at it")
            text = as_json(source, self.conventions | {"separator": separator})
        except (KeyError, ValueError) as problem:
            took = time.perf_counter() - began
            result = f"{name}.csv: {type(problem).__name__} {problem}, after {took:.6f} s"
            return _Outcome(False, result, source.stat().st_size // 4)
        target = self.data / f"{name}.{attempt}-{secrets.token_hex(4)}.json"
        half = target.with_suffix(".half")
        half.write_text(text, encoding="utf-8")
        report(half=name)
        await told_to_go_on()
        half.replace(target)
        report(converted=name)
        return self._outcome(name, target)

    def _outcome(self, name: str, target: Path) -> _Outcome:
        source = (self.data / f"{name}.csv").stat().st_size // 4
        text = target.read_text("utf-8")
        return _Outcome(True, f"{target.name}: {proof(text)}", source, target.stat().st_size // 4)

    async def _finish(self, run: str, thread: str) -> None:
        """Read every checkpoint back, run the check, and end what is done."""
        found = await self.call("run_resume", run_id=run)
        for number in range(1, int(found.find(r"^checkpoint (\d+) of")) + 1):
            await self.call("run_resume", run_id=run, number=number)
        command = (await self.call("thread_get", thread=thread)).find(r"^check: python (\S+)$")
        check = partial(subprocess.run, cwd=self.project, capture_output=True, text=True)
        done = await asyncio.to_thread(check, [*PYTHON, command], check=True)
        evidence = f"python {command}: exit {done.returncode}, {done.stdout.strip()}"
        await self.call("thread_set", thread=thread, status="done", evidence=evidence)
        await self.call("run_finish", run_id=run, status="completed", evidence=evidence)


async def work(name: str, home: Path) -> None:
    """Be this worker."""
    async with connected(name, home) as client:
        await Worker(client, home / "shop").work()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2])))
