"""``Signature``: a function's JSON Schema, and how a call is converted to bytes and back.

    Python values ── bind, intake ──▶ canonical bytes ── load ──▶ fresh Python values
    JSON values ──── intake_json ──▶       │
                                           └─ stored, hashed, shown to a person

Only the bytes count: the values that were passed in are dropped, and the function gets values made
from the bytes. So intake refuses a value that would not come back from its bytes unchanged, or that
holds more than its bytes (``check_round_trip``).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NoReturn

from pydantic import AliasChoices, AliasPath, BaseModel, RootModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from sayso import codec
from sayso.errors import InvalidCall, InvalidDecision
from sayso.schema import models
from sayso.schema.functions import (
    fixed_parameters,
    plain_function,
    resolved_signature,
    split_docstring,
    tool_name,
)
from sayso.schema.strict import strict, without_nulls

_MAX_ERRORS = 5
_MAX_MESSAGE = 200
_UNDUMPABLE = (PydanticSerializationError, ValueError, TypeError, RecursionError)


@dataclass(frozen=True, eq=False, kw_only=True)
class Signature:
    """The parameters and the result of a tool, built once per function."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments: one closed object."""
    returns: dict[str, Any] | None
    """JSON Schema of the result; None without a return annotation."""
    _call: inspect.Signature
    _arguments: type[BaseModel]
    _result: type[models.Result]
    _extra: Literal["forbid"] | None
    _fixed: type[BaseModel]
    constants: Mapping[str, Any]
    """The arguments that ``functools.partial`` fixes by position, as JSON. They are shown."""

    @classmethod
    def of(
        cls,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        skip_first: bool = False,
    ) -> Signature:
        """Inspect a function. Raise ``TypeError`` with what to change if it cannot be a tool."""
        if isinstance(getattr(fn, "signature", None), Signature):  # it is a sayso.tool
            raise TypeError(
                f"{fn.name} is a sayso.tool, for a sayso.Agent: "  # type: ignore[attr-defined]
                f"elsewhere use its function, {fn.name}.function"  # type: ignore[attr-defined]
            )
        name = tool_name(fn, name)
        call = resolved_signature(fn, skip_first=skip_first)
        text, meanings = split_docstring(plain_function(fn).__doc__)
        bound = fixed_parameters(fn)
        fixed = models.fixed(name, bound)
        try:
            constants = codec.loads(codec.canonical(_dump(fixed())))
        except InvalidCall as error:
            raise TypeError(f"{name}() has a functools.partial with {error}") from None
        # Fixed parameters come first, as in the function itself.
        free = [item.replace(kind=item.KEYWORD_ONLY) for item in call.parameters.values()]
        full = call.replace(parameters=[*bound, *free])
        arguments, parameters = models.arguments(name, full, meanings, constants)
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
        """The parameters in OpenAI's strict form. Raises ``InvalidCall`` if there is none."""
        return strict(self.parameters)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a Python call by name, without defaults."""
        if len(args) <= len(self._positional):
            values = dict(zip(self._positional, args, strict=False))
            if values.keys().isdisjoint(kwargs) and kwargs.keys() <= self._keywords:
                values |= kwargs
                if values.keys() >= self._required:
                    return values
        try:  # it says what is wrong, or knows the kinds of parameters that are rare
            return self._call.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None

    def intake(self, values: Mapping[str, Any]) -> bytes:
        """Return the canonical bytes of a call made in Python, defaults included."""
        try:
            validator = self._arguments.__pydantic_validator__
            call = validator.validate_python(dict(values), extra=self._extra)
        except ValidationError as error:
            raise InvalidCall(*_summarize(error)) from None
        if self._extra is None:
            check_known(values, self._by_name(call))
        return self._checked_bytes(call)

    def intake_json(self, values: Mapping[str, Any], *, strict: bool = False) -> bytes:
        """Return the canonical bytes of a call made in JSON, by a model or in an edit.

        With ``strict``, the values follow the strict schema: null means "use the default" if the
        parameter itself cannot be null.
        """
        data = codec.canonical(dict(values))
        if strict:
            definitions = self.parameters.get("$defs", {})
            data = codec.canonical(without_nulls(self.parameters, codec.loads(data), definitions))
        call = self._read(data)
        if self._extra is None:
            check_known(codec.loads(data), self._by_name(call))
        return self._checked_bytes(call, data)

    def load(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return fresh positional and keyword arguments made from stored bytes alone."""
        values = self.named(data)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name in self._call.parameters:
            if name in self._keywords:
                kwargs[name] = values[name]
            else:
                args.append(values[name])
        return tuple(args), kwargs

    def named(self, data: bytes) -> dict[str, Any]:
        """Return fresh arguments by name, made from stored bytes alone."""
        values = self._by_name(self._read(data))
        if self.constants:
            self._check_fixed({name: codec.loads(data)[name] for name in self.constants})
        return values

    def dump_result(self, value: object) -> str:
        """Return a result as JSON text. Raise ``InvalidCall`` if it has no JSON form."""
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
        """Return a stored result as the function's own return type."""
        try:
            return self._result.model_validate_json(text, extra="ignore").root
        except ValidationError:
            return codec.loads(text)  # the function returned something other than it declares

    def check_result(self, value: object) -> str:
        """Return a person's value as the JSON text of a result, or raise ``InvalidDecision``."""
        try:
            data = codec.canonical(value)
            extra = models.extra_keys(self.returns or {})
            result = self._result.model_validate_json(data, extra=extra)
            return result.model_dump_json(by_alias=True)
        except InvalidCall as error:
            raise InvalidDecision(str(error), error.path) from None
        except ValidationError as error:
            raise InvalidDecision(*_summarize(error)) from None

    def _read(self, data: bytes) -> BaseModel:
        try:
            validator = self._arguments.__pydantic_validator__
            call: BaseModel = validator.validate_json(data, extra=self._extra)
            return call
        except ValidationError as error:
            raise InvalidCall(*_summarize(error)) from None

    def _by_name(self, call: BaseModel) -> dict[str, Any]:
        return dict(zip(self._names, vars(call).values(), strict=True))

    @cached_property
    def _positional(self) -> tuple[str, ...]:
        parameters = self._call.parameters.values()
        return tuple(item.name for item in parameters if item.kind is not item.KEYWORD_ONLY)

    @cached_property
    def _keywords(self) -> frozenset[str]:
        parameters = self._call.parameters.values()
        return frozenset(item.name for item in parameters if item.kind is not item.POSITIONAL_ONLY)

    @cached_property
    def _required(self) -> frozenset[str]:
        parameters = self._call.parameters.values()
        return frozenset(item.name for item in parameters if item.default is item.empty)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.parameters["properties"])

    def _check_fixed(self, given: Mapping[str, Any]) -> None:
        """Refuse any value but the one that the partial fixes, and one that has changed since."""
        for name, value in _dump(self._fixed()).items():
            forms = {codec.canonical(v) for v in (value, given[name], self.constants[name])}
            if len(forms) > 1:
                _refuse((name,), "functools.partial fixes this argument, so it cannot be changed")

    def _checked_bytes(self, call: BaseModel, given: bytes = b"") -> bytes:
        """Return the call's bytes. Raise if they do not read back as the same call."""
        first = _dump(call)
        for name in self._names:
            if name not in first:
                _refuse((name,), _EXCLUDED)
        if self.constants:
            self._check_fixed(first)
        data = codec.canonical(first)
        again = call
        if data != given:  # otherwise these very bytes were just read
            try:
                again = self._read(data)
            except InvalidCall as error:
                raise InvalidCall(
                    f"does not come back from its JSON form: {error}", error.path
                ) from None
        kinds = [*map(type, vars(call).values())]
        are_scalars = _SCALARS.issuperset(kinds) and kinds == [*map(type, vars(again).values())]
        if are_scalars and vars(call) == vars(again):
            return data  # the JSON of equal scalars is equal
        if again is not call:
            second = _dump(again)
            # Equal text is an equal value; only other text needs the slower canonical form.
            if codec.sorted_text(second).encode() != data and codec.canonical(second) != data:
                path = _difference(codec.loads(data), second)
                raise InvalidCall(
                    f"{path}: changes when it is read back from JSON; use a type that does not",
                    path,
                )
        _check_mapping(self._by_name(call), self._by_name(again), ())
        return data


