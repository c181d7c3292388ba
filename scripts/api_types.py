"""Write ``ui/src/shared/apiTypes.ts``: what the server returns, as its OpenAPI document says it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generated_page import update

from sayso.server import create_app

TARGET = Path(__file__).resolve().parent.parent / "ui/src/shared/apiTypes.ts"
HEAD = """/** Written by scripts/api_types.py from the server's OpenAPI document. Do not edit. */

import type { Json, JsonObject, Schema, Scope } from "./types";
"""
#: Bodies that clients send, lists and errors: the app has a form of its own for these.
LEFT_OUT = ("Body", "Page", "ErrorView", "DecisionResultView", "DecisionResults")
#: Fields whose form the app knows, and the document leaves open.
FORMS = {"schema": "Schema", "scope": "Scope"}
NAMES = {
    "boolean": "boolean",
    "integer": "number",
    "null": "null",
    "number": "number",
    "object": "JsonObject",
    "string": "string",
}


def type_of(shape: dict[str, Any], any_type: str = "Json") -> str:
    """Return the TypeScript type of a JSON Schema; ``any_type`` if it leaves the form open."""
    if "$ref" in shape:
        name: str = shape["$ref"].rpartition("/")[2]
        return name.removesuffix("View")
    if "anyOf" in shape:
        return " | ".join(dict.fromkeys(type_of(one, any_type) for one in shape["anyOf"]))
    if "const" in shape or "enum" in shape:
        return " | ".join(map(json.dumps, shape.get("enum", [shape.get("const")])))
    kind = shape.get("type")
    if kind == "array":
        item = type_of(shape["items"], any_type)
        return f"({item})[]" if "|" in item else f"{item}[]"
    if kind is None or (kind == "object" and any_type != "Json"):
        return any_type
    return NAMES[kind]


def lines_of(name: str, shape: dict[str, Any]) -> Iterator[str]:
    """Yield the declaration of one shape."""
    name = name.removesuffix("View")
    if "properties" not in shape:
        yield f"export type {name} = {type_of(shape)};"
        return
    yield f"/** {' '.join(shape['description'].split())} */"
    yield f"export interface {name} {{"
    for field, value in shape["properties"].items():
        if "description" in value:
            yield f"  /** {value['description']} */"
        mark = "" if field in shape.get("required", ()) else "?"
        yield f"  {field}{mark}: {type_of(value, FORMS.get(field, 'Json'))};"
    yield "}"


def declarations() -> str:
    """Return the whole file."""
    shapes = create_app(store="memory://").openapi()["components"]["schemas"]
    names = [name for name in sorted(shapes) if not name.endswith(LEFT_OUT)]
    blocks = ["\n".join([*lines_of(name, shapes[name]), ""]) for name in names]
    return "\n".join([HEAD, *blocks])


if __name__ == "__main__":
    sys.exit(update(TARGET, declarations(), __doc__))
