"""What the store returns: plain values, immutable, usable without `mcp`.

Times are aware datetimes in UTC. Lengths are in characters (Unicode code points).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal


class Status(StrEnum):
    """Where a thread stands."""

    ACTIVE = "active"
    WATCHING = "watching"
    BLOCKED = "blocked"
    DONE = "done"
    DROPPED = "dropped"


OPEN = (Status.ACTIVE, Status.WATCHING, Status.BLOCKED)
MOVES: Mapping[Status, tuple[Status, ...]] = {
    **{status: tuple(s for s in Status if s is not status) for status in OPEN},
    Status.DONE: (Status.ACTIVE,),
    Status.DROPPED: (Status.ACTIVE,),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes that the store refuses to go over, in characters."""

    block: int = 4096
    entry: int = 8192
    text: int = 2000
    title: int = 300
    criteria: int = 200
    items: int = 50


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did something: agent name, client and session."""

    agent: str
    client: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class Totals:
    """A project's counts, as the transaction that answered the call saw them."""

    project: str
    how: str
    exists: bool = False
    event: int = 0
    threads: Mapping[str, int] = field(default_factory=dict[str, int])
    journal: int = 0
    memory: int = 0
    remark: str = ""

    @property
    def all_threads(self) -> int:
        """Threads in any status."""
        return sum(self.threads.values())


@dataclass(slots=True)
class Caller:
    """For which project and as whom a call is made; `totals` is filled in by each transaction.

    `anchor` is the directory that the store remembers as this project (section 5 of the design),
    empty when the project was named. `worktree` is kept with every event.
    """

    project: str
    how: str
    actor: Actor
    anchor: str = ""
    worktree: str = ""
    totals: Totals | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One committed change: what it left behind (`row`), by whom, when, and in which order."""

    seq: int
    at: datetime
    actor: Actor
    worktree: str
    run: str
    kind: str
    name: str
    operation: str
    summary: str
    version: int | None
    row: Mapping[str, Any] | None

    @property
    def subject(self) -> str:
        """What `history` takes: `thread:pr-830`."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events, oldest first; `more` later ones are left out."""

    events: Sequence[Event]
    more: int


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """A named text in working memory. `locked` is the reason a person gave, or empty."""

    key: str
    value: str
    version: int
    limit: int
    changed_at: datetime
    changed_by: Actor
    expires_at: datetime | None = None
    locked: str = ""
    current: bool = True
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class MissingBlock:
    """No such block now: `version` is its last one if it was deleted or expired, else 0."""

    key: str
    version: int
    expired_at: datetime | None
    keys: Sequence[str]
    count: int


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """Blocks by name, and how many there are in all."""

    blocks: Sequence[MemoryBlock]
    count: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """What happened, in the agent's words. `seq` is its event number."""

    seq: int
    id: str
    at: datetime
    actor: Actor
    kind: str
    thread: str
    text: str
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class JournalPage:
    """Entries, oldest first, with whether (and, unfiltered, how many) there are before and after.

    `older` and `newer` are None when there are some that were not counted.
    """

    entries: Sequence[JournalEntry]
    older: int | None
    newer: int | None


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that must hold before a thread is done. Its text never changes."""

    number: int
    text: str
    passes: bool
    evidence: str = ""
    checked_at: datetime | None = None
    checked_by: Actor | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where the work is."""

    path_or_repo: str
    role: Literal["home", "donor", "archival"] = "home"
    note: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may write to a thread, until when; `token` grows with each claim."""

    token: int
    holder: Actor
    until: datetime


@dataclass(frozen=True, slots=True)
class Thread:
    """One line of work in the queue."""

    name: str
    title: str
    status: Status
    version: int
    priority: int
    created_at: datetime
    status_at: datetime
    changed_at: datetime
    changed_by: Actor
    next_action: str = ""
    waiting_on: str = ""
    recheck_at: datetime | None = None
    check: str = ""
    evidence: str = ""
    note: str = ""
    places: Sequence[Place] = ()
    depends_on: Sequence[str] = ()
    waits_for: int = 0
    criteria: int = 0
    passing: int = 0
    lease: Lease | None = None
    due: bool = False
    unchanged: bool = False


@dataclass(frozen=True, slots=True)
class ThreadDetail:
    """All of one thread."""

    thread: Thread
    criteria: Sequence[Criterion]
    history: Sequence[Event]
    earlier: int
    journal: Sequence[JournalEntry]
    needed_by: Sequence[str]
    unfinished: Sequence[str]


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """Threads in the order to work on them; `cursor` asks for the next page.

    `capped` says that `total` is too low: more than 1,000 due ones of a status are not counted.
    """

    threads: Sequence[Thread]
    total: int
    cursor: str = ""
    capped: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """One criterion after it was marked, with the thread's score."""

    thread: str
    criterion: Criterion
    passing: int
    criteria: int


@dataclass(frozen=True, slots=True)
class NothingToClaim:
    """Why there is no thread to claim."""

    active: int
    held: int
    waiting: int


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One match: `subject` leads to it, `snippet` shows it."""

    kind: str
    name: str
    seq: int
    at: datetime
    actor: Actor
    snippet: str


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Hits, best first. `matches` were ranked; `capped`: there are more, older ones.

    `loose`: nothing held all the words, these hold some of them.
    """

    hits: Sequence[SearchHit]
    matches: int
    capped: bool
    loose: bool = False
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class Project:
    """A project of the store."""

    name: str
    totals: Totals
    created_at: datetime
    changed_at: datetime | None
    other_names: Sequence[str]
    directories: Sequence[str]


@dataclass(frozen=True, slots=True)
class Packet:
    """The wake-up packet: what was gathered, and `text`, which fits the token budget.

    `since` is the event number after which `changes` count as news; `news` is how many there are.
    `due_count` is per status; 1,001 stands for more than 1,000.
    """

    text: str
    last_here: datetime | None
    since: int
    news: int
    changes: Sequence[Event]
    active: Sequence[Thread]
    due: Sequence[Thread]
    blocked: Sequence[Thread]
    due_count: Mapping[Status, int]
    memory: Sequence[MemoryBlock]
    journal: Sequence[JournalEntry]

    def __str__(self) -> str:
        return self.text
