"""Colour and tables for people; imported only if a terminal is there, since `rich` is slow."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from mcp_state import render, render_facts, render_runs
from mcp_state.cli.due import Due
from mcp_state.cli.output import safe
from mcp_state.models import (
    Checkpoint,
    Event,
    EventPage,
    Fact,
    FactPage,
    Project,
    Run,
    RunDetail,
    RunPage,
    RunStatus,
    Status,
    Step,
    Thread,
    ThreadPage,
    Trust,
)
from mcp_state.store.run_rows import spend_words
from mcp_state.times import Clock, ago

_COLOURS = {
    Status.ACTIVE: "green",
    Status.WATCHING: "cyan",
    Status.BLOCKED: "yellow",
    Status.DONE: "dim",
    Status.DROPPED: "dim",
}
_RUN_COLOURS = {
    RunStatus.OPEN: "green",
    RunStatus.COMPLETED: "dim",
    RunStatus.FAILED: "red",
    RunStatus.ABANDONED: "dim",
}
_TRUST_COLOURS = {
    Trust.TRUSTED: "green",
    Trust.PROVISIONAL: "cyan",
    Trust.STALE: "yellow",
    Trust.REFUTED: "red",
    Trust.ARCHIVAL: "dim",
}
_STEP_COLOURS = {"open": "cyan", "failed": "yellow", "done": "dim"}
_DUE = _STOPPED = "bold red"
_STATUSES = _COLOURS | _RUN_COLOURS | _TRUST_COLOURS
_HIGHLIGHTS = (
    (re.compile(rf"^ *[^\s\[][^\[\n]*(?= \[(?:{'|'.join(_STATUSES)})\b)", re.MULTILINE), "bold"),
    (re.compile(r"^(?!NOTE:)[A-Z]{2,}(?: [A-Z]{2,})*\b", re.MULTILINE), "bold"),
    (re.compile(r"^\d+ \S.* (?:ago|just now)(?: \[[^\]\n]*\])?$", re.MULTILINE), "dim"),
    (re.compile(r" · version \d+ .*$", re.MULTILINE), "dim"),
    (re.compile(r"`mcp-state [^`\n]+`"), "cyan"),
    *((re.compile(rf"\[{status}\b[^\]\n]*\]"), colour) for status, colour in _STATUSES.items()),
    (re.compile(r"\bdue \d+ \w+ ago\b"), _DUE),
    (re.compile(r"\bbudget of \w+ (?:is )?spent\b"), _STOPPED),
    (
        re.compile(
            r"^ *(?:\(\d+\) )?(?:(?:or )?because |and )?(?:DOES NOT HOLD|FELL)\b", re.MULTILINE
        ),
        _DUE,
    ),
    (
        re.compile(r"^ *looked up now: (?:.*?: )?(?:CHANGED since then|GONE)\b", re.MULTILINE),
        _DUE,
    ),
    (re.compile(r"^NOTE:", re.MULTILINE), "yellow"),
    (re.compile(r"^error:"), "bold red"),
    (re.compile(r"^ok\b", re.MULTILINE), "green"),
    (re.compile(r"^warning\b", re.MULTILINE), "yellow"),
    (re.compile(r"^damage\b", re.MULTILINE), "bold red"),
)
_LABEL = re.compile(r"\S+ {2,}(?=\S)")
_FOR_TABLES = 85
"""Columns: below it a table is narrower than its text, which is then shown as it is in a pipe."""


def show(result: Any, text: str, scope: str) -> None:
    """Print a result within the width of the terminal; stored text can't command it."""
    console = _console()
    drawn = _drawn(result, text, Clock().now()) if console.width >= _FOR_TABLES else None
    _print(console, drawn or _Lines(_highlighted(text)))
    if scope:
        _print(console, _Lines(Text(safe(scope), style="dim")))


def show_text(text: str, *, err: bool = False) -> None:
    """Print a text within the width of the terminal."""
    _print(_console(err=err), _Lines(_highlighted(text)))


def _console(*, err: bool = False) -> Console:
    width = shutil.get_terminal_size().columns
    no_color = os.environ.get("CLICOLOR") == "0" or None
    return Console(
        stderr=err, width=width, no_color=no_color, highlight=False, markup=False, emoji=False
    )


def _print(console: Console, drawn: RenderableType) -> None:
    """Print it without the spaces that fill up its lines."""
    with console.capture() as captured:
        console.print(drawn)
    console.file.write(re.sub(r" +$", "", captured.get(), flags=re.MULTILINE))
    console.file.flush()


