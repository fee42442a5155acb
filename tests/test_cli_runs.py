"""Long runs, what is due and handoffs on the command line: for people, and for scripts."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeClock, Run
from rich.cells import cell_len
from whole_stores import exists

from mcp_state.cli import main
from mcp_state.times import Clock

Ok = Callable[..., str]
Refused = Callable[..., str]
Shown = Callable[..., str]

READS = (
    ["runs"],
    ["runs", "list"],
    ["runs", "show", "reindex"],
    ["runs", "resume"],
    ["memory", "--run", "reindex"],
    ["journal", "--run", "reindex"],
    ["search", "archive", "--run", "reindex"],
)
WRITES = (
    ["runs", "begin", "reindex", "Reindex"],
    ["runs", "checkpoint", "reindex", "41 done"],
    ["runs", "step", "begin", "reindex", "one"],
    ["runs", "step", "end", "reindex", "one", "--ok"],
    ["runs", "raise", "reindex", "--attempts", "9", "--reason", "mine"],
    ["runs", "reset", "reindex", "one", "--reason", "mine"],
    ["runs", "finish", "reindex", "failed", "--reflection", "no"],
    ["handoff", "create", "go on"],
    ["handoff", "accept", "h-1"],
    ["memory", "set", "plan", "one", "--run", "reindex"],
)


@pytest.fixture(autouse=True)
def standing_time(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    def now(_: Clock) -> Any:
        return clock.time

    def new_id(_: Clock, prefix: str) -> str:
        return FakeClock.new_id(clock, prefix)

    monkeypatch.setattr(Clock, "now", now)
    monkeypatch.setattr("mcp_state.store.postgres.database._At.now", now)
    monkeypatch.setattr(Clock, "new_id", new_id)


@pytest.fixture(autouse=True)
def no_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ok(run: Run) -> Ok:
    def invoke(*words: str, code: int = 0, stdin: str | bytes = "", **changes: str | None) -> str:
        result = run(*words, stdin=stdin, **changes)
        assert (result.exit_code, result.stderr) == (code, "")
        return result.stdout

    return invoke


@pytest.fixture
def refused(run: Run) -> Refused:
    def invoke(*words: str, code: int = 1, stdin: str | bytes = "", **changes: str | None) -> str:
        result = run(*words, stdin=stdin, **changes)
        assert (result.exit_code, result.stdout) == (code, "")
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
        return result.stderr.removeprefix("error: ").rstrip("\n")

    return invoke


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(environment: dict[str, str | None], monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What a command prints on a terminal of a given width."""

    def invoke(*words: str, columns: int = 100, code: int = 0, **changes: str) -> str:
        with monkeypatch.context() as patch:
            for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
                patch.delenv(name, raising=False)
            patch.setenv("TERM", "xterm-256color")
            patch.setenv("COLUMNS", str(columns))
            for name, value in (environment | changes).items():
                if value is None:
                    patch.delenv(name, raising=False)
                else:
                    patch.setenv(name, value)
            screen = Terminal()
            patch.setattr(sys, "stdout", screen)
            with pytest.raises(SystemExit) as end:
                main(list(words))
        assert (end.value.code or 0) == code
        return screen.getvalue()

    return invoke


_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in _STYLE.sub("", text).splitlines()]


@pytest.fixture
def spent(ok: Ok, run: Run) -> None:
    """A run of two attempts, of which both are gone, and its thread."""
    ok("thread", "set", "import", "--title", "Import v2")
    ok("runs", "begin", "reindex", "Reindex the archive", "--thread", "import", "--attempts", "2")
    ok("runs", "step", "begin", "reindex", "one")
    ok("runs", "step", "end", "reindex", "one", "exit 1", "--failed")
    ok("runs", "step", "begin", "reindex", "one")
    ok("runs", "step", "end", "reindex", "one", "42 rows", "--ok")
    assert run("runs", "step", "begin", "reindex", "two").exit_code == 1


def test_a_script_does_each_step_once(ok: Ok, refused: Refused, clock: FakeClock) -> None:
    begin = ("runs", "step", "begin", "nightly", "copy")
    assert refused(*begin) == (
        "not_found: no run 'nightly'. `mcp-state runs list` shows them; `mcp-state runs begin` or "
        "`mcp-state runs checkpoint` begins one."
    )
    assert ok("runs", "begin", "nightly", "Copy the archive", "--agent", "cron") == (
        "begun: nightly, no budget. `mcp-state runs step begin nightly STEP` before each step, "
        "`mcp-state runs checkpoint` now and then.\n"
        "[acme (from --project) · 0 threads · event 1]\n"
    )
    assert ok(*begin, "--input", "/mail") == (
        "go: step copy of nightly, attempt 1\n"
        "then `mcp-state runs step end nightly copy RESULT --ok/--failed --tokens-in … "
        "--tokens-out …`\n"
        "[acme (from --project) · 0 threads · event 2]\n"
    )
    assert ok("runs", "step", "end", "nightly", "copy", "-", "--failed", stdin="no\nspace\n") == (
        "recorded: step copy of nightly failed, attempt 1\n"
        "run: 0 of 1 step done; spent: 1 attempt, 0 min\n"
        "[acme (from --project) · 0 threads · event 3]\n"
    )
    clock.move(minutes=3)
    assert ok(*begin, "--input", "/mail") == (
        "go: step copy of nightly, attempt 2\n"
        "the last outcome: no space\n"
        "then `mcp-state runs step end nightly copy RESULT --ok/--failed --tokens-in … "
        "--tokens-out …`\n"
        "[acme (from --project) · 0 threads · event 4]\n"
    )
    end = ("runs", "step", "end", "nightly", "copy", "42 files", "--ok", "--tokens-in", "1200")
    assert ok(*end, "--tokens-out", "30") == (
        "recorded: step copy of nightly done, attempt 2\n"
        "run: 1 of 1 step done; spent: 2 attempts, 3 min, 1,230 tokens (1,200 in, 30 out)\n"
        "[acme (from --project) · 0 threads · event 5]\n"
    )
    assert ok(*begin, "--input", "/mail", code=3) == (
        "done: step copy of nightly, person just now. Do not do it again.\n"
        "result: 42 files\n"
        "[acme (from --project) · 0 threads · event 5]\n"
    )
    assert ok(*end).startswith("recorded already, unchanged: step copy of nightly done, attempt 2")
    assert refused("runs", "step", "end", "nightly", "copy", "43 files", "--ok").startswith(
        "conflict: step 'copy' of run 'nightly' was done just now, with the result '42 files'. "
    )
    assert ok("runs", "finish", "nightly", "Completed", "--evidence", "42 files there") == (
        "ended: nightly [completed, 1 of 1 step done, ended just now]  Copy the archive\n"
        "evidence: 42 files there\n"
        "spent: 2 attempts, 3 min, 1,230 tokens (1,200 in, 30 out)\n"
        "[acme (from --project) · 0 threads · event 7]\n"
    )
    assert ok(*begin, code=3).startswith("done: step copy of nightly, ")
    assert refused("runs", "step", "begin", "nightly", "check").startswith(
        "illegal_transition: stop: run 'nightly' is completed, and step 'check' was not done in it."
    )


