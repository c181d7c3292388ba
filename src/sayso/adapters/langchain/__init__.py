"""Approvals for LangChain and LangGraph.

``guard(agent, gate)`` makes every tool call of a compiled agent or graph go through a gate. You can
run and resume the result by thread, here or in ``sayso worker``. ``HumanInTheLoopMiddleware`` is a
drop-in for LangChain's own, with a ``gate``. ``@node(gate)`` makes your own nodes ask durably.

The gate is where LangChain runs tools (``choke_points.py``). The adapter uses ``interrupt()`` and
the state of a thread. It does not touch checkpoints, adds no node, and calls no model.

Read ``guard.py`` first, then ``choke_points.py``, ``tools.py``, ``interrupts.py`` and
``middleware.py``.
"""

from sayso.adapters import require

require("langchain", "langchain.agents.middleware.human_in_the_loop", "LangChain is not installed")

from sayso.adapters.agents import resume
from sayso.adapters.langchain.guard import GuardedAgent, guard
from sayso.adapters.langchain.middleware import HumanInTheLoopMiddleware, node

__all__ = ["GuardedAgent", "HumanInTheLoopMiddleware", "guard", "node", "resume"]
