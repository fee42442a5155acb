"""What two attempts have in common: equal but for volatile parts, different in anything else.

In the outputs below, «this|that» stands where two runs differ although nothing else happened, and
{{this|that}} where something did.
"""

from __future__ import annotations

import random
import re
import string
import time
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soaking import examples

from mcp_state.store.outcomes import digest, stable

BAR_OR_LINE = r" *[|\n] *"
LOWER, LETTERS = string.ascii_lowercase + string.digits, string.ascii_letters + string.digits

OUTPUTS = {
    "pytest": """\
============================= test session starts «=|==»=============================
rootdir: /tmp/«tmp.TlvH5dbzeC|tmp.f4wOuKVm3E»/api
t/test_a.py {{.FFF|.F.F}}                                                    [{{100|50}}%]
________________________________ test_x[{{30s|60s}}] ________________________________
E   AssertionError: assert <object object at «0x7fda82da7b40|0x7f20193a46f0»> == 'a'
E    +  where '/tmp/pytest-of-root/pytest-«10|11»/{{test_x0|test_y0}}/a.txt' = str(PosixPath('b'))
t/test_a.py:{{4|5}}: AssertionError
------------------------------ Captured log call -------------------------------
«2026-11-29 21:21:53,123|2026-11-30 00:00:07,004» ERROR app:{{hi|ho}}
============================= slowest 3 durations ==============================
«0.10s|0.31s» call     t/test_a.py::{{test_z|test_y}}
FAILED t/test_a.py::test_x - AssertionError: assert <object object at «0x7fd|0x55c»...
FAILED t/test_a.py::test_y - AssertionError: assert '/tmp/tmp«3hde|x01_»...
=======«=|»===== {{3|2}} failed, 1 {{passed|skipped}} in «58.70s|71.02s (0:01:11)» ===«=|»========
""",
    "cargo": """\
   Compiling foo {{v0.1.0|v0.1.1}} (/tmp/«tmp.TlvH5dbzeC|tmp.f4wOuKVm3E»/p)
    Finished `test` profile [unoptimized + debuginfo] target(s) in «1.37s|1m 02s»
     Running unittests src/lib.rs (target/debug/deps/foo-«28a01a7770d7ff1d|9f0c1a7770d7a012»)
thread 'tests::it_works' («13664|14532») panicked at src/lib.rs:{{2|3}}:{{48|49}}:
  left: {{0|1}}
 right: 4
             at /rustc/«59807616e1fa2540724bfbac14d7976d7e4a3860|
0e1fa2540724bfbac14d7976d7e4a38605980761»/library/std/src/panicking.rs:689:5
test result: FAILED. 0 passed; {{2|1}} failed; 0 ignored; finished in «0.17s|0.00s»
/usr/bin/ld: /tmp/rustc«8PqzJc|BxLwVo»/symbols.o: {{undefined|multiple}} reference
""",
    "go test": """\
«2026/11/29 14:03:11|2026/11/30 09:00:00» {{listening|serving}} on 127.0.0.1:{{8080|8081}}
=== RUN   TestWait/{{30s|31s}}
    --- FAIL: TestWait/{{30s|31s}} («0.00s|1.25s»)
        wait_test.go:{{41|42}}: open /tmp/TestWait«2904385761|118823»/001/{{a|b}}.txt: no such file
panic: runtime error: invalid memory address [signal SIGSEGV: code={{0x1|0x2}} addr=0x0]
goroutine {{7|8}} [running]:
main.main(«0xc000012345|0xc0004a2000») /tmp/go-build«1234567890|987654321»/b001/main.go:{{5|6}}
BenchmarkAdd-8   {{1000|2000}}   «1234|998.5» ns/op   {{16|24}} B/op
FAIL	example.com/api	«0.412s|12.003s»
""",
    "jest": """\
FAIL src/sum.test.js« (5.123 s)|»
  ✓ {{adds|subtracts}} 1 + 2« (3 ms)|»
  ✕ waits {{10|20}} times« (1 ms)| (250 ms)»
    Expected: {{3|4}}
      at Object.<anonymous> (src/sum.test.js:{{5|6}}:{{17|18}})
Tests:       {{1|2}} failed, 1 passed, 2 total
Time:        «1.234 s|0.98 s, estimated 2 s»
""",
    "node": """\
✖ b («1.196331ms|12.3ms»)
  Error: {{ENOENT|EACCES}}: no such file, open '/tmp/foo-«zYYDY6|xnZk5H»/{{nope|yes}}.txt'
      at TestContext.<anonymous> (/tmp/«tmp.TlvH5dbzeC|tmp.f4wOuKVm3E»/p/a.test.js:3:{{74|75}})
    errno: {{-2|-13}},
# fail {{1|2}}
# duration_ms «240.340792|98.1»
  duration_ms: «1.207009|4.842523»
""",
    "colours": (
        "\x1b[2m«2026-11-29T14:03:11.123456Z|2026-11-30T00:00:00.000001Z»\x1b[0m "
        "\x1b[{{31|32}}m ERROR\x1b[0m api: took \x1b[1m«3ms|12ms»\x1b[0m\n"
    ),
    "gcc": """\
/usr/bin/ld: /tmp/cc«HWiP3s|qwerty».o: in function `{{main|init}}':
m.c:(.text+{{0x5|0x9}}): undefined reference to `f'
/tmp/«tmpx8f3|tmpab12_x9»/build/{{main|lib}}.c:{{41|42}}:{{14|15}}: error: expected ';'
<stdin>:{{12|13}}:30:45: error: expected ';'
collect2: error: ld returned {{1|2}} exit status
""",
    "tsc": """\
[«10:23:45 AM|11:59:00 PM»] Starting compilation in watch mode...
src/app.ts({{14|15}},{{50|51}}): error {{TS2322|TS2345}}: Type 'string' is not assignable.
[«10:23:47\u202fAM|11:59:03\u202fPM»] Found {{2|3}} errors. Watching for file changes.
""",
    "git": """\
[main «a1b2c3d|9f8e7d6»] Fix the {{build|tests}}
 {{1|2}} file changed, {{2|3}} insertions(+)
   «83db48f|bf2a1c3»..«bf2a1c3|0d1e2f3»  main -> {{main|dev}}
commit «2b4719fea5d2613e740e696b1218785ebb09876b|
0b4719fea5d2613e740e696b1218785ebb09876c»
Date:   «Sun Nov 29 21:21:49 2026 +0000|Mon Nov 30 01:00:00 2026 +0000»
{{CONFLICT|Auto-merging}} (content): Merge conflict in {{a|b}}.py
""",
    "docker": """\
#5 [2/{{5|6}}] RUN pip install
#5 DONE «12.3s|9.0s»
 => ERROR [3/5] RUN make  «0.4s|1m2.1s»
 => => writing image sha256:«9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08|
0a86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00b19»
«3f2a1b9c0d4e|4e5f6a7b8c9d»   api:{{1.2.3|1.2.4}}   Up «5 minutes|2 hours»   :{{8080|8081}}->80/tcp
ERROR: process "/bin/sh -c make" did not complete successfully: exit code: {{2|137}}
""",
    "terraform": """\
aws_instance.web: Still creating... [«00m10s|01m20s» elapsed]
aws_instance.web: Creation complete after «1m3s|58s» [id=i-«0abc123def4567890|0fff23de0f4567891»]
Plan: {{1|2}} to add, {{0|1}} to change, 0 to destroy.
Error: {{Unauthorized|Forbidden}}: request id: «123e4567-e89b-12d3-a456-426614174000|
00000000-0000-4000-8000-000000000000», status code: {{401|403}}
""",
    "npm": """\
npm error code {{E404|E401}}
npm error A complete log of this run can be found in: \
/home/dev/.npm/_logs/«2026-11-29T21_21_50_805Z|2026-11-30T00_00_01_000Z»-debug-{{0|1}}.log
added {{12|13}} packages, and audited 214 packages in «3s|1m»
""".replace("|1m»", "|850ms»"),
    "curl": """\
curl: (7) Failed to connect to 127.0.0.1 port {{9|80}} after «2 ms|0 ms»: {{Couldn't|Could}} connect
< HTTP/1.1 {{502|503}} Bad Gateway
< date: «Sun, 29 Nov 2026 14:03:11 GMT|Mon, 30 Nov 2026 00:00:00 GMT»
< x-trace: «4bf92f3577b34da6a3ce929d0e0e4736|00f067aa0ba902b7a3ce929d0e0e4736»
< content-length: {{4096|4097}}
100   {{615|616}}  100   615   «0:00:01|0:01:10» --:--:-- «0:00:01|0:01:10»
""",
    "kubectl": """\
E«1129 14:03:11.123456   12345|1130 00:00:01.000001    7» memcache.go:{{265|266}}] couldn't get list
api-0   {{0|1}}/1   {{CrashLoopBackOff|Running}}   {{5|6}} («32s|5m12s» ago)   «5m12s|2d3h»
""",
    "python": """\
Traceback (most recent call last):
  File "/tmp/«tmp3hdebf7m|tmp_e38foly»/{{app|lib}}.py", line {{14|15}}, in {{load|save}}
{{ValueError|KeyError}}: <app.Job object at «0x7f8b1c2d3e50|0x55d2a1b4c2f0»> is not ready
«2026-11-29 14:03:11,123|2026-11-30 00:00:00,000»:ERROR:root:job «a1b2c3d4e5f6|0f1e2d3c4b5a» failed
Ran {{1|2}} test in «0.000s|1.302s»
""",
    "java": """\
«2026-11-29T14:03:11.123Z|2026-11-30T00:00:00.001Z» ERROR «12345|77» --- [{{main|http}}] o.s.Boot: x
«Nov 29, 2026 9:21:52 PM|Dec 1, 2026 10:00:00 AM» A main
java.lang.{{IllegalState|IllegalArgument}}Exception: com.acme.Job@«1b6d3586|4b9af9a9»
	at com.acme.Job.run(Job.java:{{123|124}})
	at com.acme.Job$$Lambda$14/«0x0000000800c03000|0x00007f1234567890».run(Unknown Source)
[INFO] Tests run: {{3|4}}, Failures: 1, Time elapsed: «0.123 s|1.2 s» <<< FAILURE!
[INFO] Total time:  «1.234 s|01:23 min»
[INFO] Finished at: «2026-11-29T14:03:11+01:00|2026-12-01T00:00:00+01:00»
""",
    "systemd": """\
   Active: {{failed|active}} since «Sun 2026-11-29 14:03:11|Mon 2026-11-30 00:00:00» UTC; \
«3min 2s|1h 5min» ago
      CPU: «12ms|1.034s»
«Nov 29 14:03:11|Dec  1 00:00:00» web systemd[«1|77»]: {{api|db}}.service: exited, status={{1|2}}
""",
    "servers": """\
127.0.0.{{1|2}} - - [«29/Nov/2026:14:03:11 +0000|
01/Dec/2026:00:00:00 +0000»] "GET / HTTP/1.1" {{200|500}}
[«Sun Nov 29 14:03:11.123456 2026|Mon Nov 30 00:00:00.000001 2026»] [{{error|warn}}] AH00{{1|2}}
ts=«1764424991.123|1764425000.9» msg={{start|stop}} elapsed=«1.5ms|2ns»
{"time":«1764424991123|1764425991124»,"createdAt":"«1764424991|1764424999»","n":{{1764424991|17644}}}
""",
    "neighbours": """\
«Sun Nov 29 14:03:11|Mon Nov 30 00:00:00» «2026-11-29 14:03:11|2026-11-30 00:00:00» {{WARN|FAIL}}
«Sun Nov 29 14:03:11|Mon Nov 30 00:00:00» {{WARN|FAIL}} «2026-11-29 14:03:11|2026-11-30 00:00:00» \
{{+12|+13}} lines
drwxr-xr-x 2 me me 4096 «Nov 29 14:03|Dec  1 09:00» {{2024|2025}}
notAfter=«Nov 29 14:03:11 2026|Dec  1 00:00:00 2027» GMT
created_at=«1764424991|1764424999» run_«0a1b2c3d|f5e4d3c2»
""",
    "a table": """\
time,status
«2026-11-29 14:03:11|2026-11-30 00:00:00»,{{200|500}},{{12|13}}
«2026-11-29 14:03:12|2026-11-30 00:00:01»,{{200|500}}
""",
    "temporary files": r"""
C:\Users\me\AppData\Local\Temp\«tmpab12cd34|tmp9z8y7x6w»\{{app|lib}}.py: {{0x80070005|0x80070002}}
'C:\\Users\\me\\AppData\\Local\\Temp\\pytest-of-me\\pytest-«1|22»\\{{test_a0|test_b0}}\\a.txt'
/var/folders/«zz/zyxvpxvq6csfxvn_n0000000000000|ab/c1»/T/«tmpab12cd34|tmp9z8y7x6w»/{{report|other}}
/private/tmp/«pip-install-x1y2_z3a|pip-install-abcdefgh»/numpy_«0a1b2c3d4e5f|0a1b2c3d4e5a»/{{a|b}}.py
/tmp/pytest-of-me/pytest-«1|22»/popen-gw«0|3»/{{test_a0|test_b0}}
/tmp/junit«5501473131379381329|1501473131379381320».{{tmp|log}} /tmp/{{api|web}}/«a1b2c3d|9f8e7d6»
/dev/shm/«tmpab12cd34|tmp9z8y7x6w»/{{a|b}}
/tmp/npm-«1234-a1b2c3d4|77-9f8e7d6c»/{{a|b}} /run/user/1000/foo.«Ab3dE5|zYYDY6»/{{a|b}}
""",
}
VOLATILE_MARK, REAL_MARK = r"«([^«»]*?)\|\n?([^«»]*?)»", r"\{\{([^{}]*?)\|([^{}]*?)\}\}"


