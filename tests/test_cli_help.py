"""What the command line says about itself: help, examples, completion, and what may be meant.

A tenth of the examples runs always; `MCP_STATE_SOAK=1` (`make soak`) runs all of them.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tour
from click.testing import CliRunner
from conftest import Run
from soaking import SOAK
from test_cli import commands

from mcp_state import cli
from mcp_state.cli import main, manual
from mcp_state.cli.meant import MEANT
from mcp_state.install.clients import CLIENTS

ALL = dict(commands())
NOT_HERE = {"web", "install", "uninstall", "hook", "purge"}
"""Commands that other tables may name before they are registered."""
STANDING_FOR = {
    "h-7d2kq9xw4m3p": tour.HANDOFF,
    "b-51a958f0": tour.BLOB[:10],
    "t-4f7k2m9qx3hp": tour.TOKEN,
}
NOT_RUN = re.compile(
    r"^mcp-state (?:serve|demo|completion|web|hook|install|uninstall|migrate-store)\b"
    r"|purge --reason|tail -f"
)
"""Examples that go on until they are stopped, or are run elsewhere."""


def helped(words: str, columns: int = 80) -> str:
    result = CliRunner().invoke(main, [*words.split(), "--help"], env={"COLUMNS": str(columns)})
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_help_is_wider_than_the_terminal_or_than_80_columns(columns: int) -> None:
    for words in ("", *ALL):
        widest = max(helped(words, columns).splitlines(), key=len)
        # What stands beside no description can't be broken: the name of an option.
        assert len(widest) <= min(80, columns) or " " not in widest.strip(), (words, widest)


def test_every_command_stands_in_a_section_of_the_help() -> None:
    listed = [name for section in manual.SECTIONS.values() for name in section]

    assert len(listed) == len(set(listed))
    assert {words for words in ALL if " " not in words} - set(listed) == set(), (
        "put the command into SECTIONS of mcp_state/cli/manual.py"
    )
    assert set(listed) - set(ALL) <= NOT_HERE
    assert "More:" not in helped("")


def test_the_help_names_every_variable_that_is_read() -> None:
    read = {
        node.value
        for path in Path(cli.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"(?:MCP_STATE|CLAUDE|CODEX|CLICOLOR)[A-Z_]*", node.value)
    } - {"_MCP_STATE_COMPLETE"}
    text = helped("")

    assert {name for name in read if name not in text} == set()
    for title in ("Environment", "Exit codes", "Output", "Files", "Examples"):
        assert f"\n{title}:\n" in text


def examples() -> list[tuple[str, str]]:
    found = [(words, command.epilog or "") for words, command in ALL.items()]
    pairs = [(w, line.strip()) for w, text in found for line in text.strip().splitlines()]
    return [("", line) for line in manual.EXAMPLES.splitlines()] + pairs


def test_every_command_has_examples_that_name_it() -> None:
    lines = examples()
    without = [
        words
        for words, command in ALL.items()
        if not any(w == words and "mcp-state" in line for w, line in lines)
        or not helped(words).partition("\nExamples:\n")[2]
        or command.epilog is None
    ]

    assert without == [], "give it epilog= with examples, and cls=Documented"
    assert [line for _, line in lines if len(line) > 74] == []


@pytest.fixture(scope="module")
def toured(
    walked: tour.Walked, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """A store that the whole command line has been through, with what is known only then."""
    store = tmp_path_factory.mktemp("toured") / "copy.db"
    shutil.copy(walked.store, store)
    invoke = tour.runner(store)
    offered = invoke("handoff", "create", "go on")
    key = re.search(r"h-\w+", offered.stdout)
    assert key is not None
    assert invoke("facts", "record", "schema", "Two tables").exit_code == 0
    assert invoke("journal", "append", "aside", "--project", "notes").exit_code == 0
    assert invoke("thread", "release", "import", "--force").exit_code == 0
    made = invoke("token", "create", "--project", "acme", "--agent", "codex")
    token = re.search(r"t-[0-9a-z]+", made.stdout)
    assert token is not None
    return store, {tour.HANDOFF: key[0], tour.TOKEN: token[0]}


Try = Callable[[str], tuple[int, str]]


@pytest.fixture
def in_a_shell(toured: tuple[Path, dict[str, str]], tmp_path: Path) -> Try:
    """Run a line in a shell, on a copy of the store, in a directory with some files."""
    store, known = toured
    shutil.copy(store, tmp_path / "state.db")
    (tmp_path / "bin").mkdir()
    for name, does in {
        "mcp-state": f'exec {shlex.quote(sys.executable)} -m mcp_state "$@"',
        "wake-an-agent": "exit 0",
        "reindex": "exit 0",
        "gh": "echo OPEN",
        "jq": "cat > /dev/null",
        "less": "cat > /dev/null",
        "make": "echo all is well",
        "git": "echo a commit",
    }.items():
        script = tmp_path / "bin" / name
        script.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        script.chmod(0o700)
    (tmp_path / "notes").mkdir()
    for name in ("plan.md", "build.log", "error.log", "leaked.txt", "notes/one.md"):
        (tmp_path / name).write_text("one line\n", encoding="utf-8")
    env = {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "MCP_STATE_DB": str(tmp_path / "state.db"),
        "MCP_STATE_PROJECT": "acme",
        "PYTHONPATH": str(Path(cli.__file__).parents[2]),
        "LANG": "C.UTF-8",
    }

    def run(line: str) -> tuple[int, str]:
        for placeholder, real in STANDING_FOR.items():
            line = line.replace(placeholder, known.get(real, real))
        before = {
            "mcp-state import acme.jsonl": "mcp-state export acme.jsonl",
            "mcp-state restore state.bak": "mcp-state backup state.bak",
        }
        first = next((made for use, made in before.items() if line.startswith(use)), "true")
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {first} > made 2>&1 && {line}"],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


LINES = sorted({line for _, line in examples() if not NOT_RUN.search(line)})


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=f"soak {line}" if SOAK else line)
        for line in LINES[:: 1 if SOAK else 20]
    ],
)
def test_every_example_can_be_typed(in_a_shell: Try, line: str) -> None:
    code, said = in_a_shell(line)

    assert code == 0 or ("step begin" in line and code == 3), said


# Completion


def completed(
    line: str,
    toured: tuple[Path | str, dict[str, str]] | None,
    *,
    whole: bool = False,
    **changes: str,
) -> list[str]:
    """What real bash offers after a line, when Tab is pressed at its end; `whole`: by lines."""
    script = CliRunner().invoke(main, ["completion", "bash"]).stdout
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    asked = f"""
        {script}
        COMP_WORDS=({" ".join(map(shlex.quote, words))})
        COMP_CWORD={len(words) - 1}
        _mcp_state_completion mcp-state
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": "/nowhere",
        "LANG": "C.UTF-8",
        "MCP_STATE_DB": str(toured[0]) if toured else "/nowhere/state.db",
        "MCP_STATE_PROJECT": "acme",
    } | changes
    done = subprocess.run(
        ["bash", "-c", asked], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines() if whole else done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="completion is tried in bash")
