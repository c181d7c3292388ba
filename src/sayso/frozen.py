"""Frozen dataclasses that are made as fast as others.

The ``__init__`` of a frozen dataclass calls ``object.__setattr__`` for each field, which takes ten
times as long as an assignment. A guarded call makes twenty of them, with twenty fields each.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")


def quickly_made(kind: type[T]) -> type[T]:
    """Let a frozen dataclass with slots fill its fields by assignment.

    While ``__init__`` runs, the instance belongs to a class with the same slots that is not frozen.
    """
    made: Any = vars(kind)["__init__"]
    positional = made.__code__.co_argcount - 1
    names = made.__code__.co_varnames[1 : 1 + positional + made.__code__.co_kwonlyargcount]
    parameters = [*names[:positional], "*", *names[positional:]]
    assignments = {name: f"self.{name} = {name}" for name in names}
    open_members = {
        "__slots__": vars(kind)["__slots__"],
        "__setattr__": object.__setattr__,
        "__delattr__": object.__delattr__,
    }
    namespace: dict[str, Any] = {"_open": type(kind.__name__, kind.__bases__, open_members)}
    namespace |= {"_set": object.__setattr__}
    for field in fields(kind):  # type: ignore[arg-type]
        if field.default_factory is not MISSING:
            namespace |= {f"_make_{field.name}": field.default_factory}
            namespace |= {"_missing": made.__kwdefaults__[field.name]}
            assignments[field.name] += f" if {field.name} is not _missing else _make_{field.name}()"
    lines = [
        f"def __init__(self, {', '.join(parameters).removesuffix(', *')}):",
        "_kind = self.__class__",
        "_set(self, '__class__', _open)",
        *assignments.values(),
        "self.__class__ = _kind",
        *(["self.__post_init__()"] if hasattr(kind, "__post_init__") else []),
    ]
    exec("\n ".join(lines), namespace)  # as ``dataclass`` does
    init = namespace["__init__"]
    for name in ("__defaults__", "__kwdefaults__", "__annotations__", "__qualname__"):
        setattr(init, name, getattr(made, name))
    setattr(kind, "__init__", init)  # noqa: B010
    return kind
