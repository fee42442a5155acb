"""What `mcp-state --help` says: the commands by what one wants to do, and what holds for all.

A command that is in no section is listed at the end; a test wants it in one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

SECTIONS: Mapping[str, Sequence[str]] = {
    "See where the work stands": (
        *("orient", "threads", "due", "journal", "search", "history", "web"),
    ),
    "Work, and write down what is known": (
        *("thread", "memory", "objective", "facts", "runs", "blob"),
    ),
    "Hand it over": ("handoff", "export", "import"),
    "Connect agents": ("install", "uninstall", "hook", "serve", "token", "demo"),
    "Look after the store": (
        *("projects", "doctor", "backup", "restore", "migrate-store", "purge", "completion"),
    ),
}
EXAMPLES = """\
mcp-state orient
mcp-state thread set import --title "Fix the import" --next-action rerun
mcp-state threads --status blocked
mcp-state journal append "keep the old parser" --kind decision
mcp-state journal tail -f
"""
ENVIRONMENT = (
    ("MCP_STATE_DB", "Path of the store, absolute; --db wins."),
    ("MCP_STATE_PROJECT", "Name or directory of the project; --project wins."),
    ("MCP_STATE_AGENT", "Name to act as; --agent wins. Without one it is person."),
    ("CLAUDE_PROJECT_DIR", "The project's directory, as Claude Code says it."),
    ("CLAUDE_CODE_SESSION_ID", "The session that writes, as Claude Code says it."),
    ("NO_COLOR, CLICOLOR=0", "No colour on a terminal. In a pipe there never is any."),
)
EXIT_CODES = (
    ("0", "Done."),
    ("1", "Refused, with nothing changed; stderr has one line: error: CODE: FACT. NEXT STEP."),
    ("2", "The words on the command line are wrong."),
    ("3", "due: nothing is due. runs step begin: the step is done already."),
    ("130", "Interrupted."),
)
OUTPUT = (
    "--json prints all that a command knows, as one value (journal tail -f: one entry a line). "
    "Times are RFC 3339 in UTC, lengths are characters; what is not known is left out. `scope` is "
    "the project, how it was found, and its counts."
)
FILES = (
    ("state.db", "The store, in the data directory of the user; doctor names it."),
    ("state.db-wal, -shm", "SQLite's; they belong to it while it is open."),
    ("state.db-queue", "Where writers stand in line."),
    ("state.db.vN-DATE.bak", "The store before a newer version changed its schema."),
)


def write_commands(ctx: click.Context, group: click.Group, formatter: click.HelpFormatter) -> None:
    """The commands by what one wants to do."""
    names = group.list_commands(ctx)
    listed = {name for section in SECTIONS.values() for name in section}
    sections = {**SECTIONS, "More": [name for name in names if name not in listed]}
    for title, members in sections.items():
        commands = [(n, group.get_command(ctx, n)) for n in members if n in names]
        if commands:
            with formatter.section(title):
                formatter.write_dl([(n, _briefly(one)) for n, one in commands if one is not None])


def _briefly(command: click.Command) -> str:
    """The first clause of its help."""
    return f"{command.get_short_help_str(200).partition(';')[0].rstrip('.')}."


def write_notes(formatter: click.HelpFormatter) -> None:
    """What holds for every command."""
    for title, rows in (("Environment", ENVIRONMENT), ("Exit codes", EXIT_CODES)):
        with formatter.section(title):
            formatter.write_dl(rows)
    with formatter.section("Output"):
        formatter.write_text(OUTPUT)
    with formatter.section("Files"):
        formatter.write_dl(FILES)
