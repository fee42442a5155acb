"""A text is taken out of everything, what led to it still leads there, and the bytes prove it.

Random rounds name their seed when they fail. A slice of them runs always; `MCP_STATE_SOAK=1`
(`make soak`) runs the whole.
"""

from __future__ import annotations

import hashlib
import json
import random
import unicodedata
from pathlib import Path

import postgres
import pytest
from planting import (
    MARK,
    PLANTS,
    SECRET,
    Plant,
    contents,
    held,
    make_full,
    store_at,
)
from soaking import SOAK
from whole_stores import Stores, contradictions, schema

from mcp_state.errors import BadArgument, Conflict, NoProgress, NotFound
from mcp_state.models import MemoryBlock
from mcp_state.settings import is_address
from mcp_state.store.postgres.database import PostgresDatabase
from mcp_state.store.purge.value import Value
from mcp_state.store.purge.walking import Search
from mcp_state.store.transaction import Reading
from mcp_state.tools import ALL_TOOLS

SEEDS = range(150 if SOAK else 6)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something of everything in it."""
    path = tmp_path_factory.mktemp("full") / "state.db"
    make_full(path)
    return path


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__.strip("_"))
async def test_afterwards_the_store_is_as_if_the_mark_had_been_written_instead(
    stores: Stores, full: Path, plant: Plant
) -> None:
    ours, other = stores / "ours/state.db", stores / "other/state.db"
    async with store_at(ours, full) as store, store_at(other, full) as likewise:
        await plant(store.as_(), SECRET)
        await plant(likewise.as_(), MARK)
        before = schema(ours)
        assert held(ours) != []

        purged = await store.person.purge(SECRET, "it was pasted")

        assert (purged.clean, purged.mark, purged.elsewhere) == (True, MARK, False)
    assert held(ours) == []
    assert contradictions(ours) == contradictions(other) == []
    assert schema(ours) == before
    assert contents(ours, purged=True) == contents(other)


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_same_in_random_places(stores: Stores, full: Path, seed: int) -> None:
    rng = random.Random(seed)
    plants = rng.sample(PLANTS, rng.randrange(2, len(PLANTS)))
    ours, other = stores / "ours/state.db", stores / "other/state.db"
    async with store_at(ours, full) as store, store_at(other, full) as likewise:
        for plant in plants:
            around = ("".join(rng.choices("abc é\"\\\n'", k=rng.randrange(4))) for _ in "12")
            before, after = (text.strip("\n") for text in around)
            written = rng.choice((SECRET, SECRET, SECRET.upper(), SECRET.title()))
            for one, text in ((store, written), (likewise, MARK)):
                try:
                    await plant(one.as_(), f"{before}{text}{after}".replace("\n", " "))
                except Exception as problem:
                    problem.add_note(f"{plant.__name__} {before!r} {after!r}")
                    raise
        purged = await store.person.purge(SECRET, "it was pasted")
        assert (purged.clean, purged.mark) == (True, MARK)
    assert held(ours) == []
    assert contradictions(ours) == []
    assert contents(ours, purged=True) == contents(other)


async def test_it_is_found_in_whatever_form_it_was_stored(path: str) -> None:
    text = 'Größe "42"\\n of\tAnna'
    forms = {
        "as it is": text,
        "in capitals": text.upper(),
        "decomposed": unicodedata.normalize("NFD", text),
        "in one line": 'Größe "42"\\n of Anna',
        "in JSON": json.dumps({"a": text}),
        "in JSON without ASCII": json.dumps({"a": text}, ensure_ascii=False),
        "in JSON in JSON": json.dumps(json.dumps([text])),
        "in Python": repr([text]),
        "with another letter": text.replace("ß", "SS"),
    }
    async with store_at(path) as store:
        state = store.as_()
        for name, form in forms.items():
            await state.memory.set(name, f"<{form}>")
        purged = await store.person.purge(text, "x")
        assert purged.clean
        blocks = {block.key: block.value for block in (await state.memory.blocks()).blocks}
    assert blocks == {
        **dict.fromkeys(forms, f"<{MARK}>"),
        "in JSON": f'<{{"a": "{MARK}"}}>',
        "in JSON without ASCII": f'<{{"a": "{MARK}"}}>',
        "in JSON in JSON": f'<"[\\"{MARK}\\"]">',
        "in Python": f"<['{MARK}']>",
        "with another letter": f"<{MARK}>",
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("the key is correct hor…", "the key is [purged]…"),
        ("the key is CORRECT HORSE batt… and so on", "the key is [purged]… and so on"),
        ("…tery staple is the key", "…[purged] is the key"),
        ("…horse battery…", "…[purged]…"),
        ("the horse …", "the horse …"),
        ("correct…", "correct…"),
        ("that is correct", "that is correct"),
        ("correct horse battery stapler", "[purged]r"),
    ],
)
async def test_what_the_store_cut_short_is_known_by_eight_characters(
    path: str, before: str, after: str
) -> None:
    async with store_at(path) as store:
        await store.as_().memory.set("cut", before)
        await store.as_().memory.set("whole", "correct horse battery staple")
        assert (await store.person.purge("correct horse battery staple", "x")).clean
        block = await store.as_().memory.get("cut")
        assert isinstance(block, MemoryBlock)
        assert block.value == after


async def test_of_a_text_of_several_lines_no_summary_keeps_the_first(path: str) -> None:
    text = "dear diary, today\nI met nobody"
    async with store_at(path) as store:
        state = store.as_()
        await state.journal.append(f"found: {text}")
        await state.journal.append("a" * 100 + text)
        await state.blobs.put(text)
        assert (await store.person.purge(text, "x")).clean
        page = await state.events.history()
        summaries = [event.summary for event in page.events]
    assert summaries == [
        f"found: {MARK}",
        "a" * 100 + f"{MARK}",
        f"put, 30 characters: {MARK}",
        "a text purged from 14 places in 3 subjects, because x",
    ]
    assert held(path, "dear diary") == []
    assert contradictions(path) == []


async def test_what_led_to_a_renamed_thing_leads_to_it_under_its_new_name(path: str) -> None:
    async with store_at(path) as store:
        state = store.as_()
        await state.threads.set("Deploy hunter22", title="deploy")
        await state.threads.set("after", depends_on=["deploy HUNTER22"])
        await state.journal.append("it began", thread="deploy hunter22")
        await state.memory.set("Of Hunter22", "first")
        await state.memory.set("of hunter22", "second")
        await state.facts.record("Is hunter22", "it is", check="make")
        await state.facts.record("rests", "so it is", because=["is hunter22"])
        purged = await store.person.purge(SECRET, "x")
        assert purged.clean
        detail = await state.threads.get(f"deploy {MARK}")
        assert (detail.thread.name, detail.thread.title) == (f"Deploy {MARK}", "deploy")
        assert [entry.text for entry in detail.journal] == ["it began"]
        assert (await state.threads.get("after")).thread.depends_on == [f"Deploy {MARK}"]
        old = await state.memory.get(f"of {MARK}", version=1)
        assert isinstance(old, MemoryBlock)
        assert (old.key, old.value) == (f"Of {MARK}", "first")
        assert (await state.memory.restore(f"of {MARK}", 1)).version == 3
        assert (await state.facts.trace("rests")).rests_on[0].fact.name == f"Is {MARK}"
        with pytest.raises(NotFound):
            await state.threads.get("deploy hunter22")
        found = await state.search.find("deploy")
        assert [hit.name for hit in found.hits] == [f"Deploy {MARK}"]
    assert contradictions(path) == []


async def test_names_that_differ_in_the_text_alone_stay_apart(path: str) -> None:
    """Also those that an earlier purge named."""
    async with store_at(path) as store:
        state = store.as_()
        await state.threads.set("of hunter22", criteria=["with hunter22", "with HUNTER22"])
        await state.threads.set("of swordfish")
        assert (await store.person.purge(SECRET, "x")).mark == MARK
        assert (await store.person.purge("swordfish", "x")).mark == "[purged 3]"
        names = [thread.name for thread in (await state.threads.list()).threads]
        assert names == [f"of {MARK}", "of [purged 3]"]
        detail = await state.threads.get(f"of {MARK}")
        assert [one.text for one in detail.criteria] == [f"with {MARK}", "with [purged 2]"]
    assert contradictions(path) == []


async def test_agents_that_differ_in_its_case_alone_stay_two(path: str) -> None:
    async with store_at(path) as store:
        for number, agent in enumerate(("anna meier", "Anna Meier")):
            state = store.as_(agent, "s")
            await state.journal.append("went on")
            await state.threads.set(f"thread {number}")
            await state.threads.claim(f"thread {number}", lease="1h")
            await state.facts.record(f"fact {number}", "so it is", check="make")
            await state.facts.verify(f"fact {number}", True, "it was")
        assert (await store.person.purge("anna meier", "x")).clean
        page = await store.as_().journal.tail()
        agents = [entry.actor.agent for entry in page.entries]
        assert agents == [MARK, "[purged 2]"]
        only = await store.as_().journal.tail(actor="[purged 2]")
        assert [entry.seq for entry in only.entries] == [page.entries[1].seq]
    assert contradictions(path) == []


async def test_names_that_differ_in_white_space_and_escapes_alone_stay_apart(
    path: str,
) -> None:
    async with store_at(path) as store:
        state = store.as_()
        for number, name in enumerate(('of "anna" m', 'of "Anna"   m', 'of \\"anna\\" m')):
            await state.memory.set(name, f"{number}")
            await state.threads.set(name, depends_on=[])
            await state.threads.set(f"after {number}", depends_on=[name])
        assert (await store.person.purge('"anna" m', "x")).clean
        blocks = {block.key: block.value for block in (await state.memory.blocks()).blocks}
        assert blocks == {
            f"of {MARK}": "0",
            "of [purged 2]": "1",
            "of [purged 3]": "2",
        }
        for name, number in blocks.items():
            assert (await state.threads.get(f"after {number}")).thread.depends_on == [name]
    assert contradictions(path) == []


@pytest.mark.parametrize("text", ["2026", "1000", "file:", "00Z", "b-1", "0000", "s-1", "j-00"])
async def test_what_the_store_itself_wrote_is_left_alone(path: str, full: Path, text: str) -> None:
    """Times, numbers of events, keys, digests: a short text may be part of them by chance."""
    text = text.ljust(4, "0")
    async with store_at(path, full) as store:
        for plant in PLANTS:
            await plant(store.as_(), text)
        purged = await store.person.purge(text, "x", every_project=True)
        assert MARK in purged.mark
        assert (await store.person.purge(text, dry_run=True, every_project=True)).places == []
    assert contradictions(path) == []


@pytest.mark.sqlite
async def test_what_only_stands_side_by_side_is_no_place_of_it(path: str) -> None:
    async with store_at(path) as store:
        state = store.as_()
        await state.runs.begin("Release", run="prod")
        await state.memory.set("db-password", "unknown", run="prod")
        await state.threads.set("deploy", title="deploy", next_action="tomorrow")
        assert (await store.person.purge("deploy tomorrow", "x")).places == []
        purged = await store.person.purge("prod/db-password", "x")
        assert (purged.clean, purged.places, purged.event) == (False, [], 0)
        assert purged.notes == [
            f"The bytes of {path} hold it though no text does: as part of a time, a number or a "
            "digest, or where names stand side by side. That does not come from the text."
        ]


async def test_a_name_that_has_no_room_for_the_mark_gets_a_shorter_one(path: str) -> None:
    name = "x" * 124 + "anna"
    async with store_at(path) as store:
        await store.as_().threads.set(name)
        purged = await store.person.purge("anna", "x")
        assert purged.mark == "[1]"
        assert (await store.as_().threads.get("x" * 124 + "[1]")).thread.version == 1


async def test_a_blob_gets_the_key_of_what_is_left_wherever_its_own_stood(path: str) -> None:
    async with store_at(path) as store:
        state = store.as_()
        blob = await state.blobs.put(f"a log\n{SECRET}\n", summary="log")
        twin = await state.blobs.put(f"a log\n{SECRET.upper()}\n", summary="twin")
        await state.journal.append(f"kept in {blob.key}, see {twin.key[:12]}")
        assert (await store.person.purge(SECRET, "x")).clean
        data = f"a log\n{MARK}\n".encode()
        key = f"b-{hashlib.sha256(data).hexdigest()[:32]}"
        assert (await state.blobs.whole(key)).text == data.decode()
        other = "b-" + hashlib.sha256(b"a log\n[purged 2]\n").hexdigest()[:10]
        assert (await state.blobs.whole(other)).text == "a log\n[purged 2]\n"
        (entry,) = (await state.journal.tail()).entries
        assert entry.text == f"kept in {key}, see {other}"
        assert [event.name for event in (await state.events.history(f"blob:{key}")).events] == [key]
    assert contradictions(path) == []


async def test_a_transcript_keeps_every_other_byte(path: str) -> None:
    given = (
        '{ "role": "user",  "n": 1.50, "a": "Gr\\u00f6\\u00dfe \\/ \\ud800", "a": 2 }',
        '{ "pin": 12345678,  "\\u0068unter22": ["x hunter22", "\\u0068unter22 \\ud800"] }',
        '{"role": "tool", "arguments": "{\\"pin\\": 12345678}"}',
    )
    async with store_at(path) as store:
        state = store.as_()
        await state.runs.begin("Talk", run="talk")
        await state.transcripts.append("talk", *given)
        assert (await store.person.purge(SECRET, "x")).clean
        assert (await store.person.purge("12345678", "x")).clean
        texts = await state.transcripts.texts("talk")
        json_itself = '"role": "user",  "n"'
        assert (await store.person.purge(json_itself, "x")).clean
        whole = await state.transcripts.texts("talk")
    assert texts == [
        given[0],
        '{ "pin": "[purged]",  "[purged]": ["x [purged]", "[purged] \\ud800"] }',
        '{"role": "tool", "arguments": "{\\"pin\\": [purged]}"}',
    ]
    assert whole == ['{"role": "user", "content": "[purged]"}', *texts[1:]]
    assert contradictions(path) == []


async def test_a_repeated_call_does_not_bring_it_back(path: str) -> None:
    async with store_at(path) as store:
        state = store.as_()
        await state.journal.append(f"it is {SECRET}", idempotency_key="once")
        await state.memory.append("plan", f"it is {SECRET}", idempotency_key="once")
        await state.journal.append("something else", idempotency_key="other")
        assert (await store.person.purge(SECRET, "x")).clean
        with pytest.raises(Conflict, match="idempotency key 'once'"):
            await state.journal.append(f"it is {SECRET}", idempotency_key="once")
        with pytest.raises(Conflict, match="idempotency key 'once'"):
            await state.memory.append("plan", f"it is {SECRET}", idempotency_key="once")
        assert (await state.journal.append("something else", idempotency_key="other")).repeated
    assert held(path) == []


async def test_a_loop_that_failed_with_it_is_still_known_as_one(path: str) -> None:
    async with store_at(path) as store:
        state = store.as_()
        await state.runs.begin("Try", run="try")
        for _ in range(3):
            await state.steps.begin("try", "log in", input="x")
            await state.steps.end("try", "log in", False, f"denied for {SECRET}")
        assert (await store.person.purge(SECRET, "x")).clean
        await state.steps.begin("try", "log in", input="x")
        ended = await state.steps.end("try", "log in", False, f"denied for {MARK}")
        assert ended.step.streak == 4
        with pytest.raises(NoProgress):
            await state.steps.begin("try", "log in", input="x")


async def test_another_project_keeps_it_and_nothing_more_is_said_of_it(path: str) -> None:
    async with store_at(path) as store:
        for project in ("acme", "beta"):
            state = store.as_("anna hunter22", "s", project)
            await state.memory.set("plan", f"of {project}: {SECRET}")
            await state.threads.set("work")
            await state.threads.claim("work", lease="1h")
            await state.facts.record("fact", "so it is", check="make")
            await state.facts.verify("fact", True, "it was")
        beta = store.as_(project="beta")
        before = await beta.events.history()

        purged = await store.person.purge(SECRET, "x")

        assert (purged.clean, purged.elsewhere) == (False, True)
        assert {place.project for place in purged.places} == {"acme"}
        assert purged.notes[0] == (
            "Another project of this store holds it too: purge it there, or in every project at "
            "once (--every-project)."
        )
        assert "beta" not in repr(purged)
        assert await beta.events.history() == before
        ours = [event.actor.agent for event in (await store.as_().events.history()).events]
        assert ours == [f"anna {MARK}"] * 5 + ["person"]
        assert contradictions(path) == []

        everywhere = await store.person.purge(SECRET, "x", every_project=True)

        assert everywhere.clean
        assert {place.project for place in everywhere.places} == {"beta"}
        summary = (await beta.events.history()).events[-1].summary
        assert summary == "a text purged from 7 places in 4 subjects, because x"
    assert held(path) == []
    assert contradictions(path) == []


async def test_a_project_and_a_directory_that_are_named_so_are_not_any_more(path: str) -> None:
    async with store_at(path) as store:
        state = store.as_(project="of-hunter22")
        state.caller.anchor = "/home/hunter22/work"
        await state.memory.set("plan", "x")
        purged = await state.purge(SECRET, "x")
        assert purged.clean
        assert purged.notes == [
            "It was part of an agent, a session, a directory or the name of a project, which "
            "come from outside: the next call from there writes it again. Rename that, then purge "
            "again.",
            *([PostgresDatabase.beyond] if is_address(path) else []),
        ]
        assert state.totals.project == f"of-{MARK}"
        (project,) = await state.projects.list()
        assert (project.name, project.directories) == (f"of-{MARK}", [f"/home/{MARK}/work"])
    assert held(path) == []


async def test_looking_first_changes_nothing_and_never_shows_it(path: str, full: Path) -> None:
    async with store_at(path, full) as store:
        for plant in PLANTS:
            await plant(store.as_(), SECRET)
        before = contents(path)
        seen = await store.person.purge(SECRET, dry_run=True)
        assert contents(path) == before
        assert (seen.dry_run, seen.event, seen.clean) == (True, 0, False)
        assert SECRET not in repr(seen)
        done = await store.person.purge(SECRET, "x")
        assert done.places == seen.places
        assert SECRET not in repr(done)


async def test_the_event_tells_who_when_why_and_how_many(path: str) -> None:
    async with store_at(path) as store:
        await store.as_().memory.set("plan", SECRET)
        done = await store.person.purge(SECRET, "it was\npasted")
        event = (await store.as_().events.history("project:")).events[-1]
    assert done.event == event.seq == 2
    assert (event.actor.agent, event.operation) == ("person", "purge")
    assert event.summary == "a text purged from 3 places in 1 subject, because it was pasted"
    assert event.row == {
        "name": "acme",
        "mark": MARK,
        "reason": "it was\npasted",
        "places": 3,
        "subjects": ["memory:plan"],
        "more": 0,
    }


@pytest.mark.parametrize(
    ("text", "reason", "fact"),
    [
        ("abc ", "x", "the text to purge has 3 characters; fewer than 4 stand in too much else"),
        ("a" * 65_537, "x", "the text to purge has 65,537 characters; 65,536 can be looked for"),
        ("URGED", "x", "the text to purge is part of '[purged]', which takes its place"),
        (
            "Objective",
            "x",
            "the text to purge is a word that the store itself is made of, such as the name of a "
            "column",
        ),
        (SECRET, " ", "there is no reason"),
        (SECRET, "since HUNTER22 was there", "the reason holds the text to purge"),
    ],
)
async def test_what_can_not_be_purged_is_refused_without_a_change(
    path: str, text: str, reason: str, fact: str
) -> None:
    async with store_at(path) as store:
        await store.as_().memory.set("plan", SECRET)
        before = contents(path)
        with pytest.raises(BadArgument) as refused:
            await store.person.purge(text, reason)
        assert refused.value.fact == fact
        assert contents(path) == before


async def test_there_has_to_be_a_store_and_a_project(path: str) -> None:
    async with store_at(postgres.new_store() if is_address(path) else path) as store:
        with pytest.raises(NotFound, match="no store at"):
            await store.person.purge(SECRET, "x")
        with pytest.raises(NotFound, match="no store at"):
            await store.person.purge(SECRET, "x")
        await store.as_().memory.set("plan", SECRET)
        with pytest.raises(NotFound, match="no project 'nope'; there is 'acme'"):
            await store.as_(project="nope").purge(SECRET, "x")
        assert [project.name for project in await store.as_().projects.list()] == ["acme"]


async def test_a_purged_project_can_be_carried_elsewhere_and_back(
    stores: Stores, tmp_path: Path, full: Path
) -> None:
    async with store_at(stores / "one/state.db", full) as one:
        for plant in PLANTS:
            await plant(one.as_(), SECRET)
        assert (await one.person.purge(SECRET, "x")).clean
        file = tmp_path / "acme.jsonl"
        await one.as_().transfer.export(file)
        again = await one.as_().transfer.import_file(file)
        assert (again.event, again.kept_apart) == (0, {})
    async with store_at(stores / "two/state.db") as two:
        imported = await two.as_().transfer.import_file(file)
        assert imported.kept_apart == {}
    assert contradictions(stores / "two/state.db") == []
    assert held(stores / "two/state.db") == []


def test_agents_have_no_tool_for_it() -> None:
    assert [spec.name for spec in ALL_TOOLS if "purge" in spec.name] == []


GIVEN = """
actors agent client session worktree
attempts run step input result
blobs key sha256 summary text
checkpoints run state next_action git
criteria thread text evidence
directories anchor
documents name shown text short
events run name summary row
facts name shown statement check source evidence baseline
handoffs recipient note
idempotency key
journal kind thread text run
journal_topics topic
last_events agent session worktree
memory run name shown value locked
messages run message
needs thread needed
objectives name shown objective intent reason
premises fact premise
project_names name shown
projects shown
relies thread fact
runs name shown goal expected_outcome thread result evidence reflection
session_runs session run
steps run name shown input result outcome
store
threads name shown title next_action waiting_on check evidence note places
tokens agent
"""


async def test_every_column_is_either_gone_through_or_known_to_be_ours(path: str) -> None:
    """A new one has to be thought of: is it JSON, a name that something leads to, a digest?"""
    async with store_at(path) as store:
        await store.as_().memory.set("plan", "x")

        def listed(tx: Reading) -> str:
            walk = Search(tx, Value(SECRET), True, lambda: None)
            return "\n".join(
                " ".join([table, *walk.columns(table)]) for table in sorted(walk.tables())
            )

        found = await store.database.read(store.as_().caller, listed)
    assert found == GIVEN.strip()
