"""`mcp-state demo` runs as a person runs it; and its own check finds what was tampered with."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from mcp_state.api import open_store
from mcp_state.cli.demo_check import Claim, Story, Write, examine, identity
from mcp_state.models import Thread

pytestmark = pytest.mark.usefixtures("dev_mode")

CLAIMS = (
    r"ok (\d+) of \1 acknowledged writes are there, each exactly once",
    r"ok the last write acknowledged before kill -9 is there: event \d+, "
    r"(journal_append csv-to-json orders-0[78]: .*|thread_check csv-to-json 8)",
    r"ok (\d+) events are numbered 1 to \1, without a gap",
    r"ok besides them there is the broken lease, and "
    r"(no other write|event \d+, in flight at the kill)",
    r"ok csv-to-json is done, 12/12 pass; evidence: python check.py: exit 0, 12 of 12 files agree",
    r"ok list-orders is done; evidence: data/INDEX.md, 12 lines",
    r"ok PRAGMA integrity_check: ok",
    r"ok ([78]) of \1 files that ada had recorded were not touched again",
    r"ok 12 of 12 files are converted, by both agents alike",
)
"""How far the eighth file gets before the kill is not known: it is a real one."""


def run_demo(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mcp_state", "demo", *options],
        env=os.environ | {"TMPDIR": str(directory), "MCP_STATE_PROJECT": "not the demo's"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_demo_kills_an_agent_lets_another_finish_and_every_claim_holds(tmp_path: Path) -> None:
    done = run_demo(tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "kill -9 of the agent and of its server, while ada was at orders-08" in lines
    refusals = [line.split(". ")[0] for line in lines if line.startswith("error: ")]
    assert [refusal.split(":")[1].strip() for refusal in refusals] == [
        "held",
        "evidence_required",
        "evidence_required",
    ]
    assert "is held by ada until" in refusals[0]
    packet = [line.removeprefix("| ") for line in lines if line.startswith("| ")]
    assert packet[0].startswith("project github.com/acme/shop (from git origin) · agent ben · new")
    assert {"NOW", "MEMORY", "JOURNAL"} <= set(packet)
    claims = [line for line in lines if line.startswith(("ok ", "FAILED "))]
    assert len(claims) == len(CLAIMS)
    for claim, wanted in zip(claims, CLAIMS, strict=True):
        assert re.fullmatch(wanted, claim), claim
    assert list(tmp_path.iterdir()) == []


async def played(home: Path) -> Story:
    """A small demo, played through the Python API: what is there, and what was answered."""
    data = home / "shop" / "data"
    data.mkdir(parents=True)
    for name, cents in (("orders-01", 1250), ("orders-02", 5)):
        whole, rest = divmod(cents, 100)
        text = f"order;customer;amount\n1;one;{whole},{rest:02}\n"
        (data / f"{name}.csv").write_text(text, encoding="utf-8")
        text = f'[{{"order": "1", "customer": "one", "amount": {cents}}}]'
        (data / f"{name}.json").write_text(text, encoding="utf-8")
    story = Story()
    store = home / "state.db"

    async with open_store(store, project="shop", agent="ada") as state:

        def wrote(tool: str, **arguments: object) -> None:
            story.writes.append(
                Write(state.caller.actor.agent, tool, arguments, state.totals.event)
            )

        await state.memory.set("conventions", "cents")
        wrote("memory_set", key="conventions", value="cents")
        await state.threads.set("csv-to-json", criteria=["one", "two"])
        wrote("thread_set", thread="csv-to-json")
        claimed = await state.threads.claim("csv-to-json")
        assert isinstance(claimed, Thread) and claimed.lease is not None
        wrote("thread_claim", thread="csv-to-json")
        await state.threads.check("csv-to-json", "1", True, lease_token=claimed.lease.token)
        wrote("thread_check", thread="csv-to-json", criterion="1")
        await state.journal.append("first file")
        wrote("journal_append", text="first file")
        await state.threads.release("csv-to-json", force=True)
    story.last_before_kill = story.writes[-1]
    story.recorded = {data / "orders-01.json": identity(data / "orders-01.json")}
    async with open_store(store, project="shop", agent="ben") as state:
        await state.threads.set("list-orders", status="done", evidence="a list")
        wrote("thread_set", thread="list-orders", status="done", evidence="a list")
        await state.threads.check("csv-to-json", "2", True)
        wrote("thread_check", thread="csv-to-json", criterion="2")
        await state.threads.set("csv-to-json", status="done", evidence="exit 0")
        wrote("thread_set", thread="csv-to-json", status="done", evidence="exit 0")
    return story


def failed(home: Path, story: Story) -> list[str]:
    claims: list[Claim] = list(examine(home / "state.db", home / "shop", story))
    assert len(claims) == 9
    return [claim.text for claim in claims if not claim.holds]


async def test_the_check_of_the_demo_finds_nothing_in_an_honest_store(tmp_path: Path) -> None:
    story = await played(tmp_path)
    assert failed(tmp_path, story) == []


def in_store(*statements: str) -> Callable[[Path], None]:
    """Tamper with the rows, whatever the triggers say."""

    def tamper(home: Path) -> None:
        with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as connection:
            triggers = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
            for (name,) in triggers.fetchall():
                connection.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                assert connection.execute(statement).rowcount > 0

    return tamper


def in_file(name: str, text: str) -> Callable[[Path], None]:
    def tamper(home: Path) -> None:
        new = home / "new"
        new.write_text(text, encoding="utf-8")
        new.replace(home / "shop" / "data" / name)

    return tamper


LOST_LAST = [
    "not there exactly once: journal_append first file",
    "the last write acknowledged before kill -9 is there: event 5, journal_append first file",
]


@pytest.mark.parametrize(
    ("tamper", "told"),
    [
        pytest.param(
            in_store("DELETE FROM journal", "DELETE FROM events WHERE seq = 5"),
            [*LOST_LAST, "8 events are numbered 1 to 9, without a gap"],
            id="an entry is lost",
        ),
        pytest.param(
            in_store("UPDATE journal SET text = 'first'"), LOST_LAST, id="an entry is cut"
        ),
        pytest.param(
            in_store(
                "INSERT INTO events SELECT project, 10, at, 2, run, kind, name, operation, "
                "summary, NULL, row FROM events WHERE seq = 8",
                "UPDATE projects SET last_event = 10",
            ),
            [
                "not there exactly once: thread_check csv-to-json 2",
                "besides them there is the broken lease, and event 10, in flight at the kill",
            ],
            id="a step is done twice",
        ),
        pytest.param(
            in_store("DELETE FROM events WHERE seq = 6"),
            [
                "8 events are numbered 1 to 9, without a gap",
                "besides them there is the broken lease, and no other write",
            ],
            id="a number is missing",
        ),
        pytest.param(
            in_store("UPDATE threads SET status = 'active' WHERE name = 'list-orders'"),
            ["list-orders is active; evidence: a list"],
            id="a thread is not done",
        ),
        pytest.param(
            in_file("orders-01.json", '[{"order": "1", "customer": "one", "amount": 1250}]'),
            ["0 of 1 files that ada had recorded were not touched again"],
            id="a recorded file is written again",
        ),
        pytest.param(
            in_file("orders-02.json", '[{"order": "1", "customer": "one", "amount": 500}]'),
            ["1 of 2 files are converted, by both agents alike"],
            id="a file is converted wrongly",
        ),
    ],
)
async def test_the_check_of_the_demo_fails_on_a_doctored_store(
    tmp_path: Path, tamper: Callable[[Path], None], told: list[str]
) -> None:
    story = await played(tmp_path)
    tamper(tmp_path)
    assert failed(tmp_path, story) == told
