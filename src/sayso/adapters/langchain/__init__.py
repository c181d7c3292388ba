"""LangChain and LangGraph at a gate.

``guard(agent, gate)`` takes a compiled agent or graph and puts the gate into its tool nodes, so
that no way to a tool leads past it; what it gives can be run and resumed by thread, here or by
``sayso worker``. ``HumanInTheLoopMiddleware`` is a drop-in for LangChain's own, with a ``gate`` to
stand on. ``@node(gate)`` makes a node of one's own ask durably.

Where it meets LangGraph: the two wrappers of ``ToolNode``, ``interrupt()``, and the state of a
thread. It does not touch checkpoints, adds no node, and calls no model.
"""

from __future__ import annotations

try:
    import langchain.agents.middleware.human_in_the_loop as _found  # noqa: F401
except ImportError as error:
    raise ImportError(
        'LangChain is not installed: pip install "sayso[langchain]"', name=error.name
    ) from error

from sayso.adapters.langchain._agent import GuardedAgent, guard, resume
from sayso.adapters.langchain._middleware import HumanInTheLoopMiddleware
from sayso.adapters.langchain._nodes import node

__all__ = ["GuardedAgent", "HumanInTheLoopMiddleware", "guard", "node", "resume"]
