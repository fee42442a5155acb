"""All of it by keyboard alone."""

from __future__ import annotations

import re

from conftest import Pages
from playwright.sync_api import Page, expect
from sites import Site


def focused(page: Page) -> str:
    """The text of what has the focus."""
    return page.evaluate("document.activeElement.textContent.trim()")


def test_numbers_lead_to_the_views_and_the_question_mark_shows_the_keys(
    opened: Pages, shop: Site
) -> None:
    page = opened(shop)
    for key, title in zip(
        "234567", ["Board", "Journal", "Runs", "Facts", "Memory", "Changes"], strict=True
    ):
        page.keyboard.press(key)
        expect(page.locator("#main h1")).to_have_text(title)
        expect(page.locator("#views a[aria-current='page'] .words")).to_have_text(title)
    page.keyboard.press("1")
    expect(page.locator(".objective")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    expect(page.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_a_walk_over_the_board_opens_and_closes_and_comes_back(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#board")
    page.keyboard.press("j")
    assert focused(page).startswith("Import v2")
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("k")
    assert focused(page).startswith("Roll out")
    page.keyboard.press("l")
    assert page.evaluate("document.activeElement.closest('.column').dataset.column") == "watching"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.closest('.column').dataset.column") == "blocked"
    page.keyboard.press("h")
    page.keyboard.press("h")
    assert page.evaluate("document.activeElement.closest('.column').dataset.column") == "active"
    page.keyboard.press("k")
    page.keyboard.press("k")
    name = focused(page)
    page.keyboard.press("Enter")
    expect(page.locator("#detail h2")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()
    assert focused(page) == name


def test_every_list_can_be_walked(opened: Pages, shop: Site) -> None:
    for view in ("runs", "facts", "memory", "changes", "journal"):
        page = opened(shop, f"#{view}")
        page.keyboard.press("j")
        first = page.evaluate("document.activeElement.closest('[data-item]').dataset.key")
        page.keyboard.press("j")
        second = page.evaluate("document.activeElement.closest('[data-item]').dataset.key")
        assert first != second, view


def test_the_tab_key_reaches_everything_in_the_order_it_is_read(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#board")
    page.locator("body").focus()
    reached: list[str] = []
    for _ in range(16):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("probes.focus()"))
    assert reached[:13] == [
        "skip", "brand", "project", "query", "theme", "help",
        "go-now", "go-board", "go-journal", "go-runs", "go-facts", "go-memory", "go-changes",
    ]  # fmt: skip
    assert reached[13:15] == ["Due only", "Closed too"]
    assert not any(one.startswith("unseen") for one in reached)


def test_search_and_escape(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#board?open=thread%3Aimport-v2")
    page.keyboard.press("/")
    expect(page.locator("#query")).to_be_focused()
    page.keyboard.type("j2?")
    expect(page.locator("#query")).to_have_value("j2?")
    expect(page).to_have_url(re.compile("#board"))
    page.keyboard.press("Escape")
    expect(page.locator("#query")).not_to_be_focused()
    expect(page.locator("#detail")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()
