"""Writing the things of an export into a project: everything but events and documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mcp_state.models import FALLEN
from mcp_state.store import journal
from mcp_state.store.text import fold
from mcp_state.store.transaction import Params, Row, Writing
from mcp_state.store.transfer.fields import FIELDS, Field
from mcp_state.store.transfer.staging import Staging

# In the staging database.
_ROWS = """
    SELECT rows.*, target, target_shown, mode FROM rows
    JOIN units ON units.kind = unit_kind AND units.name = unit
    WHERE rows.kind = :kind AND mode IN ('new', 'more') ORDER BY line
"""
_ROWS_OF_FRESH_EVENTS = """
    SELECT rows.*, target, target_shown, mode FROM rows
    JOIN events ON events.seq = rows.event
    JOIN units ON units.kind = rows.unit_kind AND units.name = rows.unit
    WHERE rows.kind = :kind AND events.fresh = 1 ORDER BY rows.line
"""
_CONTINUED = """
    SELECT rows.*, target, target_shown, mode FROM rows
    JOIN units ON units.kind = unit_kind AND units.name = unit
    WHERE rows.kind = :kind AND mode = 'more' ORDER BY line
"""
_KEYS = "SELECT * FROM rows WHERE kind = 'idempotency' ORDER BY line"
_OF_RENAMED_BLOCK = """
    SELECT 1 FROM events JOIN units ON units.kind = unit_kind AND units.name = unit
    WHERE events.kind = 'memory' AND operation = 'append' AND version = :version
        AND target <> units.name
"""
_OF_RENAMED = "SELECT 1 FROM units WHERE kind = :kind AND name = :name AND target <> name"
_TOLD = """
    SELECT 1 FROM events WHERE unit_kind = 'run' AND unit = :unit AND kind = 'run' AND fresh = 1
"""
_NEW = "SELECT new FROM events WHERE seq = :seq"
_TARGET_OF_ACTOR = "SELECT target FROM actors WHERE id = :id"
_TARGET = "SELECT target FROM units WHERE kind = :kind AND name = :name AND shown IS NOT NULL"
_STATED_THERE = """
    SELECT json_extract(data, '$.stated') FROM rows WHERE kind = 'fact' AND key = :name
"""

# In the store.
_LEASED = """
    SELECT name, holder_agent FROM thread_rows
    WHERE project = :project AND name = :target AND lease_over = 0 AND lease_until > :now
"""
_OPEN_THREAD = """
    UPDATE threads SET status = 'active', recheck_at = NULL, lease_token = 0, lease_holder = NULL,
        lease_until = NULL, lease_over = 0
    WHERE project = :project AND name = :target
"""
_NEW_THREAD = """
    INSERT INTO threads (
        project, name, shown, created, created_at, title, status, status_at, changed, changed_at,
        changed_by, version, priority, next_action, waiting_on, recheck_at, "check", evidence,
        note, places
    ) VALUES (
        :project, :target, :target_shown, :created, :created_at, :title, :status, :status_at,
        :changed, :changed_at, :changed_by, :version, :priority, :next_action, :waiting_on,
        :recheck_at, :check, :evidence, :note, :places
    ) ON CONFLICT DO NOTHING
"""
_SET_THREAD = """
    UPDATE threads SET
        title = :title, status = :status, status_at = :status_at, changed = :changed,
        changed_at = :changed_at, changed_by = :changed_by, version = :version,
        priority = :priority, next_action = :next_action, waiting_on = :waiting_on,
        recheck_at = :recheck_at, "check" = :check, evidence = :evidence, note = :note,
        places = :places
    WHERE project = :project AND name = :target
"""
_CRITERION = """
    INSERT INTO criteria (project, thread, number, text, passes, evidence, checked_at, checked_by)
    VALUES (:project, :target, :number, :text, :passes, :evidence, :checked_at, :checked_by)
    ON CONFLICT (project, thread, number) DO UPDATE
       SET passes = excluded.passes, evidence = excluded.evidence,
           checked_at = excluded.checked_at, checked_by = excluded.checked_by
