"""Walk every agent that an agent can reach, and put the gate into copies of them.

Agents are reached by handoffs and as tools; ``Wiring`` copies all of these when ``guard`` is
called. Any other agent starts with the SDK's ``Runner``, most often in the body of a tool. The SDK
lets one object stand in for its runner, and ours starts the guarded copy of such an agent while a
guarded run is active. So it does not matter how the code that starts it came by the agent.

What the provider runs never comes back to us, and the SDK's shell, patch and computer tools run
without a hook. Those are listed as not covered.
"""

from __future__ import annotations

import contextvars
import copy
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from agents import (
    Agent,
    ApplyPatchTool,
    CodeInterpreterTool,
    ComputerTool,
    CustomTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    HostedMCPTool,
    ImageGenerationTool,
    LocalShellTool,
    RunContextWrapper,
    RunResult,
    RunResultStreaming,
    ShellTool,
    Tool,
    WebSearchTool,
)
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.sandbox import SandboxAgent

from sayso.adapters.openai_agents.messages import current_run
from sayso.adapters.openai_agents.model import LoggedModel
from sayso.adapters.openai_agents.tools import (
    check_hosted,
    guard_tool,
    guarded_tool_of,
    record_refusals,
    unless_refused,
)
from sayso.errors import InvalidCall
from sayso.gate.coverage import Coverage
from sayso.sync import context_value

_BY_PROVIDER = (WebSearchTool, FileSearchTool, CodeInterpreterTool, ImageGenerationTool)
_WITHOUT_HOOK = (ApplyPatchTool, ComputerTool, CustomTool, LocalShellTool, ShellTool)

_wiring: contextvars.ContextVar[Wiring | None] = contextvars.ContextVar(
    "sayso_openai_wiring", default=None
)


