"""What a store method does inside a transaction: read rows, write them, and record the event."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from mcp_state.errors import OverLimit, ProjectUnknown, ReadonlyToolset, SecretRefused
from mcp_state.models import Actor, Caller, Event, Limits, RunStatus, Status, Totals, Trust
from mcp_state.store.catalogue import SQLITE, Catalogue
from mcp_state.store.text import LONGEST_NAME, WITHIN, clean, credential_in, fold, tidy_name
from mcp_state.times import Clock, from_text, to_text

if TYPE_CHECKING:
    from mcp_state.store.full_text import Wanted

Row = sqlite3.Row
Params = Mapping[str, Any]
NONE: Params = MappingProxyType({})

_BY_ANCHOR = "SELECT project FROM directories WHERE anchor = :anchor"
_BY_NAME = "SELECT project FROM project_names WHERE name = :name"
_PROJECT = """
    SELECT shown, last_event, active, watching, blocked, done, dropped, journal, memory,
        open, completed, failed, abandoned, stopped,
        provisional, trusted, stale, refuted, archival
    FROM projects WHERE id = :project
"""
_KNOWN = (
    "SELECT shown FROM projects WHERE merged_into IS NULL ORDER BY last_event DESC, id LIMIT 30"
)
_SHOWN = "SELECT shown, last_event FROM projects WHERE id = :id AND merged_into IS NULL"
_NEW_PROJECT = "INSERT INTO projects (shown, created_at) VALUES (:shown, :now) RETURNING id"
_NEW_NAME = "INSERT INTO project_names (name, shown, project) VALUES (:name, :shown, :project)"
_NEW_DIRECTORY = """
    INSERT INTO directories (anchor, project) VALUES (:anchor, :project)
    ON CONFLICT (anchor) DO NOTHING
"""
_ACTOR = """
    SELECT id FROM actors
    WHERE agent = :agent AND client = :client AND session = :session AND worktree = :worktree
"""
_NEW_ACTOR = """
    INSERT INTO actors (agent, client, session, worktree)
    VALUES (:agent, :client, :session, :worktree)
    ON CONFLICT (agent, client, session, worktree) DO NOTHING RETURNING id
"""
_NEXT_EVENT = "SELECT last_event + 1 FROM projects WHERE id = :project"
_EVENT = """
    INSERT INTO events (
        project, seq, at, actor, run, kind, name, operation, summary, version, row
    ) VALUES (
        :project, :seq, :now, :actor, :run, :kind, :name, :operation, :summary, :version, :row
    )
"""
_CURRENT_RUN = """
    SELECT session_runs.run FROM session_runs
    JOIN runs ON runs.project = session_runs.project AND runs.name = session_runs.run
    WHERE session_runs.project = :project AND session_runs.session = :session
        AND runs.status = 'open'
"""
_TRIGGERS = """
    SELECT name, sql FROM sqlite_schema
    WHERE type = 'trigger' AND tbl_name <> 'documents' ORDER BY rowid
"""
_REMEMBERED = """
    SELECT digest, seq FROM idempotency
    WHERE project = :project AND operation = :operation AND key = :key
"""
_REMEMBER = """
    INSERT INTO idempotency (project, operation, key, digest, seq)
    VALUES (:project, :operation, :key, :digest, :seq)
    ON CONFLICT (project, operation, key) DO UPDATE SET digest = excluded.digest, seq = excluded.seq
