"""What an installation says: what it changed, what to know, how to undo it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from mcp_state.install.clients import START_LIMIT, Client, store_packages
from mcp_state.install.parts import Wish
from mcp_state.install.plan import Change
from mcp_state.install.proof import Proof
from mcp_state.record import record

_CACHE = re.compile(r"[/\\](?:(?:archive|builds|environments)-v\d+|pipx[/\\]\.?cache)[/\\]")
_LONGEST = 400  # more is a whole file on one line, with what else it holds


@record
class Changed:
    """A file that changes: what in it, in which lines, and where the copy of it is.

    `gone` if it was removed, since nothing was left in it.
    """

    path: str
    what: Sequence[str]
    lines: Sequence[str]
    backup: str = ""
    gone: bool = False


@record
class Done:
    """What an installation did, and what to know about it."""

    client: str
    changed: Sequence[Changed]
    notes: Sequence[str] = ()
    undo: str = ""
    proof: Proof | None = None


def changed(change: Change, backup: str = "", around: int = 0) -> Changed:
    """A change as it is told; with lines around it, as a unified diff."""
    before, after = ((text or "").splitlines() for text in (change.before, change.after))
    start = max(0, _alike(before, after) - around)  # difflib is slow on large files
    before, after = before[start:], after[start:]
    end = max(0, _alike(reversed(before), reversed(after)) - around)
    before, after = before[: len(before) - end], after[: len(after) - end]
    name = str(change.path)
    lines = [*difflib.unified_diff(before, after, name, name, lineterm="", n=around)]
    if around:
        lines = [_moved(line, start) if line.startswith("@@") else line for line in lines]
    else:
        lines = [line for line in lines[2:] if not line.startswith("@@")]
    return Changed(name, tuple(change.what), tuple(lines), backup, change.after is None)


def _alike(before: Iterable[str], after: Iterable[str]) -> int:
    """How many lines are the same at the beginning."""
    pairs = zip(before, after, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _moved(hunk: str, lines: int) -> str:
    """The head of a hunk, for a text that has some lines more before it."""
    return re.sub(r"(?<=[-+])\d+", lambda found: str(int(found[0]) + lines), hunk)


def told(done: Done, client: Client) -> Iterator[str]:
    """All of it, in lines."""
    for one in done.changed:
        yield f"{'removed' if one.gone else 'changed'} {one.path}: {', '.join(one.what)}"
        for line in one.lines:
            is_whole = len(line) > _LONGEST
            yield (
                f"    {line[0]} (a line of {len(line) - 1:,} characters)"
                if is_whole
                else f"    {line}"
            )
        if one.backup:
            yield f"    what was there: {one.backup}"
    if not done.changed:
        yield f"nothing to change in {client.title}"
    yield from done.notes
    if done.proof is not None:
        proof = done.proof
        yield (
            f"answered: start {proof.start:.1f} s, orient {proof.orient:.1f} s, "
            f"{len(proof.tools)} tools; start-up limit {START_LIMIT} s"
        )
    if done.undo:
        yield f"to undo it: {done.undo}"


def notes(wish: Wish, found: Mapping[str, Any], switch: str, *, writes: bool) -> Iterator[str]:
    """What to know about the entry that is there now.

    `switch` turns the hooks off; `writes` is whether tools that write run unasked.
    """
    client = wish.client
    writing = "the others too" if writes else "asks for the others; --allow-writes changes that"
    yield f"approval: {client.approval.format(writing=writing)}"
    if client.folder and "--project" not in found["args"]:
        yield (
            f"project: {client.title} works in no directory, so reads list the projects and writes "
            "have to name one; --project NAME chooses one for all"
        )
    if wish.hooks and client.name == "codex":
        yield "hooks: Codex skips hooks that are not trusted; these are, by the hashes shown above"
    if found.get("required") is True:
        yield (
            f"required: {client.title} waits for the server, and starts no session without it; "
            f"uninstall it before you move or remove {found['command']}"
        )
    if switch:
        yield f"warning: {switch} turns hooks off; that was left as it is"
    if found.get("enabled") is False or found.get("disabled") is True:
        yield f"warning: the server is switched off in {wish.file}; that was left as it is"
    if _CACHE.search(found["command"]):
        yield (
            f"warning: {found['command']} lies in a cache that gets cleaned; install mcp-state "
            "with `uv tool install` or `pipx install`, then run this again"
        )
    if client.name == "claude-desktop" and wish.config is None and store_packages(wish.place):
        yield f"place: Claude Desktop of the Windows Store reads {wish.file}, not %APPDATA%"
    if client.name in ("claude-desktop", "cursor", "vscode"):
        yield f"restart {client.title} to load it"