def _dump(call: BaseModel) -> dict[str, Any]:
    try:
        # round_trip leaves out computed fields, which are not input.
        values: dict[str, Any] = call.__pydantic_serializer__.to_python(
            call, mode="json", by_alias=True, round_trip=True, warnings=False
        )
        return values
    except _UNDUMPABLE as error:
        why = _short(str(error))
        if "depth" in why:  # pydantic's own limit, a little above ours
            why = f"nested more than {codec.MAX_DEPTH} levels deep; flatten them"
        raise InvalidCall(f"the arguments have no JSON form: {why}") from None


def _summarize(error: ValidationError) -> tuple[str, str]:
    """Return pydantic's report as one line without any input, and the first path."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    lines = []
    for item in details[:_MAX_ERRORS]:
        path = codec.path_text(item["loc"])
        lines.append(
            f"{path or 'value'}: {_short(_PYDANTIC_MESSAGES.get(item['type'], item['msg']))}"
        )
    if len(details) > _MAX_ERRORS:
        lines.append(f"and {len(details) - _MAX_ERRORS} more")
    return "; ".join(lines), codec.path_text(details[0]["loc"])


_PYDANTIC_MESSAGES = {
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
        if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
            steps: Iterable[str | int] = before
        elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
            steps = range(len(before))
        else:
            return codec.path_text(path)
        step = next(s for s in steps if codec.canonical(before[s]) != codec.canonical(after[s]))
        path.append(step)
        before = before[step]
        after = after[step]


Path = tuple[str | int, ...]
_LISTS = (list, tuple, set, frozenset, deque)
_SCALARS = frozenset({str, int, float, bool, type(None)})
_ABSENT = object()
_EXCLUDED = "is excluded from its JSON form, so people would not see it"


def check_round_trip(before: Any, after: Any, path: Path = ()) -> None:
    """Raise ``InvalidCall`` unless everything in a value came back from its JSON form.

    ``after`` has the same type, or is plain JSON if the function takes anything.
    """
    if type(before) in _SCALARS and not _differs(before, after):
        return  # most values are scalars, and the checks below are slow
    if isinstance(before, RootModel):
        check_round_trip(before.root, after.root if isinstance(after, RootModel) else after, path)
    elif _is_object(before):
        _check_object(before, after, path)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        _check_mapping(before, after, path)
    elif isinstance(before, _LISTS) and isinstance(after, _LISTS):
        if len(before) != len(after):
            _refuse(path, "has other items when it is read back from JSON")
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            check_round_trip(old, new, (*path, index))
    elif _differs(before, after):
        _refuse(path, "changes when it is read back from JSON; use a type that does not")


def _check_object(before: Any, after: Any, path: Path) -> None:
    for name, info in _field_infos(before).items():
        if info.exclude:
            _refuse((*path, name), _EXCLUDED)
    if isinstance(after, Mapping):
        _check_plain(before, after, path)
        return
    ours = type(before).__name__
    theirs = type(after).__name__
    if not isinstance(before, type(after)):
        if _is_object(after):
            other = f"{ours} comes back from JSON as {theirs}"
            _refuse(path, f"{other}: add a field that tells them apart")
        return  # its class has a JSON form of its own
    attributes = _attributes(after)
    why = "is not part of its JSON form"
    if type(before) is not type(after):
        why = f"{ours} has it, and {theirs} does not: declare the parameter as {ours}"
    for name, value in _attributes(before).items():
        if name not in attributes:
            _refuse((*path, name), why)
        check_round_trip(value, attributes[name], (*path, name))


def _check_plain(before: Any, after: Mapping[str, Any], path: Path) -> None:
    """Check an object if the function takes anything, and gets a dict for it."""
    for name, value in _attributes(before).items():
        output_key = next((key for key in _output_keys(before, name) if key in after), None)
        if output_key is not None:
            check_round_trip(value, after[output_key], (*path, name))
        else:
            private = getattr(before, "__private_attributes__", {})
            default = private[name].get_default() if name in private else _ABSENT
            if _differs(value, default):
                _refuse((*path, name), "is not part of its JSON form")


def _check_mapping(before: Mapping[Any, Any], after: Mapping[Any, Any], path: Path) -> None:
    if len(after) != len(before):
        lost = [key for key in before if _key(key, after) not in after]
        _refuse((*path, *map(str, lost[:1])), "is not part of its JSON form")
    for key, value in before.items():
        item = after[key] if key in after else after.get(_key(key, after))
        if type(value) not in _SCALARS or value != item:  # most values are equal scalars
            check_round_trip(value, item, (*path, str(key)))


def _key(key: Any, after: Mapping[Any, Any]) -> Any:
    """Return the key as it is, or in its JSON form if that is how ``after`` has it."""
    return key if key in after else next(iter(to_jsonable_python({key: None})))


def _differs(before: Any, after: Any) -> bool:
    """Return whether two values of one type are known to be unequal."""
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
    """Raise ``InvalidCall`` if a class ignored a key of its input.

    Needed if one class of a signature is open (``extra="allow"``), so that unknown keys cannot be
    forbidden for all of them at once.
    """
    if isinstance(taken, RootModel):
        taken = taken.root
    if isinstance(given, _LISTS) and isinstance(taken, _LISTS) and len(given) == len(taken):
        for index, (before, after) in enumerate(zip(given, taken, strict=True)):
            check_known(before, after, (*path, index))
    elif isinstance(given, Mapping) and _is_object(taken):
        decorators = getattr(type(taken), "__pydantic_decorators__", None)
        validators = () if decorators is None else decorators.model_validators.values()
        # A class whose own validator converts its input knows what it ignores.
        if not any(validator.info.mode in ("before", "wrap") for validator in validators):
            parts = _attributes(taken)
            names = dict.fromkeys(getattr(taken, "__dataclass_fields__", ()), "")
            names |= {key: name for name in parts for key in _input_keys(taken, name)}
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


def _field_infos(value: Any) -> Mapping[str, FieldInfo]:
    infos: Mapping[str, FieldInfo] = getattr(type(value), "__pydantic_fields__", {})
    return infos


def _attributes(value: Any) -> dict[str, Any]:
    """Return everything in an object: fields, extra fields, private and other attributes."""
    if isinstance(value, BaseModel):
        fields = {n: value.__dict__[n] for n in type(value).model_fields if n in value.__dict__}
        return {**fields, **(value.model_extra or {}), **(value.__pydantic_private__ or {})}
    fields_of_class = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    own = {n: v for n, v in getattr(value, "__dict__", {}).items() if not n.startswith("__")}
    cached = {n for n in own if isinstance(getattr(type(value), n, None), cached_property)}
    return {**fields_of_class, **{name: item for name, item in own.items() if name not in cached}}


def _output_keys(value: Any, name: str) -> Iterator[str]:
    """Yield the keys that a field may have in JSON output."""
    info = _field_infos(value).get(name)
    if info is not None:
        yield from (key for key in (info.serialization_alias, info.alias) if key is not None)
    yield name


def _input_keys(value: Any, name: str) -> Iterator[str]:
    """Yield the keys that a field may be read from."""
    yield name
    info = _field_infos(value).get(name)
    alias = None if info is None else info.validation_alias
    for choice in alias.choices if isinstance(alias, AliasChoices) else (alias,):
        first = choice.path[0] if isinstance(choice, AliasPath) else choice
        if isinstance(first, str):
            yield first


def _refuse(path: Path, why: str) -> NoReturn:
    place = codec.path_text(path)
    raise InvalidCall(f"{place}: {why}", place)
