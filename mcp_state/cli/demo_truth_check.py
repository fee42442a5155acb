"""What `mcp-state demo --truth` claims at its end, checked in the store's file with `sqlite3`.

Nothing of the store's own code is used here.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mcp_state.cli.demo_check import WRITTEN, Claim, Write, all_there, intact, numbered

TRUTH_WRITTEN: Mapping[str, str] = {
    "objective_set": """
        SELECT seq FROM events JOIN objectives USING (project)
        WHERE kind = 'objective' AND operation = 'set' AND objective = :objective
            AND json_extract(row, '$.objective') = :objective
            AND json_extract(row, '$.intent') = :intent
    """,
    "fact_record": """
        SELECT seq FROM events
        WHERE kind = 'fact' AND name = :fact AND operation IN ('record', 'supersede')
            AND json_extract(row, '$.statement') = :statement
            AND json_extract(row, '$.check') = :check
    """,
    "fact_verify": """
        SELECT seq FROM events JOIN actors ON actors.id = actor
        WHERE kind = 'fact' AND name = :fact AND operation = 'verify' AND agent = :agent
            AND json_extract(row, '$.held') = :holds
            AND json_extract(row, '$.evidence') = :evidence
    """,
    "thread_set": """
        SELECT seq FROM events
        WHERE kind = 'thread' AND name = :thread AND operation IN ('create', 'set')
            AND json_extract(row, '$.status') = coalesce(:status, 'active')
            AND json_extract(row, '$.evidence') = coalesce(:evidence, '')
            AND coalesce(json_extract(row, '$.next_action') = :next_action, 1)
    """,
    "thread_check": WRITTEN["thread_check"],
}
"""How the file shows a write, for each tool that the two agents write with."""
_EVENTS = """
    SELECT seq, at, actor, kind, name, operation, json_extract(row, '$.statement') AS statement,
        json_extract(row, '$.held') AS held, json_extract(row, '$.evidence') AS evidence,
        json_extract(row, '$.trust') AS trust, json_extract(row, '$.status') AS status
    FROM events ORDER BY seq
"""
_FACTS = "SELECT * FROM facts ORDER BY created"
_THREADS = "SELECT name, status, evidence, criteria, passing FROM threads"
_REASONS = """
    SELECT premises.fact, premise, given, stated, trust FROM premises
    JOIN facts ON (facts.project, facts.name) = (premises.project, premise)
    ORDER BY given, premises.fact, premise
"""
_RELIES = """
    WITH RECURSIVE relied (project, name) AS (
        SELECT project, fact FROM relies
        UNION
        SELECT project, premise FROM premises JOIN relied USING (project) WHERE fact = name
    )
    SELECT name, trust, verified, verified_by FROM facts JOIN relied USING (project, name)
    ORDER BY name
