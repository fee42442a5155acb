from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Connect, text_of

from mcp_state import toolset
from mcp_state.errors import BadArgument
from mcp_state.tools import ALL_TOOLS

READS = [
    "orient",
    "search",
    "history",
    "memory_get",
    "thread_list",
    "thread_get",
    "journal_tail",
    "run_resume",
    "run_list",
    "fact_list",
    "fact_trace",
    "blob_get",
]
CODING = [
    "orient",
    "search",
    "memory_get",
    "memory_set",
    "memory_append",
    "thread_list",
    "thread_get",
    "thread_set",
    "thread_claim",
    "thread_check",
    "journal_append",
    "journal_tail",
    "run_checkpoint",
    "run_resume",
    "run_finish",
    "step_begin",
    "step_end",
    "objective_set",
    "fact_record",
    "fact_verify",
    "fact_list",
    "blob_put",
    "blob_get",
    "state_op",
]


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def custom(tools: str = '["orient"]', *, instructions: str = "x", read_only: str = "false") -> str:
    return (
        f'description = "mine"\ninstructions = "{instructions}"\n'
        f"read_only = {read_only}\ntools = {tools}\n"
    )


def names(loaded: toolset.Toolset) -> list[str]:
    return [spec.name for spec in loaded.tools]


def test_the_builtin_toolsets_hold_what_the_design_says() -> None:
    assert toolset.builtin_names() == ["all", "coding", "readonly"]
    assert names(toolset.load("readonly")) == READS
    assert names(toolset.load("coding")) == CODING
    assert sorted(names(toolset.load("all"))) == sorted(spec.name for spec in ALL_TOOLS)


@pytest.mark.parametrize("name", ["all", "coding", "readonly"])
def test_the_instructions_fit_and_their_first_240_characters_stand_alone(name: str) -> None:
    instructions = toolset.load(name).instructions
    assert len(instructions) <= 500
    head = instructions[:240]
    for word in ("orient", "memory", "journal", "state"):
        assert word in head.lower()


def test_tools_are_added_and_taken_away() -> None:
    loaded = toolset.load("coding", add=["history"], exclude=["state_op", "search"])
    wanted = [name for name in CODING if name not in ("state_op", "search")]
    assert names(loaded) == [*wanted, "history"]


def test_a_toolset_can_be_a_file(tmp_path: Path) -> None:
    loaded = toolset.load(write(tmp_path / "mine.toml", custom('["orient", "memory_set"]')))
    assert (loaded.name, names(loaded)) == ("mine", ["orient", "memory_set"])


def test_read_only_wins_over_the_list(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.toml", custom('["orient", "memory_set"]', read_only="true"))
    assert names(toolset.load(path)) == ["orient"]
    assert names(toolset.load("coding", add=["memory_set"], read_only=True)) == [
        name for name in CODING if name in READS
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (custom('["orientt"]'), "names an unknown tool 'orientt'. Did you mean orient?"),
        (custom("3"), "tools is missing or not a list"),
        (custom(instructions="x" * 501), "instructions have 501 characters"),
        (custom() + "colour = 1\n", "unknown key 'colour'"),
        ("tools = [", "Invalid value (at end of document). Correct the file."),
        ("tools = []", "description is missing"),
    ],
)
def test_a_wrong_file_is_refused_saying_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadArgument) as refusal:
        toolset.load(write(tmp_path / "mine.toml", text))
    assert says in str(refusal.value)


@pytest.mark.parametrize("name", ["codign", "", "/nowhere/x.toml"])
def test_an_unknown_toolset_is_refused_naming_those_there_are(name: str) -> None:
    with pytest.raises(BadArgument, match="Use all, coding, readonly, or the path"):
        toolset.load(name)


@pytest.mark.parametrize("where", ["add", "exclude"])
def test_an_unknown_tool_to_add_or_take_away_is_refused(where: str) -> None:
    with pytest.raises(BadArgument, match="Did you mean memory_set"):
        if where == "add":
            toolset.load("coding", add=["memory_sett"])
        else:
            toolset.load("coding", exclude=["memory_sett"])


async def test_a_tool_that_is_not_listed_answers_which_set_has_it(connect: Connect) -> None:
    async with connect() as client:
        answer = text_of(await client.call_tool("history", {}))
    assert answer.startswith(
        "error: bad_argument: history is not in the toolset 'coding'. "
        'It is in: all, readonly (--toolset). Or call state_op(op="history").'
    )


async def test_a_tool_that_does_not_exist_names_the_nearest(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("memory_write", {"key": "x"})
    assert result.is_error
    assert text_of(result).startswith(
        "error: bad_argument: there is no tool 'memory_write'. Did you mean memory_"
    )


@pytest.mark.parametrize("tool", [spec.name for spec in ALL_TOOLS if spec.writes])
@pytest.mark.parametrize("how", [{"toolset": "readonly"}, {"read_only": True}])
async def test_read_only_refuses_every_tool_that_writes_and_makes_no_file(
    connect: Connect,
    path: str,
    tool: str,
    how: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connect(**how) as client:
        result = await client.call_tool(tool, {})
        reading = await client.call_tool("orient", {})
    assert result.is_error
    assert text_of(result).startswith(
        f"error: readonly_toolset: {tool} writes, and this server only reads."
    )
    assert "nothing stored yet" in text_of(reading)
    assert f"refused: readonly_toolset: {tool} writes" in caplog.text
    assert not Path(path).parent.exists()
