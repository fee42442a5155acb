"""How answers read, for a model and a person alike.

Stored text is data: in one line it is folded into that line, as a block it is indented, so that
nothing inside it can pass for a line of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mcp_state import render_facts
from mcp_state.calls import argument, call, either, tool
from mcp_state.models import (
    FALLEN,
    OPEN,
    Checked,
    Event,
    EventPage,
    Fact,
    JournalEntry,
    JournalPage,
    MemoryBlock,
    MemoryPage,
    MissingBlock,
    NothingToClaim,
    Place,
    Project,
    Purged,
    PurgedPlace,
    SearchPage,
    Status,
    Thread,
    ThreadDetail,
    ThreadPage,
    Totals,
)
from mcp_state.render_words import ALL, ROOM, by, fitted, indented, name, plural
from mcp_state.store.text import fold, one_line, quoted
from mcp_state.times import ago, since, span, until, when

_NAMES = 1000  # for the names of blocks that are not shown
_FACTS = 10  # of those that a thread relies on
_SHORTER = 200  # of each text of a thread that is too long for one answer


def scope(totals: Totals) -> str:
    """The last line of every answer: which project, how it was found, and its counts."""
    how = f" (from {one_line(totals.how)})" if totals.how else ""
    if not totals.project:
        return "[no project]"
    if not totals.exists:
        line = f"[{name(totals.project)}{how} · nothing stored yet]"
    else:
        threads = plural(totals.all_threads, "thread")
        line = f"[{name(totals.project)}{how} · {threads} · event {totals.event}]"
    return f"note: {one_line(totals.remark, 400)}\n{line}" if totals.remark else line


def unknown_project(known: Sequence[str]) -> str:
    """The answer to a read that belongs to no project."""
    which = argument("project", "NAME") + either("", ", or run it in a git repository")
    fact = f"This {either('call', 'command')} does not say which project it belongs to"
    if not known:
        return f"{fact}, and the store holds none yet. Pass {which}; the first write makes it."
    return f"{fact}. Pass {which}; known are:\n" + "\n".join(f"  {name(n)}" for n in known)


# Working memory


def memory_block(block: MemoryBlock, now: datetime) -> str:
    """The text of a block as it is, and what is known about it.

    That comes last, but first if the text begins like an error of ours.
    """
    if block.value.lstrip().startswith("error:"):
        return f"{block_facts(block, now)}\n{block.value}"
    return f"{block.value}\n{block_facts(block, now)}"


def block_facts(block: MemoryBlock, now: datetime) -> str:
    """What is known about a block besides its text."""
    of = f" of run {name(block.run, 60)}" if block.run else ""
    words = [
        f"{name(block.key)}{of} · version {block.version}"
        + ("" if block.current else " (not the current one)"),
        f"{len(block.value)}/{block.limit} chars",
        by(block.changed_by, block.changed_at, now),
    ]
    if block.expires_at is not None:
        words.append(f"expires {when(block.expires_at, now)}")
    if block.locked:
        words.append(f"locked by a person: {one_line(block.locked)}")
    return " · ".join(words)


def memory_missing(block: MissingBlock, now: datetime) -> str:
    """No such block: why, and which there are."""
    key = name(block.key)
    last = block.version if block.expired_at else block.version - 1
    if block.expired_at is not None:
        why = f"block {quoted(key)} expired {ago(block.expired_at, now)}"
    elif block.version:
        why = f"block {quoted(key)} was deleted"
    else:
        why = f"no such block {quoted(key)}"
    if block.version:
        reads = call("memory_get", key=key, **_of_run(block.run), version=last)
        why += f"; {reads} still reads its last text"
    if not block.keys:
        of = f" of run {name(block.run, 60)}" if block.run else ""
        return f"{why}. There are no blocks{of} now; {tool('memory_set')} makes one."
    more = f" and {block.count - len(block.keys)} more" if block.count > len(block.keys) else ""
    return f"{why}. Existing keys: {', '.join(name(k, 60) for k in block.keys)}{more}."


def memory_page(page: MemoryPage, now: datetime, room: int = ROOM) -> str:
    """All blocks: in full as long as there is room, then their names."""
    of = f" of run {name(page.run, 60)}" if page.run else ""
    if not page.blocks:
        makes = call("memory_set", "key", "value", *(["run_id"] if page.run else []))
        return f"No blocks{of} yet. {makes} makes one."
    head = f"{plural(page.count, 'block')}{of}:"
    lines: list[str] = []
    short: list[str] = []
    whole = [[block_facts(block, now), *indented(block.value)] for block in page.blocks]
    sizes = [sum(len(line) + 1 for line in one) for one in whole]
    if sum(sizes) > room:
        room -= _NAMES
    for block, one, size in zip(page.blocks, whole, sizes, strict=True):
        if short or size > room:
            short.append(name(block.key, 60))
        else:
            room -= size
            lines += one
    if short:
        kept, left = fitted([f"{name}," for name in short], _NAMES - 200)
        left += page.count - len(page.blocks)
        head += f" {len(page.blocks) - len(short)} in full" if lines else ""
        head += f"{',' if lines else ''} {len(kept)} only named at the end: "
        head += call("memory_get", key=...)
        if left:
            finds = call("search", "query", kinds=["memory"])
            head += f"; {left:,} more are not named: {finds}"
        more = f" and {left:,} more" if left else ""
        lines.append(f"also: {' '.join(kept).removesuffix(',')}{more}")
    return "\n".join([head, *lines])


def memory_saved(block: MemoryBlock, now: datetime) -> str:
    """What a write left behind."""
    if block.repeated:
        key = argument("idempotency_key")
        return f"already added with this {key}; unchanged: {block_facts(block, now)}"
    return f"saved: {block_facts(block, now)}"


def memory_deleted(block: MemoryBlock) -> str:
    """A block that is no longer there."""
    back = call("memory_restore", key=block.key, version=block.version, **_of_run(block.run))
    return (
        f"deleted: {name(block.key)}, which was at version {block.version}. {back} brings it back."
    )


def _of_run(run: str) -> dict[str, str]:
    """The argument that says of which run a block is, if it is of one."""
    return {"run_id": run} if run else {}


# The queue


def thread_status(thread: Thread, now: datetime, session: str = "") -> str:
    """The bracket after a thread's name."""
    words: list[str] = [thread.status]
    if thread.due and thread.recheck_at is not None:
        words.append(f"due {when(thread.recheck_at, now)}")
    elif thread.recheck_at is not None:
        words.append(f"look again {when(thread.recheck_at, now)}")
    if thread.status is Status.ACTIVE and thread.priority != 5:
        words.append(f"priority {thread.priority}")
    if thread.waits_for and thread.status is not Status.DONE:
        words.append(f"needs {', '.join(name(d, 40) for d in thread.depends_on[:3])}")
    if thread.criteria:
        words.append(f"{thread.passing}/{thread.criteria} pass")
    if thread.lease is not None:
        mine = session and thread.lease.holder.session == session
        holder = "this session" if mine else one_line(thread.lease.holder.agent, 40)
        words.append(f"held by {holder} until {until(thread.lease.until, now)}")
    return f"[{', '.join(words)}]"


