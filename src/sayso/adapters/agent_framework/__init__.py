"""Approvals for the Microsoft Agent Framework.

    guarded = guard(agent, gate)                      # for `sayso serve` and `sayso worker`
    result = await guarded.run("Book a flight", thread="t-1")
    result = await guarded.resume("t-1")              # in any process, after the decision

It uses the framework's middleware: function middleware asks before each function runs, and chat
middleware stores each reply before its calls are made, and returns it again on a resume. Functions
that other code inside a run calls are asked about where the framework runs them.

Read ``guard.py`` first, then ``middleware.py``, ``choke_points.py``, ``messages.py``
and ``workflow.py``.
"""

from sayso.adapters import require

require("agent-framework", "agent_framework", "agent-framework is not installed")

from sayso.adapters.agent_framework.choke_points import install
from sayso.adapters.agent_framework.guard import Guarded, guard
from sayso.adapters.agent_framework.messages import edited, rejected, responded
from sayso.adapters.agent_framework.middleware import Gated
from sayso.adapters.agent_framework.workflow import GuardedWorkflow, WorkflowResult
from sayso.adapters.agents import resume

__all__ = [
    "Gated",
    "Guarded",
    "GuardedWorkflow",
    "WorkflowResult",
    "edited",
    "guard",
    "rejected",
    "responded",
    "resume",
]

install()
