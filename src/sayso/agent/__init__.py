"""A small agent of our own: a function-calling loop with approvals and questions built in."""

from sayso.agent.agent import Agent
from sayso.agent.ask_user import ask_user, ask_user_for
from sayso.agent.context import Context
from sayso.agent.events import (
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
from sayso.agent.resumable import Resumable
from sayso.agent.state import RunState
from sayso.agent.tool import tool

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
