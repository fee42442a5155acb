"""Working memory: named texts with versions that only grow."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import replace
from typing import Any

from mcp_state.calls import call, tool
from mcp_state.errors import BadArgument, Conflict, Locked, NotFound, OverLimit, VersionConflict
from mcp_state.models import Event, MemoryBlock, MemoryPage, MissingBlock
from mcp_state.record import record
from mcp_state.store import documents
from mcp_state.store.events import event_with_version
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.run_rows import find_run
from mcp_state.store.text import clean, fold, one_line, tidy_name, within
from mcp_state.store.transaction import Reading, Row, Writing, actor_of, event_of, time_of
from mcp_state.times import ago, duration, from_text, to_text

_BLOCK = """
    SELECT * FROM memory_rows
    WHERE project = :project AND run = :run AND name = :name
"""
_BLOCKS = """
    SELECT * FROM memory_rows
    WHERE project = :project AND run = :run AND value IS NOT NULL
        AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY name LIMIT :limit
"""
_RECENT = """
    SELECT * FROM memory_rows
    WHERE project = :project AND run = :run AND value IS NOT NULL
        AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY changed DESC LIMIT :limit
"""
_SET = """
    INSERT INTO memory (project, run, name, shown, value, version,
                        changed, changed_at, changed_by, expires_at)
    VALUES (:project, :run, :name, :shown, :value, :version, :seq, :now, :actor, :expires_at)
    ON CONFLICT (project, run, name) DO UPDATE
       SET value = excluded.value, version = excluded.version, changed = excluded.changed,
           changed_at = excluded.changed_at, changed_by = excluded.changed_by,
           expires_at = excluded.expires_at
"""
_LOCK = """
    UPDATE memory SET locked = :reason WHERE project = :project AND run = :run AND name = :name
"""
_KEYS = "SELECT name FROM memory WHERE project = :project AND run = :run ORDER BY name"
_BEFORE = """
    SELECT * FROM event_rows
    WHERE project = :project AND kind = 'memory' AND name = :name AND seq <= :until
        AND operation <> 'refused'
    ORDER BY seq DESC LIMIT 1
"""

_CHANGED = """
    SELECT shown, version, value, expires_at FROM memory
    WHERE project = :project AND run = :run AND changed > :since
    ORDER BY changed DESC LIMIT :limit
"""

SHORTEN = "Shorten it, or split it over several keys; nothing was changed."


@record
class _Place:
    """Where a block is: its key as shown, in the project's memory or in that of a run."""

    key: str
    run: str = ""
    run_shown: str = ""

    @property
    def params(self) -> dict[str, str]:
        return {"run": self.run, "name": fold(self.key)}

    @property
    def subject(self) -> tuple[str, str]:
        return "memory", within(self.run, fold(self.key))

    @property
    def shown(self) -> str:
        return f"{self.run_shown}/{self.key}" if self.run else self.key

    def __str__(self) -> str:
        of = f" of run {self.run_shown!r}" if self.run else ""
        return f"block {self.key!r}{of}"

    def call(self) -> str:
        return call("memory_get", key=self.key, **({"run_id": self.run_shown} if self.run else {}))

    def unlock(self) -> str:
        """What a person runs to unlock it."""
        run = f" --run {shlex.quote(self.run_shown)}" if self.run else ""
        dashes = " --" if self.key.startswith("-") else ""
        return f"mcp-state memory unlock{run}{dashes} {shlex.quote(self.key)}"


