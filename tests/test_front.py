"""The opening moves are answered before the SDK is there, in its own words.

`python tests/test_front.py` renews `mcp_state/listing.json` from what the server answers.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st
from soaking import examples, few_of

from mcp_state import front
from mcp_state.front import HANDSHAKES, LISTS, STATELESS, Front, Opening
from mcp_state.server import create_server
from mcp_state.settings import Settings
from mcp_state.toolset import builtin_names
from mcp_state.transport import StdioWire, serve_wire

LISTING = Path(front.__file__).with_name("listing.json")
ABOUT = "io.modelcontextprotocol/"

Message = dict[str, Any]


def request(request_id: Any, method: str, params: Any = None) -> Message:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return message if params is None else {**message, "params": params}


def lines(messages: Iterable[Message]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def initialize(version: str = "2025-06-18", request_id: Any = 0, **more: Any) -> Message:
    params = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "someone", "version": "1"},
        **more,
    }
    return request(request_id, "initialize", params)


def meta(**more: Any) -> Message:
    client = {"name": "someone", "version": "1"}
    about = {"protocolVersion": STATELESS, "clientInfo": client, "clientCapabilities": {}, **more}
    return {"_meta": {f"{ABOUT}{key}": value for key, value in about.items()}}


LISTEN = request(
    "l", "subscriptions/listen", meta() | {"notifications": {"toolsListChanged": True}}
)
INITIALIZED: Message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
ORIENT: Message = {"name": "orient", "arguments": {}}
CLAUDE = {
    "name": "claude-code",
    "title": "Claude Code",
    "version": "2.1.332",
    "description": "Anthropic's agentic coding tool",
    "websiteUrl": "https://claude.com/claude-code",
}
CAN: Message = {"roots": {"listChanged": True}, "elicitation": {"form": {}, "url": {}}}

OPENINGS: dict[str, list[Message]] = {
    "codex": [
        initialize(
            capabilities={
                "experimental": {"codex/auth-change": {}},
                "elicitation": {"form": {}, "url": {}},
            },
            clientInfo={"name": "codex-mcp-client", "title": "Codex", "version": "0.171.0"},
        ),
        INITIALIZED,
        request(1, "tools/list", {"_meta": {"progressToken": 0}}),
        request(2, "resources/list", {}),
        request(3, "tools/call", ORIENT),
    ],
    "claude": [
        request("probe-1", "server/discover", meta(clientInfo=CLAUDE, clientCapabilities=CAN)),
        request(1, "prompts/list", meta(clientInfo=CLAUDE, clientCapabilities=CAN)),
        request(2, "resources/list", meta(clientInfo=CLAUDE, clientCapabilities=CAN)),
        request(3, "tools/list", meta(clientInfo=CLAUDE, clientCapabilities=CAN)),
        request(4, "tools/call", ORIENT | meta(clientInfo=CLAUDE, clientCapabilities=CAN)),
    ],
    "a listening client": [
        request("d", "server/discover", meta()),
        request(2, "tools/list", meta()),
        LISTEN,
        request(3, "prompts/list", meta()),
    ],
    "claude of the handshake": [
        {
            "method": "initialize",
            "params": {"protocolVersion": "2025-11-25", "capabilities": CAN, "clientInfo": CLAUDE},
            "jsonrpc": "2.0",
            "id": 0,
        },
        {"method": "notifications/initialized", "jsonrpc": "2.0"},
        *({"method": method, "jsonrpc": "2.0", "id": i} for i, method in enumerate(LISTS, 1)),
        request("p", "ping"),
    ],
}


async def sdk(
    opening: Opening, said: bytes, toolset: str = "coding", *, as_served: bool = False
) -> bytes:
    """What the SDK answers after an opening to what is said then, to its end.

    `as_served`: run as it is by `serve_stdio`, not by the SDK's own `Server.run`.
    """
    incoming, ours = os.pipe()
    theirs, outgoing = os.pipe()
    for fd in (ours, theirs):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 1 << 20)
    for fd in (incoming, theirs, outgoing):
        os.set_blocking(fd, False)
    os.write(ours, said)
    os.close(ours)
    with tempfile.TemporaryDirectory() as folder:
        chosen = Settings(f"{folder}/state.db", project="acme", agent="someone", toolset=toolset)
        server = create_server(chosen, FakeClock())
        wire = StdioWire(incoming, outgoing, opening)
        options = server.create_initialization_options()
        await (serve_wire(server, wire, options) if as_served else server.run(wire, wire, options))
        await wire.finish()
    answers = b""
    os.close(outgoing)
    while chunk := os.read(theirs, 1 << 20):
        answers += chunk
    os.close(incoming)
    os.close(theirs)
    return answers


def fresh(toolset: str = "coding") -> Front:
    answers = front.answers_for(["--toolset", toolset])
    assert answers is not None
    return Front(answers)


async def handed_over(said: bytes, at: int) -> tuple[bytes, bytes]:
    """What the front answers to what came up to a moment, and the SDK to the rest."""
    one = fresh()
    written = one.take(said[:at])
    return written, await sdk(one.opening, said[at:], as_served=True)


# The listing


def answers_of(toolset: str) -> dict[str, dict[str, Any]]:
    """What the server answers, without the front, to each of the moves that have one answer."""
    moves = ("server/discover", *LISTS)
    said = {
        "handshake": [initialize(request_id="initialize"), INITIALIZED]
        + [request(method, method) for method in (*LISTS, "ping")],
        "stateless": [request(method, method, meta()) for method in moves],
    }
    found: dict[str, dict[str, Any]] = {}
    for generation, messages in said.items():
        for line in asyncio.run(sdk(Opening(), lines(messages), toolset)).splitlines():
            answer = json.loads(line)
            del answer["jsonrpc"]
            found.setdefault(generation, {})[answer.pop("id")] = answer
    return found


def listing() -> dict[str, Any]:
    """The listing as it should be."""
    toolsets: dict[str, Any] = {}
    tools: dict[str, Any] = {}
    answers: dict[str, Any] = {}
    for toolset in builtin_names():
        answers = answers_of(toolset)
        listed = answers["stateless"]["tools/list"]["result"]["tools"]
        about = answers["stateless"]["server/discover"]["result"]
        toolsets[toolset] = {
            "instructions": about["instructions"],
            "tools": [tool["name"] for tool in listed],
        }
        tools |= {tool["name"]: tool for tool in listed}
    for of_one in answers.values():
        for answer in of_one.values():
            result = answer.get("result", {})
            result |= {key: "" for key in ("instructions", "tools") if key in result}
    return {"toolsets": toolsets, "tools": dict(sorted(tools.items())), **answers}


def test_the_listing_is_what_the_server_answers() -> None:
    assert LISTING.read_text(encoding="utf-8") == written(listing())


def written(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("toolset", builtin_names())
@pytest.mark.parametrize("version", [*HANDSHAKES, STATELESS])
def test_all_moves_are_answered_as_the_sdk_answers_them(toolset: str, version: str) -> None:
    if version == STATELESS:
        said = lines([request(m, m, meta()) for m in ("server/discover", *LISTS)])
    else:
        said = lines([initialize(version), INITIALIZED, *(request(m, m) for m in (*LISTS, "ping"))])
    one = fresh(toolset)

    assert one.take(said) == asyncio.run(sdk(Opening(), said, toolset))
    assert one.listens
    assert one.opening.rest == b""


# The hand-over


@pytest.mark.parametrize("client", OPENINGS)
async def test_what_clients_open_with_is_answered_but_for_the_calls(client: str) -> None:
    calls = [m for m in OPENINGS[client] if m["method"] == "tools/call"]
    moves = [m["id"] for m in OPENINGS[client] if "id" in m and m not in (*calls, LISTEN)]
    one = fresh()

    answered = [json.loads(line)["id"] for line in one.take(lines(OPENINGS[client])).splitlines()]

    assert answered == moves
    assert one.opening.rest == lines(calls)
    assert len(one.opening.answered) == 1


@pytest.mark.parametrize("client", OPENINGS)
async def test_the_answers_are_the_same_wherever_the_sdk_takes_over(client: str) -> None:
    said = lines(OPENINGS[client])
    ends = [i for i, byte in enumerate(said) if byte == ord("\n")]
    moments = {m for end in ends for m in (end, end + 1, end + 2)} | set(range(0, len(said), 311))
    expected = (await sdk(Opening(), said)).splitlines()
    acknowledged = LISTEN in OPENINGS[client]
    owed = sum("id" in message for message in OPENINGS[client])
    assert len(expected) == owed + acknowledged

    for moment in sorted(moments):
        by_front, by_sdk = await handed_over(said, moment)
        answers = (by_front + by_sdk).splitlines()
        if acknowledged:  # what is asked after it may be answered before
            assert sorted(answers) == sorted(expected), moment
        else:
            assert answers == expected, moment


@pytest.mark.parametrize("client", OPENINGS)
def test_lines_may_arrive_in_any_pieces(client: str) -> None:
    said = lines(OPENINGS[client])
    whole = fresh()
    answers = whole.take(said)
    for size in (1, 7, 100):
        one = fresh()
        assert b"".join(one.take(said[i : i + size]) for i in range(0, len(said), size)) == answers
        assert vars(one.opening) == vars(whole.opening)


LEFT_TO_THE_SDK: dict[str, bytes] = {
    "a call first": lines([request(1, "tools/call", ORIENT)]),
    "a list before the handshake": lines([request(1, "tools/list")]),
    "a list before it is initialized": lines([initialize(), request(1, "tools/list")]),
    "a second handshake": lines([initialize(), initialize(request_id=2)]),
    "a version nobody knows": lines([initialize("2099-01-01")]),
    "initialized first": lines([INITIALIZED]),
    "both generations": lines([initialize(), INITIALIZED, request(1, "tools/list", meta())]),
    "stateless, then a handshake": lines([request(1, "tools/list", meta()), initialize()]),
    "a page": lines([initialize(), INITIALIZED, request(1, "tools/list", {"cursor": "x"})]),
    "an unknown notification": lines([{"jsonrpc": "2.0", "method": "notifications/nonsense"}]),
    "an unknown method": lines([request(1, "nonsense", meta())]),
    "a subscription first": lines([LISTEN]),
    "a subscription with a handshake": lines([initialize(), INITIALIZED, LISTEN]),
    "an id twice": lines([request(1, "tools/list", meta()), request(1, "tools/list", meta())]),
    "an id that is null": lines([request(None, "tools/list", meta())]),
    "an id that is a fraction": lines([request(1.5, "tools/list", meta())]),
    "an id that is true": lines([request(True, "tools/list", meta())]),
    "a huge id": lines([request(10**30, "tools/list", meta())]),
    "an id in Unicode": lines([request("ä\ud800", "tools/list", meta())]),
    "another protocol": lines([{**request(1, "tools/list", meta()), "jsonrpc": "1.0"}]),
    "another member": lines([{**request(1, "tools/list", meta()), "more": 1}]),
    "a name twice": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}\n',
    "a batch": b"[" + lines([initialize()]).strip() + b"]\n",
    "no JSON": b"nonsense\n",
    "no UTF-8": b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}\n',
    "a BOM": b"\xef\xbb\xbf" + lines([initialize()]),
    "too deep": b"[" * 100_000 + b"\n",
    "not a number": lines([initialize(capabilities={"experimental": {"x": {"y": float("nan")}}})]),
    "params that are a list": lines([request(1, "tools/list", [])]),
    "params that are null": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}\n',
    "a client without a name": lines([initialize(clientInfo={"version": "1"})]),
    "a client whose version is a number": lines(
        [initialize(clientInfo={"name": "a", "version": 1})]
    ),
    "a client with an icon": lines([initialize(clientInfo={**CLAUDE, "icons": [{"src": 1}]})]),
    "capabilities that are a list": lines([initialize(capabilities=[])]),
    "roots that are true": lines([initialize(capabilities={"roots": True})]),
    "roots that change by one": lines([initialize(capabilities={"roots": {"listChanged": 1}})]),
    "an unknown capability": lines([initialize(capabilities={"nonsense": {}})]),
    "nothing about the client": lines([request(1, "tools/list", meta(clientInfo=None))]),
    "a version of the future": lines(
        [request(1, "tools/list", meta(protocolVersion="2099-01-01"))]
    ),
    "a progress token that is a list": lines(
        [initialize(), INITIALIZED, request(1, "tools/list", {"_meta": {"progressToken": []}})]
    ),
}


@pytest.mark.parametrize("case", LEFT_TO_THE_SDK)
async def test_what_is_not_quite_an_opening_move_is_left_to_the_sdk(case: str) -> None:
    said = LEFT_TO_THE_SDK[case]
    *_, last = said.splitlines(keepends=True)
    one = fresh()

    by_front = one.take(said)

    assert not one.listens
    assert one.opening.rest == last
    alone = await sdk(Opening(), said)
    assert by_front + await sdk(one.opening, b"", as_served=True) == alone
    assert await sdk(Opening(), said, as_served=True) == alone


async def test_after_the_first_such_message_nothing_is_answered_out_of_turn() -> None:
    one = fresh()
    said = lines([request(1, "tools/call", ORIENT | meta()), request(2, "tools/list", meta())])
    assert one.take(said) == b""
    assert one.take(lines([request(3, "tools/list", meta())])) == b""
    assert one.opening.rest == said + lines([request(3, "tools/list", meta())])


async def test_a_line_without_an_end_is_not_read_on_and_on() -> None:
    one = fresh()
    assert one.take(b"x" * 70_000) == b""
    assert not one.listens


SOME_LINES = st.sampled_from(
    [
        *(lines([message]) for opening in OPENINGS.values() for message in opening),
        *(line for said in LEFT_TO_THE_SDK.values() for line in said.splitlines(keepends=True)),
        b"\n",
        b" \r\n",
        lines([initialize()]).replace(b"\n", b"\r\n"),
        lines([request(7, "ping")]),
        lines([request(8, "ping", meta())]),
    ]
)


@settings(max_examples=examples(40))
@given(st.lists(SOME_LINES, max_size=6), st.data())
def test_any_conversation_goes_as_with_the_sdk_alone(said: list[bytes], of: st.DataObject) -> None:
    whole = b"".join(said)
    moment = of.draw(st.integers(0, len(whole)))

    answers = b"".join(asyncio.run(handed_over(whole, moment)))

    # what is refused unread overtakes the answer to what was sent in the same moment before it
    alone = asyncio.run(sdk(Opening(), whole))
    assert sorted(answers.splitlines()) == sorted(alone.splitlines())


# The process

HELD = """
import os, sys
from mcp_state import __main__, front

