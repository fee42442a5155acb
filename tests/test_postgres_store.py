"""What is PostgreSQL's own: addresses, roles, what a server is set to, and several writers at once.

All else is tested on both engines.
"""

from __future__ import annotations

import asyncio
import io
import socket
import sys
import tempfile
import threading
import uuid
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import postgres
import psycopg
import pytest
from cutting import Proxy, proxy
from peeking import rows
from postgres import OwnServer, own_server, with_options
from psycopg.conninfo import conninfo_to_dict
from soaking import SOAK

from mcp_state.api import State, open_store
from mcp_state.errors import BadArgument, Conflict, StoreBusy, StoreReadonly
from mcp_state.models import Actor, Caller
from mcp_state.settings import shown_address
from mcp_state.store.copying import copy_store
from mcp_state.store.database import Database, open_database
from mcp_state.store.postgres import opening
from mcp_state.store.postgres.database import PostgresDatabase
from mcp_state.store.postgres.opening import Address
from mcp_state.store.projects import Projects
from mcp_state.store.purge import Purge
from mcp_state.store.transaction import Reading, Writing
from mcp_state.store.transfer import Transfer


def caller(project: str = "acme") -> Caller:
    return Caller(project, "argument", Actor("codex"))


def admin(statement: str) -> None:
    """Do something in the database of this process that its owner may not."""
    parts = urlsplit(postgres.server())._replace(path=urlsplit(postgres.database()).path)
    with psycopg.connect(urlunsplit(parts), autocommit=True) as raw:
        raw.execute(statement.encode())


# Addresses


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("postgresql:///agents", {"dbname": "agents"}),
        ("postgresql:///agents?host=/run/pg", {"dbname": "agents", "host": "/run/pg"}),
        ("postgresql://?service=mine", {"service": "mine"}),
        ("postgresql://", {}),
        ("postgresql://me@[::1]:5433/a", {"user": "me", "host": "::1", "port": "5433"}),
        ("postgresql://a:1,b:2/c", {"host": "a,b", "port": "1,2", "dbname": "c"}),
        ("postgresql://me@%2Frun%2Fpg/a", {"host": "/run/pg"}),
        ("postgres://h/a?passfile=/p+q%2Br%20s", {"passfile": "/p+q+r s"}),
        ("postgresql://h/a?options=-c%20jit%3Doff", {"options": "-c jit=off"}),
        ("postgresql://me:p%3Fq@h/a", {"password": "p?q", "host": "h"}),
        ("postgresql://me:p?q#r[@h/a", {"password": "p?q#r[", "host": "h", "dbname": "a"}),
        ("postgresql://h/a?connect_timeout=60", {"connect_timeout": "60"}),
    ],
)
def test_the_driver_is_told_what_the_address_says(address: str, wanted: dict[str, str]) -> None:
    told = conninfo_to_dict(Address.of(address).url)

    assert {name: told.get(name) for name in wanted} == wanted
    assert told.keys() - wanted.keys() - conninfo_to_dict(address).keys() == WAITS - wanted.keys()


WAITS = {
    "connect_timeout",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
}


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:SECRET@h/a",
        "postgresql://me:SEC#RET@h/a",
        "postgresql://me:SEC?RET@h/a",
        "postgresql://me:SEC/RET@h/a",
        "postgresql://me:SEC@RET@h/a",
        "postgresql://me:SEC[RET@h/a",
        "postgresql://h/a?password=SECRET&sslpassword=RET",
        "postgresql://h/a?pass%77ord=SECRET",
    ],
)
def test_no_part_of_a_password_is_shown(address: str) -> None:
    assert shown_address(address) == "postgresql://h/a"
    try:
        told = Address.of(address).shown
    except BadArgument as problem:
        told = str(problem)
    assert "SEC" not in told
    assert "RET" not in told


@pytest.mark.parametrize(
    "address", ["postgresql://h:port/a", "postgresql://h/a?nonsense=1", "postgresql://[::1/a"]
)
def test_what_is_no_address_is_refused_as_such(address: str) -> None:
    with pytest.raises(BadArgument, match="no address that the driver"):
        open_database(address)


# What a role and a database are set to


async def test_a_table_of_somebody_else_is_not_taken_for_the_store() -> None:
    admin("CREATE TABLE public.store (id INT); GRANT SELECT ON public.store TO public")
    try:
        async with open_store(postgres.new_store(), project="acme", agent="codex") as state:
            assert "Nothing is stored" in (await state.orient()).text
            assert (await state.memory.set("plan", "x")).version == 1
    finally:
        admin("DROP TABLE public.store")


