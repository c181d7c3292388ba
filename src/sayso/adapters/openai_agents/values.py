"""What a model wrote and what a tool gave, as they are stored and shown."""

from __future__ import annotations

from typing import Any

from agents import ToolOutputFileContent, ToolOutputImage, ToolOutputText

from sayso import codec
from sayso.errors import InvalidCall
from sayso.gate.foreign import Outcome
from sayso.types import Json

_SHAPES = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)
_TYPES = ("text", "image", "file")


def parsed(arguments: str | None) -> dict[str, Json]:
    """The arguments that a model wrote, or InvalidCall: a JSON object with one meaning."""
    args = codec.parse(arguments or "")
    if not isinstance(args, dict):
        raise InvalidCall("the arguments must be a JSON object")
    return args


def dump(value: Any) -> Json:
    """What is stored: the SDK's own shapes as such, anything else as the text that it shows."""
    if isinstance(value, list | tuple) and value and all(_is_shape(item) for item in value):
        return [_plain(item) for item in value]
    if _is_shape(value):
        return _plain(value)
    return value if isinstance(value, str) else str(value)


def with_notice(outcome: Outcome) -> Any:
    """A result together with the words that other arguments ran."""
    stored = dump(outcome.value)
    if isinstance(stored, str):
        return outcome.text
    parts = stored if isinstance(stored, list) else [stored]
    return [{"type": "text", "text": outcome.notice}, *parts]


def _is_shape(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("type") in _TYPES
    return isinstance(value, _SHAPES)


def _plain(value: Any) -> Json:
    if isinstance(value, dict):
        return value
    plain: dict[str, Json] = value.model_dump(mode="json", exclude_none=True)
    return plain
