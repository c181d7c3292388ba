"""The OpenAPI document: complete enough that a script needs nothing else."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

import assent
from assent.server.bodies import shapes
from assent.server.shapes import ErrorView

_ABOUT = """
The HTTP face of Assent, a durable yes or no for AI agents.

People and scripts sign in with a bearer token (`assent token create NAME --role reviewer`), the web
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


def refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The refusals that a route may answer with, for its documentation."""
    return {code: {"model": ErrorView, "description": _SAID[code]} for code in codes}


def describe(app: FastAPI) -> dict[str, Any]:
    """The document of an app; made once, with the bodies that routes read by themselves."""
    if app.openapi_schema is None:
        document = get_openapi(
            title="Assent",
            version=assent.__version__,
            summary="A durable yes or no for AI agents.",
            description=_ABOUT,
            routes=app.routes,
        )
        components = document.setdefault("components", {})
        components.setdefault("schemas", {}).update(shapes)
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": "assent_session"},
        }
        document["security"] = [{"bearer": []}, {"session": []}]
        app.openapi_schema = document
    return app.openapi_schema
