"""Describe how a call ended: as text for a model, and as an error for the caller."""

from __future__ import annotations

from typing import Any

from sayso import codec
from sayso.engine.effects import first_request, shown_key
from sayso.errors import (
    CallFailed,
    Cancelled,
    Conflict,
    Denied,
    DuplicateEffect,
    Expired,
    InDoubt,
    Refused,
    Rejected,
    ResultNotKept,
    SaysoError,
    Superseded,
)
from sayso.rows import Call, CallStatus
from sayso.types import Request

NOT_RUN = {
    CallStatus.EXPIRED: "Nobody decided in time, so it was not run.",
    CallStatus.CANCELLED: "It was cancelled before it ran.",
    CallStatus.SUPERSEDED: "The user wrote something new instead of deciding, so it was not run.",
    CallStatus.IN_DOUBT: "It was started, and it is unknown whether it took effect.",
    CallStatus.RELEASED: "It was released to the agent that asked for it, which runs it itself.",
}
#: For a call that was not started again, after a doubt or a pause.
STARTED_BEFORE = "It had been started before, and may have had effects."


def has_result(call: Call) -> bool:
    """Return whether there is a result, from the tool or from a person instead."""
    return call.status in (CallStatus.DONE, CallStatus.RESPONDED) and call.result is not None


def what_ran(call: Call, wrote: str = "") -> str:
    """Say what ran instead of the arguments that the model wrote.

    Pass ``wrote`` if a framework's validators made others of it, which the row holds instead."""
    return (
        "A person changed the arguments before approving this call. "
        f"It ran with {call.args_to_run} instead of {wrote or call.original}."
    )


def result_text(call: Call) -> str:
    """Return the result of a call as text for the model, with what a person changed before."""
    text = as_text(codec.loads(call.result or "null"))
    if call.original is None or call.status is CallStatus.RESPONDED:
        return text
    return f"{what_ran(call)} Its result: {text}"


def why_not(call: Call, wrote: str = "") -> str:
    """Say why a call has no result, with the reason that was given."""
    if call.status is CallStatus.FAILED:
        return _failed(call, wrote)
    if call.status is CallStatus.RELEASED:
        return NOT_RUN[call.status]
    if call.status is CallStatus.DONE:
        return "The call ran, but its result could not be stored, so it is not known."
    if not call.attempt or call.status is CallStatus.IN_DOUBT:
        return _not_run(call)
    again = _not_run(call).replace("was not run", "was not run again", 1)
    again = again.replace("before it ran.", "before it ran again.", 1)
    stop = "" if again.endswith((".", "!", "?")) else "."  # people's reasons may have none
    return f"{again}{stop} {STARTED_BEFORE}"


def _not_run(call: Call) -> str:
    if call.status is CallStatus.REJECTED:
        decision = call.decision
        why = decision.message if decision is not None else ""
        if decision is not None and decision.type == "deny":
            return f"The policy denies this call, so it was not run. {why}".strip()
        if call.kind == "question":
            return f"The user will not answer. {why}".strip()
        reason = f" The reason given: {why}" if why else ""
        who = "A model that reviews calls" if call.source == "model" else "A person"
        return f"{who} rejected this call, so it was not run.{reason}"
    if call.status is CallStatus.CANCELLED and call.result:
        return f"{NOT_RUN[call.status]} The reason given: {call.result}"
    return NOT_RUN.get(call.status, f"The call is {call.status}.")


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else codec.dumps(value)


def _failed(call: Call, wrote: str) -> str:
    decision = call.decision
    if decision is not None and decision.type == "reject":
        why = f" What they said: {decision.message}" if decision.message else ""
        return (
            "It was started, it is unknown whether it took effect, and a person gave up on it."
            f"{why}"
        )
    if first_request(call):
        return f"This call was not run: {(call.result or '').partition(': ')[2]}."
    failed = f"The call failed: {call.result}"
    return failed if call.original is None else f"{what_ran(call, wrote)} {failed}"


def in_text(value: Any) -> str:
    """Return a value as text that every store can keep."""
    try:
        text = str(value)
    except Exception:
        text = f"a {type(value).__name__}, which cannot be shown"
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


# -- for the caller

_REFUSALS: dict[CallStatus, type[Refused]] = {
    CallStatus.EXPIRED: Expired,
    CallStatus.CANCELLED: Cancelled,
    CallStatus.SUPERSEDED: Superseded,
}


def ending(call: Call, request: Request, stop: str) -> SaysoError:
    """Return the error for a call without a result. ``stop`` is why its run was stopped."""
    if call.status is CallStatus.FAILED:
        return _failure(call, request)
    if call.status is CallStatus.DONE:
        return ResultNotKept(f"{call.id} ran, but its result could not be stored")
    if call.status is CallStatus.REJECTED:
        return _rejection(call, request)
    if call.status is CallStatus.RELEASED:
        return Conflict(f"{call.id} was released to {call.agent}, which runs it itself")
    cancel_reason = call.result if call.status is CallStatus.CANCELLED else None
    reason = cancel_reason or stop
    why = f" ({reason})" if reason and reason != f"{call.id} {call.status}" else ""
    ran = STARTED_BEFORE if call.attempt else "nothing was run"
    return _REFUSALS[call.status](f"{call.id} {call.status}{why}: {ran}", request)


def not_run(call: Call, reason: str) -> str:
    """Say that a ready call may not start any more."""
    if not call.attempt:
        return f"{call.id} was not run: {reason}"
    return f"{call.id} was not run again: {reason}. {STARTED_BEFORE}"


def _failure(call: Call, request: Request) -> SaysoError:
    decision = call.decision
    if decision is not None and decision.type == "reject":
        return InDoubt(f"{call.id} was given up by {decision.by}: {call.result}", request)
    if first := first_request(call):
        key = shown_key(call.effect_key)
        message = f"{call.id} was not run: {(call.result or '').partition(': ')[2]}"
        return DuplicateEffect(message, request, key=key, first=first)
    type, _, message = (call.result or "").partition(": ")
    return CallFailed(f"{call.id} ran and failed: {call.result}", type, message)


def _rejection(call: Call, request: Request) -> SaysoError:
    decision = call.decision
    by = decision.by if decision is not None else "a person"
    why = decision.message if decision is not None else ""
    if decision is not None and decision.type == "deny":
        why = why or "see `sayso policy check`"
        return Denied(f"{call.tool} is denied by {by}: {why}", request)
    return Rejected(f"{by} rejected it: {why}" if why else f"{by} rejected it", request)
