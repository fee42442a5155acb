"""What a session has in hand, what of it it left without a word, and what it was told of that."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_state.models import Attempt, Event, Run, Thread
from mcp_state.record import record
from mcp_state.store import run_rows, thread_rows
from mcp_state.store.noun import Noun, reads, writes
from mcp_state.store.transaction import Reading, Writing, event_of

_LAST = """
    SELECT * FROM event_rows WHERE project = :project AND seq = (
        SELECT max(seq) FROM last_events WHERE project = :project AND session = :session
    )
"""
_RUN = """
    SELECT run_rows.* FROM session_runs
    JOIN run_rows ON run_rows.project = session_runs.project AND run_rows.name = session_runs.run
    WHERE session_runs.project = :project AND session_runs.session = :session
        AND run_rows.status = 'open' AND run_rows.touched_session = :session
"""
# Steps, and taking a run or a lease, are work; whatever else a session writes tells of it.
_SAID = """
    SELECT 1 FROM events JOIN actors ON actors.id = actor
    WHERE project = :project AND seq BETWEEN :since AND :last AND session = :session
        AND kind <> 'trace' AND operation NOT IN ('refused', 'lease_claimed', 'lease_extended')
        AND NOT (kind = 'step' OR kind = 'run' AND operation IN ('begin', 'join'))
    LIMIT 1
"""
TOLD = "told"
"""What a session was told of is remembered as an idempotency key of this operation."""
_THREADS = 10
_STEPS = 3


@record
class InHand:
    """What one session last wrote, holds and works on.

    `steps` are those that it began in `run` and did not end. `silent` are those of `threads` and
    `run` about which it wrote nothing since it took them, or last worked on them. Each has the
    number of an event that stays the same as long as it is left like this: the claim, or the last
    checkpoint.
    """

    last: Event | None
    threads: Sequence[Thread] = ()
    run: Run | None = None
    steps: Sequence[tuple[str, Attempt]] = ()
    silent: Sequence[tuple[Thread | Run, int]] = ()


class Sessions(Noun):
    """The caller's session, in one project."""

    @reads
    def in_hand(self, tx: Reading) -> InHand:
        """What the session has in hand; nothing if it never wrote anything."""
        me: dict[str, str | int] = {"session": self.caller.actor.session}
        row = tx.one(_LAST, me) if tx.project and me["session"] else None
        if row is None:
            return InHand(None)
        me["last"] = row["seq"]
        threads = thread_rows.held_here(tx, _THREADS)
        silent: list[tuple[Thread | Run, int]] = [
            (thread, thread.lease.token)
            for thread in threads
            if thread.lease and not tx.one(_SAID, me | {"since": thread.lease.token})
        ]
        found = tx.one(_RUN, me)
        if found is None:
            return InHand(event_of(row), threads, silent=silent)
        run = run_rows.run_of(tx, found)
        if not tx.one(_SAID, me | {"since": found["touched"]}):
            checkpoint = run_rows.checkpoint_row(tx, found["name"], run.checkpoints)
            silent.append((run, checkpoint["seq"] if checkpoint else found["created"]))
        left = run_rows.left_open(tx, found["name"], _STEPS)
        steps = [(step, one) for step, one in left if one.begun_by.session == me["session"]]
        return InHand(event_of(row), threads, run, steps, silent)

    @writes
    def tell(self, tx: Writing, since: Sequence[int]) -> Sequence[int]:
        """Those of these event numbers of which the session was not told before, noted as told."""
        new: list[int] = []
        for seq in since:
            key = f"{self.caller.actor.session} {seq}"
            if tx.remembered(TOLD, key) is None:
                tx.remember(TOLD, key, "", seq)
                new.append(seq)
        tx.changed = bool(new)
        return new
