"""What can be asked of the engine: one frozen value per command, with the rows that it touches.

A store runs a command in one transaction: it takes the thread's lock, loads the rows named by
``needs``, lets the engine change them, writes what changed, and commits. The name of a command is
the name of its commit boundary; ``COMMANDS`` lists them all, so that a fault test can visit each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sayso.engine.command import Command, Needs
from sayso.rows import OPEN, SYSTEM_THREAD, CallStatus, Message, Principal, Tool
from sayso.types import Grant, Micros, Reviewer, Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A call as it is first proposed; the engine gives it its digest and status."""

    id: str
    key: str
    kind: str
    tool: str
    tool_digest: str
    args: str
    args_hash: str
    nonce: str
    terms: Terms
    binds: str = ""
    title: str = ""
    note: str = ""
    preview: str = ""
    effect_key: str = ""
    settles: bool = False
    #: What came of a read that needed nobody and has run already: whether it succeeded, and its
    #: result or error. It is recorded in the commit that proposes it.
    outcome: tuple[bool, str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose(Command):
    """Open the run if need be, append messages, and put calls to people, policy or execution."""

    name: ClassVar[str] = "propose"
    run: str
    agent: str
    calls: tuple[NewCall, ...] = ()
    tools: tuple[Tool, ...] = ()
    messages: tuple[Message, ...] = ()
    requester: str = ""
    agent_digest: str = ""
    parent_call: str | None = None
    snapshot: str | None = None
    #: Start what needs nobody at once, in the same commit, under this owner's lease.
    owner: str | None = None
    lease: Micros = 0
    #: Keep the run's lease although only people can go on.
    hold: bool = False
    #: ``run.wake`` when the work began: a decision since then keeps the run due.
    wake_seen: int | None = None
    #: The lease that the proposal is made under, and the number of messages it answers. Raise
    #: Conflict if either is stale.
    token: int | None = None
    after: int | None = None

    @property
    def needs(self) -> Needs:
        asked = {(self.agent, c.tool_digest) for c in self.calls if c.terms.verdict == "ask"}
        keys = (call.effect_key for call in self.calls)
        return Needs(
            run=self.run,
            keys=tuple(c.key for c in self.calls),
            grants_for=tuple(sorted(asked)),
            effects=() if self.owner is None else tuple(filter(None, keys)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen(Command):
    """Open a finished run again, for an explicit new entry: never sent by a worker or a resume.

    The token moves on, so that everything read before the reopening is stale. A run that is still
    live, or not there yet, stays as it is.
    """

    name: ClassVar[str] = "reopen"
    run: str
    by: str = ""

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Park(Command):
    """Give the lease back because only people can move the run on.

    The run stays due if a decision came after ``wake_seen``. Raises Conflict if the token is stale.
    """

    name: ClassVar[str] = "park"
    run: str
    token: int
    wake_seen: int | None = None
    #: When to resume the run although no person has moved it: the other side can be asked then.
    due_at: Micros | None = None

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide(Command):
    """One person's answer to one request."""

    name: ClassVar[str] = "decide"
    run: str
    call: str
    type: str
    by: Reviewer
    channel: str
    seen_digest: str | None
    message: str = ""
    #: The answer or result, as JSON text, already checked in front of the person.
    value: str | None = None
    #: An edit's whole arguments: canonical JSON, its hash, the title that they make, and the
    #: policy's second look.
    args: str | None = None
    args_hash: str = ""
    title: str = ""
    terms: Terms | None = None
    #: A standing yes to store together with an approval.
    grant: Grant | None = None

    @property
    def needs(self) -> Needs:
        return Needs(
            run=self.run,
            calls=(self.call,),
            person=self.by.name,
            system=self.grant is not None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Command):
    """Take a due run: its lease, a fresh token, and the doubts that its last owner left."""

    name: ClassVar[str] = "claim"
    run: str
    owner: str
    lease: Micros
    #: Take it although it is not due, as long as nobody holds it: somebody asked for it.
    force: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, statuses=frozenset({CallStatus.RUNNING}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Command):
    """Begin verified calls: from here on each is either recorded or in doubt.

    A read needs no lease and stays ready: the start counts its attempt and spends its grant.
    """

    name: ClassVar[str] = "start"
    run: str
    calls: tuple[str, ...]
    #: ``Call.mac`` of each row as it was checked. A ready call with another one was written since,
    #: and is a ``Conflict``: look at it again, check it, and start that.
    seen: tuple[str, ...]
    owner: str
    lease: Micros
    #: Raise Conflict unless all are ready, so that what comes back running was started here.
    exactly: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=self.calls, spends=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Command):
    """The outcome of one started attempt."""

    name: ClassVar[str] = "record"
    run: str
    call: str
    token: int
    attempt: int
    ok: bool
    #: JSON, or the text of the error. Nothing if the call ran and its result could not be stored;
    #: ``why`` says so in the record.
    result: str | None
    why: str = ""
    messages: tuple[Message, ...] = ()
    hold: bool = False
    #: Of a read that failed: it may be tried again, under the same approval.
    retry: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=(self.call,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete(Command):
    """Start and record at once: what was approved has no effect of its own to wait for."""

    name: ClassVar[str] = "complete"
    run: str
    call: str
    #: As for ``Start``.
    seen: str
    result: str
    owner: str
    lease: Micros

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=(self.call,), spends=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend(Command):
    """A started call paused to ask a person; it will start again at its top."""

    name: ClassVar[str] = "suspend"
    run: str
    call: str
    token: int
    attempt: int
    #: It waits for the run of another agent, which is woken in this one's place.
    elsewhere: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=(self.call,))


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkInDoubt(Command):
    """One attempt was cut short, and nobody knows whether it took effect."""

    name: ClassVar[str] = "mark_in_doubt"
    run: str
    call: str
    token: int
    attempt: int
    reason: str = ""

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=(self.call,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle(Command):
    """What the other side says of a doubt: that it ran closes it, all else is evidence."""

    name: ClassVar[str] = "settle"
    run: str
    call: str
    token: int
    attempt: int
    #: One of ``sayso.rows.SETTLEMENTS``.
    answer: str
    #: The result, as JSON text, if it ran.
    result: str | None = None
    said: str = ""

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=(self.call,))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLapsed(Command):
    """Free a run whose lease has lapsed; what its process left running is in doubt."""

    name: ClassVar[str] = "release_lapsed"
    run: str

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, statuses=frozenset({CallStatus.RUNNING}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reask(Command):
    """Put an approved call to people again: it is no longer, or not quite, what they approved."""

    name: ClassVar[str] = "reask"
    run: str
    call: str
    reason: str
    tool: Tool | None = None
    terms: Terms | None = None
    binds: str | None = None
    title: str | None = None
    preview: str | None = None
    effect_key: str | None = None
    #: The arguments in full, with their hash, where an edit left out what the tool fills in.
    args: str | None = None
    args_hash: str = ""

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=(self.call,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew(Command):
    """Keep the lease of a run that is still being worked on."""

    name: ClassVar[str] = "renew"
    run: str
    token: int
    lease: Micros

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Command):
    """The run is over. Raise Conflict if another process has taken it since ``token``.

    No token is needed in the transaction that records a call of the run: the attempt's own token
    fences both.
    """

    name: ClassVar[str] = "finish"
    run: str
    status: str
    token: int | None = None
    output: str | None = None
    messages: tuple[Message, ...] = ()
    wake_seen: int | None = None

    @property
    def needs(self) -> Needs:
        # A run that is done leaves no read to be tried again; one that failed may come back.
        reads = frozenset({CallStatus.READY} if self.status == "done" else ())
        return Needs(run=self.run, statuses=reads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire(Command):
    """Close a request whose time is over."""

    name: ClassVar[str] = "expire"
    run: str
    call: str

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, calls=(self.call,), statuses=OPEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel(Command):
    """Call off one request, or a whole run; what is running finishes and is recorded."""

    name: ClassVar[str] = "cancel"
    run: str
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
class Recover(Command):
    """After a restore: what was ready or running may have run since; nobody knows."""

    name: ClassVar[str] = "recover"
    run: str
    by: str

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run, statuses=OPEN, spends=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddGrant(Command):
    """Store a standing yes."""

    name: ClassVar[str] = "grant"
    thread: str = SYSTEM_THREAD
    grant: Grant

    @property
    def needs(self) -> Needs:
        return Needs(grants=(self.grant.id,))


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeGrant(Command):
    """End a standing yes."""

    name: ClassVar[str] = "revoke_grant"
    thread: str = SYSTEM_THREAD
    grant: str
    by: str

    @property
    def needs(self) -> Needs:
        return Needs(grants=(self.grant,))


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPrincipal(Command):
    """Store a token's hash with the person and role behind it."""

    name: ClassVar[str] = "token"
    thread: str = SYSTEM_THREAD
    principal: Principal
    by: str

    @property
    def needs(self) -> Needs:
        return Needs(principal=self.principal.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokePrincipal(Command):
    """End a token."""

    name: ClassVar[str] = "revoke_token"
    thread: str = SYSTEM_THREAD
    principal: str
    by: str

    @property
    def needs(self) -> Needs:
        return Needs(principal=self.principal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(Command):
    """A fact that changes no row: a policy was loaded, a secret was revealed, rows were pruned.

    With ``run``, it belongs to that run and is forgotten with it.
    """

    name: ClassVar[str] = "note"
    thread: str = SYSTEM_THREAD
    type: str
    actor: str
    run: str | None = None
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake(Command):
    """Something that the run waits for elsewhere is there: it is due, whoever holds it now."""

    name: ClassVar[str] = "wake"
    run: str

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Command):
    """Give the run as this transaction leaves it, which saves its writer a read. No boundary."""

    run: str

    @property
    def needs(self) -> Needs:
        return Needs(run=self.run)


COMMANDS: tuple[type[Command], ...] = (
    *(Propose, Reopen, Park, Decide, Claim, Start, Record, Complete, Suspend, MarkInDoubt),
    *(Settle, ReleaseLapsed, Reask, Renew, Finish, Wake),
    *(Expire, Cancel, Recover, AddGrant, RevokeGrant, AddPrincipal, RevokePrincipal, Note),
)
