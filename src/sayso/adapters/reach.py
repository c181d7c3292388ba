"""Find the agents that an agent's functions hold, and replace them by guarded copies.

Every framework lets the function of a tool run another agent, and none of them records that.
``Walk`` looks for such agents where a function can hold one. Those in closures, default values,
partial functions and containers are replaced in a *copy* of the function, so that the agent the
user passed to ``guard`` is not changed. Those under a global name or in an object are shared with
the user's other code; they cannot be replaced, and an adapter lists them as not covered.

A function can also build an agent while it runs. Where a framework has a hook for that, the adapter
uses it. Where there is none, ``built_by`` looks for the agent's class in the code of the function
and of the user's functions that it calls, and the adapter lists what it finds as not covered. Code
that guards what it builds is left alone.

An adapter subclasses ``Walk``, names the types to look for, and says how to guard one of them.
"""

from __future__ import annotations

import functools
import inspect
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

from sayso.gate.framework import FrameworkAgent

#: How many objects deep to look for an agent that an object holds.
_DEPTH = 3
#: Where installed code is. It is not the user's own, unless the user's package is installed too.
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_MISSING = object()
_mro_of = type.__dict__["__mro__"].__get__


#: A name in the code of a function, what it means, and the class that it was found in.
NamedValue: TypeAlias = tuple[str, Any, "type | None"]


class HeldTarget(NamedTuple):
    """An agent that cannot be replaced in a copy of the function."""

    target: Any
    #: The name under which the function finds it, and a phrase for messages.
    name: str
    found_as: str