def test_the_answer_to_a_script_in_json_has_the_same_exit_code(ok: Ok) -> None:
    ok("runs", "begin", "nightly", "Copy")

    begun = json.loads(ok("runs", "step", "begin", "nightly", "copy", "--json"))
    ok("runs", "step", "end", "nightly", "copy", "--ok")
    done = json.loads(ok("runs", "step", "begin", "nightly", "copy", "--json", code=3))

    assert (begun["go"], begun["attempt"], begun["step"]["status"]) == (True, 1, "open")
    assert (done["go"], done["attempt"], done["step"]["status"]) == (False, 0, "done")
    assert done["scope"]["project"] == "acme"


def test_the_exit_codes_of_a_script_are_documented_with_the_command(ok: Ok) -> None:
    def told(*words: str) -> list[tuple[str, str]]:
        return re.findall(r"\b(\d): (\w+)", " ".join(ok(*words, "--help").split()))

    assert told("runs", "step", "begin") == [
        ("0", "go"),
        ("3", "done"),
        ("1", "stop"),
        ("2", "wrong"),
    ]
    assert told("due") == [
        ("0", "something"),
        ("3", "nothing"),
        ("1", "the"),
        ("2", "wrong"),
    ]


def test_an_attempt_that_another_left_open_is_told_and_stops_nobody(
    ok: Ok, clock: FakeClock
) -> None:
    ok("runs", "begin", "nightly", "Copy")
    ok("runs", "step", "begin", "nightly", "copy", "--agent", "cron")
    clock.move(hours=2)

    assert ok("runs", "step", "begin", "nightly", "copy").splitlines()[:2] == [
        "go: step copy of nightly, attempt 2",
        "attempt 1, begun by cron 2 h ago, was never ended: look whether its work is there already",
    ]


def test_how_an_attempt_went_has_to_be_said(ok: Ok, refused: Refused) -> None:
    ok("runs", "begin", "nightly", "Copy")
    ok("runs", "step", "begin", "nightly", "copy")

    assert refused("runs", "step", "end", "nightly", "copy", code=2) == (
        "bad_argument: neither --ok nor --failed was given. Give one of them."
    )
    assert refused("runs", "step", "end", "nightly", "none", "--ok").startswith(
        "not_found: step 'none' of run 'nightly' was never begun. "
    )
    assert refused(
        "runs", "step", "end", "nightly", "copy", "--ok", "--tokens-in", "-1", code=2
    ) == ("bad_argument: --tokens-in is -1. Give the number that the model reported.")


def test_a_step_that_gets_nowhere_is_refused_until_a_person_resets_it(
    ok: Ok, refused: Refused
) -> None:
    ok("runs", "begin", "nightly", "Copy")
    for _ in range(4):
        ok("runs", "step", "begin", "nightly", "copy")
        ok("runs", "step", "end", "nightly", "copy", "no space", "--failed")

    assert refused("runs", "step", "begin", "nightly", "copy").startswith(
        "no_progress: stop: step 'copy' of run 'nightly' had the same outcome 4 times in a row "
        "for this input: 'no space'. "
    )
    assert "missing option '--reason'" in refused("runs", "reset", "nightly", "copy", code=2)
    assert refused("runs", "reset", "nightly", "copy", "--reason", " ", code=2) == (
        "bad_argument: there is no reason. Say why it may be tried again."
    )
    assert refused("runs", "reset", "nightly", "none", "--reason", "x") == (
        "not_found: run 'nightly' has no step 'none'. `mcp-state runs show nightly` lists them."
    )
    assert ok("runs", "reset", "nightly", "copy", "--reason", "disk replaced") == (
        "reset: step copy of nightly may be tried again, 4 attempts so far\n"
        "[acme (from --project) · 0 threads · event 11]\n"
    )
    assert ok("runs", "step", "begin", "nightly", "copy").startswith(
        "go: step copy of nightly, attempt 5\n"
    )
    assert ok("history", "--since", "10") == (
        "2 events\n"
        "11 person: step nightly/copy reset by a person, was refused (disk replaced) · just now\n"
        "12 person: step nightly/copy attempt 5 begun · just now\n"
        "[acme (from --project) · 0 threads · event 12]\n"
    )


@pytest.mark.usefixtures("spent")
def test_raising_a_budget_unblocks_the_thread_and_is_kept_in_history(
    ok: Ok, refused: Refused
) -> None:
    thread = json.loads(ok("thread", "import", "--json"))["thread"]
    assert (thread["status"], thread["waiting_on"]) == (
        "blocked",
        "a person: the budget of attempts of run reindex is spent",
    )
    told = refused("runs", "step", "begin", "reindex", "two")
    assert told.startswith("budget_spent: stop: run 'reindex' has spent its budget of attempts (")
    assert "`mcp-state runs raise reindex --attempts N --reason WHY`" in told

    assert ok(
        *("runs", "raise", "reindex", "--attempts", "5", "--reason", "nearly there"),
        *("--agent", "ann"),
    ) == (
        "raised: reindex [open, 1 of 1 step done, touched just now]  Reindex the archive\n"
        "spent: 2 of 5 attempts, 0 min\n"
        "[acme (from --project) · 1 thread · event 11]\n"
    )

    assert json.loads(ok("thread", "import", "--json"))["thread"]["status"] == "active"
    assert ok("history", "--since", "9") == (
        "2 events\n"
        "10 ann: run reindex budget raised by a person: attempts 2 -> 5 (nearly there) · just now\n"
        "11 ann: thread import blocked -> active (budget of run reindex raised: nearly there) · "
        "just now\n"
        "[acme (from --project) · 1 thread · event 11]\n"
    )
    assert ok("runs", "step", "begin", "reindex", "two").startswith("go: step two of reindex")


