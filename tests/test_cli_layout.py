"""How all that the command line prints looks: as JSON, and on terminals of any width."""

from __future__ import annotations

import json
import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import click
import pytest
import tour
from conftest import FakeClock, Run
from rich.cells import cell_len
from soaking import SOAK
from terminals import on_terminal, unstyled
from test_cli import commands
from whole_stores import fill_like

from mcp_state.settings import is_address
from mcp_state.times import Clock

WIDTHS = (40, 60, 80, 120, 200) if SOAK else (40, 120)
SHAPES = Path(__file__).parent / "snapshots" / "cli" / "json.json"
WITH_FILES = ("export", "import", "backup", "restore", "install", "uninstall", "purge")
LOOKS = [*dict.fromkeys(words for words in tour.WALK if words[0] not in WITH_FILES)]


def leaf(words: tuple[str, ...] | list[str]) -> str:
    """The command that some words call, by its whole name."""
    names = {name for name, command in commands() if not isinstance(command, click.Group)}
    spelt = [" ".join(words[:count]) for count in (3, 2, 1)]
    found = next((name for name in spelt if name in names), "")
    fallback = {"thread": "get", "journal": "tail", "memory": "get", "objective": "show"}
    fallback |= {"facts": "list", "runs": "list", "blob": "get", "projects": "list"}
    return found or f"{words[0]} {fallback[words[0]]}"


def test_every_command_is_walked() -> None:
    names = {name for name, command in commands() if not isinstance(command, click.Group)}

    assert names - {leaf(list(words)) for words in tour.WALK} - set(tour.ELSEWHERE) == set(), (
        "add the command to WALK in tests/tour.py, or say in ELSEWHERE where it is looked at"
    )


@pytest.fixture
def store(walked: tour.Walked, path: str) -> dict[str, str]:
    """The environment of commands on a store that has been walked through."""
    if is_address(path):
        fill_like(path, walked.store)
    else:
        Path(path).parent.mkdir()
        shutil.copy(walked.store, path)
    return {"MCP_STATE_DB": path, "MCP_STATE_PROJECT": "acme"}


@pytest.mark.parametrize("columns", WIDTHS, ids=lambda n: f"soak {n}" if SOAK else f"{n}")
def test_nothing_is_wider_than_the_terminal(
    store: dict[str, str], tmp_path: Path, columns: int
) -> None:
    refused = [*tour.REFUSALS, ("thread", "nobody"), ("no", "such"), ("memory", "--nope")]
    words = [*LOOKS, *refused] if columns == min(WIDTHS) else LOOKS
    for typed, (_, printed) in zip(
        words, on_terminal(columns, words, tmp_path / "words", **store), strict=True
    ):
        if typed[:2] == ("blob", "get"):
            continue  # a text exactly as it is
        lines = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", printed).split("\n")
        wide = [line for line in lines if cell_len(line.rpartition("\r")[2]) > columns]
        assert wide == [], typed


def test_no_text_commands_a_terminal_or_turns_its_lines_around(
    store: dict[str, str], tmp_path: Path
) -> None:
    words = [w for w in LOOKS if w[0] != "doctor"]
    for _, printed in on_terminal(80, words, tmp_path / "words", **store):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", unstyled(printed))
        assert set(re.findall(r"\x1b\[[0-9;]*([^0-9;])", printed)) <= {"m"}


@pytest.mark.parametrize(
    "quiet", [{"NO_COLOR": "1"}, {"CLICOLOR": "0"}, {"TERM": "dumb"}, {"TERM": "unknown"}]
)
def test_who_wants_no_colour_gets_none(
    store: dict[str, str], tmp_path: Path, quiet: dict[str, str]
) -> None:
    words = [["threads"], ["facts"], ["runs"], ["orient"], ["thread", "nobody"]]
    for _, printed in on_terminal(100, words, tmp_path / "words", **store | quiet):
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]", printed)


def test_a_terminal_gets_colour(store: dict[str, str], tmp_path: Path) -> None:
    words = [["threads"], ["facts"], ["runs"], ["orient"], ["thread", "nobody"]]
    for _, printed in on_terminal(100, words, tmp_path / "words", **store):
        assert re.search(r"\x1b\[[0-9;]*3[0-7]", printed)


