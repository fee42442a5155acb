"""The queue in front of BEGIN: a kernel lock on a side file, freed when its holder dies.

The kernel wakes those who wait for a `flock` in the order of asking, so that no process starves;
SQLite's own wait on a busy file is a lottery. The side file also keeps the number of changes that
were committed: it is how a `-wal` that went missing, and the changes in it, is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import os
import stat
import threading
import zlib
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from mcp_state.errors import StoreReadonly
from mcp_state.store.refusals import refused
from mcp_state.store.worker import is_cancelled_by_scope, until_done

try:
    import fcntl
except ImportError:  # Windows: the wait in front of BEGIN is then the only queue
    fcntl = None


_SAFELY = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_LENGTH = 29

T = TypeVar("T")


class NotOurTurn(Exception):
    """Others were before us for too long; nothing was begun."""


class Queue:
    """The place of one `Database` in the queue; not reentrant."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: int | None = None
        self._thread: _Thread | None = None

    async def first(self, work: Callable[[], T], seconds: float, *, apart: bool = False) -> T:
        """Do `work` while nobody else is at it; who has to wait begins within `seconds`, or never.

        Waiting can be cancelled; from its beginning on, nothing can. If nobody is before us it is
        done at once, here. Else, and if it is to be done `apart`, a thread waits and does it: the
        others wait, too, while one is woken, and they would wait for the event loop as well.

        Raises:
            NotOurTurn: the turn did not come in time.
            StateError: the side file can't be made, or locks do not work there.
            Exception: what `work` raises.
        """
        if not apart and self._take():
            try:
                return work()
            finally:
                self.unlock()
        self._thread = self._thread or _Thread()
        place = _Place(self, work)
        self._thread.run(place.do)
        try:
            return await place.outcome(seconds)
        finally:
            if place.given_up:  # what still waits there would keep others waiting
                self._end_thread()

    def _take(self) -> bool:
        """Take the lock if it is free."""
        try:
            while True:
                if self._file is None:
                    self._file = _open(self.path)
                if not _try_lock(self._file):
                    return False
                if _is_at(self._file, self.path):
                    return True
                self._close_file()  # it was replaced: others queue at the new one
        except OSError as problem:
            raise refused(self.path, problem) from problem

    def keep(self, file: int) -> None:
        """Use this descriptor, which holds the lock, from now on."""
        self._close_file()
        self._file = file

    def unlock(self) -> None:
        """Let the next one in."""
        if fcntl is not None and self._file is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            except OSError:
                self._close_file()  # what was done under the lock is done

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
        """Close the side file, and end the thread after what it waits for."""
        self._end_thread()
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            _close(file)

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._thread.end()
            self._thread = None

    @property
    def _descriptor(self) -> int:
        assert self._file is not None, "the lock is held"
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
    """Open the side file, making it if need be."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
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


def _try_lock(file: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked(path: str) -> int:
    """A descriptor of its own that has the lock, for which this thread waits."""
    while True:
        file = _open(path)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(file, path):
                return file
        except BaseException:
            _close(file)
            raise
        _close(file)


def _close(file: int) -> None:
    """Close a descriptor, and so free its lock, whatever a file system of the network says."""
    with contextlib.suppress(OSError):
        os.close(file)


class _Thread:
    """A daemon thread that does one thing after the other."""

    def __init__(self) -> None:
        self._todo: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def run(self, work: Callable[[], None]) -> None:
        """Do this after what was to be done before it."""
        self._todo.put(work)

    def end(self) -> None:
        """End after that."""
        self._todo.put(None)

    def _run(self) -> None:
        while (work := self._todo.get()) is not None:
            work()
            del work  # it would be kept until there is more to do


class _Place(Generic[T]):
    """A place in the line of those who wait for the lock, and what is to be done with it.

    A lock belongs to its descriptor: a place that is given up closes its own when it is granted,
    and so can't free a lock that was taken meanwhile.
    """

    def __init__(self, queue: Queue, work: Callable[[], T]) -> None:
        self.given_up = False
        self._begun = False
        self._queue = queue
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[T] = self._loop.create_future()
        self._state = threading.Lock()
        self._context = contextvars.copy_context()

    async def outcome(self, seconds: float) -> T:
        """What `Queue.first` describes."""
        try:
            await asyncio.wait([self._done], timeout=max(seconds, 0))
        except asyncio.CancelledError:
            if self._give_up():
                raise
            await until_done(self._done)
            if not is_cancelled_by_scope():  # a scope does it again, and what is done can be told
                self._done.exception()
                raise
        else:
            if self._give_up():
                raise NotOurTurn
            await until_done(self._done)
        return self._done.result()

    def do(self) -> None:
        """Wait for the lock, in a thread; then do the work, unless the place was given up."""
        file, problem = self._granted()
        with self._state:
            self._begun = not self.given_up
        if not self._begun:
            if file is not None:
                _close(file)
        elif file is None:
            self._tell(self._done.set_exception, problem)
        else:
            self._queue.keep(file)
            settle, outcome = self._worked()
            self._queue.unlock()
            self._tell(settle, outcome)

    def _granted(self) -> tuple[int | None, Exception | None]:
        try:
            return _locked(self._queue.path), None
        except OSError as problem:
            return None, refused(self._queue.path, problem)
        except Exception as problem:
            return None, problem

    def _worked(self) -> tuple[Callable[[Any], None], Any]:
        try:
            return self._done.set_result, self._context.run(self._work)
        except StopIteration as problem:
            return self._done.set_exception, RuntimeError(f"raised {problem!r}")
        except BaseException as problem:
            return self._done.set_exception, problem

    def _tell(self, settle: Callable[[Any], None], outcome: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody is there any more
            self._loop.call_soon_threadsafe(settle, outcome)

    def _give_up(self) -> bool:
        """Leave the line; False if the work was begun."""
        with self._state:
            self.given_up = not self._begun
            return self.given_up
