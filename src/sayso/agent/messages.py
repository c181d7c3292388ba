"""What stands in the conversation, and what the model is told of each call.

Requests and decisions never stand in it; only tool results do. The results of a turn are appended
together with the next reply, in the order in which the model made its calls, whenever they came.
"""

from __future__ import annotations

from sayso import codec
from sayso.gate import outcomes
from sayso.rows import Call, CallStatus, Message
from sayso.types import Json

_FORGOTTEN = "Nothing is known of this call any more."


def user(text: str) -> dict[str, Json]:
    """What the user said."""
    return {"role": "user", "content": text}


def tool(call_id: str, name: str, content: str) -> dict[str, Json]:
    """What came of a call."""
    return {"role": "tool", "call_id": call_id, "name": name, "content": content}


def approval(request_id: str, call: Call | None, error: str) -> dict[str, Json]:
    """The yes or no to a call that the provider runs."""
    status, decision = (None, None) if call is None else (call.status, call.decision)
    reason = decision.message if decision is not None else ""
    if not reason and not error and status is not None:
        reason = outcomes.NOT_RUN.get(status, "")
    return {
        "role": "approval",
        "request_id": request_id,
        "approve": status is CallStatus.DONE,
        "reason": reason or error,
    }


def error(text: str) -> str:
    """An error as the model reads it: never a traceback."""
    return codec.dumps({"error": text})


def forgotten() -> str:
    """What is said of a call whose row is gone."""
    return error(_FORGOTTEN)


def stored(run: str, bodies: list[dict[str, Json]]) -> tuple[Message, ...]:
    """Messages as rows."""
    return tuple(Message(run, codec.dumps(body)) for body in bodies)


def content_of(call: Call) -> str:
    """What the model is told of a call that has ended."""
    if not outcomes.went_well(call):
        return error(outcomes.why_not(call))
    value = codec.loads(call.result or "null")
    if call.kind == "question":
        return codec.dumps({"answer": value})
    text = outcomes.as_text(value)
    if call.status is CallStatus.RESPONDED:
        return text
    return text if call.original is None else f"{outcomes.what_ran(call)} Its result: {text}"