@pytest.mark.usefixtures("spent")
def test_a_budget_is_raised_by_a_new_maximum_with_a_reason(ok: Ok, refused: Refused) -> None:
    raise_ = ("runs", "raise", "reindex")

    assert "missing option '--reason'" in refused(*raise_, "--attempts", "9", code=2)
    assert refused(*raise_, "--attempts", "9", "--reason", " ", code=2) == (
        "bad_argument: there is no reason. "
        "Give a new maximum with --attempts N, --minutes N or --tokens N, and say why "
        'with --reason "…".'
    )
    assert refused(*raise_, "--reason", "x", code=2).startswith("bad_argument: nothing is raised. ")
    assert refused(*raise_, "--attempts", "2", "--reason", "x", code=2) == (
        "bad_argument: the budget of attempts is 2 already. "
        "Give the new maximum, not the difference."
    )
    assert refused(*raise_, "--tokens", "9", "--reason", "x", code=2) == (
        "bad_argument: run 'reindex' has no budget of tokens, so there is nothing to raise. "
        "It has attempts."
    )
    assert refused(*raise_, "--attempts", str(1 << 70), "--reason", "x", code=2).startswith(
        "bad_argument: the budget of attempts is 1180591620717411303424. Give 1 to 1,000,000,000"
    )
    assert refused(*raise_, "--attempts", "many", "--reason", "x", code=2) == (
        "bad_argument: invalid value for '--attempts': 'many' is not a valid integer. "
        "`mcp-state runs raise --help` says what it takes."
    )
    assert refused("runs", "raise", "none", "--attempts", "9", "--reason", "x").startswith(
        "not_found: no run 'none'"
    )
    assert json.loads(ok("runs", "show", "reindex", "--json"))["run"]["max_attempts"] == 2
    ok("runs", "finish", "reindex", "abandoned", "--reflection", "not worth it")
    assert refused(*raise_, "--attempts", "9", "--reason", "x").startswith(
        "illegal_transition: run 'reindex' is abandoned, "
    )


def test_a_run_that_has_spent_two_budgets_stays_stopped_when_one_is_raised(
    ok: Ok, run: Run, clock: FakeClock
) -> None:
    ok("thread", "set", "import")
    budget = ("--attempts", "1", "--minutes", "10")
    ok("runs", "begin", "reindex", "Reindex", "--thread", "import", *budget)
    ok("runs", "step", "begin", "reindex", "one")
    clock.move(hours=1)
    assert run("runs", "step", "begin", "reindex", "two").exit_code == 1

    text = ok("runs", "raise", "reindex", "--attempts", "5", "--reason", "more")

    assert text.splitlines()[:-1] == [
        "raised: reindex [open, 0 of 1 step done, budget of minutes spent, touched just now]  "
        "Reindex",
        "spent: 1 of 5 attempts, 60 of 10 min",
        "It stays stopped: the budget of minutes is spent too.",
    ]
    assert json.loads(ok("thread", "import", "--json"))["thread"]["status"] == "blocked"


def test_runs_are_listed_by_status_the_last_touched_first(ok: Ok, refused: Refused) -> None:
    ok("runs", "begin", "one", "First", "--expected-outcome", "it works", "--minutes", "60")
    ok("runs", "begin", "two", "Second")
    ok("runs", "checkpoint", "one", "got to 41", "--done", "41", "--total", "300")
    ok("runs", "begin", "three", "Third")
    ok("runs", "finish", "three", "failed", "--reflection", "the disk is too small")

    assert ok("runs") == ok("runs", "list")
    assert ok("runs") == (
        "3 of 3 runs (2 open · 0 completed · 1 failed · 0 abandoned)\n"
        "three [failed, ended just now]  Third\n"
        "    spent: 0 attempts, 0 min\n"
        "    reflection: the disk is too small\n"
        "one [open, 41/300, touched just now]  First\n"
        "    spent: 0 attempts, 0 of 60 min\n"
        "two [open, touched just now]  Second\n"
        "    spent: 0 attempts, 0 min\n"
        "[acme (from --project) · 0 threads · event 5]\n"
    )
    assert ok("runs", "-n", "1").startswith("1 of 3 runs (")
    assert ok("runs", "--status", "OPEN").startswith("2 of 2 open runs (")
    assert ok("runs", "--status", "abandoned") == (
        "No abandoned runs here. Runs: 2 open · 0 completed · 1 failed · 0 abandoned.\n"
        "[acme (from --project) · 0 threads · event 5]\n"
    )
    page = json.loads(ok("runs", "list", "--status", "open", "-n", "1", "--json"))
    assert (page["total"], [r["name"] for r in page["runs"]]) == (2, ["one"])
    assert refused("runs", "--status", "done", code=2) == (
        "bad_argument: status is 'done'. Statuses are open, completed, failed, abandoned."
    )
    assert "is no number from" in refused("runs", "-n", "0", code=2)


@pytest.mark.usefixtures("spent")
def test_a_person_sees_everything_that_a_run_did(ok: Ok, refused: Refused) -> None:
    ok("runs", "checkpoint", "reindex", "got to 41", "--done", "41", "--next-action", "go at 42")
    ok("memory", "set", "cursor", "41", "--run", "reindex")

    assert ok("runs", "show", "reindex") == (
        "reindex [open, 41 done, 1 of 1 step done, budget of attempts spent, touched just now]  "
        "Reindex the archive\n"
        "goal: Reindex the archive\n"
        "thread: import\n"
        "begun just now, worked on by person just now\n"
        "spent: 2 of 2 attempts, 0 min\n"
        "the budget of attempts is spent: no further step will be begun\n"
        "checkpoints (1):\n"
        "    1 (41 done) person just now, (no directory is known for this call): got to 41\n"
        "steps (1):\n"
        "    one [done, 2 attempts] person just now: 42 rows\n"
        "memory (1):\n"
        "    cursor of run reindex · version 1 · 2/4096 chars · person just now\n"
        "events (9):\n"
        "    2 person: run reindex begun: Reindex the archive · just now\n"
        "    3 person: step reindex/one attempt 1 begun · just now\n"
        "    4 person: step reindex/one attempt 1 failed: exit 1 · just now\n"
        "    5 person: step reindex/one attempt 2 begun · just now\n"
        "    6 person: step reindex/one attempt 2 ok: 42 rows · just now\n"
        "    7 person: run reindex the budget of attempts is spent · just now\n"
        "    8 person: thread import active -> blocked (waiting on a person: the budget of "
        "attempts of run reindex is spent) · just now\n"
        "    9 person: checkpoint reindex/1 checkpoint 1, 41 done: go at 42 · just now\n"
        "    10 person: memory reindex/cursor set, 2 chars · just now\n"
        "[acme (from --project) · 1 thread · event 10]\n"
    )
    short = ok("runs", "show", "reindex", "-n", "1")
    assert "\nevents (9, the last 1 shown):\n    10 person: memory" in short
    detail = json.loads(ok("runs", "show", "REINDEX", "--json"))
    assert [len(detail[part]) for part in ("checkpoints", "steps", "memory", "events")] == [
        1,
        1,
        1,
        9,
    ]
    assert refused("runs", "show", "reindxe") == (
        "not_found: no run 'reindxe'; there is 'reindex'. "
        "`mcp-state runs list` shows them; `mcp-state runs begin` or `mcp-state runs checkpoint` "
        "begins one."
    )
    assert refused("runs", "show", code=2) == (
        "bad_argument: missing argument 'RUN'. `mcp-state runs show --help` says what it takes."
    )


