"""The server over HTTP as its clients meet it, in both generations of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest
from conftest import FakeClock, Run, text_of
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from over_http import GENERATIONS, PROXIED, Served, called, ended, of, refusals, serving, token_for
from soaking import few_of
from whole_stores import writing

from mcp_state import toolset
from mcp_state.errors import BadArgument
from mcp_state.http.bounds import Bounds
from mcp_state.http.serving import Door, door, serve
from mcp_state.http.wire import Wire
from mcp_state.settings import Settings
from mcp_state.tools import ALL_TOOLS

NAMED, HELD = "zanzibar", "quokka"
"""What the other project and all in it is called, and what that holds."""


@pytest.fixture
def settings(path: str) -> Settings:
    return Settings(db=path, toolset="all")


async def said(client: Client, tool: str, **arguments: Any) -> str:
    return text_of(await client.call_tool(tool, arguments))


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_clients_of_both_generations_work_on_the_one_store(
    mode: str, settings: Settings, clock: FakeClock
) -> None:
    settings = replace(settings, project="acme")
    async with (
        serving(settings, clock=clock) as server,
        server.client(mode) as client,
        server.client("legacy") as other,
    ):
        written = await said(client, "journal_append", text="hello")
        listed = await client.list_tools()
        read = await said(other, "journal_tail")

    assert written == ("saved as entry 1\n[acme (from --project) · 0 threads · event 1]")
    assert {tool.name for tool in listed.tools} == {spec.name for spec in ALL_TOOLS}
    assert "hello" in read


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_without_a_project_a_read_lists_them_and_a_write_says_how_to_choose(
    mode: str, settings: Settings, clock: FakeClock, path: str
) -> None:
    await token_for(path, "acme", "beta", clock=clock)
    async with serving(settings, clock=clock) as server, server.client(mode) as client:
        read = await said(client, "orient")
        write = await said(client, "journal_append", text="lost")

    assert 'Pass project="NAME"; known are:\n  acme\n  beta' in read
    assert write.startswith(
        "error: project_unknown: not saved: this call does not say which project it belongs to; "
        "known projects: acme, beta."
    )


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_where_the_server_was_started_says_nothing_of_its_clients(
    mode: str, settings: Settings, tmp_path: Path
) -> None:
    """Neither its directory nor one that a client names: that is another machine's."""
    for part in ("objects", "refs"):
        (tmp_path / "repo" / ".git" / part).mkdir(parents=True)
    (tmp_path / "repo" / ".git" / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    here = str(tmp_path / "repo")
    settings = replace(settings, directory=here, client_directory=here)
    meta: Any = {"codex/sandbox-state-meta": {"sandboxCwd": here}}
    async with serving(settings) as server, server.client(mode) as client:
        unsaid = text_of(await client.call_tool("orient", {}, meta=meta))
        named = await said(client, "orient", project=here)

    assert unsaid.endswith("[no project]")
    assert named == (
        f"error: bad_argument: {here[:60]!r} is a directory, and this server is on another "
        "machine. Name the project."
    )


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_no_file_of_the_server_is_looked_at_for_a_client(
    mode: str, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("here", encoding="utf-8")
    settings = replace(settings, project="acme", directory=str(tmp_path))
    async with serving(settings) as server, server.client(mode) as client:
        checks = {"file": f"file:{tmp_path}/secret.txt", "git": "git:HEAD"}
        for name, check in checks.items():
            await said(client, "fact_record", fact=name, statement="so", check=check)
            await said(client, "fact_verify", fact=name, holds=True, evidence="looked")
        facts = await said(client, "fact_list")
        checkpoint = await said(client, "run_checkpoint", run_id="r", state="s", next_action="n")
        resumed = await said(client, "run_resume", run_id="r")

    assert facts.count("not looked up here") == 2
    assert "HEAD" not in checkpoint + resumed


# Tokens


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_a_token_of_one_project_is_for_that_one(
    mode: str, settings: Settings, path: str
) -> None:
    token = await token_for(path, "acme", agent="builder")
    async with (
        serving(replace(settings, project="other"), PROXIED) as server,
        server.client(mode, token) as client,
    ):
        await said(client, "journal_append", text="hello")
        orient = await said(client, "orient")
        tail = await said(client, "journal_tail")

    assert orient.startswith("project acme (from token) · agent builder")
    assert tail.splitlines()[1].startswith("2 builder ")  # whatever the client calls itself


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_what_the_server_was_started_for_is_the_default_of_tokens_that_are_for_it(
    mode: str, settings: Settings, path: str
) -> None:
    both = await token_for(path, "acme", "beta")
    others = await token_for(path, "beta", "gamma")
    async with serving(replace(settings, project="acme"), PROXIED) as server:
        async with server.client(mode, both) as client:
            mine = await said(client, "orient")
        async with server.client(mode, others) as client:
            theirs = await said(client, "orient")

    assert mine.startswith("project acme (from --project)")
    assert theirs.endswith("[no project]")
    assert "known are:\n  beta\n  gamma" in theirs
    assert "acme" not in theirs


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_another_project_is_refused_alike_whether_it_exists_or_not(
    mode: str, settings: Settings, path: str
) -> None:
    token = await token_for(path, "acme")
    await token_for(path, "beta")
    async with serving(settings, PROXIED) as server, server.client(mode, token) as client:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("orient", {}),
            ("journal_append", {"text": "in"}),
            ("state_op", {"op": "history", "arguments": {}}),
        ]
        for tool, arguments in calls:
            there = await said(client, tool, **arguments, project="beta")
            nowhere = await said(client, tool, **arguments, project="nope")
            assert there == (
                "error: project_unknown: this token is not for a project 'beta'; it is for acme. "
                'Nothing was changed. Pass project="NAME" of one of these, or ask who made the '
                "token for one that is for more."
            )
            assert there.replace("beta", "nope") == nowhere
        inner = await said(client, "state_op", op="journal_tail", arguments={"project": "beta"})
        assert inner.startswith("error: project_unknown: this token is not for a project 'beta'")


async def fill_the_other(server: Served, token: str) -> str:
    """Put something of every kind into the other project; returns the key of a handoff of it."""
    made: list[tuple[str, dict[str, Any]]] = [
        ("memory_set", {"key": NAMED, "value": HELD}),
        ("thread_set", {"thread": NAMED, "title": HELD, "next_action": HELD}),
        ("journal_append", {"text": HELD}),
        ("run_begin", {"run_id": NAMED, "goal": HELD}),
        ("run_checkpoint", {"run_id": NAMED, "state": HELD, "next_action": HELD}),
        ("step_begin", {"run_id": NAMED, "step": NAMED, "input": HELD}),
        ("objective_set", {"objective": HELD}),
        ("fact_record", {"fact": NAMED, "statement": HELD}),
        ("blob_put", {"text": HELD, "summary": HELD}),
    ]
    async with server.client("auto", token) as client:
        for tool, arguments in made:
            assert "error" not in await said(client, tool, **arguments)
        return (await said(client, "handoff_create", note=HELD)).split()[2].rstrip(":")


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_nothing_of_another_project_shows_in_any_answer(
    mode: str, settings: Settings, path: str
) -> None:
    """Every tool, asked by the names that things have there; resources and prompts too."""
    mine, theirs = await token_for(path, "acme", "docs"), await token_for(path, NAMED)
    of_names: dict[str, Any] = {
        **dict.fromkeys(("query", "key", "thread", "run_id", "step", "fact"), NAMED),
        "subject": f"thread:{NAMED}",
        "criterion": "1",
        "op": "help",
        "text": "t",
        "goal": "g",
        "state": "s",
        "next_action": "n",
        "status": "failed",
        "note": "n",
        "value": "v",
        "statement": "s",
        "objective": "o",
        "ok": True,
        "result": "r",
    }
    asked: list[str] = []
    unasked: list[str] = []
    async with serving(settings, PROXIED) as server:
        key = await fill_the_other(server, theirs)
        async with server.client(mode, mine) as client:
            for project in ("", "acme", NAMED):
                for spec in ALL_TOOLS:
                    given = {
                        p.name: of_names[p.name] for p in spec.parameters if p.name in of_names
                    }
                    given |= {"key": key} if spec.name == "handoff_accept" else {}
                    for arguments in ({}, given):
                        answer = await said(client, spec.name, **arguments, project=project)
                        (asked if arguments or project == NAMED else unasked).append(answer)
            uris = ("state://orient", "state://threads", "state://journal")
            unasked += [str(await client.read_resource(uri)) for uri in uris]
            asked.append(str(await client.read_resource(f"state://memory/{NAMED}")))
            unasked += [str(await client.get_prompt(p)) for p in ("orient", "handoff", "wrap_up")]

    assert [answer for answer in asked + unasked if HELD in answer] == []
    unasked_of_acme = [answer for answer in unasked if "[acme" not in answer]
    assert [answer for answer in unasked_of_acme if NAMED in answer] == []
    assert len(unasked_of_acme) > len(ALL_TOOLS)


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_a_narrower_toolset_lists_less_and_refuses_the_rest(
    mode: str, settings: Settings, path: str
) -> None:
    token = await token_for(path, "acme", toolset="readonly")
    async with serving(settings, PROXIED) as server, server.client(mode, token) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        instructions = client.instructions
        refused = await said(client, "journal_append", text="in")
        through = await said(client, "state_op", op="journal_append", arguments={"text": "in"})
        read = await said(client, "journal_tail")

    readonly = toolset.load("readonly")
    assert sorted(listed) == sorted(spec.name for spec in readonly.tools)
    assert instructions == readonly.instructions
    assert refused.startswith(
        "error: readonly_toolset: journal_append writes, and this token only reads. Nothing was "
        "changed. A token with --toolset coding has it."
    )
    assert through.startswith("error: readonly_toolset: state_op writes, and this token only reads")
    assert read.startswith("The journal is empty") or "no entries" in read.lower()


@pytest.mark.parametrize(
    ("of_server", "of_token", "tools"),
    [
        ("all", "all", "all"),
        ("all", "coding", "coding"),
        ("all", "readonly", "readonly"),
        ("coding", "all", "coding"),
        ("coding", "coding", "coding"),
        ("readonly", "all", "readonly"),
    ],
)
def test_of_two_toolsets_the_narrower_one_is_left(
    of_server: str, of_token: str, tools: str
) -> None:
    narrowed = toolset.narrowed(toolset.load(of_server), of_token)

    expected = toolset.load(tools)
    assert {spec.name for spec in narrowed.tools} == {spec.name for spec in expected.tools}
    assert narrowed.read_only is expected.read_only
    assert narrowed.instructions == expected.instructions


def test_no_tool_is_left_that_either_lacks_and_read_only_wins() -> None:
    mixed = toolset.narrowed(toolset.load("coding", exclude=("search",)), "readonly")
    reading = toolset.narrowed(toolset.load("all", read_only=True), "all")

    both = {"orient", "memory_get", "thread_list", "thread_get", "journal_tail", "run_resume"}
    assert {spec.name for spec in mixed.tools} == both | {"fact_list", "blob_get"}
    assert mixed.read_only and reading.read_only
    assert not any(spec.writes for spec in (*mixed.tools, *reading.tools))


async def test_a_token_narrows_where_none_is_needed_too(settings: Settings, path: str) -> None:
    token = await token_for(path, "acme", toolset="readonly")
    async with serving(settings) as server:
        assert (await server.call("orient", project="beta")).status == 200
        refused = await server.call("orient", token=token, project="beta")
        assert "project_unknown" in refused.text
        assert (await server.ask("GET", "/metrics", token=token)).status == 403
        assert (await server.ask("GET", "/metrics")).status == 200


# Where it listens


def test_what_would_be_open_to_others_is_refused_with_what_to_do() -> None:
    def refused(address: str, **options: Any) -> str:
        with pytest.raises(BadArgument) as problem:
            door(address, **options)
        return str(problem.value)

    assert refused("10.1.2.3:8765") == (
        "bad_argument: 10.1.2.3:8765 can be reached from other machines, and tokens would cross "
        "the network in the clear. Give --tls-cert FILE and --tls-key FILE, or say --behind-proxy "
        "if a proxy in front speaks TLS. Only for this machine: --http 127.0.0.1:8765."
    )
    assert refused("[::]:1", behind_proxy=True) == (
        "bad_argument: [::]:1 is every address of this machine, so it is not known what clients "
        "call it. Give --allow-host NAME with the name that they use."
    )
    assert "Give both --tls-cert and --tls-key" in refused("1", tls_cert="x")
    assert "Write HOST:PORT, as 127.0.0.1:8765" in refused("somewhere")
    assert "which is no address" in refused("localhost:99999")
    for name in ("https://state.example.com", ""):
        assert "which is no host name" in refused("1", names=(name,))


def test_only_this_machine_needs_no_token() -> None:
    assert door("8765").is_local and door("localhost:1").is_local and door("[::1]:1").is_local
    assert not door("8765", behind_proxy=True).is_local
    assert not door("10.1.2.3:1", tls_cert="c", tls_key="k").is_local
    assert not door("state.example.com:1", behind_proxy=True).is_local
    everywhere = door("0.0.0.0:1", behind_proxy=True, names=("State.example.com",))
    assert everywhere.hosts == {"state.example.com"}
    assert door("10.1.2.3:1", behind_proxy=True).hosts == {"10.1.2.3"}


@pytest.mark.parametrize(
    "words",
    [
        *(("--rate", "5"), ("--tls-cert", "x"), ("--tls-key", "x"), ("--behind-proxy",)),
        *(("--allow-host", "x"), ("--http", "--rate", "0"), ("--http", "10.1.2.3:1")),
        *(("--http", "--tls-cert", "x"), ("--http", "x y"), ("--http", "0.0.0.0:1")),
    ],
)
def test_options_that_do_not_go_together_are_wrong_arguments(
    run: Run, words: tuple[str, ...]
) -> None:
    refused = run("serve", *words)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: bad_argument: ") and refused.stderr.count("\n") == 1


def test_no_tool_takes_arguments_from_headers() -> None:
    """Or the server would have to tell the SDK its schema."""
    assert "x-mcp-header" not in json.dumps([spec.input_schema for spec in ALL_TOOLS])


async def test_a_port_that_is_taken_is_a_wrong_argument(settings: Settings) -> None:
    async with serving(settings) as server:
        with pytest.raises(BadArgument, match="Address already in use"):
            async with serving(settings, Door(port=server.port)):
                pass


async def metric(server: Served, name: str) -> str:
    text = (await server.ask("GET", "/metrics")).text
    return text.partition(f"\nmcp_state_{name} ")[2].partition("\n")[0]


async def until(server: Served, name: str, value: str) -> None:
    async with asyncio.timeout(20):
        while await metric(server, name) != value:
            pass


# Its life


async def test_streams_are_counted_and_end_properly_when_the_server_stops(
    settings: Settings,
) -> None:
    async with AsyncExitStack() as stack:
        async with serving(settings) as server:
            session = (await server.begin()).headers["mcp-session-id"]
            reader = await stack.enter_async_context(server.listening(session))
            assert await metric(server, "streams") == await metric(server, "sessions") == "1"
        async with asyncio.timeout(20):
            rest = await reader.read()

    assert rest.endswith(b"0\r\n\r\n")  # the end of a whole answer, not a broken one


async def test_a_session_with_an_open_stream_is_not_idle(settings: Settings) -> None:
    async with serving(settings, bounds=Bounds(idle=0.05, sessions=2)) as server:
        listens = (await server.begin()).headers["mcp-session-id"]
        async with server.listening(listens) as reader:
            idle = (await server.begin()).headers["mcp-session-id"]
            await until(server, "sessions", "1")
            assert (await server.begin(session=idle)).status == 404
            assert (await server.begin(session=listens)).status == 200
            assert not reader.at_eof()


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_calls_in_flight_are_answered_before_the_server_stops(
    mode: str, settings: Settings, path: str
) -> None:
    settings = replace(settings, project="acme")
    async with serving(settings) as server, server.client(mode) as client:
        await said(client, "journal_append", text="first")
        with writing(path):
            waiting = asyncio.create_task(said(client, "journal_append", text="second"))
            await until(server, "requests_in_flight", "1")
            signal.raise_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                while True:  # the listener is let go at once
                    try:
                        await server.ask("GET", "/healthz")
                    except ConnectionError:
                        break
            assert not waiting.done()
        assert (await waiting).startswith("saved as entry 2")


async def test_who_is_still_sending_does_not_hold_up_the_end(settings: Settings) -> None:
    async with AsyncExitStack() as stack:
        async with serving(settings) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            stack.callback(writer.close)
            head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            writer.write(
                f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{{".encode()
            )
            await until(server, "uploads", "1")
        async with asyncio.timeout(20):
            assert (await reader.read()).startswith(b"HTTP/1.1 503 ")


async def test_a_call_that_does_not_end_is_given_up_when_the_server_stops(
    settings: Settings, path: str
) -> None:
    settings = replace(settings, project="acme")
    async with serving(settings, bounds=Bounds(stop=0.05, drain=60)) as server:
        await server.call("journal_append", text="first")
        with writing(path):
            waiting = asyncio.create_task(server.call("journal_append", text="never"))
            await until(server, "requests_in_flight", "1")
            signal.raise_signal(signal.SIGTERM)
            given_up = await waiting
    assert (given_up.status, json.loads(given_up.text)["error"]["message"]) == (
        503,
        "The server stops, and this was not done in time.",
    )
    async with serving(settings) as server:
        assert "1 entry" in (await server.call("journal_tail")).text


@pytest.fixture
def no_store(path: str) -> None:
    """Where a store should be, there is something else."""
    Path(path).parent.mkdir(mode=0o700)
    Path(path).write_bytes(b"no store at all")


@pytest.mark.sqlite
@pytest.mark.usefixtures("no_store")
async def test_it_is_not_ready_while_the_store_cannot_be_read(
    settings: Settings, path: str
) -> None:
    async with serving(settings) as server:
        lives, ready = [await server.ask("GET", f"/{name}") for name in ("healthz", "readyz")]
        answered = await server.call("orient", project="acme")
        with_token = await server.call("orient", token="mcps_t-x_" + "a" * 43)

    assert (lives.status, lives.text) == (200, "ok\n")
    assert (ready.status, ready.text) == (503, "not ready: store_damaged\n")
    assert "error: store_damaged" in answered.text
    assert (with_token.status, path in with_token.text) == (503, False)


@contextlib.contextmanager
def command(
    *words: str, path: str, before: tuple[str, ...] = ()
) -> Generator[subprocess.Popen[str]]:
    """`mcp-state serve --http` in a process of its own, which is not left behind."""
    with subprocess.Popen(
        [*before, sys.executable, "-m", "mcp_state", "serve", *words, "--db", path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CLAUDE_PROJECT_DIR": os.getcwd(), "CLAUDE_CODE_SESSION_ID": "s"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.sqlite
@pytest.mark.parametrize(("soft", "hard", "refused"), [(100, 400, 0), (100, 100, 114)])
async def test_who_only_connects_does_not_take_the_files_that_the_store_needs(
    path: str, soft: int, hard: int, refused: int
) -> None:
    """As many are let in as there can be open files for, also of those who come all at once."""
    body = called("journal_append", {"text": "x", "project": "acme"})
    limited = ("sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh")
    with command("--http", "127.0.0.1:0", path=path, before=limited) as process:
        assert process.stderr is not None
        server = Served((await asyncio.to_thread(process.stderr.readline)).split()[-1])
        told = await asyncio.to_thread(process.stderr.readline)
        await server.ask("GET", "/healthz")
        process.send_signal(signal.SIGSTOP)
        opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(150)]
        process.send_signal(signal.SIGCONT)
        reader, writer = opened[0]
        request = request_of(server, of("journal_append"), body)
        assert b" 200 " in await answer(reader, writer, request)
        async with asyncio.timeout(20):
            for reader, _ in opened[150 - refused :]:
                await ended(reader)
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.to_thread(process.communicate, timeout=20)
        for _, writer in opened:
            writer.close()
    most = 36 if refused else 336
    assert told == (
        f"mcp-state: at most {most} clients at a time, not 2,000: for more, allow more open files\n"
    )
    line = "mcp-state: refused 127.0.0.1: connections: there are 36 connections"
    assert err.splitlines() == [line] * refused


@pytest.mark.sqlite
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux sets the limits of another process")
async def test_without_a_file_for_it_a_connection_waits(path: str) -> None:
    """Whatever took the files: it is said once a second, and who is there already is served."""
    with command("--http", "127.0.0.1:0", path=path) as process:
        assert process.stderr is not None
        server = Served((await asyncio.to_thread(process.stderr.readline)).split()[-1])
        opened = [await asyncio.open_connection("127.0.0.1", server.port)]
        assert b"200 " in await answer(*opened[0], healthz(server))
        allowed = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1, allowed[1]))
        opened.append(await asyncio.open_connection("127.0.0.1", server.port))
        line = await asyncio.to_thread(process.stderr.readline)
        assert b"200 " in await answer(*opened[0], healthz(server))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, allowed)
        assert b"200 " in await answer(*opened[1], healthz(server))
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.to_thread(process.communicate, timeout=20)
        for _, writer in opened:
            writer.close()
    why = "Too many open files: nobody is let in for 1 s"
    assert set((line + err).splitlines()) == {f"mcp-state: refused ?: connections: {why}"}


@pytest.mark.sqlite
async def test_who_has_asked_before_the_end_is_answered(path: str) -> None:
    """Also who was not let in yet."""
    with command("--http", "127.0.0.1:0", path=path) as process:
        assert process.stderr is not None
        server = Served((await asyncio.to_thread(process.stderr.readline)).split()[-1])
        process.send_signal(signal.SIGSTOP)
        opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
        for _, writer in opened:
            writer.write(healthz(server))
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        for reader, writer in opened:
            async with asyncio.timeout(20):
                assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
        _, err = await asyncio.to_thread(process.communicate, timeout=20)
    assert (process.returncode, err) == (0, "")


def healthz(server: Served) -> bytes:
    """A request that takes nothing."""
    return f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()


def all_tools(server: Served) -> bytes:
    """A request whose answer is long."""
    call, those = (f'"method": "tools/{what}"'.encode() for what in ("call", "list"))
    headers = of("") | {"mcp_method": "tools/list"}
    return request_of(server, headers, called("", {}).replace(call, those))


def request_of(server: Served, headers: dict[str, str], body: bytes) -> bytes:
    """A request on a connection that stays open."""
    headers = {"host": f"127.0.0.1:{server.port}", **headers, "content_length": str(len(body))}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> bytes:
    """The head of the answer to a request on an open connection."""
    writer.write(request)
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
    return head


@pytest.mark.parametrize("number", few_of([signal.SIGTERM, signal.SIGINT], signal.SIGTERM))
async def test_the_command_says_where_it_listens_and_ends_with_a_signal(
    path: str, number: int
) -> None:
    with command("--http", "127.0.0.1:0", path=path) as process:
        assert process.stderr is not None
        line = await asyncio.to_thread(process.stderr.readline)
        assert line.startswith("mcp-state: listening at http://127.0.0.1:")
        server = Served(line.split()[-1])
        async with server.client("legacy") as client:
            assert (await said(client, "orient")).endswith("[no project]")
            assert (await said(client, "journal_append", text="x", project="acme"))[:5] == "saved"
            process.send_signal(number)
            out, err = await asyncio.to_thread(process.communicate, timeout=20)

    assert (process.returncode, out, err) == (0, "", "")


async def test_tls_is_spoken_with_the_files_that_were_given(
    settings: Settings, path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = certificate(tmp_path)
    token = await token_for(path, "acme")
    made = door("127.0.0.1:0", tls_cert=cert, tls_key=key)
    async with serving(settings, made) as server:
        assert server.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=cert)
        async with (
            httpx2.AsyncClient(
                headers={"Authorization": f"Bearer {token}"}, verify=trusting
            ) as http,
            Client(streamable_http_client(server.url, http_client=http)) as client,
        ):
            assert (await said(client, "orient")).startswith("project acme (from token)")
        with pytest.raises((ConnectionError, ValueError, IndexError)):
            await server.ask("GET", "/healthz")
    assert [line.split("tls: ")[0] for line in refusals(caplog)] == ["refused 127.0.0.1: "]


async def test_who_only_connects_and_speaks_no_tls_is_counted_and_let_go(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = certificate(tmp_path)
    made, bounds = door("127.0.0.1:0", tls_cert=cert, tls_key=key), Bounds(connections=2)
    trusting = ssl.create_default_context(cafile=cert)
    async with serving(settings, made, bounds=replace(bounds, head_time=0.2)) as server:
        idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        async with asyncio.timeout(20):
            for reader, writer in reversed(idle):  # the one too many first
                await ended(reader)
                writer.close()
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting)
        writer.close()
    full, *late = refusals(caplog)
    assert full == "refused 127.0.0.1: connections: there are 2 connections"
    assert len(late) == 2
    assert all("tls: SSL handshake is taking longer than 0.2 seconds" in line for line in late)


async def test_nothing_is_left_of_a_connection_that_was_reset(
    settings: Settings, tmp_path: Path
) -> None:
    cert, key = certificate(tmp_path)
    made, trusting = door("0", tls_cert=cert, tls_key=key), ssl.create_default_context(cafile=cert)
    others = wires()
    async with serving(settings, made) as server:
        for _ in range(3):
            client = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting)
            assert b"200 " in await answer(*client, healthz(server))
            held = client[1].get_extra_info("socket")
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client[1].transport.abort()
        last = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting)
        async with asyncio.timeout(20):
            while len(wires() - others) > 1:
                await answer(*last, healthz(server))
        last[1].close()


