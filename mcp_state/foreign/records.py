"""What the readers of other tools' files hand on: things to take, and what cannot be taken."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from mcp_state.models import NotTaken, Status
from mcp_state.record import record
from mcp_state.store.text import LONGEST_NAME, credential_in, one_line


@record
class Criterion:
    """One acceptance criterion, and whether it was ticked there."""

    text: str
    passes: bool = False


@record
class Task:
    """A line of work that becomes a thread.

    `origin` says in one line where it comes from, with its dates; `body` is all its prose.
    `needs` are names of other tasks, `parts` those that belong to it: it waits for both. `until`
    is when to look at one again that is watched.
    """

    place: str
    name: str
    title: str
    status: Status
    origin: str
    body: str = ""
    evidence: str = ""
    waiting_on: str = ""
    until: str = ""
    priority: int = 5
    needs: Sequence[str] = ()
    parts: Sequence[str] = ()
    criteria: Sequence[Criterion] = ()

    def fingerprint(self) -> str:
        """Changes with anything that is taken of it, wherever it stands in its file."""
        said = {key: value for key, value in asdict(self).items() if key != "place"}
        return _digest(json.dumps(said, ensure_ascii=True, default=list))


@record
class Block:
    """A text that becomes a memory block."""

    place: str
    key: str
    value: str

    def fingerprint(self) -> str:
        """Changes with what it says."""
        return _digest(self.value)


@record
class Entry:
    """Something that happened, for the journal; `identity` tells it from all others there."""

    place: str
    text: str
    identity: str
    kind: str = ""
    thread: str = ""


@dataclass(slots=True)
class Source:
    """All that was found at a path. `home` tells one source from another of the same format."""

    format: str
    home: str
    tasks: list[Task] = field(default_factory=list[Task])
    blocks: list[Block] = field(default_factory=list[Block])
    entries: list[Entry] = field(default_factory=list[Entry])
    left: list[NotTaken] = field(default_factory=list[NotTaken])

    def leave(self, place: str, what: str, why: str) -> None:
        """Note what is not taken."""
        self.left.append(not_taken(place, what, why))


def not_taken(place: str, what: str, why: str) -> NotTaken:
    """What is not taken, each part of it in one line; a credential in its name is not repeated."""
    if credential_in(what):
        first = what.partition(" ")[0]
        what = "one" if credential_in(first) else first
    return NotTaken(one_line(place, 300), one_line(what, 120), one_line(why, 600))


def as_name(text: str) -> str:
    """A name of ours made of a name of theirs: one line, not longer than a name may be."""
    return one_line("".join(c if c.isprintable() else " " for c in text), LONGEST_NAME)


def distinct(*parts: str) -> str:
    """One short word for these texts together."""
    return _digest("\0".join(parts))[:32]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
