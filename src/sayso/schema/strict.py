"""Convert a tool's schema to OpenAI's strict form: closed, and every property required.

An optional property becomes nullable, and ``without_nulls`` removes such a null, so that the
default applies. Open dicts, tuples and untyped values have no strict form.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from sayso.errors import InvalidCall

Node = dict[str, Any]

_NULL: Node = {"type": "null"}
_STRICT_KEYWORDS = frozenset(
    {"type", "description", "enum", "const", "items", "minItems", "maxItems", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
)
_TYPED = frozenset({"type", "anyOf", "oneOf", "$ref", "enum", "const"})
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)


def nodes(schema: Node, definitions: Node) -> Iterator[Node]:
    """Yield each schema that a value may have to meet, following references once."""
    waiting = [schema]
    followed: set[str] = set()
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [*node.get("properties", {}).values(), *node.get("prefixItems", ())]
        waiting += _branches(node)
        inner = (node.get("items"), node.get("additionalProperties"))
        waiting += [child for child in inner if isinstance(child, dict)]
        ref = node.get("$ref")
        if ref is not None and ref not in followed:
            followed.add(ref)
            waiting.append(_resolve(node, definitions))


def is_open(node: Node) -> bool:
    """Return whether the schema lets an object have keys that it does not name."""
    if node.get("type") != "object":
        return False
    return node.get("additionalProperties", "properties" not in node) is not False


def strict(parameters: Node) -> Node:
    """Return the strict form of a parameters schema. Raise ``InvalidCall`` if it has none."""
    definitions = parameters.get("$defs", {})
    for name, schema in parameters["properties"].items():
        for node in nodes(schema, definitions):
            _refuse_inexpressible(name, node)
    form = _object(parameters)
    if definitions:
        form["$defs"] = {name: _strict(node) for name, node in definitions.items()}
    return form


def without_nulls(schema: Node, value: Any, definitions: Node) -> Any:
    """Drop each null that means the default of a property which cannot itself be null."""
    node = only_branch(schema, definitions)
    if isinstance(value, list) and "items" in node:
        return [without_nulls(node["items"], item, definitions) for item in value]
    if not isinstance(value, dict) or "properties" not in node:
        return value
    properties = node["properties"]
    required = node.get("required", ())
    return {
        key: without_nulls(properties.get(key, {}), item, definitions)
        for key, item in value.items()
        if item is not None
        or key in required
        or key not in properties
        or _admits_null(properties[key], definitions)
    }


def _refuse_inexpressible(name: str, node: Node) -> None:
    if is_open(node):
        fault = "is an open dict; use a model or TypedDict with named fields"
    elif "prefixItems" in node:
        fault = "is a tuple; use a list, or a model with named fields"
    elif not _TYPED & node.keys():
        fault = "has no type; annotate it"
    else:
        return
    raise InvalidCall(
        f"the parameter {name!r} {fault}: strict schemas allow nothing else (or turn strict off)",
        name,
    )


def _strict(node: Node) -> Node:
    if "properties" in node:
        return _object(node)
    form = {key: value for key, value in node.items() if key in _STRICT_KEYWORDS}
    if node.get("format") in _FORMATS:
        form["format"] = node["format"]
    if "(?" not in node.get("pattern", "(?"):  # strict mode does not support look-around
        form["pattern"] = node["pattern"]
    if "items" in node:
        form["items"] = _strict(node["items"])
    if branches := _branches(node):
        form["anyOf"] = [_strict(branch) for branch in branches]
    if "$ref" in node:  # strict mode does not allow other keywords beside it
        form |= {"anyOf": [{"$ref": node["$ref"]}]} if form else {"$ref": node["$ref"]}
    return form


def _object(node: Node) -> Node:
    required = node.get("required", ())
    form: Node = {key: node[key] for key in ("type", "description") if key in node}
    form["properties"] = {
        name: _strict(schema) if name in required else _nullable(_strict(schema))
        for name, schema in node["properties"].items()
    }
    return form | {"required": list(node["properties"]), "additionalProperties": False}


def _nullable(form: Node) -> Node:
    if _admits_null(form, {}):
        return form
    inner = {key: value for key, value in form.items() if key != "description"}
    branches = inner.get("anyOf", [inner])
    outer = {"description": form["description"]} if "description" in form else {}
    return outer | {"anyOf": [*branches, _NULL]}


def _admits_null(node: Node, definitions: Node) -> bool:
    node = _resolve(node, definitions)
    if not _TYPED & node.keys():
        return True
    if node.get("type") == "null" or None in node.get("enum", ()):
        return True
    return any(_admits_null(branch, definitions) for branch in _branches(node))


def only_branch(node: Node, definitions: Node) -> Node:
    """Follow references and optional types to the one schema that a value must meet."""
    node = _resolve(node, definitions)
    branches = [branch for branch in _branches(node) if branch != _NULL]
    if not branches:
        return node
    return only_branch(branches[0], definitions) if len(branches) == 1 else {}


def _resolve(node: Node, definitions: Node) -> Node:
    ref = node.get("$ref", "")
    target: Node = definitions.get(ref.removeprefix("#/$defs/"), node)
    return target


def _branches(node: Node) -> list[Node]:
    return [*node.get("anyOf", ()), *node.get("oneOf", ())]


def with_defaults(schema: Node, value: Any) -> Any:
    """Return the value with the schema's default for each field that it leaves out."""
    return _with_defaults(schema, value, schema.get("$defs", {}))


def _with_defaults(schema: Node, value: Any, definitions: Node) -> Any:
    node = only_branch(schema, definitions)
    if isinstance(value, list) and isinstance(node.get("items"), dict):
        return [_with_defaults(node["items"], item, definitions) for item in value]
    properties = node.get("properties", {})
    if not isinstance(value, dict) or not properties:
        return value
    filled = {
        key: _with_defaults(properties.get(key, {}), item, definitions)
        for key, item in value.items()
    }
    for key, rules in properties.items():
        if key not in filled and "default" in rules:
            filled[key] = copy.deepcopy(rules["default"])
    return filled
