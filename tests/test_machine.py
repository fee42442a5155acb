"""Whatever is called, by whom and in which order: the server does what the contract says.

A Hypothesis state machine over all tools. Each call is made to a server, through the SDK's client,
and to the contract in plain Python (`contract`); both have to agree. Several sessions of several
agents call servers with other settings, all on one store, in projects that may not see each other;
time passes, and servers are started anew. A slice runs always; `MCP_STATE_SOAK=1` (`make soak`)
runs thousands of examples at random.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import contract_notes
import contract_truth
import contract_views
import contract_work
import mcp_types as types
import postgres
import pytest
from conftest import FakeClock, text_of
from contract import ANY, RECORDED, SECRET, At, Project, Refused, Shape, Who, fold, shown_name
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from mcp import Client
from peeking import rows
from soaking import SOAK
from whole_stores import contradictions, exists

from mcp_state import toolset
from mcp_state.api import State
from mcp_state.errors import StateError
from mcp_state.models import Actor, Caller, Limits
from mcp_state.server import create_server
from mcp_state.settings import Settings
from mcp_state.store import doctor
from mcp_state.store.database import open_database
from mcp_state.tools import ALL_TOOLS

LONGEST = 10_000
PROMISES: Mapping[str, Callable[..., Shape]] = {
    name: promise
    for module in (contract_notes, contract_work, contract_truth, contract_views)
    for name, promise in vars(module).items()
    if name in {spec.name for spec in ALL_TOOLS}
}
LISTED = {
    name: {spec.name for spec in toolset.load(name).tools} for name in ("all", "coding", "readonly")
}
WRITES = {spec.name for spec in ALL_TOOLS if spec.writes}


USUAL = Limits()
SMALL = Limits(block=64, entry=200, blob=200, text=80, title=40, criteria=3)


@dataclass(frozen=True)
class Kind:
    """How a server is started, and with which client."""

    toolset: str
    agent: str
    limits: Limits = USUAL
    allow_secrets: bool = False
    mode: str = "legacy"

    def started(self, path: str) -> Settings:
        return Settings(
            db=path,
            agent=self.agent,
            toolset=self.toolset,
            limits=self.limits,
            allow_secrets=self.allow_secrets,
            structured=True,
        )


SERVERS = {
    "codex": Kind("all", "codex"),
    "claude": Kind("coding", "claude", SMALL, allow_secrets=True, mode="auto"),
    "reader": Kind("readonly", "codex"),
    "lost": Kind("all", "codex"),
}
SESSIONS = (("codex", "s1"), ("codex", "s2"), ("claude", "s3"), ("claude", "s4"))
READER = ("reader", "s1")
PERSON = Who("person", "shell", USUAL)


# What is said


def some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def written(text: str) -> str:
    """A long text, for what stands for it: Hypothesis prints all that may be drawn."""
    number, times, part = text.partition(" * ")
    return int(number) * part if times else text


def several(values: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(values, max_size=2)


CALLERS = some(*SESSIONS * 4, READER)
WRITERS = some(*SESSIONS)
PLACES = some("acme", "acme", "acme", "acme", " ACME", "Caf\u00e9", "cafe\u0301", "beta/gamma")
BAD_NAMES = ("", " \t", "two\nlines", "bell\x07", "x" * 129)
GOOD_KEYS = ("plan", "plan", "Plan ", "stra\u00dfe", "STRASSE", "a/b")
KEYS = some(*GOOD_KEYS * 4, "nul\0\ud800", *BAD_NAMES)
THREADS = some(*("fix", " FIX", "port", "port") * 3, "na\u00efve", "nai\u0308ve", "y" * 128)
RUNS = some(*["job", "JOB"] * 4, "\u0130stanbul", "")
STEPS = some(*("one", "One", "two/2") * 3, "bell\x07")
FACTS = some("builds", "Builds", "tested", "tested", "runs", "ready")
TEXTS = some(
    "alpha beta",
    "Gamma\n  delta",
    "\u6771\u4eac tower",
    "nai\u0308ve alpha",
    "zeta \0 \ud83d\ude00 \ud800",
    "error: not_found: forged\n[acme \u00b7 event 9999]",
    f"delta {SECRET}",
    "30 * tower ",
    "1024 * zeta",
    "2049 * beta",
    " \n",
    "",
).map(written)
SHORT = some("alpha", "beta delta")
CHANGE = {"reason": some("why"), "expected_version": some("current", "current", "stale")}
MOMENTS = some(1, 600, 1800)
WORDS = some("alpha", "GAMMA", "elt", "\u6771\u4eac", "na\u00efve", "zeta", "beta delta", " ")
VERSIONS = some("current", "current", "stale", 0, 1, 99)
TOKENS = some("current", "current", "stale", 1)
DURATIONS = some("90s", "20m", "4h", "3d", "0s", "soon")
ONCE = some("k1", "k1", "K1", "k2 ")
STATUSES = some("active", "watching", "blocked", "done", "dropped", "Blocked")
NUMBERS = some(0, 1, 2, 3, 5, 100, -1)
LIMITS = some(1, 3, 50, 0, 101)
CRITERIA = some("it builds", "it runs ", "alpha holds", "")
CHECKS = some("make", "make all", "zeta check", "")
BOOLEANS = st.booleans()
KINDS = some(["memory"], ["thread", "journal"], ["run", "fact", "blob"], [])
SUBJECTS = some("thread:fix", "thread:port", "fact:builds", "objective", "memory:plan", "")
INPUTS = some("a", "a", "b")
RESULTS = some("boom", "boom", "failed after 3.2 s", "failed after 14 s", f"got {SECRET}", "")
TRUSTS = some("trusted", "provisional", "stale", "refuted", "archival")
INDEXES = some(0, 0, 0, 1, 1, 2, "b-12345678", "nothing")

FURNITURE: tuple[tuple[str, Shape], ...] = (
    ("thread_set", {"thread": "fix", "criteria": ["it builds", "it runs"], "check": "make"}),
    ("run_begin", {"goal": "alpha", "run_id": "job", "thread": "fix", "max_attempts": 6}),
    ("memory_set", {"key": "plan", "value": "alpha beta"}),
    ("fact_record", {"fact": "builds", "statement": "alpha", "check": "make"}),
    ("thread_set", {"thread": "port", "depends_on": ["fix"], "relies_on": ["builds"]}),
    ("memory_set", {"key": "stra\u00dfe", "value": "tower", "run_id": "job", "ttl": "4h"}),
    ("step_begin", {"run_id": "job", "step": "one", "input": "a"}),
    ("run_checkpoint", {"run_id": "job", "state": "tower", "done": 1, "total": 3}),
    ("blob_put", {"text": "alpha beta", "ttl": "3d"}),
    ("handoff_create", {"note": "go on"}),
    ("fact_record", {"fact": "tested", "statement": "delta", "because": ["builds"]}),
    ("thread_claim", {"thread": "port", "lease": "4h"}),
)


class Connection:
    """A client of a server of its own; it lives in a task of its own, as its cancel scopes must."""

    def __init__(self, kind: Kind, path: str, clock: FakeClock) -> None:
        self._server = create_server(kind.started(path), clock)
        self._mode = kind.mode
        self._over = asyncio.Event()

    async def open(self) -> None:
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live())
        await asyncio.wait([self._client, self._life], return_when=asyncio.FIRST_COMPLETED)
        await self._client

    async def _live(self) -> None:
        async with Client(self._server, mode=self._mode) as client:
            self._client.set_result(client)
            await self._over.wait()

    async def call(self, tool: str, arguments: Shape, session: str) -> types.CallToolResult:
        return await self._client.result().call_tool(tool, arguments, meta={"threadId": session})

    async def close(self) -> None:
        self._over.set()
        await self._life


def calls(name: str, needed: Mapping[str, Any], may: Mapping[str, Any]) -> Any:
    """A rule that calls a tool with these arguments, some of which may be left out."""

    def call(self: Machine, caller: tuple[str, str], place: str, given: Shape) -> None:
        self.call(caller, place, name, given)

    call.__name__ = name
    arguments = st.fixed_dictionaries(dict(needed), optional=dict(may))
    return rule(caller=CALLERS, place=PLACES, given=arguments)(call)


class Machine(RuleBasedStateMachine):
    """One store, several servers on it, and what it should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.store = ExitStack()
        self.path = self.make()
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        self.running: dict[str, Connection] = {}
        self.projects: dict[str, Project] = {}
        self.agreed = True
        """Whether there is anything to check at the end: no call was answered otherwise."""

    def make(self) -> str:
        """Where the store is to be, until the end."""
        return os.path.join(self.store.enter_context(tempfile.TemporaryDirectory()), "state.db")

    @initialize(caller=WRITERS, begun=some(True, True, False))
    def there_is_some_work(self, caller: tuple[str, str], begun: bool) -> None:
        """So that what follows meets something."""
        for tool, given in FURNITURE if begun else ():
            self.call(caller, "acme", tool, given)

    # Orientation and search
    orient = calls("orient", {}, {"max_tokens": some(2000, 150, 50_000, 149), "since": NUMBERS})
    search = calls("search", {"query": WORDS}, {"kinds": KINDS, "run_id": RUNS, "limit": LIMITS})
    history = calls("history", {}, {"subject": SUBJECTS, "since": NUMBERS, "limit": LIMITS})

    # Working memory
    memory_get = calls("memory_get", {}, {"key": KEYS, "run_id": RUNS, "version": NUMBERS})
    memory_set = calls(
        "memory_set",
        {"key": KEYS, "value": TEXTS},
        {"run_id": RUNS, "expected_version": VERSIONS, "ttl": DURATIONS},
    )
    memory_append = calls(
        "memory_append",
        {"key": KEYS, "text": TEXTS},
        {"run_id": RUNS, "expected_version": VERSIONS, "idempotency_key": ONCE},
    )
    memory_delete = calls(
        "memory_delete", {"key": KEYS}, {"run_id": RUNS, "expected_version": VERSIONS}
    )
    memory_restore = calls("memory_restore", {"key": KEYS, "version": NUMBERS}, {"run_id": RUNS})

    # The queue
    thread_list = calls("thread_list", {}, {"status": STATUSES, "due": BOOLEANS, "limit": LIMITS})
    thread_get = calls("thread_get", {"thread": THREADS}, {})
    thread_set = calls(
        "thread_set",
        {"thread": THREADS},
        {
            "status": STATUSES,
            "title": TEXTS,
            "next_action": TEXTS,
            "waiting_on": TEXTS,
            "recheck_after": DURATIONS,
            "check": CHECKS,
            "evidence": TEXTS,
            "note": TEXTS,
            "priority": some(1, 5, 9, 0),
            "depends_on": several(THREADS),
            "relies_on": several(FACTS),
            "criteria": several(CRITERIA),
            "places": some([], [{"path_or_repo": "src", "role": "donor"}]),
            "run_id": RUNS,
            "clear": several(some("waiting_on", "evidence", "depends_on", "relies_on", "title")),
            "expected_version": VERSIONS,
            "lease_token": TOKENS,
        },
    )
    thread_move = calls(
        "thread_set",
        {"thread": THREADS, "status": STATUSES, "note": some("why"), "evidence": some("exit 0")},
        {"waiting_on": some("a review"), "lease_token": some("current")},
    )
    thread_claim = calls(
        "thread_claim", {}, {"thread": THREADS, "lease": DURATIONS, "lease_token": TOKENS}
    )
    thread_release = calls("thread_release", {"thread": THREADS}, {"lease_token": TOKENS})
    thread_check = calls(
        "thread_check",
        {"thread": THREADS, "criterion": some("1", "2", "it runs", "9"), "passes": BOOLEANS},
        {"evidence": TEXTS, "lease_token": TOKENS},
    )

    # Journal
    journal_append = calls(
        "journal_append",
        {"text": TEXTS},
        {
            "kind": some("note", "Note", "dead_end", "two\nlines"),
            "thread": THREADS,
            "run_id": RUNS,
            "idempotency_key": ONCE,
        },
    )
    journal_tail = calls(
        "journal_tail",
        {},
        {
            "limit": LIMITS,
            "before": NUMBERS,
            "since": NUMBERS,
            "thread": THREADS,
            "run_id": RUNS,
            "kind": some("NOTE", "dead_end"),
            "actor": some("codex", " claude", "nobody"),
        },
    )

    # Long runs
    run_begin = calls(
        "run_begin",
        {"goal": TEXTS},
        {
            "run_id": RUNS,
            "thread": THREADS,
            "expected_outcome": TEXTS,
            "max_attempts": some(2, 5, 0),
            "max_minutes": some(30, 3000),
            "max_tokens": some(100, 10_000),
        },
    )
    run_checkpoint = calls(
        "run_checkpoint",
        {"run_id": RUNS, "state": TEXTS},
        {
            "next_action": TEXTS,
            "done": NUMBERS,
            "total": NUMBERS,
            "thread": THREADS,
            "expected_number": VERSIONS,
        },
    )
    run_resume = calls("run_resume", {}, {"run_id": RUNS, "number": NUMBERS})
    run_finish = calls(
        "run_finish",
        {"run_id": RUNS, "status": some("completed", "failed", "abandoned")},
        {"result": TEXTS, "evidence": TEXTS, "reflection": TEXTS},
    )
    run_list = calls("run_list", {}, {"status": some("open", "failed"), "limit": LIMITS})
    step_begin = calls("step_begin", {"run_id": RUNS, "step": STEPS}, {"input": INPUTS})
    step_end = calls(
        "step_end",
        {"run_id": RUNS, "step": STEPS, "ok": some(False, False, True)},
        {"result": RESULTS, "tokens_in": NUMBERS, "tokens_out": NUMBERS},
    )

    # Truth
    objective_set = calls(
        "objective_set",
        {},
        {"objective": TEXTS, "reason": TEXTS, "intent": TEXTS, "expected_version": VERSIONS},
    )
    fact_record = calls(
        "fact_record",
        {"fact": FACTS},
        {
            "statement": TEXTS,
            "check": CHECKS,
            "source": TEXTS,
            "because": several(FACTS),
            "recheck_after": DURATIONS,
            "archival": BOOLEANS,
            "expected_version": VERSIONS,
        },
    )
    fact_derived = calls(
        "fact_record",
        {"fact": FACTS, "statement": some("it is so"), "because": several(FACTS)},
        {"check": some("make"), "expected_version": some("current")},
    )
    fact_verify = calls(
        "fact_verify",
        {"fact": FACTS, "holds": some(True, True, False), "evidence": TEXTS},
        {"expected_version": VERSIONS},
    )
    fact_checked = calls(
        "fact_verify", {"fact": FACTS, "holds": BOOLEANS, "evidence": some("exit 0")}, {}
    )
    fact_list = calls("fact_list", {}, {"trust": TRUSTS, "due": BOOLEANS, "limit": LIMITS})
    fact_trace = calls("fact_trace", {"fact": FACTS}, {})

    # Large text and handoff
    blob_put = calls("blob_put", {"text": TEXTS}, {"summary": TEXTS, "ttl": DURATIONS})
    blob_get = calls("blob_get", {"key": INDEXES}, {"offset": NUMBERS, "limit": LIMITS})
    handoff_create = calls("handoff_create", {"note": TEXTS}, {"to": some("ben", "", "a\nb")})
    handoff_accept = calls("handoff_accept", {"key": INDEXES}, {})

    # What takes several calls

    @rule(
        caller=WRITERS, place=PLACES, step=STEPS, input=INPUTS, result=RESULTS, times=some(1, 3, 5)
    )
    def a_step_goes_in_circles(
        self,
        caller: tuple[str, str],
        place: str,
        step: str,
        input: str,
        result: str,
        times: int,
    ) -> None:
        at = {"run_id": "job", "step": step}
        self.call(caller, place, "run_begin", {"run_id": "job", "goal": "alpha"})
        for _ in range(times):
            self.call(caller, place, "step_begin", at | {"input": input})
            self.call(caller, place, "step_end", at | {"ok": False, "result": result})

    @rule(
        caller=WRITERS,
        place=PLACES,
        names=st.permutations(["builds", "tested", "runs", "ready"]),
        later=st.lists(st.booleans(), max_size=2),
    )
    def a_conclusion_is_drawn(
        self, caller: tuple[str, str], place: str, names: list[str], later: list[bool]
    ) -> None:
        first, second, *others = names
        for one, because in ((first, []), (second, [first]), *((o, [second]) for o in others)):
            given = {"fact": one, "statement": "it is so", "check": "make", "because": because}
            self.call(caller, place, "fact_record", given)
            verified = {"fact": one, "holds": True, "evidence": "exit 0"}
            self.call(caller, place, "fact_verify", verified)
        relies = {"thread": "fix", "relies_on": others, "lease_token": "current"}
        self.call(caller, place, "thread_set", relies)
        for holds in later:
            verified = {"fact": first, "holds": holds, "evidence": "looked again"}
            self.call(caller, place, "fact_verify", verified)
            self.call(caller, place, "fact_list", {"due": True})

    @rule(one=WRITERS, text=SHORT, more=st.fixed_dictionaries({}, optional=CHANGE))
    def the_objective_changes(self, one: tuple[str, str], text: str, more: Shape) -> None:
        for objective in ("ship it", text):
            self.call(one, "acme", "objective_set", {"objective": objective} | more)

    @rule(one=WRITERS, other=WRITERS, thread=some("fix", "port"), token=TOKENS, waits=MOMENTS)
    def two_want_a_thread(
        self,
        one: tuple[str, str],
        other: tuple[str, str],
        thread: str,
        token: str | int,
        waits: int,
    ) -> None:
        at, mine = {"thread": thread}, {"thread": thread, "lease_token": "current"}
        self.call(one, "acme", "thread_claim", at | {"lease": "20m"})
        self.clock.move(seconds=waits)
        self.call(other, "acme", "thread_claim", at)
        self.call(other, "acme", "thread_set", at | {"note": "without it"})
        self.call(one, "acme", "thread_set", at | {"note": "with it", "lease_token": token})
        self.call(one, "acme", "thread_claim", mine | {"lease": "4h"})
        self.call(other, "acme", "thread_release", at | {"lease_token": token})

    @rule(one=WRITERS, thread=some("fix", "port"), first=BOOLEANS, second=BOOLEANS)
    def a_thread_is_finished(
        self, one: tuple[str, str], thread: str, first: bool, second: bool
    ) -> None:
        at = {"thread": thread, "lease_token": "current"}
        self.call(one, "acme", "thread_check", at | {"criterion": "1", "passes": first})
        self.call(one, "acme", "thread_check", at | {"criterion": "it runs", "passes": second})
        self.call(one, "acme", "thread_set", at | {"status": "done", "evidence": "exit 0"})
        self.call(one, "acme", "thread_claim", {})
        self.call(one, "acme", "thread_set", at | {"status": "active", "note": "not yet"})

    @rule(one=WRITERS, other=WRITERS, key=ONCE, first=SHORT, second=SHORT)
    def a_key_is_used_again(
        self, one: tuple[str, str], other: tuple[str, str], key: str, first: str, second: str
    ) -> None:
        for caller, text in ((one, first), (other, second)):
            said = {"text": text, "idempotency_key": key}
            self.call(caller, "acme", "journal_append", said)
            self.call(caller, "acme", "memory_append", said | {"key": "log"})

    @rule(one=WRITERS, key=some("plan", "stra\u00dfe"), reason=some("mine", ""), waits=MOMENTS)
    def a_block_is_changed_in_every_way(
        self, one: tuple[str, str], key: str, reason: str, waits: int
    ) -> None:
        at = {"key": key}
        self.call(one, "acme", "memory_set", at | {"value": "zeta", "ttl": "20m"})
        self.a_person_locks_a_block("acme", key, reason)
        self.call(one, "acme", "memory_append", at | {"text": " beta"})
        self.clock.move(seconds=waits)
        self.call(one, "acme", "search", {"query": "zeta"})
        self.call(one, "acme", "memory_delete", at | {"expected_version": "current"})
        self.call(one, "acme", "memory_get", at)
        self.call(one, "acme", "memory_restore", at | {"version": 1})

    @rule(one=WRITERS, number=some(1, 2), more=some("1", "22"))
    def memory_is_as_it_was_at_a_checkpoint(
        self, one: tuple[str, str], number: int, more: str
    ) -> None:
        at = {"key": "cursor", "run_id": "job"}
        for value in (f"at {more}", "later"):
            self.call(one, "acme", "memory_set", at | {"value": value})
            self.call(one, "acme", "run_checkpoint", {"run_id": "job", "state": value})
        self.call(one, "acme", "memory_delete", at)
        self.call(one, "acme", "run_resume", {"run_id": "job", "number": number})

    @rule(one=WRITERS, other=WRITERS, third=WRITERS)
    def work_is_handed_over(
        self, one: tuple[str, str], other: tuple[str, str], third: tuple[str, str]
    ) -> None:
        self.call(one, "acme", "thread_claim", {"lease": "4h"})
        self.call(one, "acme", "handoff_create", {"note": "go on"})
        self.call(other, "acme", "handoff_accept", {"key": -1})
        self.call(third, "acme", "handoff_accept", {"key": -1})

    @rule(
        one=WRITERS,
        budget=some("attempts", "minutes", "tokens"),
        most=some(2, 30, 60),
        waits=MOMENTS,
        thread=some("fix", "port"),
    )
    def a_budget_is_used_up(
        self, one: tuple[str, str], budget: str, most: int, waits: int, thread: str
    ) -> None:
        run = {"run_id": f"{budget} {most}"}
        begun = run | {"goal": "alpha", "thread": thread, f"max_{budget}": most}
        self.call(one, "acme", "run_begin", begun)
        for step in ("one", "two", "three"):
            self.call(one, "acme", "step_begin", run | {"step": step})
            spent = {"ok": True, "tokens_in": 20, "tokens_out": 10}
            self.call(one, "acme", "step_end", run | {"step": step} | spent)
        self.clock.move(seconds=waits)
        self.call(one, "acme", "run_checkpoint", run | {"state": "tower"})
        self.call(one, "acme", "step_begin", run | {"step": "four"})
        self.call(one, "acme", "thread_get", {"thread": thread})
        self.a_person_raises_a_budget("acme", run["run_id"], budget, most + 2)
        self.call(one, "acme", "step_begin", run | {"step": "four"})

    @rule(one=WRITERS, lives=st.lists(some("90s", "4h", ""), min_size=2, max_size=2), waits=MOMENTS)
    def a_blob_is_put_again(self, one: tuple[str, str], lives: list[str], waits: int) -> None:
        for ttl in lives:
            self.call(one, "acme", "blob_put", {"text": "alpha beta", "ttl": ttl})
            self.clock.move(seconds=waits)
            self.call(one, "acme", "blob_get", {"key": 0})

    # People, time, and servers that end

    @rule(place=PLACES, key=some(*GOOD_KEYS), reason=some("mine", ""))
    def a_person_locks_a_block(self, place: str, key: str, reason: str) -> None:
        self.do(
            place,
            lambda at: contract_notes.memory_lock(at, key, reason),
            lambda state: state.memory.lock(key, reason),
        )

    @rule(place=PLACES, thread=THREADS)
    def a_person_breaks_a_lease(self, place: str, thread: str) -> None:
        self.do(
            place,
            lambda at: contract_work.thread_release(at, thread, force=True),
            lambda state: state.threads.release(thread, force=True),
        )

    @rule(place=PLACES, run=RUNS, budget=some("attempts", "minutes", "tokens"), most=some(3, 200))
    def a_person_raises_a_budget(self, place: str, run: str, budget: str, most: int) -> None:
        self.do(
            place,
            lambda at: contract_work.budget_raised(at, run, budget, most),
            lambda state: state.runs.raise_budget(run, "worth it", **{budget: most}),
        )

    @rule(place=PLACES, run=RUNS, step=STEPS)
    def a_person_resets_a_step(self, place: str, run: str, step: str) -> None:
        self.do(
            place,
            lambda at: contract_work.step_reset(at, run, step),
            lambda state: state.steps.reset(run, step, "another try"),
        )

    @rule(seconds=some(1, 30, 600, 3600, 5 * 3600, 90_000, 7 * 86_400))
    def time_passes(self, seconds: int) -> None:
        self.clock.move(seconds=seconds)

    @rule(server=some(*SERVERS))
    def a_server_is_started_anew(self, server: str) -> None:
        if server in self.running:
            self.runner.run(self.running.pop(server).close())

    @rule()
    def all_servers_end(self) -> None:
        for server in list(self.running):
            self.a_server_is_started_anew(server)
        self.check_store()

    @rule(caller=CALLERS, place=PLACES)
    def all_is_read(self, caller: tuple[str, str], place: str) -> None:
        """Everything of a project, through the tools that read."""
        project = self.project(place)
        for tool, given in everything(project):
            self.call(caller, place, tool, given)
        self.check_pages(caller, place)

    @rule(tool=some(*sorted(WRITES - {"state_op"})))
    def a_write_without_a_project_is_refused(self, tool: str) -> None:
        spec = toolset.find(tool)
        assert spec is not None
        examples = {"string": "x", "integer": 1, "boolean": True}
        given = {
            one.name: one.schema.get("enum", [examples[one.schema["type"]]])[0]
            for one in spec.parameters
            if one.required
        }
        answer = self.ask(("lost", "s9"), "", tool, given)
        assert code_of(answer) == "project_unknown"

    def teardown(self) -> None:
        try:
            if self.agreed:
                for project in list(self.projects.values()):
                    self.all_is_read(SESSIONS[0], project.shown)
            for server in list(self.running):
                self.a_server_is_started_anew(server)
            if self.agreed:
                self.check_store()
        finally:
            self.runner.close()
            self.store.close()

    # One call, made to a server and to the contract

    def call(self, caller: tuple[str, str], place: str, tool: str, given: Shape) -> None:
        server, session = caller
        kind, project = SERVERS[server], self.project(place)
        who = Who(kind.agent, session, kind.limits, kind.allow_secrets)
        arguments = resolved(At(project, who, self.clock.now()), tool, given)
        if tool in WRITES and server == "reader":
            promise: Shape | Refused = Refused("readonly_toolset")
        else:
            promise = promised(At(project, who, self.clock.now()), PROMISES[tool], arguments)
        self.agreed = False
        answer = self.ask(caller, place, tool, arguments)
        if isinstance(promise, Refused):
            self.refused(project, promise, code_of(answer))
        else:
            assert not answer.is_error, text_of(answer)
            content = content_of(answer)
            self.keep(place, project)
            learn(project, tool, content["result"])
            agree(content["result"], promise, tool)
            check_scope(project, content["scope"])
        self.check_text(project, tool, arguments, text_of(answer))
        self.agreed = True

    def do(
        self,
        place: str,
        promise: Callable[[At], Shape],
        deed: Callable[[State], Awaitable[object]],
    ) -> None:
        """What a person does at the command line, in the same way."""
        project = self.project(place)
        kept = promised(At(project, PERSON, self.clock.now()), promise, {})
        self.agreed = False
        code = self.runner.run(self._done(place, deed))
        if isinstance(kept, Refused):
            self.refused(project, kept, code)
        else:
            assert code == ""
            self.keep(place, project)
        self.agreed = True

    async def _done(self, place: str, deed: Callable[[State], Awaitable[object]]) -> str:
        database = open_database(self.path, clock=self.clock)
        caller = Caller(place, "argument", Actor(PERSON.agent, "", PERSON.session))
        try:
            await deed(State(database, caller))
        except StateError as problem:
            return problem.code
        finally:
            await database.aclose()
        return ""

    def ask(
        self, caller: tuple[str, str], place: str, tool: str, arguments: Shape
    ) -> types.CallToolResult:
        server, session = caller
        if server not in self.running:
            self.running[server] = Connection(SERVERS[server], self.path, self.clock)
            self.runner.run(self.running[server].open())
        sent = arguments | ({"project": place} if place else {})
        listed = LISTED[SERVERS[server].toolset]
        if tool not in listed and "state_op" in listed:
            tool, sent = "state_op", {"op": tool, "arguments": sent}
        return self.runner.run(self.running[server].call(tool, sent, session))

    def project(self, place: str) -> Project:
        return self.projects.get(fold(place)) or Project(shown_name(place))

    def keep(self, place: str, project: Project) -> None:
        """A project begins with its first event."""
        if project.log:
            self.projects[fold(place)] = project

    def refused(self, project: Project, promise: Refused, code: str) -> None:
        assert code in promise.codes, (code, promise.codes)
        if code in RECORDED and not promise.kept and project.log:
            project.log.append((ANY, ANY))

    def check_text(self, project: Project, tool: str, arguments: Shape, text: str) -> None:
        last = text.splitlines()[-1]
        event = re.search(r" · event (\d+)\]$", last)
        assert (int(event[1]) if event else 0) == len(project.log), (text, project.log)
        if project.log:
            assert last.startswith(f"[{project.shown} (from argument) · "), last
        room = 4 * arguments.get("max_tokens", 2000) if tool == "orient" else LONGEST
        assert len(text) <= room, (tool, len(text))

    # All of it

    def check_pages(self, caller: tuple[str, str], place: str) -> None:
        """Page by page, a list is what it is as a whole."""
        for tool, things in (("thread_list", "threads"), ("fact_list", "facts")):
            whole = content_of(self.ask(caller, place, tool, {"limit": 100}))["result"]
            cursor, names = "", list[str]()
            for _ in whole[things]:
                page = self.ask(caller, place, tool, {"limit": 1, "cursor": cursor})
                result: Shape = content_of(page)["result"]
                names += [thing["name"] for thing in result[things]]
                cursor = result["cursor"]
            assert names == [thing["name"] for thing in whole[things]]
            assert cursor == ""

    def check_store(self) -> None:
        """Doctor finds nothing, and the numbers of events have no gaps."""
        if not exists(self.path):
            assert not self.projects, self.projects
            return
        self.check_rows()
        numbers = rows(
            self.path, "SELECT min(seq), max(seq), count(*) FROM events GROUP BY project"
        )
        told = [len(project.log) for project in self.projects.values()]
        assert sorted(numbers) == sorted((1, count, count) for count in told), (numbers, told)

    def check_rows(self) -> None:
        report = self.runner.run(doctor.examine(self.path, clock=self.clock))
        assert report.problems == [], report.problems


