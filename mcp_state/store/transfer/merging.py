"""Bringing an export into a project: one transaction, in which nothing that is there is lost.

Every guard of the store stays in force. Events get the next numbers in their old order, with the
time and the actor that they had; what rows say about events is translated. Counters, topics and
documents come out as if each change had been made here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcp_state.models import Imported
from mcp_state.store import blobs, thread_rows
from mcp_state.store.text import fold, one_line, within
from mcp_state.store.transaction import Row, Writing
from mcp_state.store.transfer.beliefs import settle
from mcp_state.store.transfer.findable import Documents
from mcp_state.store.transfer.meter import Meter
from mcp_state.store.transfer.planning import Plan
from mcp_state.store.transfer.rows import Rows
from mcp_state.store.transfer.staging import IN_RUNS, Staging

# In the staging database.
_NUMBER = """
    UPDATE events SET new = :last + found.number FROM (
        SELECT seq, row_number() OVER (ORDER BY seq) AS number FROM events WHERE fresh = 1
    ) AS found WHERE events.seq = found.seq
"""
_RENAMED = """
    SELECT 1 FROM units WHERE target <> name OR target_shown <> shown LIMIT 1
"""
_ACTORS = "SELECT * FROM actors"
_KEEP_ACTOR = "UPDATE actors SET target = :target WHERE id = :id"
_FRESH = """
    SELECT events.*, actors.target AS target_actor, units.target, units.target_shown,
        coalesce(runs.target, run) AS target_run
    FROM events
    JOIN actors ON actors.id = actor
    JOIN units ON units.kind = unit_kind AND units.name = unit
    LEFT JOIN units AS runs ON runs.kind = 'run' AND runs.name = run AND run <> ''
    WHERE fresh = 1 ORDER BY seq
"""
_OTHERS = """
    SELECT rows.*, agent FROM rows
    JOIN units ON units.kind = unit_kind AND units.name = unit
    LEFT JOIN actors ON actors.id = json_extract(data, '$.accepted_by')
    WHERE rows.kind = :kind AND mode = 'other' ORDER BY rows.line
"""
_APART = """
    SELECT kind || ':' || shown AS thing, target_shown FROM units
    WHERE target <> name AND EXISTS (
        SELECT 1 FROM events WHERE unit_kind = units.kind AND unit = units.name AND fresh = 1
    ) ORDER BY line
"""
_COUNT = "SELECT count(*) FROM events WHERE fresh = 1"
_NEW = "SELECT new FROM events WHERE seq = :seq"
_TARGET = "SELECT * FROM units WHERE kind = :kind AND name = :name"

# In the store.
_NEW_ACTOR = """
    INSERT INTO actors (agent, client, session, worktree)
    VALUES (:agent, :client, :session, :worktree) ON CONFLICT DO NOTHING
"""
_ACTOR = """
    SELECT id FROM actors
    WHERE agent = :agent AND client = :client AND session = :session AND worktree = :worktree
"""
_EVENT = """
    INSERT INTO events (
        project, seq, at, actor, run, kind, name, operation, summary, version, row
    ) VALUES (
        :project, :seq, :at, :actor, :run, :kind, :name, :operation, :summary, :version, :row
    )
"""
_END_LEASE = """
    UPDATE threads SET lease_token = :seq WHERE project = :project AND name = :name
