"""What the addresses of checks lead to, against real files and repositories of the real git.

That nothing outside is opened is not read off an answer: the system tells what was opened.
"""

import asyncio
import ctypes
import hashlib
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_git import FakeGit, StoppedClock, assert_reaped, commit, git, repository, run_git

from mcp_state.lookups import Compared, Found, compare, from_json, look_up, target_of, to_json

IN_ACCESS, IN_OPEN = 0x1, 0x20
MIB = 1 << 20

SYMLINK = "not looked up: a symbolic link"
RACED = "not looked up: it changed while it was looked at"
OUTSIDE = "not looked up: outside the project's directory"
NOT_REGULAR = "not looked up: not a regular file"
IN_GIT = "not looked up: inside .git"
DOTS = "not looked up: a .. in the path"
HOME = "not looked up: a home directory or a drive"
UNPRINTABLE = "not looked up: a backslash, a double quote or a character that cannot be printed"
NO_NAME = "not looked up: not a name of a ref or commit (with ~ or ^, give the commit's id)"
NO_REPOSITORY = "not looked up: no git repository"
NO_TIME = "not looked up: it took longer than 0.5 s"


class Watcher:
    """The system's own account of what is opened or read in a directory, or of one file."""

    def __init__(self, *paths: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0
        for path in paths:
            watch = libc.inotify_add_watch(self._descriptor, os.fsencode(path), IN_OPEN | IN_ACCESS)
            assert watch >= 0, os.strerror(ctypes.get_errno())

    def seen(self) -> set[str]:
        """The names that something was done to since the last call; empty for what is watched."""
        try:
            events = os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return set()
        names: set[str] = set()
        while events:
            *_, length = struct.unpack_from("iIII", events)
            names.add(os.fsdecode(events[16 : 16 + length].rstrip(b"\0")))
            events = events[16 + length :]
        return names

    def close(self) -> None:
        os.close(self._descriptor)


Watch = Callable[..., Watcher]


@pytest.fixture
def watch() -> Generator[Watch]:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux has inotify")
    watchers: list[Watcher] = []

    def started(*paths: Path) -> Watcher:
        watchers.append(Watcher(*paths))
        return watchers[-1]

    yield started
    for watcher in watchers:
        watcher.close()


class BeforeOpen:
    """Does something once, after a name was looked at and right before it is opened.

    An audit hook cannot be taken away again, so that one is left for all tests.
    """

    _is_installed = False
    _at: tuple[str, Callable[[], object]] | None = None

    @classmethod
    def do(cls, name: str, action: Callable[[], object]) -> None:
        if not cls._is_installed:
            sys.addaudithook(cls._hook)
            cls._is_installed = True
        cls._at = (name, action)

    @classmethod
    def is_done(cls) -> bool:
        return cls._at is None

    @classmethod
    def _hook(cls, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and cls._at is not None and arguments[0] == cls._at[0]:
            _, action = cls._at
            cls._at = None
            action()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with two files."""
    tree = tmp_path / "tree"
    (tree / "docs").mkdir(parents=True)
    (tree / "docs" / "plan.md").write_text("plan\n")
    (tree / "a.txt").write_text("one\n")
    return tree


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory next to it, with a file that must not be opened."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret\n")
    return outside


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A repository with one commit."""
    place = repository(tmp_path / "api")
    commit(place)
    return place


@pytest.fixture
def fake_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[FakeGit]:
    fake = FakeGit(tmp_path / "fake", monkeypatch)
    yield fake
    fake.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StoppedClock:
    clock = StoppedClock()
    monkeypatch.setattr("mcp_state.git.time", clock)
    monkeypatch.setattr("mcp_state.lookups.time", clock)
    return clock


async def looked_up(worktree: Path, check: str) -> Found:
    """Look one check up, with time enough, and its target too, which leads to the same."""
    target = target_of(check)
    found = await look_up(str(worktree), [check], seconds=60)
    assert await look_up(str(worktree), [target], seconds=60) == found
    assert list(found) == [target]
    assert found[target].worktree == str(worktree)
    return replace(found[target], worktree="")


def file(target: str, content: bytes) -> Found:
    return Found(target, "file", hashlib.sha256(content).hexdigest(), len(content))


def unknown(target: str, detail: str) -> Found:
    return Found(target, "unknown", detail=detail)


# Which part of a check is looked up


@pytest.mark.parametrize(
    ("check", "target"),
    [
        ("file:docs/plan.md", "file:docs/plan.md"),
        ("file:docs/plan.md says so", "file:docs/plan.md"),
        ("file:docs/plan.md\tor\nnot", "file:docs/plan.md"),
        ("file:./docs//plan.md", "file:docs/plan.md"),
        ("file:docs/", "file:docs"),
        ("file:.", "file:."),
        ("file:src/a.py:42", "file:src/a.py"),
        ("file:src/a.py:42-50 holds it", "file:src/a.py"),
        ("file:src/a.py:42:7: error", "file:src/a.py"),
        ("file:src/a.py: see there", "file:src/a.py"),
        ("file:src/a:b", "file:src/a:b"),
        ("file::42", "file::42"),
        ('file:"my notes.md" says', 'file:"my notes.md"'),
        ('file:"my notes.md":42 says', 'file:"my notes.md"'),
        ('file:"my notes.md:42" says', 'file:"my notes.md"'),
        ('file:"plain.md"', "file:plain.md"),
        ("file:caf\u00e9/\u8a08\u753b.md", "file:caf\u00e9/\u8a08\u753b.md"),
        ("file:/srv/api/a.py:3", "file:/srv/api/a.py"),
        ("file:///srv/api/a.py", "file:/srv/api/a.py"),
        ("file:../a", "file:../a"),
        ("file:a/..:42", "file:a/..:42"),
        ("file:a\0b", "file:a\\x00b"),
        ("file:", "file:"),
        ("file: docs/plan.md", "file:"),
        ("git:main", "git:main"),
        ("git:release/1.0 is tagged", "git:release/1.0"),
        ("git:main:secret", "git:main:secret"),
        ("git:", "git:"),
        ("run the tests", ""),
        ("file", ""),
        ("File:a.txt", "file:a.txt"),
        ("GIT: main", "git:"),
        ("file:a.txt, then compare", "file:a.txt"),
        ("file:docs/plan.md.", "file:docs/plan.md"),
        ("file:`my notes.md` says so", 'file:"my notes.md"'),
        ("git:`main`;", "git:main"),
        ("git:'main' is there", "git:main"),
        ("file:'my notes.md' says so", 'file:"my notes.md"'),
        ("file:docs/plan.md#L2", "file:docs/plan.md"),
        ("file:docs/plan.md#L2-L9 says", "file:docs/plan.md"),
        ("file:docs/plan.md#top", "file:docs/plan.md#top"),
        ("file:.", "file:."),
        ("file:docs/..", "file:docs/.."),
        ('file:`a "b`', r'file:"a \x22b"'),
        ("git:'\"a\"'", r"git:\x22a\x22"),
        ("file:" + '.11"' * 400, r"file:" + r".11\x22" * 146 + ".11"),
        ("see file:a.txt", ""),
        ("https://example.com", ""),
        ("", ""),
    ],
)
def test_the_target_of_a_check_is_always_spelled_alike(check: str, target: str) -> None:
    assert target_of(check) == target


@given(
    st.sampled_from(["file:", "git:"]),
    st.text(st.sampled_from("a.:/~\"`'\\ 12-\n\0\u00a0\u00e9\ud800@{")) | st.text(),
    st.sampled_from([1, 1, 1, 400]),
)
def test_the_target_of_a_target_is_itself_and_can_be_printed(
    kind: str, text: str, times: int
) -> None:
    target = target_of(kind + text * times)

    assert target.startswith(kind)
    assert target_of(target) == target
    assert target.isprintable()
    assert len(target) < 1100


# Files


async def test_a_file_is_told_by_its_content_and_size(tree: Path) -> None:
    content = b"plan\n"
    for check in ("file:docs/plan.md:3 says so", f"file://{tree}/docs/plan.md"):
        assert await looked_up(tree, check) == file(target_of(check), content)

    assert await looked_up(tree, f"file:{tree}") == Found(f"file:{tree}", "directory")
    assert await looked_up(tree, "file:docs") == Found("file:docs", "directory")
    assert await looked_up(tree, "file:.") == Found("file:.", "directory")


@pytest.mark.parametrize(
    "name", ["my notes.md", "caf\u00e9", "-rf", "$(touch ran)", "ab:c", ".gitx"]
)
async def test_a_file_may_be_called_anything_that_can_be_printed(tree: Path, name: str) -> None:
    (tree / name).write_bytes(b"")

    assert await looked_up(tree, f'file:"{name}" is empty') == file(
        target_of(f'file:"{name}"'), b""
    )


@pytest.mark.parametrize(
    "path", ["nope", "docs/nope", "nope/nope", "a.txt/nope", "docs/plan.md/x/y"]
)
async def test_what_does_not_exist_is_gone(tree: Path, path: str) -> None:
    assert await looked_up(tree, f"file:{path}") == Found(f"file:{path}", "gone")


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("../outside/secret", DOTS),
        ("docs/../../outside/secret", DOTS),
        ("docs/../a.txt", DOTS),
        ("..", DOTS),
        ("..:42", DOTS),
        ("{tree}/../outside/secret", DOTS),
        ("{outside}/secret", OUTSIDE),
        ("//{outside}/secret", OUTSIDE),
        ("{tree}-2/secret", OUTSIDE),
        ("/", OUTSIDE),
        ("/etc/passwd", OUTSIDE),
        ("//host/share", "not looked up: a path of another machine"),
        ("//localhost{tree}/a.txt", "not looked up: a path of another machine"),
        ("~/secret", HOME),
        ("~root/secret", HOME),
        ("C:/secret", HOME),
        ("c:secret", HOME),
        ("C:\\secret", UNPRINTABLE),
        ("..\\outside\\secret", UNPRINTABLE),
        ("a\0.txt", UNPRINTABLE),
        ("\x1b[2Ja.txt", UNPRINTABLE),
        ('"a\n.txt"', UNPRINTABLE),
        ("\u202ea.txt", UNPRINTABLE),
        ("\ud800", UNPRINTABLE),
        ("\udcff", UNPRINTABLE),
        ('"not closed', UNPRINTABLE),
        ('a"b', UNPRINTABLE),
        ("\x01" * 1024, UNPRINTABLE),
        ('a"' * 1024, UNPRINTABLE),
        ("a" * 1024 + '"', UNPRINTABLE),
        ("a" * 1025 + '"', "not looked up: longer than 1,024 characters"),
        ("", "not looked up: there is no path"),
        ('""', "not looked up: there is no path"),
        (" a.txt", "not looked up: there is no path"),
        ("a/" * 100_000, "not looked up: longer than 1,024 characters"),
        ("x" * 1025, "not looked up: longer than 1,024 characters"),
        ("x" * 1024, "not looked up: file name too long"),
        (".git/config", IN_GIT),
        (".GIT/config", IN_GIT),
        (".git", IN_GIT),
        ("{tree}/.git/config", IN_GIT),
        ("docs/.Git/hooks/x", IN_GIT),
        ("GIT~1/config", IN_GIT),
        (".git./config", IN_GIT),
    ],
)
async def test_a_path_that_could_lead_outside_or_into_git_is_refused(
    tree: Path, outside: Path, watch: Watch, name: str, detail: str
) -> None:
    (tree / ".git").mkdir()
    (tree / ".git" / "config").write_text("secret")
    watcher = watch(outside, outside / "secret", tree / ".git", tree / ".git" / "config")
    check = f"file:{name.replace('{tree}', str(tree)).replace('{outside}', str(outside))}"

    assert await looked_up(tree, check) == unknown(target_of(check), detail)

    assert watcher.seen() == set()


