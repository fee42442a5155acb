"""What makes the other tests quick is in place, and changes nothing of what they test."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import new_stores
import pytest

from mcp_state.store import opening

NOW = datetime(2026, 11, 29, 9, 0, 0, 123, tzinfo=UTC)


def test_a_copied_store_is_the_one_that_users_get_to_the_last_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out, copied = tmp_path / "laid out" / "state.db", tmp_path / "copied" / "state.db"
    for path in (laid_out, copied):
        path.parent.mkdir()
    new_stores.lay_out(str(laid_out), NOW)
    new_stores.make(str(copied), NOW)
    with monkeypatch.context() as patched:
        patched.delattr(new_stores, "lay_out")
        new_stores.make(str(copied), NOW)

    assert copied.read_bytes() == laid_out.read_bytes()
    assert copied.stat().st_mode == laid_out.stat().st_mode
    assert os.listdir(copied.parent) == os.listdir(laid_out.parent) == ["state.db"]


def test_a_store_of_these_tests_is_a_copy() -> None:
    assert opening.make is new_stores.make


def test_a_child_compiles_nothing_that_was_compiled_before() -> None:
    code = "import sys; print(sys.dont_write_bytecode)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
