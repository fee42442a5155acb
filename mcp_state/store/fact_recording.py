"""Recording a fact: a new one, more about one that says the same, or another statement for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from mcp_state.calls import argument, call
from mcp_state.errors import BadArgument, Conflict
from mcp_state.models import FALLEN, FactRecorded, Trust
from mcp_state.store.fact_rows import FACT, believed, fact_of, stored_fact
from mcp_state.store.fact_rules import (
    add_reason,
    and_fell,
    check_version,
    comes_due,
    drop_reasons,
    drop_replaced,
    fact_text,
    falls_with,
    let_fall,
    reasons_of,
    recorded,
    wanted_reason,
)
from mcp_state.store.text import fold, one_line, quoted, several
from mcp_state.store.transaction import Reading, Row, Writing
from mcp_state.times import ago, duration, from_text, to_text

_INSERT = """
    INSERT INTO facts (
        project, name, shown, created, created_at, changed, changed_at, changed_by, version,
        statement, replaces, stated, stated_at, stated_by, "check", source, trust, trust_at,
        recheck_after, recheck_at
    ) VALUES (
        :project, :name, :shown, :seq, :now, :seq, :now, :actor, 1,
        :statement, '', :seq, :now, :actor, :check, :source, :trust, :now,
        :recheck_after, :recheck_at
    )
"""
_UPDATE = """
    UPDATE facts SET
        version = version + 1, changed = :seq, changed_at = :now, changed_by = :actor,
        "check" = :check, source = :source, trust = :trust,
        trust_at = CASE WHEN trust = :trust THEN trust_at ELSE :now END,
        recheck_after = :recheck_after,
        recheck_at = :recheck_at,
        verified = CASE WHEN :forget THEN NULL ELSE verified END,
        verified_at = CASE WHEN :forget THEN NULL ELSE verified_at END,
        verified_by = CASE WHEN :forget THEN NULL ELSE verified_by END,
        held = CASE WHEN :forget THEN NULL ELSE held END,
        evidence = CASE WHEN :forget THEN '' ELSE evidence END,
        baseline = CASE WHEN :new_check THEN NULL ELSE baseline END
    WHERE project = :project AND name = :name
"""
_SUPERSEDE = """
    UPDATE facts SET
        version = version + 1, changed = :seq, changed_at = :now, changed_by = :actor,
        statement = :statement, stated = :seq, stated_at = :now, stated_by = :actor,
        replaces = CASE WHEN held IS NULL AND replaces IN ('stale', 'refuted') THEN replaces
            ELSE trust END,
        "check" = :check, source = :source, trust = :trust, trust_at = :now,
        recheck_after = :recheck_after, recheck_at = :recheck_at, verified = NULL,
        verified_at = NULL, verified_by = NULL, held = NULL, evidence = '', baseline = NULL
    WHERE project = :project AND name = :name
