"""Facts and the objective on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import FakeClock, Run
from rich.cells import cell_len
from test_cli_runs import (
    Ok,
    Refused,
    Shown,
    no_repository,
    ok,
    plain,
    refused,
    shown,
    standing_time,
)
from whole_stores import exists

__all__ = ["no_repository", "ok", "refused", "shown", "standing_time"]

READS = (
    ["facts"],
    ["facts", "list", "--due"],
    ["facts", "show", "pr-830"],
    ["objective"],
    ["objective", "show"],
)
WRITES = (
    ["facts", "record", "pr-830", "PR 830 is open"],
    ["facts", "verify", "pr-830", "--holds", "--evidence", "OPEN"],
    ["objective", "set", "Ship import v2"],
)
SCOPE = "[acme (from --project) · 0 threads · event {}]\n"


@pytest.fixture
def believed(ok: Ok) -> None:
    """Two facts that were verified, and one because of both; seven events with its thread."""
    ok("facts", "record", "pr-830", "PR 830 is open", "--check", "gh pr view 830")
    ok("facts", "verify", "pr-830", "--holds", "--evidence", "OPEN")
    ok("facts", "record", "contract", "Amounts are cents", "--check", "make contract")
    ok("facts", "verify", "contract", "--holds", "--evidence", "exit 0")
    because = ("--because", "pr-830", "--because", "contract")
    ok("facts", "record", "friday", "PR 830 goes in on Friday", *because)
    ok("thread", "set", "import", "--relies-on", "friday")


def test_a_fact_is_recorded_with_its_check_and_verified(ok: Ok) -> None:
    assert ok("facts", "record", "pr-830", "PR 830 is open", "--check", "gh pr view 830") == (
        "saved, provisional, version 1. Run its check, then "
        "`mcp-state facts verify pr-830 --holds/--fails --evidence …`.\n"
        "check first: gh pr view 830\n"
        "    pr-830 · never checked, recorded just now (person); believed then: "
        '"PR 830 is open"\n' + SCOPE.format(1)
    )
    assert ok("facts", "verify", "pr-830", "--holds", "--evidence", "OPEN", "--agent", "ann") == (
        "pr-830 is trusted, version 2, due again in 24 h\n"
        "verified in this session, just now · check: gh pr view 830\n"
        '    pr-830 · holds (`OPEN`): "PR 830 is open"\n' + SCOPE.format(2)
    )


def test_who_names_a_session_is_told_that_it_verified_it(ok: Ok) -> None:
    mine = {"CLAUDE_CODE_SESSION_ID": "s1"}
    ok("facts", "record", "pr-830", "PR 830 is open", "--check", "gh", **mine)
    ok("facts", "verify", "pr-830", "--holds", "--evidence", "OPEN", **mine)

    told = [ok("facts", **session).splitlines()[1] for session in (mine, {})]

    assert told == ["verified in this session, just now · check: gh", "check first: gh"]


@pytest.mark.usefixtures("believed")
def test_a_fact_that_does_not_hold_takes_with_it_what_rests_on_it(ok: Ok, refused: Refused) -> None:
    assert ok("facts", "verify", "PR-830", "--fails", "--evidence", "MERGED") == (
        "pr-830 is refuted, version 3\n"
        "before, it last held just now (person, not in this session: `OPEN`)\n"
        "FELL with it, 1 fact: friday\n"
        "threads that rely on this: import [active]\n"
        "DOES NOT HOLD · check: gh pr view 830\n"
        "    pr-830 · version 3, did not hold just now (person: `MERGED`); believed until then: "
        '"PR 830 is open"\n'
        "[acme (from --project) · 1 thread · event 8]\n"
    )
    assert refused("thread", "set", "import", "--status", "done", "--evidence", "x") == (
        "evidence_required: thread 'import' cannot be done: it relies on what does not hold: "
        "'friday' (stale; no check · believed: \"PR 830 goes in on Friday\"). "
        "Check what it rests on (`mcp-state facts list --trust stale` shows that), record a reason "
        "that stands and a check of its own (`mcp-state facts record` with --because), or say with "
        "--relies-on what the work rests on now (--clear relies-on: on nothing)."
    )


@pytest.mark.usefixtures("believed")
def test_a_person_sees_why_a_fact_is_believed_and_what_would_fall_with_it(
    ok: Ok, refused: Refused
) -> None:
    assert ok("facts", "show", "friday") == (
        "CONCLUSION friday, version 1\n"
        "check first: it has none of its own; what it rests on, contract (unchecked) and pr-830 "
        "(unchecked)\n"
        "    friday · never checked, recorded just now (person); believed then: "
        '"PR 830 goes in on Friday"\n'
        "THREADS that rely on these: import [active]\n"
        "WHY\n"
        "  because check first: make contract\n"
        "      contract · last held just now (person, not in this session: `exit 0`); "
        'believed then: "Amounts are cents"\n'
        "  and check first: gh pr view 830\n"
        "      pr-830 · last held just now (person, not in this session: `OPEN`); "
        'believed then: "PR 830 is open"\n'
        "NOTHING rests on it\n"
        "[acme (from --project) · 1 thread · event 6]\n"
    )
    assert ok("facts", "show", "pr-830").splitlines()[3:-1] == [
        "IF IT FALLS, 1 fact would fall with it; 1 fact rests on it",
        "THREADS that rely on these: import [active]",
        "WHY  no because: it rests on its check alone",
        "ON IT",
        '  friday [would fall] · no check of its own · believed: "PR 830 goes in on Friday"',
    ]
    trace = json.loads(ok("facts", "show", "friday", "--json"))
    assert [one["fact"]["name"] for one in trace["rests_on"]] == ["contract", "pr-830"]
    assert (trace["carries"], trace["threads"]) == ([], [["import", "active"]])
    assert refused("facts", "show", "pr-803") == (
        "not_found: no fact 'pr-803'; there is 'pr-830'. "
        "`mcp-state facts list` shows them; `mcp-state facts record` makes one."
    )


@pytest.mark.usefixtures("believed")
def test_facts_are_listed_by_trust_those_that_are_due_first(
    ok: Ok, refused: Refused, clock: FakeClock
) -> None:
    ok("facts", "record", "friday", "--recheck-after", "1h")
    counts = "(2 trusted · 1 provisional · 0 stale · 0 refuted · 0 archival)"

    assert ok("facts") == ok("facts", "list")
    assert ok("facts").splitlines()[0] == f"3 of 3 facts {counts}"
    assert ok("facts", "--trust", "TRUSTED") == (
        f"2 of 2 trusted facts {counts}\n"
        "check first: gh pr view 830\n"
        "    pr-830 · last held just now (person, not in this session: `OPEN`); "
        'believed then: "PR 830 is open"\n'
        "check first: make contract\n"
        "    contract · last held just now (person, not in this session: `exit 0`); "
        'believed then: "Amounts are cents"\n'
        "[acme (from --project) · 1 thread · event 7]\n"
    )
    assert ok("facts", "--due") == (
        "No facts that are due here. Facts: 2 trusted · 1 provisional · 0 stale · 0 refuted · "
        "0 archival.\n[acme (from --project) · 1 thread · event 7]\n"
    )
    clock.move(hours=3)
    assert ok("facts", "--due").splitlines()[:2] == [
        "1 of 1 facts that are due (2 trusted · 1 provisional, 1 of them due · 0 stale · "
        "0 refuted · 0 archival)",
        "check first, due 2 h ago: it has none of its own; what it rests on, contract (unchecked) "
        "and pr-830 (unchecked)",
    ]
    first = json.loads(ok("facts", "-n", "1", "--json"))
    rest = json.loads(ok("facts", "--cursor", first["cursor"], "--json"))
    assert [one["name"] for one in (*first["facts"], *rest["facts"])] == [
        "friday",
        "pr-830",
        "contract",
    ]
    assert (first["total"], first["scope"]["facts"]["trusted"]) == (3, 2)
    assert refused("facts", "--trust", "sure", code=2) == (
        "bad_argument: trust is 'sure'. "
        "It is one of trusted, provisional, stale, refuted, archival."
    )
    assert "is no number from" in refused("facts", "-n", "0", code=2)
    assert refused("facts", "--cursor", "x", code=2).startswith("bad_argument: ")


def test_what_is_left_out_stays_as_it_is_and_another_reason_is_added(ok: Ok) -> None:
    for name in ("one", "two"):
        ok("facts", "record", name, "it is so", "--check", "make")
    ok(
        *("facts", "record", "both", "so be it", "--check", "make both", "--source", "a talk"),
        *("--recheck-after", "4h", "--because", "one", "--expected-version", "0"),
    )

    answer = json.loads(ok("facts", "record", "both", "--because", "two", "--json"))
    fact = answer["fact"]

    assert [[one["name"] for one in reason] for reason in fact["reasons"]] == [["one"], ["two"]]
    assert (fact["statement"], fact["check"], fact["source"]) == ("so be it", "make both", "a talk")
    assert (fact["trust"], fact["version"], fact["recheck_at"]) == (
        "provisional",
        2,
        "2026-11-29T13:00:00Z",
    )
    assert ok("facts", "record", "both", "so be it").splitlines()[0] == "unchanged, version 2:"


def test_another_statement_needs_the_version_that_it_replaces(ok: Ok, refused: Refused) -> None:
    ok("facts", "record", "pr-830", "PR 830 is open", "--check", "gh")

    assert refused("facts", "record", "pr-830", "PR 830 is merged").startswith(
        "conflict: fact 'pr-830' says something else already (provisional, recorded just now by "
        'person; check: gh · believed: "PR 830 is open"). '
    )
    merged = ("facts", "record", "pr-830", "PR 830 is merged", "--expected-version")
    assert refused(*merged, "7").startswith(
        "version_conflict: fact 'pr-830' is at version 1, not 7 "
    )
    assert ok(*merged, "1").splitlines()[3] == (
        '    it replaces what was believed (provisional; in history): "PR 830 is open"'
    )
    verify = ("facts", "verify", "pr-830", "--holds", "--evidence", "MERGED")
    assert refused(*verify, "--expected-version", "1").startswith("version_conflict: ")
    assert refused(*verify, "--agent", "ben").startswith(
        "version_conflict: another session changed the statement of fact 'pr-830' a short time ago"
    )
    assert json.loads(ok(*verify, "--json"))["fact"]["version"] == 3


def test_what_is_kept_for_the_record_is_never_due(ok: Ok) -> None:
    fact = json.loads(ok("facts", "record", "old", "It was so", "--archival", "--json"))["fact"]

    assert (fact["trust"], "recheck_at" in fact) == ("archival", False)


def test_a_statement_and_the_output_of_a_check_are_read_from_standard_input(
    ok: Ok, run: Run
) -> None:
    ok("facts", "record", "pr-830", "-", "--check", "gh", stdin="PR 830 is open\n")
    ok("facts", "verify", "pr-830", "--holds", "--evidence", "-", stdin='{"state":"OPEN"}\n')

    fact = json.loads(ok("facts", "show", "pr-830", "--json"))["fact"]
    assert (fact["statement"], fact["evidence"]) == ("PR 830 is open", '{"state":"OPEN"}')
    replaced = run("facts", "verify", "pr-830", "--fails", "--evidence", "-", stdin=b"\xff\n")
    assert (replaced.exit_code, replaced.stderr) == (
        0,
        "note: 1 character that cannot be stored became U+FFFD\n",
    )


def test_what_a_check_said_has_to_be_said_with_evidence(ok: Ok, refused: Refused) -> None:
    ok("facts", "record", "pr-830", "PR 830 is open", "--check", "gh")
    ok("facts", "record", "hunch", "It is so")

    assert refused("facts", "verify", "pr-830", "--evidence", "x", code=2) == (
        "bad_argument: neither --holds nor --fails was given. Give one of them."
    )
    assert refused("facts", "verify", "pr-830", "--holds") == (
        "evidence_required: fact 'pr-830' is not verified without evidence. "
        'Run its check (gh) and give --evidence "…" with what it printed, shortened, or a link.'
    )
    assert refused("facts", "verify", "hunch", "--holds", "--evidence", "x").startswith(
        "evidence_required: fact 'hunch' has no check, so none can have held. "
    )
    assert refused("facts", "verify", "none", "--holds", "--evidence", "x").startswith(
        "not_found: no fact 'none'"
    )
    assert ok("facts", "--trust", "provisional").startswith("2 of 2 provisional facts ")


def test_wrong_arguments_of_a_fact_are_told_and_record_nothing(ok: Ok, refused: Refused) -> None:
    record = ("facts", "record", "pr-830")
    assert refused(*record, code=2).startswith(
        "bad_argument: there is no fact 'pr-830', and a new one needs a statement. "
    )
    assert "missing argument 'FACT'" in refused("facts", "record", code=2)
    assert refused(*record, "x", "--because", "", code=2).startswith("bad_argument: ")
    assert refused(*record, "x", "--because", "pr-830", code=2).startswith(
        "bad_argument: that would be an argument in a circle: pr-830 because pr-830. "
    )
    assert refused(*record, "x", "--because", "none").startswith("not_found: no fact 'none'")
    assert refused(*record, "x", "--recheck-after", "soon", code=2).startswith(
        "bad_argument: --recheck-after is 'soon'"
    )
    assert refused(*record, "x" * 5000).startswith("over_limit: ")
    assert ok("facts") == (
        "No facts yet. `mcp-state facts record FACT STATEMENT --check …` makes one.\n"
        "[acme (from --project) · nothing stored yet]\n"
    )


@pytest.mark.parametrize("group", ["facts", "objective"])
def test_a_name_alone_is_no_command_as_with_runs(refused: Refused, group: str) -> None:
    told = {one: refused(one, "pr-830", code=2) for one in ("runs", group)}

    assert all(
        text.startswith(f"bad_argument: mcp-state {one} has no command 'pr-830'. It has ")
        for one, text in told.items()
    )


@pytest.mark.usefixtures("believed")
def test_a_thread_relies_on_facts_until_that_is_cleared(ok: Ok, refused: Refused) -> None:
    thread = json.loads(
        ok("thread", "set", "import", "--relies-on", "pr-830", "--relies-on", "contract", "--json")
    )
    assert [premise["name"] for premise in thread["relies_on"]] == ["contract", "pr-830"]
    assert ok("thread", "import").splitlines()[3:6] == [
        "relies on:",
        "    check first: make contract",
        "        contract · last held just now (person, not in this session: `exit 0`); "
        'believed then: "Amounts are cents"',
    ]

    cleared = json.loads(ok("thread", "set", "import", "--clear", "relies-on", "--json"))

    assert cleared["relies_on"] == []
    assert refused("thread", "set", "import", "--relies-on", "none").startswith(
        "not_found: no fact 'none'"
    )


def test_the_objective_is_shown_with_its_last_change(ok: Ok, clock: FakeClock) -> None:
    assert ok("objective") == ok("objective", "show")
    assert ok("objective") == (
        "No objective yet. `mcp-state objective set TEXT` sets it, --intent says why.\n"
        "[acme (from --project) · nothing stored yet]\n"
    )
    none = json.loads(ok("objective", "--json"))
    assert (none["objective"], none["version"], none["scope"]["project"]) == ("", 0, "acme")

    assert ok("objective", "set", "Ship import v2", "--intent", "Less asking") == (
        "saved: Ship import v2\n"
        "version 1, set by person just now\n"
        "intent: Less asking\n" + SCOPE.format(1)
    )
    clock.move(hours=2)
    ok(
        *("objective", "set", "-", "--reason", "v2 is in", "--expected-version", "1"),
        *("--agent", "ann"),
        stdin="Ship import v3\n",
    )
    clock.move(hours=2)

    assert ok("objective") == (
        "Ship import v3\n"
        "version 2, changed by ann 2 h ago, because v2 is in (was: Ship import v2)\n"
        "intent: Less asking\n" + SCOPE.format(2)
    )
    answer = json.loads(ok("objective", "--json"))
    assert [answer[key] for key in ("objective", "was", "intent", "version")] == [
        "Ship import v3",
        "Ship import v2",
        "Less asking",
        2,
    ]


def test_the_objective_has_at_most_500_characters_and_is_shown_whole(
    ok: Ok, refused: Refused
) -> None:
    text = " ".join(["import"] * 71) + " v2."
    assert len(text) == 500

    assert refused("objective", "set", f"{text}!") == (
        "over_limit: the objective would be 501 characters; the limit is 500. Say it in fewer "
        "words; what is long belongs in a memory block. Nothing was saved."
    )
    ok("objective", "set", text)

    assert ok("objective").splitlines()[0] == text


def test_changing_the_objective_needs_a_reason_and_the_version_that_it_replaces(
    ok: Ok, refused: Refused
) -> None:
    assert refused("objective", "set", "--intent", "x", code=2) == (
        "bad_argument: there is no objective yet. Say in OBJECTIVE what we are after."
    )
    ok("objective", "set", "Ship import v2")

    assert refused("objective", "set", "Ship import v3", code=2).startswith(
        "bad_argument: the objective is 'Ship import v2' (set by person just now); changing it or "
        "its intent needs a reason. "
    )
    changed = ("objective", "set", "Ship import v3", "--reason", "done")
    assert refused(*changed).startswith(
        "version_conflict: the objective is at version 1 (set by person just now): "
    )
    assert refused(*changed, "--expected-version", "4").startswith("version_conflict: ")
    assert ok("objective", "set", "Ship import v2").startswith("unchanged, nothing was written: ")
    assert ok("objective").splitlines()[:2] == [
        "Ship import v2",
        "version 1, set by person just now",
    ]


@pytest.mark.usefixtures("believed")
def test_facts_are_a_table_on_a_terminal(ok: Ok, shown: Shown, clock: FakeClock) -> None:
    ok("facts", "verify", "pr-830", "--fails", "--evidence", "MERGED")
    ok("facts", "record", "odd · name", "two\x1b[2J", "--check", "make", "--recheck-after", "1h")
    clock.move(hours=2)

    screen = shown("facts", columns=88)

    lines = plain(screen)
    assert " ".join(" ".join(lines[:2]).split()) == (
        "4 of 4 facts (1 trusted · 1 provisional, 1 of them due · 1 stale · 1 refuted · 0 archival)"
    )
    assert lines[2].split() == ["fact", "trust", "check,", "and", "what", "was", "believed"]
    assert all(cell_len(line) <= 88 for line in lines)
    assert " ".join(" ".join(lines[3:6]).split()) == (
        "odd · name provisional, due check first, due 1 h ago: make never checked, recorded 2 h "
        'ago (person); believed then: "two\ufffd[2J"'
    )
    told = " ".join(" ".join(lines).split())
    assert "contract trusted check first: make contract last held 2 h ago" in told
    assert (
        "pr-830 refuted DOES NOT HOLD · check: gh pr view 830 version 3, did not hold 2 h ago"
    ) in told
    assert "\x1b[1;31mprovisional, due" in screen
    assert "\x1b[31mrefuted" in screen
    assert "\x1b[1;31mDOES NOT HOLD" in screen
    assert lines[-1] == "[acme (from --project) · 1 thread · event 9]"


@pytest.mark.usefixtures("believed")
def test_what_does_not_hold_is_red_on_a_terminal_also_within_an_argument(
    ok: Ok, shown: Shown
) -> None:
    ok("facts", "record", "party", "It is at five", "--because", "friday", "--because", "contract")
    ok("facts", "verify", "pr-830", "--fails", "--evidence", "MERGED")

    friday = shown("facts", "show", "friday", columns=200)
    party = shown("facts", "show", "party", columns=200)
    ok("facts", "verify", "contract", "--fails", "--evidence", "euros")

    assert red(friday) == ["FELL", "  and DOES NOT HOLD"]
    assert red(party) == ["FELL", "  and FELL", "    and DOES NOT HOLD"]
    assert red(shown("facts", "show", "friday", columns=200)) == [
        "FELL",
        "  because DOES NOT HOLD",
        "  and DOES NOT HOLD",
    ]


def red(screen: str) -> list[str]:
    return re.findall(r"\x1b\[1;31m([^\x1b]*)\x1b", screen)


def test_a_check_that_held_where_there_is_nothing_is_noted(
    shown: Shown, ok: Ok, repository: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository())
    ok("facts", "record", "plan", "It is written down", "--check", "file:plan.md")

    screen = shown("facts", "verify", "plan", "--holds", "--evidence", "seen", columns=200)

    assert plain(screen)[:2] == [
        "plan is trusted, version 2, due again in 24 h",
        "NOTE: there is nothing at file:plan.md",
    ]
    assert "\x1b[33mNOTE:\x1b[0m there is nothing at " in screen


def test_what_a_check_leads_to_is_named_if_the_check_says_more(
    shown: Shown, ok: Ok, repository: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = repository()
    monkeypatch.chdir(here)
    ok("facts", "record", "contract", "Amounts are cents", "--check", "file:contract.md says cents")
    ok("facts", "verify", "contract", "--holds", "--evidence", "cents")
    (here / "contract.md").write_text("cents, or euros\n")

    screen = shown("facts", columns=200)

    assert [" ".join(line.split()) for line in plain(screen)[2:4]] == [
        "contract trusted check first: file:contract.md says cents",
        "looked up now: file:contract.md: CHANGED since then (6 bytes then, 16 now)",
    ]
    assert red(screen) == ["looked up now: file:contract.md: CHANGED since then"]


def test_a_terminal_without_facts_is_told_how_to_make_one(shown: Shown) -> None:
    assert plain(shown("facts")) == [
        "No facts yet. `mcp-state facts record FACT STATEMENT --check …` makes one.",
        "[acme (from --project) · nothing stored yet]",
    ]


def test_the_address_of_a_check_is_looked_up_in_the_worktree_of_the_caller(
    ok: Ok,
    shown: Shown,
    tmp_path: Path,
    repository: Callable[[], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = repository()
    monkeypatch.chdir(here)
    record = ("facts", "record", "contract", "Amounts are cents", "--check", "file:contract.md")
    ok(*record)
    ok("facts", "verify", "contract", "--holds", "--evidence", "cents")

    (here / "contract.md").write_text("cents, or euros\n")
    changed = ok("facts").splitlines()[1:-1]
    table = shown("facts", columns=200)
    (here / "contract.md").unlink()
    gone = ok("facts").splitlines()[1:-1]
    table_of_what_is_gone = shown("facts", columns=200)
    monkeypatch.chdir(tmp_path)
    elsewhere = ok("facts").splitlines()[1:-1]

    check = "check first: file:contract.md"
    claim = (
        "contract · last held just now (person, not in this session: `cents`); believed then: "
        '"Amounts are cents"'
    )
    now = "looked up now: CHANGED since then (6 bytes then, 16 now)"
    assert changed == [check, f"    {now}", f"    {claim}"]
    assert gone == [check, "    looked up now: GONE", f"    {claim}"]
    assert elsewhere == [
        check,
        "    looked up now: not looked up here: no directory is known for this call",
        f"    {claim}",
    ]
    _, _, *told = plain(table)
    assert [" ".join(line.split()) for line in told[:-1]] == [
        f"contract trusted {check}",
        now,
        claim.removeprefix("contract · "),
    ]
    assert "\x1b[1;31mlooked up now: CHANGED since then\x1b[0m (6 bytes then, 16 now)" in table
    assert "\x1b[1;31mlooked up now: GONE\x1b[0m" in table_of_what_is_gone


@pytest.fixture
def repository(tmp_path: Path) -> Callable[[], Path]:
    def make() -> Path:
        root = tmp_path / "shop"
        for folder in ("objects", "refs"):
            (root / ".git" / folder).mkdir(parents=True)
        (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (root / "contract.md").write_text("cents\n")
        return root

    return make


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_a_reading_command_makes_no_store(run: Run, path: str, words: list[str]) -> None:
    result = run(*words)

    assert result.exit_code == (1 if "show" in words and "facts" in words else 0)
    assert not exists(path)


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_a_read_without_a_project_answers_with_those_there_are(ok: Ok, words: list[str]) -> None:
    ok("journal", "append", "hello")

    assert ok(*words, MCP_STATE_PROJECT=None).splitlines()[1:] == ["  acme", "[no project]"]
    assert json.loads(ok(*words, "--json", MCP_STATE_PROJECT=None))["known"] == ["acme"]


@pytest.mark.parametrize("words", WRITES, ids=" ".join)
def test_a_write_without_a_project_is_refused_with_those_there_are(
    ok: Ok, refused: Refused, words: list[str]
) -> None:
    ok("journal", "append", "hello")

    assert refused(*words, MCP_STATE_PROJECT=None).startswith(
        "project_unknown: not saved: this command does not say which project it belongs to; "
        "known projects: acme. "
    )


@pytest.mark.usefixtures("believed")
@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_json_holds_the_result_and_its_scope(ok: Ok, words: list[str]) -> None:
    answer = json.loads(ok(*words, "--json"))

    scope = answer.pop("scope")
    assert answer
    assert (scope["project"], scope["event"]) == ("acme", 6)