def run(output: str, volatile: int, changed: int = -1) -> str:
    """What a tool printed the first (1) or the second (2) time, one real part of it changed."""
    parts = re.split(REAL_MARK, re.sub(VOLATILE_MARK, rf"\{volatile}", output))
    return "".join(
        text for i, text in enumerate(parts) if i % 3 == 0 or (i % 3 == 1) == (i // 3 != changed)
    )


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=list(OUTPUTS))
def test_runs_that_differ_in_volatile_parts_only_are_equal(output: str) -> None:
    assert run(output, 1) != run(output, 2)
    assert stable(run(output, 1)) == stable(run(output, 2))
    assert digest(False, run(output, 1)) == digest(False, run(output, 2))


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=list(OUTPUTS))
def test_runs_that_differ_in_one_real_part_are_different(output: str) -> None:
    once = stable(run(output, 1))
    for changed in range(len(re.findall(REAL_MARK, output))):
        assert stable(run(output, 2, changed)) != once, re.findall(REAL_MARK, output)[changed]


def test_success_and_failure_are_different_whatever_they_say() -> None:
    assert digest(True, "done") != digest(False, "done")
    assert digest(True, "done in 3 s") == digest(True, "done in 4 s")
    assert re.fullmatch("[0-9a-f]{64}", digest(True, "\ud800"))
    assert digest(True, "") != digest(False, "")


