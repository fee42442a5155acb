"""The peers, installed as they come, in pinned versions, into a folder that stays."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import platformdirs

from bench.subjects import Subject

_NPM = {
    "private": True,
    "dependencies": {
        "@modelcontextprotocol/server-memory": "2026.8.31",
        "mcp-memory-keeper": "0.14.1",
        "better-sqlite3": "12.11.1",
    },
}
_PIP = ("continuity-mcp==0.2.3", "mcp==1.30.0")
"""Its own `mcp>=1.2` lets version 2 in, with which it does not start."""
_PATIENCE = 900.0


class Absent(Exception):
    """A peer that could not be installed."""


def cache() -> Path:
    """Where the peers, and stores that take long to make, are kept."""
    named = os.environ.get("MCP_STATE_BENCH_CACHE")
    return Path(named) if named else platformdirs.user_cache_path("mcp-state") / "bench"


def install_peers(folder: Path, tell: Callable[[str], None]) -> dict[str, Subject | str]:
    """Each peer, or why there is none."""

    def of_npm(script: str) -> Callable[[], tuple[str, ...]]:
        return lambda: (_program("node"), str(_npm(folder, tell) / "node_modules" / script))

    commands = {
        "server-memory": of_npm("@modelcontextprotocol/server-memory/dist/index.js"),
        "memory-keeper": of_npm("mcp-memory-keeper/dist/index.js"),
        "continuity": lambda: (str(_venv(folder, tell) / "bin" / "continuity-mcp"),),
    }
    stores = {
        "server-memory": {"MEMORY_FILE_PATH": "{home}/memory.jsonl"},
        "memory-keeper": {"DATA_DIR": "{home}"},
        "continuity": {"CONTINUITY_DB": "{home}/continuity.db"},
    }
    found: dict[str, Subject | str] = {}
    for name, command in commands.items():
        try:
            found[name] = Subject(name, command(), stores[name])
        except Absent as reason:
            found[name] = str(reason)
    return found


def _npm(folder: Path, tell: Callable[[str], None]) -> Path:
    manifest = json.dumps(_NPM, indent=2)

    def make(place: Path) -> None:
        (place / "package.json").write_text(manifest, encoding="utf-8")
        _run(_program("npm"), "install", "--no-audit", "--no-fund", directory=place)
        _run(_program("node"), "-e", "new (require('better-sqlite3'))(':memory:')", directory=place)

    return _made(folder, f"npm-{_digest(manifest)}", make, tell)


def _venv(folder: Path, tell: Callable[[str], None]) -> Path:
    def make(place: Path) -> None:
        _run(sys.executable, "-m", "venv", str(place), directory=place)
        python = str(place / "bin" / "python")
        _run(python, "-m", "pip", "install", "--quiet", *_PIP, directory=place)

    return _made(folder, f"venv-{_digest(sys.version + str(_PIP))}", make, tell)


def _made(
    folder: Path, name: str, make: Callable[[Path], None], tell: Callable[[str], None]
) -> Path:
    """A folder with that content, made if it is not there whole."""
    place = folder / name
    whole = place / ".whole"
    if not whole.exists():
        tell(f"installing {name} (some minutes, once)")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        make(place)
        whole.touch()
    return place


def _run(*command: str, directory: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Absent(str(problem)) from problem
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Absent(f"{Path(command[0]).name}: {' '.join(last)[:120]}")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Absent(f"there is no {name}")
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]
