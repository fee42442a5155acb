"""What people do on the page and agents must not: the methods that the command line calls too."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from mcp_state.api import State
from mcp_state.errors import BadArgument, Conflict
from mcp_state.models import Purged
from mcp_state.plain import plain
from mcp_state.web.arguments import Number, bind
from mcp_state.web.views import Answer, check_project, to_json, told

Deed = Callable[..., Awaitable[Answer]]


async def do(state: State, deed: str, arrived: Mapping[str, Any]) -> Answer:
    """Do it, and answer what it changed, with the project's counts and the time.

    Raises:
        BadArgument: an argument is unknown, missing or of another type.
        ProjectUnknown: it is not known which project is meant.
        NotFound: there is no such project, or not what was named in it.
        StateError: what the store refuses.
    """
    arguments = bind(deed, DEEDS[deed], arrived)
    await check_project(state, may_be_new=False)
    return told(state, await DEEDS[deed](state, **arguments))


async def lock(state: State, key: str, reason: str, run: str = "") -> Answer:
    """Keep agents from changing a block."""
    if not reason.strip():
        raise BadArgument("the reason is empty", "Say why; agents are shown it.")
    return _done(await state.memory.lock(key, reason, run=run))


async def unlock(state: State, key: str, run: str = "") -> Answer:
    """Let a locked block be changed again."""
    return _done(await state.memory.lock(key, "", run=run))


async def release(state: State, thread: str, lease_token: Number = None) -> Answer:
    """Break a lease; with its token, only if it is still that one."""
    return _done(await state.threads.release(thread, lease_token=lease_token, force=True))


async def raise_(
    state: State,
    run: str,
    reason: str,
    attempts: Number = None,
    minutes: Number = None,
    tokens: Number = None,
) -> Answer:
    """Give a run new maxima."""
    raised = await state.runs.raise_budget(
        run, reason, attempts=attempts, minutes=minutes, tokens=tokens
    )
    return _done(raised)


async def reset(state: State, run: str, step: str, reason: str) -> Answer:
    """Let a step be tried again that was refused or is done."""
    return _done(await state.steps.reset(run, step, reason))


async def purge(
    state: State, text: str, reason: str = "", every_project: bool = False, confirm: str = ""
) -> Answer:
    """Remove a text everywhere, in two steps: what holds it, and then the deed.

    The first answers what `confirm` has to say in the second, so that nothing is removed but what
    was looked at.
    """
    seen = await state.purge(text, dry_run=True, every_project=every_project)
    looked_at = [state.totals.project, text, every_project, plain(seen.places)]
    seal = hashlib.sha256(to_json(looked_at)).hexdigest()
    if not confirm:
        return {**_purged(seen), "confirm": seal}
    if confirm != seal:
        raise Conflict(
            "nothing was removed: what holds the text is no longer what you looked at",
            "Look again, and confirm what you see then.",
        )
    return _purged(await state.purge(text, reason, every_project=every_project))


def _done(changed: object) -> Answer:
    return {"done": plain(changed)}


def _purged(purged: Purged) -> Answer:
    """What was found, and of how many places `more` there are than are listed."""
    listed = replace(purged, places=purged.places[:_MOST_LISTED])
    return {**_done(listed), "more": len(purged.places) - len(listed.places)}


_MOST_LISTED = 200
DEEDS: Mapping[str, Deed] = {
    "lock": lock,
    "unlock": unlock,
    "release": release,
    "raise": raise_,
    "reset": reset,
    "purge": purge,
}
"""What can be done, by its name in the address."""
