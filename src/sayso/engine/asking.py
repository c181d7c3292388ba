"""What a person is asked to bind themselves to, and how a call is put to them."""

from __future__ import annotations

from dataclasses import replace

from sayso.engine.unit_of_work import UnitOfWork
from sayso.rows import Call, CallStatus
from sayso.types import Micros, Terms, Verdict

ENVELOPE_VERSION = 1


def envelope(call: Call) -> dict[str, object]:
    """Everything that an approval binds; its RFC 8785 hash is the digest that people name."""
    return {
        "version": ENVELOPE_VERSION,
        "call": call.id,
        "nonce": call.nonce,
        "revision": call.rev,
        "kind": call.kind,
        "agent": call.agent,
        "run": call.run,
        "key": call.key,
        "requester": call.requester,
        "tool": call.tool_digest,
        "args": call.args_hash,
        "binds": call.binds,
        "terms": terms_bound(call.terms),
        "expires": call.expires_at,
    }


def terms_bound(terms: Terms) -> dict[str, object]:
    """The part of the terms that a person relies on, and nobody may change behind their back."""
    return {
        "policy": terms.policy,
        "rule": terms.rule,
        "description": terms.description,
        "on_expiry": terms.on_expiry,
        "allowed": list(terms.allowed),
        "reviewers": list(terms.reviewers),
        "quorum": terms.quorum,
        "requester_decides": terms.requester_decides,
        "assurance": terms.assurance,
        "risk": terms.risk.level,
        "effect": terms.effect,
        "valid_for": round(terms.valid_for * 1_000_000),
    }


def doubt_envelope(call: Call) -> dict[str, object]:
    """What "run it again" binds: this doubt of this attempt, so that no older yes can mean it."""
    return {"version": ENVELOPE_VERSION, "in_doubt": call.digest, "attempt": call.attempt}


def signed_bytes(digest: str, type: str, by: str, at: Micros) -> bytes:
    """What the signature of a decision covers."""
    return f"{digest}\n{type}\n{at}\n{by}".encode()


def signed(work: UnitOfWork, digest: str, type: str, by: str) -> str:
    """The signature of a decision made now."""
    return work.deps.sign(signed_bytes(digest, type, by, work.now))


def ask(work: UnitOfWork, call: Call, event: str, **why: object) -> Call:
    """Give an asked call its end and its digest, and tell."""
    terms = call.terms
    ends = None if terms.expires_in is None else work.now + round(terms.expires_in * 1_000_000)
    call = call._replace(asked=True, expires_at=ends)
    call = work.put_call(call._replace(digest=work.deps.digest(envelope(call))))
    work.emit(
        event,
        actor=f"agent:{call.agent}",
        call=call,
        digest=call.digest,
        revision=call.rev,
        kind=call.kind,
        tool=call.tool,
        args=call.args_hash,
        rule=terms.rule,
        quorum=terms.quorum,
        expires=ends,
        **why,
    )
    return call


def ask_again(work: UnitOfWork, call: Call, reason: str) -> Call:
    """Move a ready call back to asked, as a new revision without votes."""
    terms = replace(call.terms, verdict=Verdict.ASK)
    call = work.move(
        call,
        CallStatus.ASKED,
        rev=call.rev + 1,
        terms=terms,
        votes=(),
        decision=None,
        grant=None,
        valid_until=None,
        result=None,
    )
    return ask(work, call, "reasked", reason=reason)
