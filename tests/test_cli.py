"""The command line, driven in this process: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from conftest import Run
from whole_stores import exists

from mcp_state.cli import main

READS = (
    ["orient"],
    ["threads"],
    ["thread", "fix"],
    ["journal"],
    ["memory"],
    ["memory", "plan"],
    ["search", "hello"],
    ["history"],
    ["runs"],
)
WRITES = (
    ["thread", "set", "fix"],
    ["thread", "claim"],
    ["thread", "check", "fix", "1", "--passes"],
    ["thread", "release", "fix"],
    ["journal", "append", "hello"],
    ["memory", "set", "plan", "one"],
    ["memory", "append", "plan", "one"],
    ["memory", "delete", "plan"],
    ["memory", "restore", "plan", "1"],
    ["memory", "lock", "plan", "--reason", "mine"],
    ["memory", "unlock", "plan"],
)


@pytest.fixture
def ok(run: Run) -> Callable[..., str]:
    def invoke(*words: str, stdin: str | bytes = "", **changes: str | None) -> str:
        result = run(*words, stdin=stdin, **changes)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    return invoke


@pytest.fixture
def refused(run: Run) -> Callable[..., str]:
    def invoke(*words: str, code: int = 1, stdin: str | bytes = "", **changes: str | None) -> str:
        result = run(*words, stdin=stdin, **changes)
        assert (result.exit_code, result.stdout) == (code, "")
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
        return result.stderr.removeprefix("error: ").rstrip("\n")

    return invoke


Ok = Callable[..., str]
Refused = Callable[..., str]


def commands(
    group: click.Group = main, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """All commands and groups, by the words that call them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*words, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


def test_every_command_says_in_whole_sentences_what_it_does() -> None:
    for words, command in commands():
        text = command.help or ""
        assert re.match(r"[A-Z][^\n]{15,}", text), words
        assert all(part.rstrip().endswith(".") for part in text.split("\n\n")), words


def test_every_option_says_what_it_does() -> None:
    for words, command in commands():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{words} {parameter.name}"


def test_every_command_answers_in_json_if_asked_to() -> None:
    without = {
        words
        for words, command in commands()
        if not isinstance(command, click.Group)
        and not any("--json" in parameter.opts for parameter in command.params)
    }

    assert without == {"serve", "hook", "demo", "completion"}


def test_every_command_is_listed_in_the_readme() -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    _, heading, rest = readme.partition("\n## Command line\n")
    section = rest.partition("\n## ")[0]

    assert heading
    listed = [" ".join(re.findall("`([^`]+)`", line)).split() for line in section.splitlines()]
    missing = [
        words
        for words, _ in commands()
        if not any(set(words.split()) <= set(in_one_line) for in_one_line in listed)
    ]
    assert not missing


def test_the_bare_command_shows_what_there_is(ok: Ok) -> None:
    text = ok()

    assert text.startswith("Usage: mcp-state [OPTIONS] [COMMAND] [ARGS]...\n")
    assert all(f"\n  {words} " in text for words, _ in commands() if " " not in words)


def test_an_unknown_command_is_answered_with_the_nearest_one(refused: Refused) -> None:
    assert refused("thraeds", code=2).startswith(
        "bad_argument: mcp-state has no command 'thraeds'. Did you mean `mcp-state threads` or "
        "`mcp-state thread`? "
    )
    assert refused("journal", "tial", code=2) == (
        "bad_argument: mcp-state journal has no command 'tial'. Did you mean `mcp-state "
        "journal tail`? `mcp-state journal --help` lists them all."
    )
    assert refused("memory", "sett", "plan", code=2).startswith(
        "bad_argument: mcp-state memory has no command 'sett'. Did you mean `mcp-state memory "
        "set`? "
    )


def test_an_unknown_option_is_answered_with_the_nearest_one(refused: Refused) -> None:
    assert refused("threads", "--stauts", "done", code=2) == (
        "bad_argument: no such option '--stauts'. Did you mean --status? "
        "`mcp-state threads --help` says what it takes."
    )


