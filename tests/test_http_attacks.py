"""What is tried against a server over HTTP, on real sockets, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import re
import secrets
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from browsing import Reply
from conftest import FakeClock
from over_http import (
    HELLO,
    JSON,
    POSTED,
    PROXIED,
    Served,
    called,
    ended,
    id_of,
    of,
    refusals,
    revoke,
    secret_of,
    serving,
    token_for,
)
from peeking import Refused, plain, rows
from planting import held
from test_http import until
from whole_stores import writing

from mcp_state.http.bounds import Bounds, Rates, Sessions
from mcp_state.models import Actor, Caller
from mcp_state.settings import Settings
from mcp_state.store.database import open_database
from mcp_state.store.tokens import Tokens
from mcp_state.tools.arguments import MOST_AROUND

NOT_KNOWN = "The token is not known."


@pytest.fixture
def settings(path: str) -> Settings:
    return Settings(db=path, toolset="all")


@pytest.fixture
async def server(settings: Settings, clock: FakeClock) -> AsyncGenerator[Served]:
    """One that wants a token."""
    async with serving(settings, PROXIED, clock=clock) as served:
        yield served


@pytest.fixture
async def local(settings: Settings) -> AsyncGenerator[Served]:
    """One that this machine may ask without a token."""
    async with serving(settings, bounds=Bounds(drain=0.05)) as served:
        yield served


def error(text: str) -> str:
    return json.loads(text)["error"]["message"]


# Tokens


async def test_without_a_token_nothing_is_answered_but_that_it_lives(
    server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for method, target in (
        ("POST", "/mcp"),
        ("GET", "/mcp"),
        ("DELETE", "/mcp"),
        ("GET", "/metrics"),
    ):
        reply = await server.ask(method, target)
        assert reply.status == 401
        assert reply.headers["www-authenticate"] == 'Bearer realm="mcp-state"'
        assert error(reply.text) == "This server needs a token (Authorization: Bearer …)."
    for target, text in (("/healthz", "ok\n"), ("/readyz", "ready\n")):
        assert (await server.ask("GET", target)).text == text

    assert refusals(caplog)[0] == (
        "refused 127.0.0.1: no_token: This server needs a token (Authorization: Bearer …). "
        "'POST' '/mcp'"
    )


async def test_wrong_tokens_are_told_apart_by_nobody(
    server: Served, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = await token_for(path, "acme")
    known, secret = id_of(token), secret_of(token)
    for wrong in (
        f"mcps_{known}_{secrets.token_urlsafe(32)}",
        f"mcps_t-nosuchtoken_{secret}",
        f"mcps_{known}_{secret[:-1]}",
        f"mcps_{known}_{secret}x",
        token.upper(),
        f"{token} {token}",
        secret,
        known,
        "mcps_t-%27_" + secret,
        "x" * 5000,
    ):
        reply = await server.call("orient", token=wrong)
        assert (reply.status, error(reply.text)) == (401, NOT_KNOWN), wrong
    assert (await server.call("orient", token=token)).status == 200

    lines = refusals(caplog)
    assert len(lines) == 10
    assert not [line for line in lines if secret[:20] in line or known in line]


@pytest.mark.parametrize("scheme", ["Basic", "bearer2", "", "Token"])
async def test_only_a_bearer_token_is_one(server: Served, path: str, scheme: str) -> None:
    token = await token_for(path, "acme")

    reply = await server.ask(
        "POST", "/mcp", b"", **POSTED, authorization=f"{scheme} {token}".strip()
    )

    assert (reply.status, reply.headers["www-authenticate"]) == (401, 'Bearer realm="mcp-state"')


async def test_an_expired_token_is_refused_from_that_moment_on(
    server: Served, path: str, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    token = await token_for(path, "acme", lasts=timedelta(hours=1), agent="ci", clock=clock)
    clock.move(seconds=3599)
    assert (await server.call("orient", token=token)).status == 200
    clock.move(seconds=1)

    reply = await server.call("orient", token=token)

    assert (reply.status, error(reply.text)) == (401, "The token has expired.")
    assert refusals(caplog) == [
        "refused 127.0.0.1: expired_token: The token has expired. 'POST' '/mcp' "
        f"[token {id_of(token)} of 'ci']"
    ]


async def test_a_token_that_another_process_revoked_is_refused_at_the_next_request(
    server: Served, path: str
) -> None:
    token, other = await token_for(path, "acme"), await token_for(path, "acme")
    session = (await server.begin(token=token)).headers["mcp-session-id"]
    assert (await server.call("orient", token=token)).status == 200
    await revoke(path, token)

    for reply in (
        await server.call("orient", token=token),
        await server.ask("DELETE", token=token, mcp_session_id=session),
    ):
        assert (reply.status, error(reply.text)) == (401, "The token was revoked.")
    assert (await server.call("orient", token=other)).status == 200


async def test_a_session_belongs_to_the_token_that_began_it(server: Served, path: str) -> None:
    """Another one is told the same as of a session that never was."""
    mine, theirs = await token_for(path, "acme"), await token_for(path, "acme")
    session = (await server.begin(token=mine)).headers["mcp-session-id"]

    for method in ("POST", "GET", "DELETE"):
        body = HELLO if method == "POST" else b""
        taken = await server.ask(
            method, "/mcp", body, token=theirs, mcp_session_id=session, **POSTED
        )
        unknown = await server.ask(
            method, "/mcp", body, token=theirs, mcp_session_id="f" * 32, **POSTED
        )
        assert (taken.status, taken.text) == (404, unknown.text)
        assert unknown.status == 404

    assert (await server.ask("DELETE", token=mine, mcp_session_id=session)).status == 200


async def test_what_the_protocol_refuses_is_logged_with_who_and_without_the_session(
    server: Served, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    mine, theirs = await token_for(path, "acme"), await token_for(path, "acme", agent="mallory")
    session = (await server.begin(token=mine)).headers["mcp-session-id"]
    await server.begin(token=theirs, session=session)
    await server.ask("POST", "/mcp", b"[]", token=theirs, **POSTED)

    who = f"refused token {id_of(theirs)} ('mallory') from 127.0.0.1"
    assert refusals(caplog) == [
        f"{who}: session: answered 404 to 'POST' '/mcp'",
        f"{who}: protocol: answered 400 to 'POST' '/mcp'",
    ]
    assert not any(session in line for line in refusals(caplog))


async def test_a_call_that_its_token_does_not_allow_is_logged(
    server: Served, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = await token_for(path, "acme", toolset="readonly", agent="m")
    await server.call("journal_append", token=token, text="x")
    await server.call("orient", token=token, project="beta\n\x1b[31mforged")

    first, second = refusals(caplog)
    assert first.startswith(
        f"refused token {id_of(token)} ('m'): 'readonly_toolset: journal_append writes"
    )
    assert second.startswith(f"refused token {id_of(token)} ('m'): 'project_unknown: this token")
    assert all(line.isascii() and line.isprintable() for line in (first, second))


async def test_a_session_without_a_token_is_not_taken_over_by_one(local: Served, path: str) -> None:
    token = await token_for(path, "acme")
    session = (await local.begin()).headers["mcp-session-id"]

    assert (await local.begin(token=token, session=session)).status == 404


async def test_metrics_are_for_who_may_see_every_project(server: Served, path: str) -> None:
    one, every = await token_for(path, "acme"), await token_for(path)
    await server.call("orient", token=one, project="acme")

    assert (await server.ask("GET", "/metrics", token=one)).status == 403
    seen = await server.ask("GET", "/metrics", token=every)

    assert seen.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'mcp_state_calls_total{tool="orient",outcome="ok"} 1\n' in seen.text
    assert 'mcp_state_refusals_total{reason="metrics"} 1\n' in seen.text
    assert "acme" not in seen.text


async def test_a_secret_is_compared_in_constant_time_and_an_unknown_id_costs_the_same(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found by its id; what is compared are two hashes of one length, whatever is sent."""
    token = await token_for(path, "acme")
    compared: list[tuple[str, str]] = []
    compare = secrets.compare_digest

    def spy(first: str, second: str) -> bool:
        compared.append((first, second))
        return compare(first, second)

    monkeypatch.setattr(secrets, "compare_digest", spy)
    database = open_database(path)
    tokens = Tokens(database, Caller("", "", Actor("")))
    given = [token, f"{token[:-1]}x", "mcps_t-nosuch_" + "a" * 43, "no token", ""]
    outcomes: list[bool] = []
    for one in given:
        try:
            outcomes.append(bool(await tokens.principal(one)))
        except Exception as problem:
            assert str(problem).startswith("token_refused: the token is not known")
            outcomes.append(False)
    await database.aclose()

    assert outcomes == [True, False, False, False, False]
    assert len(compared) == len(given)
    assert all(re.fullmatch(r"[0-9a-f]{64}", text) for pair in compared for text in pair)
    kept = [second for _, second in compared]
    assert kept[0] == kept[1] != "0" * 64
    assert kept[2:] == ["0" * 64] * 3


