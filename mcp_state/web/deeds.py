"""What people do on the page and agents must not: the methods that the command line calls too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_state.api import State
from mcp_state.errors import BadArgument
from mcp_state.models import MemoryBlock, Run, Step, Thread
from mcp_state.plain import plain
from mcp_state.web.arguments import Number, bind
from mcp_state.web.views import check_project, told

Deed = Callable[..., Awaitable[Any]]


async def do(state: State, deed: str, arrived: Mapping[str, Any]) -> dict[str, Any]:
    """Do it, and answer what it changed, with the project's counts and the time.

    Raises:
        BadArgument: an argument is unknown, missing or of another type.
        ProjectUnknown: it is not known which project is meant.
        NotFound: there is no such project, or not what was named in it.
        StateError: what the store refuses.
    """
    arguments = bind(deed, DEEDS[deed], arrived)
    await check_project(state, may_be_new=False)
    return told(state, {"done": plain(await DEEDS[deed](state, **arguments))})


async def lock(state: State, key: str, reason: str, run: str = "") -> MemoryBlock:
    """Keep agents from changing a block."""
    if not reason.strip():
        raise BadArgument("the reason is empty", "Say why; agents are shown it.")
    return await state.memory.lock(key, reason, run=run)


async def unlock(state: State, key: str, run: str = "") -> MemoryBlock:
    """Let a locked block be changed again."""
    return await state.memory.lock(key, "", run=run)


async def release(state: State, thread: str, lease_token: Number = None) -> Thread:
    """Break a lease; with its token, only if it is still that one."""
    return await state.threads.release(thread, lease_token=lease_token, force=True)


async def raise_(
    state: State,
    run: str,
    reason: str,
    attempts: Number = None,
    minutes: Number = None,
    tokens: Number = None,
) -> Run:
    """Give a run new maxima."""
    return await state.runs.raise_budget(
        run, reason, attempts=attempts, minutes=minutes, tokens=tokens
    )


async def reset(state: State, run: str, step: str, reason: str) -> Step:
    """Let a step be tried again that was refused or is done."""
    return await state.steps.reset(run, step, reason)


DEEDS: Mapping[str, Deed] = {
    "lock": lock,
    "unlock": unlock,
    "release": release,
    "raise": raise_,
    "reset": reset,
}
"""What can be done, by its name in the address."""