VOLATILE = {
    "<time>": """
        2026-11-29T14:03:11Z|2026-11-29 14:03:11.123456789+01:00|2026-11-29 14:03|20261129T140311Z
        2026-11-29 14:03:11 +0100|2026/11/29 14:03:11|29.11.2026 14:03:11|11/29/2026, 2:03:11 PM
        2026.11.29 14:03:11|2026-11-29  14:03:11|20261129_140311|2026-11-29_14-03-11|Nov 29 14:03
        Sun, 29 Nov 2026 14:03:11|Sun,  8 Nov 2026 14:03:11 +0100|Sun Nov 29 14:03:11 UTC 2026
        Sun Nov 29 2026 14:03:11|Nov  9 14:03:11|Sun 2026-11-29 14:03:11|Sun Nov 29 14:03:11 2026
        29/Nov/2026:14:03:11 +0000|14:03:11|14:03:11.5|14:03:11Z|14:03:11+01:00|0:01:23|00:00.123
        2:03:11 pm|2:03 PM|Sun Nov 29 14:03:11 CEST 2026
    """,
    "<duration>": """
        3s|3 s|1.5ms|12 ns|7 us|7 \u00b5s|7 \u03bcs|3 sec|3 secs|1 second|2 seconds|5 min|5 mins
        1 minute|2 minutes|4 h|4h|4 hr|4 hrs|1 hour|2 hours|1m 3.2s|2m3s|1h02m|1h 2m|2d3h|1d 2m
        1d 2h 3m 4s|2s 345ms|1 hour, 2 minutes and 3 seconds|1.2e-05 s|1,5 s|1,234 ms|01:23 min
        300 milliseconds|1.2345 Seconds|83.21s (0:01:23)|3 s, estimated 4 s|500 ms|1200ms
        1 h 30 min|3 min 2 s
    """,
    "<id>": """
        123e4567-e89b-12d3-a456-426614174000|123E4567-E89B-12D3-A456-426614174000|a1b2c3d
        A1B2C3D4E5F6|0x7f8b1c2d3e50|0X7F8B1C2D|0x000001F2A3B4C5D0|0xdeadbeef
        3fe9c1d2b4a5968778695a4b3c2d1e0f3fe9c1d2
    """,
}


