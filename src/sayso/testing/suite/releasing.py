"""Calls that another agent runs itself: released, deferred, joined, reported."""

from __future__ import annotations

from typing import Any

import pytest

from sayso.engine.commands import Finish, Propose, Release, Reopen
from sayso.errors import Cancelled, Conflict
from sayso.rows import LATER, Call, CallStatus
from sayso.testing.world import World, content, tool_of


def again(world: World, caller: str, **new: Any) -> Call:
    """Make a call as an agent's hook does: under a new key, in a run that may have ended."""
    call = world.new(caller=caller, **new)
    propose = Propose(
        thread="t", run="r", agent="agent", calls=(call,), tools=(tool_of(call.tool),)
    )
    _, (made,), _ = world.transact(
        Reopen(thread="t", run="r"), propose, Finish(thread="t", run="r", status="done")
    )
    found: Call = made
    return found


class Releasing:
    """What becomes of a call that is gated here and runs elsewhere."""

    def test_a_released_call_is_over_and_holds_nothing(self, world: World) -> None:
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
        world.check()

    def test_it_needs_no_lease_and_leaves_that_of_others_alone(self, world: World) -> None:
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
        world.check()

    @pytest.mark.parametrize("status", [s for s in CallStatus if s is not CallStatus.READY])
    def test_only_what_was_approved_is_released(self, world: World, status: CallStatus) -> None:
        call = world.in_state(status)
        assert content(world.release(call)) == content(call)
        world.check()

    def test_once(self, world: World) -> None:
        call = world.ready(caller="use:1")
        seen = world.mac_of(call)
        first = world.release(call)
        assert content(world.release(call, "use:2")) == content(first)
        again = Release(thread="t", run="r", call=call.id, seen=seen, caller="use:1")
        assert content(world.transact(again)[0]) == content(first)
        assert world.events(call=call).count("released") == 1

    def test_not_the_row_that_was_checked(self, world: World) -> None:
        call = world.ask()
        old = world.mac_of(call)
        world.decide(call)
        with pytest.raises(Conflict):
            world.transact(Release(thread="t", run="r", call=call.id, seen=old, caller="use:1"))
        assert world.call(call).status is CallStatus.READY

    def test_not_in_a_run_that_was_cancelled(self, world: World) -> None:
        running = world.running()
        call = world.ready()
        world.cancel()
        with pytest.raises(Cancelled):
            world.release(call)
        assert world.call(call).status is CallStatus.CANCELLED
        world.record(running)

    def test_an_approval_that_is_too_old_is_asked_about_again(self, world: World) -> None:
        call = world.ask(caller="use:1", valid_for=60.0)
        world.decide(call)
        world.clock.advance(60)
        row = world.release(call)
        assert (row.status, row.caller) == (CallStatus.ASKED, "use:1")
        assert row.rev == call.rev + 1
        world.check()

    def test_a_grant_is_used_up(self, world: World) -> None:
        world.grant(uses_left=1)
        first, second = world.ask(caller="use:1"), world.ask(caller="use:2")
        assert world.release(first).status is CallStatus.RELEASED
        assert world.release(second).status is CallStatus.ASKED
        world.check()

    def test_an_effect_key_is_taken_for_good(self, world: World) -> None:
        first = world.release(world.ready(effect_key="/refund:1"))
        held = world.store.effect("/refund:1")
        assert held is not None
        assert held.call == first.id
        second = world.release(world.ready(effect_key="/refund:1"))
        assert second.status is CallStatus.FAILED
        world.check()

    def test_a_read_is_released_too(self, world: World) -> None:
        assert world.release(world.ready(effect="read")).status is CallStatus.RELEASED
        world.check()

    def test_a_result_may_be_reported_once_also_after_the_run(self, world: World) -> None:
        call = world.release(world.ready(caller="use:1"))
        world.finish()
        assert world.store.released_call("r", "use:1") == world.call(call)
        reported = world.report(call, '"ok"')
        assert (reported.status, reported.result) == (CallStatus.RELEASED, '"ok"')
        assert world.report(call, '"other"').result == '"ok"'
        assert world.events(call=call)[-1] == "reported"
        world.check()

    @pytest.mark.parametrize("status", [s for s in CallStatus if s is not CallStatus.RELEASED])
    def test_no_other_call_takes_a_report(self, world: World, status: CallStatus) -> None:
        call = world.in_state(status)
        assert content(world.report(call)) == content(call)

    def test_the_newest_call_of_a_tool_use_is_reported(self, world: World) -> None:
        first = world.release(again(world, "use:1", verdict="allow"), "use:1")
        second = world.release(again(world, "use:1", verdict="allow"), "use:1")
        assert first.id != second.id
        found = world.store.released_call("r", "use:1")
        assert found is not None
        assert found.id == second.id
        assert world.store.released_call("r", "use:2") is None
        assert world.store.released_call("other", "use:1") is None

    # -- the same call made again

    def test_the_same_tool_use_joins_its_open_request(self, world: World) -> None:
        call = again(world, "use:1")
        assert again(world, "use:1").id == call.id
        world.decide(call)
        assert again(world, "use:1").id == call.id
        world.check()

    def test_another_tool_use_is_another_request(self, world: World) -> None:
        call = again(world, "use:1")
        assert again(world, "use:2").id != call.id

    def test_without_ids_two_callers_are_two_requests(self, world: World) -> None:
        assert again(world, "args:1").id != again(world, "args:1").id

    @pytest.mark.parametrize("caller", ["use:2", "args:1"])
    def test_a_caller_who_was_told_not_yet_finds_its_request(
        self, world: World, caller: str
    ) -> None:
        call = again(world, "use:1")
        deferred = world.defer(call, "use:1")
        assert (deferred.status, deferred.caller) == (CallStatus.ASKED, LATER)
        joined = again(world, caller)
        assert (joined.id, joined.caller) == (call.id, caller)
        assert again(world, "use:9").id != call.id  # somebody waits for it again
        assert world.events(call=call) == ["asked", "deferred", "joined"]
        world.check()

    @pytest.mark.parametrize("type", ["approve", "edit", "reject", "respond"])
    def test_the_answer_that_came_meanwhile_is_delivered_once(
        self, world: World, type: str
    ) -> None:
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
        world.check()

    def test_an_expired_request_is_delivered_once(self, world: World) -> None:
        call = again(world, "use:1", expires_in=60.0)
        world.defer(call, "use:1")
        world.clock.advance(60)
        world.expire(call)
        assert again(world, "use:2", expires_in=60.0).id == call.id
        assert again(world, "use:3", expires_in=60.0).id != call.id
        world.check()

    def test_two_callers_of_the_same_call_get_one_request_each(self, world: World) -> None:
        first, second = again(world, "use:1"), again(world, "use:2")
        world.defer(second, "use:2")
        world.defer(first, "use:1")
        assert [again(world, f"use:{n}").id for n in (3, 4)] == [first.id, second.id]
        assert again(world, "use:5").id not in (first.id, second.id)

    @pytest.mark.parametrize(
        "other", [{"args": {"to": "cy"}}, {"tool": "pay"}, {"binds": '{"cwd":"/other"}'}]
    )
    def test_another_call_does_not_find_it(self, world: World, other: dict[str, object]) -> None:
        call = again(world, "use:1")
        world.defer(call, "use:1")
        assert again(world, "use:1", **other).id != call.id
        assert again(world, "use:2").id == call.id

    def test_an_edit_does_not_hide_it(self, world: World) -> None:
        call = again(world, "use:1")
        world.defer(call, "use:1")
        world.decide(call, "edit", args={"to": "cy"})
        assert again(world, "use:2").args == '{"to":"cy"}'

    def test_not_from_another_run(self, world: World) -> None:
        call = again(world, "use:1")
        world.defer(call, "use:1")
        other = world.ask(run="r2", thread="t2", caller="use:1")
        assert other.id != call.id

    def test_only_the_caller_that_waits_is_told_not_yet(self, world: World) -> None:
        call = again(world, "use:1")
        assert content(world.defer(call, "use:2")) == content(call)
        assert content(world.defer(call, "")) == content(call)
        plain = world.ask(run="r2", thread="t2")
        assert content(world.defer(plain, "")) == content(plain)

    @pytest.mark.parametrize("type", ["approve", "reject"])
    def test_what_was_decided_is_not_deferred(self, world: World, type: str) -> None:
        call = again(world, "use:1")
        decided = world.decide(call, type)
        assert content(world.defer(call, "use:1")) == content(decided)
