"""The block in a file of people's own instructions: AGENTS.md, CLAUDE.md."""

from __future__ import annotations

import re

from mcp_state.errors import ConfigRefused

_BEGIN = "<!-- mcp-state:begin -->"
_END = "<!-- mcp-state:end -->"
_BLOCK = f"""{_BEGIN}
## State of the work

- Unless the session began with its packet, call `orient` (MCP server of mcp-state) before anything
  else, also after a compaction.
- Write back before you stop: `journal_append` what happened and what did not work, `thread_set`
  when a status or the next action changes.
- Done needs evidence: the command you ran and what it printed, a commit, a link. What is stored was
  true once: run its check before you rely on it.
{_END}"""
_FOUND = re.compile(rf"{_BEGIN}.*?{_END}", re.DOTALL)


def put(text: str) -> str:
    """The text with the block as it is today, where it stands or at the end.

    Raises:
        ConfigRefused: its markers are no pair.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    block = _BLOCK.replace("\n", newline)
    if (found := _find(text)) is not None:
        return text[: found.start()] + block + text[found.end() :]
    if not text:
        return block + newline
    if text.endswith("\n"):
        return f"{text}{newline}{block}{newline}"
    return f"{text}{newline}{newline}{block}"


def remove(text: str) -> str:
    """The text without the block, and the empty line that came with it.

    Raises:
        ConfigRefused: its markers are no pair.
    """
    found = _find(text)
    if found is None:
        return text
    before, after = text[: found.start()], text[found.end() :]
    lines = 1 if after else 2  # a file without a last line end stays one
    for _ in range(lines if before.endswith(("\n\n", "\n\r\n")) else lines - 1):
        before = before.removesuffix("\n").removesuffix("\r")
    return before + after.removeprefix("\r").removeprefix("\n")


def _find(text: str) -> re.Match[str] | None:
    if text.count(_BEGIN) != text.count(_END) or text.count(_BEGIN) > 1:
        raise ConfigRefused(
            f"the markers {_BEGIN} and {_END} are no pair",
            "Nothing was written. Remove what is left of them, then run this again.",
        )
    found = _FOUND.search(text)
    if found is None and _BEGIN in text:
        raise ConfigRefused(
            f"{_END} stands before {_BEGIN}",
            "Nothing was written. Remove both, then run this again.",
        )
    return found
