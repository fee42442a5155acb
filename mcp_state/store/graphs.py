"""Walking what leads to what: dependencies of threads, reasons of facts. Nothing here recurses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

Links = Callable[[str], Iterable[str]]
_MOST_SHOWN = 12


def path(start: str, goal: str, links: Links) -> list[str]:
    """A chain that leads from one name to another, both included; empty if none does."""
    came_from: dict[str, str] = {start: ""}
    waiting = [start]
    while waiting:
        here = waiting.pop()
        if here == goal:
            found = [here]
            while came_from[found[-1]]:
                found.append(came_from[found[-1]])
            return found[::-1]
        for there in links(here):
            if there not in came_from:
                came_from[there] = here
                waiting.append(there)
    return []


def leads_back(start: str, links: Links) -> bool:
    """Whether something leads to itself."""
    return any(path(there, start, links) for there in links(start))


def in_circles(links: Iterable[Sequence[str]]) -> set[str]:
    """What leads to itself, or lies between two circles, out of pairs of a name and the next.

    Takes away what nothing is left under, again and again, then what nothing is left upon.
    """
    under: dict[str, set[str]] = defaultdict(set)
    upon: dict[str, set[str]] = defaultdict(set)
    for thing, other in links:
        under[thing].add(other)
        upon[other].add(thing)
    left = {*under, *upon}
    for links_of, back in ((under, upon), (upon, under)):
        free = [name for name in left if not links_of.get(name)]
        while free:
            name = free.pop()
            left.discard(name)
            for one in back.pop(name, ()):
                links_of[one].discard(name)
                if not links_of[one]:
                    free.append(one)
    return left


def circle(names: Sequence[str], joiner: str) -> str:
    """A chain in words; the middle of a long one is counted."""
    if len(names) > _MOST_SHOWN:
        names = [*names[:6], f"… {len(names) - 10} more …", *names[-4:]]
    return joiner.join(names)
