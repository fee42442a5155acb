"""Doctor finds what it claims to find, says the way out, and touches nothing."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from large_store import Size, build
from soaking import SOAK
from test_database import queue_held
from workload import (
    Nouns,
    contents,
    make_store,
    opened,
    plain,
    rows,
    work,
    work_long,
    work_truth,
    write_and_be_killed,
)

from mcp_state.models import Totals
from mcp_state.store import opening
from mcp_state.store.doctor import Finding, Report, Writer, examine

pytestmark = pytest.mark.sqlite

RESTORE = (
    "`mcp-state restore BACKUP` puts a good copy in its place; the damaged file is kept beside it."
)
EXPLAINS = (
    "Nothing was changed. `mcp-state doctor` explains it, "
    "`mcp-state restore BACKUP` puts a good copy in its place."
)

MANY = 10_000 if SOAK else 2_000
NO_RUNS = {"open": 0, "completed": 0, "failed": 0, "abandoned": 0}
NO_FACTS = {"provisional": 0, "trusted": 0, "stale": 0, "refuted": 0, "archival": 0}


def plant(path: Path, *statements: str) -> None:
    """Contradict the store behind the back of its triggers."""
    with plain(path) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        lifted = triggers.fetchall()
        for name, _ in lifted:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, sql in lifted:
            connection.execute(sql)


_MADE: dict[Callable[[Nouns], Awaitable[None]], bytes] = {}


async def store_of(work: Callable[[Nouns], Awaitable[None]], directory: Path) -> Path:
    """A store in this directory in which that was done, closed; it is done once and copied."""
    path = directory / "state.db"
    if work in _MADE:
        path.write_bytes(_MADE[work])
        path.chmod(0o600)
        return path
    async with opened(path) as database:
        await work(Nouns(database, "acme", "codex", "/dir/acme"))
    _MADE[work] = path.read_bytes()
    return path


async def diagnosis(path: Path) -> list[Finding]:
    """The problems that doctor finds, without a byte changed."""
    before = contents(path)
    files = sorted(os.listdir(path.parent))
    report = await examine(str(path))
    assert contents(path) == before
    assert sorted(os.listdir(path.parent)) == files
    return list(report.problems)


async def test_a_healthy_store_gives_no_finding_and_its_counts(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with opened(path) as database:
        await work(Nouns(database, "acme", "codex", "/dir/acme"))
        await work(Nouns(database, "beta", "claude"))
        assert await diagnosis(path) == []
    assert await diagnosis(path) == []
    report = await examine(str(path))
    counts = {"active": 3, "watching": 1, "blocked": 1, "done": 0, "dropped": 0}
    kind = opening.file_system(str(path))
    assert report == Report(
        path=str(path),
        exists=True,
        size=path.stat().st_size,
        wal_size=0,
        schema=4,
        journal_mode="WAL",
        journal_reason=f"file system {kind}: a write-ahead log works there",
        permissions=f"0700 {tmp_path.name}, 0600 state.db, 0600 state.db-queue",
        changes=52,
        projects=[
            Totals("acme", "", True, 26, counts, 6, 3, NO_RUNS, facts=NO_FACTS),
            Totals("beta", "", True, 26, counts, 6, 3, NO_RUNS, facts=NO_FACTS),
        ],
        writer=None,
        findings=report.findings,
    )
    assert {finding.severity for finding in report.findings} == {"ok"}
    assert not report.damaged


async def test_no_store_yet_is_in_order(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    assert await diagnosis(path) == []
    assert (await examine(str(path))).findings == [
        Finding("ok", f"there is no store at {path} yet; the first write makes it")
    ]


async def test_a_store_that_is_gone_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    path.unlink()
    assert await diagnosis(path) == [
        Finding(
            "damage",
            f"{path}: the file is gone, and 26 changes with it",
            f"{RESTORE} To begin anew instead, remove {path}-queue too.",
        )
    ]
    (tmp_path / "state.db-wal").write_bytes(b"x")
    assert await diagnosis(path) == [
        Finding("damage", f"{path}: the file is gone, but its -wal is still there", RESTORE)
    ]


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        (
            "DELETE FROM events WHERE project = 1 AND seq = 3",
            "event numbers: acme: 25 events, numbered 1 to 26, and the last one should be 26",
        ),
        (
            "DELETE FROM events WHERE project = 1 AND seq = 26",
            "event numbers: acme: 25 events, numbered 1 to 25, and the last one should be 26",
        ),
        (
            "UPDATE store SET changes = 25",
            "number of changes: 25 changes were counted, there are 26 events",
        ),
        (
            "UPDATE projects SET active = active + 1",
            "counts of threads: acme: 4 active, 1 watching, 1 blocked, 0 done, 0 dropped; "
            "counted are 3, 1, 1, 0, 0",
        ),
        (
            "UPDATE projects SET journal = 7, memory = 0",
            "counts of journal entries and blocks: acme: 7 entries and 0 blocks; "
            "counted are 6 and 3",
        ),
        (
            "UPDATE last_events SET seq = 25",
            "last event of each session: project 1, session 1: event 25; "
            "project 1, session 1: event 26",
        ),
        (
            "DELETE FROM journal_topics WHERE topic = 'thread:base'",
            "journal topics: entry 20 of project 1 under 'thread:base'",
        ),
        (
            "UPDATE journal_topics SET number = 9 WHERE topic = 'kind:note'",
            "journal topics: entry 20 of project 1 under 'kind:note'",
        ),
        (
            "UPDATE threads SET passing = 0, open_needs = 3 WHERE name = 'base'",
            "criteria and dependencies of threads: thread Base of project 1: 0/2 pass, "
            "waits for 3; counted are 1/2 and 0",
        ),
        (
            "UPDATE memory SET version = 9 WHERE name = 'plan'",
            "versions: memory:plan of project 1 is at version 9, its events show 2",
        ),
        (
            "DELETE FROM memory WHERE name = 'brief'",
            "rows of events: memory:brief of project 1 has events, but no row",
        ),
        (
            "DELETE FROM journal WHERE seq = 26",
            "rows of events: journal:26 of project 1 has events, but no row",
        ),
        (
            "UPDATE idempotency SET seq = 21 WHERE operation = 'journal_append'",
            "idempotency keys: key 'j1' of project 1 leads to entry 21",
        ),
        (
            "INSERT INTO directories VALUES ('/nowhere', 99)",
            "foreign keys: directories row 2 leads to no projects",
        ),
        (
            "UPDATE memory SET value = 'forged' WHERE name = 'plan'",
            "memory rows against events: memory:plan of project 1 is not what event 6 says",
        ),
        (
            "UPDATE memory SET value = NULL WHERE name = 'brief'",
            "memory rows against events: memory:brief of project 1 is not what event 5 says",
        ),
        (
            "UPDATE memory SET changed_at = '2020-01-01T00:00:00.000000Z' WHERE name = 'plan'",
            "memory rows against events: memory:plan of project 1 was changed by another event "
            "than its version 2",
        ),
        (
            "UPDATE threads SET next_action = 'forged' WHERE name = 'seen'",
            "thread rows against events: thread:seen of project 1 is not what event 18 says",
        ),
        (
            "UPDATE threads SET lease_token = 1 WHERE name = 'seen'",
            "thread rows against events: thread:seen of project 1 is not what event 18 says",
        ),
        (
            "DELETE FROM needs",
            "thread rows against events: thread:on-top of project 1 is not what event 11 says",
        ),
        (
            "UPDATE journal SET text = 'forged' WHERE seq = 26",
            "journal rows against events: journal:26 of project 1 is not what event 26 says",
        ),
        (
            "UPDATE journal SET at = '2020-01-01T00:00:00.000000Z' WHERE seq = 26",
            "journal rows against events: journal:26 of project 1 was written by another event",
        ),
        (
            "DELETE FROM documents WHERE name = 'plan'",
            "memory documents: memory:plan of project 1 can't be found by search",
        ),
        (
            "UPDATE documents SET text = 'forged' WHERE name = 'seen'",
            "thread documents: thread:seen of project 1 is found by what it is not",
        ),
        (
            "UPDATE documents SET id = id + 1000000000000 WHERE name = '26'",
            "journal documents: journal:26 of project 1 is indexed in the place of another project "
            "or kind",
        ),
        (
            "INSERT INTO documents VALUES (1, 1, 'memory', 'x', 'x', 1, 1, 'x', 'x')",
            "documents of nothing: memory:x of project 1",
        ),
        (
            "UPDATE search_data SET block = x'00' WHERE id > 1000",
            "full-text index: it does not hold what the documents hold",
        ),
        (
            "DELETE FROM documents WHERE name = '26'",
            "full-text index: it does not hold what the documents hold",
        ),
    ],
)
async def test_each_contradiction_is_found(tmp_path: Path, statement: str, found: str) -> None:
    path = await store_of(work, tmp_path)
    plant(path, statement)
    problems = await diagnosis(path)
    assert [p.what[: len(found)] for p in problems if p.what.startswith(found)] == [found]
    assert {p.severity for p in problems} == {"damage"}
    assert all("mcp-state restore BACKUP" in p.way_out for p in problems)


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        (
            "UPDATE projects SET open = 7, stopped = 0",
            "counts of runs: acme: 7 open, 0 completed, 1 failed, 0 abandoned, 0 steps refused; "
            "counted are 1, 0, 1, 0, 0",
        ),
        (
            "UPDATE runs SET attempts = 9, tokens_in = 0 WHERE name = 'index'",
            "totals of runs: run Index of project 1: 2 checkpoints, 1/3 steps, 9 attempts, "
            "0 + 2 tokens; counted are 2, 1/3, 6, 17 + 2",
        ),
        (
            "UPDATE steps SET tokens_in = 1 WHERE name = 'two'",
            "totals of steps: step two of run index of project 1: 4 attempts, 1 + 0 tokens; "
            "counted are 4, 12 + 0",
        ),
        (
            "DELETE FROM attempts WHERE step = 'one'",
            "totals of steps: step One of run index of project 1: 1 attempts, 5 + 2 tokens; "
            "counted are 0, 0 + 0",
        ),
        (
            "UPDATE runs SET goal = 'forged' WHERE name = 'index'",
            "run rows against events: run:index of project 1 is not what event",
        ),
        (
            "UPDATE runs SET version = 9 WHERE name = 'index'",
            "versions: run:index of project 1 is at version 9",
        ),
        (
            "UPDATE checkpoints SET state = 'forged' WHERE number = 1 AND run = 'index'",
            "checkpoint rows against events: checkpoint:index/1 of project 1 is not what event",
        ),
        (
            "UPDATE steps SET result = 'forged' WHERE name = 'one'",
            "step rows against events: step:index/one of project 1 is not what event",
        ),
        (
            "DELETE FROM checkpoints WHERE number = 2",
            "rows of events: checkpoint:index\x1f2 of project 1 has events, but no row",
        ),
        (
            "UPDATE messages SET number = 3 WHERE number = 2",
            "transcripts: the transcript of run index of project 1 has 2 messages, numbered 1 to "
            "3, and its events tell of 2",
        ),
        (
            "DELETE FROM messages WHERE number = 2",
            "transcripts: the transcript of run index of project 1 has 1 messages, numbered 1 to "
            "1, and its events tell of 2",
        ),
        (
            "UPDATE blobs SET summary = 'forged' WHERE summary = 'about it'",
            "blob rows against events: blob:b-",
        ),
        (
            "UPDATE handoffs SET note = 'forged'",
            "handoff rows against events: handoff:h-",
        ),
        (
            "UPDATE memory SET value = 'forged' WHERE run = 'index' AND value IS NOT NULL",
            "memory rows against events: memory:index/cursor of project 1 is not what event",
        ),
        (
            "DELETE FROM journal_topics WHERE topic = 'run:index'",
            "journal topics: entry",
        ),
        (
            "DELETE FROM documents WHERE kind = 'run' AND name = 'index'",
            "run documents: run:index of project 1 can't be found by search",
        ),
        (
            "UPDATE documents SET short = '' WHERE kind = 'memory' AND shown = 'Index/Cursor'",
            "memory documents: memory:index/cursor of project 1 is found by what it is not",
        ),
        (
            "UPDATE messages SET message = '{}' WHERE number = 2",
            "messages: 1 to 2 of run index of project 1 are not what event",
        ),
        (
            "UPDATE blobs SET text = 'forged' WHERE summary = 'about it'",
            "blobs: b-",
        ),
    ],
)
async def test_each_contradiction_of_long_runs_is_found(
    tmp_path: Path, statement: str, found: str
) -> None:
    path = await store_of(work_long, tmp_path)
    plant(path, statement)
    whats = [finding.what for finding in await diagnosis(path)]
    assert any(what.startswith(found) for what in whats), whats


TOP = """
    INSERT INTO premises (project, fact, reason, premise, given)
    VALUES (1, 'builds', 1, 'deployed', 3)
