"""Everything that can happen to the file of a store, met in calls, and what comes after."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from workload import (
    ROOT,
    Nouns,
    contents,
    make_store,
    opened,
    plain,
    rows,
    run,
    write_and_be_killed,
)

from mcp_state.errors import (
    DiskFull,
    StateError,
    StoreBusy,
    StoreDamaged,
    StoreNewer,
    StoreReadonly,
)
from mcp_state.models import MemoryBlock, MissingBlock
from mcp_state.store import opening
from mcp_state.store.database import Database
from mcp_state.store.opening import Migration
from mcp_state.store.queue import noted_changes
from mcp_state.store.transaction import Writing

pytestmark = pytest.mark.sqlite

WAY_OUT = (
    "Nothing was changed. `mcp-state doctor` explains it, "
    "`mcp-state restore BACKUP` puts a good copy in its place."
)
ALLOW = (
    "Allow this user to read and write the file and its directory, or name another file with "
    "--db or MCP_STATE_DB. No restart is needed."
)
PAGE = 4096


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def identities(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_ino for file in folder.iterdir()}


async def refusals(database: Database) -> Sequence[StateError]:
    """What a read, a write, and both once more end in."""
    nouns = Nouns(database, "acme", "codex")
    refused: list[StateError] = []
    for _ in range(2):
        with pytest.raises(StateError) as reading:
            await nouns.memory.get("brief")
        with pytest.raises(StateError) as writing:
            await nouns.memory.set("brief", "after the damage")
        refused += [reading.value, writing.value]
    return refused


async def works(database: Database) -> None:
    """A write and a read go through."""
    nouns = Nouns(database, "acme", "codex")
    await nouns.memory.set("probe", "here")
    found = await nouns.memory.get("probe")
    assert isinstance(found, MemoryBlock)
    assert found.value == "here"
    assert len((await nouns.journal.tail(limit=20)).entries) == 6


async def assert_refused_until_repaired(
    path: Path, fact: str, repair: Callable[[], object], *, of: str = ""
) -> None:
    before = contents(path)
    async with opened(path) as database:
        for problem in await refusals(database):
            assert type(problem) is StoreDamaged
            expected = f"store_damaged: {path}{of}: {fact}. {WAY_OUT}"
            if "changes are missing" in fact:
                expected += (
                    f" To go on without those changes, remove {path}-queue, where they are counted."
                )
            assert str(problem) == expected
        assert contents(path) == before
        repair()
        await works(database)


@pytest.mark.parametrize("length", [1, 15, 16, 60, 100, 512, 2048, PAGE, PAGE + 7, -PAGE, -1])
async def test_a_truncated_file_is_refused_and_left_alone(tmp_path: Path, length: int) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    if length in (15, 16):
        fact = "this is not a SQLite database"
    elif length in (1, 60, -1):
        fact = f"the file ends in the middle of a page ({len(whole[:length]):,} bytes)"
    else:
        fact = "database disk image is malformed"
    await assert_refused_until_repaired(path, fact, lambda: path.write_bytes(whole))


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"", "the file is empty, where a store was"),
        (b"Dear diary,\n" * 1000, "this is not a SQLite database"),
        (bytes(8192), "this is not a SQLite database"),
    ],
    ids=["emptied", "text", "zeros"],
)
async def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, data: bytes, fact: str
) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    whole = path.read_bytes()
    path.write_bytes(data)
    await assert_refused_until_repaired(path, fact, lambda: path.write_bytes(whole))


async def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path, kept = tmp_path / "state.db", tmp_path / "kept"
    await make_store(path)
    path.rename(kept)
    with plain(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    fact = "this database is not an mcp-state store (application_id 0x0)"
    await assert_refused_until_repaired(path, fact, lambda: kept.replace(path))


@pytest.mark.parametrize(
    ("statement", "fact"),
    [
        (
            "PRAGMA application_id = 7",
            "this database is not an mcp-state store (application_id 0x7)",
        ),
        (
            "DROP TABLE last_events",
            "3 parts are missing: index last_events_by_agent, index "
            "last_events_by_session, table last_events",
        ),
        ("DROP TRIGGER events_are_final", "1 parts are missing: trigger events_are_final"),
        ("DROP INDEX events_by_version", "1 parts are missing: index events_by_version"),
        ("DELETE FROM store", "its table store is empty"),
    ],
)
async def test_a_store_that_lost_a_part_is_refused_and_left_alone(
    tmp_path: Path, statement: str, fact: str
) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    whole = path.read_bytes()
    with plain(path) as connection:
        connection.execute(statement)
    await assert_refused_until_repaired(path, fact, lambda: path.write_bytes(whole))


async def test_flipped_bytes_are_met_in_the_call_that_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    whole = bytearray(path.read_bytes())
    [(root,)] = rows(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'memory'")
    assert isinstance(root, int)
    flipped = whole.copy()
    for at in range((root - 1) * PAGE, (root - 1) * PAGE + 64):
        flipped[at] ^= 0xFF
    path.write_bytes(flipped)
    fact = "database disk image is malformed"
    await assert_refused_until_repaired(path, fact, lambda: path.write_bytes(whole))


async def test_pages_that_break_while_the_store_is_open_are_met_too(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    whole = path.read_bytes()
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        assert isinstance(await nouns.memory.get("gone"), MemoryBlock)
        path.write_bytes(b"\xff" * len(whole))
        before = contents(path)
        with pytest.raises(StoreDamaged):
            await nouns.journal.tail()
        with pytest.raises(StoreDamaged) as refused:
            await nouns.journal.tail()
        assert refused.value.fact == f"{path}: this is not a SQLite database"
        assert contents(path) == before
        path.write_bytes(whole)
        await works(database)


async def test_a_wal_that_went_missing_with_acknowledged_writes_is_noticed(tmp_path: Path) -> None:
    path, wal, kept = tmp_path / "state.db", tmp_path / "state.db-wal", tmp_path / "kept"
    await make_store(path)
    write_and_be_killed(path)
    wal.rename(kept)
    (tmp_path / "state.db-shm").unlink()

    fact = (
        "5 committed changes are missing (31 were made, 26 are here): its -wal was removed, or "
        "an older copy was put here"
    )
    await assert_refused_until_repaired(path, fact, lambda: kept.replace(wal))
    assert rows(path, "SELECT count(*) FROM memory WHERE name LIKE 'acknowledged-%'") == [(5,)]


async def test_an_older_copy_in_the_place_of_the_store_is_noticed(tmp_path: Path) -> None:
    path, copy, kept = tmp_path / "state.db", tmp_path / "copy", tmp_path / "kept"
    await make_store(path)
    shutil.copy(path, copy)
    async with opened(path) as database:
        await Nouns(database, "acme", "codex").memory.set("brief", "later")
    path.rename(kept)
    copy.rename(path)
    fact = (
        "1 committed changes are missing (27 were made, 26 are here): its -wal was removed, or "
        "an older copy was put here"
    )
    await assert_refused_until_repaired(path, fact, lambda: kept.replace(path))


async def test_a_wal_of_garbage_is_refused_and_left_alone(tmp_path: Path) -> None:
    path, wal = tmp_path / "state.db", tmp_path / "state.db-wal"
    await make_store(path)
    write_and_be_killed(path)
    whole = wal.read_bytes()
    wal.write_bytes(b"garbage." * 5000)
    (tmp_path / "state.db-shm").unlink()
    fact = "this is not a write-ahead log; the last changes were in it"
    await assert_refused_until_repaired(path, fact, lambda: wal.write_bytes(whole), of="-wal")


async def test_a_wal_that_is_broken_in_the_middle_is_refused_and_left_alone(tmp_path: Path) -> None:
    path, wal = tmp_path / "state.db", tmp_path / "state.db-wal"
    await make_store(path)
    write_and_be_killed(path)
    whole = bytearray(wal.read_bytes())
    broken = whole.copy()
    broken[32 + 24 + 100] ^= 0xFF
    wal.write_bytes(broken)
    (tmp_path / "state.db-shm").unlink()
    fact = (
        "5 committed changes are missing (31 were made, 26 are here): its -wal was removed, or "
        "an older copy was put here"
    )
    await assert_refused_until_repaired(path, fact, lambda: wal.write_bytes(whole))


async def test_a_newer_store_that_closed_itself_to_us_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    whole = path.read_bytes()
    with plain(path) as connection:
        connection.execute("PRAGMA user_version = 9")
        connection.execute("UPDATE store SET min_reader = 8")
    before = contents(path)
    async with opened(path) as database:
        for problem in await refusals(database):
            assert type(problem) is StoreNewer
            assert str(problem) == (
                f"store_newer: {path} was written by a newer version: its schema is 9, it can be "
                f"read from 8 on, this version knows {LATEST}. Nothing was changed. Upgrade "
                "mcp-state, or name another file with --db."
            )
        assert contents(path) == before
        path.write_bytes(whole)
        await works(database)


async def test_a_newer_store_that_is_open_to_us_is_used(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    with plain(path) as connection:
        connection.execute("PRAGMA user_version = 9")
        connection.execute("CREATE TABLE of_the_future (a TEXT)")
    async with opened(path) as database:
        await works(database)
    assert rows(path, "PRAGMA user_version") == [(9,)]


LATEST = len(opening.migrations())
STEPS = (
    Migration(
        LATEST + 1, ("CREATE TABLE two (a TEXT) STRICT", "INSERT INTO two VALUES ('of step 2')")
    ),
    Migration(LATEST + 2, ("ALTER TABLE store ADD COLUMN three TEXT",)),
)
NOW = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)


async def test_a_migration_makes_a_copy_and_then_takes_all_steps_at_once(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    with closing(opening.new_connection(str(path), "rw")) as connection:
        copy = opening.migrate(str(path), connection, LATEST, NOW, STEPS)
    assert copy == f"{path}.v{LATEST}-2026-11-29.bak"
    assert oct(os.stat(copy).st_mode & 0o777) == "0o600"
    assert rows(path, "PRAGMA user_version") == [(LATEST + 2,)]
    assert rows(path, "SELECT a, three FROM two, store") == [("of step 2", None)]
    assert rows(Path(copy), "PRAGMA user_version") == [(LATEST,)]
    assert rows(Path(copy), "SELECT count(*) FROM events") == [(26,)]


async def test_a_migration_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    steps = (
        *STEPS,
        Migration(LATEST + 3, ("CREATE TABLE four (a TEXT)", "INSERT INTO nowhere VALUES (1)")),
    )
    with (
        closing(opening.new_connection(str(path), "rw")) as connection,
        pytest.raises(sqlite3.OperationalError, match="no such table: nowhere"),
    ):
        opening.migrate(str(path), connection, LATEST, NOW, steps)
    assert rows(path, "PRAGMA user_version") == [(LATEST,)]
    assert rows(path, "SELECT name FROM sqlite_schema WHERE name IN ('two', 'four')") == []
    async with opened(path) as database:
        await works(database)


async def test_a_kill_between_two_steps_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    done = run(f"""
import os
from datetime import datetime, UTC
from mcp_state.store import opening
connection = opening.new_connection({str(path)!r}, "rw")
connection.create_function("die", 0, lambda: os.kill(os.getpid(), 9))
steps = (
    opening.Migration({LATEST + 1}, ("CREATE TABLE two (a TEXT) STRICT",)),
    opening.Migration({LATEST + 2}, ("CREATE TABLE three (a TEXT) STRICT", "SELECT die()")),
)
opening.migrate({str(path)!r}, connection, {LATEST}, datetime.now(UTC), steps)
""")
    assert done.returncode == -signal.SIGKILL, done.stderr
    async with opened(path) as database:
        await works(database)
    assert rows(path, "PRAGMA user_version") == [(LATEST,)]
    assert rows(path, "SELECT name FROM sqlite_schema WHERE name IN ('two', 'three')") == []


async def test_an_older_store_is_brought_up_to_date_by_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    steps = (*opening.migrations(), STEPS[0])
    monkeypatch.setattr(opening, "migrations", lambda: steps)
    opening.expected_objects.cache_clear()
    try:
        before = contents(path)
        async with opened(path, read_only=True) as database:
            with pytest.raises(StoreReadonly) as refused:
                await Nouns(database, "acme", "codex").memory.get("plan")
            assert str(refused.value) == (
                f"store_readonly: {path} is of an older version (schema {LATEST}). A server that "
                "writes brings it up to date; this one only reads."
            )
            assert contents(path) == before
            async with opened(path) as writing:
                await Nouns(writing, "acme", "codex").memory.get("plan")
                assert rows(path, "SELECT a FROM two") == [("of step 2",)]
                await works(writing)
            assert isinstance(
                await Nouns(database, "acme", "codex").memory.get("plan"), MemoryBlock
            )
        assert f"state.db.v{LATEST}-2026-11-29.bak" in names(tmp_path)
    finally:
        monkeypatch.undo()
        opening.expected_objects.cache_clear()


async def test_a_directory_in_the_place_of_the_store_is_refused(tmp_path: Path) -> None:
    path, kept = tmp_path / "state.db", tmp_path / "kept"
    await make_store(path)
    path.rename(kept)
    path.mkdir()

    def repair() -> None:
        path.rmdir()
        kept.rename(path)

    await assert_refused_until_repaired(path, "this is a directory", repair)


AS_NOBODY = """
import asyncio, os, sys, tempfile
sys.path[:0] = [{tests!r}]
from pathlib import Path
from workload import ROOT, Nouns, opened
from mcp_state.errors import StateError
async def attempt(call):
    try:
        await call
        print("fine", flush=True)
    except StateError as problem:
        print(problem, flush=True)
