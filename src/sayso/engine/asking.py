"""The envelope: what a decision binds, how people are asked about a call, and reminded of it.

A rule can name people who may decide a request too if it stays open for some time. Both stages are
in the terms, and so in the digest, from the start; escalating notes in the row that the second one
has begun. It adds people and removes nobody, so a request that is asked again stays escalated. The
row holds when the reminder and the escalation are due; any server or worker may carry them out.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from sayso.engine.commands import Escalate, Remind
from sayso.engine.unit_of_work import UnitOfWork, sha256_hex
from sayso.rows import Call, CallStatus, dumps, sorted_dumps
from sayso.types import Decided, Micros, Terms, Verdict, Vote

ENVELOPE_VERSION = 1


def envelope(call: Call) -> str:
    """Return everything that a person is shown, as RFC 8785 JSON.

    The tool's digest covers its name, schema, description, title and version; a question is in the
    arguments. Texts of any length are included as hashes.
    """
    # Split at the terms, which many calls have in common.
    first = {
        "agent": call.agent,
        "args": call.args_hash,
        "binds": call.binds,
        "call": call.id,
        "effect_key": call.effect_key,
        "expires": call.expires_at,
        "key": call.key,
        "kind": call.kind,
        "nonce": call.nonce,
        "note": _hashed(call.note) if call.note else "",
        "preview": _hashed(call.preview) if call.preview else "",
        "refusals": list(call.refusals),
        "requester": call.requester,
        "revision": call.rev,
        "run": call.run,
    }
    last = {
        "thread": call.thread,
        "title": _hashed(call.title) if call.title else "",
        "tool": call.tool,
        "tool_digest": call.tool_digest,
        "version": ENVELOPE_VERSION,
        "written": _hashed(call.written) if call.written else "",
    }
    return f'{dumps(first)[:-1]},"terms":{_terms_text(call.terms)},{dumps(last)[1:]}'


def request_digest(call: Call) -> str:
    """Return the digest of a request: the hash of its envelope."""
    return sha256_hex(envelope(call))


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=256)
def _terms_text(terms: Terms) -> str:
    return sorted_dumps(terms_bound(terms))


def terms_bound(terms: Terms) -> dict[str, object]:
    """Return the part of the terms that a decision relies on."""
    remind_after = terms.remind_after
    escalate_after = terms.escalate_after
    return {
        "allowed": list(terms.allowed),
        "assurance": terms.assurance,
        "description": terms.description,
        "effect": terms.effect,
        "escalate_after": None if escalate_after is None else round(escalate_after * 1_000_000),
        "escalate_to": list(terms.escalate_to),
        "footprint": _hashed(terms.footprint) if terms.footprint else "",
        "fresh": None if terms.fresh is None else round(terms.fresh * 1_000_000),
        "max_rejections": terms.max_rejections,
        "notify": list(terms.notify),
        "notify_via": list(terms.notify_via),
        "on_expiry": terms.on_expiry,
        "overturn": terms.overturn,
        "policy": terms.policy,
        "quorum": terms.quorum,
        "remind_after": None if remind_after is None else round(remind_after * 1_000_000),
        "requester_decides": terms.requester_decides,
        "reviewers": list(terms.reviewers),
        "risk": [terms.risk.level, *terms.risk.reasons],
        "rule": terms.rule,
        "valid_for": round(terms.valid_for * 1_000_000),
        # Left out without them, so that requests keep the digests that people approved.
        **({"plan": True} if terms.plan else {}),
        **({"reviewer": [terms.reviewer, terms.reviewer_allows]} if terms.reviewer else {}),
    }


def doubt_digest(digest: str, attempt: int) -> str:
    """Return the digest of "run it again" for a request: of this attempt, so that no older approval
    can mean it."""
    content = {"version": ENVELOPE_VERSION, "in_doubt": digest, "attempt": attempt}
    return sha256_hex(sorted_dumps(content))


def signed_bytes(decided: Decided | Vote) -> bytes:
    """Return what the signature of a decision covers: all of it, long texts as hashes."""
    words = dumps([decided.message, decided.value, decided.stop])
    content = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()
    who = (decided.by, decided.on_behalf_of, decided.assurance, decided.channel)
    people = [list(decided.eligible), decided.eligible_digest, decided.people_seq]
    ends = [decided.not_before] if decided.not_before else []
    parts = (decided.digest, decided.type, *who, *people, *ends, decided.at, content)
    text = dumps(["decision", *parts])
    return text.encode("utf-8", "surrogatepass")


_values_of = attrgetter(*Decided.__slots__)


def signed(work: UnitOfWork, decided: Decided) -> Decided:
    fields = dict(zip(Decided.__slots__, _values_of(decided), strict=True))
    fields["signature"] = work.deps.sign(signed_bytes(decided))
    return Decided(**fields)


def revise(work: UnitOfWork, call: Call, actor: str, **changes: Any) -> Call:
    """Make a new revision of a request, with a new digest; earlier votes are void."""
    return renew(work, call, "revised", actor, **changes)


def renew(work: UnitOfWork, call: Call, event: str, actor: str, **changes: Any) -> Call:
    """Make a new revision on which nobody has decided. What was decided before is void."""
    call = call._replace(rev=call.rev + 1, votes=(), decision=None, valid_until=None, **changes)
    call = work.put_call(call._replace(digest=request_digest(call)))
    about = {"revision": call.rev, "digest": call.digest, "args": call.args_hash}
    work.emit(event, actor=actor, call=call, **about, **_timers(call))
    return call


def ask(
    work: UnitOfWork, call: Call, event: str, *, until: Micros | None = None, **why: object
) -> Call:
    """Give an asked call its expiry, ``until`` at the latest, its timers and its digest; add the
    event. Asking differently about an open request postpones no timer."""
    terms = call.terms
    ends = None if terms.expires_in is None else work.now + round(terms.expires_in * 1_000_000)
    if until is not None:
        ends = until if ends is None else min(ends, until)
    call = call._replace(asked=True, expires_at=ends)
    timers: dict[str, Micros] = {}
    steps = (terms.remind_after, terms.escalate_after, call.reminds_at, call.escalates_at)
    if steps != (None, None, None, None):
        call = _with_timers(work, call)
        timers = _timers(call)
    call = work.put_call(call._replace(digest=request_digest(call)))
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
        **timers,
        **why,
    )
    return call


def _with_timers(work: UnitOfWork, call: Call) -> Call:
    """Set when people are reminded of a request, and when it escalates if it has not."""
    terms = call.terms
    escalates_at = _earlier(call.escalates_at, work.now, terms.escalate_after)
    return call._replace(
        reminds_at=_earlier(call.reminds_at, work.now, terms.remind_after),
        escalates_at=None if call.escalated else escalates_at,
    )


def _earlier(due_at: Micros | None, now: Micros, after: float | None) -> Micros | None:
    """Return when a step is due that the terms want after some seconds: not later than before."""
    if after is None:
        return None
    wanted = now + round(after * 1_000_000)
    return wanted if due_at is None else min(wanted, due_at)


def _timers(call: Call) -> dict[str, Micros]:
    """Return what an event says of the steps that are still due."""
    times = {"reminds": call.reminds_at, "escalates": call.escalates_at}
    return {name: at for name, at in times.items() if at is not None}


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
        reminds_at=None,
        escalates_at=None,
    )
    return ask(work, call, "reasked", reason=reason)


# --- steps that time brings ---


def due_step(call: Call, now: Micros) -> Escalate | Remind | None:
    """Return the command that is due for an open request. An escalation reminds people too."""
    place = {"thread": call.thread, "run": call.run, "call": call.id}
    if call.is_due(call.escalates_at, now):
        return Escalate(**place)
    return Remind(**place) if call.is_due(call.reminds_at, now) else None


def remind(work: UnitOfWork, command: Remind) -> Call:
    """Note that people are reminded of an open request, if it is time; once after each step."""
    call = work.require_call(command.call)
    if not call.is_due(call.reminds_at, work.now):
        return call
    call = work.put_call(call._replace(reminds_at=None))
    work.emit("reminded", actor="clock", call=call, **_timers(call))
    return call


def escalate(work: UnitOfWork, command: Escalate) -> Call:
    """Let more people decide an open request, if it is time. Its digest and votes stay."""
    call = work.require_call(command.call)
    if not call.is_due(call.escalates_at, work.now):
        return call
    remind_at = _earlier(None, work.now, call.terms.remind_after)
    call = call._replace(escalated=True, escalates_at=None, reminds_at=remind_at)
    call = work.put_call(call)
    work.emit(
        "escalated", actor="clock", call=call, to=list(call.terms.escalate_to), **_timers(call)
    )
    return call
