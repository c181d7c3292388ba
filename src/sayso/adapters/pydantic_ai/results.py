"""What a tool gave, as JSON for the store, and back as what the framework takes for it."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import ToolReturn

from sayso.types import Json

_whole: TypeAdapter[ToolReturn[Any]] = TypeAdapter(ToolReturn)


def dump(value: Any) -> Json:
    """The result as JSON. What is more than JSON (a file, a ``ToolReturn``) has its kind with it;
    the framework's own adapter reads that back, and only files that the tool really gave."""
    whole = value if isinstance(value, ToolReturn) else ToolReturn(value)
    stored: dict[str, Json] = _whole.dump_python(whole, mode="json", by_alias=True)
    plain = stored["return_value"]
    if whole is value or _is_whole(plain):
        return stored
    again = _whole.validate_python({"return_value": plain, "kind": "tool-return"})
    return plain if again.return_value == plain and not stored.get(_FILES) else stored


def load(stored: Json) -> Any:
    """The result as the framework takes it."""
    return _whole.validate_python(stored) if _is_whole(stored) else stored


def told(value: Any, text: str) -> Any:
    """The result with a text in its place for the model; what else there was stays."""
    if not isinstance(value, ToolReturn):
        return text
    return ToolReturn(text, content=value.content, metadata=value.metadata, tools=value.tools)


_FILES = "content_file_digests"


def _is_whole(stored: Json) -> bool:
    is_object = isinstance(stored, dict) and stored.get("kind") == "tool-return"
    return is_object and "return_value" in stored
