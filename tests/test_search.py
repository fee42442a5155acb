"""Search: parts of words in any script, plain words only, ranked, isolated, bounded."""

from __future__ import annotations

import asyncio
import itertools
import unicodedata

import pytest
from conftest import Call, FakeClock, Open
from hypothesis import given, settings
from hypothesis import strategies as st
from peeking import plain
from soaking import examples

from mcp_state.api import State
from mcp_state.errors import BadArgument
from mcp_state.models import Actor, Caller
from mcp_state.store.database import open_database


async def found(state: State, query: str) -> list[str]:
    page = await state.search.find(query, limit=50)
    return [] if page.loose else [hit.name for hit in page.hits]


def scope(event: int, threads: int = 0) -> str:
    noun = "thread" if threads == 1 else "threads"
    return f"[acme (from --project) · {threads} {noun} · event {event}]"


async def test_a_hit_shows_what_leads_to_it_who_wrote_it_and_its_surroundings(
    call: Call, state: State, clock: FakeClock
) -> None:
    await state.memory.set("Plan", "migrate the\nimporter " + "and then rest " * 30)
    await state.threads.set("fix-import", title="Fix it", next_action="rerun")
    await state.journal.append("the import failed")
    clock.move(hours=2)

    assert await call("search", query="import") == (
        "3 of 3 matches\n"
        "thread:fix-import  codex 2 h ago\n"
        "    fix-import Fix it rerun\n"
        "journal:3  codex 2 h ago\n"
        "    the import failed\n"
        "memory:Plan  codex 2 h ago\n"
        "    Plan migrate the importer and then rest and then rest and then rest and then rest and "
        "then rest and then rest and then rest and then rest and then rest and then…\n"
        f"{scope(3, 1)}"
    )


async def test_no_match_says_so(call: Call, state: State) -> None:
    await state.memory.set("plan", "x")
    assert await call("search", query='zebra "crossing"') == (
        f'No match for "zebra \\"crossing\\"". Try fewer or other words.\n{scope(1)}'
    )


# What is found


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("the reindexing of it", "index"),
        ("src/app/main.py:42", "main.py:42"),
        ("src/app/main.py:42", "app/ma"),
        ("commit 3fe9c1d", "fe9c"),
        ("run the ci again", "ci"),
        ("ci-build", "CI"),
        ("ci_build", "ci"),
        ("release v2.1", "v2"),
        ("部署v2版本", "v2"),
        ("x", "x"),
        ("C# code", "c#"),
        ("数据库迁移失败", "库"),
        ("数据库迁移失败", "迁移"),
        ("数据库迁移失败", "迁移失"),
        ("人々が来た", "人々"),
        ("ﾃｽﾄが失敗", "ﾃｽ"),
        ("検索エンジン", "エン"),
        ("검색엔진", "색엔"),
        ("การค้นหาข้อความ", "หา"),
        ("การค้นหาข้อความ", "ค้"),
        ("การค้นหาข้อความ", "ข้อความ"),
        ("𠮷野家", "𠮷"),
        ("𠮷野家", "𠮷野"),
        ("café au lait", "cafe\u0301"),
        ("cafe\u0301 au lait", "café"),
        ("Ünïcödé", "üNÏCÖDÉ"),
        ("Straße", "straße"),
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("İstanbul", "İstanbul"),
        ("ﬁne ligature", "ﬁne"),
        ("ПРИВЕТ", "привет"),
        ("שלום עולם", "עול"),
        ("👩‍👩‍👧‍👦 family", "👩‍👩‍👧‍👦"),
        ("tab\tand\nline", "tab line"),
        ('say "hello" now', '"hello"'),
        ("a AND b OR c NOT d", "AND OR NOT"),
        ("NEAR(x y)", "NEAR("),
        ("col: value", "col:"),
        ("text : short : kind", "text : kind"),
        ("2 * 3 === 6", "==="),
        ("glob *.py here", "*.py"),
        ("foo-bar", "-bar"),
        ("x^2 + {y}", "{y}"),
        ("it's", "it's"),
        ("50% of a_b", "a_b"),
        ("back\\slash", "\\slash"),
        ("semi; DROP TABLE", "drop"),
        ("a\u2028separated line", "separated"),
    ],
)
async def test_it_finds(state: State, text: str, query: str) -> None:
    await state.memory.set("other", "nothing of the kind")
    await state.journal.append(text)
    assert await found(state, query) == ["2"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("circle", "ci"),
        ("hello world", "hello zebra"),
        ("数据库", "据数"),
        ("cafe", "café"),
        ("hello", "hel*"),
        ("a and b", "a AND c"),
        ("title", "text:title"),
    ],
)
async def test_it_does_not_find(state: State, text: str, query: str) -> None:
    await state.journal.append(text)
    assert await found(state, query) == []