def test_bash_completes_commands_options_values_and_names(
    toured: tuple[Path, dict[str, str]],
) -> None:
    assert completed("mcp-state th", None) == ["threads", "thread"]
    assert completed("mcp-state memory lo", None) == ["lock"]
    assert completed("mcp-state runs step b", None) == ["begin"]
    assert completed("mcp-state thread set x --next", None) == ["--next-action"]
    assert completed("mcp-state threads --status b", None) == ["blocked"]
    assert completed("mcp-state facts --trust ", None) == [
        *("trusted", "provisional", "stale", "refuted", "archival"),
    ]
    assert completed("mcp-state completion z", None) == ["zsh"]
    assert completed("mcp-state install c", None) == [name for name in CLIENTS if name[0] == "c"]
    assert completed("mcp-state uninstall ", None) == list(CLIENTS)
    assert completed("mcp-state hook s", None) == ["session-start", "stop", "subagent-start"]
    assert completed("mcp-state thread set im", toured) == ["import"]
    assert completed("mcp-state thread IM", toured) == ["import"]
    assert completed("mcp-state thread c", toured) == ["check", "claim"]
    assert completed("mcp-state memory p", toured) == ["plan"]
    assert completed("mcp-state runs resume re", toured) == ["reindex"]
    assert completed("mcp-state journal --run re", toured) == ["reindex"]
    assert completed("mcp-state facts show pr", toured) == ["pr-830"]
    assert completed("mcp-state facts record x --because fri", toured) == ["friday"]
    assert completed("mcp-state handoff accept ", toured) == [toured[1][tour.HANDOFF]]
    assert completed("mcp-state history run:", toured) == ["run:flaky", "run:reindex"]
    assert completed("mcp-state threads --project a", toured) == ["acme", "another"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="completion is tried in bash")
