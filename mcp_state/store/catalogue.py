"""How an engine is asked for its own schema, for what has to go through all of a store."""

from __future__ import annotations

from mcp_state.record import record


@record
class Catalogue:
    """Statements of one engine.

    Args:
        tables: the names of all tables.
        columns: of `:table`, each with its `name` and its `type`.
        parents: the tables that `:table` refers to.
        to_actors: the columns of `:table` that refer to actors.
        words: one text with every word that the schema is made of.
        handle: the column that names a row while a transaction lasts, unless it is changed.
    """

    tables: str
    columns: str
    parents: str
    to_actors: str
    words: str
    handle: str


SQLITE = Catalogue(
    tables="""
        SELECT name FROM pragma_table_list
        WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name
    """,
    columns="SELECT name, type FROM pragma_table_info(:table)",
    parents='SELECT DISTINCT "table" FROM pragma_foreign_key_list(:table)',
    to_actors="""
        SELECT "from" FROM pragma_foreign_key_list(:table) WHERE "table" = 'actors'
    """,
    words="SELECT coalesce(group_concat(sql, ' '), '') FROM sqlite_schema",
    handle="rowid",
)
