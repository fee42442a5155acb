"""What the address in a fact's check leads to, and what differs from when the fact was verified.

A check that starts with `file:PATH` or `git:REF` is looked up inside one worktree, for a bounded
time. A file is reached from the directory down, through no symbolic link, so that nothing outside
is opened; git is asked about names it is given as input. Nothing is run out of the check's text.
"""

import asyncio
import json
import os
import re
import stat
import subprocess
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any, Literal, cast, get_args

from mcp_state.git import ask, one_line, said
from mcp_state.record import record

_State = Literal["file", "directory", "commit", "gone", "unknown"]
_Word = Literal["unchanged", "changed", "gone", "there", "elsewhere", "unknown"]

PATIENCE = 2.0
"""Seconds that looking up takes at most."""
_LARGEST_FILE = 1 << 24
_CHUNK = 1 << 18
_LONGEST_PATH = 1024
_LONGEST_REF = 255
_LARGEST_ANSWER = 1 << 20

_QUOTED = re.compile(r'"([^"]*)"|`([^`]*)`|\'([^\']*)\'')
_AFTER_WORD = re.compile(r"(?<=[^./])[.,;]+$")
_UP_TO_SPACE = re.compile(r"\S*")
_LINES = re.compile(r"(?:[0-9]+(?:-[0-9]+)?)?")
_ANCHOR = re.compile(r"(?<=[^./])#L[0-9]+(?:-L?[0-9]+)?$")
_DRIVE = re.compile(r"[A-Za-z]:")
_NO_REF = re.compile(r"^[-/]|^@$|\.\.|@\{|//|[\":^~?*\[\\\s]|(?:^|/)\.|(?:\.|\.lock)(?:/|$)|/$")
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PART_OF_ID = re.compile(r"[0-9a-fA-F]{4,64}")
_GIT_DIRECTORIES = (".git", "git~1")  # the second is its short name on a file system of Windows

_BATCH = ("--no-replace-objects", "cat-file", "--batch-check=%(objectname) %(objecttype)")
_IS_ANCESTOR = ("--no-replace-objects", "merge-base", "--is-ancestor")
_IS_SHALLOW = ("rev-parse", "--is-shallow-repository")

_NOT_HERE = "not looked up here: no directory is known for this call"
_RACED = "it changed while it was looked at"


class _NotLookedUp(Exception):
    """Why an address is not looked up."""


@record
class Found:
    """What the address of a check led to at one moment, in one worktree.

    Attributes:
        target: The address itself, such as `file:docs/plan.md` or `git:main`.
        state: What is there; `gone` if there is nothing, `unknown` if that could not be told.
        identity: SHA-256 of a file's content, empty if it is too large; full id of a commit.
        size: Bytes of a file.
        in_head: Whether the commit is HEAD or an ancestor of it; None if that is not known.
        detail: Why it is unknown, on one line.
        worktree: The directory it was looked up in.
    """

    target: str
    state: _State
    identity: str = ""
    size: int | None = None
    in_head: bool | None = None
    detail: str = ""
    worktree: str = ""


@record
class Compared:
    """What became of the target of a check, in one word and in a short statement."""

    word: _Word
    words: str


@record
class _Address:
    """The target, and the name in it that is looked up unless it is refused."""

    target: str
    name: str
    refused: str = ""


@record
class _Patience:
    seconds: float
    deadline: float
    given_up: threading.Event

    def check(self) -> None:
        if self.given_up.is_set() or time.monotonic() >= self.deadline:
            raise _NotLookedUp(self.is_over)

    @property
    def is_over(self) -> str:
        return f"it took longer than {self.seconds:g} s"


def target_of(check: str) -> str:
    """Give the part of a check that is looked up, always spelled alike; empty if there is none.

    The target of a target is the target itself.
    """
    address = _address(check)
    return address.target if address else ""


