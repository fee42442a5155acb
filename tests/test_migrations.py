"""A store of an older version is brought up to date with all that is in it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from workload import Nouns, opened, rows, work_long, work_truth

from mcp_state.errors import StoreReadonly
from mcp_state.models import MemoryBlock
from mcp_state.store import opening
from mcp_state.store.doctor import examine

pytestmark = pytest.mark.sqlite

AT = "2026-11-20T08:00:00.000000Z"
OF_VERSION_1 = (
    "INSERT INTO store VALUES (1, 1, 0, :at)",
    "INSERT INTO projects (id, shown, created_at) VALUES (1, 'acme', :at)",
    "INSERT INTO project_names VALUES ('acme', 'acme', 1)",
    "INSERT INTO actors VALUES (1, 'codex', 'codex 1.0', 's0', '/w')",
    """
    INSERT INTO memory (project, name, shown, value, version, changed, changed_at, changed_by)
    VALUES (1, 'plan', 'Plan', 'importer first', 1, 1, :at, 1)
    """,
    """
    INSERT INTO events VALUES (1, 1, :at, 1, '', 'memory', 'plan', 'set', 'set, 14 chars', 1,
        '{"key": "Plan", "value": "importer first", "version": 1, "expires_at": null,
           "locked": ""}')
    """,
    """
    INSERT INTO journal VALUES (1, 2, 'j-1', :at, 1, 'note', '', 'began')
    """,
    "INSERT INTO journal_topics VALUES (1, '', 2, 1), (1, 'kind:note', 2, 1)",
    "INSERT INTO journal_topics VALUES (1, 'agent:codex', 2, 1)",
    """
    INSERT INTO events VALUES (1, 2, :at, 1, '', 'journal', '2', 'append', 'began', NULL,
        '{"id": "j-1", "kind": "note", "thread": "", "text": "began"}')
    """,
    """
    INSERT INTO documents VALUES (1099511627776, 1, 'memory', 'plan', 'Plan', 1, 1,
        'Plan' || char(10) || 'importer first', '')
    """,
    """
    INSERT INTO documents VALUES (1099511627776 + 2 * 68719476736, 1, 'journal', '2', '2', 2, 1,
        'began', '')
    """,
)


def test_what_a_store_consists_of_is_what_its_schema_makes() -> None:
    with closing(opening.new_connection(":memory:")) as connection:
        opening.apply(connection, opening.migrations())
        made = connection.execute(
            "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"
        ).fetchall()

    assert opening.expected_objects() == set(made)


def make_version_1(path: Path) -> None:
    os.chmod(path.parent, 0o700)
    with closing(opening.new_connection(str(path))) as connection:
        connection.execute(f"PRAGMA application_id = {opening.APPLICATION_ID}")
        connection.execute("BEGIN")
        opening.apply(connection, opening.migrations()[:1])
        for statement in OF_VERSION_1:
            connection.execute(statement, {"at": AT} if ":at" in statement else {})
        connection.execute("COMMIT")
    os.chmod(path, 0o600)


async def test_a_store_of_version_1_goes_on_with_all_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make_version_1(path)
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        block = await nouns.memory.get("plan")
        assert isinstance(block, MemoryBlock)
        assert (block.value, block.version, block.run) == ("importer first", 1, "")
        (entry,) = (await nouns.journal.tail()).entries
        assert (entry.text, entry.run) == ("began", "")
        await work_long(nouns)
        await nouns.memory.set("plan", "importer second", expected_version=1)
    assert rows(path, "PRAGMA user_version") == [(len(opening.migrations()),)]
    assert rows(path, "SELECT min_reader FROM store") == [(opening.OLDEST_READER,)]
    (copy,) = path.parent.glob("*.bak")
    assert copy.name.startswith("state.db.v1-")
    assert rows(copy, "SELECT count(*) FROM events") == [(2,)]
    assert (await examine(str(path))).problems == []


OF_VERSION_2 = (
    """
    INSERT INTO threads (project, name, shown, created, created_at, title, status, status_at,
        changed, changed_at, changed_by, version, priority, next_action, waiting_on, recheck_at,
        "check", evidence, note, places)
    VALUES (1, 'fix', 'Fix', 3, :at, '', 'active', :at, 3, :at, 1, 1, 5, 'write one', '', NULL, '',
        '', '', '[]')
    """,
    """
    INSERT INTO events VALUES (1, 3, :at, 1, '', 'thread', 'fix', 'create', 'active: Fix', 1,
        '{"name": "Fix", "version": 1, "title": "", "status": "active", "priority": 5,
          "next_action": "write one", "waiting_on": "", "recheck_at": null, "check": "",
          "evidence": "", "note": "", "places": [], "depends_on": [], "criteria": 0,
          "passing": [], "lease_token": 0, "lease_until": null, "lease_holder": null}')
    """,
    """
    INSERT INTO documents VALUES (1099511627776 + 68719476736, 1, 'thread', 'fix', 'Fix', 3, 1,
        'Fix' || char(10) || 'write one', '')
    """,
    """
    INSERT INTO events VALUES (1, 4, :at, 1, '', 'trace', 'none', 'search', 'nothing', NULL, NULL)
    """,
)


def make_version_2(path: Path) -> None:
    make_version_1(path)
    with closing(opening.new_connection(str(path))) as connection:
        connection.execute("BEGIN")
        opening.apply(connection, opening.migrations()[1:2])
        for statement in OF_VERSION_2:
            connection.execute(statement, {"at": AT})
        connection.execute("COMMIT")


async def test_a_store_of_version_2_is_sound_and_its_threads_rely_on_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    make_version_2(path)
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        assert (await nouns.threads.get("fix")).thread.relies_on == []
        assert (await nouns.facts.list()).total == 0
        assert await nouns.objective.get() is None
        await nouns.journal.append("goes on")
        assert (await examine(str(path))).problems == []
        await work_truth(nouns)
        await nouns.threads.set("fix", relies_on=["builds"])
    assert rows(path, "PRAGMA user_version") == [(len(opening.migrations()),)]
    assert rows(path, "SELECT min_reader FROM store") == [(opening.OLDEST_READER,)]
    (copy,) = path.parent.glob("*.bak")
    assert copy.name.startswith("state.db.v2-")
    assert (await examine(str(path))).problems == []


async def test_a_server_that_only_reads_leaves_an_older_store_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make_version_1(path)
    before = path.read_bytes()
    async with opened(path, read_only=True) as database:
        with pytest.raises(StoreReadonly, match=r"of an older version \(schema 1\)"):
            await Nouns(database, "acme", "codex").memory.get("plan")
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["state.db"]


def test_a_command_that_only_reads_brings_an_older_store_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make_version_1(path)
    words = [sys.executable, "-m", "mcp_state", "journal", "--db", str(path), "--project", "acme"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, "began" in done.stdout) == (0, True), done.stderr
    assert rows(path, "PRAGMA user_version") == [(len(opening.migrations()),)]
