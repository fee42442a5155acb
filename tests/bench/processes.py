"""What the kernel knows about a process: memory, processor time, wake-ups, locks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_LOCKS_OF_READERS = range(120, 128)
"""Bytes of a `-shm` file that SQLite locks while it reads or writes; 128 marks an open file."""


def rss(pid: int) -> float:
    """Resident memory in MB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError


def processor_time(pid: int) -> float:
    """Seconds, of all threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def wake_ups(pid: int) -> int:
    """How often one of its threads went to sleep by itself."""
    return sum(
        int(line.split()[1])
        for task in Path(f"/proc/{pid}/task").iterdir()
        for line in (task / "status").read_text(encoding="utf-8").splitlines()
        if line.startswith("voluntary_ctxt_switches")
    )


def hindering_locks(directory: Path) -> list[str]:
    """Locks on files in there that keep somebody from reading, writing or checkpointing.

    An open SQLite file is marked with shared locks that keep nobody from anything.
    """
    files = {path.stat().st_ino: path.name for path in directory.iterdir()}
    found: list[str] = []
    for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines():
        if "->" in line:
            continue
        _, _, _, kind, _, inode, first, _ = line.split()
        name = files.get(int(inode.rpartition(":")[2]), "")
        reading = name.endswith("-shm") and int(first) in _LOCKS_OF_READERS
        if name and (kind == "WRITE" or reading):
            found.append(f"{name} {kind} {first}")
    return found


@contextmanager
def all_cores_busy() -> Generator[None]:
    """As many processes as there are cores, doing nothing as fast as they can."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    spinning = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()