async def look_up(
    worktree: str, checks: Iterable[str], *, seconds: float = PATIENCE, most: int = 40
) -> dict[str, Found]:
    """Look the targets of checks up, each once; it does not raise.

    It kills what it started and stops reading when it is cancelled or time is up.
    """
    addresses = {address.target: address for address in map(_address, checks) if address}
    patience = _Patience(seconds, time.monotonic() + seconds, threading.Event())
    try:
        return await asyncio.to_thread(_looked_up, worktree, addresses, most, patience)
    finally:
        patience.given_up.set()


def compare(then: Found | None, now: Found) -> Compared:
    """Say what differs from when it was verified, or what is there if it never was."""
    if then is None:
        return _first_seen(now)
    if then.worktree and now.worktree and then.worktree != now.worktree:
        return _compare_elsewhere(then, now)
    if now.state == "unknown":
        return Compared("unknown", now.detail)
    if then.state == "unknown":
        first = _first_seen(now)
        return Compared(first.word, f"{first.words}, nothing to compare with")
    if then.state == now.state == "gone":
        return Compared("unchanged", "nothing is there, as then")
    if now.state == "gone":
        return Compared("gone", "gone")
    if then.state == "gone":
        return Compared("changed", "there now, gone then")
    if then.state != now.state:
        return Compared("changed", f"changed: a {then.state} then, a {now.state} now")
    if now.state == "directory":
        return Compared("unchanged", "still a directory")
    return (_compare_files if now.state == "file" else _compare_commits)(then, now)


def to_json(found: Found) -> str:
    """Write it as text to store."""
    return json.dumps(asdict(found))


def from_json(text: str) -> Found:
    """Read what `to_json` wrote.

    Raises:
        ValueError: it is something else.
    """
    loaded: object = json.loads(text)
    if not isinstance(loaded, dict):
        raise ValueError("a Found is an object")
    values = cast(dict[str, Any], loaded)
    if set(values) != {field.name for field in fields(Found)}:
        raise ValueError("a Found has other fields")
    kinds = {"size": (int, type(None)), "in_head": (bool, type(None))}
    for name, value in values.items():
        if not isinstance(value, kinds.get(name, str)):
            raise ValueError(f"a Found has no such {name}")
    if values["state"] not in get_args(_State) or isinstance(values["size"], bool):
        raise ValueError("a Found has no such state or size")
    return Found(**values)


def _first_seen(now: Found) -> Compared:
    if now.state == "unknown":
        return Compared("unknown", now.detail)
    if now.state == "gone":
        return Compared("gone", "does not exist")
    if now.state == "commit":
        history = {True: ", in HEAD's history", False: ", not in HEAD's history", None: ""}
        return Compared("there", f"points to {now.identity[:10]}{history[now.in_head]}")
    what = "a directory" if now.state == "directory" else _bytes(now.size)
    return Compared("there", f"exists ({what})")


def _compare_elsewhere(then: Found, now: Found) -> Compared:
    """A commit has the same id everywhere; a file of another worktree is another file."""
    if now.state == "unknown":
        return Compared("unknown", now.detail)
    if now.state == "gone":
        return Compared("elsewhere", "not there; verified in another worktree")
    if then.state == now.state == "commit" and then.identity == now.identity:
        return Compared("unchanged", "unchanged")
    return Compared("elsewhere", "verified in another worktree, not compared")


def _compare_files(then: Found, now: Found) -> Compared:
    if then.size != now.size:
        sizes = f"{_bytes(then.size)} then, {(now.size or 0):,} now"
        return Compared("changed", f"changed: {sizes}")
    if not (then.identity and now.identity):
        return Compared("there", "same size, too large to compare")
    if then.identity == now.identity:
        return Compared("unchanged", "unchanged")
    return Compared("changed", f"changed: other content, {_bytes(now.size)} as then")


