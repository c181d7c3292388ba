"""What stands in the conversation, and what the model is told of each call.

Requests and decisions never stand in it; only tool results do. The results of a turn are appended
together with the next reply, in the order in which the model made its calls, whenever they came.
"""

from __future__ import annotations

from typing import Any

from assent import codec
from assent.rows import Call, CallStatus, Message
from assent.types import Json

_NOT_RUN = {
    CallStatus.EXPIRED: "Nobody decided in time, so it was not run.",
    CallStatus.CANCELLED: "It was cancelled before it ran.",
    CallStatus.SUPERSEDED: "The user wrote something new instead of deciding, so it was not run.",
    CallStatus.IN_DOUBT: "It was started, and nobody knows whether it took effect.",
}
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
    return {
        "role": "approval",
        "request_id": request_id,
        "approve": status is CallStatus.DONE,
        "reason": reason or error or (_NOT_RUN.get(status, "") if status is not None else ""),
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
    if call.status is CallStatus.DONE:
        return _done(call)
    if call.status is CallStatus.RESPONDED:
        value = codec.loads(call.result or "null")
        return codec.dumps({"answer": value}) if call.kind == "question" else _text(value)
    if call.status is CallStatus.FAILED:
        return error(_failed(call))
    if call.status is CallStatus.REJECTED:
        return _rejected(call)
    return error(_NOT_RUN.get(call.status, f"The call is {call.status}."))


def _done(call: Call) -> str:
    text = _text(codec.loads(call.result or "null"))
    return text if call.original is None else f"{_edited(call)} Its result: {text}"


def _edited(call: Call) -> str:
    return (
        "A person changed the arguments before approving this call. "
        f"It ran with {call.args} instead of {call.original}."
    )


def _failed(call: Call) -> str:
    decision = call.decision
    if decision is not None and decision.type == "reject":
        why = f" What they said: {decision.message}" if decision.message else ""
        return f"It was started, nobody knows whether it took effect, and a person gave it up.{why}"
    failed = f"The call failed: {call.result}"
    return failed if call.original is None else f"{_edited(call)} {failed}"


def _rejected(call: Call) -> str:
    decision = call.decision
    why = decision.message if decision is not None else ""
    if decision is not None and decision.type == "deny":
        return error(f"This call is forbidden by policy and was not run. {why}".strip())
    if call.kind == "question":
        return error(f"The user will not answer. {why}".strip())
    reason = f" The reason given: {why}" if why else ""
    return error(f"A person rejected this call, so it was not run.{reason}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else codec.dumps(value)
