"""A compiled graph behind a gate, run and resumed by its thread."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import Runnable
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt.tool_node import ToolNode

from sayso.adapters.conversation import ConversationLog
from sayso.adapters.langchain._breakpoints import stop_of
from sayso.adapters.langchain._calls import ToolGate
from sayso.adapters.langchain._questions import Questions
from sayso.adapters.langchain._together import Together
from sayso.adapters.langchain._tools import named, unanswered
from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.driven import Driven, Stands, check_gate
from sayso.gate.foreign import ForeignTool, run_of
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.threads import off_loop
from sayso.twin import look
from sayso.types import Reviewer


def guard(
    agent: Any,
    gate: Gate,
    policy: Policy | None = None,
    *,
    config: Mapping[str, Any] | None = None,
) -> GuardedAgent:
    """Make every tool call of a compiled agent or graph go through a gate.

    ``agent`` is what ``create_agent`` or ``StateGraph.compile`` gave, with a checkpointer. Without
    ``policy`` the gate's own decides, and without any every call is asked about. ``config`` is
    passed to the graph each time. The agent given is left as it is; ``.graph`` is the guarded one.
    """
    check_gate(gate, policy)
    if not isinstance(agent, CompiledStateGraph):
        kind = type(agent).__name__
        raise TypeError(
            f"guard what create_agent(...) or StateGraph.compile(...) gave, and not {kind}"
        )
    if agent.checkpointer is None or agent.checkpointer is False:
        raise SaysoError(
            "this graph has no checkpointer, so a pause would lose the run: "
            "pass checkpointer=... to create_agent or compile"
        )
    tools = ToolGate(gate, policy=policy)
    graph, found = _gated(agent, tools)
    if not found:
        raise SaysoError(
            "this graph has no ToolNode whose calls could be guarded: use create_agent, or a "
            "ToolNode, or @node(gate) for nodes of your own"
        )
    return GuardedAgent(graph, gate, config, tools)


async def resume(
    guarded: GuardedAgent, where: str, decisions: Any = None, *, by: str | Reviewer = "user"
) -> Stands:
    """Go on with a thread, after these decisions; calls that they leave out keep waiting."""
    return await guarded.resume(where, decisions=decisions, by=by)


class WordsLog(ConversationLog):
    """What the user said to a graph, and its answers. The messages in between are in LangGraph's
    checkpoints, which belong to the graph."""

    format = "langchain"


class GuardedAgent(Driven):
    """What ``guard`` gives. ``graph`` is the compiled graph itself, for streaming and the rest."""

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
        where: str,
        *,
        decisions: Any = None,
        by: str | Reviewer = "user",
        wait: float | None = None,
    ) -> Stands:
        """Resume a run, by its id or its thread; ``decisions`` are made first."""
        run = await look(self.gate.store, self.find, where)
        if run.asked:
            state = await self._state(run.thread)
            await self._questions(run.thread).tidy(state.interrupts)
        return await super().resume(where, decisions=decisions, by=by, wait=wait)

    async def begin(self, input: Any, thread: str) -> Any:
        """Words become a message; anything else is the graph's input as it is."""
        log = await self._log(thread)
        await log.say(input if isinstance(input, str) else "")
        state = await self._state(thread)
        if isinstance(input, str):
            input = {"messages": [*_unanswered(state.values), {"role": "user", "content": input}]}
        return await self._moved(input, log)

    async def go_on(self, thread: str) -> Any:
        """Decided calls need no input; questions of the graph's own nodes get their answers."""
        log = await self._log(thread)
        state = await self._state(thread)
        if await self._stays(state, thread, asks=False):
            run = run_of(self.gate.store, self.name, thread)
            await self.cancel(run, reason="it was not to go on")
            raise Paused(run, ())
        answers = self._questions(thread).answers(state.interrupts)
        return await self._moved(answers, log)

    async def order(self, thread: str) -> Sequence[str]:
        """LangGraph makes the calls of a turn all at once."""
        values = (await self._state(thread)).values
        last = _last_reply(values)
        return [named(values, call) for call in last.tool_calls] if last is not None else ()

    def known_tools(self) -> Iterable[ForeignTool]:
        tools = self._tools
        return () if tools is None else [tools.plain(tool) for tool in tools.behind.values()]

    async def _log(self, thread: str) -> ConversationLog:
        log = WordsLog(self.gate, thread)
        await log.load()
        return log

    async def _moved(self, input: Any, log: ConversationLog) -> Any:
        thread = log.thread
        values = await self._invoke(input, thread)
        state = await self._state(thread)
        if state.interrupts:
            await self._questions(thread).put(state.interrupts)
        if state.next:
            await self._stays(state, thread, asks=True)
            raise Paused(run_of(self.gate.store, self.name, thread), ())
        output = _output(values if values is not None else state.values)
        await log.end(output, content=output if isinstance(output, str) else "")
        return output

    async def _stays(self, state: Any, thread: str, *, asks: bool) -> bool:
        """Whether people want the graph to stay where it stands, if it is a breakpoint."""
        if not state.next or state.interrupts:
            return False
        whole = await self._state(thread, subgraphs=True)
        stop = await stop_of(self.graph, whole, self._read)
        return await self._questions(thread).stays(stop, asks=asks)

    def _questions(self, thread: str) -> Questions:
        return Questions(self.gate, thread)

    # -- the graph in whichever colour its checkpointer has

    def config(self, thread: str) -> dict[str, Any]:
        """The config with which the graph knows a thread."""
        configurable = {**self._config.get("configurable", {}), "thread_id": thread}
        return {**self._config, "configurable": configurable}

    async def _state(self, thread: str, *, subgraphs: bool = False) -> Any:
        return await self._read(self.config(thread), subgraphs=subgraphs)

    async def _read(self, config: Any, *, subgraphs: bool = False) -> Any:
        if self._async is not False:
            try:
                state = await self.graph.aget_state(config, subgraphs=subgraphs)
            except NotImplementedError:
                self._async = False  # SqliteSaver and PostgresSaver know only the sync colour
            else:
                self._async = True
                return state
        return await off_loop(self.graph.get_state, config, subgraphs=subgraphs)

    async def _invoke(self, input: Any, thread: str) -> Any:
        if self._async:
            return await self.graph.ainvoke(input, self.config(thread))
        return await off_loop(self.graph.invoke, input, self.config(thread))