def test_nothing_of_a_long_run_is_left_out_for_a_person(ok: Ok) -> None:
    ok("runs", "begin", "long", "Long")
    for number in range(3):
        ok("runs", "checkpoint", "long", f"{number} " + "x" * 8000)
        ok("memory", "set", f"block{number}", "y" * 4000, "--run", "long")

    for words in (("resume", "long"), ("show", "long")):
        assert "left out" not in ok("runs", *words)
    assert len(ok("runs", "resume", "long")) > 16_000


def test_a_run_is_resumed_from_its_last_or_an_earlier_checkpoint(
    ok: Ok, refused: Refused, clock: FakeClock
) -> None:
    assert ok("runs", "resume") == (
        "found: no. There is no unfinished run; `mcp-state runs begin` or `mcp-state runs "
        "checkpoint` begins one.\n"
        "[acme (from --project) · nothing stored yet]\n"
    )
    ok("runs", "begin", "old", "An older one")
    assert ok("runs", "checkpoint", "reindex", "-", "--total", "300", stdin="at 1\nof 300") == (
        "checkpoint 1 saved: reindex [open, touched just now]  at 1 of 300\n"
        "git: (no directory is known for this call)\n"
        "[acme (from --project) · 0 threads · event 3]\n"
    )
    ok("memory", "set", "cursor", "41", "--run", "reindex")
    ok(*("runs", "checkpoint", "reindex", "at 41", "--done", "41", "--next-action", "go at 42"))
    clock.move(hours=9)

    assert ok("runs", "resume") == ok("runs", "resume", "reindex")
    assert ok("runs", "resume") == (
        "found: yes. reindex [open, 41 done, touched 9 h ago]  at 1 of 300\n"
        "1 other run unfinished: `mcp-state runs list --status open`\n"
        "spent: 0 attempts, 9 h; resuming resets nothing\n"
        "To go on: `mcp-state runs step begin reindex STEP` before each step, `mcp-state runs "
        "checkpoint` now and then.\n"
        "checkpoint 2 of 2 (41 done), event 5, person 9 h ago; git then: (no directory is known "
        "for this call)\n"
        "next: go at 42\n"
        "state: at 41\n"
        "what differs now:\n"
        "    git cannot tell: no directory is known for this call\n"
        "memory of the run, 1 block:\n"
        "    cursor of run reindex · version 1 · 2/4096 chars · person 9 h ago\n"
        "        41\n"
        "[acme (from --project) · 0 threads · event 5]\n"
    )
    first = json.loads(ok("runs", "resume", "reindex", "--number", "1", "--json"))
    assert (first["checkpoint"]["state"], first["memory"]) == ("at 1\nof 300", [])
    assert refused("runs", "resume", "reindex", "--number", "3").startswith(
        "not_found: run 'reindex' has no checkpoint 3; it has 1 to 2. "
    )
    ok("runs", "finish", "reindex", "completed", "--result", "all in", "--evidence", "exit 0")
    assert ok("runs", "resume", "reindex").startswith("found: completed. reindex [completed, ")
    assert ok("runs", "resume").startswith("found: yes. old [open, ")


def test_a_checkpoint_that_makes_no_sense_is_refused(ok: Ok, refused: Refused, path: str) -> None:
    checkpoint = ("runs", "checkpoint", "reindex")

    assert refused(*checkpoint, " ", code=2).startswith("bad_argument: state is empty. ")
    assert refused(*checkpoint, "x", "--done", "5", "--total", "4", code=2) == (
        "bad_argument: done is 5, of a total of 4. Correct one of them."
    )
    assert refused(*checkpoint, "x", "--done", str(1 << 70), code=2).startswith(
        "bad_argument: done is 1180591620717411303424. Give 0 to 1,000,000,000."
    )
    assert refused(*checkpoint, "x", "--thread", "none").startswith("not_found: no thread 'none'")
    assert refused(*checkpoint, "-", stdin=b"a" * (5 << 20)).startswith("over_limit: standard inpu")
    assert refused(*checkpoint, "x" * 9000).startswith("over_limit: the state would be 9,000 char")
    assert refused(*checkpoint, "x", "--expected-number", "1").startswith(
        "version_conflict: run 'reindex' does not exist, so its last checkpoint is not 1. "
    )
    assert ok("runs") == (
        "No runs yet. `mcp-state runs begin` or `mcp-state runs checkpoint` begins one.\n"
        "[acme (from --project) · nothing stored yet]\n"
    )
    ok(*checkpoint, "x", "--expected-number", "0")
    assert refused(*checkpoint, "y", "--expected-number", "0").startswith(
        "version_conflict: the last checkpoint of run 'reindex' is 1 (by person just now), not 0. "
    )


def test_a_run_begins_once_and_with_a_goal(ok: Ok, refused: Refused) -> None:
    assert refused("runs", "begin", "reindex", code=2) == (
        "bad_argument: there is no run 'reindex', and a new run needs a goal. "
        "Say in GOAL what it is to reach."
    )
    assert refused("runs", "begin", "", "Reindex", code=2) == (
        "bad_argument: RUN is empty. Give the run a name."
    )
    assert refused("runs", "begin", "reindex", "Reindex", "--attempts", "0", code=2).startswith(
        "bad_argument: the budget of attempts is 0. Give 1 to "
    )
    assert ok(
        *("runs", "begin", "reindex", "Reindex", "--attempts", "9"),
        *("--minutes", "60", "--tokens", "5000"),
    ).startswith("begun: reindex, budget: 9 attempts, 60 minutes, 5,000 tokens. ")
    there = ok("runs", "begin", "Reindex", "Another goal", "--attempts", "90").splitlines()
    assert there[:3] == [
        "there already: reindex [open, touched just now]  Reindex",
        "these are not as you gave them, and stay as they are: GOAL, --attempts",
        "spent: 0 of 9 attempts, 0 of 60 min, 0 of 5,000 tokens (0 in, 0 out)",
    ]
    assert json.loads(ok("runs", "begin", "reindex", "--json"))["existing"] is True


def test_a_run_ends_once_and_with_a_reason(ok: Ok, refused: Refused) -> None:
    finish = ("runs", "finish", "reindex")
    ok("runs", "begin", "reindex", "Reindex")

    assert refused(*finish, "completed").startswith(
        "evidence_required: run 'reindex' is not completed without evidence. "
    )
    assert refused(*finish, "abandoned", code=2) == (
        "bad_argument: run 'reindex' is to be abandoned without a reason. "
        'Say in --reflection "…" why, so that nobody tries it again.'
    )
    assert refused(*finish, "open", "--result", "x", code=2) == (
        "bad_argument: status is open, which is no end. End it completed, failed or abandoned."
    )
    assert refused(*finish, code=2) == (
        "bad_argument: missing argument 'STATUS'. "
        "`mcp-state runs finish --help` says what it takes."
    )
    ended = json.loads(ok(*finish, "failed", "--result", "half", "--reflection", "no", "--json"))
    assert (ended["status"], ended["result"], ended["reflection"]) == ("failed", "half", "no")
    assert ok(*finish, "failed", "--result", "half").startswith("ended already, unchanged: reind")
    assert refused(*finish, "completed", "--evidence", "x").startswith("conflict: run 'reindex' is")


