"""An untouched store verifies, whatever happened in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from audit_world import World, places

from sayso import (
    DidNotRun,
    Expired,
    Gate,
    Inbox,
    Paused,
    Policy,
    Question,
    Ran,
    Rejected,
    Rule,
)
from sayso.audit import verify
from sayso.audit.replay import _NEXT_STATUS, _UNMOVED
from sayso.engine.commands import Note, NotePrompt, Record, Recover, SignAgain, Start
from sayso.gate.scope import RunScope
from sayso.hooks.dialects import ToolUse
from sayso.hooks.local import plan_of
from sayso.inbox import remove_person
from sayso.rows import CallStatus
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock, person


class Interrupted(BaseException):
    """Stops a process while a call runs."""


class Everything:
    """A store with a call for everything that can happen to one."""

    def __init__(self, store: Any, clock: FakeClock) -> None:
        self.store, self.clock = store, clock
        self.gate = Gate(store, wait=0)
        self.inbox = Inbox(store)
        self.fails: BaseException | None = None

    def tool(self, **options: Any) -> Any:
        def send(to: str, subject: str = "hello") -> str:
            """Send a message."""
            if self.fails is not None:
                error, self.fails = self.fails, None
                raise error
            return f"sent to {to}"

        return self.gate.guard(**{"needs_approval": True, **options})(send)

    def ask(self, run: str, call: Any) -> Any:
        with pytest.raises(Paused) as paused, self.gate.run(run):
            call()
        self.check()
        return paused.value.requests[0]

    def decide(self, request: Any, decision: Any, by: Any = "ana", **options: Any) -> None:
        self.inbox.decide_sync(request.id, decision, by=by, **options)
        self.check()

    def go(self, run: str, call: Any) -> Any:
        try:
            with self.gate.run(run):
                return call()
        finally:
            self.check()

    def check(self) -> None:
        report = verify(self.store)
        assert report.problems == []

    # -- stories

    def plain_answers(self) -> None:
        send = self.tool()
        edit, no, answer = (self.ask(name, lambda: send("a")) for name in ("edit", "no", "answer"))
        self.decide(edit, edit.edit({"to": "b"}))
        assert self.go("edit", lambda: send("a")) == "sent to b"
        self.decide(no, no.reject("not today"))
        with pytest.raises(Rejected):
            self.go("no", lambda: send("a"))
        self.decide(answer, answer.respond("never mind"))
        assert self.go("answer", lambda: send("a")) == "never mind"
        size = self.ask("question", lambda: self.gate.ask_sync(Question("Size?")))
        self.decide(size, size.respond("L"))
        yes = self.ask("approval", lambda: self.gate.confirm_sync("Publish?", {"n": 1}))
        self.decide(yes, yes.approve())
        assert self.go("approval", lambda: self.gate.confirm_sync("Publish?", {"n": 1}))
        self.ask("stricter", lambda: self.gate.confirm_sync("Drop it?"))
        drop = self.ask("stricter", lambda: self.gate.confirm_sync("Drop it?", reviewers=["zoe"]))
        self.decide(drop, drop.reject("no"), by="zoe")

    def endings(self) -> None:
        send = self.tool(expires_in=60)
        self.ask("late", lambda: send("a"))
        self.clock.advance(61)
        with pytest.raises(Expired):
            self.go("late", lambda: send("a"))
        cancelled = self.ask("cancelled", lambda: send("a"))
        self.inbox.cancel_sync(cancelled.id, by="ana")
        self.ask("superseded", lambda: send("a"))
        self.gate.supersede_sync("superseded")
        self.check()

    def quorum(self) -> None:
        send = self.tool(quorum=2, expires_in=60)
        ana, bob = person(self.store, "ana"), person(self.store, "bob")
        request = self.ask("quorum", lambda: send("a"))
        self.decide(request, request.approve(), ana)
        self.decide(request, request.edit({"to": "b"}), bob)
        request = self.inbox.get_sync(request.id)
        self.decide(request, request.approve(), ana)
        assert self.go("quorum", lambda: send("a")) == "sent to b"

    def lost_vote(self) -> None:
        send = self.tool(quorum=2)
        cyd, dan, eve = (person(self.store, name) for name in ("cyd", "dan", "eve"))
        request = self.ask("lost", lambda: send("c"))
        self.decide(request, request.approve(), cyd)
        remove_person(self.store, "cyd", by="ops")
        for voter in (dan, eve):
            self.decide(request, request.approve(), voter)
        assert self.go("lost", lambda: send("c")) == "sent to c"

    def escalation(self) -> None:
        """A vote, a reminder and an escalation; then somebody of the second stage decides."""
        ana, bob = person(self.store, "ana"), person(self.store, "bob")
        rule = Rule(
            *("send",),
            reviewers=["ana", "eve"],
            quorum=2,
            remind_after=5,
            escalate_after=10,
            escalate_to=["bob"],
        )
        gate = Gate(self.store, policy=Policy([rule]), wait=0, agent="escalating")

        @gate.guard
        def send(to: str) -> str:
            return f"sent to {to}"

        with pytest.raises(Paused) as paused, gate.run("escalates"):
            send("a")
        (request,) = paused.value.requests
        self.decide(request, request.approve(), ana)
        for _ in range(3):
            self.clock.advance(5)
            self.inbox.pending_sync()
            self.check()
        self.decide(request, request.approve(), bob)
        with gate.run("escalates"):
            assert send("a") == "sent to a"
        self.check()

    def rules(self) -> None:
        policy = Policy([Rule("send", verdict="deny"), Rule("note", verdict="allow")])
        gate = Gate(self.store, policy=policy, wait=0, agent="ruled")

        @gate.guard
        def send(to: str) -> str:
            return to

        @gate.guard
        def note(text: str) -> str:
            return text

        with pytest.raises(Exception, match="denied"), gate.run("denied"):
            send("a")
        with gate.run("allowed"):
            assert note("b") == "b"
        self.check()

    def again(self) -> None:
        send = self.tool(valid_for=60)
        request = self.ask("again", lambda: send("a"))
        self.decide(request, request.approve())
        self.clock.advance(61)
        request = self.ask("again", lambda: send("a"))
        self.decide(request, request.approve())
        changed = self.tool(version="2")
        request = self.ask("again", lambda: changed("a"))
        self.decide(request, request.approve())
        assert self.go("again", lambda: changed("a")) == "sent to a"

    def grants(self) -> None:
        send = self.tool(name="granted")
        request = self.ask("grant", lambda: send("a"))
        self.decide(request, request.approve(), grant={"scope": "any", "uses": 2})
        assert self.go("granted", lambda: send("b")) == "sent to b"
        self.fails = ValueError("no")
        with pytest.raises(ValueError, match="no"):
            self.go("failed", lambda: send("c"))
        self.ask("spent", lambda: send("d"))
        self.pauses(needs_approval=True, grant={"scope": "any", "uses": 1})

    def refusals(self) -> None:
        send = self.tool(name="refused")
        request = self.ask("refused", lambda: send("a"))
        self.decide(request, request.reject("no"))

        def twice() -> None:
            for _ in range(2):
                with pytest.raises(Rejected, match="no"):
                    send("a")

        self.go("refused", twice)
        again = self.ask("refused again", lambda: send("a"))
        self.decide(again, again.approve())
        request = self.ask("lifted", lambda: send("b"))
        self.decide(request, request.reject("no", stop=True))
        (refusal,) = self.inbox.refusals_sync(limit=1)
        self.inbox.lift_refusal_sync(refusal, by="ana")
        self.store.transact(NotePrompt(thread="refused", run="refused"))

    def doubts(self) -> None:
        send = self.tool(expires_in=1000)
        for name, answer in (("run", "approve"), ("did", "respond"), ("give-up", "reject")):
            request = self.doubt(f"doubt-{name}", send)
            if answer == "respond":
                self.decide(request, request.respond("sent"))
            else:
                self.decide(request, getattr(request, answer)())
        request = self.doubt("doubt-late", send)
        self.late(request.id, "doubt-late", ok=False, result="TimeoutError", failure="lost")
        self.late(request.id, "doubt-late")
        self.late(request.id, "doubt-late")  # no process waits for it any more
        self.settled()
        retried = self.tool(name="retried", effect="idempotent")
        request = self.ask("retried", lambda: retried("a"))
        self.decide(request, request.approve())
        self.fails = Interrupted()
        with pytest.raises(Interrupted):
            self.go("retried", lambda: retried("a"))
        assert self.store.call(request.id).status is CallStatus.READY

    def settled(self) -> None:
        answers: list[Any] = [Ran("sent"), DidNotRun("not in the outbox"), None]
        for number, answer in enumerate(answers):
            options = {"effect_key": f"mail:{number}", "settle": lambda key, a=answer: a}
            send = self.tool(name=f"settled-{number}", **options)
            self.doubt(f"settled-{number}", send)
            self.clock.advance(60)
            if number == 0:
                assert self.go("settled-0", lambda send=send: send("a")) == "sent"
                continue
            with pytest.raises(Paused):
                self.go(f"settled-{number}", lambda send=send: send("a"))
            request = self.inbox.pending_sync(run=f"settled-{number}").items[0]
            assert request.evidence is not None
            self.decide(request, request.reject("leave it"))
        assert [one.key for one in self.store.effects()] == ["/mail:0", "/mail:2"]

    def doubt(self, run: str, send: Any) -> Any:
        request = self.ask(run, lambda: send("a"))
        self.decide(request, request.approve())
        self.fails = Interrupted()
        with pytest.raises(Interrupted):
            self.go(run, lambda: send("a"))
        doubted = self.inbox.get_sync(request.id)
        assert doubted.kind == "in_doubt"
        return doubted

    def late(self, call_id: str, run: str, **outcome: Any) -> None:
        call = self.store.call(call_id)
        token = {"token": call.token, "attempt": call.attempt}
        outcome = {"ok": True, "result": '"x"', **outcome}
        self.store.transact(Record(thread=run, run=run, call=call_id, **token, **outcome))
        self.check()

    def pauses(self, needs_approval: bool = False, grant: Any = None) -> None:
        @self.gate.guard(needs_approval=needs_approval)
        def order() -> str:
            return str(self.gate.ask_sync("Which?"))

        if needs_approval:
            request = self.ask("granted-pause", order)
            self.decide(request, request.approve(), grant=grant)
        run = f"pauses-{needs_approval}"
        request = self.ask(run, order)
        assert request.question is not None
        self.decide(request, request.respond("this"))
        assert self.go(run, order) == "this"

    def reads(self) -> None:
        look = self.tool(name="look", effect="read")
        request = self.ask("reads", lambda: look("a"))
        self.decide(request, request.approve())
        place = {"thread": "reads", "run": "reads"}
        for ok in (False, True):
            ready = self.store.call(request.id)
            assert ready is not None
            this = {"calls": (ready.id,), "seen": (ready.mac,)}
            ((call,),) = self.store.transact(Start(**place, **this, owner="w", lease=1))
            attempt = {"call": call.id, "token": call.token, "attempt": call.attempt}
            self.store.transact(Record(**place, **attempt, ok=ok, result='"seen"', retry=True))
            self.check()
        assert self.go("reads", lambda: look("a")) == "seen"

    def releases(self) -> None:
        """A coding agent asks, asks again under another id, runs the call and reports it."""

        def release(id: str) -> Any:
            use = ToolUse(
                "claude", "PreToolUse", "ask", "coder", "/", "Bash", {"command": "ls"}, id
            )
            entry = RunScope(self.gate.driver, "coder", "")
            released = self.gate.driver.release(entry, plan_of(self.gate, use, 0.0))
            call = asyncio.run(released)
            self.check()
            return call, use.caller

        for id in ("toolu_1", "toolu_2"):
            call, caller = release(id)
            assert call.status is CallStatus.ASKED
        self.decide(request := self.inbox.get_sync(call.id), request.approve())
        call, caller = release("toolu_3")
        assert call.status is CallStatus.RELEASED
        asyncio.run(self.gate.backend.report("coder", caller, True, "listed"))
        self.check()

    def undone(self) -> None:
        """A decision is undone in time, and the next one takes effect by itself."""
        send = self.tool()
        for number in range(2):
            request = self.ask("undone", lambda: send("u"))
            self.decide(request, request.edit({"to": f"v{number}"}), undo_seconds=5)
            self.check()
            if number == 0:
                self.inbox.undo_sync(request.id, by="ana")
                self.check()
        self.clock.advance(5)
        self.inbox.pending_sync()
        self.check()

    def restore(self) -> None:
        send = self.tool()
        request = self.ask("restored", lambda: send("a"))
        self.decide(request, request.approve())
        place = {"thread": "restored", "run": "restored", "call": request.id}
        self.store.transact(SignAgain(**place, by="root"))
        self.check()
        self.store.transact(Recover(thread="restored", run="restored", by="root"))
        self.check()
        self.store.transact(Note(type="policy_loaded", actor="gate", body={"digest": "x"}))
        self.check()

    def models(self) -> None:
        """A model allows, rejects, and leaves a request to people."""
        rule = Rule("send", risk="low", reviewer="model:says", reviewer_allows=True)
        models = {"says": lambda request: request["args"]["subject"]}
        gate = Gate(self.store, wait=0, policy=Policy([rule]), models=models)
        self.gate, before = gate, self.gate
        send = self.tool()
        assert self.go("model allows", lambda: send("a", "allow")) == "sent to a"
        with pytest.raises(Rejected):
            self.go("model rejects", lambda: send("b", "reject"))
        request = self.ask("model asks", lambda: send("c", "ask"))
        self.decide(request, request.approve())
        assert self.go("model asks", lambda: send("c", "ask")) == "sent to c"
        self.gate = before

    def happen(self) -> None:
        for story in (
            self.plain_answers,
            self.models,
            self.endings,
            self.quorum,
            self.lost_vote,
            self.escalation,
            self.rules,
            self.again,
            self.grants,
            self.refusals,
            self.doubts,
            self.pauses,
            self.reads,
            self.releases,
            self.undone,
            self.restore,
        ):
            story()
            self.store.seal()
            self.check()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_store_verifies_after_every_operation(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    store: Any = MemoryStore(clock=clock)
    if kind == "sqlite":
        store = SqliteStore(tmp_path / "sayso.db", clock=clock)
    everything = Everything(store, clock)
    everything.happen()
    seen = {event.type for _, event in store.events(limit=10_000)}
    assert {*_NEXT_STATUS, *_UNMOVED, "recorded", "read_recorded", "decided"} <= seen
    clock.advance(1e6)
    assert store.prune(clock(), "ana")["runs"] > 5
    everything.check()
    report = verify(store)
    assert (report.ok, report.unsealed) == (True, 0)
    assert report.events == len(store.events(limit=10_000))
    store.close()


def test_empty_store_verifies() -> None:
    report = verify(MemoryStore())
    assert (report.ok, report.threads, report.events, report.seals) == (True, 0, 0, 0)


def test_memory_store_is_verified_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.close()
    store = MemoryStore()
    world.use(store)
    call = world.order("order-1")
    store.seal()
    assert world.verify().ok
    started = store.chain("order-1")[2]
    change_actor = "UPDATE event SET actor = ? WHERE pos = ?"
    store._connection.execute(change_actor, ("eve", started.pos))
    assert places(world.verify()) == [("order-1", 3)]
    store._connection.execute(change_actor, (started.actor, started.pos))
    assert world.verify().ok
    store._connection.execute("UPDATE call SET result = '\"forged\"' WHERE id = ?", (call,))
    assert places(world.verify()) == [("order-1", 4)]
    store._connection.execute("DELETE FROM thread WHERE id = 'order-1'")
    assert places(world.verify())[0] == ("order-1", 1)
