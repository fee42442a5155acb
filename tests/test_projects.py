"""Projects are listed, renamed, and merged without losing a change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from peeking import Refused, plain, rows
from whole_stores import contradictions
from workload import Nouns, opened, work, work_long, work_truth

from mcp_state.errors import BadArgument, Conflict, LeaseLost, NotFound
from mcp_state.models import MemoryBlock, NothingToClaim, Project, Totals
from mcp_state.settings import is_address
from mcp_state.store.database import Database
from mcp_state.store.events import Events
from mcp_state.store.search import Search
from mcp_state.store.transfer import Transfer

COUNTS = {"active": 3, "watching": 1, "blocked": 1, "done": 0, "dropped": 0}
NO_RUNS = {"open": 0, "completed": 0, "failed": 0, "abandoned": 0}
NO_FACTS = {"provisional": 0, "trusted": 0, "stale": 0, "refuted": 0, "archival": 0}
TWICE = {"active": 6, "watching": 2, "blocked": 2, "done": 0, "dropped": 0}

REFUSING = {
    "sqlite": "CREATE TRIGGER not_now BEFORE UPDATE OF merged_into ON projects "
    "BEGIN SELECT RAISE(ABORT, 'late in the merge'); END",
    "postgres": "CREATE FUNCTION not_now() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'late in the merge'; END $$; "
    "CREATE TRIGGER not_now BEFORE UPDATE OF merged_into ON projects "
    "FOR EACH ROW EXECUTE FUNCTION not_now()",
}
UNREFUSING = {
    "sqlite": "DROP TRIGGER not_now",
    "postgres": "DROP FUNCTION not_now CASCADE",
}
TRIGGERS = {
    "sqlite": "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY name",
    "postgres": "SELECT tgname, tgenabled, pg_get_triggerdef(oid) FROM pg_trigger "
    "WHERE tgrelid::regclass::text NOT LIKE '%.%' AND NOT tgisinternal ORDER BY tgrelid, tgname",
}


def triggers(path: str) -> list[tuple[object, ...]]:
    """What is done, or refused, when a row changes."""
    return rows(path, TRIGGERS["postgres" if is_address(path) else "sqlite"])


async def two_projects(database: Database) -> tuple[Nouns, Nouns]:
    """The same work in both, so that every name is taken twice."""
    acme = Nouns(database, "acme", "codex", "/dir/acme")
    beta = Nouns(database, "Beta", "claude", "/dir/beta")
    await work(acme)
    await work(beta)
    return acme, beta


async def test_the_list_has_names_directories_and_counts_the_most_active_first(
    path: str,
) -> None:
    async with opened(path) as database:
        assert list(await Nouns(database, "", "codex").projects.list()) == []
        quiet = Nouns(database, "quiet", "codex")
        entry = await quiet.journal.append("one")
        _, beta = await two_projects(database)
        await beta.projects.rename("gamma")
        found = await quiet.projects.list()
        assert [(p.name, p.totals) for p in found] == [
            ("gamma", Totals("gamma", "", True, 27, COUNTS, 6, 3, NO_RUNS, facts=NO_FACTS)),
            ("acme", Totals("acme", "", True, 26, COUNTS, 6, 3, NO_RUNS, facts=NO_FACTS)),
            (
                "quiet",
                Totals(
                    "quiet", "", True, 1, dict.fromkeys(COUNTS, 0), 1, 0, NO_RUNS, facts=NO_FACTS
                ),
            ),
        ]
        assert [(p.other_names, p.directories) for p in found] == [
            (["Beta"], ["/dir/beta"]),
            ([], ["/dir/acme"]),
            ([], []),
        ]
        assert found[2] == Project("quiet", found[2].totals, entry.at, entry.at, [], [])


async def test_a_renamed_project_is_found_by_all_its_names(path: str) -> None:
    async with opened(path) as database:
        nouns = Nouns(database, "acme", "codex")
        await nouns.memory.set("plan", "x")
        renamed = await nouns.projects.rename(" New Name ")
        assert (renamed.name, renamed.other_names) == ("New Name", ["acme"])
        for name in ("acme", "new name", "NEW NAME"):
            caller = Nouns(database, name, "claude")
            assert isinstance(await caller.memory.get("plan"), MemoryBlock)
            assert caller.caller.totals is not None
            assert caller.caller.totals.project == "New Name"
        again = await nouns.projects.rename("ACME")
        assert (again.name, again.other_names) == ("ACME", ["New Name"])
        unchanged = await nouns.projects.rename("ACME")
        assert unchanged == again
        history = await Events(database, nouns.caller).history("project:")
        assert [(e.operation, e.summary, e.row) for e in history.events] == [
            ("rename", "acme -> New Name", {"name": "New Name", "was": "acme"}),
            ("rename", "New Name -> ACME", {"name": "ACME", "was": "New Name"}),
        ]
    assert contradictions(path) == []


async def test_a_name_that_another_project_has_is_refused_and_leads_to_merge(
    path: str,
) -> None:
    async with opened(path) as database:
        _, beta = await two_projects(database)
        with pytest.raises(Conflict) as refused:
            await beta.projects.rename("ACME")
        assert str(refused.value) == (
            "conflict: the name 'ACME' belongs to project 'acme'. To make one project of the two: "
            "`mcp-state projects merge 'Beta' 'acme'`."
        )
        with pytest.raises(BadArgument):
            await beta.projects.rename("two\nlines")
        assert [p.name for p in await beta.projects.list()] == ["Beta", "acme"]


async def test_what_is_not_in_the_store_is_neither_renamed_nor_merged_nor_made(
    path: str,
) -> None:
    async with opened(path) as database:
        acme = Nouns(database, "acme", "codex")
        await acme.journal.append("one")
        unknown = Nouns(database, "unknown", "codex")
        with pytest.raises(NotFound) as rename:
            await unknown.projects.rename("known")
        assert str(rename.value) == (
            "not_found: no project 'unknown'. `mcp-state projects` shows all of them; nothing was "
            "changed."
        )
        with pytest.raises(NotFound):
            await unknown.projects.merge("acme")
        with pytest.raises(NotFound) as into:
            await acme.projects.merge("unknown")
        assert into.value.fact == "no project 'unknown'; there is 'acme'"
        with pytest.raises(BadArgument) as itself:
            await acme.projects.merge("ACME")
        assert itself.value.fact == "'ACME' is this project already"
        assert [p.name for p in await acme.projects.list()] == ["acme"]


async def test_a_merge_keeps_every_change_and_leaves_nothing_for_doctor(path: str) -> None:
    async with opened(path) as database:
        acme, beta = await two_projects(database)
        texts = "SELECT kind, operation, at, actor, version FROM events ORDER BY project, seq"
        before = rows(path, texts)
        merged = await beta.projects.merge("acme")
        assert merged.totals == Totals("acme", "", True, 54, TWICE, 12, 6, NO_RUNS, facts=NO_FACTS)
        assert (merged.name, merged.other_names) == ("acme", ["Beta"])
        assert merged.directories == ["/dir/acme", "/dir/beta"]
        assert beta.caller.totals == Totals(
            "acme", "argument", True, 54, TWICE, 12, 6, NO_RUNS, facts=NO_FACTS
        )
        assert rows(path, texts)[: len(before)] == before
        assert rows(path, "SELECT count(*), max(seq) FROM events WHERE project = 1") == [(54, 54)]
        assert await acme.projects.list() == [merged]
        assert contradictions(path) == []
        elsewhere = Nouns(database, "a name of today", "codex", "/dir/beta")
        await elsewhere.journal.append("the directory leads to acme")
        assert [p.name for p in await acme.projects.list()] == ["acme"]
    assert contradictions(path) == []
    assert rows(path, "SELECT merged_into, last_event FROM projects WHERE id = 2") == [(1, 0)]


async def test_names_that_both_have_are_kept_apart_with_their_history(path: str) -> None:
    async with opened(path) as database:
        acme, beta = await two_projects(database)
        await beta.projects.merge("acme")
        for key in ("plan", "Plan (from Beta)"):
            block = await acme.memory.get(key, version=1)
            assert isinstance(block, MemoryBlock)
            assert (block.key.lower(), block.value) == (key.lower(), "first line\nsecond line")
        detail = await acme.threads.get("ON-TOP (FROM BETA)")
        assert detail.thread.name == "on-top (from Beta)"
        assert detail.thread.depends_on == ["Base (from Beta)"]
        assert (await acme.threads.get("on-top")).thread.depends_on == ["Base"]
        base = await acme.threads.get("base (from beta)")
        assert [c.passes for c in base.criteria] == [True, False]
        assert base.needed_by == ["on-top (from Beta)"]
        assert [(e.thread, e.text) for e in base.journal] == [("Base (from Beta)", "began")]
        assert [e.operation for e in base.history] == ["create", "check"]
        assert [e.row["name"] for e in base.history if e.row] == ["Base (from Beta)"] * 2
        history = await Events(database, acme.caller).history("project:")
        [event] = history.events
        assert event.summary == "Beta merged into this, 26 events"
        assert event.row == {
            "name": "acme",
            "merged": "Beta",
            "first": 27,
            "last": 52,
            "kept_apart": {
                "memory:plan": "Plan (from Beta)",
                "memory:gone": "gone (from Beta)",
                "memory:brief": "brief (from Beta)",
                "thread:base": "Base (from Beta)",
                "thread:on-top": "on-top (from Beta)",
                "thread:asked": "asked (from Beta)",
                "thread:seen": "seen (from Beta)",
                "thread:over": "over (from Beta)",
            },
        }


async def test_names_that_only_one_has_stay_and_the_journal_goes_on(path: str) -> None:
    async with opened(path) as database:
        acme, beta = Nouns(database, "acme", "codex"), Nouns(database, "beta", "claude")
        await acme.threads.set("ours")
        await acme.journal.append("a1", thread="ours", kind="note")
        await beta.threads.set("theirs")
        await beta.memory.set("plan", "theirs")
        first = await beta.journal.append("b1", thread="theirs", kind="note", idempotency_key="k")
        await beta.projects.merge("acme")
        await acme.journal.append("a2", kind="note")
        page = await acme.journal.tail(kind="note")
        assert [(e.seq, e.text, e.thread) for e in page.entries] == [
            (2, "a1", "ours"),
            (5, "b1", "theirs"),
            (7, "a2", ""),
        ]
        assert (page.older, page.newer) == (0, 0)
        assert [e.text for e in (await acme.journal.tail(limit=2)).entries] == ["b1", "a2"]
        assert (await acme.journal.tail(limit=2)).older == 1
        again = await beta.journal.append("b1", thread="theirs", kind="note", idempotency_key="k")
        assert (again.repeated, again.id, again.seq) == (True, first.id, 5)
        hits = (await Search(database, acme.caller).find("theirs")).hits
        assert sorted((h.kind, h.name, h.seq) for h in hits) == [
            ("memory", "plan", 4),
            ("thread", "theirs", 3),
        ]
        assert [t.name for t in (await acme.threads.list()).threads] == ["ours", "theirs"]
    assert contradictions(path) == []


async def test_leases_end_and_old_tokens_are_refused(path: str) -> None:
    async with opened(path) as database:
        acme, beta = Nouns(database, "acme", "codex"), Nouns(database, "beta", "claude")
        await acme.threads.set("same")
        held = await acme.threads.claim("same")
        await beta.threads.set("same")
        await beta.threads.set("other")
        same, other = await beta.threads.claim("same"), await beta.threads.claim("other")
        assert not isinstance(held, NothingToClaim) and held.lease is not None
        assert not isinstance(same, NothingToClaim) and same.lease is not None
        assert not isinstance(other, NothingToClaim) and other.lease is not None
        await beta.projects.merge("acme")
        for name in ("same (from beta)", "other"):
            assert (await acme.threads.get(name)).thread.lease is None
        with pytest.raises(LeaseLost):
            await beta.threads.set("other", note="late", lease_token=other.lease.token)
        kept = await acme.threads.set("same", note="still ours", lease_token=held.lease.token)
        assert kept.lease == held.lease
        summaries = rows(path, "SELECT name, summary FROM events WHERE operation = 'lease_broken'")
        assert summaries == [
            ("same (from beta)", "lease of claude ended: beta was merged into this"),
            ("other", "lease of claude ended: beta was merged into this"),
        ]
    assert contradictions(path) == []


async def test_names_kept_apart_stay_within_the_limit_and_differ(path: str) -> None:
    long, source = "k" * 128, "s" * 128
    async with opened(path) as database:
        acme, beta = Nouns(database, "acme", "codex"), Nouns(database, source, "claude")
        for nouns in (acme, beta):
            for key in (long, long[:-1] + "x", "plan"):
                await nouns.memory.set(key, f"{nouns.caller.project} {key}")
                await nouns.threads.set(key)
        await acme.memory.set(f"plan (from {'s' * 59}…)", "taken already")
        await beta.projects.merge("acme")
        kept = await acme.memory.blocks()
        ending = f" (from {'s' * 59}…"
        assert [block.key for block in kept.blocks if block.value.startswith(source)] == [
            "k" * (127 - len(ending) - 1) + f"…{ending})",
            "k" * (127 - len(ending) - 3) + f"…{ending} 2)",
            f"plan{ending} 2)",
        ]
        assert max(len(block.key) for block in kept.blocks) == 128
        assert len((await acme.threads.list()).threads) == 6
    assert contradictions(path) == []


async def test_merged_projects_can_be_merged_on(path: str) -> None:
    async with opened(path) as database:
        acme, beta = await two_projects(database)
        gamma = Nouns(database, "gamma", "codex")
        await gamma.memory.set("plan", "of gamma")
        await beta.projects.merge("acme")
        merged = await beta.projects.merge("GAMMA")
        assert (merged.name, merged.other_names) == ("gamma", ["acme", "Beta"])
        assert merged.totals.event == 57
        assert await acme.projects.list() == [merged]
        assert contradictions(path) == []
    assert rows(path, "SELECT merged_into FROM projects ORDER BY id") == [(3,), (3,), (None,)]


async def test_after_a_merge_events_and_the_journal_are_append_only_again(path: str) -> None:
    async with opened(path) as database:
        _, beta = await two_projects(database)
        before = triggers(path)
        await beta.projects.merge("acme")
    assert triggers(path) == before
    with plain(path) as connection:
        for statement in (
            "UPDATE events SET summary = 'x'",
            "DELETE FROM events",
            "UPDATE journal SET text = 'x'",
            "DELETE FROM journal",
        ):
            with pytest.raises(Refused):
                connection.execute(statement)


async def test_a_merge_that_fails_leaves_both_projects_as_they_were(path: str, engine: str) -> None:
    async with opened(path) as database:
        _, beta = await two_projects(database)
        with plain(path) as connection:
            connection.execute(REFUSING[engine])
        everything = [
            "SELECT * FROM events",
            "SELECT * FROM memory",
            "SELECT * FROM threads",
            "SELECT * FROM journal_topics",
            "SELECT * FROM documents",
            "SELECT * FROM projects",
        ]
        before = triggers(path), [rows(path, sql) for sql in everything]
        with pytest.raises(Exception, match="late in the merge"):
            await beta.projects.merge("acme")
        assert (triggers(path), [rows(path, sql) for sql in everything]) == before
        with plain(path) as connection:
            connection.execute(UNREFUSING[engine])
        await beta.projects.merge("acme")
    assert contradictions(path) == []


async def test_the_rows_of_events_stay_json_that_reads_the_same(path: str) -> None:
    async with opened(path) as database:
        acme, beta = Nouns(database, "acme", "codex"), Nouns(database, "beta", "codex")
        odd = 'quote " backslash \\ tab \t \u2028 emoji \U0001f600 {"a": [1.0, null]}'
        for nouns in (acme, beta):
            await nouns.memory.set("plan", odd)
            await nouns.threads.set("t", note=odd)
        await beta.projects.merge("acme")
    kept = [json.loads(str(row)) for (row,) in rows(path, "SELECT row FROM events WHERE seq < 5")]
    assert [row.get("value") or row["note"] for row in kept] == [odd] * 4


async def test_runs_that_both_have_are_kept_apart_with_all_that_is_in_them(path: str) -> None:
    async with opened(path) as database:
        acme, beta = await two_projects(database)
        await acme.threads.set("unrelated")
        for nouns in (acme, beta):
            await work_long(nouns)
        theirs = await beta.runs.resume("index")
        merged = await beta.projects.merge("acme")
        assert merged.totals.runs == {"open": 2, "completed": 0, "failed": 2, "abandoned": 0}
        there = await acme.runs.resume("index")
        kept = await acme.runs.resume("INDEX (from beta)")
        assert theirs.run is not None and kept.run is not None and there.run is not None
        assert (there.run.name, kept.run.name) == ("Index", "Index (from Beta)")
        assert kept.run.thread == "long (from Beta)"
        assert (kept.run.attempts, kept.run.tokens_in, kept.run.steps) == (
            theirs.run.attempts,
            theirs.run.tokens_in,
            theirs.run.steps,
        )
        assert kept.checkpoint is not None and theirs.checkpoint is not None
        assert kept.checkpoint.state == theirs.checkpoint.state == "at 2"
        assert [(b.key, b.value, b.version) for b in kept.memory] == [("Cursor", "12", 2)]
        assert (await acme.steps.begin("index (from beta)", "one")).go is False
        (entry,) = (await acme.journal.tail(run="index (from beta)")).entries
        assert (entry.text, entry.run) == ("belongs to the run", "Index (from Beta)")
        search = Search(database, acme.caller)
        assert {h.name for h in (await search.find("cursor")).hits} >= {
            "Index/Cursor",
            "Index (from Beta)/Cursor",
        }
        (hit,) = (await search.find("cursor", run="index (from beta)")).hits
        assert hit.name == "Index (from Beta)/Cursor"
        assert await acme.transcripts.messages("index (from beta)") == [
            {"role": "user", "content": "do it"},
            {"n": 1.0},
        ]
        history = await Events(database, acme.caller).history("run:index (from beta)", limit=100)
        assert {e.kind for e in history.events} >= {
            "run",
            "step",
            "checkpoint",
            "memory",
            "journal",
        }
    assert contradictions(path) == []


@pytest.mark.parametrize(("ours", "theirs"), [("90s", "4h"), ("4h", "90s"), ("", "4h"), ("4h", "")])
async def test_a_blob_of_both_becomes_one_with_the_longer_life(
    path: str, ours: str, theirs: str
) -> None:
    async with opened(path) as database:
        acme, beta = Nouns(database, "acme", "codex"), Nouns(database, "beta", "claude")
        one = await acme.blobs.put("the same text", summary="ours", ttl=ours)
        two = await beta.blobs.put("the same text", summary="theirs", ttl=theirs)
        only = await beta.blobs.put("only theirs")
        await beta.projects.merge("acme")
        page = await acme.blobs.get(one.key)
        times = [one.expires_at, two.expires_at]
        longest = None if None in times else max(t for t in times if t)
        assert (page.text, page.blob.expires_at) == ("the same text", longest)
        assert (await acme.blobs.get(only.key)).text == "only theirs"
        events = (await Events(database, acme.caller).history(f"blob:{one.key}")).events
        assert [e.version for e in events] == list(range(1, len(events) + 1))
    assert contradictions(path) == []


async def test_a_blob_of_both_that_was_put_several_times_keeps_all_its_versions(
    path: str,
) -> None:
    async with opened(path) as database:
        acme, beta = Nouns(database, "acme", "codex"), Nouns(database, "beta", "claude")
        for nouns in (acme, beta):
            for ttl in ("90s", "1h", "4h"):
                blob = await nouns.blobs.put("the same text", ttl=ttl)
        await beta.projects.merge("acme")
        events = (await Events(database, acme.caller).history(f"blob:{blob.key}")).events
        assert [(e.seq, e.version) for e in events] == [
            (1, 1),
            (2, 2),
            (3, 3),
            (4, 4),
            (5, 5),
            (6, 6),
        ]
    assert contradictions(path) == []


async def test_a_key_of_an_append_never_leads_to_the_block_of_another(path: str) -> None:
    async with opened(path) as database:
        acme, beta = Nouns(database, "acme", "codex"), Nouns(database, "beta", "claude")
        await acme.memory.set("plan", "of acme")
        await beta.memory.append("plan", "of beta", idempotency_key="once")
        await beta.runs.begin("g", run="r")
        await acme.runs.begin("g", run="r")
        await beta.memory.append("only here", "x", run="r", idempotency_key="in a run")
        await beta.projects.merge("acme")
        again = await beta.memory.append("plan (from beta)", "of beta", idempotency_key="once")
        assert (again.value, again.repeated) == ("of betaof beta", False)
        fresh = await beta.memory.append("only here", "x", run="r", idempotency_key="in a run")
        assert (fresh.value, fresh.repeated) == ("x", False)
    assert contradictions(path) == []


async def test_facts_and_objectives_that_both_have_are_kept_apart_with_all_that_leads_to_them(
    path: str,
) -> None:
    async with opened(path) as database:
        acme, beta = Nouns(database, "acme", "codex"), Nouns(database, "Beta", "claude")
        for nouns in (acme, beta):
            await work_truth(nouns)
        await beta.facts.record("Only here", "it is told", because=["ready", "fits"])
        await beta.threads.set("only here", relies_on=["only here", "builds"])
        merged = await beta.projects.merge("acme")
        assert merged.totals.facts == {
            "provisional": 5,
            "trusted": 4,
            "stale": 2,
            "refuted": 2,
            "archival": 2,
        }
        assert acme.caller.totals is not None
        trace = await acme.facts.trace("Only here")
        assert [[p.name for p in reason] for reason in trace.fact.reasons] == [
            ["fits (from Beta)", "ready (from Beta)"]
        ]
        trace = await acme.facts.trace("ready (FROM beta)")
        assert [[p.name for p in reason] for reason in trace.fact.reasons] == [
            ["Runs (from Beta)"],
            ["fits (from Beta)"],
        ]
        assert trace.threads == [("relying (from Beta)", "active"), ("only here", "active")]
        thread = (await acme.threads.get("only here")).thread
        assert [p.name for p in thread.relies_on] == ["Builds (from Beta)", "Only here"]
        events = Events(database, acme.caller)
        history = (await events.history("fact:ready (from beta)")).events
        assert [e.row and (e.row["name"], e.row["reasons"]) for e in history] == [
            ("ready (from Beta)", [["Runs (from Beta)"]]),
            ("ready (from Beta)", [["Runs (from Beta)"], ["fits (from Beta)"]]),
        ]
        history = (await events.history("thread:relying (from beta)")).events
        assert [e.row and e.row["relies_on"] for e in history] == [
            ["Gone (from Beta)", "ready (from Beta)"],
            ["Builds (from Beta)", "ready (from Beta)"],
        ]
        assert [
            [[p.name for p in reason] for reason in (await acme.facts.trace(name)).fact.reasons]
            for name in ("runs", "ready")
        ] == [[["Builds", "Tested"], ["Builds"]], [["Runs"], ["fits"]]]
        hits = (await Search(database, acme.caller).find("the build is green")).hits
        assert sorted(hit.name for hit in hits) == ["Builds", "Builds (from Beta)"]
        assert rows(path, "SELECT name, shown, version, project FROM objectives ORDER BY name") == [
            ("objective", "objective", 2, 1),
            ("objective (from beta)", "objective (from Beta)", 2, 1),
        ]
        now = await acme.objective.get()
        assert now and (now.objective, now.was) == ("Ship it safely", "Ship it")
        assert contradictions(path) == []
        await acme.facts.verify("builds (from Beta)", False, "exit 2")
        assert (await acme.facts.trace("runs (from beta)")).fact.trust == "stale"
        assert (await acme.facts.trace("runs")).fact.trust == "trusted"
    assert contradictions(path) == []


async def test_a_reason_for_a_replaced_statement_stays_one_in_another_project(
    path: str,
) -> None:
    async with opened(path) as database:
        acme, beta = Nouns(database, "acme", "codex"), Nouns(database, "Beta", "claude")
        for nouns in (acme, beta):
            for name in ("base", "side"):
                await nouns.facts.record(name, f"{name} holds", check="make")
                await nouns.facts.verify(name, True, "exit 0")
        await beta.facts.record("top", "it stands", check="ls", because=["base", "side"])
        await beta.facts.record("base", "base holds for most", expected_version=2)
        await beta.projects.merge("acme")
        wanted = """
            SELECT premise, premises.given, replaced, fallen, replaces, stated FROM premises
            JOIN premise_rows USING (project, fact, reason, premise)
            JOIN facts ON facts.name = premise AND facts.project = premises.project
            WHERE fact = 'top' ORDER BY reason, premise
        """
        assert rows(path, wanted) == [
            ("base (from beta)", 9, 1, 1, "trusted", 10),
            ("side (from beta)", 9, 0, 0, "", 7),
        ]
        assert contradictions(path) == []
        assert (await acme.facts.verify("top", True, "top is there")).fact.trust == "stale"
        await acme.facts.record("top", because=["base (from beta)", "side (from beta)"])
        assert (await acme.facts.verify("top", True, "top is there")).fact.trust == "trusted"
        assert rows(path, wanted) == [
            ("base (from beta)", 14, 0, 0, "trusted", 10),
            ("side (from beta)", 14, 0, 0, "", 7),
        ]
    assert contradictions(path) == []


async def test_facts_and_the_objective_that_only_one_has_move_as_they_are(path: str) -> None:
    async with opened(path) as database:
        acme, beta = Nouns(database, "acme", "codex"), Nouns(database, "beta", "claude")
        await acme.facts.record("ours", "o")
        await work_truth(beta)
        await beta.projects.merge("acme")
        await beta.projects.rename("both")
        now = await acme.objective.get()
        assert now and (now.objective, now.version) == ("Ship it safely", 2)
        trace = await acme.facts.trace("deployed")
        assert [t.fact.name for t in trace.rests_on] == ["Runs", "Builds", "Tested", "Builds"]
        runs = trace.rests_on[0].fact
        assert [[p.replaced for p in reason] for reason in runs.reasons] == [
            [False, True],
            [False],
        ]
        again = await acme.facts.verify("deployed", True, "it is there")
        assert again.fact.trust == "trusted"
    assert contradictions(path) == []


@pytest.mark.parametrize(
    ("here", "there", "taker"),
    [("", "", None), ("ben", "", "ben"), ("", "ada", "ada"), ("ben", "ada", "ben")],
)
async def test_a_handoff_of_both_becomes_one_that_is_taken_by_who_took_it_first(
    path: str, tmp_path: Path, here: str, there: str, taker: str | None
) -> None:
    file = tmp_path / "acme.jsonl"
    async with opened(path) as database:
        giver = Nouns(database, "acme", "codex")
        key = (await giver.handoffs.create("go on")).handoff.key
        await Transfer(database, giver.caller).export(file)
        await Transfer(database, Nouns(database, "copy", "codex").caller).import_file(file)
        for project, agent in (("acme", here), ("copy", there)):
            if agent:
                await Nouns(database, project, agent).handoffs.accept(key)
        await Nouns(database, "copy", "codex").projects.merge("acme")
        taken = "SELECT key, taker_agent FROM handoff_rows"
        assert rows(path, taken) == [(key, taker)]
        last = (await Events(database, giver.caller).history(f"handoff:{key}")).events[-1]
        if here:
            words = "stays taken by ben: copy was merged into this"
            assert (last.operation, last.summary) == ("merge", words)
            with pytest.raises(Conflict, match="was taken by ben"):
                await giver.handoffs.accept(key)
        assert contradictions(path) == []
