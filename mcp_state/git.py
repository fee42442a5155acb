"""What git says about a directory, and what differs between two such answers.

Git is asked once, for a bounded time, in a way that changes nothing, reaches no network and waits
for nobody; where it cannot tell, commit and branch are read from files. The directory is the root
of a worktree or a bare repository: nothing above it is looked at.
"""

import asyncio
import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from mcp_state.record import record

_MOST_KEPT = 50
_MOST_LISTED = 10
_LONGEST_NOTE = 200
_LONGEST_RECORD = 1 << 16
_LARGEST_FILE = 1 << 26
_DEEPEST_REF = 5
_TICK_SECONDS = 0.05
_GONE_WITHIN_SECONDS = 1.0

_NO_DIRECTORY = "no such directory"
_NO_REPOSITORY = "no git repository"
_BARE = "bare repository: no files"
_NOT_ASKED = "git was not asked"

_ALWAYS = ("--no-pager", "-c", "core.fsmonitor=", "-c", f"core.hooksPath={os.devnull}")
_STATUS = (
    *("status", "--porcelain=v2", "-z", "--branch", "--no-ahead-behind"),
    *("--untracked-files=normal", "--no-renames"),
)
_SPACES_BEFORE_PATH = {b"1": 8, b"u": 10, b"?": 1}
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs(?:/(?!\.)(?:(?!\.\.)[^/\x00-\x20\x7f])+)+")


@record
class GitState:
    """What git says about a directory at one moment.

    Attributes:
        head: Full id of the commit; empty if there is none yet or it is not known.
        branch: Short name of the branch; empty if HEAD is detached or not known.
        dirty: The changed, staged, conflicted and untracked paths, relative to the root of the
            worktree, as storable text; sorted, the first 50. What lies in an untracked directory
            counts as one path that ends in a slash.
        dirty_count: How many there are in all; None if that is not known.
        note: Why something above is not known, or what git complained about, on one line.
    """

    head: str = ""
    branch: str = ""
    dirty: tuple[str, ...] = ()
    dirty_count: int | None = None
    note: str = ""


async def observe(worktree: str, *, seconds: float = 2.0) -> GitState:
    """Ask git; it does not raise, and kills what it started when it is cancelled or time is up."""
    given_up = threading.Event()
    try:
        return await asyncio.to_thread(_observed, worktree, seconds, given_up)
    finally:
        given_up.set()


def head_of(worktree: str) -> GitState:
    """Read commit and branch from files alone; it does not raise.

    In a repository of the reftable format they are not known: only git reads it.
    """
    try:
        if not (os.path.isabs(worktree) and os.path.isdir(worktree)):
            return GitState(note=_NO_DIRECTORY)
        git_dir = _git_directory(worktree)
        return _head(git_dir) if git_dir else GitState(note=_NO_REPOSITORY)
    except (OSError, ValueError) as problem:
        return GitState(note=one_line(f"the repository cannot be read: {problem}"))


def differences(then: GitState, now: GitState) -> list[str]:
    """Say what differs, a short statement each.

    A file that was changed then and is changed now is no difference, whatever it contains.
    """
    said: list[str] = []
    if then.head != now.head:
        moved = "HEAD has moved" if then.head and now.head else "HEAD"
        before, after = (state.head[:10] or "no commit known" for state in (then, now))
        said.append(f"{moved}: {before} -> {after}")
    is_known = (then.head or then.branch) and (now.head or now.branch)
    if is_known and then.branch != now.branch:
        before, after = (_printable(state.branch) or "detached HEAD" for state in (then, now))
        said.append(f"branch changed: {before} -> {after}")
    if then.dirty_count is not None and now.dirty_count is not None:
        return said + _changes(then, now)
    if not {then.note, now.note} <= {_NO_DIRECTORY, _NO_REPOSITORY, _BARE}:
        unknown = [("then", then)] * (then.dirty_count is None)
        unknown += [("now", now)] * (now.dirty_count is None)
        reasons = (f"not known {when} ({one_line(state.note)})" for when, state in unknown)
        said.append(f"files: {', '.join(reasons)}".replace(" ()", ""))
    return said


