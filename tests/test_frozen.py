"""Frozen dataclasses that are made quickly behave like all others."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from sayso.frozen import quickly_made
from sayso.rows import Proven
from sayso.types import Request, Reviewer, Terms


@dataclass(frozen=True, slots=True)
class Plain:
    first: str
    kind: Any = None
    others: dict[str, int] = field(default_factory=dict, kw_only=True)
    last: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if not self.first:
            raise ValueError("first")


@quickly_made
@dataclass(frozen=True, slots=True)
class Quick(Plain):
    more: int = 0


def test_fields_are_set_as_given() -> None:
    quick = Quick("a", str, 3, last=("x",))
    assert (quick.first, quick.kind, quick.more) == ("a", str, 3)
    assert (quick.others, quick.last) == ({}, ("x",))
    assert Quick("a").others is not Quick("a").others
    assert repr(quick).endswith(
        "Quick(first='a', kind=<class 'str'>, others={}, last=('x',), more=3)"
    )


def test_signature_is_that_of_the_dataclass() -> None:
    plain = dataclass(frozen=True, slots=True)(
        type("Quick", (Plain,), {"__annotations__": {"more": "int"}, "more": 0})
    )
    assert list(inspect.signature(Quick).parameters) == list(inspect.signature(plain).parameters)
    assert inspect.signature(Quick).parameters["more"].default == 0
    with pytest.raises(TypeError, match="first"):
        Quick()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected"):
        Quick("a", other=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("made", [Quick("a"), Reviewer("ann"), Proven("ann"), Terms()], ids=repr)
def test_nothing_changes_an_instance(made: Any) -> None:
    name = fields(made)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(made, name, "other")
    with pytest.raises(FrozenInstanceError):
        delattr(made, name)
    with pytest.raises((FrozenInstanceError, TypeError, AttributeError)):
        made.unknown = 1
    assert not hasattr(made, "__dict__")


@pytest.mark.parametrize("made", [Reviewer("ann"), Proven("ann"), Terms()], ids=repr)
def test_copies_are_equal(made: Any) -> None:
    for again in (
        copy.copy(made),
        copy.deepcopy(made),
        pickle.loads(pickle.dumps(made)),
        replace(made),
    ):
        assert again == made
        assert type(again) is type(made)
        assert hash(again) == hash(made)


def test_checks_run_when_the_fields_are_set() -> None:
    with pytest.raises(ValueError, match="first"):
        Quick("")


def test_subclass_has_its_own_fields() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Wider(Terms):
        wider: int = 1

    assert (Wider(quorum=2).quorum, Wider().wider, type(Wider())) == (2, 1, Wider)
    assert Request.__match_args__ == ()
