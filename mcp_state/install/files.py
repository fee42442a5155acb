"""Files of clients: read whole, written whole, with a copy of what was there beside them."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path

from mcp_state.errors import ConfigRefused

_BACKUP = ".before-mcp-state"
_OF_OTHERS = ("belongs to somebody else", 'sudo chown "$USER"')


class Moved(Exception):
    """Somebody else changed the file since it was read."""


def read(path: Path) -> str | None:
    """The text of a file, with its byte order mark and line ends; None without a file.

    Raises:
        ConfigRefused: it cannot be read, or is no UTF-8.
    """
    try:
        if path.exists() and not path.is_file():
            raise ConfigRefused(
                f"{path} is no regular file",
                "Nothing was written. Move it away, or name another file.",
            )
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as problem:
        raise ConfigRefused(
            f"{path} is not UTF-8 (byte {problem.start})",
            "Nothing was written. Save it as UTF-8, then run this again.",
        ) from None
    except OSError as problem:
        raise _refused(path, problem) from None


def check_writable(path: Path) -> None:
    """Refuse early what could not be written.

    Raises:
        ConfigRefused: the file or its directory is read-only.
    """
    target = _target(path)
    if target.exists() and not (_mode(target) & 0o222 and os.access(target, os.W_OK)):
        is_mine = target.stat().st_uid == os.geteuid()
        fact, remedy = ("is read-only", "chmod u+w") if is_mine else _OF_OTHERS
        raise ConfigRefused(
            f"{target} {fact}",
            f"Nothing was written. Allow it (`{remedy} {shlex.quote(str(target))}`), or write by "
            "hand what --print shows.",
        )
    directory = target.parent
    while not directory.exists():
        directory = directory.parent
    if not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigRefused(
            f"{directory} cannot be written into",
            "Nothing was written. Allow it, or write by hand what --print shows.",
        )


def write(path: Path, before: str | None, after: str | None, *, private: bool) -> Path | None:
    """Put a text in the place of the one that was read, whole or not at all; None removes the file.

    A link stays one: what it leads to is written. The mode stays.

    Returns:
        Where the copy of what was there is.

    Raises:
        Moved: the file is not the one that was read any more.
        ConfigRefused: it cannot be written.
    """
    target = _target(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        backup = None if before is None or after is None else _back_up(path, target)
        with _gone_on_failure(backup):
            if after is None:
                _unchanged(path, before)
                target.unlink()
            else:
                _replace(path, target, before, after, private=private)
    except OSError as problem:
        raise _refused(path, problem) from None
    if read(path) != after:
        raise Moved
    return backup


def backups(path: Path) -> list[Path]:
    """The copies of a file, the newest first."""
    named = re.compile(rf"{re.escape(path.name)}{re.escape(_BACKUP)}(?:-(\d+))?\.bak")
    with contextlib.suppress(OSError):
        found = [(named.fullmatch(one.name), one) for one in path.parent.iterdir()]
        numbered = [(int(match[1] or 1), one) for match, one in found if match]
        return [one for _, one in sorted(numbered, reverse=True)]
    return []


def _replace(path: Path, target: Path, before: str | None, after: str, *, private: bool) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    with _gone_on_failure(Path(name)):
        with os.fdopen(handle, "wb") as made:
            made.write(after.encode("utf-8"))
            made.flush()
            os.fsync(made.fileno())
        if target.exists():
            was = target.stat()
            os.chmod(name, stat.S_IMODE(was.st_mode))
            if (was.st_uid, was.st_gid) != (os.geteuid(), os.getegid()):
                with contextlib.suppress(OSError):
                    os.chown(name, was.st_uid, was.st_gid)
        elif not private:
            os.chmod(name, 0o644)
        _unchanged(path, before)
        os.replace(name, target)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def _gone_on_failure(made: Path | None) -> Generator[None]:
    """Leave no half of what is made inside, and nothing that it was made for."""
    try:
        yield
    except BaseException:
        if made is not None:
            made.unlink(missing_ok=True)
        raise


def _unchanged(path: Path, before: str | None) -> None:
    if read(path) != before:
        raise Moved


def _back_up(path: Path, target: Path) -> Path:
    """Copy a file beside itself, or beside the link that leads to it; no copy is overwritten."""
    mode = _mode(target)
    data = target.read_bytes()
    number = 1
    while True:
        made = _backup_name(path, number)
        try:
            handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            number += 1
            continue
        with _gone_on_failure(made), os.fdopen(handle, "wb") as copy:
            copy.write(data)
            copy.flush()
            os.fsync(copy.fileno())
        os.chmod(made, mode)
        return made


def _backup_name(path: Path, number: int) -> Path:
    numbered = "" if number == 1 else f"-{number}"
    return path.with_name(f"{path.name}{_BACKUP}{numbered}.bak")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _target(path: Path) -> Path:
    """The file itself, behind every link."""
    try:
        return Path(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    except OSError as problem:
        raise _refused(path, problem) from None


def _refused(path: Path, problem: OSError) -> ConfigRefused:
    return ConfigRefused(
        f"{path}: {os.strerror(problem.errno or 0)}",
        "It was left as it was. Correct that, or write by hand what --print shows.",
    )
