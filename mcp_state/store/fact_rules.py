"""What follows for other facts: reasons that may not run in a circle, and beliefs that fall.

A fact falls when each of its reasons holds a fallen premise. Nothing here recurses: a chain or a
fan of thousands is walked with a queue, each fact once.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from mcp_state.calls import argument, call, tool
from mcp_state.errors import BadArgument, VersionConflict
from mcp_state.models import FALLEN, Status, Touched, Trust
from mcp_state.store import documents
from mcp_state.store.fact_rows import believed, find_fact, row_of, stored_fact, text_of
from mcp_state.store.graphs import circle, path
from mcp_state.store.text import fold, one_line, tidy_name
from mcp_state.store.transaction import Reading, Row, Writing
from mcp_state.times import ago, from_text

_REST_ON_IT = """
    SELECT DISTINCT fact FROM premises WHERE project = :project AND premise = :name ORDER BY fact
"""
_REASONS_WITH_IT = """
    SELECT fact, reason FROM premises WHERE project = :project AND premise = :name
    ORDER BY fact, reason
"""
_EDGES = """
    SELECT reason, premise, replaced, fallen FROM premise_rows
    WHERE project = :project AND fact = :name ORDER BY reason, premise
"""
_PREMISES = "SELECT premise FROM premises WHERE project = :project AND fact = :name"
_STATE = "SELECT trust, recheck_at FROM facts WHERE project = :project AND name = :name"
_ADD_PREMISE = """
    INSERT INTO premises (project, fact, reason, premise, given)
    VALUES (:project, :name, :reason, :premise, :seq)
"""
_DROP_REASONS = "DELETE FROM premises WHERE project = :project AND fact = :name"
_DROP_REPLACED = """
    DELETE FROM premises WHERE project = :project AND fact = :name AND reason IN (
        SELECT reason FROM premise_rows
        WHERE project = :project AND fact = :name AND replaced = 1
    )
"""
_FALL = """
    UPDATE facts SET trust = 'stale',
    trust_at = CASE WHEN trust = 'stale' THEN trust_at ELSE :now END,
        recheck_at = NULL
    WHERE project = :project AND name = :name
"""
_COMES_DUE = "UPDATE facts SET recheck_at = :now WHERE project = :project AND name = :name"
_THREADS = """
    SELECT shown, status FROM (
        SELECT DISTINCT project, thread FROM relies
        WHERE project = :project AND fact IN (SELECT value FROM json_each(:facts))
        ORDER BY thread LIMIT :limit
    ) AS found JOIN threads ON threads.project = found.project AND threads.name = thread
    ORDER BY created
