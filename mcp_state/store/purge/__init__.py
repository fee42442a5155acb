"""Taking a text out of a store for good: a secret that was kept, or what was private.

Three steps, each of which may be cut short anywhere and done again. One transaction puts a mark in
the place of the text in every row and event, makes anew what is made of them (the documents that
search reads, the hashes of blobs and transcripts), and records that it was done. Then the index and
the file are written anew, since both keep what was deleted, and the `-wal` is emptied. Then all
rows and the bytes of the files are searched.

The triggers that keep the record as it is are lifted within the transaction alone. Nothing that
was told before changes its number, and no event is removed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mcp_state.errors import BadArgument, NotFound, StateError
from mcp_state.models import Purged, PurgedFile, PurgedPlace
from mcp_state.record import record
from mcp_state.settings import is_address
from mcp_state.store.noun import Noun
from mcp_state.store.purge.proof import (
    EXPORT,
    HALF_MADE,
    OLD_SCHEMA,
    OWN,
    WAL,
    files_of,
    readers,
    search,
)
from mcp_state.store.purge.rewriting import Rewriting
from mcp_state.store.purge.value import MARK, Value
from mcp_state.store.purge.walking import Search
from mcp_state.store.refusals import refused
from mcp_state.store.text import clean, one_line
from mcp_state.store.transaction import Reading, Writing
from mcp_state.store.transfer.meter import Meter, Progress

_SIZE = "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM documents)"
_NEXT_EVENT = "SELECT last_event + 1 FROM projects WHERE id = :id"
_MADE = "SELECT 1 FROM store"
_LIVE = "SELECT id FROM projects WHERE merged_into IS NULL ORDER BY id"
_SHOWN = "SELECT shown FROM projects WHERE id = :id"
_WAY_OUT = "Delete that file if nobody needs it, or purge it as a store of its own (--db)."
_WAYS_OUT: Mapping[str, str] = {
    EXPORT: "Delete that file; if it is needed, export anew.",
    OLD_SCHEMA: "Delete that file: all of it is in the store.",
    HALF_MADE: "Delete that file if nothing is at work there.",
}
_OUT_OF_ROWS = "no row holds the text any more, but the bytes of the files may"
_LISTED = 100
"""Subjects that the event names; of more it tells the number."""


@record
class _Found:
    """What a walk through the store found."""

    mark: str
    places: Sequence[PurgedPlace]
    elsewhere: bool
    outside: bool


class Purge(Noun):
    """What takes a text out of the caller's project, or of all of them."""

    async def purge(
        self,
        text: str,
        reason: str = "",
        *,
        dry_run: bool = False,
        every_project: bool = False,
        progress: Progress | None = None,
    ) -> Purged:
        """Put a mark in the place of a text wherever it stands, and search the files for it.

        It is found in any case and composition. Names that hold it become others, and what leads
        to them with them; a blob that held it gets the key of what is left. With `dry_run` nothing
        is written. Others go on working meanwhile.

        Raises:
            BadArgument: the text is too short or too long, or a word of the store's own; there is
                no reason, or it holds the text.
            Conflict: no mark fits into the names that hold it.
            NotFound: there is no store, or no such project.
            StateError: what else the file refused.
        """
        value = Value(text)
        reason = self._reason(value, reason, dry_run)
        meter = Meter(progress, 2 if dry_run else 4)
        found = await self._find(value, every_project, meter)
        event, emptied, left = 0, True, found
        if not dry_run:
            if found.places:
                event, found = await self._take_out(value, reason, every_project, meter)
            else:
                meter.expect(0)
        try:
            if not dry_run:
                emptied = await self.database.rewrite()
                left = await self._find(value, every_project, meter)
            files = await asyncio.to_thread(self._search, value, meter)
        except StateError as problem:
            if not dry_run:
                problem.fact = f"{_OUT_OF_ROWS}: {problem.fact.removeprefix('not saved: ')}"
                problem.next_step = "Purge again: that finishes what was begun."
            raise
        meter.end()
        return Purged(
            dry_run=dry_run,
            clean=not (left.places or left.elsewhere or any(file.found for file in files)),
            mark=found.mark,
            event=event,
            places=found.places,
            files=files,
            notes=[*_notes(found, left, files, dry_run, emptied), *self._beyond(found)],
            elsewhere=left.elsewhere,
        )

    def _reason(self, value: Value, reason: str, dry_run: bool) -> str:
        reason = clean(reason)[0].strip()
        if not reason and not dry_run:
            raise BadArgument(
                "there is no reason", "Nothing was changed. Say why; history will show it."
            )
        if value.out_of(reason, "") != reason:
            raise BadArgument(
                "the reason holds the text to purge",
                "Nothing was changed. Say why without repeating it; history will show the reason.",
            )
        return reason

    async def _find(self, value: Value, every_project: bool, meter: Meter) -> _Found:
        def find(tx: Reading) -> _Found:
            if tx.one(_MADE) is None:
                raise NotFound(f"no store at {self.database.path}", "Name one with --db.")
            if not every_project and not tx.project:
                known = tx.known_projects()[:5]
                raise NotFound.named(
                    "project",
                    value.out_of(tx.caller.project, MARK),
                    [value.out_of(name, MARK) for name in known],
                    "Name another one; nothing was changed.",
                )
            meter.expect(tx.scalar(_SIZE))
            return _walked(Search(tx, value, every_project, meter.step))

        return await self.database.read(self.caller, find, every_project=True)

    async def _take_out(
        self, value: Value, reason: str, every_project: bool, meter: Meter
    ) -> tuple[int, _Found]:
        """The transaction; returns the number of the event that records it, and what it changed."""

        def body(tx: Writing) -> tuple[int, _Found]:
            tx.subject, tx.of_run = ("project", ""), ""
            reason_ = tx.text(reason, "the reason", tx.limits.text, "Say it shorter.")
            meter.expect(tx.scalar(_SIZE))
            here = tx.project
            walk = Rewriting(tx, value, every_project, meter.step)
            with tx.lifted():
                found = _walked(walk)
            event = _record(tx, walk, reason_)
            tx.project = here
            return event, found

        caller = self.caller
        if every_project:
            caller = replace(caller, project=await self._some_project(), anchor="")
        event, changed = await self.database.write(caller, body, apart=True, every_project=True)
        self._follow(value, changed.mark)
        return event, changed

    async def _some_project(self) -> str:
        """A transaction has to begin in one."""
        return (await self.database.read(self.caller, lambda tx: tx.known_projects()))[0]

    def _follow(self, value: Value, mark: str) -> None:
        """The caller's project may be called otherwise now."""
        caller = self.caller
        caller.project = value.out_of(caller.project, mark)
        caller.anchor = value.out_of(caller.anchor, mark)

    def _beyond(self, found: _Found) -> Sequence[str]:
        return [self.database.beyond] if self.database.beyond and found.places else []

    def _search(self, value: Value, meter: Meter) -> Sequence[PurgedFile]:
        path = self.database.path
        if is_address(path):
            return []
        done = 0

        def step(size: int) -> None:
            nonlocal done
            done += size
            meter.at(done)

        try:
            meter.expect(sum(_size(file) for file, _ in files_of(path)))
            return list(search(path, value, step))
        except OSError as problem:
            raise refused(problem.filename or path, problem) from problem


