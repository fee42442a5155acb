"""Processes that do one thing to a store, see deeds.py, and can be held at any of their threads.

They are forked from one that has imported all that they need. A socket of its own leads to each:
it tells the id of every thread as that begins, and how the thing ended. Where it is told to, it
waits until its tracer is there.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import deeds

PATIENCE = 60.0


class Line:
    """The victim's end of its socket. Once it is ready, a thread of this number is held."""

    def __init__(self, end: socket.socket, held: int) -> None:
        self._end = end
        self._held = held
        self._ready = False
        self._threads = 0
        self._lock = threading.Lock()

    def say(self, what: str, text: object = "") -> None:
        self._end.send(json.dumps([what, text]).encode())

    def stop(self, what: str, text: object = "") -> None:
        """Say something, and wait until one may go on."""
        self.say(what, text)
        if not self._end.recv(1):
            os._exit(3)

    def get_ready(self) -> None:
        self._ready = True
        self.stop("ready")

    def begin(self, *_: object) -> None:
        """Called by each thread when it begins, so that it is known."""
        sys.setprofile(None)
        with self._lock:
            number, self._threads = self._threads, self._threads + 1
            self.say("thread", [number, threading.get_native_id()])
            if self._ready and number == self._held:
                self.stop("held")


def live(line: Line, deed: deeds.Deed, store: Path) -> None:
    """Do it; the main thread waits before it begins, and after it has ended."""
    if deed.unsafe:
        deeds.without_wal()
    line.begin()
    threading.setprofile(line.begin)
    if deed.command is not None:
        line.get_ready()
        line.stop("ended", deeds.run_command(deed.command(store), store, deed.stdin))
    else:
        asyncio.run(_use(line, deed, store))
    line.say("bye")


async def _use(line: Line, deed: deeds.Deed, store: Path) -> None:
    async with deeds.opened(store, deeds.Stopped()) as state:
        await deed.first(state)
        line.get_ready()
        line.stop("ended", await deeds.outcome(deed.work(state)))
        said = await deeds.outcome(deeds.go_on(state, "next"))
        if said.startswith("store_busy"):  # as it says: call again
            said = await deeds.outcome(deeds.go_on(state, "next"))
        line.stop("went on", said)


def nurse() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    asked = socket.socket(fileno=0)
    while True:
        request, descriptors, _, _ = socket.recv_fds(asked, 1 << 16, 1)
        if not request:
            asked.close()
            return
        name, store, held, idle = json.loads(request)
        process = os.fork()
        if not process:
            asked.detach()
            end = socket.socket(fileno=descriptors[0])
            deed = deeds.DEEDS[name]
            if idle:
                deed = replace(deed, work=deeds.write_nothing, command=None)
            live(Line(end, held), deed, Path(store))
            sys.exit()
        os.close(descriptors[0])
        asked.sendall(b"%d\n" % process)


class Nursery:
    """Where the victims come from."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        private = ("MCP_STATE_", "CLAUDE_")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={k: v for k, v in os.environ.items() if not k.startswith(private)},
            )
        atexit.register(self._end)

    def start(self, deed: str, store: Path, held: int = -1, *, idle: bool = False) -> Victim:
        """One that will do this; an idle one only opens the store for it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            request = json.dumps([deed, str(store), held, idle]).encode()
            socket.send_fds(self._socket, [request], [theirs.fileno()])
            answer = self._socket.recv(32)
        assert answer, "the nursery ended"
        ours.settimeout(PATIENCE)
        return Victim(int(answer), ours)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


nursery = functools.cache(Nursery)


@dataclass
class Victim:
    """One process, seen from outside. `threads` are the ids of those that were begun so far."""

    pid: int
    end: socket.socket
    threads: dict[int, int] = field(default_factory=dict[int, int])
    alive: bool = True

    def hear(self, wanted: str) -> str:
        """What it says next, which must be of that kind; empty when it is gone instead."""
        while self.alive:
            try:
                data = self.end.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                self.alive = False
                break
            what, text = json.loads(data)
            if what == "thread":
                number, thread = text
                self.threads[number] = thread
                continue
            assert what == wanted, (what, text)
            return text or wanted
        return ""

    def go(self) -> None:
        self.end.send(b"!")

    def close(self) -> None:
        """Leave no process behind."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):  # it was about to end by itself
                os.kill(self.pid, signal.SIGKILL)
            while self.end.recv(1 << 20):
                pass
            self.alive = False
        self.end.close()


if __name__ == "__main__":
    nurse()
