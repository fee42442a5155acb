"""What `mcp-state demo --long` claims at its end, checked in the store's file and on the disk.

Nothing of the store's own code is used here. A call that a kill left without an answer may have
been carried out or not; so what was written is what was acknowledged, and of those at most each one
once.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp_state.cli.demo_check import WRITTEN, Claim, Write, all_there, converted, intact, numbered

LONG_WRITTEN: Mapping[str, str] = {
    "thread_set": WRITTEN["thread_set"],
    "memory_set": """
        SELECT seq FROM events
        WHERE kind = 'memory' AND name = :run_id || char(31) || :key
            AND json_extract(row, '$.value') = :value
    """,
    "memory_append": """
        SELECT seq FROM events
        WHERE kind = 'memory' AND name = :run_id || char(31) || :key
            AND json_extract(row, '$.value') LIKE '%' || :text
    """,
    "run_begin": """
        SELECT created FROM runs JOIN events ON (events.project, seq) = (runs.project, created)
        WHERE runs.name = :run_id AND kind = 'run' AND operation = 'begin' AND goal = :goal
            AND (max_attempts, max_minutes, max_tokens)
                = (:max_attempts, :max_minutes, :max_tokens)
    """,
    "run_checkpoint": """
        SELECT seq FROM checkpoints JOIN events USING (project, seq)
        WHERE checkpoints.run = :run_id AND number = :number AND operation = 'checkpoint'
            AND (state, next_action, done, total) = (:state, :next_action, :done, :total)
            AND json_extract(row, '$.state') = :state
    """,
    "step_begin": """
        SELECT begun FROM attempts JOIN events ON (events.project, seq) = (attempts.project, begun)
        WHERE attempts.run = :run_id AND step = :step AND number = :number AND input = :input
            AND operation = 'begin' AND name = :run_id || char(31) || :step
    """,
    "step_end": """
        SELECT ended FROM attempts JOIN events ON (events.project, seq) = (attempts.project, ended)
        WHERE attempts.run = :run_id AND step = :step AND number = :number
            AND (ok, result, tokens_in, tokens_out) = (:ok, :result, :tokens_in, :tokens_out)
            AND operation = 'end' AND name = :run_id || char(31) || :step
            AND json_extract(row, '$.result') = :result
    """,
    "run_finish": """
        SELECT seq FROM events
        JOIN runs ON (runs.project, runs.name) = (events.project, events.name)
        WHERE kind = 'run' AND operation = 'finish' AND runs.name = :run_id
            AND (status, evidence) = (:status, :evidence)
    """,
}
"""How the file shows a write, for each tool that the worker writes with."""
_WRITES = """
    SELECT seq, kind, operation, substr(name, instr(name, char(31)) + 1) AS subject FROM events
"""
_TOOL_OF = {
    ("step", "begin"): "step_begin",
    ("step", "end"): "step_end",
    ("checkpoint", "checkpoint"): "run_checkpoint",
}
_RUN = """
    SELECT runs.name, runs.status, runs.evidence, runs.stopped, runs.attempts, tokens_in,
        tokens_out, max_attempts, max_tokens, steps, steps_done, checkpoints,
        threads.name AS thread, threads.status AS thread_status,
        threads.evidence AS thread_evidence
    FROM runs LEFT JOIN threads ON (threads.project, threads.name) = (runs.project, runs.thread)
"""
_ATTEMPTS = "SELECT * FROM attempts ORDER BY step, number"
_STEPS = "SELECT name, result FROM steps WHERE status = 'done'"
_CHECKPOINTS = "SELECT number, seq, state, next_action FROM checkpoints ORDER BY number"
_MEMORY_AT = """
    SELECT json_extract(row, '$.value') AS value, max(seq) FROM events
    WHERE kind = 'memory' AND name LIKE :run || char(31) || '%' AND seq <= :seq GROUP BY name
