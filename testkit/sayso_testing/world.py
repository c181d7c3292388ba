"""A store under test, with one method per command: the tests of the suite are written in these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

from sayso import codec
from sayso.engine.asking import doubt_digest
from sayso.engine.commands import (
    AddCredential,
    AddGrant,
    AddPerson,
    Cancel,
    ChangePerson,
    Claim,
    Command,
    Complete,
    Decide,
    Defer,
    EndLease,
    Escalate,
    Expire,
    Finish,
    MarkInDoubt,
    NewCall,
    NotePrompt,
    Propose,
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
)
from sayso.engine.people import PROCESS
from sayso.engine.renewing import Renewal
from sayso.rows import Call, CallStatus, Credential, Message, Person, Proven, Run, Tool
from sayso.stores.base import Store
from sayso.testing.clock import FakeClock
from sayso.types import Failure, Grant, Json, Reviewer, Terms, Verdict
from sayso_testing.checks import all_events, all_seals, all_threads, check_store

SECOND = 1_000_000
LEASE = 30 * SECOND
#: The run of most tests, as fields of a command.
RUN: dict[str, Any] = {"thread": "t", "run": "r"}
#: Fields of a new call that tests set; all other options of ``World.new`` are terms.
_FIELDS = {"binds", "title", "note", "preview", "outcome", "effect_key", "settles", "caller"}

R = TypeVar("R", Call, Run)


def seconds(number: float) -> int:
    return round(number * SECOND)


def content(row: R) -> R:
    """Return a row without sequence number and MAC, which every write changes."""
    bare: R = row._replace(seq=0, mac="")
    return bare


def tool_of(name: str, version: str = "") -> Tool:
    """Return a tool row. Another version has another digest."""
    schema = codec.dumps({"parameters": {"type": "object"}, "returns": None})
    return Tool.of(name, schema, version=version)


#: Events about people and their tokens, which most tests need only as a setting.
_OF_PEOPLE = ("person_added", "token_created")


class World:
    """A store, its clock, and the runs that the test has created."""

    def __init__(
        self, store: Store, clock: FakeClock, reopen: Callable[[Store], Store] = lambda s: s
    ) -> None:
        self.store = store
        self.clock = clock
        self.keys = store.keys
        self.runs: dict[str, None] = {}
        self._reopen = reopen
        self._ids: Iterator[int] = count(1)

    # -- reads

    def call(self, call: Call | str) -> Call:
        found = self.store.call(call if isinstance(call, str) else call.id)
        assert found is not None
        return found

    def run(self, run: str = "r") -> Run:
        found = self.store.run(run)
        assert found is not None
        return found

    def digest(self, call: Call | str) -> str:
        """Return the digest that a person who sees this call now would decide on."""
        row = self.call(call)
        if row.status is CallStatus.IN_DOUBT:
            return doubt_digest(row.digest, row.attempt)
        return row.digest

    def holder(self, key: str) -> str | None:
        """Return the call that holds an effect key, if one does."""
        effect = self.store.effect(key)
        return None if effect is None else effect.call

    def events(self, thread: str | None = None, call: Call | None = None) -> list[str]:
        """Return the types of the events so far, in order; those of people only if asked for."""
        return [
            event.type
            for _, event in all_events(self.store)
            if (event.type not in _OF_PEOPLE if thread is None else event.thread == thread)
            and (call is None or event.call == call.id)
        ]

    def body(self, type: str) -> dict[str, Any]:
        """Return the body of the last event of a type."""
        bodies = [event.body for _, event in all_events(self.store) if event.type == type]
        found: dict[str, Any] = codec.loads(bodies[-1] or "{}")
        return found

    def everything(self) -> dict[str, Any]:
        """Return all rows, to assert that nothing changed."""
        threads = all_threads(self.store)
        calls = [call for run in self.runs for call in self.store.calls_of(run)]
        return {
            "threads": threads,
            "runs": [self.store.run(run) for run in self.runs],
            "live": [self.store.live_run(thread.id) for thread in threads],
            "calls": calls,
            "tools": [self.store.tool(call.tool_digest) for call in calls],
            "messages": [self.store.messages(thread.id) for thread in threads],
            "grants": self.store.grants(live_only=False),
            "refusals": self.store.all_refusals(),
            "people": self.store.people(),
            "credentials": self.store.credentials(),
            "effects": self.store.effects(),
            "budgets": self.store.budgets(),
            "events": all_events(self.store),
            "seals": all_seals(self.store),
        }

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Assert that no row changes inside ``with``."""
        before = self.everything()
        yield
        after = self.everything()
        changed = {
            name: (before[name], after[name]) for name in before if before[name] != after[name]
        }
        assert not changed, f"rows changed: {changed}"

    def check(self) -> None:
        check_store(self.store, self.runs)

    def reopen(self) -> None:
        self.store = self._reopen(self.store)

    # -- commands

    def transact(self, *commands: Command) -> list[Any]:
        """Run commands in one commit, and remember their runs."""
        for command in commands:
            if isinstance(command, Propose):
                self.runs.setdefault(command.run)
        return self.store.transact(*commands)

    def _call(self, command: Command) -> Call:
        call: Call = self.transact(command)[0]
        return call

    def _calls(self, command: Command) -> tuple[Call, ...]:
        calls: tuple[Call, ...] = self.transact(command)[0]
        return calls

    def _run(self, command: Command) -> Run:
        run: Run = self.transact(command)[0]
        return run

    def new(
        self,
        tool: str = "send",
        args: Json = None,
        *,
        id: str = "",
        key: str = "",
        kind: str = "approval",
        template: str = "",
        verdict: str = "ask",
        **more: Any,
    ) -> NewCall:
        """Return a call to propose. ``more`` is fields of the call, and terms of the policy."""
        n = next(self._ids)
        fields = {name: more.pop(name) for name in _FIELDS & set(more)}
        text = codec.canonical({"to": "bo"} if args is None else args).decode()
        return NewCall(
            id=id or f"req_{n:04d}",
            key=key or f"key-{n}",
            kind=kind,
            tool=tool,
            tool_digest=tool_of(tool).digest if tool else "",
            args=text,
            args_hash=codec.sha256(text.encode()),
            nonce=f"{n:032x}",
            terms=Terms(verdict=Verdict(verdict), effect_key=template, **more),
            **fields,
        )

    def propose(
        self,
        *calls: NewCall,
        run: str = "r",
        thread: str = "t",
        says: tuple[str, ...] = (),
        **options: Any,
    ) -> tuple[Call, ...]:
        command = Propose(
            thread=thread,
            run=run,
            agent=options.pop("agent", "agent"),
            calls=calls,
            tools=tuple(tool_of(call.tool) for call in calls if call.tool),
            messages=tuple(Message(run, body) for body in says),
            **options,
        )
        return self._calls(command)

    def ask(self, tool: str = "send", *, run: str = "r", thread: str = "t", **new: Any) -> Call:
        """Return a call that needs approval."""
        (call,) = self.propose(self.new(tool, **new), run=run, thread=thread)
        return call

    def ready(self, **new: Any) -> Call:
        """Return a call that was allowed, and has not started."""
        return self.ask(**{"verdict": "allow", **new})

    def running(self, owner: str = "w1", lease: int = LEASE, **new: Any) -> Call:
        return self.start(self.ready(**new), owner=owner, lease=lease)[0]

    def doubted(self, **new: Any) -> Call:
        return self.in_state(CallStatus.IN_DOUBT, **new)

    def in_state(self, status: CallStatus | str, **new: Any) -> Call:
        """Return a call with this status, reached in as few commands as possible."""
        status = CallStatus(status)
        if status in (CallStatus.RUNNING, CallStatus.DONE, CallStatus.FAILED, CallStatus.IN_DOUBT):
            call = self.running(**new)
            if status is CallStatus.IN_DOUBT:
                self.doubt(call)
            elif status is not CallStatus.RUNNING:
                self.record(call, ok=status is CallStatus.DONE)
            return self.call(call)
        if status is CallStatus.REJECTED:  # an equal call would be refused from then on
            new = {"args": {"to": f"eve-{next(self._ids)}"}, **new}
        call = self.ask(**{"expires_in": 60.0, **new})
        if status is CallStatus.RELEASED:
            self.decide(call)
            return self.release(call)
        if status in (CallStatus.READY, CallStatus.REJECTED):
            self.decide(call, "approve" if status is CallStatus.READY else "reject")
        elif status is CallStatus.RESPONDED:
            self.decide(call, "respond", value=1)
        elif status is CallStatus.EXPIRED:
            self.clock.advance(60)
            self.expire(call)
        elif status is not CallStatus.ASKED:
            self.cancel(call, superseded=status is CallStatus.SUPERSEDED)
        return self.call(call)

    def decide(
        self, call: Call | str, type: str = "approve", by: str | Reviewer = "ana", **more: Any
    ) -> Call:
        """Decide a call, as someone who has seen its current digest, with a token for a quorum."""
        return self._call(self.decision(call, type, by, **more))

    def decision(
        self, call: Call | str, type: str = "approve", by: str | Reviewer = "ana", **more: Any
    ) -> Decide:
        """Return the command of such a decision."""
        row = self.call(call)
        reviewer = by if isinstance(by, Reviewer) else Reviewer(by)
        if isinstance(by, str) and (row.terms.quorum > 1 or "terms" in more):
            reviewer = self.reviewer(by)
        if type == "edit" and "args" in more:
            more["args"] = codec.canonical(more["args"]).decode()
            more["args_hash"] = codec.sha256(more["args"].encode())
        if "value" in more:
            more["value"] = codec.canonical(more["value"]).decode()
        more = {"channel": "test", "seen_digest": self.digest(row), **more}
        return Decide(**_of(row), type=type, by=reviewer, **more)

    def prompt(self, run: str = "r", thread: str = "t", prompt: str = "") -> Run | None:
        """Note that the user has written something new."""
        noted: Run | None = self.transact(NotePrompt(thread=thread, run=run, prompt=prompt))[0]
        return noted

    def start(self, *calls: Call, owner: str = "w1", lease: int = LEASE) -> tuple[Call, ...]:
        ids, seen = tuple(call.id for call in calls), tuple(self.mac_of(call) for call in calls)
        run, thread = calls[0].run, calls[0].thread
        return self._calls(
            Start(thread=thread, run=run, calls=ids, seen=seen, owner=owner, lease=lease)
        )

    def mac_of(self, call: Call) -> str:
        return (self.store.call(call.id) or call).mac

    def record(self, call: Call, *, ok: bool = True, result: str = '"sent"', **more: Any) -> Call:
        """Record the outcome of the attempt in ``call``."""
        return self._call(Record(**attempt_of(call), ok=ok, result=result, **more))

    def complete(self, call: Call, owner: str = "w1", result: str = "true") -> Call:
        """Start and record a call in one commit."""
        seen = self.mac_of(call)
        return self._call(Complete(**_of(call), seen=seen, result=result, owner=owner, lease=LEASE))

    def release(self, call: Call, caller: str = "use:1") -> Call:
        """Release a call to the agent that runs it."""
        seen = self.mac_of(call)
        return self._call(Release(**_of(call), seen=seen, caller=caller))

    def defer(self, call: Call, caller: str) -> Call:
        """Tell the caller of a request that there is no answer yet."""
        return self._call(Defer(**_of(call), caller=caller))

    def report(self, call: Call, result: str = '"ran"', *, ok: bool = True) -> Call:
        """Report the result of a released call."""
        return self._call(ReportResult(**_of(call), ok=ok, result=result))

    def suspend(self, call: Call) -> Call:
        """Suspend the attempt in ``call``, as a question in its body does."""
        return self._call(Suspend(**attempt_of(call)))

    def doubt(self, call: Call, reason: str = "cut short", *, running: bool = False) -> Call:
        return self._call(MarkInDoubt(**attempt_of(call), reason=reason, running=running))

    def fail(self, call: Call, failure: Failure = "error", error: str = "Oops: no") -> Call:
        """Record that the attempt in ``call`` ended with an exception."""
        return self.record(call, ok=False, result=error, failure=failure)

    def settle(self, call: Call, answer: str, **more: Any) -> Call:
        """Settle the doubt about the attempt in ``call`` with what the other side says."""
        return self._call(Settle(**attempt_of(call), answer=answer, **more))

    def sweep(self, run: str = "r", thread: str = "t") -> tuple[Call, ...]:
        """Release the run's lease if it has expired. Return the calls that are in doubt now."""
        return self._calls(ReleaseLapsed(thread=thread, run=run))

    def claim(
        self,
        owner: str = "w1",
        run: str = "r",
        thread: str = "t",
        lease: int = LEASE,
        force: bool = False,
    ) -> Run | None:
        """Claim a run that is due or, with ``force``, one that has no owner."""
        claim = Claim(thread=thread, run=run, owner=owner, lease=lease, force=force)
        claimed: Run | None = self.transact(claim)[0]
        return claimed

    def claimed(self, owner: str = "w1", **options: Any) -> Run:
        """Claim a run that can be claimed."""
        run = self.claim(owner, **options)
        assert run is not None, f"{owner} could not claim the run"
        return run

    def renew(self, token: int, run: str = "r", thread: str = "t", lease: int = LEASE) -> bool:
        """Renew a lease. Return whether it was still held."""
        return self.store.renew([Renewal(run, token, lease)], 30.0).get(run, False)

    def renew_attempt(self, call: Call, lease: int = LEASE) -> bool | None:
        """Renew the attempt in ``call``. Return None if the call is not in doubt."""
        renewal = Renewal(call.run, call.token, lease, call.id)
        return self.store.renew([renewal], 30.0).get(call.id)

    def end_lease(self, token: int, run: str = "r", thread: str = "t") -> None:
        """End a lease early."""
        self.transact(EndLease(thread=thread, run=run, token=token))

    def finish(self, status: str = "done", run: str = "r", thread: str = "t", **more: Any) -> Run:
        """Finish a run, with its current token unless another one is given."""
        known = self.store.run(run)
        more.setdefault("token", 0 if known is None else known.token)
        return self._run(Finish(thread=thread, run=run, status=status, **more))

    def expire(self, call: Call) -> Call:
        """Expire a request if its deadline has passed."""
        return self._call(Expire(**_of(call)))

    def review(self, call: Call, answer: str) -> Call:
        """Let the model of the call's rule answer."""
        seen = {"seen_digest": call.digest, "reviewer": call.terms.reviewer}
        return self._call(Review(**_of(call), **seen, answer=answer, reason="so"))

    def escalate(self, call: Call) -> Call:
        """Let more people decide a request if its time has come."""
        return self._call(Escalate(**_of(call)))

    def remind(self, call: Call) -> Call:
        """Remind people of a request if its time has come."""
        return self._call(Remind(**_of(call)))

    def cancel(
        self, call: Call | None = None, run: str = "r", thread: str = "t", **more: Any
    ) -> Run:
        """Cancel a request, or the run."""
        target = {"thread": thread, "run": run} if call is None else _of(call)
        more = {"by": "ana", "reason": "changed my mind", **more}
        return self._run(Cancel(**target, **more))

    def recover(self, run: str = "r", thread: str = "t") -> tuple[Call, ...]:
        """Recover a run after a restore. Return the calls that are in doubt now."""
        return self._calls(Recover(thread=thread, run=run, by="ops"))

    def grant(self, tool: str = "send", scope: Json = None, **more: Any) -> Grant:
        """Store a grant by ana, for any arguments unless a scope is given."""
        grant = Grant(
            id=more.pop("id", f"grt_{next(self._ids):04d}"),
            agent=more.pop("agent", "agent"),
            tool=tool,
            tool_digest=more.pop("tool_digest", tool_of(tool).digest),
            scope=codec.dumps(scope or {}),
            by="ana",
            created=0,
            **more,
        )
        stored: Grant = self.transact(AddGrant(grant=grant))[0]
        return stored

    def person(self, name: str, *groups: str, role: str = "reviewer", **more: Any) -> Person:
        """Add a person."""
        person = Person(name, "", role, groups)
        stored: Person = self.transact(AddPerson(person=person, by=Reviewer("ops"), **more))[0]
        return stored

    def change(self, name: str, **changes: Any) -> Person:
        """Change a person."""
        ((person, *_),) = self.transact(ChangePerson(person=name, by=Reviewer("ops"), **changes))
        stored: Person = person
        return stored

    def reviewer(
        self, name: str, *groups: str, role: str = "reviewer", assurance: str = "token"
    ) -> Proven:
        """Return a person who has proved who they are, and add them if they are new."""
        if assurance == "os-user":
            return Proven(name, groups, proof=PROCESS)
        proof = proof_of(name, assurance)
        if self.store.credential(proof) is None:
            self.token(name, groups, role=role, assurance=assurance, hash=proof)
        return Proven(name, proof=proof)

    def token(self, person: str, groups: tuple[str, ...] = (), **more: Any) -> Credential:
        """Create a token, and add its person if they are new."""
        n, role = next(self._ids), more.pop("role", "reviewer")
        if self.store.person(person) is None:
            self.person(person, *groups, role=role)
        credential = Credential(
            id=more.pop("id", f"tok_{n:04d}"),
            hash=more.pop("hash", codec.sha256(f"token {n}".encode())),
            person=person,
            kind=more.pop("kind", "token"),
            role=role,
            assurance=more.pop("assurance", "token"),
            **more,
        )
        by = Reviewer("ops")
        stored: Credential = self.transact(AddCredential(credential=credential, by=by))[0]
        return stored


def proof_of(name: str, assurance: str) -> str:
    """Return the hash of the secret that ``World.reviewer`` gives a person."""
    return codec.sha256(f"{name} {assurance}".encode())


def _of(call: Call) -> dict[str, Any]:
    return {"thread": call.thread, "run": call.run, "call": call.id}


def attempt_of(call: Call) -> dict[str, Any]:
    """Return thread, run, call, token and number of the attempt in ``call``."""
    return {**_of(call), "token": call.token, "attempt": call.attempt}
