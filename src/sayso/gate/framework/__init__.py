"""What adapters build on: a framework's tools, calls, threads and agents at a gate.

Read ``tools`` (what people are shown of a tool), then ``threads`` (how a call is asked about and
completed), then ``agents`` (how a framework's agent runs under one lease and is resumed).
"""

from sayso.gate.framework.agents import FrameworkAgent, check_gate
from sayso.gate.framework.threads import (
    MOST_WAITING,
    CallPlace,
    FrameworkCall,
    FrameworkThread,
    Outcome,
    kept,
    outcome_of,
    pending_calls,
    place_in_call,
    place_of_unguarded,
)
from sayso.gate.framework.tools import SUB_AGENT_TERMS, FrameworkTool, check_validated

__all__ = [
    "MOST_WAITING",
    "SUB_AGENT_TERMS",
    "CallPlace",
    "FrameworkAgent",
    "FrameworkCall",
    "FrameworkThread",
    "FrameworkTool",
    "Outcome",
    "check_gate",
    "check_validated",
    "kept",
    "outcome_of",
    "pending_calls",
    "place_in_call",
    "place_of_unguarded",
]
