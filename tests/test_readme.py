"""The README says what is: its table is generated, its promises name tests, its code runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from mcp_state import toolset
from mcp_state.tools import ALL_TOOLS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TABLE = re.compile(r"(<!-- tools: .*? -->\n)(.*?)(<!-- end of tools -->)", re.DOTALL)


def tools_table() -> str:
    rows = [
        "| tool | in | arguments (`?` may be left out; `project?` everywhere) | does |",
        "|---|---|---|---|",
    ]
    for spec in ALL_TOOLS:
        sets = ", ".join(name for name in toolset.sets_with(spec.name) if name != "all")
        arguments = ", ".join(
            f"`{p.name}`" if p.required else f"`{p.name}?`" for p in spec.parameters
        )
        does = spec.description.partition("\n\n")[0].replace("\n", " ")
        rows.append(f"| `{spec.name}` | {sets or 'all'} | {arguments} | {does} |")
    return "\n".join(rows) + "\n"


def test_the_table_of_tools_is_that_of_the_registry() -> None:
    """`python tests/test_readme.py` renews it."""
    found = TABLE.search(README.read_text(encoding="utf-8"))
    assert found is not None
    assert found[2] == tools_table()


def test_every_test_that_a_promise_names_exists() -> None:
    text = README.read_text(encoding="utf-8")
    promises = text[text.index("## What is promised") : text.index("## How it is built")]
    named = set(re.findall(r"`(tests/test_\w+\.py|test_\w+)`", promises))
    assert len(named) >= 8
    sources = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "tests").glob("test_*.py")}
    for name in named:
        if name.startswith("tests/"):
            assert name.removeprefix("tests/") in sources, name
        else:
            assert any(f"def {name}(" in source for source in sources.values()), name


EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
WITHIN = """
import asyncio
import mcp_state

async def main():
    async with mcp_state.open_store(project="acme", agent="nightly") as state:
{}
asyncio.run(main())
"""


def ran(example: str, path: Path) -> str:
    """What an example prints, on a store of its own."""
    code = example if "open_store(" in example else WITHIN.format(indent(example, " " * 8))
    code = code.replace("open_store(", f"open_store({str(path)!r}, ")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_first_python_example_runs(tmp_path: Path) -> None:
    printed = ran(EXAMPLES[0], tmp_path / "state.db")
    assert printed.startswith("project acme (from argument) · agent nightly · new here")
    assert printed.endswith("\n1\n")


@pytest.mark.parametrize(
    ("title", "printed"),
    [
        ("Resuming.", "3 of 3 files 3 2700\n"),
        ("Loops and budgets.", "budget_spent\n2 4\n"),
        ("Transcripts", "2\n"),
        ("Handoff.", "The importer is half done; run its test first\n"),
    ],
)
def test_the_examples_of_long_runs_print_what_they_should(
    tmp_path: Path, title: str, printed: str
) -> None:
    _, _, rest = README.read_text(encoding="utf-8").partition(f"**{title}")
    example = rest.partition("```python\n")[2].partition("```")[0]
    assert example in EXAMPLES
    assert ran(example, tmp_path / "state.db") == printed
    if title == "Resuming.":  # nothing is done twice
        assert ran(example, tmp_path / "state.db") == printed


def test_the_example_of_facts_prints_what_fell_and_why_it_is_not_done(tmp_path: Path) -> None:
    (example,) = (one for one in EXAMPLES if "facts.record" in one)
    assert ran(example, tmp_path / "state.db") == (
        "refuted ['friday'] [('ship-import', <Status.ACTIVE: 'active'>)]\n"
        "thread 'ship-import' cannot be done: it relies on what does not hold: 'friday' (stale; no "
        'check · believed: "We can merge on Friday")\n'
    )


def test_every_python_example_is_run() -> None:
    assert len(EXAMPLES) == 6


def test_the_first_screen_has_the_two_commands() -> None:
    first = README.read_text(encoding="utf-8").splitlines()[:25]
    assert any(line.strip().startswith("make demo") for line in first)
    assert any(line.strip().startswith("make test") for line in first)


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    README.write_text(
        TABLE.sub(lambda found: found[1] + tools_table() + found[3], text), encoding="utf-8"
    )