def thread_lines(thread: Thread, now: datetime, session: str = "") -> list[str]:
    """A thread in a list: what it is, and what to do about it."""
    title = "" if thread.title == thread.name else f"  {one_line(thread.title, 100)}"
    lines = [f"{name(thread.name)} {thread_status(thread, now, session)}{title}"]
    if thread.waiting_on:
        how_long = since(thread.status_at, now)
        lines.append(f"    waiting on {one_line(thread.waiting_on)}, since {how_long}")
    if thread.next_action and thread.status in OPEN:
        lines.append(f"    next: {one_line(thread.next_action)}")
    if thread.check and thread.status in (Status.WATCHING, Status.BLOCKED):
        lines.append(f"    check: {one_line(thread.check)}")
    is_open = thread.status in OPEN
    if is_open and (relies := render_facts.relies_line(thread.relies_on, thread.name)):
        lines.append(f"    {relies}")
    if thread.places:
        lines.append(f"    where: {_where(thread.places)}")
    if thread.evidence and thread.status is Status.DONE:
        lines.append(f"    evidence: {one_line(thread.evidence)}")
    if thread.note and thread.status is Status.DROPPED:
        lines.append(f"    note: {one_line(thread.note)}")
    return lines


def _where(places: Sequence[Place]) -> str:
    """Where the work is, in one line: the home first, what is not it marked so."""
    ordered = sorted(places, key=lambda place: place.role != "home")
    words = [
        f"{one_line(place.path_or_repo, 80)} ({place.role}"
        + (f": {one_line(place.note, 60)})" if place.note else ")")
        for place in ordered
    ]
    more = f" and {len(words) - 5} more" if len(words) > 5 else ""
    return ", ".join(words[:5]) + more


