"""A question takes its options as strings, as ``Option``, or as mappings of an option's fields."""

from __future__ import annotations

from typing import Any

import pytest

from sayso import InvalidCall, Option, Question, Reviewer


def test_options_may_be_mappings() -> None:
    options = [{"label": "Red"}, {"label": "Blue", "value": 2, "description": "the sea"}, "Green"]
    question = Question("Which colour?", options)
    assert question.options == (Option("Red"), Option("Blue", 2, "the sea"), Option("Green"))


@pytest.mark.parametrize(
    ("option", "message"),
    [({"text": "Red"}, "unknown field 'text'"), ({}, "no label"), ({"label": 3}, "needs a label")],
)
def test_wrong_option_is_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCall, match=message):
        Question("Which colour?", [option, "Green"])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"options": ["Red"]}, "one option is not a choice"),
        ({"options": ["Red", "Red"]}, "two options have the same value"),
        ({"options": ["Red", "Blue"], "schema": {"type": "string"}}, "options or a schema"),
        ({"multiple": True}, "only a question with options"),
        ({"free_text": False}, "has no way to answer"),
    ],
)
def test_question_without_clear_answers_is_refused(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCall, match=message):
        Question("Which colour?", **parts)


def test_assurance_of_a_reviewer_is_a_known_one() -> None:
    with pytest.raises(ValueError, match="use one of code, os-user"):
        Reviewer("ana", assurance="sworn")
