"""What the page is shown: each view whole, bounded, of one project, whatever is stored."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from browsing import Browser, browsing
from conftest import FakeClock, Open

from mcp_state.api import State
from mcp_state.models import Actor, Caller
from mcp_state.plain import plain
from mcp_state.settings import Settings
from mcp_state.store.database import open_database

NOW = "2026-11-29T09:00:00Z"
CODEX = {"agent": "codex", "client": "codex 1.0", "session": "s1"}


@pytest.fixture
async def page(settings: Settings, clock: FakeClock) -> AsyncGenerator[Browser]:
    async with browsing(settings, clock) as browser:
        yield browser


@pytest.fixture
async def person(path: str, clock: FakeClock) -> AsyncGenerator[State]:
    """Whoever looks at the page, through the API."""
    database = open_database(path, clock=clock)
    yield State(database, Caller("acme", "--project", Actor("person", "mcp-state", "s1")))
    await database.aclose()


async def shown(page: Browser, view: str, **query: str | int) -> dict[str, Any]:
    reply = await page.view(view, **query)
    assert reply.status == 200, reply.text
    return reply.json


async def refused(page: Browser, view: str, **query: str | int) -> tuple[int, str, str, str]:
    reply = await page.view(view, **query)
    error = reply.json["error"]
    assert set(error) == {"code", "fact", "next_step"}
    return reply.status, error["code"], error["fact"], error["next_step"]


def beside(state: State, **changes: Any) -> dict[str, Any]:
    """What stands beside every view, after a read by `state`."""
    return {"scope": plain(state.totals), "now": NOW, **changes}


async def test_the_queue_is_a_page_of_it_and_who_waits_for_whom(
    page: Browser, mine: State, person: State
) -> None:
    await mine.threads.set("contract", title="Agree on it", next_action="ask")
    await mine.threads.set("import", next_action="write it", depends_on=["contract"])
    await mine.threads.set("PR 830", status="blocked", waiting_on="ann", depends_on=["import"])
    await mine.threads.set("gone", status="dropped", note="no use", depends_on=["contract"])
    await mine.threads.claim("contract", lease="30m")

    found = await shown(page, "threads")

    waits = [
        {"thread": "contract", "needs": [], "needed_by": ["import"]},
        {"thread": "import", "needs": ["contract"], "needed_by": ["PR 830"]},
        {"thread": "PR 830", "needs": ["import"], "needed_by": []},
    ]
    whole = plain(await person.threads.list(limit=50))
    assert found == {**whole, "waits": waits, **beside(person)}
    assert found["threads"][0] == {
        "name": "contract",
        "title": "Agree on it",
        "status": "active",
        "version": 1,
        "priority": 5,
        "created_at": NOW,
        "status_at": NOW,
        "changed_at": NOW,
        "changed_by": CODEX,
        "next_action": "ask",
        "waiting_on": "",
        "check": "",
        "evidence": "",
        "note": "",
        "places": [],
        "depends_on": [],
        "relies_on": [],
        "waits_for": 0,
        "criteria": 0,
        "passing": 0,
        "lease": {"token": 5, "holder": CODEX, "until": "2026-11-29T09:30:00Z"},
        "due": False,
        "unchanged": False,
    }
    assert found["scope"] == {
        "project": "acme",
        "how": "--project",
        "exists": True,
        "event": 5,
        "threads": {"active": 2, "watching": 0, "blocked": 1, "done": 0, "dropped": 1},
        "journal": 0,
        "memory": 0,
        "runs": {"open": 0, "completed": 0, "failed": 0, "abandoned": 0},
        "stopped": 0,
        "facts": {"provisional": 0, "trusted": 0, "stale": 0, "refuted": 0, "archival": 0},
        "remark": "",
    }


async def test_the_queue_is_filtered_and_paged(page: Browser, mine: State, person: State) -> None:
    for number in range(5):
        await mine.threads.set(f"t{number}", next_action="go", priority=5 - number)
    await mine.threads.set("later", status="watching", recheck_after="1h", check="look")

    first = await shown(page, "threads", status="ACTIVE", limit=3)
    second = await shown(page, "threads", status="active", limit=3, cursor=first["cursor"])

    names = [thread["name"] for thread in first["threads"] + second["threads"]]
    assert names == ["t4", "t3", "t2", "t1", "t0"]
    assert (first["total"], second["cursor"]) == (5, "")
    assert (await shown(page, "threads", due="true"))["threads"] == []


async def test_a_thread_comes_with_what_stands_around_it(
    page: Browser, mine: State, person: State
) -> None:
    await mine.threads.set("a", title="First", next_action="go")
    await mine.threads.set("b", next_action="go", depends_on=["a"])
    await mine.threads.set("c", next_action="go", depends_on=["b"], criteria=["it runs"])
    await mine.threads.set("d", next_action="go", depends_on=["c", "a"])
    await mine.journal.append("looked into it", thread="c")

    found = await shown(page, "thread", name="C")

    assert found == {
        **plain(await person.threads.get("c")),
        "graph": {
            "nodes": [
                {"name": "c", "title": "c", "status": "active", "depth": 0},
                {"name": "b", "title": "b", "status": "active", "depth": 1},
                {"name": "d", "title": "d", "status": "active", "depth": -1},
                {"name": "a", "title": "First", "status": "active", "depth": 2},
            ],
            "waits": [["c", "b"], ["d", "c"], ["b", "a"]],
            "more": False,
        },
        **beside(person),
    }


async def test_the_graph_of_a_thread_is_bounded(page: Browser, mine: State) -> None:
    await mine.threads.set("hub", next_action="go")
    for number in range(80):
        await mine.threads.set(f"spoke{number:02}", next_action="go", depends_on=["hub"])

    graph = (await shown(page, "thread", name="hub"))["graph"]

    assert (len(graph["nodes"]), len(graph["waits"]), graph["more"]) == (61, 60, True)
    assert graph["nodes"][-1]["name"] == "spoke59"


async def test_what_is_near_is_in_the_graph_of_a_thread_however_much_is_far(
    page: Browser, mine: State
) -> None:
    chain = [f"t{number:02}" for number in range(80)]
    for name, needed in zip(chain, [None, *chain], strict=False):
        await mine.threads.set(name, next_action="go", depends_on=[needed] if needed else None)
    await mine.threads.set("waits", next_action="go", depends_on=["t79"])

    graph = (await shown(page, "thread", name="t79"))["graph"]

    assert (len(graph["nodes"]), graph["more"]) == (61, True)
    assert [node["name"] for node in graph["nodes"][:3]] == ["t79", "t78", "waits"]
    assert ["waits", "t79"] in graph["waits"]


async def test_the_journal_is_a_page_of_it_and_what_to_choose_from(
    page: Browser, mine: State, theirs: State, person: State
) -> None:
    await mine.threads.set("t", next_action="go")
    await mine.journal.append("one", kind="note", thread="t")
    await mine.journal.append("two", kind="dead_end")
    await theirs.journal.append("three", kind="note")
    choice = {"kinds": ["dead_end", "note"], "actors": ["claude", "codex"]}

    assert await shown(page, "journal") == {
        **plain(await person.journal.tail(limit=50)),
        **choice,
        **beside(person),
    }
    assert await shown(page, "journal", kind="note", actor="codex", thread="T") == {
        **plain(await person.journal.tail(kind="note", actor="codex", thread="t")),
        **choice,
        **beside(person),
    }
    newest = await shown(page, "journal", limit=1)
    before = await shown(page, "journal", limit=1, before=newest["entries"][0]["seq"])
    since = await shown(page, "journal", since=before["entries"][0]["seq"])
    assert [one["entries"][0]["text"] for one in (newest, before, since)] == [
        "three",
        "two",
        "three",
    ]


async def test_runs_come_with_their_attempts(
    page: Browser, mine: State, person: State, clock: FakeClock
) -> None:
    await mine.runs.begin("Reindex", run="reindex", max_attempts=9)
    for number, ok in enumerate([True, False]):
        await mine.steps.begin("reindex", f"f{number}")
        clock.move(seconds=10)
        await mine.steps.end("reindex", f"f{number}", ok, "said", tokens_in=7, tokens_out=2)
    await mine.steps.begin("reindex", "f1")
    await mine.runs.checkpoint("reindex", "half", done=1, total=2)

    listed, detail = await shown(page, "runs"), await shown(page, "run", name="reindex")

    now = {"now": "2026-11-29T09:00:20Z"}
    assert listed == {**plain(await person.runs.list(limit=50)), **beside(person), **now}
    assert await shown(page, "runs", status="Failed") == {
        "runs": [],
        "total": 0,
        **beside(person),
        **now,
    }
    first, second, third = "2026-11-29T09:00:00Z", "2026-11-29T09:00:10Z", now["now"]
    attempts = [
        {"step": "f0", "number": 1, "begun_at": first, "ended_at": second, "ok": True, "tokens": 9},
        {
            "step": "f1",
            "number": 1,
            "begun_at": second,
            "ended_at": third,
            "ok": False,
            "tokens": 9,
        },
        {"step": "f1", "number": 2, "begun_at": third, "tokens": 0},
    ]
    assert detail == {
        **plain(await person.runs.show("reindex")),
        "attempts": attempts,
        **beside(person),
        **now,
    }


async def test_facts_come_by_trust_and_with_what_they_rest_on(
    page: Browser, mine: State, person: State
) -> None:
    await mine.facts.record("pr", "It is open", check="gh pr view 830")
    await mine.facts.record("friday", "We merge", because=["pr"])
    await mine.facts.verify("pr", False, "MERGED")

    assert await shown(page, "facts") == {
        **plain(await person.facts.list(limit=50)),
        **beside(person),
    }
    stale = await shown(page, "facts", trust="stale")
    assert [fact["name"] for fact in stale["facts"]] == ["friday"]
    assert await shown(page, "fact", name="Friday") == {
        **plain(await person.facts.trace("friday")),
        **beside(person),
    }


async def test_memory_comes_with_all_its_versions(
    page: Browser, mine: State, person: State, clock: FakeClock
) -> None:
    await mine.memory.set("plan", "one")
    clock.move(minutes=1)
    await mine.memory.append("Plan", " two")
    await mine.memory.delete("plan")
    await mine.memory.set("plan", "anew")
    await mine.runs.begin("g", run="r")
    await mine.memory.set("plan", "of the run", run="r")
    now = {"now": "2026-11-29T09:01:00Z"}

    pages = await shown(page, "memory"), await shown(page, "memory", run="R")
    old = await shown(page, "block", key="PLAN", version=2)
    versions = await shown(page, "versions", key="Plan")

    assert pages == (
        {**plain(await person.memory.blocks()), **beside(person), **now},
        {**plain(await person.memory.blocks(run="r")), **beside(person), **now},
    )
    assert old == {**plain(await person.memory.get("plan", version=2)), **beside(person), **now}
    assert old["value"] == "one two"
    assert await shown(page, "block", key="none") == {
        **plain(await person.memory.get("none")),
        **beside(person),
        **now,
    }

    def version(number: int, operation: str, summary: str, **other: Any) -> dict[str, Any]:
        told = {"version": number, "at": now["now"], "actor": CODEX, "operation": operation}
        return {**told, "summary": summary, "current": False, **other}

    assert versions == {
        "key": "Plan",
        "run": "",
        "versions": [
            version(4, "set", "set, 4 chars", size=4, current=True),
            version(3, "delete", "deleted, was version 2"),
            version(2, "append", "append, 7 chars", size=7),
            version(1, "set", "set, 3 chars", size=3, at=NOW),
        ],
        **beside(person),
        **now,
    }
    older = await shown(page, "versions", key="plan", before=3, limit=1)
    assert [one["version"] for one in older["versions"]] == [2]
    of_run = await shown(page, "versions", key="plan", run="r")
    assert [one["size"] for one in of_run["versions"]] == [10]
    assert (await shown(page, "versions", key="none"))["versions"] == []


async def test_search_history_and_blobs_are_those_of_the_command_line(
    page: Browser, mine: State, person: State
) -> None:
    await mine.threads.set("import", title="Import it", next_action="go")
    await mine.journal.append("the import runs")
    key = (await mine.blobs.put("0123456789" * 10)).key

    assert await shown(page, "search", query="import", kinds="journal,threads", limit=5) == {
        **plain(await person.search.find("import", kinds=["journal", "thread"], limit=5)),
        **beside(person),
    }
    assert await shown(page, "history") == {
        **plain(await person.events.history(limit=50)),
        **beside(person),
    }
    assert await shown(page, "history", subject="thread:import", since=0) == {
        **plain(await person.events.history("thread:import", since=0)),
        **beside(person),
    }
    assert await shown(page, "blob", key=key, offset=95, limit=3) == {
        **plain(await person.blobs.get(key, offset=95, limit=3)),
        **beside(person),
    }


async def test_the_overview_says_what_it_is_for_and_what_is_due(
    page: Browser, mine: State, person: State, clock: FakeClock
) -> None:
    await mine.threads.set("pr", status="watching", recheck_after="1h", check="look")
    await mine.facts.record("pr", "It is open", check="look", recheck_after="1h")
    clock.move(hours=2)

    none = await shown(page, "overview")
    set_ = await mine.objective.set("Ship it", intent="They can leave")
    some = await shown(page, "overview")

    due = {
        "threads_due": {"watching": 1, "blocked": 0},
        "facts_due": {"provisional": 1, "trusted": 0, "stale": 0},
    }
    await person.events.history()
    now = {"now": "2026-11-29T11:00:00Z"}
    assert some == {"objective": plain(set_), **due, **beside(person), **now}
    assert none == {**due, **beside(person), "scope": {**some["scope"], "event": 2}, **now}


async def test_the_projects_of_the_store_and_what_may_be_done(
    page: Browser, open_state: Open, person: State
) -> None:
    empty = await shown(page, "projects")
    assert empty["projects"] == [] and empty["count"] == 0
    assert (empty["default"]["project"], empty["default"]["exists"]) == ("acme", False)
    assert (await shown(page, "threads"))["threads"] == []  # and it is shown, empty

    await open_state().journal.append("here")
    await open_state(project="other").journal.append("there")

    found = await shown(page, "projects", project="other")

    listed = plain(await person.projects.list())
    assert found == {
        "projects": listed,
        "count": 2,
        "default": beside(person)["scope"],
        "deeds": ["lock", "unlock", "release", "raise", "reset", "purge"],
        **beside(person),
    }
    assert {one["name"] for one in listed} == {"acme", "other"}


async def test_nothing_of_one_project_shows_in_another(page: Browser, open_state: Open) -> None:
    mark = "nowhere-else"
    ours, other = open_state(), open_state(project="other")
    await ours.journal.append("ours")
    await other.objective.set(mark)
    await other.threads.set(mark, next_action=mark)
    await other.journal.append(mark, kind=mark, thread=mark)
    await other.memory.set(mark, mark)
    await other.facts.record(mark, mark, check=mark)
    await other.runs.begin(mark, run=mark)
    key = (await other.blobs.put(f"{mark} text")).key

    for view in ("overview", "threads", "journal", "runs", "facts", "memory", "history"):
        assert mark not in (await page.view(view)).text
        assert mark in (await page.view(view, project="Other")).text
    assert (await shown(page, "search", query=mark))["hits"] == []
    assert (await shown(page, "versions", key=mark))["versions"] == []
    assert (await shown(page, "history", subject=f"thread:{mark}"))["events"] == []
    for view, query in {
        "thread": {"name": mark},
        "run": {"name": mark},
        "fact": {"name": mark},
        "blob": {"key": key},
        "journal": {"thread": mark},
    }.items():
        assert (await refused(page, view, **query))[:2] == (404, "not_found")
        assert (await page.view(view, project="other", **query)).status == 200


async def test_a_project_that_is_not_there_is_an_error_that_names_those_that_are(
    page: Browser, mine: State
) -> None:
    await mine.journal.append("here")

    assert await refused(page, "threads", project="acne") == (
        404,
        "not_found",
        "no project 'acne'; there is 'acme'",
        "Choose another one.",
    )
    assert (await refused(page, "threads", project="/etc"))[:2] == (404, "not_found")
    done = await page.do("unlock", "acne", key="plan")
    assert (done.status, done.json["error"]["fact"]) == (404, "no project 'acne'; there is 'acme'")


async def test_without_a_project_one_is_to_be_chosen(
    path: str, tmp_path: Path, clock: FakeClock, mine: State
) -> None:
    await mine.journal.append("here")
    async with browsing(Settings(db=path, directory=str(tmp_path)), clock) as page:
        assert await refused(page, "threads") == (
            404,
            "project_unknown",
            "this page does not say which project to show; known are acme",
            "Choose one, or start `mcp-state web` in its directory or with --project NAME.",
        )
        assert (await page.do("unlock", key="plan")).json["error"]["code"] == "project_unknown"
        assert "default" not in await shown(page, "projects")
        assert (await shown(page, "journal", project="acme"))["entries"][0]["text"] == "here"


async def test_only_the_project_of_its_directory_is_looked_up_there(
    path: str, tmp_path: Path, clock: FakeClock, open_state: Open
) -> None:
    (tmp_path / "here.md").write_text("here", encoding="utf-8")
    async with browsing(Settings(db=path, project=str(tmp_path)), clock) as page:
        home = (await shown(page, "projects"))["default"]["project"]
        for project in (home, "other"):
            await open_state(project=project).facts.record("f", "It is so", check="file:here.md")
        here, again, elsewhere = [
            (await shown(page, "facts", **query))["facts"][0]["now"]
            for query in ({}, {"project": home.upper()}, {"project": "other"})
        ]

    assert here == again == {"word": "there", "words": "exists (4 bytes)"}
    assert elsewhere == {
        "word": "unknown",
        "words": "not looked up here: no directory is known for this call",
    }


@pytest.mark.parametrize(
    ("view", "query", "fact"),
    [
        ("threads", {"statuss": "x"}, "threads has no argument 'statuss'"),
        ("threads", {"status": "asleep"}, "status is 'asleep'"),
        ("threads", {"limit": 0}, "limit of threads is 0"),
        ("threads", {"limit": 201}, "limit of threads is 201"),
        ("threads", {"limit": "-1"}, "limit of threads is '-1'"),
        ("threads", {"limit": "9" * 400}, f"limit of threads is '{'9' * 60}'"),
        ("threads", {"limit": "٣"}, "limit of threads is '٣'"),
        ("threads", {"due": "perhaps"}, "due of threads is 'perhaps'"),
        ("threads", {"cursor": "x"}, "cursor 'x' is none that thread_list gave"),
        ("thread", {}, "thread needs name"),
        ("thread", {"name": ""}, "thread needs name"),
        ("thread", {"name": "a\nb"}, "thread has a line break or another control character in it"),
        ("blob", {"key": "b", "limit": 100_001}, "limit of blob is 100001"),
        ("search", {"query": "x", "kinds": "secrets"}, "kind 'secrets' is unknown"),
        ("history", {"subject": "x"}, "subject is 'x'"),
        ("overview", {"limit": 1}, "overview has no argument 'limit'"),
        ("projects", {"limit": 1}, "the address of projects has 'limit' in it"),
        ("live", {"limit": 1}, "the address of live has 'limit' in it"),
    ],
)
async def test_a_wrong_argument_is_named(
    page: Browser, mine: State, view: str, query: dict[str, str | int], fact: str
) -> None:
    await mine.journal.append("here")

    status, code, told, next_step = await refused(page, view, **query)

    assert (status, code, told) == (400, "bad_argument", fact)
    assert next_step


async def test_an_argument_that_is_given_twice_is_refused(page: Browser) -> None:
    reply = await page.get("api/threads?status=active&status=done")

    assert (reply.status, reply.json["error"]["fact"]) == (400, "'status' is given twice")


async def test_hostile_text_is_data(page: Browser, mine: State) -> None:
    hostile = "</script><script>alert(1)</script>\u2028\u2029\x1b[31m\u202e\ud800\0 javascript:x"
    stored = hostile.replace("\ud800", "\ufffd").replace("\0", "\ufffd")
    await mine.journal.append(hostile)
    await mine.threads.set("t", title="title", next_action=hostile)
    await mine.memory.set("m", hostile)

    replies = {view: await page.view(view) for view in ("journal", "threads", "memory", "history")}

    for reply in replies.values():
        assert reply.body.isascii() and b"\x1b" not in reply.body
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["x-content-type-options"] == "nosniff"
    shown = {view: reply.json for view, reply in replies.items()}
    assert shown["journal"]["entries"][0]["text"] == stored
    assert shown["threads"]["threads"][0]["next_action"] == stored
    assert shown["memory"]["blocks"][0]["value"] == stored
    assert shown["history"]["events"][0]["row"]["text"] == stored


async def test_lone_surrogates_in_a_request_break_nothing(page: Browser, mine: State) -> None:
    await mine.memory.set("plan", "x")

    lone = await page.get("api/search?query=%ED%A0%80abc")
    assert lone.status == 200 and lone.json["hits"] == []
    unknown = await page.get("api/threads?%ED%A0%80=1")
    assert unknown.json["error"]["code"] == "bad_argument"
    named = await page.get("api/thread?name=%ED%A0%80%00")
    assert named.json["error"]["code"] in ("bad_argument", "not_found")
    done = await page.post("api/do/lock", b'{"key": "plan", "reason": "\\ud800 why"}')
    assert done.json["done"]["locked"] == "\ufffd why"
    odd = await page.post("api/do/lock", b'{"\\ud800": 1, "key": "plan", "reason": "x"}')
    assert odd.json["error"]["fact"] == "lock has no argument '\ufffd'"


def contents(path: str) -> dict[str, bytes]:
    """The files of a store."""
    found = Path(path).parent.glob("*")
    return {file.name: file.read_bytes() for file in found if not file.name.endswith("-shm")}


@pytest.mark.sqlite
async def test_a_broken_store_still_serves_the_page_and_says_the_way_out(
    settings: Settings, path: str
) -> None:
    damage(path)
    async with browsing(settings) as page:
        assert (await page.get()).status == 200
        for view in ("overview", "projects", "threads"):
            status, code, fact, next_step = await refused(page, view)
            assert (status, code) == (503, "store_damaged")
            assert path in fact and "mcp-state doctor" in next_step
        done = await page.do("unlock", key="plan")
        assert (done.status, done.json["error"]["code"]) == (503, "store_damaged")
    assert contents(path) == {"state.db": b"no store " * 400}


def damage(path: str) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_bytes(b"no store " * 400)


async def test_looking_makes_no_store_and_changes_none(
    page: Browser, path: str, open_state: Open
) -> None:
    views = ("overview", "projects", "threads", "journal", "runs", "facts", "memory", "history")
    for view in views:
        assert (await page.view(view)).status == 200
    assert (await page.do("unlock", key="plan")).status == 404
    assert contents(path) == {}

    await open_state().journal.append("here")
    before = contents(path)
    for view in views:
        assert (await page.view(view)).status == 200
    assert contents(path) == before


async def test_a_fault_of_ours_is_told_without_its_insides(
    page: Browser, mine: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await mine.journal.append("here")

    def fail(*_: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr("mcp_state.web.views.current_objective", fail)

    reply = await page.view("overview")

    assert (reply.status, reply.json) == (
        500,
        {
            "error": {
                "code": "internal",
                "fact": "this is a fault of mcp-state",
                "next_step": "The terminal of `mcp-state web` tells more. Reload before you go on.",
            }
        },
    )
    assert "ZeroDivisionError: inside" in caplog.text
    assert page.path.strip("/") not in caplog.text
