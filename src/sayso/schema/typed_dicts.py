"""``typing.TypedDict`` on Python 3.11, where pydantic reads only that of typing_extensions."""

from __future__ import annotations

import sys
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typing_extensions


def readable(annotation: Any) -> Any:
    """Return the annotation with each TypedDict as one that pydantic reads."""
    return annotation if sys.version_info >= (3, 12) else _readable(annotation, ())


def _readable(annotation: Any, inside: tuple[Any, ...]) -> Any:
    if typing_extensions.is_typeddict(annotation):
        known = type(annotation).__module__ != "typing" or annotation in inside
        return annotation if known else _remade(annotation, (*inside, annotation))
    origin, given = get_origin(annotation), get_args(annotation)
    if not given or origin is Literal:
        return annotation
    if origin is Annotated:
        return Annotated[(_readable(given[0], inside), *given[1:])]
    args = tuple(_readable(arg, inside) for arg in given)
    if args == given:
        return annotation
    if origin in (Union, UnionType):
        return Union[args]  # noqa: UP007  # of a tuple that is known only now
    return origin[args]


def _remade(given: Any, inside: tuple[Any, ...]) -> Any:
    try:
        hints = get_type_hints(given, include_extras=True)
    except NameError:  # of a class inside a function; pydantic says what to do
        return given
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        needed = Required if name in given.__required_keys__ else NotRequired
        if get_origin(hint) in (Required, NotRequired):
            needed, hint = get_origin(hint), get_args(hint)[0]
        fields[name] = needed[_readable(hint, inside)]
    make: Any = typing_extensions.TypedDict
    made = make(given.__name__, fields)
    made.__doc__, made.__module__ = given.__doc__, given.__module__
    return made
