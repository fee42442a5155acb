"""Working memory: named texts with versions that only grow."""

from __future__ import annotations

import hashlib
from typing import Any

from mcp_state.errors import BadArgument, Conflict, Locked, NotFound, OverLimit, VersionConflict
from mcp_state.models import MemoryBlock, MemoryPage, MissingBlock
from mcp_state.store import documents
from mcp_state.store.events import event_with_version
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.text import clean, fold, one_line, quoted, tidy_name
from mcp_state.store.transaction import Reading, Row, Writing, actor_of, time_of
from mcp_state.times import ago, duration, from_text, to_text

_BLOCK = """
    SELECT * FROM memory_rows
    WHERE project = :project AND run = '' AND name = :name
"""
_BLOCKS = """
    SELECT * FROM memory_rows
    WHERE project = :project AND run = '' AND value IS NOT NULL
        AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY name LIMIT :limit
"""
_RECENT = """
    SELECT * FROM memory_rows
    WHERE project = :project AND run = '' AND value IS NOT NULL
        AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY changed DESC LIMIT :limit
"""
_SET = """
    INSERT INTO memory (project, name, shown, value, version,
                        changed, changed_at, changed_by, expires_at)
    VALUES (:project, :name, :shown, :value, :version, :seq, :now, :actor, :expires_at)
    ON CONFLICT (project, run, name) DO UPDATE
       SET value = excluded.value, version = excluded.version, changed = excluded.changed,
           changed_at = excluded.changed_at, changed_by = excluded.changed_by,
           expires_at = excluded.expires_at
"""
_LOCK = "UPDATE memory SET locked = :reason WHERE project = :project AND run = '' AND name = :name"

SHORTEN = "Shorten it, or split it over several keys; nothing was changed."


