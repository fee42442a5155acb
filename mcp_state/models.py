"""What the store returns: plain values, immutable, usable without `mcp`.

Times are aware datetimes in UTC. Lengths are in characters (Unicode code points).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from mcp_state.git import GitState
from mcp_state.lookups import Compared, Found
from mcp_state.record import record


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


class RunStatus(StrEnum):
    """Where a run stands; all but `open` are ends."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Trust(StrEnum):
    """How far a fact may be believed.

    `trusted`: a check held. `provisional`: never checked. `stale`: its reasons fell. `refuted`: a
    check did not hold. `archival`: true then, kept for the record.
    """

    TRUSTED = "trusted"
    PROVISIONAL = "provisional"
    STALE = "stale"
    REFUTED = "refuted"
    ARCHIVAL = "archival"


FALLEN = (Trust.STALE, Trust.REFUTED)


@record
class Limits:
    """Sizes that the store refuses to go over, in characters; `blob` in bytes."""

    block: int = 4096
    entry: int = 8192
    blob: int = 10 << 20
    text: int = 2000
    title: int = 300
    criteria: int = 200
    items: int = 50


@record
class Actor:
    """Who did something: agent name, client and session."""

    agent: str
    client: str = ""
    session: str = ""


@record
class Totals:
    """A project's counts, as the transaction that answered the call saw them.

    `stopped` counts the steps that were refused because they got nowhere.
    """

    project: str
    how: str
    exists: bool = False
    event: int = 0
    threads: Mapping[str, int] = field(default_factory=dict[str, int])
    journal: int = 0
    memory: int = 0
    runs: Mapping[str, int] = field(default_factory=dict[str, int])
    stopped: int = 0
    facts: Mapping[str, int] = field(default_factory=dict[str, int])
    remark: str = ""

    @property
    def all_threads(self) -> int:
        """Threads in any status."""
        return sum(self.threads.values())

    @property
    def all_facts(self) -> int:
        """Facts of any trust."""
        return sum(self.facts.values())


@dataclass(slots=True)
class Caller:
    """For which project and as whom a call is made; `totals` is filled in by each transaction.

    `anchor` is the directory that the store remembers as this project (section 5 of the design),
    empty when the project was named. `worktree` is kept with every event. `only` are the ids of the
    projects that the caller may see, all of them if it is None; `read_only` callers never write.
    """

    project: str
    how: str
    actor: Actor
    anchor: str = ""
    worktree: str = ""
    totals: Totals | None = None
    only: frozenset[int] | None = None
    read_only: bool = False


@record
class Principal:
    """For whom a request over HTTP is: what its token lets it do.

    `token` is the id of the token, empty for a request that needs none; `agent` and `toolset` are
    empty then too, and narrow nothing. `projects` are the ids and names of those it is for, None
    for all there are.
    """

    token: str = ""
    agent: str = ""
    toolset: str = ""
    projects: Mapping[int, str] | None = None


@record
class Token:
    """What is known of a token, which is all but the token itself.

    `projects` are the names of those it is for; one for `every_project` names none.
    """

    id: str
    agent: str
    toolset: str
    projects: Sequence[str]
    every_project: bool
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None


@record
class TokenMade:
    """A new token; `secret` is what a client sends, and is nowhere kept."""

    token: Token
    secret: str


@record
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


@record
class EventPage:
    """Events, oldest first; `more` later ones are left out."""

    events: Sequence[Event]
    more: int


@record
class MemoryBlock:
    """A named text in working memory, of the project or of one run.

    `locked` is the reason a person gave, or empty.
    """

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
    run: str = ""


@record
class MissingBlock:
    """No such block now: `version` is its last one if it was deleted or expired, else 0."""

    key: str
    version: int
    expired_at: datetime | None
    keys: Sequence[str]
    count: int
    run: str = ""


@record
class MemoryPage:
    """Blocks by name, and how many there are in all."""

    blocks: Sequence[MemoryBlock]
    count: int
    run: str = ""


@record
class JournalEntry:
    """What happened, in the agent's words. `seq` is its event number."""

    seq: int
    id: str
    at: datetime
    actor: Actor
    kind: str
    thread: str
    text: str
    run: str = ""
    repeated: bool = False


