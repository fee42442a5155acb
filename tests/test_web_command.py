"""`mcp-state web` as a process: what it prints, opens and imports, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browsing import Browser, next_event

pytestmark = pytest.mark.usefixtures("dev_mode")

PROGRAM = str(Path(sys.executable).with_name("mcp-state"))
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]{43}/")


class Serving:
    """A child that serves."""

    def __init__(self, process: asyncio.subprocess.Process, line: str) -> None:
        self._process = process
        self.line = line

    @property
    def page(self) -> Browser:
        return Browser(self.line)

    async def end(self, number: int = signal.SIGINT) -> tuple[int | None, str, str]:
        """Its exit code, and what else it printed."""
        if self.line:
            self._process.send_signal(number)
        async with asyncio.timeout(10):
            out, err = await self._process.communicate()
        return self._process.returncode, out.decode(), err.decode()


Serve = Callable[..., AbstractAsyncContextManager[Serving]]


@pytest.fixture
def serving(path: str) -> Serve:
    @asynccontextmanager
    async def served(*words: str, **environment: str) -> AsyncGenerator[Serving]:
        given = [*words] if "--project" in words else [*words, "--project", "acme"]
        process = await asyncio.create_subprocess_exec(
            *(PROGRAM, "web", "--db", path, *given),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | environment,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(30):
                line = (await process.stdout.readline()).decode()
            yield Serving(process, line.strip())
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    return served


async def test_the_address_that_it_prints_is_answered_at_once(serving: Serve) -> None:
    async with serving("--no-open") as server:
        assert ADDRESS.fullmatch(server.line)
        assert (await server.page.get()).status == 200
        assert (await server.page.view("overview")).json["scope"]["project"] == "acme"

        assert await server.end() == (0, "", "It is yours alone. Ctrl-C ends it.\n")


async def test_for_programs_the_address_is_json(serving: Serve) -> None:
    async with serving("--no-open", "--json") as server:
        told = json.loads(server.line)
        assert list(told) == ["address"] and ADDRESS.fullmatch(told["address"])
        assert await server.end() == (0, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_ends_at_once_while_pages_are_open(serving: Serve, number: int) -> None:
    async with serving("--no-open") as server, server.page.listening() as stream:
        await next_event(stream)
        idle, writer = await asyncio.open_connection("127.0.0.1", server.page.port)

        async with asyncio.timeout(2):
            code, out, err = await server.end(number)

        assert (code, out, err) == (0, "", "It is yours alone. Ctrl-C ends it.\n")
        assert b"event" not in await stream.read()
        assert await idle.read() == b""
        writer.close()


async def test_a_port_can_be_chosen_and_one_in_use_is_refused(serving: Serve) -> None:
    async with serving("--no-open") as server:
        port = str(server.page.port)
        async with serving("--no-open", "--port", port) as second:
            assert (second.line, await second.end()) == (
                "",
                (
                    2,
                    "",
                    f"error: bad_argument: port {port} of 127.0.0.1 can't be used: Address already "
                    "in use. Choose another one with --port, or leave it out for one that is free."
                    "\n",
                ),
            )
        await server.end()
    async with serving("--no-open", "--port", port) as server:
        assert str(server.page.port) == port
        await server.end()


async def test_it_listens_on_this_machine_alone(serving: Serve) -> None:
    async with serving("--no-open") as server:
        with socket.socket() as other:
            other.settimeout(5)
            with pytest.raises(OSError):
                other.connect(("127.0.0.2", server.page.port))


async def test_the_browser_is_given_an_address_that_works_once(
    serving: Serve, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {told}\n', encoding="utf-8")
    browser.chmod(0o700)

    async with serving(BROWSER=f"{browser} %s") as server:
        once = await asyncio.to_thread(told.read_text, encoding="utf-8")

        key = urlsplit(server.line).path
        assert key.strip("/") not in once
        page = Browser(server.line)
        first, second = [await page.ask("GET", urlsplit(once).path) for _ in range(2)]
        assert (first.status, first.headers["location"], second.status) == (303, key, 403)


async def test_what_it_logs_holds_no_key(serving: Serve) -> None:
    async with serving("--no-open") as server:
        await server.page.get("api/none")
        await server.page.send(b"nonsense\r\n\r\n")
        await server.page.ask("GET", "/wrong/")

        assert await server.end() == (0, "", "It is yours alone. Ctrl-C ends it.\n")


def test_the_page_does_not_need_mcp_and_its_views_no_server() -> None:
    code = (
        "import sys, mcp_state.web.{}; "
        "print(sorted({{'mcp', 'pydantic', 'starlette', 'uvicorn'}} & set(sys.modules)))"
    )
    for module, found in {"serving": ["starlette", "uvicorn"], "views": [], "deeds": []}.items():
        printed = subprocess.check_output([sys.executable, "-c", code.format(module)], text=True)
        assert printed.strip() == str(found)
