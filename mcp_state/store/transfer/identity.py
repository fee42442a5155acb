"""What tells one event from another, wherever they are kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from mcp_state.store.transaction import Row
from mcp_state.store.transfer.fields import Line

_NAMES_IN_ROWS: Mapping[str, tuple[str, ...]] = {
    "thread": ("name", "depends_on", "relies_on", "lease_token", "lease_until", "lease_holder"),
    "fact": ("name", "reasons"),
    "objective": ("name",),
    "memory": ("key",),
    "run": ("name", "thread"),
    "step": ("name",),
    "checkpoint": ("name",),
}
_PASSING: Mapping[str, tuple[str, ...]] = {"handoff": ("export",), "fact": ("fall", "due")}
_sorted = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def side_of(kind: str, operation: str) -> int:
    """0 for an event that made a thing what it is, 1 for one that left it alone, else 2.

    The last are leases, the files that were made of a handoff, and what became of a fact because
    of others: it follows from theirs, wherever they are.
    """
    if operation == "refused" or kind in ("trace", "project"):
        return 1
    if kind == "thread":
        return 2 if operation.startswith("lease_") else 0
    return 2 if operation in _PASSING.get(kind, ()) else 0


def identity(inner: str, event: Row | Line, row: Line | None) -> bytes:
    """What an event says, wherever it is kept: without its number, and without names.

    `inner` is the name of what it is about if that lies in a run.
    """
    left_out = () if event["operation"] == "refused" else _NAMES_IN_ROWS.get(event["kind"], ())
    said = [
        inner,
        *(event[column] for column in ("kind", "at", "agent", "client", "session")),
        *(event[column] for column in ("operation", "summary", "version")),
        None if row is None else {key: row[key] for key in row if key not in left_out},
    ]
    return hashlib.blake2b(_sorted(said).encode(), digest_size=16).digest()