class Wiring:
    """The guarded copies of one agent and of all agents that it can reach."""

    def __init__(self, coverage: Coverage) -> None:
        self.coverage = coverage
        # By the id of the original, which is kept alive beside its copy.
        self._copies: dict[int, tuple[Agent[Any], Agent[Any]]] = {}
        #: The agents that are tools: the key of their call is their place.
        self._as_tools: set[int] = set()

    @property
    def agents(self) -> list[Agent[Any]]:
        """The guarded copies."""
        return [copied for _, copied in self._copies.values()]

    def root(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the guarded copy of an agent. Raises ``InvalidCall`` if it cannot be guarded, with
        a list of what the gate does not reach."""
        copied = self.agent(agent)
        self.coverage.check()
        return copied

    def agent(self, agent: Any) -> Agent[Any]:
        """Return the guarded copy of an agent, made with all that the agent can reach."""
        known = self._copies.get(id(agent))
        if known is not None:
            return known[1]
        _check(agent)
        if any(one.name == agent.name for one in self.agents):
            raise InvalidCall(
                f"two agents are named {agent.name!r}: a stored state could not tell them apart, "
                "so give each its own name",
                "name",
            )
        copied: Agent[Any] = copy.copy(agent)
        self._copies[id(agent)] = agent, copied
        self._list(agent, self.coverage)
        copied.tools = [self._tool(tool, copied) for tool in agent.tools]
        copied.handoffs = [self._handoff(one) for one in agent.handoffs]
        copied.mcp_servers = list(agent.mcp_servers)
        copied.model = LoggedModel(copied, agent.model, self.check)
        copied.tool_use_behavior = unless_refused(agent.tool_use_behavior)
        self._guard_listing(copied)
        return copied

    def _tool(self, tool: Tool, agent: Agent[Any]) -> Tool:
        if not isinstance(tool, FunctionTool):
            return tool
        guarded = guard_tool(tool, agent)
        if tool._agent_instance is not None:
            self._as_tools.add(id(tool._agent_instance))
            guarded._agent_instance = self.agent(tool._agent_instance)
        return guarded

    def _handoff(self, handoff: Any) -> Any:
        if isinstance(handoff, Agent):
            return self.agent(handoff)
        to = self.agent(_target(handoff))

        async def invoked(context: RunContextWrapper[Any], arguments: str) -> Agent[Any]:
            # It may choose an agent that guard(...) has not seen.
            return self.root(await handoff.on_invoke_handoff(context, arguments))

        copied = copy.copy(handoff)
        copied.on_invoke_handoff = invoked
        copied._agent_ref = weakref.ref(to)
        return copied

    def _guard_listing(self, agent: Agent[Any]) -> None:
        """Guard the tools of local MCP servers, which the SDK lists again for every turn, resumed
        ones too."""
        listed = agent.get_mcp_tools

        async def get_mcp_tools(run_context: RunContextWrapper[Any]) -> list[Tool]:
            # The model checks the same, but a run may bring another model.
            self.check(agent.tools, agent.handoffs)
            await record_refusals(run_context)
            tools = await listed(run_context)
            return [tool if guarded_tool_of(tool) else self._tool(tool, agent) for tool in tools]

        setattr(agent, "get_mcp_tools", get_mcp_tools)  # noqa: B010  # on this one object

    # -- what cannot be gated

    def _list(self, agent: Agent[Any], coverage: Coverage) -> None:
        """Add what an agent has to the table."""
        coverage.gated(agent.name, "agent", agent.name)
        for tool in agent.tools:
            _list_tool(tool, agent.name, coverage)
        for server in agent.mcp_servers:
            note = "its tools are gated whenever they are listed"
            coverage.gated(agent.name, "MCP server", server.name, note)
        if agent.prompt is not None:
            given: Mapping[str, Any] = agent.prompt if isinstance(agent.prompt, dict) else {}
            name = str(given.get("id") or "prompt")
            why = "a prompt that the provider keeps may bring tools that the provider runs"
            coverage.missed(agent.name, "stored prompt", name, why)

    def check(self, tools: Sequence[Tool], handoffs: Sequence[Any]) -> None:
        """Raise ``InvalidCall`` for a tool or a handoff that was added to a guarded agent and would
        bypass the gate."""
        found = Coverage(self.coverage.ungated)
        for tool in tools:
            if isinstance(tool, FunctionTool) and guarded_tool_of(tool) is None:
                raise InvalidCall(
                    f"{tool.name} was added to its agent after guard(...), and would bypass the "
                    "gate: add all tools before you call guard(...)",
                    "tools",
                )
            if not isinstance(tool, FunctionTool):
                _list_tool(tool, "the agent", found)
        found.check()
        for handoff in handoffs:
            check_guarded(handoff if isinstance(handoff, Agent) else _target(handoff))

    # -- agents that code starts while a guarded run is active

    @contextmanager
    def active(self) -> Iterator[None]:
        """Guard every agent that is started in this context."""
        if not isinstance(get_default_agent_runner(), GuardingRunner):
            set_default_agent_runner(GuardingRunner(get_default_agent_runner()))
        with context_value(_wiring, self):
            yield

    def started(self, agent: Any) -> tuple[Any, Any]:
        """Return the guarded copy of an agent that is started now, and the context to run it in."""
        run = current_run()
        if run is None or is_guarded(agent):
            return agent, nullcontext()
        if not run.path:
            self._check_harmless(agent)
            return agent, nullcontext()
        copied = self.root(agent)
        if id(agent) in self._as_tools:
            return copied, nullcontext()
        return copied, run.inside(run.place_of(copied.name))

    def _check_harmless(self, agent: Any) -> None:
        """Raise ``InvalidCall`` for an agent that is started beside the model, by a guardrail or a
        hook, and has tools: nothing could pause there."""
        if agent.name in self.coverage.ungated:
            return
        if agent.tools or agent.handoffs or agent.mcp_servers or agent.prompt is not None:
            raise InvalidCall(
                f"agent {agent.name!r} was started by a guardrail, a hook or the instructions, "
                "where the gate cannot pause it, so it was not run: give it no tools, run it "
                f"inside a tool, or name it in guard(..., ungated=[{agent.name!r}])",
                "ungated",
            )


class GuardingRunner(AgentRunner):
    """The SDK's runner. While a guarded run is active, it runs guarded copies."""

    def __init__(self, inner: AgentRunner) -> None:
        super().__init__()
        self._inner = inner

    async def run(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        agent, around = _started(starting_agent)
        with around:
            return await self._inner.run(agent, input, **options)

    def run_sync(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        agent, around = _started(starting_agent)
        with around:
            return self._inner.run_sync(agent, input, **options)

    def run_streamed(
        self, starting_agent: Agent[Any], input: Any, **options: Any
    ) -> RunResultStreaming:
        agent, around = _started(starting_agent)
        with around:
            return self._inner.run_streamed(agent, input, **options)


def _started(agent: Any) -> tuple[Any, Any]:
    wiring = _wiring.get()
    return (agent, nullcontext()) if wiring is None else wiring.started(agent)


def is_guarded(agent: Any) -> bool:
    """Whether an agent is a guarded copy."""
    return isinstance(getattr(agent, "model", None), LoggedModel)


def check_guarded(agent: Agent[Any]) -> None:
    """Raise ``InvalidCall`` for an agent that was added after ``guard``."""
    if not is_guarded(agent):
        raise InvalidCall(
            f"agent {agent.name!r} was added as a handoff after guard(...), and would bypass the "
            "gate: add all handoffs before you call guard(...)",
            "handoffs",
        )


def _check(agent: Any) -> None:
    if not isinstance(agent, Agent) or isinstance(agent, SandboxAgent):
        raise InvalidCall(
            f"{agent!r:.80} cannot be guarded: pass an Agent of the SDK that is not guarded yet, "
            "and no sandbox or realtime agent",
            "agent",
        )
    if is_guarded(agent):
        raise InvalidCall(
            f"agent {agent.name!r} is guarded already: pass the agent that you built to guard(...)",
            "agent",
        )


def _target(handoff: Handoff[Any, Any]) -> Any:
    """Return the agent that a handoff leads to."""
    to = handoff._agent_ref() if handoff._agent_ref is not None else None
    if to is None:
        raise InvalidCall(
            f"the agent of the handoff {handoff.tool_name!r} is unknown: create it with "
            "handoff(agent)",
            "handoffs",
        )
    return to


def _list_tool(tool: Tool, where: str, coverage: Coverage) -> None:
    if isinstance(tool, FunctionTool):
        note = "" if tool._agent_instance is None else "an agent; its own calls are gated too"
        coverage.gated(where, "tool", tool.qualified_name, note)
    elif isinstance(tool, HostedMCPTool):
        _list_hosted(tool, where, coverage)
    elif isinstance(tool, _WITHOUT_HOOK):
        why = (
            f"{type(tool).__name__} would bypass the gate: use a function_tool that does only what "
            "the agent may do"
        )
        coverage.missed(where, "tool", tool.name, why)
    elif isinstance(tool, _BY_PROVIDER):
        why = "the provider runs it, and does not ask first"
        coverage.missed(where, "hosted tool", tool.name, why)
    elif type(tool).__name__ in ("ToolSearchTool", "ProgrammaticToolCallingTool"):
        note = "it has no effect: the calls that it leads to are gated"
        coverage.gated(where, "hosted tool", tool.name, note)
    else:
        why = f"this adapter does not know {type(tool).__name__}"
        coverage.missed(where, "tool", str(getattr(tool, "name", type(tool).__name__)), why)


def _list_hosted(tool: HostedMCPTool, where: str, coverage: Coverage) -> None:
    check_hosted(tool)
    config: Mapping[str, Any] = dict(tool.tool_config)
    label = str(config.get("server_label") or config.get("connector_id") or tool.name)
    asks = config.get("require_approval", "always")
    never = asks.get("never") if isinstance(asks, Mapping) else asks != "always"
    if never:
        why = "the provider runs it without asking: set require_approval to 'always'"
        coverage.missed(where, "hosted MCP server", label, why)
    else:
        coverage.gated(where, "hosted MCP server", label, "the provider asks before each call")
