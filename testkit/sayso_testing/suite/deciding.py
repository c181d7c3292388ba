"""Decisions by one person, or by as many as the quorum demands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from sayso.engine.asking import signed_bytes
from sayso.engine.people import PROCESS
from sayso.errors import (
    AlreadyDecided,
    Conflict,
    Expired,
    InvalidDecision,
    NotAllowed,
    NotFound,
)
from sayso.rows import CallStatus, Proven, RunStatus
from sayso.types import Grant, Reviewer, Risk, Terms
from sayso_testing.world import SECOND, World, tool_of

_READY = CallStatus.READY


class DecisionTests:
    """``Decide`` by one person."""

    def test_approve(self, world: World) -> None:
        call = world.ask(valid_for=100.0)
        world.clock.advance(3)
        yes = world.decide(call, by=world.reviewer("ana"), channel="terminal")
        assert yes == world.call(call)
        assert yes.status is CallStatus.READY
        assert yes.valid_until == world.clock() + 100 * SECOND
        decision = yes.decision
        assert decision is not None
        assert (decision.type, decision.by, decision.at) == ("approve", "ana", world.clock())
        assert (decision.channel, decision.assurance) == ("terminal", "token")
        assert decision.digest == call.digest
        assert world.keys.verify(signed_bytes(decision), decision.signature)
        for change in ({"by": "bo"}, {"channel": "web"}, {"assurance": "session"}, {"at": 1}):
            other = signed_bytes(replace(decision, **change))
            assert not world.keys.verify(other, decision.signature)
        assert [(vote.by, vote.digest) for vote in yes.votes] == [("ana", call.digest)]
        assert world.events() == ["asked", "decided"]

    def test_edit(self, world: World) -> None:
        call = world.ask(args={"to": "bo"})
        edited = world.decide(call, "edit", args={"to": "cy"})
        assert edited == world.call(call)
        assert edited.status is CallStatus.READY
        assert (edited.args, edited.original) == ('{"to":"cy"}', '{"to":"bo"}')
        assert edited.rev == 2
        assert edited.digest != call.digest
        assert edited.decision is not None
        assert edited.decision.type == "edit"
        assert edited.decision.digest == edited.digest
        signed = signed_bytes(edited.decision)
        assert world.keys.verify(signed, edited.decision.signature)
        assert world.events() == ["asked", "revised", "decided"]

    def test_reject(self, world: World) -> None:
        call = world.decide(world.ask(), "reject", message="not today")
        assert call.status is CallStatus.REJECTED
        assert call.decision is not None
        assert call.decision.message == "not today"
        assert world.body("decided")["message"] == "not today"

    def test_respond(self, world: World) -> None:
        call = world.decide(world.ask(), "respond", value={"sent": True})
        assert call.status is CallStatus.RESPONDED
        assert call.result == '{"sent":true}'
        assert call.decision is not None
        assert call.decision.value == '{"sent":true}'

    @pytest.mark.parametrize("type", ["approve", "edit", "reject", "respond"])
    def test_decision_makes_its_run_due(self, world: World, type: str) -> None:
        call = world.ask()
        more: dict[str, dict[str, Any]] = {"edit": {"args": {}}, "respond": {"value": 1}}
        world.decide(call, type, **more.get(type, {}))
        run = world.run()
        assert (run.wake, run.ready_at) == (1, world.clock())
        assert [found.id for found in world.store.ready(["agent"])] == ["r"]

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (("approve", "ana", {}), ("reject", "ana", {})),
            (("approve", "ana", {}), ("approve", "bo", {})),
            (("reject", "ana", {"message": "no"}), ("approve", "bo", {})),
            (("reject", "ana", {"message": "no"}), ("reject", "ana", {"message": "never"})),
            (("respond", "ana", {"value": 1}), ("respond", "ana", {"value": 2})),
            (("edit", "ana", {"args": {"to": "cy"}}), ("edit", "ana", {"args": {"to": "di"}})),
            (("edit", "ana", {"args": {"to": "cy"}}), ("approve", "ana", {})),
        ],
    )
    def test_first_decision_wins(
        self,
        world: World,
        first: tuple[str, str, dict[str, Any]],
        second: tuple[str, str, dict[str, Any]],
    ) -> None:
        call = world.ask()
        seen = call.digest
        world.decide(call, first[0], first[1], **first[2])
        with world.unchanged(), pytest.raises(AlreadyDecided, match="ana decided"):
            world.decide(call, second[0], second[1], seen_digest=seen, **second[2])

    @pytest.mark.parametrize(
        ("type", "more"),
        [
            ("approve", {}),
            ("reject", {"message": "no"}),
            ("respond", {"value": [1]}),
            ("edit", {"args": {"to": "cy"}}),
        ],
    )
    def test_repeated_decision_is_an_echo(
        self, world: World, type: str, more: dict[str, Any]
    ) -> None:
        call = world.ask()
        won = world.decide(call, type, **more)
        world.clock.advance(1)
        with world.unchanged():
            assert world.decide(call, type, seen_digest=call.digest, **more) == won

    def test_echo_of_a_finished_call_returns_it(self, world: World) -> None:
        call = world.ask()
        world.decide(call)
        done = world.record(world.start(call)[0])
        assert world.decide(call, seen_digest=call.digest) == done

    def test_approval_needs_the_current_digest(self, world: World) -> None:
        call = world.ask()
        with world.unchanged():
            with pytest.raises(InvalidDecision) as refused:
                world.decide(call, seen_digest=None)
            assert refused.value.path == "seen_digest"
            with pytest.raises(Conflict, match=call.id):
                world.decide(call, seen_digest="0" * 64)
            with pytest.raises(Conflict):
                world.decide(call, "reject", seen_digest="0" * 64)
        assert world.decide(call, "reject", seen_digest=None).status is CallStatus.REJECTED

    def test_answer_outside_allowed_types_is_refused(self, world: World) -> None:
        call = world.ask(allowed=("approve", "reject"))
        with world.unchanged():
            for type, more in (("edit", {"args": {}}), ("respond", {"value": 1})):
                with pytest.raises(InvalidDecision, match="approve or reject"):
                    world.decide(call, type, **more)
            with pytest.raises(InvalidDecision):
                world.decide(call, "maybe")

    def test_edit_without_arguments(self, world: World) -> None:
        with pytest.raises(InvalidDecision) as refused:
            world.decide(world.ask(), "edit")
        assert refused.value.path == "args"

    def test_deciding_an_unknown_call(self, world: World) -> None:
        call = world.ask()
        with world.unchanged():
            with pytest.raises(NotFound, match="req_none"):
                world.transact(replace(world.decision(call), call="req_none"))
            with pytest.raises(NotFound):
                world.transact(replace(world.decision(call), run="r-none"))

    # -- who

    @pytest.mark.parametrize(
        ("terms", "by"),
        [
            ({}, {"name": "robot", "role": "agent"}),
            ({"reviewers": ("bo", "group:finance")}, {"name": "ana"}),
            ({"requester_decides": False}, {"name": "zoe", "assurance": "session"}),
            ({"assurance": "token"}, {"name": "ana", "assurance": "os-user"}),
            ({"assurance": "session"}, {"name": "ana"}),
        ],
    )
    def test_excluded_reviewers_cannot_decide(
        self, world: World, terms: dict[str, Any], by: dict[str, Any]
    ) -> None:
        (call,) = world.propose(world.new(**terms), requester="zoe")
        reviewer = world.reviewer(**by)
        with world.unchanged():
            for type in ("approve", "reject"):
                with pytest.raises(NotAllowed):
                    world.decide(call, type, reviewer)

    @pytest.mark.parametrize(
        ("terms", "by"),
        [
            ({"reviewers": ("ana",)}, Reviewer("ana")),
            ({"reviewers": ("group:finance",)}, Reviewer("ana", ("finance",))),
            ({"requester_decides": True}, Reviewer("zoe")),
            ({"requester_decides": False}, Reviewer("ana")),
            ({"assurance": "os-user"}, Proven("ana", proof=PROCESS)),
        ],
    )
    def test_listed_reviewers_can_decide(
        self, world: World, terms: dict[str, Any], by: Reviewer
    ) -> None:
        (call,) = world.propose(world.new(**terms), requester="zoe")
        assert world.decide(call, by=by).status is CallStatus.READY

    def test_stored_groups_decide_who_may_review(self, world: World) -> None:
        ana = world.reviewer("ana", "finance", "ops")
        world.reviewer("bo", "finance")
        calls = [world.ask(reviewers=("group:finance",)) for _ in range(3)]
        assert world.decide(calls[0], by=ana).status is CallStatus.READY
        assert world.decide(calls[1], by=Reviewer("bo")).status is CallStatus.READY
        world.change("bo", remove_groups=("finance",))
        for by in (Reviewer("bo"), Reviewer("bo", ("finance",)), Reviewer("cy")):
            with world.unchanged(), pytest.raises(NotAllowed, match="group:finance"):
                world.decide(calls[2], by=by)

    def test_token_proves_nothing_at_its_end(self, world: World) -> None:
        call = world.ask(assurance="token")
        token = world.token("ana", ends=world.clock() + 2)
        ana = Proven("ana", proof=token.hash)
        world.clock.advance(0.000_001)
        assert world.decide(world.ask(assurance="token"), by=ana).status is CallStatus.READY
        world.clock.advance(0.000_001)
        with world.unchanged(), pytest.raises(NotAllowed, match="expired"):
            world.decide(call, by=ana)

    def test_credential_proves_only_its_person(self, world: World) -> None:
        call = world.ask(assurance="token", reviewers=("ana",))
        world.reviewer("ana")
        bo = world.reviewer("bo")
        with world.unchanged(), pytest.raises(NotAllowed):
            world.decide(call, by=Proven("ana", proof=bo.proof))

    # -- when

    def test_decision_at_the_expiry_is_refused(self, world: World) -> None:
        call = world.ask(expires_in=10)
        late = world.ask(expires_in=10)
        world.clock.advance(9.999_999)
        assert world.decide(call).status is CallStatus.READY
        world.clock.advance(0.000_001)
        with world.unchanged():
            for type in ("approve", "reject"):
                with pytest.raises(Expired, match=late.id):
                    world.decide(late, type)

    def test_closed_request_cannot_be_decided(self, world: World) -> None:
        call = world.ask(expires_in=10)
        world.clock.advance(10)
        world.expire(call)
        with pytest.raises(AlreadyDecided, match="expired"):
            world.decide(call)
        other = world.ask()
        world.cancel(other)
        with pytest.raises(AlreadyDecided, match="cancelled"):
            world.decide(other)

    def test_call_without_a_request_cannot_be_decided(self, world: World) -> None:
        for call in (world.ready(), world.running(run="r2", thread="t2")):
            with pytest.raises(AlreadyDecided):
                world.decide(call)
        with pytest.raises(AlreadyDecided, match="policy"):
            world.decide(world.ask(verdict="deny"))

    # -- with a grant

    def test_approval_may_come_with_a_grant(self, world: World) -> None:
        call = world.ask()
        world.decide(call, grant=_grant(world))
        assert [g.id for g in world.store.grants()] == ["grt_x"]
        assert world.events("t") == ["asked", "decided"]
        assert world.events("@system") == ["granted"]
        assert world.ask().status is CallStatus.READY
        world.decide(call, grant=_grant(world), seen_digest=call.digest)
        assert world.events("@system") == ["granted"]

    def test_chat_user_cannot_grant(self, world: World) -> None:
        (call,) = world.propose(world.new(), requester="cleo")
        with pytest.raises(NotAllowed, match="reviewer"):
            world.decide(call, by=Reviewer("cleo", role="chat"), grant=_grant(world))
        assert world.store.grants() == []
        assert world.ask().status is CallStatus.ASKED

    def test_only_plain_approval_may_carry_a_grant(self, world: World) -> None:
        refused = [
            (world.ask(), "reject"),
            (world.ask(quorum=2), "approve"),
            (world.ask(tool="", kind="question"), "approve"),
        ]
        ana = world.reviewer("ana")
        with world.unchanged():
            for call, type in refused:
                with pytest.raises(InvalidDecision) as raised:
                    world.decide(call, type, ana, grant=_grant(world))
                assert raised.value.path == "grant"

    # -- in doubt

    @pytest.mark.parametrize(
        ("type", "more", "status", "result"),
        [
            ("approve", {}, CallStatus.READY, None),
            ("respond", {"value": "it went out"}, CallStatus.DONE, '"it went out"'),
            ("reject", {"message": "leave it"}, CallStatus.FAILED, "leave it"),
        ],
    )
    def test_doubt_is_settled_by_a_person(
        self, world: World, type: str, more: dict[str, Any], status: CallStatus, result: str | None
    ) -> None:
        call = world.doubted()
        assert world.run().status is RunStatus.PAUSED
        settled = world.decide(call, type, **more)
        assert (settled.status, settled.result) == (status, result)
        assert world.run().in_doubt == 0
        assert world.run().ready_at == world.clock()

    def test_old_digest_cannot_approve_a_rerun(self, world: World) -> None:
        call = world.ask()
        world.decide(call)
        started = world.start(call)[0]
        world.doubt(started)
        with pytest.raises(Conflict):
            world.decide(call, seen_digest=call.digest)
        first_doubt = world.digest(call)
        world.decide(call)
        again = world.start(world.call(call))[0]
        assert (again.status, again.attempt) == (CallStatus.RUNNING, 2)
        world.doubt(again)
        with pytest.raises(Conflict):
            world.decide(call, seen_digest=first_doubt)

    def test_doubt_keeps_reviewers_and_refuses_edits(self, world: World) -> None:
        call = world.doubted(reviewers=("ana",), quorum=1)
        with pytest.raises(InvalidDecision, match="approve or respond or reject"):
            world.decide(call, "edit", args={})
        with pytest.raises(NotAllowed):
            world.decide(call, "respond", "bo", value=1)


def _grant(world: World) -> Grant:
    return Grant(
        id="grt_x",
        agent="agent",
        tool="send",
        tool_digest=tool_of("send").digest,
        scope="{}",
        by="ana",
        created=world.clock(),
    )


class ReviewTests:
    """``Review`` by the model that a rule names."""

    model: ClassVar[dict[str, Any]] = {
        "reviewer": "model:small",
        "reviewer_allows": True,
        "risk_declared": True,
    }

    def test_model_allows(self, world: World) -> None:
        call = world.ask(**self.model, valid_for=100.0)
        world.clock.advance(3)
        allowed = world.review(call, "allow")
        assert allowed == world.call(call)
        assert (allowed.status, allowed.digest, allowed.votes) == (_READY, call.digest, ())
        assert allowed.valid_until == world.clock() + 100 * SECOND
        decision = allowed.decision
        assert decision is not None
        assert (decision.type, decision.by, decision.message) == ("model", "model:small", "so")
        assert world.keys.verify(signed_bytes(decision), decision.signature)
        assert world.events() == ["asked", "decided"]
        assert world.start(allowed)[0].status is CallStatus.RUNNING

    def test_model_rejects(self, world: World) -> None:
        call = world.ask(**self.model)
        rejected = world.review(call, "reject")
        assert rejected == world.call(call)
        assert rejected.status is CallStatus.REJECTED
        assert rejected.decision is not None
        assert (rejected.decision.type, rejected.decision.by) == ("reject", "model:small")
        assert [refusal.by for refusal in world.store.all_refusals()] == ["model:small"]
        assert world.ask(**self.model).status is CallStatus.REJECTED

    @pytest.mark.parametrize(
        "terms",
        [
            {"reviewer_allows": False},
            {"quorum": 2},
            {"risk": Risk("high")},
            {"risk_declared": False},
            {"allowed": ("edit", "reject")},
        ],
        ids=str,
    )
    def test_model_leaves_it_to_people(self, world: World, terms: dict[str, Any]) -> None:
        call = world.ask(**{**self.model, **terms})
        reviewed = world.review(call, "allow")
        assert reviewed == world.call(call)
        assert (reviewed.status, reviewed.digest) == (CallStatus.ASKED, call.digest)
        assert reviewed.terms.opinion == ("allow", "so", call.digest)
        assert world.events() == ["asked", "reviewed"]
        assert world.review(reviewed, "reject") == reviewed, "it has one say"

    def test_person_is_faster(self, world: World) -> None:
        call = world.ask(**self.model)
        approved = world.decide(call)
        assert world.review(call, "reject") == approved
        held = world.ask("pay", **self.model)
        held = world.decide(held, undo_for=5 * SECOND)
        assert world.review(held, "reject") == held

    def test_vote_is_enough_for_people(self, world: World) -> None:
        call = world.ask(**{**self.model, "quorum": 2})
        voted = world.decide(call, by=world.reviewer("ana"))
        assert world.review(voted, "reject") == voted

    @pytest.mark.parametrize("change", ["revision", "model", "end", "stop"])
    def test_stale_answer_changes_nothing(self, world: World, change: str) -> None:
        call = world.ask(**self.model, expires_in=10.0)
        seen = call
        if change == "revision":
            seen = call._replace(digest="0" * 64)
        elif change == "model":
            seen = call._replace(terms=replace(call.terms, reviewer="model:other"))
        elif change == "end":
            world.clock.advance(11)
        else:
            world.running("w1", tool="pay")
            world.cancel()
        before = world.call(call)
        assert world.review(seen, "allow") == before

    def test_earlier_rejection_counts(self, world: World) -> None:
        call = world.ask(**self.model)
        world.decide(call, "reject")
        world.prompt()
        again = world.ask(**self.model)
        assert again.refusals
        assert world.review(again, "allow") == again


class VoteTests:
    """``Decide`` by several people."""

    def test_request_waits_for_its_quorum(self, world: World) -> None:
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

    def test_second_vote_of_the_same_person_changes_nothing(self, world: World) -> None:
        call = world.ask(quorum=2)
        world.decide(call, by="ana")
        with world.unchanged():
            assert world.decide(call, by="ana").status is CallStatus.ASKED

    def test_one_rejection_closes_the_request(self, world: World) -> None:
        call = world.ask(quorum=3)
        world.decide(call, by="ana")
        closed = world.decide(call, "reject", "bo")
        assert closed.status is CallStatus.REJECTED
        with pytest.raises(AlreadyDecided, match="bo decided 'reject'"):
            world.decide(call, by="cy", seen_digest=call.digest)

    def test_voter_may_still_reject(self, world: World) -> None:
        call = world.ask(quorum=2)
        world.decide(call, by="ana")
        assert world.decide(call, "reject", "ana").status is CallStatus.REJECTED

    def test_edit_voids_votes_and_counts_as_one(self, world: World) -> None:
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

    def test_edit_of_an_edit_remembers_the_first(self, world: World) -> None:
        call = world.ask(quorum=2)
        world.decide(call, "edit", "ana", args={"to": "cy"})
        again = world.decide(call, "edit", "bo", args={"to": "di"})
        assert (again.rev, again.original, again.args) == (3, '{"to":"bo"}', '{"to":"di"}')
        assert [vote.by for vote in again.votes] == ["bo"]

    def test_edit_may_raise_the_bar(self, world: World) -> None:
        call = world.ask()
        edited = world.decide(call, "edit", "ana", args={"to": "cy"}, terms=Terms(quorum=2))
        assert edited.status is CallStatus.ASKED
        assert world.decide(call, by="bo").status is CallStatus.READY

    def test_quorum_counts_authenticated_people_only(self, world: World) -> None:
        call = world.ask(quorum=2)
        for by in (Reviewer("ana"), Proven("ana", proof=PROCESS)):
            with pytest.raises(NotAllowed, match="token"):
                world.decide(call, by=by)
        world.decide(call, by="ana")
        bo = world.reviewer("bo", assurance="session")
        assert world.decide(call, by=bo).status == "ready"

    def test_each_voter_must_be_allowed(self, world: World) -> None:
        call = world.ask(quorum=2, reviewers=("ana", "bo"))
        world.decide(call, by="ana")
        with pytest.raises(NotAllowed):
            world.decide(call, by="eve")
        assert world.decide(call, by="bo").status is CallStatus.READY

    def test_doubt_needs_the_quorum_again(self, world: World) -> None:
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
