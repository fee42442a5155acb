"""A store as two days of work leave it behind: believable content, the same each time.

A shop moves its orders to a new importer. Agents write from a clock that the script moves, so that
every age, order and number comes out as it was written here.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mcp_state.api import State, open_store
from mcp_state.errors import NoProgress
from mcp_state.models import Place
from mcp_state.times import Clock

NOW = datetime(2026, 11, 30, 14, 20, tzinfo=UTC)
PROJECT = "github.com/acme/shop"


class Script(Clock):
    """A clock that stands where it was put; ids are drawn the same each time."""

    def __init__(self, now: datetime) -> None:
        self.end = now
        self.time = now
        self._chance = random.Random(2026)

    def now(self) -> datetime:
        return self.time

    def new_id(self, prefix: str) -> str:
        return prefix + "".join(self._chance.choices("23456789abcdefghjkmnpqrstuvwxyz", k=12))

    def ago(self, days: float = 0, hours: float = 0, minutes: float = 0) -> None:
        """Put it so long before the end of the story."""
        self.time = self.end - timedelta(days=days, hours=hours, minutes=minutes)

    def passes(self, minutes: float) -> None:
        """Let so much time pass."""
        self.time += timedelta(minutes=minutes)


class Team:
    """Who works on the shop."""

    def __init__(self, clock: Script, codex: State, claude: State, person: State) -> None:
        self.clock = clock
        self.codex = codex
        self.claude = claude
        self.person = person


@asynccontextmanager
async def team(path: Path, clock: Script) -> AsyncGenerator[Team]:
    """All of them on one store."""
    async with AsyncExitStack() as stack:
        states = [
            await stack.enter_async_context(
                open_store(path, project=PROJECT, agent=agent, session=session, clock=clock)
            )
            for agent, session in (("codex", "7f3a"), ("claude-code", "b21c"), ("dana", "shell"))
        ]
        yield Team(clock, *states)


async def build(path: Path, now: datetime = NOW) -> None:
    """Write the story, so that it ends now."""
    clock = Script(now)
    async with team(path, clock) as shop:
        await _begins(shop)
        await _facts(shop)
        await _queue(shop)
        await _reindex(shop)
        await _flaky(shop)
        await _plan(shop)
        await _today(shop)


async def _begins(shop: Team) -> None:
    shop.clock.ago(days=6)
    await shop.person.objective.set(
        "Ship the order import", reason="first customer", intent="Shops move to us in one afternoon"
    )
    shop.clock.ago(days=2, hours=3)
    await shop.person.objective.set(
        "Ship order import v2 to the three pilot shops by Friday",
        reason="the customer moved the date and needs refunds in it",
        expected_version=1,
    )
    await shop.codex.journal.append(
        "Read the v1 importer. It parses amounts with float(), which loses cents above 2^53 "
        "thousandths; refunds are negative amounts and are skipped.",
        kind="note",
    )


async def _facts(shop: Team) -> None:
    facts, clock = shop.codex.facts, shop.clock
    clock.ago(days=2)
    await facts.record(
        "csv-is-utf8",
        "All files of the pilot shops are UTF-8",
        check="file -i data/*.csv | grep -vc utf-8",
        source="the pilot's export settings",
        recheck_after="7d",
    )
    await facts.verify("csv-is-utf8", True, "0 files are anything else")
    await facts.record(
        "amounts-have-cents",
        "Every amount has exactly two decimals, separated by a comma",
        check="python check.py --amounts",
        recheck_after="1d",
    )
    await facts.verify("amounts-have-cents", True, "412,006 of 412,006 rows match")
    clock.ago(days=1, hours=20)
    await facts.record(
        "order-ids-unique",
        "An order id occurs once over all files",
        check='psql -c "select count(*) - count(distinct id) from orders_raw"',
        recheck_after="3d",
    )
    await facts.verify("order-ids-unique", True, "0")
    await facts.record(
        "parser-exact",
        "The parser gives back the file's own totals",
        check="pytest -q tests/test_totals.py",
        because=["csv-is-utf8", "amounts-have-cents"],
        recheck_after="2d",
    )
    await facts.verify("parser-exact", True, "14 passed in 3.1 s")
    await facts.record(
        "upsert-is-safe",
        "Importing a file twice changes nothing",
        check="make import-twice",
        because=["order-ids-unique"],
        recheck_after="2d",
    )
    await facts.verify("upsert-is-safe", True, "0 rows differ after the second import")
    await facts.record(
        "v2-ready",
        "Import v2 can go to the pilot shops",
        check="make acceptance",
        because=["parser-exact", "upsert-is-safe"],
        recheck_after="1d",
    )
    await facts.record(
        "batch-size-500",
        "Batches of 500 rows are fastest",
        check="python bench.py --batches",
        because=["upsert-is-safe"],
    )
    await facts.record(
        "refunds-in-export",
        "The export of the shops contains refunds",
        check="grep -l ';-' data/*.csv | wc -l",
        recheck_after="12h",
    )
    await facts.record("v1-used-float", "v1 parsed amounts with float()", archival=True)
    clock.ago(hours=22)
    await facts.verify("v2-ready", True, "acceptance: 31 passed")
    await facts.record(
        "refunds-handled",
        "Refunds end up as negative rows of the ledger",
        check="pytest -q tests/test_refunds.py",
        because=["parser-exact", "refunds-in-export"],
    )


async def _queue(shop: Team) -> None:
    codex, claude, clock = shop.codex.threads, shop.claude.threads, shop.clock
    clock.ago(days=2, hours=2)
    await codex.set(
        "schema-v3",
        title="Migrate the orders table to schema v3",
        next_action="write the migration",
    )
    await codex.set("import-v2", title="Import v2: exact amounts, refunds", priority=2)
    await claude.set("refunds", title="Refunds as negative ledger rows", depends_on=["schema-v3"])
    await codex.set(
        "pilot-rollout",
        title="Roll out to the three pilot shops",
        depends_on=["import-v2", "refunds"],
        priority=3,
        next_action="switch shop A first, watch for an hour",
    )
    await codex.set(
        "customer-mail", title="Tell the pilot shops the date", depends_on=["pilot-rollout"]
    )
    await claude.set(
        "bench-batches",
        title="Find the batch size",
        next_action="run bench.py with 250, 500 and 1,000 rows",
        priority=7,
        relies_on=["upsert-is-safe"],
    )
    await claude.set("docs-import", title="Describe the import format", priority=8)
    clock.ago(days=1, hours=19)
    await codex.set("schema-v3", status="done", evidence="commit 4f1d9ac, 212 tests pass")
    await codex.set(
        "import-v2",
        next_action="rerun the golden test with the refund file",
        check="pytest -q tests/test_import.py",
        criteria=[
            "the totals of all three shops match to the cent",
            "a second import changes nothing",
            "a broken line is reported with its number, and the rest goes in",
            "refunds show as negative rows",
            "a file of 400,000 rows takes less than two minutes",
        ],
        relies_on=["parser-exact", "upsert-is-safe", "amounts-have-cents"],
        places=[
            Place("src/shop/imports", "home", "the importer itself"),
            Place("github.com/acme/shop-legacy", "donor", "golden files"),
        ],
    )
    await codex.check("import-v2", "1", True, evidence="make totals: 3 of 3 equal")
    await codex.check("import-v2", "2", True, evidence="make import-twice: 0 rows differ")
    await codex.check("import-v2", "3", True, evidence="tests/test_broken_lines.py, 9 passed")
    clock.ago(hours=26)
    await claude.set(
        "pr-830",
        title="Review of PR 830 (ledger signs)",
        status="watching",
        check="gh pr view 830 --json state,reviewDecision",
        next_action="merge when it is approved",
        recheck_after="1d",
    )
    await codex.set(
        "sdk-timeouts",
        title="Payment SDK drops connections after 30 s",
        status="blocked",
        waiting_on="release 4.2 of the SDK, https://github.com/acme/payments-sdk/issues/118",
        recheck_after="3d",
    )
    await claude.set(
        "prod-access",
        title="Read access to the production replica",
        status="blocked",
        waiting_on="Dana, who asked operations on Friday",
        recheck_after="20h",
        priority=3,
    )
    await codex.set(
        "ledger-export",
        title="Monthly ledger export",
        status="blocked",
        waiting_on="refunds",
        depends_on=["refunds"],
        recheck_after="5d",
    )
    clock.ago(hours=9)
    await codex.set(
        "nightly-ci",
        title="Nightly import in CI",
        status="watching",
        check="gh run list --workflow nightly --limit 1",
        recheck_after="14h",
    )
    await claude.set(
        "xml-import", title="Import of XML files", status="dropped", note="no pilot shop uses it"
    )
    await codex.set("lint-rules", title="Decimal lint rule", status="done", evidence="PR 822")
    await codex.set("golden-files", title="Golden files for shop B", status="done", evidence="a9c")


async def _reindex(shop: Team) -> None:
    """A long run that is under way, with some attempts that failed."""
    clock, chance = shop.clock, random.Random(7)
    clock.ago(hours=7)
    runs, steps = shop.codex.runs, shop.codex.steps
    await runs.begin(
        "Convert 120 archived order files to schema v3",
        run="convert-archive",
        thread="import-v2",
        expected_outcome="every file converted, its totals equal to the old ones",
        max_attempts=160,
        max_minutes=600,
        max_tokens=400_000,
    )
    await shop.codex.memory.set(
        "rules", "amounts: Decimal, comma\nrefunds: negative", run="convert-archive"
    )
    for number in range(1, 84):
        step = f"orders-2024-{number:03}"
        clock.passes(chance.choice([2, 3, 4, 6]))
        tokens = chance.randrange(1400, 4200)
        await steps.begin("convert-archive", step)
        clock.passes(1)
        if number % 11 == 5 or number in (31, 32, 33):
            await steps.end(
                "convert-archive",
                step,
                False,
                f"line {number * 37}: 5 columns, not 4",
                tokens_in=tokens,
            )
            await steps.begin("convert-archive", step, input="with quotes")
        await steps.end(
            "convert-archive",
            step,
            True,
            f"{chance.randrange(800, 5200):,} rows, totals equal",
            tokens_in=tokens,
            tokens_out=tokens // 9,
        )
        if number % 20 == 0:
            await runs.checkpoint(
                "convert-archive",
                f"Converted {number} of 120. Files with quoted fields need the second parser.",
                next_action=f"go on with orders-2024-{number + 1:03}",
                done=number,
                total=120,
            )
    await steps.begin("convert-archive", "orders-2024-084")
    await runs.checkpoint(
        "convert-archive",
        "83 converted. 084 has a byte order mark in its middle; look at the bytes first.",
        next_action="orders-2024-084: strip the mark, convert again",
        done=83,
        total=120,
    )


async def _flaky(shop: Team) -> None:
    """Runs that ended: one that went in circles, one that was fine."""
    clock, steps, runs = shop.clock, shop.claude.steps, shop.claude.runs
    clock.ago(days=1, hours=5)
    await runs.begin("Make test_settlement pass on CI", run="flaky-settlement", max_attempts=12)
    for _ in range(4):
        clock.passes(7)
        await steps.begin("flaky-settlement", "patch", input="raise the timeout")
        clock.passes(4)
        await steps.end(
            "flaky-settlement", "patch", False, "AssertionError: 3 != 2", tokens_in=5200
        )
    with contextlib.suppress(NoProgress):
        await steps.begin("flaky-settlement", "patch", input="raise the timeout")
    await shop.claude.journal.append(
        "Raising the timeout does nothing for test_settlement: the third row is there from the "
        "start. It is a fixture that is shared between tests, not time.",
        kind="dead_end",
        run="flaky-settlement",
    )
    clock.passes(20)
    await runs.begin("Golden files for shop B", run="golden-b", max_attempts=20)
    for number in range(1, 7):
        clock.passes(3)
        await steps.begin("golden-b", f"golden-{number}")
        clock.passes(2)
        await steps.end("golden-b", f"golden-{number}", True, "written, hash kept", tokens_in=900)
    await runs.finish(
        "golden-b", "completed", evidence="commit a9c, 6 files", result="6 golden files"
    )
    await runs.begin("Guess the encoding of shop C", run="encoding-c")
    await runs.finish(
        "encoding-c", "failed", reflection="Guessing is no use: 3 files are mixed. Ask the shop."
    )


async def _plan(shop: Team) -> None:
    clock, memory = shop.clock, shop.codex.memory
    plan = [
        "# Import v2",
        "",
        "1. schema v3: amounts as numeric(14,2)",
        "2. parser: Decimal, comma as separator",
        "3. upsert by (shop, order id)",
        "4. refunds: skip for now",
        "5. acceptance with the three pilot shops",
        "",
        "Never touch the v1 tables: the reports read them until January.",
    ]
    clock.ago(days=2)
    await memory.set("plan", "\n".join(plan))
    clock.ago(days=1, hours=19)
    plan[2] = "1. schema v3: amounts as numeric(14,2)  (done, 4f1d9ac)"
    plan[5] = "4. refunds: negative rows of the ledger, PR 830"
    await memory.set("plan", "\n".join(plan))
    clock.ago(hours=3)
    plan[3] = "2. parser: Decimal, comma as separator  (done)"
    plan.insert(6, "5. the archive: run convert-archive, 120 files")
    plan[7] = "6. acceptance with the three pilot shops, Friday"
    await memory.set("plan", "\n".join(plan))
    clock.ago(days=1)
    await memory.set(
        "conventions",
        "Commits: imperative, one change each.\nMoney: Decimal only; a lint rule refuses float().\n"
        "Tests: golden files under tests/golden, never edited by hand.",
    )
    await shop.person.memory.lock("conventions", "agreed with the team on Friday; ask Dana first")
    await shop.claude.memory.set(
        "shop-c", "Shop C exports Latin-1 and UTF-8 mixed. Contact: Mika, answers within a day."
    )


async def _today(shop: Team) -> None:
    clock, codex, claude = shop.clock, shop.codex, shop.claude
    clock.ago(hours=4)
    await claude.journal.append(
        "Settled with Dana: refunds are negative rows, not a table of their own. The reports sum "
        "rows anyway, and a second table would have to be joined in eleven places.",
        kind="decision",
        thread="refunds",
    )
    await claude.threads.set(
        "refunds", next_action="turn the sign in LedgerRow.from_order, then PR 830"
    )
    clock.ago(hours=2, minutes=40)
    await claude.facts.verify("refunds-in-export", True, "3 of 3 shops: 1,204 refunds")
    clock.ago(hours=1, minutes=30)
    await codex.journal.append(
        "Golden test is green for shop A and B. Shop C differs by 0.01 in 3 of 41,112 rows: "
        "amounts like 10,005, which the shop itself rounds half to even.\n\n"
        "  row 18,221  10,005 -> theirs 10,00  ours 10,01\n"
        "  row 18,230  20,015 -> theirs 20,02  ours 20,02\n"
        "  row 30,514   7,125 -> theirs  7,12  ours  7,13",
        kind="note",
        thread="import-v2",
    )
    clock.ago(minutes=52)
    await codex.facts.verify(
        "amounts-have-cents", False, "3 rows of shop C have three decimals: 18,221 18,230 30,514"
    )
    clock.ago(minutes=44)
    await codex.journal.append(
        "amounts-have-cents does not hold for shop C, so parser-exact falls and with it v2-ready. "
        "Next: round half to even at the border, and say so in the import report.",
        kind="dead_end",
        thread="import-v2",
    )
    clock.ago(minutes=16)
    await codex.threads.claim("import-v2", lease="45m")
    clock.ago(minutes=9)
    await claude.threads.claim("refunds", lease="30m")
    clock.ago(minutes=4)
    await claude.journal.append(
        "PR 830 has one approval; https://github.com/acme/shop/pull/830 waits for the second.",
        kind="note",
        thread="pr-830",
    )
    clock.ago()
