"""A run of 10,000 steps costs per call what a run of ten costs, and its answers fit.

The steps of the large run are copies, made with plain `sqlite3`, of three that the store wrote.
"""

from __future__ import annotations

import itertools
import re
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import START, FakeClock
from long_runs import attempt, contradictions
from peeking import rows

from mcp_state import render_runs
from mcp_state.api import State, open_store
from mcp_state.errors import StateError
from mcp_state.store import opening, run_rows, run_rules, runs, steps

MOST_TOKENS = 30_000


async def work(state: State) -> None:
    """A run with one step of each kind and, of everything else, what a resumed run tells of."""
    await state.threads.set("work")
    await state.runs.begin("g", run="r", thread="work", max_tokens=MOST_TOKENS)
    await state.memory.set("plan", "p" * 4000, run="r")
    await state.runs.checkpoint("r", "s" * 4000, next_action="go on", done=1, total=10_000)
    await attempt(state, "r", "done-00000", "fine", ok=True, tokens_in=3)
    await attempt(state, "r", "failed-00000", "no luck", input="a")
    await state.steps.begin("r", "open-00000")


@dataclass(frozen=True)
class Sort:
    """Steps that are copies of one, and how many events each of them has."""

    name: str
    count: int
    events: int


SORTS = (Sort("done", 6_500, 2), Sort("failed", 1_997, 2), Sort("open", 1_500, 1))


