"""The HTTP face: the API, the live feed, the chat wire and the web app, as one FastAPI app.

``create_app`` makes it. For routes of your own beside it: ``JsonAnswer`` writes JSON as the others
do, and ``Anyone``, ``AChatter``, ``AReviewer`` and ``AnAgent`` are parameters that let in who has
that role, and say who it is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assent.server.access.auth import AChatter, AnAgent, Anyone, AReviewer
    from assent.server.app import create_app
    from assent.server.wire.answers import JsonAnswer

__all__ = ["AChatter", "AReviewer", "AnAgent", "Anyone", "JsonAnswer", "create_app"]

_HOMES = {"create_app": "assent.server.app", "JsonAnswer": "assent.server.wire.answers"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'assent.server' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "assent.server.access.auth")), name)
