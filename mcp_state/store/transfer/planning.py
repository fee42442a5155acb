"""What of an export a project does not have yet, and under which names it gets it.

Histories are compared event by event. Of a thing that both have, the longer history counts if it
begins with the shorter one: the rest of it is added, or is there already. Histories that part are
two things, and the imported one is kept apart under a name of its own; what is known by its content
or a key that no two stores draw (blobs, handoffs) then stays as it is, and is told. Threads
and facts that would lead back to themselves are kept apart too, and go on there.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping

from mcp_state.store.graphs import in_circles, leads_back
from mcp_state.store.projects import names_apart
from mcp_state.store.text import WITHIN, fold
from mcp_state.store.transaction import Params, Row, Writing
from mcp_state.store.transfer.identity import identity, side_of
from mcp_state.store.transfer.staging import Staging

_HISTORY = """
    SELECT * FROM event_rows WHERE project = :project AND kind = :kind AND name = :name
    ORDER BY seq
"""
_HISTORY_OF_RUN = """
    SELECT * FROM (
        SELECT * FROM event_rows
        WHERE project = :project AND kind IN ('run', 'transcript', 'trace') AND name = :name
        UNION ALL
        SELECT * FROM event_rows
        WHERE project = :project AND kind IN ('memory', 'step', 'checkpoint')
            AND name > :name || :within AND name < :name || ' '
    ) AS found ORDER BY +seq
"""
"""The plus keeps SQLite from walking through the whole project in the order of its events."""
_REFUSED_ENTRIES = """
    SELECT * FROM event_rows
    WHERE project = :project AND kind = 'journal' AND operation = 'refused' ORDER BY seq
"""
_SHOWN: Mapping[str, str] = {
    "thread": "SELECT shown FROM threads WHERE project = :project AND name = :name",
    "run": "SELECT shown FROM runs WHERE project = :project AND name = :name",
    "fact": "SELECT shown FROM facts WHERE project = :project AND name = :name",
    "objective": "SELECT shown FROM objectives WHERE project = :project AND name = :name",
    "memory": """
        SELECT shown FROM memory WHERE project = :project AND run = '' AND name = :name
    """,
}
_PREMISES = "SELECT fact, premise FROM premises WHERE project = :project"
_NEEDS = "SELECT needed FROM needs WHERE project = :project AND thread = :name"
_ANY_ENTRY = "SELECT 1 FROM journal LIMIT 1"
_ENTRY = "SELECT project, seq FROM journal WHERE id = :id"

# In the staging database.
_ENTRIES = "SELECT line, event, key FROM rows WHERE kind = 'journal'"
_RENAME_ENTRY = "UPDATE rows SET data = json_set(data, '$.id', :id) WHERE line = :line"
_RENAME_EVENT_OF_ENTRY = """
    UPDATE events SET row = json_set(row, '$.id', :id) WHERE seq = :event
"""
_HAVE_ENTRY = "UPDATE events SET fresh = 0, new = :seq WHERE seq = :event"
_UNITS = """
    SELECT units.* FROM units WHERE shown IS NOT NULL OR EXISTS (
        SELECT 1 FROM events
        WHERE unit_kind = units.kind AND unit = units.name AND side = 1
    ) ORDER BY line
"""
_CLAIMED = """
    SELECT 1 FROM units WHERE kind = :kind AND name <> :unit
        AND (name = :name OR (target = :name AND shown IS NOT NULL))
"""
_CLEAR = "DELETE FROM there"
_KEEP_THERE = "INSERT INTO there (seq, side, identity) VALUES (:seq, :side, :identity)"
_NUMBER_THERE = """
    UPDATE there SET position = found.position FROM (
        SELECT seq, row_number() OVER (
            PARTITION BY side, iif(side = 0, '', identity) ORDER BY seq
        ) AS position FROM there
    ) AS found WHERE there.seq = found.seq
"""
_LENGTH = "SELECT count(*) FROM there WHERE side = 0"
_FIRST_DIFFERENCE = """
    SELECT min(events.position) FROM events
    LEFT JOIN there ON there.side = 0 AND there.position = events.position
    WHERE unit_kind = :kind AND unit = :unit AND events.side = 0
        AND there.identity IS NOT events.identity
"""
_ANCHOR = """
    SELECT seq FROM events
    WHERE unit_kind = :kind AND unit = :unit AND side = 0 AND position = :common
