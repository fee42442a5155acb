"""What may be changed of a thread, and when: status, lease, versions, dependencies, criteria."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict

from mcp_state.calls import argument, asked, call, either, meant, tool
from mcp_state.errors import (
    BadArgument,
    EvidenceRequired,
    Held,
    IllegalTransition,
    LeaseLost,
    VersionConflict,
)
from mcp_state.models import FALLEN, MOVES, OPEN, Lease, Place, Status
from mcp_state.store.events import last_events_of
from mcp_state.store.fact_rows import believed, find_fact, stored_fact
from mcp_state.store.fact_rules import way_out
from mcp_state.store.graphs import circle, path
from mcp_state.store.text import fold, one_line, several, tidy_name
from mcp_state.store.thread_rows import (
    COLUMNS,
    CRITERIA,
    TEXTS,
    find_row,
    lease_of,
    needs_of,
    relies_of,
    stored_row,
)
from mcp_state.store.transaction import Reading, Row, Writing
from mcp_state.times import ago, duration, from_text, span, to_text, until

_IS_NEEDED = "SELECT 1 FROM needs WHERE project = :project AND needed = :name LIMIT 1"
_DEFAULT_RECHECK = timedelta(hours=24)
_DEFAULT_PRIORITY = 5
CLEARABLE = (
    *("next_action", "waiting_on", "check", "evidence", "note", "places", "depends_on"),
    "relies_on",
)
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("waiting", "wait", "stuck", "onhold"), Status.BLOCKED),
    **dict.fromkeys(("open", "todo", "doing", "inprogress", "started"), Status.ACTIVE),
    **dict.fromkeys(("closed", "finished", "complete", "completed", "resolved"), Status.DONE),
    **dict.fromkeys(("cancelled", "canceled", "wontfix", "abandoned"), Status.DROPPED),
}
"""What other trackers call a status."""
SHORTEN = "Shorten it; long text belongs in the journal or in a memory block."


class Changes(TypedDict, total=False):
    """What `Threads.set` is asked to change; what is absent or None stays as it is."""

    status: Status | str | None
    title: str | None
    next_action: str | None
    waiting_on: str | None
    recheck_after: str | None
    check: str | None
    evidence: str | None
    note: str | None
    priority: int | None
    depends_on: Sequence[str] | None
    relies_on: Sequence[str] | None
    criteria: Sequence[str] | None
    places: Sequence[Place] | None
    clear: Sequence[str]


def parse_status(text: str) -> Status:
    """A status in any case, with `-`, `_` or spaces around.

    Raises:
        BadArgument: there is no such status.
    """
    word = re.sub(r"[-_\s]+", "", text).lower()
    try:
        return Status(word)
    except ValueError:
        raise BadArgument(
            f"status is {text[:40]!r}",
            f"{meant(word, Status, _ELSEWHERE)}Statuses are {', '.join(s.value for s in Status)}.",
        ) from None


def place_of(given: Mapping[str, Any]) -> Place:
    """A place out of `path_or_repo`, `role` and `note`.

    Raises:
        BadArgument: one of them is unknown, missing or wrong.
    """
    unknown = given.keys() - {"path_or_repo", "role", "note"}
    path, role = given.get("path_or_repo"), given.get("role") or "home"
    note = given.get("note") or ""
    wrong = unknown or not isinstance(path, str) or not path.strip() or not isinstance(note, str)
    if wrong or role not in ("home", "donor", "archival"):
        raise BadArgument(
            f"a place is {dict(given)!r:.80}",
            "A place has path_or_repo, role (home, donor, archival) and note.",
        )
    return Place(str(path), role, note)


def check_version(tx: Reading, shown: str, row: Row | None, expected: int | None) -> None:
    """Refuse a write to another version than the expected one.

    Raises:
        VersionConflict: it moved on.
    """
    current = 0 if row is None else row["version"]
    if expected is None or expected == current:
        return
    by = ""
    if row:
        when = ago(from_text(row["changed_at"]), tx.at)
        by = f"changed by {one_line(row['agent'], 40)} {when}"
    raise VersionConflict.of(
        f"thread {shown!r}",
        expected,
        current,
        by,
        call("thread_get", thread=shown),
        tool("thread_set"),
    )


def check_lease(tx: Reading, row: Row, token: int | None) -> None:
    """Whether a write with this token may go ahead."""
    held, shown = lease_of(tx, row), row["shown"]
    if token and token != row["lease_token"]:
        now = f"{one_line(held.holder.agent, 40)} holds it now" if held else "nobody holds it now"
        raise LeaseLost(
            f"lease token {token} of thread {shown!r} is not the current one; {now}",
            f"Nothing was changed. Read it with {call('thread_get', thread=shown)} before you go on"
            + ("." if held else f"; {tool('thread_claim')} gives a new token."),
        )
    if held is not None and not token:
        raise held_by(tx, shown, row["name"], held)


def held_by(tx: Reading, shown: str, name: str, lease: Lease) -> Held:
    """The refusal: by whom it is held, until when, and what they did last."""
    left = span((lease.until - tx.at).total_seconds())
    events, _ = last_events_of(tx, "thread", name, 20)
    theirs = [e for e in events if e.actor == lease.holder]
    last = ""
    if theirs:
        last = f"; last: {one_line(theirs[-1].summary)} {ago(theirs[-1].at, tx.at)}"
    holder = one_line(lease.holder.agent, 40)
    me = tx.caller.actor
    if lease.holder.agent == me.agent and lease.holder.session != me.session:
        holder = f"another session of {holder}"
    return Held(
        f"thread {shown!r} is held by {holder} until {until(lease.until, tx.at)} "
        f"({left} more){last}",
        f"Take another thread ({tool('thread_claim')} without a thread), or pass the "
        f"{argument('lease_token')} if it is yours"
        + either(
            ".",
            f", or, if its holder is gone, {call('thread_release', thread=shown, force=True)}.",
        ),
    )


def merged(tx: Writing, shown: str, row: Row | None, changes: Changes) -> dict[str, Any]:
    """The columns as they will be, after every rule about them."""
    fields = _given(tx, shown, row, changes)
    old = None if row is None else Status(row["status"])
    status = changes.get("status")
    new = parse_status(status) if status else old or Status.ACTIVE
    if old is not None and new is not old:
        _check_move(shown, old, new, changes)
    recheck_after = changes.get("recheck_after")
    fields["status"] = new.value
    fields["status_at"] = tx.now if row is None or new is not old else row["status_at"]
    if new not in (Status.WATCHING, Status.BLOCKED):
        if recheck_after is not None:
            raise _belongs("recheck_after", shown, new)
        if changes.get("waiting_on"):
            raise _belongs("waiting_on", shown, new)
        fields["waiting_on"], fields["recheck_at"] = "", None
    elif recheck_after is not None:
        fields["recheck_at"] = to_text(tx.at + duration(recheck_after, "recheck_after"))
    elif status or fields["recheck_at"] is None:
        fields["recheck_at"] = to_text(tx.at + _DEFAULT_RECHECK)
    if (
        old in (Status.DONE, Status.DROPPED)
        and new is Status.ACTIVE
        and changes.get("evidence") is None
    ):
        fields["evidence"] = ""
    _check_needs_of_status(tx, shown, row, new, fields, changes)
    return fields


def _given(tx: Writing, shown: str, row: Row | None, changes: Changes) -> dict[str, Any]:
    """The columns as they are, with what was given put over them."""
    fields: dict[str, Any] = dict.fromkeys(TEXTS, "") | {
        "title": shown,
        "priority": _DEFAULT_PRIORITY,
        "recheck_at": None,
        "places": "[]",
    }
    if row is not None:
        fields |= {column: row[column] for column in COLUMNS}
    for cleared in changes.get("clear", ()):
        if cleared not in CLEARABLE:
            known = ", ".join(CLEARABLE)
            raise BadArgument(
                f"{cleared[:40]!r} cannot be cleared",
                f"{argument('clear')} takes {either(known, known.replace('_', '-'))}.",
            )
        if changes.get(cleared):
            raise BadArgument(
                f"{argument(cleared)} is both given and to be cleared", "Do one of the two."
            )
        fields[cleared] = "[]" if cleared == "places" else ""
    for column in TEXTS:
        value: str | None = changes.get(column)
        if value is not None:
            limit = tx.limits.title if column == "title" else tx.limits.text
            fields[column] = tx.text(value, f"{column} of thread {shown!r}", limit, SHORTEN)
    if (priority := changes.get("priority")) is not None:
        if not 1 <= priority <= 9:
            raise BadArgument(f"priority is {priority}", "Use 1 (first) to 9 (last).")
        fields["priority"] = priority
    if places := changes.get("places"):
        fields["places"] = _places(tx, places)
    return fields


def _places(tx: Writing, places: Sequence[Place]) -> str:
    if len(places) > tx.limits.items:
        raise BadArgument(f"{len(places)} places; a thread has at most {tx.limits.items}", "")
    return json.dumps(
        [
            {
                "path_or_repo": tx.text(p.path_or_repo, "path_or_repo", tx.limits.text, SHORTEN),
                "role": p.role,
                "note": tx.text(p.note, "the note of a place", tx.limits.text, SHORTEN),
            }
            for p in places
        ],
        ensure_ascii=False,
    )


def _check_move(shown: str, old: Status, new: Status, changes: Changes) -> None:
    if new not in MOVES[old]:
        raise IllegalTransition(
            f"thread {shown!r} is {old}, it cannot become {new}",
            f"From {old} it can become: {', '.join(MOVES[old])} (with "
            f"{either('a note', asked('note'))} saying why).",
        )
    if old not in OPEN and _is_blank(changes.get("note")):
        raise IllegalTransition(
            f"thread {shown!r} is {old}; it reopens only with a note saying why",
            reopening(shown),
        )


def _is_blank(text: str | None) -> bool:
    """Whether a text says nothing, so that it is no reason and proves nothing."""
    return not text or text.isspace()


def reopening(shown: str) -> str:
    """The call that reopens a thread."""
    return f"{call('thread_set', thread=shown, status='active', note='why')}."


def _belongs(field: str, shown: str, status: Status) -> BadArgument:
    return BadArgument(
        f"{argument(field)} belongs to watching or blocked, and thread {shown!r} would be {status}",
        f"Leave {argument(field)} out, or set status to watching or blocked.",
    )


def _check_needs_of_status(
    tx: Writing,
    shown: str,
    row: Row | None,
    new: Status,
    fields: dict[str, Any],
    changes: Changes,
) -> None:
    if new is Status.BLOCKED and _is_blank(fields["waiting_on"]):
        raise BadArgument(
            f"thread {shown!r} is to be blocked, but {argument('waiting_on')} does not say on whom "
            "or what",
            f"Give {asked('waiting_on')}; use watching if there is nothing to wait for.",
        )
    moved = row is None or row["status"] != new
    if new is Status.DROPPED and _is_blank(changes.get("note") if moved else fields["note"]):
        raise BadArgument(
            f"thread {shown!r} is to be dropped without a note",
            f"Give {either('a note', asked('note'))} saying why.",
        )
    if new is not Status.DONE:
        return
    if _is_blank(fields["evidence"]):
        raise EvidenceRequired(
            f"thread {shown!r} is not done without evidence",
            f"Give {asked('evidence')}: a test run and its exit code, a commit, a link, file:line.",
        )
    criteria = [] if row is None else tx.all(CRITERIA, {"name": row["name"]})
    failing = [f"{c['number']} ({one_line(c['text'], 60)})" for c in criteria if not c["passes"]]
    there = {c["text"] for c in criteria}
    added = [text for text in several(changes.get("criteria")) if text.strip() not in there]
    if added and moved:
        raise EvidenceRequired(
            f"thread {shown!r} cannot be done: its new criteria were not checked",
            f"Add the criteria first, mark them with {tool('thread_check')}, then set done.",
        )
    if moved or changes.get("relies_on"):
        _check_facts(tx, shown, row, changes)
    if failing:
        more = f" and {len(failing) - 5} more" if len(failing) > 5 else ""
        raise EvidenceRequired(
            f"{len(failing)} of {len(criteria)} criteria of thread {shown!r} do not pass: "
            f"{', '.join(failing[:5])}{more}",
            f"Mark each with {tool('thread_check')} when it holds.",
        )


def _check_facts(tx: Writing, shown: str, row: Row | None, changes: Changes) -> None:
    """Nothing is done on the strength of what does not hold."""
    there: set[str] = set() if row is None else relies_of(tx, row["name"])
    given = _given_facts(tx, shown, changes)
    facts = [stored_fact(tx, name) for name in sorted(there if given is None else given)]
    fallen = [fact for fact in facts if _does_not_hold(fact)]
    if fallen:
        nothing = either('clear=["relies_on"]', "--clear relies-on")
        named = [f"{one_line(f['shown'], 60)!r} ({_state(f)}; {believed(f)})" for f in fallen[:3]]
        more = f" and {len(fallen) - 3} more" if len(fallen) > 3 else ""
        raise EvidenceRequired(
            f"thread {shown!r} cannot be done: it relies on what does not hold: "
            f"{', '.join(named)}{more}",
            f"{way_out(fallen[0])} or say with {argument('relies_on')} what the work rests on now "
            f"({nothing}: on nothing).",
        )


def _does_not_hold(fact: Row) -> bool:
    """Whether it fell, or stands in the place of what fell and was never checked itself."""
    return fact["trust"] in FALLEN or (fact["held"] is None and fact["replaces"] in FALLEN)


def _state(fact: Row) -> str:
    if fact["trust"] in FALLEN:
        return fact["trust"]
    return f"never checked, and what it said before was {fact['replaces']}"


def wanted_facts(tx: Writing, shown: str, name: str, changes: Changes) -> set[str] | None:
    """The names of the facts it will rely on, or None for no change."""
    wanted = _given_facts(tx, shown, changes)
    return None if wanted is None or wanted == relies_of(tx, name) else wanted


def dropped_facts(tx: Writing, name: str, wanted: set[str]) -> str:
    """In words, what a thread no longer relies on, so that it can be seen later."""
    dropped = [stored_fact(tx, fact) for fact in sorted(relies_of(tx, name) - wanted)]
    named = [f"{one_line(fact['shown'], 60)} ({fact['trust']})" for fact in dropped[:5]]
    more = f" and {len(dropped) - 5} more" if len(dropped) > 5 else ""
    return f"no longer relies on {', '.join(named)}{more}" if dropped else ""


def _given_facts(tx: Writing, shown: str, changes: Changes) -> set[str] | None:
    """The facts that were named; an empty list is what models send for what they leave out."""
    if not changes.get("relies_on") and "relies_on" not in changes.get("clear", ()):
        return None
    given = several(changes.get("relies_on"))
    if len(given) > tx.limits.items:
        raise BadArgument(
            f"{argument('relies_on')} names {len(given)} facts; thread {shown!r} can rely on at "
            f"most {tx.limits.items}",
            f"Derive a fact from some of them, with {argument('because')}, and rely on that.",
        )
    return {find_fact(tx, one)["name"] for one in given}


def wanted_needs(tx: Writing, shown: str, name: str, changes: Changes) -> set[str] | None:
    """The names of the threads it will depend on, or None for no change."""
    if not changes.get("depends_on") and "depends_on" not in changes.get("clear", ()):
        return None  # an empty list is what models send for what they leave out
    wanted = several(changes.get("depends_on"))
    if len(wanted) > tx.limits.items:
        raise BadArgument(f"{len(wanted)} dependencies; a thread has at most {tx.limits.items}", "")
    needs: set[str] = set()
    for one in wanted:
        needed = fold(tidy_name(one, "depends_on"))
        if needed == name:
            raise _circle([shown, shown])
        find_row(tx, one)
        needs.add(needed)
    links = {"": needs}
    is_needed = tx.one(_IS_NEEDED, {"name": name}) is not None  # what is not closes no circle
    if is_needed and (found := path("", name, lambda one: links.get(one) or needs_of(tx, one))):
        raise _circle([shown, *(stored_row(tx, step)["shown"] for step in found)])
    return None if needs == needs_of(tx, name) else needs


def _circle(names: Sequence[str]) -> BadArgument:
    return BadArgument(
        f"that would be a circle of dependencies: {circle(names, ' -> ')}",
        "Leave one of them out; nothing was changed.",
    )


def new_criteria(
    tx: Writing, shown: str, row: Row | None, criteria: Sequence[str]
) -> list[tuple[int, str]]:
    """Number those criteria that are new."""
    there = (
        {}
        if row is None
        else {c["text"]: c["number"] for c in tx.all(CRITERIA, {"name": row["name"]})}
    )
    new: dict[str, int] = {}
    for one in criteria:
        text = tx.text(one.strip(), "a criterion", tx.limits.text, SHORTEN)
        if not text:
            raise BadArgument("a criterion is empty", "Say what must hold.")
        if text not in there and text not in new:
            new[text] = len(there) + len(new) + 1
    if len(there) + len(new) > tx.limits.criteria:
        raise BadArgument(
            f"thread {shown!r} would have {len(there) + len(new)} criteria; "
            f"at most {tx.limits.criteria}",
            "Split it into several threads.",
        )
    if new and row is not None and row["status"] == Status.DONE:
        raise IllegalTransition(
            f"thread {shown!r} is done; it gets no more criteria",
            f"Reopen it first: {reopening(shown)}",
        )
    return [(number, text) for text, number in new.items()]


def same(row: Row, fields: dict[str, Any]) -> bool:
    """Whether the columns are what they were."""
    return all(row[column] == fields[column] for column in COLUMNS)


def summary(
    old: Row | None, new: Row, criteria: int = 0, links: Sequence[str] = (), dropped: str = ""
) -> str:
    """The change in one line, for people who read it later."""
    moved = old is None or old["status"] != new["status"]
    if old is None:
        words = [f"{new['status']}: {new['title']}"]
    elif moved:
        words = [f"{old['status']} -> {new['status']}"]
    else:
        changed = [c for c in COLUMNS if old[c] != new[c] and c != "note"]
        changed += links
        words = [f"changed {', '.join(changed)}"] if changed else ["changed"]
    if new["status"] == Status.BLOCKED:
        words.append(f"(waiting on {new['waiting_on']})")
    if criteria:
        words.append(f"(+{criteria} criteria)")
    if dropped:
        words.append(f"({dropped})")
    if new["status"] == Status.DONE and moved:
        words.append(f"(evidence: {new['evidence']})")
    if new["note"] and (old is None or old["note"] != new["note"]):
        words.append(f"({new['note']})")
    return " ".join(" ".join(words).split())
