import asyncio
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked import Forked, fork_tiny_server
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCRequest, TextContent
from soaking import examples

from mcp_state.front import Opening
from mcp_state.transport import REPLACED_META, StdioWire

TINY_SERVER = str(Path(__file__).with_name("tiny_server.py"))
ENDS_WITHIN = 2.0
PATIENCE = 60.0

Message = dict[str, Any]

INITIALIZE: Message = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
INITIALIZED: Message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
WELCOME: Message = {
    "jsonrpc": "2.0",
    "id": "hello",
    "result": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "tiny", "version": ""},
    },
}
GOODBYE = "lifespan closed\ncaller closed\n"


def call(request_id: int | str, tool: str, **arguments: object) -> Message:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def said(request_id: int | str, *texts: str) -> Message:
    content = [{"type": "text", "text": text} for text in texts]
    result = {"content": content, "isError": False}
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def pong(request_id: int | str) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "result": {}}


def refused(request_id: int | str | None, code: int, message: str) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


def not_readable() -> Message:
    return refused(None, -32700, "Parse error: the line is not readable JSON")


def not_a_request(request_id: int | str | None) -> Message:
    return refused(
        request_id,
        -32600,
        "Invalid request: expected one JSON-RPC 2.0 object with a string or integer id, "
        "a method, and params, if any, as an object nested less than 200 deep",
    )


def closed(request_id: int | str) -> Message:
    return refused(request_id, -32000, "Connection closed")


def lines(*messages: Message) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def messages(text: bytes) -> list[Message]:
    return [json.loads(line) for line in text.splitlines()]


@dataclass
class End:
    """What was left to see when the server was gone."""

    code: int
    answers: list[Message]
    told: str


class Child:
    """The tiny server as a process, with its pipes in our hands."""

    def __init__(self, process: asyncio.subprocess.Process | Forked, tell: int) -> None:
        assert process.stdin and process.stdout and process.stderr
        self.process = process
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = process.stderr
        self._tell = tell

    async def write(self, data: bytes) -> None:
        self.stdin.write(data)
        await asyncio.wait_for(self.stdin.drain(), PATIENCE)

    async def send(self, *sent: Message) -> None:
        await self.write(lines(*sent))

    async def answer(self) -> Message:
        return json.loads(await asyncio.wait_for(self.stdout.readline(), PATIENCE))

    async def handshake(self) -> None:
        await self.send(INITIALIZE, INITIALIZED)
        assert await self.answer() == WELCOME

    async def start(self, request: Message) -> None:
        """Send a call of a slow tool and wait until it runs."""
        await self.send(request)
        assert await asyncio.wait_for(self.stderr.readline(), PATIENCE) == b"started\n"

    def release(self) -> None:
        """Tell the slow tools to finish."""
        os.write(self._tell, b".")

    async def end(self, within: float = ENDS_WITHIN) -> End:
        async with asyncio.timeout(within):
            answers, told, code = await asyncio.gather(
                self.stdout.read(), self.stderr.read(), self.process.wait()
            )
        return End(code, messages(answers), told.decode())


@asynccontextmanager
async def running(*command: str) -> AsyncGenerator[Child]:
    """A process with the tiny server: of this command, else out of the nursery."""
    told, tell = os.pipe()
    if command:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(told,),
            env=os.environ | {"TOLD": str(told)},
        )
    else:
        process = await fork_tiny_server(told)
    os.close(told)
    try:
        yield Child(process, tell)
    finally:
        os.close(tell)
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait_for(process.communicate(), PATIENCE)


@pytest.fixture
async def child() -> AsyncGenerator[Child]:
    async with running() as child:
        await child.handshake()
        yield child


async def ask(child: Child, request: Message) -> Message:
    await child.send(request)
    return await child.answer()


async def assert_alive(child: Child) -> None:
    """Nothing but the answer to this call is on its way, and the server works."""
    assert await ask(child, call("alive", "echo", text="yes")) == said("alive", "yes")


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28", "auto"])
async def test_the_sdk_client_works_in_every_protocol_generation(mode: str) -> None:
    server = StdioServerParameters(command=sys.executable, args=[TINY_SERVER])

    async with asyncio.timeout(PATIENCE):
        async with Client(server, mode=mode) as client:
            tools = await client.list_tools()
            results = await asyncio.gather(
                *(client.call_tool("echo", {"text": f"line {n}\n"}) for n in range(100))
            )

    assert [tool.name for tool in tools.tools][:2] == ["echo", "slow"]
    assert [result.content for result in results] == [
        [TextContent(text=f"line {n}\n")] for n in range(100)
    ]