@record
class JournalPage:
    """Entries, oldest first, with whether (and, unfiltered, how many) there are before and after.

    `older` and `newer` are None when there are some that were not counted.
    """

    entries: Sequence[JournalEntry]
    older: int | None
    newer: int | None


@record
class Criterion:
    """One thing that must hold before a thread is done. Its text never changes."""

    number: int
    text: str
    passes: bool
    evidence: str = ""
    checked_at: datetime | None = None
    checked_by: Actor | None = None


@record
class Place:
    """Where the work is."""

    path_or_repo: str
    role: Literal["home", "donor", "archival"] = "home"
    note: str = ""


@record
class Lease:
    """Who may write to a thread, until when; `token` grows with each claim."""

    token: int
    holder: Actor
    until: datetime


@record
class Premise:
    """A fact that something rests on, and how far it may be believed now.

    `now` and `verified` are those of the fact. `replaced`: it says something else since it was
    given as a reason.
    """

    name: str
    check: str
    now: Compared | None
    verified: bool
    trust: Trust
    due: bool
    replaced: bool
    baseline: Found | None = None


@record
class Fact:
    """A check, what it said, and the statement that was believed for it since `stated_at`.

    `now`: what the server found at the address of the check when it showed the fact; None if the
    check is no address that it knows. `verified`: it may be relied on without another check, since
    one held, lately, in this session, and nothing has moved at its address. `due`: it is time to
    check again. `verified_at` to `baseline` tell of the last verification; `held` None: there was
    none since the check was set. `reasons` are independent of each other; of each, all premises are
    needed. `replaces`: the trust of the statement that this one took the place of, if there was
    one. `trust_at`: since when it has this trust.
    """

    name: str
    check: str
    now: Compared | None
    verified: bool
    trust: Trust
    trust_at: datetime
    due: bool
    recheck_at: datetime | None
    verified_at: datetime | None
    verified_by: Actor | None
    held: bool | None
    here: bool
    evidence: str
    baseline: Found | None
    statement: str
    replaces: Trust | None
    stated_at: datetime
    stated_by: Actor
    source: str
    reasons: Sequence[Sequence[Premise]]
    version: int
    created_at: datetime
    changed_at: datetime
    changed_by: Actor


@record
class Touched:
    """What fell with a fact, or is due since that changed; and the threads that rely on these.

    Of each, at most 20 are named; the counts tell of all. A thread comes with its status.
    """

    fell: Sequence[str] = ()
    fell_count: int = 0
    again: Sequence[str] = ()
    again_count: int = 0
    threads: Sequence[tuple[str, Status]] = ()
    threads_count: int = 0


@record
class FactRecorded:
    """A fact as it is now.

    `superseded` is the statement that it replaced, `was` the trust which that had. `demoted`: it
    was trusted, and its new check has not been run.
    """

    fact: Fact
    touched: Touched = Touched()
    unchanged: bool = False
    superseded: str = ""
    was: Trust | None = None
    demoted: bool = False


@record
class FactVerified:
    """A fact after its check was run, and what that touched.

    `before`: the fact as it was, if its last verification had said the opposite.
    """

    fact: Fact
    touched: Touched
    before: Fact | None = None


@record
class FactPage:
    """Facts: what is due first; `cursor` asks for the next page.

    `total_is` qualifies the number: of each trust at most 1,000 due ones are counted, which `due`
    tells; 1,001 stands for more.
    """

    facts: Sequence[Fact]
    total: int
    cursor: str = ""
    total_is: Literal["", "at least", "at most"] = ""
    due: Mapping[Trust, int] = field(default_factory=dict[Trust, int])


@record
class Traced:
    """One fact of an argument, `depth` steps from the conclusion.

    It is a premise of the fact above it, in that one's reason number `reason`; or, among what rests
    on the conclusion, it has the fact above it among its premises. `seen`: what leads to it stands
    above already. `falls`: it would fall with the conclusion, or has fallen already. `replaced`: it
    says something else since it was given as a reason.
    """

    fact: Fact
    depth: int
    reason: int
    seen: bool = False
    falls: bool = False
    replaced: bool = False