def test_a_shared_option_before_the_command_is_told_its_place(refused: Refused) -> None:
    assert refused("--project", "acme", "threads", code=2) == (
        "bad_argument: no such option '--project'. Options stand after the command. "
        "`mcp-state --help` says what it takes."
    )


def test_a_missing_argument_is_named(refused: Refused) -> None:
    assert refused("memory", "set", "plan", code=2) == (
        "bad_argument: missing argument 'VALUE'. `mcp-state memory set --help` says what it takes."
    )


def test_a_text_that_begins_with_a_dash_stands_after_two(ok: Ok, refused: Refused) -> None:
    assert "A text that begins with - stands after --." in refused(
        "memory", "set", "plan", "- one", code=2
    )

    ok("memory", "set", "plan", "--", "- one")

    assert ok("memory", "plan").startswith("- one\nplan · version 1 · 5/4096 chars")


def test_numbers_that_no_database_holds_are_refused(refused: Refused) -> None:
    assert "is no number from" in refused("journal", "--since", str(1 << 70), code=2)
    assert "is no number from" in refused("threads", "--limit", "0", code=2)


def test_a_relative_path_of_the_store_is_refused(refused: Refused) -> None:
    here = Path.cwd()

    assert refused("threads", "--db", "state.db", code=2) == (
        "bad_argument: --db is 'state.db', a relative path; here it would mean "
        f"{here}/state.db, elsewhere another file. Give an absolute path."
    )
    assert refused("threads", code=2, MCP_STATE_DB="state.db").startswith(
        "bad_argument: MCP_STATE_DB is 'state.db', a relative path"
    )


@pytest.mark.parametrize("words", [*READS, ["projects"], ["doctor"]], ids=" ".join)
def test_a_reading_command_makes_no_store(run: Run, path: str, words: list[str]) -> None:
    result = run(*words)

    assert result.exit_code == (1 if words in (["thread", "fix"], ["memory", "plan"]) else 0)
    assert not exists(path)


def test_a_thread_goes_from_set_to_done(ok: Ok, refused: Refused) -> None:
    assert ok("thread", "set", "fix", "--title", "Fix it", "--next-action", "run the test") == (
        "saved, version 1: fix [active]  Fix it\n"
        "    next: run the test\n"
        "[acme (from --project) · 1 thread · event 1]\n"
    )
    assert refused("thread", "set", "fix", "--status", "done").startswith("evidence_required: ")
    assert ok("thread", "set", "fix", "--status", "DONE", "--evidence", "pytest: exit 0") == (
        "saved, version 2: fix [done]  Fix it\n"
        "    evidence: pytest: exit 0\n"
        "[acme (from --project) · 1 thread · event 2]\n"
    )
    assert ok("threads") == (
        "No open threads here. Threads: 0 active · 0 watching · 0 blocked · 1 done · 0 dropped.\n"
        "[acme (from --project) · 1 thread · event 2]\n"
    )
    assert ok("threads", "--status", "done").startswith("1 of 1 done threads (0 active · ")


def test_every_field_of_a_thread_can_be_set(ok: Ok) -> None:
    ok("thread", "set", "first")
    text = ok(
        *("thread", "set", "fix", "--status", "blocked", "--title", "Fix it"),
        *("--next-action", "ask", "--waiting-on", "reviewer", "--recheck-after", "4h"),
        *("--check", "gh pr view", "--evidence", "log", "--note", "why", "--priority", "2"),
        *("--depends-on", "first", "--criterion", "one", "--criterion", "two"),
        *("--place", "/src", "--place", '{"path_or_repo": "/old", "role": "donor", "note": "n"}'),
        *("--expected-version", "0", "--json"),
    )
    thread = json.loads(text)

    expected: dict[str, Any] = {
        "name": "fix",
        "status": "blocked",
        "title": "Fix it",
        "next_action": "ask",
        "waiting_on": "reviewer",
        "check": "gh pr view",
        "evidence": "log",
        "note": "why",
        "priority": 2,
        "depends_on": ["first"],
        "criteria": 2,
        "version": 1,
        "places": [
            {"path_or_repo": "/src", "role": "home", "note": ""},
            {"path_or_repo": "/old", "role": "donor", "note": "n"},
        ],
    }
    assert {name: thread[name] for name in expected} == expected
    assert thread["scope"]["project"] == "acme"