async def test_requests_are_read_however_their_lines_end(child: Child) -> None:
    await child.write(
        b'\r\n  \n\t\r\n{"jsonrpc":"2.0","id":1,"method":"ping"}\r\n'
        b'\n\n  {"jsonrpc":"2.0",\t"id":2, "method":"ping"}   \n\n'
        b'{"jsonrpc":"2.0","id":3,"method":"ping"}'
    )
    child.stdin.close()

    end = await child.end()

    assert end == End(0, [pong(1), pong(2), pong(3)], GOODBYE)


async def test_a_byte_order_mark_before_a_line_is_skipped(child: Child) -> None:
    await child.write(
        b"\xef\xbb\xbf" + lines(call(1, "echo", text="one"), call(2, "echo", text="2"))
    )

    assert [await child.answer(), await child.answer()] == [said(1, "one"), said(2, "2")]


async def test_lines_may_be_cut_anywhere_even_inside_a_character(child: Child) -> None:
    text = "zwölf 🦊"
    first, second = (
        lines(call(1, "echo", text="one")),
        json.dumps(call(2, "echo", text=text), ensure_ascii=False).encode(),
    )
    half = second.index("🦊".encode()) + 2

    await child.write(first + second[:half])
    assert await child.answer() == said(1, "one")
    await child.write(second[half:] + b"\n" + lines(call(3, "echo", text="three")))

    assert [await child.answer(), await child.answer()] == [said(2, text), said(3, "three")]


@pytest.mark.parametrize("size", [2_000_000, 20_000_000])
async def test_a_line_may_be_megabytes_long_both_ways(child: Child, size: int) -> None:
    text = "ü" * (size // 2)

    answer = await ask(child, call(1, "echo", text=text))

    assert answer == said(1, text)
    await assert_alive(child)


async def test_two_thousand_requests_before_the_end_of_input_are_all_answered() -> None:
    calls = [call(n, "echo", text=str(n)) for n in range(2_000)]

    async with running() as child:
        writing = asyncio.create_task(child.write(lines(INITIALIZE, INITIALIZED, *calls)))
        answers = [await child.answer() for _ in range(1_000)]
        await writing
        child.stdin.close()
        end = await child.end(within=PATIENCE)

    assert answers[0] == WELCOME
    assert answers[1:] + end.answers == [said(n, str(n)) for n in range(2_000)]
    assert (end.code, end.told) == (0, GOODBYE)


def echo(text: bytes, extra: bytes = b"") -> bytes:
    """A call of `echo` with JSON text that `json.dumps` would not write."""
    return (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
        b'{"name":"echo","arguments":{"text":"%s"}%s}}\n' % (text, extra)
    )


async def test_text_that_is_not_well_formed_is_answered(child: Child) -> None:
    meta = rb',"_meta":{"progressToken":1}'
    exchanges = [
        (echo(rb"a\ud800b\udc00c", rb',"\udfff":""'), said(1, "a\ufffdb\ufffdc", "3 replaced")),
        (echo(rb"\ud83d\ud83d\ude00\ude00"), said(1, "\ufffd\U0001f600\ufffd", "2 replaced")),
        (echo(rb"\\ud800 \\\ud800", meta), said(1, "\\ud800 \\\ufffd", "1 replaced")),
        (echo(rb"x", rb',"_meta":null,"y":"\uDBFF"'), said(1, "x", "1 replaced")),
        (echo(b"a\xff\xed\xa0\x80\xc3"), said(1, "a" + 5 * "\ufffd")),
        (echo(rb"a\u0000b"), said(1, "a\0b")),
        (
            b'{"jsonrpc":"2.0","id":"a\\udc00","method":"ping","extra":"\\ud800"}\n',
            pong("a\ufffd"),
        ),
    ]
    await child.write(b"".join(request for request, _ in exchanges))

    assert [await child.answer() for _ in exchanges] == [answer for _, answer in exchanges]


NINES = b"9" * 5_000


NOT_MESSAGES = [
    (b"nonsense", not_readable()),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping"', not_readable()),
    (b"\0\0\0", not_readable()),
    (b"5\0", not_readable()),
    (b"[" * 100_000, not_readable()),
    (b'{"a":' * 100_000, not_readable()),
    (b'{"jsonrpc":"2.0","id":' + NINES + b',"method":"ping"}', not_readable()),
    (b"[" * 300 + b"]" * 300, not_a_request(None)),
    (
        b'{"id":7,"method":"m","params":{"a":' + b"[" * 300 + b"]" * 300 + b"}}",
        not_a_request(7),
    ),
    (b"5", not_a_request(None)),
    (b"null", not_a_request(None)),
    (b"{}", not_a_request(None)),
    (b"[]", not_a_request(None)),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', not_a_request(None)),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', not_a_request(None)),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', not_a_request(None)),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', not_a_request(None)),
    (b'{"jsonrpc":"2.0","id":[],"method":"ping"}', not_a_request(None)),
    (b'{"jsonrpc":"2.0","id":7}', not_a_request(7)),
    (b'{"jsonrpc":"1.0","id":"x","method":"ping"}', not_a_request("x")),
    (b'{"jsonrpc":"2.0","id":7,"method":5}', not_a_request(7)),
    (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', not_a_request(7)),
    (rb'{"id":"\ud800","method":"ping"}', not_a_request("\ufffd")),
]


