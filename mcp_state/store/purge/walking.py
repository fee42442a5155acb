"""A walk through every text of the store, which finds a value.

The tables and columns are those of the schema, so that none is forgotten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mcp_state.errors import BadArgument, Conflict
from mcp_state.models import PurgedPlace
from mcp_state.store.outcomes import digest
from mcp_state.store.purge.columns import APART, BLOB, ELSE, EXACTLY, JSON, SUBJECTS, is_ours
from mcp_state.store.purge.value import MARK, Replacing, Value, folded
from mcp_state.store.text import LONGEST_NAME, WITHIN, fold, within
from mcp_state.store.transaction import Reading, Row

_PROJECTS = "SELECT id, shown, merged_into FROM projects ORDER BY id"
_NAMES = (
    "SELECT name FROM memory ORDER BY {handle}",
    "SELECT name FROM threads ORDER BY {handle}",
    "SELECT name FROM runs ORDER BY {handle}",
    "SELECT name FROM steps ORDER BY {handle}",
    "SELECT name FROM facts ORDER BY {handle}",
    "SELECT name FROM objectives ORDER BY {handle}",
    "SELECT shown FROM memory ORDER BY {handle}",
    "SELECT shown FROM threads ORDER BY {handle}",
    "SELECT shown FROM runs ORDER BY {handle}",
    "SELECT shown FROM steps ORDER BY {handle}",
    "SELECT shown FROM facts ORDER BY {handle}",
    "SELECT shown FROM project_names ORDER BY {handle}",
    "SELECT shown FROM projects ORDER BY {handle}",
)
_EXACT = (
    "SELECT agent FROM actors ORDER BY id",
    "SELECT client FROM actors ORDER BY id",
    "SELECT session FROM actors ORDER BY id",
    "SELECT worktree FROM actors ORDER BY id",
    "SELECT anchor FROM directories ORDER BY {handle}",
    "SELECT key FROM idempotency ORDER BY {handle}",
    "SELECT text FROM criteria ORDER BY {handle}",
)
_SHARED: Mapping[str, str] = {
    "projects": "SELECT {handle} AS at, id AS project, shown FROM projects",
    "project_names": "SELECT {handle} AS at, project, name, shown FROM project_names",
    "directories": "SELECT {handle} AS at, project, anchor FROM directories",
}
_ACTORS = "SELECT * FROM actors"
_OF_ACTOR = ("agent", "client", "session", "worktree")
_ATTEMPTS = "SELECT project, ok, result FROM attempts WHERE result <> ''"
_BLOBS = "SELECT {handle} AS at, project, key, sha256, text FROM blobs"
_BLOB_KEY = "SELECT 1 FROM blobs WHERE project = :project AND key = :key"
_TOPICS = "SELECT DISTINCT project, topic FROM journal_topics"


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
        self._catalogue = tx.catalogue
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
        self._touched: set[tuple[int, str, str]] = set()

    def walk(self) -> None:
        """Go through everything.

        Raises:
            BadArgument: the value is a word that the store itself is made of.
            Conflict: no mark fits into the names that hold it.
        """
        if self._value.folded in folded(self.tx.scalar(self._catalogue.words)):
            raise BadArgument(
                "the text to purge is a word that the store itself is made of, such as the name "
                "of a column",
                "Nothing was changed. Give more of it, such as the words around it.",
            )
        self._choose_mark()
        self._attempts()
        self._blobs()
        self._shared()
        self._actors()
        for table in self.tables():
            if table == "journal_topics":
                self._topics()
            elif table not in APART:
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

    def found_in(self, project: int) -> list[tuple[str, int]]:
        """The subjects of a project that held it, each with the number of places."""
        return [
            (subject, sum(fields.values()))
            for (one, subject), fields in self._found.items()
            if one == project
        ]

    # What a walk that changes something does besides

    def _set(self, table: str, at: Any, changes: Mapping[str, Any]) -> None:
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

    def _each(self, sql: str) -> Iterator[Row]:
        """The rows of a statement that names the handle of a row."""
        return self.tx.each(sql.format(handle=self._catalogue.handle))

    def _choose_mark(self) -> None:
        """A mark that keeps names apart which are apart, and within their length."""
        names = [name for sql in _NAMES for (name,) in self._each(sql) if self._is_in(name)]
        exact = [text for sql in _EXACT for (text,) in self._each(sql) if self._is_in(text)]
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
            mark in folded(text) for sql in (*_NAMES, *_EXACT) for (text,) in self._each(sql)
        )

    def tables(self) -> list[str]:
        """The tables of the schema without those of the index; what refers comes first.

        A name that another table refers to would else change there behind our back.
        """
        ask = self._catalogue
        tables = [table for (table,) in self.tx.all(ask.tables) if not table.startswith("search")]
        parents = {
            table: {parent for (parent,) in self.tx.all(ask.parents, {"table": table})} - {table}
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
            for row in self.tx.all(self._catalogue.columns, {"table": table})
            if row["type"] == "TEXT" and not is_ours(f"{table}.{row['name']}")
        ]

    def _is_meant(self, project: int) -> bool:
        return project in self.projects

    def _add(self, project: int, kind: str, name: str, field: str) -> None:
        subject = kind if name in ("", kind) else f"{kind}:{name.replace(WITHIN, '/')}"
        subject = self._value.out_of(subject, self.new.mark)
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
        for row in self._each(_BLOBS):
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
            self._touched.add((row["project"], "blob", new["key"]))
            self._add(row["project"], "blob", new["key"], "text")

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
            for row in self._each(sql):
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
                    self._add(row["project"], "project", "", field)

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
                    self._add(min(meant or self.projects), "actor", "", column)

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
            for (column,) in self.tx.all(self._catalogue.to_actors, {"table": table})
        ]

    def _topics(self) -> None:
        for row in self.tx.all(_TOPICS):
            new = self.new.topic(row["topic"])
            if new != row["topic"] and self._is_meant(row["project"]):
                self._set_topic(row, new)

    def _table(self, table: str) -> None:
        columns = [c for c in self.columns(table) if f"{table}.{c}" not in BLOB]
        if not columns:
            return
        for row in self._rows(table, columns):
            given = {column: row[column] for column in columns if row[column]}
            new = {c: self._renewed(table, c, row, text) for c, text in given.items()}
            changes = {column: text for column, text in new.items() if text != given[column]}
            if not changes:
                continue
            if not self._is_meant(row["project"]):
                self.elsewhere = True
                continue
            self._set(table, row["at_"], changes)
            self._changed(table, row)
            kind, name = self._subject(table, row)
            if table != "events":
                self._touched.add((row["project"], kind, name))
                if kind == "checkpoint":
                    self._touched.add((row["project"], "run", name.partition(WITHIN)[0]))
            for column in changes:
                field = "history" if table == "events" else column
                self._add(row["project"], kind, name, field)

    def _subject(self, table: str, row: Row) -> tuple[str, str]:
        """What a row is about: its kind, and the name it gets; a kind alone has no history."""
        if table == "events":
            kind, name = row["kind"], row["name"]
        elif table in SUBJECTS:
            kind, run, column = SUBJECTS[table]
            name = within(row[run] if run else "", str(row[column]))
        else:
            return ELSE.get(table, table), ""
        return kind, self.new.name(kind, name)

    def _rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        """The rows of a table with these columns in which there may be something to do."""
        handle = self._catalogue.handle
        texts = " || :joint || ".join(f"coalesce(\"{column}\", '')" for column in columns)
        all_ = f'SELECT {handle}, project, {texts} FROM "{table}" ORDER BY {handle}'  # noqa: S608
        one = f'SELECT {handle} AS at_, * FROM "{table}" WHERE {handle} = :at'  # noqa: S608
        for at, project, text in self.tx.each(all_, {"joint": "\n"}):
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
            case name if name in JSON:
                return self.new.json(old)
            case name if name in EXACTLY:
                return self.new.exactly(old)
            case _:
                return self.new.text(old)

    def _event_row(self, event: Row, new: str) -> str:
        """What else changes in the row of an event."""
        del event
        return new

    def _documents(self) -> None:
        """What search reads of what changed. It joins texts, which may spell the value together."""
        for row in self._rows("documents", ("name", "shown", "text", "short")):
            project, kind, name = row["project"], row["kind"], row["name"]
            new = self.new.name(kind, name)
            held = any(self._is_in(row[column]) for column in ("shown", "text", "short"))
            if new == name and not (held and (project, kind, new) in self._touched):
                continue
            if self._is_meant(project):
                self._set_document(row, new)
                self._add(project, kind, new, "search")


def _marks() -> Iterator[str]:
    """Marks to try; the last ones are for names that have no room for a longer one."""
    yield MARK
    yield from (f"{MARK[:-1]} {number}]" for number in range(2, 1000))
    yield from (f"[{number}]" for number in range(1, 100))
