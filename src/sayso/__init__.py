"""Sayso: durable approvals for AI agents.

Every public name is imported on first use, so that ``import sayso`` loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.agent import Agent, Context, RunResult, RunState
    from sayso.agent.models.base import ModelError
    from sayso.agent.tool import ask_user, ask_user_for, tool
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
        NotFound,
        Paused,
        Refused,
        Rejected,
        ResultNotKept,
        SaysoError,
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

_HOMES = {
    "sayso.agent": (
        "Agent",
        "Context",
        "RunResult",
        "RunState",
        "ask_user_for",
        "tool",
    ),
    "sayso.agent.tool": ("ask_user",),
    "sayso.agent.models.base": ("ModelError",),
    "sayso.errors": (
        "AlreadyDecided",
        "SaysoError",
        "CallFailed",
        "Cancelled",
        "Conflict",
        "Denied",
        "DuplicateEffect",
        "Expired",
        "InDoubt",
        "InvalidCall",
        "InvalidDecision",
        "InvalidPolicy",
        "KeyMissing",
        "Leased",
        "NotAllowed",
        "NotFound",
        "Paused",
        "Refused",
        "Rejected",
        "ResultNotKept",
        "StoreError",
        "StoreVersion",
        "Superseded",
        "Tampered",
        "TooMany",
        "Unauthenticated",
        "UnknownKey",
    ),
    "sayso.gate": ("Gate",),
    "sayso.client": ("Client", "RemoteGate"),
    "sayso.gate.gate": ("catch_paused",),
    "sayso.gate.guard": ("this_call",),
    "sayso.inbox": ("Inbox", "Page"),
    "sayso.policy": ("Policy", "Rule"),
    "sayso.rows": ("Event",),
    "sayso.server": ("create_app",),
    "sayso.stores": ("open_store",),
    "sayso.worker": ("Worker",),
    "sayso.types": (
        "Approve",
        "Decision",
        "DidNotRun",
        "Edit",
        "Effect",
        "Grant",
        "Option",
        "Question",
        "Ran",
        "Reject",
        "Request",
        "Respond",
        "Reviewer",
        "Risk",
        "ToolCall",
        "Verdict",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

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
    "NotFound",
    "Option",
    "Page",
    "Paused",
    "Policy",
    "Question",
    "Ran",
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
    "this_call",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'sayso' has no attribute {name!r}")
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
