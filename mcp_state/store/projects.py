"""The projects of a store: listing, renaming, and merging one into another."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from mcp_state.errors import BadArgument, Conflict, NotFound
from mcp_state.models import Project
from mcp_state.store import blobs, documents, handoffs, thread_rows
from mcp_state.store.noun import Noun, reads_across, writes_across
from mcp_state.store.text import LONGEST_NAME, fold, one_line, tidy_name
from mcp_state.store.transaction import Reading, Row, Writing, time_of, totals_of
from mcp_state.times import from_text

_PROJECTS = """
    SELECT projects.*,
        (SELECT at FROM events WHERE project = projects.id AND seq = last_event) AS changed_at,
        (SELECT json_group_array(shown) FROM (
            SELECT shown FROM project_names WHERE project = projects.id ORDER BY name
        )) AS names,
        (SELECT json_group_array(anchor) FROM (
            SELECT anchor FROM directories WHERE project = projects.id ORDER BY anchor
        )) AS directories
    FROM projects WHERE merged_into IS NULL AND :only IN (0, id)
    ORDER BY last_event DESC, id
"""
_BY_NAME = "SELECT project FROM project_names WHERE name = :name"
_SHOWN = "SELECT shown FROM projects WHERE id = :id"
_LAST_EVENT = "SELECT last_event FROM projects WHERE id = :id"
_SET_NAME = """
    INSERT INTO project_names (name, shown, project) VALUES (:name, :shown, :project)
    ON CONFLICT (name) DO UPDATE SET shown = excluded.shown
"""
_RENAME = "UPDATE projects SET shown = :shown WHERE id = :project"

_MEMORY_CLASHES = """
    SELECT name, shown FROM memory WHERE project = :project AND run = ''
        AND EXISTS (SELECT 1 FROM memory AS there
                    WHERE there.project = :into AND there.run = '' AND there.name = memory.name)
"""
_THREAD_CLASHES = """
    SELECT name, shown FROM threads WHERE project = :project
        AND EXISTS (SELECT 1 FROM threads AS there
                    WHERE there.project = :into AND there.name = threads.name)
"""
_RUN_CLASHES = """
    SELECT name, shown FROM runs WHERE project = :project
        AND EXISTS (SELECT 1 FROM runs AS there
                    WHERE there.project = :into AND there.name = runs.name)
"""
_FACT_CLASHES = """
    SELECT name, shown FROM facts WHERE project = :project
        AND EXISTS (SELECT 1 FROM facts AS there
                    WHERE there.project = :into AND there.name = facts.name)
"""
_OBJECTIVE_CLASHES = """
    SELECT name, shown FROM objectives WHERE project = :project
        AND EXISTS (SELECT 1 FROM objectives AS there
                    WHERE there.project = :into AND there.name = objectives.name)
"""
_BLOB_CLASHES = """
    SELECT ours.key, there.version, there.expires_at FROM blobs AS ours
    JOIN blobs AS there ON there.project = :into AND there.key = ours.key
    WHERE ours.project = :project
"""
_HANDOFF_CLASHES = """
    SELECT ours.key, there.accepted_at IS NOT NULL
        AND (ours.accepted_at IS NULL OR ours.accepted_at > there.accepted_at) AS stays
    FROM handoffs AS ours
    JOIN handoffs AS there ON there.project = :into AND there.key = ours.key
    WHERE ours.project = :project ORDER BY ours.created
"""
_TAKEN = """
    SELECT 1 FROM events
    WHERE project IN (:project, :into) AND kind = :kind AND name = :name LIMIT 1
"""
_KEEP_BLOCK_APART = (
    """
    UPDATE memory SET name = :name, shown = :shown
    WHERE project = :project AND run = '' AND name = :old
    """,
    """
    UPDATE events SET name = :name, row = CASE
        WHEN operation = 'refused' THEN row ELSE json_set(row, '$.key', :shown) END
    WHERE project = :project AND kind = 'memory' AND name = :old
    """,
)
_RENAME_EVENTS = """
    UPDATE events SET name = :name, row = CASE
        WHEN operation = 'refused' THEN row ELSE json_set(row, '$.name', :shown) END
    WHERE project = :project AND kind = :kind AND name = :old
