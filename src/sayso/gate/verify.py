"""The last look before a call starts: is what will run exactly what was approved?"""

from __future__ import annotations

from sayso import codec
from sayso.engine.asking import doubt_envelope, envelope, signed_bytes
from sayso.errors import Tampered
from sayso.rows import Call
from sayso.stores.base import Store
from sayso.types import Decided, Verdict, Vote

_BY_PERSON = frozenset({"approve", "edit"})
#: Nobody signs what a policy or a grant lets run: the row's MAC covers it, and both are asked again
#: before the start.
_BY_RULE = frozenset({"allow", "grant"})


def verify(store: Store, call: Call) -> None:
    """Raise ``Tampered`` unless digest, decision and signatures of a ready call all agree.

    The MAC of its row was checked when the row was read. What is checked here holds against
    somebody who has the row key as well, but not the key that signs decisions.
    """
    if codec.sha256(call.args.encode()) != call.args_hash:
        raise _tampered(call, "its arguments were changed")
    if codec.digest(envelope(call)) != call.digest:
        raise _tampered(call, "it is not what its digest says")
    decision = call.decision
    if decision is None or decision.type not in _BY_PERSON | _BY_RULE:
        raise _tampered(call, "nobody approved it")
    if decision.digest != call.digest and not _of_a_doubt(call, decision.digest):
        raise _tampered(call, "the approval is of something else")
    if decision.type in _BY_PERSON:
        _check(store, call, decision)
    elif (decision.type == "grant") != (call.grant is not None):
        raise _tampered(call, "it says that a grant covers it, and names none")
    elif decision.type == "allow" and call.terms.verdict is not Verdict.ALLOW:
        raise _tampered(call, "people were to be asked about it, and nobody approved it")
    if call.valid_until != decision.at + round(call.terms.valid_for * 1_000_000):
        raise _tampered(call, "the end of its approval was changed")
    if call.terms.quorum > 1 and decision.type in _BY_PERSON:
        _check_votes(store, call, decision.digest)


def _of_a_doubt(call: Call, digest: str) -> bool:
    """Whether it is "run it again": of this attempt, or of one before a pause or a retry."""
    attempts = range(call.attempt, max(call.attempt - 1000, 0) - 1, -1)
    doubts = (doubt_envelope(call._replace(attempt=attempt)) for attempt in attempts)
    return any(digest == codec.digest(doubt) for doubt in doubts)


def _check_votes(store: Store, call: Call, digest: str) -> None:
    people = set()
    for vote in call.votes:
        if vote.digest == digest:
            _check(store, call, vote)
            people.add(vote.by)
    if len(people) < call.terms.quorum:
        raise _tampered(call, f"{len(people)} of {call.terms.quorum} people approved it")


def _check(store: Store, call: Call, decided: Decided | Vote) -> None:
    if not store.keys.verify(signed_bytes(decided), decided.signature):
        raise _tampered(call, f"the signature of {decided.by} does not hold")


def _tampered(call: Call, what: str) -> Tampered:
    return Tampered(
        f"{call.id} was not run: {what}. Look at `sayso audit verify`, then cancel it "
        f"(`sayso cancel {call.id}`) and ask again"
    )
