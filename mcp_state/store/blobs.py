"""Blobs: large texts kept aside, under the hash of their content."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from mcp_state.calls import call, tool
from mcp_state.errors import BadArgument, Expired, NotFound, OverLimit, SecretRefused
from mcp_state.models import Blob, BlobPage
from mcp_state.record import record
from mcp_state.store import documents
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.text import clean, credential_in, fold, one_line
from mcp_state.store.transaction import Reading, Row, Writing, actor_of, time_of
from mcp_state.times import ago, duration, from_text, to_text

_BLOB = "SELECT * FROM blob_rows WHERE project = :project AND key = :key"
_BEGINNING = """
    SELECT * FROM blob_rows WHERE project = :project AND key >= :first AND key < :end
    ORDER BY key LIMIT :limit
"""
_NEWEST = """
    SELECT blob_rows.* FROM documents
    JOIN blob_rows ON blob_rows.project = documents.project AND blob_rows.key = documents.name
    WHERE documents.id >= :first AND documents.id < :end
        AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY documents.id DESC LIMIT :limit
"""
_PUT = """
    INSERT INTO blobs (project, key, sha256, bytes, characters, created, created_at,
                       changed, changed_at, changed_by, version, summary, expires_at, text)
    VALUES (:project, :key, :sha256, :bytes, :characters, :seq, :now,
            :seq, :now, :actor, 1, :summary, :expires_at, :text)
"""
_CHANGE = """
    UPDATE blobs SET version = version + 1, summary = :summary, expires_at = :expires_at,
        changed = :seq, changed_at = :now, changed_by = :actor
    WHERE project = :project AND key = :key
"""
_PAGE = """
    SELECT substr(text, :offset + 1, :limit) FROM blobs WHERE project = :project AND key = :key
