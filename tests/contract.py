"""The contract in plain Python: what the store holds, and who may do what to it.

Written from the design, to be held against the server by `test_machine`. Here is what the nouns
share; what each tool promises stands in `contract_notes`, `contract_work` and `contract_truth`.

A refused call changes nothing. Where several rules refuse it, any of them may be the one that is
told: `Refused` holds the codes of all.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from mcp_state.models import Limits

RECORDED = {
    "version_conflict",
    "lease_lost",
    "locked",
    "conflict",
    "no_progress",
    "budget_spent",
    "secret_refused",
}
"""Refusals that a person would want to see: each is an event."""
OPEN = ("active", "watching", "blocked")
DAY = timedelta(days=1)
SECRET = "ghp_" + "a1" * 18
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
ANY: Any = object()
"""An expected value that the contract leaves open."""

Shape = dict[str, Any]
"""What an answer must hold; it may hold more."""


class Refused(Exception):
    """The call is refused, with one of these codes.

    `kept`: what it left behind is an event already, and the refusal is none of its own.
    """

    def __init__(self, *codes: str, kept: bool = False) -> None:
        super().__init__(*codes)
        self.codes, self.kept = frozenset(codes), kept


class Why:
    """All the reasons to refuse a call."""

    def __init__(self, at: At) -> None:
        self._at = at
        self._codes: set[str] = set()

    def when(self, wrong: object, code: str) -> None:
        if wrong:
            self._codes.add(code)

    def text(self, text: str, limit: int) -> str:
        """A text as it is stored."""
        text = storable(text)
        self.when(len(text) > limit, "over_limit")
        self.when(SECRET in text and not self._at.who.allow_secrets, "secret_refused")
        return text

    def name(self, name: str) -> str:
        """A name as it is shown."""
        try:
            return self._at.name(name)
        except Refused as refused:
            self._codes |= refused.codes
            return ""

    def found(self, things: dict[str, Any], name: str) -> str:
        """The name of something that is there, as names are compared; or empty."""
        try:
            return self._at.found(things, name)
        except Refused as refused:
            self._codes |= refused.codes
            return ""

    def run(self, run_id: str) -> str:
        """The run that a call names, as it is compared; empty if it names none."""
        return self.found(self._at.project.runs, run_id) if run_id.strip() else ""

    def duration(self, text: str) -> timedelta | None:
        match = re.fullmatch(r"([1-9]\d*)([smhd])", text)
        self.when(text and match is None, "bad_argument")
        return timedelta(seconds=int(match[1]) * UNITS[match[2]]) if match else None

    def page(self, limit: int, most: int) -> None:
        self.when(not 1 <= limit <= most, "bad_argument")

    def settle(self) -> None:
        if self._codes:
            raise Refused(*self._codes)


@dataclass(frozen=True)
class Who:
    """Who calls, through which server: `limits` and `allow_secrets` are settings of that."""

    agent: str
    session: str
    limits: Limits
    allow_secrets: bool = False


@dataclass
class Block:
    """`versions` are all there ever were; None is a deletion."""

    shown: str
    run: str
    versions: list[str | None] = field(default_factory=list[str | None])
    expires_at: datetime | None = None
    locked: str = ""

    @property
    def version(self) -> int:
        return len(self.versions)

    def alive(self, now: datetime) -> bool:
        is_over = self.expires_at is not None and self.expires_at <= now
        return bool(self.versions) and self.versions[-1] is not None and not is_over


@dataclass
class Criterion:
    text: str
    passes: bool = False
    evidence: str = ""


@dataclass
class Thread:
    shown: str
    created: int
    fields: Shape
    """What `thread_set` may change, and only that."""
    recheck_at: datetime | None = None
    depends_on: set[str] = field(default_factory=set[str])
    relies_on: set[str] = field(default_factory=set[str])
    criteria: list[Criterion] = field(default_factory=list[Criterion])
    version: int = 1
    changed: int = 0
    token: int = 0
    holder: Who | None = None
    until: datetime | None = None
    waits_for: tuple[str, str] | None = None
    """The run and its budget, if the thread was blocked for one."""

    @property
    def status(self) -> str:
        return self.fields["status"]

    def held_by(self, now: datetime) -> Who | None:
        return self.holder if self.until is not None and self.until > now else None

    def due(self, now: datetime) -> bool:
        return self.recheck_at is not None and self.recheck_at <= now


@dataclass(frozen=True)
class Entry:
    seq: int
    agent: str
    text: str
    kind: str
    thread: str
    run: str


@dataclass(frozen=True)
class Checkpoint:
    seq: int
    state: str
    next_action: str
    done: int | None
    total: int | None
    memory: dict[str, tuple[int, str]]


@dataclass
class Attempt:
    number: int
    begun: int
    session: str
    input: str
    ended: int = 0
    ended_by: str = ""
    ok: bool = False
    result: str = ""

    def had(self, ok: bool, result: str) -> bool:
        return bool(self.ended) and (self.ok, self.result) == (ok, result)


@dataclass
class Step:
    shown: str
    changed: int
    status: str = "open"
    input: str = ""
    result: str = ""
    outcome: tuple[bool, str] | None = None
    streak: int = 0
    stopped: bool = False
    attempts: list[Attempt] = field(default_factory=list[Attempt])


@dataclass
class Run:
    shown: str
    created_at: datetime
    goal: str
    expected_outcome: str
    thread: str
    most: dict[str, int | None]
    touched: int = 0
    version: int = 1
    status: str = "open"
    stopped: str = ""
    finished_at: datetime | None = None
    said: dict[str, str] = field(
        default_factory=lambda: {"result": "", "evidence": "", "reflection": ""}
    )
    tokens: list[int] = field(default_factory=lambda: [0, 0])
    steps: dict[str, Step] = field(default_factory=dict[str, Step])
    checkpoints: list[Checkpoint] = field(default_factory=list[Checkpoint])

    @property
    def attempts(self) -> int:
        return sum(len(step.attempts) for step in self.steps.values())

    def seconds(self, now: datetime) -> float:
        return ((self.finished_at or now) - self.created_at).total_seconds()

    def spent(self, now: datetime) -> list[str]:
        """The budgets that are spent, the one that was found so first before the others."""
        used = {
            "attempts": self.attempts,
            "minutes": (now - self.created_at).total_seconds() / 60,
            "tokens": sum(self.tokens),
        }
        over = [b for b, most in self.most.items() if most is not None and used[b] >= most]
        return list(dict.fromkeys([self.stopped, *over] if self.stopped else over))


@dataclass(frozen=True)
class Reason:
    premises: frozenset[str]
    given: int


@dataclass(frozen=True)
class Seen:
    """What a session that changed a fact knows it to say."""

    at: datetime
    session: str
    statement: str
    check: str


@dataclass
class Fact:
    shown: str
    created: int
    statement: str
    check: str
    source: str
    trust: str
    stated: int
    stated_at: datetime
    recheck_after: timedelta
    recheck_at: datetime | None
    version: int = 1
    changed: int = 0
    held: bool | None = None
    verified_at: datetime | None = None
    verified_by: str = ""
    evidence: str = ""
    replaces: str = ""
    reasons: list[Reason] = field(default_factory=list[Reason])
    seen: list[Seen] = field(default_factory=list[Seen])

    @property
    def fell(self) -> bool:
        return self.trust in ("refuted", "stale")

    def due(self, now: datetime) -> bool:
        return self.recheck_at is not None and self.recheck_at <= now


@dataclass
class Blob:
    text: str
    summary: str
    expires_at: datetime | None
    version: int = 1
    changed: int = 0

    def alive(self, now: datetime) -> bool:
        return self.expires_at is None or self.expires_at > now


@dataclass
class Handoff:
    created: int
    created_at: datetime
    giver: Who
    note: str
    recipient: str
    taker: Who | None = None
    taken_at: datetime | None = None


@dataclass
class Project:
    """All that is kept of one project; `log` has the kind and the name of each event."""

    shown: str
    log: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    blocks: dict[tuple[str, str], Block] = field(default_factory=dict[tuple[str, str], Block])
    once: dict[tuple[str, str], tuple[Any, int]] = field(
        default_factory=dict[tuple[str, str], tuple[Any, int]]
    )
    """By tool and idempotency key: what was said with it, and what that led to."""
    threads: dict[str, Thread] = field(default_factory=dict[str, Thread])
    journal: list[Entry] = field(default_factory=list[Entry])
    runs: dict[str, Run] = field(default_factory=dict[str, Run])
    worked_on: dict[str, str] = field(default_factory=dict[str, str])
    """By session: the run that it last began, checkpointed or stepped."""
    facts: dict[str, Fact] = field(default_factory=dict[str, Fact])
    blobs: dict[str, Blob] = field(default_factory=dict[str, Blob])
    handoffs: dict[str, Handoff] = field(default_factory=dict[str, Handoff])
    objectives: list[Shape] = field(default_factory=list[Shape])


@dataclass
class At:
    """One call: on which project, by whom, when."""

    project: Project
    who: Who
    now: datetime

    @property
    def next(self) -> int:
        """The number of the next event."""
        return len(self.project.log) + 1

    def event(self, kind: str, name: str) -> int:
        self.project.log.append((kind, name))
        return len(self.project.log)

    def name(self, name: str) -> str:
        """A name as it is shown."""
        shown = shown_name(name)
        controls = any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in shown)
        if not 1 <= len(shown) <= 128 or controls:
            raise Refused("bad_argument")
        if SECRET in shown and not self.who.allow_secrets:
            raise Refused("secret_refused")
        return shown

    def found(self, things: dict[str, Any], name: str) -> str:
        """The name of something that is there, as names are compared."""
        if fold(name) in things:
            return fold(name)
        try:
            self.name(name)
        except Refused as refused:
            raise Refused(*refused.codes, "not_found") from None
        raise Refused("not_found")

    def current_run(self) -> str:
        """The run that what this session writes belongs to."""
        run = self.project.worked_on.get(self.who.session, "") if self.who.session else ""
        return run if run and self.project.runs[run].status == "open" else ""


def storable(text: str) -> str:
    """A text without what no store can hold."""
    return re.sub("[\x00\ud800-\udfff]", "\ufffd", text)


def shortened(text: str, limit: int) -> str:
    """A text in one line of at most `limit` characters, which shows what was cut."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "\u2026"


def shown_name(name: str) -> str:
    return unicodedata.normalize("NFC", storable(name)).strip()


def fold(name: str) -> str:
    """A name as it is compared."""
    folded = unicodedata.normalize("NFC", storable(name).strip()).casefold()
    return unicodedata.normalize("NFC", folded)


def of_run(run: str, name: str) -> str:
    """How history calls what belongs to a run."""
    return f"{run}/{name}" if run else name
