"""Which names may be attributes of a value, found without running the value's code."""

from __future__ import annotations

import inspect
import sys
from typing import Any
from unittest.mock import MagicMock

import pytest

from sayso.adapters.reach import _possible_attributes


class Meta(type):
    def of_the_class(cls) -> None: ...


class Plain(metaclass=Meta):
    def method(self) -> None: ...


class Slots:
    __slots__ = ("slot",)


class Shadowed:
    """Its code would run if anybody looked at ``__dict__``."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise AssertionError("it ran")


class Lazy:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError("it ran")


def held() -> Plain:
    plain = Plain()
    plain.own = 1  # type: ignore[attr-defined]
    return plain


NAMES = {
    "method",
    "own",
    "of_the_class",
    "slot",
    "keys",
    "path",
    "mro",
    "__class__",
    "__dict__",
    "x",
}


@pytest.mark.parametrize(
    "value",
    [
        *(held(), Plain, Meta, Slots(), Slots, Shadowed(), Lazy(), {}, dict, sys, None, 1, len),
        *(type, MagicMock(), MagicMock(spec=type), held().method, Plain.method),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_attribute_is_left_out(value: Any) -> None:
    missing = object()
    found = {name for name in NAMES if inspect.getattr_static(value, name, missing) is not missing}
    assert found <= _possible_attributes(value, NAMES)


def test_other_names_are_left_out() -> None:
    assert _possible_attributes(held(), NAMES) == {"method", "own", "__class__", "__dict__"}
