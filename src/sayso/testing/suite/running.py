"""Execution: a call starts once, its own attempt records it, and an unknown outcome is in doubt."""

from __future__ import annotations

import pytest

from sayso.engine.commands import Record, Start, Suspend
from sayso.errors import Cancelled, NotFound
from sayso.rows import CallStatus, Message, RunStatus
from sayso.testing.world import LEASE, World, attempt_of, content, seconds


class Running:
    """``Start``, ``Record``, ``Complete``, ``Suspend`` and ``MarkInDoubt``."""

    def test_start(self, world: World) -> None:
        call = world.decide(world.ask())
        (started,) = world.start(call)
        assert started == world.call(call)
        assert started.status is CallStatus.RUNNING
        run = world.run()
        assert (started.attempt, started.token) == (1, run.token)
        assert (run.status, run.owner, run.running) == (RunStatus.RUNNING, "w1", 1)
        assert run.ready_at == world.clock() + LEASE
        assert world.body("started")["digest"] == call.digest

    def test_a_started_call_does_not_start_again(self, world: World) -> None:
        call = world.running()
        before = world.everything()
        assert world.start(call) == (call,)
        assert world.everything() == before

    @pytest.mark.parametrize("type", [None, "reject", "respond"])
    def test_only_what_is_ready_starts(self, world: World, type: str | None) -> None:
        call = world.ask()
        if type is not None:
            call = world.decide(call, type, value=1)
        before = world.everything()
        assert world.start(call) == (call,)
        assert world.everything() == before

    def test_several_start_together(self, world: World) -> None:
        asked = world.ask()
        ready = [world.ready(), world.ready()]
        started = world.start(asked, *ready)
        assert [call.status for call in started] == ["asked", "running", "running"]
        assert len({call.token for call in started[1:]}) == 1
        assert world.run().running == 2

    def test_nothing_starts_under_somebody_elses_lease(self, world: World) -> None:
        world.running(owner="w1")
        call = world.ready()
        before = world.everything()
        assert world.start(call, owner="w2") == (call,)
        assert world.everything() == before
        assert world.start(call, owner="w1")[0].status is CallStatus.RUNNING

    def test_nothing_starts_beside_what_a_lost_owner_left_running(self, world: World) -> None:
        world.running(owner="w1")
        call = world.ready()
        world.clock.advance(31)
        assert world.start(call, owner="w2")[0].status is CallStatus.READY
        assert [doubted.status for doubted in world.sweep()] == ["in_doubt"]
        assert world.start(call, owner="w2")[0].status is CallStatus.RUNNING

    def test_an_approval_has_an_end(self, world: World) -> None:
        calls = [world.ask(valid_for=60.0), world.ask(valid_for=60.0)]
        for call in calls:
            world.decide(call)
        world.clock.advance(59.999_999)
        assert world.start(world.call(calls[0]))[0].status is CallStatus.RUNNING
        world.clock.advance(0.000_001)
        stale = world.start(world.call(calls[1]))[0]
        assert stale == world.call(calls[1])
        assert (stale.status, stale.rev, stale.decision) == (CallStatus.ASKED, 2, None)
        assert stale.digest != calls[1].digest
        assert "old" in world.body("reasked")["reason"]
        assert world.decide(stale).status is CallStatus.READY

    def test_what_was_allowed_is_asked_about_when_it_is_too_old(self, world: World) -> None:
        call = world.ready(valid_for=60.0)
        world.clock.advance(60)
        stale = world.start(call)[0]
        assert (stale.status, stale.asked) == (CallStatus.ASKED, True)
        assert world.run().status is RunStatus.PAUSED
        assert world.run().owner is None

    def test_what_a_rule_let_begin_goes_on_however_long_its_own_question_took(
        self, world: World
    ) -> None:
        call = world.running(valid_for=60.0)
        world.suspend(call)
        world.clock.advance(1_000_000)
        assert world.start(world.call(call))[0].status is CallStatus.RUNNING

    def test_what_a_person_let_begin_is_asked_about_when_that_was_long_ago(
        self, world: World
    ) -> None:
        call = world.decide(world.ask(valid_for=60.0))
        world.suspend(world.start(call)[0])
        world.clock.advance(60)
        assert world.start(world.call(call))[0].status is CallStatus.ASKED

    def test_to_run_it_again_is_a_yes_with_an_end_too(self, world: World) -> None:
        call = world.doubted(valid_for=60.0)
        again = world.decide(call)
        assert again.status is CallStatus.READY
        world.clock.advance(60)
        assert world.start(again)[0].status is CallStatus.ASKED

    def test_nothing_of_a_stopped_run_starts(self, world: World) -> None:
        running, ready = world.running(), world.ready()
        world.cancel()
        for call in (ready, running):
            with pytest.raises(Cancelled, match="changed my mind"):
                world.start(call)
        world.record(running)
        with pytest.raises(Cancelled):
            world.start(ready)

    def test_starting_nothing(self, world: World) -> None:
        world.ready()
        with pytest.raises(NotFound):
            world.transact(
                Start(thread="t", run="r", calls=("none",), seen=("",), owner="w", lease=1)
            )
        with pytest.raises(NotFound):
            world.transact(Start(thread="t", run="none", calls=(), seen=(), owner="w", lease=1))

    # -- recording

    @pytest.mark.parametrize(("ok", "status"), [(True, "done"), (False, "failed")])
    def test_record(self, world: World, ok: bool, status: str) -> None:
        call = world.record(
            world.running(), ok=ok, result='"so"', messages=(Message("r", "tool says so"),)
        )
        assert call == world.call(call)
        assert (call.status, call.result) == (status, '"so"')
        assert world.store.messages("t") == [(1, "tool says so")]
        run = world.run()
        assert (run.owner, run.ready_at, run.status) == (None, None, RunStatus.RUNNING)
        assert world.body("recorded")["ok"] is ok

    def test_a_recorded_call_keeps_its_first_result(self, world: World) -> None:
        call = world.running()
        world.record(call, result="1")
        assert world.record(call, result="2").result == "1"
        assert world.record(call, ok=False, result="3").status is CallStatus.DONE
        assert world.events(call=call)[-2:] == ["late", "late"]
        assert world.body("late")["result"] == "3"

    def test_only_the_attempt_itself_records(self, world: World) -> None:
        call = world.running()
        for other in (call._replace(token=call.token + 1), call._replace(attempt=2)):
            same = world.record(other, messages=(Message("r", "not mine"),))
            assert same.status is CallStatus.RUNNING
        assert world.store.messages("t") == []
        assert world.run().running == 1
        assert world.record(call).status is CallStatus.DONE

    def test_recording_what_was_never_started(self, world: World) -> None:
        call = world.ask()
        assert world.record(call).status is CallStatus.ASKED
        assert world.call(call).result is None
        with pytest.raises(NotFound):
            world.transact(
                Record(thread="t", run="r", call="none", token=1, attempt=1, ok=True, result="1")
            )

    def test_the_lease_is_kept_or_let_go_with_the_record(self, world: World) -> None:
        call = world.running()
        world.record(call, hold=True)
        assert world.run().owner == "w1"
        assert world.run().ready_at == world.clock() + LEASE
        world.record(world.running())
        assert world.run().owner is None

    def test_the_lease_stays_while_other_calls_run(self, world: World) -> None:
        one, two = world.start(world.ready(), world.ready())
        world.record(one)
        assert world.run().owner == "w1"
        world.record(two)
        assert world.run().owner is None

    def test_complete_is_start_and_record_at_once(self, world: World) -> None:
        call = world.complete(world.decide(world.ask(tool="")))
        assert (call.status, call.result, call.attempt) == (CallStatus.DONE, "true", 1)
        assert world.events(call=call) == ["asked", "decided", "started", "recorded"]
        before = world.everything()
        assert world.complete(call) == call
        assert world.everything() == before

    # -- pauses inside a call

    def test_a_call_that_asks_goes_back_to_ready(self, world: World) -> None:
        call = world.running()
        question = world.ask(kind="question", tool="")
        suspended = world.suspend(call)
        assert suspended.status is CallStatus.READY
        run = world.run()
        assert (run.status, run.owner, run.ready_at) == (RunStatus.PAUSED, None, None)
        world.decide(question, "respond", value="blue")
        assert world.run().ready_at == world.clock()
        again = world.start(suspended, owner="w2")[0]
        assert (again.status, again.attempt) == (CallStatus.RUNNING, 2)

    def test_a_call_that_waits_for_another_run_leaves_its_own_asleep(self, world: World) -> None:
        world.transact(Suspend(**attempt_of(world.running()), elsewhere=True))
        run = world.run()
        assert (run.status, run.owner, run.ready_at) == (RunStatus.PAUSED, None, None)

    def test_an_answer_before_the_pause_leaves_the_run_due(self, world: World) -> None:
        call = world.running()
        question = world.ask(kind="question", tool="")
        world.decide(question, "respond", value="blue")
        world.suspend(call)
        assert world.run().ready_at == world.clock()

    def test_only_the_attempt_itself_suspends(self, world: World) -> None:
        call = world.running()
        before = world.everything()
        for other in (call._replace(token=call.token + 1), call._replace(attempt=2)):
            assert world.suspend(other).status is CallStatus.RUNNING
        assert world.everything() == before
        world.record(call)
        assert world.suspend(call).status is CallStatus.DONE

    def test_a_grants_use_is_not_spent_again_after_a_pause(self, world: World) -> None:
        world.grant(uses_left=1)
        call = world.start(world.ask())[0]
        world.suspend(call)
        assert world.start(world.call(call))[0].status is CallStatus.RUNNING

    # -- in doubt

    def test_an_attempt_cut_short_is_in_doubt(self, world: World) -> None:
        call = world.running(expires_in=60)
        doubted = world.doubt(call, "it timed out")
        assert doubted == world.call(call)
        assert (doubted.status, doubted.asked) == (CallStatus.IN_DOUBT, True)
        assert doubted.expires_at is None
        assert world.run().status is RunStatus.PAUSED
        assert world.body("in_doubt")["reason"] == "it timed out"

    def test_a_doubt_does_not_expire(self, world: World) -> None:
        call = world.ask(expires_in=10)
        world.decide(call)
        world.doubt(world.start(call)[0])
        world.clock.advance(1_000)
        assert world.expire(call).status is CallStatus.IN_DOUBT
        assert world.store.overdue() == []
        assert world.decide(call).status is CallStatus.READY

    def test_what_is_idempotent_is_simply_ready_again(self, world: World) -> None:
        call = world.running(effect="idempotent")
        ready = world.doubt(call)
        assert (ready.status, ready.asked) == (CallStatus.READY, False)
        assert world.run().ready_at == world.clock()
        assert world.events(call=call)[-2:] == ["in_doubt", "retried"]
        again = world.start(ready, owner="w2")[0]
        assert (again.status, again.attempt) == (CallStatus.RUNNING, 2)

    def test_a_doubt_about_another_attempt_is_none(self, world: World) -> None:
        call = world.running()
        before = world.everything()
        for other in (call._replace(token=call.token + 1), call._replace(attempt=2)):
            assert world.doubt(other) == call
        assert world.everything() == before

    def test_a_late_result_closes_a_doubt_that_nobody_has_settled(self, world: World) -> None:
        call = world.running()
        world.doubt(call)
        done = world.record(call, result='"after all"')
        assert (done.status, done.result) == (CallStatus.DONE, '"after all"')
        assert world.body("recorded")["late"] is True
        assert world.run().in_doubt == 0
        assert world.run().ready_at == world.clock()
        assert world.run().wake == 1

    def test_a_late_failure_closes_it_too(self, world: World) -> None:
        call = world.running()
        world.doubt(call)
        assert world.record(call, ok=False, result="boom").status is CallStatus.FAILED

    @pytest.mark.parametrize("type", ["approve", "respond", "reject"])
    def test_later_it_is_kept_as_an_event(self, world: World, type: str) -> None:
        call = world.running()
        world.doubt(call)
        decided = world.decide(call, type, value="mine")
        after = world.record(call, result='"too late"', messages=(Message("r", "no"),))
        assert content(after) == content(decided)
        assert world.body("late")["result"] == '"too late"'
        assert world.store.messages("t") == []

    def test_an_earlier_attempt_cannot_record_for_a_later_one(self, world: World) -> None:
        first = world.running()
        world.doubt(first)
        second = world.start(world.decide(first), owner="w2")[0]
        assert world.record(first).status is CallStatus.RUNNING
        assert world.record(second, result="2").result == "2"

    def test_the_votes_on_a_doubt_end_with_a_late_result(self, world: World) -> None:
        call = world.running(quorum=2)
        world.doubt(call)
        world.decide(call, by="ana")
        done = world.record(call)
        assert (done.status, done.votes) == (CallStatus.DONE, ())

    def test_a_short_lease_lapses_without_a_word(self, world: World) -> None:
        call = world.running(lease=seconds(2))
        assert world.sweep() == ()
        world.clock.advance(2)
        assert [doubted.id for doubted in world.sweep()] == [call.id]