async def main():
    with tempfile.TemporaryDirectory() as folder:
        async with opened(Path(folder) / "state.db") as database:
            nouns = Nouns(database, "acme", "codex")
            await nouns.memory.set("plan", "x")
            await attempt(nouns.memory.delete("nothing"))
    # what is imported later may be out of reach of nobody
    os.setgid(65534)
    os.setuid(65534)
    async with opened(Path({path!r})) as database:
        nouns = Nouns(database, "acme", "codex")
        for _ in range(2):
            await attempt(nouns.memory.get("plan"))
            await attempt(nouns.memory.set("probe", "here"))
            sys.stdin.readline()
asyncio.run(main())
"""


def as_nobody(path: Path, repair: Callable[[], object]) -> tuple[list[str], list[str]]:
    """What a user without privileges is told by a read and a write, and again after `repair`."""
    script = AS_NOBODY.format(tests=str(ROOT / "tests"), path=str(path))
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline().startswith("not_found")
        before = [child.stdout.readline().rstrip("\n") for _ in range(2)]
        repair()
        child.stdin.write("\n")
        child.stdin.flush()
        after = [child.stdout.readline().rstrip("\n") for _ in range(2)]
        child.stdin.close()
    return before, after


@pytest.fixture
def public() -> Generator[Path]:
    """A directory that other users can reach, which pytest's own are not."""
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def give_to_nobody(folder: Path) -> None:
    for file in (folder, *folder.iterdir()):
        os.chown(file, 65534, 65534)