def test_a_field_is_emptied_by_name_not_by_an_empty_text(ok: Ok, refused: Refused) -> None:
    ok("thread", "set", "fix", "--next-action", "run", "--check", "make")

    assert refused("thread", "set", "fix", "--next-action", "", code=2) == (
        "bad_argument: --next-action is empty. "
        "Leave it out to keep what is there, or empty it with --clear next-action."
    )
    ok("thread", "set", "fix", "--clear", "next-action")

    thread = json.loads(ok("thread", "fix", "--json"))["thread"]
    assert (thread["next_action"], thread["check"]) == ("", "make")


@pytest.mark.parametrize(
    "place", ["{", "{}", '{"a":' * 9_000, '{"path_or_repo": "/a", "role": "away"}', ""]
)
def test_a_wrong_place_is_refused(refused: Refused, path: str, place: str) -> None:
    assert refused("thread", "set", "fix", "--place", place, code=2).startswith("bad_argument: ")
    assert not exists(path)


def test_an_unknown_status_is_a_wrong_argument(refused: Refused) -> None:
    expected = (
        "bad_argument: status is 'red'. Statuses are active, watching, blocked, done, dropped."
    )

    assert refused("threads", "--status", "red", code=2) == expected
    assert refused("thread", "set", "fix", "--status", "red", code=2) == expected


@pytest.mark.parametrize(
    ("typed", "status"),
    [
        *(("open", "active"), ("in_progress", "active"), ("Waiting", "blocked")),
        *(("wont-fix", "dropped"), ("closed", "done"), ("dnoe", "done")),
    ],
)
def test_a_status_of_another_tracker_is_told_ours(
    refused: Refused, typed: str, status: str
) -> None:
    assert refused("thread", "set", "fix", "--status", typed, code=2) == (
        f"bad_argument: status is {typed!r}. Did you mean {status}? "
        "Statuses are active, watching, blocked, done, dropped."
    )


def test_what_is_wanted_is_named_as_it_is_typed(ok: Ok, refused: Refused) -> None:
    ok("facts", "record", "port", "It is 80", "--check", "ss -l")
    ok("runs", "begin", "index", "Reindex")
    of_thread = ("thread", "set", "fix", "--status")

    assert refused(*of_thread, "done").endswith(
        'Give --evidence "…": a test run and its exit code, a commit, a link, file:line.'
    )
    assert refused(*of_thread, "dropped", code=2).endswith('Give --note "…" saying why.')
    assert 'Give --waiting-on "…"; ' in refused(*of_thread, "blocked", code=2)
    assert 'Give --evidence "…": a test run' in refused("runs", "finish", "index", "completed")
    assert 'Say in --reflection "…" why' in refused("runs", "finish", "index", "failed", code=2)
    assert 'Run its check (ss -l) and give --evidence "…" with what it printed' in refused(
        "facts", "verify", "port", "--holds"
    )
    assert "--attempts N, --minutes N or --tokens N, and say why with --reason" in refused(
        "runs", "raise", "index", "--reason", "slow", code=2
    )


def test_the_bare_group_of_threads_lists_them(ok: Ok) -> None:
    ok("thread", "set", "fix")

    assert ok("thread") == ok("thread", "get") == ok("threads")
    assert json.loads(ok("thread", "--json"))["total"] == 1


def test_a_missing_thread_is_refused_with_those_that_are_near(ok: Ok, refused: Refused) -> None:
    ok("thread", "set", "fix-import")

    assert refused("thread", "fix-imprt").startswith(
        "not_found: no thread 'fix-imprt'; there is 'fix-import'."
    )


def test_a_thread_named_like_a_command_is_read_with_get(ok: Ok) -> None:
    ok("thread", "set", "set", "--title", "The set")

    assert ok("thread", "get", "set").splitlines()[1] == "title: The set"


