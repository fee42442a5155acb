"""What is looked at before each transaction: SQLite notices too late that its files were spoilt.

It keeps pages and the index of the -wal in memory, goes on acknowledging, and at the end writes
what it has over what is left. A few bytes tell in time.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

from mcp_state.errors import StoreDamaged
from mcp_state.store import wal

MAGIC = b"SQLite format 3\0"
_HEADER = 100
_APPLICATION_ID = slice(68, 72)


def _length_in(head: bytes) -> int:
    """How long the header says that the file is; for ever, if there is none."""
    if len(head) < _HEADER:
        return sys.maxsize
    page = int.from_bytes(head[16:18], "big")
    return int.from_bytes(head[28:32], "big") * (65536 if page == 1 else page)


# POSIX frees every lock that a process has on a file when it closes any descriptor of it: also
# those of SQLite, of whatever connection. So a process has one, until its last watch is closed.
_lock = threading.Lock()
_descriptors: dict[tuple[int, int], tuple[int, int]] = {}
"""By device and inode: the descriptor, and how many watches use it."""


def _share(path: str) -> int:
    """The process's descriptor of a file, opened if it is the first."""
    with _lock:
        found = os.stat(path)
        if (found.st_dev, found.st_ino) not in _descriptors:
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            found = os.fstat(opened)  # another file may have taken its place
            _descriptors.setdefault((found.st_dev, found.st_ino), (opened, 0))
        file = found.st_dev, found.st_ino
        descriptor, users = _descriptors[file]
        _descriptors[file] = descriptor, users + 1
        return descriptor


def _release(descriptor: int) -> None:
    with _lock:
        found = os.fstat(descriptor)
        file = found.st_dev, found.st_ino
        _, users = _descriptors[file]
        if users > 1:
            _descriptors[file] = descriptor, users - 1
        else:
            del _descriptors[file]
            os.close(descriptor)


@contextmanager
def shared(path: str) -> Generator[int]:
    """A descriptor to read a file by, that frees no lock of SQLite when it is given back."""
    descriptor = _share(path)
    try:
        yield descriptor
    finally:
        _release(descriptor)


class Watch:
    """The files of one connection.

    The main file stays open until `close`, which must come after the connections of its `Database`
    are closed.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._files: list[int] = []
        self._wal: int | None = None
        self._size = 0
        self._wal_size = 0

    def begin(self) -> None:
        """Look at files that were just opened and found whole."""
        if not self._files or not os.path.samestat(os.fstat(self._files[-1]), os.stat(self._path)):
            self._files.append(_share(self._path))
        self._size = self._wal_size = 0
        self._close_wal()
        self.check()

    def check(self) -> bool:
        """Whether all is as it was; False if a file became shorter, so that one should look again.

        Raises:
            StoreDamaged: a file was cut or overwritten since the last look.
        """
        if not self._files:
            return True
        size = os.fstat(self._files[-1]).st_size
        head = os.pread(self._files[-1], _HEADER, 0)
        shrunk, before, self._size = size < self._size, self._size, size
        if shrunk and size < _length_in(head):  # more than VACUUM would cut off
            cut = f"it was cut from {before:,} to {size:,} bytes while it was open"
            raise StoreDamaged.at(self._path, cut)
        if not head.startswith(MAGIC) or head[_APPLICATION_ID] != b"MCPS":
            raise StoreDamaged.at(self._path, "it was overwritten while it was open")
        return self._check_wal() and not shrunk

    def close(self) -> None:
        """Close what was opened."""
        self._close_wal()
        while self._files:
            _release(self._files.pop())

    def _check_wal(self) -> bool:
        path = self._path + "-wal"
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return True
        if self._wal is not None and os.fstat(self._wal).st_ino != found.st_ino:
            self._close_wal()
        if self._wal is None:
            self._wal = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        shrunk, self._wal_size = found.st_size < self._wal_size, found.st_size
        for _ in range(3):  # a writer may be renewing the header at this moment
            head = os.pread(self._wal, wal.HEADER, 0)
            if not head or wal.is_header(head):
                return not shrunk
        raise StoreDamaged.at(path, "it was overwritten while it was open; changes were in it")

    def _close_wal(self) -> None:
        if self._wal is not None:
            os.close(self._wal)
            self._wal = None