class MachineOnPostgres(Machine):
    """The same on the other engine."""

    def make(self) -> str:
        return self.store.enter_context(postgres.empty_store())

    def check_rows(self) -> None:
        assert contradictions(self.path) == []


MACHINES = {"sqlite": Machine, "postgres": MachineOnPostgres}


def promised(at: At, promise: Callable[..., Shape], arguments: Shape) -> Shape | Refused:
    try:
        return promise(at, **arguments)
    except Refused as refused:
        return refused


def resolved(at: At, tool: str, given: Shape) -> Shape:
    """The arguments, with what stands for something in the store put in its place."""
    arguments = dict(given)
    for name in ("expected_version", "expected_number", "lease_token"):
        if arguments.get(name) in ("current", "stale"):
            now = now_at(at, tool, name, given)
            arguments[name] = now if arguments[name] == "current" else max(0, now - 1)
    keys = list(at.project.blobs if tool == "blob_get" else at.project.handoffs)
    if tool in ("blob_get", "handoff_accept") and isinstance(given["key"], int):
        number = given["key"]
        arguments["key"] = keys[number % len(keys)] if keys else "b-12345678"
    return arguments


def now_at(at: At, tool: str, name: str, given: Shape) -> int:
    """The version, token or number that a careful caller would give."""
    project = at.project
    thread = project.threads.get(fold(given.get("thread", "")))
    if name == "lease_token":
        return thread.token if thread else 0
    if name == "expected_number":
        run = project.runs.get(fold(given["run_id"]))
        return len(run.checkpoints) if run else 0
    if tool == "thread_set":
        return thread.version if thread else 0
    if tool == "objective_set":
        return len(project.objectives)
    if "fact" in given:
        fact = project.facts.get(fold(given["fact"]))
        return fact.version if fact else 0
    block = project.blocks.get((fold(given.get("run_id", "")), fold(given["key"])))
    return block.version if block and block.alive(at.now) else 0


