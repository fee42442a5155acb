"""Hooks and instructions: ours come and go, those of others stay."""

from __future__ import annotations

import json
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from installing import VARIABLES, tree

from mcp_state.install import hooks

PROGRAM = str(Path(sys.executable).with_name("mcp-state"))
EVENTS = {
    "SessionStart": "session-start",
    "PreCompact": "pre-compact",
    "Stop": "stop",
    "SubagentStart": "subagent-start",
}
FILES = {"codex": ".codex/hooks.json", "claude-code": ".claude/settings.json"}
both = pytest.mark.parametrize("client", tuple(FILES))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "the home"  # with a space: hooks are lines of a shell
    made.mkdir()
    return made


@pytest.fixture
def environment(home: Path) -> dict[str, str | None]:
    return {**dict.fromkeys(VARIABLES), "HOME": str(home)}


@pytest.fixture
def install(run: Run) -> Run:
    return lambda *words, **changes: run("install", *words, "--no-proof", **changes)


def hooks_in(home: Path, client: str) -> Any:
    return json.loads((home / FILES[client]).read_text())["hooks"]


def handler(home: Path, client: str, event: str, *more: str) -> dict[str, Any]:
    store = str(home / ".local/share/mcp-state/state.db")
    words = [PROGRAM, "hook", EVENTS[event], "--db", store, "--agent", client, *more]
    return {"type": "command", "command": shlex.join(words), "timeout": 5}


@both
def test_every_event_gets_one_hook_and_a_second_time_nothing_changes(
    client: str, home: Path, run: Run, install: Run
) -> None:
    assert install(client, "--hooks").exit_code == 0
    assert hooks_in(home, client) == {
        event: [{"hooks": [handler(home, client, event)]}] for event in EVENTS
    }

    before = tree(home)
    assert install(client, "--hooks").output.startswith("nothing to change in ")
    assert install(client).output.startswith("nothing to change in ")
    assert tree(home) == before

    assert run("uninstall", client).exit_code == 0
    assert tree(home) == {}


@both
def test_hooks_work_on_the_store_and_project_of_the_server(
    client: str, home: Path, install: Run
) -> None:
    install(client, "--project", "acme")
    install(client, "--hooks")
    install(client, "--hooks", "--agent", "me")
    store = str(home / ".local/share/mcp-state/state.db")
    words = [PROGRAM, "hook", "stop", "--db", store, "--agent", "me", "--project", "acme"]
    assert shlex.split(hooks_in(home, client)["Stop"][0]["hooks"][0]["command"]) == words


@both
def test_hooks_that_are_there_follow_the_server_without_being_asked_for(
    client: str, home: Path, install: Run
) -> None:
    """Else they would tell of another store, or run a program that is gone."""
    install(client, "--hooks")
    path = home / FILES[client]
    found = json.loads(path.read_text())
    del found["hooks"]["PreCompact"]  # a person did not want it
    path.write_text(json.dumps(found))

    install(client, "--db", "/new.db")
    assert hooks_in(home, client).keys() == EVENTS.keys() - {"PreCompact"}
    for event, groups in hooks_in(home, client).items():
        words = [PROGRAM, "hook", EVENTS[event], "--db", "/new.db", "--agent", client]
        assert groups[0]["hooks"][0]["command"] == shlex.join(words)
    if client == "codex":
        config = (home / ".codex/config.toml").read_text()
        assert "new.db" in config
        assert hooks.trust(config, str(path), hooks_in(home, client), anew=True) == config

    before = hooks_in(home, client)
    install(client, "--name", "second", "--db", "/other.db")
    assert hooks_in(home, client) == before


@both
def test_hooks_of_no_known_form_are_no_obstacle_for_what_is_not_about_them(
    client: str, home: Path, run: Run, install: Run
) -> None:
    path = home / FILES[client]
    path.parent.mkdir()
    for odd in ('{"Stop": {}}', '{"Stop": null}', "[]", "null", '{"Stop": ["x", {"hooks": "y"}]}'):
        path.write_text(f'{{"hooks": {odd}}}')
        before = tree(home)
        assert install(client).exit_code == 0
        assert run("uninstall", client).exit_code == 0
        assert tree(home) == before


