"""Replay events, and compare the result with the rows: calls, runs, messages, thread owners.

``ExpectedCall.apply`` and ``ExpectedRun.apply`` are the engine in reverse: the engine changes a row
and adds an event; these take the event and derive the row. They follow the same tables of moves
(``sayso.engine.moves``), so they also find forged events that the engine could not have written.

Runs, messages and owners change without events of their own. A transaction that writes to them says
so in one of its events, under ``writes`` (``UnitOfWork.close``): the fields of a new run, a new
owner, and hashes of the run's contents and of appended messages. Whether a live run is paused or
running depends on its calls and its lease, so the chain does not say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sayso import codec
from sayso.audit.chain import DAMAGE_ERRORS, reason_of
from sayso.engine.asking import doubt_digest, request_digest, signed_bytes
from sayso.engine.deciding import model_may_allow
from sayso.engine.moves import MOVES, RUN_MOVES
from sayso.engine.unit_of_work import COUNTERS, messages_hash
from sayso.errors import NotAllowed, UnknownKey
from sayso.keys import Keyring
from sayso.passkeys import Assertion
from sayso.rows import (
    LATER,
    LIVE,
    SETTLEMENTS,
    Call,
    CallStatus,
    Doubt,
    Event,
    Run,
    RunStatus,
    StoredMessage,
)
from sayso.stores.row_checks import row_wrong
from sayso.types import Decided, Micros, Refusal, Vote

_S = CallStatus
Body = Mapping[str, Any]

#: The status that an event leads to. Events not listed depend on their body, or move nothing.
_NEXT_STATUS = {
    "asked": _S.ASKED,
    "reasked": _S.ASKED,
    "allowed": _S.READY,
    "denied": _S.REJECTED,
    "refused": _S.REJECTED,
    "started": _S.RUNNING,
    "released": _S.RELEASED,
    "suspended": _S.READY,
    "in_doubt": _S.IN_DOUBT,
    "retried": _S.READY,
    "expired": _S.EXPIRED,
    "cancelled": _S.CANCELLED,
    "superseded": _S.SUPERSEDED,
}
_UNMOVED = frozenset(
    {
        *("voted", "revised", "tightened", "late", "settled", "read_started", "read_stopped"),
        *("joined", "deferred", "reported", "attempt_ended", "votes_voided", "held", "undone"),
        *("reminded", "escalated", "signed_again", "reviewed"),
    }
)
#: Events that end a call with a result, or with the reason why there is none.
_OUTCOMES = frozenset({"recorded", "read_recorded", "duplicate"})
#: The status that an event requires, where the table of moves alone would allow others too.
_REQUIRED_STATUS = {
    "recorded": (_S.RUNNING, _S.IN_DOUBT),
    "reminded": (_S.ASKED,),
    "escalated": (_S.ASKED,),
    "reviewed": (_S.ASKED,),
    "settled": (_S.IN_DOUBT,),
    "attempt_ended": (_S.IN_DOUBT,),
    "read_recorded": (_S.READY,),
    "read_started": (_S.READY,),
    "read_stopped": (_S.READY,),
    "duplicate": (_S.READY,),
    "deferred": (_S.ASKED, _S.IN_DOUBT),
    "held": (_S.ASKED,),
    "undone": (_S.ASKED,),
    "reported": (_S.RELEASED,),
}
_APPROVING = frozenset({"approve", "edit"})


class ImpossibleEvent(Exception):
    """The engine would not have written this event here."""


@dataclass(slots=True)
class Expected:
    """A row as its events imply it."""

    id: str
    thread: str
    #: The place of its last event.
    seq: int = 0
    pos: int = 0
    created: Micros = 0
    #: An event had no body, so the row can no longer be derived.
    body_missing: bool = False
    pruned: bool = False

    def follows(self, event: Event, body: Body | None, *, pruned: bool) -> bool:
        """Note the place of an event. Return whether the row can still be derived from it."""
        self.seq = event.seq
        self.pos = event.pos
        if body is None:
            self.body_missing = True
            self.pruned = pruned
        return not self.body_missing


@dataclass(slots=True)
class ExpectedCall(Expected):
    """A call's row as its events imply it."""

    run: str = ""
    status: CallStatus | None = None
    asked: bool = False
    doubted: bool = False
    digest: str = ""
    args: str = ""
    first_args: str = ""
    tool: str = ""
    expires: int | None = None
    reminds: int | None = None
    escalates: int | None = None
    escalated: bool = False
    #: By whom and when the votes were given that came before it escalated.
    early_votes: frozenset[tuple[str, Micros]] = frozenset()
    #: The recorded decision; if a policy or a grant decided, only ``by``, ``at`` and ``digest``.
    decision: Decided | None = None
    by_rule: bool = False
    votes: list[Vote] = field(default_factory=list)
    #: Votes before the call was in doubt: an idempotent call that is retried gets them back.
    votes_before_doubt: list[Vote] = field(default_factory=list)
    #: How many people voted for the decision.
    voters: int = 0
    attempt: int = 0
    token: int = 0
    grant: str | None = None
    result: str | None = None
    #: The effect key, while the call holds it.
    effect_key: str = ""
    doubt: Doubt | None = None
    #: The caller that waits for the call, if an event names one; a new call may have one without.
    caller: str | None = None
    #: The refusal that its rejection made, and those that its approval overturned.
    refusal: Refusal | None = None
    overturned: tuple[str, ...] = ()
    #: What a model said of it.
    opinion: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Return whether only late results can follow.

        An agent may still report the result of a released call, or collect an answer that came
        after its request was deferred.
        """
        closed = self.status is not None and not MOVES[self.status]
        unreported = self.status is _S.RELEASED and self.result is None
        return closed and not unreported and self.caller != LATER

    def apply(self, event: Event, body: Body, keys: Keyring) -> None:
        """Apply an event. Raise ``ImpossibleEvent`` if it cannot follow."""
        to = self._next_status(event.type, body)
        if to is not None and to not in MOVES[self.status]:
            raise ImpossibleEvent(f"{event.type!r} cannot follow {self.status or 'nothing'}")
        if to is None and self.status is None:
            raise ImpossibleEvent(f"{event.type!r} for a call that was never made")
        if event.type in _APPLY:
            _APPLY[event.type](self, event, body)
        if event.type in ("decided", "voted", "held"):
            self._check_signed(event, body, keys)
        self.status = to or self.status

    def _next_status(self, type: str, body: Body) -> CallStatus | None:
        if type in _REQUIRED_STATUS and self.status not in _REQUIRED_STATUS[type]:
            raise ImpossibleEvent(f"{type!r} cannot follow {self.status or 'nothing'}")
        if type in _UNMOVED:
            return None
        if type in _OUTCOMES:
            return _S.DONE if body["ok"] else _S.FAILED
        if type == "decided":
            return _status_after_decision(body["decision"], self.status is _S.IN_DOUBT)
        if type not in _NEXT_STATUS:
            raise ImpossibleEvent(f"there is no event {type!r}")
        return _NEXT_STATUS[type]

    def _check_signed(self, event: Event, body: Body, keys: Keyring) -> None:
        expected_digest = self.doubt_digest if self.status is _S.IN_DOUBT else self.digest
        if body["digest"] != expected_digest:
            raise ImpossibleEvent("the decision is about something else")
        decided = _decision(event, body)
        try:
            genuine = keys.verify(signed_bytes(decided), decided.signature)
        except UnknownKey as error:
            why = f"the signature of {event.actor} cannot be checked: {error}"
            raise ImpossibleEvent(why) from error
        if not genuine:
            raise ImpossibleEvent(f"the signature of {event.actor} is not valid")
        if decided.assurance == "passkey" or "passkey" in body:
            _check_passkey(event, body)

    @property
    def doubt_digest(self) -> str:
        """Return the digest that a decision about a doubt binds."""
        return doubt_digest(self.digest, self.attempt)


def _status_after_decision(decision: str, in_doubt: bool) -> CallStatus:
    if decision in _APPROVING or (decision == "model" and not in_doubt):
        return _S.READY
    if decision == "reject":
        return _S.FAILED if in_doubt else _S.REJECTED
    return _S.DONE if in_doubt else _S.RESPONDED


def _asked(expected: ExpectedCall, event: Event, body: Body) -> None:
    _set_content(expected, event, body)
    expected.asked = True
    expected.expires = body["expires"]
    _set_timers(expected, event, body)
    expected.decision = None
    expected.by_rule = False
    expected.grant = None
    expected.votes = []
    expected.result = None


def _set_content(expected: ExpectedCall, event: Event, body: Body) -> None:
    expected.digest = body["digest"]
    expected.args = body["args"]
    expected.tool = body["tool"]
    if expected.status is None:
        expected.created = event.at
        expected.first_args = body["args"]


#: What a policy, a grant or an earlier rejection decided.
_RULE_DECISIONS = {"allowed": "allow", "denied": "deny", "refused": "reject"}


def _decided_by_rule(expected: ExpectedCall, event: Event, body: Body) -> None:
    _set_content(expected, event, body)
    expected.by_rule = True
    expected.decision = Decided(
        type=_RULE_DECISIONS[event.type],
        by=event.actor,
        at=event.at,
        channel="policy",
        assurance="code",
        digest=body["digest"],
        signature="",
    )


def _revised(expected: ExpectedCall, event: Event, body: Body) -> None:
    expected.digest = body["digest"]
    expected.args = body["args"]
    expected.votes = []
    expected.decision = None
    _set_timers(expected, event, body)


def _set_timers(expected: ExpectedCall, event: Event, body: Body) -> None:
    expected.reminds = body.get("reminds")
    expected.escalates = body.get("escalates")


def _reminded(expected: ExpectedCall, event: Event, body: Body) -> None:
    if expected.reminds is None or expected.reminds > event.at:
        raise ImpossibleEvent("people were reminded before the time or twice")
    _set_timers(expected, event, body)


def _reviewed(expected: ExpectedCall, event: Event, body: Body) -> None:
    if expected.opinion or body["digest"] != expected.digest:
        raise ImpossibleEvent("a model reviewed it twice, or something else")
    expected.opinion = (body["answer"], body["reason"], body["digest"])


def _escalated(expected: ExpectedCall, event: Event, body: Body) -> None:
    if expected.escalates is None or expected.escalates > event.at:
        raise ImpossibleEvent("it escalated before the time or twice")
    expected.escalated = True
    expected.early_votes = frozenset((vote.by, vote.at) for vote in expected.votes)
    _set_timers(expected, event, body)


def _signature_fields(event: Event, body: Body) -> dict[str, Any]:
    """Return the fields that votes and decisions share."""
    names = ("channel", "assurance", "digest", "signature", "message")
    fields = {name: body[name] for name in names}
    fields |= {"on_behalf_of": body.get("on_behalf_of", "")}
    fields |= {"eligible": tuple(body.get("eligible", ())), "people_seq": body.get("people_seq", 0)}
    fields["eligible_digest"] = body.get("eligible_digest", "")
    fields |= {"at": body.get("at", event.at), "not_before": body.get("not_before", 0)}
    return {"type": body["decision"], "by": event.actor, **fields}


def _voted(expected: ExpectedCall, event: Event, body: Body) -> None:
    expected.votes = [*expected.votes, Vote(**_signature_fields(event, body))]


def _votes_voided(expected: ExpectedCall, event: Event, body: Body) -> None:
    expected.votes = [vote for vote in expected.votes if vote.by not in body["void"]]


def _held(expected: ExpectedCall, event: Event, body: Body) -> None:
    if expected.decision is not None or body["not_before"] <= event.at:
        raise ImpossibleEvent("a decision was held that another one, or the time, excludes")
    if body["decision"] in _APPROVING:
        _voted(expected, event, body)
        expected.voters = len({vote.by for vote in expected.votes})
    expected.decision = _decision(event, body)


def _undone(expected: ExpectedCall, event: Event, body: Body) -> None:
    if expected.decision is None or expected.decision.not_before <= event.at:
        raise ImpossibleEvent("there was no decision that could be undone")
    _revised(expected, event, body)


def _decided(expected: ExpectedCall, event: Event, body: Body) -> None:
    kind = body["decision"]
    held = expected.decision if expected.status is _S.ASKED else None
    if body.get("not_before", 0) > event.at or held not in (None, _decision(event, body)):
        raise ImpossibleEvent("another decision was held, or it takes effect later")
    if kind in _APPROVING:
        if held is None:
            _voted(expected, event, body)
        expected.voters = len({vote.by for vote in expected.votes})
    elif kind == "respond":
        expected.result = body["value"]
    elif expected.status is _S.IN_DOUBT:
        expected.result = body["message"] or "given up"
        if expected.doubt is not None and expected.doubt.answer == "did_not_run":
            expected.effect_key = ""
    expected.by_rule = False
    expected.decision = _decision(event, body)
    expected.overturned = tuple(body.get("overturned", ()))
    if "refusal" in body:
        expected.refusal = _refusal(expected, event, body)


def _refusal(expected: ExpectedCall, event: Event, body: Body) -> Refusal:
    """Return the refusal that a rejection made, without what only its row holds."""
    return Refusal(
        id=body["refusal"],
        request=expected.id,
        run=expected.run,
        thread=expected.thread,
        scope=body["scope"],
        agent="",
        tool=expected.tool,
        tool_digest="",
        args_hash=expected.first_args,
        by=event.actor,
        at=event.at,
        message=body["message"],
        ends=body["ends"],
    )


def _check_passkey(event: Event, body: Body) -> None:
    """Raise ``ImpossibleEvent`` unless a passkey signed this decision."""
    try:
        signed = Assertion.from_json(body.get("passkey")).check()
    except (ValueError, NotAllowed) as error:
        raise ImpossibleEvent(f"the passkey of {event.actor}: {error}") from None
    decision = signed.get("decision", {})
    edited = body["decision"] == "edit"  # the digest is of the new revision then
    matches = (
        signed.get("request") == event.call
        and decision.get("type") == body["decision"]
        and (decision.get("message") or "") == (body["message"] or "")
        and decision.get("value") == (None if body["value"] is None else codec.loads(body["value"]))
        and decision.get("stop", False) == body.get("stop", False)
        and (edited or signed.get("digest") == body["digest"])
    )
    if not matches:
        raise ImpossibleEvent(f"the passkey of {event.actor} signed another decision")


def _decision(event: Event, body: Body) -> Decided:
    return Decided(
        **_signature_fields(event, body),
        value=body["value"],
        stop=body.get("stop", False),
        claim=body.get("claim", ""),
    )


def _started(expected: ExpectedCall, event: Event, body: Body) -> None:
    """Apply ``started``, ``released`` or ``read_started``."""
    if body["digest"] != expected.digest:
        what = "read" if event.type == "read_started" else event.type
        raise ImpossibleEvent(f"something else was {what}")
    expected.attempt = body["attempt"]
    expected.grant = body["grant"]
    if event.type == "released":
        expected.caller = None
    else:
        expected.token = body["token"]
    if event.type != "read_started":
        expected.effect_key = body.get("effect_key", "")


def _reported(expected: ExpectedCall, event: Event, body: Body) -> None:
    if expected.result is not None:
        raise ImpossibleEvent("a result was reported twice")
    expected.result = body["result"]


def _caller(expected: ExpectedCall, event: Event, body: Body) -> None:
    expected.caller = LATER if event.type == "deferred" else body["caller"]


def _suspended(expected: ExpectedCall, event: Event, body: Body) -> None:
    expected.effect_key = ""


def _read(expected: ExpectedCall, event: Event, body: Body) -> None:
    expected.result = body["result"]


def _recorded(expected: ExpectedCall, event: Event, body: Body) -> None:
    expected.result = body["result"]
    if not body["ok"]:
        expected.effect_key = ""
    if body["late"]:
        expected.votes = []


def _cancelled(expected: ExpectedCall, event: Event, body: Body) -> None:
    expected.result = body["reason"] or None


def _in_doubt(expected: ExpectedCall, event: Event, body: Body) -> None:
    expected.doubted = True
    expected.votes, expected.votes_before_doubt = [], expected.votes
    if "ask_at" in body:  # otherwise it is retried
        expected.doubt = Doubt(body["ask_at"], ended=body["ended"], reason=body["reason"])


def _attempt_ended(expected: ExpectedCall, event: Event, body: Body) -> None:
    if expected.doubt is None or body["attempt"] != expected.attempt:
        raise ImpossibleEvent("another attempt was in doubt")
    expected.doubt = Doubt(event.at, ended=True, reason=body["reason"])


def _settled(expected: ExpectedCall, event: Event, body: Body) -> None:
    doubt = expected.doubt
    answer = body["answer"]
    if doubt is None or body["attempt"] != expected.attempt or answer not in SETTLEMENTS:
        raise ImpossibleEvent("settle= was asked about another attempt")
    if doubt.answer not in ("", "unknown") or doubt.ask_at > event.at:
        raise ImpossibleEvent("settle= was asked again, or too early")
    expected.doubt = doubt._replace(answer=answer, said=body["said"], at=event.at)


def _retried(expected: ExpectedCall, event: Event, body: Body) -> None:
    expected.votes = expected.votes_before_doubt


_APPLY: dict[str, Callable[[ExpectedCall, Event, Body], None]] = {
    "asked": _asked,
    "reasked": _asked,
    "tightened": _asked,
    "allowed": _decided_by_rule,
    "denied": _decided_by_rule,
    "refused": _decided_by_rule,
    "revised": _revised,
    "reminded": _reminded,
    "escalated": _escalated,
    "voted": _voted,
    "votes_voided": _votes_voided,
    "decided": _decided,
    "held": _held,
    "undone": _undone,
    "reviewed": _reviewed,
    "started": _started,
    "released": _started,
    "reported": _reported,
    "joined": _caller,
    "deferred": _caller,
    "suspended": _suspended,
    "recorded": _recorded,
    "duplicate": _read,
    "read_started": _started,
    "read_stopped": _read,
    "read_recorded": _read,
    "cancelled": _cancelled,
    "in_doubt": _in_doubt,
    "settled": _settled,
    "attempt_ended": _attempt_ended,
    "retried": _retried,
}


_APPROVALS = frozenset({"approve", "edit", "allow", "grant", "model"})


def call_mismatches(call: Call, expected: ExpectedCall, keys: Keyring) -> list[str]:
    """Return the columns in which the row does not match its events."""
    try:
        matches = {
            "thread": call.thread == expected.thread,
            "run": call.run == expected.run,
            "status": call.status == expected.status,
            "args": codec.sha256(call.args.encode()) == expected.args == call.args_hash,
            "original": _same_original(call, expected),
            "digest": call.digest == expected.digest,
            "tool": call.tool == expected.tool,
            "asked": call.asked == expected.asked or expected.doubted,
            "expires_at": call.expires_at == expected.expires,
            "reminds_at": call.reminds_at == expected.reminds,
            "escalates_at": call.escalates_at == expected.escalates,
            "escalated": call.escalated == expected.escalated,
            "votes": _same_votes(call, expected, keys),
            "decision": _same_decision(call, expected, keys),
            "quorum": _has_quorum(call, expected),
            "valid_until": _same_end(call),
            "attempt": call.attempt == expected.attempt,
            "token": call.token == expected.token,
            "grant": call.grant == expected.grant or expected.attempt == 0,
            "doubt": _same_doubt(call.doubt, expected.doubt),
            "caller": expected.caller in (None, call.caller),
            "opinion": call.terms.opinion in ((), expected.opinion),
            "result": call.result == expected.result,
            "created": call.created == expected.created,
        }
        mismatches = [name for name, does_match in matches.items() if not does_match]
        # The digest covers the rest: terms, binds, nonce, agent, revision, tool digest.
        if not mismatches and request_digest(call) != call.digest:
            mismatches.append("terms, or another column under its digest")
        if not mismatches and keys.rows and row_wrong(keys, call):
            mismatches.append("another column under its MAC")
    except DAMAGE_ERRORS as error:
        return [f"a column that cannot be read ({reason_of(error)})"]
    return mismatches


def _same_doubt(stored: Doubt | None, expected: Doubt | None) -> bool:
    """Compare doubts. While the attempt still runs, its times grow without an event."""
    if stored is None or expected is None or not stored.running_until:
        return stored == expected
    at_first = stored._replace(ask_at=expected.ask_at, running_until=0)
    return stored.ask_at >= expected.ask_at and at_first == expected


def _same_original(call: Call, expected: ExpectedCall) -> bool:
    if call.original is None:
        return expected.args == expected.first_args
    return codec.sha256(call.original.encode()) == expected.first_args


def _same_votes(call: Call, expected: ExpectedCall, keys: Keyring) -> bool:
    pairs = zip(call.votes, expected.votes, strict=False)
    same = all(_same_signed(vote, other, keys) for vote, other in pairs)
    return same and len(call.votes) == len(expected.votes)


def _same_signed(stored: Decided | Vote, expected: Decided | Vote, keys: Keyring) -> bool:
    """Compare decisions. The stored one may be signed with a newer key than its event."""
    if stored == expected:
        return True
    same = stored == replace(expected, signature=stored.signature)
    return same and keys.verify(signed_bytes(stored), stored.signature)


def _same_decision(call: Call, expected: ExpectedCall, keys: Keyring) -> bool:
    decision = call.decision
    expected_decision = expected.decision
    if decision is None or expected_decision is None:
        return decision == expected_decision
    if not expected.by_rule:
        return _same_signed(decision, expected_decision, keys)
    # A policy's or a grant's decision is not signed; the row holds what the event leaves out.
    if expected_decision.type == "reject":
        return decision == replace(expected_decision, message=decision.message)
    if expected_decision.type == "deny":
        return decision == replace(expected_decision, message=call.terms.description)
    return decision == replace(expected_decision, type="allow" if call.grant is None else "grant")


def _has_quorum(call: Call, expected: ExpectedCall) -> bool:
    decision = expected.decision
    if decision is None or expected.by_rule or decision.type not in _APPROVALS:
        return True
    if decision.type == "model":
        return decision.by == call.terms.reviewer and model_may_allow(call)
    return expected.voters >= call.terms.quorum


def _same_end(call: Call) -> bool:
    decision = call.decision
    if decision is None or decision.type not in _APPROVALS:
        return True
    return call.valid_until == decision.at + round(call.terms.valid_for * 1_000_000)


# -- runs, messages and owners

_R = RunStatus
#: Events that may follow the end of a run; they move nothing.
_AFTER_END = frozenset({"late", "broke", "reported", "prompted"})
#: A call in doubt when its run was cancelled is still settled, by a person or by its result.
_SETTLES_DOUBT = frozenset({"decided", "voted", "settled", "recorded", "attempt_ended"})


@dataclass(slots=True)
class ExpectedRun(Expected):
    """A run's row as its events imply it."""

    #: The agent, its digest, the requester, and the call that the run belongs to.
    began: tuple[Any, ...] | None = None
    status: RunStatus = _R.RUNNING
    token: int = 0
    #: The SHA-256 of each, if it is set.
    stop: str | None = None
    snapshot: str | None = None
    output: str | None = None
    scope: str | None = None

    def apply(self, event: Event, body: Mapping[str, Any]) -> None:
        """Apply an event. Raise ``ImpossibleEvent`` if it cannot follow."""
        writes = body.get("writes", {})
        if "run" in writes:
            if self.began is not None:
                raise ImpossibleEvent(f"run {self.id} starts a second time")
            self.began = tuple(writes["run"])
            self.created = event.at
        elif self.began is None:
            raise ImpossibleEvent(f"{event.type!r} for run {self.id}, which never started")
        self._move(event, body)
        for name in ("stop", "snapshot", "output", "scope"):
            if name in writes:
                setattr(self, name, writes[name])
        if isinstance(body.get("token"), int):
            self.token = max(self.token, body["token"])

    def _move(self, event: Event, body: Mapping[str, Any]) -> None:
        to = self.status
        if event.type == "finished":
            to = _R(body["status"])
        elif event.type == "run_cancelled":
            to = _R.CANCELLED
        elif event.type == "reopened":
            to = _R.RUNNING
        elif self.status not in LIVE and event.type not in _AFTER_END:
            doubt = self.status is _R.CANCELLED and event.type in _SETTLES_DOUBT
            if not doubt:
                raise ImpossibleEvent(f"{event.type!r} follows the end of run {self.id}")
        stays = to is self.status and event.type not in ("finished", "run_cancelled", "reopened")
        if not stays and to not in RUN_MOVES[self.status]:
            raise ImpossibleEvent(f"{event.type!r} cannot follow: run {self.id} is {self.status}")
        self.status = to


