"""Microsoft Agent Framework at a gate.

    guarded = guard(agent, gate)                      # what `sayso serve` and `sayso worker` take
    stands = await guarded.run("Book a flight", thread="t-1")
    stands = await guarded.resume("t-1")              # anywhere, after somebody has decided

It meets the framework at its middleware. ``Gated`` (function middleware) stands around every
function; ``Replies`` (chat middleware) keeps each reply before its calls are made, and gives it to
the framework's loop again when a run is resumed.
"""

from __future__ import annotations

try:
    import agent_framework as _agent_framework  # noqa: F401
except ImportError as error:
    raise ImportError(
        'agent-framework is not installed: pip install "sayso[agent-framework]"', name=error.name
    ) from error

from sayso.adapters.agent_framework.gated import Gated
from sayso.adapters.agent_framework.guarded import Guarded
from sayso.adapters.agent_framework.guarding import guard, resume
from sayso.adapters.agent_framework.waiting import edited, rejected, responded
from sayso.adapters.agent_framework.workflow import GuardedWorkflow

__all__ = [
    "Gated",
    "Guarded",
    "GuardedWorkflow",
    "edited",
    "guard",
    "rejected",
    "responded",
    "resume",
]
