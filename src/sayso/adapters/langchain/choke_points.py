"""The places through which LangChain and LangGraph pass every tool call and every model request.

``install`` puts a check there, once per process. Code outside of guarded runs does not notice it.
Inside a guarded run (``sayso.gate.guarded_runs``), however the code found the tool or the agent:

- a tool node asks about its calls where it makes them, inside the wrappers of other middleware, and
  interrupts its graph. It does so in every graph that is part of the guarded one, because LangGraph
  restarts those after a pause;
- any other tool that is about to run without having passed the gate goes through it in
  ``BaseTool.run``. In a node or a task it interrupts the graph, too. In the body of another call it
  pauses that call, if the call may start from its top again, and is denied otherwise;
- a model whose provider would run tools itself, and a graph on another server, are refused.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand
from langgraph.prebuilt.tool_node import ToolCallRequest, ToolNode
from langgraph.pregel import Pregel
from langgraph.pregel.remote import RemoteGraph

from sayso.adapters.calls import PauseSignal, StopSignal, raise_stop_causes
from sayso.adapters.langchain.requests import check_request
from sayso.adapters.langchain.tools import (
    ParentCommandResult,
    ToolGate,
    call_name,
    framework_call,
    is_observed,
    is_part_of_running_call,
    result_for,
    thread_id,
    with_graph,
    written_arguments,
)
from sayso.errors import InvalidCall, Refused
from sayso.gate.failures import failure_of
from sayso.gate.framework import FrameworkThread
from sayso.gate.guarded_runs import Place, current_place, tool_call
from sayso.gate.os_threads import wrap_method
from sayso.sync import run_blocking

#: Why a graph on another server cannot be gated.
REMOTE = "it runs on another server, so guard it there"


_installing = threading.Lock()


def install() -> None:
    """Check every tool call and model request of this process from now on."""
    with _installing:
        _install()


@functools.cache
def _install() -> None:
    wrap_method(BaseTool, "run", _run_tool)
    wrap_method(BaseTool, "arun", _arun_tool)
    for kind, name in product((StructuredTool, Tool), ("func", "coroutine")):
        setattr(kind, name, ToolFunction(name))
    wrap_method(ToolNode, "_run_one", _run_one)
    wrap_method(ToolNode, "_arun_one", _arun_one)
    wrap_method(ToolNode, "_execute_tool_sync", _execute)
    wrap_method(ToolNode, "_execute_tool_async", _aexecute)
    for name in ("stream", "astream"):
        wrap_method(Pregel, name, _stream_graph)
        wrap_method(RemoteGraph, name, _stream_remote)
    for name in ("generate", "agenerate", "stream", "astream", *_V3):
        wrap_method(BaseChatModel, name, _ask_model)


#: How later versions of LangChain stream events.
_V3 = [n for n in ("_chat_model_stream_v3", "_achat_model_stream_v3") if hasattr(BaseChatModel, n)]


# -- tool nodes


def _execute(original: Any, node: Any, request: ToolCallRequest, *rest: Any) -> Any:
    place = current_place()
    if place is None or not _asks_here(place, request):
        return original(node, request, *rest)

    async def run(*args: Any) -> Any:
        return original(*args)

    return run_blocking(lambda: _aexecute(run, node, request, *rest))


async def _aexecute(original: Any, node: Any, request: ToolCallRequest, *rest: Any) -> Any:
    place = current_place()
    if place is None or not _asks_here(place, request):
        return await original(node, request, *rest)
    messages: list[Any] = []

    async def execute(changed: ToolCallRequest) -> Any:
        messages.append(await original(node, changed, *rest))
        return messages[-1]

    try:
        return await ToolGate(place.gate, place.policy).awrap(request, execute)
    except GraphBubbleUp as pause:
        # The call around the graph pauses, too, even if its code catches the interrupt.
        if place.call is not None and isinstance(pause, GraphInterrupt):
            place.work.paused = PauseSignal(place.thread, pause)
        # No other middleware stops it, even if it catches every exception.
        raise StopSignal(pause) from None
    except Exception as error:
        if not messages or failure_of(error) != "not_executed":
            raise
        return messages[-1]  # what the node made of an exception that says that nothing happened


def _asks_here(place: Place, request: ToolCallRequest) -> bool:
    """Return whether a tool node asks about its call and interrupts its graph."""
    nested = place.may_pause and is_part_of_running_call(request.runtime.config, place.thread)
    return place.call is None or nested


def _run_one(original: Any, node: Any, *args: Any) -> Any:
    with raise_stop_causes():
        return original(node, *args)


async def _arun_one(original: Any, node: Any, call: Any, kind: Any, runtime: Any) -> Any:
    """Run a call of a step. A pause is raised once no other call of the step is running.

    LangGraph continues as soon as the first of them stops, and leaves the others running. The run's
    lease would be released while one of its calls still runs, and a resume would have to wait for
    it.
    """
    place = current_place()
    if place is None:
        return await original(node, call, kind, runtime)
    config = runtime.config.get("configurable") or {}
    # A tool node in the body of a call has the config of that call, which waits for it.
    step = place.work, config.get("thread_id"), config.get("checkpoint_ns")
    task = asyncio.current_task()
    tasks = _steps.setdefault(step, set())
    tasks.add(task)
    try:
        with raise_stop_causes():
            return await original(node, call, kind, runtime)
    except GraphBubbleUp:
        await asyncio.sleep(0)  # let the others begin
        tasks.discard(task)  # two that pause must not wait for each other
        if tasks:
            await asyncio.wait(set(tasks))
        raise
    finally:
        tasks.discard(task)
        if not tasks:
            _steps.pop(step, None)


#: The tasks that make the calls of each step.
_steps: dict[Any, set[Any]] = {}


# -- tools


def _run_tool(original: Any, tool: Any, tool_input: Any, *args: Any, **options: Any) -> Any:
    with tool_call(call_name(tool.name, options.get("tool_call_id"))) as place:
        if place is None:
            return original(tool, tool_input, *args, **options)

    async def run(*args: Any, **options: Any) -> Any:
        return original(*args, **options)

    return run_blocking(lambda: _arun_tool(run, tool, tool_input, *args, **options))


async def _arun_tool(original: Any, tool: Any, tool_input: Any, *args: Any, **options: Any) -> Any:
    name = call_name(tool.name, options.get("tool_call_id"))
    with tool_call(name) as place:
        if place is None:
            return await original(tool, tool_input, *args, **options)

    async def run(noting: BaseTool, changed: dict[str, Any]) -> Any:
        with tool_call(name):
            return await original(noting, changed, *args, **options)

    return await ToolRun(tool, tool_input, options, run).gated(place)


class ToolFunction:
    """``func`` or ``coroutine`` of a tool: code of a guarded run that calls it runs the tool."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, tool: BaseTool | None, owner: type[BaseTool]) -> Any:
        if tool is None:
            raise AttributeError(self._name)  # a field of pydantic is no attribute of its class
        function = vars(tool)[self._name]
        if function is None or is_observed(tool) or current_place() is None:
            return function
        run = tool.run if self._name == "func" else tool.arun

        @functools.wraps(function)
        def gated(*args: Any, **kwargs: Any) -> Any:
            names = inspect.signature(function).parameters
            arguments = {**dict(zip(names, args, strict=False)), **kwargs}
            return run(
                {n: v for n, v in arguments.items() if n in tool.args or n not in _RUN_OPTIONS}
            )

        return gated

    def __set__(self, tool: BaseTool, function: Any) -> None:
        vars(tool)[self._name] = function


