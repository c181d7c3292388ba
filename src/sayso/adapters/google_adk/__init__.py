"""Approvals for Google's Agent Development Kit (ADK).

    guarded = guard(agent, gate)
    result = await guarded.run("Pay Ana", thread="t-1")
    result = await guarded.resume("t-1")              # in any process, after the decision

ADK's own runner drives every turn, from its beginning each time: the replies of the model and the
results of the tools come from the store as far as they are known. A tool that asks for ADK's
confirmation asks in the inbox.

It changes what every tool and every model of ADK passes: ``run_async`` of tools,
``generate_content_async`` of models, ``execute_code`` of code executors, and the flow's call of the
model. Agents that are not guarded notice nothing. Live runs, tools that the provider runs, and
long-running tools do not come back to the gate, so ``guard`` refuses them.

Read ``guard.py`` first, then ``turn.py`` for what is stored, ``tools.py`` for the gate around every
tool, and ``models.py`` for the models and what their providers would run.
"""

import warnings

from sayso.adapters import require

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ADK and what it imports warn while they are imported
    require("google-adk", "google.adk.runners", "google-adk is not installed")

from sayso.adapters.agents import resume
from sayso.adapters.google_adk import models, tools
from sayso.adapters.google_adk.guard import Guarded, guard

# As early as possible: code may keep a tool's method before it guards an agent.
tools.install()
models.install()

__all__ = ["Guarded", "guard", "resume"]
