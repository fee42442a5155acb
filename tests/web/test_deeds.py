"""What people do on the page and agents must not; what is refused says why."""

from __future__ import annotations

import json
import re

from conftest import Pages
from playwright.sync_api import Page, expect
from sites import Site


def answer(page: Page, verb: str, **fields: str) -> None:
    """Fill the dialog, and do it."""
    dialog = page.get_by_role("dialog")
    for label, value in fields.items():
        dialog.get_by_label(label).fill(value)
    dialog.get_by_role("button", name=verb).click()


def test_a_block_is_locked_with_a_reason_and_unlocked(opened: Pages, own_shop: Site) -> None:
    page = opened(own_shop, "#memory?open=block%3Aplan")
    page.get_by_role("button", name="Lock").click()
    expect(page.get_by_role("dialog", name="Lock plan?")).to_contain_text("are refused")
    expect(page.get_by_role("dialog").get_by_label("Reason")).to_be_focused()
    answer(page, "Lock", Reason="Dana rewrites it")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#detail .notice")).to_contain_text("Dana rewrites it")
    assert (
        json.loads(own_shop.do("memory", "get", "plan", "--json"))["locked"] == "Dana rewrites it"
    )

    page.get_by_role("button", name="Unlock").click()
    answer(page, "Unlock")
    expect(page.locator("#detail .notice")).to_have_count(0)
    assert json.loads(own_shop.do("memory", "get", "plan", "--json"))["locked"] == ""


def test_a_lease_is_broken(opened: Pages, own_shop: Site) -> None:
    page = opened(own_shop, "#board?open=thread%3Aimport-v2")
    page.get_by_role("button", name="Break the lease").click()
    expect(page.get_by_role("dialog")).to_contain_text("Its next write is refused with lease_lost")
    answer(page, "Break it")
    expect(page.locator("#detail .notice")).to_have_count(0)
    expect(page.locator(".card[data-key='import-v2'] .held")).to_have_count(0)
    assert "lease" not in json.loads(own_shop.do("thread", "import-v2", "--json"))["thread"]


def test_a_lease_that_was_taken_by_another_meanwhile_is_not_broken(
    opened: Pages, own_shop: Site
) -> None:
    page = opened(own_shop, "#board?open=thread%3Aimport-v2", expected=("409",))
    page.get_by_role("button", name="Break the lease").click()
    own_shop.do("thread", "release", "import-v2", "--force")
    own_shop.do("thread", "claim", "import-v2", agent="claude-code")
    answer(page, "Break it")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("claude-code")
    assert json.loads(own_shop.do("thread", "import-v2", "--json"))["thread"]["lease"]


def test_a_budget_is_raised_and_a_refusal_says_why(opened: Pages, own_shop: Site) -> None:
    page = opened(own_shop, "#runs?open=run%3Aconvert-archive", expected=("400", "409"))
    page.get_by_role("button", name="Raise the budget").click()
    answer(page, "Raise", Attempts="3", Reason="more files came")
    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert.first).to_contain_text("attempts", ignore_case=True)
    answer(page, "Raise", Attempts="400", Reason="more files came")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#detail .meters")).to_contain_text("95 of 400")
    run = json.loads(own_shop.do("runs", "show", "convert-archive", "--json"))["run"]
    assert (run["max_attempts"], run["max_minutes"], run["max_tokens"]) == (400, 600, 400_000)


def test_a_step_that_was_stopped_is_reset(opened: Pages, own_shop: Site) -> None:
    page = opened(own_shop, "#runs?open=run%3Aflaky-settlement")
    step = page.locator("#detail .steps li")
    expect(step).to_contain_text("stopped")
    step.get_by_role("button", name="Reset").click()
    answer(page, "Reset", Reason="the fixture is its own now")
    expect(page.locator("#detail .steps li")).not_to_contain_text("stopped")


def test_a_dialog_is_left_by_escape_and_nothing_is_done(opened: Pages, own_shop: Site) -> None:
    page = opened(own_shop, "#memory?open=block%3Aplan")
    lock = page.get_by_role("button", name="Lock")
    lock.click()
    page.keyboard.type("half a reas")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#detail")).to_be_visible()
    expect(lock).to_be_focused()
    assert json.loads(own_shop.do("memory", "get", "plan", "--json"))["locked"] == ""


def test_a_dialog_goes_with_what_it_asks_about(opened: Pages, own_shop: Site) -> None:
    page = opened(own_shop, "#board")
    page.goto(f"{own_shop.address}#memory?open=block%3Aplan")
    page.get_by_role("button", name="Lock").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    expect(page.locator("#main h1")).to_have_text("Board")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_a_text_is_removed_in_two_steps_and_stands_in_no_address(
    opened: Pages, own_shop: Site
) -> None:
    own_shop.do("memory", "set", "login", "the word is hunter22 on staging")
    own_shop.do("journal", "append", "Hunter22 works on staging")
    page = opened(own_shop, "#changes", expected=("400", "409"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_role("button", name="Remove a text for good").click()
    answer(page, "Look for it", **{"The text": "hunter22"})
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text(re.compile("^Remove it from . places"))
    expect(dialog).to_contain_text("memory:login")
    assert "hunter22" in own_shop.do("memory", "get", "login")
    answer(page, "Remove for good", Reason="hunter22 was pasted")
    expect(dialog.get_by_role("alert")).to_contain_text("reason")
    answer(page, "Remove for good", Reason="a password was pasted")
    expect(dialog.get_by_role("heading")).to_have_text("Removed")
    page.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".event").first).to_contain_text("a password was pasted")
    assert "hunter22" not in own_shop.do("memory", "get", "login")
    assert b"hunter22" not in own_shop.db.read_bytes().lower()
    assert not [url for url in asked if "hunter22" in url]


def test_a_text_that_is_nowhere_is_said(opened: Pages, own_shop: Site) -> None:
    page = opened(own_shop, "#changes")
    page.get_by_role("button", name="Remove a text for good").click()
    answer(page, "Look for it", **{"The text": "never written"})
    expect(page.get_by_role("dialog").get_by_role("heading")).to_have_text("It is nowhere")