async def test_the_watcher_that_proves_it_does_see_what_is_opened(
    outside: Path, watch: Watch
) -> None:
    of_directory, of_file = watch(outside), watch(outside / "secret")

    assert (await looked_up(outside, "file:secret")).state == "file"

    assert of_directory.seen() == {"", "secret"}
    assert of_file.seen() == {""}
    assert of_directory.seen() == of_file.seen() == set()


@pytest.mark.parametrize(
    ("link", "to", "path"),
    [
        ("link", "outside/secret", "link"),
        ("link", "outside", "link/secret"),
        ("link", "outside", "link"),
        ("docs/link", "outside", "docs/link/secret"),
        ("link", ".", "link/outside/secret"),
        ("link", "outside/nope", "link"),
        ("link", "tree/a.txt", "link"),
        ("link", "tree/docs", "link/plan.md"),
        ("link", "tree/link", "link"),
        ("link", "/proc/self/root", "link/etc/passwd"),
    ],
)
async def test_no_symbolic_link_is_followed_wherever_it_leads(
    tree: Path, outside: Path, watch: Watch, link: str, to: str, path: str
) -> None:
    (tree / link).symlink_to(tree.parent / to)
    watcher = watch(outside, outside / "secret")

    assert await looked_up(tree, f"file:{path}") == unknown(f"file:{path}", SYMLINK)

    assert watcher.seen() == set()