@contextmanager
def role(**schemas: str) -> Generator[str]:
    """An address of one who may make nothing in the database but in these schemas."""
    name = f"t_{uuid.uuid4().hex[:8]}"
    admin(f"CREATE ROLE {name} LOGIN PASSWORD 'tests'")
    try:
        parts = urlsplit(postgres.database())
        host = parts.netloc.rpartition("@")[2]
        yield urlunsplit(parts._replace(netloc=f"{name}:tests@{host}"))
    finally:
        admin(f"DROP OWNED BY {name} CASCADE")
        admin(f"DROP ROLE {name}")


async def test_a_schema_that_was_made_for_the_role_is_enough() -> None:
    with role() as address:
        name = urlsplit(address).username
        admin(f"CREATE SCHEMA s_{name} AUTHORIZATION {name}")
        there = with_options(address, schema=f"s_{name}")
        async with open_store(there, project="acme", agent="codex") as state:
            assert (await state.memory.set("plan", "x")).version == 1


async def test_who_may_make_no_schema_is_told_so() -> None:
    with role() as address:
        async with open_store(address, project="acme", agent="codex") as state:
            with pytest.raises(StoreReadonly, match="permission denied for database"):
                await state.memory.set("plan", "x")


async def test_a_store_that_may_not_be_seen_is_not_taken_for_none() -> None:
    address = postgres.new_store()
    async with open_store(address, project="acme", agent="codex") as state:
        await state.memory.set("plan", "x")
    with role() as other:
        schema = Address.of(address).schema
        async with open_store(with_options(other, schema=schema), project="acme") as state:
            with pytest.raises(StoreReadonly, match="permission denied"):
                await state.orient()
            with pytest.raises(StoreReadonly, match="permission denied"):
                await state.memory.set("plan", "y")


async def test_who_is_not_let_in_is_told_so_when_a_store_is_copied(tmp_path: Path) -> None:
    parts = urlsplit(postgres.database())
    nowhere = urlunsplit(parts._replace(path="/no_such_database"))
    here = open_database(str(tmp_path / "state.db"))
    try:
        await State(here, caller()).journal.append("began")
        with pytest.raises(StoreReadonly, match="does not exist"):
            await copy_store(here, nowhere)
    finally:
        await here.aclose()


async def test_the_role_may_have_another_isolation_by_default() -> None:
    admin("ALTER ROLE mcp_state_tests SET default_transaction_isolation = 'serializable'")
    databases = [open_database(address) for address in [postgres.new_store()] * 6]
    try:
        await asyncio.gather(
            *(
                State(one, caller(f"p{n}")).journal.append("first")
                for n, one in enumerate(databases)
            )
        )
        done = await asyncio.gather(
            *(one.write(caller(), _noted, apart=True) for one in databases * 5)
        )
    finally:
        admin("ALTER ROLE mcp_state_tests RESET default_transaction_isolation")
        for one in databases:
            await one.aclose()
    assert sorted(done) == list(range(1, 31))


def _noted(tx: Writing) -> int:
    return tx.event("note", "noted", None)


# Several at once


@contextmanager
def somebody(address: str) -> Generator[psycopg.Connection[Any]]:
    """A transaction of another writer, which shares the lock of the store."""
    place = Address.of(address)
    with closing(psycopg.connect(place.url, autocommit=True)) as raw:
        opening.configure(raw, place.schema)
        raw.execute("BEGIN")
        raw.execute("SELECT pg_advisory_xact_lock_shared(%s)", (place.key("store"),))
        yield raw


def until_blocked(raw: psycopg.Connection[Any], waits: asyncio.Task[Any]) -> None:
    """Until this call waits for what the transaction has, or ended without."""
    ours = raw.info.backend_pid
    blocked = "SELECT 1 FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))"
    while not waits.done() and raw.execute(blocked, (ours,)).fetchone() is None:
        pass


async def test_two_projects_cannot_take_one_name_at_the_same_time() -> None:
    address = postgres.new_store()
    database = open_database(address)
    try:
        for name in ("a", "b"):
            await State(database, caller(name)).journal.append("began")
        with somebody(address) as raw:
            raw.execute(
                "INSERT INTO project_names SELECT 'taken', 'taken', id FROM projects "
                "WHERE shown = 'b'"
            )
            renamed = asyncio.create_task(Projects(database, caller("a")).rename("taken"))
            await asyncio.to_thread(until_blocked, raw, renamed)
            raw.execute("COMMIT")
            with pytest.raises(Conflict, match="belongs to project 'b'"):
                await renamed
        shown = {one.name for one in await Projects(database, caller("a")).list()}
    finally:
        await database.aclose()
    assert shown == {"a", "b"}


