"""A small agent of our own: a function-calling loop with approvals and questions built in."""

from assent.agent.agent import Agent
from assent.agent.ask_user import ask_user, ask_user_for
from assent.agent.context import Context
from assent.agent.events import Ended, Requested, Result, Text, ToolCalled, ToolEnded, ToolStarted
from assent.agent.state import RunState
from assent.agent.tool import tool

__all__ = [
    "Agent",
    "Context",
    "Ended",
    "Requested",
    "Result",
    "RunState",
    "Text",
    "ToolCalled",
    "ToolEnded",
    "ToolStarted",
    "ask_user",
    "ask_user_for",
    "tool",
]