"""
_KEEP_THREAD_APART = (
    "UPDATE threads SET name = :name, shown = :shown WHERE project = :project AND name = :old",
    "UPDATE journal SET thread = :name WHERE project = :project AND thread = :old",
    """
    UPDATE journal_topics SET topic = 'thread:' || :name
    WHERE project = :project AND topic = 'thread:' || :old
    """,
    _RENAME_EVENTS,
    """
    UPDATE events SET row = json_set(row, '$.thread', :name)
    WHERE project = :project AND kind = 'journal' AND json_extract(row, '$.thread') = :old
    """,
    """
    UPDATE events SET row = json_set(row, '$.thread', :name)
    WHERE project = :project AND kind = 'run' AND json_extract(row, '$.thread') = :old
    """,
    "UPDATE runs SET thread = :name WHERE project = :project AND thread = :old",
    """
    UPDATE events SET row = json_set(row, '$.depends_on', json((
        SELECT json_group_array(CASE WHEN value = :old_shown THEN :shown ELSE value END)
        FROM json_each(row, '$.depends_on')
    )))
    WHERE project = :project AND kind = 'thread'
        AND EXISTS (SELECT 1 FROM json_each(row, '$.depends_on') WHERE value = :old_shown)
    """,
)
_KEEP_RUN_APART = (
    "UPDATE runs SET name = :name, shown = :shown WHERE project = :project AND name = :old",
    "UPDATE memory SET run = :name WHERE project = :project AND run = :old",
    "UPDATE journal SET run = :name WHERE project = :project AND run = :old",
    """
    UPDATE journal_topics SET topic = 'run:' || :name
    WHERE project = :project AND topic = 'run:' || :old
    """,
    """
    UPDATE events SET row = json_set(row, '$.run', :name)
    WHERE project = :project AND kind = 'journal' AND json_extract(row, '$.run') = :old
    """,
    """
    UPDATE events SET name = :name, row = CASE
        WHEN kind = 'run' AND operation <> 'refused' THEN json_set(row, '$.name', :shown)
        ELSE row END
    WHERE project = :project AND kind IN ('run', 'transcript', 'trace') AND name = :old
    """,
    """
    UPDATE events SET name = :name || substr(name, length(:old) + 1), row = CASE
        WHEN kind = 'memory' OR operation = 'refused' THEN row
        ELSE json_set(row, '$.name', :shown
            || substr(json_extract(row, '$.name'), length(:old_shown) + 1)) END
    WHERE project = :project AND kind IN ('memory', 'step', 'checkpoint')
        AND substr(name, 1, length(:old) + 1) = :old || :within
    """,
    "UPDATE events SET run = :name WHERE project = :project AND run = :old",
    """
    UPDATE documents SET short = replace(short, :old_mark, :mark),
        name = CASE WHEN instr(name, :within) > 0 THEN :name || substr(name, length(:old) + 1)
            ELSE name END,
        shown = CASE WHEN instr(name, :within) > 0 THEN :shown
            || substr(shown, length(:old_shown) + 1) ELSE shown END
    WHERE project = :project AND instr(short, :old_mark) > 0
    """,
)
_KEEP_FACT_APART = (
    "UPDATE facts SET name = :name, shown = :shown WHERE project = :project AND name = :old",
    _RENAME_EVENTS,
)
_KEEP_OBJECTIVE_APART = (
    "UPDATE objectives SET name = :name, shown = :shown WHERE project = :project AND name = :old",
    _RENAME_EVENTS,
)
_NAMING_FACTS = """
    SELECT seq, row FROM events
    WHERE project = :project AND seq > :after AND operation <> 'refused' AND (
        kind = 'fact' AND json_extract(row, '$.reasons') <> '[]'
        OR kind = 'thread' AND json_extract(row, '$.relies_on') <> '[]'
    ) ORDER BY seq LIMIT :limit
"""
_SET_ROW = "UPDATE events SET row = :row WHERE project = :project AND seq = :number"
_KEEP_BLOB_ONCE = (
    """
    UPDATE events SET version = -version
    WHERE project = :project AND kind = 'blob' AND name = :key AND version IS NOT NULL
    """,
    """
    UPDATE events SET version = :version - version,
        row = json_set(row, '$.version',
            CAST(json_extract(row, '$.version') AS BIGINT) + :version)
    WHERE project = :project AND kind = 'blob' AND name = :key AND version IS NOT NULL
    """,
    "UPDATE blobs SET version = version + :version WHERE project = :project AND key = :key",
    "DELETE FROM blobs WHERE project = :into AND key = :key",
    "DELETE FROM documents WHERE project = :into AND kind = 'blob' AND name = :key",
)
_DROP_HANDOFF = "DELETE FROM handoffs WHERE project = :of AND key = :key"
_FORGET_APPENDS = """
    DELETE FROM idempotency WHERE project = :project AND operation = 'memory_append'
