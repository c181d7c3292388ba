"""DSPy's tools as the gate knows them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import dspy
from pydantic_core import to_jsonable_python

from sayso.adapters.dspy.asking import AskingTool
from sayso.errors import InvalidCall
from sayso.gate.framework import FrameworkTool
from sayso.types import Json


class GatedFunction:
    """The function of a tool of a guarded agent: it returns the outcome of the guarded call."""

    def __init__(self, name: str, outcome: Callable[[str], Awaitable[Any]]) -> None:
        self.name = name
        self._outcome = outcome

    async def __call__(self, **kwargs: Any) -> Any:
        return await self._outcome(self.name)


def framework_tool(tool: dspy.Tool) -> FrameworkTool:
    args: Mapping[str, Any] = tool.args or {}
    return FrameworkTool(
        name=str(tool.name),
        description=tool.desc or "",
        parameters={
            "type": "object",
            "properties": dict(args),
            "required": [name for name, rules in args.items() if "default" not in rules],
            "additionalProperties": bool(tool.has_kwargs),
        },
        needs_approval=False if isinstance(tool, AskingTool) else None,
        normalize=lambda args: _normalize(tool, args),
    )


def _normalize(tool: dspy.Tool, args: dict[str, Json]) -> Mapping[str, Json]:
    """Return the arguments as DSPy reads them, with the defaults of nested models too."""
    try:
        return as_shown(tool, tool._validate_and_parse_args(**args))
    except ValueError as error:
        raise InvalidCall(str(error)) from None


def as_shown(tool: dspy.Tool, values: dict[str, Any]) -> dict[str, Json]:
    """Return validated arguments as people see them."""
    known: Mapping[str, Any] = tool.args or {}
    defaults = {name: rules["default"] for name, rules in known.items() if "default" in rules}
    return {**defaults, **to_jsonable_python(values, by_alias=True, fallback=str)}
