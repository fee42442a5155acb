"""Full text over memory, threads, the journal, runs, facts and the summaries of blobs.

The index gives the newest matches of each kind; they are ranked here, because a relevance that
counts every match of a common word costs time in proportion to the store.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from mcp_state.calls import meant, tool
from mcp_state.errors import BadArgument
from mcp_state.models import SearchHit, SearchPage
from mcp_state.record import record
from mcp_state.store.documents import KINDS, indexed, range_of, run_mark, short_forms
from mcp_state.store.fact_rows import fact_of, looked_up, stored_fact
from mcp_state.store.full_text import Needle, Wanted
from mcp_state.store.noun import Noun, reads
from mcp_state.store.run_rows import named_run, run_row
from mcp_state.store.text import WITHIN, clean
from mcp_state.store.transaction import Reading, Row, actor_of
from mcp_state.times import from_text

_EVENT = """
    SELECT at, agent, client, session FROM event_rows WHERE project = :project AND seq = :number
"""
NEWEST = 2000
_TERMS = 16
_SNIPPET = 160
_HEAD = {"memory": 1, "thread": 2, "journal": 0, "run": 2, "blob": 1, "fact": 1}
"""How many first lines of a document are names and titles."""


@record
class _Term:
    """A word as asked for, as texts are compared (`text`), and as the index is asked (`needles`).

    The index folds case in its own way, which must get the word as it was written. There are no
    needles if only a look at the text can tell.
    """

    word: str
    text: str
    needles: Sequence[Needle]

    @classmethod
    def of(cls, word: str) -> _Term:
        if len(word) >= 3:
            return cls(word, word.casefold(), [Needle("text", word)])
        needles = [Needle("short", form) for form in short_forms(word)]
        return cls(word, word.casefold(), needles)


class Search(Noun):
    """Full text over one project."""

    async def find(
        self,
        query: str,
        *,
        kinds: Sequence[str] = (),
        run: str = "",
        limit: int = 10,
        cursor: str = "",
    ) -> SearchPage:
        """What holds all the words of `query` (parts of words count), best first.

        If nothing holds them all, what holds any of them, marked `loose`. Of each kind the newest
        2,000 matches are ranked, by match, recency and use; `capped` says that there are more.
        `run` narrows to what belongs to a run. A fact comes with all that is known of it, and with
        what the address of its check leads to now.

        Raises:
            BadArgument: no word, an unknown kind, or a cursor that is none of ours.
            NotFound: there is no such run.
        """
        page = await self._find(query, kinds, run, limit, cursor)
        facts = [hit.fact for hit in page.hits if hit.fact is not None]
        seen = iter(await looked_up(facts, self.worktree))
        hits = [replace(hit, fact=next(seen)) if hit.fact else hit for hit in page.hits]
        return replace(page, hits=hits)

    @reads
    def _find(
        self, tx: Reading, query: str, kinds: Sequence[str], run: str, limit: int, cursor: str
    ) -> SearchPage:
        chosen, of_run = _kinds(kinds), named_run(tx, run)
        offset = _offset(cursor)
        words = indexed(clean(query)[0]).split()
        terms = [_Term.of(word) for word in {word.casefold(): word for word in words}.values()]
        if len(terms) > _TERMS or not any(term.needles for term in terms):
            fact = f"query is {query[:40]!r}, which has no word to look for"
            raise BadArgument(
                f"query has {len(terms)} words" if len(terms) > _TERMS else fact,
                f"Give 1 to {_TERMS} plain words or parts of words that stand in the text.",
            )
        rows, capped = _matches(tx, terms, chosen, of_run)
        loose = not rows and len(terms) > 1
        if loose:
            rows, capped = _matches(tx, terms, chosen, of_run, any=True)
        last = max(tx.totals().event, 1)
        rows.sort(key=lambda row: (-_score(row, terms, last), -row["seq"]))
        page = rows[offset : offset + limit]
        more = len(rows) > offset + limit
        return SearchPage(
            hits=[_hit(tx, row, terms) for row in page],
            matches=len(rows),
            capped=capped,
            loose=loose,
            cursor=str(offset + limit) if more else "",
        )


def _kinds(kinds: Sequence[str]) -> Sequence[str]:
    chosen: list[str] = []
    for given in filter(str.strip, kinds):
        kind = given.strip().lower().removesuffix("s")
        if kind not in KINDS:
            raise BadArgument(
                f"kind {given[:40]!r} is unknown",
                f"{meant(kind, KINDS)}Kinds are {', '.join(KINDS)}.",
            )
        if kind not in chosen:
            chosen.append(kind)
    return chosen or KINDS


def _offset(cursor: str) -> int:
    if not cursor:
        return 0
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 6:
        raise BadArgument(
            f"cursor {cursor[:40]!r} is none that {tool('search')} gave",
            "Leave it out to begin at the top.",
        )
    return int(cursor)


def _matches(
    tx: Reading, terms: Sequence[_Term], kinds: Sequence[str], run: str, *, any: bool = False
) -> tuple[list[Row], bool]:
    """The newest matches of each kind, and whether there are more; `run` is folded."""
    wanted = Wanted(
        [term.needles for term in terms if term.needles],
        any,
        [Needle("short", run_mark(run))] if run else [],
    )
    found: list[Row] = []
    capped = False
    for kind in kinds:
        rows = tx.newest_matches(wanted, range_of(tx.project, kind), NEWEST + 1)
        capped = capped or len(rows) > NEWEST
        found += rows[:NEWEST]
    short = [term.text for term in terms if len(term.word) < 3]
    if short and not any:
        found = [row for row in found if _holds(row, short)]
    return found, capped


def _holds(row: Row, words: Sequence[str]) -> bool:
    text = row["text"].casefold()
    return all(word in text for word in words)


def _score(row: Row, terms: Sequence[_Term], last: int) -> float:
    text = row["text"].casefold()
    head = "\n".join(text.split("\n", 2)[: _HEAD[row["kind"]]])
    match = 0.0
    for term in terms:
        count = text.count(term.text)
        if count:
            match += 1 + 0.1 * min(count, 5) + 0.5 * _is_word(term.text, text)
            match += 0.5 * (term.text in head)
    return match / len(terms) + 0.6 * row["seq"] / last + 0.1 * math.log2(1 + row["uses"])


def _is_word(term: str, text: str) -> bool:
    at = text.find(term)
    end = at + len(term)
    return not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum())


def _hit(tx: Reading, row: Row, terms: Sequence[_Term]) -> SearchHit:
    event = tx.one(_EVENT, {"number": row["seq"]})
    assert event is not None
    return SearchHit(
        kind=row["kind"],
        name=row["shown"],
        seq=row["seq"],
        at=from_text(event["at"]),
        actor=actor_of(event),
        fact=fact_of(tx, stored_fact(tx, row["name"])) if row["kind"] == "fact" else None,
        snippet=_snippet(row["text"], terms) if row["kind"] != "fact" else "",
        run=_run_of(tx, row["name"]),
    )


def _run_of(tx: Reading, name: str) -> str:
    """The run, as shown, whose memory a document stands for."""
    run, within, _ = name.partition(WITHIN)
    row = run_row(tx, run) if within else None
    return "" if row is None else row["shown"]


def _snippet(text: str, terms: Sequence[_Term]) -> str:
    """The surroundings of the first match, in one line."""
    lower = text.lower()
    places = [at for term in terms if (at := lower.find(term.word.lower())) >= 0]
    at = min(places, default=0)
    start = max(0, at - _SNIPPET // 4)
    if start:
        start = text.rfind(" ", 0, start) + 1 if " " in text[max(0, start - 20) : start] else start
    end = start + _SNIPPET
    cut = re.sub(r"\s+", " ", text[start:end]).strip()
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"