async def test_lines_that_are_no_messages_are_refused_and_the_server_goes_on(child: Child) -> None:
    await child.write(b"".join(line + b"\n" for line, _ in NOT_MESSAGES))

    assert [await child.answer() for _ in NOT_MESSAGES] == [answer for _, answer in NOT_MESSAGES]
    await assert_alive(child)


async def test_a_line_that_is_no_message_is_refused_before_the_handshake_too() -> None:
    async with running() as child:
        await child.write(b"nonsense\n")

        assert await child.answer() == not_readable()
        await child.handshake()
        await assert_alive(child)


async def test_notifications_and_responses_are_never_answered(child: Child) -> None:
    await child.write(
        b'{"jsonrpc":"2.0","method":"notifications/unheard_of"}\n'
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}\n'
        b'{"jsonrpc":"2.0","method":"notifications/x","params":{"id":1,"text":"\\ud800"}}\n'
        b'{"jsonrpc":"2.0","id":99,"result":{}}\n'
        b'{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"no"}}\n'
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}\n'
        b'{"jsonrpc":"2.0","id":99,"result":"a malformed response"}\n'
    )

    await assert_alive(child)


async def test_numbers_beyond_json_are_taken_and_never_sent(child: Child) -> None:
    huge = int("9" * 1_000)
    await child.write(
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"nan",'
        b'"arguments":{"x":NaN,"y":-Infinity}}}\n' % huge
    )

    assert await child.answer() == {
        "jsonrpc": "2.0",
        "id": huge,
        "result": said(0, "done")["result"] | {"structuredContent": {"value": None}},
    }
    await assert_alive(child)


async def test_requests_with_the_same_id_are_each_answered(child: Child) -> None:
    await child.send(call(1, "echo", text="one"), call(1, "echo", text="two"))

    assert [await child.answer(), await child.answer()] == [said(1, "one"), said(1, "two")]


async def test_an_undecodable_file_name_is_sent_with_a_replacement_character(child: Child) -> None:
    assert await ask(child, call(1, "undecodable")) == said(1, "caf\ufffd.txt")


async def test_answers_that_json_cannot_hold_become_errors(child: Child) -> None:
    await child.send(call(1, "deep"), call(2, "unwritable"))

    answers = [await child.answer(), await child.answer()]

    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(1, 0), (2, 0)]
    await assert_alive(child)


async def test_what_is_not_protocol_never_reaches_stdout(child: Child) -> None:
    assert await ask(child, call(1, "noise")) == said(1, "done")
    child.stdin.close()

    end = await child.end()

    noise = "written to fd 1\nfrom a child\n"
    assert end == End(0, [], noise + GOODBYE + "buffered until exit")


def test_every_answer_is_one_write() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(PATIENCE)
    with ours:
        server = subprocess.Popen(
            [sys.executable, TINY_SERVER],
            stdin=subprocess.PIPE,
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
        )
        theirs.close()
        with server:
            assert server.stdin
            server.stdin.write(lines(INITIALIZE, INITIALIZED, call(1, "echo", text="x" * 50_000)))
            server.stdin.flush()
            packets = [ours.recv(100_000), ours.recv(100_000)]
            server.stdin.close()
            server.wait(PATIENCE)

    assert [json.loads(packet) for packet in packets] == [WELCOME, said(1, "x" * 50_000)]
    assert [packet[-1:] for packet in packets] == [b"\n", b"\n"]