def test_a_lease_is_claimed_extended_released_and_broken(ok: Ok, refused: Refused) -> None:
    ok("thread", "set", "fix")
    token = str(json.loads(ok("thread", "claim", "--json"))["lease"]["token"])

    assert refused("thread", "claim", "fix").startswith("held: thread 'fix' is held by person")
    assert ok("thread", "claim", "fix", "--lease-token", token, "--lease", "2h").startswith(
        f"--lease-token {token} until "
    )
    for words in (["release", "fix"], ["set", "fix", "--status", "done"], ["claim", "fix"]):
        assert refused("thread", *words).endswith(
            "or pass the --lease-token if it is yours, or, if its holder is gone, "
            "`mcp-state thread release fix --force`."
        )
    assert ok("thread", "release", "fix", "--lease-token", token).startswith("released: fix [activ")
    ok("thread", "claim", "fix", "--agent", "codex")
    assert ok("thread", "release", "fix", "--force").startswith("released: fix [active]\n")
    assert "lease of codex broken by a person" in ok("history", "thread:fix")
    assert refused("thread", "release", "fix", "--force", "--lease-token", "1", code=2) == (
        "bad_argument: --force and --lease-token exclude each other. Give one of them."
    )


def test_a_criterion_is_marked_only_if_it_is_said_how(ok: Ok, refused: Refused) -> None:
    ok("thread", "set", "fix", "--criterion", "it works")

    assert refused("thread", "check", "fix", "1", code=2) == (
        "bad_argument: neither --passes nor --fails was given. Give one of them."
    )
    assert ok("thread", "check", "fix", "it works", "--passes", "--evidence", "log").startswith(
        "1/1 pass. fix: criterion 1 passes: it works\n"
    )
    assert ok("thread", "check", "fix", "1", "--fails").startswith("0/1 pass. fix: criterion 1 doe")


def test_the_journal_is_read_in_pages_and_by_kind_thread_and_actor(ok: Ok) -> None:
    ok("thread", "set", "fix")
    ok("journal", "append", "one", "--kind", "decision")
    ok("journal", "append", "two", "--thread", "fix")
    assert ok("journal", "append", "three", "--agent", "codex") == (
        "saved as entry 4\n[acme (from --project) · 1 thread · event 4]\n"
    )

    def texts(*options: str) -> list[str]:
        return [e["text"] for e in json.loads(ok("journal", *options, "--json"))["entries"]]

    assert texts() == texts("tail") == ["one", "two", "three"]
    assert texts("-n", "2") == ["two", "three"]
    assert texts("--before", "3") == ["one"]
    assert texts("--since", "2") == ["two", "three"]
    assert texts("--kind", "decision") == ["one"]
    assert texts("--thread", "fix") == ["two"]
    assert texts("--actor", "codex") == ["three"]
    assert ok("journal", "-n", "1") == (
        "1 entry, 2 older: --before 4\n"
        "4 codex just now\n"
        "    three\n"
        "[acme (from --project) · 1 thread · event 4]\n"
    )


def test_a_new_kind_that_is_nearly_a_known_one_is_noted(run: Run, ok: Ok) -> None:
    ok("journal", "append", "one", "--kind", "Decision")
    ok("journal", "append", "two", "--kind", "measurement")

    noted = run("journal", "append", "three", "--kind", "decison", "--json")
    used = run("journal", "append", "four", "--kind", "mesurement")

    assert noted.stderr == "note: kind 'decison' is new here; did you mean decision?\n"
    assert json.loads(noted.stdout)["kind"] == "decison"
    assert used.stderr == "note: kind 'mesurement' is new here; did you mean measurement?\n"
    assert run("journal", "append", "five", "--kind", "decison").stderr == ""


def test_a_person_gets_as_many_entries_as_asked_for(ok: Ok) -> None:
    for letter in "abc":
        ok("journal", "append", letter * 8000)

    text = ok("journal", "-n", "3")

    assert len(text) > 24_000
    assert text.startswith("3 entries\n")


