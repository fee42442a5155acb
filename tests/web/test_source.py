"""The board from another source than its server."""

from __future__ import annotations

from browsers import watched_page
from playwright.sync_api import Browser, expect
from sites import Site

_MOVING = """
globalThis.asked = 0;
globalThis.boardSource = {
    views: ["threads", "thread"],
    isLive: true,
    async get(view, { status }) {
        asked += 1;
        const event = status === "active" ? 10 : 11;
        const scope = { project: `asked ${asked}`, event };
        return { threads: [], waits: [], scope, now: new Date().toISOString() };
    },
    live(hears) { globalThis.hears = hears; },
};
"""


def test_a_change_between_two_answers_is_asked_for_again(browser: Browser, shop: Site) -> None:
    with watched_page(browser, shop.origin) as watched:
        page = watched.page
        page.add_init_script(_MOVING)
        page.goto(f"{shop.address}#board")
        page.wait_for_selector("body[data-ready]", state="attached")
        expect(page.locator(".foot .scope")).to_contain_text("asked 3")
        assert page.evaluate("hears({ event: 11 })") is True
        expect(page.locator(".foot .scope")).to_contain_text("asked 6")
        assert page.evaluate("hears({ event: 11 })") is False
        assert watched.unexpected() == []