class Walk:
    """Search what functions hold for agents, and remember the copies made of them."""

    #: The types to look for. The search stops at these.
    targets: ClassVar[tuple[type, ...]] = ()
    #: Types that are neither searched nor copied, unless the search begins with one. Agents that
    #: are guarded already are treated the same.
    closed: ClassVar[tuple[type, ...]] = ()
    #: The names of the framework's methods that build a target.
    builders: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        # By the id of the original, which is kept alive beside its copy.
        self._copies: dict[int, tuple[Any, Any]] = {}

    # -- the adapter's part

    def guarded_copy(self, target: Any, where: str) -> Any:
        """Return a guarded copy of a target, or the target itself."""
        raise NotImplementedError

    def children(self, value: Any) -> Iterable[Any]:
        """Return what one of the framework's own objects holds."""
        return ()

    def copy_of(self, value: Any, where: str) -> Any:
        """Return a copy of one of the framework's own objects, which holds a target."""
        return value

    # -- copying

    def remember(self, value: Any, copied: Any) -> Any:
        """Remember the copy of a value, and return it."""
        self._copies[id(value)] = value, copied
        return copied

    def value(self, value: Any, where: str) -> Any:
        """Return a copy of a value that holds guarded copies; the value itself if it needs none."""
        known = self._copies.get(id(value))
        if known is not None and not self._is_stale(value):
            return known[1]
        if isinstance(value, self.targets):
            return self.remember(value, self.guarded_copy(value, where))
        if not self.reaches(value):
            return value
        if isinstance(value, types.FunctionType):
            return self._function(value, where)
        if isinstance(value, functools.partial):
            function, args, keywords = (
                self.value(part, where) for part in (value.func, value.args, value.keywords)
            )
            return functools.partial(function, *args, **keywords)
        if isinstance(value, Mapping):
            return {key: self.value(item, where) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([self.value(item, where) for item in value])
        return self.copy_of(value, where)

    def _is_stale(self, value: Any) -> bool:
        """Return whether a function in a value was given a target after it was copied, in a
        variable that it shares with its copy. Forgets these copies."""
        stale = False
        for item in () if isinstance(value, self.targets) else list(self.contents(value)):
            known = self._copies.get(id(item))
            if known is not None and isinstance(item, types.FunctionType):
                pairs = zip(cells(item), cells(known[1]), strict=True)
                stale |= any(old is new and self.reaches(held) for (old, held), (new, _) in pairs)
        if stale:
            for item in self.contents(value):
                if not isinstance(item, self.targets):
                    self._copies.pop(id(item), None)
        return stale

    def _function(self, function: Any, where: str) -> Any:
        """Return a function like this one that holds the guarded copies.

        Only cells that lead to a target are replaced, so that the function still shares the others
        with the code around it.
        """
        held = cells(function)
        new = [types.CellType() if self.reaches(content) else cell for cell, content in held]
        closure = None if function.__closure__ is None else tuple(new)
        copied: Any = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, None, closure
        )
        self.remember(
            function, copied
        )  # before its cells are filled: functions may hold each other
        vars(copied).update(vars(function))
        copied.__module__, copied.__qualname__ = function.__module__, function.__qualname__
        copied.__doc__, copied.__annotations__ = function.__doc__, function.__annotations__
        for cell, (old, content) in zip(new, held, strict=True):
            if cell is not old:
                cell.cell_contents = self.value(content, where)
        copied.__defaults__ = self.value(function.__defaults__, where)
        copied.__kwdefaults__ = self.value(function.__kwdefaults__, where)
        return copied

    # -- looking

    def reaches(self, value: Any) -> bool:
        """Return whether a value holds a target that a copy of it could replace."""
        return any(isinstance(item, self.targets) for item in self.contents(value))

    def contents(self, value: Any) -> Iterator[Any]:
        """Yield a value and everything in it that a copy of it could replace."""
        seen: set[int] = set()
        left = [value]
        while left:
            item = left.pop()
            if id(item) in seen:
                continue
            seen.add(id(item))
            yield item
            closed = isinstance(item, (FrameworkAgent, *self.closed)) and item is not value
            if not closed and not isinstance(item, self.targets):
                left += self._children(item)

    def _children(self, value: Any) -> Iterable[Any]:
        if isinstance(value, Mapping):
            return value.values()
        if isinstance(value, list | tuple | set | frozenset):
            return value
        if isinstance(value, functools.partial):
            return value.func, value.args, value.keywords
        if isinstance(value, types.FunctionType):
            variables = [content for _, content in cells(value)]
            return *variables, value.__defaults__, value.__kwdefaults__
        if isinstance(value, types.MethodType):
            return value.__func__, value.__self__
        return self.children(value)

    def held(self, function: Any, name: str) -> Iterator[HeldTarget]:
        """Yield all targets that a function can reach, for an adapter that replaces none of them.

        ``name`` is for those in variables, where the variable's name is unknown.
        """
        yield from self._targets_in(function, name, "a variable")
        yield from self.out_of_reach(function)

    def out_of_reach(self, value: Any) -> Iterator[HeldTarget]:
        """Yield the targets that the functions and objects in a value find elsewhere, also through
        the user's functions that they call."""
        for item in self.contents(value):
            if self._is_object(item):
                for name, held in self._attributes(item):
                    yield from self._targets_in(held, name, f"{type(item).__name__}.{name}")
        for function, _ in self._functions_called(value, guarding=True):
            for name in sorted(_names(function) & function.__globals__.keys()):
                held = function.__globals__[name]
                if not isinstance(held, types.ModuleType | type):
                    yield from self._targets_in(held, name, f"the global name {name!r}")

    def built_by(self, function: Any) -> Iterator[str]:
        """Yield the names of the classes and methods with which a function, and the user's
        functions that it calls, can build a target while it runs."""
        for called, named in self._functions_called(function, guarding=False):
            for name, value, _ in () if self._is_framework(called) else named:
                if isinstance(value, type) and issubclass(value, self.targets):
                    yield value.__name__
                elif name in self.builders and self._is_framework(value):
                    yield name

    def _functions_called(
        self, value: Any, *, guarding: bool
    ) -> Iterator[tuple[Any, list[NamedValue]]]:
        """Yield the functions in a value, and the user's functions that they call, each with what
        the names in its code mean; with ``guarding``, also those that guard agents themselves."""
        seen: set[int] = set()
        # First in, first out: a method comes before its function, which does not know its class.
        left = deque[tuple[Any, type | None]]((item, None) for item in self.contents(value))
        while left:
            function, owner = left.popleft()
            if isinstance(function, types.MethodType):
                owner, function = type(function.__self__), function.__func__
            if not isinstance(function, types.FunctionType) or id(function) in seen:
                continue
            seen.add(id(function))
            named = list(_named(function, owner))
            if not guarding and any(_is_ours(found) for _, found, _ in named):
                continue
            yield function, named
            if not self._is_framework(function):  # such as that of an agent that is a tool
                called = [(found, holder) for _, found, holder in named]
                left += [(f, holder) for f, holder in called if _is_user_code(f, function)]

    def _is_framework(self, value: Any) -> bool:
        packages = {_package(target) for target in self.targets}
        return inspect.isroutine(value) and _package(value) in packages

    def _targets_in(self, value: Any, name: str, found_as: str) -> Iterator[HeldTarget]:
        for item in self.contents(value):
            if isinstance(item, self.targets):
                yield HeldTarget(item, name, found_as)

    def _is_object(self, value: Any) -> bool:
        """Return whether a value is an object of the user, whose attributes may hold agents."""
        other = (functools.partial, type, types.ModuleType, FrameworkAgent)
        if isinstance(value, (*other, *self.targets, *self.closed)) or inspect.isroutine(value):
            return False
        return hasattr(value, "__dict__") and not any(True for _ in self.children(value))

    def _attributes(self, value: Any, depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
        for name, held in list(vars(value).items()):
            yield name, held
            if depth > 1 and self._is_object(held):
                yield from self._attributes(held, depth - 1)


def cells(function: Any) -> list[tuple[Any, Any]]:
    """Return the cells of a closure, each with its content; None for one that is still empty."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append((cell, cell.cell_contents))
        except ValueError:
            found.append((cell, None))
    return found


def _names(function: Any) -> set[str]:
    """Return the names of globals, attributes and imports in the code of a function, and of the
    functions written inside it."""
    codes, names = [function.__code__], set[str]()
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return names


def _named(function: Any, owner: type | None) -> Iterator[NamedValue]:
    """Yield what the names in the code of a function mean: globals, what the function imports and
    closes over, and their attributes. The third is the class that an attribute was found in."""
    names = _names(function)
    held = {name: function.__globals__[name] for name in names & function.__globals__.keys()}
    held |= {name: sys.modules[name] for name in (names & sys.modules.keys()) - held.keys()}
    for index, (_, value) in enumerate(cells(function)):
        held[function.__code__.co_freevars[index]] = value
    if owner is not None:
        held["self"] = owner
    for name, value in held.items():
        yield name, value, None
        kind = value if isinstance(value, type) else type(value)
        for attribute in _possible_attributes(value, names):
            found = inspect.getattr_static(value, attribute, _MISSING)
            if found is not _MISSING:
                yield attribute, getattr(found, "__func__", found), kind


def _possible_attributes(value: Any, names: set[str]) -> set[str]:
    """Return the names that may be attributes of a value, without running any of its code.

    ``getattr_static`` takes long to find nothing, and most names are attributes of something else.
    """
    try:
        classes = [*_mro_of(value), *_mro_of(type(value))]
    except TypeError:  # not a class
        classes = [*_mro_of(type(value))]
        own = [vars(kind)["__dict__"] for kind in classes if "__dict__" in vars(kind)]
        if not all(isinstance(found, types.GetSetDescriptorType) for found in own):
            return names  # the class computes its `__dict__`
        held = object.__getattribute__(value, "__dict__") if own else {}
        found = {name for name in names if dict.__contains__(held, name)}
    else:
        found = set()
    return found.union(*(names & vars(kind).keys() for kind in classes))


def _package(value: Any) -> str:
    return str(getattr(value, "__module__", None) or "").partition(".")[0]


def _is_ours(value: Any) -> bool:
    """Return whether a value is a part of Sayso that guards an agent."""
    is_code = isinstance(value, type | types.FunctionType)
    return is_code and value.__module__.startswith("sayso.adapters.")


def _is_user_code(value: Any, caller: Any) -> bool:
    """Return whether a function is the user's own code, like the one that calls it."""
    if not isinstance(value, types.FunctionType | types.MethodType):
        return False
    if _package(value) == _package(caller):
        return True
    file = inspect.unwrap(value).__code__.co_filename
    return not file.startswith(_INSTALLED)
