"""The command line as a process: pipes, signals, terminals, and what it costs to start."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len
from terminals import on_pipe, on_terminal, unstyled

from mcp_state import open_store

pytestmark = pytest.mark.usefixtures("dev_mode")

PROGRAM = str(Path(sys.executable).with_name("mcp-state"))
PATIENCE = 30.0

Word = str | bytes
Environment = dict[str, str]


@pytest.fixture
def environment(path: str) -> Environment:
    names = ("MCP_STATE_", "CLAUDE", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(names)}
    return kept | {"MCP_STATE_DB": path, "MCP_STATE_PROJECT": "acme", "TERM": "xterm-256color"}


Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def run(environment: Environment) -> Run:
    def invoke(*words: Word, **changes: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [PROGRAM, *words],
            env=environment | changes,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )

    return invoke


class Running:
    """A child whose output is read line by line, never waiting for ever."""

    def __init__(self, words: Sequence[str], environment: Environment) -> None:
        self.process = subprocess.Popen(
            [PROGRAM, *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self._read = self.process.stdout.fileno()
        self._buffer = b""

    def line(self) -> str:
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], deadline - time.monotonic())
            assert ready, "nothing came"
            data = os.read(self._read, 65536)
            assert data, "it ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def leave(self) -> None:
        """Close the reading end of its output."""
        assert self.process.stdout is not None
        self.process.stdout.close()

    def end(self) -> tuple[int, bytes]:
        """Its exit code and what it said on stderr, once it has ended by itself."""
        assert self.process.stderr is not None
        code = self.process.wait(PATIENCE)
        return code, self.process.stderr.read()


@pytest.fixture
def start(environment: Environment) -> Generator[Callable[..., Running]]:
    children: list[Running] = []

    def begin(*words: str) -> Running:
        children.append(Running(words, environment))
        return children[-1]

    yield begin
    for child in children:
        child.process.kill()
        child.process.wait()
        for stream in (child.process.stdout, child.process.stderr):
            assert stream is not None
            stream.close()


Start = Callable[..., Running]


def test_exit_codes_tell_fine_from_refused_from_wrong(run: Run) -> None:
    assert run("threads").returncode == 0
    assert run("thread", "none").returncode == 1
    assert run("threads", "--none").returncode == 2
    assert run("none").returncode == 2


@pytest.mark.sqlite
@pytest.mark.parametrize(("words", "code"), [("--version", 0), ("nonsense", 2)])
@pytest.mark.parametrize("is_left", [False, True], ids=["alone", "with a thread"])
def test_no_thread_that_is_left_can_wake_while_python_ends(
    environment: Environment, words: str, code: int, is_left: bool
) -> None:
    program = f"""
import atexit, sys, threading
atexit.register(lambda: sys.stderr.write("Python ends"))
if {is_left}:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
sys.argv[1:] = [{words!r}]
from mcp_state.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == code
    assert (done.stdout if code == 0 else done.stderr).startswith(("mcp-state", "error: "))
    assert ("Python ends" not in done.stderr) == is_left


def test_an_error_is_one_line_of_stderr(run: Run) -> None:
    done = run("thread", "none")

    assert done.stdout == b""
    assert done.stderr.startswith(b"error: not_found: no thread 'none'")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.sqlite
def test_a_damaged_store_is_told_without_what_the_library_logs(run: Run, path: str) -> None:
    run("journal", "append", "hello")
    data = bytearray(Path(path).read_bytes())
    data[4096:12288] = b"\xff" * 8192
    Path(path).write_bytes(data)
    for end in ("-wal", "-shm"):
        Path(path + end).unlink(missing_ok=True)

    done = run("journal")

    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"error: store_damaged: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("words", [["orient"], ["threads"], ["journal", "append", "x"]])
