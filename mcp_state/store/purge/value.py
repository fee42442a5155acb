"""The text that is to go: the forms in which it may be stored, and what a text is without it.

It is found in any case and composition, with other white space between its words (a summary is one
line), with the escapes of JSON and of Python's `repr`, and cut short by the `…` that the store
itself puts where it shortens. What is left of it after another cut, or in another encoding, can't
be told from any other text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, cast

from mcp_state.errors import BadArgument
from mcp_state.store.text import WITHIN, clean, fold, in_order

SHORTEST, LONGEST = 4, 65_536
MARK = "[purged]"
_PIECE = 8
"""Characters of it that are taken for a part of it where a text was cut."""
_CUT = "…"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*', re.DOTALL)
_WORD = re.compile(r"[a-z0-9]+")
_OUR_KEY = re.compile(r"[a-z_]+")
_NEEDLE, _STRIDE = 32, 1000


class Value:
    """A text that nothing may hold any more.

    Raises:
        BadArgument: it is too short or too long to be looked for, or part of the mark.
    """

    def __init__(self, text: str) -> None:
        text = clean(text)[0]
        size = len(text.strip())
        if size < SHORTEST:
            raise BadArgument(
                f"the text to purge has {size} characters; fewer than {SHORTEST} stand in too much "
                "else",
                "Nothing was changed. Give more of it, such as the words around it.",
            )
        if len(text) > LONGEST:
            raise BadArgument(
                f"the text to purge has {len(text):,} characters; {LONGEST:,} can be looked for",
                "Nothing was changed. Purge it in parts.",
            )
        self.text = text
        self.folded = folded(text)
        if self.folded in MARK:
            raise BadArgument(
                f"the text to purge is part of {MARK!r}, which takes its place",
                "Nothing was changed. Give more of it.",
            )
        self._line = " ".join(text.split()).lower()
        self._piece = max(SHORTEST, min(_PIECE, len(self._line) - 1))
        self._pattern = _pattern(_spellings(text))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        is_long = len(lines) > 1 and len(lines[0]) >= _PIECE
        self._first_line = _pattern({lines[0]}) if is_long else None
        looked_for = [self.folded, folded(lines[0])] if is_long else [self.folded]
        self._probes = [max(_WORD.findall(one), key=len, default="") for one in looked_for]

    def may_be_in(self, text: str) -> bool:
        """A quick look: False if it is surely not there, in whatever form."""
        low = text.casefold()
        return any(probe in low for probe in self._probes) or _CUT in text

    def out_of(self, text: str, mark: str) -> str:
        """The text with the mark wherever it stood."""
        if not self.may_be_in(text):
            return text
        new = _all_out(self._pattern, text, mark)
        if self.folded in folded(new):  # in letters that have no single counterpart, such as ß
            new = folded(new).replace(self.folded, mark)
        return self._without_cut(new, mark) if _CUT in new else new

    def out_of_summary(self, text: str, mark: str) -> str:
        """The same of a line made out of the first line of a text."""
        new = self.out_of(text, mark)
        return new if self._first_line is None else _all_out(self._first_line, new, mark)

    def _without_cut(self, text: str, mark: str) -> str:
        parts = text.split(_CUT)
        for i, part in enumerate(parts):
            low = part.lower()
            if len(low) != len(part) or len(low) < self._piece:
                continue
            if 0 < i < len(parts) - 1 and low.strip() in self._line:
                parts[i] = mark
                continue
            begins = self._begins_in(low) if i < len(parts) - 1 else -1
            ends = self._ends_in(low) if i > 0 else -1
            if begins >= 0:
                part = part[:begins] + mark
            parts[i] = mark + part[ends:] if ends >= 0 else part
        return _CUT.join(parts)

    def _begins_in(self, part: str) -> int:
        """Where its beginning begins, which the end of this cuts; -1 if it does not."""
        at = part.find(self._line[: self._piece])
        while at >= 0 and not self._line.startswith(part[at:].rstrip()):
            at = part.find(self._line[: self._piece], at + 1)
        return at

    def _ends_in(self, part: str) -> int:
        """Where its end ends, which the beginning of this cuts; -1 if it does not."""
        at = part.rfind(self._line[-self._piece :])
        while at >= 0 and not self._line.endswith(part[: at + self._piece].lstrip()):
            at = part.rfind(self._line[-self._piece :], 0, at + self._piece - 1)
        return at + self._piece if at >= 0 else -1

    def needles(self) -> list[list[bytes]]:
        """What to look for in bytes whose ASCII letters are small ones.

        Of each spelling its pieces, since SQLite spreads what is long over several pages.
        """
        forms = {t for s in _spellings(self.text) for t in (s, s.upper(), s.casefold())}
        return [_pieces(form) for form in {form.encode().lower() for form in forms}]


def folded(text: str) -> str:
    """The form in which texts are compared; that of names, but for white space at the edges."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _spellings(text: str) -> set[str]:
    forms = {form for f in ("NFC", "NFD") for form in (text, unicodedata.normalize(f, text))}
    forms |= {in_order(form) for form in forms}
    for _ in range(2):  # JSON within JSON
        ascii_only = {json.dumps(form)[1:-1] for form in forms}
        forms |= ascii_only | {json.dumps(form, ensure_ascii=False)[1:-1] for form in forms}
    return forms | {repr(text)[1:-1]}


