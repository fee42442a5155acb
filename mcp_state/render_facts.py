"""How facts and the objective read: the check first, then its age, then what was believed then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mcp_state.calls import argument, call, tool
from mcp_state.lookups import Compared, target_of
from mcp_state.models import (
    FALLEN,
    Fact,
    FactPage,
    FactRecorded,
    FactTrace,
    FactVerified,
    Objective,
    Premise,
    Status,
    Totals,
    Touched,
    Traced,
    Trust,
)
from mcp_state.render_words import ROOM, by, fitted, indented, name, plural
from mcp_state.store.fact_rows import MOST_COUNTED
from mcp_state.store.text import one_line, quoted
from mcp_state.times import ago, when

_STATEMENT = 200
_CHECK = 240
_DEEPEST_INDENT = 12


def fact_lines(fact: Fact, now: datetime) -> list[str]:
    """A fact wherever it is shown: the check before the claim, and what the server saw between."""
    lines = [_check(fact, now)]
    if fact.now is not None:
        target = target_of(fact.check)
        what = "" if target == fact.check.strip() else f"{one_line(target, 100)}: "
        lines.append(f"    looked up now: {what}{_seen(fact.now)}")
    lines.append(f"    {name(fact.name, 80)} · {_age(fact, now)}: {_statement(fact)}")
    if fact.reasons and fact.check:
        lines.append(f"    rests on {_reasons(fact.reasons)}")
    return lines


def _check(fact: Fact, now: datetime) -> str:
    check = f"check: {_how(fact)}"
    if fact.trust is Trust.REFUTED:
        return f"DOES NOT HOLD · {check}"
    if fact.trust is Trust.STALE and not fact.due:
        if not fact.check and fact.reasons:
            return f"FELL, with each of its reasons: {_reasons(fact.reasons)} · no check of its own"
        return f"FELL, with each of its reasons · {check}"
    if fact.trust is Trust.ARCHIVAL:
        return f"for the record · {check}"
    if fact.verified and fact.verified_at is not None:
        return f"verified in this session, {ago(fact.verified_at, now)} · {check}"
    due = ""
    if fact.due and fact.recheck_at is not None and fact.trust is not Trust.STALE:
        due = f", due {when(fact.recheck_at, now)}"
    return f"check first{due}: {_how(fact)}"


def _how(fact: Fact) -> str:
    """The check; what has none can only be looked at through what it rests on."""
    if fact.check:
        is_cut = len(" ".join(fact.check.split())) > _CHECK
        cut = f" (cut: {tool('fact_trace')} shows all)" if is_cut else ""
        return one_line(fact.check, _CHECK) + cut
    if not fact.reasons:
        return "there is none"
    none = "it has none of its own"
    if fact.trust is Trust.STALE and fact.due:
        none = f"it has none: {call('fact_record', fact=fact.name, check=...)} gives it one"
    return f"{none}; what it rests on, {_reasons(fact.reasons)}"


def _seen(now: Compared) -> str:
    """What the server found at the address, beside what was there at the verification."""
    words = one_line(now.words)
    if now.word == "unchanged":
        return words.replace("unchanged", "unchanged since then", 1)
    if now.word == "changed":
        return f"CHANGED since then ({words.removeprefix('changed: ')})"
    return words.upper() if words == "gone" else words


def _age(fact: Fact, now: datetime) -> str:
    """When somebody last knew, and so from when what follows is."""
    last = _last_verification(fact, now)
    if fact.trust is Trust.REFUTED:
        return f"version {fact.version}, {last}; believed until then"
    if fact.trust is Trust.STALE:
        again = ", due since what it rests on holds again" if fact.due else ""
        fell = f"version {fact.version}, fell {ago(fact.trust_at, now)}{again}"
        return f"{fell}; {last}; believed then"
    if fact.trust is Trust.ARCHIVAL:
        return f"{last}; true then"
    if fact.verified:
        return f"holds ({_said(fact)})"
    return f"{last}; believed then"


def _last_verification(fact: Fact, now: datetime) -> str:
    if fact.verified_at is None or fact.verified_by is None:
        who = one_line(fact.stated_by.agent, 40) or "unknown"
        was = ""
        if fact.replaces in FALLEN:
            was = f", in the place of what was {fact.replaces}"
        return f"never checked, recorded {ago(fact.stated_at, now)} ({who}){was}"
    held = "last held" if fact.held else "did not hold"
    where = ", not in this session" if fact.held and not fact.here else ""
    who = one_line(fact.verified_by.agent, 40) or "unknown"
    return f"{held} {ago(fact.verified_at, now)} ({who}{where}: {_said(fact)})"


def _said(fact: Fact) -> str:
    """What the check printed, so that it can't pass for words of ours."""
    return "`" + one_line(fact.evidence, 80).replace("`", "'") + "`"


