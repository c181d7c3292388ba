"""The four decisions, a question, and what a policy settles by itself."""

from __future__ import annotations

import pytest

from sayso.errors import AlreadyDecided
from sayso.testing.story.props import LAST
from sayso.testing.story.scene import Scene

ANA = {"to": "ana", "amount": 5, "note": "none"}


class Deciding:
    """What people can say to a call, and how the run takes it."""

    def test_approve(self, scene: Scene) -> None:
        came = scene.run()
        request = scene.the_request()
        assert (came.status, came.waiting) == ("paused", (request.id,))
        # What a person sees is whole: defaults are in, and it says whose it is.
        assert (request.kind, request.tool, dict(request.args)) == ("approval", "pay", ANA)
        assert (request.agent, request.requester) == ("teller", "rita")
        assert (scene.effects(), scene.asked) == ([], 1)
        scene.decide(request, request.approve())
        came = scene.resume()
        assert (came.status, came.output) == ("done", LAST)
        assert (scene.effects(), scene.asked) == ([ANA], 2)
        assert scene.heard() == "paid 5 to ana"

    def test_edit(self, scene: Scene) -> None:
        scene.run()
        request = scene.the_request()
        scene.decide(request, request.edit({"to": "bob"}))
        assert scene.resume().status == "done"
        assert scene.effects() == [{**ANA, "to": "bob"}]
        # The model hears what ran, and that it is not what it wrote.
        assert "paid 5 to bob" in scene.heard()
        assert scene.heard() != "paid 5 to bob"

    def test_reject_with_reason(self, scene: Scene) -> None:
        scene.run()
        request = scene.the_request()
        scene.decide(request, request.reject("ana left the company"))
        came = scene.resume()
        assert (came.status, came.output) == ("done", LAST)
        assert (scene.effects(), scene.asked) == ([], 2)
        assert "ana left the company" in scene.heard()

    def test_respond(self, scene: Scene) -> None:
        scene.run()
        request = scene.the_request()
        scene.decide(request, request.respond("paid in cash already"))
        assert scene.resume().status == "done"
        assert scene.effects() == []
        assert "paid in cash already" in scene.heard()

    def test_question(self, scene: Scene) -> None:
        came = scene.run("order")
        request = scene.the_request()
        assert (came.status, request.kind) == ("paused", "question")
        assert request.question is not None
        assert request.question.text == "Which size?"
        assert scene.resume().status == "paused"  # nobody has answered
        scene.decide(request, request.respond("large"))
        assert scene.resume().status == "done"
        assert scene.effects() == [{"dish": "pizza", "size": "large"}]
        assert scene.heard() == "ordered a large pizza"
        assert scene.asked == 2

    def test_conditional_policy(self, scene: Scene) -> None:
        came = scene.run("twice", policy="large")
        request = scene.the_request()
        assert (came.status, dict(request.args)) == ("paused", {**ANA, "amount": 500})
        assert scene.effects() == [ANA]  # the small one needed nobody
        scene.decide(request, request.approve())
        assert scene.resume().status == "done"
        assert [made["amount"] for made in scene.effects()] == [5, 500]

    def test_denied_without_asking(self, scene: Scene) -> None:
        came = scene.run("wipe")
        assert (came.status, came.waiting) == ("done", ())
        assert (scene.effects(), scene.pending()) == ([], [])
        assert "disks are not ours" in scene.heard()

    def test_decided_twice(self, scene: Scene) -> None:
        scene.run()
        request = scene.the_request()
        scene.decide(request, request.approve())
        again = scene.decide(request, request.approve())
        assert again.status == "approved"
        with pytest.raises(AlreadyDecided, match="ana"):
            scene.decide(request, request.reject("no"), by="bob")
        assert scene.resume().status == "done"
        assert scene.effects() == [ANA]
