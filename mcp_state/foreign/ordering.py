"""The order in which tasks are taken: what others wait for comes first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from mcp_state.foreign.records import Task


def in_order(tasks: Sequence[Task]) -> tuple[Sequence[Task], Mapping[str, set[str]]]:
    """The tasks in that order, and the links that would close a circle, by the task they are of.

    Of two tasks of one name the first is meant; the other follows it.
    """
    by_name = {task.name: task for task in reversed(tasks)}
    circular: Mapping[str, set[str]] = defaultdict(set)
    finished: dict[str, bool] = {}
    ordered: list[Task] = []
    for first in tasks:
        if by_name[first.name] is not first:
            ordered.append(first)
        elif first.name not in finished:
            finished[first.name] = False
            stack = [(first, _links(first, by_name))]
            while stack:
                task, links = stack[-1]
                other = next(links, None)
                if other is None:
                    finished[task.name] = True
                    ordered.append(task)
                    stack.pop()
                elif other.name not in finished:
                    finished[other.name] = False
                    stack.append((other, _links(other, by_name)))
                elif not finished[other.name]:
                    circular[task.name].add(other.name)
    return ordered, circular


def _links(task: Task, by_name: Mapping[str, Task]) -> Iterator[Task]:
    return (by_name[name] for name in (*task.needs, *task.parts) if name in by_name)
