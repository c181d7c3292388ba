"""Guarded copies of agents, and the places where the SDK runs agents and tools.

``guard`` copies an agent and every agent that it hands off to or has as a tool. A copy has a
``LoggedModel``, and its tools are guarded whenever the SDK lists them, so local MCP servers and
tools that were added later are included.

Any other agent or tool is met where the SDK runs it. ``install`` wraps these places once per
process, and each of them asks whether its code belongs to a guarded run
(``sayso.gate.guarded_runs``):

- ``AgentRunner`` runs the guarded copy of an agent that code inside a call starts, if that call may
  be paused. Otherwise the agent runs as it is, and the next place checks each of its calls.
- Where tools are invoked, a tool that is not guarded goes through ``FrameworkThread.inner``.
- The SDK's shell, patch, computer and custom tools have no such hook, so they are refused.

What the provider runs never comes back to us. It is listed as not covered, and refused.
"""

from __future__ import annotations

import copy
import functools
import json
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
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
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    ShellTool,
    Tool,
    WebSearchTool,
)
from agents.run import AgentRunner
from agents.run_internal import tool_actions
from agents.run_internal.tool_execution import _FunctionToolBatchExecutor
from agents.sandbox import SandboxAgent
from agents.tool import _FailureHandlingFunctionToolInvoker as Invoker
from pydantic_core import to_jsonable_python

from sayso.adapters.openai_agents.messages import ActiveRun, current_run, delegated_agent
from sayso.adapters.openai_agents.model import LoggedModel
from sayso.adapters.openai_agents.tools import (
    gated_call,
    guard_tool,
    guarded_tool_of,
    record_refusals,
    stop_unless_refused,
)
from sayso.errors import InvalidCall, Paused
from sayso.gate.coverage import Coverage
from sayso.gate.framework import place_of_unguarded
from sayso.gate.guarded_runs import Place, current_place

_BY_PROVIDER = (WebSearchTool, FileSearchTool, CodeInterpreterTool, ImageGenerationTool)
_WITHOUT_HOOK = (ApplyPatchTool, ComputerTool, CustomTool, LocalShellTool, ShellTool)

# fmt: off
#: The settings of a model that cannot make the provider run anything.
_SETTINGS = frozenset((
    "temperature", "top_p", "frequency_penalty", "presence_penalty", "tool_choice",
    "parallel_tool_calls", "truncation", "max_tokens", "reasoning", "verbosity", "metadata",
    "store", "prompt_cache_retention", "include_usage", "response_include", "top_logprobs",
    "extra_headers", "extra_query", "retry", "context_management", "prompt_cache_options",
    "preserve_raw_usage", "timeout",
))
#: The same for the fields in ``extra_body`` and ``extra_args``.
_EXTRAS = frozenset((
    "user", "seed", "stop", "n", "logit_bias", "logprobs", "service_tier", "safety_identifier",
    "prompt_cache_key", "top_k", "min_p", "top_a", "repetition_penalty", "reasoning_effort",
    "modalities", "prediction",
))
# fmt: on


class GuardedAgents:
    """The guarded copies of one agent and of the agents that it declares."""

    def __init__(self, coverage: Coverage) -> None:
        self.coverage = coverage
        # By the id of the original, which is kept alive beside its copy.
        self._copies: dict[int, tuple[Agent[Any], Agent[Any]]] = {}

    @property
    def agents(self) -> list[Agent[Any]]:
        return [copied for _, copied in self._copies.values()]

    def checked_copy(self, agent: Any) -> Agent[Any]:
        """Return the guarded copy of an agent.

        Raises ``InvalidCall`` if it cannot be guarded, with a list of what the gate does not reach.
        """
        copied = self._copy(agent)
        self.coverage.check()
        return copied

    def _copy(self, agent: Any) -> Agent[Any]:
        known = self._copies.get(id(agent))
        if known is not None:
            return known[1]
        _check(agent)
        if any(other.name == agent.name for other in self.agents):
            raise InvalidCall(
                f"two agents are named {agent.name!r}: a stored state could not tell them apart, "
                "so give each its own name",
                "name",
            )
        copied: Agent[Any] = copy.copy(agent)
        self._copies[id(agent)] = agent, copied
        _list_agent(agent, self.coverage)
        copied.tools = [self._tool(tool, copied) for tool in agent.tools]
        copied.handoffs = [self._handoff(handoff) for handoff in agent.handoffs]
        copied.mcp_servers = list(agent.mcp_servers)
        copied.model = LoggedModel(copied, agent)
        copied.tool_use_behavior = stop_unless_refused(agent.tool_use_behavior)
        listed = copied.get_all_tools

        async def get_all_tools(run_context: RunContextWrapper[Any]) -> list[Tool]:
            self._check_again(copied)
            await record_refusals(run_context)
            return [self._tool(tool, copied) for tool in await listed(run_context)]

        setattr(copied, "get_all_tools", get_all_tools)  # noqa: B010  # on this one object
        return copied

    def _tool(self, tool: Tool, agent: Agent[Any]) -> Tool:
        if not isinstance(tool, FunctionTool) or guarded_tool_of(tool) is not None:
            return tool
        guarded = guard_tool(tool, agent)
        if tool._agent_instance is not None:
            guarded._agent_instance = self._copy(tool._agent_instance)
        return guarded

    def _check_again(self, agent: Agent[Any]) -> None:
        """Raise ``InvalidCall`` for what was added after ``guard`` and would bypass the gate."""
        found = Coverage(self.coverage.ungated)
        _list_agent(agent, found)
        found.check()
        for handoff in agent.handoffs:
            check_guarded(handoff if isinstance(handoff, Agent) else _target(handoff))

    def _handoff(self, handoff: Any) -> Any:
        if isinstance(handoff, Agent):
            return self._copy(handoff)
        to = self._copy(_target(handoff))

        async def invoked(context: RunContextWrapper[Any], arguments: str) -> Agent[Any]:
            # It may choose an agent that guard(...) has not seen.
            return self.checked_copy(await handoff.on_invoke_handoff(context, arguments))

        copied = copy.copy(handoff)
        copied.on_invoke_handoff = invoked
        copied._agent_ref = weakref.ref(to)
        return copied