def replace_file_by_link(tree: Path, outside: Path) -> None:
    (tree / "docs" / "plan.md").unlink()
    (tree / "docs" / "plan.md").symlink_to(outside / "secret")


def replace_file_by_inner_link(tree: Path, _: Path) -> None:
    (tree / "docs" / "plan.md").unlink()
    (tree / "docs" / "plan.md").symlink_to(tree / "a.txt")


def replace_file_by_another(tree: Path, _: Path) -> None:
    (tree / "a.txt").rename(tree / "docs" / "plan.md")


def replace_file_by_pipe(tree: Path, _: Path) -> None:
    (tree / "docs" / "plan.md").rename(tree / "kept")
    os.mkfifo(tree / "docs" / "plan.md")


def replace_file_by_directory(tree: Path, _: Path) -> None:
    (tree / "docs" / "plan.md").rename(tree / "kept")
    (tree / "docs" / "plan.md").mkdir()


def remove_file(tree: Path, _: Path) -> None:
    (tree / "docs" / "plan.md").unlink()


def replace_directory_by_link(tree: Path, outside: Path) -> None:
    (tree / "docs").rename(tree / "kept")
    (tree / "docs").symlink_to(outside)


def replace_directory_by_another(tree: Path, _: Path) -> None:
    (tree / "docs").rename(tree / "kept")
    (tree / "docs").mkdir()
    (tree / "docs" / "plan.md").write_text("another")


def replace_directory_by_file(tree: Path, _: Path) -> None:
    (tree / "docs").rename(tree / "kept")
    (tree / "docs").touch()


@pytest.mark.parametrize(
    ("name", "swap"),
    [
        ("plan.md", replace_file_by_link),
        ("plan.md", replace_file_by_inner_link),
        ("plan.md", replace_file_by_another),
        ("plan.md", replace_file_by_pipe),
        ("plan.md", replace_file_by_directory),
        ("plan.md", remove_file),
        ("docs", replace_directory_by_link),
        ("docs", replace_directory_by_another),
        ("docs", replace_directory_by_file),
    ],
)
async def test_what_is_swapped_between_the_look_and_the_opening_is_not_read(
    tree: Path,
    outside: Path,
    watch: Watch,
    name: str,
    swap: Callable[[Path, Path], None],
) -> None:
    (outside / "plan.md").write_text("secret")
    watcher = watch(outside, outside / "secret", outside / "plan.md")
    BeforeOpen.do(name, lambda: swap(tree, outside))

    found = await look_up(str(tree), ["file:docs/plan.md"], seconds=60)

    assert BeforeOpen.is_done()
    assert found == {
        "file:docs/plan.md": Found("file:docs/plan.md", "unknown", detail=RACED, worktree=str(tree))
    }
    assert watcher.seen() == set()


async def test_a_directory_that_is_swapped_after_it_was_opened_is_still_the_one_that_was_seen(
    tree: Path, outside: Path, watch: Watch
) -> None:
    (outside / "plan.md").write_text("secret")
    watcher = watch(outside, outside / "plan.md")
    BeforeOpen.do("plan.md", lambda: replace_directory_by_link(tree, outside))

    found = await look_up(str(tree), ["file:docs/plan.md"], seconds=60)

    assert BeforeOpen.is_done()
    expected = replace(file("file:docs/plan.md", b"plan\n"), worktree=str(tree))
    assert found == {"file:docs/plan.md": expected}
    assert watcher.seen() == set()


async def test_a_pipe_or_a_socket_is_never_opened(
    tree: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)  # the name of a socket may not be long
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    watcher = watch(tree / "pipe", tree / "socket")

    for name in ("pipe", "socket"):
        assert await looked_up(tree, f"file:{name}") == unknown(f"file:{name}", NOT_REGULAR)
    assert await looked_up(tree, "file:pipe/x") == Found("file:pipe/x", "gone")

    assert watcher.seen() == set()
    os.close(os.open(tree / "pipe", os.O_RDONLY | os.O_NONBLOCK))
    assert watcher.seen() == {""}