def _compare_commits(then: Found, now: Found) -> Compared:
    if then.identity != now.identity:
        ids = f"{then.identity[:10]} then, {now.identity[:10]} now"
        return Compared("changed", f"changed: {ids}")
    if then.in_head and now.in_head is False:
        return Compared("changed", "no longer in HEAD's history")
    if then.in_head is False and now.in_head:
        return Compared("unchanged", "unchanged, in HEAD's history now")
    return Compared("unchanged", "unchanged")


def _bytes(size: int | None) -> str:
    return "1 byte" if size == 1 else f"{(size or 0):,} bytes"


def _address(check: str) -> _Address | None:
    kind, colon, rest = check.partition(":")
    kind = kind.strip().lower()
    if not colon or kind not in ("file", "git"):
        return None
    if quoted := _QUOTED.match(rest):
        name = next(group for group in quoted.groups() if group is not None)
    else:
        word = _UP_TO_SPACE.match(rest)
        name = _AFTER_WORD.sub("", word[0]) if word else ""  # a sentence may go on after it
    try:
        name = _path(name) if kind == "file" else _ref(name)
    except _NotLookedUp as refusal:
        return _Address(_spelled(kind, name), name, _because(refusal))
    return _Address(_spelled(kind, name), name)


def _spelled(kind: str, name: str) -> str:
    """Spell a target so that it can be printed, and leads back to itself.

    What is escaped or cut here has been refused, and the backslash or the length is refused again.
    """
    escaped = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in name
    ).replace('"', r"\x22")[: _LONGEST_PATH + 1]
    needs_quotes = " " in escaped or escaped[:1] in ("`", "'") or _AFTER_WORD.search(escaped)
    return f'{kind}:"{escaped}"' if needs_quotes else f"{kind}:{escaped}"


def _path(name: str) -> str:
    if not name:
        raise _NotLookedUp("there is no path")
    seen = name[: _LONGEST_PATH + 1]  # as much as its target shows
    if "\\" in seen or '"' in seen or not seen.isprintable():
        raise _NotLookedUp("a backslash, a double quote or a character that cannot be printed")
    if len(name) > _LONGEST_PATH:
        raise _NotLookedUp(f"longer than {_LONGEST_PATH:,} characters")
    if name.startswith("//") and not name.startswith("///"):
        raise _NotLookedUp("a path of another machine")
    parts = _parts(name)
    if ".." in parts:
        raise _NotLookedUp("a .. in the path")
    if name.startswith("/"):
        return "/" + "/".join(parts)
    if parts and (parts[0].startswith("~") or _DRIVE.match(parts[0])):
        raise _NotLookedUp("a home directory or a drive")
    return "/".join(parts) or "."


