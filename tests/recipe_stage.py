"""The stage on which a recipe is played: machines, people at a shell, agents with real servers."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from recipes import (
    HERE,
    Call,
    Command,
    File,
    Happening,
    Install,
    Loop,
    Step,
    Unplayable,
    parse,
)

BEGINNING = datetime(2027, 3, 1, 9, 0, tzinfo=UTC)  # a Monday
ORIGIN = "https://github.com/acme/shop.git"
COMMAND = Path(__file__).with_name("recipe_command.py")
PATIENCE = 60.0
_PASSES = re.compile(r"(\d+) (minute|hour|day)s? pass(?:es)?")
_KILL = re.compile(r"kill -9 of (\S+) and its server")
_END = re.compile(r"(\S+) ends its session")
_SCRIPT = """
cd "$(<"$STAGE_CWD")" || exit 1
{script}
{{ code=$?; pwd > "$STAGE_CWD"; exit $code; }} 2>/dev/null
"""
_REPOSITORY = """
set -e
git init --quiet --initial-branch=main shop
cd shop
git remote add origin "$0"
mkdir docs
echo '# Shop' > README.md
printf 'order;customer;amount\\namount: decimal comma\\n' > docs/contract.md
git add .
git commit --quiet --message 'Begin the shop'
"""


class Session:
    """A session of an agent: a client of the SDK, and its own server process."""

    def __init__(self, server: StdioServerParameters, pid: Path, log: Path) -> None:
        self._pid = pid
        self._over = asyncio.Event()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(server, log))

    async def _live(self, server: StdioServerParameters, log: Path) -> None:
        """In a task of its own, since sessions end in any order."""
        try:
            with log.open("a", encoding="utf-8") as errors:
                async with Client(stdio_client(server, errors)) as client:
                    self._client.set_result(client)
                    await self._over.wait()
        except BaseException as problem:
            if self._client.done():
                raise
            self._client.set_exception(problem)

    async def call(self, call: Call) -> types.CallToolResult:
        client = await asyncio.wait_for(asyncio.shield(self._client), PATIENCE)
        return await asyncio.wait_for(client.call_tool(call.tool, call.arguments), PATIENCE)

    async def kill(self) -> None:
        os.kill(int(self._pid.read_text("ascii")), signal.SIGKILL)
        await self.end()

    async def end(self) -> None:
        self._over.set()
        await asyncio.wait_for(self._life, PATIENCE)


class Stage:
    """Where the steps of one document are played."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = BEGINNING
        self._sessions: dict[str, Session] = {}
        self._installed: dict[tuple[str, str], tuple[str, ...]] = {}
        self._bin = root / "bin"
        self._bin.mkdir(parents=True)
        self._tell_time()
        self._executable("mcp-state", f'exec "{sys.executable}" -P "{COMMAND}" "{root}" "$@"')
        self._executable("scp", f'cp "$1" "{root}/${{2%%:*}}/${{2#*:}}"')

    def _executable(self, name: str, script: str) -> None:
        path = self._bin / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def _tell_time(self) -> None:
        (self.root / "now").write_text(self.now.isoformat(), encoding="utf-8")

    def home(self, machine: str) -> Path:
        """The home directory of a machine, with a clone of the shop."""
        home = self.root / machine
        if not home.exists():
            home.mkdir()
            (self.root / f"{machine}.cwd").write_text(str(home / "shop"), encoding="utf-8")
            if machine == HERE:
                words = ["bash", "-c", _REPOSITORY, ORIGIN]
                subprocess.run(words, cwd=home, env=self._environment(machine), check=True)
            else:
                shutil.copytree(self.home(HERE) / "shop", home / "shop")
        return home

    def _directory(self, machine: str) -> str:
        self.home(machine)
        return (self.root / f"{machine}.cwd").read_text("utf-8").strip()

    def _environment(self, machine: str) -> Mapping[str, str]:
        date = BEGINNING.isoformat()
        who = {f"GIT_{role}_NAME": "Ada" for role in ("AUTHOR", "COMMITTER")}
        mail = {f"GIT_{role}_EMAIL": "ada@example.com" for role in ("AUTHOR", "COMMITTER")}
        dates = {f"GIT_{role}_DATE": date for role in ("AUTHOR", "COMMITTER")}
        return {
            **who,
            **mail,
            **dates,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(self.root / machine),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "STAGE_CWD": str(self.root / f"{machine}.cwd"),
        }

    async def perform(self, step: Step) -> list[str]:
        """Do it; returns the lines of its answer."""
        match step.done:
            case Call():
                return self._lines((await self._call(step.done, step.line))[0])
            case Command():
                return self._lines(await self._type(step.done))
            case Loop():
                await self._loop(step.done, step.line)
            case Install():
                self._install(step.done)
            case File():
                directory = Path(self._directory(HERE))
                (directory / step.done.name).write_text(step.done.text, encoding="utf-8")
            case Happening():
                await self._happen(step.done, step.line)
        return []

    def _lines(self, text: str) -> list[str]:
        for machine in sorted(p.name for p in self.root.iterdir() if p.is_dir()):
            text = text.replace(str(self.root / machine), "~")
        return text.rstrip("\n").split("\n") if text.strip() else []

    async def _call(self, call: Call, line: int) -> tuple[str, bool]:
        """The text of the answer, and whether it refuses."""
        name = f"{call.session}@{call.machine}"
        if name not in self._sessions:
            options = self._installed.get((call.machine, call.agent))
            if options is None:
                raise Unplayable(line, f"{call.agent} is not installed on {call.machine}")
            self._sessions[name] = self._begin(name, call.machine, options)
        result = await self._sessions[name].call(call)
        (block,) = result.content
        assert isinstance(block, types.TextContent)
        return block.text, bool(result.is_error)

    def _begin(self, name: str, machine: str, options: tuple[str, ...]) -> Session:
        pid = self.root / f"{name}.pid"
        server = StdioServerParameters(
            command=str(self._bin / "mcp-state"),
            args=["serve", *options],
            env={**self._environment(machine), "MCP_STATE_RECIPE_PID": str(pid)},
            cwd=self._directory(machine),
        )
        return Session(server, pid, self.root / "servers.log")

    async def _type(self, command: Command, *, must_work: bool = False) -> str:
        self.home(command.machine)
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            _SCRIPT.format(script=command.script),
            env=self._environment(command.machine),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        text = output.decode()
        assert process.returncode == 0 or not must_work, f"{command.script}\n{text}"
        return text

    async def _loop(self, loop: Loop, line: int) -> None:
        for value in loop.values:
            for done in loop.steps(value, line):
                if isinstance(done, Call):
                    text, refused = await self._call(done, line)
                    assert not refused, f"{done}\n{text}"
                else:
                    await self._type(done, must_work=True)

    def _install(self, install: Install) -> None:
        self.home(install.machine)
        served = install.served
        words = tuple(word for pair in served.items() for word in pair)
        self._installed[install.machine, served["--agent"]] = words

    async def _happen(self, happening: Happening, line: int) -> None:
        if found := _PASSES.fullmatch(happening.words):
            self.now += timedelta(**{f"{found[2]}s": int(found[1])})
            self._tell_time()
        elif found := _KILL.fullmatch(happening.words):
            await self._session(found[1], line).kill()
        elif found := _END.fullmatch(happening.words):
            await self._session(found[1], line).end()
        else:
            raise Unplayable(line, f"nobody knows how to play {happening.words!r}")

    def _session(self, name: str, line: int) -> Session:
        name = name if "@" in name else f"{name}@{HERE}"
        if name not in self._sessions:
            raise Unplayable(line, f"{name} has no session")
        return self._sessions.pop(name)

    async def aclose(self) -> None:
        """End all sessions."""
        while self._sessions:
            await self._sessions.popitem()[1].end()


@asynccontextmanager
async def staged(root: Path) -> AsyncGenerator[Stage]:
    """A stage in a directory that does not exist yet."""
    stage = Stage(root)
    try:
        yield stage
    finally:
        await stage.aclose()


async def played(text: str, root: Path) -> str:
    """The document with the answers that there are when it is played."""
    document = parse(text)
    lines: list[str] = []
    async with staged(root) as stage:
        for part in document.parts:
            if isinstance(part, str):
                lines.append(part)
            else:
                lines += part.told(await stage.perform(part))
    return "\n".join(lines)
