"""`mcp-state install` and `uninstall` in an empty home directory, for every client and case."""

from __future__ import annotations

import difflib
import errno
import json
import os
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from installing import CONFIGS, VARIABLES, tree

from mcp_state.install import files
from mcp_state.install.clients import CLIENTS, Place

SERVERS = {name: client.servers for name, client in CLIENTS.items()}
PROGRAM = str(Path(sys.executable).with_name("mcp-state"))
clients = pytest.mark.parametrize("client", tuple(CONFIGS))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture
def environment(home: Path) -> dict[str, str | None]:
    return {**dict.fromkeys(VARIABLES), "HOME": str(home)}


@pytest.fixture
def install(run: Run) -> Run:
    """Install without the proof, which has tests of its own."""
    return lambda *words, **changes: run("install", *words, "--no-proof", **changes)


def read(client: str, text: bytes) -> dict[str, Any]:
    return (tomllib.loads if client == "codex" else json.loads)(text.decode())


def entry(client: str, home: Path, name: str = "state") -> dict[str, Any]:
    return read(client, (home / CONFIGS[client]).read_bytes())[SERVERS[client]][name]


def write(client: str, home: Path, text: str) -> Path:
    path = home / CONFIGS[client]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def commented(client: str) -> str:
    if client == "codex":
        return '# mine\nmodel = "x" # why\n\n[mcp_servers.docs]\ncommand = "docs"\r\n# end'
    return (
        f'\ufeff// mine\r\n{{\r\n\t"a": [1,2 , 3], // why\r\n\t"{SERVERS[client]}": {{\r\n'
        '\t\t/* docs */ "docs": {"command": "docs"}\r\n\t\t// end\r\n\t}\r\n}'
    )


def foreign(client: str) -> str:
    if client == "codex":
        return '[mcp_servers.state]\ncommand = "npx"\nargs = ["a-state-server"]\n'
    return json.dumps({SERVERS[client]: {"state": {"command": "npx", "args": ["a-state-server"]}}})


@clients
def test_an_absent_file_is_made_and_goes_again(
    client: str, home: Path, run: Run, install: Run
) -> None:
    done = install(client)
    assert done.exit_code == 0
    assert done.output.count("changed ") == len(tree(home))  # each file once

    store = str(home / ".local/share/mcp-state/state.db")
    made = entry(client, home)
    assert made == {
        "command": PROGRAM,
        "args": ["serve", "--db", store, "--agent", client],
        **CLIENTS[client].first,
    }
    assert stat.S_IMODE((home / CONFIGS[client]).stat().st_mode) == 0o600

    before = tree(home)
    again = install(client)
    assert again.output.startswith("nothing to change in ")
    assert tree(home) == before

    assert run("uninstall", client).exit_code == 0
    assert tree(home) == {}
    assert run("uninstall", client).output.startswith("nothing to change in ")


@clients
@pytest.mark.parametrize("text", ["", "\n", "containers"])
def test_an_empty_file_stays_one(
    client: str, text: str, home: Path, run: Run, install: Run
) -> None:
    if text == "containers":
        text = f'{{ "{SERVERS[client]}" : {{\n }} }}' if client != "codex" else "[mcp_servers]\n"
    path = write(client, home, text)

    assert install(client).exit_code == 0
    assert "state" in read(client, path.read_bytes())[SERVERS[client]]
    assert run("uninstall", client).exit_code == 0

    assert path.read_bytes() == text.encode()


@clients
def test_comments_order_and_line_ends_stay(client: str, home: Path, run: Run, install: Run) -> None:
    text = commented(client)
    path = write(client, home, text)

    done = install(client)
    assert done.exit_code == 0, done.output
    edited = path.read_bytes().decode()
    kept = iter(edited)
    assert all(character in kept for character in text)  # in its order, and nothing left out
    assert "state" in edited
    backup = path.with_name(f"{path.name}.before-mcp-state.bak")
    assert backup.read_bytes() == text.encode()
    assert f"what was there: {backup}" in done.output

    assert install(client).output.startswith("nothing to change in ")
    assert run("uninstall", client).exit_code == 0
    assert path.read_bytes() == text.encode()
    assert backup.read_bytes() == text.encode()