@both
def test_hooks_of_others_stay_as_they_are(client: str, home: Path, run: Run, install: Run) -> None:
    path = home / FILES[client]
    path.parent.mkdir()
    text = """{
    // mine
    "hooks": {
        "Stop": [
            {"matcher": "", "hooks": [{"type": "command", "command": "say done"}]}, // loud
        ],
        "PreToolUse": [],
        "PreCompact": [ ]
    }
}
"""
    path.write_text(text)

    assert install(client, "--hooks").exit_code == 0
    assert "// mine" in path.read_text()
    assert '"say done"}]}, // loud' in path.read_text()
    assert '"PreToolUse": [],' in path.read_text()

    assert run("uninstall", client).exit_code == 0
    assert path.read_text() == text


@both
def test_hooks_and_instructions_stay_as_long_as_a_server_of_ours_does(
    client: str, home: Path, run: Run, install: Run
) -> None:
    install(client, "--hooks", "--instructions")
    before = tree(home)
    install(client, "--name", "second")
    run("uninstall", client, "--name", "second")
    assert tree(home) == before
    run("uninstall", client)
    assert tree(home) == {}


def test_a_hook_of_ours_in_a_group_of_others_is_changed_there(
    home: Path, run: Run, install: Run
) -> None:
    path = home / ".claude/settings.json"
    path.parent.mkdir()
    other = {"type": "command", "command": "say hook stop"}
    old = {"type": "command", "command": "'/old place/mcp-state' hook stop --db /x", "timeout": 9}
    group = {"matcher": "x", "hooks": [other, old]}
    path.write_text(json.dumps({"hooks": {"Stop": [group]}}))

    install("claude-code", "--hooks")
    ours = handler(home, "claude-code", "Stop") | {"timeout": 9}
    assert hooks_in(home, "claude-code")["Stop"] == [{"matcher": "x", "hooks": [other, ours]}]

    run("uninstall", "claude-code")
    assert hooks_in(home, "claude-code") == {"Stop": [{"matcher": "x", "hooks": [other]}]}


def trusted(home: Path) -> dict[str, str]:
    config = tomllib.loads((home / ".codex/config.toml").read_text())
    state = config.get("hooks", {}).get("state", {})
    return {key.removeprefix(f"{home}/.codex/"): one["trusted_hash"] for key, one in state.items()}


@both
def test_in_a_group_with_others_nothing_but_our_line_changes(
    client: str, home: Path, run: Run, install: Run
) -> None:
    path = home / FILES[client]
    path.parent.mkdir()
    text = (
        '{"hooks": {"Stop": [ { "matcher":"", // all\n  "hooks" : [{"command":"a"},'
        ' {"command":"OURS", "timeout":9}, /* b */ {"command":"b"}] } ]}}\n'
    )
    path.write_text(text.replace("OURS", "mcp-state hook stop --db /old.db"))

    install(client)
    words = [PROGRAM, "hook", "stop", "--db", str(home / ".local/share/mcp-state/state.db")]
    ours = shlex.join([*words, "--agent", client])
    assert path.read_text().startswith(text.replace("OURS", ours).removesuffix("}\n"))

    run("uninstall", client)
    assert path.read_text() == text.replace(' {"command":"OURS", "timeout":9},', "")


def test_codex_is_told_to_trust_exactly_our_hooks(home: Path, install: Run) -> None:
    install("codex")
    assert trusted(home) == {}
    install("codex", "--hooks")
    assert set(trusted(home)) == {
        "hooks.json:session_start:0:0",
        "hooks.json:pre_compact:0:0",
        "hooks.json:stop:0:0",
        "hooks.json:subagent_start:0:0",
    }


