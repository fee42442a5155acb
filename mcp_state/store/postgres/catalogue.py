"""How PostgreSQL is asked for the schema of a store."""

from __future__ import annotations

from mcp_state.store.catalogue import Catalogue

POSTGRES = Catalogue(
    tables="""
        SELECT relname::text FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY 1
    """,
    columns="""
        SELECT attname::text AS name, upper(format_type(atttypid, NULL)) AS type
        FROM pg_attribute
        WHERE attrelid = to_regclass(:table) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
    """,
    parents="""
        SELECT DISTINCT relname::text FROM pg_constraint JOIN pg_class ON pg_class.oid = confrelid
        WHERE contype = 'f' AND conrelid = to_regclass(:table)
    """,
    to_actors="""
        SELECT attname::text FROM pg_constraint
        JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
        WHERE contype = 'f' AND conrelid = to_regclass(:table)
            AND confrelid = to_regclass('actors')
    """,
    words="""
        WITH ours AS (SELECT current_schema()::regnamespace AS place)
        SELECT string_agg(word, ' ' ORDER BY word) FROM (
            SELECT 'CREATE TABLE ' || relname AS word FROM pg_class, ours
            WHERE relnamespace = place
            UNION ALL
            SELECT attname || ' ' || upper(format_type(atttypid, NULL))
            FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid, ours
            WHERE relnamespace = place
            UNION ALL
            SELECT pg_get_constraintdef(pg_constraint.oid) FROM pg_constraint, ours
            WHERE connamespace = place
            UNION ALL
            SELECT pg_get_triggerdef(pg_trigger.oid)
            FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid, ours
            WHERE relnamespace = place AND NOT tgisinternal
            UNION ALL
            SELECT proname || ' ' || prosrc FROM pg_proc, ours WHERE pronamespace = place
        ) AS words
    """,
    handle="ctid",
)