class Memory(Noun):
    """The blocks of one project."""

    @reads
    def get(
        self, tx: Reading, key: str, *, version: int | None = None
    ) -> MemoryBlock | MissingBlock:
        """One block, at its current version or at an earlier one.

        Raises:
            NotFound: the block never had that version, or its value was purged.
        """
        key = tidy_name(key, "key")
        row = tx.one(_BLOCK, {"name": fold(key)})
        if version is not None:
            return _at_version(tx, key, row, version)
        if row is None or not _exists(row, tx.now):
            page = _page(tx, 30)
            return MissingBlock(
                key=key if row is None else row["shown"],
                version=0 if row is None else row["version"],
                expired_at=None
                if row is None or row["value"] is None
                else time_of(row["expires_at"]),
                keys=[block.key for block in page.blocks],
                count=page.count,
            )
        return block_of(tx, row)

    @reads
    def blocks(self, tx: Reading, *, limit: int = 1000) -> MemoryPage:
        """All blocks by name, at most `limit` of them."""
        return _page(tx, limit)

    @writes
    def set(
        self,
        tx: Writing,
        key: str,
        value: str,
        *,
        expected_version: int | None = None,
        ttl: str = "",
    ) -> MemoryBlock:
        """Replace a block, or create it. `ttl` (90s, 20m, 4h, 3d) lets it expire.

        Raises:
            BadArgument: the value is empty.
            VersionConflict: it moved on since `expected_version` (0: it must not exist).
            OverLimit: longer than a block may be; the old value stays.
            Locked: a person locked it.
        """
        key, row = _writable(tx, key, expected_version)
        if not value:
            raise BadArgument(
                f"value is empty, and block {key!r} was left as it is",
                "To remove a block, use memory_delete.",
            )
        value = tx.text(value, f"block {key!r}", tx.limits.block, SHORTEN)
        expires_at = to_text(tx.at + duration(ttl, "ttl")) if ttl else None
        return _store(tx, key, row, value, expires_at, "set")

    @writes
    def append(
        self,
        tx: Writing,
        key: str,
        text: str,
        *,
        expected_version: int | None = None,
        idempotency_key: str = "",
    ) -> MemoryBlock:
        """Add text at the end of a block, on the server, creating the block if need be.

        The same `idempotency_key` adds once: the answer to the second call is the block as it is
        now, marked `repeated`.

        Raises:
            BadArgument: the text is empty.
            Conflict: the idempotency key was used with another text or block.
            VersionConflict: it moved on since `expected_version`.
            OverLimit: the block would be longer than it may be; the old value stays.
            Locked: a person locked it.
        """
        key = tx.name(key, "key")
        tx.subject = ("memory", fold(key))
        digest = hashlib.sha256(f"{fold(key)}\0{clean(text)[0]}".encode()).hexdigest()
        if idempotency_key:
            idempotency_key = tx.name(idempotency_key, "idempotency_key")
            if (first := tx.remembered("memory_append", idempotency_key)) is not None:
                return _again(tx, key, idempotency_key, digest, *first)
        key, row = _writable(tx, key, expected_version)
        if not text:
            raise BadArgument("text is empty", "Give the text to add.")
        old = row["value"] if row is not None and _exists(row, tx.now) else ""
        keep = row["expires_at"] if old and row is not None else None
        value = old + tx.text(text, f"block {key!r}", tx.limits.block, SHORTEN)
        if len(value) > tx.limits.block:
            raise OverLimit.of(
                f"block {key!r}",
                len(value),
                tx.limits.block,
                "Nothing was added. Condense it with memory_set, or append to another key.",
            )
        tx.text(value, f"block {key!r}", tx.limits.block, SHORTEN)  # a secret in two halves
        block = _store(tx, key, row, value, keep, "append")
        if idempotency_key:
            tx.remember("memory_append", idempotency_key, digest, block.version)
        return block

    @writes
    def delete(self, tx: Writing, key: str, *, expected_version: int | None = None) -> MemoryBlock:
        """Delete a block; its versions stay in history. Returns it as it was.

        Raises:
            NotFound: there is no such block.
            VersionConflict: it moved on since `expected_version`.
            Locked: a person locked it.
        """
        key, row = _writable(tx, key, expected_version)
        if row is None or not _exists(row, tx.now):
            raise _no_block(tx, key)
        version = row["version"] + 1
        _write(tx, key, None, version, None)
        tx.event("delete", f"deleted, was version {row['version']}", None, version=version)
        documents.remove(tx, "memory", fold(key))
        return block_of(tx, row)

    @writes
    def restore(self, tx: Writing, key: str, version: int) -> MemoryBlock:
        """Make an old version current, as a new version.

        Raises:
            NotFound: the block never had that version, or it holds nothing.
            Locked: a person locked it.
        """
        key, row = _writable(tx, key, None)
        old = _at_version(tx, key, row, version)
        return _store(tx, key, row, old.value, None, "restore", f"version {version} restored")

    @writes
    def lock(self, tx: Writing, key: str, reason: str) -> MemoryBlock:
        """Keep tools from changing a block; an empty `reason` unlocks it. For people.

        Raises:
            NotFound: there is no such block.
        """
        key = tidy_name(key, "key")
        tx.subject = ("memory", fold(key))
        row = tx.one(_BLOCK, {"name": fold(key)})
        unlocks = row is not None and row["locked"] and not reason and row["value"] is not None
        if row is None or not (unlocks or _exists(row, tx.now)):
            raise _no_block(tx, key)
        reason = tx.text(reason, "the reason", tx.limits.text, "Say it shorter.")
        tx.run(_LOCK, {"name": fold(key), "reason": reason})
        row = tx.one(_BLOCK, {"name": fold(key)})
        assert row is not None
        summary = f"locked: {one_line(reason)}" if reason else "unlocked"
        tx.event("lock" if reason else "unlock", summary, row_of(row))
        return block_of(tx, row)


