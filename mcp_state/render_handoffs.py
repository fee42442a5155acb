"""How a handoff reads: what is offered, how it is taken, and what to check first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mcp_state.calls import argument, call, either
from mcp_state.models import Fact, Handoff, HandoffMade, HandoffTaken, Thread
from mcp_state.render_facts import fact_lines
from mcp_state.render_words import ROOM, by, fitted, indented, name, plural
from mcp_state.store.text import one_line
from mcp_state.times import ago, until


def handoff_line(handoff: Handoff, now: datetime) -> str:
    """An offer in the wake-up packet: open, exported, or taken."""
    words = f"{handoff.key} from {by(handoff.created_by, handoff.created_at, now)}"
    words += f" for {one_line(handoff.recipient, 40)}" if handoff.recipient else ""
    if handoff.exported_at is not None:
        words += f", handed over in a file {ago(handoff.exported_at, now)}"
    if handoff.accepted_at is not None and handoff.accepted_by is not None:
        return f"{words}, taken by {by(handoff.accepted_by, handoff.accepted_at, now)}"
    accept = "" if handoff.exported_at else f"   -> {call('handoff_accept', key=handoff.key)}"
    return f"{words}: {one_line(handoff.note)}{accept}"


def handoff_made(made: HandoffMade, now: datetime, room: int = ROOM) -> str:
    """An offer, and how it is taken."""
    key = made.handoff.key
    lines = [
        f"offered as {key}: {plural(made.threads, 'open thread')}, "
        f"{plural(made.runs, 'unfinished run')}, {plural(made.blocks, 'block')} of memory. "
        f"The next agent {either('calls', 'sees it in its orient; in a shell,')} "
        f"{call('handoff_accept', key=key)}"
        f"{either(', through state_op if it is not listed', ' takes it over')}. "
        f"For another machine: `mcp-state export --handoff {key} FILE`, there "
        "`mcp-state import FILE`.",
        *_checks(made.checks, made.facts, now),
    ]
    if left := made.all_facts - len(made.facts):
        lines[0] += f" {plural(left, 'fact')} not named here: {call('fact_list')}."
    return "\n".join(fitted(lines, room)[0])


def handoff_taken(taken: HandoffTaken, now: datetime, packet: str, room: int = ROOM) -> str:
    """What was taken over, the checks to run first, and where the work stands."""
    handoff = taken.handoff
    word = "taken over already" if taken.repeated else "taken over"
    lines = [f"{word}: {handoff.key} from {by(handoff.created_by, handoff.created_at, now)}"]
    if handoff.recipient:
        lines[0] += f", meant for {one_line(handoff.recipient, 40)}"
    if handoff.exported_at is not None:
        when = ago(handoff.exported_at, now)
        lines.append(f"it went out in a file {when}: another machine may be at work on it too")
    lines += ["note:", *indented(handoff.note)]
    for thread in taken.leases:
        assert thread.lease is not None
        lines.append(
            f"now held by you: {name(thread.name)}, {argument('lease_token', thread.lease.token)} "
            f"until {until(thread.lease.until, now)}"
        )
    if taken.checks or not packet:  # the packet has the checks of facts
        lines += _checks(taken.checks, () if packet else taken.facts, now)
    kept, left = fitted(lines, room - len(packet))
    rest = f"{call('thread_list', due=True)}, {call('fact_list')}"
    cut = [f"(+{plural(left, 'line')}: {rest})"] if left else []
    return "\n".join([*kept, *cut, packet])


def _checks(threads: Sequence[Thread], facts: Sequence[Fact], now: datetime) -> list[str]:
    if not threads and not facts:
        return ["no thread or fact says how to check it"]
    lines = [f"    {name(thread.name)}: {one_line(thread.check)}" for thread in threads]
    lines += [f"    {line}" for fact in facts for line in fact_lines(fact, now)]
    return ["run these checks before you rely on what is stored:", *lines]
