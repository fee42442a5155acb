"""What fails a test that nobody looks for: see `nothing_was_left_unsaid` in conftest.py."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COMPLAINTS, left_unsaid
from raw_client import Call, Server, closing_all

SCRIPTS = {
    "open('/dev/null')": r"ResourceWarning\(.unclosed file",
    "async def f(): pass\nf()": r"RuntimeWarning\(.coroutine 'f' was never awaited",
    "class A:\n def __del__(self): 1 / 0\nA()": "ZeroDivisionError",
    "import threading\nthreading.Thread(target=lambda: 1 / 0).start()": "in thread .*ZeroDivision",
    "import asyncio\nasync def f(): 1 / 0\nasync def g():\n"
    " asyncio.ensure_future(f())\n await asyncio.sleep(0)\nasyncio.run(g())": "never retrieved",
}


@pytest.mark.parametrize(("script", "complaint"), SCRIPTS.items())
def test_what_a_child_could_only_print_fails_the_test_that_started_it(
    script: str, complaint: str
) -> None:
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.DEVNULL, check=False)
    assert done.returncode == 0
    assert re.search(complaint, "\n".join(left_unsaid([])))


def test_what_a_child_warns_of_ends_it() -> None:
    script = "import warnings\nwarnings.warn('old', DeprecationWarning)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"DeprecationWarning: old" in done.stderr


@pytest.mark.usefixtures("dev_mode")
def test_in_dev_mode_a_child_is_told_when_it_uses_a_loop_from_another_thread() -> None:
    script = (
        "import asyncio, threading\n"
        "async def f():\n"
        " call = asyncio.get_running_loop().call_soon\n"
        " thread = threading.Thread(target=call, args=(print,))\n"
        " thread.start()\n"
        " thread.join()\n"
        "asyncio.run(f())"
    )
    subprocess.run([sys.executable, "-c", script], stderr=subprocess.DEVNULL, check=True)
    said = "\n".join(left_unsaid([]))
    assert "Non-thread-safe operation invoked on an event loop" in said


def test_servers_out_of_the_nursery_are_as_strict(tmp_path: Path) -> None:
    server = Server.start(tmp_path / "store" / "state.db")
    with closing_all([server]):
        assert not server.call(Call("journal_append", {"text": "x"})).refused
        environment = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
    assert b"PYTHONWARNINGS=error" in environment
    assert f"TESTS_COMPLAINTS={COMPLAINTS}".encode() in environment


async def test_a_task_whose_failure_nobody_asked_for_fails_the_test(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise ValueError("unheard")

    failing = asyncio.create_task(fail())
    await asyncio.wait([failing])
    del failing
    (said,) = left_unsaid(caplog.records)
    assert said.startswith("Task exception was never retrieved")
    caplog.clear()


HERE = """
import gc
import threading
import warnings

def test_unraisable():
    open("/dev/null")
    gc.collect()

def test_thread():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()

async def test_coroutine():
    async def left(): pass
    left()
    gc.collect()

def test_warning():
    warnings.warn("old", DeprecationWarning)
"""


def test_what_this_process_could_only_print_fails_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_here.py").write_text(HERE, encoding="utf-8")
    settings = str(Path(__file__).parents[1] / "pyproject.toml")
    words = [sys.executable, "-m", "pytest", "-q", "-c", settings, "-p", "no:cacheprovider"]
    own = os.environ | {"PYTHONWARNINGS": ""}
    done = subprocess.run(
        [*words, str(tmp_path)], env=own, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1].startswith("4 failed in"), done.stdout
    left_unsaid([])