def thread_page(
    page: ThreadPage,
    now: datetime,
    totals: Totals,
    asked: str,
    session: str,
    room: int = ROOM,
) -> str:
    """A page of the queue. `asked` is the filter in words, for an empty answer."""
    all_of_them = " · ".join(f"{totals.threads.get(s, 0):,} {s.value}" for s in Status)
    if not page.threads:
        if not totals.all_threads:
            makes = call("thread_set", "thread", "title", "next_action")
            return f"No threads yet. {makes} makes one."
        return f"No {asked} here. Threads: {all_of_them}."
    total = "more than 1,000" if page.capped else f"{page.total:,}"
    head = f"{len(page.threads)} of {total} {asked} ({all_of_them})"
    lines: list[str] = []
    shown = 0
    for thread in page.threads:
        one = thread_lines(thread, now, session)
        room -= sum(map(len, one)) + len(one)
        if room < 0:
            break
        lines += one
        shown += 1
    if shown < len(page.threads):
        left = len(page.threads) - shown
        head += f"; {left} left out for length: ask with {argument('limit', shown)}"
    elif page.cursor:
        head += f"; more: {argument('cursor', page.cursor)}"
    return "\n".join([head, *lines])


def thread_detail(detail: ThreadDetail, now: datetime, session: str, room: int = ROOM) -> str:
    """All of one thread; what is too long for one answer is counted."""
    whole = _detail_lines(detail, now, session, ALL)
    kept, left = fitted(whole, room)
    if left:
        kept, left = fitted(_detail_lines(detail, now, session, _SHORTER), room)
        lost = f" and the last {plural(left, 'line')} left out" if left else ""
        shell = f"`mcp-state thread {detail.thread.name}` in a shell shows all"
        kept.insert(1, f"(too long for one answer: texts cut at …{lost}; {one_line(shell)})")
    return "\n".join(kept)


def _detail_lines(detail: ThreadDetail, now: datetime, session: str, limit: int) -> list[str]:
    """A thread with its texts up to `limit` characters; the criteria, its longest part, last."""
    thread = detail.thread
    lines = [
        f"{name(thread.name)} {thread_status(thread, now, session)}  version {thread.version}",
        f"title: {one_line(thread.title, limit)}",
        f"{thread.status.value} since {since(thread.status_at, now)}, "
        f"changed by {by(thread.changed_by, thread.changed_at, now)}",
        *_field("next", thread.next_action, limit),
        *_field("waiting on", thread.waiting_on, limit),
        *_field("check", thread.check, limit),
        *_field("evidence", thread.evidence, limit),
        *_field("note", thread.note, limit),
        *_places(thread, limit),
        *_facts(detail, now),
        *_names("depends on", thread.depends_on),
        *_names("not done yet", detail.unfinished),
        *_names("needed by", detail.needed_by),
    ]
    if detail.journal:
        lines.append("journal:")
        lines += [
            f"    {e.seq} {by(e.actor, e.at, now)}: {one_line(e.text)}" for e in detail.journal
        ]
    earlier = f" (+{detail.earlier} earlier)" if detail.earlier else ""
    lines.append(f"history{earlier}:")
    lines += [f"    {event_line(event, now, subject=False)}" for event in detail.history]
    return [*lines, *_criteria(detail, now, limit)]


