"""A store of an earlier version answers like a new one, whatever happens while it migrates."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import old_stores
import pytest
from carrying import Store, data_of, store_at
from conftest import text_of
from mcp import Client
from old_stores import Minutes
from peeking import rows
from raw_client import Call, Server, closing_all
from soaking import SOAK, few_of
from whole_stores import everything

from mcp_state.server import create_server
from mcp_state.settings import Settings
from mcp_state.store import opening
from mcp_state.store.doctor import examine
from mcp_state.times import Clock

LATEST = len(opening.migrations())
VERSIONS = range(1, LATEST + 1)
DAY = old_stores.START + timedelta(days=1)

Script = tuple[tuple[str, dict[str, Any]], ...]

READS: Script = (
    ("orient", {}),
    ("orient", {"since": 1, "max_tokens": 5000}),
    ("orient", {"project": "another"}),
    ("thread_list", {}),
    ("thread_list", {"due": True}),
    *(("thread_list", {"status": status}) for status in ("done", "dropped", "blocked")),
    *(
        ("thread_get", {"thread": thread})
        for thread in ("base", "on top", "asked", "seen", "over", "shipped", "again", "next")
    ),
    *(
        ("thread_get", {"thread": thread})
        for thread in ("once held", "given back", "base (from side)", "long", "costly", "relying")
    ),
    ("memory_get", {}),
    *(("memory_get", {"key": key}) for key in ("plan", "gone", "back", "brief", "lasting")),
    ("memory_get", {"key": "plan", "version": 1}),
    ("memory_get", {"key": "rules"}),
    ("memory_get", {"run_id": "index"}),
    ("memory_get", {"run_id": "index", "key": "cursor", "version": 1}),
    ("journal_tail", {"limit": 100}),
    ("journal_tail", {"kind": "dead_end"}),
    ("journal_tail", {"thread": "base"}),
    ("journal_tail", {"actor": "ann", "limit": 2}),
    ("journal_tail", {"run_id": "index"}),
    ("journal_tail", {"project": "another"}),
    *(("search", {"query": query}) for query in ("東京", "index", "build", "written aside", "is")),
    ("search", {"query": "long", "kinds": ["run", "thread", "blob"]}),
    ("history", {"since": 0, "limit": 200}),
    ("history", {"limit": 5}),
    *(("history", {"subject": subject}) for subject in ("memory:plan", "thread:next", "project:")),
    *(("history", {"subject": subject}) for subject in ("run:index", "fact:tested", "objective")),
    ("run_list", {}),
    ("run_list", {"status": "failed"}),
    ("run_resume", {}),
    *(("run_resume", {"run_id": run}) for run in ("index", "spent", "shipped", "failed", "left")),
    ("run_resume", {"run_id": "index", "number": 1}),
    ("fact_list", {}),
    ("fact_list", {"due": True}),
    *(("fact_trace", {"fact": fact}) for fact in ("ready", "deployed", "gone")),
    ("handoff_accept", {"key": "h-none"}),
)
WRITES: Script = (
    ("memory_append", {"key": "plan", "text": "\nthird über 東京", "idempotency_key": "once"}),
    ("memory_append", {"key": "plan", "text": "\nfourth"}),
    ("memory_set", {"key": "rules", "value": "mine"}),
    ("memory_set", {"key": "gone", "value": "here again", "expected_version": 0}),
    ("memory_restore", {"key": "plan", "version": 1}),
    ("thread_set", {"thread": "next", "note": "without the token"}),
    ("thread_set", {"thread": "next", "note": "with an old token", "lease_token": 3}),
    ("thread_set", {"thread": "next", "note": "with the token", "lease_token": 24}),
    ("thread_check", {"thread": "base", "criterion": "it runs", "passes": True, "evidence": "run"}),
    ("thread_set", {"thread": "base", "status": "done", "evidence": "make: exit 0"}),
    ("thread_set", {"thread": "over", "status": "active", "note": "needed after all"}),
    ("thread_claim", {"thread": "once held"}),
    ("thread_claim", {}),
    ("thread_set", {"thread": "asked", "relies_on": ["new"]}),
    ("journal_append", {"text": "began", "thread": "base", "idempotency_key": "j1"}),
    ("journal_append", {"text": "goes on", "thread": "over"}),
    ("run_begin", {"goal": "Go on", "run_id": "later", "max_attempts": 2}),
    ("memory_set", {"key": "cursor", "value": "7", "run_id": "later"}),
    ("run_checkpoint", {"run_id": "later", "state": "at 7", "done": 7, "total": 9}),
    ("step_begin", {"run_id": "later", "step": "one"}),
    ("step_end", {"run_id": "later", "step": "one", "ok": True, "result": "fine"}),
    ("journal_append", {"text": "of the run"}),
    ("step_begin", {"run_id": "index", "step": "one", "input": "a"}),
    ("step_begin", {"run_id": "index", "step": "two", "input": "b"}),
    ("step_begin", {"run_id": "index", "step": "three", "input": "c"}),
    ("step_begin", {"run_id": "spent", "step": "two"}),
    ("run_finish", {"run_id": "index", "status": "completed", "evidence": "looked at it"}),
    ("blob_put", {"text": "kept for good"}),
    ("objective_set", {"objective": "Ship it now", "reason": "they wait", "expected_version": 2}),
    ("objective_set", {"objective": "Ship it now"}),
    ("fact_record", {"fact": "new", "statement": "it is new", "check": "./see"}),
    ("fact_verify", {"fact": "new", "holds": True, "evidence": "seen"}),
    ("fact_verify", {"fact": "tested", "holds": True, "evidence": "13 passed"}),
    ("fact_verify", {"fact": "builds", "holds": False, "evidence": "make: exit 2"}),
    ("thread_set", {"thread": "asked", "relies_on": ["new"]}),
    ("handoff_create", {"note": "all of it"}),
)


def store_in(folder: Path) -> Path:
    folder.mkdir(0o700)
    return folder / "state.db"


async def answers(path: Path, script: Script) -> list[str]:
    """What each call of the script answers, by a server of today."""
    clock = Minutes(DAY, ids=1000)
    settings = Settings(db=str(path), project="acme", session="s3", toolset="all")
    told: list[str] = []
    async with Client(create_server(settings, clock), mode="legacy") as client:
        for tool, arguments in script:
            clock.time += timedelta(minutes=1)
            text = text_of(await client.call_tool(tool, arguments))
            told.append(f"{tool}({arguments})\n{text}")
    return told


@pytest.mark.parametrize("version", few_of(VERSIONS, 1, LATEST - 1))
async def test_a_store_of_each_version_answers_as_if_this_one_had_filled_it(
    version: int, tmp_path: Path
) -> None:
    kept, new = store_in(tmp_path / "kept"), store_in(tmp_path / "new")
    old_stores.load(version, str(kept))
    await old_stores.fill(str(new), version)

    for script in (READS, WRITES, READS):
        assert await answers(kept, script) == await answers(new, script)

    assert (await examine(str(kept))).problems == []
    copies = [copy.name for copy in kept.parent.glob("*.bak")]
    assert copies == ([f"state.db.v{version}-{DAY:%Y-%m-%d}.bak"] if version < LATEST else [])


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_store_of_each_version_consists_of_is_what_its_steps_still_make(
    version: int, tmp_path: Path
) -> None:
    path = tmp_path / "store" / "state.db"
    old_stores.load(version, str(path))
    with closing(opening.new_connection(":memory:")) as made:
        opening.apply(made, opening.migrations()[:version])
        find = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"
        assert rows(str(path), find) == made.execute(find).fetchall()


EVERY_TABLE = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'search%'"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_of_each_version_has_a_row_in_every_table_of_it(
    version: int, tmp_path: Path
) -> None:
    path = tmp_path / "store" / "state.db"
    old_stores.load(version, str(path))
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute(EVERY_TABLE)]
        dump = "\n".join(connection.iterdump())
    assert set(tables) <= set(re.findall(r'^INSERT INTO "(\w+)" VALUES', dump, re.MULTILINE))


ADDED = re.compile(r', ?"(relies_on|run)": ?(\[\]|"")')
"""What the rows in events have since a later version: earlier events never say that it is empty."""


async def carry(store: Store, elsewhere: Path) -> list[str]:
    """What people do with a store; returns what was exported, and all that is in it then."""
    state, another = store.as_(agent="ben"), store.as_(project="another")
    await state.facts.record("fresh", "it builds here too")
    file = await store.export()
    for taken in ("clean", "taken"):
        async with store_at(elsewhere / taken / "state.db", Minutes(DAY)) as other:
            if taken == "taken":
                await other.as_().threads.set("base", next_action="of that machine")
            await other.take(file)
    await state.purge("second line", "it was wrong")
    await another.facts.record("fresh", "the other one builds")
    await another.threads.set("base", relies_on=["fresh"])
    await state.projects.merge("another")
    await another.projects.rename("acme once more")
    exported = [json.dumps(line) for line in data_of(file)]
    return [ADDED.sub("", line) for line in [*exported, *sorted(everything(store.path))]]


@pytest.mark.parametrize("version", few_of(VERSIONS, 1, LATEST - 1))
async def test_a_store_of_each_version_is_exported_purged_and_merged_like_a_new_one(
    version: int, tmp_path: Path
) -> None:
    kept, new = store_in(tmp_path / "kept"), store_in(tmp_path / "new")
    old_stores.load(version, str(kept))
    await old_stores.fill(str(new), version)

    async with store_at(kept, Minutes(DAY)) as one, store_at(new, Minutes(DAY)) as two:
        assert await carry(one, tmp_path / "one") == await carry(two, tmp_path / "two")

    assert (await examine(str(kept))).problems == []


# Killed while it migrates


KILLING = str(Path(__file__).with_name("killed_at_moments.py"))
JOURNAL = ("journal", "--project", "acme")


@pytest.mark.parametrize("every", [pytest.param(1 if SOAK else 18, id="soak" if SOAK else "slice")])
async def test_a_migration_that_is_killed_at_any_moment_is_done_by_the_next_who_opens_the_store(
    every: int, tmp_path: Path
) -> None:
    old, killed = store_in(tmp_path / "old"), tmp_path / "killed"
    old_stores.load(1, str(old))
    killed.mkdir()
    words = [sys.executable, KILLING, str(old), str(killed), str(every), *JOURNAL]
    told = await asyncio.to_thread(subprocess.check_output, words)
    moments: dict[str, str] = json.loads(told)
    assert {"BEGIN IMMEDIATE", "COMMIT", "os.rename"} <= set(moments.values())

    before, after = everything(old), everything(killed / "0" / "state.db")
    assert before != after
    seen: list[bool] = []
    for number, what in moments.items():
        path = killed / number / "state.db"
        left = everything(path)
        assert left in (before, after), f"{number}: {what}"
        seen.append(left == after)

        async with store_at(path, Clock()) as store:
            await store.as_().journal.tail()
        assert everything(path) == after, f"{number}: {what}"
        copies = [everything(copy) for copy in path.parent.glob("*.bak")]
        assert copies and all(copy == before for copy in copies), f"{number}: {what}"
        report = await examine(str(path))
        assert [f.what for f in report.findings if f.severity != "ok"] == [], f"{number}: {what}"
    assert seen == sorted(seen)
    assert list(moments.values())[seen.index(True) - 1] == "COMMIT"


# Two versions at once


NEXT = """
import sys
from mcp_state.store import opening
ours = opening.migrations()
statements = (
    "ALTER TABLE journal ADD COLUMN mood TEXT NOT NULL DEFAULT ''",
    "UPDATE store SET min_reader = " + sys.argv[2],
)
opening.migrations = lambda: (*ours, opening.Migration(len(ours) + 1, statements))
from mcp_state.cli import main
main(["journal", "append", "by the next version", "--db", sys.argv[1], "--project", "acme"])
"""


@pytest.mark.parametrize("min_reader", [LATEST + 1, LATEST], ids=["closed to us", "open to us"])
def test_a_next_version_migrates_under_two_servers_that_write_and_no_change_is_lost(
    min_reader: int, tmp_path: Path
) -> None:
    path = store_in(tmp_path / "store")
    old_stores.load(LATEST, str(path))
    ours = [Server.start(path, agent=f"of today {n}") for n in range(2)]
    saved: list[str] = []
    refused: list[str] = []
    with closing_all(ours):
        for server in ours:
            server.wait_until_ready()
        words = [sys.executable, "-c", NEXT, str(path), str(min_reader)]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as following:
            afterwards = 0
            while afterwards < 4:
                afterwards += following.poll() is not None
                server = ours[(len(saved) + len(refused)) % 2]
                text = f"entry {len(saved)} of today"
                answer = server.call(Call("journal_append", {"text": text}))
                (refused if answer.refused else saved).append(
                    answer.text if answer.refused else text
                )
        assert following.returncode == 0
        reads = [server.call(Call("journal_tail", {})) for server in ours]

    kept = [text for (text,) in rows(str(path), "SELECT text FROM journal ORDER BY seq")]
    assert [text for text in kept if str(text).endswith("of today")] == saved
    migrated = kept.index("by the next version")
    assert rows(str(path), "PRAGMA user_version") == [(LATEST + 1,)]
    if min_reader > LATEST:
        assert kept[migrated:] == ["by the next version"]
        assert len(refused) >= 4
        for answer in (*refused, *(answer.text for answer in reads)):
            assert answer.startswith(f"error: store_newer: {path} was written by a newer version")
            assert "Nothing was changed. Upgrade mcp-state, or name another file" in answer
    else:
        assert len(kept) - migrated >= 5
        assert (refused, [answer.code for answer in reads]) == ([], ["", ""])


def test_twenty_servers_that_open_an_old_store_at_once_all_answer_and_one_of_them_migrates(
    tmp_path: Path,
) -> None:
    old, path = store_in(tmp_path / "old"), store_in(tmp_path / "store")
    old_stores.load(1, str(old))
    shutil.copy(old, path)
    servers = [Server.start(path) for _ in range(20)]
    with closing_all(servers):
        for server in servers:
            server.wait_until_ready()
        for number, server in enumerate(servers):
            write = Call("journal_append", {"text": f"by {number}"})
            server.send(Call("orient", {}) if number % 2 else write)
        answers = [server.receive() for server in servers]

    assert [answer and answer[1].code for answer in answers] == [""] * 20
    texts = {text for (text,) in rows(str(path), "SELECT text FROM journal")}
    assert texts >= {f"by {number}" for number in range(0, 20, 2)}
    (copy,) = path.parent.glob("*.bak")
    assert everything(copy) == everything(old)
    assert [name for name in os.listdir(path.parent) if ".new-" in name] == []
