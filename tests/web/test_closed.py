"""The page shows nothing to who does not have its key, or comes from elsewhere."""

from __future__ import annotations

from conftest import Pages
from playwright.sync_api import Browser
from sites import Site


def test_a_wrong_key_leads_nowhere_and_says_where_to_look(browser: Browser, shop: Site) -> None:
    page = browser.new_page()
    for address in (f"{shop.origin}/", f"{shop.origin}/guessed/", shop.address[:-2] + "/"):
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == 403
        assert "mcp-state web" in page.inner_text("body")
        assert "shop" not in page.content()
    page.close()


def test_a_name_that_was_made_to_lead_here_is_refused(browser: Browser, shop: Site) -> None:
    page = browser.new_page()
    answer = page.goto(shop.address.replace("127.0.0.1", "rebound.example"))
    assert answer is not None
    assert answer.status == 403
    assert "Import" not in page.content()
    page.close()


def test_another_page_can_neither_read_nor_frame_nor_do(
    browser: Browser, opened: Pages, shop: Site
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.route(
        "http://other.example/",
        lambda route: route.fulfill(body="<p>hello", content_type="text/html"),
    )
    page.goto("http://other.example/")
    read = page.evaluate(
        """async (address) => {
            const tried = [];
            for (const [path, how] of [["api/threads", {}], ["api/do/lock", {
                method: "POST", body: '{"key":"plan","reason":"x"}',
                headers: {"Content-Type": "application/json"}}], ["api/do/lock", {
                method: "POST", body: '{"key":"plan","reason":"x"}', mode: "no-cors"}]]) {
                try {
                    const answer = await fetch(address + path, how);
                    tried.push(answer.type + " " + answer.status);
                } catch (problem) {
                    tried.push("refused");
                }
            }
            return tried;
        }""",
        shop.address,
    )
    assert read == ["refused", "refused", "opaque 0"] or read == ["refused"] * 3
    context.close()
    here = opened(shop, "#memory")
    assert here.locator(".block[data-key='plan'] .held").count() == 0


def test_nothing_is_left_in_the_browser_but_the_colours(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#board")
    page.keyboard.press("t")
    assert page.evaluate("[JSON.stringify(localStorage), document.cookie]") == [
        '{"theme":"light"}',
        "",
    ]
