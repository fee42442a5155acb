"""What the columns of the store hold: what was given, what was made of it, and what is ours."""

from __future__ import annotations

from collections.abc import Mapping

_OURS = frozenset(
    {
        *("events.kind", "events.operation", "idempotency.operation", "idempotency.digest"),
        *("threads.status", "runs.status", "runs.stopped", "steps.status"),
        *("facts.trust", "facts.replaces", "journal.id", "handoffs.key", "documents.kind"),
        *("tokens.id", "tokens.hash", "tokens.toolset"),
    }
)
APART = frozenset({"store", "projects", "project_names", "directories", "actors", "documents"})
"""Tables that are not gone through row by row as the others are."""
BLOB = frozenset({"blobs.key", "blobs.sha256", "blobs.text"})
"""What changes together."""
JSON = frozenset({"threads.places", "checkpoints.git"})
EXACTLY = frozenset(
    {
        *("directories.anchor", "idempotency.key", "criteria.text", "session_runs.session"),
        *("last_events.agent", "last_events.session", "last_events.worktree"),
    }
)
"""What has to stay different from its equals, and is not compared folded."""
SUBJECTS: Mapping[str, tuple[str, str, str]] = {
    "memory": ("memory", "run", "name"),
    "threads": ("thread", "", "name"),
    "criteria": ("thread", "", "thread"),
    "needs": ("thread", "", "thread"),
    "relies": ("thread", "", "thread"),
    "journal": ("journal", "", "seq"),
    "runs": ("run", "", "name"),
    "session_runs": ("run", "", "run"),
    "checkpoints": ("checkpoint", "run", "number"),
    "steps": ("step", "run", "name"),
    "attempts": ("step", "run", "step"),
    "messages": ("transcript", "", "run"),
    "blobs": ("blob", "", "key"),
    "handoffs": ("handoff", "", "key"),
    "facts": ("fact", "", "name"),
    "premises": ("fact", "", "fact"),
    "objectives": ("objective", "", "name"),
}
"""What a row is about: its kind, and the columns with the run that it is in, and with its name."""
ELSE = {"idempotency": "idempotency key", "last_events": "actor", "tokens": "token"}
"""What a row is about that has no history."""


def is_ours(column: str) -> bool:
    """Whether no caller gives what is in a column: a time, a kind, a status, an id."""
    name = column.partition(".")[2]
    return column in _OURS or name in ("at", "lease_until") or name.endswith("_at")
