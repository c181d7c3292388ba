"""Run and resume a LangGraph graph by its thread, with a gate in front of its tools.

``guard`` copies a graph. In the copy each node is a ``GuardedNode``: what it runs belongs to a
guarded run, in every task and OS thread. The gate itself is where LangChain runs tools
(``choke_points.py``), so it does not matter how code finds a tool or another agent.

What a provider or another server runs never comes back to us. ``guard`` refuses what the graph
declares of that kind, and the gate refuses the rest when it is about to run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import takewhile
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableBinding, RunnableSequence
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt.tool_node import ToolNode
from langgraph.pregel import Pregel
from langgraph.pregel.remote import RemoteGraph

from sayso.adapters.agents import Listener, Stream, StreamingAgent, listener
from sayso.adapters.conversation import ConversationLog
from sayso.adapters.langchain.choke_points import REMOTE, install
from sayso.adapters.langchain.interrupts import InterruptQuestions, breakpoint_of
from sayso.adapters.langchain.requests import list_unlisted
from sayso.adapters.langchain.tools import (
    check_all_ran,
    described,
    missing_results,
    numbered_id,
    thread_id,
    with_graph,
)
from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.framework import FrameworkTool, check_gate
from sayso.gate.guarded_runs import guarded_run
from sayso.gate.run_result import RunResult, RunState
from sayso.policy import Policy
from sayso.rows import Run
from sayso.sync import context_value, run_user_function
from sayso.types import Json, Reviewer

#: What stopped nodes of the graph that runs here: interrupts, and breakpoints of subgraphs.
_stops: ContextVar[list[GraphBubbleUp]] = ContextVar("sayso_langchain_stops")
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

    ``agent`` is the result of ``create_agent``, ``create_deep_agent``, ``StateGraph.compile`` or
    ``@entrypoint``. Tools of subgraphs and sub-agents are gated too, and those of agents that its
    tools and nodes run. The rules of ``policy`` come before those of the gate. A call that none of
    them matches needs approval. ``config`` is passed to the graph on every run. ``agent`` itself is
    not changed; ``.graph`` is the guarded copy, for ``langgraph dev`` and for everything that a
    graph can do. ``run`` and ``resume`` need a checkpointer; a server brings its own.

    Raises ``TypeError`` for anything but a graph, and ``InvalidCall`` with a list of what never
    comes back to the gate, such as tools that the provider runs, unless ``ungated`` names it.
    """
    check_gate(gate, policy)
    if not isinstance(agent, Pregel):
        kind = type(agent).__name__
        raise TypeError(
            "guard(...) takes the result of create_agent(...), StateGraph.compile(...) or "
            f"@entrypoint(...), not {kind}"
        )
    coverage = Coverage(ungated)
    tools = list(_list_declared(agent, agent.name or "graph", coverage))
    coverage.check()
    nodes = {
        name: node.copy({"bound": GuardedNode(node.bound, agent, gate, policy, coverage.ungated)})
        for name, node in agent.nodes.items()
        if name != "__start__"
    }
    graph = agent.copy({"nodes": {**agent.nodes, **nodes}})
    return GuardedAgent(graph, gate, config, policy, coverage, tools)


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
        policy: Policy | None = None,
        coverage: Coverage | None = None,
        tools: Sequence[BaseTool] = (),
    ) -> None:
        super().__init__(gate, policy, coverage)
        install()
        self.graph = graph
        self._tools = tools
        self._config = dict(config or {})
        self._async = True
        breakpoints = graph.interrupt_before_nodes or graph.interrupt_after_nodes
        nodes = [node.bound for name, node in graph.nodes.items() if name != "__start__"]
        #: Whether whatever stops the graph stops one of its nodes.
        self._stops_in_nodes = not breakpoints and all(isinstance(n, GuardedNode) for n in nodes)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a guarded graph cannot be pickled, because its gate holds an open store: import it in "
            "the other process, or call guard(...) there"
        )

    async def read_decisions(self, run: Run, decisions: Any) -> Any:
        if run.asked and not _is_lost(state := await self._state(run.thread)):
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
        if isinstance(input, str) and isinstance(self.graph, CompiledStateGraph):
            results = _results_of_last_reply(state.values)
            input = {"messages": [*results, {"role": "user", "content": input}]}
        return await self._advance(input, log)

    async def go_on(self, thread: str) -> Any:
        """Continue the graph. Nodes that interrupted get their answers."""
        log = await self.open_log(thread)
        state = await self._state(thread)
        if await self._is_given_up(state, thread):
            run = log.run
            await self.cancel(run, reason="a person decided not to continue")
            raise Paused(run)
        answers = await InterruptQuestions(self.gate, thread).answers(state.interrupts)
        return await self._advance(answers, log, resumed=True)

    async def call_order(self, thread: str) -> Sequence[str]:
        """Return the keys of the last reply's calls: LangGraph makes them all at once."""
        values = (await self._state(thread)).values
        last = _last_reply(values)
        return [numbered_id(values, call) for call in last.tool_calls] if last is not None else ()

    def known_tools(self) -> Iterable[FrameworkTool]:
        return map(described, self._tools)

    async def _advance(self, input: Any, log: ConversationLog, *, resumed: bool = False) -> Any:
        thread = log.thread
        stops: list[GraphBubbleUp] = []
        with context_value(_stops, stops):
            values = await self._invoke(input, thread)
        returned = isinstance(values, dict) and "__interrupt__" not in values
        if stops or not (returned and self._stops_in_nodes):
            state = await self._state(thread)
            values = state.values if values is None else values
            self.keep_raw(log.run, values)
            if state.interrupts:
                await InterruptQuestions(self.gate, thread).ask(state.interrupts)
            if state.next:
                await self._stays_at_breakpoint(state, thread, asks=True)
                raise Paused(log.run)
        self.keep_raw(log.run, values)
        if resumed:
            await check_all_ran(self.gate.store, log.run)
        output = _output(values)
        content = output if isinstance(output, str) else ""
        await log.end(self.dump_output(output), content=content)
        return output

    async def load_output(self, thread: str, stored: Json) -> Any:
        """Return the output from the checkpoint, which has the graph's own types."""
        values = (await self._state(thread)).values
        return _output(values) if values else stored

    async def _is_given_up(self, state: Any, thread: str) -> bool:
        """Return whether people decided that the graph does not continue.

        Raises ``SaysoError`` if it cannot, because its checkpoints are gone."""
        if not _is_lost(state):
            return await self._stays_at_breakpoint(state, thread, asks=False)
        saver = type(self.graph.checkpointer).__name__
        error = (
            f"the checkpointer {saver} has no checkpoint of the thread {thread!r}, so the graph "
            "cannot continue, and calls that were approved did not run: resume it with the "
            "checkpointer that it began with, or restore its checkpoints"
        )
        if await InterruptQuestions(self.gate, thread).gave_up(error):
            return True
        raise SaysoError(error)

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
        if self._async:
            try:
                return await self.graph.aget_state(config, subgraphs=subgraphs)
            except NotImplementedError:
                self._async = False  # SqliteSaver and PostgresSaver are sync only
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