def _parts(path: str) -> list[str]:
    """Split a path, and take line numbers and a colon off its end."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if parts and (anchor := _ANCHOR.search(parts[-1])):
        parts[-1] = parts[-1][: anchor.start()]
    while parts:
        head, _, lines = parts[-1].rpartition(":")
        if not head or not _LINES.fullmatch(lines):
            break
        parts[-1:] = [] if head == "." else [head]
    return parts


def _ref(name: str) -> str:
    if not name or len(name) > _LONGEST_REF or not name.isprintable() or _NO_REF.search(name):
        raise _NotLookedUp("not a name of a ref or commit (with ~ or ^, give the commit's id)")
    return name


def _because(reason: object) -> str:
    return one_line(f"not looked up: {reason}")


def _looked_up(
    worktree: str, addresses: dict[str, _Address], most: int, patience: _Patience
) -> dict[str, Found]:
    is_there = os.path.isabs(worktree) and os.path.isdir(worktree)
    nowhere = "" if is_there else _because("no such directory") if worktree else _NOT_HERE
    found: dict[str, Found] = {}
    wanted: dict[str, str] = {}
    for target, address in addresses.items():
        crowded = _because(f"more than {most} at once") if len(found) >= most else ""
        detail = nowhere or crowded or address.refused
        found[target] = Found(target, "unknown", detail=detail, worktree=worktree)
        if not detail:
            wanted[target] = address.name
    paths = {target: name for target, name in wanted.items() if target.startswith("file:")}
    refs = {target: name for target, name in wanted.items() if target not in paths}
    for target, path in paths.items():
        found[target] = _file(worktree, target, path, patience)
    return found | _commits(worktree, refs, patience)


def _file(worktree: str, target: str, path: str, patience: _Patience) -> Found:
    try:
        return _reached(worktree, target, _inside(worktree, path), patience)
    except _NotLookedUp as problem:
        detail = _because(problem)
    except (FileNotFoundError, NotADirectoryError):
        return Found(target, "gone", worktree=worktree)
    except OSError as problem:
        detail = _because((problem.strerror or str(problem)).lower())
    except ValueError as problem:  # such as a name that the system's encoding cannot express
        detail = _because(problem)
    return Found(target, "unknown", detail=detail, worktree=worktree)


def _inside(worktree: str, path: str) -> list[str]:
    """Give the components of a path below the worktree, by the letters of both alone."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/"):
        root = [part for part in worktree.split("/") if part not in ("", ".")]
        if parts[: len(root)] != root:
            raise _NotLookedUp("outside the project's directory")
        parts = parts[len(root) :]
    if any(part.rstrip(". ").casefold() in _GIT_DIRECTORIES for part in parts):
        raise _NotLookedUp("inside .git")
    return parts


