"""The keywords of JSON Schema that may take for ever as jsonschema checks them, checked in time.

Patterns are searched for by the engine of pydantic, whose time grows with the text and no faster;
what it does not know (look-around, back-references) is left to Python's own. Equal items are found
by their canonical bytes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sayso import codec

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from pydantic_core import SchemaValidator


@functools.lru_cache(maxsize=512)
def linear(pattern: str) -> SchemaValidator | None:
    """Something that finds a pattern in a text without ever going back; None where it must."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def found(pattern: str, text: str) -> bool:
    """Whether a text has something in it that matches."""
    quick = linear(pattern)
    if quick is None:
        return re.search(pattern, text) is not None
    return quick.isinstance_python(text)


def _pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not found(pattern, value):
        yield _error(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], value: Any, _: Any
) -> Iterator[ValidationError]:
    for pattern, rules in patterns.items() if isinstance(value, dict) else ():
        for name, item in value.items():
            if found(pattern, name):
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
    known = schema.get("properties", {})
    more = [n for n in value if n not in known and not any(found(p, n) for p in patterns)]
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


OURS = {
    "additionalProperties": _additional_properties,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "uniqueItems": _unique_items,
}
