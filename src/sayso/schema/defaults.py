"""Arguments with every default in: what a person leaves out of an edit is shown before it runs."""

from __future__ import annotations

import copy
from typing import Any

from sayso.schema.strict import Node, only_branch


def completed(schema: Node, value: Any) -> Any:
    """Return the value with the default of each field it leaves out, where the schema names one."""
    return _completed(schema, value, schema.get("$defs", {}))


def _completed(schema: Node, value: Any, definitions: Node) -> Any:
    node = only_branch(schema, definitions)
    if isinstance(value, list) and isinstance(node.get("items"), dict):
        return [_completed(node["items"], item, definitions) for item in value]
    properties = node.get("properties", {})
    if not isinstance(value, dict) or not properties:
        return value
    whole = {
        key: _completed(properties.get(key, {}), item, definitions) for key, item in value.items()
    }
    for key, rules in properties.items():
        if key not in whole and "default" in rules:
            whole[key] = copy.deepcopy(rules["default"])
    return whole