def _statement(fact: Fact) -> str:
    return quoted(one_line(fact.statement, _STATEMENT))


def _reasons(reasons: Sequence[Sequence[Premise]]) -> str:
    """The premises, each with how far it may be believed now; dead reasons come last."""
    by_worth = sorted(reasons, key=lambda reason: any(p.replaced for p in reason))
    said = [named_premises(reason, " and ") for reason in by_worth[:3]]
    more = f" (+{len(reasons) - 3} more reasons)" if len(reasons) > 3 else ""
    return ", or on ".join(said) + more


def named_premises(premises: Sequence[Premise], joiner: str = ", ") -> str:
    """Up to five facts, what speaks against them first, each with how far it may be believed."""
    words = {"verified": 2, "unchecked": 1, "due": 1, "never checked": 1, "archival": 1}
    ordered = sorted(premises, key=lambda premise: words.get(_word(premise), 0))
    said = joiner.join(f"{name(one.name, 60)} ({_word(one)})" for one in ordered[:5])
    return said + (f"{joiner}{len(ordered) - 5} more" if len(ordered) > 5 else "")


def _word(premise: Premise) -> str:
    """How far a premise may be believed now, in a word."""
    if premise.replaced:
        return "says something else since"
    if premise.trust is Trust.STALE and premise.due:
        return "stale, to be checked anew"
    if premise.trust in FALLEN or premise.trust is Trust.ARCHIVAL:
        return premise.trust
    if premise.now is not None and premise.now.word in ("changed", "gone"):
        return premise.now.word.upper()
    if premise.verified and (premise.now is not None or not target_of(premise.check)):
        return "verified"
    if premise.trust is Trust.PROVISIONAL:
        return "never checked"
    return "due" if premise.due else "unchecked"


def relies_line(premises: Sequence[Premise], thread: str) -> str:
    """What a thread relies on, if that is to be checked or has fallen; else nothing."""
    fallen = [premise for premise in premises if premise.trust in FALLEN]
    if fallen:
        shows = f"{call('thread_get', thread=thread)} shows the checks"
        return f"RELIES ON WHAT DOES NOT HOLD: {named_premises(fallen)}: {shows}"
    open_ones = [premise for premise in premises if _word(premise) != "verified"]
    return (
        f"relies on what is to be checked first: {named_premises(open_ones)}" if open_ones else ""
    )


def fact_recorded(recorded: FactRecorded, now: datetime) -> str:
    """What a recording left behind, and what it did not do."""
    fact = recorded.fact
    if recorded.unchanged:
        return "\n".join([f"unchanged, version {fact.version}:", *fact_lines(fact, now)])
    trust = "" if fact.trust is Trust.TRUSTED else f"{fact.trust}, "  # by whom is said below
    lines = [f"saved, {trust}version {fact.version}. {_next(fact)}".rstrip()]
    if recorded.demoted:
        lines.append("it was trusted by another check; by this one it was never checked")
    lines += [*_touched(recorded.touched), *fact_lines(fact, now)]
    if recorded.superseded:
        old = quoted(one_line(recorded.superseded, _STATEMENT))
        lines.append(f"    it replaces what was believed ({recorded.was}; in history): {old}")
    return "\n".join(lines)


def _next(fact: Fact) -> str:
    """What makes it worth something."""
    if fact.trust is Trust.ARCHIVAL:
        return f"Kept as true then; {tool('fact_verify')} makes it current again."
    if fact.trust is Trust.TRUSTED:
        return ""
    if not fact.check:
        return (
            "It has no check, so it can never be trusted: add one with "
            f"{call('fact_record', fact=fact.name, check=...)}."
        )
    return f"Run its check, then {call('fact_verify', fact=fact.name, holds=..., evidence=...)}."