"""
_DEFAULT_RECHECK = timedelta(hours=24)
_MOST_REASONS = 50


def record_fact(
    tx: Writing,
    fact: str,
    statement: str,
    given: Mapping[str, str],
    because: Sequence[str],
    recheck_after: str,
    archival: bool,
    expected_version: int | None,
) -> FactRecorded:
    """Do what `Facts.record` describes; `given` holds check and source."""
    shown = tx.name(fact, "fact")
    name = fold(shown)
    tx.subject = ("fact", name)
    row = tx.one(FACT, {"name": name})
    shown = shown if row is None else row["shown"]
    check_version(tx, shown, row, expected_version)
    statement = fact_text(tx, statement, f"the statement of fact {shown!r}")
    if not statement and row is None:
        raise BadArgument(
            f"there is no fact {shown!r}, and a new one needs a statement",
            f"Say in {argument('statement', of='fact_record')} what is believed, and in "
            f"{argument('check')} how to see whether it holds.",
        )
    fields: dict[str, Any] = {
        key: fact_text(tx, value, f"{key} of fact {shown!r}") for key, value in given.items()
    }
    fields |= {"name": name, "shown": shown}
    after = duration(recheck_after, "recheck_after") if recheck_after else None
    reason = wanted_reason(tx, shown, several(because))
    if row is None:
        return _create(tx, fields | {"statement": statement}, reason, after, archival)
    if statement and statement != row["statement"]:
        if expected_version is None:
            raise _says_otherwise(tx, row)
        return _supersede(tx, row, fields | {"statement": statement}, reason, after, archival)
    return _amend(tx, row, fields, reason, after, archival)


def _create(
    tx: Writing,
    fields: dict[str, Any],
    reason: Sequence[str],
    after: timedelta | None,
    archival: bool,
) -> FactRecorded:
    tx.run(_INSERT, fields | _begun(tx, after or _DEFAULT_RECHECK, archival))
    if reason:
        add_reason(tx, fields["name"], 1, reason)
    row = recorded(tx, fields["name"], "record", believed(fields))
    return FactRecorded(fact_of(tx, row))


def _begun(tx: Writing, after: timedelta, archival: bool) -> dict[str, Any]:
    """The trust of a statement that nobody has checked."""
    return {
        "trust": Trust.ARCHIVAL if archival else Trust.PROVISIONAL,
        "recheck_after": int(after.total_seconds()),
        "recheck_at": None if archival else to_text(tx.at + after),
    }


def _supersede(
    tx: Writing,
    row: Row,
    fields: dict[str, Any],
    reason: Sequence[str],
    after: timedelta | None,
    archival: bool,
) -> FactRecorded:
    name = row["name"]
    kept = timedelta(seconds=row["recheck_after"])
    for key in ("check", "source"):
        fields[key] = fields[key] or row[key]
    fell = list(falls_with(tx, name))
    tx.run(_SUPERSEDE, fields | _begun(tx, after or kept, archival))
    drop_reasons(tx, name)
    if reason:
        add_reason(tx, name, 1, reason)
    old = quoted(one_line(row["statement"], 120))
    words = f"{believed(fields)} · replaces ({row['trust']}): {old}"
    new = recorded(tx, name, "supersede", words + and_fell(fell))
    touched = let_fall(tx, name, fell, "says something else now")
    return FactRecorded(
        fact_of(tx, new), touched, superseded=row["statement"], was=Trust(row["trust"])
    )


def _amend(
    tx: Writing,
    row: Row,
    fields: dict[str, Any],
    reason: Sequence[str],
    after: timedelta | None,
    archival: bool,
) -> FactRecorded:
    """Change what is given of a fact that says the same."""
    name, trust = row["name"], Trust(row["trust"])
    if archival and trust in FALLEN:
        raise BadArgument(
            f"fact {row['shown']!r} is {trust}, so it can't be kept as true then",
            "Record what is true under it, or under another name.",
        )
    for key in ("check", "source"):
        fields[key] = fields[key] or row[key]
    reasons, last = reasons_of(tx, name)
    is_new = bool(reason) and set(reason) not in reasons
    if is_new and len(reasons) >= _MOST_REASONS:
        raise BadArgument(
            f"fact {row['shown']!r} has {len(reasons)} reasons; at most {_MOST_REASONS}",
            f"Replace its statement ({argument('expected_version')}) to begin with new ones.",
        )
    fields |= _amended(tx.now, row, fields["check"] != row["check"], after, archival)
    columns = ("check", "source", "trust", "recheck_after", "recheck_at")
    changed = [column for column in columns if fields[column] != row[column]]
    if not changed and not is_new:
        return FactRecorded(fact_of(tx, row), unchanged=True)
    tx.run(_UPDATE, fields)
    words = [_check_words(row, fields)] if "check" in changed else []
    if others := [column for column in changed if column != "check"]:
        words.append(f"changed {', '.join(others)}")
    if is_new:
        drop_replaced(tx, name)
        add_reason(tx, name, last + 1, reason)
        names = ", ".join(one_line(stored_fact(tx, one)["shown"], 40) for one in reason[:5])
        words.append(f"{'another' if last else 'a'} reason: {names}")
    recorded(tx, name, "record", " · ".join(words))
    if is_new:
        comes_due(tx, name, "it has a reason that stands")
    demoted = trust is Trust.TRUSTED and fields["trust"] == Trust.PROVISIONAL
    return FactRecorded(fact_of(tx, stored_fact(tx, name)), demoted=demoted)


def _check_words(row: Row, fields: Mapping[str, Any]) -> str:
    was = one_line(row["check"], 100) if row["check"] else "none"
    return f"check: {one_line(fields['check'], 100)} (was: {was})"


def _amended(
    now: str, row: Row, new_check: bool, after: timedelta | None, archival: bool
) -> dict[str, Any]:
    """Trust and times of a fact that says the same.

    What a check said is no word about another check; but what was refuted stays so, with what
    refuted it.
    """
    trust = Trust(row["trust"])
    if archival:
        trust = Trust.ARCHIVAL
    elif new_check and trust is Trust.TRUSTED:
        trust = Trust.PROVISIONAL
    seconds = row["recheck_after"] if after is None else int(after.total_seconds())
    recheck_at = None if trust is Trust.ARCHIVAL else row["recheck_at"]
    is_due = recheck_at is not None and recheck_at <= now  # and stays so until it is verified
    live = trust in (Trust.TRUSTED, Trust.PROVISIONAL) and not is_due
    if live and seconds != row["recheck_after"]:
        since = from_text(row["verified_at"] or row["stated_at"])
        recheck_at = to_text(since + timedelta(seconds=seconds))
    return {
        "trust": trust.value,
        "recheck_after": seconds,
        "recheck_at": recheck_at,
        "new_check": new_check,
        "forget": new_check and trust is not Trust.REFUTED,
    }


def _says_otherwise(tx: Reading, row: Row) -> Conflict:
    verify = call("fact_verify", fact=row["shown"], holds=False, evidence=...)
    refute = "" if row["held"] == 0 else f"If that no longer holds, say so with {verify}. "
    return Conflict(
        f"fact {row['shown']!r} says something else already ({row['trust']}, recorded "
        f"{ago(from_text(row['stated_at']), tx.at)} by {one_line(row['stater_agent'], 40)}; "
        f"{believed(row)})",
        f"{refute}To replace it, record again with {argument('expected_version', row['version'])}; "
        "the old statement stays in history.",
    )
