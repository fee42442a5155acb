"""Whether the things of an export are what its events say, as `doctor` asks of a store.

A checksum tells that a file is as it was written. This tells that whoever wrote it wrote no
contradiction, which an import would carry into a store for good.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mcp_state.store.graphs import in_circles
from mcp_state.store.text import fold
from mcp_state.store.transaction import Row
from mcp_state.store.transfer.staging import Staging

_FAULTS: tuple[tuple[str, str], ...] = (
    (
        """
        SELECT rows.line, rows.kind AS what FROM rows
        LEFT JOIN units ON units.kind = unit_kind AND units.name = unit
        WHERE unit_kind NOT IN ('journal', 'idempotency') AND units.shown IS NULL
        ORDER BY rows.line LIMIT 1
        """,
        "a {} of something that is not in the file",
    ),
    (
        """
        SELECT line, kind AS what FROM units
        WHERE shown IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM events WHERE unit_kind = units.kind AND unit = units.name AND side = 0
        ) ORDER BY line LIMIT 1
        """,
        "a {} without an event",
    ),
    (
        """
        SELECT events.line, unit_kind AS what FROM events
        JOIN units ON units.kind = unit_kind AND units.name = unit
        WHERE side <> 1 AND units.shown IS NULL AND unit_kind <> 'journal'
        ORDER BY events.line LIMIT 1
        """,
        "an event of a {} that is not in the file",
    ),
    (
        """
        SELECT line, kind AS what FROM rows
        WHERE kind = 'journal' AND NOT EXISTS (
            SELECT 1 FROM events WHERE seq = rows.event AND events.kind = 'journal' AND side = 0
        ) ORDER BY line LIMIT 1
        """,
        "an entry of the {} without an event",
    ),
    (
        """
        SELECT line, kind AS what FROM events
        WHERE kind = 'journal' AND side = 0 AND NOT EXISTS (
            SELECT 1 FROM rows WHERE rows.kind = 'journal' AND rows.event = events.seq
        ) ORDER BY line LIMIT 1
        """,
        "an event of the {} without an entry",
    ),
    (
        """
        SELECT line, kind AS what FROM events
        WHERE side <> 1 AND unit_kind = 'run' AND kind <> 'run' AND NOT EXISTS (
            SELECT 1 FROM rows
            WHERE rows.kind = iif(events.kind = 'transcript', 'message', events.kind)
                AND rows.unit_kind = 'run' AND rows.unit = events.unit
                AND rows.thing = events.thing
        ) ORDER BY line LIMIT 1
        """,
        "an event of a {} that is not in the file",
    ),
    (
        """
        SELECT max(line) AS line, kind AS what FROM rows WHERE kind = 'message'
        GROUP BY unit HAVING count(*) <> max(json_extract(data, '$.number')) LIMIT 1
        """,
        "a {} of this run is missing",
    ),
    (
        """
        SELECT line, 'key' AS what FROM rows
        WHERE kind = 'idempotency' AND json_extract(data, '$.operation') = 'journal_append'
            AND NOT EXISTS (
                SELECT 1 FROM rows AS entry
                WHERE entry.kind = 'journal' AND entry.event = json_extract(rows.data, '$.seq')
            )
        ORDER BY line LIMIT 1
        """,
        "a {} that leads to no entry",
    ),
    (
        """
        SELECT line, 'thread' AS what FROM rows, json_each(data, '$.relies_on') AS fact
        WHERE rows.kind = 'thread' AND NOT EXISTS (
            SELECT 1 FROM units
            WHERE units.kind = 'fact' AND units.name = fact.value AND shown IS NOT NULL
        ) ORDER BY line LIMIT 1
        """,
        "a {} that relies on a fact that is not in the file",
    ),
    (
        """
        SELECT line, 'fact' AS what
        FROM rows, json_each(data, '$.reasons') AS reason, json_each(reason.value) AS premise
        WHERE rows.kind = 'fact' AND NOT EXISTS (
            SELECT 1 FROM units
            WHERE units.kind = 'fact' AND units.name = premise.value AND shown IS NOT NULL
        ) ORDER BY line LIMIT 1
        """,
        "a {} that rests on one that is not in the file",
    ),
    (
        """
        SELECT rows.line, 'fact' AS what FROM rows LEFT JOIN events ON events.seq = (
            SELECT max(seq) FROM events
            WHERE unit_kind = 'fact' AND unit = rows.unit AND operation = 'verify'
        )
        WHERE rows.kind = 'fact' AND json_extract(data, '$.verified') IS NOT NULL AND (
            json_extract(data, '$.verified'), json_extract(data, '$.verified_at'),
            json_extract(data, '$.verified_by'), json_extract(data, '$.held')
        ) IS NOT (events.seq, at, actor, json_extract(events.row, '$.held'))
        ORDER BY rows.line LIMIT 1
        """,
        "the last verification of the {} is not what its events say",
    ),
    (
        """
        SELECT rows.line, 'fact' AS what FROM rows LEFT JOIN events ON events.seq = (
            SELECT max(seq) FROM events
            WHERE unit_kind = 'fact' AND unit = rows.unit
                AND (operation = 'supersede' OR operation = 'record' AND version = 1)
        )
        WHERE rows.kind = 'fact' AND (
            json_extract(data, '$.stated'), json_extract(data, '$.stated_at'),
            json_extract(data, '$.stated_by')
        ) IS NOT (events.seq, at, actor)
        ORDER BY rows.line LIMIT 1
        """,
        "the {} was not stated when its events say",
    ),
    (
        """
        SELECT line, 'fact' AS what FROM (
            SELECT line, unit, premise.value AS premise,
                json_extract(data, '$.given[' || reason.key || '][' || premise.key || ']') AS given
            FROM rows, json_each(data, '$.reasons') AS reason, json_each(reason.value) AS premise
            WHERE rows.kind = 'fact'
        ) AS reasons
        WHERE given <> 0 AND NOT EXISTS (
            SELECT 1 FROM events
            WHERE seq = given AND unit_kind = 'fact' AND events.unit IN (reasons.unit, premise)
                AND operation IN ('record', 'supersede')
        ) ORDER BY line LIMIT 1
        """,
        "a {} with a reason that no event gave",
    ),
)
_NEWEST = """
    SELECT rows.line, rows.kind, rows.data, newest.seq AS newest, newest.row AS said,
        changed.at, changed.actor, changed.version,
        changed.unit_kind = rows.unit_kind AND changed.unit = rows.unit
            AND changed.kind = rows.kind AND changed.thing = rows.thing AS its_own,
        (SELECT json_group_array(number) FROM (
            SELECT json_extract(data, '$.number') AS number FROM rows AS criterion
            WHERE criterion.kind = 'criterion' AND rows.kind = 'thread'
                AND criterion.unit_kind = 'thread' AND criterion.unit = rows.unit
                AND json_extract(data, '$.passes') ORDER BY number
        )) AS passing,
        (SELECT count(version) || ',' || coalesce(max(version), 0) FROM events
         WHERE events.unit_kind = rows.unit_kind AND events.unit = rows.unit
            AND events.kind = rows.kind AND events.thing = rows.thing) AS versions
    FROM rows
    LEFT JOIN events AS newest ON newest.seq = (
        SELECT max(seq) FROM events
        WHERE events.unit_kind = rows.unit_kind AND events.unit = rows.unit
            AND events.kind = rows.kind AND events.thing = rows.thing AND side <> 1
    )
    LEFT JOIN events AS changed ON changed.seq = rows.event
    WHERE rows.kind = :kind ORDER BY rows.line
