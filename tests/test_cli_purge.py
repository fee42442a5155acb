"""`mcp-state purge`: the text comes in unseen, goes nowhere, and a person is asked."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Run
from planting import MARK, SECRET, held, held_by_bytes

from mcp_state.store.postgres.database import PostgresDatabase

PROGRAM = str(Path(sys.executable).with_name("mcp-state"))
PATIENCE = 30.0


@pytest.fixture
def folder(run: Run, path: str) -> Path:
    """Of a store that holds the text."""
    run("memory", "set", "plan", f"the key is {SECRET}")
    return Path(path).parent


def test_a_store_on_a_server_says_what_it_cannot_reach(run: Run, path: str, engine: str) -> None:
    run("memory", "set", "plan", f"the key is {SECRET}")
    done = run("purge", "--yes", "--reason", "it was pasted", stdin=SECRET)

    assert (done.exit_code, done.stderr) == (0, "")
    first, second, *more = done.stdout.splitlines()
    assert first == f"purged from 3 places of 1 subject; {MARK} stands there now (event 2)"
    assert second == "    memory:plan: history, value, search (3)"
    beyond = f"note: {PostgresDatabase.beyond}" in more
    assert (beyond, "searched" in done.stdout) == (engine == "postgres", engine == "sqlite")
    assert held(path) == []


@pytest.mark.sqlite
def test_it_is_read_from_standard_input_without_the_line_break(run: Run, folder: Path) -> None:
    looked = run("purge", "--dry-run", stdin=f"{SECRET}\n")
    size = sum(file.stat().st_size for file in folder.iterdir() if file.name[-4:] != "-shm")
    assert (looked.exit_code, looked.stderr) == (0, "")
    assert looked.stdout.splitlines() == [
        "found in 3 places of 1 subject; nothing was changed",
        "    memory:plan: history, value, search (3)",
        f"searched {size:,} bytes of 3 files: 1 file holds it:",
        f"    {folder}/state.db (the store): 3 times",
        "[acme (from --project) · 0 threads · event 1]",
    ]

    done = run("purge", "--yes", "--reason", "it was pasted", stdin=f"{SECRET}\r\n")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == [
        f"purged from 3 places of 1 subject; {MARK} stands there now (event 2)",
        "    memory:plan: history, value, search (3)",
    ]
    assert done.stdout.splitlines()[2].endswith(" of 3 files: none of them holds it")
    assert SECRET not in looked.output + done.output
    assert held_by_bytes(folder) == []
    again = run("purge", "--yes", "--reason", "it was pasted", stdin=SECRET)
    assert again.exit_code == 0
    assert again.stdout.startswith("no text of the store holds it\nsearched ")
    told = run("history").stdout
    assert "a text purged from 3 places in 1 subject, because it was pasted" in told


@pytest.mark.sqlite
def test_json_has_all_of_it_but_the_text(run: Run, folder: Path) -> None:
    done = run("purge", "--yes", "--reason", "x", "--json", stdin=SECRET)
    purged = json.loads(done.stdout)
    assert SECRET not in done.output
    assert purged.pop("scope")["event"] == 2
    assert [file.pop("size") > -1 for file in purged["files"]] == [True] * 3
    assert purged == {
        "dry_run": False,
        "clean": True,
        "mark": MARK,
        "event": 2,
        "places": [
            {
                "project": "acme",
                "subject": "memory:plan",
                "fields": ["history", "value", "search"],
                "count": 3,
            }
        ],
        "files": [
            {"path": f"{folder}/state.db{end}", "what": what, "found": 0}
            for end, what in (
                ("", "the store"),
                ("-wal", "its write-ahead log"),
                ("-queue", "its queue"),
            )
        ],
        "notes": [],
        "elsewhere": False,
    }


@pytest.mark.sqlite
def test_the_exit_code_says_that_something_still_holds_it(run: Run, folder: Path) -> None:
    run("memory", "set", "plan", SECRET, MCP_STATE_PROJECT="beta")
    done = run("purge", "--yes", "--reason", "x", stdin=SECRET)
    assert done.exit_code == 1
    assert "\nnote: Another project of this store holds it too" in done.stdout
    assert run("purge", "--dry-run", stdin=SECRET).exit_code == 0
    every = run("purge", "--yes", "--reason", "x", "--every-project", stdin=SECRET)
    assert every.exit_code == 0
    assert every.stdout.splitlines()[1] == "    memory:plan: history, value, search (3)"
    assert held_by_bytes(folder) == []


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--yes", "--reason", "x", SECRET),
            "error: bad_argument: the text to purge is no argument: the history of the shell would "
            "keep it, and every process could read it. Leave it out to be asked for it, or pipe it "
            "in; if it was the text, take that line out of the shell's history.",
        ),
        (
            ("--yes",),
            "error: bad_argument: --reason is missing. Say why, without the text itself; or look "
            "first: --dry-run.",
        ),
        (
            ("--reason", "x"),
            "error: bad_argument: the text comes from standard input, where nobody can be asked. "
            "Look first with --dry-run, then say --yes.",
        ),
        (
            ("--yes", "--reason", f"it was {SECRET}"),
            "error: bad_argument: the reason holds the text to purge. Nothing was changed. Say why "
            "without repeating it; history will show the reason.",
        ),
    ],
)
def test_what_is_wrong_is_said_and_nothing_changes(
    run: Run, folder: Path, words: tuple[str, ...], told: str
) -> None:
    result = run("purge", *words, stdin=SECRET)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"{told}\n")
    assert held_by_bytes(folder) == ["state.db"]


@pytest.mark.sqlite
def test_without_a_project_those_that_there_are_are_named(run: Run, folder: Path) -> None:
    nowhere = {"MCP_STATE_PROJECT": None, "PWD": "/"}
    here = os.getcwd()
    os.chdir("/")
    try:
        result = run("purge", "--yes", "--reason", "x", stdin=SECRET, **nowhere)
    finally:
        os.chdir(here)
    assert result.exit_code == 1
    assert result.stderr == (
        "error: project_unknown: nothing was purged: it is not known which project is meant; known "
        "are acme. Pass --project NAME, or --every-project.\n"
    )
    assert held_by_bytes(folder) == ["state.db"]


CTRL_C = "\x03"
PROMPTS = (b"Text to purge:", b"[y/N]:")


def talk(
    environment: dict[str, str | None],
    *answers: str,
    prompts: tuple[bytes, ...] = PROMPTS,
    watch: Callable[[], object] = lambda: None,
) -> tuple[int, str]:
    """Purge on a terminal, giving these answers to what is asked; returns code and screen.

    `watch` is called after the last answer.
    """
    given = {name: value for name, value in environment.items() if value is not None}
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [PROGRAM, "purge", "--reason", "it was pasted"],
        env=os.environ | given | {"TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    screen, seen, waiting = b"", 0, list(answers)
    deadline = time.monotonic() + PATIENCE
    while True:
        ready, _, _ = select.select([ours], [], [], deadline - time.monotonic())
        assert ready, screen
        try:
            data = os.read(ours, 65536)
        except OSError:
            break
        if not data:
            break
        screen += data
        asked = next((p for p in prompts if p in screen[seen:]), b"")
        if waiting and asked:
            seen = screen.index(asked, seen) + len(asked)
            if (answer := waiting.pop(0)) == CTRL_C:
                while not is_waiting(child.pid) and time.monotonic() < deadline:
                    pass  # between the question and the read a signal would be lost
                child.send_signal(signal.SIGINT)
            else:
                os.write(ours, f"{answer}\n".encode())
            if not waiting:
                watch()
    os.close(ours)
    return child.wait(PATIENCE), screen.decode()


def is_waiting(pid: int) -> bool:
    """Whether its main thread sleeps: it has said all it had to say."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