def _places(thread: Thread, limit: int) -> list[str]:
    """Where the work is, the home first."""
    return [
        f"place ({place.role}): {one_line(place.path_or_repo, limit)}"
        + (f", {one_line(place.note, limit)}" if place.note else "")
        for place in sorted(thread.places, key=lambda p: p.role != "home")
    ]


def _facts(detail: ThreadDetail, now: datetime) -> list[str]:
    """What it relies on, the check before the claim."""
    return [
        *_some_facts("relies on", detail.facts, now),
        *_some_facts("which rests on", detail.under, now),
    ]


def _some_facts(label: str, facts: Sequence[Fact], now: datetime) -> list[str]:
    if not facts:
        return []
    ordered = sorted(facts, key=lambda fact: (fact.trust not in FALLEN, fact.verified))
    lines = [line for f in ordered[:_FACTS] for line in render_facts.fact_lines(f, now)]
    left = len(ordered) - _FACTS
    more = f" (+{left} more, named in {tool('fact_list')})" if left > 0 else ""
    return [f"{label}{more}:", *(f"    {line}" for line in lines)]


def _names(label: str, names: Sequence[str]) -> list[str]:
    return [f"{label}: {', '.join(name(n, 60) for n in names)}"] if names else []


def _criteria(detail: ThreadDetail, now: datetime, limit: int) -> list[str]:
    """The criteria; where texts are cut, those that do not pass yet come first."""
    if not detail.criteria:
        return []
    lines = [f"criteria, {detail.thread.passing}/{detail.thread.criteria} pass:"]
    first = sorted(detail.criteria, key=lambda c: limit < ALL and c.passes)
    for criterion in first:
        mark = "pass" if criterion.passes else "open"
        lines.append(f"    {criterion.number} {mark}: {one_line(criterion.text, limit)}")
        if criterion.checked_at is not None and criterion.checked_by is not None:
            who = by(criterion.checked_by, criterion.checked_at, now)
            proof = f": {one_line(criterion.evidence, limit)}" if criterion.evidence else ""
            lines.append(f"        checked by {who}{proof}")
    return lines


def _field(label: str, text: str, limit: int) -> list[str]:
    if not text:
        return []
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if len(text) <= 160 and len(text.splitlines()) == 1:
        return [f"{label}: {one_line(text)}"]
    return [f"{label}:", *indented(text)]


def thread_saved(thread: Thread, now: datetime, session: str) -> str:
    """What a write left behind."""
    word = "unchanged" if thread.unchanged else "saved"
    first, *rest = thread_lines(thread, now, session)
    if thread.status is Status.DONE and (
        relies := render_facts.relies_line(thread.relies_on, thread.name)
    ):
        rest.append(f"    NOTE: it {relies}")
    return "\n".join([f"{word}, version {thread.version}: {first}", *rest])


def thread_claimed(answer: Thread | NothingToClaim, now: datetime, session: str) -> str:
    """The lease, or why there is none to get."""
    if isinstance(answer, NothingToClaim):
        if not answer.active:
            due = call("thread_list", due=True)
            return f"Nothing to claim: no active thread. {due} shows what is due."
        return (
            f"Nothing to claim. Active threads: {answer.active:,}, of these held: {answer.held:,}, "
            f"waiting for others to be done: {answer.waiting:,}. "
            f"{tool('thread_list')} shows by whom and for what."
        )
    lease = answer.lease
    assert lease is not None
    left = span((lease.until - now).total_seconds())
    return "\n".join(
        [
            f"{argument('lease_token', lease.token)} until {until(lease.until, now)} ({left}); "
            f"pass it to {tool('thread_set')} and {tool('thread_check')}",
            *thread_lines(answer, now, session),
        ]
    )


def thread_released(thread: Thread, now: datetime, session: str) -> str:
    """A lease that was given back."""
    word = "nobody held it" if thread.unchanged else "released"
    return f"{word}: {thread_lines(thread, now, session)[0]}"


def checked(result: Checked) -> str:
    """A criterion, marked."""
    word = "passes" if result.criterion.passes else "does not pass"
    return (
        f"{result.passing}/{result.criteria} pass. {name(result.thread)}: criterion "
        f"{result.criterion.number} {word}: {one_line(result.criterion.text, 200)}"
    )