def table(text: str) -> list[str]:
    return re.split(BAR_OR_LINE, text.strip())


@pytest.mark.parametrize(
    ("part", "placeholder"),
    [(part, placeholder) for placeholder, parts in VOLATILE.items() for part in table(parts)],
)
def test_a_volatile_part_is_replaced_as_a_whole(part: str, placeholder: str) -> None:
    for frame in ("{}", "at {}, 3", "({})", '"{}"', "x [{}]\n", "a={};", "{}\r\n", "<b>{}</b>"):
        assert stable(frame.format(part)) == frame.format(placeholder)


CONTENT = r"""
    2026-11-29|29.11.2026|Nov 29|14:50|12:30|app.py:14:50|foo.c:12:30:45|a[10:20:30]|3:2|16:9|4:3:2
    00:11:22:33:44:55|01:02:03:04|00:11:22:aa|2001:db8::1|12:61:00|12:59:99|25:00:00|2026-11-29:14:50
    12:30:45:6|access.log.12:30:45|time 1764424991|pages 3-4|20261129|xtime_ms: 3|2026-11-29 failed
    20261129140311_create_users|1764424991|counts=1764424991|runts: 1764424991|ISO8601|10x123456
    5m|3d|2 m|5 d|4 seasons|3 segments|12 mines|1990s|2nd|10s of thousands|500s|404s|the 90s|5 hits
    1.2.3s|10.0.0.1 s|v1.2s|w 640 h 480|640 h: 480|9 min 2 max|line 12 min(x)|12 h=5|12 s.append(x)
    test_wait[30s]|test_wait[5s-10s]|TestWait/30s|30s-timeout|test_at[12:30:45]|test_id[a1b2c3d]|x5s
    defaced|1234567|#ffffff|#1a2b3c4d|1048576b|1048576B|1.234567e-05|1234567e-05|1.234567E10|1e10
    1.2345678f|0b10101010|BC30451|DB21034E|a1b2c3|facade|123456789012|exit 0x5|0xff|0x1234|0x0|E1129
    0x00001234|0x100000|0x80070005|0xC0000005|0xE0434352|0xffffffff|0xFFFFFFFFFFFFFFFF|exit code 137
    10.0.0.1:8080|v1.2.3-rc1|2x|%25s|%-25s|%.200s|1/3|87%|4096 bytes|12 MB|:8080|sha256|utf8|x86_64
    /tmp/myproject/src/a.py|/tmp/api.log|/tmp/run1|/tmp/v1-v1alpha1|/tmp/fooBar|/tmp/x-fooBar
    /tmp/backup-20261129|/tmp/shot-1024x768.png|/tmp/.s.PGSQL.5432|/tmp/TestFooBarBaz|/tmp/build-12/a
    /tmp/tmp_results|/tmp/tmpfile_001|/tmp/app.py:1234567|/tmp/tile_x10y20.png|/tmp/python3.11/a|/tmpx
    /home/me/foo-Ab3dE5/x|/tmp/sqlite.sqlite|/var/tmp/README|C:\Temp\x-README|/tmp/issue-12345
    /tmp/load-100users|/tmp/case-10a|/tmp/a-test_001|/tmp/ccresult.json|/tmp/template1
    /tmp/a10b|/tmp/log4j2/a|/tmp/e2e_test
"""


