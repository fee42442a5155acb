"""What changes in which files: worked out whole before anything is written."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp_state.errors import ConfigRefused
from mcp_state.install import jsonc, toml
from mcp_state.install.parts import Part, Wish, entry, has_others, parts

Read = Callable[[Path], str | None]


@dataclass(slots=True)
class Change:
    """What becomes of one file; None is no file. `what` are the parts that change, in words."""

    path: Path
    before: str | None
    after: str | None
    what: list[str] = field(default_factory=list[str])
    private: bool = True


class _Files:
    """The texts as they will be, and what they were."""

    def __init__(self, wish: Wish, read: Read) -> None:
        self._wish = wish
        self._read = read
        self._changes: dict[Path, Change] = {}

    def of(self, path: Path) -> Change:
        if path not in self._changes:
            text = self._read(path)
            _parsed(self._wish, path, text or "")
            self._changes[path] = Change(path, text, text)
        return self._changes[path]

    def text(self, path: Path) -> str:
        return self.of(path).after or ""

    def edit(self, part: Part, edit: Callable[[str], str]) -> None:
        change = self.of(part.path)
        before = change.after or ""
        try:
            after = edit(before)
        except ConfigRefused as problem:
            raise ConfigRefused(f"{part.path}: {problem.fact}", problem.next_step) from None
        if after != before:
            change.after, change.private = after, part.private
            change.what.append(part.what)

    def changed(self) -> list[Change]:
        return [one for one in self._changes.values() if one.after != one.before]


def current(wish: Wish, read: Read) -> dict[str, Any] | None:
    """The entry that is there now under the name of ours, whoever runs there.

    Raises:
        ConfigRefused: the file cannot be parsed, or that is no entry.
    """
    text = read(wish.file) or ""
    _parsed(wish, wish.file, text)
    try:
        return entry(wish, text)
    except ConfigRefused as problem:
        raise ConfigRefused(f"{wish.file}: {problem.fact}", problem.next_step) from None


def install(wish: Wish, read: Read) -> list[Change]:
    """What has to change so that the client has what is asked for; nothing, if it has.

    Raises:
        ConfigRefused: a file cannot be parsed, or the name is taken by something else.
    """
    files = _Files(wish, read)
    for part in parts(wish, files.text):
        if part.wanted:
            files.edit(part, part.put)
    return files.changed()


def uninstall(wish: Wish, read: Read, backups: Callable[[Path], Sequence[Path]]) -> list[Change]:
    """What has to change so that nothing of ours is left.

    Copies of a file from before tell what was there empty, and whether there was a file at all.

    Raises:
        ConfigRefused: a file cannot be parsed.
    """
    files = _Files(wish, read)
    stays = has_others(wish, files.text(wish.file))
    for part in reversed(parts(wish, files.text)):
        if stays and part.shared:
            continue
        was = _original(part, read, backups)
        files.edit(part, lambda text, part=part, was=was: _without(part, text, was))
        change = files.of(part.path)
        if change.after == "" and change.before and was is None:
            change.after = None
    return files.changed()


def _without(part: Part, text: str, was: str | None) -> str:
    rest = part.remove(text)
    if rest != text:
        for container in part.containers:
            rest = jsonc.prune(rest, container, was)
    return rest


def _parsed(wish: Wish, path: Path, text: str) -> None:
    """Refuse a text that is not what its file should hold."""
    try:
        if path == wish.file:
            (toml.parse if wish.client.toml else jsonc.parse)(text)
        elif path not in wish.instruction_files:
            (toml.parse if path.suffix == ".toml" else jsonc.parse)(text)
    except (jsonc.Malformed, tomllib.TOMLDecodeError) as problem:
        raise ConfigRefused(
            f"{path} cannot be parsed: {problem}",
            "It was left as it is. Correct it there, then run this again.",
        ) from None


def _original(part: Part, read: Read, backups: Callable[[Path], Sequence[Path]]) -> str | None:
    """The newest copy of a file that has nothing of this part; None if there was no file."""
    for path in backups(part.path):
        try:
            text = read(path)
            if text is not None and part.remove(text) == text:
                return text
        except (ConfigRefused, jsonc.Malformed, tomllib.TOMLDecodeError):
            continue  # somebody edited the copy
    return None