def test_people_and_scripts_write_under_their_own_names(ok: Ok) -> None:
    ok("runs", "begin", "one", "First")
    ok("runs", "begin", "two", "Second", MCP_STATE_AGENT="cron")
    ok("runs", "begin", "three", "Third", "--agent", "ann", MCP_STATE_AGENT="cron")

    runs = json.loads(ok("runs", "--json"))["runs"]

    assert [(r["name"], r["touched_by"]["agent"]) for r in runs] == [
        ("three", "ann"),
        ("two", "cron"),
        ("one", "person"),
    ]


def test_a_group_without_a_command_says_which_it_has(refused: Refused) -> None:
    assert refused("runs", "step", code=2) == (
        "bad_argument: mcp-state runs step needs a command. It has begin, end."
    )
    assert refused("handoff", code=2) == (
        "bad_argument: mcp-state handoff needs a command. It has accept, create."
    )
    assert refused("runs", "shwo", "reindex", code=2).startswith(
        "bad_argument: mcp-state runs has no command 'shwo'. Did you mean `mcp-state runs show`? "
    )
    assert refused("runs", "step", "start", "reindex", "one", code=2) == (
        "bad_argument: mcp-state runs step has no command 'start'. Did you mean `mcp-state runs "
        "step begin`? `mcp-state runs step --help` lists them all."
    )
    assert refused("runs", "--reason", code=2).startswith("bad_argument: no such option '--reason'")


def test_any_script_may_be_in_a_name_and_in_a_text(ok: Ok) -> None:
    ok("runs", "begin", "Überprüfung 数据", "Prüfe ✓", "--agent", "Zoë")
    ok("runs", "step", "begin", "überprüfung 数据", "Schritt ①", "--input", "ä")
    ok("runs", "step", "end", "ÜBERPRÜFUNG 数据", "schritt ①", "fertig ✓", "--ok")

    assert "    Schritt ① [done, 1 attempt] person just now: fertig ✓\n" in ok(
        "runs", "show", "Überprüfung 数据"
    )
    assert ok("runs", "step", "begin", "Überprüfung 数据", "Schritt ①", code=3).endswith(
        "result: fertig ✓\n[acme (from --project) · 0 threads · event 3]\n"
    )


def test_what_cannot_be_stored_is_replaced_and_counted(run: Run, ok: Ok) -> None:
    result = run("runs", "checkpoint", "reindex", "-", stdin=b"at \xff 41")

    assert (result.exit_code, result.stderr) == (
        0,
        "note: 1 character that cannot be stored became U+FFFD\n",
    )
    assert "\nstate: at \ufffd 41\n" in ok("runs", "resume")


def test_names_that_begin_with_a_dash_stand_after_two(ok: Ok, refused: Refused) -> None:
    assert "A text that begins with - stands after --." in refused(
        "runs", "begin", "-x", "- goal", code=2
    )
    ok("runs", "begin", "--", "-x", "- goal")
    ok("runs", "step", "begin", "--", "-x", "-s")
    ok("runs", "step", "end", "--ok", "--", "-x", "-s", "-r")
    ok("memory", "set", "--run", "-x", "--", "-k", "-v")
    ok("journal", "append", "--run=-x", "--", "- done")

    assert ok("runs", "step", "begin", "--", "-x", "-s", code=3).startswith("done: step -s of -x, ")
    assert ok("runs", "show", "--", "-x").startswith("-x [open, 1 of 1 step done, touched just n")
    assert ok("memory", "get", "--run", "-x", "--", "-k").startswith("-v\n-k of run -x · version 1")
    assert "\n    - done\n" in ok("journal", "--run", "-x")
    ok("runs", "finish", "--reflection", "-", "--", "-x", "abandoned")


# What is due


def due_threads(ok: Ok, clock: FakeClock) -> None:
    """Two that are due since 2 h and 1 h, one in 2 h, and one to work on."""
    ok("thread", "set", "second", "--status", "watching", "--recheck-after", "2h")
    ok(
        *("thread", "set", "first", "--status", "blocked", "--waiting-on", "review"),
        *("--recheck-after", "1h", "--title", "The first", "--check", "gh pr view 1"),
    )
    ok("thread", "set", "later", "--status", "watching", "--recheck-after", "5h")
    ok("thread", "set", "active", "--priority", "1")
    clock.move(hours=3)


def test_what_is_due_is_listed_in_the_order_of_the_queue(ok: Ok, clock: FakeClock) -> None:
    due_threads(ok, clock)

    assert ok("due") == (
        "2 of 2 threads that are due (1 active · 2 watching · 1 blocked · 0 done · 0 dropped)\n"
        "first [blocked, due 2 h ago]  The first\n"
        "    waiting on review, since 3 h\n"
        "    check: gh pr view 1\n"
        "second [watching, due 1 h ago]\n"
        "[acme (from --project) · 4 threads · event 4]\n"
    )
    assert ok("due", "-n", "1").splitlines()[:2] == [
        "1 of 2 threads that are due (1 active · 2 watching · 1 blocked · 0 done · 0 dropped)",
        "first [blocked, due 2 h ago]  The first",
    ]
    found = json.loads(ok("due", "--limit", "1", "--json"))
    assert ([t["name"] for t in found["threads"]], found["total"]) == (["first"], 2)
    assert (found["capped"], "next" in found, found["scope"]["project"]) == (False, False, "acme")


def test_nothing_due_says_what_will_be_and_when(ok: Ok, clock: FakeClock) -> None:
    ok("thread", "set", "active", "--priority", "1")
    assert ok("due", code=3) == (
        "Nothing is due, and no thread waits for its time.\n"
        "[acme (from --project) · 1 thread · event 1]\n"
    )
    ok("thread", "set", "tomorrow", "--status", "watching")
    ok("thread", "set", "soon", "--status", "blocked", "--waiting-on", "CI", "--recheck-after=20m")

    assert ok("due", code=3) == (
        "Nothing is due. Next, at 09:20 UTC:\n"
        "soon [blocked, look again in 20 min]\n"
        "    waiting on CI, since just now\n"
        "[acme (from --project) · 3 threads · event 3]\n"
    )
    found = json.loads(ok("due", "--json", code=3))
    assert (found["threads"], found["total"], found["next"]["name"]) == ([], 0, "soon")

    clock.move(minutes=20)
    assert ok("due").startswith("1 of 1 threads that are due (")
    ok("thread", "set", "soon", "--status", "done", "--evidence", "exit 0")
    assert ok("due", code=3).startswith("Nothing is due. Next, at 30 Nov 09:00 UTC:\ntomorrow [wa")


def test_nothing_is_due_where_nothing_is_stored(ok: Ok, path: str) -> None:
    assert ok("due", code=3) == (
        "Nothing is due: there are no threads yet.\n[acme (from --project) · nothing stored yet]\n"
    )
    assert json.loads(ok("due", "--json", code=3))["threads"] == []
    assert not exists(path)


