"""What the tests of long runs share: attempts, and what doctor says of the store."""

from __future__ import annotations

from whole_stores import contradictions as contradictions

from mcp_state.api import State
from mcp_state.models import StepEnded

EMPTY = "[acme (from --project) · nothing stored yet]"


def scope(event: int, threads: int = 0) -> str:
    noun = "thread" if threads == 1 else "threads"
    return f"[acme (from --project) · {threads} {noun} · event {event}]"


async def attempt(
    state: State,
    run: str,
    step: str,
    result: str = "",
    *,
    ok: bool = False,
    input: str = "",
    tokens_in: int = 0,
    tokens_out: int = 0,
) -> StepEnded:
    """One attempt: a *go*, and its outcome."""
    begun = await state.steps.begin(run, step, input=input)
    assert begun.go
    ended = await state.steps.end(run, step, ok, result, tokens_in=tokens_in, tokens_out=tokens_out)
    assert (ended.attempt.number, ended.repeated) == (begun.attempt, False)
    return ended


async def summaries(state: State, subject: str) -> list[str]:
    page = await state.events.history(subject, limit=200)
    assert page.more == 0
    return [event.summary for event in page.events]
