"""Stores of earlier versions, kept as text in `stores/`, and how they were filled.

What fills them is run by the code of an earlier version too, so it uses nothing but what that one
has, and it is never changed: what it did then is in the file. A new version of the schema gets a
function here for what is new in it, and a file, made with the package of that version:

    git archive COMMIT mcp_state toolsets | tar -x -C OLD
    PYTHONPATH=OLD python -P tests/old_stores.py tests/stores/1.sql

COMMIT is the last one that knew no more: 2586e86 for version 1, 2fa6dab for 2, 10a81d9 for 3,
9e49931 for 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sqlite3
import sys
import tempfile
from collections.abc import Awaitable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mcp_state.api import State
from mcp_state.errors import StateError
from mcp_state.models import Actor, Caller, Place, Status
from mcp_state.store import opening
from mcp_state.store.database import Database, open_database
from mcp_state.times import Clock

STORES = Path(__file__).with_name("stores")
INDEX = re.compile("PRAGMA writable_schema|INSERT INTO sqlite_master|[A-Z ]+[\"']search")
START = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)


class Minutes(Clock):
    """A clock that stands still but for what moves it; ids count up."""

    def __init__(self, time: datetime = START, ids: int = 0) -> None:
        self.time = time
        self._ids = ids

    def now(self) -> datetime:
        return self.time

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}{self._ids}"

    def new_secret(self) -> str:
        self._ids += 1
        return f"{self._ids:043}"


class Filling:
    """Two agents in one store, a minute between what they do."""

    def __init__(self, database: Database, clock: Minutes) -> None:
        self._database = database
        self._clock = clock
        self.ben = self.state("ben", "s2")
        self.ann = self.state("ann", "s1")

    def state(self, agent: str, session: str, project: str = "acme", anchor: str = "") -> State:
        actor = Actor(agent, f"{agent} 1.0", session)
        return State(self._database, Caller(project, "argument", actor, anchor, "/src/tree"))

    async def do(self, deed: Awaitable[Any]) -> Any:
        self._clock.time += timedelta(minutes=1)
        return await deed

    async def refused(self, deed: Awaitable[Any]) -> None:
        try:
            await self.do(deed)
        except StateError:
            return
        raise AssertionError("this was refused then")


async def core(by: Filling) -> None:
    """What the first version can hold."""
    ann, ben, do = by.ann, by.ben, by.do
    await do(ann.memory.set("Plan", "first line\nsecond line"))
    await do(ben.memory.append("plan", "\nthird über 東京", idempotency_key="once"))
    await do(ann.memory.set("gone", "was deleted"))
    await do(ann.memory.delete("gone"))
    await do(ann.memory.set("back", "was deleted and restored"))
    await do(ann.memory.delete("back"))
    await do(ann.memory.restore("back", 1))
    await do(ann.memory.set("brief", "soon over", ttl="90s"))
    await do(ann.memory.set("lasting", "over in a year", ttl="365d"))
    await do(ann.memory.set("Rules", "agreed on"))
    await do(ann.memory.lock("rules", "the customer signed it"))
    await by.refused(ben.memory.set("rules", "mine"))
    await by.refused(ben.memory.set("plan", "lost", expected_version=1))
    await do(ann.threads.set("Base", title="the base", criteria=["it builds", "it runs"]))
    await do(ben.threads.check("base", "1", True, evidence="make: exit 0"))
    await do(
        ann.threads.set("On top", depends_on=["base"], priority=2, places=[Place("src", "home")])
    )
    await do(ann.threads.set("asked", status=Status.BLOCKED, waiting_on="ein Prüfer 審査"))
    await do(ann.threads.set("seen", status=Status.WATCHING, check="gh pr view 1"))
    await do(ann.threads.set("over", status=Status.DROPPED, note="not needed"))
    await do(ann.threads.set("shipped", status=Status.DONE, evidence="commit 1a2b3c"))
    await do(ann.threads.set("again", status=Status.DONE, evidence="it seemed so"))
    await do(ann.threads.set("again", status=Status.ACTIVE, note="it was not"))
    await do(ann.threads.set("next", next_action="write one", priority=1))
    await do(ben.threads.claim("next", lease="365d"))
    await do(ann.threads.set("once held", next_action="go on"))
    await do(ben.threads.claim("once held", lease="1m"))
    await do(ann.threads.set("given back", next_action="whoever likes"))
    await do(ben.threads.claim("given back"))
    await do(ben.threads.release("given back", force=True))
    await by.refused(ann.threads.set("next", note="without the token"))
    await do(ann.journal.append("began", thread="base", idempotency_key="j1"))
    await by.refused(ann.journal.append("something else", idempotency_key="j1"))
    await do(ben.journal.append("the index is too small", kind="dead_end"))
    for number in range(5):
        await do(ann.journal.append(f"entry {number} über Größe 東京", kind="note"))
    side = by.state("ann", "s1", "side", "/src/side")
    await do(side.memory.set("plan", "written aside"))
    await do(side.threads.set("base", next_action="of the side"))
    await do(side.journal.append("written aside"))
    await do(side.projects.merge("acme"))
    other = by.state("ben", "s2", "other", "/src/other")
    await do(other.journal.append("of another project"))
    await do(other.projects.rename("another"))


async def runs(by: Filling) -> None:
    """What the second version can hold besides."""
    ann, ben, do = by.ann, by.ben, by.do
    await do(ann.threads.set("long", title="the long job", check="make check"))
    await do(ann.runs.begin("Reindex", run="Index", thread="long", max_attempts=7))
    await do(ann.memory.set("Cursor", "1", run="index"))
    await do(ann.memory.set("gone", "soon", run="index"))
    await do(ann.memory.delete("gone", run="index"))
    await do(ann.runs.checkpoint("index", "at 1", next_action="do 2", done=1, total=3))
    await do(ann.steps.begin("index", "One", input="a"))
    await do(ann.steps.end("index", "one", True, "fine", tokens_in=5, tokens_out=2))
    for _ in range(4):
        await do(ann.steps.begin("index", "two", input="b"))
        await do(ann.steps.end("index", "two", False, "the same", tokens_in=3))
    await by.refused(ann.steps.begin("index", "two", input="b"))
    await do(ann.steps.begin("index", "three", input="c"))
    await do(ben.journal.append("of the run", run="index", thread="long"))
    await do(ann.runs.checkpoint("index", "at 2", done=2, total=3, expected_number=1))
    await do(ann.memory.append("cursor", "2", run="index", idempotency_key="of the run"))
    await do(ben.threads.set("costly", next_action="try it"))
    await do(ben.runs.begin("Try it", run="spent", thread="costly", max_attempts=1))
    await do(ben.steps.begin("spent", "one"))
    await by.refused(ben.steps.begin("spent", "two"))
    await do(ben.runs.begin("Try again", run="raised", max_attempts=1))
    await do(ben.runs.raise_budget("raised", "worth it", attempts=9))
    await do(ben.runs.checkpoint("failed", "no way on"))
    await do(ben.runs.finish("failed", "failed", reflection="no way through"))
    await do(ben.runs.begin("Ship", run="Shipped"))
    await do(ben.runs.finish("shipped", "completed", result="out", evidence="release 3"))
    await do(ben.runs.begin("Idle", run="left"))
    await do(ben.runs.finish("left", "abandoned", reflection="too early"))
    await do(ann.transcripts.append("index", {"role": "user", "content": "do it"}, '{ "n": 1.0 }'))
    await do(ann.blobs.put("a long text\n" * 40, summary="about it", ttl="90s"))
    await do(ann.blobs.put("kept for good", summary="the log"))
    await do(ann.handoffs.create("the importer is half done", to="ben"))
    taken = await do(ann.handoffs.create("the docs"))
    await do(ben.handoffs.accept(taken.handoff.key))


async def truth(by: Filling) -> None:
    """What the third version can hold besides."""
    ann, ben, do = by.ann, by.ben, by.do
    facts = ann.facts
    await do(ann.objective.set("Ship it", intent="nobody waits for us"))
    await do(ben.objective.set("Ship it safely", reason="it broke once", expected_version=1))
    await do(facts.record("Builds", "the build is green", check="make", source="CI"))
    await do(facts.record("Tested", "the tests pass", check="./test", recheck_after="2h"))
    await do(facts.record("fits", "it fits into a page", archival=True))
    await do(facts.record("Runs", "it runs", check="./run", because=["builds", "Tested"]))
    await do(facts.record("ready", "it can go out", because=["runs"]))
    await do(facts.record("ready", because=["fits"]))
    await do(facts.record("Deployed", "it is out", check="./ask", because=["runs"]))
    await do(facts.verify("builds", True, "make: exit 0"))
    await do(ben.facts.verify("tested", True, "12 passed"))
    await do(facts.verify("deployed", True, "it is there"))
    await do(ben.facts.verify("tested", False, "1 failed"))
    await by.refused(facts.verify("ready", True, "looks good"))
    await do(facts.record("Gone", "the old page is gone", check="curl"))
    await do(facts.verify("gone", False, "200 OK"))
    await do(ann.threads.set("relying", relies_on=["ready", "builds"]))


async def tokens(by: Filling) -> None:
    """What version 4 brought: a token of two projects, and one of every project, which is over."""
    from mcp_state.store.tokens import Tokens

    one, other = by.ann, by.state("ann", "s1", "another")
    lasting, made = timedelta(days=30), Tokens(one.database, one.caller)
    places = [one.caller, other.caller]
    await by.do(made.create(places, agent="Ci", toolset="coding", lasts=lasting))
    over = await by.do(
        made.create(places[:1], agent="ben", toolset="all", lasts=lasting, every_project=True)
    )
    await by.do(made.revoke(over.token.id))


VERSIONS = (core, runs, truth, tokens)


async def fill(path: str, version: int) -> None:
    """Make a store and do all that the `version` of the schema has a place for."""
    clock = Minutes()
    database = open_database(path, clock=clock)
    try:
        by = Filling(database, clock)
        for what in VERSIONS[:version]:
            await what(by)
    finally:
        await database.aclose()


def dump(connection: sqlite3.Connection) -> Iterator[str]:
    """A store as SQL; its index is made anew from the documents, or it would be half of it."""
    yield f"-- made by tests/old_stores.py; SQLite {sqlite3.sqlite_version}"
    for setting in ("application_id", "user_version"):
        (value,) = connection.execute(f"PRAGMA {setting}").fetchone()
        yield f"PRAGMA {setting} = {value};"
    find = "SELECT sql FROM sqlite_schema WHERE name = 'search'"
    (index,) = connection.execute(find).fetchone()
    for line in connection.iterdump():
        if line == "COMMIT;":
            yield f"{index};"
            yield "INSERT INTO search (search) VALUES ('rebuild');"
        if not INDEX.match(line):
            yield line


def load(version: int, path: str) -> None:
    """Make the store at `path` that this version of the schema was kept of."""
    script = (STORES / f"{version}.sql").read_text(encoding="utf-8")
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
        connection.execute("PRAGMA journal_mode = WAL")
    os.chmod(path, 0o600)


def main() -> None:
    (target,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.db")
        asyncio.run(fill(path, len(opening.migrations())))
        with contextlib.closing(sqlite3.connect(path)) as connection:
            text = "".join(f"{line}\n" for line in dump(connection))
    Path(target).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
