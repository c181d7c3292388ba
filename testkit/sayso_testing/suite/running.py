"""Execution: starting, recording and doubts; calls that an agent runs itself; all moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sayso.engine.commands import (
    Escalate,
    Finish,
    Park,
    Propose,
    Reask,
    Record,
    Release,
    Remind,
    Reopen,
    SignAgain,
    Start,
    Suspend,
    Undo,
    VoidVotes,
    Wake,
)
from sayso.errors import Cancelled, Conflict, NotFound, SaysoError
from sayso.rows import LATER, Call, CallStatus, Message, RunStatus
from sayso.types import Reviewer
from sayso_testing.world import LEASE, RUN, World, attempt_of, content, seconds, tool_of


class RunTests:
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

    def test_started_call_does_not_start_again(self, world: World) -> None:
        call = world.running()
        with world.unchanged():
            assert world.start(call) == (call,)

    @pytest.mark.parametrize("type", [None, "reject", "respond"])
    def test_only_ready_calls_start(self, world: World, type: str | None) -> None:
        call = world.ask()
        if type is not None:
            call = world.decide(call, type, value=1)
        with world.unchanged():
            assert world.start(call) == (call,)

    def test_one_start_covers_several_calls(self, world: World) -> None:
        asked = world.ask()
        ready = [world.ready(), world.ready()]
        started = world.start(asked, *ready)
        assert [call.status for call in started] == ["asked", "running", "running"]
        assert len({call.token for call in started[1:]}) == 1
        assert world.run().running == 2

    def test_call_cannot_start_under_a_foreign_lease(self, world: World) -> None:
        world.running(owner="w1")
        call = world.ready()
        with world.unchanged():
            assert world.start(call, owner="w2") == (call,)
        assert world.start(call, owner="w1")[0].status is CallStatus.RUNNING

    def test_call_waits_for_sweep_of_owner(self, world: World) -> None:
        world.running(owner="w1")
        call = world.ready()
        world.clock.advance(31)
        assert world.start(call, owner="w2")[0].status is CallStatus.READY
        assert [doubted.status for doubted in world.sweep()] == ["in_doubt"]
        assert world.start(call, owner="w2")[0].status is CallStatus.RUNNING

    def test_approval_has_an_end(self, world: World) -> None:
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

    def test_expired_permission_needs_approval(self, world: World) -> None:
        call = world.ready(valid_for=60.0)
        world.clock.advance(60)
        stale = world.start(call)[0]
        assert (stale.status, stale.asked) == (CallStatus.ASKED, True)
        assert world.run().status is RunStatus.PAUSED
        assert world.run().owner is None

    def test_allowed_call_continues_after_a_long_question(self, world: World) -> None:
        call = world.running(valid_for=60.0)
        world.suspend(call)
        world.clock.advance(1_000_000)
        assert world.start(world.call(call))[0].status is CallStatus.RUNNING

    def test_old_approval_is_asked_again_after_a_question(self, world: World) -> None:
        call = world.decide(world.ask(valid_for=60.0))
        world.suspend(world.start(call)[0])
        world.clock.advance(60)
        assert world.start(world.call(call))[0].status is CallStatus.ASKED

    def test_approval_of_a_rerun_expires(self, world: World) -> None:
        call = world.doubted(valid_for=60.0)
        again = world.decide(call)
        assert again.status is CallStatus.READY
        world.clock.advance(60)
        assert world.start(again)[0].status is CallStatus.ASKED

    def test_cancelled_run_starts_no_call(self, world: World) -> None:
        running, ready = world.running(), world.ready()
        world.cancel()
        for call in (ready, running):
            with pytest.raises(Cancelled, match="changed my mind"):
                world.start(call)
        world.record(running)
        with pytest.raises(Cancelled):
            world.start(ready)

    def test_starting_an_unknown_call_is_not_found(self, world: World) -> None:
        world.ready()
        with pytest.raises(NotFound):
            world.transact(Start(**RUN, calls=("none",), seen=("",), owner="w", lease=1))
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

    def test_recorded_call_keeps_its_first_result(self, world: World) -> None:
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

    def test_recording_an_unstarted_call_changes_nothing(self, world: World) -> None:
        call = world.ask()
        assert world.record(call).status is CallStatus.ASKED
        assert world.call(call).result is None
        with pytest.raises(NotFound):
            world.transact(Record(**RUN, call="none", token=1, attempt=1, ok=True, result="1"))

    def test_record_keeps_or_releases_the_lease(self, world: World) -> None:
        call = world.running()
        world.record(call, hold=True)
        assert world.run().owner == "w1"
        assert world.run().ready_at == world.clock() + LEASE
        world.record(world.running())
        assert world.run().owner is None

    def test_lease_stays_while_other_calls_run(self, world: World) -> None:
        first, second = world.start(world.ready(), world.ready())
        world.record(first)
        assert world.run().owner == "w1"
        world.record(second)
        assert world.run().owner is None

    def test_complete_starts_and_records_at_once(self, world: World) -> None:
        call = world.complete(world.decide(world.ask(tool="")))
        assert (call.status, call.result, call.attempt) == (CallStatus.DONE, "true", 1)
        assert world.events(call=call) == ["asked", "decided", "started", "recorded"]
        with world.unchanged():
            assert world.complete(call) == call

    # -- pauses inside a call

    def test_suspended_call_is_ready_again(self, world: World) -> None:
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

    def test_call_waiting_for_another_run_pauses_its_run(self, world: World) -> None:
        world.transact(Suspend(**attempt_of(world.running()), elsewhere=True))
        run = world.run()
        assert (run.status, run.owner, run.ready_at) == (RunStatus.PAUSED, None, None)

    def test_answer_before_the_pause_leaves_the_run_due(self, world: World) -> None:
        call = world.running()
        question = world.ask(kind="question", tool="")
        world.decide(question, "respond", value="blue")
        world.suspend(call)
        assert world.run().ready_at == world.clock()

    def test_only_the_attempt_itself_suspends(self, world: World) -> None:
        call = world.running()
        with world.unchanged():
            for other in (call._replace(token=call.token + 1), call._replace(attempt=2)):
                assert world.suspend(other).status is CallStatus.RUNNING
        world.record(call)
        assert world.suspend(call).status is CallStatus.DONE

    def test_pause_spends_no_second_grant_use(self, world: World) -> None:
        world.grant(uses_left=1)
        call = world.start(world.ask())[0]
        world.suspend(call)
        assert world.start(world.call(call))[0].status is CallStatus.RUNNING

    # -- in doubt

    def test_attempt_cut_short_is_in_doubt(self, world: World) -> None:
        call = world.running(expires_in=60)
        doubted = world.doubt(call, "it timed out")
        assert doubted == world.call(call)
        assert (doubted.status, doubted.asked) == (CallStatus.IN_DOUBT, True)
        assert doubted.expires_at is None
        assert world.run().status is RunStatus.PAUSED
        assert world.body("in_doubt")["reason"] == "it timed out"

    def test_doubt_does_not_expire(self, world: World) -> None:
        call = world.ask(expires_in=10)
        world.decide(call)
        world.doubt(world.start(call)[0])
        world.clock.advance(1_000)
        assert world.expire(call).status is CallStatus.IN_DOUBT
        assert world.store.overdue() == []
        assert world.decide(call).status is CallStatus.READY

    def test_idempotent_call_becomes_ready_again(self, world: World) -> None:
        call = world.running(effect="idempotent")
        ready = world.doubt(call)
        assert (ready.status, ready.asked) == (CallStatus.READY, False)
        assert world.run().ready_at == world.clock()
        assert world.events(call=call)[-2:] == ["in_doubt", "retried"]
        again = world.start(ready, owner="w2")[0]
        assert (again.status, again.attempt) == (CallStatus.RUNNING, 2)

    def test_doubt_about_another_attempt_is_ignored(self, world: World) -> None:
        call = world.running()
        with world.unchanged():
            for other in (call._replace(token=call.token + 1), call._replace(attempt=2)):
                assert world.doubt(other) == call

    def test_late_result_closes_an_open_doubt(self, world: World) -> None:
        done = world.record(world.doubted(), result='"after all"')
        assert (done.status, done.result) == (CallStatus.DONE, '"after all"')
        assert world.body("recorded")["late"] is True
        assert world.run().in_doubt == 0
        assert world.run().ready_at == world.clock()
        assert world.run().wake == 1

    def test_late_failure_closes_an_open_doubt(self, world: World) -> None:
        late = world.record(world.doubted(), ok=False, result="boom")
        assert late.status is CallStatus.FAILED

    @pytest.mark.parametrize("type", ["approve", "respond", "reject"])
    def test_late_result_after_a_decision_is_an_event(self, world: World, type: str) -> None:
        call = world.doubted()
        decided = world.decide(call, type, value="mine")
        after = world.record(call, result='"too late"', messages=(Message("r", "no"),))
        assert content(after) == content(decided)
        assert world.body("late")["result"] == '"too late"'
        assert world.store.messages("t") == []

    def test_earlier_attempt_cannot_record_a_later_one(self, world: World) -> None:
        first = world.doubted()
        second = world.start(world.decide(first), owner="w2")[0]
        assert world.record(first).status is CallStatus.RUNNING
        assert world.record(second, result="2").result == "2"

    def test_late_result_ends_votes_on_doubt(self, world: World) -> None:
        call = world.doubted(quorum=2)
        world.decide(call, by="ana")
        done = world.record(call)
        assert (done.status, done.votes) == (CallStatus.DONE, ())

    def test_short_lease_expires(self, world: World) -> None:
        call = world.running(lease=seconds(2))
        assert world.sweep() == ()
        world.clock.advance(2)
        assert [doubted.id for doubted in world.sweep()] == [call.id]


def again(world: World, caller: str, **new: Any) -> Call:
    """Make a call as an agent's hook does: under a new key, in a run that may have ended."""
    call = world.new(caller=caller, **new)
    propose = Propose(**RUN, agent="agent", calls=(call,), tools=(tool_of(call.tool),))
    _, (made,), _ = world.transact(Reopen(**RUN), propose, Finish(**RUN, status="done"))
    found: Call = made
    return found