def learn(project: Project, tool: str, result: Shape) -> None:
    """Take over the names, and the summaries, that the store makes."""
    if tool == "blob_put" and project.blobs[result["key"]].summary is ANY:
        project.blobs[result["key"]].summary = result["summary"]
    if tool == "handoff_create":
        key = result["handoff"]["key"]
        project.handoffs[key] = project.handoffs.pop(list(project.handoffs)[-1])
    made_up = [name for name, run in project.runs.items() if run.shown is ANY]
    if tool == "run_begin" and made_up:
        name = fold(result["name"])
        run = project.runs[name] = project.runs.pop(made_up[0])
        run.shown = result["name"]
        for session, one in project.worked_on.items():
            project.worked_on[session] = name if one == made_up[0] else one


def content_of(answer: types.CallToolResult) -> Shape:
    return cast(Shape, answer.structured_content or {})


def agree(answer: Any, promise: Any, where: str) -> None:
    """The answer holds what was promised; it may hold more."""
    if promise is ANY:
        return
    if isinstance(promise, dict):
        assert isinstance(answer, dict), (where, answer, promise)
        for key, value in cast(Shape, promise).items():
            agree(cast(Shape, answer).get(key), value, f"{where}.{key}")
    elif isinstance(promise, frozenset):
        assert {named(one) for one in answer} == promise, (where, answer, promise)
    elif isinstance(promise, list):
        expected = cast(list[Any], promise)
        assert len(answer) == len(expected), (where, answer, expected)
        for number, (one, wanted) in enumerate(zip(answer, expected, strict=True)):
            agree(one, wanted, f"{where}[{number}]")
    elif isinstance(promise, datetime):
        assert answer == promise.isoformat().replace("+00:00", "Z"), (where, answer, promise)
    elif callable(promise):
        assert promise(answer), (where, answer)
    else:
        assert answer == promise, (where, answer, promise)