def test_one_socket_can_be_both_stdin_and_stdout() -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    with ours, ours.makefile("rb") as incoming:
        server = subprocess.Popen(
            [sys.executable, TINY_SERVER],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
        )
        theirs.close()
        with server:
            assert server.stderr
            ours.sendall(lines(INITIALIZE))
            welcome = incoming.readline()
            ours.sendall(lines(INITIALIZED, call(1, "echo", text="hi")))
            answer = incoming.readline()
            ours.shutdown(socket.SHUT_WR)
            told, code = server.stderr.read(), server.wait(PATIENCE)

    assert messages(welcome + answer) == [WELCOME, said(1, "hi")]
    assert (code, told.decode()) == (0, GOODBYE)


@pytest.mark.parametrize("requests", [[], [INITIALIZE, INITIALIZED, call(1, "echo", text="hi")]])
def test_stdin_and_stdout_can_be_files(tmp_path: Path, requests: list[Message]) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(lines(*requests))

    with source.open("rb") as stdin, target.open("wb") as stdout:
        server = subprocess.run(
            [sys.executable, TINY_SERVER],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=True,
        )

    assert server.stderr.decode() == GOODBYE
    assert messages(target.read_bytes()) == ([WELCOME, said(1, "hi")] if requests else [])


def test_it_ends_at_once_when_stdin_is_dev_null() -> None:
    server = subprocess.run(
        [sys.executable, TINY_SERVER],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )

    assert (server.stdout, server.stderr.decode()) == (b"", GOODBYE)


ENDINGS = {
    "EOF": (),
    "SIGTERM": (signal.SIGTERM,),
    "SIGINT": (signal.SIGINT,),
    "SIGINT, then SIGTERM": (signal.SIGINT, signal.SIGTERM),
    "SIGTERM, then SIGINT": (signal.SIGTERM, signal.SIGINT),
}
every_ending = pytest.mark.parametrize("signals", ENDINGS.values(), ids=ENDINGS)


def finish(child: Child, signals: tuple[signal.Signals, ...]) -> None:
    for number in signals:
        child.process.send_signal(number)
    if not signals:
        child.stdin.close()


@every_ending
async def test_it_ends_cleanly_when_idle(child: Child, signals: tuple[signal.Signals, ...]) -> None:
    finish(child, signals)

    assert await child.end() == End(0, [], GOODBYE)


@every_ending
async def test_a_call_in_flight_finishes_and_is_answered(
    child: Child, signals: tuple[signal.Signals, ...]
) -> None:
    await child.start(call(1, "slow"))
    finish(child, signals)
    child.release()

    assert await child.end() == End(0, [said(1, "done")], GOODBYE)


@pytest.mark.parametrize("signals", [(), (signal.SIGTERM,)], ids=["EOF", "SIGTERM"])
async def test_a_call_that_does_not_finish_is_cancelled_after_a_second(
    child: Child, signals: tuple[signal.Signals, ...]
) -> None:
    await child.start(call(1, "slow"))
    finish(child, signals)

    assert await child.end() == End(0, [closed(1)], GOODBYE)


async def test_a_cancelled_call_does_not_delay_the_end(child: Child) -> None:
    await child.start(call(1, "slow"))
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    await child.send({"jsonrpc": "2.0"} | cancelled)
    await assert_alive(child)
    child.stdin.close()

    assert await child.end(within=0.9) == End(0, [], GOODBYE)


async def test_what_must_not_be_interrupted_is_still_answered_when_the_others_were_cancelled(
    child: Child,
) -> None:
    await child.start(call(1, "slow"))
    await child.start(call(2, "stubborn"))
    child.stdin.close()
    assert await child.answer() == closed(1)
    child.release()

    assert await child.end() == End(0, [said(2, "done")], "finished\n" + GOODBYE)


async def test_a_call_that_cannot_be_cancelled_does_not_keep_the_process(child: Child) -> None:
    await child.start(call(1, "stuck"))
    child.stdin.close()

    end = await child.end()

    told = "a call or the cleanup resisted its cancellation; exiting without it\n"
    assert end == End(1, [], told)


