"""Run and resume a compiled LangGraph graph by its thread, with a gate in front of its tools.

``GuardedAgent`` runs a copy of a graph with the gate in every tool node: its own, those of its
subgraphs, and those of graphs that the functions of its tools and nodes hold, which is how
sub-agents are made (deepagents' ``task`` tool, an agent called inside a tool, a graph called inside
a node). ``GraphWalk`` makes the copy, which shares everything else with the original; the original
is not changed.

What a function finds by a global name or through an object cannot be replaced in a copy, and what a
provider or another server runs never comes back to us. Those are listed as not covered. And because
code can build an agent while it runs, ``Tripwire`` stops every tool in the guarded graph that
bypassed the gate, and every model that is offered a tool of its provider.
"""

from __future__ import annotations

import asyncio
import copy
import types
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import takewhile
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableBinding
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt.tool_node import ToolNode
from langgraph.pregel.remote import RemoteGraph

from sayso.adapters.agents import Listener, Stream, StreamingAgent, listener
from sayso.adapters.calls import StopSignal, raise_stop_causes
from sayso.adapters.conversation import ConversationLog
from sayso.adapters.langchain.interrupts import InterruptQuestions, breakpoint_of
from sayso.adapters.langchain.tools import (
    NodeFacts,
    ToolGate,
    inside_node,
    missing_results,
    numbered_id,
    running_call,
)
from sayso.adapters.reach import HeldTarget, Walk, cells
from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.framework import FrameworkTool, check_gate
from sayso.gate.run_result import RunResult, RunState
from sayso.policy import Policy
from sayso.rows import Run
from sayso.sync import run_user_function
from sayso.types import Json, Reviewer

_stream_mode: ContextVar[Any] = ContextVar("sayso_langchain_stream_mode", default="updates")


def guard(
    agent: Any,
    gate: Gate,
    policy: Policy | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    ungated: Iterable[str] = (),
) -> GuardedAgent:
    """Make every tool call of a compiled agent or graph go through a gate.

    ``agent`` is the result of ``create_agent``, ``create_deep_agent`` or ``StateGraph.compile``.
    Subgraphs and sub-agents are gated too. The rules of ``policy`` come before those of the gate. A
    call that none of them matches needs approval. ``config`` is passed to the graph on every run.
    ``agent`` itself is not changed; ``.graph`` is the guarded copy, for ``langgraph dev`` and for
    everything that a graph can do. ``run`` and ``resume`` need a checkpointer; a server brings its
    own.

    Raises ``TypeError`` for anything but a compiled graph, ``SaysoError`` for a graph without a
    ``ToolNode`` to guard, and ``InvalidCall`` with a list of what the gate cannot reach, unless
    ``ungated`` names it.
    """
    check_gate(gate, policy)
    if not isinstance(agent, CompiledStateGraph):
        kind = type(agent).__name__
        raise TypeError(
            "guard(...) takes the result of create_agent(...) or StateGraph.compile(...), "
            f"not {kind}"
        )
    tools, coverage = ToolGate(gate, policy=policy), Coverage(ungated)
    walk = GraphWalk(tools, coverage)
    graph = walk.graph(agent, agent.name or "graph")
    coverage.check()
    if not walk.tool_nodes:
        raise SaysoError(
            "this graph has no ToolNode to guard: use create_agent, or a "
            "ToolNode, or @node(gate) on your own nodes"
        )
    wire = Tripwire(coverage.ungated, frozenset(walk.bypass_allowed))
    return GuardedAgent(graph.with_config(callbacks=[wire]), gate, config, tools, coverage)


class InputLog(ConversationLog):
    """What the user said to a graph, and its answers.

    The messages in between are in LangGraph's checkpoints, which belong to the graph.
    """

    format = "langchain"


