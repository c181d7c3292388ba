"""What the two OpenAI APIs have in common on the wire, and where they differ only in shape."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sayso import codec
from sayso.agent.models.base import Message, ModelCall, ModelError, ModelRequest, ToolFace
from sayso.schema.strict import nodes

_MODES = ("auto", "none", "required")
_DETAILS = tuple(f"{kind}_tokens_details" for kind in ("prompt", "completion", "input", "output"))
_COUNTS = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}


def arguments_text(value: Any) -> str:
    """The arguments of a call as JSON text: none at all are an empty object."""
    if isinstance(value, str):
        return value if value.strip() else "{}"
    return "{}" if value is None else codec.dumps(value)


def content_text(content: Any) -> str:
    """The text of a message or of a piece of one, which some servers send in typed parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    return content or ""


def known_call_ids(messages: Iterable[Message]) -> set[str]:
    """The ids of all calls that a conversation holds."""
    return {call["id"] for message in messages for call in message.get("calls") or ()}


def with_ids(calls: Iterable[tuple[str, str, str]], used: Collection[str]) -> tuple[ModelCall, ...]:
    """Make calls of (id, name, arguments); an id that is missing or was used before is replaced.

    Everything that follows a call (its request, its result) goes by its id, and some servers count
    from zero in each reply, or send no ids at all.
    """
    made: list[ModelCall] = []
    for id, name, arguments in calls:
        if not id or id in used or any(id == other.id for other in made):
            id = f"call_{uuid4().hex}"
        made.append(ModelCall(id, name, arguments))
    return tuple(made)


def token_counts(usage: Any) -> dict[str, int]:
    """The provider's usage under the names that both APIs share here."""
    counts: dict[str, int] = {}
    if not isinstance(usage, Mapping):
        return counts
    parts = [usage, *(usage[key] for key in _DETAILS if isinstance(usage.get(key), Mapping))]
    for part in parts:
        for key, value in part.items():
            if isinstance(value, int):
                counts[_COUNTS.get(key, key)] = value
    return counts


@dataclass(frozen=True, slots=True)
class Shape:
    """How one of the two APIs writes tools and the choice among them."""

    tool: Callable[[ToolFace], dict[str, Any]]
    named: Callable[[str], dict[str, Any]]
    allowed: Callable[[str, list[Any]], dict[str, Any]]


def tool_options(request: ModelRequest, settings: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """The part of a request body that is about tools; without any, OpenAI wants none of it.

    Tools in the settings (hosted ones, say) are taken out of there, to come after the agent's own.
    """
    tools = [*(shape.tool(tool) for tool in request.tools), *(settings.pop("tools", None) or ())]
    choice = request.tool_choice
    options: dict[str, Any] = {"tools": tools} if tools else {}
    if tools and request.parallel_tool_calls is not None:
        options["parallel_tool_calls"] = request.parallel_tool_calls
    if choice != "auto" and (tools or choice != "none"):
        options["tool_choice"] = _tool_choice(request, shape)
    return options


def output_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The named schema of a structured answer, strict where the schema is in the strict form."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", str(schema.get("title", ""))).strip("_")[:64]
    plain = dict(schema)
    return {"name": name or "answer", "schema": plain, "strict": _is_strict(plain)}


def _tool_choice(request: ModelRequest, shape: Shape) -> Any:
    """The tool choice in the shape of one API, from any form that either of them takes."""
    choice = request.tool_choice
    if isinstance(choice, str):
        return choice if choice in _MODES else shape.named(_checked(choice, request))
    if choice.get("type") != "allowed_tools":
        return _member(choice, request, shape)
    inner = choice.get("allowed_tools", choice)
    tools = [_member(tool, request, shape) for tool in inner["tools"]]
    return shape.allowed(inner.get("mode", "auto"), tools)


def _member(tool: str | Mapping[str, Any], request: ModelRequest, shape: Shape) -> dict[str, Any]:
    if isinstance(tool, str):
        return shape.named(_checked(tool, request))
    if tool.get("type") == "function":
        return shape.named(_checked(_function_name(tool), request))
    return dict(tool)  # a hosted tool, perhaps: the provider knows


def _function_name(choice: Mapping[str, Any]) -> str:
    name: str = choice.get("function", choice).get("name", "")
    return name


def _checked(name: str, request: ModelRequest) -> str:
    names = [tool.name for tool in request.tools]
    if name not in names:
        raise ModelError(
            f"tool_choice {name!r} is neither auto, none, required nor a tool of this agent "
            f"({', '.join(names) or 'it has none'})"
        )
    return name


def _is_strict(schema: dict[str, Any]) -> bool:
    return all(
        node.get("additionalProperties") is False
        and set(node.get("required", ())) == set(node.get("properties", {}))
        for node in nodes(schema, schema.get("$defs", {}))
        if node.get("type") == "object" or "properties" in node
    )
