"""The proof: the bytes of the files themselves, without SQLite between.

Of the files of the store all are searched but the `-shm`, which holds numbers of pages alone (and
which a process must not open beside SQLite: closing it would free SQLite's locks). So are the
copies that lie beside the store, under whatever name.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence

from mcp_state.models import PurgedFile
from mcp_state.store.purge.value import Value
from mcp_state.store.watch import MAGIC, shared

STORE = "the store"
WAL = "its write-ahead log"
EXPORT = "an export"
HALF_MADE = "half-made by a process that is at work, or was killed"
OLD_SCHEMA = "a copy made before the schema changed"
_FILES = {
    "": STORE,
    "-wal": WAL,
    "-journal": "its rollback journal",
    "-queue": "its queue",
}
OWN = frozenset(_FILES.values())
"""What the files of the store itself are."""
_BESIDE = (
    ("*.new-*", HALF_MADE),
    ("*.v*-*.bak", OLD_SCHEMA),
    ("*.damaged-*", "moved aside by `mcp-state restore`"),
)
_APPLICATION_ID = b"MCPS"
_BEGINS_EXPORT = b'{"mcp_state_export"'
_AT_ONCE = 1 << 20
_READ_LOCKS = range(123, 128)
"""The bytes of a -shm that readers lock."""
Step = Callable[[int], None]


def files_of(path: str) -> list[tuple[str, str]]:
    """The files to search, with what each is: those of the store, then the copies beside it."""
    own = [(path + end, what) for end, what in _FILES.items() if os.path.isfile(path + end)]
    folder = os.path.dirname(path)
    known = {name for name, _ in own} | {path + "-shm"}
    found: list[tuple[str, str]] = []
    for name in sorted(os.listdir(folder) if os.path.isdir(folder) else ()):
        file = os.path.join(folder, name)
        if file not in known and (what := _what_is(file, os.path.basename(path))):
            found.append((file, what))
    return own + found


def _what_is(file: str, store: str) -> str:
    """What a file beside the store is to it; empty if nothing."""
    name = os.path.basename(file)
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            return ""
        if name.startswith(store):
            for pattern, what in _BESIDE:
                if fnmatch.fnmatchcase(name, store + pattern[1:]):
                    return what
        with shared(file) as descriptor:
            head = os.pread(descriptor, 100, 0)
    except OSError:
        return ""
    if head.startswith(MAGIC) and head[68:72] == _APPLICATION_ID:
        return "a store, or a copy of one"
    return EXPORT if head.startswith(_BEGINS_EXPORT) else ""


def readers(path: str) -> str:
    """The processes that are reading an older state of a store, as far as the kernel tells."""
    try:
        found = os.stat(path + "-shm")
        with open("/proc/locks", encoding="ascii") as locks:
            lines = [line.split() for line in locks if " POSIX " in line]
    except OSError:
        return ""
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    pids = {
        int(words[-4])
        for words in lines
        if words[-3] == device and words[-2].isdigit() and int(words[-2]) in _READ_LOCKS
    }
    return ", ".join(f"process {pid}" for pid in sorted(pids) if pid > 0)


def search(path: str, value: Value, step: Step) -> Iterator[PurgedFile]:
    """Look for it in every file; `step` is told how many bytes were read."""
    needles = value.needles()
    overlap = max(len(piece) for pieces in needles for piece in pieces) - 1
    for file, what in files_of(path):
        try:
            with shared(file) as descriptor:
                size = os.fstat(descriptor).st_size
                yield PurgedFile(file, what, size, _count(descriptor, needles, overlap, step))
        except FileNotFoundError:
            continue
        except OSError:
            yield PurgedFile(file, what, 0, -1)


def _count(descriptor: int, needles: Sequence[Sequence[bytes]], overlap: int, step: Step) -> int:
    """How often it is there, in any spelling: as often as the most frequent of its pieces."""
    patterns = [[re.compile(re.escape(piece)) for piece in pieces] for pieces in needles]
    counts = [[0] * len(pieces) for pieces in needles]
    at, tail = 0, b""
    while read := os.pread(descriptor, _AT_ONCE, at):
        at += len(read)
        data = tail + read.lower()
        for pieces, found in zip(patterns, counts, strict=True):
            for number, piece in enumerate(pieces):
                found[number] += sum(m.end() > len(tail) for m in piece.finditer(data))
        tail = data[len(data) - overlap :] if overlap else b""
        step(len(read))
    return sum(max(found) for found in counts)
