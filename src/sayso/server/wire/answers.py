"""Errors as answers: one shape, one plain sentence that says what to do."""

from __future__ import annotations

import json
import logging
from typing import Any

from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import errors
from sayso.errors import SaysoError
from sayso.hiding import hidden
from sayso.types import Json
from sayso.views import decision_json

log = logging.getLogger("sayso.server")

#: The status of each error; a class that is not here has that of the nearest one above it.
STATUS: dict[type[SaysoError], int] = {
    SaysoError: 400,
    errors.Unauthenticated: 401,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Refused: 409,
    errors.InDoubt: 409,
    errors.Tampered: 409,
    errors.InvalidDecision: 422,
    errors.InvalidCall: 422,
    errors.InvalidPolicy: 422,
    errors.TooMany: 429,
    errors.KeyMissing: 503,
    errors.StoreError: 503,
}


class Malformed(SaysoError):
    """The body is not JSON as everybody reads it."""


class TooLarge(SaysoError):
    """The body is larger than anything that could be asked about."""


class WrongHost(SaysoError):
    """The request names a host that this server is not."""


class Stopping(SaysoError):
    """The server ends, and could not wait for this."""


STATUS |= {Malformed: 400, TooLarge: 413, WrongHost: 421, Stopping: 503}


class JsonAnswer(Response):
    """JSON as the rest of the project writes it: compact, and nothing that is no text."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return as_json(content).encode(errors="backslashreplace")


class Written(JsonAnswer):
    """The same, of what is written already."""

    def render(self, content: str) -> bytes:
        return content.encode(errors="backslashreplace")


def as_json(content: Any) -> str:
    """How every answer is written."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def status_of(error: SaysoError) -> int:
    """The HTTP status that says the same."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def told(error: SaysoError) -> dict[str, Json]:
    """The body of an answer that says no."""
    # What somebody said when they decided stands in it, and in the decision.
    said: dict[str, Json] = {"error": type(error).__name__, "message": hidden(str(error)).value}
    field = getattr(error, "path", "")
    if field:
        said["field"] = field
    request = getattr(error, "request", None)
    if request is not None:
        said["request"] = request.id
        if request.decision is not None:
            said["decision"] = hidden(decision_json(request.decision)).value
    return said


def answer(error: SaysoError) -> JsonAnswer:
    """An error of ours, as an answer."""
    return JsonAnswer(told(error), status_of(error), headers_of(error))


def headers_of(error: SaysoError) -> dict[str, str]:
    """What a program reads of a refusal: how to sign in, when to come back."""
    headers = {}
    if status_of(error) == 401:
        headers["WWW-Authenticate"] = "Bearer"
    wait = getattr(error, "wait", None)
    if wait is not None:
        headers["Retry-After"] = str(max(1, round(wait)))
    return headers


async def refused(request: HttpRequest, error: Exception) -> Response:
    """An SaysoError that a route raised."""
    assert isinstance(error, SaysoError)
    if status_of(error) >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, error)
    return answer(error)


async def invalid(request: HttpRequest, error: Exception) -> Response:
    """A parameter in the path or the query that cannot be read."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:]) or "request"
    return answer(errors.InvalidCall(f"{place}: {first['msg']}", place))


async def http(request: HttpRequest, error: Exception) -> Response:
    """No such route, or no such method on it."""
    assert isinstance(error, HTTPException)
    kind = {404: "NotFound", 405: "MethodNotAllowed"}.get(error.status_code, "HttpError")
    message = f"{request.method} {request.url.path}: {error.detail}; see /api/openapi.json"
    headers = dict(error.headers or {})
    return JsonAnswer({"error": kind, "message": message}, error.status_code, headers)


async def broken(request: HttpRequest, error: Exception) -> Response:
    """A defect of ours: said without its details, which are in the log."""
    log.exception("%s %s broke", request.method, request.url.path, exc_info=error)
    said = {"error": "InternalError", "message": "something broke here; the server's log says what"}
    return JsonAnswer(said, 500)