"""
_DROP_NEEDS = "DELETE FROM needs WHERE project = :project AND thread = :target"
_NEED = "INSERT INTO needs (project, thread, needed) VALUES (:project, :target, :needed)"
_RELIES = "INSERT INTO relies (project, thread, fact) VALUES (:project, :target, :fact)"
_DROP_RELIES = "DELETE FROM relies WHERE project = :project AND thread = :target"
_FACT = """
    INSERT INTO facts (
        project, name, shown, created, created_at, changed, changed_at, changed_by, version,
        statement, stated, stated_at, stated_by, replaces, "check", source, trust, trust_at,
        recheck_after, recheck_at, verified, verified_at, verified_by, held, evidence, baseline
    ) VALUES (
        :project, :target, :target_shown, :created, :created_at, :changed, :changed_at,
        :changed_by, :version, :statement, :stated, :stated_at, :stated_by, :replaces, :check,
        :source, :trust, :trust_at, :recheck_after, :recheck_at, :verified, :verified_at,
        :verified_by, :held, :evidence, :baseline
    ) ON CONFLICT (project, name) DO UPDATE
       SET changed = excluded.changed, changed_at = excluded.changed_at,
           changed_by = excluded.changed_by, version = excluded.version,
           statement = excluded.statement, stated = excluded.stated,
           stated_at = excluded.stated_at, stated_by = excluded.stated_by,
           replaces = excluded.replaces, "check" = excluded."check", source = excluded.source,
           trust = excluded.trust, trust_at = excluded.trust_at,
           recheck_after = excluded.recheck_after, recheck_at = excluded.recheck_at,
           verified = excluded.verified, verified_at = excluded.verified_at,
           verified_by = excluded.verified_by, held = excluded.held,
           evidence = excluded.evidence, baseline = excluded.baseline
"""
_STALE = """
    SELECT verified, statement, trust_at, recheck_at FROM facts
    WHERE project = :project AND name = :target AND trust = 'stale'
"""
_STATED_HERE = "SELECT stated FROM facts WHERE project = :project AND name = :name"
_DROP_PREMISES = "DELETE FROM premises WHERE project = :project AND fact = :target"
_PREMISE = """
    INSERT INTO premises (project, fact, reason, premise, given)
    VALUES (:project, :target, :reason, :premise, :given)
"""
_OBJECTIVE = """
    INSERT INTO objectives (
        project, name, shown, created, created_at, changed, changed_at, changed_by, version,
        objective, intent, reason
    ) VALUES (
        :project, :target, :target_shown, :created, :created_at, :changed, :changed_at,
        :changed_by, :version, :objective, :intent, :reason
    ) ON CONFLICT (project, name) DO UPDATE
       SET changed = excluded.changed, changed_at = excluded.changed_at,
           changed_by = excluded.changed_by, version = excluded.version,
           objective = excluded.objective, intent = excluded.intent, reason = excluded.reason
"""
_RUN = """
    INSERT INTO runs (
        project, name, shown, created, created_at, changed, changed_at, changed_by, version,
        touched, touched_at, touched_by, status, goal, expected_outcome, thread, max_attempts,
        max_minutes, max_tokens, stopped, finished_at, result, evidence, reflection
    ) VALUES (
        :project, :target, :target_shown, :created, :created_at, :changed, :changed_at,
        :changed_by, :version, :touched, :touched_at, :touched_by, :status, :goal,
        :expected_outcome, :thread, :max_attempts, :max_minutes, :max_tokens, :stopped,
        :finished_at, :result, :evidence, :reflection
    ) ON CONFLICT (project, name) DO UPDATE
       SET changed = excluded.changed, changed_at = excluded.changed_at,
           changed_by = excluded.changed_by, version = excluded.version,
           touched = excluded.touched, touched_at = excluded.touched_at,
           touched_by = excluded.touched_by, status = excluded.status,
           thread = CASE WHEN :told THEN excluded.thread ELSE runs.thread END,
           max_attempts = excluded.max_attempts, max_minutes = excluded.max_minutes,
           max_tokens = excluded.max_tokens, stopped = excluded.stopped,
           finished_at = excluded.finished_at, result = excluded.result,
           evidence = excluded.evidence, reflection = excluded.reflection
