"""Which project a directory belongs to, read from files alone.

A directory names a project by its git repository, the same from every worktree and
subdirectory: by the `origin` remote as `host/owner/repo`, else by the place of the
repository's common directory. Whatever is broken there counts as no repository; nothing
here raises, starts a process or reads the environment.
"""

import hashlib
import ntpath
import os
import re
import stat
import time
import unicodedata
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from mcp_state.record import record

_LONGEST_NAME = 128
_LONGEST_PATH = 4096
_LARGEST_FILE = 1 << 20
_MOST_REMEMBERED = 256
_SETTLED_AFTER_NS = 2_000_000_000

_NO_HOST = re.compile(r"//(?:localhost)?(?=/)", re.IGNORECASE)
_ENCODED_DRIVE = re.compile(r"/[a-z]%3a(?:/|$)", re.IGNORECASE)
_DRIVE = re.compile(r"(?://[?.]/|/{0,2})([a-z]):(/.*)?", re.IGNORECASE | re.DOTALL)
_UNC = re.compile(r"//(?:[?.]/UNC/)?([^/?.][^/]*)/+([^/].*)", re.IGNORECASE | re.DOTALL)

# An "@" behind the host may end a password with a slash in it: such a remote has no name.
_HOST = r"(\[[0-9a-f:.]+\]|[^\s/\\:@?#%\[\]]+)"
_PATH = r"([^@?#]*)(?:[?#][^@]*)?"
_URL = re.compile(
    rf"(?:[a-z0-9]+::)?(?!file:)[a-z][a-z0-9+.-]*://(?:[^/]*@)?{_HOST}(?::[0-9]*)?/{_PATH}",
    re.IGNORECASE,
)
_SCP_LIKE = re.compile(rf"(?!file:|[a-z]:)(?:[^/@:\[]*@)?{_HOST}:(?!:|//){_PATH}", re.IGNORECASE)

_CONFIG_ENTRY = re.compile(
    r"""
    (?: [ \t\r\n] | [#;][^\n]* )*+
    (?: \[ (?P<section>[A-Za-z0-9.-]+) (?: [ \t]+ "(?P<name>(?: [^"\\\n] | \\[^\n] )*+)" )? \]
      | (?P<key>[A-Za-z][A-Za-z0-9-]*+) [ \t]*+
        (?: = (?P<value>(?: [^"\\\n#;]
                          | \\[tbn"\\\n]
                          | "(?: [^"\\\n] | \\[tbn"\\\n] )*+" )*+)
            (?: [#;][^\n]*+ )? )?
        (?: \n | \Z )
    )""",
    re.VERBOSE,
)
_QUOTE_OR_ESCAPE = re.compile(r'"|\\([tbn"\\\n])')
_ESCAPED = {"t": "\t", "b": "\b", "n": "\n", '"': '"', "\\": "\\"}


@record
class Located:
    """Where a directory leads: the project it names, and how that was found.

    Attributes:
        project: The derived name, e.g. `github.com/acme/api` or `api-3fa9c1`.
        how: `git origin`, `git directory` or `directory`.
        anchor: The identity of the place, for the store to remember: the real path of the
            repository's common git directory, or of the plain directory. Always storable text.
        worktree: Real path of the worktree's root; of a bare repository its git directory, of a
            plain directory itself.
        git_dir: Real path of the worktree's own git directory, empty without a repository.
    """

    project: str
    how: str
    anchor: str
    worktree: str
    git_dir: str


def local_path(text: str) -> str | None:
    """Make an absolute path of what a client sent.

    Plain paths, `file:` URIs, `/c%3A/` style and Windows paths are understood; a Windows path
    comes out as `C:/…` or `//host/share/…` however it was spelled, its letter case kept.

    Returns:
        The path, or None for a relative path, another URI scheme and the empty text.
    """
    if text[:5].lower() == "file:":
        text = _NO_HOST.sub("", _percent_decoded(text[5:]), count=1)
    elif _ENCODED_DRIVE.match(text):
        text = _percent_decoded(text)
    if "\0" in text:
        return None
    is_posix = text.startswith("/") and not text.startswith("//")
    return _windows_path(text) or (text if is_posix else None)