"""

_STATUSES = tuple(status.value for status in Status)
_RUN_STATUSES = tuple(status.value for status in RunStatus)
_TRUSTS = tuple(trust.value for trust in Trust)


class Reading:
    """One read transaction of one caller: everything in it sees the same state."""

    catalogue: Catalogue = SQLITE
    """How its engine is asked for the schema."""

    def __init__(
        self, connection: sqlite3.Connection, caller: Caller, clock: Clock, limits: Limits
    ) -> None:
        self._connection = connection
        self.caller = caller
        self.limits = limits
        self.at = clock.now()
        self.now = to_text(self.at)
        self.project = self._find_project()
        if caller.only is not None and caller.project and self.project not in caller.only:
            raise ProjectUnknown.to_the_token(caller.project, self.known_projects())

    def all(self, sql: str, params: Params = NONE) -> list[Row]:
        """All rows; `:project`, `:now` and `:within` (what joins names) are always bound."""
        return self._connection.execute(sql, self._bound(params)).fetchall()

    def one(self, sql: str, params: Params = NONE) -> Row | None:
        """The first row, or None."""
        return self._connection.execute(sql, self._bound(params)).fetchone()

    def each(self, sql: str, params: Params = NONE) -> Iterator[Row]:
        """The rows one by one, for what is too much to hold at once."""
        return self._connection.execute(sql, self._bound(params))

    def scalar(self, sql: str, params: Params = NONE) -> Any:
        """The first value of the first row, or None."""
        row = self.one(sql, params)
        return None if row is None else row[0]

    def newest_matches(self, wanted: Wanted, ids: tuple[int, int], limit: int) -> list[Row]:
        """The newest documents that match, whose ids are from the first up to the second."""
        from mcp_state.store.full_text import newest  # what few need is not imported by all

        return newest(self, wanted, ids, limit)

    def known_projects(self) -> list[str]:
        """Names of the projects that the caller may see, the most active first, at most 30."""
        if self.caller.only is None:
            return [row["shown"] for row in self.all(_KNOWN)]
        found = [self.one(_SHOWN, {"id": project}) for project in sorted(self.caller.only)]
        there = sorted((row for row in found if row), key=lambda row: -row["last_event"])
        return [row["shown"] for row in there[:30]]

    def totals(self) -> Totals:
        """The project's counts now."""
        row = self.one(_PROJECT) if self.project else None
        if row is None:
            return Totals(self.caller.project, self.caller.how, remark=self._known())
        return totals_of(row, self.caller.how, self._remark(row["shown"]))

    def _known(self) -> str:
        """Said when a call names a project that does not exist: it may be a slip."""
        known = self.known_projects() if self.caller.how == "argument" else []
        return f"there is no such project yet; known are {', '.join(known[:5])}" if known else ""

    def _remark(self, shown: str) -> str:
        """Said when the directory would be called something else today."""
        if not self.caller.anchor or not self.caller.project:
            return ""
        if self.scalar(_BY_NAME, {"name": fold(self.caller.project)}) == self.project:
            return ""
        return (
            f"this directory is now called {self.caller.project}, and stays with {shown}: "
            "`mcp-state projects rename` or `merge` changes that"
        )

    def _bound(self, params: Params) -> Params:
        return {"project": self.project, "now": self.now, "within": WITHIN, **params}

    def project_of(self, caller: Caller) -> int:
        """The id of this caller's project; 0 if it is not in the store."""
        if caller.anchor:
            found = self.scalar(_BY_ANCHOR, {"anchor": caller.anchor})
            if found is not None and not (caller.how == "git origin" and self._named(caller)):
                return found
        return self._named(caller)

    def _find_project(self) -> int:
        self.project = 0
        return self.project_of(self.caller)

    def _named(self, caller: Caller) -> int:
        """The id of the project of this name. A known origin says more than a directory does.

        Another repository may have taken its place, and nothing of one shows in the other.
        """
        if not caller.project:
            return 0
        return self.scalar(_BY_NAME, {"name": fold(caller.project)}) or 0


