"""The knowledge graph of @modelcontextprotocol/server-memory: entities, observations, relations.

An entity becomes a memory block under its name, with its observations and with its relations to
and from others. They are claims that nobody checked, and the block says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mcp_state.foreign.files import Json, as_text, file_in, file_of, items_in, json_lines
from mcp_state.foreign.records import Block, Source, as_name

NAME = "server-memory"
_FILE = "memory.jsonl"
_CLAIMS = "Imported from server-memory; nobody checked it here."


@dataclass(slots=True)
class _Entity:
    place: str
    name: str
    types: list[str] = field(default_factory=list[str])
    lines: dict[str, None] = field(default_factory=dict[str, None])

    def block(self) -> Block:
        types = f" ({', '.join(self.types)})" if self.types else ""
        text = "\n".join([f"{self.name}{types}", _CLAIMS, *self.lines])
        return Block(self.place, as_name(self.name), text)


def is_in(folder: str) -> bool:
    """Whether a folder holds such a graph."""
    return file_in(folder, [_FILE]) != ""


def suits(first: Json) -> bool:
    """Whether the first line of a file looks like one of such a graph."""
    is_entity = first.get("type") == "entity" and {"name", "entityType"} <= first.keys()
    return is_entity or (first.get("type") == "relation" and {"from", "to"} <= first.keys())


def read(path: str) -> Source:
    """All that the graph at a path holds."""
    path = file_of(path, [_FILE])
    source = Source(NAME, path)
    entities: dict[str, _Entity] = {}
    for place, item in json_lines(source, path):
        match item:
            case {"type": "entity", "name": str(name)} if name.strip():
                _add(entities, place, name, item)
            case {"type": "relation", "from": str(one), "to": str(other)} if one.strip():
                word = as_text(item.get("relationType")) or "relates to"
                _of(entities, place, one).lines[f"- {word} -> {other}"] = None
                _of(entities, place, other or one).lines[f"- {one} -> {word} -> this"] = None
            case _:
                source.leave(place, "a line", "it is neither an entity nor a relation with names")
    source.blocks = [entity.block() for entity in entities.values()]
    return source


def _of(entities: dict[str, _Entity], place: str, name: str) -> _Entity:
    return entities.setdefault(name, _Entity(place, name))


def _add(entities: dict[str, _Entity], place: str, name: str, item: Json) -> None:
    entity = _of(entities, place, name)
    if (kind := as_text(item.get("entityType"))) and kind not in entity.types:
        entity.types.append(kind)
    for observation in items_in(item, "observations"):
        if text := as_text(observation):
            entity.lines["- " + text.replace("\n", "\n  ")] = None
