"""The rules that the model checks: who may change a call, when, and into what.

They repeat no line of the engine: each looks at a call before and after a command, and says what
must have been so for that change to be right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from sayso.engine import Command
from sayso.engine.asking import doubt_digest
from sayso.engine.commands import (
    Cancel,
    Claim,
    Complete,
    Decide,
    Defer,
    Escalate,
    Expire,
    Finish,
    MarkInDoubt,
    Propose,
    Reask,
    Record,
    Recover,
    Release,
    ReleaseLapsed,
    Remind,
    ReportResult,
    Review,
    Settle,
    Start,
    Suspend,
    Undo,
)
from sayso.engine.effects import is_remote
from sayso.rows import LATER, Call, CallStatus, Run
from sayso.types import ASSURANCE

_S = CallStatus
_OVER = (_S.DONE, _S.FAILED)
Moves = set[tuple[CallStatus | None, CallStatus]]

#: From where to where each command may move a call; ``None`` is before it was made.
MAY_MOVE: dict[type[Command], Moves] = {
    Propose: set(product([None], [_S.ASKED, _S.READY, _S.REJECTED, _S.RUNNING, *_OVER])),
    Decide: {
        *product([_S.ASKED], [_S.READY, _S.REJECTED, _S.RESPONDED, _S.CANCELLED]),
        # An equal call was rejected, or the run was stopped.
        *product([_S.READY], [_S.ASKED, _S.CANCELLED]),
        *product([_S.IN_DOUBT], [_S.READY, *_OVER]),
    },
    Review: {
        *product([_S.ASKED], [_S.READY, _S.REJECTED]),
        (_S.READY, _S.ASKED),  # an equal call was rejected
    },
    Reask: {(_S.READY, _S.ASKED)},
    Claim: set(product([_S.RUNNING], [_S.IN_DOUBT, _S.READY])),
    MarkInDoubt: set(product([_S.RUNNING], [_S.IN_DOUBT, _S.READY])),
    ReleaseLapsed: set(product([_S.RUNNING], [_S.IN_DOUBT, _S.READY])),
    Start: set(product([_S.READY], [_S.RUNNING, _S.ASKED, *_OVER])),
    Release: set(product([_S.READY], [_S.RELEASED, _S.ASKED, *_OVER])),
    Complete: set(product([_S.READY], [_S.DONE, _S.ASKED, _S.FAILED])),
    Record: {
        *product([_S.RUNNING, _S.IN_DOUBT, _S.READY], _OVER),
        (_S.RUNNING, _S.IN_DOUBT),
    },
    Settle: {(_S.IN_DOUBT, _S.DONE)},
    Finish: {(_S.READY, _S.FAILED)},
    Suspend: set(product([_S.RUNNING], [_S.READY, _S.CANCELLED])),
    Expire: {
        *product([_S.ASKED], [_S.EXPIRED, _S.READY, _S.REJECTED, _S.RESPONDED]),
        *product([_S.ASKED, _S.READY], [_S.CANCELLED]),
        (_S.READY, _S.ASKED),  # an equal call was rejected
    },
    Escalate: {(_S.ASKED, _S.ASKED)},
    Cancel: set(product([_S.ASKED, _S.READY], [_S.CANCELLED, _S.SUPERSEDED])),
    Recover: set(product([_S.READY, _S.RUNNING], [_S.IN_DOUBT])),
}


def may_move(commands: tuple[Command, ...]) -> Moves:
    """Return whether several commands in one transaction may make this move."""
    allowed: Moves = set()
    for command in commands:
        own = MAY_MOVE.get(type(command), set())
        joined = {(a, d) for a, b in allowed for c, d in own if b is c}
        allowed = allowed | own | joined
    return allowed


def check_change(
    commands: tuple[Command, ...], before: Call, after: Call, run: Run, now: int
) -> None:
    """Whether these commands may have made this of a call; ``run`` is as it was before."""
    for name in ("id", "run", "thread", "key", "kind", "agent", "tool", "nonce", "created"):
        assert getattr(before, name) == getattr(after, name), f"{name} has changed"
    edits = any(isinstance(c, Decide) and c.type == "edit" for c in commands)
    undone = any(isinstance(command, Undo) for command in commands)
    if not edits and not undone:
        assert (before.args, before.original) == (after.args, after.original)
        assert before.terms.quorum == after.terms.quorum
        assert before.terms.effect == after.terms.effect
    if after.status is _S.ASKED and before.status is not _S.ASKED:
        assert (after.rev, after.votes, after.decision) == (before.rev + 1, (), None)
        assert after.digest != before.digest
    _check_hold(before, after, now)
    if before.terms.effect == "read":
        assert after.status not in (_S.RUNNING, _S.IN_DOUBT), "a read is never in doubt"
    elif before.status is _S.READY and after.status in _OVER and not before.effect_key:
        assert after.attempt == before.attempt + 1, "it ended, and never began"
    if before.status is _S.RUNNING and after.status is _S.READY:
        pauses = any(isinstance(command, Suspend) for command in commands)
        assert pauses or before.terms.effect == "idempotent", "it was run again, and nobody said so"
    if before.caller != after.caller:
        may_change = (Propose, Release, Defer)
        assert any(isinstance(command, may_change) for command in commands), "who waits now?"
    escalates = any(isinstance(command, Escalate) for command in commands)
    assert before.escalated <= after.escalated <= (before.escalated or escalates), "by whom?"
    for command in commands:
        law = LAWS.get(type(command))
        if law is not None and getattr(command, "call", None) in (None, before.id):
            law(command, before, after, run, now)


def _check_hold(before: Call, after: Call, now: int) -> None:
    """Whether a held decision, and no other, took effect when it could not be undone any more."""
    if before.held and after.status in (_S.READY, _S.REJECTED, _S.RESPONDED):
        assert before.held.not_before <= now, "it could still be undone"
        assert after.decision is not None
        assert before.held.type == after.decision.type, "another decision took effect"


def check_own_outcome(outcome: Any, alone: Any, others: Sequence[str]) -> None:
    """Whether a caller among others got what it gets alone, and nothing that is theirs.

    ``others`` are words that every name and value of the other callers contains.
    """
    if isinstance(outcome, BaseException):
        text = f"{outcome!r} {outcome}"
        assert not [other for other in others if other in text], f"another caller's: {text}"
        assert type(outcome) is type(alone), (outcome, alone)
    else:
        assert outcome == alone, "the result depends on other callers"


def _decided(command: Decide, before: Call, after: Call, run: Run, now: int) -> None:
    by, terms, doubted = command.by, before.terms, before.status is _S.IN_DOUBT
    if before.status not in (_S.ASKED, _S.IN_DOUBT):
        return  # an echo; what else came with it has a law of its own
    assert by.role != "agent", "an agent has decided"
    assert doubted or before.expires_at is None or now < before.expires_at, "it had expired"
    shown = doubt_digest(before.digest, before.attempt) if doubted else before.digest
    unseen = command.seen_digest is None and command.type in ("reject", "respond")
    # An equal call was rejected since, which is no reason to refuse a rejection.
    unseen = unseen or (bool(before.refusals) and command.type in ("reject", "approve"))
    assert unseen or command.seen_digest == shown, "that was not what the person saw"
    assert command.type in (("approve", "respond", "reject") if doubted else terms.allowed)
    groups = {f"group:{name}" for name in by.groups}
    meant = {*terms.reviewers, *(terms.escalate_to if before.escalated else ())}
    assert not terms.reviewers or {by.name, *groups} & meant, "not theirs to decide"
    if terms.quorum > 1:
        assert ASSURANCE.index(by.assurance) >= ASSURANCE.index("token"), "who is that?"
    assert not (doubted and command.type == "approve" and run.stop), "its run was called off"
    if after.decision is not None and after.status in (_S.READY, _S.RUNNING):
        voters = {vote.by for vote in after.votes if vote.digest == after.decision.digest}
        assert by.name in voters
        assert len(voters) >= after.terms.quorum, "too few people agreed"


def _by_its_own_attempt(
    command: Record | Suspend | MarkInDoubt, before: Call, after: Call, run: Run, now: int
) -> None:
    if before.terms.effect == "read":
        if isinstance(command, Record) and command.retry and not command.ok:
            return  # it may be tried again
    else:
        assert (before.token, before.attempt) == (command.token, command.attempt), "not its attempt"
    if isinstance(command, Record) and after.status is _S.IN_DOUBT:
        _unknown(command, before, after, now)
    elif isinstance(command, Record):
        assert after.status is (_S.DONE if command.ok else _S.FAILED)
        assert after.result == command.result
        if not command.ok and before.effect_key and before.terms.effect != "read":
            assert command.failure == "not_executed", "its effect may have happened"
            assert not is_remote(before.binds), "only an agent elsewhere says so"


def _unknown(command: Record, before: Call, after: Call, now: int) -> None:
    """An exception left the outcome unknown: whose may, and what is known of it then."""
    assert not command.ok, "it had a result"
    denial = command.failure == "not_executed"
    assert not denial or (before.effect_key and is_remote(before.binds)), "nothing had happened"
    by_person = before.decision is not None and before.decision.type not in ("allow", "deny")
    matters = before.terms.declared or by_person
    lost = command.failure == "lost" and matters and before.terms.effect == "once"
    settles = before.settles and before.terms.effect == "once"
    assert before.effect_key or settles or lost or command.failure == "in_doubt", "it just failed"
    assert after.doubt is not None
    assert (after.doubt.ended, after.doubt.reason) == (True, command.result)
    assert (after.doubt.ask_at, after.doubt.answer) == (now, "did_not_run" if denial else "")


def check_freed(commands: tuple[Command, ...], key: str, holder: Call) -> None:
    """Whether these commands may have freed the key of a call: only if nothing happened."""

    def frees(command: Command) -> bool:
        if getattr(command, "call", None) != holder.id:
            return False
        if isinstance(command, Record):
            nothing = not command.ok and command.failure == "not_executed"
            return nothing and not is_remote(holder.binds)
        if isinstance(command, Decide):
            evidence = holder.doubt is not None and holder.doubt.answer == "did_not_run"
            return command.type == "reject" and holder.status is _S.IN_DOUBT and evidence
        return isinstance(command, Suspend)  # it starts from the top

    assert any(map(frees, commands)), f"{key} was freed, and {holder.id} may have had its effect"


def _lapsed(command: Command, before: Call, after: Call, run: Run, now: int) -> None:
    held = run.owner is not None and run.ready_at is not None and run.ready_at > now
    assert not held, "somebody was still at work"


def _settled(command: Settle, before: Call, after: Call, run: Run, now: int) -> None:
    assert before.status is _S.IN_DOUBT, "there was no doubt"
    assert (before.token, before.attempt) == (command.token, command.attempt), "another doubt"
    assert before.doubt is not None
    assert before.doubt.ask_at <= now, "its process may still have been at work"
    assert before.doubt.answer in ("", "unknown"), "the other side had answered"
    answered = {"answer": command.answer, "said": command.said, "at": now}
    assert after.doubt == before.doubt._replace(**answered)
    if command.answer == "ran":
        assert (after.status, after.result) == (_S.DONE, command.result)
    else:
        assert after.status is _S.IN_DOUBT, "evidence moves nothing"


def _started(command: Start | Complete, before: Call, after: Call, run: Run, now: int) -> None:
    if after.attempt == before.attempt:
        return
    assert after.valid_until is not None
    assert after.decision is not None
    if before.attempt == 0 or after.decision.type in ("approve", "edit"):
        assert now < after.valid_until, "the approval was too old"
    assert not run.stop, "its run was called off"
    if after.terms.effect == "read":
        return  # which takes no lease
    if run.owner != command.owner:
        _lapsed(command, before, after, run, now)
        assert run.running == 0, "something was still running"


def _released(command: Release, before: Call, after: Call, run: Run, now: int) -> None:
    if after.status is not _S.RELEASED:
        return
    assert before.status is _S.READY, "it was not approved, or somebody has it"
    assert after.attempt == before.attempt + 1
    assert after.valid_until is not None
    by_rule = after.decision is not None and after.decision.type in ("allow", "grant")
    assert now < after.valid_until or (by_rule and before.attempt), "the approval was too old"
    assert not run.stop, "its run was called off"
    assert after.caller == command.caller


def _joined(command: Propose, before: Call, after: Call, run: Run, now: int) -> None:
    if before.caller != after.caller:
        assert before.caller == LATER, "somebody else waits for it"
        assert before.status is not _S.RELEASED, "its answer was delivered"
        made = [(c.tool, c.args, c.binds) for c in command.calls if c.caller == after.caller]
        first = before.args if before.original is None else before.original
        assert (before.tool, first, before.binds) in made, "that was another call"


def _deferred(command: Defer, before: Call, after: Call, run: Run, now: int) -> None:
    assert before.status in (_S.ASKED, _S.IN_DOUBT), "there was an answer"
    assert (before.caller, after.caller) == (command.caller, LATER)


def _reported(command: ReportResult, before: Call, after: Call, run: Run, now: int) -> None:
    assert (before.status, before.result) == (_S.RELEASED, None)
    assert after == before._replace(result=command.result, seq=after.seq, mac=after.mac)


def _expired(command: Expire, before: Call, after: Call, run: Run, now: int) -> None:
    assert before.due_at is not None
    assert before.due_at <= now, "its time was not over"
    assert not before.held or after.status is not _S.EXPIRED, "it was decided in time"


def _undone(command: Undo, before: Call, after: Call, run: Run, now: int) -> None:
    own = [v for v in (before.held, *before.votes) if v is not None and v.by == command.by.name]
    assert any(now < vote.not_before for vote in own), "not theirs to undo, or too late"
    assert (before.status, after.status, after.held) == (_S.ASKED, _S.ASKED, None)
    assert not any(vote.by == command.by.name for vote in after.votes)
    if before.held:
        assert (after.rev, after.votes) == (before.rev + 1, ())
        assert after.digest != before.digest
        first = before.original if before.held.type == "edit" else None
        assert first is None or after.args == first or after.original == first


def _escalated(command: Escalate, before: Call, after: Call, run: Run, now: int) -> None:
    assert before.escalates_at is not None
    assert before.escalates_at <= now, "its time had not come"
    assert before.expires_at is None or now < before.expires_at, "it had expired"
    steps = {"escalated": True, "escalates_at": None, "reminds_at": after.reminds_at}
    assert after == before._replace(**steps, seq=after.seq, mac=after.mac)


def _reviewed(command: Review, before: Call, after: Call, run: Run, now: int) -> None:
    """A model decides only what nobody else has to, and has no vote."""
    assert before.status is _S.ASKED, "it is closed"
    assert not before.votes, "people have begun to decide"
    assert (command.seen_digest, command.reviewer) == (before.digest, before.terms.reviewer)
    assert after.votes == ()
    if after.status is _S.READY:
        assert command.answer == "allow"
        assert before.terms.reviewer_allows, "its rule does not let it"
        assert before.terms.quorum == 1, "a model replaced a quorum"
        assert before.terms.risk_declared, "a model allowed an unknown risk"
        assert before.terms.risk.level in ("low", "medium"), "a model allowed more risk"
        assert not before.refusals, "a model overturned a rejection"
    elif after.status is _S.REJECTED:
        assert command.answer == "reject"
    else:
        assert after.terms.opinion[0] == command.answer


def _reminded(command: Remind, before: Call, after: Call, run: Run, now: int) -> None:
    assert before.status is _S.ASKED, "it is closed"
    assert before.reminds_at is not None
    assert before.reminds_at <= now, "its time had not come"
    assert after == before._replace(reminds_at=None, seq=after.seq, mac=after.mac)


LAWS: dict[type[Command], Callable[[Any, Call, Call, Run, int], None]] = {
    Decide: _decided,
    Record: _by_its_own_attempt,
    Suspend: _by_its_own_attempt,
    MarkInDoubt: _by_its_own_attempt,
    ReleaseLapsed: _lapsed,
    Claim: _lapsed,
    Settle: _settled,
    Start: _started,
    Complete: _started,
    Expire: _expired,
    Undo: _undone,
    Escalate: _escalated,
    Remind: _reminded,
    Review: _reviewed,
    Propose: _joined,
    Release: _released,
    Defer: _deferred,
    ReportResult: _reported,
}
