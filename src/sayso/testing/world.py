"""A store under test, with one method per command: the tests of the suite are written in these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeVar

from sayso import codec
from sayso.engine.asking import doubt_envelope
from sayso.engine.commands import (
    AddGrant,
    AddPrincipal,
    Cancel,
    Claim,
    Command,
    Complete,
    Decide,
    Defer,
    Expire,
    Finish,
    MarkInDoubt,
    NewCall,
    Propose,
    Record,
    Recover,
    Release,
    ReleaseLapsed,
    Renew,
    ReportResult,
    Settle,
    Start,
    Suspend,
)
from sayso.rows import Call, CallStatus, Message, Principal, Run, Tool
from sayso.stores.base import Store
from sayso.testing.checks import all_events, all_seals, all_threads, check_store
from sayso.testing.clock import FakeClock
from sayso.types import Grant, Json, Reviewer, Terms, Verdict

SECOND = 1_000_000
LEASE = 30 * SECOND

R = TypeVar("R", Call, Run)


def seconds(number: float) -> int:
    """Convert seconds to microseconds."""
    return round(number * SECOND)


def content(row: R) -> R:
    """Return a row without sequence number and MAC, which every write changes."""
    same: R = row._replace(seq=0, mac="")
    return same


def tool_of(name: str, version: str = "") -> Tool:
    """Return a tool row. Another version has another digest."""
    face = codec.dumps({"parameters": {"type": "object"}, "returns": None})
    return Tool.of(name, face, version=version)


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
        """Return the current row of a call."""
        found = self.store.call(call if isinstance(call, str) else call.id)
        assert found is not None
        return found

    def run(self, run: str = "r") -> Run:
        """Return the current row of a run."""
        found = self.store.run(run)
        assert found is not None
        return found

    def digest(self, call: Call | str) -> str:
        """Return the digest that a person who sees this call now would pass on."""
        row = self.call(call)
        if row.status is CallStatus.IN_DOUBT:
            return codec.digest(doubt_envelope(row))
        return row.digest

    def events(self, thread: str | None = None, call: Call | None = None) -> list[str]:
        """Return the types of the events so far, in order."""
        return [
            event.type
            for _, event in all_events(self.store)
            if (thread is None or event.thread == thread)
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
            "principals": self.store.principals(),
            "effects": self.store.effects(),
            "events": all_events(self.store),
            "seals": all_seals(self.store),
        }

    def check(self) -> None:
        """Check the invariants of the store."""
        check_store(self.store, self.runs)

    def reopen(self) -> None:
        """Close the store and open it again."""
        self.store = self._reopen(self.store)

    # -- commands

    def transact(self, *commands: Command) -> list[Any]:
        """Run commands in one commit, and remember their runs."""
        for command in commands:
            if isinstance(command, Propose):
                self.runs.setdefault(command.run)
        return self.store.transact(*commands)

    def new(
        self,
        tool: str = "send",
        args: Json = None,
        *,
        id: str = "",
        key: str = "",
        kind: str = "approval",
        binds: str = "",
        note: str = "",
        preview: str = "",
        outcome: tuple[bool, str | None] | None = None,
        effect_key: str = "",
        settles: bool = False,
        caller: str = "",
        template: str = "",
        verdict: str = "ask",
        **terms: Any,
    ) -> NewCall:
        """Return a call to propose. Other keyword arguments are terms of the policy."""
        n = next(self._ids)
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
            terms=Terms(verdict=Verdict(verdict), effect_key=template, **terms),
            binds=binds,
            note=note,
            preview=preview,
            outcome=outcome,
            effect_key=effect_key,
            settles=settles,
            caller=caller,
        )

    def propose(
        self,
        *calls: NewCall,
        run: str = "r",
        thread: str = "t",
        says: tuple[str, ...] = (),
        **options: Any,
    ) -> tuple[Call, ...]:
        """Propose calls in one commit."""
        command = Propose(
            thread=thread,
            run=run,
            agent=options.pop("agent", "agent"),
            calls=calls,
            tools=tuple(tool_of(call.tool) for call in calls if call.tool),
            messages=tuple(Message(run, body) for body in says),
            **options,
        )
        (made,) = self.transact(command)
        proposed: tuple[Call, ...] = made
        return proposed

    def ask(self, tool: str = "send", *, run: str = "r", thread: str = "t", **new: Any) -> Call:
        """Return a call that needs approval."""
        (call,) = self.propose(self.new(tool, **new), run=run, thread=thread)
        return call

    def ready(self, **new: Any) -> Call:
        """Return a call that was allowed, and has not started."""
        return self.ask(**{"verdict": "allow", **new})

    def running(self, owner: str = "w1", lease: int = LEASE, **new: Any) -> Call:
        """Return a call that has started."""
        return self.start(self.ready(**new), owner=owner, lease=lease)[0]

    def doubted(self, **new: Any) -> Call:
        """Return a call that is in doubt."""
        call = self.running(**new)
        self.doubt(call)
        return self.call(call)

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
        """Decide a call, as someone with a token who has seen its current digest."""
        row = self.call(call)
        reviewer = Reviewer(by, assurance="token") if isinstance(by, str) else by
        if type == "edit" and "args" in more:
            more["args"] = codec.canonical(more["args"]).decode()
            more["args_hash"] = codec.sha256(more["args"].encode())
        if "value" in more:
            more["value"] = codec.canonical(more["value"]).decode()
        more.setdefault("seen_digest", self.digest(row))
        command = Decide(
            thread=row.thread,
            run=row.run,
            call=row.id,
            type=type,
            by=reviewer,
            channel=more.pop("channel", "test"),
            **more,
        )
        (decided,) = self.transact(command)
        answered: Call = decided
        return answered

    def start(self, *calls: Call, owner: str = "w1", lease: int = LEASE) -> tuple[Call, ...]:
        """Start calls of one run."""
        ids, seen = tuple(call.id for call in calls), tuple(self.mac_of(call) for call in calls)
        run, thread = calls[0].run, calls[0].thread
        (started,) = self.transact(
            Start(thread=thread, run=run, calls=ids, seen=seen, owner=owner, lease=lease)
        )
        begun: tuple[Call, ...] = started
        return begun

    def mac_of(self, call: Call) -> str:
        """Return the current MAC of a call's row."""
        return (self.store.call(call.id) or call).mac

    def record(self, call: Call, *, ok: bool = True, result: str = '"sent"', **more: Any) -> Call:
        """Record the outcome of the attempt in ``call``."""
        (recorded,) = self.transact(Record(**attempt_of(call), ok=ok, result=result, **more))
        row: Call = recorded
        return row

    def complete(self, call: Call, owner: str = "w1", result: str = "true") -> Call:
        """Start and record a call in one commit."""
        seen, place = self.mac_of(call), _place(call)
        (completed,) = self.transact(
            Complete(**place, call=call.id, seen=seen, result=result, owner=owner, lease=LEASE)
        )
        row: Call = completed
        return row

    def release(self, call: Call, caller: str = "use:1") -> Call:
        """Release a call to the agent that runs it."""
        seen = self.mac_of(call)
        (released,) = self.transact(Release(**_place(call), call=call.id, seen=seen, caller=caller))
        row: Call = released
        return row

    def defer(self, call: Call, caller: str) -> Call:
        """Tell the caller of a request that there is no answer yet."""
        (deferred,) = self.transact(Defer(**_place(call), call=call.id, caller=caller))
        row: Call = deferred
        return row

    def report(self, call: Call, result: str = '"ran"', *, ok: bool = True) -> Call:
        """Report the result of a released call."""
        (reported,) = self.transact(
            ReportResult(**_place(call), call=call.id, ok=ok, result=result)
        )
        row: Call = reported
        return row

    def suspend(self, call: Call) -> Call:
        """Suspend the attempt in ``call``, as a question in its body does."""
        (suspended,) = self.transact(Suspend(**attempt_of(call)))
        row: Call = suspended
        return row

    def doubt(self, call: Call, reason: str = "cut short") -> Call:
        """Mark the attempt in ``call`` as in doubt."""
        (doubted,) = self.transact(MarkInDoubt(**attempt_of(call), reason=reason))
        row: Call = doubted
        return row

    def settle(self, call: Call, answer: str, **more: Any) -> Call:
        """Settle the doubt about the attempt in ``call`` with what the other side says."""
        (settled,) = self.transact(Settle(**attempt_of(call), answer=answer, **more))
        row: Call = settled
        return row

    def sweep(self, run: str = "r", thread: str = "t") -> tuple[Call, ...]:
        """Release the run's lease if it has expired. Return the calls that are in doubt now."""
        (doubted,) = self.transact(ReleaseLapsed(thread=thread, run=run))
        calls: tuple[Call, ...] = doubted
        return calls

    def claim(
        self,
        owner: str = "w1",
        run: str = "r",
        thread: str = "t",
        lease: int = LEASE,
        force: bool = False,
    ) -> Run | None:
        """Claim a run that is due or, with ``force``, one that has no owner."""
        (run_,) = self.transact(
            Claim(thread=thread, run=run, owner=owner, lease=lease, force=force)
        )
        claimed: Run | None = run_
        return claimed

    def renew(self, token: int, run: str = "r", thread: str = "t", lease: int = LEASE) -> bool:
        """Renew a lease. Return whether it was still held."""
        (ours,) = self.transact(Renew(thread=thread, run=run, token=token, lease=lease))
        return bool(ours)

    def finish(self, status: str = "done", run: str = "r", thread: str = "t", **more: Any) -> Run:
        """Finish a run, with its current token unless another one is given."""
        known = self.store.run(run)
        more.setdefault("token", 0 if known is None else known.token)
        (run_,) = self.transact(Finish(thread=thread, run=run, status=status, **more))
        finished: Run = run_
        return finished

    def expire(self, call: Call) -> Call:
        """Expire a request if its time is up."""
        (expired,) = self.transact(Expire(**_place(call), call=call.id))
        row: Call = expired
        return row

    def cancel(
        self, call: Call | None = None, run: str = "r", thread: str = "t", **more: Any
    ) -> Run:
        """Cancel a request, or the run."""
        place = {"thread": thread, "run": run} if call is None else _place(call)
        more = {"by": "ana", "reason": "changed my mind", **more}
        (run_,) = self.transact(Cancel(**place, call=None if call is None else call.id, **more))
        cancelled: Run = run_
        return cancelled

    def recover(self, run: str = "r", thread: str = "t") -> tuple[Call, ...]:
        """Recover a run after a restore. Return the calls that are in doubt now."""
        (doubted,) = self.transact(Recover(thread=thread, run=run, by="ops"))
        calls: tuple[Call, ...] = doubted
        return calls

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
        (stored,) = self.transact(AddGrant(grant=grant))
        kept: Grant = stored
        return kept

    def token(self, person: str, **more: Any) -> Principal:
        """Store a token of this person."""
        n = next(self._ids)
        principal = Principal(
            id=more.pop("id", f"tok_{n:04d}"),
            token_hash=more.pop("token_hash", codec.sha256(f"token {n}".encode())),
            person=person,
            role=more.pop("role", "reviewer"),
            created=0,
            **more,
        )
        (stored,) = self.transact(AddPrincipal(principal=principal, by="ops"))
        kept: Principal = stored
        return kept


def _place(call: Call) -> dict[str, Any]:
    return {"thread": call.thread, "run": call.run}


def attempt_of(call: Call) -> dict[str, Any]:
    """Return thread, run, call, token and number of the attempt in ``call``."""
    return {**_place(call), "call": call.id, "token": call.token, "attempt": call.attempt}
