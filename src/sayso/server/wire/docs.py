"""The OpenAPI document: complete enough that a script needs nothing else."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

import sayso
from sayso.server.wire.shapes import ErrorView
from sayso.server.wire.wording import worded

_ABOUT = """
The HTTP face of Sayso, a durable yes or no for AI agents.

People and scripts sign in with a bearer token (`sayso token create NAME --role reviewer`), the web
app with a session's cookie. Every refusal has the shape of `ErrorView`: its `message` says what to
do. Lists are paged: give the `next` of one page as the `after` of the following one.
"""

_SAID = {
    400: "The body is no JSON, or not one that everybody reads alike",
    401: "Nobody is signed in",
    403: "This role or person may not do that",
    404: "Not there, or not for you",
    409: "Somebody else was faster, or what you saw is not there any more; `decision` says who won",
    413: "The body is too large",
    422: "A value does not fit; `field` names it",
    429: "Too much at once; `Retry-After` says when to come back",
}

#: The schemas that routes mention, empty until somebody wants the document: to make them takes
#: longer than a server may take to start.
_schemas: dict[tuple[Any, JsonSchemaMode], dict[str, Any]] = {}


def takes(shape: Any, *, required: bool = True) -> dict[str, Any]:
    """The body of a route that reads it by itself."""
    return {"requestBody": {"required": required, "content": _json(shape, "validation")}}


def gives(shape: Any) -> dict[str, Any]:
    """An answer of a route."""
    return {"content": _json(shape, "serialization")}


def refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The refusals that a route may answer with."""
    return {code: {"description": _SAID[code], **gives(ErrorView)} for code in codes}


def _json(shape: Any, mode: JsonSchemaMode) -> dict[str, Any]:
    return {"application/json": {"schema": _schemas.setdefault((shape, mode), {})}}


def describe(app: FastAPI) -> dict[str, Any]:
    """The document of an app; made once."""
    if app.openapi_schema is None:
        found = _fill()
        document = get_openapi(
            title="Sayso",
            version=sayso.__version__,
            summary="A durable yes or no for AI agents.",
            description=_ABOUT,
            routes=app.routes,
        )
        components = document.setdefault("components", {})
        components.setdefault("schemas", {}).update(found)
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": "sayso_session"},
        }
        worded(document)
        document["security"] = [{"bearer": []}, {"session": []}]
        app.openapi_schema = document
    return app.openapi_schema


def _fill() -> dict[str, Any]:
    """Make the schemas that routes mention; gives what these refer to, by its name."""
    made, found = TypeAdapter.json_schemas(
        [(key, key[1], TypeAdapter(key[0])) for key in _schemas],
        ref_template="#/components/schemas/{model}",
    )
    for (key, _), schema in made.items():
        _schemas[key].update(schema)
    referred: dict[str, Any] = found["$defs"]
    return referred
