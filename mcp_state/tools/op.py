"""One door to the tools that a toolset leaves out, so that they cost nothing until needed."""

from __future__ import annotations

from typing import Annotated, Any

from mcp_state.tools.arguments import PROJECT, described
from mcp_state.tools.spec import Ctx, Outcome, Spec, View


async def state_op(
    ctx: Ctx,
    op: Annotated[str, described('tool name, or "help" to list them')],
    arguments: dict[str, Any] | None = None,
) -> Outcome:
    """Call a tool that is not listed here.

    history, run_begin (with a budget), run_list, fact_trace, handoff_create, handoff_accept,
    memory_delete, memory_restore, thread_release.
    """
    if op.strip().lower() == "help":
        return Outcome(None, _help(ctx.unlisted()))
    return await ctx.run(op.strip(), arguments or {})


def _help(tools: tuple[Spec, ...]) -> str:
    if not tools:
        return "Every tool is listed already; there is nothing more behind state_op."
    lines = ['state_op(op="NAME", arguments={…}) calls one of these; ? marks what may be left out:']
    for spec in tools:
        names = [p.name if p.required else f"{p.name}?" for p in spec.parameters]
        lines.append(f"{spec.name}({', '.join([*names, PROJECT + '?'])})")
        lines.append(f"    {spec.description.splitlines()[0]}")
    return "\n".join(lines)


def _shown(outcome: Outcome, view: View) -> str:
    return outcome.text


TOOLS = (
    Spec(
        state_op,
        title="More operations",
        show=_shown,
        writes=True,
        search_hint="history, begin run, hand off, delete, restore, release, more operations",
    ),
)