"""
_FORGET_IMPORTS = "DELETE FROM idempotency WHERE project = :project AND operation = 'import'"
_BLOB = "SELECT * FROM blob_rows WHERE project = :project AND key = :key"
_HANDOFF = "SELECT * FROM handoff_rows WHERE project = :project AND key = :key"
_DOCUMENT = """
    SELECT text FROM documents WHERE project = :project AND kind = :kind AND name = :old
"""
_RENAME_DOCUMENT = """
    UPDATE documents SET name = :name, shown = :shown, text = :text, short = :short
    WHERE project = :project AND kind = :kind AND name = :old
"""
_MOVE_DOCUMENTS = """
    UPDATE documents SET id = id + :shift, project = :into, seq = seq + :offset,
        name = CASE WHEN kind = 'journal' THEN CAST(seq + :offset AS TEXT) ELSE name END,
        shown = CASE WHEN kind = 'journal' THEN CAST(seq + :offset AS TEXT) ELSE shown END
    WHERE project = :project AND kind = :kind
"""
_MOVE = (
    """
    UPDATE events SET project = :into, seq = seq + :offset,
        name = CASE WHEN kind = 'journal' THEN CAST(CAST(name AS BIGINT) + :offset AS TEXT)
            ELSE name END,
        row = CASE
            WHEN kind = 'thread' AND CAST(json_extract(row, '$.lease_token') AS BIGINT) > 0
            THEN json_set(row, '$.lease_token',
                CAST(json_extract(row, '$.lease_token') AS BIGINT) + :offset)
            ELSE row END
    WHERE project = :project
    """,
    """
    UPDATE memory SET project = :into, changed = changed + :offset WHERE project = :project
    """,
    """
    UPDATE threads SET project = :into, created = created + :offset, changed = changed + :offset,
        lease_token = CASE WHEN lease_token > 0 THEN lease_token + :offset ELSE 0 END
    WHERE project = :project
    """,
    "DELETE FROM session_runs WHERE project = :project",
    "UPDATE checkpoints SET seq = seq + :offset WHERE project = :project",
    """
    UPDATE steps SET created = created + :offset, changed = changed + :offset
    WHERE project = :project
    """,
    "UPDATE attempts SET begun = begun + :offset, ended = ended + :offset WHERE project = :project",
    "UPDATE messages SET seq = seq + :offset WHERE project = :project",
    """
    UPDATE runs SET project = :into, created = created + :offset, changed = changed + :offset,
        touched = touched + :offset
    WHERE project = :project
    """,
    """
    UPDATE blobs SET project = :into, created = created + :offset, changed = changed + :offset
    WHERE project = :project
    """,
    """
    UPDATE premises SET given = CASE WHEN given > 0 THEN given + :offset ELSE 0 END
        WHERE project = :project
    """,
    """
    UPDATE facts SET project = :into, created = created + :offset, changed = changed + :offset,
        stated = stated + :offset, verified = verified + :offset
    WHERE project = :project
    """,
    """
    UPDATE objectives SET project = :into, created = created + :offset, changed = changed + :offset
    WHERE project = :project
    """,
    "UPDATE handoffs SET project = :into, created = created + :offset WHERE project = :project",
    "UPDATE journal SET project = :into, seq = seq + :offset WHERE project = :project",
    """
    INSERT INTO journal_topics (project, topic, seq, number)
    SELECT :into, topic, seq + :offset, number + coalesce((
        SELECT number FROM journal_topics AS there
        WHERE there.project = :into AND there.topic = journal_topics.topic
        ORDER BY seq DESC LIMIT 1
    ), 0)
    FROM journal_topics WHERE project = :project
    """,
    "DELETE FROM journal_topics WHERE project = :project",
    """
    INSERT INTO last_events (project, actor, agent, session, worktree, seq)
    SELECT :into, actor, agent, session, worktree, seq + :offset
    FROM last_events WHERE project = :project
    ON CONFLICT (project, actor) DO UPDATE SET seq = excluded.seq
    """,
    "DELETE FROM last_events WHERE project = :project",
    """
    UPDATE idempotency SET project = :into,
        seq = CASE WHEN operation = 'journal_append' THEN seq + :offset ELSE seq END
    WHERE project = :project AND NOT EXISTS (
        SELECT 1 FROM idempotency AS there
        WHERE there.project = :into AND there.operation = idempotency.operation
            AND there.key = idempotency.key
    )
    """,
    "DELETE FROM idempotency WHERE project = :project",
    """
    UPDATE projects SET (
        last_event, active, watching, blocked, done, dropped, journal, memory,
        open, completed, failed, abandoned, stopped,
        provisional, trusted, stale, refuted, archival
    ) = (
        SELECT projects.last_event + source.last_event, projects.active + source.active,
            projects.watching + source.watching, projects.blocked + source.blocked,
            projects.done + source.done, projects.dropped + source.dropped,
            projects.journal + source.journal, projects.memory + source.memory,
            projects.open + source.open, projects.completed + source.completed,
            projects.failed + source.failed, projects.abandoned + source.abandoned,
            projects.stopped + source.stopped,
            projects.provisional + source.provisional, projects.trusted + source.trusted,
            projects.stale + source.stale, projects.refuted + source.refuted,
            projects.archival + source.archival
        FROM projects AS source WHERE source.id = :project
    ) WHERE id = :into
    """,
    """
    UPDATE projects SET merged_into = :into, last_event = 0, active = 0, watching = 0,
        blocked = 0, done = 0, dropped = 0, journal = 0, memory = 0, open = 0, completed = 0,
        failed = 0, abandoned = 0, stopped = 0, provisional = 0, trusted = 0, stale = 0,
        refuted = 0, archival = 0
    WHERE id = :project
    """,
    "UPDATE projects SET merged_into = :into WHERE merged_into = :project",
    "UPDATE project_names SET project = :into WHERE project = :project",
    "UPDATE directories SET project = :into WHERE project = :project",
)
_APPEND_ONLY = ("events_are_final", "journal_is_final", "blobs_are_kept", "handoffs_are_kept")
_LEASED = """
    SELECT name, holder_agent FROM thread_rows
    WHERE project = :project AND lease_over = 0 AND lease_until > :now ORDER BY created