@pytest.mark.sqlite
def test_on_a_terminal_it_is_typed_unseen_and_confirmed(
    folder: Path, environment: dict[str, str | None]
) -> None:
    code, screen = talk(environment, SECRET, "n")
    assert code == 130
    assert "found in 3 places of 1 subject; nothing was changed" in screen
    assert "memory:plan" in screen
    assert SECRET not in screen
    assert held_by_bytes(folder) == ["state.db"]

    code, screen = talk(environment, SECRET, "y")

    assert code == 0
    assert "stands there now (event 2)" in screen
    assert SECRET not in screen
    assert held_by_bytes(folder) == []


@pytest.mark.sqlite
def test_ctrl_c_at_the_question_leaves_everything_as_it_is(
    folder: Path, environment: dict[str, str | None]
) -> None:
    code, screen = talk(environment, SECRET, CTRL_C)
    assert code == 130
    assert "interrupted" not in screen
    assert held_by_bytes(folder) == ["state.db"]


@pytest.mark.sqlite
def test_ctrl_c_during_the_purge_says_that_another_one_finishes_it(
    folder: Path, environment: dict[str, str | None]
) -> None:
    other = sqlite3.connect(folder / "state.db", isolation_level=None)
    with contextlib.closing(other):
        other.execute("BEGIN IMMEDIATE")  # so that it waits
        code, screen = talk(
            environment,
            *(SECRET, "y", CTRL_C),
            prompts=(*PROMPTS, b"purging"),
            watch=lambda: other.execute("ROLLBACK"),
        )
    assert code == 130
    assert "note: interrupted; purge again: that finishes what was begun" in screen

    code, screen = talk(environment, SECRET, "y")

    assert code == 0
    assert held_by_bytes(folder) == []
