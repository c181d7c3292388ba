"""Assent: a durable yes or no for AI agents.

The public names, each imported on first use: ``import assent`` itself loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assent.agent import Agent, Context, RunState
    from assent.agent.ask_user import ask_user, ask_user_for
    from assent.agent.models.base import ModelError
    from assent.agent.tool import tool
    from assent.errors import (
        AlreadyDecided,
        AssentError,
        CallFailed,
        Cancelled,
        Conflict,
        Denied,
        Expired,
        InDoubt,
        InvalidCall,
        InvalidDecision,
        InvalidPolicy,
        KeyMissing,
        NotAllowed,
        NotFound,
        Paused,
        Refused,
        Rejected,
        StoreError,
        StoreVersion,
        Superseded,
        Tampered,
        TooMany,
        Unauthenticated,
    )
    from assent.gate import Gate
    from assent.inbox import Inbox
    from assent.policy import Policy, Rule
    from assent.types import (
        Approve,
        Decision,
        Edit,
        Grant,
        Option,
        Question,
        Reject,
        Request,
        Respond,
        Reviewer,
        Risk,
        ToolCall,
        Verdict,
    )

__version__ = "0.1.0"

_HOMES = {
    "assent.agent": ("Agent", "Context", "RunState", "ask_user", "ask_user_for", "tool"),
    "assent.agent.models.base": ("ModelError",),
    "assent.errors": (
        "AlreadyDecided",
        "AssentError",
        "CallFailed",
        "Cancelled",
        "Conflict",
        "Denied",
        "Expired",
        "InDoubt",
        "InvalidCall",
        "InvalidDecision",
        "InvalidPolicy",
        "KeyMissing",
        "NotAllowed",
        "NotFound",
        "Paused",
        "Refused",
        "Rejected",
        "StoreError",
        "StoreVersion",
        "Superseded",
        "Tampered",
        "TooMany",
        "Unauthenticated",
    ),
    "assent.gate": ("Gate",),
    "assent.inbox": ("Inbox",),
    "assent.policy": ("Policy", "Rule"),
    "assent.types": (
        "Approve",
        "Decision",
        "Edit",
        "Grant",
        "Option",
        "Question",
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
    "AssentError",
    "CallFailed",
    "Cancelled",
    "Conflict",
    "Context",
    "Decision",
    "Denied",
    "Edit",
    "Expired",
    "Gate",
    "Grant",
    "InDoubt",
    "Inbox",
    "InvalidCall",
    "InvalidDecision",
    "InvalidPolicy",
    "KeyMissing",
    "ModelError",
    "NotAllowed",
    "NotFound",
    "Option",
    "Paused",
    "Policy",
    "Question",
    "Refused",
    "Reject",
    "Rejected",
    "Request",
    "Respond",
    "Reviewer",
    "Risk",
    "Rule",
    "RunState",
    "StoreError",
    "StoreVersion",
    "Superseded",
    "Tampered",
    "TooMany",
    "ToolCall",
    "Unauthenticated",
    "Verdict",
    "ask_user",
    "ask_user_for",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'assent' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