"""
_VERIFIED_AS_ANOTHER = """
    SELECT rows.line FROM rows JOIN events ON events.seq = json_extract(data, '$.verified')
    WHERE rows.kind = 'fact' AND (
        json_extract(data, '$.statement') <> json_extract(events.row, '$.statement')
        OR json_extract(data, '$.held')
            AND json_extract(data, '$.check') <> json_extract(events.row, '$.check')
    ) ORDER BY rows.line LIMIT 1
"""
_PREMISES = """
    SELECT unit, premise.value AS premise
    FROM rows, json_each(data, '$.reasons') AS reason, json_each(reason.value) AS premise
    WHERE rows.kind = 'fact'
"""
_LINE = "SELECT line FROM units WHERE kind = 'fact' AND name = :name"
_ENTRIES = """
    SELECT rows.line, rows.kind, rows.data, events.seq AS newest, events.row AS said, at, actor,
        NULL AS version, 1 AS its_own, '[]' AS passing, '' AS versions
    FROM rows JOIN events ON events.seq = rows.event
    WHERE rows.kind = 'journal' ORDER BY rows.line
"""
"""Each thing beside its newest event, and the one it names."""

_SAID: Mapping[str, Sequence[str]] = {
    "thread": (
        *("version", "title", "status", "priority", "next_action", "waiting_on", "recheck_at"),
        *("check", "evidence", "note", "places"),
    ),
    "run": (
        *("version", "status", "goal", "expected_outcome", "thread", "max_attempts"),
        *("max_minutes", "max_tokens", "stopped", "finished_at", "result", "evidence"),
        "reflection",
    ),
    "checkpoint": ("number", "state", "next_action", "done", "total", "git"),
    "step": ("status", "input", "result", "outcome", "streak", "stopped"),
    "memory": ("value", "version", "expires_at", "locked"),
    "journal": ("id", "kind", "thread", "run", "text"),
    "blob": ("version", "sha256", "bytes", "characters", "summary", "expires_at"),
    "handoff": ("recipient", "note", "exported_at", "accepted_at"),
    "fact": (
        *("version", "statement", "replaces", "check", "source", "trust", "recheck_after"),
        *("recheck_at", "verified_at", "held", "evidence", "baseline"),
    ),
    "objective": ("version", "objective", "intent", "reason"),
}
_VERSIONED = ("thread", "run", "memory", "blob", "fact", "objective")
_NAMES = ("thread", "run")


def contradiction(staging: Staging) -> tuple[int, str] | None:
    """The first line that does not go with the others, and what is wrong with it."""
    for sql, fault in _FAULTS:
        row = staging.one(sql)
        if row is not None:
            return row["line"], fault.format(row["what"])
    for kind in _SAID:
        rows = staging.each(_ENTRIES if kind == "journal" else _NEWEST, {"kind": kind})
        for line, key in _contradictions(kind, rows):
            return line, f"{key!r} of the {kind} is not what its events say"
    row = staging.one(_VERIFIED_AS_ANOTHER)
    if row is not None:
        return row["line"], "a fact whose verification was one of another statement or check"
    return _circle(staging)


def _circle(staging: Staging) -> tuple[int, str] | None:
    """The first fact that is its own reason, by way of others."""
    circles = in_circles((row["unit"], row["premise"]) for row in staging.each(_PREMISES))
    if not circles:
        return None
    line = min(staging.scalar(_LINE, {"name": name}) for name in circles)
    return line, "a fact in a circle of reasons"


def _contradictions(kind: str, rows: Iterator[Row]) -> Iterator[tuple[int, str]]:
    """The lines of things of a kind that say something else than their events, and what."""
    for row in rows:
        values: dict[str, Any] = json.loads(row["data"])
        said = None if row["said"] is None else json.loads(row["said"])
        if said is None:
            if kind != "memory" or row["newest"] is None or values["value"] is not None:
                yield row["line"], next(iter(values))
            continue
        for key in _SAID[kind]:
            if key in said and said[key] != values[key] and not _same_name(kind, key, said, values):
                yield row["line"], key
        if kind == "thread":
            yield from ((row["line"], key) for key in _of_thread(row, said, values))
        elif kind == "fact" and _reasons(said) != _reasons(values):
            yield row["line"], "reasons"
        yield from ((row["line"], key) for key in _of_change(kind, row, values))


def _same_name(kind: str, key: str, said: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Names are folded anew, where this Python may know more letters than that of the file."""
    return key in _NAMES and kind != "thread" and fold(str(said[key])) == values[key]


def _of_thread(row: Row, said: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    for key in ("depends_on", "relies_on"):
        named = {fold(str(name)) for name in said.get(key, ())}
        if named != {fold(name) for name in values[key]}:
            yield key
    if said.get("passing", []) != json.loads(row["passing"]):
        yield "passing"


def _reasons(row: Mapping[str, Any]) -> Sequence[set[str]]:
    return [{fold(str(name)) for name in reason} for reason in row.get("reasons", ())]


def _of_change(kind: str, row: Row, values: Mapping[str, Any]) -> Iterator[str]:
    """Whether the event that a thing says it was changed by is the one that did it."""
    if kind == "journal":
        if (row["at"], row["actor"]) != (values["at"], values["actor"]):
            yield "at"
    elif not row["its_own"]:
        yield "changed"
    elif kind in _VERSIONED:
        changed = (values["changed_at"], values["changed_by"], values["version"])
        if (row["at"], row["actor"], row["version"]) != changed:
            yield "changed"
        if row["versions"] != f"{values['version']},{values['version']}":
            yield "version"
