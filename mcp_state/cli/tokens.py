"""`mcp-state token`: who may reach the store over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from mcp_state.api import State
from mcp_state.cli import complete
from mcp_state.cli.common import ON_STORE, Options, Seen, answer, not_relative, store_options
from mcp_state.cli.groups import Suggesting
from mcp_state.cli.output import print_note
from mcp_state.errors import BadArgument, NotFound
from mcp_state.models import Caller, Token, TokenMade
from mcp_state.render_words import name
from mcp_state.store.tokens import TOOLSETS, Tokens
from mcp_state.times import duration, when
from mcp_state.who import Resolver


@click.group(
    cls=Suggesting,
    epilog="""
    mcp-state token create --project acme --agent codex
    mcp-state token list
    """,
)
def token() -> None:
    """Make, list and revoke the tokens of clients over HTTP (`serve --http`)."""


@token.command(
    epilog="""
    mcp-state token create --project acme --project docs --agent codex
    mcp-state token create --every-project --toolset readonly --agent board
    """,
)
@click.option(
    "--project",
    "projects",
    multiple=True,
    metavar="NAME",
    help="For this one: name or directory; repeatable.",
    shell_complete=complete.projects,
)
@click.option("--every-project", is_flag=True, help="It is for all there are and will be.")
@click.option(
    "--toolset",
    type=click.Choice(TOOLSETS),
    default="coding",
    show_default=True,
    metavar="NAME",
    help=f"Its tools: {', '.join(TOOLSETS)}.",
)
@click.option("--agent", "named", required=True, help="Name that its changes are recorded under.")
@click.option("--expires", default="30d", show_default=True, help="After: 90s, 20m, 4h, 3d.")
@store_options(*ON_STORE)
def create(
    options: Options,
    projects: Sequence[str],
    every_project: bool,
    toolset: str,
    named: str,
    expires: str,
) -> None:
    """Make a token and print it, once: only its hash is kept.

    A token narrows what a server does, and never widens it: to its projects, to the tools that
    both have, and to its agent's name, whatever the client says. Through state_op, a coding token
    reaches the tools of `all` too; readonly changes nothing.
    """
    if bool(projects) == every_project:
        raise BadArgument(
            "a token is for some projects, or for every one",
            "Give --project NAME, as often as needed, or --every-project.",
        )
    if any(not one.strip() for one in projects):
        raise BadArgument("--project is empty", "Name a project, or leave it out.")
    lasts = duration(expires, "expires")
    settings, resolver = options.settings, Resolver(options.settings)

    async def make(state: State) -> TokenMade:
        actor, here = state.caller.actor, settings.directory
        places = [resolver.caller(actor, named=not_relative(one, here)) for one in projects]
        places = places or [await _home(state)]
        new = [p for p in places if not await state.database.read(p, lambda tx: tx.project)]
        made = await Tokens(state.database, places[0]).create(
            places, agent=named, toolset=toolset, lasts=lasts, every_project=every_project
        )
        for place in new:
            print_note(f"new project {place.project!r}")
        return made

    def show(made: TokenMade, seen: Seen) -> str:
        print_note(f"{_line(made.token, seen)}; it is not shown again")
        return made.secret

    answer(options, make, show, scoped=False)


@token.command(
    "list",
    epilog="""
    mcp-state token list
    """,
)
@store_options(*ON_STORE)
def list_(options: Options) -> None:
    """List all tokens that were made, the newest first; none of them can be seen again."""

    def show(found: Sequence[Token], seen: Seen) -> str:
        return "\n".join(_line(one, seen) for one in found) or "No token was made yet."

    answer(options, lambda state: Tokens(state.database, state.caller).list(), show, scoped=False)


@token.command(
    epilog="""
    mcp-state token revoke t-4f7k2m9qx3hp
    """,
)
@click.argument("token", metavar="ID")
@store_options(*ON_STORE)
def revoke(options: Options, token: str) -> None:
    """End a token: every server of the store refuses it from its next request on."""
    answer(
        options,
        lambda state: Tokens(state.database, state.caller).revoke(token.strip()),
        _line,
        scoped=False,
    )


async def _home(state: State) -> Caller:
    """The project whose events tell of a token for every project: the most active one.

    Raises:
        NotFound: there is none.
    """
    nobody = replace(state.caller, project="", anchor="")
    known = await state.database.read(nobody, lambda tx: tx.known_projects())
    if not known:
        raise NotFound(
            "there is no project yet, and it is in a project's history that a token is noted",
            'Begin one, as with `mcp-state journal append "begins here" --project NAME`.',
        )
    return replace(nobody, project=known[0], how="")


def _line(token: Token, seen: Seen) -> str:
    """What is to be known of a token, in one line."""
    named = ", ".join(name(one) for one in token.projects) or "no project any more"
    projects = "every project" if token.every_project else named
    if token.revoked_at is not None:
        end = f"revoked {when(token.revoked_at, seen.now)}"
    elif token.expires_at <= seen.now:
        end = f"expired {when(token.expires_at, seen.now)}"
    else:
        end = f"expires {when(token.expires_at, seen.now)}"
    return f"{token.id}  {name(token.agent)}  {token.toolset}  for {projects}  {end}"