class Writing(Reading):
    """One write transaction of one caller. It is alone: nobody else writes until it ends.

    `seq` is the number that the next event will have; `changed` says that there was one. What
    wrote no event is rolled back, and so is a dry run, which says at its end that nothing changed.
    `of_run` is the run that the call named (folded); without one its events belong to the open run
    that this session last worked on. `allow_secrets`: text may have the shape of a credential.
    """

    Refused: type[Exception] = sqlite3.IntegrityError
    """What the engine raises for a row that its schema does not take."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        caller: Caller,
        clock: Clock,
        limits: Limits,
        allow_secrets: bool,
    ) -> None:
        self.actor = self.seq = 0
        if caller.read_only:
            raise ReadonlyToolset("this token only reads", "Nothing was changed.")
        super().__init__(connection, caller, clock, limits)
        self.clock = clock
        self.subject: tuple[str, str] = ("project", "")
        self.of_run: str | None = None
        self.changed = False
        self.allow_secrets = allow_secrets
        if not self.project:
            self.project = self._make_project()
        if caller.anchor:
            self.run(_NEW_DIRECTORY, {"anchor": caller.anchor})
        self.actor = self._find_actor()
        self.seq = self.scalar(_NEXT_EVENT)

    def enter(self, caller: Caller) -> None:
        """Go on in the project of this caller, which begins if there is none.

        Its events have numbers of their own; they are about the project, and of no run.
        """
        self.caller = caller
        self.project = self._find_project() or self._make_project()
        self.seq = self.scalar(_NEXT_EVENT)
        self.subject, self.of_run = ("project", ""), ""

    def run(self, sql: str, params: Params = NONE) -> sqlite3.Cursor:
        """Run one statement; `:project`, `:now`, `:actor` and `:seq` are bound."""
        return self._connection.execute(sql, self._bound(params))

    def run_many(self, sql: str, rows: Iterable[Params]) -> None:
        """Run one statement for each of these; nothing else is bound."""
        self._connection.executemany(sql, rows)

    @contextmanager
    def part(self) -> Generator[None]:
        """A part of the transaction that is taken back alone if it fails."""
        before = self.seq, self.changed, self.subject, self.of_run
        self.run("SAVEPOINT part")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # a full disk ends all of it
                self.run("ROLLBACK TO part")
                self.run("RELEASE part")
            self.seq, self.changed, self.subject, self.of_run = before
            raise
        self.run("RELEASE part")

    @contextmanager
    def lifted(self, *triggers: str) -> Generator[None]:
        """What is never changed can be changed; foreign keys are looked at when all is over.

        Without the names of `triggers`, all of them rest, but for those of the index.
        """
        with without_triggers(self._connection, *triggers):
            yield

    def text(self, value: str, what: str, limit: int, next_step: str) -> str:
        """Accept a text for storing.

        Returns:
            The text, with what can't be stored replaced by U+FFFD.

        Raises:
            OverLimit: longer than `limit` characters.
            SecretRefused: it has the shape of a credential.
        """
        value, _ = clean(value)
        if len(value) > limit:
            raise OverLimit.of(what, len(value), limit, next_step)
        if not self.allow_secrets and (found := credential_in(value)) is not None:
            kind, position = found
            raise SecretRefused.found(kind, what, position)
        return value

    def name(self, name: str, what: str) -> str:
        """Accept a name for storing; returns it as it is shown.

        Raises:
            BadArgument: it is no name.
            SecretRefused: it has the shape of a credential.
        """
        return self.text(tidy_name(name, what), f"the {what}", LONGEST_NAME, "")

    def event(
        self,
        operation: str,
        summary: str,
        row: Mapping[str, Any] | None,
        *,
        version: int | None = None,
        subject: tuple[str, str] | None = None,
    ) -> int:
        """Record the change as the project's next event; returns its number."""
        kind, name = subject or self.subject
        if self.of_run is None:
            self.of_run = self.current_run()
        self.run(
            _EVENT,
            {
                "run": self.of_run,
                "kind": kind,
                "name": name,
                "operation": operation,
                "summary": summary,
                "version": version,
                "row": None if row is None else json.dumps(row, ensure_ascii=False),
            },
        )
        self.changed = True
        self.seq += 1
        return self.seq - 1

    def current_run(self) -> str:
        """The open run (folded) that this session last began, checkpointed or stepped, or empty."""
        session = clean(self.caller.actor.session)[0]
        return (self.scalar(_CURRENT_RUN, {"session": session}) if session else None) or ""

    def remembered(self, operation: str, key: str) -> tuple[str, int] | None:
        """The digest and event of the first call with this idempotency key."""
        row = self.one(_REMEMBERED, {"operation": operation, "key": key})
        return None if row is None else (row["digest"], row["seq"])

    def remember(self, operation: str, key: str, digest: str, seq: int) -> None:
        """Keep an idempotency key for ever, in place of what it led to before."""
        self.run(_REMEMBER, {"operation": operation, "key": key, "digest": digest, "seq": seq})

    def _bound(self, params: Params) -> Params:
        return {
            "project": self.project,
            "now": self.now,
            "actor": self.actor,
            "seq": self.seq,
            "within": WITHIN,
            **params,
        }

    def _make_project(self) -> int:
        if not self.caller.project:
            raise ProjectUnknown.among(self.known_projects())
        try:
            shown = self.name(self.caller.project, "project name")
        except SecretRefused:
            self.caller.project = ""  # or the last line of the answer would repeat it
            raise
        project: int = self.scalar(_NEW_PROJECT, {"shown": shown})
        self.run(_NEW_NAME, {"name": fold(shown), "shown": shown, "project": project})
        return project

    def _find_actor(self) -> int:
        actor = self.caller.actor
        params = {
            "agent": clean(actor.agent)[0],
            "client": clean(actor.client)[0],
            "session": clean(actor.session)[0],
            "worktree": clean(self.caller.worktree)[0],
        }
        found = self.scalar(_ACTOR, params) or self.scalar(_NEW_ACTOR, params)
        return found or self.scalar(_ACTOR, params)  # another project's writer was first


