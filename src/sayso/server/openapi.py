"""The OpenAPI document at ``/api/openapi.json``.

FastAPI generates it from the routes. This module adds what it cannot know: the bodies that routes
read with ``JsonBody``, the ways to sign in, and the errors that a route may return.
"""

from __future__ import annotations

from typing import Any
from zoneinfo import available_timezones

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

import sayso
from sayso.server.schemas import ErrorView, JsonBody

_DESCRIPTION = """
The HTTP API of Sayso, a durable approval layer for AI agents.

People and scripts authenticate with a bearer token (`sayso token create NAME --role reviewer`), the
web app with a session cookie. Every error has the shape of `ErrorView`, and its `message` says what
to do. Lists are paged: pass the `next` of one page as the `after` of the following one.
"""

_ERRORS = {
    400: "The body is not valid JSON, or has duplicate keys, NaN or lone surrogates",
    401: "Not authenticated",
    403: "Your role, or you, may not do this",
    404: "Not found, or not visible to you",
    409: "Already decided, or changed since you saw it; `decision` says who decided what",
    413: "The body is too large",
    422: "A value is invalid; `field` names it",
    429: "Too many requests; `Retry-After` says when to retry",
}
_EVENT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "data": {"type": "string", "description": "JSON"},
        "event": {"type": "string"},
        "id": {"type": "string"},
        "retry": {"type": "integer"},
    },
}
#: Put this into ``openapi_extra`` of a route that needs no authentication.
NO_AUTH: dict[str, Any] = {"security": []}


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Describe the errors of a route, for its ``responses``."""
    return {code: {"description": _ERRORS[code], "model": ErrorView} for code in codes}


def event_stream(description: str) -> dict[int | str, dict[str, Any]]:
    """Describe a stream of events, for the ``responses`` of a route."""
    content = {"text/event-stream": {"schema": _EVENT_SCHEMA}}
    return {200: {"content": content, "description": description}}


def text_errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Describe the errors of a route that sends them as plain text."""
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {code: {"description": _ERRORS[code], "content": content} for code in codes}


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the app's document, generated on the first call."""
    if app.openapi_schema is None:
        routes = [route for route in app.routes if isinstance(route, APIRoute)]
        for route in routes:  # the function's name, or `name=` where routes share a function
            route.operation_id = route.operation_id or route.name
        document = get_openapi(
            title="Sayso",
            version=sayso.__version__,
            summary="A durable approval layer for AI agents.",
            description=_DESCRIPTION,
            routes=app.routes,
        )
        _drop_default_422(document["paths"])
        _name_time_zones(document["paths"])
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        schemas.update(_add_bodies(routes, document["paths"]))
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": "sayso_session"},
        }
        document["security"] = [{"bearer": []}, {"session": []}]
        app.openapi_schema = document
    return app.openapi_schema


def _name_time_zones(paths: dict[str, Any]) -> None:
    """List the time zones that this server knows; reading them takes too long at import."""
    for parameter in paths["/api/stats"]["get"]["parameters"]:
        if parameter["name"] == "zone":
            parameter["schema"]["enum"] = ["UTC", *sorted(available_timezones() - {"UTC"})]


def _drop_default_422(paths: dict[str, Any]) -> None:
    """Remove the 422 that FastAPI adds to every route with parameters: we never send its body."""
    for operations in paths.values():
        for operation in operations.values():
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]


def _add_bodies(routes: list[APIRoute], paths: dict[str, Any]) -> dict[str, Any]:
    """Add the request body of each operation that reads one; return the schemas they refer to."""
    operations = [
        (paths[route.path_format][method.lower()], dependency.call)
        for route in routes
        for dependency in route.dependant.dependencies
        if isinstance(dependency.call, JsonBody)
        for method in route.methods or ()
    ]
    schemas, definitions = TypeAdapter.json_schemas(
        [(n, "validation", TypeAdapter(body.shape)) for n, (_, body) in enumerate(operations)],
        ref_template="#/components/schemas/{model}",
    )
    for n, (operation, body) in enumerate(operations):
        content = {"application/json": {"schema": schemas[n, "validation"]}}
        operation["requestBody"] = {"required": body.required, "content": content}
    referenced: dict[str, Any] = definitions.get("$defs", {})
    return referenced
