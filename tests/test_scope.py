"""Which project a directory belongs to, against repositories that the real git made."""

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mcp_state.scope import Located, Locator, local_path

MEBIBYTE = 1 << 20

unhurried = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def git(where: Path, *arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    config = {
        "user.name": "Test",
        "user.email": "test@example.com",
        "init.defaultBranch": "main",
        "protocol.file.allow": "always",
    }
    options = [part for key, value in config.items() for part in ("-c", f"{key}={value}")]
    done = subprocess.run(
        ["git", *options, *arguments],
        cwd=where,
        env=environment | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout.rstrip("\n")


def repository(place: Path, origin: str = "") -> Path:
    place.mkdir(parents=True)
    git(place, "init", "-q")
    if origin:
        git(place, "remote", "add", "origin", origin)
    return place


def with_commit(place: Path) -> Path:
    git(place, "commit", "-q", "--allow-empty", "-m", "first")
    return place


def six(place: Path | str) -> str:
    return hashlib.sha256(os.fsencode(place)).hexdigest()[:6]


def from_origin(project: str, worktree: Path) -> Located:
    git_dir = str(worktree / ".git")
    return Located(project, "git origin", git_dir, str(worktree), git_dir)


def from_directory(place: Path) -> Located:
    return Located(f"{place.name}-{six(place)}", "directory", str(place), str(place), "")


def age(*files: Path) -> None:
    """Make files old enough for a change of them to be told by their signature alone."""
    for file in files:
        os.utime(file, (1_000_000_000, 1_000_000_000))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def locator(home: Path) -> Locator:
    return Locator(str(home))


# Repositories


def test_a_repository_is_named_after_its_origin(locator: Locator, tmp_path: Path) -> None:
    place = repository(tmp_path / "checkout", "git@GitHub.com:Acme/API.git")

    assert locator.repository(str(place)) == from_origin("github.com/acme/api", place)
    assert locator.named(str(place)) == from_origin("github.com/acme/api", place)


def test_without_an_origin_it_is_named_after_its_directory(
    locator: Locator, tmp_path: Path
) -> None:
    place = repository(tmp_path / "API")
    git(place, "remote", "add", "upstream", "https://github.com/acme/api")

    assert locator.repository(str(place)) == Located(
        project=f"API-{six(place / '.git')}",
        how="git directory",
        anchor=str(place / ".git"),
        worktree=str(place),
        git_dir=str(place / ".git"),
    )


def test_a_subdirectory_has_the_project_of_its_repository(locator: Locator, tmp_path: Path) -> None:
    place = repository(tmp_path / "api", "https://github.com/acme/api")
    deep = place / "src" / "deep"
    deep.mkdir(parents=True)

    for inside in (deep, place / ".git" / "refs", place / "deleted" / "since"):
        assert locator.repository(str(inside)) == from_origin("github.com/acme/api", place)
        assert locator.named(str(inside)) == from_origin("github.com/acme/api", place)


@pytest.mark.parametrize("origin", ["", "https://github.com/acme/api"])
def test_every_worktree_has_the_project_of_its_repository(
    locator: Locator, tmp_path: Path, origin: str
) -> None:
    main = with_commit(repository(tmp_path / "api", origin))
    linked = tmp_path / "elsewhere" / "feature"
    git(main, "worktree", "add", "-q", str(linked))
    (linked / "src").mkdir()
    of_main = locator.repository(str(main))
    assert of_main is not None

    assert locator.repository(str(linked / "src")) == Located(
        project=of_main.project,
        how=of_main.how,
        anchor=str(main / ".git"),
        worktree=str(linked),
        git_dir=str(main / ".git" / "worktrees" / "feature"),
    )


def test_a_worktree_that_is_linked_by_relative_paths_is_found(
    locator: Locator, tmp_path: Path
) -> None:
    main = with_commit(repository(tmp_path / "api", "https://github.com/acme/api"))
    git(main, "worktree", "add", "-q", str(tmp_path / "feature"))
    (tmp_path / "feature" / ".git").write_bytes(b"gitdir: ../api/.git/worktrees/feature\r\n")

    assert locator.repository(str(tmp_path / "feature")) == Located(
        project="github.com/acme/api",
        how="git origin",
        anchor=str(main / ".git"),
        worktree=str(tmp_path / "feature"),
        git_dir=str(main / ".git" / "worktrees" / "feature"),
    )


def test_a_submodule_has_its_own_project(locator: Locator, tmp_path: Path) -> None:
    library = with_commit(repository(tmp_path / "library"))
    outer = repository(tmp_path / "outer", "https://github.com/acme/outer")
    git(outer, "submodule", "--quiet", "add", str(library), "lib")
    git_dir = str(outer / ".git" / "modules" / "lib")

    assert locator.repository(str(outer)) == from_origin("github.com/acme/outer", outer)
    assert locator.repository(str(outer / "lib")) == Located(
        f"lib-{six(git_dir)}", "git directory", git_dir, str(outer / "lib"), git_dir
    )

    git(outer / "lib", "remote", "set-url", "origin", "https://github.com/acme/library")
    assert locator.repository(str(outer / "lib")) == Located(
        "github.com/acme/library", "git origin", git_dir, str(outer / "lib"), git_dir
    )


def test_a_bare_repository_is_its_own_worktree(locator: Locator, tmp_path: Path) -> None:
    bare = tmp_path / "api.git"
    git(tmp_path, "init", "-q", "--bare", str(bare))
    expected = Located(f"api-{six(bare)}", "git directory", str(bare), str(bare), str(bare))

    assert locator.repository(str(bare)) == expected
    assert locator.repository(str(bare / "refs" / "heads")) == expected

    git(bare, "remote", "add", "origin", "https://github.com/acme/api")
    assert locator.repository(str(bare)) == Located(
        "github.com/acme/api", "git origin", str(bare), str(bare), str(bare)
    )


def test_worktrees_around_a_hidden_bare_repository_are_named_after_the_directory_around_it(
    locator: Locator, tmp_path: Path
) -> None:
    seed = with_commit(repository(tmp_path / "seed"))
    around = tmp_path / "api"
    git(tmp_path, "clone", "-q", "--bare", str(seed), str(around / ".bare"))
    (around / ".git").write_bytes(b"gitdir: ./.bare\n")
    git(around, "worktree", "add", "-q", "main")
    bare = around / ".bare"
    project = f"api-{six(bare)}"

    assert locator.repository(str(around)) == Located(
        project, "git directory", str(bare), str(around), str(bare)
    )
    assert locator.repository(str(around / "main")) == Located(
        project,
        "git directory",
        str(bare),
        str(around / "main"),
        str(bare / "worktrees" / "main"),
    )


def test_a_separate_git_directory_is_followed(locator: Locator, tmp_path: Path) -> None:
    place, apart = tmp_path / "api", tmp_path / "apart.git"
    git(tmp_path, "init", "-q", f"--separate-git-dir={apart}", str(place))

    assert locator.repository(str(place)) == Located(
        f"apart-{six(apart)}", "git directory", str(apart), str(place), str(apart)
    )


def test_the_real_path_counts_however_the_directory_was_reached(
    locator: Locator, tmp_path: Path
) -> None:
    place = repository(tmp_path / "real" / "api")
    (place / "src").mkdir()
    (tmp_path / "link").symlink_to(place / "src")
    (tmp_path / "gitlink").mkdir()
    (tmp_path / "gitlink" / ".git").symlink_to(place / ".git")
    expected = locator.repository(str(place))
    assert expected is not None and expected.worktree == str(place)

    for spelling in (f"{tmp_path}/link", f"{place}/", f"{place}/src/..", f"/{place}", f"//{place}"):
        assert locator.repository(spelling) == expected
        assert locator.named(spelling) == expected
    assert locator.repository(str(tmp_path / "gitlink")) == Located(
        expected.project,
        expected.how,
        expected.anchor,
        str(tmp_path / "gitlink"),
        expected.git_dir,
    )


def test_the_inner_of_two_nested_repositories_counts(locator: Locator, tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer", "https://github.com/acme/outer")
    inner = repository(outer / "vendor" / "inner", "https://github.com/acme/inner")

    assert locator.repository(str(inner)) == from_origin("github.com/acme/inner", inner)
    assert locator.repository(str(inner.parent)) == from_origin("github.com/acme/outer", outer)


def test_a_repository_of_the_home_directory_does_not_swallow_what_lies_below(
    locator: Locator, home: Path, tmp_path: Path
) -> None:
    git(home, "init", "-q")
    git(home, "remote", "add", "origin", "https://github.com/me/dotfiles")
    (home / "notes").mkdir()
    inner = repository(home / "code" / "api", "https://github.com/acme/api")
    (tmp_path / "other-home").symlink_to(home)

    for swallowed in (home, home / "notes", home / ".git", home / ".git" / "refs"):
        assert locator.repository(str(swallowed)) is None
        assert Locator(str(tmp_path / "other-home")).repository(str(swallowed)) is None
    assert locator.named(str(home)) is None
    assert locator.named(str(home / "notes")) == from_directory(home / "notes")
    assert locator.repository(str(inner)) == from_origin("github.com/acme/api", inner)


def test_the_root_and_the_home_directory_name_no_project(locator: Locator, home: Path) -> None:
    for nowhere in ("/", "//", "/..", str(home), f"{home}/", f"{home}/sub/..", "C:/", "c:\\"):
        assert locator.repository(nowhere) is None
        assert locator.named(nowhere) is None


def test_a_home_that_is_not_known_hides_nothing(tmp_path: Path) -> None:
    place = repository(tmp_path / "api", "https://github.com/acme/api")

    for home in ("", "relative", "/"):
        assert Locator(home).repository(str(place)) == from_origin("github.com/acme/api", place)
        assert Locator(home).repository("/") is None
        assert Locator(home).named("/") is None


# Plain directories


def test_a_directory_outside_of_a_repository_has_a_project_only_when_it_is_named(
    locator: Locator, tmp_path: Path
) -> None:
    place = tmp_path / "notes"
    place.mkdir()
    (tmp_path / "link").symlink_to(place)

    assert locator.repository(str(place)) is None
    assert locator.named(str(place)) == from_directory(place)
    assert locator.named(str(tmp_path / "link")) == from_directory(place)
    assert locator.named(str(tmp_path / "not" / "there")) == from_directory(
        tmp_path / "not" / "there"
    )


@pytest.mark.parametrize("text", ["", ".", "notes", "./notes", "../notes", "~", "C:notes"])
def test_a_relative_path_names_nothing(locator: Locator, text: str) -> None:
    assert locator.repository(text) is None
    assert locator.named(text) is None


def test_a_windows_path_maps_by_its_text_where_it_does_not_exist(locator: Locator) -> None:
    identity = "c:/users/me/api"
    project = f"api-{six(identity)}"

    for spelling in ("C:/Users/Me/Api", "c:\\users\\me\\api\\", "C:/users/x/../ME/API"):
        assert locator.repository(spelling) is None
        located = locator.named(spelling)
        assert located == Located(
            project, "directory", identity, local_path(spelling) or "", git_dir=""
        )
    assert locator.named(r"\\Server\share\Api") == Located(
        f"api-{six('//server/share/api')}",
        "directory",
        "//server/share/api",
        "//Server/share/Api",
        git_dir="",
    )


def test_names_are_valid_whatever_the_directory_is_called(locator: Locator, tmp_path: Path) -> None:
    odd = {
        "a\nb\tc\x7f\u202e": "a_b_c__",
        "x" * 200: "x" * 121,
        "   ": "root",
        "cafe\u0301": "caf\u00e9",
        os.fsdecode(b"caf\xe9"): "caf_",
    }
    for directory_name, shown in odd.items():
        place = repository(tmp_path / directory_name)
        anchor = str(place / ".git").encode(errors="backslashreplace").decode()

        located = locator.repository(str(place))

        digest = hashlib.sha256(anchor.encode()).hexdigest()[:6]
        assert located == Located(
            f"{shown}-{digest}", "git directory", anchor, str(place), str(place / ".git")
        )


# Changes, and what is remembered


def count_opens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    opened: list[str] = []
    really_open = os.open

    def counting_open(path: str, flags: int) -> int:
        opened.append(path)
        return really_open(path, flags)

    monkeypatch.setattr("mcp_state.scope.os.open", counting_open)
    return opened


def test_what_has_not_changed_is_read_once(
    locator: Locator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = with_commit(repository(tmp_path / "api", "https://github.com/acme/api"))
    linked = tmp_path / "feature"
    git(main, "worktree", "add", "-q", str(linked))
    common = main / ".git" / "worktrees" / "feature" / "commondir"
    age(linked / ".git", common, main / ".git" / "config")
    opened = count_opens(monkeypatch)

    first = locator.repository(str(linked))
    again = [locator.repository(str(linked)) for _ in range(5)]

    assert again == [first] * 5
    assert opened == [str(linked / ".git"), str(common), str(main / ".git" / "config")]


def test_a_new_origin_is_seen_at_the_next_call(locator: Locator, tmp_path: Path) -> None:
    place = repository(tmp_path / "api", "https://github.com/acme/one")
    age(place / ".git" / "config")
    assert locator.repository(str(place)) == from_origin("github.com/acme/one", place)

    git(place, "remote", "set-url", "origin", "https://github.com/acme/two")
    assert locator.repository(str(place)) == from_origin("github.com/acme/two", place)

    git(place, "remote", "remove", "origin")
    located = locator.repository(str(place))
    assert located is not None and located.how == "git directory"


def test_a_change_that_leaves_no_trace_in_size_and_time_is_seen(
    locator: Locator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = repository(tmp_path / "api", "https://github.com/acme/one")
    config = place / ".git" / "config"
    before = config.stat()
    really_stat = os.stat

    def frozen_stat(path: str) -> os.stat_result:
        return before if path == str(config) else really_stat(path)

    monkeypatch.setattr("mcp_state.scope.os.stat", frozen_stat)
    assert locator.repository(str(place)) == from_origin("github.com/acme/one", place)

    config.write_text(config.read_text().replace("one", "two"))
    assert locator.repository(str(place)) == from_origin("github.com/acme/two", place)


def test_a_new_repository_is_seen_at_the_next_call(locator: Locator, tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer", "https://github.com/acme/outer")
    inner = outer / "inner"
    inner.mkdir()
    assert locator.repository(str(inner)) == from_origin("github.com/acme/outer", outer)

    git(inner, "init", "-q")
    located = locator.repository(str(inner))
    assert located is not None and located.worktree == str(inner)


def test_what_is_remembered_has_a_bound(
    locator: Locator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        git_dir = tmp_path / str(number) / ".git"
        for part in ("objects", "refs"):
            (git_dir / part).mkdir(parents=True)
        (git_dir / "HEAD").write_bytes(b"ref: refs/heads/main\n")
        (git_dir / "config").write_text(f'[remote "origin"]\nurl = hub:acme/{number}\n')
        age(git_dir / "config")
        place = tmp_path / str(number)
        assert locator.repository(str(place)) == from_origin(f"hub/acme/{number}", place)
    opened = count_opens(monkeypatch)

    locator.repository(str(tmp_path / "299"))
    locator.repository(str(tmp_path / "0"))

    assert opened == [str(tmp_path / "0" / ".git" / "config")]


# What is broken or hostile


def nothing(dot_git: Path) -> None:
    assert not dot_git.exists()


def empty_directory(dot_git: Path) -> None:
    dot_git.mkdir()


def directory_without_objects(dot_git: Path) -> None:
    (dot_git / "refs").mkdir(parents=True)
    (dot_git / "HEAD").write_bytes(b"ref: refs/heads/main\n")


def empty_file(dot_git: Path) -> None:
    dot_git.write_bytes(b"")


def garbage(dot_git: Path) -> None:
    dot_git.write_bytes(bytes(range(256)) * 20)


def pointer_to_nowhere(dot_git: Path) -> None:
    dot_git.write_bytes(b"gitdir: /not/there\n")


def pointer_without_target(dot_git: Path) -> None:
    dot_git.write_bytes(b"gitdir: \n")


def pointer_to_itself(dot_git: Path) -> None:
    dot_git.write_bytes(b"gitdir: .git\n")


def pointer_with_nul(dot_git: Path) -> None:
    dot_git.write_bytes(b"gitdir: /tmp/\0x\n")


def pointer_too_long(dot_git: Path) -> None:
    dot_git.write_bytes(b"gitdir: " + b"a/" * 100_000)


def pointer_too_large(dot_git: Path) -> None:
    dot_git.write_bytes(b"gitdir: " + b"./" * MEBIBYTE)


def fifo(dot_git: Path) -> None:
    os.mkfifo(dot_git)


def device(dot_git: Path) -> None:
    dot_git.symlink_to("/dev/zero")


def symlink_to_itself(dot_git: Path) -> None:
    dot_git.symlink_to(".git")


def symlink_to_nowhere(dot_git: Path) -> None:
    dot_git.symlink_to("/not/there")


def git_directory_that_leads_to_nowhere(dot_git: Path) -> None:
    git(dot_git.parent, "init", "-q")
    (dot_git / "commondir").write_bytes(b"../not-there\n")


BROKEN = [
    nothing,
    empty_directory,
    directory_without_objects,
    empty_file,
    garbage,
    pointer_to_nowhere,
    pointer_without_target,
    pointer_to_itself,
    pointer_with_nul,
    pointer_too_long,
    pointer_too_large,
    fifo,
    device,
    symlink_to_itself,
    symlink_to_nowhere,
    git_directory_that_leads_to_nowhere,
]


@pytest.mark.parametrize("make", BROKEN)
def test_a_broken_git_entry_counts_as_no_repository(
    locator: Locator, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    place = tmp_path / "api"
    place.mkdir()
    make(place / ".git")

    for _ in range(2):
        assert locator.repository(str(place)) is None
        assert locator.named(str(place)) == from_directory(place)


def test_inside_another_repository_only_a_git_file_that_leads_nowhere_hides_it(
    locator: Locator, tmp_path: Path
) -> None:
    outer = repository(tmp_path / "outer", "https://github.com/acme/outer")
    for make in (pointer_to_nowhere, garbage):
        (outer / make.__name__).mkdir()
        make(outer / make.__name__ / ".git")
        assert locator.repository(str(outer / make.__name__)) is None
    for make in (nothing, empty_directory, fifo, symlink_to_itself):
        (outer / make.__name__).mkdir()
        make(outer / make.__name__ / ".git")
        inside = locator.repository(str(outer / make.__name__))
        assert inside == from_origin("github.com/acme/outer", outer)


@pytest.mark.parametrize(
    "make", [nothing, empty_directory, empty_file, garbage, fifo, device, symlink_to_itself]
)
def test_a_broken_config_counts_as_no_origin(
    locator: Locator, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    place = repository(tmp_path / "api", "https://github.com/acme/api")
    config = place / ".git" / "config"
    config.unlink()
    make(config)

    for _ in range(2):
        located = locator.repository(str(place))
        assert located is not None
        assert (located.project, located.how) == (f"api-{six(place / '.git')}", "git directory")


def test_a_file_that_becomes_a_pipe_while_it_is_looked_at_does_not_block(
    locator: Locator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dot_git = tmp_path / "api" / ".git"
    dot_git.parent.mkdir()
    dot_git.write_bytes(b"gitdir: .\n")
    when_it_was_a_file = dot_git.stat()
    really_stat = os.stat
    dot_git.unlink()
    os.mkfifo(dot_git)

    def late_stat(path: str) -> os.stat_result:
        return when_it_was_a_file if path == str(dot_git) else really_stat(path)

    monkeypatch.setattr("mcp_state.scope.os.stat", late_stat)
    assert locator.repository(str(dot_git.parent)) is None


def test_a_config_is_read_up_to_a_mebibyte_and_not_beyond(locator: Locator, tmp_path: Path) -> None:
    place = repository(tmp_path / "api", "https://github.com/acme/api")
    config = place / ".git" / "config"
    content = config.read_bytes()

    config.write_bytes(content + b"#" * (MEBIBYTE - len(content)))
    assert locator.repository(str(place)) == from_origin("github.com/acme/api", place)

    config.write_bytes(content + b"#" * (MEBIBYTE - len(content) + 1))
    located = locator.repository(str(place))
    assert located is not None and located.how == "git directory"


def test_bytes_that_are_no_text_do_no_harm_in_a_config(locator: Locator, tmp_path: Path) -> None:
    place = repository(tmp_path / "api", "https://github.com/acme/api")
    config = place / ".git" / "config"

    config.write_bytes(b"# \xff\xfe\n[user]\nname = \xe9\n" + config.read_bytes())
    assert locator.repository(str(place)) == from_origin("github.com/acme/api", place)

    config.write_bytes(b'[remote "origin"]\nurl = https://github.com/acme/\xe9\n')
    digest = hashlib.sha256(rb"github.com/acme/\udce9").hexdigest()
    named = f"github.com/acme/_-{digest[:12]}"
    assert locator.repository(str(place)) == from_origin(named, place)


def test_a_chain_or_loop_of_symbolic_links_ends(locator: Locator, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "0").symlink_to(tmp_path)
    for number in range(1, 2000):
        (tmp_path / str(number)).symlink_to(tmp_path / str(number - 1))

    assert locator.repository(str(tmp_path / "loop")) is None
    assert locator.repository(str(tmp_path / "1999")) is None
    assert locator.named(str(tmp_path / "loop")) == from_directory(tmp_path / "loop")
    assert locator.named(str(tmp_path / "1999")) is None


def test_a_deleted_working_directory_does_no_harm(
    locator: Locator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = repository(tmp_path / "api", "https://github.com/acme/api")
    gone = place / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert locator.repository(str(gone)) == from_origin("github.com/acme/api", place)
    assert locator.repository("") is None
    assert locator.repository(".") is None
    assert locator.named("gone") is None


@pytest.mark.parametrize(
    "text", ["/nul\0byte", "/surrogate/\ud800", "/" + "a/" * 4096, "C:/" + "a/" * 4096]
)
def test_a_path_that_cannot_exist_names_nothing(locator: Locator, text: str) -> None:
    assert locator.repository(text) is None
    assert locator.named(text) is None


# Paths that clients send


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        ("/", "/"),
        ("/home/me/api", "/home/me/api"),
        ("/home/me/100%25 c#?", "/home/me/100%25 c#?"),
        ("/home/me/back\\slash", "/home/me/back\\slash"),
        ("file:///home/me/api", "/home/me/api"),
        ("file:/home/me/api", "/home/me/api"),
        ("FILE://LocalHost/home/me/api", "/home/me/api"),
        ("file:///home/me/a%20b%2525", "/home/me/a b%25"),
        ("file:///home/me/c#", "/home/me/c#"),
        ("file:///home/me/100%", "/home/me/100%"),
        ("file:///home/caf%C3%A9", "/home/caf\u00e9"),
        ("file:///home/caf%E9", os.fsdecode(b"/home/caf\xe9")),
    ],
)
def test_a_plain_path_or_file_uri_is_understood(sent: str, path: str) -> None:
    assert local_path(sent) == path


@pytest.mark.parametrize(
    "sent",
    [
        "",
        " ",
        "api",
        "./api",
        "~/api",
        "\\api",
        "C:api",
        "file:",
        "file:api",
        "file://host",
        "file:///nul%00byte",
        "/nul\0byte",
        "https://github.com/acme/api",
        "vscode-remote://ssh/home/me/api",
        "untitled:/home/me/api",
    ],
)
def test_what_is_no_absolute_path_is_refused(sent: str) -> None:
    assert local_path(sent) is None


@pytest.mark.parametrize(
    "sent",
    [
        "C:\\Users\\Me\\my api",
        "c:/Users/Me/my api/",
        "C:\\Users/Me\\x\\..\\my api",
        "/c:/Users/Me/my api",
        "/c%3A/Users/Me/my%20api",
        "/C%3a/Users/Me/my%20api/",
        "file:///c%3A/Users/Me/my%20api",
        "file:///C:/Users/Me/my%20api",
        "file:/C:/Users/Me/my%20api",
        "file://localhost/C:/Users/Me/my%20api",
        "file://C:/Users/Me/my%20api",
        "file:///C:\\Users\\Me\\my api",
        "\\\\?\\C:\\Users\\Me\\my api",
    ],
)
def test_all_spellings_of_a_windows_path_are_one(sent: str) -> None:
    assert local_path(sent) == "C:/Users/Me/my api"


@pytest.mark.parametrize(
    "sent",
    [
        "\\\\server\\share\\api",
        "//server/share/api/",
        "file://server/share/api",
        "file:////server/share/api",
        "file://localhost//server/share/api",
        "\\\\?\\UNC\\server\\share\\api",
    ],
)
def test_all_spellings_of_a_network_path_are_one(sent: str) -> None:
    assert local_path(sent) == "//server/share/api"


@unhurried
@given(st.text(st.characters(exclude_characters="\0"), min_size=1))
def test_a_file_uri_of_any_path_leads_back_to_it(name: str) -> None:
    path = f"/home/{name}"
    uri = "file://" + quote(path, errors="surrogatepass")
    assume(not any("\ud800" <= char <= "\udfff" for char in name))

    assert local_path(path) == path
    assert local_path(uri) == path
    assert local_path(uri.replace("file://", "file://localhost", 1)) == path


@unhurried
@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    locator = Locator("/root")
    for spelling in (text, f"/{text}", f"//{text}", f"C:/{text}", f"file://{text}"):
        locator.repository(spelling)
        for located in (locator.named(spelling), locator.named(local_path(spelling) or "")):
            if located is not None:
                assert 1 <= len(located.project) <= 128
                assert located.project.isprintable()
                assert located.project == located.project.strip()
                located.anchor.encode()


# Remotes


def project_of(tmp_path: Path, config: str) -> str:
    """The project of a repository with this config; "" if it is not named after an origin."""
    git_dir = tmp_path / "api" / ".git"
    for part in ("objects", "refs"):
        (git_dir / part).mkdir(parents=True, exist_ok=True)
    (git_dir / "HEAD").write_bytes(b"ref: refs/heads/main\n")
    (git_dir / "config").write_bytes(config.encode(errors="surrogatepass"))
    located = Locator("/root").repository(str(tmp_path / "api"))
    assert located is not None
    return located.project if located.how == "git origin" else ""


def quoted(url: str) -> str:
    escaped = url.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'[remote "origin"]\n\turl = "{escaped}"\n'


@pytest.mark.parametrize(
    ("url", "project"),
    [
        ("https://github.com/acme/api.git", "github.com/acme/api"),
        ("https://github.com/acme/api/", "github.com/acme/api"),
        ("https://github.com/acme/api.git///", "github.com/acme/api"),
        ("HTTPS://GitHub.COM//Acme//API.GIT", "github.com/acme/api"),
        ("https://me:secret@github.com:443/acme/api", "github.com/acme/api"),
        ("https://me:p@ss#w?rd@github.com/acme/api", "github.com/acme/api"),
        ("https://github.com/acme/api?private_token=secret", "github.com/acme/api"),
        ("https://github.com/acme/api#secret", "github.com/acme/api"),
        ("ssh://git@github.com:22/acme/api.git", "github.com/acme/api"),
        ("git+ssh://git@github.com/acme/api", "github.com/acme/api"),
        ("git://github.com/acme/api", "github.com/acme/api"),
        ("git@github.com:acme/api.git", "github.com/acme/api"),
        ("git@github.com:/acme/api.git", "github.com/acme/api"),
        ("github.com:acme/api", "github.com/acme/api"),
        ("https://gitlab.com/a/b/c/d.git", "gitlab.com/a/b/c/d"),
        ("https://git.sr.ht/~me/api", "git.sr.ht/~me/api"),
        ("ssh://host/srv/api/.git", "host/srv/api"),
        ("https://dev.azure.com/acme/My%20Team/_git/api", "dev.azure.com/acme/my team/_git/api"),
        ("ssh://git@[2001:DB8::1]:22/acme/api", "[2001:db8::1]/acme/api"),
        ("git@[::1]:acme/api", "[::1]/acme/api"),
        ("persistent::https://github.com/acme/api", "github.com/acme/api"),
    ],
)
def test_a_remote_becomes_host_owner_and_repository(tmp_path: Path, url: str, project: str) -> None:
    assert project_of(tmp_path, quoted(url)) == project


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/srv/git/api.git",
        "//server/share/api.git",
        "../api",
        "./a:b/api",
        "api",
        "~/api",
        "file:///srv/git/api.git",
        "FILE:///srv/git/api.git",
        "file://host/srv/api.git",
        "file:/srv/api.git",
        "C:\\code\\api",
        "c:/code/api",
        "C:api",
        "\\\\server\\share\\api",
        "https://",
        "https:///acme/api",
        "https://github.com",
        "https://github.com/",
        "https://github.com/.git",
        "https://github.com/acme/../api",
        "https://github.com:port/acme/api",
        "ext::sh -c 'nc host 9418'",
        "https://github.com/" + "a" * 5000,
    ],
)
def test_a_local_or_senseless_remote_counts_as_none(tmp_path: Path, url: str) -> None:
    assert project_of(tmp_path, quoted(url)) == ""


@pytest.mark.parametrize(
    "url",
    [
        "https://me:hunter2/hunter2@github.com/acme/api",
        "https://me:1/hunter2@github.com/acme/api",
        "https://hunter2/@github.com/acme/api",
        "https://me:1?hunter2/hunter2@github.com/acme/api",
        "https://me:1/hunter2#hunter2@github.com/acme/api",
        "https://me%3Ahunter2%40github.com/acme/api",
        "me:hunter2@github.com:acme/api",
        "h@hunter2@github.com:acme/api",
    ],
)
def test_a_remote_whose_password_cannot_be_told_apart_counts_as_none(
    tmp_path: Path, url: str
) -> None:
    assert project_of(tmp_path, quoted(url)) == ""


def test_a_long_or_unprintable_remote_is_told_apart_by_a_hash(tmp_path: Path) -> None:
    longest = "h/" + "x" * 126
    too_long = "h/" + "x" * 127
    newline = "h/a\nb"

    assert project_of(tmp_path, quoted(f"https://{longest}")) == longest
    assert project_of(tmp_path, quoted(f"https://{too_long}")) == (
        f"{too_long[:115]}-{hashlib.sha256(too_long.encode()).hexdigest()[:12]}"
    )
    assert project_of(tmp_path, quoted("https://h/a%0Ab")) == (
        f"h/a_b-{hashlib.sha256(newline.encode()).hexdigest()[:12]}"
    )


plain = st.from_regex(r"[a-z0-9_][a-z0-9_-]{0,12}", fullmatch=True)
hosts = st.from_regex(r"[a-z0-9][a-z0-9-]{1,12}(\.[a-z]{2,4}){0,2}", fullmatch=True)
secrets = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@st.composite
def spelled(draw: st.DrawFn, host: str, path: list[str]) -> str:
    """One of the many ways to write a remote."""
    swap = draw(st.sampled_from([str.lower, str.upper, str.title]))
    shown = [
        "".join(draw(st.sampled_from([char, f"%{ord(char):02x}"])) for char in swap(part))
        for part in path
    ]
    end = draw(st.sampled_from(["", "/", ".git", ".git/", ".GIT", "//"]))
    user = draw(st.sampled_from(["", "git@", "me@"]))
    if draw(st.booleans()):
        return f"{user}{swap(host)}:{draw(st.sampled_from(['', '/']))}{'/'.join(shown)}{end}"
    scheme = draw(st.sampled_from(["https", "HTTP", "ssh", "git", "git+ssh"]))
    user = draw(st.sampled_from([user, "me:secret@", "me:p%2Fw%40@", ":@"]))
    port = draw(st.sampled_from(["", ":", ":22", ":8443"]))
    slash = draw(st.sampled_from(["/", "//"]))
    return f"{scheme}://{user}{swap(host)}{port}/{slash.join(shown)}{end}"


@unhurried
@given(st.data(), hosts, st.lists(plain, min_size=1, max_size=4))
def test_all_spellings_of_a_remote_are_one_project(
    tmp_path: Path, data: st.DataObject, host: str, path: list[str]
) -> None:
    url = data.draw(spelled(host, path))

    assert project_of(tmp_path, quoted(url)) == "/".join([host, *path])


@unhurried
@given(
    secrets,
    st.sampled_from(
        ["https://{}@h.example/o/r", "https://me:{}@h.example/o/r", "{}@h.example:o/r"]
    ),
)
def test_credentials_never_show(tmp_path: Path, secret: str, pattern: str) -> None:
    assert project_of(tmp_path, quoted(pattern.format(secret))) in ("h.example/o/r", "")


@unhurried
@given(st.text(st.characters(exclude_characters="\0"), max_size=200))
def test_any_url_gives_a_valid_name_or_none(tmp_path: Path, text: str) -> None:
    for url in (text, f"https://h/{text}", f"git@h:{text}"):
        project = project_of(tmp_path, quoted(url))
        assert len(project) <= 128
        assert project == project.strip()
        assert project == "" or project.isprintable()


# The config file


@pytest.mark.parametrize(
    "config",
    [
        '[remote "origin"]\n\turl = hub:a\n',
        '[remote "origin"] url = hub:a # said on the line of the section',
        '[REMOTE "origin"]\nURL=hub:a',
        '[remote   "origin"]\nurl = hub:a\n[remote "other"]\nurl = hub:b\n',
        '[remote "other"]\nurl = hub:b\n[remote "origin"]\nurl = hub:a\n',
        '[remote "origin"]\nfetch = +x\n[core]\nbare = no\n[remote "origin"]\nurl = hub:a\n',
        "[remote.origin]\nurl = hub:a\n",
        "[remote.ORIGIN]\nurl = hub:a\n",
        r'[remote "ori\gin"]' + "\nurl = hub:a\n",
        '[remote "origin"]\r\nurl = hub:a\r\n',
        '\ufeff[remote "origin"]\nurl = hub:a\n',
        '# [remote "origin"]\n; url = hub:b\n\n[remote "origin"]\n#url = hub:b\n\turl = hub:a\n',
        '[remote "origin"]\nurl = hub:a ; [remote "other"]\n',
        '[remote "origin"]\nurl = hub:a # \\\nurl = hub:b\n',
        '[remote "origin"]\nurl = "hub:a # b" ; c\n',
        '[remote "origin"]\nurl = hub:"a"b"c"\n',
        '[remote "origin"]\nurl = "hub:a\\"b\\\\c"\n',
        '[remote "origin"]\nurl = hub:\\\na\n',
        '[remote "origin"]\nurl = hub:a \\\n  b\n',
        '[remote "origin"]\nurl = \\\nhub:a\n',
        '[remote "origin"]\nurl = "hub:\\\na"\n',
        '[remote "origin"]\nurl = hub:a\nurl = hub:b\n',
        '[remote "origin"]\npushurl = hub:b\nurl = hub:a\n',
        '[url "hub:b"]\npushInsteadOf = hub:a\n[remote "origin"]\nurl = hub:a\n',
    ],
)
def test_the_config_is_read_as_git_reads_it(tmp_path: Path, config: str) -> None:
    git(tmp_path, "init", "-q", "api")
    ours = project_of(tmp_path, config)
    told_by_git = git(tmp_path / "api", "remote", "get-url", "origin")

    assert ours == project_of(tmp_path, quoted(told_by_git))
    assert ours.startswith("hub/a")


@pytest.mark.parametrize(
    "config",
    [
        "",
        "url = hub:a\n",
        "[core]\nurl = hub:a\n",
        '[remote "Origin"]\nurl = hub:a\n',
        '[remote "other"]\nurl = hub:a\n',
        '[remote "origin"]\npushurl = hub:a\n',
        '[remote "origin"]\nurl\n',
        '[remote "origin"]\nurl =\n',
        '[remote "origin"]\nurl = ""\n',
        '[remote "origin"]\nurl = hub:a\n[remote "origin"]\nurl =\n',
        "[include]\npath = included\n",
    ],
)
def test_a_config_without_a_url_of_origin_names_none(tmp_path: Path, config: str) -> None:
    (tmp_path / "api" / ".git").mkdir(parents=True)
    (tmp_path / "api" / ".git" / "included").write_bytes(b'[remote "origin"]\nurl = hub:a\n')

    assert project_of(tmp_path, config) == ""


def test_an_empty_url_forgets_the_ones_before_it(tmp_path: Path) -> None:
    config = '[remote "origin"]\nurl = hub:a\nurl =\nurl = hub:b\nurl = hub:c\n'

    assert project_of(tmp_path, config) == "hub/b"


@pytest.mark.parametrize(
    "broken",
    [
        '[remote "origin" ]',
        '[remote "origin]',
        "[remote",
        "u_rl = x",
        "url x",
        'url = "x',
        "url = \\q",
    ],
)
def test_nothing_counts_behind_a_broken_line(tmp_path: Path, broken: str) -> None:
    url = '[remote "origin"]\nurl = hub:a\n'

    assert project_of(tmp_path, f"{url}{broken}\n") == "hub/a"
    assert project_of(tmp_path, f"[core]\n{broken}\n{url}") == ""


@unhurried
@given(st.text(st.sampled_from('[]"\\\n=#; \tremotoiginu.lhub:a\r')))
def test_any_config_is_answered(tmp_path: Path, config: str) -> None:
    project_of(tmp_path, config)
    project_of(tmp_path, f'[remote "origin"]\nurl = {config}')
