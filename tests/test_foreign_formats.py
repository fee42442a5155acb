"""What becomes of the files of other tools: made by those tools, read through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

from mcp_state.foreign import front_matter, journal
from mcp_state.foreign.front_matter import Malformed

FILES = Path(__file__).parent / "foreign"


def imported(run: Run, path: Path, *words: str) -> dict[str, Any]:
    result = run("import", str(path), "--json", *words)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def thread(run: Run, name: str) -> dict[str, Any]:
    result = run("thread", "get", name, "--json")
    assert result.exit_code == 0, result.stderr
    detail: dict[str, Any] = json.loads(result.stdout)
    found: dict[str, Any] = detail["thread"]
    return found | {"criteria": [(c["text"], c["passes"]) for c in detail["criteria"]]}


def said(found: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {field: found.get(field) for field in fields}


def blocks(run: Run) -> dict[str, str]:
    page = json.loads(run("memory", "get", "--json").stdout)
    return {block["key"]: block["value"] for block in page["blocks"]}


def entries(run: Run) -> list[tuple[str, str, str]]:
    page = json.loads(run("journal", "tail", "--limit", "100", "--json").stdout)
    return [(entry["kind"], entry["thread"], entry["text"]) for entry in page["entries"]]


# server-memory


def test_a_graph_becomes_a_block_for_each_entity_with_its_relations_both_ways(run: Run) -> None:
    taken = imported(run, FILES / "server-memory" / "memory.jsonl")

    assert (taken["taken"], taken["not_taken"]) == ({"block": 4}, [])
    unchecked = "Imported from server-memory; nobody checked it here."
    assert blocks(run) == {
        "Anna Weber": f"Anna Weber (person)\n{unchecked}\n- Prefers tabs\n- Owns the importer\n"
        "- owns -> importer-v2",
        "importer-v2": f"importer-v2 (component)\n{unchecked}\n"
        "- Reads CSV in UTF-8; since 2026-03 also UTF-16\n"
        "- Fails on empty files\n  with a traceback\n"
        "- Anna Weber -> owns -> this\n- depends on -> nowhere",
        "nowhere": f"nowhere\n{unchecked}\n- importer-v2 -> depends on -> this",
        "Zoë/Ünïcode name": f"Zoë/Ünïcode\nname (person)\n{unchecked}",
    }


def test_lines_that_are_no_part_of_a_graph_are_named(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    good = b'{"type":"entity","name":"a","entityType":"t","observations":["x"]}\n'
    file.write_bytes(good + b'{"type":"entity"}\n{"type":\n[1]\n"\xff"\n{"type":"x"}' + b"\n")

    taken = imported(run, file)

    assert taken["taken"] == {"block": 1}
    neither = "it is neither an entity nor a relation with names"
    assert [(one["place"], one["why"]) for one in taken["not_taken"]] == [
        ("memory.jsonl:2", neither),
        ("memory.jsonl:3", "it is no JSON: Expecting value"),
        ("memory.jsonl:4", "it is no JSON object"),
        ("memory.jsonl:5", "it is not in UTF-8"),
        ("memory.jsonl:6", neither),
    ]


# beads


def test_issues_of_beads_become_threads_that_wait_for_what_blocks_them(run: Run) -> None:
    taken = imported(run, FILES / "beads")

    assert taken["taken"] == {"thread": 5, "block": 1, "entry": 1}
    assert taken["not_taken"] == [
        {
            "place": "issues.jsonl:6",
            "what": "bd-f5",
            "why": "it was deleted in beads on 2026-05-01T09:00:00Z",
        }
    ]
    fields = ("title", "status", "priority", "depends_on", "criteria", "note")
    assert said(thread(run, "bd-a1"), *fields) == {
        "title": "Import the customers",
        "status": "active",
        "priority": 1,
        "depends_on": ["bd-b2"],
        "criteria": [
            ("Rows without e-mail are listed", True),
            ("Runs twice without doubling", False),
        ],
        "note": "Imported from beads bd-a1: feature, in_progress; created 2026-05-01T09:00:00Z "
        "by ben; changed 2026-05-03T10:00:00Z; assignee anna; labels csv; parent-child bd-e0; "
        "discovered-from bd-c3\n\nReads the CSV of the old system.",
    }
    assert said(thread(run, "bd-b2"), "status", "priority", "evidence", "note") == {
        "status": "done",
        "priority": 3,
        "evidence": "closed in beads on 2026-05-02T08:00:00Z: It is in s3://old/customers.csv",
        "note": "Imported from beads bd-b2: task, closed; created 2026-05-01T08:00:00Z; changed "
        "2026-05-02T08:00:00Z; closed 2026-05-02T08:00:00Z\n\nAlso:\nexternal_ref: gh-9",
    }
    assert said(thread(run, "bd-c3"), "status", "priority", "waiting_on") == {
        "status": "blocked",
        "priority": 9,
        "waiting_on": "what beads does not say",
    }
    later = thread(run, "bd-d4")
    assert (later["status"], later["recheck_at"][:13]) == ("watching", "2126-01-01T00")
    assert said(thread(run, "bd-e0"), "status", "depends_on") == {
        "status": "active",
        "depends_on": ["bd-a1"],
    }
    assert blocks(run) == {"old-file": "The old file is in UTF-16"}
    comment = "2026-05-02T08:00:00Z anna in beads, on bd-a1:\nThe old file is UTF-16"
    assert entries(run) == [("comment", "bd-a1", comment)]


def test_a_circle_and_a_missing_issue_are_said_and_all_else_is_taken(
    run: Run, tmp_path: Path
) -> None:
    def issue(name: str, *needs: str) -> str:
        links = [{"issue_id": name, "depends_on_id": n, "type": "blocks"} for n in needs]
        head = {"id": name, "title": name, "status": "open", "created_at": "2026-01-01T00:00:00Z"}
        return json.dumps(head | {"dependencies": links})

    file = tmp_path / "issues.jsonl"
    lines = [issue("a", "b"), issue("b", "a", "gone"), issue("a")]
    file.write_text("\n".join(lines), encoding="utf-8")

    taken = imported(run, file)

    assert taken["taken"] == {"thread": 2}
    assert [(one["what"], one["why"]) for one in taken["not_taken"]] == [
        ("a", "an issue of this id stands above it"),
        ("b depends on a", "which waits for it: a circle"),
        ("b depends on gone", "which was not taken"),
    ]
    assert (thread(run, "a")["depends_on"], thread(run, "a")["priority"]) == (["b"], 1)
    assert thread(run, "b")["depends_on"] == []
    assert "it depends on a, which waits for it: a circle" in thread(run, "b")["note"]


# TaskMaster


def test_tasks_of_every_tag_become_threads_that_wait_for_their_subtasks(run: Run) -> None:
    taken = imported(run, FILES / "taskmaster")

    assert (taken["taken"], taken["not_taken"]) == ({"thread": 5}, [])
    assert said(thread(run, "task-1"), "status", "priority", "evidence", "note") == {
        "status": "done",
        "priority": 3,
        "evidence": "done in TaskMaster on 2026-11-30T14:53:40.479Z",
        "note": "Imported from TaskMaster 1: done; changed 2026-11-30T14:53:40.479Z\n\nInit\n\n"
        "Details:\nUse uv",
    }
    assert said(thread(run, "task-2"), "title", "status", "depends_on") == {
        "title": "Parse the CSV",
        "status": "active",
        "depends_on": ["task-1", "task-2.1", "task-2.2"],
    }
    assert said(thread(run, "task-2.1"), "title", "status", "depends_on") == {
        "title": "Handle quotes",
        "status": "done",
        "depends_on": [],
    }
    assert said(thread(run, "task-2.2"), "status", "depends_on") == {
        "status": "active",
        "depends_on": ["task-2.1"],
    }
    assert thread(run, "feature/task-1")["status"] == "watching"


def test_a_flat_file_of_taskmaster_reads_as_its_main_tag(run: Run, tmp_path: Path) -> None:
    statuses = ["pending", "review", "cancelled", "blocked", "completed"]
    tasks: list[dict[str, Any]] = [
        {"id": number, "title": f"T{number}", "status": status, "dependencies": [1][: number - 1]}
        for number, status in enumerate(statuses, 1)
    ]
    tasks[0]["subtasks"] = [
        {"id": 1, "title": "first", "status": "pending"},
        {"id": 2, "title": "second", "status": "pending", "dependencies": [1]},
        {"title": "no id"},
    ]
    file = tmp_path / "tasks.json"
    file.write_text(json.dumps({"tasks": tasks}), encoding="utf-8")

    taken = imported(run, file)

    assert taken["taken"] == {"thread": 7}
    assert taken["not_taken"] == [
        {
            "place": "tasks.json: task 1, subtask 3",
            "what": "a task",
            "why": "it has no id or no title",
        }
    ]
    found = {f"task-{n}": thread(run, f"task-{n}") for n in range(1, 6)}
    assert {name: (one["status"], one["waiting_on"]) for name, one in found.items()} == {
        "task-1": ("active", ""),
        "task-2": ("blocked", "a review"),
        "task-3": ("dropped", ""),
        "task-4": ("blocked", "task-1"),
        "task-5": ("done", ""),
    }
    assert thread(run, "task-1.2")["depends_on"] == ["task-1.1"]
    assert found["task-1"]["depends_on"] == ["task-1.1", "task-1.2"]
    assert found["task-5"]["evidence"] == "completed in TaskMaster; it does not say how"


# Backlog.md


def test_tasks_of_backlog_md_become_threads_and_its_documents_blocks(run: Run) -> None:
    taken = imported(run, FILES / "backlog")

    assert (taken["taken"], taken["not_taken"]) == ({"thread": 6, "block": 2}, [])
    done = thread(run, "TASK-1")
    assert said(done, "title", "status", "priority", "evidence", "depends_on", "criteria") == {
        "title": "Import the customers",
        "status": "done",
        "priority": 3,
        "evidence": "Done, completed in Backlog.md on 2026-11-30 14:51: Merged in abc123",
        "depends_on": ["TASK-1.1"],
        "criteria": [],
    }
    assert "- [x] #1 Rows without e-mail are listed\n- [ ] #2 Runs twice" in done["note"]
    assert "references: https://example.org/spec" in done["note"]
    assert said(thread(run, "TASK-2"), "title", "status", "depends_on", "note") == {
        "title": 'Quote: "this" & #that',
        "status": "active",
        "depends_on": ["TASK-1"],
        "note": "Imported from Backlog.md TASK-2: In Progress; created 2026-11-30 14:51; changed "
        "2026-11-30 14:54; due 2026-12-24\n\nDescription:\nwith `code`\n\nComments:\n"
        "created: 2026-11-30 14:54\n---\nhi\n---",
    }
    assert thread(run, "TASK-3")["status"] == "done"
    assert thread(run, "TASK-4")["title"] == (
        "A very long title that goes on and on so that the serializer of the front matter has to "
        "decide whether it folds: yes or no, it's 'quoted'"
    )
    assert "labels it's, true, 123, null; milestone m-0; type bug" in thread(run, "TASK-4")["note"]
    assert thread(run, "DRAFT-1")["status"] == "watching"
    assert list(blocks(run)) == ["docs/doc-1 - Notes-on-CSV", "milestones/m-0 - release-1"]


def test_open_tasks_keep_their_criteria_and_what_is_not_read_is_named(
    run: Run, tmp_path: Path
) -> None:
    tasks = tmp_path / "backlog" / "tasks"
    (tmp_path / "backlog" / "archive" / "tasks").mkdir(parents=True)
    tasks.mkdir()
    (tmp_path / "backlog" / "config.yml").write_text('statuses: ["To Do", "Shipped"]\n')
    head = "---\nid: {}\ntitle: {}\nstatus: {}\n---\n"
    criteria = (
        "## Acceptance Criteria\n<!-- AC:BEGIN -->\n- [x] #1 a\n- [{}] #2 b\n<!-- AC:END -->\n"
    )
    (tasks / "1.md").write_text(head.format("T-1", "one", "To Do") + criteria.format(" "))
    (tasks / "2.md").write_text(head.format("T-2", "two", "Shipped") + criteria.format("x"))
    (tasks / "3.md").write_text("---\nid: &a [x]\ntitle: *a\n---\n")
    (tasks / "4.md").write_text("no front matter")
    (tasks / "5.txt").write_text("x")
    archived = head.format("T-6", "six", "To Do")
    (tmp_path / "backlog" / "archive" / "tasks" / "6.md").write_text(archived)

    taken = imported(run, tmp_path)

    assert taken["taken"] == {"thread": 3}
    assert [(one["place"], one["why"]) for one in taken["not_taken"]] == [
        ("tasks/3.md", "line 2: what begins with & is not read here"),
        ("tasks/4.md", "it has no id or no title"),
        ("5.txt", "its name does not end in .md"),
    ]
    assert said(thread(run, "T-1"), "status", "criteria") == {
        "status": "active",
        "criteria": [("a", True), ("b", False)],
    }
    assert said(thread(run, "T-2"), "status", "criteria") == {
        "status": "done",
        "criteria": [("a", True), ("b", True)],
    }
    assert thread(run, "T-6")["status"] == "dropped"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("k: plain # why", "plain"),
        ("k: 'it''s'", "it's"),
        ('k: "a\\n\\"b\\""', 'a\n"b"'),
        ("k:", ""),
        ("k: null", ""),
        ("k: []", []),
        ("k: [a, 'b, c', \"d\"]", ["a", "b, c", "d"]),
        ("k:\n- a\n- 'b'", ["a", "b"]),
        ("k:\n  - >-\n    folded\n    item\n  - b", ["folded item", "b"]),
        ("k: >-\n  one\n  two\n\n  three", "one two\n\nthree"),
        ("k: |\n  one\n    two", "one\n  two"),
        ("k: 2026-01-01 10:00", "2026-01-01 10:00"),
    ],
)
def test_front_matter_reads_what_task_tools_write(text: str, value: object) -> None:
    assert front_matter.parse(text + "\nlast: x") == {"k": value, "last": "x"}


@pytest.mark.parametrize(
    "text",
    ["k: *a", "k: {a: b}", "k: !!python/x y", "- a", "k: 'x", 'k: "x', "k: [a", "k:\n  a: b"],
)
def test_front_matter_refuses_what_it_does_not_read(text: str) -> None:
    with pytest.raises(Malformed, match="line 2"):
        front_matter.parse(text)


# Notes


def test_a_note_becomes_a_block_as_it_is_and_a_long_one_a_blob(run: Run, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    (notes / "deep" / "er").mkdir(parents=True)
    (notes / ".obsidian").mkdir()
    (notes / ".obsidian" / "x.md").write_text("hidden")
    (notes / "a.md").write_text("---\ntags: [x]\n---\n# A\n")
    (notes / "deep" / "er" / "Ü b.md").write_text("deep", encoding="utf-8")
    long = "# Long\n" + "word " * 1000
    (notes / "long.md").write_text(long)
    (notes / "empty.md").write_text(" \n")
    (notes / "binary.md").write_bytes(b"\xff\xfe\0\0")
    (notes / "picture.png").write_bytes(b"x")
    (notes / "out.md").symlink_to("/etc/passwd")
    (notes / "A.md").write_text("another on most disks")

    taken = imported(run, notes)

    assert taken["taken"] == {"block": 3}
    assert [(one["place"], one["why"]) for one in taken["not_taken"]] == [
        ("binary.md", "is not in UTF-8: line 1, byte 0"),
        ("empty.md", "it is empty"),
        ("out.md", "links are not followed"),
        ("picture.png", "its name does not end in .md"),
        ("a.md", "one of this name stands before it"),
    ]
    kept = blocks(run)
    assert kept.keys() == {"A", "deep/er/Ü b", "long"}
    key = kept["long"].partition(" is in the blob ")[2].partition(":")[0]
    assert kept["long"] == (
        f"Long\nAll of it (5,007 characters) is in the blob {key}: blob_get, `mcp-state blob get`"
    )
    assert run("blob", "get", key).stdout.rstrip("\n") == long


# Journals


def test_a_markdown_journal_becomes_an_entry_for_each_dated_part_oldest_first(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "log.md"
    file.write_text(
        "# Work log\n\n"
        "## 30 November 2026\n\nDecided A.\n\n### 09:15 standup\nSaid so.\n"
        "```\n# 2020-01-01 no heading\n```\n\n"
        "## [2026-11-29] Before\n### Details\nBegan.\n"
        "## Nov. 28th, 2026\n"
    )

    taken = imported(run, file, "--from", "journal")

    assert (taken["taken"], taken["not_taken"]) == ({"entry": 3}, [])
    assert [text for _, _, text in entries(run)] == [
        "## [2026-11-29] Before\n### Details\nBegan.",
        "2026-11-30\n### 09:15 standup\nSaid so.\n```\n# 2020-01-01 no heading\n```",
        "## 30 November 2026\n\nDecided A.",
    ]


def test_a_folder_of_daily_notes_is_a_journal_in_the_order_of_its_days(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "2026-11-30.md").write_text("second")
    (tmp_path / "2026-11-29.md").write_text("first")
    (tmp_path / "readme.md").write_text("no day")

    taken = imported(run, tmp_path, "--from", "journal")

    assert [text for _, _, text in entries(run)] == ["2026-11-29\nfirst", "2026-11-30\nsecond"]
    assert [(one["place"], one["why"]) for one in taken["not_taken"]] == [
        ("readme.md", "there is no date in its name or its headings")
    ]


def test_a_journal_of_json_keeps_time_author_kind_and_all_other_fields(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "log.jsonl"
    lines: list[object] = [
        {"timestamp": 1780000000, "message": "one", "author": "anna", "kind": "decision", "n": 3},
        {"timestamp": 1780000000000, "message": "two"},
        {"timestamp": 1780000000000, "message": "two"},
        {"timestamp": "2026-06-01T00:00:00Z", "n": 1},
        {"timestamp": "2026-06-01T00:00:00Z", "message": "long " * 2000},
    ]
    file.write_text("\n".join(map(json.dumps, lines)))

    taken = imported(run, file)

    assert taken["format"] == "journal"
    assert [(one["place"], one["why"][:12]) for one in taken["not_taken"]] == [
        ("log.jsonl:4", "none of text")
    ]
    kept = entries(run)
    assert kept[:3] == [
        ("decision", "", "2026-05-28T20:26:40+00:00 anna\none\nn: 3"),
        ("", "", "2026-05-28T20:26:40+00:00\ntwo"),
        ("", "", "2026-05-28T20:26:40+00:00\ntwo"),
    ]
    assert kept[3][2].startswith("2026-06-01T00:00:00Z\nAll of it (10,021 characters) is in the ")
    assert imported(run, file)["here"] == {"entry": 4}


@pytest.mark.parametrize(
    "heading",
    [
        "2026-11-30",
        "[2026/11/30] x",
        "Monday, 30 November 2026",
        "30th Nov 2026",
        "November 30, 2026",
        "Nov. 30, 2026 - x",
        "30.11.2026",
        "v2 (2026-11-30T10:00:00Z)",
    ],
)
def test_dates_in_headings_are_read_in_their_usual_forms(heading: str) -> None:
    assert journal.date_in(heading) == "2026-11-30"


@pytest.mark.parametrize("heading", ["1.2.3", "2026-13-45", "chapter 12", "120.11.20266", "May"])
def test_other_numbers_are_no_dates(heading: str) -> None:
    assert journal.date_in(heading) == ""
