"""Both engines answer the same script of calls with the same words.

Time stands still but for the script's own jumps, and ids count up, so that nothing is set aside.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import postgres
from conftest import FakeClock, text_of
from mcp import Client

from mcp_state.server import create_server
from mcp_state.settings import Settings
from mcp_state.store import catalogue
from mcp_state.tools import ALL_TOOLS

Call = tuple[str, dict[str, Any]]


def call(tool: str, /, **arguments: Any) -> Call:
    return tool, arguments


DAY = 86_400
LONG = "naïve Größe 東京 Ünïcode ﬁ ς Σ İ " * 40

SCRIPT: Sequence[Call | int] = (
    call("orient"),
    call("journal_tail"),
    call("thread_list"),
    call("memory_get"),
    call("search", query="anything"),
    call("run_resume"),
    call("objective_set", objective="Ship import v1", intent="One store for all"),
    call("objective_set", objective="Ship import v2", reason="earlier date"),
    call("objective_set", objective="Ship import v2", reason="earlier date", expected_version=1),
    call("memory_set", key="Plan", value="first line\nsecond ÄÖ line"),
    call("memory_set", key="plan", value="lost", expected_version=7),
    call("memory_set", key=" PLAN ", value="third line", expected_version=1),
    call("memory_append", key="plan", text="\nfourth", idempotency_key="k1"),
    call("memory_append", key="plan", text="\nfourth", idempotency_key="k1"),
    call("memory_append", key="plan", text="\nanother", idempotency_key="k1"),
    call("memory_set", key="soon", value="gone in an hour", ttl="1h"),
    call("memory_set", key="big", value="x" * 5000),
    call("memory_set", key="key", value="ghp_" + "a1" * 18),
    call("memory_get", key="Plan"),
    call("memory_get", key="none"),
    call("memory_get", key="plan", version=1),
    call("memory_delete", key="plan", expected_version=3),
    call("memory_restore", key="plan", version=2),
    call("memory_restore", key="plan", version=99),
    call("thread_set", thread="base", title="Groundwork", status="active", priority=2),
    call("thread_set", thread="fix-import", next_action="rerun", depends_on=["base"]),
    call("thread_set", thread="pr-830", status="watching", check="gh pr view 830"),
    call("thread_set", thread="sdk", status="blocked"),
    call("thread_set", thread="sdk", status="blocked", waiting_on="upstream", recheck_after="3d"),
    call("thread_set", thread="base", depends_on=["fix-import"]),
    call("thread_set", thread="base", criteria=["it builds", "it runs ﬁne"]),
    call("thread_set", thread="base", places=[{"path_or_repo": "acme/api", "role": "home"}]),
    call("thread_claim"),
    call("thread_claim", thread="base", lease="1h"),
    call("thread_claim", thread="fix-import"),
    call("thread_set", thread="base", note="without its token"),
    call("thread_check", thread="base", criterion="it builds", passes=True, evidence="exit 0"),
    call("thread_set", thread="base", status="done", evidence="make: exit 0", lease_token=1),
    call("thread_release", thread="base", lease_token=99),
    call("thread_get", thread="base"),
    call("thread_get", thread="bas"),
    call("thread_list", status=["watching", "blocked"]),
    call("thread_list", due=True),
    call("thread_list", limit=1),
    call("journal_append", text="began", thread="base"),
    call("journal_append", text="kept the old parser", kind="decision", idempotency_key="j"),
    call("journal_append", text="kept the old parser", kind="decision", idempotency_key="j"),
    call("journal_append", text="kept the new parser", kind="decision", idempotency_key="j"),
    call("journal_append", text=LONG, kind="dead_end"),
    call("journal_append", text="back\\slash 'quote' \"double\" 100% $1 :name %s {x} \u2028 end"),
    call("journal_tail", limit=2),
    call("journal_tail", kind="decision"),
    call("journal_tail", thread="base", actor="codex"),
    call("journal_tail", since=14),
    call("journal_tail", before=20, limit=1),
    call("run_begin", goal="Index all", run_id="Reindex", thread="base", max_attempts=5),
    call("run_begin", goal="Index all", run_id="reindex"),
    call("run_checkpoint", run_id="reindex", state="41 done", done=41, total=300),
    call("run_checkpoint", run_id="reindex", state="42 done", done=42, expected_number=7),
    call("run_checkpoint", run_id="reindex", state="43 done", next_action="go on", done=43),
    call("memory_set", key="cursor", value="at 43", run_id="reindex"),
    call("step_begin", run_id="reindex", step="one", input="a"),
    call("step_end", run_id="reindex", step="one", ok=True, result="fine", tokens_in=10),
    call("step_begin", run_id="reindex", step="one", input="a"),
    call("step_end", run_id="reindex", step="one", ok=True, result="otherwise"),
    *(
        call(tool, run_id="reindex", step="two", **more)
        for _ in range(3)
        for tool, more in (
            ("step_begin", {"input": "b"}),
            ("step_end", {"ok": False, "result": "no way at 12:00:01"}),
        )
    ),
    call("step_begin", run_id="reindex", step="two", input="b"),
    call("step_begin", run_id="reindex", step="three"),
    call("run_resume", run_id="reindex"),
    call("run_resume", run_id="reindex", number=1),
    call("run_list"),
    call("run_finish", run_id="reindex", status="completed"),
    call("run_finish", run_id="reindex", status="failed", result="no way", reflection="smaller"),
    call("run_resume", run_id="reindex"),
    call("run_list", status=["failed"]),
    call("fact_record", fact="builds", statement="the build is green", check="make", source="CI"),
    call("fact_record", fact="tests", statement="tests pass", check="make test"),
    call("fact_record", fact="ships", statement="it can go", because=["builds", "tests"]),
    call("fact_record", fact="builds", statement="the build is red", check="make"),
    call("fact_record", fact="old", statement="it was so", archival=True),
    call("fact_verify", fact="builds", holds=True, evidence="exit 0"),
    call("fact_verify", fact="tests", holds=True, evidence="exit 0"),
    call("fact_verify", fact="tests", holds=False, evidence="exit 1"),
    call("fact_verify", fact="none", holds=False, evidence="exit 1"),
    call("thread_set", thread="fix-import", relies_on=["ships"]),
    call("fact_list"),
    call("fact_list", trust=["stale", "refuted"]),
    call("fact_list", limit=1),
    call("fact_trace", fact="ships"),
    call("fact_trace", fact="tests"),
    call("blob_put", text=LONG, summary="a long text", ttl="2h"),
    call("blob_put", text=LONG, summary="again"),
    call("blob_get", key="b-none"),
    call("handoff_create", note="please go on", to="claude"),
    call("handoff_accept", key="h-1"),
    call("handoff_accept", key="h-none"),
    call("search", query="größe"),
    call("search", query="東京"),
    call("search", query="parser"),
    call("search", query="parser zebra"),
    call("search", query="rerun", kinds=["thread"]),
    call("search", query="43", run_id="reindex"),
    call("search", query="it", limit=1),
    call("search", query="%_'"),
    call("history"),
    call("history", subject="thread:base"),
    call("history", subject="memory:plan"),
    call("history", subject="run:reindex", limit=3),
    call("history", since=3, limit=2),
    call("history", subject="nonsense"),
    call("state_op", op="help"),
    call("state_op", op="memory_get", arguments={"key": "plan"}),
    call("orient"),
    call("orient", max_tokens=300),
    call("orient", since=2),
    2 * DAY,
    call("orient"),
    call("memory_get"),
    call("thread_list", due=True),
    call("thread_claim", thread="fix-import"),
    call("fact_list", due=True),
    call("blob_get", key="none"),
    call("journal_append", text="somewhere else", project="Other"),
    call("search", query="parser", project="other"),
    call("journal_tail", project="no such project"),
    call("memory_get", key=""),
    call("no_such_tool"),
    call("journal_append", text="x", nonsense=1),
)

RESOURCES = ("state://orient", "state://threads", "state://journal", "state://memory/plan")


async def answers(path: str) -> list[str]:
    """What the script is told over a store at `path`, and what the resources hold then."""
    clock = FakeClock()
    server = create_server(Settings(db=path, project="acme", session="s1", toolset="all"), clock)
    told: list[str] = []
    async with Client(server) as client:
        for step in SCRIPT:
            if isinstance(step, int):
                clock.time += timedelta(seconds=step)
                continue
            clock.move(seconds=1)
            tool, arguments = step
            result = await client.call_tool(tool, arguments)
            told.append(f"{tool} {arguments}: {text_of(result)}")
        for uri in RESOURCES:
            (content,) = (await client.read_resource(uri)).contents
            told.append(f"{uri}: {content.model_dump()}")
    return told


async def test_both_engines_answer_every_tool_with_the_same_words(tmp_path: Path) -> None:
    told = await answers(str(tmp_path / "state.db"))
    by_server = await answers(postgres.new_store())

    for here, there in zip(told, by_server, strict=True):
        assert there == here
    used = {step[0] for step in SCRIPT if not isinstance(step, int)}
    assert {spec.name for spec in ALL_TOOLS} <= used
    assert not [one for one in told if "internal:" in one]
    assert sum(": error: " in one for one in told) > 20


PACKAGE = Path(catalogue.__file__).parent
TELLS_APART = {
    *("id", "rowid", "{handle}", "seq", "event", "line", "number", "version", "key", "name"),
    *("created", "changed", "touched", "ended"),  # numbers of events, each of one row
    *("fact", "reason", "premise", "thread", "needed", "anchor", "project", "word"),
}
ANY_WILL_DO = {"attempts DESC", "tokens_in + tokens_out DESC"}
"""Three steps are named that cost a run the most; which, of those that cost alike, says nothing."""
ORDER = re.compile(r"ORDER BY\s+((?:[^()]|\((?:[^()]|\([^()]*\))*\))*?)\s*(?=LIMIT|\)|;|$)")


def test_no_order_leaves_it_to_the_engine_which_of_two_comes_first() -> None:
    """PostgreSQL gives what is equal in any order; SQLite seemed to keep it."""
    left: list[tuple[str, str]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parts[-2:] in (("postgres", "doctor.py"), ("postgres", "catalogue.py")):
            continue  # what is there is asked of PostgreSQL alone
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for found in ORDER.finditer(node.value):
                    last = found[1].rpartition(",")[2].split()
                    if last and last[0].rpartition(".")[2].lstrip("+") not in TELLS_APART:
                        left.append((path.name, found[1]))
    assert {order for _, order in left} == ANY_WILL_DO, left