"""
_SHOWN = "SELECT shown FROM projects WHERE id = :project"
_BLOB = "SELECT * FROM blob_rows WHERE project = :project AND key = :key"
_HANDOFF = "SELECT * FROM handoff_rows WHERE project = :project AND key = :key"
_LISTED = 5


def merge(tx: Writing, staging: Staging, meter: Meter) -> Imported:
    """Bring what is news of a checked export into the project of a transaction.

    Raises:
        BadArgument: the file contradicts itself.
    """
    try:
        return _Merge(tx, staging, meter).run()
    except tx.Refused as problem:
        why = str(problem).partition("\n")[0]
        raise staging.refusal(f"the store does not take this: {why}") from problem


class _Merge:
    """One import."""

    def __init__(self, tx: Writing, staging: Staging, meter: Meter) -> None:
        self._tx = tx
        self._staging = staging
        self._meter = meter
        self._renamed = False

    def run(self) -> Imported:
        """All of it."""
        tx, staging, header = self._tx, self._staging, self._staging.header
        staging.run("BEGIN")
        Plan(tx, staging).make()
        count: int = staging.scalar(_COUNT)
        longer = self._longer_kept()
        imported = Imported(
            project=tx.scalar(_SHOWN),
            source=header.project,
            events=count,
            skipped=header.events - count,
            kept_apart={row["thing"]: row["target_shown"] for row in staging.each(_APART)},
            stayed=tuple(self._stayed(dict(longer))),
        )
        if not count and not longer:
            return self._with_offer(imported)
        last = tx.seq - 1
        self._bring_actors()
        staging.run(_NUMBER, {"last": last})
        self._renamed = staging.one(_RENAMED) is not None
        self._meter.expect(2 * count)
        tx.run_many(_EVENT, self._events())
        tx.seq, tx.changed = last + count + 1, True
        rows = Rows(tx, staging)
        rows.write(last)
        Documents(tx, staging, self._meter).write()
        fell = settle(tx, staging, rows.kept_stale)
        for name, holder in rows.leased:
            self._end_lease(name, holder)
        for key, until in longer:
            row = tx.one(_BLOB, {"key": key})
            assert row is not None
            blobs.extend(tx, row, until)
        return self._with_offer(self._record(imported, last, fell))

    def _with_offer(self, imported: Imported) -> Imported:
        """With the key of the handoff that the file was made for, while nobody has taken it."""
        row = self._tx.one(_HANDOFF, {"key": self._staging.header.handoff})
        return replace(imported, handoff=row["key"]) if row and not row["accepted_at"] else imported

    def _stayed(self, longer: Mapping[str, str | None]) -> Iterator[str]:
        """What has another history in the file, and cannot be kept apart."""
        for row in self._staging.each(_OTHERS, {"kind": "blob"}):
            but = ", but is kept longer" if row["unit"] in longer else ""
            yield f"blob:{row['unit']} has another history there, and stays as it is here{but}"
        for row in self._staging.each(_OTHERS, {"kind": "handoff"}):
            key, taker = row["unit"], row["agent"]
            here = self._tx.one(_HANDOFF, {"key": key})
            if taker is not None and here is not None and here["accepted_at"] is not None:
                takers = f"{one_line(here['taker_agent'], 40)} here, by {one_line(taker, 40)} there"
                yield f"handoff:{key} was taken by {takers}, and stays as it is here"
            else:
                yield f"handoff:{key} has another history there, and stays as it is here"

    def _longer_kept(self) -> Sequence[tuple[str, str | None]]:
        """Blobs that both have, and that the file says are to be kept longer."""
        longer: list[tuple[str, str | None]] = []
        for row in self._staging.each(_OTHERS, {"kind": "blob"}):
            until: str | None = json.loads(row["data"])["expires_at"]
            there = self._tx.one(_BLOB, {"key": row["unit"]})
            assert there is not None
            if there["expires_at"] is not None and (until is None or until > there["expires_at"]):
                longer.append((row["unit"], until))
        return longer

    def _bring_actors(self) -> None:
        for row in self._staging.each(_ACTORS):
            actor = {key: row[key] for key in ("agent", "client", "session", "worktree")}
            self._tx.run(_NEW_ACTOR, actor)
            target = self._tx.scalar(_ACTOR, actor)
            self._staging.run(_KEEP_ACTOR, {"id": row["id"], "target": target})

    def _events(self) -> Iterator[Mapping[str, Any]]:
        for row in self._staging.each(_FRESH):
            self._staging.line = row["line"]
            self._meter.step()
            yield {
                "project": self._tx.project,
                "seq": row["new"],
                "at": row["at"],
                "actor": row["target_actor"],
                "run": row["target_run"],
                "kind": row["kind"],
                "name": self._name(row),
                "operation": row["operation"],
                "summary": row["summary"],
                "version": row["version"],
                "row": self._row(row) if self._renamed else row["row"],
            }

    def _name(self, row: Row) -> str:
        name: str = row["name"]
        if row["unit_kind"] == "run" and row["kind"] in IN_RUNS:
            return within(row["target"], row["thing"])
        if row["kind"] == "journal":  # an entry is called by its number
            number = self._staging.scalar(_NEW, {"seq": int(name)}) if name.isdecimal() else None
            return name if number is None else str(number)
        return name if row["kind"] == "project" else row["target"]

    def _row(self, row: Row) -> str | None:
        """What an event keeps, with the names that things have here."""
        if row["row"] is None or row["operation"] == "refused":
            return row["row"]
        kept: dict[str, Any] = json.loads(row["row"])
        shown = row["target_shown"]
        match row["kind"]:
            case "thread" | "fact" | "objective":
                kept |= _there(kept, name=shown, **self._links(kept))
            case "memory":
                if row["unit_kind"] == "memory":
                    kept |= _there(kept, key=shown)
            case "run":
                kept |= _there(kept, name=shown, thread=self._target("thread", kept.get("thread")))
            case "step":
                kept |= _there(kept, name=f"{shown}/{kept.get('step')}")
            case "checkpoint":
                kept |= _there(kept, name=f"{shown}/{kept.get('number')}")
            case "journal":
                thread = self._target("thread", kept.get("thread"))
                kept |= _there(kept, thread=thread, run=self._target("run", kept.get("run")))
            case _:
                pass
        return json.dumps(kept, ensure_ascii=False)

    def _links(self, kept: Mapping[str, Any]) -> Mapping[str, Any]:
        """What it leads to."""
        return {
            "depends_on": [self._shown("thread", name) for name in kept.get("depends_on", ())],
            "relies_on": [self._shown("fact", name) for name in kept.get("relies_on", ())],
            "reasons": [
                [self._shown("fact", name) for name in reason] for reason in kept.get("reasons", ())
            ],
        }

    def _target(self, kind: str, name: Any) -> Any:
        row = self._staging.one(_TARGET, {"kind": kind, "name": fold(name)}) if name else None
        return name if row is None else row["target"]

    def _shown(self, kind: str, name: str) -> str:
        row = self._staging.one(_TARGET, {"kind": kind, "name": fold(name)})
        return name if row is None else row["target_shown"]

    def _end_lease(self, name: str, holder: str) -> None:
        """Whoever held it has to look again: it went on elsewhere."""
        tx = self._tx
        tx.run(_END_LEASE, {"name": name})
        row = tx.one(thread_rows.THREAD, {"name": name})
        assert row is not None
        words = f"lease of {one_line(holder, 40)} ended: its thread went on in an import"
        tx.event("lease_broken", words, thread_rows.row_of(tx, row), subject=("thread", name))

    def _record(self, imported: Imported, last: int, fell: int) -> Imported:
        """The event that says what was imported."""
        apart = list(imported.kept_apart.values())
        events = "event" if imported.events == 1 else "events"
        source = "a file" if imported.source == imported.project else imported.source
        words = f"{imported.events:,} {events} imported from {source}"
        if apart:
            more = f" and {len(apart) - _LISTED} more" if len(apart) > _LISTED else ""
            words += f", kept apart: {', '.join(apart[:_LISTED])}{more}"
        if fell:
            words += f", and {fell:,} {'facts' if fell > 1 else 'fact'} fell"
        row = {
            "name": imported.project,
            "source": imported.source,
            "handoff": self._staging.header.handoff,
            "events": imported.events,
            "first": last + 1,
            "last": last + imported.events,
            "kept_apart": dict(imported.kept_apart),
        }
        self._tx.of_run = ""
        return replace(imported, event=self._tx.event("import", words, row))


def _there(kept: Mapping[str, Any], **values: Any) -> Mapping[str, Any]:
    """Those of the values that the row has."""
    return {key: value for key, value in values.items() if key in kept}
