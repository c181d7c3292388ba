"""Run and resume a compiled LangGraph graph by its thread, with a gate in front of its tools."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import Runnable
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt.tool_node import ToolNode

from sayso.adapters.conversation import ConversationLog
from sayso.adapters.langchain.interrupts import InterruptQuestions, breakpoint_of
from sayso.adapters.langchain.tools import ToolGate, missing_results, numbered_id
from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.framework import FrameworkAgent, FrameworkTool, check_gate, run_of
from sayso.gate.run_result import RunResult, RunState
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.sync import read, run_user_function
from sayso.types import Reviewer


def guard(
    agent: Any,
    gate: Gate,
    policy: Policy | None = None,
    *,
    config: Mapping[str, Any] | None = None,
) -> GuardedAgent:
    """Make every tool call of a compiled agent or graph go through a gate.

    ``agent`` is the result of ``create_agent`` or ``StateGraph.compile``, with a checkpointer.
    ``policy`` replaces the gate's own; if neither has rules, every call needs approval. ``config``
    is passed to the graph on every run. ``agent`` itself is not changed; ``.graph`` is the guarded
    copy.

    Raises ``TypeError`` for anything but a compiled graph, and ``SaysoError`` for a graph without a
    checkpointer, or without a ``ToolNode`` to guard.
    """
    check_gate(gate, policy)
    if not isinstance(agent, CompiledStateGraph):
        kind = type(agent).__name__
        raise TypeError(
            "guard(...) takes the result of create_agent(...) or StateGraph.compile(...), "
            f"not {kind}"
        )
    if agent.checkpointer is None or agent.checkpointer is False:
        raise SaysoError(
            "this graph has no checkpointer, so a pause would lose its state: "
            "pass checkpointer=... to create_agent or compile"
        )
    tools = ToolGate(gate, policy=policy)
    graph, found = _gated(agent, tools)
    if not found:
        raise SaysoError(
            "this graph has no ToolNode to guard: use create_agent, or a "
            "ToolNode, or @node(gate) on your own nodes"
        )
    return GuardedAgent(graph, gate, config, tools)


async def resume(
    guarded: GuardedAgent, where: str, decisions: Any = None, *, by: str | Reviewer = "user"
) -> RunResult:
    """Resume a thread after these decisions. Calls without a decision stay pending."""
    return await guarded.resume(where, decisions=decisions, by=by)


class InputLog(ConversationLog):
    """What the user said to a graph, and its answers.

    The messages in between are in LangGraph's checkpoints, which belong to the graph.
    """

    format = "langchain"


class GuardedAgent(FrameworkAgent):
    """A guarded graph; ``guard`` returns one. Use ``graph``, the compiled graph, for streaming
    and the rest."""

    channel = "langchain"

    def __init__(
        self,
        graph: Any,
        gate: Gate,
        config: Mapping[str, Any] | None = None,
        tools: ToolGate | None = None,
    ) -> None:
        super().__init__(gate, Inbox(gate.store))
        self.graph = graph
        self.policy = None if tools is None else tools.policy
        self._tools = tools
        self._config = dict(config or {})
        self._async: bool | None = None

    async def resume(
        self,
        where: RunState | str,
        *,
        decisions: Any = None,
        by: str | Reviewer = "user",
        wait: float | None = None,
    ) -> RunResult:
        """Resume a run by its id or its thread. ``decisions`` are recorded first."""
        run = await read(self.gate.store, self.find, where)
        if run.asked:
            state = await self._state(run.thread)
            await InterruptQuestions(self.gate, run.thread).cancel_answered(state.interrupts)
        return await super().resume(where, decisions=decisions, by=by, wait=wait)

    async def begin(self, input: Any, thread: str) -> Any:
        """Run the graph. Text becomes a user message; anything else is the graph's input."""
        log = await self._log(thread)
        await log.say(input if isinstance(input, str) else "")
        state = await self._state(thread)
        if isinstance(input, str):
            input = {"messages": [*_unanswered(state.values), {"role": "user", "content": input}]}
        return await self._advance(input, log)

    async def go_on(self, thread: str) -> Any:
        """Continue the graph: nodes that interrupted get their answers, decided calls need no
        input."""
        log = await self._log(thread)
        state = await self._state(thread)
        if await self._stay(state, thread, asks=False):
            run = run_of(self.gate.store, self.name, thread)
            await self.cancel(run, reason="a person decided not to continue")
            raise Paused(run, ())
        answers = InterruptQuestions(self.gate, thread).answers(state.interrupts)
        return await self._advance(answers, log)

    async def order(self, thread: str) -> Sequence[str]:
        """Return the keys of the last reply's calls: LangGraph makes them all at once."""
        values = (await self._state(thread)).values
        last = _last_reply(values)
        return [numbered_id(values, call) for call in last.tool_calls] if last is not None else ()

    def known_tools(self) -> Iterable[FrameworkTool]:
        tools = self._tools
        return (
            () if tools is None else [tools.framework_tool(tool) for tool in tools.behind.values()]
        )

    async def _log(self, thread: str) -> ConversationLog:
        log = InputLog(self.gate, thread)
        await log.load()
        return log

    async def _advance(self, input: Any, log: ConversationLog) -> Any:
        thread = log.thread
        values = await self._invoke(input, thread)
        state = await self._state(thread)
        if state.interrupts:
            await InterruptQuestions(self.gate, thread).ask(state.interrupts)
        if state.next:
            await self._stay(state, thread, asks=True)
            raise Paused(run_of(self.gate.store, self.name, thread), ())
        output = _output(values if values is not None else state.values)
        await log.end(output, content=output if isinstance(output, str) else "")
        return output

    async def _stay(self, state: Any, thread: str, *, asks: bool) -> bool:
        """Whether people want the graph to stay at its breakpoint, if it is at one."""
        if not state.next or state.interrupts:
            return False
        whole = await self._state(thread, subgraphs=True)
        stop = await breakpoint_of(self.graph, whole, self._read)
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

    async def _invoke(self, input: Any, thread: str) -> Any:
        if self._async:
            return await self.graph.ainvoke(input, self.config(thread))
        return await run_user_function(self.graph.invoke, input, self.config(thread))