# Connections


@pytest.fixture(scope="module")
def own() -> Generator[OwnServer]:
    with (
        tempfile.TemporaryDirectory(prefix="mcp-state-store-") as folder,
        own_server(Path(folder)) as server,
    ):
        yield server


def cut_all(server: OwnServer) -> None:
    """End every connection to a store."""
    with psycopg.connect(server.address, autocommit=True) as raw:
        raw.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE 'mcp-state%'"
        )


def through(server: OwnServer, port: int) -> str:
    """The address of a new store, by way of a port."""
    schema = f"t_{uuid.uuid4().hex[:8]}"
    return with_options(server.store, host="127.0.0.1", port=str(port), schema=schema)


async def test_a_server_that_comes_back_is_found_at_once(own: OwnServer) -> None:
    between = Proxy(own.socket)
    door = await asyncio.start_server(between.serve, "127.0.0.1", 0)
    port: int = door.sockets[0].getsockname()[1]
    database = open_database(through(own, port), wait=0.6)
    state = State(database, caller())
    try:
        await state.journal.append("before")
        door.close()
        cut_all(own)
        for _ in range(6):  # whoever waits longer each time is not there when it comes back
            with pytest.raises(StoreBusy):
                await state.journal.append("meanwhile")
        door = await asyncio.start_server(between.serve, "127.0.0.1", port)
        await state.journal.append("after")
    finally:
        await database.aclose()
        door.close()
        await between.end()


async def test_a_server_that_falls_silent_is_noticed(own: OwnServer) -> None:
    def patience(address: str) -> list[int]:
        with (
            closing(psycopg.connect(Address.of(address).url)) as raw,
            socket.fromfd(raw.fileno(), socket.AF_INET, socket.SOCK_STREAM) as opened,
        ):
            options = ("KEEPIDLE", "KEEPINTVL", "KEEPCNT", "USER_TIMEOUT")
            numbers = [getattr(socket, f"TCP_{option}") for option in options]
            return [opened.getsockopt(socket.IPPROTO_TCP, number) for number in numbers]

    async with proxy(own.socket) as between:
        found = await asyncio.to_thread(patience, through(own, between.port))
    assert found == [10, 5, 3, 25_000]


async def test_calls_do_not_wait_for_each_other_to_find_no_server() -> None:
    silent = socket.create_server(("127.0.0.1", 0), backlog=100)  # which nobody accepts from
    port: int = silent.getsockname()[1]
    database = open_database(f"postgresql://127.0.0.1:{port}/a?connect_timeout=2", wait=0.5)
    try:
        async with asyncio.timeout(10):  # one after the other it would be 16 seconds
            told = await asyncio.gather(
                *(State(database, caller(f"p{n}")).orient() for n in range(8)),
                return_exceptions=True,
            )
    finally:
        await database.aclose()
        silent.close()
    assert {type(one) for one in told} == {StoreBusy}


async def test_closing_leaves_nothing_open_though_a_call_connects_anew(own: OwnServer) -> None:
    database = open_database(with_options(own.store, schema=f"t_{uuid.uuid4().hex[:8]}"))
    assert isinstance(database, PostgresDatabase)
    begun, closing_ = threading.Event(), threading.Event()

    def work(tx: Writing) -> int:
        if not begun.is_set():
            begun.set()
            closing_.wait()
            cut_all(own)
        return _noted(tx)

    written = asyncio.create_task(database.write(caller(), work))
    await asyncio.to_thread(begun.wait)
    closed = asyncio.create_task(database.aclose())
    await asyncio.sleep(0)
    closing_.set()
    await closed

    assert await written == 1
    assert database._pool is None  # pyright: ignore[reportPrivateUsage]


async def test_rows_that_nobody_reads_on_harm_no_later_transaction() -> None:
    database = open_database(postgres.new_store())
    kept: list[Any] = []

    def begin(tx: Reading) -> None:
        kept.append(tx.each("SELECT generate_series(1, 2000) AS n"))
        next(kept[0])

    def close(tx: Writing) -> int:
        kept.pop().close()
        return _noted(tx)

    try:
        await State(database, caller()).journal.append("began")
        await database.read(caller(), begin)
        assert await database.write(caller(), close) == 2
    finally:
        await database.aclose()


