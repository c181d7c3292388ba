"""The OpenAPI document at ``/api/openapi.json``.

FastAPI generates it from the routes. This module adds what it cannot know: the bodies that routes
read with ``JsonBody``, the ways to sign in, and the errors that a route may return.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, TypeAlias, TypeVar, get_type_hints
from zoneinfo import available_timezones

from fastapi import APIRouter, Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from starlette.responses import Response
from starlette.routing import BaseRoute

import sayso
from sayso.server.auth import RequireRole
from sayso.server.responses import plain_text_errors
from sayso.server.schemas import BodyRules, ErrorView, JsonBody
from sayso.sync import in_thread

Responses: TypeAlias = dict[int | str, dict[str, Any]]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

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


class Routes:
    """Routes of the API, each with its path, its summary, what it returns, and its errors.

    A route that returns nothing answers 204. Name only the errors that do not follow from what it
    takes: see ``_errors_of``. ``plain`` is for routes that are not like the others.
    """

    def __init__(self, prefix: str = "", *, tag: str) -> None:
        self.plain = APIRouter(prefix=prefix, tags=[tag])
        self.get = partial(self._add, "GET")
        self.post = partial(self._add, "POST")
        self.put = partial(self._add, "PUT")
        self.delete = partial(self._add, "DELETE")

    @property
    def routes(self) -> list[BaseRoute]:
        return self.plain.routes

    def _add(
        self,
        method: str,
        path: str,
        summary: str,
        returns: type[BaseModel | Response] | None = None,
        *errors: int,
        responses: Responses | None = None,
        **options: Any,
    ) -> Callable[[Endpoint], Endpoint]:
        if returns is None:
            options |= {"status_code": 204, "response_class": Response}
        elif issubclass(returns, Response):
            options["response_class"] = returns
        else:
            options["response_model"] = returns
        described: Responses = {
            code: {"description": _ERRORS[code], "model": ErrorView} for code in errors
        }
        route = self.plain.api_route(
            path,
            methods=[method],
            summary=summary,
            responses={**(responses or {}), **described},
            **options,
        )

        def add(endpoint: Endpoint) -> Endpoint:
            route(_callable(endpoint))
            return endpoint

        return add


def _callable(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return what FastAPI calls: with the body that ``BodyRules`` mark, and never on the loop.

    A plain function reads and writes the store in a worker thread.
    """
    hints = get_type_hints(endpoint, include_extras=True)
    for name, hint in hints.items():
        *others, rules = getattr(hint, "__metadata__", (None,))
        if isinstance(rules, BodyRules):
            shape = Annotated[(hint.__origin__, *others)] if others else hint.__origin__
            hints[name] = Annotated[shape, Depends(JsonBody(shape, rules))]
    call: Any = endpoint if inspect.iscoroutinefunction(endpoint) else in_thread(endpoint)
    signature = inspect.signature(call)
    parameters = [p.replace(annotation=hints[p.name]) for p in signature.parameters.values()]
    call.__signature__ = signature.replace(parameters=parameters, return_annotation=hints["return"])
    return call  # type: ignore[no-any-return]


def event_stream(description: str) -> Responses:
    """Describe a stream of events, for the ``responses`` of a route."""
    content = {"text/event-stream": {"schema": _EVENT_SCHEMA}}
    return {200: {"content": content, "description": description}}


def text_errors(*codes: int) -> Responses:
    """Describe the errors of a route that sends them as plain text."""
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {code: {"description": _ERRORS[code], "content": content} for code in codes}


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the app's document, generated on the first call."""
    if app.openapi_schema is None:
        every = (route for route in app.routes if isinstance(route, APIRoute))
        routes = [route for route in every if route.include_in_schema]
        for route in routes:  # the function's name, or `name=` where routes share a function
            route.operation_id = route.operation_id or route.name
        document = get_openapi(
            title="Sayso",
            version=sayso.__version__,
            summary="A durable approval layer for AI agents.",
            description=_DESCRIPTION,
            routes=app.routes,
        )
        _add_errors(routes, document["paths"])
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


def _add_errors(routes: list[APIRoute], paths: dict[str, Any]) -> None:
    """Add the errors of each operation, and that those without sign-in need none.

    Removes the 422 that FastAPI adds to every route with parameters: we never send its body.
    """
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorView"}}}
    for route in routes:
        calls = [dependency.call for dependency in route.dependant.dependencies]
        for method in route.methods or ():
            operation = paths[route.path_format][method.lower()]
            responses = operation["responses"]
            if "HTTPValidationError" in str(responses.get("422")):
                del responses["422"]
            if not any(isinstance(call, RequireRole) for call in calls):
                operation["security"] = []
            if plain_text_errors in calls:
                continue
            for code in _errors_of(method, calls, operation):
                described = {"description": _ERRORS[code], "content": content}
                responses.setdefault(str(code), described)


def _errors_of(method: str, calls: list[Any], operation: dict[str, Any]) -> Iterator[int]:
    """Yield the errors that follow from what an operation takes: who calls, values, and a body."""
    if any(isinstance(call, RequireRole) for call in calls):
        yield from (401, 403)
        if method != "GET":
            yield 429
    if any(isinstance(call, JsonBody) for call in calls):
        yield from (400, 413, 422)
    if any(parameter["in"] != "path" for parameter in operation.get("parameters", ())):
        yield 422


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
        operation["requestBody"] = {"required": body.rules.required, "content": content}
    referenced: dict[str, Any] = definitions.get("$defs", {})
    return referenced
