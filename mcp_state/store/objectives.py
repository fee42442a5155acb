"""What the project is after: the current objective, the intent behind it, and why it changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_state.calls import argument, either, tool
from mcp_state.errors import BadArgument, VersionConflict
from mcp_state.models import Objective
from mcp_state.store.events import event_with_version
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.text import one_line
from mcp_state.store.transaction import Reading, Row, Writing, actor_of
from mcp_state.times import ago, from_text

_CURRENT = "objective"
_OBJECTIVE = "SELECT * FROM objective_rows WHERE project = :project AND name = :name"
_SET = """
    INSERT INTO objectives (
        project, name, shown, created, created_at, changed, changed_at, changed_by, version,
        objective, intent, reason
    ) VALUES (
        :project, :name, :name, :seq, :now, :seq, :now, :actor, 1, :objective, :intent, :reason
    ) ON CONFLICT (project, name) DO UPDATE
       SET changed = excluded.changed, changed_at = excluded.changed_at,
           changed_by = excluded.changed_by, version = objectives.version + 1,
           objective = excluded.objective, intent = excluded.intent, reason = excluded.reason
"""
_LONGEST = 500
_SHORTEN = "Say it in fewer words; what is long belongs in a memory block. Nothing was saved."


class Objectives(Noun):
    """The objective of one project."""

    @reads
    def get(self, tx: Reading) -> Objective | None:
        """The current objective, with what it replaced; None if none was set."""
        return current_objective(tx)

    @writes
    def set(
        self,
        tx: Writing,
        objective: str = "",
        *,
        reason: str = "",
        intent: str = "",
        expected_version: int | None = None,
    ) -> Objective:
        """Set the objective, or the stable intent behind it; what is left out stays as it is.

        A change needs a reason and the version that it replaces. Old ones, with their reasons, stay
        in `history`. Each text has at most 500 characters, so that it can be read whole anywhere.

        Raises:
            BadArgument: there is no objective yet and none is given, or a change has no reason.
            VersionConflict: it moved on, or a change does not say which version it replaces.
            OverLimit: a text is too long.
        """
        tx.subject = ("objective", _CURRENT)
        row = tx.one(_OBJECTIVE, {"name": _CURRENT})
        given = {"objective": objective, "intent": intent, "reason": reason}
        said = {k: tx.text(v.strip(), f"the {k}", _LONGEST, _SHORTEN) for k, v in given.items()}
        if row is None and not said["objective"]:
            raise BadArgument(
                "there is no objective yet",
                f"Say in {argument('objective', of='objective_set')} what we are after.",
            )
        if row is not None:
            said |= {key: said[key] or row[key] for key in ("objective", "intent")}
            if (said["objective"], said["intent"]) == (row["objective"], row["intent"]):
                _check(row, expected_version, tx)
                return _objective_of(tx, row, unchanged=True)
        _check_change(row, expected_version, said["reason"], tx)
        tx.run(_SET, said | {"name": _CURRENT})
        after = tx.one(_OBJECTIVE, {"name": _CURRENT})
        assert after is not None
        tx.event("set", _words(row, after), row_of(after), version=after["version"])
        return _objective_of(tx, after)


def _check(row: Row | None, expected: int | None, tx: Reading) -> None:
    current = 0 if row is None else row["version"]
    if expected is None or expected == current:
        return
    raise VersionConflict.of(
        "the objective", expected, current, _by(row, tx), tool("orient"), tool("objective_set")
    )


def _check_change(row: Row | None, expected: int | None, reason: str, tx: Reading) -> None:
    _check(row, expected, tx)
    if row is None:
        return
    if not reason:
        raise BadArgument(
            f"the objective is {one_line(row['objective'], 200)!r} ({_by(row, tx)}); changing it "
            "or its intent needs a reason",
            f"Say in {argument('reason')} why, for those who worked towards the old one, and pass "
            f"{argument('expected_version', row['version'])}.",
        )
    if expected is None:
        raise VersionConflict(
            f"the objective is at version {row['version']} ({_by(row, tx)}): "
            f"{one_line(row['objective'], 200)!r}, and this call does not say that it replaces it",
            f"If it does, {either('call', 'say it')} again with "
            f"{argument('expected_version', row['version'])}.",
        )


def _by(row: Row | None, tx: Reading) -> str:
    if row is None:
        return ""
    when = ago(from_text(row["changed_at"]), tx.at)
    return f"set by {one_line(row['agent'], 40)} {when}"


def _words(old: Row | None, new: Row) -> str:
    words = [new["objective"]]
    if old is not None and old["objective"] != new["objective"]:
        words[0] += f" (was: {old['objective']})"
    if new["intent"] and (old is None or old["intent"] != new["intent"]):
        words.append(f"intent: {new['intent']}")
    if new["reason"]:
        words.append(f"because {new['reason']}")
    return one_line("; ".join(words), 4 * _LONGEST)


def current_objective(tx: Reading) -> Objective | None:
    """The current objective, with what it replaced; None if none was set."""
    row = tx.one(_OBJECTIVE, {"name": _CURRENT})
    return None if row is None else _objective_of(tx, row)


def _objective_of(tx: Reading, row: Row, *, unchanged: bool = False) -> Objective:
    before = event_with_version(tx, "objective", row["name"], row["version"] - 1)
    old: Mapping[str, Any] = (before and before.row) or {}
    return Objective(
        objective=row["objective"],
        intent=row["intent"],
        reason=row["reason"],
        version=row["version"],
        changed_at=from_text(row["changed_at"]),
        changed_by=actor_of(row),
        was=old.get("objective", ""),
        intent_was=old.get("intent", ""),
        unchanged=unchanged,
    )


def row_of(row: Row) -> Mapping[str, Any]:
    """What the event keeps of an objective."""
    return {
        "name": row["shown"],
        "version": row["version"],
        "objective": row["objective"],
        "intent": row["intent"],
        "reason": row["reason"],
    }
