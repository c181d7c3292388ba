"""Effects: reads may be repeated, and an effect with a key happens once per store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sayso.engine.commands import Park
from sayso.errors import AlreadyDecided, Cancelled, InvalidCall
from sayso.rows import Call, CallStatus, Doubt, Message, RunStatus
from sayso.types import Failure
from sayso_testing.world import LEASE, RUN, World


def gated_read(world: World, **new: Any) -> Call:
    """Return a read that a person has approved."""
    return world.decide(world.ask(effect="read", **new))


def leased_read(world: World) -> Call:
    """Return a read that was started under the lease of a worker."""
    new = world.new(verdict="allow", effect="read")
    return world.propose(new, owner="w1", lease=LEASE)[0]


class EffectTests:
    """Reads go from ready to done, however often they are tried."""

    def test_approved_read_stays_ready_without_a_lease(self, world: World) -> None:
        (call,) = world.start(gated_read(world))
        assert call == world.call(call)
        assert (call.status, call.attempt, call.token) == (CallStatus.READY, 1, 0)
        run = world.run()
        assert (run.owner, run.ready, run.running) == (None, 1, 0)
        done = world.record(call, result='"sunny"')
        assert (done.status, done.result) == (CallStatus.DONE, '"sunny"')
        assert world.events(call=call)[-2:] == ["read_started", "read_recorded"]
        assert world.run().ready_at is None

    def test_one_approval_covers_retries_until_a_result(self, world: World) -> None:
        call = gated_read(world)
        for attempt in (1, 2):
            (call,) = world.start(call)
            call = world.record(call, ok=False, result="timed out", retry=True)
            assert (call.status, call.attempt) == (CallStatus.READY, attempt)
            assert call.result == "timed out"
        (call,) = world.start(call)
        assert world.record(call).status is CallStatus.DONE
        assert world.events(call=call).count("decided") == 1
        with world.unchanged():
            assert world.start(call) == (world.call(call),)

    def test_failure_without_retry_is_final(self, world: World) -> None:
        (call,) = world.start(gated_read(world))
        failed = world.record(call, ok=False, result="no such city")
        assert (failed.status, failed.result) == (CallStatus.FAILED, "no such city")
        assert world.finish().status is RunStatus.DONE

    def test_parallel_reads_store_first_result(self, world: World) -> None:
        call = gated_read(world)
        (first,) = world.start(call, owner="w1")
        (second,) = world.start(first, owner="w2")
        assert (first.attempt, second.attempt) == (1, 2)
        assert world.record(first, result='"first"').result == '"first"'
        with world.unchanged():
            assert world.record(second, result='"second"').result == '"first"'
            assert world.record(second, ok=False, result="boom", retry=True).result == '"first"'

    def test_read_does_not_break_a_lease(self, world: World) -> None:
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

    def test_recorded_read_keeps_or_releases_its_lease(self, world: World) -> None:
        call = leased_read(world)
        run = world.run()
        assert (call.status, call.attempt, call.token) == (CallStatus.READY, 1, run.token)
        assert run.owner == "w1"
        other = leased_read(world)
        world.record(call, hold=True)
        assert world.run().owner == "w1"
        world.record(other)
        assert (world.run().owner, world.run().status) == (None, RunStatus.RUNNING)

    def test_read_is_never_in_doubt(self, world: World) -> None:
        call = gated_read(world)
        once = world.ready()
        world.start(call, once)
        world.clock.advance(31)
        assert [doubted.id for doubted in world.sweep()] == [once.id]
        assert world.call(call).status is CallStatus.READY
        assert world.recover() == ()
        world.doubt(world.call(call))
        assert world.call(call).status is CallStatus.READY

    def test_read_of_a_dead_process_runs_again(self, world: World) -> None:
        call = leased_read(world)
        world.clock.advance(31)
        assert world.claim("w2") is not None
        (again,) = world.start(call, owner="w2")
        assert (again.status, again.attempt) == (CallStatus.READY, 2)
        assert world.record(again).status is CallStatus.DONE
        assert "in_doubt" not in world.events()

    def test_read_with_expired_approval_is_asked_again(self, world: World) -> None:
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

    def test_finished_read_is_proposed_in_one_commit(self, world: World) -> None:
        new = world.new(verdict="allow", effect="read", outcome=(True, '"sunny"'))
        (call,) = world.propose(new)
        assert (call.status, call.result, call.attempt) == (CallStatus.DONE, '"sunny"', 0)
        assert world.events(call=call) == ["allowed", "read_recorded"]
        again = replace(new, id="req_other", outcome=(True, '"rain"'))
        assert world.propose(again) == (call,)
        failed = world.new(verdict="allow", effect="read", outcome=(False, "boom"))
        assert world.propose(failed)[0].status is CallStatus.FAILED
        assert world.finish().status is RunStatus.DONE

    @pytest.mark.parametrize("wrong", [{"effect": "once"}, {"verdict": "ask"}])
    def test_only_allowed_reads_run_before_proposal(
        self, world: World, wrong: dict[str, str]
    ) -> None:
        world.ready()
        with world.unchanged():
            terms: dict[str, Any] = {"verdict": "allow", "effect": "read", **wrong}
            with pytest.raises(InvalidCall):
                world.propose(world.new(outcome=(True, "1"), **terms))

    def test_done_run_fails_its_unanswered_reads(self, world: World) -> None:
        (call,) = world.start(gated_read(world))
        world.record(call, ok=False, result="timed out", retry=True)
        assert world.finish("failed").status is RunStatus.RUNNING  # the read can still be retried
        assert world.call(call).status is CallStatus.READY
        assert world.finish("done").status is RunStatus.DONE
        failed = world.call(call)
        assert (failed.status, failed.result) == (CallStatus.FAILED, "timed out")

    def test_untried_read_keeps_the_run_open(self, world: World) -> None:
        call = gated_read(world)
        assert world.finish("done").status is RunStatus.RUNNING
        assert world.call(call).status is CallStatus.READY

    def test_suspended_read_waits_for_its_question(self, world: World) -> None:
        (call,) = world.start(gated_read(world))
        question = world.ask()
        world.suspend(call)
        assert (world.run().status, world.run().ready_at) == (RunStatus.PAUSED, None)
        world.decide(question)
        assert world.run().ready_at == world.clock()

    def test_cancelled_read_stays_cancelled(self, world: World) -> None:
        (call,) = world.start(gated_read(world))
        world.cancel(call)
        assert world.record(call).status is CallStatus.CANCELLED

    def test_read_is_completed_in_one_step(self, world: World) -> None:
        done = world.complete(gated_read(world))
        assert (done.status, done.attempt) == (CallStatus.DONE, 1)


class EffectKeyTests:
    """One effect per key in the whole store."""

    def test_second_call_with_effect_key_does_not_start(self, world: World) -> None:
        first = world.running(effect_key="/refund:17")
        second = world.ready(effect_key="/refund:17", run="r2", thread="t2")
        (refused,) = world.start(second)
        assert (refused.status, refused.attempt) == (CallStatus.FAILED, 0)
        assert first.id in (refused.result or "")
        assert world.events(call=refused)[-1] == "duplicate"
        assert world.run("r2").owner is None
        other = world.running(effect_key="/refund:18", run="r3", thread="t3")
        assert other.status is CallStatus.RUNNING
        assert [effect.key for effect in world.store.effects()] == ["/refund:17", "/refund:18"]
        assert [effect.key for effect in world.store.effects("/refund:17")] == ["/refund:18"]

    @pytest.mark.parametrize("status", ["running", "done", "in_doubt"])
    def test_running_done_and_doubted_calls_hold_their_key(self, world: World, status: str) -> None:
        first = world.in_state(status, effect_key="/refund:17")
        world.reopen()
        held = world.store.effect("/refund:17")
        assert held is not None
        assert (held.call, held.run, held.thread) == (first.id, first.run, first.thread)
        second = world.ready(effect_key="/refund:17", run="r2", thread="t2")
        assert world.start(second)[0].status is CallStatus.FAILED

    def test_certain_failure_frees_the_key(self, world: World) -> None:
        world.fail(world.running(effect_key="/refund:17"), "not_executed", "no funds")
        assert world.store.effects() == []
        second = world.running(effect_key="/refund:17", run="r2", thread="t2")
        assert second.status is CallStatus.RUNNING

    def test_late_failure_frees_key_and_late_result_keeps_it(self, world: World) -> None:
        for ok in (True, False):
            call = world.doubted(effect_key=f"/{ok}")
            world.record(call, ok=ok, result='"late"', failure="not_executed")
        assert [effect.key for effect in world.store.effects()] == ["/True"]

    @pytest.mark.parametrize("effect", ["once", "idempotent"])
    @pytest.mark.parametrize("failure", ["error", "lost", "in_doubt"])
    def test_uncertain_failure_keeps_the_key(
        self, world: World, failure: Failure, effect: str
    ) -> None:
        call = world.fail(world.running(effect_key="/refund:17", effect=effect), failure)
        assert call.status is CallStatus.IN_DOUBT
        assert call.doubt == Doubt(world.clock(), ended=True, reason="Oops: no")
        assert world.holder("/refund:17") == call.id
        assert world.start(world.ready(effect_key="/refund:17"))[0].status is CallStatus.FAILED

    def test_remote_agents_report_frees_no_key(self, world: World) -> None:
        call = world.running(effect_key="agent/refund:17", binds='{"body":"x"}')
        call = world.fail(call, "not_executed", "NotExecuted: no funds")
        assert call.status is CallStatus.IN_DOUBT
        assert call.doubt is not None
        assert (call.doubt.answer, call.doubt.said) == ("did_not_run", "NotExecuted: no funds")
        assert world.body("settled")["answer"] == "did_not_run"
        assert world.holder("agent/refund:17") == call.id
        world.decide(call, "reject")
        assert world.holder("agent/refund:17") is None

    def test_call_without_key_fails_on_remote_agents_report(self, world: World) -> None:
        call = world.running(settles=True, binds='{"body":"x"}')
        assert world.fail(call, "not_executed").status is CallStatus.FAILED

    def test_late_uncertain_failure_renews_the_doubt(self, world: World) -> None:
        call = world.settle(lapsed(world, effect_key="/refund:17"), "did_not_run")
        world.claim("w2", force=True)
        held = world.run()
        call = world.fail(call, "lost", "TimeoutError: no reply")
        assert call.status is CallStatus.IN_DOUBT
        assert call.doubt == Doubt(world.clock(), ended=True, reason="TimeoutError: no reply")
        assert world.events(call=call)[-1] == "attempt_ended"
        run = world.run()
        assert (run.owner, run.token, run.ready_at) == (held.owner, held.token, held.ready_at)
        world.decide(call, "reject")  # the evidence was from before the attempt ended
        assert world.holder("/refund:17") == call.id

    @pytest.mark.parametrize(
        ("terms", "approved", "doubtful"),
        [
            ({}, False, {"in_doubt"}),
            ({"declared": True}, False, {"in_doubt", "lost"}),
            ({}, True, {"in_doubt", "lost"}),
            ({"settles": True}, False, {"in_doubt", "lost", "error"}),
            ({"effect": "idempotent", "settles": True, "declared": True}, True, {"in_doubt"}),
            ({"effect": "read", "declared": True}, True, set()),
        ],
    )
    @pytest.mark.parametrize("failure", ["error", "lost", "in_doubt", "not_executed"])
    def test_failure_is_in_doubt_as_the_call_demands(
        self,
        world: World,
        failure: Failure,
        terms: dict[str, Any],
        approved: bool,
        doubtful: set[str],
    ) -> None:
        call = world.ask(**terms) if approved else world.ready(**terms)
        if approved:
            world.decide(call)
        (call,) = world.start(world.call(call))
        ended = world.fail(call, failure)
        in_doubt = failure in doubtful
        assert ended.status is (CallStatus.IN_DOUBT if in_doubt else CallStatus.FAILED)
        assert ended == world.call(call)
        world.check()

    def test_call_in_doubt_gets_no_messages(self, world: World) -> None:
        call = world.running(settles=True)
        message = Message("r", "it failed")
        world.record(call, ok=False, result="Oops: no", messages=(message,))
        assert world.store.messages("t") == []

    def test_suspended_call_releases_and_retakes_its_key(self, world: World) -> None:
        call = world.suspend(world.running(effect_key="/refund:17"))
        assert world.store.effects() == []
        (again,) = world.start(call)
        assert (again.status, again.attempt) == (CallStatus.RUNNING, 2)
        call = world.suspend(again)
        world.running(effect_key="/refund:17", run="r2", thread="t2")
        assert world.start(call)[0].status is CallStatus.FAILED

    @pytest.mark.parametrize("answer", ["approve", "respond", "reject"])
    def test_deciding_a_doubt_does_not_free_the_key(self, world: World, answer: str) -> None:
        doubted = world.doubted(effect_key="/refund:17")
        more = {"value": "paid"} if answer == "respond" else {}
        call = world.decide(doubted, answer, **more)
        second = world.ready(effect_key="/refund:17", run="r2", thread="t2")
        assert world.start(second)[0].status is CallStatus.FAILED
        if answer == "approve":
            assert world.start(call)[0].status is CallStatus.RUNNING

    def test_idempotent_retry_keeps_its_key(self, world: World) -> None:
        call = world.running(effect_key="/sync", effect="idempotent")
        world.doubt(call)
        assert world.start(world.call(call))[0].status is CallStatus.RUNNING

    def test_prune_keeps_the_key(self, world: World) -> None:
        call = world.running(effect_key="/refund:17")
        world.record(call)
        world.finish()
        world.clock.advance(1000)
        assert world.store.prune(world.clock(), "ops")["calls"] == 1
        del world.runs["r"]
        second = world.ready(effect_key="/refund:17", run="r2", thread="t2")
        (refused,) = world.start(second)
        assert refused.status is CallStatus.FAILED
        assert f"{call.id}, which was pruned" in (refused.result or "")

    def test_key_is_new_after_an_edit(self, world: World) -> None:
        call = world.ask(args={"order": 17}, effect_key="/refund:17", template="refund:{order}")
        edited = world.decide(call, "edit", args={"order": 18})
        assert (edited.effect_key, edited.status) == ("/refund:18", CallStatus.READY)
        assert edited.digest != call.digest
        by_code = world.ask(args={"order": 17}, effect_key="/code:17")
        assert world.decide(by_code, "edit", args={"order": 18}).effect_key == ""

    @pytest.mark.parametrize("same", [True, False])
    def test_only_the_same_agent_gets_the_first_result(self, world: World, same: bool) -> None:
        first = world.running(effect_key="/refund:17")
        world.record(first, result='"receipt 1"')
        new = world.new(verdict="allow", effect_key="/refund:17", on_duplicate="result")
        agent = "agent" if same else "other"
        (call,) = world.propose(new, run="r2", thread="t2", agent=agent)
        (closed,) = world.start(call)
        if same:
            assert (closed.status, closed.result) == (CallStatus.DONE, '"receipt 1"')
        else:
            assert closed.status is CallStatus.FAILED

    def test_duplicate_of_unfinished_call_gets_no_result(self, world: World) -> None:
        world.running(effect_key="/refund:17")
        second = world.ready(effect_key="/refund:17", on_duplicate="result", run="r2", thread="t2")
        assert world.start(second)[0].status is CallStatus.FAILED

    def test_first_call_of_a_start_takes_the_key(self, world: World) -> None:
        calls = [world.ready(effect_key="/refund:17") for _ in range(2)]
        started = world.start(*calls)
        assert [call.status for call in started] == ["running", "failed"]

    def test_call_started_by_propose_takes_its_key(self, world: World) -> None:
        new = [world.new(verdict="allow", effect_key=key) for key in ("/b", "/a", "/b")]
        calls = world.propose(*new, owner="w1", lease=30_000_000)
        assert [call.status for call in calls] == ["running", "running", "failed"]
        assert [effect.key for effect in world.store.effects()] == ["/a", "/b"]

    def test_call_asked_again_takes_no_key(self, world: World) -> None:
        call = world.ready(effect_key="/refund:17", valid_for=1.0)
        world.clock.advance(2)
        assert world.start(call)[0].status is CallStatus.ASKED
        assert world.store.effects() == []

    def test_read_needs_no_key(self, world: World) -> None:
        for run in ("r1", "r2"):
            call = world.ready(effect="read", effect_key="/look", run=run, thread=run)
            assert world.record(world.start(call)[0]).status is CallStatus.DONE
        assert world.store.effects() == []

    def test_recovered_call_holds_its_key(self, world: World) -> None:
        call = world.ready(effect_key="/refund:17")
        world.recover()
        assert world.holder("/refund:17") == call.id

    def test_refused_start_takes_no_key(self, world: World) -> None:
        world.ready(effect_key="/refund:17")
        world.cancel()
        with world.unchanged(), pytest.raises(Cancelled):
            world.start(world.store.calls_of("r")[0])
        assert world.store.effects() == []


class SettlementTests:
    """Settling doubts by asking the other side: it ran, it did not run, or unknown."""

    def test_ran_closes_the_doubt_with_its_result(self, world: World) -> None:
        call = lapsed(world)
        assert world.run().in_doubt == 1
        done = world.settle(call, "ran", result='"receipt 1"')
        assert (done.status, done.result) == (CallStatus.DONE, '"receipt 1"')
        assert done == world.call(call)
        assert world.events(call=call)[-3:] == ["in_doubt", "settled", "recorded"]
        assert world.body("recorded")["late"] is True
        assert world.run().in_doubt == 0
        assert world.run().due(world.clock())
        with pytest.raises(AlreadyDecided):
            world.decide(done, "reject", seen_digest=world.digest(call))

    @pytest.mark.parametrize("answer", ["did_not_run", "unknown"])
    def test_settlement_evidence_starts_no_call(self, world: World, answer: str) -> None:
        call = world.settle(lapsed(world), answer, said="no refund for order 17")
        doubt = call.doubt
        assert doubt is not None
        assert (doubt.answer, doubt.said) == (answer, "no refund for order 17")
        world.reopen()
        assert world.call(call) == call
        assert (call.status, call.attempt) == (CallStatus.IN_DOUBT, 1)
        assert world.start(call)[0].status is CallStatus.IN_DOUBT
        again = world.decide(call)
        assert (again.status, again.doubt) == (CallStatus.READY, doubt)
        assert world.start(again)[0].attempt == 2

    def test_doubt_is_settled_once(self, world: World) -> None:
        call = lapsed(world)
        for answer in ("did_not_run", "ran", "unknown", "did_not_run"):
            world.settle(call, answer, result='"later"')
        assert world.call(call).status is CallStatus.IN_DOUBT
        assert world.events(call=call).count("settled") == 1

    def test_answer_replaces_unknown(self, world: World) -> None:
        call = lapsed(world)
        world.settle(call, "unknown", said="no answer")
        world.settle(call, "unknown", said="no answer again")
        assert world.settle(call, "ran", result="1").status is CallStatus.DONE
        assert world.events(call=call).count("settled") == 2

    @pytest.mark.parametrize("answer", ["approve", "respond", "reject"])
    def test_settlement_after_a_decision_changes_nothing(self, world: World, answer: str) -> None:
        call = lapsed(world)
        more = {"value": "paid"} if answer == "respond" else {}
        decided = world.decide(call, answer, **more)
        with world.unchanged():
            assert world.settle(call, "ran", result='"receipt 1"') == decided

    def test_later_attempt_is_another_doubt(self, world: World) -> None:
        first = world.settle(lapsed(world), "did_not_run", said="nothing there")
        (second,) = world.start(world.decide(first))
        world.clock.advance(31)
        (doubted,) = world.sweep()
        assert (doubted.attempt, second.attempt) == (2, 2)
        assert doubted.doubt == Doubt(world.clock(), reason="its process died")
        assert world.settle(first, "ran", result="1") == doubted
        assert world.settle(doubted, "ran", result="1").status is CallStatus.DONE

    def test_ended_attempt_is_settled_at_once(self, world: World) -> None:
        call = world.running(settles=True)
        doubted = world.fail(call, "lost", "TimeoutError: no reply")
        assert doubted.doubt == Doubt(world.clock(), ended=True, reason="TimeoutError: no reply")
        assert [run.id for run in world.store.ready(["agent"], 9)] == ["r"]
        done = world.settle(doubted, "ran", result="1")
        assert done.status is CallStatus.DONE
        assert done == world.call(call)

    def test_doubt_is_not_settled_before_the_lease_ends(self, world: World) -> None:
        call = world.doubted(settles=True)
        run = world.run()
        assert (run.status, run.owner) == (RunStatus.PAUSED, None)
        assert run.ready_at == world.clock() + LEASE
        with world.unchanged():
            assert world.settle(call, "ran", result="1") == call
        world.clock.advance(30)
        assert [found.id for found in world.store.ready(["agent"], 9)] == ["r"]
        assert world.settle(call, "ran", result="1").status is CallStatus.DONE

    @pytest.mark.parametrize("settles", [True, False])
    def test_settleable_doubt_makes_run_due(self, world: World, settles: bool) -> None:
        call = lapsed(world, settles=settles)
        assert call.settles is settles
        assert bool(world.store.ready(["agent"], 9)) is settles
        run = world.run()
        park = Park(**RUN, token=run.token, wake_seen=run.wake)
        world.transact(park)
        assert world.store.ready(["agent"], 9) == []
        world.transact(replace(park, due_at=world.clock() + 5_000_000))
        assert world.store.ready(["agent"], 9) == []
        world.clock.advance(5)
        assert len(world.store.ready(["agent"], 9)) == 1

    @pytest.mark.parametrize("answer", ["did_not_run", "unknown"])
    def test_rejected_unstarted_call_frees_its_key(self, world: World, answer: str) -> None:
        call = world.settle(lapsed(world, effect_key="/refund:17"), answer)
        assert world.store.effect("/refund:17") is not None
        world.decide(call, "reject")
        assert (world.store.effect("/refund:17") is None) is (answer == "did_not_run")
        second = world.ready(effect_key="/refund:17", run="r2", thread="t2")
        started = world.start(second)[0].status
        assert started is (CallStatus.RUNNING if answer == "did_not_run" else CallStatus.FAILED)

    def test_rerun_takes_its_key_again(self, world: World) -> None:
        call = world.settle(lapsed(world, effect_key="/refund:17"), "did_not_run")
        (again,) = world.start(world.decide(call))
        assert (again.status, again.attempt) == (CallStatus.RUNNING, 2)
        world.clock.advance(31)
        (doubted,) = world.sweep()
        world.decide(doubted, "reject")  # the evidence was about an earlier attempt
        assert world.store.effect("/refund:17") is not None

    def test_doubt_of_a_cancelled_run_can_be_settled(self, world: World) -> None:
        call = lapsed(world)
        world.cancel()
        assert world.settle(call, "ran", result="1").status is CallStatus.DONE
        assert world.run().status is RunStatus.CANCELLED

    def test_recovered_call_can_be_settled(self, world: World) -> None:
        world.ready(settles=True)
        (call,) = world.recover()
        assert len(world.store.ready(["agent"], 9)) == 1
        assert world.settle(call, "ran", result="1").status is CallStatus.DONE

    def test_settling_a_call_without_doubt_changes_nothing(self, world: World) -> None:
        for call in (world.ready(), world.running()):
            with world.unchanged():
                assert world.settle(call, "ran", result="1") == world.call(call)


def lapsed(world: World, **new: Any) -> Call:
    """Return a call whose process died."""
    call = world.running(**{"settles": True, **new})
    world.clock.advance(31)
    world.sweep(call.run, call.thread)
    return world.call(call)
