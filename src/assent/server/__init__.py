"""The HTTP face: the API, the live feed, the chat wire and the web app, as one FastAPI app."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assent.server.app import create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> object:
    if name == "create_app":
        from assent.server.app import create_app

        return create_app
    raise AttributeError(name)
