"""When two attempts had the same outcome: results are compared without their volatile parts.

Volatile are times, durations, hex ids and the drawn parts of temporary paths. A step is refused
after a few equal outcomes, so a false "equal" stops honest work, while a false "different" only
lets a loop run on. What may be either is therefore content:

- A date alone, since assertions are about dates. A clock without a date and without seconds or
  AM/PM, and what follows a colon (`a.c:12:30:45`), since those are lines and columns.
- A number without a unit or a label, such as a port, an epoch, `5m` (metres) or a process id; but
  the latter is an id in the head of a Rust panic and of lines of klog, syslog and Spring Boot.
- `0x` with up to four digits between zeros (an exit code, a flag), and with eight that begin with
  8, C or E or are all F (HRESULT, NTSTATUS, -1): to tell two errors apart is worth more than the
  addresses of 32-bit programs, which may look the same.
- Hex words that may be a word (`defaced`), a number (`1048576b`, `1.234567e-05`, `0b1010101`), a
  colour (`#1a2b3c4d`) or an error (`BC30451`).
- What names a test (`test_wait[30s]`, `TestWait/30s`), a decade (`1990s`) or statuses (`500s`).
- Below a temporary directory, each word that a person may have chosen: work that goes from
  `/tmp/a.json` to `/tmp/b.json` gets ahead, and the names that tools draw have forms of their own.

Two things go with a duration though they are none, because they depend on it: that jest and mocha
show one at the end of a line, and how many `=` pytest puts around one. A result that holds a
placeholder word for word equals one that held such a part; nobody loses anything by that.
"""

from __future__ import annotations

import hashlib
import re

# None may look at a character more than a bounded number of times: an unbounded repeat is
# possessive, and no match begins inside what another one has read in vain.
_COLOUR = re.compile(r"(\x1b\[[0-9;?]*+[A-Za-z])")
_EDGE, _END, _PARAMETER = r"(?<![^\W_])(?<!<tmp>)", r"(?!\w|<tmp>)", r"(?<=[\w>]\[)"

_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? {1,2}"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_YEAR, _MM, _DD = r"(?:19|20)\d\d", r"(?:0?[1-9]|1[0-2])", r"(?:0?[1-9]|[12]\d|3[01])"
_DATE = (
    rf"(?:{_YEAR}-{_MM}-{_DD}|{_YEAR}/{_MM}/{_DD}|{_YEAR}\.{_MM}\.{_DD}"
    rf"|{_DD}[ /-]{_MONTH}[ /-]{_YEAR}|(?:{_MM}/{_DD}|{_DD}[/.]{_MM})[/.]{_YEAR})"
)
_HH_MM = r"(?:[01]?\d|2[0-3]):[0-5]\d"
# A comma and three digits are a fraction in a log, but the next column in a table.
_SS = r":[0-6]\d(?:\.\d++|,\d{3}(?:\d{3}){0,2}(?=[^\w,\r\n]|Z))?"
_HALF = r"[ \u202f]?[AaPp][Mm](?!\w)"
_OFFSET = r"(?:Z|[+-](?:0\d|1[0-4])(?::?(?:00|15|30|45))?(?![\d:]))?"
_APART = r"(?: [+-][01]\d(?:00|15|30|45)(?!\d))?"
_CLOCK = rf"{_HH_MM}(?:{_SS})?(?:{_HALF})?"
_TIME = (
    r"(?=[\dA-Z])(?:"
    # with a date in digits, also as part of a file's name
    rf"{_EDGE}(?:{_DAY})?{_DATE}(?:[T_-]|,? {{1,2}}|(?<=[a-z]/\d\d\d\d):){_CLOCK}{_OFFSET}{_APART}"
    r"(?![^\W_])"
    rf"|{_EDGE}{_YEAR}-?(?:0[1-9]|1[0-2])-?[0-3]\d[T_-][0-2]\d[_.-]?[0-5]\d[_.-]?[0-6]\d"
    r"(?:[_.-]?\d{3,9})?Z?(?![^\W_])"
    # ctime; syslog and ls; klog
    rf"|\b{_DAY}{_MONTH} [ \d]?\d {_CLOCK}(?: (?:UTC |[A-Z]{{2,4}}T )?{_YEAR}(?![/-]))?{_APART}"
    r"(?!\w)"
    rf"|\b(?:{_DAY})?{_MONTH} [ \d]?\d(?:,? {_YEAR})?,? {_CLOCK}(?: {_YEAR}(?= GMT))?(?!\w)"
    rf"|(?<=\b[DEFIW])\d{{4}} {_HH_MM}{_SS}(?!\w)"
    # without a date
    rf"|(?<![\w:])(?<![\w>]\.)(?!{_PARAMETER})"
    rf"(?:{_HH_MM}{_SS}(?:{_HALF})?{_OFFSET}|{_HH_MM}{_HALF}|[0-5]\d:[0-5]\d\.\d{{2,6}})"
    r"(?!\w|:[\d:<]|:[\da-fA-F]{2}(?!\w)))"
)
_EPOCH = (
    rf"((?:{_EDGE}(?i:ts|epoch|(?:date)?time(?:[_-]?stamp)?(?:_?[mun]s)?|(?<=_)at)"
    r"|(?<=[a-z])(?:Time(?:[Ss]tamp)?|At)(?:M[Ss])?)"
    r"\\?[\"']?[ \t]{0,4}[=:][ \t]{0,4}\\?[\"']?)"
    r"(?:1\d|2[01])\d{8}(?:\d{3}){0,3}+(?:\.\d++)?(?!\w)"
)