class Locator:
    """Finds the project of a directory, reading `.git` as files.

    What was read is remembered, and read again only when the file has changed. The way up to the
    repository is walked at each call, so that a new `.git` is seen at once.
    """

    def __init__(self, home: str) -> None:
        self._home = _real_path(home)
        self._remembered: dict[str, tuple[tuple[int, ...], str]] = {}

    def repository(self, directory: str) -> Located | None:
        """Locate a directory that lies in a git repository.

        Returns:
            None outside of a repository, in one whose root is the root or home directory, and
            for these two themselves.
        """
        real = _real_path(directory)
        return None if real is None or self._is_too_wide(real) else self._containing(real)

    def named(self, directory: str) -> Located | None:
        """Locate a directory that the client names; outside of a repository by its own path.

        Returns:
            None for the root and home directories, and for what is no absolute path.
        """
        real = _real_path(directory)
        if real is not None:
            if self._is_too_wide(real):
                return None
            if located := self._containing(real):
                return located
        windows = _windows_path(directory)
        if windows is not None and (real is None or not os.path.isdir(real)):
            return None if windows.endswith(":/") else _plain(windows, identity=windows.lower())
        return None if real is None else _plain(real, identity=real)

    def _is_too_wide(self, path: str) -> bool:
        return path == self._home or os.path.dirname(path) == path

    def _containing(self, start: str) -> Located | None:
        for worktree in _upwards(start):
            found = self._git_directories(worktree)
            if found is None:
                continue
            git_dir, common = found
            if common is None or self._is_too_wide(worktree):
                return None
            origin = self._parsed(os.path.join(common, "config"), _origin)
            return Located(
                project=origin or _place_name(common),
                how="git origin" if origin else "git directory",
                anchor=_storable(common),
                worktree=worktree,
                git_dir=_real_path(git_dir) or git_dir,
            )
        return None

    def _git_directories(self, worktree: str) -> tuple[str, str | None] | None:
        """Find the git directory at a place, and the one that it has in common with others.

        What a `.git` file points to may not exist, and then has none in common.
        """
        if os.path.basename(worktree) == ".git":
            return None
        dot_git = os.path.join(worktree, ".git")
        if os.path.isfile(dot_git):
            git_dir = os.path.join(worktree, self._parsed(dot_git, _gitdir_path))
            return git_dir, self._common_directory(git_dir)
        for git_dir in (dot_git, worktree):
            if common := self._common_directory(git_dir):
                return git_dir, common
        return None

    def _common_directory(self, git_dir: str) -> str | None:
        if not os.path.lexists(os.path.join(git_dir, "HEAD")):
            return None
        pointer = self._parsed(os.path.join(git_dir, "commondir"), _path_line)
        common = _real_path(os.path.join(git_dir, pointer))
        parts = ("objects", "refs")
        is_whole = common and all(os.path.isdir(os.path.join(common, part)) for part in parts)
        return common if is_whole else None

    def _parsed(self, path: str, parse: Callable[[str], str]) -> str:
        """Read what a small regular file says, if it changed; "" where there is none."""
        try:
            file = os.stat(path)
            signature = (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns)
            if path in self._remembered and self._remembered[path][0] == signature:
                return self._remembered[path][1]
            text = _read(path) if stat.S_ISREG(file.st_mode) else ""
        except (OSError, ValueError):
            return ""
        value = parse(text)
        # A file this young can change again without any sign of it in its signature.
        if file.st_mtime_ns < time.time_ns() - _SETTLED_AFTER_NS:
            self._remembered[path] = (signature, value)
            if len(self._remembered) > _MOST_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        return value


