"""The words that other tools have for statuses and priorities, and prose made of their fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from mcp_state.foreign.records import Criterion
from mcp_state.models import Status
from mcp_state.store.text import one_line

_REVIEW = "a review"
_STATUSES: Mapping[str, tuple[Status, str]] = {
    "done": (Status.DONE, ""),
    "completed": (Status.DONE, ""),
    "complete": (Status.DONE, ""),
    "closed": (Status.DONE, ""),
    "blocked": (Status.BLOCKED, ""),
    "onhold": (Status.BLOCKED, ""),
    "waiting": (Status.BLOCKED, ""),
    "review": (Status.BLOCKED, _REVIEW),
    "inreview": (Status.BLOCKED, _REVIEW),
    "deferred": (Status.WATCHING, ""),
    "draft": (Status.WATCHING, ""),
    "pinned": (Status.WATCHING, ""),
    "cancelled": (Status.DROPPED, ""),
    "canceled": (Status.DROPPED, ""),
}
_PRIORITIES: Mapping[str, int] = {"critical": 1, "high": 3, "medium": 5, "low": 7}
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(?:\[(?P<tick>[ xX])\]\s+)?(?:#\d+\s+)?(?P<text>\S.*)")


def status_of(word: str) -> tuple[Status, str]:
    """The status, and what a blocked one waits for as far as the word says; else it is active."""
    return _STATUSES.get(re.sub(r"[\W_]+", "", word).lower(), (Status.ACTIVE, ""))


def priority_of(word: str) -> int:
    """1 to 9; 5 for a word that says nothing."""
    return _PRIORITIES.get(word.strip().lower(), 5)


def origin(tool: str, name: str, *facts: str) -> str:
    """One line that says where a thing comes from, and what else is known of it."""
    known = "; ".join(one_line(fact, 200) for fact in facts if fact)
    return f"Imported from {tool} {one_line(name, 140)}" + (f": {known}" if known else "")


def fact(word: str, value: str) -> str:
    """`created 2026-05-01`, or nothing."""
    return f"{word} {value}" if value else ""


def sections(parts: Iterable[tuple[str, str]]) -> str:
    """Prose under headings; what is empty is left out. The first may have no heading."""
    said = ((head, text.strip("\n")) for head, text in parts if text.strip())
    return "\n\n".join(f"{head}:\n{text}" if head else text for head, text in said)


def criteria_in(text: str) -> Sequence[Criterion]:
    """The items of a list, each with its own further lines; or the whole text as one."""
    found: list[Criterion] = []
    for line in text.strip().splitlines():
        match = _ITEM.fullmatch(line)
        if match is not None and (not found or not line[:1].isspace()):
            found.append(Criterion(match["text"].strip(), (match["tick"] or " ") in "xX"))
        elif not found:
            return [Criterion(text.strip())]
        elif line.strip():
            last = found[-1]
            found[-1] = Criterion(f"{last.text}\n{line.strip()}", last.passes)
    unique = {one.text: one for one in found}
    return list(unique.values())


def criteria_for(status: Status, criteria: Sequence[Criterion]) -> Sequence[Criterion]:
    """Those that a thread of this status can have.

    What is done has only criteria that pass: if one was not ticked there, they stay prose.
    """
    if status is Status.DROPPED or (status is Status.DONE and not all(c.passes for c in criteria)):
        return ()
    return criteria
