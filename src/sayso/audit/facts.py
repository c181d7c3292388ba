"""One call as its events tell it, read from the chain alone.

``Facts.tell`` is the engine backwards: where the engine changes a row and adds an event, this takes
the event and says what the row must be. It moves along the same table (``sayso.engine.moves``), so
that a forged event which the engine could not have made is found out too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sayso import codec
from sayso.engine.asking import ENVELOPE_VERSION, signed_bytes
from sayso.engine.moves import MOVES
from sayso.errors import UnknownKey
from sayso.keys import Keyring
from sayso.rows import SETTLEMENTS, CallStatus, Doubt, Event
from sayso.types import Decided, Vote

_S = CallStatus
Body = Mapping[str, Any]

#: Where an event takes its call; what is not here depends on the body, or moves nothing.
_LEADS_TO = {
    "asked": _S.ASKED,
    "reasked": _S.ASKED,
    "allowed": _S.READY,
    "denied": _S.REJECTED,
    "started": _S.RUNNING,
    "suspended": _S.READY,
    "in_doubt": _S.IN_DOUBT,
    "retried": _S.READY,
    "expired": _S.EXPIRED,
    "cancelled": _S.CANCELLED,
    "superseded": _S.SUPERSEDED,
}
_STAYS = frozenset(
    {"voted", "revised", "tightened", "late", "settled", "read_started", "read_stopped"}
)
#: What ends a call with a result, or with why there is none.
_OUTCOMES = frozenset({"recorded", "read_recorded", "duplicate"})
#: Where a call must stand for events that the table of moves alone would let follow elsewhere too.
_FROM = {
    "recorded": (_S.RUNNING, _S.IN_DOUBT),
    "settled": (_S.IN_DOUBT,),
    "read_recorded": (_S.READY,),
    "read_started": (_S.READY,),
    "read_stopped": (_S.READY,),
    "duplicate": (_S.READY,),
}
_YES = frozenset({"approve", "edit"})


class Nonsense(Exception):
    """An event that the engine would not have written at this place."""


@dataclass(slots=True)
class Facts:
    """What the row of one call must be."""

    id: str
    run: str
    thread: str
    seq: int = 0
    pos: int = 0
    at: int = 0
    created: int = 0
    status: CallStatus | None = None
    asked: bool = False
    doubted: bool = False
    digest: str = ""
    args: str = ""
    first_args: str = ""
    tool: str = ""
    expires: int | None = None
    #: The decision as recorded; of a policy's or a grant's, only ``by``, ``at`` and ``digest``.
    decision: Decided | None = None
    by_rule: bool = False
    votes: list[Vote] = field(default_factory=list)
    #: Those before a doubt: an idempotent call that is tried again has them back.
    held: list[Vote] = field(default_factory=list)
    #: How many people stand behind the decision.
    voters: int = 0
    attempt: int = 0
    token: int = 0
    grant: str | None = None
    result: str | None = None
    #: The key of its effect, while it has it.
    effect_key: str = ""
    doubt: Doubt | None = None
    #: A body was missing: what happened cannot be told any more.
    blind: bool = False
    pruned: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing but late results can follow."""
        return self.status is not None and not MOVES[self.status]

    def tell(self, event: Event, body: Body, keys: Keyring) -> None:
        """Take in one event; ``Nonsense`` if it cannot stand here."""
        to = self._leads_to(event.type, body)
        if to is not None and to not in MOVES[self.status]:
            raise Nonsense(f"{event.type!r} cannot follow on {self.status or 'nothing'}")
        if to is None and self.status is None:
            raise Nonsense(f"{event.type!r} of a call that was never made")
        if event.type in _TELLERS:
            _TELLERS[event.type](self, event, body)
        if event.type in ("decided", "voted"):
            self._check_signed(event, body, keys)
        self.status = to or self.status

    def _leads_to(self, type: str, body: Body) -> CallStatus | None:
        if type in _FROM and self.status not in _FROM[type]:
            raise Nonsense(f"{type!r} cannot follow on {self.status or 'nothing'}")
        if type in _STAYS:
            return None
        if type in _OUTCOMES:
            return _S.DONE if body["ok"] else _S.FAILED
        if type == "decided":
            return _decided_to(body["decision"], self.status is _S.IN_DOUBT)
        if type not in _LEADS_TO:
            raise Nonsense(f"there is no event {type!r}")
        return _LEADS_TO[type]

    def _check_signed(self, event: Event, body: Body, keys: Keyring) -> None:
        wanted = self.doubt_digest if self.status is _S.IN_DOUBT else self.digest
        if body["digest"] != wanted:
            raise Nonsense("the decision is about something else")
        decided = _decision(event, body)
        try:
            genuine = keys.verify(signed_bytes(decided), decided.signature)
        except UnknownKey as error:
            raise Nonsense(f"the signature of {event.actor} cannot be checked: {error}") from error
        if not genuine:
            raise Nonsense(f"the signature of {event.actor} does not hold")

    @property
    def doubt_digest(self) -> str:
        """What a decision about a doubt binds (``engine.asking.doubt_envelope``)."""
        return codec.digest(
            {"version": ENVELOPE_VERSION, "in_doubt": self.digest, "attempt": self.attempt}
        )


