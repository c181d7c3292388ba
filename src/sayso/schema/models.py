"""Build the pydantic models of a signature: one for its arguments, one for its result."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    NotRequired,
    Optional,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model
from pydantic.errors import (
    PydanticInvalidForJsonSchema,
    PydanticUndefinedAnnotation,
    PydanticUserError,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from sayso.schema.strict import is_open, nodes


def pydantic_annotation(annotation: Any) -> Any:
    """Return the annotation with each TypedDict replaced by one that pydantic accepts."""
    return annotation if sys.version_info >= (3, 12) else _pydantic_annotation(annotation, ())


def _pydantic_annotation(annotation: Any, inside: tuple[Any, ...]) -> Any:
    if typing_extensions.is_typeddict(annotation):
        fits = type(annotation).__module__ != "typing" or annotation in inside
        return annotation if fits else _pydantic_typed_dict(annotation, (*inside, annotation))
    origin = get_origin(annotation)
    type_args = get_args(annotation)
    if not type_args or origin is Literal:
        return annotation
    if origin is Annotated:
        return Annotated[(_pydantic_annotation(type_args[0], inside), *type_args[1:])]
    args = tuple(_pydantic_annotation(arg, inside) for arg in type_args)
    if args == type_args:
        return annotation
    if origin in (Union, UnionType):
        return Union[args]  # noqa: UP007  # of a tuple that is known only now
    return origin[args]


def _pydantic_typed_dict(given: Any, inside: tuple[Any, ...]) -> Any:
    try:
        hints = get_type_hints(given, include_extras=True)
    except NameError:  # of a class inside a function; pydantic says what to do
        return given
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        needed = Required if name in given.__required_keys__ else NotRequired
        if get_origin(hint) in (Required, NotRequired):
            needed = get_origin(hint)
            hint = get_args(hint)[0]
        fields[name] = needed[_pydantic_annotation(hint, inside)]
    make: Any = typing_extensions.TypedDict
    converted = make(given.__name__, fields)
    converted.__doc__ = given.__doc__
    converted.__module__ = given.__module__
    return converted


_BASE64 = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
# As constants, NaN and Infinity reach the codec, which refuses them by their path.
_ARGUMENTS = ConfigDict(**_BASE64, extra="forbid", ser_json_inf_nan="constants")
_EMPTY = inspect.Parameter.empty
_UNBUILDABLE = (PydanticUserError, PydanticUndefinedAnnotation, TypeError, ValueError)


class Result(RootModel[Any]):
    """A result of any type. A function with a return annotation has a subclass of this."""

    model_config = ConfigDict(**_BASE64, ser_json_inf_nan="strings")


#: Shared by most functions, because a model takes milliseconds to build.
_NOTHING_FIXED = create_model("NothingFixed", __config__=_ARGUMENTS)


def arguments(
    tool: str, call: inspect.Signature, meanings: Mapping[str, str], constants: Mapping[str, Any]
) -> tuple[type[BaseModel], dict[str, Any]]:
    """Return the model of the arguments and their JSON Schema. Raise ``TypeError`` with advice.

    ``constants`` are the arguments that can have only one value, as JSON.
    """
    parameters = list(call.parameters.values())
    try:
        model, schema = _build(tool, parameters)
    except _UNBUILDABLE:
        for parameter in parameters:
            try:
                _build(tool, [parameter])
            except _UNBUILDABLE as error:
                raise TypeError(
                    f"the parameter {parameter.name!r} of {tool}() has no JSON form "
                    f"({_first_line(error)}); take plain data, and get other objects from outside "
                    "the call"
                ) from error
        raise
    _complete(tool, schema, meanings)
    for name, value in constants.items():
        schema["properties"][name] = {**schema["properties"][name], "const": value}
    return model, schema


def fixed(tool: str, parameters: list[inspect.Parameter]) -> type[BaseModel]:
    """Return a model of the arguments that ``functools.partial`` fixes, with these values."""
    if not parameters:
        return _NOTHING_FIXED
    for parameter in parameters:
        try:
            model, _ = _build(tool, [parameter])
            model()
        except _UNBUILDABLE as error:
            raise TypeError(
                f"the parameter {parameter.name!r} of {tool}() is fixed by functools.partial to a "
                f"value that has no JSON form or does not fit it ({_first_line(error)}), so people "
                "could not see it; get such objects from outside the call"
            ) from error
    return _build(tool, parameters)[0]


def result(tool: str, annotation: Any) -> tuple[type[Result], dict[str, Any] | None]:
    """Return the model of the result, and its JSON Schema if there is an annotation."""
    if annotation is _EMPTY:
        return Result, None
    try:
        plain = isinstance(annotation, type) and annotation in _PLAIN
        model, schema = (_plain_result if plain else _result)(annotation)
        return model, schema.copy()
    except _UNBUILDABLE as error:
        raise TypeError(
            f"{tool}() returns {inspect.formatannotation(annotation)}, which cannot be stored as "
            f"JSON ({_first_line(error)}); return plain data, a dataclass or a pydantic model"
        ) from error


def _result(annotation: Any) -> tuple[type[Result], dict[str, Any]]:
    model = create_model("Result", __base__=Result, root=(pydantic_annotation(annotation), ...))
    return model, _schema(model)


#: What most functions take and return. Their models are shared, too.
_PLAIN = frozenset({str, int, float, bool, NoneType})
_plain_result = cache(_result)


def extra_keys(schema: dict[str, Any]) -> Literal["forbid"] | None:
    """Forbid unknown keys at every level, unless a class asks for them (``extra="allow"``)."""
    all_nodes = nodes(schema, schema.get("$defs", {}))
    return None if any("properties" in node and is_open(node) for node in all_nodes) else "forbid"


def _build(
    tool: str, parameters: list[inspect.Parameter]
) -> tuple[type[BaseModel], dict[str, Any]]:
    if not all(map(_is_plain, parameters)):
        return _new(tool, parameters)
    # 1 equals True, so the types of the defaults are compared, too.
    types = tuple(type(parameter.default) for parameter in parameters)
    model, schema = _shared(tool, tuple(parameters), types)
    return model, deepcopy(schema)


def _is_plain(parameter: inspect.Parameter) -> bool:
    """Return whether equal parameters have the same model. 0.0 equals -0.0, so floats do not."""
    annotation = parameter.annotation
    default = type(parameter.default)
    plain = isinstance(annotation, type) and annotation in _PLAIN
    anything = annotation is _EMPTY or annotation is Any
    fits = parameter.default is _EMPTY or (default in _PLAIN and default is not float)
    return (plain or anything) and fits


@lru_cache(maxsize=256)
def _shared(
    tool: str, parameters: tuple[inspect.Parameter, ...], types: tuple[type, ...]
) -> tuple[type[BaseModel], dict[str, Any]]:
    """Return the model of plain parameters, which a function that is guarded again shares."""
    return _new(tool, parameters)


def _new(
    tool: str, parameters: Sequence[inspect.Parameter]
) -> tuple[type[BaseModel], dict[str, Any]]:
    # Numbered fields with the parameter as alias: models do not take every name for a field.
    fields: dict[str, Any] = {f"p{i}": _field(item) for i, item in enumerate(parameters)}
    model = create_model(tool, __config__=_ARGUMENTS, **fields)
    schema = _schema(model)
    schema.setdefault("properties", {})
    return model, schema


def _field(parameter: inspect.Parameter) -> tuple[Any, FieldInfo]:
    name = parameter.name
    default = parameter.default
    annotation = (
        Any if parameter.annotation is _EMPTY else pydantic_annotation(parameter.annotation)
    )
    if default is _EMPTY:
        return annotation, Field(alias=name)
    if isinstance(default, FieldInfo):
        return Annotated[annotation, default], Field(alias=name)
    if default is None and not _admits_none(annotation):
        annotation = Optional[annotation]  # noqa: UP045  # also for what has no | operator
    return annotation, Field(alias=name, default=default, validate_default=True)


def _admits_none(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation in (Any, object, None, NoneType) or NoneType in get_args(annotation)


class _Generator(GenerateJsonSchema):
    """Leaves out titles that repeat names, and refuses what pydantic only warns about."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> NoReturn:
        raise PydanticInvalidForJsonSchema(detail)


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    schema.pop("title", None)  # the name of our own class
    return schema


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _complete(tool: str, schema: dict[str, Any], meanings: Mapping[str, str]) -> None:
    definitions = schema.get("$defs", {})
    for name, node in schema["properties"].items():
        for inner in nodes(node, definitions):
            _refuse_unstorable(tool, name, inner)
        if name in meanings:
            node.setdefault("description", meanings[name])
    if extra_keys(schema):
        for node in nodes(schema, definitions):
            if "properties" in node:
                node["additionalProperties"] = False


def _refuse_unstorable(tool: str, parameter: str, node: dict[str, Any]) -> None:
    if node.get("uniqueItems") is True:
        fault = "is a set, whose order changes from run to run; take a list"
    elif node.get("writeOnly") is True and node.get("format") == "password":
        fault = "is a secret type, which hides its value from its JSON form; take a str"
        fault += ", and declare it: Annotated[str, Field(json_schema_extra={'writeOnly': True})]"
    else:
        return
    raise TypeError(f"the parameter {parameter!r} of {tool}() {fault}")