# The journal, history and search


def journal_saved(entry: JournalEntry, now: datetime) -> str:
    """An entry that is on disk."""
    if entry.repeated:
        return f"already written as entry {entry.seq} ({ago(entry.at, now)}); nothing was added"
    return f"saved as entry {entry.seq}"


def entry_head(entry: JournalEntry, now: datetime) -> str:
    """Who wrote an entry, when, and what about."""
    run = f"run {entry.run}" if entry.run else ""
    tags = [one_line(tag, 60) for tag in (entry.kind, entry.thread, run) if tag]
    about = f" [{', '.join(tags)}]" if tags else ""
    return f"{entry.seq} {by(entry.actor, entry.at, now)}{about}"


def journal_page(page: JournalPage, now: datetime, *, forward: bool, room: int = ROOM) -> str:
    """Entries, oldest first; those that do not fit are left for the next call."""
    if not page.entries:
        if forward:
            return f"No entries after that{f'; {page.older:,} before' if page.older else ''}."
        return f"No entries{f' before that; {page.newer:,} after' if page.newer else ''}."
    shown = _entries_that_fit(page, now, forward, room)
    left = len(page.entries) - len(shown)
    older = page.older if forward or page.older is None else page.older + left
    newer = page.newer if not forward or page.newer is None else page.newer + left
    head = plural(len(shown), "entry", "entries")
    first, last = shown[0][0].seq, shown[-1][0].seq
    if older is None:
        head += f", more before: {argument('before', first)}"
    elif older:
        head += f", {older:,} older: {argument('before', first)}"
    if newer and forward:
        head += f", {newer:,} newer: {argument('since', last)}"
    elif newer is None and forward:
        head += f", more may follow: {argument('since', last)}"
    return "\n".join([head, *(line for _, lines in shown for line in lines)])


def _entries_that_fit(
    page: JournalPage, now: datetime, forward: bool, room: int
) -> list[tuple[JournalEntry, list[str]]]:
    """Whole entries, oldest first, beginning with the one that matters most; cut if it is alone."""
    shown: list[tuple[JournalEntry, list[str]]] = []
    for entry in page.entries if forward else reversed(page.entries):
        lines = [entry_head(entry, now), *indented(entry.text)]
        if not shown:
            lines, cut = fitted(lines, room)
            lines += [f"    (+{cut:,} lines that do not fit)"] if cut else []
        room -= sum(map(len, lines)) + len(lines)
        if room < 0 and shown:
            break
        shown.append((entry, lines))
    return shown if forward else shown[::-1]


def event_line(event: Event, now: datetime, *, subject: bool = True, number: bool = True) -> str:
    """One change in one line."""
    what = ""
    if subject:
        what = f"{event.kind} "
        what += f"{name(shown_name(event), 80)} " if event.kind != event.name else ""
    seq = f"{event.seq} " if number else ""
    actor = one_line(event.actor.agent, 40) or "unknown"
    words = event.summary
    is_told = event.kind not in ("fact", "objective") or number  # news are no place for beliefs
    if event.operation == "refused" and event.row and event.row.get("fact") and is_told:
        words += f": {event.row['fact']}"
    if event.version is not None and not subject:
        words = f"version {event.version}: {words}"
    limit = 2000 if event.kind == "objective" and not subject else 200  # its log is read whole
    return f"{seq}{actor}: {what}{one_line(words, limit)} · {ago(event.at, now)}"


def shown_name(event: Event) -> str:
    """The name of the subject as it was written, where the event knows it."""
    row = event.row or {}
    key = str(row.get("key") or row.get("name") or "")
    of_run = event.name[: -len(fold(key)) - 1] if event.name.endswith(f"/{fold(key)}") else ""
    return f"{of_run}/{key}" if of_run and event.kind == "memory" else key or event.name


