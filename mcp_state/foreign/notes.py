"""A folder of Markdown notes: each file becomes a memory block, keyed by its path without `.md`.

A note is kept as it is, front matter and all.
"""

from __future__ import annotations

import os

from mcp_state.foreign.files import LONGEST_TEXT, Unreadable, read_text, walk
from mcp_state.foreign.records import Block, Source
from mcp_state.store.text import LONGEST_NAME

NAME = "notes"
_ENDING = ".md"


def read(path: str) -> Source:
    """All notes of a folder, or the one of a file."""
    if os.path.isdir(path):
        source = Source(NAME, path)
        add(source, path, "")
    else:
        source = Source(NAME, os.path.dirname(os.path.abspath(path)))
        _add(source, os.path.basename(path), path, "")
    return source


def add(source: Source, folder: str, before: str) -> None:
    """Add the notes of a folder, with this before their keys."""
    for inside, path in walk(source, folder, _ENDING):
        _add(source, inside, path, before)


def _add(source: Source, inside: str, path: str, before: str) -> None:
    place = before + inside
    key = place.replace(os.sep, "/")
    key = key[: -len(_ENDING)] if key.lower().endswith(_ENDING) else key
    try:
        text = read_text(path, LONGEST_TEXT)
    except Unreadable as problem:
        source.leave(place, "a note", str(problem))
        return
    if not text.strip():
        source.leave(place, "a note", "it is empty")
    elif len(key) > LONGEST_NAME:
        source.leave(place, "a note", f"its path has more than {LONGEST_NAME} characters")
    else:
        source.blocks.append(Block(place, key, text))
