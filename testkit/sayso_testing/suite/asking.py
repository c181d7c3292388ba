"""Proposing calls: asked, allowed, denied, or approved by a grant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sayso import codec
from sayso.engine.commands import AddGrant, Reask, Reopen, RevokeGrant
from sayso.errors import Cancelled, Conflict, NotFound, Tampered
from sayso.rows import CallStatus, RunStatus
from sayso.types import Grant, Terms
from sayso_testing.world import LEASE, RUN, SECOND, World, tool_of


class AskTests:
    """``Propose`` and ``Reask``."""

    def test_call_that_needs_a_person_is_asked(self, world: World) -> None:
        call = world.ask(expires_in=60, rule="mail", reviewers=("ana",), note="please")
        assert call == world.call(call)
        assert call.status is CallStatus.ASKED
        assert call.asked
        assert call.created == world.clock()
        assert call.expires_at == world.clock() + 60 * SECOND
        assert (call.rev, call.attempt, call.votes, call.decision) == (1, 0, (), None)
        assert world.run().status is RunStatus.PAUSED
        assert world.run().ready_at is None
        assert world.events() == ["asked"]
        assert world.body("asked")["digest"] == call.digest

    def test_allowed_call_is_ready_and_due(self, world: World) -> None:
        call = world.ready()
        assert call.status is CallStatus.READY
        assert not call.asked
        assert call.decision is not None
        assert call.decision.type == "allow"
        assert call.valid_until == world.clock() + 86_400 * SECOND
        assert world.run().status is RunStatus.RUNNING
        assert world.run().ready_at == world.clock()

    def test_call_denied_by_policy_is_rejected(self, world: World) -> None:
        call = world.ask(verdict="deny", rule="never", description="no mail at night")
        assert call.status is CallStatus.REJECTED
        assert not call.asked
        assert call.decision is not None
        assert (call.decision.type, call.decision.by) == ("deny", "policy:never")
        assert call.decision.message == "no mail at night"
        assert world.events() == ["denied"]

    def test_several_calls_are_one_commit(self, world: World) -> None:
        new = [world.new(verdict=verdict) for verdict in ("ask", "allow", "deny")]
        calls = world.propose(*new)
        assert [call.status for call in calls] == ["asked", "ready", "rejected"]
        assert [call.id for call in calls] == [proposed.id for proposed in new]
        assert world.store.calls_of("r") == list(calls)
        keys = [call.key for call in calls]
        assert world.store.calls_of("r", keys) == list(calls)
        assert world.store.calls_of("r", [keys[1], "none", keys[0]]) == list(calls[:2])
        assert world.store.calls_of("r", keys[:1]) == [calls[0]]
        assert world.store.calls_of("r", []) == world.store.calls_of("r2", keys) == []
        run = world.run()
        assert (run.asked, run.ready, run.running, run.in_doubt) == (1, 1, 0, 0)

    def test_run_and_the_thread_store_the_requester(self, world: World) -> None:
        world.propose(
            world.new(), requester="zoe", agent_digest="d1", parent_call="req_up", snapshot="{}"
        )
        run = world.run()
        assert (run.thread, run.agent, run.requester) == ("t", "agent", "zoe")
        assert (run.agent_digest, run.parent_call, run.snapshot) == ("d1", "req_up", "{}")
        assert run.created == world.clock()
        assert [t.owner for t in world.store.threads() if t.id == "t"] == ["zoe"]
        world.propose(world.new(), requester="eve", snapshot='{"n":2}')
        assert world.run().requester == "zoe"
        assert world.run().snapshot == '{"n":2}'
        assert [t.owner for t in world.store.threads() if t.id == "t"] == ["zoe"]

    def test_messages_are_appended_in_order(self, world: World) -> None:
        world.propose(world.new(), says=("one", "two"))
        world.propose(says=("three",))
        world.propose(says=("elsewhere",), thread="t2", run="r2")
        assert world.store.messages("t") == [(1, "one"), (2, "two"), (3, "three")]
        assert world.store.messages("t", after=2) == [(3, "three")]
        assert world.store.messages_beyond("t", 2, 2) == [(3, "three")]
        assert world.store.messages_beyond("t", 3, 3) == []
        assert world.store.messages_beyond("t", 2, 1) is None
        assert world.store.messages_beyond("t", 7, 7) is None
        assert world.store.messages("t2") == [(1, "elsewhere")]
        assert world.store.messages("nowhere") == []

    def test_last_run_is_live_or_latest(self, world: World) -> None:
        store = world.store
        assert store.last_run("t") is None
        world.propose(says=("one",))
        assert store.last_run("t") == world.run()
        world.finish()
        assert store.last_run("t") == world.run()
        world.propose(world.new(), run="r2")
        assert store.last_run("t") == world.run("r2")
        world.cancel(run="r2")
        assert store.last_run("t") == world.run("r")

    def test_equal_tools_are_stored_once(self, world: World) -> None:
        world.ask("send")
        world.ask("send")
        world.ask("delete")
        for name in ("send", "delete"):
            assert world.store.tool(tool_of(name).digest) == tool_of(name)
        assert world.store.tool("none") is None

    def test_same_key_is_the_same_call(self, world: World) -> None:
        first = world.ask(key="k")
        with world.unchanged():
            assert world.ask(key="k") == first
        world.decide(first)
        assert world.ask(key="k").status is CallStatus.READY
        assert world.store.call_by_key("r", "k") == world.call(first)
        assert world.store.call_by_key("r", "none") is None
        assert world.store.call_by_key("r2", "k") is None

    def test_equal_keys_in_commit_are_one_call(self, world: World) -> None:
        first, second = world.propose(world.new(key="k"), world.new(key="k"))
        assert first == second
        assert world.store.calls_of("r") == [first]

    def test_same_key_in_another_run_is_another_call(self, world: World) -> None:
        first = world.ask(key="k")
        second = world.ask(key="k", run="r2", thread="t2", args={"to": "someone else"})
        assert first.id != second.id

    @pytest.mark.parametrize(
        "other", [{"args": {"to": "eve"}}, {"tool": "delete"}, {"kind": "question"}]
    )
    def test_same_key_with_other_content_is_a_conflict(
        self, world: World, other: dict[str, object]
    ) -> None:
        world.ask(key="k")
        with world.unchanged(), pytest.raises(Conflict, match="'k'"):
            world.propose(world.new(), world.new(**{"key": "k", **other}))  # type: ignore[arg-type]

    def test_edited_call_matches_its_original_arguments(self, world: World) -> None:
        call = world.ask(key="k", args={"to": "bo"})
        world.decide(call, "edit", args={"to": "cy"})
        assert world.ask(key="k", args={"to": "bo"}).id == call.id
        with pytest.raises(Conflict):
            world.ask(key="k", args={"to": "cy"})

    def test_duplicate_call_id_conflicts(self, world: World) -> None:
        world.ask(id="req_x")
        with world.unchanged():
            with pytest.raises(Conflict):
                world.ask(id="req_x", run="r2", thread="t2")
            assert world.store.run("r2") is None
            del world.runs["r2"]

    def test_second_live_run_of_a_thread_conflicts(self, world: World) -> None:
        world.ask()
        with world.unchanged():
            with pytest.raises(Conflict):
                world.ask(run="r2")
            assert world.store.run("r2") is None
            assert world.store.live_run("t") == world.run("r")
            del world.runs["r2"]

    def test_finished_run_accepts_calls_only_after_reopen(self, world: World) -> None:
        known = world.new()
        world.propose(known)
        world.cancel(world.store.calls_of("r")[0])
        finished = world.finish(output='"fine"')
        assert finished.output == '"fine"'
        assert world.store.live_run("t") is None
        before = world.everything()
        for late in (lambda: world.ask(), lambda: world.propose(known, says=("late",))):
            with pytest.raises(Conflict, match="is done: reopen it"):
                late()
        assert world.claim(force=True) is None
        assert world.everything() == before
        assert world.propose(known)[0].key == known.key  # a call that exists is not proposed again
        assert world.everything() == before

        world.propose(world.new(), run="r2")
        reopen = Reopen(thread="t", run="r", by="ana")
        with pytest.raises(Conflict):
            world.transact(reopen)
        world.cancel(run="r2")
        world.transact(reopen)
        assert (world.run().output, world.run().status) == (None, RunStatus.RUNNING)
        assert world.events()[-1] == "reopened"
        with pytest.raises(Conflict, match="taken over"):
            world.finish(token=finished.token)  # the token from before the reopening is stale
        assert world.ask().status is CallStatus.ASKED
        world.transact(reopen)  # reopening a live run changes nothing
        assert world.run().status is RunStatus.PAUSED

    def test_cancelled_run_refuses_new_calls(self, world: World) -> None:
        world.ask()
        world.cancel()
        with world.unchanged(), pytest.raises(Cancelled, match="changed my mind"):
            world.ask()

    def test_fresh_run_must_not_exist(self, world: World) -> None:
        (call,) = world.propose(world.new(), run="fresh", thread="fresh", fresh=True)
        assert call == world.call(call)
        with world.unchanged(), pytest.raises((Conflict, Tampered)):
            world.propose(world.new(), run="fresh", thread="fresh", fresh=True)

    def test_run_belongs_to_one_thread(self, world: World) -> None:
        world.ask()
        with world.unchanged(), pytest.raises(Conflict):
            world.ask(thread="t2")

    def test_allowed_call_may_start_in_the_same_commit(self, world: World) -> None:
        ask, allow = world.propose(world.new(), world.new(verdict="allow"), owner="w1", lease=LEASE)
        assert (ask.status, allow.status) == ("asked", "running")
        assert (allow.attempt, allow.token) == (1, world.run().token)
        run = world.run()
        assert (run.status, run.owner, run.running) == ("running", "w1", 1)
        assert run.ready_at == world.clock() + LEASE

    def test_propose_does_not_start_under_a_foreign_lease(self, world: World) -> None:
        world.running(owner="w1")
        (call,) = world.propose(world.new(verdict="allow"), owner="w2", lease=LEASE)
        assert call.status is CallStatus.READY
        assert call.decision is not None
        assert call.decision.type == "allow"
        assert world.run().owner == "w1"

    def test_lease_can_be_held_while_people_think(self, world: World) -> None:
        world.propose()
        world.decide(world.ask(args={"to": "eve"}), "reject")
        run = world.claimed("w1")
        world.propose(world.new(), hold=True)
        held = world.run()
        assert (held.status, held.owner, held.token) == ("running", "w1", run.token)
        world.propose(world.new())
        assert (world.run().status, world.run().owner) == ("paused", None)

    def test_approved_call_can_be_asked_again(self, world: World) -> None:
        call = world.ask(expires_in=60)
        yes = world.decide(call)
        world.clock.advance(5)
        changed = tool_of("send", "v2")
        terms = Terms(reviewers=("bo",), expires_in=10.0)
        why, binds = "the tool changed", '{"folder":"a"}'
        (again,) = world.transact(
            Reask(**RUN, call=call.id, reason=why, tool=changed, terms=terms, binds=binds)
        )
        assert again == world.call(call)
        assert again.status is CallStatus.ASKED
        assert (again.rev, again.votes, again.decision) == (yes.rev + 1, (), None)
        assert (again.valid_until, again.tool_digest) == (None, changed.digest)
        assert (again.binds, again.terms.reviewers) == ('{"folder":"a"}', ("bo",))
        assert again.expires_at == world.clock() + 10 * SECOND
        assert again.digest not in (call.digest, "")
        assert world.store.tool(changed.digest) == changed
        assert world.run().status is RunStatus.PAUSED
        with pytest.raises(Conflict):
            world.decide(call, by="bo", seen_digest=call.digest)

    def test_pending_request_becomes_a_new_revision_of_itself(self, world: World) -> None:
        """Stricter terms void the votes so far, and do not extend the deadline."""
        call = world.decide(world.ask(quorum=2, expires_in=60.0))
        world.clock.advance(30)
        terms = replace(call.terms, quorum=3)
        (again,) = world.transact(Reask(**RUN, call=call.id, reason="stricter", terms=terms))
        assert again == world.call(call)
        assert (again.status, again.rev, again.votes) == (CallStatus.ASKED, call.rev + 1, ())
        assert (again.terms.quorum, again.expires_at) == (3, call.expires_at)
        assert again.digest != call.digest
        assert world.events() == ["asked", "voted", "tightened"]
        with pytest.raises(Conflict, match="not what you saw"):
            world.decide(call, by="bo", seen_digest=call.digest)

    @pytest.mark.parametrize("state", ["running", "in_doubt", "done", "rejected"])
    def test_only_a_ready_call_is_asked_again(self, world: World, state: str) -> None:
        call = world.in_state(state)
        with world.unchanged():
            (same,) = world.transact(Reask(thread="t", run="r", call=call.id, reason="why not"))
            assert same.status == state

    def test_new_preview_makes_a_revision_without_votes(self, world: World) -> None:
        """People see it, so a change makes a new revision, without votes."""
        call = world.decide(world.ask(preview='"old"', quorum=2))
        reask = Reask(thread="t", run="r", call=call.id, reason="", preview='"new"')
        (shown,) = world.transact(reask)
        assert shown == world.call(call)
        assert (shown.preview, shown.rev, shown.votes) == ('"new"', call.rev + 1, ())
        assert shown.digest != call.digest
        assert world.events() == ["asked", "voted", "revised"]
        with pytest.raises(Conflict, match="not what you saw"):
            world.decide(call, by="bo", seen_digest=call.digest)
        world.reopen()
        (same,) = world.transact(reask)
        assert same == world.call(call) == shown
        assert world.events() == ["asked", "voted", "revised"]

    def test_reask_of_unknown_call_is_not_found(self, world: World) -> None:
        world.ask()
        with pytest.raises(NotFound, match="req_none"):
            world.transact(Reask(thread="t", run="r", call="req_none", reason="?"))

    def test_digest_covers_arguments_and_terms(self, world: World) -> None:
        base = world.ask(key="k", args={"to": "bo"})
        variants = [
            world.ask(args={"to": "cy"}),
            world.ask(binds='{"tenant":1}'),
            world.ask(quorum=2),
            world.ask(reviewers=("bo",)),
            world.ask(allowed=("reject",)),
            world.ask(requester_decides=False),
            world.ask(expires_in=9),
        ]
        digests = {base.digest, *(call.digest for call in variants)}
        assert len(digests) == len(variants) + 1
        assert all(len(digest) == 64 for digest in digests)
        assert base.args_hash == codec.sha256(base.args.encode())


SMALL = {"properties": {"amount": {"maximum": 10}}, "required": ["amount"]}


class GrantTests:
    """``AddGrant``, ``RevokeGrant``, and what they do to ``Propose`` and ``Start``."""

    def test_grant_approves_a_call(self, world: World) -> None:
        grant = world.grant()
        assert grant.created == world.clock()
        call = world.ask()
        assert call.status is CallStatus.READY
        assert not call.asked
        assert call.grant == grant.id
        assert call.decision is not None
        assert (call.decision.type, call.decision.by) == ("grant", "ana")

    def test_grant_covers_only_its_scope(self, world: World) -> None:
        world.grant("pay", SMALL)
        assert world.ask("pay", args={"amount": 10}).status is CallStatus.READY
        assert world.ask("pay", args={"amount": 11}).status is CallStatus.ASKED
        assert world.ask("pay", args={"sum": 1}).status is CallStatus.ASKED

    def test_grant_covers_only_calls_its_author_may_approve(self, world: World) -> None:
        world.grant("pay")
        assert world.ask("pay", reviewers=("group:finance",)).status is CallStatus.ASKED
        assert world.ask("pay", reviewers=("ben",)).status is CallStatus.ASKED
        assert world.ask("pay", reviewers=("ana", "ben")).status is CallStatus.READY

    def test_one_of_several_grants_is_enough(self, world: World) -> None:
        world.grant("pay", {"required": ["nothing like that"]})
        fits = world.grant("pay", SMALL)
        assert world.ask("pay", args={"amount": 1}).grant == fits.id

    @pytest.mark.parametrize(
        "new", [{"tool": "delete"}, {"verdict": "deny"}, {"quorum": 2}, {"kind": "question"}]
    )
    def test_grant_does_not_cover_other_calls(self, world: World, new: dict[str, Any]) -> None:
        world.grant()
        call = world.ask(**new)
        assert call.status is not CallStatus.READY
        assert call.grant is None

    def test_grant_is_for_one_agent(self, world: World) -> None:
        world.grant(agent="another")
        assert world.ask().status is CallStatus.ASKED

    def test_grant_does_not_cover_a_changed_tool(self, world: World) -> None:
        world.grant(tool_digest="0" * 64)
        assert world.ask().status is CallStatus.ASKED

    def test_grant_ends(self, world: World) -> None:
        world.grant(ends=world.clock() + SECOND)
        assert world.ask().status is CallStatus.READY
        world.clock.advance(1)
        assert world.ask().status is CallStatus.ASKED
        assert world.store.grants() == []
        assert len(world.store.grants(live_only=False)) == 1

    def test_uses_are_spent_at_the_start(self, world: World) -> None:
        grant = world.grant(uses_left=2)
        calls = [world.ask() for _ in range(3)]
        assert [call.status for call in calls] == ["ready"] * 3
        assert _left(world, grant) == 2
        for left, call in enumerate(calls[:2]):
            assert world.start(call)[0].status is CallStatus.RUNNING
            assert _left(world, grant) == 1 - left
        third = world.start(calls[2])[0]
        assert third.status is CallStatus.ASKED
        assert (third.grant, third.decision, third.rev) == (None, None, 2)
        assert "grant" in world.body("reasked")["reason"]
        assert _left(world, grant) == 0
        assert world.ask().status is CallStatus.ASKED

    def test_one_start_spends_one_use_per_call(self, world: World) -> None:
        grant = world.grant(uses_left=2)
        calls = world.propose(*(world.new() for _ in range(3)))
        assert [c.status for c in world.start(*calls)] == ["running", "running", "asked"]
        assert _left(world, grant) == 0

    def test_propose_that_starts_spends_uses(self, world: World) -> None:
        grant = world.grant(uses_left=2)
        calls = world.propose(*(world.new() for _ in range(3)), owner="w1", lease=LEASE)
        assert [call.status for call in calls] == ["running", "running", "asked"]
        assert _left(world, grant) == 0

    def test_complete_that_starts_spends_a_use(self, world: World) -> None:
        grant = world.grant(uses_left=1)
        calls = [world.ask(), world.ask()]
        assert world.complete(calls[0]).status is CallStatus.DONE
        assert _left(world, grant) == 0
        assert world.complete(calls[1]).status is CallStatus.ASKED

    def test_prevented_start_spends_no_use(self, world: World) -> None:
        grant = world.grant(uses_left=1)
        call = world.ask()
        world.running(owner="w1")
        assert world.start(call, owner="w2")[0].status is CallStatus.READY
        assert _left(world, grant) == 1

    def test_grant_can_end_before_the_start(self, world: World) -> None:
        revoked, ended = world.grant(), world.grant("pay", ends=world.clock() + SECOND)
        calls = [world.ask(), world.ask("pay")]
        assert [call.grant for call in calls] == [revoked.id, ended.id]
        world.transact(RevokeGrant(grant=revoked.id, by="bo"))
        world.clock.advance(1)
        for call in calls:
            assert world.start(call)[0].status is CallStatus.ASKED

    def test_running_again_does_not_use_the_grant(self, world: World) -> None:
        world.grant(uses_left=1)
        call = world.ask()
        world.doubt(world.start(call)[0])
        assert world.decide(call).grant is None
        assert world.start(world.call(call))[0].status is CallStatus.RUNNING

    def test_revoking(self, world: World) -> None:
        grant = world.grant()
        world.clock.advance(1)
        (revoked,) = world.transact(RevokeGrant(grant=grant.id, by="bo"))
        assert revoked.revoked == world.clock()
        assert world.store.grants() == []
        assert world.store.grants(live_only=False) == [revoked]
        assert world.ask().status is CallStatus.ASKED
        with world.unchanged():
            world.clock.advance(1)
            assert world.transact(RevokeGrant(grant=grant.id, by="bo")) == [revoked]
        assert world.events("@system") == ["granted", "revoked"]

    def test_revoking_unknown_grant_is_not_found(self, world: World) -> None:
        with pytest.raises(NotFound, match="grt_none"):
            world.transact(RevokeGrant(grant="grt_none", by="bo"))
        assert world.events() == []

    def test_duplicate_grant_id_conflicts(self, world: World) -> None:
        grant = world.grant(uses_left=1)
        world.transact(RevokeGrant(grant=grant.id, by="bo"))
        with world.unchanged(), pytest.raises(Conflict):
            world.transact(AddGrant(grant=grant))

    def test_grants_are_listed_in_order(self, world: World) -> None:
        given = []
        for number in range(3):
            given.append(world.grant(f"tool-{number}", SMALL, uses_left=number + 1))
            world.clock.advance(1)
        assert world.store.grants() == given


def _left(world: World, grant: Grant) -> int | None:
    (found,) = [g for g in world.store.grants(live_only=False) if g.id == grant.id]
    return found.uses_left