"""
_TEXT = "SELECT text FROM blobs WHERE project = :project AND key = :key"

PAGE = 8_000
LONGEST_PAGE = 100_000
KEEP_THE_FILE = (
    "Leave the file where it is, and note its path and sha256 instead; nothing was saved."
)
_PREFIX = "b-"
_DIGITS = 32
_FEWEST_DIGITS = 8
_NEAR = 3
_SUMMARY = 120

# What text that was meant to be read never holds. Left out are the controls of terminals,
# printers and separated fields, which logs do hold: SOH, BEL to SI, ESC, FS to US and NEL.
_CONTROLS = "\x02-\x06\x10-\x1a\x7f-\x84\x86-\x9f\ufffd"
_NOT_TEXT = re.compile(f"[{_CONTROLS}]")
_ALONE = re.compile(f"(?<![{_CONTROLS}])\ufffd(?![{_CONTROLS}])")
_HEAD = 64
_TOLERATED = 6
_ONE_IN = 10
_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


@record
class _Content:
    """A text that can be kept, and what it is known by."""

    text: str
    sha256: str
    bytes: int
    credential: tuple[str, int] | None

    @property
    def key(self) -> str:
        return _PREFIX + self.sha256[:_DIGITS]

    @property
    def size(self) -> str:
        return f"{len(self.text):,} character{'' if len(self.text) == 1 else 's'}"


class Blobs(Noun):
    """The large texts of one project."""

    async def put(self, text: str, *, summary: str = "", ttl: str = "") -> Blob:
        """Keep a text; its key is made of its content, so that the same text is one blob.

        The text again, marked `repeated`, can prolong its life (`ttl`: 90s, 20m, 4h, 3d; none: for
        good), which is never shortened, and replace its summary. What expired comes back with the
        life that is given now. Without a summary it gets its first line for one.

        Raises:
            BadArgument: it is empty, or bytes, or reads like bytes.
            OverLimit: more bytes in UTF-8 than a blob may have.
            SecretRefused: it has the shape of a credential.
        """
        scan = not self.database.allow_secrets
        content = await asyncio.to_thread(_content, text, self.database.limits.blob, scan)
        return await self._put(content, summary, ttl)

    @writes
    def _put(self, tx: Writing, content: _Content, summary: str, ttl: str) -> Blob:
        return _put_content(tx, content, summary, ttl)

    @reads
    def get(self, tx: Reading, key: str, *, offset: int = 0, limit: int = PAGE) -> BlobPage:
        """A page of a text, from the character `offset` (counted from 0); after its end, empty.

        Eight hex digits of the key are enough if no other key begins with them.

        Raises:
            BadArgument: `offset` is negative, or `limit` is not 1 to 100,000.
            NotFound: no blob has that key, or several begin with it.
            Expired: it was kept for a time, which is over.
        """
        if offset < 0:
            raise BadArgument(f"offset is {offset}", "It counts characters, from 0.")
        if not 1 <= limit <= LONGEST_PAGE:
            raise BadArgument(
                f"limit is {limit}", f"Give 1 to {LONGEST_PAGE:,}, and read on from there."
            )
        blob = _found(tx, key)
        start = min(offset, blob.characters)  # SQLite counts here in 32 bits
        text: str = tx.scalar(_PAGE, {"key": blob.key, "offset": start, "limit": limit})
        return BlobPage(blob, offset, text, max(0, blob.characters - offset - len(text)))

    @reads
    def whole(self, tx: Reading, key: str) -> BlobPage:
        """All of a text as one page.

        Raises:
            NotFound: no blob has that key, or several begin with it.
            Expired: it was kept for a time, which is over.
        """
        blob = _found(tx, key)
        return BlobPage(blob, 0, tx.scalar(_TEXT, {"key": blob.key}), 0)


def row_of(row: Row) -> dict[str, Any]:
    """What the event keeps of a blob: all but its text."""
    columns = ("key", "version", "sha256", "bytes", "characters", "summary", "expires_at")
    return {column: row[column] for column in columns}


def text_of(row: Row) -> str:
    """What `search` reads of a blob."""
    return f"{row['key']}\n{row['summary']}"


def blob_of(row: Row) -> Blob:
    """The model of a row."""
    return Blob(
        key=row["key"],
        sha256=row["sha256"],
        bytes=row["bytes"],
        characters=row["characters"],
        summary=row["summary"],
        version=row["version"],
        created_at=from_text(row["created_at"]),
        changed_at=from_text(row["changed_at"]),
        changed_by=actor_of(row),
        expires_at=time_of(row["expires_at"]),
    )


# What can be kept


def _content(given: object, limit: int, scan: bool) -> _Content:
    """What takes a while for ten megabytes, before anybody has to wait for it."""
    if isinstance(given, bytes | bytearray | memoryview):
        raise BadArgument("text is bytes, and bytes are not text", KEEP_THE_FILE)
    if not isinstance(given, str):
        raise BadArgument(f"text is of type {type(given).__name__}", "Give a text.")
    if not given:
        raise BadArgument("text is empty", "Give the text to keep.")
    text = clean(given)[0]
    encoded = text.encode()
    if len(encoded) > limit:
        raise OverLimit(
            f"the text would be {len(encoded):,} bytes; the limit is {limit:,}",
            "Keep it in parts, or leave it in a file and note its path; nothing was saved.",
        )
    _refuse_binary(text)
    found = credential_in(text) if scan else None
    return _Content(text, hashlib.sha256(encoded).hexdigest(), len(encoded), found)


def _refuse_binary(text: str) -> None:
    """Refuse what is a file of bytes that somebody read as text.

    Compressed bytes show by their share of characters that no text holds: one in five, where one
    in ten is borne. Others hold long texts, but begin with a header, which shows at once.
    """
    first = _NOT_TEXT.search(text)
    if first is None:
        return
    borne = max(_TOLERATED, len(text) // _ONE_IN)
    if _weight(text) > borne or _weight(text[:_HEAD]) > _TOLERATED:
        count = _count(_NOT_TEXT, text)
        raise BadArgument(
            f"this is not text but bytes read as text: {count:,} of its {len(text):,} characters "
            f"are control characters or U+FFFD, the first at character {first.start()}",
            KEEP_THE_FILE,
        )


def _weight(text: str) -> int:
    """How many characters no text holds.

    A U+FFFD by itself counts half: it may be an accent that was read with the wrong encoding.
    """
    return _count(_NOT_TEXT, text) - _count(_ALONE, text) // 2


def _count(shape: re.Pattern[str], text: str) -> int:
    return shape.subn("", text)[1]


def _first_line(text: str, limit: int) -> str:
    """The first line with something to see in it, out of the beginning of a text."""
    start = _COLOUR.sub("", text.lstrip()[:2000])
    return next(filter(None, (one_line(line, limit) for line in start.splitlines())), "")


# Writing


def put_text(tx: Writing, text: str, summary: str) -> Blob:
    """Do what `Blobs.put` describes, as a part of a transaction."""
    scan = not tx.allow_secrets
    return _put_content(tx, _content(text, tx.limits.blob, scan), summary, "")


def _put_content(tx: Writing, content: _Content, summary: str, ttl: str) -> Blob:
    tx.subject = ("blob", content.key)
    if content.credential is not None:
        kind, position = content.credential
        raise SecretRefused.found(kind, "the text", position)
    expires_at = to_text(tx.at + duration(ttl, "ttl")) if ttl else None
    row = tx.one(_BLOB, {"key": content.key})
    if not summary.strip():
        limit = min(_SUMMARY, tx.limits.text)
        summary = _first_line(content.text, limit) if row is None else row["summary"]
    summary = tx.text(summary, "the summary", tx.limits.text, "Say it shorter; nothing was saved.")
    if row is None:
        return _put(tx, content, summary, expires_at)
    return _put_again(tx, content, row, summary, expires_at)


def _put(tx: Writing, content: _Content, summary: str, expires_at: str | None) -> Blob:
    tx.run(
        _PUT,
        {
            "key": content.key,
            "sha256": content.sha256,
            "bytes": content.bytes,
            "characters": len(content.text),
            "summary": summary,
            "expires_at": expires_at,
            "text": content.text,
        },
    )
    return _recorded(tx, content.key, "put", f"put, {content.size}: {one_line(summary, _SUMMARY)}")


def _put_again(
    tx: Writing, content: _Content, row: Row, summary: str, expires_at: str | None
) -> Blob:
    alive = _is_alive(row, tx.now)
    if alive:
        old = row["expires_at"]
        expires_at = None if old is None or expires_at is None else max(old, expires_at)
    said: list[str] = []
    if not alive:
        said.append(f"put again after it expired, {content.size}")
    if expires_at != row["expires_at"]:
        said.append(_life(expires_at))
    operation = "extend" if alive else "put"
    if summary != row["summary"]:
        operation = "describe" if alive else "put"
        said.append(f"described as {one_line(summary, _SUMMARY)}")
    if not said:
        return replace(blob_of(row), repeated=True)
    tx.run(_CHANGE, {"key": content.key, "summary": summary, "expires_at": expires_at})
    blob = _recorded(tx, content.key, operation, ", ".join(said))
    return replace(blob, repeated=alive)


def _recorded(tx: Writing, key: str, operation: str, said: str) -> Blob:
    """Keep the event of a row that was written, and make it findable."""
    row = tx.one(_BLOB, {"key": key})
    assert row is not None
    subject = ("blob", key)
    seq = tx.event(operation, said, row_of(row), version=row["version"], subject=subject)
    documents.put(tx, "blob", key, key, text_of(row), seq)
    return blob_of(row)


def extend(tx: Writing, row: Row, expires_at: str | None) -> None:
    """Keep a blob longer: until then, or for good."""
    fields = {"key": row["key"], "summary": row["summary"], "expires_at": expires_at}
    tx.run(_CHANGE, fields)
    _recorded(tx, row["key"], "extend", _life(expires_at))


# Reading


def _found(tx: Reading, key: str) -> Blob:
    digits = fold(key).removeprefix(_PREFIX)
    rows: Sequence[Row] = ()
    if re.fullmatch(f"[0-9a-f]{{{_FEWEST_DIGITS},{_DIGITS}}}", digits):
        beginning = {"first": _PREFIX + digits, "end": f"{_PREFIX}{digits}g", "limit": _NEAR + 1}
        rows = tx.all(_BEGINNING, beginning)
    if not rows:
        raise _no_blob(tx, key)
    if len(rows) > 1:
        more = ", …" if len(rows) > _NEAR else ""
        raise NotFound(
            f"several blobs begin with {key.strip()!r}: {_named(rows[:_NEAR])}{more}",
            "Give more of the key.",
        )
    (row,) = rows
    if not _is_alive(row, tx.now):
        when = ago(from_text(row["expires_at"]), tx.at)
        raise Expired(
            f"blob {_named([row])} expired {when}, at {_time(row['expires_at'])}",
            f"The same text given to {tool('blob_put')} brings it back.",
        )
    return blob_of(row)


def _no_blob(tx: Reading, key: str) -> NotFound:
    first, end = documents.range_of(tx.project, "blob")
    newest = tx.all(_NEWEST, {"first": first, "end": end, "limit": _NEAR})
    fact = f"no blob {one_line(key, 60)!r}"
    if not newest:
        keeps = f"{tool('blob_put')} keeps a text and tells its key."
        return NotFound(f"{fact}; none is kept here", keeps)
    return NotFound(
        f"{fact}; the newest are {_named(newest)}",
        f"A key is {_PREFIX} and {_DIGITS} hex digits, of which {_FEWEST_DIGITS} are enough; "
        f"{call('search', 'query', kinds=['blob'])} finds it by its summary.",
    )


def _named(rows: Iterable[Row]) -> str:
    return ", ".join(f"{row['key']} ({one_line(row['summary'], 60)})" for row in rows)


def _is_alive(row: Row, now: str) -> bool:
    return row["expires_at"] is None or row["expires_at"] > now


def _life(expires_at: str | None) -> str:
    return f"kept until {_time(expires_at)}" if expires_at else "kept for good"


def _time(text: str) -> str:
    return f"{from_text(text):%Y-%m-%d %H:%M} UTC"
