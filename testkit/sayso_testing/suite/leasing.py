"""Leases and wake-ups, and requests that end without a decision."""

from __future__ import annotations

from typing import Any

import pytest

from sayso.engine.commands import Claim, Park, Start, Wake
from sayso.engine.renewing import Renewal
from sayso.errors import Cancelled, Conflict, InvalidDecision, NotAllowed, NotFound
from sayso.rows import CallStatus, Message, RunStatus
from sayso.stores.base import Due, Query, Viewer
from sayso.stores.nested_runs import close_due
from sayso.stores.row_checks import request_in
from sayso.types import Grant
from sayso_testing.world import LEASE, SECOND, World, content, seconds


class LeaseTests:
    """``Claim``, ``renew``, ``Finish``, ``ready`` and ``overdue``."""

    def test_due_run_is_claimed_once(self, world: World) -> None:
        world.decide(world.ask())
        run = world.claimed("w1")
        assert run == world.run()
        assert (run.owner, run.status) == ("w1", RunStatus.RUNNING)
        assert run.ready_at == world.clock() + LEASE
        with world.unchanged():
            assert world.claim("w2") is None
        assert world.body("claimed")["token"] == run.token

    def test_holder_may_claim_its_run_again(self, world: World) -> None:
        """If it were refused, the caller would not learn about a start in the same transaction."""
        call = world.decide(world.ask())
        first = world.claimed("w1")
        world.clock.advance(10)
        seen = (world.mac_of(call),)
        again, (started,) = world.transact(
            Claim(thread="t", run="r", owner="w1", lease=LEASE, force=True),
            Start(thread="t", run="r", calls=(call.id,), seen=seen, owner="w1", lease=LEASE),
        )
        assert (again.token, again.owner) == (first.token, "w1")
        assert (started.status, started.token) == (CallStatus.RUNNING, first.token)
        assert world.run().ready_at == world.clock() + LEASE
        assert world.events().count("claimed") == 1
        assert world.claim("w1") is not None, "its process is alive, so the call is not in doubt"
        assert world.call(call).status is CallStatus.RUNNING

    def test_idle_run_is_not_claimed(self, world: World) -> None:
        world.ask()
        assert world.claim() is None
        world.propose(run="r2", thread="t2")
        assert world.claim(run="r2", thread="t2") is None
        with pytest.raises(NotFound):
            world.claim(run="none")

    def test_forced_claim_takes_idle_but_not_leased_runs(self, world: World) -> None:
        world.ask()
        assert world.claim("w1") is None
        run = world.claimed("w1", force=True)
        assert run.owner == "w1"
        assert world.claim("w2", force=True) is None
        world.clock.advance(31)
        assert world.claim("w2", force=True) is not None
        world.cancel()
        assert world.claim("w2", force=True) is None

    def test_lost_owner_cannot_write_to_the_run(self, world: World) -> None:
        world.decide(world.ask(), "reject")
        lost = world.claimed("w1")
        world.clock.advance(31)
        holder = world.claimed("w2")
        with world.unchanged(), pytest.raises(Conflict, match="taken over"):
            world.propose(world.new(), says=("too late",), token=lost.token)
        world.propose(says=("in time",), token=holder.token)
        with pytest.raises(Conflict, match="has new messages"):
            world.propose(says=("an answer to nothing",), after=0)
        world.propose(says=("an answer",), after=1)
        assert [body for _, body in world.store.messages("t")] == ["in time", "an answer"]

    def test_finished_run_is_not_claimed(self, world: World) -> None:
        world.propose()
        world.finish()
        assert world.claim() is None
        world.decide(world.ask(run="r2", thread="t2"))
        world.cancel(run="r2", thread="t2")
        assert world.claim(run="r2", thread="t2") is None

    def test_lapsed_lease_is_taken_over_with_its_doubts(self, world: World) -> None:
        first = world.running(owner="w1")
        safe = world.start(world.ready(effect="idempotent"))[0]
        world.clock.advance(29.999_999)
        assert world.claim("w2") is None
        world.clock.advance(0.000_001)
        run = world.claimed("w2")
        assert run.token > first.token
        assert run.owner == "w2"
        assert world.call(first).status is CallStatus.IN_DOUBT
        assert world.call(safe).status is CallStatus.READY
        assert not world.renew(first.token)
        assert world.renew(run.token)

    def test_each_lease_has_a_new_token(self, world: World) -> None:
        tokens = []
        for owner in ("w1", "w2", "w1"):
            call = world.running(owner=owner)
            tokens.append(call.token)
            world.record(call)
        assert sorted(set(tokens)) == tokens

    def test_owner_keeps_its_token_during_a_lease(self, world: World) -> None:
        first, second = world.running(), world.running()
        assert first.token == second.token
        world.clock.advance(31)
        assert world.running().token > second.token

    def test_waking(self, world: World) -> None:
        """A run that can continue is due at once if it has no owner, else when its lease ends."""
        call = world.ask()
        assert world.run().ready_at is None
        world.transact(Wake(thread="t", run="r"))
        run = world.run()
        assert (run.wake, run.ready_at, run.owner) == (1, world.clock(), None)

        taken = world.claimed("w1")
        world.transact(Wake(thread="t", run="r"))
        assert content(world.run()) == content(taken._replace(wake=2))
        world.transact(Park(thread="t", run="r", token=taken.token, wake_seen=1))
        assert world.run().ready_at is not None
        assert world.call(call).status is CallStatus.ASKED

    def test_waking_a_finished_run_changes_nothing(self, world: World) -> None:
        world.propose()
        over = world.finish()
        world.transact(Wake(thread="t", run="r"))
        assert world.run() == over

    def test_renewing(self, world: World) -> None:
        call = world.running(lease=seconds(10))
        world.clock.advance(9)
        assert world.renew(call.token, lease=seconds(10))
        assert world.run().ready_at == world.clock() + seconds(10)
        assert not world.renew(call.token + 1)
        assert not world.renew(call.token - 1)
        world.record(call)
        with world.unchanged():
            assert not world.renew(call.token)
            assert not world.renew(1, run="none")

    def test_renewal_covers_many_runs(self, world: World) -> None:
        """One commit renews what is still held, and says of each run whether it is."""
        names = ("a", "b", "taken", "over")
        calls = {name: world.running(run=name, thread=name) for name in names}
        world.record(calls["over"])
        world.clock.advance(31)
        world.claimed("w2", run="taken", thread="taken")
        renewals = [Renewal(name, call.token, LEASE) for name, call in calls.items()]
        events = world.events()
        assert world.store.renew([*renewals, Renewal("none", 1, LEASE)], 30.0) == {
            **dict.fromkeys(("a", "b"), True),
            **dict.fromkeys(("taken", "over"), False),
        }
        assert world.events() == events
        assert {world.run(name).ready_at for name in ("a", "b")} == {world.clock() + LEASE}
        world.check()
        for name in ("a", "b"):
            assert world.claim("w2", run=name, thread=name) is None
            world.record(calls[name])
        world.check()

    def test_renewal_of_no_lease_does_nothing(self, world: World) -> None:
        assert world.store.renew([], 30.0) == {}

    def test_late_renewal_revives_unclaimed_lease(self, world: World) -> None:
        call = world.running()
        world.clock.advance(31)
        assert world.renew(call.token)
        assert world.sweep() == ()
        assert world.call(call).status is CallStatus.RUNNING

    # -- attempts that still run while their call is in doubt

    def test_running_attempt_cannot_run_again(self, world: World) -> None:
        """A worker thread is in its body, although its caller was cancelled."""
        call = world.doubt(world.running(), running=True)
        request = request_in(world.store, call)
        assert request.execution.attempt_running
        assert request.allowed == ("respond", "reject")
        with world.unchanged(), pytest.raises(InvalidDecision, match="still runs: wait until"):
            world.decide(call)
        world.clock.advance(30)
        request = request_in(world.store, call)
        assert not request.execution.attempt_running
        assert request.allowed == ("approve", "respond", "reject")
        assert world.decide(call).status is CallStatus.READY

    @pytest.mark.parametrize("decision", ["respond", "reject"])
    def test_running_attempt_can_be_settled(self, world: World, decision: str) -> None:
        call = world.doubt(world.running(), running=True)
        value: dict[str, Any] = {"value": 1} if decision == "respond" else {}
        assert world.decide(call, decision, **value).status is not CallStatus.IN_DOUBT

    def test_ended_attempt_can_run_again_at_once(self, world: World) -> None:
        call = world.fail(world.running(settles=True), "lost")
        assert call.status is CallStatus.IN_DOUBT
        assert not request_in(world.store, call).execution.attempt_running
        assert not world.renew_attempt(call)
        assert world.decide(call).status is CallStatus.READY

    def test_attempt_is_renewed_after_run_was_lost(self, world: World) -> None:
        """Its process was stalled, and another one has taken the run since."""
        call = world.running(settles=True)
        world.clock.advance(31)
        world.claimed("w2")
        doubted = world.call(call)
        assert not request_in(world.store, doubted).execution.attempt_running
        assert not world.renew(call.token)
        facts = world.events()
        assert world.renew_attempt(call)
        assert world.events() == facts
        renewed = world.call(call)
        until = world.clock() + LEASE
        assert doubted.doubt is not None
        assert renewed.doubt == doubted.doubt._replace(ask_at=until, running_until=until)
        assert (renewed.seq, renewed.status) == (doubted.seq, CallStatus.IN_DOUBT)
        assert request_in(world.store, renewed).execution.attempt_running
        with world.unchanged(), pytest.raises(InvalidDecision, match="still runs"):
            world.decide(call)
        with world.unchanged():
            assert world.settle(call, "did_not_run") == renewed, "its attempt may still do it"
        world.check()
        assert world.record(call, result="1").status is CallStatus.DONE
        world.check()

    def test_only_attempt_in_doubt_is_renewed(self, world: World) -> None:
        call = world.running()
        with world.unchanged():
            assert world.renew_attempt(call) is None
        world.doubt(call, running=True)
        other = call._replace(token=call.token + 1)
        with world.unchanged():
            assert world.renew_attempt(other) is False
        world.record(call)
        with world.unchanged():
            assert world.renew_attempt(call) is None

    def test_releasing_a_lease_notifies_listeners(self, world: World) -> None:
        call = world.running()
        heard: list[int] = []
        listener = world.store.subscribe("t", lambda: heard.append(1))
        try:
            assert world.renew(call.token)
            assert heard == []
            world.end_lease(call.token - 1)
            assert heard == []
            world.end_lease(call.token)
            assert heard
        finally:
            listener.cancel()
        assert world.events()[-1] == "lease_released"
        assert world.run().ready_at == world.clock()

    # -- wake-ups

    def test_decision_never_shortens_a_lease(self, world: World) -> None:
        asked = world.ask()
        world.running(owner="w1")
        held = world.run()
        world.decide(asked)
        run = world.run()
        assert (run.owner, run.token, run.ready_at) == ("w1", held.token, held.ready_at)
        assert run.wake == held.wake + 1
        assert world.store.ready(["agent"]) == []

    def test_released_run_with_a_decision_is_due(self, world: World) -> None:
        asked = world.ask()
        running = world.running(owner="w1")
        world.decide(asked)
        world.record(running)
        assert world.run().ready_at == world.clock()
        assert world.run().owner is None

    @pytest.mark.parametrize("how", ["propose", "finish"])
    def test_pause_after_a_wake_stays_due(self, world: World, how: str) -> None:
        first, second = world.ask(), world.ask()
        world.decide(world.ask(), "reject")
        run = world.claimed("w1")
        world.decide(first, "reject")
        if how == "propose":
            world.propose(world.new(), wake_seen=run.wake)
        else:
            world.finish(wake_seen=run.wake)
        after = world.run()
        assert (after.owner, after.ready_at) == (None, world.clock())
        assert world.call(second).status is CallStatus.ASKED
        again = world.claimed("w2")
        world.finish(wake_seen=again.wake)
        assert (world.run().status, world.run().ready_at) == (RunStatus.PAUSED, None)

    def test_suspended_call_does_not_make_the_run_due(self, world: World) -> None:
        world.suspend(world.running())
        run = world.run()
        world.transact(Park(thread="t", run="r", token=run.token))
        assert (world.run().status, world.run().ready_at) == (RunStatus.PAUSED, None)
        world.transact(Park(thread="t", run="r", token=run.token, wake_seen=run.wake - 1))
        assert world.run().ready_at == world.clock()
        with pytest.raises(Conflict):
            world.transact(Park(thread="t", run="r", token=run.token + 1))

    def test_late_result_keeps_a_foreign_lease(self, world: World) -> None:
        lost = world.running(owner="w1")
        world.clock.advance(31)
        run = world.claimed("w2")
        world.record(lost)
        after = world.run()
        assert (after.owner, after.token, after.ready_at) == ("w2", run.token, run.ready_at)
        assert after.wake == run.wake + 1

    def test_old_doubt_keeps_a_foreign_lease(self, world: World) -> None:
        lost = world.running(owner="w1")
        world.clock.advance(31)
        world.claim("w2")
        with world.unchanged():
            world.doubt(lost)

    def test_sweep_skips_live_leases(self, world: World) -> None:
        world.running()
        with world.unchanged():
            assert world.sweep() == ()

    def test_run_of_a_dead_worker_is_due_again(self, world: World) -> None:
        world.propose()
        world.decide(world.ask(), "reject")
        assert world.claim("w1") is not None
        world.clock.advance(31)
        assert world.store.overdue() == [Due("t", "r", None)]
        world.sweep()
        assert [run.id for run in world.store.ready(["agent"])] == ["r"]
        assert world.store.overdue() == []

    # -- finding work

    def test_ready_lists_due_runs_of_these_agents(self, world: World) -> None:
        for number, agent in enumerate(("a", "b", "a", "c")):
            new, run, thread = world.new(), f"r{number}", f"t{number}"
            (call,) = world.propose(new, agent=agent, run=run, thread=thread)
            world.clock.advance(1)
            world.decide(call)
        store = world.store
        assert [run.id for run in store.ready(["a", "b"], limit=9)] == ["r0", "r1", "r2"]
        assert [run.id for run in store.ready(["a"])] == ["r0"]
        assert [run.id for run in store.ready(["none"], limit=9)] == []
        assert list(store.ready([], limit=9)) == []
        world.claim(run="r0", thread="t0")
        assert [run.id for run in store.ready(["a"], limit=9)] == ["r2"]
        world.clock.advance(31)
        assert {run.id for run in store.ready(["a"], limit=9)} == {"r0", "r2"}

    def test_due_run_is_reserved_for_one_worker(self, world: World) -> None:
        reserve = world.store.reserve
        world.decide(world.ask())
        world.decide(world.ask(run="r2", thread="t2"))
        assert reserve((), 8, "w1") == reserve(("other",), 8, "w1") == []
        (first,) = reserve(("agent",), 1, "w1")
        assert reserve(("agent",), 1, "w1") == [first]
        (second,) = reserve(("agent",), 8, "w2")
        assert {first.id, second.id} == {"r", "r2"}
        assert reserve(("agent",), 8, "w3") == []
        ready = {run.id for run in world.store.ready(["agent"], 8)}
        assert ready == {"r", "r2"}  # it is a hint, and not a lease

    def test_reservation_ends_when_the_run_was_claimed(self, world: World) -> None:
        world.decide(world.ask())
        (run,) = world.store.reserve(("agent",), 8, "w1")
        claimed = world.claimed("w1")
        assert world.store.reserve(("agent",), 8, "w2") == []
        world.clock.advance(LEASE / 1_000_000)
        (again,) = world.store.reserve(("agent",), 8, "w2")
        assert (again.id, again.token) == (run.id, claimed.token)

    def test_skipped_runs_are_returned_and_not_reserved(self, world: World) -> None:
        world.decide(world.ask())
        world.decide(world.ask(run="r2", thread="t2"))
        for skip in (("r",), ("t",)):
            found = world.store.reserve(("agent",), 1, "w1", skip)
            assert {run.id for run in found} == {"r", "r2"}
        assert [run.id for run in world.store.reserve(("agent",), 8, "w2")] == ["r"]

    def test_busy_worker_keeps_run_reserved(self, world: World) -> None:
        world.decide(world.ask())
        (run,) = world.store.reserve(("agent",), 1, "w1")
        world.store.reserve(("agent",), 1, "w1", skip=(run.id,))
        assert world.store.reserve(("agent",), 8, "w2") == []

    def test_idle_run_is_due_when_woken(self, world: World) -> None:
        world.record(world.running())
        assert world.store.ready(["agent"]) == []
        world.decide(world.ask(), "reject")
        assert len(world.store.ready(["agent"])) == 1

    def test_overdue_lists_expired_requests_and_leases(self, world: World) -> None:
        first = world.ask(expires_in=20)
        second = world.ask(expires_in=10, run="r2", thread="t2")
        world.running(run="r3", thread="t3", lease=seconds(15))
        world.ask(run="r4", thread="t4")
        assert world.store.overdue() == []
        world.clock.advance(10)
        assert world.store.overdue() == [Due("t2", "r2", second.id)]
        world.clock.advance(10)
        due = world.store.overdue()
        assert set(due) == {
            Due("t2", "r2", second.id),
            Due("t", "r", first.id),
            Due("t3", "r3", None),
        }
        assert world.store.overdue(limit=1)[0] == Due("t2", "r2", second.id)
        for one in due:
            if one.call is None:
                world.sweep(run=one.run, thread=one.thread)
            else:
                world.expire(world.call(one.call))
        assert world.store.overdue() == []

    # -- ending

    @pytest.mark.parametrize("status", ["done", "failed"])
    def test_finish(self, world: World, status: str) -> None:
        world.record(world.running())
        run = world.finish(status, output='"all"', messages=(Message("r", "bye"),))
        assert run == world.run()
        assert (run.status, run.output) == (status, '"all"')
        assert (run.owner, run.ready_at) == (None, None)
        assert world.store.live_run("t") is None
        assert world.store.messages("t") == [(1, "bye")]
        with world.unchanged():
            assert world.finish("failed") == run

    @pytest.mark.parametrize("state", ["asked", "ready", "running", "in_doubt"])
    def test_run_with_open_calls_does_not_finish(self, world: World, state: str) -> None:
        world.in_state(state)
        run = world.finish()
        paused = state in ("asked", "in_doubt")
        assert run.status is (RunStatus.PAUSED if paused else RunStatus.RUNNING)
        assert world.store.live_run("t") is not None

    def test_only_the_holder_finishes(self, world: World) -> None:
        world.propose()
        world.decide(world.ask(), "reject")
        lost = world.claimed("w1")
        world.clock.advance(31)
        holder = world.claimed("w2")
        with world.unchanged(), pytest.raises(Conflict, match="taken over"):
            world.finish(token=lost.token)
        assert world.finish(token=holder.token).status is RunStatus.DONE

    def test_finishing_an_unknown_run_is_not_found(self, world: World) -> None:
        with pytest.raises(NotFound):
            world.finish(run="none")