def _gated(agent: Any, tools: ToolGate) -> tuple[Any, int]:
    """The same graph with the gate in its tool nodes, also in those of graphs within it."""
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
    """A runnable, or runnables in a list or a mapping, with the gate in all tool nodes in it:
    LangChain puts one around another, to give it a config, a retry or a next step."""
    if isinstance(value, ToolNode):
        return _wrapped(value, tools), 1
    if isinstance(value, CompiledStateGraph):
        inner, found = _gated(value, tools)
        graphs.append(inner)
        return inner, found
    if id(value) in around:  # it holds itself
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
    """A tool node like this one, with the gate inside its other wrappers: what they make of a call
    is what people see, and what they would run again is not run again."""
    if type(inner) is not ToolNode:
        raise SaysoError(
            f"{type(inner).__name__} is a ToolNode of another kind, which might not ask: use "
            "ToolNode itself"
        )
    tools.behind.update(inner.tools_by_name)
    wrap, awrap, together = inner._wrap_tool_call, inner._awrap_tool_call, Together()

    def gated(request: Any, execute: Any) -> Any:
        def ask(changed: Any) -> Any:
            with _untouched():
                return tools.wrap(changed, execute)

        with _as_it_was():
            return ask(request) if wrap is None else wrap(request, ask)

    async def agated(request: Any, execute: Any) -> Any:
        async def ask(changed: Any) -> Any:
            with _untouched():
                return await tools.awrap(changed, execute)

        async def made() -> Any:
            with _as_it_was():
                return await (ask(request) if awrap is None else awrap(request, ask))

        inside = request.runtime.config.get("configurable") or {}
        return await together.one((inside.get("thread_id"), inside.get("checkpoint_ns")), made())

    return ToolNode(
        list(inner.tools_by_name.values()),
        name=inner.name,
        tags=list(inner.tags or ()) or None,
        handle_tool_errors=inner._handle_tool_errors,
        messages_key=inner._messages_key,
        wrap_tool_call=gated,
        # A node with a sync wrapper alone runs it in both colours.
        awrap_tool_call=agated if awrap is not None or wrap is None else None,
    )


class _Stopping(BaseException):
    """A pause on its way past other middleware: one that catches every error must not catch it."""

    def __init__(self, cause: GraphBubbleUp) -> None:
        super().__init__()
        self.cause = cause


@contextmanager
def _untouched() -> Iterator[None]:
    try:
        yield
    except GraphBubbleUp as pause:
        raise _Stopping(pause) from None


@contextmanager
def _as_it_was() -> Iterator[None]:
    try:
        yield
    except _Stopping as stopping:
        raise stopping.cause from None


def _unanswered(values: Any) -> list[ToolMessage]:
    """Answers to the calls that new words left without one."""
    last = _last_reply(values)
    if last is None:
        return []
    after = takewhile(lambda message: message is not last, reversed(values["messages"]))
    return unanswered(last, list(after))


def _last_reply(values: Any) -> AIMessage | None:
    messages = values.get("messages", []) if isinstance(values, dict) else []
    return next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)


def _output(values: Any) -> Any:
    """The last words of an agent, or the answer in the form that it was to have; of another graph,
    its values as far as they are JSON."""
    from pydantic_core import to_jsonable_python

    whole = values if isinstance(values, dict) else {}
    messages, structured = whole.get("messages"), whole.get("structured_response")
    if structured is not None:
        return to_jsonable_python(structured, by_alias=True, fallback=str)
    if messages and isinstance(messages[-1], BaseMessage):
        return messages[-1].text
    return to_jsonable_python(values, fallback=str)