def test_following_does_not_page_back(refused: Refused) -> None:
    assert refused("journal", "tail", "-f", "--before", "3", code=2) == (
        "bad_argument: --before does not go with -f. Leave one of them out."
    )


def test_a_text_is_read_from_standard_input_as_it_is(ok: Ok) -> None:
    ok("memory", "set", "plan", "-", stdin="one\n\n  two\n")
    ok("memory", "append", "plan", "-", stdin="three")
    ok("journal", "append", "-", stdin="gänzlich\n")

    assert json.loads(ok("memory", "plan", "--json"))["value"] == "one\n\n  two\nthree"
    assert json.loads(ok("journal", "--json"))["entries"][0]["text"] == "gänzlich\n"


def test_what_cannot_be_stored_is_replaced_and_counted(run: Run, ok: Ok) -> None:
    result = run("journal", "append", "-", stdin=b"a\xffb\0c\xe2\x82")

    assert result.exit_code == 0
    assert result.stderr == "note: 4 characters that cannot be stored became U+FFFD\n"
    assert (
        json.loads(ok("journal", "--json"))["entries"][0]["text"] == "a\ufffdb\ufffdc\ufffd\ufffd"
    )


def test_standard_input_without_end_is_not_read_to_the_end(refused: Refused, path: str) -> None:
    told = refused("journal", "append", "-", stdin=b"a" * (5 << 20))

    assert told.startswith("over_limit: standard input holds more than 4,194,304 bytes.")
    assert not exists(path)


def test_memory_is_set_appended_deleted_and_restored(ok: Ok, refused: Refused) -> None:
    assert ok("memory", "set", "plan", "one", "--ttl", "4h").startswith(
        "saved: plan · version 1 · 3/4096 chars · person just now · expires in 4 h\n"
    )
    assert ok("memory", "append", "plan", "+two", "--expected-version", "1").startswith(
        "saved: plan · version 2 · 7/4096 chars"
    )
    assert refused("memory", "set", "plan", "x", "--expected-version", "1").startswith(
        "version_conflict: block 'plan' is at version 2, not 1 "
    )
    assert ok("memory", "plan", "--version", "1").startswith("one\nplan · version 1 (not the curr")
    assert ok("memory", "delete", "plan").startswith("deleted: plan, which was at version 2. ")
    deleted = refused("memory", "plan")
    assert deleted == (
        'not_found: block "plan" was deleted; `mcp-state memory get plan --version 2` still reads '
        "its last text. There are no blocks now; `mcp-state memory set` makes one."
    )
    assert refused("memory", "get", "plan", "--json") == deleted
    assert refused("memory", "nope").startswith('not_found: no such block "nope". There are no ')
    assert ok("memory", "restore", "plan", "2").startswith("saved: plan · version 4 · 7/4096")
    assert ok("memory") == (
        "1 block:\n"
        "plan · version 4 · 7/4096 chars · person just now\n"
        "    one+two\n"
        "[acme (from --project) · 0 threads · event 5]\n"
    )


def test_a_block_is_restored_to_the_version_before(run: Run, ok: Ok, refused: Refused) -> None:
    ok("memory", "set", "plan", "one")
    assert "block 'plan' has no earlier version" in refused("memory", "restore", "plan")
    ok("memory", "set", "plan", "two")
    ok("memory", "delete", "plan")

    deleted = run("memory", "restore", "plan")
    replaced = run("memory", "restore", "plan", "--json")
    again = run("memory", "restore", "plan", "1")

    assert deleted.stderr == "note: version 2 is restored\n"
    assert deleted.stdout.startswith("saved: plan · version 4 · ")
    assert replaced.stderr == "note: version 2 is restored\n"
    assert json.loads(replaced.stdout)["value"] == "two"
    assert (again.exit_code, again.stderr) == (0, "")
    assert refused("memory", "restore", "nope").startswith("not_found: no block 'nope'")


def test_a_version_needs_a_key(refused: Refused) -> None:
    assert refused("memory", "--version", "1", code=2).startswith(
        "bad_argument: --version came without a key."
    )


