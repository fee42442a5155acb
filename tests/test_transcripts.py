from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from conftest import Open
from hypothesis import given, settings
from hypothesis import strategies as st
from soaking import examples
from workload import Nouns, opened

from mcp_state.api import State
from mcp_state.errors import (
    BadArgument,
    IllegalTransition,
    NotFound,
    SecretRefused,
    VersionConflict,
)
from mcp_state.store.transcripts import Message, Transcripts

FIRST: Message = {"role": "user", "content": "Reindex the archive"}
LAST = 6


class FakeModel:
    """A model that asks for one tool after the other, then says it is done; counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def reply(self, messages: Sequence[Message]) -> Message:
        self.calls += 1
        number = sum(m["role"] == "assistant" for m in messages) + 1
        if number == LAST:
            return {"role": "assistant", "content": [{"type": "text", "text": "all done"}]}
        use = {"type": "tool_use", "id": f"t{number}", "name": "index", "input": {"item": number}}
        return {"role": "assistant", "content": [use]}


class KilledError(Exception):
    """The process died here."""


def use_tool(reply: Message) -> Message | None:
    """What a tool returns, in the same shape as the API wants it; None if none was asked for."""
    uses = [block for block in reply["content"] if block["type"] == "tool_use"]
    if not uses:
        return None
    results = [
        {"type": "tool_result", "tool_use_id": u["id"], "content": f"indexed {u['input']['item']}"}
        for u in uses
    ]
    return {"role": "user", "content": results}


async def agent_loop(state: State, model: FakeModel, killed_after: int = 99) -> list[Message]:
    """An agent loop as a program would write it; it dies after so many steps."""
    await state.runs.begin("Reindex the archive", run="reindex")
    messages: list[Message] = [*await state.transcripts.messages("reindex")]
    if not messages:
        await state.transcripts.append("reindex", FIRST, expected=0)
        messages = [FIRST]
    for step in range(LAST):
        if step == killed_after:
            raise KilledError
        reply = model.reply(messages)
        result = use_tool(reply)
        exchange = [reply] if result is None else [reply, result]
        await state.transcripts.append("reindex", *exchange, expected=len(messages))
        messages += exchange
        if result is None:
            return messages
    raise AssertionError("the model never came to an end")


async def test_a_loop_that_was_killed_between_steps_goes_on_with_one_further_model_call(
    open_state: Open,
) -> None:
    whole = await agent_loop(open_state(project="unharmed"), FakeModel())
    before, after = FakeModel(), FakeModel()
    with pytest.raises(KilledError):
        await agent_loop(open_state(session="s1"), before, killed_after=LAST - 1)
    resumed = await agent_loop(open_state(session="s2", database="two"), after)
    assert (before.calls, after.calls) == (LAST - 1, 1)
    assert resumed == whole
    assert await open_state().transcripts.messages("reindex") == whole


@pytest.mark.parametrize("killed_after", range(LAST))
async def test_wherever_it_is_killed_no_model_call_is_made_twice(
    open_state: Open, killed_after: int
) -> None:
    before, after = FakeModel(), FakeModel()
    with pytest.raises(KilledError):
        await agent_loop(open_state(session="s1"), before, killed_after)
    await agent_loop(open_state(session="s2"), after)
    assert (before.calls, after.calls) == (killed_after, LAST - killed_after)


async def test_two_loops_on_one_run_cannot_mix_their_messages(open_state: Open) -> None:
    one, two = open_state(session="s1"), open_state(session="s2", database="two")
    await one.runs.begin("x", run="reindex")
    await one.transcripts.append("reindex", FIRST, expected=0)
    await two.transcripts.append("reindex", {"role": "assistant", "content": "a"}, expected=1)
    with pytest.raises(VersionConflict, match="of run 'reindex' has 2 messages, not 1"):
        await one.transcripts.append("reindex", {"role": "assistant", "content": "b"}, expected=1)
    assert [m["content"] for m in await one.transcripts.messages("reindex")] == [
        FIRST["content"],
        "a",
    ]


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("transcripts")


@settings(max_examples=examples(40))
@given(messages=st.lists(st.dictionaries(st.text(), JSON, max_size=4), min_size=1, max_size=4))
async def test_what_was_appended_comes_back_equal(
    stores: Any, messages: list[dict[str, Any]]
) -> None:
    async with opened(stores / "state.db") as database:
        nouns = Nouns(database, f"p{id(messages)}", "codex")
        transcripts = Transcripts(database, nouns.caller)
        run = (await nouns.runs.begin("x")).name
        await transcripts.append(run, *messages)
        assert await transcripts.messages(run) == messages


async def test_json_text_comes_back_byte_for_byte(state: State) -> None:
    await state.runs.begin("x", run="r")
    text = '{ "role":"user",\n\t"content": "caf\u00e9 \\u00e9 \U0001f600 1.0 1e5", "n":1.50}'
    await state.transcripts.append("r", text, {"b": 1, "a": [1.0, "\ud800"]})
    assert await state.transcripts.texts("r") == [text, '{"b":1,"a":[1.0,"\\ud800"]}']


@pytest.mark.parametrize(
    "message",
    [
        "",
        "no json",
        "[]",
        '"text"',
        "1",
        '{"a": "\ud800"}',
        "[" * 100_000,
        {"a": float("nan")},
        {"a": object()},
        {"a": b"bytes"},
        [1],
    ],
)
async def test_what_is_no_json_object_is_refused_and_nothing_is_kept(
    state: State, message: Any
) -> None:
    await state.runs.begin("x", run="r")
    with pytest.raises(BadArgument, match="message 1 is no JSON"):
        await state.transcripts.append("r", FIRST, message)
    assert await state.transcripts.messages("r") == []


async def test_messages_need_a_run_that_is_open(state: State) -> None:
    with pytest.raises(NotFound):
        await state.transcripts.append("r", FIRST)
    with pytest.raises(NotFound):
        await state.transcripts.messages("r")
    await state.runs.begin("x", run="r")
    with pytest.raises(BadArgument, match="there is no message"):
        await state.transcripts.append("r")
    await state.transcripts.append("r", FIRST)
    await state.runs.finish("r", "completed", result="done", evidence="pytest: exit 0")
    with pytest.raises(IllegalTransition):
        await state.transcripts.append("r", FIRST)
    assert await state.transcripts.messages("r") == [FIRST]


async def test_events_hold_hash_and_size_and_never_the_text(state: State) -> None:
    await state.runs.begin("x", run="R")
    await state.transcripts.append("r", '{"a":"one"}', '{"a":"two"}')
    await state.transcripts.append("r", '{"a":"three"}')
    events = (await state.events.history("transcript:r")).events
    assert [(e.operation, e.summary, e.run) for e in events] == [
        ("append", "messages 1 to 2, 23 bytes", "r"),
        ("append", "messages 3 to 3, 13 bytes", "r"),
    ]
    assert [dict(e.row or {}) for e in events] == [
        {
            "first": 1,
            "last": 2,
            "bytes": 23,
            "sha256": hashlib.sha256(b'{"a":"one"}\n{"a":"two"}').hexdigest(),
        },
        {
            "first": 3,
            "last": 3,
            "bytes": 13,
            "sha256": hashlib.sha256(b'{"a":"three"}').hexdigest(),
        },
    ]


async def test_a_credential_in_a_message_is_refused(state: State) -> None:
    await state.runs.begin("x", run="r")
    with pytest.raises(SecretRefused, match="message 1 holds what looks like a GitHub token"):
        await state.transcripts.append("r", FIRST, {"role": "user", "content": "ghp_" + "a" * 36})
    assert await state.transcripts.messages("r") == []


async def test_a_compacted_transcript_keeps_the_first_and_the_last_and_names_each_call(
    state: State,
) -> None:
    whole = await agent_loop(state, FakeModel())
    short = await state.transcripts.compacted("reindex", keep=2)
    assert short[0] == FIRST
    assert short[2:] == whole[-3:]
    told = json.dumps(short[1])
    for number in range(1, LAST - 1):
        assert told.count(f'index {{\\"item\\":{number}}} -> ok') == 1
    assert await state.transcripts.messages("reindex") == whole
    assert await state.transcripts.compacted("reindex", keep=2) == short
