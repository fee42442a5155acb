"""The bench measures what it says: `make bench` can't rot unseen."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bench import __main__ as program
from bench import row_calls, row_scale
from bench.client import Connection, ServerFailed, at_once, one_at_a_time
from bench.ground import Ground, interleaved
from bench.processes import hindering_locks, processor_time, rss, wake_ups
from bench.subjects import Subject
from bench.table import Line, at_least, at_most, render
from click.testing import CliRunner
from large_store import Size
from raw_client import Call
from soaking import SOAK

NOOP = Call("noop", {})
ABSENT: dict[str, Subject | str] = {"server-memory": "there is no npm"}


def test_a_row_gives_a_figure_for_each_goal_and_says_which_peer_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_calls, "BATCH", 3)
    lines, whole = program.measure(Ground(tmp_path, tmp_path, ABSENT, 0.01), ["write"])

    assert whole
    goals = [(line.what, line.beside, str(line.goal)) for _, line in lines if line.goal]
    assert goals == [
        ("journal_append", "no-op + raw insert", "<= 1"),
        ("thread_set", "no-op + raw insert", "<= 1"),
        ("memory_append", "no-op + raw insert", "<= 1"),
    ]
    for _, line in lines[:3]:
        assert line.ours and line.theirs and line.ratio == line.ours / line.theirs
        assert line.met is (line.ours <= line.theirs)
        assert line.theirs > 0.05 and line.ours < 1000
    (peer,) = [line for _, line in lines[3:]]
    assert (peer.theirs, peer.met) == (None, None)
    assert peer.note == "server-memory is absent: there is no npm"


@pytest.mark.skipif(not SOAK, reason="starts a hundred servers; the slice measures one row")
def test_soak_every_row_can_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_peers(_folder: Path, _tell: object) -> dict[str, Subject | str]:
        return ABSENT

    monkeypatch.setenv("MCP_STATE_BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(program, "install_peers", no_peers)
    monkeypatch.setattr(program, "QUICK", 0.01)
    monkeypatch.setattr(row_scale, "LARGE", Size(2_000, 2_000, 1_000, 2_000))
    file = tmp_path / "figures.json"

    done = CliRunner().invoke(program.main, ["--quick", "--json", str(file)])

    assert done.exit_code == 0, done.output
    lines: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["lines"]
    assert list(dict.fromkeys(line["row"] for line in lines)) == list(program.ROWS)
    without = [line["what"] for line in lines if line["ours"] is None]
    assert without == [
        f"{what} of 100,000" for what in ("write", "the newest 10", "one by its key")
    ]


def test_a_row_that_is_not_there_is_refused_naming_those_that_are() -> None:
    done = CliRunner().invoke(program.main, ["--rows", "cold,warm"])
    assert done.exit_code == 2
    assert "there is no row 'warm'; there are cold, busy, orient" in done.output


def test_what_could_not_be_measured_is_a_line_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_ground: Ground) -> Sequence[Line]:
        raise ServerFailed("the server ended")

    def nothing() -> None:
        pass

    monkeypatch.setenv("MCP_STATE_BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(program, "compile_all", nothing)
    monkeypatch.setitem(program.ROWS, "read", failing)
    done = CliRunner().invoke(program.main, ["--rows", "read"])
    assert done.exit_code == 1
    assert "could not be measured" in done.output and "the server ended" in done.output


def test_the_table_says_of_each_goal_whether_it_is_met() -> None:
    lines = [
        Line("reads", "ms", 0.5, "no-op", 1.0, at_most(0.65)),
        Line("reads", "ms", 0.7, "no-op", 1.0, at_most(0.65)),
        Line("rate", "/s", 1200.0, "alone", 1000.0, at_least(1.2)),
        Line("rate", "/s", 1100.0, "alone", 1000.0, at_least(1.2)),
        Line("idle", "times", 0, goal=at_most(0)),
        Line("idle", "times", 1, goal=at_most(0)),
        Line("rate", "/s", 1200.0, "peer", None, at_least(1.2), "peer is absent"),
        Line("floor", "ms", 0.123, "echo", 0.1),
    ]
    _, _, *rows = render([("row", line) for line in lines]).splitlines()
    assert [" ".join(row.split()) for row in rows] == [
        "row reads 0.5 ms no-op 1 ms 0.5 x <= 0.65 x yes",
        "row reads 0.7 ms no-op 1 ms 0.7 x <= 0.65 x NO",
        "row rate 1,200 /s alone 1,000 /s 1.2 x >= 1.2 x yes",
        "row rate 1,100 /s alone 1,000 /s 1.1 x >= 1.2 x NO",
        "row idle 0 times <= 0 yes",
        "row idle 1 times <= 0 NO",
        "row rate 1,200 /s peer >= 1.2 x unknown peer is absent",
        "row floor 0.123 ms echo 0.1 ms 1.23 x",
    ]


def test_every_task_is_measured_in_every_round_and_each_is_first_at_times() -> None:
    order: list[str] = []

    def task(name: str) -> list[float]:
        order.append(name)
        return [float(len(order))]

    tasks = {name: lambda name=name: task(name) for name in "abc"}
    found = interleaved(3, tasks)
    assert "".join(order) == "abcbcacab"
    assert found == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}


CHILD = """
import fcntl, json, os, sys, termios, time
held, rest, answered = [], b"", 0.0
while data := os.read(0, 1 << 16):
    *lines, rest = (rest + data).split(b"\\n")
    now = time.perf_counter()
    held += [(json.loads(line), now - answered if answered else 1.0) for line in lines]
    if len(held) < int(sys.argv[1]):
        continue
    more = int.from_bytes(fcntl.ioctl(0, termios.FIONREAD, bytes(4)), sys.byteorder)
    answers = [{"method": "notifications/progress"}]
    for call, pause in reversed(held):
        text = f"{call['id']} {pause} {len(held)} {more}"
        result = {"content": [{"text": text}], "isError": call["params"]["name"] == "bad"}
        answers.append({"id": call["id"], "result": result})
    held.clear()
    answered = time.perf_counter()
    os.write(1, b"".join(json.dumps(answer).encode() + b"\\n" for answer in answers))
