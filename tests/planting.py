"""A text planted wherever a text can be, and what is left of it in the bytes of a directory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import carrying
from carrying import fill
from whole_stores import copied, everything, fill_like
from workload import StepClock

from mcp_state.api import State
from mcp_state.models import Actor, Caller, Place
from mcp_state.settings import is_address
from mcp_state.store.database import open_database

SECRET = "hunter22"
"""As long as the mark that takes its place, so that sizes stay."""
MARK = "[purged]"


class CountingClock(StepClock):
    """One whose ids count up, so that two stores can have the same."""

    def __init__(self) -> None:
        super().__init__()
        self.at += timedelta(minutes=30)
        self._ids = 0

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}{self._ids:012}"


class Store:
    """A store for several callers."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.database = open_database(path, clock=CountingClock(), allow_secrets=True)

    def as_(self, agent: str = "codex", session: str = "s1", project: str = "acme") -> State:
        caller = Caller(project, "argument", Actor(agent, "test", session), worktree="/w")
        return State(self.database, caller)

    @property
    def person(self) -> State:
        """Whoever purges."""
        return self.as_("person", "s-person")


@asynccontextmanager
async def store_at(path: str | Path, model: Path | None = None) -> AsyncGenerator[Store]:
    """A store, new or like another one."""
    path = str(path)
    if model is not None and is_address(path):
        fill_like(path, model)
    elif model is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(model, path)
    store = Store(path)
    try:
        yield store
    finally:
        await store.database.aclose()


def make_full(path: Path) -> None:
    """A store with something of everything in it."""

    async def write() -> None:
        async with carrying.store_at(path) as store:
            await fill(store)

    asyncio.run(write())


Plant = Callable[[State, str], Awaitable[object]]


async def _thread(s: State, text: str) -> None:
    await s.threads.set(f"t {text}", title=f"title {text}", next_action=text, depends_on=["base"])
    await s.threads.set("leads there", depends_on=[f"T {text}"], note=f"after {text}")


async def _criteria(s: State, text: str) -> None:
    await s.threads.set("judged", criteria=["plain", f"with {text}"])
    await s.threads.check("judged", "2", True, evidence=f"saw {text}")


async def _place(s: State, text: str) -> None:
    await s.threads.set("placed", places=[Place(f"src/{text}", "home", f"note {text}")])


async def _status(s: State, text: str) -> None:
    await s.threads.set("moved", status="blocked", waiting_on=text, check=f"curl {text}")
    await s.threads.set("moved", status="done", evidence=f"exit 0 {text}", note=text)


async def _memory(s: State, text: str) -> None:
    await s.memory.set("plan two", f"line\n{text}\nline")
    await s.memory.append("plan two", f"{text}{text}", idempotency_key=f"key {text}")
    await s.memory.set("plan two", "without")
    await s.memory.set(f"named {text}", "x")
    await s.memory.set("gone two", text)
    await s.memory.delete("gone two")
    await s.memory.lock("plan two", f"because {text}")


async def _journal(s: State, text: str) -> None:
    await s.journal.append(f"wrote {text}\nand {text}", kind=f"kind {text}", thread="base")
    await s.journal.append(f"{text}", idempotency_key=f"once {text}")


async def _run(s: State, text: str) -> None:
    await s.runs.begin(f"goal {text}", run=f"run {text}", expected_outcome=text, max_attempts=5)
    await s.memory.set(f"cursor {text}", text, run=f"run {text}")
    await s.runs.checkpoint(f"run {text}", f"at {text}", next_action=text, done=1, total=2)
    await s.steps.begin(f"run {text}", f"step {text}", input=text)
    await s.steps.end(f"run {text}", f"step {text}", False, f"failed {text}")
    await s.journal.append(f"in the run {text}")
    await s.traces.record("search", {"query": text}, f"found\n{text}", run=f"run {text}")
    await s.runs.raise_budget(f"run {text}", f"since {text}", attempts=9)
    await s.runs.finish(f"run {text}", "failed", reflection=f"no {text}", result=text)


