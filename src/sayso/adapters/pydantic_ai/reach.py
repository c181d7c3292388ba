"""Walk what an agent can reach: its tools, the agents that they delegate to, and native tools.

Every toolset goes through the gate, whichever capability brings it. Two things do not. An agent
that the function of a tool runs has its own tools: ``DelegateWalk`` replaces it in a copy of the
function by one that asks at the same gate. And native tools are run by the provider, which does not
ask; they are refused unless the user has named them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from pydantic_ai.agent import AbstractAgent, AgentRun, WrapperAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    ExternalToolset,
    FunctionToolset,
    ToolsetTool,
    WrapperToolset,
)
from pydantic_ai.toolsets.function import FunctionToolsetTool

from sayso.adapters.reach import Walk
from sayso.gate.coverage import Coverage

#: Native tools without an effect: they only find tools, or their calls come back to the agent.
_HARMLESS = ("tool_search", "memory")


class DelegateWalk(Walk):
    """Finds the agents that functions delegate to, and puts the gate in front of their tools."""

    targets = (AbstractAgent,)
    closed = (AbstractToolset, AbstractCapability)

    def __init__(self, coverage: Coverage, gated: Any) -> None:
        super().__init__()
        self.coverage = coverage
        #: Returns the capability that gates an agent inside a call.
        self._gated = gated

    # -- before a run

    def list_agent(self, agent: Any, where: str, options: Any) -> None:
        """Add what an agent has to the table."""
        self.coverage.gated(where, "agent", where)
        for toolset in (*agent.toolsets, *(options.get("toolsets") or ())):
            self._list_toolset(toolset, where)
        self._list_native(_native_tools_of(agent), where)
        for capability in options.get("capabilities") or ():
            if hasattr(capability, "apply"):
                self._list_native(capability.get_native_tools(), where)

    def _list_toolset(self, toolset: Any, where: str) -> None:
        if isinstance(toolset, FunctionToolset):
            for tool in toolset.tools.values():
                self.coverage.gated(where, "tool", tool.name)
                self._list_delegates(tool.function, tool.name, where)
        elif isinstance(toolset, ExternalToolset):
            for definition in toolset.tool_defs:
                self.coverage.gated(where, "tool", definition.name, "its result comes from outside")
        elif isinstance(toolset, CombinedToolset):
            for inner in toolset.toolsets:
                self._list_toolset(inner, where)
        elif isinstance(toolset, WrapperToolset):
            self._list_toolset(toolset.wrapped, where)
        else:
            note = "its tools are gated whenever they are listed"
            self.coverage.gated(where, type(toolset).__name__, toolset.id or toolset.label, note)

    def _list_delegates(self, function: Any, tool: str, where: str) -> None:
        for item in self.contents(function):
            if isinstance(item, AbstractAgent) and id(item) not in self._copies:
                self.value(item, f"{where}/{tool}")
        for held in self.out_of_reach(function):
            if not _asks(held.target) and has_tools(held.target):
                why = (
                    f"{tool} finds it as {held.found_as}, where it cannot be replaced: give it "
                    "capabilities=[Gated(gate)]"
                )
                self.coverage.missed(where, "agent", held.target.name or held.name, why)
        for name in self.built_by(function):
            why = (
                f"{tool} builds it while it runs, where guard(...) cannot see it: build it before, "
                "outside of the tool, or give it capabilities=[Gated(gate)]"
            )
            self.coverage.missed(where, "agent", f"{name} in {tool}", why)

    def _list_native(self, tools: Iterable[Any], where: str) -> None:
        for tool in tools:
            if isinstance(tool, AbstractNativeTool) and tool.kind not in _HARMLESS:
                name = str(getattr(tool, "id", None) or tool.kind)
                self.coverage.hosted(where, "native tool", name)

    # -- during a run

    def guarded_copy(self, target: Any, where: str) -> Any:
        if _asks(target) or not has_tools(target):
            return target
        name = target.name or where
        copied = self.remember(target, Delegate(target, self._gated))
        self.list_agent(target, name, {})
        return copied

    def tool(self, tool: ToolsetTool[Any], where: str) -> ToolsetTool[Any]:
        """Return a tool whose function delegates to guarded agents.

        Raises ``InvalidCall`` if it runs an agent that the gate cannot reach and ``ungated`` does
        not name. That is checked each time, because a function may be given an agent later.
        """
        inner = getattr(tool, "source_tool", None)
        if inner is not None:  # of a combined toolset
            copied = self.tool(inner, where)
            changes: dict[str, Any] = {"source_tool": copied}
            return tool if copied is inner else replace(tool, **changes)
        schema: Any = getattr(getattr(tool, "call_func", None), "__self__", None)
        function = getattr(schema, "function", None)
        if function is None or not isinstance(tool, FunctionToolsetTool):
            return tool
        self._list_delegates(function, tool.tool_def.name, where)
        self.coverage.check()
        guarded = self.value(function, where)
        if guarded is function:
            return tool
        return replace(tool, call_func=replace(schema, function=guarded).call)

    def check_native(self, tools: Iterable[Any], where: str) -> None:
        """Raise ``InvalidCall`` for an offered native tool that ``ungated`` does not name."""
        self._list_native(tools, where)
        self.coverage.check()


class Delegate(WrapperAgent[Any, Any]):
    """An agent that runs inside a call of a guarded one: its tools ask at the same gate."""

    def __init__(self, wrapped: AbstractAgent[Any, Any], gated: Any) -> None:
        super().__init__(wrapped)
        self._gated = gated

    @asynccontextmanager
    async def iter(
        self, *args: Any, capabilities: Any = None, **options: Any
    ) -> AsyncIterator[AgentRun[Any, Any]]:
        capabilities = [*(capabilities or ()), self._gated()]
        async with super().iter(*args, capabilities=capabilities, **options) as run:
            yield run


def _asks(agent: Any) -> bool:
    """Return whether an agent asks at a gate already."""
    if isinstance(agent, Delegate):
        return True
    root = getattr(agent, "root_capability", None)
    capabilities = getattr(root, "capabilities", ()) or ()
    return any(getattr(item, "gate", None) is not None for item in capabilities)


def has_tools(agent: Any) -> bool:
    """Return whether an agent has anything that could have an effect."""
    toolsets = [t for t in agent.toolsets if not isinstance(t, FunctionToolset) or t.tools]
    native = [t for t in _native_tools_of(agent) if getattr(t, "kind", "") not in _HARMLESS]
    return bool(toolsets or native)


def _native_tools_of(agent: Any) -> list[Any]:
    root = getattr(agent, "root_capability", None)
    return [] if root is None else list(root.get_native_tools())