def _read(path: str) -> str:
    def without_waiting(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))

    with open(path, "rb", opener=without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return ""
        content = file.read(_LARGEST_FILE + 1)
    return content.decode(errors="surrogateescape") if len(content) <= _LARGEST_FILE else ""


def _upwards(path: str) -> Iterator[str]:
    yield path
    while (parent := os.path.dirname(path)) != path:
        path = parent
        yield path


def _real_path(path: str) -> str | None:
    if not os.path.isabs(path) or len(path) > _LONGEST_PATH:
        return None
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError, RecursionError):
        return None
    return real[1:] if real.startswith("//") else real


def _windows_path(text: str) -> str | None:
    if len(text) > _LONGEST_PATH:
        return None
    slashed = text.replace("\\", "/")
    if drive := _DRIVE.fullmatch(slashed):
        return ntpath.normpath(f"{drive[1].upper()}:{drive[2] or '/'}").replace("\\", "/")
    if share := _UNC.fullmatch(slashed):
        return ntpath.normpath(f"//{share[1]}/{share[2]}").replace("\\", "/").rstrip("/")
    return None


def _plain(path: str, identity: str) -> Located:
    return Located(
        project=_place_name(identity),
        how="directory",
        anchor=_storable(identity),
        worktree=path,
        git_dir="",
    )


def _place_name(path: str) -> str:
    holder, name = os.path.split(path)
    if name in (".git", ".bare"):
        name = os.path.basename(holder)
    name = _printable(name.removesuffix(".git")) or "root"
    return f"{name[: _LONGEST_NAME - 7]}-{_digest(path)[:6]}"


def _gitdir_path(text: str) -> str:
    return _path_line(text.removeprefix("gitdir: ")) if text.startswith("gitdir: ") else ""


def _path_line(text: str) -> str:
    path = text.rstrip("\r\n")
    return path if len(path) <= _LONGEST_PATH else ""


def _origin(config: str) -> str:
    """Find the first url of the remote `origin` since the last empty one, as a project name."""
    config = config.removeprefix("\ufeff").replace("\r\n", "\n")
    in_origin, url, at = False, "", 0
    while entry := _CONFIG_ENTRY.match(config, at):
        at = entry.end()
        section, name, key, value = entry.group("section", "name", "key", "value")
        if section:
            name = name and re.sub(r"\\(.)", r"\1", name)
            in_origin = (section.lower(), name) in {("remote", "origin"), ("remote.origin", None)}
        elif in_origin and key.lower() == "url" and value is not None:
            value = _QUOTE_OR_ESCAPE.sub(lambda m: _ESCAPED.get(m[1], ""), value).strip()
            url = value and (url or value)
    return _remote_name(url)


def _remote_name(url: str) -> str:
    remote = len(url) <= _LONGEST_PATH and (_URL.fullmatch(url) or _SCP_LIKE.fullmatch(url))
    if not remote:
        return ""
    segments = [part for part in _percent_decoded(remote[2]).lower().split("/") if part]
    path = "/".join(segments).removesuffix(".git").rstrip("/")
    if not path or ".." in segments:
        return ""
    name = f"{remote[1].lower()}/{path}"
    printable = _printable(name)
    if name.isprintable() and len(printable) <= _LONGEST_NAME:
        return printable
    return f"{printable[: _LONGEST_NAME - 13]}-{_digest(name)[:12]}"


def _percent_decoded(text: str) -> str:
    return unquote(text, errors="surrogateescape")


def _printable(text: str) -> str:
    composed = unicodedata.normalize("NFC", text)
    return "".join(char if char.isprintable() else "_" for char in composed).strip()


def _storable(text: str) -> str:
    """Spell out the bytes of a file name that are no text."""
    return text.encode(errors="backslashreplace").decode()


def _digest(text: str) -> str:
    return hashlib.sha256(_storable(text).encode()).hexdigest()
