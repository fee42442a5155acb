"""Every recipe of docs/recipes is played as it stands, and answers what it says that it answers.

`python tests/test_recipes.py [docs/recipes/NAME.md …]` renews the answers in the documents.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from pathlib import Path

import pytest
from recipe_stage import played
from recipes import Install, Unplayable, parse

from mcp_state.cli.install import install as install_command
from mcp_state.tools import ALL_TOOLS
from mcp_state.tools.arguments import PROJECT

ROOT = Path(__file__).parent.parent
RECIPES = {
    path.name: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs" / "recipes").glob("*.md"))
}
WORDS = {p.name for spec in ALL_TOOLS for p in spec.parameters} | {PROJECT}
TOOLS = {spec.name for spec in ALL_TOOLS}
each_recipe = pytest.mark.parametrize("text", RECIPES.values(), ids=RECIPES)


def console(*lines: str) -> str:
    """A document of one block, in which codex is installed."""
    return "\n".join(["```console", "$ mcp-state install codex", *lines, "```"])


@each_recipe
async def test_a_recipe_goes_as_it_says(text: str, tmp_path: Path) -> None:
    assert await played(text, tmp_path / "stage") == text


@each_recipe
def test_the_advice_for_agents_is_short_and_names_what_there_is(text: str) -> None:
    advice = parse(text).advice
    assert len(advice) == 1
    assert len(advice[0]) < 1000
    named = set(re.findall(r"`(\w+)`", advice[0]))
    assert named & TOOLS
    assert {word for word in named if "_" in word} <= TOOLS | WORDS


@each_recipe
def test_the_set_up_is_what_install_takes(text: str) -> None:
    installs = [step.done for step in parse(text).steps if isinstance(step.done, Install)]
    assert installs
    for install in installs:
        install_command.make_context("install", [install.client, *install.words])


def test_every_recipe_is_listed() -> None:
    assert len(RECIPES) == 5
    listed = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(recipes/([\w-]+\.md)\)", listed)) == RECIPES.keys()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(docs/recipes/([\w-]+\.md)\)", readme)) == RECIPES.keys()


def test_a_session_is_served_as_install_configures_it() -> None:
    script = "desktop$ mcp-state install claude-code --hooks --project p --agent a --allow-writes"
    _, told, _ = [step.done for step in parse(console(script, "a@desktop> orient {}")).steps]
    words = ("--hooks", "--project", "p", "--agent", "a", "--allow-writes")
    assert told == (expected := Install("desktop", "claude-code", words))
    assert expected.served == {"--agent": "a", "--project": "p"}
    assert Install("laptop", "codex", ("--hooks",)).served == {"--agent": "codex"}


async def test_an_answer_that_is_not_the_one_of_the_document_is_put_in_its_place(
    tmp_path: Path,
) -> None:
    lines = [
        "# Advice",
        "",
        "```console",
        "$ mcp-state install codex",
        "$ seq 5",
        "1",
        "6",
        "",
        "$ seq 5",
        "0",
        "…",
        "4",
        "$ seq 2",
        "1",
        "…",
        "2",
        'codex> journal_append {"text":',
        '                       "done"}',
        "saved as entry 7",
        "[acme · event 3]",
        "codex> memory_get {}",
        "```",
        "The end.",
    ]
    was = "\n".join(lines)
    now = await played(was, tmp_path / "one")
    assert now.split("\n") == [
        *lines[:4],
        *("$ seq 5", "1", "2", "3", "4", "5", ""),
        *("$ seq 5", "1", "…", "5"),
        *("$ seq 2", "1", "2"),
        *lines[16:18],
        "saved as entry 1",
        "[github.com/acme/shop (from git origin) · 0 threads · event 1]",
        "codex> memory_get {}",
        "No blocks yet. memory_set(key, value) makes one.",
        *lines[-2:],
    ]
    assert await played(now, tmp_path / "two") == now


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Only words.", "line 1: nothing in it is played"),
        ("```console\n$ ls\n```", "line 1: nothing in it is played"),
        ("```python\nprint()\n```", "line 1: blocks are console, markdown, or have a file="),
        ("```\nold output\n```", "line 1: blocks are console, markdown, or have a file="),
        ("  ```console\n", "line 1: unknown block"),
        ("Like this:\n\n    $ ls", "line 3: unknown block '    $ ls'"),
        ("```console\n$ ls", "line 1: the block is not closed"),
        (console("codex> thread_sett {}"), "line 3: there is no tool thread_sett"),
        (console("codex> orient {", "never"), "line 3: it does not end"),
        (console("12 hours pass"), "line 3: '12 hours pass' follows what answers nothing"),
        (console("codex> orient {}", "a", "…", "x", "…"), "line 4: an answer is cut once"),
        (console("codex> orient {}", "…"), "line 4: an answer is cut once, below its first line"),
        (console("codex> orient {}", "--- 9 hours pass", "x"), "line 5: 'x' follows what answers"),
        (console("--- for item in a .. b:", "    $ ls", "---"), "line 3: a loop is written"),
        (console("--- for item in 1 .. 2:", "    $ ls"), "line 3: it does not end"),
    ],
)
def test_what_would_not_be_played_or_compared_is_no_recipe(text: str, why: str) -> None:
    with pytest.raises(Unplayable, match=re.escape(why)):
        parse(text)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["claude> orient {}"], "line 3: claude is not installed on laptop"),
        (["codex@desktop> orient {}"], "line 3: codex is not installed on desktop"),
        (["--- the moon rises", "codex> orient {}"], "line 3: nobody knows how to play 'the moon"),
        (["--- kill -9 of ada and its server", "codex> orient {}"], "line 3: ada@laptop has no"),
        (
            ["--- for n in 1 .. 2:", "    --- 9 hours pass", "---", "codex> orient {}"],
            "line 3: a l",
        ),
    ],
)
async def test_what_cannot_be_played_is_named(lines: list[str], why: str, tmp_path: Path) -> None:
    with pytest.raises(Unplayable, match=re.escape(why)):
        await played(console(*lines), tmp_path / "stage")


async def test_a_loop_ends_where_one_of_its_steps_fails(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = ["--- for n in 1 .. 9:", f"    $ echo {{n}} >> {log}; test {{n}} -lt 3", "---"]
    with pytest.raises(AssertionError, match="test 3 -lt 3"):
        await played(console(*lines, "codex> orient {}"), tmp_path / "stage")
    assert log.read_text(encoding="utf-8") == "1\n2\n3\n"


async def renew(paths: list[Path]) -> None:
    """Play recipes side by side, and write the answers into them."""
    with tempfile.TemporaryDirectory() as directory:
        texts = [path.read_text(encoding="utf-8") for path in paths]
        stages = [Path(directory) / str(number) for number in range(len(paths))]
        told = await asyncio.gather(*map(played, texts, stages))
    for path, text in zip(paths, told, strict=True):
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    named = [Path(word) for word in sys.argv[1:]]
    asyncio.run(renew(named or [ROOT / "docs" / "recipes" / name for name in RECIPES]))
