"""Pictures of the page and of the terminal, out of the sample.

    python tests/web/pictures.py docs/pictures

The clock stands at the end of the sample's story, so that a picture changes only if what it shows
does, but for a few pixels where the browser smooths a round corner.
"""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import sample
from browsers import ARGUMENTS, PHONE, find_browser
from playwright.async_api import Browser, async_playwright
from rich.console import Console
from rich.text import Text
from sites import environment

from mcp_state.settings import Settings
from mcp_state.web.serving import serve

WIDE = (1280, 800)
PAGES = {
    "now": ("#now", WIDE, "light"),
    "board": ("#board", WIDE, "light"),
    "thread": ("#board?open=thread%3Aimport-v2", WIDE, "dark"),
    "journal": ("#journal", WIDE, "dark"),
    "run": ("#runs?open=run%3Aconvert-archive", WIDE, "light"),
    "fact": ("#facts?open=fact%3Av2-ready", WIDE, "dark"),
    "memory": ("#memory?open=block%3Aplan", WIDE, "light"),
    "phone-board": ("#board", PHONE, "light"),
    "phone-fact": ("#facts?open=fact%3Av2-ready", PHONE, "dark"),
}
TERMINAL = {"orient": ("orient", "--max-tokens", "700")}
COLUMNS = 100
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""What would be fetched from elsewhere."""
_COMMAND = """
import datetime, sys
from mcp_state import times
now = datetime.datetime.fromisoformat(sys.argv[1])
times.Clock.now = lambda clock: now
sys.argv = ["mcp-state", *sys.argv[2:]]
from mcp_state.cli import main
main()
"""


async def take(folder: Path) -> None:
    """Build the sample, and take all pictures of it into this folder."""
    with tempfile.TemporaryDirectory() as home:
        db = Path(home) / "state.db"
        await sample.build(db)
        for name, words in TERMINAL.items():
            draw(folder / f"{name}.svg", words, db)
        await _pages(folder, db)


async def _pages(folder: Path, db: Path) -> None:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    settings = Settings(db=str(db), project=sample.PROJECT)
    clock = sample.Script(sample.NOW)
    serving = asyncio.create_task(
        serve(settings, 0, lambda shown, once: address.set_result(shown), clock=clock)
    )
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=find_browser(), args=list(ARGUMENTS)
            )
            for name in PAGES:
                await _page(browser, await address, folder, name)
            await browser.close()
    finally:
        signal.raise_signal(signal.SIGINT)
        await serving


async def _page(browser: Browser, address: str, folder: Path, name: str) -> None:
    fragment, (width, height), theme = PAGES[name]
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
        device_scale_factor=2 if width == PHONE[0] else 1,
        timezone_id="UTC",
        locale="en-GB",
    )
    page = await context.new_page()
    await page.goto(f"{address}{fragment}")
    await page.wait_for_selector("body[data-ready]", state="attached")
    await page.evaluate("document.activeElement.blur()")
    await page.screenshot(path=folder / f"{name}.png")
    await context.close()


def draw(path: Path, words: tuple[str, ...], db: Path) -> None:
    """Run a command in a terminal, and draw what it printed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    command = [sys.executable, "-c", _COMMAND, sample.NOW.isoformat(), *words]
    scope = ["--db", str(db), "--project", sample.PROJECT, "--agent", "codex"]
    seen = b""
    with subprocess.Popen(
        [*command, *scope],
        stdin=theirs,
        stdout=theirs,
        env=environment() | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)},
    ):
        os.close(theirs)
        while chunk := _read(ours):
            seen += chunk
    os.close(ours)
    shown = seen.decode().replace("\r\n", "\n")
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(f"$ mcp-state {' '.join(words)}\n{shown}"))
    svg = console.export_svg(title="mcp-state", unique_id=path.stem)
    path.write_text(_FONT.sub("", svg), encoding="utf-8")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


if __name__ == "__main__":
    chosen = Path(sys.argv[1])
    chosen.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(chosen))
