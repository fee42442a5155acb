"""For which project a call is made: one rule for the server and the command line."""

from __future__ import annotations

import hashlib

from mcp_state.errors import BadArgument
from mcp_state.models import Actor, Caller, Principal
from mcp_state.scope import Located, Locator, local_path
from mcp_state.settings import Settings
from mcp_state.store.text import clean, fold

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

    def remote(self, actor: Actor, principal: Principal, *, named: str = "") -> Caller:
        """The caller of one call from elsewhere, where directories mean nothing here.

        The project is the one that the call names, else the only one of its token, else the one
        that the server was started for, if the token is for that.

        Raises:
            BadArgument: the call names a directory.
        """
        actor = Actor(*(clean(text)[0] for text in (actor.agent, actor.client, actor.session)))
        projects = principal.projects
        caller = Caller("", "", actor, only=None if projects is None else frozenset(projects))
        if named.strip():
            if local_path(named) is not None:
                raise BadArgument(
                    f"{named[:60]!r} is a directory, and this server is on another machine",
                    "Name the project.",
                )
            caller.project, caller.how = clean(named)[0].strip(), "argument"
        elif projects is not None and len(projects) == 1:
            (caller.project,), caller.how = projects.values(), "token"
        elif self._settings.project.strip():
            home = self.caller(actor)
            if projects is None or fold(home.project) in map(fold, projects.values()):
                caller.project, caller.how, caller.anchor = home.project, home.how, home.anchor
        return caller

    def _place(self, said: str) -> Located | None:
        directory = local_path(said) if said else None
        if directory and (place := self._locator.named(directory)):
            return place
        for directory in (self._settings.client_directory, self._settings.directory):
            if directory and (place := self._locator.repository(directory)):
                return place
        return None