def test_a_project_that_the_store_does_not_hold_is_neither_due_nor_not(
    ok: Ok, refused: Refused
) -> None:
    ok("journal", "append", "hello")

    assert refused("due", "--project", "acmee") == (
        "not_found: no project 'acmee'; there is 'acme'. `mcp-state projects` lists all of them."
    )
    assert refused("due", MCP_STATE_PROJECT=None) == (
        "project_unknown: this command does not say which project it belongs to; "
        "known projects: acme. Pass --project NAME, or run it in a git repository."
    )


@pytest.mark.sqlite
def test_a_store_that_cannot_be_read_is_neither_due_nor_not(
    ok: Ok, refused: Refused, path: str, tmp_path: Path
) -> None:
    ok("journal", "append", "hello")
    Path(path).write_bytes(b"no database" * 1000)

    assert refused("due").startswith(f"store_damaged: {path}: ")
    assert refused("due", "--db", str(tmp_path)).startswith(f"store_damaged: {tmp_path}: this is a")
    assert refused("due", "--db", f"{path}/state.db").startswith("store_damaged: ")
    assert refused("due", "--db", "state.db", code=2).startswith("bad_argument: --db is 'state.db'")
    assert refused("due", "now", code=2) == (
        "bad_argument: got unexpected extra argument (now). "
        "`mcp-state due --help` says what it takes."
    )
    assert "is no number from" in refused("due", "-n", "0", code=2)


# Handoffs


def test_work_is_offered_and_taken_over_once(ok: Ok, refused: Refused, clock: FakeClock) -> None:
    ok("thread", "set", "import", "--title", "Import v2", "--check", "make test")
    ok("runs", "begin", "reindex", "Reindex")
    ok("memory", "set", "plan", "one")
    codex = {"MCP_STATE_AGENT": "codex", "CLAUDE_CODE_SESSION_ID": "s1"}
    ok("thread", "claim", "import", "--lease", "4h", **codex)

    made = ok("handoff", "create", "-", "--to", "ann", stdin="run the tests,\nthen go on", **codex)
    assert made == (
        "offered as h-1: 1 open thread, 1 unfinished run, 1 block of memory. The next agent sees "
        "it in its orient; in a shell, `mcp-state handoff accept h-1` takes it over. For another "
        "machine: `mcp-state export --handoff h-1 FILE`, there `mcp-state import FILE`.\n"
        "run these checks before you rely on what is stored:\n"
        "    import: make test\n"
        "[acme (from --project) · 1 thread · event 5]\n"
    )
    clock.move(minutes=10)

    taken = ok("handoff", "accept", "H-1", "--agent", "ann")

    assert taken.startswith(
        "taken over: h-1 from codex 10 min ago, meant for ann\n"
        "note:\n"
        "    run the tests,\n"
        "    then go on\n"
        "now held by you: import, --lease-token 7 until 13:00 UTC\n"
        "run these checks before you rely on what is stored:\n"
        "    import: make test\n"
        "project acme (from --project) · agent ann · "
    )
    assert taken.endswith("\n[acme (from --project) · 1 thread · event 7]\n")
    assert taken.count("[acme (from --project)") == 1
    assert refused("handoff", "accept", "h-1") == (
        "conflict: handoff h-1 was taken by ann just now. "
        "Ask them, or look at what is free: `mcp-state threads`, `mcp-state thread claim` "
        "without a thread."
    )


def test_a_handoff_in_json_holds_what_the_text_holds(ok: Ok, refused: Refused) -> None:
    made = json.loads(ok("handoff", "create", "go on", "--json"))
    taken = json.loads(ok("handoff", "accept", made["handoff"]["key"], "--json"))

    assert (made["handoff"]["note"], made["threads"]) == ("go on", 0)
    assert taken["handoff"]["accepted_by"]["agent"] == "person"
    assert taken["packet"].startswith("project acme (from --project) · agent person · ")
    assert (taken["checks"], taken["leases"], taken["scope"]["event"]) == ([], [], 2)
    assert refused("handoff", "create", " ", code=2) == (
        "bad_argument: note is empty. Say what the next one must know and do first."
    )
    assert refused("handoff", "create", code=2).startswith("bad_argument: missing argument 'NOTE'.")
    assert refused("handoff", "accept", "h-9") == (
        "not_found: no handoff 'h-9'; there is 'h-1'. "
        "`mcp-state handoff create` makes one; `mcp-state orient` shows the open ones."
    )


# What belongs to a run


def test_the_memory_of_a_run_is_its_own(ok: Ok, refused: Refused) -> None:
    of_run = ("--run", "reindex")
    ok("runs", "begin", "Reindex", "Reindex")
    ok("memory", "set", "plan", "the project's")

    assert ok("memory", *of_run) == (
        "No blocks of run Reindex yet. `mcp-state memory set KEY VALUE --run …` makes one.\n"
        "[acme (from --project) · 0 threads · event 2]\n"
    )
    assert ok("memory", "set", "plan", "one", "--ttl", "4h", *of_run).startswith(
        "saved: plan of run Reindex · version 1 · 3/4096 chars · person just now · expires in 4 h\n"
    )
    ok("memory", "append", "plan", "+two", "--idempotency-key", "k", *of_run)
    assert ok("memory", "get", "plan", "--version", "1", *of_run).startswith("one\nplan of run Rei")
    assert ok("memory", "delete", "plan", "--expected-version", "2", *of_run).startswith(
        "deleted: plan, which was at version 2. "
    )
    assert refused("memory", "plan", *of_run).startswith('not_found: block "plan" was deleted; ')
    assert ok("memory", "restore", "plan", "2", *of_run).startswith("saved: plan of run Reindex · ")
    assert ok("memory", *of_run).splitlines()[:3] == [
        "1 block of run Reindex:",
        "plan of run Reindex · version 4 · 7/4096 chars · person just now",
        "    one+two",
    ]
    assert json.loads(ok("memory", "plan", "--json"))["value"] == "the project's"
    assert refused("memory", "set", "plan", "x", "--run", "none").startswith("not_found: no run 'n")


def test_a_locked_block_of_a_run_is_unlocked_as_the_refusal_says(ok: Ok, refused: Refused) -> None:
    for name, key in (("reindex", "plan"), ("two words", "it's $HOME"), ("-r", "-k")):
        of_run = ("--run", name)
        ok("runs", "begin", "--", name, "Goal")
        ok("memory", "set", *of_run, "--", key, "one")
        locked = ok("memory", "lock", "--reason", "agreed", *of_run, "--", key)
        assert locked.startswith(f"locked: {key} of run {name} · version 1 ")

        told = refused("memory", "set", *of_run, "--", key, "two")

        assert told.startswith(f"locked: block {key!r} of run {name!r} was locked by a person: agr")
        command = re.findall("`(.*)`", told)[0]
        assert shlex.split(command)[:3] == ["mcp-state", "memory", "unlock"]
        assert ok(*shlex.split(command)[1:]).startswith(f"unlocked: {key} of run {name} · version")
        ok("memory", "set", *of_run, "--", key, "two")

    assert "`mcp-state memory unlock --run reindex plan`" in _lock(ok, refused, "--run", "reindex")
    ok("memory", "set", "plan", "one")
    assert "`mcp-state memory unlock plan`" in _lock(ok, refused)