async def test_a_store_of_somebody_else_is_refused_until_it_is_allowed(public: Path) -> None:
    path = public / "state.db"
    await make_store(path)
    before_bytes = contents(path)

    def allow() -> None:
        assert contents(path) == before_bytes
        give_to_nobody(public)

    before, after = as_nobody(path, allow)
    assert before == [
        f"store_readonly: {path}: Permission denied. {ALLOW}",
        f"store_readonly: {path}-queue: Permission denied. {ALLOW}",
    ]
    assert after == ["fine", "fine"]


async def test_a_directory_that_cannot_be_written_is_refused_until_it_can(public: Path) -> None:
    path = public / "state.db"
    await make_store(path)
    give_to_nobody(public)
    os.chmod(public, 0o555)
    before_bytes = contents(path)

    def allow() -> None:
        assert contents(path) == before_bytes
        public.chmod(0o755)

    before, after = as_nobody(path, allow)
    assert before == [
        f"store_readonly: {path}: attempt to write a readonly database. {ALLOW}",
        f"store_readonly: {path}: attempt to write a readonly database. {ALLOW}",
    ]
    assert after == ["fine", "fine"]


async def test_a_store_cannot_begin_in_a_directory_that_cannot_be_written(public: Path) -> None:
    path = public / "state.db"
    before, after = as_nobody(path, lambda: os.chown(public, 65534, 65534))
    assert before == ["fine", f"store_readonly: {path}-queue: Permission denied. {ALLOW}"]
    assert after == ["fine", "fine"]


