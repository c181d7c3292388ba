"""Walk everything that a compiled graph can reach, and put the gate in front of it.

A graph is copied with the gate in every tool node: its own, those of its subgraphs, and those of
graphs that the functions of its tools and nodes hold, which is how sub-agents are made (deepagents'
``task`` tool, an agent called inside a tool, a graph called inside a node). The copy shares
everything else with the original, which is not changed.

What a function finds by a global name or through an object cannot be replaced in a copy, and what a
provider or another server runs never comes back to us. Those are listed as not covered. And because
code can build an agent while it runs, ``Tripwire`` stops every tool that starts inside the guarded
graph without having passed the gate, and every model that is offered a tool of its provider.
"""

from __future__ import annotations

import asyncio
import copy
import types
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import Runnable, RunnableBinding
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt.tool_node import ToolNode
from langgraph.pregel.remote import RemoteGraph

from sayso.adapters.langchain.tools import NodeFacts, ToolGate, inside_node, passing
from sayso.adapters.reach import Held, Walk, cells
from sayso.errors import SaysoError
from sayso.gate.coverage import Coverage

#: ``create_agent`` keeps its tool node in the closures of its own nodes, to look up tools by name.
_FACTORY = "langchain.agents.factory"
#: Its middleware keeps what its sub-agents were made of; its ``task`` tool holds and runs them.
_SUB_AGENTS = "deepagents.middleware.subagents"


def gated_graph(agent: Any, tools: ToolGate, coverage: Coverage) -> Any:
    """Return a copy of a graph whose tool calls go through the gate.

    Raises ``InvalidCall`` with a list of what cannot be gated and is not named in ``ungated``.
    """
    walk = GraphWalk(tools, coverage)
    graph = walk.graph(agent, agent.name or "graph")
    coverage.check()
    if not walk.tool_nodes:
        raise SaysoError(
            "this graph has no ToolNode to guard: use create_agent, or a "
            "ToolNode, or @node(gate) on your own nodes"
        )
    wire = Tripwire(coverage.ungated, frozenset(walk.lets_past))
    return graph.with_config(callbacks=[wire])


class GraphWalk(Walk):
    """Puts the gate into the tool nodes of graphs. Tools are closed: their tool node runs them."""

    targets = (CompiledStateGraph, ToolNode, RemoteGraph)
    closed = (BaseTool,)

    def __init__(self, tools: ToolGate, coverage: Coverage) -> None:
        super().__init__()
        self.tools = tools
        self.coverage = coverage
        #: Nodes and tools that run something which the user has named in ``ungated``.
        self.lets_past: set[str] = set()
        self.tool_nodes = 0
        #: About the node at hand.
        self._facts = NodeFacts()

    def graph(self, agent: Any, where: str) -> Any:
        """Return the same graph with the gate in its tool nodes, including those of subgraphs."""
        nodes = dict(agent.nodes)
        for name, node in nodes.items():
            if name == "__start__":
                continue
            self._list_missed(node.bound, where, name)
            self._facts = NodeFacts(_way_back(agent, name), agent.checkpointer is False)
            bound = self.value(node.bound, f"{where}/{name}")
            if bound is not node.bound:
                inner = [one for one in self.inside(bound) if isinstance(one, CompiledStateGraph)]
                nodes[name] = node.copy({"bound": bound, **({"subgraphs": inner} if inner else {})})
        return agent.copy({"nodes": nodes})

    def guarded(self, target: Any, where: str) -> Any:
        if isinstance(target, ToolNode):
            return self._tool_node(target, where)
        if isinstance(target, RemoteGraph):
            return target  # it is listed as missed
        label = where if target.name in (None, "LangGraph") else target.name
        self.coverage.gated(where, "agent", label, "its tool calls go through the gate")
        return self.graph(target, label)

    def held_by(self, value: Any) -> Iterable[Any]:
        return vars(value).values() if isinstance(value, Runnable) else ()

    def copied(self, value: Any, where: str) -> Any:
        if not isinstance(value, Runnable):
            return value  # what it holds is listed as missed
        new = self.keep(value, copy.copy(value))
        vars(new).update({name: self.value(one, where) for name, one in vars(value).items()})
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
            held[name] = self.copied(tool, f"{where}/{name}") if self.reaches(tool) else tool
        return _wrapped(inner, held, self.tools, facts)

    # -- what cannot be gated

    def _list_missed(self, value: Any, where: str, holder: str) -> None:
        """List what a node or a tool runs past the gate."""
        for one in self.inside(value):
            if isinstance(one, types.FunctionType) and one.__module__ == _FACTORY:
                self._list_provided(where, holder, _nonlocal(one, "default_tools"))
            elif isinstance(one, RunnableBinding):
                self._list_provided(where, holder, one.kwargs.get("tools"))
            elif isinstance(one, RemoteGraph):
                self._missed(where, holder, "remote graph", one.name or "remote", _REMOTE)
        for held in self.out_of_reach(value):
            if not _asks_already(held.value):
                self._list_held(where, holder, held)

    def _list_provided(self, where: str, holder: str, tools: Any) -> None:
        for name in _provider_tools(tools):
            why = "the provider runs it, and does not ask first"
            self._missed(where, holder, "hosted tool", name, why)

    def _list_held(self, where: str, holder: str, held: Held) -> None:
        own = getattr(held.value, "name", None)
        label = held.name if own in (None, "LangGraph", "tools") else own
        if isinstance(held.value, RemoteGraph):
            self._missed(where, holder, "remote graph", label, _REMOTE)
            return
        kind = "tool node" if isinstance(held.value, ToolNode) else "agent"
        why = (
            f"{holder} finds it as {held.by}, where it cannot be replaced: guard it where you "
            "create it, as in guard(create_agent(...), gate).graph"
        )
        self._missed(where, holder, kind, label, why)

    def _missed(self, where: str, holder: str, kind: str, name: str, why: str) -> None:
        self.coverage.missed(where, kind, name, why)
        if name in self.coverage.ungated:
            self.lets_past.add(holder)


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