_NUMBER = r"(?:\d{1,3}(?:,\d{3}){1,3}+|\d++)(?:[.,]\d++)?+(?:e[+-]?\d{1,3})?"
_SECOND = r"(?:[nu\u00b5\u03bcm]s(?:ecs?)?|(?:milli|micro|nano)?[Ss]ec(?:ond)?s?|s)"
_MINUTE, _HOUR = r"[Mm]in(?:ute)?s?", r"(?:h|[Hh](?:ou)?rs?)"
_DAYS, _HOURS = r"\d++ ?d(?:ays?)?,? ?", rf"\d++ ?{_HOUR},? ?"
_MINUTES = rf"\d++ ?(?:{_MINUTE}|m),? ?(?:and )?"
# Decades, statuses, plurals; and `640 h: 480` or `9 min 2 max`, where the unit is a name.
_NONE = (
    r"(?:(?:1\d\d0|20\d0|(?<=[Tt]he )\d0|40\d|429|50[0-4])s(?!\w)|\d++s of\b|\d++ (?:min|sec|[hs])"
    rf"(?:[:=] ?| )\d++(?:[.,]\d++)?+(?![\w-]| (?:{_SECOND}|{_MINUTE}|{_HOUR}|m)(?!\w)))"
)
_DURATION = (
    rf"(?=\d)(?<!\w)(?<![/\\%])(?<![\w>%][.-])(?!{_PARAMETER}|{_NONE})(?:"
    rf"(?:{_DAYS})?(?:{_HOURS})?(?:{_MINUTES})?(?:\d++s ?)?{_NUMBER} ?{_SECOND}"
    rf"|(?:{_DAYS})?{_HOURS}\d++ ?(?:{_MINUTE}|m)|{_DAYS}\d++ ?(?:{_HOUR}|m)"
    rf"|(?:\d++:[0-5]\d|{_NUMBER}) ?(?:{_MINUTE}|{_HOUR})"
    rf"){_END}(?![(=]|[.-][\w<])(?: \(<time>\)|, estimated \d++ m?s(?!\w))?"
)
_UNIT_IN_LABEL = (
    rf"({_EDGE}(?i:duration|elapsed|latency|time)_?(?i:[mun]s|secs?|seconds)\\?[\"']?"
    r"[ \t]{0,4}[=: ][ \t]{0,4})\d++(?:\.\d++)?+(?![\w.])"
)

_HEX = "[0-9a-fA-F]"
_MIXED = (
    r"(?=[a-fA-F]*+\d)(?=\d*+[a-fA-F])(?!\d++(?:[bBdDfF](?!\w)|[eE][+-][\d<])"
    r"|(?<=[\d>]\.)\d++[a-fA-F]\d*+(?!\w)|0b[01]++(?!\w)|[A-F]{1,3}\d{4,9}+[A-F]?(?!\w))"
)
_ID = (
    rf"(?={_HEX})(?:{_EDGE}{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}(?![^\W_])"
    rf"|{_EDGE}(?<!#)(?!{_PARAMETER}){_MIXED}"
    rf"(?:{_HEX}{{8,}}+(?![^\W_]|<tmp>)|(?<!_){_HEX}{{7}}{_END})"
    rf"|(?<!\w)(?!{_PARAMETER})0[xX](?:{_HEX}++(?=\.\.\.)|(?!0*+"
    rf"(?:{_HEX}{{0,4}}0{{0,4}}|[8cCeE]{_HEX}{{7}}|(?:[fF]{{8}}){{1,2}})(?!\w)){_HEX}{{5,}}+{_END}))"
)
_PROCESS = (  # as a Rust panic, klog, syslog and Spring Boot say it
    r"((?<=') \((?=\d++\) panicked)|(?<=[DEFIW]<time>) (?= {0,7}\d++ [\w.-]{1,80}:\d)"
    r"|<time> [\w.-]{1,80} [\w./@-]{1,80}\[(?=\d++\]: )|<time> {1,3}[A-Z]{4,5} (?=\d++ --- ))"
    r" {0,7}+\d++"
)

