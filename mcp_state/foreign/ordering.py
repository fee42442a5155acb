"""The order in which tasks are taken: what others wait for comes first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from mcp_state.foreign.records import Task
from mcp_state.store.text import fold


def in_order(tasks: Sequence[Task]) -> tuple[Sequence[Task], Mapping[str, set[str]]]:
    """The tasks in that order, and the names (folded) that would close a circle, by their task.

    Of two tasks of one name the first is meant; the other follows it.
    """
    by_name = {fold(task.name): task for task in reversed(tasks)}
    circular: Mapping[str, set[str]] = defaultdict(set)
    finished: dict[str, bool] = {}
    ordered: list[Task] = []
    for first in tasks:
        if by_name[fold(first.name)] is not first:
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
                    circular[task.name].add(fold(other.name))
    return ordered, circular


def _links(task: Task, by_name: Mapping[str, Task]) -> Iterator[Task]:
    names = map(fold, (*task.needs, *task.parts))
    return (by_name[name] for name in names if name in by_name)
