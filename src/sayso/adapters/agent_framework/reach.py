"""Walk what an agent or a workflow can reach: functions, agents in them, servers, hosted tools.

Every function call goes through middleware. An agent that a function runs, with ``as_tool()`` or in
its own code, has functions of its own: ``AgentWalk`` replaces it in a copy of the function by one
that asks at the same gate. What the provider or another server runs never comes back to us, and is
listed as not covered. So are agents and workflows that the code of an executor or of a custom agent
runs, where nothing can be replaced.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from agent_framework import (
    AgentResponse,
    AgentSession,
    BaseAgent,
    FunctionTool,
    RawAgent,
    Workflow,
    WorkflowAgent,
)

from sayso.adapters.agent_framework.messages import ApprovalAgent, response_stream
from sayso.adapters.agent_framework.middleware import (
    Gated,
    SubAgentGate,
    SubAgentReplies,
    SubAgentRun,
    agent_of,
    check_layers,
    check_not_guarded,
    current_sub_agent,
)
from sayso.adapters.reach import HeldTarget, Walk
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.framework import CallPlace, FrameworkThread, place_in_call
from sayso.policy import Policy

RunAgent: TypeAlias = Callable[..., Awaitable[AgentResponse[Any]]]


class AgentWalk(Walk):
    """Finds the agents that functions run, and puts the gate in front of their functions."""

    targets = (BaseAgent, Workflow)
    closed = (FunctionTool,)
    builders = ("as_agent", "create_agent")

    def __init__(self, gate: Gate, policy: Policy | None, coverage: Coverage) -> None:
        super().__init__()
        self.gate = gate
        self.policy = policy
        self.coverage = coverage
        # By the id of the copied function, which is kept alive beside its tool.
        self._tools: dict[int, tuple[Any, FunctionTool]] = {}

    # -- before a run

    def list_agent(self, agent: Any, where: str, more: Any = None) -> None:
        """Add what an agent has to the table. ``more`` are tools that are passed to its runs."""
        if not isinstance(agent, RawAgent):
            self._list_other(agent, where)
            return
        self.coverage.gated(where, "agent", where)
        given = more if isinstance(more, Sequence) and not isinstance(more, str) else [more]
        for tool in (*(agent.default_options.get("tools") or ()), *given):
            if tool is not None:
                self._list_tool(tool, where)
        for server in agent.mcp_tools:
            note = "its functions are gated whenever they are listed"
            self.coverage.gated(where, "MCP server", server.name, note)

    def _list_other(self, agent: Any, where: str) -> None:
        """List an agent whose calls we do not make: the user's own code, or a remote one."""
        if type(agent).__module__.split(".")[0].startswith("agent_framework"):
            why = f"{type(agent).__name__} runs elsewhere, and its calls do not come back here"
            self.coverage.missed(where, "agent", agent.name or where, why)
            return
        note = "your own code: it asks at the gate itself"
        self.coverage.gated(where, "custom agent", where, note)
        holder = type(agent).__name__
        for name, value in self._attributes(agent):
            for held in self._targets_in(value, name, f"{holder}.{name}"):
                self._list_found(held, holder, where)
        self.list_code(agent.run.__func__, holder, where)

    def list_code(self, function: Any, holder: str, where: str) -> None:
        """Add what the user's own code runs to the table; nothing in it can be replaced."""
        for held in self.held(function, "agent"):
            self._list_found(held, holder, where)
        self._list_built(function, holder, where)

    def _list_tool(self, tool: Any, where: str) -> None:
        if isinstance(tool, FunctionTool):
            self.coverage.gated(where, "tool", tool.name)
            self._list_agents(tool, where)
        elif hasattr(tool, "functions"):
            note = "its functions are gated whenever they are listed"
            self.coverage.gated(where, "MCP server", str(getattr(tool, "name", "mcp")), note)
        elif callable(tool):
            self.coverage.gated(where, "tool", getattr(tool, "__name__", str(tool)))
        else:
            self._list_hosted(tool, where)

    def _list_agents(self, tool: FunctionTool, where: str) -> None:
        if tool.func is None:
            return
        inner = agent_of(tool)
        if inner is not None:
            check_not_guarded(inner)
            if not isinstance(inner, RawAgent):
                self._list_other(inner, inner.name or tool.name)
        for item in self.contents(tool.func):
            if isinstance(item, RawAgent):
                self.value(item, f"{where}/{tool.name}")
            elif isinstance(item, self.targets) and item is not inner:
                self._list_found(HeldTarget(item, "agent", "a variable"), tool.name, where)
        for held in self.out_of_reach(tool.func):
            self._list_found(held, tool.name, where)
        self._list_built(tool.func, tool.name, where)

    def _list_built(self, value: Any, holder: str, where: str) -> None:
        for name in self.built_by(value):
            why = (
                f"{holder} builds it while it runs, where guard(...) cannot see it: build it "
                "before, outside of the function, or give it middleware=[Gated(gate)]"
            )
            self.coverage.missed(where, "agent", f"{name} in {holder}", why)

    def _list_found(self, held: HeldTarget, holder: str, where: str) -> None:
        found = held.target
        if _asks(found):
            return
        label = getattr(found, "name", None) or held.name
        if isinstance(found, Workflow | WorkflowAgent):
            why = (
                f"{holder} finds it as {held.found_as}, and its agents would bypass the gate: run "
                "guard(workflow, gate, checkpoints='a folder') there, with its own thread"
            )
            self.coverage.missed(where, "workflow", label, why)
        elif not isinstance(found, RawAgent):
            self._list_other(found, label)
        elif has_tools(found):
            why = (
                f"{holder} finds it as {held.found_as}, where it cannot be replaced: give it "
                "middleware=[Gated(gate)], or call run(...) of guard(agent, gate) there"
            )
            self.coverage.missed(where, "agent", label, why)

    def _list_hosted(self, tool: Any, where: str) -> None:
        about: Mapping[str, Any] = tool if isinstance(tool, Mapping) else vars(tool)
        kind = str(about.get("type") or type(tool).__name__)
        name = str(about.get("server_label") or about.get("name") or kind)
        if kind == "mcp" and about.get("require_approval", "always") == "always":
            note = "the provider asks before each call"
            self.coverage.gated(where, "hosted MCP server", name, note)
        elif kind == "mcp":
            why = "the provider runs it without asking: let it require approval"
            self.coverage.missed(where, "hosted MCP server", name, why)
        else:
            self.coverage.hosted(where, "hosted tool", name)

    # -- during a run

    def guarded_copy(self, target: Any, where: str) -> Any:
        if _asks(target) or not isinstance(target, RawAgent):
            return target  # an agent without a model is listed where it is found
        check_layers(target)
        copied = self.remember(target, copy.copy(target))
        copied.middleware = [*(target.middleware or ()), SubAgentReplies(), SubAgentGate()]
        copied.run = _RunInCall(copied.run, self)
        self.list_agent(target, target.name or where)
        return copied

    async def run_in_call(
        self, place: CallPlace, run: RunAgent, messages: Any, options: Mapping[str, Any]
    ) -> AgentResponse[Any]:
        """Run an agent inside a call of a guarded one, which pauses with it."""
        calls = FrameworkThread(self.gate, place.thread, policy=self.policy)
        sub_agent = SubAgentRun(calls, place.key, Gated(self.gate, self.policy, walk=self))
        given = {**options, "session": options.get("session") or AgentSession()}
        with sub_agent.active(), calls.scope(f"{place.key}/").inside():
            return await run(messages, **given)

    def check_offered(self, options: Mapping[str, Any] | None) -> None:
        """Raise ``InvalidCall`` if a request offers tools that the gate cannot reach."""
        tools: Any = options.get("tools") if options else None
        for tool in tools if isinstance(tools, list) else ():
            if not isinstance(tool, FunctionTool):
                self._list_tool(tool, self.gate.agent)
        self.coverage.check()

    def tool(self, tool: FunctionTool) -> FunctionTool:
        """Return a copy of a function that runs guarded copies of its agents; the function itself
        if it runs no agents. Raises ``InvalidCall`` if it finds an agent that cannot be replaced
        and ``ungated`` does not name. That is checked each time, because a function may be given an
        agent later."""
        self._list_agents(tool, self.gate.agent)
        self.coverage.check()
        function = self.value(tool.func, tool.name)
        if function is tool.func:
            return tool
        if id(function) not in self._tools:
            copied = copy.copy(tool)
            copied.func = function
            vars(copied).pop("invoke", None)  # a stand-in has the original's
            self._tools[id(function)] = function, copied
        return self._tools[id(function)][1]