"""
_END_LEASE = """
    UPDATE threads SET lease_token = :seq, lease_holder = NULL, lease_until = NULL, lease_over = 0
    WHERE project = :project AND name = :name
"""
_THREAD = "SELECT * FROM thread_rows WHERE project = :project AND name = :name"

_LISTED = "`mcp-state projects` shows all of them; nothing was changed."
_LONGEST_SOURCE = 60
_AT_ONCE = 1000


class Projects(Noun):
    """All projects of the store, and what may be done with the caller's."""

    @reads_across
    def list(self, tx: Reading) -> Sequence[Project]:
        """All projects, the most active first, without those that were merged into another."""
        return [_project(row) for row in tx.all(_PROJECTS, {"only": 0})]

    @writes_across  # or two could take one name at the same time
    def rename(self, tx: Writing, new: str) -> Project:
        """Give the project another name; the names it had still lead to it.

        Raises:
            BadArgument: it is not a name.
            Conflict: another project has it.
            NotFound: the caller's project is not in the store.
        """
        shown = tidy_name(new, "the new name")
        was = _existing(tx)
        owner = tx.scalar(_BY_NAME, {"name": fold(shown)})
        if owner not in (None, tx.project):
            other = tx.scalar(_SHOWN, {"id": owner})
            raise Conflict(
                f"the name {shown!r} belongs to project {other!r}",
                f"To make one project of the two: `mcp-state projects merge {was!r} {other!r}`.",
            )
        if shown != was:
            tx.run(_SET_NAME, {"name": fold(shown), "shown": shown})
            tx.run(_RENAME, {"shown": shown})
            tx.event("rename", f"{was} -> {shown}", {"name": shown, "was": was})
        return _one(tx)

    @writes_across
    def merge(self, tx: Writing, into: str) -> Project:
        """Move everything of the project into another, in one transaction.

        Events get new numbers, after those of the other project. Threads, blocks, runs, facts and
        the objective whose names are taken there are kept apart as `name (from SOURCE)`, with
        their history; a blob that both have becomes one, with the longer of its lifetimes, and a
        handoff that both have is taken by who took it first. Leases end.
        An idempotency key that both used stays with the call of the other project; those of
        appends are forgotten where blocks are kept apart.

        Returns:
            The other project, as it is now.

        Raises:
            BadArgument: both names lead to the same project.
            NotFound: one of them is not in the store.
        """
        source = _existing(tx)
        target = tx.scalar(_BY_NAME, {"name": fold(into)})
        if target is None:
            raise NotFound.named("project", into.strip(), tx.known_projects()[:5], _LISTED)
        if target == tx.project:
            raise BadArgument(
                f"{into.strip()!r} is this project already", "Name another project to merge into."
            )
        moved = tx.seq - 1
        offset: int = tx.scalar(_LAST_EVENT, {"id": target})
        leased = [(row["name"], row["holder_agent"]) for row in tx.all(_LEASED)]
        with tx.lifted(*_APPEND_ONLY):
            apart = _keep_apart(tx, source, target)
            if {"memory", "run"} & {kind for kind, _, _ in apart}:  # they'd lead to other blocks
                tx.run(_FORGET_APPENDS)
            if {"memory", "thread"} & {kind for kind, _, _ in apart}:
                tx.run(_FORGET_IMPORTS)
            lifetimes = _keep_blobs_once(tx, target)
            taken = _keep_handoffs_once(tx, target)
            _move(tx, target, offset)
        tx.project, tx.seq = target, offset + moved + 1
        renamed = {old: fold(new) for kind, old, new in apart if kind == "thread"}
        for name, holder in leased:
            _end_lease(tx, renamed.get(name) or name, holder, source)
        _extend(tx, lifetimes)
        for key in taken:
            _stay_taken(tx, key, source)
        row = {
            "name": tx.scalar(_SHOWN, {"id": target}),
            "merged": source,
            "first": offset + 1,
            "last": offset + moved,
            "kept_apart": {f"{kind}:{old}": new for kind, old, new in apart},
        }
        tx.event("merge", f"{source} merged into this, {moved:,} events", row)
        return _one(tx)


