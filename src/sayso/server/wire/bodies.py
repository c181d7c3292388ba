"""Reading bodies: strict JSON first, then the shape; what is wrong is said with its field."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import Request as HttpRequest
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from sayso import codec
from sayso.errors import InvalidCall
from sayso.server.wire.answers import Malformed

T = TypeVar("T")

_adapters: dict[Any, TypeAdapter[Any]] = {}
#: What pydantic says in words of its own.
_WORDS = {
    "extra_forbidden": "no such field here",
    "dict_type": "give a JSON object",
    "model_type": "give a JSON object",
    "list_type": "give a list",
    "missing": "this is required",
}


async def read(request: HttpRequest, shape: type[T]) -> T:
    """The body as this shape; an empty one is an empty object."""
    try:
        raw = await request.body()
    except ClientDisconnect:
        raise Malformed("the body ended before its end: send it again") from None
    try:
        value = codec.parse(raw or b"{}")
    except InvalidCall as error:
        raise Malformed(f"the body cannot be read: {error}") from None
    adapter = _adapters.get(shape)
    if adapter is None:
        adapter = _adapters[shape] = TypeAdapter(shape)
    try:
        checked: T = adapter.validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"] if not _inner(part)) or "body"
        raise InvalidCall(f"{place}: {_plain(first)}", place) from None
    return checked


def _inner(part: object) -> bool:
    """Whether pydantic names a branch of a union there, and not a field."""
    return isinstance(part, str) and part in ("dict[str,any]", "str", "int", "float", "bool")


def _plain(error: Any) -> str:
    if error["type"] in _WORDS:
        return _WORDS[error["type"]]
    message: str = error["msg"]
    return message[0].lower() + message[1:]
