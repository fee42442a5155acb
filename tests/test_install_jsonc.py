"""JSON with comments: an edit changes what it should, and takes it back byte for byte."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from soaking import examples

from mcp_state.errors import ConfigRefused
from mcp_state.install import jsonc

ENTRY = {"command": "/x", "args": ["serve", "--db"]}
PATH = ("mcpServers", "state")

GAPS = st.sampled_from(
    (
        "",
        "",
        " ",
        "\n",
        "\n  ",
        "\n\t",
        "\r\n    ",
        " // note\n",
        " /* , { */ ",
        "\n  // own line\n  ",
    )
)
KEYS = st.sampled_from(("mcpServers", "state", "a", "b", "ü", "😀")) | st.text(max_size=5)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=6)
    | st.sampled_from(("//", "/* */", "}", '"', "\\"))
    | st.floats(allow_nan=False, allow_infinity=False)
)

unhurried = settings(
    max_examples=examples(50),
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def values(draw: st.DrawFn, depth: int = 0, kind: str = "") -> str:
    kind = kind or draw(st.sampled_from("{[s" if depth < 5 else "s"))
    if kind == "s":
        return json.dumps(draw(LEAVES), ensure_ascii=draw(st.booleans()))
    parts: list[str] = []
    for _ in range(draw(st.integers(0, 3 if depth < 2 else 2))):
        value = draw(values(depth + 1))
        if kind == "{":
            value = f"{json.dumps(draw(KEYS))}{draw(GAPS)}:{draw(GAPS)}{value}"
        parts.append(f"{draw(GAPS)}{value}{draw(GAPS)}")
    inside = ",".join(parts) or draw(GAPS)
    if parts and draw(st.booleans()):
        inside += f",{draw(GAPS)}"
    return f"{{{inside}}}" if kind == "{" else f"[{inside}]"


@st.composite
def documents(draw: st.DrawFn) -> str:
    start = draw(st.sampled_from(("", "\ufeff")))
    end = draw(st.sampled_from(("", "\n", " // end", "\r\n")))
    return f"{start}{draw(GAPS)}{draw(values(kind='{'))}{end}"


def plain(text: str) -> Any:
    """What Python's own parser reads, once comments and trailing commas are blanked."""
    out: list[str] = []
    at = 0
    text = text.removeprefix("\ufeff")
    while at < len(text):
        if text[at] == '"':
            end = at + 1
            while text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            out.append(text[at : end + 1])
            at = end + 1
        elif text.startswith("//", at):
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
        elif text.startswith("/*", at):
            at = text.index("*/", at) + 2
        else:
            if text[at] in "}]" and out and "".join(out).rstrip().endswith(","):
                out = ["".join(out).rstrip()[:-1]]
            out.append(text[at])
            at += 1
    return json.loads("".join(out))


@pytest.mark.soak
@unhurried
@given(documents())
def test_a_document_is_read_as_python_reads_it_without_comments(text: str) -> None:
    assert jsonc.parse(text).data == plain(text)


@pytest.mark.soak
@unhurried
@given(documents())
def test_an_entry_comes_and_goes_without_another_byte(text: str) -> None:
    servers = plain(text).get("mcpServers", {})
    if not isinstance(servers, dict) or "state" in servers:
        return

    edited = jsonc.put(text, PATH, ENTRY)

    wanted = plain(text)
    wanted.setdefault("mcpServers", {})["state"] = ENTRY
    assert plain(edited) == wanted
    assert jsonc.put(edited, PATH, ENTRY) == edited
    assert jsonc.prune(jsonc.remove(edited, PATH), PATH[:1], text) == text


@pytest.mark.soak
@unhurried
@given(documents())
def test_what_is_removed_takes_nothing_else_with_it(text: str) -> None:
    wanted = plain(text)
    if not isinstance(wanted.get("mcpServers"), dict):
        return
    wanted["mcpServers"].pop("state", None)

    assert plain(jsonc.remove(text, PATH)) == wanted


@pytest.mark.soak
@unhurried
@given(documents(), st.data())
def test_items_of_a_list_come_and_go(text: str, data: st.DataObject) -> None:
    found: Any = plain(text).get("a", [])
    if not isinstance(found, list):
        with pytest.raises(ConfigRefused):
            jsonc.append(text, ("a",), ENTRY)
        return
    items = cast(list[Any], found)

    added = jsonc.append(text, ("a",), ENTRY)
    assert plain(added)["a"] == [*items, ENTRY]
    last = jsonc.remove_item(added, ("a",), len(items))
    assert jsonc.prune(last, ("a",), text) == text

    at = data.draw(st.integers(0, len(items)))
    rest = [*items, ENTRY]
    del rest[at]
    assert plain(jsonc.remove_item(added, ("a",), at))["a"] == rest
    swapped = [*items, ENTRY]
    swapped[at] = "new"
    assert plain(jsonc.put(added, ("a", at), "new"))["a"] == swapped


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("{}", '{\n  "a": {\n    "b": 1\n  }\n}'),
        ("", '{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ('{"x":1}', '{"x":1,"a":{"b":1}}'),
        ('{"x": 1}', '{"x": 1, "a": {"b": 1}}'),
        ('{\n\t"x": 1 // y\n}\n', '{\n\t"x": 1, // y\n\t"a": {\n\t\t"b": 1\n\t}\n}\n'),
        ('{\r\n    "x": 1\r\n}', '{\r\n    "x": 1,\r\n    "a": {\r\n        "b": 1\r\n    }\r\n}'),
        ('{\n  "x": 1,\n}', '{\n  "x": 1,\n  "a": {\n    "b": 1\n  },\n}'),
        ('{\n  "a": {}\n}', '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"a": {"b": 2}, "a": {"b": 3}}', '{"a": {"b": 2}, "a": {"b": 1}}'),
        ("// all\n", '// all\n{\n  "a": {\n    "b": 1\n  }\n}\n'),
    ],
)
def test_an_edit_has_the_style_of_the_file(text: str, edited: str) -> None:
    assert jsonc.put(text, ("a", "b"), 1) == edited


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1\n "b": 2}', "line 2, column 2: a comma or } is expected, not '\"'"),
        ('{"a": 1', "line 1, column 8: a comma or } is expected, not the end of the file"),
        ("{a: 1}", "line 1, column 2: a key in double quotes or } is expected, not 'a'"),
        ('{"a" 1}', "line 1, column 6: a colon is expected, not '1'"),
        ('{"a": x}', "line 1, column 7: a value is expected, not 'x'"),
        ('{"a": 1} 2', "line 1, column 10: there is something after the end"),
        (
            '{"a": 1 /* }',
            "line 1, column 9: a comma or } is expected, not a comment that never ends",
        ),
        ('{"a": "\\x"}', "line 1, column 7: a string has a wrong escape"),
        ("[" * 5000, "line 1, column 202: nested deeper than 200 levels"),
        ('{"a": {"b": {"c": {"d": NaN}}}}', "line 1, column 25: a value is expected, not 'N'"),
    ],
)
def test_what_is_no_json_is_told_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(jsonc.Malformed) as raised:
        jsonc.parse(text)
    assert str(raised.value) == problem


def test_true_is_not_1() -> None:
    assert jsonc.put('{"a": 1}', ("a",), True) == '{"a": true}'


def test_a_number_of_any_length_is_no_obstacle() -> None:
    text = f'{{"a": {"9" * 5000}}}'
    assert jsonc.put(text, ("b",), 1) == f'{text[:-1]}, "b": 1}}'
