"""An agent that writes markup, scripts and addresses into every field harms nobody who looks."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from browsers import PHONE
from conftest import Pages
from playwright.sync_api import expect
from sites import Site, serving

from mcp_state.api import open_store
from mcp_state.models import Place

BAD = (
    "\"'><img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)>"
    '<a href="javascript:alert(4)">x</a> javascript:alert(5) '
    "data:text/html,<script>alert(6)</script> "
    "</title></style></textarea><iframe src=//evil.example></iframe> {{7*7}} ${alert(8)} "
    "http://evil.example/\u202etxt.exe \u0007\u001b[31m &lt;b&gt; &amp; %3Cscript%3E"
)
NAME = "<img src=x onerror=alert(1)>\"'&#?=:%/<b>\u202eevil"


async def _write(db: Path) -> None:
    async with open_store(db, project=NAME, agent=NAME, session=NAME) as state:
        await state.objective.set(BAD, reason=BAD, intent=BAD)
        await state.facts.record(NAME, BAD, check=BAD, source=BAD, recheck_after="1s")
        await state.facts.verify(NAME, True, BAD)
        await state.facts.record("rests", BAD, check=BAD, because=[NAME])
        await state.facts.verify(NAME, False, BAD)
        await state.threads.set(
            NAME,
            title=BAD[:280],
            next_action=BAD,
            check=BAD,
            note=BAD,
            criteria=[BAD],
            places=[Place(BAD, "home", BAD)],
            relies_on=[NAME],
        )
        await state.threads.set("waits", status="blocked", waiting_on=BAD, depends_on=[NAME])
        await state.threads.set("watched", status="watching", check=BAD, recheck_after="1s")
        await state.threads.set("over", status="done", evidence=BAD)
        await state.threads.set("away", status="dropped", note=BAD)
        await state.threads.check(NAME, "1", True, evidence=BAD)
        await state.runs.begin(BAD, run=NAME, thread=NAME, expected_outcome=BAD, max_attempts=9)
        await state.steps.begin(NAME, NAME, input=BAD)
        await state.steps.end(NAME, NAME, False, BAD, tokens_in=5)
        await state.runs.checkpoint(NAME, BAD, next_action=BAD, done=1, total=2)
        await state.memory.set(NAME, BAD)
        await state.memory.set(NAME, f"{BAD}\n{BAD}")
        await state.memory.set(NAME, BAD, run=NAME)
        await state.memory.lock(NAME, BAD[:280])
        await state.journal.append(BAD, kind="dead_end", thread=NAME, run=NAME)
        await state.journal.append(BAD, kind=NAME)
        await state.blobs.put(BAD, summary=BAD[:280])
        await state.handoffs.create(BAD, to=NAME)
        await state.runs.begin(BAD, run="ended")
        await state.runs.finish("ended", "failed", reflection=BAD, result=BAD)
        await state.threads.claim(NAME)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    db = tmp_path_factory.mktemp("hostile") / "state.db"
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _write(db)).result()
    with serving(db, NAME) as site:
        yield site


VIEWS = ("now", "board?closed=1", "journal", "runs", "facts", "memory", "changes")


@pytest.mark.parametrize("view", VIEWS)
def test_hostile_text_stays_text_in_every_view(opened: Pages, hostile: Site, view: str) -> None:
    page = opened(hostile, f"#{view}")
    expect(page.locator("#main")).to_contain_text("<img src=x onerror=alert(1)>")
    for summary in page.locator("#main summary").all():
        summary.click()
    assert page.evaluate("probes.alive()") == []


@pytest.mark.parametrize("view", VIEWS)
def test_hostile_text_stays_text_in_whatever_opens(opened: Pages, hostile: Site, view: str) -> None:
    page = opened(hostile, f"#{view}")
    links = page.locator("#main a[href*='open=']").all()
    addresses = {link.get_attribute("href") or "" for link in links}
    assert addresses
    for address in sorted(addresses):
        page.goto(f"{hostile.address}{address}")
        expect(page.locator("#detail-title")).to_be_visible()
        expect(page.locator("#detail")).to_contain_text("alert(")
        for summary in page.locator("#detail summary").all():
            summary.click()
        assert page.evaluate("probes.alive()") == []
        for button in page.locator("#detail button:visible").all():
            button.click()
            assert page.evaluate("probes.alive()") == []
            page.keyboard.press("Escape")
    assert page.url.startswith(hostile.address)


@pytest.mark.parametrize("kind", ["", "journal", "blob", "memory", "fact", "run", "thread"])
def test_hostile_text_stays_text_in_what_is_found(opened: Pages, hostile: Site, kind: str) -> None:
    page = opened(hostile, f"#search?query=onerror&kinds={kind}")
    expect(page.locator("#main .rows")).to_contain_text("onerror=alert(1)")
    for summary in page.locator("#main summary").all():
        summary.click()
        page.locator("#main details button").click()
        expect(page.locator("#main pre")).to_contain_text("<script>alert(2)</script>")
    assert page.evaluate("probes.alive()") == []


def test_only_web_addresses_can_be_followed_and_they_tell_nothing(
    opened: Pages, hostile: Site
) -> None:
    page = opened(hostile, "#journal")
    links = page.locator("#main a.outward")
    expect(links.first).to_be_visible()
    for link in links.all():
        assert (link.get_attribute("href") or "").startswith("http://evil.example/")
        assert link.get_attribute("rel") == "noopener noreferrer nofollow"
        assert link.get_attribute("target") == "_blank"
        assert link.inner_text() == link.get_attribute("href")


def test_a_hostile_address_of_ours_does_nothing(opened: Pages, hostile: Site) -> None:
    for fragment in (
        "#board?open=javascript:alert(1)",
        "#<img src=x onerror=alert(1)>",
        "#board?open=__proto__:x&project=<script>alert(1)</script>",
        "#search?query=<svg onload=alert(1)>&kinds=constructor",
        "#constructor?open=thread:%00",
        "#memory?open=block:x&left=-1&right=1e99&of=%ff",
    ):
        page = opened(hostile, fragment, expected=("Failed to load resource",))
        expect(page.locator("#views a").first).to_be_visible()
        assert page.evaluate("probes.alive()") == []


def test_hostile_text_does_not_burst_the_width_of_a_phone(opened: Pages, hostile: Site) -> None:
    page = opened(hostile, size=PHONE)
    for view in VIEWS:
        page.goto(f"{hostile.address}#{view}")
        expect(page.locator("#main")).to_contain_text("onerror")
        assert page.evaluate("probes.sideways()") == []
        opens = page.locator("#main a[href*='open=']").first.get_attribute("href")
        page.goto(f"{hostile.address}{opens}")
        expect(page.locator("#detail-title")).to_be_visible()
        assert page.evaluate("probes.sideways()") == []
