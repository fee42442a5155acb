from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sample
from browsers import Watched, arrive, started_browser, watched_page
from playwright.sync_api import Browser, Page
from sites import Site, serving


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run it in another thread: this one has the loop of the browser's driver."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


@pytest.fixture(scope="session")
def browser() -> Generator[Browser]:
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    """The sample, which no test changes."""
    db = tmp_path_factory.mktemp("shop") / "state.db"
    run(sample.build(db, datetime.now(UTC)))
    with serving(db, sample.PROJECT) as site:
        yield site


@pytest.fixture
def own_shop(tmp_path: Path) -> Generator[Site]:
    """A sample of its own, to be changed."""
    db = tmp_path / "state.db"
    run(sample.build(db, datetime.now(UTC)))
    with serving(db, sample.PROJECT) as site:
        yield site


class Pages:
    """Opens pages; at the end none of them did what it must not."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._stack = ExitStack()
        self.opened: list[Watched] = []

    def __call__(
        self,
        site: Site,
        fragment: str = "",
        *,
        expected: tuple[str, ...] = (),
        size: tuple[int, int] = (1440, 900),
        theme: str = "light",
        motion: str = "no-preference",
    ) -> Page:
        watched = self._stack.enter_context(
            watched_page(self._browser, site.origin, size=size, theme=theme, motion=motion)
        )
        watched.expected = expected
        self.opened.append(watched)
        arrive(watched.page, f"{site.address}{fragment}")
        return watched.page

    def close(self) -> list[str]:
        """Close them; what they did wrong."""
        self._stack.close()
        return [fault for watched in self.opened for fault in watched.unexpected()]


@pytest.fixture
def opened(request: pytest.FixtureRequest, browser: Browser) -> Generator[Pages]:
    if "own_shop" in request.fixturenames:
        request.getfixturevalue("own_shop")  # which then ends after the pages that look at it
    pages = Pages(browser)
    yield pages
    assert pages.close() == []
