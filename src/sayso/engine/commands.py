"""The commands of the engine: one frozen value each, with the rows that it needs.

A store runs a command in one transaction: it locks the thread, loads the rows named by ``needs``,
lets the engine change them, writes what changed, and commits. The name of a command is the name of
its commit boundary; ``COMMANDS`` lists them all, so that a fault test can stop at each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from sayso.frozen import quickly_made
from sayso.rows import OPEN, SYSTEM_THREAD, CallStatus, Credential, Message, Person, Proven, Tool
from sayso.types import Failure, Grant, Micros, Reviewer, Terms


class Needs(NamedTuple):
    """The rows that a store must load before the engine applies a command."""

    run: str | None = None
    #: Nothing of the thread and the run can be in the store yet.
    fresh: bool = False
    calls: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    #: The calls of the run that these callers may join.
    callers: tuple[str, ...] = ()
    statuses: frozenset[CallStatus] = frozenset()
    grants_for: tuple[tuple[str, str], ...] = ()
    grants: tuple[str, ...] = ()
    #: Also the windows and plans of the run.
    run_grants: bool = False
    #: Also the grants and the effect keys of these calls, because they may start.
    spends: bool = False
    #: The effect keys of new calls.
    effects: tuple[str, ...] = ()
    #: The limits of new calls that may start, and those of ``grants_for``.
    limits: tuple[str, ...] = ()
    starts: bool = False
    #: Also the grants and the budgets of these calls: what they added may be returned.
    gives_back: bool = False
    #: Refusals that were not lifted: of calls of an agent and a tool with arguments of that hash;
    #: of calls equal to ``calls``, or with arguments of one of these hashes instead; and by id.
    refusals_for: tuple[tuple[str, str, str], ...] = ()
    refusals_of_calls: bool = False
    edited_args: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    system: bool = False
    #: People and agents, by name; and the grants that they gave, and their credentials.
    people: tuple[str, ...] = ()
    grants_by: tuple[str, ...] = ()
    credentials_of: tuple[str, ...] = ()
    #: Credentials by the hash of their secret.
    credentials: tuple[str, ...] = ()
    #: People whose stand-in has one of these names.
    absent: tuple[str, ...] = ()
    #: Also the people who voted for these calls, and the directory.
    voters: bool = False

    def joined(self, more: Needs) -> Needs:
        """Return what both need. At most one run may be named."""
        needs = list(self)
        for place, theirs in enumerate(more):
            mine = needs[place]
            if theirs and theirs != mine:
                needs[place] = _both(mine, theirs) if mine else theirs
        return Needs._make(needs)


def actor_needs(by: Reviewer, **others: Any) -> Needs:
    """Return the rows that say which rights a person has, and others."""
    proofs: tuple[str, ...] = ()
    if isinstance(by, Proven):
        passkey = "" if by.confirmation is None else by.confirmation.hash
        proofs = tuple(proof for proof in (by.proof, passkey) if proof)
    return Needs(people=(by.name,), credentials=proofs, absent=(by.name,), **others)


def _both(one: Any, other: Any) -> Any:
    """Return what one or the other names."""
    if isinstance(one, tuple):
        return tuple(dict.fromkeys((*one, *other)))
    return one | other if isinstance(one, frozenset) else one or other


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One change to one thread."""

    name: ClassVar[str] = ""
    thread: str

    @property
    def needs(self) -> Needs:
        return Needs()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand(Command):
    """A command about one run."""

    run: str

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCommand(RunCommand):
    """A command about one call of a run."""

    call: str

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=(self.call,))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCommand(CallCommand):
    """A command of the process that started a call, about that attempt."""

    token: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemCommand(Command):
    """A command that belongs to no conversation."""

    thread: str = SYSTEM_THREAD


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A call as it is first proposed. The engine adds its digest and status."""

    id: str
    key: str
    kind: str
    tool: str
    tool_digest: str
    args: str
    args_hash: str
    nonce: str
    terms: Terms
    #: See ``Call.written``.
    written: str | None = None
    binds: str = ""
    title: str = ""
    note: str = ""
    preview: str = ""
    effect_key: str = ""
    settles: bool = False
    #: For a call that an agent elsewhere runs itself: who waits for it (``Call.caller``). A caller
    #: that made the same call before and got no answer gets that call instead of a new one.
    caller: str = ""
    #: The trace in which it is made, as a W3C ``traceparent``, for spans.
    trace: str = ""
    #: Why people cannot be asked about it. Unless a rule or a grant allows it, it is denied.
    unaskable: str = ""
    #: For a read without approval that has already run: whether it succeeded, and its result or
    #: error. It is recorded in the commit that proposes it.
    outcome: tuple[bool, str | None] | None = None


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Propose(RunCommand):
    """Open the run if necessary, append messages, and add calls: asked, allowed or denied."""

    name: ClassVar[str] = "propose"
    agent: str
    calls: tuple[NewCall, ...] = ()
    tools: tuple[Tool, ...] = ()
    messages: tuple[Message, ...] = ()
    requester: str = ""
    agent_digest: str = ""
    parent_call: str | None = None
    snapshot: str | None = None
    #: Start allowed calls in the same commit, under this owner's lease.
    owner: str | None = None
    lease: Micros = 0
    #: Keep the run's lease even if only people can advance the run.
    hold: bool = False
    #: ``run.wake`` when the work began: a decision since then keeps the run due.
    wake_seen: int | None = None
    #: The token of the lease, and the number of messages that the proposal answers. ``Conflict``
    #: if either is stale.
    token: int | None = None
    after: int | None = None
    #: The scope of the refusals of a run that this opens (``Run.scope``).
    scope: str = ""
    #: The run has a new random name. If it exists all the same, nothing is written.
    fresh: bool = False

    @property
    def needs(self) -> Needs:
        equal_calls: set[tuple[str, str]] = set()
        callers: list[str] = []
        effects: list[str] = []
        limits: list[str] = []
        equals: dict[tuple[str, str, str], None] = {}
        for call in self.calls:
            if call.terms.verdict == "ask":
                equal_calls.add((self.agent, call.tool_digest))
            if call.caller:
                callers.append(call.caller)
            if call.effect_key and self.owner is not None:
                effects.append(call.effect_key)
            if self.owner is not None:
                limits += call.terms.limits
            if call.kind == "approval":
                equals[self.agent, call.tool, call.args_hash] = None
        return Needs(
            run=self.run,
            fresh=self.fresh,
            keys=tuple([call.key for call in self.calls]),
            callers=tuple(callers),
            grants_for=tuple(sorted(equal_calls)),
            effects=tuple(effects),
            limits=tuple(limits),
            starts=self.owner is not None,
            refusals_for=tuple(equals),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen(RunCommand):
    """Reopen a finished run, for an explicit new entry; never sent by a worker or a resume.

    The token grows, so that everything read before the reopening is stale. A run that is still
    live, or does not exist yet, stays as it is.
    """

    name: ClassVar[str] = "reopen"
    by: str = ""
    #: Keep the run's refusals in force: the caller only has another call, and no new input.
    same_scope: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotePrompt(RunCommand):
    """Note that the user has written something new, which ends the refusals of a run.

    A run that does not exist stays so.
    """

    name: ClassVar[str] = "note_prompt"
    #: Identifies the text, if the same one may be noted more than once.
    prompt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Park(RunCommand):
    """Release the lease because only people can advance the run.

    The run stays due if a decision was made after ``wake_seen``. ``Conflict`` if the token is
    stale.
    """

    name: ClassVar[str] = "park"
    token: int
    wake_seen: int | None = None
    #: When to resume the run without a decision: ``settle=`` can be called then.
    due_at: Micros | None = None


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Decide(CallCommand):
    """One person's answer to one request."""

    name: ClassVar[str] = "decide"
    type: str
    by: Reviewer
    channel: str
    seen_digest: str | None
    message: str = ""
    #: Also cancel the run, together with a rejection.
    stop: bool = False
    #: The answer or result as JSON text; the caller has checked it.
    value: str | None = None
    #: The complete arguments of an edit as canonical JSON, with their hash, the title made from
    #: them, and their terms under the policy.
    args: str | None = None
    args_hash: str = ""
    #: See ``Call.written``.
    written: str | None = None
    title: str = ""
    terms: Terms | None = None
    #: A grant to store together with an approval.
    grant: Grant | None = None
    #: The request is a plan, and this grant is what its approval makes.
    is_plan: bool = False
    #: For how long the person can undo it. It takes effect after that.
    undo_for: Micros = 0
    #: See ``Decided.claim``.
    claim: str = ""

    @property
    def needs(self) -> Needs:
        # A rejection also concerns the equal calls of its run, and with ``stop`` all of them.
        others: frozenset[CallStatus] = frozenset()
        if self.type == "reject":
            others = OPEN if self.stop else frozenset({CallStatus.ASKED, CallStatus.READY})
        return actor_needs(
            self.by,
            run=self.run,
            calls=(self.call,),
            statuses=others,
            voters=True,
            system=self.grant is not None or self.type == "reject",
            run_grants=self.type == "reject",
            gives_back=self.type == "reject",
            refusals_of_calls=True,
            edited_args=(self.args_hash,) if self.args_hash else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Review(CallCommand):
    """What a model says of a request before people do. Changes nothing once they have begun."""

    name: ClassVar[str] = "review"
    #: The model (``Terms.reviewer``), what it saw, and its answer: ``allow``, ``ask`` or
    #: ``reject``.
    reviewer: str
    seen_digest: str
    answer: str
    reason: str = ""

    @property
    def needs(self) -> Needs:
        # A rejection also concerns the equal calls of its run, and its windows and plans.
        rejects = self.answer == "reject"
        others = frozenset({CallStatus.ASKED, CallStatus.READY})
        return Needs(
            run=self.run,
            calls=(self.call,),
            statuses=others if rejects else frozenset(),
            system=rejects,
            run_grants=rejects,
            refusals_of_calls=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo(CallCommand):
    """Undo one's own decision before it takes effect."""

    name: ClassVar[str] = "undo"
    by: Reviewer
    #: The grant that was made with it, if any.
    grant: str = ""

    @property
    def needs(self) -> Needs:
        grants = (self.grant,) if self.grant else ()
        rows = Needs(run=self.run, calls=(self.call,), grants=grants, system=bool(grants))
        return actor_needs(self.by).joined(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignAgain(CallCommand):
    """Sign the approval of a call that has not started with the newest key."""

    name: ClassVar[str] = "sign_again"
    by: str

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=(self.call,))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWindow(RunCommand):
    """Let a run do what it asks for, up to a risk and for some time (``engine.grants``)."""

    name: ClassVar[str] = "open_window"
    #: The id of the grant that this makes.
    grant: str
    by: Reviewer
    risk: str
    length: Micros

    @property
    def needs(self) -> Needs:
        return actor_needs(self.by, run=self.run, grants=(self.grant,), system=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveGrant(CallCommand):
    """Give a grant for calls like one that was approved before."""

    name: ClassVar[str] = "give_grant"
    grant: Grant
    by: Reviewer

    @property
    def needs(self) -> Needs:
        calls = (self.call,)
        return actor_needs(self.by, run=self.run, calls=calls, grants=(self.grant.id,), system=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoidVotes(CallCommand):
    """Remove the votes of people who may no longer decide a request."""

    name: ClassVar[str] = "void_votes"

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=(self.call,), voters=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(RunCommand):
    """Take a due run: its lease and a new token. Calls that its last owner left are in doubt."""

    name: ClassVar[str] = "claim"
    owner: str
    lease: Micros
    #: Take the run even if it is not due, unless another process holds it.
    force: bool = False
    #: ``Conflict`` if another process was faster.
    exactly: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, statuses=frozenset({CallStatus.RUNNING}))


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Start(RunCommand):
    """Start verified calls: from here on, each is either recorded or in doubt.

    A read needs no lease and stays ready: the start counts its attempt and uses its grant.
    """

    name: ClassVar[str] = "start"
    calls: tuple[str, ...]
    #: ``Call.mac`` of each row as it was checked. ``Conflict`` if a ready call was written since:
    #: read it, check it and start again.
    seen: tuple[str, ...]
    owner: str
    lease: Micros
    #: ``Conflict`` unless all are ready, so that every call returned as running was started here.
    exactly: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=self.calls, spends=True, refusals_of_calls=True)


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Record(AttemptCommand):
    """Record the outcome of one started attempt."""

    name: ClassVar[str] = "record"
    ok: bool
    #: What the exception says about the effect, if it is not ``ok``.
    failure: Failure = "error"
    #: JSON, or the text of the error. None if the call ran and its result could not be stored;
    #: ``why`` is the reason.
    result: str | None
    why: str = ""
    messages: tuple[Message, ...] = ()
    hold: bool = False
    #: A read that failed may be retried under the same approval.
    retry: bool = False

    @property
    def needs(self) -> Needs:
        gives_back = self.failure == "not_executed"
        return Needs(run=self.run, calls=(self.call,), gives_back=gives_back)


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete(CallCommand):
    """Start and record at once, for an approval that has no effect of its own."""

    name: ClassVar[str] = "complete"
    #: As for ``Start``.
    seen: str
    result: str
    owner: str
    lease: Micros

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=(self.call,), spends=True, refusals_of_calls=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(CallCommand):
    """Release a verified call to the agent that asked for it, which runs it itself.

    That takes no lease, and the call is never in doubt: it is over for us.
    """

    name: ClassVar[str] = "release"
    #: As for ``Start``.
    seen: str
    #: Who may report the result (``Call.caller``).
    caller: str

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=(self.call,), spends=True, refusals_of_calls=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer(CallCommand):
    """Note that the caller of a request was told to ask again: there is no answer yet."""

    name: ClassVar[str] = "defer"
    #: ``Call.caller`` as this caller knows it. Nothing changes if another caller joined since.
    caller: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportResult(CallCommand):
    """Store what an agent says about a released call after it ran. The first report counts."""

    name: ClassVar[str] = "report"
    ok: bool
    #: JSON text.
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend(AttemptCommand):
    """Make a started call ready again that paused to ask a person; it will start from the top."""

    name: ClassVar[str] = "suspend"
    #: It waits for the run of another agent, which is woken instead of this one.
    elsewhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkInDoubt(AttemptCommand):
    """Mark an interrupted attempt: it is unknown whether it took effect, and it may still run."""

    name: ClassVar[str] = "mark_in_doubt"
    reason: str = ""
    #: It is known to run: a worker thread of its process is in its body.
    running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle(AttemptCommand):
    """Record the answer of ``settle=`` about a doubt: "it ran" closes it, others are evidence."""

    name: ClassVar[str] = "settle"
    #: One of ``sayso.rows.SETTLEMENTS``.
    answer: str
    #: The result, as JSON text, if it ran.
    result: str | None = None
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLapsed(RunCommand):
    """Release a run whose lease has expired. Calls that its process left running are in doubt."""

    name: ClassVar[str] = "release_lapsed"

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, statuses=frozenset({CallStatus.RUNNING}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reask(CallCommand):
    """Ask about a call again, because it is no longer what people saw."""

    name: ClassVar[str] = "reask"
    reason: str
    tool: Tool | None = None
    terms: Terms | None = None
    binds: str | None = None
    title: str | None = None
    preview: str | None = None
    effect_key: str | None = None
    #: The complete arguments, their hash, and what was written (``Call.written``), if the tool
    #: reads them differently.
    args: str | None = None
    args_hash: str = ""
    written: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLease(RunCommand):
    """End a lease early, so that nothing waits for its end. Changes nothing if it is lost."""

    name: ClassVar[str] = "end_lease"
    token: int


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(RunCommand):
    """End the run. ``Conflict`` if another process has taken it since ``token``.

    No token is needed in the transaction that records a call of the run: the attempt's own token
    fences both.
    """

    name: ClassVar[str] = "finish"
    status: str
    token: int | None = None
    output: str | None = None
    messages: tuple[Message, ...] = ()
    wake_seen: int | None = None
    #: ``Conflict`` if calls are open or the run was stopped.
    exactly: bool = False

    @property
    def needs(self) -> Needs:
        # The reads of a run that is done are not retried; those of a failed run may be.
        reads = frozenset({CallStatus.READY} if self.status == "done" else ())
        return Needs(run=self.run, statuses=reads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire(CallCommand):
    """Close an expired request, or let a decision take effect that could be undone until now."""

    name: ClassVar[str] = "expire"

    @property
    def needs(self) -> Needs:
        rows = Needs(run=self.run, calls=(self.call,), statuses=OPEN)
        return rows._replace(voters=True, refusals_of_calls=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remind(CallCommand):
    """Remind people of an open request. Changes nothing before its time, or a second time."""

    name: ClassVar[str] = "remind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalate(CallCommand):
    """Let ``escalate_to`` decide an open request too. Changes nothing before its time."""

    name: ClassVar[str] = "escalate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel(RunCommand):
    """Cancel one request or a whole run. Calls that have started finish and are recorded."""

    name: ClassVar[str] = "cancel"
    by: str
    reason: str = ""
    call: str | None = None
    superseded: bool = False

    @property
    def needs(self) -> Needs:
        if self.call is not None:
            return Needs(run=self.run, calls=(self.call,))
        return Needs(run=self.run, statuses=OPEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recover(RunCommand):
    """After a restore, mark calls that were ready or running as in doubt: they may have run."""

    name: ClassVar[str] = "recover"
    by: str

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, statuses=OPEN, spends=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddGrant(SystemCommand):
    """Store a grant."""

    name: ClassVar[str] = "grant"
    grant: Grant

    @property
    def needs(self) -> Needs:
        return Needs(grants=(self.grant.id,))


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeGrant(SystemCommand):
    """Revoke a grant."""

    name: ClassVar[str] = "revoke_grant"
    grant: str
    by: str

    @property
    def needs(self) -> Needs:
        return Needs(grants=(self.grant,))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftRefusal(SystemCommand):
    """Lift a refusal: people are asked about an equal call again."""

    name: ClassVar[str] = "lift_refusal"
    refusal: str
    by: Reviewer

    @property
    def needs(self) -> Needs:
        return actor_needs(self.by, refusals=(self.refusal,))


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPerson(SystemCommand):
    """Add a person or an agent."""

    name: ClassVar[str] = "add_person"
    person: Person
    by: Reviewer
    #: Bring back one who was removed.
    restore: bool = False

    @property
    def needs(self) -> Needs:
        return actor_needs(self.by).joined(Needs(people=(self.person.name,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePerson(SystemCommand):
    """Change what a person may do, or who decides for them."""

    name: ClassVar[str] = "change_person"
    person: str
    by: Reviewer
    add_groups: tuple[str, ...] = ()
    remove_groups: tuple[str, ...] = ()
    role: str | None = None
    mail: str | None = None
    origin: str | None = None
    #: Who decides for them, and until when; ``None`` as the time if they are back.
    away: tuple[str, Micros | None] | None = None
    #: When messages reach them.
    notices: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether people may make this change for themselves: it changes only their notices."""
        return self == ChangePerson(person=self.person, by=self.by, notices=self.notices)

    @property
    def needs(self) -> Needs:
        stand_in = (self.away[0],) if self.away is not None and self.away[0] else ()
        people = (self.person, *stand_in)
        return actor_needs(self.by).joined(Needs(people=people, grants_by=(self.person,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePerson(SystemCommand):
    """Remove a person or an agent, and end all that they could do."""

    name: ClassVar[str] = "remove_person"
    person: str
    by: Reviewer

    @property
    def needs(self) -> Needs:
        theirs = (self.person,)
        rows = Needs(people=theirs, grants_by=theirs, credentials_of=theirs)
        return actor_needs(self.by).joined(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCredential(SystemCommand):
    """Store a credential: a token, a sign-in link, a session, a passkey or a linked account."""

    name: ClassVar[str] = "token"
    credential: Credential
    by: Reviewer
    #: The hash of the token, link or passkey that opens this session.
    opened_with: str = ""
    #: When the challenge was made that the passkey answered.
    answered: Micros = 0

    @property
    def needs(self) -> Needs:
        whose = (self.credential.person,)
        account = (self.credential.hash,) if self.credential.kind in ("chat", "push") else ()
        needs = Needs(people=whose, credentials_of=whose, credentials=account)
        return actor_needs(self.by).joined(needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndCredentials(SystemCommand):
    """End some credentials of a person, or without ``ids`` all their sessions."""

    name: ClassVar[str] = "revoke_token"
    person: str
    by: Reviewer
    ids: tuple[str, ...] = ()

    @property
    def needs(self) -> Needs:
        return actor_needs(self.by).joined(Needs(credentials_of=(self.person,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCredential(SystemCommand):
    """Note that a credential was used."""

    name: ClassVar[str] = "use_token"
    hash: str

    @property
    def needs(self) -> Needs:
        return Needs(credentials=(self.hash,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(SystemCommand):
    """Add an event that changes no row: a policy was loaded, a secret revealed, rows pruned.

    With ``run``, it belongs to that run and is pruned with it.
    """

    name: ClassVar[str] = "note"
    type: str
    actor: str
    run: str | None = None
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake(RunCommand):
    """Make a run due, because a run that it waits for has ended or paused."""

    name: ClassVar[str] = "wake"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRun(RunCommand):
    """Return the run as this transaction leaves it, which saves a read. Not a commit boundary."""


COMMANDS: tuple[type[Command], ...] = (
    *(Propose, Reopen, Park, Review, Decide, Undo, Claim, Start, Record, Complete, Suspend),
    *(MarkInDoubt, Release, Defer, ReportResult, Settle, ReleaseLapsed, Reask, EndLease, Finish),
    *(Wake, Expire, Remind, Escalate, Cancel, Recover, Note, NotePrompt, VoidVotes, SignAgain),
    *(AddGrant, RevokeGrant, LiftRefusal, OpenWindow, GiveGrant),
    *(AddPerson, ChangePerson, RemovePerson, AddCredential, EndCredentials, UseCredential),
)