def is_guarded(agent: Any) -> bool:
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
    to = handoff._agent_ref() if handoff._agent_ref is not None else None
    if to is None:
        raise InvalidCall(
            f"the agent of the handoff {handoff.tool_name!r} is unknown: create it with "
            "handoff(agent)",
            "handoffs",
        )
    return to


# -- what cannot be gated


def _list_agent(agent: Agent[Any], coverage: Coverage) -> None:
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
    list_settings(agent.model_settings, agent.name, coverage)


def _list_tool(tool: Tool, where: str, coverage: Coverage) -> None:
    if isinstance(tool, FunctionTool):
        note = "" if tool._agent_instance is None else "an agent; its own calls are gated too"
        coverage.gated(where, "tool", tool.qualified_name, note)
    elif isinstance(tool, HostedMCPTool):
        _list_hosted(tool, where, coverage)
    elif isinstance(tool, _WITHOUT_HOOK):
        coverage.missed(where, "tool", tool.name, _without_hook(tool))
    elif isinstance(tool, _BY_PROVIDER):
        coverage.hosted(where, "hosted tool", tool.name)
    elif type(tool).__name__ in ("ToolSearchTool", "ProgrammaticToolCallingTool"):
        note = "it has no effect: the calls that it leads to are gated"
        coverage.gated(where, "hosted tool", tool.name, note)
    else:
        why = f"this adapter does not know {type(tool).__name__}"
        coverage.missed(where, "tool", str(getattr(tool, "name", type(tool).__name__)), why)


def _without_hook(tool: Any) -> str:
    return (
        f"{type(tool).__name__} would bypass the gate: use a function_tool that does only what the "
        "agent may do"
    )


def _list_hosted(tool: HostedMCPTool, where: str, coverage: Coverage) -> None:
    config: Mapping[str, Any] = dict(tool.tool_config)
    if tool.on_approval_request is not None:
        label = config.get("server_label")
        raise InvalidCall(
            f"the hosted MCP server {label!r} has an on_approval_request, which would decide "
            "without the gate: remove it, and give the gate a policy with rules for "
            f"'{label}.*' instead",
            "on_approval_request",
        )
    label = str(config.get("server_label") or config.get("connector_id") or tool.name)
    asks = config.get("require_approval", "always")
    never = asks.get("never") if isinstance(asks, Mapping) else asks != "always"
    if never:
        why = "the provider runs it without asking: set require_approval to 'always'"
        coverage.missed(where, "hosted MCP server", label, why)
    else:
        coverage.gated(where, "hosted MCP server", label, "the provider asks before each call")


def list_settings(settings: ModelSettings | None, where: str, coverage: Coverage) -> None:
    """List the fields of a request that are not known to be free of tools."""
    for field in () if settings is None else fields(settings):
        value = getattr(settings, field.name)
        if value is None or field.name in _SETTINGS:
            continue
        is_extra = field.name in ("extra_body", "extra_args") and isinstance(value, Mapping)
        unknown = [str(key) for key in value if key not in _EXTRAS] if is_extra else [field.name]
        if unknown:
            why = f"{', '.join(unknown)} may bring tools that the provider runs"
            coverage.missed(where, "request field", field.name, why)


# -- where the SDK runs agents and tools


_installed = False