def _is_lost(state: Any) -> bool:
    """Return whether a thread has no checkpoint."""
    return state.created_at is None


def _results_of_last_reply(values: Any) -> list[BaseMessage]:
    """Return a result for each call of the last reply, in case new input comes before its end.

    LangGraph forgets the results of a step that waits for people. One that it did not forget keeps
    its place, by its id.
    """
    last = _last_reply(values)
    if last is None:
        return []
    after = list(takewhile(lambda message: message is not last, reversed(values["messages"])))[::-1]
    return [*after, *missing_results(last, after)]


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


# -- what a graph declares


class GuardedNode(Runnable[Any, Any]):
    """A node of a guarded graph: what it runs is part of the guarded run, wherever it runs."""

    def __init__(self, node: Any, graph: Any, gate: Gate, policy: Policy | None, ungated: Any):
        self.node = node
        self._graph = graph
        self._gate = gate
        self._policy = policy
        self._ungated = ungated

    def invoke(self, input: Any, config: Any = None, **options: Any) -> Any:
        with self._inside(config):
            return self.node.invoke(input, with_graph(config, self._graph), **options)

    async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:
        with self._inside(config):
            return await self.node.ainvoke(input, with_graph(config, self._graph), **options)

    @contextmanager
    def _inside(self, config: Any) -> Iterator[None]:
        thread = thread_id(config or {}, "")
        with guarded_run(self._gate, self._policy, thread, self._ungated):
            try:
                yield
            except GraphBubbleUp as stop:
                _stops.get([]).append(stop)  # nobody reads it where ``run`` has not set it
                raise


def _list_declared(graph: Any, where: str, coverage: Coverage) -> Iterator[BaseTool]:
    """List what the nodes of a graph and of its subgraphs declare. Yield their tools."""
    for name, node in graph.nodes.items():
        for part in _parts(node.bound):
            if isinstance(part, ToolNode):
                for tool in part.tools_by_name.values():
                    coverage.gated(f"{where}/{name}", "tool", tool.name)
                    yield tool
            elif isinstance(part, RemoteGraph):
                coverage.missed(where, "remote graph", part.name or "remote", REMOTE)
            elif isinstance(part, Pregel):
                label = name if part.name in (None, "LangGraph") else part.name
                coverage.gated(where, "agent", label, "its tool calls go through the gate")
                yield from _list_declared(part, label, coverage)
            else:
                list_unlisted(coverage, where, *_model_and_options(part))


def _parts(bound: Any) -> Iterator[Any]:
    """Yield the tool nodes, graphs and models that a node declares."""
    variables: Mapping[str, Any] = {}
    function = vars(bound).get("func") or vars(bound).get("afunc")
    if getattr(function, "__module__", "") == _FACTORY:
        variables = inspect.getclosurevars(inspect.unwrap(function)).nonlocals
    if isinstance(variables.get("model"), BaseChatModel):
        yield variables["model"].bind(tools=variables.get("default_tools"))
    elif isinstance(bound, GuardedNode):
        yield from _parts(bound.node)
    elif isinstance(bound, RunnableSequence):
        for step in bound.steps:
            yield from _parts(step)
    elif isinstance(bound, ToolNode | RemoteGraph | Pregel | BaseChatModel | RunnableBinding):
        yield bound


def _model_and_options(model: Any) -> tuple[Any, dict[str, Any]]:
    options: dict[str, Any] = {}
    while isinstance(model, RunnableBinding):
        options = {**model.kwargs, **options}
        model = model.bound
    return model, options


#: ``create_agent`` keeps its model in the closure of the node that calls it.
_FACTORY = "langchain.agents.factory"
