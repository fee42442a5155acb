from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

from mcp import Client
from mcp.client.stdio import StdioServerParameters

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | {"PYTHONWARNINGS": ""},  # pip warns of itself
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(tmp_path: Path) -> tuple[Path, Path]:
    """The wheel, and the Python of a clean environment that it is installed in."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel)
    (site / "beside.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return wheel, python


async def test_the_wheel_holds_what_it_needs_and_serves(tmp_path: Path) -> None:
    wheel, python = installed(tmp_path)

    names = zipfile.ZipFile(wheel).namelist()
    for name in ("readonly", "coding", "all"):
        assert f"mcp_state/toolsets/{name}.toml" in names
    assert "mcp_state/store/migrations/0001_core.sql" in names
    for name in ("html", "js", "css"):
        assert f"mcp_state/web/page/board.{name}" in names
    assert not any(name.startswith(("tests/", "toolsets/")) for name in names)
    where = run(python, "-c", "import mcp_state; print(mcp_state.__file__)", cwd=tmp_path)
    assert where.startswith(str(tmp_path))

    command = str(python.parent / "mcp-state")
    db = str(tmp_path / "store" / "state.db")
    server = StdioServerParameters(
        command=command, args=["serve", "--db", db, "--project", "p"], cwd=tmp_path
    )
    async with Client(server) as client:
        result = await client.call_tool("journal_append", {"text": "from the wheel"})
        assert not result.is_error
    assert [f.name for f in (tmp_path / "store").glob("state.db")] == ["state.db"]