@record
class FactTrace:
    """Why a fact is believed, and what would fall with it.

    `rests_on` are its premises and theirs, `carries` is what rests on it and on that, at most 100
    of each; the counts tell of all. Of the threads that rely on it, or on what would fall with it,
    at most 20 are named.
    """

    fact: Fact
    rests_on: Sequence[Traced]
    rests_on_count: int
    carries: Sequence[Traced]
    carries_count: int
    falls_count: int
    threads: Sequence[tuple[str, Status]]
    threads_count: int


@record
class Objective:
    """What the project is after, since when and why; `was` is what it replaced."""

    objective: str
    intent: str
    reason: str
    version: int
    changed_at: datetime
    changed_by: Actor
    was: str = ""
    intent_was: str = ""
    unchanged: bool = False


@record
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
    relies_on: Sequence[Premise] = ()
    waits_for: int = 0
    criteria: int = 0
    passing: int = 0
    lease: Lease | None = None
    due: bool = False
    unchanged: bool = False


@record
class ThreadDetail:
    """All of one thread, with the facts that it relies on, and those that lie `under` them."""

    thread: Thread
    criteria: Sequence[Criterion]
    history: Sequence[Event]
    earlier: int
    journal: Sequence[JournalEntry]
    needed_by: Sequence[str]
    unfinished: Sequence[str]
    facts: Sequence[Fact] = ()
    under: Sequence[Fact] = ()


@record
class ThreadPage:
    """Threads in the order to work on them; `cursor` asks for the next page.

    `capped` says that `total` is too low: more than 1,000 due ones of a status are not counted.
    """

    threads: Sequence[Thread]
    total: int
    cursor: str = ""
    capped: bool = False


@record
class Checked:
    """One criterion after it was marked, with the thread's score."""

    thread: str
    criterion: Criterion
    passing: int
    criteria: int


@record
class NothingToClaim:
    """Why there is no thread to claim."""

    active: int
    held: int
    waiting: int


@record
class Checkpoint:
    """How far a run got at event `seq`: an immutable snapshot."""

    number: int
    seq: int
    at: datetime
    actor: Actor
    worktree: str
    state: str
    next_action: str
    done: int | None
    total: int | None
    git: GitState


@record
class Run:
    """One long task. A budget of None is no budget; `stopped` names the one that was found spent.

    `minutes` counts from the beginning to now, or to the end. `tokens_in` and `tokens_out` are as
    reported. `existing`: it was there already. `repeated`: what was asked for was done before.
    """

    name: str
    goal: str
    status: RunStatus
    version: int
    created_at: datetime
    touched_at: datetime
    touched_by: Actor
    expected_outcome: str = ""
    thread: str = ""
    max_attempts: int | None = None
    max_minutes: int | None = None
    max_tokens: int | None = None
    attempts: int = 0
    minutes: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    steps: int = 0
    steps_done: int = 0
    checkpoints: int = 0
    checkpoint_at: datetime | None = None
    done: int | None = None
    total: int | None = None
    next_action: str = ""
    stopped: str = ""
    finished_at: datetime | None = None
    result: str = ""
    evidence: str = ""
    reflection: str = ""
    existing: bool = False
    repeated: bool = False


@record
class Attempt:
    """One `go` of a step; without an end it was left open."""

    number: int
    begun_at: datetime
    begun_by: Actor
    input: str
    ended_at: datetime | None = None
    ok: bool | None = None
    result: str = ""
    tokens_in: int = 0
    tokens_out: int = 0


@record
class Step:
    """One unit of a run: open (an attempt has no end), failed (the last one did), or done.

    `streak` is how often in a row the same input had the same outcome; `stopped`: refused for it.
    """

    name: str
    run: str
    status: Literal["open", "failed", "done"]
    changed_at: datetime
    changed_by: Actor
    input: str
    result: str
    attempts: int
    tokens_in: int
    tokens_out: int
    streak: int = 0
    stopped: bool = False


@record
class StepBegun:
    """May it be done? `go` with the attempt's number, or not: it is done, with this result.

    `left_open` are earlier attempts that nobody ended, the last of them first.
    """

    run: str
    step: Step
    go: bool
    attempt: int = 0
    left_open: Sequence[Attempt] = ()


