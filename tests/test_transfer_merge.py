"""An import into a project with work of its own: nothing there is overwritten, nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from carrying import fill, store_at
from conftest import FakeClock
from test_migrations import make_version_1, make_version_2
from whole_stores import Stores, contradictions, everything

from mcp_state.api import State
from mcp_state.errors import Conflict, Expired, LeaseLost
from mcp_state.models import Imported, MemoryBlock, Thread


async def value(state: State, key: str, *, run: str = "", version: int | None = None) -> str:
    block = await state.memory.get(key, run=run, version=version)
    return block.value if isinstance(block, MemoryBlock) else ""


async def test_what_only_one_has_stands_side_by_side(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        await ours.as_("ada").threads.set("ours", depends_on=[])
        await ours.as_("ada").journal.append("a1", thread="ours", kind="note")
        await ours.as_("ada").memory.set("a", "one")
        there = theirs.as_("ben")
        await there.threads.set("theirs")
        await there.journal.append("b1", thread="theirs", kind="note")
        imported = await theirs.take(await ours.export())
        assert imported == Imported("acme", "acme", 3, 0, {}, event=6)
        await there.journal.append("b2", thread="ours", kind="note")
        page = await there.journal.tail(kind="note")
        assert [(e.seq, e.actor.agent, e.text, e.thread) for e in page.entries] == [
            (2, "ben", "b1", "theirs"),
            (4, "ada", "a1", "ours"),
            (7, "ben", "b2", "ours"),
        ]
        assert (page.older, page.newer) == (0, 0)
        assert [t.name for t in (await there.threads.list()).threads] == ["theirs", "ours"]
        assert await value(there, "a") == "one"
        hits = (await there.search.find("a1")).hits
        assert [(h.kind, h.seq) for h in hits] == [("journal", 4)]
        assert (there.totals.journal, there.totals.memory, there.totals.event) == (3, 1, 7)


async def test_what_went_on_in_the_file_goes_on_here_and_the_other_way_round(
    stores: Stores,
) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await here.memory.set("plan", "one")
        await here.threads.set("fix", criteria=["green"])
        await here.threads.set("on-top", depends_on=["fix"])
        await theirs.take(await ours.export())
        await here.memory.append("plan", ", two")
        await here.threads.check("fix", "1", True)
        await here.threads.set("fix", status="done", evidence="exit 0")
        await there.memory.set("log", "theirs goes on too")
        imported = await theirs.take(await ours.export())
        assert (imported.events, imported.skipped, imported.kept_apart) == (3, 3, {})
        assert await value(there, "plan") == "one, two"
        assert await value(there, "plan", version=1) == "one"
        detail = await there.threads.get("fix")
        assert (detail.thread.status, detail.thread.version, detail.thread.passing) == (
            "done",
            3,
            1,
        )
        assert (await there.threads.get("on-top")).thread.waits_for == 0
        await there.threads.set("fix", status="active", note="it broke")
        await there.threads.set("fix", criteria=["still green"])
        await there.memory.delete("plan")
        back = await ours.take(await theirs.export())
        assert (back.kept_apart, back.event > 0) == ({}, True)
        assert await value(here, "plan") == ""
        assert await value(here, "plan", version=2) == "one, two"
        detail = await here.threads.get("fix")
        assert (detail.thread.status, detail.thread.note) == ("active", "it broke")
        assert [(c.text, c.passes) for c in detail.criteria] == [
            ("green", True),
            ("still green", False),
        ]
        assert (await here.threads.get("on-top")).thread.waits_for == 1
        assert (await ours.take(await theirs.export())).events == 0
        assert (await theirs.take(await ours.export())).events == 0


async def test_names_that_parted_are_kept_apart_with_all_that_leads_to_them(
    stores: Stores,
) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await here.threads.set("Base", title="ours")
        await here.threads.set("on-top", depends_on=["base"])
        await here.journal.append("about ours", thread="base")
        await here.memory.set("Plan", "ours")
        await here.runs.begin("Ours", run="Index", thread="base")
        await here.memory.set("Cursor", "ours", run="index")
        await here.steps.begin("index", "One", input="a")
        await here.runs.checkpoint("index", "at ours", done=1)
        await here.journal.append("of our run", run="index")
        await there.threads.set("base", title="theirs")
        await there.memory.set("plan", "theirs")
        await there.runs.begin("Theirs", run="index")
        await there.memory.set("cursor", "theirs", run="index")
        imported = await theirs.take(await ours.export())
        assert imported.kept_apart == {
            "thread:Base": "Base (from acme)",
            "memory:Plan": "Plan (from acme)",
            "run:Index": "Index (from acme)",
        }
        assert (await there.threads.get("base")).thread.title == "theirs"
        assert await value(there, "plan") == "theirs"
        assert (await there.runs.show("index")).run.goal == "Theirs"
        assert await value(there, "cursor", run="index") == "theirs"

        base = await there.threads.get("base (from acme)")
        assert (base.thread.name, base.thread.title) == ("Base (from acme)", "ours")
        assert base.needed_by == ["on-top"]
        assert [(e.thread, e.text) for e in base.journal] == [("Base (from acme)", "about ours")]
        assert [e.row and e.row["name"] for e in base.history] == ["Base (from acme)"]
        on_top = await there.threads.get("on-top")
        assert on_top.thread.depends_on == ["Base (from acme)"]
        assert [e.row and e.row["depends_on"] for e in on_top.history] == [["Base (from acme)"]]
        assert await value(there, "PLAN (FROM ACME)", version=1) == "ours"

        run = await there.runs.show("index (from acme)")
        assert (run.run.name, run.run.goal) == ("Index (from acme)", "Ours")
        assert run.run.thread == "Base (from acme)"
        assert [(b.key, b.value) for b in run.memory] == [("Cursor", "ours")]
        assert [s.name for s in run.steps] == ["One"]
        assert [c.state for c in run.checkpoints] == ["at ours"]
        assert {e.run for e in run.events} == {"index (from acme)"}
        entries = (await there.journal.tail(run="index (from acme)")).entries
        assert [(e.run, e.text) for e in entries] == [("Index (from acme)", "of our run")]
        resumed = await there.runs.resume("index (from acme)")
        assert [b.value for b in resumed.memory] == ["ours"]
        history = (await there.events.history("project:")).events
        assert [e.summary for e in history] == [
            "9 events imported from a file, kept apart: Base (from acme), Index (from acme), "
            "Plan (from acme)"
        ]
        assert history[0].row and history[0].row["kept_apart"] == imported.kept_apart
        found = {h.name for h in (await there.search.find("ours")).hits}
        assert {"Base (from acme)", "Plan (from acme)", "Index (from acme)"} <= found


async def test_a_copy_that_was_kept_apart_goes_on_and_parts_again(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await here.memory.set("plan", "ours")
        await there.memory.set("plan", "theirs")
        await theirs.take(await ours.export())
        await here.memory.set("plan", "ours, later")
        imported = await theirs.take(await ours.export())
        assert (imported.events, imported.kept_apart) == (1, {"memory:plan": "plan (from acme)"})
        assert await value(there, "plan (from acme)") == "ours, later"
        await there.memory.set("plan (from acme)", "theirs now")
        await here.memory.set("plan", "ours, at last")
        imported = await theirs.take(await ours.export())
        assert (imported.events, imported.kept_apart) == (3, {"memory:plan": "plan (from acme 2)"})
        blocks = (await there.memory.blocks()).blocks
        assert [(b.key, b.value) for b in blocks] == [
            ("plan", "theirs"),
            ("plan (from acme 2)", "ours, at last"),
            ("plan (from acme)", "theirs now"),
        ]


async def test_a_name_in_the_file_that_looks_like_one_kept_apart_is_another_thing(
    stores: Stores,
) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await here.memory.set("plan", "ours")
        await here.memory.set("plan (from acme)", "ours too")
        for number in range(2):
            await here.threads.set(f"{'long' * 31}{number}", title=f"ours {number}")
            await there.threads.set(f"{'long' * 31}{number}", title=f"theirs {number}")
        await there.memory.set("plan", "theirs")
        imported = await theirs.take(await ours.export())
        assert imported.kept_apart == {
            f"thread:{'long' * 31}0": f"{('long' * 31)[:115]}… (from acme)",
            f"thread:{'long' * 31}1": f"{('long' * 31)[:113]}… (from acme 2)",
            "memory:plan": "plan (from acme 2)",
        }
        blocks = (await there.memory.blocks()).blocks
        assert [(b.key, b.value) for b in blocks] == [
            ("plan", "theirs"),
            ("plan (from acme 2)", "ours"),
            ("plan (from acme)", "ours too"),
        ]
        apart = await there.threads.get(imported.kept_apart[f"thread:{'long' * 31}1"])
        assert apart.thread.title == "ours 1"


async def test_a_thread_whose_dependencies_would_lead_in_a_circle_is_kept_apart(
    stores: Stores,
) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        for name in ("one", "two", "three"):
            await here.threads.set(name)
        await theirs.take(await ours.export())
        await here.threads.set("one", depends_on=["two"])
        await there.threads.set("three", depends_on=["one"])
        await there.threads.set("two", depends_on=["three"])
        imported = await theirs.take(await ours.export())
        assert imported.kept_apart == {"thread:one": "one (from acme)"}
        needs = {t.name: t.depends_on for t in (await there.threads.list()).threads}
        assert needs == {
            "one": [],
            "two": ["three"],
            "three": ["one"],
            "one (from acme)": ["two"],
        }


async def test_a_lease_ends_where_its_thread_went_on_in_an_import(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await here.threads.set("fix")
        await here.threads.set("rest")
        await theirs.take(await ours.export())
        held = await there.threads.claim("fix", lease="4h")
        rest = await there.threads.claim("rest", lease="4h")
        await here.threads.claim("fix")
        await here.threads.set("fix", note="went on", lease_token=3)
        await theirs.take(await ours.export())
        assert isinstance(held, Thread) and held.lease and isinstance(rest, Thread) and rest.lease
        detail = await there.threads.get("fix")
        assert (detail.thread.note, detail.thread.lease) == ("went on", None)
        assert [e.summary for e in detail.history][-2:] == [
            "changed (went on)",
            "lease of ben ended: its thread went on in an import",
        ]
        with pytest.raises(LeaseLost):
            await there.threads.set("fix", note="mine", lease_token=held.lease.token)
        await there.threads.set("rest", note="mine", lease_token=rest.lease.token)


async def test_events_that_changed_nothing_do_not_make_histories_part(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await here.threads.set("fix")
        await here.journal.append("once", idempotency_key="k")
        await theirs.take(await ours.export())
        for state in (here, there):
            await state.threads.claim("fix", lease="30m")
            with pytest.raises(LeaseLost):
                await state.threads.set("fix", note="x", lease_token=1)
            with pytest.raises(Conflict):
                await state.journal.append("twice", idempotency_key="k")
        token = (await here.threads.get("fix")).thread.lease
        assert token is not None
        await here.threads.set("fix", note="went on", lease_token=token.token)
        imported = await theirs.take(await ours.export())
        assert imported.kept_apart == {}
        detail = await there.threads.get("fix")
        assert [(e.actor.agent, e.operation) for e in detail.history] == [
            ("ada", "create"),
            ("ben", "lease_claimed"),
            ("ben", "refused"),
            ("ada", "lease_claimed"),
            ("ada", "refused"),
            ("ada", "set"),
            ("importer", "lease_broken"),
        ]


async def test_a_blob_that_both_have_stays_and_is_kept_for_the_longer_time(
    stores: Stores,
) -> None:
    clock = FakeClock()
    async with store_at(stores / "a.db", clock) as ours, store_at(stores / "b.db", clock) as b:
        here, there = ours.as_("ada"), b.as_("ben")
        await here.blobs.put("for good")
        long = await here.blobs.put("for a day", summary="ours", ttl="1d")
        short = await here.blobs.put("for an hour", summary="ours", ttl="1h")
        clock.move(minutes=1)
        for text, ttl in (("for good", "1h"), ("for a day", "1h"), ("for an hour", "2h")):
            await there.blobs.put(text, summary="theirs", ttl=ttl)
        imported = await b.take(await ours.export())
        assert (imported.events, imported.kept_apart, imported.event) == (0, {}, 6)
        stays = "has another history there, and stays as it is here"
        good = await here.blobs.put("for good")
        assert sorted(imported.stayed) == sorted(
            [
                f"blob:{good.key} {stays}, but is kept longer",
                f"blob:{long.key} {stays}, but is kept longer",
                f"blob:{short.key} {stays}",
            ]
        )
        clock.move(hours=1, minutes=30)
        for key in (long.key, short.key):
            page = await there.blobs.get(key)
            assert (page.text[:5], page.blob.summary) == ("for a", "theirs")
        clock.move(days=2)
        assert (await there.blobs.get((await here.blobs.put("for good")).key)).text == "for good"
        with pytest.raises(Expired):
            await there.blobs.get(long.key)


async def test_entries_that_are_there_are_skipped_whatever_else_is_new(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await here.threads.set("fix")
        await here.journal.append("one", thread="fix")
        await theirs.take(await ours.export())
        await there.threads.set("fix", note="parted")
        await there.journal.append("theirs")
        await here.threads.set("fix", note="parted too")
        await here.journal.append("two", thread="fix")
        imported = await theirs.take(await ours.export())
        assert imported.kept_apart == {"thread:fix": "fix (from acme)"}
        entries = (await there.journal.tail()).entries
        assert [(e.text, e.thread) for e in entries] == [
            ("one", "fix"),
            ("theirs", ""),
            ("two", "fix (from acme)"),
        ]


async def test_a_run_that_went_on_keeps_its_thread_where_that_has_parted(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await here.threads.set("fix")
        await here.runs.begin("Fix it", run="fixing", thread="fix")
        await theirs.take(await ours.export())
        await there.threads.set("fix", note="theirs")
        await here.threads.set("fix", note="ours")
        await here.steps.begin("fixing", "one")
        imported = await theirs.take(await ours.export())
        assert imported.kept_apart == {"thread:fix": "fix (from acme)"}
        assert (await there.runs.show("fixing")).run.thread == "fix"
        await here.runs.finish("fixing", "completed", evidence="exit 0")
        assert (await theirs.take(await ours.export())).kept_apart == {}
        assert (await there.runs.show("fixing")).run.thread == "fix (from acme)"


async def test_where_every_name_is_taken_everything_is_kept_apart(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        await fill(ours, agent="ada")
        await fill(theirs, agent="ben")
        there = theirs.as_("ben")
        before = (await there.events.history(since=0, limit=1000)).events
        imported = await theirs.take(await ours.export())
        assert set(imported.kept_apart) == {
            *(f"thread:{name}" for name in ("Base", "on-top", "asked", "seen", "over", "long")),
            "thread:relying",
            *(f"fact:{name}" for name in ("Builds", "Tested", "fits", "Runs", "ready")),
            *("fact:Deployed", "fact:Gone", "objective:objective"),
            *(f"memory:{name}" for name in ("Plan", "gone", "brief")),
            *("run:Index", "run:other", "run:Talk"),
        }
        after = (await there.events.history(since=0, limit=1000)).events
        assert after[: len(before)] == before
        needs = (await there.threads.get("on-top (from acme)")).thread.depends_on
        assert needs == ["Base (from acme)"]
        texts = [
            await s.transcripts.texts(r)
            for s, r in ((ours.as_(), "talk"), (there, "talk (from acme)"))
        ]
        assert texts[0] == texts[1]


async def test_an_import_waits_for_its_turn_and_writers_wait_for_theirs(
    stores: Stores, tmp_path: Path
) -> None:
    path = tmp_path / "b.db"
    async with (
        store_at(stores / "a.db") as ours,
        store_at(path) as theirs,
        store_at(path) as beside,
    ):
        await fill(ours)
        file = await ours.export()
        writers = [
            asyncio.create_task(store.as_("ben").journal.append(f"{number}"))
            for number in range(10)
            for store in (theirs, beside)
        ]
        imported = await theirs.as_("importer").transfer.import_file(file)
        await asyncio.gather(*writers)
        entries = (await theirs.as_().journal.tail(limit=100)).entries
        assert len([e for e in entries if e.actor.agent == "ben"]) == 20
        assert imported.kept_apart == {}
        await theirs.take(file)


KILLED = """
import asyncio, os, sys
from mcp_state.api import open_store

