"""Reading an export line by line into the staging database, and checking all of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, cast

from mcp_state.errors import SecretRefused
from mcp_state.store.text import WITHIN, credential_in, fold, may_hold_credential
from mcp_state.store.transfer.agreement import contradiction
from mcp_state.store.transfer.exporting import message_text
from mcp_state.store.transfer.fields import (
    ACTOR,
    EVENT,
    EVENT_WITHIN,
    SINCE_2,
    Line,
    fields_of,
)
from mcp_state.store.transfer.identity import identity, side_of
from mcp_state.store.transfer.lines import LineReader, decode, texts_in
from mcp_state.store.transfer.staging import IN_RUNS, Staging

_ACTOR = """
    INSERT INTO actors (agent, client, session, worktree)
    VALUES (:agent, :client, :session, :worktree)
    ON CONFLICT (agent, client, session, worktree) DO UPDATE SET agent = excluded.agent RETURNING id
"""
_UNIT = """
    INSERT INTO units (kind, name, shown, line, target, target_shown)
    VALUES (:unit_kind, :unit, :shown, :line, :unit, :shown)
"""
_ROW = """
    INSERT INTO rows (line, kind, key, unit_kind, unit, thing, event, data)
    VALUES (:line, :kind, :key, :unit_kind, :unit, :thing, :event, :data)
"""
_EVENT = """
    INSERT INTO events (seq, line, at, actor, run, kind, name, operation, summary, version, row,
                        unit_kind, unit, thing, side, identity)
    VALUES (:event, :line, :at, :actor, :run, :kind, :name, :operation, :summary, :version, :row,
            :unit_kind, :unit, :thing, :side, :identity)