def fact_verified(verified: FactVerified, now: datetime) -> str:
    """The outcome of a check, and what it did to everything built on the fact."""
    fact = verified.fact
    first = f"{name(fact.name)} is {fact.trust}, version {fact.version}"
    if fact.trust is Trust.STALE:
        first += (
            ": its check held, but each of its reasons rests on what fell. Check that, or record "
            f"a reason that stands: {call('fact_record', because=...)}"
        )
    elif fact.recheck_at is not None:
        first += f", due again {when(fact.recheck_at, now)}"
    lines = [first]
    if verified.before is not None:
        lines.append(f"before, it {_last_verification(verified.before, now)}")
    lines += _touched(verified.touched)
    is_missing = fact.baseline is not None and fact.baseline.state == "gone"
    if fact.held and is_missing:
        lines.append(f"NOTE: there is nothing at {one_line(target_of(fact.check), 100)}")
    if fact.trust is Trust.REFUTED and not verified.touched.fell_count:
        lines.append("nothing more fell with it")
    return "\n".join([*lines, *fact_lines(fact, now)])


def _touched(touched: Touched) -> list[str]:
    lines: list[str] = []
    if touched.fell_count:
        fell = _named([name(one, 60) for one in touched.fell], touched.fell_count)
        lines.append(f"FELL with it, {plural(touched.fell_count, 'fact')}: {fell}")
    if touched.again_count:
        again = _named([name(one, 60) for one in touched.again], touched.again_count)
        lines.append(f"due for a check of their own, since it holds again: {again}")
    if touched.threads_count:
        lines.append(
            f"threads that rely on this: {_threads(touched.threads, touched.threads_count)}"
        )
    return lines


def _named(names: Sequence[str], count: int) -> str:
    more = f" and {count - len(names):,} more" if count > len(names) else ""
    return ", ".join(names) + more


def _threads(threads: Sequence[tuple[str, Status]], count: int) -> str:
    return _named([f"{name(one, 60)} [{status}]" for one, status in threads], count)


def fact_page(page: FactPage, now: datetime, totals: Totals, asked: str, room: int = ROOM) -> str:
    """A page of facts. `asked` is the filter in words, for an empty answer."""
    counts = " · ".join(_count(page, totals, trust) for trust in Trust)
    if not page.facts:
        if not totals.all_facts:
            makes = call("fact_record", "fact", "statement", "check")
            return f"No facts yet. {makes} makes one."
        return f"No {asked} here. Facts: {counts}."
    total = f"{page.total_is} {page.total:,}".lstrip()
    head = f"{len(page.facts)} of {total} {asked} ({counts})"
    lines: list[str] = []
    shown = 0
    for fact in page.facts:
        one = fact_lines(fact, now)
        room -= sum(len(line) + 1 for line in one)
        if room < 0:
            break
        lines += one
        shown += 1
    if shown < len(page.facts):
        left = len(page.facts) - shown
        head += f"; {left} left out for length: ask with {argument('limit', shown)}"
    elif page.cursor:
        head += f"; more: {argument('cursor', page.cursor)}"
    return "\n".join([head, *lines])


def _count(page: FactPage, totals: Totals, trust: Trust) -> str:
    """How many of a trust there are, and how many of these are due."""
    due = page.due.get(trust, 0)
    of_these = f", {due if due <= MOST_COUNTED else '1,000+'} of them due" if due else ""
    return f"{totals.facts.get(trust, 0):,} {trust.value}{of_these}"


