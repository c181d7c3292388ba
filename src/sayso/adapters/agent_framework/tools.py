"""Functions as the framework is to see them: it calls what it would stop at by itself."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import agent_framework
from agent_framework import FunctionInvocationContext, FunctionTool

from sayso.errors import InvalidCall
from sayso.gate.foreign import ForeignTool
from sayso.types import Terms

#: Set on a tool that stands in for one that the framework itself would stop at.
NEEDS_APPROVAL, BODILESS = "_sayso_needs_approval", "_sayso_bodiless"
#: What people can decide where nothing runs.
NO_BODY = ("respond", "reject")


def face_of(tool: FunctionTool, *, own: Terms | None = None) -> ForeignTool:
    """A function as the gate knows it, under the terms that it states itself."""
    bodiless = tool.declaration_only or getattr(tool, BODILESS, False)
    always = tool.approval_mode == "always_require" or getattr(tool, NEEDS_APPROVAL, False)
    return ForeignTool(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.parameters(),
        needs_approval=bodiless or always,
        own=own or Terms(),
        possible=NO_BODY if bodiless else None,
    )


def open_tools(options: Mapping[str, Any] | None, *, bodiless: bool = True) -> None:
    """Let the framework call what it would stop at; the gate asks in its place."""
    tools: Any = options.get("tools") if options else None
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if not isinstance(tool, FunctionTool):
            continue
        always = tool.approval_mode == "always_require" and not tool.declaration_only
        if always or (bodiless and tool.declaration_only):
            tools[index] = _opened(tool)


def seal(context: FunctionInvocationContext) -> None:
    """Have the framework refuse to run the function with other arguments than these.

    It does so for its own security middleware, by names that are not public: a release without
    them leaves it to the order of the middleware.
    """
    own = getattr(agent_framework, "_tools", None)
    key = getattr(own, "_SECURITY_ARGUMENTS_SNAPSHOT_CONTEXT_KEY", None)
    token = getattr(own, "_argument_authority_token", None)
    if key is not None and token is not None:
        context.metadata[key] = token(context.arguments, boundary="gate")


def _opened(tool: FunctionTool) -> FunctionTool:
    stand_in = copy.copy(tool)
    stand_in.approval_mode = "never_require"
    if tool.declaration_only:
        setattr(stand_in, BODILESS, True)
        stand_in.func = _nothing
    else:
        setattr(stand_in, NEEDS_APPROVAL, True)
        # Its counters are those of the tool itself.
        stand_in.invoke = tool.invoke  # type: ignore[method-assign]
    return stand_in


def _nothing() -> None:
    raise InvalidCall("this function has no body: a person gives its result")