def _decided_to(decision: str, in_doubt: bool) -> CallStatus:
    if decision in _YES:
        return _S.READY
    if decision == "reject":
        return _S.FAILED if in_doubt else _S.REJECTED
    return _S.DONE if in_doubt else _S.RESPONDED


def _asked(facts: Facts, event: Event, body: Body) -> None:
    _made(facts, event, body)
    facts.asked, facts.expires = True, body["expires"]
    facts.decision, facts.by_rule, facts.grant = None, False, None
    facts.votes, facts.result = [], None


def _made(facts: Facts, event: Event, body: Body) -> None:
    facts.digest, facts.args, facts.tool = body["digest"], body["args"], body["tool"]
    if facts.status is None:
        facts.created, facts.first_args = event.at, body["args"]


def _ruled(facts: Facts, event: Event, body: Body) -> None:
    _made(facts, event, body)
    facts.by_rule = True
    facts.decision = Decided(
        type="allow" if event.type == "allowed" else "deny",
        by=event.actor,
        at=event.at,
        channel="policy",
        assurance="code",
        digest=body["digest"],
        signature="",
    )


def _revised(facts: Facts, event: Event, body: Body) -> None:
    facts.digest, facts.args = body["digest"], body["args"]
    facts.votes = []


def _voted(facts: Facts, event: Event, body: Body) -> None:
    vote = Vote(
        type=body["decision"],
        by=event.actor,
        at=event.at,
        channel=body["channel"],
        assurance=body["assurance"],
        digest=body["digest"],
        signature=body["signature"],
        message=body["message"],
    )
    facts.votes = [*facts.votes, vote]


def _decided(facts: Facts, event: Event, body: Body) -> None:
    kind = body["decision"]
    if kind in _YES:
        _voted(facts, event, body)
        facts.voters = len({vote.by for vote in facts.votes})
    elif kind == "respond":
        facts.result = body["value"]
    elif facts.status is _S.IN_DOUBT:
        facts.result = body["message"] or "given up"
        if facts.doubt is not None and facts.doubt.answer == "did_not_run":
            facts.effect_key = ""
    facts.by_rule = False
    facts.decision = _decision(event, body)


def _decision(event: Event, body: Body) -> Decided:
    """A decision, or a vote, as its event has it."""
    return Decided(
        type=body["decision"],
        by=event.actor,
        at=event.at,
        channel=body["channel"],
        assurance=body["assurance"],
        digest=body["digest"],
        signature=body["signature"],
        message=body["message"],
        value=body["value"],
    )


def _started(facts: Facts, event: Event, body: Body) -> None:
    if body["digest"] != facts.digest:
        raise Nonsense("something else was started")
    facts.attempt, facts.token, facts.grant = body["attempt"], body["token"], body["grant"]
    facts.effect_key = body.get("effect_key", "")


def _suspended(facts: Facts, event: Event, body: Body) -> None:
    facts.effect_key = ""


def _read_started(facts: Facts, event: Event, body: Body) -> None:
    if body["digest"] != facts.digest:
        raise Nonsense("something else was read")
    facts.attempt, facts.token, facts.grant = body["attempt"], body["token"], body["grant"]


def _read(facts: Facts, event: Event, body: Body) -> None:
    facts.result = body["result"]


def _recorded(facts: Facts, event: Event, body: Body) -> None:
    facts.result = body["result"]
    if not body["ok"]:
        facts.effect_key = ""
    if body["late"]:
        facts.votes = []


def _cancelled(facts: Facts, event: Event, body: Body) -> None:
    facts.result = body["reason"] or None


def _in_doubt(facts: Facts, event: Event, body: Body) -> None:
    facts.doubted = True
    facts.votes, facts.held = [], facts.votes
    if "ask_at" in body:  # else it is tried again
        facts.doubt = Doubt(body["ask_at"])


def _settled(facts: Facts, event: Event, body: Body) -> None:
    doubt, answer = facts.doubt, body["answer"]
    if doubt is None or body["attempt"] != facts.attempt or answer not in SETTLEMENTS:
        raise Nonsense("the other side was asked about something else")
    if doubt.answer not in ("", "unknown") or doubt.ask_at > event.at:
        raise Nonsense("the other side was asked again, or too early")
    facts.doubt = doubt._replace(answer=answer, said=body["said"], at=event.at)


def _retried(facts: Facts, event: Event, body: Body) -> None:
    facts.votes = facts.held


_TELLERS: dict[str, Callable[[Facts, Event, Body], None]] = {
    "asked": _asked,
    "reasked": _asked,
    "tightened": _asked,
    "allowed": _ruled,
    "denied": _ruled,
    "revised": _revised,
    "voted": _voted,
    "decided": _decided,
    "started": _started,
    "suspended": _suspended,
    "recorded": _recorded,
    "duplicate": _read,
    "read_started": _read_started,
    "read_stopped": _read,
    "read_recorded": _read,
    "cancelled": _cancelled,
    "in_doubt": _in_doubt,
    "settled": _settled,
    "retried": _retried,
}
