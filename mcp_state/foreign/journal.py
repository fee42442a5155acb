"""A journal: Markdown with dates in its headings, or JSON with times in its fields.

One section or line becomes one entry, oldest first, with the date that it has there.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from typing import cast

from mcp_state.foreign.files import (
    LONGEST_TEXT,
    Json,
    Unreadable,
    as_text,
    json_lines,
    read_json,
    read_text,
    refused,
    walk,
)
from mcp_state.foreign.records import Entry, Source, distinct

NAME = "journal"
TEXTS = ("text", "message", "content", "entry", "note", "body", "msg", "summary")
TIMES = ("time", "timestamp", "at", "date", "datetime", "created_at", "createdAt", "created", "ts")
_KINDS = ("kind", "type", "category", "level")
_WHO = ("author", "agent", "actor", "user", "who")
_LISTS = ("entries", "journal", "log", "items")
_MONTHS = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_MONTH = rf"(?P<month>(?:{'|'.join(_MONTHS)})[a-z]*)\.?"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\.?"
_DATES = tuple(
    re.compile(rf"(?<![\w]){shape}(?![\d])", re.IGNORECASE)
    for shape in (
        r"(?P<year>\d{4})[-/.](?P<number>[01]?\d)[-/.](?P<day>[0-3]?\d)",
        r"(?P<day>[0-3]?\d)\.\s?(?P<number>[01]?\d)\.\s?(?P<year>\d{4})",
        rf"{_DAY}\s+{_MONTH},?\s+(?P<year>\d{{4}})",
        rf"{_MONTH}\s+{_DAY},?\s+(?P<year>\d{{4}})",
    )
)
_TIME = re.compile(r"(?<![\d:])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?![\d:])")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def suits_json(first: object) -> bool:
    """Whether a JSON value looks like an entry with a time and a text."""
    match first:
        case dict():
            item = cast(Json, first)
            return any(item.get(name) for name in TIMES) and any(
                isinstance(item.get(name), str) for name in TEXTS
            )
        case _:
            return False


def items_of(whole: object) -> Sequence[object]:
    """The entries that a JSON value holds: a list, a list in an object, or one object."""
    if isinstance(whole, list):
        return cast(Sequence[object], whole)
    if not isinstance(whole, dict):
        return []
    item = cast(Json, whole)
    return next((item[name] for name in _LISTS if isinstance(item.get(name), list)), [item])


def suits_markdown(text: str) -> bool:
    """Whether a Markdown text has a heading with a date."""
    return any(day for _, day, _ in _sections(text))


def date_in(heading: str) -> str:
    """The day that a heading or a file's name says, as ISO writes it; empty for none."""
    for shape in _DATES:
        for match in shape.finditer(heading):
            told = match.groupdict()
            month = _MONTHS.index(told["month"][:3].lower()) + 1 if "month" in told else 0
            try:
                found = date(int(told["year"]), month or int(told["number"]), int(told["day"]))
            except ValueError:
                continue
            return found.isoformat()
    return ""


def read(path: str) -> Source:
    """All entries of a file, or of the files of a folder that are named by their day.

    Raises:
        BadArgument: the file can't be read, or has no dates.
    """
    source = Source(NAME, path)
    if os.path.isdir(path):
        _read_folder(source, path)
    elif path.lower().endswith((".md", ".markdown")):
        try:
            text = read_text(path)
            if not suits_markdown(text):
                raise Unreadable("has no heading with a date; with --from notes it is one note")
        except Unreadable as problem:
            raise refused(path, problem) from None
        _add(source, list(_entries(os.path.basename(path), text, "")))
    elif path.lower().endswith(".json"):
        _read_list(source, path)
    else:
        _add(
            source,
            [e for place, item in json_lines(source, path) for e in _told(source, place, item)],
        )
    return source


def _read_folder(source: Source, folder: str) -> None:
    days: list[tuple[str, str, str]] = []
    for inside, path in walk(source, folder):
        name = os.path.basename(inside)
        try:
            text = read_text(path, LONGEST_TEXT)
        except Unreadable as problem:
            source.leave(inside, "a file", str(problem))
            continue
        day = date_in(name)
        if not day and not suits_markdown(text):
            source.leave(inside, "a file", "there is no date in its name or its headings")
        else:
            days.append((day, inside, text))
    _add(
        source, [entry for day, place, text in sorted(days) for entry in _entries(place, text, day)]
    )


