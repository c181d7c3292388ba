"""Approvals for pydantic-ai: a capability that guards any tool, and a durable agent.

    guarded = guard(agent, gate)                      # for `sayso serve` and `sayso worker`
    result = await guarded.run("Pay Ana", thread="t-1")
    result = await guarded.resume("t-1")              # in any process, after the decision

With ``Gated`` alone, as in ``Agent(capabilities=[Gated(gate)])``, the framework's own flow stays: a
run ends with ``DeferredToolRequests`` and continues with ``DeferredToolResults``.

It uses two of the framework's hooks. ``get_wrapper_toolset`` wraps the tools inside all other
hooks, so that people see what the tool would get. ``wrap_model_request`` stores each reply before
its calls are made.

Read ``guard.py`` first, then ``tools.py`` and ``choke_points.py``.
"""

from sayso.adapters import require

require("pydantic-ai", "pydantic_ai", "pydantic-ai is not installed")

from sayso.adapters.agents import resume
from sayso.adapters.pydantic_ai.choke_points import install
from sayso.adapters.pydantic_ai.guard import Guarded, guard
from sayso.adapters.pydantic_ai.tools import Gated

__all__ = ["Gated", "Guarded", "guard", "resume"]

install()