class _Lines:
    """Text whose lines go on, where they have to be broken, below their own beginning."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._text.split("\n", allow_blank=True):
            yield from self._broken(console, line, options.max_width)

    def _broken(self, console: Console, line: Text, width: int) -> Iterator[Text]:
        line.expand_tabs(4)
        if line.cell_len <= width:
            yield line
            return
        indent = len(line.plain) - len(line.plain.lstrip(" "))
        label = _LABEL.match(line.plain)
        if label and label.end() <= width // 3:
            begin, rest, hang = line[: label.end()], line[label.end() :], label.end()
        else:
            begin, rest = Text(" " * min(indent, width // 2)), line[indent:]
            hang = min(indent + 4, width // 2)
        first = rest.wrap(console, width - begin.cell_len, overflow="fold")[0]
        left = rest[len(first) :]
        left = left[len(left.plain) - len(left.plain.lstrip(" ")) :]
        first.rstrip()
        yield begin + first
        for part in left.wrap(console, width - hang, overflow="fold") if left else ():
            part.rstrip()
            yield Text(" " * hang) + part


def _drawn(result: Any, text: str, now: datetime) -> RenderableType | None:
    """A result as a table, if it is one."""
    head = _Lines(_highlighted(text.partition("\n")[0]))
    match result:
        case ThreadPage(threads=threads) | Due(threads=threads) if threads:
            return Group(head, _threads(threads, now))
        case FactPage(facts=facts) if facts:
            return Group(head, _facts(facts, now))
        case RunPage(runs=runs) if runs:
            return Group(head, _runs(runs, now))
        case RunDetail():
            return _run(result, text, now)
        case EventPage(events=events) if events:
            return Group(head, _events(events, now))
        case [Project(), *_]:
            return _projects(cast(Sequence[Project], result), now)
        case _:
            return None


def _highlighted(text: str) -> Text:
    shown = Text(safe(text))
    for pattern, style in _HIGHLIGHTS:
        shown.highlight_regex(pattern, style)
    return shown


def _threads(threads: Sequence[Thread], now: datetime) -> Table:
    table = _table("thread", "status", "what")
    for thread in threads:
        style = _DUE if thread.due else _COLOURS[thread.status]
        status = Text(safe(render.thread_status(thread, now)[1:-1]), style=style)
        _, *details = render.thread_lines(thread, now)
        what = "\n".join([render.one_line(thread.title), *(line.strip() for line in details)])
        table.add_row(Text(safe(thread.name), style="bold"), status, _highlighted(what))
    return table


def _facts(facts: Sequence[Fact], now: datetime) -> Table:
    table = _table("fact", "trust", "check, and what was believed")
    for fact in facts:
        style = _DUE if fact.due else _TRUST_COLOURS[fact.trust]
        trust = Text(f"{fact.trust}, due" if fact.due else fact.trust, style=style)
        named = f"{render.name(fact.name, 80)} · "
        lines = [line.strip() for line in render_facts.fact_lines(fact, now)]
        claim = 1 if fact.now is None else 2
        lines[claim] = lines[claim].removeprefix(named)
        table.add_row(Text(safe(fact.name), style="bold"), trust, _highlighted("\n".join(lines)))
    return table


def _runs(runs: Sequence[Run], now: datetime) -> Table:
    table = _table("run", "status", "spent", "what")
    for run in runs:
        style = _STOPPED if run.stopped and not run.finished_at else _RUN_COLOURS[run.status]
        status = Text(safe(render_runs.run_status(run, now)[1:-1]), style=style)
        what = [run.goal, *render_runs.run_ending(run, 160)]
        if run.next_action and not run.finished_at:
            what.append(f"next: {run.next_action}")
        shown = "\n".join(render.one_line(line) for line in what)
        table.add_row(
            Text(safe(render.name(run.name)), style="bold"), status, spend_words(run), safe(shown)
        )
    return table


def _run(detail: RunDetail, text: str, now: datetime) -> RenderableType:
    """The text of a run, whose indented parts are tables here."""
    tables = {
        "checkpoints": lambda: _checkpoints(detail.checkpoints, now),
        "steps": lambda: _steps(detail.steps, now),
        "events": lambda: _events(detail.events, now),
    }
    head, *lines = text.split("\n")
    parts: list[RenderableType] = [_Lines(_highlighted(head))]
    within = ""
    for line in lines:
        if not line.startswith(" "):
            within = line.partition(" ")[0]
            parts.append(_Lines(_highlighted(line)))
            if within in tables:
                parts.append(tables[within]())
        elif within not in tables:
            parts.append(_Lines(_highlighted(line)))
    return Group(*parts)


def _checkpoints(checkpoints: Sequence[Checkpoint], now: datetime) -> Table:
    table = _table("number", "done", "who", "git", "state")
    for one in checkpoints:
        done = "" if one.done is None else f"{one.done:,}"
        done += "" if one.total is None else f"/{one.total:,}"
        cells = (render.by(one.actor, one.at, now), render_runs.git_words(one), one.state)
        table.add_row(str(one.number), done, *(safe(render.one_line(cell)) for cell in cells))
    return table


def _steps(steps: Sequence[Step], now: datetime) -> Table:
    table = _table("step", "status", "attempts", "tokens", "who", "result")
    for one in steps:
        style = _STOPPED if one.stopped else _STEP_COLOURS[one.status]
        status = Text("refused" if one.stopped else one.status, style=style)
        tokens = f"{one.tokens_in + one.tokens_out:,}"
        who = safe(render.by(one.changed_by, one.changed_at, now))
        result = safe(render.one_line(one.result))
        table.add_row(safe(one.name), status, f"{one.attempts:,}", tokens, who, result)
    return table


def _events(events: Sequence[Event], now: datetime) -> Table:
    table = _table("event", "who", "what", "change", "when")
    for event in events:
        what = f"{event.kind} {render.shown_name(event)}"
        change = event.summary
        if event.operation == "refused" and event.row and event.row.get("fact"):
            change += f": {event.row['fact']}"
        cells = (event.actor.agent, what, change, ago(event.at, now))
        table.add_row(str(event.seq), *(safe(render.one_line(cell)) for cell in cells))
    return table


def _projects(projects: Sequence[Project], now: datetime) -> Table:
    table = _table("project", "threads", "journal", "blocks", "events", "changed", "leads here")
    for project in projects:
        totals = project.totals
        numbers = (totals.all_threads, totals.journal, totals.memory, totals.event)
        changed = ago(project.changed_at, now) if project.changed_at else "never"
        leads = "\n".join([*project.other_names, *project.directories])
        table.add_row(safe(project.name), *(f"{n:,}" for n in numbers), changed, safe(leads))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


@contextmanager
def progress(title: str) -> Generator[Callable[[int, int], None]]:
    """A bar on stderr that leaves nothing behind."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
