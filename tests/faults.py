"""Faults injected with strace: errors, writes that write nothing, and kills, at one system call.

strace counts the calls of a thread that touch the files of a store; each of them is a point. They
are found by watching a whole process once, and struck by attaching to that thread alone. A write
that stops half-way is the kernel's own doing: a limit on the size of files ends there.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from deeds import AT, FINE
from victims import PATIENCE, Victim, nursery

KILL = "kill"
SHORT = "short"
_NAMING = ("EIO", "EIO for good", "ENOSPC", KILL)
FAULTS = {
    "openat": ("EIO", "ENOSPC", "EINTR", KILL),
    "pwrite64": ("EIO", "EIO for good", "ENOSPC", "EINTR", "nothing written", SHORT, KILL),
    "write": ("EIO", "ENOSPC", "EINTR", KILL),
    "fsync": ("EIO", "ENOSPC", "EINTR", KILL),
    "fdatasync": ("EIO", "EIO for good", "ENOSPC", "EINTR", KILL),
    "ftruncate": ("EIO", "ENOSPC", "EINTR", KILL),
    "fallocate": ("EIO", "ENOSPC", "EINTR", KILL),
    **dict.fromkeys(("rename", "renameat", "renameat2", "link", "linkat"), _NAMING),
    **dict.fromkeys(("unlink", "unlinkat"), ("EIO", KILL)),
    "fcntl": ("EIO", "EINTR", KILL),
    "flock": ("EIO", "ENOLCK", "EINTR", KILL),
    "mmap": ("ENOMEM", KILL),
}
"""What can befall each system call that touches the files of a store."""
_EXPRESSIONS = {
    KILL: "signal=SIGKILL:when={}",
    "nothing written": "retval=0:when={}",
    "EIO for good": "error=EIO:when={}+",
}
_CALL = re.compile(r"(?:(\d+) +)?(\w+)\(")
_WRITTEN = re.compile(r", (\d+), (\d+)\) += \d+")


@dataclass(frozen=True)
class Point:
    """The `number`th call of this kind in a thread, on a file.

    What a write writes is at…upto. A call may free a lock.
    """

    thread: int
    call: str
    number: int
    file: str
    at: int = 0
    upto: int = 0
    frees: bool = False


@dataclass(frozen=True)
class Blow:
    """A fault at a point."""

    point: Point
    fault: str

    @property
    def takes_long(self) -> bool:
        """A lock on the index of a WAL is not freed: SQLite tries to get it for ten seconds."""
        return self.fault != KILL and self.point.frees and self.point.file.endswith("-shm")


def hindrance() -> str:
    """Why nothing can be injected here; empty if it can."""
    if shutil.which("strace") is None:
        return "strace is missing: install the package of that name"
    command = ["strace", "-o", "/dev/null", "-e", "inject=getppid:error=EIO", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"strace may not trace here, allow ptrace (--cap-add SYS_PTRACE): {tried.stderr}"
    return ""


def blows(points: Sequence[Point]) -> Iterator[Blow]:
    """What to let befall these calls.

    Each is killed once. It fails, in every way, where a run of the same calls on a file begins and
    ends: in between, one frame or one lock is like another. What takes long is done once.
    """
    runs = [(point.thread, point.call, point.file) for point in points]
    reached = 0
    for at, point in enumerate(points):
        inside = 0 < at < len(runs) - 1 and runs[at - 1] == runs[at] == runs[at + 1]
        halves = point.upto > point.at + 1 and reached <= _half(point)
        for fault in FAULTS[point.call]:
            blow = Blow(point, fault)
            if blow.takes_long:
                if fault == FAULTS[point.call][0]:
                    yield blow
            elif (halves or fault != SHORT) and (fault == KILL or not inside):
                yield blow
        reached = max(reached, point.upto)


def _half(point: Point) -> int:
    return (point.at + point.upto) // 2


def points_of(deed: str, store: Path, log: Path) -> list[Point]:
    """Do it unharmed, and list what it asks of the system, in the order of asking."""
    calls = ",".join(f"?{call}" for call in FAULTS)  # no machine has all of them
    victim = nursery().start(deed, store)
    with closing(victim):
        assert victim.hear("ready")
        with _traced(victim, victim.pid, store, log, "-f", "-e", f"trace={calls}"):
            victim.go()
            ended = victim.hear("ended")
            assert ended == FINE, ended
    numbers = {thread: number for number, thread in victim.threads.items()}
    return list(_points(log, numbers, store, victim.pid))


def _points(log: Path, numbers: dict[int, int], store: Path, pid: int) -> Iterator[Point]:
    counted: Counter[tuple[int, str]] = Counter()
    for line in log.read_text(encoding="utf-8").splitlines():
        found = _CALL.match(line)
        if found is None:  # the end of a call that another thread came between, or of a thread
            continue
        thread, call = numbers[int(found[1])], found[2]
        counted[thread, call] += 1
        written = _WRITTEN.search(line)
        size, at = (int(n) for n in written.groups()) if written else (0, 0)
        file = _file(line, store, pid)
        frees = "F_UNLCK" in line
        yield Point(thread, call, counted[thread, call], file, at, at + size, frees)


def _file(line: str, store: Path, pid: int) -> str:
    """The first file of the store in a line of the log, without the number of the process."""
    found = re.search(f'[<"]{re.escape(str(store.parent))}/?([^>"]*)[>"]', line)
    assert found is not None, line
    return found[1].replace(f".new-{pid}", ".new-PID")


@contextmanager
def struck(
    deed: str, store: Path, blow: Blow, log: Path, *, alone: bool = True
) -> Generator[tuple[Victim, str]]:
    """Do it, and let the fault befall it; gives how it ended, empty if it was killed.

    What is not alone need not come to the point: others change what it has to do, and in which
    thread.
    """
    point = blow.point
    held = point.thread if alone and blow.fault != SHORT else -1
    victim = nursery().start(deed, store, held)
    with closing(victim):
        assert victim.hear("ready")
        if blow.fault == SHORT:
            with _limited(victim.pid, _half(point)):
                victim.go()
                ended = victim.hear("ended")
            yield victim, ended
            return
        if alone and point.thread not in victim.threads:
            victim.go()
            assert victim.hear("held"), f"{blow} was not reached"
        expression = _EXPRESSIONS.get(blow.fault, f"error={blow.fault}:when={{}}")
        inject = f"inject={point.call}:{expression.format(point.number)}"
        options = ("-e", f"trace={point.call}", "-e", inject, *(() if alone else ("-f",)))
        thread = victim.threads[point.thread] if alone else victim.pid
        with _traced(victim, thread, store, log, *options):
            victim.go()
            yield victim, victim.hear("ended")
    if alone:
        _assert_struck(log.read_text(encoding="utf-8"), blow, store, victim.pid)


def _assert_struck(log: str, blow: Blow, store: Path, pid: int) -> None:
    """The fault befell the call that was meant."""
    lines = [line for line in log.splitlines() if _CALL.match(line)]
    if blow.fault == KILL:
        assert "+++ killed by SIGKILL +++" in log
        assert len(lines) == blow.point.number, f"{blow} was not reached"
    else:
        assert "(INJECTED)" in lines[blow.point.number - 1], f"{blow} was not reached"
    assert _file(lines[blow.point.number - 1], store, pid) == blow.point.file


@contextmanager
def _traced(victim: Victim, thread: int, store: Path, log: Path, *options: str) -> Generator[None]:
    """Let strace look at a thread; at the end of the block the victim ends too."""
    paths = [word for file in _files(store, victim.pid) for word in ("-P", file)]
    command = ["strace", "-p", str(thread), "-y", "-s", "0", "-o", str(log), *paths, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        try:
            assert any(" attached" in line for line in tracer.stderr)
            yield
        finally:
            victim.close()
            tracer.communicate(timeout=PATIENCE)


def _files(store: Path, pid: int) -> Iterable[str]:
    """All files that may be touched: the store's, copies in the making, and their folder."""
    yield str(store.parent)
    copies = [f"{store}.v{version}-{AT:%Y-%m-%d}.bak" for version in (1, 2)]
    for file in (
        str(store),
        *copies,
        *(str(store.parent / name) for name in ("copy.db", "new.db")),
    ):
        for temporary in ("", f".new-{pid}"):
            for end in ("", "-wal", "-shm", "-journal", "-queue"):
                yield f"{file}{temporary}{end}"


@contextmanager
def _limited(pid: int, size: int) -> Generator[None]:
    """No file of the process may become longer."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