def _changes(then: GitState, now: GitState) -> list[str]:
    said: list[str] = []
    if new := [path for path in now.dirty if path not in then.dirty and _reaches(then, path)]:
        said.append(f"changed files now that were not then: {_listed(new)}")
    if gone := [path for path in then.dirty if path not in now.dirty and _reaches(now, path)]:
        said.append(f"no longer changed: {_listed(gone)}")
    if cut := [len(state.dirty) for state in (then, now) if len(state.dirty) != state.dirty_count]:
        counts = f"{then.dirty_count} then, {now.dirty_count} now"
        said.append(f"changed files: {counts}; only the first {min(cut)} were kept and compared")
    return said


def _reaches(state: GitState, path: str) -> bool:
    """Tell whether `dirty` goes far enough for the path to be in it."""
    return len(state.dirty) == state.dirty_count or path <= max(state.dirty, default="")


def _listed(paths: list[str]) -> str:
    more = f" (+{len(paths) - _MOST_LISTED} more)" if len(paths) > _MOST_LISTED else ""
    return ", ".join(map(_printable, paths[:_MOST_LISTED])) + more


def _observed(worktree: str, seconds: float, given_up: threading.Event) -> GitState:
    state = head_of(worktree)
    if state.note in (_NO_DIRECTORY, _NO_REPOSITORY):
        return state
    try:
        return _asked(os.path.realpath(worktree), seconds, given_up)
    except FileNotFoundError:
        note = "no git program"
    except subprocess.TimeoutExpired:
        note = f"git status took longer than {seconds:g} s"
    except OSError as problem:
        note = one_line(str(problem))
    return replace(head_of(worktree), note=note)


def _asked(worktree: str, seconds: float, given_up: threading.Event) -> GitState:
    answer = _Answer()
    deadline = time.monotonic() + seconds
    code, complaint = ask(worktree, _STATUS, deadline, given_up, take=answer.take)
    if code and b"must be run in a work tree" in complaint:
        raise ChildProcessError(_BARE)
    if code:
        raise ChildProcessError(said(complaint) or f"git status ended with code {code}")
    note = "" if answer.head or answer.branch else "git names no commit and no branch"
    dirty = tuple(answer.dirty)
    return GitState(answer.head, answer.branch, dirty, answer.count, said(complaint) or note)


def ask(
    worktree: str,
    arguments: Iterable[str],
    deadline: float,
    given_up: threading.Event,
    *,
    take: Callable[[bytes], None],
    stdin: int = subprocess.DEVNULL,
) -> tuple[int, bytes]:
    """Run git in a resolved directory; its output goes to `take`, its exit code and complaint back.

    Raises:
        subprocess.TimeoutExpired: the deadline, of `time.monotonic`, is over, or it was given up.
        FileNotFoundError: there is no git program.
        OSError: it cannot be run, or `take` refused what it said.
    """
    if os.name != "posix":
        raise OSError("git is not asked on this system")
    complaint = b""
    process = subprocess.Popen(
        ["git", "-C", worktree, *_ALWAYS, *arguments],
        env=_environment(worktree),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        for stream, piece in _pieces(process, deadline, given_up):
            if stream is process.stdout:
                take(piece)
            elif len(complaint) < _LONGEST_RECORD:
                complaint += piece
        return process.wait(max(0, deadline - time.monotonic())), complaint
    finally:
        _end(process)


def _environment(worktree: str) -> dict[str, str]:
    """Make it from nothing but the way to git and its settings, so that no GIT_DIR leaks in."""
    homes = {
        "HOME": os.path.expanduser("~"),
        "XDG_CONFIG_HOME": os.path.expandvars("$XDG_CONFIG_HOME"),
    }
    return {name: path for name, path in homes.items() if os.path.isabs(path)} | {
        "PATH": os.pathsep.join(filter(os.path.isabs, os.get_exec_path())) or os.defpath,
        "LC_ALL": "C",
        "GIT_CEILING_DIRECTORIES": os.path.dirname(worktree),
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "",
    }


def _pieces(
    process: subprocess.Popen[bytes], deadline: float, given_up: threading.Event
) -> Iterator[tuple[object, bytes]]:
    with selectors.DefaultSelector() as selector:
        for stream in filter(None, (process.stdout, process.stderr)):
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0 or given_up.is_set():
                raise subprocess.TimeoutExpired(process.args, deadline)
            for key, _ in selector.select(min(left, _TICK_SECONDS)):
                if piece := os.read(key.fd, 1 << 16):
                    yield key.fileobj, piece
                else:
                    selector.unregister(key.fileobj)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:  # not reaped yet, so that its id is still that of its group
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GONE_WITHIN_SECONDS)
    for stream in filter(None, (process.stdout, process.stderr)):
        stream.close()


