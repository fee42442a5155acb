"""How blobs read: what is known of one comes first, then its text as it is."""

from __future__ import annotations

from datetime import datetime

from mcp_state.calls import call
from mcp_state.models import Blob, BlobPage
from mcp_state.render_words import by, indented
from mcp_state.store.blobs import PAGE
from mcp_state.store.text import one_line
from mcp_state.times import when


def blob_saved(blob: Blob, now: datetime) -> str:
    """What a write left behind, and how to read it."""
    word = "already kept" if blob.repeated else "saved"
    size = f"{blob.characters} characters, {blob.bytes} bytes"
    head = f"{word}: {blob.key} · version {blob.version} · {size} · {_facts(blob, now)}"
    if blob.repeated and blob.expires_at is None:
        head += " · for good"
    lines = [head, *(indented(one_line(blob.summary)) if blob.summary else [])]
    return "\n".join([*lines, f"{call('blob_get', key=blob.key)} reads it"])


def blob_page(page: BlobPage, now: datetime, limit: int = PAGE) -> str:
    """One line of ours with the next call, then the characters of the page exactly."""
    blob = page.blob
    end = page.offset + len(page.text)
    if not page.text:
        where = f"no character {page.offset}: it has {blob.characters}, from 0"
        return f"{blob.key} · {where} · {_facts(blob, now)}"
    words = [blob.key, f"characters {page.offset} to {end} of {blob.characters}"]
    if page.more:
        size = {} if limit == PAGE else {"limit": limit}
        words.append(f"next: {call('blob_get', key=blob.key, offset=end, **size)}")
    else:
        words.append("the end")
    return f"{' · '.join([*words, _facts(blob, now)])}\n{page.text}"


def _facts(blob: Blob, now: datetime) -> str:
    """Who, when, and until when."""
    expires = f" · expires {when(blob.expires_at, now)}" if blob.expires_at else ""
    return by(blob.changed_by, blob.changed_at, now) + expires
