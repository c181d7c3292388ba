"""Refusals: a rejection counts until there is a reason to ask people again.

A model that gets a rejection as a tool's result often makes the same call again. So a person's
rejection of a call is stored as a ``Refusal``, and an *equal* call, by the same agent with the same
tool and the same arguments as the agent wrote them, is rejected with the same reason, without
asking. That comes before everything that could let the call run without a person: a rule that
allows it, a grant, a tool that needs no approval.

A refusal is in force as long as the *scope* of its run is the same as when it was made
(``Run.scope``), and not longer than ``Refusal.ends``:

* A run of ``sayso.Agent`` works on one text of the user, so it is the scope of its refusals. A run
  nested in it, of an agent that is its tool, has the same scope.
* A run that its caller opens again, for new input or by entering ``gate.run`` again, gets the next
  scope. So does the run of a coding agent at the user's next prompt (``NotePrompt``).
* A call through the MCP proxy has its own run, which has the scope of its connection.
* A connection, and an agent on another machine that opens its own requests, may last for weeks, and
  neither says when a user writes. Their refusals end after an hour.

A refusal that is no longer in force still counts: nothing but a person lets an equal call of that
agent run, in any run, and people are shown the refusal before they decide. Their approval overturns
it, or a person lifts it; then it is over.

Rows of one run are changed under the lock of its thread. A scope that spans several threads has no
common lock, so a call that starts looks again for refusals that its approval does not know.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sayso.engine.asking import ask_again, request_digest, revise
from sayso.engine.commands import Decide, LiftRefusal, NotePrompt
from sayso.engine.effects import is_remote
from sayso.engine.people import present
from sayso.engine.unit_of_work import UnitOfWork, sha256_hex
from sayso.errors import NotAllowed, NotFound
from sayso.rows import Call, CallStatus, Run
from sayso.types import SECOND, Decided, Micros, Refusal, Reviewer, moment

#: How many refusals people are shown with a request: the newest.
MOST_SHOWN = 5
#: How long a refusal lasts if nothing says that the user wrote something new.
_LONGEST: Micros = 3600 * SECOND
#: How many tools or programs the rejections of a run are counted for, and how long a name may be.
_MOST_SUBJECTS = 50
_LONGEST_NAME = 100
#: The start of a scope that is a connection. No run has such a name.
_CONNECTION = "@connection/"


def connection_scope(name: str) -> str:
    """Return the scope of the runs of one connection."""
    return f"{_CONNECTION}{name}"


def scope_of(run: Run) -> str:
    """Return what the refusals of a run last for."""
    return run.scope or run.id


def begin_scope(work: UnitOfWork, prompt: str = "") -> str:
    """Give the run the next scope, which ends its refusals, and return it."""
    run = work.require_run()
    scope = f"{run.id}#{prompt or work.thread.seq + 1}"
    if scope != run.scope:
        work.put_run(run._replace(scope=scope, rejections=""))
    return scope


def note_prompt(work: UnitOfWork, command: NotePrompt) -> Run | None:
    """Begin the next scope of a run, because the user has written something new."""
    run = work.run
    if run is None:
        return None
    begin_scope(work, command.prompt)
    if work.require_run() != run:
        work.emit("prompted", actor="user")
    return work.require_run()


def first_args_hash(call: Call) -> str:
    """Return the hash of the arguments that the agent wrote, before any edit."""
    return call.args_hash if call.original is None else sha256_hex(call.original)


def known_refusals(work: UnitOfWork, call: Call, args_hash: str = "") -> list[Refusal]:
    """Return the refusals of calls equal to this one, or with other arguments, newest first."""
    if not work.refusals:
        return []
    equal = (call.agent, call.tool, args_hash or call.args_hash)
    refusals = [
        refusal
        for refusal in work.refusals.values()
        if refusal.lifted is None and (refusal.agent, refusal.tool, refusal.args_hash) == equal
    ]
    return sorted(refusals, key=lambda refusal: (refusal.at, refusal.id), reverse=True)


def shown_ids(refusals: list[Refusal]) -> tuple[str, ...]:
    """Return the ids of the refusals that people are shown."""
    return tuple(refusal.id for refusal in refusals[:MOST_SHOWN])


def in_force(work: UnitOfWork, refusal: Refusal) -> bool:
    """Return whether a refusal rejects equal calls of the run without asking."""
    has_ended = refusal.ends is not None and refusal.ends <= work.now
    return refusal.scope == scope_of(work.require_run()) and not has_ended


def add_refusal(work: UnitOfWork, call: Call, decided: Decided) -> Refusal:
    """Store a person's rejection of a call."""
    run = work.require_run()
    unprompted = run.scope.startswith(_CONNECTION) or (is_remote(call.binds) and not call.caller)
    refusal = Refusal(
        id=call.id.replace("req_", "ref_", 1),
        request=call.id,
        run=call.run,
        thread=call.thread,
        scope=scope_of(run),
        agent=call.agent,
        tool=call.tool,
        tool_digest=call.tool_digest,
        args_hash=first_args_hash(call),
        by=decided.by,
        at=work.now,
        message=decided.message,
        ends=work.now + _LONGEST if unprompted else None,
        overturn=call.terms.overturn,
    )
    work.touched_refusals[refusal.id] = work.refusals[refusal.id] = refusal
    return refusal


