"""`mcp-state demo --truth` runs as a person runs it; its check finds what was tampered with."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import Connect, text_of
from mcp import Client
from test_demo import in_store

from mcp_state.cli import demo_truth, main
from mcp_state.cli.demo_truth import acknowledged
from mcp_state.cli.demo_truth_check import TRUTH_WRITTEN, TruthStory, examine_truth

pytestmark = pytest.mark.sqlite

CLAIMS = (
    r"ok 16 of 16 acknowledged writes are there, each exactly once",
    r"ok besides them only what fell \(merge-friday\); the refused calls \(2\) wrote nothing",
    r"ok 17 events are numbered 1 to 17, without a gap",
    r"ok merge-friday fell with pr-830: event 10 right after event 9, at the same moment, by the "
    r"same session",
    r"ok pr-830 is trusted: PR 830 is merged",
    r"ok api-contract is trusted: Amounts have a decimal comma",
    r"ok merge-friday is stale: PR 830 goes in on Friday",
    r"ok import-ready is trusted: Import v2 works",
    r"ok history keeps that 'PR 830 is open' held at event 3 \(OPEN\), then did not hold at event "
    r"9 \(MERGED\)",
    r"ok still fallen, and not due: merge-friday \(merge-friday because of pr-830 at event 6, "
    r"which says something else since event 11\)",
    r"ok 3 of 3 trusted facts were verified as they stand, as was what they rest on",
    r"ok ship-import is done since event 17, not before: its criterion passed at 16, what it "
    r"relies on was verified in that session \(api-contract 8, import-ready 14, pr-830 12\)",
    r"ok PRAGMA integrity_check: ok",
    r"ok gh was run by the agents \(ada 1x, ben 2x\), not once by a server",
    r"ok mcp-state doctor: exit 0; Nothing is wrong\.",
)


def test_what_was_believed_in_the_evening_is_checked_in_the_morning_and_every_claim_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    done = CliRunner().invoke(main, ["demo", "--truth"], env={"MCP_STATE_PROJECT": "not its own"})

    assert (done.exit_code, done.stderr) == (0, ""), done.output
    told = re.sub(r"\b\d+ (s|min) ago\b", "just now", done.stdout)  # on a busy machine
    lines = [" ".join(line.split()) for line in told.splitlines()]
    acts = {
        found[0]: lines[n + 1 :]
        for n, line in enumerate(lines)
        if (found := re.match(r"[1-6](?=  ?[A-Za-z])", line))
    }
    assert list(acts) == ["1", "2", "3", "4", "5", "6"]
    assert acts["3"][:19] == [
        "ben orient()",
        "| project github.com/acme/shop (from git origin) · agent ben · new here · event 7",
        "| OBJECTIVE",
        "| Ship import v2 this week",
        "| version 1, set by ada just now",
        "| intent: Customers load their orders without asking us",
        "| NOW",
        "| ship-import [active, 0/1 pass] Ship import v2",
        "| next: merge PR 830 on Friday, then announce it",
        "| relies on what is to be checked first: merge-friday (never checked)",
        "| CHECK BEFORE YOU RELY ON IT",
        "| check first: file:docs/contract.md",
        "| looked up now: CHANGED since then (49 bytes then, 91 now)",
        "| api-contract · last held just now (ada, not in this session: `amount: decimal "
        'comma`); believed then: "Amounts have a decimal comma"',
        "| check first: gh pr view 830 --json state --jq .state",
        "| pr-830 · last held just now (ada, not in this session: `OPEN`); "
        'believed then: "PR 830 is open"',
        "| check first: it has none of its own; what it rests on, api-contract (CHANGED) and "
        "pr-830 (unchecked)",
        "| merge-friday · never checked, recorded just now (ada); believed then: "
        '"PR 830 goes in on Friday"',
        "ben All of it was believed yesterday. Is ship-import as good as done?",
    ]
    assert [line.split(". ")[0] for line in acts["3"] if line.startswith("error: ")] == [
        "error: evidence_required: 1 of 1 criteria of thread 'ship-import' do not pass: "
        "1 (python check.py: exit 0)",
        "error: evidence_required: thread 'ship-import' cannot be done: it relies on what does not "
        "hold: 'merge-friday' (stale; no check · believed: \"PR 830 goes in on Friday\")",
    ]
    assert acts["4"][:15] == [
        "ben reads docs/contract.md: amount: decimal comma",
        "ben fact_verify(fact=api-contract, holds=true, evidence=amount: decimal comma)",
        "| api-contract is trusted, version 3, due again in 24 h",
        "| verified in this session, just now · check: file:docs/contract.md",
        "| looked up now: unchanged since then",
        '| api-contract · holds (`amount: decimal comma`): "Amounts have a decimal comma"',
        "ben $ gh pr view 830 --json state --jq .state MERGED",
        "ben fact_verify(fact=pr-830, holds=false, evidence=MERGED)",
        "| pr-830 is refuted, version 3",
        "| before, it last held just now (ada, not in this session: `OPEN`)",
        "| FELL with it, 1 fact: merge-friday",
        "| threads that rely on this: ship-import [active]",
        "| DOES NOT HOLD · check: gh pr view 830 --json state --jq .state",
        "| pr-830 · version 3, did not hold just now (ben: `MERGED`); believed until then: "
        '"PR 830 is open"',
        "ben The contract grew, and still says so. PR 830 is another matter; orient knows:",
    ]
    assert [line for line in acts["4"] if line.startswith("| RELIES ON")] == [
        "| RELIES ON WHAT DOES NOT HOLD: merge-friday (stale): "
        'thread_get(thread="ship-import") shows the checks'
    ]
    end = acts["5"].index("| saved, version 4: ship-import [done, 1/1 pass] Ship import v2")
    assert acts["5"][: end + 1] == [
        "ben fact_record(fact=pr-830, statement=PR 830 is merged, expected_version=3, check=gh pr "
        "view 830 --json state --jq…",
        '| saved, provisional, version 4. Run its check, then fact_verify(fact="pr-830", holds=…, '
        "evidence=…).",
        "| check first: gh pr view 830 --json state --jq .state",
        "| pr-830 · never checked, recorded just now (ben), in the place of what was refuted; "
        'believed then: "PR 830 is merged"',
        '| it replaces what was believed (refuted; in history): "PR 830 is open"',
        "ben $ gh pr view 830 --json state --jq .state MERGED",
        "ben fact_verify(fact=pr-830, holds=true, evidence=MERGED)",
        "| pr-830 is trusted, version 5, due again in 24 h",
        "| verified in this session, just now · check: gh pr view 830 --json state --jq .state",
        '| pr-830 · holds (`MERGED`): "PR 830 is merged"',
        "ben pr-830 holds again, but says something else. Does merge-friday rise with it?",
        "ben fact_list(trust=stale)",
        "| 1 of 1 stale facts (2 trusted · 0 provisional · 1 stale · 0 refuted · 0 archival)",
        "| FELL, with each of its reasons: pr-830 (says something else since) and api-contract "
        "(verified) · no check of its own",
        "| merge-friday · version 1, fell just now; never checked, recorded just now (ada); "
        'believed then: "PR 830 goes in on Friday"',
        "ben No, and rightly: its reason was the old statement. What follows from the new one:",
        "ben fact_record(fact=import-ready, because=[pr-830, api-contract], statement=Import v2 "
        "works, check=python check.py)",
        '| saved, provisional, version 1. Run its check, then fact_verify(fact="import-ready", '
        "holds=…, evidence=…).",
        "| check first: python check.py",
        '| import-ready · never checked, recorded just now (ben); believed then: "Import v2 works"',
        "| rests on api-contract (verified) and pr-830 (verified)",
        "ben $ python check.py 8 of 8 orders can be imported",
        "ben fact_verify(fact=import-ready, holds=true, evidence=8 of 8 orders can be imported)",
        "| import-ready is trusted, version 2, due again in 24 h",
        "| verified in this session, just now · check: python check.py",
        '| import-ready · holds (`8 of 8 orders can be imported`): "Import v2 works"',
        "| rests on api-contract (verified) and pr-830 (verified)",
        "ben thread_set(thread=ship-import, relies_on=[import-ready], next_action=prove it, and "
        "end it)",
        "| saved, version 2: ship-import [active, 0/1 pass] Ship import v2",
        "| next: prove it, and end it",
        "ben thread_check(thread=ship-import, criterion=1, passes=true, evidence=8 of 8 orders can "
        "be imported)",
        "| 1/1 pass. ship-import: criterion 1 passes: python check.py: exit 0",
        "ben thread_set(thread=ship-import, status=done, evidence=python check.py: exit 0, 8 of 8 "
        "orders can be imported)",
        "| saved, version 4: ship-import [done, 1/1 pass] Ship import v2",
    ]
    claims = [line for line in lines if line.startswith(("ok ", "FAILED "))]
    assert len(claims) == len(CLAIMS), claims
    for claim, wanted in zip(claims, CLAIMS, strict=True):
        assert re.fullmatch(wanted, claim), claim
    assert list(tmp_path.iterdir()) == []


def test_an_agent_that_cannot_go_on_ends_the_demo(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("not a database, though it should be one", encoding="utf-8")

    with pytest.raises(SystemExit, match="ben ended by itself, with exit code 1"):
        demo_truth.play(tmp_path)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--long", "--truth"], "--long and --truth exclude each other"),
        (["--truth", "--seed", "1"], "--seed goes with --long"),
    ],
    ids=["long", "seed"],
)
def test_the_demo_of_truth_is_one_of_its_own(options: list[str], told: str) -> None:
    refused = CliRunner().invoke(main, ["demo", *options])

    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"error: bad_argument: {told}")


class Played:
    """A small demo of truth, played on in-memory clients: what was answered."""

    def __init__(self, home: Path) -> None:
        self.log = home / "gh.log"
        self.story = TruthStory(
            refuted="pr",
            fell=["friday", "party"],
            facts={
                "pr": ("trusted", "PR is merged"),
                "contract": ("trusted", "comma"),
                "friday": ("stale", "on Friday"),
                "party": ("stale", "at five"),
                "ready": ("trusted", "it runs"),
            },
            asked=["ada", "ben", "ben"],
        )

    async def call(self, client: Client, agent: str, tool: str, **arguments: Any) -> None:
        result = await client.call_tool(tool, arguments)
        if result.is_error:
            self.story.refused += 1
        else:
            self.story.writes.append(acknowledged(agent, tool, arguments, text_of(result)))

    async def verify(self, client: Client, agent: str, fact: str, holds: bool, said: str) -> None:
        await self.call(client, agent, "fact_verify", fact=fact, holds=holds, evidence=said)

    async def ada(self, client: Client) -> None:
        """Believes two things, and what follows from them."""
        await self.call(client, "ada", "objective_set", objective="Ship it", intent="")
        for fact, statement in (("pr", "PR is open"), ("contract", "comma")):
            await self.call(
                client, "ada", "fact_record", fact=fact, statement=statement, check="gh"
            )
            await self.verify(client, "ada", fact, True, "OPEN")
        for fact, statement, because in (
            ("friday", "on Friday", "pr"),
            ("party", "at five", "friday"),
        ):
            given = {"statement": statement, "check": "", "because": [because]}
            await self.call(client, "ada", "fact_record", fact=fact, **given)
        relies = {"relies_on": ["friday"], "criteria": ["it runs"]}
        await self.call(client, "ada", "thread_set", thread="ship", next_action="wait", **relies)
        self.log.write_text("ada gh\nben gh\nben gh\n", encoding="utf-8")

    async def ben(self, client: Client) -> None:
        """Finds out, and builds on what is true."""
        done: dict[str, Any] = {"thread": "ship", "status": "done", "evidence": "exit 0"}
        await self.verify(client, "ben", "pr", False, "MERGED")
        await self.call(client, "ben", "thread_set", **done)
        await self.verify(client, "ben", "contract", True, "comma")
        merged: dict[str, Any] = {"statement": "PR is merged", "check": "gh", "expected_version": 3}
        await self.call(client, "ben", "fact_record", fact="pr", **merged)
        await self.verify(client, "ben", "pr", True, "MERGED")
        ready: dict[str, Any] = {"statement": "it runs", "check": "make", "because": ["pr"]}
        await self.call(client, "ben", "fact_record", fact="ready", **ready)
        await self.verify(client, "ben", "ready", True, "exit 0")
        relies: dict[str, Any] = {"relies_on": ["ready", "contract"], "next_action": "end it"}
        await self.call(client, "ben", "thread_set", thread="ship", **relies)
        await self.call(client, "ben", "thread_check", thread="ship", criterion="1", passes=True)
        await self.call(client, "ben", "thread_set", **done)


@pytest.fixture
async def played(path: str, connect: Connect) -> Played:
    Path(path).parent.mkdir()
    played = Played(Path(path).parent)
    for agent, part in (("ada", played.ada), ("ben", played.ben)):
        async with connect(agent=agent, session=agent, toolset="all") as client:
            await part(client)
    return played


def failed(path: str, played: Played) -> list[str]:
    claims = list(examine_truth(Path(path), played.log, played.story))
    assert len(claims) >= 12
    return [claim.text for claim in claims if not claim.holds]


def test_the_check_of_the_demo_of_truth_finds_nothing_in_an_honest_store(
    path: str, played: Played
) -> None:
    assert {write.tool for write in played.story.writes} == set(TRUTH_WRITTEN)
    assert failed(path, played) == []


DONE = (
    "ship is done since event 19, not before: its criterion passed at 18, "
    "what it relies on was verified in that session "
)
FELL = (
    "friday, party fell with pr: event 10, 11 right after event 9, at the same moment, "
    "by the same session"
)
STILL = "still fallen, and not due:"
REPLACED = "friday because of pr at event 6, which says something else since event 13"
PROVEN = "trusted facts were verified as they stand, as was what they rest on"
HELD = "history keeps that 'PR is open' held at event 3 (OPEN)"


def in_log(home: Path) -> None:
    (home / "gh.log").write_text("ada gh\nsomebody gh\nben gh\nben gh\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("tamper", "told"),
    [
        pytest.param(
            in_store("UPDATE facts SET verified = 3 WHERE name = 'pr'"),
            [
                f"2 of 3 {PROVEN}",
            ],
            id="a fact is trusted by a verification of what it said before",
        ),
        pytest.param(
            in_store(
                "UPDATE facts SET trust = 'trusted', verified = 8, verified_at = trust_at, "
                "verified_by = 1, held = 1, evidence = 'x', recheck_at = trust_at, \"check\" = 'x' "
                "WHERE name = 'friday'"
            ),
            [
                "friday is trusted: on Friday",
                f"{STILL} party (for no reason)",
                f"3 of 4 {PROVEN}",
            ],
            id="a fact is trusted that nobody verified",
        ),
        pytest.param(
            in_store("UPDATE facts SET statement = 'PR is open' WHERE name = 'pr'"),
            [
                "pr is trusted: PR is open",
                f"2 of 3 {PROVEN}",
            ],
            id="a fact says again what was refuted",
        ),
        pytest.param(
            in_store("UPDATE events SET name = 'contract' WHERE seq = 10"),
            [
                "besides them only what fell (contract, party); the refused calls (1) wrote "
                "nothing",
                FELL,
            ],
            id="something else fell",
        ),
        pytest.param(
            in_store("UPDATE events SET operation = 'due' WHERE seq = 11"),
            ["nobody asked for: event 11", FELL],
            id="something is due that only fell",
        ),
        pytest.param(
            in_store("UPDATE facts SET recheck_at = trust_at WHERE name = 'friday'"),
            [f"{STILL} party (for no reason)"],
            id="what fell is due though its premise says something else",
        ),
        pytest.param(
            in_store("UPDATE premises SET given = 14 WHERE fact = 'friday'"),
            [f"{STILL} friday, party (for no reason)"],
            id="what fell was given its reason anew",
        ),
        pytest.param(
            in_store("UPDATE premises SET given = 3 WHERE fact = 'ready'"),
            [f"2 of 3 {PROVEN}"],
            id="a trusted fact rests on what its premise said before",
        ),
        pytest.param(
            in_store("UPDATE premises SET premise = 'friday' WHERE fact = 'ready'"),
            [
                f"2 of 3 {PROVEN}",
                DONE + "(contract 12, friday None, pr 14, ready 16)",
            ],
            id="a trusted fact rests on one that fell",
        ),
        pytest.param(
            in_store("UPDATE events SET at = '2026-11-29T09:00:00.000001Z' WHERE seq = 11"),
            [FELL],
            id="something fell at another moment",
        ),
        pytest.param(
            in_store("DELETE FROM events WHERE seq = 3"),
            [
                "not there exactly once: fact_verify pr",
                "18 events are numbered 1 to 19, without a gap",
                "history keeps that 'PR is open' did not hold at event 9 (MERGED)",
            ],
            id="history forgets the first verification",
        ),
        pytest.param(
            in_store("UPDATE events SET row = json_set(row, '$.held', json('true')) WHERE seq = 9"),
            [
                "not there exactly once: fact_verify pr, fact_verify pr",
                "friday, party fell with pr: event none right after event none, at the same "
                "moment, by the same session",
                f"{HELD}, then held at event 9 (MERGED)",
            ],
            id="the refutation is turned round",
        ),
        pytest.param(
            in_store("UPDATE events SET row = json_set(row, '$.status', 'done') WHERE seq = 17"),
            [
                "not there exactly once: thread_set ship",
                "1 thread was done 2 times, not once",
            ],
            id="the thread was done before",
        ),
        pytest.param(
            in_store("UPDATE facts SET verified_by = 1 WHERE name = 'contract'"),
            [f"{DONE}(contract 12, pr 14, ready 16)"],
            id="what the thread relies on was verified by another",
        ),
        pytest.param(
            in_store("DELETE FROM relies"),
            [f"{DONE}(nothing)"],
            id="the thread relies on nothing",
        ),
        pytest.param(
            in_store("UPDATE events SET operation = 'note' WHERE seq = 18"),
            [
                "not there exactly once: thread_check ship 1",
                f"{DONE}(contract 12, pr 14, ready 16)".replace(
                    "passed at 18", "passed at no time"
                ),
            ],
            id="nobody marked the criterion",
        ),
        pytest.param(
            in_store("UPDATE threads SET status = 'active'"),
            [f"{DONE}(contract 12, pr 14, ready 16)".replace("is done", "is active")],
            id="the thread is not done",
        ),
        pytest.param(
            in_store(
                "INSERT INTO events SELECT project, 20, at, actor, run, kind, name, operation, "
                "summary, NULL, row FROM events WHERE seq = 2",
                "UPDATE projects SET last_event = 20",
            ),
            ["not there exactly once: fact_record pr", "nobody asked for: event 20"],
            id="something is written that nobody asked for",
        ),
        pytest.param(
            in_store("UPDATE facts SET name = 'other' WHERE name = 'party'"),
            [
                "other is stale: at five",
                "not there: party",
                f"{STILL} friday, other ({REPLACED})",
            ],
            id="a fact is lost",
        ),
        pytest.param(
            in_log,
            ["gh was run by the agents (ada 1x, ben 2x, somebody 1x), not once by a server"],
            id="the server ran a check",
        ),
    ],
)
def test_the_check_of_the_demo_of_truth_fails_on_a_doctored_store(
    path: str, played: Played, tamper: Callable[[Path], None], told: Sequence[str]
) -> None:
    tamper(Path(path).parent)
    assert failed(path, played) == told