class ReleaseTests:
    """``Release``, ``Defer`` and ``ReportResult``: calls that are gated here and run elsewhere."""

    def test_released_call_holds_no_lease_or_timer(self, world: World) -> None:
        call = world.ask(caller="use:1")
        world.decide(call)
        released = world.release(call, "use:1")
        assert (released.status, released.attempt) == (CallStatus.RELEASED, 1)
        run = world.run()
        assert (run.ready, run.running, run.owner) == (0, 0, None)
        assert run.ready_at is None
        assert world.events(call=call)[-1] == "released"
        world.clock.advance(10_000)
        assert world.store.overdue() == []
        assert world.sweep() == ()
        assert world.recover() == ()
        assert world.call(call).status is CallStatus.RELEASED

    def test_releasing_needs_no_lease_and_breaks_none(self, world: World) -> None:
        running = world.running(owner="w1")
        call = world.ready(caller="use:1")
        before = world.run()
        assert world.release(call).status is CallStatus.RELEASED
        after = world.run()
        assert (after.owner, after.token, after.ready_at) == (
            before.owner,
            before.token,
            before.ready_at,
        )
        assert world.record(running).status is CallStatus.DONE

    @pytest.mark.parametrize("status", [s for s in CallStatus if s is not CallStatus.READY])
    def test_only_approved_calls_are_released(self, world: World, status: CallStatus) -> None:
        call = world.in_state(status)
        assert content(world.release(call)) == content(call)

    def test_call_is_released_once(self, world: World) -> None:
        call = world.ready(caller="use:1")
        seen = world.mac_of(call)
        first = world.release(call)
        assert content(world.release(call, "use:2")) == content(first)
        again = Release(thread="t", run="r", call=call.id, seen=seen, caller="use:1")
        assert content(world.transact(again)[0]) == content(first)
        assert world.events(call=call).count("released") == 1

    def test_row_changed_since_the_check_is_not_released(self, world: World) -> None:
        call = world.ask()
        old = world.mac_of(call)
        world.decide(call)
        with pytest.raises(Conflict):
            world.transact(Release(thread="t", run="r", call=call.id, seen=old, caller="use:1"))
        assert world.call(call).status is CallStatus.READY

    def test_cancelled_run_releases_no_call(self, world: World) -> None:
        running = world.running()
        call = world.ready()
        world.cancel()
        with pytest.raises(Cancelled):
            world.release(call)
        assert world.call(call).status is CallStatus.CANCELLED
        world.record(running)

    def test_expired_approval_is_asked_again_at_release(self, world: World) -> None:
        call = world.ask(caller="use:1", valid_for=60.0)
        world.decide(call)
        world.clock.advance(60)
        row = world.release(call)
        assert (row.status, row.caller) == (CallStatus.ASKED, "use:1")
        assert row.rev == call.rev + 1

    def test_release_spends_a_grant_use(self, world: World) -> None:
        world.grant(uses_left=1)
        first, second = world.ask(caller="use:1"), world.ask(caller="use:2")
        assert world.release(first).status is CallStatus.RELEASED
        assert world.release(second).status is CallStatus.ASKED

    def test_released_call_holds_its_effect_key(self, world: World) -> None:
        first = world.release(world.ready(effect_key="/refund:1"))
        assert world.holder("/refund:1") == first.id
        second = world.release(world.ready(effect_key="/refund:1"))
        assert second.status is CallStatus.FAILED

    def test_approved_read_is_released(self, world: World) -> None:
        assert world.release(world.ready(effect="read")).status is CallStatus.RELEASED

    def test_final_release_closes_older_reads(self, world: World) -> None:
        (read,) = world.start(world.ready(effect="read"))
        read = world.record(read, ok=False, result="no answer", retry=True)
        call = world.ready()
        assert (read.status, call.status) == (CallStatus.READY, CallStatus.READY)
        world.reopen()
        release = Release(**RUN, call=call.id, seen=world.mac_of(call), caller="use:1")
        (released, _) = world.transact(release, Finish(**RUN, status="done"))
        assert released.status is CallStatus.RELEASED
        assert world.call(read).status is CallStatus.FAILED

    def test_released_call_accepts_one_report(self, world: World) -> None:
        call = world.release(world.ready(caller="use:1"))
        world.finish()
        assert world.store.released_call("r", "use:1") == world.call(call)
        reported = world.report(call, '"ok"')
        assert (reported.status, reported.result) == (CallStatus.RELEASED, '"ok"')
        assert world.report(call, '"other"').result == '"ok"'
        assert world.events(call=call)[-1] == "reported"

    @pytest.mark.parametrize("status", [s for s in CallStatus if s is not CallStatus.RELEASED])
    def test_unreleased_call_ignores_a_report(self, world: World, status: CallStatus) -> None:
        call = world.in_state(status)
        assert content(world.report(call)) == content(call)

    def test_newest_call_of_a_tool_use_is_reported(self, world: World) -> None:
        first = world.release(again(world, "use:1", verdict="allow"), "use:1")
        second = world.release(again(world, "use:1", verdict="allow"), "use:1")
        assert first.id != second.id
        assert world.store.released_call("r", "use:1") == second
        assert world.store.released_call("r", "use:2") is None
        assert world.store.released_call("other", "use:1") is None

    def test_prompt_finds_newest_unreported_use(self, world: World) -> None:
        first = world.release(again(world, "use:1", verdict="allow"), "use:1")
        content = (first.tool_digest, first.args_hash)
        assert world.store.released_use("r", *content) == first
        second = world.release(again(world, "use:2", verdict="allow"), "use:2")
        world.release(again(world, "args:1", verdict="allow"), "args:1")
        assert world.store.released_use("r", *content) == second
        world.report(second, '"ok"')
        assert world.store.released_use("r", *content) == first
        assert world.store.released_use("r", first.tool_digest, "other") is None
        assert world.store.released_use("r", "other", first.args_hash) is None
        assert world.store.released_use("other", *content) is None

    # -- the same call made again

    def test_same_tool_use_joins_its_open_request(self, world: World) -> None:
        call = again(world, "use:1")
        assert again(world, "use:1").id == call.id
        world.decide(call)
        assert again(world, "use:1").id == call.id

    def test_another_tool_use_is_another_request(self, world: World) -> None:
        call = again(world, "use:1")
        assert again(world, "use:2").id != call.id

    def test_without_ids_two_callers_are_two_requests(self, world: World) -> None:
        assert again(world, "args:1").id != again(world, "args:1").id

    @pytest.mark.parametrize("caller", ["use:2", "args:1"])
    def test_deferred_caller_finds_its_request(self, world: World, caller: str) -> None:
        call = again(world, "use:1")
        deferred = world.defer(call, "use:1")
        assert (deferred.status, deferred.caller) == (CallStatus.ASKED, LATER)
        joined = again(world, caller)
        assert (joined.id, joined.caller) == (call.id, caller)
        assert again(world, "use:9").id != call.id  # a caller waits for it again
        assert world.events(call=call) == ["asked", "deferred", "joined"]

    @pytest.mark.parametrize("type", ["approve", "edit", "reject", "respond"])
    def test_deferred_decision_is_delivered_once(self, world: World, type: str) -> None:
        call = again(world, "use:1")
        world.defer(call, "use:1")
        answers: dict[str, Any] = {"edit": {"args": {"to": "cy"}}, "respond": {"value": 2}}
        more = answers.get(type, {})
        decided = world.decide(call, type, **more)
        joined = again(world, "use:2")
        assert (joined.id, joined.status) == (call.id, decided.status)
        if decided.status is CallStatus.READY:
            world.release(joined, "use:2")
        world.check()
        assert again(world, "use:3").id != call.id
        assert again(world, "use:2").id != call.id  # a provider that repeats its ids

    def test_expired_request_is_delivered_once(self, world: World) -> None:
        call = again(world, "use:1", expires_in=60.0)
        world.defer(call, "use:1")
        world.clock.advance(60)
        world.expire(call)
        assert again(world, "use:2", expires_in=60.0).id == call.id
        assert again(world, "use:3", expires_in=60.0).id != call.id

    def test_equal_calls_get_separate_requests(self, world: World) -> None:
        first, second = again(world, "use:1"), again(world, "use:2")
        world.defer(second, "use:2")
        world.defer(first, "use:1")
        assert [again(world, f"use:{n}").id for n in (3, 4)] == [first.id, second.id]
        assert again(world, "use:5").id not in (first.id, second.id)

    @pytest.mark.parametrize(
        "other", [{"args": {"to": "cy"}}, {"tool": "pay"}, {"binds": '{"cwd":"/other"}'}]
    )
    def test_different_call_does_not_join_a_deferred_request(
        self, world: World, other: dict[str, object]
    ) -> None:
        call = again(world, "use:1")
        world.defer(call, "use:1")
        assert again(world, "use:1", **other).id != call.id
        assert again(world, "use:2").id == call.id

    def test_edited_request_is_joined_again(self, world: World) -> None:
        call = again(world, "use:1")
        world.defer(call, "use:1")
        world.decide(call, "edit", args={"to": "cy"})
        assert again(world, "use:2").args == '{"to":"cy"}'

    def test_other_run_does_not_join_a_deferred_request(self, world: World) -> None:
        call = again(world, "use:1")
        world.defer(call, "use:1")
        other = world.ask(run="r2", thread="t2", caller="use:1")
        assert other.id != call.id

    def test_only_the_waiting_caller_can_defer(self, world: World) -> None:
        call = again(world, "use:1")
        assert content(world.defer(call, "use:2")) == content(call)
        assert content(world.defer(call, "")) == content(call)
        plain = world.ask(run="r2", thread="t2")
        assert content(world.defer(plain, "")) == content(plain)

    @pytest.mark.parametrize("type", ["approve", "reject"])
    def test_decided_request_is_not_deferred(self, world: World, type: str) -> None:
        call = again(world, "use:1")
        decided = world.decide(call, type)
        assert content(world.defer(call, "use:1")) == content(decided)


