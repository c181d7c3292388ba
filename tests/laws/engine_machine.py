"""Commands in any order: two stores that must agree, and what must never happen.

A hypothesis state machine sends the same commands, with the same ids, on the same clock, to a store
in memory and to one in SQLite, which now and then is closed, or copied as a crash would leave it.
After each step both must show the same, down to the hashes of the chains. Beside them runs a model
(``engine_model``) that knows which changes are lawful (``engine_laws``).

What usually happens has a rule each; what is rare shares a few, or most sequences would be noise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from engine_model import THREADS, Planned, TwoStores
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from sayso import codec
from sayso.engine import Command
from sayso.engine.commands import (
    AddGrant,
    CallCommand,
    Cancel,
    Claim,
    Complete,
    Decide,
    Defer,
    EndLease,
    Escalate,
    Expire,
    Finish,
    LiftRefusal,
    MarkInDoubt,
    NewCall,
    NotePrompt,
    OpenWindow,
    Park,
    Propose,
    Reask,
    Record,
    Recover,
    Release,
    ReleaseLapsed,
    Remind,
    Reopen,
    ReportResult,
    Review,
    RevokeGrant,
    Settle,
    Start,
    Suspend,
    Undo,
)
from sayso.engine.grants import Step, plan_scope
from sayso.engine.people import PROCESS
from sayso.engine.renewing import Renewal
from sayso.policy.limits import Limit, bound_text
from sayso.rows import SETTLEMENTS, Call, CallStatus, Message, Proven, Run
from sayso.stores.base import Query
from sayso.types import EFFECTS, ON_DUPLICATE, OVERTURNS, Failure, Grant, Reviewer, Risk
from sayso_testing.world import attempt_of, proof_of, seconds, tool_of

Data = st.DataObject

#: Only the first of them may trust a run.
WINDOW_PEOPLE = (
    Proven("ana", proof=proof_of("ana", "session")),
    Proven("bo", proof=proof_of("bo", "token")),
)
#: Of all rules of the model, so that many calls count in the same budgets.
LIMITS = tuple(
    (bound_text(Limit.parse(text).of_rule(["*"], ["*"])),)
    for text in ("calls <= 2 per 40s", "sum(n) <= 2 per 60s", "distinct(n) <= 1 per 40s")
)
OWNERS = ("w1", "w2")
CALLERS = ("use:1", "use:2", "args:1")
MODEL = "model:small"
TOOLS = ("send", "pay")
STEPS = st.tuples(st.sampled_from(TOOLS), st.integers(0, 2))
PEOPLE = (
    Proven("ana", assurance="token", proof=proof_of("ana", "token")),
    Proven("bo", assurance="token", proof=proof_of("bo", "token")),
    Proven("cy", ("finance",), assurance="os-user", proof=PROCESS),
    Reviewer("code"),
    Proven("robot", assurance="token", role="agent", proof=proof_of("robot", "token")),
)
MEANT = ("ana", "group:finance")
#: More people may decide after a while; who decides with only a name is not among the first.
ESCALATES = {
    "reviewers": ("ana",),
    "remind_after": 5,
    "escalate_after": 11,
    "escalate_to": ("bo", "code"),
}
#: What is due at some time.
BY_TIME: dict[str, type[CallCommand]] = {"expire": Expire, "escalate": Escalate, "remind": Remind}
SMALL = '{"properties":{"n":{"maximum":1}},"required":["n"]}'
LEASE = seconds(10)


def _step(tool: str, number: int) -> Step:
    args_hash = codec.sha256(codec.canonical({"n": number}))
    return Step(tool, tool_of(tool).digest, args_hash, "medium")


_S = CallStatus
_OPEN = (_S.ASKED, _S.IN_DOUBT)


def _in(*wanted: CallStatus) -> Any:
    """Run a rule only if some call has this status."""
    return precondition(lambda self: any(c.status in wanted for c in self.calls.values()))


class Machine(TwoStores):
    """Commands in any order, on two stores at once."""

    # -- choosing

    def _call(self, data: Data, *wanted: CallStatus) -> Call:
        """Some call; mostly one in a state where the command does something."""
        calls = list(self.calls.values())
        fitting = [call for call in calls if call.status in wanted]
        if fitting and data.draw(st.integers(0, 5), label="fitting") > 0:
            calls = fitting
        return data.draw(st.sampled_from(calls), label="call")

    def _place(self, call: Call) -> dict[str, Any]:
        return {"thread": call.thread, "run": call.run}

    def _run(self, data: Data) -> Run:
        runs = [run for run in map(self.memory.store.run, self.memory.runs) if run is not None]
        return data.draw(st.sampled_from(runs), label="run")

    def _attempt(self, data: Data) -> dict[str, Any]:
        """Some attempt that was ever made: one that still runs, or one of long ago."""
        running = [a for a in self.attempts if self.calls[a.id].attempt == a.attempt]
        some = running if running and data.draw(st.booleans()) else self.attempts
        return attempt_of(data.draw(st.sampled_from(some), label="attempt"))

    # -- what usually happens

    @rule(
        data=st.data(),
        thread=st.sampled_from(THREADS),
        verdicts=st.lists(st.sampled_from(["ask", "ask", "allow", "deny"]), min_size=1, max_size=3),
        owner=st.sampled_from([None, None, *OWNERS]),
        hold=st.booleans(),
    )
    def propose(
        self, data: Data, thread: str, verdicts: list[str], owner: str | None, hold: bool
    ) -> None:
        self._propose(data, thread, verdicts, owner, hold)

    def _propose(
        self, data: Data, thread: str, verdicts: list[str], owner: str | None, hold: bool
    ) -> None:
        live = self.memory.store.live_run(thread)
        names = [f"{thread}-a", f"{thread}-b"] if live is None else [live.id] * 4 + [f"{thread}-a"]
        name = data.draw(st.sampled_from(names), label="run")
        same = data.draw(st.booleans(), label="same scope")
        reopen = (
            [Reopen(thread=thread, run=name, same_scope=same)] if data.draw(st.booleans()) else []
        )
        calls = tuple(self._new(data, verdict) for verdict in verdicts)
        wake = 0 if live is None else live.wake
        self.send(
            *reopen,
            Propose(
                thread=thread,
                run=name,
                agent="agent",
                calls=calls,
                tools=tuple(tool_of(call.tool) for call in calls),
                messages=(Message(name, f"hello {self.ids}"),),
                owner=owner,
                lease=LEASE,
                hold=hold,
                wake_seen=data.draw(st.sampled_from([None, wake, wake - 1])),
            ),
        )

    def _new(self, data: Data, verdict: str, step: tuple[str, int] | None = None) -> NewCall:
        number, effect = self.new_id(), data.draw(st.sampled_from(EFFECTS))
        outcomes = [None, (True, "1"), (False, "boom")] if effect == "read" else [None, None, None]
        keys = [f"key-{number}"] * 5 + ["shared"]
        tool, value = step or (data.draw(st.sampled_from(TOOLS)), data.draw(st.integers(0, 2)))
        return self.memory.new(
            tool,
            {"n": value},
            id=f"req_{number}",
            key=data.draw(st.sampled_from(keys), label="key"),
            verdict=verdict,
            quorum=data.draw(st.sampled_from([1, 1, 1, 2])),
            expires_in=data.draw(st.sampled_from([None, None, 5.0, 50.0])),
            on_expiry=data.draw(st.sampled_from(["reject", "reject", "cancel"])),
            valid_for=data.draw(st.sampled_from([30.0, 1000.0])),
            effect=effect,
            outcome=data.draw(st.sampled_from(outcomes)) if verdict == "allow" else None,
            effect_key=data.draw(st.sampled_from(["", "", "/a", "/b"]), label="effect key"),
            settles=data.draw(st.booleans(), label="settles"),
            declared=data.draw(st.booleans(), label="declared"),
            binds=data.draw(st.sampled_from(["", "", '{"body":"x"}']), label="binds"),
            caller=data.draw(st.sampled_from(["", "", *CALLERS]), label="caller"),
            on_duplicate=data.draw(st.sampled_from(ON_DUPLICATE)),
            overturn=data.draw(st.sampled_from(OVERTURNS)),
            **data.draw(st.sampled_from([{}, {}, {"reviewers": MEANT}, ESCALATES])),
            risk=Risk(data.draw(st.sampled_from(["low", "medium", "high"]), label="risk")),
            risk_declared=data.draw(st.booleans(), label="risk declared"),
            limits=data.draw(st.sampled_from([(), (), *LIMITS]), label="limits"),
            **data.draw(st.sampled_from([{}, {"reviewer": MODEL, "reviewer_allows": True}])),
        )

    @_in(*_OPEN)
    @rule(data=st.data(), people=st.sampled_from([PEOPLE[:1], PEOPLE[:2], PEOPLE[:2]]))
    def approve(self, data: Data, people: tuple[Reviewer, ...]) -> None:
        """Approve a call as one or two people who may."""
        call = self._call(data, *_OPEN)
        for by in people:
            digest = self.memory.digest(call)
            self.send(self._decision(call, type="approve", by=by, seen_digest=digest))

    @_in(_S.ASKED)
    @rule(data=st.data(), answer=st.sampled_from(["allow", "allow", "ask", "reject"]))
    def review(self, data: Data, answer: str) -> None:
        """A model says what it thinks of a request, of which it may have seen an old revision."""
        call = self._call(data, _S.ASKED)
        digest = data.draw(st.sampled_from([call.digest] * 3 + self.seen[call.id][-2:]))
        seen = {"seen_digest": digest, "reviewer": MODEL}
        self.send(Review(**self._place(call), call=call.id, **seen, answer=answer, reason="so"))

    def _decision(self, call: Call, **more: Any) -> Decide:
        return Decide(**self._place(call), call=call.id, channel="test", **more)

    @_in(_S.READY)
    @rule(data=st.data(), owner=st.sampled_from(OWNERS))
    def work(self, data: Data, owner: str) -> None:
        """A worker starts all that is ready in a run."""
        ready = [call for call in self.calls.values() if call.status is _S.READY]
        first = data.draw(st.sampled_from(ready))
        ours = [call for call in ready if call.run == first.run]
        calls, seen = tuple(call.id for call in ours), tuple(call.mac for call in ours)
        self.send(Start(**self._place(first), calls=calls, seen=seen, owner=owner, lease=LEASE))

    @precondition(lambda self: self.attempts)
    @rule(
        data=st.data(),
        ok=st.booleans(),
        hold=st.booleans(),
        retry=st.booleans(),
        ends=st.booleans(),
    )
    def record(self, data: Data, ok: bool, hold: bool, retry: bool, ends: bool) -> None:
        attempt = self._attempt(data)
        result = f'"{attempt["call"]} {attempt["attempt"]}"'
        outcome: dict[str, Any] = {"ok": ok, "result": result}
        if not ok:
            outcome["failure"] = data.draw(st.sampled_from(get_args(Failure)), label="failure")
        commands: list[Command] = [Record(**attempt, **outcome, hold=hold, retry=retry)]
        if ends:
            commands.append(Finish(thread=attempt["thread"], run=attempt["run"], status="done"))
        self.send(*commands)

    @rule(number=st.sampled_from([0.000_001, 4, 6, 11, 31, 2000]))
    def time_passes(self, number: float) -> None:
        self.clock.advance(number)

    # -- people

    @precondition(lambda self: self.calls)
    @rule(
        data=st.data(),
        type=st.sampled_from(["approve", "approve", "edit", "reject", "respond"]),
        by=st.sampled_from(PEOPLE),
        starts=st.booleans(),
        grants=st.booleans(),
    )
    def decide(self, data: Data, type: str, by: Reviewer, starts: bool, grants: bool) -> None:
        """Decide anything as any person, on a current, an old or no digest."""
        call = self._call(data, *_OPEN)
        digests = [self.memory.digest(call)] * 4 + self.seen[call.id][-3:] + [None]
        args = f'{{"n":{data.draw(st.integers(0, 2))}}}' if type == "edit" else None
        command = self._decision(
            call,
            type=type,
            by=by,
            seen_digest=data.draw(st.sampled_from(digests), label="seen"),
            value="1" if type == "respond" else None,
            args=args,
            args_hash="" if args is None else codec.sha256(args.encode()),
            grant=self._grant(data, call.tool, by.name) if grants else None,
            stop=type == "reject" and data.draw(st.integers(0, 5), label="stop") == 0,
            undo_for=data.draw(st.sampled_from([0, 0, seconds(5)]), label="undo for"),
        )
        this = {"calls": (call.id,), "seen": (call.mac,)}
        start = Start(**self._place(call), **this, owner="w1", lease=LEASE)
        self.send(command, *([start] if starts else []))
        if command.grant is not None and command.grant.id in self._stored_grants():
            self.grants[command.grant.id] = command.grant

    @precondition(lambda self: any(call.held for call in self.calls.values()))
    @rule(data=st.data(), by=st.sampled_from([*PEOPLE, None, None, None]))
    def undo(self, data: Data, by: Reviewer | None) -> None:
        """Undo a decision, mostly as the person who made it."""
        call = data.draw(st.sampled_from([c for c in self.calls.values() if c.held]), label="call")
        assert call.held is not None
        if by is None:
            by = next(person for person in PEOPLE if person.name == call.held.by)
        note = codec.loads(call.held.undo) if call.held.undo else {}
        grant = note.get("grant", "")
        self.send(Undo(**self._place(call), call=call.id, by=by, grant=grant))
        if not self.calls[call.id].held:
            self.grants.pop(grant, None)

    @rule(data=st.data(), what=st.sampled_from(["prompt", "lift"]), by=st.sampled_from(PEOPLE))
    def end_refusal(self, data: Data, what: str, by: Reviewer) -> None:
        """The user writes something new, or a person lifts a refusal."""
        if what == "prompt":
            run = self._run(data)
            self.send(NotePrompt(thread=run.thread, run=run.id))
            return
        refusals = self.memory.store.all_refusals()
        if refusals:
            refusal = data.draw(st.sampled_from(refusals), label="refusal")
            self.send(LiftRefusal(refusal=refusal.id, by=by))

    def _stored_grants(self) -> set[str]:
        return {grant.id for grant in self.memory.store.grants(live_only=False)}

    def _grant(self, data: Data, tool: str, by: str) -> Grant:
        return Grant(
            id=f"grt_{self.new_id()}",
            agent="agent",
            tool=tool,
            tool_digest=tool_of(tool).digest,
            scope=data.draw(st.sampled_from(["{}", "{}", SMALL])),
            by=by,
            created=self.clock(),
            uses_left=data.draw(st.sampled_from([1, 2, None])),
            ends=data.draw(st.sampled_from([None, None, self.clock() + seconds(20)])),
        )

    @rule(data=st.data(), tool=st.sampled_from(TOOLS))
    def grant(self, data: Data, tool: str) -> None:
        """Add a grant, and propose calls that it may cover."""
        grant = self._grant(data, tool, "ana")
        self.grants[grant.id] = grant
        self.send(AddGrant(grant=grant))
        self._propose(data, "t1", ["ask"] * 3, None, False)

    @rule(
        data=st.data(),
        risk=st.sampled_from(["low", "medium"]),
        by=st.sampled_from(WINDOW_PEOPLE),
        rejects=st.booleans(),
    )
    def trust(self, data: Data, risk: str, by: Reviewer, rejects: bool) -> None:
        """Trust a live run, and propose calls in it, some of them after a rejection."""
        live = self.memory.store.live_run("t1")
        if live is not None:
            place = {"thread": "t1", "run": live.id, "grant": f"win_{self.new_id()}"}
            self.send(OpenWindow(**place, by=by, risk=risk, length=seconds(30)))
            self._propose(data, "t1", ["ask"] * 2, data.draw(st.sampled_from(OWNERS)), False)
            if rejects:
                self._reject(data, live.id)
                self._propose(data, "t1", ["ask"] * 2, data.draw(st.sampled_from(OWNERS)), False)

    def _reject(self, data: Data, run: str, request: str = "") -> None:
        """Reject this request of a run, or any, if there is one."""
        asked = [c for c in self.calls.values() if c.run == run and c.status is _S.ASKED]
        asked = [call for call in asked if call.id == request] or asked
        if asked:
            call = data.draw(st.sampled_from(asked), label="rejected")
            digest = self.memory.digest(call)
            self.send(self._decision(call, type="reject", by=PEOPLE[0], seen_digest=digest))

    @rule(
        data=st.data(),
        steps=st.lists(STEPS, min_size=2, max_size=3),
        any_order=st.booleans(),
        end=st.sampled_from(["", "", "reject", "prompt"]),
    )
    def plan(self, data: Data, steps: list[tuple[str, int]], any_order: bool, end: str) -> None:
        """Approve calls of a live run at once; then propose some of them, and others."""
        live = self.memory.store.live_run("t1")
        if live is None:
            return
        number = self.new_id()
        content = {"steps": [list(step) for step in steps], "any_order": any_order}
        new = self.memory.new(
            "plan", content, id=f"req_{number}", key=f"key-{number}", plan=True, valid_for=30.0
        )
        place = {"thread": "t1", "run": live.id}
        self.send(Propose(**place, agent="agent", calls=(new,), tools=(tool_of("plan"),)))
        call = self.calls.get(new.id)
        if call is None or call.status is not _S.ASKED:
            return
        scope = plan_scope([_step(*step) for step in steps], any_order, call.id)
        plan = Grant(
            id=f"pln_{number}", agent="", tool="", tool_digest="", scope=scope, by="", created=0
        )
        approves = self._decision(
            call,
            type="approve",
            by=PEOPLE[0],
            seen_digest=self.memory.digest(call),
            grant=plan,
            is_plan=True,
        )
        self.send(approves)
        if plan.id in self._stored_grants():
            scope = self.memory.run(live.id).scope
            ends = self.clock() + seconds(30)
            self.plans[plan.id] = Planned(
                live.id, scope, any_order, ends, dict(enumerate(steps)), {}
            )
        if end == "reject":
            one = self._new(data, "ask", steps[0])
            asks = replace(one, terms=replace(one.terms, quorum=2, reviewers=("ana",)))
            self.send(Propose(**place, agent="agent", calls=(asks,), tools=(tool_of(one.tool),)))
            self._reject(data, live.id, asks.id)
        elif end == "prompt":
            self.send(NotePrompt(**place))
        orders = st.lists(st.sampled_from([*steps, *steps, ("pay", 3)]), min_size=2, max_size=4)
        for step in data.draw(orders, label="calls"):
            one = self._new(data, "ask", step)
            owner = data.draw(st.sampled_from(OWNERS))
            tools = (tool_of(one.tool),)
            proposes = {"calls": (one,), "tools": tools, "owner": owner, "lease": LEASE}
            self.send(Propose(**place, agent="agent", **proposes))

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), what=st.sampled_from(["call", "run", "revoke", *BY_TIME]))
    def call_off(self, data: Data, what: str) -> None:
        call = self._call(data, _S.ASKED, _S.READY)
        if what in BY_TIME:
            self.send(BY_TIME[what](**self._place(call), call=call.id))
        elif what == "revoke":
            names = [*sorted(self.grants), "grt_none"]
            self.send(RevokeGrant(grant=data.draw(st.sampled_from(names)), by="ana"))
        else:
            one = call.id if what == "call" else None
            superseded = data.draw(st.booleans())
            cancel = Cancel(**self._place(call), by="ana", call=one, superseded=superseded)
            self.send(replace(cancel, reason="enough"))

    # -- workers

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), what=st.sampled_from(["suspend", "suspend elsewhere", "doubt", "doubt"]))
    def stop_short(self, data: Data, what: str) -> None:
        attempt = self._attempt(data)
        if what == "doubt":
            self.send(MarkInDoubt(**attempt, reason="cut short"))
        else:
            self.send(Suspend(**attempt, elsewhere="elsewhere" in what))

    @_in(_S.IN_DOUBT)
    @rule(data=st.data(), answer=st.sampled_from(SETTLEMENTS), later=st.booleans())
    def settle(self, data: Data, answer: str, later: bool) -> None:
        """The other side is asked about some attempt, when its lease has ended or before."""
        call = self._call(data, _S.IN_DOUBT)
        if later:
            self.clock.advance(11)
        this = not self.attempts or data.draw(st.booleans())
        attempt = attempt_of(call) if this else self._attempt(data)
        result = '"found"' if answer == "ran" else None
        self.send(Settle(**attempt, answer=answer, result=result, said=f"it {answer}"))

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), owner=st.sampled_from(OWNERS), what=st.sampled_from("scr"))
    def touch(self, data: Data, owner: str, what: str) -> None:
        """Start, complete or ask again about any call, whatever its state."""
        call = self._call(data, _S.READY)
        place = self._place(call)
        if what == "s":
            this = {"calls": (call.id,), "seen": (call.mac,)}
            self.send(Start(**place, **this, owner=owner, lease=LEASE))
        elif what == "c":
            this = {"call": call.id, "seen": call.mac}
            self.send(Complete(**place, **this, result="1", owner=owner, lease=LEASE))
        else:
            changed = data.draw(st.sampled_from([None, tool_of(call.tool, "v2")]))
            self.send(Reask(**place, call=call.id, reason="changed", tool=changed))

    @precondition(lambda self: self.calls)
    @rule(
        data=st.data(),
        what=st.sampled_from(["release", "release", "defer", "report"]),
        ends=st.booleans(),
    )
    def run_elsewhere(self, data: Data, what: str, ends: bool) -> None:
        """Release a call to an agent elsewhere, defer it, or report its result."""
        wanted = {"release": _S.READY, "defer": _S.ASKED, "report": _S.RELEASED}[what]
        call = self._call(data, wanted)
        this: dict[str, Any] = {**self._place(call), "call": call.id}
        callers = [call.caller] * 3 + [*CALLERS, ""]
        commands: list[Command] = {
            "release": lambda: [Release(**this, seen=call.mac, caller=call.caller or "use:1")],
            "defer": lambda: [Defer(**this, caller=data.draw(st.sampled_from(callers)))],
            "report": lambda: [ReportResult(**this, ok=True, result=f'"{self.new_id()}"')],
        }[what]()
        if ends:
            commands.append(Finish(**self._place(call), status="done"))
        self.send(*commands)

    @rule(
        data=st.data(),
        owner=st.sampled_from(OWNERS),
        what=st.sampled_from(
            [
                "claim",
                "claim",
                "force",
                "sweep",
                "renew",
                "end lease",
                "finish",
                "recover",
                "park",
                "reopen",
            ]
        ),
    )
    def take_care(self, data: Data, owner: str, what: str) -> None:
        run = self._run(data)
        place: dict[str, Any] = {"thread": run.thread, "run": run.id}
        back = data.draw(st.sampled_from([0, 0, 1]), label="back")
        if what in ("claim", "force"):
            exactly = data.draw(st.booleans(), label="exactly")
            force = what == "force"
            self.send(Claim(**place, owner=owner, lease=LEASE, force=force, exactly=exactly))
        elif what == "sweep":
            self.send(ReleaseLapsed(**place))
        elif what == "park":
            due = data.draw(st.sampled_from([None, self.clock() + seconds(5)]), label="due")
            fence = {"token": run.token - back, "wake_seen": run.wake - back}
            self.send(Park(**place, **fence, due_at=due))
        elif what == "reopen":
            self.send(Reopen(**place, by="ana"))
        elif what == "renew":
            self.renew(Renewal(run.id, run.token - back, LEASE))
        elif what == "end lease":
            self.send(EndLease(**place, token=run.token - back))
        elif what == "recover":
            self.send(Recover(**place, by="ops"))
        else:
            fence = data.draw(st.sampled_from([None, run.token - back]))
            exactly = data.draw(st.booleans(), label="exactly")
            seen = run.wake - back
            finish = Finish(**place, status="failed", token=fence, wake_seen=seen, exactly=exactly)
            self.send(finish)

    # -- stores

    @rule(what=st.sampled_from(["seal", "close", "crash", "crash", "crash", "prune", "prune old"]))
    def upheaval(self, what: str) -> None:
        {
            "seal": self.seal,
            "close": self.close_and_open,
            "crash": self.crash,
            "prune": lambda: self.prune(0),
            "prune old": lambda: self.prune(50),
        }[what]()

    @rule(
        status=st.sampled_from(["pending", "any", "closed", "approved", "rejected"]),
        sort=st.sampled_from(["oldest", "newest", "expiring"]),
        limit=st.integers(1, 4),
        kind=st.sampled_from([None, None, "approval", "in_doubt"]),
        tool=st.sampled_from([None, None, *TOOLS]),
    )
    def list_requests(self, limit: int, **filters: Any) -> None:
        """Check that all pages of both stores are the same, and equal the full list."""
        walks = []
        for world in (self.memory, self.sqlite):
            query, shown = Query(limit=limit, **filters), []
            while page := world.store.page(query):
                shown += [call for _, call in page]
                query = replace(query, after=page[-1][0])
            assert shown == [c for _, c in world.store.page(Query(limit=999, **filters))]
            walks.append(shown)
        assert walks[0] == walks[1]