def _gated(agent: Any, tools: ToolGate) -> tuple[Any, int]:
    """Return the same graph with the gate in its tool nodes, including those of subgraphs."""
    nodes, found = dict(agent.nodes), 0
    for name, node in nodes.items():
        graphs: list[Any] = []
        bound, more = _gated_in(node.bound, tools, graphs)
        if more:
            subgraphs = {"subgraphs": graphs} if graphs else {}
            nodes[name] = node.copy({"bound": bound, **subgraphs})
            found += more
    return agent.copy({"nodes": nodes}), found


def _gated_in(
    value: Any, tools: ToolGate, graphs: list[Any], around: frozenset[int] = frozenset()
) -> tuple[Any, int]:
    """Put the gate into all tool nodes inside a runnable, or inside a list or mapping of runnables.

    LangChain wraps one runnable in another to give it a config, a retry or a next step.
    """
    if isinstance(value, ToolNode):
        return _wrapped(value, tools), 1
    if isinstance(value, CompiledStateGraph):
        inner, found = _gated(value, tools)
        graphs.append(inner)
        return inner, found
    if id(value) in around:  # a cycle
        return value, 0
    held: Any = ()
    if isinstance(value, Mapping):
        held = value.items()
    elif isinstance(value, list | tuple):
        held = enumerate(value)
    elif isinstance(value, Runnable):
        held = getattr(value, "__dict__", {}).items()
    inside = around | {id(value)}
    parts = {key: _gated_in(one, tools, graphs, inside) for key, one in held}
    found = sum(number for _, number in parts.values())
    if not found:
        return value, 0
    changed = {key: one for key, (one, _) in parts.items()}
    if isinstance(value, Runnable):
        value = copy.copy(value)
        vars(value).update(changed)
        return value, found
    if isinstance(value, Mapping):
        return changed, found
    return type(value)(changed.values()), found


def _wrapped(inner: Any, tools: ToolGate) -> ToolNode:
    """Return a tool node like this one, with the gate inside its other wrappers.

    People see what the wrappers make of a call, and a wrapper that retries gets the stored result.
    """
    if type(inner) is not ToolNode:
        raise SaysoError(
            f"{type(inner).__name__} is a subclass of ToolNode, which might not ask: use "
            "ToolNode itself"
        )
    tools.behind.update(inner.tools_by_name)
    wrap, awrap, barrier = inner._wrap_tool_call, inner._awrap_tool_call, PauseBarrier()

    def gated(request: Any, execute: Any) -> Any:
        def ask(changed: Any) -> Any:
            with _hide_pause():
                return tools.wrap(changed, execute)

        with _reveal_pause():
            return ask(request) if wrap is None else wrap(request, ask)

    async def agated(request: Any, execute: Any) -> Any:
        async def ask(changed: Any) -> Any:
            with _hide_pause():
                return await tools.awrap(changed, execute)

        async def made() -> Any:
            with _reveal_pause():
                return await (ask(request) if awrap is None else awrap(request, ask))

        inside = request.runtime.config.get("configurable") or {}
        return await barrier.one((inside.get("thread_id"), inside.get("checkpoint_ns")), made())

    return ToolNode(
        list(inner.tools_by_name.values()),
        name=inner.name,
        tags=list(inner.tags or ()) or None,
        handle_tool_errors=inner._handle_tool_errors,
        messages_key=inner._messages_key,
        wrap_tool_call=gated,
        # A node that has only a sync wrapper uses it for async calls too.
        awrap_tool_call=agated if awrap is not None or wrap is None else None,
    )


class _PauseSignal(BaseException):
    """A pause on its way past other middleware, even middleware that catches every exception."""

    def __init__(self, cause: GraphBubbleUp) -> None:
        super().__init__()
        self.cause = cause


@contextmanager
def _hide_pause() -> Iterator[None]:
    try:
        yield
    except GraphBubbleUp as pause:
        raise _PauseSignal(pause) from None


@contextmanager
def _reveal_pause() -> Iterator[None]:
    try:
        yield
    except _PauseSignal as stopping:
        raise stopping.cause from None


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
    """Return the last message's text, or the structured response; for other graphs, their values
    as JSON."""
    from pydantic_core import to_jsonable_python

    whole = values if isinstance(values, dict) else {}
    messages, structured = whole.get("messages"), whole.get("structured_response")
    if structured is not None:
        return to_jsonable_python(structured, by_alias=True, fallback=str)
    if messages and isinstance(messages[-1], BaseMessage):
        return messages[-1].text
    return to_jsonable_python(values, fallback=str)


class PauseBarrier:
    """Let a call that pauses wait for the calls beside it.

    LangGraph continues as soon as the first of them stops, and leaves the others running. The run's
    lease would be released while one of its calls still runs, and a resume would have to wait for
    it.
    """

    def __init__(self) -> None:
        self._steps: dict[Any, set[Any]] = {}

    async def one(self, step: Any, work: Awaitable[Any]) -> Any:
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
