"""A server with a few odd tools, run as a child process to test the transport.

What it does is told on stderr, a line each: `started` by a slow tool, `lifespan closed` and
`caller closed` on the way out. Slow tools wait for a byte on the pipe whose number is in `TOLD`.
"""

import asyncio
import math
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from mcp_state.transport import REPLACED_META, serve_stdio

TOOLS = ("echo", "slow", "stubborn", "stuck", "noise", "undecodable", "nan", "deep", "unwritable")


def tell(line: str) -> None:
    os.write(2, f"{line}\n".encode())


async def run_tool(
    name: str, arguments: dict[str, Any], released: asyncio.Event
) -> types.CallToolResult:
    text, structured = "done", None
    match name:
        case "echo":
            text = arguments["text"]
        case "slow":
            tell("started")
            await released.wait()
            await asyncio.sleep(0.2)  # so that an end told at the same time is noticed before
        case "stubborn":
            tell("started")
            with anyio.CancelScope(shield=True):
                await released.wait()
                tell("finished")
        case "stuck":
            tell("started")
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()
        case "noise":
            sys.stdout.write("buffered until exit")
            os.write(1, b"written to fd 1\n")
            child = await asyncio.create_subprocess_exec("sh", "-c", "cat; echo from a child")
            await child.wait()
        case "undecodable":
            text = os.fsdecode(b"caf\xe9.txt")
        case "nan":
            structured = {"value": math.nan}
        case "deep":
            structured = {"value": 0}
            for _ in range(400):
                structured = {"value": structured}
        case _:
            structured = {"value": object()}
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=structured
    )


async def call_tool(
    ctx: ServerRequestContext[asyncio.Event], params: types.CallToolRequestParams
) -> types.CallToolResult:
    result = await run_tool(params.name, params.arguments or {}, ctx.lifespan_context)
    replaced = (ctx.meta or {}).get(REPLACED_META)
    if replaced is not None:
        result.content.append(types.TextContent(text=f"{replaced} replaced"))
    return result


async def list_tools(
    _ctx: ServerRequestContext[asyncio.Event], _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    schema = {"type": "object"}
    return types.ListToolsResult(
        tools=[types.Tool(name=name, input_schema=schema) for name in TOOLS]
    )


async def listen(
    _ctx: ServerRequestContext[asyncio.Event], _params: types.SubscriptionsListenRequestParams
) -> types.SubscriptionsListenResult:
    tell("started")
    await anyio.sleep_forever()
    raise AssertionError


@asynccontextmanager
async def lifespan(_server: Server[asyncio.Event]) -> AsyncGenerator[asyncio.Event]:
    released = asyncio.Event()
    if pipe := os.environ.get("TOLD"):
        loop = asyncio.get_running_loop()
        loop.add_reader(int(pipe), lambda: (loop.remove_reader(int(pipe)), released.set()))
    try:
        yield released
    finally:
        await asyncio.sleep(0)
        tell("lifespan closed")


async def main() -> None:
    server = Server[asyncio.Event](
        "tiny",
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=listen,
    )
    options = server.create_initialization_options()
    if "--sdk" in sys.argv:
        async with stdio_server() as streams:
            await server.run(*streams, options)
    else:
        await serve_stdio(server, options)
    tell("caller closed")


if __name__ == "__main__":
    asyncio.run(main())
