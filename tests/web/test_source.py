"""The board from another source: a page of threads alone, and no server to ask."""

from __future__ import annotations

import json

from browsers import watched_page
from playwright.sync_api import Browser, expect
from sites import Site

_SOURCE = """
const page = PAGE;
globalThis.asked = [];
globalThis.boardSource = {
    views: ["threads"],
    isLive: false,
    async get(view, params) {
        asked.push(view);
        const threads = page.threads.filter((t) => !params?.status || t.status === params.status);
        return { ...page, threads, now: new Date().toISOString() };
    },
    live(hears) { globalThis.hears = hears; },
};
globalThis.rename = () => {
    page.threads.find((t) => t.name === "refunds").title = "Renamed";
};
"""


def test_a_page_of_threads_is_enough_for_the_board(browser: Browser, shop: Site) -> None:
    told = json.loads(shop.do("threads", "--json"))
    with watched_page(browser, shop.origin) as watched:
        page = watched.page
        page.add_init_script(_SOURCE.replace("PAGE", json.dumps(told)))
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(shop.address)
        page.wait_for_selector("body[data-ready]", state="attached")

        expect(page.locator("#views, #search, #picker").filter(visible=True)).to_have_count(0)
        expect(page.locator(".column.is-active .card")).to_have_count(6)
        expect(page.locator(".card[data-key='pilot-rollout'] .waits")).to_have_text(
            ["needs import-v2, refunds", "needed by customer-mail"]
        )
        expect(page.locator(".foot .link-state")).to_contain_text("as of just now")
        page.locator(".card[data-key='refunds'] .cover").click()
        expect(page.locator("#detail h2")).to_have_text("Refunds as negative ledger rows")
        expect(page.locator("#detail .chain")).to_contain_text("Monthly ledger export")
        expect(page.locator("#detail button")).to_have_count(0)

        page.evaluate("rename()")
        page.get_by_role("button", name="Refresh").click()
        expect(page.locator(".card[data-key='refunds'] .cover")).to_contain_text("Renamed")
        assert set(page.evaluate("asked")) == {"threads"}
        assert not [url for url in asked if "/api/" in url]
        assert watched.unexpected() == []


_MOVING = """
globalThis.asked = 0;
globalThis.boardSource = {
    views: ["threads"],
    isLive: true,
    async get(view, { status }) {
        asked += 1;
        const event = status === "active" ? 10 : 11;
        const scope = { project: `asked ${asked}`, event };
        return { threads: [], scope, now: new Date().toISOString() };
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