async def test_a_subscription_is_no_call_to_wait_for() -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"notifications": {}, "_meta": meta}
    async with running() as child:
        await child.start(
            {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        )
        child.stdin.close()

        assert await child.end(within=0.9) == End(0, [closed(1)], GOODBYE)


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.product((signal.SIGTERM, signal.SIGINT), repeat=2))
)
async def test_a_second_signal_kills_at_once_if_it_is_the_same_and_is_ignored_otherwise(
    child: Child, first: signal.Signals, second: signal.Signals
) -> None:
    await child.start(call(1, "slow"))
    await child.start(call(2, "stubborn"))
    child.process.send_signal(first)
    assert await child.answer() == closed(1)
    child.process.send_signal(second)
    if second != first:
        child.release()

    killed, clean = End(-first, [], ""), End(0, [said(2, "done")], "finished\n" + GOODBYE)
    assert await child.end(within=0.9) == (killed if second == first else clean)


PARENT = """
import subprocess, sys
server = subprocess.Popen(sys.argv[1:], close_fds=False)
sys.exit(server.wait())
"""


@pytest.mark.parametrize("in_flight", [False, True])
async def test_it_ends_when_its_parent_vanishes_though_stdin_stays_open(in_flight: bool) -> None:
    async with running(sys.executable, "-c", PARENT, sys.executable, TINY_SERVER) as parent:
        await parent.handshake()
        if in_flight:
            await parent.start(call(1, "slow"))
        parent.process.kill()
        parent.release()

        end = await parent.end()

    assert end == End(-signal.SIGKILL, [said(1, "done")] if in_flight else [], GOODBYE)


def test_a_client_that_no_longer_reads_ends_it_quietly() -> None:
    reading, writing = os.pipe()
    server = subprocess.Popen(
        [sys.executable, TINY_SERVER], stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    with server:
        assert server.stdin and server.stderr
        server.stdin.write(lines(INITIALIZE, INITIALIZED))
        server.stdin.flush()
        welcome = os.read(reading, 65_536)
        os.close(reading)
        server.stdin.write(lines(call(1, "echo", text="hi"), call(2, "echo", text="hi")))
        server.stdin.flush()
        told, code = server.stderr.read(), server.wait(PATIENCE)

    assert messages(welcome) == [WELCOME]
    assert (code, told.decode()) == (0, GOODBYE)


async def test_answers_wait_for_a_client_that_reads_late(child: Child) -> None:
    texts = [letter * 300_000 for letter in "abcdefgh"]
    await child.send(*(call(n, "echo", text=text) for n, text in enumerate(texts)))

    answers = [await child.answer() for _ in texts]

    assert answers == [said(n, text) for n, text in enumerate(texts)]


@asynccontextmanager
async def running_unread() -> AsyncGenerator[tuple[asyncio.subprocess.Process, int]]:
    """The tiny server, and a descriptor for its stdout that nothing reads in the background."""
    reading, writing = os.pipe()
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        TINY_SERVER,
        stdin=subprocess.PIPE,
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    try:
        yield server, reading
    finally:
        with suppress(ProcessLookupError):
            server.kill()
        await asyncio.wait_for(server.communicate(), PATIENCE)
        os.close(reading)


async def test_a_client_that_does_not_read_is_made_to_wait_and_loses_nothing() -> None:
    text = "x" * 500_000
    async with running_unread() as (server, reading):
        assert server.stdin
        server.stdin.write(lines(INITIALIZE, INITIALIZED))
        welcome = await asyncio.to_thread(os.read, reading, 65_536)
        server.stdin.write(lines(*(call(n, "echo", text=text) for n in range(10))))
        writing = asyncio.create_task(server.stdin.drain())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(writing), 1)

        with os.fdopen(os.dup(reading), "rb") as stdout:
            reading_all = asyncio.to_thread(lambda: b"".join(stdout.readline() for _ in range(10)))
            answers = await asyncio.wait_for(reading_all, PATIENCE)
        await asyncio.wait_for(writing, PATIENCE)

    assert messages(welcome + answers) == [WELCOME, *(said(n, text) for n in range(10))]


