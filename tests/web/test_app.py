"""The MCP App in a host: the board out of a tool's answer, in a frame that reaches nothing."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import Connect
from mcp import Client
from mcp.client import advertise
from playwright.async_api import FrameLocator, Page, async_playwright, expect

HOST = Path(__file__).parent / "host.html"
BOARD = "ui://mcp-state/board"
RENDERS = (advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]}),)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCRIPT = "<script>parent.postMessage('broken out', '*')</script>"


@dataclass
class Hosted:
    """A page that hosts the app; `calls` are those that the app made to the server."""

    page: Page
    client: Client
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def app(self) -> FrameLocator:
        return self.page.frame_locator("#app")

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = await self.client.call_tool(tool, arguments)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def from_app(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((tool, arguments))
        return await self.call(tool, arguments)

    async def open(
        self, tool: str, arguments: dict[str, Any], context: dict[str, Any] | None = None
    ) -> None:
        (document,) = (await self.client.read_resource(BOARD)).contents
        result = await self.call(tool, arguments)
        opening = {"args": arguments, "result": result, "context": context or {}}
        await self.page.evaluate(
            "([html, opening]) => openApp(html, opening)", [getattr(document, "text", ""), opening]
        )

    async def heard(self, method: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self.page.evaluate(
            "(method) => heard.filter((one) => one.method === method).map((one) => one.params)",
            method,
        )
        return found


Host = Callable[[], AbstractAsyncContextManager[Hosted]]


@pytest.fixture
def host(connect: Connect) -> Host:
    chromium = shutil.which("chromium")
    assert chromium

    @asynccontextmanager
    async def hosted() -> AsyncGenerator[Hosted]:
        async with connect(extensions=RENDERS) as client, async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            page = await browser.new_page()
            page.set_default_timeout(8000)
            made = Hosted(page, client)
            page.on("pageerror", lambda problem: made.problems.append(str(problem)))
            page.on(
                "console",
                lambda said: made.problems.append(said.text) if said.type == "error" else None,
            )
            await page.expose_function(  # pyright: ignore[reportUnknownMemberType]
                "callServer", made.from_app
            )
            await page.goto(HOST.as_uri())
            yield made
            await browser.close()
            assert made.problems == []

    return hosted


async def fill(client: Client, write: Callable[..., Awaitable[Any]] | None = None) -> None:
    write = write or client.call_tool
    for thread, more in (
        ("fix-import", {"title": "Fix the import", "next_action": "rerun the golden test"}),
        ("ship", {"title": "Ship import v2", "depends_on": ["fix-import"]}),
        ("sdk-bug", {"status": "blocked", "waiting_on": "upstream"}),
    ):
        await write("thread_set", {"thread": thread, **more})


@pytest.mark.parametrize("tool", ["orient", "thread_list"])
async def test_the_board_is_drawn_from_a_tools_answer_alone(host: Host, tool: str) -> None:
    async with host() as hosted:
        await fill(hosted.client)
        await hosted.open(tool, {})
        active = hosted.app.locator("[data-column=active]")
        await expect(active).to_contain_text("Fix the import")
        await expect(active).to_contain_text("rerun the golden test")
        await expect(active).to_contain_text("Ship import v2")
        await expect(hosted.app.locator("[data-column=blocked]")).to_contain_text("upstream")
        await expect(hosted.app.locator("[data-column=watching]")).to_contain_text(
            "Nothing to look at again."
        )
        assert hosted.calls == []


async def test_a_card_opens_its_thread_through_the_host(host: Host) -> None:
    async with host() as hosted:
        await fill(hosted.client)
        await hosted.open("orient", {})
        await hosted.app.locator("[data-column=active] a", has_text="ship").first.click()
        await expect(hosted.app.locator("#detail")).to_contain_text("Fix the import")
        assert hosted.calls == [("thread_get", {"thread": "ship"})]


async def test_a_later_answer_and_the_button_bring_the_board_up_to_date(host: Host) -> None:
    async with host() as hosted:
        await fill(hosted.client)
        await hosted.open("orient", {})
        active = hosted.app.locator("[data-column=active]")
        await expect(active).to_contain_text("Ship import v2")

        await hosted.client.call_tool("thread_set", {"thread": "ship", "title": "Ship it later"})
        result = await hosted.call("thread_list", {})
        await hosted.page.evaluate(
            "(result) => tell('ui/notifications/tool-result', result)", result
        )
        await expect(active).to_contain_text("Ship it later")
        assert hosted.calls == []

        await hosted.client.call_tool("thread_set", {"thread": "ship", "title": "Ship it today"})
        await hosted.app.get_by_role("button", name="Refresh").click()
        await expect(active).to_contain_text("Ship it today")
        assert {tool for tool, _ in hosted.calls} == {"thread_list"}


async def test_without_an_answer_the_app_asks_for_itself(host: Host) -> None:
    async with host() as hosted:
        await fill(hosted.client)
        await hosted.open("orient", {})
        (document,) = (await hosted.client.read_resource(BOARD)).contents
        await hosted.page.evaluate(
            "([html, opening]) => openApp(html, opening)",
            [getattr(document, "text", ""), {"args": {}, "result": None, "context": {}}],
        )
        await expect(hosted.app.locator("[data-column=active]")).to_contain_text("Ship import v2")
        asked = sorted(arguments["status"] for _, arguments in hosted.calls)
        assert asked == ["active", "blocked", "watching"]


async def test_what_the_server_refuses_is_told(host: Host) -> None:
    async with host() as hosted:
        await fill(hosted.client)
        await hosted.open("orient", {})
        await expect(hosted.app.locator("[data-column=active]")).to_contain_text("ship")
        await hosted.page.evaluate("frame.contentWindow.postMessage('nonsense', '*')")
        await hosted.page.evaluate(
            "window.callServer = async () => ({ isError: true, content: [{ type: 'text',"
            " text: 'error: store_busy: not saved: kept busy. Call again.' }] })"
        )
        await hosted.app.get_by_role("button", name="Refresh").click()
        await expect(hosted.app.locator("#main")).to_contain_text(
            "Not saved: kept busy. Call again. Try again"
        )


async def test_hostile_text_stays_text_and_links_are_the_hosts_to_open(host: Host) -> None:
    async with host() as hosted:
        await hosted.client.call_tool(
            "thread_set",
            {
                "thread": f"x{SCRIPT[:60]}",
                "title": SCRIPT,
                "next_action": f"javascript:alert(1) {SCRIPT} see https://example.org/x",
                "check": '<img src="x" onerror="parent.postMessage(1)">',
            },
        )
        requests: list[str] = []
        hosted.page.on("request", lambda request: requests.append(request.url))
        await hosted.open("orient", {})
        card = hosted.app.locator("[data-column=active] .card").first
        await expect(card).to_contain_text(SCRIPT)
        await card.locator("a").first.click()
        detail = hosted.app.locator("#detail")
        await expect(detail).to_contain_text("onerror=")
        assert await hosted.app.locator("[href^='javascript']").count() == 0
        await detail.locator("a", has_text="https://example.org/x").first.click()
        await expect(detail.locator("a", has_text="https://example.org/x").first).to_be_visible()
        assert await hosted.heard("ui/open-link") == [{"url": "https://example.org/x"}]
        said: list[Any] = await hosted.page.evaluate("heard.filter((one) => !one?.jsonrpc)")
        assert said == []
        assert [url for url in requests if not url.startswith(("about:", "data:"))] == []


async def test_the_app_fits_the_frame_and_wears_the_hosts_theme(host: Host) -> None:
    async with host() as hosted:
        await fill(hosted.client)
        await hosted.open(
            "orient", {}, {"theme": "dark", "containerDimensions": {"width": 600, "maxHeight": 480}}
        )
        root = hosted.app.locator("html")
        await expect(root).to_have_attribute("data-theme", "dark")
        assert [size["height"] for size in await hosted.heard("ui/notifications/size-changed")] == [
            480
        ]
        await hosted.page.evaluate(
            "tell('ui/notifications/host-context-changed', { theme: 'light' })"
        )
        await expect(root).to_have_attribute("data-theme", "light")
        wide = await root.evaluate("(root) => root.scrollWidth - root.clientWidth")
        assert wide <= 0


async def test_the_app_answers_its_host(host: Host) -> None:
    async with host() as hosted:
        await hosted.open("orient", {})
        await expect(hosted.app.locator("#main")).to_contain_text("No threads yet")
        ping = await hosted.page.evaluate("ask('ping')")
        assert ping["result"] == {}
        over = await hosted.page.evaluate("ask('ui/resource-teardown', { reason: 'test' })")
        assert over["result"] == {}
        other = await hosted.page.evaluate("ask('tools/list')")
        assert other["error"]["code"] == -32601
