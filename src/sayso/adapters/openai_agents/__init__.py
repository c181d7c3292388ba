"""Approvals for the OpenAI Agents SDK.

    guarded = guard(agent, gate)                      # for `sayso serve` and `sayso worker`
    result = await guarded.run("Pay Ana", thread="t-1")
    result = await guarded.resume("t-1")              # in any process, after the decision

The SDK's ``Runner`` makes every step. The adapter hooks into each tool, where ``needs_approval``
asks at the gate and the invocation runs the stored call, and into the model, whose replies are
stored before their calls are made. A pause is the SDK's own, and its ``RunState`` is stored with
the run.

Read ``guard.py`` first, then ``copies.py``, ``requests.py``, ``tools.py``, ``model.py`` and
``messages.py``.
"""

from sayso.adapters import require

require("openai-agents", "agents", "this adapter needs the OpenAI Agents SDK")

from sayso.adapters.agents import resume
from sayso.adapters.openai_agents.guard import Guarded, Runner, Stream, guard
from sayso.adapters.openai_agents.tools import ask_user

__all__ = ["Guarded", "Runner", "Stream", "ask_user", "guard", "resume"]
