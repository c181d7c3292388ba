"""Refusals: a person's rejection counts for equal calls, and is shown once it no longer does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sayso.engine.commands import Finish, LiftRefusal, Propose, Reopen
from sayso.engine.refusals import MOST_SHOWN, connection_scope
from sayso.errors import Cancelled, Conflict, NotAllowed, NotFound
from sayso.rows import Call, CallStatus, Run
from sayso.types import Refusal, Reviewer
from sayso_testing.world import World, seconds, tool_of

_S = CallStatus
_HOUR = seconds(3600)


def _reject(world: World, message: str = "a fraudster", by: str = "ana", **new: Any) -> Call:
    return world.decide(world.ask(**new), "reject", by, message=message)


def _reopen(world: World, *, same_scope: bool = False, run: str = "r", thread: str = "t") -> None:
    stored = world.run(run)
    finish = Finish(thread=thread, run=run, status="done", token=stored.token)
    world.transact(finish, Reopen(thread=thread, run=run, same_scope=same_scope))


def _only(world: World) -> Refusal:
    ((_, refusal),) = world.store.refusals()
    return refusal


class RefusalTests:
    """``Refusal`` rows: who makes them, what they reject, when they end, who overturns them."""

    def test_rejection_stores_refusal(self, world: World) -> None:
        call = _reject(world)
        refusal = _only(world)
        content = (refusal.agent, refusal.tool, refusal.tool_digest, refusal.args_hash)
        assert content == (call.agent, call.tool, call.tool_digest, call.args_hash)
        assert (refusal.request, refusal.run, refusal.thread) == (call.id, "r", "t")
        assert (refusal.by, refusal.message, refusal.lifted) == ("ana", "a fraudster", None)
        assert world.store.refusal(refusal.id) == refusal
        assert world.store.refusals_of(*content[:2], call.args_hash) == [refusal]

    def test_equal_call_is_rejected_again(self, world: World) -> None:
        first = _reject(world)
        for _ in range(8):
            again = world.ask()
            assert (again.id != first.id, again.status, again.asked) == (True, _S.REJECTED, False)
            assert again.decision is not None
            assert (again.decision.by, again.decision.message) == ("ana", "a fraudster")
        assert len(world.store.refusals()) == 1

    @pytest.mark.parametrize(
        "other", [{"args": {"to": "eve"}}, {"tool": "pay"}, {"kind": "question", "tool": ""}]
    )
    def test_other_call_is_asked(self, world: World, other: dict[str, Any]) -> None:
        _reject(world)
        assert (world.ask(**other).status, world.ask(**other).refusals) == (_S.ASKED, ())

    def test_other_agent_is_asked(self, world: World) -> None:
        _reject(world)
        (call,) = world.propose(world.new(), agent="another")
        assert (call.status, call.refusals) == (_S.ASKED, ())

    def test_changed_tool_stays_refused(self, world: World) -> None:
        _reject(world)
        changed = replace(world.new(), tool_digest=tool_of("send", "v2").digest)
        (call,) = world.propose(changed)
        assert call.status is _S.REJECTED

    # -- what makes no refusal

    def test_question_makes_no_refusal(self, world: World) -> None:
        _reject(world, tool="", kind="question")
        assert world.store.refusals() == []

    def test_expired_request_makes_no_refusal(self, world: World) -> None:
        world.in_state(_S.EXPIRED)
        assert world.store.refusals() == []

    def test_policy_denial_makes_no_refusal(self, world: World) -> None:
        world.ask(verdict="deny")
        assert world.store.refusals() == []

    def test_rejecting_a_doubt_makes_no_refusal(self, world: World) -> None:
        world.decide(world.doubted(), "reject")
        assert world.store.refusals() == []

    def test_quorum_makes_one_refusal(self, world: World) -> None:
        call = world.ask(quorum=2)
        world.decide(call, "approve", "bo")
        world.decide(call, "reject")
        assert _only(world).by == "ana"

    # -- what it beats

    def test_refusal_beats_allow(self, world: World) -> None:
        _reject(world)
        assert world.ready().status is _S.REJECTED

    def test_refusal_beats_free_read(self, world: World) -> None:
        _reject(world, effect="read")
        (call,) = world.propose(world.new(verdict="allow", effect="read", outcome=(True, "1")))
        assert (call.status, call.result) == (_S.REJECTED, None)

    def test_refusal_beats_grant(self, world: World) -> None:
        _reject(world)
        world.grant()
        assert world.ask().status is _S.REJECTED

    def test_ended_refusal_still_beats_allow_and_grant(self, world: World) -> None:
        _reject(world)
        world.grant()
        world.prompt()
        allowed = world.ready()
        assert (allowed.status, allowed.refusals) == (_S.ASKED, (_only(world).id,))
        assert world.ask().status is _S.ASKED

    def test_start_in_the_same_commit_is_refused(self, world: World) -> None:
        _reject(world)
        command = Propose(
            thread="t",
            run="r",
            agent="agent",
            calls=(world.new(verdict="allow"),),
            tools=(tool_of("send"),),
            owner="w1",
            lease=seconds(10),
        )
        ((call,),) = world.transact(command)
        assert (call.status, call.attempt) == (_S.REJECTED, 0)

    # -- how long it is in force

    def test_prompt_ends_refusal(self, world: World) -> None:
        _reject(world)
        world.prompt()
        again = world.ask()
        assert (again.status, again.refusals) == (_S.ASKED, (_only(world).id,))

    def test_same_prompt_ends_refusal_once(self, world: World) -> None:
        world.propose()
        world.prompt(prompt="1")
        _reject(world)
        with world.unchanged():
            world.prompt(prompt="1")
        assert world.ask().status is _S.REJECTED
        world.prompt(prompt="2")
        assert world.ask().status is _S.ASKED

    def test_prompt_to_no_run_is_ignored(self, world: World) -> None:
        assert world.prompt(run="none", thread="none") is None

    def test_reopened_run_ends_refusal(self, world: World) -> None:
        _reject(world)
        _reopen(world)
        again = world.ask()
        assert (again.status, again.refusals) == (_S.ASKED, (_only(world).id,))

    def test_run_reopened_for_another_call_keeps_refusal(self, world: World) -> None:
        _reject(world)
        _reopen(world, same_scope=True)
        assert world.ask().status is _S.REJECTED

    def test_other_run_is_asked_and_shown(self, world: World) -> None:
        _reject(world)
        again = world.ask(run="r2", thread="t2")
        assert (again.status, again.refusals) == (_S.ASKED, (_only(world).id,))

    def test_runs_of_one_connection_share_refusal(self, world: World) -> None:
        scope = connection_scope("c1")
        for run in ("r1", "r2"):
            world.propose(run=run, thread=run, scope=scope)
        _reject(world, run="r1", thread="r1")
        assert world.ask(run="r2", thread="r2").status is _S.REJECTED
        assert world.ask(run="r3", thread="r3").status is _S.ASKED
        world.clock.advance(3600)
        assert world.ask(run="r1", thread="r1").status is _S.ASKED

    def test_remote_refusal_ends_after_an_hour(self, world: World) -> None:
        remote = {"binds": '{"body":"x"}'}
        call = _reject(world, **remote)
        assert call.decision is not None
        assert _only(world).ends == call.decision.at + _HOUR
        world.clock.advance(3599)
        reopen = Reopen(run="r", thread="t", by="bot", same_scope=True)
        world.transact(reopen)  # as every request of a remote agent does
        assert world.ask(**remote).status is _S.REJECTED
        world.clock.advance(1)
        world.transact(reopen)
        assert world.ask(**remote).status is _S.ASKED

    def test_hook_refusal_has_no_end(self, world: World) -> None:
        _reject(world, binds='{"body":"x"}', caller="use:1")
        assert _only(world).ends is None

    # -- calls that were open before

    def test_pending_equal_call_shows_refusal(self, world: World) -> None:
        first, other = world.ask(), world.ask()
        world.decide(first, "reject")
        shown = world.call(other)
        assert (shown.status, shown.rev, shown.refusals) == (_S.ASKED, 2, (_only(world).id,))
        assert shown.digest != other.digest
        approved = world.decide(shown)
        assert (approved.status, world.start(approved)[0].status) == (_S.READY, _S.RUNNING)

    @pytest.mark.parametrize("verdict", ["ask", "allow"])
    def test_ready_equal_call_is_asked_again(self, world: World, verdict: str) -> None:
        first, ready = world.ask(), world.ask(verdict=verdict)
        if verdict == "ask":
            ready = world.decide(ready, by="bo")
        world.decide(first, "reject")
        again = world.call(ready)
        assert (again.status, again.refusals) == (_S.ASKED, (_only(world).id,))

    def test_equal_requests_stay_rejectable_as_seen(self, world: World) -> None:
        calls = [world.ask() for _ in range(3)]
        for call in calls:
            rejected = world.decide(call, "reject", seen_digest=call.digest)
            assert rejected.status is _S.REJECTED

    def test_rejecter_approves_equal_request_as_seen(self, world: World) -> None:
        first, other = world.ask(), world.ask()
        world.decide(first, "reject")
        with pytest.raises(Conflict, match="not what you saw"), world.unchanged():
            world.decide(other, by="bo", seen_digest=other.digest)
        approved = world.decide(other, by="ana", seen_digest=other.digest)
        assert world.start(approved)[0].status is _S.RUNNING

    def test_approval_survives_rejection_by_the_same_person(self, world: World) -> None:
        first, other = world.ask(), world.ask()
        approved = world.decide(first)
        world.decide(other, "reject")
        assert world.start(approved)[0].status is _S.RUNNING

    def test_running_equal_call_finishes(self, world: World) -> None:
        first, running = world.ask(), world.running()
        world.decide(first, "reject")
        assert world.record(running).status is _S.DONE

    def test_start_finds_refusal_of_another_run(self, world: World) -> None:
        scope = connection_scope("c1")
        for run in ("r1", "r2"):
            world.propose(run=run, thread=run, scope=scope)
        ready = world.decide(world.ask(run="r1", thread="r1"), by="bo")
        _reject(world, run="r2", thread="r2")
        (again,) = world.start(ready)
        assert (again.status, again.attempt) == (_S.ASKED, 0)
        assert again.refusals == (_only(world).id,)
        assert world.start(world.decide(again))[0].status is _S.RUNNING

    # -- overturning and lifting

    def test_approval_overturns_refusal(self, world: World) -> None:
        _reject(world)
        world.prompt()
        approved = world.decide(world.ask(), by="bo")
        assert approved.status is _S.READY
        assert world.store.refusals() == []
        ((_, refusal),) = world.store.refusals(lifted=True)
        assert (refusal.lifted, refusal.lifted_by) == (approved.decision and world.clock(), "bo")
        assert world.ask().refusals == ()

    def test_answer_does_not_overturn_refusal(self, world: World) -> None:
        _reject(world)
        world.prompt()
        world.decide(world.ask(), "respond", value=1)
        assert _only(world).lifted is None

    def test_only_rejecter_or_admin_overturns(self, world: World) -> None:
        _reject(world, overturn="rejecter")
        world.prompt()
        again = world.ask(overturn="rejecter")
        with pytest.raises(NotAllowed, match="ana"), world.unchanged():
            world.decide(again, by="bo")
        admin = world.reviewer("cy", role="admin")
        assert world.decide(again, by=admin).status is _S.READY
        _reject(world, overturn="rejecter", args={"to": "eve"})
        world.prompt()
        assert world.decide(world.ask(args={"to": "eve"}), by="ana").status is _S.READY

    def test_edit_into_refused_arguments_is_shown_first(self, world: World) -> None:
        _reject(world, args={"to": "eve"})
        edited = world.decide(world.ask(), "edit", "bo", args={"to": "eve"})
        assert (edited.status, edited.refusals) == (_S.ASKED, (_only(world).id,))
        assert world.decide(edited, by="bo").status is _S.READY
        assert world.store.refusals() == []

    def test_edit_into_refused_arguments_obeys_overturn(self, world: World) -> None:
        _reject(world, args={"to": "eve"}, overturn="rejecter")
        edited = world.decide(world.ask(), "edit", "bo", args={"to": "eve"})
        with pytest.raises(NotAllowed, match="ana"):
            world.decide(edited, by="bo")
        assert world.decide(edited, by="ana").status is _S.READY

    def test_edit_away_from_refused_arguments_overturns_nothing(self, world: World) -> None:
        _reject(world)
        world.prompt()
        edited = world.decide(world.ask(), "edit", "bo", args={"to": "cy"})
        assert (edited.status, edited.refusals) == (_S.READY, ())
        assert _only(world).lifted is None

    def test_edited_call_is_refused_by_its_original_arguments(self, world: World) -> None:
        edited = world.decide(world.ask(quorum=2), "edit", "bo", args={"to": "cy"})
        world.decide(edited, "reject")
        assert world.ask().status is _S.REJECTED

    def test_lifted_refusal_is_over(self, world: World) -> None:
        _reject(world)
        lift = LiftRefusal(refusal=_only(world).id, by=Reviewer("bo"))
        (lifted,) = world.transact(lift)
        assert (lifted.lifted, lifted.lifted_by) == (world.clock(), "bo")
        with world.unchanged():
            world.transact(lift)
        again = world.ask()
        assert (again.status, again.refusals, world.store.refusals()) == (_S.ASKED, (), [])

    def test_only_rejecter_lifts_strict_refusal(self, world: World) -> None:
        _reject(world, overturn="rejecter")
        refusal = _only(world)
        with pytest.raises(NotAllowed, match="ana"), world.unchanged():
            world.transact(LiftRefusal(refusal=refusal.id, by=Reviewer("bo")))
        world.transact(LiftRefusal(refusal=refusal.id, by=Reviewer("ana")))
        assert world.store.refusals() == []

    def test_missing_refusal_cannot_be_lifted(self, world: World) -> None:
        with pytest.raises(NotFound, match="sayso grants"):
            world.transact(LiftRefusal(refusal="ref_none", by=Reviewer("bo")))

    # -- lists

    def test_people_see_the_newest_refusals(self, world: World) -> None:
        for number in range(MOST_SHOWN + 2):
            _reject(world, message=f"no {number}", run=f"r{number}", thread=f"t{number}")
            world.clock.advance(1)
        again = world.ask()
        refusals = [world.store.refusal(name) for name in again.refusals]
        newest = [refusal.message for refusal in refusals if refusal is not None]
        assert newest == [f"no {MOST_SHOWN + 1 - n}" for n in range(MOST_SHOWN)]
        world.decide(again)
        assert world.store.refusals() == []

    def test_refusals_are_paged(self, world: World) -> None:
        for number in range(5):
            _reject(world, args={"to": number})
            world.clock.advance(1)
        first = world.store.refusals(limit=3)
        second = world.store.refusals(after=first[-1][0], limit=3)
        requests = [refusal.request for _, refusal in (*first, *second)]
        assert requests == sorted(requests, reverse=True)
        assert len(requests) == 5
        assert len(world.store.all_refusals(limit=2)) == 2

    # -- rejections in a row

    def test_rejections_in_a_row_end_the_asking(self, world: World) -> None:
        limit: dict[str, Any] = {"max_rejections": 2}
        for number in range(2):
            _reject(world, args={"to": number}, **limit)
        refused = world.ask(args={"to": 2}, **limit)
        assert refused.decision is not None
        assert (refused.status, refused.decision.type) == (_S.REJECTED, "deny")
        assert "rejected 2 calls of send in a row" in refused.decision.message
        assert world.ask(args={"to": 3}).status is _S.ASKED
        assert world.ask(tool="pay", **limit).status is _S.ASKED
        world.prompt()
        assert world.ask(args={"to": 4}, **limit).status is _S.ASKED

    def test_approval_resets_the_rejection_count(self, world: World) -> None:
        limit: dict[str, Any] = {"max_rejections": 2}
        _reject(world, args={"to": 1}, **limit)
        world.decide(world.ask(args={"to": 2}, **limit))
        _reject(world, args={"to": 3}, **limit)
        assert world.ask(args={"to": 4}, **limit).status is _S.ASKED

    def test_rejected_commands_are_counted_by_program(self, world: World) -> None:
        limit: dict[str, Any] = {"max_rejections": 1}
        _reject(world, args={"command": "FOO=1 /usr/bin/git push"}, **limit)
        assert world.ask(args={"command": "git pull"}, **limit).status is _S.REJECTED
        assert world.ask(args={"command": "ls"}, **limit).status is _S.ASKED

    # -- rejecting and stopping

    def test_rejection_stops_the_run(self, world: World) -> None:
        call, other, ready = world.ask(), world.ask(tool="pay"), world.ready(tool="pay")
        world.decide(call, "reject", stop=True, message="no")
        run: Run = world.run()
        assert (run.status, world.call(other).status) == ("cancelled", _S.CANCELLED)
        assert world.call(ready).status is _S.CANCELLED
        rejected = world.call(call)
        assert rejected.decision is not None
        assert (rejected.status, rejected.decision.stop) == (_S.REJECTED, True)
        assert _only(world).request == call.id
        with pytest.raises(Cancelled):
            world.ask()

    def test_running_call_of_stopped_run_is_recorded(self, world: World) -> None:
        running, call = world.running(), world.ask(tool="pay")
        world.decide(call, "reject", stop=True)
        assert world.record(running).status is _S.DONE
        assert world.run().status == "cancelled"

    def test_refusal_survives_reopening_and_pruning_removes_it(self, world: World) -> None:
        _reject(world)
        refusal = _only(world)
        world.reopen()
        assert _only(world) == refusal
        stored = world.run()
        world.transact(Finish(thread="t", run="r", status="done", token=stored.token))
        world.clock.advance(100)
        world.store.prune(world.clock(), "ops")
        assert world.store.refusals(lifted=True) == []
