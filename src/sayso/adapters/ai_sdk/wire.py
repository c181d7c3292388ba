"""UI message stream v1 as text, and the ids that go over it.

A key without a value is left out: the client takes a ``null`` for an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from sayso import codec
from sayso.rows import Call, CallStatus

Chunk: TypeAlias = dict[str, Any]

HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "connection": "keep-alive",
    "x-vercel-ai-ui-message-stream": "v1",
    "x-accel-buffering": "no",
}
KEEP_ALIVE = ": keep-alive\n\n"
KEEP_ALIVE_SECONDS = 15.0
DONE = "data: [DONE]\n\n"


def frame(chunk: Chunk) -> str:
    """One chunk as a server-sent event."""
    return f"data: {codec.dumps(chunk)}\n\n"


def approval_id(call: Call) -> str:
    """What a card answers with: the request and the revision that it shows.

    A call in doubt is another question than the one before, so its card has another id.
    """
    doubt = "d" if call.status is CallStatus.IN_DOUBT else ""
    return f"{call.id}.r{call.rev}{doubt}"