def said(complaint: bytes) -> str:
    """Put what git complained about on one line, the fatal part if there is one."""
    text = _text(complaint).replace(":\n\t", ": ")
    lines = [line for line in text.splitlines() if line.strip()]
    fatal = [line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")]
    return one_line(f"git: {(fatal or lines)[0]}") if lines else ""


@dataclass(slots=True)
class _Answer:
    """What git status says, taken in by pieces; however many paths come, the first are kept."""

    head: str = ""
    branch: str = ""
    dirty: list[str] = field(default_factory=list[str])
    count: int = 0
    _rest: bytes = b""
    _removed: set[bytes] = field(default_factory=set[bytes])

    def take(self, piece: bytes) -> None:
        *records, self._rest = (self._rest + piece).split(b"\0")
        if len(self._rest) > _LONGEST_RECORD:
            raise ChildProcessError("git status said what is not understood")
        paths = [_text(path) for path in map(self._path, records) if path]
        self.count += len(paths)
        self.dirty = sorted([*self.dirty, *paths])[:_MOST_KEPT]

    def _path(self, record: bytes) -> bytes | None:
        kind = record[:1]
        if kind not in _SPACES_BEFORE_PATH:
            key, _, value = _text(record).removeprefix("# branch.").partition(" ")
            if key == "oid":
                self.head = "" if value == "(initial)" else value
            elif key == "head":
                self.branch = "" if value in ("(detached)", "(unknown)") else value
            return None
        path = record.split(b" ", _SPACES_BEFORE_PATH[kind])[-1]
        if record.startswith(b"1 D"):
            self._removed.add(path)  # where the file is still there, it comes again as untracked
        return None if kind == b"?" and path in self._removed else path


def _git_directory(worktree: str) -> str | None:
    dot_git = os.path.join(worktree, ".git")
    if os.path.isfile(dot_git):
        return os.path.join(worktree, (_line(dot_git) or "").removeprefix("gitdir: "))
    if os.path.lexists(dot_git):
        return dot_git
    parts = (os.path.join(worktree, part) for part in ("HEAD", "objects", "refs"))
    return worktree if all(map(os.path.lexists, parts)) else None


def _head(git_dir: str) -> GitState:
    common = os.path.join(git_dir, _line(os.path.join(git_dir, "commondir")) or "")
    name, line = "HEAD", _line(os.path.join(git_dir, "HEAD"))
    for _ in range(_DEEPEST_REF):
        if line is None or not line.startswith("ref:"):
            break
        name = line.removeprefix("ref:").strip()
        if not _REF.fullmatch(name):  # the format reftable leaves refs/heads/.invalid here
            return GitState(note="HEAD cannot be read from files")
        line = _line(os.path.join(common, name))
        line = _packed(common, name) if line is None else line
    branch = _storable(name).removeprefix("refs/heads/") if name.startswith("refs/heads/") else ""
    if line is None and branch:
        return GitState(branch=branch, note=_NOT_ASKED)
    if line is None or not _COMMIT.fullmatch(line):
        return GitState(branch=branch, note=one_line(f"{name} is broken"))
    return GitState(line, branch, note=_NOT_ASKED)


def _packed(common: str, name: str) -> str | None:
    content = b"\n" + (_content(os.path.join(common, "packed-refs")) or b"")
    at = content.find(b" " + name.encode(errors="surrogateescape") + b"\n")
    return _text(content[content.rfind(b"\n", 0, at) + 1 : at]) if at > 0 else None


def _line(path: str) -> str | None:
    if os.path.islink(path) and (target := os.readlink(path)).startswith("refs/"):
        return f"ref: {target}"
    content = _content(path)
    return None if content is None else content.decode(errors="surrogateescape").rstrip("\r\n")


def _content(path: str) -> bytes | None:
    if not os.path.isfile(path):  # to open a pipe could mean to wait
        return None
    with open(path, "rb") as file:
        return file.read(_LARGEST_FILE)


def _text(name: bytes) -> str:
    return _storable(name.decode(errors="surrogateescape"))


def _storable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def one_line(text: str) -> str:
    """Make text storable and printable, and short."""
    return _printable(_storable(text))[:_LONGEST_NOTE]
