"""Tokens in the store: who makes and ends them, and what they go on to be for."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from conftest import FakeClock, Open, Run
from long_runs import contradictions
from over_http import id_of, secret_of
from planting import held

from mcp_state.api import State
from mcp_state.errors import Conflict, NotFound, ProjectUnknown, ReadonlyToolset, TokenRefused
from mcp_state.models import Actor, Caller, Principal, TokenMade
from mcp_state.store.text import credential_in
from mcp_state.store.tokens import Tokens


async def made_for(state: State, *projects: str, agent: str = "ci", days: int = 30) -> TokenMade:
    """A token of these projects, of all if there are none."""
    places = [Caller(name, "", state.caller.actor) for name in projects or ("acme",)]
    return await Tokens(state.database, places[0]).create(
        places,
        agent=agent,
        toolset="coding",
        lasts=timedelta(days=days),
        every_project=not projects,
    )


async def principal(state: State, made: TokenMade) -> Principal:
    return await Tokens(state.database, Caller("", "", Actor(""))).principal(made.secret)


async def projects_of(state: State, made: TokenMade) -> list[str] | None:
    projects = (await principal(state, made)).projects
    return None if projects is None else sorted(projects.values())


async def test_a_token_stands_for_what_it_was_made_for(open_state: Open, path: str) -> None:
    state = open_state()
    made = await made_for(state, "acme", "beta", "ACME", agent="  Ci ")
    every = await made_for(state)

    assert made.secret.startswith(f"mcps_{made.token.id}_")
    assert (made.token.agent, made.token.toolset) == ("Ci", "coding")
    assert (made.token.projects, made.token.every_project) == (["acme", "beta"], False)
    assert (every.token.projects, every.token.every_project) == ([], True)
    found = await principal(state, made)
    assert (found.token, found.agent, found.toolset) == (made.token.id, "Ci", "coding")
    assert sorted((found.projects or {}).values()) == ["acme", "beta"]
    assert (await principal(state, every)).projects is None
    assert contradictions(path) == []


async def test_each_project_of_a_token_tells_of_its_making_and_its_end_and_of_no_other_project(
    open_state: Open,
) -> None:
    state = open_state()
    made = await made_for(state, "acme", "beta")
    await Tokens(state.database, state.caller).revoke(made.token.id)

    for project in ("acme", "beta"):
        history = (await open_state(project=project).events.history("project")).events
        assert [(event.operation, event.summary) for event in history] == [
            ("token", f"{made.token.id} made for ci: coding"),
            ("revoke", f"{made.token.id} of ci revoked"),
        ]
        told = json.dumps([event.row for event in history])
        assert "acme" not in told and "beta" not in told
        assert secret_of(made.secret) not in told and "hash" not in told


async def test_a_revoked_token_is_over_once_and_for_all(open_state: Open, clock: FakeClock) -> None:
    state, elsewhere = open_state(), open_state(database="two")
    made, other = await made_for(state, "acme"), await made_for(state, "acme")
    tokens = Tokens(elsewhere.database, elsewhere.caller)
    clock.move(hours=1)

    ended = await tokens.revoke(made.token.id)

    assert ended.revoked_at == clock.time
    with pytest.raises(TokenRefused, match="the token was revoked") as refused:
        await principal(state, made)
    assert (refused.value.reason, refused.value.token) == ("revoked_token", made.token.id)
    assert await projects_of(state, other) == ["acme"]
    with pytest.raises(Conflict, match="is revoked already"):
        await tokens.revoke(made.token.id)
    with pytest.raises(NotFound, match="no token 't-99'"):
        await tokens.revoke("t-99")
    assert [(one.id, one.revoked_at) for one in await tokens.list()] == [
        (made.token.id, clock.time),
        (other.token.id, None),
    ]


async def test_a_renamed_project_keeps_its_tokens(open_state: Open) -> None:
    state = open_state()
    made = await made_for(state, "acme")
    await state.projects.rename("acme-v2")

    assert await projects_of(state, made) == ["acme-v2"]


async def test_a_merged_project_takes_no_token_along(open_state: Open, path: str) -> None:
    """The project it is merged into holds what the token was not made for."""
    state, side = open_state(), open_state(project="side")
    await state.journal.append("not for everybody")
    only, both, into = [
        await made_for(state, *names) for names in (("side",), ("side", "acme"), ("acme",))
    ]
    await side.projects.merge("acme")

    assert await projects_of(state, only) == []
    assert await projects_of(state, both) == ["acme"]
    assert await projects_of(state, into) == ["acme"]
    ids = frozenset((await principal(state, only)).projects or {})
    asking = State(state.database, Caller("side", "argument", Actor("x"), only=ids))
    with pytest.raises(ProjectUnknown, match="its projects are gone"):
        await asking.journal.tail()
    assert contradictions(path) == []


async def test_a_call_reaches_the_projects_that_it_may_and_no_other(open_state: Open) -> None:
    """This is the second wall: what a caller may is looked at where the project is found."""
    for name in ("acme", "beta", "gamma"):
        await open_state(project=name).journal.append(f"of {name}")
    database = open_state().database

    def asks(project: str, *, read_only: bool = False) -> State:
        actor, only = Actor("x"), frozenset({1, 3})
        return State(database, Caller(project, "argument", actor, "", "", None, only, read_only))

    assert (await asks("ACME").journal.tail()).entries[0].text == "of acme"
    for project in ("beta", "nothing", "Beta "):
        with pytest.raises(ProjectUnknown, match="it is for acme, gamma"):
            await asks(project).journal.tail()
        with pytest.raises(ProjectUnknown):
            await asks(project).journal.append("in")
    with pytest.raises(ReadonlyToolset, match="this token only reads"):
        await asks("acme", read_only=True).journal.append("in")
    known = await database.read(asks("").caller, lambda tx: tx.known_projects())
    assert sorted(known) == ["acme", "gamma"]
    assert sorted(p.name for p in await open_state().projects.list()) == ["acme", "beta", "gamma"]


async def test_the_name_of_an_agent_is_purged_from_tokens_too(open_state: Open, path: str) -> None:
    state = open_state()
    made = await made_for(state, "acme", agent="build-of-mallory")

    done = await state.purge("mallory", "left the team")

    assert done.places
    assert "mallory" not in (await principal(state, made)).agent
    assert held(path, "mallory") == []
    assert contradictions(path) == []


async def test_a_token_is_no_text_to_be_stored(open_state: Open) -> None:
    made = await made_for(open_state(), "acme")

    assert credential_in(f"use {made.secret} there") == ("a token of mcp-state", 4)
    assert credential_in(f"use {made.token.id} there") is None


def test_people_make_list_and_revoke_tokens(run: Run) -> None:
    made = run("token", "create", "--project", "acme", "--project", "new", "--agent", "codex")
    token = id_of(made.stdout)
    assert made.stdout.count("\n") == 1 and credential_in(made.stdout) is not None
    assert made.stderr.splitlines() == [
        "note: new project 'acme'",
        "note: new project 'new'",
        f"note: {token}  codex  coding  for acme, new  expires in 30 d; it is not shown again",
    ]
    every = run(
        *("token", "create", "--every-project", "--toolset", "readonly", "--agent", "board"),
        *("--expires", "90s", "--json"),
    )
    told = json.loads(every.stdout)
    assert (
        told["token"] | {"projects": [], "every_project": True, "toolset": "readonly"}
        == (told["token"])
    )
    ended = run("token", "revoke", token)
    assert ended.stdout == f"{token}  codex  coding  for acme, new  revoked just now\n"
    listed = run("token", "list").stdout.splitlines()
    assert "board  readonly  for every project  expires in" in listed[0]
    assert listed[1] + "\n" == ended.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--agent", "x"), "a token is for some projects, or for every one"),
        (("--agent", "x", "--project", "a", "--every-project"), "a token is for some projects"),
        (("--agent", "x", "--project", " "), "--project is empty"),
        (("--agent", "x", "--project", "a", "--expires", "soon"), "which is not a duration"),
        (("--agent", "x", "--project", "a", "--expires", "0d"), "which is not a duration"),
        (("--agent", " ", "--project", "a"), "agent is empty"),
        (("--agent", "a\nb", "--project", "a"), "agent"),
        (("--agent", "x", "--every-project"), "there is no project yet"),
        (("--project", "a"), "missing option '--agent'"),
    ],
)
def test_what_makes_no_token_is_refused_and_begins_no_project(
    run: Run, words: tuple[str, ...], says: str
) -> None:
    refused = run("token", "create", *words)

    assert refused.exit_code in (1, 2) and says in refused.stderr
    assert (refused.stdout, refused.stderr.count("\n")) == ("", 1)
    assert run("projects", "--json").stdout == "[]\n"
