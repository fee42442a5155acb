"""What a store holds, read with plain `sqlite3`, and what calls should have left in it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raw_client import Call

Entry = tuple[str, str, str]
"""A write: the tool, what it changed, and the text that it brought."""

_EVENTS = """
    SELECT seq, agent, kind, name, operation, summary, version, row
    FROM events JOIN actors ON actors.id = events.actor ORDER BY seq
"""
_BLOCKS = "SELECT name, value, version FROM memory"
_ENTRIES = "SELECT seq, id, kind, thread, text, run FROM journal ORDER BY seq"
_THREADS = """
    SELECT name, shown, status, next_action, version, lease_token, coalesce(agent, '') AS holder
    FROM threads LEFT JOIN actors ON actors.id = lease_holder
"""


def entry(call: Call, agent: str = "tester") -> Entry:
    """What a call leaves in the ledger if it is written once and whole."""
    match call.tool, call.arguments:
        case "memory_set", {"key": key, "value": value}:
            return call.tool, key, value
        case "memory_append", {"key": key, "text": text}:
            return call.tool, key, text
        case "memory_delete", {"key": key}:
            return call.tool, key, ""
        case "journal_append", {"text": text}:
            return call.tool, "", text
        case "thread_set", {"thread": thread, "next_action": text}:
            return call.tool, thread, text
        case "thread_check", {"thread": thread, "criterion": number}:
            return call.tool, thread, number
        case "thread_claim", {"thread": thread}:
            return call.tool, thread, agent
        case _:
            raise AssertionError(call)


@dataclass
class Ledger:
    """The writes of a store, each with how often it is there; `problems` are contradictions."""

    written: Counter[Entry] = field(default_factory=Counter[Entry])
    refused: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    entry_of_event: dict[int, Entry] = field(default_factory=dict[int, Entry])
    threads: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    events: int = 0
    problems: list[str] = field(default_factory=list[str])


def read(store: Path) -> Ledger:
    """Read a store that may have been left in any state, without a line of what made it."""
    ledger = Ledger()
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        quick = [row[0] for row in connection.execute("PRAGMA quick_check")]
        if quick != ["ok"]:
            ledger.problems.append(f"quick_check: {quick}")
        events = connection.execute(_EVENTS).fetchall()
        _check_numbers(connection, events, ledger)
        last = _replay(events, ledger)
        for row in connection.execute(_BLOCKS):
            kept = last.pop(("memory", row["name"]), None) or {"value": None, "version": None}
            if row["value"] != kept["value"] or row["version"] != (
                kept["version"] or row["version"]
            ):
                ledger.problems.append(f"block {row['name']} is not what its last event says")
        for row in connection.execute(_THREADS):
            kept = last.pop(("thread", row["name"]), None)
            ledger.threads[row["name"]] = dict(row)
            columns = ("status", "next_action", "version", "lease_token")
            if kept is None or any(row[c] != kept[c] for c in columns):
                ledger.problems.append(f"thread {row['name']} is not what its last event says")
        for row in connection.execute(_ENTRIES):
            kept = last.pop(("journal", str(row["seq"])), None)
            if kept != {c: row[c] for c in ("id", "kind", "thread", "text", "run")}:
                ledger.problems.append(f"entry {row['seq']} is not what its event says")
    ledger.problems += [f"{kind} {name} has events and no row" for kind, name in last]
    return ledger


def read_copy(store: Path, copies: Path) -> Ledger:
    """Read what a killed process left, leaving it exactly so: main file and -wal are copied."""
    copies.mkdir(exist_ok=True)
    for end in ("", "-wal"):
        copy = copies / f"copy.db{end}"
        copy.unlink(missing_ok=True)
        if os.path.exists(f"{store}{end}"):
            shutil.copyfile(f"{store}{end}", copy)
    return read(copies / "copy.db")


def _check_numbers(
    connection: sqlite3.Connection, events: list[sqlite3.Row], ledger: Ledger
) -> None:
    ledger.events = len(events)
    if [event["seq"] for event in events] != list(range(1, len(events) + 1)):
        ledger.problems.append("event numbers have a gap")
    counted = connection.execute("SELECT coalesce(sum(last_event), 0) FROM projects").fetchone()[0]
    changes = connection.execute("SELECT changes FROM store").fetchone()[0]
    if not counted == changes == len(events):
        ledger.problems.append(f"{len(events)} events, counted were {counted} and {changes}")


def _replay(
    events: list[sqlite3.Row], ledger: Ledger
) -> dict[tuple[str, str], dict[str, Any] | None]:
    """Put every event into the ledger; returns the last state of each subject."""
    last: dict[tuple[str, str], dict[str, Any] | None] = {}
    versions: Counter[tuple[str, str]] = Counter()
    for event in events:
        subject = (event["kind"], event["name"])
        if event["operation"] == "refused":
            ledger.refused[event["name"], json.loads(event["row"])["code"]] += 1
            continue
        row = None if event["row"] is None else json.loads(event["row"])
        if event["version"] is not None:
            versions[subject] += 1
            if event["version"] != versions[subject]:
                ledger.problems.append(f"event {event['seq']}: version {event['version']}")
        found = _entry(event, row or {}, last.get(subject) or {})
        ledger.written[found] += 1
        ledger.entry_of_event[event["seq"]] = found
        last[subject] = row
    return last


def _entry(event: sqlite3.Row, row: dict[str, Any], before: dict[str, Any]) -> Entry:
    name = event["name"]
    match event["kind"], event["operation"]:
        case "memory", "append":
            old: str = before.get("value") or ""
            assert row["value"].startswith(old), f"event {event['seq']} lost what was there"
            return "memory_append", name, row["value"][len(old) :]
        case "memory", operation:
            return f"memory_{operation}", name, row.get("value", "")
        case "journal", _:
            return "journal_append", "", row["text"]
        case "thread", "create" | "set":
            return "thread_set", name, row["next_action"]
        case "thread", "check":
            return "thread_check", name, event["summary"].split()[1]
        case "thread", "lease_claimed":
            return "thread_claim", name, event["agent"]
        case kind, operation:
            return f"{kind}_{operation}", name, ""
