"""The board as an MCP App: an HTML document for clients that render it; others get text alone.

What the app shows travels in the `_meta` of a tool's answer, which no model reads, and only to
clients that said they render apps (extension `io.modelcontextprotocol/ui`, revision 2026-01-26).
The app asks for more by calling the same tools.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID, client_supports_apps

from mcp_state.api import State
from mcp_state.errors import StateError
from mcp_state.models import OPEN
from mcp_state.web import views

__all__ = ["APP_MIME_TYPE", "EXTENSION_ID", "client_supports_apps"]

log = logging.getLogger(__name__)

BOARD = "ui://mcp-state/board"
ANSWERS = "mcp-state/answers"
"""The key in `_meta` of a tool's answer: what the app would ask for, with the answers."""

_PAGE = Path(views.__file__).parent / "page"
_COLUMN = 20
_STYLE = '<link rel="stylesheet" href="board.css">'
_SCRIPT = '<script type="module" src="board.js"></script>'

Answers = list[dict[str, Any]]


async def meta(state: State, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The `_meta` of a tool's answer: views of the page with their arguments and answers."""
    if tool not in _SHOWN:
        return None
    try:
        return {ANSWERS: await _SHOWN[tool](state, arguments)}
    except StateError as problem:  # the tool has answered: it must not fail for this
        log.info("%s goes without its board: %s", tool, problem)
        return None


async def _board(state: State, _: Mapping[str, Any]) -> Answers:
    """The first cards of each column that is open at first."""
    return [await _column(state, {"status": status.value}, _COLUMN) for status in OPEN]


async def _threads(state: State, arguments: Mapping[str, Any]) -> Answers:
    """The page of a column; the board, for a call that asks for no status."""
    if not arguments["status"]:
        return await _board(state, arguments)
    asked = {name: arguments[name] for name in ("status", "due", "cursor") if arguments[name]}
    return [await _column(state, asked, arguments["limit"])]


async def _thread(state: State, arguments: Mapping[str, Any]) -> Answers:
    return [await _answered(state, "thread", {"name": arguments["thread"]})]


async def _column(state: State, params: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """A page of cards, without what no card shows: places and the checks of premises are long."""
    told = await _answered(state, "threads", params, limit=limit)
    for thread in told["answer"]["threads"]:
        del thread["places"]
        thread["relies_on"] = [{k: p[k] for k in ("name", "trust")} for p in thread["relies_on"]]
    return told


async def _answered(
    state: State, view: str, params: Mapping[str, Any], **further: int
) -> dict[str, Any]:
    answer = await views.look(state, view, {**params, **further})
    return {"view": view, "params": params, "answer": answer}


_SHOWN: Mapping[str, Callable[[State, Mapping[str, Any]], Awaitable[Answers]]] = {
    "orient": _board,
    "thread_list": _threads,
    "thread_get": _thread,
}


@functools.cache
def document() -> str:
    """The page as one HTML document, which asks its host instead of a server."""
    html = (_PAGE / "board.html").read_text(encoding="utf-8")
    style = (_PAGE / "board.css").read_text(encoding="utf-8")
    source, board = ((_PAGE / name).read_text(encoding="utf-8") for name in ("app.js", "board.js"))
    for tag, content in (
        (_STYLE, f"<style>\n{style}</style>"),
        (_SCRIPT, f'<script>\n{source}</script>\n<script type="module">\n{board}</script>'),
    ):
        assert html.count(tag) == 1
        html = html.replace(tag, content)
    # Nothing within ends its own element, or keeps it from ending.
    assert len(re.findall("</(?:script|style)", html)) == 3 and "<!--" not in html
    return html