def test_bash_is_given_a_name_as_one_word(run: Run, path: str) -> None:
    run("memory", "set", "Deploy steps", "one")
    run("memory", "set", 'a\\b "$x" *', "two")
    store = (path, dict[str, str]())

    assert completed("mcp-state memory get Dep", store, whole=True) == [r"Deploy\ steps"]
    assert completed("mcp-state memory get 'Deploy\\ st'", store, whole=True) == [r"Deploy\ steps"]
    assert completed("mcp-state memory get '\"Dep'", store, whole=True) == ["Deploy steps"]
    assert completed("mcp-state memory get a", store, whole=True) == [r"a\\b\ \"\$x\"\ \*"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="completion is tried in bash")
def test_completion_writes_nothing_and_is_silent_where_the_store_is_no_store(
    toured: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"no store")
    before = sorted(tmp_path.iterdir())

    assert completed("mcp-state thread get ", (damaged, {})) == []
    assert completed("mcp-state thread get ", (tmp_path / "none" / "state.db", {})) == []
    assert completed("mcp-state thread get ", None, MCP_STATE_DB="relative.db") == []
    assert sorted(tmp_path.iterdir()) == before
    assert damaged.read_bytes() == b"no store"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_says_how_to_install_it_and_is_read_by_its_shell(
    run: Run, shell: str, tmp_path: Path
) -> None:
    script = run("completion", shell).stdout

    assert script.startswith("# To install: ")
    assert "_MCP_STATE_COMPLETE" in script
    file = tmp_path / "script"
    file.write_text(script, encoding="utf-8")
    if shutil.which(shell):
        subprocess.run([shell, "-n", file], check=True)


def test_an_unknown_shell_is_told_the_known_ones(run: Run) -> None:
    result = run("completion", "tcsh")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in result.stderr


def test_completion_without_a_shell_tells_the_line_for_each(run: Run) -> None:
    assert run("completion").stderr == (
        "error: bad_argument: mcp-state completion needs a shell. To install it: for bash add this "
        'line to ~/.bashrc:  eval "$(mcp-state completion bash)"; for zsh add this line to '
        '~/.zshrc, after compinit:  eval "$(mcp-state completion zsh)"; for fish run  mcp-state '
        "completion fish > ~/.config/fish/completions/mcp-state.fish\n"
    )


# Did you mean


