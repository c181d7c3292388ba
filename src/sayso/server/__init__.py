"""The HTTP face: the API, the live feed, the chat wire and the web app, as one FastAPI app.

``create_app`` makes it. For routes of your own beside it: ``JsonAnswer`` writes JSON as the others
do, and ``Anyone``, ``AChatter``, ``AReviewer`` and ``AnAgent`` are parameters that let in who has
that role, and say who it is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.server.app import create_app
    from sayso.server.auth import AChatter, AnAgent, Anyone, AReviewer
    from sayso.server.wire.answers import JsonAnswer

__all__ = ["AChatter", "AReviewer", "AnAgent", "Anyone", "JsonAnswer", "create_app"]

_HOMES = {"create_app": "sayso.server.app", "JsonAnswer": "sayso.server.wire.answers"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sayso.server' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "sayso.server.auth")), name)