_VOLATILE = tuple(
    (re.compile(pattern, re.MULTILINE), instead)
    for pattern, instead in (
        (r" \(\d++(?:\.\d++)? ?m?s\)(?=\r?$)", ""),
        (r"={5,}+", "====="),
        (_TIME, "<time>"),
        (_EPOCH, r"\1<time>"),
        (_DURATION, "<duration>"),
        (_UNIT_IN_LABEL, r"\1<duration>"),
        (_PROCESS, r"\1<id>"),
        (_ID, "<id>"),
        (r"(?<=/var/folders/)\w\w/\w++(?=/)", "<tmp>"),
    )
)

_BELOW_TEMP = re.compile(
    r"(?:[/\\](?i:te?mp)|/dev/shm|/run/user/\d++|/var/folders/<tmp>/[TC])"
    r"(?:[/\\]{1,4}[^\s/\\\"'`,;|=&()\[\]{}]++){1,3}"
)
# The forms of Python, the shell, Rust, rustc, gcc, pip, pytest, and of npm and node-tmp.
_DRAWN = re.compile(
    rf"<id>|(?<=[/\\])tmp(?![a-z_]*_(?:\d+|[a-z_]*)(?!\w))(?:[a-z0-9_]{{8}}{_END}"
    rf"|[a-z_]{{0,8}}\d++_?[a-z][a-z0-9_]{{1,8}}{_END}|[a-z0-9_]{{1,7}}(?=\.\.\.))"
    rf"|(?:(?<=[/\\]tmp\.)\w{{10}}|(?<=[/\\]\.tmp)\w{{6}}|(?<=[/\\]rustc)\w{{6}}){_END}"
    r"|(?<=[/\\])cc\w{6}(?=\.(?:[a-z]{1,2}|res|ltrans)(?!\w))"
    rf"|(?<=[/\\])pip-[a-z-]{{1,30}}-(?:<id>|[a-z0-9_]{{8}}{_END})"
    rf"|(?:(?<=[/\\]pytest-)|(?<=[/\\]popen-gw))\d++{_END}|(?<=[/\\](?:tmp|npm)-)\d++(?=-)"
)
_WORD = re.compile(
    rf"(?<![A-Za-z0-9_])(?<!<tmp>)[a-z0-9_]{{8}}{_END}"
    r"|(?<![A-Za-z0-9])(?<!<tmp>)[A-Za-z0-9]++(?!<tmp>)"
)
_CHOSEN = re.compile(
    r"(?:[A-Z]?[a-z_]{2,}+)*+(?:\d++[A-Za-z]?)?|[A-Z_]++\d*+[A-Za-z]?|[a-z]\d++[a-z]?|\d++[a-z]++"
    r"|\d++x\d++|v\d\w*+|(?:[A-Za-z]\d++)++"
)
_SERIAL = re.compile(r"(?<!\d)(?!(?:19|20)\d{6}(?!\d))\d{6,}+")


def digest(ok: bool, result: str) -> str:
    """What two attempts have in common if nothing but time and chance is between them."""
    outcome = f"{ok:d}\n{stable(result)}"
    return hashlib.sha256(outcome.encode("utf-8", "surrogatepass")).hexdigest()


def stable(result: str) -> str:
    """The result without what differs from one attempt to the next though nothing else happened."""
    parts = _COLOUR.split(result)
    parts[::2] = map(_stable, parts[::2])
    return "".join(parts)


def _stable(text: str) -> str:
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    return _BELOW_TEMP.sub(lambda path: _WORD.sub(_named, _DRAWN.sub("<tmp>", path[0])), text)


def _named(match: re.Match[str]) -> str:
    """A word of a temporary path, without what was drawn: all of it, or a number of six digits."""
    word, before = match[0], match.string[match.start() - 1]
    if before in "-._" and len(word) in (6, 8, 10, 12) and not _CHOSEN.fullmatch(word):
        return "<tmp>"
    return word if before == ":" else _SERIAL.sub("<tmp>", word)
