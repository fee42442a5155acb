"""Many writers at once, through real processes; then the file is read with plain `sqlite3`.

A slice of it runs always; `MCP_STATE_SOAK=1` (`make soak`) runs the whole.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from ledger import Ledger, entry, read
from raw_client import Answer, Call, Server, closing_all
from soaking import SOAK

PROCESSES = 8
IN_FLIGHT = 40
LEASED = 50
BLOCKS = SHARED = 10
rounds = pytest.mark.parametrize(
    "rounds", [pytest.param(12 if SOAK else 1, id="soak" if SOAK else "slice")]
)


@dataclass(frozen=True)
class Said:
    """A call, who made it, and what the answer was."""

    agent: str
    call: Call
    answer: Answer


def two_hundred(agent: str, turn: int, rng: random.Random) -> list[Call]:
    """The mixed writes of one agent in one round; every text is unique and 20 characters long."""
    texts = [f"{agent}.{turn:03}.{n:03}.{rng.randbytes(2).hex()};" for n in range(150)]
    assert {len(text) for text in texts} == {20}
    blocks = [f"block-{turn}-{n % BLOCKS}" for n in range(70)]
    shared = [f"shared-{turn}-{n % SHARED}" for n in range(30)]
    calls = [
        *(Call("memory_append", {"key": k, "text": texts.pop()}) for k in blocks),
        *(Call("thread_set", {"thread": t, "next_action": texts.pop()}) for t in shared),
        *(Call("journal_append", {"text": text}) for text in texts),
        *(Call("thread_claim", {"thread": f"leased-{turn}-{n}"}) for n in range(LEASED)),
    ]
    assert len(calls) == 200
    rng.shuffle(calls)
    return calls


def threads_of(rounds: int) -> list[Call]:
    """The threads that the storm is about, made before it."""
    names = [f"leased-{turn}-{n}" for turn in range(rounds) for n in range(LEASED)]
    names += [f"shared-{turn}-{n}" for turn in range(rounds) for n in range(SHARED)]
    return [Call("thread_set", {"thread": name, "next_action": "begin"}) for name in names]


def with_in_flight(server: Server, calls: Sequence[Call], most: int, agent: str) -> list[Said]:
    """Make all calls, so many at a time unanswered."""
    sent: dict[int, Call] = {}
    said: list[Said] = []
    waiting = iter(calls)
    for call in waiting:
        sent[server.send(call)] = call
        if len(sent) < most:
            continue
        said.append(_answered(server, sent, agent))
    while sent:
        said.append(_answered(server, sent, agent))
    return said


def _answered(server: Server, sent: dict[int, Call], agent: str) -> Said:
    found = server.receive()
    assert found is not None, "the server ended"
    return Said(agent, sent.pop(found[0]), found[1])


def assert_nothing_lost(ledger: Ledger, begun: Sequence[Call], said: Sequence[Said]) -> None:
    """Every OK answer is on disk exactly once, nothing else is, and only lost claims failed."""
    saved = [one for one in said if not one.answer.refused]
    lost = [one for one in said if one.answer.refused]
    assert ledger.problems == []
    assert Counter((one.call.tool, one.answer.code) for one in lost) == Counter(
        {("thread_claim", "held"): len(lost)}
    )
    assert ledger.written == Counter(
        [*(entry(call) for call in begun), *(entry(one.call, one.agent) for one in saved)]
    )
    assert ledger.refused == Counter()
    assert ledger.events == len(begun) + len(saved)
    for one in saved:
        assert ledger.entry_of_event[one.answer.event] == entry(one.call, one.agent)


def assert_claimed_once(ledger: Ledger, said: Iterable[Said], rounds: int) -> None:
    """Each thread is held by the one who was told so, with the token that it was given."""
    claims = [one for one in said if one.call.tool == "thread_claim"]
    won = {
        one.call.arguments["thread"]: (one.agent, int(one.answer.number(r"lease_token=(\d+)")))
        for one in claims
        if not one.answer.refused
    }
    leased = {f"leased-{turn}-{n}" for turn in range(rounds) for n in range(LEASED)}
    assert won == {
        name: (ledger.threads[name]["holder"], ledger.threads[name]["lease_token"])
        for name in leased
    }
    assert sum(not one.answer.refused for one in claims) == len(leased)
    for one in claims:
        if one.answer.refused:
            holder = won[one.call.arguments["thread"]][0]
            assert f"is held by {holder} until" in one.answer.text


@rounds
def test_eight_processes_write_at_once_and_nothing_is_lost(tmp_path: Path, rounds: int) -> None:
    store = tmp_path / "state.db"
    agents = [f"agent{n}" for n in range(PROCESSES)]
    servers = [Server.start(store, agent=agent) for agent in agents]
    said: dict[str, list[Said]] = {agent: [] for agent in agents}
    together = threading.Barrier(PROCESSES)

    def storm(server: Server, agent: str) -> None:
        rng = random.Random(agent)
        together.wait(60)
        for turn in range(rounds):
            said[agent] += with_in_flight(server, two_hundred(agent, turn, rng), 1, agent)

    with closing_all(servers):
        begun = threads_of(rounds)
        before = with_in_flight(servers[0], begun, 20, "tester")
        assert [one.answer.code for one in before] == [""] * len(begun)
        for server in servers:
            server.wait_until_ready()
        threads = [
            threading.Thread(target=storm, args=one) for one in zip(servers, agents, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        everything = [one for agent in agents for one in said[agent]]
        assert len(everything) == PROCESSES * 200 * rounds
        ledger = read(store)
        assert_nothing_lost(ledger, begun, everything)
        assert_claimed_once(ledger, everything, rounds)


@rounds
def test_forty_calls_in_flight_in_one_session_lose_nothing(tmp_path: Path, rounds: int) -> None:
    store = tmp_path / "state.db"
    agent = "agent0"
    server = Server.start(store, agent=agent)
    rng = random.Random("forty in flight")
    begun = threads_of(rounds)
    with closing_all([server]):
        with_in_flight(server, begun, IN_FLIGHT, agent)
        said: list[Said] = []
        for turn in range(rounds):
            calls = [
                call
                for writer in ("agent0", "agent1", "agent2")
                for call in two_hundred(writer, turn, rng)
            ]
            rng.shuffle(calls)
            said += with_in_flight(server, calls, IN_FLIGHT, agent)
        ledger = read(store)
    assert len(said) == 600 * rounds
    assert_nothing_lost(ledger, begun, said)
    assert_claimed_once(ledger, said, rounds)
