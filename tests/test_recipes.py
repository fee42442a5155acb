"""Every recipe in docs/recipes is played as it stands, and answers what it says that it answers.

`python tests/test_recipes.py` renews the answers in the documents.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from pathlib import Path

import click
import pytest
from recipe_stage import played
from recipes import Call, Install, Unplayable, parse

from mcp_state.tools import ALL_TOOLS

ROOT = Path(__file__).parent.parent
RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.md"))
SETUP = "```console\n$ mcp-state install codex\n```\n"
TOLD = "```console\ncodex> memory_get {}\n```\n"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
async def test_a_recipe_goes_as_it_says(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert await played(text, tmp_path / "stage") == text


if __name__ == "__main__":
    chosen = [ROOT / name for name in sys.argv[1:]] or RECIPES
    for recipe in chosen:
        with tempfile.TemporaryDirectory() as directory:
            text = recipe.read_text(encoding="utf-8")
            renewed = asyncio.run(played(text, Path(directory) / "stage"))
            recipe.write_text(renewed, encoding="utf-8")
