"""The store as a program uses it: no `mcp` needed, several stores may be open at once."""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mcp_state.models import Actor, Caller, Limits, Packet, Purged, Totals
from mcp_state.orient import Orient
from mcp_state.settings import store_path
from mcp_state.store.database import Database, open_database
from mcp_state.store.text import clean
from mcp_state.times import Clock

if TYPE_CHECKING:
    from mcp_state.store.blobs import Blobs
    from mcp_state.store.events import Events
    from mcp_state.store.facts import Facts
    from mcp_state.store.handoffs import Handoffs
    from mcp_state.store.journal import Journal
    from mcp_state.store.memory import Memory
    from mcp_state.store.objectives import Objectives
    from mcp_state.store.projects import Projects
    from mcp_state.store.runs import Runs
    from mcp_state.store.search import Search
    from mcp_state.store.steps import Steps
    from mcp_state.store.threads import Threads
    from mcp_state.store.traces import Traces
    from mcp_state.store.transcripts import Transcripts
    from mcp_state.store.transfer import Transfer

_NOUNS = {
    "memory": "memory.Memory",
    "threads": "threads.Threads",
    "journal": "journal.Journal",
    "facts": "facts.Facts",
    "objective": "objectives.Objectives",
    "events": "events.Events",
    "search": "search.Search",
    "projects": "projects.Projects",
    "runs": "runs.Runs",
    "steps": "steps.Steps",
    "blobs": "blobs.Blobs",
    "handoffs": "handoffs.Handoffs",
    "traces": "traces.Traces",
    "transcripts": "transcripts.Transcripts",
    "transfer": "transfer.Transfer",
}


class State:
    """The state of one project, for one caller.

    `memory`, `threads`, `journal`, `facts`, `objective`, `runs`, `steps`, `transcripts`, `blobs`,
    `handoffs`, `transfer` (export and import), `events` (history), `search` and `projects` hold the
    methods; each raises the classes of `mcp_state.errors` and returns the models of
    `mcp_state.models`.
    """

    memory: Memory
    threads: Threads
    journal: Journal
    facts: Facts
    objective: Objectives
    events: Events
    search: Search
    projects: Projects
    runs: Runs
    steps: Steps
    blobs: Blobs
    handoffs: Handoffs
    traces: Traces
    transcripts: Transcripts
    transfer: Transfer

    def __init__(self, database: Database, caller: Caller) -> None:
        self.database = database
        self.caller = caller

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """A noun, when it is first asked for: no start pays for what it does not use."""
            if name not in _NOUNS:
                raise AttributeError(f"'State' has no attribute {name!r}")
            module, _, noun = _NOUNS[name].partition(".")
            kind = getattr(importlib.import_module(f"mcp_state.store.{module}"), noun)
            setattr(self, name, kind(self.database, self.caller))
            return getattr(self, name)

    @property
    def totals(self) -> Totals:
        """The project's counts, as the last call saw them."""
        return self.caller.totals or Totals(self.caller.project, self.caller.how)

    async def orient(self, max_tokens: int = 2000, since: int | None = None) -> Packet:
        """The wake-up packet; `str()` of it is the text, at most four characters a token.

        `since` is the event number after which changes are news; by default the last event of
        this session, else that of an earlier session of the same agent.

        Raises:
            BadArgument: the budget is out of range.
        """
        return await Orient(self.database, self.caller).packet(max_tokens, since)

    async def purge(
        self,
        text: str,
        reason: str = "",
        *,
        dry_run: bool = False,
        every_project: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Purged:
        """Take a text out of the project for good: rows, events, versions, index, free pages, WAL.

        For people: no tool does it. A mark stands in its place, an event says who did it and why.
        With `dry_run` it is only looked for; a `reason` is needed otherwise. `progress` is called
        with what is done of how much, from a worker thread.

        Raises:
            BadArgument: the text is too short or too long, or a word of the store's own; there is
                no reason, or it holds the text.
            Conflict: no mark fits into the names that hold it.
            NotFound: there is no store, or no such project.
            StateError: what else the file refused.
        """
        from mcp_state.store.purge import Purge  # what few need is not imported by all

        purge = Purge(self.database, self.caller)
        return await purge.purge(
            text, reason, dry_run=dry_run, every_project=every_project, progress=progress
        )


@asynccontextmanager
async def open_store(
    path: str | os.PathLike[str] = "",
    *,
    project: str,
    agent: str = "python",
    session: str = "",
    worktree: str = "",
    clock: Clock | None = None,
    limits: Limits | None = None,
    read_only: bool = False,
    allow_secrets: bool = False,
) -> AsyncGenerator[State]:
    """Open a store for one project, and close it on exit.

    Args:
        path: absolute; empty for the user's own store. The first write makes the file.
        project: the project's name; a new name begins a new project with the first write.
        agent: the name that changes are recorded under.
        session: tells one session of the agent from another; by default a new one.
        worktree: the root of the worktree, for checkpoints to keep what git says of it, and for
            facts whose checks begin with `file:` or `git:`.
        clock: where time comes from, for tests.
        limits: sizes that are refused.
        read_only: refuse to write, and to make or migrate the file.
        allow_secrets: store what looks like a credential.

    Raises:
        BadArgument: the path is relative.
    """
    clock = clock or Clock()
    database = open_database(
        store_path(os.fspath(path), os.getcwd(), "the path"),
        clock=clock,
        limits=limits,
        read_only=read_only,
        allow_secrets=allow_secrets,
    )
    actor = Actor(clean(agent)[0], "python", clean(session)[0] or clock.new_id("s-"))
    try:
        yield State(
            database, Caller(clean(project)[0], "argument", actor, worktree=clean(worktree)[0])
        )
    finally:
        await database.aclose()
