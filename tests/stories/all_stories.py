"""The stories. Together they cross every commit boundary of a store."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, ClassVar

from stories import RUN, Story, World, append, in_doubt, lines

import sayso
from sayso import DidNotRun, Option, Paused, Policy, Question, Ran, Rule
from sayso.channels.kit.planner import Target, new_delivery
from sayso.engine.commands import (
    AddGrant,
    Claim,
    EndLease,
    GiveGrant,
    NotePrompt,
    Park,
    Recover,
    SignAgain,
    UseCredential,
    Wake,
)
from sayso.gate.scope import RunScope
from sayso.hooks.dialects import ToolUse
from sayso.hooks.local import plan_of
from sayso.inbox import change_person, create_token, remove_person, revoke_token
from sayso.inbox.decisions import new_grant
from sayso.inbox.directory import new_link, sign_in
from sayso.inbox.key_rotation import sign_again
from sayso.inbox.people import authenticate_session
from sayso.rows import CallStatus
from sayso.stores.nested_runs import close_overdue
from sayso.types import Grant, Request, Reviewer


class Free(Story):
    """A call that needs no approval."""

    options: ClassVar[dict[str, Any]] = {"needs_approval": False}


class Alone(Story):
    """A call without a named run: the pause says how to resume it."""

    def agent(self, world: World) -> Any:
        pay = self.guarded(world)
        name = world.folder / "run"
        if name.exists():
            with world.gate.run(name.read_text()):
                return pay("bo")
        try:
            return pay("bo")
        except Paused as paused:
            name.write_text(paused.run)
            raise


class FreeAlone(Story):
    """No approval and no named run: calling again after a crash makes another call."""

    options: ClassVar[dict[str, Any]] = {"needs_approval": False}

    def agent(self, world: World) -> Any:
        world.inbox.pending_sync()  # who looks at the inbox sees what the dead left in doubt
        return self.guarded(world)("bo")


class Asynchronous(Story):
    """The approved call, as coroutines."""

    def agent(self, world: World) -> Any:
        async def pay(to: str, amount: int = 3) -> str:
            await asyncio.sleep(0)
            return self.effect(world, to, amount)

        guarded = world.gate.guard(**self.options)(pay)

        async def body() -> Any:
            async with world.gate.run(RUN):
                return await guarded("bo")

        return asyncio.run(body())


class AsyncFree(Asynchronous):
    options: ClassVar[dict[str, Any]] = {"needs_approval": False}


class Edited(Story):
    def decide(self, world: World, request: Request) -> None:
        world.decide(request, request.edit({"amount": 2}))


class Rejected(Story):
    value = "Rejected"

    def decide(self, world: World, request: Request) -> None:
        world.decide(request, request.reject("too much"))


class Lifted(Rejected):
    """The user writes something new after a rejection, and then a person lifts the refusal."""

    value = "lifted"
    only = ("note_prompt", "lift_refusal")

    def agent(self, world: World) -> Any:
        with world.gate.run(RUN):
            with suppress(sayso.Rejected):
                self.guarded(world)("bo")
            if not world.has("prompted"):
                world.store.transact(NotePrompt(thread=RUN, run=RUN))
        for refusal in world.inbox.refusals_sync():
            world.inbox.lift_refusal_sync(refusal, by="ana")
        return "lifted" if world.has("lifted") else "not lifted"


class Asked(Story):
    """A question with options, which has no effect of its own."""

    value = "blue"

    def agent(self, world: World) -> Any:
        with world.gate.run(RUN):
            return world.gate.ask_sync(Question("Which?", (Option("red"), Option("blue"))))

    def decide(self, world: World, request: Request) -> None:
        world.decide(request, request.respond("blue"))


class Text(Story):
    value = True

    def agent(self, world: World) -> Any:
        with world.gate.run(RUN):
            return world.gate.confirm_sync("Publish the notes?", {"pages": 3})


class TextAlone(Alone):
    value = True

    def guarded(self, world: World, **more: Any) -> Any:
        return lambda to: world.gate.confirm_sync(f"Publish the notes of {to}?")


class Once(Story):
    """A ``gate.once`` step, which needs no approval."""

    value = "step"

    def agent(self, world: World) -> Any:
        def step() -> str:
            world.cross("effect", "before")
            append(world.folder / "steps", "step")
            world.cross("effect", "after")
            return "step"

        with world.gate.run(RUN):
            return world.gate.once_sync("step", step)


class Nested(Story):
    """A guarded function that runs a step once and then asks: it restarts from the top."""

    value = "paid from giro"

    def effect(self, world: World, to: str, amount: int) -> str:
        account = world.gate.ask_sync("From which account?")
        world.effect(f"{to} {amount}")
        return f"paid from {account}"

    def decide(self, world: World, request: Request) -> None:
        answer = request.respond("giro") if request.question else request.approve()
        world.decide(request, answer)


class Idempotent(Story):
    options: ClassVar[dict[str, Any]] = {"needs_approval": True, "effect": "idempotent"}


class Quorum(Story):
    options: ClassVar[dict[str, Any]] = {"needs_approval": True, "quorum": 2}

    def person(self, world: World, doubt: str) -> None:
        for request in world.inbox.pending_sync().items:
            again = request.kind == "in_doubt"
            decision = in_doubt(request, doubt) if again else request.approve()
            votes = {vote.by for vote in request.votes}
            for name in ("ana", "bea") if decision.type == "approve" else ("cy",):
                if name in votes:
                    continue
                world.decide(request, decision, by=name)


class Granted(Story):
    """The first call is approved with a grant, which covers the second one."""

    value = ("paid", "paid")

    def agent(self, world: World) -> Any:
        pay = self.guarded(world)
        with world.gate.run(RUN):
            return [pay("bo"), pay("bo", amount=4)]

    def decide(self, world: World, request: Request) -> None:
        world.decide(request, request.approve(), grant={"scope": "any", "uses": 5})


class Expiring(Story):
    value = "Expired"
    on_expiry = "reject"

    def agent(self, world: World) -> Any:
        with world.gate.run(RUN):
            return world.gate.ask_sync("Anybody?", expires_in=60, on_expiry=self.on_expiry)

    def decide(self, world: World, request: Request) -> None:
        world.later += 120


class ExpiringRun(Expiring):
    on_expiry = "cancel"


class Escalating(Story):
    """People are reminded of a request, and then someone else may decide it too."""

    only = ("remind", "escalate")
    gate: ClassVar[dict[str, Any]] = {
        "policy": Policy(
            [Rule(reviewers="ben", remind_after=30, escalate_after=60, escalate_to="ana")]
        )
    }

    def decide(self, world: World, request: Request) -> None:
        if request.escalated:
            super().decide(world, request)
        else:
            world.later += 35
            list(close_overdue(world.store, limit=10, most=1))


class Reviewed(Story):
    """A model allows the call; if its process dies before, people decide."""

    only = ("review",)
    gate: ClassVar[dict[str, Any]] = {
        "policy": Policy([Rule(reviewer="model:yes", reviewer_allows=True, risk="low")]),
        "models": {"yes": lambda request: "allow"},
    }


class SignedAgain(Story):
    """An approved call, and every row, is signed again before the call starts."""

    only = ("sign_again", "rekey")

    def decide(self, world: World, request: Request) -> None:
        super().decide(world, request)
        place = {"thread": request.thread, "run": request.run, "call": request.id}
        world.store.transact(SignAgain(**place, by="ops"))
        sign_again(world.store, by=Reviewer("ops"))


class Trusted(Story):
    """A person lets a run do what it asks for, and ends that before it asks again."""

    only = ("open_window",)

    def decide(self, world: World, request: Request) -> None:
        link = new_link(world.store, "ana", role="reviewer")
        by = authenticate_session(world.store, sign_in(world.store, link))
        grant = world.inbox.trust_run_sync(request.run, by=by)
        world.inbox.revoke_sync(grant.id, by="ana")
        super().decide(world, request)


class Suggested(Story):
    """After the approval, its author gives a grant for calls like it, and ends that again."""

    only = ("give_grant",)
    options: ClassVar[dict[str, Any]] = {"needs_approval": True, "risk": "low"}

    def decide(self, world: World, request: Request) -> None:
        super().decide(world, request)
        call = world.store.call(request.id)
        assert call is not None
        grant = new_grant(call, {"scope": "exact"}, Reviewer("ana"), world.store.now())
        place = {"thread": call.thread, "run": call.run, "call": call.id}
        world.store.transact(GiveGrant(**place, grant=grant, by=Reviewer("ana")))
        world.inbox.revoke_sync(grant.id, by="ana")


class Undone(Story):
    """The first approval is undone, and the second one takes effect without its author."""

    def person(self, world: World, doubt: str) -> None:
        held = [request for request in world.approved() if not request.settled]
        if not held:
            super().person(world, doubt)
        elif world.has("undone"):
            world.later += 10
        else:
            world.inbox.undo_sync(held[0].id, by="ana")

    def decide(self, world: World, request: Request) -> None:
        world.inbox.decide_sync(request.id, request.approve(), by="ana", undo_seconds=9)


class CancelledRequest(Story):
    value = "Cancelled"

    def decide(self, world: World, request: Request) -> None:
        world.inbox.cancel_sync(request.id, by="ana")


class CancelledRun(Story):
    value = "Cancelled"

    def decide(self, world: World, request: Request) -> None:
        world.gate.cancel_sync(RUN)


class Superseded(Story):
    value = "Superseded"

    def decide(self, world: World, request: Request) -> None:
        world.gate.supersede_sync(RUN)


class Changed(Story):
    """The tool changes after the approval, so that the call needs approval again."""

    def agent(self, world: World) -> Any:
        version = "2" if world.has("decided") else "1"
        with world.gate.run(RUN):
            return self.guarded(world, version=version)("bo")


class Outlived(Story):
    """The first approval expires before the start."""

    options: ClassVar[dict[str, Any]] = {"needs_approval": True, "valid_for": 60}

    def decide(self, world: World, request: Request) -> None:
        again = world.has("decided")
        super().decide(world, request)
        if not again:
            world.later += 120


class Long(Story):
    """A call that takes longer than a third of its lease, so that it is renewed."""

    only = ("renew",)
    gate: ClassVar[dict[str, Any]] = {"lease": 0.9}

    def effect(self, world: World, to: str, amount: int) -> str:
        world.effect(f"{to} {amount}")
        assert world.renewed.wait(20)
        return "paid"


class Parked(Story):
    """A process claims the paused run, finds nothing to do, and releases it."""

    only = ("park",)

    def agent(self, world: World) -> Any:
        try:
            return super().agent(world)
        except Paused:
            claim = Claim(thread=RUN, run=RUN, owner="looker", lease=30_000_000, force=True)
            (run,) = world.store.transact(claim)
            if run is not None:
                world.store.transact(Park(thread=RUN, run=RUN, token=run.token))
            raise


class GivenBack(Story):
    """A process claims the paused run, fails, and ends its lease early."""

    only = ("end_lease",)

    def agent(self, world: World) -> Any:
        try:
            return super().agent(world)
        except Paused:
            claim = Claim(thread=RUN, run=RUN, owner="looker", lease=30_000_000, force=True)
            (run,) = world.store.transact(claim)
            if run is not None:
                world.store.transact(EndLease(thread=RUN, run=RUN, token=run.token))
            raise


class Interrupted(Story):
    """Ctrl-C after the start: the process itself marks the call as in doubt."""

    interrupts = 1

    def effect(self, world: World, to: str, amount: int) -> str:
        world.effect(f"{to} {amount}")
        if not world.has("in_doubt"):
            raise KeyboardInterrupt
        return "paid"


class Settled(Interrupted):
    """Ctrl-C after the start, and ``settle=`` finds out whether it ran, from the effects."""

    def guarded(self, world: World, **more: Any) -> Any:
        def settle(key: str) -> Ran | DidNotRun:
            happened = any(call == key for call, _, _ in lines(world.folder / "effects"))
            return Ran("paid") if happened else DidNotRun("no payment")

        return super().guarded(world, settle=settle, **more)

    def person(self, world: World, doubt: str) -> None:
        for request in world.inbox.pending_sync().items:
            if request.kind == "in_doubt" and request.evidence is None:
                world.later += 60  # the lease of who was interrupted is over then
            elif request.kind == "in_doubt":
                assert request.evidence.answer == "did_not_run"
                world.decide(request, in_doubt(request, doubt))
            else:
                self.decide(world, request)


class Woken(Story):
    """The run is woken by something else: it is due, and its call still waits."""

    only = ("wake",)

    def agent(self, world: World) -> Any:
        live = world.store.live_run(RUN)
        if live is not None and not world.has("woken"):
            world.store.transact(Wake(thread=live.thread, run=live.id))
        return super().agent(world)


class Claimed(Story):
    """A worker claims the run before it resumes it."""

    def agent(self, world: World) -> Any:
        for run in world.store.ready(["bot"]):
            claim = Claim(
                thread=run.thread, run=run.id, owner=world.gate.driver.owner, lease=30_000_000
            )
            world.store.transact(claim)
        return super().agent(world)


class Recovered(Story):
    """Everything that was ready is in doubt after a restore."""

    interrupts = 1

    def agent(self, world: World) -> Any:
        if world.approved() and not world.has("in_doubt"):
            for run in world.store.open_runs():
                world.store.transact(Recover(thread=run.thread, run=run.id, by="ops"))
        return super().agent(world)


class RecoveredIdempotent(Recovered):
    options: ClassVar[dict[str, Any]] = {"needs_approval": True, "effect": "idempotent"}


class Standing(Story):
    """What belongs to no thread: a token, a grant, their revocation, a policy, a seal."""

    value = "all there"

    def agent(self, world: World) -> Any:
        store = world.store
        if not store.credentials():
            create_token(store, "ana", by="ops")
        if not store.grants(live_only=False):
            store.transact(AddGrant(grant=_grant()))
        (token,), (grant,) = store.credentials(), store.grants(live_only=False)
        if token.revoked is None:
            store.transact(UseCredential(hash=token.hash))
            revoke_token(store, token.id, by="ops")
        if grant.revoked is None:
            world.inbox.revoke_sync(grant.id, by="ana")
        person = store.person("ana")
        assert person is not None
        if person.active:
            change_person(store, "ana", by="ops", add_groups=["finance"])
            remove_person(store, "ana", by="ops")
        message = new_delivery("telegram", Target("7", "ana"), "", "", "digest", store.now())
        if store.delivery(message.id) is None:
            store.put_deliveries([message])
        store.seal()
        return "all there"


class Noted(Story):
    """A policy file is read, and that is recorded."""

    value = "noted"

    def agent(self, world: World) -> Any:
        from sayso import Gate

        path = world.folder / "policy.toml"
        path.write_text('[[rule]]\ntool = "*"\nverdict = "ask"\n')
        Gate(world.store, policy=path)
        return "noted"


class Pruned(Free):
    """An old run is pruned, and its record stays complete."""

    value = 1
    only = ("prune", "seal")

    def agent(self, world: World) -> Any:
        if not world.has("pruned"):
            super().agent(world)
            world.store.prune(world.clock() + 1, "ops")
            world.store.seal()
        return [event.type for _, event in world.store.events()].count("pruned")


class Released(Story):
    """A coding agent asks through its hook, has to ask again, and reports its result."""

    value = "listed"

    def agent(self, world: World) -> Any:
        if world.has("reported"):
            return "listed"
        gate = world.gate
        use = ToolUse("claude", "PreToolUse", "ask", RUN, "/", "Bash", {"command": "ls"}, "toolu_1")
        for _ in range(3):
            entry = RunScope(gate.driver, RUN, "")
            call = asyncio.run(gate.driver.release(entry, plan_of(gate, use, 0.0)))
            if call.status is CallStatus.RELEASED:
                break
            self.person(world, "approve")
        reported = asyncio.run(gate.backend.report(RUN, use.caller, True, "listed"))
        return json.loads(reported.result)


def _grant() -> Grant:
    return Grant(
        id="grt_1", agent="bot", tool="pay", tool_digest="0" * 64, scope="{}", by="ana", created=0
    )


STORIES: dict[str, Story] = {
    "approved": Story(),
    "approved, async": Asynchronous(),
    "approved, no run": Alone(),
    "cancelled": CancelledRequest(),
    "changed": Changed(),
    "claimed": Claimed(),
    "edited": Edited(),
    "expired": Expiring(),
    "expired, run": ExpiringRun(),
    "free": Free(),
    "free, async": AsyncFree(),
    "free, no run": FreeAlone(),
    "granted": Granted(),
    "idempotent": Idempotent(),
    "interrupted": Interrupted(),
    "lifted": Lifted(),
    "long": Long(),
    "nested": Nested(),
    "noted": Noted(),
    "once": Once(),
    "outlived": Outlived(),
    "given back": GivenBack(),
    "parked": Parked(),
    "pruned": Pruned(),
    "question": Asked(),
    "quorum": Quorum(),
    "recovered": Recovered(),
    "recovered, idempotent": RecoveredIdempotent(),
    "rejected": Rejected(),
    "released": Released(),
    "run cancelled": CancelledRun(),
    "settled": Settled(),
    "suggested": Suggested(),
    "standing": Standing(),
    "superseded": Superseded(),
    "escalated": Escalating(),
    "reviewed": Reviewed(),
    "signed again": SignedAgain(),
    "trusted": Trusted(),
    "text": Text(),
    "undone": Undone(),
    "text, no run": TextAlone(),
    "woken": Woken(),
}
