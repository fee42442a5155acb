"""Runs a command again and again, each time on a fresh copy of a store, killed at another moment.

A moment is just before a SQL statement, or before a file is opened, moved, removed or given a mode
in the folder of the store. `python killed_at_moments.py STORE FOLDER EVERY WORD...` runs the words
of `mcp-state` once to the end in FOLDER/0, then kills it at every EVERYth moment, and at those that
are not one of many alike, each in FOLDER/NUMBER; it prints what came at each, as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp_state.cli import main

ALIKE = ("CREATE ", "ALTER ", "DROP ", "SELECT ", "PRAGMA ", "-- ", "open")
FILES = ("open", "os.rename", "os.remove", "os.chmod", "sqlite3.connect")


def watch(folder: str, moment: Callable[[str], None]) -> None:
    """Call `moment` before each statement and change of a file; it can't be taken back."""

    def hear(event: str, given: tuple[Any, ...]) -> None:
        if event in FILES and folder in str(given[0]):
            moment(event)

    def connect(*given: Any, **options: Any) -> sqlite3.Connection:
        connection = opened(*given, **options)
        connection.set_trace_callback(lambda sql: moment(" ".join(sql.split())))
        return connection

    opened, sqlite3.connect = sqlite3.connect, connect
    sys.addaudithook(hear)


def run(store: Path, folder: Path, words: list[str], kill_at: int) -> tuple[int, list[str]]:
    """Run the command in a process of its own; returns how it ended, and the moments it met."""
    folder.mkdir(mode=0o700)
    path = shutil.copy(store, folder / "state.db")
    told, telling = os.pipe()
    child = os.fork()
    if not child:
        met = 0

        def moment(what: str) -> None:
            nonlocal met
            met += 1
            if kill_at:
                if met == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
            else:
                os.write(telling, f"{what[:60]}\n".encode())

        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        watch(str(folder), moment)
        sys.exit(main([*words, "--db", path], prog_name="mcp-state"))
    os.close(telling)
    with open(told, encoding="utf-8") as file:
        moments = file.read().splitlines()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), moments


def tell(store: Path, folder: Path, every: int, words: list[str]) -> None:
    for module in ("mcp_state.cli.journal", "mcp_state.api", "mcp_state.store.sqlite"):
        importlib.import_module(module)
    ended, moments = run(store, folder / "0", words, 0)
    assert ended == 0
    killed: dict[int, str] = {}
    for number, what in enumerate(moments, 1):
        if number % every == 0 or not what.startswith(ALIKE):
            ended, _ = run(store, folder / f"{number}", words, number)
            assert ended == -signal.SIGKILL, (number, what, ended)
            killed[number] = what
    sys.stdout.write(json.dumps(killed))


if __name__ == "__main__":
    given = sys.argv[1:]
    tell(Path(given[0]), Path(given[1]), int(given[2]), given[3:])
