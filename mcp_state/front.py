"""What answers a client's opening moves while the SDK is still being imported.

To import the SDK takes most of a second. A client waits that long for its handshake and its lists,
or does not wait (Codex), although what they will say is known beforehand: it stands in
`listing.json`, held to what the server itself answers by tests/test_front.py. So the first requests
are answered from there while a thread imports the rest. A client that wants to hear of changes says
so among them: that one is kept for the SDK, and what follows it does not wait. The first message
that is not exactly one of these moves, and all that follows, is left to the SDK; it is also shown
the handshake again, and its answer to that, which the client has, is dropped (`StdioWire`).

Nothing is imported here that takes time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

    Json = dict[str, Any]

HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"
LISTEN = "subscriptions/listen"
LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")

_CHUNK = 65_536
_LARGEST_ID = 2**53
_LONGEST_ID = 100
_META = "io.modelcontextprotocol/"
_WITH_VALUE = ("--db", "--project", "--agent", "--toolset")
_FLAGS = ("--trace", "--allow-secrets")
_ABOUT_A_CLIENT = {"name", "version", "title", "description", "websiteUrl"}
_ANY: frozenset[str] = frozenset()
_CAPABILITIES = {
    "roots": {"listChanged"},
    "elicitation": {"form", "url"},
    "sampling": {"context", "tools"},
    "experimental": _ANY,
    "extensions": _ANY,
}
_SWITCH = 0.0005
"""Seconds after which the importing thread lets an answer out; Python's own are ten times that."""


class Opening:
    """What was said before the SDK was there.

    `shown` are the lines that the SDK has to see although some of their requests, `answered`, have
    their answers; `rest` is what came behind the moves that were answered.
    """

    def __init__(self) -> None:
        self.shown: list[bytes] = []
        self.answered: set[int | str] = set()
        self.rest = b""


class _NotOurs(Exception):
    """A message that the SDK answers."""


def begin(arguments: Iterable[str], load: Callable[[], None]) -> Opening | None:
    """Answer the opening moves on stdin and stdout while `load` runs in a thread.

    Returns:
        What the SDK goes on from; None if the arguments ask for a server whose answers are not
        known beforehand, or stdin can't be watched: nothing was read or written then.
    """
    _open_what_is_closed()
    answers = answers_for(arguments)
    if answers is None or sys.platform == "win32":
        return None
    front = Front(answers)
    loaded, loading = os.pipe()

    def loads() -> None:
        try:
            load()
        except Exception:  # the main thread meets it again, and tells of it
            pass
        finally:
            os.close(loading)

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is in flight yet
    patience = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    thread = threading.Thread(target=loads, daemon=True)
    thread.start()
    _converse(front, loaded)
    thread.join()
    sys.setswitchinterval(patience)
    os.close(loaded)
    return front.opening


def _open_what_is_closed() -> None:
    """A standard stream that was not given is empty, and its number is not for the next file."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def answers_for(arguments: Iterable[str]) -> Json | None:
    """The known answers of a server with these arguments, by generation and method, or None.

    An answer has a `result` or an `error`.

    That is also so with an option that changes what is listed, or that is not known here.
    """
    name = "coding"
    given = iter(arguments)
    for argument in given:
        option, joined, value = argument.partition("=")
        if option in _WITH_VALUE:
            value = value if joined else next(given, "")
            name = value if option == "--toolset" else name
        elif argument not in _FLAGS:
            return None
    path = os.path.join(os.path.dirname(__file__), "listing.json")
    with open(path, encoding="utf-8") as file:
        listing = json.load(file)
    chosen = listing["toolsets"].get(name)
    if chosen is None:
        return None
    tools = [listing["tools"][tool] for tool in chosen["tools"]]
    return {
        "handshake": _filled(listing["handshake"], chosen, [_as_of_2025(tool) for tool in tools]),
        "stateless": _filled(listing["stateless"], chosen, tools),
    }


def _filled(answers: Json, chosen: Json, tools: list[Json]) -> Json:
    known = {"instructions": chosen["instructions"], "tools": tools}
    return {
        method: {
            kind: {key: known.get(key, value) for key, value in content.items()}
            for kind, content in answer.items()
        }
        for method, answer in answers.items()
    }


def _as_of_2025(tool: Json) -> Json:
    """A tool as the SDK writes it for the handshake's clients: its schema in another order."""
    schema = tool["inputSchema"]
    order = sorted(schema.keys() & {"properties", "required", "type"})
    return {**tool, "inputSchema": {**{key: schema[key] for key in order}, **schema}}