def show_to_waiting_calls(work: UnitOfWork, refusal: Refusal) -> None:
    """Show a new refusal with the equal calls of its run that wait for a decision.

    A call that was approved before, and has not started, is asked about again.
    """
    for call in list(work.calls.values()):
        equal = (call.agent, call.tool, call.args_hash) == (
            refusal.agent,
            refusal.tool,
            refusal.args_hash,
        )
        if call.kind != "approval" or not equal or call.id == refusal.request:
            continue
        if call.held and (call.held.type in ("reject", "respond") or _was_known(call, refusal)):
            continue
        if call.status is CallStatus.ASKED:
            refusal_ids = (refusal.id, *call.refusals)[:MOST_SHOWN]
            revise(work, call, refusal.by, refusals=refusal_ids)
            continue
        unstarted = call.status is CallStatus.READY and not call.attempt
        if unstarted and not _was_known(call, refusal):
            _ask_about(work, call, refusal)


def seen_before_refusals(work: UnitOfWork, call: Call, command: Decide) -> bool:
    """Return whether a person saw the request as it was before refusals were added to it.

    That is enough to reject it, and for a person who made these refusals: in a list of equal
    requests, each rejection makes a new revision of the others.
    """
    added: set[str] = set()
    for number, refusal_id in enumerate(call.refusals, start=1):
        refusal = work.refusals.get(refusal_id)
        added.add("" if refusal is None else refusal.by)
        if command.type != "reject" and added != {command.by.name}:
            return False
        rev = call.rev - number
        refusals = call.refusals[number:]
        if command.seen_digest == request_digest(call._replace(rev=rev, refusals=refusals)):
            return True
    return False


def ask_if_refused(work: UnitOfWork, call: Call) -> Call | None:
    """Ask again about a call that would start now, if its approval did not know a refusal."""
    if call.kind != "approval" or call.attempt:
        return None
    for refusal in known_refusals(work, call):
        if not _was_known(call, refusal) and in_force(work, refusal):
            return _ask_about(work, call, refusal)
    return None


def _was_known(call: Call, refusal: Refusal) -> bool:
    """Return whether the people who approved a call know a refusal: it was shown, or is theirs."""
    voters = {vote.by for vote in call.votes}
    return refusal.id in call.refusals or voters == {refusal.by}


def _ask_about(work: UnitOfWork, call: Call, refusal: Refusal) -> Call:
    refusal_ids = (refusal.id, *call.refusals)[:MOST_SHOWN]
    return ask_again(
        work, call._replace(refusals=refusal_ids), f"{refusal.by} rejected an equal call"
    )


