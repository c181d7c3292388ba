"""Inspect a function: its name, real parameters, resolved annotations and docstring."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
Names = tuple[dict[str, Any], dict[str, Any]]  # global and local

_PLACEHOLDER = getattr(functools, "Placeholder", object())  # of Python 3.14
_VARIADIC = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
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
            f"{chosen!r:.80} is not a valid tool name: use 1 to 64 letters, digits, _ or -, as in "
            "name='send_email'"
        )
    return chosen


def resolved_signature(fn: Callable[..., Any], *, skip_first: bool = False) -> inspect.Signature:
    """Return the signature with resolved annotations. Raise ``TypeError`` with advice."""
    function = plain_function(fn)
    signature = signature_of(fn)
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name in {"self", "cls"}:
        raise TypeError(
            f"{function.__qualname__}() takes {parameters[0].name!r}, which cannot be stored; "
            "wrap the call in a function that holds the object"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__name__}() yields, but a call has one result: return a list")
    names = _names(fn)
    return signature.replace(
        parameters=[
            _resolved_parameter(function, item, names) for item in parameters[int(skip_first) :]
        ],
        return_annotation=_type_of(function, "return", signature.return_annotation, names),
    )


def fixed_parameters(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that ``functools.partial`` fixes by position, with their values as
    defaults. Callers cannot pass other values, but people must see these."""
    function = plain_function(fn)
    names = _names(fn)
    parameters: list[inspect.Parameter] = []
    while isinstance(fn, functools.partial):
        below = signature_of(fn.func).parameters.values()
        outer = [
            _resolved_parameter(function, parameter, names).replace(
                kind=inspect.Parameter.KEYWORD_ONLY, default=value
            )
            for parameter, value in zip(below, fn.args, strict=False)
            if value is not _PLACEHOLDER
        ]
        parameters = outer + parameters
        fn = fn.func
    return parameters


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of the function that is really called.

    For a wrapper these are its own parameters, not those of the function that it wraps or of the
    ``__signature__`` that it claims: otherwise a parameter with a default would be hidden. Only a
    wrapper that takes exactly ``*args, **kwargs`` has the signature of what it wraps.
    """
    if isinstance(fn, functools.partial):
        return inspect.signature(
            functools.partial(_empty_function(fn.func), *fn.args, **fn.keywords)
        )
    if inspect.ismethod(fn):
        return inspect.signature(types.MethodType(_empty_function(fn.__func__), fn.__self__))
    call: Any = type(fn).__call__
    if inspect.isfunction(fn) or inspect.isfunction(call):
        if inspect.isfunction(fn):
            own = inspect.signature(_without_signature(fn))
        else:
            bound_later = signature_of(call)
            own = bound_later.replace(parameters=list(bound_later.parameters.values())[1:])
        kinds = {parameter.kind for parameter in own.parameters.values()}
        return (_wrapped_signature(fn) or own) if kinds == _VARIADIC else own
    try:
        return inspect.signature(fn)
    except ValueError:
        name = getattr(fn, "__name__", type(fn).__name__)
        raise TypeError(f"{name}() has no signature; wrap it in a function") from None


def _wrapped_signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature that a wrapper declares, or that of the function it wraps."""
    own = getattr(fn, "__dict__", {})
    declared = own.get("__signature__")
    wrapped = own.get("__wrapped__")
    # functools.wraps copies the __signature__ of the wrapped function.
    if declared is not None and declared is not getattr(wrapped, "__signature__", None):
        return inspect.signature(fn)
    return None if wrapped is None else signature_of(wrapped)


