"""Models for the agent: OpenAI's two APIs, and the ``Model`` protocol for any other.

    sayso.agent.models.resolve("openai:gpt-4o")             Chat Completions
    sayso.agent.models.resolve("openai-responses:gpt-5")    the Responses API

For an OpenAI-compatible server, use ``OpenAIChat(name, base_url=…)`` or the client's own
environment variables. Read ``base``, then ``openai_chat``; ``openai_responses`` is its sibling.
"""

from __future__ import annotations

from collections.abc import Callable

from sayso.agent.models.base import (
    Finish,
    HostedApproval,
    Message,
    Model,
    ModelCall,
    ModelError,
    ModelReply,
    ModelRequest,
    TextDelta,
    ToolSpec,
)
from sayso.agent.models.openai_chat import OpenAIChat
from sayso.agent.models.openai_responses import OpenAIResponses

__all__ = [
    "Finish",
    "HostedApproval",
    "Message",
    "Model",
    "ModelCall",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "OpenAIChat",
    "OpenAIResponses",
    "TextDelta",
    "ToolSpec",
    "resolve",
]

_PROVIDERS: dict[str, Callable[[str], Model]] = {
    "openai": OpenAIChat,
    "openai-responses": OpenAIResponses,
}


def resolve(model: str | Model) -> Model:
    """Return the model for a name. A ``Model`` object is returned unchanged."""
    if not isinstance(model, str):
        # isinstance() of a protocol takes ten times as long
        if all(hasattr(model, name) for name in ("name", "reply", "stream")):
            return model
        raise ModelError(f"{type(model).__name__} is not a model: it needs name, reply and stream")
    provider, _, name = model.partition(":")
    if provider not in _PROVIDERS or not name:
        raise ModelError(
            f"unknown model {model!r}: use openai:NAME (Chat Completions, for example "
            "openai:gpt-4o) or openai-responses:NAME (Responses), or pass a Model object"
        )
    return _PROVIDERS[provider](name)