class GuardedAgent(StreamingAgent[InputLog, Stream]):
    """A guarded graph; ``guard`` returns one.

    Use ``graph``, the compiled graph, for everything else that a graph can do.
    """

    channel = "langchain"
    log_type = InputLog

    def __init__(
        self,
        graph: Any,
        gate: Gate,
        config: Mapping[str, Any] | None = None,
        tools: ToolGate | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        super().__init__(gate, None if tools is None else tools.policy, coverage)
        self.graph = graph
        self._tools = tools
        self._config = dict(config or {})
        self._async: bool | None = None

    async def read_decisions(self, run: Run, decisions: Any) -> Any:
        if run.asked:
            state = await self._state(run.thread)
            await InterruptQuestions(self.gate, run.thread).cancel_answered(state.interrupts)
        return decisions

    async def begin(self, input: Any, thread: str) -> Any:
        """Run the graph. Text becomes a user message; anything else is the graph's input."""
        if not self.graph.checkpointer:
            raise SaysoError(
                "this graph has no checkpointer, so a pause would lose its state: "
                "pass checkpointer=... to create_agent or compile"
            )
        log = await self.open_log(thread)
        await log.say(input if isinstance(input, str) else "")
        state = await self._state(thread)
        if isinstance(input, str):
            input = {"messages": [*_unanswered(state.values), {"role": "user", "content": input}]}
        return await self._advance(input, log)

    async def go_on(self, thread: str) -> Any:
        """Continue the graph. Nodes that interrupted get their answers."""
        log = await self.open_log(thread)
        state = await self._state(thread)
        if await self._stays_at_breakpoint(state, thread, asks=False):
            run = log.run
            await self.cancel(run, reason="a person decided not to continue")
            raise Paused(run)
        answers = await InterruptQuestions(self.gate, thread).answers(state.interrupts)
        return await self._advance(answers, log)

    async def call_order(self, thread: str) -> Sequence[str]:
        """Return the keys of the last reply's calls: LangGraph makes them all at once."""
        values = (await self._state(thread)).values
        last = _last_reply(values)
        return [numbered_id(values, call) for call in last.tool_calls] if last is not None else ()

    def known_tools(self) -> Iterable[FrameworkTool]:
        gate = self._tools
        return [] if gate is None else map(gate.framework_tool, gate.guarded_tools.values())

    async def _advance(self, input: Any, log: ConversationLog) -> Any:
        thread = log.thread
        values = await self._invoke(input, thread)
        state = await self._state(thread)
        if state.interrupts:
            await InterruptQuestions(self.gate, thread).ask(state.interrupts)
        if state.next:
            await self._stays_at_breakpoint(state, thread, asks=True)
            raise Paused(log.run)
        output = _output(values if values is not None else state.values)
        content = output if isinstance(output, str) else ""
        await log.end(self.dump_output(output), content=content)
        return output

    async def load_output(self, thread: str, stored: Json) -> Any:
        """Return the output from the checkpoint, which has the graph's own types."""
        values = (await self._state(thread)).values
        return _output(values) if values else stored

    async def _stays_at_breakpoint(self, state: Any, thread: str, *, asks: bool) -> bool:
        """Return whether the graph is at a breakpoint, and people decided not to continue."""
        if not state.next or state.interrupts:
            return False
        state = await self._state(thread, subgraphs=True)
        stop = await breakpoint_of(self.graph, state, self._read)
        return await InterruptQuestions(self.gate, thread).should_stay(stop, asks=asks)

    # -- the graph, sync or async as its checkpointer is

    def config(self, thread: str) -> dict[str, Any]:
        """Return the config that names a thread to the graph."""
        configurable = {**self._config.get("configurable", {}), "thread_id": thread}
        return {**self._config, "configurable": configurable}

    async def _state(self, thread: str, *, subgraphs: bool = False) -> Any:
        return await self._read(self.config(thread), subgraphs=subgraphs)

    async def _read(self, config: Any, *, subgraphs: bool = False) -> Any:
        if self._async is not False:
            try:
                state = await self.graph.aget_state(config, subgraphs=subgraphs)
            except NotImplementedError:
                self._async = False  # SqliteSaver and PostgresSaver are sync only
            else:
                self._async = True
                return state
        return await run_user_function(self.graph.get_state, config, subgraphs=subgraphs)

    def stream(
        self,
        input: Any,
        *,
        thread: str | None = None,
        requester: str = "",
        stream_mode: Any = "updates",
    ) -> Stream:
        """Run the graph, and stream its chunks in LangGraph's ``stream_mode``."""
        run = partial(self.run, input, thread=thread, requester=requester)
        return self._stream_in(stream_mode, run)

    def stream_resume(
        self,
        where: RunState | str,
        *,
        decisions: Any = None,
        by: str | Reviewer = "user",
        stream_mode: Any = "updates",
    ) -> Stream:
        """Resume a run, and stream its chunks in LangGraph's ``stream_mode``."""
        return self._stream_in(stream_mode, partial(self.resume, where, decisions=decisions, by=by))

    def _stream_in(self, mode: Any, start: Callable[[], Awaitable[RunResult]]) -> Stream:
        async def work() -> RunResult:
            _stream_mode.set(mode)
            return await start()

        return self._stream(work)

    async def _invoke(self, input: Any, thread: str) -> Any:
        """Run the graph. Returns its values, or None if they were streamed."""
        emit, config = listener(), self.config(thread)
        if emit is not None:
            return await self._streamed(input, config, emit)
        if self._async:
            return await self.graph.ainvoke(input, config)
        return await run_user_function(self.graph.invoke, input, config)

    async def _streamed(self, input: Any, config: Any, emit: Listener) -> None:
        mode = _stream_mode.get()
        if self._async:
            async for chunk in self.graph.astream(input, config, stream_mode=mode):
                emit(chunk)
            return
        loop = asyncio.get_running_loop()

        def stream() -> None:
            for chunk in self.graph.stream(input, config, stream_mode=mode):
                loop.call_soon_threadsafe(emit, chunk)

        await run_user_function(stream)


def _unanswered(values: Any) -> list[ToolMessage]:
    """Return results for the calls that new input left without one."""
    last = _last_reply(values)
    if last is None:
        return []
    after = takewhile(lambda message: message is not last, reversed(values["messages"]))
    return missing_results(last, list(after))


def _last_reply(values: Any) -> AIMessage | None:
    messages = values.get("messages", []) if isinstance(values, dict) else []
    return next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)