until, load = int(sys.argv.pop()), __main__._load_server
__main__._load_server = lambda: (os.read(until, 1), load())
__main__.main()
"""


class Held:
    """A server that does not get to the SDK before it is told to."""

    def __init__(self, path: str) -> None:
        until, self._go = os.pipe()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                HELD,
                "serve",
                "--db",
                path,
                "--project",
                "acme",
                str(until),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(until,),
        )
        os.close(until)

    def say(self, messages: Sequence[Message]) -> None:
        assert self.process.stdin
        self.process.stdin.write(lines(messages))
        self.process.stdin.flush()

    def answers(self, count: int) -> list[Any]:
        assert self.process.stdout
        return [json.loads(self.process.stdout.readline()) for _ in range(count)]

    def go_on(self) -> None:
        os.close(self._go)

    def end(self) -> tuple[bytes, bytes]:
        return self.process.communicate(timeout=60)


def test_the_lists_do_not_wait_for_the_sdk(path: str) -> None:
    server = Held(path)
    server.say(OPENINGS["codex"])
    early = server.answers(3)
    server.go_on()
    (late,) = server.answers(1)
    server.say([request(9, "tools/list")])
    (again,) = server.answers(1)
    rest, complaints = server.end()

    assert [answer["id"] for answer in (*early, late)] == [0, 1, 2, 3]
    assert "new here" in late["result"]["content"][0]["text"]
    assert again["result"] == early[1]["result"]
    assert (rest, complaints, server.process.returncode) == (b"", b"", 0)


def test_the_lists_do_not_wait_for_a_subscription_before_them(path: str) -> None:
    wanted = {"notifications": {"resourceSubscriptions": ["state://journal"]}}
    server = Held(path)
    server.say(
        [
            request("d", "server/discover", meta()),
            request("l", "subscriptions/listen", meta() | wanted),
            request(1, "tools/list", meta()),
        ]
    )
    early = server.answers(2)
    server.go_on()
    (acknowledged,) = server.answers(1)
    entry: Message = {"name": "journal_append", "arguments": {"text": "x"}}
    server.say([request(2, "tools/call", entry | meta())])
    late = server.answers(2)
    rest, complaints = server.end()

    assert [answer["id"] for answer in early] == ["d", 1]
    assert acknowledged["params"]["notifications"] == wanted["notifications"]
    assert sorted(one.get("method", "") for one in late) == ["", "notifications/resources/updated"]
    assert (json.loads(rest)["id"], complaints, server.process.returncode) == ("l", b"", 0)


def test_one_subscription_is_kept_and_no_more() -> None:
    one = fresh()
    second = lines([{**LISTEN, "id": 2}])

    one.take(lines([request("d", "server/discover", meta()), LISTEN]) + second)

    assert not one.listens
    assert one.opening.rest == second


SUBSCRIPTIONS_THAT_ARE_NONE: list[Any] = [{}, {"notifications": []}, {"notifications": {}, "x": 1}]


@pytest.mark.parametrize("params", SUBSCRIPTIONS_THAT_ARE_NONE)
async def test_a_subscription_is_judged_by_the_sdk_whatever_it_says(params: Message) -> None:
    said = lines([request("d", "server/discover", meta()), request(1, front.LISTEN, params)])
    one = fresh()

    by_front = one.take(said)

    assert by_front.count(b"\n") == 1
    alone = await sdk(Opening(), said)
    assert by_front + await sdk(one.opening, b"", as_served=True) == alone


def test_a_client_that_leaves_early_is_still_answered(path: str) -> None:
    server = Held(path)
    server.say(OPENINGS["claude"])
    assert server.process.stdin
    server.process.stdin.close()
    server.process.stdin = None
    early = server.answers(4)
    server.go_on()
    rest, complaints = server.end()

    assert [answer["id"] for answer in early] == ["probe-1", 1, 2, 3]
    assert json.loads(rest)["id"] == 4
    assert (complaints, server.process.returncode) == (b"", 0)


def test_what_is_said_before_and_after_the_hand_over_is_one_conversation(path: str) -> None:
    server = Held(path)
    said = lines(OPENINGS["claude"])
    assert server.process.stdin
    server.process.stdin.write(said[:1500])
    server.process.stdin.flush()
    server.go_on()
    server.process.stdin.write(said[1500:])
    server.process.stdin.flush()

    assert [a["id"] for a in server.answers(5)] == ["probe-1", 1, 2, 3, 4]
    assert server.end() == (b"", b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_before_the_sdk_is_there(path: str, number: int) -> None:
    server = Held(path)
    server.say([initialize()])
    server.answers(1)
    server.process.send_signal(number)

    assert server.end() == (b"", b"")
    assert server.process.returncode == -number


@pytest.mark.parametrize("closed", few_of(["<&-", ">&- <&-", "2>&- <&-"], ">&- <&-"))
def test_streams_that_are_closed_are_empty_ones(path: str, closed: str) -> None:
    command = f'exec "$0" -m mcp_state serve --db "$1" {closed}'
    done = subprocess.run(["sh", "-c", command, sys.executable, path], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    "more",
    [["--structured"], ["--exclude", "search"], ["--toolset", "x.toml"], ["--nonsense"], ["-h"]],
)
def test_with_options_that_change_the_lists_nothing_is_answered_beforehand(more: list[str]) -> None:
    assert front.answers_for(["--db", "/x", *more]) is None


def test_options_that_do_not_change_the_lists_are_known() -> None:
    usual = ["--db", "/x", "--project=acme", "--agent", "a", "--trace", "--allow-secrets"]
    assert front.answers_for(usual) == front.answers_for([])
    assert front.answers_for([*usual, "--toolset=all"]) == front.answers_for(["--toolset", "all"])
    assert front.answers_for(["--toolset", "all"]) != front.answers_for([])


def test_what_answers_first_imports_next_to_nothing() -> None:
    code = "import sys, mcp_state.__main__, mcp_state.front; print(*sorted(sys.modules))"
    alone = [sys.executable, "-I", "-c", code]  # -I: without what the tests add to each child
    done = subprocess.run(alone, check=True, capture_output=True, text=True)
    ours = {name for name in done.stdout.split() if name.startswith("mcp_state")}

    assert ours == {"mcp_state", "mcp_state.__main__", "mcp_state.front"}
    slow = {"typing", "dataclasses", "inspect", "logging", "asyncio", "click", "pathlib", "mcp"}
    assert not slow & set(done.stdout.split())


if __name__ == "__main__":
    LISTING.write_text(written(listing()), encoding="utf-8")