class Memory(Noun):
    """The blocks of one project, and of its runs: `run` names one, empty is the project."""

    @reads
    def get(
        self, tx: Reading, key: str, *, run: str = "", version: int | None = None
    ) -> MemoryBlock | MissingBlock:
        """One block, at its current version or at an earlier one.

        Raises:
            NotFound: there is no such run, the block never had that version, or it was purged.
        """
        place = _place(tx, tidy_name(key, "key"), run)
        row = tx.one(_BLOCK, place.params)
        if version is not None:
            return _at_version(tx, place, row, version)
        if row is None or not _exists(row, tx.now):
            page = _page(tx, place.run, place.run_shown, 30)
            return MissingBlock(
                key=place.key if row is None else row["shown"],
                version=0 if row is None else row["version"],
                expired_at=None
                if row is None or row["value"] is None
                else time_of(row["expires_at"]),
                keys=[block.key for block in page.blocks],
                count=page.count,
                run=place.run_shown,
            )
        return block_of(tx, row, place.run_shown)

    @reads
    def blocks(self, tx: Reading, *, run: str = "", limit: int = 1000) -> MemoryPage:
        """All blocks by name, at most `limit` of them.

        Raises:
            NotFound: there is no such run.
        """
        place = _place(tx, "", run)
        return _page(tx, place.run, place.run_shown, limit)

    @writes
    def set(
        self,
        tx: Writing,
        key: str,
        value: str,
        *,
        run: str = "",
        expected_version: int | None = None,
        ttl: str = "",
    ) -> MemoryBlock:
        """Replace a block, or create it. `ttl` (90s, 20m, 4h, 3d) lets it expire.

        Raises:
            BadArgument: the value is empty.
            NotFound: there is no such run.
            VersionConflict: it moved on since `expected_version` (0: it must not exist).
            OverLimit: longer than a block may be; the old value stays.
            Locked: a person locked it.
        """
        return set_block(tx, key, value, run, expected_version, ttl)

    @writes
    def append(
        self,
        tx: Writing,
        key: str,
        text: str,
        *,
        run: str = "",
        expected_version: int | None = None,
        idempotency_key: str = "",
    ) -> MemoryBlock:
        """Add text at the end of a block, on the server, creating the block if need be.

        The same `idempotency_key` adds once: the answer to the second call is the block as it is
        now, marked `repeated`.

        Raises:
            BadArgument: the text is empty.
            NotFound: there is no such run.
            Conflict: the idempotency key was used with another text or block.
            VersionConflict: it moved on since `expected_version`.
            OverLimit: the block would be longer than it may be; the old value stays.
            Locked: a person locked it.
        """
        place = _enter(tx, tx.name(key, "key"), run)
        digest = hashlib.sha256(f"{place.subject[1]}\0{clean(text)[0]}".encode()).hexdigest()
        if idempotency_key:
            idempotency_key = tx.name(idempotency_key, "idempotency_key")
            if (first := tx.remembered("memory_append", idempotency_key)) is not None:
                return _again(tx, place, idempotency_key, digest, *first)
        place, row = _writable(tx, key, run, expected_version)
        if not text:
            raise BadArgument("text is empty", "Give the text to add.")
        old = row["value"] if row is not None and _exists(row, tx.now) else ""
        keep = row["expires_at"] if old and row is not None else None
        value = old + tx.text(text, str(place), tx.limits.block, SHORTEN)
        if len(value) > tx.limits.block:
            raise OverLimit.of(
                str(place),
                len(value),
                tx.limits.block,
                f"Nothing was added. Condense it with {tool('memory_set')}, or append to another "
                "key.",
            )
        tx.text(value, str(place), tx.limits.block, SHORTEN)  # a secret in two halves
        block = _store(tx, place, row, value, keep, "append")
        if idempotency_key:
            tx.remember("memory_append", idempotency_key, digest, block.version)
        return block

    @writes
    def delete(
        self, tx: Writing, key: str, *, run: str = "", expected_version: int | None = None
    ) -> MemoryBlock:
        """Delete a block; its versions stay in history. Returns it as it was.

        Raises:
            NotFound: there is no such block or run.
            VersionConflict: it moved on since `expected_version`.
            Locked: a person locked it.
        """
        place, row = _writable(tx, key, run, expected_version)
        if row is None or not _exists(row, tx.now):
            raise _no_block(tx, place)
        version = row["version"] + 1
        _write(tx, place, None, version, None)
        tx.event("delete", f"deleted, was version {row['version']}", None, version=version)
        documents.remove(tx, *place.subject)
        return block_of(tx, row, place.run_shown)

    @writes
    def restore(self, tx: Writing, key: str, version: int, *, run: str = "") -> MemoryBlock:
        """Make an old version current, as a new version.

        Raises:
            NotFound: there is no such run, the block never had that version, or it holds nothing.
            Locked: a person locked it.
        """
        place, row = _writable(tx, key, run, None)
        old = _at_version(tx, place, row, version)
        return _store(tx, place, row, old.value, None, "restore", f"version {version} restored")

    @writes
    def lock(self, tx: Writing, key: str, reason: str, *, run: str = "") -> MemoryBlock:
        """Keep tools from changing a block; an empty `reason` unlocks it. For people.

        Raises:
            NotFound: there is no such block or run.
        """
        place = _enter(tx, tidy_name(key, "key"), run)
        row = tx.one(_BLOCK, place.params)
        unlocks = row is not None and row["locked"] and not reason and row["value"] is not None
        if row is None or not (unlocks or _exists(row, tx.now)):
            raise _no_block(tx, place)
        reason = tx.text(reason, "the reason", tx.limits.text, "Say it shorter.")
        tx.run(_LOCK, place.params | {"reason": reason})
        row = tx.one(_BLOCK, place.params)
        assert row is not None
        summary = f"locked: {one_line(reason)}" if reason else "unlocked"
        tx.event("lock" if reason else "unlock", summary, row_of(row))
        return block_of(tx, row, place.run_shown)