def _lock(ok: Ok, refused: Refused, *of_run: str) -> str:
    ok("memory", "lock", "plan", "--reason", "agreed", *of_run)
    return refused("memory", "set", "plan", "three", *of_run)


def test_entries_of_a_run_are_read_by_it(ok: Ok, refused: Refused) -> None:
    ok("runs", "begin", "reindex", "Reindex")
    ok("journal", "append", "beside it")
    ok("journal", "append", "for it", "--run", "Reindex", "--kind", "decision")

    assert ok("journal", "--run", "reindex") == (
        "1 entry\n"
        "3 person just now [decision, run reindex]\n"
        "    for it\n"
        "[acme (from --project) · 0 threads · event 3]\n"
    )
    assert refused("journal", "--run", "none").startswith("not_found: no run 'none'")
    assert refused("journal", "-f", "--run", "none").startswith("not_found: no run 'none'")
    assert refused("journal", "append", "x", "--run", "none").startswith("not_found: no run 'none'")


def test_search_narrows_to_a_run_and_finds_runs(ok: Ok, refused: Refused) -> None:
    ok("runs", "begin", "reindex", "Reindex the golden archive")
    ok("memory", "set", "plan", "golden, of the project")
    ok("memory", "set", "plan", "golden, of the run", "--run", "reindex")

    def found(*options: str) -> set[tuple[str, str]]:
        hits = json.loads(ok("search", "golden", *options, "--json"))["hits"]
        return {(hit["kind"], hit["name"]) for hit in hits}

    of_run = {("run", "reindex"), ("memory", "reindex/plan")}
    assert found() == of_run | {("memory", "plan")}
    assert found("--run", "reindex") == of_run
    assert found("--kind", "run", "--kind", "blob") == {("run", "reindex")}
    assert refused("search", "golden", "--run", "none").startswith("not_found: no run 'none'")
    assert refused("search", "golden", "--kind", "runner", code=2) == (
        "bad_argument: kind 'runner' is unknown. Kinds are memory, thread, journal, run, blob, "
        "fact."
    )
    assert "memory, thread, journal, run, blob, fact." in " ".join(ok("search", "--help").split())


def test_a_change_of_a_thread_may_belong_to_a_run(ok: Ok, refused: Refused) -> None:
    ok("runs", "begin", "reindex", "Reindex")
    ok("thread", "set", "fix")
    ok("thread", "set", "fix", "--next-action", "go on", "--run", "REINDEX")

    events = json.loads(ok("history", "thread:fix", "--json"))["events"]

    assert [event["run"] for event in events] == ["", "reindex"]
    assert refused("thread", "set", "fix", "--run", "none", "--note", "x").startswith("not_found: ")


@pytest.mark.parametrize(
    "words",
    [
        ["memory", "get", "plan"],
        ["memory", "set", "plan", "x"],
        ["memory", "append", "plan", "x"],
        ["memory", "delete", "plan"],
        ["memory", "restore", "plan", "1"],
        ["memory", "lock", "plan", "--reason", "x"],
        ["memory", "unlock", "plan"],
        ["journal", "tail"],
        ["journal", "append", "x"],
        ["search", "x"],
        ["thread", "set", "fix"],
    ],
    ids=" ".join,
)
def test_an_empty_run_is_not_taken_for_the_project(
    refused: Refused, path: str, words: list[str]
) -> None:
    assert refused(*words, "--run", "", code=2) == (
        "bad_argument: --run is empty. Name a run, or leave it out."
    )
    assert not exists(path)


# Projects, stores and programs


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_a_reading_command_makes_no_store(run: Run, path: str, words: list[str]) -> None:
    result = run(*words)

    assert result.exit_code == ("reindex" in words)
    assert not exists(path)


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_a_read_without_a_project_answers_with_those_there_are(ok: Ok, words: list[str]) -> None:
    ok("journal", "append", "hello")

    assert ok(*words, MCP_STATE_PROJECT=None) == (
        "This command does not say which project it belongs to. Pass --project NAME, or run it in "
        "a git repository; known are:\n"
        "  acme\n"
        "[no project]\n"
    )


@pytest.mark.parametrize("words", WRITES, ids=" ".join)
def test_a_write_without_a_project_is_refused_with_those_there_are(
    ok: Ok, refused: Refused, words: list[str]
) -> None:
    ok("journal", "append", "hello")

    assert refused(*words, MCP_STATE_PROJECT=None) == (
        "project_unknown: not saved: this command does not say which project it belongs to; "
        "known projects: acme. "
        "Pass --project NAME (a new name begins a new project), or run it in a git repository."
    )


