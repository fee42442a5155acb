"""The server as clients meet it: arguments, projects, who, answers, resources, prompts."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from conftest import Call, Connect, FakeClock, text_of
from mcp import Client
from mcp.shared.exceptions import MCPError
from opentelemetry import trace

from mcp_state.server import create_server
from mcp_state.settings import Settings
from mcp_state.tools import ALL_TOOLS
from mcp_state.transport import REPLACED_META


def scope_of(text: str) -> str:
    return text.splitlines()[-1]


def repository(path: Path, origin: str = "") -> Path:
    path.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", path], check=True)
    if origin:
        add_origin(path, origin)
    return path


def add_origin(path: Path, origin: str) -> None:
    subprocess.run(["git", "-C", path, "remote", "add", "origin", origin], check=True)


def set_origin(path: Path, origin: str) -> None:
    subprocess.run(["git", "-C", path, "remote", "set-url", "origin", origin], check=True)


def test_the_sdk_makes_spans_for_those_who_want_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert create_server(settings).middleware == []

    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)  # a provider

    kept = [type(one).__name__ for one in create_server(settings).middleware]
    assert kept == ["OpenTelemetryMiddleware"], "nothing else was dropped above"


# Arguments


async def test_left_out_null_and_empty_are_the_same_for_optional_arguments(call: Call) -> None:
    answers = [
        await call("thread_set", thread=f"t{i}", **given)
        for i, given in enumerate(
            (
                {},
                {
                    "title": "",
                    "status": "",
                    "priority": "",
                    "criteria": "",
                    "places": "",
                    "depends_on": "",
                    "clear": "",
                    "expected_version": "",
                    "lease_token": "",
                },
                {
                    "title": None,
                    "status": None,
                    "priority": None,
                    "criteria": None,
                    "places": None,
                    "depends_on": None,
                    "clear": None,
                    "expected_version": None,
                    "lease_token": None,
                },
            )
        )
    ]
    assert [answer.splitlines()[0] for answer in answers] == [
        f"saved, version 1: t{i} [active]" for i in range(3)
    ]


async def test_lists_and_objects_may_come_as_json_text(call: Call) -> None:
    await call("thread_set", thread="a")
    await call("thread_set", thread="b")
    answer = await call(
        "thread_set",
        thread="c",
        depends_on='["a", "b"]',
        criteria="one is enough",
        places='{"path_or_repo": "/x", "role": "donor"}',
    )
    assert answer.splitlines()[0] == "saved, version 1: c [active, needs a, b, 0/1 pass]"
    assert "place (donor): /x" in await call("thread_get", thread="c")
    helped = await call("state_op", op="memory_get", arguments='{"key": "nope"}')
    assert helped.startswith('no such block "nope"')


@pytest.mark.parametrize("value", ["123", "null", '{"a":1}', "[1]", '"x"', "true", " x\n", "1e9"])
async def test_free_text_is_never_parsed(call: Call, value: str) -> None:
    await call("memory_set", key="k", value=value)
    text = await call("memory_get", key="k")
    assert text.startswith(f"{value}\nk · version 1 · {len(value)}/4096 chars")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"key": "k"}, "memory_set needs value; it got key. Call again with value."),
        ({}, "memory_set needs key and value; it got nothing. Call again with key and value."),
        ({"key": "k", "value": None}, "memory_set needs value; it got key."),
        ({"key": "k", "valeu": "x"}, "memory_set has no argument 'valeu'. Did you mean value?"),
        ({"key": "k", "value": ["x"]}, 'value of memory_set is ["x"]. It takes text'),
        ({"key": "k", "value": True}, "value of memory_set is true. It takes text"),
        (
            {"key": "k", "value": "v", "expected_version": True},
            "expected_version of memory_set is true. It takes a whole number",
        ),
        (
            {"key": "k", "value": "v", "expected_version": 1.5},
            "expected_version of memory_set is 1.5. It takes a whole number",
        ),
        *(
            (
                {"key": "k", "value": "v", "expected_version": huge},
                f"expected_version of memory_set is {shown}. It takes a smaller number",
            )
            for huge, shown in (
                (10**20, "100000000000000000000"),
                ("99999999999999999999", '"99999999999999999999"'),
                (1e20, "1e+20"),
            )
        ),
        ({"key": "k", "value": "v", "project": 1.5}, "project of memory_set is 1.5. It takes text"),
        ({"key": "k", "value": ""}, "value is empty, and block 'k' was left as it is. To remove"),
    ],
)
async def test_a_wrong_argument_is_named(call: Call, given: dict[str, Any], says: str) -> None:
    text = await call("memory_set", error=True, **given)
    assert text.startswith(f"error: bad_argument: {says}")
    assert scope_of(text).startswith("[acme ")
    assert "nothing stored" in scope_of(await call("memory_get"))


@pytest.mark.parametrize("number", [7, "7", " 7 ", 7.0])
async def test_a_number_is_understood_in_all_its_spellings(call: Call, number: object) -> None:
    text = await call("memory_set", error=True, key="k", value="v", expected_version=number)
    assert "so it is not at version 7" in text


@pytest.mark.parametrize(
    "spelling", ["watching", "Watching", "WATCHING", " watching ", "wat-ching"]
)
async def test_a_status_is_understood_in_any_case(call: Call, spelling: str) -> None:
    text = await call("thread_set", thread="t", status=spelling)
    assert text.startswith("saved, version 1: t [watching, look again in 24 h]")


async def test_a_status_that_does_not_exist_lists_those_that_do(call: Call) -> None:
    text = await call("thread_set", error=True, thread="t", status="waiting")
    assert "It takes one of active, watching, blocked, done, dropped" in text


async def test_what_cannot_be_stored_is_replaced_and_counted(call: Call) -> None:
    text = await call("memory_set", key="k", value="a\x00b\ud800c\udfff")
    assert text.splitlines()[1] == "note: 3 characters that cannot be stored became U+FFFD"
    assert (await call("memory_get", key="k")).startswith("a\ufffdb\ufffdc\ufffd\nk ")


async def test_the_scope_comes_last_also_behind_a_note(call: Call) -> None:
    for tool in ("orient", "memory_get"):
        text = await call(tool, project="a\x00b" if tool == "orient" else "ab\ud800")
        note, scope = text.splitlines()[-2:]
        assert "cannot be stored became U+FFFD" in note
        assert scope.endswith("(from argument) · nothing stored yet]")


async def test_a_lone_surrogate_in_an_error_is_answered(call: Call) -> None:
    assert "'\ufffd'" in await call("thread_get", error=True, thread="\ud800")
    assert "has no argument '\ufffd" in await call("memory_get", error=True, **{"\ud800": "x"})
    assert "there is no tool '\ufffd" in await call("\ud800", error=True)


async def test_a_fault_of_ours_says_internal_and_is_logged(
    client: Client, call: Call, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spec = next(spec for spec in ALL_TOOLS if spec.name == "memory_get")

    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setitem(spec.__dict__, "call", broken)
    text = await call("memory_get", error=True)
    assert text.startswith("error: internal: the server met a fault of its own; not saved.")
    assert "secret detail" not in text
    assert "ZeroDivisionError: secret detail" in caplog.text


async def test_what_is_replaced_inside_json_text_is_counted_too(call: Call) -> None:
    text = await call("thread_set", thread="t", criteria='["a\\u0000b", "c\\ud800"]')
    assert "note: 2 characters that cannot be stored became U+FFFD" in text


DEEP = '{"a":' * 300 + "1" + "}" * 300


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("thread_set", {"thread": "t", "places": DEEP}, "places of thread_set is"),
        ("state_op", {"op": "memory_get", "arguments": DEEP}, "arguments of state_op is"),
    ],
)
async def test_json_text_that_is_nested_too_deep_is_refused(
    call: Call, tool: str, given: dict[str, Any], says: str
) -> None:
    text = await call(tool, error=True, **given)
    assert text.startswith(f"error: bad_argument: {says}")
    assert "nested less than 100 deep; nothing was done" in text


async def test_a_number_names_a_project_like_any_text(call: Call) -> None:
    assert scope_of(await call("memory_set", key="k", value="v", project=7)).startswith("[7 ")
    assert "nothing stored" in scope_of(await call("memory_get"))
    assert "v" in await call("memory_get", key="k", project="7")


@pytest.mark.parametrize("forged", [True, -5, 10**4299, "2", 1.5, {}])
async def test_a_count_of_replaced_characters_that_a_client_makes_up_is_ignored(
    client: Client, forged: object
) -> None:
    result = await client.call_tool("memory_get", {}, meta={REPLACED_META: forged})
    assert "note:" not in text_of(result)


async def test_a_name_that_leads_nowhere_is_not_repeated_at_any_length(call: Call) -> None:
    text = await call("handoff_accept", error=True, key="x" * 100_000)
    assert text.startswith(f"error: not_found: no handoff '{'x' * 60}…'")
    assert len(text) < 500


async def test_an_empty_list_changes_nothing_and_a_change_of_dependencies_is_told(
    call: Call,
) -> None:
    for thread in ("a", "b"):
        await call("thread_set", thread=thread)
    await call("thread_set", thread="c", depends_on=["a"], places=[{"path_or_repo": "/x"}])
    text = await call("thread_set", thread="c", title="C", depends_on=[], places=[], criteria=[])
    assert text.startswith("saved, version 2: c [active, needs a]  C")
    await call("thread_set", thread="c", depends_on=["b"])
    assert "changed depends_on" in await call("history", subject="thread:c")


async def test_a_secret_is_refused_in_two_halves_and_as_a_project_and_not_repeated(
    call: Call,
) -> None:
    token = "ghp_" + "a1B2" * 9
    await call("memory_append", key="k", text=token[:20])
    text = await call("memory_append", error=True, key="k", text=token[20:])
    assert text.startswith("error: secret_refused: not saved: block 'k' holds")
    text = await call("journal_append", error=True, text="x", project=token)
    assert text.startswith("error: secret_refused: not saved: the project name holds")
    assert token not in text


async def test_a_very_long_session_or_thread_name_is_kept_short(client: Client) -> None:
    meta: Any = {"threadId": "x" * 2_000_000}
    saved = await client.call_tool("journal_append", {"text": "x"}, meta=meta)
    refused = await client.call_tool("journal_tail", {"thread": "x" * 2_000_000})
    assert not saved.is_error
    assert refused.is_error
    assert len(text_of(refused)) < 1000


async def test_an_entry_of_many_lines_does_not_fit_and_says_so(call: Call) -> None:
    await call("journal_append", text="." + "\n." * 4095)
    text = await call("journal_tail", limit=1)
    assert len(text) <= 10_000
    assert "lines that do not fit)" in text


# Which project


async def test_an_answer_names_the_project_how_it_was_found_and_the_counts(call: Call) -> None:
    assert scope_of(await call("memory_get")) == "[acme (from --project) · nothing stored yet]"
    await call("thread_set", thread="t")
    text = await call("memory_set", key="k", value="v")
    assert scope_of(text) == "[acme (from --project) · 1 thread · event 2]"
    other = await call("memory_set", key="k", value="v", project="Other")
    assert scope_of(other) == "[Other (from argument) · 0 threads · event 1]"
    assert scope_of(await call("memory_get", project=" other ")) == (
        "[Other (from argument) · 0 threads · event 1]"
    )


async def test_projects_never_show_in_each_other(call: Call) -> None:
    for project in ("one", "two"):
        await call("memory_set", key="k", value=f"secret of {project}", project=project)
        await call("thread_set", thread="t", title=f"secret of {project}", project=project)
        await call("journal_append", text=f"secret of {project}", project=project)
    for tool, given in (
        ("orient", {}),
        ("search", {"query": "secret"}),
        ("history", {}),
        ("memory_get", {}),
        ("thread_list", {}),
        ("thread_get", {"thread": "t"}),
        ("journal_tail", {}),
    ):
        text = await call(tool, project="one", **given)
        assert "secret of one" in text, tool
        assert "two" not in text, tool


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_directory_that_codex_sends_leads_to_its_repository(
    connect: Connect, tmp_path: Path, mode: str
) -> None:
    work = repository(tmp_path / "Work Tree", "git@github.com:Acme/API.git")
    (work / "sub").mkdir()
    spellings = [str(work), (work / "sub").as_uri(), work.as_uri()]
    async with connect(mode=mode, project="") as client:
        for said in spellings:
            meta: Any = {"codex/sandbox-state-meta": {"sandboxCwd": said}}
            text = text_of(await client.call_tool("orient", {}, meta=meta))
            assert scope_of(text) == "[github.com/acme/api (from git origin) · nothing stored yet]"


async def test_codex_is_told_that_its_directory_is_wanted(connect: Connect) -> None:
    async with connect() as client:
        capabilities = client.server_capabilities
    assert capabilities is not None
    assert capabilities.experimental == {"codex/sandbox-state-meta": {}}


@pytest.mark.parametrize(
    ("roots", "project"),
    [(["one"], "one"), (["one", "two"], ""), ([], "")],
)
async def test_a_single_root_of_an_older_client_leads_to_its_repository(
    settings: Settings, clock: FakeClock, tmp_path: Path, roots: list[str], project: str
) -> None:
    for name in roots:
        repository(tmp_path / name, f"https://example.com/x/{name}")

    async def list_roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(
            roots=[types.Root.model_validate({"uri": (tmp_path / n).as_uri()}) for n in roots]
        )

    server = create_server(replace(settings, project=""), clock)
    async with Client(server, mode="legacy", list_roots_callback=list_roots) as client:
        text = text_of(await client.call_tool("orient", {}))
    expected = f"[example.com/x/{project} (from git origin) · nothing stored yet]"
    assert scope_of(text) == (expected if project else "[no project]")


async def test_roots_that_change_are_asked_for_again(
    settings: Settings, clock: FakeClock, tmp_path: Path
) -> None:
    roots = ["one"]
    for name in ("one", "two"):
        repository(tmp_path / name, f"https://example.com/x/{name}")

    async def list_roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(
            roots=[types.Root.model_validate({"uri": (tmp_path / n).as_uri()}) for n in roots]
        )

    server = create_server(replace(settings, project=""), clock)
    async with Client(server, mode="legacy", list_roots_callback=list_roots) as client:
        before = text_of(await client.call_tool("orient", {}))
        roots[:] = ["two"]
        await client.session.send_notification(types.RootsListChangedNotification())
        await client.list_tools()
        after = text_of(await client.call_tool("orient", {}))
    assert scope_of(before).startswith("[example.com/x/one ")
    assert scope_of(after).startswith("[example.com/x/two ")


async def test_what_says_more_wins(connect: Connect, tmp_path: Path) -> None:
    said = repository(tmp_path / "said", "https://example.com/said")
    claude = repository(tmp_path / "claude", "https://example.com/claude")
    here = repository(tmp_path / "here", "https://example.com/here")
    meta: Any = {"codex/sandbox-state-meta": {"sandboxCwd": str(said)}}
    places = {"client_directory": str(claude), "directory": str(here)}

    async def found(given: dict[str, Any], send: Any, **changes: Any) -> str:
        async with connect(**changes) as client:
            answer = text_of(await client.call_tool("memory_get", given, meta=send))
        return scope_of(answer).removesuffix(" · nothing stored yet]")

    assert await found({"project": "p"}, meta, project="q", **places) == "[p (from argument)"
    assert await found({}, meta, project="q", **places) == "[q (from --project)"
    assert await found({}, meta, project="", **places) == "[example.com/said (from git origin)"
    assert await found({}, None, project="", **places) == "[example.com/claude (from git origin)"
    assert await found({}, None, project="", directory=str(here)) == (
        "[example.com/here (from git origin)"
    )
    assert await found({}, None, project="", directory=str(tmp_path)) == "[no project]"
    assert await found({}, None, project="", directory="/", home="/root") == "[no project]"


async def test_without_a_project_reads_list_the_known_ones_and_writes_are_refused(
    call: Call, connect: Connect
) -> None:
    await call("memory_set", key="k", value="v", project="alpha")
    async with connect(project="") as client:
        read = text_of(await client.call_tool("memory_get", {}))
        written = await client.call_tool("memory_set", {"key": "k", "value": "v"})
    assert read == (
        'This call does not say which project it belongs to. Pass project="NAME"; known are:\n'
        "  alpha\n[no project]"
    )
    assert written.is_error
    assert text_of(written).startswith(
        "error: project_unknown: not saved: this call does not say which project it belongs to; "
        "known projects: alpha. Pass project="
    )


async def test_a_directory_stays_with_its_project_when_a_remote_is_added(
    connect: Connect, tmp_path: Path
) -> None:
    work = repository(tmp_path / "work")
    async with connect(project="", directory=str(work)) as client:
        first = scope_of(text_of(await client.call_tool("journal_append", {"text": "x"})))
        add_origin(work, "https://example.com/x/y")
        later = text_of(await client.call_tool("journal_append", {"text": "y"}))
    name = first.removeprefix("[").partition(" ")[0]
    assert name.startswith("work-")
    assert scope_of(later) == f"[{name} (from git origin) · 0 threads · event 2]"
    assert later.splitlines()[-2] == (
        f"note: this directory is now called example.com/x/y, and stays with {name}: "
        "`mcp-state projects rename` or `merge` changes that"
    )


async def test_a_known_origin_says_more_than_the_directory_it_was_found_in(
    connect: Connect, tmp_path: Path
) -> None:
    """Containers clone one repository after another to the same path."""
    elsewhere = repository(tmp_path / "elsewhere", "https://example.com/acme/two")
    work = repository(tmp_path / "work", "https://example.com/acme/one")

    async def wrote(directory: Path) -> str:
        async with connect(project="", directory=str(directory)) as client:
            return scope_of(text_of(await client.call_tool("journal_append", {"text": "x"})))

    assert (await wrote(elsewhere)).startswith("[example.com/acme/two ")
    assert (await wrote(work)).startswith("[example.com/acme/one ")
    set_origin(work, "https://example.com/acme/two")
    assert (await wrote(work)).startswith("[example.com/acme/two ")


# Who


async def test_the_actor_is_the_client_or_the_name_given_at_start(connect: Connect) -> None:
    info = types.Implementation(name="claude-code", version="2.1")
    for agent, expected in (("", "claude-code"), ("nightly", "nightly")):
        async with connect(client_info=info, agent=agent, project=f"p{agent}") as client:
            await client.call_tool("journal_append", {"text": "hello"})
            text = text_of(await client.call_tool("journal_tail", {}))
        assert text.splitlines()[1] == f"1 {expected} just now"


async def test_the_session_is_the_thread_of_the_client(connect: Connect) -> None:
    async with connect() as client:
        for thread in ("one", "two"):
            meta: Any = {"threadId": thread}
            await client.call_tool("journal_append", {"text": thread}, meta=meta)
        back: Any = {"threadId": "one"}
        text = text_of(await client.call_tool("orient", {}, meta=back))
    assert "SINCE YOU WERE HERE" in text
    assert "1 entry in the journal" in text


# Answers


async def test_structured_content_holds_all_that_the_text_holds(connect: Connect) -> None:
    async with connect(structured=True) as client:
        await client.call_tool("memory_set", {"key": "k", "value": "v"})
        result = await client.call_tool("memory_get", {"key": "k"})
        failed = await client.call_tool("memory_get", {"kye": "k"})
        tools = (await client.list_tools()).tools
    assert result.structured_content is not None
    assert result.structured_content["text"] == text_of(result)
    assert result.structured_content["result"]["value"] == "v"
    assert result.structured_content["scope"]["event"] == 1
    assert all(tool.output_schema for tool in tools)
    assert failed.is_error
    assert failed.structured_content is None


async def test_an_answer_is_one_text_and_nothing_else_by_default(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("memory_get", {})
        tools = (await client.list_tools()).tools
    assert result.structured_content is None
    assert [block.type for block in result.content] == ["text"]
    assert not any(tool.output_schema for tool in tools)


async def test_no_answer_is_longer_than_10_000_characters(client: Client, call: Call) -> None:
    for i in range(60):
        await call("memory_set", key=f"k{i}", value="word " * 800)
        await call("journal_append", text="word " * 1600)
        await call("thread_set", thread=f"t{i}", next_action="word " * 390, check="word " * 390)
    for tool, given in (
        ("memory_get", {}),
        ("journal_tail", {"limit": 100}),
        ("journal_tail", {"limit": 100, "since": 0}),
        ("thread_list", {"limit": 100}),
        ("search", {"query": "word", "limit": 50}),
        ("history", {"limit": 200}),
        ("orient", {}),
    ):
        text = await call(tool, **given)
        assert 500 < len(text) <= 10_000, tool
        assert scope_of(text) == "[acme (from --project) · 60 threads · event 180]", tool


# Resources and prompts


async def test_the_resources_show_what_the_tools_show(client: Client, call: Call) -> None:
    await call("memory_set", key="a b/ü", value="value")
    await call("thread_set", thread="t")
    listed = [str(r.uri) for r in (await client.list_resources()).resources]
    assert listed == [
        "state://orient",
        "state://threads",
        "state://journal",
        "ui://mcp-state/board",
    ]
    for uri, tool in zip(listed[:3], ("orient", "thread_list", "journal_tail"), strict=True):
        (content,) = (await client.read_resource(uri)).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == await call(tool)
    (content,) = (await client.read_resource("state://memory/a%20b%2F%C3%BC")).contents
    assert isinstance(content, types.TextResourceContents)
    assert content.text.startswith("value\na b/ü · version 1")
    (template,) = (await client.list_resource_templates()).resource_templates
    assert template.uri_template == "state://memory/{key}"


async def test_an_unknown_resource_or_prompt_is_refused(client: Client) -> None:
    with pytest.raises(MCPError, match="there is no resource 'state://nothing'"):
        await client.read_resource("state://nothing")
    with pytest.raises(MCPError, match="there is no prompt 'nothing'"):
        await client.get_prompt("nothing")
    for ask in (client.read_resource, client.get_prompt):
        with pytest.raises(MCPError) as refused:
            await ask("x" * 100_000)
        assert len(refused.value.error.message) < 200


@pytest.mark.parametrize("name", ["orient", "handoff", "wrap_up"])
async def test_a_prompt_says_what_to_do_and_holds_the_packet(
    client: Client, call: Call, name: str
) -> None:
    await call("thread_set", thread="open-thread")
    prompts = [p.name for p in (await client.list_prompts()).prompts]
    (message,) = (await client.get_prompt(name)).messages
    assert prompts == ["orient", "handoff", "wrap_up"]
    assert message.role == "user"
    assert isinstance(message.content, types.TextContent)
    assert "open-thread [active]" in message.content.text


async def test_state_op_calls_what_is_not_listed_and_nothing_else(connect: Connect) -> None:
    async with connect() as client:

        async def op(op: str, **arguments: Any) -> str:
            given = {"op": op, "arguments": arguments}
            return text_of(await client.call_tool("state_op", given))

        await client.call_tool("memory_set", {"key": "k", "value": "v"})
        assert (await op("help")).splitlines()[1::2] == [
            "history(subject?, since?, limit?, project?)",
            "memory_delete(key, run_id?, expected_version?, project?)",
            "memory_restore(key, version, run_id?, project?)",
            "thread_release(thread, lease_token?, project?)",
            "run_begin(goal?, run_id?, thread?, expected_outcome?, max_attempts?, max_minutes?, "
            "max_tokens?, project?)",
            "run_list(status?, limit?, project?)",
            "fact_trace(fact, project?)",
            "handoff_create(note, to?, project?)",
            "handoff_accept(key, project?)",
            "[acme (from --project) · 0 threads · event 1]",
        ]
        assert (await op("memory_delete", key="k")).startswith(
            "deleted: k, which was at version 1."
        )
        assert (await op("memory_restore", key="k", version=1)).startswith("saved: k · version 3")
        assert (await op("memory_deleet")).startswith(
            "error: bad_argument: there is no operation 'memory_deleet'. Did you mean memory_delete"
        )
        assert (await op("state_op")).startswith(
            "error: bad_argument: state_op cannot call itself."
        )
        assert (await op("memory_delete", kye="k")).startswith(
            "error: bad_argument: memory_delete has no argument 'kye'. Did you mean key?"
        )
        other = await op("memory_get", project="other")
        assert scope_of(other) == "[other (from argument) · nothing stored yet]"
        refused = await op("thread_get", thread="nope", project="other")
        assert scope_of(refused) == "[other (from argument) · nothing stored yet]"
