"""The life of `mcp-state serve` itself: a broken store, a call that waits, and every way to end."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from raw_client import Call
from soaking import few_of

pytestmark = pytest.mark.usefixtures("dev_mode")

PROGRAM = str(Path(sys.executable).with_name("mcp-state"))
SOON = 30.0
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "life", "version": "1"},
}


class Served:
    """A child with pipes of its own; every line that it writes must be JSON-RPC."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--project", "acme", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
        )
        self.last_id = 0
        self.ask("initialize", INITIALIZE)
        self.tell("notifications/initialized")

    def tell(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> None:
        assert self.process.stdin is not None
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}, **more}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def send(self, call: Call) -> None:
        self.last_id += 1
        params = {"name": call.tool, "arguments": call.arguments}
        self.tell("tools/call", params, id=self.last_id)

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.last_id += 1
        self.tell(method, params, id=self.last_id)
        return self.answer()["result"]

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message = json.loads(self.process.stdout.readline())
        assert message["jsonrpc"] == "2.0"
        return message

    def call(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        return result["content"][0]["text"], result["isError"]

    def end(self, how: str) -> tuple[int, float, bytes, bytes]:
        """End it; returns its exit code, the seconds it took, and the rest of its output."""
        assert self.process.stdin is not None
        began = time.monotonic()
        if how == "EOF":
            self.process.stdin.close()
            self.process.stdin = None
        else:
            self.process.send_signal(signal.Signals[how])
        rest, errors = self.process.communicate(timeout=SOON)
        return self.process.returncode, time.monotonic() - began, rest, errors


@contextmanager
def served(*words: str) -> Generator[Served]:
    server = Served(*words)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


ways = pytest.mark.parametrize("how", few_of(["EOF", "SIGTERM", "SIGINT"], "SIGTERM"))


@ways
def test_it_ends_at_once_and_closes_the_store(tmp_path: Path, how: str) -> None:
    path = tmp_path / "state.db"
    with served("--db", str(path)) as server:
        assert server.call("journal_append", text="kept")[1] is False
        assert server.call("journal_tail")[1] is False

        code, seconds, rest, errors = server.end(how)

    assert (code, rest, errors) == (0, b"", b"")
    assert seconds < 2
    assert sorted(f.name for f in tmp_path.iterdir()) == ["state.db", "state.db-queue"]


@ways
def test_a_call_that_waits_for_another_process_delays_no_end(tmp_path: Path, how: str) -> None:
    path = tmp_path / "state.db"
    with served("--db", str(path)) as server:
        server.call("journal_append", text="kept")
        with open(f"{path}-queue", "rb") as queue:
            fcntl.flock(queue, fcntl.LOCK_EX)
            server.send(Call("journal_append", {"text": "waits for its turn"}))
            assert server.ask("ping", {}) == {}

            code, seconds, _, _ = server.end(how)

    assert code == 0
    assert seconds < 2


def test_a_broken_store_is_served_and_every_tool_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_text("this was never a store", encoding="utf-8")
    with served("--db", str(path), "--toolset", "all") as server:
        tools = [tool["name"] for tool in server.ask("tools/list", {})["tools"]]
        needed = {
            "search": {"query": "x"},
            "memory_set": {"key": "k", "value": "v"},
            "memory_append": {"key": "k", "text": "v"},
            "memory_delete": {"key": "k"},
            "memory_restore": {"key": "k", "version": 1},
            "thread_get": {"thread": "t"},
            "thread_set": {"thread": "t"},
            "thread_release": {"thread": "t"},
            "thread_check": {"thread": "t", "criterion": "1", "passes": True},
            "journal_append": {"text": "x"},
            "run_begin": {"run_id": "r", "goal": "g"},
            "run_checkpoint": {"run_id": "r", "state": "s"},
            "run_finish": {"run_id": "r", "status": "completed"},
            "step_begin": {"run_id": "r", "step": "s"},
            "step_end": {"run_id": "r", "step": "s", "ok": True},
            "objective_set": {"objective": "o"},
            "fact_record": {"fact": "f", "statement": "s"},
            "fact_verify": {"fact": "f", "holds": True, "evidence": "e"},
            "fact_trace": {"fact": "f"},
            "handoff_create": {"note": "n"},
            "handoff_accept": {"key": "h"},
            "blob_put": {"text": "x"},
            "blob_get": {"key": "b"},
            "state_op": {"op": "history"},
        }
        for tool in tools:
            text, refused = server.call(tool, **needed.get(tool, {}))
            assert refused, tool
            assert text.startswith(
                f"error: store_damaged: {path}: this is not a SQLite database. Nothing was changed."
            ), tool
        assert path.read_text(encoding="utf-8") == "this was never a store"

        path.unlink()
        assert server.call("journal_append", text="works again")[1] is False
        assert server.end("EOF")[0] == 0


def test_a_wrong_toolset_or_store_does_not_start(tmp_path: Path) -> None:
    for words, says in (
        (["--toolset", "codign"], "error: bad_argument: there is no toolset 'codign'."),
        (["--tools", "memory_sett"], "unknown tool 'memory_sett'"),
        (["--db", "state.db"], "error: bad_argument: --db is 'state.db', a relative path"),
    ):
        done = subprocess.run(
            [PROGRAM, "serve", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr


def test_a_line_of_2_mb_and_a_lone_surrogate_are_answered(tmp_path: Path) -> None:
    with served("--db", str(tmp_path / "state.db")) as server:
        text, refused = server.call("memory_set", key="big", value="x" * 2_000_000)
        assert refused
        assert text.startswith("error: over_limit: block 'big' would be 2,000,000 characters;")
        assert server.process.stdin is not None
        server.last_id += 1
        server.process.stdin.write(
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"memory_set",'
            b'"arguments":{"key":"k","value":"a\\ud800b\\u0000c"}}}\n' % server.last_id
        )
        server.process.stdin.flush()
        saved = server.answer()["result"]["content"][0]["text"]
        assert "note: 2 characters that cannot be stored became U+FFFD" in saved
        assert server.call("memory_get", key="k")[0].startswith("a\ufffdb\ufffdc\n")
        assert server.end("EOF")[0] == 0


def test_an_idle_server_uses_no_processor_and_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with served("--db", str(path)) as server:
        server.call("journal_append", text="x")
        with open(f"{path}-queue", "rb") as queue:
            fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for seconds in (0.5, 1.5):  # in the first it does what is left of the call
                before = ticks(server.process.pid)
                with pytest.raises(subprocess.TimeoutExpired):
                    server.process.wait(timeout=seconds)
        assert ticks(server.process.pid) == before


def ticks(pid: int) -> int:
    """Processor time of a process so far, in clock ticks."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
