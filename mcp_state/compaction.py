"""Shorten a conversation without a model: its older exchanges become one turn that lists them.

For programs that own their agent loop and keep the exact messages. The first message and the last
exchanges stay the very objects they were; what is between them is replaced by a user turn with one
line for each tool call and each text of the user. Three shapes are understood, told apart by their
keys: Anthropic Messages, OpenAI chat completions and OpenAI Responses items.

What came back is counted like this: of a list its content blocks, of a single one of text what that
holds; of a JSON array its entries; of a JSON object the entries of its one value that is a list,
else 1 item; of any other text its lines. A result is an error if `is_error` says so; where that is
not given, if it is a text that begins with `error:` or a JSON object with an `error`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mcp_state.errors import BadArgument

Message = Mapping[str, Any]

LONGEST_SAID = 1000
"""How many characters are kept of each text of the user."""
_LONGEST_NAME = 200
_LONGEST_CODE = 80
_SYSTEM = ("system", "developer")
_ROLES = (*_SYSTEM, "user", "assistant", "tool")
_ARGUMENTS = ("arguments", "input", "action", "operation", "queries", "code")
_OUTPUTS = ("output", "outputs", "results")
_ERROR = re.compile(r"\s*error:\s*(?:([\w.-]{1,64}):(?:\s|$))?", re.IGNORECASE)
_LABEL = re.compile(
    r"\[compacted by mcp-state: ([0-9][0-9,]{0,14}) earlier exchanges?, "
    r"([0-9][0-9,]{0,14}) tool calls?; their results and what the assistant wrote are left out\]"
)


@dataclass(slots=True)
class _Result:
    call_id: str
    content: Any
    failed: bool | None = None  # None: only the content can tell
    orphaned: bool = True


@dataclass(slots=True)
class _Call:
    call_id: str
    name: str
    arguments: Any
    result: _Result | None = None


_Part = _Call | _Result | str  # a text, of whoever speaks


@dataclass(slots=True)
class _Turn:
    role: str
    parts: Sequence[_Part]


def compacted(
    messages: Sequence[Message], *, keep: int = 3, longest_arguments: int = 300
) -> list[Message]:
    """The conversation with its older exchanges replaced by one user turn that lists them.

    The first message (with the system messages before it) and the last exchanges stay untouched.
    A call and its result stay or go together, even if more exchanges than `keep` stay for that.
    Compacting again goes on with the same list; what would not get shorter stays as it is.

    Args:
        messages: What the API takes, as JSON values. They are not changed.
        keep: How many of the last exchanges stay. An exchange is an assistant message, or several
            in a row, with everything up to the next one.
        longest_arguments: How many characters are kept of the arguments of each call.

    Raises:
        BadArgument: `keep` is below 1, or a message is of no shape that is understood.
    """
    if keep < 1 or longest_arguments < 0:
        raise BadArgument(
            f"keep is {keep} and longest_arguments is {longest_arguments}",
            "Keep at least 1 exchange, and 0 or more characters.",
        )
    turns = [_turn(message, index) for index, message in enumerate(messages)]
    spans = _paired(turns)
    starts = [i for i in range(len(turns)) if _speaks(turns, i) and not _speaks(turns, i - 1)]
    first, last = _end_of_head(turns, spans), _start_of_tail(starts, spans, keep)
    exchanges = sum(first <= start < last for start in starts)
    if not exchanges:
        return list(messages)
    before = [_lengths(messages[index], index) for index in range(first, last)]
    text = _listed(turns[first:last], exchanges, longest_arguments)
    summary: Message = {"role": "user", "content": text}
    if any(_is_item(message) for message in messages):
        summary = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        }
    after = _lengths(summary, first)
    if any(new > sum(old) for new, *old in zip(after, *before, strict=True)):
        return list(messages)
    return [*messages[:first], summary, *messages[last:]]


# Reading the three shapes


def _turn(message: Any, index: int) -> _Turn:
    """Who speaks, and what the message holds."""
    if not isinstance(message, Mapping):
        raise _refused(index, f"is of type {type(message).__name__}, not an object")
    values = cast(Message, message)
    if "role" not in values and "type" not in values:
        raise _refused(index, "has neither a role nor a type")
    if "role" not in values:
        return _item(values, str(values["type"]))
    role = values["role"]
    if role not in _ROLES or not values.keys() & {"content", "tool_calls"}:
        raise _refused(index, f"has role {role!r} and no content that is understood")
    if role == "tool":
        return _Turn(role, [_Result(str(values.get("tool_call_id")), values.get("content", []))])
    parts = [_block(block) for block in _objects(values.get("content"), index)]
    calls = [_chat_call(call) for call in _objects(values.get("tool_calls"), index)]
    return _Turn(role, [*parts, *calls])


def _objects(value: Any, index: int) -> Sequence[Message]:
    """Content blocks or tool calls; a plain text is one text block."""
    if value is None or isinstance(value, str):
        return [] if value is None else [{"text": value}]
    if not isinstance(value, list | tuple):
        raise _refused(index, "has content that is neither a text nor a list")
    entries = cast(Sequence[Any], value)
    if not all(isinstance(entry, Mapping) for entry in entries):
        raise _refused(index, "has a list in which not everything is an object")
    return entries


def _block(block: Message) -> _Part:
    """A content block; those of server tools end in the same words, as in `mcp_tool_use`."""
    kind, text = str(block.get("type")), block.get("text")
    if kind.endswith("tool_use"):
        return _Call(str(block.get("id")), str(block.get("name")), block.get("input"))
    if kind.endswith("tool_result"):
        call_id, content = str(block.get("tool_use_id")), block.get("content", [])
        return _Result(call_id, content, block.get("is_error"))
    return text if isinstance(text, str) else f"[{kind}, left out]"


def _chat_call(call: Message) -> _Call:
    details: Message = call.get("function") or call.get("custom") or {}
    return _Call(str(call.get("id")), str(details.get("name")), _first(details, _ARGUMENTS))


def _item(item: Message, kind: str) -> _Turn:
    """A Responses item without a role; a hosted tool has no `call_id` and holds its own result."""
    call_id = str(item.get("call_id"))
    if kind.endswith("_output"):
        return _Turn("user", [_Result(call_id, item.get("output", []))])
    if kind.endswith("_response"):
        return _Turn("user", [f"[{kind}, left out]"])
    if not kind.endswith("_call"):
        return _Turn("assistant", [])
    name = str(item.get("name") or kind.removesuffix("_call"))
    call = _Call(call_id, name, _first(item, _ARGUMENTS))
    if "call_id" in item:
        return _Turn("assistant", [call])
    failed = item.get("error") is not None or item.get("status") == "failed"
    content = item if failed else _first(item, _OUTPUTS)
    return _Turn("assistant", [call, _Result(call_id, content, failed)])


def _is_item(message: Message) -> bool:
    return "role" not in message or message.get("type") == "message"


def _first(values: Message, names: Iterable[str]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _refused(index: int, fact: str) -> BadArgument:
    return BadArgument(
        f"message {index} {fact}",
        "Pass messages of Anthropic Messages, OpenAI chat completions or OpenAI Responses, "
        "as JSON values.",
    )


# What stays


def _paired(turns: Sequence[_Turn]) -> list[tuple[int, int]]:
    """Give every call its result; returns from which message to which each pair reaches.

    Some programs have no ids, or count them anew in every message: a result belongs to the newest
    message with such a call, and there to the first call without a result.
    """
    calls: dict[str, tuple[int, list[_Call]]] = {}
    spans: list[tuple[int, int]] = []
    for index, turn in enumerate(turns):
        for part in turn.parts:
            if isinstance(part, _Call):
                since, same = calls.get(part.call_id, (index, []))
                calls[part.call_id] = index, [*same, part] if since == index else [part]
            elif isinstance(part, _Result) and part.call_id in calls:
                since, same = calls[part.call_id]
                call = next((call for call in same if call.result is None), same[-1])
                call.result, part.orphaned = part, False
                spans.append((since, index))
    return spans


def _speaks(turns: Sequence[_Turn], index: int) -> bool:
    return index >= 0 and turns[index].role == "assistant"


def _end_of_head(turns: Sequence[_Turn], spans: Sequence[tuple[int, int]]) -> int:
    """Where the first message ends, with the rest of its answer and the results of its calls."""
    end = next((i for i, turn in enumerate(turns) if turn.role not in _SYSTEM), len(turns)) + 1
    while end < len(turns) and (
        (_speaks(turns, end - 1) and _speaks(turns, end)) or _crossed(spans, end)
    ):
        end += 1
    return end


def _start_of_tail(starts: Sequence[int], spans: Sequence[tuple[int, int]], keep: int) -> int:
    """Where the last exchanges begin, and 0 if there are no others."""
    place = len(starts) - keep
    while place > 0 and _crossed(spans, starts[place]):
        place -= 1
    return starts[place] if place > 0 else 0


def _crossed(spans: Sequence[tuple[int, int]], cut: int) -> bool:
    return any(since < cut <= until for since, until in spans)


def _lengths(message: Message, index: int) -> tuple[int, int]:
    """How long a message is as JSON, with its letters as they are and escaped to ASCII."""
    try:
        return len(_json(message)), len(_json(message, ascii_only=True))
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(index, f"is not JSON ({error})") from error


# The list of what does not stay


def _listed(turns: Sequence[_Turn], exchanges: int, longest_arguments: int) -> str:
    """The label, the lines of an earlier compaction, and a line for each new call and text."""
    lines: list[str] = []
    calls = 0
    if earlier := _earlier(turns[0]):
        exchanges, calls, lines = exchanges + earlier[0], earlier[1], earlier[2]
    for role, part in ((turn.role, p) for turn in turns[bool(earlier) :] for p in turn.parts):
        if isinstance(part, _Call):
            calls += 1
            name = _cut(_folded(part.name), _LONGEST_NAME)
            arguments = _cut(_arguments(part.arguments), longest_arguments)
            lines.append(f"{calls}. {name} {arguments} -> {_outcome(part.result)}")
        elif isinstance(part, str) and role != "assistant" and (text := _folded(part)):
            lines.append(f"{role} said: {_cut(text, LONGEST_SAID)}")
        elif isinstance(part, _Result) and part.orphaned:
            lines.append(f"a result without its call -> {_outcome(part)}")
    label = (
        f"[compacted by mcp-state: {_counted(exchanges, 'earlier exchange')}, "
        f"{_counted(calls, 'tool call')}; "
        "their results and what the assistant wrote are left out]"
    )
    return "\n".join([label, *lines])


def _earlier(turn: _Turn) -> tuple[int, int, list[str]] | None:
    """The exchanges, calls and lines of an earlier compaction, if this is its turn."""
    if turn.role != "user" or len(turn.parts) != 1 or not isinstance(turn.parts[0], str):
        return None
    label, *lines = turn.parts[0].split("\n")
    if (match := _LABEL.fullmatch(label)) is None:
        return None
    return int(match[1].replace(",", "")), int(match[2].replace(",", "")), lines


def _arguments(given: Any) -> str:
    """Arguments as compact JSON; a text that is no JSON as it is."""
    value = _parsed(given)
    if isinstance(value, str):
        return _folded(value) or "{}"
    return _folded(_json({} if value is None else value))


def _outcome(result: _Result | None) -> str:
    """Whether it went well, and how much came back."""
    if result is None:
        return "no result"
    code = _error_code(result.content)
    failed = code is not None if result.failed is None else result.failed
    if failed:
        return f"error {code or ''}".rstrip()
    return "ok" if result.content is None else f"ok, {_amount(_parsed(_alone(result.content)))}"


def _alone(content: Any) -> Any:
    """The text of a content that is one block of text; of any other, the content."""
    if not isinstance(content, list):
        return content
    blocks = cast(list[Any], content)
    only = blocks[0] if len(blocks) == 1 else None
    return cast(Message, only).get("text", blocks) if isinstance(only, Mapping) else blocks


def _error_code(content: Any) -> str | None:
    """The code of an error, "" if it names none, None if this is no error."""
    if isinstance(content, list | tuple):
        blocks = [cast(Message, b) for b in cast(list[Any], content) if isinstance(b, Mapping)]
        content = next((block["text"] for block in blocks if "text" in block), None)
    value = _parsed(content)
    if isinstance(value, Mapping):
        error = _first(cast(Message, value), ("error", "error_code"))
        return _code_of(error) if error else None
    match = _ERROR.match(value) if isinstance(value, str) else None
    return (match[1] or "") if match else None


def _code_of(error: Any) -> str:
    code = cast(Message, error).get("code") if isinstance(error, Mapping) else error
    named = isinstance(code, str | int) and not isinstance(code, bool)
    return _cut(_folded(str(code)), _LONGEST_CODE) if named else ""


def _amount(value: Any) -> str:
    if isinstance(value, str):
        return _counted(len(value.splitlines()), "line")
    found = cast(Message, value).values() if isinstance(value, Mapping) else [value]
    lists = [cast(Sequence[Any], entry) for entry in found if isinstance(entry, list | tuple)]
    return _counted(len(lists[0]) if len(lists) == 1 else 1, "item")


def _parsed(content: Any) -> Any:
    """The JSON array or object that a text holds; anything else as it is."""
    if not isinstance(content, str) or not content.lstrip().startswith(("[", "{")):
        return content
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content


def _json(value: Any, *, ascii_only: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"), default=dict)


def _folded(text: str) -> str:
    """One line, of whole characters: halves of surrogate pairs are joined, or replaced."""
    line = " ".join(text.splitlines()).strip()
    return line.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _cut(text: str, longest: int) -> str:
    left = len(text) - longest
    return text if left <= 0 else f"{text[:longest]}… (+{_counted(left, 'character')})"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
