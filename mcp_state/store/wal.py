"""Reading a write-ahead log frame by frame, to see what SQLite would pass over in silence.

SQLite reads frames as long as their salts and the running checksum are right, and takes the first
wrong one for the end. Old frames of an earlier round may follow, with other salts: that is normal.
A frame that ends a transaction of this round after the end is not: changes were there.
"""

from __future__ import annotations

import sys
from array import array
from typing import BinaryIO

from mcp_state.record import record

_MAGIC = (0x377F0682, 0x377F0683)
HEADER = 32
_FRAME = 24
_MASK = 0xFFFFFFFF


@record
class Wal:
    """What a -wal holds. `commits` are whole; `lost` ones lie behind `broken_at`, a frame."""

    exists: bool = False
    size: int = 0
    garbage: bool = False
    salt: bytes = b""
    frames: int = 0
    commits: int = 0
    broken_at: int = 0
    lost: int = 0


def scan(path: str) -> Wal:
    """Read all of a -wal; twice or thrice if it looks broken, since a writer may be at work.

    Raises:
        OSError: it can't be read.
    """
    seen = _scan(path)
    for _ in range(2):
        if not seen.garbage and not seen.lost:
            break
        again = _scan(path)
        if again == seen:
            break
        seen = again
    return seen


def _scan(path: str) -> Wal:
    try:
        with open(path, "rb") as file:
            return _read(file)
    except FileNotFoundError:
        return Wal()


def _read(file: BinaryIO) -> Wal:
    size = file.seek(0, 2)
    file.seek(0)
    head = file.read(HEADER)
    if not head.strip(b"\0"):
        return Wal(exists=True, size=size)
    if not is_header(head):
        return Wal(exists=True, size=size, garbage=True)
    order, sums = _order(head), _pair(head[24:])
    page, salt = int.from_bytes(head[8:12], "big"), head[16:24]
    frames = commits = waiting = broken_at = lost = number = 0
    while len(frame := file.read(_FRAME + page)) == _FRAME + page:
        number += 1
        ours, ends = frame[8:16] == salt, frame[4:8] != b"\0\0\0\0"
        if broken_at:
            lost += ours and ends
            continue
        sums = _checksum(frame[_FRAME:], order, _checksum(frame[:8], order, sums))
        if not ours or sums != _pair(frame[16:24]):
            broken_at = number
            lost += ours and ends
            continue
        waiting += 1
        if ends:
            frames, commits, waiting = frames + waiting, commits + 1, 0
    return Wal(
        exists=True,
        size=size,
        salt=salt,
        frames=frames,
        commits=commits,
        broken_at=broken_at if lost else 0,
        lost=lost,
    )


def is_header(head: bytes) -> bool:
    """Whether these bytes can begin a -wal; SQLite ignores one that begins otherwise."""
    if len(head) < HEADER or int.from_bytes(head[:4], "big") not in _MAGIC:
        return False
    return _checksum(head[:24], _order(head), (0, 0)) == _pair(head[24:])


def _order(head: bytes) -> str:
    """The byte order of the checksums, which the last bit of the magic number tells."""
    return "big" if head[3] & 1 else "little"


def _pair(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")


def _checksum(data: bytes, order: str, start: tuple[int, int]) -> tuple[int, int]:
    """The checksum of SQLite's file format, section 4.2."""
    words = array("I", data)
    if order != sys.byteorder:
        words.byteswap()
    first, second = start
    for i in range(0, len(words), 2):
        first = (first + words[i] + second) & _MASK
        second = (second + words[i + 1] + first) & _MASK
    return first, second