def _writable(tx: Writing, key: str, expected_version: int | None) -> tuple[str, Row | None]:
    """The name as first written and the row to change, if it may be changed."""
    key = tx.name(key, "key")
    tx.subject = ("memory", fold(key))
    row = tx.one(_BLOCK, {"name": fold(key)})
    if row is None:
        current, by = 0, ""
    else:
        key = row["shown"]
        current = row["version"] if _exists(row, tx.now) else 0
        when = ago(from_text(row["changed_at"]), tx.at)
        by = f"written by {one_line(row['agent'], 40)} {when}"
    if expected_version is not None and expected_version != current:
        raise VersionConflict.of(
            f"block {key!r}",
            expected_version,
            current,
            by,
            f"memory_get(key={quoted(key)})",
            "write",
        )
    if row is not None and row["locked"]:
        raise Locked(
            f"block {key!r} was locked by a person: {one_line(row['locked'], 400)}",
            f"Leave it, or ask for `mcp-state memory unlock {key}`.",
        )
    return key, row


def _store(
    tx: Writing,
    key: str,
    row: Row | None,
    value: str,
    expires_at: str | None,
    operation: str,
    summary: str = "",
) -> MemoryBlock:
    version = 1 if row is None else row["version"] + 1
    _write(tx, key, value, version, expires_at)
    stored = tx.one(_BLOCK, {"name": fold(key)})
    assert stored is not None
    size = f"{len(value)} char{'' if len(value) == 1 else 's'}"
    seq = tx.event(operation, f"{summary or operation}, {size}", row_of(stored), version=version)
    documents.put(tx, "memory", fold(key), key, f"{key}\n{value}", seq)
    return block_of(tx, stored)


def _write(tx: Writing, key: str, value: str | None, version: int, expires_at: str | None) -> None:
    tx.run(
        _SET,
        {
            "name": fold(key),
            "shown": key,
            "value": value,
            "version": version,
            "expires_at": expires_at,
        },
    )


def _again(
    tx: Writing, key: str, idempotency_key: str, digest: str, first: str, version: int
) -> MemoryBlock:
    if first != digest:
        raise Conflict(
            f"idempotency key {idempotency_key!r} was used for another append",
            "Use a new key for a new text.",
        )
    row = tx.one(_BLOCK, {"name": fold(key)})
    assert row is not None
    if row["value"] is None:
        return _at_version(tx, key, row, version, repeated=True)
    return block_of(tx, row, repeated=True)


def _at_version(
    tx: Reading, key: str, row: Row | None, version: int, *, repeated: bool = False
) -> MemoryBlock:
    event = event_with_version(tx, "memory", fold(key), version)
    if row is None:
        raise _no_block(tx, key)
    if event is None or event.row is None:
        fact = f"block {key!r} has no version {version}; its last one is {row['version']}"
        if event is not None:
            fact = f"version {version} of block {key!r} is its deletion and holds nothing"
        raise NotFound(fact, f"history(subject={quoted('memory:' + key)}) lists the versions.")
    return MemoryBlock(
        key=event.row["key"],
        value=event.row["value"],
        version=version,
        limit=tx.limits.block,
        changed_at=event.at,
        changed_by=event.actor,
        current=row["version"] == version,
        repeated=repeated,
    )


def block_of(tx: Reading, row: Row, *, repeated: bool = False) -> MemoryBlock:
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
        repeated=repeated,
    )


def recent_blocks(tx: Reading, limit: int) -> list[MemoryBlock]:
    """The blocks that were changed last."""
    return [block_of(tx, row) for row in tx.all(_RECENT, {"limit": limit})]


def row_of(row: Row) -> dict[str, Any]:
    """What the event keeps of a block."""
    return {
        "key": row["shown"],
        "value": row["value"],
        "version": row["version"],
        "expires_at": row["expires_at"],
        "locked": row["locked"],
    }


def _exists(row: Row, now: str) -> bool:
    return row["value"] is not None and (row["expires_at"] is None or row["expires_at"] > now)


def _page(tx: Reading, limit: int) -> MemoryPage:
    blocks = [block_of(tx, row) for row in tx.all(_BLOCKS, {"limit": limit})]
    count = tx.totals().memory if len(blocks) == limit else len(blocks)
    return MemoryPage(blocks, count)


def _no_block(tx: Reading, key: str) -> NotFound:
    keys = [block.key for block in _page(tx, 30).blocks]
    return NotFound.named("block", key, keys[:5], "memory_get without a key shows all blocks.")
