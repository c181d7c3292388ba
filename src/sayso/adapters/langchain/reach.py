"""Walk everything that a compiled graph can reach, and put the gate in front of it.

A graph is copied with the gate in every tool node: its own, those of its subgraphs, and those of
graphs that the functions of its tools and nodes hold, which is how sub-agents are made (deepagents'
``task`` tool, an agent called inside a tool, a graph called inside a node). The copy shares
everything else with the original, which is not changed.

What a function finds by a global name or through an object cannot be replaced in a copy, and what a
provider or another server runs never comes back to us. Those are listed as not covered. And because
code can build an agent while it runs, ``Tripwire`` stops every tool that starts inside the guarded
graph without having passed the gate.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import types
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import Runnable, RunnableBinding
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt.tool_node import ToolNode
from langgraph.pregel.remote import RemoteGraph

from sayso.adapters.langchain.tools import ToolGate, passing
from sayso.errors import SaysoError
from sayso.gate.coverage import Coverage

#: What runs tools. Each is looked for wherever a function or an object may hold one.
_RUNS_TOOLS = (CompiledStateGraph, ToolNode, RemoteGraph)
#: ``create_agent`` keeps its tool node in the closures of its own nodes, to look up tools by name.
_FACTORY = "langchain.agents.factory"
#: How many objects deep to look for an agent that an object holds.
_DEPTH = 3


def gated_graph(agent: Any, tools: ToolGate, coverage: Coverage) -> Any:
    """Return a copy of a graph whose tool calls go through the gate.

    Raises ``InvalidCall`` with a list of what cannot be gated and is not named in ``ungated``.
    """
    walk = _Walk(tools, coverage)
    graph = walk.graph(agent, agent.name or "graph")
    coverage.check()
    if not walk.tool_nodes:
        raise SaysoError(
            "this graph has no ToolNode to guard: use create_agent, or a "
            "ToolNode, or @node(gate) on your own nodes"
        )
    wire = Tripwire(coverage.ungated, frozenset(walk.lets_past))
    return graph.with_config(callbacks=[wire])


@dataclass
class _Walk:
    """One walk through a graph, and the copies that it has made."""

    tools: ToolGate
    coverage: Coverage
    #: Nodes and tools that run something which the user has named in ``ungated``.
    lets_past: set[str] = field(default_factory=set)
    tool_nodes: int = 0
    #: The copies by the id of the original, which is kept alive beside it.
    _copies: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    # -- graphs and their nodes

    def graph(self, agent: Any, where: str) -> Any:
        """Return the same graph with the gate in its tool nodes, including those of subgraphs."""
        if id(agent) in self._copies:
            return self._copies[id(agent)][1]
        nodes = dict(agent.nodes)
        for name, node in nodes.items():
            if name == "__start__":
                continue
            graphs: list[Any] = []
            bound = self.value(node.bound, f"{where}/{name}", graphs)
            if bound is not node.bound:
                subgraphs = {"subgraphs": graphs} if graphs else {}
                nodes[name] = node.copy({"bound": bound, **subgraphs})
            self._missed_in(node.bound, where, name)
        copied = agent.copy({"nodes": nodes})
        self._copies[id(agent)] = agent, copied
        return copied

    def value(self, value: Any, where: str, graphs: list[Any]) -> Any:
        """Return a copy of a runnable, function or container with the gate in all tool nodes
        inside it; the value itself if there is none."""
        known = self._copies.get(id(value))
        if known is not None:
            return known[1]
        if not self._runs_tools(value):
            return value
        if isinstance(value, ToolNode):
            copied: Any = self._tool_node(value, where)
            self._copies[id(value)] = value, copied
            return copied
        if isinstance(value, CompiledStateGraph):
            label = value.name or where
            self.coverage.gated(where, "agent", label, "its tool calls go through the gate")
            copied = self.graph(value, label)
            graphs.append(copied)
            return copied
        if isinstance(value, types.FunctionType):
            return self._function(value, where, graphs)
        if isinstance(value, functools.partial):
            parts = self.value(
                {"func": value.func, "args": value.args, "keywords": value.keywords}, where, graphs
            )
            return functools.partial(parts["func"], *parts["args"], **parts["keywords"])
        if isinstance(value, Mapping):
            return {key: self.value(one, where, graphs) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([self.value(one, where, graphs) for one in value])
        if not isinstance(value, Runnable):
            return value  # it is listed as not covered
        copied = copy.copy(value)
        self._copies[id(value)] = value, copied
        vars(copied).update({k: self.value(v, where, graphs) for k, v in vars(value).items()})
        return copied

    def _function(self, function: Any, where: str, graphs: list[Any]) -> Any:
        """Return a function like this one whose closure holds the gated copies.

        Only cells that lead to a graph are replaced, so that the function still shares the others
        with the code around it.
        """
        cells = [
            types.CellType() if self._runs_tools(held) else cell for cell, held in _cells(function)
        ]
        copied = types.FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            None if not function.__defaults__ else tuple(function.__defaults__),
            tuple(cells) if function.__closure__ is not None else None,
        )
        self._copies[id(function)] = function, copied  # before its cells: functions call each other
        copied.__kwdefaults__ = function.__kwdefaults__
        copied.__annotations__ = dict(function.__annotations__)
        vars(copied).update(vars(function))
        copied.__doc__, copied.__module__ = function.__doc__, function.__module__
        copied.__qualname__ = function.__qualname__
        for cell, (old, held) in zip(cells, _cells(function), strict=True):
            if cell is not old:
                cell.cell_contents = self.value(held, where, graphs)
        copied.__defaults__ = self.value(function.__defaults__, where, graphs)
        return copied

    def _runs_tools(self, value: Any) -> bool:
        """Whether something that runs tools can be replaced inside this value."""
        return any(isinstance(one, _RUNS_TOOLS) for one in _inside(value))

    # -- tools

    def _tool_node(self, inner: Any, where: str) -> ToolNode:
        self.tool_nodes += 1
        held: dict[str, Any] = {}
        for name, tool in inner.tools_by_name.items():
            self.coverage.gated(where, "tool", name)
            held[name] = self._tool(tool, where)
        return _wrapped(inner, held, self.tools)

    def _tool(self, tool: BaseTool, where: str) -> BaseTool:
        """Return the tool, with the gate inside the agents that its own code runs."""
        place = f"{where}/{tool.name}"
        self._missed_in(tool, where, tool.name)
        graphs: list[Any] = []
        parts = {k: self.value(v, place, graphs) for k, v in vars(tool).items()}
        if all(parts[key] is one for key, one in vars(tool).items()):
            return tool
        copied = copy.copy(tool)
        vars(copied).update(parts)
        return copied

    # -- what cannot be gated

    def _missed_in(self, value: Any, where: str, holder: str) -> None:
        """List what a node or a tool runs past the gate."""
        for one in _inside(value):
            if isinstance(one, types.FunctionType):
                self._missed_by(one, where, holder)
            elif isinstance(one, RemoteGraph):
                self._miss(where, holder, "remote graph", one.name or "remote", _REMOTE)
            elif isinstance(one, RunnableBinding):
                self._provided(where, holder, one.kwargs.get("tools"))
            elif _is_plain_object(one):
                for name, held in _attributes(one):
                    self._held(where, holder, name, held, f"{type(one).__name__}.{name}")

    def _missed_by(self, function: Any, where: str, holder: str) -> None:
        if function.__module__ == _FACTORY:
            self._provided(where, holder, _nonlocal(function, "default_tools"))
            return
        for name, held in _globals(function):
            self._held(where, holder, name, held, f"the global name {name!r}")

    def _provided(self, where: str, holder: str, tools: Any) -> None:
        for name in _provider_tools(tools):
            why = "the provider runs it, and does not ask first"
            self._miss(where, holder, "hosted tool", name, why)

    def _held(self, where: str, holder: str, name: str, held: Any, by: str) -> None:
        for one in _inside(held):
            if isinstance(one, _RUNS_TOOLS) and not _asks_already(one):
                label = name if isinstance(one, ToolNode) else getattr(one, "name", None) or name
                label = name if label in ("LangGraph", "tools") else label
                if isinstance(one, RemoteGraph):
                    self._miss(where, holder, "remote graph", label, _REMOTE)
                else:
                    kind = "tool node" if isinstance(one, ToolNode) else "agent"
                    self._miss(where, holder, kind, label, _HELD.format(holder=holder, by=by))

    def _miss(self, where: str, holder: str, kind: str, name: str, why: str) -> None:
        self.coverage.missed(where, kind, name, why)
        if name in self.coverage.ungated:
            self.lets_past.add(holder)


_REMOTE = "it runs on another server, so guard it there"
_HELD = (
    "{holder} finds it as {by}, where it cannot be replaced: guard it where you create it, as in "
    "guard(create_agent(...), gate).graph"
)


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


def _asks_already(value: Any) -> bool:
    """Whether a graph or a tool node is one that ``guard`` or our middleware has gated."""
    if isinstance(value, ToolNode):
        return hasattr(value, _GATED)
    if not isinstance(value, CompiledStateGraph):
        return False
    bound = [node.bound for node in value.nodes.values()]
    if any(getattr(_bound_to(one), "gate", None) is not None for one in bound):
        return True  # HumanInTheLoopMiddleware(gate=...)
    nodes = [one for value in bound for one in _inside(value) if isinstance(one, ToolNode)]
    return all(map(_asks_already, nodes))


def _bound_to(runnable: Any) -> Any:
    return getattr(getattr(runnable, "func", None), "__self__", None)


# -- what values hold


def _inside(value: Any) -> Iterator[Any]:
    """Yield a value and everything inside it that a copy could replace: through runnables,
    containers and closures. Tools are left out: their tool node runs them."""
    seen: set[int] = set()
    left = [value]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if not isinstance(one, _RUNS_TOOLS) and (one is value or not isinstance(one, BaseTool)):
            left += _held_by(one)


def _held_by(value: Any) -> Iterable[Any]:
    """Return what a value holds, one level deep."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, types.FunctionType):
        closed = () if value.__module__ == _FACTORY else [held for _, held in _cells(value)]
        return *closed, value.__defaults__
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    return vars(value).values() if isinstance(value, Runnable) else ()


