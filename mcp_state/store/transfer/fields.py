"""What each line of an export holds: its fields, and what each of them has to be."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

from mcp_state import lookups
from mcp_state.errors import BadArgument
from mcp_state.git import GitState
from mcp_state.record import record
from mcp_state.store.events import KINDS as KINDS_OF_EVENTS
from mcp_state.store.text import LONGEST_NAME, WITHIN, tidy_name
from mcp_state.times import from_text

MAGIC = "mcp_state_export"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


@record
class Field:
    """What a value has to be, in words, and what it leads to outside of its line."""

    what: str
    fits: Callable[[Any], bool]
    means: Literal["", "thread", "run", "event", "actor", "flag", "json"] = ""
    optional: bool = False


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_name(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(tidy_name(value, "name"))
    except BadArgument:
        return False


def _is_inner_name(value: object) -> bool:
    return isinstance(value, str) and WITHIN not in value


def _is_reference(value: object) -> bool:
    return value != "" and _is_inner_name(value)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def is_format(value: object) -> bool:
    """Whether this can be the number of a format, of ours or of a later one."""
    return _is_number(value) and value != 0


def _is_time(value: object) -> bool:
    if not isinstance(value, str) or _TIME.fullmatch(value) is None:
        return False
    try:
        return bool(from_text(value))
    except ValueError:
        return False


ACTOR = ("agent", "client", "session", "worktree")
Line = Mapping[str, Any]
_PLACE = frozenset({"path_or_repo", "role", "note"})
_GIT = frozenset(field.name for field in dataclasses.fields(GitState))


def _is_actor(value: object) -> bool:
    return _is_object(value, frozenset(ACTOR)) and _has_texts(value)


def _is_place(value: object) -> bool:
    return _is_object(value, _PLACE) and _has_texts(value)


def _is_git(value: object) -> bool:
    if not _is_object(value, _GIT):
        return False
    git = dict(cast(Line, value))
    count, dirty = git.pop("dirty_count"), git.pop("dirty")
    return (count is None or _is_number(count)) and _is_list_of(dirty, _is_text) and _has_texts(git)


def _has_texts(value: object) -> bool:
    return all(isinstance(text, str) for text in cast(Line, value).values())


def _is_object(value: object, keys: frozenset[str] | None = None) -> bool:
    return isinstance(value, dict) and keys in (None, cast(Line, value).keys())


def _is_list_of(value: object, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(fits(item) for item in cast(list[Any], value))


def _is_reason(value: object) -> bool:
    return value != [] and _is_list_of(value, _is_reference)


def _is_numbers(value: object) -> bool:
    return _is_list_of(value, _is_number)


def _is_baseline(value: object) -> bool:
    try:
        return bool(lookups.from_json(json.dumps(value)))
    except (ValueError, TypeError):
        return False


_TEXT = Field("a text", _is_text)
_NAME = Field(f"a name of at most {LONGEST_NAME} characters in one line", _is_name)
_KEY = Field("a key", _is_reference)
_NUMBER = Field("a whole number", _is_number)
_FLAG = Field("true or false", lambda value: type(value) is bool, "flag")
_TIME_OF = Field("a time in UTC with six decimals", _is_time)
_EVENT = Field("the number of an event", lambda value: _is_number(value) and value > 0, "event")
_BY = Field(f"an object of {', '.join(ACTOR)}", _is_actor, "actor")
_THREAD = Field("the name of a thread", _is_reference, "thread")
_RUN = Field("the name of a run", _is_reference, "run")
_SOME_THREAD = replace(_THREAD, what="the name of a thread or empty", fits=_is_inner_name)
_SOME_RUN = replace(_RUN, what="the name of a run or empty", fits=_is_inner_name)
_MESSAGE = Field("an object or its text", lambda v: _is_text(v) or _is_object(v))


def _maybe(field: Field) -> Field:
    return replace(field, what=f"{field.what} or null", optional=True)


FIELDS: Mapping[str, Mapping[str, Field]] = {
    "thread": {
        "name": _NAME,
        "created": _EVENT,
        "created_at": _TIME_OF,
        "title": _TEXT,
        "status": _TEXT,
        "status_at": _TIME_OF,
        "changed": _EVENT,
        "changed_at": _TIME_OF,
        "changed_by": _BY,
        "version": _NUMBER,
        "priority": _NUMBER,
        "next_action": _TEXT,
        "waiting_on": _TEXT,
        "recheck_at": _maybe(_TIME_OF),
        "check": _TEXT,
        "evidence": _TEXT,
        "note": _TEXT,
        "places": Field("a list of places", lambda value: _is_list_of(value, _is_place), "json"),
        "depends_on": Field(
            "a list of threads", lambda value: _is_list_of(value, _is_reference), "json"
        ),
        "relies_on": Field(
            "a list of facts", lambda value: _is_list_of(value, _is_reference), "json"
        ),
        "uses": _NUMBER,
    },
    "criterion": {
        "thread": _THREAD,
        "number": _NUMBER,
        "text": _TEXT,
        "passes": _FLAG,
        "evidence": _TEXT,
        "checked_at": _maybe(_TIME_OF),
        "checked_by": _maybe(_BY),
    },
    "run": {
        "name": _NAME,
        "created": _EVENT,
        "created_at": _TIME_OF,
        "changed": _EVENT,
        "changed_at": _TIME_OF,
        "changed_by": _BY,
        "version": _NUMBER,
        "touched": _EVENT,
        "touched_at": _TIME_OF,
        "touched_by": _BY,
        "status": _TEXT,
        "goal": _TEXT,
        "expected_outcome": _TEXT,
        "thread": _SOME_THREAD,
        "max_attempts": _maybe(_NUMBER),
        "max_minutes": _maybe(_NUMBER),
        "max_tokens": _maybe(_NUMBER),
        "stopped": _TEXT,
        "finished_at": _maybe(_TIME_OF),
        "result": _TEXT,
        "evidence": _TEXT,
        "reflection": _TEXT,
        "uses": _NUMBER,
    },
    "checkpoint": {
        "run": _RUN,
        "number": _NUMBER,
        "seq": _EVENT,
        "at": _TIME_OF,
        "actor": _BY,
        "state": _TEXT,
        "next_action": _TEXT,
        "done": _maybe(_NUMBER),
        "total": _maybe(_NUMBER),
        "git": Field("what git said", _is_git, "json"),
    },
    "step": {
        "run": _RUN,
        "name": _NAME,
        "created": _EVENT,
        "changed": _EVENT,
        "changed_at": _TIME_OF,
        "changed_by": _BY,
        "status": _TEXT,
        "input": _TEXT,
        "result": _TEXT,
        "outcome": _TEXT,
        "streak": _NUMBER,
        "stopped": _FLAG,
    },
    "attempt": {
        "run": _RUN,
        "step": _KEY,
        "number": _NUMBER,
        "begun": _EVENT,
        "begun_at": _TIME_OF,
        "begun_by": _BY,
        "input": _TEXT,
        "ended": _maybe(_EVENT),
        "ended_at": _maybe(_TIME_OF),
        "ended_by": _maybe(_BY),
        "ok": _maybe(_FLAG),
        "result": _maybe(_TEXT),
        "tokens_in": _NUMBER,
        "tokens_out": _NUMBER,
    },
    "message": {"run": _RUN, "number": _NUMBER, "seq": _EVENT, "message": _MESSAGE},
    "memory": {
        "run": _SOME_RUN,
        "name": _NAME,
        "value": _maybe(_TEXT),
        "version": _NUMBER,
        "changed": _EVENT,
        "changed_at": _TIME_OF,
        "changed_by": _BY,
        "expires_at": _maybe(_TIME_OF),
        "locked": _TEXT,
        "uses": _NUMBER,
    },
    "journal": {
        "seq": _EVENT,
        "id": _KEY,
        "at": _TIME_OF,
        "actor": _BY,
        "kind": _TEXT,
        "thread": _SOME_THREAD,
        "run": _SOME_RUN,
        "text": _TEXT,
    },
    "blob": {
        "key": _KEY,
        "sha256": _TEXT,
        "bytes": _NUMBER,
        "characters": _NUMBER,
        "created": _EVENT,
        "created_at": _TIME_OF,
        "changed": _EVENT,
        "changed_at": _TIME_OF,
        "changed_by": _BY,
        "version": _NUMBER,
        "summary": _TEXT,
        "expires_at": _maybe(_TIME_OF),
        "uses": _NUMBER,
        "text": _TEXT,
    },
    "handoff": {
        "key": _KEY,
        "created": _EVENT,
        "created_at": _TIME_OF,
        "created_by": _BY,
        "recipient": _TEXT,
        "note": _TEXT,
        "exported_at": _maybe(_TIME_OF),
        "accepted_at": _maybe(_TIME_OF),
        "accepted_by": _maybe(_BY),
    },
    "fact": {
        "name": _NAME,
        "created": _EVENT,
        "created_at": _TIME_OF,
        "changed": _EVENT,
        "changed_at": _TIME_OF,
        "changed_by": _BY,
        "version": _NUMBER,
        "statement": _TEXT,
        "stated": _EVENT,
        "stated_at": _TIME_OF,
        "stated_by": _BY,
        "replaces": _TEXT,
        "check": _TEXT,
        "source": _TEXT,
        "trust": _TEXT,
        "trust_at": _TIME_OF,
        "recheck_after": _NUMBER,
        "recheck_at": _maybe(_TIME_OF),
        "verified": _maybe(_EVENT),
        "verified_at": _maybe(_TIME_OF),
        "verified_by": _maybe(_BY),
        "held": _maybe(_FLAG),
        "evidence": _TEXT,
        "baseline": _maybe(Field("what an address led to", _is_baseline, "json")),
        "reasons": Field(
            "a list of lists of facts", lambda value: _is_list_of(value, _is_reason), "json"
        ),
        "given": Field(
            "a list of lists of numbers", lambda value: _is_list_of(value, _is_numbers), "json"
        ),
        "uses": _NUMBER,
    },
    "objective": {
        "name": _NAME,
        "created": _EVENT,
        "created_at": _TIME_OF,
        "changed": _EVENT,
        "changed_at": _TIME_OF,
        "changed_by": _BY,
        "version": _NUMBER,
        "objective": _TEXT,
        "intent": _TEXT,
        "reason": _TEXT,
    },
    "idempotency": {"operation": _TEXT, "key": _TEXT, "digest": _TEXT, "seq": _NUMBER},
}
"""What there is besides events, in the order of the file. Columns that triggers count are left out;
`uses` is how often search saw it written or referred to. `given` holds, for each premise in
`reasons`, the event with which it was given, or 0 for one that was given for another statement."""

SINCE_2: Mapping[str, Mapping[str, Any]] = {"thread": {"relies_on": []}}
"""What lines have since the second format, and what it means that the first one has it not."""
_OF_1: Mapping[str, Mapping[str, Field]] = {
    kind: {key: field for key, field in fields.items() if key not in SINCE_2.get(kind, ())}
    for kind, fields in FIELDS.items()
    if kind not in ("fact", "objective")
}


def fields_of(number: int) -> Mapping[str, Mapping[str, Field]]:
    """What there is besides events in a file of this format."""
    return FIELDS if number > 1 else _OF_1


EVENT: Mapping[str, Field] = {
    "event": _EVENT,
    "at": _TIME_OF,
    "agent": _TEXT,
    "client": _TEXT,
    "session": _TEXT,
    "worktree": _TEXT,
    "run": Field("a name or empty", _is_inner_name),
    "kind": Field("a kind of event", lambda value: value in KINDS_OF_EVENTS),
    "name": Field("a name or empty", _is_inner_name),
    "operation": _TEXT,
    "summary": _TEXT,
    "version": _maybe(_NUMBER),
    "row": _maybe(Field("an object", _is_object)),
}
EVENT_WITHIN: Mapping[str, Field] = {**EVENT, "within": _RUN}
HEADER: Mapping[str, Field] = {
    MAGIC: Field("a number", is_format),
    "project": _NAME,
    "events": _NUMBER,
    "at": _TIME_OF,
    "version": _TEXT,
}
END: Mapping[str, Field] = {"sha256": _TEXT, "lines": _NUMBER}
HEADER_OF_HANDOFF: Mapping[str, Field] = {**HEADER, "handoff": _KEY}
