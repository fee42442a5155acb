"""What `mcp-state demo` claims at its end, checked in the store's file with plain `sqlite3`.

Nothing of the store's own code is used here.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WRITTEN: Mapping[str, str] = {
    "memory_set": """
        SELECT seq FROM events
        WHERE kind = 'memory' AND name = :key AND json_extract(row, '$.value') = :value
    """,
    "journal_append": """
        SELECT journal.seq FROM journal JOIN events USING (project, seq)
        WHERE text = :text AND json_extract(row, '$.text') = :text
    """,
    "thread_set": """
        SELECT seq FROM events
        WHERE kind = 'thread' AND name = :thread AND operation IN ('create', 'set')
            AND json_extract(row, '$.status') = coalesce(:status, 'active')
            AND json_extract(row, '$.evidence') = coalesce(:evidence, '')
    """,
    "thread_claim": """
        SELECT seq FROM events JOIN actors ON actors.id = actor
        WHERE kind = 'thread' AND name = :thread AND operation = 'lease_claimed'
            AND agent = :agent
    """,
    "thread_check": """
        SELECT seq FROM events
        WHERE kind = 'thread' AND name = :thread AND operation = 'check'
            AND summary LIKE 'criterion ' || :criterion || ' passes,%'
    """,
}
"""How the file shows a write, for each tool that writes."""
_OPTIONAL = {"status": None, "evidence": None}
_NUMBERS = "SELECT count(*), min(seq), max(seq), (SELECT max(last_event) FROM projects) FROM events"
_OTHERS = """
    SELECT seq, agent, operation FROM events JOIN actors ON actors.id = actor ORDER BY seq
"""
_THREADS = "SELECT name, status, evidence, criteria, passing FROM threads ORDER BY name"


@dataclass(frozen=True)
class Write:
    """A write that was answered: by whom, what, and the event number that the answer named."""

    agent: str
    tool: str
    arguments: Mapping[str, Any]
    event: int

    @property
    def brief(self) -> str:
        """Tool and subject."""
        subject = ("thread", "fact", "step", "number", "key", "criterion", "text")
        words = [str(self.arguments[name]) for name in subject if name in self.arguments]
        return f"{self.tool} {' '.join(words)}"


def event_of(answer: str) -> int:
    """The event number that an answer names in its last line."""
    (event,) = re.findall(r"event (\d+)\]$", answer)
    return int(event)


@dataclass
class Story:
    """What the demo saw from outside."""

    writes: list[Write] = field(default_factory=list[Write])
    last_before_kill: Write | None = None
    recorded: dict[Path, tuple[int, int]] = field(default_factory=dict[Path, tuple[int, int]])
    """The files whose criterion was marked before the kill, as they were right after it."""


@dataclass(frozen=True)
class Claim:
    """Something that must hold, and whether it does."""

    holds: bool
    text: str


def identity(path: Path) -> tuple[int, int]:
    """What changes when a file is written again."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def examine(store: Path, project: Path, story: Story) -> Iterator[Claim]:
    """Check everything that the demo claims."""
    with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as connection:
        yield from _writes(connection, story)
        yield from _events(connection, story)
        yield from _threads(connection)
        yield intact(connection)
    yield from _files(project, story)


def _writes(connection: sqlite3.Connection, story: Story) -> Iterator[Claim]:
    yield all_there(connection, story.writes, WRITTEN)
    last = story.last_before_kill
    there = last is not None and _is_once(connection, last, WRITTEN)
    what = f"event {last.event}, {last.brief}" if last else "none"
    yield Claim(there, f"the last write acknowledged before kill -9 is there: {what}")


def all_there(
    connection: sqlite3.Connection, writes: Sequence[Write], shown: Mapping[str, str]
) -> Claim:
    """Whether the queries that show writes find each of them once, at the event it was given."""
    missing = [write.brief for write in writes if not _is_once(connection, write, shown)]
    count = len(writes)
    text = f"{count:,} of {count:,} acknowledged writes are there, each exactly once"
    if missing:
        text = f"not there exactly once: {', '.join(missing)}"
    return Claim(count > 0 and not missing, text)


def _is_once(connection: sqlite3.Connection, write: Write, shown: Mapping[str, str]) -> bool:
    parameters = {**_OPTIONAL, **write.arguments, "agent": write.agent}
    found = connection.execute(shown[write.tool], parameters).fetchall()
    return [row[0] for row in found] == [write.event]


def numbered(connection: sqlite3.Connection) -> Claim:
    """No event is missing, at the beginning, between, or at the end."""
    count, first, last, counted = connection.execute(_NUMBERS).fetchone()
    return Claim(
        (count, first) == (last, 1) and counted == last,
        f"{count:,} events are numbered {first} to {last:,}, without a gap",
    )


def intact(connection: sqlite3.Connection) -> Claim:
    """What SQLite itself says of the file."""
    pages = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    return Claim(pages == ["ok"], f"PRAGMA integrity_check: {pages[0]}")


def _events(connection: sqlite3.Connection, story: Story) -> Iterator[Claim]:
    yield numbered(connection)
    acknowledged = {write.event for write in story.writes}
    others = [row for row in connection.execute(_OTHERS) if row[0] not in acknowledged]
    broken = [row for row in others if row[2] == "lease_broken"]
    in_flight = [row for row in others if row not in broken]
    said = "no other write" if not in_flight else f"event {in_flight[0][0]}, in flight at the kill"
    yield Claim(
        len(broken) == 1 and [row[1] for row in in_flight] in ([], ["ada"]),
        f"besides them there is the broken lease, and {said}",
    )


def _threads(connection: sqlite3.Connection) -> Iterator[Claim]:
    rows = connection.execute(_THREADS).fetchall()
    for name, status, evidence, criteria, passing in rows:
        score = f", {passing}/{criteria} pass" if criteria else ""
        holds = status == "done" and bool(evidence) and passing == criteria
        yield Claim(holds, f"{name} is {status}{score}; evidence: {evidence or 'none'}")
    if len(rows) != 2:
        yield Claim(False, f"there are {len(rows)} threads, not 2")


def _files(project: Path, story: Story) -> Iterator[Claim]:
    untouched = [path for path, was in story.recorded.items() if identity(path) == was]
    yield Claim(
        0 < len(untouched) == len(story.recorded),
        f"{len(untouched)} of {len(story.recorded)} files that ada had recorded were not "
        "touched again",
    )
    files = sorted((project / "data").glob("*.csv"))
    right = [path for path in files if converted(path, path.with_suffix(".json"))]
    yield Claim(
        0 < len(right) == len(files),
        f"{len(right)} of {len(files)} files are converted, by both agents alike",
    )


def converted(source: Path, target: Path) -> bool:
    """Whether the JSON says what the CSV says, whatever separates its columns."""
    text = source.read_text("utf-8")
    header, *rows = list(csv.reader(text.splitlines(), delimiter=text.removeprefix("order")[0]))
    wanted = [dict(zip(header, row, strict=True)) for row in rows]
    for order in wanted:
        order["amount"] = str(int(order["amount"].replace(",", "")))
    found = json.loads(target.read_text("utf-8"))
    return [{name: str(value) for name, value in order.items()} for order in found] == wanted
