"""`mcp-state demo --long`: a slice of it runs as a person runs it; its check finds what is wrong.

`MCP_STATE_SOAK=1` (`make soak`) runs the whole.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import Connect, text_of
from mcp import Client
from soaking import SOAK
from test_demo import in_store, run_demo

from mcp_state.cli import demo_long, main
from mcp_state.cli.demo_long import acknowledged
from mcp_state.cli.demo_long_check import Call, LongStory, examine_long

pytestmark = pytest.mark.sqlite

RUN = "convert-orders"
SEED = 639
KILLED = (
    r"kill -9 of the agent while it recorded orders-18; the answer (was lost|had come)",
    r"kill -9 of its server while it asked for orders-(25|26); the answer (was lost|had come)",
    r"kill -9 of the agent and its server when orders-50 was converted, but not recorded",
)
"""Where the kills of this seed fall; whether a call under way is answered is left to chance."""


def claims_of(items: int, checkpoints: int, kills: str, agents: int, odd: str) -> list[str]:
    """What the long demo says when everything holds."""
    killed = kills.partition(" ")[0]
    return [
        rf"ok {killed} of {killed} times kill -9 \({kills.partition(' ')[2]}\); {agents} agents, "
        "each in a process of its own, wrote to the store",
        r"ok ([\d,]+) of \1 acknowledged writes are there, each exactly once",
        r"ok \d+ of the \d+ calls whose answer a kill took were carried out all the same; "
        "nothing else was written",
        r"ok ([\d,]+) events are numbered 1 to \1, without a gap",
        rf"ok {items} of {items} files were converted, each exactly once",
        rf"ok {items} of {items} steps are done, each with the file that is there as its result; "
        rf"the run counts {items} of {items}",
        r"ok (\d+) attempts = \d+ answered with go \+ \d+ of the \d+ whose answer a kill took; "
        r"the run counts \1",
        rf"ok \d+ attempts = {items} done \+ \d+ failed \+ \d+ never ended",
        f"ok {odd} failed 3 times alike but for the time it took; after the warning the worker did "
        "it in another way",
        r"ok tokens in/out: ([\d,/]+) by the run, \1 by the calls, \1 by the files",
        rf"ok {checkpoints} of {checkpoints} checkpoints, numbered 1 to {checkpoints}, were read "
        "back at the end as they were made, with the memory of that moment",
        rf"ok {RUN} is completed, \d+ of {3 * items} attempts and [\d,]+ of [\d,]+ tokens; "
        f"evidence: python check.py: exit 0, {items} of {items} files have one JSON",
        "ok its thread csv-to-json is done; "
        f"evidence: python check.py: exit 0, {items} of {items} files have one JSON",
        "ok PRAGMA integrity_check: ok",
        r"ok mcp-state doctor: exit 0; Nothing is wrong\.",
    ]


def assert_lines(lines: list[str], wanted: list[str] | tuple[str, ...]) -> None:
    assert len(lines) == len(wanted), lines
    for line, pattern in zip(lines, wanted, strict=True):
        assert re.fullmatch(pattern, line), line


def told(output: str, *beginnings: str) -> list[str]:
    lines = [" ".join(line.split()) for line in output.splitlines()]
    return [line for line in lines if line.startswith(beginnings)]


def test_a_run_that_is_killed_again_and_again_does_every_item_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(demo_long, "ITEMS", 60)
    monkeypatch.setattr(demo_long, "KILLS", 3)

    done = CliRunner().invoke(main, ["demo", "--long", "--seed", str(SEED)])

    assert (done.exit_code, done.stderr) == (0, ""), done.output
    assert told(done.stdout, "Seed") == [f"Seed {SEED} decides where the kills fall."]
    woke = told(done.stdout, "worker-")
    assert woke[0] == "worker-1 orient: nothing is stored yet; plans the job"
    assert_lines(
        woke[1:],
        [
            rf"worker-{n} orient: {RUN} {d}0/60, .* steps done, checkpoint .*"
            for n, d in ((2, 1), (3, 2), (4, 4))
        ],
    )
    assert_lines(told(done.stdout, "kill -9"), KILLED)
    assert told(done.stdout, "told of") == [
        "told of orders-25: tried 3 times with the same result: change the approach; "
        "it is refused after 4"
    ]
    kills = "3 agent 1x, both 1x, server 1x"
    assert_lines(told(done.stdout, "ok ", "FAILED "), claims_of(60, 7, kills, 4, "orders-25"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not SOAK, reason="takes half a minute; the slice above is the same demo")
def test_soak_300_items_are_done_exactly_once_though_the_worker_is_killed_ten_times(
    tmp_path: Path,
) -> None:
    done = run_demo(tmp_path, "--long")

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    kills = r"10 (agent \d+x, )?(both \d+x, )?(server \d+x)?"
    claims = told(done.stdout, "ok ", "FAILED ")
    assert_lines(claims, claims_of(300, 31, kills, 11, "orders-121"))
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_ends_though_nobody_killed_it_ends_the_demo(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("not a database, though it should be one", encoding="utf-8")

    with pytest.raises(SystemExit, match="worker-1 was refused orient: error: store_damaged"):
        demo_long.play(tmp_path, SEED)


def test_a_seed_goes_with_the_long_demo_only() -> None:
    refused = CliRunner().invoke(main, ["demo", "--seed", "1"])

    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: bad_argument: --seed goes with --long")


CSV = "order{0}customer{0}amount\n1{0}one{0}12,50\n"
JSON = '[{"amount": 1250, "customer": "one", "order": "1"}]'
SPENT: dict[str, Any] = {"tokens_in": len(CSV.format(";")) // 4, "tokens_out": len(JSON) // 4}


class Played:
    """A small long demo, played on an in-memory client: what is there, and what was answered."""

    def __init__(self, home: Path) -> None:
        self.data = home / "shop" / "data"
        self.data.mkdir(parents=True)
        self.story = LongStory(["one", "odd"], "odd", 2, killed=["agent", "both"])
        for name, separator in (("one", ";"), ("odd", "\t")):
            (self.data / f"{name}.csv").write_text(CSV.format(separator), encoding="utf-8")

    async def call(
        self, client: Client, agent: str, tool: str, *, lost: bool = False, **arguments: Any
    ) -> str:
        answer = text_of(await client.call_tool(tool, arguments))
        call = Call(agent, tool, arguments)
        write = acknowledged(call, answer)
        if lost:
            self.story.in_flight.append(call)
        elif write is not None:
            self.story.writes.append(write)
        return answer

    async def first(self, client: Client) -> None:
        """Plans, and is killed when it has asked for the first step."""
        budget = {"max_attempts": 9, "max_minutes": 60, "max_tokens": 900}
        begin = {"run_id": RUN, "goal": "all are converted", "thread": "csv", **budget}
        await self.call(client, "a", "thread_set", thread="csv")
        await self.call(client, "a", "state_op", op="run_begin", arguments=begin)
        await self.call(client, "a", "memory_set", run_id=RUN, key="how", value="with ;\nsorted")
        await self.checkpoint(client, "a", "none yet", "one", 0)
        await self.call(client, "a", "step_begin", run_id=RUN, step="one", input=";", lost=True)

    async def second(self, client: Client) -> None:
        """Does everything, and is killed when it has recorded the last step."""
        step: dict[str, Any] = {"run_id": RUN, "step": "one"}
        await self.call(client, "b", "step_begin", **step, input=";")
        await self.call(client, "b", "step_end", **step, **self.done("one", 2))
        await self.checkpoint(client, "b", "up to one", "odd", 1)
        step = {"run_id": RUN, "step": "odd"}
        for took in (0.25, 0.5, 0.125):
            await self.call(client, "b", "step_begin", **step, input=";")
            spent: dict[str, Any] = {**SPENT, "tokens_out": 0}
            result = f"no amount, after {took} s"
            await self.call(client, "b", "step_end", **step, ok=False, result=result, **spent)
        await self.call(client, "b", "memory_append", run_id=RUN, key="how", text="\nodd: tabs")
        await self.call(client, "b", "step_begin", **step, input="tab")
        await self.call(client, "b", "step_end", **step, **self.done("odd", 4), lost=True)

    async def third(self, client: Client) -> None:
        """Finds everything done."""
        await self.checkpoint(client, "c", "up to odd", "the check", 2)
        for number in (1, 2, 3):
            answer = await self.call(client, "c", "run_resume", run_id=RUN, number=number)
            self.story.read_back[number] = answer
        await self.call(client, "c", "thread_set", thread="csv", status="done", evidence="exit 0")
        await self.call(
            client, "c", "run_finish", run_id=RUN, status="completed", evidence="exit 0"
        )

    async def checkpoint(
        self, client: Client, agent: str, state: str, following: str, done: int
    ) -> None:
        reached: dict[str, Any] = {"state": state, "next_action": following, "done": done}
        await self.call(client, agent, "run_checkpoint", run_id=RUN, total=2, **reached)

    def done(self, name: str, attempt: int) -> dict[str, Any]:
        """Convert a file; returns what is recorded of it."""
        file = self.data / f"{name}.{attempt}-0.json"
        file.write_text(JSON, encoding="utf-8")
        return {"ok": True, "result": f"{file.name}: 1 row", **SPENT}


@pytest.fixture
async def played(path: str, connect: Connect) -> LongStory:
    played = Played(Path(path).parent)
    for agent, part in (("a", played.first), ("b", played.second), ("c", played.third)):
        async with connect(agent=agent, session=agent) as client:
            await part(client)
    return played.story


def failed(path: str, story: LongStory) -> list[str]:
    claims = list(examine_long(Path(path), Path(path).parent / "shop", story))
    assert len(claims) == 14
    return [claim.text for claim in claims if not claim.holds]


def test_the_check_of_the_long_demo_finds_nothing_in_an_honest_store(
    path: str, played: LongStory
) -> None:
    assert failed(path, played) == []


def twice_on_disk(home: Path) -> None:
    data = home / "shop" / "data"
    shutil.copy(data / "one.2-0.json", data / "one.1-1.json")


def in_file(home: Path) -> None:
    file = home / "shop" / "data" / "one.2-0.json"
    file.write_text(JSON.replace("1250", "1520"), encoding="utf-8")


READ_BACK = (
    "checkpoints, numbered 1 to 3, were read back at the end as they were made, with the memory "
    "of that moment"
)


@pytest.mark.parametrize(
    ("tamper", "told"),
    [
        pytest.param(
            twice_on_disk,
            [
                "1 of 2 files were converted, each exactly once; more than once: one",
                "tokens in/out: 40/24 by the run, 40/24 by the calls, 40/36 by the files",
            ],
            id="a file is converted twice",
        ),
        pytest.param(
            in_file,
            ["1 of 2 files were converted, each exactly once"],
            id="a file is converted wrongly",
        ),
        pytest.param(
            in_store(
                "INSERT INTO attempts SELECT project, run, step, 3, begun, begun_at, begun_by, "
                "input, ended, ended_at, ended_by, ok, result, tokens_in, tokens_out "
                "FROM attempts WHERE step = 'one' AND number = 2"
            ),
            [
                "7 attempts = 5 answered with go + 2 of the 1 whose answer a kill took; "
                "the run counts 6",
                "7 attempts = 3 done + 3 failed + 1 never ended",
                "tokens in/out: 40/24 by the run, 48/36 by the calls, 48/24 by the files",
            ],
            id="a step is recorded twice",
        ),
        pytest.param(
            in_store("UPDATE runs SET tokens_out = 23"),
            ["tokens in/out: 40/23 by the run, 40/24 by the calls, 40/24 by the files"],
            id="the run counts other tokens",
        ),
        pytest.param(
            in_store("UPDATE attempts SET tokens_in = 9 WHERE step = 'one' AND number = 2"),
            [
                "not there exactly once: step_end one 2",
                "tokens in/out: 40/24 by the run, 49/36 by the calls, 40/24 by the files",
            ],
            id="an attempt has other tokens",
        ),
        pytest.param(
            in_store(
                "UPDATE attempts SET ended = NULL, ok = NULL, result = NULL "
                "WHERE step = 'one' AND number = 2"
            ),
            [
                "not there exactly once: step_end one 2",
                "6 attempts = 1 done + 3 failed + 2 never ended",
                "tokens in/out: 40/24 by the run, 40/24 by the calls, 32/24 by the files",
            ],
            id="an outcome is lost",
        ),
        pytest.param(
            in_store("DELETE FROM attempts WHERE step = 'one' AND number = 2"),
            [
                "not there exactly once: step_begin one 2, step_end one 2",
                "5 attempts = 5 answered with go + 0 of the 1 whose answer a kill took; "
                "the run counts 6",
                "5 attempts = 1 done + 3 failed + 1 never ended",
                "tokens in/out: 40/24 by the run, 40/24 by the calls, 32/24 by the files",
            ],
            id="an attempt is lost",
        ),
        pytest.param(
            in_store("UPDATE checkpoints SET state = 'up to odd' WHERE number = 2"),
            ["not there exactly once: run_checkpoint 2", f"2 of 3 {READ_BACK}; not so 2"],
            id="a checkpoint is edited",
        ),
        pytest.param(
            in_store("DELETE FROM checkpoints WHERE number = 2"),
            ["not there exactly once: run_checkpoint 2", f"2 of 2 {READ_BACK}"],
            id="a checkpoint is lost",
        ),
        pytest.param(
            in_store(
                "UPDATE events SET row = json_set(row, '$.value', 'with ,') "
                "WHERE kind = 'memory' AND operation = 'set'"
            ),
            ["not there exactly once: memory_set how", f"1 of 3 {READ_BACK}; not so 1, 2"],
            id="the memory of a checkpoint is edited",
        ),
        pytest.param(
            in_store(
                "INSERT INTO events SELECT project, 21, at, actor, run, kind, name, operation, "
                "summary, NULL, row FROM events WHERE seq = 7",
                "UPDATE projects SET last_event = 21",
            ),
            ["nobody asked for: step_end one"],
            id="something is written that nobody asked for",
        ),
        pytest.param(
            in_store("UPDATE steps SET status = 'failed' WHERE name = 'one'"),
            [
                "1 of 2 steps are done, each with the file that is there as its result; "
                "the run counts 2 of 2"
            ],
            id="a step is not done",
        ),
        pytest.param(
            in_store("UPDATE runs SET stopped = 'attempts'"),
            [f"{RUN} is completed, 6 of 9 attempts and 64 of 900 tokens; evidence: exit 0"],
            id="the budget is spent",
        ),
        pytest.param(
            in_store("UPDATE threads SET status = 'active'"),
            ["its thread csv is active; evidence: exit 0"],
            id="the thread is not done",
        ),
    ],
)
def test_the_check_of_the_long_demo_fails_on_a_doctored_store(
    path: str, played: LongStory, tamper: Callable[[Path], None], told: list[str]
) -> None:
    tamper(Path(path).parent)
    assert failed(path, played) == told