#: The arguments that LangChain itself passes to the function of a tool.
_RUN_OPTIONS = ("config", "callbacks", "run_manager")


class ToolRun:
    """A tool that is about to run inside a guarded run without having passed the gate."""

    def __init__(
        self,
        tool: BaseTool,
        tool_input: Any,
        options: dict[str, Any],
        run: Callable[[BaseTool, dict[str, Any]], Awaitable[Any]],
    ) -> None:
        if isinstance(tool_input, str):
            tool_input = {next(iter(tool.args)): tool_input}
        visible = tool._filter_injected_args(tool_input)
        self.tool = tool
        self.made: dict[str, Any] = {
            "name": tool.name,
            "id": options.get("tool_call_id"),
            "args": written_arguments(tool, visible),
        }
        self.config = options.get("config") or var_child_runnable_config.get() or {}
        self._injected = {n: value for n, value in tool_input.items() if n not in visible}
        self._run = run

    async def gated(self, place: Place) -> Any:
        """Ask about the call, run it, and return what the tool would return."""
        made_by_model = self.made["id"] is not None
        if place.call is None and made_by_model and self._in_a_task(place):
            return await self._interrupting(place)

        async def effect(noting: BaseTool, args: dict[str, Any]) -> Any:
            return await self._run(noting, {**self._injected, **args})

        call = framework_call(self.tool, self.made, place.thread, effect)
        outcome = await FrameworkThread.inner(place, call)
        if isinstance(outcome.value, ParentCommandResult):
            raise ParentCommand(outcome.value.command)
        if made_by_model:
            return result_for(outcome, self.made, notice="")
        if not outcome.ok:
            raise Refused(outcome.text)
        return outcome.value

    def _in_a_task(self, place: Place) -> bool:
        """Return whether a node or task of the graph makes the call, which LangGraph restarts."""
        configurable = self.config.get("configurable") or {}
        return bool(configurable.get("checkpoint_ns")) and thread_id(self.config) == place.thread

    async def _interrupting(self, place: Place) -> Any:
        runtime: Any = SimpleNamespace(config=self.config)
        tool_call: Any = {**self.made, "type": "tool_call"}
        request = ToolCallRequest(tool_call=tool_call, tool=self.tool, state=None, runtime=runtime)

        async def execute(changed: ToolCallRequest) -> Any:
            assert changed.tool is not None
            return await self._run(changed.tool, {**self._injected, **changed.tool_call["args"]})

        return await ToolGate(place.gate, place.policy).awrap(request, execute)


# -- graphs and models


def _stream_graph(original: Any, graph: Any, input: Any, config: Any = None, **options: Any) -> Any:
    if current_place() is not None:
        config = with_graph(config, graph)
    return original(graph, input, config, **options)


def _stream_remote(original: Any, graph: Any, *args: Any, **options: Any) -> Any:
    place = current_place()
    name = graph.name or "remote"
    if place is not None and name not in place.ungated:
        raise InvalidCall(
            f"the graph {name!r} was not run: {REMOTE}. Or allow it without approval: "
            f"guard(..., ungated=[{name!r}])"
        )
    return original(graph, *args, **options)


def _ask_model(original: Any, model: Any, *args: Any, **options: Any) -> Any:
    place = current_place()
    if place is not None:
        check_request(model, options, place.ungated)
    return original(model, *args, **options)