def wires() -> set[Wire]:
    """The connections that something of this process still holds."""
    gc.collect()
    return {one for one in gc.get_objects() if isinstance(one, Wire)}


async def test_what_comes_behind_a_request_that_asked_for_the_end_is_left(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = certificate(tmp_path)
    made, trusting = door("0", tls_cert=cert, tls_key=key), ssl.create_default_context(cafile=cert)
    async with serving(settings, made) as server:
        more = healthz(server)
        last = more.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting)
        writer.write(more * 50 + last + more * 3000)
        async with asyncio.timeout(20):
            assert (await reader.read()).count(b"HTTP/1.1 200 ") == 51
        writer.close()
    assert caplog.messages == []


async def test_who_does_not_answer_the_end_of_tls_does_not_keep_the_server_from_ending(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = certificate(tmp_path)
    made, bounds = door("0", tls_cert=cert, tls_key=key), Bounds(farewell=0.1)
    with socket.socket() as raw:
        async with serving(settings, made, bounds=bounds) as server:
            await asyncio.to_thread(raw.connect, ("127.0.0.1", server.port))
            client = await asyncio.to_thread(spoken, raw, cert)
            began = time.monotonic()
        assert time.monotonic() - began < 4
        client.close()
    assert caplog.messages == []


@pytest.mark.parametrize("speaks_tls", [False, True])
async def test_who_reads_nothing_does_not_keep_the_server_from_ending(
    speaks_tls: bool, settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither what it is told, nor that TLS ends."""
    cert, key = certificate(tmp_path) if speaks_tls else ("", "")
    made, bounds = door("0", tls_cert=cert, tls_key=key), Bounds(stop=0.05, farewell=0.1)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with serving(settings, made, bounds=bounds) as server:
            await asyncio.to_thread(client.connect, ("127.0.0.1", server.port))
            if speaks_tls:
                client = await asyncio.to_thread(spoken, client, cert)
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
                for _ in range(200):
                    client.send(all_tools(server))
            await until_nothing_moves(server, cert)
            began = time.monotonic()
        assert time.monotonic() - began < 5
        client.close()
    stopping = "stopping: The server stops, and this was not done in time. 'POST' '/mcp'"
    assert {m.partition(": ")[2] for m in caplog.messages} <= {stopping}


def spoken(client: socket.socket, cert: str) -> ssl.SSLSocket:
    """The same connection, with TLS; its end is not answered."""
    return ssl.create_default_context(cafile=cert).wrap_socket(client, server_hostname="127.0.0.1")


async def until_nothing_moves(server: Served, cert: str) -> None:
    """One call is in flight, and no other is answered any more."""
    trusting = ssl.create_default_context(cafile=cert) if cert else None
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting)
    metrics = healthz(server).replace(b"healthz", b"metrics")
    seen: list[bytes] = []
    async with asyncio.timeout(20):
        while len(seen) < 10:
            writer.write(metrics)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split()[0])
            told = await reader.readexactly(length)
            stands = b"requests_in_flight 1\n" in told and told in (seen or [told])
            seen = [*seen, told] if stands else []
    writer.close()


async def test_who_is_about_to_speak_tls_does_not_keep_the_server_from_ending(
    settings: Settings, tmp_path: Path
) -> None:
    cert, key = certificate(tmp_path)
    made = door("127.0.0.1:0", tls_cert=cert, tls_key=key)
    async with serving(settings, made) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(5):
        await ended(reader)
    writer.close()


def test_tls_files_that_are_none_are_wrong_arguments(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nothing", encoding="utf-8")
    for cert, said in (("cert.pem", "can't be used for TLS"), ("none.pem", "No such file")):
        name = str(tmp_path / cert)
        with pytest.raises(BadArgument, match=said):
            asyncio.run(serve(settings, door("0", tls_cert=name, tls_key=name), print))


def certificate(directory: Path) -> tuple[str, str]:
    """The paths of a certificate of this machine and its key."""
    now, name = datetime.now(UTC), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem, kept = Encoding.PEM, PrivateFormat.PKCS8
    (directory / "cert.pem").write_bytes(made.public_bytes(pem))
    (directory / "key.pem").write_bytes(key.private_bytes(pem, kept, NoEncryption()))
    return str(directory / "cert.pem"), str(directory / "key.pem")