@pytest.mark.parametrize("signals", [(), (signal.SIGTERM,)], ids=["EOF", "SIGTERM"])
async def test_a_client_that_does_not_read_cannot_keep_it(
    signals: tuple[signal.Signals, ...],
) -> None:
    async with running_unread() as (server, reading):
        assert server.stdin and server.stderr
        server.stdin.write(lines(INITIALIZE, INITIALIZED, call(1, "echo", text="x" * 1_000_000)))
        await asyncio.wait_for(server.stdin.drain(), PATIENCE)
        welcome = b""
        while not welcome.endswith(b"x"):
            welcome += os.read(reading, 1_000)
        for number in signals:
            server.send_signal(number)
        if not signals:
            server.stdin.close()

        async with asyncio.timeout(ENDS_WITHIN):
            told, code = await server.stderr.read(), await server.wait()

    assert messages(welcome.split(b"\n")[0]) == [WELCOME]
    assert (code, told.decode()) == (0, GOODBYE)


async def test_an_idle_server_never_wakes_up(child: Child) -> None:
    def wake_ups() -> list[str]:
        tasks = Path(f"/proc/{child.process.pid}/task").glob("*/status")
        return re.findall(r"voluntary_ctxt_switches:\t(\d+)", "".join(t.read_text() for t in tasks))

    await assert_alive(child)
    with suppress(TimeoutError):
        await asyncio.wait_for(child.stdout.read(1), 0.1)
    before = wake_ups()
    with suppress(TimeoutError):
        await asyncio.wait_for(child.stdout.read(1), 0.5)

    assert wake_ups() == before


@asynccontextmanager
async def wire_with_input(data: bytes, chunk: int) -> AsyncGenerator[tuple[StdioWire, int]]:
    """A wire in this process, given `data` in chunks of a size and then EOF."""
    incoming, ours = os.pipe()
    theirs, outgoing = os.pipe()
    os.set_blocking(incoming, False)
    os.set_blocking(outgoing, False)
    wire = StdioWire(incoming, outgoing, Opening())

    async def feed() -> None:
        for start in range(0, len(data), chunk):
            os.write(ours, data[start : start + chunk])
            await asyncio.sleep(0)
        os.close(ours)

    feeding = asyncio.create_task(feed())
    try:
        yield wire, theirs
    finally:
        await feeding
        await wire.finish()
        for fd in (incoming, theirs, outgoing):
            os.close(fd)


async def received(data: bytes, chunk: int) -> tuple[list[SessionMessage], list[Message]]:
    """What the SDK gets to see of some input, and what is answered without it."""
    async with wire_with_input(data, chunk) as (wire, answers):
        delivered: list[SessionMessage] = []
        async for item in wire:
            delivered.append(item)
            if isinstance(item.metadata, ServerMessageMetadata):
                assert item.metadata.on_request_unanswered
                await item.metadata.on_request_unanswered()
        os.set_blocking(answers, False)
        with suppress(BlockingIOError):
            return delivered, messages(os.read(answers, 1_000_000))
        return delivered, []


SOME_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=examples(25))
@given(
    st.lists(st.binary(max_size=40) | SOME_JSON.map(lambda value: json.dumps(value).encode())),
    st.integers(1, 50),
)
def test_no_input_of_any_kind_breaks_the_reader(parts: list[bytes], chunk: int) -> None:
    data = b"\n".join(parts)

    delivered, answers = asyncio.run(received(data, chunk))

    assert delivered == []
    assert {answer["error"]["code"] for answer in answers} <= {-32700, -32600}


TEXT = st.text(st.characters(blacklist_categories=()) | st.sampled_from('\ud800\udfff\\u"/\n'))


@settings(max_examples=examples(25))
@given(TEXT, TEXT, st.booleans(), st.integers(1, 200))
def test_exactly_the_lone_surrogates_are_replaced_and_counted(
    key: str, value: str, ascii_only: bool, chunk: int
) -> None:
    request = call(1, "echo", k=value) | {"params": {key: value}}
    line = json.dumps(request, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")

    delivered, answers = asyncio.run(received(line, chunk))

    if ascii_only:
        paired = json.loads(line)["params"]
        [(stored_key, stored_value)] = paired.items()
        expected_key, in_key = re.subn("[\ud800-\udfff]", "\ufffd", stored_key)
        expected_value, in_value = re.subn("[\ud800-\udfff]", "\ufffd", stored_value)
        replaced = {"_meta": {REPLACED_META: in_key + in_value}} if in_key + in_value else {}
        expected = {expected_key: expected_value} | replaced
    else:
        expected = json.loads(line.decode("utf-8", "replace"))["params"]
    assert answers == []
    [item] = delivered
    assert isinstance(item.message, JSONRPCRequest)
    assert item.message.params == expected