class Front:
    """One connection's opening moves, of which the `answers` are known."""

    def __init__(self, answers: Json) -> None:
        self.opening = Opening()
        self.listens = True
        """Whether it still answers; once it does not, it never does again."""
        self._answers = answers
        self._generation = ""
        self._initialized = False
        self._keeps_listen = False
        self._ids: set[int | str] = set()

    def take(self, chunk: bytes) -> bytes:
        """Read on, and return what is to be written."""
        answers: list[bytes] = []
        *lines, rest = (self.opening.rest + chunk).split(b"\n")
        while lines and self.listens:
            try:
                answers.append(self._answer(lines[0]))
                del lines[0]
            except (_NotOurs, ValueError, RecursionError):
                self.listens = False
        self.opening.rest = b"\n".join([*lines, rest])
        self.listens = self.listens and len(rest) < _CHUNK
        return b"".join(answers)

    def _answer(self, line: bytes) -> bytes:
        if not line.strip():
            return b""
        _expect(b"\\" not in line)  # what an escape stands for may have to be repaired
        message = _object(
            json.loads(
                line.decode(),
                object_pairs_hook=_unambiguous,
                parse_constant=_refuse,
                parse_float=_refuse,
            )
        )
        _expect(message.pop("jsonrpc", None) == "2.0")
        method: object = message.pop("method", None)
        params = _object(message.pop("params", {}))
        if "id" not in message:
            _expect(method == "notifications/initialized" and not params and not message)
            _expect(self._generation == "handshake")
            self._initialized = True
            self.opening.shown.append(line)
            return b""
        request_id = _plain_id(message.pop("id"))
        _expect(request_id not in self._ids and not message)
        if method == LISTEN:
            _expect(self._generation == "stateless" and not self._keeps_listen)
            self._keeps_listen = True
            self._ids.add(request_id)
            self.opening.shown.append(line)
            return b""
        known = self._known(method, params)
        self._ids.add(request_id)
        if len(self._ids) == 1:
            self.opening.shown.append(line)
            self.opening.answered.add(request_id)
        answer: Json = {"jsonrpc": "2.0", "id": request_id, **known}
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    def _known(self, method: object, params: Json) -> Json:
        meta = _object(params.pop("_meta", {}))
        _plain_id(meta.pop("progressToken", 0))
        version: object = None
        if method == "initialize":
            _expect(not self._ids)
            version = params.pop("protocolVersion", None)
            _expect(version in HANDSHAKES)
            _expect_client(params.pop("clientInfo", None), params.pop("capabilities", None))
            self._generation = "handshake"
        elif self._generation == "handshake":
            _expect(self._initialized)
        else:
            _expect(meta.pop(f"{_META}protocolVersion", None) == STATELESS)
            _expect_client(
                meta.pop(f"{_META}clientInfo", None), meta.pop(f"{_META}clientCapabilities", None)
            )
            self._generation = "stateless"
        answers = self._answers[self._generation]
        _expect(method in answers and not params and not meta)
        if version is None:
            return answers[method]
        return {"result": {**answers[method]["result"], "protocolVersion": version}}


def _expect(holds: bool) -> None:
    if not holds:
        raise _NotOurs


def _expect_client(info: object, capabilities: object) -> None:
    """A client that describes itself as those do that are known; the SDK judges any other."""
    named = _object(info)
    _expect({"name", "version"} <= named.keys() <= _ABOUT_A_CLIENT)
    _expect(all(isinstance(value, str) for value in named.values()))
    for name, value in _object(capabilities).items():
        _expect(name in _CAPABILITIES)
        for key, one in _object(value).items():
            _expect(key in _CAPABILITIES[name] or _CAPABILITIES[name] is _ANY)
            _expect(isinstance(one, bool if key == "listChanged" else dict))


def _object(value: Any) -> Json:
    """A JSON object, to be taken apart: what is left of it at the end is not known here."""
    _expect(type(value) is dict)
    return value


def _plain_id(value: Any) -> int | str:
    """An id that can be written in one way only."""
    if isinstance(value, str):
        _expect(len(value) <= _LONGEST_ID and value.isascii() and value.isprintable())
    else:
        _expect(type(value) is int and abs(value) < _LARGEST_ID)
    return value


def _unambiguous(pairs: list[tuple[str, Any]]) -> Json:
    value = dict(pairs)
    _expect(len(value) == len(pairs))
    return value


def _refuse(_: str) -> NoReturn:
    raise _NotOurs


def _converse(front: Front, loaded: int) -> None:
    """Answer until `loaded` can be read, which is when the SDK is there."""
    watched = [0, loaded]
    while True:
        ready = select.select(watched, [], [])[0]
        if 0 in ready:
            try:
                chunk = os.read(0, _CHUNK)
                _write(front.take(chunk))
            except OSError:  # as the SDK's side will find for itself
                chunk = b""
            if not chunk or not front.listens:
                watched.remove(0)
        if loaded in ready:
            return


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]