@record
class StepEnded:
    """What was recorded; `repeated`: the same outcome was recorded before, and stays one."""

    run: Run
    step: Step
    attempt: Attempt
    repeated: bool = False


@record
class CheckpointMade:
    """A checkpoint and its run."""

    run: Run
    checkpoint: Checkpoint


@record
class Since:
    """What happened since a checkpoint: events of its run, and others, each with who wrote them.

    `own` counts at most 1,000; `others` counts then only those of the newest 200 events. Of the
    writers, the last five are named with their last event, who wrote last before the others.
    """

    own: int
    own_by: Sequence[tuple[Actor, datetime]]
    others: int
    others_by: Sequence[tuple[Actor, datetime]]


@record
class Resumed:
    """Where a run stands: a checkpoint, the memory of its moment, its steps, and what differs now.

    `run` is None where there is no unfinished run. `checkpoint` is None before the first one.
    `memory_since` are blocks that were written after it, with their versions now (0: gone).
    `troubled` are steps that are open or failed, the last changed first; `finished` the last done.
    `open` and `failed` count at most 1,000 steps each. `by_number`: the checkpoint was asked for.
    """

    run: Run | None
    checkpoint: Checkpoint | None = None
    memory: Sequence[MemoryBlock] = ()
    troubled: Sequence[Step] = ()
    open: int = 0
    failed: int = 0
    finished: Sequence[Step] = ()
    left_open: Sequence[tuple[str, Attempt]] = ()
    differences: Sequence[str] = ()
    since: Since | None = None
    memory_since: Sequence[tuple[str, int]] = ()
    others: int = 0
    by_number: bool = False


@record
class OpenRun:
    """An unfinished run, for one who wakes up.

    `moved`: HEAD is another than at its last checkpoint. `left_open` are steps with an attempt
    that nobody ended; `failing` are those that had the same outcome three times or more.
    """

    run: Run
    moved: bool
    left_open: Sequence[tuple[str, Attempt]]
    failing: Sequence[Step]


@record
class RunPage:
    """Runs, the last touched first, and how many there are."""

    runs: Sequence[Run]
    total: int


@record
class RunDetail:
    """All that a run did: checkpoints, steps, its memory, and events, which tell of each attempt.

    The numbers of what there is in all stand in `run`; `events` is the newest page.
    """

    run: Run
    checkpoints: Sequence[Checkpoint]
    steps: Sequence[Step]
    memory: Sequence[MemoryBlock]
    events: Sequence[Event]
    earlier: int


@record
class Transcript:
    """How many messages a run has now, and how many bytes were added."""

    run: str
    messages: int
    added: int


@record
class Blob:
    """A large text kept aside; `expires_at` None: kept for good."""

    key: str
    sha256: str
    bytes: int
    characters: int
    summary: str
    version: int
    created_at: datetime
    changed_at: datetime
    changed_by: Actor
    expires_at: datetime | None = None
    repeated: bool = False


@record
class BlobPage:
    """Characters `offset` to `offset + len(text)` of a blob; `more` come after them."""

    blob: Blob
    offset: int
    text: str
    more: int


@record
class Handoff:
    """What was offered to another agent, and who took it."""

    key: str
    created_at: datetime
    created_by: Actor
    recipient: str
    note: str
    event: int
    exported_at: datetime | None = None
    accepted_at: datetime | None = None
    accepted_by: Actor | None = None


@record
class HandoffMade:
    """What was offered: how much of it there is, and the checks to run first."""

    handoff: Handoff
    threads: int
    runs: int
    blocks: int
    checks: Sequence[Thread]
    facts: Sequence[Fact] = ()
    all_facts: int = 0


@record
class HandoffTaken:
    """What was taken over: the checks to run first, and the leases that came with it."""

    handoff: Handoff
    checks: Sequence[Thread]
    leases: Sequence[Thread]
    facts: Sequence[Fact] = ()
    repeated: bool = False


@record
class SearchHit:
    """One match: `kind` and `name` lead to it, for a block of a run `run` too.

    A fact comes whole, with its check, and has no snippet.
    """

    kind: str
    name: str
    seq: int
    at: datetime
    actor: Actor
    fact: Fact | None
    snippet: str
    run: str = ""


