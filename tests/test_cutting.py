"""The proxy of the chaos run: a test that hangs or complains itself proves nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cutting import proxy


@pytest.mark.parametrize("turns", range(12))
async def test_the_proxy_ends_in_silence_wherever_its_connections_are(
    tmp_path: Path, turns: int
) -> None:
    accepted: list[asyncio.StreamWriter] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        while data := await reader.read(10):
            writer.write(data)
        writer.close()

    server = await asyncio.start_unix_server(echo, tmp_path / "echo")
    async with proxy(str(tmp_path / "echo")) as between:
        reader, writer = await asyncio.open_connection("127.0.0.1", between.port)
        writer.write(b"some")
        assert await reader.readexactly(4) == b"some"
        writer.close()
        for _ in range(turns):
            await asyncio.sleep(0)
    assert await reader.read() == b""
    server.close()
    for one in accepted:
        await one.wait_closed()
