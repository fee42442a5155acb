"""Light and dark, wide and on a phone: it fits, it can be read, it has names. And pictures of it.

The pictures are left in the directory that MCP_STATE_PICTURES names, to be looked at.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from browsers import PHONE, WIDE
from conftest import Pages
from playwright.sync_api import expect
from sites import Site

VIEWS = {
    "now": "#now",
    "board": "#board?closed=1",
    "thread": "#board?open=thread%3Aimport-v2",
    "journal": "#journal",
    "runs": "#runs",
    "run": "#runs?open=run%3Aconvert-archive",
    "facts": "#facts",
    "fact": "#facts?open=fact%3Aparser-exact",
    "memory": "#memory",
    "block": "#memory?open=block%3Aplan",
    "locked": "#memory?open=block%3Aconventions",
    "changes": "#changes",
    "search": "#search?query=refunds",
    "nothing-found": "#search?query=zzzz",
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("shape", "size"), [("wide", WIDE), ("phone", PHONE)])
def test_every_view_fits_can_be_read_and_has_names(
    opened: Pages, shop: Site, theme: str, shape: str, size: tuple[int, int]
) -> None:
    page = opened(shop, size=size, theme=theme)
    found: dict[str, list[str]] = {}
    for view, fragment in VIEWS.items():
        page.goto("about:blank")
        page.goto(f"{shop.address}{fragment}")
        page.wait_for_selector("body[data-ready]", state="attached")
        if pictures := os.environ.get("MCP_STATE_PICTURES"):
            page.screenshot(path=Path(pictures) / f"{view}-{shape}-{theme}.png")
        asked = ["sideways", "contrast", "names", *(["smallTargets"] if shape == "phone" else [])]
        told = [f"{probe}: {one}" for probe in asked for one in page.evaluate(f"probes.{probe}()")]
        if told:
            found[view] = told
    assert found == {}


def test_colours_follow_the_system_until_they_are_chosen(opened: Pages, shop: Site) -> None:
    page = opened(shop, theme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.reload()
    expect(page.locator(".objective")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light
    page.emulate_media(color_scheme="light")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light


def test_on_a_phone_the_board_shows_one_status_at_a_time(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#board", size=PHONE)
    expect(page.locator(".column:visible")).to_have_count(1)
    page.get_by_role("link", name="blocked").tap()
    expect(page.locator(".column:visible .card")).to_have_count(3)
    page.locator(".card[data-key='prod-access']").tap()
    expect(page.locator("#detail h2")).to_have_text("Read access to the production replica")
    title, close = [page.locator(one).bounding_box() for one in ("#detail h2", "#close")]
    assert title is not None and close is not None
    assert close["x"] > 300 and close["y"] < title["y"]
    page.get_by_role("link", name="Close").tap()
    expect(page.locator(".column:visible .card")).to_have_count(3)
    page.get_by_role("link", name="done").tap()
    expect(page.locator(".column:visible .card")).to_have_count(3)
