"""What the page shows: bounded parts of a project, as JSON values. Nothing here writes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from mcp_state.api import State
from mcp_state.errors import NotFound, ProjectUnknown, StateError
from mcp_state.plain import plain
from mcp_state.store import board, fact_rows, thread_rows
from mcp_state.store.blobs import LONGEST_PAGE, PAGE
from mcp_state.store.facts import parse_trust
from mcp_state.store.objectives import current_objective
from mcp_state.store.runs import parse_run_status
from mcp_state.store.thread_rules import parse_status
from mcp_state.store.transaction import Reading
from mcp_state.web.arguments import Number, bind

Answer = dict[str, Any]
View = Callable[..., Awaitable[Answer]]
Limit = Annotated[int, range(1, 201)]


async def look(state: State, view: str, arrived: Mapping[str, Any]) -> Answer:
    """Answer a question of the page: the view, with the project's counts and the time.

    Raises:
        BadArgument: an argument is unknown, missing or out of range.
        ProjectUnknown: it is not known which project is meant.
        NotFound: there is no such project, or not what was asked for in it.
    """
    arguments = bind(view, VIEWS[view], arrived)
    await check_project(state, may_be_new=True)
    return told(state, await VIEWS[view](state, **arguments))


async def list_projects(state: State) -> Answer:
    """The projects of the store, the most active first, and as `default` that of the caller."""
    found = await state.projects.list()
    home = await state.database.read(state.caller, lambda tx: tx.totals())
    shown = {"default": plain(home)} if state.caller.project else {}
    return told(state, {"projects": plain(found[:_MOST_PROJECTS]), "count": len(found), **shown})


def told(state: State, answer: Answer) -> Answer:
    """An answer with the project's counts, as it was read, and the time."""
    return {**answer, "scope": plain(state.totals), "now": plain(state.database.clock.now())}


async def check_project(state: State, *, may_be_new: bool) -> None:
    """Whether the store holds the project; that of the caller itself `may_be_new`.

    Raises:
        ProjectUnknown: it is not known which one is meant.
        NotFound: it does not.
    """
    caller = state.caller
    passes = may_be_new and caller.project and caller.how != "argument"

    def read(tx: Reading) -> tuple[bool, list[str]]:
        return (True, []) if passes or tx.project else (False, tx.known_projects())

    found, known = await state.database.read(caller, read)
    if not caller.project:
        listed = f"known are {', '.join(known)}" if known else "there is none yet"
        raise ProjectUnknown(
            f"this page does not say which project to show; {listed}",
            f"{'Choose one, or s' if known else 'S'}tart `mcp-state web` in its directory or with "
            "--project NAME.",
        )
    if not found:
        raise NotFound.named("project", caller.project, known[:5], "Choose another one.")


async def overview(state: State) -> Answer:
    """What the project is after, and how much of it is due."""

    def read(tx: Reading) -> Answer:
        objective = current_objective(tx)
        return {
            **({} if objective is None else {"objective": plain(objective)}),
            "threads_due": plain(thread_rows.count_due(tx)),
            "facts_due": plain(fact_rows.count_due(tx)),
        }

    return await state.database.read(state.caller, read)


async def threads(
    state: State, status: str = "", due: bool = False, limit: Limit = 50, cursor: str = ""
) -> Answer:
    """A page of the queue, and who waits for whom in it."""
    wanted = parse_status(status) if status else None
    page = await state.threads.list(status=wanted, due=due, limit=limit, cursor=cursor)
    names = [thread.name for thread in page.threads]
    waits = await state.database.read(state.caller, lambda tx: board.waits_of(tx, names))
    return {**plain(page), "waits": plain(waits)}


async def thread(state: State, name: str) -> Answer:
    """All of one thread, and what stands around it."""
    detail = await state.threads.get(name)
    graph = await state.database.read(state.caller, lambda tx: board.thread_graph(tx, name))
    return {**plain(detail), "graph": plain(graph)}