def run_mismatches(
    run: Run, expected: ExpectedRun, open_calls: Counter[CallStatus], keys: Keyring
) -> list[str]:
    """Return the columns in which a run's row does not match its events, or its MAC."""
    is_over = expected.status not in LIVE
    matches = {
        "thread": run.thread == expected.thread,
        "agent": expected.began == (run.agent, run.agent_digest, run.requester, run.parent_call),
        "created": run.created == expected.created,
        "status": run.status is expected.status if is_over else run.status in LIVE,
        "stop": _hash(run.stop or None) == expected.stop,
        "snapshot": _hash(run.snapshot) == expected.snapshot,
        "output": _hash(run.output) == expected.output,
        "scope": _hash(run.scope or None) == expected.scope,
        "token": run.token >= expected.token,
        "lease": not is_over or (run.owner, run.ready_at) == (None, None),
        **{name: getattr(run, name) == open_calls[state] for state, name in COUNTERS.items()},
    }
    wrong = [name for name, does_match in matches.items() if not does_match]
    if not wrong and keys.rows and row_wrong(keys, run):
        wrong.append("another column under its MAC")
    return wrong


def _hash(text: str | None) -> str | None:
    return None if text is None else codec.sha256(text.encode())


class Appended(NamedTuple):
    """The messages that one transaction appended, and the event that says so."""

    first: int
    last: int
    hash: str
    event: Event


