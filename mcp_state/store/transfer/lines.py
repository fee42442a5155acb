"""The lines of an export: how they are written, how they are read, and what is refused.

An export is one project as JSON Lines in UTF-8. The first line says what the file is. The last one
holds the number of the lines before it and the SHA-256 of their bytes. In between, each line is one
thing: an object whose one key says what it is, or an event, whose keys lie flat.

Things are named as people name them. A name inside a run (a block of its memory, a step, a
checkpoint) comes with the name of the run: `run` in the things themselves, `within` in events.
Numbers of events lead to the events of the same file. Leases are not in it: they mean nothing
elsewhere.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import BinaryIO, NoReturn, cast

from mcp_state.errors import BadArgument, OverLimit
from mcp_state.record import record
from mcp_state.store.text import clean, one_line
from mcp_state.store.transfer.fields import (
    END,
    HEADER,
    HEADER_OF_HANDOFF,
    MAGIC,
    Field,
    Line,
    is_format,
)

FORMAT = 2
"""The second has facts and objectives, and what threads rely on. The first is read too."""
LONGEST_LINE = 64 << 20
"""Bytes: a blob of 10 MiB of which every character has to be escaped, and its columns."""
_LONGEST_HEADER = 1 << 16
_AGAIN = "Nothing was imported. Export it again, and carry the whole file as it is."
_OBEYED = re.compile("[\x7f-\x9f\u2028\u2029]")
"""Legal in JSON, but some terminals obey them, and some editors break lines there."""
_OTHER_FILES = (
    (b"\x1f\x8b", "it is compressed (gzip)", "Unpack it first."),
    (
        b"SQLite format 3\0",
        "it is a database, not an export",
        "If it is a backup: `mcp-state restore FILE`.",
    ),
)

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


decode = json.JSONDecoder(parse_constant=_no_number).decode


@record
class Header:
    """The first line: which project, how many events, and the handoff it was made for, if any.

    `format` is that of the file.
    """

    project: str
    events: int
    at: str
    version: str
    handoff: str = ""
    format: int = FORMAT

    def line(self) -> Line:
        """The line itself."""
        kept = {key: value for key, value in dataclasses.asdict(self).items() if value != ""}
        return {MAGIC: kept.pop("format"), **kept}


class LineWriter:
    """Writes lines, and what the last one says about them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.lines = self.bytes = 0

    def write(self, line: Line) -> None:
        """Write one line.

        Raises:
            OverLimit: it would be longer than what can be read back.
        """
        text = encode(line)
        if _OBEYED.search(text) is not None:
            text = _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        data = text.encode() + b"\n"
        if len(data) > LONGEST_LINE:
            raise OverLimit(
                f"{one_line(text, 60)!r} makes a line of {len(data):,} bytes; the longest that can "
                f"be imported has {LONGEST_LINE:,}",
                "`mcp-state backup` copies the whole store, whatever is in it.",
            )
        self._hash.update(data)
        self._file.write(data)
        self.lines += 1
        self.bytes += len(data)

    def end(self) -> str:
        """Write the last line; returns the checksum."""
        digest = self._hash.hexdigest()
        self.write({"sha256": digest, "lines": self.lines})
        self._file.flush()
        return digest


