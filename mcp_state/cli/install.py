"""`mcp-state install` and `uninstall`: the configuration of a client, proved by a first call."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mcp_state.cli import complete
from mcp_state.cli import install_words as words
from mcp_state.cli.common import read_settings
from mcp_state.cli.groups import Documented
from mcp_state.cli.output import print_result, print_text
from mcp_state.errors import BadArgument, ConfigRefused, NotAnswered
from mcp_state.install import files, plan
from mcp_state.install.clients import CLIENTS, MINIMAL, START_LIMIT, Client, Place
from mcp_state.install.parts import Wish, allows_writes, hooks_switch, options_of
from mcp_state.install.proof import Proof, prove

_TRIES = 3
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _named(ctx: click.Context, parameter: click.Parameter, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadArgument(
            f"--name is {name!r}",
            "Use up to 64 letters, digits, - and _: it is part of tool names.",
        )
    return name


def _known(ctx: click.Context, parameter: click.Parameter, name: str) -> str:
    if name in CLIENTS:
        return name
    near = difflib.get_close_matches(name.lower(), CLIENTS, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise BadArgument(
        f"there is no client {name!r}" if name else f"{ctx.command_path} needs a client",
        f"{hint}It is one of {', '.join(CLIENTS)}.",
    )


_CLIENT = click.argument(
    "client",
    default="",
    metavar="CLIENT",
    callback=_known,
    shell_complete=complete.words(*CLIENTS),
)
_SHARED = (
    click.option(
        "--name", default="state", show_default=True, callback=_named, help="Name of the server."
    ),
    click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The client's file with the servers, if not the usual one.",
    ),
    click.option(
        "--instructions-file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The file with instructions, if not the usual one.",
    ),
    click.option("--dry-run", is_flag=True, help="Show the difference; write nothing."),
    click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for programs."),
)


def _shared(command: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(_SHARED):
        command = option(command)
    return command


@click.command(
    cls=Documented,
    epilog="""
    mcp-state install codex --hooks --dry-run
    mcp-state install codex --hooks
    mcp-state install claude-code --hooks --instructions
    mcp-state install claude-desktop --project my-work
    mcp-state install cursor --print
    """,
)
@_CLIENT
@click.option("--db", default="", help="Path of the store, absolute. [env: MCP_STATE_DB]")
@click.option("--project", default="", help="Name or directory, for every session alike.")
@click.option("--agent", default="", help="Name to act as.  [default: that of the client]")
@click.option("--toolset", default="", help="Name, or path of a .toml.  [default: coding]")
@click.option("--hooks", is_flag=True, help="Begin sessions with the packet (codex, claude-code).")
@click.option("--instructions", is_flag=True, help="Add a block to the client's own instructions.")
@click.option("--allow-writes", is_flag=True, help="Let tools that write run without being asked.")
@click.option(
    "--print", "snippet", is_flag=True, help="Print what to write by hand; write nothing."
)
@click.option("--no-proof", is_flag=True, help="Do not start the server at the end.")
@click.option("--uninstall", "removal", is_flag=True, hidden=True, help="Points to uninstall.")
@_shared
def install(
    client: str,
    db: str,
    project: str,
    agent: str,
    toolset: str,
    hooks: bool,
    instructions: bool,
    allow_writes: bool,
    snippet: bool,
    no_proof: bool,
    removal: bool,
    name: str,
    config: Path | None,
    instructions_file: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set this server up in CLIENT, and prove that it answers there.

    Only what is ours is changed in the client's files; the rest keeps every byte, and a copy of
    what was there stays beside each. An option that is not given keeps the value it has there. At
    the end the server is started as the client starts it. `mcp-state uninstall CLIENT` undoes it.

    CLIENT is codex, claude-code, claude-desktop, cursor, vscode or gemini.
    """
    if removal:
        raise BadArgument("install only adds", f"`mcp-state uninstall {client}` removes.")
    place, chosen = _place(), CLIENTS[client]
    if hooks and not chosen.has_hooks:
        raise BadArgument(
            f"hooks are for codex and claude-code, not {client}",
            "--instructions-file FILE tells its agents to call orient.",
        )
    if allow_writes and not chosen.permits:
        raise BadArgument(
            f"--allow-writes is for claude-code and gemini, not {client}", f"{chosen.approval}."
        )
    settings = read_settings(db, project, agent)
    stated = db or os.environ.get("MCP_STATE_DB", "")
    given = {
        "--db": settings.db if stated else "",
        "--agent": agent,
        "--project": settings.project if project else "",
        "--toolset": _toolset(toolset),
    }
    wish = Wish(
        client=chosen,
        place=place,
        name=name,
        program=_program(),
        options={option: value for option, value in given.items() if value},
        defaults={"--db": settings.db, "--agent": client},
        hooks=hooks,
        config=_absolute(config),
        instructions=_instructions(chosen, place, instructions, instructions_file),
    )
    wish = _with_tools(wish, allow_writes)
    if snippet:
        print_text("\n".join(_snippets(wish)))
        return
    if dry_run:
        _show(plan.install(wish, files.read), chosen, as_json=as_json)
        return
    changed = _carry_out(lambda: plan.install(wish, files.read))
    found = _installed(wish)
    undo = ["mcp-state", "uninstall", client]
    undo += ["--name", name] if name != "state" else []
    undo += ["--config", str(wish.config)] if wish.config else []
    undo += ["--instructions-file", str(wish.instructions)] if instructions_file else []
    switch = hooks_switch(wish, _text) if hooks else ""
    notes = tuple(words.notes(wish, found, switch, writes=allows_writes(wish, _text)))
    done = words.Done(client, changed, notes, shlex.join(undo))
    failed: NotAnswered | None = None
    if not no_proof:
        try:
            done = replace(done, proof=asyncio.run(_prove(wish, found)))
        except NotAnswered as problem:
            failed = problem
    print_result(done, "\n".join(words.told(done, chosen)), as_json=as_json)
    if failed is not None:
        raise NotAnswered(
            failed.fact, "The configuration stays; correct that and run this again, or undo it."
        )


