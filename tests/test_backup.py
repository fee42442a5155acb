"""A backup is whole and made while others write; a restore loses nothing and needs no restart."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from test_database import queue_held
from workload import (
    Nouns,
    StepClock,
    contents,
    make_store,
    opened,
    plain,
    rows,
    work,
    write_and_be_killed,
)

from mcp_state.errors import BadArgument, NotFound, StoreBusy, StoreDamaged, StoreNewer
from mcp_state.models import MemoryBlock, MissingBlock
from mcp_state.store.backup import Backup, Restored, back_up, restore
from mcp_state.store.doctor import examine

pytestmark = pytest.mark.sqlite

EXPLAINS = (
    "Nothing was changed. `mcp-state doctor` explains it, "
    "`mcp-state restore BACKUP` puts a good copy in its place."
)
ASIDE = "state.db.damaged-20261129T100001Z"


def names(folder: Path) -> list[str]:
    """The files, without the -wal and -shm that a mere look at a store leaves beside it."""
    return sorted(name for name in os.listdir(folder) if not name.endswith(("-wal", "-shm")))


async def value(nouns: Nouns, key: str) -> str:
    found = await nouns.memory.get(key)
    return found.value if isinstance(found, MemoryBlock) else ""


async def test_a_backup_of_an_open_store_is_whole_private_and_healthy(tmp_path: Path) -> None:
    path, target = tmp_path / "state.db", tmp_path / "copy.db"
    done: list[tuple[int, int]] = []

    def progress(pages: int, total: int) -> None:
        done.append((pages, total))

    async with opened(path) as database:
        await work(Nouns(database, "acme", "codex"))
        before = contents(path)
        made = await back_up(str(path), str(target), progress=progress)
        assert contents(path) == before
    assert made == Backup(str(target), target.stat().st_size, 26)
    assert oct(target.stat().st_mode & 0o777) == "0o600"
    assert names(tmp_path) == ["copy.db", "state.db", "state.db-queue"]
    pages = made.size // 4096
    assert done[-1] == (pages, pages)
    assert (await examine(str(target))).problems == []
    everything = "SELECT * FROM events ORDER BY project, seq"
    assert rows(target, everything) == rows(path, everything)


async def test_a_backup_made_while_others_write_is_one_moment_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        await work(nouns)

        async def go_on_writing() -> None:
            for number in range(60):
                await nouns.journal.append(f"{number} " + "x" * 4000)

        writing = asyncio.create_task(go_on_writing())
        backups = [await back_up(str(path), str(tmp_path / f"{n}.db")) for n in range(4)]
        await writing
    assert [backup.changes for backup in backups] == sorted(b.changes for b in backups)
    for backup in backups:
        report = await examine(backup.path)
        assert report.problems == []
        assert report.changes == backup.changes
        assert [totals.event for totals in report.projects] == [backup.changes]


async def test_a_backup_holds_what_is_only_in_the_wal(tmp_path: Path) -> None:
    path, target = tmp_path / "state.db", tmp_path / "copy.db"
    await make_store(path)
    write_and_be_killed(path)
    assert (await back_up(str(path), str(target))).changes == 31
    assert rows(target, "SELECT count(*) FROM memory WHERE name LIKE 'acknowledged-%'") == [(5,)]


async def test_a_backup_overwrites_nothing_unless_told_to(tmp_path: Path) -> None:
    path, target = tmp_path / "state.db", tmp_path / "copy.db"
    await make_store(path)
    target.write_bytes(b"precious")
    with pytest.raises(BadArgument) as refused:
        await back_up(str(path), str(target))
    assert str(refused.value) == (
        f"bad_argument: {target} exists already, and was left as it is. Name another file, or say "
        "that it may be overwritten (--overwrite)."
    )
    assert target.read_bytes() == b"precious"
    await back_up(str(path), str(target), overwrite=True)
    assert (await examine(str(target))).problems == []
    assert names(tmp_path) == ["copy.db", "state.db", "state.db-queue"]


@pytest.mark.parametrize(
    ("target", "fact"),
    [
        ("state.db", "{}/state.db belongs to the store itself"),
        ("state.db-wal", "{}/state.db-wal belongs to the store itself"),
        ("nowhere/copy.db", "{}/nowhere is not a directory"),
        ("folder", "{}/folder is a directory"),
    ],
)
async def test_a_backup_to_a_place_that_cannot_be_is_refused(
    tmp_path: Path, target: str, fact: str
) -> None:
    path = tmp_path / "state.db"
    await make_store(path)
    (tmp_path / "folder").mkdir()
    before = contents(path)
    with pytest.raises(BadArgument) as refused:
        await back_up(str(path), str(tmp_path / target), overwrite=True)
    assert refused.value.fact == fact.format(tmp_path)
    assert contents(path) == before
    assert names(tmp_path) == ["folder", "state.db", "state.db-queue"]


async def test_a_backup_of_no_store_or_of_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path, target = tmp_path / "state.db", tmp_path / "copy.db"
    with pytest.raises(NotFound) as absent:
        await back_up(str(path), str(target))
    assert absent.value.fact == f"no store at {path}"
    await make_store(path)
    [(root,)] = rows(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'memory'")
    assert isinstance(root, int)
    data = bytearray(path.read_bytes())
    data[(root - 1) * 4096] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(StoreDamaged) as damaged:
        await back_up(str(path), str(target))
    assert str(path) in damaged.value.fact
    assert not target.exists()
    path.write_bytes(b"text")
    with pytest.raises(StoreDamaged) as text:
        await back_up(str(path), str(target))
    assert str(text.value) == f"store_damaged: {path}: this is not a SQLite database. {EXPLAINS}"
    assert [name for name in names(tmp_path) if name.startswith("copy.db")] == []


async def test_a_restore_moves_the_damaged_files_aside_and_servers_go_on(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    async with opened(path) as one, opened(path) as two:
        first, second = Nouns(one, "acme", "codex"), Nouns(two, "acme", "claude")
        await first.memory.set("plan", "in the backup")
        await back_up(str(path), str(copy))
        await second.memory.set("plan", "after the backup")
        assert await value(first, "plan") == await value(second, "plan") == "after the backup"

        done = await restore(str(path), str(copy), clock=StepClock())

        moved = tuple(str(tmp_path / ASIDE) + end for end in ("", "-wal", "-shm"))
        assert done == Restored(str(path), str(copy), moved, changes=1, noted=2)
        assert done.lost == 1
        assert await value(first, "plan") == await value(second, "plan") == "in the backup"
        await first.memory.set("plan", "by the first, after the restore")
        await second.memory.append("plan", "; by the second")
        assert await value(first, "plan") == "by the first, after the restore; by the second"
    assert rows(tmp_path / ASIDE, "SELECT value FROM memory") == [("after the backup",)]
    assert (await examine(str(path))).problems == []


async def test_closing_a_server_of_the_old_file_leaves_the_wal_of_the_new_one(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    async with opened(path) as newer:
        async with opened(path) as old:
            await Nouns(old, "acme", "codex").memory.set("plan", "old")
            await back_up(str(path), str(copy))
            await restore(str(path), str(copy), clock=StepClock())
            await Nouns(newer, "acme", "claude").memory.set("plan", "new")
            before = contents(path)
            assert before[1]
        assert contents(path) == before
        assert await value(Nouns(newer, "acme", "claude"), "plan") == "new"
        assert await value(Nouns(old, "acme", "codex"), "plan") == "new"
        await old.aclose()


@pytest.mark.parametrize("damage", ["text", "directory", "gone", "wal", "all gone"])
async def test_a_restore_puts_every_kind_of_damage_right(tmp_path: Path, damage: str) -> None:
    path, copy, wal = tmp_path / "state.db", tmp_path / "copy.db", tmp_path / "state.db-wal"
    await make_store(path)
    await back_up(str(path), str(copy))
    write_and_be_killed(path)
    if damage == "wal":
        wal.write_bytes(b"garbage." * 100)
    else:
        path.unlink()
    if damage == "text":
        path.write_bytes(b"text")
    elif damage == "directory":
        path.mkdir()
    elif damage == "all gone":
        wal.unlink()
        (tmp_path / "state.db-shm").unlink()
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        with pytest.raises(StoreDamaged):
            await nouns.memory.get("brief")
        was = {name for name in os.listdir(tmp_path) if name.startswith("state.db")} - {
            "state.db-queue"
        }
        done = await restore(str(path), str(copy), clock=StepClock())
        assert {Path(name).name for name in done.moved} == {
            name.replace("state.db", ASIDE) for name in was
        }
        assert (done.changes, done.noted, done.lost) == (26, 31, 5)
        assert await value(nouns, "brief") == "expires"
        await nouns.memory.set("probe", "goes on")
    assert (await examine(str(path))).problems == []


async def test_two_restores_in_one_second_keep_both_old_files(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    await make_store(path)
    await back_up(str(path), str(copy))
    for _ in range(2):
        await restore(str(path), str(copy), clock=StepClock())
    assert names(tmp_path) == ["copy.db", "state.db", "state.db-queue", ASIDE, f"{ASIDE}-2"]


async def test_a_restore_that_was_killed_half_way_is_finished_by_the_next(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    await make_store(path)
    await back_up(str(path), str(copy))
    write_and_be_killed(path)
    path.rename(tmp_path / ASIDE)
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        with pytest.raises(StoreDamaged):
            await nouns.memory.set("plan", "must not begin anew")
        done = await restore(str(path), str(copy), clock=StepClock())
        assert done.moved == (f"{tmp_path / ASIDE}-2-wal", f"{tmp_path / ASIDE}-2-shm")
        assert await value(nouns, "brief") == "expires"


async def test_a_restore_of_what_is_no_store_touches_nothing(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    await make_store(path)
    await back_up(str(path), str(copy))
    before, whole = contents(path), copy.read_bytes()
    with pytest.raises(NotFound) as absent:
        await restore(str(path), str(tmp_path / "nothing"))
    assert str(absent.value) == (
        f"not_found: no backup at {tmp_path / 'nothing'}. Nothing was changed. Name the file of a "
        "backup."
    )
    with pytest.raises(BadArgument) as itself:
        await restore(str(path), str(path))
    assert itself.value.fact == f"{path} is the store itself"
    copy.write_bytes(b"text")
    with pytest.raises(StoreDamaged) as text:
        await restore(str(path), str(copy))
    assert text.value.fact == f"{copy}: this is not a SQLite database"
    copy.write_bytes(whole[:40960])
    with pytest.raises(StoreDamaged) as truncated:
        await restore(str(path), str(copy))
    assert truncated.value.fact == f"{copy}: database disk image is malformed"
    copy.write_bytes(whole)
    with plain(copy) as connection:
        connection.execute("DROP TRIGGER events_are_final")
    with pytest.raises(StoreDamaged) as parts:
        await restore(str(path), str(copy))
    assert parts.value.fact == f"{copy}: 1 parts are missing: trigger events_are_final"
    with plain(copy) as connection:
        connection.execute("PRAGMA user_version = 9")
        connection.execute("UPDATE store SET min_reader = 9")
    with pytest.raises(StoreNewer):
        await restore(str(path), str(copy))
    assert contents(path) == before
    assert names(tmp_path) == ["copy.db", "state.db", "state.db-queue"]


async def test_a_restore_waits_for_its_turn_and_no_longer_than_it_may(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    await make_store(path)
    await back_up(str(path), str(copy))
    before = contents(path)
    with queue_held(str(path)):
        with pytest.raises(StoreBusy) as busy:
            await restore(str(path), str(copy), wait=0.1)
        assert busy.value.code == "store_busy"
        assert contents(path) == before
        waiting = asyncio.create_task(restore(str(path), str(copy), clock=StepClock()))
        await asyncio.sleep(0)
    assert (await waiting).changes == 26


async def test_a_backup_can_be_restored_where_no_store_was(tmp_path: Path) -> None:
    path, copy, other = tmp_path / "state.db", tmp_path / "copy.db", tmp_path / "new" / "state.db"
    await make_store(path)
    await back_up(str(path), str(copy))
    async with opened(other) as database:
        nouns = Nouns(database, "acme", "codex")
        assert await nouns.memory.get("brief") == MissingBlock("brief", 0, None, [], 0)
        done = await restore(str(other), str(copy))
        assert done == Restored(str(other), str(copy), (), changes=26, noted=0)
        assert await value(nouns, "brief") == "expires"
    assert (await examine(str(other))).problems == []