def test_the_hash_is_the_one_that_codex_computes() -> None:
    """Expected are the hashes that Codex 0.171 gave (`hooks/list`) for these commands."""
    found = {
        event: [
            {
                "hooks": [
                    {
                        "type": "command",
                        "command": f"/opt/m/mcp-state hook {word} --db /var/m/state.db "
                        "--agent codex",
                        "timeout": 5,
                    }
                ]
            }
        ]
        for event, word in EVENTS.items()
    }
    config = tomllib.loads(hooks.trust("", "/c/hooks.json", found, anew=True))
    known = {
        "session_start": "03d490e252bd650cf22f3e9d17003400f2d204377b0a06b92e73437fc4b70730",
        "pre_compact": "5e17b2766817afb73bb174124dad429d28eb683e9908a4f70560dbb20dde34ca",
        "stop": "8a170c785266da5bc65a70123b9f5864aca70756c58875b42e7b0bf4a1f43aea",
        "subagent_start": "5a078f63e78d8456e68150e17f36fcbc44f9d60cedd33bb71d0bcd2fc2ae6870",
    }
    assert config["hooks"]["state"] == {
        f"/c/hooks.json:{event}:0:0": {"trusted_hash": f"sha256:{one}"}
        for event, one in known.items()
    }


def test_the_trust_of_others_moves_with_their_hooks(home: Path, run: Run, install: Run) -> None:
    install("codex", "--hooks")
    path = home / ".codex/hooks.json"
    found = json.loads(path.read_text())
    found["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "say done"}]})
    path.write_text(json.dumps(found))
    config = home / ".codex/config.toml"
    with config.open("a") as file:
        file.write(f'\n[hooks.state."{path}:stop:1:0"]\ntrusted_hash = "sha256:theirs"\n')

    run("uninstall", "codex")
    assert trusted(home) == {"hooks.json:stop:0:0": "sha256:theirs"}
    assert hooks_in(home, "codex") == {
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]
    }


def test_hooks_in_the_configuration_of_codex_get_ours_beside_them(
    home: Path, run: Run, install: Run
) -> None:
    path = home / ".codex/config.toml"
    path.parent.mkdir()
    text = (
        '# mine\n[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "say done"\n'
        "\n[tui]\nx = 1\n"
    )
    path.write_text(text)

    done = install("codex", "--hooks")
    assert done.exit_code == 0
    assert done.output.count("changed ") == 1
    found = tomllib.loads(path.read_text())["hooks"]
    mine = {"hooks": [{"type": "command", "command": "say done"}]}
    assert found.pop("Stop") == [mine, {"hooks": [handler(home, "codex", "Stop")]}]
    assert found.pop("SessionStart") == [{"hooks": [handler(home, "codex", "SessionStart")]}]
    assert not (home / ".codex/hooks.json").exists()
    assert set(trusted(home)) == {
        "config.toml:session_start:0:0",
        "config.toml:pre_compact:0:0",
        "config.toml:stop:1:0",
        "config.toml:subagent_start:0:0",
    }
    before = tree(home)
    assert install("codex", "--hooks").output.startswith("nothing to change in Codex")
    assert tree(home) == before

    assert install("codex", "--hooks", "--agent", "me").output.count("changed ") == 1
    assert len(trusted(home)) == 4
    run("uninstall", "codex")
    assert path.read_text() == text


def test_a_hook_of_others_in_one_group_with_ours_stays(home: Path, run: Run, install: Run) -> None:
    path = home / ".codex/config.toml"
    path.parent.mkdir()
    head = "[[hooks.Stop]]\n"
    ours = '[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "/x/mcp-state hook stop --db /y"\n'
    other = '[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "say done"\n'
    path.write_text(head + ours + other + "\n" + head + other)
    run("uninstall", "codex")
    assert path.read_text() == head + other + "\n" + head + other

    inline = 'hooks = [{ type = "command", command = "mcp-state hook stop" }, { command = "x" }]\n'
    path.write_text(head + inline)
    refused = run("uninstall", "codex")
    assert refused.stderr == (
        f"error: config_refused: {path}: a hook of mcp-state for Stop is written in a way that "
        "cannot be edited. Nothing was written. Remove it there by hand, then run this again.\n"
    )
    assert path.read_text() == head + inline


