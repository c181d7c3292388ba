"""The order of a form's fields: stored JSON is sorted, so the author's order is noted in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NOTE = "x-sayso-order"

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONES = ("items", "additionalProperties", "not", "if", "then", "else", "contains")


def noted(schema: Any) -> Any:
    """A schema that says in which order its fields come, where that is not the sorted one."""
    try:
        return _each(schema, _note)
    except RecursionError:  # nobody can store it either, and is told so
        return schema


def restored(schema: Any) -> Any:
    """The same schema with its fields in that order, and without the notes."""
    return _each(schema, _restore)


def _each(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A schema in which every schema is changed."""
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            found[key] = {name: _each(one, change) for name, one in value.items()}
        elif key in _LISTS and isinstance(value, list):
            found[key] = [_each(one, change) for one in value]
        elif key in _ONES:
            found[key] = _each(value, change)
    return change(found)


def _note(node: dict[str, Any]) -> dict[str, Any]:
    fields = node.get("properties")
    names = [name for name in fields if isinstance(name, str)] if isinstance(fields, dict) else []
    return node if names == sorted(names) else {**node, NOTE: names}


def _restore(node: dict[str, Any]) -> dict[str, Any]:
    names, fields = node.get(NOTE), node.get("properties")
    if not isinstance(names, list) or not isinstance(fields, dict):
        return node
    order = [name for name in names if isinstance(name, str) and name in fields]
    kept = {name: fields[name] for name in (*order, *fields)}
    return {key: kept if key == "properties" else node[key] for key in node if key != NOTE}
