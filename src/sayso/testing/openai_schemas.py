"""OpenAI's rules for strict schemas, as its service checks them, and not as we make them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Node = dict[str, Any]
Path = tuple[str, ...]

_FORBIDDEN = frozenset(
    {"allOf", "oneOf", "not", "if", "then", "else", "default", "prefixItems"}
    | {"dependentRequired", "dependentSchemas", "patternProperties"}
)
_TYPED = frozenset({"type", "anyOf", "$ref", "enum", "const"})
_MOST_LEVELS = 10
_MOST_PROPERTIES = 5_000


def schema_fault(schema: Node) -> str | None:
    """Say what the service has against a strict schema, if anything."""
    if schema.get("type") != "object":
        return f"schema must be a JSON Schema of 'type: \"object\"', got '{schema.get('type')}'."
    found = list(_nodes(schema, (), 1))
    if sum(len(node.get("properties", ())) for _, node, _ in found) > _MOST_PROPERTIES:
        return f"more than {_MOST_PROPERTIES} properties."
    for path, node, level in found:
        fault = _too_deep(level) or _node_fault(node)
        if fault:
            return f"In context={path}, {fault}"
    return None


def _nodes(node: Any, path: Path, level: int) -> Iterator[tuple[Path, Node, int]]:
    if not isinstance(node, dict):
        return
    yield path, node, level
    for key in ("properties", "$defs"):
        for name, child in (node.get(key) or {}).items():
            yield from _nodes(child, (*path, key, name), level + (key == "properties"))
    yield from _nodes(node.get("items"), (*path, "items"), level)
    for index, child in enumerate(node.get("anyOf") or ()):
        yield from _nodes(child, (*path, "anyOf", str(index)), level)


def _too_deep(level: int) -> str | None:
    return f"more than {_MOST_LEVELS} levels." if level > _MOST_LEVELS + 1 else None


def _node_fault(node: Node) -> str | None:
    for key in node:
        if key in _FORBIDDEN:
            return f"'{key}' is not permitted."
    if not _TYPED & node.keys():
        return "schema must have a 'type' key."
    if "$ref" in node and len(node) > 1:
        return f"$ref cannot have keywords {sorted(node.keys() - {'$ref'})}."
    if node.get("type") == "array" and "items" not in node:
        return "array schema missing items."
    return _object_fault(node) if node.get("type") == "object" else None


def _object_fault(node: Node) -> str | None:
    if node.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    names, required = node.get("properties", {}), node.get("required")
    missing = [name for name in names if name not in (required or ())]
    if required is None or missing:
        return (
            "'required' is required to be supplied and to be an array including every key in "
            f"properties. Missing {missing}."
        )
    extra = [name for name in required if name not in names]
    return f"Extra required key {extra} supplied." if extra else None