"""
_CHECKPOINT = """
    INSERT INTO checkpoints (
        project, run, number, seq, at, actor, state, next_action, done, total, git
    ) VALUES (
        :project, :target, :number, :seq, :at, :actor, :state, :next_action, :done, :total, :git
    )
"""
_STEP = """
    INSERT INTO steps (
        project, run, name, shown, created, changed, changed_at, changed_by, status, input,
        result, outcome, streak, stopped
    ) VALUES (
        :project, :target, :folded, :name, :created, :changed, :changed_at, :changed_by, :status,
        :input, :result, :outcome, :streak, :stopped
    ) ON CONFLICT (project, run, name) DO UPDATE
       SET changed = excluded.changed, changed_at = excluded.changed_at,
           changed_by = excluded.changed_by, status = excluded.status, input = excluded.input,
           result = excluded.result, outcome = excluded.outcome, streak = excluded.streak,
           stopped = excluded.stopped
"""
_ATTEMPT = """
    INSERT INTO attempts (
        project, run, step, number, begun, begun_at, begun_by, input, ended, ended_at, ended_by,
        ok, result, tokens_in, tokens_out
    ) VALUES (
        :project, :target, :step, :number, :begun, :begun_at, :begun_by, :input, :ended,
        :ended_at, :ended_by, :ok, :result, :tokens_in, :tokens_out
    ) ON CONFLICT (project, run, step, number) DO UPDATE
       SET ended = excluded.ended, ended_at = excluded.ended_at, ended_by = excluded.ended_by,
           ok = excluded.ok, result = excluded.result, tokens_in = excluded.tokens_in,
           tokens_out = excluded.tokens_out
"""
_MESSAGE = """
    INSERT INTO messages (project, run, number, seq, message)
    VALUES (:project, :target, :number, :seq, :message)
"""
_BLOCK = """
    INSERT INTO memory (project, run, name, shown, value, version, changed, changed_at, changed_by,
                        expires_at, locked)
    VALUES (:project, :run, :folded, :shown, :value, :version, :changed, :changed_at,
            :changed_by, :expires_at, :locked)
    ON CONFLICT (project, run, name) DO UPDATE
       SET value = excluded.value, version = excluded.version, changed = excluded.changed,
           changed_at = excluded.changed_at, changed_by = excluded.changed_by,
           expires_at = excluded.expires_at, locked = excluded.locked
"""
_ENTRY = """
    INSERT INTO journal (project, seq, id, at, actor, kind, thread, text, run)
    VALUES (:project, :seq, :id, :at, :actor, :kind, :thread, :text, :run)
"""
_NEW_ENTRIES = """
    SELECT seq, kind, thread, run, agent FROM journal JOIN actors ON actors.id = actor
    WHERE project = :project AND seq > :last ORDER BY seq
"""
_BLOB = """
    INSERT INTO blobs (project, key, sha256, bytes, characters, created, created_at, changed,
                       changed_at, changed_by, version, summary, expires_at, text)
    VALUES (:project, :key, :sha256, :bytes, :characters, :created, :created_at, :changed,
            :changed_at, :changed_by, :version, :summary, :expires_at, :text)
    ON CONFLICT (project, key) DO UPDATE
       SET changed = excluded.changed, changed_at = excluded.changed_at,
           changed_by = excluded.changed_by, version = excluded.version,
           summary = excluded.summary, expires_at = excluded.expires_at
"""
_HANDOFF = """
    INSERT INTO handoffs (project, key, created, created_at, created_by, recipient, note,
                          exported_at, accepted_at, accepted_by)
    VALUES (:project, :key, :created, :created_at, :created_by, :recipient, :note,
            :exported_at, :accepted_at, :accepted_by)
    ON CONFLICT (project, key) DO UPDATE
       SET exported_at = excluded.exported_at, accepted_at = excluded.accepted_at,
           accepted_by = excluded.accepted_by
"""
_KEY = """
    INSERT INTO idempotency (project, operation, key, digest, seq)
    VALUES (:project, :operation, :key, :digest, :seq) ON CONFLICT DO NOTHING
