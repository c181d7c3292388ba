"""Processes that are killed: while they wait, before the call starts, and while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from sayso.testing.story.deciding import ANA
from sayso.testing.story.props import LAST
from sayso.testing.story.scene import LATER, Scene


class Dying:
    """Nothing is lost, nothing runs twice, and what nobody can know is asked about."""

    def test_killed_while_waiting(self, scene: Scene) -> None:
        scene.killed_while_waiting()
        request = scene.the_request()
        scene.decide(request, request.approve())
        came = scene.elsewhere()
        assert (came.status, came.output) == ("done", LAST)
        assert (scene.effects(), scene.asked) == ([ANA], 2)

    def test_killed_while_waiting_with_several_open(self, scene: Scene) -> None:
        scene.killed_while_waiting("three")
        ana, bob = scene.pending()
        scene.decide(ana, ana.approve())
        assert scene.elsewhere().waiting == (bob.id,)
        scene.decide(bob, bob.reject("no"))
        assert scene.elsewhere().status == "done"
        assert scene.effects("pay") == [ANA]
        assert scene.effects("look") == [{"what": "sky"}]
        assert scene.asked == 2

    def test_killed_between_decision_and_start(self, scene: Scene) -> None:
        scene.run()
        scene.approve_all()
        scene.killed("resume", "start before")
        assert scene.effects() == []
        came = scene.elsewhere(later=LATER)
        assert (came.status, came.output) == ("done", LAST)
        assert (scene.effects(), scene.asked) == ([ANA], 2)

    def test_killed_after_the_result_was_stored(self, scene: Scene) -> None:
        scene.run()
        scene.approve_all()
        scene.killed("resume", "record after")
        assert scene.effects() == [ANA]
        came = scene.elsewhere(later=LATER)
        assert (came.status, came.output) == ("done", LAST)
        assert (scene.effects(), scene.asked) == ([ANA], 2)
        assert scene.heard() == "paid 5 to ana"

    @pytest.mark.parametrize(
        ("point", "before"),
        [("start after", 0), ("effect after", 1), ("record before", 1)],
        ids=["just started", "in the middle", "before the record"],
    )
    def test_killed_during_the_run(self, scene: Scene, point: str, before: int) -> None:
        scene.run()
        scene.approve_all()
        scene.killed("resume", point)
        assert len(scene.effects()) == before
        came = scene.elsewhere(later=LATER)
        doubt = scene.the_request()
        assert (came.status, came.waiting) == ("paused", (doubt.id,))
        assert (doubt.kind, doubt.tool, dict(doubt.args)) == ("in_doubt", "pay", ANA)
        assert len(scene.effects()) == before  # it is never simply repeated
        scene.decide(doubt, doubt.respond("paid, says the bank"))
        came = scene.elsewhere(later=LATER)
        assert (came.status, came.output) == ("done", LAST)
        assert len(scene.effects()) == before
        assert "paid, says the bank" in scene.heard()
        assert scene.asked == 2

    @pytest.mark.parametrize("again", [True, False], ids=["run it again", "give it up"])
    def test_in_doubt_is_for_people_to_settle(self, scene: Scene, again: bool) -> None:
        scene.run()
        scene.approve_all()
        scene.killed("resume", "effect after")
        scene.elsewhere(later=LATER)
        doubt = scene.the_request()
        decision: Any = doubt.approve() if again else doubt.reject("lost in the post")
        scene.decide(doubt, decision)
        assert scene.elsewhere(later=LATER).status == "done"
        assert scene.effects() == [ANA] * (2 if again else 1)
        assert ("paid 5 to ana" if again else "lost in the post") in scene.heard()
