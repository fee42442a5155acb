"""What the tests of export and import share: stores on several machines, and files between them."""

from __future__ import annotations

import atexit
import functools
import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from whole_stores import contradictions as contradictions
from whole_stores import everything as everything
from workload import Nouns, StepClock, work, work_long, work_truth

from mcp_state.api import State
from mcp_state.models import Actor, Caller, Imported
from mcp_state.settings import is_address
from mcp_state.store.database import open_database
from mcp_state.times import Clock

Line = dict[str, Any]
_FILES = itertools.count(1)


@functools.cache
def _exports() -> Path:
    """The folder of what stores on a server export."""
    folder = tempfile.mkdtemp(prefix="mcp-state-exports-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class Store:
    """A store on a machine of its own, for several callers, and the files that it makes."""

    def __init__(self, path: str, clock: Clock) -> None:
        self.path = path
        self.name = Path(path).stem
        self.folder = _exports() if is_address(path) else Path(path).parent
        self.database = open_database(path, clock=clock)

    def as_(self, agent: str = "codex", session: str = "s1", project: str = "acme") -> State:
        caller = Caller(project, "argument", Actor(agent, "test", session), worktree="/w")
        return State(self.database, caller)

    async def export(self, project: str = "acme", handoff: str = "") -> Path:
        file = self.folder / f"{project}-{next(_FILES)}.jsonl"
        await self.as_(project=project).transfer.export(file, handoff=handoff)
        return file

    async def take(self, file: Path, project: str = "acme") -> Imported:
        """Import; afterwards doctor finds nothing, and a second time there is nothing to do."""
        state = self.as_("importer", "s9", project)
        imported = await state.transfer.import_file(file)
        found = contradictions(self.path)
        assert not found, found
        before = everything(self.path)
        again = await state.transfer.import_file(file)
        assert (again.events, again.event, again.kept_apart) == (0, 0, {}), (imported, again)
        assert everything(self.path) == before
        return imported


@asynccontextmanager
async def store_at(path: str | Path, clock: Clock | None = None) -> AsyncGenerator[Store]:
    store = Store(str(path), clock or StepClock())
    try:
        yield store
    finally:
        await store.database.aclose()


async def fill(store: Store, project: str = "acme", agent: str = "codex") -> None:
    """Something of everything that can be stored, refusals too."""
    nouns = Nouns(store.database, project, agent)
    await work(nouns)
    await work_long(nouns)
    await work_truth(nouns)
    state = State(store.database, nouns.caller)
    await state.blobs.put("a long log\n" * 50, summary="log", ttl="4h")
    await state.blobs.put("another \u2028 text", summary="odd")
    await state.runs.begin("Talk", run="Talk", thread="base")
    await state.transcripts.append(
        "talk",
        {"role": "user", "content": "Größe \U0001f600 1.50"},
        '{"as": 1.50, "it": "\\ud800 is", "a": 1, "a": 2}',
    )
    await state.transcripts.append("talk", {"role": "assistant", "content": [{"n": 1e-7}]})
    await state.traces.record("search", {"query": "x"}, "nothing\nfound", run="talk")
    await state.projects.rename(f"{project} once more")
    await state.projects.rename(project)


def read(file: Path) -> bytes:
    return file.read_bytes()


def write(file: Path, data: bytes) -> None:
    file.write_bytes(data)


def lines_of(file: Path) -> list[Line]:
    return [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]


def data_of(file: Path) -> list[Line]:
    """All but the first and the last line."""
    return lines_of(file)[1:-1]


def things(file: Path, kind: str) -> list[Line]:
    return [line[kind] for line in data_of(file) if kind in line]


def write_lines(file: Path, lines: Iterable[Line]) -> None:
    """Write an export of these lines, with the checksum that belongs to them."""
    texts = [json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines]
    data = "".join(f"{text}\n" for text in texts).encode()
    end = {"sha256": hashlib.sha256(data).hexdigest(), "lines": len(texts)}
    file.write_bytes(data + json.dumps(end, separators=(",", ":")).encode() + b"\n")


def edit(file: Path, change: Callable[[list[Line]], None]) -> None:
    """Change the lines of an export, and make its checksum right again."""
    lines = lines_of(file)[:-1]
    change(lines)
    write_lines(file, lines)
