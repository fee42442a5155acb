"""What is the matter with a store on PostgreSQL: its schema, its settings, and all that is in it.

The rows are looked at in a copy, a file in a temporary directory that is thrown away: there the
same is asked of them as of any other store.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator

import psycopg

from mcp_state.errors import NotFound, StateError
from mcp_state.store import opening as sqlite_opening
from mcp_state.store.consistency import inspect
from mcp_state.store.copying import copy_store
from mcp_state.store.doctor import Report, projects_of
from mcp_state.store.postgres import opening
from mcp_state.store.postgres.connection import Connection
from mcp_state.store.postgres.database import PostgresDatabase
from mcp_state.store.postgres.refusals import refused_by_server, unreachable
from mcp_state.times import Clock

_RESTORE = "Restore a backup of the database, made with pg_dump or `mcp-state migrate-store`."
_REINDEX = "As the owner: UPDATE {schema}.documents SET text = text; it writes the index anew."
_MADE = re.compile(r"\s*CREATE (?:UNIQUE )?(TABLE|INDEX|VIEW|TRIGGER|FUNCTION|AGGREGATE) (\w+)")
_OBJECTS = """
    SELECT CASE relkind WHEN 'r' THEN 'table' WHEN 'i' THEN 'index' ELSE 'view' END AS kind,
        relname AS name
    FROM pg_class WHERE relnamespace = :schema::regnamespace AND relkind IN ('r', 'i', 'v')
    UNION SELECT CASE prokind WHEN 'a' THEN 'aggregate' ELSE 'function' END, proname
    FROM pg_proc WHERE pronamespace = :schema::regnamespace
    UNION SELECT 'trigger', tgname FROM pg_trigger
    JOIN pg_class ON pg_class.oid = tgrelid
    WHERE relnamespace = :schema::regnamespace AND NOT tgisinternal AND tgenabled = 'O'
"""
_UNWALLED = """
    SELECT relname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
    WHERE relnamespace = :schema::regnamespace AND relkind = 'r' AND attname = 'project'
        AND relname NOT IN ('project_names', 'directories', 'tokens')
        AND NOT (relrowsecurity AND relforcerowsecurity)
    ORDER BY relname
"""
_SIZE = """
    SELECT sum(pg_total_relation_size(oid)) AS size FROM pg_class
    WHERE relnamespace = :schema::regnamespace AND relkind = 'r'
"""
_ROLE = "SELECT rolsuper OR rolbypassrls AS open FROM pg_roles WHERE rolname = current_user"
_SETTING = "SELECT current_setting(:name) AS value"
_INDEX = """
    SELECT coalesce(documents.id, search.id) AS id
    FROM documents FULL JOIN search ON search.id = documents.id
    WHERE documents.id IS NULL OR search.id IS NULL OR search.grams IS DISTINCT FROM
        grams_of_text(documents.id >> 36, text) || grams_of_short(documents.id >> 36, short)
    LIMIT 6
"""


async def examine_server(address: str, clock: Clock) -> Report:
    """Look at everything, deeply. Takes time in proportion to the store, and room for a copy."""
    database = PostgresDatabase(address, clock=clock, read_only=True)
    report = Report(database.path)
    try:
        _look_at_schema(report, database)
        if report.exists:
            await _look_at_rows(report, database, clock)
    except psycopg.Error as problem:
        told = refused_by_server(database.path, problem, database.wait)
        report.add_refusal(told or unreachable(database.path, problem))
    except NotFound:
        report.exists = False
    except StateError as problem:
        report.add_refusal(problem)
    finally:
        await database.aclose()
    return report


def _look_at_schema(report: Report, database: PostgresDatabase) -> None:
    place = database.address
    with contextlib.closing(psycopg.connect(place.url)) as raw:
        opening.configure(raw, place.schema)
        connection = Connection(raw)
        connection.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        report.server = f"PostgreSQL {raw.info.parameter_status('server_version')}"
        version = opening.version_of(connection, place.schema)
        _check_settings(report, connection)
        if version is None:
            return
        report.exists, report.schema = True, version
        connection.within = Connection.EVERY
        params = {"schema": place.schema}
        report.size = connection.execute(_SIZE, params).fetchone()["size"]
        found = {(row["kind"], row["name"]) for row in connection.execute(_OBJECTS, params)}
        missing = [f"{kind} {name}" for kind, name in sorted(set(_expected(version)) - found)]
        if missing:
            report.add("damage", f"missing: {', '.join(missing[:10])}", _RESTORE)
            return
        report.add("ok", "schema")
        unwalled = [row["relname"] for row in connection.execute(_UNWALLED, params)]
        if unwalled:
            report.add(
                "damage",
                f"row level security is off: {', '.join(unwalled)}",
                "As the owner: ALTER TABLE … ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY.",
            )
        else:
            report.add("ok", "row level security")
        wrong = [str(row["id"]) for row in connection.execute(_INDEX)]
        if wrong:
            what = f"full-text index: it does not match documents {', '.join(wrong[:5])}"
            more = " and more" if len(wrong) > 5 else ""
            report.add("damage", what + more, _REINDEX.format(schema=place.schema))
        else:
            report.add("ok", "full-text index")


def _expected(version: int) -> Iterator[tuple[str, str]]:
    """What the statements of the schema make; none of them takes anything away."""
    for statements in opening.migrations()[:version]:
        for statement in statements:
            bare = re.sub(r"^\s*(--[^\n]*\n\s*)*", "", statement)
            if found := _MADE.match(bare):
                yield found[1].lower(), found[2]


def _check_settings(report: Report, connection: Connection) -> None:
    """What a server can be told that takes promises back."""
    for name, what in (
        ("fsync", "what was acknowledged can be lost, and the database with it"),
        ("full_page_writes", "a loss of power can damage the database"),
    ):
        if connection.execute(_SETTING, {"name": name}).fetchone()["value"] == "off":
            report.add("warning", f"{name} is off on this server: {what}", f"Set {name} = on.")
    if connection.execute(_ROLE).fetchone()["open"]:
        report.add(
            "warning",
            "this role is a superuser's, or passes by row level security: the second wall between "
            "projects does not hold for it",
            "Connect as a role that owns the schema and is no more than that.",
        )


async def _look_at_rows(report: Report, database: PostgresDatabase, clock: Clock) -> None:
    with tempfile.TemporaryDirectory(prefix="mcp-state-doctor-") as folder:
        copy = os.path.join(folder, "copy.db")
        copied = await copy_store(database, copy)
        report.changes = copied.events
        with contextlib.closing(sqlite_opening.new_connection(copy)) as connection:
            connection.row_factory = sqlite3.Row
            report.projects = projects_of(connection)
            report.findings.extend(
                finding
                for finding in inspect(connection, clock)
                if finding.what != "full-text index"  # the copy's own
            )
