"""The wire of a real `mcp-state serve`, attacked: whatever comes in, what goes out is in order.

All the time `wire.py` sees to it that each line on stdout is one well-formed message that is owed,
that nothing stays owed, and that the process lives and stays quiet. Random rounds name their seed
when they fail. A slice with a fixed seed runs always; `MCP_STATE_SOAK=1` (`make soak`) runs for
minutes.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from nasty import LINES, VALUES, mutated, some_json
from peeking import rows
from soaking import SOAK, seeded, some
from wire import (
    HANDSHAKE,
    LAST_HANDSHAKE,
    PATIENCE,
    STATELESS,
    Generation,
    Message,
    Wire,
    encoded,
    serving,
)

from mcp_state import errors
from mcp_state.store import doctor
from mcp_state.tools import ALL_TOOLS

OPTIONS = ("--toolset", "all", "--project", "acme")
SEED = random.SystemRandom().randrange(1 << 32) if SOAK else 2026
MEGABYTE = 1 << 20
LONGEST_ANSWER = 10_000
CODES = {
    one.code
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, errors.StateError) and hasattr(one, "code")
}
NEEDED: Message = {"status": "failed", "op": "history", "version": 1} | dict.fromkeys(
    ("passes", "ok", "holds"), True
)
"""What a required argument is given; "x", if it is not here."""

numbers = itertools.count(1)


@pytest.fixture(scope="module", params=[HANDSHAKE, STATELESS], ids=lambda one: one.version)
def generation(request: pytest.FixtureRequest) -> Generation:
    return request.param


@contextmanager
def opened(home: Path, generation: Generation) -> Generator[Wire]:
    """A server that was greeted; at the end it leaves quietly."""
    with serving(home, *OPTIONS) as wire:
        wire.send(*generation.opening)
        wire.settle()
        wire.take()
        yield wire
        wire.end()


@pytest.fixture(scope="module")
def wire(generation: Generation, tmp_path_factory: pytest.TempPathFactory) -> Generator[Wire]:
    """One server for many nasty lines."""
    with opened(tmp_path_factory.mktemp("wire"), generation) as wire:
        yield wire
    assert_sound(wire.store)


def assert_alive(wire: Wire, generation: Generation) -> None:
    assert "result" in wire.ask(generation.ping(f"alive {next(numbers)}"))


def assert_sound(store: Path) -> None:
    report = asyncio.run(doctor.examine(str(store)))
    assert report.problems == []


@pytest.mark.parametrize("kind", LINES)
def test_a_nasty_line_is_answered_as_the_protocol_says(
    wire: Wire, generation: Generation, kind: str
) -> None:
    for line in LINES[kind]:
        wire.write(line + b"\n")
        wire.settle()
        assert_alive(wire, generation)


def calls() -> Iterator[tuple[str, Message]]:
    """Every tool with every argument as every value."""
    for tool in ALL_TOOLS:
        needed = {p.name: NEEDED.get(p.name, "x") for p in tool.parameters if p.required}
        for name in (*(p.name for p in tool.parameters), "project", "unheard_of"):
            for value in VALUES:
                yield tool.name, {**needed, name: value}


def assert_answered(answer: Message, asked: str) -> None:
    """It is one text of bounded length that says itself whether it is an error, and which."""
    result = answer["result"]
    (content,) = result["content"]
    text: str = content["text"]
    assert result["isError"] is text.startswith("error: "), f"{asked}: {text}"
    assert not result["isError"] or text.split(":")[1].strip() in CODES, f"{asked}: {text}"
    assert len(text) <= LONGEST_ANSWER, f"{asked}: {text[:300]}"
    assert text.splitlines()[-1].startswith("["), f"{asked}: {text}"


@some(80, 1)
def test_every_argument_of_every_tool_takes_any_value(
    wire: Wire, generation: Generation, rounds: int
) -> None:
    """Of the slice, each generation gets another part."""
    first = int(generation is STATELESS)
    some_calls = itertools.islice(enumerate(calls()), first, None, rounds)
    wire.take()
    while batch := list(itertools.islice(some_calls, 50)):
        wire.send(*(generation.call(n, tool, **given) for n, (tool, given) in batch))
        wire.settle()
        said = {answer["id"]: answer for answer in wire.take()}
        for number, (tool, given) in batch:
            assert_answered(said[number], f"{tool}({str(given)[:300]})")
    assert_alive(wire, generation)


def requests(generation: Generation) -> list[Message]:
    """One valid request of every kind."""
    plain = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
    asked = [generation.request(0, method) for method in plain]
    asked.append(generation.ping(0))
    asked.append(generation.request(0, "prompts/get", name="orient"))
    asked += (
        generation.request(0, "resources/read", uri=uri)
        for uri in ("state://orient", "state://memory/k", "state://nothing")
    )
    for tool in ALL_TOOLS:
        needed = {p.name: NEEDED.get(p.name, "x") for p in tool.parameters if p.required}
        asked.append(generation.call(0, tool.name, **needed))
    return asked


class Client:
    """Says something else each time, of which much makes no sense."""

    def __init__(self, rng: random.Random, generation: Generation) -> None:
        self._rng, self._generation = rng, generation
        self._requests = requests(generation)
        self._calls = [*calls()]
        self._nasty = [line for kind, group in LINES.items() for line in group if kind != "size"]
        self._last = 0
        self.asked: list[str] = []
        """What it wants to be kept in the journal; these texts are the ids of the requests too."""

    def line(self) -> bytes:
        rng = self._rng
        match rng.randrange(12):
            case 0 | 1 | 2:
                return mutated(rng, self._request()) + b"\n"
            case 3 | 4:
                return self._request()
            case 5:
                tool, given = rng.choice(self._calls)
                return encoded(self._generation.call(self._id(), tool, **given))
            case 6:
                return encoded(some_json(rng))
            case 7:
                names = ("jsonrpc", "id", "method", "params", "result", "error", "other")
                message = json.loads(self._request())
                return encoded({**message, rng.choice(names): some_json(rng)})
            case 8:
                return rng.choice(self._nasty) + b"\n"
            case 9:
                return rng.randbytes(rng.randrange(200)) + b"\n"
            case 10:
                return self._cancellation()
            case _:
                text = f"kept {len(self.asked)}"
                self.asked.append(text)
                return encoded(self._generation.call(text, "journal_append", text=text))

    def _id(self) -> int | str:
        self._last += 1
        return self._rng.choice((self._last, str(self._last), f"x{self._last}", 1))

    def _request(self) -> bytes:
        return encoded({**self._rng.choice(self._requests), "id": self._id()})

    def _cancellation(self) -> bytes:
        wanted = self._last - self._rng.randrange(-2, 6)
        last = f"kept {len(self.asked) - 1}"
        odd = some_json(self._rng)
        cancelled = self._rng.choice((wanted, str(wanted), f"x{wanted}", last, odd))
        params = {"requestId": cancelled, "reason": "changed my mind"}
        return encoded({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


@some(250, 20_000)
def test_whatever_comes_in_what_goes_out_is_in_order(
    tmp_path: Path, generation: Generation, rounds: int
) -> None:
    acknowledged: Counter[str] = Counter()
    begun_with = 0
    with seeded(SEED) as rng, opened(tmp_path, generation) as wire:
        client = Client(rng, generation)
        for number in range(rounds):
            wire.write(b"".join(client.line() for _ in range(rng.choice((1, 1, 2, 5)))))
            if not number % 20:
                for byte in client.line()[:300]:
                    wire.write(bytes([byte]))
                wire.write(b"\n")
                wire.settle()
                acknowledged.update(kept_by(wire.take()))
                assert_alive(wire, generation)
            if number == rounds // 3:
                begun_with = wire.resident
        wire.settle()
        acknowledged.update(kept_by(wire.take()))
        assert wire.resident - begun_with < 40 * MEGABYTE
    assert len(acknowledged) > rounds // 20
    assert acknowledged <= kept_in(wire.store) <= Counter(client.asked)
    assert_sound(wire.store)


def kept_by(answers: Iterable[Message]) -> list[str]:
    """The texts that these answers say are saved."""
    return [
        answer["id"]
        for answer in answers
        if str(answer["id"]).startswith("kept ")
        and "result" in answer
        and not answer["result"]["isError"]
    ]


def kept_in(store: Path) -> Counter[str]:
    if not store.exists():  # nothing was written yet
        return Counter()
    found = rows(str(store), "SELECT text FROM journal WHERE text LIKE 'kept %'")
    return Counter(text for (text,) in found)


def talk(home: Path, send: Callable[[Wire], None]) -> Counter[str]:
    """What a server answers that is sent something as soon as it was started."""
    home.mkdir()
    with serving(home, *OPTIONS) as wire:
        send(wire)
        wire.settle()
        answers = Counter(json.dumps(answer, sort_keys=True) for answer in wire.take())
        wire.end()
    return answers


OPENINGS: dict[str, list[Message | bytes]] = {
    "handshake": [
        *HANDSHAKE.opening,
        HANDSHAKE.request(1, "tools/list"),
        HANDSHAKE.request(2, "tools/list", cursor="x"),
        HANDSHAKE.request(3, "tools/list", cursor=5),
        HANDSHAKE.ping(4),
        *LAST_HANDSHAKE.opening,
        HANDSHAKE.request("1", "tools/list"),
        HANDSHAKE.call(5, "memory_get"),
        STATELESS.request(6, "tools/list"),
    ],
    "more, impatient": [
        b"nonsense",
        HANDSHAKE.request(1, "tools/list"),
        HANDSHAKE.ping(2),
        HANDSHAKE.call(3, "memory_get"),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        HANDSHAKE.request(4, "resources/list"),
        *LAST_HANDSHAKE.opening,
        HANDSHAKE.request(5, "tools/list"),
    ],
    "more, chatter before": [
        *({"jsonrpc": "2.0", "method": f"notifications/{n}"} for n in range(20)),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "opening"}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        b'{"jsonrpc":"2.0","id":null,"method":"initialize"}',
        b"[" * 100_000,
        b"\xef\xbb\xbf" + encoded(HANDSHAKE.opening[0])[:-1],
        HANDSHAKE.request(1, "tools/list"),
    ],
    "more, a wrong handshake": [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize"},
        {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {"protocolVersion": 5}},
        {"jsonrpc": "2.0", "id": 3, "method": "initialize", "params": []},
        HANDSHAKE.request(4, "tools/list"),
        HANDSHAKE.request(5, "initialize", protocolVersion="1", capabilities={}, clientInfo={}),
        Generation("1999-01-01", has_handshake=True).opening[0],
        HANDSHAKE.request(6, "tools/list"),
    ],
    "stateless": [
        *STATELESS.opening,
        STATELESS.request(1, "tools/list"),
        STATELESS.request(2, "tools/list", cursor=5),
        HANDSHAKE.request(3, "tools/list"),
        HANDSHAKE.opening[0],
        Generation("2099-01-01", has_handshake=False).request(4, "tools/list"),
        STATELESS.request(5, "tools/list", _meta={"io.modelcontextprotocol/clientInfo": None}),
        STATELESS.call(6, "memory_get"),
        STATELESS.request(7, "ping"),
    ],
    "more, stateless": [
        STATELESS.request(1, "tools/list", _meta={"io.modelcontextprotocol/clientInfo": 5}),
        STATELESS.request(2, "tools/list"),
        STATELESS.call("call", "memory_get"),
        b'{"jsonrpc":"2.0","id":true,"method":"server/discover"}',
        *STATELESS.opening,
        {"jsonrpc": "2.0", "id": "bare", "method": "server/discover"},
    ],
}


@pytest.mark.parametrize(
    "opening",
    [
        pytest.param(lines, id=f"soak {name}" if name.startswith("more") else name)
        for name, lines in OPENINGS.items()
        if SOAK or not name.startswith("more")
    ],
)
def test_the_opening_moves_are_answered_alike_however_they_arrive(
    tmp_path: Path, opening: list[Message | bytes]
) -> None:
    """One by one when the process has nothing else to do; in pieces as soon as it is there."""
    lines = [line + b"\n" if isinstance(line, bytes) else encoded(line) for line in opening]
    data = b"".join(lines)

    def in_pieces(wire: Wire) -> None:
        for at in range(0, len(data), 3):
            wire.write(data[at : at + 3])

    def one_by_one(wire: Wire) -> None:
        wire.wait_until_asleep()
        for line in lines:
            wire.write(line)
            wire.settle()

    answers = talk(tmp_path / "one by one", one_by_one)
    assert talk(tmp_path / "in pieces", in_pieces) == answers
    if SOAK:
        assert talk(tmp_path / "at once", lambda wire: wire.write(data)) == answers


@some(1, 20)
def test_every_moment_of_the_start_takes_any_line(
    tmp_path: Path, generation: Generation, rounds: int
) -> None:
    """Lines go in as fast as they are taken, from the first moment until tools are called."""
    for number in range(rounds):
        home = tmp_path / str(number)
        home.mkdir()
        with seeded(SEED + number) as rng, serving(home, *OPTIONS) as wire:
            client = Client(rng, generation)
            if not number % 2:
                wire.send(*generation.opening)
            wire.send(generation.call("called", "memory_get"))
            while "called" not in wire.answered:
                wire.write(client.line())
            wire.settle()
            acknowledged = Counter(kept_by(wire.take()))
            wire.end()
        assert acknowledged <= kept_in(wire.store)


@some(1, 60)
def test_stdin_may_end_in_the_middle_of_a_line_at_any_moment(tmp_path: Path, rounds: int) -> None:
    """All that was asked is answered, if only with that the connection ended."""
    for number in range(rounds):
        home = tmp_path / str(number)
        home.mkdir()
        with seeded(SEED + number) as rng, serving(home, *OPTIONS) as wire:
            generation = rng.choice((HANDSHAKE, LAST_HANDSHAKE, STATELESS))
            wire.send(*generation.opening)
            for sent in range(rng.randrange(40)):
                wire.send(generation.call(f"kept {sent}", "journal_append", text=f"kept {sent}"))
            for _ in range(rng.randrange(10)):
                wire.receive()
            last = encoded(generation.call("last", "memory_get"))
            wire.write(last[: rng.randrange(len(last))])
            wire.end(within=PATIENCE)
            acknowledged = Counter(kept_by(wire.take()))
        assert acknowledged <= kept_in(wire.store)


def test_a_client_that_does_not_read_is_made_to_wait_and_loses_nothing(
    wire: Wire, generation: Generation
) -> None:
    asked = [generation.request(f"list {n}", "tools/list", padding="x" * 900) for n in range(300)]
    wire.ask(generation.call("first", "orient"))  # what it needs is loaded then
    wire.take()
    before = wire.resident

    taken = wire.write_without_reading(encoded(*asked))

    assert taken < len(encoded(*asked)) // 2
    assert wire.resident - before < 10 * MEGABYTE
    wire.settle()
    answers = Counter(answer["id"] for answer in wire.take() if "result" in answer)
    assert answers == Counter(message["id"] for message in asked)


def test_a_cancelled_call_is_not_answered_and_all_others_are(
    wire: Wire, generation: Generation
) -> None:
    def cancel(request_id: object) -> Message:
        params = {"requestId": request_id, "reason": "changed my mind"}
        return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}

    def append(request_id: object) -> Message:
        return generation.call(request_id, "journal_append", text=f"kept {request_id}")

    waiting = ("kept a", 1_001, "1002", "kept b", "kept b", "kept c")
    saved = ["kept b", "kept b", "kept c", "kept early"]
    wire.take()
    wire.send(cancel("kept early"), append("kept early"))
    wire.settle()
    wire.send(cancel("kept early"))
    with open(f"{wire.store}-queue", "rb") as queue:
        fcntl.flock(queue, fcntl.LOCK_EX)
        wire.send(*map(append, waiting))
        assert_alive(wire, generation)
        wire.send(*map(cancel, ("kept a", "1001", 1_002, "kept a", "unknown")))
        assert_alive(wire, generation)
    wire.settle()

    answers = [a for a in wire.take() if not str(a["id"]).startswith("alive")]
    assert sorted(kept_by(answers)) == saved
    assert len(answers) == len(saved)
    assert kept_in(wire.store) == Counter(f"kept {name}" for name in saved)
    assert kept_by([wire.ask(append("kept a"))]) == ["kept a"]


ROOTS: list[Message] = [
    {"result": {}},
    {"result": {"roots": None}},
    {"result": {"roots": 5}},
    {"result": {"roots": [{}]}},
    *(
        {"result": {"roots": [{"uri": uri} for uri in uris]}}
        for uris in (
            *([], [5], ["\0"], ["file:"], ["file:///\0"], ["file:///%00%ff"], ["file:///\ud800"]),
            *(["file://[::1"], ["file:////"], ["not a uri"], ["https://x/y"], ["file:///a"] * 2),
            *(["file:///" + "x" * 100_000], ["file:///" + "a/" * 9_000], ["file:///dev/zero"]),
        )
    ),
    {"error": {"code": -32601, "message": "no roots"}},
    {"error": {"code": 10**400, "message": "\ud800", "data": [[[]]]}},
]


def test_whatever_a_client_says_its_roots_are_the_call_is_answered(tmp_path: Path) -> None:
    greeting, initialized = HANDSHAKE.opening
    greeting["params"]["capabilities"] = {"roots": {"listChanged": True}}
    with serving(tmp_path, "--toolset", "all") as wire:
        wire.send(greeting, initialized)
        for roots in ROOTS:
            changed = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
            wire.send(changed, HANDSHAKE.call("call", "memory_get"))
            asked = wire.receive_request()
            assert asked["method"] == "roots/list"
            wire.send({"jsonrpc": "2.0", "id": asked["id"], **roots})
            wire.settle()
            answer = wire.take()[-1]
            assert_answered(answer, str(roots)[:300])
        wire.end()