def test_a_locked_block_stays_until_it_is_unlocked(ok: Ok, refused: Refused) -> None:
    ok("memory", "set", "plan", "one")
    assert "missing option '--reason'" in refused("memory", "lock", "plan", code=2)
    assert refused("memory", "lock", "plan", "--reason", " ", code=2).startswith(
        "bad_argument: --reason is empty."
    )
    locked = ok("memory", "lock", "plan", "--reason", "agreed with Ann")
    assert locked.startswith("locked: plan · version 1 · 3/4096 chars · person just now · locked")

    assert refused("memory", "set", "plan", "two") == (
        "locked: block 'plan' was locked by a person: agreed with Ann. "
        "Leave it, or ask for `mcp-state memory unlock plan`."
    )
    ok("memory", "unlock", "plan")
    ok("memory", "set", "plan", "two")

    assert json.loads(ok("memory", "plan", "--json"))["value"] == "two"


def test_search_takes_words_as_they_come(ok: Ok) -> None:
    ok("journal", "append", "the golden test is slow")
    ok("memory", "set", "plan", "make the golden test fast")

    assert ok("search", "golden", "test", "--kind", "journal") == (
        "1 of 1 matches\n"
        "journal:1  person just now\n"
        "    the golden test is slow\n"
        "[acme (from --project) · 0 threads · event 2]\n"
    )
    page = json.loads(ok("search", "golden", "--limit", "1", "--json"))
    assert (page["matches"], len(page["hits"])) == (2, 1)
    next_page = json.loads(ok("search", "golden", "--cursor", page["cursor"], "--json"))
    assert {h["kind"] for h in page["hits"] + next_page["hits"]} == {"memory", "journal"}


def test_history_shows_what_a_person_did_and_under_which_name(ok: Ok, refused: Refused) -> None:
    ok("memory", "set", "plan", "one")
    ok("memory", "set", "plan", "two", MCP_STATE_AGENT="ann")
    ok("memory", "set", "plan", "three", "--agent", "ben", MCP_STATE_AGENT="ann")

    events = json.loads(ok("history", "memory:plan", "--json"))["events"]
    assert [e["actor"] for e in events] == [
        {"agent": agent, "client": "mcp-state", "session": ""} for agent in ("person", "ann", "ben")
    ]
    assert ok("history", "--since", "2") == (
        "1 event\n"
        "3 ben: memory plan set, 5 chars · just now\n"
        "[acme (from --project) · 0 threads · event 3]\n"
    )
    assert refused("history", "plan", code=2).startswith("bad_argument: subject is 'plan'. Write ")


def test_orient_keeps_to_its_budget(ok: Ok, refused: Refused) -> None:
    for number in range(40):
        ok("thread", "set", f"thread-{number}", "--next-action", "x" * 100)

    assert len(ok("orient", "--max-tokens", "300")) <= 1201
    assert ok("orient").startswith("project acme (from --project) · agent person · ")
    assert refused("orient", "--max-tokens", "3", code=2).startswith(
        "bad_argument: --max-tokens is"
    )


def test_projects_are_listed_renamed_and_merged(run: Run, ok: Ok, refused: Refused) -> None:
    ok("thread", "set", "fix")
    run("thread", "set", "fix", "--project", "other")

    assert ok("projects", "list") == ok("projects")
    assert ok("projects", "rename", "other", "second") == (
        "renamed: second  1 thread, 0 in the journal, 0 blocks, event 2, changed just now\n"
        "    also: other\n"
    )
    assert refused("projects", "rename", "none", "third").startswith("not_found: no project 'none'")
    assert refused("projects", "rename", "acme", "second").startswith("conflict: ")
    assert ok("projects", "merge", "second", "acme").startswith("merged: acme  2 threads, ")
    assert [project["name"] for project in json.loads(ok("projects", "--json"))] == ["acme"]


