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
- Where the runner finds the model of an agent, it gets one that checks each request.
- The SDK's shell, patch, computer and custom tools have no such hook, so they are refused.

What the provider runs never comes back to us. It is listed as not covered, and refused.
"""

from __future__ import annotations

import copy
import functools
import json
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from agents import Agent, FunctionTool, Handoff, Model, RunConfig, RunContextWrapper, Tool
from agents.run import AgentRunner
from agents.run_internal import tool_actions
from agents.run_internal.turn_preparation import get_model
from agents.sandbox import SandboxAgent
from agents.tool import _FailureHandlingFunctionToolInvoker as Invoker
from agents.tool import _invoke_function_tool_with_metadata as invoke_function_tool
from pydantic_core import to_jsonable_python

from sayso.adapters.openai_agents.messages import ActiveRun, current_run, delegated_agent
from sayso.adapters.openai_agents.model import CheckedModel, LoggedModel
from sayso.adapters.openai_agents.requests import list_agent, without_hook
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
from sayso.gate.os_threads import wrap_method


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
        known_copy = self._copies.get(id(agent))
        if known_copy is not None:
            return known_copy[1]
        _check(agent)
        if any(other.name == agent.name for other in self.agents):
            raise InvalidCall(
                f"two agents are named {agent.name!r}: a stored state could not tell them apart, "
                "so give each its own name",
                "name",
            )
        copied: Agent[Any] = copy.copy(agent)
        self._copies[id(agent)] = agent, copied
        list_agent(agent, self.coverage)
        copied.tools = [self._tool(tool, copied) for tool in agent.tools]
        copied.handoffs = [self._handoff(handoff) for handoff in agent.handoffs]
        copied.mcp_servers = list(agent.mcp_servers)
        copied.model = LoggedModel(copied, agent)
        copied.tool_use_behavior = stop_unless_refused(agent.tool_use_behavior)
        listed = copied.get_all_tools

        async def get_all_tools(run_context: RunContextWrapper[Any]) -> list[Tool]:
            for handoff in copied.handoffs:
                check_guarded(handoff if isinstance(handoff, Agent) else _target(handoff))
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


# -- where the SDK runs agents and tools


_installed = False


def install() -> None:
    """Check agents and tools where the SDK runs them, from now on."""
    global _installed
    if _installed:
        return
    _installed = True
    wrap_method(AgentRunner, "run", _run)
    wrap_method(AgentRunner, "run_streamed", _run_streamed)
    wrap_method(Invoker, "__call__", _invoke)
    _patch_function(invoke_function_tool, _invoke_function_tool)
    _patch_function(get_model, _get_model)
    for name in ("Computer", "LocalShell", "Shell", "CustomTool", "ApplyPatch"):
        action = getattr(tool_actions, f"{name}Action")
        execute = functools.partial(_execute, action.execute)
        action.execute = functools.wraps(action.execute)(execute)


def _patch_function(original: Callable[..., Any], wrapper: Callable[..., Any]) -> None:
    """Replace a function of the SDK in every module that has imported it."""
    patched = functools.wraps(original)(functools.partial(wrapper, original))
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(original.__name__) is original:
            setattr(module, original.__name__, patched)


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
    run = current_run()
    if is_guarded(agent) or run is None:
        yield _Start(agent, options)
        return
    run_config = options.get("run_config")
    config = RunConfig(**run_config) if isinstance(run_config, dict) else run_config or RunConfig()
    guarded_options = {**options, "run_config": replace(config, model=None)}
    original, copied = delegated_agent()
    if agent is original:
        with run.in_call(run.path.removesuffix("/")):
            if config.model is not None:
                run.configs[run.path] = config
            yield _Start(copied, guarded_options)
        return
    if not place.may_pause:
        yield _Start(agent, options)  # each of its calls and requests is checked
        return
    copied = GuardedAgents(Coverage(place.ungated)).checked_copy(agent)
    written = json.dumps([agent.name, to_jsonable_python(input, fallback=str)])
    own_run = ActiveRun(run.calls, run.log, config, run.by)
    with own_run.open(), own_run.in_call(place_of_unguarded(place, written.encode()).key):
        yield _Start(copied, guarded_options, own_run)


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


async def _invoke_function_tool(original: Any, *, function_tool: FunctionTool, **call: Any) -> Any:
    """Invoke any tool, which may have a function of the user's own, as the SDK does."""
    place = _place_of_call(call["context"])
    invoked = function_tool.on_invoke_tool
    if (
        place is not None
        and not isinstance(invoked, Invoker)
        and not guarded_tool_of(function_tool)
    ):
        gated = functools.partial(gated_call, place, function_tool)
        function_tool = copy.copy(function_tool)
        function_tool.on_invoke_tool = gated
    return await original(function_tool=function_tool, **call)


def _get_model(original: Any, agent: Agent[Any], config: RunConfig) -> Model:
    """Return the model of an agent; in a guarded run, one that checks each request."""
    model: Model = original(agent, config)
    place = current_place()
    is_checked = isinstance(model, CheckedModel)
    if place is None or is_checked or agent.name in place.ungated:
        return model
    return CheckedModel(agent, model)


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
        raise InvalidCall(f"{tool.name} was not run: {without_hook(tool)}", "ungated")
    return await original(**options)
