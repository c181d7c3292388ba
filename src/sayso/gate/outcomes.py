"""What became of a call: as text for a model, and as an error for the code that made it."""

from __future__ import annotations

from typing import Any

from sayso import codec
from sayso.engine.effects import first_request, shown_key
from sayso.errors import (
    CallFailed,
    Cancelled,
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
    CallStatus.IN_DOUBT: "It was started, and nobody knows whether it took effect.",
}
#: Of a call that was not started again, after a doubt or a pause of its own.
STARTED_BEFORE = "It had been started before, and may have had effects."


def went_well(call: Call) -> bool:
    """Whether there is a result, of the tool or of a person in its place."""
    return call.status in (CallStatus.DONE, CallStatus.RESPONDED) and call.result is not None


def what_ran(call: Call) -> str:
    """Of a call that somebody edited: what ran instead."""
    return (
        "A person changed the arguments before approving this call. "
        f"It ran with {call.args} instead of {call.original}."
    )


def why_not(call: Call) -> str:
    """Of a call without a result: what became of it, and what was said."""
    if call.status is CallStatus.FAILED:
        return _failed(call)
    if call.status is CallStatus.DONE:
        return "The call ran, but its result could not be stored, so it is not known."
    if not call.attempt or call.status is CallStatus.IN_DOUBT:
        return _not_run(call)
    again = _not_run(call).replace("was not run", "was not run again", 1)
    again = again.replace("before it ran.", "before it ran again.", 1)
    stop = "" if again.endswith((".", "!", "?")) else "."  # people give reasons without one
    return f"{again}{stop} {STARTED_BEFORE}"


def _not_run(call: Call) -> str:
    if call.status is CallStatus.REJECTED:
        return _rejected(call)
    if call.status is CallStatus.CANCELLED and call.result:
        return f"{NOT_RUN[call.status]} The reason given: {call.result}"
    return NOT_RUN.get(call.status, f"The call is {call.status}.")


def as_text(value: Any) -> str:
    """A result as a model reads it."""
    return value if isinstance(value, str) else codec.dumps(value)


def _failed(call: Call) -> str:
    decision = call.decision
    if decision is not None and decision.type == "reject":
        why = f" What they said: {decision.message}" if decision.message else ""
        return f"It was started, nobody knows whether it took effect, and a person gave it up.{why}"
    if first_request(call):
        return f"This call was not run: {(call.result or '').partition(': ')[2]}."
    failed = f"The call failed: {call.result}"
    return failed if call.original is None else f"{what_ran(call)} {failed}"


def _rejected(call: Call) -> str:
    decision = call.decision
    why = decision.message if decision is not None else ""
    if decision is not None and decision.type == "deny":
        return f"This call is forbidden by policy and was not run. {why}".strip()
    if call.kind == "question":
        return f"The user will not answer. {why}".strip()
    reason = f" The reason given: {why}" if why else ""
    return f"A person rejected this call, so it was not run.{reason}"


def in_text(value: Any) -> str:
    """A value as text that every store takes."""
    try:
        said = str(value)
    except Exception:
        said = f"a {type(value).__name__}, which cannot be shown"
    return said.replace("\0", "\ufffd").encode(errors="replace").decode()


# -- for the caller

_REFUSALS: dict[CallStatus, type[Refused]] = {
    CallStatus.EXPIRED: Expired,
    CallStatus.CANCELLED: Cancelled,
    CallStatus.SUPERSEDED: Superseded,
}


def ending(call: Call, request: Request, stop: str) -> SaysoError:
    """The error for a call that failed, was refused or was closed; ``stop`` is its run's reason."""
    if call.status is CallStatus.FAILED:
        return _failure(call, request)
    if call.status is CallStatus.DONE:
        return ResultNotKept(f"{call.id} ran, but its result could not be stored: it is not known")
    if call.status is CallStatus.REJECTED:
        return _rejection(call, request)
    said = call.result if call.status is CallStatus.CANCELLED else None
    reason = said or stop
    why = f" ({reason})" if reason and reason != f"{call.id} {call.status}" else ""
    ran = STARTED_BEFORE if call.attempt else "nothing was run"
    return _REFUSALS[call.status](f"{call.id} {call.status}{why}: {ran}", request)


def not_run(call: Call, reason: str) -> str:
    """Of a ready call that may not start any more."""
    if not call.attempt:
        return f"{call.id} was not run: {reason}"
    return f"{call.id} was not run again: {reason}. {STARTED_BEFORE}"


def _failure(call: Call, request: Request) -> SaysoError:
    decision = call.decision
    if decision is not None and decision.type == "reject":
        return InDoubt(f"{call.id} was given up by {decision.by}: {call.result}", request)
    if first := first_request(call):
        key = shown_key(call.effect_key)
        said = f"{call.id} was not run: {(call.result or '').partition(': ')[2]}"
        return DuplicateEffect(said, request, key=key, first=first)
    type, _, said = (call.result or "").partition(": ")
    return CallFailed(f"{call.id} ran and failed: {call.result}", type, said)


def _rejection(call: Call, request: Request) -> SaysoError:
    decision = call.decision
    by = decision.by if decision is not None else "a person"
    why = decision.message if decision is not None else ""
    if decision is not None and decision.type == "deny":
        why = why or "see `sayso policy check`"
        return Denied(f"{call.tool} is forbidden by {by}: {why}", request)
    return Rejected(f"{by} rejected it: {why}" if why else f"{by} rejected it", request)