@pytest.mark.parametrize("text", table(CONTENT))
def test_what_may_be_a_real_difference_stays(text: str) -> None:
    assert stable(text) == text
    assert stable(f"see {text}: it failed") == f"see {text}: it failed"


DRAWN = {
    "Python": ("/tmp/tmp{}/a.py", LOWER + "_", 8, 0.95),
    "Python with a prefix": ("/tmp/foo-{}/a.py", LOWER + "_", 8, 0.75),
    "pip": ("/tmp/pip-build-env-{}/a.py", LOWER + "_", 8, 1),
    "mktemp": ("/tmp/tmp.{}/a.py", LETTERS, 10, 1),
    "Node": ("/tmp/foo-{}/a.py", LETTERS, 6, 0.9),
    "Rust": ("/tmp/.tmp{}/a.py", LETTERS, 6, 1),
    "rustc": ("/tmp/rustc{}/a.o", LETTERS, 6, 1),
    "gcc": ("/tmp/cc{}.o", LETTERS, 6, 1),
    "Go": ("/tmp/foo{}/a.py", string.digits, 9, 0.97),
    "node-tmp": ("/tmp/tmp-{}/a.py", LETTERS, 12, 0.97),
}


@pytest.mark.parametrize(("path", "alphabet", "length", "share"), DRAWN.values(), ids=list(DRAWN))
def test_names_that_tools_draw_are_told_from_names_that_people_choose(
    path: str, alphabet: str, length: int, share: float
) -> None:
    chance = random.Random(length)
    names = ("".join(chance.choices(alphabet, k=length)) for _ in range(1000))
    (_, equal), *_ = Counter(stable(path.format(name)) for name in names).most_common(1)
    assert equal >= share * 1000


