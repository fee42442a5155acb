"""A store with something of everything in it, for tests that look at the file itself."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mcp_state.errors import StateError
from mcp_state.models import Actor, Caller, Criterion, Place, Status
from mcp_state.store.blobs import Blobs
from mcp_state.store.database import Database, open_database
from mcp_state.store.facts import Facts
from mcp_state.store.handoffs import Handoffs
from mcp_state.store.journal import Journal
from mcp_state.store.memory import Memory
from mcp_state.store.objectives import Objectives
from mcp_state.store.projects import Projects
from mcp_state.store.runs import Runs
from mcp_state.store.steps import Steps
from mcp_state.store.threads import Threads
from mcp_state.store.transcripts import Transcripts
from mcp_state.times import Clock

ROOT = Path(__file__).parent.parent
KILLED = """
import asyncio, os, sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
from workload import Nouns, opened
async def main():
    async with opened(Path({path!r})) as database:
        nouns = Nouns(database, "acme", "codex")
        for number in range(5):
            await nouns.memory.set(f"acknowledged-{{number}}", "on disk")
        os.kill(os.getpid(), 9)
asyncio.run(main())
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def write_and_be_killed(path: Path) -> None:
    """Five acknowledged writes that are only in the -wal, by a process that is killed then."""
    done = run(KILLED.format(tests=str(ROOT / "tests"), path=str(path)))
    assert done.returncode == -signal.SIGKILL, done.stderr