def test_a_command_imports_nothing_slow(environment: Environment, words: list[str]) -> None:
    program = (
        "import atexit, sys\n"
        "from mcp_state.cli import main\n"
        "slow = {'mcp', 'mcp_types', 'pydantic', 'rich', 'anyio'}\n"
        "atexit.register(lambda: print('slow:', *sorted(slow & set(sys.modules))))\n"
        f"main({words!r})\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )

    assert done.stdout.decode().splitlines()[-1] == "slow:"


@pytest.mark.parametrize("words", [["journal", "-n", "1000"], ["history", "--limit", "1000"]])
async def test_output_can_be_cut_by_head(path: str, start: Start, words: list[str]) -> None:
    async with open_store(path, project="acme") as state:
        for _ in range(20):
            await state.journal.append("line\n" * 1600 + "end")

    child = start(*words)
    child.line()
    child.leave()

    assert child.end() == (0, b"")


def test_following_prints_what_other_processes_write_as_it_comes(run: Run, start: Start) -> None:
    run("journal", "append", "before")
    child = start("journal", "tail", "-f")
    assert [child.line(), child.line()] == ["1 person just now", "    before"]

    for text in ("one", "two"):
        run("journal", "append", text, "--agent", "codex")
        assert child.line().endswith(" codex just now")
        assert child.line() == f"    {text}"

    child.process.send_signal(signal.SIGINT)
    assert child.end() == (0, b"")


def test_following_may_begin_before_there_is_a_store(run: Run, start: Start) -> None:
    child = start("journal", "-f", "--json", "--kind", "decision")

    run("journal", "append", "left out", "--kind", "note")
    run("journal", "append", "wanted", "--kind", "decision")

    entry = json.loads(child.line())
    assert (entry["seq"], entry["kind"], entry["text"]) == (2, "decision", "wanted")


def test_following_ends_on_sigterm(run: Run, start: Start) -> None:
    run("journal", "append", "before")
    child = start("journal", "-f")
    child.line()

    child.process.terminate()

    assert child.end() == (0, b"")


def test_following_ends_when_its_reader_leaves_though_nothing_is_written(
    run: Run, start: Start
) -> None:
    run("journal", "append", "before")
    child = start("journal", "-f")
    child.line()

    child.leave()

    assert child.end() == (0, b"")


def test_following_reads_forward_from_an_entry_through_many(run: Run, start: Start) -> None:
    for number in range(4):
        run("journal", "append", f"entry {number}")

    child = start("journal", "-f", "--since", "2")

    assert [child.line() for _ in range(4)][1::2] == ["    entry 2", "    entry 3"]


@pytest.mark.sqlite
def test_following_goes_on_in_a_backup_that_was_put_in_place(
    run: Run, start: Start, tmp_path: Path
) -> None:
    run("journal", "append", "one")
    run("backup", str(tmp_path / "backup"))
    for text in ("two", "three"):
        run("journal", "append", text)
    child = start("journal", "-f", "--json")
    assert [json.loads(child.line())["text"] for _ in range(3)] == ["one", "two", "three"]

    run("restore", str(tmp_path / "backup"))
    run("journal", "append", "four")
    entry = json.loads(child.line())

    assert (entry["seq"], entry["text"]) == (2, "four")
    child.process.send_signal(signal.SIGINT)
    assert child.end()[0] == 0


def test_bytes_that_are_no_text_crash_nothing(run: Run) -> None:
    bad = b"a\xffb"

    assert run("journal", "append", bad).stderr == (
        b"note: 1 character that cannot be stored became U+FFFD\n"
    )
    assert "    a\ufffdb\n" in run("journal").stdout.decode()
    for words in (["orient"], ["journal"], ["search", bad]):
        done = run(*words, "--project", bad, "--agent", bad)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
        assert "a\ufffdb" in done.stdout.decode()
    missing = run("memory", bad, "--project", bad, "--agent", bad)
    assert missing.returncode == 1
    assert (
        missing.stderr.decode()
        .splitlines()[-1]
        .startswith('error: not_found: no such block "a\ufffdb".')
    )
    assert run("memory", "set", bad, bad, "--project", bad, "--agent", bad).returncode == 0
    assert run("threads", "--project", bad, "--status", bad).returncode == 2
    assert run(bad).returncode == 2
    assert run("threads", b"--" + bad).returncode == 2


def test_a_store_and_a_directory_may_have_names_that_are_no_text(
    environment: Environment, tmp_path: Path
) -> None:
    folder = os.fsencode(tmp_path) + b"/d\xff"
    os.makedirs(folder + b"/.git/objects")
    os.makedirs(folder + b"/.git/refs")
    Path(os.fsdecode(folder + b"/.git/HEAD")).write_text("ref: refs/heads/main\n", encoding="utf-8")
    environment.pop("MCP_STATE_PROJECT")

    for words in (["journal", "append", "x"], ["backup", b"copy\xff"], ["orient"]):
        done = subprocess.run(
            [PROGRAM, *words, "--db", folder + b"/state.db"],
            env=environment,
            cwd=folder,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")

    assert os.path.exists(folder + b"/copy\xff")
    assert "project d_-" in done.stdout.decode()
    assert re.search(r"last here (just now|\d+ s ago)", done.stdout.decode())


# On a terminal


@contextmanager
def terminal(columns: int) -> Generator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    try:
        yield ours, theirs
    finally:
        os.close(ours)


@pytest.fixture
def shown(environment: Environment) -> Callable[..., str]:
    """What a command prints on a terminal of a given width."""

    def invoke(*words: str, columns: int = 80, stream: str = "stdout", **changes: str) -> str:
        with terminal(columns) as (ours, theirs):
            child = subprocess.Popen(
                [PROGRAM, *words],
                env=environment | changes,
                stdin=subprocess.DEVNULL,
                stdout=theirs if stream == "stdout" else subprocess.DEVNULL,
                stderr=theirs if stream == "stderr" else subprocess.DEVNULL,
            )
            os.close(theirs)
            printed = b""
            deadline = time.monotonic() + PATIENCE
            while True:
                ready, _, _ = select.select([ours], [], [], deadline - time.monotonic())
                assert ready, "nothing came"
                try:
                    data = os.read(ours, 65536)
                except OSError:
                    break
                if not data:
                    break
                printed += data
            assert child.wait(PATIENCE) == 0
        return printed.decode()

    return invoke


Shown = Callable[..., str]


def plain(text: str) -> list[str]:
    return unstyled(text).replace("\r\n", "\n").splitlines()


@pytest.fixture
def filled(path: str) -> None:
    async def fill() -> None:
        async with open_store(path, project="acme", agent="person") as state:
            await state.threads.set("fix-import", title="Repair the import " * 8, next_action="run")
            await state.threads.set("up" * 30, status="blocked", waiting_on="数据库" * 20)
            await state.journal.append("word " * 60)
            await state.memory.set("plan", "x" * 300)

    asyncio.run(fill())


COMMANDS = (
    ["orient"],
    ["threads"],
    ["thread", "fix-import"],
    ["journal"],
    ["memory"],
    ["memory", "plan"],
    ["search", "word"],
    ["history"],
    ["projects"],
    ["doctor"],
)


@pytest.fixture
def all_shown(environment: Environment, shown: Shown, tmp_path: Path) -> Callable[..., list[str]]:
    """What each of COMMANDS prints on a terminal, where doctor shows its progress elsewhere."""

    def invoke(columns: int = 80, **changes: str) -> list[str]:
        store = {name: environment[name] for name in ("MCP_STATE_DB", "MCP_STATE_PROJECT")}
        *quiet, doctor = COMMANDS
        printed = on_terminal(columns, quiet, tmp_path / "words", **store, **changes)
        texts = [text for _, text in printed] + [shown(*doctor, columns=columns, **changes)]
        assert len(texts) == len(COMMANDS) and all(texts)
        return texts

    return invoke


AllShown = Callable[..., list[str]]


@pytest.mark.usefixtures("filled")
def test_no_line_is_wider_than_the_terminal(all_shown: AllShown) -> None:
    for words, text in zip(COMMANDS, all_shown(columns=50), strict=True):
        assert max(cell_len(line) for line in plain(text)) <= 50, words


@pytest.mark.usefixtures("filled")
def test_a_terminal_gets_tables_in_the_colour_of_the_status(shown: Shown) -> None:
    text = shown("threads", columns=100)

    assert plain(text)[1].split() == ["thread", "status", "what"]
    assert "\x1b[32mactive" in text
    assert "\x1b[33mblocked" in text


@pytest.mark.usefixtures("filled")
def test_no_color_is_honoured(all_shown: AllShown) -> None:
    for words, text in zip(COMMANDS, all_shown(NO_COLOR="1"), strict=True):
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]", text), words


@pytest.mark.usefixtures("filled")
def test_a_pipe_gets_neither_colour_nor_tables(environment: Environment, tmp_path: Path) -> None:
    store = {name: environment[name] for name in ("MCP_STATE_DB", "MCP_STATE_PROJECT")}
    printed = on_pipe(COMMANDS, tmp_path / "words", **store, FORCE_COLOR="1")
    for words, (_, text) in zip(COMMANDS, printed, strict=True):
        assert text, words
        assert "\x1b" not in text, words


def test_stored_text_cannot_command_a_terminal(run: Run, all_shown: AllShown) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07 \r\x9b2J"
    run("memory", "set", "plan", f"a{evil}b\r\nc")
    run("thread", "set", "fix-import", "--title", f"t{evil}")
    run("journal", "append", f"j{evil}")

    for words, text in zip(COMMANDS, all_shown(), strict=True):
        printed = unstyled(text).replace("\r\n", "\n")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", printed), words


def test_followed_text_cannot_command_a_terminal_either(run: Run, environment: Environment) -> None:
    run("journal", "append", "evil \x1b[2J end")
    with terminal(80) as (ours, theirs):
        words = [PROGRAM, "journal", "-f"]
        child = subprocess.Popen(words, env=environment, stdout=theirs, stderr=theirs)
        os.close(theirs)
        printed = b""
        while b"end" not in printed:
            assert select.select([ours], [], [], PATIENCE)[0], "nothing came"
            printed += os.read(ours, 65536)
        child.terminate()
        assert child.wait(PATIENCE) == 0

    assert printed.decode().endswith("    evil \ufffd[2J end\r\n")


def test_an_error_is_one_harmless_line_whatever_it_quotes(run: Run) -> None:
    run("memory", "set", "plan", "one")
    run("memory", "lock", "plan", "--reason", "line one\nerror: two \x1b[2J")

    assert run("memory", "set", "plan", "two").stderr.decode() == (
        "error: locked: block 'plan' was locked by a person: line one error: two \ufffd[2J. "
        "Leave it, or ask for `mcp-state memory unlock plan`.\n"
    )


@pytest.mark.sqlite
def test_what_people_wait_for_shows_progress_on_a_terminal(
    run: Run, shown: Shown, tmp_path: Path
) -> None:
    run("journal", "append", "hello")
    copy = str(tmp_path / "copy.db")

    assert "copying" in shown("backup", copy, stream="stderr")
    assert "restoring" in shown("restore", copy, stream="stderr")
    assert "examining" in shown("doctor", stream="stderr")
    assert run("doctor").stderr == b""