"""
_MOST_ACTORS = 1000


class Rows:
    """Writes the rows of an export that are news to the project of a transaction."""

    def __init__(self, tx: Writing, staging: Staging) -> None:
        self._tx = tx
        self._staging = staging
        self._actors: dict[int, int] = {}
        self.leased: list[tuple[str, str]] = []
        """Threads that somebody held when an imported change came to them, and by whom."""
        self.kept_stale: list[str] = []
        """Facts that had fallen here, and that nothing in the file brings back."""

    def write(self, last: int) -> None:
        """Write all of them; `last` was the last event before."""
        self._write_facts()
        self._write_threads()
        self._write(_OBJECTIVE, "objective")
        self._write(_RUN, "run")
        self._write(_CHECKPOINT, "checkpoint", _ROWS_OF_FRESH_EVENTS)
        self._write(_STEP, "step")
        self._write(_ATTEMPT, "attempt")
        self._write(_MESSAGE, "message", _ROWS_OF_FRESH_EVENTS)
        self._write(_BLOCK, "memory")
        self._write(_ENTRY, "journal", _ROWS_OF_FRESH_EVENTS)
        self._tx.run_many(journal.TOPIC, self._topics(last))
        self._write(_BLOB, "blob")
        self._write(_HANDOFF, "handoff")
        self._tx.run_many(_KEY, self._keys())

    def _topics(self, last: int) -> Iterator[Params]:
        """Entry by entry: to number them all in one statement, SQLite would sort them in memory."""
        for row in self._tx.each(_NEW_ENTRIES, {"last": last}):
            for topic in journal.topics_of(row["agent"], row):
                yield {"project": self._tx.project, "topic": topic, "seq": row["seq"]}

    def _write(self, statement: str, kind: str, chosen: str = _ROWS) -> None:
        rows = self._staging.each(chosen, {"kind": kind})
        self._tx.run_many(statement, map(self._values, rows))

    def _write_facts(self) -> None:
        for row in self._staging.each(_CONTINUED, {"kind": "fact"}):
            self._tx.run(_DROP_PREMISES, {"target": row["target"]})
        self._write(_FACT, "fact")
        self._tx.run_many(_PREMISE, self._premises())

    def _premises(self) -> Iterator[Mapping[str, Any]]:
        for row in self._staging.each(_ROWS, {"kind": "fact"}):
            self._staging.line = row["line"]
            at = {"project": self._tx.project, "target": row["target"]}
            data = json.loads(row["data"])
            reasons = zip(data["reasons"], data["given"], strict=True)
            for number, reason in enumerate(reasons, 1):
                for premise, given in zip(*reason, strict=True):
                    target = self._target("fact", premise)
                    here = {"premise": target, "given": self._given(given, premise, target)}
                    yield at | {"reason": number} | here

    def _given(self, event: int, premise: str, target: str) -> int:
        """The event with which a reason was given, or one that reads the same in its place.

        It was given for another statement if the premise was replaced since in the file, or says
        something else here. Here, events may stand in another order.
        """
        there: int = self._staging.scalar(_STATED_THERE, {"name": premise})
        here: int = self._tx.scalar(_STATED_HERE, {"name": target})
        is_replaced = event < there or self._number(there) != here
        new: int | None = self._staging.scalar(_NEW, {"seq": event})
        if new is not None and (new < here) == is_replaced:
            return new
        return 0 if is_replaced else here

    def _write_threads(self) -> None:
        """A thread that goes on is open, and free of what it needed, while its criteria change."""
        for row in self._staging.each(_CONTINUED, {"kind": "thread"}):
            target = {"target": row["target"]}
            held = self._tx.one(_LEASED, target)
            if held is not None:
                self.leased.append((held["name"], held["holder_agent"]))
            self._tx.run(_OPEN_THREAD, target)
            self._tx.run(_DROP_NEEDS, target)
            self._tx.run(_DROP_RELIES, target)
        self._write(_NEW_THREAD, "thread")
        self._write(_CRITERION, "criterion")
        self._write(_SET_THREAD, "thread", _CONTINUED)
        self._tx.run_many(_NEED, self._needs())
        self._tx.run_many(_RELIES, self._relies())

    def _needs(self) -> Iterator[Mapping[str, Any]]:
        for row in self._staging.each(_ROWS, {"kind": "thread"}):
            self._staging.line = row["line"]
            for needed in json.loads(row["data"])["depends_on"]:
                yield {
                    "project": self._tx.project,
                    "target": row["target"],
                    "needed": self._target("thread", fold(needed)),
                }

    def _relies(self) -> Iterator[Mapping[str, Any]]:
        for row in self._staging.each(_ROWS, {"kind": "thread"}):
            self._staging.line = row["line"]
            at = {"project": self._tx.project, "target": row["target"]}
            for fact in json.loads(row["data"])["relies_on"]:
                yield at | {"fact": self._target("fact", fact)}

    def _keys(self) -> Iterator[Mapping[str, Any]]:
        """The idempotency keys that still mean what they meant.

        The key of an append to a block stands with a version and a digest that holds the name of
        the block: if it may be one that was kept apart, it is left out. So is what says that a
        thing came from another tool, if it was kept apart.
        """
        for row in self._staging.each(_KEYS):
            values = json.loads(row["data"]) | {"project": self._tx.project}
            if values["operation"] == "journal_append":
                values["seq"] = self._staging.scalar(_NEW, {"seq": values["seq"]})
                if values["seq"] is None:
                    continue
            elif values["operation"] == "import":
                if self._of_renamed(values["key"]):
                    continue
            elif self._staging.one(_OF_RENAMED_BLOCK, {"version": values["seq"]}) is not None:
                continue
            yield values

    def _of_renamed(self, key: str) -> bool:
        """Whether FORMAT:KIND:NAME is a thing that was kept apart."""
        kind, _, name = key.partition(":")[2].partition(":")
        at = {"kind": "memory" if kind == "block" else kind, "name": name}
        return self._staging.one(_OF_RENAMED, at) is not None

    def _values(self, row: Row) -> Mapping[str, Any]:
        """What a row of the file is in the project."""
        self._staging.line = row["line"]
        kind, target = row["kind"], row["target"]
        values: dict[str, Any] = json.loads(row["data"])
        for key, field in FIELDS[kind].items():
            values[key] = self._translated(field, values[key])
        values |= {"project": self._tx.project, "target": target}
        values["target_shown"] = row["target_shown"]
        if kind == "step":
            values["folded"] = fold(values["name"])
        elif kind == "run":  # its thread may have parted since the last event that names it came
            values["told"] = self._staging.one(_TOLD, {"unit": row["unit"]}) is not None
        elif kind == "attempt":
            values["step"] = fold(values["step"])
        elif kind == "memory":
            inside = row["unit_kind"] == "run"
            values["folded"] = fold(values["name"]) if inside else target
            values["shown"] = values["name"] if inside else row["target_shown"]
        elif kind == "fact" and row["mode"] == "more":
            values |= self._kept_stale(values)
        return values

    def _kept_stale(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """A fact that fell here stays so, unless it was verified since, or says something else."""
        here = self._tx.one(_STALE, {"target": values["target"]})
        if here is None or values["trust"] in FALLEN or values["statement"] != here["statement"]:
            return {}
        if values["verified"] not in (None, here["verified"]):
            return {}
        self.kept_stale.append(values["target"])
        return {"trust": "stale", "trust_at": here["trust_at"], "recheck_at": here["recheck_at"]}

    def _translated(self, field: Field, value: Any) -> Any:
        if value is None:
            return None
        match field.means:
            case "event":
                return self._number(value)
            case "actor":
                return self._actor(value)
            case "thread" | "run":
                return self._target(field.means, value) if value else ""
            case "json":
                return json.dumps(value, ensure_ascii=False)
            case _:
                return value

    def _number(self, seq: int) -> int:
        new = self._staging.scalar(_NEW, {"seq": seq})
        if new is None:
            raise self._staging.refusal(f"event {seq} is none of what it stands with")
        return new

    def _actor(self, actor: int) -> int:
        if actor not in self._actors:
            if len(self._actors) >= _MOST_ACTORS:
                self._actors.clear()
            self._actors[actor] = self._staging.scalar(_TARGET_OF_ACTOR, {"id": actor})
        return self._actors[actor]

    def _target(self, kind: str, name: str) -> str:
        target = self._staging.scalar(_TARGET, {"kind": kind, "name": name})
        if target is None:
            raise self._staging.refusal(f"the {kind} {name!r} is not in the file")
        return target