@record
class SearchPage:
    """Hits, best first. `matches` were ranked; `capped`: there are more, older ones.

    `loose`: nothing held all the words, these hold some of them.
    """

    hits: Sequence[SearchHit]
    matches: int
    capped: bool
    loose: bool = False
    cursor: str = ""


@record
class Project:
    """A project of the store."""

    name: str
    totals: Totals
    created_at: datetime
    changed_at: datetime | None
    other_names: Sequence[str]
    directories: Sequence[str]


@record
class Packet:
    """The wake-up packet: what was gathered, and `text`, which fits the token budget.

    `since` is the event number after which `changes` count as news; `news` is how many there are.
    `due_count` is per status, `facts_due` per trust; 1,001 stands for more than 1,000. `facts` may
    still be believed, `fallen` not; `fallen_under` are threads that rely on one of the latter.
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
    runs: Sequence[OpenRun] = ()
    failed_runs: Sequence[Run] = ()
    stopped_steps: Sequence[Step] = ()
    dead_ends: Sequence[JournalEntry] = ()
    handoffs: Sequence[Handoff] = ()
    objective: Objective | None = None
    facts: Sequence[Fact] = ()
    fallen: Sequence[Fact] = ()
    fallen_under: Mapping[str, Sequence[tuple[str, Status]]] = field(
        default_factory=dict[str, Sequence[tuple[str, Status]]]
    )
    facts_due: Mapping[Trust, int] = field(default_factory=dict[Trust, int])

    def __str__(self) -> str:
        return self.text


@record
class Exported:
    """A file that holds a whole project; `path` is empty if it went to a stream.

    `handoff` is the key of the offer that it was made for, or empty.
    """

    path: str
    project: str
    events: int
    lines: int
    bytes: int
    sha256: str
    handoff: str = ""


@record
class NotTaken:
    """Something in the files of another tool that was not taken: where, what, and why."""

    place: str
    what: str
    why: str


@record
class Taken:
    """What came out of the files of another tool.

    `taken`, `changed` and `here` count, by kind, what is new here, what went on in the source since
    it was taken, and what was taken before. `replaced` is how many characters cannot be stored.
    `event` is the number of the event that records the import; 0 if nothing was written.
    """

    project: str
    source: str
    format: str
    taken: Mapping[str, int]
    changed: Mapping[str, int]
    here: Mapping[str, int]
    not_taken: Sequence[NotTaken]
    replaced: int = 0
    dry_run: bool = False
    event: int = 0


@record
class Imported:
    """What came out of a file: `events` are new here, `skipped` were here already.

    `kept_apart` says under which name a thing is found here, since its own leads to another one:
    `{"thread:base": "base (from acme)"}`. `stayed` tells of each blob and handoff that has another
    history in the file, which was not imported. `handoff` is the key to accept, or empty. `event`
    is the number of the event that records the import; 0 if there was nothing to do. After a dry
    run it says what would have been.
    """

    project: str
    source: str
    events: int
    skipped: int
    kept_apart: Mapping[str, str]
    stayed: Sequence[str] = ()
    handoff: str = ""
    event: int = 0
    dry_run: bool = False


@record
class PurgedPlace:
    """A subject that held the purged text, under the name it has now, and where in it it stood.

    `fields` are its columns, `history` (its events) and `search` (the index); `count` counts all.
    """

    project: str
    subject: str
    fields: Sequence[str]
    count: int


@record
class PurgedFile:
    """A file whose bytes were searched. `found` is how often they hold the text; -1: unreadable."""

    path: str
    what: str
    size: int
    found: int


@record
class Purged:
    """What `purge` found and did; it never holds the text itself.

    `mark` stands where the text was. `event` records it; 0 if no row held the text. `elsewhere`:
    another project of the store, which was not asked for, holds it. `clean`: neither the store nor
    a file beside it holds it any more. `notes` say what is left, and what to do.
    """

    dry_run: bool
    clean: bool
    mark: str
    event: int
    places: Sequence[PurgedPlace]
    files: Sequence[PurgedFile]
    notes: Sequence[str]
    elsewhere: bool = False

    @property
    def count(self) -> int:
        """In how many places it was found."""
        return sum(place.count for place in self.places)