_S = CallStatus

#: The new status after each command, by old status. In any other status the call is unchanged.
MOVED_BY: dict[str, dict[CallStatus, CallStatus]] = {
    "approve": {_S.ASKED: _S.READY, _S.IN_DOUBT: _S.READY},
    "edit": {_S.ASKED: _S.READY},
    "reject": {_S.ASKED: _S.REJECTED, _S.IN_DOUBT: _S.FAILED},
    "respond": {_S.ASKED: _S.RESPONDED, _S.IN_DOUBT: _S.DONE},
    "undo": {},
    "void_votes": {},
    "sign_again": {},
    "remind": {},
    "escalate": {},
    "review": {},  # its rule names no model
    "reask": {_S.READY: _S.ASKED},
    "start": {_S.READY: _S.RUNNING},
    "release": {_S.READY: _S.RELEASED},
    "complete": {_S.READY: _S.DONE},
    "record": {_S.RUNNING: _S.DONE, _S.IN_DOUBT: _S.DONE},
    "fail": {_S.RUNNING: _S.FAILED, _S.IN_DOUBT: _S.FAILED},
    "suspend": {_S.RUNNING: _S.READY},
    "mark_in_doubt": {_S.RUNNING: _S.IN_DOUBT},
    "settle": {_S.IN_DOUBT: _S.DONE},
    "release_lapsed": {_S.RUNNING: _S.IN_DOUBT},
    "claim": {_S.RUNNING: _S.IN_DOUBT},
    "recover": {_S.READY: _S.IN_DOUBT, _S.RUNNING: _S.IN_DOUBT},
    "expire": {_S.ASKED: _S.EXPIRED},
    "cancel": {_S.ASKED: _S.CANCELLED, _S.READY: _S.CANCELLED},
    "cancel_run": {_S.ASKED: _S.CANCELLED, _S.READY: _S.CANCELLED},
    "supersede": {_S.ASKED: _S.SUPERSEDED, _S.READY: _S.SUPERSEDED},
    "supersede_run": {_S.ASKED: _S.SUPERSEDED, _S.READY: _S.SUPERSEDED},
    "finish": {},
    "park": {},
    "reopen": {},
    "renew": {},
    "end_lease": {},
    "wake": {},
    "note_prompt": {},
    "propose": {},
    "defer": {},
    "report": {},
}


