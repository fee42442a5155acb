"""A fault at each system call that touches the files: an error, half a write, or `kill -9`.

Whatever befalls: what was acknowledged is there, what was refused is not, nothing is there by half,
and the store goes on. What is there is told by the whole contents, read with plain `sqlite3` and
compared with what an unharmed process leaves. A sample runs always, another one each time;
`MCP_STATE_SOAK=1` (`make soak`) strikes every point of every thread.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import deeds
import pytest
from deeds import (
    BACKUP,
    BACKUP_OVER,
    FINE,
    KINDS,
    MIGRATIONS,
    PURGE,
    RESTORE,
    SECRET,
    Deed,
    Stopped,
    leave,
)
from faults import KILL, Blow, blows, hindrance, points_of, struck
from ledger import Entry, entry, read
from planting import held_by_bytes
from raw_client import Call, Server, closing_all
from soaking import SOAK
from test_kill import seeded
from victims import nursery
from workload import plain, rows

from mcp_state.errors import StoreDamaged
from mcp_state.store.doctor import examine

pytestmark = pytest.mark.sqlite

NEEDED = SOAK or bool(os.environ.get("MCP_STATE_NEED_STRACE"))
SEED = random.SystemRandom().randrange(1 << 32)
IN_DOUBT = "it is not certain whether this was saved"
OUT_OF_THE_WAY = "and could not be moved back"
PURGED = ("purged from ", "no row holds the text any more, but the bytes of the files may")
"""How a purge that is not clean says that it is done, as far as the rows go."""

Contents = tuple[str, ...]


@pytest.fixture(scope="module", autouse=True)
def able() -> None:
    """Skip what strace is needed for, or fail where it has to be there."""
    if why := hindrance():
        (pytest.fail if NEEDED else pytest.skip)(why)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("templates")
    deeds.make_templates(folder)
    return folder


def contents(store: Path) -> Contents:
    """All that is in a store, but for the index of its texts; nothing of none."""
    if not store.exists():
        return ()
    with closing(sqlite3.connect(store)) as connection:
        lines = connection.iterdump()
        return tuple(sorted(line for line in lines if not line.startswith('INSERT INTO "search')))


def settle(store: Path) -> None:
    """Another process opens the store, reads and writes."""

    async def go_on() -> None:
        async with deeds.opened(store, Stopped()) as state:
            await state.memory.blocks()
            await deeds.go_on(state, "later")

    asyncio.run(go_on())


def possible(ended: str) -> Sequence[bool]:
    """Whether what ended so is done; of what was killed nothing is known."""
    if ended == FINE or any(words in ended for words in PURGED):
        return [True]
    return [False, True] if not ended or IN_DOUBT in ended else [False]


class Rounds:
    """Strikes at one deed, each in a folder of its own, and what unharmed processes leave.

    `held` is what is in the store by whether it was done; before, a store that is made or migrated
    is as good as what was there. `left` is what is in it in the end, by whether it was done and
    whether the same process went on.
    """

    def __init__(self, deed: Deed, template: Path, folder: Path) -> None:
        self.deed = deed
        self.template = template
        self.folder = folder
        self.held: dict[bool, set[Contents]] = {False: set(), True: set()}
        self.left: dict[tuple[bool, bool], Contents] = {}
        self._count = 0
        store = self.new_store()
        self.before = self.found_in(store)
        self.copies = {name: contents(store.parent / name) for name in ("copy.db", "new.db")}
        if deed.first is deeds.nothing:
            self.held[False].add(self.before)
        for done in (False, True):
            self._learn(done)

    def _learn(self, done: bool) -> None:
        store, copy = self.new_store(), self.new_store("killed-")
        with closing(nursery().start(self.deed.name, store, idle=not done)) as victim:
            assert victim.hear("ready")
            victim.go()
            ended = victim.hear("ended")
            assert ended == FINE, ended
            shutil.rmtree(copy.parent)
            leave(store, copy.parent)
            if self.deed.command is None:
                victim.go()
                assert victim.hear("went on") == FINE
                victim.go()
                assert victim.hear("bye")
        self.held[done].add(contents(copy))
        for went_on, end in ((False, copy), (True, store)):
            settle(end)
            self.left[done, went_on] = contents(end)

    def blows(self) -> list[Blow]:
        """What can befall it."""
        return list(blows(points_of(self.deed.name, self.new_store(), self.folder / "log")))

    def new_store(self, prefix: str = "") -> Path:
        self._count += 1
        home = self.folder / f"{prefix}{self.deed.name}-{self._count}"
        shutil.copytree(self.template, home)
        return home / "state.db"

    def found_in(self, store: Path) -> Contents:
        """What would be found in the store if everybody were killed now."""
        copy = self.folder / "copy"
        leave(store, copy)
        try:
            return contents(copy / store.name)
        finally:
            shutil.rmtree(copy)

    def strike(self, blow: Blow) -> None:
        """One round."""
        store = self.new_store()
        try:
            self._strike(store, blow)
        except Exception as problem:
            problem.add_note(f"{self.deed.name}: {blow}")
            raise
        shutil.rmtree(store.parent)

    def _strike(self, store: Path, blow: Blow) -> None:
        said = "refused"
        with struck(self.deed.name, store, blow, self.folder / "log") as (victim, ended):
            assert bool(ended) == (blow.fault != KILL)
            found = self.found_in(store)
            if ended and self.deed.command is None:
                victim.go()
                said = victim.hear("went on")
                assert said == FINE or blow.fault.endswith("for good"), said
                victim.go()
                assert victim.hear("bye")
        told = f"{ended!r}, then {said!r}"
        assert not ended.startswith(deeds.BROKEN) and not said.startswith(deeds.BROKEN), told
        if self.deed == RESTORE and not found:
            assert not ended or OUT_OF_THE_WAY in ended, ended
            self._restore_again(store)
            ended, found = FINE, self.found_in(store)
        done = [one for one in possible(ended) if found in self.held[one]]
        assert done, told
        if IN_DOUBT in ended:
            done = [False, True]  # what a kill would leave is not what those who live see
        leaves_half = blow.fault == KILL or blow.point.call.startswith("unlink")
        self._check_beside(store, ended, done, leaves_half=leaves_half)
        settle(store)
        left = contents(store)
        assert left in [self.left[one, two] for one in done for two in possible(said)], told
        assert_sound(store, leaves_half=leaves_half)

    def _again(self, store: Path) -> None:
        with closing(nursery().start(self.deed.name, store)) as victim:
            assert victim.hear("ready")
            victim.go()
            ended = victim.hear("ended")
            assert ended == FINE, ended

    def _restore_again(self, store: Path) -> None:
        """Killed when the old file was already out of the way: nobody begins anew."""
        with pytest.raises(StoreDamaged, match="the file is gone"):
            settle(store)
        self._again(store)

    def _check_beside(
        self, store: Path, ended: str, done: Sequence[bool], *, leaves_half: bool
    ) -> None:
        """The files beside the store: old or new, and whole."""
        home = store.parent
        new = {f.name for f in home.iterdir()} - {f.name for f in self.template.iterdir()}
        new -= {f"state.db{end}" for end in ("", "-wal", "-shm", "-queue", "-journal")}
        if leaves_half:
            new = {name for name in new if ".new-" not in name}
        if self.deed in (BACKUP, BACKUP_OVER):
            name = "new.db" if self.deed == BACKUP else "copy.db"
            copies = {False: self.copies[name], True: self.before}
            assert contents(home / name) in [copies[one] for one in possible(ended)]
            new -= {"new.db"}
        elif self.deed == RESTORE:
            aside = {name for name in new if name.startswith("state.db.damaged-")}
            assert bool(aside) in done
            if aside:
                assert self._put_together(home, aside) == self.before
            new -= aside
        elif self.deed in MIGRATIONS:
            for copy in home.glob("state.db.v*.bak"):
                assert contents(copy) == self.before
                new -= {copy.name}
        elif self.deed == PURGE and done == [True]:
            self._again(store)
            left = [name for name in held_by_bytes(home, SECRET) if ".new-" not in name]
            assert left == []
        assert not new, new

    def _put_together(self, home: Path, aside: set[str]) -> Contents:
        """What is in the files that were moved aside, in one or two attempts."""
        folder = self.folder / "aside"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in aside:
            end = "-wal" if name.endswith("-wal") else "-shm" if name.endswith("-shm") else ""
            shutil.copy(home / name, folder / f"state.db{end}")
        (folder / "state.db-shm").unlink(missing_ok=True)
        return contents(folder / "state.db")


_COUNTS = """
    SELECT (SELECT sum(last_event) FROM projects), (SELECT count(*) FROM events), changes FROM store
