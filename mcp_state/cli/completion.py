"""`mcp-state completion`: the Tab key, in the user's shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from mcp_state.cli.groups import Documented
from mcp_state.errors import BadArgument

_INSTALL = {
    "bash": 'add this line to ~/.bashrc:  eval "$(mcp-state completion bash)"',
    "zsh": 'add this line to ~/.zshrc, after compinit:  eval "$(mcp-state completion zsh)"',
    "fish": "run  mcp-state completion fish > ~/.config/fish/completions/mcp-state.fish",
}
_AS_IS = "COMPREPLY+=($value)"
_QUOTED = """\
[[ ${COMP_WORDS[COMP_CWORD]} == [\\"\\']* ]] || printf -v value %q "$value"
            COMPREPLY+=("$value")"""
"""Of the script for bash, which would break names with spaces; in open quotes they are whole."""


@click.command(
    cls=Documented,
    epilog="""
    eval "$(mcp-state completion bash)"
    mcp-state completion fish
    """,
)
@click.argument("shell", type=click.Choice(list(_INSTALL), case_sensitive=False), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the script that lets a shell complete our commands, options and names.

    Names of threads, runs, facts, blocks and projects come out of the store, which is only read.
    The first line of the script says how to install it.
    """
    if shell is None:
        ways = "; ".join(f"for {name} {how}" for name, how in _INSTALL.items())
        raise BadArgument(f"{ctx.command_path} needs a shell", f"To install it: {ways}")
    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(ctx.find_root().command, {}, "mcp-state", "_MCP_STATE_COMPLETE")
    script = (made.source_template % made.source_vars()).replace(_AS_IS, _QUOTED)
    script = script.replace("read type value", "read -r type value")
    click.echo(f"# To install: {_INSTALL[shell]}\n{script}")
