"""The tasks of Backlog.md: a folder of Markdown files with front matter.

A task becomes a thread of its id, which waits for what it depends on and for its subtasks. What
lies in `completed` is done, what lies in `archive` was dropped. Documents, decisions and milestones
become memory blocks.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mcp_state.foreign import front_matter, notes
from mcp_state.foreign.files import LONGEST_TEXT, Unreadable, file_in, read_text, walk
from mcp_state.foreign.front_matter import Malformed, Value
from mcp_state.foreign.records import Criterion, Source, Task, as_name
from mcp_state.foreign.words import (
    criteria_for,
    criteria_in,
    fact,
    origin,
    priority_of,
    sections,
    status_of,
)
from mcp_state.models import Status
from mcp_state.store.text import one_line

NAME = "backlog"
_FOLDERS = ("tasks", "completed", "archive", "drafts")
_CONFIG = ("config.yml", "config.yaml", "backlog.config.yml")
_TEXTS = ("docs", "decisions", "milestones")
_TOLD = frozenset((
    *("id", "title", "status", "assignee", "created_date", "updated_date", "labels", "priority"),
    *("dependencies", "parent_task_id", "milestone", "type", "due_date", "ordinal"),
))  # fmt: skip
_MARKER = re.compile(r"<!-- (?:SECTION:\w+|AC|DOD|COMMENTS):(?:BEGIN|END) -->[ \t]*\n?")
_CRITERIA = ("AC", "DOD")
_SUMMARY = "SECTION:FINAL_SUMMARY"


def is_in(folder: str) -> bool:
    """Whether a folder is that of Backlog.md, or holds one."""
    return _folder(folder) != ""


def _folder(path: str) -> str:
    for inside in ("", "backlog", ".backlog"):
        folder = os.path.join(path, inside) if inside else path
        tasks = os.path.isdir(os.path.join(folder, "tasks"))
        if tasks and file_in(path, [os.path.join(inside, name) for name in _CONFIG]):
            return folder
    return ""


def read(path: str) -> Source:
    """All tasks, drafts, documents, decisions and milestones."""
    folder = _folder(path) or path
    source = Source(NAME, folder)
    last = _last_status(folder)
    found: list[tuple[Task, str]] = []
    for where in _FOLDERS:
        for inside, file in walk(source, os.path.join(folder, where)):
            place = f"{where}/{inside}"
            try:
                found.append(_task(place, where, file, last))
            except (Unreadable, Malformed) as problem:
                source.leave(place, "a task", str(problem))
    parts: Mapping[str, list[str]] = defaultdict(list)
    for task, parent in found:
        if parent:
            parts[parent.casefold()].append(task.name)
    source.tasks = [replace(task, parts=parts.get(task.name.casefold(), ())) for task, _ in found]
    for where in _TEXTS:
        notes.add(source, os.path.join(folder, where), f"{where}/")
    return source


def _last_status(folder: str) -> str:
    """The status that the configuration lists last: it means done, whatever it is called."""
    try:
        said = front_matter.parse(read_text(file_in(folder, _CONFIG), LONGEST_TEXT))
    except (Unreadable, Malformed):
        return ""
    statuses = _several(said.get("statuses", ()))
    return statuses[-1] if statuses else ""


def _task(place: str, where: str, file: str, last: str) -> tuple[Task, str]:
    """A task, and the id of the one that it is a part of.

    Raises:
        Malformed: its front matter is not read here, or has no id or title.
        Unreadable: the file can't be read.
    """
    head, text = front_matter.split(read_text(file, LONGEST_TEXT))
    said = front_matter.parse(head)
    number, title = _one(said, "id"), _one(said, "title")
    if not number or not title:
        raise Malformed("it has no id or no title")
    word = _one(said, "status")
    status, waiting_on = status_of(word)
    if where == "completed" or (last and word.casefold() == last.casefold()):
        status, waiting_on = Status.DONE, ""
    elif where == "archive":
        status, waiting_on = Status.DROPPED, ""
    elif where == "drafts":
        status, waiting_on = Status.WATCHING, ""
    if status is not Status.BLOCKED:
        waiting_on = ""
    elif not waiting_on:
        waiting_on = ", ".join(_several(said.get("dependencies", ()))) or "what it does not say"
    found = _criteria(text)
    criteria = criteria_for(status, found)
    others = ((key, ", ".join(_several(said[key]))) for key in said if key not in _TOLD)
    body = _body(text, with_criteria=len(criteria) < len(found))
    also = "\n".join(f"{key}: {value}" for key, value in others if value)
    task = Task(
        place,
        as_name(number),
        title,
        status,
        _origin(said, number, word, where),
        sections((("", body), ("Also", also))),
        _evidence(said, text, word, where),
        waiting_on,
        "",
        priority_of(_one(said, "priority")),
        [as_name(needed) for needed in _several(said.get("dependencies", ()))],
        (),
        criteria,
    )
    return task, as_name(_one(said, "parent_task_id"))


def _origin(said: Mapping[str, Value], number: str, word: str, where: str) -> str:
    return origin(
        "Backlog.md",
        number,
        word,
        "" if where == "tasks" else f"in {where}",
        fact("created", _one(said, "created_date")),
        fact("changed", _one(said, "updated_date")),
        fact("due", _one(said, "due_date")),
        fact("assignee", ", ".join(_several(said.get("assignee", ())))),
        fact("labels", ", ".join(_several(said.get("labels", ())))),
        fact("milestone", _one(said, "milestone")),
        fact("type", _one(said, "type")),
        fact("part of", _one(said, "parent_task_id")),
    )


def _evidence(said: Mapping[str, Value], text: str, word: str, where: str) -> str:
    changed = _one(said, "updated_date") or _one(said, "created_date")
    told = one_line(" ".join(_marked(text, _SUMMARY)[0]), 1500) or "no final summary given"
    moved = ", completed" if where == "completed" else ""
    return f"{word}{moved} in Backlog.md" + (f" on {changed}" if changed else "") + f": {told}"


def _criteria(text: str) -> Sequence[Criterion]:
    found: dict[str, Criterion] = {}
    for items in (part for mark in _CRITERIA for part in _marked(text, mark)[0] if part.strip()):
        for one in criteria_in(items):
            found.setdefault(one.text, one)
    return list(found.values())


def _marked(text: str, mark: str) -> tuple[Sequence[str], str]:
    """What stands between marks of the program, and the text without that."""
    first, *parts = text.split(f"<!-- {mark}:BEGIN -->")
    inside = [part.partition(f"<!-- {mark}:END -->") for part in parts]
    return [part[0] for part in inside], first + "".join(part[2] for part in inside)


def _body(text: str, *, with_criteria: bool) -> str:
    """The prose of a task, without the marks of the program and without headings over nothing."""
    if not with_criteria:
        for mark in _CRITERIA:
            text = _marked(text, mark)[1]
    text = _MARKER.sub("", text)
    parts = re.split(r"^## ", text, flags=re.MULTILINE)
    said = (part.partition("\n") for part in parts[1:])
    return sections((("", parts[0]), *((head.strip(), body) for head, _, body in said)))


def _one(said: Mapping[str, Value], key: str) -> str:
    return ", ".join(_several(said.get(key, "")))


def _several(value: Value) -> Sequence[str]:
    if isinstance(value, str):
        return [value] if value else []
    return value
