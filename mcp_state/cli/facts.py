"""`mcp-state facts`: what is believed, how to check it, and what falls when it does not hold."""

from __future__ import annotations

import click

from mcp_state import render, render_facts
from mcp_state.cli import complete
from mcp_state.cli.common import (
    COUNT,
    NUMBER,
    ON_PROJECT,
    Options,
    TextOrStdin,
    answer,
    store_options,
)
from mcp_state.cli.groups import Fallback
from mcp_state.errors import BadArgument
from mcp_state.models import Trust
from mcp_state.store.facts import parse_trust


@click.group(
    cls=Fallback,
    fallback="list",
    epilog="""
    mcp-state facts
    mcp-state facts show friday
    mcp-state facts record pr-9 "PR 9 is open" --check "gh pr view 9"
    """,
)
def facts() -> None:
    """Look into what is believed, or record and verify it; `facts` lists it."""


@facts.command(
    "list",
    epilog="""
    mcp-state facts --due
    mcp-state facts --trust refuted
    """,
)
@click.option(
    "--trust",
    help="Only trusted, provisional, stale, refuted or archival ones; trusted: not due.",
    shell_complete=complete.words(*Trust),
)
@click.option("--due", is_flag=True, help="Only those that it is time to check.")
@click.option("-n", "--limit", type=COUNT, default=20, show_default=True, help="At most so many.")
@click.option("--cursor", default="", help="Go on where the page before ended.")
@store_options(*ON_PROJECT)
def list_(options: Options, trust: str | None, due: bool, limit: int, cursor: str) -> None:
    """List facts, the check before the claim; what is due for a check comes first."""
    wanted = parse_trust(trust) if trust is not None else None
    asked = f"{wanted + ' ' if wanted else ''}facts{' that are due' if due else ''}"
    answer(
        options,
        lambda state: state.facts.list(trust=wanted, due=due, limit=limit, cursor=cursor),
        lambda page, seen: render_facts.fact_page(page, seen.now, seen.totals, asked, render.ALL),
    )


@facts.command(
    epilog="""
    mcp-state facts show friday
    """,
)
@click.argument("fact", shell_complete=complete.facts)
@store_options(*ON_PROJECT)
def show(options: Options, fact: str) -> None:
    """Show why a fact is believed, and what would fall with it."""
    answer(
        options,
        lambda state: state.facts.trace(fact),
        lambda trace, seen: render_facts.fact_trace(trace, seen.now, render.ALL),
    )


@facts.command(
    epilog="""
    mcp-state facts record pr-9 "PR 9 is open" --check "gh pr view 9"
    mcp-state facts record schema "Two tables" --check file:schema.sql
    mcp-state facts record monday "It ships" --because contract --because old
    """,
)
@click.argument("fact", shell_complete=complete.facts)
@click.argument("statement", type=TextOrStdin(), required=False, default="")
@click.option("--check", default="", help="How to see whether it holds: command, file:PATH, link.")
@click.option("--source", default="", help="Where it was learned.")
@click.option(
    "--because",
    multiple=True,
    metavar="FACT",
    shell_complete=complete.facts,
    help="Needed for it, with the others given here. Repeatable; together they are one reason.",
)
@click.option("--recheck-after", default="", help="When to check again: 4h, 3d. [default: 24h]")
@click.option("--archival", is_flag=True, help="True then, kept for the record; never due.")
@click.option("--expected-version", type=NUMBER, help="Refuse if it moved on; 0: must be new.")
@store_options(*ON_PROJECT)
def record(
    options: Options,
    fact: str,
    statement: str,
    check: str,
    source: str,
    because: tuple[str, ...],
    recheck_after: str,
    archival: bool,
    expected_version: int | None,
) -> None:
    """Record what is believed and how to check it, or more about it.

    A new fact needs a STATEMENT; one of - is read from standard input. What is left out stays as it
    is. Another --because is another reason. Another STATEMENT needs --expected-version; what rested
    on the old one falls, and needs --because anew.
    """
    answer(
        options,
        lambda state: state.facts.record(
            fact,
            statement,
            check=check,
            source=source,
            because=because,
            recheck_after=recheck_after,
            archival=archival,
            expected_version=expected_version,
        ),
        lambda recorded, seen: render_facts.fact_recorded(recorded, seen.now),
        writes=True,
    )


@facts.command(
    epilog="""
    gh pr view 830 | mcp-state facts verify pr-830 --holds --evidence -
    mcp-state facts verify contract --fails --evidence "it has four fields"
    """,
)
@click.argument("fact", shell_complete=complete.facts)
@click.option("--holds/--fails", default=None, help="What its check said; one is needed.")
@click.option(
    "--evidence",
    type=TextOrStdin(),
    default="",
    help="What the check printed, shortened; - reads it from standard input.",
)
@click.option("--expected-version", type=NUMBER, help="Refuse if it moved on.")
@store_options(*ON_PROJECT)
def verify(
    options: Options, fact: str, holds: bool | None, evidence: str, expected_version: int | None
) -> None:
    """Record what running the check of a fact said; with --fails, what rests on it falls too."""
    if holds is None:
        raise BadArgument("neither --holds nor --fails was given", "Give one of them.")
    answer(
        options,
        lambda state: state.facts.verify(fact, holds, evidence, expected_version=expected_version),
        lambda verified, seen: render_facts.fact_verified(verified, seen.now),
        writes=True,
    )