async def main(path, file):
    async with open_store(path, project="acme", agent="importer") as state:
        await state.transfer.import_file(file, progress=lambda done, of: done > 0.7 * of and die())

def die():
    os.kill(os.getpid(), 9)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_an_import_that_is_killed_half_way_has_not_begun(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        for number in range(400):
            await ours.as_("ada").memory.set(f"block {number}", "x" * 100)
        await theirs.as_("ben").memory.set("block 7", "theirs")
        file = await ours.export()
        before = everything(theirs.path)
        words = [sys.executable, "-c", KILLED, str(theirs.path), str(file)]
        killed = await asyncio.to_thread(subprocess.run, words, timeout=60, check=False)
        assert killed.returncode == -signal.SIGKILL
        assert contradictions(theirs.path) == []
        assert everything(theirs.path) == before
        imported = await theirs.take(file)
        assert imported.kept_apart == {"memory:block 7": "block 7 (from acme)"}


async def test_a_store_that_began_under_an_older_version_is_carried_too(
    stores: Stores, tmp_path: Path
) -> None:
    old = tmp_path / "old.db"
    make_version_1(old)
    async with store_at(old) as ours, store_at(stores / "b.db") as theirs:
        await ours.as_().journal.append("since then")
        file = await ours.export()
        await theirs.as_("ben").memory.set("plan", "theirs")
        imported = await theirs.take(file)
        assert imported.kept_apart == {"memory:Plan": "Plan (from acme)"}
        entries = (await theirs.as_().journal.tail()).entries
        assert [e.text for e in entries] == ["began", "since then"]


async def test_a_project_is_copied_within_its_store(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours:
        await fill(ours)
        file = await ours.export()
        copied = await ours.take(file, "copy")
        assert (copied.project, copied.source, copied.kept_apart) == ("copy", "acme", {})
        one, two = [
            [(e.text, e.thread, e.run) for e in (await s.journal.tail(limit=50)).entries]
            for s in (ours.as_(), ours.as_(project="copy"))
        ]
        assert one == two and len(one) > 5
        await ours.as_(project="copy").memory.set("only", "here")
        assert await value(ours.as_(), "only") == ""
        assert (await ours.take(await ours.export("copy"), "copy")).events == 0


async def test_a_key_of_an_append_stays_behind_if_its_block_was_renamed(stores: Stores) -> None:
    async with store_at(stores / "a.db") as ours, store_at(stores / "b.db") as theirs:
        here, there = ours.as_("ada"), theirs.as_("ben")
        await here.memory.append("log", "x", idempotency_key="k1")
        await here.memory.append("other", "y", idempotency_key="k2")
        await here.memory.append("other", "z", idempotency_key="k3")
        await there.memory.set("log", "theirs")
        await theirs.take(await ours.export())
        block = await there.memory.append("log", "x", idempotency_key="k1")
        assert (block.repeated, block.value) == (False, "theirsx")
        block = await there.memory.append("other", "z", idempotency_key="k3")
        assert (block.repeated, block.value) == (True, "yz")


async def test_a_project_that_was_carried_to_and_fro_by_three_stores_is_one(
    stores: Stores,
) -> None:
    clock = FakeClock()
    async with (
        store_at(stores / "a.db", clock) as a,
        store_at(stores / "b.db", clock) as b,
        store_at(stores / "c.db", clock) as c,
    ):
        await fill(a)
        for source, target in ((a, b), (b, c)):
            await target.take(await source.export())
        for number, store in enumerate((a, b, c)):
            await store.as_("ada", f"s{number}").memory.set(f"by {number}", "x")
            await store.as_("ada", f"s{number}").journal.append(f"from {number}")
        for source, target in ((c, a), (a, b), (b, c), (c, a), (a, b)):
            assert (await target.take(await source.export())).kept_apart == {}
        for source, target in ((a, b), (b, c), (c, a), (a, c), (c, b), (b, a)):
            assert (await target.take(await source.export())).events == 0
        seen = [
            (
                sorted(e.text for e in (await s.as_().journal.tail(limit=100)).entries),
                [(k.key, k.value) for k in (await s.as_().memory.blocks()).blocks],
            )
            for s in (a, b, c)
        ]
        assert seen[0] == seen[1] == seen[2]


async def test_a_thread_of_an_older_version_is_the_same_wherever_it_was_carried(
    tmp_path: Path,
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        make_version_2(tmp_path / name / "old.db")
    async with (
        store_at(tmp_path / "a" / "old.db") as ours,
        store_at(tmp_path / "b" / "old.db") as theirs,
    ):
        await ours.as_().facts.record("base", "b")
        await ours.as_().threads.set("fix", relies_on=["base"])
        imported = await theirs.take(await ours.export())
        assert (imported.events, imported.kept_apart) == (2, {})
        thread = (await theirs.as_().threads.get("fix")).thread
        assert [premise.name for premise in thread.relies_on] == ["base"]