def _cells(function: Any) -> list[tuple[Any, Any]]:
    """Return the cells of a closure, each with what it holds; None for one that is empty yet."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append((cell, cell.cell_contents))
        except ValueError:
            found.append((cell, None))
    return found


def _nonlocal(function: Any, name: str) -> Any:
    held = dict(zip(function.__code__.co_freevars, _cells(function), strict=True))
    return held[name][1] if name in held else None


def _globals(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function, and the functions written inside it, look up."""
    codes, names = [function.__code__], set[str]()
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    for name in sorted(names & function.__globals__.keys()):
        held = function.__globals__[name]
        if not isinstance(held, types.ModuleType | type):
            yield name, held


def _is_plain_object(value: Any) -> bool:
    """Whether a value is an object of the user's own, whose attributes may hold agents."""
    other = (Runnable, functools.partial, type, types.ModuleType)
    if isinstance(value, other) or inspect.isroutine(value):
        return False
    return hasattr(value, "__dict__")


def _attributes(value: Any, depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    for name, held in vars(value).items():
        yield name, held
        if depth > 1 and _is_plain_object(held):
            yield from _attributes(held, depth - 1)


# -- the last line


class Tripwire(BaseCallbackHandler):
    """Stop a tool that starts inside a guarded graph and has not passed the gate.

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
        place = str((metadata or {}).get("langgraph_checkpoint_ns") or "")
        call = passing()
        if tool in self._ungated or (call is not None and call.place[0] == place):
            return
        around = {part.partition(":")[0] for part in place.split("|")}
        if call is not None:
            around.add(call.name)
        if around & self._lets_past:
            return
        raise SaysoError(
            f"{tool} was not run: it was called past the gate, by code that guard(...) could not "
            "see. Call it from a ToolNode; guard an agent that is built while another one runs, "
            f"with guard(agent, gate).graph; or let it run without anyone being asked: "
            f"guard(..., ungated=[{tool!r}])"
        )


# -- tool nodes


#: Set on the tool nodes that we made.
_GATED = "sayso_gate"


def _wrapped(inner: Any, held: Mapping[str, BaseTool], tools: ToolGate) -> ToolNode:
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
