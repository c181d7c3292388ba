"""Responses: JSON and errors.

Every error has one body, ``{"error": name, "message": what to do}``, and one status, from
``STATUS``. The ``handle_*`` functions are the app's exception handlers.
"""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import quote

from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from sayso import errors
from sayso.errors import SaysoError
from sayso.redaction import Secrets, mask_request, redact, secrets_of
from sayso.types import Json
from sayso.views import decision_json

log = logging.getLogger("sayso.server")


# -- JSON


class JsonResponse(Response):
    """A JSON response: compact, UTF-8, with lone surrogates escaped."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content).encode(errors="backslashreplace")


class RawJsonResponse(JsonResponse):
    """A response whose content is already JSON text."""

    def render(self, content: str) -> bytes:
        return content.encode(errors="backslashreplace")


def to_json(content: Any) -> str:
    """Return a value as the JSON text that every response uses."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


# -- errors


class Malformed(SaysoError):
    """The body is not valid JSON, or not JSON that every parser reads the same way."""


class TooLarge(SaysoError):
    """The body exceeds the size limit."""


class WrongHost(SaysoError):
    """The ``Host`` header names another server."""


class Stopping(SaysoError):
    """The server is shutting down and did not finish the request."""


#: The HTTP status of each error. A class that is not listed has the status of its nearest base.
STATUS: dict[type[SaysoError], int] = {
    SaysoError: 400,
    Malformed: 400,
    errors.Unauthenticated: 401,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Refused: 409,
    errors.InDoubt: 409,
    errors.Tampered: 409,
    TooLarge: 413,
    WrongHost: 421,
    errors.InvalidDecision: 422,
    errors.InvalidCall: 422,
    errors.InvalidPolicy: 422,
    errors.TooMany: 429,
    errors.KeyMissing: 503,
    errors.StoreError: 503,
    Stopping: 503,
}


def error_status(error: SaysoError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def error_body(error: SaysoError) -> dict[str, Json]:
    # The message and the decision may quote what a reviewer wrote, so redact both. What repeats a
    # caller's own words names no request: masking the values of one there would confirm a guess.
    secrets = Secrets() if error.request is None else secrets_of(error.request)
    message = redact(str(error), None, secrets).value
    body: dict[str, Json] = {"error": type(error).__name__, "message": message}
    if isinstance(error, errors.InvalidCall | errors.InvalidDecision) and error.path:
        body["field"] = error.path
    if error.request is not None:
        body["request"] = error.request.id
        if error.request.decision is not None:
            masked = mask_request(error.request).request
            assert masked.decision is not None
            body["decision"] = decision_json(masked.decision)
    return body


def error_response(error: SaysoError) -> JsonResponse:
    return JsonResponse(error_body(error), error_status(error), _error_headers(error))


def _error_headers(error: SaysoError) -> dict[str, str]:
    headers = {}
    if error_status(error) == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, errors.TooMany) and error.wait is not None:
        headers["Retry-After"] = str(max(1, round(error.wait)))
    return headers


async def plain_text_errors(request: HttpRequest) -> None:
    """Send this route's errors as one line of text: a dependency for routes that chats call.

    AI SDK clients show the body of a failed response as it is.
    """
    request.state.plain_text_errors = True


async def handle_sayso_error(request: HttpRequest, error: Exception) -> Response:
    """Respond to a ``SaysoError`` that a route raised."""
    assert isinstance(error, SaysoError)
    if getattr(request.state, "plain_text_errors", False):
        status = error_status(error)
        # Nothing in the body names a field, so every invalid request is a plain 400.
        code = 400 if status == 422 else status
        return PlainTextResponse(str(error), code, _error_headers(error))
    if error_status(error) >= 500:
        log.warning("%s %s: %s", request.method, quote(request.url.path), error)
    return error_response(error)


async def handle_validation_error(request: HttpRequest, error: Exception) -> Response:
    """Respond to a path, query or header parameter that FastAPI rejected."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or "request"
    return error_response(errors.InvalidCall(f"{field}: {first['msg']}", field))


async def handle_http_error(request: HttpRequest, error: Exception) -> Response:
    """Respond to an unknown route, or to a method that a route does not have."""
    assert isinstance(error, HTTPException)
    kind = {404: "NotFound", 405: "MethodNotAllowed"}.get(error.status_code, "HttpError")
    page = "text/html" in request.headers.get("accept", "")
    if page and request.method in ("GET", "HEAD") and not request.url.path.startswith("/api"):
        return HTMLResponse(_NO_PAGE, error.status_code)
    message = f"{request.method} {request.url.path}: {error.detail}; see /api/openapi.json"
    headers = dict(error.headers or {})
    if error.status_code == 405:
        # Those of every route at this path; Starlette names those of the first only.
        path = request.url.path
        matching = [
            route
            for route in request.app.routes
            if isinstance(route, Route) and route.path_regex.match(path)
        ]
        headers["Allow"] = ", ".join(
            sorted({method for r in matching for method in r.methods or ()})
        )
    return JsonResponse({"error": kind, "message": message}, error.status_code, headers)


_NO_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Page not found - Sayso</title>
<h1>Page not found</h1>
<p>There is no page at this address. <a href="/inbox">Go to the inbox</a></p>
</html>
"""


async def handle_unexpected_error(request: HttpRequest, error: Exception) -> Response:
    """Respond to a bug without revealing details; they are in the log."""
    log.exception("%s %s failed", request.method, quote(request.url.path), exc_info=error)
    message = "internal error: see the server's log"
    return JsonResponse({"error": "InternalError", "message": message}, 500)
