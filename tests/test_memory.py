"""Working memory: versions, limits, expiry, locks, names, and values that come back exactly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Call, Connect, FakeClock, Open, text_of
from mcp import Client
from peeking import Refused, plain

from mcp_state.api import State
from mcp_state.errors import BadArgument, Conflict, Locked, NotFound, OverLimit, VersionConflict
from mcp_state.models import MemoryBlock, MissingBlock

EMPTY = "[acme (from --project) · nothing stored yet]"


def scope(event: int) -> str:
    return f"[acme (from --project) · 0 threads · event {event}]"


async def value_of(state: State, key: str) -> str | None:
    block = await state.memory.get(key)
    return block.value if isinstance(block, MemoryBlock) else None


async def operations(state: State, key: str) -> list[tuple[str, int | None]]:
    page = await state.events.history(f"memory:{key}", limit=200)
    return [(event.operation, event.version) for event in page.events]


# Reading and writing


async def test_a_block_is_set_and_read_back_with_its_version_and_size(call: Call) -> None:
    assert await call("memory_set", key="plan", value="one") == (
        f"saved: plan · version 1 · 3/4096 chars · mcp just now\n{scope(1)}"
    )

    assert await call("memory_get", key="plan") == (
        f"one\nplan · version 1 · 3/4096 chars · mcp just now\n{scope(1)}"
    )


async def test_a_missing_block_is_an_answer_that_lists_the_keys_there_are(call: Call) -> None:
    assert await call("memory_get", key="plan") == (
        f'no such block "plan". There are no blocks now; memory_set makes one.\n{EMPTY}'
    )

    await call("memory_set", key="Goal", value="ship")
    await call("memory_set", key="notes", value="none")

    assert await call("memory_get", key="plan") == (
        f'no such block "plan". Existing keys: Goal, notes.\n{scope(2)}'
    )


async def test_without_a_key_all_blocks_are_rendered_indented(call: Call, clock: FakeClock) -> None:
    await call("memory_set", key="plan", value="one\ntwo")
    clock.move(minutes=5)
    await call("memory_set", key="goal", value="ship")

    assert await call("memory_get") == (
        "2 blocks:\n"
        "goal · version 1 · 4/4096 chars · mcp just now\n"
        "    ship\n"
        "plan · version 1 · 7/4096 chars · mcp 5 min ago\n"
        "    one\n"
        "    two\n"
        f"{scope(2)}"
    )


async def test_an_empty_memory_says_how_to_begin(call: Call) -> None:
    assert await call("memory_get") == (
        f"No blocks yet. memory_set(key, value) makes one.\n{EMPTY}"
    )


async def test_a_thousand_large_blocks_stay_in_one_short_answer_that_says_what_is_left(
    call: Call, state: State, path: str
) -> None:
    await state.memory.set("first", "v" * 4096)
    with plain(path) as store:  # a thousand calls would only be slow
        store.execute(
            "WITH RECURSIVE n (i) AS (SELECT 10001 UNION ALL SELECT i + 1 FROM n WHERE i < 10999) "
            "INSERT INTO memory SELECT project, run, 'block-' || substr('' || i, 2), "
            "'block-' || substr('' || i, 2), value, version,"
            " changed, changed_at, changed_by, expires_at, locked FROM memory, n"
        )

    text = await call("memory_get")

    assert len(text) < 10_000
    head, *_, last, _ = text.splitlines()
    names = last.removeprefix("also: ").partition(" and ")[0].split(", ")
    left = 1000 - 2 - len(names)
    assert head == (
        f"1,000 blocks: 2 in full, {len(names)} only named at the end: memory_get(key=…); "
        f'{left} more are not named: search(query, kinds=["memory"])'
    )
    assert text.count("\n    " + "v" * 4096) == 2
    assert last.endswith(f" and {left} more")
    assert names[0] == "block-0003"


async def test_an_empty_value_is_refused_naming_memory_delete_and_changes_nothing(
    call: Call, state: State
) -> None:
    await call("memory_set", key="plan", value="one")

    assert await call("memory_set", error=True, key="plan", value="") == (
        "error: bad_argument: value is empty, and block 'plan' was left as it is. "
        f"To remove a block, use memory_delete.\n{scope(1)}"
    )
    assert await call("memory_set", error=True, key="plan") == (
        "error: bad_argument: memory_set needs value; it got key. Call again with value.\n"
        f"{scope(1)}"
    )
    assert await call("memory_append", error=True, key="plan", text="") == (
        f"error: bad_argument: text is empty. Give the text to add.\n{scope(1)}"
    )
    assert await value_of(state, "plan") == "one"
    assert await operations(state, "plan") == [("set", 1)]


# Versions


async def test_versions_grow_across_delete_and_re_creation_and_are_never_used_twice(
    state: State,
) -> None:
    assert (await state.memory.set("plan", "one")).version == 1
    assert (await state.memory.append("plan", " two")).version == 2
    gone = await state.memory.delete("plan")
    assert (gone.version, gone.value) == (2, "one two")
    assert (await state.memory.set("plan", "three")).version == 4
    assert (await state.memory.restore("plan", 2)).version == 5
    assert await value_of(state, "plan") == "one two"

    versions = [version for _, version in await operations(state, "plan")]
    assert versions == [1, 2, 3, 4, 5]
    texts = [await state.memory.get("plan", version=v) for v in (1, 2, 4, 5)]
    values = [block.value for block in texts if isinstance(block, MemoryBlock)]
    assert values == ["one", "one two", "three", "one two"]


async def test_even_plain_sql_cannot_use_a_version_twice_or_remove_a_block(
    state: State, path: str
) -> None:
    await state.memory.set("plan", "one")
    with plain(path) as store:
        with pytest.raises(Refused, match="a new value needs a new version"):
            store.execute("UPDATE memory SET value = 'other'")
        with pytest.raises(Refused, match="a deleted block keeps its row"):
            store.execute("DELETE FROM memory")

    assert await value_of(state, "plan") == "one"


async def test_an_old_version_reads_as_not_the_current_one(call: Call) -> None:
    await call("memory_set", key="plan", value="one")
    await call("memory_set", key="plan", value="two")

    assert await call("memory_get", key="PLAN", version=1) == (
        f"one\nplan · version 1 (not the current one) · 3/4096 chars · mcp just now\n{scope(2)}"
    )


async def test_a_version_that_never_was_and_one_that_is_a_deletion_say_so(call: Call) -> None:
    await call("memory_set", key="plan", value="one")
    await call("memory_delete", key="plan")

    assert await call("memory_get", error=True, key="plan", version=9) == (
        "error: not_found: block 'plan' has no version 9; its last one is 2. "
        f'history(subject="memory:plan") lists the versions.\n{scope(2)}'
    )
    assert await call("memory_restore", error=True, key="plan", version=2) == (
        "error: not_found: version 2 of block 'plan' is its deletion and holds nothing. "
        f'history(subject="memory:plan") lists the versions.\n{scope(2)}'
    )
    assert await call("memory_get", error=True, key="other", version=1) == (
        "error: not_found: no block 'other'. memory_get without a key shows all blocks.\n"
        f"{scope(2)}"
    )


async def test_a_deleted_block_says_so_how_to_read_it_and_how_to_bring_it_back(call: Call) -> None:
    await call("memory_set", key="Plan", value="one")

    assert await call("memory_delete", key="plan") == (
        "deleted: Plan, which was at version 1. "
        f'memory_restore(key="Plan", version=1) brings it back.\n{scope(2)}'
    )
    assert await call("memory_get", key="plan") == (
        'block "Plan" was deleted; memory_get(key="Plan", version=1) still reads its last text. '
        f"There are no blocks now; memory_set makes one.\n{scope(2)}"
    )
    assert await call("memory_restore", key="plan", version=1) == (
        f"saved: Plan · version 3 · 3/4096 chars · mcp just now\n{scope(3)}"
    )
    assert (await call("memory_get", key="plan")).startswith("one\nPlan · version 3 · ")


async def test_deleting_what_is_not_there_is_not_found(call: Call) -> None:
    await call("memory_set", key="notes", value="x")

    assert await call("memory_delete", error=True, key="plan") == (
        "error: not_found: no block 'plan'; there is 'notes'. "
        f"memory_get without a key shows all blocks.\n{scope(1)}"
    )


# expected_version


async def test_a_stale_set_is_refused_and_tells_how_to_recover(call: Call, state: State) -> None:
    await call("memory_set", key="plan", value="one")
    await call("memory_set", key="plan", value="two", expected_version=1)

    assert await call("memory_set", error=True, key="plan", value="lost", expected_version=1) == (
        "error: version_conflict: block 'plan' is at version 2, not 1 (written by mcp just now). "
        'Read it with memory_get(key="plan"), merge, and write again with expected_version=2.\n'
        f"{scope(3)}"
    )
    assert await value_of(state, "plan") == "two"
    assert await operations(state, "plan") == [("set", 1), ("set", 2), ("refused", None)]


async def test_expected_version_0_means_it_must_not_exist_yet(call: Call, state: State) -> None:
    await call("memory_set", key="plan", value="one", expected_version=0)

    assert await call("memory_set", error=True, key="plan", value="two", expected_version=0) == (
        "error: version_conflict: block 'plan' exists already, at version 1 (written by mcp just "
        'now). Read it with memory_get(key="plan"); to change it, write with expected_version=1.\n'
        f"{scope(2)}"
    )
    assert await value_of(state, "plan") == "one"


async def test_expected_version_of_a_block_that_never_was_is_refused(call: Call) -> None:
    assert await call("memory_append", error=True, key="plan", text="x", expected_version=3) == (
        "error: version_conflict: block 'plan' does not exist, so it is not at version 3. "
        "Use expected_version=0 to create it, or leave expected_version out.\n"
        "[acme (from --project) · nothing stored yet]"
    )


async def test_a_deleted_block_counts_as_not_existing_and_keeps_counting_versions(
    state: State,
) -> None:
    await state.memory.set("plan", "one")
    await state.memory.delete("plan", expected_version=1)

    for stale in (1, 2):
        with pytest.raises(VersionConflict, match="does not exist"):
            await state.memory.set("plan", "two", expected_version=stale)
    assert (await state.memory.set("plan", "two", expected_version=0)).version == 3


async def test_expected_version_is_checked_by_append_and_delete_too(state: State) -> None:
    await state.memory.set("plan", "one")

    with pytest.raises(VersionConflict):
        await state.memory.append("plan", " two", expected_version=2)
    with pytest.raises(VersionConflict):
        await state.memory.delete("plan", expected_version=2)
    assert await value_of(state, "plan") == "one"

    assert (await state.memory.append("plan", " two", expected_version=1)).value == "one two"
    assert (await state.memory.delete("plan", expected_version=2)).version == 2


# Limits


async def test_over_the_limit_is_refused_with_size_and_limit_and_the_old_value_stays(
    call: Call, state: State
) -> None:
    await call("memory_set", key="plan", value="x" * 4096)

    assert await call("memory_set", error=True, key="plan", value="y" * 4097) == (
        "error: over_limit: block 'plan' would be 4,097 characters; the limit is 4,096. "
        f"Shorten it, or split it over several keys; nothing was changed.\n{scope(1)}"
    )
    assert await call("memory_append", error=True, key="plan", text="y") == (
        "error: over_limit: block 'plan' would be 4,097 characters; the limit is 4,096. Nothing "
        f"was added. Condense it with memory_set, or append to another key.\n{scope(1)}"
    )
    assert await value_of(state, "plan") == "x" * 4096
    assert await operations(state, "plan") == [("set", 1)]


async def test_the_limit_counts_characters_not_bytes(state: State) -> None:
    assert (await state.memory.set("plan", "𝄞" * 4096)).version == 1
    with pytest.raises(OverLimit):
        await state.memory.set("plan", "𝄞" * 4097)


async def test_what_is_already_over_the_limit_stays_readable_and_can_be_shortened(
    connect: Connect, state: State, path: str
) -> None:
    await state.memory.set("plan", "x")
    with plain(path) as store:
        store.execute("UPDATE memory SET value = ?, version = 2", ("y" * 5000,))

    block = await state.memory.get("plan")
    assert isinstance(block, MemoryBlock)
    assert (block.value, block.version) == ("y" * 5000, 2)
    async with connect() as client:
        text = text_of(await client.call_tool("memory_get", {"key": "plan"}))
        assert text.splitlines()[:2] == [
            "y" * 5000,
            "plan · version 2 · 5000/4096 chars · codex just now",
        ]
    with pytest.raises(OverLimit):
        await state.memory.append("plan", "z")
    assert (await state.memory.set("plan", "short")).version == 3


# Two writers


async def test_appends_of_interleaved_writers_all_survive(open_state: Open) -> None:
    writers = [open_state(agent=f"a{n}", session=f"s{n}", database=str(n % 2)) for n in range(4)]

    await asyncio.gather(
        *(
            writer.memory.append("log", f"{n}.{i} ")
            for i in range(5)
            for n, writer in enumerate(writers)
        )
    )

    block = await writers[0].memory.get("log")
    assert isinstance(block, MemoryBlock)
    assert sorted(block.value.split()) == sorted(f"{n}.{i}" for n in range(4) for i in range(5))
    assert block.version == 20


async def test_of_two_sets_that_expect_the_same_version_one_wins_and_one_is_told(
    open_state: Open,
) -> None:
    one, two = open_state(database="one"), open_state(agent="claude", database="two")
    await one.memory.set("plan", "start")

    results = await asyncio.gather(
        one.memory.set("plan", "one", expected_version=1),
        two.memory.set("plan", "two", expected_version=1),
        return_exceptions=True,
    )

    (winner,) = [r for r in results if isinstance(r, MemoryBlock)]
    (loser,) = [r for r in results if isinstance(r, VersionConflict)]
    assert winner.version == 2
    assert f"is at version 2, not 1 (written by {winner.changed_by.agent}" in str(loser)
    assert await value_of(one, "plan") == winner.value


# Idempotency


async def test_the_same_idempotency_key_adds_once(call: Call, state: State) -> None:
    await call("memory_append", key="log", text="a", idempotency_key="k1")

    assert await call("memory_append", key="LOG", text="a", idempotency_key="k1") == (
        "already added with this idempotency_key; unchanged: "
        f"log · version 1 · 1/4096 chars · mcp just now\n{scope(1)}"
    )
    assert await value_of(state, "log") == "a"
    assert await operations(state, "log") == [("append", 1)]


async def test_the_same_idempotency_key_with_another_text_or_block_is_a_conflict(
    call: Call, state: State
) -> None:
    await call("memory_append", key="log", text="a", idempotency_key="k1")

    assert await call("memory_append", error=True, key="log", text="b", idempotency_key="k1") == (
        "error: conflict: idempotency key 'k1' was used for another append. "
        f"Use a new key for a new text.\n{scope(2)}"
    )
    with pytest.raises(Conflict):
        await state.memory.append("other", "a", idempotency_key="k1")
    assert await value_of(state, "log") == "a"
    assert isinstance(await state.memory.get("other"), MissingBlock)


async def test_a_repeated_append_says_so_even_when_the_block_moved_on_or_was_deleted(
    state: State,
) -> None:
    await state.memory.append("log", "a", idempotency_key="k1")
    await state.memory.append("log", "b")

    again = await state.memory.append("log", "a", idempotency_key="k1", expected_version=0)
    assert (again.value, again.version, again.repeated) == ("ab", 2, True)

    await state.memory.delete("log")
    again = await state.memory.append("log", "a", idempotency_key="k1")
    assert (again.value, again.version, again.repeated, again.current) == ("a", 1, True, False)
    assert isinstance(await state.memory.get("log"), MissingBlock)


async def test_a_refused_append_does_not_use_up_its_idempotency_key(state: State) -> None:
    await state.memory.set("log", "x" * 4095)
    with pytest.raises(OverLimit):
        await state.memory.append("log", "ab", idempotency_key="k1")

    block = await state.memory.append("log", "c", idempotency_key="k1")
    assert (block.repeated, block.value[-2:]) == (False, "xc")


# Expiry


async def test_an_expired_block_says_so_and_when(call: Call, clock: FakeClock) -> None:
    assert await call("memory_set", key="plan", value="one", ttl="20m") == (
        "saved: plan · version 1 · 3/4096 chars · mcp just now · expires in 20 min\n" + scope(1)
    )
    clock.move(minutes=19, seconds=59)
    assert (await call("memory_get", key="plan")).startswith("one\n")

    clock.move(minutes=10, seconds=1)
    assert await call("memory_get", key="plan") == (
        'block "plan" expired 10 min ago; memory_get(key="plan", version=1) still reads its last '
        f"text. There are no blocks now; memory_set makes one.\n{scope(1)}"
    )
    assert (await call("memory_get")).startswith("No blocks yet.")


async def test_a_block_ends_at_the_very_instant_of_its_ttl(state: State, clock: FakeClock) -> None:
    await state.memory.set("plan", "one", ttl="90s")
    clock.move(seconds=89.999999)
    assert await value_of(state, "plan") == "one"
    clock.move(seconds=0.000001)
    assert await value_of(state, "plan") is None


async def test_an_append_keeps_the_ttl_and_a_set_ends_it(state: State, clock: FakeClock) -> None:
    first = await state.memory.set("a", "one", ttl="1h")
    await state.memory.set("b", "one", ttl="1h")
    clock.move(minutes=30)
    assert (await state.memory.append("a", " two")).expires_at == first.expires_at
    assert (await state.memory.set("b", "two")).expires_at is None

    clock.move(minutes=30)
    assert (await value_of(state, "a"), await value_of(state, "b")) == (None, "two")


async def test_after_expiry_a_block_begins_anew_with_the_next_version(
    state: State, clock: FakeClock
) -> None:
    await state.memory.set("a", "old", ttl="1h")
    await state.memory.set("b", "old", ttl="1h")
    clock.move(hours=2)

    with pytest.raises(NotFound, match="no block 'a'"):
        await state.memory.delete("a")
    with pytest.raises(VersionConflict, match="does not exist"):
        await state.memory.set("a", "new", expected_version=1)

    appended = await state.memory.append("a", "new", expected_version=0)
    created = await state.memory.set("b", "new", expected_version=0)
    assert (appended.value, appended.version, appended.expires_at) == ("new", 2, None)
    assert (created.value, created.version, created.expires_at) == ("new", 2, None)


@pytest.mark.parametrize("ttl", ["5", "1h30m", "0s", "-3d", "soon", "9999999d", "3 weeks"])
async def test_a_ttl_that_is_no_duration_is_refused(call: Call, ttl: str) -> None:
    assert await call("memory_set", error=True, key="plan", value="one", ttl=ttl) == (
        f"error: bad_argument: ttl is '{ttl}', which is not a duration from 1s to 36500d. "
        f"Write 90s, 20m, 4h or 3d.\n{EMPTY}"
    )


# Locks


async def test_a_locked_block_refuses_every_tool_that_would_change_it(
    call: Call, state: State
) -> None:
    await call("memory_set", key="plan", value="one")
    locked = await state.memory.lock("PLAN", "the customer\nsigned it off")
    assert (locked.version, locked.locked) == (1, "the customer\nsigned it off")
    refused = (
        "error: locked: block 'plan' was locked by a person: the customer signed it off. "
        "Leave it, or ask for `mcp-state memory unlock plan`."
    )

    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("memory_set", {"value": "two"}),
        ("memory_append", {"text": "two"}),
        ("memory_delete", {}),
        ("memory_restore", {"version": 1}),
    )
    for number, (tool, arguments) in enumerate(calls, 3):
        text = await call(tool, error=True, key="plan", **arguments)
        assert text == f"{refused}\n{scope(number)}"

    assert (await call("memory_get", key="plan")).splitlines()[:2] == [
        "one",
        "plan · version 1 · 3/4096 chars · mcp just now"
        " · locked by a person: the customer signed it off",
    ]
    await state.memory.lock("plan", "")
    assert (await state.memory.set("plan", "two")).version == 2
    assert [operation for operation, _ in await operations(state, "plan")] == [
        "set",
        "lock",
        *["refused"] * 4,
        "unlock",
        "set",
    ]


async def test_a_locked_block_that_expired_is_still_locked_and_can_be_unlocked(
    state: State, clock: FakeClock
) -> None:
    await state.memory.set("plan", "one", ttl="1h")
    await state.memory.lock("plan", "mine")
    clock.move(hours=2)

    with pytest.raises(Locked):
        await state.memory.set("plan", "two")
    await state.memory.lock("plan", "")
    assert (await state.memory.set("plan", "two")).version == 2


async def test_only_a_block_that_exists_can_be_locked(state: State) -> None:
    for reason in ("mine", ""):
        with pytest.raises(NotFound):
            await state.memory.lock("plan", reason)


# Values come back exactly

VALUES = {
    "a number": "123",
    "null": "null",
    "an object": '{"a":1}',
    "a list": "[1]",
    "a quoted text": '"x"',
    "true": "true",
    "spaces around": "  x  ",
    "newlines around": "\n\nx\n",
    "only a newline": "\n",
    "a carriage return": "a\r\nb\rc",
    "tabs": "\ta\tb\t",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 ❤️",
    "right to left": "שלום \u202eabc\u202c مرحبا",
    "decomposed": "Cafe\u0301 A\u030a",
    "composed": "Caf\u00e9 \u00c5",
    "line separators": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "four bytes": "𝄞𐍈\U0010ffff",
    "control characters": "\x01\x1b[31m\x7f\x9b",
    "a byte order mark": "\ufeffx",
    "JSON in a text": '{"key": "\\u0000\\ud800"}',
}


@pytest.mark.parametrize("value", VALUES.values(), ids=list(VALUES))
async def test_a_value_comes_back_exactly(call: Call, state: State, value: str) -> None:
    saved = await call("memory_set", key="plan", value=value)
    assert "note:" not in saved
    assert await value_of(state, "plan") == value
    facts = f"plan · version 1 · {len(value)}/4096 chars · mcp just now"
    assert await call("memory_get", key="plan") == f"{value}\n{facts}\n{scope(1)}"

    await call("memory_append", key="plan", text=value)
    assert await value_of(state, "plan") == value + value


async def test_a_whole_number_for_a_text_is_the_text_of_it(call: Call, state: State) -> None:
    await call("memory_set", key="plan", value=123)
    assert await value_of(state, "plan") == "123"


@pytest.mark.parametrize("value", [1.5, True, ["x"], {"a": 1}])
async def test_anything_else_for_a_text_is_refused(call: Call, value: object) -> None:
    text = await call("memory_set", error=True, key="plan", value=value)
    assert text.startswith("error: bad_argument: value of memory_set is ")
    assert text.endswith(f". It takes text; nothing was done.\n{EMPTY}")


async def test_lone_surrogates_and_nul_become_u_fffd_and_the_answer_says_how_many(
    call: Call, state: State
) -> None:
    text = await call("memory_set", key="pl\ud800an", value="a\0b\udfffc")

    assert text == (
        "saved: pl\ufffdan · version 1 · 5/4096 chars · mcp just now\n"
        "note: 3 characters that cannot be stored became U+FFFD\n"
        f"{scope(1)}"
    )
    assert await value_of(state, "pl\ufffdan") == "a\ufffdb\ufffdc"


async def test_a_lone_surrogate_in_a_refused_call_is_answered_too(client: Client) -> None:
    for arguments in ({"key": "\ud800", "value": ""}, {"key": "k", "v\ud800": "x", "value": "y"}):
        result = await client.call_tool("memory_set", arguments)
        assert result.is_error
        assert "\ufffd" in text_of(result)
        assert "\ud800" not in text_of(result)


async def test_a_repeated_append_of_what_cannot_be_stored_is_the_same_append(state: State) -> None:
    await state.memory.append("log", "a\ud800", idempotency_key="k1")
    assert (await state.memory.append("log", "a\ufffd", idempotency_key="k1")).repeated
    with pytest.raises(Conflict):
        await state.memory.append("log", "a?", idempotency_key="k1")


# Names


async def test_names_are_compared_without_case_after_nfc_and_trimming_and_shown_as_first_written(
    state: State,
) -> None:
    first = await state.memory.set("  Caf\u00e9 Plan\n", "one")
    assert first.key == "Caf\u00e9 Plan"

    for name in ("CAFE\u0301 PLAN", "caf\u00e9 plan", "\tCafe\u0301 plan "):
        block = await state.memory.set(name, name)
        assert block.key == "Caf\u00e9 Plan"
    assert [b.key for b in (await state.memory.blocks()).blocks] == ["Caf\u00e9 Plan"]
    assert (await state.memory.get("STRASSE")).key == "STRASSE"
    await state.memory.set("Straße", "x")
    assert (await state.memory.get("STRASSE")).key == "Straße"


async def test_a_name_has_at_most_128_characters_after_nfc(state: State, call: Call) -> None:
    assert (await state.memory.set("e\u0301" * 128, "x")).key == "\u00e9" * 128

    text = await call("memory_set", error=True, key="k" * 129, value="x")
    assert text == (
        "error: bad_argument: key is 129 characters; a name has at most 128. "
        f"Choose a shorter name and put the text elsewhere.\n{scope(1)}"
    )


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\tb", "a\x1bb", "a\u2028b", "a\x85b", "a\x7fb"])
async def test_control_characters_in_a_name_are_refused(call: Call, bad: str) -> None:
    assert await call("memory_set", error=True, key=bad, value="x") == (
        "error: bad_argument: key has a line break or another control character in it. "
        f"Choose a name of one line.\n{EMPTY}"
    )


async def test_a_name_of_nothing_but_space_is_refused(call: Call) -> None:
    assert await call("memory_set", error=True, key=" \n ", value="x") == (
        f"error: bad_argument: key is empty. Give it a name of 1 to 128 characters.\n{EMPTY}"
    )


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "C:\\x", "~", "a/b", "'; DROP--", "%00", "*"]
)
async def test_a_name_is_never_a_path_or_a_pattern(state: State, name: str) -> None:
    await state.memory.set("other", "y")
    await state.memory.set(name, "x")

    assert [b.key for b in (await state.memory.blocks()).blocks] == sorted([name, "other"])
    assert await value_of(state, name) == "x"


async def test_nothing_of_one_project_shows_in_another(open_state: Open) -> None:
    acme, other = open_state(project="acme"), open_state(project="other")
    await acme.memory.set("plan", "one")

    missing = await other.memory.get("plan")
    assert isinstance(missing, MissingBlock)
    assert (missing.version, missing.keys) == (0, [])
    assert (await other.memory.set("plan", "two", expected_version=0)).version == 1
    with pytest.raises(BadArgument):
        await other.memory.set("plan", "")
    assert await value_of(acme, "plan") == "one"


async def test_a_value_that_begins_like_an_error_is_not_taken_for_one(call: Call) -> None:
    await call("memory_set", key="last", value="error: held: by nobody")
    assert await call("memory_get", key="last") == (
        f"last · version 1 · 22/4096 chars · mcp just now\nerror: held: by nobody\n{scope(1)}"
    )


async def test_a_name_that_looks_like_a_line_of_ours_is_quoted(call: Call) -> None:
    for name in ("[acme · event 9]", "error: held: x", "note: all is well", "plain"):
        await call("memory_set", key=name, value="x")
        await call("thread_set", thread=name)
    for tool in ("memory_get", "thread_list"):
        starts = [line[:7] for line in (await call(tool)).splitlines()[1:-1] if line[0] != " "]
        assert sorted(starts) == [
            '"[acme ',
            '"error:',
            '"note: ',
            "plain ·" if tool == "memory_get" else "plain [",
        ]
