"""The models that an agent can talk to, and the small protocol for any other.

    sayso.agent.models.resolve("openai:gpt-4o")             Chat Completions
    sayso.agent.models.resolve("openai-responses:gpt-5")    the Responses API

An OpenAI-compatible server is reached with ``OpenAIChat(name, base_url=…)``, or with the client's
own environment variables.
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
    ToolFace,
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
    "ToolFace",
    "resolve",
]

_PROVIDERS: dict[str, Callable[[str], Model]] = {
    "openai": OpenAIChat,
    "openai-responses": OpenAIResponses,
}


def resolve(model: str | Model) -> Model:
    """Return the model that a name stands for; a model object stands for itself."""
    if not isinstance(model, str):
        if isinstance(model, Model):
            return model
        raise ModelError(f"{type(model).__name__} is no model: it needs name, reply and stream")
    provider, _, name = model.partition(":")
    if provider not in _PROVIDERS or not name:
        raise ModelError(
            f"no model is called {model!r}: write openai:NAME (Chat Completions, such as "
            "openai:gpt-4o) or openai-responses:NAME (Responses), or pass a Model object"
        )
    return _PROVIDERS[provider](name)
