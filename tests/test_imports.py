"""Imports point one way, and what must start fast does not import `mcp`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from mcp_state.api import State
from mcp_state.models import Actor, Caller
from mcp_state.store.database import open_database

PACKAGE = Path(__file__).parent.parent / "mcp_state"

# From the bottom to the top: a module may import what stands on its own line or above it.
LAYERS = (
    ("record", "front"),
    ("calls",),
    ("errors",),
    ("git", "compaction"),
    ("lookups",),
    ("models",),
    ("times", "install"),
    ("settings",),
    ("store",),
    ("scope",),
    ("who", "plain"),
    ("render_words",),
    ("render", "render_runs", "render_handoffs", "render_blobs", "render_facts"),
    ("orient",),
    ("hooks",),
    ("api",),
    ("live",),
    ("foreign", "web"),
    ("tools",),
    ("toolset",),
    ("transport",),
    ("apps",),
    ("subscriptions",),
    ("server",),
    ("http",),
    ("cli", "__main__"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imports_of(path: Path) -> set[str]:
    """The modules that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def layer_of(module: str) -> str | None:
    """`store` for `mcp_state.store.memory`; None for what is not ours, or the package itself."""
    parts = module.split(".")
    return parts[1] if parts[0] == "mcp_state" and len(parts) > 1 and parts[1] in RANK else None


def modules() -> list[tuple[str, Path]]:
    files = [p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py"]
    return [(p.relative_to(PACKAGE).parts[0].removesuffix(".py"), p) for p in files]


def test_every_module_has_its_place_in_the_layers() -> None:
    assert {name for name, _ in modules()} <= set(RANK)


def test_no_import_runs_back() -> None:
    back = [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for name, path in modules()
        for module in imports_of(path)
        if (layer := layer_of(module)) is not None and RANK[layer] > RANK[name]
    ]
    assert back == []


def reads_environment(path: Path) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "argv")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def test_only_the_command_line_reads_the_environment() -> None:
    assert {name for name, path in modules() if reads_environment(path)} == {"cli", "__main__"}


def test_what_runs_at_every_start_of_a_session_imports_little() -> None:
    code = (
        "import sys, mcp_state.cli.hook, mcp_state.cli.orient, mcp_state.hooks\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())

    heavy = {"mcp", "pydantic", "anyio", "rich", "difflib", "tempfile", "secrets", "platformdirs"}
    unused = {f"mcp_state.{name}" for name in ("api", "store.transfer", "store.outcomes")}
    assert loaded & (heavy | unused) == set()


def test_the_store_and_the_package_do_not_import_mcp() -> None:
    for name, path in modules():
        if RANK[name] <= RANK["api"]:
            assert not {m for m in imports_of(path) if m.split(".")[0] in ("mcp", "mcp_types")}
    code = "import mcp_state, sys; sys.exit('mcp' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_package_offers_what_it_names() -> None:
    code = (
        "import mcp_state\n"
        "assert all(hasattr(mcp_state, name) for name in mcp_state.__all__)\n"
        "assert mcp_state.errors.StateError and mcp_state.open_store\n"
        "assert not hasattr(mcp_state, 'nonsense')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_each_noun_of_a_state_is_made_when_it_is_asked_for() -> None:
    state = State(open_database("/nowhere/state.db"), Caller("acme", "argument", Actor("codex")))

    nouns = {noun for noun in State.__annotations__ if getattr(state, noun).caller is state.caller}

    assert len(nouns) == len(State.__annotations__) == 15
    assert state.memory is state.memory
    assert not hasattr(state, "nonsense")