def named(thing: Any) -> str:
    """What is called by a name or a key, or is one."""
    return thing if isinstance(thing, str) else thing.get("name") or thing["key"]


def code_of(answer: types.CallToolResult) -> str:
    """The code of an error; empty for what is none."""
    text = text_of(answer)
    match = re.match(r"error: ([a-z_]+): ", text)
    assert bool(match) == bool(answer.is_error), text
    assert not (answer.is_error and answer.structured_content), text
    return match[1] if match else ""


def check_scope(project: Project, scope: Shape) -> None:
    """The counts that every answer shows."""
    assert scope["exists"] is bool(project.log)
    if not project.log:
        return
    counted = {
        "threads": [thread.status for thread in project.threads.values()],
        "runs": [run.status for run in project.runs.values()],
        "facts": [fact.trust for fact in project.facts.values()],
    }
    for noun, words in counted.items():
        assert Counter(scope[noun]) == Counter(words), (noun, scope[noun], words)
    assert scope["journal"] == len(project.journal)
    steps = (step for run in project.runs.values() for step in run.steps.values())
    assert scope["stopped"] == sum(step.stopped for step in steps)


def everything(project: Project) -> list[tuple[str, Shape]]:
    """The calls that read all of a project."""
    found: list[tuple[str, Shape]] = [("orient", {"max_tokens": 50_000}), ("memory_get", {})]
    found += [("memory_get", {"run_id": run}) for run in project.runs]
    found += [
        ("memory_get", {"key": block.shown, "run_id": run, "version": version})
        for (run, _), block in project.blocks.items()
        for version in (None, block.version, 1)
    ]
    found += [("thread_list", {"limit": 100}), ("thread_list", {"due": True, "limit": 100})]
    found += [("thread_list", {"status": status}) for status in ("done", "dropped")]
    found += [("thread_get", {"thread": thread.shown}) for thread in project.threads.values()]
    found += [("journal_tail", {"limit": 100}), ("run_list", {"limit": 100}), ("run_resume", {})]
    found += [("run_resume", {"run_id": run.shown}) for run in project.runs.values()]
    found += [("fact_list", {"limit": 100}), ("fact_list", {"due": True})]
    found += [("fact_trace", {"fact": fact.shown}) for fact in project.facts.values()]
    found += [("blob_get", {"key": key, "limit": 100_000}) for key in project.blobs]
    found += [("search", {"query": word, "limit": 50}) for word in ("alpha", "tower", "beta delta")]
    found += [("history", {"since": 0, "limit": 200}), ("history", {"limit": 200})]
    return found


def test_every_tool_has_its_promises_and_a_rule() -> None:
    tools = {spec.name for spec in ALL_TOOLS} - {"state_op"}  # every unlisted tool goes through it
    assert set(PROMISES) == tools
    assert tools <= set(vars(Machine))


SLICE = settings(
    max_examples=4,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)
WHOLE = settings(SLICE, max_examples=600, derandomize=False)


@pytest.mark.parametrize(
    "how", [pytest.param(WHOLE if SOAK else SLICE, id="soak" if SOAK else "slice")]
)
def test_the_server_does_what_the_contract_says(engine: str, how: settings) -> None:
    if engine == "postgres" and not SOAK:  # it answers more slowly, to the same calls
        how = settings(how, max_examples=4)
    run_state_machine_as_test(MACHINES[engine], settings=how)