def check_overturn(work: UnitOfWork, call: Call, by: Reviewer, on_behalf_of: str) -> None:
    """Raise ``NotAllowed`` if this person may not approve what another person rejected."""
    for refusal in known_refusals(work, call):
        if on_behalf_of:
            raise NotAllowed(
                f"{refusal.by} rejected an equal call: {by.name} decides for {on_behalf_of}, and a "
                "stand-in overturns no rejection"
            )
        if "rejecter" in (refusal.overturn, call.terms.overturn):
            _check_rejecter(refusal, by)


def _check_rejecter(refusal: Refusal, by: Reviewer) -> None:
    if by.name != refusal.by and by.role != "admin":
        raise NotAllowed(
            f"{refusal.by} rejected an equal call at {moment(refusal.at):%Y-%m-%d %H:%M:%S} UTC, "
            f"and its rule says overturn = 'rejecter': only {refusal.by} or an admin may approve it"
        )


# -- rejections in a row


def _subject(call: Call) -> str:
    """Return what rejections in a row are counted for: the tool, or the program of a command."""
    command = json.loads(call.args).get("command") if call.tool else None
    if not isinstance(command, str):
        return call.tool
    words = command.split()
    while words and "=" in words[0] and words[0].partition("=")[0].isidentifier():
        del words[0]  # an assignment before the program
    program = words[0].rpartition("/")[2] if words else ""
    return f"{call.tool}: {program[:_LONGEST_NAME]}"


def count_rejection(work: UnitOfWork, call: Call, *, rejected: bool) -> None:
    """Count a rejection, or begin to count again after an approval, if the rule limits them."""
    if call.terms.max_rejections is None or call.kind != "approval":
        return
    run = work.require_run()
    subject = _subject(call)
    counts: dict[str, int] = json.loads(run.rejections) if run.rejections else {}
    count = counts.pop(subject, 0)
    if rejected:
        counts[subject] = count + 1
    newest = dict(list(counts.items())[-_MOST_SUBJECTS:])
    work.put_run(run._replace(rejections=json.dumps(newest) if newest else ""))


def too_many_rejections(work: UnitOfWork, call: Call) -> str:
    """Return why people are not asked about a call, if they rejected too many before it."""
    most = call.terms.max_rejections
    rejections = "" if most is None else work.require_run().rejections
    if most is None or not rejections:
        return ""
    subject = _subject(call)
    if json.loads(rejections).get(subject, 0) < most:
        return ""
    return (
        f"People rejected {most} calls of {subject} in a row, so they are not asked about more of "
        "them in this run. Do something else, or stop and tell the user."
    )


def overturn(work: UnitOfWork, call: Call, by: str) -> dict[str, Any]:
    """Lift the refusals that were shown with a call which was just approved, and older ones.

    Returns what the event of the approval says about it.
    """
    earlier = known_refusals(work, call)
    if not earlier:
        return {}
    newest = max((past.at for past in earlier if past.id in call.refusals), default=0)
    refusals = [past for past in earlier if past.at <= newest]
    for refusal in refusals:
        _lift(work, refusal, by)
    return {"overturned": [refusal.id for refusal in refusals]} if refusals else {}


def _lift(work: UnitOfWork, refusal: Refusal, by: str) -> Refusal:
    refusal = replace(refusal, lifted=work.now, lifted_by=by)
    work.touched_refusals[refusal.id] = work.refusals[refusal.id] = refusal
    return refusal


def lift_refusal(work: UnitOfWork, command: LiftRefusal) -> Refusal:
    """Lift a refusal. Idempotent."""
    refusal = work.refusals.get(command.refusal)
    if refusal is None:
        raise NotFound(f"no refusal {command.refusal}: see `sayso grants`")
    by = present(work, command.by)
    if refusal.lifted is None:
        if refusal.overturn == "rejecter":
            _check_rejecter(refusal, by)
        refusal = _lift(work, refusal, by.name)
        work.emit_system("lifted", actor=by.name, refusal=refusal.id)
    return refusal