@clients
def test_our_entry_is_brought_up_to_date_and_keeps_what_a_person_changed(
    client: str, home: Path, install: Run
) -> None:
    install(client, "--project", "acme", "--toolset", "all")
    path = home / CONFIGS[client]
    text = path.read_text()
    text = text.replace("startup_timeout_sec = 30", "startup_timeout_sec = 90 # slow disk")
    text = text.replace(PROGRAM, "/old/bin/mcp-state")
    path.write_text(text)

    assert install(client, "--agent", "me").exit_code == 0

    store = str(home / ".local/share/mcp-state/state.db")
    args = ["serve", "--db", store, "--agent", "me", "--project", "acme", "--toolset", "all"]
    changed = {"startup_timeout_sec": 90} if client == "codex" else {}
    assert entry(client, home) == {
        "command": PROGRAM,
        "args": args,
        **CLIENTS[client].first,
        **changed,
    }
    if client == "codex":
        assert "# slow disk" in path.read_text()


@clients
def test_an_entry_of_others_under_our_name_is_refused(
    client: str, home: Path, run: Run, install: Run
) -> None:
    path = write(client, home, foreign(client))

    refused = install(client)
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"error: config_refused: {path}: the server 'state' there does not run "
        "`mcp-state serve`, but npx. "
        "Nothing was written. Choose another name with --name NAME, or remove it first.\n"
    )
    assert tree(home) == {CONFIGS[client]: foreign(client).encode()}

    left = run("uninstall", client)
    assert left.exit_code == 0
    assert f"left: the server 'state' in {path} is not mcp-state" in left.output
    assert tree(home) == {CONFIGS[client]: foreign(client).encode()}

    assert install(client, "--name", "mine").exit_code == 0
    assert entry(client, home, "mine")["command"] == PROGRAM
    assert entry(client, home)["command"] == "npx"
    run("uninstall", client, "--name", "mine")
    assert tree(home) == {CONFIGS[client]: foreign(client).encode()}


@clients
def test_what_cannot_be_parsed_is_left_alone_with_the_line(
    client: str, home: Path, run: Run, install: Run
) -> None:
    text = "a = 1\nb = \n" if client == "codex" else '{\n  "a" 1\n}'
    path = write(client, home, text)

    for refused in (install(client), run("uninstall", client)):
        assert refused.exit_code == 1
        assert f"{path} cannot be parsed: " in refused.stderr
        assert "line 2" in refused.stderr
        assert "It was left as it is." in refused.stderr
    assert tree(home) == {CONFIGS[client]: text.encode()}


@clients
def test_a_read_only_file_is_refused(client: str, home: Path, install: Run) -> None:
    path = write(client, home, "" if client == "codex" else "{}")
    path.chmod(0o444)

    refused = install(client)
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"error: config_refused: {path} is read-only. Nothing was written. Allow it (`chmod u+w "
        f"{path}`), or write by hand what --print shows.\n"
    )
    assert list(tree(home)) == [CONFIGS[client]]


@clients
def test_a_link_stays_one_and_its_file_is_written(
    client: str, home: Path, tmp_path: Path, run: Run, install: Run
) -> None:
    text = commented(client)
    target = tmp_path / "dotfiles" / "file"
    target.parent.mkdir()
    target.write_bytes(text.encode())
    target.chmod(0o640)
    path = write(client, home, "")
    path.unlink()
    path.symlink_to(target)

    assert install(client).exit_code == 0
    assert path.is_symlink()
    assert b"mcp-state" in target.read_bytes()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [one.name for one in target.parent.iterdir()] == ["file"]

    assert run("uninstall", client).exit_code == 0
    assert path.is_symlink()
    assert target.read_bytes() == text.encode()


def test_a_link_to_nothing_leads_to_a_new_file(home: Path, run: Run, install: Run) -> None:
    (home / ".cursor").mkdir()
    path = home / CONFIGS["cursor"]
    path.symlink_to(home / "dotfiles" / "mcp.json")

    assert install("cursor").exit_code == 0
    assert path.is_symlink()
    assert (home / "dotfiles" / "mcp.json").is_file()
    assert run("uninstall", "cursor").exit_code == 0
    assert path.is_symlink()
    assert not path.exists()


def test_a_file_that_is_no_utf_8_is_left_alone(home: Path, install: Run) -> None:
    path = home / ".claude.json"
    path.write_bytes('{"a": "ä"}'.encode("utf-16"))
    refused = install("claude-code")
    assert refused.exit_code == 1
    assert f"{path} is not UTF-8 (byte 0)" in refused.stderr


def test_nothing_is_written_if_one_of_several_files_is_refused(home: Path, install: Run) -> None:
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text('{"permissions": {"allow": "all"}}')
    before = tree(home)

    refused = install("claude-code")
    assert refused.exit_code == 1
    assert "settings.json: line 1: permissions.allow is not a list" in refused.stderr
    assert tree(home) == before