"""
_MARK = """
    UPDATE events SET
        new = CASE WHEN side = 0 AND position <= :common THEN (
            SELECT there.seq FROM there WHERE there.side = 0 AND there.position = events.position
        ) END,
        fresh = CASE
            WHEN side = 0 THEN position > :common
            WHEN side = 2 AND seq < :anchor THEN 0
            ELSE NOT EXISTS (
                SELECT 1 FROM there WHERE there.side = events.side
                    AND there.identity = events.identity AND there.position = events.position
            ) END
    WHERE unit_kind = :kind AND unit = :unit
        AND (unit_kind <> 'journal' OR side = 1)
"""
_PLACE = """
    UPDATE units SET target = :name, target_shown = :shown, mode = :mode, number = :number
    WHERE kind = :kind AND name = :unit
"""
_CONTINUED = """
    SELECT * FROM units WHERE kind = 'thread' AND mode = 'more' ORDER BY line
"""
_IMPORTED = """
    SELECT data FROM units
    JOIN rows ON rows.kind = 'thread' AND unit_kind = 'thread' AND unit = name
    WHERE units.kind = 'thread' AND target = :name AND mode IN ('new', 'more')
"""
_TARGET = "SELECT target FROM units WHERE kind = 'thread' AND name = :name"
_NEWS = "SELECT count(*) FROM events WHERE fresh = 1 AND unit_kind <> 'project'"
_FORGET_PROJECT = "UPDATE events SET fresh = 0 WHERE unit_kind = 'project'"
_KEPT_APART = ("thread", "memory", "run", "fact", "objective")
_IN_CIRCLES = ("thread", "fact")
_FACTS_GO_ON = "SELECT 1 FROM units WHERE kind = 'fact' AND mode = 'more'"
_CONTINUED_FACTS = """
    SELECT * FROM units WHERE kind = 'fact' AND mode = 'more' ORDER BY line
"""
_PREMISES_BROUGHT = """
    SELECT units.target AS fact, other.target AS premise
    FROM units
    JOIN rows ON rows.kind = 'fact' AND unit_kind = 'fact' AND unit = units.name
    CROSS JOIN json_each(data, '$.reasons') AS reason
    CROSS JOIN json_each(reason.value) AS named
    CROSS JOIN units AS other ON other.kind = 'fact' AND other.name = named.value
    WHERE units.kind = 'fact' AND units.mode IN ('new', 'more')
