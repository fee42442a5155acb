"""What git says about a directory, against repositories that the real git made."""

import asyncio
import os
import select
import shutil
import subprocess
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_state.git import GitState, differences, head_of, observe

FIRST = "a.txt"
NOT_ASKED = "git was not asked"
BARE = "bare repository: no files"


def run_git(where: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    config = {
        "user.name": "Test",
        "user.email": "test@example.com",
        "init.defaultBranch": "main",
        "protocol.file.allow": "always",
    }
    options = [part for key, value in config.items() for part in ("-c", f"{key}={value}")]
    return subprocess.run(
        ["git", *options, *arguments],
        cwd=where,
        env=environment | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        check=False,
    )


def git(where: Path, *arguments: str) -> str:
    done = run_git(where, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return os.fsdecode(done.stdout).rstrip("\n")


def git_can_make(tmp: Path, option: str) -> bool:
    return run_git(tmp, "init", "-q", option, "probe").returncode == 0


def repository(place: Path, *options: str) -> Path:
    place.mkdir(parents=True)
    git(place, "init", "-q", *options)
    return place


def commit(place: Path, message: str = "first") -> str:
    git(place, "commit", "-q", "--allow-empty", "-m", message)
    return git(place, "rev-parse", "HEAD")


def content_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    """All files below a directory, with their time of change and content."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


async def observed(place: Path, seconds: float = 60) -> GitState:
    """Observe with so much time that a busy machine makes no difference."""
    return await observe(str(place), seconds=seconds)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "home"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A repository with one commit of one file."""
    place = repository(tmp_path / "api")
    (place / FIRST).write_text("one\n")
    git(place, "add", FIRST)
    commit(place)
    return place


class FakeGit:
    """A shell script in the place of git; it holds a pipe open for as long as it lives."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        directory.mkdir()
        self.block = directory / "block"
        self._path, self._monkeypatch = directory / "git", monkeypatch
        os.mkfifo(self.block)
        os.mkfifo(directory / "alive")
        self.preamble = f"exec 3>{directory}/alive; echo $$ >&3"
        self._alive = os.open(directory / "alive", os.O_RDONLY | os.O_NONBLOCK)
        self.real = shutil.which("git") or ""

    def install(self, script: str) -> None:
        self._path.write_text(f"#!/bin/sh\n{script}\n")
        self._path.chmod(0o755)
        self._monkeypatch.setenv("PATH", str(self._path.parent), prepend=os.pathsep)

    def says(self) -> bytes:
        """What comes next from those that live, empty once they are all dead."""
        assert select.select([self._alive], [], [], 60)[0]
        return os.read(self._alive, 1000)

    def close(self) -> None:
        os.close(self._alive)


@pytest.fixture
def fake_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[FakeGit]:
    fake = FakeGit(tmp_path / "fake", monkeypatch)
    yield fake
    fake.close()


class StoppedClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StoppedClock:
    clock = StoppedClock()
    monkeypatch.setattr("mcp_state.git.time", clock)
    return clock


async def out_of_time(
    place: Path, fake_git: FakeGit, clock: StoppedClock
) -> tuple[GitState, bytes]:
    """Let the time be over once the fake git has told that it lives, and its id."""
    observing = asyncio.create_task(observe(str(place), seconds=0.5))
    pid = await asyncio.to_thread(fake_git.says)
    clock.now = 1.0
    return await observing, pid


def assert_reaped(pid: bytes) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


# What is observed


async def test_commit_branch_and_every_kind_of_changed_file_are_told(place: Path) -> None:
    for name in ("deleted", "removed", "renamed", "staged", "kept"):
        (place / name).write_text(name)
    (place / ".gitignore").write_text("*.log\n")
    git(place, "add", ".")
    head = commit(place, "second")
    (place / FIRST).write_text("changed\n")
    (place / "deleted").unlink()
    git(place, "rm", "-q", "--cached", "removed")
    git(place, "mv", "renamed", "to here")
    (place / "staged").write_text("staged again")
    git(place, "add", "staged")
    (place / "new").mkdir()
    (place / "new" / "one").touch()
    (place / "new" / "two").touch()
    (place / "kept.log").touch()

    assert await observed(place) == GitState(
        head=head,
        branch="main",
        dirty=(FIRST, "deleted", "new/", "removed", "renamed", "staged", "to here"),
        dirty_count=7,
    )


async def test_a_clean_worktree_has_no_changed_files(place: Path) -> None:
    assert await observed(place) == GitState(
        git(place, "rev-parse", "HEAD"), "main", dirty=(), dirty_count=0
    )


async def test_a_conflict_is_a_changed_file(place: Path) -> None:
    git(place, "checkout", "-q", "-b", "other")
    (place / FIRST).write_text("theirs\n")
    git(place, "commit", "-qam", "theirs")
    git(place, "checkout", "-q", "main")
    (place / FIRST).write_text("ours\n")
    git(place, "commit", "-qam", "ours")
    assert run_git(place, "merge", "-q", "other").returncode == 1

    assert await observed(place) == GitState(
        git(place, "rev-parse", "HEAD"), "main", dirty=(FIRST,), dirty_count=1
    )


async def test_names_that_are_no_utf8_or_hold_a_line_break_are_told_as_storable_text(
    place: Path,
) -> None:
    (place / os.fsdecode(b"caf\xe9")).touch()
    (place / "caf\u00e9").touch()
    (place / "two\nlines").touch()
    (place / " -> ").touch()

    state = await observed(place)

    assert state.dirty == (" -> ", "caf\\udce9", "caf\u00e9", "two\nlines")
    assert state.dirty_count == 4


async def test_of_many_changed_files_the_first_are_kept_and_all_are_counted(place: Path) -> None:
    for number in range(120):
        (place / f"{number:03}").touch()
    (place / FIRST).write_text("changed\n")

    state = await observed(place)

    assert state.dirty == tuple(f"{number:03}" for number in range(50))
    assert state.dirty_count == 121


async def test_output_of_any_size_is_counted_to_the_end(place: Path, fake_git: FakeGit) -> None:
    names = "seq -f '? %07.0f' 299999 -1 0"
    fake_git.install(f"(echo '# branch.head main'; {names}) | tr '\\n' '\\0'")

    state = await observed(place)

    assert state == GitState(
        branch="main",
        dirty=tuple(f"{number:07}" for number in range(50)),
        dirty_count=300_000,
    )


async def test_the_files_that_the_user_excludes_are_not_told(
    place: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, directory in ((".one", home / ".config"), (".two", tmp_path / "xdg")):
        (directory / "git").mkdir(parents=True)
        (directory / "git" / "ignore").write_text(f"{name}\n")
        (place / name).touch()

    assert (await observed(place)).dirty == (".two",)

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert (await observed(place)).dirty == (".one",)


# Kinds of repositories: what git says, and what the files say without it


async def assert_both_tell(
    place: Path, head: str, branch: str, dirty: tuple[str, ...] = ()
) -> None:
    expected = GitState(head, branch, dirty, len(dirty))
    assert await observed(place) == expected
    assert head_of(str(place)) == replace(expected, dirty=(), dirty_count=None, note=NOT_ASKED)


async def test_an_unborn_branch_has_no_commit(tmp_path: Path) -> None:
    place = repository(tmp_path / "api")
    (place / FIRST).touch()

    await assert_both_tell(place, "", "main", (FIRST,))


async def test_a_detached_head_has_no_branch(place: Path) -> None:
    head = git(place, "rev-parse", "HEAD")
    git(place, "checkout", "-q", "--detach")

    await assert_both_tell(place, head, "")


async def test_packed_refs_are_found_and_loose_ones_win(place: Path) -> None:
    git(place, "branch", "main2")
    git(place, "branch", "other/main")
    git(place, "tag", "-a", "-m", "tagged", "v1")
    git(place, "checkout", "-q", "other/main")
    packed = commit(place, "second")
    git(place, "pack-refs", "--all", "--prune")
    assert not (place / ".git" / "refs" / "heads" / "main").exists()

    await assert_both_tell(place, packed, "other/main")

    loose = commit(place, "third")
    assert loose != packed
    await assert_both_tell(place, loose, "other/main")

    git(place, "checkout", "-q", "main")
    await assert_both_tell(place, git(place, "rev-parse", "main2"), "main")


async def test_a_branch_may_be_an_alias_or_called_anything(place: Path) -> None:
    head = git(place, "rev-parse", "HEAD")
    git(place, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    git(place, "symbolic-ref", "HEAD", "refs/heads/alias")
    await assert_both_tell(place, head, "main")

    git(place, "checkout", "-q", "-b", os.fsdecode(b"caf\xe9/\xc3\xa9"))
    await assert_both_tell(place, head, "caf\\udce9/\u00e9")


async def test_a_head_that_is_a_symbolic_link_is_followed(place: Path) -> None:
    head = git(place, "rev-parse", "HEAD")
    (place / ".git" / "HEAD").unlink()
    (place / ".git" / "HEAD").symlink_to("refs/heads/main")

    await assert_both_tell(place, head, "main")


async def test_a_linked_worktree_has_a_head_of_its_own(place: Path, tmp_path: Path) -> None:
    linked = tmp_path / "elsewhere" / "feature"
    git(place, "worktree", "add", "-q", str(linked))
    head = commit(linked, "second")
    (linked / "new").touch()

    await assert_both_tell(linked, head, "feature", ("new",))
    git(place, "pack-refs", "--all", "--prune")
    await assert_both_tell(linked, head, "feature", ("new",))
    await assert_both_tell(place, git(place, "rev-parse", "HEAD"), "main")


async def test_a_submodule_is_a_repository_and_one_changed_file_of_the_outer_one(
    place: Path, tmp_path: Path
) -> None:
    library = repository(tmp_path / "library")
    (library / "code").touch()
    git(library, "add", "code")
    inner = commit(library)
    git(place, "submodule", "--quiet", "add", str(library), "lib")
    outer = commit(place, "second")
    (place / "lib" / "code").write_text("changed")
    before = content_of(place / ".git")

    await assert_both_tell(place, outer, "main", ("lib",))
    await assert_both_tell(place / "lib", inner, "main", ("code",))
    assert content_of(place / ".git") == before


async def test_a_repository_of_sha256_has_longer_ids(tmp_path: Path) -> None:
    if not git_can_make(tmp_path, "--object-format=sha256"):
        pytest.skip("this git has no sha256")
    place = repository(tmp_path / "api", "--object-format=sha256")
    head = commit(place)
    assert len(head) == 64

    await assert_both_tell(place, head, "main")
    git(place, "pack-refs", "--all", "--prune")
    await assert_both_tell(place, head, "main")


async def test_the_reftable_format_is_read_by_git_alone(tmp_path: Path) -> None:
    if not git_can_make(tmp_path, "--ref-format=reftable"):
        pytest.skip("this git has no reftable")
    place = repository(tmp_path / "api", "--ref-format=reftable")
    head = commit(place)

    assert await observed(place) == GitState(head, "main", (), 0)
    assert head_of(str(place)) == GitState(note="HEAD cannot be read from files")


async def test_a_git_that_does_not_know_the_format_of_the_repository_is_quoted(
    place: Path,
) -> None:
    git(place, "config", "core.repositoryFormatVersion", "1")
    git(place, "config", "extensions.unheardOf", "yes")
    (place / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")

    assert await observed(place) == GitState(
        note="git: unknown repository extension found: unheardof"
    )
    assert head_of(str(place)) == GitState(note="HEAD cannot be read from files")


async def test_a_bare_repository_and_the_directory_around_one_have_no_files(
    place: Path, tmp_path: Path
) -> None:
    around = tmp_path / "around"
    git(tmp_path, "clone", "-q", "--bare", str(place), str(around / ".bare"))
    (around / ".git").write_bytes(b"gitdir: ./.bare\n")
    head = git(place, "rev-parse", "HEAD")

    for bare in (around / ".bare", around):
        assert await observed(bare) == GitState(head, "main", note=BARE)
        assert head_of(str(bare)) == GitState(head, "main", note=NOT_ASKED)


# No repository, no git, a broken or slow one


async def test_without_a_repository_or_directory_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    none = GitState(note="no git repository")
    gone = GitState(note="no such directory")

    assert [await observed(tmp_path), head_of(str(tmp_path))] == [none, none]
    for text in ("gone", "file", "x" * 5000, "nul\0", "\ud800"):
        where = f"{tmp_path}/{text}"
        assert [await observe(where), head_of(where)] == [gone, gone]
    for relative in ("", ".", "C:/api"):
        assert [await observe(relative), head_of(relative)] == [gone, gone]


async def test_no_repository_above_the_directory_is_looked_at(place: Path) -> None:
    (place / "inner").mkdir()
    none = GitState(note="no git repository")
    assert [await observed(place / "inner"), head_of(str(place / "inner"))] == [none, none]

    (place / "inner" / ".git").mkdir()
    assert await observed(place / "inner") == GitState(
        note="git: not a git repository (or any of the parent directories): .git"
    )
    assert head_of(str(place / "inner")) == GitState(note="HEAD is broken")


async def test_without_the_git_program_the_files_still_tell_commit_and_branch(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = git(place, "rev-parse", "HEAD")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert await observed(place) == GitState(head, "main", note="no git program")


async def test_a_git_that_the_repository_brings_along_is_not_run(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = git(place, "rev-parse", "HEAD")
    (place / "git").write_text("#!/bin/sh\n>ran\n")
    (place / "git").chmod(0o755)
    monkeypatch.chdir(place)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}bin")

    state = await observed(place)

    assert state == GitState(head, "main", ("git",), 1)


async def test_a_git_that_cannot_be_started_is_told(
    place: Path, fake_git: FakeGit, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = git(place, "rev-parse", "HEAD")
    fake_git.install("")
    (fake_git.block.parent / "git").write_bytes(b"\0")
    monkeypatch.setenv("PATH", str(fake_git.block.parent))

    assert await observed(place) == GitState(
        head, "main", note="[Errno 8] Exec format error: 'git'"
    )


async def test_where_processes_cannot_be_bounded_git_is_not_asked(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("mcp_state.git.os.name", "nt")
        state = await observe(str(place))

    assert state == GitState(
        git(place, "rev-parse", "HEAD"), "main", note="git is not asked on this system"
    )


async def test_what_git_complains_about_is_told_on_one_line(place: Path, fake_git: FakeGit) -> None:
    head = git(place, "rev-parse", "HEAD")
    fake_git.install("printf 'warning: w\\nfatal: no \\033[1m %0300d\\nhint: h' 0 >&2; exit 128")

    assert await observed(place) == GitState(
        head, "main", note=f"git: no \ufffd[1m {'0' * 200}"[:200]
    )

    fake_git.install("exit 3")
    assert await observed(place) == GitState(head, "main", note="git status ended with code 3")

    fake_git.install("yes warning | head -n 100000 >&2; exit 3")
    assert await observed(place) == GitState(head, "main", note="git: warning")


async def test_a_complaint_does_not_hide_what_git_told(place: Path) -> None:
    head = git(place, "rev-parse", "HEAD")
    (place / ".gitattributes").write_text("*.txt filter=lost\n")
    git(place, "add", ".gitattributes")
    git(place, "config", "filter.lost.clean", "false")
    (place / FIRST).write_text("two\n")

    state = await observed(place)

    assert state == GitState(
        head, "main", (".gitattributes", FIRST), 2, "git: error: external filter 'false' failed 1"
    )


async def test_the_repository_of_another_user_is_read_from_files(
    place: Path, fake_git: FakeGit
) -> None:
    head = git(place, "rev-parse", "HEAD")
    fake_git.install(f'GIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec {fake_git.real} "$@"')

    assert await observed(place) == GitState(
        head, "main", note=f"git: detected dubious ownership in repository at '{place}'"[:200]
    )


async def test_a_broken_index_leaves_commit_and_branch(place: Path) -> None:
    head = git(place, "rev-parse", "HEAD")
    (place / ".git" / "index").write_bytes(b"rubbish" * 100)

    assert await observed(place) == GitState(head, "main", note="git: index file corrupt")


@pytest.mark.parametrize("content", ["", "rubbish", "ref: ", "ref: /etc/passwd"])
async def test_a_broken_head_is_told(place: Path, content: str) -> None:
    (place / ".git" / "HEAD").write_text(content)

    assert await observed(place) == GitState(
        note="git: not a git repository (or any of the parent directories): .git"
    )
    reason = "HEAD cannot be read from files" if content.startswith("ref:") else "HEAD is broken"
    assert head_of(str(place)) == GitState(note=reason)


async def test_a_head_that_leads_out_of_the_repository_is_not_followed(place: Path) -> None:
    (place / ".git" / "HEAD").write_text("ref: refs/../logs/HEAD")

    assert await observed(place) == GitState(
        dirty=(FIRST,), dirty_count=1, note="git names no commit and no branch"
    )
    assert head_of(str(place)) == GitState(note="HEAD cannot be read from files")


def test_a_broken_branch_is_told_and_no_older_commit_of_it(place: Path) -> None:
    git(place, "pack-refs", "--all")
    main = place / ".git" / "refs" / "heads" / "main"

    main.write_text("")
    assert head_of(str(place)) == GitState(branch="main", note="refs/heads/main is broken")
    main.write_text("ref: refs/heads/main\n")
    assert head_of(str(place)) == GitState(branch="main", note="refs/heads/main is broken")


def test_no_file_makes_the_reader_wait_or_fail(place: Path) -> None:
    dot_git = place / ".git"
    broken = GitState(note="HEAD is broken")
    (dot_git / "HEAD").unlink()
    assert head_of(str(place)) == broken
    os.mkfifo(dot_git / "HEAD")
    assert head_of(str(place)) == broken
    (dot_git / "HEAD").unlink()
    (dot_git / "HEAD").mkdir()
    assert head_of(str(place)) == broken

    shutil.rmtree(dot_git)
    dot_git.write_bytes(b"gitdir: nul\0\n")
    assert head_of(str(place)) == broken
    dot_git.write_text("gitdir: " + "x" * 5000)
    assert head_of(str(place)) == broken


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file that cannot be read")
def test_a_file_that_cannot_be_read_is_told(place: Path) -> None:
    (place / ".git" / "HEAD").unlink()
    (place / ".git" / "HEAD").symlink_to("/proc/self/mem")

    assert head_of(str(place)) == GitState(
        note="the repository cannot be read: [Errno 5] Input/output error"
    )


async def test_a_worktree_whose_repository_is_gone_is_told(place: Path, tmp_path: Path) -> None:
    linked = tmp_path / "feature"
    git(place, "worktree", "add", "-q", str(linked))
    shutil.rmtree(place)

    assert await observed(linked) == GitState(
        note=f"git: not a git repository: {place}/.git/worktrees/feature"[:200]
    )
    assert head_of(str(linked)) == GitState(note="HEAD is broken")


async def test_the_time_is_bounded_and_whoever_blocks_git_is_killed(
    place: Path, fake_git: FakeGit, clock: StoppedClock
) -> None:
    head = git(place, "rev-parse", "HEAD")
    (place / ".gitattributes").write_text("*.txt filter=blocking\n")
    git(place, "config", "filter.blocking.clean", f"{fake_git.preamble}; cat {fake_git.block}")
    (place / FIRST).write_text("two\n")

    state, _ = await out_of_time(place, fake_git, clock)

    assert state == GitState(head, "main", note="git status took longer than 0.5 s")
    assert fake_git.says() == b""


@pytest.mark.parametrize(
    "script",
    [
        "{preamble}; cat {block} & cat {block}",
        "{preamble}; cat {block} & exit 0",
        "{preamble}; exec >&- 2>&-; read line <{block}",
        "{preamble}; yes >&2",
    ],
    ids=["slow", "gone but for a child", "silent", "noisy"],
)
async def test_a_git_that_does_not_end_is_killed_and_reaped(
    place: Path, fake_git: FakeGit, clock: StoppedClock, script: str
) -> None:
    head = git(place, "rev-parse", "HEAD")
    fake_git.install(script.format(preamble=fake_git.preamble, block=fake_git.block))

    state, pid = await out_of_time(place, fake_git, clock)

    assert state == GitState(head, "main", note="git status took longer than 0.5 s")
    assert_reaped(pid)
    assert fake_git.says() == b""


async def test_output_without_an_end_of_a_name_is_not_held_in_memory(
    place: Path, fake_git: FakeGit
) -> None:
    head = git(place, "rev-parse", "HEAD")
    fake_git.install(f"{fake_git.preamble}; yes")

    state = await observed(place)

    assert state == GitState(head, "main", note="git status said what is not understood")
    assert_reaped(fake_git.says())
    assert fake_git.says() == b""


async def test_when_it_is_cancelled_git_is_killed_and_reaped(
    place: Path, fake_git: FakeGit
) -> None:
    fake_git.install(f"{fake_git.preamble}; cat {fake_git.block} & cat {fake_git.block}")
    observing = asyncio.create_task(observed(place))
    pid = await asyncio.to_thread(fake_git.says)

    observing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await observing

    await asyncio.get_running_loop().shutdown_default_executor()
    assert_reaped(pid)
    assert fake_git.says() == b""


# What it leaves alone


async def test_nothing_in_the_repository_is_changed(place: Path) -> None:
    git(place, "update-index", "--untracked-cache")
    (place / "new").touch()
    os.utime(place / FIRST, (1_000_000_000, 1_000_000_000))
    before = content_of(place)

    assert (await observed(place)).dirty == ("new",)
    head_of(str(place))

    assert content_of(place) == before
    git(place, "status")
    assert content_of(place) != before


async def test_no_hook_and_no_fsmonitor_of_the_repository_is_run(place: Path) -> None:
    hook = place / ".git" / "hooks" / "post-index-change"
    for script in (hook, place / ".git" / "monitor"):
        script.write_text(f"#!/bin/sh\ntouch {place}/ran-{script.name}\n")
        script.chmod(0o755)
    git(place, "config", "core.fsmonitor", str(place / ".git" / "monitor"))
    os.utime(place / FIRST, (1_000_000_000, 1_000_000_000))

    assert (await observed(place)).dirty == ()

    git(place, "status")
    assert (await observed(place)).dirty == ("ran-monitor", "ran-post-index-change")


async def test_the_variables_of_the_caller_do_not_reach_git(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await observed(place)
    other = repository(tmp_path / "other")
    trace = tmp_path / "trace"
    for name, value in {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / "index"),
        "GIT_TRACE": str(trace),
        "LC_ALL": "de_DE.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)

    assert await observed(place) == expected
    assert not trace.exists()


async def test_objects_that_are_missing_are_not_fetched(place: Path, tmp_path: Path) -> None:
    git(place, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-qn", "--filter=tree:0", f"file://{place}", str(clone))
    before = content_of(clone)

    state = await observed(clone)

    assert (state.branch, state.dirty_count) == ("main", None)
    assert content_of(clone) == before
    git(clone, "status")
    assert content_of(clone) != before


def test_the_head_is_read_without_a_process(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = git(place, "rev-parse", "HEAD")

    def no_process(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", no_process)
        patch.setattr("os.posix_spawn", no_process)
        patch.setattr("os.fork", no_process)
        state = head_of(str(place))

    assert state == GitState(head, "main", note=NOT_ASKED)


# What differs

ONE, TWO = "1a2b3c4d5e" + "0" * 30, "5d6e7f8a9b" + "0" * 30
THEN = GitState(ONE, "main", ("b.py", "c.py"), 2)
NOWHERE = GitState(note="no git repository")


def test_nothing_is_said_where_nothing_differs() -> None:
    gone, bare = GitState(note="no such directory"), GitState(ONE, "main", note=BARE)
    unborn = GitState("", "main", (), 0)

    for same in (THEN, NOWHERE, gone, bare, unborn):
        assert differences(same, same) == []
    assert differences(NOWHERE, gone) == []
    assert differences(THEN, replace(THEN, note="git: warning: something")) == []


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (THEN, replace(THEN, head=TWO), ["HEAD has moved: 1a2b3c4d5e -> 5d6e7f8a9b"]),
        (THEN, replace(THEN, branch="fix"), ["branch changed: main -> fix"]),
        (THEN, replace(THEN, branch=""), ["branch changed: main -> detached HEAD"]),
        (replace(THEN, branch=""), THEN, ["branch changed: detached HEAD -> main"]),
        (replace(THEN, head=""), THEN, ["HEAD: no commit known -> 1a2b3c4d5e"]),
        (
            replace(THEN, head=""),
            replace(THEN, head="", branch="fix"),
            ["branch changed: main -> fix"],
        ),
        (THEN, replace(THEN, branch="a\u2028b"), ["branch changed: main -> a\ufffdb"]),
        (
            GitState(ONE, "main", ("b.py", "c.py"), 2),
            GitState(TWO, "fix", ("a\n.py", "b.py"), 2),
            [
                "HEAD has moved: 1a2b3c4d5e -> 5d6e7f8a9b",
                "branch changed: main -> fix",
                "changed files now that were not then: a\ufffd.py",
                "no longer changed: c.py",
            ],
        ),
        (
            NOWHERE,
            THEN,
            [
                "HEAD: no commit known -> 1a2b3c4d5e",
                "files: not known then (no git repository)",
            ],
        ),
        (
            THEN,
            GitState(ONE, "main", note="no git program"),
            ["files: not known now (no git program)"],
        ),
        (
            GitState(ONE, "main", note="no git program"),
            GitState(TWO, "main", note="git was not asked"),
            [
                "HEAD has moved: 1a2b3c4d5e -> 5d6e7f8a9b",
                "files: not known then (no git program), not known now (git was not asked)",
            ],
        ),
        (GitState(ONE, "main"), THEN, ["files: not known then"]),
    ],
)
def test_what_differs_is_said_in_short_statements(
    then: GitState, now: GitState, said: list[str]
) -> None:
    assert differences(then, now) == said


def test_of_many_files_the_first_are_listed() -> None:
    many = tuple(f"{number:02}" for number in range(13))
    listed = "00, 01, 02, 03, 04, 05, 06, 07, 08, 09 (+3 more)"
    clean, full = GitState(ONE, "main", (), 0), GitState(ONE, "main", many, 13)

    assert differences(clean, full) == [f"changed files now that were not then: {listed}"]
    assert differences(full, clean) == [f"no longer changed: {listed}"]


def test_nothing_is_claimed_about_files_beyond_those_that_were_kept() -> None:
    cut = GitState(ONE, "main", ("b", "d"), 812)

    assert differences(cut, cut) == [
        "changed files: 812 then, 812 now; only the first 2 were kept and compared"
    ]
    assert differences(cut, GitState(ONE, "main", ("a", "d", "e"), 3)) == [
        "changed files now that were not then: a",
        "no longer changed: b",
        "changed files: 812 then, 3 now; only the first 2 were kept and compared",
    ]
    assert differences(GitState(ONE, "main", ("c", "e"), 2), cut) == [
        "changed files now that were not then: b, d",
        "no longer changed: c",
        "changed files: 2 then, 812 now; only the first 2 were kept and compared",
    ]
    assert differences(cut, GitState(ONE, "main", (), 7)) == [
        "changed files: 812 then, 7 now; only the first 0 were kept and compared"
    ]


async def test_a_session_that_comes_back_is_told_what_happened_in_between(place: Path) -> None:
    (place / FIRST).write_text("changed\n")
    then = await observed(place)
    git(place, "checkout", "-qb", "fix")
    git(place, "commit", "-qam", "second")
    (place / "new").touch()

    now = await observed(place)

    assert differences(then, now) == [
        f"HEAD has moved: {then.head[:10]} -> {now.head[:10]}",
        "branch changed: main -> fix",
        "changed files now that were not then: new",
        f"no longer changed: {FIRST}",
    ]