class StepClock(Clock):
    """A clock that moves a second forward whenever it is asked."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)

    def now(self) -> datetime:
        self.at += timedelta(seconds=1)
        return self.at


class Nouns:
    """All nouns of one project, as one caller uses them."""

    def __init__(self, database: Database, project: str, agent: str, anchor: str = "") -> None:
        self.caller = Caller(project, "argument", Actor(agent, "test", "s1"), anchor, "/w")
        self.memory = Memory(database, self.caller)
        self.threads = Threads(database, self.caller)
        self.journal = Journal(database, self.caller)
        self.projects = Projects(database, self.caller)
        self.runs = Runs(database, self.caller)
        self.steps = Steps(database, self.caller)
        self.handoffs = Handoffs(database, self.caller)
        self.blobs = Blobs(database, self.caller)
        self.transcripts = Transcripts(database, self.caller)
        self.facts = Facts(database, self.caller)
        self.objective = Objectives(database, self.caller)


@asynccontextmanager
async def opened(
    path: str | Path, *, wait: float = 10.0, read_only: bool = False
) -> AsyncGenerator[Database]:
    database = open_database(str(path), clock=StepClock(), wait=wait, read_only=read_only)
    try:
        yield database
    finally:
        await database.aclose()


async def work(nouns: Nouns) -> None:
    """Every operation of every noun at least once, refusals too."""
    memory, threads, journal = nouns.memory, nouns.threads, nouns.journal
    await memory.set("Plan", "first line\nsecond line")
    await memory.append("plan", "\nthird", idempotency_key="once")
    await memory.append("plan", "\nthird", idempotency_key="once")
    await memory.set("gone", "will be deleted")
    await memory.delete("gone")
    await memory.set("brief", "expires", ttl="90s")
    await memory.lock("plan", "a person said so")
    with pytest.raises(StateError):
        await memory.set("plan", "refused")
    await memory.restore("gone", 1)
    await threads.set("Base", title="the base", criteria=["it builds", "it runs"])
    await threads.check("base", "1", True, evidence="make: exit 0")
    await threads.set("on-top", depends_on=["base"], priority=2, places=[Place("src", "home")])
    await threads.set("asked", status=Status.BLOCKED, waiting_on="ein Prüfer 審査")
    await threads.set("seen", status=Status.WATCHING, check="gh pr view 1")
    await threads.set("over", status=Status.DROPPED, note="not needed")
    await threads.set("over", status=Status.ACTIVE, note="needed after all")
    claimed = await threads.claim("asked", lease="4h")
    assert not isinstance(claimed, Criterion)
    await threads.claim("seen", lease="1h")
    await threads.release("seen", force=True)
    with pytest.raises(StateError):
        await threads.set("asked", note="without the token", lease_token=1)
    await journal.append("began", kind="note", thread="base", idempotency_key="j1")
    await journal.append("began", kind="note", thread="base", idempotency_key="j1")
    with pytest.raises(StateError):
        await journal.append("something else", idempotency_key="j1")
    for number in range(5):
        await journal.append(f"entry {number} über Größe 東京")


async def work_long(nouns: Nouns) -> None:
    """Every operation of long runs and handoff at least once, refusals too; ends as it began."""
    memory, threads, journal = nouns.memory, nouns.threads, nouns.journal
    runs, steps = nouns.runs, nouns.steps
    await threads.set("long", title="the long job", check="make check")
    await runs.begin("Reindex", run="Index", thread="long", max_attempts=6, expected_outcome="done")
    await memory.set("Cursor", "1", run="index")
    await memory.set("gone", "soon", run="index")
    await memory.delete("gone", run="index")
    await runs.checkpoint("index", "at 1", next_action="do 2", done=1, total=3)
    await steps.begin("index", "One", input="a")
    await steps.end("index", "one", True, "fine", tokens_in=5, tokens_out=2)
    with pytest.raises(StateError):
        await steps.end("index", "one", False, "not fine")
    for _ in range(4):
        await steps.begin("index", "two", input="b")
        await steps.end("index", "two", False, "the same", tokens_in=3)
    for _ in range(2):
        with pytest.raises(StateError):
            await steps.begin("index", "two", input="b")
    await steps.begin("index", "three")
    for _ in range(2):
        with pytest.raises(StateError):
            await steps.begin("index", "four")
    await journal.append("belongs to the run", thread="long")
    await runs.raise_budget("index", "worth it", attempts=9)
    await steps.reset("index", "two", "another try")
    await memory.append("cursor", "2", run="index", idempotency_key="of-run")
    await runs.checkpoint("index", "at 2", done=2, total=3, expected_number=1)
    await runs.checkpoint("other", "begun by its checkpoint", thread="long")
    await runs.finish("other", "failed", reflection="no way through")
    await nouns.transcripts.append("index", {"role": "user", "content": "do it"}, '{ "n": 1.0 }')
    await nouns.blobs.put("a long text", summary="about it", ttl="90s")
    await nouns.blobs.put("a long text", ttl="4h")
    await nouns.blobs.put("kept for good")
    await nouns.handoffs.create("go on", to="ben")


async def work_truth(nouns: Nouns) -> None:
    """Every operation of facts and of the objective, refusals too; ends with facts of any trust."""
    facts, objective = nouns.facts, nouns.objective
    await objective.set("Ship it", intent="nobody waits for us")
    await objective.set("Ship it safely", reason="it broke once", expected_version=1)
    with pytest.raises(StateError):
        await objective.set("Ship nothing")
    await facts.record("Builds", "the build is green", check="make", source="CI")
    await facts.record("Tested", "the tests pass", check="file:report.txt", recheck_after="2h")
    await facts.record("fits", "it fits into a page", archival=True)
    await facts.record("Runs", "it runs", check="./run", because=["builds", "Tested"])
    await facts.record("ready", "it can go out", because=["runs"])
    await facts.record("ready", because=["fits"])
    await facts.record("Deployed", "it is out", check="git:HEAD", because=["runs"])
    await facts.verify("builds", True, "make: exit 0")
    await facts.verify("tested", True, "12 passed")
    await facts.verify("deployed", True, "it is there")
    await facts.verify("tested", False, "1 failed")
    with pytest.raises(StateError):
        await facts.verify("ready", True, "looks good")
    await facts.record("runs", because=["builds"])
    await facts.record("tested", "all but one pass", expected_version=3)
    await facts.record("builds", check="make all")
    await facts.verify("builds", True, "make all: exit 0")
    await facts.verify("runs", True, "it printed ok")
    await facts.record("Gone", "the old page is gone", check="curl")
    await facts.verify("gone", False, "200 OK")
    await nouns.threads.set("relying", relies_on=["Ready", "gone"])
    await nouns.threads.set("relying", relies_on=["ready", "builds"])


async def make_store(path: Path, *projects: str) -> None:
    """A store with the whole workload in each project, closed: no -wal left."""
    async with opened(path) as database:
        for project in projects or ("acme",):
            await work(Nouns(database, project, "codex", f"/dir/{project}"))


def contents(path: Path) -> tuple[str, str]:
    """Hashes of the main file and of the -wal (a missing file counts as an empty one)."""
    return _hash(path), _hash(path.with_name(path.name + "-wal"))


def _hash(path: Path) -> str:
    data = path.read_bytes() if path.is_file() else b""
    return hashlib.sha256(data).hexdigest() if data else ""


@contextlib.contextmanager
def plain(path: Path) -> Generator[sqlite3.Connection]:
    """The store through plain sqlite3; what is done is committed."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def rows(path: Path, sql: str, *params: object) -> list[tuple[object, ...]]:
    with plain(path) as connection:
        return connection.execute(sql, params).fetchall()