"""
_ALL = 1 << 62


class Plan:
    """Decides, for every unit of an export, what becomes of it in the project of a transaction."""

    def __init__(self, tx: Writing, staging: Staging) -> None:
        self._tx = tx
        self._staging = staging

    def make(self) -> int:
        """Decide; returns how many events are news to the project, besides those about itself."""
        self._place_entries()
        if self._tx.seq > 1:
            for unit in self._staging.each(_UNITS):
                self._place(unit)
            while self._break_circle() or self._break_circle_of_facts():
                pass
        news: int = self._staging.scalar(_NEWS)
        if self._tx.seq > 1 and not news:
            self._staging.run(_FORGET_PROJECT)
        return news

    def _place_entries(self) -> None:
        """Entries are known by their id. Another project of this store may hold copies of them."""
        if self._tx.one(_ANY_ENTRY) is None:
            return
        for row in self._staging.each(_ENTRIES):
            given: str = row["key"]
            there = self._tx.one(_ENTRY, {"id": given})
            if there is not None and there["project"] != self._tx.project:
                given = f"{given}.{self._tx.project}"
                params = {"id": given, "line": row["line"], "event": row["event"]}
                self._staging.run(_RENAME_ENTRY, params)
                self._staging.run(_RENAME_EVENT_OF_ENTRY, params)
                there = self._tx.one(_ENTRY, {"id": given})
            if there is not None:
                self._staging.run(_HAVE_ENTRY, {"seq": there["seq"], "event": row["event"]})

    def _place(self, unit: Row, first: int = 0) -> None:
        """Find the name under which a unit is there already, goes on, or is new."""
        kind = unit["kind"]
        for number, (name, shown) in enumerate(self._candidates(unit)):
            at = {"kind": kind, "unit": unit["name"], "name": name}
            if number < first or (number and self._staging.one(_CLAIMED, at) is not None):
                continue
            found = self._read(kind, name)
            if not found and not number:
                return  # as it was staged
            mode, common = self._compare(at)
            if mode == "other" and kind in _KEPT_APART:
                continue
            goes_on = mode == "more" and kind in _IN_CIRCLES
            if goes_on and self._went_on_apart(unit, at, number, common):
                continue
            if mode != "new" and kind in _SHOWN:
                shown = self._tx.scalar(_SHOWN[kind], at) or shown
            self._staging.run(_PLACE, at | {"shown": shown, "mode": mode, "number": number})
            anchor = _ALL
            if mode in ("new", "more"):
                anchor = self._staging.scalar(_ANCHOR, at | {"common": common}) or 0
            self._staging.run(_MARK, at | {"common": common, "anchor": anchor})
            return

    def _went_on_apart(self, unit: Row, at: Params, number: int, common: int) -> bool:
        """Whether more of it is here under a later name, since it was kept out of a circle."""
        later = itertools.islice(self._candidates(unit), number + 1, None)
        for there in ({**at, "name": name} for name, _ in later):
            if self._staging.one(_CLAIMED, there) is not None:
                continue
            if not self._read(unit["kind"], there["name"]):
                break
            mode, longer = self._compare(there)
            if mode in ("same", "more") and longer > common:
                return True
        self._read(unit["kind"], at["name"])
        return False

    def _candidates(self, unit: Row) -> Iterator[tuple[str, str | None]]:
        yield unit["name"], unit["shown"]
        if unit["kind"] in _KEPT_APART and unit["shown"] is not None:
            source = self._staging.header.project
            yield from ((fold(name), name) for name in names_apart(unit["shown"], source))

    def _read(self, kind: str, name: str) -> bool:
        """Lay the project's history of a subject beside the imported one; whether there is one."""
        self._staging.run(_CLEAR)
        sql = {"run": _HISTORY_OF_RUN, "journal": _REFUSED_ENTRIES}.get(kind, _HISTORY)
        rows = self._tx.each(sql, {"kind": kind, "name": name})
        self._staging.run_many(_KEEP_THERE, map(_compared, rows))
        self._staging.run(_NUMBER_THERE)
        return self._staging.one("SELECT 1 FROM there") is not None

    def _compare(self, at: Params) -> tuple[str, int]:
        """How the histories stand to each other, and how many of the events are in both."""
        length: int = self._staging.scalar(_LENGTH)
        difference: int | None = self._staging.scalar(_FIRST_DIFFERENCE, at)
        if difference is None:
            return "same", _ALL
        if difference <= length:
            return "other", _ALL
        return ("more" if length else "new"), length

    def _break_circle(self) -> bool:
        """Keep a thread apart whose imported dependencies would lead back to it."""
        for unit in self._staging.each(_CONTINUED):
            if leads_back(unit["target"], self._needs):
                self._place(unit, unit["number"] + 1)
                return True
        return False

    def _break_circle_of_facts(self) -> bool:
        """Keep a fact apart whose imported reasons would lead back to it.

        Neither the project nor the file has a circle, so that one of both goes through such a fact.
        """
        if self._staging.one(_FACTS_GO_ON) is None:
            return False
        circles = in_circles(self._premises())
        links: dict[str, list[str]] = defaultdict(list)
        for fact, premise in self._premises() if circles else ():
            if fact in circles:
                links[fact].append(premise)
        for unit in self._staging.each(_CONTINUED_FACTS):
            target = unit["target"]
            if target in circles and leads_back(target, links.__getitem__):
                self._place(unit, unit["number"] + 1)
                return True
        return False

    def _premises(self) -> Iterator[tuple[str, str]]:
        """What each fact of the project will rest on."""
        replaced = {unit["target"] for unit in self._staging.each(_CONTINUED_FACTS)}
        for row in self._tx.each(_PREMISES):
            if row["fact"] not in replaced:
                yield row["fact"], row["premise"]
        for row in self._staging.each(_PREMISES_BROUGHT):
            yield row["fact"], row["premise"]

    def _needs(self, name: str) -> list[str]:
        """What a thread of the project will depend on."""
        imported = self._staging.scalar(_IMPORTED, {"name": name})
        if imported is None:
            return [row["needed"] for row in self._tx.all(_NEEDS, {"name": name})]
        names: list[str] = json.loads(imported)["depends_on"]
        found = (self._staging.scalar(_TARGET, {"name": fold(needed)}) for needed in names)
        return [target for target in found if target is not None]


def _compared(row: Row) -> Params:
    """An event of the project as it is compared."""
    _, inside, inner = row["name"].rpartition(WITHIN)
    kept = None if row["row"] is None else json.loads(row["row"])
    return {
        "seq": row["seq"],
        "side": side_of(row["kind"], row["operation"]),
        "identity": identity(inner if inside else "", row, kept),
    }
