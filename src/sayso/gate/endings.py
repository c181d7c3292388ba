"""What a call that has ended without a result means to whoever made it."""

from __future__ import annotations

from sayso.errors import (
    CallFailed,
    Cancelled,
    Denied,
    Expired,
    InDoubt,
    Refused,
    Rejected,
    SaysoError,
    Superseded,
)
from sayso.gate.words import STARTED_BEFORE
from sayso.rows import Call, CallStatus
from sayso.types import Request

_REFUSALS: dict[CallStatus, type[Refused]] = {
    CallStatus.EXPIRED: Expired,
    CallStatus.CANCELLED: Cancelled,
    CallStatus.SUPERSEDED: Superseded,
}


def ending(call: Call, request: Request, stop: str) -> SaysoError:
    """The error for a call that failed, was refused or was closed; ``stop`` is its run's reason."""
    if call.status is CallStatus.FAILED:
        return _failed(call, request)
    if call.status is CallStatus.REJECTED:
        return _rejected(call, request)
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


def _failed(call: Call, request: Request) -> SaysoError:
    decision = call.decision
    if decision is not None and decision.type == "reject":
        return InDoubt(f"{call.id} was given up by {decision.by}: {call.result}", request)
    return CallFailed(f"{call.id} ran and failed: {call.result}")


def _rejected(call: Call, request: Request) -> SaysoError:
    decision = call.decision
    by = decision.by if decision is not None else "somebody"
    why = decision.message if decision is not None else ""
    if decision is not None and decision.type == "deny":
        why = why or "see `sayso policy check`"
        return Denied(f"{call.tool} is forbidden by {by}: {why}", request)
    return Rejected(f"{by} rejected it: {why}" if why else f"{by} rejected it", request)