def _empty_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return an empty function with the signature of ``fn``, for ``inspect`` to work on."""

    def placeholder() -> None: ...

    placeholder.__signature__ = signature_of(fn)  # type: ignore[attr-defined]
    return placeholder


def _without_signature(fn: types.FunctionType) -> types.FunctionType:
    """Copy a function without its ``__signature__`` and ``__wrapped__``."""
    copied = types.FunctionType(
        fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    copied.__kwdefaults__ = fn.__kwdefaults__
    copied.__annotations__ = fn.__annotations__
    return copied


def _names(fn: Callable[..., Any]) -> Names:
    """Return the names for resolving annotations: those of the wrapper and of what it wraps."""
    function = plain_function(fn)
    outer = _below_partials(fn)
    outer_names = getattr(outer, "__globals__", {}) if inspect.isfunction(outer) else {}
    return {**outer_names, **getattr(function, "__globals__", {})}, _local_names(function)


def _resolved_parameter(
    function: Callable[..., Any], parameter: inspect.Parameter, names: Names
) -> inspect.Parameter:
    if parameter.kind in _VARIADIC:
        raise TypeError(
            f"{function.__name__}() takes {parameter}, so people cannot see what it would get; "
            "name each parameter, or take one list or dict"
        )
    annotation = _type_of(function, parameter.name, parameter.annotation, names)
    return parameter.replace(annotation=annotation)


def _type_of(function: Callable[..., Any], name: str, annotation: Any, names: Names) -> Any:
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
    """Return the local names of the enclosing functions, while they are still running."""
    if not inspect.isfunction(function):
        return {}
    outer = function.__qualname__.split(".<locals>")[:-1]
    enclosing = {".<locals>".join(outer[: depth + 1]) for depth in range(len(outer))}
    names: dict[str, Any] = {}
    frame = sys._getframe() if enclosing else None
    while frame is not None:
        if frame.f_globals is function.__globals__ and frame.f_code.co_qualname in enclosing:
            names = {**frame.f_locals, **names}  # the innermost function wins
        frame = frame.f_back
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the function itself has no value yet
            names[name] = cell.cell_contents
    return names


def _below_partials(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


_GOOGLE_HEADING = re.compile(r"(Args|Arguments|Parameters|Params):\s*$")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY_HEADING = re.compile(r"(?:Other )?Parameters\s*$")
_NUMPY_ENTRY = re.compile(r"(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_SPHINX_ENTRY = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?(\w+):\s*(.*)")
_SPHINX_FIELD = re.compile(r":(?:param|parameter|arg|argument|type)\s+[^:]+:")


def split_docstring(docstring: str | None) -> tuple[str, dict[str, str]]:
    """Return the description without its parameter section, and the text of each parameter."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    for split in (_google, _numpy, _sphinx):
        rest, entries = split(lines)
        if entries:
            return _joined(rest), entries
    return _joined(lines), {}


def _joined(lines: Iterable[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _google(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    start = _find(lines, _GOOGLE_HEADING)
    if start is None:
        return lines, {}
    indices = range(start + 1, len(lines))
    end = next((i for i in indices if lines[i].strip() and not _indent(lines[i])), len(lines))
    return lines[:start] + lines[end:], _entries(lines[start + 1 : end], _GOOGLE_ENTRY)


def _numpy(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    start = _find(lines, _NUMPY_HEADING)
    if start is None or not _is_rule(lines, start + 1):
        return lines, {}
    end = next((i for i in range(start + 2, len(lines)) if _is_rule(lines, i + 1)), len(lines))
    return lines[:start] + lines[end:], _entries(lines[start + 2 : end], _NUMPY_ENTRY)


def _sphinx(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    rest: list[str] = []
    fields: list[str] = []
    for line in lines:
        if _SPHINX_FIELD.match(line) or (fields and line.startswith(" ")):
            fields.append(line)
        else:
            rest.append(line)
    return rest, _entries(fields, _SPHINX_ENTRY)


def _entries(lines: list[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """Collect ``name: text`` entries; deeper indented lines continue the one before."""
    entries: dict[str, list[str]] = {}
    names: list[str] = []
    margin = min((_indent(line) for line in lines if line.strip()), default=0)
    for line in lines:
        if _indent(line) > margin or not line.strip():
            for name in names:
                entries[name].append(line.strip())
        elif match := pattern.match(line.strip()):
            listed, *text = match.groups()
            names = re.split(r"\s*,\s*", listed)
            entries |= {name: list(text) for name in names}
        else:
            names = []
    return {name: " ".join(filter(None, text)) for name, text in entries.items()}


def _find(lines: list[str], pattern: re.Pattern[str]) -> int | None:
    return next((i for i, line in enumerate(lines) if pattern.match(line)), None)


def _is_rule(lines: list[str], index: int) -> bool:
    return index < len(lines) and re.fullmatch(r"-{3,}\s*", lines[index]) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
