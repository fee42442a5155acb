"""Every text of the store, and what becomes of it when a value is taken out.

The tables and columns are those of the schema, so that none is forgotten; what the store itself
wrote there (times, kinds, digests) is left alone, and named in `OURS`. A name becomes another one
wherever it stands, so that all that leads to it still does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mcp_state.errors import BadArgument, Conflict
from mcp_state.models import PurgedPlace
from mcp_state.store.consistency import document_of
from mcp_state.store.outcomes import digest
from mcp_state.store.purge.value import MARK, Replacing, Value, folded
from mcp_state.store.text import LONGEST_NAME, WITHIN, fold, within
from mcp_state.store.transaction import Reading, Row, Writing

OURS = frozenset(
    {
        *("events.kind", "events.operation", "idempotency.operation", "idempotency.digest"),
        *("threads.status", "runs.status", "runs.stopped", "steps.status"),
        *("facts.trust", "facts.replaces", "journal.id", "handoffs.key", "documents.kind"),
    }
)
"""Texts that no caller gives, besides times."""
_APART = frozenset({"store", "projects", "project_names", "directories", "actors", "documents"})
"""Tables that are not gone through row by row, or not as the others are."""
_BLOB = frozenset({"blobs.key", "blobs.sha256", "blobs.text"})
_JSON = frozenset({"threads.places", "checkpoints.git"})

_TABLES = """
    SELECT name FROM pragma_table_list
    WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name
"""
_COLUMNS = "SELECT name, type FROM pragma_table_info(:table)"
_SCHEMA = "SELECT coalesce(group_concat(sql, ' '), '') FROM sqlite_schema"
_PARENTS = 'SELECT DISTINCT "table" FROM pragma_foreign_key_list(:table)'
_TO_ACTORS = """
    SELECT "from" FROM pragma_foreign_key_list(:table) WHERE "table" = 'actors'
"""
_PROJECTS = "SELECT id, shown, merged_into, last_event FROM projects ORDER BY id"
_NAMES = (
    "SELECT name FROM memory ORDER BY rowid",
    "SELECT name FROM threads ORDER BY rowid",
    "SELECT name FROM runs ORDER BY rowid",
    "SELECT name FROM steps ORDER BY rowid",
    "SELECT name FROM facts ORDER BY rowid",
    "SELECT name FROM objectives ORDER BY rowid",
    "SELECT shown FROM memory ORDER BY rowid",
    "SELECT shown FROM threads ORDER BY rowid",
    "SELECT shown FROM runs ORDER BY rowid",
    "SELECT shown FROM steps ORDER BY rowid",
    "SELECT shown FROM facts ORDER BY rowid",
    "SELECT shown FROM project_names ORDER BY rowid",
    "SELECT shown FROM projects ORDER BY rowid",
)
_EXACT = (
    "SELECT agent FROM actors ORDER BY id",
    "SELECT client FROM actors ORDER BY id",
    "SELECT session FROM actors ORDER BY id",
    "SELECT worktree FROM actors ORDER BY id",
    "SELECT anchor FROM directories ORDER BY rowid",
    "SELECT key FROM idempotency ORDER BY rowid",
    "SELECT text FROM criteria ORDER BY rowid",
)
"""What has to stay different from its equals, and is not compared folded."""
_EXACTLY = frozenset(
    {
        *("directories.anchor", "idempotency.key", "criteria.text"),
        *("last_events.agent", "last_events.session", "last_events.worktree"),
    }
)
_SHARED: Mapping[str, str] = {
    "projects": "SELECT rowid AS at, id AS project, shown FROM projects",
    "project_names": "SELECT rowid AS at, project, name, shown FROM project_names",
    "directories": "SELECT rowid AS at, project, anchor FROM directories",
}
_ACTORS = "SELECT * FROM actors"
_OF_ACTOR = ("agent", "client", "session", "worktree")
_SET_ACTOR = """
    UPDATE actors
    SET agent = :agent, client = :client, session = :session, worktree = :worktree WHERE id = :id