def _walked(walk: Search) -> _Found:
    walk.walk()
    return _Found(walk.new.mark, walk.places, walk.elsewhere, walk.outside)


def _record(tx: Writing, walk: Search, reason: str) -> int:
    """Say in each project what was done to it; returns the number in that of the caller."""
    number = 0
    here = tx.project
    for row in tx.all(_LIVE):
        found = walk.found_in(row["id"])
        if not found:
            continue
        tx.project, tx.seq = row["id"], tx.scalar(_NEXT_EVENT, {"id": row["id"]})
        count = sum(places for _, places in found)
        kept = {
            "name": tx.scalar(_SHOWN, {"id": row["id"]}),
            "mark": walk.new.mark,
            "reason": reason,
            "places": count,
            "subjects": [subject for subject, _ in found[:_LISTED]],
            "more": max(0, len(found) - _LISTED),
        }
        what = "place" if count == 1 else "places"
        subjects = "subject" if len(found) == 1 else "subjects"
        words = f"a text purged from {count:,} {what} in {len(found):,} {subjects}"
        event = tx.event("purge", f"{words}, because {one_line(reason)}", kept)
        if row["id"] == here or not number:
            number = event
    return number


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _notes(
    found: _Found, left: _Found, files: Sequence[PurgedFile], dry_run: bool, emptied: bool
) -> Iterator[str]:
    """What is left, and what to do about it."""
    if left.elsewhere:
        yield (
            "Another project of this store holds it too: purge it there, or in every project at "
            "once (--every-project)."
        )
    if not dry_run and left.places:
        named = ", ".join(place.subject for place in left.places[:5])
        yield f"It is in {named} again, written meanwhile: purge again."
    for file in files:
        yield from _of_file(file, left, dry_run, emptied)
    if found.outside:
        yield (
            "It was part of an agent, a session, a directory or the name of a project, which come "
            "from outside: the next call from there writes it again. Rename that, then purge again."
        )


def _of_file(file: PurgedFile, left: _Found, dry_run: bool, emptied: bool) -> Iterator[str]:
    if file.found < 0:
        yield f"{file.path} ({file.what}) can't be read, and was not searched."
    elif not file.found:
        return
    elif file.what in OWN:
        if file.what == WAL and not emptied:
            who = readers(file.path.removesuffix("-wal"))
            yield (
                f"{file.path} still holds it, since an older state is being read from it"
                f"{f' by {who}' if who else ''}. Purge again when that has ended."
            )
        elif not (dry_run or left.elsewhere or left.places):
            yield (
                f"The bytes of {file.path} hold it though no text does: as part of a time, a "
                "number or a digest, or where names stand side by side. That does not come from "
                "the text."
            )
    else:
        yield f"{file.path} ({file.what}) holds it. {_WAYS_OUT.get(file.what, _WAY_OUT)}"