async def journal(
    state: State,
    limit: Limit = 50,
    before: Number = None,
    since: Number = None,
    thread: str = "",
    run: str = "",
    kind: str = "",
    actor: str = "",
) -> Answer:
    """A page of the journal, and what there is to choose from."""
    page = await state.journal.tail(
        limit=limit, before=before, since=since, thread=thread, run=run, kind=kind, actor=actor
    )

    def topics(tx: Reading) -> Answer:
        return {
            "kinds": board.journal_topics(tx, "kind"),
            "actors": board.journal_topics(tx, "agent"),
        }

    return {**plain(page), **await state.database.read(state.caller, topics)}


async def runs(
    state: State, status: str = "", limit: Annotated[int, range(1, 2001)] = 50
) -> Answer:
    """Runs with progress and spend, the last touched first."""
    return plain(
        await state.runs.list(status=parse_run_status(status) if status else None, limit=limit)
    )


async def run(state: State, name: str, limit: Limit = 100) -> Answer:
    """What a run did, and its last attempts for a chart."""
    detail = await state.runs.show(name, limit=limit)
    attempts = await state.database.read(state.caller, lambda tx: board.last_attempts(tx, name))
    return {**plain(detail), "attempts": plain(attempts)}


async def facts(
    state: State, trust: str = "", due: bool = False, limit: Limit = 50, cursor: str = ""
) -> Answer:
    """A page of what is believed, what is due for a check first."""
    wanted = parse_trust(trust) if trust else None
    return plain(await state.facts.list(trust=wanted, due=due, limit=limit, cursor=cursor))


async def fact(state: State, name: str) -> Answer:
    """Why a fact is believed, and what would fall with it."""
    return plain(await state.facts.trace(name))


async def memory(state: State, run: str = "", limit: Limit = 100) -> Answer:
    """The blocks of the project, or of a run."""
    return plain(await state.memory.blocks(run=run, limit=limit))


async def block(state: State, key: str, run: str = "", version: Number = None) -> Answer:
    """One block, as it is or as it was."""
    return plain(await state.memory.get(key, run=run, version=version))


async def versions(
    state: State, key: str, run: str = "", before: Number = None, limit: Limit = 100
) -> Answer:
    """The versions of a block, the newest first."""
    found = await state.database.read(
        state.caller, lambda tx: board.block_versions(tx, key, run, before, limit)
    )
    return {"key": key, "run": run, "versions": plain(found)}


async def blob(
    state: State,
    key: str,
    offset: Annotated[int, range(1 << 53)] = 0,
    limit: Annotated[int, range(1, LONGEST_PAGE + 1)] = PAGE,
) -> Answer:
    """A page of a text that was kept aside."""
    return plain(await state.blobs.get(key, offset=offset, limit=limit))


async def search(
    state: State, query: str, kinds: str = "", run: str = "", limit: Limit = 20, cursor: str = ""
) -> Answer:
    """What holds some words; kinds are separated by commas."""
    chosen = [kind for kind in kinds.split(",") if kind.strip()]
    return plain(await state.search.find(query, kinds=chosen, run=run, limit=limit, cursor=cursor))


async def history(
    state: State, subject: str = "", since: Number = None, limit: Limit = 50
) -> Answer:
    """What changed, by whom and when."""
    return plain(await state.events.history(subject, since=since, limit=limit))


_MOST_PROJECTS = 500
VIEWS: Mapping[str, View] = {
    view.__name__: view
    for view in (
        overview,
        threads,
        thread,
        journal,
        runs,
        run,
        facts,
        fact,
        memory,
        block,
        versions,
        blob,
        search,
        history,
    )
}
"""What can be asked for, by its name in the address."""


def to_json(value: Any) -> bytes:
    """JSON in ASCII, so that no character of a stored text can break it."""
    return json.dumps(value, separators=(",", ":")).encode()


def error_of(problem: StateError) -> Answer:
    """An error as the page reads it."""
    words = {"code": problem.code, "fact": problem.fact, "next_step": problem.next_step}
    return {"error": words}