def _read_list(source: Source, path: str) -> None:
    try:
        whole = read_json(path)
    except Unreadable as problem:
        raise refused(path, problem) from None
    found: list[tuple[str, str, Entry]] = []
    for number, one in enumerate(items_of(whole), 1):
        place = f"{os.path.basename(path)}: entry {number}"
        if isinstance(one, dict):
            found += _told(source, place, cast(Json, one))
        else:
            source.leave(place, "an entry", "it is no JSON object")
    _add(source, found)


def _add(source: Source, found: Sequence[tuple[str, str, Entry]]) -> None:
    """Keep entries, the oldest first if the file has the newest first; the same twice is two."""
    times = [when for when, _, _ in found if when]
    ordered = list(found) if not times or times[0] <= times[-1] else list(reversed(found))
    seen: Counter[str] = Counter()
    for _, kind, entry in ordered:
        seen[entry.identity] += 1
        same = str(seen[entry.identity])
        identity = distinct(NAME, entry.identity, same)
        source.entries.append(Entry(entry.place, entry.text, identity, kind))


def _entries(place: str, text: str, day: str) -> Iterator[tuple[str, str, Entry]]:
    """The sections of a Markdown journal; `day` is that of the file, if it has one."""
    for number, found, section in _sections(text):
        body = section.strip("\n").rstrip()
        lines = [line for line in body.splitlines() if line.strip()]
        if not lines or (len(lines) == 1 and _HEADING.fullmatch(lines[0])):
            continue  # a title over nothing
        when = found or day
        if when and not date_in(lines[0]):
            body = f"{when[:10]}\n{body}"
        yield when, "", Entry(f"{place}:{number}", body, body)


def _sections(text: str) -> Iterator[tuple[int, str, str]]:
    """Number of the first line, day and time, and text of each dated part; code is no heading.

    A new part begins with a heading that has a date, or a time of day below such a heading.
    """
    start, when, day, level, fence, lines = 1, "", "", 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if match := _FENCE.match(line):
            fence = "" if fence and match[1].startswith(fence) else fence or match[1]
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is not None:
            found, clock = date_in(heading[2]), _TIME.search(heading[2])
            if found or (day and clock is not None and len(heading[1]) > level):
                yield start, when, "\n".join(lines)
                if found:
                    day, level = found, len(heading[1])
                start, lines = number, []
                when = f"{day} {clock[0]:0>5}" if clock else day
        lines.append(line)
    yield start, when, "\n".join(lines)


def _told(source: Source, place: str, item: Json) -> Iterator[tuple[str, str, Entry]]:
    """The entry that a JSON object is."""
    name = next(
        (name for name in TEXTS if isinstance(item.get(name), str) and item[name].strip()), ""
    )
    if not name:
        source.leave(place, "an entry", f"none of {', '.join(TEXTS)} is a text in it")
        return
    timed = next((name for name in TIMES if as_text(item.get(name))), "")
    when = _when(item.get(timed))
    kind_in = next(
        (key for key in _KINDS if isinstance(item.get(key), str) and item[key].strip()), ""
    )
    kind = _kind(item.get(kind_in))
    who_in = next((key for key in _WHO if isinstance(item.get(key), str) and item[key].strip()), "")
    used = {name, timed, who_in, kind_in if kind else ""}
    others = [f"{key}: {said}" for key in item if key not in used and (said := as_text(item[key]))]
    head = " ".join(filter(None, [when, as_text(item.get(who_in))]))
    text = "\n".join([*([head] if head else []), item[name], *others])
    yield when, kind, Entry(place, text, text + "\0" + kind)


def _when(value: object) -> str:
    """A time as ISO writes it: seconds or milliseconds since 1970 too."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            seconds = value / 1000 if abs(value) > 1e11 else value
            return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
        except (ValueError, OverflowError, OSError):
            pass
    return as_text(value)


def _kind(value: object) -> str:
    """A kind that an entry can have, or none."""
    kind = as_text(value).strip()
    return kind if kind.isprintable() and len(kind) <= 40 else ""