def set_block(
    tx: Writing,
    key: str,
    value: str,
    run: str = "",
    expected_version: int | None = None,
    ttl: str = "",
) -> MemoryBlock:
    """Do what `Memory.set` describes."""
    place, row = _writable(tx, key, run, expected_version)
    if not value:
        raise BadArgument(
            f"value is empty, and {place} was left as it is",
            f"To remove a block, use {tool('memory_delete')}.",
        )
    value = tx.text(value, str(place), tx.limits.block, SHORTEN)
    expires_at = to_text(tx.at + duration(ttl, "ttl")) if ttl else None
    return _store(tx, place, row, value, expires_at, "set")


def version_of(tx: Reading, key: str) -> tuple[int, str | None]:
    """The version of a block of the project and what it holds, None if deleted; 0 for no block."""
    row = tx.one(_BLOCK, {"run": "", "name": fold(key)})
    return (0, None) if row is None else (row["version"], row["value"])


def _place(tx: Reading, key: str, run: str) -> _Place:
    if not run.strip():
        return _Place(key)
    row = find_run(tx, run)
    return _Place(key, row["name"], row["shown"])


def _enter(tx: Writing, key: str, run: str) -> _Place:
    """The place, as the subject of the transaction."""
    place = _place(tx, key, run)
    tx.subject, tx.of_run = place.subject, place.run or None
    return place


def _writable(
    tx: Writing, key: str, run: str, expected_version: int | None
) -> tuple[_Place, Row | None]:
    """The place, its key as first written, and the row to change, if it may be changed."""
    place = _enter(tx, tx.name(key, "key"), run)
    row = tx.one(_BLOCK, place.params)
    if row is None:
        current, by = 0, ""
    else:
        place = replace(place, key=row["shown"])
        current = row["version"] if _exists(row, tx.now) else 0
        when = ago(from_text(row["changed_at"]), tx.at)
        by = f"written by {one_line(row['agent'], 40)} {when}"
    if expected_version is not None and expected_version != current:
        raise VersionConflict.of(str(place), expected_version, current, by, place.call(), "write")
    if row is not None and row["locked"]:
        raise Locked(
            f"{place} was locked by a person: {one_line(row['locked'], 400)}",
            f"Leave it, or ask for `{place.unlock()}`.",
        )
    return place, row


def _store(
    tx: Writing,
    place: _Place,
    row: Row | None,
    value: str,
    expires_at: str | None,
    operation: str,
    summary: str = "",
) -> MemoryBlock:
    version = 1 if row is None else row["version"] + 1
    _write(tx, place, value, version, expires_at)
    stored = tx.one(_BLOCK, place.params)
    assert stored is not None
    size = f"{len(value)} char{'' if len(value) == 1 else 's'}"
    seq = tx.event(operation, f"{summary or operation}, {size}", row_of(stored), version=version)
    index(tx, place.run, place.shown, stored, seq)
    return block_of(tx, stored, place.run_shown)


def index(tx: Writing, run: str, shown: str, row: Row, seq: int) -> None:
    """Make a block findable, under its key or RUN/KEY."""
    name = within(run, row["name"])
    documents.put(tx, "memory", name, shown, text_of(row), seq, run)


def _write(
    tx: Writing, place: _Place, value: str | None, version: int, expires_at: str | None
) -> None:
    tx.run(
        _SET,
        place.params
        | {"shown": place.key, "value": value, "version": version, "expires_at": expires_at},
    )


