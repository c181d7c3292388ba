"""Approvals for DSPy.

``guard(agent, gate)`` makes a ``dspy.ReAct`` or ``dspy.ReActV2`` durable: every reply of the model
and every tool call is stored, so that a resume repeats neither, and calls wait for approval where
the policy says so. ``human_in_the_loop(requester)`` is a tool that asks a person; with
``inbox_requester(gate)`` it asks in the inbox.

It hooks into the predictors and tools of a copy of the agent. The loop is DSPy's own.

Read ``guard.py`` for the durable agent, ``choke_points.py`` for what code in its tools may do, and
``asking.py`` for the tool that asks.
"""

from sayso.adapters import require

require("dspy", "dspy", "DSPy is not installed")

from sayso.adapters.agents import resume
from sayso.adapters.dspy.asking import (
    HumanInputRequest,
    Requester,
    console_requester,
    create_queue_requester,
    human_in_the_loop,
    inbox_requester,
    scripted_requester,
    still_open,
)
from sayso.adapters.dspy.choke_points import install
from sayso.adapters.dspy.guard import GuardedReAct, guard, install_loops

__all__ = [
    "GuardedReAct",
    "HumanInputRequest",
    "Requester",
    "console_requester",
    "create_queue_requester",
    "guard",
    "human_in_the_loop",
    "inbox_requester",
    "resume",
    "scripted_requester",
    "still_open",
]

install()
install_loops()