async def test_the_store_keeps_no_token_only_its_hash(path: str) -> None:
    token = await token_for(path, "acme")

    assert held(path, secret_of(token)) == []
    ((kept,),) = rows(path, "SELECT hash FROM tokens")
    for forbidden in (
        "UPDATE tokens SET every_project = 1",
        "UPDATE tokens SET toolset = 'all'",
        "UPDATE tokens SET project = 2",
        "UPDATE tokens SET expires_at = '9999'",
        "DELETE FROM tokens",
    ):
        with plain(path) as store, pytest.raises(Refused):
            store.execute(forbidden)
    assert re.fullmatch("[0-9a-f]{64}", kept)


# Names and origins


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "127.0.0.1.evil.example",
        "localhost.",
        "127.0.0.1:x",
        "[::1",
        "a b",
    ],
)
async def test_a_name_that_was_made_to_lead_here_is_refused(
    local: Served, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await local.ask("POST", "/mcp", HELLO, host=host, **POSTED)

    assert reply.status in (400, 421)
    assert len(refusals(caplog)) == 1
    assert (await local.ask("GET", "/healthz", host=host)).status == reply.status


async def test_the_names_that_it_is_known_by_are_answered(settings: Settings) -> None:
    door = replace(PROXIED, names=("State.Example.com",))
    async with serving(settings, door) as server:
        for host in ("state.example.com", "STATE.example.com:443", f"127.0.0.1:{server.port}"):
            assert (await server.ask("GET", "/healthz", host=host)).status == 200
        for said in ("x_forwarded_host", "forwarded", "x_forwarded_for", "x_real_ip"):
            reply = await server.ask("GET", "/metrics", b"", host="evil.example", **{said: "::1"})
            assert reply.status == 421
            assert (await server.ask("GET", "/metrics", b"", **{said: "::1"})).status == 401


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "file://", "https://"]
)
async def test_a_page_of_another_site_is_refused(local: Served, origin: str) -> None:
    reply = await local.ask("POST", "/mcp", HELLO, origin=origin, **POSTED)

    assert (reply.status, error(reply.text)) == (403, "Pages of other sites can't call this.")
    assert "access-control-allow-origin" not in reply.headers
    preflight = await local.ask("OPTIONS", origin=origin)
    assert preflight.status in (403, 405)