class _RunInCall:
    """The ``run`` method of an agent inside a call of a guarded one: it pauses with that call."""

    def __init__(self, run: RunAgent, walk: AgentWalk) -> None:
        self._run = run
        self._walk = walk

    def __call__(self, messages: Any = None, *, stream: bool = False, **options: Any) -> Any:
        if current_sub_agent(self._walk.gate) is not None:  # as_tool(): the call has entered it
            return self._run(messages, stream=stream, **options)
        response = self._run_in_call(messages, options)
        return response_stream(response) if stream else response

    async def _run_in_call(self, messages: Any, options: dict[str, Any]) -> AgentResponse[Any]:
        place = place_in_call(self._walk.gate)
        if place is None:
            return await self._run(messages, **options)
        return await self._walk.run_in_call(place, self._run, messages, options)


def _asks(agent: Any) -> bool:
    """Return whether an agent asks at a gate already."""
    if isinstance(agent, ApprovalAgent):
        return True
    middleware: Iterable[Any] = getattr(agent, "middleware", None) or ()
    return any(isinstance(item, Gated | SubAgentGate) for item in middleware)


def has_tools(agent: RawAgent[Any]) -> bool:
    """Return whether an agent has anything that could have an effect."""
    return bool(agent.default_options.get("tools") or agent.mcp_tools or agent.context_providers)