def _output(values: Any) -> Any:
    """Return the text of the last message, the structured response, or the graph's values."""
    fields = values if isinstance(values, dict) else {}
    messages, structured = fields.get("messages"), fields.get("structured_response")
    if structured is not None:
        return structured
    if messages and isinstance(messages[-1], BaseMessage):
        return messages[-1].text
    return values


# -- what a graph can reach


#: ``create_agent`` keeps its tool node in the closures of its own nodes, to look up tools by name.
_FACTORY = "langchain.agents.factory"
#: Its middleware keeps what its sub-agents were made of; its ``task`` tool holds and runs them.
_SUB_AGENTS = "deepagents.middleware.subagents"


class GraphWalk(Walk):
    """Puts the gate into the tool nodes of graphs. Tools are closed: their tool node runs them."""

    targets = (CompiledStateGraph, ToolNode, RemoteGraph)
    closed = (BaseTool,)

    def __init__(self, tools: ToolGate, coverage: Coverage) -> None:
        super().__init__()
        self.tools = tools
        self.coverage = coverage
        #: Nodes and tools that run something that the user has named in ``ungated``.
        self.bypass_allowed: set[str] = set()
        self.tool_nodes = 0
        #: About the node that is being copied.
        self._facts = NodeFacts()

    def graph(self, agent: Any, where: str) -> Any:
        """Return the same graph with the gate in its tool nodes, including those of subgraphs."""
        nodes = dict(agent.nodes)
        for name, node in nodes.items():
            if name == "__start__":
                continue
            self._list_missed(node.bound, where, name)
            self._facts = NodeFacts(_node_after(agent, name), agent.checkpointer is False)
            bound = self.value(node.bound, f"{where}/{name}")
            if bound is not node.bound:
                inner = [g for g in self.contents(bound) if isinstance(g, CompiledStateGraph)]
                nodes[name] = node.copy({"bound": bound, **({"subgraphs": inner} if inner else {})})
        return agent.copy({"nodes": nodes})

    def guarded_copy(self, target: Any, where: str) -> Any:
        if isinstance(target, ToolNode):
            return self._tool_node(target, where)
        if isinstance(target, RemoteGraph):
            return target  # _list_missed has listed it
        label = where if target.name in (None, "LangGraph") else target.name
        self.coverage.gated(where, "agent", label, "its tool calls go through the gate")
        return self.graph(target, label)

    def children(self, value: Any) -> Iterable[Any]:
        return vars(value).values() if isinstance(value, Runnable) else ()

    def copy_of(self, value: Any, where: str) -> Any:
        if not isinstance(value, Runnable):
            return value  # _list_missed lists what it holds
        new = self.remember(value, copy.copy(value))
        vars(new).update({name: self.value(held, where) for name, held in vars(value).items()})
        return new

    def _is_object(self, value: Any) -> bool:
        return type(value).__module__ != _SUB_AGENTS and super()._is_object(value)

    def reaches(self, value: Any) -> bool:
        of_factory = isinstance(value, types.FunctionType) and value.__module__ == _FACTORY
        return not of_factory and super().reaches(value)

    # -- tools

    def _tool_node(self, inner: Any, where: str) -> ToolNode:
        self.tool_nodes += 1
        held, facts = dict[str, Any](), self._facts
        for name, tool in inner.tools_by_name.items():
            self.coverage.gated(where, "tool", name)
            self._list_missed(tool, where, name)
            # With the gate inside the agents that its own code runs.
            held[name] = self.copy_of(tool, f"{where}/{name}") if self.reaches(tool) else tool
        return _wrapped(inner, held, self.tools, facts)

    # -- what cannot be gated

    def _list_missed(self, value: Any, where: str, holder: str) -> None:
        """List what a node or a tool runs that bypasses the gate."""
        for item in self.contents(value):
            if isinstance(item, types.FunctionType) and item.__module__ == _FACTORY:
                self._list_provided(where, holder, _nonlocal(item, "default_tools"))
            elif isinstance(item, RunnableBinding):
                self._list_provided(where, holder, item.kwargs.get("tools"))
            elif isinstance(item, RemoteGraph):
                self._missed(where, holder, "remote graph", item.name or "remote", _REMOTE)
        for held in self.out_of_reach(value):
            if not _is_gated(held.target):
                self._list_held(where, holder, held)

    def _list_provided(self, where: str, holder: str, tools: Any) -> None:
        for name in _provider_tools(tools):
            self.coverage.hosted(where, "hosted tool", name)
            self._note_bypass(holder, name)

    def _list_held(self, where: str, holder: str, held: HeldTarget) -> None:
        own = getattr(held.target, "name", None)
        label = held.name if own in (None, "LangGraph", "tools") else own
        if isinstance(held.target, RemoteGraph):
            self._missed(where, holder, "remote graph", label, _REMOTE)
            return
        kind = "tool node" if isinstance(held.target, ToolNode) else "agent"
        why = (
            f"{holder} finds it as {held.found_as}, where it cannot be replaced: guard it where "
            "you create it, as in guard(create_agent(...), gate).graph"
        )
        self._missed(where, holder, kind, label, why)

    def _missed(self, where: str, holder: str, kind: str, name: str, why: str) -> None:
        self.coverage.missed(where, kind, name, why)
        self._note_bypass(holder, name)

    def _note_bypass(self, holder: str, name: str) -> None:
        if name in self.coverage.ungated:
            self.bypass_allowed.add(holder)