def _again(
    tx: Writing, place: _Place, idempotency_key: str, digest: str, first: str, version: int
) -> MemoryBlock:
    if first != digest:
        raise Conflict(
            f"idempotency key {idempotency_key!r} was used for another append",
            "Use a new key for a new text.",
        )
    row = tx.one(_BLOCK, place.params)
    if row is None:
        raise _no_block(tx, place)
    if not _exists(row, tx.now):
        return replace(_at_version(tx, place, row, version), repeated=True)
    return replace(block_of(tx, row, place.run_shown), repeated=True)


def _at_version(tx: Reading, place: _Place, row: Row | None, version: int) -> MemoryBlock:
    event = event_with_version(tx, *place.subject, version)
    if row is None:
        raise _no_block(tx, place)
    if event is None or event.row is None:
        fact = f"{place} has no version {version}; its last one is {row['version']}"
        if event is not None:
            fact = f"version {version} of {place} is its deletion and holds nothing"
        versions = call("history", subject=f"memory:{place.shown}")
        raise NotFound(fact, f"{versions} lists the versions.")
    block = _block_in(tx, event, place.run_shown)
    return replace(block, expires_at=None, locked="", current=row["version"] == version)


def _block_in(tx: Reading, event: Event, run: str) -> MemoryBlock:
    """The block as an event left it."""
    row = event.row
    assert row is not None
    return MemoryBlock(
        key=row["key"],
        value=row["value"],
        version=row["version"],
        limit=tx.limits.block,
        changed_at=event.at,
        changed_by=event.actor,
        expires_at=time_of(row["expires_at"]),
        locked=row["locked"],
        run=run,
    )


def blocks_at(tx: Reading, run: str, run_shown: str, until: int, at: str) -> list[MemoryBlock]:
    """The blocks of a run (folded) as they were at event `until`, which was written `at`."""
    blocks: list[MemoryBlock] = []
    for name in tx.all(_KEYS, {"run": run}):
        row = tx.one(_BEFORE, {"name": within(run, name["name"]), "until": until})
        event = None if row is None else event_of(row)
        if event is not None and event.row is not None:
            expires_at = event.row["expires_at"]
            if expires_at is None or expires_at > at:
                blocks.append(_block_in(tx, event, run_shown))
    return blocks


def keys_changed_since(tx: Reading, run: str, seq: int, limit: int) -> list[tuple[str, int]]:
    """Blocks of a run (folded) that were written after an event, and their versions now.

    The last changed come first; the version of a deleted one is 0.
    """
    rows = tx.all(_CHANGED, {"run": run, "since": seq, "limit": limit})
    return [(row["shown"], row["version"] if _exists(row, tx.now) else 0) for row in rows]


def block_of(tx: Reading, row: Row, run: str = "") -> MemoryBlock:
    """The model of a row that holds a value."""
    return MemoryBlock(
        key=row["shown"],
        value=row["value"],
        version=row["version"],
        limit=tx.limits.block,
        changed_at=from_text(row["changed_at"]),
        changed_by=actor_of(row),
        expires_at=time_of(row["expires_at"]),
        locked=row["locked"],
        run=run,
    )


def recent_blocks(tx: Reading, limit: int) -> list[MemoryBlock]:
    """The blocks of the project that were changed last."""
    return [block_of(tx, row) for row in tx.all(_RECENT, {"run": "", "limit": limit})]


def row_of(row: Row) -> dict[str, Any]:
    """What the event keeps of a block."""
    return {
        "key": row["shown"],
        "value": row["value"],
        "version": row["version"],
        "expires_at": row["expires_at"],
        "locked": row["locked"],
    }


def text_of(row: Row) -> str:
    """What `search` reads of a block."""
    return f"{row['shown']}\n{row['value']}"


def _exists(row: Row, now: str) -> bool:
    return row["value"] is not None and (row["expires_at"] is None or row["expires_at"] > now)


def _page(tx: Reading, run: str, run_shown: str, limit: int) -> MemoryPage:
    rows = tx.all(_BLOCKS, {"run": run, "limit": limit + 1})
    blocks = [block_of(tx, row, run_shown) for row in rows[:limit]]
    count = len(rows)
    if count > limit and not run:
        count = max(count, tx.totals().memory)
    return MemoryPage(blocks, count, run_shown)


def _no_block(tx: Reading, place: _Place) -> NotFound:
    keys = [block.key for block in _page(tx, place.run, place.run_shown, 30).blocks]
    kind = f"block of run {place.run_shown!r}" if place.run else "block"
    shows = f"{tool('memory_get')} without a key shows all blocks."
    return NotFound.named(kind, place.key, keys[:5], shows)