@pytest.mark.sqlite
def test_doctor_finds_nothing_wrong_with_a_sound_store(ok: Ok, path: str) -> None:
    ok("journal", "append", "hello")

    text = ok("doctor")
    report = json.loads(ok("doctor", "--json"))

    assert text.startswith(f"store    {path}\n") and text.endswith("\nNothing is wrong.\n")
    assert (report["path"], report["exists"], report["changes"]) == (path, True, 1)
    assert {finding["severity"] for finding in report["findings"]} == {"ok"}
    checks = [finding["what"] for finding in report["findings"]]
    assert f"\nok       {len(checks)} checks\n" in text
    assert f"\nok       {len(checks)} checks: {', '.join(checks)}\n" in ok("doctor", "-v")


@pytest.mark.sqlite
def test_doctor_ends_with_one_if_something_is_damaged(run: Run, ok: Ok, path: str) -> None:
    ok("journal", "append", "hello")
    Path(path).write_bytes(b"no database" * 1000)

    result = run("doctor")

    assert (result.exit_code, result.stderr) == (1, "")
    assert "\ndamage   " in result.stdout and "mcp-state restore BACKUP" in result.stdout


@pytest.mark.sqlite
def test_a_backup_is_restored(ok: Ok, refused: Refused, tmp_path: Path, path: str) -> None:
    copy = str(tmp_path / "copy.db")
    ok("memory", "set", "plan", "one")
    assert ok("backup", copy).startswith(f"saved 1 change in {copy} (")
    assert refused("backup", copy, code=2).startswith(f"bad_argument: {copy} exists already")
    assert json.loads(ok("backup", copy, "--overwrite", "--json"))["changes"] == 1
    ok("memory", "set", "plan", "two")

    text = ok("restore", copy)

    assert text.startswith(
        f"restored 1 change from {copy} to {path}\n"
        "not in it, since made after the backup: 1 change\n"
        f"kept what was there: {path}."
    )
    assert json.loads(ok("memory", "plan", "--json"))["value"] == "one"
    assert refused("restore", str(tmp_path / "none")).startswith("not_found: no backup at ")


