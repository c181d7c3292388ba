"""What a call's effect means for it: a read takes no lease, and is never in doubt."""

from __future__ import annotations

from typing import Any

import pytest

from sayso.errors import InvalidCall
from sayso.rows import Call, CallStatus, RunStatus
from sayso.testing.world import World


def gated_read(world: World, **new: Any) -> Call:
    """A read that a person has approved."""
    return world.decide(world.ask(effect="read", **new))


class Effects:
    """Reads: from ready to done, however often they are tried."""

    def test_an_approved_read_stays_ready_and_takes_no_lease(self, world: World) -> None:
        (call,) = world.start(gated_read(world))
        assert call == world.call(call)
        assert (call.status, call.attempt, call.token) == (CallStatus.READY, 1, 0)
        run = world.run()
        assert (run.owner, run.ready, run.running) == (None, 1, 0)
        done = world.record(call, result='"sunny"')
        assert (done.status, done.result) == (CallStatus.DONE, '"sunny"')
        assert world.events(call=call)[-2:] == ["read_started", "read_recorded"]
        assert world.run().ready_at is None

    def test_one_approval_covers_its_retries_until_a_result_is_recorded(self, world: World) -> None:
        call = gated_read(world)
        for attempt in (1, 2):
            (call,) = world.start(call)
            call = world.record(call, ok=False, result="timed out", retry=True)
            assert (call.status, call.attempt) == (CallStatus.READY, attempt)
            assert call.result == "timed out"
        (call,) = world.start(call)
        assert world.record(call).status is CallStatus.DONE
        assert world.events(call=call).count("decided") == 1
        before = world.everything()
        assert world.start(call) == (world.call(call),)
        assert world.everything() == before

    def test_a_failure_that_nobody_retries_is_the_end(self, world: World) -> None:
        (call,) = world.start(gated_read(world))
        failed = world.record(call, ok=False, result="no such city")
        assert (failed.status, failed.result) == (CallStatus.FAILED, "no such city")
        assert world.finish().status is RunStatus.DONE

    def test_several_read_at_once_and_the_first_result_counts(self, world: World) -> None:
        call = gated_read(world)
        (one,) = world.start(call, owner="w1")
        (two,) = world.start(one, owner="w2")
        assert (one.attempt, two.attempt) == (1, 2)
        assert world.record(one, result='"first"').result == '"first"'
        before = world.everything()
        assert world.record(two, result='"second"').result == '"first"'
        assert world.record(two, ok=False, result="boom", retry=True).result == '"first"'
        assert world.everything() == before

    def test_a_read_breaks_nobodys_lease(self, world: World) -> None:
        call = gated_read(world)
        world.running(owner="w1")
        held = world.run()
        (call,) = world.start(call, owner="w2")
        assert call.attempt == 1
        world.record(call, ok=False, result="boom", retry=True)
        world.suspend(world.call(call))
        (call,) = world.start(world.call(call), owner="w2")
        world.record(call)
        now = world.run()
        assert (now.owner, now.token, now.ready_at) == (held.owner, held.token, held.ready_at)

    def test_a_read_in_a_run_that_is_held_keeps_the_lease_or_lets_go(self, world: World) -> None:
        (call,) = world.propose(
            world.new(verdict="allow", effect="read"), owner="w1", lease=30_000_000
        )
        run = world.run()
        assert (call.status, call.attempt, call.token) == (CallStatus.READY, 1, run.token)
        assert run.owner == "w1"
        (other,) = world.propose(
            world.new(verdict="allow", effect="read"), owner="w1", lease=30_000_000
        )
        world.record(call, hold=True)
        assert world.run().owner == "w1"
        world.record(other)
        assert (world.run().owner, world.run().status) == (None, RunStatus.RUNNING)

    def test_a_read_is_never_in_doubt(self, world: World) -> None:
        call = gated_read(world)
        once = world.ready()
        world.start(call, once)
        world.clock.advance(31)
        assert [doubted.id for doubted in world.sweep()] == [once.id]
        assert world.call(call).status is CallStatus.READY
        assert world.recover() == ()
        world.doubt(world.call(call))
        assert world.call(call).status is CallStatus.READY

    def test_a_read_whose_process_died_is_simply_read_again(self, world: World) -> None:
        (call,) = world.propose(
            world.new(verdict="allow", effect="read"), owner="w1", lease=30_000_000
        )
        world.clock.advance(31)
        assert world.claim("w2") is not None
        (again,) = world.start(call, owner="w2")
        assert (again.status, again.attempt) == (CallStatus.READY, 2)
        assert world.record(again).status is CallStatus.DONE
        assert "in_doubt" not in world.events()

    def test_a_read_that_is_too_old_or_whose_grant_is_spent_is_asked_again(
        self, world: World
    ) -> None:
        call = gated_read(world, valid_for=60.0)
        (call,) = world.start(call)
        world.record(call, ok=False, result="boom", retry=True)
        world.clock.advance(61)
        assert world.start(world.call(call))[0].status is CallStatus.ASKED
        world.grant(uses_left=1)
        first, second = (world.ask(effect="read") for _ in range(2))
        assert (first.status, second.status) == (CallStatus.READY, CallStatus.READY)
        (first,) = world.start(first)
        world.record(first, ok=False, result="boom", retry=True)
        assert world.start(second)[0].status is CallStatus.ASKED
        assert world.start(world.call(first))[0].attempt == 2

    def test_a_read_that_ran_before_it_was_proposed_is_one_commit(self, world: World) -> None:
        new = world.new(verdict="allow", effect="read", outcome=(True, '"sunny"'))
        (call,) = world.propose(new)
        assert (call.status, call.result, call.attempt) == (CallStatus.DONE, '"sunny"', 0)
        assert world.events(call=call) == ["allowed", "read_recorded"]
        again = world.new(
            id="req_other", key=new.key, verdict="allow", effect="read", outcome=(True, '"rain"')
        )
        assert world.propose(again) == (call,)
        failed = world.new(verdict="allow", effect="read", outcome=(False, "boom"))
        assert world.propose(failed)[0].status is CallStatus.FAILED
        assert world.finish().status is RunStatus.DONE

    @pytest.mark.parametrize("wrong", [{"effect": "once"}, {"verdict": "ask"}])
    def test_nothing_else_runs_before_it_is_proposed(
        self, world: World, wrong: dict[str, str]
    ) -> None:
        world.ready()
        before = world.everything()
        terms = {"verdict": "allow", "effect": "read", **wrong}
        with pytest.raises(InvalidCall):
            world.propose(world.new(outcome=(True, "1"), **terms))
        assert world.everything() == before

    def test_a_run_that_is_done_gives_up_the_reads_that_gave_nothing(self, world: World) -> None:
        (call,) = world.start(gated_read(world))
        world.record(call, ok=False, result="timed out", retry=True)
        assert world.finish("failed").status is RunStatus.RUNNING  # it may come back and retry
        assert world.call(call).status is CallStatus.READY
        assert world.finish("done").status is RunStatus.DONE
        failed = world.call(call)
        assert (failed.status, failed.result) == (CallStatus.FAILED, "timed out")

    def test_a_read_that_nobody_tried_keeps_the_run_open(self, world: World) -> None:
        call = gated_read(world)
        assert world.finish("done").status is RunStatus.RUNNING
        assert world.call(call).status is CallStatus.READY

    def test_a_read_that_asks_in_its_body_waits_for_the_answer(self, world: World) -> None:
        (call,) = world.start(gated_read(world))
        question = world.ask()
        world.suspend(call)
        assert (world.run().status, world.run().ready_at) == (RunStatus.PAUSED, None)
        world.decide(question)
        assert world.run().ready_at == world.clock()

    def test_a_read_that_is_called_off_stays_so(self, world: World) -> None:
        (call,) = world.start(gated_read(world))
        world.cancel(call)
        assert world.record(call).status is CallStatus.CANCELLED

    def test_a_read_is_completed_in_one_step(self, world: World) -> None:
        done = world.complete(gated_read(world))
        assert (done.status, done.attempt) == (CallStatus.DONE, 1)
