"""What people may do on the page, and that there is nothing else: as on the command line."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from browsing import Browser, browsing
from conftest import FakeClock, Open
from planting import held
from starlette.routing import Route

from mcp_state.api import State
from mcp_state.errors import BudgetSpent
from mcp_state.models import MemoryBlock
from mcp_state.plain import plain
from mcp_state.settings import Settings
from mcp_state.web.site import Site

NOW = "2026-11-29T09:00:00Z"
PERSON = {"agent": "person", "client": "mcp-state", "session": "s1"}


@pytest.fixture
async def page(settings: Settings, clock: FakeClock, consistent: None) -> AsyncGenerator[Browser]:
    async with browsing(settings, clock) as browser:
        yield browser


async def last_event(state: State) -> dict[str, Any]:
    (event,) = (await state.events.history(limit=1)).events
    return {
        key: value
        for key, value in plain(event).items()
        if key in ("actor", "kind", "name", "operation", "summary", "run")
    }


async def refused(page: Browser, deed: str, **body: Any) -> tuple[int, str, str]:
    reply = await page.do(deed, **body)
    error = reply.json["error"]
    assert error["next_step"]
    return reply.status, error["code"], error["fact"]


def test_nothing_else_can_be_written(settings: Settings) -> None:
    routes = [route for route in Site(settings).app().routes if isinstance(route, Route)]

    assert len(routes) == len(Site(settings).app().routes)
    writing = {route.path for route in routes if not (route.methods or {"?"}) <= {"GET", "HEAD"}}
    assert writing == {
        f"/api/do/{deed}" for deed in ("lock", "unlock", "release", "raise", "reset", "purge")
    }
    assert all(route.methods == {"POST"} for route in routes if route.path in writing)


async def test_a_block_is_locked_with_a_reason_and_unlocked(page: Browser, mine: State) -> None:
    await mine.memory.set("plan", "one")

    locked = await page.do("lock", key="PLAN", reason="under review")

    (block,) = (await mine.memory.blocks()).blocks
    assert block.locked == "under review"
    assert (locked.status, locked.json) == (
        200,
        {"done": plain(block), "scope": {**plain(mine.totals), "how": "--project"}, "now": NOW},
    )
    event = {"actor": PERSON, "kind": "memory", "name": "plan", "run": ""}
    assert await last_event(mine) == {
        **event,
        "operation": "lock",
        "summary": "locked: under review",
    }
    unlocked = await page.do("unlock", key="plan")
    assert unlocked.json["done"]["locked"] == ""
    assert await last_event(mine) == {**event, "operation": "unlock", "summary": "unlocked"}
    await mine.memory.set("plan", "two")


async def test_a_block_of_a_run_is_locked_there(page: Browser, mine: State) -> None:
    await mine.runs.begin("g", run="r")
    await mine.memory.set("plan", "of the project", run="")
    await mine.memory.set("plan", "of the run", run="r")

    await page.do("lock", key="plan", run="R", reason="x")

    blocks = [await mine.memory.get("plan"), await mine.memory.get("plan", run="r")]
    assert [isinstance(b, MemoryBlock) and b.locked for b in blocks] == ["", "x"]


async def test_a_lock_without_a_reason_or_a_block_is_refused(page: Browser, mine: State) -> None:
    await mine.memory.set("plan", "one")

    assert await refused(page, "lock", key="plan") == (400, "bad_argument", "lock needs reason")
    assert await refused(page, "lock", key="plan", reason="") == (
        400,
        "bad_argument",
        "lock needs reason",
    )
    assert await refused(page, "lock", key="plan", reason=" \n") == (
        400,
        "bad_argument",
        "the reason is empty",
    )
    assert await refused(page, "lock", key="plans", reason="x") == (
        404,
        "not_found",
        "no block 'plans'; there is 'plan'",
    )
    assert (await refused(page, "lock", key="plan", reason="x" * 2001))[:2] == (413, "over_limit")
    token = "ghp_" + "a" * 36
    assert (await refused(page, "lock", key="plan", reason=token))[:2] == (409, "secret_refused")
    (block,) = (await mine.memory.blocks()).blocks
    assert block.locked == ""


async def test_a_lease_is_broken(page: Browser, mine: State) -> None:
    await mine.threads.set("t", next_action="go")
    claimed = await mine.threads.claim("t")

    reply = await page.do("release", thread="T", lease_token=plain(claimed)["lease"]["token"])

    assert (reply.status, "lease" in reply.json["done"]) == (200, False)
    assert await last_event(mine) == {
        "actor": PERSON,
        "kind": "thread",
        "name": "t",
        "run": "",
        "operation": "lease_broken",
        "summary": "lease of codex broken by a person",
    }
    again = await page.do("release", thread="t")
    assert (again.status, again.json["done"]["unchanged"]) == (200, True)


async def test_a_lease_that_passed_to_another_meanwhile_is_not_broken(
    page: Browser, mine: State, theirs: State
) -> None:
    await mine.threads.set("t", next_action="go")
    seen = plain(await mine.threads.claim("t"))["lease"]["token"]
    await mine.threads.release("t", lease_token=seen)
    await theirs.threads.claim("t")

    assert await refused(page, "release", thread="t", lease_token=seen) == (
        409,
        "lease_lost",
        f"lease token {seen} of thread 't' is not the current one; claude holds it now",
    )
    lease = (await mine.threads.get("t")).thread.lease
    assert lease is not None and lease.holder.agent == "claude"
    assert (await refused(page, "release", thread="x"))[:2] == (404, "not_found")


async def test_a_budget_is_raised_and_the_thread_goes_on(page: Browser, mine: State) -> None:
    await mine.threads.set("t", next_action="go")
    await mine.runs.begin("g", run="r", thread="t", max_attempts=1)
    await mine.steps.begin("r", "s")
    await mine.steps.end("r", "s", False, "red")
    with pytest.raises(BudgetSpent):
        await mine.steps.begin("r", "s")
    assert (await mine.threads.get("t")).thread.status == "blocked"

    reply = await page.do("raise", run="R", reason="worth it", attempts="3")

    done = reply.json["done"]
    assert (done["max_attempts"], done["attempts"]) == (3, 1)
    assert "max_tokens" not in done
    (raised,) = [e for e in (await mine.events.history("run:r")).events if e.operation == "raise"]
    assert plain(raised.actor) == PERSON
    assert raised.summary == "budget raised by a person: attempts 1 -> 3 (worth it)"
    assert (await mine.threads.get("t")).thread.status == "active"


async def test_a_budget_is_not_lowered_and_needs_a_reason(page: Browser, mine: State) -> None:
    await mine.runs.begin("g", run="r", max_attempts=5)

    for body in (
        {"run": "r", "reason": "x"},
        {"run": "r", "reason": " ", "attempts": 9},
        {"run": "r", "attempts": 9},
        {"run": "r", "reason": "x", "attempts": 2},
        {"run": "r", "reason": "x", "attempts": 0},
        {"run": "r", "reason": "x", "attempts": 1.5},
        {"run": "r", "reason": "x", "attempts": True},
        {"run": "r", "reason": "x", "attempts": -9},
        {"run": "r", "reason": "x", "attempts": 1 << 60},
        {"run": "r", "reason": ["x"], "attempts": 9},
        {"run": "r", "reason": "x", "budget": 9},
    ):
        assert (await refused(page, "raise", **body))[:2] == (400, "bad_argument")
    assert (await refused(page, "raise", run="q", reason="x", attempts=9))[:2] == (404, "not_found")
    await mine.runs.finish("r", "failed", reflection="no")
    assert (await refused(page, "raise", run="r", reason="x", attempts=9))[:2] == (
        409,
        "illegal_transition",
    )
    assert (await mine.runs.list()).runs[0].max_attempts == 5


async def test_a_step_is_reset(page: Browser, mine: State) -> None:
    await mine.runs.begin("g", run="r")
    await mine.steps.begin("r", "s")
    await mine.steps.end("r", "s", True, "done")
    assert not (await mine.steps.begin("r", "s")).go

    assert await refused(page, "reset", run="r", step="s") == (
        400,
        "bad_argument",
        "reset needs reason",
    )
    reply = await page.do("reset", run="r", step="S", reason="it was wrong")

    assert (reply.status, reply.json["done"]["name"]) == (200, "s")
    event = await last_event(mine)
    assert (event["actor"], event["operation"]) == (PERSON, "reset")
    assert "it was wrong" in event["summary"]
    assert (await mine.steps.begin("r", "s")).go
    assert (await refused(page, "reset", run="r", step="x", reason="x"))[:2] == (404, "not_found")


async def test_a_deed_is_done_in_the_project_that_the_page_shows(
    page: Browser, mine: State, open_state: Open
) -> None:
    other = open_state(project="other")
    await mine.memory.set("plan", "ours")
    await other.memory.set("plan", "theirs")

    reply = await page.do("lock", "Other", key="plan", reason="x")

    assert reply.json["scope"]["project"] == "other"
    locked = [(await state.memory.blocks()).blocks[0].locked for state in (mine, other)]
    assert locked == ["", "x"]
    in_body = await page.post("api/do/unlock", b'{"key": "plan", "project": "other"}')
    assert in_body.json["error"]["fact"] == "unlock has no argument 'project'"
    in_query = await page.post("api/do/unlock?key=plan", b'{"key": "plan"}')
    assert in_query.json["error"]["fact"] == "the address of unlock has 'key' in it"


async def test_a_text_is_removed_once_what_holds_it_was_looked_at(
    page: Browser, mine: State, path: str
) -> None:
    await mine.memory.set("plan", "the word is Swordfish")
    await mine.memory.set("plan", "no word")
    await mine.journal.append("SWORDFISH again")

    seen = await page.do("purge", text="swordfish")

    assert (seen.status, seen.json["done"]["dry_run"], seen.json["done"]["event"]) == (200, True, 0)
    places = seen.json["done"]["places"]
    assert [place["subject"] for place in places] == ["memory:plan", "journal:3"]
    assert seen.json["more"] == 0
    assert mine.totals.event == 3

    done = await page.do(
        "purge", text="swordfish", reason="it slipped", confirm=seen.json["confirm"]
    )

    assert (done.status, done.json["done"]["clean"], done.json["done"]["event"]) == (200, True, 4)
    assert "confirm" not in done.json and "swordfish" not in (seen.text + done.text).lower()
    event = await last_event(mine)
    assert (event["actor"], event["operation"]) == (PERSON, "purge")
    texts = [entry.text for entry in (await mine.journal.tail()).entries]
    assert texts == ["[purged] again"]
    assert held(path, "swordfish") == []


async def test_nothing_is_removed_that_was_not_looked_at(page: Browser, mine: State) -> None:
    await mine.journal.append("swordfish")
    seal = (await page.do("purge", text="swordfish")).json["confirm"]
    refusal = (
        409,
        "conflict",
        "nothing was removed: what holds the text is no longer what you looked at",
    )

    for other in (
        {"text": "swordfish", "confirm": "x"},
        {"text": "swordfis", "confirm": seal},
        {"text": "swordfish", "confirm": seal, "every_project": True},
    ):
        assert await refused(page, "purge", reason="x", **other) == refusal
    assert (await refused(page, "purge", text="swordfish", confirm=seal))[:2] == (
        400,
        "bad_argument",
    )
    await mine.journal.append("another swordfish")
    assert await refused(page, "purge", text="swordfish", reason="x", confirm=seal) == refusal

    texts = [entry.text for entry in (await mine.journal.tail()).entries]
    assert texts == ["swordfish", "another swordfish"]
    assert (await refused(page, "purge", text="abc"))[:2] == (400, "bad_argument")
    assert (await refused(page, "purge", reason="x"))[:2] == (400, "bad_argument")


async def test_of_many_places_some_are_listed(page: Browser, mine: State) -> None:
    for number in range(203):
        await mine.journal.append(f"swordfish {number}")

    seen = (await page.do("purge", text="swordfish")).json

    assert (len(seen["done"]["places"]), seen["more"]) == (200, 3)
    done = await page.do("purge", text="swordfish", reason="x", confirm=seen["confirm"])
    assert (done.status, done.json["done"]["clean"], done.json["more"]) == (200, True, 3)
