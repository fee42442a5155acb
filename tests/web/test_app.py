"""The MCP App in a host: the board out of a tool's answer, in a frame that reaches nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from browsers import WIDE, Watched, watched_page
from playwright.sync_api import Browser, FrameLocator, Locator, expect
from servers import Connection, connected

HOST = Path(__file__).with_name("host.html")
SCRIPT = "<script>parent.postMessage('broken out', '*')</script>"


class Host:
    """A page that hosts the app; `calls` are those that the app made to the server."""

    def __init__(self, watched: Watched, server: Connection) -> None:
        self.page = watched.page
        self.server = server
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.page.expose_function("callServer", self._called)  # pyright: ignore[reportUnknownMemberType]
        self.page.goto(HOST.as_uri())

    @property
    def app(self) -> FrameLocator:
        return self.page.frame_locator("#app")

    def column(self, status: str) -> Locator:
        return self.app.locator(f"[data-column={status}]")

    def do(self, tool: str, **arguments: Any) -> None:
        answer = self.server.call(tool, arguments)
        assert "isError" not in answer or not answer["isError"], answer

    def open(self, result: dict[str, Any] | None, **context: Any) -> None:
        """The app, for the answer of a tool; without one, the host never tells it."""
        opening = {"args": {}, "result": result, "context": context}
        self.page.evaluate(
            "([html, opening]) => openApp(html, opening)", [self.server.document(), opening]
        )

    def tell(self, method: str, params: dict[str, Any]) -> None:
        self.page.evaluate("([method, params]) => tell(method, params)", [method, params])

    def heard(self, method: str) -> list[dict[str, Any]]:
        return self.page.evaluate(
            "(method) => heard.filter((one) => one.method === method).map((one) => one.params)",
            method,
        )

    def _called(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((tool, arguments))
        return self.server.call(tool, arguments)


Opened = Callable[..., Host]


@pytest.fixture
def hosted(browser: Browser, tmp_path: Path) -> Generator[Opened]:
    """Open a page that hosts; at the end nothing went wrong in it."""
    stack = ExitStack()
    pages: list[Watched] = []

    def opened(size: tuple[int, int] = WIDE) -> Host:
        server = stack.enter_context(connected(tmp_path / "state.db", "acme"))
        watched = stack.enter_context(watched_page(browser, HOST.as_uri(), size=size))
        watched.expected = ("request: about:srcdoc",)
        pages.append(watched)
        host = Host(watched, server)
        host.do("thread_set", thread="fix-import", title="Fix the import", next_action="run it")
        host.do("thread_set", thread="ship", title="Ship v2", depends_on=["fix-import"])
        host.do("thread_set", thread="sdk-bug", status="blocked", waiting_on="upstream")
        return host

    yield opened
    stack.close()
    assert [fault for page in pages for fault in page.unexpected()] == []


@pytest.mark.parametrize("tool", ["orient", "thread_list"])
def test_the_board_is_drawn_from_a_tools_answer_alone(hosted: Opened, tool: str) -> None:
    host = hosted()
    host.open(host.server.call(tool, {}))
    expect(host.column("active")).to_contain_text("Fix the import")
    expect(host.column("active")).to_contain_text("run it")
    expect(host.column("active")).to_contain_text("Ship v2")
    expect(host.column("blocked")).to_contain_text("upstream")
    expect(host.column("watching")).to_contain_text("Nothing to look at again.")
    assert host.calls == []


def test_a_card_opens_its_thread_through_the_host(hosted: Opened) -> None:
    host = hosted()
    host.open(host.server.call("orient", {}))
    host.app.locator(".card[data-key=ship] .cover").click()
    expect(host.app.locator("#detail")).to_contain_text("Fix the import")
    assert host.calls == [("thread_get", {"thread": "ship"})]


def test_a_later_answer_and_the_button_bring_the_board_up_to_date(hosted: Opened) -> None:
    host = hosted()
    host.open(host.server.call("orient", {}))
    expect(host.column("active")).to_contain_text("Ship v2")

    host.do("thread_set", thread="ship", title="Ship it later")
    host.tell("ui/notifications/tool-result", host.server.call("thread_list", {}))
    expect(host.column("active")).to_contain_text("Ship it later")
    assert host.calls == []

    host.do("thread_set", thread="ship", title="Ship it today")
    host.app.get_by_role("button", name="Refresh").click()
    expect(host.column("active")).to_contain_text("Ship it today")
    asked = sorted((tool, arguments["status"]) for tool, arguments in host.calls)
    assert asked == [("thread_list", status) for status in ("active", "blocked", "watching")]


def test_without_an_answer_the_app_asks_for_itself(hosted: Opened) -> None:
    host = hosted()
    host.open(None)
    expect(host.column("active")).to_contain_text("Ship v2")
    asked = sorted((tool, arguments["status"]) for tool, arguments in host.calls)
    assert asked == [("thread_list", status) for status in ("active", "blocked", "watching")]


def test_what_the_server_refuses_is_told(hosted: Opened) -> None:
    host = hosted()
    host.open(host.server.call("orient", {}))
    expect(host.column("active")).to_contain_text("Ship v2")
    host.page.evaluate("frame.contentWindow.postMessage('nonsense', '*')")
    host.page.evaluate(
        "window.callServer = async () => ({ isError: true, content: [{ type: 'text',"
        " text: 'error: store_busy: not saved: kept busy. Call again.\\n[acme]' }] })"
    )
    host.app.get_by_role("button", name="Refresh").click()
    expect(host.column("active")).to_contain_text("Not saved: kept busy. Call again.")


def test_hostile_text_stays_text_and_links_are_the_hosts_to_open(hosted: Opened) -> None:
    host = hosted()
    host.do(
        "thread_set",
        thread=SCRIPT,
        title=SCRIPT,
        next_action=f"javascript:alert(1) {SCRIPT} see https://acme.example/x",
        check='<img src="x" onerror="parent.postMessage(1)">',
    )
    host.open(host.server.call("orient", {}))
    card = host.app.locator(".card", has_text="broken out")
    expect(card).to_contain_text(SCRIPT)
    card.locator(".cover").click()
    detail = host.app.locator("#detail")
    expect(detail).to_contain_text("onerror=")
    expect(host.app.locator("[href^='javascript']")).to_have_count(0)
    detail.locator("a", has_text="https://acme.example/x").click()
    expect(detail).to_be_visible()
    assert host.heard("ui/open-link") == [{"url": "https://acme.example/x"}]
    assert host.page.evaluate("heard.filter((one) => !one?.jsonrpc)") == []


def test_the_app_fits_the_frame_and_wears_the_hosts_theme(hosted: Opened) -> None:
    host = hosted((420, 700))
    host.open(
        host.server.call("orient", {}),
        theme="dark",
        containerDimensions={"width": 400, "maxHeight": 480},
    )
    root = host.app.locator("html")
    expect(root).to_have_attribute("data-theme", "dark")
    expect(host.column("active")).to_contain_text("Ship v2")
    (size,) = host.heard("ui/notifications/size-changed")
    assert size["height"] == 480
    host.tell("ui/notifications/host-context-changed", {"theme": "light"})
    expect(root).to_have_attribute("data-theme", "light")
    assert root.evaluate("(root) => root.scrollWidth - root.clientWidth") == 0


def test_the_app_answers_its_host(hosted: Opened) -> None:
    host = hosted()
    host.open(host.server.call("orient", {}))
    expect(host.column("active")).to_contain_text("Ship v2")
    assert host.page.evaluate("ask('ping')")["result"] == {}
    assert host.page.evaluate("ask('ui/resource-teardown', { reason: 'test' })")["result"] == {}
    assert host.page.evaluate("ask('tools/list')")["error"]["code"] == -32601


def test_what_the_app_cannot_show_is_no_link(hosted: Opened) -> None:
    host = hosted()
    host.do("fact_record", fact="green", statement="It is green", check="make test")
    host.do("thread_set", thread="ship", relies_on=["green"])
    host.do("journal_append", text="looked", thread="ship", kind="note")
    host.open(host.server.call("orient", {}))
    host.app.locator(".card[data-key=ship] .cover").click()
    detail = host.app.locator("#detail")
    expect(detail.locator(".fact")).to_contain_text("green")
    expect(detail.locator(".entry")).to_contain_text("looked")
    for link in detail.locator("a:not(#close)").all():
        assert "open=thread%3A" in (link.get_attribute("href") or ""), link.inner_text()


def test_what_another_project_has_is_asked_for_there(hosted: Opened) -> None:
    host = hosted()
    host.do("thread_set", thread="ship", title="Theirs", project="other")
    host.open(host.server.call("orient", {"project": "other"}))
    expect(host.column("active")).to_contain_text("Theirs")
    host.app.locator(".card[data-key=ship] .cover").click()
    expect(host.app.locator("#detail-title")).to_have_text("Theirs")
    assert host.calls == [("thread_get", {"thread": "ship", "project": "other"})]


def test_what_the_host_tells_twice_does_not_pass_for_news(hosted: Opened) -> None:
    host = hosted()
    result = host.server.call("orient", {})
    host.open(result)
    expect(host.column("active")).to_contain_text("Ship v2")
    host.tell("ui/notifications/tool-result", result)
    host.tell("ui/notifications/tool-result", {"content": []})
    host.do("thread_set", thread="ship", title="Ship it today")
    host.app.get_by_role("button", name="Refresh").click()
    expect(host.column("active")).to_contain_text("Ship it today")


def without_tools(host: Host) -> None:
    host.page.evaluate(
        "() => { const answer = HANDLERS['ui/initialize'];"
        " HANDLERS['ui/initialize'] = () => ({ ...answer(), hostCapabilities: {} }); }"
    )


def test_a_host_without_tools_shows_what_it_was_answered(hosted: Opened) -> None:
    host = hosted()
    without_tools(host)
    host.open(host.server.call("orient", {}))
    expect(host.column("active")).to_contain_text("Ship v2")
    host.app.get_by_role("button", name="Refresh").click()
    host.app.locator(".card[data-key=ship] .cover").click()
    expect(host.app.locator("#detail")).to_contain_text("Ask for it in the chat.")
    expect(host.column("active")).to_contain_text("Ship v2")
    assert host.calls == []


def test_an_answer_that_comes_late_is_shown(hosted: Opened) -> None:
    host = hosted()
    without_tools(host)
    host.open(None)
    expect(host.column("active")).to_contain_text("Ask for it in the chat.")
    host.tell("ui/notifications/tool-result", host.server.call("orient", {}))
    expect(host.column("active")).to_contain_text("Ship v2")
    expect(host.column("active")).not_to_contain_text("Ask for it in the chat.")


def test_a_host_that_knows_no_handshake_is_not_waited_for(hosted: Opened) -> None:
    host = hosted()
    host.page.evaluate("() => { delete HANDLERS['ui/initialize']; }")
    host.open(None)
    expect(host.column("active")).to_contain_text("Ask for it in the chat.")
