"""A small agent: a function-calling loop with approvals and questions built in.

Read ``agent`` (the public class), then ``run_loop`` with ``turn`` and ``execution`` (how a run
advances), then ``conversation`` and ``sub_agent``. ``tool``, ``events`` and ``models`` are leaves.
"""

from sayso.agent.agent import Agent, Resumable
from sayso.agent.events import (
    AgentEvent,
    Answered,
    Ended,
    Errored,
    ModelAsked,
    ModelReplied,
    Requested,
    Started,
    Text,
    ToolCalled,
    ToolClosed,
    ToolEnded,
    ToolPaused,
    ToolStarted,
    log_events,
)
from sayso.agent.tool import Context, ask_user_for, tool
from sayso.gate.run_result import RunResult, RunState

__all__ = [
    "Agent",
    "AgentEvent",
    "Answered",
    "Context",
    "Ended",
    "Errored",
    "ModelAsked",
    "ModelReplied",
    "Requested",
    "Resumable",
    "RunResult",
    "RunState",
    "Started",
    "Text",
    "ToolCalled",
    "ToolClosed",
    "ToolEnded",
    "ToolPaused",
    "ToolStarted",
    "ask_user_for",
    "log_events",
    "tool",
]
