"""One write that was asked for, and how it ended."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from mcp_state.models import Caller, Totals
from mcp_state.record import record
from mcp_state.store.transaction import Writing

T = TypeVar("T")


@record
class Ended(Generic[T]):
    """How a write ended; `totals` is what there is for its caller after it, if that is known.

    `changed` says that there is something to commit, be it the record of a refusal.
    """

    result: T | None = None
    problem: BaseException | None = None
    totals: Totals | None = None
    changed: bool = False


class Write(Generic[T]):
    """What is to be done for one call, by whoever has the turn, in the context of the call.

    `ended` is for nobody to be told before the transaction is over. It is kept here alone: in a
    frame, a problem, which leads to its frames, would stay until Python looks for cycles.
    """

    def __init__(self, caller: Caller, body: Callable[[Writing], T]) -> None:
        self.caller = caller
        self.body = body
        self.context = contextvars.copy_context()
        self.ended: Ended[T] | None = None

    @property
    def changed(self) -> bool:
        """Whether it left something to commit."""
        return self.ended is not None and self.ended.changed

    def outcome(self) -> T:
        """What `body` returned; raises what was refused. To be asked for once."""
        ended, self.ended = self.ended, None
        assert ended is not None, "it was carried out"
        if ended.totals is not None:
            self.caller.totals = ended.totals
        try:
            if ended.problem is not None:
                raise ended.problem
            return cast("T", ended.result)
        finally:
            del ended