def test_a_line_that_is_broken_goes_on_below_its_own_beginning(
    run: Run, path: str, tmp_path: Path
) -> None:
    run("thread", "set", "import", "--title", "Fix the import", "--next-action", "one two " * 9)
    run("memory", "set", "plan", f"a list:\n  - {'word ' * 12}\n{' ' * 50}far")
    env = {"MCP_STATE_DB": path, "MCP_STATE_PROJECT": "acme"}

    printed = on_terminal(40, [["threads"], ["memory"]], tmp_path / "words", **env)

    threads, memory = (unstyled(text).splitlines() for _, text in printed)
    assert threads == [
        "1 of 1 open threads (1 active · 0",
        "    watching · 0 blocked · 0 done · 0",
        "    dropped)",
        "import [active]  Fix the import",
        "    next: one two one two one two one",
        "        two one two one two one two one",
        "        two one two",
        "[acme (from --project) · 1 thread ·",
        "    event 2]",
    ]
    assert memory[:8] == [
        "1 block:",
        "plan · version 1 · 126/4096 chars ·",
        "    person just now",
        "    a list:",
        "      - word word word word word word",
        "          word word word word word word",
        "                    far",
        "[acme (from --project) · 1 thread ·",
    ]


LEFT_OUT = re.compile(
    r"(?:scope|totals|projects\[\])\.(?:threads|runs|facts)\.|\.row\.|fallen_under\.|facts_due\."
    r"|^due\.|_by\.|actor\.|holder\."
)
"""Keys that are data (statuses, names, columns), and those of an actor, the same everywhere."""


def keys_of(value: Any, at: str = "") -> set[str]:
    """Where a JSON value holds something: `threads[].name`."""
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {at} | {k for key, item in items for k in keys_of(item, f"{at}.{key}".strip("."))}
    if isinstance(value, list):
        return {at} | {k for item in cast(list[Any], value) for k in keys_of(item, f"{at}[]")}
    return {at}


def shapes(run: Run, directory: Path, clock: FakeClock) -> dict[str, list[str]]:
    """The keys of what each command answers in JSON, over the whole walk, a second a command."""
    found: dict[str, set[str]] = {}
    guide = tour.Guide(directory)
    for words in tour.WALK:
        clock.move(seconds=1)
        typed = guide.words(words)
        at = typed.index("--") if "--" in typed else len(typed)
        result = run(*typed[:at], "--json", *typed[at:], stdin=tour.LOG)
        assert result.exit_code in (0, 3), (words, result.output)
        value = json.loads(result.stdout)
        if words[:2] == ("handoff", "create"):
            guide.listen(f"offered as {value['handoff']['key']}")
        if words[:2] == ("token", "create"):
            guide.listen(value["secret"])
        keys = {key for key in keys_of(value) if key and not LEFT_OUT.search(key)}
        found.setdefault(leaf(list(words)), set()).update(keys)
    return {command: sorted(keys) for command, keys in sorted(found.items())}


@pytest.mark.sqlite
def test_what_json_holds_is_what_was_reviewed(
    run: Run, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rm tests/snapshots/cli/json.json` and a test run renew what is to be reviewed."""
    monkeypatch.chdir(tmp_path)  # what git says of a checkpoint belongs to where this runs

    def now(_: Clock) -> datetime:
        return clock.time

    monkeypatch.setattr(Clock, "now", now)
    found = shapes(run, tmp_path, clock)
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    if not SHAPES.exists():
        SHAPES.write_text(text, encoding="utf-8")
    assert json.loads(SHAPES.read_text(encoding="utf-8")) == found


@pytest.mark.usefixtures("store")
def test_times_in_json_are_rfc_3339_in_utc(run: Run) -> None:
    for words in (["threads"], ["thread", "import"], ["journal"], ["history"], ["runs"], ["facts"]):
        for key, value in re.findall(
            r'"(\w+_at|at|until)": "([^"]+)"', run(*words, "--json").stdout
        ):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", value), key
