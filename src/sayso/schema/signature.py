"""A function's signature as a JSON Schema, and the road of a call from Python to bytes and back.

    Python values ── bind, intake ──▶ canonical bytes ── load ──▶ fresh Python values
    JSON values ──── intake_json ──▶       │
                                           └─ stored, hashed, shown to a person

Only the bytes count: the values that were passed in are let go, and what the function gets is made
from the bytes. So intake refuses a value that would not come back from its bytes as it went in,
and one that has more in it than its bytes (``sayso.schema.kept``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from sayso import codec
from sayso.errors import InvalidCall, InvalidDecision
from sayso.schema import docstring, inspection, kept, models
from sayso.schema.strict import strict, without_nulls

_MAX_ERRORS = 5
_MAX_MESSAGE = 200
_UNDUMPABLE = (PydanticSerializationError, ValueError, TypeError, RecursionError)


@dataclass(frozen=True, eq=False, kw_only=True)
class Signature:
    """What a tool takes and gives, built once per function."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments: one closed object."""
    returns: dict[str, Any] | None
    """JSON Schema of the result; None where the function does not say."""
    _call: inspect.Signature
    _arguments: type[BaseModel]
    _result: type[models.Result]
    _extra: Literal["forbid"] | None
    _fixed: type[BaseModel]
    constants: Mapping[str, Any]
    """What ``functools.partial`` fixes by position, as JSON: shown, and never another value."""

    @classmethod
    def of(
        cls,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        skip_first: bool = False,
    ) -> Signature:
        """Read a function; TypeError says what to change if it cannot be a tool."""
        if isinstance(getattr(fn, "signature", None), Signature):  # it is a sayso.tool
            raise TypeError(
                f"{fn.name} is a tool already, and a sayso.Agent asks before it runs: "  # type: ignore[attr-defined]
                f"elsewhere use the function in it, {fn.name}.function"  # type: ignore[attr-defined]
            )
        name = inspection.tool_name(fn, name)
        call = inspection.resolved(fn, skip_first=skip_first)
        text, meanings = docstring.split(inspection.plain_function(fn).__doc__)
        bound = inspection.fixed(fn)
        fixed = models.fixed(name, bound)
        constants = _constants(name, fixed)
        whole = call.replace(parameters=_shown(call, bound))
        arguments, parameters = models.arguments(name, whole, meanings, constants)
        result, returns = models.result(name, call.return_annotation)
        return cls(
            name=name,
            description=text if description is None else description,
            parameters=parameters,
            returns=returns,
            _call=call,
            _arguments=arguments,
            _result=result,
            _extra=models.extra_keys(parameters),
            _fixed=fixed,
            constants=constants,
        )

    @cached_property
    def strict(self) -> dict[str, Any]:
        """The parameters in OpenAI's strict form; InvalidCall names a parameter that has none."""
        return strict(self.parameters)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return a Python call by parameter name, as passed, before defaults."""
        try:
            return self._call.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None

    def intake(self, values: Mapping[str, Any]) -> bytes:
        """Return the canonical bytes of a call made in Python, with every default."""
        try:
            call = self._arguments.model_validate(dict(values), extra=self._extra)
        except ValidationError as error:
            raise InvalidCall(*_plain(error)) from None
        if self._extra is None:
            kept.check_known(values, self._by_name(call))
        return self._settled(call)

    def intake_json(self, values: Mapping[str, Any], *, strict: bool = False) -> bytes:
        """Return the canonical bytes of a call made in JSON, by a model or in an edit.

        With ``strict``, the values answer the strict schema: null means "use the default" where
        the parameter itself cannot be null.
        """
        data = codec.canonical(dict(values))
        if strict:
            given, definitions = codec.loads(data), self.parameters.get("$defs", {})
            data = codec.canonical(without_nulls(self.parameters, given, definitions))
        call = self._read(data)
        if self._extra is None:
            kept.check_known(codec.loads(data), self._by_name(call))
        return self._settled(call, data)

    def load(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return fresh positional and keyword arguments made from stored bytes alone."""
        values = self.named(data)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in self._call.parameters.values():
            value = values[parameter.name]
            if parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                kwargs[parameter.name] = value
        return tuple(args), kwargs

    def named(self, data: bytes) -> dict[str, Any]:
        """Return fresh arguments by name, made from stored bytes alone."""
        values = self._by_name(self._read(data))
        if self.constants:
            self._check_fixed({name: codec.loads(data)[name] for name in self.constants})
        return values

    def dump_result(self, value: object) -> str:
        """Return a result as JSON text, or InvalidCall if it has no JSON form."""
        try:
            return self._result.model_construct(value).model_dump_json(
                by_alias=True, warnings=False
            )
        except _UNDUMPABLE:
            pass
        try:
            return to_json(value, bytes_mode="base64", inf_nan_mode="strings").decode()
        except _UNDUMPABLE:
            raise InvalidCall(
                f"the result of {self.name}(), a value of type {type(value).__name__}, cannot be "
                "stored; return text, numbers, lists, dicts, dataclasses or pydantic models"
            ) from None

    def load_result(self, text: str) -> Any:
        """Return a stored result as the function's own type, to be given again."""
        try:
            return self._result.model_validate_json(text, extra="ignore").root
        except ValidationError:
            return codec.loads(text)  # the function did not keep to its own annotation

    def check_result(self, value: object) -> str:
        """Return a person's value as the JSON text of a result, or InvalidDecision."""
        try:
            data = codec.canonical(value)
            extra = models.extra_keys(self.returns or {})
            result = self._result.model_validate_json(data, extra=extra)
            return result.model_dump_json(by_alias=True)
        except InvalidCall as error:
            raise InvalidDecision(str(error), error.path) from None
        except ValidationError as error:
            raise InvalidDecision(*_plain(error)) from None

    def _read(self, data: bytes) -> BaseModel:
        try:
            return self._arguments.model_validate_json(data, extra=self._extra)
        except ValidationError as error:
            raise InvalidCall(*_plain(error)) from None

    def _by_name(self, call: BaseModel) -> dict[str, Any]:
        return dict(zip(self._names, vars(call).values(), strict=True))

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.parameters["properties"])

    def _check_fixed(self, given: Mapping[str, Any]) -> None:
        """Refuse another value than the one that a partial has; also if that one has changed."""
        for name, value in _dump(self._fixed()).items():
            if (
                not codec.canonical(value)
                == codec.canonical(given[name])
                == codec.canonical(self.constants[name])
            ):
                raise InvalidCall(
                    f"{name}: functools.partial fixes this argument, and it cannot be another",
                    name,
                )

    def _settled(self, call: BaseModel, given: bytes = b"") -> bytes:
        """Return the call's bytes once they are proved to read back as the same bytes, and as
        everything that the call has in it."""
        first = _dump(call)
        kept.check_whole(self._names, first)
        if self.constants:
            self._check_fixed(first)
        data = codec.canonical(first)
        again = call
        if data != given:  # else reading these very bytes gave them back
            try:
                again = self._read(data)
            except InvalidCall as error:
                raise InvalidCall(
                    f"does not come back from its JSON form: {error}", error.path
                ) from None
            second = _dump(again)
            # Equal text is an equal value; only other text needs the slower canonical form.
            if codec.dumps(first) != codec.dumps(second) and codec.canonical(second) != data:
                path = _difference(codec.loads(data), second)
                raise InvalidCall(
                    f"{path}: changes when it is read back from JSON; use a type that does not",
                    path,
                )
        kept.check_kept(self._by_name(call), self._by_name(again))
        return data