NASTY = [
    '"', '""', "'", "*", "^", "AND", "OR", "NOT", "NEAR", "NEAR(", "(", ")", "((", "{", "}", ":",
    "text:", "text : x", "-", "+", "a*", '"a', "\\", "%", "_", ";", "--", "/*", "\x1f", "\x1f\x1f",
    "a\x1fb", "\0", "a\0bc", "\ud800bc", "\ufffd", "x" * 5000, "AND AND", "a NEAR/2 b", "null",
]  # fmt: skip


async def test_whatever_is_asked_is_plain_words_and_never_a_fault(call: Call, state: State) -> None:
    await state.journal.append('a "quoted" text: AND, NEAR(x) a*')
    refused: list[str] = []
    for query in NASTY:
        try:
            await state.search.find(query)
        except BadArgument as problem:
            assert "has no word to look for" in str(problem)
            refused.append(query)
        text = await call("search", error=query in refused, query=query)
        assert text.startswith("error: bad_argument: query is ") is (query in refused)
    assert all(len(query) < 3 for query in refused)


async def test_all_words_must_match_wherever_they_stand(state: State) -> None:
    await state.memory.set("plan", "alpha then beta")
    await state.memory.set("notes", "beta only")
    await state.memory.set("alpha", "and a beta")
    assert sorted(await found(state, "alpha beta")) == ["alpha", "plan"]
    assert sorted(await found(state, "  BETA   alpha alpha ")) == ["alpha", "plan"]


async def test_if_nothing_holds_all_words_what_holds_some_is_shown_and_said_so(
    call: Call, state: State
) -> None:
    await state.memory.set("a", "alpha")
    await state.memory.set("b", "alpha beta")
    assert (await call("search", query="alpha beta gamma")).splitlines()[:2] == [
        "2 of 2 matches, none with all the words",
        "memory:b  codex just now",
    ]


@pytest.mark.parametrize(
    ("query", "fact"),
    [
        ("", "query is '', which has no word to look for"),
        ("  ", "query is '  ', which has no word to look for"),
        ("++", "query is '++', which has no word to look for"),
        (" ".join(f"word{n}" for n in range(17)), "query has 17 words"),
    ],
)
async def test_a_query_without_words_or_with_too_many_is_refused(
    call: Call, query: str, fact: str
) -> None:
    text = await call("search", error=True, query=query)
    assert text.startswith(f"error: bad_argument: {fact}. ")


async def test_kinds_narrow_the_search(call: Call, state: State) -> None:
    await state.memory.set("m", "word")
    await state.threads.set("t", title="word")
    await state.journal.append("word")

    async def names(*kinds: str) -> list[str]:
        return [hit.name for hit in (await state.search.find("word", kinds=kinds)).hits]

    assert sorted(await names()) == ["3", "m", "t"]
    assert await names("Memory") == ["m"]
    assert sorted(await names("threads", "journal ")) == ["3", "t"]
    assert "1 of 1" in await call("search", query="word", kinds='["thread"]')
    assert await call("search", error=True, query="word", kinds=["rumours"]) == (
        "error: bad_argument: kind 'rumours' is unknown. "
        "Kinds are memory, thread, journal, run, blob, fact.\n"
        f"{scope(3, 1)}"
    )


async def test_pages_visit_each_hit_once(call: Call, state: State) -> None:
    for n in range(25):
        await state.journal.append(f"word {n}")
    seen: list[str] = []
    cursor = ""
    for size in (10, 10, 5):
        page = await state.search.find("word", limit=10, cursor=cursor)
        assert (len(page.hits), page.matches, page.capped) == (size, 25, False)
        seen += [hit.name for hit in page.hits]
        cursor = page.cursor
    assert cursor == ""
    assert len(set(seen)) == 25
    head = (await call("search", query="word")).splitlines()[0]
    assert head == '10 of 25 matches; more: cursor="10"'
    assert (await state.search.find("word", cursor="999")).hits == []
    for wrong in ("-1", "x", "1" * 9, "\u0661"):
        with pytest.raises(BadArgument, match="is none that search gave"):
            await state.search.find("word", cursor=wrong)


# Ranking


async def test_a_word_in_a_name_or_title_beats_one_in_a_text(state: State) -> None:
    await state.threads.set("a", title="Importer")
    await state.memory.set("importer", "x")
    await state.threads.set("b", next_action="see importer")
    await state.journal.append("importer")
    assert (await found(state, "importer"))[:2] in (["importer", "a"], ["a", "importer"])


async def test_a_newer_match_beats_an_older_equal_one(state: State) -> None:
    for n in range(5):
        await state.journal.append(f"word {n}")
    assert await found(state, "word") == ["5", "4", "3", "2", "1"]