def _pattern(forms: set[str]) -> re.Pattern[str]:
    each = (r"\s+".join(map(re.escape, re.split(r"\s+", form))) for form in forms)
    return re.compile("|".join(sorted(each, key=len, reverse=True)), re.IGNORECASE)


def _all_out(pattern: re.Pattern[str], text: str, mark: str) -> str:
    """Once more while there is any: the mark and its neighbours may spell it again."""
    while (new := pattern.sub(lambda _: mark, text)) != text:
        text = new
    return text


def _pieces(form: bytes) -> list[bytes]:
    if len(form) <= 2 * _NEEDLE:
        return [form]
    last = len(form) - _NEEDLE
    starts = [*range(0, last, _STRIDE), last // 2, last]
    return list({form[at : at + _NEEDLE] for at in starts})


class Replacing:
    """What becomes of each stored text: one function of it, so that what refers still refers.

    `names` (folded) and `exact` (what is not compared folded) hold what would become the same as
    another; `keys` what was made of a text that held the value (the key of a blob, the digest of
    an outcome), and what is made of it now.
    """

    def __init__(self, value: Value, mark: str) -> None:
        self.value = value
        self.mark = mark
        self.names: dict[str, str] = {}
        self.exact: dict[str, str] = {}
        self.keys: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Any text."""
        mark = self.names.get(fold(text), self.mark) if self.names else self.mark
        return self.value.out_of(self._with_keys(text), mark)

    def exactly(self, text: str) -> str:
        """A text that has to stay different from its equals: an agent, a session, a directory."""
        return self.value.out_of(text, self.exact[text]) if text in self.exact else self.text(text)

    def summary(self, text: str) -> str:
        """A line that the store made of a text."""
        return self.value.out_of_summary(self._with_keys(text), self.mark)

    def name(self, kind: str, name: str) -> str:
        """The name of a thing of this kind, perhaps inside a run; not if the store made it."""
        if kind in _NAMED_BY_US:
            return self.keys.get(name, name)
        run, within, inner = name.rpartition(WITHIN)
        return self.text(run) + within + (inner if kind == "checkpoint" else self.text(inner))

    def topic(self, topic: str) -> str:
        """A topic of the journal: a kind of topic, and its name."""
        kind, colon, name = topic.partition(":")
        return kind + colon + (self.exactly(name) if kind == "agent" else self.text(name))

    def inside(self, value: Any) -> Any:
        """The same of all texts in JSON that the store made."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.inside(item) for item in cast(list[Any], value)]
        if isinstance(value, dict):
            items = cast(Mapping[str, Any], value).items()
            return {self._key(key): self._item(key, item) for key, item in items}
        return value

    def _item(self, key: str, value: Any) -> Any:
        if isinstance(value, str) and key in _AGENTS:
            return self.exactly(value)
        if isinstance(value, str) and key == "summary":  # of a blob: its first line
            return self.summary(value)
        return self.inside(value)

    def may_change(self, text: str) -> bool:
        """A quick look: False if surely nothing becomes of it."""
        if "\\" in text or self.value.may_be_in(text):
            return True
        return bool(self.keys) and _KEY.search(text) is not None

    def row(self, kind: str, text: str) -> str:
        """The row that an event of this kind keeps."""
        if not self.may_change(text):
            return text
        old: dict[str, Any] = json.loads(text)
        new: dict[str, Any] = {key: self._field(kind, key, value) for key, value in old.items()}
        within = old.get("step") if kind == "step" else old.get("number")
        if kind in ("step", "checkpoint") and within is not None and "name" in old:
            run = old["name"].removesuffix(f"/{within}")
            new["name"] = f"{self.text(run)}/{new.get('step', within)}"
        return text if new == old else json.dumps(new, ensure_ascii=False)

    def _field(self, kind: str, key: str, value: Any) -> Any:
        is_ours = key in _OURS or key.endswith("_at") or (key == "key" and kind in _NAMED_BY_US)
        if is_ours and (value is None or isinstance(value, str)):
            return self.keys.get(value or "", value)
        if key == "baseline":
            return self.baseline(value)
        return self._item(key, value)

    def baseline(self, found: Any) -> Any:
        """What the address of a check led to: the address, and why it led nowhere."""
        if not isinstance(found, dict):
            return found
        items = cast(Mapping[str, Any], found).items()
        return {k: self.inside(v) if k in _OF_BASELINE else v for k, v in items}

    def json(self, text: str, *, is_baseline: bool = False) -> str:
        """A text of JSON that the store made."""
        if not self.may_change(text):
            return text
        old: Any = json.loads(text)
        new = self.baseline(old) if is_baseline else self.inside(old)
        return text if new == old else json.dumps(new, ensure_ascii=False)

    def message(self, text: str) -> str:
        """A message of a transcript: every byte but those of the value stays."""
        if not self.may_change(text):
            return text
        new = _TOKEN.sub(self._token, text)
        if self.value.out_of(new, self.mark) == new:
            return new
        return json.dumps({"role": "user", "content": self.mark})  # the JSON itself spells it

    def _token(self, match: re.Match[str]) -> str:
        token = match[0]
        if not token.startswith('"'):
            return token if self.text(token) == token else json.dumps(self.mark)
        old: str = json.loads(token, strict=False)
        new = self.text(old)
        return token if new == old else json.dumps(new, ensure_ascii=token.isascii())

    def _key(self, key: str) -> str:
        return key if _OUR_KEY.fullmatch(key) else self.text(key)

    def _with_keys(self, text: str) -> str:
        return _KEY.sub(self._new_key, text) if self.keys and _KEY.search(text) else text

    def _new_key(self, match: re.Match[str]) -> str:
        key = match[0]
        if key in self.keys or len(key) > _LONGEST_PREFIX:
            return self.keys.get(key, key)
        return next((new[: len(key)] for old, new in self.keys.items() if old.startswith(key)), key)


_KEY = re.compile(r"\bb-[0-9a-f]{8,32}(?!\w)|(?<!\w)[0-9a-f]{64}(?!\w)")
_LONGEST_PREFIX = 33
_NAMED_BY_US = frozenset({"journal", "blob", "handoff"})
_OURS = frozenset(
    {
        *("id", "sha256", "outcome", "code", "tool", "status", "trust", "replaces", "stopped"),
        "lease_until",
    }
)
"""What rows of events hold that no caller gives, besides times."""
_OF_BASELINE = ("target", "detail", "worktree")
_AGENTS = ("lease_holder", "verified_by", "accepted_by")