class MoveTests:
    """The table of moves, tested through the store."""

    @pytest.mark.parametrize("command", sorted(MOVED_BY))
    def test_every_command_on_every_status(self, world: World, command: str) -> None:
        for status in CallStatus:
            place = {"run": f"r-{status}", "thread": f"t-{status}"}
            call = world.in_state(status, **place)
            if command in ("expire", "release_lapsed", "claim", "settle"):
                world.clock.advance(100)
            changed = True
            try:
                _act(world, command, call)
            except SaysoError:
                changed = False
            wanted = MOVED_BY[command].get(status, status)
            now = world.call(call)
            assert now.status is wanted, f"{command} on {status}"
            assert changed or now == call
            world.check()

    def test_no_command_reopens_a_closed_call(self, world: World) -> None:
        """No sequence of commands reopens a closed call."""
        left = {status for moves in MOVED_BY.values() for status in moves}
        for status in (status for status in CallStatus if status not in left):
            place = {"run": f"r-{status}", "thread": f"t-{status}"}
            call = world.in_state(status, **place)
            for command in MOVED_BY:
                if (status, command) == (_S.RELEASED, "report"):
                    continue  # its result may arrive later
                try:
                    _act(world, command, call)
                except SaysoError:
                    continue
            assert content(world.call(call)) == content(call)