"""
"""Waits for so many calls and answers them at once, the last one first, each with its number, the
pause before it, how many there were, and how many bytes of further ones."""


def child(home: Path, held: int) -> Connection:
    return Subject("child", (sys.executable, "-S", "-c", CHILD, str(held))).start(home)


def texts(lines: Sequence[bytes]) -> list[list[str]]:
    return [json.loads(line)["result"]["content"][0]["text"].split() for line in lines]


def test_as_many_calls_are_in_flight_as_were_asked_for_and_each_answer_is_counted_once(
    tmp_path: Path,
) -> None:
    with child(tmp_path, 16) as server:
        measured = at_once([server], [[NOOP] * 64], window=16)
    answers = texts(measured.lines)
    assert [int(number) for number, *_ in answers] == [
        number for last in (16, 32, 48, 64) for number in range(last, last - 16, -1)
    ]
    assert {(held, more) for _, _, held, more in answers} == {("16", "0")}
    assert len(measured.waits) == 64
    assert measured.waits[:16] == sorted(measured.waits[:16]), "the last one waited least"
    assert measured.ends[0] >= max(measured.waits) >= min(measured.waits) > 0
    assert measured.rate == 64 / measured.ends[0]


def test_between_an_answer_and_the_next_call_of_each_process_is_the_pause(tmp_path: Path) -> None:
    with child(tmp_path, 1) as one, child(tmp_path, 1) as other:
        measured = at_once([one, other], [[NOOP] * 5, [NOOP] * 3], think=0.01)
    assert min(float(pause) for _, pause, *_ in texts(measured.lines)) >= 0.01
    assert measured.ends[0] >= 0.04 and measured.ends[1] >= 0.02
    assert len(measured.ends) == 2


def test_a_refusal_is_no_figure(tmp_path: Path) -> None:
    with child(tmp_path, 1) as server:
        measured = at_once([server], [[NOOP, Call("bad", {}), NOOP]])
        assert len(measured.problems()) == 1
        with pytest.raises(ServerFailed, match="1 calls were refused"):
            measured.assured()
        with pytest.raises(ServerFailed, match="1 calls were refused"):
            one_at_a_time(server, [Call("bad", {}), NOOP])


def test_a_server_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    with child(tmp_path, 2) as server:
        server.process.kill()
        with pytest.raises(ServerFailed, match="the server ended"):
            one_at_a_time(server, [NOOP])
        with pytest.raises(ServerFailed, match="the server ended"):
            at_once([server], [[NOOP]])


def test_a_lock_that_hinders_others_is_seen_and_an_open_store_is_none(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x)")
        assert hindering_locks(tmp_path) == []
        connection.execute("BEGIN IMMEDIATE")
        assert "a.db-shm WRITE 120" in hindering_locks(tmp_path)
        connection.execute("ROLLBACK")
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM t").fetchall()
        (reading,) = hindering_locks(tmp_path)
        assert reading.startswith("a.db-shm READ 12")


def until_asleep(pid: int) -> None:
    """Until it waits for something, as its state in `/proc` tells."""
    while Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "S":
        pass


def test_what_a_process_did_is_seen(tmp_path: Path) -> None:
    with child(tmp_path, 1) as server:
        one_at_a_time(server, [NOOP])
        until_asleep(server.pid)
        before = processor_time(server.pid), wake_ups(server.pid)
        one_at_a_time(server, [NOOP] * 100)  # of which each may come before it is asleep again
        until_asleep(server.pid)
        after = processor_time(server.pid), wake_ups(server.pid)
        assert 2 < rss(server.pid) < 200
    assert after[0] > before[0]
    assert after[1] > before[1]
