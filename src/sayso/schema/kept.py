"""Proof that nothing of a call is dropped on the way to its JSON form.

Pydantic leaves things out without a word: fields marked ``exclude=True``, what a subclass adds to
the class of the annotation, whatever a serializer does not return, private attributes, ``InitVar``s
and, where a class does not forbid them, unknown keys. People would approve less than what the
caller passed, and the function would run without it. So intake compares the values before and
after the way through JSON, and refuses the call by the path of the first thing that is missing.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NoReturn

from pydantic import AliasChoices, AliasPath, BaseModel, RootModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.errors import InvalidCall

Path = tuple[str | int, ...]
_LISTS = (list, tuple, set, frozenset, deque)
_ABSENT = object()


def check_whole(parameters: Iterable[str], dumped: Mapping[str, Any]) -> None:
    """Raise InvalidCall where a parameter itself has no place in the JSON form of a call."""
    for name in parameters:
        if name not in dumped:
            _refuse((name,), "is excluded from its JSON form, so nobody would see it")


def check_kept(before: Any, after: Any, path: Path = ()) -> None:
    """Raise InvalidCall unless everything in a value came back from its JSON form.

    ``after`` is of the same type, or plain JSON where the function takes anything.
    """
    if isinstance(before, RootModel):
        check_kept(before.root, after.root if isinstance(after, RootModel) else after, path)
    elif _is_object(before):
        _check_object(before, after, path)
    elif isinstance(before, Mapping):
        _check_mapping(before, after, path)
    elif isinstance(before, _LISTS) and isinstance(after, _LISTS):
        if len(before) != len(after):
            _refuse(path, "has other items when it is read back from JSON")
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            check_kept(one, other, (*path, index))
    elif _differs(before, after):
        _refuse(path, "changes when it is read back from JSON; use a type that does not")


def _check_object(before: Any, after: Any, path: Path) -> None:
    for name, info in _infos(before).items():
        if info.exclude:
            _refuse((*path, name), "is excluded from its JSON form, so nobody would see it")
    if isinstance(after, Mapping):
        _check_plain(before, after, path)
        return
    ours, theirs = type(before).__name__, type(after).__name__
    if not isinstance(before, type(after)):
        if _is_object(after):
            other = f"{ours} comes back from JSON as {theirs}"
            _refuse(path, f"{other}: add a field that tells them apart")
        return  # its class has a JSON form of its own
    there = _parts(after)
    why = "is not part of its JSON form"
    if type(before) is not type(after):
        why = f"{ours} has it, and {theirs} does not: declare the parameter as {ours}"
    for name, value in _parts(before).items():
        if name not in there:
            _refuse((*path, name), why)
        check_kept(value, there[name], (*path, name))


def _check_plain(before: Any, after: Mapping[str, Any], path: Path) -> None:
    """The same where the function takes anything, and gets a dict for an object."""
    for name, value in _parts(before).items():
        found = next((key for key in _written(before, name) if key in after), None)
        if found is not None:
            check_kept(value, after[found], (*path, name))
        elif _differs(value, _private_default(before, name)):
            _refuse((*path, name), "is not part of its JSON form")


def _check_mapping(before: Mapping[Any, Any], after: Any, path: Path) -> None:
    if not isinstance(after, Mapping):
        return
    if len(after) != len(before):
        lost = [key for key in before if _key(key, after) not in after]
        _refuse((*path, *map(str, lost[:1])), "is not part of its JSON form")
    for key, value in before.items():
        check_kept(value, after.get(_key(key, after)), (*path, str(key)))


def _key(key: Any, after: Mapping[Any, Any]) -> Any:
    """The key as JSON has it, where it is not there as it was."""
    return key if key in after else next(iter(to_jsonable_python({key: None})))


def _differs(before: Any, after: Any) -> bool:
    """Whether two values of one type are known to be unequal."""
    if before is after or type(before) is not type(after):
        return after is _ABSENT
    kind: Any = type(before)
    if kind.__eq__ is object.__eq__:  # its JSON form is all that can be compared
        return False
    try:
        return bool(before != after)
    except Exception:  # as of arrays; their JSON forms are equal
        return False


def check_known(given: Any, taken: Any, path: Path = ()) -> None:
    """Raise InvalidCall where a class ignored a key of what it was made from.

    Needed where one class of a signature is open (``extra="allow"``), so that unknown keys cannot
    be forbidden for all of them at once.
    """
    if isinstance(taken, RootModel):
        taken = taken.root
    if isinstance(given, _LISTS) and isinstance(taken, _LISTS) and len(given) == len(taken):
        for index, (one, other) in enumerate(zip(given, taken, strict=True)):
            check_known(one, other, (*path, index))
    elif isinstance(given, Mapping) and _is_object(taken):
        if not _reads_its_own_way(type(taken)):
            parts = _parts(taken)
            names = dict.fromkeys(getattr(taken, "__dataclass_fields__", ()), "")
            names |= {key: name for name in parts for key in _read(taken, name)}
            _check_keys(given, {key: parts.get(name) for key, name in names.items()}, path)
    elif isinstance(given, Mapping) and isinstance(taken, Mapping):
        # Keys of another form are other keys now; those of a class with fewer are gone.
        fewer = len(taken) < len(given)
        _check_keys(given, taken if fewer else {**given, **taken}, path)


def _check_keys(given: Mapping[Any, Any], taken: Mapping[Any, Any], path: Path) -> None:
    for key, value in given.items():
        if key not in taken:
            _refuse((*path, str(key)), "is unknown; remove it")
        check_known(value, taken[key], (*path, str(key)))


# -- what an object consists of


def _is_object(value: Any) -> bool:
    is_dataclass = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return isinstance(value, BaseModel) or is_dataclass


def _infos(value: Any) -> Mapping[str, FieldInfo]:
    found: Mapping[str, FieldInfo] = getattr(type(value), "__pydantic_fields__", {})
    return found


def _parts(value: Any) -> dict[str, Any]:
    """Everything that an object holds: fields, extra fields, private and other attributes."""
    if isinstance(value, BaseModel):
        known = {n: value.__dict__[n] for n in type(value).model_fields if n in value.__dict__}
        return {**known, **(value.model_extra or {}), **(value.__pydantic_private__ or {})}
    named = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    own = {n: v for n, v in getattr(value, "__dict__", {}).items() if not n.startswith("__")}
    cached = {n for n in own if isinstance(getattr(type(value), n, None), cached_property)}
    return {**named, **{name: item for name, item in own.items() if name not in cached}}


def _private_default(value: Any, name: str) -> Any:
    """What a private attribute is where nobody sets it; of anything else, nothing."""
    known = getattr(value, "__private_attributes__", {})
    return known[name].get_default() if name in known else _ABSENT


def _written(value: Any, name: str) -> Iterator[str]:
    """The keys that a field may have in JSON."""
    info = _infos(value).get(name)
    if info is not None:
        yield from (key for key in (info.serialization_alias, info.alias) if key is not None)
    yield name


def _read(value: Any, name: str) -> Iterator[str]:
    """The keys that a field may be read from."""
    yield name
    info = _infos(value).get(name)
    alias = None if info is None else info.validation_alias
    for choice in alias.choices if isinstance(alias, AliasChoices) else (alias,):
        first = choice.path[0] if isinstance(choice, AliasPath) else choice
        if isinstance(first, str):
            yield first


def _reads_its_own_way(kind: type) -> bool:
    """Whether a class turns what it is given into its fields itself."""
    decorators = getattr(kind, "__pydantic_decorators__", None)
    found = decorators.model_validators.values() if decorators is not None else ()
    return any(one.info.mode in ("before", "wrap") for one in found)


def _refuse(path: Path, why: str) -> NoReturn:
    place = codec.path_text(path)
    raise InvalidCall(f"{place}: {why}", place)