_REMOTE = "it runs on another server, so guard it there"


def _provider_tools(tools: Any) -> Iterator[str]:
    """Yield the names of the tools in a model's list that its provider runs itself."""
    for spec in tools if isinstance(tools, list | tuple) else ():
        if not isinstance(spec, Mapping) or not spec:
            continue
        kind = spec.get("type")
        ours = kind in (None, "function", "custom") and ("function" in spec or "name" in spec)
        if not ours:
            name = spec.get("server_label") or spec.get("name") or kind or next(iter(spec))
            yield str(name)


def _nonlocal(function: Any, name: str) -> Any:
    names = function.__code__.co_freevars
    return cells(function)[names.index(name)][1] if name in names else None


def _node_after(graph: Any, node: str) -> str | None:
    """Return the one node that a tool node may go to, beside the end; None if there are several."""
    branches = graph.builder.branches.get(node, {}).values()
    ends = {to for branch in branches for to in (branch.ends or {}).values()} - {END}
    return ends.pop() if len(ends) == 1 else None


def _is_gated(value: Any) -> bool:
    """Return whether ``guard`` or our middleware has gated a graph or a tool node."""
    if isinstance(value, ToolNode):
        return hasattr(value, _GATED)
    if not isinstance(value, CompiledStateGraph):
        return False
    bound = [node.bound for node in value.nodes.values()]
    hooks = [getattr(getattr(node, "func", None), "__self__", None) for node in bound]
    if any(getattr(hook, "gate", None) is not None for hook in hooks):
        return True  # HumanInTheLoopMiddleware(gate=...)
    callbacks: Any = (value.config or {}).get("callbacks") or ()
    return any(isinstance(callback, Tripwire) for callback in callbacks)


# -- the last line of defence


