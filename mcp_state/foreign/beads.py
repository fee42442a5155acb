"""The issues of beads (`bd`), as `.beads/issues.jsonl` or `bd export` writes them.

An issue becomes a thread of its id, a comment an entry of the journal, and what `bd remember` kept
a memory block. An issue waits for what blocks it, and an epic for its parts.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from mcp_state.foreign.files import Json, as_text, file_in, file_of, items_in, json_lines, text_in
from mcp_state.foreign.records import Block, Entry, Source, Task, as_name, distinct
from mcp_state.foreign.words import (
    criteria_for,
    criteria_in,
    fact,
    origin,
    sections,
    status_of,
)
from mcp_state.models import Status
from mcp_state.store.text import one_line

NAME = "beads"
_FILES = ("issues.jsonl", "beads.jsonl")
_BLOCKING = ("blocks", "waits-for")
_TOLD = frozenset((
    *("_type", "id", "title", "description", "design", "acceptance_criteria", "notes", "status"),
    *("priority", "issue_type", "assignee", "created_at", "created_by", "updated_at", "closed_at"),
    *("close_reason", "labels", "dependencies", "comments", "owner"),
))  # fmt: skip
_OF_THEIR_STORE = frozenset((
    *("content_hash", "source_repo", "compaction_level", "compacted_at", "compacted_at_commit"),
    *("original_size", "dependency_count", "dependent_count", "comment_count", "notes_preview"),
    *("parent", "lease_expires_at", "heartbeat_at", "crystallizes", "timeout_ns"),
))  # fmt: skip
_NO_WORK = {
    "message": "it is a message, not work",
    "event": "it is an event, not work",
}


def is_in(folder: str) -> bool:
    """Whether a folder holds issues of beads."""
    return file_in(folder, _places(folder)) != ""


def suits(first: Json) -> bool:
    """Whether the first line of a file looks like an issue of beads."""
    if first.get("_type") in ("issue", "memory"):
        return True
    return {"id", "title", "created_at"} <= first.keys() and bool(
        {"status", "issue_type", "priority"} & first.keys()
    )


def _places(folder: str) -> Sequence[str]:
    is_theirs = os.path.basename(os.path.abspath(folder)) == ".beads"
    return [*(os.path.join(".beads", name) for name in _FILES), *(_FILES if is_theirs else ())]


def read(path: str) -> Source:
    """All issues, comments and memories of an export."""
    path = file_of(path, _places(path))
    source = Source(NAME, path)
    issues: dict[str, tuple[str, Json]] = {}
    for place, item in json_lines(source, path):
        if item.get("_type") == "memory":
            key, value = as_text(item.get("key")), as_text(item.get("value"))
            if key and value:
                source.blocks.append(Block(place, as_name(key), value))
            else:
                source.leave(place, "a memory", "it has no key or no value")
        elif why := _why_not(item, issues):
            source.leave(place, as_text(item.get("id")) or "a line", why)
        else:
            issues[item["id"]] = (place, item)
    parts: Mapping[str, list[str]] = defaultdict(list)
    for _, item in issues.values():
        for kind, needed in _links(item):
            if kind == "parent-child":
                parts[needed].append(as_name(item["id"]))
    for name, (place, item) in issues.items():
        source.tasks.append(_task(place, item, parts.get(name, []), issues))
        source.entries += _comments(place, item)
    return source


def _why_not(item: Json, issues: Mapping[str, object]) -> str:
    if not isinstance(item.get("id"), str) or not item["id"].strip():
        return "it has no id"
    if not isinstance(item.get("title"), str) or not item["title"].strip():
        return "it has no title"
    if item["id"] in issues:
        return "an issue of this id stands above it"
    if item.get("status") == "tombstone":
        return f"it was deleted in beads{_on(text_in(item, 'deleted_at'))}"
    if item.get("is_template") or item.get("ephemeral"):
        return "it is a template" if item.get("is_template") else "it is ephemeral"
    return _NO_WORK.get(as_text(item.get("issue_type")), "")


def _links(item: Json) -> Iterator[tuple[str, str]]:
    for link in items_in(item, "dependencies"):
        match link:
            case {"depends_on_id": str(needed)} if needed.strip():
                yield as_text(cast(Json, link).get("type")) or "blocks", needed
            case _:
                pass


def _task(place: str, item: Json, parts: list[str], issues: Mapping[str, tuple[str, Json]]) -> Task:
    name, word = as_name(item["id"]), as_text(item.get("status")) or "open"
    status, waiting_on = status_of(word)
    links = list(_links(item))
    needs = [as_name(needed) for kind, needed in links if kind in _BLOCKING]
    closed = text_in(item, "closed_at")
    evidence = ""
    if status is Status.DONE:
        reason = as_text(item.get("close_reason")) or "no reason given"
        evidence = f"closed in beads{_on(closed)}: {one_line(reason, 1500)}"
    elif status is Status.BLOCKED:
        open_needs = (n for n in needs if n in issues and not _closed(issues[n][1]))
        waiting_on = ", ".join(open_needs) or "what beads does not say"
    accepted = as_text(item.get("acceptance_criteria"))
    criteria = criteria_for(status, criteria_in(accepted) if accepted else ())
    return Task(
        place,
        name,
        item["title"],
        status,
        _origin(item, word, links),
        _body(item, "" if criteria else accepted),
        evidence,
        one_line(waiting_on, 1000),
        text_in(item, "defer_until"),
        _priority(item.get("priority")),
        needs,
        parts,
        criteria,
    )


def _closed(item: Json) -> bool:
    return item.get("status") == "closed"


def _priority(value: object) -> int:
    """0 to 4 there, 1 to 9 here; left out, it was written as 0 by some versions."""
    number = value if isinstance(value, int) else 0
    return 1 + 2 * min(max(number, 0), 4)


def _origin(item: Json, word: str, links: list[tuple[str, str]]) -> str:
    kind = as_text(item.get("issue_type")) or "task"
    created = f"{as_text(item.get('created_at'))} {fact('by', as_text(item.get('created_by')))}"
    others = (f"{kind} {name}" for kind, name in links if kind not in _BLOCKING)
    return origin(
        NAME,
        item["id"],
        f"{kind}, {word}",
        fact("created", created.strip()),
        fact("changed", as_text(item.get("updated_at"))),
        fact("closed", as_text(item.get("closed_at"))),
        fact("assignee", as_text(item.get("assignee"))),
        fact("owner", as_text(item.get("owner"))),
        fact("labels", ", ".join(map(as_text, items_in(item, "labels")))),
        *others,
    )


def _body(item: Json, accepted: str) -> str:
    known = _TOLD | _OF_THEIR_STORE
    others = ((key, as_text(item[key])) for key in item if key not in known)
    return sections(
        (
            ("", as_text(item.get("description"))),
            ("Design", as_text(item.get("design"))),
            ("Acceptance criteria", accepted),
            ("Notes", as_text(item.get("notes"))),
            (
                "Also",
                "\n".join(f"{key}: {said}" for key, said in others if said not in ("", "0", "{}")),
            ),
        )
    )


def _comments(place: str, item: Json) -> Iterator[Entry]:
    for comment in items_in(item, "comments"):
        match comment:
            case {"text": str(text)} if text.strip():
                told = cast(Json, comment)
                when, who = as_text(told.get("created_at")), as_text(told.get("author"))
                head = " ".join(filter(None, [when, who, f"in beads, on {item['id']}"]))
                key = distinct(NAME, item["id"], as_text(told.get("id")), when, who, text)
                yield Entry(place, f"{head}:\n{text}", key, "comment", as_name(item["id"]))
            case _:
                pass


def _on(when: str) -> str:
    return f" on {when}" if when else ""
