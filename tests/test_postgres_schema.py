"""What the schema of PostgreSQL promises by itself, asked in plain SQL as the owner of the store.

It is the same schema as that of SQLite; what the store's own tests show anyway is not said again.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import postgres
import psycopg
import pytest

from mcp_state.store import opening as sqlite_opening
from mcp_state.store.postgres import opening
from mcp_state.store.postgres.connection import Connection
from mcp_state.store.postgres.opening import Address

AT = "2026-11-20T08:00:00.000000Z"
LATER = "2026-11-20T09:00:00.000000Z"
OUTSIDE = {"project_names", "directories", "tokens"}
"""Tables with a project that stand outside of the wall."""
OURS_ALONE = {"criteria_by_text", "search_by_gram"}
"""Indexes that SQLite has in another form."""
IN_ONE = {"events_number", "checkpoints_number"}
"""Triggers of SQLite that are part of another one here."""


class Store:
    """A connection to a store, inside a transaction that a test takes back."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw = raw

    def run(self, statement: str, **params: Any) -> list[tuple[Any, ...]]:
        """What a statement finds."""
        cursor = self.raw.execute(statement.encode(), params)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, **params: Any) -> Any:
        """The first value of the first row."""
        return self.run(statement, **params)[0][0]

    def within(self, project: object) -> None:
        """Open the wall to one project, or to all of them ('*')."""
        self.run("SELECT set_config('mcp_state.project', %(to)s, true)", to=str(project))

    def lift(self, lifted: str) -> None:
        """Let be changed what never changes, or no more."""
        self.run("SELECT set_config('mcp_state.lifted', %(to)s, true)", to=lifted)

    def refused(self, statement: str, **params: Any) -> str:
        """The message with which a statement is refused."""
        with pytest.raises(psycopg.errors.IntegrityError) as caught, self.raw.transaction():
            self.run(statement, **params)
        return str(caught.value.diag.message_primary)

    def insert(self, table: str, *rows: Mapping[str, Any]) -> None:
        """Add rows in one statement."""
        columns = list(rows[0])
        names = ", ".join(f'"{column}"' for column in columns)
        marks = ", ".join(f"({', '.join(['%s'] * len(columns))})" for _ in rows)
        values = [row[column] for row in rows for column in columns]
        self.raw.execute(f"INSERT INTO {table} ({names}) VALUES {marks}".encode(), values)  # noqa: S608

    def counts(self, project: int, *columns: str) -> tuple[Any, ...]:
        """Some columns of a project."""
        (row,) = self.run(f"SELECT {', '.join(columns)} FROM projects WHERE id = {project}")  # noqa: S608
        return row


@contextmanager
def connected(address: Address) -> Generator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(address.url, autocommit=True)) as raw:
        opening.configure(raw, address.schema)
        yield raw


@pytest.fixture(scope="module")
def address() -> Address:
    address = Address.of(postgres.new_store())
    with connected(address) as raw:
        opening.prepare(Connection(raw), address, datetime(2026, 11, 29, tzinfo=UTC))
    return address


@pytest.fixture
def store(address: Address) -> Generator[Store]:
    """A store with two projects, 1 and 2, open to the first one."""
    with connected(address) as raw, raw.transaction(force_rollback=True):
        store = Store(raw)
        store.insert(
            "projects",
            {"id": 1, "shown": "acme", "created_at": AT},
            {"id": 2, "shown": "other", "created_at": AT},
        )
        names = ("agent", "client", "session", "worktree")
        store.insert("actors", {"id": 1, **dict.fromkeys(names, "a")})
        store.insert("actors", {"id": 2, **dict.fromkeys(names, "b")})
        store.within(1)
        yield store


def event(seq: int, **but: Any) -> Mapping[str, Any]:
    return {
        "project": 1,
        "seq": seq,
        "at": AT,
        "actor": 1,
        "kind": "memory",
        "name": "plan",
        "operation": "set",
        "summary": "set",
        "version": seq,
        "row": "{}",
        **but,
    }


def block(name: str, **but: Any) -> Mapping[str, Any]:
    row = {"project": 1, "run": "", "name": name, "shown": name, "value": "v", "version": 1}
    return {**row, "changed": 1, "changed_at": AT, "changed_by": 1, **but}


def thread(name: str, **but: Any) -> Mapping[str, Any]:
    return {
        "project": 1,
        "name": name,
        "shown": name,
        "created": 1,
        "created_at": AT,
        "title": "",
        "status": "active",
        "status_at": AT,
        "changed": 1,
        "changed_at": AT,
        "changed_by": 1,
        "version": 1,
        "priority": 5,
        "next_action": "",
        "waiting_on": "",
        "recheck_at": None,
        "check": "",
        "evidence": "",
        "note": "",
        "places": "[]",
        **but,
    }


def entry(seq: int, **but: Any) -> Mapping[str, Any]:
    row = {"project": 1, "seq": seq, "id": f"j-{seq}", "at": AT, "actor": 1, "kind": "note"}
    return {**row, "text": "began", **but}


def run_(name: str, **but: Any) -> Mapping[str, Any]:
    of_change = {"changed": 1, "changed_at": AT, "changed_by": 1, "version": 1}
    of_touch = {"touched": 1, "touched_at": AT, "touched_by": 1}
    row = {"project": 1, "name": name, "shown": name, "created": 1, "created_at": AT}
    work = {"status": "open", "goal": "g", "expected_outcome": "", "finished_at": None}
    return {**row, **of_change, **of_touch, **work, "evidence": "", **but}


