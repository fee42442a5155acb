"""Blobs: one per text, what is text, lifetimes, pages that add up, and the commands for people."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result
from conftest import Call, Connect, FakeClock, Open, text_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peeking import Refused, plain, rows
from whole_stores import contradictions

from mcp_state.api import State
from mcp_state.cli import main
from mcp_state.errors import BadArgument, Expired, NotFound, OverLimit, SecretRefused
from mcp_state.models import Actor, Blob, Caller, Limits
from mcp_state.store.database import open_database

EMPTY = "[acme (from --project) · nothing stored yet]"
LONGEST = 10 << 20


def scope(event: int) -> str:
    return f"[acme (from --project) · 0 threads · event {event}]"


def key_of(text: str) -> str:
    return f"b-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def sharing_a_beginning() -> tuple[str, str]:
    """Two texts whose keys begin with the same eight digits."""
    return "text 859", "text 4460"


async def events_of(state: State, key: str) -> list[tuple[str, int | None, str]]:
    page = await state.events.history(f"blob:{key}", limit=200)
    return [(event.operation, event.version, event.summary) for event in page.events]


async def found(state: State, query: str) -> list[str]:
    return [hit.name for hit in (await state.search.find(query, kinds=["blob"])).hits]


# One blob per text


async def test_a_text_is_put_and_read_back_under_a_key_made_of_its_content(call: Call) -> None:
    text = "build log\nline 2\n"
    key = key_of(text)

    assert await call("blob_put", text=text, summary="CI of\nmain") == (
        f"saved: {key} · version 1 · 17 characters, 17 bytes · mcp just now\n"
        "    CI of main\n"
        f'blob_get(key="{key}") reads it\n'
        f"{scope(1)}"
    )
    assert await call("blob_get", key=key) == (
        f"{key} · characters 0 to 17 of 17 · the end · mcp just now\n{text}\n{scope(1)}"
    )


async def test_what_is_stored_is_the_text_its_sizes_and_its_hash_and_the_event_has_no_text(
    state: State, path: str, clock: FakeClock
) -> None:
    text = "größe 東京 😀\n" * 3
    blob = await state.blobs.put(text, summary="three lines", ttl="3d")

    digest = hashlib.sha256(text.encode()).hexdigest()
    kept = {
        "key": f"b-{digest[:32]}",
        "version": 1,
        "sha256": digest,
        "bytes": len(text.encode()),
        "characters": len(text),
        "summary": "three lines",
        "expires_at": "2026-12-02T09:00:00.000000Z",
    }
    (event,) = (await state.events.history(f"blob:{blob.key}")).events
    assert (event.operation, event.version, event.row) == ("put", 1, kept)
    assert event.summary == "put, 33 characters: three lines"
    assert blob == Blob(
        key=f"b-{digest[:32]}",
        sha256=digest,
        bytes=len(text.encode()),
        characters=len(text),
        summary="three lines",
        version=1,
        created_at=clock.time,
        changed_at=clock.time,
        changed_by=Actor("codex", "codex 1.0", "s1"),
        expires_at=clock.time + timedelta(days=3),
    )
    assert rows(path, "SELECT text FROM blobs") == [(text,)]
    assert rows(path, "SELECT count(*) FROM events WHERE row LIKE '%größe%'") == [(0,)]


async def test_the_same_text_twice_is_one_blob_and_writes_nothing(call: Call, state: State) -> None:
    first = await call("blob_put", text="the same", summary="one")
    again = await call("blob_put", text="the same")

    assert first.startswith("saved: ")
    assert again == (
        f"already kept: {key_of('the same')} · version 1 · 8 characters, 8 bytes · mcp just now"
        f' · for good\n    one\nblob_get(key="{key_of("the same")}") reads it\n{scope(1)}'
    )
    assert (await state.blobs.put("the same", summary="one")).repeated
    assert (await state.blobs.put("the same", ttl="1h")).expires_at is None
    assert len(await events_of(state, key_of("the same"))) == 1


async def test_another_summary_replaces_the_one_there_is_as_a_new_version(
    state: State, open_state: Open, clock: FakeClock
) -> None:
    first = await state.blobs.put("text", summary="walrus")
    clock.move(minutes=5)
    other = open_state(agent="claude", session="s2")
    blob = await other.blobs.put("text", summary="narwhal")

    assert (blob.summary, blob.version, blob.repeated) == ("narwhal", 2, True)
    assert (blob.created_at, blob.changed_at) == (first.changed_at, clock.time)
    assert blob.changed_by.agent == "claude"
    assert await events_of(state, blob.key) == [
        ("put", 1, "put, 4 characters: walrus"),
        ("describe", 2, "described as narwhal"),
    ]
    assert (await found(state, "narwhal"), await found(state, "walrus")) == ([blob.key], [])


async def test_without_a_summary_the_first_line_with_something_in_it_is_one(state: State) -> None:
    async def summary(text: str) -> str:
        return (await state.blobs.put(text)).summary

    assert await summary("\n \r\n\t  first   line \nsecond") == "first line"
    assert await summary("\x1b[1m\x1b[32m\nPASS\x1b[0m 3 tests\n") == "PASS 3 tests"
    assert await summary("x" * 10_000) == "x" * 119 + "…"
    assert await summary("\u2028wide\u2028lines") == "wide"
    assert await summary(" \n ") == ""


async def test_a_blob_is_found_by_its_summary_and_not_by_its_text(state: State) -> None:
    blob = await state.blobs.put("needle in the text", summary="thread in the summary")

    assert await found(state, "thread summary") == [blob.key]
    assert await found(state, blob.key[:12]) == [blob.key]
    assert await found(state, "needle") == []


async def test_a_summary_has_at_most_as_many_characters_as_other_texts(state: State) -> None:
    with pytest.raises(OverLimit, match=r"the summary would be 2,001 characters; .* is 2,000"):
        await state.blobs.put("text", summary="x" * 2001)
    with pytest.raises(NotFound):
        await state.blobs.get(key_of("text"))
    assert (await state.blobs.put("text", summary="x" * 2000)).summary == "x" * 2000


# Lifetimes


async def test_a_longer_life_extends_and_a_shorter_one_does_not_shorten(
    state: State, clock: FakeClock
) -> None:
    key = (await state.blobs.put("text", ttl="2h")).key
    clock.move(minutes=30)

    assert (await state.blobs.put("text", ttl="20m")).version == 1
    longer = await state.blobs.put("text", ttl="3h")
    assert (longer.expires_at, longer.version) == (clock.time + timedelta(hours=3), 2)
    assert longer.repeated
    good = await state.blobs.put("text")
    assert (good.expires_at, good.version) == (None, 3)
    assert await state.blobs.put("text", ttl="9d") == good
    assert await events_of(state, key) == [
        ("put", 1, "put, 4 characters: text"),
        ("extend", 2, "kept until 2026-11-29 12:30 UTC"),
        ("extend", 3, "kept for good"),
    ]


async def test_life_and_summary_change_in_one_event(state: State) -> None:
    key = (await state.blobs.put("text", ttl="2h", summary="one")).key
    blob = await state.blobs.put("text", ttl="4h", summary="two")

    assert (blob.version, blob.summary) == (2, "two")
    assert (await events_of(state, key))[1:] == [
        ("describe", 2, "kept until 2026-11-29 13:00 UTC, described as two")
    ]


async def test_an_expired_blob_says_when_and_the_same_put_brings_it_back(
    call: Call, state: State, clock: FakeClock
) -> None:
    text = "only for hours"
    key = key_of(text)
    saved = await call("blob_put", text=text, summary="a log", ttl="3h")
    assert saved.startswith(
        f"saved: {key} · version 1 · 14 characters, 14 bytes · mcp just now · expires in 3 h\n"
    )
    clock.move(hours=2, minutes=59, seconds=59.999999)
    assert (await call("blob_get", key=key)).startswith(f"{key} · characters 0 to 14 of 14 · ")
    assert await found(state, "log") == [key]

    clock.move(seconds=0.000001)
    clock.move(minutes=10)
    assert await call("blob_get", error=True, key=key) == (
        f"error: expired: blob {key} (a log) expired 10 min ago, at 2026-11-29 12:00 UTC. "
        f"The same text given to blob_put brings it back.\n{scope(1)}"
    )
    assert await found(state, "log") == []
    with pytest.raises(Expired):
        await state.blobs.whole(key)

    blob = await state.blobs.put(text, ttl="20m")
    assert (blob.version, blob.repeated, blob.summary) == (2, False, "a log")
    assert blob.expires_at == clock.time + timedelta(minutes=20)
    assert (await state.blobs.get(key)).text == text
    assert await found(state, "log") == [key]
    assert (await events_of(state, key))[-1] == (
        "put",
        2,
        "put again after it expired, 14 characters, kept until 2026-11-29 12:30 UTC",
    )


@pytest.mark.parametrize("ttl", ["5", "1h30m", "0s", "soon"])
async def test_a_ttl_that_is_no_duration_is_refused(call: Call, ttl: str) -> None:
    assert await call("blob_put", error=True, text="text", ttl=ttl) == (
        f"error: bad_argument: ttl is '{ttl}', which is not a duration from 1s to 36500d. "
        f"Write 90s, 20m, 4h or 3d.\n{EMPTY}"
    )


# What can be kept


async def test_the_limit_counts_bytes_in_utf_8(path: str, clock: FakeClock) -> None:
    database = open_database(path, clock=clock, limits=Limits(blob=12))
    state = State(database, Caller("acme", "argument", Actor("codex")))

    assert (await state.blobs.put("é" * 6)).bytes == 12
    with pytest.raises(OverLimit) as refused:
        await state.blobs.put("é" * 6 + "x")
    assert str(refused.value) == (
        "over_limit: the text would be 13 bytes; the limit is 12. "
        "Keep it in parts, or leave it in a file and note its path; nothing was saved."
    )
    await database.aclose()


async def test_ten_mebibytes_are_kept_and_one_byte_more_is_not(state: State) -> None:
    text = "0123456789abcde\n" * (LONGEST // 16)

    blob = await state.blobs.put(text)

    assert blob.bytes == LONGEST
    assert (await state.blobs.whole(blob.key)).text == text
    with pytest.raises(OverLimit, match="would be 10,485,761 bytes; the limit is 10,485,760"):
        await state.blobs.put(text + "x")


async def test_an_empty_text_is_refused(call: Call) -> None:
    assert await call("blob_put", error=True, text="") == (
        f"error: bad_argument: text is empty. Give the text to keep.\n{EMPTY}"
    )


@pytest.mark.parametrize("given", [b"bytes", bytearray(b"x"), memoryview(b"x")])
async def test_bytes_are_refused(state: State, given: Any) -> None:
    with pytest.raises(BadArgument) as refused:
        await state.blobs.put(given)
    assert str(refused.value) == (
        "bad_argument: text is bytes, and bytes are not text. "
        "Leave the file where it is, and note its path and sha256 instead; nothing was saved."
    )
    with pytest.raises(BadArgument, match="text is of type int"):
        await state.blobs.put(cast(Any, 5))


def a_png(rng: random.Random) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + check

    side = 400
    header = side.to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    pixels = b"".join(b"\0" + rng.randbytes(3 * side) for _ in range(side))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(pixels))
        + chunk(b"IEND", b"")
    )


def a_zip(method: int) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        archive.writestr("notes.txt", "nothing but plain text in here\n" * 20_000)
    return data.getvalue()


BINARIES: dict[str, bytes] = {
    "PNG": a_png(random.Random(1)),
    "ELF": Path(sys.executable).resolve().read_bytes()[: 3 << 20],
    "zip of text as it is": a_zip(zipfile.ZIP_STORED),
    "zip": a_zip(zipfile.ZIP_DEFLATED),
    "gzip": b"\x1f\x8b\x08\0" + b"\0" * 4 + zlib.compress(random.Random(2).randbytes(9000)),
    "UTF-16": "plain text".encode("utf-16") * 50,
}


@pytest.mark.parametrize("data", BINARIES.values(), ids=list(BINARIES))
@pytest.mark.parametrize("size", [64, 65, 100, 1000, LONGEST])
async def test_bytes_read_as_text_are_refused(state: State, data: bytes, size: int) -> None:
    part = data[:size]
    for text in (part.decode("latin-1"), part.decode("utf-8", "replace")):
        with pytest.raises(BadArgument, match="this is not text but bytes read as text: ") as told:
            await state.blobs.put(text)
        assert "note its path and sha256 instead; nothing was saved." in str(told.value)
    assert not (await state.events.history()).events


async def test_the_refusal_counts_what_no_text_holds_and_names_the_first(call: Call) -> None:
    text = "fine so far\n" + "\x02\ufffd\x90" * 10

    assert await call("blob_put", error=True, text=text) == (
        "error: bad_argument: this is not text but bytes read as text: 30 of its 42 characters are "
        "control characters or U+FFFD, the first at character 12. Leave the file where it is, and "
        f"note its path and sha256 instead; nothing was saved.\n{EMPTY}"
    )


TEXTS: dict[str, str] = {
    "coloured dots": "\x1b[32m.\x1b[0m" * 500,
    "titles and links": "\x1b]0;build\x07\x1b]8;;https://example.org\x07link\x1b]8;;\x07" * 50,
    "reset by SI": "\x1b[1mok\x1b[m\x0f " * 200,
    "overstruck": "".join(f"{c}\b{c}" for c in "NAME") * 50,
    "pages": "page 1\f\npage 2\f\n\v\ttable\t" * 100,
    "fields": "8=FIX.4.2\x019=178\x0135=8\x0149=PHLX\x01" * 100,
    "units": "a\x1fb\x1fc\x1ed\x1fe\x1ff\x1e" * 100,
    "a truncated character in a short line": "caf\ufffd\ufffd",
    "a handful of U+FFFD in a log": ("line of a log\n" * 500) + "\ufffd" * 40 + "\nmore",
    "French read with the wrong encoding": (
        "Le r\ufffdpertoire sp\ufffdcifi\ufffd n'a pas \ufffdt\ufffd trouv\ufffd. V\ufffdrifiez\n"
        * 99
    ),
    "base64": base64.b64encode(random.Random(3).randbytes(60_000)).decode(),
    "emoji and combining marks": "👩‍👩‍👧 e\u0301\u0323 🏳️‍🌈\n" * 90,
    "right to left": "שלום \u202eabc\u202c مرحبا\r\n" * 90,
    "a byte order mark": "\ufeffname,value\r\n",
    "private use": "\ue0b0 \uf120 prompt " * 50,
    "NEL": "line\x85" * 100,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
async def test_text_is_kept_exactly_whatever_controls_logs_use(state: State, text: str) -> None:
    blob = await state.blobs.put(text)
    assert (await state.blobs.whole(blob.key)).text == text


async def test_lone_surrogates_and_nul_become_u_fffd_before_the_key_is_made(
    call: Call, state: State
) -> None:
    kept = "a\ufffdb\ufffdc" + "x" * 60
    saved = await call("blob_put", text="a\0b\ud800c" + "x" * 60)

    assert saved.splitlines()[-2] == "note: 2 characters that cannot be stored became U+FFFD"
    assert saved.startswith(f"saved: {key_of(kept)} · version 1 · 65 characters, 69 bytes · ")
    assert (await state.blobs.put("a\udfffb\0c" + "x" * 60)).repeated
    assert (await state.blobs.get(key_of(kept))).text == kept


async def test_a_credential_in_the_text_or_the_summary_is_refused(state: State, path: str) -> None:
    token = "".join(("gh", "p_", "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zAbCdE"))
    await state.journal.append("begun")
    for text, summary, where in (
        (f"log\n{token}\n", "a log", "the text holds what looks like a GitHub token, at charact"),
        ("log", f"with {token}", "the summary holds what looks like a GitHub token, at charact"),
        (token[:20] + "\x1b[0m" + token[20:], "", "the summary holds"),
    ):
        with pytest.raises(SecretRefused, match=where):
            await state.blobs.put(text, summary=summary)

    assert rows(path, "SELECT count(*) FROM blobs") == [(0,)]
    events = (await state.events.history()).events
    assert [(e.kind, e.operation) for e in events][1:] == [("blob", "refused")] * 3
    assert not [row for (row,) in rows(path, "SELECT row FROM events") if token[:20] in row]


# Pages


async def test_a_page_tells_the_next_call_first_and_pages_follow_to_the_end(call: Call) -> None:
    text = "".join(f"{number:07}\n" for number in range(2500))
    key = key_of(text)
    await call("blob_put", text=text)

    first = await call("blob_get", key=key)
    second = await call("blob_get", key=key, offset=8000)
    last = await call("blob_get", key=key, offset=16_000)

    assert first == (
        f'{key} · characters 0 to 8000 of 20000 · next: blob_get(key="{key}", offset=8000)'
        f" · mcp just now\n{text[:8000]}\n{scope(1)}"
    )
    assert len(first) < 10_000
    assert second.startswith(f"{key} · characters 8000 to 16000 of 20000 · next: ")
    assert last == (
        f"{key} · characters 16000 to 20000 of 20000 · the end · mcp just now\n"
        f"{text[16_000:]}\n{scope(1)}"
    )
    short = await call("blob_get", key=key, offset=100, limit=50)
    assert f"offset=150, limit=50) · mcp just now\n{text[100:150]}\n" in short


async def test_a_caller_may_ask_for_a_hundred_thousand_characters(call: Call) -> None:
    text = "0123456789" * 20_000
    await call("blob_put", text=text)

    page = await call("blob_get", key=key_of(text), limit=100_000)

    assert page.split("\n")[1] == text[:100_000]


async def test_after_the_end_there_is_an_empty_page_that_says_so(call: Call, state: State) -> None:
    key = (await state.blobs.put("0123456789")).key

    for offset in (10, 11, 1 << 52):
        assert await call("blob_get", key=key, offset=offset) == (
            f"{key} · no character {offset}: it has 10, from 0 · codex just now\n{scope(1)}"
        )
    page = await state.blobs.get(key, offset=10)
    assert (page.offset, page.text, page.more) == (10, "", 0)


async def test_an_offset_or_limit_out_of_range_is_refused(call: Call, state: State) -> None:
    key = (await state.blobs.put("0123456789")).key

    assert await call("blob_get", error=True, key=key, offset=-1) == (
        f"error: bad_argument: offset is -1. It counts characters, from 0.\n{scope(1)}"
    )
    for limit in (0, -1, 100_001):
        assert await call("blob_get", error=True, key=key, limit=limit) == (
            f"error: bad_argument: limit is {limit}. "
            f"Give 1 to 100,000, and read on from there.\n{scope(1)}"
        )


HARD = st.sampled_from(["😀", "𝄞", "e\u0301\u0323", "\r\n", "\u2028", "\x85", "漢", "\t", "x", "é"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(HARD | st.text(max_size=5), min_size=1).map("".join), st.integers(1, 40))
async def test_pages_add_up_to_the_text_exactly(state: State, text: str, limit: int) -> None:
    try:
        blob = await state.blobs.put(text)
    except BadArgument:
        return  # empty, or drawn out of control characters
    parts: list[str] = []
    more = blob.characters
    while more:
        page = await state.blobs.get(blob.key, offset=sum(map(len, parts)), limit=limit)
        assert 1 <= len(page.text) <= limit
        parts.append(page.text)
        more = page.more
    stored = text.replace("\0", "\ufffd")
    assert "".join(parts) == stored == (await state.blobs.whole(blob.key)).text
    assert blob.characters == len(stored)


@pytest.mark.parametrize("letter", ["x", "é", "漢", "😀"])
async def test_a_page_at_the_end_of_ten_mebibytes_takes_less_than_50_ms(
    state: State, letter: str
) -> None:
    blob = await state.blobs.put(letter * (LONGEST // len(letter.encode())))
    times: list[float] = []

    for _ in range(5):
        start = time.process_time()
        page = await state.blobs.get(blob.key, offset=blob.characters - 8000)
        times.append(time.process_time() - start)
        assert page.text == letter * 8000

    assert min(times) < 0.05


# Keys


async def test_a_key_is_known_in_any_case_without_its_b_and_by_its_first_digits(
    state: State,
) -> None:
    key = (await state.blobs.put("text")).key
    for spelling in (key.upper(), key[2:], f" {key}\n", key[:10], key[2:10], key[2:10].upper()):
        assert (await state.blobs.get(spelling)).blob.key == key


async def test_a_beginning_that_several_keys_share_is_refused_naming_them(state: State) -> None:
    one, two = sharing_a_beginning()
    first, second = sorted([key_of(one), key_of(two)])
    await state.blobs.put(one, summary="same")
    assert (await state.blobs.get(first[:10])).text == one
    await state.blobs.put(two, summary="same")

    with pytest.raises(NotFound) as refused:
        await state.blobs.get(first[:10])
    assert str(refused.value) == (
        f"not_found: several blobs begin with '{first[:10]}': {first} (same), {second} (same). "
        "Give more of the key."
    )
    assert (await state.blobs.get(second)).blob.key == second


async def test_a_key_that_is_not_there_is_answered_with_the_newest(
    call: Call, state: State, clock: FakeClock
) -> None:
    assert await call("blob_get", error=True, key="log") == (
        "error: not_found: no blob 'log'; none is kept here. "
        f"blob_put keeps a text and tells its key.\n{EMPTY}"
    )
    keys = [(await state.blobs.put(f"text {n}", summary=f"log {n}")).key for n in range(4)]
    await state.blobs.put("text 0", summary="log zero")
    await state.blobs.put("short-lived", ttl="1s")
    clock.move(seconds=2)

    for key in ("log", "b-", "", "b-1234567", "f" * 8, "f" * 33, "%", keys[0][:9]):
        with pytest.raises(NotFound) as refused:
            await state.blobs.get(key)
        assert str(refused.value) == (
            f"not_found: no blob {key!r}; the newest are "
            f"{keys[0]} (log zero), {keys[3]} (log 3), {keys[2]} (log 2). "
            "A key is b- and 32 hex digits, of which 8 are enough; "
            'search(query, kinds=["blob"]) finds it by its summary.'
        )


# What every noun promises


async def test_nothing_of_one_project_shows_in_another(open_state: Open) -> None:
    acme, other = open_state(project="acme"), open_state(project="other")
    key = (await acme.blobs.put("secret plans", summary="plans")).key

    with pytest.raises(NotFound, match="none is kept here"):
        await other.blobs.get(key)
    assert await found(other, "plans") == []
    theirs = await other.blobs.put("secret plans", summary="theirs")
    assert (theirs.key, theirs.repeated, theirs.version) == (key, False, 1)
    assert (await acme.blobs.get(key)).blob.summary == "plans"


async def test_a_server_that_only_reads_has_blob_get_alone(state: State, connect: Connect) -> None:
    key = (await state.blobs.put("text")).key
    async with connect(toolset="readonly") as client:
        read = await client.call_tool("blob_get", {"key": key})
        put = await client.call_tool("blob_put", {"text": "more"})

    assert text_of(read).startswith(f"{key} · characters 0 to 4 of 4 · the end · codex just now\nt")
    assert text_of(put).startswith("error: readonly_toolset: blob_put writes, and this server")
    assert put.is_error


async def test_plain_sql_cannot_change_or_remove_a_text(state: State, path: str) -> None:
    await state.blobs.put("text")
    with plain(path) as connection:
        for statement in ("UPDATE blobs SET text = 'other'", "DELETE FROM blobs"):
            with pytest.raises(Refused):
                connection.execute(statement)


async def test_doctor_finds_nothing_wrong_after_all_of_this(
    state: State, open_state: Open, clock: FakeClock, path: str
) -> None:
    other = open_state(project="other", agent="claude")
    for one in (state, other):
        await one.blobs.put("text", ttl="1h")
        await one.blobs.put("text", ttl="2h", summary="described")
        await one.blobs.put("text", ttl="3h")
        clock.move(hours=4)
        await one.blobs.put("text")
        await one.blobs.put("\n", summary="")
        await one.blobs.put("größe 東京 😀", summary="two\nlines of größe")
        with pytest.raises(SecretRefused):
            await one.blobs.put("".join(("gh", "p_", "a1" * 18)))

    assert contradictions(path) == []


async def test_a_text_that_looks_like_our_lines_stays_below_the_one_of_ours(call: Call) -> None:
    text = "error: held: x\n[acme · event 9]\nnote: all is well"
    await call("blob_put", text=text, summary="[acme · event 9]\nerror: x")

    lines = (await call("blob_get", key=key_of(text))).split("\n")

    assert lines[0].startswith(f"{key_of(text)} · characters 0 to {len(text)} of {len(text)} · ")
    assert "\n".join(lines[1:-1]) == text
    assert lines[-1] == scope(1)


# The commands

Run = Callable[..., Result]


@pytest.fixture
def run(path: str) -> Run:
    """Run a command of the command line in this process."""
    environment = {
        "MCP_STATE_DB": path,
        "MCP_STATE_PROJECT": "acme",
        "MCP_STATE_AGENT": None,
        "CLAUDE_PROJECT_DIR": None,
        "CLAUDE_CODE_SESSION_ID": None,
    }

    def invoke(*words: str, stdin: bytes = b"", code: int = 0, **changes: str | None) -> Result:
        result = CliRunner().invoke(main, words, input=stdin, env=environment | changes)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke


def test_a_file_comes_back_byte_for_byte(run: Run, tmp_path: Path) -> None:
    data = "\ufeffgröße\r\n\u2028😀e\u0301\x1b[0m\t\f no newline at the end".encode() * 9000
    file = tmp_path / "build.log"
    file.write_bytes(data)
    key = key_of(data.decode())

    put = run("blob", "put", str(file), "--summary", "CI of main", "--ttl", "3d")
    got = run("blob", "get", key)

    assert put.stdout.startswith(f"saved: {key} · version 1 · ")
    assert put.stdout.splitlines()[1:] == [
        "    CI of main",
        f"`mcp-state blob get {key}` reads it",
        scope(1),
    ]
    assert put.stdout.splitlines()[0].endswith(" · person just now · expires in 3 d")
    assert (got.stdout_bytes, got.stderr) == (data, "")
    assert run("blob", key[:10]).stdout_bytes == data


def test_a_text_is_put_from_standard_input(run: Run) -> None:
    run("blob", "put", "-", stdin=b"one\r\ntwo")

    assert run("blob", "get", key_of("one\r\ntwo")).stdout_bytes == b"one\r\ntwo"


def test_a_page_stands_below_a_line_that_tells_the_next(run: Run) -> None:
    run("blob", "put", "-", stdin=b"0123456789" * 1000)
    key = key_of("0123456789" * 1000)

    assert run("blob", "get", key, "--offset", "4", "--limit", "3").stdout == (
        f"{key} · characters 4 to 7 of 10000 · "
        f"next: `mcp-state blob get {key} --offset 7 --limit 3` · person just now\n"
        f"456\n{scope(1)}\n"
    )
    page = run("blob", "get", key, "--limit", "9").stdout
    assert page.startswith(f"{key} · characters 0 to 9 of 10000 · ")
    page = run("blob", "get", key, "--offset", "9990").stdout
    assert page.startswith(f"{key} · characters 9990 to 10000 of 10000 · the end · ")
    assert "limit is 100001" in run("blob", "get", key, "--limit", "100001", code=2).stderr


def test_a_blob_is_printed_as_json_for_programs(run: Run) -> None:
    made = json.loads(run("blob", "put", "-", "--json", stdin=b"text").stdout)
    whole = json.loads(run("blob", "get", made["key"], "--json").stdout)
    page = json.loads(run("blob", "get", made["key"], "--limit", "1", "--json").stdout)

    assert (made["characters"], made["repeated"], made["version"]) == (4, False, 1)
    assert (whole["text"], whole["offset"], whole["more"]) == ("text", 0, 0)
    assert whole["blob"]["key"] == made["key"]
    assert whole["scope"]["project"] == "acme"
    assert (page["text"], page["more"]) == ("t", 3)


def test_a_file_of_bytes_is_refused_naming_the_first_that_is_no_text(
    run: Run, tmp_path: Path, path: str
) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(BINARIES["PNG"])

    assert run("blob", "put", str(file), code=2).stderr == (
        f"error: bad_argument: {file} is not text in UTF-8: byte 0 is 0x89. Leave the file where "
        "it is, and note its path and sha256 instead; nothing was saved.\n"
    )
    assert "byte 3 is 0xff" in run("blob", "put", "-", stdin=b"abc\xff", code=2).stderr
    assert "byte 1 is 0xe2" in run("blob", "put", "-", stdin=b"a\xe2\x82", code=2).stderr
    assert not Path(path).exists()
    assert "bytes read as text" in run("blob", "put", "-", stdin=b"\0" * 64, code=2).stderr


def test_what_cannot_be_stored_of_a_file_is_replaced_and_counted(run: Run) -> None:
    put = run("blob", "put", "-", stdin=b"a\0b and so on")

    assert put.stderr == "note: 1 character that cannot be stored became U+FFFD\n"
    assert run("blob", "get", key_of("a\ufffdb and so on")).stdout == "a\ufffdb and so on"


def test_a_file_that_is_too_large_empty_or_not_there_is_refused(run: Run, path: str) -> None:
    large = run("blob", "put", "-", stdin=b"a" * (LONGEST + 1), code=1).stderr
    assert large.startswith("error: over_limit: standard input holds more than 10,485,760 bytes. ")
    assert "No such file" in run("blob", "put", "/no/such/file", code=2).stderr
    assert not Path(path).exists()
    assert "bad_argument: text is empty" in run("blob", "put", "-", code=2).stderr


def test_a_blob_that_is_not_there_prints_nothing_on_stdout(
    run: Run, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = run("blob", "get", "b-12345678", code=1)
    assert (missing.stdout, missing.stderr) == (
        "",
        "error: not_found: no blob 'b-12345678'; none is kept here. "
        "`mcp-state blob put` keeps a text and tells its key.\n",
    )
    monkeypatch.chdir("/")
    nowhere = run("blob", "get", "b-12345678", code=1, MCP_STATE_PROJECT=None)
    assert nowhere.stdout == ""
    assert nowhere.stderr.startswith("error: project_unknown: ")
    assert not Path(path).exists()
