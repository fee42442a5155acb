"""Importing what other tools keep: again, after changes on either side, cut short, and damaged."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import peeking
import pytest
from conftest import Run
from long_runs import contradictions
from spending import spent
from test_foreign_formats import FILES, blocks, imported, thread
from whole_stores import everything, exists

from mcp_state.foreign import recognising

Json = dict[str, Any]


def counts(taken: Json) -> tuple[Json, Json, Json, Sequence[str]]:
    why = [one["why"] for one in taken["not_taken"]]
    return taken["taken"], taken["changed"], taken["here"], why


def issue(name: str, title: str = "", status: str = "open", **more: Any) -> Json:
    head = {"id": name, "title": title or name, "status": status, "priority": 2}
    return head | {"created_at": "2026-01-01T00:00:00Z"} | more


def beads(folder: Path, *issues: Json) -> Path:
    file = folder / "issues.jsonl"
    file.write_text("\n".join(map(json.dumps, issues)), encoding="utf-8")
    return file


def rows(path: str) -> list[tuple[Any, ...]]:
    return peeking.rows(path, "SELECT seq, kind, name, operation FROM events ORDER BY seq")


@pytest.mark.parametrize("name", ["beads", "taskmaster", "backlog", "server-memory"])
def test_a_second_import_changes_nothing_and_says_so(run: Run, path: str, name: str) -> None:
    first = imported(run, FILES / name)
    before = rows(path)

    result = run("import", str(FILES / name))

    assert result.stdout.startswith(f"nothing to import from {name}; here already: ")
    assert imported(run, FILES / name)["here"] == first["taken"]
    assert rows(path) == before
    assert contradictions(path) == []


def test_a_secret_in_a_name_or_an_entry_is_not_repeated(run: Run, tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    comment = {"id": 1, "text": token, "author": "anna", "created_at": ""}
    file = beads(tmp_path, issue(token), issue("b", token), issue("c", comments=[comment]))

    result = run("import", str(file))

    assert token not in result.output
    assert [line.split(": not saved")[0] for line in result.stdout.splitlines()[2:5]] == [
        "  issues.jsonl:1: thread",
        "  issues.jsonl:2: thread b",
        "  issues.jsonl:3: entry",
    ]


def test_ids_that_differ_in_case_alone_are_one_also_as_dependencies(
    run: Run, path: str, tmp_path: Path
) -> None:
    def after(name: str, *needs: str) -> Json:
        return issue(name, dependencies=[{"depends_on_id": n, "type": "blocks"} for n in needs])

    file = beads(tmp_path, after("a", "B"), after("b", "C"), after("c", "A"))

    taken = imported(run, file)

    assert [(one["what"], one["why"]) for one in taken["not_taken"]] == [
        ("c depends on A", "which waits for it: a circle")
    ]
    assert [thread(run, name)["depends_on"] for name in "abc"] == [["b"], ["c"], []]
    assert counts(imported(run, file))[:2] == ({}, {})
    assert contradictions(path) == []


@pytest.mark.sqlite
def test_a_long_chain_is_taken_in_time(run: Run, tmp_path: Path) -> None:
    links = [[{"depends_on_id": f"{number + 1}"}] for number in range(1200)]
    issues = [issue(str(n), dependencies=link) for n, link in enumerate(links)]
    file = beads(tmp_path, *issues)
    in_time = spent(6)

    assert imported(run, file)["taken"] == {"thread": 1200}
    in_time()


def test_links_in_a_repository_are_not_followed_but_one_that_is_named_is(
    run: Run, tmp_path: Path
) -> None:
    elsewhere, repository = tmp_path / "elsewhere", tmp_path / "repository"
    (repository / ".beads").mkdir(parents=True)
    elsewhere.mkdir()
    beads(elsewhere, issue("theirs"))
    (elsewhere / "private.md").write_text("---\nid: x\ntitle: theirs\n---\n")
    (elsewhere / "memory.jsonl").write_text('{"type": "entity", "name": "x", "entityType": "y"}')
    (repository / ".beads" / "issues.jsonl").symlink_to(elsewhere / "issues.jsonl")
    (repository / "memory.jsonl").symlink_to(elsewhere / "memory.jsonl")
    (repository / "config.yml").write_text("")
    (repository / "tasks").symlink_to(elsewhere)

    taken = imported(run, repository)

    assert taken["format"] == "backlog"
    assert (taken["taken"], taken["not_taken"]) == (
        {},
        [{"place": "tasks", "what": "a link", "why": "links are not followed"}],
    )
    for format in ("beads", "server-memory", "taskmaster"):
        assert run("import", str(repository), "--from", format).exit_code == 2
    (tmp_path / "link.jsonl").symlink_to(elsewhere / "issues.jsonl")
    assert imported(run, tmp_path / "link.jsonl")["taken"] == {"thread": 1}


def test_what_is_said_of_a_file_is_one_line_whatever_it_is_called(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two\nlines.md").write_text("x")
    (tmp_path / "more.md").write_text("x")
    assert [line[:20] for line in run("import", str(tmp_path)).stdout.splitlines()[1:3]] == [
        "not taken: 1",
        "  two lines.md: bloc",
    ]


@pytest.mark.parametrize("name", ["beads", "taskmaster", "backlog", "server-memory"])
def test_a_dry_run_says_the_same_and_writes_nothing(run: Run, path: str, name: str) -> None:
    wanted = imported(run, FILES / name, "--dry-run")
    assert not exists(path)
    run("journal", "append", "there is a store")
    again = imported(run, FILES / name, "--dry-run")
    assert len(rows(path)) == 1

    taken = imported(run, FILES / name)

    assert wanted["dry_run"] and again["dry_run"] and not taken["dry_run"]
    for report in (wanted, again, taken):
        for key in ("event", "dry_run", "scope"):
            del report[key]
    assert wanted == again == taken


def test_a_dry_run_of_an_export_says_the_same_and_writes_nothing(
    run: Run, path: str, tmp_path: Path
) -> None:
    run("thread", "set", "fix")
    file = str(tmp_path / "acme.jsonl")
    run("export", file)

    wanted = run("import", file, "--project", "other", "--dry-run")
    assert wanted.stdout.startswith("would import 1 event from acme into other\n")
    assert len(rows(path)) == 1

    taken = run("import", file, "--project", "other")
    assert taken.stdout.startswith("imported 1 event from acme into other\n")


def test_only_the_new_is_taken_and_what_went_on_there_goes_on_here(
    run: Run, tmp_path: Path
) -> None:
    beads(tmp_path, issue("a"), issue("b"), issue("c"))
    file = tmp_path / "issues.jsonl"
    imported(run, file)
    run("thread", "set", "b", "--next-action", "mine")
    closed = {"closed_at": "2026-02-01T00:00:00Z", "close_reason": "fixed"}
    beads(
        tmp_path,
        issue("a", status="closed", **closed),
        issue("b", "Another title"),
        issue("c"),
        issue("d", dependencies=[{"depends_on_id": "a", "type": "blocks"}]),
    )

    taken = imported(run, file)

    assert counts(taken) == (
        {"thread": 1},
        {"thread": 1},
        {"thread": 1},
        ["it was changed there and here since it was taken; it is left as it is"],
    )
    done, mine, new = thread(run, "a"), thread(run, "b"), thread(run, "d")
    assert (done["status"], done["version"]) == ("done", 2)
    assert done["evidence"] == "closed in beads on 2026-02-01T00:00:00Z: fixed"
    assert (mine["title"], mine["next_action"]) == ("b", "mine")
    assert new["depends_on"] == ["a"]


def test_what_was_changed_or_deleted_here_is_not_reset(run: Run, tmp_path: Path) -> None:
    file = beads(
        tmp_path, issue("a"), {"_type": "memory", "key": "m", "value": "theirs"}, issue("b")
    )
    imported(run, file)
    run("thread", "set", "a", "--status", "done", "--evidence", "make test: 0")
    run("memory", "delete", "m")

    assert counts(imported(run, file)) == ({}, {}, {"thread": 2, "block": 1}, [])
    assert (thread(run, "a")["status"], blocks(run)) == ("done", {})


def test_what_was_reopened_there_is_reopened_here(run: Run, tmp_path: Path) -> None:
    file = beads(tmp_path, issue("a", status="closed"))
    imported(run, file)
    beads(tmp_path, issue("a", status="blocked", dependencies=[]))

    assert imported(run, file)["changed"] == {"thread": 1}
    assert thread(run, "a")["status"] == "blocked"
    assert imported(run, file)["here"] == {"thread": 1}


def test_what_is_here_under_a_name_is_left_alone_and_listed(run: Run, tmp_path: Path) -> None:
    run("thread", "set", "a", "--title", "mine")
    run("memory", "set", "m", "mine")
    file = beads(tmp_path, issue("A"), {"_type": "memory", "key": "M", "value": "theirs"})

    assert counts(imported(run, file)) == (
        {},
        {},
        {},
        [
            "a block of this name is here already; it is left as it is",
            "a thread of this name is here already; it is left as it is",
        ],
    )
    assert (thread(run, "a")["title"], blocks(run)) == ("mine", {"m": "mine"})


def test_another_source_with_the_same_names_changes_nothing(run: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    imported(run, beads(tmp_path / "one", issue("a", "first"), issue("same")))

    taken = imported(run, beads(tmp_path / "two", issue("a", "second"), issue("same")))

    why = "another beads source has one of this name, taken before"
    assert counts(taken) == ({}, {}, {"thread": 1}, [why])
    assert thread(run, "a")["title"] == "first"


def test_a_secret_a_lease_and_a_lock_keep_one_thing_out_and_nothing_else(
    run: Run, path: str, tmp_path: Path
) -> None:
    token = "ghp_" + "a1B2" * 9
    memory = {"_type": "memory", "key": "m", "value": "one"}
    file = beads(tmp_path, issue("a"), issue("b"), issue("c", description=token), memory)
    first = imported(run, file)
    assert first["taken"] == {"thread": 2, "block": 1}
    (why,) = first["not_taken"]
    assert why["what"] == "thread c" and "holds what looks like a GitHub token" in why["why"]
    assert "--allow-secrets" in run("import", str(file)).stdout
    run("thread", "claim", "b")
    run("memory", "lock", "m", "--reason", "final")
    beads(tmp_path, issue("a", "A2"), issue("b", "B2"), memory | {"value": "two"})

    taken = imported(run, file)

    assert taken["changed"] == {"thread": 1}
    assert [one["what"] for one in taken["not_taken"]] == ["block m", "thread b"]
    assert (thread(run, "b")["title"], blocks(run)) == ("b", {"m": "one"})
    assert token not in "".join(everything(path))
    assert contradictions(path) == []


def test_what_could_not_be_waited_for_is_when_it_has_come(run: Run, tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    needs: Json = {"dependencies": [{"depends_on_id": "a", "type": "blocks"}]}
    file = beads(tmp_path, issue("a", description=token), issue("b", **needs), issue("c", **needs))
    first = imported(run, file)
    missing = ["b depends on a", "c depends on a"]
    assert [one["what"] for one in first["not_taken"]] == ["thread a", *missing]
    again = imported(run, file)
    assert (again["here"], again["not_taken"]) == ({"thread": 2}, first["not_taken"])
    run("thread", "set", "c", "--next-action", "mine")

    taken = imported(run, file, "--allow-secrets")

    assert counts(taken) == ({"thread": 1}, {"thread": 1}, {"thread": 1}, [])
    assert (thread(run, "b")["depends_on"], thread(run, "c")["depends_on"]) == (["a"], [])
    assert counts(imported(run, file)) == ({}, {}, {"thread": 3}, [])


def test_a_long_note_that_was_condensed_here_is_left_alone(run: Run, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "long.md").write_text("word " * 1000)
    imported(run, notes)
    run("memory", "set", "long", "condensed")

    assert counts(imported(run, notes)) == ({}, {}, {"block": 1}, [])
    assert blocks(run) == {"long": "condensed"}


def test_no_text_is_cut(run: Run, tmp_path: Path) -> None:
    title, text = "t" * 400, "line\n" * 1000
    long = "- " + "c" * 3000
    links = [{"depends_on_id": f"n{n}", "type": "blocks"} for n in range(52)]
    whole = issue("a", title, description=text, acceptance_criteria=long, dependencies=links)
    file = beads(tmp_path, whole, *(issue(f"n{n}") for n in range(52)))

    taken = imported(run, file)

    assert [one["what"] for one in taken["not_taken"]] == ["a depends on n50", "a depends on n51"]
    found = thread(run, "a")
    assert (len(found["depends_on"]), len(found["title"])) == (50, 300)
    key = found["note"].partition(" is in the blob ")[2].partition(":")[0]
    kept = run("blob", "get", key).stdout
    assert all(part in kept for part in (title, text.rstrip("\n"), "c" * 3000))


def test_characters_that_cannot_be_stored_are_counted(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "issues.jsonl"
    file.write_text(json.dumps(issue("a", description="x\ud800y\0")))

    result = run("import", str(file))

    assert "2 characters that cannot be stored became U+FFFD" in result.stderr
    assert thread(run, "a")["note"].endswith("x\ufffdy\ufffd")
    assert imported(run, file)["here"] == {"thread": 1}


def test_a_kill_in_the_middle_is_made_good_by_running_it_again(
    path: str, engine: str, tmp_path: Path
) -> None:
    count = 600 if engine == "sqlite" else 300
    dependencies = [{"depends_on_id": "i0", "type": "blocks"}]
    many = [
        issue(f"i{n}", acceptance_criteria="- [x] a\n- b", dependencies=dependencies if n else [])
        for n in range(count)
    ]
    file = beads(tmp_path, *many)
    words = ("-m", "mcp_state", "import", str(file), "--project", "acme", "--db", path)
    child = subprocess.Popen(
        [sys.executable, *words], stderr=subprocess.STDOUT, stdout=subprocess.DEVNULL
    )
    seen = 0
    while child.poll() is None and seen < count // 10:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.01)
        if exists(path):
            [(seen,)] = peeking.rows(path, "SELECT count(*) FROM threads")
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert 0 < seen < count

    done = subprocess.run([sys.executable, *words, "--json"], capture_output=True, check=True)

    report = json.loads(done.stdout)
    assert report["taken"]["thread"] + report["here"]["thread"] == count
    assert report["taken"]["thread"] > 0 and report["not_taken"] == []
    counts = "SELECT count(*), sum(criteria), sum(passing), count(DISTINCT name) FROM threads"
    assert peeking.rows(path, counts) == [(count, 2 * count, count, count)]
    assert contradictions(path) == []


def test_another_store_that_got_an_export_knows_what_was_taken(run: Run, tmp_path: Path) -> None:
    file = beads(tmp_path, issue("a"), issue("b"), {"_type": "memory", "key": "m", "value": "x"})
    imported(run, file)
    run("export", str(tmp_path / "acme.jsonl"))
    there = {"MCP_STATE_DB": str(tmp_path / "there" / "state.db")}
    run("thread", "set", "b", "--title", "theirs", **there)
    carried = run("import", str(tmp_path / "acme.jsonl"), "--project", "acme", **there)
    assert "kept apart, since the name is taken: thread b -> b (from acme)" in carried.stdout
    beads(tmp_path, issue("a", "A2"), issue("b", "B2"))

    result = run("import", str(file), **there)

    assert result.stdout.splitlines()[:4] == [
        "imported from beads into acme: nothing new",
        "went on there, and so here, as a new version: 1 thread",
        "not taken: 1",
        "  issues.jsonl:2: thread b: a thread of this name is here already; it is left as it is",
    ]


def test_a_merge_forgets_what_was_taken_where_names_clash(run: Run, tmp_path: Path) -> None:
    file = beads(tmp_path, issue("a"))
    imported(run, file, "--project", "old")
    run("thread", "set", "a", "--title", "mine")
    assert run("projects", "merge", "old", "acme").exit_code == 0
    beads(tmp_path, issue("a", "A2"))

    why = "a thread of this name is here already; it is left as it is"
    assert counts(imported(run, file)) == ({}, {}, {}, [why])
    assert thread(run, "a")["title"] == "mine"


# What it is taken for


@pytest.mark.parametrize(
    ("name", "text", "format"),
    [
        (
            "memory.jsonl",
            '{"type":"relation","from":"a","to":"b","relationType":"r"}',
            "server-memory",
        ),
        ("x.jsonl", json.dumps(issue("a")), "beads"),
        ("x.json", json.dumps([issue("a")]), "beads"),
        ("x.json", '{"tasks":[{"id":1,"title":"a"}]}', "taskmaster"),
        ("x.jsonl", '{"time":"2026-01-01","text":"a"}', "journal"),
        ("x.json", '[{"time":"2026-01-01","text":"a"}]', "journal"),
        ("x.md", "# a note", "notes"),
    ],
)
def test_a_file_is_recognised_and_it_is_said_what_it_was_taken_for(
    run: Run, tmp_path: Path, name: str, text: str, format: str
) -> None:
    file = tmp_path / name
    file.write_text(text)

    result = run("import", str(file))

    assert result.exit_code == 0
    assert result.stderr == f"note: {file} was taken for {format}; --from says otherwise\n"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"log.md": "## 2026-01-01\nx"}, "may be journal or notes"),
        ({"a/2026-01-01.md": "x"}, "may be journal or notes"),
        ({".beads/issues.jsonl": "", "tasks.json": '{"tasks":[]}'}, "may be beads or taskmaster"),
        ({"a.txt": "x"}, "is a folder with nothing in it that is known here"),
        ({".git/HEAD": "x", "README.md": "# x"}, "is a git repository that holds nothing known"),
    ],
)
def test_what_may_be_several_things_is_asked_for(
    run: Run, tmp_path: Path, files: dict[str, str], told: str
) -> None:
    for name, text in files.items():
        file = tmp_path / "in" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    only = tmp_path / "in" / "log.md"
    path = only if only.exists() else tmp_path / "in"

    result = run("import", str(path))

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: bad_argument: {path} {told}")
    assert "--from" in result.stderr


# Damage


@pytest.mark.parametrize(
    ("format", "name", "data", "told"),
    [
        ("taskmaster", "t.json", b'{"tasks": [', "is no JSON: Expecting value, line 1"),
        ("taskmaster", "t.json", b'{"tasks": 1}', "holds no list of tasks"),
        ("taskmaster", "t.json", b"[" * 100_000, "is no JSON: it is nested too deeply"),
        ("taskmaster", "t.json", b'{"a":\n"\xff"}', "is not in UTF-8: line 2, byte 7"),
        ("journal", "j.md", b"# nothing\n", "has no heading with a date"),
        ("taskmaster", "t.json", b"9" * 5000, "is no JSON: a number has too many digits. Nothing"),
        ("beads", "b.jsonl", b"", "holds nothing that beads would have"),
        ("beads", "b.json", b"[{}", "is no JSON: Expecting ',' delimiter, line 1"),
    ],
)
def test_damaged_files_are_refused_and_nothing_is_written(
    run: Run, path: str, tmp_path: Path, format: str, name: str, data: bytes, told: str
) -> None:
    file = tmp_path / name
    file.write_bytes(data)

    result = run("import", str(file), "--from", format)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: bad_argument: {file} {told}")
    assert result.stderr.endswith("Nothing was imported.\n")
    assert not exists(path)


@pytest.mark.parametrize(
    ("format", "name", "text"),
    [
        ("journal", "j.md", "# 2026-01-01" + " " * 100_000 + "x\n# " + " #" * 100_000 + "x"),
        ("journal", "j.md", "# 2026-01-01" + " 30 " * 100_000 + "\n# May " * 50_000),
        ("backlog", "b", "---\nid: a\ntitle: t\n---\n" + "<!-- AC:BEGIN -->\n" * 50_000),
        ("backlog", "b", "---\nid: a\ntitle: t\nx: [" + "'a" * 100_000 + "\n---\n" + " " * 100_000),
        ("backlog", "b", "---\nid: a\ntitle: t\n" + "a: &a [*a,*a]\n" * 50_000 + "---\n"),
        ("backlog", "b", "---\nid: a\ntitle: t\n---\n<!-- AC:BEGIN -->\n- " + " " * 100_000),
    ],
)
def test_hostile_text_is_read_in_time(tmp_path: Path, format: str, name: str, text: str) -> None:
    file = tmp_path / name
    if format == "backlog":
        (tmp_path / "tasks").mkdir()
        (tmp_path / "config.yml").write_text("")
        file = tmp_path / "tasks" / "a.md"
    file.write_text(text)
    in_time = spent(5)

    recognising.read(str(tmp_path if format == "backlog" else file), format)

    in_time()


@pytest.mark.parametrize("format", ["server-memory", "beads", "taskmaster", "notes", "journal"])
def test_a_pipe_is_refused_and_not_waited_for(run: Run, tmp_path: Path, format: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    result = run("import", str(pipe), "--from", format)

    told = result.stderr if format != "notes" else result.stdout
    assert "is no plain file" in told


def test_a_file_with_more_than_may_be_read_is_named_with_its_size(run: Run, tmp_path: Path) -> None:
    with open(tmp_path / "huge.md", "wb") as file:
        file.truncate(11 << 20)
    (tmp_path / "a.md").write_text("x")

    taken = imported(run, tmp_path)

    assert counts(taken) == (
        {"block": 1},
        {},
        {},
        ["holds 11,534,336 bytes, more than 10,485,760"],
    )


def test_a_long_list_of_what_was_not_taken_is_bounded_for_people_and_whole_in_json(
    run: Run, tmp_path: Path
) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}.png").write_bytes(b"")
    (tmp_path / "a.md").write_text("x")

    lines = run("import", str(tmp_path), "--dry-run").stdout.splitlines()

    assert lines[1] == "not taken: 30"
    assert lines[2] == "  00.png: a file: its name does not end in .md"
    assert lines[22:] == ["  +10 more: --json lists all", lines[-1]]
    assert len(imported(run, tmp_path)["not_taken"]) == 30
