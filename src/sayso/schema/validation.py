"""Check JSON values against stored JSON Schemas (Draft 2020-12), without network access.

Depth is limited before the stack is full: if the interpreter's limit is reached inside a library
written in Rust (jsonschema uses one for references), that library panics, and a panic is not an
``Exception``. Time is limited as well, since schemas come from agents on other machines: patterns
are matched by an engine that never backtracks, and everything else stops after ``MAX_SECONDS``.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from sayso import codec
from sayso.errors import InvalidCall
from sayso.rows import Tool

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator
    from pydantic_core import SchemaValidator


@functools.lru_cache(maxsize=512)
def linear_matcher(pattern: str) -> SchemaValidator | None:
    """Return a matcher for a pattern that never backtracks, or None if there is none."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def pattern_matches(pattern: str, text: str) -> bool:
    matcher = linear_matcher(pattern)
    if matcher is None:
        return re.search(pattern, text) is not None
    return matcher.isinstance_python(text)


def _pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not pattern_matches(pattern, value):
        yield _error(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], value: Any, _: Any
) -> Iterator[ValidationError]:
    for pattern, rules in patterns.items() if isinstance(value, dict) else ():
        for name, item in value.items():
            if pattern_matches(pattern, name):
                yield from validator.descend(item, rules, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, rules: Any, value: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    from jsonschema import Draft202012Validator

    patterns = schema.get("patternProperties")
    if not patterns or not isinstance(value, dict):
        follow = Draft202012Validator.VALIDATORS["additionalProperties"]
        yield from follow(validator, rules, value, schema)
        return
    fields = schema.get("properties", {})
    more = [
        n for n in value if n not in fields and not any(pattern_matches(p, n) for p in patterns)
    ]
    for name in more:
        if rules is False:
            yield _error(f"{name!r} does not match any of the regexes")
        else:
            yield from validator.descend(value[name], rules, path=name)


def _unique_items(_: Any, wanted: bool, value: Any, __: Any) -> Iterator[ValidationError]:
    if wanted and isinstance(value, list) and len(set(map(codec.canonical, value))) < len(value):
        yield _error(f"{value!r} has non-unique elements")


def _error(message: str) -> ValidationError:
    from jsonschema import ValidationError

    return ValidationError(message)


_KEYWORDS = {
    "additionalProperties": _additional_properties,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "uniqueItems": _unique_items,
}

MAX_SCHEMA_BYTES = 256 * 1024
MAX_SCHEMA_DEPTH = 50
MAX_ERRORS = 20
MAX_MESSAGE = 200
MAX_SECONDS = 5.0

# The values of these keywords are data: no "$ref" inside them counts, and none may point there.
_DATA = frozenset({"const", "default", "enum", "examples"})
# Under these keywords are names of the schema's author, even if they are those of keywords.
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
# From urllib and re, on addresses and patterns that jsonschema passes on to them unchecked.
_UNEXPECTED = (ValueError, OverflowError)
#: When the check that runs in this OS thread has to end.
_deadline = threading.local()


class _CheckTimeout(Exception):
    """A check took longer than ``MAX_SECONDS``."""


def errors(
    schema: Mapping[str, Any], value: Any, *, limit: int = MAX_ERRORS, quote: bool = True
) -> list[tuple[str, str]]:
    """Return the errors of the value as (path, message) pairs; an empty list if it is valid.

    Without ``quote``, a message names the keyword of the schema, and neither value.
    """
    from referencing.exceptions import Unresolvable

    validator = _validator(_bytes(schema))
    _deadline.at = time.monotonic() + MAX_SECONDS
    try:
        items = islice(validator.iter_errors(value), limit)
        return [wrong for item in items for wrong in _located_errors(item, quote=quote)]
    except Unresolvable as error:
        raise _unknown_ref(error.ref) from None
    except RecursionError:
        return [("", "nested too deeply to be checked")]
    except _CheckTimeout:
        return [("", "takes too long to be checked against this schema")]
    except _UNEXPECTED:
        return [("", "cannot be checked against this schema")]


def _located_errors(item: Any, *, quote: bool) -> list[tuple[str, str]]:
    """Return (path, message) pairs at the exact field, also if it is missing or unknown."""
    path = list(item.absolute_path)
    rules = item.schema
    names: list[str] = []
    message = ""
    if item.validator == "required":
        names = [n for n in item.validator_value if item.message == f"{n!r} is a required property"]
        message = "this is required"
    elif item.validator == "additionalProperties" and item.validator_value is False:
        fields = rules.get("properties", {})
        names = [n for n in item.instance if n not in fields and not rules.get("patternProperties")]
        message = "there is no such field"
    if names:
        return [(codec.path_text([*path, name]), message) for name in names]
    message = _short(item.message) if quote else f"does not fit the schema's {item.validator!r}"
    return [(codec.path_text(path), message)]


#: What may allow a field that ``properties`` does not name.
_OPEN = (
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "propertyNames",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "$ref",
)


def closed(schema: Mapping[str, Any], given: Iterable[str] = ()) -> dict[str, Any]:
    """Return a schema of arguments that refuses unknown ones, for edits that people make.

    A schema that does not mention other fields allows them all. But a tool would drop or refuse
    them later, when the person can no longer correct the edit. Names in ``given`` stay allowed: the
    agent used them.
    """
    fields = schema.get("properties")
    if not isinstance(fields, Mapping) or not fields or any(name in schema for name in _OPEN):
        return dict(schema)
    more: dict[str, Any] = {name: {} for name in given if name not in fields}
    return {**schema, "properties": {**more, **fields}, "additionalProperties": False}


def edit_rules(
    schema: Mapping[str, Any], args: Mapping[str, Any], written: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the schema that an edit of a call must satisfy.

    ``written`` is what the model wrote, if a framework's validators made ``args`` of it. Where the
    schema does not allow what the model wrote, it does not say what those validators accept.
    """
    if written is None:
        return closed(schema, args)
    rules = closed(schema, written)
    fields = rules.get("properties", {})
    shared = {"$defs": rules["$defs"]} if "$defs" in rules else {}
    converted: dict[str, Any] = {
        name: {}
        for name, value in written.items()
        if isinstance(fields.get(name), Mapping) and errors({**fields[name], **shared}, value)
    }
    required = [name for name in rules.get("required", ()) if name in written]
    return {**rules, "properties": {**fields, **converted}, "required": required}


def matches(schema: Mapping[str, Any], value: Any) -> bool:
    return not errors(schema, value, limit=1)


def check_schema(schema: object) -> None:
    """Raise ``InvalidCall`` unless this is a JSON Schema that can be stored and used."""
    if not isinstance(schema, Mapping):
        raise InvalidCall("a schema is a JSON object, such as {'type': 'string'}")
    _validator(_bytes(schema))


def whole_text(schema: object) -> dict[str, Any]:
    """Return a schema in which each pattern has to match a whole text, not a part of it.

    A grant for ``^npm test`` would cover ``npm test; curl …``. Raises ``InvalidCall`` unless this
    is a schema, and its patterns have no look-around or back-references. What would limit nothing
    is refused as well: an unknown keyword or format. Limits of an argument imply its type, because
    ``maximum`` allows every text.
    """
    check_schema(schema)
    assert isinstance(schema, Mapping)
    plain = codec.loads(_bytes(schema))
    for each in schemas_in(plain):
        _refuse_empty_limits(each)
    anchored: dict[str, Any] = _changed(plain, _with_whole_pattern)
    if other := _limited_types(anchored) - {"object"}:
        raise InvalidCall(f"arguments are an object, and this limits a value of type {min(other)}")
    for argument in anchored.get("properties", {}).values():
        types = _limited_types(argument)
        if len(types) == 1:
            argument.setdefault("type", min(types))
    check_schema(anchored)
    return anchored


#: The type of the values that a keyword limits.
_LIMITS = {
    **dict.fromkeys(("pattern", "format", "minLength", "maxLength"), "string"),
    **dict.fromkeys(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"), "number"),
    "multipleOf": "number",
    **dict.fromkeys(("items", "prefixItems", "contains", "uniqueItems"), "array"),
    **dict.fromkeys(("minItems", "maxItems", "unevaluatedItems"), "array"),
    **dict.fromkeys(("properties", "patternProperties", "additionalProperties"), "object"),
    **dict.fromkeys(("required", "minProperties", "maxProperties", "propertyNames"), "object"),
}
#: Keywords that are no limits themselves, but belong to one or say something about it.
_OTHER_KEYWORDS = frozenset(
    (
        *("$schema", "$id", "$anchor", "$dynamicAnchor", "$defs", "$comment", "definitions"),
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("then", "else", "minContains", "maxContains"),
    )
)


def _limited_types(schema: object) -> set[str]:
    return {_LIMITS[name] for name in schema if name in _LIMITS} if type(schema) is dict else set()


def _refuse_empty_limits(schema: dict[str, Any]) -> None:
    kind = _validator_class()
    for keyword in schema:
        if keyword not in kind.VALIDATORS and keyword not in _OTHER_KEYWORDS:
            raise InvalidCall(f"{_short(keyword)!r} is no keyword, so it would limit nothing")
    if "format" in schema and schema["format"] not in kind.FORMAT_CHECKER.checkers:
        raise InvalidCall(f"format {_short(schema['format'])!r} is not checked: use a pattern")


def _with_whole_pattern(schema: dict[str, Any]) -> dict[str, Any]:
    pattern = schema.get("pattern")
    return {**schema, "pattern": _whole_pattern(pattern)} if isinstance(pattern, str) else schema


def _whole_pattern(pattern: str) -> str:
    anchored = f"^(?:{pattern})$"
    # Alone, too: "a)|(?:b" would close our group.
    if linear_matcher(pattern) is None or linear_matcher(anchored) is None:
        raise InvalidCall(f"{_short(pattern)!r} has look-around or back-references: leave them out")
    return anchored


def remote_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Check a schema from another machine, and remove patterns that may take forever.

    Those are patterns with look-around or back-references, as in ``^(?!x)``. The agent, which runs
    the call, checks them itself.
    """
    check_schema(schema)
    if {"patternProperties", "unevaluatedProperties"} <= set(_names(schema)):
        raise InvalidCall("patternProperties and unevaluatedProperties: use one of them")
    safe: dict[str, Any] = _changed(schema, _without_slow_patterns)
    return safe


def remote_tool(
    name: str,
    parameters: Mapping[str, Any],
    returns: Mapping[str, Any] | None,
    description: str,
) -> Tool:
    """Return the tool row for a tool that an agent on another machine describes.

    Both sides make it the same way: the server when a request is opened, the agent when it claims.
    """
    schema = {
        "parameters": remote_schema(parameters),
        "returns": remote_schema(returns) if returns else None,
    }
    return Tool.of(name, codec.dumps(schema), description, version="remote")


def _without_slow_patterns(schema: dict[str, Any]) -> dict[str, Any]:
    patterns = schema.get("patternProperties")
    for pattern in patterns if isinstance(patterns, dict) else ():
        if linear_matcher(pattern) is None:
            raise InvalidCall(
                f"the pattern {_short(pattern)!r} may take too long to be checked: write it "
                "without look-around, back-references and very large repeats"
            )
    if isinstance(schema.get("pattern"), str) and linear_matcher(schema["pattern"]) is None:
        del schema["pattern"]
    return schema


def _bytes(schema: Mapping[str, Any]) -> bytes:
    data = codec.canonical(dict(schema))
    if len(data) > MAX_SCHEMA_BYTES:
        raise InvalidCall(f"the schema has more than {MAX_SCHEMA_BYTES:,} bytes; make it smaller")
    return data


@functools.lru_cache(maxsize=128)
def _validator(data: bytes) -> Validator:
    from referencing import Registry

    schema = codec.loads(data)
    _check(schema)
    kind = _validator_class()
    # An explicit registry, because jsonschema's own default fetches remote references.
    return kind(schema, registry=Registry(), format_checker=kind.FORMAT_CHECKER)


@functools.cache
def _validator_class() -> type[Validator]:
    """Return a validator of Draft 2020-12 that limits time, and depth if references are cyclic."""
    from jsonschema import Draft202012Validator, validators

    def bounded(keyword: str, follow: Callable[..., Any]) -> Callable[..., Any]:
        refers = keyword in ("$ref", "$dynamicRef")

        def checked(*args: Any) -> Any:
            if refers:
                with contextlib.suppress(ValueError):  # the stack is not that deep
                    sys._getframe(sys.getrecursionlimit() // 2)
                    raise RecursionError
            if time.monotonic() > _deadline.at:
                raise _CheckTimeout
            return follow(*args)

        return checked

    ours = {**Draft202012Validator.VALIDATORS, **_KEYWORDS}
    wrapped = {keyword: bounded(keyword, follow) for keyword, follow in ours.items()}
    kind: type[Validator] = validators.extend(Draft202012Validator, wrapped)  # type: ignore[no-untyped-call]
    return kind


def _check(schema: dict[str, Any]) -> None:
    """Raise ``InvalidCall`` if a schema is too deep, malformed or refers to another document."""
    from jsonschema import Draft202012Validator, SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    level: list[Any] = [schema]
    for _ in range(MAX_SCHEMA_DEPTH):
        level = [child for node in level for child in _children(node)]
    if level:
        raise InvalidCall(
            f"the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep; put parts under $defs"
        )
    try:
        Draft202012Validator.check_schema(schema)
        resolver = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
        schemas = [*schemas_in(schema)]
        ids = set(map(id, schemas))
        for ref in sorted(set(_refs(schemas))):
            target = resolver.lookup(ref).contents
            if isinstance(target, dict) and id(target) not in ids:
                raise InvalidCall(
                    f"the schema refers to {_short(ref)}, which is no schema: put it under $defs"
                )
            Draft202012Validator.check_schema(target)  # it may be under an unknown keyword
    except SchemaError as error:
        path = codec.path_text(error.absolute_path)
        message = f"not a JSON Schema: {path or 'root'}: {_short(error.message)}"
        raise InvalidCall(message, path) from None
    except Unresolvable as error:
        raise _unknown_ref(error.ref) from None
    except _UNEXPECTED:
        raise InvalidCall("not a JSON Schema: a reference or pattern cannot be read") from None


def _children(node: object) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def _names(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        yield from node
    for child in _children(node):
        yield from _names(child)


def schemas_in(node: object) -> Iterator[dict[str, Any]]:
    """Return a schema and every schema in it."""
    if isinstance(node, dict):
        yield node
    for name, child in node.items() if isinstance(node, dict) else enumerate(_children(node)):
        if name not in _DATA:
            parts = _children(child) if name in _NAMED else (child,)
            for part in parts:
                yield from schemas_in(part)


def _changed(node: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a schema with every schema in it changed, the innermost first."""
    if isinstance(node, list):
        return [_changed(child, change) for child in node]
    if not isinstance(node, Mapping):
        return node
    changed: dict[str, Any] = {}
    for name, child in node.items():
        if name in _NAMED and isinstance(child, Mapping):
            changed[name] = {key: _changed(part, change) for key, part in child.items()}
        else:
            changed[name] = child if name in _DATA else _changed(child, change)
    return change(changed)


def _refs(schemas: Iterable[dict[str, Any]]) -> Iterator[str]:
    for schema in schemas:
        for key in ("$ref", "$dynamicRef"):
            if isinstance(schema.get(key), str):
                yield schema[key]


def _unknown_ref(ref: str) -> InvalidCall:
    return InvalidCall(
        f"the schema refers to {_short(ref)}, which is not in it; nothing is fetched, "
        "so put the definition under $defs"
    )


def _short(text: str) -> str:
    """Cut out the middle: jsonschema puts the value first and the error last."""
    if len(text) <= MAX_MESSAGE:
        return text
    tail = MAX_MESSAGE // 2
    return f"{text[: MAX_MESSAGE - tail - 1]}…{text[-tail:]}"
