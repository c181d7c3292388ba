"""What the agent asks of a model, and what it gets back: no provider's shapes, only these.

A conversation is stored as plain JSON dicts, one for each message:

    {"role": "system", "content": str}
    {"role": "user", "content": str}
    {"role": "assistant", "content": str, "calls": [{"id", "name", "arguments"}]}
    {"role": "tool", "call_id": str, "name": str, "content": str}
    {"role": "approval", "request_id": str, "approve": bool, "reason": str}

``ModelReply.message`` makes the assistant's one, which may also have a ``refusal`` and ``items``.
Items belong to the provider that sent them: they are stored for it and given back to it, and no
other provider looks at them.

Calls are in a reply only where they are whole: a reply that was cut short, filtered or refused has
none, so that nobody is ever shown half a call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from sayso.errors import SaysoError

Message: TypeAlias = Mapping[str, Any]

Finish: TypeAlias = Literal["stop", "calls", "length", "filter", "refusal"]


class ModelError(SaysoError):
    """The model could not be reached, refused the request, or answered what nobody can read.

    The client's own error, if there is one, is the cause; its retries are over by then.
    """

    def __init__(self, message: str, *, status: int | None = None, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class ToolFace:
    """A tool as the model sees it; ``strict`` says that the parameters are in the strict form."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = True


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model: the whole conversation so far, and the tools it may use."""

    instructions: str = ""
    messages: Sequence[Message] = ()
    tools: Sequence[ToolFace] = ()
    tool_choice: str | Mapping[str, Any] = "auto"
    """"auto", "none", "required", a tool's name, or a mapping in either of OpenAI's two forms."""
    parallel_tool_calls: bool | None = None
    output_schema: Mapping[str, Any] | None = None
    """JSON Schema of the final answer, which is then JSON text."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Handed to the provider as they are; they win over the settings of the model object."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call that the model made; ``arguments`` is the JSON text as it came, checked by nobody."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class HostedApproval:
    """A call of a tool that runs at the provider, which waits there for a yes or no."""

    id: str
    server: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class ModelReply:
    """One answer of a model."""

    text: str = ""
    calls: tuple[ModelCall, ...] = ()
    finish: Finish = "stop"
    """"calls" means that calls or approvals wait; "length" and "filter" that the text is cut."""
    refusal: str = ""
    approvals: tuple[HostedApproval, ...] = ()
    items: tuple[dict[str, Any], ...] = ()
    """What this provider must get back with the message, such as reasoning."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """``input_tokens``, ``output_tokens``, ``total_tokens``, and what else the provider counts."""
    response_id: str = ""

    @property
    def message(self) -> dict[str, Any]:
        """The reply as a stored message."""
        calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in self.calls]
        message: dict[str, Any] = {"role": "assistant", "content": self.text, "calls": calls}
        if self.items:
            message["items"] = [dict(item) for item in self.items]
        if self.refusal:
            message["refusal"] = self.refusal
        return message


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text, as it comes."""

    text: str


@runtime_checkable
class Model(Protocol):
    """Anything that answers requests; implementations inherit nothing."""

    @property
    def name(self) -> str:
        """What the model is called in records and errors."""

    async def reply(self, request: ModelRequest) -> ModelReply:
        """Answer in one piece, or raise ModelError."""

    def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Answer in pieces; the last one is the whole ModelReply."""
