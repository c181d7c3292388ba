"""The provider-neutral types between the agent and a model.

A conversation is stored as plain JSON dicts, one per message:

    {"role": "system", "content": str}
    {"role": "user", "content": str}
    {"role": "assistant", "content": str, "calls": [{"id", "name", "arguments"}]}
    {"role": "tool", "call_id": str, "name": str, "content": str}
    {"role": "approval", "request_id": str, "approve": bool, "reason": str}

``ModelReply.message`` builds the assistant message, which may also carry a ``refusal`` and
``items``. Items belong to the provider that sent them: they are stored and sent back to that
provider, and every other provider ignores them.

A reply contains only complete calls. A reply that was cut short, filtered or refused has none, so
a reviewer never sees half a call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable
from uuid import uuid4

from sayso.errors import SaysoError

Message: TypeAlias = Mapping[str, Any]

Finish: TypeAlias = Literal["stop", "calls", "length", "filter", "refusal"]


class ModelError(SaysoError):
    """The model was unreachable, rejected the request, or sent an unreadable reply.

    The client's own error, if any, is the ``__cause__``. Its retries are already used up.
    """

    def __init__(self, message: str, *, status: int | None = None, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it. ``strict`` means the parameters are in OpenAI's strict form."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = True


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a model: the whole conversation so far, and the tools it may call."""

    instructions: str = ""
    messages: Sequence[Message] = ()
    tools: Sequence[ToolSpec] = ()
    tool_choice: str | Mapping[str, Any] = "auto"
    """"auto", "none", "required", a tool name, or a mapping in either of OpenAI's two forms."""
    parallel_tool_calls: bool | None = None
    output_schema: Mapping[str, Any] | None = None
    """JSON Schema of the final answer. If set, the answer is JSON text."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Passed to the provider unchanged. They override the settings of the model object."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A tool call from the model. ``arguments`` is the JSON text as received, unchecked."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class HostedApproval:
    """A call to a tool that the provider runs, waiting for approval there."""

    id: str
    server: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class ModelReply:
    """One reply from a model."""

    text: str = ""
    calls: tuple[ModelCall, ...] = ()
    finish: Finish = "stop"
    """"calls": calls or approvals are waiting. "length" or "filter": the text was cut."""
    refusal: str = ""
    approvals: tuple[HostedApproval, ...] = ()
    items: tuple[dict[str, Any], ...] = ()
    """Data this provider needs back with the message, such as reasoning."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """``input_tokens``, ``output_tokens``, ``total_tokens``, and any other provider counts."""
    response_id: str = ""

    @property
    def message(self) -> dict[str, Any]:
        """The reply as a message to store."""
        calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in self.calls]
        message: dict[str, Any] = {"role": "assistant", "content": self.text, "calls": calls}
        if self.items:
            message["items"] = [dict(item) for item in self.items]
        if self.refusal:
            message["refusal"] = self.refusal
        return message


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of streamed text."""

    text: str


@runtime_checkable
class Model(Protocol):
    """The protocol for models. Implementations inherit nothing."""

    @property
    def name(self) -> str:
        """The model's name in records and errors."""

    async def reply(self, request: ModelRequest) -> ModelReply:
        """Return the whole reply. Raises ``ModelError``."""

    def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Yield text as it arrives, then the whole ``ModelReply``."""


def known_call_ids(messages: Iterable[Message]) -> set[str]:
    return {call["id"] for message in messages for call in message.get("calls") or ()}


def with_ids(calls: Iterable[tuple[str, str, str]], used: Collection[str]) -> tuple[ModelCall, ...]:
    """Build calls from (id, name, arguments), replacing ids that are missing or already used.

    Requests and results refer to a call by its id, but some servers count from zero in each reply
    or send no ids at all.
    """
    calls_with_ids: list[ModelCall] = []
    for id, name, arguments in calls:
        if not id or id in used or any(id == other.id for other in calls_with_ids):
            id = f"call_{uuid4().hex}"
        calls_with_ids.append(ModelCall(id, name, arguments))
    return tuple(calls_with_ids)
