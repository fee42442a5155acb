"""What is measured: this server, the SDK's own with a tool that does nothing, the floor, peers."""

from __future__ import annotations

import compileall
import contextlib
import os
import sqlite3
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

from raw_client import Call

import mcp_state
from bench.client import Connection, Measured, open_as_codex

PROJECT = "acme"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Subject:
    """A server, and where it keeps its state: `{home}` stands for a directory."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def start(self, home: Path, *before: str) -> Connection:
        """Start it as a client does, with a bare environment and compiled bytecode."""
        home.mkdir(parents=True, exist_ok=True)
        bare = {"HOME": str(home), "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
        own = {key: value.replace("{home}", str(home)) for key, value in self.environment.items()}
        command = [*before, *(word.replace("{home}", str(home)) for word in self.command)]
        return Connection(command, bare | own, home)

    def ready(self, home: Path, *before: str) -> Connection:
        """Start it, and come to the point where tools are called."""
        connection = self.start(home, *before)
        try:
            open_as_codex(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def serving_all(self) -> Subject:
        """The same with every tool listed."""
        return replace(self, command=(*self.command, "--toolset", "all"))


OURS = Subject(
    "mcp-state",
    (
        *(str(Path(sys.executable).with_name("mcp-state")), "serve"),
        *("--db", "{home}/state.db", "--project", PROJECT, "--agent", "bench"),
    ),
)
STOCK = Subject("stock no-op", (sys.executable, str(_HERE / "stock_server.py")))
ECHO = Subject("bare echo", (sys.executable, "-S", str(_HERE / "echo_server.py")))

IMPORT = "import os, mcp.server.mcpserver; os.write(1, b'imported')"
"""What a program that uses the SDK's server takes before it can do anything."""


def import_alone(home: Path) -> float:
    """Seconds from exec until the SDK's server is imported."""
    with Subject("import", (sys.executable, "-c", IMPORT)).start(home) as process:
        os.read(process.stdout, 8)
        return perf_counter() - process.started


def compile_all() -> None:
    """Whatever the environment says about bytecode, nothing is compiled while it is measured."""
    for place in (sysconfig.get_path("purelib"), str(Path(mcp_state.__file__).parent)):
        compileall.compile_dir(place, quiet=2)


class RawInsert:
    """The floor of a write: the same bytes into a table by plain `sqlite3`, on disk."""

    def __init__(self, home: Path) -> None:
        self._connection = sqlite3.connect(home / "raw.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE raw (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")

    def measure(self, calls: Iterable[Call]) -> Measured:
        """One insert and commit for each call."""
        texts = ["\n".join(str(value) for value in call.arguments.values()) for call in calls]
        measured = Measured()
        began = perf_counter()
        for text in texts:
            sent = perf_counter()
            self._connection.execute("INSERT INTO raw (text) VALUES (?)", (text,))
            measured.waits.append(perf_counter() - sent)
        measured.ends.append(perf_counter() - began)
        return measured

    def close(self) -> None:
        with contextlib.closing(self._connection):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
