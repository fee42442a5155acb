"""What other processes change shows by itself, without moving what one reads."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from conftest import Pages
from playwright.sync_api import expect
from sites import COMMAND, Site, environment, serving


def test_a_change_of_another_process_shows_by_itself(opened: Pages, own_shop: Site) -> None:
    board = opened(own_shop, "#board")
    journal = opened(own_shop, "#journal")
    assert board.locator(".column.is-watching .card").count() == 2
    own_shop.do(
        "thread", "set", "refunds-report", "--title", "Report the refunds", "--status", "watching",
        "--check", "make report", agent="claude-code",
    )  # fmt: skip
    card = board.locator(".card[data-key='refunds-report']")
    expect(card).to_contain_text("Report the refunds")
    expect(card).to_have_class("card is-watching changed")
    expect(board.locator(".foot .news")).to_contain_text("claude-code: thread refunds-report")
    expect(board.locator("#column-watching .count")).to_have_text("3")
    own_shop.do("journal", "append", "The report is wanted on Monday", "--kind", "decision")
    expect(journal.locator(".entry").first).to_contain_text("The report is wanted on Monday")


def test_an_open_detail_is_kept_fresh_and_keeps_what_is_unfolded(
    opened: Pages, own_shop: Site
) -> None:
    page = opened(own_shop, "#runs?open=run%3Aconvert-archive")
    page.locator("#detail summary").click()
    expect(page.locator("#detail details")).to_have_attribute("open", "")
    own_shop.do("runs", "step", "end", "convert-archive", "orders-2024-084", "fine", "--ok")
    expect(page.locator("#detail .chart [role='img']")).to_have_attribute(
        "aria-label", "95 attempts: 84 ok, 11 failed"
    )
    expect(page.locator("#detail details")).to_have_attribute("open", "")


def test_what_one_reads_stays_where_it_is(opened: Pages, own_shop: Site) -> None:
    for number in range(40):
        own_shop.do("journal", "append", f"entry {number}\nwith a second line")
    page = opened(own_shop, "#journal", size=(1200, 500))
    main = page.locator("#main")
    main.evaluate("(main) => main.scrollTo(0, 900)")
    read = page.locator(".entry", has_text="entry 20")
    read.scroll_into_view_if_needed()
    before = read.bounding_box()
    assert before is not None
    own_shop.do("journal", "append", "something new\n\n\n\nand long")
    expect(page.locator(".entry", has_text="something new")).to_be_attached()
    after = read.bounding_box()
    assert after is not None
    assert abs(after["y"] - before["y"]) <= 2


def test_the_focus_stays_on_a_card_that_changes(opened: Pages, own_shop: Site) -> None:
    page = opened(own_shop, "#board")
    page.locator(".card[data-key='docs-import'] .cover").focus()
    own_shop.do("thread", "set", "docs-import", "--title", "Describe the format")
    expect(page.locator(".card[data-key='docs-import'] .cover")).to_contain_text(
        "Describe the format"
    )
    expect(page.locator(".card[data-key='docs-import'] .cover")).to_be_focused()


def test_less_motion_marks_a_change_without_animation(opened: Pages, own_shop: Site) -> None:
    page = opened(own_shop, "#board", motion="reduce")
    own_shop.do("thread", "set", "docs-import", "--title", "Describe the format")
    card = page.locator(".card.changed")
    expect(card).to_have_css("animation-name", "none")
    expect(card).to_have_css("outline-style", "dashed")


def test_changes_of_a_project_that_was_chosen_show_by_themselves(
    opened: Pages, own_shop: Site
) -> None:
    other = Site(own_shop.db, "other", own_shop.address)
    other.do("thread", "set", "theirs", "--title", "Theirs")
    page = opened(own_shop, "#board")
    page.locator("#project").select_option("other")
    expect(page.locator(".card[data-key='theirs']")).to_be_visible()
    other.do("thread", "set", "new", "--title", "Another one")
    expect(page.locator(".card[data-key='new']")).to_contain_text("Another one")


def test_a_store_that_cannot_be_read_is_said_until_it_can(
    opened: Pages, own_shop: Site, tmp_path: Path
) -> None:
    def store(*words: str) -> None:
        command = [*COMMAND, *words, str(tmp_path / "copy.db"), "--db", str(own_shop.db)]
        subprocess.run(command, env=environment(), capture_output=True, check=True)

    store("backup")
    page = opened(own_shop, "#board", expected=("Failed to load resource",))
    own_shop.db.write_bytes(b"no store " * 400)
    expect(page.locator("#main .notice.bad").first).to_be_visible()
    store("restore")
    expect(page.locator("#main .notice.bad")).to_have_count(0)
    expect(page.locator(".card[data-key='import-v2']")).to_be_visible()


def test_a_server_that_was_started_again_does_not_know_an_old_page(
    opened: Pages, own_shop: Site
) -> None:
    with serving(own_shop.db, own_shop.project) as first:
        page = opened(first, "#board", expected=("ERR_", "Failed to load"))
        expect(page.locator(".foot .link-state")).to_have_text("live")
    port = first.origin.rpartition(":")[2]
    with serving(own_shop.db, own_shop.project, port=port):
        page.goto(f"{first.address}#journal")
        expect(page.locator("#main")).to_contain_text("The connection is lost.")
        expect(page.locator("#lost")).to_contain_text("open the address that it prints")


def test_a_lost_connection_is_said_and_found_again(opened: Pages, own_shop: Site) -> None:
    port = own_shop.origin.rpartition(":")[2]
    command = [
        *COMMAND, "web", "--no-open", "--db", str(own_shop.db), "--project", own_shop.project,
    ]  # fmt: skip
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert f":{port}/" not in address
        other = Site(own_shop.db, own_shop.project, address)
        page = opened(other, "#board", expected=("ERR_", "Failed to load"))
        expect(page.locator(".foot .link-state")).to_have_text("live")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
        process.stdout.close()
    expect(page.locator("#lost")).to_contain_text("Connection lost.")
    expect(page.locator("#lost")).to_contain_text("start it again and open the address")
    expect(page.locator(".foot .link-state")).to_have_text("not connected")
    expect(page.locator(".card").first).to_be_visible()
