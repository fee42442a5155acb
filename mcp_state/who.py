"""For which project a call is made: one rule for the server and the command line."""

from __future__ import annotations

import hashlib

from mcp_state.models import Actor, Caller
from mcp_state.scope import Located, Locator, local_path
from mcp_state.settings import Settings
from mcp_state.store.text import clean

_LONGEST_SESSION = 200


def short_session(name: str) -> str:
    """A client's name for its session, or what stands for a very long one."""
    if len(name) <= _LONGEST_SESSION:
        return name
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()


class Resolver:
    """Finds the project of each call, first that applies (section 5 of the design)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._locator = Locator(settings.home)

    def caller(self, actor: Actor, *, named: str = "", said: str = "") -> Caller:
        """The caller of one call; its project is empty if nothing tells which.

        Args:
            actor: who calls.
            named: the project that the call itself names, or a directory of it; may be empty.
            said: the directory or URI that the client sends with the call; may be empty.
        """
        actor = Actor(*(clean(text)[0] for text in (actor.agent, actor.client, actor.session)))
        place = self._place(said)
        caller = Caller("", "", actor, worktree=place.worktree if place else "")
        name, how = (named, "argument") if named.strip() else (self._settings.project, "--project")
        if name.strip():
            directory = local_path(name)
            place = self._locator.named(directory) if directory else None
            caller.project, caller.how = clean(name)[0].strip(), how
        if place is not None:
            caller.project, caller.how = place.project, place.how
            caller.anchor, caller.worktree = place.anchor, place.worktree
        caller.worktree = clean(caller.worktree)[0]
        return caller

    def _place(self, said: str) -> Located | None:
        directory = local_path(said) if said else None
        if directory and (place := self._locator.named(directory)):
            return place
        for directory in (self._settings.client_directory, self._settings.directory):
            if directory and (place := self._locator.repository(directory)):
                return place
        return None