def multiply(path: Path) -> None:
    """Make 10,000 steps of three, each with its attempt and its events; count them once."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        lifted = triggers.fetchall()
        for name, _ in lifted:
            connection.execute(f"DROP TRIGGER {name}")
        for sort in SORTS:
            _copy(connection, sort)
        for statement in _COUNT:
            connection.execute(statement)
        for _, sql in lifted:
            connection.execute(sql)
        connection.execute("COMMIT")


_COUNT = (
    "UPDATE projects SET last_event = (SELECT count(*) FROM events)",
    "UPDATE store SET changes = (SELECT count(*) FROM events)",
    "UPDATE last_events SET seq = (SELECT count(*) FROM events)",
    """
    UPDATE runs SET (steps, steps_done, attempts, tokens_in) = (
        SELECT count(*), sum(status = 'done'), sum(attempts), sum(tokens_in) FROM steps
    )
    """,
)


def _copy(connection: sqlite3.Connection, sort: Sort) -> None:
    (last,) = connection.execute("SELECT count(*) FROM events").fetchone()
    step = f"{sort.name}-00000"
    (first,) = connection.execute("SELECT begun FROM attempts WHERE step = ?", (step,)).fetchone()
    at = {"last": last, "each": sort.events, "first": first, "step": step}
    at |= {"sort": f"{sort.name}-%05d"}
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS numbers (n INTEGER)")
    connection.execute("DELETE FROM numbers")
    numbers = ((n,) for n in range(1, sort.count + 1))
    connection.executemany("INSERT INTO numbers VALUES (?)", numbers)
    connection.execute(
        """
        INSERT INTO events SELECT project, :last + (n - 1) * :each + seq - :first + 1, at, actor,
            run, kind, replace(name, :step, printf(:sort, n)), operation, summary, version,
            replace(row, :step, printf(:sort, n))
        FROM numbers, events
        WHERE project = 1 AND seq >= :first AND seq < :first + :each ORDER BY n, seq
        """,
        at,
    )
    connection.execute(
        """
        INSERT INTO steps SELECT project, run, printf(:sort, n), printf(:sort, n),
            :last + (n - 1) * :each + 1, :last + n * :each, changed_at, changed_by, status, input,
            result, outcome, streak, stopped, attempts, tokens_in, tokens_out
        FROM numbers, steps WHERE project = 1 AND run = 'r' AND name = :step ORDER BY n
        """,
        at,
    )
    connection.execute(
        """
        INSERT INTO attempts SELECT project, run, printf(:sort, n), number,
            :last + (n - 1) * :each + 1, begun_at, begun_by, input,
            iif(ended IS NULL, NULL, :last + n * :each), ended_at, ended_by, ok, result,
            tokens_in, tokens_out
        FROM numbers, attempts WHERE project = 1 AND run = 'r' AND step = :step ORDER BY n
        """,
        at,
    )


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[State]:
    async with open_store(
        path, project="acme", agent="codex", session="s1", clock=FakeClock()
    ) as s:
        yield s


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scale")


@pytest.fixture
async def small(homes: Path, tmp_path: Path) -> Path:
    """A copy of a store whose run has three steps."""
    made = homes / "small" / "state.db"
    if not made.exists():
        async with opened(made) as state:
            await work(state)
    return shutil.copytree(made.parent, tmp_path / "small") / made.name


@pytest.fixture
async def large(homes: Path, tmp_path: Path) -> Path:
    """A copy of a store whose run has 10,000 steps."""
    made = homes / "large" / "state.db"
    if not made.exists():
        async with opened(made) as state:
            await work(state)
        multiply(made)
    return shutil.copytree(made.parent, tmp_path / "large") / made.name


async def test_the_large_run_is_one_like_any_other(large: Path) -> None:
    assert contradictions(str(large)) == []
    assert rows(str(large), "SELECT steps, steps_done, attempts, tokens_in FROM runs") == [
        (10_000, 6_501, 10_000, 19_503)
    ]


async def refused(state: State, step: str) -> None:
    with pytest.raises(StateError):
        await state.steps.begin("r", step)


CALLS: dict[str, Callable[[State, int], Awaitable[object]]] = {
    "go": lambda state, n: state.steps.begin("r", f"new {n}"),
    "step_end": lambda state, n: state.steps.end("r", f"new {n}", True, "fine", tokens_in=n),
    "step_end again": lambda state, n: state.steps.end("r", f"new {n}", True, "fine"),
    "done": lambda state, n: state.steps.begin("r", "done-00000"),
    "run_checkpoint": lambda state, n: state.runs.checkpoint("r", "on it"),
    "run_resume": lambda state, n: state.runs.resume("r"),
    "run_resume of the first": lambda state, n: state.runs.resume("r", number=1),
    "run_list": lambda state, n: state.runs.list(),
    "show": lambda state, n: state.runs.show("r", limit=20),
    "orient": lambda state, n: state.orient(),
    "reset": lambda state, n: state.steps.reset("r", f"new {n}", "again"),
    "crossing the budget": lambda state, n: attempt(state, "r", "dear", tokens_in=MOST_TOKENS),
    "budget_spent": lambda state, n: refused(state, "one more"),
}
COUNTED = 100
"""SQLite tells of each so many instructions of its machine."""
BOUNDED = {"run_resume": 21_000, "run_resume of the first": 45_000, "show": 10_000}
"""Instructions for counting up to 1,000 events, 1,000 of the run and 1,000 steps of two kinds, and
for more steps to tell of. Looking at every step costs 100,000."""


async def test_sqlite_does_no_more_work_for_a_run_of_10000_steps(
    large: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = 0
    connect = opening.new_connection

    def count() -> int:
        nonlocal done
        done += COUNTED
        return 0

    def counted(path: str, mode: str = "") -> sqlite3.Connection:
        connection = connect(path, mode)
        connection.set_progress_handler(count, COUNTED)
        return connection

    monkeypatch.setattr(opening, "new_connection", counted)
    took: dict[tuple[str, str], int] = {}
    for path in (large, small):
        async with opened(path) as state:
            await CALLS["orient"](state, 0)
            for tool, call in CALLS.items():
                done = 0
                await call(state, 1)
                took[tool, path.parent.name] = done
        assert contradictions(str(path)) == []
    assert {
        tool: (took[tool, "large"], took[tool, "small"])
        for tool in CALLS
        if took[tool, "large"] > took[tool, "small"] + 5 * COUNTED + BOUNDED.get(tool, 0)
    } == {}


async def test_the_answers_about_10000_steps_fit_and_count_what_they_leave_out(
    large: Path,
) -> None:
    async with opened(large) as state:
        found = await state.runs.resume("r")
        assert (found.open, found.failed, found.run and found.run.steps) == (1000, 1000, 10_000)
        text = render_runs.resumed(found, START, session="s1")
        assert len(text) < 9_500
        lines = [line.strip() for line in text.split("\n")]
        assert [line for line in lines if line.startswith("steps: ")] == [
            "steps: 6,501 done, 1,000+ failed, 1,000+ open (step_begin tells of each whether it is "
            "done)"
        ]
        assert "+3,479 more that are failed or open" in lines
        assert "1,000+ events of this run since then (this session just now)" in lines
        assert "no other event among the newest 200: history(since=4)" in lines
        detail = await state.runs.show("r", limit=20)
        assert (len(detail.steps), len(detail.events), detail.earlier) == (20, 20, 980)
        await attempt(state, "r", "dear", tokens_in=MOST_TOKENS)
        with pytest.raises(
            StateError, match="most of it for 'dear' \\(1x, 30,000 tokens\\), 'done-"
        ):
            await state.steps.begin("r", "one more")


def statements() -> Iterator[tuple[str, str]]:
    for module in (run_rows, run_rules, runs, steps):
        for name, value in vars(module).items():
            if isinstance(value, str) and re.match(r"\s*(?:SELECT|UPDATE|INSERT|DELETE)\b", value):
                yield f"{module.__name__}.{name}", value


def test_every_statement_finds_its_rows_by_an_index_and_in_order() -> None:
    connection = opening.new_connection(":memory:")
    opening.apply(connection, opening.migrations())
    found = dict(statements())
    assert len(found) > 25
    plans = {
        name: [
            row[3]
            for row in connection.execute(
                f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(re.findall(r":(\w+)", sql), 1)
            )
        ]
        for name, sql in found.items()
    }
    bounded = ("SCAN (subquery-", "SCAN last")  # at most 50 or 1,000 rows, by their LIMIT
    assert {
        name: step
        for name, step in itertools.chain.from_iterable(
            ((name, step) for step in plan) for name, plan in plans.items()
        )
        if (step.startswith("SCAN") and not step.startswith(bounded))
        or (step.startswith("USE TEMP") and not any(s.startswith(bounded) for s in plans[name]))
    } == {}
    connection.close()