def history(
    page: EventPage, now: datetime, subject: str, *, forward: bool, room: int = ROOM
) -> str:
    """Events, oldest first."""
    if not page.events:
        return f"No events of {one_line(subject)}." if subject else "No events."
    head = plural(len(page.events), "event")
    if page.more:
        count = "1,000+" if subject and page.more + len(page.events) >= 1000 else f"{page.more:,}"
        if forward:
            head += f", {count} later: {argument('since', page.events[-1].seq)}"
        else:
            head += f", {count} earlier: {argument('since', 0)} reads from the beginning"
    mixed = not subject or subject.strip().lower().startswith("run:")
    lines = [event_line(event, now, subject=mixed) for event in page.events]
    kept, left = fitted(lines, room)
    if left:
        later = argument("since", page.events[len(kept) - 1].seq)
        head += f"; {left} left out for length: {later}"
    return "\n".join([head, *kept])


def search_page(page: SearchPage, now: datetime, query: str) -> str:
    """Hits, best first."""
    if not page.hits:
        return f"No match for {quoted(one_line(query, 100))}. Try fewer or other words."
    head = f"{len(page.hits)} of {page.matches:,} matches"
    if page.loose:
        head += ", none with all the words"
    if page.capped:
        head += " among the newest; there are more, older ones"
    if page.cursor:
        head += f"; more: {argument('cursor', page.cursor)}"
    lines: list[str] = []
    for hit in page.hits:
        if hit.fact is not None:
            first, *rest = render_facts.fact_lines(hit.fact, now)
            lines += [f"fact:{name(hit.name)}  {first}", *rest]
            continue
        of_run = (
            f" (memory of a run: key and {argument('run_id', of='memory_get')})" if hit.run else ""
        )
        lines.append(f"{hit.kind}:{name(hit.name)}{of_run}  {by(hit.actor, hit.at, now)}")
        lines.append(f"    {one_line(hit.snippet, 240)}")
    return "\n".join([head, *lines])


def projects(found: Sequence[Project], now: datetime) -> str:
    """The projects of a store."""
    if not found:
        return "No projects yet; the first write makes one."
    lines: list[str] = []
    for project in found:
        when = ago(project.changed_at, now) if project.changed_at else "never"
        totals = project.totals
        lines.append(
            f"{name(project.name)}  {plural(totals.all_threads, 'thread')}, "
            f"{totals.journal:,} in the journal, {plural(totals.memory, 'block')}, "
            f"event {totals.event}, changed {when}"
        )
        if project.other_names:
            lines.append(f"    also: {', '.join(name(n) for n in project.other_names)}")
        lines += [f"    {one_line(directory, 300)}" for directory in project.directories]
    return "\n".join(lines)


# What was purged


def purged(result: Purged, *, most: int = 40) -> str:
    """What was found and replaced, what was searched, and what is left to do."""
    lines = [_purged_head(result)]
    several = len({place.project for place in result.places}) > 1
    lines += [_purged_place(place, several) for place in result.places[:most]]
    if len(result.places) > most:
        lines.append(f"    +{len(result.places) - most:,} more (--json lists all)")
    lines += [f"note: {note}" for note in result.notes]
    size = plural(sum(file.size for file in result.files), "byte")
    holders = [file for file in result.files if file.found]
    searched = f"searched {size} of {plural(len(result.files), 'file')}: "
    if holders:
        verb = "holds" if len(holders) == 1 else "hold"
        lines.append(f"{searched}{plural(len(holders), 'file')} {verb} it:")
        lines += [
            f"    {file.path} ({file.what}): "
            + ("can't be read" if file.found < 0 else plural(file.found, "time"))
            for file in holders
        ]
    elif result.files:
        lines.append(f"{searched}none of them holds it")
    return "\n".join(lines)


def _purged_head(result: Purged) -> str:
    if not result.places:
        of = "this project" if result.elsewhere else "the store"
        return f"no text of {of} holds it"
    count = f"{plural(result.count, 'place')} of {plural(len(result.places), 'subject')}"
    if result.dry_run:
        return f"found in {count}; nothing was changed"
    return f"purged from {count}; {result.mark} stands there now (event {result.event})"


def _purged_place(place: PurgedPlace, several: bool) -> str:
    of = f" of {name(place.project, 60)}" if several else ""
    return f"    {one_line(place.subject)}{of}: {', '.join(place.fields)} ({place.count:,})"
