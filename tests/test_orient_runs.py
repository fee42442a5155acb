"""Long runs in the wake-up packet: where they stand, what was left open, what failed for good."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import FakeClock, Open
from test_orient import headings, part

from mcp_state.api import State
from mcp_state.errors import NoProgress

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")


def make_repository(repository: Path) -> None:
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    commit(repository, "one")


def commit(repository: Path, message: str) -> None:
    command = [*GIT, "commit", "--allow-empty", "-qm", message]
    subprocess.run(command, cwd=repository, check=True)


async def fail_for_good(state: State, run: str, step: str) -> None:
    for _ in range(4):
        await state.steps.begin(run, step)
        await state.steps.end(run, step, False, "no such table: users")
    with pytest.raises(NoProgress):
        await state.steps.begin(run, step)


async def test_an_unfinished_run_says_where_it_stands_and_what_was_left_open(
    open_state: Open, clock: FakeClock
) -> None:
    ada, ben = open_state(agent="ada", session="s1"), open_state(agent="ben", session="s2")
    await ada.runs.begin("Reindex", run="reindex", max_attempts=50)
    await ada.runs.checkpoint("reindex", "41 done", next_action="do 42", done=41, total=300)
    await ada.steps.begin("reindex", "42")
    clock.move(minutes=12)
    packet = await ben.orient(4000)
    assert part(str(packet), "RUN") == [
        'reindex 41/300, 0 of 1 step done, checkpoint 12 min ago   -> run_resume(run_id="reindex")',
        "    next: do 42",
        "    42: attempt 1, begun by ada 12 min ago, was never ended",
    ]
    assert "run_checkpoint after each step of a run" in str(packet)
    (run,) = packet.runs
    assert (run.run.name, run.moved, [s for s, _ in run.left_open]) == ("reindex", False, ["42"])


async def test_a_finished_run_is_gone_from_the_packet_and_a_failed_one_is_a_dead_end(
    state: State,
) -> None:
    await state.runs.begin("a", run="good")
    await state.runs.begin("b", run="bad")
    await state.runs.begin("c", run="let be")
    await state.runs.finish("good", "completed", evidence="make: exit 0")
    await state.runs.finish("bad", "failed", reflection="the API\nhas no bulk call")
    await state.runs.finish("let be", "abandoned", reflection="not needed")
    text = str(await state.orient(4000))
    assert "RUN" not in headings(text)
    assert part(text, "DEAD ENDS") == ["run bad failed (codex just now): the API has no bulk call"]


async def test_what_failed_for_good_shows_until_a_person_resets_it(
    open_state: Open, clock: FakeClock
) -> None:
    ada, ben = open_state(agent="ada", session="s1"), open_state(agent="ben", session="s2")
    await ada.runs.begin("Migrate", run="migrate")
    for _ in range(3):
        await ada.steps.begin("migrate", "users")
        await ada.steps.end("migrate", "users", False, "no such table: users")
    text = str(await ben.orient(4000))
    assert "DEAD ENDS" not in headings(text)
    assert part(text, "RUN")[1:] == [
        "    users: tried 3 times with the same result: change the approach; it is refused after 4"
    ]
    await ada.steps.begin("migrate", "users")
    await ada.steps.end("migrate", "users", False, "no such table: users")
    with pytest.raises(NoProgress):
        await ada.steps.begin("migrate", "users")
    await ada.journal.append("the dump of May is empty", kind="dead_end")
    clock.move(hours=5)
    assert part(str(await ben.orient(4000)), "DEAD ENDS") == [
        "step users of migrate, refused (ada 5 h ago): 4 times 'no such table: users'",
        "11 ada 5 h ago [dead_end, run migrate]: the dump of May is empty",
    ]
    await ben.steps.reset("migrate", "users", "the table is there now")
    assert part(str(await ben.orient(4000)), "DEAD ENDS") == [
        "11 ada 5 h ago [dead_end, run migrate]: the dump of May is empty",
    ]


async def test_a_moved_head_is_told_without_starting_git(
    open_state: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    make_repository(repository)
    state = open_state()
    state.caller.worktree = str(repository)
    await state.runs.checkpoint("reindex", "begun")
    assert "HEAD has moved" not in str(await state.orient())
    commit(repository, "two")
    monkeypatch.setattr(subprocess, "Popen", None)
    assert "checkpoint just now, HEAD has moved since   -> run_resume" in str(await state.orient())


async def test_a_small_budget_keeps_the_run_and_says_what_it_left_out(state: State) -> None:
    for number in range(30):
        await state.runs.checkpoint(f"run {number}", "x" * 500, next_action="y" * 300)
        await state.threads.set(f"thread {number}", title="z" * 200)
    await fail_for_good(state, "run 3", "step")
    for room in range(150, 1000, 10):
        text = str(await state.orient(room))
        assert len(text) <= room * 4
        assert "RUN" in text
    (heading,) = [h for h in headings(str(await state.orient(600))) if h.startswith("RUN")]
    assert heading.endswith('more: run_list(status="open"))')
