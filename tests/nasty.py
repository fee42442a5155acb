"""What no client should send: lines, values of arguments, and lines with a few things wrong."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from soaking import SOAK

_MANY, _LONG = (1_000_000, 5_000_000) if SOAK else (20_000, 1_000_000)

_PING = b'{"jsonrpc":"2.0","id":%s,"method":"ping"}'
_CALL = (
    b'{"jsonrpc":"2.0","id":"call","method":"tools/call",'
    b'"params":{"name":"memory_get","arguments":{"key":%s}}}'
)
_TELL = b'{"jsonrpc":"2.0","method":"%s","params":%s}'


def each(frame: bytes, *values: bytes) -> list[bytes]:
    return [frame % value for value in values]


def nested(depth: int, opening: bytes = b"[", core: bytes = b"", closing: bytes = b"]") -> bytes:
    return opening * depth + core + closing * depth


def _depths(frame: bytes) -> list[bytes]:
    """A value nested ever deeper, of lists and of objects."""
    depths = (100, 150, 190, 200, 201, 300, 500, 2_000, 10_000, 100_000)
    lists = [nested(depth) for depth in depths]
    return each(frame, *lists, *(nested(depth, b'{"a":', b"1", b"}") for depth in depths))


_NO_JSON = rb"""
nonsense
{
}
"
[
]
{]
-
'ping'
0x10
01
1.
.5
+1
1e
--1
nul
undefined
True
{'id':1}
{"id":1,}
{,}
[1,]
{"id"}
{"id":}
"\x"
"\u12"
"\
// {}
/* */ {}
GET / HTTP/1.1
Content-Length: 40
{"jsonrpc":"2.0","id":1,"method":"ping"
{"jsonrpc":"2.0","id":1,"method":"pi
{"jsonrpc":"2.0","id":1
,"method":"ping"}
{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}
{"jsonrpc":"2.0","id":1,"method":"ping"}]
5 {"jsonrpc":"2.0","id":1,"method":"ping"}
"""
_NO_OBJECT = rb"""
null
true
0
-0
5
1.5
1e400
-1e400
NaN
Infinity
-Infinity
""
"ping"
[]
[[]]
[null]
[{"jsonrpc":"2.0","id":1,"method":"ping"}]
[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]
"""
_NO_REQUEST = rb"""
{}
{"id":1}
{"jsonrpc":"2.0"}
{"jsonrpc":"2.0","id":1}
{"method":"ping"}
{"id":1,"method":"ping"}
{"jsonrpc":"1.0","id":1,"method":"ping"}
{"jsonrpc":2.0,"id":1,"method":"ping"}
{"jsonrpc":null,"id":1,"method":"ping"}
{"JSONRPC":"2.0","id":1,"method":"ping"}
{"jsonrpc":"2.0","ID":1,"method":"ping"}
{"jsonrpc":"2.0","id":1,"METHOD":"ping"}
{"jsonrpc":"2.0","id":1,"method":null}
{"jsonrpc":"2.0","id":1,"method":5}
{"jsonrpc":"2.0","id":1,"method":true}
{"jsonrpc":"2.0","id":1,"method":[]}
{"jsonrpc":"2.0","id":1,"method":{}}
{"jsonrpc":"2.0","id":1,"method":["ping"]}
{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}
{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}
{"jsonrpc":"2.0","id":1,"method":"ping","params":5}
{"jsonrpc":"2.0","id":1,"method":"ping","params":NaN}
{"jsonrpc":"2.0","id":1,"method":"ping","params":true}
{"jsonrpc":"2.0","id":1,"method":"ping","params":"{}"}
{"jsonrpc":"2.0","method":"notifications/x","params":[]}
{"jsonrpc":"2.0","method":null}
"""
_SAID_TWICE = rb"""
{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}
{"jsonrpc":"2.0","id":1,"id":null,"method":"ping"}
{"jsonrpc":"2.0","id":null,"id":2,"method":"ping"}
{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}
{"jsonrpc":"2.0","id":1,"method":"ping","method":5}
{"jsonrpc":"2.0","jsonrpc":"1.0","id":1,"method":"ping"}
{"jsonrpc":"2.0","\u0069d":3,"method":"ping"}
{"jsonrpc":"2.0","id":1,"\u0069d":3,"method":"ping"}
{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":null}
{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}
{"jsonrpc":"2.0","id":1,"method":"ping","error":{"code":1,"message":""}}
{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}
"""
_PARAMS = rb"""
null
{}
{"requestId":null}
{"requestId":[]}
{"requestId":1e400}
{"requestId":"not sent"}
{"requestId":"\ud800"}
{"requestId":-1,"reason":5}
{"id":1}
{"id":NaN}
{"progressToken":1,"progress":"x"}
{"_meta":5}
{"_meta":{"progressToken":{}}}
"""
_OUTCOMES = rb"""
"result":{}
"result":null
"result":"x"
"result":[]
"error":5
"error":null
"error":{"code":"x"}
"error":{"code":1,"message":"no"}
"""
_CALL_PARAMS = rb"""
null
{}
{"name":null}
{"name":5,"arguments":{}}
{"name":[],"arguments":{}}
{"name":"","arguments":{}}
{"name":"\ud800","arguments":{}}
{"name":"memory_get","arguments":[]}
{"name":"memory_get","arguments":"{}"}
{"name":"memory_get","arguments":5}
{"name":"memory_get","arguments":null}
{"name":"memory_get","arguments":{"\ud800":1}}
{"name":"memory_get","arguments":{"key":"k","key":"l"}}
{"name":"memory_get","_meta":null}
{"name":"memory_get","_meta":5}
{"name":"memory_get","_meta":[]}
{"name":"memory_get","_meta":{"progressToken":null}}
{"name":"memory_get","_meta":{"progressToken":{}}}
{"name":"memory_get","_meta":{"progressToken":true}}
{"name":"memory_get","_meta":{"threadId":5}}
{"name":"memory_get","_meta":{"threadId":"\u0000\n\ud800"}}
{"name":"memory_get","_meta":{"traceparent":5,"tracestate":[],"baggage":{}}}
{"name":"memory_get","_meta":{"codex/sandbox-state-meta":5}}
{"name":"memory_get","_meta":{"codex/sandbox-state-meta":{"sandboxCwd":[]}}}
{"name":"memory_get","_meta":{"codex/sandbox-state-meta":{"sandboxCwd":"\u0000"}}}
{"name":"memory_get","_meta":{"codex/sandbox-state-meta":{"sandboxCwd":"/\u0000/\ud800"}}}
{"name":"memory_get","_meta":{"codex/sandbox-state-meta":{"sandboxCwd":"file:///%00%ff"}}}
{"name":"memory_get","_meta":{"codex/sandbox-state-meta":{"sandboxCwd":"file://[::1/x"}}}
{"name":"memory_get","_meta":{"io.modelcontextprotocol/protocolVersion":null}}
{"name":"memory_get","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}
{"name":"memory_get","_meta":{"io.modelcontextprotocol/protocolVersion":"9999-99-99"}}
{"name":"memory_get","_meta":{"io.modelcontextprotocol/clientInfo":{}}}
"""
_OTHER = rb"""
{"jsonrpc":"2.0","id":1,"method":""}
{"jsonrpc":"2.0","id":1,"method":"\ud800"}
{"jsonrpc":"2.0","id":1,"method":"initialize"}
{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}
{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":5}}
{"jsonrpc":"2.0","id":1,"method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1,"method":"notifications/cancelled","params":{"requestId":1}}
{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":5}}
{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}
{"jsonrpc":"2.0","id":1,"method":"resources/read"}
{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":5}}
{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"\ud800"}}
{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"state://memory/%00%ff"}}
{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"state://memory/"}}
{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":[]}}
{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"orient","arguments":5}}
{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"\ud800"}}
{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{}}
{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"x"}}
{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}
{"jsonrpc":"2.0","id":1,"method":"resources/subscribe"}
{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":5}}
{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"\ud800"}}
{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"state://memory/%00%ff"}}
{"jsonrpc":"2.0","id":1,"method":"resources/unsubscribe","params":{"uri":[]}}
{"jsonrpc":"2.0","id":1,"method":"resources/unsubscribe","params":{"uri":"\ud800"}}
{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}
{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{}}}
"""


def _keys() -> bytes:
    return b"{" + b",".join(b'"%d":0' % n for n in range(_MANY)) + b"}"


def _lines(text: bytes) -> list[bytes]:
    return text.strip(b"\n").split(b"\n")


LINES: Mapping[str, Sequence[bytes]] = {
    "nothing": [b"", b" ", b"\t", b"\r", b"\v\f", b"\n" * 5_000, b" \r\n" * 5_000],
    "no JSON": [
        *_lines(_NO_JSON),
        *(b"\0", b"\0" * 999, b"ping\0", b"{}\0", b"\0{}", b"5\0", b"\xfe\xff\0{\0}", b'"\t"'),
        *(b"\x1b[2J", b"\x16\x03\x01\x02\0\x01", b"\x1f\x8b\x08\0", b"\x80", b"\xff" * 99),
        _PING.replace(b'"', b"\xe2\x80\x9c") % b"1",
        '{"id":1}'.encode("utf-16"),
    ],
    "no object": [
        *_lines(_NO_OBJECT),
        *(b"9" * 4_000, b"0." + b"9" * 9_999),
        b"[" + b",".join([_PING % b"1"] * 10_000) + b"]",
    ],
    "no request": _lines(_NO_REQUEST),
    "said twice": _lines(_SAID_TWICE),
    "numbers as ids": each(
        _PING,
        *(b"null", b"true", b"false", b"1.0", b"1.5", b"1e0", b"1e400", b"NaN", b"-Infinity"),
        *(b"[]", b"{}", b"[1]", b'{"id":1}', b"-0", b"0", b"-1", b"9007199254740993"),
        *(b"9223372036854775808", b"-9223372036854775809", b"9" * 400, b"9" * 4_300),
        *(b"9" * 4_301, b"9" * 100_000),
    ),
    "texts as ids": each(
        _PING.replace(b"%s", b'"%s"'),
        *(b"", b" ", b"1", b"null", b"9" * 5_000, b"1_0", b"+1", b" 1 ", "\u0661".encode(), b"\\n"),
        *(b"\\u0000", b"\\ud800", b"\\udc00\\ud800", b"\\ud83d\\ude00", b"\xff", b"\xed\xa0\x80"),
        *(b"\xf0\x9f\x98", b"\\u2028", "😀".encode(), b"x" * 1_000_000),
    ),
    "notifications": [
        *each(_TELL.replace(b',"params":%s', b""), b"", b"x", b"ping", b"tools/call", b"\\ud800"),
        *each(_TELL.replace(b',"params":%s', b""), b"initialize", b"\xff", b"x" * 1_000_000),
        *(
            _TELL % (b"notifications/" + method, params)
            for method in (b"cancelled", b"progress", b"initialized", b"roots/list_changed", b"x")
            for params in (*_lines(_PARAMS), b'{"requestId":%s}' % (b"9" * 4_000))
        ),
        *_depths(_TELL.replace(b"%s", b"notifications/x", 1)),
    ],
    "responses that nobody asked for": [
        *(
            b'{"jsonrpc":"2.0","id":%s,%s}' % (request_id, outcome)
            for request_id in (b"1", b"0", b"-1", b'"1"', b"null", b"[]", b"1.5", b"9" * 4_000)
            for outcome in _lines(_OUTCOMES)
        ),
        *(b'{"jsonrpc":"2.0","result":{}}', b'{"result":{}}', b'{"error":{}}'),
    ],
    "depth": [
        *_depths(b"%s"),
        *_depths(_CALL),
        *_depths(_PING),
        *_depths(b'{"jsonrpc":"2.0","id":"deep","method":"ping","params":{"_meta":%s}}'),
        *(b"[" * n for n in (100, 1_000, 100_000)),
        *(b'{"a":' * n for n in (100, 1_000, 100_000)),
    ],
    "numbers": each(
        _CALL,
        *(b"1e400", b"-1e400", b"1e-400", b"NaN", b"Infinity", b"-Infinity", b"-0", b"0.1"),
        *(b"9" * 400, b"9" * 4_300, b"9" * 4_301, b"9" * 100_000, b"1e99999999999", b"-1"),
        b"0." + b"1" * 100_000,
    ),
    "text": each(
        _CALL.replace(b"%s", b'"%s"'),
        *(b"\xff", b"\xc3", b"\xf0\x9f", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\0"),
        *(b"\\ud800", b"\\udfff", b"\\udc00\\ud800", b"\\ud83d\\ude00", b"\\u0000", b"\\uFEFF"),
        *("\ufeff\u202e\u2028\x7f\x85".encode(), b"\r", b"\t", b"a\rb", b"\\/\\b\\f\\n\\r\\t"),
        *(b"x" * _LONG, b"\\ud800" * 100_000, b"\xff" * 1_000_000),
    ),
    "parameters": [
        *each(
            _PING.replace(b"%s", b"1").replace(b'ping"', b'tools/call","params":%s'),
            *_lines(_CALL_PARAMS),
        ),
        *_lines(_OTHER),
    ],
    "size": [
        *each(_CALL, _keys(), b'"k","more":' + _keys()),
        b'{"jsonrpc":"2.0","id":"keys","method":"ping","params":%s}' % _keys(),
        b'{"jsonrpc":"2.0","id":"keys","method":"ping",%s' % _keys()[1:],
        *each(_CALL, b"[%s0]" % (b"0," * _MANY), b"[%s{}]" % (b"{}," * _MANY)),
        *(b"x" * _LONG, b'"' + b"x" * _LONG, b" " * _LONG),
        b" " * 1_000_000 + _PING % b"1" + b" " * 1_000_000,
    ],
    "line ends and byte order marks": [
        *(_PING % b"1" + b"\r", b"\r" + _PING % b"1" + b"\r\r\r"),
        *(b"\xef\xbb\xbf" + _PING % b'"marked"', b"\xef\xbb\xbf", b"\xef\xbb\xbf{}"),
        b"\xef\xbb\xbf\xef\xbb\xbf" + _PING % b'"marked twice"',
        *(_PING.replace(b",", b",\r") % b"1", _PING.replace(b":", b" \t: ") % b"1"),
        *(_PING.replace(b",", space.encode() + b",") % b"1" for space in "\u2028\xa0\ufeff"),
    ],
}
"""Lines by what is wrong with them. Some hold a line end, and are two."""

VALUES: Sequence[Any] = (
    *(None, True, False, 0, 1, -1, 2, 1 << 31, (1 << 53) - 1, 1 << 53, -(1 << 63), 10**400),
    *(0.5, 1.0, -0.0, 1e15, 1e308, float("inf"), float("nan")),
    *("", " ", "\t\n", "0", "1", "-1", " 7 ", "1_0", "1e400", "9" * 5_000, "٣", "null", "true"),
    *("NaN", "[]", "{}", '["a"]', '{"a":1}', "[", '{"a":', "[1,]", '"x"', '["\\ud800"]'),
    *("[" * 100_000, json.dumps({"key": ["x"] * 1_000}), '[{"path_or_repo":"x"}]'),
    *("\0", "\ud800", "a\ud800\udc00b", "\x1b[2J", "\u202e\u2066", "e\u0301" * 100, "ẞ" * 64),
    *(
        "x" * 128,
        "x" * 129,
        "x" * 5_000,
        "x" * 1_000_000,
        "😀" * 5_000,
        "a b" * 3_000,
        "\n" * 9_000,
    ),
    *(
        "../../etc/passwd",
        "/",
        "/\0",
        "file:///%00",
        "C:\\",
        "~",
        "*",
        "%",
        "'; DROP TABLE events;",
    ),
    *(
        '"',
        '""',
        "a OR b",
        "NEAR(",
        "thread:",
        "memory:x",
        ":",
        "thread:\0",
        "b-" + "0" * 32,
        "h-1",
    ),
    *("3d", "0s", "-3d", "1s", "9" * 20 + "d", "99999999d", "1.5h", "3 d", "P1D", "2026-11-30"),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00", "2026-13-45T"),
    *(
        "active",
        "ACTIVE",
        "done",
        "dropped",
        "blocked",
        "watching",
        "completed",
        "-",
        "_",
        "file:x",
    ),
    *([], [[]], [None], [1], ["a"], ["a", "a"], ["\ud800"], ["x" * 129], ["a"] * 10_000, [{}]),
    *({}, {"a": 1}, {"": ""}, {"\0": "\ud800"}, {str(n): n for n in range(10_000)}, [[["a"]]]),
    *([{"path_or_repo": "x"}], [{"path_or_repo": [], "role": {}}], [{"x": None}] * 99),
    *(json.loads(nested(150)), json.loads(nested(150, b'{"a":', b"1", b"}"))),
    *(nested(depth, b'{"a":', b"1", b"}").decode() for depth in (150, 400, 700, 5_000)),
    *(f"[{nested(depth).decode()}]" for depth in (150, 400, 700, 5_000)),
    *(f'[{{"path_or_repo":{nested(depth).decode()}}}]' for depth in (150, 400, 700, 5_000)),
)
"""What an argument may be given, whatever its type."""

_PIECES = (
    *(b"null", b"true", b"1e400", b"NaN", b"[", b"]", b"{", b"}", b'"', b",", b":", b"\\", b"\\u"),
    *(
        b"\\ud800",
        b"\0",
        b"\n",
        b"\r\n",
        b"\xff",
        b"\xef\xbb\xbf",
        b"[]",
        b"{}",
        b'""',
        b"\xf0\x9f",
    ),
    *(b'"id":null,', b'"id":1,', b'"method":"x",', b'"result":{},', b'"params":[],', b'"_meta":5,'),
)


def some_json(rng: random.Random, depth: int = 3) -> Any:
    """A value of any type, with odd ones within."""
    match rng.randrange(8 if depth else 4):
        case 4 | 5:
            return [some_json(rng, depth - 1) for _ in range(rng.randrange(4))]
        case 6 | 7:
            names = ("id", "method", "_meta", "name", "", "\ud800", "arguments", "key")
            return {rng.choice(names): some_json(rng, depth - 1) for _ in range(rng.randrange(4))}
        case _:
            return rng.choice(VALUES)


def mutated(rng: random.Random, line: bytes) -> bytes:
    """A line with a few things wrong."""
    data = bytearray(line)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        upto = min(len(data), at + rng.randrange(20))
        match rng.randrange(7):
            case 0:
                data[at : at + 1] = bytes(
                    byte ^ 1 << rng.randrange(8) for byte in data[at : at + 1]
                )
            case 1:
                del data[at:upto]
            case 2:
                data[at:at] = data[at:upto] * rng.randrange(1, 4)
            case 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 5))
            case 4:
                del data[at:]
            case 5:
                data[at:upto] = rng.choice((b"", data[at:upto])) + rng.choice(_PIECES)
            case _:
                other = rng.randrange(len(data) + 1)
                data[at:at] = data[other : other + rng.randrange(40)]
    return bytes(data)
