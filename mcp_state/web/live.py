"""Telling open pages that their project changed, as events that a browser understands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from mcp_state.errors import StoreBusy
from mcp_state.live import Live, News
from mcp_state.models import Caller
from mcp_state.web.views import error_of, to_json

_HEARTBEAT = 15.0
MOST_LISTENERS = 32


def events(live: Live, caller: Caller) -> AsyncGenerator[bytes]:
    """Server-sent events: `change` with the project's event number, at first and on a change.

    `problem` with an error instead, while the store cannot be read.

    Raises:
        StoreBusy: too many listen already.
    """
    if live.listeners >= MOST_LISTENERS:
        raise StoreBusy(
            f"{MOST_LISTENERS} pages listen to this server already",
            "Close one of them; until then, reload this one to see changes.",
        )
    return _events(live, caller)


async def _events(live: Live, caller: Caller) -> AsyncGenerator[bytes]:
    if live.listeners >= MOST_LISTENERS:
        return  # many came at once; who asks again is told why
    async with live.listening(caller) as listener:
        while True:
            try:
                async with asyncio.timeout(_HEARTBEAT):
                    news = await listener.news()
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if news is None:
                return
            yield _message(news)


def _message(news: News) -> bytes:
    if news.problem is not None:
        return b"event: problem\ndata: %s\n\n" % to_json(error_of(news.problem))
    return b"event: change\ndata: %s\n\n" % to_json({"event": news.event})