async def test_its_own_origin_is_answered(local: Served) -> None:
    reply = await local.begin(origin=f"http://127.0.0.1:{local.port}")

    assert reply.status == 200


# Paths


@pytest.mark.parametrize(
    "target",
    [
        *("/", "/mcp/", "//mcp", "/./mcp", "/x/../mcp", "/%6dcp", "/mcp%2f", "/mcp;x", "/mcp?x"),
        *("/MCP", "/mcp%00", "/healthz/../metrics", "/metrics/", "/metrics?token=x", "/mcp#x"),
        *("http://127.0.0.1/mcp", "*", "/healthz%20", "/.well-known/oauth-protected-resource"),
    ],
)
async def test_there_is_nothing_at_any_other_address(local: Served, target: str) -> None:
    for method in ("GET", "POST"):
        assert (await local.ask(method, target)).status == 404


async def test_other_methods_are_refused(local: Served) -> None:
    for method, target in (
        ("PUT", "/mcp"),
        ("TRACE", "/mcp"),
        ("OPTIONS", "/mcp"),
        ("POST", "/metrics"),
        ("DELETE", "/healthz"),
        ("G\u00c9T".encode("latin-1").decode("latin-1"), "/mcp"),
    ):
        assert (await local.ask(method, target)).status in (400, 405)