"""
MOST_NAMED = 20
_SHORTEN = "Shorten it; what is long belongs in the journal or in a blob. Nothing was saved."


def check_version(tx: Reading, shown: str, row: Row | None, expected: int | None) -> None:
    """Refuse a write to another version than the expected one.

    Raises:
        VersionConflict: it moved on.
    """
    current = 0 if row is None else row["version"]
    if expected is None or expected == current:
        return
    if row is None:
        raise VersionConflict.of(f"fact {shown!r}", expected, 0, "", "", "")
    when = ago(from_text(row["changed_at"]), tx.at)
    fact = f"changed by {one_line(row['agent'], 40)} {when}; {believed(row)}"
    raise VersionConflict(
        f"fact {shown!r} is at version {current}, not {expected} ({fact})",
        "Nothing was saved. See whether what you have to say is about what it says now, and say "
        f"it again with {argument('expected_version', current)}.",
    )


def reasons_of(tx: Reading, name: str) -> tuple[list[set[str]], int]:
    """The reasons of a fact as folded names, and the number of the last one.

    Without those that were given for what is said no more: they can be given anew.
    """
    reasons: dict[int, set[str]] = {}
    replaced: set[int] = set()
    for row in tx.all(_EDGES, {"name": name}):
        reasons.setdefault(row["reason"], set()).add(row["premise"])
        if row["replaced"]:
            replaced.add(row["reason"])
    return [reasons[n] for n in reasons if n not in replaced], max(reasons, default=0)


def _premises_of(tx: Reading, name: str) -> list[str]:
    return [row["premise"] for row in tx.all(_PREMISES, {"name": name})]


def wanted_reason(tx: Writing, shown: str, because: Sequence[str]) -> list[str]:
    """The premises of a new reason, as folded names in the order given.

    Raises:
        BadArgument: it would rest on itself, on what has fallen, or on too many.
        NotFound: one of them does not exist.
    """
    name = fold(shown)
    if len(because) > tx.limits.items:
        raise BadArgument(
            f"{argument('because')} names {len(because)} facts; a reason has at most "
            f"{tx.limits.items}",
            "Derive a fact from some of them first.",
        )
    wanted: list[str] = []
    for one in because:
        premise = fold(tidy_name(one, "because"))
        if premise == name:
            raise _circle([shown, shown])
        row = find_fact(tx, one)
        if row["trust"] in FALLEN:
            raise BadArgument(
                f"{argument('because')} names {row['shown']!r}, which is {row['trust']} (since "
                f"{ago(from_text(row['trust_at']), tx.at)}), so that nothing can rest on it",
                f"{way_out(row)} or give another reason.",
            )
        if premise not in wanted:
            wanted.append(premise)
    if tx.one(_REST_ON_IT, {"name": name}) is not None:
        links = {"": wanted}
        found = path("", name, lambda one: links.get(one) or _premises_of(tx, one))
        if found:
            raise _circle([shown, *(stored_fact(tx, step)["shown"] for step in found)])
    return wanted


def way_out(row: Row) -> str:
    """What can be done about a fact that does not hold, up to a comma."""
    if row["trust"] == Trust.STALE and row["recheck_at"] is None:
        own = "" if row["check"] else " and a check of its own"
        return (
            f"Check what it rests on ({call('fact_list', trust='stale')} shows that), record a "
            f"reason that stands{own} ({tool('fact_record')} with {argument('because')}),"
        )
    if not row["check"]:
        record = call("fact_record", fact=row["shown"], check=...)
        return f"Give it a check with {record} and run it,"
    return f"Run its check ({one_line(row['check'])}) and tell {tool('fact_verify')} what it said,"


def _circle(names: Sequence[str]) -> BadArgument:
    return BadArgument(
        f"that would be an argument in a circle: {circle(names, ' because ')}",
        "Leave one of them out; nothing was changed.",
    )


def resting_on(tx: Reading, name: str) -> list[str]:
    """The facts (folded) that have this one among their premises."""
    return [row["fact"] for row in tx.all(_REST_ON_IT, {"name": name})]


def add_reason(tx: Writing, name: str, number: int, premises: Sequence[str]) -> None:
    """Keep a reason, the next in number."""
    for premise in premises:
        tx.run(_ADD_PREMISE, {"name": name, "reason": number, "premise": premise})


def drop_replaced(tx: Writing, name: str) -> None:
    """Forget the reasons that were given for what is said no more; the events of a fact know."""
    tx.run(_DROP_REPLACED, {"name": name})


def drop_reasons(tx: Writing, name: str) -> None:
    """Forget why the statement that is replaced was believed; its events know."""
    tx.run(_DROP_REASONS, {"name": name})


def stands(tx: Reading, name: str, fallen: Collection[str] = ()) -> bool:
    """Whether some reason of a fact holds no fallen premise; these count as fallen too."""
    reasons: dict[int, bool] = {}
    for row in tx.all(_EDGES, {"name": name}):
        fell = row["fallen"] or row["premise"] in fallen
        reasons[row["reason"]] = reasons.get(row["reason"], True) and not fell
    return not reasons or any(reasons.values())


def falls_with(tx: Reading, name: str) -> Iterator[tuple[str, str]]:
    """What falls if this fact does, the nearest first, each with the premise that it fell with."""
    met: dict[str, _Reasons] = {}
    waiting = deque([name])
    while waiting:
        premise = waiting.popleft()
        for row in tx.all(_REASONS_WITH_IT, {"name": premise}):
            fact = row["fact"]
            if fact not in met:
                met[fact] = _Reasons.of(tx, fact)
            if fact != name and met[fact].falls_without(row["reason"]):
                waiting.append(fact)
                yield fact, premise


@dataclass(slots=True)
class _Reasons:
    """Which reasons of a fact are left while others fall: each edge is looked at once."""

    left: set[int]
    has_fallen: bool

    @classmethod
    def of(cls, tx: Reading, name: str) -> _Reasons:
        state = tx.one(_STATE, {"name": name})
        assert state is not None
        edges = tx.all(_EDGES, {"name": name})
        gone = {row["reason"] for row in edges if row["fallen"]}
        has_fallen = state["trust"] in FALLEN and state["recheck_at"] is None
        return cls({row["reason"] for row in edges} - gone, has_fallen)

    def falls_without(self, reason: int) -> bool:
        """Whether the fact falls when this reason does; it falls once."""
        self.left.discard(reason)
        if self.left or self.has_fallen:
            return False
        self.has_fallen = True
        return True


def fall(tx: Writing, name: str) -> None:
    """Make a fact stale; the event is up to the caller."""
    tx.run(_FALL, {"name": name})


def be_due(tx: Writing, name: str) -> None:
    """Make a fact due now; the event is up to the caller."""
    tx.run(_COMES_DUE, {"name": name})


def let_fall(tx: Writing, name: str, fell: Sequence[tuple[str, str]], why: str) -> Touched:
    """Let fall what falls with a fact (`falls_with`) that fell or says something else now.

    `why` says what became of it.
    """
    for fact, _ in fell:
        fall(tx, fact)
    shown = {name: stored_fact(tx, name)["shown"]}
    for fact, premise in fell:
        row = stored_fact(tx, fact)
        shown[fact] = row["shown"]
        rests = f"rests on {one_line(shown[premise], 80)}"
        words = f"stale: {rests}, which {why if premise == name else 'fell'}"
        tx.event("fall", words, row_of(tx, row), subject=("fact", fact))
    names = [shown[fact] for fact, _ in fell]
    threads = threads_relying(tx, [name, *(fact for fact, _ in fell)])
    return Touched(
        fell=names[:MOST_NAMED],
        fell_count=len(names),
        threads=threads[:MOST_NAMED],
        threads_count=len(threads),
    )


def come_due(tx: Writing, name: str) -> Touched:
    """Ask for a new look at what fell with a fact that holds again: it does not rise by itself."""
    premise = one_line(stored_fact(tx, name)["shown"], 80)
    again: list[str] = []
    facts: list[str] = []
    for fact in resting_on(tx, name):
        if (shown := comes_due(tx, fact, f"{premise} holds again")) is not None:
            again.append(shown)
            facts.append(fact)
    threads = threads_relying(tx, [name, *facts])
    return Touched(
        again=again[:MOST_NAMED],
        again_count=len(again),
        threads=threads[:MOST_NAMED],
        threads_count=len(threads),
    )


def comes_due(tx: Writing, fact: str, why: str) -> str | None:
    """Make a stale fact due if a reason of it stands again; returns its name then."""
    state = tx.one(_STATE, {"name": fact})
    assert state is not None
    if state["trust"] != Trust.STALE or state["recheck_at"] is not None or not stands(tx, fact):
        return None
    be_due(tx, fact)
    row = stored_fact(tx, fact)
    words = f"due: {why}, and nobody has checked since"
    tx.event("due", words, row_of(tx, row), subject=("fact", fact))
    return row["shown"]


def threads_relying(
    tx: Reading, facts: Sequence[str], limit: int = 1000
) -> list[tuple[str, Status]]:
    """Threads that rely on some facts (folded), with their status; at most `limit`."""
    found = tx.all(_THREADS, {"facts": json.dumps(facts), "limit": limit})
    return [(row["shown"], Status(row["status"])) for row in found]


def and_fell(fell: Sequence[object]) -> str:
    """How many fell with a fact, as its event tells it."""
    return f" · {len(fell):,} {'fact' if len(fell) == 1 else 'facts'} fell with it" if fell else ""


def recorded(tx: Writing, name: str, operation: str, words: str) -> Row:
    """Keep what was recorded or verified as the fact's next version; returns its row."""
    row = stored_fact(tx, name)
    tx.event(operation, words, row_of(tx, row), version=row["version"])
    documents.put(tx, "fact", name, row["shown"], text_of(row), row["changed"])
    return row


def fact_text(tx: Writing, text: str, what: str) -> str:
    """A text of a fact as it is kept; `what` names it.

    Raises:
        OverLimit: it is too long.
    """
    return tx.text(text.strip(), what, tx.limits.text, _SHORTEN)
