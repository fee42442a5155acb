"""The browser that the tests drive, and what each page in it did that a page must not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = (
    "No browser found. Install one with `apt-get install chromium` (as root), or set "
    "MCP_STATE_BROWSER to the path of a Chromium or Chrome."
)
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP *.example 127.0.0.1",
)
WIDE = (1440, 900)
PHONE = (360, 740)


def find_browser() -> str:
    """The path of a browser.

    Raises:
        FileNotFoundError: there is none, and how to get one.
    """
    found = os.environ.get("MCP_STATE_BROWSER") or next(filter(None, map(shutil.which, NAMES)), "")
    if not found or shutil.which(found) is None:
        raise FileNotFoundError(HOW)
    return found


@contextmanager
def started_browser() -> Generator[Browser]:
    """A browser without a window, for as long as the block runs."""
    path = find_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, and all that it did that it must not."""

    page: Page
    origin: str
    faults: list[str] = field(default_factory=list[str])
    expected: tuple[str, ...] = ()
    """Parts of faults that a test means to provoke."""

    def unexpected(self) -> list[str]:
        return [f for f in self.faults if not any(part in f for part in self.expected)]


PROBES = Path(__file__).with_name("probes.js")


@contextmanager
def watched_page(
    browser: Browser,
    origin: str,
    *,
    size: tuple[int, int] = WIDE,
    theme: str = "light",
    motion: str = "no-preference",
) -> Generator[Watched]:
    """A page of its own; what goes wrong in it is kept."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce" if motion == "reduce" else "no-preference",
        has_touch=size == PHONE,
        timezone_id="UTC",
        locale="en-GB",
    )
    context.add_init_script(path=PROBES)
    page = context.new_page()
    page.set_default_timeout(15_000)
    watched = Watched(page, origin)

    def heard(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            watched.faults.append(f"console: {message.text}")

    def asks(dialog: Dialog) -> None:
        watched.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def asked(request: Request) -> None:
        if not request.url.startswith((origin, "about:blank", "data:,")):
            watched.faults.append(f"request: {request.url}")

    page.on("console", heard)
    page.on("pageerror", lambda error: watched.faults.append(f"error: {error}"))
    page.on("request", asked)
    page.on("popup", lambda other: watched.faults.append(f"popup: {other.url}"))
    page.on("dialog", asks)
    yield watched
    context.close()


def arrive(page: Page, url: str) -> None:
    """Open an address afresh, and wait until what it asks for is shown."""
    page.goto("about:blank")
    page.goto(url)
    page.wait_for_selector("body[data-ready]", state="attached")
