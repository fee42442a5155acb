"""The proof of an installation, with real processes, as a client starts the server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from installing import CONFIGS
from soaking import few_of

from mcp_state.errors import NotAnswered
from mcp_state.install.proof import prove

pytestmark = pytest.mark.usefixtures("dev_mode")

PROGRAM = str(Path(sys.executable).with_name("mcp-state"))
PATIENCE = 60


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def run(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a person with an empty home directory does."""
    return subprocess.run(
        [PROGRAM, *words],
        cwd=home,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("client", few_of(CONFIGS, "codex", "vscode"))
def test_the_server_answers_as_the_client_starts_it(client: str, home: Path) -> None:
    done = run(home, "install", client)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(
        r"^answered: start \d+\.\d s, orient \d+\.\d s, 24 tools; start-up limit 30 s\n"
        rf"to undo it: mcp-state uninstall {client}\n\Z",
        done.stdout,
        re.MULTILINE,
    )


@pytest.mark.parametrize(
    ("client", "known"),
    [("codex", "the store holds none yet"), ("claude-code", "project acme (from --project)")],
)
def test_the_server_gets_what_the_client_gives_it(client: str, known: str, home: Path) -> None:
    done = run(home, "install", client, "--json", MCP_STATE_PROJECT="acme")
    assert known in json.loads(done.stdout)["proof"]["text"]


def test_a_server_that_fails_is_told_and_the_configuration_stays(home: Path) -> None:
    (home / "state.db").write_text("no store")
    done = run(home, "install", "cursor", "--db", str(home / "state.db"))
    assert done.returncode == 1
    assert done.stdout.startswith(f"changed {home}/.cursor/mcp.json: server state\n")
    assert done.stderr.startswith(
        "error: not_answered: the server answers `orient` with error: store_damaged: "
    )
    assert done.stderr.endswith(
        " The configuration stays; correct that and run this again, or undo it.\n"
    )
    assert "mcp-state" in (home / ".cursor/mcp.json").read_text()


async def failure(script: str, limit: float = 30) -> str:
    with pytest.raises(NotAnswered) as raised:
        await prove([sys.executable, "-c", script], {}, "/", limit)
    return str(raised.value)


async def test_what_a_server_says_before_it_ends_is_told() -> None:
    said = await failure("import sys; sys.exit('no such option: --db')")
    assert said == (
        f"not_answered: the server does not answer ({sys.executable}): it ended before it answered "
        "initialize; on stderr it said: no such option: --db."
    )


async def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    began = time.monotonic()
    said = await failure("import time; time.sleep(600)", limit=0.2)
    assert "no answer within 0.2 s" in said
    assert time.monotonic() - began < PATIENCE


async def test_a_server_that_speaks_something_else_is_told() -> None:
    assert "Expecting value" in await failure("print('hello')")
    refusing = 'print(\'{"jsonrpc": "2.0", "id": 1, "error": {"message": "go away"}}\')'
    assert "initialize: go away" in await failure(refusing)


async def test_a_command_that_is_not_there_is_told() -> None:
    with pytest.raises(NotAnswered, match="No such file or directory"):
        await prove(["/nowhere/mcp-state"], {}, "/", 5)


async def test_a_server_gets_the_environment_and_the_directory_of_the_client() -> None:
    said = await failure(
        "import os, sys; sys.exit(f'{sorted(set(os.environ) - {\"LC_CTYPE\"})} {os.getcwd()}')"
    )
    assert "on stderr it said: [] /." in said
