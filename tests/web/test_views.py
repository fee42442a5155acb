"""Every view with real content, as a person reads it."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import Pages
from playwright.sync_api import Page, expect
from sites import Site, serving


def texts(page: Page, selector: str) -> list[str]:
    """What stands in all of these, each on one line."""
    return [" ".join(text.split()) for text in page.locator(selector).all_inner_texts()]


def test_the_first_view_says_what_it_is_about_and_what_is_to_be_done(
    opened: Pages, shop: Site
) -> None:
    page = opened(shop)
    expect(page.locator(".objective .aim")).to_have_text(
        "Ship order import v2 to the three pilot shops by Friday"
    )
    assert texts(page, ".tile") == [
        "active 6", "watching 2", "blocked 3", "done 3", "dropped 1", "due 2",
    ]  # fmt: skip
    assert texts(page, ".halves h3") == [
        "Due now 2",
        "In progress 6",
        "Waiting for somebody 3",
        "Check before you rely on it 1",
        "Runs under way 2",
        "No longer believed 4",
        "Dead ends",
        "What changed last",
    ]
    expect(page.locator(".halves")).to_contain_text("Read access to the production replica")
    expect(page.locator(".foot .scope")).to_contain_text("github.com/acme/shop · event")
    expect(page.locator(".foot .link-state")).to_have_text("live")


def test_the_board_has_a_column_for_each_status_and_cards_tell_who_waits_for_whom(
    opened: Pages, shop: Site
) -> None:
    page = opened(shop, "#board?closed=1")
    assert texts(page, ".column h2") == [
        "active 6", "watching 2", "blocked 3", "done 3", "dropped 1",
    ]  # fmt: skip
    expect(page.locator(".column.is-active .cover")).to_have_text(
        [
            "Import v2: exact amounts, refunds, active",
            "Roll out to the three pilot shops, active",
            "Refunds as negative ledger rows, active",
            "Tell the pilot shops the date, active",
            "Find the batch size, active",
            "Describe the import format, active",
        ]
    )
    rollout = page.locator(".card", has_text="Roll out to the three pilot shops")
    expect(page.locator(".card[data-key='pilot-rollout'] .waits")).to_have_text(
        [
            "needs import-v2, refunds",
            "needed by customer-mail",
        ]
    )
    expect(rollout.locator(".prio")).to_have_text("P3")
    held = page.locator(".card[data-key='import-v2']")
    expect(held.locator(".held")).to_contain_text(re.compile(r"held by codex, ends in \d+ min"))
    expect(held.locator(".score")).to_have_text("3/5 pass")
    expect(held).to_contain_text("relies on what fell")
    expect(page.locator(".card.is-due")).to_have_count(2)
    expect(page.locator(".column.is-dropped .card")).to_contain_text("why no pilot shop uses it")


def test_the_board_can_show_what_is_due_alone(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#board")
    page.get_by_role("button", name="Due only").click()
    expect(page.locator(".card")).to_have_count(2)
    expect(page.locator(".column.is-active .none")).to_have_text("Nothing active is due.")
    assert "due=1" in page.url


def test_a_thread_opens_with_all_there_is_of_it(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#board")
    page.locator(".card[data-key='import-v2'] .cover").click()
    detail = page.locator("#detail")
    expect(detail.locator("h2")).to_have_text("Import v2: exact amounts, refunds")
    expect(detail.locator("h2")).to_be_focused()
    expect(detail.locator(".criteria li")).to_have_count(5)
    expect(detail.locator(".graph .node")).to_have_count(3)
    expect(detail).to_contain_text("Held by codex, ends in")
    expect(detail).to_contain_text("pytest -q tests/test_totals.py")
    expect(detail).to_contain_text("Golden test is green for shop A and B.")
    assert page.url.endswith("#board?open=thread%3Aimport-v2")

    page.locator("#detail .chain a", has_text="Roll out to the three pilot shops").click()
    expect(detail.locator("h2")).to_have_text("Roll out to the three pilot shops")
    page.go_back()
    expect(detail.locator("h2")).to_have_text("Import v2: exact amounts, refunds")
    page.reload()
    expect(detail.locator("h2")).to_have_text("Import v2: exact amounts, refunds")
    page.get_by_role("link", name="Close").click()
    expect(detail).to_be_hidden()


def test_the_journal_is_a_timeline_by_day_that_can_be_filtered(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#journal")
    expect(page.locator(".entry")).to_have_count(6)
    assert page.locator(".day").count() >= 3
    expect(page.locator(".entry").first).to_contain_text("PR 830 has one approval")
    page.get_by_label("Kind").fill("dead_end")
    page.get_by_label("Agent").fill("codex")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".entry")).to_have_count(1)
    expect(page.locator(".entry")).to_contain_text("amounts-have-cents does not hold")
    page.get_by_role("link", name="clear").click()
    expect(page.locator(".entry")).to_have_count(6)
    page.get_by_label("Thread").fill("refunds")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".entry")).to_have_count(1)
    assert page.evaluate("[...document.querySelectorAll('#kinds option')].map((o) => o.value)") == [
        "dead_end", "decision", "note",
    ]  # fmt: skip


def test_runs_show_progress_spend_and_attempts(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#runs")
    assert texts(page, ".tabs .tab") == [
        "all 4", "open 2", "completed 1", "failed 1", "abandoned 0",
    ]  # fmt: skip
    run = page.locator(".rows .run[data-key='convert-archive']")
    expect(run).to_contain_text("83 of 120")
    expect(run).to_contain_text("95 of 160")
    run.get_by_role("link", name="convert-archive").click()
    chart = page.locator("#detail .chart")
    expect(chart.get_by_role("img")).to_have_attribute(
        "aria-label", "95 attempts: 83 ok, 11 failed, 1 left open"
    )
    assert chart.locator("rect.tally.failed").count() >= 8
    expect(chart.locator("polyline.used")).to_have_count(2)
    expect(chart.locator("line.used.minutes[x1]")).not_to_have_count(0)
    expect(page.locator("#detail")).to_contain_text("orders-2024-084: strip the mark")
    expect(page.locator("#detail section", has_text="Checkpoints").locator("li")).to_have_count(5)


def test_facts_show_the_check_before_the_claim_and_what_fell(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#facts")
    expect(page.locator(".fact")).to_have_count(10)
    first = texts(page, ".fact[data-key='csv-is-utf8']")[0]
    assert first.index("file -i data") < first.index("All files of the pilot shops are UTF-8")
    page.get_by_role("link", name="refuted").click()
    expect(page.locator(".fact")).to_have_count(1)
    page.get_by_role("link", name="amounts-have-cents").click()
    graph = page.locator("#detail .graph")
    names = page.locator("#detail .graph .node .name")
    expect(names).to_have_count(4)
    assert sorted(names.all_text_contents()) == [
        "amounts-have-cents", "parser-exact", "refunds-handled", "v2-ready",
    ]  # fmt: skip
    expect(graph.locator(".node.falls")).to_have_count(3)
    expect(graph.locator(".edge.bad")).to_have_count(3)
    node = graph.get_by_role("link", name=re.compile("^v2-ready: stale"))
    node.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#detail h2")).to_have_text("v2-ready")
    expect(page.locator("#detail")).to_contain_text("It rests on 5 facts.")
    expect(page.locator("#detail .graph .edge")).to_have_count(5)
    page.goto(f"{shop.address}#facts?open=fact%3Aparser-exact")
    expect(page.locator("#detail")).to_contain_text(
        "It rests on 2 facts. 2 facts rest on it: 0 would fall with it, 2 have fallen already."
    )


def test_memory_has_its_versions_side_by_side(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#memory")
    expect(page.locator(".block")).to_have_count(3)
    expect(page.locator(".block[data-key='conventions']")).to_contain_text(
        "locked: agreed with the team on Friday"
    )
    page.get_by_role("link", name="plan").click()
    diff = page.locator("#detail .diff")
    expect(diff.locator("th").first).to_contain_text("version 2")
    archive = "5. the archive: run convert-archive, 120 files"
    assert texts(page, "#detail .diff ins") == ["(done)", archive, "6", ", Friday"]
    page.get_by_label("Before").select_option("1")
    expect(diff.locator("th").first).to_contain_text("version 1")
    expect(diff).to_contain_text("4. refunds: skip for now")
    assert "left=1" in page.url
    page.locator("#memory-of").select_option("convert-archive")
    expect(page.locator(".block")).to_have_count(1)
    expect(page.locator(".block")).to_contain_text("rules")


def test_changes_are_all_that_was_committed_the_newest_first(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#changes")
    expect(page.locator(".event").first).to_contain_text("PR 830 has one approval")
    last = int(page.locator(".seq").first.inner_text())
    page.locator("#main").evaluate("(main) => main.scrollTo(0, main.scrollHeight)")
    expect(page.locator(f".event[data-key='{last - 70}']")).to_be_attached()
    page.get_by_label("Of").fill("thread:schema-v3")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".event")).to_have_count(2)
    page.locator(".event summary").first.click()
    expect(page.locator(".event pre").first).to_contain_text('"evidence": "commit 4f1d9ac')


def test_search_finds_everything_and_leads_there(opened: Pages, shop: Site) -> None:
    page = opened(shop)
    page.keyboard.press("/")
    page.keyboard.type("refunds")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="matches")).to_have_text("9 matches")
    expect(page.locator("mark").first).to_have_text("refunds")
    page.get_by_role("link", name="journal", exact=True).click()
    expect(page.locator("#main .rows > li")).to_have_count(2)
    page.get_by_role("link", name="memory", exact=True).click()
    page.get_by_role("link", name="convert-archive/rules").click()
    expect(page.locator("#detail h2")).to_have_text("rules")
    expect(page.locator("#detail")).to_contain_text("amounts: Decimal, comma")


def test_what_is_not_there_is_said_with_the_next_step(opened: Pages, shop: Site) -> None:
    page = opened(shop, "#board?open=thread%3Aimport-v3", expected=("404",))
    expect(page.locator("#detail .notice")).to_contain_text("thread 'import-v3'", ignore_case=True)
    expect(page.locator("#detail .notice")).to_contain_text("import-v2")


def test_another_project_is_one_choice_away_and_a_wrong_one_is_said(
    opened: Pages, shop: Site
) -> None:
    page = opened(shop, "#now?project=nothing", expected=("404",))
    expect(page.locator("#main .notice")).to_contain_text("No project 'nothing'")
    page.locator("#project").select_option(shop.project)
    expect(page.locator(".objective .aim")).to_be_visible()


def test_an_empty_project_says_how_to_begin_in_every_view(opened: Pages, tmp_path: Path) -> None:
    with serving(tmp_path / "state.db", "fresh") as site:
        page = opened(site)
        expect(page.locator("#main h1")).to_have_text("Nothing is kept here yet")
        expect(page.locator("#main")).to_contain_text("mcp-state install codex")
        for view, title, example in (
            ("board", "No threads yet", "mcp-state thread set"),
            ("journal", "The journal is empty", "mcp-state journal append"),
            ("runs", "No runs yet", "mcp-state runs begin"),
            ("facts", "No facts yet", "mcp-state facts record"),
            ("memory", "Working memory is empty", "mcp-state memory set"),
        ):
            page.goto(f"{site.address}#{view}")
            expect(page.locator(".empty h3")).to_have_text(title)
            expect(page.locator(".empty .command")).to_contain_text(example)
        page.goto(f"{site.address}#changes")
        expect(page.locator(".empty h3")).to_have_text("Nothing has changed yet")
        page.goto(f"{site.address}#board")
        site.do("thread", "set", "first", "--title", "The first thread")
        expect(page.locator(".card")).to_contain_text("The first thread")
        expect(page.locator(".empty")).to_have_count(0)
        page.close()


def test_a_damaged_store_is_said_in_every_view_with_the_way_out(
    opened: Pages, tmp_path: Path
) -> None:
    db = tmp_path / "state.db"
    db.write_bytes(b"no database" * 1000)
    with serving(db, "acme") as site:
        page = opened(site, expected=("503",))
        for view in ("now", "board", "journal", "runs", "facts", "memory", "changes"):
            page.goto(f"{site.address}#{view}")
            expect(page.locator("#main .notice").first).to_contain_text("mcp-state doctor")
        page.close()


def test_without_a_project_one_is_chosen_on_the_page(
    opened: Pages, shop: Site, tmp_path: Path
) -> None:
    with serving(shop.db, "", tmp_path) as site:
        page = opened(site, expected=("404",))
        expect(page.locator("#main .notice")).to_contain_text("Choose one")
        expect(page.locator("#project")).to_have_value("")
        page.locator("#project").select_option(shop.project)
        expect(page.locator(".objective .aim")).to_be_visible()
        page.close()
