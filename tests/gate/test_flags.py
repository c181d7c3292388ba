"""Options that are yes or no: what is neither must not pass for one of them."""

from __future__ import annotations

from typing import Any

import pytest

from assent import Gate, InvalidPolicy, tool


def pay(to: str) -> str:
    return to


def guarded(**options: Any) -> None:
    Gate().guard(**options)(pay)


def offered(**options: Any) -> None:
    tool(**options)(pay)


@pytest.mark.parametrize("name", ["needs_approval", "idempotent", "requester_decides"])
@pytest.mark.parametrize("made", [guarded, offered])
def test_a_word_is_neither_yes_nor_no(name: str, made: Any) -> None:
    with pytest.raises((TypeError, InvalidPolicy), match=f"{name}='no': use"):
        made(**{name: "no"})


@pytest.mark.parametrize("made", [guarded, offered])
def test_nothing_does_not_mean_that_nobody_is_asked(made: Any) -> None:
    with pytest.raises(TypeError, match="needs_approval=None: use"):
        made(needs_approval=None)