def checkpoint(number: int, **but: Any) -> Mapping[str, Any]:
    row = {"project": 1, "run": "r", "number": number, "seq": 1, "at": AT, "actor": 1}
    return {**row, "state": "s", "next_action": "n", "git": "{}", **but}


def step(name: str, **but: Any) -> Mapping[str, Any]:
    row = {"project": 1, "run": "r", "name": name, "shown": name, "created": 1, "changed": 1}
    more = {"changed_at": AT, "changed_by": 1, "status": "open", "input": "", "stopped": 0}
    return {**row, **more, **but}


def attempt(number: int, **but: Any) -> Mapping[str, Any]:
    row = {"project": 1, "run": "r", "step": "s", "number": number, "begun": 1, "begun_at": AT}
    return {**row, "begun_by": 1, "input": "", "tokens_in": 0, "tokens_out": 0, **but}


def fact(name: str, **but: Any) -> Mapping[str, Any]:
    of_change = {"changed": 1, "changed_at": AT, "changed_by": 1, "version": 1}
    stated = {"statement": "s", "stated": 1, "stated_at": AT, "stated_by": 1, "replaces": ""}
    row = {"project": 1, "name": name, "shown": name, "created": 1, "created_at": AT}
    check = {"check": "c", "source": "", "trust": "provisional", "trust_at": AT}
    verified = dict.fromkeys(("verified", "verified_at", "verified_by", "held"))
    when = {"recheck_after": 60, "recheck_at": AT, **verified, "evidence": ""}
    return {**row, **of_change, **stated, **check, **when, **but}


VERIFIED = {"verified": 1, "verified_at": AT, "verified_by": 1, "evidence": "seen"}


def document(n: int, text: str, short: str = "", **but: Any) -> Mapping[str, Any]:
    project, kind = but.get("project", 1), 2
    row = {"id": ((project * 16 + kind) << 36) + n, "project": project, "kind": "journal"}
    return {**row, "name": str(n), "shown": str(n), "seq": n, "uses": 1} | {
        "text": text,
        "short": short,
        **but,
    }


def one_of_each(store: Store) -> None:
    """A row of the first project in every table that has a project."""
    store.insert("events", event(1))
    store.insert("memory", block("plan"))
    store.insert("threads", thread("a"), thread("b"))
    store.insert("criteria", {"project": 1, "thread": "a", "number": 1, "text": "works"})
    store.insert("needs", {"project": 1, "thread": "a", "needed": "b"})
    store.insert("journal", entry(1))
    store.insert("journal_topics", {"project": 1, "topic": "", "seq": 1, "number": 1})
    store.insert("documents", document(1, "began"))
    store.insert(
        "idempotency",
        {"project": 1, "operation": "o", "key": "k", "digest": "", "seq": 1},
    )
    store.insert("runs", run_("r"))
    store.insert("checkpoints", checkpoint(1))
    store.insert("steps", step("s"))
    store.insert("attempts", attempt(1))
    store.insert("session_runs", {"project": 1, "session": "a", "run": "r"})
    store.insert("messages", {"project": 1, "run": "r", "number": 1, "seq": 1, "message": "{}"})
    sizes = {"bytes": 1, "characters": 1, "summary": "", "text": "t"}
    of_change = {"created": 1, "created_at": AT, "changed": 1, "changed_at": AT, "changed_by": 1}
    store.insert(
        "blobs",
        {"project": 1, "key": "b-1", "sha256": "0" * 64, **of_change, "version": 1, **sizes},
    )
    made = {"created": 1, "created_at": AT, "created_by": 1, "recipient": "", "note": ""}
    store.insert("handoffs", {"project": 1, "key": "h-1", **made})
    store.insert("facts", fact("f"), fact("g"))
    store.insert("premises", {"project": 1, "fact": "f", "reason": 1, "premise": "g", "given": 1})
    store.insert("relies", {"project": 1, "thread": "a", "fact": "f"})
    texts = {"objective": "o", "intent": "", "reason": ""}
    store.insert(
        "objectives",
        {"project": 1, "name": "objective", "shown": "o", **of_change, "version": 1, **texts},
    )


# It is the schema of SQLite


@pytest.fixture(scope="module")
def of_file() -> Generator[sqlite3.Connection]:
    with closing(sqlite_opening.new_connection(":memory:")) as connection:
        sqlite_opening.apply(connection, sqlite_opening.migrations())
        yield connection


def objects_of_file(of_file: sqlite3.Connection, kind: str) -> set[str]:
    return {
        name
        for (name,) in of_file.execute(
            "SELECT name FROM sqlite_schema WHERE type = ? AND name NOT LIKE 'sqlite_%'", (kind,)
        )
        if not name.startswith("search")
    }


def columns_of_file(of_file: sqlite3.Connection, table: str) -> list[tuple[str, str, bool, str]]:
    return [
        (name, kind or "any", bool(required or key), "" if default is None else default.strip("'"))
        for _, name, kind, required, default, key in of_file.execute(f"PRAGMA table_info({table})")
    ]


def columns_here(store: Store, table: str) -> list[tuple[str, str, bool, str]]:
    types = {"bigint": "INTEGER", "text": "TEXT"}
    rows = store.run(
        """
        SELECT column_name, data_type, is_nullable = 'NO', coalesce(column_default, '')
        FROM information_schema.columns
        WHERE table_schema = current_schema() AND table_name = %(table)s ORDER BY ordinal_position
        """,
        table=table,
    )
    return [
        (name, types[kind], required, re.sub(r"^'?(.*?)'?(::\w+)?$", r"\1", default))
        for name, kind, required, default in rows
    ]


