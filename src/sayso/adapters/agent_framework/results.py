"""What a function gave, as JSON for the store, and back as what the framework takes for it."""

from __future__ import annotations

from typing import Any

from agent_framework import Content
from pydantic_core import to_jsonable_python

from sayso.types import Json

_KEY = "contents"


def dump(value: Any) -> Json:
    """The result as JSON: text as it is, other contents as the framework writes them."""
    if isinstance(value, list) and value and all(isinstance(item, Content) for item in value):
        if len(value) == 1 and value[0].type == "text" and not value[0].annotations:
            return value[0].text or ""
        return {_KEY: [item.to_dict() for item in value]}
    stored = to_jsonable_python(value, fallback=str)
    return {_KEY: [stored]} if _is_contents(stored) else stored


def load(stored: Json) -> Any:
    """The result as the framework takes it."""
    if not _is_contents(stored):
        return stored
    items = stored[_KEY]
    if all(isinstance(item, dict) and "type" in item for item in items):
        return [Content.from_dict(item) for item in items]
    return items[0]


def _is_contents(stored: Json) -> bool:
    return isinstance(stored, dict) and list(stored) == [_KEY]
