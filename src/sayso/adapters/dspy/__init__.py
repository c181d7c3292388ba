"""DSPy at a gate.

``guard(agent, gate)`` takes a ``dspy.ReAct`` or ``dspy.ReActV2`` and makes it durable: each reply
of the model and each call of a tool is kept, so that whoever resumes repeats neither, and calls
wait for people where the policy says so. ``human_in_the_loop(requester)`` is a tool that asks a
person, by whatever way the requester knows; with ``inbox_requester(gate)`` it asks in the inbox.

Where it meets DSPy: the predictors and the tools of a copy of the agent. The loop is DSPy's own.
"""

from __future__ import annotations

try:
    import dspy as _dspy  # noqa: F401
except ImportError as error:
    raise ImportError(
        'DSPy is not installed: pip install "sayso[dspy]"', name=error.name
    ) from error

from sayso.adapters.dspy._agent import GuardedReAct, guard, resume
from sayso.adapters.dspy._asking import (
    HumanInputRequest,
    Requester,
    console_requester,
    create_queue_requester,
    human_in_the_loop,
    inbox_requester,
    scripted_requester,
    still_open,
)

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