@contextmanager
def without_triggers(connection: sqlite3.Connection, *triggers: str) -> Generator[None]:
    """Let these triggers rest, or all but those of the index, within the caller's transaction."""
    found: list[tuple[str, str]] = [tuple(row) for row in connection.execute(_TRIGGERS)]
    rest = {name: sql for name, sql in found if not triggers or name in triggers}
    for name in rest:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("PRAGMA defer_foreign_keys = ON")
    yield
    for sql in rest.values():
        connection.execute(sql)


def unfolded(row: Row) -> Row:
    """A wide row as a dictionary: a `sqlite3.Row` searches its columns for each value."""
    return cast(Row, dict(zip(row.keys(), row, strict=True)))


def totals_of(row: Row, how: str = "", remark: str = "") -> Totals:
    """The counts of a row of `projects`."""
    row = unfolded(row)
    return Totals(
        project=row["shown"],
        how=how,
        exists=True,
        event=row["last_event"],
        threads={status: row[status] for status in _STATUSES},
        journal=row["journal"],
        memory=row["memory"],
        runs={status: row[status] for status in _RUN_STATUSES},
        stopped=row["stopped"],
        facts={trust: row[trust] for trust in _TRUSTS},
        remark=remark,
    )


def actor_of(row: Row) -> Actor:
    """The actor columns of a row that was joined with `actors`."""
    return Actor(row["agent"], row["client"], row["session"])


def time_of(text: str | None) -> datetime | None:
    """A nullable time column."""
    return None if text is None else from_text(text)


def event_of(row: Row) -> Event:
    """An event row that was joined with `actors`."""
    return Event(
        seq=row["seq"],
        at=from_text(row["at"]),
        actor=actor_of(row),
        worktree=row["worktree"],
        run=row["run"],
        kind=row["kind"],
        name=row["name"].replace(WITHIN, "/"),
        operation=row["operation"],
        summary=row["summary"],
        version=row["version"],
        row=None if row["row"] is None else json.loads(row["row"]),
    )