def test_the_tables_have_the_columns_of_sqlite(store: Store, of_file: sqlite3.Connection) -> None:
    here = {
        name
        for (name,) in store.run(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        )
    }
    assert here == objects_of_file(of_file, "table") | {"search"}
    for table in here - {"store", "search"}:
        assert columns_here(store, table) == columns_of_file(of_file, table), table
    assert [name for name, *_ in columns_here(store, "store")] == [
        "id",
        "min_reader",
        "version",
        "created_at",
    ]


def test_the_views_have_the_columns_of_sqlite(store: Store, of_file: sqlite3.Connection) -> None:
    here = {
        name
        for (name,) in store.run(
            "SELECT viewname FROM pg_views WHERE schemaname = current_schema()"
        )
    }
    assert here == objects_of_file(of_file, "view")
    for view in here:
        assert [name for name, *_ in columns_here(store, view)] == [
            name for name, *_ in columns_of_file(of_file, view)
        ], view


def test_the_keys_indexes_and_checks_are_those_of_sqlite(
    store: Store, of_file: sqlite3.Connection
) -> None:
    links = store.run(
        r"""
        SELECT conrelid::regclass::text, regexp_replace(
            pg_get_constraintdef(oid), '[" ]|REFERENCES.*?\.|DEFERRABLE', '', 'g')
        FROM pg_constraint
        WHERE contype = 'f' AND connamespace = current_schema()::regnamespace
        """
    )
    assert sorted(links) == sorted(links_of_file(of_file))
    keys = store.run(
        """
        SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE contype = 'p' AND connamespace = current_schema()::regnamespace
        """
    )
    assert dict(keys) == {
        table: f"PRIMARY KEY ({', '.join(key)})"
        for table in objects_of_file(of_file, "table")
        if (key := key_of_file(of_file, table))
    } | {"search": "PRIMARY KEY (id)"}
    made = store.run(
        """
        SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
        WHERE relnamespace = current_schema()::regnamespace
            AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
        """
    )
    assert {name for (name,) in made} == objects_of_file(of_file, "index") | OURS_ALONE
    checks = store.run(
        """
        SELECT conrelid::regclass::text, count(*) FROM pg_constraint
        WHERE contype = 'c' AND connamespace = current_schema()::regnamespace GROUP BY 1
        """
    )
    assert dict(checks) == {
        table: found
        for table, script in of_file.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"
        )
        if (found := len(re.findall(r"\bCHECK \(", script)))
    }