"""


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        (
            "UPDATE projects SET trusted = 5, archival = 0",
            "counts of facts: acme: 2 provisional, 5 trusted, 1 stale, 1 refuted, 0 archival; "
            "counted are 2, 2, 1, 1, 1",
        ),
        (
            "UPDATE facts SET version = 9 WHERE name = 'builds'",
            "versions: fact:builds of project 1 is at version 9, its events show 4",
        ),
        (
            "UPDATE objectives SET version = 3",
            "versions: objective:objective of project 1 is at version 3, its events show 2",
        ),
        (
            "DELETE FROM objectives",
            "rows of events: objective:objective of project 1 has events, but no row",
        ),
        (
            "DELETE FROM facts WHERE name = 'gone'",
            "rows of events: fact:gone of project 1 has events, but no row",
        ),
        (
            "UPDATE facts SET statement = 'forged' WHERE name = 'gone'",
            "fact rows against events: fact:gone of project 1 is not what event",
        ),
        (
            "UPDATE facts SET changed = 1 WHERE name = 'gone'",
            "fact rows against events: fact:gone of project 1 was changed by another event",
        ),
        (
            "DELETE FROM premises WHERE fact = 'deployed'",
            "fact rows against events: fact:deployed of project 1 is not what event",
        ),
        (
            "UPDATE objectives SET intent = 'forged'",
            "objective rows against events: objective:objective of project 1 is not what event 2",
        ),
        (
            "DELETE FROM relies WHERE fact = 'builds'",
            "thread rows against events: thread:relying of project 1 is not what event",
        ),
        (
            "UPDATE facts SET trust = 'provisional' WHERE name = 'deployed'",
            "fact rows against events: fact:deployed of project 1 is not what event",
        ),
        (
            "UPDATE facts SET trust = 'refuted', held = 0, recheck_at = NULL WHERE name = 'builds'",
            "reasons of facts: fact Runs of project 1 is trusted, and each of its reasons has "
            "fallen",
        ),
        (
            "UPDATE premises SET given = 3 WHERE fact = 'deployed'",
            "when reasons were given: fact deployed of project 1 rests on runs since event 3, "
            "which says nothing of them",
        ),
        (
            "UPDATE premises SET given = 999 WHERE fact = 'deployed'",
            "when reasons were given: fact deployed of project 1 rests on runs since event 999, "
            "which says nothing of them",
        ),
        (
            "UPDATE premises SET given = 0 WHERE fact = 'runs'",
            "reasons of facts: fact Runs of project 1 is trusted, and each of its reasons has "
            "fallen",
        ),
        (
            "UPDATE premises SET given = 0 WHERE fact = 'deployed'; "
            "UPDATE facts SET recheck_at = trust_at WHERE name = 'deployed'",
            "reasons of facts: fact Deployed of project 1 is stale and due, and each of its "
            "reasons has fallen",
        ),
        (
            "UPDATE facts SET stated = 4 WHERE name = 'tested'",
            "statements of facts: fact Tested of project 1 says that event 4 stated it, at "
            "2026-11-29T10:00:24.000000Z by actor 1; event 18 did, at "
            "2026-11-29T10:00:24.000000Z by 1",
        ),
        (
            "UPDATE facts SET stated_by = 99 WHERE name = 'gone'",
            "statements of facts: fact Gone of project 1 says that event 23 stated it, at "
            "2026-11-29T10:00:30.000000Z by actor 99; event 23 did, at "
            "2026-11-29T10:00:30.000000Z by 1",
        ),
        (
            "UPDATE facts SET replaces = 'trusted' WHERE name = 'tested'",
            "fact rows against events: fact:tested of project 1 is not what event",
        ),
        (
            "UPDATE facts SET trust = 'stale', recheck_at = NULL WHERE name = 'runs'",
            "what fell and stands again: fact Runs of project 1 is stale and not due, but a reason "
            "of it holds",
        ),
        (
            "UPDATE facts SET verified = 11 WHERE name = 'builds'",
            "verifications of facts: fact Builds of project 1 says that event 11 verified it, and "
            "that it held; its newest verification is event",
        ),
        (
            "UPDATE facts SET held = 0, trust = 'refuted', recheck_at = NULL WHERE name = 'runs'",
            "verifications of facts: fact Runs of project 1 says that event",
        ),
        (
            "UPDATE facts SET statement = 'forged' WHERE name = 'runs'",
            "verifications of facts: fact Runs of project 1 says that event 21 verified it, and "
            "that it held; its newest verification is event 21, of another statement or check",
        ),
        (
            "UPDATE facts SET \"check\" = 'true' WHERE name = 'runs'",
            "verifications of facts: fact Runs of project 1 says that event 21 verified it, and "
            "that it held; its newest verification is event 21, of another statement or check",
        ),
        (
            "UPDATE facts SET verified_by = 99, verified = 2 WHERE name = 'gone'",
            "verifications of facts: fact Gone of project 1 says that event 2 verified it",
        ),
        (
            TOP,
            "circles of facts: fact:builds of project 1 is in a circle of reasons; fact:deployed "
            "of project 1 is in a circle of reasons; fact:runs of project 1 is in a circle of",
        ),
        (
            "DELETE FROM documents WHERE kind = 'fact' AND name = 'ready'",
            "fact documents: fact:ready of project 1 can't be found by search",
        ),
        (
            "UPDATE documents SET text = 'forged' WHERE kind = 'fact' AND name = 'ready'",
            "fact documents: fact:ready of project 1 is found by what it is not",
        ),
        (
            "INSERT INTO documents VALUES (1, 1, 'fact', 'x', 'x', 1, 1, 'x', 'x')",
            "documents of nothing: fact:x of project 1",
        ),
        (
            "UPDATE premises SET premise = 'nothing' WHERE fact = 'deployed'",
            "foreign keys: premises row ",
        ),
    ],
)
async def test_each_contradiction_of_what_is_believed_is_found(
    tmp_path: Path, statement: str, found: str
) -> None:
    path = await store_of(work_truth, tmp_path)
    assert await diagnosis(path) == []
    plant(path, *statement.split("; "))
    whats = [finding.what for finding in await diagnosis(path)]
    assert any(what.startswith(found) for what in whats), whats


@pytest.mark.soak
async def test_thousands_of_facts_in_a_chain_are_looked_through_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "store" / "state.db"
    await build(path, Size(entries=3, threads=5, blocks=2, facts=MANY))
    assert await diagnosis(path) == []
    last = (
        "INSERT INTO premises SELECT 1, 'factaaaaaaa', 1, max(name), 8 "
        "FROM facts WHERE name LIKE 'fact0%'"
    )
    plant(path, last)
    whats = [finding.what for finding in await diagnosis(path)]
    assert [what for what in whats if what.startswith("circles of facts")] == [
        "circles of facts: "
        + "; ".join(
            f"fact:fact000000{n} of project 1 is in a circle of reasons" for n in range(1, 6)
        )
        + f" and {MANY - 5:,} more"
    ]


async def test_flipped_bytes_in_a_page_are_found_and_do_not_stop_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    [(root,)] = rows(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'memory'")
    assert isinstance(root, int)
    data = bytearray(path.read_bytes())
    for at in range((root - 1) * 4096, (root - 1) * 4096 + 64):
        data[at] ^= 0xFF
    path.write_bytes(data)
    problems = await diagnosis(path)
    assert problems[0].what.startswith(f"{path}: its pages are damaged: ")
    assert problems[0].way_out == RESTORE
    assert "memory rows against events: could not be read (database disk image is malformed)" in [
        problem.what for problem in problems
    ]


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"", "the file is empty, where a store was"),
        (b"hello " * 900, "this is not a SQLite database"),
        (b"SQLite", "this is not a SQLite database"),
    ],
)
async def test_what_is_no_store_is_explained(tmp_path: Path, data: bytes, fact: str) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    path.write_bytes(data)
    assert await diagnosis(path) == [Finding("damage", f"{path}: {fact}", EXPLAINS)]


async def test_a_truncated_store_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    path.write_bytes(path.read_bytes()[: 4096 * 5])
    problems = await diagnosis(path)
    assert problems[0].severity == "damage"
    assert problems[0].way_out == RESTORE
    assert "database disk image is malformed" in problems[0].what


async def test_a_directory_a_foreign_database_and_lost_parts_are_explained(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert await diagnosis(tmp_path / "folder") == [
        Finding("damage", f"{tmp_path / 'folder'}: this is a directory", EXPLAINS)
    ]
    foreign = tmp_path / "foreign.db"
    with plain(foreign) as connection:
        connection.execute("CREATE TABLE t (a)")
    foreign.chmod(0o600)
    fact = f"{foreign}: this database is not an mcp-state store (application_id 0x0)"
    assert await diagnosis(foreign) == [Finding("damage", fact, EXPLAINS)]
    path = tmp_path / "state.db"
    await make_store(path)
    with plain(path) as connection:
        connection.execute("DROP TRIGGER journal_is_kept")
    fact = f"{path}: 1 parts are missing: trigger journal_is_kept"
    assert await diagnosis(path) == [Finding("damage", fact, EXPLAINS)]


async def killed(path: Path) -> Path:
    """A store whose last five changes are only in the -wal."""
    await make_store(path)
    write_and_be_killed(path)
    return path.with_name(path.name + "-wal")


async def test_changes_that_are_only_in_the_wal_are_in_order(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await killed(path)
    assert await diagnosis(path) == []
    assert (await examine(str(path))).changes == 31


def missing(path: Path) -> Finding:
    return Finding(
        "damage",
        f"{path}: 5 committed changes are missing (31 were made, 26 are here): its -wal was "
        "removed or damaged, or an older copy was put here",
        f"{RESTORE} If the -wal still exists, put it back beside the file.",
    )


async def test_a_wal_that_is_gone_is_found(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    (await killed(path)).unlink()
    (tmp_path / "state.db-shm").unlink()
    assert await diagnosis(path) == [missing(path)]


@pytest.mark.parametrize("size", [1, 31, 37, 4001])
async def test_a_short_wal_of_garbage_is_found(tmp_path: Path, size: int) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    (tmp_path / "state.db-wal").write_bytes(b"x" * size)
    found = await diagnosis(path)
    assert found[0].severity == "damage"
    assert f"{path}-wal" in found[0].what


async def test_a_wal_of_garbage_is_found_and_what_is_left_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    (await killed(path)).write_bytes(b"garbage." * 1000)
    fact = f"{path}-wal: this is not a write-ahead log; the last changes were in it"
    assert await diagnosis(path) == [Finding("damage", fact, RESTORE), missing(path)]


async def test_a_damaged_frame_in_front_of_committed_ones_is_found(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    wal = await killed(path)
    data = bytearray(wal.read_bytes())
    data[32 + 24 + 50] ^= 0xFF
    wal.write_bytes(data)
    fact = f"{path}-wal: frame 1 is damaged, and 5 transactions that follow it are not read"
    assert await diagnosis(path) == [missing(path), Finding("damage", fact, RESTORE)]
    (tmp_path / "state.db-queue").unlink()
    assert await diagnosis(path) == [Finding("damage", fact, RESTORE)]


async def test_a_damaged_frame_that_nobody_was_told_of_is_only_mentioned(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    wal = await killed(path)
    data = bytearray(wal.read_bytes())
    data[-50] ^= 0xFF
    wal.write_bytes(data)
    noted = b"%020d" % 30
    (tmp_path / "state.db-queue").write_bytes(b"%s %08x" % (noted, zlib.crc32(noted)))
    [found] = await diagnosis(path)
    assert found.severity == "warning"
    assert found.what.endswith(
        "is damaged, and 1 transactions that follow it are not read; none of them was ever "
        "acknowledged"
    )


async def test_another_schema_is_mentioned(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    with plain(path) as connection:
        connection.execute("PRAGMA user_version = 9")
    assert await diagnosis(path) == [
        Finding("warning", "its schema is 9, ours is 4", "Upgrade mcp-state to look deeper.")
    ]
    with plain(path) as connection:
        connection.execute("UPDATE store SET min_reader = 8")
    [found] = await diagnosis(path)
    assert found.what.startswith(f"{path} was written by a newer version")


async def test_what_is_open_to_others_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    os.chmod(path, 0o644)
    os.chmod(tmp_path, 0o755)
    assert await diagnosis(path) == [
        Finding(
            "warning",
            f"{tmp_path} is open to others (mode 0755)",
            f"Close it to others: chmod 700 {tmp_path}",
        ),
        Finding(
            "warning",
            f"{path} is open to others (mode 0644)",
            f"Close it to others: chmod 600 {path}",
        ),
    ]


async def test_leftovers_of_killed_processes_are_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    for name in ("state.db.new-7", "state.db.v1-2026-11-29.bak.new-8"):
        (tmp_path / name).write_bytes(b"half")
    assert await diagnosis(path) == [
        Finding(
            "warning",
            "left half-made by processes that were killed: state.db.new-7, "
            "state.db.v1-2026-11-29.bak.new-8",
            f"Delete them from {tmp_path} when no mcp-state is making a copy.",
        )
    ]


async def test_the_process_that_holds_the_queue_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    with queue_held(str(path)):
        report = await examine(str(path))
    assert isinstance(report.writer, Writer)
    assert report.writer.pid == os.getpid()
    assert "python" in report.writer.command or "pytest" in report.writer.command
    assert (await examine(str(path))).writer is None


async def test_a_network_file_system_is_named_as_the_reason_for_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    await make_store(path)

    def unsafe(_: str) -> str:
        return "nfs4"

    monkeypatch.setattr(opening, "file_system", unsafe)
    reason = (
        "file system nfs4: the shared memory of a write-ahead log does not work there, so DELETE "
        "is used"
    )
    report = await examine(str(path))
    assert (report.journal_mode, report.journal_reason) == ("WAL", reason)
    assert [problem.what for problem in report.problems] == [
        f"{path} uses a write-ahead log on a file system where that is not safe"
    ]
    async with opened(path) as database:
        await Nouns(database, "acme", "codex").memory.set("probe", "x")
    report = await examine(str(path))
    assert (report.journal_mode, report.journal_reason) == ("DELETE", reason)
    assert report.problems == []


async def test_without_room_for_a_copy_it_says_what_it_did_not_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    [found] = await diagnosis(path)
    assert found.severity == "warning"
    assert found.what.startswith(f"{path} was not looked into: its ")
    assert found.way_out == "Name a directory with more room in TMPDIR and run doctor again."