def test_what_is_no_regular_file_is_refused(home: Path, install: Run) -> None:
    """A pipe would be waited for, and a device replaced."""
    path = home / CONFIGS["cursor"]
    path.parent.mkdir()
    for make in (os.mkfifo, os.mkdir, partial(os.symlink, "/dev/null")):
        make(path)
        refused = install("cursor")
        assert refused.stderr == (
            f"error: config_refused: {path} is no regular file. Nothing was written. Move it away, "
            "or name another file.\n"
        )
        (path.rmdir if path.is_dir() else path.unlink)()


def test_a_failure_in_the_middle_tells_what_was_changed_and_leaves_no_half(
    home: Path, install: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = home / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text("{}")
    monkeypatch.setattr(files.os, "fsync", full_disk_for(settings.parent))
    refused = install("claude-code")
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"error: config_refused: {settings}: No space left on device. It was left as it was. "
        "Correct that, or write by hand what --print shows. Changed before that: "
        f"{home / CONFIGS['claude-code']}; the next run completes it.\n"
    )
    assert [one.name for one in settings.parent.iterdir()] == ["settings.json"]
    assert settings.read_text() == "{}"


def full_disk_for(directory: Path) -> Callable[[int], None]:
    def fsync(handle: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}").startswith(str(directory)):
            raise OSError(errno.ENOSPC, "")

    return fsync


def test_what_somebody_writes_meanwhile_is_not_overwritten(
    home: Path, install: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / ".claude.json"
    path.write_text('{"n": 0}')
    write_file = files.write
    turns = iter(('{"n": 1}', '{"n": 2}'))

    def interrupted(path: Path, *texts: Any, **options: Any) -> Path | None:
        if path.name == ".claude.json" and (text := next(turns, None)) is not None:
            path.write_text(text, encoding="utf-8")
        return write_file(path, *texts, **options)

    monkeypatch.setattr(files, "write", interrupted)
    assert install("claude-code").exit_code == 0
    assert json.loads(path.read_text())["n"] == 2
    assert "state" in json.loads(path.read_text())["mcpServers"]


def test_a_client_that_never_stops_writing_is_refused(
    home: Path, install: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / ".claude.json"
    write_file = files.write
    count = iter(range(100))

    def interrupted(path: Path, *texts: Any, **options: Any) -> Path | None:
        if path.name == ".claude.json":
            path.write_text(f'{{"n": {next(count)}}}', encoding="utf-8")
        return write_file(path, *texts, **options)

    monkeypatch.setattr(files, "write", interrupted)
    refused = install("claude-code")
    assert refused.exit_code == 1
    assert "the files change while they are edited. Close the client" in refused.stderr
    assert json.loads(path.read_text()) == {"n": 2}
    assert [one.name for one in home.iterdir()] == [".claude.json"]


def test_a_copy_never_overwrites_an_earlier_one(home: Path, run: Run, install: Run) -> None:
    path = write("cursor", home, '{"a": 1}')
    install("cursor")
    install("cursor", "--project", "acme")
    run("uninstall", "cursor")

    copies = [path.with_name(f"mcp.json.before-mcp-state{n}.bak") for n in ("", "-2", "-3")]
    assert files.backups(path) == copies[::-1]
    assert copies[0].read_text() == path.read_text() == '{"a": 1}'
    assert "acme" not in copies[1].read_text()
    assert "acme" in copies[2].read_text()


def test_a_copy_that_somebody_spoiled_is_passed_over(home: Path, run: Run, install: Run) -> None:
    path = write("cursor", home, '{ "mcpServers" : { } }')
    install("cursor")
    install("cursor", "--project", "acme")
    files.backups(path)[0].write_bytes(b"{ \xff")
    run("uninstall", "cursor")
    assert path.read_text() == '{ "mcpServers" : { } }'


def test_a_copy_is_as_private_as_the_file(home: Path, install: Run) -> None:
    path = write("claude-code", home, "{}")
    path.chmod(0o600)
    install("claude-code")
    (copy,) = files.backups(path)
    assert stat.S_IMODE(copy.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_dry_run_shows_the_difference_and_writes_nothing(home: Path, run: Run) -> None:
    path = write("cursor", home, '{\n  "a": 1\n}\n')
    shown = run("install", "cursor", "--dry-run")
    assert shown.exit_code == 0
    assert shown.output.startswith(f'--- {path}\n+++ {path}\n@@ -1,3 +1,16 @@\n {{\n-  "a": 1\n')
    assert tree(home) == {CONFIGS["cursor"]: b'{\n  "a": 1\n}\n'}
    assert files.backups(path) == []

    run("install", "cursor", "--no-proof")
    assert run("install", "cursor", "--dry-run").output == "nothing to change in Cursor\n"
    before = tree(home)
    assert '-    "state": {' in run("uninstall", "cursor", "--dry-run").output
    assert tree(home) == before


def test_in_a_large_file_only_the_lines_around_a_change_are_compared(
    home: Path, run: Run, install: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude Code keeps the past of all projects beside the servers; difflib takes minutes."""
    sizes: list[int] = []
    compare = difflib.unified_diff

    def counted(before: list[str], after: list[str], *rest: Any, **more: Any) -> Iterator[str]:
        sizes.append(len(before))
        return compare(before, after, *rest, **more)

    past = {f"/p/{n}": {"n": n} for n in range(50)}
    found = {"past": past, "mcpServers": {"docs": {"command": "docs"}}, "more": past}
    path = write("claude-code", home, json.dumps(found, indent=2))
    before = path.read_text().splitlines()
    monkeypatch.setattr("difflib.unified_diff", counted)
    shown = run("install", "claude-code", "--dry-run").output
    monkeypatch.undo()
    assert sizes[0] < 10

    install("claude-code")
    after = path.read_text().splitlines()
    patch = [*compare(before, after, str(path), str(path), lineterm="")]
    assert shown.splitlines()[: len(patch)] == patch


@clients
def test_print_shows_what_an_empty_file_would_become(
    client: str, home: Path, run: Run, install: Run
) -> None:
    shown = run("install", client, "--print")
    assert shown.exit_code == 0
    assert tree(home) == {}
    install(client)
    for path, text in tree(home).items():
        assert f"# {home / path}\n{text.decode()}" in shown.output


def test_the_answer_in_json(home: Path, install: Run) -> None:
    done = json.loads(install("cursor", "--json", "--name", "s2").stdout)
    (changed,) = done.pop("changed")
    assert changed.pop("lines")[0] == "+{"
    assert changed == {
        "path": str(home / ".cursor/mcp.json"),
        "what": ["server s2"],
        "backup": "",
        "gone": False,
    }
    assert done == {
        "client": "cursor",
        "notes": [
            "approval: Cursor asks for a tool that is not in its allowlist (Settings, Auto-run)",
            "restart Cursor to load it",
        ],
        "undo": "mcp-state uninstall cursor --name s2",
    }


READING = (
    "orient", "search", "memory_get", "thread_list", "thread_get", "journal_tail", "run_resume",
    "fact_list", "blob_get",
)  # fmt: skip


def test_claude_code_runs_the_tools_that_read_and_on_request_all(
    home: Path, run: Run, install: Run
) -> None:
    settings = home / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text('{"permissions": {"allow": ["Bash(ls)"], "deny": []}}')

    install("claude-code")
    rules = json.loads(settings.read_text())["permissions"]
    assert rules == {"allow": ["Bash(ls)", *(f"mcp__state__{one}" for one in READING)], "deny": []}

    install("claude-code", "--allow-writes")
    rules = json.loads(settings.read_text())["permissions"]["allow"]
    assert "mcp__state__journal_append" in rules
    assert len(rules) == len(set(rules)) == 25
    assert "unasked, and the others too\n" in install("claude-code").output

    run("uninstall", "claude-code")
    assert settings.read_text() == '{"permissions": {"allow": ["Bash(ls)"], "deny": []}}'


def test_rules_about_a_server_of_others_stay(home: Path, run: Run) -> None:
    write("claude-code", home, foreign("claude-code"))
    settings = home / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text('{"permissions": {"allow": ["mcp__state__read"]}}')
    before = tree(home)
    assert run("uninstall", "claude-code").exit_code == 0
    assert tree(home) == before


def test_a_rule_for_the_whole_server_is_enough(home: Path, install: Run) -> None:
    settings = home / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text('{"permissions": {"allow": ["mcp__state"]}}')
    install("claude-code")
    assert settings.read_text() == '{"permissions": {"allow": ["mcp__state"]}}'


def test_gemini_gets_a_policy_of_its_own(home: Path, run: Run, install: Run) -> None:
    policy = home / ".gemini/policies/mcp-state.toml"
    install("gemini")
    rule = {"mcpName": "state", "toolName": "*", "decision": "allow", "priority": 100}
    reads = {"toolAnnotations": {"readOnlyHint": True}}
    assert tomllib.loads(policy.read_text()) == {"rule": [rule | reads]}

    install("gemini", "--allow-writes")
    assert tomllib.loads(policy.read_text()) == {"rule": [rule]}
    install("gemini")
    assert tomllib.loads(policy.read_text()) == {"rule": [rule]}

    policy.write_text("# somebody else's\n")
    assert "it is not from `mcp-state install`" in install("gemini").stderr
    run("uninstall", "gemini")
    assert policy.read_text() == "# somebody else's\n"


@pytest.mark.parametrize(
    ("client", "variable", "path"),
    [
        ("codex", "CODEX_HOME", "config.toml"),
        ("claude-code", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("claude-code", "CLAUDE_CONFIG_DIR", "settings.json"),
        ("claude-desktop", "XDG_CONFIG_HOME", "Claude/claude_desktop_config.json"),
        ("vscode", "XDG_CONFIG_HOME", "Code/User/mcp.json"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json"),
    ],
)
def test_a_client_that_was_moved_is_found(
    client: str, variable: str, path: str, home: Path, tmp_path: Path, install: Run
) -> None:
    assert install(client, **{variable: str(tmp_path / "moved")}).exit_code == 0
    assert (tmp_path / "moved" / path).is_file()
    assert tree(home) == {}


@pytest.mark.parametrize(
    ("platform", "client", "path"),
    [
        ("darwin", "claude-desktop", "Library/Application Support/Claude"),
        ("darwin", "vscode", "Library/Application Support/Code/User"),
        ("win32", "claude-desktop", "AppData/Roaming/Claude"),
        ("win32", "vscode", "AppData/Roaming/Code/User"),
        ("linux", "vscode", ".config/Code/User"),
    ],
)
def test_where_programs_with_windows_keep_their_files(
    platform: str, client: str, path: str, home: Path
) -> None:
    assert CLIENTS[client].config(Place(home, {}, platform)).parent == home / path


def test_claude_desktop_of_the_windows_store_reads_its_own_file(home: Path) -> None:
    config = CLIENTS["claude-desktop"].config
    local, name = home / "Local", "claude_desktop_config.json"
    place = Place(home, {"APPDATA": str(home / "R"), "LOCALAPPDATA": str(local)}, "win32")
    assert config(place) == home / "R/Claude" / name

    (local / "Packages/Claude_a1").mkdir(parents=True)  # no data: what an old package left
    assert config(place) == home / "R/Claude" / name
    (local / "Packages/Claude_b2/LocalCache/Roaming").mkdir(parents=True)
    assert config(place) == local / "Packages/Claude_b2/LocalCache/Roaming/Claude" / name
    used = local / "Packages/Claude_c3/LocalCache/Roaming/Claude" / name
    used.parent.mkdir(parents=True)
    used.write_text("{}")
    assert config(place) == used


def test_another_file_can_be_named(home: Path, tmp_path: Path, run: Run, install: Run) -> None:
    path = tmp_path / "project" / ".vscode" / "mcp.json"
    done = install("vscode", "--config", str(path))
    assert json.loads(path.read_text())["servers"]["state"]["type"] == "stdio"
    assert f"to undo it: mcp-state uninstall vscode --config {path}\n" in done.output
    assert tree(home) == {}
    run("uninstall", "vscode", "--config", str(path))
    assert not path.exists()


def test_options_end_up_in_the_entry(
    home: Path, tmp_path: Path, install: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(
        'description = ""\ninstructions = ""\nread_only = true\ntools = ["orient"]\n'
    )
    store = str(tmp_path / "s.db")
    install("codex", "--db", store, "--project", ".", "--agent", "me", "--toolset", "mine.toml")
    args = ["serve", "--db", store, "--agent", "me", "--project", str(tmp_path)]
    args += ["--toolset", str(tmp_path / "mine.toml")]
    assert sorted(entry("codex", home)["args"]) == sorted(args)


def test_the_environment_names_the_store_but_no_project(
    home: Path, tmp_path: Path, install: Run
) -> None:
    store = str(tmp_path / "other.db")
    install("cursor", MCP_STATE_DB=store, MCP_STATE_PROJECT="acme", MCP_STATE_AGENT="x")
    assert entry("cursor", home)["args"] == ["serve", "--db", store, "--agent", "cursor"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "mcp-state install needs a client. It is one of codex, claude-code"),
        (["claude"], "there is no client 'claude'. Did you mean claude-code?"),
        (["cursor", "--hooks"], "hooks are for codex and claude-code, not cursor."),
        (["cursor", "--instructions"], "Cursor has no file for instructions that hold everywhere."),
        (["cursor", "--allow-writes"], "--allow-writes is for claude-code and gemini, not cursor."),
        (["codex", "--uninstall"], "install only adds. `mcp-state uninstall codex` removes."),
        (["codex", "--name", "a b"], "--name is 'a b'. Use up to 64 letters"),
        (["codex", "--toolset", "none"], "there is no toolset 'none'."),
        (["codex", "--db", "state.db"], "--db is 'state.db', a relative path"),
    ],
)
def test_a_wrong_word_is_told_with_the_right_one(
    words: list[str], said: str, home: Path, run: Run
) -> None:
    refused = run("install", *words)
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"error: bad_argument: {said}")
    assert tree(home) == {}


def test_an_entry_made_by_hand_gets_the_store_and_keeps_the_rest(home: Path, install: Run) -> None:
    ours = {"command": "uvx", "args": ["mcp-state", "serve", "--trace"], "env": {"A": "1"}}
    write("cursor", home, json.dumps({"mcpServers": {"state": ours}}))
    install("cursor")
    store = str(home / ".local/share/mcp-state/state.db")
    args = ["serve", "--trace", "--db", store, "--agent", "cursor"]
    assert entry("cursor", home) == {"command": PROGRAM, "args": args, "env": {"A": "1"}}


def test_a_store_and_an_agent_that_an_entry_names_in_another_way_stay(
    home: Path, install: Run
) -> None:
    """By variables, as `claude mcp add -e` writes them, and as `--db=PATH`."""
    variables = {"MCP_STATE_DB": "/mine.db", "MCP_STATE_AGENT": "bob", "MCP_STATE_PROJECT": "acme"}
    given = {"command": "mcp-state", "args": ["serve"], "env": variables}
    write("claude-code", home, json.dumps({"mcpServers": {"state": given}}))
    install("claude-code", "--hooks")
    assert entry("claude-code", home) == {**given, "command": PROGRAM}
    hooks = json.loads((home / ".claude/settings.json").read_text())["hooks"]
    words = "hook stop --db /mine.db --agent bob --project acme"
    assert hooks["Stop"][0]["hooks"][0]["command"] == f"{PROGRAM} {words}"

    equal = {"command": "mcp-state", "args": ["serve", "--db=/my=1.db", "--agent=bob"]}
    write("cursor", home, json.dumps({"mcpServers": {"state": equal}}))
    install("cursor", "--agent", "eve")
    args = ["serve", "--db", "/my=1.db", "--agent", "eve"]
    assert entry("cursor", home) == {"command": PROGRAM, "args": args}


def test_a_server_that_is_switched_off_stays_so_and_is_told(home: Path, install: Run) -> None:
    text = '[mcp_servers.state]\ncommand = "mcp-state"\nargs = ["serve"]\nenabled = false\n'
    path = write("codex", home, text)
    said = f"warning: the server is switched off in {path}; that was left as it is\n"
    assert said in install("codex").output
    assert entry("codex", home)["enabled"] is False


def test_a_file_on_one_line_is_not_shown_with_what_else_it_holds(home: Path, install: Run) -> None:
    write("cursor", home, json.dumps({"token": "secret" * 100}))
    done = install("cursor").output
    assert "    - (a line of 613 characters)\n" in done
    assert "secret" not in done


def test_claude_desktop_without_a_project_says_what_that_means(home: Path, install: Run) -> None:
    said = "reads list the projects and writes have to name one; --project NAME chooses one"
    assert said in install("claude-desktop").output
    assert said not in install("claude-desktop", "--project", "acme").output


def test_a_command_in_a_cache_is_told(
    home: Path, tmp_path: Path, install: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "uv" / "archive-v0" / "abc" / "bin" / "mcp-state"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    done = install("cursor")
    assert entry("cursor", home)["command"] == str(program)
    assert f"warning: {program} lies in a cache that gets cleaned" in done.output


def test_the_name_on_the_path_is_preferred_to_what_it_leads_to(
    home: Path, tmp_path: Path, install: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "bin" / "mcp-state"
    link.parent.mkdir()
    link.symlink_to(PROGRAM)
    monkeypatch.setattr(sys, "argv", [PROGRAM])
    install("cursor", PATH=f"{link.parent}:{os.environ['PATH']}")
    assert entry("cursor", home)["command"] == str(link)