def _reached(worktree: str, target: str, parts: list[str], patience: _Patience) -> Found:
    if not {os.open, os.stat} <= os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
        raise _NotLookedUp("this system cannot do it safely")
    patience.check()
    at = os.open(worktree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            patience.check()
            seen = _seen(part, at)
            if not stat.S_ISDIR(seen.st_mode):
                return Found(target, "gone", worktree=worktree)
            inner = _opened(part, at, seen, os.O_DIRECTORY)
            os.close(at)
            at = inner
        seen = _seen(parts[-1], at) if parts else os.fstat(at)
        if stat.S_ISDIR(seen.st_mode):
            return Found(target, "directory", worktree=worktree)
        if not stat.S_ISREG(seen.st_mode):
            raise _NotLookedUp("not a regular file")
        size, identity = _content(_opened(parts[-1], at, seen, os.O_NONBLOCK), patience)
        return Found(target, "file", identity, size, worktree=worktree)
    finally:
        os.close(at)


def _seen(name: str, at: int) -> os.stat_result:
    seen = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISLNK(seen.st_mode):
        raise _NotLookedUp("a symbolic link")
    return seen


def _opened(name: str, at: int, seen: os.stat_result, flags: int) -> int:
    """Open what was seen; where something else has taken its place, a link is not followed."""
    always = os.O_RDONLY | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    try:
        opened = os.open(name, always | flags, dir_fd=at)
    except PermissionError:
        raise
    except OSError as problem:
        raise _NotLookedUp(_RACED) from problem
    now = os.fstat(opened)
    if not os.path.samestat(seen, now) or stat.S_IFMT(seen.st_mode) != stat.S_IFMT(now.st_mode):
        os.close(opened)
        raise _NotLookedUp(_RACED)
    return opened


def _content(file: int, patience: _Patience) -> tuple[int, str]:
    """Give size and hash of an open file, and close it."""
    try:
        before = os.fstat(file)
        if before.st_size > _LARGEST_FILE:
            return before.st_size, ""
        digest, left = sha256(), before.st_size + 1  # the one byte more tells whether it grows
        while left and (piece := os.read(file, min(left, _CHUNK))):
            patience.check()
            digest.update(piece)
            left -= len(piece)
        after = os.fstat(file)
    finally:
        os.close(file)
    if left != 1 or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise _NotLookedUp("it changed while it was read")
    return before.st_size, digest.hexdigest()


def _commits(worktree: str, refs: dict[str, str], patience: _Patience) -> dict[str, Found]:
    if not refs:
        return {}
    try:
        patience.check()
        return _Git(worktree, os.path.realpath(worktree), patience).commits(refs)
    except FileNotFoundError:
        reason = "no git program"
    except subprocess.TimeoutExpired:
        reason = patience.is_over
    except (_NotLookedUp, OSError, ValueError) as problem:
        reason = str(problem)
    detail = _because(reason)
    return {target: Found(target, "unknown", detail=detail, worktree=worktree) for target in refs}


@dataclass(slots=True)
class _Git:
    """Git in a directory, asked about names that are handed to it as input or are full ids."""

    worktree: str
    directory: str
    patience: _Patience
    head: str = ""
    is_shallow: bool = False

    def commits(self, refs: dict[str, str]) -> dict[str, Found]:
        if os.pathsep in os.path.dirname(self.directory):  # no ceiling: git would look above it
            raise _NotLookedUp(f"the directory has a {os.pathsep} above it")
        self.is_shallow = self._output(_IS_SHALLOW) == "true\n"
        asked = ["HEAD^{commit}"]
        asked += [line for name in refs.values() for line in (f"{name}^{{commit}}", name)]
        lines = self._output(_BATCH, "".join(f"{line}\n" for line in asked)).splitlines()
        if len(lines) != len(asked):
            raise ChildProcessError("git said what is not understood")
        self.head = _commit_in(lines[0])
        answers = zip(refs.items(), lines[1::2], lines[2::2], strict=True)
        return {
            target: self._found(target, name, _commit_in(peeled), plain)
            for (target, name), peeled, plain in answers
        }

    def _found(self, target: str, name: str, commit: str, plain: str) -> Found:
        if commit:
            in_head = self._is_in_head(commit)
            return Found(target, "commit", commit, in_head=in_head, worktree=self.worktree)
        kind = plain.rpartition(" ")[2]
        detail = "" if kind == "missing" else "not a commit"
        if kind == "ambiguous":
            detail = _because("several objects have that short id")
        elif kind == "missing" and self.is_shallow and _PART_OF_ID.fullmatch(name):
            detail = _because("the repository is shallow, without that commit")
        state = "unknown" if detail else "gone"
        return Found(target, state, detail=detail, worktree=self.worktree)

    def _is_in_head(self, commit: str) -> bool | None:
        if commit == self.head:
            return True
        if not self.head:
            return None
        with suppress(_NotLookedUp, subprocess.TimeoutExpired):
            self.patience.check()
            code, _, _ = self._ask((*_IS_ANCESTOR, commit, self.head))
            return {0: True, 1: None if self.is_shallow else False}.get(code)
        return None

    def _output(self, arguments: tuple[str, ...], lines: str = "") -> str:
        code, complaint, output = self._ask(arguments, lines)
        if code and b"not a git repository" in complaint:
            raise ChildProcessError("no git repository")
        if code:
            raise ChildProcessError(said(complaint) or f"git ended with code {code}")
        return output

    def _ask(self, arguments: tuple[str, ...], lines: str = "") -> tuple[int, bytes, str]:
        import tempfile

        output = bytearray()

        def take(piece: bytes) -> None:
            output.extend(piece)
            if len(output) > _LARGEST_ANSWER:
                raise ChildProcessError("git said too much")

        with tempfile.TemporaryFile() as asked:  # a pipe could be full before git has read it
            asked.write(lines.encode())
            asked.seek(0)
            deadline, given_up = self.patience.deadline, self.patience.given_up
            code, complaint = ask(
                self.directory, arguments, deadline, given_up, take=take, stdin=asked.fileno()
            )
        return code, complaint, output.decode(errors="replace")


def _commit_in(line: str) -> str:
    name, _, kind = line.partition(" ")
    return name if kind == "commit" and _ID.fullmatch(name) else ""
