"""The wake-up packet: what an agent that knows nothing yet needs first, within a token budget.

Everything is gathered from one snapshot, by index, a bounded number of rows of each kind. When the
budget is short, the order of value decides what stays, and every cut says what it left out and
which call shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from mcp_state import lookups, render, render_facts, render_handoffs, render_runs
from mcp_state.calls import argument, call, tool
from mcp_state.errors import BadArgument
from mcp_state.git import head_of
from mcp_state.models import (
    FALLEN,
    Caller,
    Event,
    Fact,
    Handoff,
    JournalEntry,
    MemoryBlock,
    OpenRun,
    Packet,
    Run,
    RunStatus,
    Status,
    Thread,
    Totals,
    Trust,
)
from mcp_state.store import journal, memory, run_rows, thread_rows
from mcp_state.store.events import count_changes, last_events
from mcp_state.store.fact_rows import (
    carrying,
    fallen_since,
    found_for,
    list_facts,
    with_found,
)
from mcp_state.store.fact_rules import threads_relying
from mcp_state.store.handoffs import last_handoffs, open_handoffs
from mcp_state.store.noun import Noun, reads
from mcp_state.store.objectives import current_objective
from mcp_state.store.text import clean, fold
from mcp_state.store.transaction import Reading
from mcp_state.times import ago, from_text, to_text

CHARS_PER_TOKEN = 4
LEAST_TOKENS = 150
MOST_TOKENS = 50_000
_RECENT = timedelta(hours=24)
_ALWAYS = 3
_MANY = 1000
_DEAD_ENDS = 5
_HANDOFFS = 5
_FACTS = 25
_THREADS = 3
_NOT_TO_CHECK = (*FALLEN, Trust.ARCHIVAL)
_OLD_OFFER = timedelta(days=30)
_MINE = """
    SELECT max(seq) FROM last_events WHERE project = :project AND session = :session
"""
_EARLIER = """
    SELECT seq FROM last_events
    WHERE project = :project AND agent = :agent AND worktree = :worktree
    ORDER BY seq DESC LIMIT 1