@click.command(
    cls=Documented,
    epilog="""
    mcp-state uninstall codex --dry-run
    mcp-state uninstall codex
    """,
)
@_CLIENT
@_shared
def uninstall(
    client: str,
    name: str,
    config: Path | None,
    instructions_file: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove from CLIENT what `mcp-state install` put there: server, hooks, permissions, block.

    What others wrote stays as it is, and so do the copies of before and the store.

    CLIENT is codex, claude-code, claude-desktop, cursor, vscode or gemini.
    """
    wish = Wish(
        client=CLIENTS[client],
        place=_place(),
        name=name,
        config=_absolute(config),
        instructions=_absolute(instructions_file),
    )

    def planned() -> list[plan.Change]:
        return plan.uninstall(wish, files.read, files.backups)

    if dry_run:
        _show(planned(), CLIENTS[client], as_json=as_json)
        return
    changed = _carry_out(planned)
    notes: list[str] = []
    if plan.current(wish, files.read) is not None:
        notes.append(f"left: the server {name!r} in {wish.file} is not mcp-state")
    done = words.Done(client, changed, notes)
    print_result(done, "\n".join(words.told(done, CLIENTS[client])), as_json=as_json)


def _place() -> Place:
    return Place(Path.home(), os.environ, sys.platform)


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else Path(os.path.abspath(path.expanduser()))


def _instructions(client: Client, place: Place, usual: bool, named: Path | None) -> Path | None:
    if named is not None:
        return _absolute(named)
    if not usual:
        return None
    if client.instructions is None:
        raise BadArgument(
            f"{client.title} has no file for instructions that hold everywhere",
            "Name one of a project: --instructions-file FILE.",
        )
    return client.instructions(place)


def _toolset(name: str) -> str:
    """The name of a toolset, or the absolute path of its file.

    Raises:
        BadArgument: there is none.
    """
    if not name:
        return ""
    from mcp_state import toolset

    toolset.load(name)
    return os.path.abspath(os.path.expanduser(name)) if name.endswith(".toml") else name


def _with_tools(wish: Wish, allow_writes: bool) -> Wish:
    """The wish with the tools that shall run without being asked for."""
    from mcp_state import toolset

    found = plan.current(wish, files.read) or {}
    options = {**options_of(found), **wish.options}
    tools = toolset.load(options.get("--toolset", "coding")).tools
    reading = tuple(spec.name for spec in tools if not spec.writes)
    writing = tuple(spec.name for spec in tools if spec.writes) if allow_writes else ()
    return replace(wish, reading=reading, writing=writing)


def _program() -> tuple[str, ...]:
    """How this program is started from anywhere: an absolute path that will stay."""
    called = os.path.abspath(sys.argv[0])
    on_path = os.path.abspath(shutil.which("mcp-state") or "")
    if os.path.isfile(on_path) and os.path.realpath(on_path) == os.path.realpath(called):
        return (on_path,)  # perhaps a link that outlives what it leads to
    beside = str(Path(sys.executable).with_name("mcp-state"))
    for one in (called, beside):
        if Path(one).stem == "mcp-state" and os.access(one, os.X_OK):
            return (one,)
    return (sys.executable, "-m", "mcp_state")


def _carry_out(planned: Callable[[], list[plan.Change]]) -> list[words.Changed]:
    """Write what is planned; plan again if a client wrote in between.

    Raises:
        ConfigRefused: a file cannot be written, or a client goes on writing it.
    """
    done: list[words.Changed] = []
    for _ in range(_TRIES):
        changes = planned()
        if not changes:
            return done
        for change in changes:
            files.check_writable(change.path)
        try:
            for change in changes:
                backup = files.write(
                    change.path, change.before, change.after, private=change.private
                )
                done.append(words.changed(change, str(backup or "")))
        except files.Moved:
            continue
        except ConfigRefused as problem:
            raise _half(problem, done) from None
    if not planned():
        return done
    problem = ConfigRefused(
        "the files change while they are edited", "Close the client, then run this again."
    )
    raise _half(problem, done)


def _half(problem: ConfigRefused, done: Sequence[words.Changed]) -> ConfigRefused:
    """The refusal in the middle of several files, with those that were changed before it."""
    if not done:
        return problem
    changed = ", ".join(one.path for one in done)
    return ConfigRefused(
        problem.fact,
        f"{problem.next_step} Changed before that: {changed}; the next run completes it.",
    )


def _show(changes: Sequence[plan.Change], client: Client, *, as_json: bool) -> None:
    """What would change, as a unified diff."""
    found = [words.changed(change, around=3) for change in changes]
    text = "\n".join(line for one in found for line in one.lines)
    text = text or f"nothing to change in {client.title}"
    print_result(words.Done(client.name, found), text, as_json=as_json)


def _snippets(wish: Wish) -> Iterator[str]:
    """What an empty file would become."""
    made = plan.install(wish, lambda path: None)
    for change in made:
        yield f"# {change.path}"
        yield (change.after or "").rstrip("\n")
        yield ""


def _text(path: Path) -> str:
    return files.read(path) or ""


def _installed(wish: Wish) -> Mapping[str, Any]:
    found = plan.current(wish, files.read)
    assert found is not None
    return found


async def _prove(wish: Wish, found: Mapping[str, Any]) -> Proof:
    """Start the server of the entry as the client does."""
    folder = wish.client.folder or os.getcwd()
    environment = dict(os.environ)
    if wish.client.minimal:
        environment = {one: environment[one] for one in MINIMAL if one in environment}
    if wish.client.name == "claude-code":
        environment["CLAUDE_PROJECT_DIR"] = folder
    if isinstance(found.get("env"), dict):
        environment |= {str(key): str(value) for key, value in found["env"].items()}
    return await prove([found["command"], *found["args"]], environment, folder, START_LIMIT)