def _shown(call: inspect.Signature, fixed: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """All that a function takes, in one list: first what was fixed, as in the function itself."""
    free = [one.replace(kind=one.KEYWORD_ONLY) for one in call.parameters.values()]
    return [*fixed, *free]


def _constants(tool: str, fixed: type[BaseModel]) -> dict[str, Any]:
    try:
        values: dict[str, Any] = codec.loads(codec.canonical(_dump(fixed())))
    except InvalidCall as error:
        raise TypeError(f"{tool}() has a functools.partial with {error}") from None
    return values


def _dump(call: BaseModel) -> dict[str, Any]:
    try:
        # round_trip leaves out computed fields, which are no input.
        return call.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
    except _UNDUMPABLE as error:
        why = _short(str(error))
        if "depth" in why:  # pydantic's own limit, a little above ours
            why = f"nested more than {codec.MAX_DEPTH} levels deep; flatten them"
        raise InvalidCall(f"the arguments have no JSON form: {why}") from None


def _plain(error: ValidationError) -> tuple[str, str]:
    """Turn pydantic's report into one line that echoes no input, and the first path."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = []
    for item in found[:_MAX_ERRORS]:
        path = codec.path_text(item["loc"])
        lines.append(f"{path or 'value'}: {_short(_WORDS.get(item['type'], item['msg']))}")
    if len(found) > _MAX_ERRORS:
        lines.append(f"and {len(found) - _MAX_ERRORS} more")
    return "; ".join(lines), codec.path_text(found[0]["loc"])


_WORDS = {
    "missing": "is missing",
    "extra_forbidden": "is unknown; remove it",
    "unexpected_keyword_argument": "is unknown; remove it",
}


def _short(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"


def _difference(before: Any, after: Any) -> str:
    """Return the path of the first value that is not the same in both."""
    path: list[str | int] = []
    while True:
        step = _changed_step(before, after)
        if step is None:
            return codec.path_text(path)
        path.append(step)
        before, after = before[step], after[step]


def _changed_step(before: Any, after: Any) -> str | int | None:
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        steps: Iterable[str | int] = before
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        steps = range(len(before))
    else:
        return None
    return next(s for s in steps if codec.canonical(before[s]) != codec.canonical(after[s]))