"""
_AT = "SELECT at FROM events WHERE project = :project AND seq = :last"

_OF_BRIEF = ("OBJECTIVE", "NOW", "RUN", "DEAD ENDS", "CHECK BEFORE YOU RELY ON IT")


def _shared() -> tuple[str, ...]:
    claim, step, journal = (tool(t) for t in ("thread_claim", "step_begin", "journal_append"))
    return (
        f"SHARED WORK Others work here too: {claim} a thread before you work on it; `held` means "
        "that somebody else is on it, also if that is this session.",
        f"    {step} before each step of a run: done comes with the result, do not redo it.",
        f"    {journal} (thread, kind) what you found, dead ends too, before you return.",
    )


def _write_back() -> str:
    journal, thread, memory = (tool(t) for t in ("journal_append", "thread_set", "memory_set"))
    return (
        f"WRITE BACK {journal} before you stop or compact · {thread} when a status changes · "
        f"{memory} for what the next session must know"
    )


def _guide() -> tuple[str, ...]:
    claim, token = tool("thread_claim"), argument("lease_token")
    waiting_on, evidence, note = (argument(a) for a in ("waiting_on", "evidence", "note"))
    return (
        "    Statuses: active (work on it now), watching (look again later), blocked "
        f"({waiting_on}), done ({evidence}), dropped ({note}).",
        f"    Claim a thread before you work on it if others may too: {claim} gives a {token}.",
        "    What is stored was true when it was written: run its check before you rely on it.",
    )


def _begin() -> list[str]:
    thread = call("thread_set", thread="short-name", title="…", next_action="…")
    fact = call("fact_record", fact="…", statement="…", check="…")
    return [
        "Nothing is stored for this project yet. To begin:",
        f"    {call('objective_set', objective='…')} for what this is all about",
        f"    {thread} for each line of work",
        f"    {call('memory_set', key='plan', value='…')} for what the next session must know",
        f"    {fact} for what you believe",
        f"    {call('journal_append', text='…')} for what happened",
    ]


class Orient(Noun):
    """The packet of one project, for one caller."""

    async def packet(
        self,
        max_tokens: int,
        since: int | None,
        *,
        most_bytes: int | None = None,
        patience: float = lookups.PATIENCE,
    ) -> Packet:
        """Gather and render the packet.

        `max_tokens` is the budget of the text, at 4 characters a token, 150 to 50,000;
        `most_bytes` is another, in UTF-8. `since` is the event number after which changes are
        news; by default this session's last event, for a new session the last one of the same
        agent in the same worktree. `patience` is how many seconds the addresses of checks are
        looked up for.

        Raises:
            BadArgument: the budget is out of range.
        """
        if not LEAST_TOKENS <= max_tokens <= MOST_TOKENS:
            raise BadArgument(
                f"{argument('max_tokens')} is {max_tokens}",
                f"Give {LEAST_TOKENS} to {MOST_TOKENS:,}; 2,000 is the default.",
            )
        if since is not None and since < 0:
            raise BadArgument(f"since is {since}", "Give an event number, 0 for the beginning.")
        packet, totals, now = await self._gathered(since)
        if totals is None:
            return packet
        packet = await self._looked_up(packet, patience)
        room = max_tokens * CHARS_PER_TOKEN
        text = _text(packet, totals, self.caller, now, room)
        while most_bytes and len(text.encode()) > most_bytes and room > LEAST_TOKENS:
            room = room * most_bytes // len(text.encode())
            text = _text(packet, totals, self.caller, now, room)
        return replace(packet, text=text)

    async def brief(self, max_tokens: int) -> Packet:
        """The packet for one who joins in with a part of the work: what is held stands first."""
        packet, totals, now = await self._gathered(None)
        if totals is None or not totals.exists:
            return packet
        held = await self._held()
        names = {thread.name for thread in held}
        active = [*held, *(t for t in packet.active if t.name not in names)]
        packet = replace(packet, active=active)
        text = _brief(packet, totals, self.caller, now, max_tokens * CHARS_PER_TOKEN)
        return replace(packet, text=text)

    @reads
    def _held(self, tx: Reading) -> Sequence[Thread]:
        return thread_rows.held(tx, 10)

    async def _looked_up(self, packet: Packet, patience: float) -> Packet:
        """The packet with what the server finds at the addresses of checks."""
        threads = [*packet.active, *packet.due, *packet.blocked]
        premises = (premise for thread in threads for premise in thread.relies_on)
        facts = [*packet.facts, *packet.fallen]
        found = await found_for(self.worktree, facts, premises, seconds=patience)
        if not found:
            return packet
        return replace(
            packet,
            facts=[with_found(fact, found) for fact in packet.facts],
            fallen=[with_found(fact, found) for fact in packet.fallen],
            active=[thread_rows.thread_with_found(thread, found) for thread in packet.active],
            due=[thread_rows.thread_with_found(thread, found) for thread in packet.due],
            blocked=[thread_rows.thread_with_found(thread, found) for thread in packet.blocked],
        )

    @reads
    def _gathered(self, tx: Reading, since: int | None) -> tuple[Packet, Totals | None, datetime]:
        if not self.caller.project:
            text = render.unknown_project(tx.known_projects()) + "\n[no project]"
            return Packet(text, None, 0, 0, (), (), (), (), {}, (), ()), None, tx.at
        totals = tx.totals()
        return _gather(tx, totals, since), totals, tx.at


def _gather(tx: Reading, totals: Totals, since: int | None) -> Packet:
    actor = tx.caller.actor
    seen = tx.scalar(_MINE, {"session": actor.session}) if actor.session else None
    if seen is None:
        params = {"agent": actor.agent, "worktree": clean(tx.caller.worktree)[0]}
        seen = tx.scalar(_EARLIER, params)
    last_here = from_text(tx.scalar(_AT, {"last": seen})) if seen else None
    start = since if since is not None else seen or 0
    changes = last_events(tx, start, 60) if seen or since is not None else []
    if len(changes) < _ALWAYS:
        earliest = to_text(tx.at - _RECENT)
        recent = [e for e in last_events(tx, 0, _ALWAYS) if to_text(e.at) >= earliest]
        changes = recent if len(recent) > len(changes) else changes
    active = thread_rows.list_threads(tx, Status.ACTIVE, False, 25, "").threads
    mine = thread_rows.held_here(tx, 10)
    names = {thread.name for thread in mine}
    due = thread_rows.list_threads(tx, None, True, 25, "").threads
    blocked = thread_rows.list_threads(tx, Status.BLOCKED, False, 25, "").threads
    relied = carrying(tx, [*mine, *active, *due, *blocked], _FACTS)
    listed = list_facts(tx, None, False, _FACTS, "")
    fallen = _fallen(tx, relied, min(last_here or tx.at, tx.at - _RECENT))
    return Packet(
        text="",
        last_here=last_here,
        since=start,
        news=_count_news(tx, totals, start) if seen or since is not None else 0,
        changes=changes,
        active=[*mine, *(t for t in active if t.name not in names)],
        due=due,
        blocked=[t for t in blocked if not t.due],
        due_count=thread_rows.count_due(tx),
        memory=memory.recent_blocks(tx, 25),
        journal=journal.tail(tx, 10).entries,
        runs=[_open_run(tx, run) for run in run_rows.runs_of_status(tx, [RunStatus.OPEN], 5)],
        failed_runs=run_rows.runs_of_status(tx, [RunStatus.FAILED], _DEAD_ENDS),
        stopped_steps=run_rows.stopped_steps(tx, _DEAD_ENDS),
        dead_ends=journal.tail(tx, _DEAD_ENDS, kind="dead_end").entries,
        handoffs=[
            *(h for h in open_handoffs(tx, _HANDOFFS) if tx.at - h.created_at < _OLD_OFFER),
            *(h for h in last_handoffs(tx, _HANDOFFS) if _was_taken_lately(h, tx.at)),
        ],
        objective=current_objective(tx),
        facts=_to_check(relied, listed.facts),
        fallen=fallen,
        fallen_under={f.name: threads_relying(tx, [fold(f.name)], _THREADS) for f in fallen},
        facts_due=listed.due,
    )


def _to_check(relied: Sequence[Fact], listed: Sequence[Fact]) -> list[Fact]:
    """Facts that may still be believed: what threads rely on, then the others."""
    live = [fact for fact in relied if fact.trust not in FALLEN or fact.due]
    live += [fact for fact in listed if fact.trust not in _NOT_TO_CHECK or fact.due]
    return list({fact.name: fact for fact in live}.values())


def _fallen(tx: Reading, relied: Sequence[Fact], since: datetime) -> list[Fact]:
    """What does not hold any more: what a thread relies on, and what fell lately."""
    found = {fact.name: fact for fact in [*relied, *fallen_since(tx, to_text(since), _FACTS)]}
    return [fact for fact in found.values() if fact.trust in FALLEN and not fact.due]


def _was_taken_lately(handoff: Handoff, now: datetime) -> bool:
    return handoff.accepted_at is not None and now - handoff.accepted_at < _RECENT


def _count_news(tx: Reading, totals: Totals, start: int) -> int:
    """Changes after an event; where there are many, traces and facts that fell count too."""
    count = count_changes(tx, start)
    return count if count < _MANY else max(0, totals.event - start)


def _open_run(tx: Reading, run: Run) -> OpenRun:
    """A run with what the next session has to know of it."""
    name = fold(run.name)
    moved = False
    last = run_rows.checkpoint_row(tx, name, run.checkpoints)
    if last is not None and tx.caller.worktree:
        then, now = run_rows.checkpoint_of(last).git.head, head_of(tx.caller.worktree).head
        moved = bool(then and now and then != now)
    failing = [
        s for s in run_rows.last_steps(tx, name, "failed", 5) if s.streak >= run_rows.WARN_AT
    ]
    return OpenRun(run, moved, run_rows.left_open(tx, name, 2), failing)


@dataclass(slots=True)
class _Section:
    """One part of the packet: its items in order of value, and what shows the rest."""

    title: str
    items: Sequence[Sequence[str]]
    total: int
    more: str
    first: int  # value of the first item: lower is kept longer
    step: int  # how much less each further item is worth
    shown: int = 0
    reverse: bool = False
    total_is: Literal["", " at least", " at most"] = ""

    @property
    def vital(self) -> bool:
        """Whether its first item stays longer than the headings of other parts."""
        return self.first < 2

    def lines(self) -> list[str]:
        """The part as it stands now."""
        items = list(self.items[: self.shown])
        if self.reverse:
            items.reverse()
        return [self.heading(), *(f"    {line}" for item in items for line in item)]

    def heading(self) -> str:
        """Its title, and what is left out."""
        left = self.total - self.shown
        if not left:
            return self.title
        plus = "+" if self.shown else ""
        unit = " more" if self.shown else ""
        return f"{self.title} ({plus}{left:,}{unit}{self.total_is}: {self.more})"


def _text(packet: Packet, totals: Totals, caller: Caller, now: datetime, room: int) -> str:
    head = _head(packet, totals, caller, now)
    last = render.scope(totals)
    write_back = _write_back()
    if _size([head, write_back, last]) > room:
        last = render.scope(replace(totals, remark=""))
    if not totals.exists:
        begin = _begin()
        while _size([head, *begin, last]) > room:
            begin.pop()
        return "\n".join([head, *begin, last])
    sections = [s for s in _sections(packet, totals, caller, now, room) if s.total]
    guide = _guide() if room >= 6000 else ()
    if room >= 2000:
        of_facts = f" · {tool('fact_verify')} with what a check said"
        of_runs = f" · {tool('run_checkpoint')} after each step of a run"
        write_back += of_facts if packet.facts else ""
        write_back += of_runs if packet.runs else ""
    left = room - _size([head, write_back, *guide, last])
    return "\n".join([head, *_fitted(sections, left), write_back, *guide, last])


def _brief(packet: Packet, totals: Totals, caller: Caller, now: datetime, room: int) -> str:
    """What one must keep away from, and what one may build on."""
    sections = [
        section
        for section in _sections(packet, totals, caller, now, room)
        if section.total and section.title in _OF_BRIEF
    ]
    last = [*_shared(), render.scope(totals)]
    return "\n".join([*_fitted(sections, room - _size(last)), *last])


def _fitted(sections: list[_Section], room: int) -> list[str]:
    """The lines of the parts, with as much in each as there is room for."""
    cut = _fit_headings(sections, room)
    _fill(sections, room - _size(cut) - sum(_size(section.lines()) for section in sections))
    return [*(line for section in sections for line in section.lines()), *cut]


def _size(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _fit_headings(sections: list[_Section], room: int) -> list[str]:
    """Show the first item of what matters most, and the headings that fit beside it.

    Returns:
        A line that names the parts which were left out.
    """
    vital = [section for section in sections if section.vital and section.items]
    for section in vital:
        section.shown = 1
    cut: list[str] = []
    left_out: list[str] = []
    while sum(_size(section.lines()) for section in sections) + _size(cut) > room:
        least = max(sections, key=lambda section: section.first)
        if least.vital and least.shown:
            least.shown = 0
            continue
        sections.remove(least)
        left_out.insert(0, least.title)
        cut = [f"(no room for {', '.join(left_out)}: {call('orient', max_tokens=2000)})"]
        if not sections and _size(cut) > room:
            return []
    return cut


def _fill(sections: Sequence[_Section], room: int) -> None:
    """Show items in the order of their value; a part ends with the first that does not fit."""
    offers = sorted(
        (section.first + section.step * i, n, i)
        for n, section in enumerate(sections)
        for i in range(section.shown, len(section.items))
    )
    closed: set[int] = set()
    for _, n, i in offers:
        section = sections[n]
        if n in closed or i != section.shown:
            continue
        before = len(section.heading())
        section.shown += 1
        added = len(section.heading()) - before + sum(len(line) + 5 for line in section.items[i])
        if added > room:
            section.shown -= 1
            closed.add(n)
        else:
            room -= added


def _head(packet: Packet, totals: Totals, caller: Caller, now: datetime) -> str:
    here = f"last here {ago(packet.last_here, now)}" if packet.last_here else "new here"
    parts = [
        f"project {render.one_line(totals.project, 130)} (from {totals.how})",
        f"agent {render.one_line(caller.actor.agent, 40) or 'unknown'}",
        here,
        f"event {totals.event}",
    ]
    return " · ".join(parts)


def _sections(
    packet: Packet, totals: Totals, caller: Caller, now: datetime, room: int
) -> list[_Section]:
    session = caller.actor.session
    roomy = room >= 6000
    changes = _changes(packet.changes, now)
    hidden = packet.news - len(packet.changes)
    due = packet.due_count
    many_due = any(count > thread_rows.MOST_COUNTED for count in due.values())
    dead_ends = _dead_ends(packet, now)
    later = {status: totals.threads.get(status, 0) - count for status, count in due.items()}
    to_check = _in_order(packet)
    stands_again = packet.facts_due.get(Trust.STALE, 0)
    live = totals.facts.get(Trust.TRUSTED, 0) + totals.facts.get(Trust.PROVISIONAL, 0)
    live += stands_again - (len(packet.facts) - len(to_check))
    fallen = sum(totals.facts.get(trust, 0) for trust in FALLEN) - stands_again
    return [
        _Section(
            "OBJECTIVE",
            _objective(packet, now, room),
            1 if packet.objective else 0,
            call("history", subject="objective"),
            first=0,
            step=2,
        ),
        _Section(
            "SINCE YOU WERE HERE" if packet.news else "LAST CHANGES",
            changes,
            len(changes) + max(0, hidden),
            call("history", since=packet.since) if packet.news else call("history"),
            first=4,
            step=4,
        ),
        _Section(
            "HANDOFF",
            [[render_handoffs.handoff_line(h, now)] for h in packet.handoffs],
            len(packet.handoffs),
            call("history", subject="handoff:KEY"),
            first=2,
            step=4,
        ),
        _Section(
            "NOW",
            [_thread(t, now, session) for t in packet.active],
            max(totals.threads.get("active", 0), len(packet.active)),
            call("thread_list", status="active"),
            first=0,
            step=2,
        ),
        _Section(
            "DUE",
            [_thread(t, now, session) for t in packet.due],
            sum(due.values()),
            call("thread_list", due=True),
            first=1,
            step=2,
            total_is=" at least" if many_due else "",
        ),
        _Section(
            "BLOCKED",
            [_thread(t, now, session) for t in packet.blocked],
            max(later[Status.BLOCKED], len(packet.blocked)),
            call("thread_list", status="blocked"),
            first=6,
            step=4,
            total_is=_at_most(due[Status.BLOCKED]),
        ),
        _Section(
            "WATCHING",
            [],
            max(0, later[Status.WATCHING]),
            call("thread_list", status="watching"),
            first=9,
            step=4,
            total_is=_at_most(due[Status.WATCHING]),
        ),
        _Section(
            "NO LONGER HOLDS",
            [_fallen_lines(fact, packet, now) for fact in packet.fallen],
            max(fallen, len(packet.fallen)),
            f"{call('fact_list', trust='refuted')}, {call('fact_list', trust='stale')}",
            first=2,
            step=3,
        ),
        _Section(
            "CHECK BEFORE YOU RELY ON IT",
            [render_facts.fact_lines(f, now) for f in to_check],
            max(live, len(to_check)),
            call("fact_list"),
            first=2,
            step=2,
            total_is=" at most" if live > _FACTS else "",
        ),
        _Section(
            "RUN",
            [render_runs.run_in_orient(one, now) for one in packet.runs],
            totals.runs.get(RunStatus.OPEN, 0),
            call("run_list", status="open"),
            first=2,
            step=3,
        ),
        _Section(
            "DEAD ENDS",
            dead_ends,
            max(len(dead_ends), totals.stopped + totals.runs.get(RunStatus.FAILED, 0)),
            f"{call('journal_tail', kind='dead_end')}, {call('run_list', status='failed')}",
            first=4,
            step=3,
        ),
        _Section(
            "MEMORY",
            [_block(b, now, roomy, room) for b in packet.memory],
            max(totals.memory, len(packet.memory)),
            call("memory_get"),
            first=3,
            step=5,
        ),
        _Section(
            "JOURNAL",
            [_entry(e, now, roomy) for e in reversed(packet.journal)],
            totals.journal,
            call("journal_tail"),
            first=5,
            step=5,
            reverse=True,
        ),
    ]


def _fallen_lines(fact: Fact, packet: Packet, now: datetime) -> list[str]:
    """What does not hold, and which threads were built on it, also those that are done."""
    lines = render_facts.fact_lines(fact, now)
    threads = packet.fallen_under.get(fact.name, ())
    if threads:
        named = ", ".join(f"{render.name(thread, 60)} [{status}]" for thread, status in threads)
        lines.append(f"    relied on by {named}")
    return lines


def _is_settled(fact: Fact) -> bool:
    """Whether nothing is left to check: it was, or what it rests on was and it has no check."""
    rests = any(all(p.verified and not p.replaced for p in reason) for reason in fact.reasons)
    return fact.verified or (not fact.check and fact.trust is Trust.PROVISIONAL and rests)


def _in_order(packet: Packet) -> list[Fact]:
    """What is left to check: what has changed, what threads rely on, what is due, then the rest.

    What can be run stands before what rests on it.
    """
    threads = [*packet.active, *packet.due, *packet.blocked]
    relied = {premise.name for thread in threads for premise in thread.relies_on}
    for fact in packet.facts:  # each stands before what it rests on
        if fact.name in relied:
            relied |= {premise.name for reason in fact.reasons for premise in reason}

    def rank(fact: Fact) -> tuple[bool, bool, bool, bool]:
        moved = fact.now is not None and fact.now.word in ("changed", "gone")
        return not moved, fact.name not in relied, not fact.check, not fact.due

    return sorted((fact for fact in packet.facts if not _is_settled(fact)), key=rank)


def _objective(packet: Packet, now: datetime, room: int) -> list[list[str]]:
    """One item: cut short it would say something else."""
    if packet.objective is None:
        return []
    lines = render_facts.objective_lines(packet.objective, now, 500 if room >= 6000 else 120)
    return [lines if room >= 2000 else lines[:1]]


def _dead_ends(packet: Packet, now: datetime) -> list[list[str]]:
    """What failed for good, the newest of each kind first: not to be tried again as it was."""
    return [
        *([render_runs.stopped_step(step, now)] for step in packet.stopped_steps),
        *([render_runs.failed_run(run, now)] for run in packet.failed_runs),
        *([f"{render.entry_head(e, now)}: {render.one_line(e.text)}"] for e in packet.dead_ends),
    ]


def _at_most(due: int) -> Literal["", " at most"]:
    """What a number of threads is, from which so many due ones were taken."""
    return " at most" if due > thread_rows.MOST_COUNTED else ""


def _thread(thread: Thread, now: datetime, session: str) -> list[str]:
    lines = render.thread_lines(thread, now, session)
    return [lines[0], *(f"    {line.strip()}" for line in lines[1:])]


def _block(block: MemoryBlock, now: datetime, roomy: bool, room: int) -> list[str]:
    size = f"{len(block.value)}/{block.limit}"
    who = render.by(block.changed_by, block.changed_at, now)
    head = f"{render.one_line(block.key, 80)} ({size}, {who})"
    if not roomy:
        return [f"{head} {render.one_line(block.value, 120)}"]
    keep = 400 if room < 20_000 else 2000
    lines = render.indented(block.value[:keep])
    if len(block.value) > keep:
        rest = f"+{len(block.value) - keep:,} chars"
        lines.append(f"    … {rest}: {call('memory_get', key=block.key)}")
    return [head, *lines]


def _entry(entry: JournalEntry, now: datetime, roomy: bool) -> list[str]:
    head = render.entry_head(entry, now)
    limit = 400 if roomy else 120
    return [f"{head}: {render.one_line(entry.text, limit)}"]


def _changes(events: Sequence[Event], now: datetime) -> list[list[str]]:
    """The newest first; what one session did to one subject is one line, and so are its entries."""
    groups: dict[tuple[str, ...], list[Event]] = {}
    for event in events:
        name = "" if event.kind == "journal" else event.name
        group = (event.actor.agent, event.actor.session, event.kind, name)
        groups.setdefault(group, []).append(event)
    return [[_change(group, now)] for group in groups.values()]


def _change(group: Sequence[Event], now: datetime) -> str:
    newest = group[0]
    if newest.kind == "fact":  # what a check said is not hidden by what was written after it
        newest = next((one for one in group if one.operation in ("verify", "supersede")), newest)
    if newest.kind != "journal":
        return render.event_line(newest, now, number=False)
    actor = render.one_line(newest.actor.agent, 40) or "unknown"
    entries = render.plural(len(group), "entry", "entries")
    return f"{actor}: {entries} in the journal, last {ago(newest.at, now)}"