def install() -> None:
    """Check agents and tools where the SDK runs them, from now on."""
    global _installed
    if _installed:
        return
    _installed = True
    _patch(AgentRunner, "run", _run)
    _patch(AgentRunner, "run_streamed", _run_streamed)
    _patch(Invoker, "__call__", _invoke)
    _patch(_FunctionToolBatchExecutor, "_invoke_tool_and_run_post_invoke", _invoke_in_loop)
    for name in ("Computer", "LocalShell", "Shell", "CustomTool", "ApplyPatch"):
        action = getattr(tool_actions, f"{name}Action")
        execute = functools.partial(_execute, action.execute)
        action.execute = functools.wraps(action.execute)(execute)


def _patch(owner: type, name: str, wrapper: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def patched(self: Any, /, *args: Any, **options: Any) -> Any:
        return wrapper(original, self, *args, **options)

    setattr(owner, name, patched)


@dataclass(frozen=True)
class _Start:
    agent: Any
    options: dict[str, Any]
    #: The run of an agent that code has started, which pauses that code.
    run: ActiveRun | None = None


@contextmanager
def _starting(agent: Any, input: Any, options: dict[str, Any]) -> Iterator[_Start]:
    """Yield what to run instead of an agent that starts here."""
    place = current_place()
    if place is None or agent.name in place.ungated:
        yield _Start(agent, options)
        return
    given = options.get("run_config")
    config = RunConfig(**given) if isinstance(given, dict) else given or RunConfig()
    coverage = Coverage(place.ungated)
    list_settings(config.model_settings, agent.name, coverage)
    coverage.check()
    if is_guarded(agent):
        yield _Start(agent, options)
        return
    options = {**options, "run_config": replace(config, model=None)}
    run = current_run()
    original, copied = delegated_agent()
    if run is not None and agent is original:
        with run.in_call(run.path.removesuffix("/")):
            if config.model is not None:
                run.configs[run.path] = config
            yield _Start(copied, options)
        return
    copied = GuardedAgents(coverage).checked_copy(agent)
    if run is None or not place.may_pause:
        yield _Start(agent, {**options, "run_config": given})  # each of its calls is checked
        return
    written = json.dumps([agent.name, to_jsonable_python(input, fallback=str)])
    own_run = ActiveRun(run.calls, run.log, config, run.by)
    with own_run.open(), own_run.in_call(place_of_unguarded(place, written.encode()).key):
        yield _Start(copied, options, own_run)


async def _run(original: Any, runner: Any, starting_agent: Any, input: Any, **options: Any) -> Any:
    with _starting(starting_agent, input, options) as start:
        result = await original(runner, start.agent, input, **start.options)
        if start.run is not None and (start.run.stopped or result.interruptions):
            raise Paused(start.run.calls.run)
        return result


def _run_streamed(
    original: Any, runner: Any, starting_agent: Any, input: Any, **options: Any
) -> Any:
    with _starting(starting_agent, input, options) as start:
        return original(runner, start.agent, input, **start.options)


async def _invoke(original: Any, invoker: Any, context: Any, arguments: str) -> Any:
    """Invoke a tool that was made by the SDK, whichever code calls it."""
    place = _place_of_call(context)
    if place is None:
        return await original(invoker, context, arguments)
    return await gated_call(place, invoker._function_tool, context, arguments)


async def _invoke_in_loop(
    original: Any, loop: Any, *, func_tool: FunctionTool, tool_context: Any, **more: Any
) -> Any:
    """Invoke a tool with a function of the user's own, which only the SDK's loop calls."""
    place = _place_of_call(tool_context)
    own = not isinstance(func_tool.on_invoke_tool, Invoker) and guarded_tool_of(func_tool) is None
    if place is not None and own:
        tool = func_tool
        func_tool = copy.copy(tool)
        func_tool.on_invoke_tool = functools.partial(gated_call, place, tool)
    return await original(loop, func_tool=func_tool, tool_context=tool_context, **more)


def _place_of_call(context: Any) -> Place | None:
    place = current_place()
    agent = getattr(context, "agent", None)
    is_ungated = place is not None and agent is not None and agent.name in place.ungated
    return None if is_ungated else place


async def _execute(original: Any, **options: Any) -> Any:
    """Run one of the SDK's own tools, which have no hook to ask at."""
    place = current_place()
    run = options.get("call") or options["action"]
    kinds = ("computer", "local_shell", "shell", "custom", "apply_patch")
    tool = next(vars(run)[f"{kind}_tool"] for kind in kinds if f"{kind}_tool" in vars(run))
    names = {tool.name, options["agent"].name}
    if place is not None and not names & set(place.ungated):
        raise InvalidCall(f"{tool.name} was not run: {_without_hook(tool)}", "ungated")
    return await original(**options)