def _way_back(graph: Any, node: str) -> str | None:
    """Return the one node that a tool node may go to, beside the end; None if there are several."""
    branches = graph.builder.branches.get(node, {}).values()
    ends = {to for branch in branches for to in (branch.ends or {}).values()} - {END}
    return ends.pop() if len(ends) == 1 else None


def _asks_already(value: Any) -> bool:
    """Whether a graph or a tool node is one that ``guard`` or our middleware has gated."""
    if isinstance(value, ToolNode):
        return hasattr(value, _GATED)
    if not isinstance(value, CompiledStateGraph):
        return False
    bound = [node.bound for node in value.nodes.values()]
    hooks = [getattr(getattr(one, "func", None), "__self__", None) for one in bound]
    if any(getattr(hook, "gate", None) is not None for hook in hooks):
        return True  # HumanInTheLoopMiddleware(gate=...)
    callbacks: Any = (value.config or {}).get("callbacks") or ()
    return any(isinstance(one, Tripwire) for one in callbacks)


# -- the last line


class Tripwire(BaseCallbackHandler):
    """Stop a tool that starts inside a guarded graph and has not passed the gate, and a model that
    is offered a tool which its provider runs.

    LangChain passes callbacks on to everything that a run starts, also to an agent that was built
    while it ran. What a tool's own body starts directly belongs to its call; an agent in it has a
    checkpoint namespace of its own.
    """

    raise_error = True
    run_inline = True

    def __init__(self, ungated: tuple[str, ...], lets_past: frozenset[str]) -> None:
        self._ungated = ungated
        self._lets_past = lets_past

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        metadata: dict[str, Any] | None = None,
        name: str | None = None,
        **_: Any,
    ) -> None:
        """Raise ``SaysoError`` unless the call has passed the gate, or may go past it."""
        tool = name or str((serialized or {}).get("name"))
        if not self._may_pass(tool, metadata):
            raise SaysoError(
                f"{tool} was not run: it was called past the gate, by code that guard(...) could "
                "not see. Call it from a ToolNode; guard an agent that is built while another one "
                "runs, with guard(agent, gate).graph; or let it run without anyone being asked: "
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
        """Raise ``SaysoError`` if a model is offered a tool that its provider runs, and that may
        not go past the gate: middleware can add one to any request."""
        for tool in _provider_tools((more.get("invocation_params") or {}).get("tools")):
            if not self._may_pass(tool, metadata):
                raise SaysoError(
                    f"the model was not called: its provider would run {tool}, and does not ask "
                    "first. Take it out of the request, or let it run without anyone being asked: "
                    f"guard(..., ungated=[{tool!r}])"
                )

    def _may_pass(self, tool: str, metadata: dict[str, Any] | None) -> bool:
        place = str((metadata or {}).get("langgraph_checkpoint_ns") or "")
        call = passing()
        if tool in self._ungated or (call is not None and call.place[0] == place):
            return True
        around = {part.partition(":")[0] for part in place.split("|")}
        if call is not None:
            around.add(call.name)
        return bool(around & self._lets_past)


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
    tools.behind.update(held)
    wrap, awrap, barrier = inner._wrap_tool_call, inner._awrap_tool_call, PauseBarrier()

    def gated(request: Any, execute: Any) -> Any:
        def ask(changed: Any) -> Any:
            with _hide_pause(), inside_node(facts):
                return tools.wrap(changed, execute)

        with _reveal_pause():
            return ask(request) if wrap is None else wrap(request, ask)

    async def agated(request: Any, execute: Any) -> Any:
        async def ask(changed: Any) -> Any:
            with _hide_pause(), inside_node(facts):
                return await tools.awrap(changed, execute)

        async def made() -> Any:
            with _reveal_pause():
                return await (ask(request) if awrap is None else awrap(request, ask))

        inside = request.runtime.config.get("configurable") or {}
        return await barrier.one((inside.get("thread_id"), inside.get("checkpoint_ns")), made())

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