def test_every_word_that_may_be_typed_leads_to_commands_that_exist() -> None:
    lines = {one for meant in MEANT.values() for one in meant}
    assert {line.partition(" NAME ")[0] for line in lines} - set(ALL) <= NOT_HERE
    assert set(MEANT) & set(ALL) == set()


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("thread list", "Did you mean `mcp-state threads`?"),
        ("thread lits x", "Did you mean `mcp-state threads`?"),
        ("threads set x", "`mcp-state thread NAME` shows one."),
        ("status", "Did you mean `mcp-state orient` or `mcp-state threads`?"),
        ("log", "Did you mean `mcp-state journal` or `mcp-state history`?"),
        ("show", "Did you mean `mcp-state orient` or `mcp-state thread get`?"),
        ("Journal", "Did you mean `mcp-state journal`?"),
        ("claim", "Did you mean `mcp-state thread claim`?"),
        ("checkpont", "Did you mean `mcp-state runs checkpoint`?"),
        ("memory delte plan", "Did you mean `mcp-state memory delete`?"),
        ("memory ls", "Did you mean `mcp-state memory get`?"),
        ("runs step bgin r s", "Did you mean `mcp-state runs step begin`?"),
        ("facts pr-830", "`mcp-state facts show pr-830` shows what has that name."),
        ("thread done x", 'Did you mean `mcp-state thread set x --status done --evidence "…"`?'),
        ("thread delete", 'Did you mean `mcp-state thread set NAME --status dropped --note "…"`?'),
        ("thread drop -x", "mcp-state thread set NAME --status dropped"),
        ("thread watch x", "mcp-state thread set x --status watching --recheck-after 4h`?"),
        ("block x", 'Did you mean `mcp-state thread set x --status blocked --waiting-on "…"`?'),
        ("memory edit plan", "Did you mean `mcp-state memory set`?"),
        ("journal hello", "`mcp-state journal append hello` writes an entry."),
        ("qqq", "It has serve, install, "),
        ("threads --stauts done", "Did you mean --status?"),
        ("thread set x --titel y", "Did you mean --title? "),
        ("thread set x --next y", "Did you mean --next-action? "),
        ("thread set x --clea y", "Did you mean --clear? "),
        ("--json threads", "Options stand after the command."),
        ("threads --status blokced", "Did you mean blocked? Statuses are active, "),
        ("runs --status faild", "Did you mean failed? Statuses are open, "),
        ("facts --trust refutd", "Did you mean refuted? It is one of trusted, "),
        ("search x --kind thred", "Did you mean thread? Kinds are memory, "),
        ("history thred:x", "Did you mean thread? Write KIND:NAME "),
        ("threads --limit many", "'many' is no number from 1 to 1,000,000. "),
        ("threads --limit 0", "'0' is no number from 1 to 1,000,000. "),
    ],
)
def test_what_may_be_meant_is_asked(run: Run, typed: str, told: str) -> None:
    result = run(*typed.split())

    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_a_text_in_the_place_of_a_command_is_an_entry_of_the_journal(run: Run) -> None:
    assert run("journal", "keep the old parser").stderr == (
        "error: bad_argument: mcp-state journal has no command 'keep the old parser'. It has "
        "append, tail. `mcp-state journal append 'keep the old parser'` writes an entry.\n"
    )
    assert '`mcp-state journal append "…"`' in run("journal", "long " * 40).stderr


def test_a_name_that_is_nearly_right_is_told(toured: tuple[Path, dict[str, str]], run: Run) -> None:
    for words, near in {
        "thread get improt": "no thread 'improt'; there is 'import'. ",
        "facts show frday": "no fact 'frday'; there is 'friday'. ",
        "runs show reindxe": "no run 'reindxe'; there is 'reindex'. ",
        "memory delete plans": "no block 'plans'; there is ",
    }.items():
        result = run(*words.split(), MCP_STATE_DB=str(toured[0]))
        assert near in result.stderr


def test_a_thread_with_the_name_of_a_word_for_a_command_can_be_read(run: Run) -> None:
    run("thread", "set", "list", "--title", "Make a list")

    assert "Did you mean" in run("thread", "list").stderr
    assert "title: Make a list" in run("thread", "get", "list").stdout


def test_help_is_a_word_too(run: Run) -> None:
    assert run("help").stdout == run("--help").stdout
    assert run("help", "thread", "set").stdout == run("thread", "set", "--help").stdout
