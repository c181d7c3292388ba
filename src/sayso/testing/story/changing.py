"""Somebody changes things while people think: state, rows, tools."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from sayso.errors import Tampered
from sayso.testing.story.deciding import ANA
from sayso.testing.story.scene import Scene
from sayso.testing.story.step import STORE


class Changing:
    """What was approved is what runs, or nothing does."""

    def test_state_tampered_with_before_the_decision(self, scene: Scene) -> None:
        scene.run()
        scene.tamper("ana", "eve")
        request = scene.the_request()
        assert request.args["to"] == "ana"
        with suppress(Tampered):  # where the state is in the run's own row, nobody decides on it
            scene.decide(request, request.approve())
        self._holds(scene)

    def test_state_tampered_with_after_the_decision(self, scene: Scene) -> None:
        scene.run()
        scene.approve_all()
        scene.tamper("ana", "eve")
        self._holds(scene)

    def test_state_tampered_with_after_a_rejection(self, scene: Scene) -> None:
        scene.run()
        request = scene.the_request()
        scene.decide(request, request.reject("never"))
        scene.tamper("ana", "eve")
        assert scene.resume().status in ("done", "raised")
        assert scene.effects() == []

    def _holds(self, scene: Scene) -> None:
        came = scene.resume()
        assert came.status in ("done", "raised")
        assert scene.effects() == ([ANA] if came.status == "done" else [])
        scene.resume()
        assert scene.effects() in ([], [ANA])

    def test_row_tampered_with(self, scene: Scene) -> None:
        scene.run()
        scene.approve_all()
        scene.inbox.store.close()
        file = sqlite3.connect(scene.folder / STORE)
        with file:
            file.execute("UPDATE call SET args = replace(args, '\"ana\"', '\"eve\"')")
        file.close()
        came = scene.resume()
        assert (came.status, scene.effects()) == ("raised", [])
        assert "Tampered" in came.error

    def test_tool_gone(self, scene: Scene) -> None:
        scene.run()
        scene.approve_all()
        assert scene.resume(tools="gone").status == "done"
        assert scene.effects() == []
        assert scene.heard()

    def test_tool_changed(self, scene: Scene) -> None:
        scene.run()
        request = scene.the_request()
        scene.decide(request, request.approve())
        came = scene.resume(tools="changed")
        again = scene.the_request()
        assert (came.status, came.waiting) == ("paused", (again.id,))
        assert again.revision > request.revision
        assert (scene.effects(), scene.asked) == ([], 1)
        scene.decide(again, again.approve())
        assert scene.resume(tools="changed").status == "done"
        assert scene.effects() == [ANA]

    def test_tool_takes_something_else(self, scene: Scene) -> None:
        scene.run()
        scene.approve_all()
        assert scene.resume(tools="other").status == "done"
        assert scene.effects() == []
        assert scene.heard()
