"""Wrong answers: none of them runs anything, and none loses or wedges the run."""

from __future__ import annotations

from typing import Any

import pytest

from sayso.testing.story.props import LAST
from sayso.testing.story.scene import Scene

_YES = {"type": "approve"}


def _edited(action: Any) -> dict[str, Any]:
    return {"decisions": [{"type": "edit", "edited_action": action}, _YES]}


def _second(decision: Any) -> dict[str, Any]:
    return {"decisions": [_YES, decision]}


_ARGS = {"to": "eve", "amount": 1}

#: Two calls wait, ``pay`` ana and ``pay`` bob; the second may be approved or rejected only.
MALFORMED: dict[str, Any] = {
    "too few decisions": {"decisions": [_YES]},
    "too many decisions": {"decisions": [_YES] * 3},
    "no decisions": {"decisions": []},
    "an empty object": {},
    "nothing": None,
    "no key decisions": {"answers": [_YES, _YES]},
    "a text": "approve",
    "a list of texts": ["approve", "approve"],
    "a number": 42,
    "decisions is nothing": {"decisions": None},
    "decisions is a text": {"decisions": "approve"},
    "decisions is an object": {"decisions": _YES},
    "a decision is a text": {"decisions": ["approve", "approve"]},
    "a decision without a type": _second({}),
    "an unknown type": _second({"type": "yolo"}),
    "a type in capitals": _second({"type": "APPROVE"}),
    "a type that is not allowed": _second(
        {"type": "edit", "edited_action": {"name": "pay", "args": _ARGS}}
    ),
    "an edit without an action": {"decisions": [{"type": "edit"}, _YES]},
    "an edit whose action is a text": _edited("pay eve"),
    "an edit without arguments": _edited({"name": "pay"}),
    "an edit to an unknown tool": _edited({"name": "rob", "args": _ARGS}),
    "an edit to another tool": _edited({"name": "look", "args": {"what": "sky"}}),
    "an edit with a wrong type": _edited({"name": "pay", "args": {**_ARGS, "amount": "a lot"}}),
    "an edit that lacks an argument": _edited({"name": "pay", "args": {"to": "eve"}}),
    "a response without a message": {"decisions": [{"type": "respond"}, _YES]},
}
assert len(MALFORMED) == 25


class Malformed:
    """An answer is checked before it counts."""

    def test_wrong_answers_one_after_the_other(self, scene: Scene) -> None:
        scene.run("pair", policy="strict")
        waiting = [request.id for request in scene.pending()]
        assert len(waiting) == 2
        for name, value in MALFORMED.items():
            came = scene.answer(value)
            assert came.status in ("paused", "raised"), name
            assert scene.effects() == [], name
            assert [request.id for request in scene.pending()] == waiting, name
        assert scene.asked == 1
        scene.approve_all()
        came = scene.resume()
        assert (came.status, came.output) == ("done", LAST)
        assert [made["to"] for made in scene.effects()] in (["ana", "bob"], ["bob", "ana"])

    @pytest.mark.parametrize("name", ["too few decisions", "an edit to an unknown tool"])
    def test_a_wrong_answer_then_a_right_one(self, scene: Scene, name: str) -> None:
        scene.run("pair", policy="strict")
        scene.answer(MALFORMED[name])
        came = scene.answer(self.right(scene))
        assert (came.status, came.output) == ("done", LAST)
        assert len(scene.effects()) == 2

    def right(self, scene: Scene) -> Any:
        """An answer that says yes to all that waits, in the way of ``Stage.answer``."""
        return scene.stage.yes(scene.pending())