"""


def assert_sound(store: Path, *, leaves_half: bool) -> None:
    """Nothing is wrong with it, says SQLite, and doctor."""
    with plain(store) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        last, events, changes = connection.execute(_COUNTS).fetchone()
        assert last == events == changes
    problems = [problem.what for problem in asyncio.run(examine(str(store))).problems]
    assert [p for p in problems if not (leaves_half and p.startswith("left half-made"))] == []


SIZE = "soak" if SOAK else "slice"


def every(rounds: Rounds) -> list[Blow]:
    """All that can befall it; of what takes long, what befalls an open store."""
    open_ = rounds.deed in KINDS["write"]
    return [blow for blow in rounds.blows() if open_ or not blow.takes_long]


def some(rounds: Rounds, rng: random.Random) -> list[Blow]:
    """For a third of the kinds of calls the last one fails, or one meets anything else."""
    found = [blow for blow in rounds.blows() if not blow.takes_long]
    last = {(blow.point.call, blow.fault): blow for blow in found if blow.fault[:3] == "EIO"}
    rng.shuffle(found)
    others = {blow.point.call: blow for blow in found if blow.fault[:3] != "EIO"}
    failing = list(last.values())
    rng.shuffle(failing)
    return [*failing[::3], *list(others.values())[::3]]


def sized(kinds: Iterable[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "kind", [pytest.param(kind, id=f"{kind}-{SIZE}") for kind in kinds]
    )


@sized(kind for kind in KINDS if SOAK or kind not in ("close", "rollback journal"))
def test_whatever_befalls_a_call_all_of_it_is_there_or_nothing_as_was_answered(
    kind: str, templates: Path, tmp_path: Path
) -> None:
    problems: list[Exception] = []
    with seeded(SEED) as rng:
        for deed in KINDS[kind] if SOAK else [rng.choice(KINDS[kind])]:
            rounds = Rounds(deed, templates / deed.at, tmp_path)
            for blow in every(rounds) if SOAK else some(rounds, rng):
                try:
                    rounds.strike(blow)
                except Exception as problem:
                    problems.append(problem)
        if problems:
            raise ExceptionGroup(f"{len(problems)} blows were not borne", problems)


OTHERS = 3


@pytest.mark.parametrize("count", [pytest.param(1000 if SOAK else 12, id=SIZE)])
def test_who_writes_beside_one_that_is_killed_at_a_point_notices_nothing(
    count: int, templates: Path, tmp_path: Path
) -> None:
    """Four processes write at once; the fourth is another one each time, and dies of it."""
    deed = deeds.AMONG_OTHERS
    rounds = Rounds(deed, templates / deed.at, tmp_path)
    kills = [blow for blow in rounds.blows() if blow.fault == KILL]
    store = tmp_path / "shared" / "state.db"
    servers = [Server.start(store, agent=f"other{number}") for number in range(OTHERS)]
    said = [Call("journal_append", {"text": "to begin with"})]
    over = threading.Event()
    victims: Counter[Entry] = Counter()
    killed = 0

    def write_beside(number: int) -> None:
        for turn in itertools.takewhile(lambda _: not over.is_set(), itertools.count()):
            call = Call("journal_append", {"text": f"other {number}, turn {turn}"})
            assert servers[number].call(call).code == ""
            said.append(call)

    with seeded(SEED) as rng, closing_all(servers), ThreadPoolExecutor(OTHERS) as pool:
        assert servers[0].call(said[0]).code == ""
        writing = [pool.submit(write_beside, number) for number in range(OTHERS)]
        try:
            for _ in range(count):
                blow = rng.choice(kills)
                [(before,)] = rows(store, "SELECT max(changed) FROM memory")
                with struck(deed.name, store, blow, tmp_path / "log", alone=False) as (it, ended):
                    killed += not ended
                    assert ended in (FINE, "")
                    victims += by(it.pid, store, before, possible(ended))
        finally:
            over.set()
        for one in writing:
            one.result()
    assert killed > count * 0.8
    ledger = read(store)
    assert ledger.problems == []
    assert ledger.written == victims + Counter(entry(call) for call in said)
    assert_sound(store, leaves_half=False)


def by(pid: int, store: Path, before: object, done: Sequence[bool]) -> Counter[Entry]:
    """What a victim among others wrote, in full: what it was told is there, and what may be."""
    found = rows(
        store,
        "SELECT name, value FROM memory WHERE name LIKE '% ' || ? AND changed > ? ORDER BY name",
        pid,
        before or 0,
    )
    acknowledged, whole = (f"before {pid}", "acknowledged"), (f"by {pid}", deeds.WHOLE)
    assert found in [[acknowledged, whole] if one else [acknowledged] for one in done]
    return Counter(("memory_set", str(name), str(value)) for name, value in found)