def test_a_placeholder_in_a_text_equals_what_it_stands_for() -> None:
    assert stable("<time> <duration> <id> /tmp/<tmp>/a") == stable(
        "14:03:11 3 s a1b2c3d /tmp/tmpab12cd34/a"
    )


# Made-up outputs

Form = Callable[[int], str]
NUMBERS = st.integers(0, 2**128 - 1)
JOINTS = st.sampled_from([" ", "\n", ": ", ", ", " - ", " (", ") ", "\t", ' "', '" ', " [", "] "])
WORDS = table("error|expected|module|cannot|open|widget|assertion|returned|queue|retry|build|host")


def word(n: int) -> str:
    return WORDS[n % len(WORDS)]


def moment(n: int) -> datetime:
    return datetime(2001, 9, 10, tzinfo=UTC) + timedelta(microseconds=n % 10**15)


def name(n: int) -> str:
    return "".join(LOWER[n // 36**digit % 36] for digit in range(7))


REAL: tuple[Form, ...] = (
    word,
    lambda n: f"line {n % 5000}",
    lambda n: f"src/app.py:{n % 5000}:{n % 7}",
    lambda n: f"src/app.py:12:{n % 60:02}:45",
    lambda n: f"exit code {n % 256}",
    lambda n: f"{n % 5000} failed",
    lambda n: f"{n % 100}%",
    lambda n: f"{n % 10**9} bytes",
    lambda n: f"10.0.{n % 256}.1:8080",
    lambda n: f"v1.{n % 100}.0",
    lambda n: f"0x{n % 0x10000:x}",
    lambda n: f"0xC0{n % 2**24:06X}",
    lambda n: f"due 2026-11-{n % 30 + 1:02}.",
    lambda n: f"test_wait[{n % 100}s]",
    lambda n: f"TestWait/{n % 1000}ms",
    lambda n: f"/tmp/{word(n)}/{n % 1000}.log",
    lambda n: f"{n % 100}:2",
    lambda n: f"BC{30000 + n % 1000}",
    lambda n: f"{n % 10}.2345678e-05",
    lambda n: f"{n % 100}m long",
    lambda n: f"at {n % 24:02}:{n % 60:02}",
    lambda n: f"{n % 10**7}b",
    lambda n: " " * (n % 5),
)
CHANCE: tuple[Form, ...] = (
    lambda n: moment(n).isoformat(),
    lambda n: f"{moment(n):%Y-%m-%d %H:%M:%S},{n % 1000:03} -",
    lambda n: f"{moment(n):%Y-%m-%dT%H:%M:%SZ}",
    lambda n: f"{moment(n):%b} {moment(n).day:2} {moment(n):%H:%M:%S}",
    lambda n: f"{moment(n):%a, %d %b %Y %H:%M:%S} GMT",
    lambda n: f"{moment(n):[%d/%b/%Y:%H:%M:%S +0000]}",
    lambda n: moment(n).ctime(),
    lambda n: f"{moment(n):%Y/%m/%d %H:%M:%S}",
    lambda n: f"{moment(n):%H:%M:%S}",
    lambda n: f"{moment(n):%I:%M:%S %p}",
    lambda n: f"ts={moment(n).timestamp()}",
    lambda n: f'"time":{int(moment(n).timestamp()) * 1000}',
    lambda n: f"I{moment(n):%m%d %H:%M:%S.%f}   12345 main.go:12]",
    lambda n: f"in {n % 10**5 / 100:.2f}s",
    lambda n: f"{n % 10**5} ms",
    lambda n: f"{n % 100 / 7:.3f} seconds",
    lambda n: f"{n % 50 + 2} minutes",
    lambda n: f"{n % 60}m{n % 600 / 10}s",
    lambda n: f"{n % 24}h {n % 60:02}m",
    lambda n: f"{n % 10**5 / 100:.2f}s ({timedelta(seconds=n % 9999)})",
    lambda n: str(uuid.UUID(int=n)),
    lambda n: f"<Job object at 0x{0x7F0000000000 + n % 2**40:x}>",
    lambda n: f"0x{0x7F0000000000 + n % 2**40:016X}",
    lambda n: f"{n:033x}a0b1c2d",
    lambda n: f"com.acme.Job@1a{n % 2**24:06x}",
    lambda n: f"[main c0{n % 2**20:05x}]",
    lambda n: f"sha256:{n:062x}e7",
    lambda n: f"/tmp/tmp{name(n)}8/app.py",
    lambda n: f"/tmp/tmp.{name(n)}k2J/app.py",
    lambda n: f"/tmp/go-build{10**8 + n % 10**8}/b001/app.go",
    lambda n: f"/tmp/pytest-of-me/pytest-{n % 1000}/test_x0",
    lambda n: rf"C:\Users\me\AppData\Local\Temp\tmp{name(n)}8\app.py",
)


@st.composite
def runs(draw: st.DrawFn) -> tuple[str, str, str]:
    """What two runs print that differ by chance, and what one prints after a real change."""
    real, before, after = draw(
        st.tuples(st.sampled_from(REAL), NUMBERS, NUMBERS).filter(
            lambda t: t[0](t[1]) != t[0](t[2])
        )
    )
    parts = draw(st.lists(st.tuples(st.sampled_from(REAL + CHANCE), NUMBERS, NUMBERS), max_size=8))
    parts.insert(draw(st.integers(0, len(parts))), (real, before, before))
    joints = draw(st.lists(JOINTS, min_size=len(parts), max_size=len(parts)))
    place = next(i for i, part in enumerate(parts) if part == (real, before, before))
    texts = [
        [form(n) for form, n, _ in parts],
        [form(m if form in CHANCE else n) for form, n, m in parts],
    ]
    texts.append([*texts[1][:place], real(after), *texts[1][place + 1 :]])
    one, other, changed = ("".join(map(str.__add__, text, joints)) for text in texts)
    return one, other, changed


@pytest.mark.soak
@settings(max_examples=examples(100))
@given(runs(), st.booleans())
def test_chance_never_tells_two_runs_apart_and_a_real_change_always_does(
    texts: tuple[str, str, str], ok: bool
) -> None:
    one, other, changed = texts
    assert stable(one) == stable(other)
    assert digest(ok, one) == digest(ok, other)
    assert len({digest(ok, one), digest(ok, changed), digest(not ok, one)}) == 3


AT_THE_SEAMS = r"""
14:03:11:2h
14:03:11.5bE1129
14:03:11+01:00s
1a2b3c4-5s
1a2b3c4.5s
1a2b3c4[5s]
5s-1a2b3c4
20261129e-051a2b3c4
5 min 1a2b3c4
time: 1764424991.123e4567-e89b-12d3-a456-426614174000
9.51764424991E1129
90ab3de5.51764424991E1129
C:\Temp\#2h1234567
/tmp/1234567890x1y2_z3a
/tmp/tmpab12cd341234567
/tmp/1234567duration_ms 3
/tmp/Z1a2b3c41234567890
/tmp/z1234567abcdef1
/tmp/x-Zb3dEx1234567
, estimated 3 s 90,123ms
"""


@pytest.mark.parametrize("text", AT_THE_SEAMS.strip().split("\n"))
def test_a_placeholder_makes_nothing_beside_it_volatile(text: str) -> None:
    once = stable(text)
    assert stable(once) == once


PIECES = table(r"""
    2026-11-29|14:03:11|,123|.5|Z|+01:00|T|Sun|Nov|29|3|s|ms|5m|2h|1d|min|(|)|(0:01:23)|(3|a1b2c3d4
    1a2b3c4|0x7f8b1c2d|0x12|...|-|_|.|:|/|,|[|]|<time>|<id>|<tmp>|<duration>|=|=====|/tmp|/tmp/|the
    \Temp\|tmpab12cd34|tmp.|Ab3dE5|x1y2_z3a|foo-|1234567|ts=|time:|1764424991|word|E1129|'|90|of|0
    panicked|x[12]:|ERROR|---|duration_ms|AM|2026|GMT|pytest-|popen-gw1|cc|.o|#|e-05|f|b|11/29/2026
    29/Nov/2026:|20261129T140311|20261129|/var/folders/aa/bb/T|0x80070005|1.|, estimated|(3 ms)|of
""")
SPACES = [" ", " ", "  ", "\n", "\r\n", "\x1b[31m", "\x1b["]


@pytest.mark.soak
@settings(max_examples=examples(100))
@given(st.lists(st.sampled_from(PIECES + SPACES) | st.text(max_size=3), max_size=8).map("".join))
def test_what_is_stable_stays_as_it_is(text: str) -> None:
    once = stable(text)
    assert stable(once) == once


HOSTILE = {
    "digits": "1",
    "digits below temp": "/tmp/" + "1" * 10_000,
    "hex": "a1",
    "colons": ":",
    "clocks": "12:30:",
    "slashes": "/",
    "backslashes": "\\",
    "names below temp": "/tmp/tmpaB1_",
    "numbers": "1,111.",
    "durations": "1d 1h 1m ",
    "spaces": " ",
    "equals signs": "=",
    "dates": "2026-11-29T14:03:11.1",
    "labels": '"time": ',
    "escapes": "\x1b[1",
    "placeholders": "<time> a b[",
}


@pytest.mark.parametrize("seed", HOSTILE.values(), ids=list(HOSTILE))
def test_four_times_the_hostile_text_takes_about_four_times_as_long(seed: str) -> None:
    """In processor time; were a character read once for each one before it, it would be sixteen."""
    text = seed * (200_000 // len(seed))
    assert seconds(text) < 9 * seconds(text[: len(text) // 4]) + 0.05


def seconds(text: str) -> float:
    start = time.process_time()
    stable(text)
    return time.process_time() - start
