"""Several calls in one turn, and several who resume."""

from __future__ import annotations

from sayso.testing.story.deciding import ANA
from sayso.testing.story.props import LAST
from sayso.testing.story.scene import Scene

BOB = {"to": "bob", "amount": 7, "note": "none"}


class Together:
    """Nothing waits for what it does not need, and nothing happens twice."""

    def test_two_gated_and_one_free_decided_at_different_times(self, scene: Scene) -> None:
        came = scene.run("three")
        ana, bob = scene.pending()
        assert (came.status, set(came.waiting)) == ("paused", {ana.id, bob.id})
        assert scene.effects() == [{"what": "sky"}]  # needed nobody, and waited for nobody
        scene.decide(bob, bob.approve())
        came = scene.resume()
        assert (came.status, came.waiting) == ("paused", (ana.id,))
        assert scene.effects("pay") == [BOB]
        assert scene.resume().status == "paused"  # and nothing happens for lack of news
        scene.decide(ana, ana.approve())
        came = scene.resume()
        assert (came.status, came.output) == ("done", LAST)
        assert scene.effects("pay") == [BOB, ANA]
        assert scene.effects("look") == [{"what": "sky"}]
        # The model hears of the turn once, when all of it is there.
        assert scene.asked == 2
        told = [scene.heard(f"call_{n}") for n in (1, 2, 3)]
        assert told == ["paid 5 to ana", "saw the sky", "paid 7 to bob"]

    def test_one_rejected_beside_one_approved(self, scene: Scene) -> None:
        scene.run("three")
        ana, bob = scene.pending()
        scene.decide(ana, ana.reject("not her"))
        scene.decide(bob, bob.approve())
        assert scene.resume().status == "done"
        assert scene.effects("pay") == [BOB]
        assert "not her" in scene.heard("call_1")
        assert scene.heard("call_3") == "paid 7 to bob"

    def test_resumed_too_early(self, scene: Scene) -> None:
        scene.run()
        came = scene.resume()
        assert (came.status, came.waiting) == ("paused", (scene.the_request().id,))
        assert (scene.effects(), scene.asked) == ([], 1)

    def test_resumed_twice_in_turn(self, scene: Scene) -> None:
        scene.run()
        scene.approve_all()
        assert scene.resume().status == "done"
        again = scene.resume()
        assert (again.status, again.output) == ("done", LAST)
        assert (scene.effects(), scene.asked) == ([ANA], 2)

    def test_resumed_twice_at_once_in_one_process(self, scene: Scene) -> None:
        scene.run()
        scene.approve_all()
        came = scene.resume_both(tools="slow")
        assert (came.status, came.output) == ("done", LAST)
        assert (scene.effects(), scene.asked) == ([ANA], 2)

    def test_resumed_at_once_by_three_processes(self, scene: Scene) -> None:
        scene.run()
        scene.approve_all()
        ended = scene.at_once(3, tools="slow")
        assert [(came.status, came.output) for came in ended] == [("done", LAST)] * 3
        assert (scene.effects(), scene.asked) == ([ANA], 2)