async def _transcript(s: State, text: str) -> None:
    await s.runs.begin("Talk", run="talk two")
    await s.transcripts.append(
        "talk two",
        {"role": "user", "content": f"is {text} it?"},
        json.dumps({"role": "tool", "n": 1.5, "arguments": json.dumps({"key": text})}),
    )


async def _blob(s: State, text: str) -> None:
    blob = await s.blobs.put(f"a log\n{text}\n" * 3, summary=f"log of {text}", ttl="4h")
    await s.journal.append(f"it is in {blob.key}")
    await s.blobs.put(f"a log\n{text}\n" * 3, ttl="9h")


async def _handoff(s: State, text: str) -> None:
    made = await s.handoffs.create(f"go on with {text}", to=f"ben {text}")
    await s.handoffs.accept(made.handoff.key)


async def _fact(s: State, text: str) -> None:
    await s.facts.record(f"f {text}", f"it is {text}", check=f"echo {text}", source=text)
    await s.facts.record("rests", "so it is", because=[f"F {text}"])
    await s.facts.verify(f"f {text}", True, f"printed {text}")
    await s.threads.set("relies two", relies_on=[f"f {text}"])


async def _objective(s: State, text: str) -> None:
    now = await s.objective.get()
    version = now.version if now else None
    await s.objective.set(f"Ship {text}", reason=f"since {text}", expected_version=version)


async def _actor(s: State, text: str) -> None:
    caller = Caller("acme", "argument", Actor(f"agent {text}", text, f"s {text}"), "", f"/w/{text}")
    theirs = State(s.database, caller)
    await theirs.journal.append("by another")
    await theirs.threads.set("held")
    await theirs.threads.claim("held", lease="4h")
    await theirs.facts.record("theirs", "so they say", check="make")
    await theirs.facts.verify("theirs", True, "it was so")


async def _refused(s: State, text: str) -> None:
    await s.journal.append("first", idempotency_key=f"twice {text}")
    with contextlib.suppress(Exception):
        await s.journal.append("second", idempotency_key=f"twice {text}")
    await s.memory.set("shut", "x")
    await s.memory.lock("shut", f"{text} said so")
    with contextlib.suppress(Exception):
        await s.memory.set("shut", "y")


async def _project(s: State, text: str) -> None:
    await s.projects.rename(f"acme {text}")
    await s.projects.rename("acme")


PLANTS: Sequence[Plant] = (
    *(_thread, _criteria, _place, _status, _memory, _journal, _run, _transcript, _blob),
    *(_handoff, _fact, _objective, _actor, _refused, _project),
)


def held_by_bytes(folder: Path, text: str = SECRET) -> list[str]:
    """The files of a directory, by name, whose bytes hold the text in any case."""
    data = {file.name: file.read_bytes().lower() for file in folder.iterdir() if file.is_file()}
    return sorted(name for name, found in data.items() if text.lower().encode() in found)


def held(path: str, text: str = SECRET) -> list[str]:
    """The files of a store that hold the text, or what its tables say with it."""
    if not is_address(path):
        return held_by_bytes(Path(path).parent, text)
    return [line for line in everything(path) if text.lower() in line.lower()]


def contents(path: str, *, purged: bool = False) -> list[str]:
    """All that is in a store, as SQL, without digests of repeated calls and without a purge."""
    with copied(path) as copy:
        triggers = copy.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            copy.execute(f"DROP TRIGGER {name}")
        copy.execute("UPDATE idempotency SET digest = ''")
        if purged:
            for statement in _WITHOUT_PURGE:
                copy.execute(statement)
        rows = (line for line in copy.iterdump() if line.startswith("INSERT INTO "))
        return [row for row in rows if not row.startswith(('INSERT INTO "search', _SCHEMA))]


_SCHEMA = "INSERT INTO sqlite_"
_WITHOUT_PURGE = (
    "DELETE FROM events WHERE kind = 'project' AND operation = 'purge'",
    "DELETE FROM last_events WHERE agent = 'person'",
    "DELETE FROM actors WHERE agent = 'person'",
    "UPDATE projects SET last_event = last_event - 1",
    "UPDATE store SET changes = changes - 1",
)