@pytest.mark.sqlite
def test_a_damaged_store_is_an_error_with_a_way_out(ok: Ok, refused: Refused, path: str) -> None:
    ok("journal", "append", "hello")
    Path(path).write_bytes(b"no database" * 1000)

    for words in (["threads"], ["orient"], ["journal", "append", "more"]):
        assert refused(*words).startswith(f"store_damaged: {path}: ")


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_a_read_without_a_project_answers_with_those_there_are(
    ok: Ok, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    ok("journal", "append", "hello")
    monkeypatch.chdir(tmp_path)

    assert ok(*words, MCP_STATE_PROJECT=None) == (
        "This command does not say which project it belongs to. Pass --project NAME, or run it in "
        "a git repository; known are:\n"
        "  acme\n"
        "[no project]\n"
    )
    assert json.loads(ok(*words, "--json", MCP_STATE_PROJECT=None))["known"] == ["acme"]


@pytest.mark.parametrize("words", WRITES, ids=" ".join)
def test_a_write_without_a_project_is_refused_with_those_there_are(
    ok: Ok, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    ok("journal", "append", "hello")
    monkeypatch.chdir(tmp_path)

    assert refused(*words, MCP_STATE_PROJECT=None) == (
        "project_unknown: not saved: this command does not say which project it belongs to; "
        "known projects: acme. "
        "Pass --project NAME (a new name begins a new project), or run it in a git repository."
    )


def test_a_project_that_may_be_mistyped_is_noted_beside_the_answer(run: Run, ok: Ok) -> None:
    assert run("journal", "append", "first", MCP_STATE_PROJECT="shop-1b5c57").stderr == ""
    ok("journal", "append", "second", MCP_STATE_PROJECT="shop-1b5c57")

    read = run("threads", "--project", "shop", "--json")
    missing = run("thread", "fix", "--project", "shop")
    written = run("journal", "append", "third", "--project", "shpo", "--json")
    again = run("journal", "append", "fourth", "--project", "shpo")

    assert read.stderr == "note: there is no project 'shop' yet; known are shop-1b5c57\n"
    assert json.loads(read.stdout)["total"] == 0
    assert missing.stderr.startswith(read.stderr + "error: not_found: ")
    assert written.stderr == "note: new project 'shpo' (known: shop-1b5c57)\n"
    assert json.loads(written.stdout)["scope"]["project"] == "shpo"
    assert again.stderr == ""
    assert run("threads", "--project", "shop").stderr == (
        "note: there is no project 'shop' yet; known are shop-1b5c57, shpo\n"
    )


def test_a_note_cannot_command_the_terminal(run: Run) -> None:
    run("journal", "append", "first", "--project", "red\u202eder")

    noted = run("journal", "append", "second", "--project", "blue").stderr

    assert noted == "note: new project 'blue' (known: red\ufffdder)\n"


def test_a_sentence_as_the_name_of_a_thread_is_answered_with_a_short_one(run: Run, ok: Ok) -> None:
    long = "Fix the import of old files"

    assert run("thread", "set", long).stderr == (
        "note: that is its name now, to be typed each time; a short name with the sentence as "
        "title is easier: `mcp-state thread set NAME --title 'Fix the import of old files'`\n"
    )
    assert run("thread", "set", long, "--priority", "2").stderr == ""
    ok("thread", "set", "fix-import", "--title", long)
    ok("thread", "set", "Fix the import")


def test_following_without_a_project_is_refused(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert refused("journal", "-f", MCP_STATE_PROJECT=None).startswith("project_unknown: ")


def test_a_project_is_found_as_the_server_finds_it(
    ok: Ok, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("api", "web"):
        git = tmp_path / name / ".git"
        (git / "objects").mkdir(parents=True)
        (git / "refs").mkdir()
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        (git / "config").write_text(f'[remote "origin"]\n\turl = git@github.com:Acme/{name}.git\n')
    monkeypatch.chdir(tmp_path / "api")
    nothing_named = {"MCP_STATE_PROJECT": None}

    def scope(*options: str, **environment: str | None) -> tuple[str, str]:
        answer = json.loads(ok("threads", *options, "--json", **(nothing_named | environment)))
        return answer["scope"]["project"], answer["scope"]["how"]

    api, web = ("github.com/acme/api", "git origin"), ("github.com/acme/web", "git origin")
    assert scope() == api
    assert scope("--project", "../web") == web
    assert scope("--project", str(tmp_path / "web")) == web
    assert scope("--project", "plans") == ("plans", "--project")
    assert scope(CLAUDE_PROJECT_DIR=str(tmp_path / "web")) == web
    assert scope(CLAUDE_PROJECT_DIR=str(tmp_path / "web"), MCP_STATE_PROJECT=".") == api


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_json_holds_the_result_and_its_scope(ok: Ok, words: list[str]) -> None:
    ok("thread", "set", "fix")
    ok("journal", "append", "hello")
    ok("memory", "set", "plan", "one")

    answer = json.loads(ok(*words, "--json"))

    scope = answer.pop("scope")
    assert answer
    assert (scope["project"], scope["how"], scope["event"]) == ("acme", "--project", 3)


def test_json_keeps_from_a_terminal_what_it_would_obey(ok: Ok) -> None:
    text = "\x1b[2J \x9b2J \u2028 \x7f ä"
    ok("memory", "set", "plan", "--", text)

    printed = ok("memory", "plan", "--json")

    assert json.loads(printed)["value"] == text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028]", printed)


def test_a_store_on_a_server_is_no_file_to_back_up(run: Run, tmp_path: Path) -> None:
    for words in (("backup", "x.bak"), ("restore", "x.bak")):
        done = run(*words, "--db", "postgresql://someone:secret@db.example/agents")
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr == (
            "error: conflict: postgresql://db.example/agents is a store on PostgreSQL, which is no "
            "file. Nothing was done. `mcp-state migrate-store ADDRESS FILE` copies it into a file; "
            "`PGOPTIONS='-c mcp_state.project=*' pg_dump --enable-row-security ADDRESS` dumps it "
            "for psql to bring back.\n"
        )