"""
_HANDOFF = "SELECT 1 FROM units WHERE kind = 'handoff' AND name = :key AND shown IS NOT NULL"

_NAMED = ("thread", "memory", "fact", "objective")
_OF_RUNS = ("run", "transcript", "trace")
_EVENT_OF = {
    "thread": "changed",
    "run": "changed",
    "checkpoint": "seq",
    "step": "changed",
    "attempt": "begun",
    "message": "seq",
    "memory": "changed",
    "journal": "seq",
    "blob": "changed",
    "handoff": "created",
    "fact": "changed",
    "objective": "changed",
}
_KEYS: Mapping[str, tuple[str, ...]] = {
    "criterion": ("thread", "number"),
    "checkpoint": ("run", "number"),
    "step": ("run", "name"),
    "attempt": ("run", "step", "number"),
    "message": ("run", "number"),
    "memory": ("run", "name"),
    "journal": ("id",),
    "blob": ("key",),
    "handoff": ("key",),
    "idempotency": ("operation", "key"),
}
_MOST_ACTORS = 1000
_encode = json.JSONEncoder(ensure_ascii=False).encode

Done = Callable[[int], None]


def read_file(file: BinaryIO, name: str, allow_secrets: bool, done: Done) -> Staging:
    """Read and check a whole export.

    Args:
        file: the export, from its beginning.
        name: what to call it in an error.
        allow_secrets: take what looks like a credential.
        done: is told how many bytes were read.

    Raises:
        BadArgument: it is no export, or not as it was written: with the line, and what is wrong.
        SecretRefused: a text in it has the shape of a credential.
    """
    reader = LineReader(file, name)
    header = reader.header()
    staging = Staging(reader)
    staging.header = header
    try:
        staging.run("BEGIN")
        loader = _Loader(staging, allow_secrets)
        for line in reader.lines():
            try:
                loader.add(line)
            except RecursionError:
                raise reader.refusal("it is nested too deeply") from None
            if reader.number % 256 == 0:
                done(reader.bytes)
        loader.check()
        staging.run("COMMIT")
    except BaseException:
        staging.close()
        raise
    return staging


class _Loader:
    """Puts line after line into the staging database."""

    def __init__(self, staging: Staging, allow_secrets: bool) -> None:
        self._staging = staging
        self._reader = staging.reader
        self._fields = fields_of(staging.header.format)
        self._allow_secrets = allow_secrets
        self._events = 0
        self._actors: dict[tuple[str, ...], int] = {}

    def add(self, line: Line) -> None:
        """Check one line, and keep it."""
        if "event" in line:
            self._add_event(line)
        else:
            kinds = list(line)
            known = len(kinds) == 1 and kinds[0] in self._fields
            if not known or not isinstance(line[kinds[0]], dict):
                raise self._reader.refusal(f"what is {', '.join(map(repr, kinds[:5]))}?")
            if self._events:
                raise self._reader.refusal(f"a {kinds[0]} stands among the events")
            self._add_row(kinds[0], dict(cast(Line, line[kinds[0]])))
        if not self._allow_secrets and may_hold_credential(self._reader.text):
            self._refuse_secrets(line)

    def check(self) -> None:
        """Whether the lines belong together."""
        header = self._staging.header
        if self._events != header.events:
            raise self._reader.refusal(
                f"there are {self._events:,} events; the first line says {header.events:,}"
            )
        self._staging.index()
        if (found := contradiction(self._staging)) is not None:
            line, what = found
            raise self._reader.refusal(what, line)
        if header.handoff and self._staging.one(_HANDOFF, {"key": header.handoff}) is None:
            raise self._reader.refusal("the handoff that it names is not in the file", 1)

    def _add_row(self, kind: str, row: dict[str, Any]) -> None:
        fields = self._fields[kind]
        self._reader.check(row, fields, f"the {kind}")
        for key, field in fields.items():
            value = row[key]
            if field.means == "actor" and value is not None:
                row[key] = self._actor(value)
            elif field.means == "event" and value is not None and value > self._most():
                raise self._reader.refusal(f"{key!r} of the {kind} is {value}, which is no event")
            elif field.means in ("thread", "run"):
                row[key] = fold(row[key])
        row = {**SINCE_2.get(kind, {}), **row}
        self._check_content(kind, row)
        unit_kind, unit, shown = _unit_of_row(kind, row)
        key = (_key_part(column, row[column]) for column in _KEYS.get(kind, ("name",)))
        staged = {
            "line": self._reader.number,
            "kind": kind,
            "key": WITHIN.join(key),
            "unit_kind": unit_kind,
            "unit": unit,
            "thing": _thing(unit_kind, kind, row),
            "event": row[_EVENT_OF[kind]] if kind in _EVENT_OF else 0,
            "data": _encode(row),
            "shown": shown,
        }
        try:
            if shown:
                self._staging.run(_UNIT, staged)
            self._staging.run(_ROW, staged)
        except sqlite3.IntegrityError:
            raise self._reader.refusal(f"this {kind} is in the file twice") from None

    def _most(self) -> int:
        return self._staging.header.events

    def _check_content(self, kind: str, row: dict[str, Any]) -> None:
        if kind == "blob":
            data = row["text"].encode()
            sizes = (len(data), len(row["text"]))
            digest = hashlib.sha256(data).hexdigest()
            if (row["bytes"], row["characters"], row["sha256"]) != (*sizes, digest):
                raise self._reader.refusal("the text of the blob is not what its hash says")
        elif kind == "message":
            row["message"] = self._message(row["message"])
        elif kind == "thread":
            row["relies_on"] = list(map(fold, row["relies_on"]))
        elif kind == "fact":
            row["reasons"] = [list(map(fold, reason)) for reason in row["reasons"]]
            if list(map(len, row["reasons"])) != list(map(len, row["given"])):
                raise self._reader.refusal("'given' of the fact does not go with its 'reasons'")

    def _message(self, message: object) -> str:
        """The text of a message, which may come as its text."""
        if not isinstance(message, str):
            return message_text(message)
        with contextlib.suppress(ValueError):
            if isinstance(decode(message), dict):
                return message
        raise self._reader.refusal("the text of the message is no JSON object")

    def _add_event(self, line: Line) -> None:
        within = "within" in line
        self._reader.check(line, EVENT_WITHIN if within else EVENT, "the event")
        if line["event"] != self._events + 1:
            raise self._reader.refusal(
                f"event {line['event']} stands where event {self._events + 1} should be"
            )
        self._events += 1
        unit_kind, unit = self._unit_of_event(line)
        side = side_of(line["kind"], line["operation"])
        row, kind = line["row"], line["kind"]
        name: str = line["name"]
        if kind == "journal" and side == 0 and name != str(line["event"]):
            raise self._reader.refusal(f"the entry is called {name!r}, not {line['event']}")
        inner = fold(name) if within else ""
        self._staging.run(
            _EVENT,
            {
                **line,
                "line": self._reader.number,
                "actor": self._actor({column: line[column] for column in ACTOR}),
                "run": fold(line["run"]),
                "name": name,
                "thing": inner,
                "row": None if row is None else _encode(row),
                "unit_kind": unit_kind,
                "unit": unit,
                "side": side,
                "identity": None if kind == "journal" and side == 0 else identity(inner, line, row),
            },
        )

    def _unit_of_event(self, line: Line) -> tuple[str, str]:
        kind = line["kind"]
        if "within" in line:
            if kind not in IN_RUNS:
                raise self._reader.refusal(f"a {kind} is not within a run")
            return "run", fold(line["within"])
        if kind in IN_RUNS and kind != "memory":
            raise self._reader.refusal(f"a {kind} is within a run")
        if kind in _OF_RUNS:
            return "run", fold(line["name"])
        if kind in ("journal", "project"):
            return kind, ""
        return kind, fold(line["name"]) if kind in _NAMED else line["name"]

    def _actor(self, actor: Line) -> int:
        key = tuple(actor[column] for column in ACTOR)
        if key not in self._actors:
            if len(self._actors) >= _MOST_ACTORS:
                self._actors.clear()
            self._actors[key] = self._staging.scalar(_ACTOR, actor)
        return self._actors[key]

    def _refuse_secrets(self, line: Line) -> None:
        for text in texts_in(line):
            if (found := credential_in(text)) is not None:
                kind, position = found
                raise SecretRefused(
                    f"not imported: {self._reader.place()} holds what looks like {kind}, at "
                    f"character {position} of a text",
                    "Nothing was imported. --allow-secrets takes it as it is.",
                )


def _unit_of_row(kind: str, row: Line) -> tuple[str, str, str]:
    """Kind and name of the unit, and the name as shown if the row is what the unit is about."""
    if kind in ("thread", "run", "fact", "objective"):
        return kind, fold(row["name"]), row["name"]
    if kind == "memory" and not row["run"]:
        return kind, fold(row["name"]), row["name"]
    if kind in ("blob", "handoff"):
        return kind, row["key"], row["key"]
    if kind == "criterion":
        return "thread", row["thread"], ""
    if kind in ("journal", "idempotency"):
        return kind, "", ""
    return "run", row["run"], ""


def _thing(unit_kind: str, kind: str, row: Line) -> str:
    """The name inside the unit of what has events of its own there."""
    if unit_kind != "run" or kind not in IN_RUNS:
        return ""
    return str(row["number"]) if kind == "checkpoint" else fold(row["name"])


def _key_part(column: str, value: Any) -> str:
    return fold(value) if column in ("name", "step") else str(value)
