"""What a process does to a store while a fault is injected into it, and what there is before."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

from planting import CountingClock
from test_migrations import make_version_1, make_version_2
from workload import plain

from mcp_state.api import State
from mcp_state.cli import main
from mcp_state.errors import StateError
from mcp_state.models import Actor, Caller
from mcp_state.store import opening, sqlite
from mcp_state.store.backup import back_up
from mcp_state.store.database import open_database
from mcp_state.times import Clock

AT = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
SECRET = "hunter22hunter22"
FINE, BROKEN = "fine", "broken"
WHOLE = "all of it or nothing; " * 100
_FRAME = 4120


class Stopped(Clock):
    """Time stands still and ids repeat, so that a process leaves the same rows as another."""

    def now(self) -> datetime:
        return AT

    def new_id(self, prefix: str) -> str:
        return f"{prefix}now"


@asynccontextmanager
async def opened(store: Path, clock: Clock) -> AsyncGenerator[State]:
    database = open_database(str(store), clock=clock, wait=2.0)
    try:
        yield State(database, Caller("acme", "argument", Actor("tester", "test", "s1"), "", "/w"))
    finally:
        await database.aclose()


async def go_on(state: State, text: str) -> None:
    """One more write, which must leave a mark of its own."""
    await state.memory.set(text, "it goes on")


Work = Callable[[State], Awaitable[object]]
Command = Callable[[Path], Sequence[str]]


async def nothing(state: State) -> None:
    """What was done in a process that just began."""


async def write_nothing(state: State) -> None:
    """Open for writing, which may make or migrate the store, and leave it at that."""
    await state.database.write(state.caller, lambda tx: None)


async def _look_and_write(state: State) -> None:
    """What a session did before: both connections are open."""
    await state.memory.blocks()
    await go_on(state, "before")


async def _close(state: State) -> None:
    await state.database.aclose()


@dataclass(frozen=True)
class Deed:
    """One thing to do: a method of the API, or a command.

    `at` is what there is before; `first` is done in the same process beforehand, unharmed. On an
    `unsafe` file system SQLite keeps a rollback journal.
    """

    name: str
    at: str = "small"
    work: Work = nothing
    command: Command | None = None
    first: Work = nothing
    unsafe: bool = False
    stdin: bytes = b""


def _noun(name: str, work: Work) -> Deed:
    return Deed(name, work=work, first=_look_and_write)


NOUNS = (
    _noun("memory", lambda s: s.memory.set("plan", "two " * 500)),
    _noun("thread", lambda s: s.threads.set("fix", next_action="go on", criteria=["it runs"])),
    _noun("journal", lambda s: s.journal.append("it was so " * 300, thread="fix")),
    _noun("checkpoint", lambda s: s.runs.checkpoint("index", "at 2", done=2, total=3)),
    _noun("step", lambda s: s.steps.end("index", "one", True, "it went well")),
    _noun("blob", lambda s: s.blobs.put("a long text " * 3000, summary="about it")),
    _noun("fact", lambda s: s.facts.verify("builds", False, "make: exit 1")),
)
_MEMORY = NOUNS[0].work
STARTS = (
    Deed("first of all", at="none", work=_MEMORY),
    Deed("first after a start", work=_MEMORY),
    Deed("first after a kill", at="killed", work=_MEMORY),
    Deed("checkpoint of the wal", at="long", work=_MEMORY),
    Deed("close", work=_close, first=_look_and_write),
)
UNSAFE = (
    Deed("first of all without a wal", at="none", work=_MEMORY, unsafe=True),
    Deed("without a wal", at="unsafe", work=_MEMORY, first=_look_and_write, unsafe=True),
)
MIGRATIONS = (
    Deed("migration from 1", at="version 1", work=_MEMORY),
    Deed("migration from 2", at="version 2", work=_MEMORY),
)
BACKUP = Deed("backup", at="killed", command=lambda path: ("backup", f"{path.parent}/new.db"))
BACKUP_OVER = Deed(
    "backup over an older one",
    at="killed",
    command=lambda path: ("backup", f"{path.parent}/copy.db", "--overwrite"),
)
RESTORE = Deed("restore", at="killed", command=lambda path: ("restore", f"{path.parent}/copy.db"))
PURGE = Deed(
    "purge",
    at="killed",
    command=lambda path: ("purge", "--reason", "it was pasted", "--yes"),
    stdin=SECRET.encode(),
)
IMPORT = Deed(
    "import",
    command=lambda path: ("import", f"{path.parent}/other.jsonl", "--project", "acme"),
)
AMONG_OTHERS = Deed(
    "among others",
    work=lambda s: s.memory.set(f"by {os.getpid()}", WHOLE),
    first=lambda s: s.memory.set(f"before {os.getpid()}", "acknowledged"),
)
MEMBERS = 5


class Several(StateError):
    """Of some that were done together, not all went well; the fact is how each ended, as JSON."""

    code = "several"


async def _be_patient(state: State) -> None:
    sqlite.LONGEST_GROUP = 60.0
    await _look_and_write(state)


async def _together(state: State, members: int) -> None:
    """Writes that share a commit, and among them one that is refused."""
    works = [state.memory.set(f"member {n}", f"{n}: {WHOLE}") for n in range(members)]
    late = state.memory.set("plan", "late", expected_version=99)
    *ended, refused = await asyncio.gather(*map(outcome, (*works, late)))
    if set(ended) != {FINE} or not refused.startswith("version_conflict"):
        raise Several(json.dumps([*ended, refused]))


TOGETHER = Deed("together", work=lambda s: _together(s, MEMBERS), first=_be_patient)
CROWD = Deed("crowd", work=lambda s: _together(s, 64), first=_be_patient)
KINDS: Mapping[str, Sequence[Deed]] = {
    "write": NOUNS,
    "first of all": STARTS[:1],
    "start": STARTS[1:3],
    "checkpoint of the wal": STARTS[3:4],
    "close": STARTS[4:],
    "rollback journal": UNSAFE,
    "migration": MIGRATIONS,
    "backup": (BACKUP, BACKUP_OVER),
    "restore": (RESTORE,),
    "purge": (PURGE,),
    "import": (IMPORT,),
}
DEEDS = {
    deed.name: deed for kind in (*KINDS.values(), [AMONG_OTHERS, TOGETHER, CROWD]) for deed in kind
}


async def outcome(work: Awaitable[object]) -> str:
    """How it ended: fine, broken by what is no refusal, or the words of the refusal."""
    try:
        await work
    except StateError as problem:
        return str(problem)
    except Exception as problem:
        return f"{BROKEN}: {problem!r}"
    return FINE


def run_command(words: Sequence[str], store: Path, stdin: bytes) -> str:
    """How a command ended: what it said on stderr, if it was refused."""
    os.environ |= {"MCP_STATE_DB": str(store), "MCP_STATE_PROJECT": "acme"}
    os.environ["CLAUDE_CODE_SESSION_ID"] = "s1"
    said = io.StringIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    with (
        patch.multiple(Clock, now=Stopped.now, new_id=Stopped.new_id),
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(io.StringIO()) as out,
    ):
        try:
            main(words, prog_name="mcp-state")
        except SystemExit as end:
            if not end.code:
                return FINE
        except Exception as problem:
            return f"{BROKEN}: {problem!r}"
    return said.getvalue() or out.getvalue()


def make_templates(folder: Path) -> None:
    """A folder for each state of a store that something begins from."""
    for name in ("none", "small", "version 1", "version 2"):
        (folder / name).mkdir(mode=0o700, parents=True)
    asyncio.run(_make_small(folder))
    make_version_1(folder / "version 1" / "state.db")
    make_version_2(folder / "version 2" / "state.db")


async def _make_small(folder: Path) -> None:
    path = folder / "small" / "state.db"
    clock = CountingClock()
    async with opened(folder / "other" / "state.db", clock) as other:
        await other.journal.append("in the other one")
        await other.threads.set("other", next_action="write it")
        await other.transfer.export(path.parent / "other.jsonl")
    async with opened(path, clock) as state:
        await state.memory.set("plan", "one")
        await state.threads.set("fix", next_action="begin")
        await state.runs.begin("Reindex", run="index")
        await state.runs.checkpoint("index", "at 1", done=1, total=3)
        await state.steps.begin("index", "one")
        await state.facts.record("builds", "the build is green", check="make")
        await state.facts.verify("builds", True, "make: exit 0")
        await state.journal.append("the work began")
        await back_up(str(path), str(path.parent / "copy.db"))
    with plain(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        shutil.copytree(path.parent, folder / "unsafe")
        connection.execute("PRAGMA journal_mode = WAL")
    async with opened(path, clock) as state:
        await _look_and_write(state)
        await state.memory.append("plan", f" of {SECRET}")
        await state.threads.set("fix", note=f"{SECRET} again")
        leave(path, folder / "killed")
        for number in itertools.count():
            if _frames(path) >= 978:  # at 1,000 SQLite brings them into the file
                break
            await state.blobs.put(f"{number} " * 4000)
        leave(path, folder / "long")
    shutil.rmtree(folder / "small")
    shutil.copytree(folder / "killed", folder / "small")
    with plain(folder / "small" / "state.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _frames(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size // _FRAME


def leave(path: Path, target: Path) -> None:
    """Copy what would be left of a store and what lies beside it if everybody were killed now."""
    shutil.copytree(path.parent, target, ignore=shutil.ignore_patterns("*-shm"))


def without_wal() -> None:
    """Let this process take every file system for one where a WAL is not safe."""
    opening.file_system = lambda path: "nfs4"
