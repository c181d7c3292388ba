"""Approvals for the Microsoft Agent Framework.

    guarded = guard(agent, gate)                      # for `sayso serve` and `sayso worker`
    result = await guarded.run("Book a flight", thread="t-1")
    result = await guarded.resume("t-1")              # in any process, after the decision

It uses the framework's middleware: function middleware asks before each function runs, and chat
middleware stores each reply before its calls are made, and returns it again on a resume.

Read ``guard.py`` first, then ``reach.py``, ``middleware.py``, ``messages.py`` and ``workflow.py``.
"""

from __future__ import annotations

from sayso.adapters import check_versions

check_versions("agent-framework")  # before an import that may take seconds
try:
    import agent_framework as _agent_framework  # noqa: F401
except ImportError as error:
    raise ImportError(
        'agent-framework is not installed: pip install "sayso[agent-framework]"', name=error.name
    ) from error

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