@pytest.mark.parametrize("words", WRITES, ids=" ".join)
def test_a_store_that_cannot_be_made_is_refused(
    refused: Refused, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    assert refused(*words, "--db", str(tmp_path / "file" / "state.db")).startswith("store_")


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_json_holds_the_result_and_its_scope(ok: Ok, words: list[str]) -> None:
    ok("runs", "begin", "reindex", "Reindex the archive")

    answer = json.loads(ok(*words, "--json"))

    scope = answer.pop("scope")
    assert answer
    assert (scope["project"], scope["how"], scope["event"]) == ("acme", "--project", 1)


PROGRAM = str(Path(sys.executable).with_name("mcp-state"))


@pytest.mark.parametrize(
    "words",
    [["due"], ["runs"], ["runs", "begin", "x", "y"], ["handoff", "create", "x"]],
    ids=" ".join,
)
def test_a_command_imports_nothing_slow(path: str, words: list[str]) -> None:
    program = (
        "import atexit, sys\n"
        "from mcp_state.cli import main\n"
        "slow = {'mcp', 'mcp_types', 'pydantic', 'rich', 'anyio'}\n"
        "atexit.register(lambda: print('slow:', *sorted(slow & set(sys.modules))))\n"
        f"main([*{words!r}, '--db', {path!r}, '--project', 'acme'])\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=30, check=False
    )

    assert (done.returncode, done.stderr) == (3 if words == ["due"] else 0, b"")
    assert done.stdout.decode().splitlines()[-1] == "slow:"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["due"], 3),
        (["due", "--json"], 3),
        (["runs", "step", "begin", "nightly", "copy"], 3),
        (["runs"], 0),
    ],
    ids=" ".join(["{}"]).format,
)
def test_the_exit_code_stands_though_nobody_reads_the_output(
    ok: Ok, path: str, words: list[str], code: int
) -> None:
    ok("runs", "begin", "nightly", "Copy")
    ok("runs", "step", "begin", "nightly", "copy")
    ok("runs", "step", "end", "nightly", "copy", "--ok")
    theirs, ours = os.pipe()
    os.close(theirs)

    done = subprocess.run(
        [PROGRAM, *words, "--db", path, "--project", "acme"],
        stdin=subprocess.DEVNULL,
        stdout=ours,
        stderr=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    os.close(ours)

    assert (done.returncode, done.stderr) == (code, b"")


# On a terminal


@pytest.mark.usefixtures("spent")
def test_a_terminal_gets_a_table_of_runs_in_the_colour_of_their_status(
    ok: Ok, shown: Shown
) -> None:
    ok("runs", "begin", "old", "An old one")
    ok("runs", "finish", "old", "failed", "--reflection", "no way")
    ok("runs", "checkpoint", "new", "just begun", "--next-action", "go on")

    text = shown("runs", columns=91)

    assert plain(text) == [
        "3 of 3 runs (2 open · 0 completed · 1 failed · 0 abandoned)",
        "run      status                                 spent                   what",
        "new      open, touched just now                 0 attempts, 0 min       just begun",
        "                                                                        next: go on",
        "old      failed, ended just now                 0 attempts, 0 min       An old one",
        "                                                                        reflection: no "
        "way",
        "reindex  open, 1 of 1 step done, budget of      2 of 2 attempts, 0 min  Reindex the "
        "archive",
        "         attempts spent, touched just now",
        "[acme (from --project) · 1 thread · event 12]",
    ]
    assert "\x1b[32mopen, touched" in text
    assert "\x1b[1;31mopen, 1 of 1 step done, budget" in text
    assert "\x1b[31mfailed, ended" in text


@pytest.mark.usefixtures("spent")
def test_a_terminal_gets_tables_of_what_a_run_did(ok: Ok, shown: Shown) -> None:
    ok("runs", "checkpoint", "reindex", "got to 41", "--done", "41", "--total", "300")
    ok("memory", "set", "cursor", "41", "--run", "reindex")

    text = shown("runs", "show", "reindex", columns=120)

    assert plain(text) == [
        "reindex [open, 41/300, 1 of 1 step done, budget of attempts spent, touched just now]  "
        "Reindex the archive",
        "goal: Reindex the archive",
        "thread: import",
        "begun just now, worked on by person just now",
        "spent: 2 of 2 attempts, 0 min",
        "the budget of attempts is spent: no further step will be begun",
        "checkpoints (1):",
        "number  done    who              git                                    state",
        "1       41/300  person just now  (no directory is known for this call)  got to 41",
        "steps (1):",
        "step  status  attempts  tokens  who              result",
        "one   done    2         0       person just now  42 rows",
        "memory (1):",
        "    cursor of run reindex · version 1 · 2/4096 chars · person just now",
        "events (9):",
        "event  who     what                   change                                            "
        "                        when",
        "2      person  run reindex            begun: Reindex the archive                        "
        "                        just now",
        "3      person  step reindex/one       attempt 1 begun                                   "
        "                        just now",
        "4      person  step reindex/one       attempt 1 failed: exit 1                          "
        "                        just now",
        "5      person  step reindex/one       attempt 2 begun                                   "
        "                        just now",
        "6      person  step reindex/one       attempt 2 ok: 42 rows                             "
        "                        just now",
        "7      person  run reindex            the budget of attempts is spent                   "
        "                        just now",
        "8      person  thread import          active -> blocked (waiting on a person: the budget"
        " of attempts of run     just now",
        "                                      reindex is spent)",
        "9      person  checkpoint reindex/1   checkpoint 1, 41/300: got to 41                   "
        "                        just now",
        "10     person  memory reindex/cursor  set, 2 chars                                      "
        "                        just now",
        "[acme (from --project) · 1 thread · event 10]",
    ]
    assert "\x1b[2mdone" in text
    assert "the \x1b[1;31mbudget of attempts is spent\x1b[0m: no further" in text


def test_a_step_that_was_refused_stands_out(ok: Ok, run: Run, shown: Shown) -> None:
    ok("runs", "begin", "nightly", "Copy")
    for _ in range(4):
        ok("runs", "step", "begin", "nightly", "copy")
        ok("runs", "step", "end", "nightly", "copy", "no space", "--failed")
    assert run("runs", "step", "begin", "nightly", "copy").exit_code == 1

    assert "\x1b[1;31mrefused" in shown("runs", "show", "nightly")


def test_a_terminal_gets_a_table_of_what_is_due(ok: Ok, shown: Shown, clock: FakeClock) -> None:
    due_threads(ok, clock)

    assert plain(shown("due")) == [
        "2 of 2 threads that are due (1 active · 2 watching · 1 blocked · 0 done · 0 dropped)",
        "thread  status                 what",
        "first   blocked, due 2 h ago   The first",
        "                               waiting on review, since 3 h",
        "                               check: gh pr view 1",
        "second  watching, due 1 h ago  second",
        "[acme (from --project) · 4 threads · event 4]",
    ]
    ok("thread", "set", "first", "--status", "active")
    ok("thread", "set", "second", "--status", "active")
    assert plain(shown("due", code=3))[0] == "Nothing is due. Next, at 14:00 UTC:"


@pytest.mark.usefixtures("spent")
def test_no_line_is_wider_than_the_terminal(ok: Ok, shown: Shown, clock: FakeClock) -> None:
    ok("runs", "checkpoint", "数据库" * 20, "state " * 100, "--next-action", "next " * 50)
    due_threads(ok, clock)
    for words in (["runs"], ["runs", "show", "reindex"], ["runs", "resume"], ["due"]):
        lines = plain(shown(*words, columns=50))
        assert lines
        assert max(cell_len(line) for line in lines) <= 50


def test_stored_text_cannot_command_a_terminal(ok: Ok, shown: Shown) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07 \r\x9b2J\nsteps (9):\n    forged"
    ok("runs", "checkpoint", "run", f"s{evil}", "--next-action", f"n{evil}")
    ok("runs", "step", "begin", "run", "one", "--input", evil)
    ok("runs", "step", "end", "run", "one", f"r{evil}", "--failed", "--agent", f"a{evil}")
    ok("memory", "set", "plan", f"m{evil}", "--run", "run")
    key = json.loads(ok("handoff", "create", f"h{evil}", "--json"))["handoff"]["key"]

    for words in (
        ["runs"],
        ["runs", "show", "run"],
        ["runs", "resume"],
        ["runs", "step", "begin", "run", "one"],
        ["runs", "finish", "run", "failed", "--result", evil],
        ["runs"],
        ["handoff", "accept", key],
    ):
        text = _STYLE.sub("", shown(*words))
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), words
        assert "steps (9):" not in plain(text), words
