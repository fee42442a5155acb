"""What `search` finds: one document per memory block, thread, journal entry, run, blob and fact."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from mcp_state.store.transaction import Reading, Writing

KINDS = ("memory", "thread", "journal", "run", "blob", "fact")
_KINDS_PER_PROJECT = 16
_RANGE = 1 << 36
_WIDE = (
    "["
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
    "]+"
)
_WORD = re.compile(r"[^\W_]+")
_PAD = "\x1f"

_NEXT_ID = """
    SELECT coalesce(max(id), :first - 1) + 1 FROM documents WHERE id >= :first AND id < :end
"""
_PUT = """
    INSERT INTO documents (id, project, kind, name, shown, seq, uses, text, short)
    VALUES (:id, :project, :kind, :name, :shown, :seq, 1, :text, :short)
    ON CONFLICT (project, kind, name) DO UPDATE
       SET id = excluded.id, seq = excluded.seq, uses = documents.uses + 1,
           text = excluded.text, short = excluded.short
"""
_REMOVE = "DELETE FROM documents WHERE project = :project AND kind = :kind AND name = :name"
_REFER = """
    UPDATE documents SET uses = uses + 1
    WHERE project = :project AND kind = :kind AND name = :name
"""


def range_of(project: int, kind: str) -> tuple[int, int]:
    """The ids of a project's documents of one kind: the first, and the first after them."""
    number = project * _KINDS_PER_PROJECT + KINDS.index(kind)
    return number * _RANGE, (number + 1) * _RANGE


def next_id(tx: Reading, project: int, kind: str) -> int:
    """The id of a project's next document of one kind."""
    first, end = range_of(project, kind)
    return tx.scalar(_NEXT_ID, {"first": first, "end": end})


def indexed(text: str) -> str:
    """A text as it is indexed and asked for: one spelling of composed characters."""
    return unicodedata.normalize("NFC", text).replace(_PAD, " ")


def short(text: str, run: str = "") -> str:
    """The column `short` of a document with this text, of this run (folded)."""
    marks = [run_mark(run)] if run else []
    return " ".join([*sorted(set(short_forms(text))), *marks])


def run_mark(run: str) -> str:
    """What stands in `short` of every document of a run, and of no other."""
    return f"{_PAD}{run}{_PAD}"


def short_forms(text: str) -> Iterator[str]:
    """What trigrams can't find, padded to three characters.

    Words of one or two letters, and each one and two characters of a script without spaces.
    """
    for word in set(_WORD.findall(text)):
        if word.isascii():
            if len(word) <= 2:
                yield word.ljust(3, _PAD)
            continue
        for run in re.findall(_WIDE, word):
            yield from (c.ljust(3, _PAD) for c in run)
            yield from (run[i : i + 2].ljust(3, _PAD) for i in range(len(run) - 1))
        for part in re.split(_WIDE, word):
            if 1 <= len(part) <= 2:
                yield part.ljust(3, _PAD)


def put(tx: Writing, kind: str, name: str, shown: str, text: str, seq: int, run: str = "") -> None:
    """Make this the newest document of the project, replacing the one of the same subject."""
    text = indexed(text)
    tx.run(
        _PUT,
        {
            "id": next_id(tx, tx.project, kind),
            "kind": kind,
            "name": name,
            "shown": shown,
            "seq": seq,
            "text": text,
            "short": short(text, run),
        },
    )


def remove(tx: Writing, kind: str, name: str) -> None:
    """Take a subject out of the search."""
    tx.run(_REMOVE, {"kind": kind, "name": name})


def refer(tx: Writing, kind: str, name: str) -> None:
    """Count that something else pointed at this subject."""
    tx.run(_REFER, {"kind": kind, "name": name})
