"""What an installation consists of: the parts of each client, which can be put and removed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from mcp_state.errors import ConfigRefused
from mcp_state.install import block, hooks, jsonc, toml
from mcp_state.install.clients import Client, Place, claude_home, codex_home, gemini_home
from mcp_state.record import record

_PROGRAM = re.compile(r"mcp[-_]state(?:\.exe)?")
_OPTIONS = ("--db", "--agent", "--project", "--toolset")
_VARIABLES = {
    "MCP_STATE_DB": "--db",
    "MCP_STATE_AGENT": "--agent",
    "MCP_STATE_PROJECT": "--project",
}
_EVENTS = tuple(("hooks", event) for event in hooks.EVENTS)
_SWITCH = ("features", "hooks")
_ALLOWED = ("permissions", "allow")
_POLICY_HEAD = "# Made by `mcp-state install gemini`"

Text = Callable[[Path], str]
Edit = Callable[[str], str]


@record
class Wish:
    """What is asked for.

    `options` are those of `serve` that were given; what an entry has besides stays, and what it
    lacks of `defaults` is added. `reading` and `writing` are the tools that shall run without being
    asked for. `config` and `instructions` are files, if others than the usual ones are meant.
    """

    client: Client
    place: Place
    name: str = "state"
    program: Sequence[str] = ("mcp-state",)
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    reading: Sequence[str] = ()
    writing: Sequence[str] = ()
    hooks: bool = False
    config: Path | None = None
    instructions: Path | None = None

    @property
    def file(self) -> Path:
        """The file with the servers."""
        return self.config or self.client.config(self.place)

    @property
    def instruction_files(self) -> list[Path]:
        """The usual file with instructions, if the client has one, and the one that is named."""
        usual = self.client.instructions
        found = [] if usual is None else [usual(self.place)]
        return found if self.instructions in (None, *found) else [*found, self.instructions]

    @property
    def entry_path(self) -> tuple[str, str]:
        """Where the entry stands in that file."""
        return (self.client.servers, self.name)


@record
class Part:
    """One thing in one file: how it gets there, and how it goes.

    `containers` are the paths in JSON that may be empty when it is gone. A `shared` part serves
    every server of ours in the client.
    """

    path: Path
    what: str
    put: Edit
    remove: Edit
    containers: Sequence[tuple[str, ...]] = ()
    wanted: bool = True
    private: bool = True
    shared: bool = False


def parts(wish: Wish, text: Text) -> list[Part]:
    """The parts of an installation, in the order in which they are put.

    `text` gives a file as it will be, with the parts before this one.
    """
    found = [_server(wish)]
    match wish.client.name:
        case "codex":
            found += _codex_hooks(wish, text)
        case "claude-code":
            found += _claude_settings(wish, text)
        case "gemini":
            found.append(_gemini_policy(wish))
        case _:
            pass
    for path in wish.instruction_files:
        wanted = path == wish.instructions
        part = Part(path, "instructions", block.put, block.remove, wanted=wanted, shared=True)
        found.append(replace(part, private=False))
    return found


def has_others(wish: Wish, text: str) -> bool:
    """Whether the client has another server of ours, under another name."""
    servers = (toml.read if wish.client.toml else jsonc.read)(text, (wish.client.servers,))
    return isinstance(servers, dict) and any(
        name != wish.name and isinstance(found, dict) and is_ours(cast(dict[str, Any], found))
        for name, found in cast(dict[str, Any], servers).items()
    )


def hooks_switch(wish: Wish, text: Text) -> str:
    """What turns all hooks of the client off, and where; empty if nothing does."""
    if wish.client.toml:
        path = codex_home(wish.place) / "config.toml"
        return f"features.hooks in {path}" if toml.read(text(path), _SWITCH) is False else ""
    path = claude_home(wish.place) / "settings.json"
    off = jsonc.read(text(path), ("disableAllHooks",))
    return f"disableAllHooks in {path}" if off is True else ""


def allows_writes(wish: Wish, text: Text) -> bool:
    """Whether the client runs tools that write without asking, from this installation or before."""
    if wish.client.name == "gemini":
        policy = text(_policy(wish))
        return policy.startswith(_POLICY_HEAD) and "readOnlyHint" not in policy
    if wish.client.name != "claude-code":
        return False
    settings = text(claude_home(wish.place) / "settings.json")
    server = f"mcp__{wish.name}"
    reading = {f"{server}__{tool}" for tool in wish.reading}
    rules = {one for one in _strings(jsonc.read(settings, _ALLOWED)) if _is_about(one, server)}
    return not rules <= reading


def _is_about(rule: object, server: str) -> bool:
    return rule == server or str(rule).startswith(f"{server}__")


def entry(wish: Wish, text: str) -> dict[str, Any] | None:
    """The entry under the name of ours, whoever runs there."""
    read = toml.read if wish.client.toml else jsonc.read
    found = read(text, wish.entry_path)
    if found is None or isinstance(found, dict):
        return cast("dict[str, Any] | None", found)
    raise ConfigRefused(
        f"{'.'.join(wish.entry_path)} is no entry of a server",
        "Nothing was written. Remove it, or choose another name with --name.",
    )


def is_ours(found: Mapping[str, Any]) -> bool:
    """Whether an entry runs mcp-state, in whatever way."""
    words = [found.get("command"), *_strings(found.get("args"))]
    names = [re.split(r"[/\\]", one)[-1] for one in words if isinstance(one, str)]
    return "serve" in names and any(_PROGRAM.fullmatch(one) for one in names)


def wanted_entry(wish: Wish, found: Mapping[str, Any] | None) -> dict[str, Any]:
    """The entry as it shall be; what a person changed in it stays."""
    found_args = _separate(_strings((found or {}).get("args")))
    served = found_args[found_args.index("serve") :] if "serve" in found_args else ["serve"]
    kept = options_of(found or {})
    lacking = {one: value for one, value in wish.defaults.items() if one not in kept}
    for option, value in {**lacking, **wish.options}.items():
        if option in served[:-1]:
            served[served.index(option) + 1] = value
        else:
            served += [option, value]
    made = {"command": wish.program[0], "args": [*wish.program[1:], *served]}
    if found is not None:
        return made
    first = dict(wish.client.first)
    kind = {"type": first.pop("type")} if "type" in first else {}
    return {**kind, **made, **first}


def options_of(found: Mapping[str, Any]) -> dict[str, str]:
    """What an entry gives to `serve`, as options; its hooks need that too."""
    variables = found.get("env")
    named = cast(dict[str, Any], variables) if isinstance(variables, dict) else {}
    options = {option: str(named[one]) for one, option in _VARIABLES.items() if named.get(one)}
    args = _separate(_strings(found.get("args")))
    return options | {one: args[at + 1] for at, one in enumerate(args[:-1]) if one in _OPTIONS}


def _separate(args: Sequence[str]) -> list[str]:
    """The arguments with each option of ours apart from its value."""
    ours = tuple(f"{option}=" for option in _OPTIONS)
    return [word for one in args for word in (one.split("=", 1) if one.startswith(ours) else [one])]


def _server(wish: Wish) -> Part:
    def put(text: str) -> str:
        found = entry(wish, text)
        if found is not None and not is_ours(found):
            runs = found.get("command") or found.get("url") or "something else"
            raise ConfigRefused(
                f"the server {wish.name!r} there does not run `mcp-state serve`, but {runs}",
                "Nothing was written. Choose another name with --name NAME, or remove it first.",
            )
        new = wanted_entry(wish, found)
        if wish.client.toml:
            return toml.put(text, wish.entry_path, new)
        if found is None:
            return jsonc.put(text, wish.entry_path, new)
        for key, value in new.items():
            text = jsonc.put(text, (*wish.entry_path, key), value)
        return text

    def remove(text: str) -> str:
        found = entry(wish, text)
        if found is None or not is_ours(found):
            return text
        return (toml.remove if wish.client.toml else jsonc.remove)(text, wish.entry_path)

    containers = () if wish.client.toml else ((wish.client.servers,),)
    return Part(wish.file, f"server {wish.name}", put, remove, containers)


def _hook_lines(wish: Wish, text: Text, there: Any) -> dict[str, str]:
    """The command of each hook: it works on the store and the project of the server.

    Those that are there follow the server also if none are asked for.
    """
    if not wish.hooks and has_others(wish, text(wish.file)):
        return {}
    options = options_of(entry(wish, text(wish.file)) or wanted_entry(wish, None))
    wanted = hooks.EVENTS if wish.hooks else hooks.places(there)
    return {one: hooks.command(wish.program, one, options) for one in wanted}


def _codex_hooks(wish: Wish, text: Text) -> list[Part]:
    """Codex reads hooks from a file of their own or from its configuration, and runs trusted ones.

    Where some are in the configuration already, ours go there: it complains about both.
    """
    home = codex_home(wish.place)
    config, own = home / "config.toml", home / "hooks.json"
    if wish.place.environment.get("CODEX_HOME"):
        home = home.resolve()

    def inside() -> Any:
        return toml.read(text(config), ("hooks",))

    def outside() -> Any:
        return jsonc.read(text(own), ("hooks",))

    def key(path: Path) -> str:
        return os.fspath(home / path.name)

    def with_each(change: Callable[[str, str, Any], str]) -> Edit:
        return lambda settings: change(change(settings, key(config), inside()), key(own), outside())

    def put_inside(settings: str) -> str:
        if not hooks.in_toml(settings):
            return settings
        return hooks.put_toml(settings, _hook_lines(wish, text, inside()))

    def put_outside(settings: str) -> str:
        if wish.hooks and hooks.in_toml(text(config)):
            return hooks.remove(settings)
        return hooks.put(settings, _hook_lines(wish, text, outside()))

    trust = with_each(partial(hooks.trust, anew=wish.hooks))
    distrust = with_each(hooks.distrust)
    return [
        Part(config, "hooks", put_inside, hooks.remove_toml, shared=True),
        Part(own, "hooks", put_outside, hooks.remove, _EVENTS, shared=True),
        Part(config, "trust of the hooks", trust, distrust, shared=True),
    ]


def _claude_settings(wish: Wish, text: Text) -> list[Part]:
    server = f"mcp__{wish.name}"
    settings = claude_home(wish.place) / "settings.json"

    def allow(settings: str) -> str:
        for tool in (*wish.reading, *wish.writing):
            allowed = set(_strings(jsonc.read(settings, _ALLOWED)))
            if not {f"{server}__{tool}", server, f"{server}__*"} & allowed:
                settings = jsonc.append(settings, _ALLOWED, f"{server}__{tool}")
        return settings

    def disallow(settings: str) -> str:
        found = entry(wish, text(wish.file))
        if found is not None and not is_ours(found):
            return settings  # they are about a server of somebody else
        allowed: Any = jsonc.read(settings, _ALLOWED)
        rules = cast(list[Any], allowed) if isinstance(allowed, list) else []
        for at in reversed(range(len(rules))):
            if _is_about(rules[at], server):
                settings = jsonc.remove_item(settings, _ALLOWED, at)
        return settings

    def put_hooks(settings: str) -> str:
        there = jsonc.read(settings, ("hooks",))
        return hooks.put(settings, _hook_lines(wish, text, there))

    return [
        Part(settings, "permissions", allow, disallow, (_ALLOWED,)),
        Part(settings, "hooks", put_hooks, hooks.remove, _EVENTS, shared=True),
    ]


def _gemini_policy(wish: Wish) -> Part:
    """A file of our own, with the rule by which tools run without being asked for."""

    def put(text: str) -> str:
        if text and not text.startswith(_POLICY_HEAD):
            raise ConfigRefused(
                "it is not from `mcp-state install`",
                "Nothing was written. Move it away, or choose another name with --name.",
            )
        if text and not wish.writing:
            return text
        only = "" if wish.writing else "toolAnnotations = { readOnlyHint = true }\n"
        which = "all tools run" if wish.writing else "tools that only read run"
        return (
            f"{_POLICY_HEAD}: {which} without being asked for.\n"
            f'[[rule]]\nmcpName = "{wish.name}"\ntoolName = "*"\n{only}decision = "allow"\n'
            "priority = 100\n"
        )

    def remove(text: str) -> str:
        return "" if text.startswith(_POLICY_HEAD) else text

    return Part(_policy(wish), "policy", put, remove)


def _policy(wish: Wish) -> Path:
    suffix = "" if wish.name == "state" else f"-{wish.name}"
    return gemini_home(wish.place) / "policies" / f"mcp-state{suffix}.toml"


def _strings(found: Any) -> list[str]:
    """The strings of what should be a list of them."""
    items = cast(list[Any], found) if isinstance(found, list) else []
    return [one for one in items if isinstance(one, str)]