def _existing(tx: Writing) -> str:
    """The name of the caller's project, which has to have a past."""
    if tx.seq == 1:
        raise NotFound.named("project", tx.caller.project, [], _LISTED)
    return tx.scalar(_SHOWN, {"id": tx.project})


def _keep_apart(tx: Writing, source: str, target: int) -> Sequence[tuple[str, str, str]]:
    """Rename, within the source, what the target has too: kind, old name, new name as shown."""
    apart: list[tuple[str, str, str]] = []
    facts: dict[str, str] = {}
    for kind, clashes, statements in (
        ("memory", _MEMORY_CLASHES, _KEEP_BLOCK_APART),
        ("thread", _THREAD_CLASHES, _KEEP_THREAD_APART),
        ("run", _RUN_CLASHES, _KEEP_RUN_APART),
        ("fact", _FACT_CLASHES, _KEEP_FACT_APART),
        ("objective", _OBJECTIVE_CLASHES, _KEEP_OBJECTIVE_APART),
    ):
        for row in tx.all(clashes, {"into": target}):
            shown = next(
                name
                for name in names_apart(row["shown"], source)
                if tx.one(_TAKEN, {"into": target, "kind": kind, "name": fold(name)}) is None
            )
            params = {
                "kind": kind,
                "name": fold(shown),
                "shown": shown,
                "old": row["name"],
                "old_shown": row["shown"],
                "mark": documents.run_mark(fold(shown)),
                "old_mark": documents.run_mark(row["name"]),
            }
            for statement in statements:
                tx.run(statement, params)
            _rename_document(tx, params)
            apart.append((kind, row["name"], shown))
            if kind == "fact":
                facts[row["shown"]] = shown
    if facts:
        _rename_facts_in_events(tx, facts)
    return apart


def _rename_facts_in_events(tx: Writing, facts: Mapping[str, str]) -> None:
    """What facts rest on, and threads rely on, by its new names; all at once, however many."""
    after = 0
    while rows := tx.all(_NAMING_FACTS, {"after": after, "limit": _AT_ONCE}):
        after = rows[-1]["seq"]
        for row in rows:
            kept: dict[str, Any] = json.loads(row["row"])
            old = kept.get("reasons", []), kept.get("relies_on", [])
            reasons = [[facts.get(name, name) for name in reason] for reason in old[0]]
            relies_on = [facts.get(name, name) for name in old[1]]
            if (reasons, relies_on) != old:
                new = {"reasons": reasons} if reasons else {"relies_on": relies_on}
                text = json.dumps(kept | new, ensure_ascii=False)
                tx.run(_SET_ROW, {"number": row["seq"], "row": text})