# What became of a commit


async def _merge(database: Database) -> None:
    await State(database, caller("other")).journal.append("began")
    await Projects(database, caller()).merge("other")


async def _purge(database: Database) -> None:
    await Purge(database, caller()).purge("hush-hush", reason="said by mistake")


@pytest.mark.parametrize("meanwhile", [_merge, _purge])
async def test_a_commit_is_found_though_its_event_was_rewritten_meanwhile(
    own: OwnServer, meanwhile: Callable[[Database], Awaitable[None]]
) -> None:
    class Late(PostgresDatabase):
        """One that looks when somebody else has done something."""

        def _was_saved(self, doubt: Any) -> bool:
            other = open_database(there)

            async def do() -> None:
                await meanwhile(other)
                await other.aclose()

            asyncio.run(do())
            return super()._was_saved(doubt)

    async with proxy(own.socket) as between:
        database = Late(through(own, between.port))
        there = with_options(own.store, schema=database.address.schema)
        try:
            state = State(database, caller())
            await state.journal.append("before")
            cut = asyncio.create_task(between.cut("after"))
            await asyncio.sleep(0)
            await state.journal.append("once, hush-hush")
            await cut
        finally:
            await database.aclose()
    texts = [str(text) for (text,) in rows(there, "SELECT text FROM journal")]

    assert len([text for text in texts if text.startswith("once")]) == 1


async def test_a_stream_never_holds_more_than_one_export(own: OwnServer) -> None:
    class Cut(io.BytesIO):
        """A stream during which the connection is lost, once."""

        cut = False

        def write(self, data: Any) -> int:
            if not self.cut:
                self.cut = True
                cut_all(own)
            return super().write(data)

    stream = Cut()
    database = open_database(with_options(own.store, schema=f"t_{uuid.uuid4().hex[:8]}"))
    try:
        await State(database, caller()).journal.append("began")
        with pytest.raises(StoreBusy, match="no whole export"):
            await Transfer(database, caller()).export(stream)
    finally:
        await database.aclose()
    assert stream.getvalue().count(b'"mcp_state_export"') <= 1


# Many at the beginning


BEGINNER = """
import asyncio, sys
from mcp_state.api import open_store

async def main(address, name):
    async with open_store(address, project="acme", agent=name) as state:
        print("ready", flush=True)
        sys.stdin.readline()
        await state.journal.append(name)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("number", "version"),
    [pytest.param(20, 0, id="soak"), pytest.param(6, 3, id="soak old")]
    if SOAK
    else [pytest.param(6, 0, id="slice"), pytest.param(4, 3, id="slice old")],
)
async def test_many_servers_begin_at_once(number: int, version: int) -> None:
    address = postgres.new_store()
    if version:
        await asyncio.to_thread(_make_old, address, version)
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            BEGINNER,
            address,
            f"s{n}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for n in range(number)
    ]
    for child in children:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
    told = await asyncio.gather(*(child.communicate(b"\n") for child in children))

    assert [child.returncode for child in children] == [0] * number, told
    assert sorted(str(text) for (text,) in rows(address, "SELECT text FROM journal")) == sorted(
        f"s{n}" for n in range(number)
    )
    assert list(rows(address, "SELECT version FROM store")) == [(len(opening.migrations()),)]
    assert list(rows(address, "SELECT last_event FROM projects")) == [(number,)]


def _make_old(address: str, version: int) -> None:
    """A store as a version made it that knew no more steps."""
    place = Address.of(address)
    with closing(psycopg.connect(place.url, autocommit=True)) as raw:
        opening.configure(raw, place.schema)
        raw.execute(f"CREATE SCHEMA {place.schema}".encode())
        for step in opening.migrations()[:version]:
            for statement in step:
                raw.execute(statement.encode())
        raw.execute(
            "INSERT INTO store (id, min_reader, version, created_at) VALUES (1, 1, %s, %s)",
            (version, "2026-11-20T08:00:00.000000Z"),
        )


async def test_a_store_is_brought_up_to_date_when_nobody_writes() -> None:
    address = postgres.new_store()
    await asyncio.to_thread(_make_old, address, 3)
    database = open_database(address)
    try:
        with somebody(address) as raw:
            write = asyncio.create_task(State(database, caller()).journal.append("new"))
            await asyncio.to_thread(until_blocked, raw, write)
            assert not write.done()
            raw.execute("COMMIT")
            assert (await write).seq == 1
    finally:
        await database.aclose()
