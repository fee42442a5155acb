"""Our hooks among those of others, in the form that Claude Code and Codex share."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from mcp_state.errors import ConfigRefused
from mcp_state.install import jsonc, toml

EVENTS: Mapping[str, str] = {
    "SessionStart": "session-start",
    "PreCompact": "pre-compact",
    "Stop": "stop",
    "SubagentStart": "subagent-start",
}
_SECONDS = 5  # the hook ends itself after two; the rest is for a slow shell
_OURS = re.compile(r"""(?:^|[\s/\\'"])mcp[-_]state(?:\.exe)?['"]?\s+hook\s+([a-z-]+)""")


def places(hooks: Any) -> dict[str, tuple[int, int]]:
    """Where our hook for each event stands among these: the group, and the handler in it."""
    found: dict[str, tuple[int, int]] = {}
    for event in EVENTS:
        place = next(_ours(_items(_get(hooks, event)), event), None)
        if place is not None:
            found[event] = place
    return found


def command(program: Sequence[str], event: str, options: Mapping[str, str]) -> str:
    """The line that a client's shell runs at an event."""
    words = [*program, "hook", EVENTS[event]]
    for option in ("--db", "--agent", "--project"):
        if option in options:
            words += [option, options[option]]
    return shlex.join(words)


def put(text: str, commands: Mapping[str, str]) -> str:
    """The JSON with one hook of ours for each event."""
    for event, line in commands.items():
        path = ("hooks", event)
        groups = _items(jsonc.read(text, path))
        place = next(_ours(groups, event), None)
        if place is None:
            text = jsonc.append(text, path, _group(line))
        else:
            at, handler = place
            text = jsonc.put(text, (*path, at, "hooks", handler, "command"), line)
    return text


def remove(text: str) -> str:
    """The JSON without hooks of ours; those of others in the same lists stay."""
    for event in EVENTS:
        path = ("hooks", event)
        while True:
            groups = _items(jsonc.read(text, path))
            place = next(_ours(groups, event), None)
            if place is None:
                break
            at, handler = place
            if len(groups[at]["hooks"]) > 1:
                text = jsonc.remove_item(text, (*path, at, "hooks"), handler)
            else:
                text = jsonc.remove_item(text, path, at)
    return text


def in_toml(text: str) -> bool:
    """Whether hooks stand in config.toml: there or in hooks.json, but not in both."""
    hooks = toml.read(text, ("hooks",))
    return isinstance(hooks, dict) and bool(cast(dict[str, Any], hooks).keys() - {"state"})


def put_toml(text: str, commands: Mapping[str, str]) -> str:
    """The TOML with one hook of ours for each event."""
    for event, line in commands.items():
        found = toml.read(text, ("hooks",))
        if event in places(found):
            at, handler = places(found)[event]
            if found[event][at]["hooks"][handler]["command"] == line:
                continue
            text = _remove_toml_event(text, event)
        header = f"[[hooks.{event}]]\n[[hooks.{event}.hooks]]\n"
        text = toml.add(text, header + toml.lines_of(_group(line)["hooks"][0]))
    return text


def remove_toml(text: str) -> str:
    """The TOML without hooks of ours."""
    for event in EVENTS:
        while event in places(toml.read(text, ("hooks",))):
            text = _remove_toml_event(text, event)
    return text


def trust(config: str, file: str, hooks: Any, *, anew: bool) -> str:
    """The configuration of Codex that trusts our hooks among these, which stand in a file.

    It runs no hook that is not trusted, and says nothing about it. If not `anew`, those that are
    trusted stay so as they are now.
    """
    for event, (at, handler) in places(hooks).items():
        path = ("hooks", "state", _trust_key(file, event, at, handler))
        if anew or toml.read(config, path) is not None:
            hashed = _trusted_hash(event, hooks[event][at], handler)
            config = toml.put(config, path, {"trusted_hash": hashed})
    return config


def distrust(config: str, file: str, hooks: Any) -> str:
    """The configuration of Codex as it has to be once our hooks among these are removed.

    The trust of a hook is kept by its place, so those behind ours move.
    """
    for event, (at, handler) in places(hooks).items():
        path = ("hooks", "state", _trust_key(file, event, at, handler))
        config = toml.remove(config, path)
        alone = len(hooks[event][at]["hooks"]) == 1
        moved = range(at + 1, len(hooks[event])) if alone else ()
        for group in moved:
            for number, _ in enumerate(_items(_get(hooks[event][group], "hooks"))):
                path = ("hooks", "state", _trust_key(file, event, group, number))
                config = toml.rename(config, path, _trust_key(file, event, group - 1, number))
    return config


def _remove_toml_event(text: str, event: str) -> str:
    """The TOML without our hook for an event; with its group if it is alone in it."""
    hooks = toml.read(text, ("hooks",))
    at, handler = places(hooks)[event]
    handlers = hooks[event][at]["hooks"]
    statements = [one for one in toml.scan(text) if one.header]
    heads = [one for one in statements if one.path == ("hooks", event)]
    if len(heads) == len(hooks[event]):
        if len(handlers) == 1:
            return toml.remove_tables(text, [heads[at]])
        after = statements[statements.index(heads[at]) + 1 :]
        inner = [one for one in after if one.path == ("hooks", event, "hooks")][: len(handlers)]
        if len(inner) == len(handlers) and (
            at + 1 == len(heads) or inner[-1].end < heads[at + 1].start
        ):
            return toml.remove_tables(text, [inner[handler]])
    raise ConfigRefused(
        f"a hook of mcp-state for {event} is written in a way that cannot be edited",
        "Nothing was written. Remove it there by hand, then run this again.",
    )


def _group(line: str) -> dict[str, Any]:
    return {"hooks": [{"type": "command", "command": line, "timeout": _SECONDS}]}


def _get(data: Any, key: str) -> Any:
    return cast(dict[str, Any], data).get(key) if isinstance(data, dict) else None


def _items(data: Any) -> list[Any]:
    return cast(list[Any], data) if isinstance(data, list) else []


def _ours(groups: Sequence[Any], event: str) -> Iterator[tuple[int, int]]:
    """The places of our hooks: the group, and the handler in it."""
    for at, group in enumerate(groups):
        for number, one in enumerate(_items(_get(group, "hooks"))):
            line = _get(one, "command")
            found = _OURS.search(line) if isinstance(line, str) else None
            if found is not None and found[1] == EVENTS[event]:
                yield at, number


def _snake(event: str) -> str:
    return EVENTS[event].replace("-", "_")


def _trust_key(file: str, event: str, group: int, handler: int) -> str:
    """Under which name Codex keeps that a hook is trusted."""
    return f"{file}:{_snake(event)}:{group}:{handler}"


def _trusted_hash(event: str, group: Mapping[str, Any], handler: int) -> str:
    """What Codex compares a hook with, to know that it is the one that was trusted."""
    one = dict(group["hooks"][handler])
    kept = {key: one[key] for key in ("command", "statusMessage", "type") if key in one}
    kept |= {"timeout": one.get("timeout", 600), "async": one.get("async", False)}
    identity = {"event_name": _snake(event), "hooks": [kept]}
    if "matcher" in group and event != "Stop":
        identity["matcher"] = group["matcher"]
    shown = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(shown.encode()).hexdigest()}"
