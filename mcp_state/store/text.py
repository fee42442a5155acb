"""What text may be stored: names, values that no encoding holds, and credentials."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from mcp_state.calls import quoted as quoted
from mcp_state.errors import BadArgument

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_FORBIDDEN_IN_NAMES = {"Cc", "Zl", "Zp"}
LONGEST_NAME = 128
WITHIN = "\x1f"
"""Between the name of a run and that of something inside it; no name can hold it."""


def clean(text: str) -> tuple[str, int]:
    """Replace what cannot be stored (NUL, lone surrogates) by U+FFFD; returns how many."""
    try:
        text.encode()  # eight times as fast as a search for surrogates
    except UnicodeEncodeError:
        pass
    else:
        if "\0" not in text:
            return text, 0
    return _UNSTORABLE.subn("\ufffd", text)


def tidy_name(text: str, what: str) -> str:
    """A name as it is shown: NFC, trimmed.

    Raises:
        BadArgument: empty, longer than `LONGEST_NAME` characters, or with a control character.
    """
    name = unicodedata.normalize("NFC", clean(text.replace("\0", "\x01"))[0]).strip()
    if not name:
        raise BadArgument(f"{what} is empty", f"Give it a name of 1 to {LONGEST_NAME} characters.")
    if len(name) > LONGEST_NAME:
        raise BadArgument(
            f"{what} is {len(name):,} characters; a name has at most {LONGEST_NAME}",
            "Choose a shorter name and put the text elsewhere.",
        )
    if any(unicodedata.category(c) in _FORBIDDEN_IN_NAMES for c in name):
        raise BadArgument(
            f"{what} has a line break or another control character in it",
            "Choose a name of one line.",
        )
    return name


def several(given: Sequence[str] | None) -> Sequence[str]:
    """Some texts; one that came alone is one, not its letters."""
    return [given] if isinstance(given, str) else given or ()


def fold(name: str) -> str:
    """The form under which names are compared: NFC, trimmed, case-folded."""
    folded = unicodedata.normalize("NFC", clean(name)[0].strip()).casefold()
    return unicodedata.normalize("NFC", folded)


def within(run: str, name: str) -> str:
    """The name by which events and documents know something of a run, or of no run."""
    return f"{run}{WITHIN}{name}" if run else name


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Up to three of these names that may have been meant."""
    import difflib

    return difflib.get_close_matches(name, list(names), 3)


_REORDERING = dict.fromkeys(
    map(ord, "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"), "\ufffd"
)
"""Characters that make a line read in another order than it has."""


def one_line(text: str, limit: int = 160) -> str:
    """A stored text inside a line of ours: one line of at most `limit` characters."""
    line = in_order(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def in_order(text: str) -> str:
    """A text that cannot make what stands beside it read in another order."""
    return text if text.isascii() else text.translate(_REORDERING)


# Shapes that the issuers themselves document; each needs more than a word of prose to match.
# None may look at a character more than a bounded number of times: repeats that another repeat or
# a failed end could start over from are bounded or possessive. All but two begin with a letter or
# more that they must have, and look back from there at what stands before: the search for a letter
# goes thirty times as fast as one for the boundary of a word, which counts for a blob of 10 MiB.
# They are compiled by the first text that holds a hint: most processes never see one.
_CREDENTIALS: tuple[tuple[str, str], ...] = (
    ("a private key", r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
    ("an AWS access key", r"A(?:KI|SI)A(?<=\b.{4})[A-Z2-7]{16}\b"),
    (
        "an AWS secret key",
        r"(?i)aws_?secret_?(?:access_?)?key\W{1,6}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
    ),
    ("a GitHub token", r"gh(?<=\b.{2})[pousr]_[A-Za-z0-9]{36,255}\b"),
    ("a GitHub token", r"github_pat_(?<=\b.{11})[A-Za-z0-9_]{60,255}\b"),
    ("a GitLab token", r"gl(?<=\b.{2})(?:pat|dt|rt|ptt|cbt)-[A-Za-z0-9_-]{20,}\b"),
    (
        "a Slack token",
        r"x(?<=\b.)(?:ox[abeoprs]-[A-Za-z0-9-]{20,}\b|app-\d-[A-Za-z0-9-]{20,})",
    ),
    ("an Anthropic API key", r"sk-ant-(?<=\b.{7})[A-Za-z0-9_-]{20,}"),
    ("an OpenAI API key", r"sk-(?<=\b.{3})(?:proj-|svcacct-|admin-)[A-Za-z0-9_-]{20,}"),
    ("an API key", r"sk-(?<=\b.{3})[A-Za-z0-9]{40,}\b"),
    ("a Google API key", r"AIza(?<=\b.{4})[A-Za-z0-9_-]{35}\b"),
    ("a Google OAuth token", r"ya29\.(?<=\b.{5})[A-Za-z0-9_-]{30,}"),
    ("a token of mcp-state", r"mcps_t-(?<=\b.{7})[0-9a-z]{1,24}_[0-9A-Za-z_-]{43}"),
    ("a Stripe key", r"[sr]k_(?<=\b.{3})(?:live|test)_[A-Za-z0-9]{20,}\b"),
    ("an npm token", r"npm_(?<=\b.{4})[A-Za-z0-9]{36}\b"),
    ("a PyPI token", r"pypi-AgE(?<=\b.{8})[A-Za-z0-9_-]{50,}"),
    ("a Hugging Face token", r"hf_(?<=\b.{3})[A-Za-z]{34}\b"),
    ("a SendGrid key", r"SG\.(?<=\b.{3})[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    (
        "a JSON web token",
        r"eyJ(?<=\b.{3})[A-Za-z0-9_-]{10,500}+\.eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10}",
    ),
    (
        "a password in a URL",
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@\"'<>$]{1,64}:(?!\*|<|\$|xxx)[^\s:/@\"'<>$]{6,}@[\w.-]+",
    ),
)
_HINT = re.compile(
    r"PRIVATE KEY|A[KS]IA|(?i:aws)|gh[pousr]_|github_pat_|gl[a-z]{2,4}-|xox|xapp-|sk-|AIza|ya29\."
    r"|mcps_|[sr]k_|npm_|pypi-|hf_|SG\.|eyJ|://[^\s/]+@"
)


def may_hold_credential(text: str) -> bool:
    """Whether it is worth a closer look, also at what a text of JSON holds."""
    return _HINT.search(text) is not None


def credential_in(text: str) -> tuple[str, int] | None:
    """The kind and position of what has the shape of a well-known credential, or None."""
    if _HINT.search(text) is None:
        return None
    found = [(kind, m.start()) for kind, shape in _CREDENTIALS if (m := re.search(shape, text))]
    return min(found, key=lambda one: one[1], default=None)
