"""What all nouns of a store have in common, and what makes a method of one a transaction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from mcp_state.models import Caller
from mcp_state.store.database import Database
from mcp_state.store.text import clean
from mcp_state.store.transaction import Reading, Writing

T = TypeVar("T")
P = ParamSpec("P")


class Noun:
    """One kind of thing in a store; its methods work on one database, for one caller."""

    def __init__(self, database: Database, caller: Caller) -> None:
        self.database = database
        self.caller = caller

    @property
    def worktree(self) -> str:
        """Where the caller works, as it is stored; empty if that is not known."""
        return clean(self.caller.worktree)[0]


S = TypeVar("S", bound=Noun)


def reads(
    method: Callable[Concatenate[S, Reading, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a method that is given a snapshot into one that gets it itself."""

    @functools.wraps(method)
    async def call(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.read(self.caller, lambda tx: method(self, tx, *args, **kwargs))

    return call


def reads_across(
    method: Callable[Concatenate[S, Reading, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """As `reads`, for what is about other projects than the caller's as well."""

    @functools.wraps(method)
    async def call(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.read(
            self.caller, lambda tx: method(self, tx, *args, **kwargs), every_project=True
        )

    return call


def writes(
    method: Callable[Concatenate[S, Writing, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a method that is given a transaction into one that is a transaction."""
    return _written(method, every_project=False)


def writes_across(
    method: Callable[Concatenate[S, Writing, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """As `writes`, for what is about other projects than the caller's as well."""
    return _written(method, every_project=True)


def _written(
    method: Callable[Concatenate[S, Writing, P], T], *, every_project: bool
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    @functools.wraps(method)
    async def call(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.write(
            self.caller,
            lambda tx: method(self, tx, *args, **kwargs),
            every_project=every_project,
        )

    return call
