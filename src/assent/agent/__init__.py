"""A small agent of our own: a function-calling loop with approvals and questions built in."""

from assent.agent.agent import Agent
from assent.agent.ask_user import ask_user, ask_user_for
from assent.agent.context import Context
from assent.agent.events import (
    AgentEvent,
    Answered,
    Began,
    Broke,
    Ended,
    ModelAsked,
    ModelReplied,
    Requested,
    Result,
    Text,
    ToolCalled,
    ToolClosed,
    ToolEnded,
    ToolPaused,
    ToolStarted,
)
from assent.agent.resumable import Resumable
from assent.agent.state import RunState
from assent.agent.tool import tool

__all__ = [
    "Agent",
    "AgentEvent",
    "Answered",
    "Began",
    "Broke",
    "Context",
    "Ended",
    "ModelAsked",
    "ModelReplied",
    "Requested",
    "Result",
    "Resumable",
    "RunState",
    "Text",
    "ToolCalled",
    "ToolClosed",
    "ToolEnded",
    "ToolPaused",
    "ToolStarted",
    "ask_user",
    "ask_user_for",
    "tool",
]
