"""Where a graph has stopped by itself: at a breakpoint of its own, or of a graph in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.types import StateSnapshot

Read = Callable[[Any], Awaitable[StateSnapshot]]


@dataclass(frozen=True)
class Stop:
    """A place where nothing runs, and nobody is waited for."""

    #: The checkpoints of the graphs that stand, innermost.
    place: str
    #: The nodes that come next.
    names: tuple[str, ...]
    #: Whether a breakpoint is there; else the graph was cut short.
    meant: bool


async def stop_of(graph: Any, state: StateSnapshot, read: Read, within: str = "") -> Stop:
    """Where a graph stands, by its state with those of the graphs in it. What somebody writes into
    the state while it waits (``update_state``) does not make it another place."""
    graphs = dict(graph.get_subgraphs())
    inner = [
        await stop_of(graphs[task.name], task.state, read, f"{within}{task.name}.")
        for task in state.tasks
        if isinstance(task.state, StateSnapshot) and task.state.next
    ]
    if inner:
        names = tuple(name for stop in inner for name in stop.names)
        return Stop(" ".join(s.place for s in inner), names, any(s.meant for s in inner))
    names = tuple(state.next)
    while (state.metadata or {}).get("source") == "update" and state.parent_config is not None:
        state = await read(state.parent_config)
    meant = _among(names, graph.interrupt_before_nodes)
    if not meant and graph.interrupt_after_nodes and state.parent_config is not None:
        before = await read(state.parent_config)
        meant = _among(before.next, graph.interrupt_after_nodes)
    place = state.config.get("configurable", {}).get("checkpoint_id")
    return Stop(str(place), tuple(f"{within}{name}" for name in names), meant)


def _among(names: Sequence[str], breakpoints: Any) -> bool:
    """Whether a graph stops at one of these; its own first step is none."""
    nodes = [name for name in names if not name.startswith("__")]
    return bool(nodes) if breakpoints == "*" else any(name in breakpoints for name in nodes)
