"""Sayso: durable approvals for AI agents.

Every public name is imported on first use, so that ``import sayso`` loads nothing heavy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError("Sayso runs on Linux and macOS. On Windows, install and run it inside WSL 2.")

if TYPE_CHECKING:
    from sayso.agent import Agent, Context, RunResult, RunState
    from sayso.agent.models.base import ModelError
    from sayso.agent.tool import ask_user, ask_user_for, plan, tool
    from sayso.client import Client, RemoteGate
    from sayso.errors import (
        AlreadyDecided,
        CallFailed,
        Cancelled,
        Conflict,
        Denied,
        DuplicateEffect,
        Expired,
        InDoubt,
        InvalidCall,
        InvalidDecision,
        InvalidPolicy,
        KeyMissing,
        Leased,
        NotAllowed,
        NotExecuted,
        NotFound,
        Paused,
        Refused,
        Rejected,
        ResultNotKept,
        SaysoError,
        StoreClosed,
        StoreError,
        StoreVersion,
        Superseded,
        Tampered,
        TooMany,
        Unauthenticated,
        UnknownKey,
    )
    from sayso.gate import Gate
    from sayso.gate.gate import catch_paused
    from sayso.gate.guard import this_call
    from sayso.inbox import Inbox, Page
    from sayso.policy import Policy, Rule
    from sayso.rows import Event
    from sayso.server import create_app
    from sayso.stores import open_store
    from sayso.types import (
        Approve,
        Decision,
        DidNotRun,
        Edit,
        Effect,
        Grant,
        Option,
        Question,
        Ran,
        Refusal,
        Reject,
        Request,
        Respond,
        Reviewer,
        Risk,
        ToolCall,
        Verdict,
    )
    from sayso.worker import Worker

__version__ = "0.1.0"

#: Where a public name is defined. All others are errors, or nouns of ``sayso.types``.
_HOME_OF = {
    "Agent": "sayso.agent",
    "Client": "sayso.client",
    "Context": "sayso.agent",
    "Event": "sayso.rows",
    "Gate": "sayso.gate",
    "Inbox": "sayso.inbox",
    "ModelError": "sayso.agent.models.base",
    "Page": "sayso.inbox",
    "Policy": "sayso.policy",
    "RemoteGate": "sayso.client",
    "Rule": "sayso.policy",
    "RunResult": "sayso.agent",
    "RunState": "sayso.agent",
    "Worker": "sayso.worker",
    "ask_user": "sayso.agent.tool",
    "ask_user_for": "sayso.agent",
    "plan": "sayso.agent.tool",
    "catch_paused": "sayso.gate.gate",
    "create_app": "sayso.server",
    "open_store": "sayso.stores",
    "this_call": "sayso.gate.guard",
    "tool": "sayso.agent",
}

__all__ = [
    "Agent",
    "AlreadyDecided",
    "Approve",
    "CallFailed",
    "Cancelled",
    "Client",
    "Conflict",
    "Context",
    "Decision",
    "Denied",
    "DidNotRun",
    "DuplicateEffect",
    "Edit",
    "Effect",
    "Event",
    "Expired",
    "Gate",
    "Grant",
    "InDoubt",
    "Inbox",
    "InvalidCall",
    "InvalidDecision",
    "InvalidPolicy",
    "KeyMissing",
    "Leased",
    "ModelError",
    "NotAllowed",
    "NotExecuted",
    "NotFound",
    "Option",
    "Page",
    "Paused",
    "Policy",
    "Question",
    "Ran",
    "Refusal",
    "Refused",
    "Reject",
    "Rejected",
    "RemoteGate",
    "Request",
    "Respond",
    "ResultNotKept",
    "Reviewer",
    "Risk",
    "Rule",
    "RunResult",
    "RunState",
    "SaysoError",
    "StoreClosed",
    "StoreError",
    "StoreVersion",
    "Superseded",
    "Tampered",
    "TooMany",
    "ToolCall",
    "Unauthenticated",
    "UnknownKey",
    "Verdict",
    "Worker",
    "ask_user",
    "ask_user_for",
    "catch_paused",
    "create_app",
    "open_store",
    "plan",
    "this_call",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sayso' has no attribute {name!r}")
    is_error = hasattr(import_module("sayso.errors"), name)
    home = _HOME_OF.get(name, "sayso.errors" if is_error else "sayso.types")
    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as missing:
        if name != "create_app" or (missing.name or "").startswith("sayso"):
            raise
        raise ImportError(
            "create_app needs the web server: pip install 'sayso[server]'"
        ) from missing
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