#: Terms of a request that more people may decide after 30 seconds.
ESCALATES: dict[str, Any] = {
    "reviewers": ("group:finance",),
    "escalate_after": 30,
    "escalate_to": ("group:leads",),
}


class ClosingTests:
    """``Expire``, ``Escalate``, ``Remind``, ``Cancel`` and ``Recover``."""

    # -- expiry

    def test_request_expires_exactly_at_its_end(self, world: World) -> None:
        call = world.ask(expires_in=10)
        world.clock.advance(9.999_999)
        with world.unchanged():
            assert world.expire(call) == call
        world.clock.advance(0.000_001)
        expired = world.expire(call)
        assert expired.status is CallStatus.EXPIRED
        assert world.run().ready_at == world.clock()
        with world.unchanged():
            assert world.expire(call) == expired

    def test_request_without_an_end_never_expires(self, world: World) -> None:
        call = world.ask()
        world.clock.advance(10**9)
        assert world.expire(call).status is CallStatus.ASKED

    @pytest.mark.parametrize("type", ["approve", "reject"])
    def test_decided_request_does_not_expire(self, world: World, type: str) -> None:
        call = world.ask(expires_in=10)
        decided = world.decide(call, type)
        world.clock.advance(10)
        assert world.expire(call) == decided

    def test_expiry_may_cancel_the_run(self, world: World) -> None:
        call = world.ask(expires_in=10, on_expiry="cancel")
        other, ready = world.ask(), world.ready()
        running = world.running()
        world.clock.advance(10)
        assert world.expire(call).status is CallStatus.EXPIRED
        assert world.call(other).status is CallStatus.CANCELLED
        assert world.call(ready).status is CallStatus.CANCELLED
        assert world.run().status is RunStatus.RUNNING
        assert world.record(running).status is CallStatus.DONE
        assert world.run().status is RunStatus.CANCELLED

    def test_expiring_an_unknown_call_is_not_found(self, world: World) -> None:
        call = world.ask()
        with pytest.raises(NotFound):
            world.expire(call._replace(id="none"))

    # -- reminders and escalation

    def test_escalation_adds_people_at_its_time(self, world: World) -> None:
        world.person("ana", "finance")
        ben = world.reviewer("ben", "leads")
        call = world.ask(**ESCALATES)
        assert world.body("asked")["escalates"] == world.clock() + 30 * SECOND
        world.clock.advance(29.999_999)
        with world.unchanged():
            assert world.escalate(call) == call
            assert world.store.overdue() == []
            with pytest.raises(NotAllowed, match="it is for group:finance"):
                world.decide(call, by=ben)
        assert world.store.next_due() == world.clock() + 1
        world.clock.advance(0.000_001)
        assert [due.call for due in world.store.overdue()] == [call.id]
        escalated = world.escalate(call)
        assert (escalated.digest, escalated.rev) == (call.digest, call.rev)
        assert escalated.reviewers == ("group:finance", "group:leads")
        assert world.body("escalated")["to"] == ["group:leads"]
        with world.unchanged():
            assert world.escalate(call) == escalated
        assert world.store.overdue() == []
        decided = world.decide(call, by=ben)
        assert decided.status is CallStatus.READY
        assert decided.decision is not None
        assert decided.decision.eligible == ("ana", "ben")

    @pytest.mark.parametrize("state", ["decided", "expired", "in_doubt"])
    def test_closed_request_does_not_escalate(self, world: World, state: str) -> None:
        call = world.ask(**ESCALATES, expires_in=40)
        if state != "expired":
            call = world.decide(call, by=world.reviewer("ana", "finance"))
        if state == "in_doubt":
            call = world.doubt(world.start(call)[0])
        world.clock.advance(40)
        with world.unchanged():
            assert world.escalate(call) == call
            assert world.remind(call) == call

    def test_vote_before_escalation_counts_after_it(self, world: World) -> None:
        for name, group in (("ana", "finance"), ("ben", "leads")):
            world.person(name, group)
        call = world.ask(**ESCALATES, quorum=2)
        world.decide(call, by=world.reviewer("ana", "finance"))
        world.clock.advance(30)
        assert len(world.escalate(call).votes) == 1
        decided = world.decide(call, by=world.reviewer("ben", "leads"))
        assert decided.status is CallStatus.READY
        assert [vote.eligible for vote in decided.votes] == [("ana",), ("ana", "ben")]

    def test_people_are_reminded_once_per_stage(self, world: World) -> None:
        call = world.ask(**ESCALATES, remind_after=10)
        for passed in (9, 1, 10, 10, 9, 1, 30):
            world.clock.advance(passed)
            for due in world.store.overdue():
                assert due.call == call.id
                close_due(world.store, due)
        steps = [event for event in world.events(call=call) if event != "asked"]
        assert steps == ["reminded", "escalated", "reminded"]
        assert world.store.next_due(world.clock()) is None

    def test_escalation_after_a_pause_reminds_once(self, world: World) -> None:
        call = world.ask(**ESCALATES, remind_after=10)
        world.clock.advance(3600)
        for due in world.store.overdue():
            close_due(world.store, due)
        assert world.events(call=call) == ["asked", "escalated"]

    def test_request_asked_again_stays_escalated(self, world: World) -> None:
        call = world.ask(**ESCALATES, valid_for=60, remind_after=10)
        world.clock.advance(30)
        world.escalate(call)
        decided = world.decide(call, by=world.reviewer("ana", "finance"))
        world.clock.advance(61)
        (again,) = world.start(decided)
        assert (again.status, again.escalated, again.escalates_at) == (CallStatus.ASKED, True, None)
        assert again.reminds_at == world.clock() + 10 * SECOND

    def test_escalated_person_gives_no_grant(self, world: World) -> None:
        ben = world.reviewer("ben", "leads")
        call = world.ask(**ESCALATES)
        world.clock.advance(30)
        world.escalate(call)
        grant = Grant(
            id="grt_1",
            agent=call.agent,
            tool=call.tool,
            tool_digest=call.tool_digest,
            scope="{}",
            by="ben",
            created=world.clock(),
        )
        with world.unchanged(), pytest.raises(NotAllowed, match="before they escalate to you"):
            world.decide(call, by=ben, grant=grant)

    def test_escalated_requests_are_counted_for_new_people(self, world: World) -> None:
        call = world.ask(**ESCALATES)
        viewer = Viewer(names=frozenset({"ben", "group:leads"}))
        query = Query(status="pending")
        assert world.store.groups(query, viewer) == []
        world.clock.advance(30)
        world.escalate(call)
        assert [group.count for group in world.store.groups(query, viewer)] == [1]
        assert world.store.miscounted() == 0

    # -- cancellation

    @pytest.mark.parametrize("superseded", [False, True])
    @pytest.mark.parametrize("state", ["asked", "ready"])
    def test_cancelling_a_request(self, world: World, state: str, superseded: bool) -> None:
        call = world.ask()
        if state == "ready":
            world.decide(call)
        world.ask()
        run = world.cancel(call, superseded=superseded)
        wanted = CallStatus.SUPERSEDED if superseded else CallStatus.CANCELLED
        assert world.call(call).status is wanted
        assert run.ready_at == world.clock()
        assert run.status in (RunStatus.PAUSED, RunStatus.RUNNING)
        assert world.body(str(wanted))["reason"] == "changed my mind"

    @pytest.mark.parametrize("state", ["running", "in_doubt", "done", "rejected"])
    def test_started_and_ended_calls_are_not_cancelled(self, world: World, state: str) -> None:
        call = world.in_state(state)
        with world.unchanged():
            world.cancel(call)

    @pytest.mark.parametrize("superseded", [False, True])
    def test_cancelling_a_run_cancels_its_open_calls(self, world: World, superseded: bool) -> None:
        calls = [world.ask(), world.decide(world.ask()), world.ready()]
        run = world.cancel(superseded=superseded)
        assert run == world.run()
        assert (run.status, run.stop) == (RunStatus.CANCELLED, "changed my mind")
        wanted = "superseded" if superseded else "cancelled"
        assert {world.call(call).status for call in calls} == {wanted}
        assert world.store.live_run("t") is None
        assert world.ask(run="r2").status is CallStatus.ASKED

    def test_running_call_finishes_and_is_recorded(self, world: World) -> None:
        running, asked = world.running(), world.ask()
        run = world.cancel()
        assert (run.status, run.stop) == (RunStatus.RUNNING, "changed my mind")
        assert world.call(asked).status is CallStatus.CANCELLED
        assert world.renew(running.token)
        assert world.record(running).status is CallStatus.DONE
        assert world.run().status is RunStatus.CANCELLED
        assert world.events("t")[-1] == "run_cancelled"

    def test_suspended_call_of_a_cancelled_run_is_cancelled(self, world: World) -> None:
        running = world.running()
        world.cancel()
        assert world.suspend(running).status is CallStatus.CANCELLED
        assert world.run().status is RunStatus.CANCELLED
        assert world.store.live_run("t") is None

    def test_cancelled_run_does_not_retry_idempotent_calls(self, world: World) -> None:
        running = world.running(effect="idempotent")
        world.cancel()
        doubted = world.doubt(running)
        assert (doubted.status, doubted.asked) == (CallStatus.IN_DOUBT, True)
        assert world.run().status is RunStatus.CANCELLED
        assert world.decide(doubted, "reject").status is CallStatus.FAILED

    def test_doubt_of_cancelled_run_closes(self, world: World) -> None:
        calls = [world.doubted(), world.doubted(), world.doubted()]
        assert world.cancel().status is RunStatus.CANCELLED
        with world.unchanged(), pytest.raises(Cancelled, match="changed my mind"):
            world.decide(calls[0])
        assert world.decide(calls[0], "respond", value=1).status is CallStatus.DONE
        assert world.decide(calls[1], "reject").status is CallStatus.FAILED
        assert world.record(calls[2]).status is CallStatus.DONE
        assert world.store.ready(["agent"]) == []

    def test_cancelling_a_finished_run_changes_nothing(self, world: World) -> None:
        world.propose()
        world.finish()
        with world.unchanged():
            assert world.cancel().status is RunStatus.DONE

    def test_cancelling_an_unknown_run_is_not_found(self, world: World) -> None:
        with pytest.raises(NotFound):
            world.cancel(run="none")
        call = world.ask()
        with pytest.raises(NotFound):
            world.cancel(call._replace(id="none"))

    # -- after a restore

    def test_recovery_doubts_calls_that_may_have_run(self, world: World) -> None:
        asked, approved = world.ask(), world.decide(world.ask())
        safe = world.ready(effect="idempotent")
        running = world.running(owner="w1")
        done = world.record(world.start(world.ready())[0], hold=True)
        assert [run.id for run in world.store.open_runs()] == ["r"]
        doubted = world.recover()
        assert {call.id for call in doubted} == {approved.id, safe.id, running.id}
        for call in doubted:
            assert call == world.call(call)
            assert (call.status, call.asked) == (CallStatus.IN_DOUBT, True)
        assert world.call(asked) == asked
        assert world.call(done) == done
        run = world.run()
        assert (run.status, run.owner, run.ready_at) == (RunStatus.PAUSED, None, None)
        assert list(world.store.open_runs()) == []
        with world.unchanged():
            assert world.recover() == ()

    def test_recovered_call_can_run_again(self, world: World) -> None:
        for effect in ("once", "idempotent"):
            call = world.decide(world.ask(effect=effect))
            world.recover()
            again = world.decide(call)
            assert again.digest == call.digest
            assert again.terms == call.terms
            world.record(world.start(again)[0])

    def test_open_runs_have_calls_to_run(self, world: World) -> None:
        world.ask(run="r1", thread="t1")
        world.ready(run="r2", thread="t2")
        world.running(run="r3", thread="t3")
        world.doubted(run="r4", thread="t4")
        world.record(world.running(run="r5", thread="t5"))
        assert {run.id for run in world.store.open_runs()} == {"r2", "r3"}