async def test_what_is_used_more_beats_what_is_used_less(state: State) -> None:
    await state.threads.set("busy", title="word")
    await state.threads.set("idle", title="word")
    for _ in range(15):
        await state.journal.append("x", thread="busy")
    assert await found(state, "word") == ["busy", "idle"]


async def test_a_whole_word_beats_a_part_and_both_words_beat_one_twice(state: State) -> None:
    await state.journal.append("port")
    await state.journal.append("airports and ports")
    assert await found(state, "port") == ["1", "2"]


async def test_reading_and_searching_leave_no_trace(state: State) -> None:
    await state.memory.set("plan", "word")
    await state.threads.set("t", title="word")
    before = await state.search.find("word")
    for _ in range(5):
        await state.memory.get("plan")
        await state.search.find("plan")
    assert await state.search.find("word") == before
    assert state.totals.event == 2


# What is no longer there


async def test_a_deleted_block_is_not_found_and_a_restored_one_is(state: State) -> None:
    await state.memory.set("plan", "zebra")
    await state.memory.delete("plan")
    assert await found(state, "zebra") == []
    assert await found(state, "plan") == []
    await state.memory.restore("plan", 1)
    assert await found(state, "zebra") == ["plan"]


async def test_a_changed_text_is_found_under_its_new_words_only(state: State) -> None:
    await state.memory.set("plan", "zebra ci 数据")
    await state.memory.set("plan", "giraffe v2 迁移")
    await state.threads.set("t", title="zebra", criteria=["lion"])
    await state.threads.set("t", title="giraffe")
    for old in ("zebra", "ci", "数据"):
        assert await found(state, old) == []
    assert sorted(await found(state, "giraffe")) == ["plan", "t"]
    assert await found(state, "v2 迁") == ["plan"]
    assert await found(state, "lion") == ["t"]


async def test_a_refused_write_leaves_the_index_as_it_was(state: State) -> None:
    await state.memory.set("plan", "zebra")
    with pytest.raises(Exception, match="over_limit"):
        await state.memory.append("plan", " giraffe" * 600)
    assert await found(state, "giraffe") == []
    assert await found(state, "zebra") == ["plan"]


async def test_an_expired_block_is_not_found(state: State, clock: FakeClock) -> None:
    await state.memory.set("plan", "zebra", ttl="1h")
    await state.journal.append("zebra")
    assert sorted(await found(state, "zebra")) == ["2", "plan"]
    clock.move(hours=1)
    assert await found(state, "zebra") == ["2"]


async def test_nothing_of_one_project_is_found_in_another(open_state: Open) -> None:
    acme, other = open_state(), open_state(project="other")
    await acme.memory.set("plan", "zebra ci")
    await other.memory.set("plan", "lion")
    for word in ("zebra", "ci", "plan"):
        assert len((await acme.search.find(word)).hits) == 1
    assert await found(other, "zebra") == []
    assert await found(other, "ci") == []
    assert await found(open_state(project="new"), "zebra") == []


async def test_more_than_2000_matches_are_said_to_be_capped_and_the_newest_ranked(
    call: Call, state: State, path: str
) -> None:
    await state.journal.append("common word")
    with plain(path) as store:
        store.execute("""
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
            INSERT INTO documents (id, project, kind, name, shown, seq, uses, text, short)
            SELECT id + i, project, kind, 'x' || i, 'x' || i, seq, uses, text, short
            FROM documents, n
        """)
    page = await state.search.find("common")
    assert (page.matches, page.capped, len(page.hits)) == (2000, True, 10)
    assert (await call("search", query="word")).splitlines()[0] == (
        '10 of 2,000 matches among the newest; there are more, older ones; more: cursor="10"'
    )
    await state.memory.set("new", "common")
    assert (await state.search.find("common", kinds=["memory"])).capped is False


words = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=3, max_size=12
).filter(lambda word: len(unicodedata.normalize("NFC", word)) >= 3)


def test_any_word_of_any_stored_text_finds_it(path: str) -> None:
    with asyncio.Runner() as runner:
        database = open_database(path)
        projects = itertools.count()

        @settings(max_examples=examples(60))
        @given(st.lists(words, min_size=1, max_size=8), st.data())
        def check(stored: list[str], data: st.DataObject) -> None:
            word = data.draw(st.sampled_from(stored))
            query = data.draw(
                st.sampled_from(
                    [word, unicodedata.normalize("NFC", word), unicodedata.normalize("NFD", word)]
                )
            )
            state = State(database, Caller(f"p{next(projects)}", "argument", Actor("codex")))
            runner.run(state.memory.set("block", " ".join(stored)))
            assert runner.run(found(state, query)) == ["block"]

        try:
            check()
        finally:
            runner.run(database.aclose())
