"""Grants apply within scope and number of uses, and never override a deny or a quorum."""

from __future__ import annotations

from typing import Any

import pytest

from sayso.engine.commands import AddGrant, RevokeGrant
from sayso.errors import Conflict, NotFound
from sayso.rows import CallStatus
from sayso.testing.world import LEASE, SECOND, World
from sayso.types import Grant

SMALL = {"properties": {"amount": {"maximum": 10}}, "required": ["amount"]}


class Granting:
    """``AddGrant``, ``RevokeGrant``, and what they do to ``Propose`` and ``Start``."""

    def test_a_grant_says_yes_in_a_persons_place(self, world: World) -> None:
        grant = world.grant()
        assert grant.created == world.clock()
        call = world.ask()
        assert call.status is CallStatus.READY
        assert not call.asked
        assert call.grant == grant.id
        assert call.decision is not None
        assert (call.decision.type, call.decision.by) == ("grant", "ana")

    def test_it_covers_its_scope_and_no_more(self, world: World) -> None:
        world.grant("pay", SMALL)
        assert world.ask("pay", args={"amount": 10}).status is CallStatus.READY
        assert world.ask("pay", args={"amount": 11}).status is CallStatus.ASKED
        assert world.ask("pay", args={"sum": 1}).status is CallStatus.ASKED

    def test_it_says_no_more_than_who_gave_it_could(self, world: World) -> None:
        world.grant("pay")
        assert world.ask("pay", reviewers=("group:finance",)).status is CallStatus.ASKED
        assert world.ask("pay", reviewers=("ben",)).status is CallStatus.ASKED
        assert world.ask("pay", reviewers=("ana", "ben")).status is CallStatus.READY

    def test_one_of_several_grants_is_enough(self, world: World) -> None:
        world.grant("pay", {"required": ["nothing like that"]})
        fits = world.grant("pay", SMALL)
        assert world.ask("pay", args={"amount": 1}).grant == fits.id

    @pytest.mark.parametrize(
        "new",
        [
            {"tool": "delete"},
            {"verdict": "deny"},
            {"quorum": 2},
            {"kind": "question"},
        ],
    )
    def test_what_it_does_not_cover(self, world: World, new: dict[str, Any]) -> None:
        world.grant()
        call = world.ask(**new)
        assert call.status is not CallStatus.READY
        assert call.grant is None

    def test_it_is_one_agents(self, world: World) -> None:
        world.grant(agent="somebody else")
        assert world.ask().status is CallStatus.ASKED

    def test_a_changed_tool_is_another_tool(self, world: World) -> None:
        world.grant(tool_digest="0" * 64)
        assert world.ask().status is CallStatus.ASKED

    def test_it_ends(self, world: World) -> None:
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

    def test_uses_are_spent_one_by_one_within_a_start(self, world: World) -> None:
        grant = world.grant(uses_left=2)
        calls = world.propose(*(world.new() for _ in range(3)))
        assert [c.status for c in world.start(*calls)] == ["running", "running", "asked"]
        assert _left(world, grant) == 0

    def test_uses_are_spent_where_proposing_starts(self, world: World) -> None:
        grant = world.grant(uses_left=2)
        calls = world.propose(*(world.new() for _ in range(3)), owner="w1", lease=LEASE)
        assert [call.status for call in calls] == ["running", "running", "asked"]
        assert _left(world, grant) == 0

    def test_uses_are_spent_where_completing_starts(self, world: World) -> None:
        grant = world.grant(uses_left=1)
        calls = [world.ask(), world.ask()]
        assert world.complete(calls[0]).status is CallStatus.DONE
        assert _left(world, grant) == 0
        assert world.complete(calls[1]).status is CallStatus.ASKED

    def test_a_use_is_not_spent_by_a_start_that_does_not_happen(self, world: World) -> None:
        grant = world.grant(uses_left=1)
        call = world.ask()
        world.running(owner="w1")
        assert world.start(call, owner="w2")[0].status is CallStatus.READY
        assert _left(world, grant) == 1

    def test_it_can_end_between_the_yes_and_the_start(self, world: World) -> None:
        revoked, ended = world.grant(), world.grant("pay", ends=world.clock() + SECOND)
        calls = [world.ask(), world.ask("pay")]
        assert [call.grant for call in calls] == [revoked.id, ended.id]
        world.transact(RevokeGrant(grant=revoked.id, by="bo"))
        world.clock.advance(1)
        for call in calls:
            assert world.start(call)[0].status is CallStatus.ASKED

    def test_run_it_again_is_a_persons_own_yes(self, world: World) -> None:
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
        before = world.everything()
        world.clock.advance(1)
        assert world.transact(RevokeGrant(grant=grant.id, by="bo")) == [revoked]
        assert world.everything() == before
        assert world.events("@system") == ["granted", "revoked"]

    def test_revoking_what_is_not_there(self, world: World) -> None:
        with pytest.raises(NotFound, match="grt_none"):
            world.transact(RevokeGrant(grant="grt_none", by="bo"))
        assert world.events() == []

    def test_a_grants_id_that_is_taken_is_a_conflict(self, world: World) -> None:
        grant = world.grant(uses_left=1)
        world.transact(RevokeGrant(grant=grant.id, by="bo"))
        before = world.everything()
        with pytest.raises(Conflict):
            world.transact(AddGrant(grant=grant))
        assert world.everything() == before

    def test_grants_are_listed_as_they_were_given(self, world: World) -> None:
        given = []
        for number in range(3):
            given.append(world.grant(f"tool-{number}", SMALL, uses_left=number + 1))
            world.clock.advance(1)
        assert world.store.grants() == given


def _left(world: World, grant: Grant) -> int | None:
    (found,) = [g for g in world.store.grants(live_only=False) if g.id == grant.id]
    return found.uses_left
