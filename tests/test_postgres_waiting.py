"""A write that waits on the server: for another's lock, or for the server itself."""

from __future__ import annotations

import asyncio
import time

import postgres
import pytest
from peeking import rows
from whole_stores import writing

from mcp_state.api import State, open_store
from mcp_state.errors import StateError, StoreBusy, StoreReadonly
from mcp_state.models import Actor, Caller
from mcp_state.store.database import open_database

SOON = 5.0
_WAITING = """
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


async def until_somebody_waits(address: str) -> None:
    async with asyncio.timeout(SOON):
        while await asyncio.to_thread(rows, address, _WAITING) == [(0,)]:
            pass


async def test_who_waits_for_anothers_lock_can_be_given_up_and_leaves_nothing() -> None:
    address = postgres.new_store()
    async with open_store(address, project="acme") as state:
        await state.journal.append("before")
        with writing(address):
            waits = asyncio.create_task(state.journal.append("never"))
            await until_somebody_waits(address)
            waits.cancel()
            await asyncio.wait([waits], timeout=SOON)
            assert waits.cancelled()
        await state.journal.append("after")
        assert [e.text for e in (await state.journal.tail()).entries] == ["before", "after"]
    assert rows(address, _WAITING) == [(0,)]


async def test_a_lock_that_is_not_had_in_time_is_told_and_nothing_is_saved() -> None:
    address = postgres.new_store()
    database = open_database(address, wait=0.2)
    state = State(database, Caller("acme", "argument", Actor("codex")))
    await state.journal.append("before")
    with writing(address), pytest.raises(StoreBusy, match="not saved"):
        await state.journal.append("never")
    assert [e.text for e in (await state.journal.tail()).entries] == ["before"]
    await database.aclose()


async def test_one_project_does_not_wait_for_another() -> None:
    """Not even in one process, whatever is in the way of the other one."""
    address = postgres.new_store()
    async with open_store(address, project="acme") as ours, open_store(address, project="b") as b:
        await ours.journal.append("mine")
        await b.journal.append("theirs")
        inside, go_on = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(_: object) -> None:
            loop.call_soon_threadsafe(inside.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

        writes = asyncio.create_task(b.database.write(b.caller, slow))
        await inside.wait()
        async with asyncio.timeout(SOON):
            await ours.journal.append("at once")
        go_on.set()
        await writes


async def test_a_server_that_is_not_there_is_told_when_the_time_is_up() -> None:
    nowhere = open_database("postgresql://nobody:hunter22@127.0.0.1:1/none", wait=0.3)
    state = State(nowhere, Caller("acme", "argument", Actor("codex")))
    begun = time.monotonic()
    with pytest.raises(StoreBusy) as told:
        await state.journal.append("never")
    await nowhere.aclose()
    assert "cannot be reached" in told.value.fact
    assert "hunter22" not in str(told.value)
    assert time.monotonic() - begun < SOON


async def test_who_is_not_let_in_is_told_at_once() -> None:
    stranger = postgres.as_nobody(postgres.new_store())
    database = open_database(stranger)
    state = State(database, Caller("acme", "argument", Actor("codex")))
    begun = time.monotonic()
    with pytest.raises(StateError) as told:
        await state.journal.append("never")
    await database.aclose()
    assert isinstance(told.value, StoreReadonly)
    assert "does not exist" in told.value.fact
    assert time.monotonic() - begun < SOON
