"""The queue in front of BEGIN: a kernel lock on a side file, freed when its holder dies.

The kernel wakes those who wait for a `flock` in the order of asking, so that no process starves;
SQLite's own wait on a busy file is a lottery. The side file also keeps the number of changes that
were committed: it is how a `-wal` that went missing, and the changes in it, is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import threading
import time
import zlib

from mcp_state.errors import StoreReadonly
from mcp_state.store.refusals import refused

try:
    import fcntl
except ImportError:  # Windows: the wait in front of BEGIN is then the only queue
    fcntl = None


_SAFELY = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_LENGTH = 29


class Queue:
    """The place of one `Database` in the queue; not reentrant."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: int | None = None

    def open(self) -> None:
        """Open the side file, making it if need be.

        Raises:
            OSError: it can't be opened, or locks do not work in its directory.
        """
        if self._file is None:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            self._file = _open(self.path)

    def try_lock(self) -> bool:
        """Take the lock if it is free.

        Raises:
            OSError: locks do not work in this directory.
        """
        if fcntl is None:
            return True
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    async def lock(self, seconds: float) -> bool:
        """Wait for the lock, in the kernel's order; False after `seconds`. Can be cancelled.

        Raises:
            StateError: the side file can't be made, or locks do not work there.
        """
        try:
            deadline = time.monotonic() + seconds
            while True:
                self.open()
                if not self.try_lock() and not await self._granted(deadline - time.monotonic()):
                    return False
                if _is_at(self._descriptor, self.path):
                    return True
                self.close()  # it was replaced while we waited: others queue at the new one
        except OSError as problem:
            raise refused(self.path, problem) from problem

    async def _granted(self, seconds: float) -> bool:
        wait = _Wait(_open(self.path), asyncio.get_running_loop())
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await wait.granted
        except TimeoutError:
            return False
        else:
            self.close()
            self._file = wait.take()
            return True
        finally:
            wait.abandon()

    def unlock(self) -> None:
        """Let the next one in."""
        if fcntl is not None and self._file is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            except OSError:
                self.close()  # what was done under the lock is done

    def changes(self) -> int:
        """The number of changes that the last writer left here; 0 if none did."""
        return _number(os.pread(self._descriptor, _LENGTH, 0))

    def note_changes(self, number: int) -> None:
        """Leave the number of changes for the next one who opens the store.

        Raises:
            OSError: not all of it could be written.
        """
        if os.pwrite(self._descriptor, _text(number), 0) != _LENGTH:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def close(self) -> None:
        """Close the side file; a lock that is held is freed."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @property
    def _descriptor(self) -> int:
        assert self._file is not None, "open() comes first"
        return self._file


def noted_changes(path: str) -> int:
    """The number of changes in the side file at `path`, for those who only read; 0 if unknown."""
    try:
        file = os.open(path, os.O_RDONLY | _SAFELY)
    except OSError:
        return 0
    try:
        return _number(os.read(file, _LENGTH))
    except OSError:
        return 0
    finally:
        os.close(file)


def _text(number: int) -> bytes:
    digits = b"%020d" % number
    return b"%s %08x" % (digits, zlib.crc32(digits))


def _number(text: bytes) -> int:
    """The number in a side file; 0 if it was not left there by `_text`."""
    digits = text[:20]
    return int(digits) if digits.isdigit() and text == _text(int(digits)) else 0


def _open(path: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise StoreReadonly(
                f"{path} is not a regular file", "Remove it; it is made anew. No restart is needed."
            )
    return os.open(path, os.O_RDWR | os.O_CREAT | _SAFELY, 0o600)


def _is_at(file: int, path: str) -> bool:
    """Whether an open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


class _Wait:
    """A blocking flock in a daemon thread, on a descriptor of its own.

    A lock belongs to its descriptor: a wait that is abandoned closes its own when it is granted,
    and so can't free a lock that was taken meanwhile.
    """

    def __init__(self, file: int, loop: asyncio.AbstractEventLoop) -> None:
        self.granted: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._file: int | None = file
        self._held = False
        self._abandoned = False
        self._state = threading.Lock()
        threading.Thread(target=self._run, args=(file,), daemon=True).start()

    def _run(self, file: int) -> None:
        assert fcntl is not None
        fcntl.flock(file, fcntl.LOCK_EX)
        with self._state:
            if self._abandoned:
                os.close(file)
                return
            self._held = True
            self._loop.call_soon_threadsafe(self._grant)

    def _grant(self) -> None:
        if not self.granted.done():
            self.granted.set_result(None)

    def take(self) -> int:
        """The descriptor that holds the lock; it is the caller's from now on."""
        with self._state:
            assert self._file is not None and self._held
            file, self._file = self._file, None
            return file

    def abandon(self) -> None:
        """Give up waiting, or give back a lock that nobody took."""
        with self._state:
            self._abandoned = True
            if self._held and self._file is not None:
                os.close(self._file)
                self._file = None