"""
_NEW_ACTOR = """
    INSERT INTO actors (agent, client, session, worktree)
    VALUES (:agent, :client, :session, :worktree) RETURNING id
"""
_ATTEMPTS = "SELECT project, ok, result FROM attempts WHERE result <> ''"
_BLOBS = "SELECT rowid AS at, project, key, sha256, text FROM blobs"
_BLOB_KEY = "SELECT 1 FROM blobs WHERE project = :project AND key = :key"
_SET_BLOB = """
    UPDATE blobs SET key = :key, sha256 = :sha256, bytes = :bytes, characters = :characters,
        text = :text
    WHERE rowid = :at
"""
_BLOB_SIZES = "SELECT bytes, characters FROM blobs WHERE project = :project AND key = :key"
_TOPICS = "SELECT DISTINCT project, topic FROM journal_topics"
_SET_TOPIC = """
    UPDATE journal_topics SET topic = :new WHERE project = :project AND topic = :topic
"""
_FORGET_DIGEST = """
    UPDATE idempotency SET digest = ''
    WHERE project = :project AND operation = :operation AND seq = :number
"""
_APPENDED = """
    SELECT seq, row FROM events
    WHERE project = :project AND kind = 'transcript' AND operation = 'append' AND name = :run
    ORDER BY seq
"""
_MESSAGES = """
    SELECT message FROM messages
    WHERE project = :project AND run = :run AND number BETWEEN :first AND :last ORDER BY number
"""
_SET_EVENT = "UPDATE events SET row = :row WHERE project = :project AND seq = :number"
_SET_DOCUMENT = """
    UPDATE documents SET name = :name, shown = :shown, text = :text, short = :short WHERE id = :id