def fact_trace(trace: FactTrace, now: datetime, room: int = ROOM) -> str:
    """Why a fact is believed, as an argument, and what would fall with it."""
    fact = trace.fact
    lines = [f"CONCLUSION {name(fact.name)}, version {fact.version}", *fact_lines(fact, now)]
    if fact.reasons and fact.check:
        lines.pop()  # the argument says it
    lines += _in_full("check", fact.check, _CHECK)
    lines += _in_full("statement", fact.statement, _STATEMENT)
    lines += _in_full("evidence", fact.evidence, 80)
    lines += _in_full("source", fact.source, 0)
    has_fallen = fact.trust in FALLEN
    if trace.carries:
        falls = f"{plural(trace.falls_count, 'fact')} would fall with it; "
        count = plural(trace.carries_count, "fact")
        verb = "rests" if trace.carries_count == 1 else "rest"
        lines.append(f"{'' if has_fallen else 'IF IT FALLS, ' + falls}{count} {verb} on it")
    if trace.threads_count:
        lines.append(f"THREADS that rely on these: {_threads(trace.threads, trace.threads_count)}")
    below = [_dependent(one) for one in trace.carries]
    below += _more(trace.carries, trace.carries_count)
    argument = [*_argument(trace.rests_on, now), *_more(trace.rests_on, trace.rests_on_count)]
    room -= sum(len(line) + 1 for line in lines) + 200
    above, above_left = fitted(
        argument, max(room - sum(len(line) + 1 for line in below), room // 2)
    )
    below, below_left = fitted(below, room - sum(len(line) + 1 for line in above))
    why = ["WHY", *above] if above else ["WHY  no because: it rests on its check alone"]
    lines += [*why, *_left_out(above_left)]
    lines += ["ON IT", *below, *_left_out(below_left)] if below else ["NOTHING rests on it"]
    return "\n".join(lines)


def _in_full(label: str, text: str, shown: int) -> list[str]:
    """A text, where the lines above do not show all of it."""
    if (len(text.splitlines()) <= 1 and len(text) <= shown) or not text:
        return []
    return [f"  {label}:", *indented(text)]


def _left_out(lines: int) -> list[str]:
    return [f"  (+{plural(lines, 'line')} left out for length)"] if lines else []


def _argument(traced: Sequence[Traced], now: datetime) -> list[str]:
    """Each premise below what rests on it: because, and, or because."""
    lines: list[str] = []
    reasons: list[int] = []
    for one in traced:
        before = reasons[one.depth - 1 : one.depth]
        word = "because" if not before else "and" if before == [one.reason] else "or because"
        reasons[one.depth - 1 :] = [one.reason]
        indent = _indent(one.depth)
        if one.seen:
            lines.append(f"{indent}{word} {name(one.fact.name, 80)}, as above")
            continue
        word += ", though it says something else since," if one.replaced else ""
        check, *others = fact_lines(one.fact, now)
        if one.fact.reasons and one.fact.check:
            others.pop()  # what follows says it
        if one.fact.source:
            others.append(f"    source: {one_line(one.fact.source)}")
        lines += [f"{indent}{word} {check}", *(f"{indent}{line}" for line in others)]
    return lines


def _dependent(one: Traced) -> str:
    """What rests on a fact, and whether it would fall; its check before its claim."""
    fact = one.fact
    if one.seen:
        return f"{_indent(one.depth)}{name(fact.name, 80)}, as above"
    check = f"check: {one_line(fact.check, 80)}" if fact.check else "no check of its own"
    if fact.trust in FALLEN:
        word = str(fact.trust)
    else:
        word = "would fall" if one.falls else "stands by another reason"
    statement = quoted(one_line(fact.statement, 80))
    return f"{_indent(one.depth)}{name(fact.name, 80)} [{word}] · {check} · believed: {statement}"


def _indent(depth: int) -> str:
    """Two spaces a step; a long chain is numbered where it would run out of the line."""
    return "  " * min(depth, _DEEPEST_INDENT) + (f"({depth}) " if depth > _DEEPEST_INDENT else "")


def _more(traced: Sequence[Traced], count: int) -> list[str]:
    shown = len({one.fact.name for one in traced})
    return [f"  … and {plural(count - shown, 'fact')} more"] if count > shown else []


def objective_lines(objective: Objective, now: datetime, limit: int = 500) -> list[str]:
    """The objective, how it came to be the current one, and the intent behind it."""
    who = by(objective.changed_by, objective.changed_at, now)
    reason = f", because {one_line(objective.reason, limit)}" if objective.reason else ""
    if objective.was and objective.was != objective.objective:
        change = f"changed by {who}{reason} (was: {one_line(objective.was, limit)})"
    elif objective.version > 1:
        change = f"its intent was changed by {who}{reason}"
    else:
        change = f"set by {who}{reason}"
    lines = [one_line(objective.objective, limit), f"version {objective.version}, {change}"]
    if objective.intent:
        was = ""
        if objective.intent_was not in ("", objective.intent):
            was = f" (was: {one_line(objective.intent_was, limit)})"
        lines.append(f"intent: {one_line(objective.intent, limit)}{was}")
    return lines


def objective_set(objective: Objective, now: datetime) -> str:
    """The objective as it is now."""
    word = "unchanged, nothing was written" if objective.unchanged else "saved"
    first, *rest = objective_lines(objective, now)
    return "\n".join([f"{word}: {first}", *rest])