class Tripwire(BaseCallbackHandler):
    """Stop a tool in a guarded graph that bypassed the gate, and a model that is offered a tool
    that its provider runs.

    LangChain passes callbacks on to everything that a run starts, also to an agent that was built
    while it ran. What a tool's own body starts directly belongs to its call; an agent in it has
    its own checkpoint namespace.
    """

    raise_error = True
    run_inline = True

    def __init__(self, ungated: tuple[str, ...], bypass_allowed: frozenset[str]) -> None:
        self._ungated = ungated
        self._bypass_allowed = bypass_allowed

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        metadata: dict[str, Any] | None = None,
        name: str | None = None,
        **_: Any,
    ) -> None:
        """Raise ``SaysoError`` unless the call has passed the gate, or may bypass it."""
        tool = name or str((serialized or {}).get("name"))
        if not self._is_allowed(tool, metadata):
            raise SaysoError(
                f"{tool} was not run: it bypassed the gate, called by code that guard(...) could "
                "not see. Call it from a ToolNode; guard an agent that is built while another one "
                "runs, with guard(agent, gate).graph; or allow it without approval: "
                f"guard(..., ungated=[{tool!r}])"
            )

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: Any,
        *,
        metadata: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Raise ``SaysoError`` if a model is offered a tool that its provider runs and that may not
        bypass the gate: middleware can add one to any request."""
        for tool in _provider_tools((more.get("invocation_params") or {}).get("tools")):
            if not self._is_allowed(tool, metadata):
                raise SaysoError(
                    f"the model was not called: its provider would run {tool} without asking "
                    "first. Take it out of the request, or allow it without approval: "
                    f"guard(..., ungated=[{tool!r}])"
                )

    def _is_allowed(self, tool: str, metadata: dict[str, Any] | None) -> bool:
        namespace = str((metadata or {}).get("langgraph_checkpoint_ns") or "")
        call = running_call()
        if tool in self._ungated or (call is not None and call.namespace == namespace):
            return True
        holders = {part.partition(":")[0] for part in namespace.split("|")}
        if call is not None:
            holders.add(call.name)
        return bool(holders & self._bypass_allowed)


# -- tool nodes


#: Set on the tool nodes that we made.
_GATED = "sayso_gate"


def _wrapped(
    inner: Any, held: Mapping[str, BaseTool], tools: ToolGate, facts: NodeFacts
) -> ToolNode:
    """Return a tool node like this one, with the gate inside its other wrappers.

    People see what the wrappers make of a call, and a wrapper that retries gets the stored result.
    """
    if type(inner) is not ToolNode:
        raise SaysoError(
            f"{type(inner).__name__} is a subclass of ToolNode, which might not ask: use "
            "ToolNode itself"
        )
    tools.guarded_tools.update(held)
    wrap, awrap, barrier = inner._wrap_tool_call, inner._awrap_tool_call, PauseBarrier()

    def gated(request: Any, execute: Any) -> Any:
        def ask(changed: Any) -> Any:
            with _pause_as_signal(), inside_node(facts):
                return tools.wrap(changed, execute)

        with raise_stop_causes():
            return ask(request) if wrap is None else wrap(request, ask)

    async def agated(request: Any, execute: Any) -> Any:
        async def ask(changed: Any) -> Any:
            with _pause_as_signal(), inside_node(facts):
                return await tools.awrap(changed, execute)

        async def run() -> Any:
            with raise_stop_causes():
                return await (ask(request) if awrap is None else awrap(request, ask))

        config = request.runtime.config.get("configurable") or {}
        return await barrier.run((config.get("thread_id"), config.get("checkpoint_ns")), run())

    node = ToolNode(
        list(held.values()),
        name=inner.name,
        tags=list(inner.tags or ()) or None,
        handle_tool_errors=inner._handle_tool_errors,
        messages_key=inner._messages_key,
        wrap_tool_call=gated,
        # A node that has only a sync wrapper uses it for async calls too.
        awrap_tool_call=agated if awrap is not None or wrap is None else None,
    )
    setattr(node, _GATED, tools.gate)
    return node


@contextmanager
def _pause_as_signal() -> Iterator[None]:
    """Let a pause pass other middleware, even middleware that catches every exception."""
    try:
        yield
    except GraphBubbleUp as pause:
        raise StopSignal(pause) from None


class PauseBarrier:
    """Let a call that pauses wait for the calls beside it.

    LangGraph continues as soon as the first of them stops, and leaves the others running. The run's
    lease would be released while one of its calls still runs, and a resume would have to wait for
    it.
    """

    def __init__(self) -> None:
        self._steps: dict[Any, set[Any]] = {}

    async def run(self, step: Any, work: Awaitable[Any]) -> Any:
        """Run a call of a step. A pause is raised once no other call of the step is running."""
        tasks, task = self._steps.setdefault(step, set()), asyncio.current_task()
        tasks.add(task)
        try:
            return await work
        except GraphBubbleUp:
            await asyncio.sleep(0)  # let the others begin
            tasks.discard(task)  # two that pause must not wait for each other
            if tasks:
                await asyncio.wait(set(tasks))
            raise
        finally:
            tasks.discard(task)
            if not tasks:
                self._steps.pop(step, None)