async def test_a_server_that_only_reads_makes_nothing_and_reads_an_empty_store(
    tmp_path: Path,
) -> None:
    path = tmp_path / "deeper" / "state.db"
    async with opened(path, read_only=True) as database:
        nouns = Nouns(database, "acme", "codex")
        assert await nouns.memory.get("plan") == MissingBlock("plan", 0, None, [], 0)
        with pytest.raises(StoreReadonly) as refused:
            await nouns.memory.set("plan", "x")
        assert str(refused.value) == (
            f"store_readonly: {path} is opened for reading only by this server. Use a server with "
            "the coding toolset to write."
        )
        assert names(tmp_path) == []
        await make_store(path)
        assert isinstance(await nouns.memory.get("plan"), MemoryBlock)


async def test_a_full_database_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")

        def allow_no_more_pages(tx: Writing) -> None:
            tx.run(f"PRAGMA max_page_count = {tx.scalar('PRAGMA page_count')}")

        await database.write(nouns.caller, allow_no_more_pages)
        with pytest.raises(DiskFull) as refused:
            for number in range(1000):
                await nouns.journal.append(f"{number} " + "x" * 8000)
        assert str(refused.value) == (
            f"disk_full: not saved: no space left for {path}. Free some space and call again; no "
            "restart."
        )
        kept = rows(path, "SELECT id FROM journal ORDER BY seq")
        last = await nouns.journal.append("the limit was that of the connection that was closed")
        assert rows(path, "SELECT id FROM journal ORDER BY seq") == [*kept, (last.id,)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


FULL = """
import asyncio, os, resource, signal, sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
from workload import ROOT, Nouns, opened
from mcp_state.errors import DiskFull
path = Path({path!r})
def fill():
    {fill}
def free():
    {free}
async def main():
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        saved = 0
        await nouns.journal.append("first")
        saved += 1
        fill()
        try:
            for _ in range(1000):
                await nouns.journal.append("x" * 8000)
                saved += 1
        except DiskFull as problem:
            print(problem)
        count = len((await nouns.journal.tail(limit=2000)).entries)
        assert count == saved, (count, saved)
        free()
        await nouns.journal.append("last")
        print((await nouns.journal.tail(limit=1)).entries[0].text)
asyncio.run(main())
import sqlite3
print(sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone()[0])
"""


async def test_a_limit_on_the_size_of_files_refuses_and_goes_on_when_it_is_lifted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    script = FULL.format(
        tests=str(ROOT / "tests"),
        path=str(path),
        fill="resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, -1))",
        free="resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))",
    )
    done = run(script)
    assert done.stdout.splitlines() == [
        f"disk_full: not saved: {path} could not be written (disk I/O error): no space, over a "
        "quota or a file size limit, or a failing disk. Free some space and call again; no "
        "restart.",
        "last",
        "ok",
    ], done.stderr


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=3m tmpfs "$0" && exec "$@"']
    if (
        shutil.which("unshare") is None
        or subprocess.run([*mount, str(disk), "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("a small disk cannot be mounted here")
    script = FULL.format(
        tests=str(ROOT / "tests"),
        path=str(disk / "state.db"),
        fill="(path.parent / 'ballast').write_bytes(bytes(1_000_000))",
        free="(path.parent / 'ballast').unlink()",
    )
    done = subprocess.run(
        [*mount, str(disk), sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == [
        f"disk_full: not saved: no space left for {disk / 'state.db'}. Free some space and call "
        "again; no restart.",
        "last",
        "ok",
    ], done.stderr


async def test_a_disk_that_is_full_from_the_start_makes_no_half_store(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    done = run(f"""
import asyncio, resource, sys
sys.path[:0] = [{str(ROOT / "tests")!r}]
from pathlib import Path
from workload import ROOT, Nouns, opened
from mcp_state.errors import DiskFull
async def main():
    async with opened(Path({str(path)!r})) as database:
        nouns = Nouns(database, "acme", "codex")
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, -1))
        try:
            await nouns.journal.append("first")
        except DiskFull as problem:
            print(problem.code)
        print(Path({str(path)!r}).exists())
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
        await nouns.journal.append("first")
asyncio.run(main())
""")
    assert done.stdout.splitlines() == ["disk_full", "False"], done.stderr
    assert rows(path, "SELECT text FROM journal") == [("first",)]
    assert names(tmp_path) == ["state.db", "state.db-queue"]


COME_AND_GO = """
import sqlite3
connection = sqlite3.connect({path!r})
connection.execute("UPDATE store SET min_reader = 1")
connection.commit()
connection.close()
"""


async def test_opening_one_connection_keeps_the_locks_of_the_other(tmp_path: Path) -> None:
    """Else another process takes the -wal for abandoned, and deletes what is written to it."""
    path = tmp_path / "state.db"
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        await nouns.journal.append("one")
        await nouns.journal.tail()
        done = run(COME_AND_GO.format(path=str(path)))
        assert done.returncode == 0, done.stderr
        before = identities(tmp_path)
        await nouns.journal.append("two")
        assert identities(tmp_path) == before
        assert sorted(before) == ["state.db", "state.db-queue", "state.db-shm", "state.db-wal"]


async def test_a_file_that_was_deleted_while_open_is_noticed_and_not_begun_anew(
    tmp_path: Path,
) -> None:
    path, kept = tmp_path / "state.db", tmp_path / "kept"
    await make_store(path)
    async with opened(path) as database:
        await works(database)
        path.rename(kept)
        for problem in await refusals(database):
            assert type(problem) is StoreDamaged
            assert str(problem) == (
                f"store_damaged: {path}: the file is gone, but its -wal is still there. {WAY_OUT}"
            )
        assert not path.exists()
        kept.rename(path)
        await works(database)


async def test_a_store_whose_files_are_all_gone_is_not_begun_anew(tmp_path: Path) -> None:
    path, kept = tmp_path / "state.db", tmp_path / "kept"
    await make_store(path)
    path.rename(kept)
    async with opened(path) as database:
        for problem in await refusals(database):
            assert type(problem) is StoreDamaged
            assert str(problem) == (
                f"store_damaged: {path}: the file is gone, and 26 changes with it. `mcp-state "
                "restore BACKUP` puts a copy in its place. To begin anew instead, remove "
                f"{path}-queue too."
            )
        assert not path.exists()
        kept.rename(path)
        await works(database)


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "9p", "cifs"])
async def test_without_a_safe_wal_the_delete_journal_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def unsafe(_: str) -> str:
        return kind

    monkeypatch.setattr(opening, "file_system", unsafe)
    path = tmp_path / "state.db"
    async with opened(path) as database, opened(path) as other:
        one, two = Nouns(database, "acme", "codex"), Nouns(other, "acme", "claude")
        for number in range(3):
            await one.journal.append(f"one {number}")
            await two.journal.append(f"two {number}")
        assert [e.text for e in (await two.journal.tail()).entries] == [
            f"{who} {number}" for number in range(3) for who in ("one", "two")
        ]
        assert names(tmp_path) == ["state.db", "state.db-queue"]
    assert rows(path, "PRAGMA journal_mode") == [("delete",)]


INTERRUPTED = """
import os, sqlite3
connection = sqlite3.connect({path!r}, isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE documents SET text = text || 'lost', short = ''")
connection.execute("CREATE TABLE ballast AS SELECT randomblob(500000) AS b")
os.kill(os.getpid(), 9)
"""


async def test_a_write_that_was_killed_half_way_without_a_wal_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsafe(_: str) -> str:
        return "nfs4"

    monkeypatch.setattr(opening, "file_system", unsafe)
    path = tmp_path / "state.db"
    await make_store(path)
    whole = contents(path)
    done = run(INTERRUPTED.format(path=str(path)))
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert contents(path) != whole
    assert (tmp_path / "state.db-journal").exists()
    async with opened(path) as database:
        found = await Nouns(database, "acme", "codex").memory.get("plan")
        assert isinstance(found, MemoryBlock)
        assert contents(path) == whole
        await works(database)


async def test_half_made_stores_of_killed_processes_are_cleaned_away(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    (tmp_path / "state.db.new-123").write_bytes(b"half")
    (tmp_path / "state.db.new-123-journal").write_bytes(b"half")
    await make_store(path)
    assert names(tmp_path) == ["state.db", "state.db-queue"]


async def test_eight_processes_that_start_at_once_make_one_store(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    script = f"""
import asyncio, sys
sys.path[:0] = [{str(ROOT / "tests")!r}]
from pathlib import Path
from workload import ROOT, Nouns, opened
async def main():
    async with opened(Path({str(path)!r}), wait=60) as database:
        nouns = Nouns(database, "acme", "codex")
        print("ready", flush=True)
        sys.stdin.readline()
        await nouns.journal.append(f"from {{sys.argv[1]}}")
asyncio.run(main())
"""
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            script,
            str(number),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for number in range(8)
    ]
    for child in children:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
    await asyncio.gather(*(child.communicate(b"\n") for child in children))
    assert [child.returncode for child in children] == [0] * 8
    found = rows(path, "SELECT text FROM journal ORDER BY text")
    assert found == [(f"from {number}",) for number in range(8)]
    assert rows(path, "SELECT changes FROM store") == [(8,)]
    assert names(tmp_path) == ["state.db", "state.db-queue"]


async def test_a_store_that_others_keep_busy_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    async with opened(path, wait=0.2) as database:
        with plain(path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy) as refused:
                await Nouns(database, "acme", "codex").memory.set("probe", "x")
            assert refused.value.code == "store_busy"
        await works(database)


async def test_a_sqlite_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    async with opened(path) as database:
        with pytest.raises(StoreReadonly, match=r"which is too old\. Use a Python"):
            await Nouns(database, "acme", "codex").journal.append("x")
    assert not path.exists()


async def assert_noticed_while_open(path: Path, spoil: Callable[[], None]) -> None:
    """Both connections are open; the files are spoilt; nothing is acknowledged, nothing written."""
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        await nouns.journal.append("acknowledged")
        await nouns.journal.tail()
        spoil()
        before = {f.name: f.read_bytes() for f in path.parent.iterdir() if f.name[-4:] != "-shm"}
        for _ in range(2):
            with pytest.raises(StoreDamaged) as problem:
                await nouns.journal.append("lost")
            assert str(problem.value).startswith(f"store_damaged: {path}")
            with pytest.raises(StoreDamaged):
                await nouns.journal.tail()
    after = {f.name: f.read_bytes() for f in path.parent.iterdir() if f.name[-4:] != "-shm"}
    assert after == before


async def test_a_file_that_is_cut_while_it_is_open_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    def spoil() -> None:
        os.truncate(path, 100_000)

    await assert_noticed_while_open(path, spoil)


async def test_a_file_that_is_emptied_while_it_is_open_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await assert_noticed_while_open(path, lambda: os.truncate(path, 0))


async def test_a_file_that_is_overwritten_while_it_is_open_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    def spoil() -> None:
        with path.open("r+b") as file:
            file.write(b"x" * 4000)

    await assert_noticed_while_open(path, spoil)


@pytest.mark.parametrize("spoilt", [b"\0" * 4000, b"x" * 4000])
async def test_a_wal_that_is_overwritten_while_it_is_open_is_noticed(
    tmp_path: Path, spoilt: bytes
) -> None:
    path = tmp_path / "state.db"

    def spoil() -> None:
        with open(f"{path}-wal", "r+b") as file:
            file.write(spoilt)

    await assert_noticed_while_open(path, spoil)


async def test_a_store_that_a_newer_version_closes_while_it_is_open_is_left_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        await nouns.journal.append("before")
        await nouns.journal.tail()
        with closing(sqlite3.connect(path)) as newer:
            newer.execute("PRAGMA user_version = 7")
            newer.execute("UPDATE store SET min_reader = 7")
            newer.commit()
        with pytest.raises(StoreNewer):
            await nouns.journal.append("after")
        with pytest.raises(StoreNewer):
            await nouns.journal.tail()
        with closing(sqlite3.connect(path)) as newer:
            assert newer.execute("SELECT count(*) FROM journal").fetchone() == (1,)


async def test_a_trigger_that_is_dropped_while_it_is_open_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        await nouns.journal.append("before")
        with closing(sqlite3.connect(path)) as other:
            other.execute("DROP TRIGGER events_are_final")
        with pytest.raises(StoreDamaged, match="1 parts are missing: trigger events_are_final"):
            await nouns.journal.append("after")


async def test_a_side_file_that_is_replaced_is_queued_at_anew(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with opened(path) as one, opened(path) as two:
        first, second = Nouns(one, "acme", "codex"), Nouns(two, "acme", "claude")
        await first.journal.append("one")
        os.unlink(f"{path}-queue")
        await second.journal.append("two")
        await first.journal.append("three")
        assert (await second.journal.append("four")).seq == 4
        assert noted_changes(f"{path}-queue") == 4


@pytest.mark.parametrize("garbage", [b"9" * 20, b"9" * 29, b"", b"x" * 40])
async def test_garbage_in_the_side_file_counts_for_nothing(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "state.db"
    async with opened(path) as database:
        await Nouns(database, "acme", "codex").journal.append("one")
    await asyncio.to_thread(Path(f"{path}-queue").write_bytes, garbage)
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        assert len((await nouns.journal.tail()).entries) == 1
        assert (await nouns.journal.append("two")).seq == 2


async def test_a_pipe_in_the_place_of_the_side_file_hangs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    os.mkfifo(f"{path}-queue")
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        assert (await nouns.journal.tail()).entries == []
        with pytest.raises(StoreReadonly, match=r"state\.db-queue is not a regular file"):
            await nouns.journal.append("x")


async def test_a_store_that_stays_damaged_costs_no_descriptors(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        await nouns.journal.append("before")
        await nouns.journal.tail()
        with closing(sqlite3.connect(path)) as other:
            other.execute("DROP TRIGGER events_are_final")
        open_files: list[int] = []
        for _ in range(12):
            with pytest.raises(StoreDamaged):
                await nouns.journal.append("refused")
            with pytest.raises(StoreDamaged):
                await nouns.journal.tail()
            open_files.append(len(await asyncio.to_thread(os.listdir, "/proc/self/fd")))
        assert open_files[-1] == open_files[1]


async def test_a_store_that_somebody_vacuums_is_not_taken_for_damaged(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        for number in range(40):
            await nouns.memory.set(f"block-{number}", "x" * 4000)
        await nouns.journal.tail()
        with closing(sqlite3.connect(path, isolation_level=None)) as person:
            person.execute("CREATE TABLE filler AS SELECT zeroblob(2000000)")
            person.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        long = (await asyncio.to_thread(os.stat, path)).st_size
        await nouns.journal.append("the long file was seen")
        with closing(sqlite3.connect(path, isolation_level=None)) as person:
            person.execute("DROP TABLE filler")
            person.execute("VACUUM")
            person.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert (await asyncio.to_thread(os.stat, path)).st_size < long
        assert (await nouns.journal.append("the short one too")).seq == 42
        assert len((await nouns.journal.tail()).entries) == 2