async def test_a_device_is_never_opened(watch: Watch) -> None:
    watcher = watch(Path("/dev/full"))

    for check in ("file:full", "file:/dev/full"):
        assert await looked_up(Path("/dev"), check) == unknown(check, NOT_REGULAR)

    assert watcher.seen() == set()


async def test_a_file_that_may_not_be_read_is_unknown(tree: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tree / "a.txt").chmod(0)

    assert await looked_up(tree, "file:a.txt") == unknown(
        "file:a.txt", "not looked up: permission denied"
    )


async def test_of_a_file_that_is_too_large_only_the_size_is_told(tree: Path) -> None:
    for name, size in (("largest", 16 * MIB), ("larger", 16 * MIB + 1)):
        (tree / name).touch()
        os.truncate(tree / name, size)

    assert await looked_up(tree, "file:largest") == file("file:largest", bytes(16 * MIB))
    assert await looked_up(tree, "file:larger") == Found("file:larger", "file", size=16 * MIB + 1)


async def test_a_file_that_grows_while_it_is_read_is_not_read_for_ever(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_read, sizes = os.read, list[int]()

    def growing(descriptor: int, length: int) -> bytes:
        if os.path.samestat(os.fstat(descriptor), (tree / "a.txt").stat()):
            sizes.append(length)
            with open(tree / "a.txt", "ab") as appended:
                appended.write(bytes(MIB))
        return system_read(descriptor, length)

    monkeypatch.setattr(os, "read", growing)
    found = await look_up(str(tree), ["file:a.txt"], seconds=60)

    detail = "not looked up: it changed while it was read"
    assert found["file:a.txt"] == Found("file:a.txt", "unknown", detail=detail, worktree=str(tree))
    assert sizes == [len("one\n") + 1]


async def test_a_system_without_safe_opening_looks_up_no_file(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "supports_dir_fd", set[object]())

    assert await looked_up(tree, "file:a.txt") == unknown(
        "file:a.txt", "not looked up: this system cannot do it safely"
    )


async def test_no_descriptor_is_left_open(tree: Path, outside: Path) -> None:
    (tree / "docs" / "link").symlink_to(outside)
    checks = [f"file:docs/{name}" for name in ("plan.md", "nope", "link", "plan.md/x", "", ".git")]
    before = os.listdir("/dev/fd")
    await look_up(str(tree), checks, seconds=60)

    for _ in range(20):
        await look_up(str(tree), checks, seconds=60)

    assert len(os.listdir("/dev/fd")) <= len(before) + 3


# All of them together


async def test_every_target_is_looked_up_once_and_other_checks_are_left_out(place: Path) -> None:
    (place / "a.txt").write_text("one\n")
    head, where = git(place, "rev-parse", "HEAD"), str(place)
    checks = ["file:a.txt says", "run it", "git:main", "file:./a.txt:7", "git:main again", "git:-h"]

    assert await look_up(where, iter(checks), seconds=60) == {
        "file:a.txt": replace(file("file:a.txt", b"one\n"), worktree=where),
        "git:main": Found("git:main", "commit", head, in_head=True, worktree=where),
        "git:-h": Found("git:-h", "unknown", detail=NO_NAME, worktree=where),
    }
    assert await look_up(where, []) == {}


async def test_more_targets_than_the_most_are_not_looked_up(place: Path) -> None:
    checks = [f"file:{number}" for number in range(30)] + [f"git:{n}" for n in range(15)]

    found = await look_up(str(place), checks, seconds=60)

    assert list(found) == checks
    assert [found[check].state for check in checks] == ["gone"] * 40 + ["unknown"] * 5
    assert {found[check].detail for check in checks[40:]} == {"not looked up: more than 40 at once"}
    few = await look_up(str(place), checks[:3], seconds=60, most=2)
    assert few["file:2"].detail == "not looked up: more than 2 at once"


async def test_without_a_directory_every_one_is_unknown() -> None:
    detail = "not looked up here: no directory is known for this call"

    assert await look_up("", ["file:a", "git:main", "file:../x", "no"]) == {
        target: Found(target, "unknown", detail=detail)
        for target in ("file:a", "git:main", "file:../x")
    }


@pytest.mark.parametrize("where", ["{tree}/nope", "{tree}/a.txt", "tree", ".", "/nul\0", "/\ud800"])
async def test_a_directory_that_does_not_exist_is_said_to_be_missing(
    tree: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.chdir(tree.parent)
    worktree = where.replace("{tree}", str(tree))

    assert await look_up(worktree, ["file:a.txt", "git:main"]) == {
        target: Found(
            target, "unknown", detail="not looked up: no such directory", worktree=worktree
        )
        for target in ("file:a.txt", "git:main")
    }


async def test_without_time_nothing_is_opened(place: Path, watch: Watch) -> None:
    (place / "a.txt").touch()
    watcher = watch(place, place / "a.txt", place / ".git")

    assert await look_up(str(place), ["file:a.txt", "git:main", "file:.."], seconds=0) == {
        target: Found(target, "unknown", detail=detail, worktree=str(place))
        for target, detail in {
            "file:a.txt": "not looked up: it took longer than 0 s",
            "git:main": "not looked up: it took longer than 0 s",
            "file:..": DOTS,
        }.items()
    }
    assert watcher.seen() == set()


class SlowRead:
    """Reading waits, each time, until it is let go on."""

    def __init__(self, path: Path) -> None:
        self.is_reading, self.may_go_on = threading.Event(), threading.Event()
        self.times = 0
        self._file, self._system_read = path.stat(), os.read

    def __call__(self, descriptor: int, length: int) -> bytes:
        if os.path.samestat(os.fstat(descriptor), self._file):
            self.times += 1
            self.is_reading.set()
            assert self.may_go_on.wait(60)
        return self._system_read(descriptor, length)


@pytest.fixture
def slow_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> SlowRead:
    os.truncate(tree / "a.txt", MIB)
    slow_read = SlowRead(tree / "a.txt")
    monkeypatch.setattr(os, "read", slow_read)
    return slow_read


async def test_reading_ends_when_time_is_up(
    tree: Path, slow_read: SlowRead, clock: StoppedClock
) -> None:
    checks = ["file:docs", "file:a.txt", "file:docs/plan.md", "git:main"]
    looking = asyncio.create_task(look_up(str(tree), checks, seconds=0.5))
    assert await asyncio.to_thread(slow_read.is_reading.wait, 60)
    clock.now = 1.0
    slow_read.may_go_on.set()

    found = await looking

    assert found.pop("file:docs") == Found("file:docs", "directory", worktree=str(tree))
    assert found == {
        target: Found(target, "unknown", detail=NO_TIME, worktree=str(tree))
        for target in checks[1:]
    }
    assert slow_read.times == 1


async def test_reading_ends_when_it_is_cancelled(tree: Path, slow_read: SlowRead) -> None:
    looking = asyncio.create_task(look_up(str(tree), ["file:a.txt"], seconds=60))
    assert await asyncio.to_thread(slow_read.is_reading.wait, 60)

    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    slow_read.may_go_on.set()

    await asyncio.get_running_loop().shutdown_default_executor()
    assert slow_read.times == 1


# Refs and commits


async def test_refs_and_ids_lead_to_commits_in_or_out_of_the_history_of_head(place: Path) -> None:
    first = git(place, "rev-parse", "HEAD")
    git(place, "tag", "light")
    git(place, "tag", "-a", "-m", "tagged", "v1")
    git(place, "checkout", "-qb", "fix/\u00e9")
    side = commit(place, "side")
    git(place, "checkout", "-q", "main")
    second = commit(place, "second")
    git(place, "pack-refs", "--all")

    for names, identity, is_in_head in (
        (("main", "HEAD", "refs/heads/main", "heads/main", second, second[:8]), second, True),
        (("light", "v1", "tags/v1", first, first[:8], first.upper()), first, True),
        (("fix/\u00e9", side, side[:8]), side, False),
    ):
        for name in names:
            assert await looked_up(place, f"git:{name} is good") == Found(
                f"git:{name}", "commit", identity, in_head=is_in_head
            )


async def test_a_ref_or_commit_that_does_not_exist_is_gone(place: Path) -> None:
    for name in ("nope", "v1", "0" * 40, "1234567", "f" * 40, "origin/main", "a"):
        assert await looked_up(place, f"git:{name}") == Found(f"git:{name}", "gone")


async def test_what_is_no_commit_is_unknown(place: Path) -> None:
    (place / "a.txt").write_text("one\n")
    blob = git(place, "hash-object", "-w", "a.txt")
    tree = git(place, "rev-parse", "HEAD^{tree}")
    git(place, "tag", "of-blob", blob)

    for name in (blob, blob[:10], tree, "of-blob"):
        assert await looked_up(place, f"git:{name}") == unknown(f"git:{name}", "not a commit")


def import_commits(place: Path, count: int) -> None:
    """Make as many commits on the branch `many`, with the same ids each time."""
    commits = "".join(
        f"commit refs/heads/many\ncommitter T <t@example.com> {number} +0000\ndata 0\n"
        for number in range(count)
    )
    subprocess.run(
        ["git", "-C", str(place), "fast-import", "--quiet"], input=commits.encode(), check=True
    )


async def test_a_short_id_of_several_commits_is_unknown(place: Path) -> None:
    import_commits(place, 1000)
    prefixes = [line[:4] for line in git(place, "rev-list", "many").splitlines()]
    short = max(prefixes, key=prefixes.count)
    assert prefixes.count(short) > 1

    assert await looked_up(place, f"git:{short}") == unknown(
        f"git:{short}", "not looked up: several objects have that short id"
    )


@pytest.mark.parametrize(
    "name",
    [
        *("", "-h", "--upload-pack=touch${IFS}ran", "--all", "-", "@", "@{-1}", "HEAD@{1}"),
        *("main@{upstream}", ":/regex", ":0:a.txt", "main:secret", "main^", "main~1", "main^{}"),
        *("HEAD^{/fix}", "main..fix", "main...fix", "^main", "a?b", "a*", "a[b]", "a\\b", "a\0b"),
        *("a\x7fb", "a\x1b", "/main", "main/", "a//b", ".hidden", "a/.b", "a.lock", "a.lock/b"),
        *("a./b", "../HEAD", "a/../b", "x" * 256, "\ud800", "\u202emain", "https://x.y"),
    ],
)
async def test_git_is_not_started_for_what_is_no_name(
    place: Path, fake_git: FakeGit, name: str
) -> None:
    fake_git.install(f'touch {place}/started; exec {fake_git.real} "$@"')

    assert await looked_up(place, f"git:{name}") == unknown(target_of(f"git:{name}"), NO_NAME)

    assert not (place / "started").exists()
    assert (await looked_up(place, "git:main")).state == "commit"
    assert (place / "started").exists()


async def test_an_unborn_head_is_gone_and_has_no_history(place: Path) -> None:
    head = git(place, "rev-parse", "HEAD")
    git(place, "checkout", "-q", "--orphan", "new")

    assert await looked_up(place, "git:HEAD") == Found("git:HEAD", "gone")
    assert await looked_up(place, "git:new") == Found("git:new", "gone")
    assert await looked_up(place, "git:main") == Found("git:main", "commit", head)

    empty = repository(place.parent / "empty")
    assert await looked_up(empty, "git:main") == Found("git:main", "gone")


async def test_a_linked_worktree_has_a_head_of_its_own(place: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(place, "worktree", "add", "-q", str(linked))
    head = commit(linked, "second")

    expected = Found("git:linked", "commit", head, in_head=True)
    assert await looked_up(linked, "git:linked") == expected
    assert await looked_up(place, "git:linked") == replace(expected, in_head=False)


async def test_a_bare_repository_has_refs_and_no_files(place: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(place), "bare")
    head = git(place, "rev-parse", "HEAD")

    assert await looked_up(tmp_path / "bare", "git:main") == Found(
        "git:main", "commit", head, in_head=True
    )


async def test_a_shallow_repository_claims_nothing_about_what_it_does_not_have(
    place: Path, tmp_path: Path
) -> None:
    first = git(place, "rev-parse", "HEAD")
    git(place, "branch", "old")
    head = commit(place, "second")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{place}", "shallow")
    shallow = tmp_path / "shallow"

    assert await looked_up(shallow, "git:main") == Found("git:main", "commit", head, in_head=True)
    assert await looked_up(shallow, "git:nope") == Found("git:nope", "gone")
    assert await looked_up(shallow, f"git:{first}") == unknown(
        f"git:{first}", "not looked up: the repository is shallow, without that commit"
    )
    git(shallow, "fetch", "-q", "--depth=1", "origin", "old:old")
    assert await looked_up(shallow, "git:old") == Found("git:old", "commit", first)


async def test_a_repository_of_sha256_has_longer_ids(tmp_path: Path) -> None:
    if run_git(tmp_path, "init", "-q", "--object-format=sha256", "probe").returncode:
        pytest.skip("this git has no sha256")
    place = tmp_path / "probe"
    head = commit(place)

    assert await looked_up(place, f"git:{head}") == Found(
        f"git:{head}", "commit", head, in_head=True
    )


async def test_no_repository_above_the_directory_is_looked_at(place: Path) -> None:
    (place / "inner").mkdir()
    assert await looked_up(place / "inner", "git:main") == unknown("git:main", NO_REPOSITORY)

    (place / "a:b" / "inner").mkdir(parents=True)
    assert await looked_up(place / "a:b" / "inner", "git:main") == unknown(
        "git:main", "not looked up: the directory has a : above it"
    )


async def test_without_the_git_program_only_files_are_looked_up(
    place: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "a.txt").write_text("one\n")
    monkeypatch.setenv("PATH", str(outside))

    assert await looked_up(place, "git:main") == unknown(
        "git:main", "not looked up: no git program"
    )
    assert await looked_up(place, "file:a.txt") == file("file:a.txt", b"one\n")


async def test_what_git_complains_about_is_quoted_on_one_line(place: Path) -> None:
    git(place, "config", "core.repositoryFormatVersion", "1")
    git(place, "config", "extensions.unheardOf", "yes")

    assert await looked_up(place, "git:main") == unknown(
        "git:main", "not looked up: git: unknown repository extension found: unheardof"
    )


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("echo nonsense", "not looked up: git said what is not understood"),
        ("yes", "not looked up: git said too much"),
        ("exit 3", "not looked up: git ended with code 3"),
    ],
)
async def test_a_git_that_is_none_is_not_believed(
    place: Path, fake_git: FakeGit, script: str, detail: str
) -> None:
    fake_git.install(script)

    assert await looked_up(place, "git:main") == unknown("git:main", detail)


async def test_many_long_names_do_not_block_git(place: Path) -> None:
    checks = [f"git:{number}" + "\u8a08" * 250 for number in range(200)]

    found = await look_up(str(place), checks, seconds=60, most=200)

    assert {found[check].state for check in checks} == {"gone"}


async def test_a_git_that_does_not_end_is_killed_and_reaped(
    place: Path, fake_git: FakeGit, clock: StoppedClock
) -> None:
    fake_git.install(f"{fake_git.preamble}; cat {fake_git.block} & cat {fake_git.block}")
    looking = asyncio.create_task(look_up(str(place), ["git:main"], seconds=0.5))
    pid = await asyncio.to_thread(fake_git.says)
    clock.now = 1.0

    assert await looking == {
        "git:main": Found("git:main", "unknown", detail=NO_TIME, worktree=str(place))
    }
    assert_reaped(pid)
    assert fake_git.says() == b""


async def test_when_only_the_history_takes_too_long_the_commits_are_still_told(
    place: Path, fake_git: FakeGit, clock: StoppedClock
) -> None:
    git(place, "branch", "old")
    git(place, "tag", "older")
    old, head = git(place, "rev-parse", "HEAD"), commit(place, "second")
    slow = f"{fake_git.preamble}; cat {fake_git.block}"
    fake_git.install(f'case "$*" in *merge-base*) {slow} ;; *) exec {fake_git.real} "$@" ;; esac')
    checks = ["git:main", "git:old", "git:older"]
    looking = asyncio.create_task(look_up(str(place), checks, seconds=0.5))
    pid = await asyncio.to_thread(fake_git.says)
    clock.now = 1.0

    where = str(place)
    assert await looking == {
        "git:main": Found("git:main", "commit", head, in_head=True, worktree=where),
        "git:old": Found("git:old", "commit", old, worktree=where),
        "git:older": Found("git:older", "commit", old, worktree=where),
    }
    assert_reaped(pid)
    assert fake_git.says() == b""


async def test_when_it_is_cancelled_git_is_killed_and_reaped(
    place: Path, fake_git: FakeGit
) -> None:
    fake_git.install(f"{fake_git.preamble}; cat {fake_git.block} & cat {fake_git.block}")
    looking = asyncio.create_task(look_up(str(place), ["git:main"], seconds=60))
    pid = await asyncio.to_thread(fake_git.says)

    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking

    await asyncio.get_running_loop().shutdown_default_executor()
    assert_reaped(pid)
    assert fake_git.says() == b""


def leaving(place: Path, name: str) -> str:
    """A program that leaves a file behind when it is run."""
    program = place.parent / f"program-{name}"
    program.write_text(f"#!/bin/sh\ntouch {place.parent}/ran-{name}\n")
    program.chmod(0o755)
    return str(program)


def left(place: Path) -> set[str]:
    return {path.name for path in place.parent.glob("ran-*")}


async def test_no_program_of_the_repository_is_run(place: Path) -> None:
    for key in (
        *("core.fsmonitor", "core.pager", "pager.cat-file", "pager.rev-parse", "core.sshCommand"),
        *("core.editor", "core.askPass", "credential.helper", "gpg.program", "diff.external"),
    ):
        git(place, "config", key, leaving(place, key))
    for alias in ("cat-file", "rev-parse", "merge-base"):
        git(place, "config", f"alias.{alias}", f"!{leaving(place, alias)}")
    for hook in ("post-index-change", "reference-transaction", "post-checkout", "pre-auto-gc"):
        (place / ".git" / "hooks" / hook).symlink_to(leaving(place, hook))
    git(place, "branch", "old")
    for left_before in place.parent.glob("ran-*"):
        left_before.unlink()
    old, head = git(place, "rev-parse", "old"), git(place, "commit-tree", "-m", "x", "HEAD^{tree}")

    assert await looked_up(place, "git:old") == Found("git:old", "commit", old, in_head=True)
    assert await looked_up(place, f"git:{head}") == Found(
        f"git:{head}", "commit", head, in_head=False
    )
    assert await looked_up(place, "git:nope") == Found("git:nope", "gone")

    assert left(place) == set()
    git(place, "status")
    git(place, "branch", "another")
    assert {"ran-core.fsmonitor", "ran-reference-transaction"} <= left(place)


async def test_commits_that_are_missing_are_not_fetched(place: Path) -> None:
    missing = "1" * 40
    git(place, "config", "core.repositoryFormatVersion", "1")
    git(place, "config", "extensions.partialClone", "origin")
    git(place, "config", "remote.origin.promisor", "true")
    git(place, "config", "remote.origin.url", f"ext::{leaving(place, 'fetch')}")
    git(place, "config", "protocol.ext.allow", "always")

    assert await looked_up(place, f"git:{missing}") == Found(f"git:{missing}", "gone")

    assert left(place) == set()
    run_git(place, "cat-file", "-e", missing)
    assert left(place) == {"ran-fetch"}


async def test_nothing_in_the_repository_is_changed(place: Path) -> None:
    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in [place, *place.rglob("*")]}

    (place / "a.txt").touch()
    before = times()

    for check in ("git:main", "git:nope", "file:a.txt", "file:.git/index.lock"):
        await looked_up(place, check)

    assert times() == before


