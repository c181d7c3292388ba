"""Quorum: distinct people vote on one revision; a rejection closes it, an edit starts over."""

from __future__ import annotations

import pytest

from sayso.engine.asking import signed_bytes
from sayso.errors import AlreadyDecided, Conflict, NotAllowed
from sayso.rows import CallStatus
from sayso.testing.world import World
from sayso.types import Reviewer, Terms


class Voting:
    """``Decide`` by several people."""

    def test_a_request_waits_for_its_quorum(self, world: World) -> None:
        call = world.ask(quorum=3)
        for number, person in enumerate(("ana", "bo"), 1):
            voted = world.decide(call, by=person)
            assert voted.status is CallStatus.ASKED
            assert [vote.by for vote in voted.votes] == ["ana", "bo"][:number]
            assert voted.decision is None
        assert world.run().wake == 0
        assert world.run().ready_at is None
        done = world.decide(call, by="cy")
        assert done.status is CallStatus.READY
        assert done.decision is not None
        assert done.decision.by == "cy"
        assert [vote.by for vote in done.votes] == ["ana", "bo", "cy"]
        assert world.events() == ["asked", "voted", "voted", "decided"]
        for vote in done.votes:
            assert world.keys.verify(signed_bytes(vote), vote.signature)

    def test_nobody_votes_twice(self, world: World) -> None:
        call = world.ask(quorum=2)
        world.decide(call, by="ana")
        before = world.everything()
        assert world.decide(call, by="ana").status is CallStatus.ASKED
        assert world.everything() == before

    def test_one_no_closes_it(self, world: World) -> None:
        call = world.ask(quorum=3)
        world.decide(call, by="ana")
        closed = world.decide(call, "reject", "bo")
        assert closed.status is CallStatus.REJECTED
        with pytest.raises(AlreadyDecided, match="bo decided 'reject'"):
            world.decide(call, by="cy", seen_digest=call.digest)

    def test_whoever_voted_yes_may_still_say_no(self, world: World) -> None:
        call = world.ask(quorum=2)
        world.decide(call, by="ana")
        assert world.decide(call, "reject", "ana").status is CallStatus.REJECTED

    def test_an_edit_voids_the_votes_and_is_one_itself(self, world: World) -> None:
        call = world.ask(quorum=2)
        world.decide(call, by="ana")
        edited = world.decide(call, "edit", "bo", args={"to": "cy"})
        assert edited.status is CallStatus.ASKED
        assert [(vote.by, vote.type) for vote in edited.votes] == [("bo", "edit")]
        assert edited.votes[0].digest == edited.digest != call.digest
        with pytest.raises(Conflict):
            world.decide(call, by="ana", seen_digest=call.digest)
        done = world.decide(call, by="ana")
        assert done.status is CallStatus.READY
        assert done.args == '{"to":"cy"}'
        assert done.original == '{"to":"bo"}'

    def test_an_edit_of_an_edit_remembers_the_first(self, world: World) -> None:
        call = world.ask(quorum=2)
        world.decide(call, "edit", "ana", args={"to": "cy"})
        again = world.decide(call, "edit", "bo", args={"to": "di"})
        assert (again.rev, again.original, again.args) == (3, '{"to":"bo"}', '{"to":"di"}')
        assert [vote.by for vote in again.votes] == ["bo"]

    def test_an_edit_may_raise_the_bar(self, world: World) -> None:
        call = world.ask()
        edited = world.decide(call, "edit", "ana", args={"to": "cy"}, terms=Terms(quorum=2))
        assert edited.status is CallStatus.ASKED
        assert world.decide(call, by="bo").status is CallStatus.READY

    def test_only_who_has_proved_to_be_somebody_counts(self, world: World) -> None:
        call = world.ask(quorum=2)
        for assurance in ("code", "os-user"):
            with pytest.raises(NotAllowed, match="token"):
                world.decide(call, by=Reviewer("ana", assurance=assurance))
        world.decide(call, by=Reviewer("ana", assurance="token"))
        assert world.decide(call, by=Reviewer("bo", assurance="session")).status == "ready"

    def test_each_voter_must_be_allowed(self, world: World) -> None:
        call = world.ask(quorum=2, reviewers=("ana", "bo"))
        world.decide(call, by="ana")
        with pytest.raises(NotAllowed):
            world.decide(call, by="eve")
        assert world.decide(call, by="bo").status is CallStatus.READY

    def test_a_doubt_needs_the_quorum_again(self, world: World) -> None:
        call = world.ask(quorum=2)
        world.decide(call, by="ana")
        world.decide(call, by="bo")
        world.doubt(world.start(call)[0])
        assert world.call(call).votes == ()
        assert world.decide(call, by="ana").status is CallStatus.IN_DOUBT
        assert world.decide(call, by="bo").status is CallStatus.READY

    def test_asking_again_forgets_the_votes(self, world: World) -> None:
        call = world.ask(quorum=2, valid_for=10.0)
        world.decide(call, by="ana")
        world.decide(call, by="bo")
        world.clock.advance(10)
        again = world.start(world.call(call))[0]
        assert (again.status, again.votes) == (CallStatus.ASKED, ())
        assert world.decide(call, by="ana").status is CallStatus.ASKED