def _act(world: World, command: str, call: Call) -> object:
    place: dict[str, Any] = {"run": call.run, "thread": call.thread}
    answers: dict[str, Any] = {"edit": {"args": {"to": "cy"}}, "respond": {"value": 2}}
    acts: dict[str, Callable[[], object]] = {
        "reask": lambda: world.transact(Reask(**place, call=call.id, reason="again")),
        "undo": lambda: world.transact(Undo(**place, call=call.id, by=Reviewer("ana"))),
        "void_votes": lambda: world.transact(VoidVotes(**place, call=call.id)),
        "sign_again": lambda: world.transact(SignAgain(**place, call=call.id, by="root")),
        "remind": lambda: world.transact(Remind(**place, call=call.id)),
        "escalate": lambda: world.transact(Escalate(**place, call=call.id)),
        "review": lambda: world.review(call, "reject"),
        "note_prompt": lambda: world.prompt(**place),
        "start": lambda: world.start(call),
        "release": lambda: world.release(call),
        "defer": lambda: world.defer(call, call.caller),
        "report": lambda: world.report(call),
        "complete": lambda: world.complete(call),
        "record": lambda: world.record(call, result="2"),
        "fail": lambda: world.record(call, ok=False, result="boom"),
        "suspend": lambda: world.suspend(call),
        "mark_in_doubt": lambda: world.doubt(call),
        "settle": lambda: world.settle(call, "ran", result="2"),
        "release_lapsed": lambda: world.sweep(**place),
        "claim": lambda: world.claim("w2", **place),
        "recover": lambda: world.recover(**place),
        "expire": lambda: world.expire(call),
        "cancel": lambda: world.cancel(call),
        "cancel_run": lambda: world.cancel(**place),
        "supersede": lambda: world.cancel(call, superseded=True),
        "supersede_run": lambda: world.cancel(**place, superseded=True),
        "finish": lambda: world.finish(**place),
        "park": lambda: world.transact(Park(**place, token=world.run(call.run).token)),
        "reopen": lambda: world.transact(Reopen(**place)),
        "renew": lambda: world.renew(call.token, **place),
        "end_lease": lambda: world.end_lease(call.token, **place),
        "wake": lambda: world.transact(Wake(**place)),
        "propose": lambda: world.ask(key=call.key, **place),
    }
    if command in acts:
        return acts[command]()
    return world.decide(call, command, "bo", **answers.get(command, {}))
