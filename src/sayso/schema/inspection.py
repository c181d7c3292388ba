"""Look at a function as a tool: its name, its resolved annotations, and whether it can be one."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
import types
from collections.abc import Callable
from typing import Any, get_type_hints

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
Names = tuple[dict[str, Any], dict[str, Any]]  # global and local

_UNRESOLVED = (NameError, AttributeError, SyntaxError, TypeError)


def plain_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function below partials, wrappers, bound methods and callable objects."""
    fn = _below_partials(fn)
    if inspect.isclass(fn) or not callable(fn):
        raise TypeError(f"{fn!r:.80} is not a function; wrap it in one")
    if not inspect.isroutine(fn):
        fn = type(fn).__call__
    if inspect.ismethod(fn):
        fn = fn.__func__
    function: Callable[..., Any] = inspect.unwrap(fn)
    return function


def tool_name(fn: Callable[..., Any], name: str | None) -> str:
    """Return the given name, or the function's own, if models take it as a tool name."""
    plain_function(fn)
    chosen = getattr(_below_partials(fn), "__name__", "") if name is None else name
    if not isinstance(chosen, str) or not _TOOL_NAME.fullmatch(chosen):
        raise TypeError(
            f"{chosen!r:.80} cannot name a tool: give it a name of 1 to 64 letters, digits, "
            "_ or -, as in name='send_email'"
        )
    return chosen


def resolved(fn: Callable[..., Any], *, skip_first: bool = False) -> inspect.Signature:
    """Return the signature with real types for annotations, or TypeError with advice."""
    function = plain_function(fn)
    try:
        signature = inspect.signature(fn)
    except ValueError:
        raise TypeError(f"{function.__name__}() has no signature; wrap it in a function") from None
    parameters = list(signature.parameters.values())
    _refuse_self(function, parameters)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__name__}() yields, and a call has one result: return a list")
    names = (getattr(function, "__globals__", {}), _local_names(function))
    return signature.replace(
        parameters=[_resolved(function, item, names) for item in parameters[int(skip_first) :]],
        return_annotation=_type_of(function, "return", signature.return_annotation, names),
    )


def _refuse_self(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> None:
    if parameters and parameters[0].name in {"self", "cls"}:
        raise TypeError(
            f"{function.__qualname__}() takes {parameters[0].name!r}, which cannot be stored; "
            "wrap the call in a function that holds the object"
        )


def _resolved(
    function: Callable[..., Any],
    parameter: inspect.Parameter,
    names: Names,
) -> inspect.Parameter:
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        raise TypeError(
            f"{function.__name__}() takes {parameter}, so nobody can see in advance what it gets; "
            "name each parameter, or take one list or dict"
        )
    annotation = _type_of(function, parameter.name, parameter.annotation, names)
    return parameter.replace(annotation=annotation)


def _type_of(
    function: Callable[..., Any],
    name: str,
    annotation: Any,
    names: Names,
) -> Any:
    if annotation is inspect.Signature.empty:
        return annotation
    holder = types.SimpleNamespace(__annotations__={name: annotation})
    try:
        return get_type_hints(holder, *names, include_extras=True)[name]
    except _UNRESOLVED as error:
        raise TypeError(
            f"the annotation of {name!r} in {function.__name__}() cannot be resolved ({error}); "
            "import or define its types at the top of the module, outside TYPE_CHECKING"
        ) from error


def _local_names(function: Callable[..., Any]) -> dict[str, Any]:
    """Collect what the functions around this one have defined, while they are still running."""
    if not inspect.isfunction(function):
        return {}
    around = function.__qualname__.split(".<locals>")[:-1]
    enclosing = {".<locals>".join(around[: depth + 1]) for depth in range(len(around))}
    found: dict[str, Any] = {}
    frame = sys._getframe() if enclosing else None
    while frame is not None:
        if frame.f_globals is function.__globals__ and frame.f_code.co_qualname in enclosing:
            found = {**frame.f_locals, **found}  # the innermost function wins
        frame = frame.f_back
    return found | _closed_over(function)


def _closed_over(function: types.FunctionType) -> dict[str, Any]:
    """What the function uses of those around it, and has a value by now; itself has none yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _below_partials(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn
