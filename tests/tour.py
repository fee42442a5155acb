"""A walk through the command line: every command at least once, on one store that fills up.

Tests look at what each of these prints, so a new command has to be added here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import click
from click.testing import CliRunner, Result

from mcp_state.cli import main

ELSEWHERE: dict[str, str] = {
    "serve": "speaks the protocol on its standard output",
    "demo": "is walked in test_demo.py",
    "hook": "speaks to a client on its standard output: test_hook_processes.py",
    "web": "serves until it is interrupted: test_web_command.py",
    "completion": "prints a script, which test_cli_help.py tries in a shell",
    "migrate-store": "has two stores: test_migrate_store.py",
}
"""Commands that cannot be walked here, and why."""

WIDE = "索引を再構築する " * 12
URL = "https://ci.example.com/acme/api/actions/runs/" + "0123456789abcdef" * 12
WORD = "pneumonoultramicroscopicsilicovolcanoconiosis" * 4
HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \u202egnp.exe\u202c \x9b2J\ttab \r\n[acme · 0] zalgo"
    + "\u0301" * 40
)
LOG = "".join(f"line {n}\n" for n in range(30))
BLOB = f"b-{sha256(LOG.encode()).hexdigest()[:32]}"
HANDOFF = "the key of the last handoff"
TOKEN = "the id of the last token"
FILE = "a new file"
SAVED = "the file before"
"""Stand for what is known only while walking."""

WALK: Sequence[Sequence[str]] = (
    ("orient",),
    ("threads",),
    ("due",),
    ("journal",),
    ("memory",),
    ("facts",),
    ("runs",),
    ("runs", "resume"),
    ("history",),
    ("objective",),
    ("projects",),
    ("search", "anything"),
    ("objective", "set", "Ship import v2", "--intent", "Customers can leave the old system"),
    ("objective", "set", "Ship v2", "--reason", "they moved the date", "--expected-version", "1"),
    ("facts", "record", "pr-830", "PR 830 is open", "--check", "gh pr view 830 --json state"),
    ("facts", "record", "contract", f"It has three fields {WIDE}", "--check", "file:README.md"),
    ("facts", "record", "friday", "We can merge", "--because", "pr-830", "--because", "contract"),
    ("facts", "record", "old", "Files of 2023 were read by hand", "--archival"),
    ("facts", "verify", "pr-830", "--holds", "--evidence", '{"state":"OPEN"}'),
    ("thread", "set", "import", "--title", "Fix the import", "--next-action", "rerun the test"),
    (
        *("thread", "set", "import", "--priority", "2", "--criterion", "reads both formats"),
        *("--criterion", f"keeps {URL}", "--relies-on", "friday", "--place", "src/import"),
    ),
    ("thread", "set", "docs", "--title", WIDE, "--next-action", WORD, "--depends-on", "import"),
    ("thread", "set", "evil", "--title", HOSTILE, "--next-action", HOSTILE),
    (
        *("thread", "set", "pr-830", "--status", "watching", "--recheck-after", "1s"),
        *("--check", f"curl {URL}"),
    ),
    ("thread", "set", "sdk-bug", "--status", "blocked", "--waiting-on", "upstream"),
    ("thread", "set", "--status", "dropped", "--note", "not worth it", "--", "-dash"),
    ("thread", "claim", "import", "--lease", "2h"),
    ("thread", "release", "import", "--force"),
    ("thread", "check", "import", "1", "--passes", "--evidence", "pytest exit 0"),
    ("thread", "release", "import"),
    ("thread", "claim"),
    ("memory", "set", "plan", f"1. importer v2 reads both\n2. {WIDE}\n3. {URL}"),
    ("memory", "append", "plan", "\n4. and the docs", "--idempotency-key", "four"),
    ("memory", "append", "plan", "\n4. and the docs", "--idempotency-key", "four"),
    ("memory", "set", "evil", HOSTILE),
    ("memory", "lock", "plan", "--reason", "agreed with the customer"),
    ("memory", "unlock", "plan"),
    ("memory", "set", "gone", "soon"),
    ("memory", "delete", "gone"),
    ("memory", "gone", "--version", "1"),
    ("memory", "restore", "gone", "1"),
    ("journal", "append", "keep the old parser", "--kind", "decision", "--thread", "import"),
    ("journal", "append", HOSTILE),
    ("journal", "append", f"{WORD} {WIDE}\n{URL}", "--kind", "dead_end"),
    ("runs", "begin", "reindex", f"Reindex the archive {WIDE}", "--attempts", "40"),
    ("runs", "step", "begin", "reindex", "file-1"),
    ("runs", "step", "end", "reindex", "file-1", "1,204 rows", "--ok", "--tokens-in", "900"),
    ("runs", "step", "begin", "reindex", "file-1"),
    ("runs", "step", "begin", "reindex", "file-2"),
    ("runs", "step", "end", "reindex", "file-2", HOSTILE, "--failed"),
    ("runs", "step", "begin", "reindex", "file-3"),
    ("runs", "checkpoint", "reindex", f"at 1 {URL}", "--done", "1", "--total", "3"),
    ("runs", "checkpoint", "reindex", "at 2", "--next-action", "go on at 3", "--done", "2"),
    ("memory", "set", "cursor", "41", "--run", "reindex"),
    ("runs", "raise", "reindex", "--attempts", "50", "--reason", "worth it"),
    ("runs", "reset", "reindex", "file-2", "--reason", "the disk is larger now"),
    ("runs", "begin", "flaky", "Fix the flaky test", "--attempts", "1"),
    ("runs", "begin", "flaky", "Fix another test", "--attempts", "2"),
    ("runs", "step", "begin", "flaky", "patch"),
    ("runs", "step", "end", "flaky", "patch", "--failed"),
    ("runs", "finish", "flaky", "failed", "--reflection", "it is the clock"),
    ("blob", "put", "-", "--summary", "the log of the build"),
    ("blob", "get", BLOB),
    ("blob", BLOB, "--limit", "20"),
    ("handoff", "create", f"The importer is half done {WIDE}", "--to", "ben"),
    ("export", FILE, "--handoff", HANDOFF),
    ("import", SAVED, "--project", "other"),
    ("handoff", "accept", HANDOFF),
    ("install", "cursor", "--config", FILE, "--no-proof"),
    ("install", "cursor", "--config", SAVED, "--dry-run", "--project", "other"),
    ("uninstall", "cursor", "--config", SAVED),
    ("purge", "--dry-run"),
    ("thread", "import"),
    ("thread", "docs"),
    ("thread", "evil"),
    ("threads",),
    ("threads", "--status", "done"),
    ("threads", "--limit", "2"),
    ("due",),
    ("journal",),
    ("journal", "-n", "1"),
    ("journal", "--since", "1", "-n", "1"),
    ("memory",),
    ("memory", "plan"),
    ("memory", "--run", "reindex"),
    ("objective",),
    ("facts", "verify", "pr-830", "--fails", "--evidence", '{"state":"MERGED"}'),
    ("facts",),
    ("facts", "--limit", "1"),
    ("facts", "show", "friday"),
    ("runs",),
    ("runs", "show", "reindex"),
    ("runs", "resume"),
    ("runs", "resume", "reindex", "--number", "1"),
    ("runs", "resume", "flaky"),
    ("search", "import"),
    ("search", "zebra"),
    ("search", "rebuild", "索引", "--limit", "1"),
    ("history",),
    ("history", "thread:import"),
    ("history", "run:reindex", "--limit", "2"),
    ("history", "--since", "3", "--limit", "2"),
    ("projects",),
    ("projects", "rename", "other", "another"),
    ("journal", "append", "written aside", "--project", "side"),
    ("token", "list"),
    ("token", "create", "--project", "acme", "--project", "side", "--agent", "codex"),
    ("token", "create", "--every-project", "--toolset", "readonly", "--agent", WORD[:90]),
    ("projects", "merge", "side", "acme"),
    ("token", "list"),
    ("token", "revoke", TOKEN),
    ("orient",),
    ("orient", "--max-tokens", "300"),
    ("orient", "--max-tokens", "5000"),
    ("doctor",),
    ("backup", FILE),
    ("restore", SAVED),
)
"""The words of each command line."""

REFUSALS: Sequence[Sequence[str]] = (
    ("thread", "set", "new", "--status", "blocked"),
    ("thread", "set", "new", "--status", "done"),
    ("thread", "set", "new", "--status", "dropped"),
    ("thread", "set", "new", "--status", "finished"),
    ("thread", "set", "new", "--waiting-on", "ann"),
    ("thread", "set", "new", "--recheck-after", "soon"),
    ("thread", "set", "new", "--priority", "12"),
    ("thread", "set", "new", "--clear", "title"),
    ("thread", "set", "new", "--lease-token", "3"),
    ("thread", "set", "new", "--expected-version", "7"),
    ("thread", "set", "new", "--depends-on", "nobody"),
    ("thread", "set", "new", "--relies-on", "nothing"),
    ("thread", "set", "import", "--expected-version", "1"),
    ("thread", "set", "import", "--expected-version", "0"),
    ("thread", "set", "import", "--status", "done", "--evidence", "x"),
    ("thread", "set", "import", "--clear", "note", "--note", "x"),
    ("thread", "set", "docs", "--title", "x", "--lease-token", "999"),
    ("thread", "set", "--status", "active", "--", "-dash"),
    ("thread", "set", "import", "--depends-on", "docs"),
    ("thread", "check", "docs", "1", "--passes"),
    ("thread", "check", "import", "9", "--passes"),
    ("thread", "claim", "--lease-token", "3"),
    ("thread", "claim", "--", "-dash"),
    ("thread", "get", "improt"),
    ("memory", "set", "plan", "x", "--expected-version", "1"),
    ("memory", "set", "plan", "x" * 5000),
    ("memory", "set", "plan", ""),
    ("memory", "append", "plan", "x" * 4000),
    ("memory", "get", "plan", "--version", "99"),
    ("memory", "get", "nothing"),
    ("memory", "delete", "nothing"),
    ("journal", "append", "x", "--thread", "nobody"),
    ("journal", "append", "x" * 9000),
    ("journal", "append", "-----BEGIN RSA PRIVATE KEY-----"),
    ("journal", "tail", "--run", "nobody"),
    ("objective", "set", "Another"),
    ("objective", "set", "Another", "--reason", "because"),
    ("objective", "set", "Another", "--reason", "because", "--expected-version", "1"),
    ("facts", "record", "new"),
    ("facts", "record", "pr-830", "PR 830 is merged"),
    ("facts", "record", "pr-830", "PR 830 is merged", "--expected-version", "1"),
    ("facts", "record", "new", "x", "--because", "pr-830"),
    ("facts", "record", "new", "x", "--because", "friday"),
    ("facts", "verify", "pr-830", "--holds"),
    ("facts", "verify", "friday", "--holds", "--evidence", "x"),
    ("facts", "--trust", "trusted", "--due"),
    ("facts", "show", "nothing"),
    ("runs", "begin", "new"),
    ("runs", "checkpoint", "new", "x", "--expected-number", "3"),
    ("runs", "checkpoint", "reindex", "x", "--expected-number", "9"),
    ("runs", "checkpoint", "reindex", "x" * 9000),
    ("runs", "resume", "reindex", "--number", "9"),
    ("runs", "finish", "reindex", "completed"),
    ("runs", "finish", "reindex", "failed"),
    ("runs", "finish", "flaky", "completed", "--evidence", "x"),
    ("runs", "step", "begin", "flaky", "patch"),
    ("runs", "step", "begin", "nobody", "x"),
    ("runs", "step", "end", "reindex", "never", "--ok"),
    ("runs", "step", "end", "reindex", "file-1", "other", "--ok"),
    ("runs", "step", "end", "reindex", "file-2", "other", "--ok"),
    ("runs", "step", "end", "reindex", "file-1", "x", "--ok", "--tokens-in", "-1"),
    ("blob", "get", "b-0000000000"),
    ("handoff", "accept", "h-1"),
    ("handoff", "accept", HANDOFF),
    ("search", "x", "--cursor", "y"),
    ("search", "x", "--kind", "y"),
    ("history", "nothing"),
    ("threads", "--cursor", "x"),
    ("threads", "--status", "finished"),
    ("facts", "--trust", "much"),
    ("orient", "--max-tokens", "1"),
    ("projects", "merge", "acme", "nobody"),
    ("export", FILE, "--handoff", "h-1"),
    ("token", "create", "--agent", "codex"),
    ("token", "create", "--project", "acme", "--agent", "codex", "--expires", "never"),
    ("token", "revoke", TOKEN),
    ("token", "revoke", "t-nothing"),
)
"""What is refused after the walk, in whatever words."""

Invoke = Callable[..., Result]


def leaves(
    group: click.Group = main, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """All commands that do something, by the words that call them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


class Guide:
    """Fills in what is known only while walking."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._handoff = "h-none"
        self._token = "t-none"
        self._files = 0

    def words(self, words: Sequence[str]) -> list[str]:
        """The words with real names in the place of those that stand for them."""
        if FILE in words:
            self._files += 1
        here = self._directory
        real = {
            HANDOFF: self._handoff,
            TOKEN: self._token,
            FILE: str(here / f"{self._files}.out"),
            SAVED: str(here / f"{self._files}.out"),
        }
        return [real.get(word, word) for word in words]

    def listen(self, printed: str) -> None:
        """Learn the key of a handoff that was offered, the id of a token that was made."""
        if offered := re.search(r"offered as\s+(h-\w+)", printed):
            self._handoff = offered[1]
        if made := re.search(r"mcps_(t-[0-9a-z]+)_", printed):
            self._token = made[1]


def walk(invoke: Invoke, directory: Path) -> Iterator[tuple[Sequence[str], Result]]:
    """Run every command of the walk, then what is refused; a step that fails is a fault here."""
    guide = Guide(directory)
    for words in WALK:
        result = invoke(*guide.words(words), stdin=LOG)
        assert result.exit_code in (0, 3), (words, result.output)
        guide.listen(result.stdout)
        yield words, result
    for words in REFUSALS:
        result = invoke(*guide.words(words))
        assert result.exit_code in (1, 2), (words, result.output)
        yield words, result


class Walked:
    """A store that the whole walk has been through, which is copied, and what was said."""

    def __init__(self, directory: Path) -> None:
        self.store = directory / "state.db"
        self.said = list(walk(runner(self.store), directory))


def runner(store: Path) -> Invoke:
    """What runs commands on this store."""
    env = {"MCP_STATE_DB": str(store), "MCP_STATE_PROJECT": "acme", "MCP_STATE_AGENT": None}
    env |= {"CLAUDE_PROJECT_DIR": None, "CLAUDE_CODE_SESSION_ID": None}

    def invoke(*words: str, stdin: str = "") -> Result:
        return CliRunner().invoke(main, words, input=stdin, env=env)

    return invoke
