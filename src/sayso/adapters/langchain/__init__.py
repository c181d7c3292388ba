"""Approvals for LangChain and LangGraph.

``guard(agent, gate)`` puts a gate into every tool node of a compiled agent or graph, so that no
call reaches a tool without it. You can run and resume the result by thread, here or in ``sayso
worker``. ``HumanInTheLoopMiddleware`` is a drop-in for LangChain's own, with a ``gate``.
``@node(gate)`` makes your own nodes ask durably.

It uses the two wrappers of ``ToolNode``, ``interrupt()``, and the state of a thread. It does not
touch checkpoints, adds no node, and calls no model.

Read ``guard.py`` first, then ``tools.py``, ``interrupts.py`` and ``middleware.py``.
"""

from sayso.adapters import require

require("langchain", "langchain.agents.middleware.human_in_the_loop", "LangChain is not installed")

from sayso.adapters.agents import resume
from sayso.adapters.langchain.guard import GuardedAgent, guard
from sayso.adapters.langchain.middleware import HumanInTheLoopMiddleware, node

__all__ = ["GuardedAgent", "HumanInTheLoopMiddleware", "guard", "node", "resume"]
