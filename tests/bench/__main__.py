"""Measure, and print one table: `make bench`, `make bench ROWS=cold,read`."""

from __future__ import annotations

import json
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click

from bench.client import ServerFailed
from bench.ground import Ground, Row
from bench.peers import cache, install_peers
from bench.row_calls import flight, read, write
from bench.row_crowd import keeper, storm, thought
from bench.row_scale import full, large
from bench.row_start import busy, cold, orient
from bench.row_weight import idle, memory, weight_in_tokens
from bench.subjects import compile_all
from bench.table import Line, as_json, render

ROWS: Mapping[str, Row] = {
    "cold": cold,
    "busy": busy,
    "orient": orient,
    "read": read,
    "write": write,
    "flight": flight,
    "storm": storm,
    "thought": thought,
    "keeper": keeper,
    "large": large,
    "full": full,
    "memory": memory,
    "idle": idle,
    "tokens": weight_in_tokens,
}
NEED_NO_PEER = {"busy", "orient", "read", "flight", "storm", "thought", "large", "memory", "idle"}
QUICK = 0.25


def measure(ground: Ground, rows: Sequence[str]) -> tuple[list[tuple[str, Line]], bool]:
    """The lines of these rows, and whether all of them could be measured."""
    lines: list[tuple[str, Line]] = []
    whole = True
    for name in rows:
        tell(f"measuring {name}")
        try:
            lines.extend((name, line) for line in ROWS[name](ground))
        except ServerFailed as problem:
            whole = False
            lines.append((name, Line("could not be measured", "", note=str(problem))))
    return lines, whole


def tell(news: str) -> None:
    sys.stderr.write(f"{news}\n")


def machine() -> dict[str, object]:
    """Where and on what this was measured."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "mcp": version("mcp"),
        "load": round(os.getloadavg()[0], 2),
    }


def _chosen(_context: click.Context, _option: click.Parameter, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if name not in ROWS:
            raise click.BadParameter(f"there is no row {name!r}; there are {', '.join(ROWS)}")
    return names or list(ROWS)


@click.command()
@click.option("--rows", default="", callback=_chosen, help=f"Which: {', '.join(ROWS)}.")
@click.option("--quick", is_flag=True, help="A quarter of the repetitions.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the figures there.")
def main(rows: list[str], quick: bool, file: Path | None) -> None:
    """Measure how fast mcp-state is, and print it beside its goals.

    Missing a goal is no failure: the exit code is 0 unless something could not be measured.
    """
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    compile_all()
    peers = {} if NEED_NO_PEER.issuperset(rows) else install_peers(folder, tell)
    before = machine()
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        ground = Ground(Path(directory), folder, peers, QUICK if quick else 1.0)
        lines, whole = measure(ground, rows)
    conditions = before | {"load at the end": round(os.getloadavg()[0], 2), "quick": quick}
    click.echo(" · ".join(f"{key} {value}" for key, value in conditions.items()))
    click.echo(render(lines))
    if file is not None:
        text = json.dumps({"conditions": conditions, "lines": as_json(lines)}, indent=2)
        file.write_text(text + "\n", encoding="utf-8")
    sys.exit(0 if whole else 1)


def _end(*_: object) -> None:
    sys.exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)  # so that copies of large stores do not stay behind
    main()
