from __future__ import annotations

import pytest
from conftest import Call, Connect, FakeClock, Open, text_of

from mcp_state.errors import BadArgument, Conflict, Held, LeaseLost, NotFound, OverLimit
from mcp_state.models import Thread


async def test_an_offer_names_what_there_is_and_the_checks_to_run_first(open_state: Open) -> None:
    ada = open_state(agent="ada", session="s1")
    await ada.threads.set("later", status="watching", check="gh pr view 7")
    await ada.threads.set("now", check="pytest -q")
    await ada.threads.set("plain")
    await ada.threads.set("over", status="done", evidence="x", check="true")
    await ada.memory.set("plan", "one")
    await ada.runs.begin("Reindex", run="reindex")
    made = await ada.handoffs.create("mind the gap", to="ben")
    assert (made.threads, made.runs, made.blocks) == (3, 1, 1)
    assert [(t.name, t.check) for t in made.checks] == [
        ("now", "pytest -q"),
        ("later", "gh pr view 7"),
    ]
    handoff = made.handoff
    assert (handoff.recipient, handoff.note, handoff.event) == ("ben", "mind the gap", 7)
    assert handoff.accepted_by is None


async def test_a_handoff_is_taken_once_and_the_second_taker_is_told_by_whom(
    open_state: Open, clock: FakeClock
) -> None:
    ada, ben = open_state(agent="ada", session="s1"), open_state(agent="ben", session="s2")
    cid = open_state(agent="cid", session="s3", database="two")
    key = (await ada.handoffs.create("go on")).handoff.key
    taken = await ben.handoffs.accept(f" {key.upper()} ")
    assert taken.handoff.accepted_by == ben.caller.actor
    clock.move(minutes=5)
    with pytest.raises(Conflict, match=f"handoff {key} was taken by ben 5 min ago"):
        await cid.handoffs.accept(key)
    again = await ben.handoffs.accept(key)
    assert (again.handoff, again.repeated) == (taken.handoff, True)
    with pytest.raises(Conflict, match="was taken by ben"):
        await ben.handoffs.offered(key)
    later = open_state(agent="ben", session="s4")
    with pytest.raises(Conflict, match="was taken by ben"):
        await later.handoffs.accept(key)
    events = (await ada.events.history(f"handoff:{key}")).events
    assert [(e.actor.agent, e.operation) for e in events] == [
        ("ada", "create"),
        ("ben", "accept"),
        ("cid", "refused"),
        ("ben", "refused"),
    ]


async def test_leases_of_the_giver_pass_to_the_taker_under_new_tokens(
    open_state: Open, clock: FakeClock
) -> None:
    ada, ben = open_state(agent="ada", session="s1"), open_state(agent="ben", session="s2")
    cid = open_state(agent="cid", session="s3")
    for name in ("mine", "over", "his"):
        await ada.threads.set(name)
    claimed = await ada.threads.claim("mine", lease="30m")
    assert isinstance(claimed, Thread)
    token = claimed.lease
    await ada.threads.claim("over", lease="1m")
    await cid.threads.claim("his")
    key = (await ada.handoffs.create("go on")).handoff.key
    clock.move(minutes=10)
    taken = await ben.handoffs.accept(key)
    (mine,) = taken.leases
    assert token is not None and mine.lease is not None
    assert mine.name == "mine"
    assert mine.lease.holder == ben.caller.actor
    assert mine.lease.until == token.until
    assert mine.lease.token > token.token
    with pytest.raises(LeaseLost):
        await ada.threads.set("mine", note="still mine", lease_token=token.token)
    await ben.threads.set("mine", note="now mine", lease_token=mine.lease.token)
    with pytest.raises(Held, match="held by cid"):
        await ben.threads.set("his", note="not mine")


async def test_an_offer_needs_a_note_within_its_limit(open_state: Open) -> None:
    state = open_state()
    with pytest.raises(BadArgument, match="note is empty"):
        await state.handoffs.create("  ")
    with pytest.raises(OverLimit, match="the note would be 8,193 characters"):
        await state.handoffs.create("x" * 8193)
    assert not state.totals.exists


async def test_an_unknown_key_names_the_newest_ones(open_state: Open) -> None:
    state = open_state()
    key = (await state.handoffs.create("go on")).handoff.key
    with pytest.raises(NotFound, match=f"no handoff 'h-nope'; there is '{key}'"):
        await state.handoffs.accept("h-nope")
    other = open_state(project="other")
    await other.journal.append("x")
    with pytest.raises(NotFound):
        await other.handoffs.accept(key)


async def test_orient_shows_an_offer_until_it_was_taken_a_day_ago(
    open_state: Open, clock: FakeClock
) -> None:
    ada, ben = open_state(agent="ada", session="s1"), open_state(agent="ben", session="s2")
    key = (await ada.handoffs.create("mind\n[forged]", to="ben")).handoff.key

    async def shown() -> list[str]:
        lines = str(await ben.orient()).splitlines()
        return lines[lines.index("HANDOFF") + 1 :][:1] if "HANDOFF" in lines else []

    clock.move(hours=2)
    offer = f"    {key} from ada 2 h ago for ben: mind [forged]"
    assert await shown() == [f'{offer}   -> handoff_accept(key="{key}")']
    await ada.handoffs.export(key)
    assert await shown() == [
        f"    {key} from ada 2 h ago for ben, handed over in a file just now: mind [forged]"
    ]
    await ben.handoffs.accept(key)
    clock.move(hours=1)
    assert await shown() == [
        f"    {key} from ada 3 h ago for ben, handed over in a file 1 h ago, taken by ben 1 h ago"
    ]
    clock.move(hours=24)
    assert await shown() == []


async def test_through_the_tools_the_taker_gets_the_note_the_checks_and_the_packet(
    connect: Connect, call: Call
) -> None:
    await call("thread_set", thread="fix", next_action="rerun", check="pytest -q")
    await call("thread_claim", thread="fix")
    offered = await call("handoff_create", note="first the test", to="ben")
    key = offered.split()[2].rstrip(":")
    assert offered.splitlines()[:3] == [
        f"offered as {key}: 1 open thread, 0 unfinished runs, 0 blocks of memory. The next agent "
        f'calls handoff_accept(key="{key}"), through state_op if it is not listed. For another '
        f"machine: `mcp-state export --handoff {key} FILE`, there `mcp-state import FILE`.",
        "run these checks before you rely on what is stored:",
        "    fix: pytest -q",
    ]
    async with connect(agent="ben", session="s2") as ben:
        result = await ben.call_tool(
            "state_op", {"op": "handoff_accept", "arguments": {"key": key}}
        )
    lines = text_of(result).splitlines()
    assert lines[:6] == [
        f"taken over: {key} from mcp just now, meant for ben",
        "note:",
        "    first the test",
        "now held by you: fix, lease_token=5 until 09:30 UTC",
        "run these checks before you rely on what is stored:",
        "    fix: pytest -q",
    ]
    assert lines[6].startswith("project acme (from --project) · agent ben · ")
    assert lines[-1] == "[acme (from --project) · 1 thread · event 5]"
    assert lines.count(lines[-1]) == 1