@pytest.mark.parametrize(
    ("client", "path", "text", "switch"),
    [
        ("codex", ".codex/config.toml", "[features]\nhooks = false\n", "features.hooks"),
        ("claude-code", ".claude/settings.json", '{"disableAllHooks": true}', "disableAllHooks"),
    ],
)
def test_that_hooks_are_turned_off_is_told(
    client: str, path: str, text: str, switch: str, home: Path, install: Run
) -> None:
    file = home / path
    file.parent.mkdir()
    file.write_text(text)
    said = f"warning: {switch} in {file} turns hooks off; that was left as it is\n"
    assert said not in install(client).output
    assert said in install(client, "--hooks").output


def test_a_broken_file_of_hooks_is_named(home: Path, run: Run, install: Run) -> None:
    path = home / ".codex/hooks.json"
    path.parent.mkdir()
    path.write_text('{"hooks": {"Stop": 1}}')
    assert f"{path}: line 1: hooks.Stop is not a list" in install("codex", "--hooks").stderr
    path.write_text('{"hooks": ')
    for refused in (install("codex", "--hooks"), run("uninstall", "codex")):
        assert refused.exit_code == 1
        assert f"{path} cannot be parsed: line 1, column 11" in refused.stderr
    assert list(tree(home)) == [".codex/hooks.json"]


@pytest.mark.parametrize(
    ("client", "path"),
    [
        ("codex", ".codex/AGENTS.md"),
        ("claude-code", ".claude/CLAUDE.md"),
        ("gemini", ".gemini/GEMINI.md"),
    ],
)
@pytest.mark.parametrize("text", [None, "", "# Mine\r\nBe brief.\r\n", "Be brief."])
def test_instructions_come_on_request_and_go(
    client: str, path: str, text: str | None, home: Path, run: Run, install: Run
) -> None:
    file = home / path
    if text is not None:
        file.parent.mkdir()
        file.write_bytes(text.encode())
    install(client)
    assert (file.read_bytes().decode() if file.exists() else None) == text

    assert install(client, "--instructions").exit_code == 0
    made = file.read_bytes().decode()
    assert made.startswith(text or "<!-- mcp-state:begin -->")
    assert "call `orient`" in made
    assert made.rstrip().endswith("<!-- mcp-state:end -->")
    assert install(client, "--instructions").output.startswith("nothing to change in ")

    assert run("uninstall", client).exit_code == 0
    assert (file.read_bytes().decode() if file.exists() else None) == text


def test_a_block_is_renewed_in_its_place(
    home: Path, tmp_path: Path, run: Run, install: Run
) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_text("# A\n\n<!-- mcp-state:begin -->\nold\n<!-- mcp-state:end -->\n\n# B\n")

    done = install("cursor", "--instructions-file", str(file))
    text = file.read_text()
    assert text.startswith("# A\n\n<!-- mcp-state:begin -->\n## State of the work\n")
    assert text.endswith("\n<!-- mcp-state:end -->\n\n# B\n")
    assert "old" not in text
    undo = f"mcp-state uninstall cursor --instructions-file {file}"
    assert f"to undo it: {undo}\n" in done.output

    run(*undo.split()[1:])
    assert file.read_text() == "# A\n\n# B\n"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- mcp-state:begin -->\nno end\n",
        "<!-- mcp-state:end -->\n<!-- mcp-state:begin -->\n",
        "<!-- mcp-state:begin --><!-- mcp-state:end -->\n" * 2,
    ],
)
def test_markers_that_are_no_pair_are_left_alone(
    text: str, home: Path, tmp_path: Path, install: Run
) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_text(text)
    refused = install("codex", "--instructions-file", str(file))
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"error: config_refused: {file}: ")
    assert file.read_text() == text
    assert tree(home) == {}
