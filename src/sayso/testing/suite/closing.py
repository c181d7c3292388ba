"""Requests that end without a decision: expiry, cancellation, newer input, a restore."""

from __future__ import annotations

import pytest

from sayso.errors import Cancelled, NotFound
from sayso.rows import CallStatus, RunStatus
from sayso.testing.world import World


class Closing:
    """``Expire``, ``Cancel`` and ``Recover``."""

    # -- expiry

    def test_a_request_expires_when_its_time_is_over_and_not_before(self, world: World) -> None:
        call = world.ask(expires_in=10)
        world.clock.advance(9.999_999)
        before = world.everything()
        assert world.expire(call) == call
        assert world.everything() == before
        world.clock.advance(0.000_001)
        expired = world.expire(call)
        assert expired.status is CallStatus.EXPIRED
        assert world.run().ready_at == world.clock()
        after = world.everything()
        assert world.expire(call) == expired
        assert world.everything() == after

    def test_a_request_without_an_end_never_expires(self, world: World) -> None:
        call = world.ask()
        world.clock.advance(10**9)
        assert world.expire(call).status is CallStatus.ASKED

    @pytest.mark.parametrize("type", ["approve", "reject"])
    def test_what_was_decided_does_not_expire(self, world: World, type: str) -> None:
        call = world.ask(expires_in=10)
        decided = world.decide(call, type)
        world.clock.advance(10)
        assert world.expire(call) == decided

    def test_a_missed_end_may_call_off_the_run(self, world: World) -> None:
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

    def test_expiring_nothing(self, world: World) -> None:
        call = world.ask()
        with pytest.raises(NotFound):
            world.expire(call._replace(id="none"))

    # -- cancellation

    @pytest.mark.parametrize("superseded", [False, True])
    @pytest.mark.parametrize("state", ["asked", "ready"])
    def test_a_request_is_called_off(self, world: World, state: str, superseded: bool) -> None:
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
    def test_what_has_started_or_ended_is_not_called_off(self, world: World, state: str) -> None:
        call = world.in_state(state)
        before = world.everything()
        world.cancel(call)
        assert world.everything() == before

    @pytest.mark.parametrize("superseded", [False, True])
    def test_a_run_is_called_off_with_all_that_waits(self, world: World, superseded: bool) -> None:
        calls = [world.ask(), world.decide(world.ask()), world.ready()]
        run = world.cancel(superseded=superseded)
        assert run == world.run()
        assert (run.status, run.stop) == (RunStatus.CANCELLED, "changed my mind")
        wanted = "superseded" if superseded else "cancelled"
        assert {world.call(call).status for call in calls} == {wanted}
        assert world.store.live_run("t") is None
        assert world.ask(run="r2").status is CallStatus.ASKED

    def test_a_running_call_finishes_and_is_recorded(self, world: World) -> None:
        running, asked = world.running(), world.ask()
        run = world.cancel()
        assert (run.status, run.stop) == (RunStatus.RUNNING, "changed my mind")
        assert world.call(asked).status is CallStatus.CANCELLED
        assert world.renew(running.token)
        assert world.record(running).status is CallStatus.DONE
        assert world.run().status is RunStatus.CANCELLED
        assert world.events("t")[-1] == "run_cancelled"

    def test_a_running_call_that_pauses_goes_no_further(self, world: World) -> None:
        running = world.running()
        world.cancel()
        assert world.suspend(running).status is CallStatus.CANCELLED
        assert world.run().status is RunStatus.CANCELLED
        assert world.store.live_run("t") is None

    def test_an_idempotent_call_is_not_run_again_for_a_stopped_run(self, world: World) -> None:
        running = world.running(effect="idempotent")
        world.cancel()
        doubted = world.doubt(running)
        assert (doubted.status, doubted.asked) == (CallStatus.IN_DOUBT, True)
        assert world.run().status is RunStatus.CANCELLED
        assert world.decide(doubted, "reject").status is CallStatus.FAILED

    def test_a_doubt_of_a_stopped_run_is_settled_but_not_run_again(self, world: World) -> None:
        calls = [world.doubted(), world.doubted(), world.doubted()]
        assert world.cancel().status is RunStatus.CANCELLED
        before = world.everything()
        with pytest.raises(Cancelled, match="changed my mind"):
            world.decide(calls[0])
        assert world.everything() == before
        assert world.decide(calls[0], "respond", value=1).status is CallStatus.DONE
        assert world.decide(calls[1], "reject").status is CallStatus.FAILED
        assert world.record(calls[2]).status is CallStatus.DONE
        assert world.store.ready(["agent"]) == []

    def test_cancelling_what_is_over(self, world: World) -> None:
        world.propose()
        world.finish()
        before = world.everything()
        assert world.cancel().status is RunStatus.DONE
        assert world.everything() == before

    def test_cancelling_nothing(self, world: World) -> None:
        with pytest.raises(NotFound):
            world.cancel(run="none")
        call = world.ask()
        with pytest.raises(NotFound):
            world.cancel(call._replace(id="none"))

    # -- after a restore

    def test_recovering_puts_in_doubt_what_may_have_run(self, world: World) -> None:
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
        before = world.everything()
        assert world.recover() == ()
        assert world.everything() == before

    def test_what_was_recovered_can_be_run_again(self, world: World) -> None:
        for effect in ("once", "idempotent"):
            call = world.decide(world.ask(effect=effect))
            world.recover()
            again = world.decide(call)
            assert again.digest == call.digest
            assert again.terms == call.terms
            world.record(world.start(again)[0])

    def test_open_runs_are_those_with_something_to_run(self, world: World) -> None:
        world.ask(run="r1", thread="t1")
        world.ready(run="r2", thread="t2")
        world.running(run="r3", thread="t3")
        world.doubted(run="r4", thread="t4")
        world.record(world.running(run="r5", thread="t5"))
        assert {run.id for run in world.store.open_runs()} == {"r2", "r3"}