"""
_OF_DOCUMENT: Mapping[str, str] = {
    "memory": """
        SELECT * FROM memory_rows WHERE project = :project AND run = :run AND name = :inner
    """,
    "thread": "SELECT * FROM thread_rows WHERE project = :project AND name = :name",
    "journal": """
        SELECT *, CAST(seq AS TEXT) AS name FROM journal_rows
        WHERE project = :project AND seq = CAST(:name AS INTEGER)
    """,
    "run": "SELECT * FROM run_rows WHERE project = :project AND name = :name",
    "blob": "SELECT *, key AS name FROM blob_rows WHERE project = :project AND key = :name",
    "fact": "SELECT * FROM fact_rows WHERE project = :project AND name = :name",
}

_SUBJECTS: Mapping[str, tuple[str, str, str]] = {
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
"""What a row is about: a kind, and the columns with the run it is in and with its name."""
_ELSE = {"idempotency": "idempotency key", "last_events": "actor"}


class Search:
    """One walk through the store, which finds the value; `Rewriting` takes it out too.

    `projects` are the ids of those that are meant, `places` what was found in them. `elsewhere`
    says that another one holds it, `outside` that what comes from outside of the store does: a
    directory, an agent, the name of a project.
    """

    def __init__(
        self, tx: Reading, value: Value, every_project: bool, step: Callable[[], None]
    ) -> None:
        self.tx = tx
        self.elsewhere = self.outside = False
        self._step = step
        self._value = value
        self._names = {row["id"]: row["shown"] for row in tx.all(_PROJECTS)}
        self.projects = {
            row["id"]
            for row in tx.all(_PROJECTS)
            if every_project or tx.project in (row["id"], row["merged_into"])
        }
        self.new = Replacing(value, MARK)
        self._found: dict[tuple[int, str], dict[str, int]] = {}

    def walk(self) -> None:
        """Go through everything.

        Raises:
            BadArgument: the value is a word that the store itself is made of.
            Conflict: no mark fits into the names that hold it.
        """
        if self._value.folded in folded(self.tx.scalar(_SCHEMA)):
            raise BadArgument(
                "the text to purge is a word that the store itself is made of, such as the name "
                "of a column",
                "Nothing was changed. Give more of it, such as the words around it.",
            )
        self._choose_mark()
        self._begin()
        self._attempts()
        self._blobs()
        self._shared()
        self._actors()
        for table in self.tables():
            if table == "journal_topics":
                self._topics()
            elif table not in _APART:
                self._table(table)
        self._documents()
        self._end()

    @property
    def places(self) -> list[PurgedPlace]:
        """What was found, by subject."""
        shown = {id_: self.new.text(name) for id_, name in self._names.items()}
        return [
            PurgedPlace(shown[project], subject, list(fields), sum(fields.values()))
            for (project, subject), fields in self._found.items()
        ]

    def names_of_projects(self) -> list[str]:
        """Where something was found."""
        return list(dict.fromkeys(place.project for place in self.places))

    def found_in(self, project: int) -> list[tuple[str, int]]:
        """The subjects of a project that held it, each with the number of places."""
        return [
            (subject, sum(fields.values()))
            for (one, subject), fields in self._found.items()
            if one == project
        ]

    # What a walk that changes something does besides

    def _begin(self) -> None:
        """Before anything is changed."""

    def _set(self, table: str, at: int, changes: Mapping[str, Any]) -> None:
        """A row is to say something else."""

    def _set_blob(self, row: Row, new: Mapping[str, Any]) -> None:
        """A blob is to hold another text."""

    def _set_actor(self, row: Row, new: Mapping[str, str], moves: bool) -> None:
        """An actor is to be another one, in these projects alone if it `moves`."""

    def _set_topic(self, row: Row, new: str) -> None:
        """A topic is to be called something else."""

    def _set_document(self, row: Row, name: str) -> None:
        """A document is to be made anew out of its row."""

    def _end(self) -> None:
        """When all rows were seen."""

    # The walk

    def _choose_mark(self) -> None:
        """A mark that keeps names apart which are apart, and within their length."""
        names = [name for sql in _NAMES for (name,) in self.tx.each(sql) if self._is_in(name)]
        exact = [text for sql in _EXACT for (text,) in self.tx.each(sql) if self._is_in(text)]
        if not names and not exact:
            return
        for mark in _marks():
            new = Replacing(self._value, mark)
            longest = max((len(new.text(name)) for name in names), default=0)
            if (longest <= LONGEST_NAME or longest <= max(map(len, names), default=0)) and (
                self._value.folded not in mark and not self._is_taken(mark)
            ):
                self.new = new
                break
        else:
            raise Conflict(
                "no mark is left that would keep apart the names which hold the text to purge",
                "Nothing was changed. Purge a longer text, such as the whole name.",
            )
        self.new.names = self._apart(names, fold)
        self.new.exact = self._apart(exact, str)

    def _apart(self, texts: Sequence[str], key: Callable[[str], str]) -> dict[str, str]:
        """By what would become the same as another one: a mark of its own."""
        marks: dict[str, str] = {}
        by_new: dict[str, str] = {}
        free = (mark for mark in _marks() if mark != self.new.mark and not self._is_taken(mark))
        for text in {key(text): text for text in texts}.values():
            new = self.new.text(text)
            while by_new.setdefault(folded(new), key(text)) != key(text):
                marks[key(text)] = mark = next(free)
                new = self._value.out_of(text, mark)
        return marks

    def _is_in(self, text: str) -> bool:
        return self.new.text(text) != text

    def _is_taken(self, mark: str) -> bool:
        return any(
            mark in folded(text) for sql in (*_NAMES, *_EXACT) for (text,) in self.tx.each(sql)
        )

    def tables(self) -> list[str]:
        """The tables of the schema without those of the index; what refers comes first.

        A name that another table refers to would else change there behind our back.
        """
        tables = [table for (table,) in self.tx.all(_TABLES) if not table.startswith("search")]
        parents = {
            table: {parent for (parent,) in self.tx.all(_PARENTS, {"table": table})} - {table}
            for table in tables
        }
        order: list[str] = []
        while parents:
            referred = set[str]().union(*parents.values())
            first = [table for table in parents if table not in referred]
            order += first
            for table in first:
                del parents[table]
        return order

    def columns(self, table: str) -> list[str]:
        """The columns of a table with texts that were given, or made of such."""
        return [
            row["name"]
            for row in self.tx.all(_COLUMNS, {"table": table})
            if row["type"] == "TEXT" and not _is_ours(f"{table}.{row['name']}")
        ]

    def _is_meant(self, project: int) -> bool:
        return project in self.projects

    def _add(self, project: int, subject: str, field: str) -> None:
        subject = subject.replace(WITHIN, "/")
        fields = self._found.setdefault((project, subject), {})
        fields[field] = fields.get(field, 0) + 1

    def _attempts(self) -> None:
        """The digests of outcomes, by those of what is left of the results."""
        for row in self.tx.each(_ATTEMPTS):
            if self._is_meant(row["project"]) and self._is_in(row["result"]):
                ok, old = bool(row["ok"]), row["result"]
                self.new.keys[digest(ok, old)] = digest(ok, self._value.out_of(old, self.new.mark))

    def _blobs(self) -> None:
        taken: set[tuple[int, str]] = set()
        for row in self.tx.each(_BLOBS):
            self._step()
            text = self._value.out_of(row["text"], self.new.mark)
            if text == row["text"]:
                continue
            if not self._is_meant(row["project"]):
                self.elsewhere = True
                continue
            new = self._blob_of(row, text, taken)
            self._set_blob(row, new)
            self.new.keys |= {row["key"]: new["key"], row["sha256"]: new["sha256"]}
            self._add(row["project"], f"blob:{new['key']}", "text")

    def _blob_of(self, row: Row, text: str, taken: set[tuple[int, str]]) -> Mapping[str, Any]:
        """A blob with another text, and so with another key; that of no other blob."""
        project, number = row["project"], 1
        while True:
            data = text.encode()
            sha256 = hashlib.sha256(data).hexdigest()
            key = row["key"][:2] + sha256[: len(row["key"]) - 2]
            there = self.tx.one(_BLOB_KEY, {"project": project, "key": key})
            if there is None and (project, key) not in taken:
                break
            number += 1
            text = self._value.out_of(row["text"], f"{self.new.mark[:-1]} {number}]")
        taken.add((project, key))
        sizes = {"bytes": len(data), "characters": len(text)}
        return {"key": key, "sha256": sha256, "text": text, **sizes}

    def _shared(self) -> None:
        """The names of projects, and the directories that lead to them."""
        for table, sql in _SHARED.items():
            columns = self.columns(table)
            for row in self.tx.each(sql):
                new = {column: self._renewed(table, column, row, row[column]) for column in columns}
                changes = {column: text for column, text in new.items() if text != row[column]}
                if not changes:
                    continue
                if not self._is_meant(row["project"]):
                    self.elsewhere = True
                    continue
                self.outside = True
                self._set(table, row["at"], changes)
                for column in changes:
                    field = "directory" if column == "anchor" else "name"
                    self._add(row["project"], "project", field)

    def _actors(self) -> None:
        found: list[tuple[Row, Mapping[str, str]]] = []
        for row in self.tx.each(_ACTORS):
            new = {c: self.new.exactly(row[c]) for c in _OF_ACTOR}
            if any(new[column] != row[column] for column in new):
                found.append((row, new))
        at_work = self._at_work() if found else {}
        for row, new in found:
            projects = at_work.get(row["id"], set())
            meant = projects & self.projects
            others = projects - self.projects
            self.elsewhere = self.elsewhere or bool(others)
            if others and not meant:
                continue
            self.outside = True
            self._set_actor(row, new, bool(others))
            for column in new:
                if new[column] != row[column]:
                    self._add(min(meant or self.projects), "actor", column)

    def _at_work(self) -> dict[int, set[int]]:
        """Which actors wrote in which projects."""
        projects: dict[int, set[int]] = {}
        for table, column in self._to_actors():
            sql = f'SELECT DISTINCT project, "{column}" FROM "{table}"'  # noqa: S608 (the schema's)
            for project, actor in self.tx.all(sql):
                projects.setdefault(actor, set()).add(project)
        return projects

    def _to_actors(self) -> list[tuple[str, str]]:
        """The columns that lead to actors."""
        return [
            (table, column)
            for table in self.tables()
            for (column,) in self.tx.all(_TO_ACTORS, {"table": table})
        ]

    def _topics(self) -> None:
        for row in self.tx.all(_TOPICS):
            new = self.new.topic(row["topic"])
            if new != row["topic"] and self._is_meant(row["project"]):
                self._set_topic(row, new)

    def _table(self, table: str) -> None:
        columns = [c for c in self.columns(table) if f"{table}.{c}" not in _BLOB]
        if not columns:
            return
        for row in self._rows(table, columns):
            changes: dict[str, Any] = {}
            for column in columns:
                old = row[column]
                if old:
                    new = self._renewed(table, column, row, old)
                    if new != old:
                        changes[column] = new
            if not changes:
                continue
            if not self._is_meant(row["project"]):
                self.elsewhere = True
                continue
            self._set(table, row["at_"], changes)
            self._changed(table, row)
            for column in changes:
                field = "history" if table == "events" else column
                self._add(row["project"], self._subject(table, row), field)

    def _subject(self, table: str, row: Row) -> str:
        """What a row is about, as history is asked for it, under the name it gets."""
        if table not in _SUBJECTS and table != "events":
            return _ELSE.get(table, table)
        if table == "events":
            kind, name = row["kind"], row["name"]
        else:
            kind, run, column = _SUBJECTS[table]
            name = within(row[run] if run else "", str(row[column]))
        name = self.new.name(kind, name)
        return kind if name in ("", kind) else f"{kind}:{name}"

    def _rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        """The rows of a table with these columns in which there may be something to do."""
        texts = " || char(10) || ".join(f"coalesce(\"{column}\", '')" for column in columns)
        all_ = f'SELECT rowid, project, {texts} FROM "{table}" ORDER BY rowid'  # noqa: S608
        one = f'SELECT rowid AS at_, * FROM "{table}" WHERE rowid = :at'  # noqa: S608
        for at, project, text in self.tx.each(all_):
            self._step()
            if self.new.may_change(text) and (self._is_meant(project) or not self.elsewhere):
                row = self.tx.one(one, {"at": at})
                assert row is not None
                yield row

    def _changed(self, table: str, row: Row) -> None:
        """A row is to say something else than it says here."""

    def _renewed(self, table: str, column: str, row: Row, old: str) -> str:
        match f"{table}.{column}":
            case "events.row":
                return self._event_row(row, self.new.row(row["kind"], old))
            case "events.name":
                return self.new.name(row["kind"], old)
            case "events.summary" | "blobs.summary":
                return self.new.summary(old)
            case "messages.message":
                return self.new.message(old)
            case "steps.outcome":
                return self.new.keys.get(old, old)
            case "facts.baseline":
                return self.new.json(old, is_baseline=True)
            case name if name in _JSON:
                return self.new.json(old)
            case name if name in _EXACTLY:
                return self.new.exactly(old)
            case _:
                return self.new.text(old)

    def _event_row(self, event: Row, new: str) -> str:
        """What else changes in the row of an event."""
        del event
        return new

    def _documents(self) -> None:
        for row in self._rows("documents", ("name", "shown", "text", "short")):
            name = self.new.name(row["kind"], row["name"])
            texts = (row["text"], row["short"])
            if row["kind"] not in ("journal", "blob"):
                texts += (row["shown"],)
            if name == row["name"] and not any(map(self._is_in, texts)):
                continue
            if not self._is_meant(row["project"]):
                self.elsewhere = True
                continue
            self._set_document(row, name)
            self._add(row["project"], f"{row['kind']}:{name}", "search")


class Rewriting(Search):
    """The walk that takes the value out, inside a transaction that lifted the triggers."""

    def __init__(
        self, tx: Writing, value: Value, every_project: bool, step: Callable[[], None]
    ) -> None:
        super().__init__(tx, value, every_project, step)
        self._writing = tx
        self._messages: set[tuple[int, str]] = set()
        self._forgotten: set[tuple[int, str, int]] = set()

    def _set(self, table: str, at: int, changes: Mapping[str, Any]) -> None:
        columns = ", ".join(f'"{column}" = :{column}' for column in changes)
        self._writing.run(
            f'UPDATE "{table}" SET {columns} WHERE rowid = :at_',  # noqa: S608 (the schema's names)
            {**changes, "at_": at},
        )

    def _set_blob(self, row: Row, new: Mapping[str, Any]) -> None:
        self._writing.run(_SET_BLOB, {**new, "at": row["at"]})

    def _set_actor(self, row: Row, new: Mapping[str, str], moves: bool) -> None:
        if not moves:
            self._writing.run(_SET_ACTOR, {**new, "id": row["id"]})
            return
        actor = self._writing.scalar(_NEW_ACTOR, new)
        for table, column in self._to_actors():
            for project in self.projects:
                self._writing.run(
                    f'UPDATE "{table}" SET "{column}" = :new '  # noqa: S608 (the schema's names)
                    f'WHERE "{column}" = :old AND project = :project',
                    {"new": actor, "old": row["id"], "project": project},
                )
        if self._writing.actor == row["id"]:
            self._writing.actor = actor

    def _set_topic(self, row: Row, new: str) -> None:
        self._writing.run(_SET_TOPIC, {**dict(row), "new": new})

    def _changed(self, table: str, row: Row) -> None:
        """Note what was made of the row, and has to be made anew."""
        project = row["project"]
        if table == "messages":
            self._messages.add((project, self.new.text(row["run"])))
        elif table == "journal":
            self._forgotten.add((project, "journal_append", row["seq"]))
        elif table == "events" and row["operation"] == "append" and row["kind"] == "memory":
            self._forgotten.add((project, "memory_append", row["version"]))

    def _event_row(self, event: Row, new: str) -> str:
        """The sizes of a blob are those of its new text."""
        key = self.new.keys.get(event["name"]) if event["kind"] == "blob" else None
        if key is None or event["operation"] == "refused":
            return new
        sizes = self.tx.one(_BLOB_SIZES, {"project": event["project"], "key": key})
        return (
            new if sizes is None else json.dumps({**json.loads(new), **sizes}, ensure_ascii=False)
        )

    def _set_document(self, row: Row, name: str) -> None:
        run, _, inner = name.rpartition(WITHIN)
        self.tx.project = row["project"]
        params = {"project": row["project"], "name": name, "run": run, "inner": inner}
        source = self.tx.one(_OF_DOCUMENT[row["kind"]], params)
        made: Sequence[Any] | None = None
        if source is not None:
            made = document_of(self.tx, row["kind"], source)
        shown, _, text, short = made or (
            self.new.text(row["shown"]),
            0,
            self.new.text(row["text"]),
            self.new.text(row["short"]),
        )
        self._writing.run(
            _SET_DOCUMENT,
            {"id": row["id"], "name": name, "shown": shown, "text": text, "short": short},
        )

    def _end(self) -> None:
        """Make anew what was made of the texts: the hashes of transcripts, of repeated calls."""
        for project, operation, number in self._forgotten:
            params = {"project": project, "operation": operation, "number": number}
            self._writing.run(_FORGET_DIGEST, params)
        for project, run in self._messages:
            self._hash_transcript(project, run)

    def _hash_transcript(self, project: int, run: str) -> None:
        for event in self.tx.all(_APPENDED, {"project": project, "run": run}):
            kept = json.loads(event["row"])
            span = {"project": project, "run": run, "first": kept["first"], "last": kept["last"]}
            data = "\n".join(row["message"] for row in self.tx.all(_MESSAGES, span)).encode()
            kept |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            text = json.dumps(kept, ensure_ascii=False)
            self._writing.run(_SET_EVENT, {"project": project, "number": event["seq"], "row": text})


def _marks() -> Iterator[str]:
    """Marks to try; the last ones are for names that have no room for a longer one."""
    yield MARK
    yield from (f"{MARK[:-1]} {number}]" for number in range(2, 1000))
    yield from (f"[{number}]" for number in range(1, 100))


def _is_ours(column: str) -> bool:
    """Whether a column holds what no caller gives."""
    name = column.partition(".")[2]
    return column in OURS or name in ("at", "lease_until") or name.endswith("_at")
