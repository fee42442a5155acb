"""`mcp-state hook` as a client runs it: it never fails, never hangs, and answers whole or not."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_orient_runs import make_repository
from whole_stores import writing

from mcp_state import open_store
from mcp_state.calls import COMMANDS

pytestmark = pytest.mark.usefixtures("dev_mode")

PROGRAM = str(Path(sys.executable).with_name("mcp-state"))
UNHURRIED = (
    "import mcp_state.cli.hook as h; h._SECONDS = 60; from mcp_state.cli import main; main()"
)
PATIENCE = 60.0
LATE = {
    "hookEventName": "SessionStart",
    "additionalContext": "[mcp-state] The store did not answer in time; call orient to see what it "
    "holds.",
}
Done = subprocess.CompletedProcess[bytes]
Hook = Callable[..., Done]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MCP_STATE_", "CLAUDE"))}
    return kept | {"HOME": str(tmp_path)}


@pytest.fixture
def hook(environment: dict[str, str], path: str) -> Hook:
    """Run the command for the store, with its own limit of time or (by default) without hurry."""

    def run(
        *words: str,
        stdin: bytes = b'{"session_id":"s1"}',
        hurry: bool = False,
        cwd: Path | None = None,
    ) -> Done:
        program = [PROGRAM] if hurry else [sys.executable, "-c", UNHURRIED]
        return subprocess.run(
            [*program, "hook", *words, "--db", path, "--project", "acme", "--agent", "codex"],
            env=environment,
            cwd=cwd,
            input=stdin,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )

    return run


@pytest.fixture
async def worked(path: str) -> None:
    """Session s1 holds a thread and has said nothing about it."""
    async with open_store(path, project="acme", agent="codex", session="s1") as state:
        await state.threads.set("import", next_action="rerun the test")
        await state.threads.claim("import")


def said(done: Done) -> tuple[int, object, str]:
    """Exit code, the one JSON value or None, and standard error."""
    lines = done.stdout.decode().splitlines()
    assert len(lines) <= 1
    return done.returncode, json.loads(lines[0]) if lines else None, done.stderr.decode()


@pytest.mark.usefixtures("worked")
def test_the_packet_is_one_line_of_json_and_the_end_is_held_back_once(hook: Hook) -> None:
    code, output, complaint = said(hook("session-start"))
    assert (code, complaint) == (0, "")
    assert isinstance(output, dict)
    assert "rerun the test" in json.dumps(output)

    code, output, complaint = said(hook("stop"))
    assert (code, complaint) == (0, "")
    assert isinstance(output, dict)
    assert output["decision"] == "block"
    assert said(hook("stop")) == (0, None, "")
    assert hook("pre-compact").stdout.startswith(b"mcp-state keeps the state of this work outside")


async def test_a_hook_names_tools_and_never_their_commands(hook: Hook, path: str) -> None:
    """Although it is a command: a model with the tools reads it."""
    async with open_store(path, project="acme", agent="codex", session="s1") as state:
        for n in range(30):
            await state.threads.set(f"t{n}", status="blocked", waiting_on="review")
            await state.facts.record(f"f{n}", "It holds.", check="true")
            await state.memory.set(f"plan{n}", "Look closer. " * 50)
        await state.runs.begin("Reindex", run="reindex")
        await state.steps.begin("reindex", "1")
        await state.threads.set("import")
        await state.threads.claim("import")
    async with open_store(path, project="acme", agent="claude", session="s2") as state:
        await state.journal.append("x" * 3000)

    compacted = b'{"session_id":"s1","source":"compact"}'
    told = [hook("session-start"), hook("session-start", stdin=compacted), hook("pre-compact")]
    told += [hook("stop"), hook("subagent-start", stdin=b'{"agent_id":"a1"}')]
    assert all(b"thread" in one.stdout for one in told)
    commands = {f"mcp-state {one.words}".encode() for one in COMMANDS.values()}
    assert [word for one in told for word in commands if word in one.stdout] == []


def test_input_that_is_none_or_garbage_or_endless_is_no_failure(hook: Hook) -> None:
    for stdin in (b"", b"\xff\x00garbage", b'{"a":"' + b"x" * (5 << 20) + b'"}'):
        code, output, complaint = said(hook("session-start", stdin=stdin))
        assert (code, complaint) == (0, "")
        assert "Nothing is stored yet for acme" in json.dumps(output)


def test_a_client_that_keeps_the_input_open_gets_its_answer(
    hook: Hook, environment: dict[str, str], path: str
) -> None:
    program = [sys.executable, "-c", UNHURRIED]
    with subprocess.Popen(
        [*program, "hook", "session-start", "--db", path, "--project", "acme"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"session_id":"s1","cwd":"/"}')
        process.stdin.flush()
        assert process.wait(PATIENCE) == 0
        assert process.stdout is not None
        assert b"Nothing is stored yet for acme" in process.stdout.read()


def test_an_input_or_output_that_is_closed_is_no_failure(
    environment: dict[str, str], path: str
) -> None:
    words = f"hook session-start --db {shlex.quote(path)} --project acme"
    program = f"{sys.executable} -c '{UNHURRIED}' {words}"
    for closed in ("<&-", ">&-", "<&- >&-", "2>&-", "</dev/null >/dev/full"):
        done = subprocess.run(
            ["/bin/sh", "-c", f"{program} {closed}"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (closed, done.returncode, done.stderr) == (closed, 0, b"")


def test_wrong_arguments_are_one_line_and_no_veto(hook: Hook) -> None:
    for words in (("sessionstart",), (), ("stop", "--colour"), ("stop", "now"), ("stop", "--db")):
        done = hook(*words)
        assert (words, done.returncode, done.stdout) == (words, 0, b"")
        assert done.stderr.startswith(b"mcp-state hook: ")
        assert done.stderr.count(b"\n") == 1


def test_a_relative_path_of_the_store_is_one_line(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [PROGRAM, "hook", "stop", "--db", "state.db"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"mcp-state hook: bad_argument: --db is 'state.db', a relative")


@pytest.mark.sqlite
def test_a_broken_store_is_one_line(hook: Hook, path: str) -> None:
    Path(path).parent.mkdir()
    Path(path).write_bytes(b"no database")

    code, output, complaint = said(hook("session-start"))
    assert (code, complaint) == (0, "")
    assert "store_damaged" in json.dumps(output)
    done = hook("stop")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (0, b"", 1)
    assert done.stderr.startswith(b"mcp-state hook: store_damaged: ")


@pytest.fixture
async def repository(path: str, tmp_path: Path) -> Path:
    """One whose HEAD a fact is about, with a `git` in `bin` beside it that does not answer."""
    make_repository(tmp_path / "api")
    async with open_store(path, project="acme", worktree=str(tmp_path / "api")) as state:
        await state.facts.record("head", "The release is cut", check="git:HEAD")
        await state.facts.verify("head", True, "it is")
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    slow.chmod(0o755)
    return tmp_path / "api"


def test_a_slow_git_costs_what_it_would_have_told_and_not_the_packet(
    hook: Hook, environment: dict[str, str], repository: Path
) -> None:
    environment["PATH"] = f"{repository.with_name('bin')}:{environment['PATH']}"

    done = hook("session-start", cwd=repository)

    assert (done.returncode, done.stderr) == (0, b"")
    assert b"it took longer than 0.7 s" in done.stdout


@pytest.mark.sqlite
@pytest.mark.usefixtures("worked")
@pytest.mark.parametrize("event", ["session-start", "pre-compact", "stop", "subagent-start"])
def test_a_store_that_hangs_delays_nobody(hook: Hook, path: str, event: str) -> None:
    for end in ("-wal", "-shm"):
        Path(path + end).unlink(missing_ok=True)
    os.mkfifo(path + "-wal")  # opening it waits for a writer

    code, output, complaint = said(hook(event, hurry=True))

    assert (code, complaint) == (0, "mcp-state hook: no answer in time\n")
    assert output == ({"hookSpecificOutput": LATE} if event == "session-start" else None)


@pytest.mark.sqlite
@pytest.mark.usefixtures("worked")
def test_a_store_that_is_locked_delays_nobody(hook: Hook, path: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = DELETE").fetchall()
        other.execute("BEGIN EXCLUSIVE")

        code, output, complaint = said(hook("session-start", hurry=True))

    assert (code, complaint) == (0, "mcp-state hook: no answer in time\n")
    assert output == {"hookSpecificOutput": LATE}


@pytest.mark.usefixtures("worked")
def test_the_end_of_a_session_does_not_wait_for_another_that_writes(hook: Hook, path: str) -> None:
    with writing(path):
        done = hook("stop")

    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"mcp-state hook: store_busy: ")
    assert said(hook("stop"))[1] is not None  # it was not told yet