def links_of_file(of_file: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for table in objects_of_file(of_file, "table"):
        found: dict[int, list[sqlite3.Row]] = {}
        for link in of_file.execute(f"PRAGMA foreign_key_list({table})"):
            found.setdefault(link[0], []).append(link)
        for link in found.values():
            ours, theirs = ",".join(part[3] for part in link), ",".join(part[4] for part in link)
            follows = "ONUPDATECASCADE" if link[0][5] == "CASCADE" else ""
            yield table, f"FOREIGNKEY({ours})REFERENCES{link[0][2]}({theirs}){follows}"


def key_of_file(of_file: sqlite3.Connection, table: str) -> list[str]:
    columns = of_file.execute(f"PRAGMA table_info({table})").fetchall()
    return [
        name for _, name in sorted((place, name) for _, name, _, _, _, place in columns if place)
    ]


def test_the_triggers_and_what_they_say_are_those_of_sqlite(
    store: Store, of_file: sqlite3.Connection
) -> None:
    here = store.run(
        """
        SELECT tgname, pg_get_triggerdef(pg_trigger.oid) || prosrc FROM pg_trigger
        JOIN pg_proc ON pg_proc.oid = tgfoid
        WHERE NOT tgisinternal AND pronamespace = current_schema()::regnamespace
        """
    )
    scripts = dict(of_file.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"))
    assert {name for name, _ in here} == scripts.keys() - IN_ONE
    said = set(re.findall(r"RAISE\(ABORT, '([^']+)'\)", " ".join(scripts.values())))
    all_here = " ".join(text for _, text in here)
    assert {words for words in said if f"'{words}'" not in all_here} == set()


# What never changes


NEVER = (
    ("DELETE FROM events", "events are never deleted"),
    ("UPDATE events SET summary = summary", "events are never changed"),
    ("DELETE FROM journal", "the journal is append-only"),
    ("UPDATE journal SET text = 'other'", "the journal is append-only"),
    ("UPDATE memory SET value = 'w'", "a new value needs a new version"),
    ("UPDATE memory SET value = NULL", "a new value needs a new version"),
    ("DELETE FROM memory", "a deleted block keeps its row"),
    ("DELETE FROM threads WHERE name = 'b'", "threads are dropped, not deleted"),
    ("UPDATE criteria SET text = 'other'", "the text of a criterion never changes"),
    ("UPDATE criteria SET number = 2", "the text of a criterion never changes"),
    ("DELETE FROM criteria", "criteria are kept"),
    ("DELETE FROM runs", "runs are kept"),
    ("UPDATE checkpoints SET state = 'other'", "a checkpoint is never changed"),
    ("UPDATE checkpoints SET done = 1", "a checkpoint is never changed"),
    ("DELETE FROM checkpoints", "checkpoints are kept"),
    ("DELETE FROM steps", "steps are kept"),
    ("DELETE FROM attempts", "attempts are kept"),
    ("UPDATE messages SET message = '[]'", "a transcript is append-only"),
    ("DELETE FROM messages", "a transcript is append-only"),
    ("UPDATE blobs SET text = 'other'", "a blob is its content"),
    ("DELETE FROM blobs", "blobs are kept"),
    ("DELETE FROM handoffs", "handoffs are kept"),
    ("DELETE FROM facts WHERE name = 'g'", "facts are refuted, not deleted"),
    ("DELETE FROM objectives", "objectives are replaced, not deleted"),
)


@pytest.mark.parametrize(("statement", "words"), NEVER)
def test_what_never_changes_is_refused_until_it_is_lifted(
    store: Store, statement: str, words: str
) -> None:
    one_of_each(store)
    assert store.refused(statement) == words
    store.lift("on")
    store.run("SET CONSTRAINTS ALL DEFERRED")
    with store.raw.transaction(force_rollback=True):
        store.run(statement)
    store.lift("off")
    assert store.refused(statement) == words


def test_what_may_change_does(store: Store) -> None:
    one_of_each(store)
    store.run("UPDATE memory SET value = 'w', version = 2")
    store.run("UPDATE memory SET locked = 'me'")
    store.run("UPDATE checkpoints SET seq = 7")
    store.run("UPDATE messages SET seq = 7")
    store.run("UPDATE blobs SET expires_at = created_at")
    store.run("UPDATE handoffs SET accepted_by = 1, accepted_at = created_at")
    assert store.refused("UPDATE handoffs SET accepted_by = 2") == "a handoff is taken once"


def test_what_has_ended_keeps_how_it_ended(store: Store) -> None:
    one_of_each(store)
    end = "UPDATE attempts SET ended = 1, ended_at = begun_at, ended_by = 1, ok = 1, result = 'r'"
    store.run(f"{end}, tokens_in = 3, tokens_out = 4")
    store.run(end)
    assert store.refused("UPDATE attempts SET result = 'other'") == "an attempt ends once"
    store.run("UPDATE runs SET status = 'failed', finished_at = created_at, result = 'r'")
    store.run("UPDATE runs SET result = 'r', touched = 9")
    assert store.refused("UPDATE runs SET result = 's'") == "a finished run keeps its result"


def test_trust_comes_from_a_verification_of_what_is_said_by_the_check_there_is(
    store: Store,
) -> None:
    store.insert("facts", fact("f"))
    words = "only a verification makes a fact trusted"
    assert store.refused("UPDATE facts SET trust = 'trusted', held = 1") == words
    verified = "verified = 1, verified_at = created_at, verified_by = 1, evidence = 'seen'"
    store.run(f"UPDATE facts SET trust = 'trusted', held = 1, {verified}")  # noqa: S608
    words = "a verification is one of this statement by this check"
    assert store.refused("UPDATE facts SET statement = 'other'") == words
    store.run("UPDATE facts SET trust = 'stale'")
    words = "only a verification brings back what fell"
    assert store.refused("UPDATE facts SET trust = 'archival', recheck_at = NULL") == words


@pytest.mark.parametrize(
    "but",
    [
        {"trust": "trusted"},
        {"trust": "trusted", "held": 0, **VERIFIED},
        {"trust": "trusted", "held": 1, **VERIFIED, "check": ""},
        {"trust": "refuted", "held": 1, **VERIFIED, "recheck_at": None},
        {"trust": "refuted", "recheck_at": None},
        {"trust": "stale", "held": 0, **VERIFIED},
        {"recheck_at": None},
        {"held": 1},
        {"baseline": "{"},
    ],
)
def test_a_fact_that_contradicts_itself_is_refused(store: Store, but: Mapping[str, Any]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        store.insert("facts", fact("f", **but))


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("events", event(1, row="{")),
        ("events", event(1, row="")),
        ("events", event(1, at="2026")),
        ("threads", thread("t", places="{]")),
        ("threads", thread("t", status="blocked")),
        ("threads", thread("t", status="done")),
        ("runs", run_("r", status="completed", finished_at=AT)),
        ("needs", {"project": 1, "thread": "a", "needed": "a"}),
    ],
)
def test_a_row_that_is_none_is_refused(store: Store, table: str, row: Mapping[str, Any]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        store.insert(table, row)


def test_a_criterion_of_any_length_is_there_once(store: Store) -> None:
    store.insert("threads", thread("a"), thread("b"))
    text = "".join(chr(random.Random(7).randrange(0x4E00, 0x9FFF)) for _ in range(8000))
    store.insert("criteria", {"project": 1, "thread": "a", "number": 1, "text": text})
    store.insert("criteria", {"project": 1, "thread": "b", "number": 1, "text": text})
    with pytest.raises(psycopg.errors.UniqueViolation):
        store.insert("criteria", {"project": 1, "thread": "a", "number": 2, "text": text})


# Numbers and counts


def test_many_rows_are_added_in_one_statement_and_others_in_their_own(store: Store) -> None:
    connection = Connection(store.raw)
    connection.within = 1
    statement = "INSERT INTO journal (project, seq, id, at, actor, kind, text) VALUES "
    row = "(:project, :seq, :id, :at, :actor, :kind, :text)"
    many = [entry(seq, text="100% (of it); 'all' :of") for seq in range(1, 4)]
    connection.executemany(f"\n {statement}\n {row}\n", many)
    assert store.run("SELECT seq, text FROM journal ORDER BY seq") == [
        (seq, "100% (of it); 'all' :of") for seq in (1, 2, 3)
    ]
    assert store.one("SELECT count(DISTINCT cmin::text) FROM journal") == 1
    connection.executemany(f"{statement} {row} ON CONFLICT DO NOTHING", map(entry, (3, 4, 5)))
    assert store.one("SELECT count(DISTINCT cmin::text) FROM journal") == 3
    assert store.counts(1, "journal") == (5,)


@pytest.mark.parametrize(
    "seqs", [(2,), (0,), (1, 3), (2, 3), (1, 1)], ids=lambda seqs: "-".join(map(str, seqs))
)
def test_event_numbers_have_no_gaps_whatever_is_lifted(store: Store, seqs: Sequence[int]) -> None:
    store.lift("on")
    with pytest.raises(psycopg.errors.IntegrityError), store.raw.transaction():
        store.insert("events", *(event(seq, version=n) for n, seq in enumerate(seqs, 1)))
    assert store.counts(1, "last_event") == (0,)
    store.insert("events", event(1), event(3), event(2))
    store.insert("events", event(4))
    with pytest.raises(psycopg.errors.IntegrityError) as caught, store.raw.transaction():
        store.insert("events", event(6))
    assert caught.value.diag.message_primary == "event numbers have no gaps"
    assert store.counts(1, "last_event") == (4,)


def test_the_events_of_several_projects_are_counted_apart(store: Store) -> None:
    store.within("*")
    store.insert(
        "events", event(1), event(1, project=2), event(2, project=2, actor=2), event(2, actor=2)
    )
    store.insert("events", event(3, kind="trace"))
    assert store.run("SELECT id, last_event FROM projects ORDER BY id") == [(1, 3), (2, 2)]
    assert store.run("SELECT project, actor, agent, seq FROM last_events ORDER BY 1, 2") == [
        (1, 1, "a", 1),
        (1, 2, "b", 2),
        (2, 1, "a", 1),
        (2, 2, "b", 2),
    ]
    assert store.one("SELECT changes_in_all()") == 5


def test_checkpoint_numbers_have_no_gaps(store: Store) -> None:
    store.insert("runs", run_("r"), run_("q"))
    store.insert("checkpoints", checkpoint(1), checkpoint(2), checkpoint(1, run="q"))
    words = "checkpoint numbers have no gaps"
    for numbers in ((4,), (3, 5)):
        with pytest.raises(psycopg.errors.IntegrityError) as caught, store.raw.transaction():
            store.insert("checkpoints", *map(checkpoint, numbers))
        assert caught.value.diag.message_primary == words
    assert store.run("SELECT name, checkpoints FROM runs ORDER BY name") == [("q", 1), ("r", 2)]


def test_two_who_write_the_same_number_wait_and_one_is_refused() -> None:
    address = Address.of(postgres.new_store())
    with connected(address) as first, connected(address) as second:
        opening.prepare(Connection(first), address, datetime(2026, 11, 29, tzinfo=UTC))
        one, two = Store(first), Store(second)
        names = ("agent", "client", "session", "worktree")
        one.insert("projects", {"shown": "acme", "created_at": AT})
        actor: Mapping[str, Any] = dict.fromkeys(names, "a")
        one.insert("actors", actor)
        with first.transaction():
            one.within(1)
            one.insert("events", event(1))
            with pytest.raises(psycopg.errors.LockNotAvailable), second.transaction():
                two.run("SET LOCAL lock_timeout = '20ms'")
                two.within(1)
                two.insert("events", event(1))
        with second.transaction():
            two.within(1)
            with pytest.raises(psycopg.errors.UniqueViolation), second.transaction():
                two.insert("events", event(1))
            two.insert("events", event(2))
        assert two.counts(1, "last_event") == (2,)


def test_a_lease_is_over_with_the_first_event_at_or_after_its_end(store: Store) -> None:
    leased = {"lease_token": 1, "lease_holder": 1, "lease_until": LATER}
    store.insert("threads", thread("a", **leased), thread("b", **leased, lease_over=0))
    store.insert("events", event(1))
    over = "SELECT name, lease_over FROM threads ORDER BY name"
    assert store.run(over) == [("a", 0), ("b", 0)]
    store.insert("events", event(2, at=LATER))
    assert store.run(over) == [("a", 1), ("b", 1)]


def test_blocks_and_entries_are_counted(store: Store) -> None:
    store.insert("runs", run_("r"))
    store.insert("memory", block("a"), block("b"), block("c", value=None), block("d", run="r"))
    store.insert("journal", entry(1), entry(2))
    assert store.counts(1, "memory", "journal") == (2, 2)
    put = "ON CONFLICT (project, run, name) DO UPDATE SET value = excluded.value, version = %(v)s"
    columns = "project, run, name, shown, value, version, changed, changed_at, changed_by"
    for version, value, count in ((2, None, 1), (3, None, 1), (4, "v", 2), (5, "w", 2)):
        store.run(
            f"INSERT INTO memory ({columns}) "  # noqa: S608
            f"VALUES (1, '', 'a', 'a', %(value)s, 1, 1, '{AT}', 1) {put}",
            value=value,
            v=version,
        )
        assert store.counts(1, "memory") == (count,)


def test_threads_are_counted_by_status_and_by_what_they_wait_for(store: Store) -> None:
    done = {"status": "done", "evidence": "e"}
    store.insert("threads", thread("a"), thread("b"), thread("c", **done), thread("d"))
    assert store.counts(1, "active", "done") == (3, 1)
    store.insert(
        "needs",
        {"project": 1, "thread": "a", "needed": "b"},
        {"project": 1, "thread": "a", "needed": "c"},
        {"project": 1, "thread": "d", "needed": "b"},
    )
    waits = "SELECT name, open_needs FROM threads ORDER BY name"
    assert store.run(waits) == [("a", 1), ("b", 0), ("c", 0), ("d", 1)]
    store.run("UPDATE threads SET status = 'done', evidence = 'e' WHERE name = 'b'")
    assert store.run(waits) == [("a", 0), ("b", 0), ("c", 0), ("d", 0)]
    store.run("UPDATE threads SET status = 'active' WHERE name IN ('b', 'c')")
    assert store.run(waits) == [("a", 2), ("b", 0), ("c", 0), ("d", 1)]
    assert store.counts(1, "active", "done") == (4, 0)
    store.run("DELETE FROM needs WHERE needed = 'b'")
    assert store.run(waits) == [("a", 1), ("b", 0), ("c", 0), ("d", 0)]


def test_criteria_are_counted_and_a_thread_is_not_done_before_all_pass(store: Store) -> None:
    store.insert("threads", thread("a"))
    store.insert(
        "criteria",
        {"project": 1, "thread": "a", "number": 1, "text": "x", "passes": 1},
        {"project": 1, "thread": "a", "number": 2, "text": "y", "passes": 0},
    )
    assert store.run("SELECT criteria, passing FROM threads") == [(2, 1)]
    done = "UPDATE threads SET status = 'done', evidence = 'e'"
    with pytest.raises(psycopg.errors.CheckViolation), store.raw.transaction():
        store.run(done)
    store.run("UPDATE criteria SET passes = 1")
    store.run(done)
    assert store.run("SELECT criteria, passing FROM threads") == [(2, 2)]


def test_runs_steps_and_attempts_are_counted(store: Store) -> None:
    ended = {"finished_at": AT, "evidence": "e"}
    store.insert("runs", run_("r"), run_("q"), run_("p", status="completed", **ended))
    store.insert("steps", step("s"), step("t", status="done"), step("u", run="q", stopped=1))
    spent = {"tokens_in": 2, "tokens_out": 3}
    store.insert("attempts", attempt(1, **spent), attempt(2, **spent), attempt(1, step="t"))
    assert store.counts(1, "open", "completed", "stopped") == (2, 1, 1)
    store.run("UPDATE steps SET status = 'done', stopped = 1 WHERE name = 's'")
    store.run("UPDATE steps SET stopped = 0 WHERE name = 'u'")
    store.run(
        "UPDATE attempts SET ended = 1, ok = 1, result = '', tokens_in = 10 "
        "WHERE step = 's' AND number = 1"
    )
    totals = "SELECT name, steps, steps_done, attempts, tokens_in, tokens_out FROM runs ORDER BY 1"
    assert store.run(totals) == [("p", 0, 0, 0, 0, 0), ("q", 1, 0, 0, 0, 0), ("r", 2, 2, 3, 12, 6)]
    assert store.run("SELECT name, attempts, tokens_in, tokens_out FROM steps ORDER BY 1") == [
        ("s", 2, 12, 6),
        ("t", 1, 0, 0),
        ("u", 0, 0, 0),
    ]
    store.run("UPDATE runs SET status = 'abandoned', finished_at = created_at WHERE name = 'q'")
    assert store.counts(1, "open", "abandoned", "stopped") == (1, 1, 1)


def test_facts_are_counted_by_trust(store: Store) -> None:
    trusted = {"trust": "trusted", "held": 1, **VERIFIED}
    store.insert("facts", fact("f"), fact("g", **trusted), fact("h", **trusted))
    store.run("UPDATE facts SET trust = 'stale' WHERE name = 'g'")
    assert store.counts(1, "provisional", "trusted", "stale", "refuted", "archival") == (
        1,
        1,
        1,
        0,
        0,
    )


def test_a_reason_that_was_given_for_another_statement_has_fallen(store: Store) -> None:
    store.insert("facts", fact("f"), fact("g"))
    store.insert("premises", {"project": 1, "fact": "f", "reason": 1, "premise": "g", "given": 1})
    look = "SELECT replaced, fallen FROM premise_rows"
    assert store.run(look) == [(0, 0)]
    store.run("UPDATE facts SET trust = 'stale' WHERE name = 'g'")
    assert store.run(look) == [(0, 1)]
    store.run("UPDATE facts SET trust = 'provisional', stated = 2 WHERE name = 'g'")
    assert store.run(look) == [(1, 1)]


def test_what_is_renamed_or_moved_takes_along_what_leads_to_it(store: Store) -> None:
    one_of_each(store)
    store.within("*")
    store.lift("on")
    store.run("SET CONSTRAINTS ALL DEFERRED")
    store.run("UPDATE threads SET name = 'z' WHERE name = 'a'")
    store.run("UPDATE threads SET project = 2")
    store.run("UPDATE runs SET project = 2, name = 'q'")
    store.run("UPDATE facts SET project = 2")
    store.run("SET CONSTRAINTS ALL IMMEDIATE")
    assert store.run("SELECT project, thread, needed FROM needs") == [(2, "z", "b")]
    assert store.run("SELECT project, thread FROM criteria") == [(2, "z")]
    assert store.run("SELECT project, thread, fact FROM relies") == [(2, "z", "f")]
    assert store.run("SELECT project, fact, premise FROM premises") == [(2, "f", "g")]
    for table in ("checkpoints", "steps", "attempts", "messages", "session_runs"):
        assert store.run(f"SELECT project, run FROM {table}") == [(2, "q")]  # noqa: S608
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        store.run("DELETE FROM runs")


# The wall


def walled(store: Store) -> list[str]:
    """The tables that have a project and are not how one finds it."""
    found = store.run(
        """
        SELECT table_name FROM information_schema.columns JOIN information_schema.tables
        USING (table_schema, table_name)
        WHERE table_schema = current_schema() AND column_name = 'project'
            AND table_type = 'BASE TABLE' ORDER BY 1
        """
    )
    return [name for (name,) in found if name not in OUTSIDE]


def views(store: Store) -> list[str]:
    return [
        name
        for (name,) in store.run(
            "SELECT viewname FROM pg_views WHERE schemaname = current_schema()"
        )
    ]


def seen(store: Store, names: Sequence[str]) -> dict[str, int]:
    return {name: store.one(f"SELECT count(*) FROM {name}") for name in names}  # noqa: S608


def test_nobody_sees_a_row_of_another_project(store: Store) -> None:
    assert store.one("SELECT usesuper OR usebypassrls FROM pg_user WHERE usename = user") is False
    one_of_each(store)
    names = [*walled(store), *views(store)]
    there = seen(store, names)
    assert len(names) == 22 + 13
    assert min(there.values()) > 0
    for project in (2, "", "11", "0", "1 ", "1,2", "%"):
        store.within(project)
        assert set(seen(store, names).values()) == {0}
    store.within("*")
    assert seen(store, names) == there
    store.run("RESET mcp_state.project")
    assert set(seen(store, names).values()) == {0}


def test_nobody_writes_a_row_of_another_project(store: Store) -> None:
    one_of_each(store)
    for table in walled(store):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), store.raw.transaction():
            store.lift("on")
            store.run("SET CONSTRAINTS ALL DEFERRED")
            store.run(f"UPDATE {table} SET project = 2")  # noqa: S608
    store.within(2)
    for table, row in (
        ("events", event(2)),
        ("memory", block("x")),
        ("threads", thread("x")),
        ("documents", document(2, "x")),
        ("facts", fact("x")),
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), store.raw.transaction():
            store.insert(table, row)
    for table in walled(store):
        store.lift("on")
        assert store.raw.execute(f"DELETE FROM {table}".encode()).rowcount == 0  # noqa: S608


def test_the_wall_leaves_the_indexes_in_use(store: Store) -> None:
    for setting in ("seqscan", "bitmapscan", "sort"):
        store.run(f"SET LOCAL enable_{setting} = off")
    for statement, condition in (
        (
            "SELECT * FROM event_rows WHERE project = 1 AND kind = 'k' AND name = 'n' "
            "ORDER BY seq DESC LIMIT 1",
            "((project = 1) AND (kind = 'k'::text) AND (name = 'n'::text))",
        ),
        (
            "SELECT * FROM threads WHERE project = 1 AND status = 'blocked' AND recheck_at <= 'x' "
            "AND (recheck_at, created) > ('a', 5) ORDER BY recheck_at, created LIMIT 5",
            "(ROW(recheck_at, created) > ROW('a'::text, 5))",
        ),
        (
            "SELECT * FROM documents WHERE project = 1 AND kind = 'fact' AND name = 'n'",
            "((project = 1) AND (kind = 'fact'::text) AND (name = 'n'::text))",
        ),
    ):
        plan = "\n".join(line for (line,) in store.run(f"EXPLAIN {statement}"))
        assert "Seq Scan" not in plan.replace("Seq Scan on actors", "")
        assert condition in plan


def test_the_words_of_a_search_are_found_by_index(store: Store) -> None:
    store.run("SET LOCAL enable_seqscan = off")
    store.run("SET LOCAL enable_indexscan = off")
    statement = "SELECT id FROM search WHERE grams @> grams_of_text(18, 'Word')"
    plan = "\n".join(line for (line,) in store.run(f"EXPLAIN {statement}"))
    assert "Bitmap Index Scan on search_by_gram" in plan
    assert "{18:ord,18:wor}" in plan


# Search


def found(store: Store, word: str, column: str = "text", project: int = 1) -> list[int]:
    """The numbers of the documents of a project that hold a word, newest first."""
    rows = store.run(
        f"""
        SELECT seq FROM search JOIN documents ON documents.id = search.id
        WHERE grams @> grams_of_{column}(%(range)s, %(word)s)
            AND strpos(folded({column}), folded(%(word)s)) > 0
        ORDER BY documents.id DESC
        """,  # noqa: S608
        range=project * 16 + 2,
        word=word,
    )
    return [seq for (seq,) in rows]


def test_any_part_of_a_word_is_found_in_any_case(store: Store) -> None:
    texts = (
        "Größe und ÄRGER",
        "ΟΔΟΣ, ΟΔΌΣΗΜΟ",
        "Привет, МИР",
        "İstanbul TITLE",
        "日本語の文 100%_a\\b",
    )
    store.insert("documents", *(document(n, text) for n, text in enumerate(texts, 1)))
    for word, seqs in (
        ("ärger", [1]),
        ("RÖß", [1]),
        ("ger", [1]),
        ("οδοσ", [2]),
        ("οδος", [2]),
        ("οδόσ", [2]),
        ("мир", [3]),
        ("title", [4]),
        ("Tit", [4]),
        ("日本語", [5]),
        ("100%_A\\B", [5]),
        ("100__a", []),
        ("gre", []),
    ):
        assert (word, found(store, word)) == (word, seqs)


def test_the_column_for_what_is_short_is_asked_apart(store: Store) -> None:
    store.insert(
        "documents",
        document(1, "ab\x1f", "go\x1f \x1fmy long run\x1f"),
        document(2, "x", "ab\x1f \x1fmy\x1f"),
    )
    assert found(store, "ab\x1f", "short") == [2]
    assert found(store, "\x1fmy long run\x1f", "short") == [1]
    assert found(store, "\x1fmy\x1f", "short") == [2]
    assert found(store, "ab\x1f", "text") == [1]


def test_the_index_follows_what_changes_moves_and_goes(store: Store) -> None:
    store.insert("documents", document(1, "first words"), document(2, "second words"))
    put = document(3, "third words", name="1")
    columns = ", ".join(put)
    store.run(
        f"INSERT INTO documents ({columns}) VALUES ({', '.join(f'%({c})s' for c in put)}) "  # noqa: S608
        "ON CONFLICT (project, kind, name) DO UPDATE SET id = excluded.id, seq = excluded.seq, "
        "text = excluded.text",
        **put,
    )
    assert (found(store, "first"), found(store, "third"), found(store, "words")) == (
        [],
        [3],
        [3, 2],
    )
    store.within("*")
    store.run("UPDATE documents SET project = 2, id = id + (16::bigint << 36) WHERE seq = 3")
    assert (found(store, "words"), found(store, "words", project=2)) == ([2], [3])
    store.run("DELETE FROM documents WHERE seq = 2")
    assert found(store, "words") == []
    assert store.one("SELECT count(*) FROM search") == 1


def test_what_is_found_is_what_holds_it(store: Store) -> None:
    chance = random.Random(11)
    letters = "abÄä ßж%\n"
    texts = ["".join(chance.choices(letters, k=chance.randint(0, 30))) for _ in range(300)]
    store.insert("documents", *(document(n, text) for n, text in enumerate(texts)))
    for _ in range(300):
        word = "".join(chance.choices(letters.replace(" ", "").strip(), k=chance.randint(3, 5)))
        held = [n for n, text in enumerate(texts) if word.lower() in text.lower()]
        assert (word, found(store, word)) == (word, held[::-1])


def test_what_a_text_holds_is_found_out_in_linear_time(store: Store) -> None:
    chance = random.Random(5)
    text = "".join(chr(chance.randrange(0x400, 0x2000)) for _ in range(200_000))
    store.run("SET LOCAL statement_timeout = '5s'")
    assert store.one("SELECT cardinality(grams_of_text(18, %(text)s))", text=text) > 190_000


# What SQLite says in other words

ROW = json.dumps(
    {"a": 'x"\u20ac\x1f', "n": 7, "t": True, "f": False, "z": None, "l": [["p", "q"], []], "o": {}}
)
SAME = (
    *(
        f"SELECT json_extract({{row}}, '$.{path}')"
        for path in ("a", "n", "t", "f", "z", "none", "l[0][1]", "l[1]", "l[2]", "o")
    ),
    "SELECT json_extract(NULL, '$.a')",
    "SELECT json_extract('[1, [2, 3]]', '$[1][0]')",
    "SELECT json_set('{\"a\":1,\"b\":[]}', '$.a', 'it''s \"x\"')",
    "SELECT json_set('{\"a\":1,\"b\":[]}', '$.b', 12)",
    "SELECT json_set('{\"a\":1,\"b\":null}', '$.b', NULL)",
    "SELECT json_set('{}', '$.new', json('[\"a\",\"b\"]'))",
    "SELECT json_set('{\"a\":1}', '$.new', 'ä')",
    "SELECT json_set(NULL, '$.a', 'x')",
    'SELECT json_group_array(value) FROM json_each(\'["b", "ä\\n", "\\""]\')',
    "SELECT json_group_array(value) FROM json_each('[]')",
    'SELECT json_group_array(json(value)) FROM json_each(\'["[1,2]", "{}"]\')',
    "SELECT json_group_array(id) FROM (SELECT id FROM projects ORDER BY id)",
    "SELECT json_group_array(merged_into) FROM projects",
    "SELECT count(*) FROM json_each({row}, '$.l')",
    "SELECT count(*) FROM json_each({row}, '$.none')",
    "SELECT 'b' IN (SELECT value FROM json_each('[\"a\",\"b\"]'))",
    "SELECT json_valid('{\"a\": [1]}')",
    "SELECT json_valid('{a: 1}')",
    "SELECT json_valid('')",
    "SELECT json_valid('\"\\ud800\"')",
    "SELECT instr('aäbäb', 'b')",
    "SELECT instr('a', 'b')",
    "SELECT quote('it''s \\')",
)


@pytest.mark.parametrize("statement", SAME)
def test_json_and_texts_come_out_as_in_sqlite(
    store: Store, of_file: sqlite3.Connection, statement: str
) -> None:
    script = statement.replace("{row}", "'" + ROW.replace("'", "''") + "'")
    with closing(sqlite3.connect(":memory:")) as other:
        other.execute("CREATE TABLE projects (id, merged_into)")
        other.execute("INSERT INTO projects VALUES (1, NULL), (2, NULL)")
        (there,) = other.execute(script).fetchone()
    here = store.raw.execute(script.encode()).fetchone()
    assert here is not None
    assert as_text(here[0]) == as_text(there)


def as_text(value: Any) -> str | None:
    """Numbers come as text where SQLite says either."""
    return None if value is None else str(int(value) if isinstance(value, bool) else value)
