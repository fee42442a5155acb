"""A whole store goes from a file to a server and back, and nothing of it is lost on the way."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import carrying
import postgres
import psycopg
import pytest
from carrying import Store, contradictions, fill
from click.testing import Result
from workload import StepClock, rows

from mcp_state.errors import Conflict, NotFound, StoreDamaged
from mcp_state.models import Actor, Caller
from mcp_state.store import copying
from mcp_state.store.copying import copy_store
from mcp_state.store.database import open_database


async def full(path: Path) -> Store:
    """Two projects with something of everything."""
    store = Store(str(path), StepClock())
    await fill(store)
    await fill(store, "other", "claude")
    seen = Caller("acme", "git directory", Actor("codex"), anchor="/src/acme/.git")
    await carrying.State(store.database, seen).journal.append("from a directory")
    await store.database.aclose()
    return store


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    return {table.name: rows(path, table.rows) for table in copying.tables()}


async def test_all_of_a_file_comes_back_from_a_server(tmp_path: Path) -> None:
    here, back = tmp_path / "here" / "state.db", tmp_path / "back" / "state.db"
    await full(here)
    before = hashlib.sha256(here.read_bytes()).hexdigest()
    address = postgres.new_store()

    there = await copied(here, address)
    again = await copied(address, back)

    assert there.tables == again.tables
    assert {one.table for one in there.tables if not one.rows} <= {"tokens", "token_projects"}
    assert contents(back) == contents(here)
    assert contradictions(str(back)) == []
    assert hashlib.sha256(here.read_bytes()).hexdigest() == before
    assert there.events == again.events == sum(int(str(n)) for (n,) in rows(here, LAST))


LAST = "SELECT last_event FROM projects"


async def copied(source: Path | str, target: Path | str) -> copying.Migrated:
    database = open_database(str(source))
    try:
        return await copy_store(database, str(target))
    finally:
        await database.aclose()


async def test_one_goes_on_in_the_copy_where_one_stopped(tmp_path: Path) -> None:
    here = tmp_path / "state.db"
    store = await full(here)
    address = postgres.new_store()
    await copied(here, address)

    database = open_database(address, clock=StepClock())
    moved = carrying.State(database, store.as_().caller)
    packet = await moved.orient()
    entry = await moved.journal.append("went on, on the server")
    elsewhere = carrying.State(database, Caller("third", "argument", Actor("new")))
    await elsewhere.memory.set("plan", "a new project and a new actor get numbers of their own")
    hits = (await moved.search.find("went on")).hits
    await database.aclose()

    assert "OBJECTIVE" in packet.text
    (last,) = rows(here, "SELECT last_event FROM projects WHERE shown = 'acme'")
    assert entry.seq == int(str(last[0])) + 1
    assert [hit.seq for hit in hits] == [entry.seq]


async def test_nothing_is_copied_over_a_store(tmp_path: Path) -> None:
    here, other = tmp_path / "state.db", tmp_path / "other.db"
    await full(here)
    address = postgres.new_store()
    await copied(here, address)
    other.write_bytes(b"mine")

    for target in (address, other, here):
        with pytest.raises(Conflict):
            await copied(here, target)

    assert other.read_bytes() == b"mine"
    with pytest.raises(NotFound):
        await copied(tmp_path / "nothing.db", tmp_path / "target.db")
    with pytest.raises(NotFound):
        await copied(postgres.new_store(), tmp_path / "target.db")
    assert {name.partition("-")[0] for name in os.listdir(tmp_path)} == {"other.db", "state.db"}


async def test_what_arrives_otherwise_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "state.db"
    await full(here)
    address = postgres.new_store()

    for kind, target in ((postgres_schema(), address), (copying._File, tmp_path / "copy.db")):  # pyright: ignore[reportPrivateUsage]
        insert = kind.insert

        def spoils(self: Any, table: Any, given: Any, insert: Callable[..., None] = insert) -> None:
            insert(self, table, given if table.name != "journal" else list(given)[1:])

        monkeypatch.setattr(kind, "insert", spoils)
        with pytest.raises(StoreDamaged, match=r"table journal: \d+ rows were read, and \d+"):
            await copied(here, target)
        monkeypatch.undo()

    assert not (tmp_path / "copy.db").exists()
    assert (await copied(here, address)).events  # nothing is in the way


def postgres_schema() -> Any:
    from mcp_state.store.postgres import filling

    return filling.Schema


@pytest.mark.sqlite
def test_the_command_says_what_it_did_and_never_the_password(
    tmp_path: Path, run: Callable[..., Result]
) -> None:
    here = tmp_path / "state.db"
    asyncio.run(full(here))
    address = postgres.new_store()

    done = run("migrate-store", str(here), address)
    again = run("migrate-store", str(here), address)
    back = run("migrate-store", address, str(tmp_path / "back.db"), "--json")

    assert done.exit_code == 0
    assert f"copied {sum(map(len, contents(here).values())):,} rows" in done.stdout
    assert again.exit_code == 1
    assert "there is a store at" in again.stderr
    assert back.exit_code == 0
    assert not [one for one in (done, again, back) if ":tests@" in one.output]


async def test_a_dump_as_the_readme_says_it_brings_all_of_a_store_back(tmp_path: Path) -> None:
    here, back = tmp_path / "state.db", tmp_path / "back.db"
    await full(here)
    with postgres.own_server(tmp_path) as server:
        await copied(here, server.store)
        dump = server.run(
            "pg_dump",
            "--enable-row-security",
            server.store,
            PGOPTIONS="-c mcp_state.project=*",
        )
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute("CREATE DATABASE again TEMPLATE template0")
        again = urlunsplit(urlsplit(server.address)._replace(path="/again"))
        server.run("psql", "--quiet", "--set=ON_ERROR_STOP=1", again, stdin=dump)
        await copied(again, back)

    assert contents(back) == contents(here)
