"""What to do next, in the words of where it is read: of tools to models, else of commands."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import tour
from conftest import Connect, Open, text_of

from mcp_state import calls
from mcp_state.calls import COMMANDS, argument, call, either, spoken, tool
from mcp_state.cli import main
from mcp_state.errors import NotFound
from mcp_state.tools import ALL_TOOLS

PACKAGE = Path(calls.__file__).parent
WITHOUT_COMMAND = {"state_op"}
NAMES = {spec.name for spec in ALL_TOOLS if "_" in spec.name}
ARGUMENTS = {p.name for spec in ALL_TOOLS for p in spec.parameters if "_" in p.name}
SAYS_A_TOOL = re.compile(rf"\b(?:{'|'.join(sorted(NAMES))})\b")
SAYS_AN_ARGUMENT = re.compile(rf"\b(?:{'|'.join(sorted(ARGUMENTS))})\b|\b[a-z]+_[a-z_]+=")


def command_of(words: str) -> click.Command:
    command: click.Command = main
    for word in words.split():
        assert isinstance(command, click.Group), words
        found = command.get_command(click.Context(command), word)
        assert found is not None, f"there is no `mcp-state {words}`"
        command = found
    return command


def test_every_tool_has_a_command_or_is_known_to_need_none() -> None:
    assert set(COMMANDS) == {spec.name for spec in ALL_TOOLS} - WITHOUT_COMMAND


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_of_a_tool_can_be_given_to_its_command(name: str) -> None:
    (spec,) = (spec for spec in ALL_TOOLS if spec.name == name)
    command = COMMANDS[name]
    parameters = command_of(command.words).params
    options = {opt for p in parameters for opt in (*p.opts, *p.secondary_opts)}
    words = [p for p in parameters if isinstance(p, click.Argument)]
    flags = [f"--{word}" for both in command.flags.values() for word in both]
    others = [p.name for p in spec.parameters if p.name not in (*command.takes, *command.flags)]

    assert len(words) == len(command.takes)
    assert set(command.takes) <= {p.name for p in spec.parameters}
    assert {*flags, *map(command.option, others)} <= options


def test_a_call_is_worded_for_who_reads_it() -> None:
    def said() -> list[str]:
        return [
            tool("thread_list"),
            call("thread_list", status="blocked", due=True),
            call("fact_list"),
            call("memory_set", "key", "value", "run_id"),
            call("memory_get", key='my "plan"', run_id="-x", version=3),
            call("memory_get", key="-x", run_id="r"),
            call("thread_set", thread="a", criteria=["one", "…"], note="…"),
            call("fact_verify", fact="pr 830", holds=False, evidence=...),
            call("step_end", run_id="r", step="s", ok=..., result=...),
            argument("expected_version", 5),
            argument("run_id", of="memory_get"),
            argument("goal", of="run_begin"),
            either("call", "run"),
        ]

    assert said() == [
        "thread_list",
        'thread_list(status="blocked", due=true)',
        "fact_list()",
        "memory_set(key, value, run_id)",
        r'memory_get(key="my \"plan\"", run_id="-x", version=3)',
        'memory_get(key="-x", run_id="r")',
        'thread_set(thread="a", criteria=["one", "…"], note="…")',
        'fact_verify(fact="pr 830", holds=false, evidence=…)',
        'step_end(run_id="r", step="s", ok=…, result=…)',
        "expected_version=5",
        "run_id",
        "goal",
        "call",
    ]
    with spoken("shell"):
        assert said() == [
            "`mcp-state threads`",
            "`mcp-state threads --status blocked --due`",
            "`mcp-state facts list`",
            "`mcp-state memory set KEY VALUE --run …`",
            "`mcp-state memory get 'my \"plan\"' --run -x --version 3`",
            "`mcp-state memory get --run r -- -x`",
            '`mcp-state thread set a --criterion one --criterion "…" --note "…"`',
            "`mcp-state facts verify 'pr 830' --fails --evidence …`",
            "`mcp-state runs step end r s RESULT --ok/--failed`",
            "--expected-version 5",
            "--run",
            "GOAL",
            "run",
        ]
        with spoken("tools"):
            assert tool("thread_list") == "thread_list"
        assert tool("thread_list") == "`mcp-state threads`"
    assert tool("thread_list") == "thread_list"


async def test_the_words_are_also_those_of_what_a_transaction_refuses(open_state: Open) -> None:
    state = open_state()
    with spoken("shell"), pytest.raises(NotFound) as in_a_shell:
        await state.threads.get("fix")
    with pytest.raises(NotFound) as in_a_tool:
        await state.threads.get("fix")

    assert in_a_shell.value.next_step == (
        "`mcp-state threads` shows the open ones; `mcp-state thread set` creates one."
    )
    assert in_a_tool.value.next_step == "thread_list shows the open ones; thread_set creates one."


def messages() -> Iterator[tuple[str, int, str]]:
    """Every text in the modules that the command line and the tools share, with its place."""
    modules = [*PACKAGE.glob("*.py"), *(PACKAGE / "store").rglob("*.py")]
    of_tools = {"toolset.py", "server.py", "calls.py", "hooks.py"}
    for path in (path for path in modules if path.name not in of_tools):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        silent: set[ast.AST] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                silent.add(node.value)  # a docstring
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "either":
                silent |= set(ast.walk(node.args[0]))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node not in silent:
                yield path.name, node.lineno, str(node.value)


def test_no_message_spells_a_tool_or_an_argument_but_through_this_module() -> None:
    spelt = [
        (path, line, text)
        for path, line, text in messages()
        if not re.fullmatch(r"\w+", text) and not re.search(r"\b(?:SELECT|SET|FROM|VALUES)\b", text)
        if SAYS_A_TOOL.search(text) or SAYS_AN_ARGUMENT.search(text)
    ]

    assert spelt == []


AS_STORED = re.compile(r"\bchanged [a-z_]+(?:, [a-z_]+)*")
"""Which fields changed, as events keep it."""


def test_no_command_prints_the_name_of_a_tool(walked: tour.Walked) -> None:
    said: list[tuple[str, str]] = []
    for words, result in walked.said:
        if "--json" in words:
            continue
        for line in result.output.splitlines():
            rest = AS_STORED.sub("", line)
            if SAYS_A_TOOL.search(rest) or SAYS_AN_ARGUMENT.search(rest):
                said.append((" ".join(words)[:80], line))

    assert said == []


def test_every_command_that_is_proposed_can_be_typed(walked: tour.Walked) -> None:
    proposed = {
        command
        for _, result in walked.said
        for line in result.output.splitlines()
        for command in re.findall(r"`mcp-state ([^`]+)`", line)
    }
    assert len(proposed) > 60
    for line in sorted(proposed):
        words = shlex.split(line)
        command: click.Command = main
        while words and isinstance(command, click.Group):
            found = command.get_command(click.Context(command), words[0])
            if found is None:
                break
            command = found
            words.pop(0)
        assert words == [] or not isinstance(command, click.Group), line
        options = {opt for p in command.params for opt in (*p.opts, *p.secondary_opts)} | {"--help"}
        given = [word for word in words[: (*words, "--").index("--")] if word.startswith("--")]
        assert {o for word in given for o in word.split("/")} <= options, line


async def test_a_server_that_the_command_line_starts_speaks_of_tools(connect: Connect) -> None:
    with spoken("shell"):
        async with connect() as client:
            answer = text_of(await client.call_tool("thread_list", {}))
    assert answer.startswith("No threads yet.")
