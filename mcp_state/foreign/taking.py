"""Bringing what other tools kept into a project, where nothing is overwritten.

Everything goes through what the store's own methods do, so that limits, secrets, events and actors
hold. The store remembers what each thing was taken from. So a second import changes nothing,
whatever became of the thing here meanwhile; and what went on in the source goes on here, as a new
version, if nobody has changed it here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from mcp_state.api import State
from mcp_state.errors import StateError
from mcp_state.foreign.ordering import in_order
from mcp_state.foreign.records import Block, Entry, Source, Task, distinct, not_taken
from mcp_state.foreign.words import sections
from mcp_state.models import OPEN, Status, Taken
from mcp_state.store.blobs import put_text
from mcp_state.store.journal import append_entry
from mcp_state.store.memory import set_block, version_of
from mcp_state.store.text import clean, fold, one_line
from mcp_state.store.thread_rows import CRITERIA, THREAD
from mcp_state.store.thread_rules import Changes
from mcp_state.store.threads import check_criterion, set_thread
from mcp_state.store.transaction import Row, Writing
from mcp_state.times import LONGEST

Progress = Callable[[int, int], None]
_OPERATION = "import"
_EVERY = 64
_SHOWN = "SELECT shown FROM projects WHERE id = :project"
_ABOUT = 200
_AT_ONCE = 250
_LATER = "30d"
_NOT_TAKEN = "which was not taken"
_IN_PART = "?"
"""Behind what a thing was taken from: something that it leads to may still come."""


async def take(
    state: State, source: Source, *, dry_run: bool = False, progress: Progress | None = None
) -> Taken:
    """Take all that can be taken of a source; says what was not, and why.

    Each thing is taken whole or not at all, some at a time, so that others can write meanwhile. If
    it is interrupted, taking it again takes the rest. A dry run does the same in one transaction,
    and takes that back at its end.

    Raises:
        StateError: what the store refused as a whole.
    """
    taking = _Taking(source, progress)
    count = max(1, taking.left) if dry_run else _AT_ONCE

    def work(tx: Writing) -> Taken:
        taken = taking.go_on(tx, count)
        if dry_run:
            tx.changed = False
        return replace(taken, dry_run=dry_run, event=0 if dry_run else taken.event)

    taken = await state.database.write(state.caller, work, apart=True)
    while taking.left:
        taken = await state.database.write(state.caller, work, apart=True)
    return taken


class _Left(Exception):
    """This one stays where it is; says why."""


class _Taking:
    """One import."""

    _tx: Writing

    def __init__(self, source: Source, progress: Progress | None) -> None:
        self._source = source
        self._progress = progress
        self._home = distinct(source.home)
        self._taken: Counter[str] = Counter()
        self._changed: Counter[str] = Counter()
        self._here: Counter[str] = Counter()
        self._not_taken = list(source.left)
        self._seen: set[tuple[str, str]] = set()
        self._replaced = 0
        tasks, self._circular = in_order(source.tasks)
        self._things: Sequence[Block | Task | Entry] = [*source.blocks, *tasks, *source.entries]
        self._next = 0

    @property
    def left(self) -> int:
        """How many things are still to be looked at."""
        return len(self._things) - self._next

    def go_on(self, tx: Writing, count: int) -> Taken:
        """Take the next ones; the event that tells of the import is written with the last."""
        self._tx = tx
        for thing in self._things[self._next : self._next + count]:
            self._one(thing)
            self._next += 1
            if self._progress is not None and self._next % _EVERY == 0:
                self._progress(self._next, len(self._things))
        shown, source, event = tx.scalar(_SHOWN), self._source, 0
        if not self.left and (self._taken or self._changed):
            words = f"imported from {source.format}: {', '.join(self._counts())}"
            row = {"name": shown, "source": clean(source.home)[0], "format": source.format}
            event = tx.event("import", words, row, subject=("project", ""))
        return Taken(
            project=shown,
            source=source.home,
            format=source.format,
            taken=dict(self._taken),
            changed=dict(self._changed),
            here=dict(self._here),
            not_taken=tuple(self._not_taken),
            replaced=self._replaced,
            event=event,
        )

    def _counts(self) -> Iterator[str]:
        both = self._taken + self._changed
        words = {"thread": "threads", "block": "blocks", "entry": "entries"}
        for kind, several in words.items():
            if both[kind]:
                yield f"{both[kind]:,} {kind if both[kind] == 1 else several}"

    def _one(self, thing: Block | Task | Entry) -> None:
        """Take one thing as a whole, or leave it and say why."""
        match thing:
            case Block():
                kind, name, take = "block", thing.key, lambda: self._block(thing)
            case Task():
                kind, name, take = "thread", thing.name, lambda: self._task(thing)
            case Entry():
                kind, name, take = "entry", thing.text, lambda: self._entry(thing)
        try:
            with self._tx.part():
                counter = take()
            counter[kind] += 1
        except _Left as why:
            self._leave(thing.place, f"{kind} {name}", str(why))
        except StateError as problem:
            self._leave(thing.place, f"{kind} {name}", problem.fact)

    def _leave(self, place: str, what: str, why: str) -> None:
        self._not_taken.append(not_taken(place, what, why))

    # What was taken before

    def _before(self, kind: str, name: str, digest: str, version: int) -> bool | None:
        """Whether it goes on from what was taken here: None if it is new, False if it is the same.

        Raises:
            _Left: it is another one, or has parted from what was taken.
        """
        if (kind, fold(name)) in self._seen:
            raise _Left("one of this name stands before it")
        self._seen.add((kind, fold(name)))
        known = self._known(kind, name)
        if known is None:
            if version:
                raise _Left(f"a {kind} of this name is here already; it is left as it is")
            return None
        home, _, content = known[0].partition(":")
        if content == digest or (content == digest + _IN_PART and version != known[1]):
            return False
        if home != self._home:
            raise _Left(f"another {self._source.format} source has one of this name, taken before")
        if version != known[1]:
            raise _Left("it was changed there and here since it was taken; it is left as it is")
        return True

    def _known(self, kind: str, name: str) -> tuple[str, int] | None:
        """What a thing of this name was taken from here, and its version then."""
        return self._tx.remembered(_OPERATION, self._key(kind, name))

    def _remember(self, kind: str, name: str, digest: str, version: int) -> None:
        self._tx.remember(_OPERATION, self._key(kind, name), f"{self._home}:{digest}", version)

    def _key(self, kind: str, name: str) -> str:
        return f"{self._source.format}:{kind}:{fold(name)}"

    # Kinds

    def _block(self, block: Block) -> Counter[str]:
        tx = self._tx
        version, there = version_of(tx, block.key)
        if there == clean(block.value)[0]:
            self._seen.add(("block", fold(block.key)))
            return self._here
        goes_on = self._before(
            "block", block.key, block.fingerprint(), 0 if there is None else version
        )
        if goes_on is False:
            return self._here
        value = self._short(block.value, tx.limits.block, f"note {block.key}")
        stored = set_block(tx, block.key, value)
        self._remember("block", block.key, block.fingerprint(), stored.version)
        self._count_replaced(block.value)
        return self._changed if goes_on else self._taken

    def _entry(self, entry: Entry) -> Counter[str]:
        tx = self._tx
        key = f"import:{entry.identity}"
        if tx.remembered("journal_append", key) is not None:
            return self._here
        text = self._short(entry.text, tx.limits.entry, "entry")
        append_entry(tx, text, entry.kind, entry.thread, idempotency_key=key)
        self._count_replaced(entry.text)
        return self._taken

    def _task(self, task: Task) -> Counter[str]:
        tx, digest = self._tx, task.fingerprint()
        row = tx.one(THREAD, {"name": fold(task.name)})
        goes_on = self._before("thread", task.name, digest, 0 if row is None else row["version"])
        if goes_on is False:
            return self._here
        task = self._with_room(task)
        needs, missing = self._needs(task)
        changes = self._changes(task, needs, missing)
        if row is not None and row["status"] not in OPEN and row["status"] != task.status:
            set_thread(tx, task.name, status=Status.ACTIVE, note=changes.get("note"))
        self._write(task, row, changes)
        now = tx.one(THREAD, {"name": fold(task.name)})
        assert now is not None
        in_part = _IN_PART if any(why is _NOT_TAKEN for _, why in missing) else ""
        self._remember("thread", task.name, digest + in_part, now["version"])
        for name, why in missing:
            self._leave(task.place, f"{task.name} depends on {name}", why)
        if row is not None and row["version"] == now["version"]:
            return self._here
        self._count_replaced(task.title + task.body)
        return self._changed if goes_on else self._taken

    def _write(self, task: Task, row: Row | None, changes: Changes) -> None:
        """Create or change the thread; what is to be done has its criteria marked before."""
        tx, last = self._tx, Changes()
        ticked = [c.text for c in task.criteria if c.passes]
        if task.status is Status.DONE and task.criteria:
            last = Changes(status=Status.DONE, evidence=changes.get("evidence"))
            changes = Changes({**changes, "status": Status.ACTIVE, "evidence": None})
            if row is not None and row["status"] == Status.DONE:
                last, changes["status"] = Changes(), None
        set_thread(tx, task.name, **changes)
        if ticked:
            there = {c["text"]: c for c in tx.all(CRITERIA, {"name": fold(task.name)})}
            for text in ticked:
                criterion = there.get(clean(text.strip())[0])
                if criterion is not None and not criterion["passes"]:
                    proof = f"ticked in {self._source.format}"
                    check_criterion(tx, task.name, str(criterion["number"]), True, proof)
        if last:
            set_thread(tx, task.name, **last)

    def _changes(
        self, task: Task, needs: Sequence[str], missing: Sequence[tuple[str, str]]
    ) -> Changes:
        limits = self._tx.limits
        title, body = one_line(task.title, limits.title), task.body
        if title != " ".join(task.title.split()):
            body = f"{task.title}\n\n{body}"
        more = [f"it depends on {name}, {why}" for name, why in missing[:5]]
        note = "; ".join([task.origin, *more])
        changes = Changes(
            status=task.status,
            title=title,
            note=self._note(task.name, note, body),
            priority=task.priority,
            depends_on=needs,
            criteria=[one.text for one in task.criteria],
        )
        if task.status is Status.DONE:
            changes["evidence"] = task.evidence
        if task.status is Status.BLOCKED:
            changes["waiting_on"] = one_line(task.waiting_on, limits.text)
        if task.status is Status.WATCHING:
            changes["recheck_after"] = self._until(task.until)
        if not needs:
            changes["clear"] = ["depends_on"]
        return changes

    def _until(self, when: str) -> str:
        """How long it is until then."""
        try:
            at = datetime.fromisoformat(when)
        except ValueError:
            return _LATER
        left = int((at.replace(tzinfo=at.tzinfo or UTC) - self._tx.at).total_seconds())
        return f"{left // 60 + 1}m" if 0 < left < LONGEST.total_seconds() else _LATER

    def _with_room(self, task: Task) -> Task:
        """The task with its criteria, or with all of them as prose if they are too long or many."""
        limits = self._tx.limits
        fits = all(len(one.text) <= limits.text for one in task.criteria)
        if fits and len(task.criteria) <= limits.criteria:
            return task
        listed = "\n".join(f"- [{'x' if one.passes else ' '}] {one.text}" for one in task.criteria)
        body = sections((("", task.body), ("Acceptance criteria", listed)))
        return replace(task, criteria=(), body=body)

    def _note(self, name: str, origin: str, body: str) -> str:
        """Where it comes from, and all its prose: here if there is room, else in a blob."""
        whole = f"{origin}\n\n{body}" if body else origin
        limit = self._tx.limits.text
        if len(whole) <= limit:
            return whole
        blob = put_text(self._tx, whole, f"{name}: {one_line(origin, _ABOUT)}")
        pointer = _pointer(whole, blob.key)
        return f"{one_line(origin, limit - len(pointer) - 1)}\n{pointer}"

    def _short(self, text: str, limit: int, what: str) -> str:
        """A text, or where it is kept if it is longer than it may be."""
        if len(text) <= limit:
            return text
        first = next((line for line in text.splitlines() if line.strip(" #-\t")), "")
        about = one_line(first.lstrip("# "), _ABOUT)
        blob = put_text(self._tx, text, f"{what}: {about}")
        return f"{about}\n{_pointer(text, blob.key)}"

    def _needs(self, task: Task) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        """What it can wait for here, and what it can't, and why."""
        found: dict[str, str] = {}
        missing: list[tuple[str, str]] = []
        for name in dict.fromkeys([*task.needs, *task.parts]):
            row = self._tx.one(THREAD, {"name": fold(name)})
            if fold(name) in self._circular.get(task.name, ()):
                missing.append((name, "which waits for it: a circle"))
            elif row is None or self._known("thread", name) is None:
                missing.append((name, _NOT_TAKEN))
            elif row["status"] == Status.DROPPED:
                continue  # it would wait for ever; there it counts as finished
            elif len(found) == self._tx.limits.items:
                missing.append((name, f"one more than the {len(found)} that a thread can wait for"))
            else:
                found[fold(name)] = name
        return list(found.values()), missing

    def _count_replaced(self, text: str) -> None:
        self._replaced += clean(text)[1]


def _pointer(text: str, key: str) -> str:
    """What is stored says it to agents and people alike."""
    return (
        f"All of it ({len(text):,} characters) is in the blob {key}: blob_get, `mcp-state blob get`"
    )