@dataclass(slots=True)
class ExpectedConversation:
    """A thread's messages and owner as its events imply them."""

    owner: str = ""
    appended: list[Appended] = field(default_factory=list)
    #: Some events have no body, so there may be more messages than those listed.
    body_missing: bool = False

    def apply(self, event: Event, body: Mapping[str, Any]) -> None:
        """Apply an event. Raise ``ImpossibleEvent`` if it cannot follow."""
        writes = body.get("writes", {})
        if "owner" in writes:
            if self.owner:
                raise ImpossibleEvent(f"the thread belongs to {self.owner} and gets another owner")
            self.owner = writes["owner"]
        if "messages" in writes:
            first, last, digest = writes["messages"]
            before = self.appended[-1].last if self.appended else 0
            if first <= before or (first > before + 1 and not self.body_missing):
                raise ImpossibleEvent(f"message {first} cannot follow message {before}")
            self.appended.append(Appended(first, last, digest, event))


def message_problems(
    appended: Sequence[Appended],
    messages: Iterable[StoredMessage],
    count: int,
    *,
    body_missing: bool,
) -> Iterator[tuple[Event | None, str]]:
    """Yield what is wrong with a thread's messages, each with the event that appended them.

    ``count`` is the number of messages in the thread's row. ``body_missing`` says that events with
    messages may have been pruned.
    """
    rows = {message.seq: message for message in messages}
    for first, last, digest, event in appended:
        stored_rows = [rows.pop(seq) for seq in range(first, last + 1) if seq in rows]
        if len(stored_rows) < last - first + 1:
            yield event, f"some of the messages {first} to {last} are missing"
        elif messages_hash(stored_rows) != digest:
            yield event, f"the messages {first} to {last} were changed"
    if rows:
        yield None, f"message {min(rows)} is in the table, but no event appended it"
    recorded = appended[-1].last if appended else 0
    if count != recorded and not (body_missing and count > recorded):
        yield None, f"the thread's row counts {count} messages, its events {recorded}"
