"""The tasks of TaskMaster (task-master-ai): `tasks.json`, flat or with tags.

A task becomes a thread `task-5`, a subtask a thread `task-5.2` that its task waits for. Tasks of
another tag than `master` have it before them: `feature/task-5`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import cast

from mcp_state.foreign.files import (
    Json,
    Unreadable,
    as_text,
    file_in,
    file_of,
    items_in,
    read_json,
    refused,
    text_in,
)
from mcp_state.foreign.records import Source, Task, as_name
from mcp_state.foreign.words import fact, origin, priority_of, sections, status_of
from mcp_state.models import Status

NAME = "taskmaster"
_FILES = (".taskmaster/tasks/tasks.json", "tasks/tasks.json", "tasks.json")
_MAIN = "master"
_TOLD = frozenset((
    *("id", "title", "description", "details", "testStrategy", "status", "dependencies"),
    *("priority", "subtasks", "updatedAt", "createdAt", "parentTaskId", "parentId"),
))  # fmt: skip


def is_in(folder: str) -> bool:
    """Whether a folder holds tasks of TaskMaster."""
    return file_in(folder, _FILES) != ""


def suits(whole: object) -> bool:
    """Whether the value of a file of JSON looks like TaskMaster."""
    return any(True for _ in _tagged(whole))


def read(path: str) -> Source:
    """All tasks of all tags.

    Raises:
        BadArgument: the file can't be read, or holds no tasks.
    """
    path = file_of(path, _FILES)
    source = Source(NAME, path)
    try:
        whole = read_json(path)
        tags = list(_tagged(whole))
        if not tags:
            raise Unreadable("holds no list of tasks")
    except Unreadable as problem:
        raise refused(path, problem) from None
    file = os.path.basename(path)
    for tag, tasks in tags:
        before = "" if tag == _MAIN else f"{tag}/"
        for number, item in enumerate(tasks, 1):
            _add(source, f"{file}: {before}task {number}", before, item)
    return source


def _tagged(whole: object) -> Iterator[tuple[str, Sequence[object]]]:
    """The lists of tasks by tag; a file without tags is all of the main one."""
    match whole:
        case {"tasks": list()}:
            yield _MAIN, items_in(cast(Json, whole), "tasks")
        case dict():
            for tag, held in cast(dict[str, object], whole).items():
                match held:
                    case {"tasks": list()}:
                        yield tag, items_in(cast(Json, held), "tasks")
                    case _:
                        pass
        case _:
            pass


def _add(source: Source, place: str, before: str, item: object) -> None:
    """A task and its subtasks."""
    task = _checked(source, place, item)
    if task is None:
        return
    number = as_text(task["id"])
    parts: list[str] = []
    for position, inner in enumerate(items_in(task, "subtasks"), 1):
        inside = f"{place}, subtask {position}"
        if (subtask := _checked(source, inside, inner)) is not None:
            inner_number = as_text(subtask["id"])
            if not inner_number.startswith(f"{number}."):
                inner_number = f"{number}.{inner_number}"
            made = _task(inside, before, inner_number, subtask, number)
            parts.append(made.name)
            source.tasks.append(made)
    source.tasks.append(_task(place, before, number, task, "", parts))


def _checked(source: Source, place: str, item: object) -> Json | None:
    match item:
        case {"id": int() | str() as number, "title": str(title)} if title.strip() and as_text(
            number
        ):
            return cast(Json, item)
        case _:
            source.leave(place, "a task", "it has no id or no title")
            return None


def _task(
    place: str, before: str, number: str, item: Json, parent: str, parts: Sequence[str] = ()
) -> Task:
    word = as_text(item.get("status")) or "pending"
    status, waiting_on = status_of(word)
    changed = text_in(item, "updatedAt")
    needs = [_name(before, _number(needed, parent)) for needed in items_in(item, "dependencies")]
    if status is Status.BLOCKED and not waiting_on:
        waiting_on = ", ".join(needs) or "what TaskMaster does not say"
    others = (f"{key}: {said}" for key in item if key not in _TOLD and (said := as_text(item[key])))
    return Task(
        place,
        _name(before, number),
        item["title"],
        status,
        origin(
            "TaskMaster",
            f"{before}{number}",
            word,
            fact("created", text_in(item, "createdAt")),
            fact("changed", changed),
            fact("part of task", parent),
        ),
        sections(
            (
                ("", as_text(item.get("description"))),
                ("Details", as_text(item.get("details"))),
                ("Test strategy", as_text(item.get("testStrategy"))),
                ("Also", "\n".join(others)),
            )
        ),
        f"{word} in TaskMaster" + (f" on {changed}" if changed else "; it does not say how"),
        waiting_on,
        "",
        priority_of(as_text(item.get("priority"))),
        needs,
        parts,
    )


def _number(needed: object, parent: str) -> str:
    """The number of what is needed: of a subtask, one without a dot is a sibling's."""
    number = as_text(needed)
    is_sibling = parent and isinstance(needed, int)
    return f"{parent}.{number}" if is_sibling else number


def _name(before: str, number: str) -> str:
    return as_name(f"{before}task-{number}")