async def test_replaced_commits_do_not_bend_the_history(place: Path) -> None:
    head = git(place, "rev-parse", "HEAD")
    other = git(place, "commit-tree", "-m", "other", "HEAD^{tree}")
    git(place, "replace", "--graft", head, other)
    assert run_git(place, "merge-base", "--is-ancestor", other, head).returncode == 0

    assert await looked_up(place, f"git:{other}") == Found(
        f"git:{other}", "commit", other, in_head=False
    )


async def test_the_variables_of_the_caller_do_not_reach_git(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await looked_up(place, "git:main")
    other = repository(tmp_path / "other")
    commit(other, "other")
    for name, value in {
        "GIT_DIR": str(other / ".git"),
        "GIT_TRACE": str(tmp_path / "trace"),
        "GIT_OBJECT_DIRECTORY": str(other / ".git" / "objects"),
    }.items():
        monkeypatch.setenv(name, value)

    assert await looked_up(place, "git:main") == expected
    assert not (tmp_path / "trace").exists()


# What differs


async def test_a_file_stays_changes_goes_and_comes_back(tree: Path) -> None:
    async def now() -> Found:
        return (await look_up(str(tree), ["file:a.txt"], seconds=60))["file:a.txt"]

    then = await now()
    assert compare(None, then) == Compared("there", "exists (4 bytes)")
    os.utime(tree / "a.txt", (1, 1))
    assert compare(then, await now()) == Compared("unchanged", "unchanged")

    (tree / "a.txt").write_text("two\n")
    other = Compared("changed", "changed: other content, 4 bytes as then")
    assert compare(then, await now()) == other
    (tree / "a.txt").write_bytes(bytes(1310))
    assert compare(then, await now()) == Compared("changed", "changed: 4 bytes then, 1,310 now")

    (tree / "a.txt").unlink()
    gone = await now()
    assert compare(then, gone) == Compared("gone", "gone")
    assert compare(None, gone) == Compared("gone", "does not exist")
    assert compare(gone, gone) == Compared("unchanged", "nothing is there, as then")

    (tree / "a.txt").mkdir()
    directory = Compared("changed", "changed: a file then, a directory now")
    assert compare(then, await now()) == directory
    (tree / "a.txt").rmdir()
    (tree / "a.txt").write_text("one\n")
    assert compare(then, await now()) == Compared("unchanged", "unchanged")
    assert compare(gone, await now()) == Compared("changed", "there now, gone then")


async def test_a_branch_moves_goes_and_its_commit_leaves_the_history(place: Path) -> None:
    first = git(place, "rev-parse", "HEAD")

    async def now(name: str) -> Found:
        return (await look_up(str(place), [f"git:{name}"], seconds=60))[f"git:{name}"]

    second = commit(place, "second")
    git(place, "branch", "fix")
    then, then_by_id = await now("fix"), await now(second)
    said = f"points to {second[:10]}, in HEAD's history"
    assert compare(None, then) == Compared("there", said)
    assert compare(then, await now("fix")) == Compared("unchanged", "unchanged")

    git(place, "reset", "-q", "--hard", first)
    left_history = Compared("changed", "no longer in HEAD's history")
    assert compare(then, await now("fix")) == left_history
    assert compare(then_by_id, await now(second)) == left_history
    apart = await now("fix")

    git(place, "branch", "-qf", "fix", first)
    moved = Compared("changed", f"changed: {second[:10]} then, {first[:10]} now")
    assert compare(then, await now("fix")) == moved

    git(place, "branch", "-qD", "fix")
    assert compare(then, await now("fix")) == Compared("gone", "gone")

    git(place, "reset", "-q", "--hard", second)
    git(place, "branch", "fix")
    assert compare(then, await now("fix")) == Compared("unchanged", "unchanged")
    merged = Compared("unchanged", "unchanged, in HEAD's history now")
    assert compare(apart, await now("fix")) == merged


FILE = Found("file:a", "file", "a" * 64, 1204, worktree="/here")
LARGE = Found("file:a", "file", "", 17 * MIB, worktree="/here")
COMMIT = Found("git:a", "commit", "abc1234567" * 4, in_head=True, worktree="/here")
GONE = Found("file:a", "gone", worktree="/here")
DIRECTORY = Found("file:a", "directory", worktree="/here")
UNKNOWN = Found("file:a", "unknown", detail=SYMLINK, worktree="/here")
NOWHERE = Found("file:a", "unknown", detail="not looked up here")


@pytest.mark.parametrize(
    ("then", "now", "word", "words"),
    [
        (None, FILE, "there", "exists (1,204 bytes)"),
        (None, replace(FILE, size=1), "there", "exists (1 byte)"),
        (None, LARGE, "there", "exists (17,825,792 bytes)"),
        (None, DIRECTORY, "there", "exists (a directory)"),
        (None, COMMIT, "there", "points to abc1234567, in HEAD's history"),
        (
            None,
            replace(COMMIT, in_head=False),
            "there",
            "points to abc1234567, not in HEAD's history",
        ),
        (None, replace(COMMIT, in_head=None), "there", "points to abc1234567"),
        (None, GONE, "gone", "does not exist"),
        (None, UNKNOWN, "unknown", SYMLINK),
        (FILE, UNKNOWN, "unknown", SYMLINK),
        (UNKNOWN, FILE, "there", "exists (1,204 bytes), nothing to compare with"),
        (UNKNOWN, GONE, "gone", "does not exist, nothing to compare with"),
        (FILE, NOWHERE, "unknown", "not looked up here"),
        (NOWHERE, FILE, "there", "exists (1,204 bytes), nothing to compare with"),
        (
            FILE,
            replace(FILE, worktree="/there"),
            "elsewhere",
            "verified in another worktree, not compared",
        ),
        (
            FILE,
            replace(GONE, worktree="/there"),
            "elsewhere",
            "not there; verified in another worktree",
        ),
        (FILE, replace(UNKNOWN, worktree="/there"), "unknown", SYMLINK),
        (COMMIT, replace(COMMIT, worktree="/there", in_head=False), "unchanged", "unchanged"),
        (
            COMMIT,
            replace(COMMIT, worktree="/there", identity="f" * 40),
            "elsewhere",
            "verified in another worktree, not compared",
        ),
        (FILE, FILE, "unchanged", "unchanged"),
        (FILE, replace(FILE, size=1310), "changed", "changed: 1,204 bytes then, 1,310 now"),
        (LARGE, LARGE, "there", "same size, too large to compare"),
        (FILE, LARGE, "changed", "changed: 1,204 bytes then, 17,825,792 now"),
        (DIRECTORY, DIRECTORY, "unchanged", "still a directory"),
        (DIRECTORY, FILE, "changed", "changed: a directory then, a file now"),
        (COMMIT, replace(COMMIT, in_head=None), "unchanged", "unchanged"),
        (replace(COMMIT, in_head=None), COMMIT, "unchanged", "unchanged"),
        (DIRECTORY, GONE, "gone", "gone"),
        (GONE, COMMIT, "changed", "there now, gone then"),
    ],
)
def test_what_differs_is_said_in_a_word_and_a_short_statement(
    then: Found | None, now: Found, word: str, words: str
) -> None:
    compared = compare(then, now)

    assert (compared.word, compared.words) == (word, words)


@pytest.mark.parametrize("found", [FILE, LARGE, COMMIT, GONE, UNKNOWN, NOWHERE])
def test_what_was_found_can_be_stored(found: Found) -> None:
    unprintable = replace(found, worktree="/caf\udce9")

    assert from_json(to_json(found)) == found
    assert from_json(to_json(unprintable)) == unprintable
    assert to_json(unprintable).isascii()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"file"', '"pipe"'),
        ('"size": 1204', '"size": "1204"'),
        ('"size": 1204', '"size": true'),
        ('"in_head": null', '"in_head": 1'),
        ('"size": 1204, ', ""),
        ('"size": 1204, ', '"size": 1204, "more": 1, '),
        ("{", "["),
        ("{", '[{"a": '),
    ],
)
def test_other_text_is_not_taken_for_what_was_found(old: str, new: str) -> None:
    text = to_json(FILE)
    assert old in text

    with pytest.raises(ValueError):
        from_json(text.replace(old, new, 1))
    with pytest.raises(ValueError, match="an object"):
        from_json("[]")