def names_apart(shown: str, source: str) -> itertools.chain[str]:
    """Names to try, all within the limit of a name."""
    if len(source) > _LONGEST_SOURCE:
        source = f"{source[: _LONGEST_SOURCE - 1]}…"

    def name(suffix: str) -> str:
        room = LONGEST_NAME - len(suffix)
        return (shown if len(shown) <= room else f"{shown[: room - 1]}…") + suffix

    return itertools.chain(
        [name(f" (from {source})")],
        (name(f" (from {source} {number})") for number in itertools.count(2)),
    )


def _rename_document(tx: Writing, params: dict[str, Any]) -> None:
    """The first line of a document is the name it is shown under."""
    text = tx.scalar(_DOCUMENT, params)
    if text is None:
        return
    _, line_break, rest = text.partition("\n")
    text = documents.indexed(params["shown"]) + line_break + rest
    run = params["name"] if params["kind"] == "run" else ""
    tx.run(_RENAME_DOCUMENT, params | {"text": text, "short": documents.short(text, run)})


def _keep_blobs_once(tx: Writing, target: int) -> Mapping[str, str | None]:
    """Make a blob of both projects one that goes on; returns until when each was to be kept."""
    clashes = tx.all(_BLOB_CLASHES, {"into": target})
    for row in clashes:
        for statement in _KEEP_BLOB_ONCE:
            tx.run(statement, {"into": target, "key": row["key"], "version": row["version"]})
    return {row["key"]: row["expires_at"] for row in clashes}


def _extend(tx: Writing, lifetimes: Mapping[str, str | None]) -> None:
    """What was to be kept longer in the other project is."""
    for key, until in lifetimes.items():
        row = tx.one(_BLOB, {"key": key})
        assert row is not None
        if row["expires_at"] is not None and (until is None or until > row["expires_at"]):
            blobs.extend(tx, row, until)


def _keep_handoffs_once(tx: Writing, target: int) -> Sequence[str]:
    """Make a handoff of both projects one; returns those that stay taken by who took them there."""
    clashes = tx.all(_HANDOFF_CLASHES, {"into": target})
    for row in clashes:
        tx.run(_DROP_HANDOFF, {"of": tx.project if row["stays"] else target, "key": row["key"]})
    return [row["key"] for row in clashes if row["stays"]]


def _stay_taken(tx: Writing, key: str, source: str) -> None:
    """The newest event says what is so, and those of the other project have come after."""
    row = tx.one(_HANDOFF, {"key": key})
    assert row is not None
    tx.event(
        "merge",
        f"stays taken by {one_line(row['taker_agent'], 40)}: {source} was merged into this",
        handoffs.row_of(row),
        subject=("handoff", key),
    )


def _move(tx: Writing, target: int, offset: int) -> None:
    params = {"into": target, "offset": offset}
    for statement in _MOVE:
        tx.run(statement, params)
    for kind in documents.KINDS:
        first, _ = documents.range_of(tx.project, kind)
        shift = documents.next_id(tx, target, kind) - first
        tx.run(_MOVE_DOCUMENTS, params | {"kind": kind, "shift": shift})


def _end_lease(tx: Writing, name: str, holder: str, source: str) -> None:
    """Whoever held it has to look again: the project around the thread is another one."""
    tx.run(_END_LEASE, {"name": name})
    row = tx.one(_THREAD, {"name": name})
    assert row is not None
    tx.event(
        "lease_broken",
        f"lease of {holder} ended: {source} was merged into this",
        thread_rows.row_of(tx, row),
        subject=("thread", name),
    )


def _one(tx: Reading) -> Project:
    row = tx.one(_PROJECTS, {"only": tx.project})
    assert row is not None
    return _project(row)


def _project(row: Row) -> Project:
    name = row["shown"]
    return Project(
        name=name,
        totals=totals_of(row),
        created_at=from_text(row["created_at"]),
        changed_at=time_of(row["changed_at"]),
        other_names=[other for other in json.loads(row["names"]) if fold(other) != fold(name)],
        directories=json.loads(row["directories"]),
    )
