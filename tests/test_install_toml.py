"""TOML: an edit changes what it should, and takes it back byte for byte."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from soaking import examples

from mcp_state.errors import ConfigRefused
from mcp_state.install import toml

PATH = ("mcp_servers", "state")
ENTRY: dict[str, Any] = {"command": "/x", "args": ["serve", "--db", "a b"], "required": True}

PIECES = st.sampled_from(
    (
        "",
        "# a comment with [mcp_servers.state] in it",
        "[mcp_servers]",
        '[mcp_servers.docs]\ncommand = "docs" # why\nargs = [ # all\n  "a", # ]\n  "[b]",\n]',
        '[mcp_servers."a.b"]\nenv = { A = "1", B = \'2\' }',
        '[tui]\ntheme = """\n[mcp_servers.state]\n"""',
        "[other]\nliteral = '''\n[x\n'''\n[other.inner]\nwhen = 2026-11-30T12:00:00Z",
        "[[products]]\nid = 1\n\n[[products]]\nid = 2",
        '["mcp_servers".quoted]\nurl = "https://example.com/#x"',
    )
)
FIRST = st.sampled_from(
    (
        "",
        'model = "x"',
        'mcp_servers.dotted.command = "d"\nz = 1',
        "a = 1\n\n\n# end of the top",
        'mcp_servers.dotted = { command = "d" }',
    )
)

unhurried = settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])


@st.composite
def documents(draw: st.DrawFn) -> str:
    pieces = draw(st.lists(PIECES, max_size=4, unique=True))
    text = "\n".join([draw(FIRST), *pieces]) + draw(st.sampled_from(("", "\n", "\n\n")))
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return draw(st.sampled_from(("", "\ufeff"))) + text


def plain(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError:
        return None


@unhurried
@given(documents())
def test_an_entry_comes_and_goes_without_another_byte(text: str) -> None:
    before = plain(text)
    if before is None:
        return

    edited = toml.put(text, PATH, ENTRY)

    before.setdefault("mcp_servers", {})["state"] = ENTRY
    assert plain(edited) == before
    assert toml.put(edited, PATH, ENTRY) == edited
    assert toml.remove(edited, PATH) == text


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        (
            '[mcp_servers.state]\ncommand = "old" # mine\n# note\nenv = { A = "1" }\n\n'
            "[o]\na = 1\n",
            '[mcp_servers.state]\ncommand = "/x" # mine\n# note\nenv = { A = "1" }\n'
            'args = ["serve", "--db", "a b"]\nrequired = true\n\n[o]\na = 1\n',
        ),
        (
            'mcp_servers.state.command = "old"\nmcp_servers.state.env.A = "1"\nz = 1\n',
            'z = 1\n\n[mcp_servers.state]\ncommand = "/x"\nenv = { A = "1" }\n'
            'args = ["serve", "--db", "a b"]\nrequired = true\n',
        ),
        (
            '[mcp_servers]\nstate = { command = "old" }\nb = { command = "c" }\n',
            '[mcp_servers]\nb = { command = "c" }\n\n[mcp_servers.state]\ncommand = "/x"\n'
            'args = ["serve", "--db", "a b"]\nrequired = true\n',
        ),
        (
            'mcp_servers = { b = { command = "c" } } # one line\n',
            'mcp_servers = { b = { command = "c" }, state = {command = "/x", '
            'args = ["serve", "--db", "a b"], required = true}} # one line\n',
        ),
        (
            '[mcp_servers.state]\ncommand = "/x"',
            '[mcp_servers.state]\ncommand = "/x"\nargs = ["serve", "--db", "a b"]\nrequired = true',
        ),
        (
            '[mcp_servers.state.env]\nA = "1"\n[mcp_servers.state]\nargs.x = 1\n',
            '[mcp_servers.state.env]\nA = "1"\n[mcp_servers.state]\ncommand = "/x"\n'
            'args = ["serve", "--db", "a b"]\nrequired = true\n',
        ),
    ],
)
def test_an_entry_in_any_form_is_brought_up_to_date(text: str, edited: str) -> None:
    assert toml.put(text, PATH, ENTRY) == edited


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (
            'a = 1\n\n[mcp_servers.state]\ncommand = "x"\n\n[mcp_servers.state.tools.orient]\n'
            'approval_mode = "approve"\n\n# about b\n[b]\nc = 1\n',
            "a = 1\n\n# about b\n[b]\nc = 1\n",
        ),
        ('mcp_servers.state.command = "x"\nz = 1\n', "z = 1\n"),
        ('mcp_servers = { state = { command = "x" }, b = {} }\n', "mcp_servers = {  b = {} }\n"),
        (
            '[mcp_servers]\nstate.command = "x"\nb.command = "c"\n',
            '[mcp_servers]\nb.command = "c"\n',
        ),
        ('[mcp_servers.state]\ncommand = "x"\n\n[b]\n', "[b]\n"),
        ("a = 1\n", "a = 1\n"),
    ],
)
def test_an_entry_in_any_form_goes_with_all_that_belongs_to_it(text: str, rest: str) -> None:
    assert toml.remove(text, PATH) == rest


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(ConfigRefused, match="mcp_servers is not a table"):
        toml.put("mcp_servers = 1\n", PATH, ENTRY)


def test_a_table_that_cannot_stand_there_is_refused() -> None:
    with pytest.raises(ConfigRefused, match="cannot stand beside what is there"):
        toml.add("hooks = []\n", "[[hooks.Stop]]")


def test_a_table_gets_another_key() -> None:
    text = 'a = 1\n[x."k:0"] # note\nb = 1\n'
    assert toml.rename(text, ("x", "k:0"), "k:1") == 'a = 1\n[x."k:1"] # note\nb = 1\n'
