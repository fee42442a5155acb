"""A tiny server out of the nursery, with what the tests use of `asyncio.subprocess.Process`."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from typing import Literal

from raw_client import nursery

LONGEST_LINE = 2**26


class Forked:
    """Made by `fork`."""

    def __init__(
        self,
        pid: int,
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
    ) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self._handle = os.pidfd_open(pid)
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._handle, self._note_the_end)

    def send_signal(self, number: signal.Signals) -> None:
        signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        await self._ended.wait()
        return nursery().wait(self.pid)

    async def communicate(self) -> None:
        """Wait until it is gone, whatever it has to say, and let go of it."""
        self.stdin.close()
        await asyncio.gather(self.stdout.read(), self.stderr.read(), self._ended.wait())
        os.close(self._handle)

    def _note_the_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        self._ended.set()


async def fork_tiny_server(told: int) -> Forked:
    """Start one; `told` is the pipe that lets its slow tools finish."""
    (stdin, to_it), (from_it, stdout), (errors, stderr) = (os.pipe() for _ in range(3))
    pid = nursery().start_tiny_server(stdin, stdout, stderr, told)
    for descriptor in (stdin, stdout, stderr):
        os.close(descriptor)
    return Forked(pid, await _writing(to_it), await _reading(from_it), await _reading(errors))


def _pipe(descriptor: int, mode: Literal["rb", "wb"]) -> io.FileIO:
    return open(descriptor, mode, 0)


async def _reading(descriptor: int) -> asyncio.StreamReader:
    stream = asyncio.StreamReader(LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), _pipe(descriptor, "rb")
    )
    return stream


async def _writing(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), _pipe(descriptor, "wb")
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