"""
"""Also what that rests on."""


@dataclass
class TruthStory:
    """What the demo saw from outside."""

    refuted: str
    """The fact that did not hold in the morning."""
    fell: Sequence[str]
    """What fell with it."""
    facts: Mapping[str, tuple[str, str]]
    """The trust and the statement that each fact has to end with."""
    asked: Sequence[str]
    """Who has to have run `gh`, in this order."""
    writes: list[Write] = field(default_factory=list[Write])
    refused: int = 0
    """Calls that were refused."""


def examine_truth(store: Path, log: Path, story: TruthStory) -> Iterator[Claim]:
    """Check everything that the demo claims; `log` is where `gh` wrote down who ran it."""
    with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        events = connection.execute(_EVENTS).fetchall()
        facts = connection.execute(_FACTS).fetchall()
        reasons = connection.execute(_REASONS).fetchall()
        yield all_there(connection, story.writes, TRUTH_WRITTEN)
        yield _nothing_else(events, story)
        yield numbered(connection)
        yield _fall(events, story)
        yield from _beliefs(facts, story)
        yield _history(events, story)
        yield _stays(facts, reasons, story)
        yield _trusted(events, facts, reasons)
        yield _done(connection, events)
        yield intact(connection)
    yield _who_asked(log, story)


def _nothing_else(events: list[sqlite3.Row], story: TruthStory) -> Claim:
    """So the refused calls wrote nothing either."""
    acknowledged = {write.event for write in story.writes}
    others = [row for row in events if row["seq"] not in acknowledged]
    falls = [row["name"] for row in others if row["operation"] == "fall"]
    strange = [f"event {row['seq']}" for row in others if row["operation"] != "fall"]
    text = (
        f"besides them only what fell ({', '.join(falls) or 'nothing'}); "
        f"the refused calls ({story.refused}) wrote nothing"
    )
    if strange:
        text = f"nobody asked for: {', '.join(strange)}"
    return Claim(not strange and falls == list(story.fell), text)


def _fall(events: list[sqlite3.Row], story: TruthStory) -> Claim:
    """One transaction has one time, one writer, and numbers that follow each other."""
    at = next(
        (n for n, row in enumerate(events) if row["name"] == story.refuted and row["held"] == 0),
        len(events),
    )
    then = events[at : at + 1 + len(story.fell)]
    moments = {(row["at"], row["actor"]) for row in then}
    fell = [(row["operation"], row["name"], row["trust"]) for row in then[1:]]
    wanted = [("fall", name, "stale") for name in story.fell]
    numbers = ", ".join(str(row["seq"]) for row in then[1:]) or "none"
    return Claim(
        len(moments) == 1 and fell == wanted,
        f"{', '.join(story.fell)} fell with {story.refuted}: event {numbers} right after event "
        f"{then[0]['seq'] if then else 'none'}, at the same moment, by the same session",
    )


def _beliefs(facts: list[sqlite3.Row], story: TruthStory) -> Iterator[Claim]:
    for row in facts:
        wanted = story.facts.get(row["name"])
        holds = wanted == (row["trust"], row["statement"])
        yield Claim(holds, f"{row['name']} is {row['trust']}: {row['statement']}")
    missing = sorted(story.facts.keys() - {row["name"] for row in facts})
    if missing:
        yield Claim(False, f"not there: {', '.join(missing)}")


def _history(events: list[sqlite3.Row], story: TruthStory) -> Claim:
    """The answers to the old statement are in the events, though the row knows the new one."""
    mine = [row for row in events if (row["kind"], row["name"]) == ("fact", story.refuted)]
    old = mine[0]["statement"] if mine else ""
    said = [row for row in mine if row["operation"] == "verify" and row["statement"] == old]
    words = ", then ".join(
        f"{'held' if row['held'] else 'did not hold'} at event {row['seq']} ({row['evidence']})"
        for row in said
    )
    return Claim(
        [row["held"] for row in said] == [1, 0],
        f"history keeps that {old!r} {words or 'was never verified'}",
    )


def _stays(facts: list[sqlite3.Row], reasons: list[sqlite3.Row], story: TruthStory) -> Claim:
    """What fell does not rise when its premise holds again: that says something else since."""
    still = [row["name"] for row in facts if (row["trust"], row["recheck_at"]) == ("stale", None)]
    replaced = [row for row in reasons if row["fact"] in still and row["stated"] > row["given"]]
    words = ", ".join(
        f"{row['fact']} because of {row['premise']} at event {row['given']}, which says something "
        f"else since event {row['stated']}"
        for row in replaced
    )
    because = {row["premise"] for row in replaced}
    return Claim(
        still == list(story.fell) and because == {story.refuted},
        f"still fallen, and not due: {', '.join(still) or 'nothing'} ({words or 'for no reason'})",
    )


def _trusted(
    events: list[sqlite3.Row], facts: list[sqlite3.Row], reasons: list[sqlite3.Row]
) -> Claim:
    """Each one by the event of a verification that held, of what it says now."""
    trusted = [row for row in facts if row["trust"] == "trusted"]
    numbered = {row["seq"]: row for row in events}
    loose = {
        row["fact"]
        for row in reasons
        if row["trust"] != "trusted" or not row["stated"] < row["given"]
    }
    proven = [
        row
        for row in trusted
        if row["name"] not in loose and _is_proven(row, numbered.get(row["verified"]))
    ]
    text = (
        f"{len(proven)} of {len(trusted)} trusted facts were verified as they stand, "
        "as was what they rest on"
    )
    return Claim(0 < len(proven) == len(trusted), text)


def _is_proven(fact: sqlite3.Row, event: sqlite3.Row | None) -> bool:
    return event is not None and (
        ("fact", fact["name"], "verify", 1, fact["statement"], fact["evidence"])
        == tuple(event[k] for k in ("kind", "name", "operation", "held", "statement", "evidence"))
    )


def _done(connection: sqlite3.Connection, events: list[sqlite3.Row]) -> Claim:
    """Done once, after the proof of it, and after its facts were verified by who ended it."""
    threads = connection.execute(_THREADS).fetchall()
    ends = [row for row in events if row["kind"] == "thread" and row["status"] == "done"]
    checks = [row["seq"] for row in events if row["operation"] == "check"]
    relied = connection.execute(_RELIES).fetchall()
    if (len(threads), len(ends)) != (1, 1):
        return Claim(False, f"{len(threads)} thread was done {len(ends)} times, not once")
    (thread,), (end,) = threads, ends
    before = all(
        row["trust"] == "trusted"
        and row["verified"] < end["seq"]
        and row["verified_by"] == end["actor"]
        for row in relied
    )
    proven = thread["status"] == "done" and thread["evidence"] == end["evidence"] != ""
    passed = 0 < thread["criteria"] == thread["passing"] == len(checks) and max(checks) < end["seq"]
    numbers = ", ".join(f"{row['name']} {row['verified']}" for row in relied)
    return Claim(
        proven and passed and before and bool(relied),
        f"{thread['name']} is {thread['status']} since event {end['seq']}, not before: its "
        f"criterion passed at {', '.join(map(str, checks)) or 'no time'}, what it relies on was "
        f"verified in that session ({numbers or 'nothing'})",
    )


def _who_asked(log: Path, story: TruthStory) -> Claim:
    callers = [line.split()[0] for line in log.read_text("utf-8").splitlines()]
    words = ", ".join(f"{name} {count}x" for name, count in sorted(Counter(callers).items()))
    return Claim(
        callers == list(story.asked),
        f"gh was run by the agents ({words or 'never'}), not once by a server",
    )