"""


@dataclass(frozen=True)
class Call:
    """A call, whatever came of it."""

    agent: str
    tool: str
    arguments: Mapping[str, Any]

    @property
    def subject(self) -> str:
        """The step, for calls that are about one."""
        return self.arguments.get("step", "")


@dataclass
class LongStory:
    """What the long demo saw from outside."""

    names: list[str]
    """The files to convert."""
    odd: str
    """The one that cannot be converted in the way of all others."""
    kills: int
    writes: list[Write] = field(default_factory=list[Write])
    in_flight: list[Call] = field(default_factory=list[Call])
    """Calls that had left when something was killed, and were never answered."""
    killed: list[str] = field(default_factory=list[str])
    """What each kill hit."""
    read_back: dict[int, str] = field(default_factory=dict[int, str])
    """What `run_resume` said at the end, by the number of the checkpoint."""


def examine_long(store: Path, project: Path, story: LongStory) -> Iterator[Claim]:
    """Check everything that the long demo claims."""
    with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        run = connection.execute(_RUN).fetchone()
        attempts = connection.execute(_ATTEMPTS).fetchall()
        yield _kills(story)
        yield from _writes(connection, story)
        yield numbered(connection)
        yield _marks(project / "data", story)
        yield _steps(connection, project / "data", run, story)
        yield from _attempts(run, attempts, story)
        yield _tokens(run, attempts, project / "data", story)
        yield _checkpoints(connection, run, story)
        yield _run(run)
        yield _thread(run)
        yield intact(connection)


def _kills(story: LongStory) -> Claim:
    hit = Counter(story.killed)
    words = ", ".join(f"{victim} {count}x" for victim, count in sorted(hit.items()))
    agents = len({write.agent for write in story.writes})
    return Claim(
        len(story.killed) == story.kills,
        f"{len(story.killed)} of {story.kills} times kill -9 ({words}); {agents} agents, each in a "
        "process of its own, wrote to the store",
    )


def _writes(connection: sqlite3.Connection, story: LongStory) -> Iterator[Claim]:
    yield all_there(connection, story.writes, LONG_WRITTEN)
    acknowledged = {write.event for write in story.writes}
    others = [row for row in connection.execute(_WRITES) if row["seq"] not in acknowledged]
    done = Counter((_tool_of(row), _subject(row)) for row in others)
    possible = Counter((call.tool, call.subject) for call in story.in_flight)
    strange = sorted(f"{tool} {subject}".strip() for tool, subject in done - possible)
    text = (
        f"{len(others)} of the {len(story.in_flight)} calls whose answer a kill took were carried "
        "out all the same; nothing else was written"
    )
    yield Claim(not strange, f"nobody asked for: {', '.join(strange)}" if strange else text)


def _tool_of(row: sqlite3.Row) -> str:
    return _TOOL_OF.get((row["kind"], row["operation"]), f"{row['kind']} {row['operation']}")


def _subject(row: sqlite3.Row) -> str:
    return row["subject"] if row["kind"] == "step" else ""


def _marks(data: Path, story: LongStory) -> Claim:
    """Every execution left a file of its own; so two for one name are two executions."""
    made = {name: list(data.glob(f"{name}.*.json")) for name in story.names}
    twice = [name for name, files in made.items() if len(files) > 1]
    right = [
        name
        for name, files in made.items()
        if len(files) == 1 and converted(data / f"{name}.csv", files[0])
    ]
    text = f"{len(right)} of {len(made)} files were converted, each exactly once"
    if twice:
        text += f"; more than once: {', '.join(twice)}"
    return Claim(0 < len(right) == len(made), text)


def _steps(connection: sqlite3.Connection, data: Path, run: sqlite3.Row, story: LongStory) -> Claim:
    results = {row["name"]: row["result"] for row in connection.execute(_STEPS)}
    known = [
        name
        for name in story.names
        if results.get(name) and (data / results[name].partition(":")[0]).exists()
    ]
    counts = (run["steps"], run["steps_done"], len(results))
    return Claim(
        len(known) == len(story.names) and set(counts) == {len(known)},
        f"{len(known)} of {len(story.names)} steps are done, each with the file that is there as "
        f"its result; the run counts {run['steps_done']} of {run['steps']}",
    )


def _attempts(run: sqlite3.Row, attempts: list[sqlite3.Row], story: LongStory) -> Iterator[Claim]:
    went = Counter(w.arguments["step"] for w in story.writes if w.tool == "step_begin")
    lost = Counter(call.subject for call in story.in_flight if call.tool == "step_begin")
    numbers: dict[str, list[int]] = defaultdict(list)
    for attempt in attempts:
        numbers[attempt["step"]].append(attempt["number"])
    made = Counter({step: len(found) for step, found in numbers.items()})
    extra = (made - went).total()
    yield Claim(
        not went - made
        and not made - went - lost
        and run["attempts"] == len(attempts)
        and all(found == list(range(1, len(found) + 1)) for found in numbers.values()),
        f"{len(attempts)} attempts = {went.total()} answered with go + {extra} of the "
        f"{lost.total()} whose answer a kill took; the run counts {run['attempts']}",
    )
    ends = Counter(attempt["ok"] for attempt in attempts)
    failed = [a for a in attempts if a["step"] == story.odd and a["ok"] == 0]
    yield Claim(
        ends[1] == len(story.names),
        f"{len(attempts)} attempts = {ends[1]} done + {ends[0]} failed + {ends[None]} never ended",
    )
    yield Claim(
        len(failed) == 3,
        f"{story.odd} failed {len(failed)} times alike but for the time it took; after the warning "
        "the worker did it in another way",
    )


def _tokens(run: sqlite3.Row, attempts: list[sqlite3.Row], data: Path, story: LongStory) -> Claim:
    """Added up in three ways: by the run, from what was acknowledged, and from the files."""
    ended = [attempt for attempt in attempts if attempt["ok"] is not None]
    answered = [_spent(w.arguments) for w in story.writes if w.tool == "step_end"]
    lost = Counter(_spent(c.arguments) for c in story.in_flight if c.tool == "step_end")
    extra = Counter(map(_spent, ended)) - Counter(answered)
    told = [*answered, *extra.elements()]
    counted = (run["tokens_in"], run["tokens_out"])
    said = (sum(tokens for _, tokens, _ in told), sum(tokens for _, _, tokens in told))
    read = sum(_quarter(data / f"{attempt['step']}.csv") for attempt in ended)
    written = sum(_quarter(file) for file in data.glob("*.json"))
    return Claim(
        not extra - lost and counted == said == (read, written),
        f"tokens in/out: {_pair(counted)} by the run, {_pair(said)} by the calls, "
        f"{_pair((read, written))} by the files",
    )


def _pair(tokens: tuple[int, int]) -> str:
    return "/".join(f"{count:,}" for count in tokens)


def _spent(row: sqlite3.Row | Mapping[str, Any]) -> tuple[str, int, int]:
    return f"{row['step']}: {row['result']}", row["tokens_in"], row["tokens_out"]


def _quarter(file: Path) -> int:
    """The tokens of a file as the worker counts them."""
    return file.stat().st_size // 4


def _checkpoints(connection: sqlite3.Connection, run: sqlite3.Row, story: LongStory) -> Claim:
    rows = connection.execute(_CHECKPOINTS).fetchall()
    numbers = [row["number"] for row in rows]
    other = [
        str(row["number"])
        for row in rows
        if any(
            part not in _even(story.read_back.get(row["number"], ""))
            for part in _parts(connection, run["name"], row)
        )
    ]
    text = (
        f"{len(rows) - len(other)} of {len(rows)} checkpoints, numbered 1 to {run['checkpoints']}, "
        "were read back at the end as they were made, with the memory of that moment"
    )
    if other:
        text += f"; not so {', '.join(other)}"
    return Claim(bool(rows) and not other and numbers == [*range(1, run["checkpoints"] + 1)], text)


def _parts(connection: sqlite3.Connection, run: str, row: sqlite3.Row) -> Iterator[str]:
    """What `run_resume` has to say of a checkpoint."""
    yield f"\ncheckpoint {row['number']} of "
    yield f"\nnext: {row['next_action']}\n"
    yield f"{_even(row['state'])}\n"
    for block in connection.execute(_MEMORY_AT, {"run": run, "seq": row["seq"]}):
        yield f"\n{_even(block['value'])}\n"


def _even(text: str) -> str:
    """A text without its indentation."""
    return "\n".join(line.strip() for line in text.splitlines())


def _run(run: sqlite3.Row) -> Claim:
    tokens = run["tokens_in"] + run["tokens_out"]
    within = (
        not run["stopped"] and run["attempts"] < run["max_attempts"] and tokens < run["max_tokens"]
    )
    return Claim(
        run["status"] == "completed" and bool(run["evidence"]) and within,
        f"{run['name']} is {run['status']}, {run['attempts']} of {run['max_attempts']} attempts "
        f"and {tokens:,} of {run['max_tokens']:,} tokens; evidence: {run['evidence'] or 'none'}",
    )


def _thread(run: sqlite3.Row) -> Claim:
    return Claim(
        run["thread_status"] == "done" and bool(run["thread_evidence"]),
        f"its thread {run['thread']} is {run['thread_status']}; "
        f"evidence: {run['thread_evidence'] or 'none'}",
    )