class LineReader:
    """Reads lines one by one, and compares them with what the last one says.

    `number` and `text` are those of the line that was read last, `bytes` is what was read in all.

    Args:
        file: what is read, once.
        name: what to call it in an error.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._hash = hashlib.sha256()
        self.number = self.bytes = 0
        self.text = ""

    def refusal(self, what: str, number: int = 0, next_step: str = _AGAIN) -> BadArgument:
        """What is wrong with the line of this number, by default the one that was read last."""
        return BadArgument(f"{self.place(number)}: {what}", next_step)

    def place(self, number: int = 0) -> str:
        """FILE:LINE, by default of the line that was read last."""
        return f"{self._name}:{number or max(self.number, 1)}"

    def header(self) -> Header:
        """The first line.

        Raises:
            BadArgument: this is no export, or one of a newer version.
        """
        data = self._file.readline(_LONGEST_HEADER)
        self.number, self.bytes = 1, len(data)
        if not data:
            raise self.refusal("the file is empty")
        for magic, what, next_step in _OTHER_FILES:
            if data.startswith(magic):
                raise self.refusal(what, next_step=f"Nothing was imported. {next_step}")
        try:
            found = cast(object, decode(data.decode()))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not is_format(cast(Line, found).get(MAGIC)):
            raise self.refusal(
                "this is no export of mcp-state",
                next_step="Nothing was imported. Name a file that `mcp-state export` made; "
                "of another tool's, say with --from which it is.",
            )
        line = cast(Line, found)
        if line[MAGIC] > FORMAT:
            raise self.refusal(
                f"it was written by a newer version of mcp-state (format {line[MAGIC]}, this one "
                f"reads {FORMAT})",
                next_step="Nothing was imported. Upgrade mcp-state here.",
            )
        self._check_end_of_line(data)
        self.check(line, HEADER_OF_HANDOFF if "handoff" in line else HEADER, "the first line")
        self._hash.update(data)
        kept = {key: value for key, value in line.items() if key != MAGIC}
        return Header(**kept, format=line[MAGIC])

    def lines(self) -> Iterator[Line]:
        """The lines between the first and the last; it ends when the last one was compared.

        Raises:
            BadArgument: a line is not whole, or the file is not what was written.
        """
        while True:
            data = self._file.readline(LONGEST_LINE + 1)
            self.number += 1
            self.bytes += len(data)
            if not data:
                raise self.refusal("the file ends here, without its last line")
            if len(data) > LONGEST_LINE:
                raise self.refusal(f"the line is longer than {LONGEST_LINE:,} bytes")
            self._check_end_of_line(data)
            line = self._decoded(data)
            if line.keys() == END.keys():
                self._check_end(line)
                return
            self._hash.update(data)
            yield line

    def check(self, line: Line, fields: Mapping[str, Field], what: str) -> None:
        """Whether a line, or what is in it, has all of these fields and no other.

        Raises:
            BadArgument: it has not.
        """
        if line.keys() != fields.keys():
            for missing in fields.keys() - line.keys():
                raise self.refusal(f"{what} has no {missing!r}")
            unknown = min(line.keys() - fields.keys())
            raise self.refusal(f"{what} has an unknown {one_line(unknown, 60)!r}")
        for key, field in fields.items():
            value = line[key]
            if not (field.fits(value) or (field.optional and value is None)):
                shown = one_line(encode(value), 60)
                raise self.refusal(f"{key!r} of {what} is {shown}, which is not {field.what}")

    def _check_end_of_line(self, data: bytes) -> None:
        if not data.endswith(b"\n"):
            raise self.refusal("the file ends in the middle of this line")
        if data.endswith(b"\r\n"):
            raise self.refusal("its line ends were changed to CRLF")

    def _decoded(self, data: bytes) -> Line:
        try:
            self.text = data.decode()
            found = cast(object, decode(self.text))
        except UnicodeDecodeError:
            raise self.refusal("this is not UTF-8") from None
        except (ValueError, RecursionError):
            raise self.refusal("this is not JSON") from None
        if not isinstance(found, dict):
            raise self.refusal("this is no JSON object")
        line = cast(Line, found)
        if "\\u" in self.text and any(clean(one)[1] for one in texts_in(line)):
            raise self.refusal("there is a character in it that cannot be stored")
        return line

    def _check_end(self, line: Line) -> None:
        self.check(line, END, "the last line")
        if line["lines"] != self.number - 1:
            raise self.refusal(
                f"{self.number - 1:,} lines come before this one, which says {line['lines']:,}"
            )
        if line["sha256"] != self._hash.hexdigest():
            raise self.refusal("the checksum is that of another text: something above was changed")
        self.number += 1
        if self._file.read(1):
            raise self.refusal("something follows the last line")
        self.number -= 1


def texts_in(value: object) -> Iterator[str]:
    """All texts in a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in cast(Mapping[str, object], value).items():
            yield key
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in cast(list[object], value):
            yield from texts_in(item)