# Bytes


def raw(port: int, *lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join([*lines, "", ""]).replace("HOST", f"127.0.0.1:{port}").encode() + body


async def conversation(server: Served, request: bytes) -> bytes:
    """All that is answered until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    answered = b""
    with contextlib.suppress(ConnectionResetError):  # it did not read on
        async with asyncio.timeout(20):
            while part := await reader.read(1 << 16):
                answered += part
    writer.close()
    return answered


SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Content-Length: 0", "Content-Length: 45"],
        ["Content-Length: 0, 45"],
        ["Content-Length: +0"],
        ["Content-Length: 0x0"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Transfer-Encoding : chunked"],
        ["Transfer-Encoding:\x0bchunked"],
        ["Content-Length: 0\r\n\x00: x"],
        ["Host: 127.0.0.1"],
        ["Authorization: Bearer a", "Authorization: Bearer b"],
        ["Origin: http://127.0.0.1", "Origin: http://evil.example"],
        ["Mcp-Session-Id: a", "Mcp-Session-Id: b"],
        ["Mcp-Protocol-Version: 2025-11-25", "Mcp-Protocol-Version: 2026-07-28"],
        ["X\n: y"],
    ],
)
async def test_what_two_servers_could_read_differently_is_refused_and_nothing_behind_it_is_read(
    local: Served, lines: list[str]
) -> None:
    request = raw(local.port, "POST /mcp HTTP/1.1", "Host: HOST", f"Content-Type: {JSON}", *lines)

    answered = await conversation(local, request + b"0\r\n\r\n" + SMUGGLED)

    assert re.findall(rb"HTTP/1\.1 (\d+)", answered) in ([b"400"], [b"501"])
    assert b"\nok" not in answered


async def test_a_folded_header_is_one_header(local: Served) -> None:
    """RFC 9112 allows to read it so; both that it is refused and that it is one are safe."""
    request = raw(
        local.port,
        "POST /mcp HTTP/1.1",
        "Host: HOST",
        "Transfer-Encoding:",
        " chunked",
        "Content-Length: 0",
        body=b"0\r\n\r\n" + SMUGGLED,
    )

    answered = await conversation(local, request)

    assert re.findall(rb"HTTP/1\.1 (\d+)", answered) == [b"400"]


async def test_a_refused_request_ends_its_connection(local: Served) -> None:
    request = raw(local.port, "POST /nothing HTTP/1.1", "Host: HOST", "Content-Length: 500")

    answered = await conversation(local, request + SMUGGLED)

    assert re.findall(rb"HTTP/1\.1 (\d+)", answered) == [b"404"]
    assert b"connection: close" in answered


async def test_answers_come_in_the_order_of_the_requests(local: Served) -> None:
    last = SMUGGLED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    answered = await conversation(local, SMUGGLED * 2 + last)

    assert answered.count(b"HTTP/1.1 200 OK") == 3


async def test_headers_are_limited_in_number_and_size(local: Served) -> None:
    many = [f"X-{n}: y" for n in range(70)]
    for lines in (many, ["X: " + "y" * 17_000], ["X: y"] * 3000):
        request = raw(local.port, "GET /healthz HTTP/1.1", "Host: HOST", *lines)
        assert re.match(rb"HTTP/1.1 4(31|00) ", await conversation(local, request))
    endless = raw(local.port, "GET /healthz HTTP/1.1", "Host: HOST", "X: " + "y" * 10_000_000)
    assert b" 200 " not in await conversation(local, endless)


async def test_what_is_logged_is_one_line_of_ascii(
    local: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for target in ("/\x1b[31m", "/" + "y" * 3000, "/\u202e"):
        request = f"GET {target} HTTP/1.1\r\nHost: evil\r\n\r\n".encode()
        await conversation(local, request)
    await local.ask("GET", "/healthz", host="a\u00e9\x7f", origin="x")

    lines = refusals(caplog)
    assert len(lines) == 4
    for line in lines:
        assert line.isascii() and line.isprintable() and len(line) < 400


async def test_what_is_no_http_is_refused(local: Served, caplog: pytest.LogCaptureFixture) -> None:
    for nonsense in (b"\x16\x03\x01\x02\x00", b"hello\r\n\r\n", b"GET /\r\n\r\n"):
        assert (await conversation(local, nonsense)).startswith(b"HTTP/1.1 400 ")

    assert (
        refusals(caplog)
        == [
            "refused 127.0.0.1: malformed: this is no HTTP/1.1 request",
        ]
        * 3
    )


@pytest.mark.parametrize("version", ["0.9", "1.0", "2.0", "9.9"])
async def test_other_versions_of_http_are_refused(local: Served, version: str) -> None:
    request = raw(local.port, f"GET /healthz HTTP/{version}", "Host: HOST")

    assert (await conversation(local, request)).startswith(b"HTTP/1.1 505 ")


async def test_a_body_that_is_no_json_is_answered(local: Served) -> None:
    for body in (b"", b"\xff\xfe", b"[" * 100_000, b"null", b'{"jsonrpc": "2.0"', b"[]", b"1e999"):
        for headers in (POSTED, of("orient")):
            reply = await local.ask("POST", "/mcp", body, content_length=str(len(body)), **headers)
            assert reply.status == 400
            assert json.loads(reply.text)["error"]["code"] in (-32700, -32600, -32602)


async def test_a_lone_surrogate_is_answered(local: Served) -> None:
    body = called("journal_append", {"text": "MARK", "project": "acme"}).replace(
        b"MARK", rb"a\ud800b"
    )

    reply = await local.ask("POST", "/mcp", body, **of("journal_append"))

    read = await local.call("journal_tail", project="acme")
    assert "saved as entry 1" in reply.text
    assert "a\ufffdb" in text_in(read)


def text_in(reply: Reply) -> str:
    """What a tool answered."""
    return json.loads(reply.text)["result"]["content"][0]["text"]


# Bounds


async def test_a_body_that_says_it_is_too_long_is_not_read(settings: Settings) -> None:
    async with serving(settings, bounds=Bounds(body=1000)) as server:
        request = raw(
            server.port,
            "POST /mcp HTTP/1.1",
            "Host: HOST",
            "Expect: 100-continue",
            f"Content-Type: {JSON}",
            "Content-Length: 1001",
        )
        answered = await conversation(server, request)

    assert answered.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answered


async def test_an_endless_body_is_cut_off_at_the_limit(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(settings, bounds=Bounds(body=100_000, drain=0.01)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = raw(
            server.port,
            "POST /mcp HTTP/1.1",
            "Host: HOST",
            f"Content-Type: {JSON}",
            "Transfer-Encoding: chunked",
        )
        writer.write(head)
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        sent = 0
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(20):
                while True:
                    writer.write(chunk)
                    await writer.drain()
                    sent += len(chunk)
        writer.close()
        del reader
        assert (await server.ask("GET", "/healthz")).status == 200

    assert refusals(caplog)[0].endswith(
        "body: The body is longer than 100,000 bytes. 'POST' '/mcp'"
    )


async def test_a_body_that_stops_coming_is_given_up(settings: Settings) -> None:
    for bounds in (Bounds(silence=0.05, drain=0.01), Bounds(body_time=0.05, drain=0.01)):
        async with serving(settings, bounds=bounds) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(
                raw(
                    server.port,
                    "POST /mcp HTTP/1.1",
                    "Host: HOST",
                    f"Content-Type: {JSON}",
                    "Content-Length: 10",
                    body=b"{",
                )
            )
            async with asyncio.timeout(20):
                answered = await reader.read()
            writer.close()
        assert answered.startswith(b"HTTP/1.1 408 ")


async def test_a_head_that_does_not_come_whole_is_given_up(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(settings, bounds=Bounds(head_time=0.05)) as server:
        for said in (b"", b"GET /hea", SMUGGLED + b"GET /hea"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(said)
            async with asyncio.timeout(20):
                await ended(reader)
            writer.close()

    assert [line.split(": ")[1] for line in refusals(caplog)] == ["slow_head"] * 3


async def test_an_answer_that_is_not_read_is_given_up(
    settings: Settings, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(settings, bounds=Bounds(unread_time=0.05)) as server:
        long = "\U0001f600" * 100_000
        put = await server.call("blob_put", project="acme", text=long, summary="s")
        found = re.search(r"b-[0-9a-f]+", put.text)
        assert found is not None
        body = called("blob_get", {"key": found[0], "limit": 100_000, "project": "acme"})
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in of("blob_get").items()]
        length = f"Content-Length: {len(body)}"
        request = raw(server.port, "POST /mcp HTTP/1.1", "Host: HOST", *lines, length, body=body)
        reader, writer = await asyncio.open_connection(sock=narrow(server.port), limit=1)
        writer.write(request * 20)  # more than the system keeps for who does not read
        async with asyncio.timeout(20):
            while not refusals(caplog):
                assert (await server.ask("GET", "/healthz")).status == 200
        await ended(reader)
        writer.close()

    assert refusals(caplog) == [
        "refused 127.0.0.1: slow_reader: its answer was not read within 0.05 s"
    ]


def narrow(port: int) -> socket.socket:
    """A connection whose reader has no room."""
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.connect(("127.0.0.1", port))
    return opened


async def test_every_text_that_a_tool_takes_fits_into_a_body(local: Served) -> None:
    """The largest blob, of characters that take twelve bytes each when they are escaped."""
    text = "\U0001f600" * (10 * 2**20 // 4)

    reply = await local.call("blob_put", project="acme", text=text, summary="s")

    assert reply.status == 200
    assert "error" not in reply.text


MANY = "{}," * (MOST_AROUND // 3) + "{}"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (called("journal_append", {"text": "x"}).replace(b'"x"', f"[{MANY}]".encode()), 413),
        (HELLO.replace(b'"raw"', f"[{MANY}]".encode()), 413),
        (called("journal_append", {"text": ["" for _ in range(MOST_AROUND)]}), 413),
        (called("state_op", {"op": '\\"', "arguments": {"x": 1}}) + b" " * MOST_AROUND, 413),
        (called("journal_append", {"text": "\u2200"}).decode().encode("utf-16-le"), 400),
        (called("journal_append", {"text": "x"}).decode().encode("utf-32-be"), 400),
    ],
    ids=["objects", "handshake", "texts", "escapes", "UTF-16", "UTF-32"],
)
async def test_values_that_would_take_a_hundred_times_their_size_are_refused_unread(
    local: Served, body: bytes, status: int
) -> None:
    headers = POSTED if b"initialize" in body else of("journal_append")
    reply = await local.ask("POST", "/mcp", body, **headers)

    assert reply.status == status


async def test_so_are_those_in_a_text(local: Served) -> None:
    reply = await local.call("state_op", project="acme", op="journal_append", arguments=f"[{MANY}]")
    assert "error: bad_argument: arguments of state_op is" in reply.text
    assert "It takes an object" in reply.text
    reply = await local.call(
        "state_op", project="acme", op="journal_append", arguments=f'{{"x": [{MANY}]}}'
    )
    assert "It takes an object, of fewer values; nothing was done." in reply.text


async def test_json_in_a_text_of_any_size_is_a_text(local: Served) -> None:
    text = f'{{"quoted \\" {{": [{MANY}], "path": "C:\\\\"}}'
    for arguments in (
        {"text": text, "summary": "s"},
        {"op": "blob_put", "arguments": json.dumps({"text": text, "summary": "s"})},
    ):
        tool = "state_op" if "op" in arguments else "blob_put"
        reply = await local.call(tool, project="acme", **arguments)
        assert (reply.status, "error" in reply.text) == (200, False)


async def test_bodies_that_are_held_at_the_same_time_are_limited(settings: Settings) -> None:
    async with serving(settings, bounds=Bounds(bodies=1000, drain=0.01)) as server:
        head = ("POST /mcp HTTP/1.1", "Host: HOST", f"Content-Type: {JSON}", "Content-Length: 900")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(raw(server.port, *head, body=b" " * 800))
        await writer.drain()
        while (reply := await server.ask("POST", "/mcp", b" " * 300, **POSTED)).status != 503:
            pass
        assert reply.headers["retry-after"] == "1"
        writer.close()
        await ended(reader)
        while (reply := await server.ask("POST", "/mcp", b" " * 300, **POSTED)).status == 503:
            pass
    assert reply.status == 400


async def test_calls_in_flight_are_limited(settings: Settings, path: str) -> None:
    settings = replace(settings, project="acme")
    async with serving(settings, bounds=Bounds(in_flight=1)) as server:
        await server.call("journal_append", text="first")
        with writing(path):
            waiting = asyncio.create_task(server.call("journal_append", text="second"))
            await until(server, "requests_in_flight", "1")
            reply = await server.call("journal_tail")
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert "saved as entry 2" in (await waiting).text
        assert (await server.call("journal_tail")).status == 200


async def test_one_token_does_not_take_the_calls_of_all(settings: Settings, path: str) -> None:
    greedy, other = await token_for(path, "acme"), await token_for(path, "acme")
    async with serving(settings, PROXIED, bounds=Bounds(in_flight_of_one=1)) as server:
        with writing(path):
            writes = partial(server.call, "journal_append", token=greedy, text="x")
            waiting = asyncio.create_task(writes())
            while (reply := await server.call("journal_tail", token=greedy)).status == 200:
                if waiting.done():  # it was the one that was refused
                    waiting = asyncio.create_task(writes())
            assert reply.status == 503
            assert (await server.call("journal_tail", token=other)).status == 200
        assert (await waiting).status == 200


async def test_a_stream_ends_with_its_token(settings: Settings, path: str) -> None:
    """It asks for nothing, so it is looked at now and again."""
    revoked, lasting = await token_for(path, "acme"), await token_for(path, "acme")
    async with (
        serving(settings, PROXIED, bounds=Bounds(recheck=0.05)) as server,
        AsyncExitStack() as stack,
    ):
        for token in (revoked, lasting):
            session = (await server.begin(token=token)).headers["mcp-session-id"]
            reader = await stack.enter_async_context(server.listening(session, token=token))
            if token == revoked:
                await revoke(path, revoked)
                async with asyncio.timeout(20):
                    await reader.readuntil(b"0\r\n\r\n")  # the end of a whole answer
            else:
                await revoke(path, await token_for(path, "acme"))
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await reader.readuntil(b"0\r\n\r\n")


async def test_a_call_that_does_not_end_is_given_up(settings: Settings, path: str) -> None:
    settings = replace(settings, project="acme")
    async with serving(settings, bounds=Bounds(call_time=0.5)) as server:
        await server.call("journal_append", text="first")
        with writing(path):
            reply = await server.call("journal_append", text="second")
        assert reply.status == 504
        assert error(reply.text) == "This was not done within 0.5 s; look what became of it."
        assert (await server.call("journal_tail")).status == 200


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_two_requests_of_one_id_do_not_keep_their_places_for_ever(
    settings: Settings, path: str
) -> None:
    """The SDK answers one of them and never the other, whose streams it leaves open."""
    settings = replace(settings, project="acme")
    async with serving(settings, bounds=Bounds(call_time=1.0)) as server:
        await server.call("journal_append", text="first")
        session = (await server.begin()).headers["mcp-session-id"]
        params = {"name": "journal_append", "arguments": {"text": "x"}}
        body = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params})
        with writing(path):
            both = [
                asyncio.create_task(
                    server.ask("POST", "/mcp", body.encode(), mcp_session_id=session, **POSTED)
                )
                for _ in range(2)
            ]
            while "requests_in_flight 2\n" not in (await server.ask("GET", "/metrics")).text:
                pass
        assert 504 in {reply.status for reply in await asyncio.gather(*both)}
        assert "requests_in_flight 0\n" in (await server.ask("GET", "/metrics")).text
    gc.collect()


async def test_each_token_may_ask_so_often(
    settings: Settings, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = await token_for(path, "acme", agent="x"), await token_for(path, "acme")
    async with serving(settings, PROXIED, bounds=Bounds(rate=0.001, burst=2)) as server:
        statuses = [(await server.call("orient", token=one)).status for _ in range(2)]
        reply = await server.call("orient", token=one)
        assert (await server.call("orient", token=other)).status == 200

    assert statuses == [200, 200]
    assert reply.status == 429
    assert 990 <= int(reply.headers["retry-after"]) <= 1000
    assert refusals(caplog) == [
        f"refused token {id_of(one)} ('x') from 127.0.0.1: rate: Too many requests with this "
        "token. 'POST' '/mcp'"
    ]


def test_a_rate_is_a_burst_and_then_so_many_a_second() -> None:
    time = [0.0]
    rates = Rates(Bounds(rate=10, burst=3), lambda: time[0])

    assert [rates.take("a") for _ in range(4)] == [0, 0, 0, 0.1]
    assert rates.take("b") == 0
    time[0] += 0.05
    assert rates.take("a") == pytest.approx(0.05)
    time[0] += 0.05
    assert rates.take("a") == 0
    time[0] += 1000
    assert [rates.take("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_sessions_are_counted_until_they_were_idle_for_too_long() -> None:
    time = [0.0]
    sessions = Sessions(Bounds(sessions=3, sessions_of_one=2, idle=60), lambda: time[0])
    sessions.begin("s1", "a")
    sessions.begin("s2", "a")
    assert not sessions.has_room("a") and sessions.has_room("b")
    sessions.begin("s3", "b")
    assert not sessions.has_room("b")
    with sessions.used("s1", "a"), sessions.used("s2", "b"):
        time[0] += 60
        assert len(sessions) == 1
        sessions.end("s1", "b")
        assert len(sessions) == 1
    time[0] += 59
    assert len(sessions) == 1 and sessions.has_room("a")
    time[0] += 1
    assert len(sessions) == 0
    sessions.begin("s4", "a")
    sessions.end("s4", "a")
    assert len(sessions) == 0


async def test_a_thousand_idle_sessions_cost_little_and_there_are_no_more(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    most = 1000
    async with serving(settings, bounds=Bounds(sessions=most, sessions_of_one=most)) as server:
        before = resident()
        first = await begun(server, 1)
        await begun(server, most - 1)
        grown = resident() - before
        assert (await server.begin()).status == 503
        assert (await server.call("orient")).status == 200  # needs none
        assert (await server.begin(session=first)).status == 200
        assert (await server.ask("DELETE", mcp_session_id=first)).status == 200
        assert (await server.begin()).status == 200
        assert "mcp_state_sessions 1000\n" in (await server.ask("GET", "/metrics")).text

    assert grown < most * 100_000, f"{grown / most:,.0f} bytes a session"
    assert [line.split(": ")[1] for line in refusals(caplog)] == ["sessions"]


def resident() -> int:
    """Bytes of memory of this process."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


async def begun(server: Served, count: int) -> str:
    """Begin so many sessions over one connection; returns the last one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in POSTED.items()]
    length = f"Content-Length: {len(HELLO)}"
    request = raw(server.port, "POST /mcp HTTP/1.1", "Host: HOST", *lines, length, body=HELLO)
    session = ""
    for _ in range(count):
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert head.startswith("HTTP/1.1 200 "), head
        headers = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
        await reader.readexactly(int(headers["content-length"]))
        session = headers["mcp-session-id"]
    writer.close()
    await writer.wait_closed()
    return session


async def test_an_idle_session_ends_and_makes_room(settings: Settings) -> None:
    async with serving(settings, bounds=Bounds(sessions=1, idle=0.05)) as server:
        first = (await server.begin()).headers["mcp-session-id"]
        while (reply := await server.begin()).status == 503:
            pass
        assert reply.status == 200
        assert (await server.begin(session=first)).status == 404


async def test_one_token_does_not_take_the_sessions_of_all(settings: Settings, path: str) -> None:
    greedy, other = await token_for(path, "acme"), await token_for(path, "acme")
    async with serving(settings, PROXIED, bounds=Bounds(sessions=3, sessions_of_one=2)) as server:
        statuses = [(await server.begin(token=greedy)).status for _ in range(3)]
        assert statuses == [200, 200, 503]
        assert (await server.begin(token=other)).status == 200


async def test_connections_are_limited(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(settings, bounds=Bounds(connections=2)) as server:
        opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        async with asyncio.timeout(20):
            await ended(opened[2][0])
        for reader, writer in opened:
            writer.close()
            await ended(reader)
        while (await server.ask("GET", "/healthz")).status != 200:
            pass

    assert refusals(caplog)[0] == "refused 127.0.0.1: connections: there are 2 connections"
